/* SPDX-License-Identifier: MIT */
/*
 * dtype.c - names, sizes and DLPack codes of the types of data, names of reductions and
 * algorithms; pure.
 */
#include "util/dtype.h"

#include <string.h>

#include "util/status.h"

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
