/* SPDX-License-Identifier: MIT */
/* args.c - see args.h. getopt_long splits the words; values are parsed and checked here. */
#include "tools/common/args.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG 256 /* getopt's number of options[0] by its long name */
#define MOST 32  /* options of a tool */

struct place {
    char name[32]; /* as it was given: -n, --nproc-per-node */
    const char *text;
    char *error;
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) static bool refuse(const struct place *place,
                                                         const char *allowed, ...)
{
    char form[160];
    va_list args;

    va_start(args, allowed);
    vsnprintf(form, sizeof(form), allowed, args);
    va_end(args);
    snprintf(place->error, place->bytes, "%s: found '%.40s', allowed: %s", place->name,
             place->text, form);
    return false;
}

static bool take_integer(const struct place *place, const struct args_option *option)
{
    char *end;
    int *value = option->value;
    bool word = option->words && strcmp(place->text, option->words) == 0;

    errno = 0;
    long number = word ? -1 : strtol(place->text, &end, 10);
    if (!word &&
        (errno || !strchr("-0123456789", *place->text) || end == place->text || *end ||
         (double)number < option->low || (double)number > option->high))
        return refuse(place, "an integer from %.0f to %.0f%s%s", option->low,
                      option->high, option->words ? " or " : "",
                      option->words ? option->words : "");
    if (option->once && option->given && *value != number)
        return refuse(place, "the same number as before, %d", *value);
    *value = (int)number;
    return true;
}

static bool take_number(const struct place *place, const struct args_option *option)
{
    bool zero = option->kind == ARGS_NUMBER_OR_0;
    char *end;

    errno = 0;
    double number = strtod(place->text, &end);
    if (errno || end == place->text || *end ||
        place->text[strspn(place->text, "0123456789.e-")] ||
        !(number >= 0 && number <= option->high) || (!zero && !(number > 0)))
        return refuse(place, "%s %s 0, at most %g, as 30 or 0.5", option->words,
                      zero ? "from" : "above", option->high);
    *(double *)option->value = number;
    return true;
}

static bool take_size(const struct place *place, const struct args_option *option)
{
    static const char units[] = "KMG";
    unsigned shift = 0;
    char *end;

    errno = 0;
    unsigned long long number = strtoull(place->text, &end, 10);
    if (*end) {
        /* Clearing that bit makes a small letter a capital, and a space the final NUL. */
        const char *unit = strchr(units, *end & ~0x20);
        if (unit && *unit && !end[1]) {
            shift = 10 * (unsigned)(unit - units + 1);
            end++;
        }
    }
    if (errno || *place->text < '0' || *place->text > '9' || *end ||
        number > (SIZE_MAX >> 1) >> shift || (double)number < option->low)
        return refuse(place, "bytes as 8, 64K, 4M or 1G%s",
                      option->low > 0 ? ", above 0" : "");
    *(size_t *)option->value = (size_t)number << shift;
    return true;
}

/* The place of a word of `length` characters in "one, two"; -1: it is not there. */
static int find_word(const char *words, const char *word, size_t length)
{
    for (int i = 0; *words; i++) {
        size_t bytes = strcspn(words, ",");
        if (bytes == length && memcmp(words, word, length) == 0)
            return i;
        words += bytes + strspn(words + bytes, ", ");
    }
    return -1;
}

static bool take_words(const struct place *place, const struct args_option *option)
{
    const char *word = place->text;
    size_t length;
    int bits = 0;

    do {
        length = option->kind == ARGS_LIST ? strcspn(word, ",") : strlen(word);
        int found = find_word(option->words, word, length);
        if (found < 0)
            return refuse(place, "%s", option->words);
        bits |= 1 << found;
        word += length + 1;
    } while (word[-1]);
    if (option->kind == ARGS_LIST)
        *(int *)option->value |= bits;
    else
        *(const char **)option->value = place->text;
    return true;
}

