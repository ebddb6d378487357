/* SPDX-License-Identifier: MIT */
/*
 * nccl.h - times NCCL's collectives for --compare.
 *
 * NCCL is opened at run time (SYMM_NCCL_LIB, else libnccl.so.2). "nccl" uses the buffers of
 * libsymm's calls, which are plain memory to NCCL; "nccl-window" uses memory of
 * ncclMemAlloc registered as symmetric windows (NCCL 2.27 or newer). Refused, with a
 * message: no library, an old version, operations that NCCL does not have.
 */
#ifndef PERF_NCCL_H
#define PERF_NCCL_H

#include "perf/case.h"

struct perf_nccl;

/* Collective. NULL after a message; `bytes` of the largest buffer. */
struct perf_nccl *perf_nccl_open(const struct perf_job *job, bool window, size_t bytes);
void perf_nccl_close(struct perf_nccl *nccl);        /* NULL is allowed */
int perf_nccl_version(const struct perf_nccl *nccl); /* 22809 */
/* Replaces the buffers of libsymm's calls by those of NCCL's, where it has its own. */
void perf_nccl_buffers(const struct perf_nccl *nccl, char **send, char **receive);
/* False: the case reduces, and NCCL lacks its dtype or op; perf_nccl_call must not be called. */
bool perf_nccl_does(const struct perf_case *test);
/* One call, out of place, on the stream; a put is a send and a receive in one group.
 * SYMM_ERR_SYSTEM: after a message. */
symm_status perf_nccl_call(struct perf_nccl *nccl, const struct perf_case *test,
                           void *stream);

#endif
