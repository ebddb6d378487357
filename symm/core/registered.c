/* SPDX-License-Identifier: MIT */
/*
 * registered.c - see registered.h.
 *
 * The owner sends a run with each new registration; in one message only the first of a run
 * carries its descriptors.
 */
#include "core/registered.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device_ops.h"
#include "core/run.h"
#include "util/status.h"

struct symm_registration {
    struct symm_registration *next;
    symm_buffer *buffer; /* NULL: ended, peers have it until the next rendezvous */
    char *ptr;
    size_t bytes;
    bool shared, settled;
    struct symm_mem_hold *mem; /* NULL: not of symm_mem_alloc */
    struct symm_own_run own;
    struct symm_opened *peer[SYMM_MAX_PLACES]; /* by place */
    uint64_t offset[SYMM_MAX_PLACES];          /* of their memory in the run */
};

/* One registration in a message, whose size gives their count. */
struct wire_registration {
    uint64_t index, offset, bytes; /* index: among the new ones */
    struct symm_wire_run run;
};

/* ---- Registrations --------------------------------------------------------------- */

symm_status symm__registered_add(symm_team *team, void *ptr, size_t bytes,
                                 symm_buffer *buffer)
{
    symm_ctx *ctx = team->ctx;
    struct symm_registration *made, **last;
    symm_status status;

    if ((uintptr_t)ptr - (uintptr_t)ctx->base < (size_t)ctx->places * ctx->stride)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_buffer_register: %p is symmetric memory already", ptr);
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return symm__fail(SYMM_ERR_OVERFLOW, "symm_buffer_register: %zu bytes at %p",
                          bytes, ptr);
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a registration");
    made->ptr = ptr;
    made->bytes = bytes;
    status = symm__run_take(ctx, ptr, bytes, &made->own, &made->mem);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->buffer = buffer;
    buffer->registration = made;
    buffer->offset = SYMM_REGISTERED + (size_t)team->registered++;
    pthread_mutex_lock(&ctx->registry);
    for (last = &team->registrations; *last;)
        last = &(*last)->next;
    /* relaxed: symm__registered_peer reads without the lock whether there is any */
    __atomic_store_n(last, made, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&ctx->registry);
    return SYMM_OK;
}

static void peers_drop(symm_team *team, struct symm_registration *r)
{
    for (int p = 0; p < team->local_size; p++) {
        symm__run_drop(team->ctx, r->peer[p]);
        r->peer[p] = NULL;
    }
}

/* Takes it off the list and frees it. */
static void registration_free(symm_team *team, struct symm_registration *r)
{
    struct symm_registration **at = &team->registrations;

    pthread_mutex_lock(&team->ctx->registry);
    while (*at != r)
        at = &(*at)->next;
    __atomic_store_n(at, r->next, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&team->ctx->registry);
    peers_drop(team, r);
    symm__run_give(team->ctx, &r->own, r->mem);
    free(r);
}

void symm__registered_remove(symm_buffer *buffer)
{
    struct symm_registration *r = buffer->registration;

    buffer->registration = NULL;
    if (!r->shared) {
        registration_free(buffer->team, r);
        return;
    }
    pthread_mutex_lock(&buffer->team->ctx->registry);
    r->buffer = NULL;
    pthread_mutex_unlock(&buffer->team->ctx->registry);
}

static bool is_new(const struct symm_registration *r)
{
    return r->buffer && !r->shared;
}

bool symm__registered_is_new(const symm_buffer *buffer)
{
    return is_new(buffer->registration);
}

/* ---- Rendezvous ------------------------------------------------------------------ */

/* Whether an earlier new registration has the run. */
static bool is_known(const symm_team *team, const struct symm_registration *r)
{
    for (const struct symm_registration *i = team->registrations; i && i != r;
         i = i->next)
        if (is_new(i) && symm__run_same(&i->own.run, &r->own.run))
            return true;
    return false;
}

symm_status symm__registered_pack(const symm_team *team, void **bytes, size_t *count,
                                  int **fds, int *fds_count)
{
    const struct symm_registration *r;
    struct wire_registration *wire;
    size_t fresh = 0, index = 0;

    *bytes = NULL;
    *fds = NULL;
    *count = 0;
    *fds_count = 0;
    for (r = team->registrations; r; r = r->next)
        fresh += is_new(r);
    if (fresh == 0)
        return SYMM_OK;
    wire = calloc(fresh, sizeof(*wire));
    *fds = calloc(fresh * SYMM_RUN_CHUNKS, sizeof(**fds));
    if (!wire || !*fds) {
        free(wire);
        free(*fds);
        *fds = NULL;
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %zu registrations", fresh);
    }
    *bytes = wire;
    *count = fresh * sizeof(*wire);
    for (r = team->registrations; r; r = r->next) {
        if (!is_new(r))
            continue;
        *wire =
            (struct wire_registration){.index = index++,
                                       .offset = (uintptr_t)r->ptr - r->own.run.base,
                                       .bytes = r->bytes,
                                       .run.way = SYMM_RUN_SENT,
                                       .run.run = r->own.run};
        memcpy(wire->run.token, r->own.token, sizeof(wire->run.token));
        if (team->ctx->thread_group)
            wire->run.way = SYMM_RUN_THREAD;
        else if (is_known(team, r))
            wire->run.way = SYMM_RUN_KNOWN;
        else if (r->own.run.kind == SYMM_RUN_DESCRIPTORS)
            for (uint32_t i = 0; i < r->own.run.chunks; i++)
                (*fds)[(*fds_count)++] = r->own.fds[i];
        wire++;
    }
    return SYMM_OK;
}