static bool take(const struct place *place, const struct args_option *option)
{
    switch (option->kind) {
    case ARGS_FLAG:
    case ARGS_STOP:
        *(bool *)option->value = true;
        return true;
    case ARGS_TEXT:
        *(const char **)option->value = place->text;
        return true;
    case ARGS_INTEGER:
        return take_integer(place, option);
    case ARGS_SIZE:
        return take_size(place, option);
    case ARGS_NUMBER:
    case ARGS_NUMBER_OR_0:
        return take_number(place, option);
    case ARGS_CHOICE:
    case ARGS_LIST:
        return take_words(place, option);
    }
    return false;
}

/* getopt's tables. */
static void describe(const struct args_option *options, int count, bool in_order,
                     struct option *longs, char *letters)
{
    letters += sprintf(letters, "%s:", in_order ? "+" : "");
    for (int i = 0; i < count; i++) {
        bool valued = options[i].kind > ARGS_STOP;
        if (options[i].name)
            *longs++ = (struct option){options[i].name, valued, NULL, LONG + i};
        if (options[i].letter)
            letters += sprintf(letters, "%c%s", options[i].letter, valued ? ":" : "");
    }
    *longs = (struct option){0};
}

int args_parse(int argc, char **argv, struct args_option *options, int count,
               bool in_order, char *error, size_t bytes)
{
    struct option longs[MOST + 1];
    char letters[2 * MOST + 3];
    struct place place = {.error = error, .bytes = bytes};
    int found;

    describe(options, count, in_order, longs, letters);
    opterr = 0;
    optind = 0; /* glibc: from the beginning */
    while ((found = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        bool wrong = found == '?' || found == ':';
        int at = wrong ? optopt : found, i = at - LONG;

        for (int j = 0; i < 0 && j < count; j++)
            if (at && options[j].letter == at)
                i = j + count; /* by its letter */
        if (i < 0) {
            if (at)
                snprintf(error, bytes, "'-%c': unknown option; --help lists them", at);
            else
                snprintf(error, bytes,
                         "'%.60s': unknown option, or short for several; --help lists "
                         "them",
                         argv[optind - 1]);
            return -1;
        }
        struct args_option *option = &options[i % count];
        if (i < count)
            snprintf(place.name, sizeof(place.name), "--%s", option->name);
        else
            snprintf(place.name, sizeof(place.name), "-%c", at);
        if (wrong) {
            snprintf(error, bytes, "%s: %s", place.name,
                     found == ':' ? "its value is missing" : "it takes no value");
            return -1;
        }
        place.text = optarg;
        if (!take(&place, option))
            return -1;
        option->given = true;
        if (option->kind == ARGS_STOP)
            return argc;
    }
    return optind;
}

void args_guard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
}

bool args_is_secret(const char *variable)
{
    static const char *const names[] = {"SYMM_SECRET", "SYMM_JOB_SECRET"};
    const size_t length = strcspn(variable, "=");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == length && strncmp(variable, names[i], length) == 0)
            return true;
    return false;
}

int args_stream_error(FILE *file)
{
    const bool lost = ferror(file) != 0;

    errno = 0;
    if (fflush(file) != 0 && errno != 0)
        return errno;
    if (!lost)
        return 0;
    /* A write of long ago: errno may be of another call, or 0. What follows fails alike. */
    clearerr(file);
    return fputc('\n', file) == EOF || fflush(file) != 0 ? errno : EIO;
}

bool args_flush(const char *tool)
{
    const int error = args_stream_error(stdout);

    if (error != 0)
        fprintf(stderr, "%s: stdout: %s\n", tool, strerror(error));
    return error == 0;
}

int args_pids(int argc, char **argv, int word, int *pids, int *count, int most,
              char *error, size_t bytes)
{
    for (*count = 0; word < argc; word++) {
        char *end;
        long pid = strtol(argv[word], &end, 10);

        if (argv[word][0] < '0' || argv[word][0] > '9' || *end || pid <= 0 ||
            pid > INT32_MAX || *count >= most) {
            snprintf(error, bytes, "'%.100s' is no number of a process", argv[word]);
            return -1;
        }
        pids[(*count)++] = (int)pid;
    }
    return 0;
}
