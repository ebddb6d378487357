/* SPDX-License-Identifier: MIT */
/*
 * ledger_take.c - the exchanges that are not over, and what each message does to them: see
 * ledger.h. What a link has received is checked here before it is used.
 */
#include "relay/ledger_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/status.h"

/* ---- Exchanges -------------------------------------------------------------------- */

struct symm_ledger_exchange *symm__ledger_find(const struct symm_ledger *ledger,
                                               uint64_t tag, uint32_t sequence)
{
    struct symm_ledger_exchange *x = ledger->exchanges;

    while (x && (x->tag != tag || x->sequence != sequence))
        x = x->next;
    return x;
}

void symm__ledger_exchange_free(struct symm_ledger_exchange *x)
{
    for (int p = 0; x->parts && p < x->count; p++)
        symm__relay_drop(x->parts[p].message);
    symm__relay_drop(x->all);
    symm__relay_drop(x->gave_up);
    symm__relay_drop(x->verdict);
    free(x->parts);
    free(x->leaders);
    free(x);
}

void symm__ledger_close(struct symm_ledger *ledger)
{
    while (ledger->exchanges) {
        struct symm_ledger_exchange *x = ledger->exchanges;

        ledger->exchanges = x->next;
        symm__ledger_exchange_free(x);
    }
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES; i++)
        symm__relay_drop(ledger->outcome[i].why);
    memset(ledger->outcome, 0, sizeof(ledger->outcome));
    ledger->outcomes = 0;
}

int symm__ledger_place(const struct symm_ledger *ledger,
                       const struct symm_relay_message *message)
{
    const int32_t *leaders = (const int32_t *)(const void *)message->data;
    int count = (int)message->head.leaders, place = -1, before = -1;

    if (count < 2 || count > ledger->hosts ||
        message->head.bytes < symm__relay_list_bytes((uint64_t)count))
        return -1;
    for (int p = 0; p < count; p++) {
        int host;

        if (leaders[p] < 0 || leaders[p] >= ledger->ranks)
            return -1;
        host = symm__ledger_host_at(ledger, leaders, p);
        if (host <= before)
            return -1;
        before = host;
        if (host == ledger->host)
            place = p;
    }
    return place;
}

/* How many of `count` hosts are in the subtree of that place. */
static int subtree(int place, int count)
{
    int first = place, width = 1, all = 0;

    for (; first < count; width *= SYMM_TREE_ARITY, first = symm__tree_child(first))
        all += first + width <= count ? width : count - first;
    return all;
}

/* *found: the exchange of a message that has a list of leaders; made if there is none. */
static enum symm_ledger_taken exchange_of(struct symm_ledger *ledger,
                                          const struct symm_relay_message *message,
                                          struct symm_ledger_exchange **found)
{
    int place = symm__ledger_place(ledger, message), count = (int)message->head.leaders;
    struct symm_ledger_exchange *x =
        symm__ledger_find(ledger, message->head.tag, message->head.sequence);
    size_t bytes = (size_t)count * sizeof(int32_t);

    *found = x;
    if (place < 0)
        return SYMM_LEDGER_REFUSED;
    if (x)
        return x->count == count && memcmp(x->leaders, message->data, bytes) == 0
                   ? SYMM_LEDGER_TAKEN
                   : SYMM_LEDGER_REFUSED;
    x = calloc(1, sizeof(*x));
    if (!x)
        return SYMM_LEDGER_LACKS;
    x->count = count;
    x->leaders = malloc(bytes);
    x->parts = calloc((size_t)count, sizeof(*x->parts));
    if (!x->leaders || !x->parts) {
        symm__ledger_exchange_free(x);
        return SYMM_LEDGER_LACKS;
    }
    memcpy(x->leaders, message->data, bytes);
    x->tag = message->head.tag;
    x->sequence = message->head.sequence;
    x->place = place;
    x->below = subtree(place, count);
    x->since = symm__now();
    x->next = ledger->exchanges;
    ledger->exchanges = x;
    *found = x;
    return SYMM_LEDGER_TAKEN;
}

/* ---- Messages that come --------------------------------------------------------------- */

/* Tells the sender how its exchange has ended. */
static enum symm_ledger_taken answer(struct symm_ledger *ledger, int from, int leader,
                                     const struct symm_ledger_outcome *outcome)
{
    struct symm_relay_message *message =
        outcome->went ? symm__relay_step(SYMM_RELAY_GO, outcome->tag, outcome->sequence)
                      : symm__relay_keep(outcome->why);

    if (!message)
        return SYMM_LEDGER_LACKS;
    if (from >= 0)
        ledger->to_host(ledger->user, from, message);
    else
        ledger->to_leader(ledger->user, leader, message);
    symm__relay_drop(message);
    return SYMM_LEDGER_TAKEN;
}

/*
 * A leader begins an exchange. Is this exchange, or a later one of the tag, over already, or has
 * the exchange that led to it failed? Then the leader is told: *is_late.
 */
