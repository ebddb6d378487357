/* SPDX-License-Identifier: MIT */
/* job.c - see job.h. */
#include "perf/job.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void bind_self(struct perf_job *job, const symm_job_info *place)
{
    cpu_set_t allowed;

    if (place->local_size > 1 && sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
        CPU_COUNT(&allowed) == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        size_t core = 0;
        while (!CPU_ISSET(core, &allowed))
            core++;
        snprintf(job->where, sizeof job->where, "core %zu, by the launcher", core);
        return;
    }
    if (symm_bind_self(place->local_rank, place->local_size, job->where,
                       sizeof job->where) != SYMM_OK) {
        fprintf(stderr, "symm-perf: rank %d: not bound: %s\n", place->rank,
                symm_last_error());
        job->where[0] = 0;
    }
}

int perf_job_failed(const struct perf_job *job, symm_status status, const char *what)
{
    fprintf(stderr, "symm-perf: rank %d: %s: %s\n", job->rank, what, symm_last_error());
    return status == SYMM_ERR_UNSUPPORTED || status == SYMM_ERR_INVALID ? PERF_REFUSED
                                                                        : PERF_FAILED;
}

int perf_job_no_memory(const struct perf_job *job)
{
    fprintf(stderr, "symm-perf: rank %d: out of memory\n", job->rank);
    return PERF_FAILED;
}

/* Compares the hashes of the hosts' names. Collective. */
static int find_hosts(struct perf_job *job)
{
    const size_t ranks = (size_t)job->size;
    uint64_t mine = 14695981039346656037u, *all; /* FNV-1a */
    symm_status status;

    if (job->info.hosts < 2)
        return PERF_RIGHT;
    for (const char *c = job->info.host; *c; c++)
        mine = (mine ^ (unsigned char)*c) * 1099511628211u;
    all = calloc(ranks, sizeof *all);
    job->hosts = calloc(ranks, sizeof *job->hosts);
    if (!all || !job->hosts) {
        free(all);
        return perf_job_no_memory(job);
    }
    status = perf_job_gather(job, &mine, sizeof mine, all);
    for (int r = 0; r < job->size && status == SYMM_OK; r++)
        while (all[job->hosts[r]] != all[r])
            job->hosts[r]++;
    free(all);
    return status == SYMM_OK ? PERF_RIGHT
                             : perf_job_failed(job, status, "the ranks' hosts");
}

/* Checks options that need GPUs. */
static int check_gpu(struct perf_job *job, const struct perf_options *options)
{
    bool needed = options->graph || options->compare;

    if (job->gpu || !needed)
        return PERF_RIGHT;
    if (job->rank == 0)
        fprintf(stderr,
                "symm-perf: -G and --compare need GPUs; this job runs on the %s "
                "backend; see 'symm-info'\n",
                job->info.backend);
    return PERF_REFUSED;
}

int perf_job_open(struct perf_job *job, const symm_job_info *place,
                  const struct perf_options *options)
{
    symm_config config = {.size = sizeof config,
                          .backend = options->backend,
                          .timeout = options->timeout};

    int exit;

    *job = (struct perf_job){.rank = place->rank,
                             .size = place->world_size,
                             .local_rank = place->local_rank};
    job->info.size = sizeof job->info;
    if (options->pin)
        bind_self(job, place);
    if (!options->backend || strcmp(options->backend, "cuda") == 0)
        /* first: libsymm uses the same device */
        job->gpu = perf_gpu_open(place->local_rank);
    symm_status status = symm_init(&config, &job->ctx);
    if (status != SYMM_OK) {
        perf_gpu_close(job->gpu);
        return perf_job_failed(job, status, "symm_init");
    }
    job->world = symm_team_world(job->ctx);
    status = symm_ctx_info(job->ctx, &job->info);
    if (status != SYMM_OK) {
        perf_job_close(job);
        return perf_job_failed(job, status, "symm_ctx_info");
    }
    job->rank = job->info.rank;
    job->size = job->info.world_size;
    if (strcmp(job->info.backend, "cuda") != 0) {
        perf_gpu_close(job->gpu);
        job->gpu = NULL;
    }
    exit = check_gpu(job, options);
    if (exit == PERF_RIGHT)
        exit = find_hosts(job);
    if (exit != PERF_RIGHT)
        perf_job_close(job);
    return exit;
}

void perf_job_close(struct perf_job *job)
{
    symm_finalize(job->ctx);
    perf_gpu_close(job->gpu);
    free(job->hosts);
    job->hosts = NULL;
    job->ctx = NULL;
    job->gpu = NULL;
}

void *perf_job_alloc(const struct perf_job *job, size_t bytes)
{
    return job->gpu ? perf_gpu_alloc(job->gpu, bytes) : calloc(1, bytes);
}

void perf_job_free(const struct perf_job *job, void *memory)
{
    if (job->gpu)
        perf_gpu_free(job->gpu, memory);
    else
        free(memory);
}

int perf_job_copy(const struct perf_job *job, void *dst, const void *src, size_t bytes)
{
    if (job->gpu)
        return perf_gpu_copy(job->gpu, dst, src, bytes) ? PERF_FAILED : PERF_RIGHT;
    memcpy(dst, src, bytes);
    return PERF_RIGHT;
}

