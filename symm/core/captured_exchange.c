/* SPDX-License-Identifier: MIT */
/*
 * captured_exchange.c - the end of a bracket (captured.h): the messages about captured calls,
 * their comparison, and its outcome.
 *
 * A message has a head, the calls of the bracket with the places of their arrays, the runs that
 * these lie in, and the keys of earlier calls whose memory this rank has released. The message of
 * a rank that abandons the bracket has no calls. What a peer sent is copied and checked before it
 * is used.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/captured.h"
#include "core/captured_list.h"
#include "core/device_ops.h"
#include "oob/oob.h"
#include "util/status.h"
#include "util/text.h"

#define WHY_BYTES 88 /* of symm_team_capture_abandon's reason: 80, and the 0 */

#define IN_HEAP  (UINT64_MAX - 1) /* wire_place.run: the offset is one of the heap */
#define RELEASED (UINT64_MAX - 2) /* the memory was released already */

struct wire_head {
    uint64_t bracket, calls, runs, released;
    uint64_t abandoned;
    char why[WHY_BYTES];
};

struct wire_place {
    uint64_t run, offset, bytes; /* run: index in the message, or one of the above */
};

struct wire_call {
    struct symm_captured_site site;
    struct wire_place place[SYMM_CAPTURED_ARRAYS];
};

/* A member's message: where its parts begin. */
struct view {
    struct wire_head head;
    const char *calls, *runs, *released;
};

/* ---- The message --------------------------------------------------------------------- */

/* Numbers the runs that the bracket's calls use. Returns how many there are. */
static uint64_t number_runs(struct symm_capture *capture)
{
    uint64_t count = 0;

    for (struct symm_captured_run *r = capture->runs; r; r = r->next)
        r->index = SYMM_CAPTURED_NOT_SENT;
    for (size_t i = capture->first; i < capture->count; i++)
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++) {
            struct symm_captured_run *run = capture->calls[i].place[a].run;

            if (run && run->index == SYMM_CAPTURED_NOT_SENT)
                run->index = count++;
        }
    return count;
}

static bool is_unreported(const symm_team *team, const struct symm_captured *call)
{
    return call->state == SYMM_CAPTURED_READY &&
           call->reported != SYMM_CAPTURED_REPORTED &&
           (call->released >> team->rank & 1);
}

static uint64_t count_unreported(const symm_team *team)
{
    uint64_t count = 0;

    for (size_t i = 0; i < team->capture->first; i++)
        count += is_unreported(team, &team->capture->calls[i]);
    return count;
}

static struct wire_place pack_place(const symm_team *team,
                                    const struct symm_captured *call, int a)
{
    const struct symm_captured_place *place = &call->place[a];
    const uint64_t run = call->released >> team->rank & 1 ? RELEASED
                         : place->run                     ? place->run->index
                                                          : IN_HEAP;

    return (struct wire_place){
        .run = run, .offset = place->offset, .bytes = place->bytes};
}

static void pack_run(const symm_team *team, const struct symm_captured_run *run,
                     struct symm_wire_run *wire, int *fds, int *fds_count)
{
    *wire = (struct symm_wire_run){.way = SYMM_RUN_SENT, .run = run->own.run};
    memcpy(wire->token, run->own.token, sizeof(wire->token));
    if (team->ctx->thread_group)
        wire->way = SYMM_RUN_THREAD;
    for (int i = 0; i < symm__run_fds(wire); i++)
        fds[(*fds_count)++] = run->own.fds[i];
}

/* Fills the message. The lock is held; there is room. */
static void pack(symm_team *team, const struct wire_head *head, char *bytes, int *fds,
                 int *fds_count)
{
    struct symm_capture *capture = team->capture;
    struct wire_call *call = (void *)(bytes + sizeof(*head));
    struct symm_wire_run *runs = (void *)(call + head->calls);
    uint64_t *released = (void *)(runs + head->runs);

    memcpy(bytes, head, sizeof(*head));
    for (size_t i = capture->first; head->calls > 0 && i < capture->count;
         i++, call++) {
        call->site = capture->calls[i].site;
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++)
            call->place[a] = pack_place(team, &capture->calls[i], a);
    }
    for (uint64_t n = 0; n < head->runs; n++)
        for (const struct symm_captured_run *r = capture->runs; r; r = r->next)
            if (r->index == n)
                pack_run(team, r, &runs[n], fds, fds_count);
    for (size_t i = 0; i < capture->first; i++)
        if (is_unreported(team, &capture->calls[i])) {
            *released++ = capture->calls[i].key;
            capture->calls[i].reported = SYMM_CAPTURED_SENT;
        }
}

