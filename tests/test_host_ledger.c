/* SPDX-License-Identifier: MIT */
/*
 * test_host_ledger.c - the tree of hosts by simulation: roles, ledger, news and boards of all
 * ranks of a job run in one process, in virtual time, over simulated connections.
 *
 * A case is made from its number. Hosts have one to three ranks. Teams of some ranks make
 * exchanges one after the other, several at once. Meanwhile connections are lost with what they
 * carry, relays are killed or finalize, processes stop for a while; in some cases also members
 * are killed, finalize early, are late, give up, or make another step. Some relays are killed while
 * they tell how an exchange has ended. In cases of their own one in eight allocations fails for a
 * while, which is no reason to fail, or to wait for a deadline.
 * Claims, for each case:
 *   - of one exchange no leader leaves with GO while another is told FAIL, unless all ranks of
 *     the root's host have died or finalized;
 *   - with GO each leader has exactly the bytes that each leader gave;
 *   - each exchange ends by its deadline and a second; without a reason to fail it ends with GO,
 *     long before the deadline;
 *   - no rank is said to have died that was not killed, or to have finalized that did not (where
 *     hosts finalize while others lose connections, the two cannot always be told apart);
 *   - a relay that was connected to the last relay of a host takes the host for dead only if that
 *     one was killed (if no connection is lost, as it is without memory for a message), for
 *     finalized only if it has finalized;
 *   - who is killed is known to have gone wherever a rank still lives, once all is quiet (without
 *     the trouble that gives a reason to fail);
 *   - what one rank that lives has read on a board (relay/board.c) all that live have, once all is
 *     quiet, also if its writer was killed in the midst of it;
 *   - nothing is left in memory (with AddressSanitizer).
 * SYMM_TEST_CASES: how many; SYMM_TEST_SEED: the first, to replay one that failed.
 * SYMM_TEST_LONG=1: 100,000 cases, five minutes of the processor.
 */
/* ctest: cost 8
 * ctest: load 2
 * ctest: lack
 * ctest: no-threads */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h" /* HARNESS_SLOW */
#include "ledger_sim.h"
#include "util/clock.h"

#include <cmocka.h>

/* ---- In place of the library's functions ----------------------------------------------------- */

/* The library's clock is the simulation's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = (time_t)sim.now;
    now->tv_nsec =
        (long)((sim.now - (double)now->tv_sec) * 1e9) + 1; /* never before a wake */
    return 0;
}

static bool lacks(void)
{
    return sim.lack != 0 && sim.now < sim.calm && ledger_mix(&sim.lack) % 8 == 0;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return lacks() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return lacks() ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes)
{
    return lacks() ? NULL : __real_realloc(block, bytes);
}

void *ledger_room(size_t bytes)
{
    return __real_calloc(1, bytes);
}

void symm__relay_wake(struct symm_relay *relay)
{
    (void)relay;
}

struct symm_relay_connection *symm__relay_find(struct symm_relay *relay,
                                               enum symm_relay_end end, int id)
{
    struct symm_relay_connection *c = relay->connections;

    while (c && (c->end != end || c->id != id || c->doomed))
        c = c->next;
    return c;
}

void symm__relay_want(struct symm_relay *relay, enum symm_relay_end end, int id,
                      double at)
{
    struct symm_relay_connection *c = symm__relay_find(relay, end, id);

    if (!c) {
        struct end *e = ledger_end_make(ledger_node_of(relay), end, id);

        ledger_end_add(e);
        c = &e->c;
    } else if (c->stage != SYMM_RELAY_WAITING || c->since > 0 || c->at <= at) {
        return;
    }
    c->at = at;
    ledger_wake_at(ledger_node_of(relay), at);
}

/* A relay that tells how an exchange has ended may be killed before all have heard it. */
static void count_verdict(struct node *n, enum symm_relay_kind kind)
{
    bool may_die =
        sim.member[n->rank] ? sim.trouble & HARMFUL : ledger_has(KILL_RELAYS);

    if ((kind == SYMM_RELAY_GO || kind == SYMM_RELAY_FAIL) && sim.verdicts > 0 &&
        n->relay.serving && may_die && sim.now < sim.calm)
        n->dying = --sim.verdicts == 0;
}

void symm__relay_queue(struct symm_relay_connection *c,
                       struct symm_relay_message *message)
{
    struct end *to = ledger_end_of(c)->other;
    struct packet *packet;

    if (c->stage != SYMM_RELAY_OPEN || c->doomed || !to)
        return;
    if (lacks()) {
        symm__relay_doom(c);
        return;
    }
    count_verdict(ledger_end_of(c)->owner, message->head.kind);
    packet = ledger_room(sizeof(*packet));
    packet->message = symm__relay_keep(message);
    packet->at = sim.now + ledger_latency_of(c);
    if (packet->at < to->last_at)
        packet->at = to->last_at;
    to->last_at = packet->at;
    if (to->last)
        to->last->next = packet;
    else
        to->first = packet;
    to->last = packet;
    ledger_wake_at(to->owner, packet->at);
}

