/* SPDX-License-Identifier: MIT */
/*
 * team_shrink.c - the survivors of a team of one host agree on their set, and make a team of
 * their own. No rank knows the set before: ranks may be dead, late, or die meanwhile. (Teams
 * over several hosts: shrink_hosts.c.)
 *
 * The agreement is one word for each team, in the control page of the team's first member
 * (symm_control.consensus_word; another team uses it only when all members have left this
 * one). Every member has that page mapped, and it outlives its owner. The word changes by
 * compare-and-swap only, so that all ranks see one sequence of steps, whichever ranks die
 * between two of them:
 *
 *     GATHER(k)          ranks announce themselves in their own pages
 *     DECIDED(k, rank)   one rank has proposed a set: the ranks that have joined
 *     DONE(k)            all of the set have made the new team
 *     FAILED(k)          some could not, or not in time: all of them return an error
 *     GATHER(k + 1)      one of the set has died before DONE: the next attempt, without it
 *
 * A rank that returns may call again at once, which moves the word on while others have not
 * looked. So the word also says how the last attempts before this one ended.
 *
 * Agreement: of all proposals of an attempt only the first changes the word; all read the
 * set from the page of the rank that made it, and read the word again before they use it (a
 * proposer writes the next set of the same place two attempts later). That all return the
 * same is decided by one change as well: DONE needs a mark in the page of each of the set, which
 * a rank sets once it has made the new team, and a rank that sees DONE returns success. So ranks
 * that return SYMM_OK have the same team, and a rank of the set that returns an error proves that
 * none returns success. A rank that dies after its mark is in the team, as if it had died a
 * moment later; the team's first call then says so. Validity: only ranks that came to this call
 * are in a set, and the dead are not, as far as is known then. End: a wait lasts for one deadline
 * at most, and GATHER(k + 1) needs a death. Sets only shrink, so a rank that was left out once
 * stays left out.
 *
 * Bounded: one deadline for ranks that are alive but do not arrive, one for making the team;
 * a death in between begins anew, and an attempt without a death does not. Every loop ends a
 * deadline after that at the latest, whatever the word says.
 */
#include <stdio.h>

#include "core/control_wait.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "core/team.h"
#include "record/record.h"
#include "setup/consensus.h"
#include "setup/survivors.h"
#include "setup/team_object.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define LOOK_SECONDS 2e-4    /* between two polls of the others */
#define LAST_ATTEMPT 0xfff0u /* they are counted in 16 bits */
#define NO_SLOT      SYMM_MAX_TEAMS
#define LAST_LOOKS                                                                     \
    64 /* after the deadline: a rank that was stopped has not looked before */

/* The word, taken apart. GATHER names the proposer of the attempt before. */
struct step {
    uint64_t word;
    uint32_t attempt;
    int proposer;    /* team rank */
    uint32_t phases; /* the last of this attempt and of those before: 2 bits each */
    enum symm_consensus_phase phase;
};

struct shrink {
    symm_team *team, *made;
    struct symm_consensus *own;
    uint64_t *consensus_word; /* the word */
    uint32_t attempt;
    uint64_t among; /* ranks that may still survive, by bits of team ranks */
    uint64_t set;   /* the survivors of this attempt */
    int slot;       /* of the new team; NO_SLOT: none is free */
    struct symm_control_wait seen;
};

/* ---- The word ------------------------------------------------------------------------ */

static symm_status damaged(const struct shrink *s, uint64_t word)
{
    return symm__fail(
        SYMM_ERR_DAMAGED,
        "the control page of rank %d is damaged: the agreement on survivors "
        "holds 0x%016llx",
        s->team->world_rank[0], (unsigned long long)word);
}

/* Reads how far the agreement is. */
static symm_status look(const struct shrink *s, struct step *step)
{
    const symm_team *team = s->team;
    /* acquire: pairs with the release of the rank that moved it */
    uint64_t word = __atomic_load_n(s->consensus_word, __ATOMIC_ACQUIRE);

    if (word >> 32 != team->uid)
        return symm__left_out(s->team); /* so long ago that a newer team has the word */
    *step = (struct step){.word = word,
                          .attempt = (uint32_t)(word >> 16) & 0xffff,
                          .proposer = (int)(word >> 8 & 0xff),
                          .phases = (uint32_t)word & 0xff,
                          .phase = (enum symm_consensus_phase)(word & 3)};
    if (step->proposer >= team->size || step->attempt + 1 < s->attempt)
        return damaged(s, word);
    return SYMM_OK;
}

