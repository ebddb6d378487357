/* SPDX-License-Identifier: MIT */
/*
 * dtype.c - names, sizes and DLPack codes of the types of data, names of reductions and
 * algorithms; pure.
 */
#include "util/dtype.h"

#include <string.h>

#include "util/status.h"

#define DLPACK_UINT 1 /* kDLUInt */
#define DLPACK_BOOL 6 /* kDLBool */

size_t symm_dtype_size(symm_dtype dtype)
{
    switch (dtype) {
#define SYMM_DTYPE_CASE(name, value, json, bytes)                                      \
    case SYMM_##name:                                                                  \
        return bytes;
        SYMM_DTYPE_MAP(SYMM_DTYPE_CASE)
#undef SYMM_DTYPE_CASE
    }
    return 0;
}

const char *symm_dtype_name(symm_dtype dtype)
{
    switch (dtype) {
#define SYMM_DTYPE_CASE(name, value, json, bytes)                                      \
    case SYMM_##name:                                                                  \
        return json;
        SYMM_DTYPE_MAP(SYMM_DTYPE_CASE)
#undef SYMM_DTYPE_CASE
    }
    return NULL;
}

bool symm__dtype_is_float8(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_FLOAT8_E5M2;
}

bool symm__dtype_is_float(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT64 || dtype == SYMM_FLOAT32 || dtype == SYMM_FLOAT16 ||
           dtype == SYMM_BFLOAT16 || symm__dtype_is_float8(dtype);
}

bool symm__dtype_is_integer(symm_dtype dtype)
{
    return symm_dtype_size(dtype) > 0 && !symm__dtype_is_float(dtype);
}

uint8_t symm__dtype_dlpack_code(symm_dtype dtype)
{
    static const uint8_t codes[] = {
        [SYMM_FLOAT64] = 2,  [SYMM_FLOAT32] = 2,      [SYMM_FLOAT16] = 2,
        [SYMM_BFLOAT16] = 4, [SYMM_FLOAT8_E4M3] = 10, [SYMM_FLOAT8_E5M2] = 12,
        [SYMM_INT64] = 0,    [SYMM_INT32] = 0,        [SYMM_INT8] = 0,
        [SYMM_UINT64] = 1,   [SYMM_UINT32] = 1,       [SYMM_UINT8] = 1,
        [SYMM_INT16] = 0,    [SYMM_UINT16] = 1};

    return codes[dtype];
}

symm_status symm_dtype_from_dlpack(uint8_t code, uint8_t bits, uint16_t lanes,
                                   symm_dtype *dtype)
{
    const uint8_t wanted = code == DLPACK_BOOL && bits == 8 ? DLPACK_UINT : code;

    if (!dtype)
        return symm__fail_null("symm_dtype_from_dlpack", "dtype");
    if (lanes != 1)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_dtype_from_dlpack: found lanes %d, allowed: 1", lanes);
    for (symm_dtype d = 0; symm_dtype_size(d) > 0; d++)
        if (symm__dtype_dlpack_code(d) == wanted && 8 * symm_dtype_size(d) == bits) {
            *dtype = d;
            return SYMM_OK;
        }
    return symm__fail(
        SYMM_ERR_INVALID,
        "symm_dtype_from_dlpack: found code %d with %d bits, allowed: int "
        "(0) and uint (1) of 8, 16, 32 and 64 bits, float (2) of 16, 32 "
        "and 64, bfloat (4) of 16, bool (6), float8_e4m3fn (10) and "
        "float8_e5m2 (12) of 8",
        code, bits);
}

symm_status symm_dtype_to_dlpack(symm_dtype dtype, uint8_t *code, uint8_t *bits)
{
    if (!code || !bits)
        return symm__fail_null("symm_dtype_to_dlpack", code ? "bits" : "code");
    if (symm_dtype_size(dtype) == 0)
        return symm__fail(SYMM_ERR_INVALID, "symm_dtype_to_dlpack: dtype %d is unknown",
                          (int)dtype);
    *code = symm__dtype_dlpack_code(dtype);
    *bits = (uint8_t)(8 * symm_dtype_size(dtype));
    return SYMM_OK;
}

