/* SPDX-License-Identifier: MIT */
/*
 * inject_job.c - see inject_job.h.
 */
#include "inject_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "symm/tools.h"
#include "topology/topology.h"

#define SMALL       1000
#define TRIES       4
#define LARGE       (768 * 1024) /* elements: more than a segment of 2 MiB */
#define EARLY_CALLS 60 /* of symm_init: before them a rank may be unknown to others */

static float storage[MAX_RANKS][2][SMALL];

/*
 * More than once: a rank that fails at the end of an exchange is behind by one when the
 * others hear of it in the next.
 */
static bool may_retry(struct rank *r, symm_status status)
{
    return status != SYMM_OK && r->job->setup->retries && r->seen->joined &&
           ++r->tries < TRIES;
}

#define STEP(call)                                                                     \
    do {                                                                               \
        symm_status step_status;                                                       \
        (void)snprintf(r->seen->step, sizeof(r->seen->step), "%.95s", #call);          \
        r->tries = 0;                                                                  \
        do {                                                                           \
            step_status = (call);                                                      \
        } while (may_retry(r, step_status));                                           \
        if (step_status != SYMM_OK)                                                    \
            return step_status;                                                        \
    } while (0)

/* Each rank has rank + 1 + i % 7; the sum is known. */
static void fill(struct rank *r, float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(r->me + 1 + (int)(i % 7));
}

static void judge(struct rank *r, const float *out, size_t count)
{
    int n = r->job->setup->ranks;
    for (size_t i = 0; i < count; i++) {
        if (out[i] != (float)(n * (n + 1) / 2 + n * (int)(i % 7)))
            r->seen->wrong = true;
    }
}

static symm_status callback(void *arg, void *stream)
{
    struct rank *r = arg;
    (void)stream;
    r->called++;
    return SYMM_OK;
}

static void notified(symm_status status, void *arg)
{
    struct rank *r = arg;
    atomic_fetch_add(&r->notified, status == SYMM_OK ? 1 : 2);
}

bool inject_is_gentle(const struct job *job)
{
    return job->setup->mode == INJECT_INTERRUPT || job->setup->mode == INJECT_STORM;
}

bool inject_is_early(const struct job *job)
{
    return !inject_is_gentle(job) && job->k > 0 && job->k <= EARLY_CALLS;
}

/* The caller's exchange; a rank that does not come fails it. */
static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct rank *r = arg;
    int n = r->job->setup->ranks;
    double start = harness_now();
    memcpy(r->job->exchange.given[r->me], in, bytes);
    atomic_fetch_or(&r->job->exchange.arrived, 1u << r->me);
    while (atomic_load(&r->job->exchange.arrived) != (1u << n) - 1) {
        if (harness_now() - start >
            (inject_is_early(r->job) ? r->job->early : HARNESS_AMPLE))
            return 1;
        sched_yield();
    }
    for (int i = 0; i < n; i++)
        memcpy((char *)out + (size_t)i * bytes, r->job->exchange.given[i], bytes);
    return 0;
}

static symm_status step_join(struct rank *r)
{
    const struct setup *setup = r->job->setup;
    const symm_bootstrap bootstrap = {sizeof(bootstrap), allgather, r};
    symm_config config;
    memset(&config, 0, sizeof(config));
    config.size = sizeof(config);
    config.backend = "host";
    config.world_size = setup->ranks;
    config.rank = r->me;
    config.thread_group = r->group;
    config.job_id = r->group == NULL ? r->job->key : NULL;
    config.bootstrap = setup->carried ? &bootstrap : NULL;
    config.heap_bytes = (size_t)1 << 30;
    config.team_bytes = (size_t)64 << 20;
    config.timeout = HARNESS_AMPLE;
    config.init_timeout = inject_is_early(r->job) ? r->job->early : HARNESS_AMPLE;
    STEP(symm_init(&config, &r->ctx));
    r->seen->joined = true;
    r->world = symm_team_world(r->ctx);
    return SYMM_OK;
}

static symm_status reduce(struct rank *r, symm_team *team, float *in, float *out,
                          size_t count, const char *algorithm)
{
    const symm_call call = {.size = sizeof(call), .algorithm = algorithm};
    fill(r, in, count);
    STEP(symm_all_reduce(team, in, out, count, SYMM_FLOAT32, SYMM_SUM, &call, NULL));
    judge(r, out, count);
    return SYMM_OK;
}

static symm_status step_memory(struct rank *r)
{
    const int64_t small = 2 * SMALL, large = LARGE, stride = 1;
    STEP(symm_empty_strided_p2p(r->world, 1, &small, &stride, SYMM_FLOAT32, 1,
                                &r->small));
    STEP(symm_empty_strided_p2p(r->world, 1, &large, &stride, SYMM_FLOAT32, 2,
                                &r->large));
    STEP(symm_rendezvous(r->world));
    return SYMM_OK;
}

static symm_status step_reduce(struct rank *r)
{
    float *own = storage[r->me][0], *result = storage[r->me][1];
    float *shared = symm_buffer_ptr(r->small);
    symm_status status = reduce(r, r->world, own, result, SMALL, "copy_in");
    if (status == SYMM_OK)
        status = reduce(r, r->world, own, result, 8, NULL);
    if (status == SYMM_OK)
        status = reduce(r, r->world, shared, shared + SMALL, SMALL, "one_shot_pull");
    if (status == SYMM_OK)
        status = reduce(r, r->world, shared, shared, SMALL, "two_shot_inplace");
    return status;
}

