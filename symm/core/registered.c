/* SPDX-License-Identifier: MIT */
/*
 * registered.c - see registered.h.
 *
 * The owner sends a run with each new registration; in one message only the first of a run
 * carries its descriptors. A run is known by its base, size and the backend's identifier, which
 * is never used twice: new memory at an old address is another one.
 */
#include "core/registered.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device_ops.h"
#include "core/mem.h"
#include "util/status.h"

/* How a peer gets the run of a registration in a message. */
enum way { SENT, THREAD, KNOWN, WAYS };

/* A peer's run, mapped here; on the context's list. */
struct symm_opened {
    struct symm_opened *next;
    int rank; /* of the world */
    struct symm_run run;
    bool mine; /* a mapping was made: not where ranks are threads */
    void *at;
    int references;
};

struct symm_registration {
    struct symm_registration *next;
    symm_buffer *buffer; /* NULL: ended, peers have it until the next rendezvous */
    char *ptr;
    size_t bytes;
    bool shared, settled;
    struct symm_mem_hold *mem; /* NULL: not of symm_mem_alloc */
    struct symm_own_run own;
    struct symm_opened *peer[SYMM_MAX_RANKS]; /* by team rank */
    uint64_t offset[SYMM_MAX_RANKS];          /* of their memory in the run */
};

/* One registration in a message, whose size gives their count. */
struct wire_registration {
    uint64_t index, offset, bytes; /* index: among the new ones */
    uint32_t way;                  /* KNOWN: an entry before has the run */
    uint32_t reserved;
    struct symm_run run;
    uint8_t token[SYMM_RUN_TOKEN];
};

static bool same_run(const struct symm_run *a, const struct symm_run *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- Registrations --------------------------------------------------------------- */

static void let_memory_go(symm_ctx *ctx, struct symm_registration *r)
{
    ctx->ops->run_give(ctx->backend, &r->own);
    symm__mem_drop(r->mem);
}

static symm_status take_memory(symm_ctx *ctx, struct symm_registration *r)
{
    symm_status status;

    r->mem = symm__mem_hold(r->ptr);
    status = ctx->ops->run_take(ctx->backend, r->ptr, r->bytes,
                                r->mem ? symm__mem_of(r->mem) : NULL, &r->own);
    if (status != SYMM_OK) {
        symm__mem_drop(r->mem);
        return status;
    }
    if (ctx->thread_group && r->own.run.kind == SYMM_RUN_BY_TOKEN) {
        let_memory_go(ctx, r);
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_buffer_register: %zu bytes at %p were not made by "
                          "symm_mem_alloc or cuMemCreate, which ranks that are threads "
                          "need",
                          r->bytes, (void *)r->ptr);
    }
    return SYMM_OK;
}

symm_status symm__registered_add(symm_team *team, void *ptr, size_t bytes,
                                 symm_buffer *buffer)
{
    symm_ctx *ctx = team->ctx;
    struct symm_registration *made, **last;
    symm_status status;

    if ((uintptr_t)ptr - (uintptr_t)ctx->base < (size_t)ctx->size * ctx->stride)
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
    status = take_memory(ctx, made);
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
    /* relaxed: symm__registered_peer looks without the lock whether there is any */
    __atomic_store_n(last, made, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&ctx->registry);
    return SYMM_OK;
}

/* The last user of a peer's run unmaps it. */
static void opened_drop(symm_ctx *ctx, struct symm_opened *opened)
{
    struct symm_opened **at = &ctx->opened;

    if (!opened || --opened->references > 0)
        return;
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    if (opened->mine)
        ctx->ops->run_close(ctx->backend, &opened->run, opened->at);
    free(opened);
}

