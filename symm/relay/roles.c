/* SPDX-License-Identifier: MIT */
/* roles.c - what a rank does with messages, as its host's relay or as one of the others, and when
 * it becomes the relay. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "relay/private.h"
#include "util/clock.h"

#define AGAIN_SECONDS 0.002 /* after a connection was lost */
#define PROBE_SECONDS 0.02 /* for a higher host to connect again, before it is probed */
#define LOOK_SECONDS  0.1  /* between two searches for hosts that cannot be reached */
#define LACK_SECONDS  0.01 /* between two tries to have memory */
#define HEARD_SECONDS 0.05 /* for a rank that has connected to send all it has */

/* The open connection to or from that host; NULL: none. */
static struct symm_relay_connection *to_host_of(struct symm_relay *relay, int host)
{
    return symm__relay_find(
        relay, host < symm__relay_host(relay) ? SYMM_RELAY_TO_HOST : SYMM_RELAY_OF_HOST,
        host);
}

/* ---- This rank's own exchange -------------------------------------------------------- */

static void say_have(struct symm_relay *relay)
{
    const struct symm_relay_head *part = &relay->call.part->head;
    struct symm_relay_message *have =
        symm__relay_step(SYMM_RELAY_HAVE, part->tag, part->sequence);

    if (!have) {
        relay->call.have_due = true;
        return;
    }
    have->head.from = relay->config.rank;
    symm__relay_say(relay, have);
    symm__relay_drop(have);
}

/* Is the message of the exchange that this rank waits for? */
static bool is_call(const struct symm_relay *relay,
                    const struct symm_relay_message *message)
{
    const struct symm_relay_call *call = &relay->call;

    return (call->state == SYMM_CALL_WAITS || call->state == SYMM_CALL_HAS) &&
           call->part->head.tag == message->head.tag &&
           call->part->head.sequence == message->head.sequence;
}

/* Takes ALL, GO or FAIL that the relay has for this rank. */
static void call_hear(struct symm_relay *relay, struct symm_relay_message *message)
{
    struct symm_relay_call *call = &relay->call;

    if (!is_call(relay, message))
        return;
    if (message->head.kind == SYMM_RELAY_ALL && call->state == SYMM_CALL_WAITS) {
        call->all = symm__relay_keep(message);
        call->state = SYMM_CALL_HAS;
        call->have_due = true;
    } else if (message->head.kind == SYMM_RELAY_GO &&
               (call->state == SYMM_CALL_HAS || call->failed)) {
        call->state = SYMM_CALL_WENT;
    } else if (message->head.kind == SYMM_RELAY_FAIL) {
        call->fail = symm__relay_keep(message);
        call->state = SYMM_CALL_FAILED;
    }
    pthread_cond_signal(&relay->changed);
}

void symm__relay_call_say(struct symm_relay *relay)
{
    struct symm_relay_call *call = &relay->call;

    if (call->state != SYMM_CALL_WAITS && call->state != SYMM_CALL_HAS)
        return;
    if (call->part && !call->failed)
        symm__relay_say(relay, call->part);
    if (call->state == SYMM_CALL_HAS)
        call->have_due = true;
    if (call->give_up &&
        (call->state == SYMM_CALL_WAITS || call->state == SYMM_CALL_HAS))
        symm__relay_say(relay, call->give_up);
}

void symm__relay_call_step(struct symm_relay *relay)
{
    const bool say = relay->call.say_due, have = relay->call.have_due;

    relay->call.say_due = false;
    if (say)
        symm__relay_call_say(relay);
    if (!have && !relay->call.have_due)
        return;
    relay->call.have_due = false;
    if (relay->call.state == SYMM_CALL_HAS)
        say_have(relay);
}

void symm__relay_say(struct symm_relay *relay, struct symm_relay_message *message)
{
    struct symm_relay_connection *c;

    if (relay->serving && message->head.kind == SYMM_RELAY_NOTICE) {
        symm__relay_spread(relay, NULL, message);
    } else if (relay->serving) {
        if (symm__ledger_take(&relay->ledger, -1, message) == SYMM_LEDGER_LACKS)
            relay->call.say_due = true;
    } else {
        c = symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);
        if (c)
            symm__relay_queue(c, message);
    }
}

