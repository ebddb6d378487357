/* SPDX-License-Identifier: MIT */
/*
 * exchange.c - see exchange.h.
 *
 * An exchange sends and receives with all peers at once, so that no size deadlocks:
 * it sends first (a peer at another step learns this rank's step from its first packet), then
 * does what poll finds possible. A rank that has all parts sends DONE to all, and leaves when it
 * has DONE of all. A member's own failure is part of its message and does not end the exchange.
 * Any other failure ends it at once, is reported to all members, and is remembered, so that late
 * packets of it do no harm.
 */
#include "oob/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oob/hosts.h"
#include "oob/peer.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

/* Between queries of `alive` and `stop`; doubles up to the most: a thousand ranks that wait must
 * not load the machine. */
#define OOB_ALIVE_SECONDS 0.002
#define OOB_ALIVE_MOST    0.032
#define OOB_LED_MOST      0.256 /* in an exchange that is led */
#define OOB_CROWDED_SECONDS                                                            \
    0.001 /* until descriptors in flight may have been received */

/* ---- Beginning ------------------------------------------------------------------- */

/* Are the members what exchange.h demands? *self: this rank's index. */
static symm_status exchange_check(const struct symm_oob *oob,
                                  const struct symm_exchange *exchange, int *self)
{
    *self = -1;
    for (int i = 0; i < exchange->count; i++) {
        int rank = exchange->members[i];
        if (rank < 0 || rank >= oob->size)
            return symm__fail(SYMM_ERR_INVALID,
                              "%s has rank %d as a member, of %d ranks", exchange->what,
                              rank, oob->size);
        for (int k = 0; k < i; k++) {
            if (exchange->members[k] == rank)
                return symm__fail(SYMM_ERR_INVALID, "%s has rank %d twice as a member",
                                  exchange->what, rank);
        }
        if (rank == oob->rank)
            *self = i;
        else if (oob->peer_fd[rank] < 0)
            return symm__fail(SYMM_ERR_INVALID,
                              "rank %d has no connection to rank %d for %s", oob->rank,
                              rank, exchange->what);
    }
    if (*self < 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "rank %d takes part in %s without being a member", oob->rank,
                          exchange->what);
    return SYMM_OK;
}

/* Sets this rank's part: its bytes and descriptors, or the sentence of its failure. */
static void exchange_set_part(struct symm_oob_run *run)
{
    const struct symm_exchange *exchange = run->exchange;
    run->mine = exchange->status;
    if (run->mine == SYMM_OK &&
        (exchange->bytes_count > SYMM_EXCHANGE_MAX_BYTES || exchange->fds_count < 0 ||
         exchange->fds_count > SYMM_EXCHANGE_MAX_FDS))
        run->mine =
            symm__fail(SYMM_ERR_OVERFLOW,
                       "%zu bytes and %d descriptors are too many for %s: %u and %d "
                       "can be exchanged",
                       exchange->bytes_count, exchange->fds_count, exchange->what,
                       SYMM_EXCHANGE_MAX_BYTES, SYMM_EXCHANGE_MAX_FDS);
    if (run->mine != SYMM_OK) {
        (void)snprintf(run->sentence, sizeof(run->sentence), "%s", symm_last_error());
        run->bytes = run->sentence;
        run->bytes_count = strlen(run->sentence);
        return;
    }
    run->bytes = exchange->bytes;
    run->bytes_count = exchange->bytes_count;
    run->fds = exchange->fds;
    run->fds_count = exchange->fds_count;
}

static symm_status exchange_begin(struct symm_oob_run *run)
{
    const struct symm_exchange *exchange = run->exchange;
    struct symm_oob_message *own = &run->messages[run->self];
    run->scratch = malloc(SYMM_OOB_CHUNK);
    run->peers = calloc((size_t)exchange->count, sizeof(*run->peers));
    if (run->mine == SYMM_OK && run->bytes_count > 0) {
        own->bytes = malloc(run->bytes_count);
        if (own->bytes != NULL)
            memcpy(own->bytes, run->bytes, run->bytes_count);
        own->bytes_count = own->bytes != NULL ? run->bytes_count : 0;
    }
    if (run->scratch == NULL || run->peers == NULL ||
        (run->mine == SYMM_OK && own->bytes_count < run->bytes_count))
        return symm__fail(SYMM_ERR_NOMEM, "rank %d has no memory for %s with %zu bytes",
                          run->oob->rank, exchange->what, run->bytes_count);
    for (int i = 0; i < exchange->count; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        *peer = (struct symm_oob_peer){.rank = exchange->members[i], .fd = -1};
        if (i == run->self) {
            peer->sent = peer->got = peer->told = peer->done = peer->settled = true;
            continue;
        }
        peer->fd = run->oob->peer_fd[peer->rank];
        peer->can_send = peer->can_recv = true;
    }
    return symm__oob_resume(run);
}

