/* SPDX-License-Identifier: MIT */
/* prometheus.c - see prometheus.h. */
#include "prometheus.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 4096 /* series or families of a file */

struct reader {
    const char *family[MOST]; /* names in the text, that have ended or go on */
    size_t family_length[MOST];
    bool is_counter[MOST];
    int families;
    const char *series[MOST];
    size_t series_length[MOST];
    int count;
};

char *prometheus_read(const char *path)
{
    const size_t room = (size_t)4 << 20;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : malloc(room);
    size_t used = 0;
    ssize_t got = 0;

    while (text && used < room - 1 &&
           (got = read(fd, text + used, room - 1 - used)) > 0)
        used += (size_t)got;
    if (text)
        text[used] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

static bool refuse(const char *line, const char *why)
{
    fprintf(stderr, "prometheus: %s: %.*s\n", why, (int)strcspn(line, "\n"), line);
    return false;
}

/* The length of a name at `at`; 0: there is none. */
static size_t name_at(const char *at, bool colons)
{
    size_t n = 0;

    while (isalpha((unsigned char)at[n]) || at[n] == '_' || (colons && at[n] == ':') ||
           (n > 0 && isdigit((unsigned char)at[n])))
        n++;
    return n;
}

static bool is_known(const struct reader *r, const char *name, size_t length)
{
    for (int i = 0; i < r->families; i++)
        if (r->family_length[i] == length && memcmp(r->family[i], name, length) == 0)
            return true;
    return false;
}

static bool read_type(struct reader *r, const char *line)
{
    const char *name = line + strlen("# TYPE "), *type;
    const size_t length = name_at(name, true);

    if (length == 0 || name[length] != ' ')
        return refuse(line, "no name after TYPE");
    if (is_known(r, name, length))
        return refuse(line, "a family in two pieces");
    if (r->families == MOST)
        return refuse(line, "too many families");
    type = name + length + 1;
    r->is_counter[r->families] = strncmp(type, "counter\n", 8) == 0;
    if (!r->is_counter[r->families] && strncmp(type, "gauge\n", 6) != 0)
        return refuse(line, "a type that the library has not");
    if (r->is_counter[r->families] &&
        (length < 7 || memcmp(name + length - 6, "_total", 6) != 0))
        return refuse(line, "a counter whose name does not end in _total");
    r->family[r->families] = name;
    r->family_length[r->families++] = length;
    return true;
}

/* Behind the labels that begin at `at`; NULL: they are wrong. */
static const char *skip_labels(const char *at)
{
    if (*at++ != '{')
        return NULL;
    for (;;) {
        const size_t length = name_at(at, false);

        if (length == 0 || strncmp(at + length, "=\"", 2) != 0)
            return NULL;
        for (at += length + 2; *at != '"'; at++) {
            if (*at == '\n' || *at == '\0')
                return NULL;
            if (*at == '\\' && !strchr("\\\"n", *++at))
                return NULL;
        }
        if (*++at == '}')
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

static bool read_sample(struct reader *r, const char *line)
{
    const size_t length = name_at(line, true);
    const int last = r->families - 1;
    const char *at = length > 0 ? skip_labels(line + length) : NULL;
    char *end;
    double value;

    if (!at || *at != ' ')
        return refuse(line, "no sample");
    if (last < 0 || r->family_length[last] != length ||
        memcmp(r->family[last], line, length) != 0)
        return refuse(line, "a sample that is not below its TYPE");
    for (int i = 0; i < r->count; i++)
        if (r->series_length[i] == (size_t)(at - line) &&
            memcmp(r->series[i], line, r->series_length[i]) == 0)
            return refuse(line, "a series twice");
    if (r->count == MOST)
        return refuse(line, "too many series");
    r->series[r->count] = line;
    r->series_length[r->count++] = (size_t)(at - line);
    value = strtod(at + 1, &end);
    if (!isdigit((unsigned char)at[1]) || *end != '\n' || value < 0)
        return refuse(line, "no number");
    return true;
}

bool prometheus_check(const char *text)
{
    struct reader *r = calloc(1, sizeof(*r));
    bool good = r != NULL && *text != '\0';

    for (const char *line = text; good && *line; line = strchr(line, '\n') + 1) {
        if (!strchr(line, '\n'))
            good = refuse(line, "the file is cut");
        else if (strncmp(line, "# TYPE ", 7) == 0)
            good = read_type(r, line);
        else if (strncmp(line, "# HELP ", 7) == 0)
            good = name_at(line + 7, true) > 0 || refuse(line, "no name after HELP");
        else
            good = read_sample(r, line);
    }
    free(r);
    return good;
}

/* Whether the line's labels, which end at `end`, have this one. */
static bool has_label(const char *line, const char *end, const char *label)
{
    const size_t length = strlen(label);

    for (const char *at = line; at + length < end; at++)
        if ((*at == '{' || *at == ',') && strncmp(at + 1, label, length) == 0 &&
            (at[1 + length] == ',' || at[1 + length] == '}'))
            return true;
    return false;
}

double prometheus_sum(const char *text, const char *family, ...)
{
    const size_t length = strlen(family);
    double sum = -1;

    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n'), *label;
        bool all = strncmp(line, family, length) == 0 && line[length] == '{';
        va_list labels;

        va_start(labels, family);
        while (all && (label = va_arg(labels, const char *)) != NULL)
            all = has_label(line, end, label);
        va_end(labels);
        if (all)
            sum = (sum < 0 ? 0 : sum) + strtod(skip_labels(line + length), NULL);
    }
    return sum;
}
