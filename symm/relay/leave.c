/* SPDX-License-Identifier: MIT */
/*
 * leave.c - a rank finalizes; it may be its host's relay.
 *
 * A relay that finalizes tells the host's neighbours, also those whose connections it has confirmed
 * and not counted yet. If no rank of the host listens after that, all have finalized. If no rank
 * listens, and the last relay was connected and has not told so, all have died. A relay that
 * begins after a death and finalizes at once first waits until the neighbours have connected, and
 * so does one that knows why an exchange of theirs has failed.
 * tests/model/leave.pml is the model.
 */
#include "relay/private.h"
#include "util/clock.h"

#define FIRST_SECONDS                                                                  \
    0.6 /* for hosts that never were connected: the start may have failed */

void symm__relay_queue_leave(struct symm_relay_connection *to, int rank, bool untold)
{
    struct symm_relay_message *leave = symm__relay_plain(SYMM_RELAY_LEAVE, rank, 0);

    if (leave) {
        leave->head.reached = untold;
        symm__relay_queue(to, leave);
    } else {
        symm__relay_restart(to);
    }
    symm__relay_drop(leave);
}

/* Sends to all ranks of this host except one. */
static void to_ranks(struct symm_relay *relay, const struct symm_relay_connection *but,
                     struct symm_relay_message *message)
{
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_OF_RANK && c != but)
            symm__relay_queue(c, message);
}

/* symm__ledger_verdicts calls it. NULL: no memory; ranks that connect again get the outcomes. */
static void outcome_to_ranks(void *user, struct symm_relay_message *verdict)
{
    struct symm_relay *relay = user;

    if (verdict)
        to_ranks(relay, NULL, verdict);
    for (struct symm_relay_connection *c = relay->connections; !verdict && c;
         c = c->next)
        if (c->end == SYMM_RELAY_OF_RANK)
            symm__relay_restart(c);
}

bool symm__relay_lives_on(const struct symm_relay *relay, int place)
{
    return place != relay->place && !relay->hung_up[place] &&
           symm__relay_state(relay, relay->config.local[place]) == SYMM_RELAY_ALIVE;
}

bool symm__relay_has_successor(const struct symm_relay *relay)
{
    for (int i = 0; i < relay->config.local_size; i++)
        if (symm__relay_lives_on(relay, i))
            return true;
    return false;
}

/* Tells the neighbouring hosts that this relay finalizes. */
static void tell_hosts(struct symm_relay *relay)
{
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_TO_HOST || c->end == SYMM_RELAY_OF_HOST)
            symm__relay_queue_plain(c, SYMM_RELAY_LEAVE, relay->config.rank,
                                    symm__relay_has_successor(relay));
}

bool symm__relay_hear_leave(struct symm_relay *relay,
                            struct symm_relay_connection *from,
                            struct symm_relay_message *message)
{
    int rank = message->head.rank;

    relay->any_left = true;
    switch (from->end) {
    case SYMM_RELAY_OF_RANK:
        if (rank != from->id)
            return false;
        symm__relay_set_state(relay, rank, SYMM_RELAY_FINALIZED);
        /* Before the answer: when the rank stops, the others have been told. */
        to_ranks(relay, from, message);
        symm__relay_queue(from, message);
        symm__ledger_rank_gone(&relay->ledger, rank, "has finalized its context");
        relay->announce_at = symm__now() + SYMM_RELAY_ANNOUNCE;
        if (relay->leaving && !symm__relay_has_successor(relay))
            tell_hosts(relay);
        return true;
    case SYMM_RELAY_TO_RELAY:
        if (rank < 0 || rank >= relay->config.ranks ||
            relay->config.host_of[rank] != symm__relay_host(relay))
            return false;
        if (rank == relay->config.rank)
            relay->acknowledged = true;
        else
            symm__relay_set_state(relay, rank, SYMM_RELAY_FINALIZED);
        relay->untold = relay->untold || message->head.reached != 0;
        return true;
    default:
        if (rank < 0 || rank >= relay->config.ranks ||
            relay->config.host_of[rank] != from->id)
            return false;
        relay->changes[from->id] = true;
        if (message->head.status == 0)
            symm__relay_note_gone(relay, from, from->id, SYMM_RELAY_HOST_LEFT);
        return true;
    }
}

