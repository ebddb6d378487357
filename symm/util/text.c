/* SPDX-License-Identifier: MIT */
/*
 * text.c - see text.h.
 */
#include "util/text.h"

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
