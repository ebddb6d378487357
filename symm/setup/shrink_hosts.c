/* SPDX-License-Identifier: MIT */
/*
 * shrink_hosts.c - the survivors of a team over several hosts agree on their set, and make a
 * team of their own. No rank knows the set before: ranks and hosts may be dead, late, or die
 * meanwhile.
 *
 * Each rank writes its own cell on the board of the team (relay/relay.h), and reads those of the
 * others. One of them, the coordinator, proposes a set, and decides. It is the lowest rank that
 * has not died. Calls of symm_team_shrink on a team are counted; in each one:
 *
 *     JOINED            the rank has come. `view`: the coordinator that it follows
 *     proposal          the coordinator's: those that have JOINED and follow it. A proposal is
 *                       named by its ballot: the coordinator, and its number
 *     OPENED/NOT_OPENED the rank has tried to make the team of that ballot
 *     DONE(ballot)      decision: all of its set have OPENED
 *     FAILED            decision: one could not, or not in time: all return an error
 *     ABANDONED         decision of any rank: the coordinator, though it lives, is too late. All
 *                       return an error, but those that have read a decision before. The
 *                       coordinator does so, too, if it comes to decide DONE when others may have
 *     LEFT              the rank returns an error of its own, and counts as dead
 *
 * If one of the set dies without OPENED, the coordinator makes a new proposal. If the coordinator
 * dies, the view rises to the next rank. The new coordinator begins when all other living ranks
 * follow it. If one of them knows a decision, all adopt it. Else no lower coordinator has decided
 * or will, since no rank follows it any more. So the living ranks have one decision; what a rank
 * returned that died afterwards may differ. A rank that adopts a decision writes up to which view
 * the copy counts (`in`), since the copy of a rank that has died may arrive late. This is the view
 * change of replication protocols (Oki and Liskov 1988) with the quorum "all that live".
 * tests/model/shrink_hosts.pml is the model.
 *
 * A rank that has returned writes its cell again in its next call only. So the cell has the
 * decisions of two calls: ranks that are still in the call before read theirs there.
 *
 * Silence: a host that does not answer, or none of whose ranks has come, may be on the other side
 * of a broken network, where others agree on another set. So a coordinator goes on only if the
 * hosts of its set are more than half of the hosts that may be alive, or half of them with the
 * lowest of these. That cannot hold on two sides.
 *
 * Bounded: ranks that are alive have one deadline to come, and the team one to be made; a death
 * begins both anew. A rank abandons the call a second later than three deadlines after the last
 * change of view or proposal. A coordinator decides DONE within three deadlines of its proposal, or
 * never: a rank that abandons the call finds a decision that is at least a second old, or none will
 * be made. All stay members, as after FAILED, and the next call goes on without a coordinator that
 * does not come to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "core/team.h"
#include "setup/consensus.h"
#include "setup/shrink_hosts_private.h"
#include "setup/survivors.h"
#include "setup/team_object.h"
#include "util/clock.h"
#include "util/rank_text.h"

#define LOOK_SECONDS  2e-4 /* between two looks at the board; doubles */
#define LOOK_MOST     2e-3
#define SPARE_ROUNDS  3     /* new proposals without a known death */
#define LAST_CALL     65535 /* calls and coordinators share the 32 bits of a uid's step */

/* ---- The board ------------------------------------------------------------------------- */

static bool is_decision(const struct decision *decision)
{
    return decision->outcome >= UNDECIDED && decision->outcome <= ABANDONED;
}

/* A cell of the board, checked: what has no sound form is ignored. */
static void read_cell(void *user, int rank, const void *bytes, size_t count)
{
    struct shrink *s = user;
    int member = s->member_of[rank];
    struct seen *seen = &s->seen[member < 0 ? 0 : member];
    struct cell cell;

    if (member < 0 || member == s->me || count < sizeof(cell))
        return;
    memcpy(&cell, bytes, sizeof(cell));
    if (cell.view < 0 || cell.view >= s->team->size || cell.state < JOINED ||
        cell.state > LEFT || !is_decision(&cell.now) || !is_decision(&cell.before))
        return;
    if (cell.round > 0) {
        size_t set_bytes = s->words * sizeof(*seen->set);

        if (count != sizeof(cell) + set_bytes || cell.slot > SYMM_MAX_TEAMS)
            return;
        if (!seen->set)
            seen->set = malloc(set_bytes);
        if (!seen->set)
            return; /* a later look may have memory */
        memcpy(seen->set, (const char *)bytes + sizeof(cell), set_bytes);
    }
    seen->cell = cell;
    seen->is_here = true;
}

