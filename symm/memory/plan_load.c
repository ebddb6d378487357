/* SPDX-License-Identifier: MIT */
/*
 * plan_load.c - reads a plan for a team, checks all that can be checked without its program,
 * and reserves its arena.
 *
 * Guarantees: a plan that is refused leaves the team as it was. Refuses: a file that is no
 * symm-plan/2 or whose run_hash is not that of its content; a plan for another number of
 * ranks; buffers that reach beyond the arena, or come one after the other in some bytes and
 * do not list each other; names and ids that occur twice; a team that has a plan, or has
 * placed one of its ids. The proof is not read: symm-plan check, which has the program,
 * proves a plan where it is made.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/segments.h"
#include "memory/team_plan.h"
#include "util/options.h"
#include "util/status.h"

/* ---- The order in which things are found ---------------------------------------------- */

static int compare_sites(const void *left, const void *right)
{
    const struct symm_plan_site *a = left, *b = right;

    return strcmp(a->op->site, b->op->site);
}

static int compare_ids(const void *left, const void *right)
{
    const symm_plan_buffer *a = *(const symm_plan_buffer *const *)left;
    const symm_plan_buffer *b = *(const symm_plan_buffer *const *)right;

    return a->alloc_id < b->alloc_id ? -1 : a->alloc_id > b->alloc_id;
}

static symm_status nomem(const struct symm_team_plan *plan)
{
    return symm__fail(SYMM_ERR_NOMEM, "plan '%s': no memory for its tables",
                      plan->path);
}

static const symm_plan_buffer **list_ids(const symm_plan *plan)
{
    const symm_plan_buffer **list =
        calloc((size_t)plan->buffer_count + 1, sizeof(*list));

    for (int b = 0; list && b < plan->buffer_count; b++)
        list[b] = &plan->buffers[b];
    if (list)
        qsort(list, (size_t)plan->buffer_count, sizeof(*list), compare_ids);
    return list;
}

/* ---- Checks --------------------------------------------------------------------------- */

static symm_status check_hash(struct symm_team_plan *plan)
{
    symm_status status = symm_plan_run_hash(plan->plan, &plan->hash);

    if (status != SYMM_OK || !plan->plan->has_run_hash ||
        plan->plan->run_hash == plan->hash)
        return status;
    return symm__fail(SYMM_ERR_INVALID,
                      "%s: run_hash: found %016" PRIx64 ", allowed: %016" PRIx64
                      ", the hash of what ranks load of the file; it was changed after "
                      "it was made: make it again by symm-plan plan",
                      plan->path, plan->plan->run_hash, plan->hash);
}

static symm_status check_buffer(const struct symm_team_plan *plan, int index)
{
    const symm_plan_buffer *buffer = &plan->plan->buffers[index];

    if (buffer->offset % SYMM_PLAN_ALIGNMENT != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: buffers[%d].offset: found %zu of buffer '%s', allowed: "
                          "multiples of %d",
                          plan->path, index, buffer->offset, buffer->name,
                          SYMM_PLAN_ALIGNMENT);
    if (buffer->offset > plan->plan->arena_bytes ||
        buffer->bytes > plan->plan->arena_bytes - buffer->offset)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: buffers[%d]: found %zu bytes at offset %zu for buffer "
                          "'%s', allowed: within the %zu bytes of arena_bytes",
                          plan->path, index, buffer->bytes, buffer->offset,
                          buffer->name, plan->plan->arena_bytes);
    return SYMM_OK;
}

/* plan->ids is sorted. */
static symm_status check_buffers(const struct symm_team_plan *plan)
{
    symm_status status = SYMM_OK;

    for (int b = 0; b < plan->plan->buffer_count && status == SYMM_OK; b++) {
        status = check_buffer(plan, b);
        if (status == SYMM_OK && b > 0 &&
            plan->ids[b]->alloc_id == plan->ids[b - 1]->alloc_id)
            status = symm__fail(SYMM_ERR_INVALID,
                                "%s: buffers: found alloc_id %" PRIu64
                                " for '%s' and for '%s', allowed: each once",
                                plan->path, plan->ids[b]->alloc_id,
                                plan->ids[b - 1]->name, plan->ids[b]->name);
    }
    return status;
}

/* plan->sites is sorted. */
static symm_status check_ops(const struct symm_team_plan *plan)
{
    for (int i = 0; i < plan->plan->op_count; i++) {
        if (plan->plan->ops[i].channel >= SYMM_PROGRAM_MAX_STREAMS)
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: ops[%d].channel: found %d, allowed: 0 to %d",
                              plan->path, i, plan->plan->ops[i].channel,
                              SYMM_PROGRAM_MAX_STREAMS - 1);
        if (i > 0 && strcmp(plan->sites[i].op->site, plan->sites[i - 1].op->site) == 0)
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: ops: found the site '%s' twice, allowed: each once",
                              plan->path, plan->sites[i].op->site);
    }
    return SYMM_OK;
}