/* ---- The ledger's callbacks (ledger.h) ------------------------------------------------- */

static void to_host(void *user, int host, struct symm_relay_message *message)
{
    struct symm_relay *relay = user;
    struct symm_relay_connection *c = to_host_of(relay, host);

    if (c)
        symm__relay_queue(c, message);
    else if (host < symm__relay_host(relay) && !relay->gone[host])
        symm__relay_want(relay, SYMM_RELAY_TO_HOST, host, symm__now());
}

static void to_leader(void *user, int leader, struct symm_relay_message *message)
{
    struct symm_relay *relay = user;
    struct symm_relay_connection *c;

    if (leader == relay->config.rank) {
        call_hear(relay, message);
        return;
    }
    c = symm__relay_find(relay, SYMM_RELAY_OF_RANK, leader);
    if (c)
        symm__relay_queue(c, message);
}

static const char *absent(void *user, int rank)
{
    const struct symm_relay *relay = user;

    switch (symm__relay_state(relay, rank)) {
    case SYMM_RELAY_DIED:
        return "has died";
    case SYMM_RELAY_FINALIZED:
        return "has finalized its context";
    default:
        return NULL;
    }
}

/* Messages that are queued in one turn go out in any order among connections. The next relay must
 * have the verdict first, so it is written at once. */
static bool keep_verdict(void *user, struct symm_relay_message *verdict, int *kept)
{
    struct symm_relay *relay = user;

    for (int i = *kept > 0 ? *kept - 1 : 0; i < relay->config.local_size; i++) {
        struct symm_relay_connection *c =
            symm__relay_find(relay, SYMM_RELAY_OF_RANK, relay->config.local[i]);

        if (!symm__relay_lives_on(relay, i)) {
            *kept = i + 1;
            continue;
        }
        if (!c || c->stage != SYMM_RELAY_OPEN || c->doomed) {
            *kept = i; /* written again when the rank has connected again */
            return false;
        }
        if (*kept == i)
            symm__relay_queue(c, verdict);
        if (c->doomed)
            return false;
        *kept = i + 1;
        if (!symm__relay_write_out(c))
            return false;
    }
    return true;
}

static bool heard(void *user, int leader)
{
    struct symm_relay *relay = user;
    const struct symm_relay_connection *c =
        symm__relay_find(relay, SYMM_RELAY_OF_RANK, leader);

    return leader == relay->config.rank || (c && symm__now() - c->at >= HEARD_SECONDS);
}

static const char *host_name(void *user, int host)
{
    const struct symm_relay *relay = user;

    return relay->config.at[host].name;
}

static const char *hint(void *user)
{
    struct symm_relay *relay = user;

    relay->hint[0] = '\0';
    if (relay->acceptor.lacked)
        snprintf(relay->hint, sizeof(relay->hint),
                 " rank %d lacked descriptors for connections (ulimit -n)",
                 relay->config.rank);
    else if (relay->acceptor.refusals > 0)
        snprintf(relay->hint, sizeof(relay->hint), " %lu connections were refused",
                 relay->acceptor.refusals);
    return relay->hint;
}

bool symm__relay_roles_open(struct symm_relay *relay)
{
    const size_t hosts = (size_t)relay->config.hosts;

    relay->gone = calloc(hosts, sizeof(*relay->gone));
    relay->left = calloc(hosts, sizeof(*relay->left));
    relay->silent = calloc(hosts, sizeof(*relay->silent));
    relay->changes = calloc(hosts, sizeof(*relay->changes));
    relay->connected = calloc(hosts, sizeof(*relay->connected));
    relay->state = calloc((size_t)relay->config.ranks, sizeof(*relay->state));
    relay->hung_up = calloc((size_t)relay->config.local_size, sizeof(*relay->hung_up));
    relay->spare = symm__relay_message(SYMM_RELAY_NOTICE, SYMM_ERROR_BYTES);
    relay->ledger.host = symm__relay_host(relay);
    relay->ledger.host_of = relay->config.host_of;
    relay->ledger.ranks = relay->config.ranks;
    relay->ledger.hosts = relay->config.hosts;
    relay->ledger.to_host = to_host;
    relay->ledger.to_leader = to_leader;
    relay->ledger.absent = absent;
    relay->ledger.keep = keep_verdict;
    relay->ledger.heard = heard;
    relay->ledger.host_name = host_name;
    relay->ledger.hint = hint;
    relay->ledger.user = relay;
    return relay->gone && relay->left && relay->silent && relay->changes &&
           relay->connected && relay->state && relay->hung_up && relay->spare;
}