static symm_status step_signal(struct rank *r)
{
    int n = r->job->setup->ranks, to = (r->me + 1) % n, from = (r->me + n - 1) % n;
    float *block = symm_buffer_ptr(r->large);
    storage[r->me][0][0] = (float)r->me;
    STEP(symm_put_signal(r->world, block, storage[r->me][0], sizeof(float), to, 3, NULL,
                         NULL));
    STEP(symm_signal_wait(r->world, from, 3, NULL, NULL));
    if (*block != (float)from)
        r->seen->wrong = true;
    return SYMM_OK;
}

static symm_status step_split(struct rank *r)
{
    const int64_t count = SMALL, stride = 1;
    symm_buffer *passing = NULL;
    STEP(symm_team_split(r->world, 0, 0, &r->half));
    STEP(
        symm_empty_strided_p2p(r->half, 1, &count, &stride, SYMM_FLOAT32, 0, &passing));
    STEP(symm_rendezvous(r->half));
    symm_status status =
        reduce(r, r->half, symm_buffer_ptr(passing), storage[r->me][1], SMALL, NULL);
    if (status == SYMM_OK)
        symm_buffer_release(passing);
    return status;
}

static symm_status step_stream(struct rank *r)
{
    float *own = storage[r->me][0], *result = storage[r->me][1];
    const float *came = (float *)symm_buffer_ptr(r->large) + 1;
    int n = r->job->setup->ranks, ended = -1;
    eventfd_t once = 0;
    r->mark = (float)(r->me + 10);
    STEP(symm_stream_create(r->ctx, &r->stream));
    const symm_call call = {.size = sizeof(call), .stream = r->stream};
    fill(r, own, SMALL);
    STEP(symm_all_reduce(r->world, own, result, SMALL, SYMM_FLOAT32, SYMM_SUM, &call,
                         &r->work));
    STEP(symm_put_signal(r->world, (float *)symm_buffer_ptr(r->large) + 1, &r->mark,
                         sizeof(r->mark), (r->me + 1) % n, 4, &call, &r->put));
    STEP(symm_signal_wait(r->world, (r->me + n - 1) % n, 4, &call, NULL));
    STEP(symm_work_notify(r->work, notified, r));
    STEP(symm_work_then(r->work, r->stream, callback, r, &r->next));
    STEP(symm_work_wait(r->next, r->stream));
    STEP(symm_work_synchronize(r->next, HARNESS_AMPLE));
    STEP(symm_stream_synchronize(r->ctx, r->stream, HARNESS_AMPLE));
    STEP(symm_work_fd(r->work, &ended));
    judge(r, result, SMALL);
    if (r->called != 1 || !harness_until(&r->notified, 1) ||
        eventfd_read(ended, &once) != 0)
        r->seen->wrong = true;
    close(ended);
    /* A wait on a stream has no handle: that it failed is seen at the next call. */
    STEP(symm_barrier(r->world, NULL, NULL));
    if (*came != (float)((r->me + n - 1) % n + 10))
        r->seen->wrong = true;
    return SYMM_OK;
}

int inject_null_fd;

static symm_status step_end(struct rank *r)
{
    STEP(symm_heap_write(r->ctx, inject_null_fd, "json"));
    STEP(symm_heap_write(r->ctx, inject_null_fd, "pickle"));
    symm_buffer_release(r->large);
    STEP(symm_alloc_id_free(r->world, 2));
    STEP(symm_rendezvous(r->world));
    STEP(symm_barrier(r->world, NULL, NULL));
    symm_stream_destroy(r->ctx, r->stream);
    symm_team_destroy(r->half);
    return SYMM_OK;
}

static void trace(void *arg, symm_trace_event event, void *ptr, size_t bytes)
{
    (void)arg;
    (void)event;
    (void)ptr;
    (void)bytes;
}

/* What concerns no other rank. */
static symm_status step_alone(struct rank *r)
{
    struct symm_topology topology = {0};
    symm_job_info info = {.size = sizeof(info)};
    symm_thread_group *group = NULL;
    int first = 0, second = 0;
    STEP(symm_trace_attach(r->ctx, trace, NULL, &first));
    STEP(symm_trace_attach(r->ctx, trace, NULL, &second));
    symm_trace_detach(r->ctx, first);
    STEP(symm_topology_write(inject_null_fd, "text"));
    STEP(symm_topology_write(inject_null_fd, "json"));
    STEP(symm__topology_read_sys(&topology, "/sys"));
    symm__topology_finish(&topology);
    STEP(symm_job_detect(&info));
    STEP(symm_thread_group_create(4, &group));
    symm_thread_group_destroy(group);
    return SYMM_OK;
}

symm_status inject_run_steps(struct rank *r)
{
    static symm_status (*const steps[])(struct rank * r) = {
        step_memory, step_reduce, step_signal, step_split, step_stream, step_end};
    bool brief = r->job->setup->brief || r->job->k == 0;
    symm_status status = step_join(r);
    if (status == SYMM_OK && brief)
        status = reduce(r, r->world, storage[r->me][0], storage[r->me][1], SMALL, NULL);
    for (size_t i = 0;
         status == SYMM_OK && !brief && i < sizeof(steps) / sizeof(*steps); i++)
        status = steps[i](r);
    if (status == SYMM_OK && r->job->setup->ranks == 1 && r->job->k > 0)
        status = step_alone(r);
    return status;
}
