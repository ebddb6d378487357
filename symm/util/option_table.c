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

static const char *read_variable(const char *name)
{
    const char *value = secure_getenv(name);

    return value && *value ? value : NULL;
}

const char *symm__option_name(enum symm_option option)
{
    static const struct alias {
        enum symm_option option;
        const char *name;
    } aliases[] = {
#define SYMM_OPTION_ALIAS(id, older) {SYMM_OPTION_##id, "SYMM_" #older},
        SYMM_OPTION_ALIAS_MAP(SYMM_OPTION_ALIAS)
#undef SYMM_OPTION_ALIAS
    };

    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (aliases[i].option == option && !read_variable(symm__options[option].name) &&
            read_variable(aliases[i].name))
            return aliases[i].name;
    return symm__options[option].name;
}

const char *symm__option_set(enum symm_option option)
{
    return read_variable(symm__option_name(option));
}

const char *symm__option(enum symm_option option)
{
    const char *value = symm__option_set(option);

    if (!value && *symm__options[option].fallback)
        value = symm__options[option].fallback;
    return value;
}
