/* SPDX-License-Identifier: MIT */
/*
 * ledger.c - see ledger.h.
 *
 * Data of UP and ALL: the list of leaders, then for each part a record (struct symm_relay_record) and its
 * bytes, padded to 8. What came from a link is checked here before it is used.
 */
#include "relay/ledger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define LOOK_SECONDS 0.05 /* between two looks for exchanges that wait for each other */
#define KEEP_SECONDS 0.2  /* for the ranks of the root's host to be given a verdict */
#define KEEP_AGAIN   0.002 /* between two tries */

static uint64_t list_bytes(const struct symm_ledger_exchange *x)
{
    return symm__relay_list_bytes((uint64_t)x->count);
}

/* ---- Outcomes --------------------------------------------------------------------- */

/* The last outcome of the tag that is not before `sequence`; NULL: none is known. */
static const struct symm_ledger_outcome *outcome_of(const struct symm_ledger *ledger,
                                                    uint64_t tag, uint32_t sequence)
{
    unsigned known = ledger->outcomes < SYMM_LEDGER_OUTCOMES ? ledger->outcomes
                                                             : SYMM_LEDGER_OUTCOMES;

    for (unsigned i = 1; i <= known; i++) {
        const struct symm_ledger_outcome *outcome =
            &ledger->outcome[(ledger->outcomes - i) % SYMM_LEDGER_OUTCOMES];

        if (outcome->tag == tag && (int32_t)(outcome->sequence - sequence) >= 0)
            return outcome;
    }
    return NULL;
}

static const struct symm_ledger_outcome *
outcome_exactly(const struct symm_ledger *ledger, uint64_t tag, uint32_t sequence)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++)
        if (ledger->outcome[i].tag == tag && ledger->outcome[i].sequence == sequence)
            return &ledger->outcome[i];
    return NULL;
}

/* why: NULL: GO. */
static void outcome_add(struct symm_ledger *ledger, uint64_t tag, uint32_t sequence,
                        struct symm_relay_message *why)
{
    struct symm_ledger_outcome *outcome =
        &ledger->outcome[ledger->outcomes % SYMM_LEDGER_OUTCOMES];

    if (outcome_exactly(ledger, tag, sequence))
        return;
    symm__relay_drop(outcome->why);
    *outcome = (struct symm_ledger_outcome){.tag = tag,
                                            .sequence = sequence,
                                            .went = !why,
                                            .why = why ? symm__relay_keep(why) : NULL};
    ledger->outcomes++;
}

void symm__ledger_outcomes(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *go),
                           void *user)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++) {
        const struct symm_ledger_outcome *outcome = &ledger->outcome[i];
        struct symm_relay_message *go =
            outcome->went
                ? symm__relay_step(SYMM_RELAY_GO, outcome->tag, outcome->sequence)
                : NULL;

        if (go)
            each(user, go);
        symm__relay_drop(go);
    }
}

void symm__ledger_verdicts(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *verdict),
                           void *user)
{
    symm__ledger_outcomes(ledger, each, user);
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++)
        if (ledger->outcome[i].why)
            each(user, ledger->outcome[i].why);
}

/* The place of a host in a message's list; -1: it is not there. */
static int place_in(const struct symm_ledger *ledger,
                    const struct symm_relay_message *message, int host)
{
    const int32_t *leaders = (const int32_t *)(const void *)message->data;

    for (uint32_t p = 0; p < message->head.leaders; p++)
        if (ledger->host_of[leaders[p]] == host)
            return (int)p;
    return -1;
}

void symm__ledger_failures(const struct symm_ledger *ledger, int host,
                           void (*each)(void *user, struct symm_relay_message *fail),
                           void *user)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++) {
        struct symm_relay_message *why = ledger->outcome[i].why;
        int place = why ? place_in(ledger, why, host) : -1;

        if (place > 0 &&
            symm__tree_parent(place) == place_in(ledger, why, ledger->host))
            each(user, why);
    }
}

/* ---- Exchanges -------------------------------------------------------------------- */

