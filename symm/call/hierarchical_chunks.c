/* SPDX-License-Identifier: MIT */
/*
 * hierarchical_chunks.c - see hierarchical_chunks.h.
 *
 * A chunk has up to three stages: `before` on this host, `between` hosts, `after` on this host. Of
 * chunk i, with C the channel's stream and S its side stream:
 *
 *   C   before(i)   mark   . . . . . . . . .   await (i - 1)   after(i - 1)   before(i + 1) ...
 *   S   . . . . . . await  between(i)  mark i
 *
 * So between(i) comes after before(i) and after(i - 2), and before(i + 2) after between(i), also
 * where one of them is empty. Two rooms of the workspace in turn are enough for what crosses from
 * one stream to the other: all_gather's between(i) fills the room that after(i - 2) has read,
 * reduce_scatter's before(i + 2) fills the one that between(i) has read. What only C uses needs one
 * room. A call begins after all of the one before: its last chunk was awaited on C, and S awaits C
 * before each step.
 */
#include "call/hierarchical_chunks.h"

#include "call/workspace.h"
#include "core/device_ops.h"
#include "select/chunks.h"
#include "util/status.h"

/* Marks of a channel's side stream: 0 and 1 are for the engine's steps in turn. */
#define MARK_HOST 2

/* A chunk: its first element and how many it has, of the array that is cut. */
struct chunk {
    size_t first, count;
    int turn; /* 0 and 1 in turn: its room, and its mark */
};

struct cut;
typedef symm_status stage_fn(struct cut *cut, const struct chunk *chunk, void *stream);

/* A call that is cut. */
struct cut {
    struct symm_hierarchical_run *run;
    struct symm_chunks sizes;
    size_t count;                       /* elements of the array that is cut */
    stage_fn *before, *between, *after; /* NULL: nothing to do on this rank */
    char *room;                         /* in the workspace */
    size_t longest;                     /* elements of a chunk that the room is for */
};

/* An array of `count` elements on each of `ranks` ranks. */
static void cut_open(struct cut *cut, enum symm_chunks_of what, size_t count,
                     size_t ranks)
{
    const struct symm_hierarchical_run *run = cut->run;
    const struct symm_hierarchy *hierarchy = run->hierarchy;
    struct symm_chunks_limits limits = {0, 0};

    if (run->team->device_ops && symm__engine_fits_beside(run->team->ctx))
        limits =
            symm__chunks_limits(what, run->team->ctx->engine->chunks,
                                (size_t)hierarchy->places, (size_t)hierarchy->hosts);
    cut->count = count;
    cut->sizes = symm__chunks(count, run->element, ranks, limits);
}

static bool is_whole(const struct cut *cut)
{
    return cut->sizes.first >= cut->count;
}

static symm_status stage(struct cut *cut, stage_fn *fn, const struct chunk *chunk,
                         void *stream)
{
    return fn ? fn(cut, chunk, stream) : SYMM_OK;
}

/* ---- The two streams --------------------------------------------------------------- */

/* `stream` goes on after all that `before` has to do now. */
static symm_status order(struct cut *cut, int mark, void *before, void *stream)
{
    struct symm_team_channel *channel = cut->run->channel;
    const struct symm_device_ops *device = cut->run->team->device_ops;
    symm_status status = device->side_mark(channel, mark, before);

    return status == SYMM_OK ? device->side_await(channel, mark, stream) : status;
}

/* The engine's step of a chunk, on the side stream, after all that is on the channel's stream
 * now. *forked: so the channel's stream has to await the side stream, also after an error. */
static symm_status begin_between(struct cut *cut, const struct chunk *chunk, void *side,
                                 bool *forked)
{
    struct symm_team_channel *channel = cut->run->channel;
    symm_status status = order(cut, MARK_HOST, channel->stream, side);

    if (status != SYMM_OK)
        return status;
    *forked = true;
    status = cut->between(cut, chunk, side);
    return status == SYMM_OK
               ? cut->run->team->device_ops->side_mark(channel, chunk->turn, side)
               : status;
}

/* A capture must get its side stream back. Keeps the error's sentence. */
static void join(struct cut *cut, void *side)
{
    char sentence[SYMM_ERROR_BYTES];

    symm__error_save(sentence);
    (void)order(cut, MARK_HOST, side, cut->run->channel->stream);
    symm__error_restore(sentence);
}

