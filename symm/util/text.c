/* SPDX-License-Identifier: MIT */
/*
 * text.c - see text.h.
 */
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void symm__one_line(char *text)
{
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

const char *symm__printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return text;
}

const char *symm__reason(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    if (text[strspn(text, " \t\r\n")] == '\0')
        return "a failure, without its reason";
    return symm__printable(text, bytes);
}

const char *symm__fit(char *text, size_t bytes, const char *sentence)
{
    const size_t length = strlen(sentence);
    const char *last = sentence + length - bytes / 3, *word;

    if (length < bytes)
        return memmove(text, sentence, length + 1);
    word = strchr(last, ' ');
    if (word)
        last = word;
    snprintf(text, bytes, "%.*s...%s", (int)(bytes - strlen(last) - 4), sentence, last);
    return text;
}

ssize_t symm__read_text(char *text, size_t bytes, const char *format, ...)
{
    char path[512];
    size_t used = 0;
    ssize_t got;
    va_list args;
    int fd, error;

    text[0] = '\0';
    va_start(args, format);
    got = vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    if ((size_t)got >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    do {
        got = read(fd, text + used, bytes - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    error = errno;
    (void)close(fd);
    errno = error;
    text[used] = '\0';
    return got < 0 ? -1 : (ssize_t)used;
}

const char *symm__size_text(uint64_t size, char *text, size_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    double value = (double)size;

    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    snprintf(text, bytes, "%.4g %s", value, units[unit]);
    return text;
}
