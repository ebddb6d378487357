/* SPDX-License-Identifier: MIT */
/* captured.c - see captured.h: the list of calls, and the release of their memory. */
#include "core/captured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/captured_list.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "util/forked.h"
#include "util/status.h"

/* ---- The process's list ------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock; /* taken before the lock of a team's calls */
    struct symm_capture *first;
} listed = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The teams are the parent's. */
static void forget_all(void)
{
    symm__lock_renew(&listed.lock);
    listed.first = NULL;
}
SYMM_IN_FORKED_CHILD(forget_all)

static void list_add(struct symm_capture *capture)
{
    pthread_mutex_lock(&listed.lock);
    capture->next = listed.first;
    listed.first = capture;
    pthread_mutex_unlock(&listed.lock);
}

void symm__captured_unlist(symm_team *team)
{
    pthread_mutex_lock(&listed.lock);
    for (struct symm_capture **at = &listed.first; *at; at = &(*at)->next)
        if (*at == team->capture) {
            *at = team->capture->next;
            break;
        }
    pthread_mutex_unlock(&listed.lock);
}

void symm__captured_each(void (*visit)(symm_team *team, void *arg), void *arg)
{
    pthread_mutex_lock(&listed.lock);
    for (struct symm_capture *capture = listed.first; capture; capture = capture->next)
        visit(capture->team, arg);
    pthread_mutex_unlock(&listed.lock);
}

/* ---- A bracket ---------------------------------------------------------------------- */

symm_status symm__captured_begin(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    if (!capture) {
        capture = calloc(1, sizeof(*capture));
        if (!capture)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of captured calls");
        capture->team = team;
        pthread_mutex_init(&capture->lock, NULL);
        /* release: pairs with the acquire in symm__captured_release */
        __atomic_store_n(&team->capture, capture, __ATOMIC_RELEASE);
        list_add(capture);
    }
    pthread_mutex_lock(&capture->lock);
    capture->bracket++;
    capture->first = capture->count;
    pthread_mutex_unlock(&capture->lock);
    team->capturing = true;
    return SYMM_OK;
}

static symm_status reserve(struct symm_capture *capture)
{
    const size_t capacity = capture->capacity ? 2 * capture->capacity : 64;
    struct symm_captured *grown;

    if (capture->count < capture->capacity)
        return SYMM_OK;
    grown = realloc(capture->calls, capacity * sizeof(*grown));
    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu captured calls",
                          capacity);
    capture->calls = grown;
    capture->capacity = capacity;
    return SYMM_OK;
}

/* A run that is known already takes over the descriptors of the newer look-up. */
static void run_renew(symm_ctx *ctx, struct symm_captured_run *known,
                      struct symm_captured_run *fresh)
{
    for (uint32_t i = 0; i < known->own.run.chunks; i++) {
        const int fd = known->own.fds[i];

        known->own.fds[i] = fresh->own.fds[i];
        fresh->own.fds[i] = fd;
    }
    symm__run_give(ctx, &fresh->own, fresh->mem);
    free(fresh);
}

/* The run of an array of this rank. */
static symm_status run_of(symm_team *team, const struct symm_captured_array *array,
                          struct symm_captured_run **run)
{
    struct symm_captured_run *made = calloc(1, sizeof(*made)), *known;
    symm_status status;

    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for an allocation's record");
    status = symm__run_take(team->ctx, (void *)(uintptr_t)array->ptr, array->bytes,
                            &made->own, &made->mem);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->index = SYMM_CAPTURED_NOT_SENT;
    known = team->capture->runs;
    while (known && !symm__run_same(&known->own.run, &made->own.run))
        known = known->next;
    if (known) {
        run_renew(team->ctx, known, made);
    } else {
        made->next = team->capture->runs;
        team->capture->runs = known = made;
    }
    *run = known;
    return SYMM_OK;
}