/* What follows the engine's step of a chunk. */
static symm_status end_chunk(struct cut *cut, const struct chunk *chunk)
{
    struct symm_team_channel *channel = cut->run->channel;
    symm_status status = SYMM_OK;

    if (cut->between)
        status = cut->run->team->device_ops->side_await(channel, chunk->turn,
                                                        channel->stream);
    return status == SYMM_OK ? stage(cut, cut->after, chunk, channel->stream) : status;
}

/* While the engine moves a chunk, the kernels begin the next one and end the one before. */
static symm_status run_chunks(struct cut *cut)
{
    struct symm_team_channel *channel = cut->run->channel;
    struct chunk chunk = {.turn = 0}, last = {.count = 0};
    void *side = NULL;
    bool forked = false;
    symm_status status =
        cut->between ? cut->run->team->device_ops->side(channel, &side) : SYMM_OK;

    if (status != SYMM_OK)
        return status;
    for (; chunk.first < cut->count && status == SYMM_OK; chunk.turn = !chunk.turn) {
        chunk.count = symm__chunk(&cut->sizes, last.count, cut->count - chunk.first);
        status = stage(cut, cut->before, &chunk, channel->stream);
        if (status == SYMM_OK && cut->between)
            status = begin_between(cut, &chunk, side, &forked);
        if (status == SYMM_OK && last.count > 0)
            status = end_chunk(cut, &last);
        last = chunk;
        chunk.first += chunk.count;
    }
    if (status == SYMM_OK)
        status = end_chunk(cut, &last);
    if (status != SYMM_OK && forked)
        join(cut, side);
    return status;
}

static symm_status run_cut(struct cut *cut)
{
    const struct chunk all = {.count = cut->count};
    void *stream = cut->run->channel->stream;
    symm_status status;

    if (!is_whole(cut))
        return run_chunks(cut);
    status = stage(cut, cut->before, &all, stream);
    if (status == SYMM_OK)
        status = stage(cut, cut->between, &all, stream);
    return status == SYMM_OK ? stage(cut, cut->after, &all, stream) : status;
}

/* ---- all_reduce: each rank of the host has its part of a chunk ----------------------- */

static size_t first_byte(const struct cut *cut, const struct chunk *chunk)
{
    return chunk->first * cut->run->element;
}

static char *out_at(const struct cut *cut, const struct chunk *chunk)
{
    return (char *)cut->run->args->out + first_byte(cut, chunk);
}

/* This rank's part of the chunk: in all ranks' parts together, which are contiguous. */
static char *own_part(const struct cut *cut, const struct chunk *chunk)
{
    const struct symm_hierarchy *hierarchy = cut->run->hierarchy;

    return (char *)cut->run->args->out +
           first_byte(cut, chunk) * (size_t)hierarchy->places +
           (size_t)hierarchy->here * chunk->count * cut->run->element;
}

static symm_status sums_scatter(struct cut *cut, const struct chunk *chunk,
                                void *stream)
{
    const size_t at = first_byte(cut, chunk) * (size_t)cut->run->hierarchy->places;

    (void)stream;
    return symm__step_on_host(cut->run, SYMM_KIND_REDUCE_SCATTER,
                              (const char *)cut->run->args->in + at,
                              own_part(cut, chunk), chunk->count, 0);
}

static symm_status sums_between(struct cut *cut, const struct chunk *chunk,
                                void *stream)
{
    char *own = own_part(cut, chunk);

    return symm__step_between(cut->run, SYMM_KIND_ALL_REDUCE, own, own, chunk->count, 0,
                              stream);
}

static symm_status sums_gather(struct cut *cut, const struct chunk *chunk, void *stream)
{
    const size_t at = first_byte(cut, chunk) * (size_t)cut->run->hierarchy->places;

    (void)stream;
    return symm__step_on_host(cut->run, SYMM_KIND_ALL_GATHER, own_part(cut, chunk),
                              (char *)cut->run->args->out + at, chunk->count, 0);
}

symm_status symm__chunked_all_reduce(struct symm_hierarchical_run *run, size_t part)
{
    struct cut cut = {.run = run,
                      .before = sums_scatter,
                      .between = sums_between,
                      .after = sums_gather};

    cut_open(&cut, SYMM_CHUNKS_SUMS, part, (size_t)run->hierarchy->places);
    return run_cut(&cut);
}

/* ---- Blocks of all ranks: chunk c is the same part of each block ---------------------- */