bool symm__relay_write_out(struct symm_relay_connection *c)
{
    for (struct packet *packet =
             ledger_end_of(c)->other ? ledger_end_of(c)->other->first : NULL;
         packet; packet = packet->next)
        packet->written = true;
    return true;
}

void symm__relay_doom(struct symm_relay_connection *c)
{
    c->doomed = true;
    ledger_wake_at(ledger_end_of(c)->owner, sim.now);
}

bool symm__relay_owes(const struct symm_relay *relay)
{
    (void)relay;
    return false;
}

bool symm__relay_is_adopting(const struct symm_relay *relay)
{
    for (const struct guest *guest = sim.guests; guest; guest = guest->next)
        if (guest->stage == 2 && &guest->to->owner->relay == relay)
            return true;
    return false;
}

bool symm__relay_accept_begin(struct symm_relay *relay)
{
    (void)relay;
    return true;
}

/* No connection is out of reach for long: what is given up for that is not simulated. */
bool symm__relay_report_cuts(struct symm_relay *relay)
{
    (void)relay;
    return false;
}

/* ---- Trouble ------------------------------------------------------------------------------- */

static struct node *any_node(bool member)
{
    for (int tries = 0; tries < 20; tries++) {
        struct node *n = sim.node[ledger_below(sim.ranks)];

        if (n->alive && sim.member[n->rank] == member)
            return n;
    }
    return NULL;
}

static void cut(void)
{
    struct node *n = sim.node[ledger_below(sim.ranks)];
    int skip = ledger_below(4);

    for (struct symm_relay_connection *c = n->relay.connections; n->alive && c;
         c = c->next) {
        struct end *e = ledger_end_of(c), *other = e->other;

        if (!other || c->end == SYMM_RELAY_TO_RELAY || c->end == SYMM_RELAY_OF_RANK ||
            skip-- > 0)
            continue;
        ledger_lose_some(e);
        ledger_lose_some(other);
        ledger_close_side(e);
        e->closed_at = sim.now + ledger_latency();
        ledger_wake_at(n, e->closed_at);
        return;
    }
}

/* One between the root and others of a team, if there is one, else any. */
static int host_to_kill(void)
{
    const struct team *team = &sim.team[ledger_below(sim.teams)];
    int inner = (team->count - 2) / SYMM_TREE_ARITY;

    return sim.host_of[inner > 0 ? team->leaders[1 + ledger_below(inner)]
                                 : ledger_below(sim.ranks)];
}

static void trouble_one(void)
{
    enum trouble kind = 1u << ledger_below(11);
    struct node *n;
    int host;

    if (!ledger_has(kind))
        return;
    switch (kind) {
    case CUTS:
        cut();
        break;
    case STOPS:
        sim.node[ledger_below(sim.ranks)]->frozen_until =
            sim.now + 0.3 * ledger_chance();
        break;
    case KILL_RELAYS:
        n = any_node(false);
        if (n)
            ledger_node_kill(n);
        break;
    case LEAVE_EARLY:
        n = any_node(false);
        if (n)
            ledger_node_leave(n);
        break;
    case KILL_MEMBERS:
        n = ledger_below(4) == 0 ? any_node(true) : NULL;
        if (n)
            ledger_node_kill(n);
        break;
    case MEMBERS_LEAVE:
        n = ledger_below(4) == 0 ? any_node(true) : NULL;
        if (n && !n->calling)
            ledger_node_leave(n);
        break;
    case KILL_HOSTS:
        host = ledger_below(8) == 0 ? host_to_kill() : -1;
        for (int r = host < 0 ? 0 : sim.first_of[host];
             host >= 0 && r < sim.first_of[host + 1]; r++)
            ledger_node_kill(sim.node[r]);
        break;
    default:
        break; /* in the programs */
    }
}

/* ---- A case ---------------------------------------------------------------------------------- */

static void make_hosts(void)
{
    int size = ledger_below(20);

    sim.hosts = size == 0  ? 100
                : size < 4 ? 10 + ledger_below(31)
                           : 2 + ledger_below(9);
    sim.ranks = 0;
    for (int h = 0; h < sim.hosts; h++) {
        int local = 1 + ledger_below(LOCAL_MAX);

        sim.first_of[h] = sim.ranks;
        for (int i = 0; i < local; i++)
            sim.host_of[sim.ranks++] = h;
        snprintf(sim.at[h].name, sizeof(sim.at[h].name), "host%d", h);
    }
    sim.first_of[sim.hosts] = sim.ranks;
}

