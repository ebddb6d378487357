/* SPDX-License-Identifier: MIT */
/*
 * roles.c - what a relay and its clients do with messages, and who is the relay.
 *
 * News are reports that go to all hosts: NOTICE, DEAD, GONE and CELL (board.c). Each relay passes on those that it
 * did not know, so they end. Ends that connect later get NOTICEs that were kept, and the state of
 * ranks and hosts.
 *
 * A relay that finalizes says so to the host's neighbours. Where nobody listens after that, all
 * ranks have finalized; where nobody listens without that, all have died. A relay that begins after
 * a death, and finalizes at once, waits until the neighbours have come to it again.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rank_text.h"
#include "util/status.h"

#define AGAIN_SECONDS    0.002 /* after a connection was lost */
#define PROBE_SECONDS    0.02 /* for a higher host to connect again, before it is probed */
#define LOOK_SECONDS     0.1  /* between two looks for hosts that are not reached */
#define SETTLE_SECONDS   0.15 /* for neighbours to connect to a relay that is new */
#define MEET_SECONDS     0.6  /* for those that never were, if the start fails */
#define EXPECT_SECONDS   0.2  /* for hosts to attach, until they are probed */
#define ANNOUNCE_SECONDS 0.2  /* after a rank has finalized: at a job's end all do */
#define ATTACH_SECONDS   0.2  /* after the host above has left: most jobs end then */
#define HEARD_SECONDS                                                                  \
    0.05 /* for a rank of this host that has connected to say what it knows */

static struct symm_relay_message *plain(enum symm_relay_kind kind, int rank, int status)
{
    struct symm_relay_message *message = symm__relay_message(kind, 0);

    if (!message)
        return NULL;
    message->head.rank = rank;
    message->head.status = status;
    return message;
}

static struct symm_relay_connection *to_host_of(struct symm_relay *relay, int host)
{
    return symm__relay_find(
        relay, host < symm__relay_host(relay) ? SYMM_RELAY_TO_HOST : SYMM_RELAY_OF_HOST,
        host);
}

/* ---- The rank's own exchange --------------------------------------------------------- */

static void say_have(struct symm_relay *relay)
{
    const struct symm_relay_head *part = &relay->call.part->head;
    struct symm_relay_message *have =
        symm__relay_step(SYMM_RELAY_HAVE, part->tag, part->sequence);

    if (!have)
        return;
    have->head.from = relay->config.rank;
    symm__relay_say(relay, have);
    symm__relay_drop(have);
}

static bool is_call(const struct symm_relay *relay,
                    const struct symm_relay_message *message)
{
    const struct symm_relay_call *call = &relay->call;

    return (call->state == SYMM_CALL_WAITS || call->state == SYMM_CALL_HAS) &&
           call->part->head.tag == message->head.tag &&
           call->part->head.sequence == message->head.sequence;
}

/* ALL, GO or FAIL of the relay for this rank. */
static void call_hear(struct symm_relay *relay, struct symm_relay_message *message)
{
    struct symm_relay_call *call = &relay->call;

    if (!is_call(relay, message))
        return;
    if (message->head.kind == SYMM_RELAY_ALL && call->state == SYMM_CALL_WAITS) {
        call->all = symm__relay_keep(message);
        call->state = SYMM_CALL_HAS;
        call->have_due = true;
    } else if (message->head.kind == SYMM_RELAY_GO && call->state == SYMM_CALL_HAS) {
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
    if (!relay->call.have_due)
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
        (void)symm__ledger_take(&relay->ledger, -1, message);
    } else {
        c = symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);
        if (c)
            symm__relay_queue(c, message);
    }
}

/* ---- The ledger's outside -------------------------------------------------------------- */

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

/* Is the rank at that place of this host another one, that has not gone? */
static bool lives_on(const struct symm_relay *relay, int place)
{
    return place != relay->place && !relay->hung_up[place] &&
           symm__relay_state(relay, relay->config.local[place]) == SYMM_RELAY_ALIVE;
}

