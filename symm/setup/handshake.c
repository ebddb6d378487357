/* SPDX-License-Identifier: MIT */
/*
 * handshake.c - the first exchange's contents: settings that must be equal on all ranks, and
 * each rank's device.
 *
 * Refuses, naming both ranks: another version, backend or setting; two ranks on one device
 * (every rank looks at all pairs, so that all refuse the job). SYMM_OVERSUBSCRIBE allows
 * that, but to threads: the device runs processes in turns, so that a kernel which waits
 * for another rank's holds it up for a slice of time, where the kernels of one process
 * might take all multiprocessors from the one that they wait for. Devices that cannot
 * reach each other's memory are refused by the rank that cannot.
 */
#include "setup/handshake.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "record/record.h"
#include "select/cost.h"
#include "setup/cost_table_load.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"
#include "util/text.h"

struct symm_handshake symm__handshake(const symm_ctx *ctx)
{
    struct symm_handshake handshake = {
        .layout = SYMM_DEVICE_LAYOUT,
        .epoch_start = ctx->epoch_start,
        .oversubscribe = ctx->oversubscribe,
        .exclusive = ctx->exclusive,
        .stride = ctx->stride,
        .team_bytes = ctx->team_bytes,
        .granularity = ctx->granularity,
        .machine = symm__fnv_text(SYMM_FNV_BASIS, ctx->machine),
        .costs = ctx->costs_file ? ctx->costs_file->hash : 0,
        .record = symm__record_key(),
        .plan = symm__option(SYMM_OPTION_PLAN) != NULL,
        .host = ctx->own_host,
        .version = SYMM_VERSION_STRING};
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);

    snprintf(handshake.backend, sizeof(handshake.backend), "%s", ctx->ops->name);
    if (device) {
        memcpy(handshake.uuid, device->uuid, sizeof(handshake.uuid));
        memcpy(handshake.bus, device->bus, sizeof(handshake.bus));
        handshake.processors = (uint32_t)device->processors;
        handshake.multicast = device->multicast;
    }
    symm__engine_handshake(ctx, &handshake.engine);
    return handshake;
}

/* Settings of two ranks that must be alike. */
static symm_status check_settings(const struct symm_handshake *a, int first,
                                  const struct symm_handshake *b, int second)
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
    if (a->oversubscribe != b->oversubscribe)
        return symm__fail(SYMM_ERR_MISMATCH,
                          "rank %d has SYMM_OVERSUBSCRIBE %u, rank %d has %u; set it "
                          "alike on all ranks",
                          second, b->oversubscribe, first, a->oversubscribe);
    if (a->exclusive != b->exclusive)
        return symm__fail(SYMM_ERR_MISMATCH,
                          "rank %d has SYMM_EXCLUSIVE %u, rank %d has %u; set it alike "
                          "on all ranks",
                          second, b->exclusive, first, a->exclusive);
    if (a->costs != b->costs)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "rank %d has %s cost table by SYMM_COSTS, rank %d %s; choices would "
            "differ: name one file on all ranks",
            second, b->costs ? a->costs ? "another" : "a" : "no", first,
            a->costs ? "has one" : "has none");
    if ((a->record != 0) != (b->record != 0) || a->plan != b->plan)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "%s is set on rank %d and not on rank %d; set it on all ranks",
            a->plan != b->plan ? "SYMM_PLAN" : "SYMM_RECORD",
            (a->plan != b->plan ? a->plan : a->record != 0) ? first : second,
            (a->plan != b->plan ? a->plan : a->record != 0) ? second : first);
    return SYMM_OK;
}

static symm_status check_devices(symm_ctx *ctx, const struct symm_handshake *handshakes)
{
    for (int r = 0; r < ctx->size; r++) {
        for (int other = 0; other < r; other++) {
            if (memcmp(handshakes[r].uuid, handshakes[other].uuid,
                       sizeof(handshakes[r].uuid)) != 0)
                continue;
            ctx->shared = true;
            if (!ctx->oversubscribe)
                return symm__fail(
                    SYMM_ERR_IN_USE,
                    "ranks %d and %d are on one device (%s); give each rank a device "
                    "of its own, by its local rank or CUDA_VISIBLE_DEVICES, or use "
                    "SYMM_BACKEND=host%s",
                    other, r, handshakes[r].bus,
                    ctx->thread_group ? "" : ", or SYMM_OVERSUBSCRIBE=1 for a test");
        }
    }
    if (ctx->shared && ctx->rank == 0)
        symm__log(SYMM_LOG_WARN, "ranks share devices and wait for each other's slices "
                                 "of time: milliseconds a call");
    return SYMM_OK;
}

