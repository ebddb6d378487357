/* SPDX-License-Identifier: MIT */
/*
 * multicast_stage.c - see multicast_stage.h.
 */
#include "multicast_stage.h"

#include <stdlib.h>
#include <string.h>

#if SYMM_HAVE_CUDA
#include "cuda/device.h"
#include "reference.h"
#include "util/hash.h"

/* A buffer more, after a rendezvous of its own. */
symm_status stage_grow(struct stage *s, int index)
{
    const int64_t bytes = (int64_t)AREA_BYTES, stride = 1;
    symm_status status = symm_empty_strided_p2p(s->team, 1, &bytes, &stride, SYMM_UINT8,
                                                0, &s->buffer[index]);

    if (status == SYMM_OK)
        status = symm_rendezvous(s->team);
    if (status == SYMM_OK)
        s->area[index] = symm_buffer_ptr(s->buffer[index]);
    return status;
}

int stage_open(struct stage *s, symm_ctx *ctx, symm_team *team,
               struct reported *reported)
{
    void *private;

    *s = (struct stage){.ctx = ctx,
                        .team = team,
                        .rank = symm_team_rank(team),
                        .n = symm_team_size(team),
                        .reported = reported};
    s->host = malloc(AREA_BYTES);
    s->wanted = malloc(AREA_BYTES);
    CHECK(s->host && s->wanted);
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, AREA_BYTES, &private));
    s->private = private;
    return 0;
}

void stage_close(struct stage *s)
{
    symm__cuda_local_free(s->ctx->backend, s->private);
    symm_buffer_release(s->buffer[0]);
    symm_buffer_release(s->buffer[1]);
    free(s->host);
    free(s->wanted);
}

static char *memory_of(const struct stage *s, enum where where)
{
    return where == PRIVATE ? s->private : s->area[where];
}

#define BESIDE ((size_t)16) /* bytes on both sides of an output */
#define BLANK  0xa5         /* each byte there */

/* All ranks hold the same bits. */
static int compare_ranks(struct stage *s, size_t bytes)
{
    uint64_t *hash = &s->reported->hash[s->rank][s->cases];

    *hash = symm__fnv(SYMM_FNV_BASIS, s->host, bytes);
    CHECK_ZERO(harness_sync_wait(&s->reported->sync, s->n));
    CHECK_MESSAGE(*hash == s->reported->hash[0][s->cases], "ranks 0 and %d differ",
                  s->rank);
    s->cases = (s->cases + 1) % CASES;
    return 0;
}

/* Nothing is written beside the output. */
static int check_beside(struct stage *s, const char *out, size_t bytes)
{
    unsigned char beside[2 * BESIDE];

    CHECK_OK(symm__cuda_copy(s->ctx, beside, out - BESIDE, BESIDE));
    CHECK_OK(symm__cuda_copy(s->ctx, beside + BESIDE, out + bytes, BESIDE));
    for (size_t i = 0; i < 2 * BESIDE; i++)
        CHECK_MESSAGE(beside[i] == BLANK, "written beside %zu bytes", bytes);
    return 0;
}

int run_case(struct stage *s, const struct test_case *t, const char *path)
{
    size_t element = symm_dtype_size(t->dtype), block = t->count * element, where = 0;
    size_t bytes = t->gather ? block * (size_t)s->n : block;
    symm_call call = {.size = sizeof(call), .site = "m", .algorithm = t->algorithm};
    char *in = memory_of(s, t->in) + t->in_shift * element;
    char *out = memory_of(s, t->out) + BACK + t->out_shift * element;

    if (t->in_place && t->gather)
        in = out + (size_t)s->rank * block;
    else if (t->in_place)
        out = in;
    reference_fill(t->dtype, SYMM_SUM, 7, s->rank, 0, t->count, s->host);
    CHECK_OK(symm__cuda_fill(s->ctx, out - BESIDE, BLANK, bytes + 2 * BESIDE));
    CHECK_OK(symm__cuda_copy(s->ctx, in, s->host, block));
    CHECK_OK(t->gather
                 ? symm_all_gather(s->team, in, out, t->count, t->dtype, &call, NULL)
                 : symm_all_reduce(s->team, in, out, t->count, t->dtype, SYMM_SUM,
                                   &call, NULL));
    CHECK_MESSAGE(strstr(symm_explain(s->team), path), "%s, not %s",
                  symm_explain(s->team), path);
    CHECK_OK(symm_stream_synchronize(s->ctx, NULL, 0));
    CHECK_OK(symm__cuda_copy(s->ctx, s->host, out, bytes));
    CHECK_ZERO(check_beside(s, out, bytes));
    if (t->gather)
        for (int r = 0; r < s->n; r++)
            reference_fill(t->dtype, SYMM_SUM, 7, r, 0, t->count,
                           s->wanted + (size_t)r * block);
    else
        reference_reduce(t->dtype, SYMM_SUM, 7, s->n, 0, t->count, s->wanted);
    CHECK_MESSAGE(reference_same(t->dtype, s->host, s->wanted, bytes / element, &where),
                  "%s of %zu %s, %d ranks: element %zu differs (%s)",
                  t->gather ? "all_gather" : "all_reduce", t->count,
                  symm_dtype_name(t->dtype), s->n, where, symm_explain(s->team));
    return compare_ranks(s, bytes);
}
#endif