static struct symm_ledger_exchange *find(const struct symm_ledger *ledger, uint64_t tag,
                                         uint32_t sequence)
{
    struct symm_ledger_exchange *x = ledger->exchanges;

    while (x && (x->tag != tag || x->sequence != sequence))
        x = x->next;
    return x;
}

static void exchange_free(struct symm_ledger_exchange *x)
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
        exchange_free(x);
    }
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES; i++)
        symm__relay_drop(ledger->outcome[i].why);
    memset(ledger->outcome, 0, sizeof(ledger->outcome));
    ledger->outcomes = 0;
}

static int host_at(const struct symm_ledger *ledger, const int32_t *leaders, int place)
{
    return ledger->host_of[leaders[place]];
}

/* The place of this host in a list that came; -1: the list is none. */
static int list_place(const struct symm_ledger *ledger,
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
        host = host_at(ledger, leaders, p);
        if (host <= before)
            return -1;
        before = host;
        if (host == ledger->host)
            place = p;
    }
    return place;
}

static int subtree(int place, int count)
{
    int first = place, width = 1, all = 0;

    for (; first < count; width *= SYMM_TREE_ARITY, first = symm__tree_child(first))
        all += first + width <= count ? width : count - first;
    return all;
}

/* The exchange of a message with a list; made if it is not there. NULL: the list is none, or no
 * memory. */
static struct symm_ledger_exchange *
exchange_of(struct symm_ledger *ledger, const struct symm_relay_message *message)
{
    int place = list_place(ledger, message), count = (int)message->head.leaders;
    struct symm_ledger_exchange *x =
        find(ledger, message->head.tag, message->head.sequence);
    size_t bytes = (size_t)count * sizeof(int32_t);

    if (place < 0)
        return NULL;
    if (x)
        return x->count == count && memcmp(x->leaders, message->data, bytes) == 0
                   ? x
                   : NULL;
    x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->count = count;
    x->leaders = malloc(bytes);
    x->parts = calloc((size_t)count, sizeof(*x->parts));
    if (!x->leaders || !x->parts) {
        exchange_free(x);
        return NULL;
    }
    memcpy(x->leaders, message->data, bytes);
    x->tag = message->head.tag;
    x->sequence = message->head.sequence;
    x->place = place;
    x->below = subtree(place, count);
    x->since = symm__now();
    x->next = ledger->exchanges;
    ledger->exchanges = x;
    return x;
}

static int leader_of(const struct symm_ledger_exchange *x)
{
    return x->leaders[x->place];
}

static void to_place(struct symm_ledger *ledger, const struct symm_ledger_exchange *x,
                     int place, struct symm_relay_message *message)
{
    ledger->to_host(ledger->user, host_at(ledger, x->leaders, place), message);
}

/* The place that this relay reports to: its parent, or the root, if it asks that. */
static int place_above(const struct symm_ledger_exchange *x)
{
    return x->asks ? 0 : symm__tree_parent(x->place);
}

static void to_children(struct symm_ledger *ledger,
                        const struct symm_ledger_exchange *x,
                        struct symm_relay_message *message, bool all)
{
    int first = symm__tree_child(x->place);

    for (int c = 0; c < symm__tree_children(x->place, x->count); c++)
        if (all || !x->child_have[c])
            to_place(ledger, x, first + c, message);
}

/* A message with the exchange's list, and room for `more` bytes after it. */
static struct symm_relay_message *message_of(const struct symm_ledger_exchange *x,
                                             enum symm_relay_kind kind, uint64_t more)
{
    struct symm_relay_message *message =
        symm__relay_listed(kind, x->tag, x->sequence, x->leaders, x->count, more);

    if (!message)
        return NULL;
    message->head.from = x->said;
    memcpy(message->head.what, x->what, sizeof(message->head.what));
    return message;
}

/* ---- The end of an exchange --------------------------------------------------------- */

