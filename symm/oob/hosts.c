/* SPDX-License-Identifier: MIT */
/* hosts.c - see hosts.h. */
#include "oob/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oob/packet.h"
#include "relay/message.h"
#include "relay/relay.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define HAND_SECONDS 2.5 /* the third step's deadline, after that of the second */

/* How the allgather has ended: what is handed on begins with it. */
struct verdict {
    int32_t status;
    uint32_t next; /* sequence of the team's next exchange */
    char sentence[SYMM_ERROR_BYTES];
};

/* Memory for exchanges, allocated once. One block: the arrays follow it. */
struct symm_oob_room {
    const char **host_at, **host_end; /* [hosts] */
    int32_t *leaders, *lowest;        /* [hosts] */
    int *place_of;                    /* [size] */
    bool *seen;                       /* [size] */
    int local[SYMM_OOB_MAX], local_rank[SYMM_OOB_MAX];
    struct symm_oob_message got[SYMM_OOB_MAX]; /* of a step on this host */
};

/* One exchange over hosts. */
struct over {
    struct symm_oob *oob;
    const struct symm_exchange *exchange;
    struct symm_oob_message *messages;
    struct symm_oob_room *room;
    /* These four lie in the room. */
    int *place_of;    /* [count]: of each member's host among the hosts, ascending */
    int32_t *leaders; /* [hosts]: the lowest member of each */
    int hosts, here;  /* this host's place */
    int *local;       /* [local_count]: indices of the members on this host, */
    int *local_rank;  /* and their world ranks */
    int local_count;
    uint32_t sequence;
    double start, until;
    char *packed; /* what is handed on; NULL: `verdict` alone, for lack of memory */
    size_t packed_bytes;
    struct verdict verdict;
    bool lost; /* if it fails here now, other hosts may have gone on: they are told */
};

static symm_status no_memory(const struct over *over)
{
    return symm__fail(SYMM_ERR_NOMEM, "rank %d has no memory for %s with %d members",
                      over->oob->rank, over->exchange->what, over->exchange->count);
}

symm_status symm__oob_room_open(struct symm_oob *oob, int hosts)
{
    const size_t h = (size_t)hosts, r = (size_t)oob->size;
    struct symm_oob_room *room =
        calloc(1, sizeof(*room) + h * (2 * sizeof(char *) + 2 * sizeof(int32_t)) +
                      r * (sizeof(int) + sizeof(bool)));

    oob->room = room;
    if (!room)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for exchanges with %d hosts",
                          hosts);
    room->host_at = (const char **)(void *)(room + 1);
    room->host_end = room->host_at + h;
    room->leaders = (int32_t *)(void *)(room->host_end + h);
    room->lowest = room->leaders + h;
    room->place_of = room->lowest + h;
    room->seen = (bool *)(room->place_of + r);
    return SYMM_OK;
}

/* ---- Members and hosts --------------------------------------------------------------- */

static symm_status check_members(const struct symm_oob *oob,
                                 const struct symm_exchange *exchange)
{
    bool *seen = oob->room->seen, self = false;
    symm_status status = SYMM_OK;

    memset(seen, 0, (size_t)oob->size * sizeof(*seen));
    for (int i = 0; i < exchange->count && status == SYMM_OK; i++) {
        int rank = exchange->members[i];

        if (rank < 0 || rank >= oob->size || seen[rank])
            status = symm__fail(SYMM_ERR_INVALID,
                                rank < 0 || rank >= oob->size
                                    ? "%s has rank %d as a member, of %d ranks"
                                    : "%s has rank %d twice as a member, of %d ranks",
                                exchange->what, rank, oob->size);
        else
            seen[rank] = true;
        self = self || rank == oob->rank;
    }
    if (status == SYMM_OK && !self)
        return symm__fail(SYMM_ERR_INVALID,
                          "rank %d takes part in %s without being a member", oob->rank,
                          exchange->what);
    return status;
}

