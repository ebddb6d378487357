/* SPDX-License-Identifier: MIT */
/*
 * budget.c - see budget.h.
 *
 * A rank may clear a claim that a member is about to use. The member marks its progress word
 * (channel.c), then reads the claim; the rank clears the claim, then reads the progress words.
 * Both are sequentially consistent: the member finds no claim, or the rank finds the mark and
 * restores the claim.
 *
 * A captured call has the number of the channel's next call outside of captures, and is not
 * counted: a rank may capture a call more often than others, for instance after a capture that
 * failed. So a number can be decided whose graphs have ended and whose claim is gone. No call has
 * that grant then: who comes next decides the number again.
 */
#include "cuda/budget.h"

#include <sched.h>
#include <string.h>

#include "core/slots.h"
#include "cuda/channel_table.h"
#include "util/clock.h"

#define NUMBER 0xffffffu  /* the numbers of calls have 24 bits */
#define CALLS_MOST (1u << 22) /* more calls than any queue holds */
#define GRANT_MOST 254u       /* blocks; a word has 8 bits for them */
#define CUT        0x8000u /* bit of a claim: larger than its share, and others need room */
#define LOOK       16u     /* one call in so many of a cut grid looks for more room */
#define TURNS      400     /* of polling for a lock; the later ones yield */
/* How long a call sleeps for the lock after these turns. A holder that has lost its core is back
 * within a few slices of the scheduler; all ranks' next calls would have small grids otherwise. */
#define SLEEP_SECONDS 0.01
#define AGAIN_SECONDS 0.1 /* where there is nothing to go on with */
#define NAP_SECONDS   5e-5

/* A channel's word: calls up to `decided` have a grant. Calls before number `from` may have
 * `before` blocks, the others `now`. */
struct grant {
    uint32_t decided, from, before, now;
};

/* This rank's teams and their channels, while it searches for room. */
struct scene {
    const symm_team *team[SYMM_MAX_TEAMS]; /* by slot */
    bool idle[SYMM_MAX_TEAMS][SYMM_CHANNELS];
};

/* Room on one device for a channel. */
struct room {
    uint32_t limit;   /* blocks that a grant may have */
    uint32_t share;   /* blocks if all channels got equally many */
    uint32_t largest; /* claim of another channel */
};

static struct grant unpack(uint64_t word)
{
    return (struct grant){(uint32_t)(word >> 40), (uint32_t)(word >> 16) & NUMBER,
                          (uint32_t)(word >> 8) & 0xff, (uint32_t)word & 0xff};
}

static uint64_t pack(struct grant grant)
{
    return (uint64_t)grant.decided << 40 | (uint64_t)grant.from << 16 |
           (uint64_t)grant.before << 8 | grant.now;
}

/* Numbers of calls wrap. */
static bool is_before(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) < 0;
}

/* The word after call `call` has got the grant `now`. */
static uint64_t with_decided(struct grant grant, uint32_t call)
{
    grant.decided = call;
    if (((call - grant.from) & NUMBER) > CALLS_MOST)
        grant.from = (call - CALLS_MOST) & NUMBER;
    return pack(grant);
}

static struct symm_budget *budget_of(const symm_team *team, int member)
{
    return &symm__near_control(team->ctx, symm__team_rank_at(team, member))->budget;
}

static uint64_t *word_of(const struct symm_team_channel *channel)
{
    return &budget_of(channel->team, 0)->word[channel->team->slot][channel->index];
}

static uint16_t *claim_of(const symm_team *team, int member, int channel)
{
    return &budget_of(team, member)->claim[team->slot][channel];
}

static uint32_t min_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t processors_of(const symm_team *team)
{
    return min_of((uint32_t)team->ctx->processors, GRANT_MOST);
}

/* Blocks of a call that asks for no grant. */
static uint32_t small_blocks(const symm_team *team)
{
    return max_of(processors_of(team) / 32, 1);
}

/* Sets the channel's claim on the devices of all members. */
static void claim_set(const symm_team *team, int channel, uint32_t blocks)
{
    /* A member's slot may have another team by now: then its claim is not this one's. */
    for (int m = 0; m < team->local_size; m++)
        if (__atomic_load_n(&budget_of(team, m)->uid[team->slot], __ATOMIC_ACQUIRE) ==
            team->uid)
            __atomic_store_n(claim_of(team, m, channel), (uint16_t)blocks,
                             __ATOMIC_SEQ_CST);
}

/* The word of the bit set of open slots in which this slot's bit is. */
static uint64_t *word_at(struct symm_budget *budget, int slot)
{
    return &budget->slots.word[slot / 64];
}

