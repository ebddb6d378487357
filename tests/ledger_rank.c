/* SPDX-License-Identifier: MIT */
/*
 * ledger_rank.c - the tree of hosts by simulation: the exchanges of a rank and what must be true of
 * each, and one turn of a rank's relay.
 */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "ledger_sim.h"

/* ---- Exchanges --------------------------------------------------------------------------- */

static int place_in(const struct team *team, int rank)
{
    for (int p = 0; p < team->count; p++)
        if (team->leaders[p] == rank)
            return p;
    return -1;
}

static size_t part_bytes(int team, uint32_t sequence, int place)
{
    uint64_t seed = sim.seed * 1000003u + (uint64_t)team * 4099u + sequence * 257u +
                    (uint64_t)place;
    uint64_t draw = ledger_mix(&seed);

    return draw % 8 == 0 ? 0 : (size_t)(draw / 8 % 200);
}

static uint8_t part_byte(int team, uint32_t sequence, int place, size_t i)
{
    return (uint8_t)((size_t)team * 31 + sequence * 7 + (size_t)place * 13 + i);
}

static struct symm_relay_message *say(const struct node *n, const struct team *team,
                                      enum symm_relay_kind kind, const char *what,
                                      size_t bytes)
{
    size_t list = ((size_t)team->count * sizeof(int32_t) + 7) & ~(size_t)7;
    const uint64_t lack = sim.lack;
    struct symm_relay_message *message;

    sim.lack = 0;
    message = symm__relay_message(kind, list + bytes);
    sim.lack = lack;
    memset(message->data, 0, list + bytes);
    memcpy(message->data, team->leaders, (size_t)team->count * sizeof(int32_t));
    message->head.tag = team->tag;
    message->head.sequence = n->next[team - sim.team];
    message->head.from = message->head.rank = n->rank;
    message->head.leaders = (uint32_t)team->count;
    snprintf(message->head.what, sizeof(message->head.what), "%s", what);
    return message;
}

static void give_up(struct node *n, const struct team *team, symm_status status)
{
    static const char why[] = "a reason";
    size_t list = ((size_t)team->count * sizeof(int32_t) + 7) & ~(size_t)7;
    struct symm_relay_message *message = say(
        n, team, SYMM_RELAY_GIVE_UP, n->relay.call.part->head.what, sizeof(why) - 1);

    memcpy(message->data + list, why, sizeof(why) - 1);
    message->head.status = status;
    n->relay.call.give_up = message;
    n->given_up = true;
    n->until = sim.now + VERDICT;
    symm__relay_say(&n->relay, message);
}

static void check_data(const struct node *n, int t, uint32_t sequence)
{
    const struct symm_relay_message *all = n->relay.call.all;
    const struct team *team = &sim.team[t];
    size_t at = ((size_t)team->count * sizeof(int32_t) + 7) & ~(size_t)7;

    for (int p = 0; p < team->count; p++) {
        size_t bytes = part_bytes(t, sequence, p);
        uint64_t head[2]; /* struct symm_relay_record: place, bytes */

        if (at + sizeof(head) + bytes > all->head.bytes) {
            ledger_wrong("rank %d has too few bytes of team %d", n->rank, t);
            return;
        }
        memcpy(head, all->data + at, sizeof(head));
        at += sizeof(head);
        if ((uint32_t)head[0] != (uint32_t)p || head[1] != bytes)
            ledger_wrong("rank %d has part %u of %zu bytes for %d of %zu", n->rank,
                         (unsigned)head[0], (size_t)head[1], p, bytes);
        for (size_t i = 0; i < bytes && !sim.wrong; i++)
            if (all->data[at + i] != part_byte(t, sequence, p, i))
                ledger_wrong("rank %d has wrong bytes of team %d", n->rank, t);
        at += (bytes + 7) & ~(size_t)7;
    }
    if (at != all->head.bytes)
        ledger_wrong("rank %d has too many bytes of team %d", n->rank, t);
}

/* Has no rank there that has not died, or finalized? */
static bool host_gone(int host)
{
    for (int r = sim.first_of[host]; r < sim.first_of[host + 1]; r++)
        if (sim.node[r]->alive && !sim.node[r]->relay.leaving)
            return false;
    return true;
}

