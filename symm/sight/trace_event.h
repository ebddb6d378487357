/* SPDX-License-Identifier: MIT */
/*
 * trace_event.h - one event of a trace as a line of JSON; the head is several, parted by commas.
 */
#ifndef SYMM_SIGHT_TRACE_EVENT_H
#define SYMM_SIGHT_TRACE_EVENT_H

#include <stdio.h>

#include "sight/trace.h"

#define SYMM_TRACE_FORMAT "symm-trace/1"

/* Rows of waits on a device, after the ids of threads: + 1000 * number of the team + channel. */
#define SYMM_TRACE_DEVICE_ROWS 1000000000

enum symm_trace_row { SYMM_TRACE_THREAD, SYMM_TRACE_STREAM, SYMM_TRACE_DEVICE };

/* The number of a team, -1 if it has gone. */
int symm__trace_team(const struct symm_sight_page *page, uint32_t uid);

void symm__trace_put_head(FILE *file, const struct symm_sight_page *page,
                          uint64_t sample);
void symm__trace_put_thread(FILE *file, const struct symm_sight_page *page,
                            int32_t thread, enum symm_trace_row row);
void symm__trace_put_call(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_call *call,
                          const struct symm_sight_site *site);
void symm__trace_put_note(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_note *note);
void symm__trace_put_end(FILE *file, const struct symm_sight_page *page,
                         uint64_t dropped, int unfinished);

#endif
