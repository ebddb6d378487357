/* SPDX-License-Identifier: MIT */
/*
 * option_table.c - the SYMM_* variables: their table, and their text in the environment.
 *
 * The environment is read at each call and never changed. Programs that run with another
 * user's rights ignore it (secure_getenv).
 */
#include "util/option_table.h"

#include <stdlib.h>

#define STRING  "string"
#define BYTES   "bytes"
#define SECONDS "seconds"
#define INTEGER "integer"

const struct symm_option_row symm__options[SYMM_OPTION_COUNT] = {
#define SYMM_OPTION_ROW(id, kind, fallback, help) {"SYMM_" #id, kind, fallback, help},
    SYMM_OPTION_MAP(SYMM_OPTION_ROW)
#undef SYMM_OPTION_ROW
};

const char *symm__option_set(enum symm_option option)
{
    const char *value = secure_getenv(symm__options[option].name);

    return value && *value ? value : NULL;
}

const char *symm__option(enum symm_option option)
{
    const char *value = symm__option_set(option);

    if (!value && *symm__options[option].fallback)
        value = symm__options[option].fallback;
    return value;
}