/* Elements of the longest chunk, in whole lines: so both rooms begin alike. */
static size_t longest(const struct cut *cut)
{
    const struct symm_chunks *sizes = &cut->sizes;
    size_t most = 0, before = 0;

    for (size_t left = cut->count; left > 0; left -= before) {
        before = symm__chunk(sizes, before, left);
        most = before > most ? before : most;
    }
    return (most + sizes->line - 1) / sizes->line * sizes->line;
}

/*
 * Cuts a block, of args->count elements, and gets the workspace: a room, or two in turn, with a
 * block's part for each host; after them, of chunks, one room with a part for each rank (rows).
 */
static symm_status blocks_open(struct cut *cut)
{
    const struct symm_hierarchical_run *run = cut->run;
    const size_t hosts = (size_t)run->hierarchy->hosts, ranks = (size_t)run->team->size;
    size_t parts = hosts;
    void *room = NULL;
    symm_status status;

    cut_open(cut, SYMM_CHUNKS_BLOCKS, run->args->count, ranks);
    cut->longest = run->args->count;
    if (!is_whole(cut)) {
        cut->longest = longest(cut);
        parts = 2 * hosts + ranks;
    }
    status =
        symm__workspace_get(run->channel, parts * cut->longest * run->element, &room);
    cut->room = room;
    return status;
}

/* The hosts' parts of a chunk. */
static char *host_parts(const struct cut *cut, const struct chunk *chunk)
{
    const struct symm_hierarchical_run *run = cut->run;

    return cut->room + (size_t)chunk->turn * (size_t)run->hierarchy->hosts *
                           cut->longest * run->element;
}

/* All ranks' parts of a chunk, one after the other; of chunks alone. */
static char *rows(const struct cut *cut)
{
    const struct symm_hierarchical_run *run = cut->run;

    return cut->room + 2 * (size_t)run->hierarchy->hosts * cut->longest * run->element;
}

static symm_status copy(const struct cut *cut, struct symm_rows what)
{
    const struct symm_hierarchical_run *run = cut->run;

    what.count = (size_t)run->team->size;
    return run->team->device_ops->copy_rows(run->team->ctx, run->channel->stream,
                                            &what);
}

/* The chunk of each block of the input, into rows. */
static symm_status rows_take(const struct cut *cut, const struct chunk *chunk)
{
    const struct symm_args *args = cut->run->args;
    const size_t bytes = chunk->count * cut->run->element;

    return copy(
        cut, (struct symm_rows){.to = rows(cut),
                                .to_pitch = bytes,
                                .from = (const char *)args->in + first_byte(cut, chunk),
                                .from_pitch = args->count * cut->run->element,
                                .bytes = bytes});
}

/* The rows, into each block of the output. */
static symm_status rows_give(const struct cut *cut, const struct chunk *chunk)
{
    const struct symm_args *args = cut->run->args;
    const size_t bytes = chunk->count * cut->run->element;

    return copy(cut, (struct symm_rows){.to = out_at(cut, chunk),
                                        .to_pitch = args->count * cut->run->element,
                                        .from = rows(cut),
                                        .from_pitch = bytes,
                                        .bytes = bytes});
}

/* For each host: this rank's part of its blocks, summed on this host. */
static symm_status blocks_scatter(struct cut *cut, const struct chunk *chunk,
                                  void *stream)
{
    const struct symm_hierarchy *hierarchy = cut->run->hierarchy;
    const size_t bytes = chunk->count * cut->run->element;
    const char *from = is_whole(cut) ? cut->run->args->in : rows(cut);
    symm_status status = SYMM_OK;

    (void)stream;
    if (!is_whole(cut))
        status = rows_take(cut, chunk);
    for (int h = 0; status == SYMM_OK && h < hierarchy->hosts; h++)
        status = symm__step_on_host(
            cut->run, SYMM_KIND_REDUCE_SCATTER,
            from + (size_t)h * (size_t)hierarchy->places * bytes,
            host_parts(cut, chunk) + (size_t)h * bytes, chunk->count, 0);
    return status;
}

/* In place, too: before a chunk's output is written, its input has been copied into rows. */
static symm_status blocks_sum(struct cut *cut, const struct chunk *chunk, void *stream)
{
    return symm__step_between(cut->run, SYMM_KIND_REDUCE_SCATTER,
                              host_parts(cut, chunk), out_at(cut, chunk), chunk->count,
                              0, stream);
}

symm_status symm__chunked_reduce_scatter(struct symm_hierarchical_run *run)
{
    struct cut cut = {.run = run, .before = blocks_scatter, .between = blocks_sum};
    symm_status status = blocks_open(&cut);

    return status == SYMM_OK ? run_cut(&cut) : status;
}

