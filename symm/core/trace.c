/* SPDX-License-Identifier: MIT */
/*
 * trace.c - hooks that report new and freed segments, and the heap as a file.
 */
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

#include "core/team.h"
#include "util/status.h"

static void *segment_address(const symm_team *team, const struct symm_segment *segment)
{
    const symm_ctx *ctx = team->ctx;

    return symm__heap_base(ctx, ctx->rank) + segment->offset;
}

void symm__trace_segment(symm_ctx *ctx, symm_trace_event event, void *ptr, size_t bytes)
{
    for (size_t i = 0; i < ctx->hook_count; i++)
        ctx->hooks[i].fn(ctx->hooks[i].arg, event, ptr, bytes);
}

static void show_snapshot(const symm_ctx *ctx, symm_trace_fn fn, void *arg)
{
    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        const symm_team *team = ctx->teams[s];

        for (size_t i = 0; team && i < team->segment_count; i++)
            fn(arg, SYMM_TRACE_ALLOC, segment_address(team, &team->segments[i]),
               team->segments[i].bytes);
    }
}

symm_status symm__trace_attach(symm_ctx *ctx, symm_trace_fn fn, void *arg, int *id)
{
    struct symm_hook *grown =
        realloc(ctx->hooks, (ctx->hook_count + 1) * sizeof(*grown));

    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a trace hook");
    ctx->hooks = grown;
    grown[ctx->hook_count++] =
        (struct symm_hook){.id = ++ctx->hook_next, .fn = fn, .arg = arg};
    show_snapshot(ctx, fn, arg);
    *id = ctx->hook_next;
    return SYMM_OK;
}

void symm__trace_detach(symm_ctx *ctx, int id)
{
    for (size_t i = 0; i < ctx->hook_count; i++)
        if (ctx->hooks[i].id == id) {
            memmove(&ctx->hooks[i], &ctx->hooks[i + 1],
                    (ctx->hook_count - i - 1) * sizeof(*ctx->hooks));
            ctx->hook_count--;
            break;
        }
}

symm_status symm_trace_attach(symm_ctx *ctx, symm_trace_fn fn, void *arg, int *id)
{
    symm_status status = symm__ctx_check(ctx);

    if (status != SYMM_OK)
        return status;
    if (!fn || !id)
        return symm__fail(SYMM_ERR_INVALID, "symm_trace_attach: %s is NULL",
                          fn ? "id" : "fn");
    pthread_mutex_lock(&ctx->lock);
    status = symm__trace_attach(ctx, fn, arg, id);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

void symm_trace_detach(symm_ctx *ctx, int id)
{
    if (symm__ctx_check(ctx) != SYMM_OK)
        return;
    pthread_mutex_lock(&ctx->lock);
    symm__trace_detach(ctx, id);
    pthread_mutex_unlock(&ctx->lock);
}

/* The team's blocks that begin in this segment. */
static void segment_view(const symm_team *team, const struct symm_segment *segment,
                         const char *name, struct symm_heap_segment *view)
{
    const struct symm_heap *heap = &team->heap;
    size_t first = 0, end = segment->offset + segment->bytes;

    while (first < heap->count && heap->blocks[first].offset < segment->offset)
        first++;
    *view = (struct symm_heap_segment){
        .address = (uint64_t)(uintptr_t)segment_address(team, segment),
        .bytes = segment->bytes,
        .team = name,
        .blocks = heap->blocks + first,
        .offset = segment->offset,
    };
    while (first + view->count < heap->count &&
           heap->blocks[first + view->count].offset < end)
        view->count++;
}

/* With the context locked. */
static symm_status dump(symm_ctx *ctx, int fd, const char *format)
{
    struct symm_heap_segment *views;
    char(*names)[64];
    size_t count = 0, at = 0;
    symm_status status;

    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        count += ctx->teams[s] ? ctx->teams[s]->segment_count : 0;
    views = calloc(count + 1, sizeof(*views));
    names = calloc(SYMM_MAX_TEAMS, sizeof(*names));
    if (!views || !names) {
        status =
            symm__fail(SYMM_ERR_NOMEM, "no memory for a walk of %zu segments", count);
        goto err_arrays;
    }
    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        const symm_team *team = ctx->teams[s];

        if (!team)
            continue;
        symm__team_name(team, names[s], sizeof(names[s]));
        for (size_t i = 0; i < team->segment_count; i++)
            segment_view(team, &team->segments[i], names[s], &views[at++]);
    }
    status = symm__heap_write(fd, format, ctx->rank, views, count);

err_arrays:
    free(names);
    free(views);
    return status;
}

symm_status symm_heap_write(symm_ctx *ctx, int fd, const char *format)
{
    symm_status status = symm__ctx_check(ctx);

    if (status != SYMM_OK)
        return status;
    if (!format)
        return symm__fail_null("symm_heap_write", "format");
    pthread_mutex_lock(&ctx->lock);
    status = dump(ctx, fd, format);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}