static void make_node(int rank)
{
    struct node *n = calloc(1, sizeof(*n));
    struct symm_relay *relay = &n->relay;
    int host = sim.host_of[rank], first = sim.first_of[host];

    sim.node[rank] = n;
    n->rank = rank;
    n->host = host;
    n->place = rank - first;
    n->alive = true;
    n->program = ledger_mix(&sim.random);
    n->begin_at = sim.now + ledger_think(n);
    for (int h = 0; h < sim.hosts; h++)
        n->met[h] = -1;
    for (int i = 0; i < LOCAL_MAX; i++)
        n->seen[i] = 1e-4 + ledger_latency();
    relay->config =
        (struct symm_relay_config){.rank = rank,
                                   .ranks = sim.ranks,
                                   .host = host,
                                   .hosts = sim.hosts,
                                   .host_of = sim.host_of,
                                   .at = sim.at,
                                   .local = sim.local + first,
                                   .local_fd = sim.local_fd,
                                   .local_size = sim.first_of[host + 1] - first,
                                   .listener = -1};
    relay->place = n->place;
    pthread_cond_init(&relay->changed, NULL);
    assert_true(symm__relay_roles_open(relay));
    symm__relay_take_hang_ups(relay, NULL);
}

static void make_teams(void)
{
    sim.teams = 1 + ledger_below(TEAMS_MAX);
    for (int t = 0; t < sim.teams; t++) {
        struct team *team = &sim.team[t];
        bool all = ledger_below(3) == 0;

        team->tag = (uint64_t)t + 77;
        do {
            team->count = 0;
            for (int h = 0; h < sim.hosts; h++)
                if (all || ledger_below(2) == 0)
                    team->leaders[team->count++] =
                        sim.first_of[h] +
                        ledger_below(sim.first_of[h + 1] - sim.first_of[h]);
        } while (team->count < 2);
        for (int p = 0; p < team->count; p++)
            sim.member[team->leaders[p]] = true;
    }
    sim.steps = 2 + ledger_below(STEPS_MAX - 1);
    for (int i = 0; i < sim.steps; i++)
        sim.program[i] = ledger_below(sim.teams);
}

static void make(uint64_t seed)
{
    uint64_t draw = seed;

    memset(&sim, 0, sizeof(sim));
    sim.seed = seed;
    sim.random = ledger_mix(&draw);
    sim.now = 1000;
    sim.trouble = (unsigned)ledger_mix(&sim.random) & 2047;
    if (ledger_below(3) > 0) /* most without a reason to fail */
        sim.trouble &= ~HARMFUL;
    else if (ledger_below(2) == 0)
        sim.trouble &=
            (1u << ledger_below(11)) | (unsigned)(CUTS | KILL_RELAYS | LEAVE_EARLY);
    sim.verdicts = ledger_mix(&draw) % 2 == 0 ? 1 + (int)(ledger_mix(&draw) % 16) : 0;
    make_hosts();
    make_teams();
    for (int r = 0; r < sim.ranks; r++)
        sim.local[r] = r;
    for (int r = 0; r < sim.ranks; r++)
        make_node(r);
}

static bool busy(void)
{
    for (int r = 0; r < sim.ranks; r++)
        if (sim.node[r]->alive && !sim.node[r]->relay.leaving &&
            ledger_next_team(sim.node[r]) >= 0)
            return true;
    return false;
}

/* Wherever a rank lives all deaths are known. */
static void check_deaths(void)
{
    for (int at = 0; at < sim.ranks; at++)
        for (int r = 0; r < sim.ranks && sim.node[at]->alive; r++)
            if (sim.node[r]->killed &&
                symm__relay_state(&sim.node[at]->relay, r) == SYMM_RELAY_ALIVE)
                ledger_wrong("rank %d does not know that rank %d has died", at, r);
}

/* ---- Boards ---------------------------------------------------------------------------------- */

#define BOARDS 2

/* Some rank writes, and may be killed before all of it is sent. */
static void write_one(void)
{
    struct node *n = sim.node[ledger_below(sim.ranks)];
    uint64_t tag = 5 + (uint64_t)ledger_below(BOARDS);

    if (!n->alive || n->relay.leaving || n->frozen_until > sim.now)
        return;
    n->written++;
    if (symm__relay_write(&n->relay, tag, n->written, &n->written,
                          sizeof(n->written)) != SYMM_OK &&
        !ledger_has(LACKS))
        ledger_wrong("rank %d cannot write", n->rank);
}

/* [ranks]: the newest versions that a rank knows. */
static void take_version(void *user, int rank, const void *bytes, size_t count)
{
    uint32_t *version = user;

    if (count == sizeof(*version))
        memcpy(&version[rank], bytes, sizeof(*version));
}