static enum symm_ledger_taken came_late(struct symm_ledger *ledger,
                                        const struct symm_relay_message *message,
                                        bool *is_late)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        symm__ledger_outcome_of(ledger, head->tag, head->sequence);
    struct symm_relay_message *late;

    if (!outcome && head->before != 0) {
        outcome = symm__ledger_outcome_of(ledger, head->before, 0);
        outcome = outcome && outcome->went ? NULL : outcome;
    }
    *is_late = outcome != NULL;
    if (!outcome)
        return SYMM_LEDGER_TAKEN;
    if (outcome->went)
        return answer(ledger, -1, head->from, outcome);
    late = symm__relay_message(SYMM_RELAY_FAIL, outcome->why->head.bytes);
    if (!late)
        return SYMM_LEDGER_LACKS;
    late->head = outcome->why->head;
    late->head.reached = outcome->tag == head->tag ? outcome->sequence : head->sequence;
    late->head.sequence = head->sequence;
    late->head.tag = head->tag;
    late->head.before = outcome->tag; /* the exchange that failed */
    memcpy(late->data, outcome->why->data, (size_t)late->head.bytes);
    ledger->to_leader(ledger->user, head->from, late);
    symm__relay_drop(late);
    return SYMM_LEDGER_TAKEN;
}

static enum symm_ledger_taken take_part(struct symm_ledger *ledger,
                                        struct symm_relay_message *message)
{
    struct symm_ledger_exchange *x;
    struct symm_ledger_part *part;
    uint64_t at = symm__relay_list_bytes(message->head.leaders);
    enum symm_ledger_taken taken;
    bool is_late;

    if (symm__ledger_place(ledger, message) < 0)
        return SYMM_LEDGER_REFUSED;
    taken = came_late(ledger, message, &is_late);
    if (is_late)
        return taken;
    taken = exchange_of(ledger, message, &x);
    if (taken != SYMM_LEDGER_TAKEN)
        return taken;
    if (symm__ledger_leader_of(x) != message->head.from)
        return SYMM_LEDGER_REFUSED;
    part = &x->parts[x->place];
    if (!part->message) {
        *part = (struct symm_ledger_part){.message = symm__relay_keep(message),
                                          .data = message->data + at,
                                          .bytes = message->head.bytes - at};
        x->got++;
    }
    /* The PART was sent again, to a new relay that has ALL from its parent already. */
    if (x->all && !x->have)
        ledger->to_leader(ledger->user, symm__ledger_leader_of(x), x->all);
    if (symm__ledger_check_step(ledger, x, &message->head, message->head.from))
        symm__ledger_advance(ledger, x);
    return SYMM_LEDGER_TAKEN;
}

/* The place of that host in this one's subtree; -1: it is not in it. */
static int place_below(const struct symm_ledger *ledger,
                       const struct symm_ledger_exchange *x, int host)
{
    for (int p = x->place + 1; p < x->count; p++)
        if (symm__ledger_host_at(ledger, x->leaders, p) == host)
            return symm__ledger_in_subtree(p, x->place) ? p : -1;
    return -1;
}

static enum symm_ledger_taken take_up(struct symm_ledger *ledger, int from,
                                      struct symm_relay_message *message)
{
    const struct symm_ledger_outcome *outcome =
        symm__ledger_outcome(ledger, message->head.tag, message->head.sequence);
    struct symm_ledger_exchange *x;
    enum symm_ledger_taken taken;
    const char *why;
    int child;

    if (symm__ledger_place(ledger, message) < 0)
        return SYMM_LEDGER_REFUSED;
    if (outcome)
        return answer(ledger, from, -1, outcome);
    taken = exchange_of(ledger, message, &x);
    if (taken != SYMM_LEDGER_TAKEN)
        return taken;
    child = place_below(ledger, x, from);
    if (child < 0 || !symm__ledger_take_parts(x, message, child))
        return SYMM_LEDGER_REFUSED;
    if (x->all && symm__tree_parent(child) == x->place &&
        !x->child_have[child - symm__tree_child(x->place)])
        symm__ledger_to_place(ledger, x, child, x->all);
    if (!symm__ledger_check_step(ledger, x, &message->head, message->head.from))
        return SYMM_LEDGER_TAKEN;
    why = x->parts[x->place].message
              ? NULL
              : ledger->absent(ledger->user, symm__ledger_leader_of(x));
    if (why) {
        char sentence[SYMM_ERROR_BYTES];

        snprintf(sentence, sizeof(sentence), "rank %d %s during %s",
                 symm__ledger_leader_of(x), why, x->what);
        symm__ledger_fail(ledger, x, SYMM_ERR_PEER_DEAD, symm__ledger_leader_of(x),
                          sentence);
        return SYMM_LEDGER_TAKEN;
    }
    symm__ledger_advance(ledger, x);
    return SYMM_LEDGER_TAKEN;
}

