/* SPDX-License-Identifier: MIT */
/* failure.c - see failure.h. */
#include "core/failure.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/earlier.h"
#include "oob/packet.h"
#include "sight/sight.h"
#include "symm/norm.h"
#include "symm/record_kinds.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/text.h"

#define LOOK_SECONDS 0.001 /* between two polls of other hosts */

/* Sets the thread's error: what the team failed with, and the file to which this rank has written
 * its last calls, or how to get one. Peers get the first part alone: they have files of their own. */
static symm_status fail_as(const symm_team *team, symm_status status)
{
    const char *file = symm__sight_saved(team->ctx->sight);
    char sentence[SYMM_ERROR_BYTES];
    int length = 0;

    if (file)
        length =
            snprintf(sentence, sizeof(sentence), "%s; see %s", team->failure, file);
    else if (status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_MISMATCH)
        length =
            snprintf(sentence, sizeof(sentence),
                     "%s; SYMM_DUMP=FOLDER keeps the ranks' last calls", team->failure);
    return symm__fail_quiet(status, length > 0 && (size_t)length < sizeof(sentence)
                                        ? sentence
                                        : team->failure);
}

symm_status symm__team_failed(const symm_team *team)
{
    /* acquire: pairs with the release in team_mark */
    symm_status status = (symm_status)__atomic_load_n(&team->failed, __ATOMIC_ACQUIRE);

    return status == SYMM_OK ? SYMM_OK : fail_as(team, status);
}

/* Fails the local team too, and ends the waits of calls for their turn. */
static void end_steps(const symm_team *team, struct symm_hierarchy *hierarchy)
{
    /* Members on this host may wait in a step of the local team, where they read that team's
     * records. */
    if (hierarchy->local_team && symm__team_failed(hierarchy->local_team) == SYMM_OK)
        (void)symm__team_fail(hierarchy->local_team, (symm_status)team->failed, "%s",
                              team->failure);
    /* Calls that have not had their turn never get it: what was queued before them is skipped. */
    pthread_mutex_lock(&hierarchy->turn);
    pthread_cond_broadcast(&hierarchy->turns);
    pthread_mutex_unlock(&hierarchy->turn);
}

/* Reports the failure to the members on other hosts. The failure of a local team is reported as
 * that of its outer team, which fails with it. */
static void tell_hosts(symm_team *team)
{
    if (team->hierarchy)
        end_steps(team, team->hierarchy);
    if (!team->inner)
        symm__oob_notify(&team->ctx->oob, team->uid, (symm_status)team->failed,
                         team->failure);
}

/* Sets the team's own state once; later failures keep the first record. */
static symm_status team_mark(symm_team *team, symm_status status, const char *text)
{
    symm_ctx *ctx = team->ctx;
    struct symm_record *record = &symm__own_control(ctx)->record[team->slot];

    if (__atomic_exchange_n(&team->failing, 1, __ATOMIC_ACQ_REL) == 0) {
        snprintf(team->failure, sizeof(team->failure), "%s", text);
        snprintf(record->text, sizeof(record->text), "%s", text);
        symm__earlier_keep(ctx, text);
        /* release: pairs with the acquire in symm__team_record_of, a peer's */
        __atomic_store_n(&record->state, (int32_t)status, __ATOMIC_RELEASE);
        /* release: pairs with the acquire in symm__team_failed */
        __atomic_store_n(&team->failed, (int32_t)status, __ATOMIC_RELEASE);
        symm__sight_failure(ctx->sight, team->uid, status, text);
        if (team->far)
            tell_hosts(team);
        symm__sight_save(ctx->sight); /* last: it writes a file */
    } else {
        while (__atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) == SYMM_OK)
            sched_yield(); /* another thread is writing the record */
    }
    return symm__team_failed(team);
}

