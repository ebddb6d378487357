/* SPDX-License-Identifier: MIT */
/*
 * ledger_step.c - how one exchange goes on, and ends: see ledger.h.
 *
 * Data of UP and ALL: the list of leaders, then for each part a record (struct symm_relay_record)
 * and its bytes, padded to 8.
 */
#include "relay/ledger_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define KEEP_SECONDS 0.2 /* for the ranks of the root's host to be given a verdict */

void symm__ledger_to_place(struct symm_ledger *ledger,
                           const struct symm_ledger_exchange *x, int place,
                           struct symm_relay_message *message)
{
    ledger->to_host(ledger->user, symm__ledger_host_at(ledger, x->leaders, place),
                    message);
}

int symm__ledger_above(const struct symm_ledger *ledger,
                       const struct symm_ledger_exchange *x)
{
    return x->place == 0
               ? -1
               : symm__ledger_host_at(ledger, x->leaders, symm__ledger_place_above(x));
}

static void to_children(struct symm_ledger *ledger,
                        const struct symm_ledger_exchange *x,
                        struct symm_relay_message *message, bool all)
{
    int first = symm__tree_child(x->place);

    for (int c = 0; c < symm__tree_children(x->place, x->count); c++)
        if (all || !x->child_have[c])
            symm__ledger_to_place(ledger, x, first + c, message);
}

/* A message with the exchange's list, and room for `more` bytes after it. */
static struct symm_relay_message *message_of(struct symm_ledger *ledger,
                                             const struct symm_ledger_exchange *x,
                                             enum symm_relay_kind kind, uint64_t more)
{
    struct symm_relay_message *message =
        symm__relay_listed(kind, x->tag, x->sequence, x->leaders, x->count, more);

    if (!message) {
        ledger->lacks = true;
        return NULL;
    }
    message->head.from = x->what_from;
    memcpy(message->head.what, x->what, sizeof(message->head.what));
    return message;
}

/* ---- The end of an exchange --------------------------------------------------------- */

void symm__ledger_tell(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    struct symm_ledger_exchange **at = &ledger->exchanges;
    struct symm_relay_message *verdict = x->verdict;

    symm__ledger_outcome_add(ledger, x->tag, x->sequence,
                             verdict->head.kind == SYMM_RELAY_GO ? NULL : verdict);
    to_children(ledger, x, verdict, true);
    for (int p = 0; p < x->count; p++)
        if (x->parts[p].asks)
            symm__ledger_to_place(ledger, x, p, verdict);
    ledger->to_leader(ledger->user, symm__ledger_leader_of(x), verdict);
    for (int i = 0; i < x->askers; i++)
        ledger->to_leader(ledger->user, x->asker[i], verdict);
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    symm__ledger_exchange_free(x);
}

bool symm__ledger_finish(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                         struct symm_relay_message *why)
{
    if (x->verdict)
        return true;
    x->verdict = why ? symm__relay_keep(why)
                     : symm__relay_step(SYMM_RELAY_GO, x->tag, x->sequence);
    if (!x->verdict) {
        ledger->lacks = true;
        return false;
    }
    x->tell_by = symm__now() + KEEP_SECONDS;
    if (x->place > 0 || ledger->keep(ledger->user, x->verdict, &x->kept))
        symm__ledger_tell(ledger, x);
    return true;
}

struct symm_relay_message *symm__ledger_reason(struct symm_ledger *ledger,
                                               const struct symm_ledger_exchange *x,
                                               enum symm_relay_kind kind,
                                               symm_status status, int rank,
                                               const char *sentence)
{
    size_t bytes = strnlen(sentence, SYMM_ERROR_BYTES - 1);
    struct symm_relay_message *message = message_of(ledger, x, kind, bytes);

    if (!message)
        return NULL;
    memcpy(message->data + symm__ledger_list_bytes(x), sentence, bytes);
    message->head.status = status;
    message->head.rank = rank;
    message->head.reached = x->sequence;
    return message;
}

/* Has the root no HAVE of that place, which is the root itself or one of its children? */
static bool is_unsure(const struct symm_ledger_exchange *x, int place)
{
    if (place == 0)
        return !x->have;
    return symm__tree_parent(place) == 0 && !x->child_have[place - symm__tree_child(0)];
}

/* The sentence of a timeout, with the hosts that have not come or not sent HAVE; "": none is
 * missing. */
static void missing_text(const struct symm_ledger *ledger,
                         const struct symm_ledger_exchange *x, double seconds,
                         char *text, size_t bytes)
{
    int *late = malloc((size_t)x->count * sizeof(*late)), count = 0;
    char names[200];

    text[0] = '\0';
    for (int p = 0; late && p < x->count; p++)
        if (x->all ? is_unsure(x, p) : !x->parts[p].message)
            late[count++] = x->leaders[p];
    if (count > 0) {
        symm__ranks_text(late, count, names, sizeof(names));
        snprintf(text, bytes,
                 "%s (host %s%s) %s not %s %s within %.3g s: stopped, busy "
                 "elsewhere, or in need of a longer timeout (SYMM_TIMEOUT)?%s",
                 names, ledger->host_name(ledger->user, ledger->host_of[late[0]]),
                 count > 1 ? " and others" : "", count == 1 ? "has" : "have",
                 x->all ? "finished" : "come to", x->what, seconds,
                 ledger->hint(ledger->user));
    }
    free(late);
}

/* No memory to report a failure: the next tick does. The first failure counts. */
static void owe(struct symm_ledger_exchange *x, symm_status status, int rank,
                const char *sentence)
{
    if (x->owed_status != SYMM_OK)
        return;
    x->owed_status = status;
    x->owed_rank = rank;
    snprintf(x->owed, sizeof(x->owed), "%s", sentence);
}

