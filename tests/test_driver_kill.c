/* SPDX-License-Identifier: MIT */
/*
 * test_driver_kill.c - one rank is killed at a random moment of each phase of a job's life, on
 * the CUDA backend; see kill.h.
 * ctest: cost 15
 *
 * Over the fake driver and the fake NCCL; with SYMM_TEST_GPU=1 on all GPUs of the machine, 5
 * times in each phase, with the real NCCL if SYMM_ENGINE=nccl.
 */
#include "device.h"
#include "kill.h"
#include "symm/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS   3
#define SECONDS HARNESS_AMPLE
#define AREA    ((size_t)4 << 20)
#define GRAPHED 10 /* calls in a graph */

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area data, heap; /* heap: symmetric */
    void *stream, *graph;
    int rank, n;
};

static int stage_open(void *arg, symm_ctx *ctx)
{
    struct stage *s = arg;

    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->data, s->gpu, NULL, AREA));
    CHECK_ZERO(device_area_open(&s->heap, s->gpu, s->team, AREA));
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

static void stage_close(void *arg)
{
    struct stage *s = arg;

    if (s->graph)
        perf_gpu_graph_free(s->gpu, s->graph);
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->data);
    device_area_close(&s->heap);
    perf_gpu_close(s->gpu);
}

/* ---- What a rank does until it fails ------------------------------------------------- */

static symm_status split_once(void *arg, int step)
{
    struct stage *s = arg;
    symm_team *part = NULL;
    symm_status status = symm_team_split(s->team, 0, -s->rank, &part);

    (void)step;
    if (status == SYMM_OK)
        status = kill_meet(part);
    symm_team_destroy(part);
    return status;
}

static symm_status rendezvous_once(void *arg, int step)
{
    const int64_t count = 1 << 20, stride = 1;
    struct stage *s = arg;
    symm_buffer *buffer = NULL;
    symm_status status = symm_empty_strided_p2p(
        s->team, 1, &count, &stride, SYMM_FLOAT32, 1 + (uint64_t)(step % 4), &buffer);

    if (status == SYMM_OK)
        status = symm_rendezvous(s->team);
    symm_buffer_release(buffer);
    for (uint64_t id = 1; id <= 4 && step % 4 == 3 && status == SYMM_OK; id++)
        status = symm_alloc_id_free(s->team, id);
    return status;
}

static symm_status reduce(struct stage *s, void *data, size_t count,
                          const char *algorithm, symm_work **work)
{
    const symm_call call = {
        .size = sizeof(call), .stream = s->stream, .algorithm = algorithm};

    return symm_all_reduce(s->team, data, data, count, SYMM_FLOAT32, SYMM_SUM, &call,
                           work);
}

static symm_status reduced(struct stage *s, void *data, size_t count,
                           const char *algorithm)
{
    symm_work *work = NULL;
    symm_status status = reduce(s, data, count, algorithm, &work);

    if (status == SYMM_OK)
        status = symm_work_synchronize(work, SECONDS);
    symm_work_release(work);
    return status;
}

/* Only later calls tell how a replay went. */
static symm_status replay(struct stage *s)
{
    symm_status status = SYMM_OK;

    if (!s->graph) {
        if (perf_gpu_capture(s->gpu, s->stream) != 0)
            return SYMM_ERR_SYSTEM;
        for (int i = 0; i < GRAPHED && status == SYMM_OK; i++)
            status = reduce(s, s->heap.device, 1000, NULL, NULL);
        if (perf_gpu_captured(s->gpu, s->stream, &s->graph) != 0 || status != SYMM_OK)
            return status == SYMM_OK ? SYMM_ERR_SYSTEM : status;
    }
    if (perf_gpu_replay(s->gpu, s->graph, s->stream) != 0)
        return SYMM_ERR_SYSTEM;
    return symm_stream_synchronize(s->ctx, s->stream, SECONDS);
}

static symm_status kernel_once(void *arg, int step)
{
    static const size_t counts[] = {1, 4000, 100000};
    struct stage *s = arg;

    if (step % 2 == 1)
        return replay(s);
    return reduced(s, s->heap.device, counts[step / 2 % 3], NULL);
}