/* ---- Going on -------------------------------------------------------------------- */

static bool exchange_has_all(const struct symm_oob_run *run)
{
    for (int i = 0; i < run->exchange->count; i++) {
        if (!run->peers[i].got)
            return false;
    }
    return true;
}

static bool exchange_complete(const struct symm_oob_run *run)
{
    for (int i = 0; i < run->exchange->count; i++) {
        if (!run->peers[i].told || !run->peers[i].done)
            return false;
    }
    return true;
}

/* One round over all peers. */
static symm_status exchange_move(struct symm_oob_run *run, bool *progress)
{
    symm_status status = SYMM_OK;
    for (int i = 0; i < run->exchange->count; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        if (!peer->can_send || !symm__oob_owes(run, peer))
            continue;
        status = symm__oob_send(run, peer, progress);
        if (status != SYMM_OK)
            return status;
    }
    for (int i = 0; i < run->exchange->count; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        if (peer->settled || !peer->can_recv)
            continue;
        status = symm__oob_recv(run, peer, progress);
        if (status != SYMM_OK)
            return status;
    }
    if (!run->all_got && exchange_has_all(run))
        run->all_got = *progress = true; /* DONE is sent in the next iteration */
    return SYMM_OK;
}

/*
 * All members were done, but one may have failed since: then its FAIL lies in the socket,
 * even if this rank was stopped until all others had left.
 */
