/* SPDX-License-Identifier: MIT */
/* places.c - see places.h. */
#include "setup/places.h"

#include <stdlib.h>
#include <string.h>

#include "util/log.h"
#include "util/status.h"
#include "util/text.h"

symm_status symm__room_open(symm_ctx *ctx)
{
    struct symm_room *room = &ctx->room;
    const size_t size = (size_t)ctx->size;

    room->messages = calloc(size, sizeof(*room->messages));
    room->acks = calloc(size, sizeof(*room->acks));
    room->words = calloc(size, sizeof(*room->words));
    room->everyone = calloc(size, sizeof(*room->everyone));
    if (!room->messages || !room->acks || !room->words || !room->everyone)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the exchanges of %d ranks",
                          ctx->size);
    for (int r = 0; r < ctx->size; r++)
        room->everyone[r] = r;
    return SYMM_OK;
}

/* A rank and the host that it is on, for sorting. */
struct resident {
    uint64_t id;
    int rank;
};

static int resident_compare(const void *left, const void *right)
{
    const struct resident *a = left, *b = right;

    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* host_of, local_of and hosts, from the ranks sorted by host. */
static void number_hosts(symm_ctx *ctx, const struct resident *sorted)
{
    int first = 0;

    ctx->hosts = 0;
    for (int i = 0; i < ctx->size; i++) {
        if (sorted[i].id != sorted[first].id)
            first = i;
        ctx->host_of[sorted[i].rank] = sorted[first].rank; /* for now the lowest rank */
        ctx->local_of[sorted[i].rank] = (uint16_t)(i - first);
    }
    for (int r = 0; r < ctx->size; r++)
        ctx->host_of[r] =
            ctx->host_of[r] == r ? ctx->hosts++ : ctx->host_of[ctx->host_of[r]];
}

static symm_status find_hosts(symm_ctx *ctx, const struct symm_host *hosts)
{
    const size_t size = (size_t)ctx->size;
    struct resident *sorted = calloc(size, sizeof(*sorted));

    ctx->host_of = calloc(size, sizeof(*ctx->host_of));
    ctx->local_of = calloc(size, sizeof(*ctx->local_of));
    if (!sorted || !ctx->host_of || !ctx->local_of) {
        free(sorted);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the places of %d ranks",
                          ctx->size);
    }
    for (int r = 0; r < ctx->size; r++)
        sorted[r] = (struct resident){.id = hosts[r].id, .rank = r};
    qsort(sorted, size, sizeof(*sorted), resident_compare);
    number_hosts(ctx, sorted);
    free(sorted);
    return SYMM_OK;
}

static symm_status name_hosts(symm_ctx *ctx, const struct symm_host *hosts)
{
    ctx->host_name = calloc((size_t)ctx->hosts, sizeof(*ctx->host_name));
    if (!ctx->host_name)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the names of %d hosts",
                          ctx->hosts);
    for (int r = 0; r < ctx->size; r++) {
        char *name = ctx->host_name[ctx->host_of[r]];

        if (ctx->local_of[r] != 0)
            continue;
        memcpy(name, hosts[r].name, SYMM_HOST_NAME - 1);
        (void)symm__printable(name, SYMM_HOST_NAME);
    }
    return SYMM_OK;
}

/* Every rank looks at all hosts, so that all refuse the job. */
static symm_status check_crowds(const symm_ctx *ctx)
{
    const int most = ctx->device_ops ? SYMM_DEVICE_RANKS : SYMM_MAX_LOCAL_RANKS;
    int crowd = 0;

    for (int r = 0; r < ctx->size; r++)
        if (ctx->local_of[r] >= most && ctx->local_of[r] >= ctx->local_of[crowd])
            crowd = r;
    if (ctx->local_of[crowd] < most)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "host %s has %d ranks; at most %d ranks of a job are on one "
                      "host%s",
                      symm__host_of_rank(ctx, crowd), ctx->local_of[crowd] + 1, most,
                      ctx->device_ops ? " on CUDA; use SYMM_BACKEND=host" : "");
}

static symm_status list_local(symm_ctx *ctx)
{
    for (int r = 0; r < ctx->size; r++)
        ctx->local_size += !symm__is_far(ctx, r);
    ctx->local = calloc((size_t)ctx->local_size, sizeof(*ctx->local));
    if (!ctx->local)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %d ranks",
                          ctx->local_size);
    for (int r = 0; r < ctx->size; r++)
        if (!symm__is_far(ctx, r))
            ctx->local[ctx->local_of[r]] = r;
    ctx->local_rank = ctx->local_of[ctx->rank];
    return SYMM_OK;
}

symm_status symm__places_take(symm_ctx *ctx, const struct symm_host *hosts)
{
    symm_status status = find_hosts(ctx, hosts);

    if (status == SYMM_OK)
        status = name_hosts(ctx, hosts);
    if (status == SYMM_OK)
        status = check_crowds(ctx);
    if (status == SYMM_OK)
        status = list_local(ctx);
    if (status == SYMM_OK && ctx->hosts > 1 && ctx->rank == 0)
        symm__log(SYMM_LOG_INFO, "%d ranks on %d hosts", ctx->size, ctx->hosts);
    return status;
}

void symm__places_close(symm_ctx *ctx)
{
    free(ctx->room.messages);
    free(ctx->room.acks);
    free(ctx->room.words);
    free(ctx->room.everyone);
    free(ctx->host_of);
    free(ctx->local_of);
    free(ctx->host_name);
    free(ctx->local);
}
