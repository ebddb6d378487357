/* SPDX-License-Identifier: MIT */
/*
 * trace_file.h - the file of a rank's trace: Chrome's trace event format, as an array of events.
 *
 * Each event is on a line of its own, which begins with the comma that parts it from the one
 * before, and the closing bracket comes last: the file of a rank that has died is valid except
 * for its end. Readers of the format take it, and `symm-info trace` leaves out a line that was
 * cut. A rank is a process (pid: the rank), and a thread of the program or of a stream is a row
 * (tid). The first event, symm_trace, says whose the file is and how its clock, CLOCK_MONOTONIC
 * in microseconds, stands to CLOCK_REALTIME.
 */
#ifndef SYMM_SIGHT_TRACE_FILE_H
#define SYMM_SIGHT_TRACE_FILE_H

#include "sight/sight.h"

/* Sets sight->trace and begins the file; NULL if none is wanted. */
symm_status symm__trace_open(struct symm_sight *sight) SYMM_MUST_CHECK;
/* Appends what has ended. By one thread at a time. */
void symm__trace_write(struct symm_sight *sight);
/* Ends the file, with what was dropped; after the last write. */
void symm__trace_finish(struct symm_sight *sight);
void symm__trace_close(struct symm_trace *trace);

#endif