int perf_job_fill(const struct perf_job *job, void *dst, int byte, size_t bytes)
{
    if (job->gpu)
        return perf_gpu_fill(job->gpu, dst, byte, bytes) ? PERF_FAILED : PERF_RIGHT;
    memset(dst, byte, bytes);
    return PERF_RIGHT;
}

/* Through device memory: calls on a GPU reach no other. */
static symm_status gather_on_gpu(const struct perf_job *job, const void *mine,
                                 size_t bytes, void *all)
{
    size_t whole = bytes * (size_t)job->size;
    char *in = perf_gpu_alloc(job->gpu, bytes), *out = perf_gpu_alloc(job->gpu, whole);
    symm_status status = SYMM_ERR_NOMEM;

    if (in && out && perf_gpu_copy(job->gpu, in, mine, bytes) == 0)
        status = symm_all_gather(job->world, in, out, bytes, SYMM_UINT8, NULL, NULL);
    if (status == SYMM_OK)
        status = perf_gpu_wait(job->gpu, NULL);
    if (status == SYMM_OK)
        status = perf_gpu_copy(job->gpu, all, out, whole);
    perf_gpu_free(job->gpu, in);
    perf_gpu_free(job->gpu, out);
    return status;
}

symm_status perf_job_gather(const struct perf_job *job, const void *mine, size_t bytes,
                            void *all)
{
    if (job->gpu)
        return gather_on_gpu(job, mine, bytes, all);
    return symm_all_gather(job->world, mine, all, bytes, SYMM_UINT8, NULL, NULL);
}

symm_status perf_job_barrier(const struct perf_job *job, void *stream)
{
    const symm_call call = {.size = sizeof call, .stream = stream};

    return symm_barrier(job->world, &call, NULL);
}

symm_status perf_job_capture(const struct perf_job *job, void *stream, int calls,
                             symm_status (*fn)(void *arg), void *arg, void **graph)
{
    symm_status status = perf_gpu_capture(job->gpu, stream), ended;

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < calls && status == SYMM_OK; i++)
        status = fn(arg);
    ended = perf_gpu_captured(job->gpu, stream, graph);
    return status == SYMM_OK ? ended : status;
}

symm_status perf_job_replay(const struct perf_job *job, void *graph, void *stream,
                            int calls, double *us)
{
    symm_status status = perf_job_barrier(job, stream);

    if (status != SYMM_OK)
        return status;
    if (perf_gpu_mark(job->gpu, 0, stream) ||
        perf_gpu_replay(job->gpu, graph, stream) ||
        perf_gpu_mark(job->gpu, 1, stream) || perf_gpu_elapsed(job->gpu, us))
        return SYMM_ERR_SYSTEM;
    *us /= calls;
    return SYMM_OK;
}

int perf_job_buffers(const struct perf_job *job, size_t bytes, int count,
                     symm_buffer **buffers)
{
    const int64_t shape = (int64_t)bytes, stride = 1;
    symm_status status = SYMM_OK;

    if (bytes > INT64_MAX)
        return perf_job_no_memory(job);
    for (int i = 0; i < count && status == SYMM_OK; i++)
        status = symm_empty_strided_p2p(job->world, 1, &shape, &stride, SYMM_UINT8,
                                        (uint64_t)(1 + i), &buffers[i]);
    if (status == SYMM_OK)
        status = symm_rendezvous(job->world);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "allocating the buffers");
    for (int i = 0; i < count; i++)
        if (perf_job_fill(job, symm_buffer_ptr(buffers[i]), 0, bytes))
            return PERF_FAILED;
    return PERF_RIGHT;
}

int perf_job_worst(const struct perf_job *job, int mine, const char *what)
{
    int *all = calloc((size_t)job->size, sizeof(*all));
    symm_status status;

    if (!all)
        return perf_job_no_memory(job);
    status = perf_job_gather(job, &mine, sizeof(mine), all);
    for (int r = 0; r < job->size && status == SYMM_OK; r++)
        mine = all[r] > mine ? all[r] : mine;
    free(all);
    return status == SYMM_OK ? mine : perf_job_failed(job, status, what);
}

symm_status perf_job_slowest(const struct perf_job *job, struct perf_stats *stats,
                             int count, double *sums, int n)
{
    const size_t times = (size_t)count * PERF_STATS_FIELDS, each = times + (size_t)n;
    double *all = calloc(each * ((size_t)job->size + 1), sizeof(*all)), *theirs = all;
    symm_status status;

    if (!all)
        return SYMM_ERR_NOMEM;
    memcpy(all, stats, times * sizeof(*all));
    memcpy(all + times, sums, (size_t)n * sizeof(*all));
    status = perf_job_gather(job, all, each * sizeof *all, all + each);
    memset(sums, 0, (size_t)n * sizeof(*all));
    for (int r = 0; r < job->size && status == SYMM_OK; r++) {
        theirs += each;
        for (int i = 0; i < count; i++)
            perf_stats_slower(&stats[i], (const struct perf_stats *)theirs + i);
        for (int i = 0; i < n; i++)
            sums[i] += theirs[times + (size_t)i];
    }
    free(all);
    return status;
}
