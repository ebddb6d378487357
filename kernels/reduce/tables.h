/* SPDX-License-Identifier: MIT */
/*
 * tables.h - the reduction kernels of each instruction set, by dtype and op.
 *
 * The tables are for reduce.c, which looks functions up, and the isa files, which define
 * them.
 * An entry is NULL only for a bitwise op of a floating-point dtype; an isa whose file excludes
 * itself on this processor has no table.
 */
#ifndef SYMM_KERNELS_REDUCE_TABLES_H
#define SYMM_KERNELS_REDUCE_TABLES_H

#include "symm/symm.h"

/* The contract is at the head of reduce.h. */
typedef void (*symm_reduce_fn)(void *const *dst, int ndst, const void *const *src,
                               int nsrc, size_t count);

#define SYMM_REDUCE_DTYPES 14
#define SYMM_REDUCE_OPS    8

/* The x86 isas are built for every x86-64; the processor is asked at run time. */
#if defined(__x86_64__)
#define SYMM_REDUCE_X86 1
#else
#define SYMM_REDUCE_X86 0
#endif

typedef symm_reduce_fn symm_reduce_table[SYMM_REDUCE_DTYPES][SYMM_REDUCE_OPS];

extern const symm_reduce_table symm__reduce_table_c;
#if SYMM_REDUCE_X86
extern const symm_reduce_table symm__reduce_table_avx2;
extern const symm_reduce_table symm__reduce_table_avx512;
#endif

#endif