/* What is queued at the end of a turn goes out in no order: so it is written at once. */
static bool keep_verdict(void *user, struct symm_relay_message *verdict, int *kept)
{
    struct symm_relay *relay = user;

    for (int i = *kept > 0 ? *kept - 1 : 0; i < relay->config.local_size; i++) {
        struct symm_relay_connection *c =
            symm__relay_find(relay, SYMM_RELAY_OF_RANK, relay->config.local[i]);

        if (!lives_on(relay, i)) {
            *kept = i + 1;
            continue;
        }
        if (!c)
            return false;
        if (*kept == i)
            symm__relay_queue(c, verdict);
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
    if (relay->acceptor.refusals > 0)
        snprintf(relay->hint, sizeof(relay->hint), " %lu connections were refused",
                 relay->acceptor.refusals);
    return relay->hint;
}

void symm__relay_roles_open(struct symm_relay *relay)
{
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
}

/* ---- News ------------------------------------------------------------------------------ */

static void set_state(struct symm_relay *relay, int rank, enum symm_relay_state state)
{
    /* The first state that is not ALIVE stays. release: pairs with the acquire in
     * symm__relay_state, for `silent` of its host */
    if (__atomic_load_n(&relay->state[rank], __ATOMIC_RELAXED) == SYMM_RELAY_ALIVE)
        __atomic_store_n(&relay->state[rank], (uint8_t)state, __ATOMIC_RELEASE);
}

static bool find_report(const struct symm_relay *relay, uint64_t tag,
                        struct symm_relay_report *report)
{
    for (unsigned i = 0; i < SYMM_RELAY_REPORTS && i < relay->report_count; i++)
        if (relay->report[i].tag == tag) {
            if (report)
                *report = relay->report[i];
            return true;
        }
    return false;
}

bool symm__relay_reported(struct symm_relay *relay, uint64_t tag,
                          struct symm_relay_report *report)
{
    bool found;

    pthread_mutex_lock(&relay->lock);
    found = find_report(relay, tag, report);
    pthread_mutex_unlock(&relay->lock);
    return found;
}

void symm__relay_keep_news(struct symm_relay *relay, struct symm_relay_message *message)
{
    unsigned at = relay->news_count++ % SYMM_RELAY_NOTICES;

    symm__relay_drop(relay->news[at]);
    relay->news[at] = symm__relay_keep(message);
}

void symm__relay_spread(struct symm_relay *relay,
                        const struct symm_relay_connection *from,
                        struct symm_relay_message *message)
{
    if (message->head.kind == SYMM_RELAY_NOTICE)
        symm__relay_keep_news(relay, message);
    for (struct symm_relay_connection *c = relay->connections; c && relay->serving;
         c = c->next)
        if (c != from && c->end != SYMM_RELAY_TO_RELAY && c->end != SYMM_RELAY_PROBE)
            symm__relay_queue(c, message);
}

/* Of a relay to a rank of its host. */
static void queue_leave(struct symm_relay_connection *to, int rank, bool untold)
{
    struct symm_relay_message *leave = plain(SYMM_RELAY_LEAVE, rank, 0);

    if (leave) {
        leave->head.reached = untold;
        symm__relay_queue(to, leave);
    }
    symm__relay_drop(leave);
}

static void queue_plain(struct symm_relay_connection *to, enum symm_relay_kind kind,
                        int rank, int status)
{
    struct symm_relay_message *message = plain(kind, rank, status);

    if (message)
        symm__relay_queue(to, message);
    else
        symm__relay_doom(to); /* no memory: it begins again */
    symm__relay_drop(message);
}

static enum symm_relay_loss loss_of(const struct symm_relay *relay, int host)
{
    return relay->left[host]                    ? SYMM_RELAY_HOST_LEFT
           : symm__relay_is_silent(relay, host) ? SYMM_RELAY_HOST_SILENT
                                                : SYMM_RELAY_HOST_DIED;
}

static void send_news(struct symm_relay *relay, struct symm_relay_connection *to)
{
    for (unsigned i = 0; i < SYMM_RELAY_NOTICES; i++)
        if (relay->news[i])
            symm__relay_queue(to, relay->news[i]);
    symm__relay_queue_cells(relay, to);
    if (to->end == SYMM_RELAY_TO_RELAY)
        return;
    for (int h = 0; h < relay->config.hosts && relay->any_gone; h++)
        if (relay->gone[h])
            queue_plain(to, SYMM_RELAY_GONE, h, loss_of(relay, h));
    for (int r = 0; r < relay->config.ranks; r++) {
        enum symm_relay_state state = symm__relay_state(relay, r);

        if (state != SYMM_RELAY_ALIVE && !relay->gone[relay->config.host_of[r]])
            queue_plain(to, SYMM_RELAY_DEAD, r, state == SYMM_RELAY_FINALIZED);
    }
}

static void take_notice(struct symm_relay *relay,
                        const struct symm_relay_message *message)
{
    struct symm_relay_report *report =
        &relay->report[relay->report_count++ % SYMM_RELAY_REPORTS];

    report->tag = message->head.tag;
    report->rank = message->head.rank;
    report->status = symm__peer_status(message->head.status);
    symm__relay_sentence(message, report->sentence);
}

/* The lowest rank of the host that is known to have died; -1: none. */
static int dead_rank(const struct symm_relay *relay, int host)
{
    for (int r = 0; r < relay->config.ranks; r++)
        if (relay->config.host_of[r] == host &&
            symm__relay_state(relay, r) == SYMM_RELAY_DIED)
            return r;
    return -1;
}

void symm__relay_fail_gone(struct symm_relay *relay, int host)
{
    const char *name = relay->config.at[host].name;
    /* Ranks that finalize after a death do so because of it. */
    int dead = relay->left[host] ? dead_rank(relay, host) : -1;
    char sentence[SYMM_ERROR_BYTES];

    if (dead >= 0)
        snprintf(sentence, sizeof(sentence),
                 "rank %d has died, and no other rank on host %s is left", dead, name);
    else
        snprintf(sentence, sizeof(sentence), "all ranks on host %s have %s", name,
                 relay->left[host] ? "finalized their contexts"
                                   : "died, or it cannot be reached");
    symm__ledger_host_gone(&relay->ledger, host, sentence);
}

/* Neighbours have changed without notice, and those of now may not know this relay. */
static void settle(struct symm_relay *relay)
{
    relay->settle_until = symm__now() + SETTLE_SECONDS;
    relay->after_death = true;
}

static void host_gone(struct symm_relay *relay,
                      const struct symm_relay_connection *from, int host,
                      enum symm_relay_loss loss)
{
    struct symm_relay_message *news;
    bool left = loss == SYMM_RELAY_HOST_LEFT;

    if (relay->gone[host] || host == symm__relay_host(relay))
        return;
    relay->gone[host] = relay->any_gone = true;
    relay->left[host] = left;
    /* relaxed: who asks has seen a state that is set below */
    __atomic_store_n(&relay->silent[host], loss == SYMM_RELAY_HOST_SILENT,
                     __ATOMIC_RELAXED);
    relay->any_left = relay->any_left || left;
    for (int r = 0; r < relay->config.ranks; r++)
        if (relay->config.host_of[r] == host)
            set_state(relay, r, left ? SYMM_RELAY_FINALIZED : SYMM_RELAY_DIED);
    news = plain(SYMM_RELAY_GONE, host, (int)loss);
    if (news)
        symm__relay_spread(relay, from, news);
    symm__relay_drop(news);
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->id == host && c->end != SYMM_RELAY_TO_RELAY &&
            c->end != SYMM_RELAY_OF_RANK)
            symm__relay_doom(c);
    if (!relay->serving)
        return;
    if (!left)
        settle(relay);
    /* Who has tried to connect there has waited already. */
    relay->attach_at = symm__now() + (left && from ? ATTACH_SECONDS : 0);
    relay->probe_at = relay->attach_at + EXPECT_SECONDS; /* those that were below it */
    symm__relay_fail_gone(relay, host);
}