/* Also children that have said nothing yet learn of the verdict. The exchange is over. */
static void tell(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    struct symm_ledger_exchange **at = &ledger->exchanges;
    struct symm_relay_message *verdict = x->verdict;

    outcome_add(ledger, x->tag, x->sequence,
                verdict->head.kind == SYMM_RELAY_GO ? NULL : verdict);
    to_children(ledger, x, verdict, true);
    for (int p = 0; p < x->count; p++)
        if (x->parts[p].asks)
            to_place(ledger, x, p, verdict);
    ledger->to_leader(ledger->user, leader_of(x), verdict);
    for (int i = 0; i < x->askers; i++)
        ledger->to_leader(ledger->user, x->asker[i], verdict);
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    exchange_free(x);
}

/*
 * How the exchange ends. why: FAIL; NULL: GO. The root's verdict is kept on its host before it is
 * told: until then the exchange stays, and no other verdict counts.
 */
static void finish(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                   struct symm_relay_message *why)
{
    if (x->verdict)
        return;
    x->verdict = why ? symm__relay_keep(why)
                     : symm__relay_step(SYMM_RELAY_GO, x->tag, x->sequence);
    if (!x->verdict) /* no memory: it is decided again by what comes next */
        return;
    x->tell_by = symm__now() + KEEP_SECONDS;
    if (x->place > 0 || ledger->keep(ledger->user, x->verdict, &x->kept))
        tell(ledger, x);
}

static struct symm_relay_message *reason(const struct symm_ledger_exchange *x,
                                         enum symm_relay_kind kind, symm_status status,
                                         int rank, const char *sentence)
{
    size_t bytes = strnlen(sentence, SYMM_ERROR_BYTES - 1);
    struct symm_relay_message *message = message_of(x, kind, bytes);

    if (!message)
        return NULL;
    memcpy(message->data + list_bytes(x), sentence, bytes);
    message->head.status = status;
    message->head.rank = rank;
    message->head.reached = x->sequence;
    return message;
}

/* The sentence of a timeout, if hosts have not come. */
static void missing_text(const struct symm_ledger *ledger,
                         const struct symm_ledger_exchange *x, double seconds,
                         char *text, size_t bytes)
{
    int *late = malloc((size_t)x->count * sizeof(*late)), count = 0;
    char names[200];

    text[0] = '\0';
    for (int p = 0; late && p < x->count; p++)
        if (!x->parts[p].message)
            late[count++] = x->leaders[p];
    if (count > 0) {
        symm__ranks_text(late, count, names, sizeof(names));
        snprintf(text, bytes,
                 "%s (host %s%s) %s not come to %s within %.3g s: stopped, busy "
                 "elsewhere, or in need of a longer timeout (SYMM_TIMEOUT)?%s",
                 names, ledger->host_name(ledger->user, ledger->host_of[late[0]]),
                 count > 1 ? " and others" : "", count == 1 ? "has" : "have", x->what,
                 seconds, ledger->hint(ledger->user));
    }
    free(late);
}

/* Wants the exchange to fail: the root decides. `message`: a GIVE_UP with the list. */
static void give_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                    struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    char text[SYMM_ERROR_BYTES];
    struct symm_relay_message *fail;
    if (x->place > 0) {
        if (x->gave_up)
            return;
        x->gave_up = symm__relay_keep(message);
        to_place(ledger, x, place_above(x), message);
        return;
    }
    symm__relay_sentence(message, text);
    if (head->status == SYMM_ERR_TIMEOUT && !x->all && head->reached > 0) {
        char late[SYMM_ERROR_BYTES];

        missing_text(ledger, x, head->reached * 1e-3, late, sizeof(late));
        if (late[0])
            memcpy(text, late, sizeof(text));
    }
    fail = reason(x, SYMM_RELAY_FAIL, head->status, head->rank, text);
    if (!fail)
        return;
    finish(ledger, x, fail);
    symm__relay_drop(fail);
}

static void fail_here(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                      symm_status status, int rank, const char *sentence)
{
    struct symm_relay_message *message =
        reason(x, SYMM_RELAY_GIVE_UP, status, rank, sentence);

    if (!message)
        return;
    message->head.reached = 0; /* the sentence is whole */
    give_up(ledger, x, message);
    symm__relay_drop(message);
}