void symm__cuda_budget_open(symm_team *team)
{
    struct symm_budget *own = budget_of(team, team->local_rank);

    if (team->local_rank == 0) {
        memset(own->word[team->slot], 0, sizeof(own->word[0]));
        memset(own->boundary[team->slot], 0, sizeof(own->boundary[0]));
    }
    memset(own->asked[team->slot], 0, sizeof(own->asked[0]));
    memset(own->claim[team->slot], 0, sizeof(own->claim[0]));
    __atomic_store_n(&own->uid[team->slot], team->uid, __ATOMIC_RELEASE);
    __atomic_fetch_or(word_at(own, team->slot), UINT64_C(1) << (team->slot % 64),
                      __ATOMIC_RELEASE);
}

void symm__cuda_budget_close(symm_team *team)
{
    struct symm_budget *own = budget_of(team, team->local_rank);

    __atomic_fetch_and(word_at(own, team->slot), ~(UINT64_C(1) << (team->slot % 64)),
                       __ATOMIC_RELEASE);
    __atomic_store_n(&own->uid[team->slot], 0, __ATOMIC_RELEASE);
    for (int c = 0; c < SYMM_CHANNELS; c++)
        __atomic_store_n(claim_of(team, team->local_rank, c), 0, __ATOMIC_SEQ_CST);
}

/* ---- The lock ---------------------------------------------------------------------- */

static uint32_t *lock_of(const symm_ctx *ctx)
{
    return &ctx->control[0]->budget.lock; /* of the first rank on this host */
}