static struct wire_head head_of(symm_team *team, const char *why)
{
    struct symm_capture *capture = team->capture;
    struct wire_head head = {.bracket = capture->bracket,
                             .released = count_unreported(team)};

    if (why) {
        head.abandoned = 1;
        snprintf(head.why, sizeof(head.why), "%.80s", why);
    } else {
        head.calls = capture->count - capture->first;
        head.runs = number_runs(capture);
    }
    return head;
}

static symm_status pack_all(symm_team *team, const char *why, void **bytes,
                            size_t *count, int **fds, int *fds_count)
{
    const struct wire_head head = head_of(team, why);
    const size_t size = sizeof(head) + head.calls * sizeof(struct wire_call) +
                        head.runs * sizeof(struct symm_wire_run) +
                        head.released * sizeof(uint64_t);

    *bytes = calloc(1, size);
    *fds = calloc(head.runs * SYMM_RUN_CHUNKS + 1, sizeof(**fds));
    if (!*bytes || !*fds) {
        free(*bytes);
        free(*fds);
        *bytes = *fds = NULL;
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %llu captured calls",
                          (unsigned long long)head.calls);
    }
    *count = size;
    *fds_count = 0;
    pack(team, &head, *bytes, *fds, fds_count);
    return SYMM_OK;
}

symm_status symm__captured_pack(symm_team *team, const char *why, void **bytes,
                                size_t *count, int **fds, int *fds_count)
{
    symm_status status;

    *bytes = NULL;
    *fds = NULL;
    *count = 0;
    *fds_count = 0;
    pthread_mutex_lock(&team->capture->lock);
    team->capture->ending = true;
    status = pack_all(team, why, bytes, count, fds, fds_count);
    pthread_mutex_unlock(&team->capture->lock);
    return status;
}

/* ---- Comparing ----------------------------------------------------------------------- */

static symm_status malformed(const symm_team *team, int member)
{
    return symm__fail(SYMM_ERR_REFUSED,
                      "rank %d sent a malformed list of captured calls",
                      team->world_rank[member]);
}

static symm_status view_of(const symm_team *team, int member,
                           const struct symm_oob_message *message, struct view *view)
{
    const uint64_t most = SYMM_EXCHANGE_MAX_BYTES;
    size_t size = sizeof(view->head);

    if (message->bytes_count < size)
        return malformed(team, member);
    memcpy(&view->head, message->bytes, size);
    if (view->head.calls > most || view->head.runs > most || view->head.released > most)
        return malformed(team, member);
    (void)symm__printable(view->head.why, sizeof(view->head.why));
    view->calls = (const char *)message->bytes + size;
    view->runs = view->calls + view->head.calls * sizeof(struct wire_call);
    view->released = view->runs + view->head.runs * sizeof(struct symm_wire_run);
    size += view->head.calls * sizeof(struct wire_call) +
            view->head.runs * sizeof(struct symm_wire_run) +
            view->head.released * sizeof(uint64_t);
    return message->bytes_count == size ? SYMM_OK : malformed(team, member);
}

static struct wire_call call_at(const struct view *view, uint64_t k)
{
    struct wire_call call;

    memcpy(&call, view->calls + k * sizeof(call), sizeof(call));
    return call;
}

/* Whether two members have the same call k, or both none. */
static bool same_call(const struct view *a, const struct view *b, uint64_t k)
{
    struct wire_call one, other;

    if (k >= a->head.calls || k >= b->head.calls)
        return k >= a->head.calls && k >= b->head.calls;
    one = call_at(a, k);
    other = call_at(b, k);
    for (int p = 0; p < SYMM_CAPTURED_ARRAYS; p++)
        if (one.place[p].bytes != other.place[p].bytes)
            return false;
    return memcmp(&one.site, &other.site, sizeof(one.site)) == 0;
}

