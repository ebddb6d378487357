/* SPDX-License-Identifier: MIT */
/* ring.c - see ring.h. */
#include "call/ring.h"

#include <stdio.h>
#include <string.h>

#include "call/slow_wait.h"
#include "core/control_wait.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "util/clock.h"
#include "util/status.h"

#define UNIT  16u                      /* counts of a ring are multiples of it */
#define WAKES (SYMM_HOST_CHANNELS + 1) /* index in symm_pad.wake */

/* In front of each message. */
struct header {
    uint64_t count; /* elements */
    uint32_t dtype, reserved;
};
_Static_assert(sizeof(struct header) == UNIT, "a ring's unit");

/* The messages of one call. */
struct run {
    symm_team *team;
    struct symm_message *messages;
    int count;
    double timeout;
    const char *what, *site;
    const void *stream;               /* NULL: the default one */
    bool named[SYMM_MAX_LOCAL_RANKS]; /* by team rank: a receive of the call names it */
    /* By direction and team rank: in the last poll another thread of this rank had the end. */
    bool busy[2][SYMM_MAX_LOCAL_RANKS];
    bool any_busy;
};

/* ---- One ring -------------------------------------------------------------------- */

static size_t ring_stride(const symm_team *team)
{
    return SYMM_RINGS_BYTES / (size_t)team->size / 64 * 64;
}

static size_t ring_capacity(const symm_team *team)
{
    return ring_stride(team) - sizeof(struct symm_ring);
}

static struct symm_ring *ring_of(const symm_team *team, int owner, int sender)
{
    return (struct symm_ring *)(void *)(team->pad[owner]->host.rings +
                                        (size_t)sender * ring_stride(team));
}

