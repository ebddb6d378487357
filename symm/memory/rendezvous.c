/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.c - compares all ranks' buffers; if they agree, every rank maps every rank's.
 *
 * Each rank sends a digest of its manifest beside its new segments. The manifest has its live
 * buffers in order of offset, and of the registered ones those that are new. Equal digests:
 * segments are mapped, freed bytes may be reused. Different digests: the manifests themselves are
 * exchanged and every rank names the same first differing entry and the rank that differs from
 * most. Nothing changes then: the ranks may free the wrong buffers and make the call again. A
 * loaded plan is an entry, too, with its hash: it is in force from the first rendezvous that finds
 * it on all ranks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "core/failure.h"
#include "core/registered.h"
#include "core/segments.h"
#include "engine/runtime.h"
#include "memory/rendezvous.h"
#include "memory/team_plan.h"
#include "util/hash.h"
#include "util/status.h"

/* Between digests_agree and rendezvous only: no public status, since the manifests will give the
 * reason. */
#define DIFFERENT ((symm_status)1)

#define PLAN_DTYPE (-1) /* of an entry that is a plan's arena; its alloc_id: the hash */

/* One buffer as ranks compare it. */
struct wire_entry {
    uint64_t alloc_id, offset, bytes;
    int32_t dtype, ndim;
    int64_t shape[16], stride[16];
};

struct manifest {
    struct wire_entry *entries; /* owned */
    size_t count;
    uint64_t digest;
};

static int entry_compare(const void *left, const void *right)
{
    const struct wire_entry *a = left, *b = right;

    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->dtype != b->dtype && (a->dtype == PLAN_DTYPE || b->dtype == PLAN_DTYPE))
        return a->dtype == PLAN_DTYPE ? -1 : 1;
    return a->alloc_id < b->alloc_id ? -1 : a->alloc_id > b->alloc_id;
}

static symm_status manifest_make(const symm_team *team, struct manifest *manifest)
{
    size_t registered = 0;

    manifest->entries = calloc(team->buffer_count + 2, sizeof(*manifest->entries));
    if (!manifest->entries)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a manifest of %zu buffers",
                          team->buffer_count);
    for (size_t i = 0; i < team->buffer_count; i++) {
        const symm_buffer *b = team->buffers[i];
        struct wire_entry *entry = &manifest->entries[manifest->count];

        if (b->registration && !symm__registered_is_new(b))
            continue;
        manifest->count++;
        entry->alloc_id = b->alloc_id;
        entry->offset = b->registration ? SYMM_REGISTERED + registered++ : b->offset;
        entry->bytes = b->bytes;
        entry->dtype = (int32_t)b->dtype;
        entry->ndim = b->ndim;
        memcpy(entry->shape, b->shape, sizeof(entry->shape));
        memcpy(entry->stride, b->stride, sizeof(entry->stride));
    }
    if (team->plan)
        manifest->entries[manifest->count++] =
            (struct wire_entry){.alloc_id = team->plan->hash,
                                .offset = team->plan->arena,
                                .bytes = team->plan->plan->arena_bytes,
                                .dtype = PLAN_DTYPE};
    qsort(manifest->entries, manifest->count, sizeof(*manifest->entries),
          entry_compare);
    manifest->digest = symm__fnv(SYMM_FNV_BASIS, manifest->entries,
                                 manifest->count * sizeof(*manifest->entries));
    return SYMM_OK;
}

static symm_status digests_agree(symm_team *team, const uint64_t *digests)
{
    for (int m = 1; m < team->size; m++)
        if (digests[m] != digests[0])
            return DIFFERENT;
    return SYMM_OK;
}

/* Entry `index` of a member, or NULL after its last. */
static const struct wire_entry *entry_at(const struct symm_oob_message *message,
                                         size_t index)
{
    if ((index + 1) * sizeof(struct wire_entry) > message->bytes_count)
        return NULL;
    return (const struct wire_entry *)message->bytes + index;
}

static bool entry_equal(const struct wire_entry *a, const struct wire_entry *b)
{
    return a == b || (a && b && memcmp(a, b, sizeof(*a)) == 0);
}

static const char *entry_text(const struct wire_entry *entry, char *text, size_t bytes)
{
    const char *dtype = entry ? symm_dtype_name((symm_dtype)entry->dtype) : NULL;
    size_t used;

    if (!entry) {
        snprintf(text, bytes, "nothing");
        return text;
    }
    if (entry->dtype == PLAN_DTYPE) {
        snprintf(text, bytes,
                 "the arena of %" PRIu64 " bytes of plan %016" PRIx64
                 " at offset %" PRIu64,
                 entry->bytes, entry->alloc_id, entry->offset);
        return text;
    }
    if (entry->offset >= SYMM_REGISTERED) {
        snprintf(text, bytes, "registration %" PRIu64 " of %" PRIu64 " bytes",
                 entry->offset - SYMM_REGISTERED, entry->bytes);
        return text;
    }
    used = (size_t)snprintf(
        text, bytes,
        "alloc_id %" PRIu64 " of %" PRIu64 " bytes at offset %" PRIu64 " (%s [",
        entry->alloc_id, entry->bytes, entry->offset, dtype ? dtype : "?");
    for (int d = 0; d < entry->ndim && d < 16 && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, d ? "," : "",
                                 entry->shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "])");
    return text;
}

