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

/* Unicode, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF. */
size_t symm__utf8(const unsigned char *s)
{
    unsigned char low = 0x80, high = 0xbf; /* of the second byte */
    size_t count;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        count = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        count = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        count = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < count; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return count;
}

bool symm__is_utf8(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        size_t count = symm__utf8(s);

        if (count == 0)
            return false;
        s += count;
    }
    return true;
}