void symm__relay_host_gone(struct symm_relay *relay, int host,
                           enum symm_relay_loss loss)
{
    if (relay->serving)
        host_gone(relay, NULL, host, loss);
}

static void rank_died(struct symm_relay *relay, int rank)
{
    struct symm_relay_message *news = plain(SYMM_RELAY_DEAD, rank, 0);

    set_state(relay, rank, SYMM_RELAY_DIED);
    if (news)
        symm__relay_spread(relay, NULL, news);
    symm__relay_drop(news);
    symm__ledger_rank_gone(&relay->ledger, rank, "has died");
}

/* False: it is none that a relay sends. */
static bool hear_news(struct symm_relay *relay,
                      const struct symm_relay_connection *from,
                      struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    int most =
        head->kind == SYMM_RELAY_GONE ? relay->config.hosts : relay->config.ranks;

    if (head->rank < 0 || head->rank >= most ||
        (from->end == SYMM_RELAY_OF_RANK && head->kind != SYMM_RELAY_NOTICE &&
         head->kind != SYMM_RELAY_CELL))
        return false;
    if (head->kind == SYMM_RELAY_GONE) {
        host_gone(relay, from, head->rank,
                  head->status == SYMM_RELAY_HOST_LEFT ||
                          head->status == SYMM_RELAY_HOST_SILENT
                      ? (enum symm_relay_loss)head->status
                      : SYMM_RELAY_HOST_DIED);
        return true;
    }
    if (head->kind == SYMM_RELAY_CELL) {
        if (symm__relay_keep_cell(relay, message))
            symm__relay_spread(relay, from, message);
        return true;
    }
    if (head->kind == SYMM_RELAY_DEAD) {
        if (symm__relay_state(relay, head->rank) != SYMM_RELAY_ALIVE)
            return true;
        set_state(relay, head->rank,
                  head->status ? SYMM_RELAY_FINALIZED : SYMM_RELAY_DIED);
    } else {
        if (find_report(relay, head->tag, NULL))
            return true;
        take_notice(relay, message);
    }
    symm__relay_spread(relay, from, message);
    return true;
}

