/* SPDX-License-Identifier: MIT */
/*
 * handshake.c - the first exchange's contents: settings that must be equal on all ranks, and
 * each rank's device.
 *
 * Refuses, naming both ranks: another version, backend or setting; two ranks on one device
 * of a host (every rank looks at all, so that all refuse the job). SYMM_OVERSUBSCRIBE allows
 * that, but to threads: the device runs processes in turns, so that a kernel which waits
 * for another rank's holds it up for a slice of time, where the kernels of one process
 * might take all multiprocessors from the one that they wait for. With MPS processes run at the
 * same time: then each has an equal part of the device at most. Devices that cannot reach each
 * other's memory are refused by the rank that cannot.
 */
#include "setup/handshake.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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
        .fabric = ctx->fabric,
        .stride = ctx->stride,
        .team_bytes = ctx->team_bytes,
        .granularity = ctx->granularity,
        .machine = symm__fnv_text(SYMM_FNV_BASIS, ctx->machine),
        .costs = ctx->costs_file ? ctx->costs_file->hash : 0,
        .record = symm__record_key(),
        .plan = symm__option(SYMM_OPTION_PLAN) != NULL,
        .version = SYMM_VERSION_STRING};
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);

    snprintf(handshake.backend, sizeof(handshake.backend), "%s", ctx->ops->name);
    if (device) {
        memcpy(handshake.uuid, device->uuid, sizeof(handshake.uuid));
        memcpy(handshake.bus, device->bus, sizeof(handshake.bus));
        handshake.processors = (uint32_t)device->processors;
        handshake.mps = (uint32_t)device->mps;
        handshake.multicast = device->multicast;
        handshake.clusters = device->major >= 9;
    }
    symm__engine_handshake(ctx, &handshake.engine);
    return handshake;
}

size_t symm__handshake_bytes(const struct symm_handshake *handshake)
{
    const uint8_t *bytes = (const uint8_t *)handshake;
    size_t count = sizeof(*handshake);

    while (count > 1 && bytes[count - 1] == 0)
        count--;
    return count;
}

/* What a rank sent, once its form was checked; the engine's part only as far as it was sent. */
static const struct symm_handshake *of(const struct symm_oob_message *messages,
                                       int rank)
{
    return messages[rank].bytes;
}

/* Compares the settings of two ranks that must be equal. */
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

/* A rank's device, for sorting: those of one host, then of one device side by side. */
struct owner {
    int host, rank;
    const uint8_t *uuid;
};

