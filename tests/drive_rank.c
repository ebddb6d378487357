/* SPDX-License-Identifier: MIT */
/*
 * drive_rank.c - what a rank of test_driver_simulate.c does: it joins, makes the steps of the job,
 * calls with the survivors, and ends. Results are compared with the right ones.
 *
 * The simulated devices' memory is the host's, too: values are written and read there.
 */
#include <stdio.h>
#include <string.h>

#include "drive.h"
#include "sim_driver.h"

#define AMPLE 60.0 /* seconds to wait for a handle: calls end by themselves before */

struct call {
    symm_team *team;
    int stream, slot;
    size_t count;
    int32_t salt; /* of the values */
    symm_work *work;
    symm_status status,
        told; /* told: to the function of symm_work_notify; 1: not yet */
    double begun, stopped;
};

struct rig {
    struct drive *job;
    symm_ctx *ctx;
    symm_team *world, *other; /* other: the same ranks */
    symm_team *failed;        /* of a call that has failed; NULL: none, or of `world` */
    symm_buffer *buffer;
    int32_t *data; /* [SLOTS][COUNT] twice: in, out */
    void *stream[STREAMS];
    struct call call[SLOTS];
    int calls;
    unsigned puts;
    uint64_t state;       /* random, the same on all ranks */
    double doze[STREAMS]; /* for the streams' functions */
};

static uint64_t below(struct rig *rig, uint64_t count)
{
    return harness_random(&rig->state) % count;
}

static int32_t *slot_of(const struct rig *rig, bool out, int slot)
{
    return rig->data + ((size_t)out * SLOTS + (size_t)slot) * COUNT;
}

static int32_t value_of(const struct call *call, int rank, size_t i)
{
    return call->salt + 1000 * rank + (int32_t)i;
}

/* ---- The job's fault -------------------------------------------------------------- */

static void doze(void *arg)
{
    sim_sleep(*(const double *)arg);
}

static bool is_at(const struct rig *rig, int step, enum fault fault)
{
    return rig->job->fault == fault && rig->job->at == step &&
           rig->job->culprit == sim_rank();
}

/* Before the rank makes the step. */
static void meet_fault(struct rig *rig, int step)
{
    struct drive *job = rig->job;

    if (is_at(rig, step, ABSENT)) {
        job->begun_at = sim_now();
        sim_sleep(job->late);
    }
    if (job->waits && job->at == step && job->culprit == sim_rank()) {
        sim_sleep(0.1);
        if (job->fault == KILLED)
            sim_die();
        sim_stop();
    }
    if (!is_at(rig, step, LATE_BRIEFLY) && !is_at(rig, step, LATE_LONG))
        return;
    job->begun_at = sim_now();
    for (int s = 0; s < STREAMS; s++) {
        rig->doze[s] = job->late;
        if (symm_stream_call(rig->ctx, rig->stream[s], doze, &rig->doze[s]) != SYMM_OK)
            sim_blame(&job->blame, "symm_stream_call: %s", symm_last_error());
    }
}

/* Of calls whose clock does not know what peers have queued. The own stream's delay is none of
 * theirs. */
static double long_timeout(const struct drive *job)
{
    return job->fault == LATE_BRIEFLY && sim_rank() != job->culprit
               ? job->late + job->timeout
               : job->timeout;
}

/* ---- Calls that are queued --------------------------------------------------------- */

static void told(symm_status status, void *arg)
{
    struct call *call = arg;

    call->told = status;
}

static symm_status queue_reduce(struct rig *rig, struct call *call)
{
    static const char *const sites[STREAMS] = {"left", "right"};
    const symm_call how = {.size = sizeof(how),
                           .site = sites[call->stream],
                           .stream = rig->stream[call->stream]};
    int32_t *in = slot_of(rig, false, call->slot),
            *out = slot_of(rig, true, call->slot);

    for (size_t i = 0; i < call->count; i++) {
        in[i] = value_of(call, sim_rank(), i);
        out[i] = -1;
    }
    call->begun = sim_now();
    call->stopped = sim_stopped(sim_rank());
    return CALL(rig->job, drive_allowed(rig->job),
                symm_all_reduce(call->team, in, out, call->count, SYMM_INT32, SYMM_SUM,
                                &how, &call->work));
}