/* ---- Parts ------------------------------------------------------------------------ */

/* A message with the parts that `all` or not yet `sent` are; NULL: none, or no memory. */
static struct symm_relay_message *bundle(struct symm_ledger_exchange *x,
                                         enum symm_relay_kind kind, bool again)
{
    struct symm_relay_message *message;
    uint64_t bytes = 0, at = list_bytes(x);
    int parts = 0;

    for (int p = 0; p < x->count; p++)
        if (x->parts[p].message && (again || !x->parts[p].sent)) {
            bytes += sizeof(struct symm_relay_record) +
                     symm__relay_padded(x->parts[p].bytes);
            parts++;
        }
    message = parts > 0 ? message_of(x, kind, bytes) : NULL;
    for (int p = 0; message && p < x->count; p++) {
        struct symm_ledger_part *part = &x->parts[p];
        struct symm_relay_record record = {.place = (uint32_t)p, .bytes = part->bytes};

        if (!part->message || (part->sent && !again))
            continue;
        memcpy(message->data + at, &record, sizeof(record));
        at += sizeof(record);
        if (part->bytes > 0)
            memcpy(message->data + at, part->data, (size_t)part->bytes);
        memset(message->data + at + part->bytes, 0,
               (size_t)(symm__relay_padded(part->bytes) - part->bytes));
        at += symm__relay_padded(part->bytes);
    }
    return message;
}

/* Sends the parent the parts that it has not, or all again. */
static void send_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                    bool again)
{
    struct symm_relay_message *up = bundle(x, SYMM_RELAY_UP, again);

    if (!up)
        return;
    to_place(ledger, x, place_above(x), up);
    symm__relay_drop(up);
    for (int p = 0; p < x->count; p++)
        x->parts[p].sent = x->parts[p].message != NULL;
    x->sent = x->got;
}

static void send_have(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    struct symm_relay_message *have =
        symm__relay_step(SYMM_RELAY_HAVE, x->tag, x->sequence);

    if (!have)
        return;
    x->have_sent = true;
    to_place(ledger, x, place_above(x), have);
    symm__relay_drop(have);
}

/* All bytes are known here. Takes the message's reference. */
static void take_all(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                     struct symm_relay_message *all)
{
    x->all = all;
    to_children(ledger, x, all, false);
    if (!x->have)
        ledger->to_leader(ledger->user, leader_of(x), all);
}

/* After each change: what follows from it. It may end the exchange. */
static void settle(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    bool all_have = x->have;

    if (x->got == x->below && x->place == 0 && !x->all) {
        struct symm_relay_message *all = bundle(x, SYMM_RELAY_ALL, true);

        if (all)
            take_all(ledger, x, all);
    }
    if (x->got == x->below && x->place > 0 && x->sent < x->got)
        send_up(ledger, x, false);
    for (int c = 0; c < symm__tree_children(x->place, x->count); c++)
        all_have = all_have && x->child_have[c];
    if (!all_have || x->have_sent)
        return;
    if (x->place > 0)
        send_have(ledger, x);
    else
        finish(ledger, x, NULL);
}

/* Are all in the same step? If not the exchange fails, and may be gone. */
static bool check_step(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                       const struct symm_relay_head *head, int rank)
{
    char sentence[SYMM_ERROR_BYTES], what[SYMM_RELAY_WHAT];

    snprintf(what, sizeof(what), "%.63s", head->what);
    if (!x->what[0]) {
        memcpy(x->what, what, sizeof(x->what));
        x->said = rank;
    }
    if (symm__same_step(x->what, what))
        return true;
    snprintf(
        sentence, sizeof(sentence),
        "rank %d is in %s, rank %d in %s: all ranks of a team must make its calls in "
        "one order",
        x->said, x->what, rank, what);
    fail_here(ledger, x, SYMM_ERR_MISMATCH, rank, sentence);
    return false;
}