/* How this rank's last attempt ended. GATHER: by a death, or too long ago to know; then the next
 * poll finds that the others have gone on. */
static enum symm_consensus_phase ended(const struct shrink *s, const struct step *at)
{
    uint32_t ago = at->attempt - s->attempt;
    enum symm_consensus_phase phase =
        ago < 4 ? (enum symm_consensus_phase)(at->phases >> 2 * ago & 3)
                : SYMM_CONSENSUS_GATHER;

    return phase == SYMM_CONSENSUS_DECIDED
               ? SYMM_CONSENSUS_GATHER
               : phase; /* only after a death does another attempt follow */
}

/* Moves the word to the next step, unless another rank has. */
static void move(const struct shrink *s, const struct step *from, uint32_t attempt,
                 int proposer, enum symm_consensus_phase phase)
{
    uint64_t expected = from->word;
    uint32_t before = attempt == from->attempt ? from->phases & ~3u : from->phases << 2;

    (void)__atomic_compare_exchange_n(
        s->consensus_word, &expected,
        symm__consensus_word(s->team, attempt, proposer, before | phase), false,
        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* ---- Members ------------------------------------------------------------------------- */

static uint64_t mark_of(const struct shrink *s)
{
    return symm__consensus_mark(s->team, s->attempt);
}

static bool is_in(uint64_t set, int member)
{
    return set >> member & 1;
}

static bool has_come(const struct shrink *s, int member)
{
    /* acquire: pairs with the release in announce; `taken` is older */
    return __atomic_load_n(&symm__consensus_page(s->team, member)->joined,
                           __ATOMIC_ACQUIRE) == mark_of(s);
}

static bool has_opened(const struct shrink *s, int member)
{
    return __atomic_load_n(&symm__consensus_page(s->team, member)->opened,
                           __ATOMIC_ACQUIRE) == mark_of(s);
}

static void announce(const struct shrink *s)
{
    const struct symm_slots taken = symm__team_slots(s->team->ctx);

    symm__slots_store(&s->own->taken, &taken);
    symm__consensus_announce(s->team, s->attempt);
}

/* ---- The survivors ------------------------------------------------------------------- */

/* The ranks that have joined and live. *waiting: others may still join. */
static uint64_t gathered(const struct shrink *s, bool *waiting)
{
    uint64_t set = 0;

    *waiting = false;
    for (int m = 0; m < s->team->size; m++) {
        if (!is_in(s->among, m) || symm__member_is_gone(s->team, m))
            continue;
        if (has_come(s, m))
            set |= UINT64_C(1) << m;
        else
            *waiting = true;
    }
    return set;
}

static int free_slot(const struct shrink *s, uint64_t set)
{
    struct symm_slots taken = {{0}}, theirs;

    for (int m = 0; m < s->team->size; m++) {
        if (!is_in(set, m))
            continue;
        theirs = symm__slots_load(&symm__consensus_page(s->team, m)->taken);
        symm__slots_join(&taken, &theirs);
    }
    return symm__slots_free(&taken);
}

static void propose(const struct shrink *s, const struct step *at, uint64_t set)
{
    int place = s->attempt & 1;

    /* release: a rank that reads what is written here finds the word of this attempt, not that of
     * two attempts ago, whose set lay here */
    __atomic_store_n(&s->own->set[place], set, __ATOMIC_RELEASE);
    __atomic_store_n(&s->own->slot[place], (uint32_t)free_slot(s, set),
                     __ATOMIC_RELEASE);
    move(s, at, s->attempt, s->team->rank, SYMM_CONSENSUS_DECIDED);
}

/* The set of this attempt, if the word is still as it was; *mine: this rank is in it. */
static symm_status read_set(struct shrink *s, const struct step *at, bool *current,
                            bool *mine)
{
    const struct symm_consensus *page = symm__consensus_page(s->team, at->proposer);
    int place = s->attempt & 1;
    /* acquire: pairs with the release in propose */
    uint64_t set = __atomic_load_n(&page->set[place], __ATOMIC_ACQUIRE);
    uint32_t slot = __atomic_load_n(&page->slot[place], __ATOMIC_ACQUIRE);

    *current = __atomic_load_n(s->consensus_word, __ATOMIC_ACQUIRE) == at->word;
    if (!*current)
        return SYMM_OK;
    *mine = is_in(set, s->team->rank);
    if (*mine && ((set & ~s->among) || !is_in(set, at->proposer) || slot > NO_SLOT ||
                  (slot < NO_SLOT && s->team->ctx->teams[slot])))
        return symm__fail(
            SYMM_ERR_DAMAGED,
            "the control page of rank %d is damaged: it proposes survivors "
            "0x%llx and slot %u",
            s->team->world_rank[at->proposer], (unsigned long long)set, slot);
    s->set = set;
    s->slot = (int)slot;
    return SYMM_OK;
}

/* The members of the set that have not made their part of the new team. */
static uint64_t not_opened(const struct shrink *s)
{
    uint64_t members = 0;

    for (int m = 0; m < s->team->size; m++)
        if (is_in(s->set, m) && !has_opened(s, m))
            members |= UINT64_C(1) << m;
    return members;
}

static symm_status not_made(const struct shrink *s)
{
    const uint64_t members = not_opened(s);
    int ranks[SYMM_MAX_LOCAL_RANKS], count = 0;
    char names[200] = "one of them";

    if (s->slot == NO_SLOT)
        return symm__no_slot(s->team);
    for (int m = 0; m < s->team->size; m++)
        if (is_in(members, m))
            ranks[count++] = s->team->world_rank[m];
    if (count > 0)
        symm__ranks_text(ranks, count, names, sizeof(names));
    return symm__not_made(s->team, names);
}

/* Begins the next attempt. That needs a death, which all see once the word reports it. */
static symm_status go_on(struct shrink *s, const struct step *at)
{
    bool died = false;

    for (int m = 0; m < s->team->size; m++)
        died = died || (is_in(s->set, m) && symm__member_is_gone(s->team, m));
    if (!died)
        return damaged(s, at->word);
    s->among = s->set;
    s->attempt++;
    return SYMM_OK;
}

/* The attempt has been decided or is over. *decided: this rank is in its set, and the attempt goes
 * on. */
static symm_status follow(struct shrink *s, const struct step *at, bool *decided)
{
    bool next = at->attempt == s->attempt + 1 && at->phase == SYMM_CONSENSUS_GATHER;
    bool current, mine;
    symm_status status;

    if (at->attempt != s->attempt && !next)
        return symm__left_out(s->team);
    status = read_set(s, at, &current, &mine);
    if (status != SYMM_OK || !current)
        return status;
    /* DONE would have needed this rank's mark */
    if (!mine || at->phase == SYMM_CONSENSUS_DONE)
        return symm__left_out(s->team);
    if (ended(s, at) == SYMM_CONSENSUS_FAILED)
        return not_made(s);
    if (next)
        return go_on(s, at);
    *decided = true;
    return SYMM_OK;
}

/* Sleeps until the next poll, while these members are awaited. */
static void sleep_for(struct shrink *s, uint64_t members)
{
    int ranks[SYMM_MAX_LOCAL_RANKS], count = 0;

    for (int m = 0; m < s->team->size; m++)
        if (is_in(members, m) && !symm__member_is_gone(s->team, m))
            ranks[count++] = s->team->world_rank[m];
    symm__control_wait_for(&s->seen, ranks, count);
    symm__sleep(LOOK_SECONDS);
}

/* Has the word not become a valid step, however often this rank has polled it since then? */
static bool is_stuck(double since, int *looks)
{
    *looks = symm__now() < since ? 0 : *looks + 1;
    return *looks > LAST_LOOKS;
}

/* Waits until the attempt has a set. */
static symm_status gather(struct shrink *s)
{
    double until = 0;
    int looks = 0;
    uint32_t joined = 0;
    bool decided = false;

    while (!decided) {
        struct step at;
        bool waiting;
        symm_status status = look(s, &at);

        if (joined != s->attempt) {
            announce(s);
            until = symm__now() + s->team->ctx->timeout;
            joined = s->attempt;
        }
        /* the word changes, but never to a valid step */
        if (status == SYMM_OK && is_stuck(until + s->team->ctx->timeout, &looks))
            status = damaged(s, at.word);
        if (status != SYMM_OK)
            return status;
        if (at.phase != SYMM_CONSENSUS_GATHER || at.attempt != s->attempt) {
            status = follow(s, &at, &decided);
        } else {
            uint64_t set = gathered(s, &waiting);

            if (!waiting || symm__now() >= until)
                propose(s, &at, set);
            else
                sleep_for(s, s->among & ~set);
        }
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

/* Opens the attempt, unless another rank has. */
static symm_status begin(struct shrink *s)
{
    double until = symm__now() + s->team->ctx->timeout;

    for (;;) {
        struct step at = {0};
        symm_status status = look(s, &at);

        if (status != SYMM_OK || at.attempt == s->attempt)
            return status;
        if (at.attempt > s->attempt)
            return symm__left_out(s->team);
        /* This rank saw the end of the attempt before, and one change opens the next. */
        if ((at.phase != SYMM_CONSENSUS_DONE && at.phase != SYMM_CONSENSUS_FAILED) ||
            symm__now() >= until)
            return damaged(s, at.word);
        if (s->attempt > LAST_ATTEMPT)
            return symm__fail(SYMM_ERR_OVERFLOW,
                              "a team was shrunk %u times; shrink the team that "
                              "symm_team_shrink has made",
                              s->attempt);
        move(s, &at, s->attempt, at.proposer, SYMM_CONSENSUS_GATHER);
    }
}

/* ---- Their team ---------------------------------------------------------------------- */

static symm_status make(struct shrink *s)
{
    symm_ctx *ctx = s->team->ctx;
    int size = 0;
    symm_status status;

    if (s->slot == NO_SLOT)
        return not_made(s);
    status = symm__team_alloc(ctx, s->team->size, &s->made);
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < s->team->size; m++)
        if (is_in(s->set, m))
            s->made->world_rank[size++] = s->team->world_rank[m];
    s->made->agreed = true;
    return symm__team_complete(s->made,
                               symm__team_uid(s->team, s->attempt, SYMM_PART_SHRUNK),
                               s->slot, size, ctx->timeout);
}

static void unmake(struct shrink *s)
{
    symm_ctx *ctx = s->team->ctx;

    if (s->made && ctx->teams[s->slot] == s->made) {
        ctx->teams[s->slot] = NULL;
        __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    }
    symm__team_free(s->made);
    s->made = NULL;
}

/* How the attempt should end, as far as this rank can see; DECIDED: not known yet. */
static enum symm_consensus_phase verdict(const struct shrink *s, bool opened, bool late)
{
    bool all = opened;

    for (int m = 0; m < s->team->size; m++) {
        if (!is_in(s->set, m) || has_opened(s, m))
            continue;
        if (symm__member_is_gone(s->team, m) && !has_opened(s, m))
            return SYMM_CONSENSUS_GATHER;
        all = false;
    }
    return all               ? SYMM_CONSENSUS_DONE
           : !opened || late ? SYMM_CONSENSUS_FAILED
                             : SYMM_CONSENSUS_DECIDED;
}

/* Waits until it is decided how the attempt ends, the same for all. */
static symm_status conclude(struct shrink *s, bool opened,
                            enum symm_consensus_phase *end)
{
    double until = symm__now() + s->team->ctx->timeout;
    int looks = 0;

    if (opened) /* release: pairs with the acquire in has_opened */
        __atomic_store_n(&s->own->opened, mark_of(s), __ATOMIC_RELEASE);
    for (;;) {
        struct step at;
        symm_status status = look(s, &at);
        enum symm_consensus_phase want;

        if (status != SYMM_OK)
            return status;
        if (at.attempt < s->attempt || is_stuck(until + s->team->ctx->timeout, &looks))
            return damaged(s, at.word);
        /* too long ago to know how this rank's attempt ended */
        if (at.attempt > s->attempt + 3)
            return symm__left_out(s->team);
        if (at.attempt != s->attempt || at.phase != SYMM_CONSENSUS_DECIDED) {
            *end = ended(s, &at);
            /* which would have needed this rank's mark */
            if (*end == SYMM_CONSENSUS_DONE && !opened)
                return damaged(s, at.word);
            return *end == SYMM_CONSENSUS_GATHER ? go_on(s, &at) : SYMM_OK;
        }
        want = verdict(s, opened, symm__now() >= until);
        if (want == SYMM_CONSENSUS_DECIDED)
            sleep_for(s, not_opened(s));
        else
            move(s, &at, want == SYMM_CONSENSUS_GATHER ? s->attempt + 1 : s->attempt,
                 at.proposer, want);
    }
}

/* One attempt. *end: how it ended for all, if the status is SYMM_OK. */
static symm_status attempt(struct shrink *s, enum symm_consensus_phase *end)
{
    char sentence[SYMM_ERROR_BYTES];
    symm_status status = gather(s), made;

    if (status != SYMM_OK)
        return status;
    made = make(s);
    snprintf(sentence, sizeof(sentence), "%s",
             made == SYMM_OK ? "" : symm_last_error());
    status = conclude(s, made == SYMM_OK, end);
    if (status == SYMM_OK && *end == SYMM_CONSENSUS_FAILED)
        status = made == SYMM_OK ? not_made(s) : symm__fail_quiet(made, sentence);
    if (status != SYMM_OK || *end != SYMM_CONSENSUS_DONE)
        unmake(s);
    return status;
}

/* With the context locked. */
static symm_status shrink(symm_team *team, symm_team **survivors)
{
    struct shrink s = {
        .team = team,
        .own = symm__consensus_page(team, team->rank),
        .consensus_word = &symm__near_control(team->ctx, team->world_rank[0])
                               ->consensus_word[team->consensus_word],
        .attempt = team->shrinks + 1,
        .among = *team->survivors,
        .seen = symm__control_wait(team->ctx, team->uid, "shrink", NULL)};
    enum symm_consensus_phase end = SYMM_CONSENSUS_GATHER;
    symm_status status = SYMM_OK;

    if (!is_in(s.among, team->rank))
        return symm__left_out(team);
    while (status == SYMM_OK && end == SYMM_CONSENSUS_GATHER) {
        status = begin(&s);
        if (status == SYMM_OK)
            status = attempt(&s, &end);
    }
    symm__control_wait_end(&s.seen);
    /* symm__left_out has said so in the team; else the next call begins after this one. */
    if (is_in(*team->survivors, team->rank)) {
        team->shrinks = s.attempt;
        *team->survivors = s.set ? s.set : s.among;
    }
    if (status != SYMM_OK)
        return status;
    symm__survivors_mark(team, &s.set);
    *survivors = s.made;
    return SYMM_OK;
}

/* A team without all of its ranks has failed: ranks that wait in it for this one, not for the rank
 * that is gone, need not wait for their timeout. With the context locked. */
static void fail_incomplete(symm_team *team)
{
    const char *why = "has finalized its context";
    int gone = -1;
    symm_status status = symm__far_poll_locked(team);

    if (status != SYMM_OK || symm__team_failed(team) != SYMM_OK)
        return;
    status = symm__team_death(team, &gone, &why);
    for (int m = 0; m < team->size && status == SYMM_OK; m++)
        if (symm__member_is_gone(team, m)) {
            status = SYMM_ERR_PEER_DEAD;
            gone = m;
        }
    if (status != SYMM_OK)
        (void)symm__team_fail(team, status, "rank %d %s", team->world_rank[gone], why);
}

symm_status symm_team_shrink(symm_team *team, symm_team **survivors)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!survivors)
        return symm__fail_null("symm_team_shrink", "survivors");
    pthread_mutex_lock(&team->ctx->lock);
    status = symm__survivors_begin(team);
    if (status == SYMM_OK)
        fail_incomplete(team);
    if (status == SYMM_OK)
        status =
            team->far ? symm__shrink_hosts(team, survivors) : shrink(team, survivors);
    if (status == SYMM_OK)
        symm__earlier_keep(team->ctx, NULL);
    if (status == SYMM_OK && symm__is_recorded(team->ctx))
        symm__record_team(*survivors, "shrunk");
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}