/* ---- Leaving ----------------------------------------------------------------------------- */

static void to_ranks(struct symm_relay *relay, const struct symm_relay_connection *but,
                     struct symm_relay_message *message)
{
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_OF_RANK && c != but)
            symm__relay_queue(c, message);
}

static void outcome_to_ranks(void *user, struct symm_relay_message *verdict)
{
    to_ranks(user, NULL, verdict);
}

/* Will another rank of this host serve? */
static bool has_successor(const struct symm_relay *relay)
{
    for (int i = 0; i < relay->config.local_size; i++)
        if (lives_on(relay, i))
            return true;
    return false;
}

/* This relay finalizes: to the hosts next to it. */
static void tell_hosts(struct symm_relay *relay)
{
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_TO_HOST || c->end == SYMM_RELAY_OF_HOST)
            queue_plain(c, SYMM_RELAY_LEAVE, relay->config.rank, has_successor(relay));
}

static bool hear_leave(struct symm_relay *relay, struct symm_relay_connection *from,
                       struct symm_relay_message *message)
{
    int rank = message->head.rank;

    relay->any_left = true;
    switch (from->end) {
    case SYMM_RELAY_OF_RANK:
        if (rank != from->id)
            return false;
        set_state(relay, rank, SYMM_RELAY_FINALIZED);
        to_ranks(relay, from,
                 message); /* before the answer: who leaves is known to all */
        symm__relay_queue(from, message);
        symm__ledger_rank_gone(&relay->ledger, rank, "has finalized its context");
        relay->announce_at = symm__now() + ANNOUNCE_SECONDS;
        if (relay->leaving && !has_successor(relay))
            tell_hosts(relay);
        return true;
    case SYMM_RELAY_TO_RELAY:
        if (rank < 0 || rank >= relay->config.ranks ||
            relay->config.host_of[rank] != symm__relay_host(relay))
            return false;
        if (rank == relay->config.rank)
            relay->acknowledged = true;
        else
            set_state(relay, rank, SYMM_RELAY_FINALIZED);
        relay->untold = relay->untold || message->head.reached != 0;
        return true;
    default:
        if (rank < 0 || rank >= relay->config.ranks ||
            relay->config.host_of[rank] != from->id)
            return false;
        relay->changes[from->id] = true;
        if (message->head.status == 0)
            host_gone(relay, from, from->id, SYMM_RELAY_HOST_LEFT);
        return true;
    }
}

