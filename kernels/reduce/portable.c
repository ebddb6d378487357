/* SPDX-License-Identifier: MIT */
/*
 * portable.c - the reduction kernels for any processor.
 *
 * Written in 16-byte vectors of the compiler, which makes SSE2, NEON, whatever the
 * target has, or scalar code of them. Guarantees: no instruction beyond the target's
 * baseline, the same bits as the other isas.
 */
#include "kernels/reduce/tables.h"

#define SYMM_VB           16
#define SYMM_REDUCE_TABLE symm__reduce_table_c

#include "kernels/reduce/body.h"
