/* SPDX-License-Identifier: MIT */
/* calls.c - what this rank's own threads do with its relay (relay.h): exchanges and reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/private.h"
#include "util/clock.h"
#include "util/rank_text.h"

#define ASK_SECONDS     0.002 /* between two queries of `ask`; doubles */
#define ASK_MOST        0.032
#define LACK_SECONDS    0.01 /* between two tries to have memory */
#define VERDICT_SECONDS 1.0  /* for the root to decide after GIVE_UP */

enum symm_relay_state symm__relay_state(const struct symm_relay *relay, int rank)
{
    /* acquire: pairs with the release in symm__relay_set_state */
    return __atomic_load_n(&relay->state[rank], __ATOMIC_ACQUIRE);
}

bool symm__relay_any_ended(const struct symm_relay *relay)
{
    /* acquire: who knows of an end by other ways sees it here, too */
    return __atomic_load_n(&relay->any_ended, __ATOMIC_ACQUIRE);
}

bool symm__relay_is_silent(const struct symm_relay *relay, int host)
{
    return __atomic_load_n(&relay->silent[host], __ATOMIC_RELAXED);
}

/* ---- Exchanges ---------------------------------------------------------------------------- */

/* A message of the call with the list of leaders and `bytes` after it. */
static struct symm_relay_message *call_message(const struct symm_relay *relay,
                                               const struct symm_relay_exchange *x,
                                               enum symm_relay_kind kind,
                                               const void *data, size_t bytes)
{
    struct symm_relay_message *message =
        symm__relay_listed(kind, x->tag, x->sequence, x->leaders, x->hosts, bytes);

    if (!message)
        return NULL;
    if (bytes > 0)
        memcpy(message->data + symm__relay_list_bytes(message->head.leaders), data,
               bytes);
    message->head.before = x->before;
    message->head.from = relay->config.rank;
    message->head.rank = relay->config.rank;
    snprintf(message->head.what, sizeof(message->head.what), "%s", x->what);
    return message;
}

/* Asks the root to end the exchange. Without memory call.give_up stays NULL. The lock is held. */
static void give_up(struct symm_relay *relay, const struct symm_relay_exchange *x,
                    symm_status status, const char *sentence)
{
    struct symm_relay_message *message =
        call_message(relay, x, SYMM_RELAY_GIVE_UP, sentence, strlen(sentence));

    if (!message)
        return;
    message->head.status = status;
    if (status == SYMM_ERR_TIMEOUT && x->failed == SYMM_OK)
        message->head.reached = 1 + (uint32_t)((symm__now() - x->start) * 1e3);
    relay->call.give_up = message;
    symm__relay_say(relay, message);
    symm__relay_wake(relay);
}

static symm_status too_late(const struct symm_relay *relay,
                            const struct symm_relay_exchange *x)
{
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d has not heard from all hosts in %s within %.3g s: is a host "
        "stopped or cut off?",
        relay->config.rank, x->what, symm__now() - x->start);
}

/* The rank that serves this host, as far as this one knows. */
static int relay_rank(const struct symm_relay *relay)
{
    int place = 0;

    while (place < relay->place && relay->hung_up[place])
        place++;
    return relay->config.local[place];
}

/* The root of the exchange has not told who is missing: the root itself may be, or the rank that
 * relays for this one. Then `text` names them. */
static void name_root(const struct symm_relay *relay,
                      const struct symm_relay_exchange *x, char text[SYMM_ERROR_BYTES])
{
    const int root = x->leaders[0], host = relay->config.host_of[root];
    const int by = relay_rank(relay);
    const bool is_here = host == symm__relay_host(relay);
    char from[32 + sizeof(relay->config.at[host].name)] = "", way[32] = "";

    if (is_here && by == relay->config.rank)
        return;
    if (!is_here)
        snprintf(from, sizeof(from), " from rank %d on host %s", root,
                 relay->config.at[host].name);
    if (by != relay->config.rank)
        snprintf(way, sizeof(way), " by way of rank %d", by);
    snprintf(text, SYMM_ERROR_BYTES,
             "rank %d has not heard from all hosts in %s within %.3g s, nor%s%s which "
             "one is missing: is a host%s stopped or cut off?",
             relay->config.rank, x->what, symm__now() - x->start, from, way,
             by == relay->config.rank ? "" : " or that rank");
}

