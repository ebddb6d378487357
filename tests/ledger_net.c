/* SPDX-License-Identifier: MIT */
/*
 * ledger_net.c - the tree of hosts by simulation: time, chance, connections between ranks, and
 * ranks that finalize or are killed.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger_sim.h"

struct sim sim;

/* ---- Time and chance ---------------------------------------------------------------------- */

uint64_t ledger_mix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int ledger_below(int most)
{
    return (int)(ledger_mix(&sim.random) % (uint64_t)most);
}

double ledger_chance(void)
{
    return (double)(ledger_mix(&sim.random) >> 11) * 0x1p-53;
}

bool ledger_has(enum trouble trouble)
{
    return sim.trouble & trouble;
}

/* Most messages are fast, some are not. */
double ledger_latency(void)
{
    double u = ledger_chance();

    return u < 0.9    ? 2e-5 + 2e-4 * ledger_chance()
           : u < 0.99 ? 0.005 * ledger_chance()
                      : 0.05 * ledger_chance();
}

/* On one host nothing is under way for long. */
double ledger_latency_of(const struct symm_relay_connection *c)
{
    bool local = c->end == SYMM_RELAY_TO_RELAY || c->end == SYMM_RELAY_OF_RANK;

    return local ? 2e-5 + 2e-5 * ledger_chance() : ledger_latency();
}

void ledger_wrong(const char *format, ...)
{
    va_list list;

    if (sim.wrong)
        return;
    va_start(list, format);
    vsnprintf(sim.why, sizeof(sim.why), format, list);
    va_end(list);
    sim.wrong = sim.why;
}

void ledger_wake_at(struct node *n, double at)
{
    if (at < n->wake)
        n->wake = at;
}

/* ---- Connections: with the suite, in place of connections.c and thread.c --------------------- */

struct node *ledger_node_of(struct symm_relay *relay)
{
    return (struct node *)relay; /* its first member */
}

struct end *ledger_end_of(struct symm_relay_connection *c)
{
    return (struct end *)c;
}

struct end *ledger_end_make(struct node *owner, enum symm_relay_end end, int id)
{
    struct end *e = ledger_room(sizeof(*e));

    e->c.end = end;
    e->c.id = id;
    e->c.fd = -1;
    e->c.pause = 0.002;
    e->owner = owner;
    e->closed_at = INFINITY;
    return e;
}

void ledger_end_add(struct end *e)
{
    e->c.next = e->owner->relay.connections;
    e->owner->relay.connections = &e->c;
}

static void packet_drop(struct end *e)
{
    struct packet *packet = e->first;

    e->first = packet->next;
    if (!e->first)
        e->last = NULL;
    symm__relay_drop(packet->message);
    free(packet);
}

/* The rest of what is under way to this end is lost. */
void ledger_lose_some(struct end *e)
{
    struct packet **at = &e->first;
    struct packet *last = NULL;

    while (*at && ((*at)->written || ledger_chance() < 0.6)) {
        last = *at;
        at = &last->next;
    }
    while (*at) {
        struct packet *packet = *at;

        *at = packet->next;
        symm__relay_drop(packet->message);
        free(packet);
    }
    e->last = last;
}

/* This end's side is closed: the other one sees it after what was sent. */
void ledger_close_side(struct end *e)
{
    struct end *other = e->other;

    if (!other)
        return;
    e->other = NULL;
    other->other = NULL;
    other->closed_at = fmax(other->last_at, sim.now + ledger_latency_of(&e->c));
    ledger_wake_at(other->owner, other->closed_at);
}

static void packets_free(struct end *e)
{
    while (e->first)
        packet_drop(e);
}

/* The connection in the making that `from` makes, if there is one, ends. */
static void guest_end(const struct end *from)
{
    struct guest **at = &sim.guests;

    while (*at && (*at)->from != from)
        at = &(*at)->next;
    if (*at) {
        struct guest *guest = *at;

        *at = guest->next;
        if (guest->to) {
            ledger_close_side(guest->to);
            packets_free(guest->to);
            free(guest->to);
        }
        free(guest);
    }
}

static void end_free(struct end *e)
{
    guest_end(e);
    ledger_close_side(e);
    packets_free(e);
    free(e);
}

void symm__relay_connection_free(struct symm_relay *relay,
                                 struct symm_relay_connection *connection)
{
    (void)relay;
    end_free(ledger_end_of(connection));
}

bool ledger_host_lives(int host)
{
    for (int r = sim.first_of[host]; r < sim.first_of[host + 1]; r++)
        if (sim.node[r]->alive)
            return true;
    return false;
}