/* In place, too: of its own block a rank writes what is there already, and that after the engine
 * has read it. */
static symm_status blocks_collect(struct cut *cut, const struct chunk *chunk,
                                  void *stream)
{
    return symm__step_between(cut->run, SYMM_KIND_ALL_GATHER,
                              (const char *)cut->run->args->in + first_byte(cut, chunk),
                              host_parts(cut, chunk), chunk->count, 0, stream);
}

/* For each host: the parts of its blocks, from the ranks of this host. */
static symm_status blocks_gather(struct cut *cut, const struct chunk *chunk,
                                 void *stream)
{
    const struct symm_hierarchy *hierarchy = cut->run->hierarchy;
    const size_t bytes = chunk->count * cut->run->element;
    char *to = is_whole(cut) ? cut->run->args->out : rows(cut);
    symm_status status = SYMM_OK;

    (void)stream;
    for (int h = 0; status == SYMM_OK && h < hierarchy->hosts; h++)
        status = symm__step_on_host(
            cut->run, SYMM_KIND_ALL_GATHER, host_parts(cut, chunk) + (size_t)h * bytes,
            to + (size_t)h * (size_t)hierarchy->places * bytes, chunk->count, 0);
    if (status == SYMM_OK && !is_whole(cut))
        status = rows_give(cut, chunk);
    return status;
}

symm_status symm__chunked_all_gather(struct symm_hierarchical_run *run)
{
    struct cut cut = {.run = run, .between = blocks_collect, .after = blocks_gather};
    symm_status status = blocks_open(&cut);

    return status == SYMM_OK ? run_cut(&cut) : status;
}

/* ---- broadcast ----------------------------------------------------------------------- */

/* The rail's rank of the member on that host. */
static int rail_rank(const struct symm_hierarchy *hierarchy, int host)
{
    int i = 0;

    if (hierarchy->regular)
        return host;
    while (i + 1 < hierarchy->rail_count &&
           symm__hierarchy_host(hierarchy, hierarchy->rail[i]) != host)
        i++;
    return i;
}

/* The rank of each host that gets the data first. */
static int relay(const struct symm_hierarchical_run *run)
{
    return run->hierarchy->equal
               ? symm__hierarchy_place(run->hierarchy, run->args->root)
               : 0;
}

/* On the root's host. */
static symm_status root_tells(struct cut *cut, const struct chunk *chunk, void *stream)
{
    const struct symm_args *args = cut->run->args;
    const struct symm_hierarchy *hierarchy = cut->run->hierarchy;
    const int local = symm__hierarchy_place(hierarchy, args->root);
    const char *from = hierarchy->here == local ? args->in : args->out;

    (void)stream;
    return symm__step_on_host(cut->run, SYMM_KIND_BROADCAST,
                              from + first_byte(cut, chunk), out_at(cut, chunk),
                              chunk->count, local);
}

/* Among the relays. */
static symm_status hosts_tell(struct cut *cut, const struct chunk *chunk, void *stream)
{
    const struct symm_hierarchy *hierarchy = cut->run->hierarchy;
    const int host = symm__hierarchy_host(hierarchy, cut->run->args->root);
    char *at = out_at(cut, chunk);

    return symm__step_between(cut->run, SYMM_KIND_BROADCAST, at, at, chunk->count,
                              rail_rank(hierarchy, host), stream);
}

/* On the other hosts. */
static symm_status relay_tells(struct cut *cut, const struct chunk *chunk, void *stream)
{
    char *at = out_at(cut, chunk);

    (void)stream;
    return symm__step_on_host(cut->run, SYMM_KIND_BROADCAST, at, at, chunk->count,
                              relay(cut->run));
}

symm_status symm__chunked_broadcast(struct symm_hierarchical_run *run)
{
    const struct symm_hierarchy *hierarchy = run->hierarchy;
    const bool there =
        hierarchy->at == symm__hierarchy_host(hierarchy, run->args->root);
    struct cut cut = {.run = run,
                      .before = there ? root_tells : NULL,
                      .between = hierarchy->here == relay(run) ? hosts_tell : NULL,
                      .after = there ? NULL : relay_tells};

    cut_open(&cut, SYMM_CHUNKS_COPIES, run->args->count, 1);
    if (symm__rail_is_all(run->team)) /* one rank on each host: no step to hide */
        cut.sizes = symm__chunks_none(run->args->count);
    return run_cut(&cut);
}