static enum symm_ledger_taken take_have(struct symm_ledger *ledger, int from,
                                        const struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        symm__ledger_outcome(ledger, head->tag, head->sequence);
    struct symm_ledger_exchange *x =
        symm__ledger_find(ledger, head->tag, head->sequence);
    int place;

    if (outcome)
        return answer(ledger, from, head->from, outcome);
    if (!x) /* its PART or UP was refused, or will be sent again */
        return SYMM_LEDGER_TAKEN;
    if (from < 0) {
        x->have = x->have || symm__ledger_leader_of(x) == head->from;
        symm__ledger_advance(ledger, x);
        return SYMM_LEDGER_TAKEN;
    }
    place = place_below(ledger, x, from);
    if (place < 0)
        return SYMM_LEDGER_REFUSED;
    if (symm__tree_parent(place) != x->place) {
        x->parts[place].asks = true;
        return SYMM_LEDGER_TAKEN;
    }
    x->child_have[place - symm__tree_child(x->place)] = true;
    symm__ledger_advance(ledger, x);
    return SYMM_LEDGER_TAKEN;
}

static enum symm_ledger_taken take_verdict(struct symm_ledger *ledger, int from,
                                           struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    struct symm_ledger_exchange *x =
        symm__ledger_find(ledger, head->tag, head->sequence);
    enum symm_ledger_taken taken = SYMM_LEDGER_TAKEN;

    if (from < 0)
        return SYMM_LEDGER_REFUSED;
    if (head->kind == SYMM_RELAY_GO && !x) {
        symm__ledger_outcome_add(ledger, head->tag, head->sequence, NULL);
        return SYMM_LEDGER_TAKEN;
    }
    if (head->kind == SYMM_RELAY_FAIL) {
        if (symm__ledger_outcome(ledger, head->tag, head->sequence))
            return SYMM_LEDGER_TAKEN;
        taken = exchange_of(ledger, message, &x);
    }
    if (taken != SYMM_LEDGER_TAKEN)
        return taken;
    /* GO means that all leaders have all bytes, whichever host sends it. A FAIL counts from the
     * parent only, which has it from the root. */
    if (head->kind != SYMM_RELAY_GO && !symm__ledger_is_parent(ledger, x, from))
        return SYMM_LEDGER_REFUSED;
    return symm__ledger_finish(ledger, x, head->kind == SYMM_RELAY_GO ? NULL : message)
               ? SYMM_LEDGER_TAKEN
               : SYMM_LEDGER_LACKS;
}

static enum symm_ledger_taken take_give_up(struct symm_ledger *ledger, int from,
                                           struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        symm__ledger_outcome(ledger, head->tag, head->sequence);
    struct symm_ledger_exchange *x;
    enum symm_ledger_taken taken;

    if (symm__ledger_place(ledger, message) < 0)
        return SYMM_LEDGER_REFUSED;
    if (outcome)
        return answer(ledger, from, head->from, outcome);
    taken = exchange_of(ledger, message, &x);
    if (taken != SYMM_LEDGER_TAKEN)
        return taken;
    if (!x->what[0]) {
        snprintf(x->what, sizeof(x->what), "%.63s", message->head.what);
        x->what_from = message->head.rank;
    }
    if (from < 0 && head->from != symm__ledger_leader_of(x) &&
        x->askers < SYMM_LEDGER_ASKERS)
        x->asker[x->askers++] = head->from;
    symm__ledger_give_up(ledger, x, message);
    return SYMM_LEDGER_TAKEN;
}

enum symm_ledger_taken symm__ledger_take(struct symm_ledger *ledger, int from,
                                         struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    struct symm_ledger_exchange *x;

    if (from < 0 && (head->from < 0 || head->from >= ledger->ranks ||
                     ledger->host_of[head->from] != ledger->host))
        return SYMM_LEDGER_REFUSED;
    switch (head->kind) {
    case SYMM_RELAY_PART:
        return from < 0 ? take_part(ledger, message) : SYMM_LEDGER_REFUSED;
    case SYMM_RELAY_UP:
        return from < 0 ? SYMM_LEDGER_REFUSED : take_up(ledger, from, message);
    case SYMM_RELAY_HAVE:
        return take_have(ledger, from, message);
    case SYMM_RELAY_GO:
    case SYMM_RELAY_FAIL:
        return take_verdict(ledger, from, message);
    case SYMM_RELAY_GIVE_UP:
        return take_give_up(ledger, from, message);
    case SYMM_RELAY_ALL:
        x = symm__ledger_find(ledger, head->tag, head->sequence);
        if (from < 0 || (x && !symm__ledger_is_parent(ledger, x, from)))
            return SYMM_LEDGER_REFUSED;
        if (x && !x->all)
            symm__ledger_take_all(ledger, x, symm__relay_keep(message));
        return SYMM_LEDGER_TAKEN;
    default:
        return SYMM_LEDGER_REFUSED;
    }
}
