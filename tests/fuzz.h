/* SPDX-License-Identifier: MIT */
/*
 * fuzz.h - what the fuzzing targets, tests/fuzz_NAME.c, have in common.
 *
 * A target is LLVMFuzzerTestOneInput, which gives arbitrary bytes to one parser; its corpus is
 * tests/data/fuzz/NAME/. fuzz_run.c makes it the suite host_fuzz_NAME, `cmake --preset fuzz` a
 * program of libFuzzer. A target keeps no state from one input to the next and ends with the
 * descriptors that it began with.
 *
 * Parsers of messages get theirs by a script: an input is text, and each line of it a message, of
 * numbers with spaces between them. So a corpus can be read and written by hand, and changes of an
 * input reach the fields behind hashes, which the target computes.
 */
#ifndef SYMM_TESTS_FUZZ_H
#define SYMM_TESTS_FUZZ_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for each input. */
static inline void fuzz_must(bool condition, const char *what, const char *why)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz: must be: %s: %s\n", what, why ? why : "");
    abort();
}

/* A close resets the connection: thousands of them would else wait for their time to pass, and
 * take the ports that others need. */
static inline void fuzz_no_wait(int fd)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* A socket at a port of this host's that the kernel chooses. It keeps the port from others, but for one
 * that is to listen there and may share it, as listeners at a port that was asked for do. */
static inline int fuzz_reserve(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int yes = 1;
    socklen_t bytes = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0)
        abort();
    *port = ntohs(at.sin_port);
    return fd;
}

/* A listener that does not wait, at such a port. */
static inline int fuzz_listen(int *port)
{
    int fd = fuzz_reserve(port);

    if (listen(fd, 16) != 0)
        abort();
    return fd;
}

/* ---- Scripts ---------------------------------------------------------------------- */

struct fuzz_script {
    const char *at, *end;
};

struct fuzz_line {
    const char *at, *end;
};

static inline struct fuzz_script fuzz_script(const uint8_t *data, size_t size)
{
    return (struct fuzz_script){(const char *)data, (const char *)data + size};
}

/* False: no line is left. */
static inline bool fuzz_next(struct fuzz_script *script, struct fuzz_line *line)
{
    const char *end;

    if (script->at >= script->end)
        return false;
    end = memchr(script->at, '\n', (size_t)(script->end - script->at));
    *line = (struct fuzz_line){script->at, end ? end : script->end};
    script->at = end ? end + 1 : script->end;
    return true;
}

/* Copies the next word; "" at the end of the line. */
static inline void fuzz_word(struct fuzz_line *line, char *word, size_t room)
{
    size_t used = 0;

    while (line->at < line->end && *line->at == ' ')
        line->at++;
    for (; line->at < line->end && *line->at != ' '; line->at++)
        if (used + 1 < room)
            word[used++] = *line->at;
    word[used] = '\0';
}

/* The next number: decimal, negative or 0x; a word that is none ("." or the line's end) gives
 * `usual`. */
static inline int64_t fuzz_number(struct fuzz_line *line, int64_t usual)
{
    char word[24], *end;
    unsigned long long value;

    fuzz_word(line, word, sizeof(word));
    value = strtoull(word, &end, 0);
    return end == word || *end ? usual : (int64_t)value;
}

/* The rest of the line without its first space; its bytes go as they are. */
static inline size_t fuzz_rest(struct fuzz_line *line, const char **bytes)
{
    if (line->at < line->end)
        line->at++;
    *bytes = line->at;
    line->at = line->end;
    return (size_t)(line->end - *bytes);
}

#endif