static void check_reduce(struct rig *rig, const struct call *call)
{
    const int32_t *out = slot_of(rig, true, call->slot);
    const int n = symm_team_size(call->team);

    for (size_t i = 0; i < call->count; i++) {
        int32_t sum = 0;

        for (int m = 0; m < n; m++)
            sum += value_of(call, symm_team_world_rank(call->team, m), i);
        if (out[i] != sum) {
            sim_blame(&rig->job->blame,
                      "an all_reduce that is SYMM_OK gave %d, not %d, at %zu of %zu",
                      out[i], sum, i, call->count);
            return;
        }
    }
}

/* Queues calls on the streams, of one or both teams; fewer if one is refused: its status. */
static symm_status queue_batch(struct rig *rig, symm_team *team, symm_team *second)
{
    static const size_t counts[] = {1, 300, COUNT};
    const int n = 1 + (int)below(rig, BATCH);
    symm_status status = SYMM_OK;

    rig->calls = 0;
    for (int i = 0; i < n; i++) {
        const bool other = below(rig, 3) == 0;
        struct call *call = &rig->call[i];

        *call = (struct call){.team = other && second ? second : team,
                              .stream = (int)below(rig, STREAMS),
                              .slot = i,
                              .count = counts[below(rig, 3)],
                              .salt = (int32_t)below(rig, 1000000),
                              .told = (symm_status)1};
        if (status == SYMM_OK)
            status = queue_reduce(rig, call);
        if (status == SYMM_OK)
            rig->calls++;
        else
            rig->failed = call->team;
    }
    return status;
}

/* Awaits the call in one of the ways that there are. */
static symm_status await(struct rig *rig, struct call *call, uint64_t way)
{
    const double until = sim_now() + AMPLE;
    symm_status status = SYMM_OK;
    bool done = false;

    if (way == 0)
        return symm_work_synchronize(call->work, AMPLE);
    if (way == 3) { /* by the other stream */
        status = symm_work_wait(call->work, rig->stream[(call->stream + 1) % STREAMS]);
        return status == SYMM_OK ? symm_work_synchronize(call->work, AMPLE) : status;
    }
    if (way == 1) {
        while (status == SYMM_OK && !done && sim_now() < until) {
            sim_sleep(0.002);
            status = symm_work_query(call->work, &done);
        }
        return status;
    }
    status = symm_work_notify(call->work, told, call);
    while (status == SYMM_OK && call->told == (symm_status)1 && sim_now() < until)
        sim_sleep(0.002);
    if (status == SYMM_OK)
        status = symm_work_query(call->work, &done);
    if (call->told != status || !done)
        sim_blame(&rig->job->blame,
                  "a function of symm_work_notify was told %d, a query says %d",
                  (int)call->told, (int)status);
    return status;
}

/* Awaits all calls in their order; the first failure. None after a failed one of its stream may say
 * that it was made. */
static symm_status await_batch(struct rig *rig)
{
    struct drive *job = rig->job;
    symm_status first = SYMM_OK;
    bool failed[STREAMS] = {false};

    for (int i = 0; i < rig->calls; i++) {
        struct call *call = &rig->call[i];
        char what[48];

        snprintf(what, sizeof(what), "call %d of %d on stream %d", i, rig->calls,
                 call->stream);
        call->status = await(rig, call, below(rig, 4));
        (void)drive_judge(job, what, call->status, call->begun, call->stopped,
                          drive_allowed(job),
                          call->status == SYMM_OK ? "" : symm_work_error(call->work));
        if (call->status == SYMM_OK && failed[call->stream])
            sim_blame(&job->blame, "%s is SYMM_OK behind one that failed", what);
        if (call->status == SYMM_OK)
            check_reduce(rig, call);
        failed[call->stream] |= call->status != SYMM_OK;
        if (first == SYMM_OK && call->status != SYMM_OK)
            rig->failed = call->team;
        if (first == SYMM_OK)
            first = call->status;
        symm_work_release(call->work);
        if (first != SYMM_OK &&
            job->haste) { /* the others are left to the context's end */
            while (++i < rig->calls)
                symm_work_release(rig->call[i].work);
        }
    }
    rig->calls = 0;
    return first;
}