/* ---- Buffers that share bytes --------------------------------------------------------- */

static symm_status check_shared(const struct symm_team_plan *plan)
{
    const symm_plan_buffer *buffers = plan->plan->buffers;
    int a, b;
    symm_status status = symm_plan_find_unlisted(plan->plan, &a, &b);

    if (status != SYMM_OK || a < 0)
        return status;
    return symm__fail(
        SYMM_ERR_INVALID,
        "%s: buffers '%s' and '%s' share bytes from offset %zu on, and "
        "buffers[%d].after does not list the other: nothing keeps them "
        "apart in time; make the plan again by symm-plan plan",
        plan->path, buffers[a < b ? a : b].name, buffers[a < b ? b : a].name,
        buffers[a].offset > buffers[b].offset ? buffers[a].offset : buffers[b].offset,
        b);
}

/* ---- Loading -------------------------------------------------------------------------- */

static void plan_free(struct symm_team_plan *plan)
{
    if (!plan)
        return;
    pthread_mutex_destroy(&plan->lock);
    symm_plan_destroy(plan->plan);
    free(plan->sites);
    free(plan->ids);
    free(plan->path);
    free(plan);
}

static void use_plan(symm_team *team, struct symm_team_plan *plan)
{
    team->plan = plan;
    team->plan_end = plan ? plan->arena + plan->plan->arena_bytes : 0;
}

void symm__plan_close(symm_team *team)
{
    plan_free(team->plan);
    use_plan(team, NULL);
}

/* Lists sites by name and, for each channel, the cyclic order of its ops. */
static bool list_sites(struct symm_team_plan *plan)
{
    const int count = plan->plan->op_count;
    int last[SYMM_PROGRAM_MAX_STREAMS];
    struct symm_plan_site *sites = calloc((size_t)count + 1, sizeof(*sites));

    plan->sites = sites;
    if (!sites)
        return false;
    for (int c = 0; c < SYMM_PROGRAM_MAX_STREAMS; c++)
        last[c] = plan->turn[c] = -1;
    for (int i = 0; i < count; i++) {
        const symm_plan_op *op = &plan->plan->ops[i];
        int c = op->channel < SYMM_PROGRAM_MAX_STREAMS ? op->channel : 0;

        sites[i] = (struct symm_plan_site){.plan = plan, .op = op, .index = i};
        if (last[c] < 0)
            plan->turn[c] = i;
        else
            sites[last[c]].next = i;
        sites[i].next = plan->turn[c];
        last[c] = i;
    }
    qsort(sites, (size_t)count, sizeof(*sites), compare_sites);
    return true;
}

static symm_status read_check(bool *checks)
{
    const char *value = symm__option(SYMM_OPTION_CHECK);

    *checks = value != NULL;
    if (!value || strcmp(value, "plan") == 0)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID, "SYMM_CHECK='%.40s%s': must be plan", value,
                      strlen(value) > 40 ? "..." : "");
}

/* Copies what ranks need of a caller's plan. The copy goes by the plan's text, so it equals a
 * plan read from a file. */
static symm_status copy_plan(const symm_plan *plan, const char *name, symm_plan **copy)
{
    symm_plan run = *plan;
    char *text;
    size_t length;
    symm_status status;

    run.has_plan_hash = false;
    run.antichain_count = run.chain_count = 0;
    run.certificate_count = 0;
    status = symm_plan_format(&run, &text, &length);
    if (status != SYMM_OK)
        return status;
    status = symm_plan_parse(text, length, name, copy);
    symm_text_free(text);
    return status;
}

/* Reads (from `path`, or if `given` copies that) and checks; *made: new, also on error. */
static symm_status plan_read(symm_team *team, const char *path, const symm_plan *given,
                             struct symm_team_plan **made)
{
    struct symm_team_plan *plan = calloc(1, sizeof(*plan));
    symm_status status;

    *made = plan;
    if (!plan)
        return symm__fail(SYMM_ERR_NOMEM, "plan '%s': no memory for it", path);
    pthread_mutex_init(&plan->lock, NULL);
    plan->team = team;
    plan->path = strdup(path);
    if (!plan->path)
        return symm__fail(SYMM_ERR_NOMEM, "plan '%s': no memory for its name", path);
    status = read_check(&plan->checks);
    if (status == SYMM_OK)
        status = given ? copy_plan(given, path, &plan->plan)
                       : symm_plan_read_run(path, &plan->plan);
    if (status != SYMM_OK)
        return status;
    if (plan->plan->world != team->size)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s: world: found %d, allowed: %d, the ranks of the team that "
            "loads it; the plan of '%s' is for another job",
            path, plan->plan->world, team->size, plan->plan->program);
    status = check_hash(plan);
    if (status != SYMM_OK)
        return status;
    plan->ids = list_ids(plan->plan);
    if (!plan->ids || !list_sites(plan))
        return nomem(plan);
    status = check_buffers(plan);
    if (status == SYMM_OK)
        status = check_ops(plan);
    return status == SYMM_OK ? check_shared(plan) : status;
}

