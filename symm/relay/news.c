/* SPDX-License-Identifier: MIT */
/*
 * news.c - reports that go to all hosts: NOTICE, DEAD, GONE and CELL (board.c). Each relay passes
 * on only what is new to it, so no report circulates for ever. Ends that connect later
 * get the NOTICEs that were kept, and the state of ranks and hosts.
 */
#include <stdio.h>
#include <string.h>

#include "relay/private.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define SETTLE_SECONDS 0.15 /* for neighbours to connect to a new relay */
#define ATTACH_SECONDS 0.2  /* after the host above has left: most jobs end then */
#define ORPHAN_SECONDS                                                                 \
    0.04 /* for hosts below a gone one to attach, before they are probed */
#define RANKS_NAMED 64 /* of a host */

struct symm_relay_message *symm__relay_plain(enum symm_relay_kind kind, int rank,
                                             int status)
{
    struct symm_relay_message *message = symm__relay_message(kind, 0);

    if (!message)
        return NULL;
    message->head.rank = rank;
    message->head.status = status;
    return message;
}

void symm__relay_queue_plain(struct symm_relay_connection *to,
                             enum symm_relay_kind kind, int rank, int status)
{
    struct symm_relay_message *message = symm__relay_plain(kind, rank, status);

    if (message)
        symm__relay_queue(to, message);
    else
        symm__relay_restart(to);
    symm__relay_drop(message);
}

void symm__relay_set_state(struct symm_relay *relay, int rank,
                           enum symm_relay_state state)
{
    if (state != SYMM_RELAY_ALIVE)
        __atomic_store_n(&relay->any_ended, true, __ATOMIC_RELEASE);
    /* The first state that is not ALIVE stays. release: pairs with the acquire in
     * symm__relay_state: after it a reader sees `silent` of the host */
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

void symm__relay_spread_plain(struct symm_relay *relay,
                              const struct symm_relay_connection *from,
                              enum symm_relay_kind kind, int rank, int status)
{
    struct symm_relay_message *message = symm__relay_plain(kind, rank, status);

