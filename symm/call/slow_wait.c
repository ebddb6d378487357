/* SPDX-License-Identifier: MIT */
/*
 * slow_wait.c - the part of a wait after its first polls.
 *
 * The waiter yields its core, then sleeps on the awaited word in slices. In between it polls
 * every peer: whether it has arrived, is at another call site, has reported a failure, is alive,
 * or waits for this rank in another team. Every wait ends: by the word, by a diagnosis, or at the
 * deadline. The first rank that finds the cause writes a record into its control page; the others
 * find the record there and fail with the same status.
 *
 * The waker makes a system call only if the pad counts sleepers. The count is a hint: the waker's
 * load of it is not ordered with its store of the word, so a wake can be missed. The slice then
 * ends the sleep, which is cheaper than a full fence in every call.
 */
#include "call/slow_wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/control_wait.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "core/team.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define YIELD_SECONDS   0.002 /* before the first sleep */
#define SLICE_SECONDS   0.001 /* the longest sleep: bounds a missed wake */
#define CROSSED_SECONDS 0.005 /* before a wait is shown to ranks in other teams */
#define TURNS_A_SCAN    16    /* yields between two polls of all peers */
#define NEWS_SECONDS                                                                   \
    0.1 /* for news of a death elsewhere, because of which a rank has left */

/* One wait whose word has not arrived yet. */
struct slow_wait {
    symm_team *team;
    const struct symm_args *args; /* NULL: a one-sided signal */
    struct symm_state *state;     /* NULL: a one-sided signal */
    struct symm_backoff wait;     /* for its word */
    int signal; /* of a one-sided wait, with its site's name and its stream */
    const char *site;
    const void *stream;
    bool shown;  /* the control page's `waiting` is set */
    double left; /* when a member was first seen to have finalized; 0: none was */
    struct symm_control_wait seen; /* as tools see it */
};

