/* SPDX-License-Identifier: MIT */
/*
 * info.h - the functions shared by the files of the tool symm-info.
 */
#ifndef SYMM_TOOLS_SYMM_INFO_INFO_H
#define SYMM_TOOLS_SYMM_INFO_INFO_H

#include <stdbool.h>
#include <stdio.h>

#include "util/emit.h"

/*
 * Proves on two forked ranks that the library works on this machine; prints one line for
 * each proof, or, unless `emit` is NULL, writes the list "probe" into its open map. Returns
 * the number of failed proofs.
 */
int symm__info_probe(FILE *file, struct symm_emit *emit);
/* Rank 0 writes the table of the job's hosts, or as one JSON object; each process that finds a
 * problem says so on stderr. False: there is one. */
bool symm__info_hosts(FILE *file, bool json, double timeout);

/* symm-info trace: argv[0] is "trace". Returns the exit status. */
int symm__info_trace(int argc, char **argv);

#endif
