/* SPDX-License-Identifier: MIT */
/*
 * info.h - the functions shared by the files of the tool symm-info.
 */
#ifndef SYMM_TOOLS_SYMM_INFO_INFO_H
#define SYMM_TOOLS_SYMM_INFO_INFO_H

#include <stdbool.h>
#include <stdio.h>

/* Text as a JSON string, quotes included; NULL: null. Bad UTF-8 becomes U+FFFD. */
void symm__info_json_string(FILE *file, const char *text);

/*
 * Proves on two forked ranks that the library works on this machine; prints one line for
 * each proof, or a JSON list. Returns the number of failed proofs.
 */
int symm__info_probe(FILE *file, bool json);

#endif