/* When may a batch of the step with the fault end, and how? */
static void check_fault(struct rig *rig, int step, symm_status status, double begun)
{
    struct drive *job = rig->job;
    const double spent = sim_now() - begun;

    if (job->at != step || sim_rank() == job->culprit || job->rank[sim_rank()].failed)
        return;
    if (status == SYMM_OK && (job->fault == LATE_LONG || job->fault == ABSENT))
        sim_blame(&job->blame, "calls wait for a rank that is %s, for %.3f s",
                  drive_fault_name(job->fault), spent);
    if (status != SYMM_OK && job->fault == LATE_LONG && spent < job->queue_timeout - 1)
        sim_blame(&job->blame, "calls fail after %.3f s, of %.3f for a late stream",
                  spent, job->queue_timeout);
}

static symm_status step_batch(struct rig *rig, int step)
{
    const double begun = sim_now();
    symm_status queued = queue_batch(rig, rig->world, rig->other);
    symm_status status;

    if (is_at(rig, step, LEAVES))
        return SYMM_OK; /* without its handles */
    status = await_batch(rig);
    if (status == SYMM_OK)
        status = queued;
    check_fault(rig, step, status, begun);
    return status;
}

/* ---- Other steps -------------------------------------------------------------------- */

/* Puts values into the next rank's slot and awaits those of the rank before. */
static symm_status step_signals(struct rig *rig, int step, bool engine)
{
    struct drive *job = rig->job;
    const int n = symm_team_size(rig->world), me = symm_team_rank(rig->world);
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    const int signal = engine ? 5 : 3; /* and the next one */
    symm_call how = {.size = sizeof(how),
                     .site = "ring",
                     .stream = rig->stream[below(rig, STREAMS)],
                     .algorithm = engine ? "copy_engine" : NULL,
                     .timeout = long_timeout(job)};
    const symm_call behind = {.size = sizeof(behind),
                              .site = "ring",
                              .stream = how.stream,
                              .timeout = how.timeout};
    /* two slots by turns: a peer that is ahead puts into the other one */
    const int turns = 1 + (int)below(rig, 3);
    const double allowed = /* a signal of one that has left is awaited */
        drive_allowed(job) + (job->fault == LEAVES ? job->timeout : 0);
    symm_status status = SYMM_OK;

    for (int turn = 0; turn < turns && status == SYMM_OK; turn++) {
        const int slot = SLOTS - 1 - (int)(rig->puts++ & 1);
        int32_t *out = slot_of(rig, false, slot), *in = slot_of(rig, true, slot);
        const int32_t salt = (int32_t)below(rig, 1000000);
        symm_work *work = NULL, *passed = NULL;

        for (int i = 0; i < COUNT; i++)
            out[i] = salt + me + i;
        status = CALL(job, allowed,
                      symm_put_signal(rig->world, in, out, COUNT * sizeof(*in), next,
                                      signal, &how, NULL));
        if (status == SYMM_OK)
            status = CALL(job, allowed,
                          symm_signal_wait(rig->world, before, signal, &how, NULL));
        if (status ==
            SYMM_OK) /* needs no peer: it must not be made behind a wait that fails */
            status = CALL(job, allowed,
                          symm_signal(rig->world, next, signal + 1, &behind, &passed));
        if (status == SYMM_OK) /* a call behind them ends well only if they have */
            status = CALL(job, allowed, symm_barrier(rig->world, &behind, &work));
        if (status == SYMM_OK)
            status = CALL(job, allowed, symm_work_synchronize(work, AMPLE));
        if (status == SYMM_OK)
            status =
                CALL(job, allowed,
                     symm_signal_wait(rig->world, before, signal + 1, &behind, NULL));
        if (passed && job->at == step && before == job->culprit &&
            job->fault == ABSENT && symm_work_synchronize(passed, AMPLE) == SYMM_OK)
            sim_blame(&job->blame, "a signal is SYMM_OK behind a wait that failed");
        symm_work_release(passed);
        symm_work_release(work);
        for (int i = 0; i < COUNT && status == SYMM_OK; i++)
            if (in[i] != salt + before + i) {
                sim_blame(&job->blame, "a put of rank %d came with %d, not %d", before,
                          in[i], salt + before + i);
                break;
            }
    }
    return status;
}

