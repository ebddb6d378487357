/* SPDX-License-Identifier: MIT */
/*
 * types.h - what symm.h begins with: statuses, types of data, reductions, and their names. Include
 * symm.h.
 */
#ifndef SYMM_TYPES_H
#define SYMM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SYMM_API        __attribute__((visibility("default")))
#define SYMM_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SYMM_API
#define SYMM_MUST_CHECK
#endif

/* ---- Status ---------------------------------------------------------------------- */

/* X(name, value, text): the one table behind the enum, symm_status_name and the docs. */
#define SYMM_STATUS_MAP(X)                                                             \
    X(OK, 0, "success")                                                                \
    X(ERR_INVALID, -1, "an argument is not valid")                                     \
    X(ERR_NOMEM, -2, "memory or address space is exhausted")                           \
    X(ERR_SYSTEM, -3, "a system call failed")                                          \
    X(ERR_UNSUPPORTED, -4, "not available on this backend or in this build")           \
    X(ERR_IN_USE, -5, "the object is still held")                                      \
    X(ERR_BUSY, -6, "the stream or channel is in use by another call")                 \
    X(ERR_TIMEOUT, -7, "a peer did not arrive before the deadline")                    \
    X(ERR_PEER_DEAD, -8, "a peer has died")                                            \
    X(ERR_MISMATCH, -9, "the ranks do not make the same call")                         \
    X(ERR_DAMAGED, -10, "shared control memory holds impossible values")               \
    X(ERR_ABORTED, -11, "another rank has failed")                                     \
    X(ERR_JOB, -12,                                                                    \
      "the launcher's variables are incomplete or contradict each other")              \
    X(ERR_REFUSED, -13, "a peer or its memory was refused")                            \
    X(ERR_NOT_FOUND, -14, "no such object")                                            \
    X(ERR_OVERFLOW, -15, "a size does not fit")                                        \
    X(ERR_FORKED, -16, "the context belongs to the parent process")

typedef enum symm_status {
#define SYMM_STATUS_ENUM(name, value, text) SYMM_##name = value,
    SYMM_STATUS_MAP(SYMM_STATUS_ENUM)
#undef SYMM_STATUS_ENUM
} symm_status;

SYMM_API const char *symm_status_name(symm_status status); /* "SYMM_ERR_TIMEOUT" */
SYMM_API const char *symm_status_text(symm_status status); /* the table's text */
SYMM_API const char *symm_last_error(void); /* thread-local, one sentence */
SYMM_API const char *symm_version(void);    /* "0.2.0": the run-time twin */

/* ---- Types of data --------------------------------------------------------------- */

/* X(NAME, value, json_name, bytes) */
#define SYMM_DTYPE_MAP(X)                                                              \
    X(FLOAT64, 0, "float64", 8)                                                        \
    X(FLOAT32, 1, "float32", 4)                                                        \
    X(FLOAT16, 2, "float16", 2)                                                        \
    X(BFLOAT16, 3, "bfloat16", 2)                                                      \
    X(FLOAT8_E4M3, 4, "float8_e4m3", 1)                                                \
    X(FLOAT8_E5M2, 5, "float8_e5m2", 1)                                                \
    X(INT64, 6, "int64", 8)                                                            \
    X(INT32, 7, "int32", 4)                                                            \
    X(INT8, 8, "int8", 1)                                                              \
    X(UINT64, 9, "uint64", 8)                                                          \
    X(UINT32, 10, "uint32", 4)                                                         \
    X(UINT8, 11, "uint8", 1)                                                           \
    X(INT16, 12, "int16", 2)                                                           \
    X(UINT16, 13, "uint16", 2)

typedef enum symm_dtype {
#define SYMM_DTYPE_ENUM(name, value, json, bytes) SYMM_##name = value,
    SYMM_DTYPE_MAP(SYMM_DTYPE_ENUM)
#undef SYMM_DTYPE_ENUM
} symm_dtype;

/*
 * Reductions. Ranks are combined in rank order 0, 1, ..., n-1, so that every rank and every
 * run gets the same bits. float16, bfloat16 and float8 accumulate in float32 and are rounded
 * once (to nearest, ties to even; float8 saturates to its largest finite value, infinities too).
 * Over several hosts each host's ranks are combined so first, with a result of the dtype, and
 * these results next, in the order of the hosts' lowest ranks: small types are rounded once
 * more, by MPI's engine; NCCL's adds in an order of its own and may round at each step.
 * An AVG where hosts have unequal numbers of ranks, and a reduce_scatter where they have or are
 * not in the order of ranks, go to the engine whole: MPI's combines in the order of all ranks.
 * AVG divides the sum by the team's size: in the accumulator for floating point; integers
 * divide towards zero. SUM and PROD of integers wrap; AVG of integers of up to 32 bits sums
 * in 64 bits and does not. MIN and MAX return NaN if any rank's value is NaN; -0 is less than 0.
 * BAND, BOR and BXOR combine the bits of integers; with a floating-point dtype they are
 * SYMM_ERR_INVALID.
 * Every NaN in a result is one and the same, whatever signs and payloads the ranks' NaNs had.
 * Host: the positive quiet NaN without payload, whatever the instruction set (float64
 * 0x7ff8000000000000, float32 0x7fc00000, float16 0x7e00, bfloat16 0x7fc0, float8 0x7f).
 * CUDA: the NaN that the devices' arithmetic makes, the same on all ranks.
 */
#define SYMM_OP_MAP(X)                                                                 \
    X(SUM, 0, "sum")                                                                   \
    X(AVG, 1, "avg")                                                                   \
    X(PROD, 2, "prod")                                                                 \
    X(MIN, 3, "min")                                                                   \
    X(MAX, 4, "max")                                                                   \
    X(BAND, 5, "band")                                                                 \
    X(BOR, 6, "bor")                                                                   \
    X(BXOR, 7, "bxor")

typedef enum symm_op {
#define SYMM_OP_ENUM(name, value, json) SYMM_##name = value,
    SYMM_OP_MAP(SYMM_OP_ENUM)
#undef SYMM_OP_ENUM
} symm_op;

SYMM_API size_t
symm_dtype_size(symm_dtype dtype); /* bytes of one element; 0 = unknown */
SYMM_API const char *symm_dtype_name(symm_dtype dtype); /* "bfloat16"; NULL = unknown */
SYMM_API const char *symm_op_name(symm_op op);          /* "sum"; NULL = unknown */
SYMM_API symm_status symm_dtype_parse(const char *name,
                                      symm_dtype *dtype) SYMM_MUST_CHECK;
SYMM_API symm_status symm_op_parse(const char *name, symm_op *op) SYMM_MUST_CHECK;
/*
 * The dtype of a DLDataType (dlpack.h 1.1), and its code and bits. `lanes` must be 1. A bool of
 * 8 bits becomes SYMM_UINT8, which goes out as an unsigned integer. Of bytes 0 and 1, SUM is the
 * number of true values modulo 256, AVG is 1 if all are true, and the other reductions give 0
 * or 1: MIN, PROD and BAND "all", MAX and BOR "any", BXOR "an odd number".
 * Errors: SYMM_ERR_INVALID (NULL, an unknown dtype, a type without a dtype such as complex).
 */
SYMM_API symm_status symm_dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes,
                                            symm_dtype *dtype) SYMM_MUST_CHECK;
SYMM_API symm_status symm_dtype_to_dlpack(symm_dtype dtype, uint8_t *code,
                                          uint8_t *bits) SYMM_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