/* The half of the word that holds the epoch, on which futexes sleep. */
static uint32_t *epoch_half(uint64_t *word)
{
    return (uint32_t *)(void *)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void symm__wait_wake(uint64_t *word)
{
    syscall(SYS_futex, epoch_half(word), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void symm__slow_wake(struct symm_state *state, struct symm_slot *own)
{
    (void)state;
    symm__wait_wake(&own->word);
}

static void sleep_on(const struct symm_backoff *wait, uint64_t seen, double seconds)
{
    struct timespec span = symm__timespec(seconds);

    __atomic_fetch_add(&wait->wake->sleepers, 1, __ATOMIC_SEQ_CST);
    if (symm_device_word_load(wait->word) == seen)
        syscall(SYS_futex, epoch_half(wait->word), FUTEX_WAIT, (uint32_t)seen, &span,
                NULL, 0);
    __atomic_fetch_sub(&wait->wake->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* " on stream 0x55d0c8a0, channel 2"; "" on the default stream, whose calls return their errors
 * themselves. */
static const char *where_text(const struct slow_wait *slow, char *text, size_t bytes)
{
    const struct symm_team_channel *channel = slow->state ? slow->state->owner : NULL;

    text[0] = '\0';
    if (channel && channel->index > 0)
        snprintf(text, bytes, " on stream %p, channel %d", channel->stream,
                 channel->index + 1);
    return text;
}

/* ---- What a rank is doing, in words ------------------------------------------------- */

static symm_status report_mismatch(const struct slow_wait *slow, int member)
{
    symm_team *team = slow->team;
    struct symm_state *state = slow->state;
    const struct symm_slot *slot = &state->slots[member][state->epoch & 1];
    char mine[SYMM_SITE_TEXT_BYTES], theirs[SYMM_SITE_TEXT_BYTES], where[64];
    struct symm_site site;

    symm__site_copy(&slot->site, &site);
    return symm__team_mismatch(
        team,
        &(struct symm_call_at){
            team->world_rank[member], &site,
            symm__site_text(&site, state->epoch, theirs, sizeof(theirs)), ""},
        &(struct symm_call_at){
            team->ctx->rank, &slow->args->site,
            symm__site_text(&slow->args->site, state->epoch, mine, sizeof(mine)),
            where_text(slow, where, sizeof(where))});
}

/* Fails the wait because a member has ended, so that the awaited one does not arrive. */
static symm_status report_dead(const struct slow_wait *slow, int member, int awaited,
                               symm_status status, const char *why)
{
    symm_team *team = slow->team;
    char mine[SYMM_SITE_TEXT_BYTES], at[64], name[64], what[40] = "it";
    char earlier[SYMM_EARLIER_TEXT_BYTES];

    if (!slow->state)
        snprintf(what, sizeof(what), "its signal %d", slow->signal);
    if (member != awaited && slow->state)
        snprintf(what, sizeof(what), "rank %d", team->world_rank[awaited]);
    else if (member != awaited)
        snprintf(what, sizeof(what), "rank %d's signal %d", team->world_rank[awaited],
                 slow->signal);
    if (slow->state)
        symm__site_text(&slow->args->site, slow->state->epoch, mine, sizeof(mine));
    else
        symm__site_stream_text(slow->site, slow->stream, mine, sizeof(mine));
    return symm__team_fail(
        team, status, "rank %d %s while rank %d waited for %s at %s%s of %s%s",
        team->world_rank[member], why, team->ctx->rank, what, mine,
        where_text(slow, at, sizeof(at)), symm__team_name(team, name, sizeof(name)),
        symm__earlier_text(team->ctx, team->world_rank[member], earlier));
}

/* Fails the wait because a member has finalized. It may have finalized because another one died:
 * then that one is named. Its death is visible here, since the member had finalized before this
 * poll. */
static symm_status report_left(const struct slow_wait *slow, int member,
                               symm_status status, const char *why)
{
    const char *how;
    int dead = -1;
    symm_status death = symm__team_death(slow->team, &dead, &how);

    return death == SYMM_OK ? report_dead(slow, member, member, status, why)
                            : report_dead(slow, dead, member, death, how);
}

/* ---- One poll of all peers ---------------------------------------------------------- */

static bool has_arrived(const struct slow_wait *slow, int member, uint64_t *value)
{
    const struct symm_state *state = slow->state;

    *value = symm_device_word_load(&state->slots[member][state->epoch & 1].word);
    return *value == symm_device_word(slow->args->site.tag, state->epoch);
}

/* Checks a peer that has not arrived: is it at another site, failed, dead? One that has finalized
 * counts only if `finished`. */
static symm_status look_at(const struct slow_wait *slow, int member, bool finished)
{
    symm_team *team = slow->team;
    int rank = team->world_rank[member];
    const char *why;
    symm_status status;
    uint64_t value;

    if (has_arrived(slow, member, &value))
        return SYMM_OK;
    if ((uint32_t)value == slow->state->epoch && value >> 32 != 0)
        return report_mismatch(slow, member);
    status = symm__team_record_of(team, member);
    if (status != SYMM_OK)
        return status;
    status = (finished ? symm__rank_check : symm__rank_died)(team->ctx, rank, &why);
    /* The peer may have arrived, or recorded a failure, before it ended. */
    if (status == SYMM_OK || has_arrived(slow, member, &value))
        return SYMM_OK;
    if (symm__team_record_of(team, member) != SYMM_OK)
        return symm__team_failed(team);
    if (symm__rank_finished(team->ctx, rank))
        return report_left(slow, member, status, why);
    return report_dead(slow, member, member, status, why);
}

/* Finds two ranks that each block on the default stream in a team of both, whose call the other
 * has not made: neither can ever go on. */
static symm_status look_for_crossing(const struct slow_wait *slow, int member)
{
    symm_team *team = slow->team, *other = NULL;
    symm_ctx *ctx = team->ctx;
    int rank = team->world_rank[member];
    /* acquire: pairs with the release in show; only the value itself is used */
    uint64_t theirs =
        __atomic_load_n(&symm__near_control(ctx, rank)->waiting, __ATOMIC_ACQUIRE);
    char name[64], other_name[64], mine[SYMM_SITE_TEXT_BYTES];
    uint64_t value;

    if (theirs == 0 || (uint32_t)(theirs >> 32) == team->uid)
        return SYMM_OK;
    /* A peer that has arrived and gone on to its next call does not hold this rank up. */
    if (has_arrived(slow, member, &value) || pthread_mutex_trylock(&ctx->lock) != 0)
        return SYMM_OK;
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        if (ctx->teams[s] && ctx->teams[s]->uid == (uint32_t)(theirs >> 32))
            other = ctx->teams[s];
    if (!other ||
        symm_device_epoch_reached(other->channel[0].state.epoch, (uint32_t)theirs)) {
        pthread_mutex_unlock(&ctx->lock);
        return SYMM_OK;
    }
    symm__team_fail(
        other, SYMM_ERR_MISMATCH,
        "rank %d waits for rank %d in %s, which waits in %s at %s: all ranks "
        "must make their calls on the default stream in the same order",
        rank, ctx->rank, symm__team_name(other, other_name, sizeof(other_name)),
        symm__team_name(team, name, sizeof(name)),
        symm__site_text(&slow->args->site, slow->state->epoch, mine, sizeof(mine)));
    symm__team_fail(team, SYMM_ERR_MISMATCH, "%s", other->failure);
    /* only now: the lock keeps the other team alive */
    pthread_mutex_unlock(&ctx->lock);
    return symm__team_failed(team);
}

/* A peer that has finalized and had not arrived; -1: none. */
static int find_finished(const struct slow_wait *slow)
{
    const symm_team *team = slow->team;
    uint64_t value;

    for (int m = 0; m < team->size; m++)
        if (m != slow->state->rank && !has_arrived(slow, m, &value) &&
            symm__rank_finished(team->ctx, team->world_rank[m]))
            return m;
    return -1;
}

/* The rank has finalized, perhaps because of a death on another host, of which the relays' news may
 * come later than what is seen in memory. */
static bool may_be_told(struct slow_wait *slow)
{
    if (!slow->team->outer)
        return false;
    if (slow->left == 0)
        slow->left = symm__now();
    return symm__now() - slow->left < NEWS_SECONDS;
}

static symm_status look_at_all(struct slow_wait *slow)
{
    /* Before the poll of all others: if that peer finalized because another rank died, the poll
     * finds the death. */
    const int finished = find_finished(slow);

    /* Other hosts report a failure of the outer team, with which this local team fails too. */
    if (slow->team->outer)
        (void)symm__far_poll(slow->team->outer);
    if (__atomic_load_n(&slow->team->failed, __ATOMIC_ACQUIRE) != SYMM_OK)
        return symm__team_failed(slow->team); /* or by another stream's call */
    for (int m = 0; m < slow->team->size; m++) {
        symm_status status = SYMM_OK;

        if (m == slow->state->rank)
            continue;
        status = look_at(slow, m, false);
        if (status == SYMM_OK && slow->shown)
            status = look_for_crossing(slow, m);
        if (status != SYMM_OK)
            return status;
    }
    return finished < 0 || may_be_told(slow) ? SYMM_OK : look_at(slow, finished, true);
}

/* ---- Deadline ------------------------------------------------------------------------ */

/* World ranks of the members that have not arrived; *one: the last of them, a member. */
static int find_missing(const struct slow_wait *slow, int missing[SYMM_MAX_LOCAL_RANKS],
                        int *one)
{
    int count = 0;
    uint64_t value;

    for (int m = 0; m < slow->team->size; m++) {
        if (m == slow->state->rank || has_arrived(slow, m, &value))
            continue;
        *one = m;
        missing[count++] = slow->team->world_rank[m];
    }
    return count;
}

/* "rank 2 and rank 5": the members that have not arrived. Returns their number. */
static int list_missing(const struct slow_wait *slow, char *text, size_t bytes,
                        int *one)
{
    int missing[SYMM_MAX_LOCAL_RANKS];
    const int count = find_missing(slow, missing, one);

    symm__ranks_text(missing, count, text, bytes);
    return count;
}

static symm_status report_timeout(const struct slow_wait *slow)
{
    symm_team *team = slow->team;
    const struct symm_state *state = slow->state;
    char missing[96], mine[SYMM_SITE_TEXT_BYTES], at[64],
        own[96] = "", last[SYMM_SITE_TEXT_BYTES], where[SYMM_LATE_TEXT_BYTES];
    struct symm_site site = {0};
    uint32_t before = state->epoch - 1;
    uint64_t value;
    int one = state->rank;
    bool other;

    if (list_missing(slow, missing, sizeof(missing), &one) == 0)
        return SYMM_OK; /* it arrived at the last moment */
    value = symm_device_word_load(&state->slots[one][before & 1].word);
    if ((uint32_t)value == before && value >> 32 != 0)
        symm__site_copy(&state->slots[one][before & 1].site, &site);
    (void)symm__site_text(&site, before, last, sizeof(last));
    (void)symm__team_late_text(team, team->world_rank[one], site.tag ? last : NULL,
                               &other, where, sizeof(where));
    if (where_text(slow, at, sizeof(at))[0])
        snprintf(own, sizeof(own), "rank %d waits%s; ", team->ctx->rank, at);
    return symm__team_fail(
        team, SYMM_ERR_TIMEOUT, "%s did not arrive at %s within %g s; %s%s%s", missing,
        symm__site_text(&slow->args->site, state->epoch, mine, sizeof(mine)),
        slow->wait.timeout, own, where, symm__late_advice(other));
}

/* ---- The wait ------------------------------------------------------------------------- */

/* Shows where this rank waits, for ranks that wait for it elsewhere. */
static void show(struct slow_wait *slow)
{
    struct symm_ctx *ctx = slow->team->ctx;
    const struct symm_team_channel *channel = slow->state->owner;

    if (channel->index != 0 || slow->shown)
        return;
    __atomic_store_n(&symm__own_control(ctx)->waiting,
                     (uint64_t)slow->team->uid << 32 | slow->state->epoch,
                     __ATOMIC_RELEASE);
    slow->shown = true;
}

static void show_tools(struct slow_wait *slow)
{
    const struct symm_site *site = &slow->args->site;
    const struct symm_team_channel *channel = slow->state->owner;
    int missing[SYMM_MAX_LOCAL_RANKS], one;

    if (!slow->seen.shown)
        slow->seen = (struct symm_control_wait){
            .sight = slow->team->ctx->sight,
            .what = {.op = symm__kind_name((enum symm_kind)site->kind),
                     .name = site->name,
                     .team_uid = slow->team->uid,
                     .channel = (uint32_t)channel->index,
                     .bytes = slow->args->bytes,
                     .since = slow->wait.begin,
                     .from = channel->shown},
            .step = slow->state->epoch};
    symm__control_wait_for(&slow->seen, missing, find_missing(slow, missing, &one));
}

static void show_tools_signal(struct slow_wait *slow, int peer, uint32_t count)
{
    if (!slow->seen.shown)
        slow->seen = (struct symm_control_wait){.sight = slow->team->ctx->sight,
                                                .what = {.op = "signal_wait",
                                                         .name = slow->site,
                                                         .team_uid = slow->team->uid,
                                                         .channel = SYMM_SIGHT_PAIRS,
                                                         .since = slow->wait.begin},
                                                .step = count};
    symm__control_wait_for(&slow->seen, &slow->team->world_rank[peer], 1);
}

static void unshow(const struct slow_wait *slow)
{
    struct symm_ctx *ctx = slow->team->ctx;

    if (slow->shown)
        __atomic_store_n(&symm__own_control(ctx)->waiting, 0, __ATOMIC_RELEASE);
}

bool symm__back_off(struct symm_backoff *wait, uint64_t seen)
{
    if (wait->turns++ % TURNS_A_SCAN != 0 && wait->elapsed < YIELD_SECONDS) {
        sched_yield();
        return false;
    }
    wait->elapsed = symm__now() - wait->begin;
    if (wait->elapsed >= YIELD_SECONDS && wait->polls && !wait->counted) {
        __atomic_fetch_add(&wait->wake->sleepers, 1, __ATOMIC_SEQ_CST);
        wait->counted = true;
    } else if (wait->elapsed >= YIELD_SECONDS) {
        double left = wait->timeout - wait->elapsed;

        if (left > 0)
            sleep_on(wait, seen, left < SLICE_SECONDS ? left : SLICE_SECONDS);
        wait->elapsed = symm__now() - wait->begin;
    }
    return true;
}

void symm__back_off_end(struct symm_backoff *wait)
{
    if (wait->counted)
        __atomic_fetch_sub(&wait->wake->sleepers, 1, __ATOMIC_SEQ_CST);
    wait->counted = false;
}

/* A call that fails cancels its arrival, so that a rank that arrives later does not take the word
 * for agreement, but finds the record. A rank that has seen the word before still succeeds (one
 * round) or fails at the call's next round. */
static void cancel_arrival(struct symm_state *state)
{
    struct symm_slot *own = &state->slots[state->rank][state->epoch & 1];

    /* release: the record is visible to a rank that sees the cancelled arrival */
    symm_device_word_store(&own->word, symm_device_word(0, state->epoch));
}

symm_status symm__slow_wait(struct symm_state *state, const struct symm_args *args,
                            int peer)
{
    struct symm_team_channel *channel = state->owner;
    const uint64_t expected = symm_device_word(args->site.tag, state->epoch);
    struct slow_wait slow = {
        .team = channel->team,
        .args = args,
        .state = state,
        .wait = {.word = &state->slots[peer][state->epoch & 1].word,
                 .wake = &channel->team->pad[peer]->wake[channel->index],
                 .timeout = channel->timeout}};
    symm_status status = SYMM_OK;
    uint64_t seen;

    /* One deadline for all rounds and waits of a call, however many peers are late. */
    if (!channel->waits_slowly)
        channel->slow_since = symm__now();
    channel->waits_slowly = true;
    slow.wait.begin = channel->slow_since;
    while ((seen = symm_device_word_load(slow.wait.word)) != expected) {
        if (!symm__back_off(&slow.wait, seen))
            continue;
        if (slow.wait.elapsed >= CROSSED_SECONDS) {
            show(&slow);
            show_tools(&slow);
        }
        status = look_at_all(&slow);
        if (status == SYMM_OK && slow.wait.elapsed >= slow.wait.timeout)
            status = report_timeout(&slow);
        if (status != SYMM_OK)
            break;
    }
    unshow(&slow);
    if (slow.seen.shown) {
        symm__control_wait_end(&slow.seen);
        channel->shown = symm__now();
    }
    if (status != SYMM_OK)
        cancel_arrival(state);
    return status;
}

/* ---- One-sided signals ----------------------------------------------------------------- */

/* Whether the team has failed, or the rank that raises the signal is dead. The signal's word is
 * read last: a signal that was raised before the failure still counts. */
static symm_status signal_look(const struct slow_wait *slow, int peer, uint32_t count)
{
    symm_team *team = slow->team;
    int rank = team->world_rank[peer];
    const char *why = NULL;
    /* If a third rank has recorded a failure, the rank that raises the signal may have failed with
     * it, and will not raise the signal. */
    symm_status status = symm__team_poll(team);

    /* a wait for this rank's own signal needs no check */
    if (status == SYMM_OK && peer != team->rank)
        status = symm__rank_check(team->ctx, rank, &why);
    if (status == SYMM_OK ||
        symm_device_epoch_reached((uint32_t)symm_device_word_load(slow->wait.word),
                                  count))
        return SYMM_OK;
    /* The peer may have recorded a failure before it ended. */
    if (!why || symm__team_record_of(team, peer) != SYMM_OK)
        return symm__team_failed(team);
    if (symm__rank_finished(team->ctx, rank))
        return report_left(slow, peer, status, why);
    return report_dead(slow, peer, peer, status, why);
}

static symm_status signal_check(const struct slow_wait *slow, int peer, uint64_t seen,
                                uint32_t count, uint32_t tag)
{
    symm_team *team = slow->team;
    char where[SYMM_SITE_STREAM_BYTES];
    uint32_t theirs = (uint32_t)(seen >> 32);

    if ((uint32_t)seen != count || theirs == 0 || tag == 0 || theirs == tag)
        return SYMM_OK;
    return symm__team_fail(
        team, SYMM_ERR_MISMATCH,
        "signal %d number %u of rank %d was raised at another site than that where "
        "rank %d waits for it, %s",
        slow->signal, count, team->world_rank[peer], team->ctx->rank,
        symm__site_stream_text(slow->site, slow->stream, where, sizeof(where)));
}

symm_status symm__wait_signal(symm_team *team, int peer, int signal, uint32_t count,
                              uint32_t tag, const char *site, const void *stream,
                              double timeout)
{
    struct symm_pad *pad = team->pad[team->local_rank];
    struct slow_wait slow = {
        .team = team,
        .wait = {.word = &pad->signals[symm__team_place(team, peer)][signal],
                 .wake = &pad->wake[SYMM_HOST_CHANNELS],
                 .timeout = timeout},
        .signal = signal,
        .site = site,
        .stream = stream};
    uint64_t seen = 0;
    char where[SYMM_SITE_STREAM_BYTES];
    symm_status status = SYMM_OK;

    /* acquire: pairs with the release in the sender's signal: what it put is visible */
    for (uint32_t polls = 0; polls < team->ctx->spin; polls++) {
        seen = symm_device_word_load(slow.wait.word);
        if (symm_device_epoch_reached((uint32_t)seen, count))
            return signal_check(&slow, peer, seen, count, tag);
        symm_device_pause();
    }
    slow.wait.begin = symm__now();
    while (!symm_device_epoch_reached(
        (uint32_t)(seen = symm_device_word_load(slow.wait.word)), count)) {
        if (!symm__back_off(&slow.wait, seen))
            continue;
        if (slow.wait.elapsed >= CROSSED_SECONDS)
            show_tools_signal(&slow, peer, count);
        status = signal_look(&slow, peer, count);
        if (status == SYMM_OK && slow.wait.elapsed >= timeout &&
            !symm_device_epoch_reached((uint32_t)symm_device_word_load(slow.wait.word),
                                       count))
            status = symm__team_fail(
                team, SYMM_ERR_TIMEOUT,
                "rank %d did not raise signal %d for the %u-th "
                "time within %g s (it has "
                "raised it %u times); rank %d waits at %s",
                team->world_rank[peer], signal, count, timeout, (uint32_t)seen,
                team->ctx->rank,
                symm__site_stream_text(site, stream, where, sizeof(where)));
        if (status != SYMM_OK)
            break;
    }
    symm__control_wait_end(&slow.seen);
    if (status != SYMM_OK)
        return status;
    return signal_check(&slow, peer, seen, count, tag);
}