/* The rank of that host which went last. */
static const struct node *last_of(int host)
{
    const struct node *last = sim.node[sim.first_of[host]];

    for (int r = sim.first_of[host]; r < sim.first_of[host + 1]; r++)
        if (sim.node[r]->gone_at > last->gone_at)
            last = sim.node[r];
    return last;
}

/*
 * No process listens there. The last relay of the host tells its end to the ends that are connected
 * to it, but to those that have told it theirs; and a connection that was cut may have lost it.
 */
static void check_loss(const struct node *n, int host, enum symm_relay_loss loss)
{
    const struct node *last = last_of(host);

    if (n->met[host] != last->rank)
        return;
    if (loss == SYMM_RELAY_HOST_LEFT && !last->finalized && !n->relay.leaving)
        ledger_wrong(
            "rank %d was connected to rank %d, which was killed, and says that "
            "host %d has finalized",
            n->rank, last->rank, host);
    if (loss == SYMM_RELAY_HOST_DIED && !last->killed && !ledger_has(CUTS) &&
        !ledger_has(LACKS))
        ledger_wrong("rank %d was connected to rank %d, which has finalized, and says "
                     "that host %d has died",
                     n->rank, last->rank, host);
}

static void try_again(struct end *e, bool refused)
{
    struct symm_relay_connection *c = &e->c;
    enum symm_relay_loss loss;

    guest_end(e);
    ledger_close_side(e);
    packets_free(e);
    e->closed_at = INFINITY;
    e->last_at = 0;
    c->stage = SYMM_RELAY_WAITING;
    c->at = sim.now + c->pause;
    c->pause = fmin(2 * c->pause, 0.1);
    c->refused = refused ? c->refused + 1 : 0;
    if (c->end == SYMM_RELAY_TO_RELAY ||
        (c->refused < REFUSED_MOST && sim.now - c->since <= SILENT))
        return;
    loss = symm__relay_has_left(&e->owner->relay, c->id) ? SYMM_RELAY_HOST_LEFT
           : c->refused >= REFUSED_MOST                  ? SYMM_RELAY_HOST_DIED
                                                         : SYMM_RELAY_HOST_SILENT;
    check_loss(e->owner, c->id, loss);
    symm__relay_doom(c);
    symm__relay_host_gone(&e->owner->relay, c->id, loss);
}

static void begin_try(struct end *e)
{
    struct symm_relay_connection *c = &e->c;
    int host = c->end == SYMM_RELAY_TO_RELAY ? e->owner->host : c->id;
    struct guest *guest, **at = &sim.guests;

    if (c->since == 0)
        c->since = sim.now;
    if (!ledger_host_lives(host)) {
        try_again(e, true);
        return;
    }
    if (c->end == SYMM_RELAY_PROBE) {
        c->at = sim.now + 0.05;
        c->refused = 0;
        return;
    }
    c->stage = SYMM_RELAY_CONNECTING;
    c->at = sim.now + CONNECT_MOST;
    guest = ledger_room(sizeof(*guest));
    guest->from = e;
    guest->host = host;
    guest->at = sim.now + ledger_latency_of(c);
    while (*at)
        at = &(*at)->next;
    *at = guest;
    for (int r = sim.first_of[host]; r < sim.first_of[host + 1]; r++)
        ledger_wake_at(sim.node[r], guest->at);
}

static void open_end(struct end *e)
{
    e->c.stage = SYMM_RELAY_OPEN;
    e->c.at = sim.now;
    e->c.pause = 0.002;
    e->c.refused = 0;
    e->c.since = 0;
    if (e->c.end == SYMM_RELAY_TO_HOST || e->c.end == SYMM_RELAY_OF_HOST)
        e->owner->met[e->c.id] = e->other ? e->other->owner->rank : -1;
    symm__relay_opened(&e->owner->relay, &e->c);
}

static void adopt(struct node *n, struct end *e)
{
    struct symm_relay_connection *old = symm__relay_find(&n->relay, e->c.end, e->c.id);

    if (old) {
        old->stage = SYMM_RELAY_ASKED;
        symm__relay_doom(old);
    }
    ledger_end_add(e);
    open_end(e);
}