static void check_boards(void)
{
    static uint32_t here[RANKS_MAX], there[RANKS_MAX];

    for (uint64_t tag = 5; tag < 5 + BOARDS; tag++) {
        int first = -1;

        for (int at = 0; at < sim.ranks; at++) {
            if (!sim.node[at]->alive || sim.node[at]->relay.leaving)
                continue;
            memset(there, 0, sizeof(there));
            (void)symm__relay_read(&sim.node[at]->relay, tag, 0, take_version, there);
            if (first < 0)
                memcpy(here, there, sizeof(here));
            first = first < 0 ? at : first;
            for (int r = 0; r < sim.ranks; r++)
                if (here[r] != there[r])
                    ledger_wrong(
                        "board %d: of rank %d's cells rank %d knows number %u, rank "
                        "%d number %u",
                        (int)tag, r, first, here[r], at, there[r]);
        }
    }
}

static void run_case(uint64_t seed, unsigned trouble)
{
    double limit, pace;

    make(seed);
    sim.trouble |= trouble;
    pace = ledger_below(3) == 0 ? 0.01 : ledger_below(2) == 0 ? 0.002 : 0.0005;
    sim.calm = sim.now + 100 * pace * ledger_chance();
    sim.lack = ledger_has(LACKS) ? seed : 0;
    ledger_run_until(sim.now + 0.02 * ledger_chance());
    while (sim.now < sim.calm && !sim.wrong) {
        trouble_one();
        if (ledger_below(8) == 0)
            write_one();
        ledger_run_until(sim.now + pace * ledger_chance());
    }
    limit =
        sim.now + (sim.trouble & HARMFUL ? STEPS_MAX * (SHORT + 1 + VERDICT + 1) : 5);
    while (busy() && !sim.wrong && sim.now < limit)
        ledger_run_until(sim.now + 0.05);
    if (busy())
        for (int r = 0; r < sim.ranks; r++)
            if (sim.node[r]->alive && !sim.node[r]->relay.leaving &&
                ledger_next_team(sim.node[r]) >= 0)
                ledger_wrong("rank %d is still in team %d, number %u, step %d", r,
                             ledger_next_team(sim.node[r]),
                             sim.node[r]->next[ledger_next_team(sim.node[r])],
                             sim.node[r]->step);
    ledger_run_until(sim.now + 1);
    if (!(sim.trouble & HARMFUL))
        check_deaths();
    check_boards();
    for (int r = 0; r < sim.ranks && !sim.wrong; r++) {
        ledger_node_leave(sim.node[(r * 7 + (int)seed % 7) % sim.ranks]);
        ledger_run_until(sim.now + (ledger_below(2) ? 0.003 * ledger_chance() : 0));
    }
    for (int r = 0; r < sim.ranks; r++)
        ledger_node_leave(sim.node[r]);
    ledger_run_until(sim.now + 1.1);
    for (int r = 0; r < sim.ranks; r++)
        if (sim.node[r]->alive)
            ledger_wrong("rank %d does not end", r);
    if (sim.wrong)
        printf("case %llu (trouble %#x, %d hosts, %d ranks, %d teams): %s\n",
               (unsigned long long)seed, sim.trouble, sim.hosts, sim.ranks, sim.teams,
               sim.wrong);
    fflush(stdout);
    for (int r = 0; r < sim.ranks; r++)
        if (sim.node[r]->alive)
            ledger_node_go(sim.node[r]);
    for (int r = 0; r < sim.ranks; r++)
        free(sim.node[r]);
}

static uint64_t number_of(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

/* Cases that failed once: relays that die while they tell a verdict, a LEAVE before a GO, two
 * exchanges that a new relay took for a deadlock, hosts that attach late. */
static void test_failed_once(void **state)
{
    static const uint64_t seeds[] = {2144,    3681,    7301,    200853,
                                     1002389, 1003084, 1003432, 1005817,
                                     1006665, 1008369, 1009652, 1023164};
    int bad = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        run_case(seeds[i], 0);
        bad += sim.wrong != NULL;
    }
    assert_int_equal(bad, 0);
}

static void run_cases(unsigned trouble)
{
    uint64_t most = number_of("SYMM_TEST_LONG", 0) ? 100000 : trouble ? 300 : 800;
    uint64_t count = number_of("SYMM_TEST_CASES", HARNESS_SLOW ? 150 : most);
    uint64_t first = number_of("SYMM_TEST_SEED", 1);
    unsigned long turns = 0;
    int bad = 0;

    for (uint64_t seed = first; seed < first + count && bad < 10; seed++) {
        run_case(seed, trouble);
        bad += sim.wrong != NULL;
        turns += sim.turns;
    }
    printf("%llu cases, %lu turns\n", (unsigned long long)count, turns);
    assert_int_equal(bad, 0);
}

static void test_cases(void **state)
{
    (void)state;
    run_cases(0);
}

static void test_lack(void **state)
{
    (void)state;
    run_cases(LACKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failed_once),
                                       cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_lack)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