static const char *call_text(const struct view *view, uint64_t k, char *text,
                             size_t bytes)
{
    const struct wire_call call =
        k < view->head.calls ? call_at(view, k) : (struct wire_call){.site.count = 0};
    const char *dtype = symm_dtype_name((symm_dtype)call.site.dtype);
    const char *op = symm_op_name((symm_op)call.site.op);
    const char *algorithm = symm_algorithm_name((symm_algorithm)call.site.algorithm);

    if (k >= view->head.calls)
        snprintf(text, bytes, "no more");
    else
        snprintf(text, bytes, "%s%s%s of %llu %s (root %d) by %s",
                 symm__kind_name((enum symm_kind)call.site.kind),
                 symm__kind_reduces((enum symm_kind)call.site.kind) ? " " : "",
                 symm__kind_reduces((enum symm_kind)call.site.kind) && op ? op : "",
                 (unsigned long long)call.site.count, dtype ? dtype : "?",
                 call.site.root, algorithm ? algorithm : "?");
    return text;
}

/* The member whose call k most others have; at a tie the lowest such rank. */
static int most_common(const struct view *views, int size, uint64_t k)
{
    int best = 0, most = 0;

    for (int m = 0; m < size; m++) {
        int equal = 0;

        for (int i = 0; i < size; i++)
            equal += same_call(&views[m], &views[i], k);
        if (equal > most) {
            most = equal;
            best = m;
        }
    }
    return best;
}

/* Fails unless all members end the same bracket, and none abandons it. */
static symm_status compare_heads(const symm_team *team, const struct view *views)
{
    char name[64];

    for (int m = 0; m < team->size; m++)
        if (views[m].head.bracket != views[0].head.bracket)
            return symm__fail(
                SYMM_ERR_MISMATCH,
                "symm_team_capture_end of %s: rank %d ends bracket %llu, rank %d "
                "bracket %llu; begin and end them together",
                symm__team_name(team, name, sizeof(name)), team->world_rank[m],
                (unsigned long long)views[m].head.bracket, team->world_rank[0],
                (unsigned long long)views[0].head.bracket);
    for (int m = 0; m < team->size; m++)
        if (views[m].head.abandoned)
            return symm__fail(SYMM_ERR_ABORTED,
                              "symm_team_capture_end of %s: rank %d has abandoned "
                              "bracket %llu%s%s; capture its graphs again on all ranks",
                              symm__team_name(team, name, sizeof(name)),
                              team->world_rank[m],
                              (unsigned long long)views[m].head.bracket,
                              *views[m].head.why ? ": " : "", views[m].head.why);
    return SYMM_OK;
}

static symm_status compare(const symm_team *team, const struct view *views)
{
    char name[64], theirs[144], usual[144];
    symm_status status = compare_heads(team, views);
    uint64_t most = 0;

    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < team->size; m++)
        if (views[m].head.calls > most)
            most = views[m].head.calls;
    for (uint64_t k = 0; k < most; k++) {
        const int norm = most_common(views, team->size, k);

        for (int m = 0; m < team->size; m++)
            if (!same_call(&views[m], &views[norm], k))
                return symm__fail(
                    SYMM_ERR_MISMATCH,
                    "symm_team_capture_end of %s: captured call %llu differs: rank %d "
                    "has %s, rank %d has %s; capture the same calls in the same order "
                    "on all ranks, on memory of the same kind",
                    symm__team_name(team, name, sizeof(name)),
                    (unsigned long long)k + 1, team->world_rank[m],
                    call_text(&views[m], k, theirs, sizeof(theirs)),
                    team->world_rank[norm],
                    call_text(&views[norm], k, usual, sizeof(usual)));
    }
    return SYMM_OK;
}

symm_status symm__captured_compare(const symm_team *team,
                                   const struct symm_oob_message *messages)
{
    struct view views[SYMM_DEVICE_RANKS];

    for (int m = 0; m < team->size; m++) {
        symm_status status = view_of(team, m, &messages[m], &views[m]);

        if (status != SYMM_OK)
            return status;
    }
    return compare(team, views);
}

/* ---- Mapping ------------------------------------------------------------------------- */

/* Opens the runs of a member; opened[n] of malloc, each with a reference. */
static symm_status open_runs(symm_team *team, int member, const struct view *view,
                             const struct symm_oob_message *message,
                             struct symm_opened **opened)
{
    const int *fds = message->fds;
    int left = message->fds_count;

    for (uint64_t n = 0; n < view->head.runs; n++) {
        struct symm_wire_run wire;
        symm_status status;

        memcpy(&wire, view->runs + n * sizeof(wire), sizeof(wire));
        if (!symm__run_is_sound(&wire) || symm__run_fds(&wire) > left)
            return malformed(team, member);
        status =
            symm__run_get(team->ctx, team->world_rank[member], &wire, fds, &opened[n]);
        if (status != SYMM_OK)
            return status;
        fds += symm__run_fds(&wire);
        left -= symm__run_fds(&wire);
    }
    return left == 0 ? SYMM_OK : malformed(team, member);
}

