/* SPDX-License-Identifier: MIT */
/*
 * metrics_file.h - SYMM_METRICS_FILE: the rank's counters in Prometheus' text format 0.0.4.
 *
 * The file is replaced as a whole (rename), so that a reader never sees a part of it.
 */
#ifndef SYMM_SIGHT_METRICS_FILE_H
#define SYMM_SIGHT_METRICS_FILE_H

#include "sight/sight.h"

/* Sets sight->metrics, and writes the first file; NULL if no file is wanted. */
symm_status symm__metrics_open(struct symm_sight *sight,
                               const struct symm_sight_config *config) SYMM_MUST_CHECK;
void symm__metrics_close(struct symm_metrics *metrics);
/* Replaces the file. By one thread at a time. A failure is logged once, until one succeeds. */
void symm__metrics_write(struct symm_sight *sight);

#endif
