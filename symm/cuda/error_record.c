/* SPDX-License-Identifier: MIT */
/*
 * error_record.c - turns what kernels have recorded into an error on all ranks.
 *
 * A kernel whose wait ends without success writes a record of numbers: the call, the tag, the
 * missing rank, the words it read. The host turns it into a sentence: it takes over the
 * record of a peer that failed first; else it asks which peer has died; else it names the call
 * sites, which it finds by their tags in the control pages of the ranks concerned. Then the team
 * has failed here, peers find the sentence in this rank's control page, and the abort word ends
 * the waits of the team's other kernels. A member is given by its place here, as in kernels.
 * Members on other hosts have no control page: the relay reports their failures and deaths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/captured.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "cuda/error_exchange.h"
#include "cuda/error_teams.h"
#include "cuda/error_unpaired.h"
#include "cuda/error_where.h"
#include "cuda/launcher.h"
#include "util/clock.h"
#include "util/status.h"

#define REASON_SECONDS                                                                 \
    1.0 /* to wait for the error record of a peer whose arrival was cancelled */
#define MOMENT_SECONDS 0.1   /* a kernel that waits sees the abort word within this */
#define LOOK_SECONDS   0.001 /* between two polls for that record */
#define PEEK_SECONDS   0.1   /* to wait for a word of the device */

static bool is_missing(const struct symm_cuda_facts *facts, int member)
{
    return symm__members_has(&facts->missing, member);
}

/* Whether this member had cancelled its arrival. */
static bool has_cancelled(const struct symm_cuda_facts *facts, int member)
{
    uint64_t word = facts->seen[member];

    return !symm__is_signal(facts) && word != 0 && word >> 32 == 0 &&
           (uint32_t)word - facts->counter <= 2;
}

static bool some_cancelled(const symm_team *team, const struct symm_cuda_facts *facts)
{
    for (int m = 0; m < team->local_size; m++)
        if (m != team->local_rank && has_cancelled(facts, m))
            return true;
    return false;
}

/* Whether the record is of a kernel that has waited. If not, it has stopped before, because of the
 * call before it on its stream or for want of addresses. */
static bool has_waited(const struct symm_cuda_facts *facts)
{
    return symm__is_signal(facts) ? symm__is_exchange(facts) || facts->counter != 0
                                  : !symm__members_none(&facts->missing);
}

static void facts_read(const symm_team *team, struct symm_cuda_facts *facts)
{
    const struct symm_device_record *record = team->cuda->record;
    /* acquire: pairs with the kernel's release of state, after the fields */
    uint32_t state = __atomic_load_n(&record->state, __ATOMIC_ACQUIRE);

    facts->status = (symm_status) - (int32_t)state;
    facts->channel = __atomic_load_n(&record->channel, __ATOMIC_RELAXED);
    facts->tag = __atomic_load_n(&record->tag, __ATOMIC_RELAXED);
    facts->counter = __atomic_load_n(&record->counter, __ATOMIC_RELAXED);
    facts->signal = __atomic_load_n(&record->signal, __ATOMIC_RELAXED);
    facts->workspace = __atomic_load_n(&record->workspace, __ATOMIC_RELAXED);
    for (int w = 0; w < SYMM_MEMBER_WORDS; w++) {
        facts->missing.word[w] = __atomic_load_n(&record->missing[w], __ATOMIC_RELAXED);
        facts->queued.word[w] =
            __atomic_load_n(&symm__cuda_extended(team->cuda)->held_up[w],
                            __ATOMIC_RELAXED) &
            facts->missing.word[w];
    }
    facts->before = facts->pointers = 0;
    /* A kernel that stops stores these before it claims the record: another may have it already. */
    if (facts->status == SYMM_ERR_ABORTED && !has_waited(facts)) {
        facts->before =
            __atomic_load_n(&symm__cuda_extended(team->cuda)->before, __ATOMIC_RELAXED);
        facts->pointers = __atomic_load_n(&symm__cuda_extended(team->cuda)->pointers,
                                          __ATOMIC_RELAXED);
    }
    for (int m = 0; m < SYMM_DEVICE_RANKS; m++)
        facts->seen[m] = __atomic_load_n(&record->seen[m], __ATOMIC_RELAXED);
    if (facts->channel > SYMM_CHANNELS)
        facts->channel = SYMM_CHANNELS;
    if (symm__is_signal(facts) || some_cancelled(team, facts))
        /* only the deadline of a collective has members that had queued the call */
        facts->queued = (struct symm_cuda_members){{0}};
    facts->timeout = 1e-9 * (double)__atomic_load_n(
                                &team->cuda->timeout[facts->channel], __ATOMIC_RELAXED);
}