/* Finds the hosts of the members, their leaders, and the members on this host. */
static void over_open(struct over *over)
{
    const struct symm_exchange *exchange = over->exchange;
    const struct symm_oob *oob = over->oob;
    struct symm_oob_room *room = oob->room;
    int most = 0, place = 0;
    int32_t *lowest = room->lowest;

    for (int i = 0; i < exchange->count; i++)
        if (oob->host_of[exchange->members[i]] > most)
            most = oob->host_of[exchange->members[i]];
    over->room = room;
    over->place_of = room->place_of;
    over->leaders = room->leaders;
    over->local = room->local;
    over->local_rank = room->local_rank;
    for (int h = 0; h <= most; h++)
        lowest[h] = -1;
    for (int i = 0; i < exchange->count; i++) {
        int rank = exchange->members[i], host = oob->host_of[rank];

        if (lowest[host] < 0 || rank < lowest[host])
            lowest[host] = rank;
        if (host == oob->host_of[oob->rank]) {
            over->local[over->local_count] = i;
            over->local_rank[over->local_count++] = rank;
        }
    }
    for (int h = 0; h <= most; h++) {
        if (lowest[h] < 0)
            continue;
        if (h == oob->host_of[oob->rank])
            over->here = place;
        over->leaders[place] = lowest[h];
        lowest[h] = place++; /* from here on: the host's place */
    }
    over->hosts = place;
    for (int i = 0; i < exchange->count; i++)
        over->place_of[i] = lowest[oob->host_of[exchange->members[i]]];
}

static bool is_leader(const struct over *over)
{
    return over->leaders[over->here] == over->oob->rank;
}

/* ---- Members that have ended ------------------------------------------------------------ */

/* Returns the error of member i, which will not take part any more. */
static symm_status fail_ended(const struct over *over, int i)
{
    const struct symm_exchange *exchange = over->exchange;
    struct symm_oob *oob = over->oob;
    int rank = exchange->members[i];
    bool left = symm__oob_left(oob, rank);
    char earlier[SYMM_EARLIER_TEXT_BYTES];
    struct symm_relay_report report;
    symm_status lost = SYMM_OK;

    /* A rank may end because its host has failed in this exchange, which that host reports
     * first. */
    if (over->place_of[i] != over->here)
        lost = symm__oob_lost(oob, exchange->tag, over->sequence);
    if (lost != SYMM_OK)
        return lost;
    /* `alive` is also false when a rank of another host has reported the team's failure. */
    if (over->place_of[i] != over->here && !left && !symm__oob_died(oob, rank) &&
        symm__oob_reported(oob, exchange->tag, &report))
        return symm__fail_quiet(report.status, report.sentence);
    return symm__fail(SYMM_ERR_PEER_DEAD, "rank %d %s during %s%s", rank,
                      left ? "has finalized its context" : "died", exchange->what,
                      symm__oob_earlier(oob, rank, earlier));
}

/* A member that will not take part. finalized: one that has finalized; else one that has died, or
 * whose team has failed. near: members of this host count, too. -1: none. */
static int find_ended(const struct over *over, bool finalized, bool near)
{
    const struct symm_exchange *exchange = over->exchange;
    const struct symm_oob *oob = over->oob;
    const bool ended = symm__relay_any_ended(oob->relay);
    bool asked = false;

    for (int i = 0; i < exchange->count; i++) {
        int rank = exchange->members[i];
        /* For a rank of another host `alive` checks the reports about the team, so one query is
         * enough for all of these. A rank that has finalized may have completed this exchange
         * before: it is not asked. */
        bool far = over->place_of[i] != over->here, query;

        if (far ? !ended && (asked || !oob->alive) : !near)
            continue;
        query = rank != oob->rank && oob->alive && !(far && asked) &&
                !(far && symm__oob_left(oob, rank));
        asked = asked || (far && query);
        if (((far && symm__oob_died(oob, rank)) ||
             (query && !oob->alive(oob->alive_arg, rank))) &&
            symm__oob_left(oob, rank) == finalized)
            return i;
    }
    return -1;
}

/* Why the allgather must end: the caller's reason, or a member that has ended. A member may have
 * finalized because another died, so deaths are looked for after finalized members. */
static symm_status ask(void *arg)
{
    const struct over *over = arg;
    const struct symm_exchange *exchange = over->exchange;
    symm_status status =
        exchange->stop ? exchange->stop(exchange->stop_arg, NULL, -1) : SYMM_OK;
    int left, dead;

    if (exchange->late)
        exchange->late(exchange->late_arg, NULL, -1);
    if (status == SYMM_OK)
        status = symm__oob_lost(over->oob, exchange->before, exchange->before_sequence);
    if (status != SYMM_OK)
        return status;
    left = find_ended(over, true, true);
    dead = find_ended(over, false, true);
    if (dead < 0 && left < 0)
        return SYMM_OK;
    return fail_ended(over, dead < 0 ? left : dead);
}

/* A step on this host has failed, perhaps because a member has finalized. That member may have
 * finalized because of a death on another host, which the step on this host cannot see. */