static size_t round_up(size_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* Copies `bytes`, at most the capacity, from the ring's data at `position`. */
static void copy_out(const struct symm_ring *ring, size_t capacity, uint64_t position,
                     void *dst, size_t bytes)
{
    const char *data = (const char *)(ring + 1);
    const size_t at = position % capacity;
    const size_t first = bytes < capacity - at ? bytes : capacity - at;

    if (bytes > 0) /* dst may be NULL if not */
        memcpy(dst, data + at, first);
    if (bytes > first)
        memcpy((char *)dst + first, data, bytes - first);
}

static void copy_in(struct symm_ring *ring, size_t capacity, uint64_t position,
                    const void *src, size_t bytes)
{
    char *data = (char *)(ring + 1);
    const size_t at = position % capacity;
    const size_t first = bytes < capacity - at ? bytes : capacity - at;

    if (bytes > 0)
        memcpy(data + at, src, first);
    if (bytes > first)
        memcpy(data, (const char *)src + first, bytes - first);
}

/* Wakes a member that sleeps on its own pad's word. The caller has stored the count. */
static void wake(const symm_team *team, int member)
{
    struct symm_pad *pad = team->pad[member];

    if (__atomic_load_n(&pad->wake[WAKES].sleepers, __ATOMIC_RELAXED) == 0)
        return;
    __atomic_fetch_add(&pad->rung, 1, __ATOMIC_RELEASE);
    symm__wait_wake(&pad->rung);
}

/*
 * This rank's end of a ring: one thread at a time writes `filled` (of a send) or `emptied` (of a
 * receive). A call takes the end before a message's header, and releases it after the last byte.
 */
static uint8_t *end_of(const symm_team *team, bool receives, int peer)
{
    return &team->ring_ends[2 * peer + receives];
}

/* acquire: pairs with the release in give_end, of another thread's message */
static bool take_end(struct run *run, bool receives, int peer)
{
    if (__atomic_exchange_n(end_of(run->team, receives, peer), 1, __ATOMIC_ACQUIRE) ==
        0)
        return true;
    run->busy[receives][peer] = true;
    run->any_busy = true;
    return false;
}

static void give_end(const symm_team *team, bool receives, int peer)
{
    __atomic_store_n(end_of(team, receives, peer), 0, __ATOMIC_RELEASE);
}

/* Checks the peer's count against this rank's: *bytes is what lies in the ring. */
static symm_status ring_used(symm_team *team, int peer, uint64_t filled,
                             uint64_t emptied, size_t *bytes)
{
    *bytes = filled - emptied;
    if (*bytes <= ring_capacity(team) && *bytes % UNIT == 0)
        return SYMM_OK;
    return symm__team_fail(team, SYMM_ERR_DAMAGED,
                           "the ring for messages between rank %d and rank %d is "
                           "damaged: it holds %zu of %zu bytes",
                           team->ctx->rank, team->world_rank[peer], *bytes,
                           ring_capacity(team));
}

/* How much of the message is moved in one step, so that both ends copy at the same time; whole
 * units except at the message's end. */
static size_t portion(const symm_team *team, const struct symm_message *m, size_t room)
{
    const size_t left = m->bytes - m->done,
                 most = ring_capacity(team) / 4 / UNIT * UNIT;

    room = room < most ? room : most;
    return left <= room ? left : room / UNIT * UNIT;
}

/* ---- One message ----------------------------------------------------------------- */

static void finish(const symm_team *team, struct symm_message *m)
{
    if (m->done < m->bytes)
        return;
    m->state = SYMM_MESSAGE_DONE;
    if (m->source)
        *m->source = m->peer;
    give_end(team, m->receives, m->peer);
}

static symm_status send_some(struct run *run, struct symm_message *m, bool *moved)
{
    symm_team *team = run->team;
    struct symm_ring *ring = ring_of(team, m->peer, team->rank);
    const size_t capacity = ring_capacity(team);
    const struct header header = {.count = m->count, .dtype = (uint32_t)m->dtype};
    size_t used, bytes;
    uint64_t filled;
    symm_status status;

    if (m->state == SYMM_MESSAGE_WAITS && !take_end(run, false, m->peer))
        return SYMM_OK;
    filled = __atomic_load_n(&ring->filled, __ATOMIC_RELAXED);
    /* acquire: pairs with the release in receive_some: the room's bytes have been read */
    status = ring_used(team, m->peer, filled,
                       __atomic_load_n(&ring->emptied, __ATOMIC_ACQUIRE), &used);
    if (status != SYMM_OK || used == capacity) {
        if (m->state == SYMM_MESSAGE_WAITS)
            give_end(team, false, m->peer);
        return status;
    }
    if (m->state == SYMM_MESSAGE_WAITS) {
        copy_in(ring, capacity, filled, &header, UNIT);
        filled += UNIT;
        used += UNIT;
        m->state = SYMM_MESSAGE_MOVES;
    }
    bytes = portion(team, m, capacity - used);
    copy_in(ring, capacity, filled, m->ptr + m->done, bytes);
    m->done += bytes;
    /* release: pairs with the acquire in ring_waiting */
    __atomic_store_n(&ring->filled, filled + round_up(bytes), __ATOMIC_RELEASE);
    wake(team, m->peer);
    *moved = true;
    finish(team, m);
    return SYMM_OK;
}

/* How much lies in the ring from that member. This call holds the ring's end. */
static symm_status ring_waiting(symm_team *team, int peer, size_t *used)
{
    const struct symm_ring *ring = ring_of(team, team->rank, peer);

    /* acquire: pairs with the release in send_some */
    return ring_used(team, peer, __atomic_load_n(&ring->filled, __ATOMIC_ACQUIRE),
                     __atomic_load_n(&ring->emptied, __ATOMIC_RELAXED), used);
}

static symm_status check_header(const struct run *run, const struct symm_message *m,
                                int peer, const struct header *header)
{
    symm_team *team = run->team;
    const char *dtype = symm_dtype_name((symm_dtype)header->dtype);
    char where[SYMM_SITE_STREAM_BYTES];

    if (header->count == m->count && header->dtype == (uint32_t)m->dtype)
        return SYMM_OK;
    return symm__team_fail(
        team, dtype ? SYMM_ERR_MISMATCH : SYMM_ERR_DAMAGED,
        "%s: rank %d sent %llu elements of %s, and rank %d receives %zu of %s at %s: "
        "the k-th send to a rank meets its k-th receive",
        run->what, team->world_rank[peer], (unsigned long long)header->count,
        dtype ? dtype : "a dtype that does not exist", team->ctx->rank, m->count,
        symm_dtype_name(m->dtype),
        symm__site_stream_text(run->site, run->stream, where, sizeof(where)));
}

/* Begins to receive from this member if a message has come, and no other call receives from
 * it. */
static symm_status receive_from(struct run *run, struct symm_message *m, int peer)
{
    symm_team *team = run->team;
    struct symm_ring *ring = ring_of(team, team->rank, peer);
    struct header header;
    uint64_t emptied;
    size_t used = 0;
    symm_status status;

    if (!take_end(run, true, peer))
        return SYMM_OK;
    status = ring_waiting(team, peer, &used);
    if (status != SYMM_OK || used == 0) {
        give_end(team, true, peer);
        return status;
    }
    emptied = __atomic_load_n(&ring->emptied, __ATOMIC_RELAXED);
    copy_out(ring, ring_capacity(team), emptied, &header, UNIT);
    status = check_header(run, m, peer, &header);
    if (status != SYMM_OK)
        return status;
    __atomic_store_n(&ring->emptied, emptied + UNIT, __ATOMIC_RELEASE);
    m->peer = peer;
    m->state = SYMM_MESSAGE_MOVES;
    return SYMM_OK;
}

/* Receives from any rank: each search begins after the rank that was served last. */
static symm_status receive_any(struct run *run, struct symm_message *m)
{
    symm_team *team = run->team;
    const int first = __atomic_load_n(&team->ring_turn, __ATOMIC_RELAXED);
    symm_status status = SYMM_OK;

    for (int i = 1; i <= team->size && m->state == SYMM_MESSAGE_WAITS; i++) {
        int peer = (first + i) % team->size;

        if (!run->named[peer])
            status = receive_from(run, m, peer);
        if (status != SYMM_OK)
            return status;
    }
    if (m->state == SYMM_MESSAGE_MOVES)
        __atomic_store_n(&team->ring_turn, m->peer, __ATOMIC_RELAXED);
    return SYMM_OK;
}

static symm_status receive_some(struct run *run, struct symm_message *m, bool *moved)
{
    symm_team *team = run->team;
    struct symm_ring *ring;
    uint64_t emptied;
    size_t used = 0, bytes;
    symm_status status = SYMM_OK;

    if (m->state == SYMM_MESSAGE_WAITS) {
        status = m->from_any ? receive_any(run, m) : receive_from(run, m, m->peer);
        if (status != SYMM_OK || m->state == SYMM_MESSAGE_WAITS)
            return status;
        *moved = true;
    }
    ring = ring_of(team, team->rank, m->peer);
    emptied = __atomic_load_n(&ring->emptied, __ATOMIC_RELAXED);
    status = ring_waiting(team, m->peer, &used);
    if (status != SYMM_OK)
        return status;
    bytes = portion(team, m, used);
    if (bytes > 0) {
        copy_out(ring, ring_capacity(team), emptied, m->ptr + m->done, bytes);
        m->done += bytes;
        /* release: pairs with the acquire in send_some: these bytes may be overwritten */
        __atomic_store_n(&ring->emptied, emptied + round_up(bytes), __ATOMIC_RELEASE);
        *moved = true;
    }
    if (*moved)
        wake(team, m->peer);
    finish(team, m);
    return SYMM_OK;
}

/* ---- All messages of a call ------------------------------------------------------- */

/* Moves what can be moved. *left: messages that are not done. */
static symm_status advance(struct run *run, bool *moved, int *left)
{
    /* By direction: whether an earlier message with this peer, or from any rank, is not done. */
    bool held[2] = {false, false};
    int peer = SYMM_ANY_PEER;

    *moved = false;
    *left = 0;
    if (run->any_busy)
        memset(run->busy, 0, sizeof(run->busy));
    run->any_busy = false;
    for (int i = 0; i < run->count; i++) {
        struct symm_message *m = &run->messages[i];
        symm_status status = SYMM_OK;
        bool some = false;

        if (m->state == SYMM_MESSAGE_DONE)
            continue;
        if (!m->from_any && m->peer != peer) {
            peer = m->peer;
            held[0] = held[1] = false;
        }
        if (m->state == SYMM_MESSAGE_MOVES || !held[m->receives])
            status =
                m->receives ? receive_some(run, m, &some) : send_some(run, m, &some);
        if (status != SYMM_OK)
            return status;
        *moved |= some;
        *left += m->state != SYMM_MESSAGE_DONE;
        if (m->state == SYMM_MESSAGE_WAITS ||
            (m->state == SYMM_MESSAGE_MOVES && !m->from_any))
            held[m->receives] = true;
    }
    return SYMM_OK;
}

/* A member that a message waits for and that has ended; -1: none. */
struct ended {
    int member;
    symm_status status;
    const char *why;
};

/* Has this member died or, if `finalized_too`, finalized? Not if in the last poll another thread
 * of this rank had the end: the message may lie behind that thread's. */
static struct ended member_ended(const struct run *run, bool receives, int member,
                                 bool finalized_too)
{
    const symm_ctx *ctx = run->team->ctx;
    const int rank = run->team->world_rank[member];
    struct ended ended = {.member = -1};

    if (run->busy[receives][member])
        return ended;
    ended.status =
        (finalized_too ? symm__rank_check : symm__rank_died)(ctx, rank, &ended.why);
    if (ended.status != SYMM_OK)
        ended.member = member;
    return ended;
}

/* A receive from any rank can go on without one that has finalized, if another is there. */
static struct ended any_ended(const struct run *run)
{
    const symm_team *team = run->team;
    struct ended ended = {.member = -1};
    bool left = false;

    for (int m = 0; m < team->size && ended.member < 0; m++) {
        if (m == team->rank)
            continue;
        left |= member_ended(run, true, m, true).member < 0;
        ended = member_ended(run, true, m, false);
    }
    for (int m = 0; m < team->size && ended.member < 0 && !left; m++)
        if (m != team->rank)
            ended = member_ended(run, true, m, true);
    return ended;
}

static struct ended find_ended(const struct run *run)
{
    const symm_team *team = run->team;
    struct ended ended = {.member = -1}, death;

    for (int i = 0; i < run->count && ended.member < 0; i++) {
        const struct symm_message *m = &run->messages[i];

        if (m->state == SYMM_MESSAGE_DONE || m->peer == team->rank)
            continue;
        ended = m->peer == SYMM_ANY_PEER
                    ? any_ended(run)
                    : member_ended(run, m->receives, m->peer, true);
    }
    if (ended.member < 0 ||
        !symm__rank_finished(team->ctx, team->world_rank[ended.member]))
        return ended;
    /* The member may have finalized because another rank died. */
    death.status = symm__team_death(team, &death.member, &death.why);
    return death.status == SYMM_OK ? ended : death;
}

/* "symm_recv of rank 0 at site 'x': 16 of 64 bytes have come from rank 1" */
static void describe(const struct run *run, char *text, size_t bytes)
{
    const symm_team *team = run->team;
    const struct symm_message *first = NULL;
    char where[SYMM_SITE_STREAM_BYTES];
    int others = -1;
    size_t used;

    for (int i = 0; i < run->count; i++) {
        if (run->messages[i].state == SYMM_MESSAGE_DONE)
            continue;
        first = first ? first : &run->messages[i];
        others++;
    }
    used = (size_t)snprintf(
        text, bytes, "%s of rank %d at %s: ", run->what, team->ctx->rank,
        symm__site_stream_text(run->site, run->stream, where, sizeof(where)));
    if (first->peer == SYMM_ANY_PEER)
        used += (size_t)snprintf(text + used, bytes - used,
                                 "no rank has sent to rank %d", team->ctx->rank);
    else
        used += (size_t)snprintf(
            text + used, bytes - used, "rank %d has %s %zu of %zu bytes",
            team->world_rank[first->peer], first->receives ? "sent" : "made room for",
            first->done, first->bytes);
    if (others > 0)
        snprintf(text + used, bytes - used, ", and %d more operations wait", others);
}

/* Polls peers and records after nothing has moved for a while. *moved: now something has. */
static symm_status slow_look(struct run *run, bool expired, bool *moved)
{
    symm_team *team = run->team;
    struct ended ended = find_ended(run);
    const int member = ended.member;
    symm_status status = symm__team_poll(team);
    char text[320], earlier[SYMM_EARLIER_TEXT_BYTES];
    int left;

    if (status != SYMM_OK || (member < 0 && !expired))
        return status;
    /* What a peer sent before it ended, or at the last moment, counts. */
    status = advance(run, moved, &left);
    if (status != SYMM_OK || *moved || left == 0)
        return status;
    /* Only a member that had ended before that poll, in which no other thread had its end. */
    if (member >= 0)
        ended = find_ended(run);
    if (ended.member != member)
        ended.member = -1;
    if (ended.member < 0 && !expired)
        return SYMM_OK;
    describe(run, text, sizeof(text));
    if (ended.member >= 0)
        return symm__team_fail(
            team, ended.status, "%s, and rank %d %s%s", text,
            team->world_rank[ended.member], ended.why,
            symm__earlier_text(team->ctx, team->world_rank[ended.member], earlier));
    return symm__team_fail(team, SYMM_ERR_TIMEOUT,
                           "%s, and nothing has moved for %g s; sends and receives "
                           "must match, ranks that both send first need "
                           "symm_p2p_batch, a slow peer needs a longer timeout "
                           "(SYMM_TIMEOUT)",
                           text, run->timeout);
}

/* Shows tools which members hold up messages; any: those of a receive from any rank. */
static void show_tools(const struct run *run, struct symm_control_wait *wait)
{
    const symm_team *team = run->team;
    bool awaited[SYMM_MAX_LOCAL_RANKS] = {false};
    int ranks[SYMM_MAX_LOCAL_RANKS], count = 0;

    for (int i = 0; i < run->count; i++) {
        const struct symm_message *m = &run->messages[i];

        if (m->state == SYMM_MESSAGE_DONE)
            continue;
        for (int p = 0; p < team->size; p++)
            if (p != team->rank && (p == m->peer || m->peer == SYMM_ANY_PEER))
                awaited[p] = true;
    }
    for (int p = 0; p < team->size; p++)
        if (awaited[p])
            ranks[count++] = team->world_rank[p];
    symm__control_wait_for(wait, ranks, count);
}

bool symm__ring_usable(const symm_team *team)
{
    return !team->device_ops && !team->hierarchy;
}

/* A call's wait: `slow` after too many polls in a row that have moved nothing. */
struct ring_wait {
    struct symm_backoff back_off;
    struct symm_control_wait shown;
    uint32_t polls;
    bool slow; /* the wait's clock runs */
};

static void wait_restart(struct ring_wait *wait)
{
    wait->polls = 0;
    wait->slow = false;
    symm__back_off_end(&wait->back_off);
}

/* After a poll that has moved nothing; seen: the word `rung` before it. *moved: now something has. */
static symm_status wait_on(const struct symm_ring_call *call, struct run *run,
                           struct ring_wait *wait, uint64_t seen, bool *moved)
{
    const symm_team *team = run->team;
    struct symm_backoff *back_off = &wait->back_off;

    if (wait->polls < team->ctx->spin) {
        wait->polls++;
        symm_device_pause();
        return SYMM_OK;
    }
    if (!wait->slow) {
        back_off->begin = symm__now(), back_off->elapsed = 0, back_off->turns = 0;
        symm__control_wait_end(&wait->shown);
        wait->shown = symm__control_wait(team->ctx, team->uid,
                                         call->what + strlen("symm_"), call->site);
        wait->shown.what.channel = SYMM_SIGHT_PAIRS;
        wait->shown.step = call->step;
    }
    wait->slow = true;
    if (!symm__back_off(back_off, seen))
        return SYMM_OK;
    show_tools(run, &wait->shown);
    return slow_look(run, back_off->elapsed >= call->timeout, moved);
}

symm_status symm__ring_run(const struct symm_ring_call *call)
{
    symm_team *team = call->team;
    struct symm_message *messages = call->messages;
    struct symm_pad *pad = team->pad[team->rank];
    struct run run = {.team = team,
                      .messages = messages,
                      .count = call->count,
                      .timeout = call->timeout,
                      .what = call->what,
                      .site = call->site,
                      .stream = call->stream};
    struct ring_wait wait = {.back_off = {.word = &pad->rung,
                                          .wake = &pad->wake[WAKES],
                                          .timeout = call->timeout,
                                          .polls = true}};
    symm_status status = symm__team_failed(team);

    for (int i = 0; i < call->count; i++)
        if (messages[i].receives && !messages[i].from_any)
            run.named[messages[i].peer] = true;
    while (status == SYMM_OK) {
        const uint64_t seen = symm_device_word_load(&pad->rung); /* before the poll */
        bool moved;
        int left;

        status = advance(&run, &moved, &left);
        if (status != SYMM_OK || left == 0)
            break;
        if (!moved)
            status = wait_on(call, &run, &wait, seen, &moved);
        if (moved)
            wait_restart(&wait);
    }
    symm__back_off_end(&wait.back_off);
    symm__control_wait_end(&wait.shown);
    return status;
}