static symm_status reserve_arena(symm_team *team, struct symm_team_plan *plan)
{
    char sentence[SYMM_ERROR_BYTES];
    symm_status status =
        symm__heap_alloc(&team->heap, plan->plan->arena_bytes, 0, &plan->arena);

    if (status == SYMM_OK) {
        status = symm__memory_grow(team, symm__heap_top(&team->heap));
        if (status != SYMM_OK)
            symm__heap_discard(&team->heap, plan->arena);
    }
    if (status == SYMM_OK) {
        use_plan(team, plan);
        return SYMM_OK;
    }
    snprintf(sentence, sizeof(sentence), "plan '%s': its arena of %zu bytes: %s",
             plan->path, plan->plan->arena_bytes, symm_last_error());
    return symm__fail_quiet(status, sentence);
}

/* Has the team placed buffers under ids of `plan`, or in the arena of the one it has? */
static symm_status check_placed(const symm_team *team,
                                const struct symm_team_plan *plan)
{
    for (size_t i = 0; i < team->buffer_count; i++) {
        const symm_plan_buffer key = {.alloc_id = team->buffers[i]->alloc_id};
        const symm_plan_buffer *wanted = &key;

        if (!team->buffers[i]->planned &&
            !bsearch(&wanted, plan->ids, (size_t)plan->plan->buffer_count,
                     sizeof(*plan->ids), compare_ids))
            continue;
        return symm__fail(SYMM_ERR_IN_USE,
                          "plan '%s': alloc_id %" PRIu64
                          " was placed before the plan was loaded; load it first, or "
                          "free that by symm_alloc_id_free",
                          plan->path, key.alloc_id);
    }
    return SYMM_OK;
}

/* With the context locked. A plan that no rendezvous has covered can be replaced. */
static symm_status plan_place(symm_team *team, struct symm_team_plan *plan)
{
    struct symm_team_plan *old = team->plan;
    symm_status status;

    if (old && old->agreed)
        return symm__fail(SYMM_ERR_IN_USE,
                          "plan '%s': the team has plan '%s' for as long as it lives; "
                          "split a team for another one",
                          plan->path, old->path);
    status = check_placed(team, plan);
    if (status != SYMM_OK)
        return status;
    if (old)
        symm__heap_discard(&team->heap, old->arena);
    status = reserve_arena(team, plan);
    if (status == SYMM_OK)
        plan_free(old);
    else if (old && symm__heap_alloc(&team->heap, old->plan->arena_bytes, 0,
                                     &old->arena) != SYMM_OK)
        symm__plan_close(team); /* cannot happen: its hole was there a moment ago */
    else if (old)
        use_plan(team, old);
    return status;
}

const symm_plan_buffer *symm__plan_buffer(const symm_team *team, uint64_t alloc_id)
{
    const symm_plan_buffer key = {.alloc_id = alloc_id};
    const symm_plan_buffer *wanted = &key, **found = NULL;

    if (team->plan && alloc_id)
        found =
            bsearch(&wanted, team->plan->ids, (size_t)team->plan->plan->buffer_count,
                    sizeof(*team->plan->ids), compare_ids);
    return found ? *found : NULL;
}

static symm_status load(const char *what, symm_team *team, const char *path,
                        const symm_plan *given)
{
    struct symm_team_plan *plan;
    symm_status status;

    if (team->far)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%s: the team's ranks are on several hosts; load plans for "
                          "teams of one host's ranks",
                          what);
    status = plan_read(team, path, given, &plan);
    if (status == SYMM_OK) {
        pthread_mutex_lock(&team->ctx->lock);
        status = plan_place(team, plan);
        if (status == SYMM_OK) /* release: pairs with the acquires in plan_site.c */
            __atomic_store_n(&team->ctx->planned, true, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&team->ctx->lock);
    }
    if (status != SYMM_OK)
        plan_free(plan);
    return status;
}

symm_status symm__plan_load(symm_team *team, const char *path)
{
    symm_status status = symm__option_file(path);

    return status == SYMM_OK ? load("SYMM_PLAN", team, path, NULL) : status;
}

symm_status symm_team_load_plan(symm_team *team, const symm_plan *plan)
{
    symm_status status = symm__team_check(team);
    char name[128];

    if (status != SYMM_OK)
        return status;
    if (!plan || plan->size != sizeof(*plan))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_team_load_plan: plan is %s; give one that "
                          "symm_plan_make, symm_plan_read or symm_plan_parse returned",
                          plan ? "of another size" : "NULL");
    snprintf(name, sizeof(name), "plan of %.100s", plan->program);
    return load("symm_team_load_plan", team, plan->source ? plan->source : name, plan);
}
