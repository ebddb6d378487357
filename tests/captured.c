/* SPDX-License-Identifier: MIT */
/* captured.c - see captured.h. */
#include "captured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int captured_area(struct captured_stage *s, char **area)
{
    void *memory = NULL;

    if (s->mem)
        CHECK_OK(symm_mem_alloc("cuda", -1, CAPTURED_AREA, &memory));
    else
        memory = perf_gpu_alloc(s->gpu, CAPTURED_AREA);
    CHECK(memory != NULL);
    *area = memory;
    return 0;
}

void captured_area_free(struct captured_stage *s, char *area)
{
    if (s->mem)
        (void)symm_mem_free(area);
    else
        perf_gpu_free(s->gpu, area);
}

int captured_open(struct captured_stage *s, symm_ctx *ctx, bool mem)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    s->mem = mem;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->gpu = device_open(ctx);
    s->host = malloc(CAPTURED_AREA);
    CHECK(s->gpu != NULL && s->host != NULL);
    CHECK_ZERO(captured_area(s, &s->in));
    CHECK_ZERO(captured_area(s, &s->out));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

void captured_close(struct captured_stage *s)
{
    if (s->graph)
        perf_gpu_graph_free(s->gpu, s->graph);
    symm_stream_destroy(s->ctx, s->stream);
    captured_area_free(s, s->in);
    captured_area_free(s, s->out);
    perf_gpu_close(s->gpu);
    free(s->host);
}

/* ---- Calls ---------------------------------------------------------------------------- */

const struct captured_job captured_jobs[CAPTURED_JOBS] = {
    {SYMM_KIND_ALL_REDUCE, "two_shot_inplace", SYMM_FLOAT32, true},
    {SYMM_KIND_ALL_REDUCE, "two_shot_inplace", SYMM_INT32, false},
    {SYMM_KIND_ALL_REDUCE, "two_shot_pull", SYMM_FLOAT32, true},
    {SYMM_KIND_ALL_REDUCE, "one_shot_pull", SYMM_FLOAT32, false},
    {SYMM_KIND_REDUCE_SCATTER, "one_shot_pull", SYMM_FLOAT32, false},
    {SYMM_KIND_REDUCE_SCATTER, "one_shot_pull", SYMM_INT32, false},
    {SYMM_KIND_ALL_GATHER, "one_shot_pull", SYMM_INT32, true},
    {SYMM_KIND_ALL_GATHER, "one_shot_pull", SYMM_INT32, false},
    {SYMM_KIND_ALL_GATHER, "two_shot_inplace", SYMM_INT32, true},
    {SYMM_KIND_ALL_GATHER, "two_shot_inplace", SYMM_INT32, false},
    {SYMM_KIND_BROADCAST, "one_shot_pull", SYMM_INT32, true},
    {SYMM_KIND_BROADCAST, "two_shot_inplace", SYMM_INT32, false},
    {SYMM_KIND_ALL_TO_ALL, "one_shot_pull", SYMM_INT32, false},
    {SYMM_KIND_ALL_TO_ALL, "two_shot_inplace", SYMM_INT32, false},
    {SYMM_KIND_ALL_REDUCE, NULL, SYMM_FLOAT32, true}, /* by packets, no entry */
};

size_t captured_count(int k)
{
    static const size_t counts[] = {1, 4, 37, 256, 1000, 129};

    return counts[k % 6];
}

/* Call k has a place of its own in both areas, at a distance that differs by rank. */
size_t captured_place(const struct captured_stage *s, bool in, int k)
{
    const int rank = in && s->alike ? 0 : s->rank;

    return (size_t)k * (CAPTURED_AREA / CAPTURED_CALLS) +
           4 * (size_t)((k * 5 + rank * 3) % 7);
}

static char *out_of(const struct captured_stage *s, const struct captured_job *job,
                    int k)
{
    return (job->in_place ? s->in : s->out) + captured_place(s, job->in_place, k);
}

static char *in_of(const struct captured_stage *s, const struct captured_job *job,
                   int k)
{
    const size_t own = job->in_place && job->kind == SYMM_KIND_ALL_GATHER
                           ? (size_t)s->rank * captured_count(k) * 4
                           : 0;

    return s->in + captured_place(s, true, k) + own;
}

symm_status captured_make(const struct captured_stage *s, symm_team *team,
                          const struct captured_job *job, int k)
{
    const symm_call call = {
        .size = sizeof(call), .stream = s->stream, .algorithm = job->algorithm};
    const size_t count = captured_count(k);
    const char *in = in_of(s, job, k);
    char *out = out_of(s, job, k);

    switch (job->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return symm_all_reduce(team, in, out, count, job->dtype, SYMM_SUM, &call, NULL);
    case SYMM_KIND_REDUCE_SCATTER:
        return symm_reduce_scatter(team, in, out, count, job->dtype, SYMM_SUM, &call,
                                   NULL);
    case SYMM_KIND_ALL_GATHER:
        return symm_all_gather(team, in, out, count, job->dtype, &call, NULL);
    case SYMM_KIND_BROADCAST:
        return symm_broadcast(team, in, out, count, job->dtype, 1, &call, NULL);
    default:
        return symm_all_to_all(team, in, out, count, job->dtype, &call, NULL);
    }
}

int32_t captured_value(int rank, int k, int round, size_t i)
{
    return (int32_t)((size_t)(rank + 1) * 1000 + (size_t)(k * 31 + round * 7) + i % 97);
}