/* Waits until the call is over. The lock is held, but not while `ask` runs. Returns why this rank
 * gave the call up, with the sentence in `text`; SYMM_OK: it did not. */
static symm_status wait_over(struct symm_relay *relay,
                             const struct symm_relay_exchange *x,
                             char text[SYMM_ERROR_BYTES])
{
    struct symm_relay_call *call = &relay->call;
    symm_status own = x->failed;
    double until = x->until, pause = ASK_SECONDS;

    if (own != SYMM_OK) {
        snprintf(text, SYMM_ERROR_BYTES, "%s", symm_last_error());
        give_up(relay, x, own, text);
        until = symm__now() + VERDICT_SECONDS;
    }
    while (call->state == SYMM_CALL_WAITS || call->state == SYMM_CALL_HAS) {
        struct timespec slice = symm__until(pause);
        symm_status asked = SYMM_OK;

        pause = 2 * pause < ASK_MOST ? 2 * pause : ASK_MOST;
        pthread_cond_timedwait(&relay->changed, &relay->lock, &slice);
        if (call->state != SYMM_CALL_WAITS && call->state != SYMM_CALL_HAS)
            break;
        if (own == SYMM_OK && x->ask) {
            pthread_mutex_unlock(&relay->lock);
            asked = x->ask(x->arg);
            pthread_mutex_lock(&relay->lock);
        }
        if (symm__now() >= until && own != SYMM_OK) {
            if (own == SYMM_ERR_TIMEOUT && x->failed == SYMM_OK)
                name_root(relay, x, text);
            break;
        }
        if (asked == SYMM_OK && symm__now() >= until)
            asked = too_late(relay, x);
        if (own != SYMM_OK && !call->give_up)
            give_up(relay, x, own, text);
        if (asked == SYMM_OK || own != SYMM_OK ||
            (call->state != SYMM_CALL_WAITS && call->state != SYMM_CALL_HAS))
            continue;
        own = asked;
        snprintf(text, SYMM_ERROR_BYTES, "%s", symm_last_error());
        give_up(relay, x, own, text);
        until = symm__now() + VERDICT_SECONDS;
    }
    return own;
}

/* The parts in ALL, which the relay has made of parts that it checked. */
symm_status symm__relay_take_parts(const struct symm_relay_exchange *x,
                                   struct symm_relay_result *result)
{
    const struct symm_relay_message *all = result->message;
    uint64_t at = symm__relay_list_bytes((uint64_t)x->hosts);
    int count = 0;

    result->parts = calloc((size_t)x->hosts, sizeof(*result->parts));
    if (!result->parts)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the parts of %d hosts in %s",
                          x->hosts, x->what);
    while (at + sizeof(struct symm_relay_record) <= all->head.bytes) {
        struct symm_relay_record record;
        struct symm_relay_part *part;

        memcpy(&record, all->data + at, sizeof(record));
        at += sizeof(record);
        if (record.place >= (uint32_t)x->hosts || record.bytes > all->head.bytes - at)
            break;
        part = &result->parts[record.place];
        count += part->data == NULL;
        *part = (struct symm_relay_part){.data = all->data + at,
                                         .bytes = (size_t)record.bytes};
        at += symm__relay_padded(record.bytes);
    }
    return count == x->hosts
               ? SYMM_OK
               : symm__fail(SYMM_ERR_DAMAGED,
                            "the relay sent a damaged message in %s: %d of %d parts",
                            x->what, count, x->hosts);
}

/* Returns the error of a FAIL; *result: what FAIL tells of this and later exchanges of the tag. */
static symm_status take_fail(const struct symm_relay_exchange *x,
                             const struct symm_relay_message *fail,
                             struct symm_relay_result *result)
{
    char text[SYMM_ERROR_BYTES];

    result->reached = fail->head.reached;
    result->late = fail->head.before == x->tag;
    memcpy(result->what, fail->head.what, sizeof(result->what));
    symm__relay_sentence(fail, text);
    return symm__fail_quiet(symm__peer_status(fail->head.status), text);
}