/* The name alone, for signals. */
static const char *signal_site(const symm_team *team, uint32_t tag,
                               struct symm_site *site)
{
    if (symm__cuda_site_find(team->ctx, team->ctx->rank, tag, site))
        return site->name;
    return "";
}

/* Where this rank is: the site of the record's call or signal. */
static const char *own_text(const symm_team *team, const struct symm_cuda_facts *facts,
                            char *text, size_t bytes)
{
    struct symm_site site;

    if (symm__is_exchange(facts))
        return symm__cuda_exchange_text(facts, team->local_rank, text, bytes);
    if (symm__is_signal(facts))
        return symm__site_name_text(signal_site(team, facts->tag, &site), text, bytes);
    return symm__cuda_tag_text(team, team->local_rank, facts->tag, facts->counter, text,
                               bytes);
}

static const char *missing_text(const symm_team *team, const struct symm_cuda_facts *facts,
                                char *text, size_t bytes)
{
    if (symm__members_text(team, &facts->missing, text, bytes) == 0)
        snprintf(text, bytes, "a peer's data");
    return text;
}

/* ": rank 1 has queued it, its stream has not reached it" of those among the missing; "" if
 * there are none. */
static const char *queued_text(const symm_team *team, const struct symm_cuda_facts *facts,
                               char *text, size_t bytes)
{
    char ranks[96];
    int count = symm__members_text(team, &facts->queued, ranks, sizeof(ranks));

    text[0] = '\0';
    if (count == 1)
        snprintf(text, bytes, ": %s has queued it, its stream has not reached it",
                 ranks);
    else if (count > 1)
        snprintf(text, bytes, ": %s have queued it, their streams have not reached it",
                 ranks);
    return text;
}

/* ---- What has happened ----------------------------------------------------------------- */

static symm_status take_over(symm_team *team)
{
    for (int m = 0; m < team->local_size; m++) {
        symm_status status = m == team->local_rank
                                 ? SYMM_OK
                                 : symm__team_record_of(team, team->local[m]);

        if (status != SYMM_OK)
            return status;
    }
    return symm__far_poll(team);
}

static symm_status report_gone(symm_team *team, const struct symm_cuda_facts *facts, int member,
                               symm_status status, const char *why)
{
    char mine[SYMM_SITE_TEXT_BYTES], at[SYMM_CUDA_WHERE_BYTES], name[64],
        whose[24] = "its", what[48] = "it", earlier[SYMM_EARLIER_TEXT_BYTES];
    const int rank = symm__team_rank_at(team, member);

    (void)symm__earlier_text(team->ctx, rank, earlier);
    symm__team_name(team, name, sizeof(name));
    if (facts->status == SYMM_OK)
        return symm__team_fail(team, status, "rank %d %s; rank %d shares %s with it%s",
                               rank, why, team->ctx->rank, name, earlier);
    if (!is_missing(facts, member) && !symm__members_none(&facts->missing))
        snprintf(whose, sizeof(whose), "rank %d's",
                 symm__team_rank_at(team, symm__members_first(&facts->missing) %
                                              team->local_size));
    if (symm__is_exchange(facts))
        snprintf(what, sizeof(what), "%s units", whose);
    else if (symm__is_signal(facts))
        snprintf(what, sizeof(what), "%s signal %u", whose, facts->signal);
    return symm__team_fail(
        team, status, "rank %d %s while rank %d waited for %s at %s%s of %s%s", rank,
        why, team->ctx->rank, what, own_text(team, facts, mine, sizeof(mine)),
        symm__cuda_where_text(team, facts, at, sizeof(at)), name, earlier);
}