/* Reads deaths and cells. True: something is new. */
static bool look(struct shrink *s)
{
    struct symm_relay *relay = s->team->ctx->oob.relay;
    bool more = false;
    uint64_t read;

    for (int m = 0; m < s->team->size; m++)
        if (!s->seen[m].dead && m != s->me && symm__member_is_gone(s->team, m))
            more = s->seen[m].dead = true;
    read = symm__relay_read(relay, s->team->uid, s->read, read_cell, s);
    more = more || read != s->read;
    if (read ==
        0) /* a newer board has replaced this one: publish() writes the cell again */
        memset(&s->written, 0, sizeof(s->written));
    s->read = read;
    return more;
}

/* Writes this rank's cell, if it has changed, with the set of its proposal. */
static symm_status publish(struct shrink *s)
{
    const size_t set_bytes = s->own->round > 0 ? s->words * sizeof(uint64_t) : 0;
    char *bytes;
    symm_status status;

    if (memcmp(s->own, &s->written, sizeof(s->written)) == 0)
        return SYMM_OK;
    bytes = malloc(sizeof(*s->own) + set_bytes);
    if (!bytes)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to shrink a team of %d ranks",
                          s->team->size);
    memcpy(bytes, s->own, sizeof(*s->own));
    if (set_bytes > 0)
        memcpy(bytes + sizeof(*s->own), s->seen[s->me].set, set_bytes);
    status =
        symm__relay_write(s->team->ctx->oob.relay, s->team->uid, ++s->shrunk->version,
                          bytes, sizeof(*s->own) + set_bytes);
    free(bytes);
    s->written = *s->own;
    return status;
}

/* ---- Decisions --------------------------------------------------------------------------- */

/* The member's decision on this call; NULL: none is known. */
static const struct decision *decision_of(const struct shrink *s, int member)
{
    const struct cell *cell = &s->seen[member].cell;
    const struct decision *decision = !s->seen[member].is_here         ? NULL
                                      : cell->call == s->own->call     ? &cell->now
                                      : cell->call == s->own->call + 1 ? &cell->before
                                                                       : NULL;

    return decision && decision->outcome != UNDECIDED ? decision : NULL;
}

/*
 * Does this rank follow higher views of others? They may have passed over ranks that were late.
 * Not once this rank has tried another rank's proposal, whose decision it awaits. A living rank
 * that passed over that coordinator would have kept it from proposing (is_ready). So a rank that
 * did has died, and its cell arrives late. Then only deaths that are known here make the view rise.
 */
static bool follows_others(const struct shrink *s)
{
    return s->own->ballot.round == 0 || s->own->view == s->me;
}

/* Does that member's decision count in this rank's view? */
static bool counts(const struct shrink *s, int member, const struct decision *decision)
{
    const int view = s->own->view;

    return decision->in == view || (decision->in > view && follows_others(s)) ||
           member == view || (view == s->me && s->own->round == 0);
}

/* The coordinator's decision on its last proposal. */
static void decide(struct shrink *s, enum outcome outcome, symm_status status)
{
    s->own->now = (struct decision){.outcome = (int32_t)outcome,
                                    .in = s->own->view,
                                    .status = status,
                                    .ballot = {s->me, s->own->round}};
}

/* Adopts a decision of another rank, if there is one that counts: own->now. */
static symm_status adopt(struct shrink *s)
{
    for (int m = 0; m < s->team->size && s->own->now.outcome == UNDECIDED; m++) {
        const struct decision *decision = decision_of(s, m);
        bool lives = m != s->me && !s->seen[m].dead;

        if (lives && s->seen[m].is_here && s->seen[m].cell.call > s->own->call + 1)
            return symm__left_out(s->team);
        if (!decision || m == s->me)
            continue;
        /* A living rank has it, so it stands; it is about a set without this rank. */
        if (lives && decision->outcome == DONE && s->own->ballot.round == 0)
            return symm__left_out(s->team);
        if (!counts(s, m, decision))
            continue;
        s->own->now = *decision;
        if (s->own->now.in < s->own->view)
            s->own->now.in = s->own->view;
    }
    return SYMM_OK;
}

/* ---- The coordinator ----------------------------------------------------------------------- */

/*
 * The view rises to the lowest rank that may still coordinate, and to the views of others. These
 * may be above this rank, if it came late: then it is left out.
 */
