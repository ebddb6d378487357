/* SPDX-License-Identifier: MIT */
/*
 * options.c - the SYMM_* variables' values, strictly parsed.
 *
 * Numbers are parsed here, not by strtod and its kin: no locale, no leading white
 * space, no sign where none makes sense, no silent overflow, nothing after the number.
 * A value that is not wholly of its form is an error that shows it; it is never "0" or
 * the default.
 */
#include "util/options.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "symm/tools.h"
#include "util/abi.h"
#include "util/status.h"

symm_status symm_option_at(int index, symm_option_info *info)
{
    symm_option_info full;
    symm_status status;

    if (!info)
        return symm__fail_null("symm_option_at", "info");
    status = symm__struct_check("symm_option_info", info->size, sizeof(full));
    if (status != SYMM_OK)
        return status;
    /* The end of a loop over all options is not worth a log line. */
    if (index < 0 || index >= SYMM_OPTION_COUNT)
        return symm__fail_quiet(SYMM_ERR_NOT_FOUND, "no option has this index");
    full = (symm_option_info){.name = symm__options[index].name,
                              .kind = symm__options[index].kind,
                              .fallback = symm__options[index].fallback,
                              .help = symm__options[index].help,
                              .value = symm__option_set((enum symm_option)index)};
    symm__struct_give(info, &full, sizeof(full));
    return SYMM_OK;
}

static symm_status refuse(enum symm_option option, const char *value, const char *form)
{
    return symm__fail(SYMM_ERR_INVALID, "%s='%.40s%s': must be %s",
                      symm__option_name(option), value, strlen(value) > 40 ? "..." : "",
                      form);
}

static symm_status unset(enum symm_option option)
{
    return symm__fail(SYMM_ERR_NOT_FOUND, "%s is not set and has no default",
                      symm__options[option].name);
}

/* Reads digits at *text and moves it after them; false: none, or too many. */
static bool read_digits(const char **text, uint64_t *number)
{
    const char *c = *text;

    *number = 0;
    if (*c < '0' || *c > '9')
        return false;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (__builtin_mul_overflow(*number, UINT64_C(10), number) ||
            __builtin_add_overflow(*number, (uint64_t)(*c - '0'), number))
            return false;
    }
    *text = c;
    return true;
}

symm_status symm__option_integer(enum symm_option option, int64_t low, int64_t high,
                                 int64_t *value)
{
    const char *text = symm__option(option);
    const char *c = text;
    uint64_t magnitude;
    int64_t number;
    char form[80];

    if (!text)
        return unset(option);
    snprintf(form, sizeof(form), "an integer from %lld to %lld", (long long)low,
             (long long)high);
    if (*c == '-')
        c++;
    if (!read_digits(&c, &magnitude) || *c != '\0')
        return refuse(option, text, form);
    if (*text == '-' ? __builtin_sub_overflow(INT64_C(0), magnitude, &number)
                     : __builtin_add_overflow(INT64_C(0), magnitude, &number))
        return refuse(option, text, form);
    if (number < low || number > high)
        return refuse(option, text, form);
    *value = number;
    return SYMM_OK;
}

/* The power of two that a suffix stands for; -1: not a suffix. */
static int suffix_shift(const char *suffix)
{
    if (*suffix == '\0')
        return 0;
    if (suffix[1] != '\0')
        return -1;
    switch (*suffix) {
    case 'K':
    case 'k':
        return 10;
    case 'M':
    case 'm':
        return 20;
    case 'G':
    case 'g':
        return 30;
    case 'T':
    case 't':
        return 40;
    }
    return -1;
}

symm_status symm__option_bytes(enum symm_option option, size_t *value)
{
    static const char form[] = "a number of bytes, as 4096, 64K, 16M, 4G or 1T";
    const char *text = symm__option(option);
    const char *c = text;
    uint64_t number;
    size_t bytes;
    int shift;

    if (!text)
        return unset(option);
    if (!read_digits(&c, &number))
        return refuse(option, text, form);
    shift = suffix_shift(c);
    if (shift < 0)
        return refuse(option, text, form);
    if (__builtin_mul_overflow(number, UINT64_C(1) << shift, &bytes))
        return refuse(option, text, "a number of bytes that fits the address space");
    *value = bytes;
    return SYMM_OK;
}

static symm_status take_seconds(enum symm_option option, const char *form,
                                double *value)
{
    const char *text = symm__option(option);

    if (!text)
        return unset(option);
    return symm__seconds_read(text, value) ? SYMM_OK : refuse(option, text, form);
}

symm_status symm__option_seconds(enum symm_option option, double *value)
{
    return take_seconds(
        option, "seconds above 0 and up to 604800 (a week), as 30 or 0.5", value);
}

symm_status symm__option_limit(enum symm_option option, double *value)
{
    const char *text = symm__option(option);

    if (text && strcmp(text, "0") == 0) {
        *value = 0;
        return SYMM_OK;
    }
    return take_seconds(
        option, "seconds up to 604800 (a week), as 30 or 0.5, or 0 for no limit",
        value);
}

symm_status symm__option_file(const char *path)
{
    struct stat is;

    if (stat(path, &is) != 0 || S_ISREG(is.st_mode) || S_ISDIR(is.st_mode))
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID, "%s: is no regular file", path);
}