/* One stage of a connection that comes, if it is this rank's to make. */
static bool guest_move(struct node *n, struct guest *guest)
{
    struct end *from = guest->from, *to = guest->to;
    bool to_rank = from->c.end == SYMM_RELAY_TO_RELAY;

    if (guest->at > sim.now)
        return false;
    if (guest->stage == 0 && n->relay.serving && n->host == guest->host) {
        if (from->owner == n) { /* made before this rank served */
            guest_end(from);
            from->closed_at = sim.now;
            return true;
        }
        to = ledger_end_make(n, to_rank ? SYMM_RELAY_OF_RANK : SYMM_RELAY_OF_HOST,
                             to_rank ? from->owner->rank : from->owner->host);
        to->other = from;
        from->other = to;
        guest->to = to;
        guest->stage = 1;
        guest->at = sim.now + ledger_latency_of(&to->c);
        ledger_wake_at(from->owner, guest->at);
        return true;
    }
    if (guest->stage == 1 && from->owner == n && !from->c.doomed) {
        guest->stage = 2;
        guest->at = sim.now + ledger_latency_of(&to->c);
        ledger_wake_at(to->owner, guest->at);
        open_end(from);
        return true;
    }
    if (guest->stage == 2 && to->owner == n) {
        guest->to = NULL;
        guest_end(from);
        adopt(n, to);
        return true;
    }
    return false;
}

void ledger_guests_move(struct node *n)
{
    struct guest *guest = sim.guests;

    while (guest)
        guest = guest_move(n, guest) ? sim.guests : guest->next;
}

static void hear(struct node *n, struct end *e)
{
    while (e->first && e->first->at <= sim.now && !e->c.doomed) {
        struct symm_relay_message *message = symm__relay_keep(e->first->message);

        packet_drop(e);
        if (!symm__relay_hear(&n->relay, &e->c, message)) {
            ledger_wrong("rank %d does not take kind %u of %d (end %d)", n->rank,
                         message->head.kind, e->c.id, e->c.end);
            symm__relay_doom(&e->c);
        }
        symm__relay_drop(message);
    }
    if (!e->c.doomed && !e->first && e->closed_at <= sim.now)
        symm__relay_doom(&e->c);
}

void ledger_connections_move(struct node *n)
{
    struct symm_relay_connection *c = n->relay.connections, *next;

    for (; c; c = next) {
        next = c->next;
        if (c->doomed)
            continue;
        if (c->stage == SYMM_RELAY_OPEN)
            hear(n, ledger_end_of(c));
        else if (c->stage == SYMM_RELAY_CONNECTING &&
                 ledger_end_of(c)->closed_at <= sim.now)
            try_again(ledger_end_of(c), false);
        else if (sim.now >= c->at && c->stage == SYMM_RELAY_WAITING)
            begin_try(ledger_end_of(c));
        else if (sim.now >= c->at && c->stage == SYMM_RELAY_CONNECTING)
            try_again(ledger_end_of(c), false);
    }
}

/* ---- Ranks that go --------------------------------------------------------------------------- */

/* What it has sent arrives, unless it was killed: then the end of it may not. */
void ledger_node_go(struct node *n)
{
    n->alive = false;
    n->gone_at = sim.now;
    for (struct guest *guest = sim.guests, *next; guest; guest = next) {
        next = guest->next;
        if ((guest->to && guest->to->owner == n) ||
            (guest->host == n->host && !ledger_host_lives(n->host))) {
            struct end *from = guest->from;

            guest_end(from);
            from->closed_at = sim.now + ledger_latency();
            ledger_wake_at(from->owner, from->closed_at);
        }
    }
    while (n->relay.connections) {
        struct end *e = ledger_end_of(n->relay.connections);

        n->relay.connections = e->c.next;
        if (n->killed && e->other && ledger_chance() < 0.5)
            ledger_lose_some(e->other);
        end_free(e);
    }
    symm__relay_roles_close(&n->relay);
    memset(&n->relay.call, 0, sizeof(n->relay.call));
    for (int r = sim.first_of[n->host]; r < sim.first_of[n->host + 1]; r++)
        ledger_wake_at(sim.node[r], sim.now + sim.node[r]->seen[n->place]);
}

void ledger_node_kill(struct node *n)
{
    if (!n->alive)
        return;
    n->killed = true;
    ledger_node_go(n);
}

/* As symm__relay_close. */
void ledger_node_leave(struct node *n)
{
    if (!n->alive || n->relay.leaving)
        return;
    n->finalized = sim.ending = true;
    n->relay.leaving = true;
    n->relay.leave_by = sim.now + 1;
    n->end_at = sim.now;
    symm__relay_leave_begin(&n->relay);
    ledger_wake_at(n, sim.now);
}