/* Checks a peer's message before anything in it is used. */
static bool is_sound(const struct wire_registration *wire,
                     const struct symm_registration *mine)
{
    return mine && symm__run_is_sound(&wire->run) && wire->bytes == mine->bytes &&
           wire->offset <= wire->run.run.bytes &&
           wire->bytes <= wire->run.run.bytes - wire->offset;
}

/* This rank's new registration with that index; NULL: there is none. */
static struct symm_registration *new_at(const symm_team *team, uint64_t index)
{
    for (struct symm_registration *r = team->registrations; r; r = r->next)
        if (is_new(r) && index-- == 0)
            return r;
    return NULL;
}

symm_status symm__registered_map(symm_team *team, int member, const void *bytes,
                                 size_t count, const int *fds, int fds_count)
{
    const int place = symm__team_place(team, member);
    const char *at = bytes;

    for (; count >= sizeof(struct wire_registration);
         count -= sizeof(struct wire_registration)) {
        struct symm_registration *mine;
        struct wire_registration wire;
        int used;
        symm_status status;

        memcpy(&wire, at, sizeof(wire));
        at += sizeof(wire);
        mine = new_at(team, wire.index);
        used = member != team->rank ? symm__run_fds(&wire.run) : 0;
        if (!is_sound(&wire, mine) || used > fds_count ||
            (member != team->rank && mine->peer[place]))
            break;
        if (member != team->rank) {
            status = symm__run_get(team->ctx, team->world_rank[member], &wire.run, fds,
                                   &mine->peer[place]);
            if (status != SYMM_OK)
                return status;
            mine->offset[place] = wire.offset;
            fds += used;
            fds_count -= used;
        }
    }
    if (count != 0 || (member != team->rank && fds_count != 0))
        return symm__fail(SYMM_ERR_REFUSED,
                          "rank %d sent a malformed list of registrations",
                          team->world_rank[member]);
    return SYMM_OK;
}

symm_status symm__registered_check(const symm_team *team)
{
    for (const struct symm_registration *r = team->registrations; r; r = r->next)
        for (int p = 0; is_new(r) && p < team->local_size; p++)
            if (p != team->local_rank && !symm__team_far_at(team, p) && !r->peer[p])
                return symm__fail(SYMM_ERR_REFUSED,
                                  "rank %d did not send its registration of %zu bytes",
                                  symm__team_rank_at(team, p), r->bytes);
    return SYMM_OK;
}

void symm__registered_undo(symm_team *team)
{
    for (struct symm_registration *r = team->registrations; r; r = r->next)
        if (is_new(r))
            peers_drop(team, r);
}

void symm__registered_settle(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    bool ends = false;

    if (!__atomic_load_n(&team->registrations, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&ctx->lock);
    for (struct symm_registration *r = team->registrations; r; r = r->next) {
        r->settled = !r->buffer; /* symm__registered_done comes after the wait */
        ends = ends || r->settled;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!ends)
        return;
    if (ctx->device_ops)
        ctx->device_ops->settle(ctx);
    else
        symm__team_drain(team);
}

void symm__registered_done(symm_team *team)
{
    for (struct symm_registration *r = team->registrations, *next; r; r = next) {
        next = r->next;
        if (!r->buffer) {
            if (r->settled)
                registration_free(team, r);
            continue;
        }
        for (uint32_t i = 0; i < r->own.run.chunks; i++) {
            if (r->own.fds[i] >= 0)
                close(r->own.fds[i]);
            r->own.fds[i] = -1;
        }
        pthread_mutex_lock(&team->ctx->registry);
        r->shared = true;
        pthread_mutex_unlock(&team->ctx->registry);
    }
}

void symm__registered_close(symm_team *team)
{
    while (team->registrations)
        registration_free(team, team->registrations);
}

/* ---- Addresses ------------------------------------------------------------------- */

/* The address of [r->ptr + at, ...) at a member; NULL: not mapped. */
static void *address(const symm_team *team, const struct symm_registration *r, int peer,
                     size_t at)
{
    const int place = symm__team_place(team, peer);

    if (peer == team->rank)
        return r->ptr + at;
    if (place < 0 || !r->shared || !r->peer[place])
        return NULL;
    return symm__run_at(r->peer[place]) + r->offset[place] + at;
}

void *symm__registered_ptr(const symm_buffer *buffer, int peer)
{
    return address(buffer->team, buffer->registration, peer, 0);
}

bool symm__registered_peer(symm_team *team, const void *ptr, size_t bytes, int peer,
                           void **theirs)
{
    const uintptr_t at = (uintptr_t)ptr;
    void *found = NULL;

    if (!__atomic_load_n(&team->registrations, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&team->ctx->registry);
    for (const struct symm_registration *r = team->registrations; r && !found;
         r = r->next) {
        const size_t inside = at - (uintptr_t)r->ptr;

        if (r->buffer && inside <= r->bytes && bytes <= r->bytes - inside)
            found = address(team, r, peer, inside);
    }
    pthread_mutex_unlock(&team->ctx->registry);
    if (found)
        *theirs = found;
    return found != NULL;
}