static symm_status follow_view(struct shrink *s)
{
    int view = s->own->view;

    while (view < s->me && (is_out(s, view) || (!has_come(s, view) && s->own->overdue)))
        view++;
    for (int m = 0; m < s->team->size; m++) {
        const struct cell *cell = is_out(s, m) ? NULL : cell_of(s, m);

        if (cell && cell->view > view && follows_others(s))
            view = cell->view;
    }
    if (view > s->me)
        return symm__left_out(s->team);
    if (view > s->own->view) {
        s->own->view = view;
        s->since = symm__now();
    }
    return SYMM_OK;
}

/* May this rank propose a set: do all that have come follow it, and has the time for the others
 * passed? */
static bool is_ready(const struct shrink *s)
{
    bool waiting = false, overdue = false;

    for (int m = 0; m < s->team->size; m++) {
        const struct cell *cell = cell_of(s, m);

        overdue = overdue || (cell && !is_out(s, m) && cell->overdue);
        if (is_out(s, m) || (cell && cell->view == s->me))
            continue;
        if (has_come(s, m)) /* it will follow this rank, or it has a decision */
            return false;
        waiting = true;
    }
    return !waiting || overdue;
}

/* Is it certain that no other side of a broken network agrees on another set? mine, counted:
 * [hosts] scratch, zeroed. */
static bool is_majority(const struct shrink *s, const uint64_t *set, bool *mine,
                        bool *counted)
{
    const symm_ctx *ctx = s->team->ctx;
    int ours = 0, all = 0, lowest = -1;

    for (int m = 0; m < s->team->size; m++) {
        int host = ctx->host_of[s->team->world_rank[m]];

        if (!symm__set_has(s->team->survivors, m))
            continue;
        mine[host] = mine[host] || symm__set_has(set, m);
        counted[host] = counted[host] || !is_out(s, m) ||
                        (s->seen[m].dead && symm__is_far(ctx, s->team->world_rank[m]) &&
                         symm__relay_is_silent(ctx->oob.relay, host));
    }
    for (int h = 0; h < ctx->hosts; h++) {
        if (!counted[h])
            continue;
        lowest = lowest < 0 ? h : lowest;
        all++;
        ours += mine[h];
    }
    return 2 * ours > all || (2 * ours == all && lowest >= 0 && mine[lowest]);
}

/* A new proposal: the ranks that follow this one. Without a majority of hosts: FAILED. */
static symm_status propose(struct shrink *s)
{
    const int hosts = s->team->ctx->hosts;
    struct seen *own = &s->seen[s->me];
    bool *flags = calloc(2 * (size_t)hosts, sizeof(*flags)), majority;
    struct symm_slots taken = {{0}};

    if (!own->set)
        own->set = malloc(s->words * sizeof(*own->set));
    if (!own->set || !flags) {
        free(flags);
        return symm__fail(SYMM_ERR_NOMEM, "no memory to shrink a team of %d ranks",
                          s->team->size);
    }
    memset(own->set, 0, s->words * sizeof(*own->set));
    for (int m = 0; m < s->team->size; m++) {
        const struct cell *cell = cell_of(s, m);

        if (is_out(s, m) || !cell || cell->view != s->me)
            continue;
        symm__set_add(own->set, m);
        symm__slots_join(&taken, &cell->taken);
    }
    majority = is_majority(s, own->set, flags, flags + hosts);
    free(flags);
    if (!majority) {
        decide(s, FAILED, SYMM_ERR_TIMEOUT);
        return SYMM_OK;
    }
    s->own->slot = (uint32_t)symm__slots_free(&taken);
    s->own->round++;
    s->proposed = symm__now();
    return SYMM_OK;
}

/* May the team not have opened because a member had gone, as far as the status can tell? */
static bool is_broken(symm_status failed)
{
    return failed == SYMM_ERR_PEER_DEAD || failed == SYMM_ERR_MISMATCH;
}

/* Have all members OPENED this rank's proposal? *failed: why one has NOT_OPENED. *again: a member
 * has gone, so a new proposal is needed. */
static bool all_opened(const struct shrink *s, bool *again, symm_status *failed)
{
    const struct ballot ballot = {s->me, s->own->round};
    bool all = true, gone = false;

    for (int m = 0; m < s->team->size; m++) {
        const struct cell *cell = cell_of(s, m);
        bool tried = is_in_step(cell, ballot);

        if (!symm__set_has(s->seen[s->me].set, m))
            continue;
        gone = gone || is_out(s, m);
        if (tried && cell->state == OPENED)
            continue;
        all = false;
        *again = *again || is_out(s, m);
        if (tried && cell->state == NOT_OPENED)
            *failed = symm__peer_status(cell->status);
    }
    *again = *again || (gone && is_broken(*failed)); /* one that had OPENED has gone */
    return all;
}

