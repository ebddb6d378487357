/* SPDX-License-Identifier: MIT */
/*
 * csv.c - reads and writes lifetimes as CSV.
 *
 * The header is id,lower,upper,size. Further columns are ignored (an answer can be
 * packed again), except those of the format's other readers that would change the
 * answer. Lines end with LF or CRLF; the last one need not.
 */
#include "tool/csv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/symm_plan.h"

#define MAX_ID      255
#define MAX_COLUMNS 64

struct reader {
    const char *path;
    FILE *file;
    char *line;
    size_t room;
    int number;  /* of the line */
    int columns; /* of the header */
    char *fields[MAX_COLUMNS];
    int *line_of; /* by item */
    struct lifetimes lifetimes;
};

/* ---- Errors ---------------------------------------------------------------------- */

/* "FILE:LINE: found "TEXT"; allowed: ..." with what can't be printed as '?'. */
__attribute__((format(printf, 4, 5))) static bool
refuse(const struct reader *r, int number, const char *found, const char *allowed, ...)
{
    char text[64];
    size_t length = 0;
    va_list args;

    for (const char *c = found; c && *c && length < sizeof(text) - 4; c++)
        text[length++] = *c >= 0x20 && *c < 0x7f ? *c : '?';
    text[length] = 0;
    if (found && found[length])
        memcpy(text + length, "...", 4);
    fprintf(stderr,
            found ? "symm-plan: %s:%d: found \"%s\"; allowed: "
                  : "symm-plan: %s:%d: found nothing%s; allowed: ",
            r->path, number, text);
    va_start(args, allowed);
    vfprintf(stderr, allowed, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

static bool complain(const char *path, const char *what, int error)
{
    fprintf(stderr, "symm-plan: %s: %s: %s\n", path, what, strerror(error));
    return false;
}

/* ---- Lines ----------------------------------------------------------------------- */

/* 1: a line without its end; 0: the end of the file; -1: a complaint was made. */
static int next_line(struct reader *r)
{
    ssize_t length;

    errno = 0;
    length = getline(&r->line, &r->room, r->file);
    if (length < 0 && (ferror(r->file) || errno != 0)) {
        complain(r->path, "cannot be read", errno);
        return -1;
    }
    if (length < 0)
        return 0;
    r->number++;
    if (memchr(r->line, 0, (size_t)length)) {
        refuse(r, r->number, "\1", "text without zero bytes");
        return -1;
    }
    if (length > 0 && r->line[length - 1] == '\n')
        r->line[--length] = 0;
    if (length > 0 && r->line[length - 1] == '\r')
        r->line[--length] = 0;
    return 1;
}

/* Cuts the line at its commas; -1: more than MAX_COLUMNS. */
static int cut(struct reader *r)
{
    char *rest = r->line, *field;
    int count = 0;

    while ((field = strsep(&rest, ","))) {
        if (count == MAX_COLUMNS)
            return -1;
        r->fields[count++] = field;
    }
    return count;
}

static bool read_header(struct reader *r)
{
    static const char *const names[] = {"id", "lower", "upper", "size"};
    static const char *const meant[] = {"alignment", "gaps"};
    int got = next_line(r);

    if (got < 0)
        return false;
    if (got == 0)
        return refuse(r, 1, NULL, "the header id,lower,upper,size");
    r->columns = cut(r);
    if (r->columns < 0)
        return refuse(r, 1, r->line, "a header of at most %d columns", MAX_COLUMNS);
    for (int c = 0; c < 4; c++)
        if (c >= r->columns || strcmp(r->fields[c], names[c]) != 0)
            return refuse(r, 1, c < r->columns ? r->fields[c] : NULL,
                          "\"%s\" as column %d of the header id,lower,upper,size",
                          names[c], c + 1);
    for (int c = 4; c < r->columns; c++)
        for (size_t k = 0; k < sizeof(meant) / sizeof(meant[0]); k++)
            if (strcmp(r->fields[c], meant[k]) == 0)
                return refuse(
                    r, 1, meant[k],
                    "columns without a meaning for the placement; this one is "
                    "not supported");
    return true;
}

/* ---- Rows ------------------------------------------------------------------------ */

static bool read_integer(const struct reader *r, int column, const char *name,
                         int64_t lowest, int64_t *value)
{
    const char *text = r->fields[column], *digits = text + (*text == '-');
    size_t length = strlen(digits);
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (length == 0 || strspn(digits, "0123456789") != length || errno != 0 || *end ||
        number < lowest)
        return refuse(r, r->number, *text ? text : NULL,
                      "as %s an integer from %" PRId64 " to %" PRId64, name, lowest,
                      INT64_MAX);
    *value = number;
    return true;
}

static bool add_item(struct reader *r, const symm_pack_item *item)
{
    struct lifetimes *l = &r->lifetimes;

    if (l->count == l->room) {
        size_t room = (size_t)l->room * 2 + 256;
        char **ids = realloc(l->ids, room * sizeof(*ids));
        l->ids = ids ? ids : l->ids;
        symm_pack_item *items = realloc(l->items, room * sizeof(*items));
        l->items = items ? items : l->items;
        int *line_of = realloc(r->line_of, room * sizeof(*line_of));
        r->line_of = line_of ? line_of : r->line_of;
        if (!ids || !items || !line_of)
            return complain(r->path, "cannot be read", ENOMEM);
        l->room = (int)room;
    }
    l->ids[l->count] = strdup(r->fields[0]);
    if (!l->ids[l->count])
        return complain(r->path, "cannot be read", ENOMEM);
    l->items[l->count] = *item;
    r->line_of[l->count++] = r->number;
    return true;
}

static bool check_id(const struct reader *r)
{
    const char *id = r->fields[0];

    if (*id == 0)
        return refuse(r, r->number, NULL, "an id");
    if (strlen(id) > MAX_ID)
        return refuse(r, r->number, id, "an id of at most %d bytes", MAX_ID);
    for (const char *c = id; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '"')
            return refuse(r, r->number, id,
                          "an id without control characters and quotes");
    return true;
}

static bool read_row(struct reader *r)
{
    symm_pack_item item;
    int count;

    if (*r->line == 0)
        return refuse(r, r->number, NULL, "%d fields, divided by commas", r->columns);
    count = cut(r);
    if (count != r->columns) {
        char found[32];
        snprintf(found, sizeof(found), "%d fields", count);
        return refuse(r, r->number, count < 0 ? "more fields" : found,
                      "%d fields, as in the header", r->columns);
    }
    if (!check_id(r) || !read_integer(r, 1, "lower", INT64_MIN, &item.lower) ||
        !read_integer(r, 2, "upper", INT64_MIN, &item.upper) ||
        !read_integer(r, 3, "size", 0, &item.bytes))
        return false;
    if (item.upper <= item.lower)
        return refuse(r, r->number, r->fields[2],
                      "an upper above lower, %" PRId64 ": lifetimes are half-open",
                      item.lower);
    if (r->lifetimes.count == LIFETIMES_MAX)
        return refuse(r, r->number, r->fields[0], "at most %d rows", LIFETIMES_MAX);
    return add_item(r, &item);
}

struct named {
    const char *id;
    int item;
};

static int compare_names(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->id, y->id);

    return order ? order : x->item - y->item;
}

static bool check_unique(const struct reader *r)
{
    const struct lifetimes *l = &r->lifetimes;
    struct named *names = calloc((size_t)l->count + 1, sizeof(*names));
    bool unique = true;

    if (!names)
        return complain(r->path, "cannot be read", ENOMEM);
    for (int i = 0; i < l->count; i++)
        names[i] = (struct named){l->ids[i], i};
    qsort(names, (size_t)l->count, sizeof(*names), compare_names);
    for (int i = 1; i < l->count && unique; i++)
        if (strcmp(names[i].id, names[i - 1].id) == 0)
            unique = refuse(r, r->line_of[names[i].item], names[i].id,
                            "an id not used before; line %d has it",
                            r->line_of[names[i - 1].item]);
    free(names);
    return unique;
}

bool symm_plan_csv_read(const char *path, struct lifetimes *lifetimes)
{
    const bool input = strcmp(path, "-") == 0;
    struct reader r = {.path = input ? "standard input" : path,
                       .file = input ? stdin : fopen(path, "re")};
    int got = 0;
    bool good;

    if (!r.file)
        return complain(path, "cannot be opened", errno);
    good = read_header(&r);
    while (good && (got = next_line(&r)) > 0)
        good = read_row(&r);
    good = good && got == 0 && check_unique(&r);
    fclose(r.file);
    free(r.line);
    free(r.line_of);
    if (good)
        *lifetimes = r.lifetimes;
    else
        symm_plan_csv_free(&r.lifetimes);
    return good;
}

/* ---- Writing --------------------------------------------------------------------- */

bool symm_plan_csv_write(const char *path, const struct lifetimes *l,
                         const int64_t *offsets)
{
    FILE *file = symm_plan_open_output(path);

    if (!file)
        return false;
    fputs("id,lower,upper,size,offset\n", file);
    for (int i = 0; i < l->count; i++)
        fprintf(file, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", l->ids[i],
                l->items[i].lower, l->items[i].upper, l->items[i].bytes, offsets[i]);
    return symm_plan_close_output(path, file);
}

void symm_plan_csv_free(struct lifetimes *l)
{
    for (int i = 0; i < l->count; i++)
        free(l->ids[i]);
    free(l->ids);
    free(l->items);
    *l = (struct lifetimes){0};
}