/* Around the ring, by kernel and by copy engine. */
static symm_status put_once(void *arg, int step)
{
    struct stage *s = arg;
    int signal = step % 2, right = (s->rank + 1) % s->n,
        left = (s->rank + s->n - 1) % s->n;
    const symm_call call = {.size = sizeof(call),
                            .stream = s->stream,
                            .algorithm = signal ? "copy_engine" : NULL};
    symm_status status = symm_put_signal(s->team, s->heap.device, s->data.device,
                                         100000, right, signal, &call, NULL);

    if (status == SYMM_OK)
        status = symm_signal_wait(s->team, left, signal, &call, NULL);
    if (status == SYMM_OK)
        status = symm_stream_synchronize(s->ctx, s->stream, SECONDS);
    return status;
}

static symm_status engine_once(void *arg, int step)
{
    struct stage *s = arg;

    (void)step;
    return reduced(s, s->data.device, AREA / sizeof(float), "engine");
}

/* Once more with the survivors' team, until the rank dies in the middle of that. */
static symm_status shrink_once(void *arg, int step)
{
    struct stage *s = arg;
    symm_team *next = NULL;
    symm_status status = symm_team_shrink(s->team, &next);

    (void)step;
    if (status == SYMM_OK) /* smaller: the old one has failed and says who is gone */
        status = kill_meet(symm_team_size(next) == s->n ? next : s->team);
    symm_team_destroy(next);
    return status;
}

static void nap(void *arg)
{
    (void)arg;
    harness_sleep(SECONDS);
}

/* After a one-sided call the end of a team waits for all that its device has to do, and only
 * then tells the peers' kernels that it goes. */
static int hold(void *arg)
{
    struct stage *s = arg;

    CHECK_OK(symm_signal(s->team, (s->rank + 1) % s->n, 7, NULL, NULL));
    CHECK_OK(symm_stream_call(s->ctx, NULL, nap, NULL));
    return 0;
}

/* ---- The matrix ---------------------------------------------------------------------- */

static const struct kill_phase phases[] = {
    {"init", KILL_INIT, KILL_BOTH, 0, NULL, NULL},
    {"split", KILL_RUNNING, KILL_BOTH, 0.3, split_once, NULL},
    {"rendezvous", KILL_RUNNING, KILL_BOTH, 0.1, rendezvous_once, NULL},
    {"kernels", KILL_RUNNING, KILL_PLAIN, 0.05, kernel_once, NULL},
    {"puts", KILL_RUNNING, KILL_PLAIN, 0.05, put_once, NULL},
    {"an engine", KILL_RUNNING, KILL_ENGINE, 0.05, engine_once, NULL},
    {"shrink", KILL_RUNNING, KILL_PLAIN, 0.3, shrink_once, NULL},
    {"finalize", KILL_FINALIZE, KILL_BOTH, 0, NULL, NULL},
    {"finalize, before final arrivals", KILL_FINALIZE, KILL_PLAIN, 0, NULL, hold},
};

static bool has_engine(void)
{
    const char *wanted = getenv("SYMM_ENGINE");

    if (device_real())
        return wanted && strcmp(wanted, "nccl") == 0;
#ifdef SYMM_FAKE_NCCL
    setenv("SYMM_NCCL_LIB", SYMM_FAKE_NCCL, 1);
    return access(SYMM_FAKE_NCCL, R_OK) == 0;
#else
    return false;
#endif
}

int main(void)
{
    struct kill_suite suite = {.kills = 2,
                               .team_bytes = (size_t)128 << 20,
                               .stage_bytes = sizeof(struct stage),
                               .open = stage_open,
                               .close = stage_close};

    device_suite();
    suite.ranks = device_ranks(device_real() ? SYMM_FEW_RANKS : RANKS);
    if (suite.ranks < 2) {
        printf("one GPU: nobody survives\n");
        return 77;
    }
    if (device_real())
        suite.kills = 5;
    if (has_engine())
        suite.engine = "nccl";
    return kill_main(&suite, phases, sizeof(phases) / sizeof(phases[0]));
}