static symm_status exchange_last_look(struct symm_oob_run *run)
{
    for (int i = 0; i < run->exchange->count; i++) {
        bool progress;
        run->peers[i].can_recv = true;
        symm_status status = symm__oob_recv(run, &run->peers[i], &progress);
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

/* Lists the world ranks that are awaited. *parts: their parts are; else their DONE. */
static int exchange_awaited(const struct symm_oob_run *run, int late[SYMM_OOB_MAX],
                            bool *parts)
{
    int count = 0;
    *parts = false;
    for (int i = 0; i < run->exchange->count; i++)
        *parts = *parts || !run->peers[i].sent || !run->peers[i].got;
    for (int i = 0; i < run->exchange->count; i++) {
        const struct symm_oob_peer *peer = &run->peers[i];
        if (*parts ? peer->sent && peer->got : peer->told && peer->done)
            continue;
        late[count++] = peer->rank;
    }
    return count;
}

static symm_status exchange_late(const struct symm_oob_run *run)
{
    int late[SYMM_OOB_MAX] = {0};
    char names[320];
    bool parts;
    if (run->given_up)
        return symm__fail(SYMM_ERR_TIMEOUT, "%s", run->why);
    int count = exchange_awaited(run, late, &parts);
    symm__ranks_text(late, count, names, sizeof(names));
    return symm__fail(SYMM_ERR_TIMEOUT,
                      "%s %s not %s %s within %.3g s: stopped, busy elsewhere, or in "
                      "need of a longer timeout (SYMM_TIMEOUT)?",
                      names, count == 1 ? "has" : "have",
                      parts ? "come to" : "finished", run->exchange->what,
                      symm__now() - run->start);
}

/* Is every awaited peer alive? A dead peer may have sent all of its part
 * before. */
static symm_status exchange_ask_alive(struct symm_oob_run *run)
{
    const struct symm_oob *oob = run->oob;
    if (oob->alive == NULL)
        return SYMM_OK;
    for (int i = 0; i < run->exchange->count; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        bool progress;
        if (peer->told && peer->done)
            continue;
        if (oob->alive(oob->alive_arg, peer->rank))
            continue;
        do {
            progress = false;
            peer->can_recv = true;
            symm_status status = symm__oob_recv(run, peer, &progress);
            if (status != SYMM_OK)
                return status;
        } while (progress);
        if (!peer->done || !peer->told)
            return symm__oob_dead(run, peer, "died");
    }
    return SYMM_OK;
}

static symm_status exchange_ask_stop(struct symm_oob_run *run)
{
    const struct symm_exchange *exchange = run->exchange;
    int late[SYMM_OOB_MAX] = {0};
    bool parts, progress;
    int count = exchange_awaited(run, late, &parts);
    if (exchange->late != NULL)
        exchange->late(exchange->late_arg, late, count);
    if (exchange->stop == NULL ||
        exchange->stop(exchange->stop_arg, late, count) == SYMM_OK)
        return SYMM_OK;
    /* What a peer sent before it did what `stop` has seen may lie in its socket. */
    for (int i = 0; i < exchange->count; i++)
        run->peers[i].can_recv = true;
    do {
        progress = false;
        symm_status status = exchange_move(run, &progress);
        if (status != SYMM_OK)
            return status;
    } while (progress);
    count = exchange_awaited(run, late, &parts);
    return exchange->stop(exchange->stop_arg, late, count);
}

/* Both queries: whether the caller wants the exchange to end, and which peers are alive. */
static symm_status exchange_ask(struct symm_oob_run *run)
{
    const struct symm_exchange *exchange = run->exchange;
    symm_status status = exchange_ask_stop(run);
    if (status == SYMM_OK)
        status = symm__oob_lost(run->oob, exchange->before, exchange->before_sequence);
    return status == SYMM_OK ? exchange_ask_alive(run) : status;
}

/* Sleeps until something can be done for a peer, or it is time for exchange_ask. */
static symm_status exchange_wait(struct symm_oob_run *run, struct pollfd *polls)
{
    const double now = symm__now();
    double pause = run->until - now;
    if ((run->oob->alive != NULL || run->exchange->stop != NULL ||
         run->exchange->late != NULL) &&
        pause > run->ask_pause)
        pause = run->ask_pause;
    for (int i = 0; i < run->exchange->count; i++) {
        const struct symm_oob_peer *peer = &run->peers[i];
        short events = peer->settled ? 0 : POLLIN;
        if (!peer->settled && peer->can_recv)
            pause = 0;
        if (symm__oob_owes(run, peer) && !peer->crowded)
            events |= POLLOUT;
        if (peer->crowded && pause > OOB_CROWDED_SECONDS)
            pause = OOB_CROWDED_SECONDS;
        if (pause > symm__oob_patience(run, peer, now))
            pause = symm__oob_patience(run, peer, now);
        /* poll skips negative descriptors; else a hang-up alone would wake this thread. */
        polls[i] = (struct pollfd){.fd = events != 0 ? peer->fd : -1, .events = events};
    }
    struct timespec span = symm__timespec(pause);
    int ready = ppoll(polls, (nfds_t)run->exchange->count, &span, NULL);
    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "rank %d polling its peers in %s", run->oob->rank,
                                run->exchange->what);
    for (int i = 0; i < run->exchange->count; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        short events = ready > 0 ? polls[i].revents : 0;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0)
            peer->can_recv = true;
        if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0 || peer->crowded)
            peer->can_send = true;
        peer->crowded = false;
    }
    return SYMM_OK;
}

/* Fails if a peer is in another exchange: its last packet is of that one, and has been for a
 * moment. */
static symm_status exchange_together(struct symm_oob_run *run, double now)
{
    for (int i = 0; i < run->exchange->count; i++) {
        const struct symm_oob_peer *peer = &run->peers[i];
        if (!peer->can_recv && symm__oob_patience(run, peer, now) <= 0)
            return symm__oob_mismatch(run, peer);
    }
    return SYMM_OK;
}

static symm_status exchange_run(struct symm_oob_run *run, struct pollfd *polls)
{
    const double most = run->exchange->led ? OOB_LED_MOST : OOB_ALIVE_MOST;
    double asked = symm__now();
    for (;;) {
        bool progress = false;
        symm_status status = exchange_move(run, &progress);
        if (status != SYMM_OK || exchange_complete(run))
            return status;
        double now = symm__now();
        if (!(now < run->until))
            return exchange_late(run);
        status = exchange_together(run, now);
        if (status != SYMM_OK)
            return status;
        if (now - asked >= run->ask_pause) {
            status = exchange_ask(run);
            asked = now;
            run->ask_pause = 2 * run->ask_pause < most ? 2 * run->ask_pause : most;
            if (status == SYMM_OK && exchange_complete(run))
                return status;
        }
        if (status == SYMM_OK && !progress)
            status = exchange_wait(run, polls);
        if (status != SYMM_OK)
            return status;
    }
}

/* ---- Ending ---------------------------------------------------------------------- */

