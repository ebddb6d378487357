/* SPDX-License-Identifier: MIT */
/*
 * api.c - symm_pack: placement of plain lifetimes, as in the CSV files.
 */
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"
#include "symm/plan.h"
#include "util/status.h"

static symm_status place_items(const symm_pack_item *items, int count,
                               const struct symm_place_options *options,
                               int64_t *offsets, struct symm_place_result *result)
{
    size_t n = (size_t)count + 1;
    struct symm_place_item *list = calloc(n, sizeof(*list));
    symm_status status;

    for (int i = 0; list && i < count; i++)
        list[i] = (struct symm_place_item){
            items[i].size, 1, -1, {items[i].lower, items[i].upper}};
    if (!list)
        status = symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items", count);
    else
        status = symm__place(list, count, options, offsets, result);
    free(list);
    return status;
}

symm_status symm_pack(const symm_pack_item *items, int count,
                      const symm_pack_options *options, int64_t *offsets,
                      symm_pack_result *result)
{
    symm_pack_options o = {0};
    struct symm_place_options place;
    struct symm_place_result r;
    symm_pack_result out;
    symm_status status;

    if (count < 0 || count > SYMM_PLACE_MAX || (count > 0 && (!items || !offsets)) ||
        !result)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_pack: %d items; allowed are 0 to %d, with lists of them "
            "and of offsets, and a result",
            count, SYMM_PLACE_MAX);
    if (options) {
        status = symm__struct_take("symm_pack_options", options, &o, sizeof(o));
        if (status != SYMM_OK)
            return status;
    }
    if (o.capacity < 0 || !(o.time_limit >= 0))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_pack_options: capacity %lld and time_limit %g; both "
                          "are 0 or more",
                          (long long)o.capacity, o.time_limit);
    if (result->size < sizeof(size_t) || result->size % sizeof(size_t) != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_pack_result.size is %zu; set it to "
                          "sizeof(symm_pack_result), %zu",
                          result->size, sizeof(out));
    place = (struct symm_place_options){.mode = o.fast           ? SYMM_PLACE_FAST
                                                : o.capacity > 0 ? SYMM_PLACE_FIT
                                                                 : SYMM_PLACE_SMALL,
                                        .capacity = o.capacity,
                                        .time_limit = o.time_limit,
                                        .progress = o.progress,
                                        .arg = o.arg};
    status = place_items(items, count, &place, offsets, &r);
    if (status != SYMM_OK)
        return status;
    out = (symm_pack_result){result->size, r.peak,    r.lower_bound, r.fits,
                             r.proved,     r.seconds, r.nodes};
    memcpy(result, &out, result->size < sizeof(out) ? result->size : sizeof(out));
    return SYMM_OK;
}