/* Finds where a member's array is mapped here. */
static symm_status resolve(symm_team *team, int member, const struct view *view,
                           const struct wire_place *wire,
                           struct symm_opened *const *opened,
                           struct symm_captured_place *place)
{
    symm_ctx *ctx = team->ctx;
    char *own = symm__heap_base(ctx, ctx->rank);
    struct symm_wire_run run;
    size_t offset = 0;

    if (wire->bytes != place->bytes)
        return malformed(team, member);
    if (wire->bytes == 0)
        return SYMM_OK;
    if (wire->run == IN_HEAP) {
        if (wire->offset >= ctx->stride ||
            !symm__team_symmetric(team, own + wire->offset, wire->bytes, &offset))
            return malformed(team, member);
        place->at[member] = symm__heap_base(ctx, team->world_rank[member]) + offset;
        return SYMM_OK;
    }
    if (wire->run >= view->head.runs)
        return malformed(team, member);
    memcpy(&run, view->runs + wire->run * sizeof(run), sizeof(run));
    if (wire->offset > run.run.bytes || wire->bytes > run.run.bytes - wire->offset)
        return malformed(team, member);
    place->opened[member] = opened[wire->run];
    symm__run_hold(opened[wire->run]);
    place->at[member] = symm__run_at(opened[wire->run]) + wire->offset;
    return SYMM_OK;
}

static symm_status map_calls(symm_team *team, int member, const struct view *view,
                             struct symm_opened *const *opened)
{
    struct symm_capture *capture = team->capture;

    for (uint64_t k = 0; k < view->head.calls; k++) {
        struct symm_captured *call = &capture->calls[capture->first + k];
        const struct wire_call wire = call_at(view, k);

        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++) {
            symm_status status;

            if (wire.place[a].run == RELEASED) {
                call->released |= 1u << member;
                continue;
            }
            status =
                resolve(team, member, view, &wire.place[a], opened, &call->place[a]);
            if (status != SYMM_OK)
                return status;
        }
    }
    return SYMM_OK;
}

static symm_status map_member(symm_team *team, int member,
                              const struct symm_oob_message *message)
{
    struct symm_opened **opened;
    struct view view;
    symm_status status = view_of(team, member, message, &view);

    if (status != SYMM_OK)
        return status;
    opened = calloc(view.head.runs + 1, sizeof(struct symm_opened *));
    if (!opened)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %llu allocations",
                          (unsigned long long)view.head.runs);
    status = open_runs(team, member, &view, message, opened);
    if (status == SYMM_OK)
        status = map_calls(team, member, &view, opened);
    /* calls hold the runs that they use */
    for (uint64_t n = 0; n < view.head.runs; n++)
        symm__run_drop(team->ctx, opened[n]);
    free(opened);
    return status;
}

symm_status symm__captured_map(symm_team *team, const struct symm_oob_message *messages)
{
    symm_status status = SYMM_OK;

    pthread_mutex_lock(&team->capture->lock);
    for (int m = 0; m < team->size && status == SYMM_OK; m++)
        if (m != team->rank)
            status = map_member(team, m, &messages[m]);
    pthread_mutex_unlock(&team->capture->lock);
    return status;
}

/* ---- The outcome --------------------------------------------------------------------- */

static void drop_peers(symm_team *team, struct symm_captured *call)
{
    for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++)
        for (int m = 0; m < team->size; m++) {
            symm__run_drop(team->ctx, call->place[a].opened[m]);
            call->place[a].opened[m] = NULL;
        }
}

/* The message was sent: closes descriptors, and frees runs that no call uses. */
static void message_done(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    capture->ending = false;
    for (struct symm_captured_run *r = capture->runs; r; r = r->next)
        for (uint32_t i = 0; i < r->own.run.chunks; i++) {
            if (r->own.fds[i] >= 0)
                close(r->own.fds[i]);
            r->own.fds[i] = -1;
        }
    symm__captured_runs_sweep(team);
}

static void entry_fill(const symm_team *team, size_t index,
                       struct symm_cuda_pointers *entry)
{
    const struct symm_captured *call = &team->capture->calls[index];