symm_status symm__team_fail(symm_team *team, symm_status status, const char *format,
                            ...)
{
    char text[SYMM_RECORD_BYTES - 8], whole[2 * SYMM_RECORD_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(whole, sizeof(whole), format, args);
    va_end(args);
    (void)symm__fit(text, sizeof(text), whole);
    symm__fail(status, "%s", text);
    return team_mark(team, status, text);
}

symm_status symm__team_fail_queued(symm_team *team, const char *what, const char *site)
{
    char cause[SYMM_ERROR_BYTES], at[SYMM_SITE_NAME_BYTES + 8];

    snprintf(cause, sizeof(cause), "%s", symm_last_error());
    return symm__team_fail(
        team, SYMM_ERR_ABORTED,
        "rank %d has queued only a part of %s at %s, and cannot make it again: %s",
        team->ctx->rank, what, symm__site_name_text(site, at, sizeof(at)), cause);
}

symm_status symm_team_abort(symm_team *team, const char *why)
{
    symm_status status = symm__team_check(team);
    char name[64];

    if (status == SYMM_OK && symm__team_failed(team) == SYMM_OK)
        (void)symm__team_fail(
            team, SYMM_ERR_ABORTED, "rank %d has aborted %s%s%.80s", team->ctx->rank,
            symm__team_name(team, name, sizeof(name)), why ? ": " : "", why ? why : "");
    return status;
}

symm_status symm__team_record_of(symm_team *team, int member)
{
    const struct symm_control *control =
        symm__control(team->ctx, team->world_rank[member]);
    const struct symm_record *record = control ? &control->record[team->slot] : NULL;
    char text[sizeof(record->text)];
    int32_t state;

    if (!record) /* on another host: see symm__far_poll */
        return SYMM_OK;
    /* acquire: pairs with the release in team_mark of that rank */
    state = __atomic_load_n(&record->state, __ATOMIC_ACQUIRE);
    if (state == SYMM_OK ||
        __atomic_load_n(&record->team_uid, __ATOMIC_RELAXED) != team->uid)
        return SYMM_OK;
    if (state != SYMM_ERR_TIMEOUT && state != SYMM_ERR_PEER_DEAD &&
        state != SYMM_ERR_MISMATCH && state != SYMM_ERR_DAMAGED &&
        state != SYMM_ERR_ABORTED)
        return symm__team_fail(
            team, SYMM_ERR_DAMAGED,
            "the control page of rank %d is damaged: it reports a failure "
            "%d that does not exist",
            team->world_rank[member], state);
    memcpy(text, record->text, sizeof(text));
    (void)symm__printable(text, sizeof(text));
    if (text[0] == '\0') /* every record has a sentence: something has overwritten it */
        snprintf(text, sizeof(text),
                 "rank %d reports %s, but the sentence that says why is damaged",
                 team->world_rank[member], symm_status_name((symm_status)state));
    symm__fail((symm_status)state, "%s", text);
    return team_mark(team, (symm_status)state, text);
}

/* Has the rank of this host come to an exchange of the team in which this rank is not? */
static bool has_begun(symm_team *team, int world_rank, char what[64])
{
    symm_ctx *ctx = team->ctx;
    bool begun;

    /* The lock of exchanges: during one, the sockets say nothing of others. */
    if (symm__is_far(ctx, world_rank) || pthread_mutex_trylock(&ctx->lock) != 0)
        return false;
    if (team->outer)
        team = team->outer;
    begun = symm__oob_begun(&ctx->oob, world_rank, team->uid, team->sequence, what);
    pthread_mutex_unlock(&ctx->lock);
    return begun;
}

const char *symm__team_late_text(symm_team *team, int world_rank, const char *last,
                                 bool *other, char *text, size_t bytes)
{
    char what[64];

    *other = has_begun(team, world_rank, what);
    if (*other)
        snprintf(text, bytes, "rank %d waits in %s", world_rank, what);
    else if (last)
        snprintf(text, bytes, "rank %d was last at %s", world_rank, last);
    else
        snprintf(text, bytes, "rank %d has made no call on this channel", world_rank);
    return text;
}

const char *symm__late_advice(bool other)
{
    return other ? ": all ranks of a team must make the same calls in the same order"
                 : "; if it is only slow, raise the timeout (SYMM_TIMEOUT)";
}

/* The number of the symm_team_shrink that the rank has come to; 0: to none, or it is not mapped. */
static uint32_t shrinks_of(const symm_team *team, int rank)
{
    const struct symm_control *control = symm__control(team->ctx, rank);
    /* acquire: pairs with the release in symm__consensus_announce */
    const uint64_t joined =
        control
            ? __atomic_load_n(&control->agreement[team->slot].joined, __ATOMIC_ACQUIRE)
            : 0;

    return joined >> 32 == team->uid ? (uint32_t)joined : 0;
}

bool symm__team_shrinks(const symm_team *team, int rank)
{
    return shrinks_of(team, rank) > shrinks_of(team, team->ctx->rank);
}

static bool is_among(int rank, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return count < 0;
}

static symm_status gone_to_shrink(const symm_team *team, int rank)
{
    char name[64];

    return symm__fail(SYMM_ERR_ABORTED, "rank %d has gone on to symm_team_shrink of %s",
                      rank, symm__team_name(team, name, sizeof(name)));
}

/* A look at the board of a team for ranks of other hosts that shrink it. */
struct far_look {
    const symm_ctx *ctx;
    uint32_t own; /* this rank's number of calls */
    int rank;     /* one that has come to a later one; -1: none */
};

static void look_at_cell(void *user, int rank, const void *bytes, size_t count)
{
    struct far_look *look = user;
    uint32_t call;

    if (count < sizeof(call) || !symm__is_far(look->ctx, rank))
        return;
    memcpy(&call, bytes, sizeof(call));
    if (call > look->own && look->rank < 0)
        look->rank = rank;
}

/* A rank of another host in a symm_team_shrink that this rank has not entered; -1: none. */
static int far_shrinks(const symm_team *team)
{
    struct far_look look = {.ctx = team->ctx, .rank = -1};

    if (!team->far)
        return -1;
    look.own = shrinks_of(team, team->ctx->rank);
    (void)symm__relay_read(team->ctx->oob.relay, team->uid, 0, look_at_cell, &look);
    return look.rank;
}

symm_status symm__team_gone_on(void *arg, const int *ranks, int count)
{
    symm_team *team = arg;
    struct symm_relay_report report;
    int far;

    for (int p = 0; p < team->local_size; p++) {
        const int m = team->local[p];
        symm_status status = SYMM_OK;
        bool shrinks;

        if (m == team->rank || !is_among(team->world_rank[m], ranks, count))
            continue;
        shrinks = symm__team_shrinks(team, team->world_rank[m]);
        if (shrinks || !team->had_failed)
            status = symm__team_record_of(team, m);
        if (status != SYMM_OK)
            return status;
        if (shrinks)
            return gone_to_shrink(team, team->world_rank[m]);
    }
    if (count >= 0)
        return SYMM_OK;
    far = far_shrinks(team);
    if ((far >= 0 || !team->had_failed) &&
        symm__oob_reported(&team->ctx->oob, team->uid, &report))
        return symm__team_fail(team, report.status, "%s", report.sentence);
    return far < 0 ? SYMM_OK : gone_to_shrink(team, far);
}

symm_status symm__death_among(const symm_ctx *ctx, const int *ranks, int count, int *at,
                              const char **why)
{
    for (int i = 0; i < count; i++) {
        const struct symm_control *control = symm__control(ctx, ranks[i]);
        symm_status status =
            ranks[i] == ctx->rank || !control
                ? SYMM_OK
                : symm__process_died(symm__process(ctx, ranks[i]), &control->live, why);

        if (status == SYMM_OK)
            continue;
        *at = i;
        return status;
    }
    return SYMM_OK;
}

symm_status symm__team_death(const symm_team *team, int *member, const char **why)
{
    return symm__death_among(team->ctx, team->world_rank, team->size, member, why);
}

/* The caller holds an acquire of the word that was stored after the site. */
void symm__site_copy(const struct symm_site *shared, struct symm_site *site)
{
    memcpy(site, shared, sizeof(*site));
    (void)symm__printable(site->name, sizeof(site->name));
}

void symm__site_name_set(char name[SYMM_SITE_NAME_BYTES], const char *site)
{
    const size_t kept = SYMM_SITE_NAME_BYTES - 10;

    snprintf(name, SYMM_SITE_NAME_BYTES, "%s", site ? site : "");
    if (!site || strlen(site) < SYMM_SITE_NAME_BYTES)
        return;
    snprintf(name + kept, SYMM_SITE_NAME_BYTES - kept, "~%08x",
             symm__fnv_short(symm__fnv_text(SYMM_FNV_BASIS, site)));
}

uint32_t symm__site_name_tag(const char *name)
{
    uint32_t hash;

    if (!name || !*name)
        return 0;
    hash = symm__fnv_short(symm__fnv_text(SYMM_FNV_BASIS, name));
    return hash ? hash : 1;
}

const char *symm__site_name_text(const char *site, char *text, size_t bytes)
{
    if (site && *site)
        snprintf(text, bytes, "site '%s'", site);
    else
        snprintf(text, bytes, "a site without a name");
    return text;
}

uint64_t symm__site_options(const struct symm_site *site, uint64_t hash)
{
    const uint32_t options[] = {site->options, site->eps, site->weight_offset};

    return symm__fnv(hash, options, sizeof(options));
}

const char *symm__site_stream_text(const char *site, const void *stream, char *text,
                                   size_t bytes)
{
    char name[SYMM_SITE_NAME_BYTES + 24];

    (void)symm__site_name_text(site, name, sizeof(name));
    if (stream)
        snprintf(text, bytes, "%s on stream %p", name, stream);
    else
        snprintf(text, bytes, "%s", name);
    return text;
}

const char *symm__site_text(const struct symm_site *site, uint32_t epoch, char *text,
                            size_t bytes)
{
    uint64_t count = (uint64_t)site->count_high << 32 | site->count_low;
    const char *dtype = symm_dtype_name((symm_dtype)site->dtype);
    const char *op = symm_op_name((symm_op)site->op);
    const char *kind = symm__kind_name((enum symm_kind)site->kind);
    const char *algorithm = symm_algorithm_name((symm_algorithm)site->algorithm);
    bool norm = site->kind == SYMM_KIND_ALL_REDUCE_NORM;
    bool reduces = symm__kind_reduces((enum symm_kind)site->kind) && !norm;
    int used = snprintf(text, bytes, "site %s%s%s (%s", site->name[0] ? "'" : "",
                        site->name[0] ? site->name : "without a name",
                        site->name[0] ? "'" : "", kind);

    if (used > 0 && (size_t)used < bytes && site->kind != SYMM_KIND_BARRIER)
        used += snprintf(text + used, bytes - (size_t)used, "%s%s of %llu %s, %s",
                         reduces ? " " : "", reduces ? (op ? op : "?") : "",
                         (unsigned long long)count, dtype ? dtype : "?",
                         algorithm ? algorithm : "?");
    if (used > 0 && (size_t)used < bytes && norm)
        used += snprintf(text + used, bytes - (size_t)used,
                         ", rows of %d, options %08x", site->root,
                         symm__fnv_short(symm__site_options(site, SYMM_FNV_BASIS)));
    if (used > 0 && (size_t)used < bytes && site->kind == SYMM_KIND_BROADCAST)
        used += snprintf(text + used, bytes - (size_t)used, ", root %d", site->root);
    if (used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ") step %u", epoch);
    return text;
}

/* ---- Calls that differ */

static uint64_t offset_of(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

/* "at offset 4194304 on rank 1" */
static const char *place_text(uint64_t offset, int rank, char *text, size_t bytes)
{
    if (offset == UINT64_MAX)
        snprintf(text, bytes, "in no symmetric memory on rank %d", rank);
    else if (offset >> 63) /* see call/prepare.c */
        snprintf(text, bytes, "of a captured call on rank %d", rank);
    else
        snprintf(text, bytes, "at offset %llu on rank %d", (unsigned long long)offset,
                 rank);
    return text;
}

/* What two calls of one text differ in, of what their tags contain. */
static void difference(const struct symm_call_at *a, const struct symm_call_at *b,
                       char *text, size_t bytes)
{
    const uint64_t in[2] = {offset_of(a->site->in_high, a->site->in_low),
                            offset_of(b->site->in_high, b->site->in_low)};
    const uint64_t out[2] = {offset_of(a->site->out_high, a->site->out_low),
                             offset_of(b->site->out_high, b->site->out_low)};
    const bool inputs = in[0] != in[1];
    char place[2][64];

    if ((out[0] == UINT64_MAX) !=
        (out[1] == UINT64_MAX)) /* of a gather in place alone */
        snprintf(text, bytes,
                 "it is in place on rank %d alone: make it so on all ranks, or on none",
                 out[0] != UINT64_MAX ? a->rank : b->rank);
    else if (inputs || out[0] != out[1])
        snprintf(
            text, bytes,
            "`%s` is %s, %s: all ranks must give symmetric arrays at one offset",
            inputs ? "in" : "out",
            place_text(inputs ? in[0] : out[0], a->rank, place[0], sizeof(place[0])),
            place_text(inputs ? in[1] : out[1], b->rank, place[1], sizeof(place[1])));
    else
        snprintf(text, bytes, "with different grids or plans");
}

static double float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static const char *quant_name(uint32_t options)
{
    static const char *const names[] = {"none", "tensor", "row", "group",
                                        "group_column"};

    _Static_assert(sizeof(names) / sizeof(*names) == SYMM_NORM_QUANT_COUNT,
                   "each has a name");
    options &= 0xff;
    return options < SYMM_NORM_QUANT_COUNT ? names[options] : "?";
}

/* With as few digits as show the difference. */
static void number_difference(const char *name, double x, double y, const int ranks[2],
                              char *text, size_t bytes)
{
    const double part = x - y < 0 ? y - x : x - y, most = x > y ? x : y;
    const int digits = part < 1e-5 * most ? 9 : 6;

    snprintf(text, bytes, "; `%s` is %.*g on rank %d, %.*g on rank %d", name, digits, x,
             ranks[0], digits, y, ranks[1]);
}

/* "; `eps` is 1e-06 on rank 0, 1e-05 on rank 1": the first option that two all_reduce_norms
 * differ in; "": they are not such, or agree in all. */
static const char *norm_difference(const struct symm_call_at *a,
                                   const struct symm_call_at *b, char *text,
                                   size_t bytes)
{
    const struct symm_site *x = a->site, *y = b->site;
    const int kind = SYMM_KIND_ALL_REDUCE_NORM, ranks[] = {a->rank, b->rank};
    uint32_t arrays;

    text[0] = '\0';
    if (!x || !y || x->kind != kind || y->kind != kind)
        return text;
    /* of no rows no array is kept, whatever the call has given */
    arrays = x->options >> 16 && y->options >> 16 ? (x->options ^ y->options) >> 16 : 0;
    if ((x->options ^ y->options) & 0xff)
        snprintf(text, bytes, "; `quant` is %s on rank %d, %s on rank %d",
                 quant_name(x->options), a->rank, quant_name(y->options), b->rank);
    else if ((x->options ^ y->options) & 0xff00)
        snprintf(text, bytes, "; `flags` are 0x%x on rank %d, 0x%x on rank %d",
                 x->options >> 8 & 0xff, a->rank, y->options >> 8 & 0xff, b->rank);
    else if (x->eps != y->eps)
        number_difference("eps", float_of(x->eps), float_of(y->eps), ranks, text,
                          bytes);
    else if (x->weight_offset != y->weight_offset)
        number_difference("weight_offset", float_of(x->weight_offset),
                          float_of(y->weight_offset), ranks, text, bytes);
    for (int i = 0; !text[0] && i < SYMM_RECORD_ARRAYS; i++)
        if (arrays >> i & 1)
            snprintf(text, bytes, "; `%s` is %s on rank %d, %s on rank %d",
                     symm_record_array_name((symm_record_array)i),
                     x->options >> (16 + i) & 1 ? "given" : "NULL", a->rank,
                     y->options >> (16 + i) & 1 ? "given" : "NULL", b->rank);
    return text;
}

symm_status symm__team_mismatch(symm_team *team, const struct symm_call_at *theirs,
                                const struct symm_call_at *mine)
{
    char differs[208];

    if (!theirs->site || !mine->site || strcmp(theirs->text, mine->text) != 0)
        return symm__team_fail(
            team, SYMM_ERR_MISMATCH,
            "rank %d is at %s%s, rank %d is at %s%s%s: all ranks of a team must make "
            "the same calls in the same order",
            theirs->rank, theirs->text, theirs->where, mine->rank, mine->text,
            mine->where, norm_difference(theirs, mine, differs, sizeof(differs)));
    difference(theirs, mine, differs, sizeof(differs));
    return symm__team_fail(team, SYMM_ERR_MISMATCH,
                           "rank %d and rank %d%s are at %s, but %s", theirs->rank,
                           mine->rank, mine->where, mine->text, differs);
}

/* ---- Teams over several hosts */

/* Reads what other hosts have reported, and which of their ranks have died; `sentence` gets the
 * sentence. */
static symm_status look_far(symm_team *team, char *sentence, size_t bytes)
{
    symm_ctx *ctx = team->ctx;
    struct symm_relay_report report;

    if (symm__oob_reported(&ctx->oob, team->uid, &report)) {
        snprintf(sentence, bytes, "%s", report.sentence);
        return report.status;
    }
    for (int m = 0; m < team->size; m++) {
        int rank = team->world_rank[m];

        if (!symm__oob_died(&ctx->oob, rank))
            continue;
        snprintf(sentence, bytes, "rank %d on host %s has died", rank,
                 symm__host_of_rank(ctx, rank));
        return SYMM_ERR_PEER_DEAD;
    }
    return SYMM_OK;
}

bool symm__far_ended(const symm_ctx *ctx, int rank, bool finalized, symm_status *status,
                     const char **why)
{
    const enum symm_relay_state state = symm__relay_state(ctx->oob.relay, rank);

    *status = SYMM_ERR_PEER_DEAD;
    *why = finalized ? "has finalized its context" : "has died";
    return state == (finalized ? SYMM_RELAY_FINALIZED : SYMM_RELAY_DIED);
}

/* The team's failure as this host knows it: its state, else that of its local team. */
static symm_status poll_near(symm_team *team)
{
    if (!team->far || symm__team_failed(team) != SYMM_OK)
        return symm__team_failed(team);
    if (team->hierarchy && team->hierarchy->local_team &&
        symm__team_failed(team->hierarchy->local_team) != SYMM_OK)
        return symm__team_fail(team, (symm_status)team->hierarchy->local_team->failed,
                               "%s", team->hierarchy->local_team->failure);
    return SYMM_OK;
}

/* look_far, if it is due. With the context locked. */
static symm_status look_due(symm_team *team, char *sentence, size_t bytes)
{
    symm_status status;

    if (symm__now() - team->looked < LOOK_SECONDS)
        return SYMM_OK;
    status = look_far(team, sentence, bytes);
    team->looked = symm__now();
    return status;
}

symm_status symm__far_poll(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    char sentence[SYMM_ERROR_BYTES];
    symm_status status = poll_near(team);

    if (!team->far || status != SYMM_OK)
        return status;
    /* An exchange that runs meanwhile polls other hosts itself. */
    if (pthread_mutex_trylock(&ctx->lock) != 0)
        return SYMM_OK;
    status = look_due(team, sentence, sizeof(sentence));
    pthread_mutex_unlock(&ctx->lock);
    return status == SYMM_OK ? SYMM_OK : symm__team_fail(team, status, "%s", sentence);
}

symm_status symm__team_poll(symm_team *team)
{
    symm_status status = symm__far_poll(team);

    for (int p = 0; p < team->local_size && status == SYMM_OK; p++)
        if (p != team->local_rank)
            status = symm__team_record_of(team, team->local[p]);
    return status;
}

symm_status symm__far_poll_locked(symm_team *team)
{
    char sentence[SYMM_ERROR_BYTES];
    symm_status status = poll_near(team);

    if (!team->far || status != SYMM_OK)
        return status;
    status = look_due(team, sentence, sizeof(sentence));
    return status == SYMM_OK ? SYMM_OK : symm__team_fail(team, status, "%s", sentence);
}