static bool in_subtree(int place, int of)
{
    while (place > of)
        place = symm__tree_parent(place);
    return place == of;
}

/* The parts of an UP from the child at `child`; false: it is none. */
static bool take_parts(struct symm_ledger_exchange *x,
                       struct symm_relay_message *message, int child)
{
    uint64_t at = list_bytes(x), bytes = message->head.bytes;

    while (at < bytes) {
        struct symm_relay_record record;
        struct symm_ledger_part *part;

        if (bytes - at < sizeof(record))
            return false;
        memcpy(&record, message->data + at, sizeof(record));
        at += sizeof(record);
        if (record.bytes > bytes - at ||
            symm__relay_padded(record.bytes) > bytes - at ||
            record.place >= (uint32_t)x->count || !in_subtree((int)record.place, child))
            return false;
        part = &x->parts[record.place];
        if (!part->message) {
            *part = (struct symm_ledger_part){.message = symm__relay_keep(message),
                                              .data = message->data + at,
                                              .bytes = record.bytes};
            x->got++;
        }
        at += symm__relay_padded(record.bytes);
    }
    return true;
}

/* ---- Messages that come --------------------------------------------------------------- */

/* Tells the sender how its exchange has ended. */
static void answer(struct symm_ledger *ledger, int from, int leader,
                   const struct symm_ledger_outcome *outcome)
{
    struct symm_relay_message *message =
        outcome->went ? symm__relay_step(SYMM_RELAY_GO, outcome->tag, outcome->sequence)
                      : symm__relay_keep(outcome->why);

    if (message && from >= 0)
        ledger->to_host(ledger->user, from, message);
    else if (message)
        ledger->to_leader(ledger->user, leader, message);
    symm__relay_drop(message);
}

/*
 * The leader comes with an exchange. One of this number, or a later one of the tag, may have
 * failed already; so may the step that led to this one.
 */
static bool came_late(struct symm_ledger *ledger,
                      const struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        outcome_of(ledger, head->tag, head->sequence);
    struct symm_relay_message *late;

    if (!outcome && head->before != 0) {
        outcome = outcome_of(ledger, head->before, 0);
        outcome = outcome && outcome->went ? NULL : outcome;
    }
    if (!outcome)
        return false;
    if (outcome->went) {
        answer(ledger, -1, head->from, outcome);
        return true;
    }
    late = symm__relay_message(SYMM_RELAY_FAIL, outcome->why->head.bytes);
    if (!late)
        return true;
    late->head = outcome->why->head;
    late->head.reached = outcome->tag == head->tag ? outcome->sequence : head->sequence;
    late->head.sequence = head->sequence;
    late->head.tag = head->tag;
    late->head.before = outcome->tag; /* the exchange that failed */
    memcpy(late->data, outcome->why->data, (size_t)late->head.bytes);
    ledger->to_leader(ledger->user, head->from, late);
    symm__relay_drop(late);
    return true;
}

static bool take_part(struct symm_ledger *ledger, struct symm_relay_message *message)
{
    struct symm_ledger_exchange *x;
    struct symm_ledger_part *part;
    uint64_t at = symm__relay_list_bytes(message->head.leaders);

    if (list_place(ledger, message) < 0)
        return false;
    if (came_late(ledger, message))
        return true;
    x = exchange_of(ledger, message);
    if (!x || leader_of(x) != message->head.from)
        return false;
    part = &x->parts[x->place];
    if (!part->message) {
        *part = (struct symm_ledger_part){.message = symm__relay_keep(message),
                                          .data = message->data + at,
                                          .bytes = message->head.bytes - at};
        x->got++;
    }
    /* Said again to a relay that is new, whose parent had all before. */
    if (x->all && !x->have)
        ledger->to_leader(ledger->user, leader_of(x), x->all);
    if (check_step(ledger, x, &message->head, message->head.from))
        settle(ledger, x);
    return true;
}