/* Decides on this rank's proposal, which it has tried itself, or proposes anew; else waits. */
static symm_status decide_proposal(struct shrink *s)
{
    bool again = false;
    symm_status failed = SYMM_OK;
    bool all = all_opened(s, &again, &failed);

    if (all && symm__now() < s->proposed + lease_seconds(s))
        decide(s, DONE, SYMM_OK);
    else if (all) /* it was stopped */
        decide(s, ABANDONED, SYMM_ERR_TIMEOUT);
    else if (again)
        return propose(s);
    else if (failed != SYMM_OK && !is_broken(failed))
        decide(s, FAILED, failed);
    else if (symm__now() >= s->since + 2 * s->team->ctx->timeout)
        decide(s, FAILED, SYMM_ERR_ABORTED);
    else if (failed == SYMM_OK)
        s->broken = 0;
    else if (s->broken == 0)
        s->broken = symm__now(); /* a death is known soon */
    else if (symm__now() >= s->broken + DEATH_SECONDS && s->spare-- > 0)
        return propose(s);
    else if (symm__now() >= s->broken + DEATH_SECONDS)
        decide(s, FAILED, SYMM_ERR_ABORTED);
    return SYMM_OK;
}

/* What the coordinator does in a step; nothing on other ranks. */
static symm_status coordinate(struct shrink *s)
{
    if (s->own->view != s->me || s->own->now.outcome != UNDECIDED)
        return SYMM_OK;
    if (s->own->round == 0)
        return is_ready(s) ? propose(s) : SYMM_OK;
    return is_in_step(s->own, (struct ballot){s->me, s->own->round})
               ? decide_proposal(s)
               : SYMM_OK;
}

/* ---- Their team --------------------------------------------------------------------------- */

/* Takes back the team that this rank has made for a proposal. */
static void team_free(struct shrink *s)
{
    symm_ctx *ctx = s->team->ctx;

    if (s->made && ctx->teams[s->made->slot] == s->made) {
        ctx->teams[s->made->slot] = NULL;
        __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    }
    symm__team_free(s->made);
    s->made = NULL;
}

/* Makes the team of s->set, together with its other members. */
static symm_status team_make(struct shrink *s, uint32_t slot)
{
    const uint32_t step = s->own->call << 16 | (uint32_t)s->own->ballot.view;
    const uint32_t part = SYMM_PART_SHRUNK ^ s->own->ballot.round << 16;
    symm_ctx *ctx = s->team->ctx;
    int size = 0;
    symm_status status;

    if (slot >= SYMM_MAX_TEAMS || ctx->teams[slot])
        return symm__no_slot(s->team);
    status = symm__team_alloc(ctx, s->team->size, &s->made);
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < s->team->size; m++)
        if (symm__set_has(s->set, m))
            s->made->world_rank[size++] = s->team->world_rank[m];
    s->made->agreed = true;
    return symm__team_complete(s->made, symm__team_uid(s->team, step, part), (int)slot,
                               size, ctx->timeout);
}

/* Tries to make the team of the coordinator's proposal, if there is a new one. */
static symm_status try_proposal(struct shrink *s)
{
    const struct seen *from = &s->seen[s->own->view];
    const struct cell *cell = cell_of(s, s->own->view);
    struct ballot ballot = {s->own->view, cell ? cell->round : 0};
    symm_status status;

    if (ballot.round == 0 || cell->view != s->own->view || is_in_step(s->own, ballot) ||
        s->own->now.outcome != UNDECIDED)
        return SYMM_OK;
    if (!symm__set_has(from->set, s->me))
        return symm__left_out(s->team);
    team_free(s);
    /* If a death is known the old team fails here, so its communicators are aborted first. */
    (void)!symm__far_poll_locked(s->team);
    memcpy(s->set, from->set, s->words * sizeof(*s->set));
    s->own->ballot = ballot;
    status = team_make(s, cell->slot);
    s->own->state = status == SYMM_OK ? OPENED : NOT_OPENED;
    s->own->status = status;
    snprintf(s->sentence, sizeof(s->sentence), "%s",
             status == SYMM_OK ? "" : symm_last_error());
    if (status != SYMM_OK)
        team_free(s);
    s->since = symm__now();
    s->broken = 0;
    return SYMM_OK;
}

/* ---- A call -------------------------------------------------------------------------------- */