    *entry = (struct symm_cuda_pointers){.call = (uint32_t)index};
    for (int m = 0; m < team->size; m++)
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++) {
            const struct symm_captured_place *place = &call->place[a];
            const uintptr_t at =
                (uintptr_t)(m == team->rank ? place->ptr : place->at[m]);
            const bool in = a == SYMM_CAPTURED_IN;

            if (place->bytes == 0)
                continue;
            *(in ? &entry->in[m] : &entry->out[m]) = at;
            *(in ? &entry->in_bits : &entry->out_bits) |= (uint32_t)at;
        }
    entry->state =
        call->released == 0 ? SYMM_CUDA_POINTERS_READY : SYMM_CUDA_POINTERS_RELEASED;
}

/* Writes the addresses of the bracket's calls, then their states. The lock is held. */
static symm_status publish(symm_team *team)
{
    struct symm_capture *capture = team->capture;
    const size_t count = capture->count - capture->first;
    struct symm_cuda_pointers *entries = calloc(count + 1, sizeof(*entries));
    symm_status status = SYMM_OK;

    if (!entries)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %zu entries", count);
    for (size_t i = 0; i < count; i++) {
        entry_fill(team, capture->first + i, &entries[i]);
        capture->calls[capture->first + i].state = SYMM_CAPTURED_READY;
    }
    if (count > 0)
        status = team->device_ops->pointers_write(team, capture->first, count, entries);
    free(entries);
    return status;
}

/* The earlier call with that key; `first`: there is none. */
static size_t find_key(const struct symm_capture *capture, uint64_t key)
{
    size_t low = 0, high = capture->first;

    while (low < high) { /* keys ascend */
        const size_t middle = low + (high - low) / 2;

        if (capture->calls[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < capture->first && capture->calls[low].key == key ? low
                                                                  : capture->first;
}

/* Makes earlier calls unusable whose memory a member has released. */
static symm_status take_released(symm_team *team, int member, const struct view *view,
                                 bool *ended)
{
    struct symm_capture *capture = team->capture;
    size_t *list = malloc((view->head.released + 1) * sizeof(*list)), count = 0;
    symm_status status = SYMM_OK;

    if (!list)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of captured calls");
    for (uint64_t n = 0; n < view->head.released; n++) {
        uint64_t key;
        size_t i;

        memcpy(&key, view->released + n * sizeof(key), sizeof(key));
        i = find_key(capture, key);
        if (i == capture->first || capture->calls[i].state != SYMM_CAPTURED_READY)
            continue;
        capture->calls[i].released |= 1u << member;
        list[count++] = i;
    }
    *ended = *ended || count > 0;
    if (count > 0)
        status = team->device_ops->pointers_release(team, list, count);
    free(list);
    return status;
}

symm_status symm__captured_ready(symm_team *team,
                                 const struct symm_oob_message *messages, bool *ended)
{
    struct symm_capture *capture = team->capture;
    symm_status status;

    *ended = false;
    pthread_mutex_lock(&capture->lock);
    status = publish(team);
    for (int m = 0; m < team->size; m++) {
        struct view view;

        if (status == SYMM_OK)
            status = view_of(team, m, &messages[m], &view);
        if (status == SYMM_OK)
            status = take_released(team, m, &view, ended);
    }
    for (size_t i = 0; i < capture->first; i++)
        if (capture->calls[i].reported == SYMM_CAPTURED_SENT) {
            capture->calls[i].reported = SYMM_CAPTURED_REPORTED;
            *ended = true;
        }
    message_done(team);
    pthread_mutex_unlock(&capture->lock);
    return status;
}

void symm__captured_fail(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    pthread_mutex_lock(&capture->lock);
    for (size_t i = capture->first; i < capture->count; i++) {
        struct symm_captured *call = &capture->calls[i];

        call->state = SYMM_CAPTURED_FAILED;
        drop_peers(team, call); /* no kernel has seen the addresses */
        for (int a = 0; a < SYMM_CAPTURED_ARRAYS; a++)
            symm__captured_place_end(&call->place[a]);
    }
    for (size_t i = 0; i < capture->first; i++)
        if (capture->calls[i].reported == SYMM_CAPTURED_SENT)
            capture->calls[i].reported = SYMM_CAPTURED_UNREPORTED;
    message_done(team);
    pthread_mutex_unlock(&capture->lock);
}

void symm__captured_sweep(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    pthread_mutex_lock(&capture->lock);
    for (size_t i = 0; i < capture->count; i++)
        if (capture->calls[i].released != 0)
            drop_peers(team, &capture->calls[i]);
    pthread_mutex_unlock(&capture->lock);
}
