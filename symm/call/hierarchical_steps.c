/* SPDX-License-Identifier: MIT */
/* hierarchical_steps.c - see hierarchical_steps.h. */
#include "call/hierarchical_steps.h"

#include <stdlib.h>

#include "core/device_ops.h"
#include "core/failure.h"
#include "util/clock.h"
#include "util/status.h"

struct symm_engine_comm *symm__step_rail(const struct symm_hierarchical_run *run)
{
    return symm__rail_is_all(run->team) ? run->engine->comm : run->engine->rail;
}

struct symm_engine_request symm__step_request(const struct symm_hierarchical_run *run,
                                              enum symm_kind kind, const void *in,
                                              void *out, size_t count, int root)
{
    return (struct symm_engine_request){.what = SYMM_ENGINE_COLLECTIVE,
                                        .kind = kind,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .dtype = (symm_dtype)run->args->site.dtype,
                                        .op = (symm_op)run->args->site.op,
                                        .root = root,
                                        .peer = -1};
}

symm_status symm__step_on_host(struct symm_hierarchical_run *run, enum symm_kind kind,
                               const void *in, void *out, size_t count, int root)
{
    const struct symm_engine_request step =
        symm__step_request(run, kind, in, out, count, root);
    symm_team *node = run->hierarchy->local_team;
    struct symm_team_channel *channel = &node->channel[run->channel->index];

    channel->stream = run->channel->stream;
    return symm__collective_run(channel, &step, run->args->site.name,
                                run->until - symm__now());
}

symm_status symm__step_engine(struct symm_hierarchical_run *run,
                              struct symm_engine_comm *comm,
                              const struct symm_engine_request *request, void *stream)
{
    symm_team *team = run->team;
    const bool all = comm != symm__step_rail(run);
    const struct symm_engine_call call = {
        .team = team,
        .comm = comm,
        .requests = request,
        .count = 1,
        .timeout = run->until - symm__now(),
        .what = symm__kind_name((enum symm_kind)run->args->site.kind),
        .site = run->args->site.name,
        .members = all ? NULL : run->hierarchy->rail,
        .member_count = all ? team->size : run->hierarchy->rail_count};

    if (team->device_ops)
        return team->device_ops->engine(&call, stream, NULL);
    return symm__engine_run_host(&call);
}

/* Room that is kept from call to call: it grows only at the first call over so many ranks. */
static symm_status room_for_tags(struct symm_hierarchy *hierarchy, int count,
                                 uint64_t **tags)
{
    if (count > hierarchy->tags_room) {
        uint64_t *grown =
            realloc(hierarchy->tags, (size_t)count * sizeof(*hierarchy->tags));

        if (!grown)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for the tags of %d ranks",
                              count);
        hierarchy->tags = grown;
        hierarchy->tags_room = count;
    }
    *tags = hierarchy->tags;
    return SYMM_OK;
}

symm_status symm__step_announce(struct symm_hierarchical_run *run,
                                struct symm_engine_comm *comm, const int *ranks,
                                int count)
{
    const symm_team *team = run->team;
    uint64_t mine = run->args->site.tag, *tags = NULL;
    struct symm_engine_request step;
    char text[SYMM_SITE_TEXT_BYTES];
    symm_status status;

    if (team->device_ops)
        return SYMM_OK;
    status = room_for_tags(run->hierarchy, count, &tags);
    if (status != SYMM_OK)
        return status;
    step = symm__step_request(run, SYMM_KIND_ALL_GATHER, &mine, tags, 1, 0);
    step.dtype = SYMM_UINT64;
    status = symm__step_engine(run, comm, &step, run->channel->stream);
    for (int i = 0; status == SYMM_OK && i < count; i++) {
        int rank = team->world_rank[ranks ? ranks[i] : i];

        if (tags[i] == mine)
            continue;
        status = symm__team_fail(
            run->team, SYMM_ERR_MISMATCH,
            "rank %d on host %s makes another call than rank %d, which is at %s: all "
            "ranks of a team must make the same calls in the same order",
            rank, symm__host_of_rank(team->ctx, rank), team->ctx->rank,
            symm__site_text(&run->args->site, 0, text, sizeof(text)));
    }
    return status;
}

symm_status symm__step_between(struct symm_hierarchical_run *run, enum symm_kind kind,
                               const void *in, void *out, size_t count, int root,
                               void *stream)
{
    const struct symm_engine_request step =
        symm__step_request(run, kind, in, out, count, root);
    symm_status status = symm__step_announce(
        run, symm__step_rail(run), run->hierarchy->rail, run->hierarchy->rail_count);

    return status == SYMM_OK
               ? symm__step_engine(run, symm__step_rail(run), &step, stream)
               : status;
}