void symm__relay_roles_close(struct symm_relay *relay)
{
    symm__ledger_close(&relay->ledger);
    symm__relay_drop(relay->call.part);
    symm__relay_drop(relay->call.all);
    symm__relay_drop(relay->call.give_up);
    symm__relay_drop(relay->call.fail);
    for (unsigned i = 0; i < SYMM_RELAY_NOTICES; i++)
        symm__relay_drop(relay->news[i]);
    symm__relay_drop(relay->spare);
    symm__relay_boards_close(relay);
    free(relay->gone);
    free(relay->left);
    free(relay->silent);
    free(relay->changes);
    free(relay->connected);
    free(relay->state);
    free(relay->hung_up);
}

/* The socket of the rank at that place has hung up: without LEAVE it has died. */
static void note_hang_up(struct symm_relay *relay, int place)
{
    const int rank = relay->config.local[place];

    relay->hung_up[place] = true;
    if (relay->serving && symm__relay_state(relay, rank) == SYMM_RELAY_ALIVE)
        symm__relay_rank_died(relay, rank);
}

void symm__relay_saw_death(struct symm_relay *relay, int rank)
{
    pthread_mutex_lock(&relay->lock);
    for (int i = 0; i < relay->config.local_size && relay->serving; i++)
        if (relay->config.local[i] == rank && i != relay->place)
            note_hang_up(relay, i);
    pthread_mutex_unlock(&relay->lock);
}

/* ---- Connections -------------------------------------------------------------------------- */

static void queue_outcome(void *user, struct symm_relay_message *outcome)
{
    if (outcome)
        symm__relay_queue(user, outcome);
    else
        symm__relay_restart(user);
}

void symm__relay_opened(struct symm_relay *relay, struct symm_relay_connection *c)
{
    struct symm_relay_connection *probe;

    if (c->end == SYMM_RELAY_TO_HOST || c->end == SYMM_RELAY_OF_HOST) {
        relay->changes[c->id] = false;
        relay->connected[c->id] = true;
    }
    switch (c->end) {
    case SYMM_RELAY_TO_RELAY:
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        symm__relay_send_news(relay, c);
        symm__relay_call_say(relay);
        if (relay->leaving)
            symm__relay_leave_begin(relay);
        break;
    case SYMM_RELAY_OF_RANK:
        symm__ledger_verdicts(&relay->ledger, queue_outcome, c);
        symm__relay_send_news(relay, c);
        symm__relay_send_left(relay, c);
        break;
    case SYMM_RELAY_TO_HOST:
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        symm__ledger_resend(&relay->ledger, c->id);
        symm__relay_send_news(relay, c);
        break;
    default:
        symm__relay_send_news(relay, c);
        probe = symm__relay_find(relay, SYMM_RELAY_PROBE, c->id);
        if (probe)
            symm__relay_doom(probe);
    }
    /* Before LEAVE, by which the host would end these exchanges for another reason. */
    if (c->end == SYMM_RELAY_OF_HOST) {
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        symm__ledger_failures(&relay->ledger, c->id, queue_outcome, c);
    }
    if (relay->leaving && relay->serving && c->end == SYMM_RELAY_OF_RANK)
        symm__relay_queue_leave(c, relay->config.rank, symm__relay_has_untold(relay));
    else if (relay->leaving && relay->serving && c->end != SYMM_RELAY_PROBE)
        symm__relay_queue_plain(c, SYMM_RELAY_LEAVE, relay->config.rank,
                                symm__relay_has_successor(relay));
}

bool symm__relay_has_left(const struct symm_relay *relay, int host)
{
    /* A host that was connected would have sent LEAVE. At a job's end one that never was may have
     * left without this one hearing of it. */
    return relay->changes[host] || (!relay->connected[host] && relay->any_left);
}