static symm_status far_cause(const struct over *over, symm_status status)
{
    char own[SYMM_ERROR_BYTES];
    int dead;

    if (status != SYMM_ERR_PEER_DEAD || over->exchange->status != SYMM_OK)
        return status;
    symm__error_save(own);
    dead = find_ended(over, true, true) < 0 ? -1 : find_ended(over, false, true);
    return dead < 0 ? symm__fail_quiet(status, own) : fail_ended(over, dead);
}

/* Why the step on this host must end, for reasons that the step itself does not see: a member on
 * this host may stay away because a member on another host has ended. */
static symm_status ask_far(void *arg, const int *ranks, int count)
{
    const struct over *over = arg;
    const struct symm_exchange *exchange = over->exchange;
    symm_status status =
        exchange->stop ? exchange->stop(exchange->stop_arg, ranks, count) : SYMM_OK;
    const int dead = status == SYMM_OK ? find_ended(over, false, false) : -1;

    return dead < 0 ? status : fail_ended(over, dead);
}

/* ---- On this host --------------------------------------------------------------------- */

/* The first step. The messages of this host's members are set. */
static symm_status gather_here(struct over *over)
{
    struct symm_exchange local = *over->exchange;
    struct symm_oob_message *got = over->room->got;
    uint32_t next = over->sequence + 1; /* also if it does not begin */
    symm_status status;

    local.members = over->local_rank;
    local.count = over->local_count;
    local.next = &next;
    local.stop = ask_far;
    local.stop_arg = over;
    status = symm__exchange_local(over->oob, &local, got);
    over->sequence = next - 1; /* the number under which it was made */
    for (int i = 0; i < over->local_count; i++)
        over->messages[over->local[i]] = got[i];
    memset(got, 0, (size_t)over->local_count * sizeof(*got));
    return status;
}

/* ---- Among hosts ------------------------------------------------------------------------ */

/* This host's part of the allgather: of each member the number of its bytes, and these. */
static char *pack_here(const struct over *over, size_t *bytes)
{
    char *packed, *at;

    *bytes = 0;
    for (int i = 0; i < over->local_count; i++)
        *bytes += 8 + symm__relay_padded(over->messages[over->local[i]].bytes_count);
    at = packed = calloc(1, *bytes);
    for (int i = 0; packed && i < over->local_count; i++) {
        const struct symm_oob_message *message = &over->messages[over->local[i]];
        uint64_t count = message->bytes_count;

        memcpy(at, &count, sizeof(count));
        if (count > 0)
            memcpy(at + 8, message->bytes, message->bytes_count);
        at += 8 + symm__relay_padded(message->bytes_count);
    }
    return packed;
}

/* How this rank takes part in the allgather. failed: symm_last_error() is why. */
static struct symm_relay_exchange as_relay(struct over *over, symm_status failed)
{
    return (struct symm_relay_exchange){
        .what = over->exchange->what,
        .tag = over->exchange->tag,
        .sequence = over->sequence,
        .before = over->exchange->before,
        .leaders = over->leaders,
        .hosts = over->hosts,
        .start = over->start,
        .until = over->until,
        .ask = ask,
        .arg = over,
        .failed = failed,
    };
}

/* Does that failure end this exchange? An earlier one that others abandoned does not, if this rank
 * was not on its way to it, or may take part again. */
static bool counts(const struct over *over, const struct symm_relay_result *result,
                   symm_status status)
{
    return !result->late || status != SYMM_ERR_TIMEOUT ||
           (!over->exchange->again &&
            symm__same_step(result->what, over->exchange->what));
}

/* The second step, by the leader. */
static symm_status gather_hosts(struct over *over, struct symm_relay_result *result)
{
    struct symm_relay_exchange x;
    size_t bytes;
    char *packed = pack_here(over, &bytes);
    symm_status status = packed ? SYMM_OK : no_memory(over);

    for (;;) {
        x = as_relay(over, status);
        x.bytes = packed;
        x.bytes_count = packed ? bytes : 0;
        status = symm__relay_exchange(over->oob->relay, &x, result);
        if (status == SYMM_OK || counts(over, result, status))
            break;
        over->sequence = result->reached + 1;
        status = SYMM_OK;
    }
    if (status != SYMM_OK && (int32_t)(result->reached - over->sequence) > 0)
        over->sequence = result->reached;
    free(packed);
    return status;
}