/* The place below this one of a host that reports to it; -1: it has none. */
static int place_below(const struct symm_ledger *ledger,
                       const struct symm_ledger_exchange *x, int host)
{
    for (int p = x->place + 1; p < x->count; p++)
        if (host_at(ledger, x->leaders, p) == host)
            return in_subtree(p, x->place) ? p : -1;
    return -1;
}

static bool take_up(struct symm_ledger *ledger, int from,
                    struct symm_relay_message *message)
{
    const struct symm_ledger_outcome *outcome =
        outcome_exactly(ledger, message->head.tag, message->head.sequence);
    struct symm_ledger_exchange *x;
    const char *why;
    int child;

    if (list_place(ledger, message) < 0)
        return false;
    if (outcome) {
        answer(ledger, from, -1, outcome);
        return true;
    }
    x = exchange_of(ledger, message);
    if (!x)
        return false;
    child = place_below(ledger, x, from);
    if (child < 0 || !take_parts(x, message, child))
        return false;
    if (x->all && symm__tree_parent(child) == x->place &&
        !x->child_have[child - symm__tree_child(x->place)])
        to_place(ledger, x, child, x->all);
    if (!check_step(ledger, x, &message->head, message->head.from))
        return true;
    why =
        x->parts[x->place].message ? NULL : ledger->absent(ledger->user, leader_of(x));
    if (why) {
        char sentence[SYMM_ERROR_BYTES];

        snprintf(sentence, sizeof(sentence), "rank %d %s during %s", leader_of(x), why,
                 x->what);
        fail_here(ledger, x, SYMM_ERR_PEER_DEAD, leader_of(x), sentence);
        return true;
    }
    settle(ledger, x);
    return true;
}

static bool take_have(struct symm_ledger *ledger, int from,
                      const struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        outcome_exactly(ledger, head->tag, head->sequence);
    struct symm_ledger_exchange *x = find(ledger, head->tag, head->sequence);
    int place;

    if (outcome) {
        answer(ledger, from, head->from, outcome);
        return true;
    }
    if (!x) /* its PART or UP was refused, or is on its way again */
        return true;
    if (from < 0) {
        x->have = x->have || leader_of(x) == head->from;
        settle(ledger, x);
        return true;
    }
    place = place_below(ledger, x, from);
    if (place < 0)
        return false;
    if (symm__tree_parent(place) != x->place) {
        x->parts[place].asks = true;
        return true;
    }
    x->child_have[place - symm__tree_child(x->place)] = true;
    settle(ledger, x);
    return true;
}

static bool is_parent(const struct symm_ledger *ledger,
                      const struct symm_ledger_exchange *x, int host)
{
    return x->place > 0 && host_at(ledger, x->leaders, place_above(x)) == host;
}

static bool take_verdict(struct symm_ledger *ledger, int from,
                         struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    struct symm_ledger_exchange *x = find(ledger, head->tag, head->sequence);

    if (from < 0)
        return false;
    if (head->kind == SYMM_RELAY_GO && !x) {
        outcome_add(ledger, head->tag, head->sequence, NULL);
        return true;
    }
    if (head->kind == SYMM_RELAY_FAIL) {
        if (outcome_exactly(ledger, head->tag, head->sequence))
            return true;
        x = exchange_of(ledger, message);
    }
    if (!x)
        return head->kind != SYMM_RELAY_FAIL;
    /* GO of any host says that all have all; a FAIL comes from the root alone. */
    if (head->kind != SYMM_RELAY_GO && !is_parent(ledger, x, from))
        return false;
    finish(ledger, x, head->kind == SYMM_RELAY_GO ? NULL : message);
    return true;
}

void symm__ledger_know(struct symm_ledger *ledger, struct symm_relay_message *verdict)
{
    const struct symm_relay_head *head = &verdict->head;

    if (head->kind == SYMM_RELAY_GO)
        outcome_add(ledger, head->tag, head->sequence, NULL);
    /* `before`: not the root's verdict, but the answer to a leader that came late */
    else if (head->kind == SYMM_RELAY_FAIL && head->before == 0 &&
             list_place(ledger, verdict) >= 0)
        outcome_add(ledger, head->tag, head->sequence, verdict);
}