/* ---- A graph ------------------------------------------------------------------------- */

typedef CUresult capture_begin(CUstream, CUstreamCaptureMode);
typedef CUresult capture_end(CUstream, CUgraph *);
typedef CUresult instantiate(CUgraphExec *, CUgraph, unsigned long long);
typedef CUresult graph_launch(CUgraphExec, CUstream);
typedef CUresult graph_destroy(CUgraph);
typedef CUresult exec_destroy(CUgraphExec);

#define DRIVER(type, name) ((type *)sim_driver_symbol(name))

/* The driver works in the rank's context. */
static void enter(bool begin)
{
    const struct symm_cuda_driver *driver;
    CUcontext context;

    if (symm__cuda_driver(&driver) != SYMM_OK)
        return;
    if (begin) {
        (void)driver->cuDevicePrimaryCtxRetain(&context, sim_rank());
        (void)driver->cuCtxPushCurrent(context);
    } else {
        (void)driver->cuCtxPopCurrent(&context);
        (void)driver->cuDevicePrimaryCtxRelease(sim_rank());
    }
}

/* Puts and signals by copy engine, whose waits in graphs have no time limit. */
static symm_status capture_ring(struct rig *rig)
{
    const int n = symm_team_size(rig->world), me = symm_team_rank(rig->world);
    const double allowed = drive_allowed(rig->job);
    const symm_call how = {.size = sizeof(how),
                           .site = "captured ring",
                           .stream = rig->stream[0],
                           .algorithm = "copy_engine"};
    symm_status status = CALL(rig->job, allowed,
                              symm_put_signal(rig->world, slot_of(rig, true, SLOTS - 3),
                                              slot_of(rig, false, SLOTS - 3), 64,
                                              (me + 1) % n, 7, &how, NULL));

    return status == SYMM_OK
               ? CALL(rig->job, allowed,
                      symm_signal_wait(rig->world, (me + n - 1) % n, 7, &how, NULL))
               : status;
}

static symm_status capture_calls(struct rig *rig, int calls)
{
    const enum fault fault = rig->job->fault;
    /* A peer that is late, or has left, holds such a wait up until the own stream or a team ends;
     * and while a stream is late no team may end. */
    const bool ring = below(rig, 2) && (fault == NO_FAULT || fault == KILLED ||
                                        fault == STOPPED_BRIEFLY);
    const symm_call how = {.size = sizeof(how),
                           .site = "captured",
                           .stream = rig->stream[0],
                           .timeout = long_timeout(rig->job)};
    symm_status status = ring ? capture_ring(rig) : SYMM_OK;

    for (int i = 0; i < calls && status == SYMM_OK; i++)
        status = CALL(rig->job, drive_allowed(rig->job),
                      symm_all_reduce(rig->world, slot_of(rig, false, i),
                                      slot_of(rig, true, i), rig->call[i].count,
                                      SYMM_INT32, SYMM_SUM, &how, NULL));
    return status;
}

static symm_status replay(struct rig *rig, CUgraphExec exec, int calls)
{
    struct drive *job = rig->job;
    const double allowed = drive_allowed(job);
    const symm_call how = {
        .size = sizeof(how), .site = "left", .stream = rig->stream[0]};
    symm_work *work = NULL;
    symm_status status;

    for (int i = 0; i < calls; i++) {
        struct call *call = &rig->call[i];

        call->salt = (int32_t)below(rig, 1000000);
        for (size_t k = 0; k < call->count; k++)
            slot_of(rig, false, i)[k] = value_of(call, sim_rank(), k);
    }
    (void)DRIVER(graph_launch, "cuGraphLaunch")(exec, rig->stream[0]);
    /* a call behind the replay ends well only if that has */
    status = CALL(job, allowed, symm_barrier(rig->world, &how, &work));
    if (status == SYMM_OK)
        status = CALL(job, allowed, symm_work_synchronize(work, AMPLE));
    symm_work_release(work);
    for (int i = 0; i < calls && status == SYMM_OK; i++)
        check_reduce(rig, &rig->call[i]);
    return status;
}