/* A host that lost the root for good decides alone; so does a leader that hears nothing. */
static void note_end(struct node *n, int t, enum end_of how)
{
    struct team *team = &sim.team[t];
    uint32_t sequence = n->next[t];
    struct result *result = &sim.result[t][sequence];
    bool torn = host_gone(sim.host_of[team->leaders[0]]);
    int place = place_in(team, n->rank);

    result->ended[place] = how;
    for (int p = 0; p < team->count; p++)
        if ((how == GO && result->ended[p] == FAIL && !torn) ||
            (how == FAIL && result->ended[p] == GO && !torn))
            ledger_wrong("team %d, number %u: rank %d %s, rank %d %s (%.*s)", t,
                         sequence, n->rank, how == GO ? "goes" : "fails",
                         team->leaders[p], how == GO ? "failed" : "went",
                         n->relay.call.fail ? (int)n->relay.call.fail->head.bytes -
                                                  (int)(team->count * 4 + 4)
                                            : 0,
                         n->relay.call.fail
                             ? (const char *)n->relay.call.fail->data + team->count * 4
                             : "");
    if (how == GO)
        check_data(n, t, sequence);
    else if (!(sim.trouble & HARMFUL))
        ledger_wrong("team %d, number %u: rank %d has no reason to %s: %s", t, sequence,
                     n->rank, how == FAIL ? "fail" : "end alone",
                     how == FAIL ? (const char *)n->relay.call.fail->data +
                                       ((size_t)team->count * 4 + 7) / 8 * 8
                                 : "");
}

double ledger_think(struct node *n)
{
    uint64_t draw = ledger_mix(&n->program);

    return draw % 4 == 0 ? (double)(draw / 4 % 1000) * 1e-4
                         : (double)(draw / 4 % 1000) * 1e-6;
}

static void call_begin(struct node *n, int t)
{
    struct team *team = &sim.team[t];
    struct symm_relay_call *call = &n->relay.call;
    int place = place_in(team, n->rank);
    size_t bytes = part_bytes(t, n->next[t], place);
    size_t list = ((size_t)team->count * sizeof(int32_t) + 7) & ~(size_t)7;
    bool other = ledger_has(MISMATCH) && ledger_mix(&n->program) % 16 == 0;
    bool failed = ledger_has(GIVE_UPS) && ledger_mix(&n->program) % 8 == 0;

    *call = (struct symm_relay_call){.state = SYMM_CALL_WAITS};
    call->part =
        say(n, team, SYMM_RELAY_PART, other ? "merge (x)" : "split (y)", bytes);
    for (size_t i = 0; i < bytes; i++)
        call->part->data[list + i] = part_byte(t, n->next[t], place, i);
    n->calling = true;
    n->given_up = false;
    n->until = sim.now + (sim.trouble & HARMFUL ? SHORT + ledger_chance() : DEADLINE);
    if (failed) {
        give_up(n, team, SYMM_ERR_NOMEM);
        return;
    }
    symm__relay_say(&n->relay, call->part);
    symm__relay_call_step(&n->relay);
}

static void call_end(struct node *n, int t)
{
    struct symm_relay_call *call = &n->relay.call;
    uint32_t next = n->next[t] + 1;

    note_end(n, t,
             call->state == SYMM_CALL_WENT     ? GO
             : call->state == SYMM_CALL_FAILED ? FAIL
                                               : ALONE);
    if (call->state == SYMM_CALL_FAILED && call->fail->head.reached >= next)
        next = call->fail->head.reached + 1;
    n->next[t] = next;
    symm__relay_drop(call->part);
    symm__relay_drop(call->all);
    symm__relay_drop(call->give_up);
    symm__relay_drop(call->fail);
    *call = (struct symm_relay_call){0};
    n->calling = false;
    n->step++;
    n->begin_at = sim.now + ledger_think(n);
    if (ledger_has(LATE) && ledger_mix(&n->program) % 16 == 0)
        n->begin_at += 0.8;
}

/* The step of the program that is this rank's next one; -1: none is left. */
int ledger_next_team(struct node *n)
{
    for (; n->step < sim.steps; n->step++) {
        int at = n->step;

        /* One in eight leaders makes two steps in the wrong order. */
        if (ledger_has(CROSSED) && (uint64_t)n->rank % 8 == sim.seed % 8 &&
            at / 2 * 2 + 1 < sim.steps)
            at ^= 1;
        if (place_in(&sim.team[sim.program[at]], n->rank) >= 0 &&
            n->next[sim.program[at]] < 4 * STEPS_MAX)
            return sim.program[at];
    }
    return -1;
}

static void program_move(struct node *n)
{
    int t = n->relay.leaving ? -1 : ledger_next_team(n);
    struct team *team;

    if (t < 0)
        return;
    team = &sim.team[t];
    if (!n->calling) {
        if (sim.now >= n->begin_at)
            call_begin(n, t);
        else
            return;
    }
    for (int p = 0; p < team->count && !n->given_up; p++)
        if (sim.host_of[team->leaders[p]] != n->host &&
            symm__relay_state(&n->relay, team->leaders[p]) == SYMM_RELAY_DIED)
            give_up(n, team, SYMM_ERR_PEER_DEAD);
    if (n->relay.call.state != SYMM_CALL_WAITS && n->relay.call.state != SYMM_CALL_HAS)
        call_end(n, t);
    else if (sim.now >= n->until && n->given_up)
        call_end(n, t);
    else if (sim.now >= n->until)
        give_up(n, team, SYMM_ERR_TIMEOUT);
}

