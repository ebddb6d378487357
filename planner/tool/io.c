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

#include "tool/svg.h"
#include "tool/symm_plan.h"

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

static bool told(const char *command, symm_status status)
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
        return told(command, symm_program_read(path, program));
    text = read_input(&length);
    good = text && told(command, symm_program_parse(text, length, input_name, program));
    free(text);
    return good;
}

bool symm_plan_get_plan(const char *command, const char *path, symm_plan **plan)
{
    size_t length;
    char *text;
    bool good;

    if (!symm_plan_is_dash(path))
        return told(command, symm_plan_read(path, plan));
    text = read_input(&length);
    good = text && told(command, symm_plan_parse(text, length, input_name, plan));
    free(text);
    return good;
}

bool symm_plan_get_costs(const char *command, const char *path, symm_costs **costs)
{
    size_t length;
    char *text;
    bool good;

    if (!symm_plan_is_dash(path))
        return told(command, symm_costs_read(path, costs));
    text = read_input(&length);
    good = text && told(command, symm_costs_parse(text, length, input_name, costs));
    free(text);
    return good;
}

bool symm_plan_put_text(const char *command, const char *path, const char *text,
                        size_t length)
{
    FILE *file = path ? fopen(path, "we") : stdout;
    bool good;

    if (!file) {
        fprintf(stderr, "symm-plan %s: %s: cannot be created: %s\n", command, path,
                strerror(errno));
        return false;
    }
    good = fwrite(text, 1, length, file) == length;
    good = (path ? fclose(file) : fflush(file)) == 0 && good;
    if (good)
        return true;
    fprintf(stderr, "symm-plan %s: %s cannot be written: %s\n", command,
            path ? path : "standard output", strerror(errno));
    if (path)
        symm_plan_discard(path);
    return false;
}