/* Decides ABANDONED: the coordinator is too late. */
static void give_up(struct shrink *s)
{
    s->gave_up = true;
    s->own->now = (struct decision){.outcome = ABANDONED,
                                    .in = s->own->view,
                                    .status = SYMM_ERR_TIMEOUT,
                                    .ballot = {.view = s->own->view}};
}

static symm_status step(struct shrink *s)
{
    const double now = symm__now();
    symm_status status;

    s->own->overdue = s->own->overdue || now >= s->until;
    status = adopt(s);
    if (status == SYMM_OK && s->own->now.outcome == UNDECIDED)
        status = follow_view(s);
    if (status == SYMM_OK)
        status = coordinate(s);
    if (status == SYMM_OK)
        status = publish(s); /* before this rank makes a team, which takes long */
    if (status == SYMM_OK)
        status = try_proposal(s);
    if (status == SYMM_OK)
        status = publish(s);
    if (status == SYMM_OK && s->own->now.outcome == UNDECIDED &&
        now >= s->since + decision_seconds(s)) {
        give_up(s);
        status = publish(s);
    }
    return status;
}

static symm_status agree(struct shrink *s)
{
    double pause = LOOK_SECONDS;

    for (;;) {
        bool more = look(s);
        symm_status status = step(s);

        if (status != SYMM_OK || s->own->now.outcome != UNDECIDED)
            return status;
        pause = more ? LOOK_SECONDS : 2 * pause < LOOK_MOST ? 2 * pause : LOOK_MOST;
        symm__sleep(pause);
    }
}

static symm_status shrink_open(struct shrink *s, symm_team *team)
{
    const symm_ctx *ctx = team->ctx;

    *s = (struct shrink){.team = team,
                         .me = team->rank,
                         .words = symm__set_words(team),
                         .until = symm__now() + ctx->timeout,
                         .since = symm__now(),
                         .spare = SPARE_ROUNDS};
    if (!team->shrunk)
        team->shrunk = calloc(1, sizeof(*team->shrunk));
    s->shrunk = team->shrunk;
    s->seen = calloc((size_t)team->size, sizeof(*s->seen));
    s->set = calloc(s->words, sizeof(*s->set));
    s->member_of = malloc((size_t)ctx->size * sizeof(*s->member_of));
    if (!s->shrunk || !s->seen || !s->set || !s->member_of)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to shrink a team of %d ranks",
                          team->size);
    for (int r = 0; r < ctx->size; r++)
        s->member_of[r] = -1;
    for (int m = 0; m < team->size; m++)
        s->member_of[team->world_rank[m]] = m;
    s->seen[s->me].is_here = true;
    s->own = &s->seen[s->me].cell;
    memset(s->own, 0, sizeof(*s->own)); /* its padding is compared */
    s->own->call = team->shrinks + 1;
    s->own->state = JOINED;
    s->own->before = s->shrunk->decision;
    s->own->taken = symm__team_slots(ctx);
    symm__consensus_announce(team, s->own->call);
    return SYMM_OK;
}

static void shrink_close(struct shrink *s)
{
    for (int m = 0; s->seen && m < s->team->size; m++)
        free(s->seen[m].set);
    free(s->seen);
    free(s->set);
    free(s->member_of);
}

symm_status symm__shrink_hosts(symm_team *team, symm_team **made)
{
    struct shrink s;
    char sentence[SYMM_ERROR_BYTES];
    symm_status status = SYMM_OK;

    if (!symm__set_has(team->survivors, team->rank))
        return symm__left_out(team);
    if (team->shrinks >= LAST_CALL)
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "a team was shrunk %u times; shrink the team that "
                          "symm_team_shrink has made",
                          team->shrinks);
    status = shrink_open(&s, team);
    if (status == SYMM_OK) {
        status = symm__shrink_conclude(&s, agree(&s));
        team->shrinks = s.own->call;
        s.shrunk->decision = s.own->now;
    }
    if (status == SYMM_OK) {
        memcpy(team->survivors, s.set, s.words * sizeof(*s.set));
        symm__survivors_mark(team, s.set);
        *made = s.made;
    } else if (s.own) {
        symm__error_save(sentence);
        if (!is_without_team(&s.own->now)) {
            s.own->state = LEFT; /* the error is this rank's alone */
            (void)!publish(&s);
            symm__set_remove(team->survivors, team->rank);
        }
        team_free(&s);
        status = symm__fail_quiet(status, sentence);
    }
    shrink_close(&s);
    return status;
}