static symm_status place_fill(symm_team *team, const struct symm_captured_array *array,
                              struct symm_captured_place *place)
{
    size_t offset = 0;
    symm_status status;

    place->ptr = (char *)(uintptr_t)array->ptr;
    place->bytes = array->bytes;
    if (array->bytes == 0)
        return SYMM_OK;
    if (symm__team_symmetric(team, array->ptr, array->bytes, &offset)) {
        place->offset = offset;
        return SYMM_OK;
    }
    status = run_of(team, array, &place->run);
    if (status != SYMM_OK)
        return status;
    place->run->users++;
    place->offset = (uintptr_t)array->ptr - place->run->own.run.base;
    return SYMM_OK;
}

static symm_status add(symm_team *team, const struct symm_captured_site *site,
                       const struct symm_captured_array arrays[SYMM_CAPTURED_ARRAYS],
                       const struct symm_cuda_pointers **entry, uint64_t *key)
{
    struct symm_capture *capture = team->capture;
    symm_status status = reserve(capture);
    struct symm_captured *call;

    if (status != SYMM_OK)
        return status;
    call = &capture->calls[capture->count];
    memset(call, 0, sizeof(*call));
    call->site = *site;
    call->key = capture->bracket << 32 | (uint32_t)(capture->count - capture->first);
    for (int a = 0; a < SYMM_CAPTURED_ARRAYS && status == SYMM_OK; a++)
        status = place_fill(team, &arrays[a], &call->place[a]);
    if (status == SYMM_OK)
        status = team->device_ops->pointers_add(team, capture->count, entry);
    if (status != SYMM_OK) {
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++)
            symm__captured_place_end(&call->place[a]);
        symm__captured_runs_sweep(team);
        return status;
    }
    capture->count++;
    *key = call->key;
    return SYMM_OK;
}

symm_status
symm__captured_add(symm_team *team, const struct symm_captured_site *site,
                   const struct symm_captured_array arrays[SYMM_CAPTURED_ARRAYS],
                   const struct symm_cuda_pointers **entry, uint64_t *key)
{
    symm_status status;

    pthread_mutex_lock(&team->capture->lock);
    status = add(team, site, arrays, entry, key);
    pthread_mutex_unlock(&team->capture->lock);
    return status;
}

/* ---- The end of memory --------------------------------------------------------------- */

static bool overlaps(const struct symm_captured_place *place, const void *ptr,
                     size_t bytes)
{
    const uintptr_t at = (uintptr_t)ptr, own = (uintptr_t)place->ptr;

    return place->run && at < own + place->bytes && own < at + bytes;
}

/* Whether some call may use the memory: searches the runs, of which there are few. */
static bool is_used(const struct symm_capture *capture, const void *ptr, size_t bytes)
{
    const uintptr_t at = (uintptr_t)ptr;

    for (const struct symm_captured_run *r = capture->runs; r; r = r->next)
        if (at < r->own.run.base + r->own.run.bytes && r->own.run.base < at + bytes)
            return true;
    return false;
}

/* Lists the indices of the calls that use the memory; of malloc. */
static symm_status find_used(const struct symm_capture *capture, const void *ptr,
                             size_t bytes, size_t **found, size_t *count)
{
    size_t *list = malloc((capture->count + 1) * sizeof(*list));

    if (!list)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu captured calls",
                          capture->count);
    *count = 0;
    for (size_t i = 0; i < capture->count; i++)
        if (overlaps(&capture->calls[i].place[SYMM_CAPTURED_IN], ptr, bytes) ||
            overlaps(&capture->calls[i].place[SYMM_CAPTURED_OUT], ptr, bytes))
            list[(*count)++] = i;
    *found = list;
    return SYMM_OK;
}