static void peers_drop(symm_team *team, struct symm_registration *r)
{
    for (int m = 0; m < team->size; m++) {
        opened_drop(team->ctx, r->peer[m]);
        r->peer[m] = NULL;
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
    let_memory_go(team->ctx, r);
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

/* Whether an earlier new one has the run. */
static bool is_known(const symm_team *team, const struct symm_registration *r)
{
    for (const struct symm_registration *i = team->registrations; i && i != r;
         i = i->next)
        if (is_new(i) && same_run(&i->own.run, &r->own.run))
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
                                       .way = SENT,
                                       .run = r->own.run};
        memcpy(wire->token, r->own.token, sizeof(wire->token));
        if (team->ctx->thread_group)
            wire->way = THREAD;
        else if (is_known(team, r))
            wire->way = KNOWN;
        else if (r->own.run.kind == SYMM_RUN_DESCRIPTORS)
            for (uint32_t i = 0; i < r->own.run.chunks; i++)
                (*fds)[(*fds_count)++] = r->own.fds[i];
        wire++;
    }
    return SYMM_OK;
}

static symm_status opened_map(symm_ctx *ctx, const struct wire_registration *wire,
                              const int *fds, struct symm_opened *opened)
{
    switch ((enum way)wire->way) {
    case SENT:
        opened->mine = true;
        return ctx->ops->run_open(ctx->backend, &wire->run, fds, wire->token,
                                  &opened->at);
    case THREAD: /* one address space: the owner's mapping serves */
        opened->at = (void *)(uintptr_t)wire->run.base;
        return ctx->ops->run_reach(ctx->backend, &wire->run);
    case KNOWN:
    case WAYS:
        break;
    }
    return symm__fail(SYMM_ERR_REFUSED,
                      "a peer takes its allocation of %llu bytes at %#llx to be mapped "
                      "here, but it is not",
                      (unsigned long long)wire->run.bytes,
                      (unsigned long long)wire->run.base);
}

/* The peer's run: one that is open already, or newly mapped. */
static symm_status opened_get(symm_ctx *ctx, int rank,
                              const struct wire_registration *wire, const int *fds,
                              struct symm_opened **opened)
{
    struct symm_opened *made = ctx->opened;
    symm_status status;

    while (made && (made->rank != rank || !same_run(&made->run, &wire->run)))
        made = made->next;
    if (!made) {
        made = calloc(1, sizeof(*made));
        if (!made)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a peer's memory");
        made->rank = rank;
        made->run = wire->run;
        status = opened_map(ctx, wire, fds, made);
        if (status != SYMM_OK) {
            free(made);
            return status;
        }
        made->next = ctx->opened;
        ctx->opened = made;
    }
    made->references++;
    *opened = made;
    return SYMM_OK;
}

/* Checks a peer's message, of which nothing is used before. */
static bool is_sound(const struct wire_registration *wire,
                     const struct symm_registration *mine)
{
    uint64_t sum = 0;

    if (!mine || wire->way >= WAYS || wire->run.kind >= SYMM_RUN_KINDS ||
        wire->run.chunks < 1 || wire->run.chunks > SYMM_RUN_CHUNKS ||
        wire->bytes != mine->bytes)
        return false;
    for (uint32_t i = 0; i < wire->run.chunks; i++)
        if (__builtin_add_overflow(sum, wire->run.chunk[i], &sum))
            return false;
    return sum == wire->run.bytes && wire->offset <= sum &&
           wire->bytes <= sum - wire->offset;
}

/* The own new registration with that index; NULL: there is none. */
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
        used = member != team->rank && wire.way == SENT &&
                       wire.run.kind == SYMM_RUN_DESCRIPTORS
                   ? (int)wire.run.chunks
                   : 0;
        if (!is_sound(&wire, mine) || used > fds_count ||
            (member != team->rank && mine->peer[member]))
            break;
        if (member != team->rank) {
            status = opened_get(team->ctx, team->world_rank[member], &wire, fds,
                                &mine->peer[member]);
            if (status != SYMM_OK)
                return status;
            mine->offset[member] = wire.offset;
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
        for (int m = 0; is_new(r) && m < team->size; m++)
            if (m != team->rank && !symm__is_far(team->ctx, team->world_rank[m]) &&
                !r->peer[m])
                return symm__fail(SYMM_ERR_REFUSED,
                                  "rank %d did not send its registration of %zu bytes",
                                  team->world_rank[m], r->bytes);
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
    if (peer == team->rank)
        return r->ptr + at;
    if (!r->shared || !r->peer[peer])
        return NULL;
    return (char *)r->peer[peer]->at + r->offset[peer] + at;
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