/* Whether the rank has finalized; false if it died before its teams wrote their final arrivals. */
static bool has_left(const symm_ctx *ctx, int rank)
{
    const struct symm_control *control = symm__near_control(ctx, rank);

    if (__atomic_load_n(&control->live, __ATOMIC_ACQUIRE) != SYMM_LIVE_FINISHED)
        return false;
    if (__atomic_load_n(&control->left, __ATOMIC_ACQUIRE) ||
        !symm__process_ending(symm__process(ctx, rank)))
        return true;
    return __atomic_load_n(&control->left, __ATOMIC_ACQUIRE); /* now it is final */
}

static bool is_concerned(const struct symm_cuda_facts *facts, int member)
{
    return symm__members_none(&facts->missing) || is_missing(facts, member) ||
           has_cancelled(facts, member);
}

/* A member other than this rank that has ended, with the status and sentence of its end: one that
 * has finalized and was waited for, or one that has died; -1: none. */
static int find_ended(const symm_team *team, const struct symm_cuda_facts *facts,
                      bool finalized, symm_status *status, const char **why)
{
    const symm_ctx *ctx = team->ctx;

    for (int m = 0; m < team->local_size; m++) {
        int rank = symm__team_rank_at(team, m);
        const struct symm_control *control = symm__control(ctx, rank);

        if (m == team->local_rank)
            continue;
        if (symm__team_far_at(team, m)) {
            if (is_concerned(facts, m) &&
                symm__far_ended(ctx, rank, finalized, status, why))
                return m;
            continue;
        }
        *status = symm__process_check(symm__process(ctx, rank), &control->live, why);
        if (*status != SYMM_OK && /* read last: the rank may finalize until then */
            has_left(ctx, rank) == finalized && (!finalized || is_concerned(facts, m)))
            return m;
    }
    return -1;
}

/* The first dead peer, with the status and sentence of its death; -1: none. A peer that has
 * finalized counts only if `finished`, and if no other has died. It may have finalized because
 * another died, so deaths are looked for after that. */
static int find_dead(const symm_team *team, const struct symm_cuda_facts *facts, bool finished,
                     symm_status *status, const char **why)
{
    symm_status left_status = SYMM_OK;
    const char *left_why = NULL;
    int left = finished ? find_ended(team, facts, true, &left_status, &left_why) : -1;
    int dead = find_ended(team, facts, false, status, why);

    if (dead >= 0 || left < 0)
        return dead;
    *status = left_status;
    *why = left_why;
    return left;
}

/* Reports a dead peer, unless a peer has recorded the failure because of which it ended. */
static symm_status look_for_dead(symm_team *team, const struct symm_cuda_facts *facts,
                                 bool finished)
{
    const char *why;
    symm_status status;
    int member = find_dead(team, facts, finished, &status, &why);

    if (member < 0)
        return SYMM_OK;
    if (take_over(team) != SYMM_OK)
        return symm__team_failed(team);
    return report_gone(team, facts, member, status, why);
}

static symm_status report_signal_mismatch(symm_team *team, const struct symm_cuda_facts *facts)
{
    const int first = symm__members_first(&facts->missing),
              peer = first < 0 ? 0 : first;
    struct symm_site site;
    char at[SYMM_CUDA_WHERE_BYTES];

    return symm__team_fail(
        team, SYMM_ERR_MISMATCH,
        "signal %u number %u of rank %d was raised at another site than '%s', where "
        "rank %d waits for it%s",
        facts->signal, facts->counter,
        peer < team->local_size ? symm__team_rank_at(team, peer) : -1,
        signal_site(team, facts->tag, &site), team->ctx->rank,
        symm__cuda_where_text(team, facts, at, sizeof(at)));
}

/* A word of the device, for a sentence. Bounded: streams that wait may hold all hardware
 * queues, and then only the thread that explains the failure ends their waits. */
