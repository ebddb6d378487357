/* SPDX-License-Identifier: MIT */
/* norm.c - see norm.h. */
#include "call/norm.h"

#include <math.h>
#include <string.h>

#include "core/device_ops.h"
#include "util/status.h"

#define WHAT  "all_reduce_norm"
#define FLAGS (SYMM_NORM_ROUND_PARTIAL | SYMM_NORM_CONSTANT)

_Static_assert(FLAGS < 256 && SYMM_RECORD_ARRAYS <= 16,
               "symm_site.options has room for them");
_Static_assert(sizeof(symm_norm) == 48 + 9 * sizeof(void *),
               "calls are compared by bytes, so there is no padding");

/* An array of the call beside `in`. */
struct array {
    const char *name;
    const void *at;
    size_t bytes, element;
    bool written;
};
#define ARRAYS SYMM_RECORD_ARRAYS

/* In the order of symm_record_array. */
static void list_arrays(const symm_norm *norm, struct array arrays[ARRAYS])
{
    const size_t element = symm_dtype_size(norm->dtype), row = norm->hidden * element;
    const size_t all = norm->rows * row;
    const size_t scales = symm_norm_scales(norm->quant, norm->rows, norm->hidden);
    const bool writes_scale = norm->quant != SYMM_NORM_QUANT_TENSOR;
    const struct array list[ARRAYS] = {
        {"in", norm->in, all, element, false},
        {"bias", norm->bias, row, element, false},
        {"residual_in", norm->residual_in, all, element, false},
        {"weight", norm->weight, row, element, false},
        {"sum_out", norm->sum_out, all, element, true},
        {"residual_out", norm->residual_out, all, element, true},
        {"norm_out", norm->norm_out, all, element, true},
        {"quant_out", norm->quant_out, norm->rows * norm->hidden, 1, true},
        {"scale", norm->scale, scales * sizeof(float), sizeof(float), writes_scale},
    };

    memcpy(arrays, list, sizeof(list));
}

static symm_status check_numbers(const symm_norm *norm)
{
    if (norm->dtype != SYMM_BFLOAT16 && norm->dtype != SYMM_FLOAT16 &&
        norm->dtype != SYMM_FLOAT32)
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": found dtype %s, allowed: bfloat16, float16, float32",
                          symm_dtype_name(norm->dtype) ? symm_dtype_name(norm->dtype)
                                                       : "of no known number");
    if (norm->hidden < 1 || norm->hidden > SYMM_NORM_MAX_HIDDEN)
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": a row has %zu columns, allowed: 1 to %d",
                          norm->hidden, SYMM_NORM_MAX_HIDDEN);
    if ((unsigned)norm->quant >= SYMM_NORM_QUANT_COUNT)
        return symm__fail(SYMM_ERR_INVALID, WHAT ": quant %d is no symm_norm_quant",
                          (int)norm->quant);
    if ((norm->flags & ~FLAGS) || norm->reserved)
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": flags 0x%x and reserved 0x%x, allowed: SYMM_NORM_... "
                               "in flags, 0 in reserved",
                          norm->flags, norm->reserved);
    if (!(norm->eps >= 0) || isinf(norm->eps) || !isfinite(norm->weight_offset))
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": eps %g and weight_offset %g have to be finite, and "
                               "eps not negative",
                          (double)norm->eps, (double)norm->weight_offset);
    return SYMM_OK;
}

static symm_status check_outputs(const symm_norm *norm)
{
    const bool quantises = norm->quant != SYMM_NORM_QUANT_NONE;

    if (!norm->sum_out && !norm->residual_out && !norm->norm_out && !norm->quant_out)
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": all outputs are NULL; give sum_out, residual_out, "
                               "norm_out or quant_out");
    if (quantises != (norm->quant_out != NULL) || quantises != (norm->scale != NULL))
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": quant %d with quant_out %p and scale %p; both are "
                               "given with a quantisation, and NULL without",
                          (int)norm->quant, norm->quant_out, (void *)norm->scale);
    return SYMM_OK;
}