#define KINDS 64 /* different entries that are counted, plans that are distinguished */

/* The member whose entry most others share; at a tie the lower rank's counts. Entries that
 * first come after KINDS different ones do not count. */
static int most_common(const struct symm_oob_message *messages, int size, size_t index)
{
    struct {
        int first, count;
    } kind[KINDS];
    int kinds = 0, best = 0;

    for (int m = 0; m < size; m++) {
        int k = 0;

        while (k < kinds && !entry_equal(entry_at(&messages[kind[k].first], index),
                                         entry_at(&messages[m], index)))
            k++;
        if (k == KINDS)
            continue;
        if (k == kinds) {
            kind[kinds].first = m;
            kind[kinds++].count = 0;
        }
        kind[k].count++;
    }
    for (int k = 1; k < kinds; k++)
        if (kind[k].count > kind[best].count)
            best = k;
    return kind[best].first;
}

/* Whether any two members' entries differ. */
static bool differs(const struct symm_oob_message *messages, int size, size_t index)
{
    for (int m = 1; m < size; m++)
        if (!entry_equal(entry_at(&messages[0], index), entry_at(&messages[m], index)))
            return true;
    return false;
}

/* ---- Plans ---------------------------------------------------------------------------- */

/* The member's plan, or NULL. */
static const struct wire_entry *plan_of(const struct symm_oob_message *message)
{
    const struct wire_entry *entry;

    for (size_t i = 0; (entry = entry_at(message, i)); i++)
        if (entry->dtype == PLAN_DTYPE)
            return entry;
    return NULL;
}

static bool plans_equal(const struct symm_oob_message *a,
                        const struct symm_oob_message *b)
{
    const struct wire_entry *x = plan_of(a), *y = plan_of(b);

    return x && y ? x->alloc_id == y->alloc_id : x == y;
}

/* One plan and the ranks that have it: ", rank 1 has none". */
static size_t plan_text(const symm_team *team, const struct symm_oob_message *messages,
                        int first, char *text, size_t bytes)
{
    const struct wire_entry *plan = plan_of(&messages[first]);
    size_t used = 0, count = 0, more = 0;
    char ranks[160] = "";

    for (int m = first; m < team->size; m++) {
        if (!plans_equal(&messages[first], &messages[m]))
            continue;
        count++;
        if (used + 16 < sizeof(ranks))
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " %d",
                                     team->world_rank[m]);
        else
            more++;
    }
    if (more > 0)
        snprintf(ranks + used, sizeof(ranks) - used, " ...");
    used = (size_t)snprintf(text, bytes, "rank%s%s %s ", count > 1 ? "s" : "", ranks,
                            count > 1 ? "have" : "has");
    if (used >= bytes)
        return used;
    if (!plan)
        return used + (size_t)snprintf(text + used, bytes - used, "none");
    return used + (size_t)snprintf(text + used, bytes - used, "plan %016" PRIx64,
                                   plan->alloc_id);
}

/* "ranks 0 2 have plan 0123456789abcdef, rank 1 has none"; as many plans as fit. */
static void plans_text(const symm_team *team, const struct symm_oob_message *messages,
                       char *text, size_t bytes)
{
    int first[KINDS], kinds = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int m = 0; m < team->size && kinds < KINDS; m++) {
        size_t length;
        int k = 0;

        while (k < kinds && !plans_equal(&messages[first[k]], &messages[m]))
            k++;
        if (k < kinds)
            continue;
        first[kinds++] = m;
        if (used > 0 && used + 2 < bytes)
            used += (size_t)snprintf(text + used, bytes - used, ", ");
        length = plan_text(team, messages, m, text + used, bytes - used);
        if (length >= bytes - used)
            return; /* cut */
        used += length;
    }
}

/* SYMM_OK: the ranks have the same plan, or none. */
static symm_status name_plans(const symm_team *team,
                              const struct symm_oob_message *messages)
{
    char text[SYMM_ERROR_BYTES - 192], name[64];
    bool equal = true;

    for (int m = 1; m < team->size; m++)
        equal = equal && plans_equal(&messages[0], &messages[m]);
    if (equal)
        return SYMM_OK;
    plans_text(team, messages, text, sizeof(text));
    return symm__fail(
        SYMM_ERR_MISMATCH,
        "rendezvous of %s: the ranks have loaded different plans: %s; load "
        "the same one on every rank (symm_team_load_plan) and come again",
        symm__team_name(team, name, sizeof(name)), text);
}

