/* SPDX-License-Identifier: MIT */
/* device_stage.c - see device_stage.h. */
#include "device_stage.h"

#include <stdlib.h>

int device_stage_open(struct device_stage *s, symm_ctx *ctx, size_t bytes)
{
    *s = (struct device_stage){.ctx = ctx, .team = symm_team_world(ctx)};
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->wanted = malloc(bytes);
    CHECK(s->wanted != NULL);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->area[0], s->gpu, s->team, bytes));
    CHECK_ZERO(device_area_open(&s->area[1], s->gpu, NULL, bytes));
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

void device_stage_close(struct device_stage *s)
{
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->area[0]);
    device_area_close(&s->area[1]);
    perf_gpu_close(s->gpu);
    free(s->wanted);
}