static bool peek(const symm_team *team, const uint64_t *at, uint64_t *value)
{
    struct symm_cuda_launcher *launcher = team->ctx->launcher;
    struct symm_device_record *record = team->cuda->record;
    const double until = symm__now() + PEEK_SECONDS;
    struct symm_cuda_scope scope;
    CUresult result;

    if (symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return false;
    pthread_mutex_lock(&launcher->peeking);
    /* not after a late copy */
    result = launcher->driver->cuStreamQuery(launcher->stream);
    if (result == CUDA_SUCCESS)
        result = launcher->driver->cuMemcpyAsync(
            (CUdeviceptr)(uintptr_t)&record->peeked, (CUdeviceptr)(uintptr_t)at,
            sizeof(*value), launcher->stream);
    if (result == CUDA_SUCCESS)
        do
            result = launcher->driver->cuStreamQuery(launcher->stream);
        while (result == CUDA_ERROR_NOT_READY && symm__now() < until);
    *value = __atomic_load_n(&record->peeked, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&launcher->peeking);
    symm__cuda_leave(&scope);
    return result == CUDA_SUCCESS;
}

/* Reads the member's word of a call: of this one or the one before. */
static bool peek_word(const symm_team *team, const struct symm_cuda_facts *facts, int member,
                      uint32_t call, uint64_t *word)
{
    return peek(team,
                &symm__device_call_words(&team->device, team->local_rank,
                                         facts->channel, call)[member],
                word) &&
           (uint32_t)*word == call;
}

/* The tag at which a member is in this call; 0: not known. */
static uint32_t their_tag(const symm_team *team, const struct symm_cuda_facts *facts, int member)
{
    uint64_t word = facts->seen[member];

    if ((uint32_t)word == facts->counter && word >> 32 != 0 && word >> 32 != facts->tag)
        return (uint32_t)(word >> 32);
    /* The word that the kernel saw may be a barrier's; by now the call's word has arrived. */
    if (!peek_word(team, facts, member, facts->counter, &word) ||
        word >> 32 == facts->tag)
        return 0;
    return (uint32_t)(word >> 32);
}

/* SYMM_OK: a rank of another host has not reported its site yet. */
static symm_status report_mismatch(symm_team *team, const struct symm_cuda_facts *facts,
                                   bool waited)
{
    char mine[SYMM_SITE_TEXT_BYTES], theirs[SYMM_SITE_TEXT_BYTES] = "another call",
                                     where[SYMM_CUDA_WHERE_BYTES];
    struct symm_site site, own;
    struct symm_call_at at[2] = {{.text = theirs, .where = ""},
                                 {team->ctx->rank, NULL, mine, where}};
    int member = symm__members_first(&facts->missing);
    uint32_t tag = 0;

    if (symm__is_exchange(facts))
        return symm__cuda_exchange_mismatch(team, facts);
    if (symm__is_signal(facts))
        return report_signal_mismatch(team, facts);
    for (int m = 0; m < team->local_size && tag == 0; m++)
        if (m != team->local_rank &&
            (is_missing(facts, m) || symm__members_none(&facts->missing))) {
            member = m;
            tag = their_tag(team, facts, m);
        }
    if (member < 0 || member >= team->local_size)
        member = team->local_rank;
    if (tag && !waited && symm__team_far_at(team, member) &&
        !symm__cuda_site_of(team, member, tag, &site))
        return SYMM_OK;
    at[0].rank = symm__team_rank_at(team, member);
    if (tag)
        (void)symm__cuda_tag_text(team, member, tag, facts->counter, theirs,
                                  sizeof(theirs));
    if (tag && symm__cuda_site_of(team, member, tag, &site))
        at[0].site = &site;
    if (symm__cuda_site_of(team, team->local_rank, facts->tag, &own))
        at[1].site = &own;
    (void)own_text(team, facts, mine, sizeof(mine));
    (void)symm__cuda_where_text(team, facts, where, sizeof(where));
    return symm__team_mismatch(team, &at[0], &at[1]);
}

/* The last word of a member that has not reached this call. */
static uint64_t last_word(const symm_team *team, const struct symm_cuda_facts *facts, int member)
{
    uint64_t seen = facts->seen[member], before = 0;

    if (symm__is_signal(facts) || (uint32_t)seen == facts->counter ||
        !peek_word(team, facts, member, facts->counter - 1, &before))
        return seen;
    return before;
}

/* Fails because streams are late: all missing members' hosts have queued the call. */
static symm_status report_queued(symm_team *team, const struct symm_cuda_facts *facts)
{
    char missing[96], mine[SYMM_SITE_TEXT_BYTES], at[SYMM_CUDA_WHERE_BYTES],
        queued[160], queues[160];

    return symm__team_fail(
        team, SYMM_ERR_TIMEOUT,
        "%s did not arrive at %s within %g s%s; rank %d waits%s%s; look at what runs "
        "before the call on the late stream, or raise SYMM_QUEUE_TIMEOUT",
        missing_text(team, facts, missing, sizeof(missing)),
        own_text(team, facts, mine, sizeof(mine)),
        symm__queue_limit(team->ctx, facts->timeout),
        queued_text(team, facts, queued, sizeof(queued)), team->ctx->rank,
        symm__cuda_where_text(team, facts, at, sizeof(at)),
        symm__cuda_queue_text(team, facts, queues, sizeof(queues)));
}

static symm_status report_timeout(symm_team *team, const struct symm_cuda_facts *facts)
{
    const struct symm_cuda_members late =
        symm__members_less(&facts->missing, &facts->queued);
    char missing[96], mine[SYMM_SITE_TEXT_BYTES], at[SYMM_CUDA_WHERE_BYTES],
        last[SYMM_SITE_TEXT_BYTES], late_at[SYMM_LATE_TEXT_BYTES], queued[160],
        queues[160];
    _Static_assert(
        sizeof(missing) + sizeof(mine) + sizeof(at) + sizeof(late_at) + sizeof(queued) +
                sizeof(queues) + 160 <=
            SYMM_RECORD_BYTES - 8,
        "the longest sentence fits into a record, with its own words and the advice");
    int one = symm__members_first(&late);
    uint64_t before;
    symm_status status;
    bool other;

    if (!symm__members_none(&facts->missing) && one < 0)
        return report_queued(team, facts);
    missing_text(team, facts, missing, sizeof(missing));
    if (one < 0 || one >= team->local_size)
        one = team->local_rank;
    if (symm__is_exchange(facts))
        return symm__cuda_exchange_timeout(team, facts, one);
    before = last_word(team, facts, one);
    (void)symm__cuda_where_text(team, facts, at, sizeof(at));
    if (symm__is_signal(facts))
        return symm__team_fail(
            team, SYMM_ERR_TIMEOUT,
            "rank %d did not raise signal %u for the %u-th time within %g s (it has "
            "raised it %u times); rank %d waits at %s%s",
            symm__team_rank_at(team, one), facts->signal, facts->counter,
            facts->timeout, (uint32_t)before, team->ctx->rank,
            own_text(team, facts, mine, sizeof(mine)), at);
    if ((uint32_t)before == facts->counter)
        return symm__team_fail(
            team, SYMM_ERR_TIMEOUT,
            "%s came to %s but did not finish it within %g s; rank %d waits for its "
            "data%s%s; if it is only slow, raise the timeout (SYMM_TIMEOUT)",
            missing, own_text(team, facts, mine, sizeof(mine)), facts->timeout,
            team->ctx->rank, at,
            symm__cuda_queue_text(team, facts, queues, sizeof(queues)));
    status = symm__cuda_report_unpaired(team, facts);
    if (status != SYMM_OK)
        return status;
    (void)symm__cuda_tag_text(team, one, (uint32_t)(before >> 32), (uint32_t)before,
                              last, sizeof(last));
    (void)symm__team_late_text(team, symm__team_rank_at(team, one),
                               before >> 32 ? last : NULL, &other, late_at,
                               sizeof(late_at));
    return symm__team_fail(
        team, SYMM_ERR_TIMEOUT,
        "%s did not arrive at %s within %g s%s; rank %d waits%s; %s%s%s", missing,
        own_text(team, facts, mine, sizeof(mine)), facts->timeout,
        queued_text(team, facts, queued, sizeof(queued)), team->ctx->rank, at, late_at,
        symm__cuda_queue_text(team, facts, queues, sizeof(queues)),
        symm__late_advice(other));
}

static symm_status report_cancelled(symm_team *team, const struct symm_cuda_facts *facts)
{
    char missing[96], mine[SYMM_SITE_TEXT_BYTES], at[SYMM_CUDA_WHERE_BYTES];

    return symm__team_fail(team, SYMM_ERR_ABORTED,
                           "%s gave up while rank %d was at %s%s, and did not say why",
                           missing_text(team, facts, missing, sizeof(missing)),
                           team->ctx->rank, own_text(team, facts, mine, sizeof(mine)),
                           symm__cuda_where_text(team, facts, at, sizeof(at)));
}

/* Fails because the call before it on its stream, of another team, has failed: the call had no
 * effect. SYMM_OK: that team's failure has no sentence yet, which tells the cause. */
static symm_status report_before(symm_team *team, const struct symm_cuda_facts *facts,
                                 bool waited)
{
    char other[24] = "the world", name[128], at[SYMM_CUDA_WHERE_BYTES],
         why[SYMM_RECORD_BYTES];
    struct symm_site site;

    if (!symm__cuda_reason_of(team, facts, facts->before - 1, why, sizeof(why)) &&
        !waited)
        return SYMM_OK;
    if (facts->before > 1)
        snprintf(other, sizeof(other), "team %u", facts->before - 1);
    if (symm__is_signal(facts) ||
        !symm__cuda_site_of(team, team->local_rank, facts->tag, &site))
        own_text(team, facts, name, sizeof(name));
    else /* the name alone leaves room for the reason */
        symm__site_name_text(site.name, name, sizeof(name));
    return symm__team_fail(team, SYMM_ERR_ABORTED,
                           "rank %d did not make %s%s: the call before it on its "
                           "stream, of %s, has failed%s%s",
                           team->ctx->rank, name,
                           symm__cuda_where_text(team, facts, at, sizeof(at)), other,
                           why[0] ? ": " : "", why);
}

/* Fails because of a replay without addresses. SYMM_OK: the list of captured calls is in use. */
static symm_status report_pointers(symm_team *team, const struct symm_cuda_facts *facts,
                                   bool waited)
{
    char text[SYMM_ERROR_BYTES];

    if (symm__captured_text(team, facts->pointers - 1, text, sizeof(text)))
        return symm__team_fail(team, SYMM_ERR_ABORTED, "%s", text);
    if (!waited)
        return SYMM_OK;
    return symm__team_fail(team, SYMM_ERR_ABORTED,
                           "rank %d has replayed a captured call whose memory was "
                           "released, or before symm_team_capture_end",
                           team->ctx->rank);
}

/* SYMM_OK: the reason is not known yet. */
static symm_status explain(symm_team *team, const struct symm_cuda_facts *facts, bool waited)
{
    symm_status status = take_over(team);

    if (status == SYMM_OK)
        status = look_for_dead(team, facts, false);
    if (status != SYMM_OK)
        return status;
    if (facts->status == SYMM_ERR_MISMATCH)
        return report_mismatch(team, facts, waited);
    if (facts->pointers != 0)
        return report_pointers(team, facts, waited);
    if (facts->before != 0)
        return report_before(team, facts, waited);
    /* A peer that cancelled its arrival will report the reason, or did before it ended. */
    if (facts->status == SYMM_ERR_ABORTED ||
        (facts->status == SYMM_ERR_TIMEOUT && some_cancelled(team, facts))) {
        status = look_for_dead(team, facts, true);
        if (status != SYMM_OK || !waited)
            return status;
    }
    if (facts->status == SYMM_ERR_TIMEOUT) {
        status = look_for_dead(team, facts, true);
        return status == SYMM_OK ? report_timeout(team, facts) : status;
    }
    return report_cancelled(team, facts);
}

void symm__cuda_abort(symm_team *team, symm_status status)
{
    uint32_t none = 0;

    /* release: a thread that sees how a kernel reacts to this word also sees the failure */
    __atomic_compare_exchange_n(&team->cuda->record->abort, &none,
                                (uint32_t) - (int32_t)status, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

/* When that was first asked: by the watchdog, or by a call. */
static double first_found(struct symm_cuda_team *cuda, double now)
{
    double at;

    __atomic_load(&cuda->cancelled, &at, __ATOMIC_RELAXED);
    if (at == 0) {
        at = now;
        __atomic_store(&cuda->cancelled, &at, __ATOMIC_RELAXED);
    }
    return at;
}

/* For the watchdog: failures that kernels would detect much later. After a death the abort
 * word is set first, so that a waiting kernel reports its call; if none does within
 * MOMENT_SECONDS, none waited. */
static symm_status look_ahead(symm_team *team, const struct symm_cuda_facts *facts)
{
    double now = symm__now();
    symm_status death, status = take_over(team);
    const char *why;

    if (status != SYMM_OK || find_dead(team, facts, false, &death, &why) < 0)
        return status;
    symm__cuda_abort(team, SYMM_ERR_PEER_DEAD);
    if (now - first_found(team->cuda, now) < MOMENT_SECONDS)
        return SYMM_OK;
    return look_for_dead(team, facts, false);
}

static bool is_aborted(const symm_team *team)
{
    return __atomic_load_n(&team->cuda->record->abort, __ATOMIC_RELAXED) != 0;
}

symm_status symm__cuda_diagnose(symm_team *team, bool may_wait)
{
    struct symm_cuda_facts facts = {.by_watchdog = !may_wait};
    double begin = symm__now();
    symm_status status = symm__team_failed(team);

    facts_read(team, &facts);
    if (status == SYMM_OK && facts.status == SYMM_OK) /* no kernel has failed yet */
        status = look_ahead(team, &facts);
    /* A call was stopped by the abort word: the death that set it is reported soon. */
    while (status == SYMM_OK && facts.status == SYMM_OK && may_wait &&
           is_aborted(team) && symm__now() - begin < REASON_SECONDS) {
        symm__sleep(LOOK_SECONDS);
        status = look_ahead(team, &facts);
        facts_read(team, &facts);
    }
    if (status == SYMM_OK && facts.status != SYMM_OK && !symm__is_signal(&facts))
        symm__cuda_site_tell(team, facts.tag);
    while (status == SYMM_OK && facts.status != SYMM_OK) {
        const double now = symm__now();
        const double since = may_wait ? begin : first_found(team->cuda, now);

        status = symm__team_failed(team); /* the watchdog may have set it */
        if (status == SYMM_OK)
            status = explain(team, &facts, now - since >= REASON_SECONDS);
        if (status != SYMM_OK || !may_wait)
            break;
        symm__sleep(LOOK_SECONDS);
    }
    if (status != SYMM_OK)
        symm__cuda_abort(team, status);
    return status;
}

symm_status symm__cuda_team_poll(symm_team *team)
{
    symm_status status;

    if (team->hierarchy && team->hierarchy->local_team &&
        symm__cuda_team_poll(team->hierarchy->local_team) != SYMM_OK)
        return symm__far_poll(team);
    /* relaxed: a flag; symm__cuda_diagnose reads the record with acquire */
    if (__builtin_expect(
            __atomic_load_n(&team->cuda->record->state, __ATOMIC_RELAXED) == 0, 1) &&
        __builtin_expect(!is_aborted(team), 1))
        status = symm__team_failed(team);
    else
        status = symm__cuda_diagnose(team, true);
    if (__builtin_expect(status != SYMM_OK, 0)) /* relaxed: see stream_order.h */
        __atomic_store_n(&team->cuda->known, 1, __ATOMIC_RELAXED);
    return status;
}
