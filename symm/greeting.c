/* SPDX-License-Identifier: MIT */
/*
 * greeting.c - the first exchange's contents: settings that must be equal on all ranks, and
 * each rank's device.
 *
 * Refuses, naming both ranks: another version, backend or setting; two ranks on one device
 * (every rank looks at all pairs, so that all refuse the job). Devices that cannot reach
 * each other's memory are refused by the rank that cannot.
 */
#include "greeting.h"

#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "log.h"
#include "status.h"

struct symm_hello symm__hello(const symm_ctx *ctx)
{
    struct symm_hello hello = {.layout = SYMM_DEVICE_LAYOUT,
                               .epoch_start = ctx->epoch_start,
                               .stride = ctx->stride,
                               .team_bytes = ctx->team_bytes,
                               .granularity = ctx->granularity,
                               .version = SYMM_VERSION_STRING};
    const struct symm_cuda_device *device = symm__cuda_device(ctx);

    snprintf(hello.backend, sizeof(hello.backend), "%s", ctx->ops->name);
    if (device) {
        memcpy(hello.uuid, device->uuid, sizeof(hello.uuid));
        memcpy(hello.bus, device->bus, sizeof(hello.bus));
        hello.processors = (uint32_t)device->processors;
        hello.multicast = symm__cuda_multicast_wanted(ctx);
    }
    return hello;
}

/* Settings of two ranks that must be alike. */
static symm_status check_settings(const struct symm_hello *a, int first,
                                  const struct symm_hello *b, int second)
{
    if (a->layout != b->layout || strcmp(a->version, b->version) != 0)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "rank %d runs libsymm %s, rank %d runs %s; start all ranks with one "
            "version",
            second, b->version, first, a->version);
    if (strcmp(a->backend, b->backend) != 0)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "rank %d has backend %s, rank %d has %s; set SYMM_BACKEND alike on all "
            "ranks; with SYMM_LOG=info each says why it took its own",
            second, b->backend, first, a->backend);
    if (a->stride != b->stride || a->team_bytes != b->team_bytes ||
        a->epoch_start != b->epoch_start || a->granularity != b->granularity)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "rank %d has heap_bytes %llu, team_bytes %llu, epoch_start %u; rank %d has "
            "%llu, %llu, %u; set them alike on all ranks",
            second, (unsigned long long)b->stride, (unsigned long long)b->team_bytes,
            b->epoch_start, first, (unsigned long long)a->stride,
            (unsigned long long)a->team_bytes, a->epoch_start);
    return SYMM_OK;
}

static symm_status check_devices(const symm_ctx *ctx, const struct symm_hello *hellos)
{
    for (int r = 0; r < ctx->size; r++)
        for (int other = 0; other < r; other++)
            if (memcmp(hellos[r].uuid, hellos[other].uuid, sizeof(hellos[r].uuid)) == 0)
                return symm__fail(
                    SYMM_ERR_IN_USE,
                    "ranks %d and %d are on one device (%s); give each rank a device "
                    "of its own, by its local rank or CUDA_VISIBLE_DEVICES, or use "
                    "SYMM_BACKEND=host",
                    other, r, hellos[r].bus);
    return SYMM_OK;
}

symm_status symm__hello_reach(const symm_ctx *ctx, const struct symm_parcel *parcel,
                              int rank)
{
    struct symm_hello hello;

    if (ctx->ops != &symm__backend_cuda)
        return SYMM_OK;
    memcpy(&hello, parcel->bytes, sizeof(hello));
    hello.bus[sizeof(hello.bus) - 1] = '\0';
    return symm__cuda_reachable(ctx, hello.uuid, hello.bus, rank);
}

symm_status symm__hello_check(symm_ctx *ctx, const struct symm_parcel *parcels)
{
    struct symm_hello hellos[SYMM_MAX_RANKS];
    uint32_t processors = 0, multicast = 1;

    for (int r = 0; r < ctx->size; r++) {
        int fds = ctx->group || r == ctx->rank ? 0 : 2;

        if (parcels[r].bytes_count != sizeof(*hellos) || parcels[r].fds_count != fds)
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed greeting", r);
        memcpy(&hellos[r], parcels[r].bytes, sizeof(*hellos));
        hellos[r].version[sizeof(hellos[r].version) - 1] = '\0';
        hellos[r].backend[sizeof(hellos[r].backend) - 1] = '\0';
        hellos[r].bus[sizeof(hellos[r].bus) - 1] = '\0';
    }
    for (int r = 0; r < ctx->size; r++) {
        symm_status status = r == ctx->rank ? SYMM_OK
                                            : check_settings(&hellos[ctx->rank],
                                                             ctx->rank, &hellos[r], r);

        if (status != SYMM_OK)
            return status;
        multicast &= hellos[r].multicast;
        if (processors == 0 || hellos[r].processors < processors)
            processors = hellos[r].processors;
    }
    ctx->processors = (int)processors;
    ctx->multicast = multicast != 0 && ctx->size > 1;
    for (int r = 0; hellos[ctx->rank].multicast && r < ctx->size; r++)
        if (!hellos[r].multicast)
            symm__log(SYMM_LOG_INFO, "no multicast: rank %d cannot or must not", r);
    return ctx->ops == &symm__backend_cuda ? check_devices(ctx, hellos) : SYMM_OK;
}