static void take_hang_up(struct symm_relay *relay, int place)
{
    const int rank = relay->config.local[place];

    relay->hung_up[place] = true;
    if (relay->serving && symm__relay_state(relay, rank) == SYMM_RELAY_ALIVE)
        rank_died(relay, rank);
}

void symm__relay_saw_death(struct symm_relay *relay, int rank)
{
    pthread_mutex_lock(&relay->lock);
    for (int i = 0; i < relay->config.local_size && relay->serving; i++)
        if (relay->config.local[i] == rank && i != relay->place)
            take_hang_up(relay, i);
    pthread_mutex_unlock(&relay->lock);
}

/* Does this host attach to this one in the tree of the world, and is not connected? */
static bool is_missing(struct symm_relay *relay, int host)
{
    return host != symm__relay_host(relay) && !relay->gone[host] &&
           symm__tree_attach(host, relay->gone) == symm__relay_host(relay) &&
           !symm__relay_find(relay, SYMM_RELAY_OF_HOST, host);
}

/* Is there a neighbour in the tree of the world that never was connected to this relay? */
static bool has_untold(struct symm_relay *relay)
{
    int above = symm__tree_attach(symm__relay_host(relay), relay->gone);

    if (above >= 0 && !relay->met[above])
        return true;
    for (int h = 0; h < relay->config.hosts; h++)
        if (!relay->met[h] && is_missing(relay, h))
            return true;
    return false;
}

void symm__relay_leave_begin(struct symm_relay *relay)
{
    struct symm_relay_message *leave = plain(SYMM_RELAY_LEAVE, relay->config.rank, 0);

    if (!leave)
        return;
    if (!relay->serving) {
        struct symm_relay_connection *c =
            symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);

        if (c)
            symm__relay_queue(c, leave);
        symm__relay_drop(leave);
        return;
    }
    /* The next relay must know the outcomes: this rank may have led those exchanges. */
    symm__ledger_verdicts(&relay->ledger, outcome_to_ranks, relay);
    if (relay->meet_until == 0)
        relay->meet_until = symm__now() + MEET_SECONDS;
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->end == SYMM_RELAY_OF_RANK)
            queue_leave(c, relay->config.rank, has_untold(relay));
    tell_hosts(relay);
    symm__relay_drop(leave);
}

/* ---- Connections -------------------------------------------------------------------------- */

static void queue_outcome(void *user, struct symm_relay_message *outcome)
{
    symm__relay_queue(user, outcome);
}

static void send_left(struct symm_relay *relay, struct symm_relay_connection *to)
{
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];
        struct symm_relay_message *leave =
            rank != to->id && symm__relay_state(relay, rank) == SYMM_RELAY_FINALIZED
                ? plain(SYMM_RELAY_LEAVE, rank, 0)
                : NULL;

        if (leave)
            symm__relay_queue(to, leave);
        symm__relay_drop(leave);
    }
}

void symm__relay_opened(struct symm_relay *relay, struct symm_relay_connection *c)
{
    struct symm_relay_connection *probe;

    if (c->end == SYMM_RELAY_TO_HOST || c->end == SYMM_RELAY_OF_HOST) {
        relay->changes[c->id] = false;
        relay->met[c->id] = true;
    }
    switch (c->end) {
    case SYMM_RELAY_TO_RELAY:
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        send_news(relay, c);
        symm__relay_call_say(relay);
        if (relay->leaving)
            symm__relay_leave_begin(relay);
        break;
    case SYMM_RELAY_OF_RANK:
        symm__ledger_verdicts(&relay->ledger, queue_outcome, c);
        send_news(relay, c);
        send_left(relay, c);
        break;
    case SYMM_RELAY_TO_HOST:
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        symm__ledger_resend(&relay->ledger, c->id);
        send_news(relay, c);
        break;
    default:
        send_news(relay, c);
        probe = symm__relay_find(relay, SYMM_RELAY_PROBE, c->id);
        if (probe)
            symm__relay_doom(probe);
    }
    /* A LEAVE that comes first would end what the host waits for by another reason. */
    if (c->end == SYMM_RELAY_OF_HOST) {
        symm__ledger_outcomes(&relay->ledger, queue_outcome, c);
        symm__ledger_failures(&relay->ledger, c->id, queue_outcome, c);
    }
    if (relay->leaving && relay->serving && c->end == SYMM_RELAY_OF_RANK)
        queue_leave(c, relay->config.rank, has_untold(relay));
    else if (relay->leaving && relay->serving && c->end != SYMM_RELAY_PROBE)
        queue_plain(c, SYMM_RELAY_LEAVE, relay->config.rank, has_successor(relay));
}