const char *symm_op_name(symm_op op)
{
    switch (op) {
#define SYMM_OP_CASE(name, value, json)                                                \
    case SYMM_##name:                                                                  \
        return json;
        SYMM_OP_MAP(SYMM_OP_CASE)
#undef SYMM_OP_CASE
    }
    return NULL;
}

bool symm__op_takes(symm_op op, symm_dtype dtype)
{
    return (op != SYMM_BAND && op != SYMM_BOR && op != SYMM_BXOR) ||
           symm__dtype_is_integer(dtype);
}

const char *symm__op_names(symm_dtype dtype)
{
#define SYMM_OP_WORD(id, value, json) " " json
    static const char words[] = SYMM_OP_MAP(SYMM_OP_WORD);
#undef SYMM_OP_WORD

    return symm__dtype_is_integer(dtype) ? words + 1 : "sum avg prod min max";
}

const char *symm__dtype_names(void)
{
#define SYMM_DTYPE_WORD(id, value, json, bytes) " " json
    static const char words[] = SYMM_DTYPE_MAP(SYMM_DTYPE_WORD);
#undef SYMM_DTYPE_WORD

    return words + 1;
}

symm_status symm_dtype_parse(const char *name, symm_dtype *dtype)
{
    if (!name || !dtype)
        return symm__fail_null("symm_dtype_parse", name ? "dtype" : "name");
#define SYMM_DTYPE_TRY(id, value, json, bytes)                                         \
    if (strcmp(name, json) == 0) {                                                     \
        *dtype = SYMM_##id;                                                            \
        return SYMM_OK;                                                                \
    }
    SYMM_DTYPE_MAP(SYMM_DTYPE_TRY)
#undef SYMM_DTYPE_TRY
    return symm__fail(SYMM_ERR_INVALID, "'%.40s' is not a dtype; known are %s", name,
                      symm__dtype_names());
}

symm_status symm_op_parse(const char *name, symm_op *op)
{
    if (!name || !op)
        return symm__fail_null("symm_op_parse", name ? "op" : "name");
#define SYMM_OP_TRY(id, value, json)                                                   \
    if (strcmp(name, json) == 0) {                                                     \
        *op = SYMM_##id;                                                               \
        return SYMM_OK;                                                                \
    }
    SYMM_OP_MAP(SYMM_OP_TRY)
#undef SYMM_OP_TRY
    return symm__fail(SYMM_ERR_INVALID, "'%.40s' is not a reduction; known are %s",
                      name, symm__op_names(SYMM_INT64));
}

const char *symm_algorithm_name(symm_algorithm algorithm)
{
    switch (algorithm) {
#define SYMM_ALGORITHM_CASE(id, value, name)                                           \
    case SYMM_ALGORITHM_##id:                                                          \
        return name;
        SYMM_ALGORITHM_MAP(SYMM_ALGORITHM_CASE)
#undef SYMM_ALGORITHM_CASE
    case SYMM_ALGORITHM_PUT:
        return "put";
    default:
        return NULL;
    }
}

symm_status symm_algorithm_parse(const char *name, symm_algorithm *algorithm)
{
    if (!name || !algorithm)
        return symm__fail_null("symm_algorithm_parse", name ? "algorithm" : "name");
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        if (strcmp(name, symm_algorithm_name((symm_algorithm)a)) != 0)
            continue;
        *algorithm = (symm_algorithm)a;
        return SYMM_OK;
    }
    return symm__fail(SYMM_ERR_INVALID,
                      "found the algorithm '%.40s', allowed:"
#define SYMM_ALGORITHM_WORD(id, value, name) " " name
                      SYMM_ALGORITHM_MAP(SYMM_ALGORITHM_WORD),
#undef SYMM_ALGORITHM_WORD
                      name);
}
