/* SPDX-License-Identifier: MIT */
/*
 * graph_program.c - a job on CUDA whose calls are in a graph, for tests of tools that look at jobs:
 *
 *     graph_program [eager=N] [replays=N] [loop]
 *
 * Makes N all_reduces of 8 floats at site "eager", captures one at each of "layer 0", "layer 1" and
 * "layer 2", and replays the graph N times, each replay to its end. loop: prints its process id
 * before, and replays until it is killed. Without loop each rank prints "rank R all_reduce N": the
 * calls that the host has made, which replays do not add to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/gpu.h"
#include "symm/symm.h"
#include "symm/tools.h"

#define COUNT  ((size_t)8)
#define LAYERS 3

static int rank;

static void check(symm_status status, const char *what)
{
    if (status == SYMM_OK)
        return;
    fprintf(stderr, "graph_program: rank %d: %s: %s\n", rank, what, symm_last_error());
    exit(1);
}

static int argument(int argc, char **argv, const char *name)
{
    const size_t length = strlen(name);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0)
            return argv[i][length] == '=' ? atoi(argv[i] + length + 1) : 1;
    return 0;
}

static void reduce(symm_team *team, float *data, const char *site, void *stream)
{
    const symm_call call = {.size = sizeof(call), .site = site, .stream = stream};

    check(symm_all_reduce(team, data, data, COUNT, SYMM_FLOAT32, SYMM_MAX, &call, NULL),
          site);
}

int main(int argc, char **argv)
{
    const int eager = argument(argc, argv, "eager");
    const int replays = argument(argc, argv, "replays");
    const bool loop = argument(argc, argv, "loop");
    symm_job_info job = {.size = sizeof(job)};
    symm_buffer *buffer;
    symm_team *world;
    symm_ctx *ctx;
    struct perf_gpu *gpu;
    void *stream, *graph, *data;
    char site[24];

    check(symm_job_detect(&job), "the job");
    rank = job.rank;
    gpu = perf_gpu_open(job.local_rank); /* first: libsymm uses the same device */
    if (!gpu)
        return fprintf(stderr, "graph_program: no GPU\n"), 1;
    check(symm_init(NULL, &ctx), "init");
    world = symm_team_world(ctx);
    check(symm_buffer_alloc(world, COUNT * sizeof(float), &buffer), "alloc");
    check(symm_rendezvous(world), "rendezvous");
    check(symm_stream_create(ctx, &stream), "stream");
    data = symm_buffer_ptr(buffer);
    check(perf_gpu_fill(gpu, data, 0, COUNT * sizeof(float)), "fill");
    for (int i = 0; i < eager; i++)
        reduce(world, data, "eager", stream);
    check(perf_gpu_capture(gpu, stream), "capture");
    for (int i = 0; i < LAYERS; i++) {
        snprintf(site, sizeof(site), "layer %d", i);
        reduce(world, data, site, stream);
    }
    check(perf_gpu_captured(gpu, stream, &graph), "end of the capture");
    if (loop)
        printf("%ld\n", (long)getpid());
    else
        printf("rank %d all_reduce %d\n", rank, eager + LAYERS);
    fflush(stdout);
    for (int i = 0; loop || i < replays; i++) {
        check(perf_gpu_replay(gpu, graph, stream), "replay");
        check(symm_stream_synchronize(ctx, stream, 0), "replay");
    }
    perf_gpu_graph_free(gpu, graph);
    symm_stream_destroy(ctx, stream);
    symm_buffer_release(buffer);
    symm_finalize(ctx);
    perf_gpu_close(gpu);
    return 0;
}