static bool lock_try(const symm_ctx *ctx, uint32_t *holder)
{
    *holder = 0;
    return __atomic_compare_exchange_n(lock_of(ctx), holder, (uint32_t)ctx->rank + 1,
                                       false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* False: other ranks have held the lock for all turns and, after them, for that time. */
static bool lock_acquire(const symm_ctx *ctx, double seconds)
{
    uint32_t holder;
    double end = 0;

    for (int turn = 1; !lock_try(ctx, &holder); turn++) {
        if (turn % 100 == 0)
            /* A dead holder leaves, at worst, claims that are too large, or cleared ones of a
             * team of its own, whose calls end with it. */
            symm__channel_lock_break(ctx, lock_of(ctx), holder);
        if (turn < TURNS) {
            if (turn > 50)
                sched_yield();
            continue;
        }
        if (turn == TURNS)
            end = symm__now() + seconds;
        if (symm__now() >= end)
            return false;
        symm__sleep(NAP_SECONDS);
    }
    return true;
}

static void lock_release(const symm_ctx *ctx)
{
    uint32_t mine = (uint32_t)ctx->rank + 1;

    __atomic_compare_exchange_n(lock_of(ctx), &mine, 0, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

/* ---- Claims of this rank's teams --------------------------------------------------- */

/* Releases blocks of its claim that the channel does not need any more. Returns: it is idle. With
 * the lock. */
static bool release_unneeded(symm_team *team, int channel)
{
    const struct symm_budget *first = budget_of(team, 0);
    const uint16_t *own = claim_of(team, team->local_rank, channel);
    const uint32_t claim = __atomic_load_n(own, __ATOMIC_SEQ_CST);
    const struct grant grant =
        unpack(__atomic_load_n(&first->word[team->slot][channel], __ATOMIC_RELAXED));
    const uint32_t boundary =
        __atomic_load_n(&first->boundary[team->slot][channel], __ATOMIC_RELAXED);

    if (symm__channel_is_idle(team, channel)) {
        if (claim == 0)
            return true;
        claim_set(team, channel, 0);
        if (symm__channel_is_idle(team, channel))
            return true;
        claim_set(team, channel, claim);
        return false;
    }
    if ((claim & ~CUT) > grant.now && !symm__channel_is_pinned(team, channel) &&
        symm__channel_has_reached(team, channel, boundary))
        claim_set(team, channel, grant.now | (claim & CUT));
    return false;
}

static void release_team(symm_team *team, struct scene *scene)
{
    scene->team[team->slot] = team;
    for (int c = 0; c < SYMM_CHANNELS; c++)
        scene->idle[team->slot][c] = release_unneeded(team, c);
}

/* Does so for all teams of this rank; for the given one alone if the list's lock is held for
 * long. */
static void release_all(symm_team *team, struct scene *scene)
{
    struct symm_cuda_launcher *launcher = team->ctx->launcher;
    bool locked = false;

    memset(scene, 0, sizeof(*scene));
    release_team(team, scene);
    for (int turn = 0; turn < TURNS && !locked; turn++) {
        locked = pthread_mutex_trylock(&launcher->lock) == 0;
        if (!locked)
            sched_yield();
    }
    if (!locked)
        return;
    for (struct symm_cuda_team *t = launcher->teams; t; t = t->next)
        if (t->team != team && !t->team->far && !t->team->inner)
            release_team(t->team, scene);
    pthread_mutex_unlock(&launcher->lock);
}

static bool has_member(const symm_team *team, int world_rank)
{
    return symm__team_place_of(team, world_rank) >= 0;
}

/* ---- Room -------------------------------------------------------------------------- */

/* Claims on a member's device. */
struct load {
    uint32_t all;     /* blocks of all claims */
    uint32_t largest; /* blocks of the largest one */
    uint32_t count;   /* claims */
    uint32_t small;   /* channels in use without a claim */
};

/* Adds the claims of the team in slot `s` on rank's device, except that of the channel itself. */
static void load_add(struct load *load, const struct symm_team_channel *channel,
                     const struct scene *scene, const struct symm_control *page,
                     int rank, int s)
{
    const bool known = scene->team[s] && has_member(scene->team[s], rank);

    for (int c = 0; c < SYMM_CHANNELS; c++) {
        uint32_t claim =
            __atomic_load_n(&page->budget.claim[s][c], __ATOMIC_SEQ_CST) & (CUT - 1);

        if (known && scene->team[s] == channel->team && c == channel->index)
            continue;
        if (claim > 0) {
            load->all += claim;
            load->largest = max_of(load->largest, claim);
            load->count++;
        } else if (__atomic_load_n(&page->progress[s][c], __ATOMIC_RELAXED) != 0 &&
                   !(known && scene->idle[s][c])) {
            load->small++;
        }
    }
}

/* What the other channels' claims leave on a member's device. */
static struct room room_on(const struct symm_team_channel *channel,
                           const struct scene *scene, int member)
{
    const symm_team *team = channel->team;
    const int rank = symm__team_rank_at(team, member);
    const struct symm_control *page = symm__near_control(team->ctx, rank);
    const uint32_t processors = processors_of(team), half = processors / 2;
    const struct symm_slots open = symm__slots_load(&page->budget.slots);
    struct load load = {0};
    uint32_t small, left;

    for (int w = 0; w < SYMM_SLOT_WORDS; w++)
        for (uint64_t slots = open.word[w]; slots != 0; slots &= slots - 1)
            load_add(&load, channel, scene, page, rank,
                     64 * w + __builtin_ctzll(slots));
    small = min_of(2 * load.small * small_blocks(team), processors / 4);
    if (load.all + small <= half)
        return (struct room){processors, processors, load.largest};
    left = half > load.all - load.largest + small
               ? half - (load.all - load.largest + small)
               : 0;
    return (struct room){
        max_of(min_of(left - (left + 3) / 4, load.largest), 1),
        max_of((half - small) / max_of(load.count, 1), 1),
        load.largest,
    };
}

/* Marks other channels' claims on a member's device that exceed `share`, except the largest:
 * their next call makes them smaller. */
static void cut_others(const struct symm_team_channel *channel, int member,
                       struct room room)
{
    const symm_team *team = channel->team;
    struct symm_budget *budget = budget_of(team, member);
    const struct symm_slots open = symm__slots_load(&budget->slots);

    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        for (int c = 0; symm__slots_has(&open, s) && c < SYMM_CHANNELS; c++) {
            uint16_t *at = &budget->claim[s][c];
            uint32_t claim = __atomic_load_n(at, __ATOMIC_RELAXED) & (CUT - 1);

            if (at != claim_of(team, member, channel->index) && claim > room.share &&
                claim < room.largest)
                __atomic_store_n(at, (uint16_t)(claim | CUT), __ATOMIC_SEQ_CST);
        }
}

/* ---- Grants ------------------------------------------------------------------------ */

/* May the word get a new grant? Not while a member has yet to read the grant that it replaces. */
static bool may_change(const struct symm_team_channel *channel, struct grant grant)
{
    const symm_team *team = channel->team;

    for (int m = 0; m < team->local_size; m++)
        if (is_before(
                __atomic_load_n(&budget_of(team, m)->asked[team->slot][channel->index],
                                __ATOMIC_ACQUIRE),
                (grant.from - 1) & NUMBER))
            return false;
    return true;
}

/* The blocks from the next call on, as the other channels' claims allow. held: blocks that the
 * channel may keep in any case. cut: its claim is marked CUT. With the lock. */
static uint32_t next_grant(struct symm_team_channel *channel, uint32_t wish,
                           uint32_t held, bool cut)
{
    symm_team *team = channel->team;
    const uint32_t processors = processors_of(team);
    struct room room = {processors, processors, 0}, at[SYMM_DEVICE_RANKS];
    struct scene scene;
    uint32_t next;

    release_all(team, &scene);
    for (int m = 0; m < team->local_size; m++) {
        at[m] = room_on(channel, &scene, m);
        room.limit = min_of(room.limit, at[m].limit);
        room.share = min_of(room.share, at[m].share);
    }
    if (room.limit == processors)
        return processors;
    next = max_of(room.limit, held);
    if (cut && !symm__channel_is_pinned(team, channel->index) && !channel->captured)
        next = min_of(next, room.share);
    for (int m = 0; m < team->local_size && next < wish; m++)
        if (next < at[m].share)
            cut_others(channel, m, at[m]);
    return next;
}

/* Are there claims of as many blocks on all devices? cut: one that is marked CUT does not count. */
static bool has_claims(const struct symm_team_channel *channel, uint32_t blocks,
                       bool cut)
{
    const symm_team *team = channel->team;

    for (int m = 0; m < team->local_size; m++) {
        uint32_t claim =
            __atomic_load_n(claim_of(team, m, channel->index), __ATOMIC_SEQ_CST);

        if ((claim & (CUT - 1)) < blocks || (cut && (claim & CUT)))
            return false;
    }
    return true;
}

/* Does the last grant suffice, and do the claims for it still exist on all devices? A channel that
 * shares the devices also looks now and then whether the others have ended: kernels of one that
 * does not share trigger their dependents early. */
static bool is_granted(const struct symm_team_channel *channel, struct grant grant,
                       uint32_t call, uint32_t wish)
{
    if (grant.now < wish ||
        (grant.now < processors_of(channel->team) && call % LOOK == 0))
        return false;
    return has_claims(channel, grant.now, true);
}

/* Decides call `call` for all members; this member is the first to reach it. */
static uint64_t decide(struct symm_team_channel *channel, uint32_t call, uint32_t wish)
{
    const symm_team *team = channel->team;
    uint64_t *at = word_of(channel);
    const bool locked = lock_acquire(team->ctx, SLEEP_SECONDS);
    uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE), made = 0;
    uint32_t claim = __atomic_load_n(claim_of(team, team->local_rank, channel->index),
                                     __ATOMIC_SEQ_CST);
    const struct grant grant = unpack(word);
    const uint32_t held = (claim & (CUT - 1)) >= grant.now ? grant.now : 0;
    uint32_t next = held > 0 ? held : 1;

    if (locked)
        next = next_grant(channel, wish, held, claim & CUT);
    if (next != grant.now && !may_change(channel, grant))
        next = grant.now;
    if (locked) {
        claim = __atomic_load_n(claim_of(team, team->local_rank, channel->index),
                                __ATOMIC_SEQ_CST);
        claim_set(team, channel->index, max_of(claim & (CUT - 1), next));
    }
    do {
        struct grant now = unpack(word);

        if (!is_before(now.decided, call))
            break;
        made = with_decided(now, call);
        if (next != now.now && now.now == grant.now && now.from == grant.from) {
            /* A member without the lock may come to this late, when a later call's boundary is there.
             * It changes the grant to one block, and only if no earlier call runs. */
            if (locked)
                __atomic_store_n(
                    &budget_of(team, 0)->boundary[team->slot][channel->index],
                    channel->sequence + 1, __ATOMIC_RELAXED);
            made = pack((struct grant){call, call, now.now, next});
        }
        if (__atomic_compare_exchange_n(at, &word, made, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            word = made;
    } while (word != made);
    if (locked)
        lock_release(team->ctx);
    return word;
}

/* The blocks that a decided call may have. */
static uint32_t blocks_of(struct grant grant, uint32_t call)
{
    return is_before(call, grant.from) ? grant.before : grant.now;
}

/* Is there a claim for the decided call? One block needs none: it may have been granted without
 * the lock. */
static bool is_claimed(const struct symm_team_channel *channel, struct grant grant,
                       uint32_t call)
{
    const uint32_t blocks = blocks_of(grant, call);

    return blocks <= 1 || has_claims(channel, blocks, false);
}

/* Decides call `call` again: it was decided by a captured call, whose graphs have ended on all
 * ranks, else the claim would be there. The word changes before the claim: a member that has read
 * the old word finds no claim, or reads the word again. Without the lock, whose holder is stopped
 * then, nothing changes, and the call has no claim. */
static void decide_again(struct symm_team_channel *channel, uint32_t call,
                         uint32_t wish)
{
    const symm_team *team = channel->team;
    uint64_t *at = word_of(channel), word;
    struct grant grant;
    uint32_t next;

    if (!lock_acquire(team->ctx, AGAIN_SECONDS))
        return;
    word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    grant = unpack(word);
    if (grant.decided == call && !is_claimed(channel, grant, call) &&
        (grant.from == call || may_change(channel, grant))) {
        next = next_grant(channel, wish, 0, false);
        __atomic_store_n(&budget_of(team, 0)->boundary[team->slot][channel->index],
                         channel->sequence + 1, __ATOMIC_RELAXED);
        grant = (struct grant){call, call,
                               grant.from == call ? grant.before : grant.now, next};
        if (__atomic_compare_exchange_n(at, &word, pack(grant), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_ACQUIRE))
            claim_set(team, channel->index, next);
    }
    lock_release(team->ctx);
}

/* Shows the other members which call this one has asked for. */
static void publish(const struct symm_team_channel *channel)
{
    const symm_team *team = channel->team;

    /* release: the grant was read before */
    __atomic_store_n(
        &budget_of(team, team->local_rank)->asked[team->slot][channel->index],
        channel->asked, __ATOMIC_RELEASE);
}

/* Does such a call need a grant? */
static bool asks(const symm_team *team, uint32_t wish)
{
    return !team->ctx->exclusive && !team->far && !team->inner &&
           wish > small_blocks(team);
}

/* The grant of a call that has been decided, by whichever member and however long ago. */
static struct grant read_decided(struct symm_team_channel *channel, uint32_t call,
                                 uint32_t wish)
{
    const uint64_t *at = word_of(channel);
    uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE), seen;

    do {
        seen = word;
        if (!is_claimed(channel, unpack(word), call))
            decide_again(channel, call, wish);
        word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    } while (word != seen);
    return unpack(word);
}

uint32_t symm__cuda_budget_acquire(struct symm_team_channel *channel, uint32_t wish)
{
    const symm_team *team = channel->team;
    const uint32_t call = (channel->asked + 1) & NUMBER;
    struct grant grant;
    uint64_t word, next;

    if (!asks(team, wish))
        return wish;
    if (channel->captured) /* more captured calls may come under this number */
        wish = processors_of(team);
    word = __atomic_load_n(word_of(channel), __ATOMIC_ACQUIRE);
    for (;;) {
        grant = unpack(word);
        if (!is_before(grant.decided, call)) {
            grant = read_decided(channel, call, wish);
            break;
        }
        if (!is_granted(channel, grant, call, wish)) {
            grant = unpack(decide(channel, call, wish));
            break;
        }
        next = with_decided(grant, call);
        if (__atomic_compare_exchange_n(word_of(channel), &word, next, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            break;
    }
    if (!channel->captured) {
        channel->asked = call;
        channel->returned = false;
        publish(channel);
    }
    channel->granted = blocks_of(grant, call);
    return channel->granted > 0 ? channel->granted : 1;
}

void symm__cuda_budget_return(struct symm_team_channel *channel, uint32_t wish)
{
    if (!asks(channel->team, wish) || channel->captured)
        return;
    channel->asked = (channel->asked - 1) & NUMBER;
    channel->returned = true; /* for the progress word, once the channel is left */
    publish(channel);
}

bool symm__cuda_budget_shares(const struct symm_team_channel *channel)
{
    return channel->granted > 0 && channel->granted < processors_of(channel->team);
}

void symm__cuda_budget_refresh(symm_team *team)
{
    const bool failed = __atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) != SYMM_OK;
    bool old = false;
    uint32_t holder;

    if (team->far || team->inner)
        return;
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        struct symm_team_channel *channel = &team->channel[c];
        const uint32_t launches =
            (uint32_t)(__atomic_load_n(
                           symm__channel_progress(team, team->local_rank, c),
                           __ATOMIC_RELAXED) >>
                       32);

        old = old || (channel->looked == launches &&
                      __atomic_load_n(claim_of(team, team->local_rank, c),
                                      __ATOMIC_RELAXED) != 0);
        channel->looked = launches;
    }
    if (!old || !lock_try(team->ctx, &holder))
        return;
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (failed)
            __atomic_store_n(claim_of(team, team->local_rank, c), 0, __ATOMIC_SEQ_CST);
        else
            (void)release_unneeded(team, c);
    lock_release(team->ctx);
}
