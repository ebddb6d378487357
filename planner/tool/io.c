/* SPDX-License-Identifier: MIT */
/*
 * io.c - the tool's files: `-` is standard input or standard output.
 *
 * Guarantees: errors name standard input as such. Refuses two inputs from it: the first
 * would take what is meant for the second.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/symm_plan.h"
#include "tools/common/args.h"

static const char input_name[] = "standard input";

bool symm_plan_is_dash(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

void symm_plan_take_output(const char **path)
{
    if (symm_plan_is_dash(*path))
        *path = NULL;
}

bool symm_plan_one_input(const char *command, const char *one, const char *other)
{
    if (!symm_plan_is_dash(one) || !symm_plan_is_dash(other))
        return true;
    fprintf(stderr,
            "symm-plan %s: found '-' twice, allowed: standard input once, a file for "
            "the other\n",
            command);
    return false;
}

/* All of standard input; NULL after a complaint. */
static char *read_input(size_t *length)
{
    size_t room = 0;
    char *text = NULL, *grown;

    *length = 0;
    do {
        if (room - *length < 65536) {
            room = 2 * room + 131072;
            grown = realloc(text, room);
            if (!grown) {
                fprintf(stderr, "symm-plan: %s: memory is exhausted\n", input_name);
                free(text);
                return NULL;
            }
            text = grown;
        }
        *length += fread(text + *length, 1, room - *length, stdin);
    } while (!feof(stdin) && !ferror(stdin));
    if (!ferror(stdin))
        return text;
    fprintf(stderr, "symm-plan: %s: cannot be read: %s\n", input_name, strerror(errno));
    free(text);
    return NULL;
}

static bool report(const char *command, symm_status status)
{
    if (status != SYMM_OK)
        fprintf(stderr, "symm-plan %s: %s\n", command, symm_last_error());
    return status == SYMM_OK;
}

bool symm_plan_get_program(const char *command, const char *path,
                           symm_program **program)
{
    size_t length;
    char *text;
    bool good;

    if (!symm_plan_is_dash(path))
        return report(command, symm_program_read(path, program));
    text = read_input(&length);
    good = text && report(command, symm_program_parse(text, length, input_name, program));
    free(text);
    return good;
}

bool symm_plan_get_plan(const char *command, const char *path, symm_plan **plan)
{
    size_t length;
    char *text;
    bool good;

    if (!symm_plan_is_dash(path))
        return report(command, symm_plan_read(path, plan));
    text = read_input(&length);
    good = text && report(command, symm_plan_parse(text, length, input_name, plan));
    free(text);
    return good;
}

bool symm_plan_get_costs(const char *command, const char *path, symm_costs **costs)
{
    size_t length;
    char *text;
    bool good;

    if (!symm_plan_is_dash(path))
        return report(command, symm_costs_read(path, costs));
    text = read_input(&length);
    good = text && report(command, symm_costs_parse(text, length, input_name, costs));
    free(text);
    return good;
}

/* ---- Output ---------------------------------------------------------------------- */

static bool is_output(const char *path)
{
    return !path || symm_plan_is_dash(path);
}

FILE *symm_plan_open_output(const char *path)
{
    FILE *file;

    if (is_output(path))
        return stdout;
    file = fopen(path, "we");
    if (!file)
        fprintf(stderr, "symm-plan: %s: cannot be created: %s\n", path,
                strerror(errno));
    return file;
}

bool symm_plan_close_output(const char *path, FILE *file)
{
    int error = args_stream_error(file);

    if (!is_output(path) && fclose(file) != 0 && error == 0)
        error = errno;
    if (error == 0)
        return true;
    fprintf(stderr, "symm-plan: %s cannot be written: %s\n",
            is_output(path) ? "standard output" : path, strerror(error));
    if (path)
        symm_plan_discard(path);
    return false;
}

bool symm_plan_put_text(const char *path, const char *text, size_t length)
{
    FILE *file = symm_plan_open_output(path);

    if (!file)
        return false;
    fwrite(text, 1, length, file);
    return symm_plan_close_output(path, file);
}

#define PUT(object)                                                                    \
    bool symm_plan_put_##object(const char *command, const char *path,                 \
                                const symm_##object *object)                           \
    {                                                                                  \
        size_t length;                                                                 \
        char *text;                                                                    \
        bool good;                                                                     \
                                                                                       \
        if (path)                                                                      \
            return report(command, symm_##object##_write(object, path));               \
        if (!report(command, symm_##object##_format(object, &text, &length)))          \
            return false;                                                              \
        good = symm_plan_put_text(NULL, text, length);                                 \
        symm_text_free(text);                                                          \
        return good;                                                                   \
    }
PUT(program)
PUT(plan)
#undef PUT

void symm_plan_discard(const char *path)
{
    struct stat stat;

    if (strcmp(path, "-") != 0 && lstat(path, &stat) == 0 && S_ISREG(stat.st_mode))
        unlink(path);
}

/* The folder that a path is in; false: there is none, or it cannot be looked at. */
static bool stat_folder(const char *path, struct stat *is)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const bool good = folder && stat(folder, is) == 0;

    free(folder);
    return good;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool symm_plan_same_file(const char *one, const char *other)
{
    struct stat a, b;

    if (stat(one, &a) == 0) /* two results may go to one device or pipe */
        return S_ISREG(a.st_mode) && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
               a.st_ino == b.st_ino;
    return strcmp(name_of(one), name_of(other)) == 0 && stat_folder(one, &a) &&
           stat_folder(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