static symm_status check_array(symm_team *team, const struct array *array)
{
    size_t offset;
    symm_status status;

    if ((uintptr_t)array->at % array->element != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          WHAT ": `%s` is %p, not aligned to its element of %zu bytes",
                          array->name, array->at, array->element);
    if (array->bytes == 0)
        return SYMM_OK;
    status = symm__team_extent(team->ctx, WHAT, array->name, array->at, array->bytes);
    if (status == SYMM_OK && team->device_ops &&
        !symm__team_symmetric(team, array->at, array->bytes, &offset))
        status =
            team->device_ops->reach(team, WHAT, array->name, array->at, array->bytes);
    return status;
}

/* Each element of `in` and residual_in is read before the same element of an output is written,
 * and nothing else is promised: a `scale` that is read may be no output either. */
static symm_status check_pair(const symm_norm *norm, const struct array *a,
                              const struct array *b)
{
    const uintptr_t x = (uintptr_t)a->at, y = (uintptr_t)b->at;
    const bool rows = a->at == norm->in || a->at == norm->residual_in;
    const bool written = a->written || b->written;

    if (!a->at || !b->at || !written || x >= y + b->bytes || y >= x + a->bytes)
        return SYMM_OK;
    if (!a->written && rows && a->at == b->at && a->bytes == b->bytes)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      WHAT ": `%s` [%p, +%zu) and `%s` [%p, +%zu) overlap; an output "
                           "may be `in` or residual_in itself, and nothing else",
                      a->name, a->at, a->bytes, b->name, b->at, b->bytes);
}

symm_status symm__norm_check(symm_team *team, const symm_norm *norm)
{
    struct array arrays[ARRAYS];
    symm_status status = check_numbers(norm);

    if (status != SYMM_OK || norm->rows == 0)
        return status;
    status = check_outputs(norm);
    if (status != SYMM_OK)
        return status;
    if (!norm->in)
        return symm__fail(SYMM_ERR_INVALID, WHAT " of %zu x %zu elements: `in` is NULL",
                          norm->rows, norm->hidden);
    list_arrays(norm, arrays);
    for (int i = 0; status == SYMM_OK && i < ARRAYS; i++)
        if (arrays[i].at)
            status = check_array(team, &arrays[i]);
    for (int i = 0; i < ARRAYS; i++)
        for (int k = i + 1; status == SYMM_OK && k < ARRAYS; k++)
            status = check_pair(norm, &arrays[i], &arrays[k]);
    return status;
}

int symm__norm_arrays(const symm_norm *norm, bool written,
                      struct symm_norm_array side[SYMM_NORM_SIDE])
{
    struct array arrays[ARRAYS];
    int count = 0;

    list_arrays(norm, arrays);
    for (int i = 0; i < ARRAYS; i++)
        if (arrays[i].at && arrays[i].written == written)
            side[count++] = (struct symm_norm_array){(symm_record_array)i, arrays[i].at,
                                                     arrays[i].bytes};
    return count;
}

void symm__norm_site(const symm_norm *norm, struct symm_site *site)
{
    struct array arrays[ARRAYS];

    list_arrays(norm, arrays);
    site->root = (int32_t)norm->hidden;
    site->options = (uint32_t)norm->quant | norm->flags << 8;
    for (int i = 0; norm->rows > 0 && i < ARRAYS; i++)
        site->options |= (uint32_t)(arrays[i].at != NULL) << (16 + i);
    memcpy(&site->eps, &norm->eps, sizeof(site->eps));
    memcpy(&site->weight_offset, &norm->weight_offset, sizeof(site->weight_offset));
}

bool symm__norm_partial(const symm_norm *norm, int size)
{
    return (norm->flags & SYMM_NORM_ROUND_PARTIAL) && norm->dtype != SYMM_FLOAT32 &&
           size > 2;
}