/* ---- One turn of a rank ---------------------------------------------------------------------- */

/* While a job ends what died and what finalized on one host cannot always be told apart. */
static bool host_killed(int host)
{
    for (int r = sim.first_of[host]; r < sim.first_of[host + 1]; r++)
        if (sim.node[r]->killed)
            return true;
    return false;
}

static void check_states(struct node *n)
{
    for (int r = 0; r < sim.ranks && !sim.wrong && !n->relay.leaving; r++) {
        enum symm_relay_state state = symm__relay_state(&n->relay, r);
        const struct node *at = sim.node[r];

        if (state == SYMM_RELAY_DIED && !at->killed &&
            !(at->finalized && (host_killed(at->host) || ledger_has(LEAVE_EARLY) ||
                                (sim.trouble & HARMFUL))))
            ledger_wrong("rank %d takes rank %d for dead (it has %s)", n->rank, r,
                         at->finalized ? "finalized" : "nothing");
        if (state == SYMM_RELAY_FINALIZED && !at->finalized &&
            !(at->killed && sim.ending))
            ledger_wrong("rank %d says that rank %d has finalized (it %s)", n->rank, r,
                         at->killed ? "was killed" : "lives");
    }
}

static void plan_wake(struct node *n, double due)
{
    ledger_wake_at(n, due);
    for (struct symm_relay_connection *c = n->relay.connections; c; c = c->next) {
        struct end *e = ledger_end_of(c);

        ledger_wake_at(n, c->stage == SYMM_RELAY_OPEN && e->first ? e->first->at
                                                                  : e->closed_at);
        if (c->stage != SYMM_RELAY_OPEN)
            ledger_wake_at(n, c->at);
    }
    for (struct guest *guest = sim.guests; guest; guest = guest->next)
        if ((guest->stage == 0 && guest->host == n->host && n->relay.serving) ||
            (guest->stage == 1 && guest->from->owner == n) ||
            (guest->stage == 2 && guest->to->owner == n))
            ledger_wake_at(n, guest->at);
    if (!n->relay.leaving && ledger_next_team(n) >= 0)
        ledger_wake_at(n, n->calling ? n->until : n->begin_at);
    if (n->relay.leaving)
        ledger_wake_at(n, fmin(n->relay.leave_by, sim.now + 1e-3));
}

/* What a relay of this host said before it went is read before its hang-up is seen: the socket
 * closes later, and on one host nothing is under way. */
static void hang_ups(struct node *n)
{
    struct pollfd polls[LOCAL_MAX] = {{0}};
    struct symm_relay_connection *c =
        symm__relay_find(&n->relay, SYMM_RELAY_TO_RELAY, n->rank);

    if (c && !ledger_end_of(c)->other && ledger_end_of(c)->first)
        return;

    for (int i = 0; i < n->relay.config.local_size; i++) {
        const struct node *peer = sim.node[n->relay.config.local[i]];

        if (peer->alive)
            continue;
        if (peer->gone_at + n->seen[i] <= sim.now)
            polls[i].revents = POLLHUP;
        else
            ledger_wake_at(n, peer->gone_at + n->seen[i]);
    }
    symm__relay_take_hang_ups(&n->relay, polls);
}

/* Does a connection that this rank made have yet to be taken over? What was sent over it is
 * heard. */
static bool lingers(const struct node *n)
{
    const struct guest *guest = sim.guests;

    while (guest && (guest->from->owner != n || guest->stage != 2))
        guest = guest->next;
    return guest && sim.now < n->relay.leave_by;
}

static void turn(struct node *n)
{
    double due = sim.now + 10;

    n->wake = INFINITY;
    if (!n->alive)
        return;
    if (n->frozen_until > sim.now) {
        n->wake = n->frozen_until;
        return;
    }
    if (++sim.turns > TURNS_MAX)
        ledger_wrong("rank %d turns without end", n->rank);
    ledger_connections_move(n);
    ledger_guests_move(n);
    symm__relay_sweep(&n->relay);
    hang_ups(n);
    program_move(n);
    symm__relay_tend(&n->relay, &due);
    check_states(n);
    if (n->dying) {
        ledger_node_kill(n);
        return;
    }
    if (symm__relay_may_stop(&n->relay) && !lingers(n)) {
        ledger_node_go(n);
        return;
    }
    plan_wake(n, due);
}

void ledger_run_until(double until)
{
    while (!sim.wrong) {
        struct node *first = NULL;

        for (int r = 0; r < sim.ranks; r++)
            if (!first || sim.node[r]->wake < first->wake)
                first = sim.node[r];
        if (first->wake > until)
            break;
        if (first->wake > sim.now)
            sim.now = first->wake;
        turn(first);
    }
    if (until > sim.now)
        sim.now = until;
}