bool symm__relay_has_left(const struct symm_relay *relay,
                          const struct symm_relay_connection *c)
{
    /* One that was not connected has left unheard if the job ends. */
    return relay->changes[c->id] || (!c->after_loss && relay->any_left);
}

void symm__relay_lost(struct symm_relay *relay, enum symm_relay_end end, int id,
                      double opened)
{
    struct symm_relay_connection *again;
    double now = symm__now();

    if (relay->leaving && end != SYMM_RELAY_TO_RELAY)
        return;
    if (end != SYMM_RELAY_TO_RELAY && end != SYMM_RELAY_OF_RANK && !relay->gone[id] &&
        !relay->changes[id])
        settle(relay);
    if (end == SYMM_RELAY_TO_RELAY && !relay->serving)
        symm__relay_want(relay, end, id, now + AGAIN_SECONDS);
    else if (end == SYMM_RELAY_TO_HOST && !relay->gone[id])
        symm__relay_want(relay, end, id, now + AGAIN_SECONDS);
    else if (end == SYMM_RELAY_OF_HOST && !relay->gone[id])
        symm__relay_want(relay, end = SYMM_RELAY_PROBE, id, now + PROBE_SECONDS);
    again = symm__relay_find(relay, end, id);
    /* The other end may not have had it yet, and so may have left without a word. */
    if (again)
        again->after_loss = now - opened >= EXPECT_SECONDS;
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
        return hear_news(relay, c, message);
    case SYMM_RELAY_LEAVE:
        return hear_leave(relay, c, message);
    default:
        break;
    }
    if (c->end == SYMM_RELAY_TO_RELAY) {
        symm__ledger_know(&relay->ledger, message); /* this rank may serve next */
        call_hear(relay, message);
        return true;
    }
    if (c->end == SYMM_RELAY_OF_RANK && head->kind == SYMM_RELAY_GO)
        return symm__ledger_take(&relay->ledger, symm__relay_host(relay), message);
    if (c->end == SYMM_RELAY_OF_RANK)
        return head->from == c->id && symm__ledger_take(&relay->ledger, -1, message);
    return symm__ledger_take(&relay->ledger, c->id, message);
}

/* ---- Who serves ---------------------------------------------------------------------------- */

static void begin_to_serve(struct symm_relay *relay)
{
    struct symm_relay_connection *c =
        symm__relay_find(relay, SYMM_RELAY_TO_RELAY, relay->config.rank);

    double now = symm__now();

    if (!symm__relay_accept_begin(relay)) /* no memory: tries again at the next look */
        return;
    relay->serving = true;
    relay->probe_at = now + EXPECT_SECONDS;
    relay->announce_at = now + ANNOUNCE_SECONDS;
    settle(relay);
    if (c)
        symm__relay_doom(c);
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];

        if (relay->hung_up[i] && symm__relay_state(relay, rank) == SYMM_RELAY_ALIVE)
            rank_died(relay, rank);
        if (i < relay->place) /* one that finalized has told the neighbours */
            relay->after_death = symm__relay_state(relay, rank) != SYMM_RELAY_FINALIZED;
    }
    /* Nor have the neighbours heard what this rank had to report. */
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
            take_hang_up(relay, i);
        lowest = lowest && (i >= relay->place || relay->hung_up[i]);
    }
    if (lowest && !relay->serving)
        begin_to_serve(relay);
}

/* ---- Each turn ------------------------------------------------------------------------------ */

/* Until when a relay that finalizes waits for that host, which is not connected. */
static double awaited_until(const struct symm_relay *relay, int host)
{
    return relay->met[host] || relay->settle_until > relay->meet_until
               ? relay->settle_until
               : relay->meet_until;
}