static symm_status step_graph(struct rig *rig)
{
    const int calls = 1 + (int)below(rig, 3);
    const uint64_t replays = 1 + below(rig, 3);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    symm_status status;

    for (int i = 0; i < calls; i++)
        rig->call[i] = (struct call){
            .team = rig->world, .slot = i, .count = below(rig, 2) ? 1 : 300};
    enter(true);
    (void)DRIVER(capture_begin, "cuStreamBeginCapture")(rig->stream[0],
                                                        CU_STREAM_CAPTURE_MODE_RELAXED);
    status = capture_calls(rig, calls);
    (void)DRIVER(capture_end, "cuStreamEndCapture")(rig->stream[0], &graph);
    if (status == SYMM_OK &&
        DRIVER(instantiate, "cuGraphInstantiate")(&exec, graph, 0) != CUDA_SUCCESS)
        sim_blame(&rig->job->blame, "a graph is not made");
    for (uint64_t i = 0; i < replays && status == SYMM_OK && exec; i++)
        status = replay(rig, exec, calls);
    (void)!symm_stream_synchronize(rig->ctx, rig->stream[0], AMPLE);
    if (exec)
        (void)DRIVER(exec_destroy, "cuGraphExecDestroy")(exec);
    if (graph)
        (void)DRIVER(graph_destroy, "cuGraphDestroy")(graph);
    enter(false);
    return status;
}

/* ---- A team that ends ------------------------------------------------------------------ */

/* It ends while its calls are under way, and leaves their handles complete. */
static symm_status step_team(struct rig *rig)
{
    struct drive *job = rig->job;
    const double allowed = 3 * drive_allowed(job);
    symm_team *part = NULL;
    symm_status status =
        CALL(job, allowed, symm_team_split(rig->world, 0, sim_rank(), &part));

    if (status != SYMM_OK)
        return status;
    status = queue_batch(rig, part, NULL);
    for (int i = 0; i < rig->calls; i++)
        rig->call[i].team = rig->world; /* of the same ranks, for what is checked */
    CALL(job, allowed, (symm_team_destroy(part), SYMM_OK));
    for (int i = 0; i < rig->calls; i++) {
        struct call *call = &rig->call[i];
        bool done = false;
        symm_status ended = symm_work_query(call->work, &done);

        (void)drive_judge(job, "a handle of a team that has ended", ended, sim_now(),
                          sim_stopped(sim_rank()), 1,
                          ended == SYMM_OK ? "" : symm_work_error(call->work));
        if (!done)
            sim_blame(&job->blame, "a handle of a team that has ended is not complete");
        if (ended == SYMM_OK)
            check_reduce(rig, call);
        if (status == SYMM_OK)
            status = ended;
        symm_work_release(call->work);
    }
    rig->calls = 0;
    return status;
}

/* ---- The rank ------------------------------------------------------------------------- */

static symm_status do_step(struct rig *rig, int step)
{
    meet_fault(rig, step);
    switch (rig->job->step[step]) {
    case BATCHES:
        return step_batch(rig, step);
    case SIGNALS:
        return step_signals(rig, step, false);
    case COPIES:
        return step_signals(rig, step, true);
    case GRAPH:
        return step_graph(rig);
    default:
        return step_team(rig);
    }
}

static symm_status open_rig(struct rig *rig)
{
    const int64_t count = (int64_t)2 * SLOTS * COUNT, stride = 1;
    struct drive *job = rig->job;
    const double allowed = 3 * drive_allowed(job);
    symm_status status;

    rig->world = symm_team_world(rig->ctx);
    for (int s = 0; s < STREAMS; s++)
        if (symm_stream_create(rig->ctx, &rig->stream[s]) != SYMM_OK)
            sim_blame(&job->blame, "symm_stream_create: %s", symm_last_error());
    status = symm_empty_strided_p2p(rig->world, 1, &count, &stride, SYMM_INT32, 0,
                                    &rig->buffer);
    if (status != SYMM_OK) {
        sim_blame(&job->blame, "symm_empty_strided_p2p: %s", symm_last_error());
        return status;
    }
    status = CALL(job, allowed, symm_rendezvous(rig->world));
    rig->data = symm_buffer_ptr(rig->buffer);
    if (status == SYMM_OK)
        status =
            CALL(job, allowed, symm_team_split(rig->world, 0, sim_rank(), &rig->other));
    return status;
}