/* This host has failed: makes the other hosts fail, and waits until they do. */
static symm_status give_up(struct over *over, symm_status status)
{
    struct symm_relay_result result;
    char own[SYMM_ERROR_BYTES];
    struct symm_relay_exchange x = as_relay(over, status);

    symm__error_save(own);
    (void)!symm__relay_exchange(over->oob->relay, &x, &result);
    symm__relay_result_finish(&result);
    return symm__fail_quiet(status, own);
}

/* ---- Back to this host -------------------------------------------------------------------- */

/* over->packed: what the leader hands on, the verdict and the parts of the other hosts. */
static symm_status pack_all(struct over *over, symm_status status,
                            const struct symm_relay_result *result)
{
    struct verdict *verdict = &over->verdict;
    size_t bytes = sizeof(*verdict);
    char *at;

    *verdict = (struct verdict){.status = status, .next = over->sequence + 1};
    snprintf(verdict->sentence, sizeof(verdict->sentence), "%s",
             status == SYMM_OK ? "" : symm_last_error());
    for (int h = 0; status == SYMM_OK && h < over->hosts; h++)
        bytes += h == over->here ? 0 : 8 + symm__relay_padded(result->parts[h].bytes);
    over->packed = at = calloc(1, bytes);
    if (!at) {
        status = status == SYMM_OK ? no_memory(over) : status;
        verdict->status = status;
        snprintf(verdict->sentence, sizeof(verdict->sentence), "%s", symm_last_error());
        return status;
    }
    over->packed_bytes = bytes;
    memcpy(at, verdict, sizeof(*verdict));
    at += sizeof(*verdict);
    for (int h = 0; status == SYMM_OK && h < over->hosts; h++) {
        uint64_t count = result->parts[h].bytes;

        if (h == over->here)
            continue;
        memcpy(at, &count, sizeof(count));
        memcpy(at + 8, result->parts[h].data, result->parts[h].bytes);
        at += 8 + symm__relay_padded(result->parts[h].bytes);
    }
    return status == SYMM_OK ? SYMM_OK : symm__fail_quiet(status, verdict->sentence);
}

/* The third step: the leader sends what it has packed, the others receive it as over->packed. */
static symm_status hand_on(struct over *over)
{
    const struct symm_exchange *exchange = over->exchange;
    struct symm_oob_message *got = over->room->got;
    struct symm_exchange local = {
        .what = exchange->what,
        .tag = exchange->tag ^ SYMM_OOB_HAND_ON,
        .sequence = over->sequence,
        .led = true,
        .late = exchange->late,
        .late_arg = exchange->late_arg,
        .members = over->local_rank,
        .count = over->local_count,
        .timeout = over->until - symm__now() + HAND_SECONDS,
    };
    symm_status status;

    if (is_leader(over)) {
        local.bytes = over->packed ? (void *)over->packed : (void *)&over->verdict;
        local.bytes_count = over->packed ? over->packed_bytes : sizeof(over->verdict);
    }
    status = symm__exchange_local(over->oob, &local, got);
    for (int i = 0; status == SYMM_OK && i < over->local_count; i++) {
        if (over->local_rank[i] != over->leaders[over->here])
            continue;
        free(over->packed);
        over->packed = got[i].bytes;
        over->packed_bytes = got[i].bytes_count;
        got[i].bytes = NULL;
    }
    symm__oob_messages_finish(got, over->local_count);
    return status;
}

static symm_status malformed(const struct over *over)
{
    return symm__fail(SYMM_ERR_DAMAGED, "rank %d handed on a damaged message in %s",
                      over->leaders[over->here], over->exchange->what);
}

/* One member's bytes, at *at in its host's part. */
static symm_status unpack_one(const struct over *over, int member, const char **at,
                              const char *end)
{
    struct symm_oob_message *message = &over->messages[member];
    uint64_t count;

    if (end - *at < 8)
        return malformed(over);
    memcpy(&count, *at, sizeof(count));
    *at += 8;
    if (count > (uint64_t)(end - *at) ||
        symm__relay_padded(count) > (uint64_t)(end - *at))
        return malformed(over);
    if (count > 0) {
        message->bytes = malloc((size_t)count);
        if (!message->bytes)
            return no_memory(over);
        memcpy(message->bytes, *at, (size_t)count);
        message->bytes_count = (size_t)count;
    }
    *at += symm__relay_padded(count);
    return SYMM_OK;
}

