/* SPDX-License-Identifier: MIT */
/* kill_stage.c - see kill_stage.h. */
#include "kill_stage.h"

#include <stdlib.h>

#define LARGE 300000 /* floats: too large for staging */

int kill_stage_open(void *arg, symm_ctx *ctx)
{
    struct kill_stage *s = arg;
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->data = calloc(2 * LARGE, sizeof(*s->data));
    CHECK(s->data != NULL);
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

void kill_stage_close(void *arg)
{
    struct kill_stage *s = arg;
    symm_stream_destroy(s->ctx, s->stream);
    free(s->data);
}

/* ---- What a rank does until it fails ------------------------------------------------- */

symm_status kill_split_once(void *stage, int step)
{
    symm_team *team = ((struct kill_stage *)stage)->team;
    symm_team *part = NULL;
    (void)step;
    symm_status status = symm_team_split(team, 0, -symm_team_rank(team), &part);
    if (status == SYMM_OK)
        status = symm_barrier(part, NULL, NULL);
    symm_team_destroy(part);
    return status;
}

symm_status kill_rendezvous_once(void *stage, int step)
{
    symm_team *team = ((struct kill_stage *)stage)->team;
    const int64_t count = 100000, stride = 1;
    symm_buffer *buffer = NULL;
    symm_status status = symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_FLOAT32,
                                                1 + (uint64_t)(step % 8), &buffer);
    if (status == SYMM_OK)
        status = symm_rendezvous(team);
    symm_buffer_release(buffer);
    if (status == SYMM_OK && step % 8 == 7)
        for (uint64_t id = 1; id <= 8 && status == SYMM_OK; id++)
            status = symm_alloc_id_free(team, id);
    return status;
}

symm_status kill_collective_once(void *stage, int step)
{
    symm_team *team = ((struct kill_stage *)stage)->team;
    float *data = ((struct kill_stage *)stage)->data;
    const size_t counts[] = {1, 4000, LARGE / (size_t)symm_team_size(team)};
    size_t count = counts[step % 3];
    switch (step % 5) {
    case 0:
        return symm_all_reduce(team, data, data, count, SYMM_FLOAT32, SYMM_MAX, NULL,
                               NULL);
    case 1:
        return symm_all_gather(team, data, data + LARGE, count, SYMM_FLOAT32, NULL,
                               NULL);
    case 2:
        return symm_reduce_scatter(team, data, data + LARGE, count, SYMM_FLOAT32,
                                   SYMM_AVG, NULL, NULL);
    case 3:
        return symm_broadcast(team, data, data + LARGE, count, SYMM_FLOAT32, 1, NULL,
                              NULL);
    default:
        return symm_all_to_all(team, data, data + LARGE, count, SYMM_FLOAT32, NULL,
                               NULL);
    }
}

symm_status kill_stream_once(void *stage, int step)
{
    struct kill_stage *s = stage;
    const symm_call call = {.size = sizeof(call), .stream = s->stream};
    symm_work *work = NULL;
    symm_status status = SYMM_OK;
    (void)step;
    for (int i = 0; i < 5 && status == SYMM_OK; i++) {
        symm_work_release(work);
        work = NULL;
        status = symm_all_reduce(s->team, s->data, s->data, 5000, SYMM_FLOAT32,
                                 SYMM_MAX, &call, &work);
    }
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, 0);
    symm_work_release(work);
    return status;
}

symm_status kill_engine_once(void *stage, int step)
{
    const symm_call call = {.size = sizeof(call), .algorithm = "engine"};
    struct kill_stage *s = stage;
    (void)step;
    return symm_all_reduce(s->team, s->data, s->data, 40000, SYMM_FLOAT32, SYMM_MAX,
                           &call, NULL);
}

/* Once more with the survivors' team, until the rank dies in the middle of that. */
symm_status kill_shrink_once(void *stage, int step)
{
    symm_team *team = ((struct kill_stage *)stage)->team, *next = NULL;
    (void)step;
    symm_status status = symm_team_shrink(team, &next);
    if (status == SYMM_OK && symm_team_size(next) == symm_team_size(team))
        status = symm_barrier(next, NULL, NULL);
    else if (status == SYMM_OK)
        status = symm_barrier(team, NULL, NULL); /* failed: it says who is gone */
    symm_team_destroy(next);
    return status;
}