void symm__relay_lost(struct symm_relay *relay, enum symm_relay_end end, int id)
{
    double now = symm__now();
    bool of_host = end != SYMM_RELAY_TO_RELAY && end != SYMM_RELAY_OF_RANK;

    if (relay->leaving && end != SYMM_RELAY_TO_RELAY) {
        /* A host closes the connection after this relay's LEAVE, without a LEAVE of its own. */
        if (of_host)
            relay->changes[id] = true;
        return;
    }
    if (of_host && !relay->gone[id] && !relay->changes[id])
        symm__relay_settle(relay);
    if (end == SYMM_RELAY_TO_RELAY && !relay->serving)
        symm__relay_want(relay, end, id, now + AGAIN_SECONDS);
    else if (end == SYMM_RELAY_TO_HOST && !relay->gone[id])
        symm__relay_want(relay, end, id, now + AGAIN_SECONDS);
    else if (end == SYMM_RELAY_OF_HOST && symm__relay_is_missing(relay, id))
        symm__relay_want(relay, SYMM_RELAY_PROBE, id, now + PROBE_SECONDS);
}

void symm__relay_sweep(struct symm_relay *relay)
{
    struct symm_relay_connection **at = &relay->connections;

    while (*at) {
        struct symm_relay_connection *c = *at;
        enum symm_relay_end end = c->end;
        bool was_open = c->stage == SYMM_RELAY_OPEN;
        int id = c->id;

        if (!c->doomed) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        symm__relay_connection_free(relay, c);
        if (was_open) {
            symm__relay_lost(relay, end, id);
            at = &relay->connections; /* the list may have changed */
        }
    }
}

/* False: refused. Without memory the connection begins again, and its other end sends again. */
static bool give_to_ledger(struct symm_relay *relay, struct symm_relay_connection *c,
                           int from, struct symm_relay_message *message)
{
    const enum symm_ledger_taken taken =
        symm__ledger_take(&relay->ledger, from, message);

    if (taken == SYMM_LEDGER_LACKS)
        symm__relay_restart(c);
    return taken != SYMM_LEDGER_REFUSED;
}

bool symm__relay_hear(struct symm_relay *relay, struct symm_relay_connection *c,
                      struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;

    switch (head->kind) {
    case SYMM_RELAY_NOTICE:
    case SYMM_RELAY_DEAD:
    case SYMM_RELAY_GONE:
    case SYMM_RELAY_CELL:
        return symm__relay_hear_news(relay, c, message);
    case SYMM_RELAY_LEAVE:
        return symm__relay_hear_leave(relay, c, message);
    default:
        break;
    }
    if (c->end == SYMM_RELAY_TO_RELAY) {
        symm__ledger_know(&relay->ledger,
                          message); /* for when this rank is the relay */
        call_hear(relay, message);
        return true;
    }
    if (c->end == SYMM_RELAY_OF_RANK && head->kind == SYMM_RELAY_GO)
        return give_to_ledger(relay, c, symm__relay_host(relay), message);
    if (c->end == SYMM_RELAY_OF_RANK)
        return head->from == c->id && give_to_ledger(relay, c, -1, message);
    return give_to_ledger(relay, c, c->id, message);
}

/* ---- Becoming the relay -------------------------------------------------------------------- */

static void begin_to_serve(struct symm_relay *relay)
{
    struct symm_relay_connection *c =
        symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);

    double now = symm__now();

    if (!symm__relay_accept_begin(relay)) { /* the next turn tries again */
        relay->lacks = true;
        return;
    }
    relay->serving = true;
    relay->probe_at = now + SYMM_RELAY_EXPECT;
    relay->announce_at = now + SYMM_RELAY_ANNOUNCE;
    symm__relay_settle(relay);
    if (c)
        symm__relay_doom(c);
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];

        if (relay->hung_up[i] && symm__relay_state(relay, rank) == SYMM_RELAY_ALIVE)
            symm__relay_rank_died(relay, rank);
        if (i < relay->place) /* a rank that finalized has told the neighbours */
            relay->after_death = symm__relay_state(relay, rank) != SYMM_RELAY_FINALIZED;
    }
    /* Nor do the neighbours know what this rank has reported to a relay that died. */
    relay->after_death = relay->after_death || relay->untold || relay->news_count > 0;
    symm__relay_call_say(relay);
    if (relay->leaving)
        symm__relay_leave_begin(relay);
}