bool symm__relay_is_missing(struct symm_relay *relay, int host)
{
    return host != symm__relay_host(relay) && !relay->gone[host] &&
           symm__tree_attach(host, relay->gone) == symm__relay_host(relay) &&
           !symm__relay_find(relay, SYMM_RELAY_OF_HOST, host);
}

bool symm__relay_has_untold(struct symm_relay *relay)
{
    int above = symm__tree_attach(symm__relay_host(relay), relay->gone);

    if (above >= 0 && !relay->connected[above])
        return true;
    for (int h = 0; h < relay->config.hosts; h++)
        if (!relay->connected[h] && symm__relay_is_missing(relay, h))
            return true;
    return false;
}

void symm__relay_leave_begin(struct symm_relay *relay)
{
    if (!relay->serving) {
        struct symm_relay_connection *c =
            symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);

        if (c)
            symm__relay_queue_plain(c, SYMM_RELAY_LEAVE, relay->config.rank, 0);
        return;
    }
    /* The next relay must know the outcomes: this rank may have led those exchanges. */
    symm__ledger_verdicts(&relay->ledger, outcome_to_ranks, relay);
    if (relay->first_until == 0)
        relay->first_until = symm__now() + FIRST_SECONDS;
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_OF_RANK)
            symm__relay_queue_leave(c, relay->config.rank,
                                    symm__relay_has_untold(relay));
    tell_hosts(relay);
}

void symm__relay_send_left(struct symm_relay *relay, struct symm_relay_connection *to)
{
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];

        if (rank != to->id && symm__relay_state(relay, rank) == SYMM_RELAY_FINALIZED)
            symm__relay_queue_plain(to, SYMM_RELAY_LEAVE, rank, 0);
    }
}

/* Until when this relay, which finalizes, waits for a host that is not connected. */
static double awaited_until(const struct symm_relay *relay, int host)
{
    return relay->connected[host] || relay->settle_until > relay->first_until
               ? relay->settle_until
               : relay->first_until;
}

static void note_verdict(void *user, struct symm_relay_message *verdict)
{
    (void)verdict;
    *(bool *)user = true;
}

/* Has an exchange failed of which that host has not heard yet, since it never was connected? It would
 * find that this host has gone, and not know why. */
static bool owes_verdict(struct symm_relay *relay, int host)
{
    bool owes = false;

    if (!relay->connected[host])
        symm__ledger_failures(&relay->ledger, host, note_verdict, &owes);
    return owes;
}

bool symm__relay_is_settling(struct symm_relay *relay)
{
    int above = symm__tree_attach(symm__relay_host(relay), relay->gone);
    const struct symm_relay_connection *c;
    double now = symm__now();

    for (int i = 0; i < relay->config.local_size; i++)
        if (symm__relay_lives_on(relay, i) &&
            !symm__relay_find(relay, SYMM_RELAY_OF_RANK, relay->config.local[i]))
            return true;
    if (symm__relay_has_successor(relay))
        return false;
    for (int h = 0; h < relay->config.hosts; h++)
        if (now < awaited_until(relay, h) && symm__relay_is_missing(relay, h) &&
            (relay->after_death || owes_verdict(relay, h)))
            return true;
    if (!relay->after_death)
        return false;
    c = above < 0 ? NULL : symm__relay_find(relay, SYMM_RELAY_TO_HOST, above);
    return above >= 0 && (!c || c->stage != SYMM_RELAY_OPEN) &&
           now < awaited_until(relay, above);
}

bool symm__relay_may_stop(struct symm_relay *relay)
{
    if (!relay->leaving)
        return false;
    if (symm__now() >= relay->leave_by)
        return true;
    if (!relay->serving)
        return relay->acknowledged;
    return !symm__relay_owes(relay) && !symm__relay_is_adopting(relay) &&
           !symm__relay_is_settling(relay);
}