/* Is there anybody to whom a relay that finalizes has yet to say so? */
static bool is_settling(struct symm_relay *relay)
{
    int above = symm__tree_attach(symm__relay_host(relay), relay->gone);
    const struct symm_relay_connection *c;
    double now = symm__now();

    for (int i = 0; i < relay->config.local_size; i++)
        if (lives_on(relay, i) &&
            !symm__relay_find(relay, SYMM_RELAY_OF_RANK, relay->config.local[i]))
            return true;
    if (has_successor(relay) || !relay->after_death)
        return false;
    c = above < 0 ? NULL : symm__relay_find(relay, SYMM_RELAY_TO_HOST, above);
    if (above >= 0 && (!c || c->stage != SYMM_RELAY_OPEN) &&
        now < awaited_until(relay, above))
        return true;
    for (int h = 0; h < relay->config.hosts; h++)
        if (now < awaited_until(relay, h) && is_missing(relay, h))
            return true;
    return false;
}

static void sooner(double *due, double at)
{
    if (at < *due)
        *due = at;
}

/* The tree of the world: the host above, and those below that have not come. */
static void tend_tree(struct symm_relay *relay, double now, double *due)
{
    int above;

    if (relay->leaving) {
        if (!is_settling(relay))
            return;
        if (now < relay->settle_until)
            sooner(due, relay->settle_until);
        if (now < relay->meet_until)
            sooner(due, relay->meet_until);
    }
    if (now < relay->attach_at && !relay->leaving) {
        sooner(due, relay->attach_at);
    } else {
        above = symm__tree_attach(symm__relay_host(relay), relay->gone);
        if (above >= 0)
            symm__relay_want(relay, SYMM_RELAY_TO_HOST, above, now);
    }
    if (relay->probe_at > 0 && now >= relay->probe_at) {
        relay->probe_at = 0;
        for (int h = 0; h < relay->config.hosts; h++)
            if (is_missing(relay, h))
                symm__relay_want(relay, SYMM_RELAY_PROBE, h, now);
    }
    if (relay->probe_at > 0)
        sooner(due, relay->probe_at);
}

/* Ranks of this host that have finalized while others go on. */
static void announce(struct symm_relay *relay)
{
    relay->announce_at = 0;
    for (int i = 0; i < relay->config.local_size; i++) {
        int rank = relay->config.local[i];
        struct symm_relay_message *news;

        if (relay->announced >> i & 1 ||
            symm__relay_state(relay, rank) != SYMM_RELAY_FINALIZED)
            continue;
        news = plain(SYMM_RELAY_DEAD, rank, 1);
        if (news)
            symm__relay_spread(relay, NULL, news);
        symm__relay_drop(news);
        relay->announced |= UINT64_C(1) << i;
    }
}

void symm__relay_tend(struct symm_relay *relay, double *due)
{
    double now = symm__now();

    symm__relay_call_step(relay);
    if (!relay->serving) {
        if (!relay->stopped)
            symm__relay_want(relay, SYMM_RELAY_TO_RELAY, relay->config.rank, now);
        return;
    }
    tend_tree(relay, now, due);
    if (relay->announce_at > 0 && now >= relay->announce_at && !relay->leaving)
        announce(relay);
    else if (relay->announce_at > 0 && !relay->leaving)
        sooner(due, relay->announce_at);
    for (int h = 0;
         h < relay->config.hosts && relay->ledger.exchanges && relay->any_gone; h++)
        if (relay->gone[h])
            symm__relay_fail_gone(relay, h);
    if (relay->ledger.exchanges && symm__relay_report_cuts(relay))
        sooner(due, now + LOOK_SECONDS);
    sooner(due, symm__ledger_tick(&relay->ledger));
    symm__relay_call_step(relay);
}

bool symm__relay_may_stop(struct symm_relay *relay)
{
    if (!relay->leaving)
        return false;
    if (symm__now() >= relay->leave_by)
        return true;
    return relay->serving ? !symm__relay_owes(relay) && !is_settling(relay)
                          : relay->acknowledged;
}