static bool take_give_up(struct symm_ledger *ledger, int from,
                         struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    const struct symm_ledger_outcome *outcome =
        outcome_exactly(ledger, head->tag, head->sequence);
    struct symm_ledger_exchange *x;

    if (list_place(ledger, message) < 0)
        return false;
    if (outcome) {
        answer(ledger, from, head->from, outcome);
        return true;
    }
    x = exchange_of(ledger, message);
    if (!x)
        return false;
    if (!x->what[0]) {
        snprintf(x->what, sizeof(x->what), "%.63s", message->head.what);
        x->said = message->head.rank;
    }
    if (from < 0 && head->from != leader_of(x) && x->askers < SYMM_LEDGER_ASKERS)
        x->asker[x->askers++] = head->from;
    give_up(ledger, x, message);
    return true;
}

bool symm__ledger_take(struct symm_ledger *ledger, int from,
                       struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    struct symm_ledger_exchange *x;

    if (from < 0 && (head->from < 0 || head->from >= ledger->ranks ||
                     ledger->host_of[head->from] != ledger->host))
        return false;
    switch (head->kind) {
    case SYMM_RELAY_PART:
        return from < 0 && take_part(ledger, message);
    case SYMM_RELAY_UP:
        return from >= 0 && take_up(ledger, from, message);
    case SYMM_RELAY_HAVE:
        return take_have(ledger, from, message);
    case SYMM_RELAY_GO:
    case SYMM_RELAY_FAIL:
        return take_verdict(ledger, from, message);
    case SYMM_RELAY_GIVE_UP:
        return take_give_up(ledger, from, message);
    case SYMM_RELAY_ALL:
        x = find(ledger, head->tag, head->sequence);
        if (from < 0 || (x && !is_parent(ledger, x, from)))
            return false;
        if (x && !x->all)
            take_all(ledger, x, symm__relay_keep(message));
        return true;
    default:
        return false;
    }
}

/* ---- Connections and time ---------------------------------------------------------------- */

void symm__ledger_resend(struct symm_ledger *ledger, int host)
{
    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = x->next) {
        if (!is_parent(ledger, x, host))
            continue;
        if (x->sent > 0)
            send_up(ledger, x, true);
        if (x->have_sent)
            send_have(ledger, x);
        if (x->gave_up)
            ledger->to_host(ledger->user, host, x->gave_up);
    }
}

/* If that host was on the way to the root, which may have said GO. */
static void ask_root(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                     int host)
{
    int above = symm__tree_parent(x->place);

    while (above > 0 && host_at(ledger, x->leaders, above) != host)
        above = symm__tree_parent(above);
    if (above <= 0 || !x->have || x->asks)
        return;
    x->asks = true;
    send_have(ledger, x);
    if (x->gave_up)
        to_place(ledger, x, 0, x->gave_up);
}

/* A host that an exchange counts on is gone: must it fail? */
static bool must_fail(const struct symm_ledger *ledger,
                      const struct symm_ledger_exchange *x, int host)
{
    for (int p = 0; p < x->count; p++) {
        int top = p;

        if (host_at(ledger, x->leaders, p) != host)
            continue;
        if (in_subtree(x->place, p)) /* no verdict can come from there */
            return p == 0 || !x->asks;
        if (x->place > 0) /* the root decides */
            return false;
        while (symm__tree_parent(top) != 0)
            top = symm__tree_parent(top);
        return !x->child_have[top - symm__tree_child(0)];
    }
    return false;
}

void symm__ledger_host_gone(struct symm_ledger *ledger, int host, const char *sentence)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        struct symm_relay_message *fail;

        next = x->next;
        ask_root(ledger, x, host);
        if (!must_fail(ledger, x, host))
            continue;
        fail = reason(x, SYMM_RELAY_FAIL, SYMM_ERR_PEER_DEAD, leader_of(x), sentence);
        if (fail)
            finish(ledger, x, fail);
        symm__relay_drop(fail);
    }
}