static int owner_compare(const void *left, const void *right)
{
    const struct owner *a = left, *b = right;
    const int order = memcmp(a->uuid, b->uuid, 16);

    if (a->host != b->host)
        return a->host < b->host ? -1 : 1;
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static bool is_same_device(const struct owner *a, const struct owner *b)
{
    return a->host == b->host && memcmp(a->uuid, b->uuid, 16) == 0;
}

/* Finds two ranks on one device: of all pairs the one with the lowest higher rank. */
static bool find_shared(const struct owner *sorted, int count, int *one, int *other)
{
    bool found = false;

    for (int i = 1; i < count; i++) {
        const struct owner *a = &sorted[i - 1], *b = &sorted[i];

        if (!is_same_device(a, b) || (found && b->rank >= *other))
            continue;
        found = true;
        *one = a->rank;
        *other = b->rank;
    }
    return found;
}

/* Gives ranks that share a device by MPS equal parts of it, and no clusters: another rank's blocks
 * may take the places that budget.h leaves free for one. Returns whether ranks share a device without
 * MPS. */
static bool divide_devices(symm_ctx *ctx, const struct owner *sorted,
                           const struct symm_oob_message *messages)
{
    bool in_turns = false;

    for (int i = 0, next; i < ctx->size; i = next) {
        uint32_t whole = UINT32_MAX;

        for (next = i; next < ctx->size && is_same_device(&sorted[i], &sorted[next]);
             next++)
            if (of(messages, sorted[next].rank)->mps < whole)
                whole = of(messages, sorted[next].rank)->mps;
        if (next == i + 1)
            continue;
        in_turns = in_turns || whole == 0;
        if (whole == 0)
            continue;
        ctx->clusters = false;
        if (whole / (uint32_t)(next - i) < (uint32_t)ctx->processors)
            ctx->processors = (int)(whole / (uint32_t)(next - i));
        if (ctx->processors < 1)
            ctx->processors = 1;
    }
    return in_turns;
}

static void tell_shared(const symm_ctx *ctx, bool in_turns)
{
    if (ctx->rank != 0)
        return;
    if (in_turns)
        symm__log(SYMM_LOG_WARN, "ranks share devices and wait for each other's slices "
                                 "of time: milliseconds a call");
    else
        symm__log(SYMM_LOG_INFO,
                  "ranks share devices by MPS: a call has at most %d multiprocessors",
                  ctx->processors);
}

static symm_status check_devices(symm_ctx *ctx, const struct symm_oob_message *messages)
{
    struct owner *owners = calloc((size_t)ctx->size, sizeof(*owners));
    int one = 0, other = 0;
    bool in_turns;

    if (!owners)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to compare %d devices", ctx->size);
    for (int r = 0; r < ctx->size; r++)
        owners[r] = (struct owner){ctx->host_of[r], r, of(messages, r)->uuid};
    qsort(owners, (size_t)ctx->size, sizeof(*owners), owner_compare);
    ctx->shared = find_shared(owners, ctx->size, &one, &other);
    in_turns = divide_devices(ctx, owners, messages);
    free(owners);
    if (ctx->shared && !ctx->oversubscribe)
        return symm__fail(
            SYMM_ERR_IN_USE,
            "ranks %d and %d are on one device (%s); give each rank a device "
            "of its own, by its local rank or CUDA_VISIBLE_DEVICES, or use "
            "SYMM_BACKEND=host%s",
            one, other, of(messages, other)->bus,
            ctx->thread_group ? "" : ", or SYMM_OVERSUBSCRIBE=1 for a test");
    if (ctx->shared)
        tell_shared(ctx, in_turns);
    return SYMM_OK;
}

symm_status symm__handshake_reach(const symm_ctx *ctx,
                                  const struct symm_oob_message *message, int rank)
{
    struct symm_device_info theirs = {0};
    const struct symm_handshake *handshake = message->bytes;

    memcpy(theirs.uuid, handshake->uuid, sizeof(theirs.uuid));
    memcpy(theirs.bus, handshake->bus, sizeof(theirs.bus));
    (void)symm__printable(theirs.bus, sizeof(theirs.bus));
    return ctx->ops->reachable(ctx->backend, ctx->rank, &theirs, rank);
}

/* What a rank sent of its engine, with the zeros at the end that were not sent. */
static struct symm_engine_handshake engine_of(const void *arg, int rank)
{
    const struct symm_oob_message *message =
        (const struct symm_oob_message *)arg + rank;
    const size_t begin = offsetof(struct symm_handshake, engine);
    const size_t sent = message->bytes_count - begin; /* the struct's padding, too */
    struct symm_engine_handshake engine = {0};

    memcpy(&engine, (const char *)message->bytes + begin,
           sent < sizeof(engine) ? sent : sizeof(engine));
    return engine;
}

/* Checks the form of a message before anything in it is used. Restores the zeros that were not
 * sent only up to the engine's part: for a thousand ranks the rest would be a megabyte. */
static symm_status check_form(const symm_ctx *ctx, struct symm_oob_message *message,
                              int rank)
{
    const bool none = ctx->thread_group || rank == ctx->rank || symm__is_far(ctx, rank);
    const size_t count = message->bytes_count;
    const size_t room = offsetof(struct symm_handshake, engine);
    struct symm_handshake *theirs;

    if (count < 1 || count > sizeof(*theirs) || message->fds_count != (none ? 0 : 2))
        return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed handshake", rank);
    if (count < room) {
        theirs = realloc(message->bytes, room);
        if (!theirs)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for the handshake of rank %d",
                              rank);
        memset((char *)theirs + count, 0, room - count);
        message->bytes = theirs;
        message->bytes_count = room;
    }
    theirs = message->bytes;
    (void)symm__printable(theirs->version, sizeof(theirs->version));
    (void)symm__printable(theirs->backend, sizeof(theirs->backend));
    (void)symm__printable(theirs->bus, sizeof(theirs->bus));
    return SYMM_OK;
}

/* Sets in ctx what follows from all handshakes. *alike: all machines are of one kind. */
static void take_all(symm_ctx *ctx, const struct symm_oob_message *messages,
                     bool *alike)
{
    uint32_t processors = 0, clusters = 1;
    int without = -1;   /* the first rank that has no multicast, */
    int no_fabric = -1; /* or does not ask for domains over hosts */

    *alike = true;
    ctx->record_job = of(messages, 0)->record;
    for (int r = 0; r < ctx->size; r++) {
        const struct symm_handshake *theirs = of(messages, r);

        if (without < 0 && !theirs->multicast)
            without = r;
        if (no_fabric < 0 && !theirs->fabric)
            no_fabric = r;
        *alike = *alike && theirs->machine == of(messages, 0)->machine;
        if (processors == 0 || theirs->processors < processors)
            processors = theirs->processors;
        clusters = clusters && theirs->clusters;
    }
    ctx->processors = (int)processors;
    ctx->clusters = clusters;
    if (ctx->fabric && no_fabric >= 0)
        snprintf(ctx->why_domain, sizeof(ctx->why_domain),
                 "rank %d has no SYMM_FABRIC=1; set it on all ranks", no_fabric);
    ctx->fabric = ctx->fabric && no_fabric < 0;
    if (without >= 0 && of(messages, ctx->rank)->multicast)
        symm__log(SYMM_LOG_INFO, "no multicast: rank %d cannot or must not", without);
    ctx->multicast = without < 0 && ctx->size > 1;
}

symm_status symm__handshake_check(symm_ctx *ctx, struct symm_oob_message *messages)
{
    symm_status status = SYMM_OK;
    bool alike;

    for (int r = 0; r < ctx->size && status == SYMM_OK; r++)
        status = check_form(ctx, &messages[r], r);
    for (int r = 0; r < ctx->size && status == SYMM_OK; r++)
        if (r != ctx->rank)
            status =
                check_settings(of(messages, ctx->rank), ctx->rank, of(messages, r), r);
    if (status != SYMM_OK)
        return status;
    take_all(ctx, messages, &alike);
    symm__costs_agree(ctx, alike);
    if (ctx->device_ops) {
        status = check_devices(ctx, messages);
        if (status != SYMM_OK)
            return status;
        ctx->multicast = ctx->multicast && !ctx->shared; /* takes a device once */
    }
    return symm__engine_agree(ctx, engine_of, messages, ctx->size);
}
