/* SPDX-License-Identifier: MIT */
/*
 * output.h - a stream to a file that is whole or as it was (util/file.h).
 */
#ifndef SYMM_TOOLS_COMMON_OUTPUT_H
#define SYMM_TOOLS_COMMON_OUTPUT_H

#include <stdio.h>

#include "util/file.h"

struct output {
    struct symm_file file;
    FILE *stream;
};

/* 0, or an errno and there is nothing to end. */
int output_begin(struct output *output, const char *path);
/* error: 0, or the errno with which the writing failed: the file is then not put in its place.
 * Returns it, or the errno of what is found now. */
int output_end(struct output *output, int error);

#endif