void symm__relay_take_hang_ups(struct symm_relay *relay, const struct pollfd *polls)
{
    bool lowest = true;

    for (int i = 0; i < relay->config.local_size; i++) {
        if (i != relay->place && !relay->hung_up[i] && polls &&
            polls[i].revents & (POLLHUP | POLLERR | POLLNVAL))
            note_hang_up(relay, i);
        lowest = lowest && (i >= relay->place || relay->hung_up[i]);
    }
    if (lowest && !relay->serving)
        begin_to_serve(relay);
}

/* ---- Each turn ------------------------------------------------------------------------------ */

/* *due: at the latest `at`. */
static void due_by(double *due, double at)
{
    if (at < *due)
        *due = at;
}

/* The tree of the world: connects to the host above, and probes hosts below that have not
 * connected. */
static void tend_world_tree(struct symm_relay *relay, double now, double *due)
{
    int above;

    if (relay->leaving) {
        if (!symm__relay_is_settling(relay))
            return;
        if (now < relay->settle_until)
            due_by(due, relay->settle_until);
        if (now < relay->first_until)
            due_by(due, relay->first_until);
    }
    if (now < relay->attach_at && !relay->leaving) {
        due_by(due, relay->attach_at);
    } else {
        above = symm__tree_attach(symm__relay_host(relay), relay->gone);
        if (above >= 0)
            symm__relay_want(relay, SYMM_RELAY_TO_HOST, above, now);
    }
    if (relay->probe_at > 0 && now >= relay->probe_at) {
        relay->probe_at = 0;
        for (int h = 0; h < relay->config.hosts; h++)
            if (symm__relay_is_missing(relay, h))
                symm__relay_want(relay, SYMM_RELAY_PROBE, h, now);
    }
    if (relay->probe_at > 0)
        due_by(due, relay->probe_at);
}

/* Tells all hosts which ranks of this host have finalized while others go on. */
static void announce(struct symm_relay *relay)
{
    relay->announce_at = 0;
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];

        if (relay->announced >> i & 1 ||
            symm__relay_state(relay, rank) != SYMM_RELAY_FINALIZED)
            continue;
        symm__relay_spread_plain(relay, NULL, SYMM_RELAY_DEAD, rank, 1);
        relay->announced |= UINT64_C(1) << i;
    }
}

/* Makes the connections for which there was no memory. */
static void connect_again(struct symm_relay *relay, double now)
{
    relay->probe_at = now;
    for (const struct symm_ledger_exchange *x = relay->ledger.exchanges; x;
         x = x->next) {
        const int above = symm__ledger_above(&relay->ledger, x);

        if (above >= 0 && above < symm__relay_host(relay) && !relay->gone[above])
            symm__relay_want(relay, SYMM_RELAY_TO_HOST, above, now);
    }
}

static void tend(struct symm_relay *relay, double now, bool lacked, double *due)
{
    symm__relay_call_step(relay);
    if (!relay->serving) {
        if (!relay->stopped)
            symm__relay_want(relay, SYMM_RELAY_TO_RELAY, relay->config.rank, now);
        return;
    }
    if (lacked)
        connect_again(relay, now);
    tend_world_tree(relay, now, due);
    if (relay->announce_at > 0 && now >= relay->announce_at && !relay->leaving)
        announce(relay);
    else if (relay->announce_at > 0 && !relay->leaving)
        due_by(due, relay->announce_at);
    for (int h = 0;
         h < relay->config.hosts && relay->ledger.exchanges && relay->any_gone; h++)
        if (relay->gone[h])
            symm__relay_fail_gone(relay, h);
    if (relay->ledger.exchanges && symm__relay_report_cuts(relay))
        due_by(due, now + LOOK_SECONDS);
    due_by(due, symm__ledger_tick(&relay->ledger));
    symm__relay_call_step(relay);
}

void symm__relay_tend(struct symm_relay *relay, double *due)
{
    const double now = symm__now();
    const bool lacked = relay->lacks;

    relay->lacks = false;
    if (!relay->spare)
        relay->spare = symm__relay_message(SYMM_RELAY_NOTICE, SYMM_ERROR_BYTES);
    tend(relay, now, lacked, due);
    if (lacked || relay->lacks || relay->call.say_due || relay->call.have_due)
        due_by(due, now + LACK_SECONDS);
}
