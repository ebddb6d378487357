/* SPDX-License-Identifier: MIT */
/*
 * info.h - what the files of the tool symm-info share.
 */
#ifndef SYMM_TOOLS_SYMM_INFO_INFO_H
#define SYMM_TOOLS_SYMM_INFO_INFO_H

#include <stdbool.h>
#include <stdio.h>

/* Text as a JSON string, quotes included; NULL: null. Bad UTF-8 becomes U+FFFD. */
void symm__info_json_string(FILE *file, const char *text);

/*
 * Proves on two forked ranks that what the library needs works here; prints one line
 * for each proof, or a JSON list. Returns how many proofs failed.
 */
int symm__info_probe(FILE *file, bool json);

#endif