void symm__ledger_cut(struct symm_ledger *ledger, int host, symm_status status,
                      const char *sentence)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        struct symm_relay_message *fail;

        next = x->next;
        if (!x->gave_up || !is_parent(ledger, x, host))
            continue;
        fail = reason(x, SYMM_RELAY_FAIL, status, leader_of(x), sentence);
        if (fail)
            finish(ledger, x, fail);
        symm__relay_drop(fail);
    }
}

void symm__ledger_rank_gone(struct symm_ledger *ledger, int rank, const char *how)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        char sentence[SYMM_ERROR_BYTES];

        next = x->next;
        if (leader_of(x) != rank || x->have)
            continue;
        snprintf(sentence, sizeof(sentence), "rank %d %s during %s", rank, how,
                 x->what);
        fail_here(ledger, x, SYMM_ERR_PEER_DEAD, rank, sentence);
    }
}

/* Is there a leader that has come to `in`, and not to `to`, which waits for it? -1: none. */
static int waits_for(const struct symm_ledger *ledger,
                     const struct symm_ledger_exchange *to,
                     const struct symm_ledger_exchange *in)
{
    for (int p = 0, q = 0; p < in->count && q < to->count;) {
        int here = host_at(ledger, in->leaders, p),
            there = host_at(ledger, to->leaders, q);

        if (here == there && in->leaders[p] == to->leaders[q] && in->parts[p].message &&
            !to->parts[q].message)
            return in->leaders[p];
        p += here <= there;
        q += there <= here;
    }
    return -1;
}

/*
 * Is it certain that no leader has left it with GO? Then this host's leader has all, which this
 * relay knows: it passed all on itself, or the leader has said so since this relay serves.
 */
static bool waits(const struct symm_ledger *ledger,
                  const struct symm_ledger_exchange *x, double now)
{
    return now - x->since >= LOOK_SECONDS && !x->gave_up && !x->all && !x->have &&
           !x->verdict && ledger->heard(ledger->user, leader_of(x));
}

static bool find_deadlock(struct symm_ledger *ledger, double now)
{
    for (struct symm_ledger_exchange *a = ledger->exchanges; a; a = a->next) {
        if (!waits(ledger, a, now))
            continue;
        for (struct symm_ledger_exchange *b = a->next; b; b = b->next) {
            int in_a = waits_for(ledger, b, a), in_b = waits_for(ledger, a, b);
            char sentence[SYMM_ERROR_BYTES];

            if (in_a < 0 || in_b < 0 || !waits(ledger, b, now))
                continue;
            snprintf(sentence, sizeof(sentence),
                     "rank %d is in %s, rank %d in %s: each waits for the other; all "
                     "ranks must make these steps in one order",
                     in_a, a->what, in_b, b->what);
            fail_here(ledger, b, SYMM_ERR_MISMATCH, in_b, sentence);
            fail_here(ledger, a, SYMM_ERR_MISMATCH, in_a, sentence);
            return true;
        }
    }
    return false;
}

/* Tells verdicts that are kept by now. */
static double tell_kept(struct symm_ledger *ledger, double now)
{
    struct symm_ledger_exchange *next;
    double due = INFINITY;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        next = x->next;
        if (!x->verdict)
            continue;
        if (ledger->keep(ledger->user, x->verdict, &x->kept) || now >= x->tell_by)
            tell(ledger, x);
        else
            due = now + KEEP_AGAIN;
    }
    return due;
}

double symm__ledger_tick(struct symm_ledger *ledger)
{
    double now = symm__now(), due = tell_kept(ledger, now);

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = x->next) {
        double at = x->since + SYMM_LEDGER_PARTIAL;

        if (x->place == 0 || x->sent == x->got)
            continue;
        if (now >= at)
            send_up(ledger, x, false);
        else if (at < due)
            due = at;
    }
    if (ledger->exchanges && ledger->exchanges->next) {
        while (find_deadlock(ledger, now))
            ;
        if (due > now + LOOK_SECONDS)
            due = now + LOOK_SECONDS;
    }
    return due;
}