    if (message)
        symm__relay_spread(relay, from, message);
    for (struct symm_relay_connection *c = relay->connections; !message && c;
         c = c->next)
        if (c != from && c->end != SYMM_RELAY_TO_RELAY && c->end != SYMM_RELAY_PROBE)
            symm__relay_restart(c);
    symm__relay_drop(message);
}

/* Why the host, which is gone, is gone. */
static enum symm_relay_loss loss_of(const struct symm_relay *relay, int host)
{
    return relay->left[host]                    ? SYMM_RELAY_HOST_LEFT
           : symm__relay_is_silent(relay, host) ? SYMM_RELAY_HOST_SILENT
                                                : SYMM_RELAY_HOST_DIED;
}

void symm__relay_send_news(struct symm_relay *relay, struct symm_relay_connection *to)
{
    for (unsigned i = 0; i < SYMM_RELAY_NOTICES; i++)
        if (relay->news[i])
            symm__relay_queue(to, relay->news[i]);
    symm__relay_queue_cells(relay, to);
    if (to->end == SYMM_RELAY_TO_RELAY)
        return;
    for (int h = 0; h < relay->config.hosts && relay->any_gone; h++)
        if (relay->gone[h])
            symm__relay_queue_plain(to, SYMM_RELAY_GONE, h, (int)loss_of(relay, h));
    for (int r = 0; r < relay->config.ranks; r++) {
        enum symm_relay_state state = symm__relay_state(relay, r);

        if (state != SYMM_RELAY_ALIVE && !relay->gone[relay->config.host_of[r]])
            symm__relay_queue_plain(to, SYMM_RELAY_DEAD, r,
                                    state == SYMM_RELAY_FINALIZED);
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

/* "rank 3, alone on host b, has", "all ranks on host b (rank 3 and rank 4) have" */
static void name_ranks(const struct symm_relay *relay, int host, char *text,
                       size_t bytes)
{
    const char *name = relay->config.at[host].name;
    int ranks[RANKS_NAMED], count = 0;
    char names[160];

    for (int r = 0; r < relay->config.ranks && count < RANKS_NAMED; r++)
        if (relay->config.host_of[r] == host)
            ranks[count++] = r;
    symm__ranks_text(ranks, count, names, sizeof(names));
    snprintf(text, bytes,
             count == 1 ? "%s, alone on host %s, has"
                        : "all ranks (%s) on host %s have",
             names, name);
}

void symm__relay_fail_gone(struct symm_relay *relay, int host)
{
    /* If a rank of the host died before the others finalized, that is the cause. */
    int dead = relay->left[host] ? dead_rank(relay, host) : -1;
    char sentence[SYMM_ERROR_BYTES], who[240];

    name_ranks(relay, host, who, sizeof(who));
    if (dead >= 0)
        snprintf(sentence, sizeof(sentence),
                 "rank %d has died, and no other rank on host %s is left", dead,
                 relay->config.at[host].name);
    else
        snprintf(sentence, sizeof(sentence), "%s %s", who,
                 relay->left[host] ? "finalized" : "died, or cannot be reached");
    symm__ledger_host_gone(&relay->ledger, host, sentence);
}

void symm__relay_settle(struct symm_relay *relay)
{
    relay->settle_until = symm__now() + SETTLE_SECONDS;
    relay->after_death = true;
}

void symm__relay_note_gone(struct symm_relay *relay,
                           const struct symm_relay_connection *from, int host,
                           enum symm_relay_loss loss)
{
    bool left = loss == SYMM_RELAY_HOST_LEFT;

    if (relay->gone[host] || host == symm__relay_host(relay))
        return;
    relay->gone[host] = relay->any_gone = true;
    relay->left[host] = left;
    /* relaxed: a reader has acquired a state that is set below */
    __atomic_store_n(&relay->silent[host], loss == SYMM_RELAY_HOST_SILENT,
                     __ATOMIC_RELAXED);
    relay->any_left = relay->any_left || left;
    for (int r = 0; r < relay->config.ranks; r++)
        if (relay->config.host_of[r] == host)
            symm__relay_set_state(relay, r,
                                  left ? SYMM_RELAY_FINALIZED : SYMM_RELAY_DIED);
    symm__relay_spread_plain(relay, from, SYMM_RELAY_GONE, host, (int)loss);
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->id == host && c->end != SYMM_RELAY_TO_RELAY &&
            c->end != SYMM_RELAY_OF_RANK)
            symm__relay_doom(c);
    if (!relay->serving)
        return;
    if (!left)
        symm__relay_settle(relay);
    /* from NULL: this host found the loss itself, by tries to connect, so it has waited already. */
    relay->attach_at = symm__now() + (left && from ? ATTACH_SECONDS : 0);
    relay->probe_at = relay->attach_at + ORPHAN_SECONDS;
    symm__relay_fail_gone(relay, host);
}

void symm__relay_host_gone(struct symm_relay *relay, int host,
                           enum symm_relay_loss loss)
{
    if (relay->serving)
        symm__relay_note_gone(relay, NULL, host, loss);
}

void symm__relay_rank_died(struct symm_relay *relay, int rank)
{
    symm__relay_set_state(relay, rank, SYMM_RELAY_DIED);
    symm__relay_spread_plain(relay, NULL, SYMM_RELAY_DEAD, rank, 0);
    symm__ledger_rank_gone(&relay->ledger, rank, "has died");
}

bool symm__relay_hear_news(struct symm_relay *relay, struct symm_relay_connection *from,
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
        symm__relay_note_gone(relay, from, head->rank,
                              head->status == SYMM_RELAY_HOST_LEFT ||
                                      head->status == SYMM_RELAY_HOST_SILENT
                                  ? (enum symm_relay_loss)head->status
                                  : SYMM_RELAY_HOST_DIED);
        return true;
    }
    if (head->kind == SYMM_RELAY_CELL) {
        bool newer;

        if (!symm__relay_keep_cell(relay, message, &newer))
            symm__relay_restart(from);
        else if (newer)
            symm__relay_spread(relay, from, message);
        return true;
    }
    if (head->kind == SYMM_RELAY_DEAD) {
        if (symm__relay_state(relay, head->rank) != SYMM_RELAY_ALIVE)
            return true;
        symm__relay_set_state(relay, head->rank,
                              head->status ? SYMM_RELAY_FINALIZED : SYMM_RELAY_DIED);
    } else {
        if (find_report(relay, head->tag, NULL))
            return true;
        take_notice(relay, message);
    }
    symm__relay_spread(relay, from, message);
    return true;
}
