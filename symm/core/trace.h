/* SPDX-License-Identifier: MIT */
/*
 * trace.h - reports mappings and unmappings to the program's functions (symm_trace_attach).
 */
#ifndef SYMM_CORE_TRACE_H
#define SYMM_CORE_TRACE_H

#include "core/context.h"

/* As symm_trace_attach and _detach, with the context locked. */
symm_status symm__trace_attach(symm_ctx *ctx, symm_trace_fn fn, void *arg,
                               int *id) SYMM_MUST_CHECK;
void symm__trace_detach(symm_ctx *ctx, int id);
void symm__trace_segment(symm_ctx *ctx, symm_trace_event event, void *ptr,
                         size_t bytes);

#endif