/* Sets the error of a member that brought a failure as its part; `why` has `bytes` bytes. */
static symm_status exchange_brought(const struct symm_oob_run *run, int rank,
                                    symm_status status, const char *why, size_t bytes)
{
    char sentence[SYMM_ERROR_BYTES], reason[SYMM_ERROR_BYTES];

    (void)snprintf(reason, sizeof(reason), "%.*s", (int)bytes, why);
    (void)snprintf(sentence, sizeof(sentence), "rank %d failed in %s: %s", rank,
                   run->exchange->what, symm__reason(reason, sizeof(reason)));
    (void)symm__printable(sentence, sizeof(sentence));
    return symm__fail_quiet(status, sentence);
}

/* All parts are here: has a member failed? Every member finds the same one. */
static symm_status exchange_verdict(const struct symm_oob_run *run)
{
    static const char none[] = "it gave no reason";
    for (int i = 0; i < run->exchange->count; i++) {
        const struct symm_oob_peer *peer = &run->peers[i];
        if (peer->status == SYMM_OK)
            continue;
        const struct symm_oob_message *message = &run->messages[i];
        bool silent = message->bytes_count == 0 || message->bytes == NULL;
        return exchange_brought(run, peer->rank, peer->status,
                                silent ? none : (const char *)message->bytes,
                                silent ? sizeof(none) - 1 : message->bytes_count);
    }
    return SYMM_OK;
}

/* What to report of an exchange that ends here with `status`: a rank that lacked something before
 * may lack it here again, and the first lack is the cause. */
static symm_status exchange_cause(const struct symm_oob_run *run, symm_status status)
{
    if (run->mine == SYMM_OK || (status != SYMM_ERR_SYSTEM && status != SYMM_ERR_NOMEM))
        return status;
    return exchange_brought(run, run->oob->rank, run->mine, run->sentence,
                            strlen(run->sentence));
}

symm_status symm__exchange_local(struct symm_oob *oob,
                                 const struct symm_exchange *exchange,
                                 struct symm_oob_message *messages)
{
    struct symm_oob_run run = {.oob = oob, .exchange = exchange, .messages = messages};
    struct pollfd *polls = NULL;
    if (exchange->count < 1 || exchange->count > SYMM_OOB_MAX ||
        (!oob->host_of && oob->size > SYMM_OOB_MAX))
        return symm__fail(SYMM_ERR_INVALID,
                          "%s has %d members on a host: 1 to %d are possible",
                          exchange->what, exchange->count, SYMM_OOB_MAX);
    memset(messages, 0, (size_t)exchange->count * sizeof(*messages));
    run.sequence = exchange->sequence;
    run.start = symm__now();
    run.until = run.start + exchange->timeout;
    run.ask_pause = OOB_ALIVE_SECONDS;
    /* First: the sentence of this rank's failure is symm_last_error(). */
    exchange_set_part(&run);
    symm_status status = exchange_check(oob, exchange, &run.self);
    if (status != SYMM_OK) /* a rank that has failed may not have met the others */
        return run.mine == SYMM_OK ? status : symm__fail_quiet(run.mine, run.sentence);
    status = exchange_begin(&run);
    if (status == SYMM_OK) {
        polls = malloc((size_t)exchange->count * sizeof(*polls));
        if (polls == NULL)
            status = symm__fail(SYMM_ERR_NOMEM, "rank %d has no memory for %s",
                                oob->rank, exchange->what);
    }
    if (status == SYMM_OK)
        status = exchange_run(&run, polls);
    if (status == SYMM_OK)
        status = exchange_last_look(&run);
    if (status != SYMM_OK)
        symm__oob_abandon(&run, exchange_cause(&run, status));
    else
        status = exchange_verdict(&run);
    if (run.mine != SYMM_OK)
        status = symm__fail_quiet(run.mine, run.sentence);
    if (status != SYMM_OK)
        symm__oob_messages_finish(messages, exchange->count);
    if (exchange->next != NULL)
        *exchange->next = run.sequence + 1;
    free(polls);
    free(run.peers);
    free(run.scratch);
    return status;
}

symm_status symm__exchange(struct symm_oob *oob, const struct symm_exchange *exchange,
                           struct symm_oob_message *messages)
{
    for (int i = 0; oob->relay != NULL && i < exchange->count; i++) {
        int rank = exchange->members[i];
        if (rank >= 0 && rank < oob->size && symm__oob_is_far(oob, rank))
            return symm__exchange_hosts(oob, exchange, messages);
    }
    return symm__exchange_local(oob, exchange, messages);
}
