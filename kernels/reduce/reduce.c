/* SPDX-License-Identifier: MIT */
/*
 * reduce.c - finds the reduction kernel for an instruction set, a dtype and an op.
 *
 * Guarantees: no state, no allocation, no system call and no trapping instruction (the compiler's
 * start-up code has queried the processor and the operating system already), so a lookup costs a
 * few loads and may be made for every call. Refuses, by NULL: numbers that are no dtype, op or
 * isa, a bitwise op of a floating-point dtype, and an isa that this processor or build cannot
 * run.
 */
#include "kernels/reduce/reduce.h"

#include "kernels/reduce/tables.h"

#define SYMM_ENTRY_COUNT(...) +1
_Static_assert(0 SYMM_DTYPE_MAP(SYMM_ENTRY_COUNT) == SYMM_REDUCE_DTYPES, "a row each");
_Static_assert(0 SYMM_OP_MAP(SYMM_ENTRY_COUNT) == SYMM_REDUCE_OPS, "a column each");
#undef SYMM_ENTRY_COUNT

bool symm__isa_usable(enum symm_isa isa)
{
    switch (isa) {
    case SYMM_ISA_C:
        return true;
#if SYMM_REDUCE_X86
    /* F16C has no name in clang 14; every processor with AVX2 and FMA has it. */
    case SYMM_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SYMM_ISA_AVX512:
        return symm__isa_usable(SYMM_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    default:
        return false;
    }
}

enum symm_isa symm__isa_best(void)
{
    if (symm__isa_usable(SYMM_ISA_AVX512))
        return SYMM_ISA_AVX512;
    return symm__isa_usable(SYMM_ISA_AVX2) ? SYMM_ISA_AVX2 : SYMM_ISA_C;
}

const char *symm__isa_name(enum symm_isa isa)
{
    static const char *const names[] = {"c", "avx2", "avx512"};
    unsigned index = (unsigned)isa;

    return index < SYMM_ISA_COUNT ? names[index] : NULL;
}

symm_reduce_fn symm__reduce_find(enum symm_isa isa, symm_dtype dtype, symm_op op)
{
    unsigned row = (unsigned)dtype, column = (unsigned)op;

    if (row >= SYMM_REDUCE_DTYPES || column >= SYMM_REDUCE_OPS ||
        !symm__isa_usable(isa))
        return NULL;
    switch (isa) {
#if SYMM_REDUCE_X86
    case SYMM_ISA_AVX2:
        return symm__reduce_table_avx2[row][column];
    case SYMM_ISA_AVX512:
        return symm__reduce_table_avx512[row][column];
#endif
    default:
        return symm__reduce_table_c[row][column];
    }
}