void captured_store(symm_dtype dtype, char *at, int32_t number)
{
    const float real = (float)number;

    if (dtype == SYMM_FLOAT32)
        memcpy(at, &real, 4);
    else
        memcpy(at, &number, 4);
}

int32_t captured_load(symm_dtype dtype, const char *at)
{
    int32_t number;
    float real;

    memcpy(&number, at, 4);
    memcpy(&real, at, 4);
    return dtype == SYMM_FLOAT32 ? (int32_t)real : number;
}

/* The inputs of all calls for a round; outputs get a pattern. */
int captured_fill(struct captured_stage *s, const struct captured_job *list, int calls,
                  int round)
{
    memset(s->host, 0x5a, CAPTURED_AREA);
    CHECK_OK(perf_gpu_copy(s->gpu, s->out, s->host, CAPTURED_AREA));
    for (int k = 0; k < calls; k++) {
        const struct captured_job *job = &list[k % CAPTURED_JOBS];
        const bool many =
            job->kind == SYMM_KIND_REDUCE_SCATTER || job->kind == SYMM_KIND_ALL_TO_ALL;
        const size_t at = (size_t)(in_of(s, job, k) - s->in);

        for (size_t i = 0; i < captured_count(k) * (many ? (size_t)s->n : 1); i++)
            captured_store(job->dtype, s->host + at + 4 * i,
                           captured_value(s->rank, k, round, i));
    }
    CHECK_OK(perf_gpu_copy(s->gpu, s->in, s->host, CAPTURED_AREA));
    return 0;
}

/* Element i of block q of call k's output. */
int32_t captured_wanted(const struct captured_stage *s, const struct captured_job *job,
                        int k, int round, int q, size_t i)
{
    const size_t own = (size_t)s->rank * captured_count(k);
    int32_t sum = 0;

    switch (job->kind) {
    case SYMM_KIND_ALL_GATHER:
        return captured_value(q, k, round, i);
    case SYMM_KIND_ALL_TO_ALL:
        return captured_value(q, k, round, own + i);
    case SYMM_KIND_BROADCAST:
        return captured_value(1, k, round, i);
    default:
        for (int r = 0; r < s->n; r++)
            sum += captured_value(r, k, round,
                                  job->kind == SYMM_KIND_REDUCE_SCATTER ? own + i : i);
        return sum;
    }
}

int captured_check(struct captured_stage *s, const struct captured_job *list, int calls,
                   int round)
{
    char *in = malloc(CAPTURED_AREA);

    CHECK(in != NULL);
    CHECK_OK(perf_gpu_copy(s->gpu, in, s->in, CAPTURED_AREA));
    CHECK_OK(perf_gpu_copy(s->gpu, s->host, s->out, CAPTURED_AREA));
    for (int k = 0; k < calls; k++) {
        const struct captured_job *job = &list[k % CAPTURED_JOBS];
        const bool many =
            job->kind == SYMM_KIND_ALL_GATHER || job->kind == SYMM_KIND_ALL_TO_ALL;
        const char *out =
            (job->in_place ? in : s->host) + captured_place(s, job->in_place, k);

        if (job->kind == SYMM_KIND_COUNT)
            continue;
        for (int q = 0; q < (many ? s->n : 1); q++)
            for (size_t i = 0; i < captured_count(k); i++) {
                const int32_t got = captured_load(
                    job->dtype, out + 4 * ((size_t)q * captured_count(k) + i));
                const int32_t want = captured_wanted(s, job, k, round, q, i);

                CHECK_MESSAGE(got == want,
                              "round %d, call %d (%s, %s), block %d, element %zu: %d, "
                              "not %d",
                              round, k, symm__kind_name(job->kind),
                              job->algorithm ? job->algorithm : "-", q, i, got, want);
            }
    }
    free(in);
    return 0;
}

int captured_capture(struct captured_stage *s, symm_team *team,
                     const struct captured_job *list, int calls, void **graph)
{
    CHECK_OK(perf_gpu_capture(s->gpu, s->stream));
    for (int k = 0; k < calls; k++)
        CHECK_OK(captured_make(s, team, &list[k % CAPTURED_JOBS], k));
    CHECK_OK(perf_gpu_captured(s->gpu, s->stream, graph));
    return 0;
}

int captured_replay(struct captured_stage *s, void *graph,
                    const struct captured_job *list, int calls, int round)
{
    uint64_t random = 77u * (uint64_t)round + (uint64_t)s->rank;

    CHECK_ZERO(captured_fill(s, list, calls, round));
    if (harness_random(&random) % 2)
        harness_sleep(1e-6 * (double)(harness_random(&random) % 3000));
    CHECK_OK(perf_gpu_replay(s->gpu, graph, s->stream));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, CAPTURED_SECONDS));
    return captured_check(s, list, calls, round);
}

/* ---- Ranks ---------------------------------------------------------------------------- */

int captured_opened(const symm_ctx *ctx)
{
    int count = 0;

    for (const char *o = (const char *)ctx->opened; o != NULL;
         memcpy(&o, o, sizeof(o))) /* its first member leads to the next */
        count++;
    return count;
}

static void on_cuda(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = "cuda";
    config->team_bytes = 128 * CAPTURED_MIB;
}

int captured_run(struct harness h)
{
    int status;
    pid_t child;

    if (device_ranks(h.ranks) < h.ranks)
        return 0;
    if (!h.configure)
        h.configure = on_cuda;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        int failed = harness_run(&h);

        fflush(NULL);
        _exit(failed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    return status;
}
