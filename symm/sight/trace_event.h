/* SPDX-License-Identifier: MIT */
/*
 * trace_event.h - one event of a trace as a line of JSON; the head is several, parted by commas.
 */
#ifndef SYMM_SIGHT_TRACE_EVENT_H
#define SYMM_SIGHT_TRACE_EVENT_H

#include <stdio.h>

#include "sight/trace.h"

#define SYMM_TRACE_FORMAT "symm-trace/1"

void symm__trace_put_head(FILE *file, const struct symm_sight_page *page,
                          uint64_t sample);
void symm__trace_put_thread(FILE *file, const struct symm_sight_page *page,
                            int32_t thread, bool worker);
void symm__trace_put_call(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_call *call,
                          const struct symm_sight_site *site);
void symm__trace_put_note(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_note *note);
void symm__trace_put_end(FILE *file, const struct symm_sight_page *page,
                         uint64_t dropped, int unfinished);

#endif