/* With the lock. */
static symm_status release(symm_team *team, const void *ptr, size_t bytes)
{
    struct symm_capture *capture = team->capture;
    size_t *used = NULL, count = 0;
    symm_status status = find_used(capture, ptr, bytes, &used, &count);

    if (status != SYMM_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        struct symm_captured *call = &capture->calls[used[i]];

        call->released |= 1u << team->rank;
        call->gone = ptr;
        call->gone_bytes = bytes;
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++)
            symm__captured_place_end(&call->place[a]);
    }
    if (count > 0)
        status = team->device_ops->pointers_release(team, used, count);
    free(used);
    symm__captured_runs_sweep(team);
    return status;
}

symm_status symm__captured_release(symm_team *team, const void *ptr, size_t bytes)
{
    /* acquire: pairs with the release in symm__captured_begin */
    struct symm_capture *capture = __atomic_load_n(&team->capture, __ATOMIC_ACQUIRE);
    const size_t most = UINTPTR_MAX - (uintptr_t)ptr; /* else the end is before ptr */
    symm_status status = SYMM_OK;

    if (!capture || bytes == 0)
        return SYMM_OK;
    bytes = bytes < most ? bytes : most;
    pthread_mutex_lock(&capture->lock);
    if (is_used(capture, ptr, bytes))
        status = release(team, ptr, bytes);
    pthread_mutex_unlock(&capture->lock);
    return status;
}

void symm__captured_close(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    if (!capture)
        return;
    capture->ending = false;
    for (size_t i = 0; i < capture->count; i++)
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++) {
            struct symm_captured_place *place = &capture->calls[i].place[a];

            for (int m = 0; m < team->size; m++)
                symm__run_drop(team->ctx, place->opened[m]);
            symm__captured_place_end(place);
        }
    symm__captured_runs_sweep(team);
    pthread_mutex_destroy(&capture->lock);
    free(capture->calls);
    free(capture);
    team->capture = NULL;
}

/* ---- Sentences ----------------------------------------------------------------------- */

static void call_text(const struct symm_captured *call, char *text, size_t bytes)
{
    snprintf(text, bytes, "captured call %u of bracket %llu (%s of %llu %s, %s)",
             (uint32_t)call->key + 1, (unsigned long long)(call->key >> 32),
             symm__kind_name((enum symm_kind)call->site.kind),
             (unsigned long long)call->site.count,
             symm_dtype_name((symm_dtype)call->site.dtype),
             symm_algorithm_name((symm_algorithm)call->site.algorithm));
}

static void reason_text(const symm_team *team, const struct symm_captured *call,
                        char *text, size_t bytes)
{
    const uint32_t own = 1u << team->rank;

    if (call->released & own)
        snprintf(text, bytes, "rank %d has released [%p, +%zu), which it uses",
                 team->ctx->rank, call->gone, call->gone_bytes);
    else if (call->released != 0)
        snprintf(text, bytes, "rank %d has released memory that it uses",
                 team->world_rank[__builtin_ctz(call->released)]);
    else if (call->state == SYMM_CAPTURED_FAILED)
        snprintf(text, bytes, "symm_team_capture_end has failed");
    else
        snprintf(text, bytes, "symm_team_capture_end has not come yet");
}

bool symm__captured_text(symm_team *team, size_t index, char *text, size_t bytes)
{
    struct symm_capture *capture = __atomic_load_n(&team->capture, __ATOMIC_ACQUIRE);
    char call[144], reason[144];

    /* The holder of the lock may wait for the device, and the device for this thread. */
    if (!capture || pthread_mutex_trylock(&capture->lock) != 0)
        return false;
    if (index < capture->count) {
        call_text(&capture->calls[index], call, sizeof(call));
        reason_text(team, &capture->calls[index], reason, sizeof(reason));
        snprintf(text, bytes, "rank %d has replayed %s, but %s: capture it again",
                 team->ctx->rank, call, reason);
    } else {
        snprintf(text, bytes, "rank %d has replayed a captured call that is unknown",
                 team->ctx->rank);
    }
    pthread_mutex_unlock(&capture->lock);
    return true;
}