static symm_status name_difference(const symm_team *team,
                                   const struct symm_oob_message *messages)
{
    size_t most = 0;
    char theirs[160], usual[160], name[64];

    for (int m = 0; m < team->size; m++)
        if (messages[m].bytes_count > most)
            most = messages[m].bytes_count;
    for (size_t index = 0; index < most / sizeof(struct wire_entry); index++) {
        int norm;

        if (!differs(messages, team->size, index))
            continue;
        norm = most_common(messages, team->size, index);
        for (int m = 0; m < team->size; m++) {
            if (entry_equal(entry_at(&messages[m], index),
                            entry_at(&messages[norm], index)))
                continue;
            return symm__fail(
                SYMM_ERR_MISMATCH,
                "rendezvous of %s: entry %zu differs: rank %d has %s, rank %d has %s; "
                "make the same allocations and frees in the same order on all ranks",
                symm__team_name(team, name, sizeof(name)), index, team->world_rank[m],
                entry_text(entry_at(&messages[m], index), theirs, sizeof(theirs)),
                team->world_rank[norm],
                entry_text(entry_at(&messages[norm], index), usual, sizeof(usual)));
        }
    }
    return symm__fail(
        SYMM_ERR_MISMATCH,
        "rendezvous of %s: digests differ but no entry does; a rank sent a "
        "damaged digest",
        symm__team_name(team, name, sizeof(name)));
}

/* Collective, after digests were found to differ on all ranks. */
static symm_status explain_mismatch(symm_team *team, const struct manifest *manifest)
{
    struct symm_oob_message *messages = team->ctx->room.messages;
    symm_status status = symm__team_exchange(
        team, "rendezvous: comparing manifests", team->ctx->timeout,
        &(struct symm_own_message){.bytes = manifest->entries,
                                   .bytes_count =
                                       manifest->count * sizeof(*manifest->entries)},
        messages);

    if (status == SYMM_OK)
        status = name_plans(team, messages);
    if (status == SYMM_OK)
        status = name_difference(team, messages);
    symm__oob_messages_finish(messages, team->size);
    return status;
}

/* With the context locked. */
static symm_status rendezvous(symm_team *team)
{
    struct manifest manifest = {0};
    symm_status status = symm__team_failed(team);

    if (status != SYMM_OK)
        return status;
    status = manifest_make(team, &manifest);
    status = symm__memory_share(team, "rendezvous", team->ctx->timeout, status,
                                manifest.digest, digests_agree);
    if (status == DIFFERENT)
        status = explain_mismatch(team, &manifest);
    free(manifest.entries);
    if (status != SYMM_OK)
        return status;
    symm__heap_commit(&team->heap);
    for (size_t i = 0; i < team->buffer_count; i++)
        team->buffers[i]->shared = true;
    if (team->plan) /* release: pairs with the acquire in symm__plan_find */
        __atomic_store_n(&team->plan->agreed, true, __ATOMIC_RELEASE);
    __atomic_fetch_add(&team->ctx->generation, 1, __ATOMIC_RELAXED);
    return SYMM_OK;
}

/*
 * A rank did not take part, and the team has failed. The best reason is in a member's record, the
 * next best is a process that has died: a peer that hung up may have ended because of that death.
 */
symm_status symm__rendezvous_failed(symm_team *team, const char *what,
                                    symm_status status)
{
    symm_ctx *ctx = team->ctx;
    char sentence[SYMM_ERROR_BYTES], name[64];
    const char *why;

    symm__error_save(sentence);
    for (int m = 0; m < team->size; m++)
        if (m != team->rank && symm__team_record_of(team, m) != SYMM_OK)
            return symm__team_failed(team);
    if (symm__far_poll(team) != SYMM_OK)
        return symm__team_failed(team);
    for (int m = 0; m < team->size; m++) {
        int rank = team->world_rank[m];

        if (m != team->rank && !symm__is_far(ctx, rank) &&
            symm__rank_died(ctx, rank, &why) == SYMM_ERR_PEER_DEAD)
            return symm__team_fail(team, SYMM_ERR_PEER_DEAD,
                                   "rank %d %s before %s of %s was complete", rank, why,
                                   what, symm__team_name(team, name, sizeof(name)));
    }
    return symm__team_fail(team, status, "%s", sentence);
}

symm_status symm_rendezvous(symm_team *team)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    symm__registered_settle(team);
    pthread_mutex_lock(&team->ctx->lock);
    team->ctx->in_rendezvous = team;
    status = rendezvous(team);
    if (status == SYMM_OK)
        status = symm__engine_windows(team);
    team->ctx->in_rendezvous = NULL;
    pthread_mutex_unlock(&team->ctx->lock);
    if (status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_PEER_DEAD)
        return symm__rendezvous_failed(team, "a rendezvous", status);
    return status;
}