/* The messages of other hosts' members, and how the allgather has ended. */
static symm_status unpack(struct over *over)
{
    const char *at = over->packed, *end = at + over->packed_bytes;
    struct verdict verdict;
    /* Members of a host come in the order of the exchange: each host has its own place in it. */
    const char **host_at = over->room->host_at, **host_end = over->room->host_end;
    symm_status status = SYMM_OK;

    if ((size_t)(end - at) < sizeof(verdict))
        status = malformed(over);
    if (status == SYMM_OK) {
        memcpy(&verdict, at, sizeof(verdict));
        at += sizeof(verdict);
        (void)symm__printable(verdict.sentence, sizeof(verdict.sentence));
        over->sequence = verdict.next - 1;
        if (verdict.status != SYMM_OK) {
            /* All hosts fail with this verdict, or the leader has told them. */
            over->lost = false;
            status =
                symm__fail_quiet(symm__peer_status(verdict.status), verdict.sentence);
        }
    }
    for (int h = 0; status == SYMM_OK && h < over->hosts; h++) {
        uint64_t count = 0;

        if (h == over->here)
            continue;
        if (end - at >= 8)
            memcpy(&count, at, sizeof(count));
        if (end - at < 8 || count > (uint64_t)(end - at - 8)) {
            status = malformed(over);
            break;
        }
        host_at[h] = at + 8;
        host_end[h] = at + 8 + count;
        at += 8 + symm__relay_padded(count);
    }
    for (int i = 0; status == SYMM_OK && i < over->exchange->count; i++) {
        int h = over->place_of[i];

        if (h != over->here)
            status = unpack_one(over, i, &host_at[h], host_end[h]);
    }
    return status;
}

/* ---- All ---------------------------------------------------------------------------------- */

/* The only member on this host has failed before: the other hosts fail with a sentence that names
 * it. */
static symm_status fail_alone(struct over *over)
{
    const symm_status status = over->exchange->status;
    char own[SYMM_ERROR_BYTES];

    symm__error_save(own);
    if (status != SYMM_ERR_PEER_DEAD) /* whose sentence names a rank */
        (void)symm__fail(status, "rank %d failed in %s: %.380s", over->oob->rank,
                         over->exchange->what, own);
    (void)give_up(over, status);
    return symm__fail_quiet(status, own);
}

/* The three steps. */
static symm_status run(struct over *over)
{
    struct symm_relay_result result = {0};
    symm_status status;

    if (over->local_count == 1 && over->exchange->status != SYMM_OK)
        return fail_alone(over);
    status = far_cause(over, gather_here(over));
    if (status != SYMM_OK) /* other members of this host may have completed that step */
        symm__oob_lose(over->oob, over->exchange->tag, over->sequence, status,
                       symm_last_error());
    if (status != SYMM_OK)
        return over->exchange->status != SYMM_OK ? fail_alone(over)
                                                 : give_up(over, status);
    over->lost = true;
    if (is_leader(over)) {
        status = gather_hosts(over, &result);
        over->lost = result.went;
        if (status ==
            SYMM_ERR_PEER_DEAD) { /* perhaps a rank that left for this reason: */
            char own[SYMM_ERROR_BYTES];
            symm_status before;

            symm__error_save(own);
            before = symm__oob_lost(over->oob, over->exchange->before,
                                    over->exchange->before_sequence);
            status = before != SYMM_OK ? before : symm__fail_quiet(status, own);
        }
        status = pack_all(over, status, &result);
        symm__relay_result_finish(&result);
    }
    if (over->local_count > 1) {
        symm_status handed = far_cause(over, hand_on(over));

        status = status == SYMM_OK ? handed : status;
    }
    if (status == SYMM_OK)
        status = unpack(over);
    if (status != SYMM_OK && over->lost)
        symm__oob_lose(over->oob, over->exchange->tag, over->sequence, status,
                       symm_last_error());
    return status;
}

symm_status symm__exchange_hosts(struct symm_oob *oob,
                                 const struct symm_exchange *exchange,
                                 struct symm_oob_message *messages)
{
    struct over over = {.oob = oob,
                        .exchange = exchange,
                        .messages = messages,
                        .sequence = exchange->sequence,
                        .start = symm__now()};
    symm_status status;

    over.until = over.start + exchange->timeout;
    memset(messages, 0, (size_t)exchange->count * sizeof(*messages));
    status = check_members(oob, exchange);
    if (status == SYMM_OK) {
        over_open(&over);
        status = run(&over);
    }
    if (status != SYMM_OK)
        symm__oob_messages_finish(messages, exchange->count);
    if (exchange->next)
        *exchange->next = over.sequence + 1;
    free(over.packed);
    return status;
}