/* Streams may be used again when the failure of each team on them has been returned. Calls of a team
 * of which none has failed are queued until this rank knows of its failure. */
static void await_failure(struct rig *rig, symm_team *team)
{
    const symm_call how = {
        .size = sizeof(how), .site = "left", .stream = rig->stream[0]};
    const double until = sim_now() + 1;

    while (symm_barrier(team, &how, NULL) == SYMM_OK && sim_now() < until)
        sim_sleep(0.002);
    if (sim_now() >= until)
        sim_blame(
            &rig->job->blame,
            "a team has not failed in which no rank waits for the one that has died");
}

/* If a call has failed, so has its team, and the next one fails at once. Survivors make a team, in
 * which calls go on. */
static void go_on(struct rig *rig, bool called)
{
    struct drive *job = rig->job;
    const symm_call how = {
        .size = sizeof(how), .site = "left", .stream = rig->stream[0]};
    symm_team *failed = called && rig->failed ? rig->failed : rig->world, *next = NULL;

    if (job->fault != KILLED || job->haste)
        return;
    if (called && CALL(job, 1, symm_barrier(failed, &how, NULL)) == SYMM_OK)
        sim_blame(&job->blame, "a call of a team that has failed is queued");
    if (failed != rig->world)
        await_failure(rig, rig->world);
    if (rig->other && failed != rig->other)
        await_failure(rig, rig->other);
    if (CALL(job, 3 * drive_allowed(job), symm_team_shrink(rig->world, &next)) !=
        SYMM_OK)
        return;
    (void)!symm_stream_synchronize(rig->ctx, rig->stream[0], AMPLE);
    (void)!symm_stream_synchronize(rig->ctx, rig->stream[1], AMPLE);
    rig->calls = 0;
    rig->state = job->seed; /* they have failed in different steps */
    for (int m = 0; m < symm_team_size(next); m++)
        if (symm_team_world_rank(next, m) == job->culprit)
            sim_blame(&job->blame, "rank %d, which is dead, survives", job->culprit);
    if (queue_batch(rig, next, NULL) != SYMM_OK || await_batch(rig) != SYMM_OK)
        sim_blame(&job->blame, "calls of the survivors fail: %s", symm_last_error());
    symm_team_destroy(next);
}

static void run(struct rig *rig)
{
    struct drive *job = rig->job;
    const int me = sim_rank();
    symm_status status = open_rig(rig);
    int step = 0;

    while (status == SYMM_OK && step < job->steps) {
        status = do_step(rig, step);
        if (is_at(rig, step++, LEAVES))
            break;
    }
    if (status == SYMM_OK && !is_at(rig, step - 1, LEAVES))
        status = CALL(job, drive_allowed(job), symm_barrier(rig->world, NULL, NULL));
    job->rank[me].failed = status != SYMM_OK;
    if (status != SYMM_OK)
        go_on(rig, step > 0 && job->step[step - 1] != TEAM);
}

void drive_body(int rank, void *arg)
{
    struct drive *job = arg;
    struct rig rig = {.job = job, .state = job->seed * 77 + 5};
    const double allowed = 3 * drive_allowed(job) + 2;
    symm_config config = {.size = sizeof(config),
                          .world_size = job->ranks,
                          .rank = rank,
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = (size_t)128 << 20,
                          .timeout = job->timeout,
                          .init_timeout = 5,
                          .job_id = "simulated"};

    if (CALL(job, 8, symm_init(&config, &rig.ctx)) == SYMM_OK) {
        run(&rig);
        job->rank[rank].left_at = sim_now();
        for (int i = 0; i < rig.calls; i++) /* of a rank that leaves */
            symm_work_release(rig.call[i].work);
        CALL(job, allowed, (symm_finalize(rig.ctx), SYMM_OK));
    }
    job->rank[rank].ended = true;
}