static void call_clear(struct symm_relay_call *call)
{
    symm__relay_drop(call->part);
    symm__relay_drop(call->all);
    symm__relay_drop(call->give_up);
    symm__relay_drop(call->fail);
    *call = (struct symm_relay_call){0};
}

/* For a call that fails for lack of memory: a PART without bytes, which is not sent, but a call
 * must have one. Waits for memory. NULL: there was none for long. */
static struct symm_relay_message *part_to_fail(const struct symm_relay *relay,
                                               const struct symm_relay_exchange *x)
{
    const double until = symm__now() + VERDICT_SECONDS;
    struct symm_relay_message *part = call_message(relay, x, SYMM_RELAY_PART, NULL, 0);

    while (!part && symm__now() < until) {
        symm__sleep(LACK_SECONDS);
        part = call_message(relay, x, SYMM_RELAY_PART, NULL, 0);
    }
    return part;
}

symm_status symm__relay_exchange(struct symm_relay *relay,
                                 const struct symm_relay_exchange *x,
                                 struct symm_relay_result *result)
{
    struct symm_relay_call *call = &relay->call;
    struct symm_relay_message *part =
        call_message(relay, x, SYMM_RELAY_PART, x->bytes, x->bytes_count);
    char text[SYMM_ERROR_BYTES];
    struct symm_relay_exchange lacking = *x;
    symm_status status, own;

    *result = (struct symm_relay_result){0};
    if (!part) {
        if (x->failed == SYMM_OK)
            lacking.failed =
                symm__fail(SYMM_ERR_NOMEM, "rank %d has no memory for %zu bytes of %s",
                           relay->config.rank, x->bytes_count, x->what);
        part = part_to_fail(relay, x);
        x = &lacking;
    }
    if (!part)
        return lacking.failed;
    pthread_mutex_lock(&relay->lock);
    *call = (struct symm_relay_call){
        .state = SYMM_CALL_WAITS, .part = part, .failed = x->failed != SYMM_OK};
    if (x->failed == SYMM_OK) {
        symm__relay_say(relay, part);
        symm__relay_call_step(relay);
        symm__relay_wake(relay);
    }
    own = wait_over(relay, x, text);
    if (call->state == SYMM_CALL_WENT && !call->failed) {
        result->message = symm__relay_keep(call->all);
        result->went = true;
        status = symm__relay_take_parts(x, result);
        if (status == SYMM_ERR_NOMEM)
            status = symm__fail(status,
                                "rank %d has no memory for the parts of %d hosts in %s",
                                relay->config.rank, x->hosts, x->what);
    } else if (call->state == SYMM_CALL_FAILED &&
               (own == SYMM_OK || own == SYMM_ERR_TIMEOUT)) {
        status = take_fail(x, call->fail, result);
    } else {
        status = symm__fail_quiet(own, text);
    }
    call_clear(call);
    pthread_mutex_unlock(&relay->lock);
    if (status != SYMM_OK)
        symm__relay_result_finish(result);
    return status;
}

void symm__relay_result_finish(struct symm_relay_result *result)
{
    free(result->parts);
    symm__relay_drop(result->message);
    result->parts = NULL;
    result->message = NULL;
}

void symm__relay_notify(struct symm_relay *relay, uint64_t tag, symm_status status,
                        const char *sentence)
{
    size_t bytes = strnlen(sentence, SYMM_ERROR_BYTES - 1);
    struct symm_relay_message *notice = symm__relay_message(SYMM_RELAY_NOTICE, bytes);

    if (!notice) {
        pthread_mutex_lock(&relay->lock);
        notice = relay->spare;
        relay->spare = NULL;
        pthread_mutex_unlock(&relay->lock);
        symm__relay_wake(relay); /* makes the next one */
    }
    if (!notice)
        return;
    notice->head.bytes = bytes;
    memcpy(notice->data, sentence, bytes);
    notice->head.tag = tag;
    notice->head.status = status;
    notice->head.rank = relay->config.rank;
    notice->head.from = relay->config.rank;
    pthread_mutex_lock(&relay->lock);
    if (relay->serving)
        symm__relay_spread(relay, NULL, notice);
    else {
        symm__relay_keep_news(relay, notice);
        symm__relay_say(relay, notice);
    }
    pthread_mutex_unlock(&relay->lock);
    symm__relay_wake(relay);
    symm__relay_drop(notice);
}