symm_status symm__handshake_reach(const symm_ctx *ctx,
                                  const struct symm_oob_message *message, int rank)
{
    struct symm_device_info theirs = {0};
    struct symm_handshake handshake;

    memcpy(&handshake, message->bytes, sizeof(handshake));
    memcpy(theirs.uuid, handshake.uuid, sizeof(theirs.uuid));
    memcpy(theirs.bus, handshake.bus, sizeof(theirs.bus));
    (void)symm__printable(theirs.bus, sizeof(theirs.bus));
    return ctx->ops->reachable(ctx->backend, ctx->rank, &theirs, rank);
}

static symm_status agree_engine(symm_ctx *ctx, const struct symm_handshake *handshakes)
{
    struct symm_engine_handshake engines[SYMM_MAX_RANKS];

    for (int r = 0; r < ctx->size; r++)
        engines[r] = handshakes[r].engine;
    return symm__engine_agree(ctx, engines, ctx->size);
}

/* Numbers the hosts by their lowest ranks; descriptors go to the own host's from here on. */
static void take_hosts(symm_ctx *ctx, struct symm_handshake *handshakes)
{
    uint64_t id[SYMM_MAX_RANKS];

    ctx->hosts = 0;
    for (int r = 0; r < ctx->size; r++) {
        char *name = ctx->host_name[ctx->hosts];
        int host = 0;

        while (host < ctx->hosts && id[host] != handshakes[r].host.id)
            host++;
        ctx->host_of[r] = (uint8_t)host;
        if (host < ctx->hosts)
            continue;
        id[ctx->hosts++] = handshakes[r].host.id;
        memcpy(name, handshakes[r].host.name, SYMM_HOST_NAME - 1);
        (void)symm__printable(name, SYMM_HOST_NAME);
    }
    for (int r = 0; r < ctx->size; r++)
        if (symm__is_far(ctx, r))
            ctx->oob.far |= (uint64_t)1 << r;
    if (ctx->hosts > 1 && ctx->rank == 0)
        symm__log(SYMM_LOG_INFO, "%d ranks on %d hosts", ctx->size, ctx->hosts);
}

symm_status symm__handshake_check(symm_ctx *ctx,
                                  const struct symm_oob_message *messages)
{
    struct symm_handshake handshakes[SYMM_MAX_RANKS];
    uint32_t processors = 0, multicast = 1;
    bool alike = true;

    for (int r = 0; r < ctx->size; r++) {
        bool none = ctx->thread_group || r == ctx->rank || (ctx->oob.far >> r & 1) != 0;
        int fds = none ? 0 : 2;

        if (messages[r].bytes_count != sizeof(*handshakes) ||
            messages[r].fds_count != fds)
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed handshake",
                              r);
        memcpy(&handshakes[r], messages[r].bytes, sizeof(*handshakes));
        (void)symm__printable(handshakes[r].version, sizeof(handshakes[r].version));
        (void)symm__printable(handshakes[r].backend, sizeof(handshakes[r].backend));
        (void)symm__printable(handshakes[r].bus, sizeof(handshakes[r].bus));
    }
    for (int r = 0; r < ctx->size; r++) {
        symm_status status =
            r == ctx->rank
                ? SYMM_OK
                : check_settings(&handshakes[ctx->rank], ctx->rank, &handshakes[r], r);

        if (status != SYMM_OK)
            return status;
        if (r == 0)
            ctx->record_job = handshakes[r].record;
        multicast &= handshakes[r].multicast;
        alike = alike && handshakes[r].machine == handshakes[0].machine;
        if (processors == 0 || handshakes[r].processors < processors)
            processors = handshakes[r].processors;
    }
    take_hosts(ctx, handshakes);
    ctx->processors = (int)processors;
    symm__costs_agree(ctx, alike);
    ctx->multicast = multicast != 0 && ctx->size > 1;
    for (int r = 0; handshakes[ctx->rank].multicast && r < ctx->size; r++)
        if (!handshakes[r].multicast)
            symm__log(SYMM_LOG_INFO, "no multicast: rank %d cannot or must not", r);
    if (ctx->device_ops) {
        symm_status status = check_devices(ctx, handshakes);

        if (status != SYMM_OK)
            return status;
        ctx->multicast = ctx->multicast && !ctx->shared; /* takes a device once */
    }
    return agree_engine(ctx, handshakes);
}