void symm__ledger_give_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                          struct symm_relay_message *message)
{
    const struct symm_relay_head *head = &message->head;
    char text[SYMM_ERROR_BYTES];
    struct symm_relay_message *fail;
    if (x->place > 0) {
        if (x->gave_up)
            return;
        x->gave_up = symm__relay_keep(message);
        symm__ledger_to_place(ledger, x, symm__ledger_place_above(x), message);
        return;
    }
    symm__relay_sentence(message, text);
    if (head->status == SYMM_ERR_TIMEOUT && head->reached > 0) {
        char late[SYMM_ERROR_BYTES];

        missing_text(ledger, x, head->reached * 1e-3, late, sizeof(late));
        if (late[0])
            memcpy(text, late, sizeof(text));
    }
    fail =
        symm__ledger_reason(ledger, x, SYMM_RELAY_FAIL, head->status, head->rank, text);
    if (!fail) {
        owe(x, symm__peer_status(head->status), head->rank, text);
        return;
    }
    (void)symm__ledger_finish(ledger, x, fail);
    symm__relay_drop(fail);
}

void symm__ledger_fail(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                       symm_status status, int rank, const char *sentence)
{
    struct symm_relay_message *message =
        symm__ledger_reason(ledger, x, SYMM_RELAY_GIVE_UP, status, rank, sentence);

    if (!message) {
        owe(x, status, rank, sentence);
        return;
    }
    message->head.reached = 0; /* the sentence is whole */
    symm__ledger_give_up(ledger, x, message);
    symm__relay_drop(message);
}

/* ---- Parts ------------------------------------------------------------------------ */

/* An UP or ALL with the parts that were not sent; again: with all. NULL: no parts, or no memory. */
static struct symm_relay_message *bundle(struct symm_ledger *ledger,
                                         struct symm_ledger_exchange *x,
                                         enum symm_relay_kind kind, bool again)
{
    struct symm_relay_message *message;
    uint64_t bytes = 0, at = symm__ledger_list_bytes(x);
    int parts = 0;

    for (int p = 0; p < x->count; p++)
        if (x->parts[p].message && (again || !x->parts[p].sent)) {
            bytes += sizeof(struct symm_relay_record) +
                     symm__relay_padded(x->parts[p].bytes);
            parts++;
        }
    message = parts > 0 ? message_of(ledger, x, kind, bytes) : NULL;
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

void symm__ledger_send_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                          bool again)
{
    struct symm_relay_message *up = bundle(ledger, x, SYMM_RELAY_UP, again);

    if (!up && !again)
        return;
    for (int p = 0; p < x->count; p++)
        x->parts[p].sent = up && x->parts[p].message;
    x->sent = up ? x->got : 0;
    if (up)
        symm__ledger_to_place(ledger, x, symm__ledger_place_above(x), up);
    symm__relay_drop(up);
}

void symm__ledger_send_have(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    struct symm_relay_message *have =
        symm__relay_step(SYMM_RELAY_HAVE, x->tag, x->sequence);

    x->have_sent = have != NULL;
    if (!have) {
        ledger->lacks = true;
        return;
    }
    symm__ledger_to_place(ledger, x, symm__ledger_place_above(x), have);
    symm__relay_drop(have);
}

void symm__ledger_take_all(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                           struct symm_relay_message *all)
{
    x->all = all;
    to_children(ledger, x, all, false);
    if (!x->have)
        ledger->to_leader(ledger->user, symm__ledger_leader_of(x), all);
}

void symm__ledger_advance(struct symm_ledger *ledger, struct symm_ledger_exchange *x)
{
    bool all_have = x->have;

    if (x->owed_status != SYMM_OK)
        return;
    if (x->got == x->below && x->place == 0 && !x->all) {
        struct symm_relay_message *all = bundle(ledger, x, SYMM_RELAY_ALL, true);

        if (all)
            symm__ledger_take_all(ledger, x, all);
    }
    if (x->got == x->below && x->place > 0 && x->sent < x->got)
        symm__ledger_send_up(ledger, x, false);
    for (int c = 0; c < symm__tree_children(x->place, x->count); c++)
        all_have = all_have && x->child_have[c];
    if (!all_have || x->have_sent)
        return;
    if (x->place > 0)
        symm__ledger_send_have(ledger, x);
    else
        (void)symm__ledger_finish(ledger, x, NULL);
}

bool symm__ledger_check_step(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                             const struct symm_relay_head *head, int rank)
{
    char sentence[SYMM_ERROR_BYTES], what[SYMM_RELAY_WHAT];

    snprintf(what, sizeof(what), "%.63s", head->what);
    if (!x->what[0]) {
        memcpy(x->what, what, sizeof(x->what));
        x->what_from = rank;
    }
    if (symm__same_step(x->what, what))
        return true;
    snprintf(
        sentence, sizeof(sentence),
        "rank %d is in %s, rank %d in %s: all ranks of a team must make its calls in "
        "one order",
        x->what_from, x->what, rank, what);
    symm__ledger_fail(ledger, x, SYMM_ERR_MISMATCH, rank, sentence);
    return false;
}

bool symm__ledger_take_parts(struct symm_ledger_exchange *x,
                             struct symm_relay_message *message, int child)
{
    uint64_t at = symm__ledger_list_bytes(x), bytes = message->head.bytes;

    while (at < bytes) {
        struct symm_relay_record record;
        struct symm_ledger_part *part;

        if (bytes - at < sizeof(record))
            return false;
        memcpy(&record, message->data + at, sizeof(record));
        at += sizeof(record);
        if (record.bytes > bytes - at ||
            symm__relay_padded(record.bytes) > bytes - at ||
            record.place >= (uint32_t)x->count ||
            !symm__ledger_in_subtree((int)record.place, child))
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
