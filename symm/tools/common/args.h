/* SPDX-License-Identifier: MIT */
/*
 * args.h - the options of a tool as a table: names, form, range and place of each value.
 *
 * A wrong option ends the parsing with one sentence that shows what was found and what is
 * allowed. All of a value's text must have its form: "4 ", "nan" and overflows are refused.
 */
#ifndef SYMM_TOOLS_COMMON_ARGS_H
#define SYMM_TOOLS_COMMON_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum args_kind {
    ARGS_FLAG,    /* bool: becomes true */
    ARGS_STOP,    /* bool: becomes true, and nothing after it is read: --help */
    ARGS_TEXT,    /* const char *: borrows from argv */
    ARGS_CHOICE,  /* const char *: one of words */
    ARGS_LIST,    /* int: a bit for each of words, separated by commas */
    ARGS_INTEGER, /* int from low to high; -1 for the text that `words` holds, if any */
    ARGS_SIZE,    /* size_t from low to half the address space: bytes, as 4K */
    ARGS_NUMBER,  /* double above 0, at most high */
    ARGS_NUMBER_OR_0, /* double from 0 to high */
};

struct args_option {
    const char *name; /* long; NULL: none */
    char letter;      /* '\0': none */
    enum args_kind kind;
    void *value; /* where the value is stored, if the option is given */
    double low, high;
    const char *words; /* of a choice: "host, cuda"; of a number its unit: "seconds" */
    bool once;         /* an INTEGER that is given again must be the same */
    bool given;        /* set by the parsing */
};

/* A row of the table; further members follow as .high = 5. */
#define ARGS_ROW(long_, letter_, kind_, value_, ...)                                   \
    {                                                                                  \
        .name = (long_), .letter = (letter_), .kind = (kind_), .value = (value_),      \
        __VA_ARGS__                                                                    \
    }

/* Reads argv[1...]. in_order: ends at the first word that is no option. Returns the index of
 * the first word (others follow), or -1 and a sentence in error. */
int args_parse(int argc, char **argv, struct args_option *options, int count,
               bool in_order, char *error, size_t bytes);

/* The words from `word` on are numbers of processes: stores them, at most `most`. Returns 0, or -1
 * and a sentence in error. */
int args_pids(int argc, char **argv, int word, int *pids, int *count, int most,
              char *error, size_t bytes);

/*
 * Opens closed standard streams read-only: a file opened later must not get the stream's
 * number and receive the printed text. With SIGXFSZ ignored, RLIMIT_FSIZE is an error of
 * write(2).
 */
void args_guard_streams(void);
/* Is the variable ("NAME" or "NAME=VALUE") the job's secret? A stranger who knows the secret can join
 * the job. So no tool shows it. */
bool args_is_secret(const char *variable);
/* Flushes the stream. 0, or the errno of what was lost, now or before. */
int args_stream_error(FILE *file);
/* Flushes stdout. False: output was lost, after a message on stderr with the tool's name. */
bool args_flush(const char *tool);

#endif
