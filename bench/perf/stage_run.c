/* SPDX-License-Identifier: MIT */
/*
 * stage_run.c - one period of a program on this rank.
 *
 * Local actions (writes, checks, delays) run in their stream's order: at once on the
 * first stream, by symm_stream_call on other streams.
 */
#include <stdio.h>
#include <string.h>

#include "perf/expect_keep.h"
#include "perf/stage.h"

#define MOST_COMPLAINTS 4 /* wrong results that a rank describes */

static const symm_program_op *op_of(const struct perf_step *step)
{
    return &step->stage->program->ops[step->op];
}

/* ---- Local actions --------------------------------------------------------------- */

/* A failed copy shows as a wrong result. */
static void fill(const struct perf_stage *stage, const struct perf_pattern *pattern,
                 void *dst, size_t bytes)
{
    perf_pattern_fill(pattern, 0, bytes, stage->staging ? stage->staging : dst);
    if (stage->staging)
        (void)perf_job_copy(stage->job, dst, stage->staging, bytes);
}

static void write_buffers(void *arg)
{
    const struct perf_step *step = arg;
    const struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step);
    struct perf_pattern pattern;

    for (int i = 0; i < op->buffer_count; i++) {
        int buffer = op->buffers[i];
        perf_expect_written(stage->expect, step->op, buffer, stage->job->rank,
                            &pattern);
        fill(stage, &pattern, symm_buffer_ptr(stage->buffers[buffer]),
             stage->program->buffers[buffer].bytes);
    }
}

/* A copy of the host's, where it cannot read the memory itself. */
static const void *readable(struct perf_stage *stage, const void *found, size_t bytes)
{
    if (stage->staging && perf_job_copy(stage->job, stage->staging, found, bytes) == 0)
        return stage->staging;
    return found;
}

/* name: of what was found, where the op has no site; wrong -1: no memory. */
static void count_wrong(struct perf_stage *stage, int op, const char *name,
                        int64_t wrong)
{
    const symm_program_op *what = &stage->program->ops[op];

    if (wrong < 0) {
        stage->no_memory = true;
        return;
    }
    atomic_fetch_add(&stage->results, 1);
    if (wrong == 0)
        return;
    if (atomic_fetch_add(&stage->wrong, (uint64_t)wrong) < MOST_COMPLAINTS)
        fprintf(stderr,
                "symm-perf: rank %d: period %llu: ops[%d] (%s %s%s%s): %lld wrong "
                "element%s\n",
                stage->job->rank, (unsigned long long)stage->period, op,
                symm_program_kind_name(what->kind), what->site ? what->site : "",
                what->site && name ? " " : "", name ? name : "", (long long)wrong,
                wrong > 1 ? "s" : "");
}

static void check_one(struct perf_stage *stage, int op, int buffer, const void *found)
{
    const symm_program_op *what = &stage->program->ops[op];
    const bool reads = what->kind == SYMM_PROGRAM_READ;
    const symm_program_buffer *read = &stage->program->buffers[buffer];

    found = readable(stage, found, reads ? read->bytes : what->result);
    count_wrong(stage, op, reads ? read->name : NULL,
                perf_expect_differ(stage->expect, op, buffer, stage->job->rank, found,
                                   stage->glance));
}

/* All that an all_reduce_norm has written; under a plan, in memory of the rank's own alone. */
static void check_norm(void *arg)
{
    const struct perf_step *step = arg;
    struct perf_stage *stage = step->stage;
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];

    perf_norm_list(stage->program, &stage->program->ops[step->op], arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++) {
        if (!arrays[a].written || !arrays[a].where.given ||
            (stage->planned && arrays[a].where.buffer >= 0))
            continue;
        count_wrong(
            stage, step->op, arrays[a].name,
            perf_expect_norm_differ(
                stage->expect, step->op, (enum perf_norm_place)a, stage->job->rank,
                readable(stage, step->norm_at[a], arrays[a].bytes), stage->glance));
    }
}

static void check_reads(void *arg)
{
    const struct perf_step *step = arg;
    const symm_program_op *op = op_of(step);

    for (int i = 0; i < op->buffer_count; i++)
        check_one(step->stage, step->op, op->buffers[i],
                  symm_buffer_ptr(step->stage->buffers[op->buffers[i]]));
}

/* Of a collective, or of the put that the op waits for. */
static void check_result(void *arg)
{
    const struct perf_step *step = arg;
    const struct perf_stage *stage = step->stage;
    int index = op_of(step)->kind == SYMM_PROGRAM_WAIT ? op_of(step)->put : step->op;
    const symm_program_op *op = &stage->program->ops[index];
    const void *found = op->out < 0 ? stage->private_out[op->stream]
                                    : symm_buffer_ptr(stage->buffers[op->out]);

    check_one(step->stage, index, op->kind == SYMM_PROGRAM_PUT ? op->out : op->in,
              found);
}

/* Spins for 0 .. delay microseconds, so that the ranks drift apart. */
static void delay_some(void *arg)
{
    struct perf_step *step = arg;
    double begin = perf_now(), most = step->stage->delay;

    step->random ^= step->random << 13;
    step->random ^= step->random >> 7;
    step->random ^= step->random << 17;
    double wanted = most * (double)(step->random >> 11) * 0x1p-53;
    while (perf_now() - begin < wanted)
        ;
}

/* Reports the program's own accesses, which the library cannot see. */
static symm_status record_local(const struct perf_step *step)
{
    const struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step);
    void *stream = stage->streams[op->stream];
    symm_status status = SYMM_OK;

    for (int i = 0; i < op->buffer_count && status == SYMM_OK; i++) {
        const void *ptr = symm_buffer_ptr(stage->buffers[op->buffers[i]]);
        size_t bytes = stage->program->buffers[op->buffers[i]].bytes;

        status = op->kind == SYMM_PROGRAM_WRITE
                     ? symm_record_write(stage->job->world, ptr, bytes, stream)
                     : symm_record_read(stage->job->world, ptr, bytes, stream);
    }
    return status;
}

static symm_status run_local(struct perf_step *step, void (*fn)(void *arg))
{
    struct perf_stage *stage = step->stage;
    int stream = op_of(step)->stream;

    if (stage->job->gpu && perf_gpu_wait(stage->job->gpu, stage->streams[stream]))
        return SYMM_ERR_SYSTEM;
    if (!stage->job->gpu && stream > 0)
        return symm_stream_call(stage->job->ctx, stage->streams[stream], fn, step);
    double begin = perf_now();
    fn(step);
    stage->local += perf_now() - begin;
    return SYMM_OK;
}

/* ---- depend ---------------------------------------------------------------------- */

static void post(void *arg)
{
    struct perf_step *step = arg;

    pthread_mutex_lock(&step->stage->lock);
    step->posted++;
    pthread_cond_broadcast(&step->stage->changed);
    pthread_mutex_unlock(&step->stage->lock);
}

static void take(void *arg)
{
    struct perf_step *step = arg;
    struct perf_stage *stage = step->stage;

    pthread_mutex_lock(&stage->lock);
    step->taken++;
    while (step->posted < step->taken && !stage->aborted)
        pthread_cond_wait(&stage->changed, &stage->lock);
    pthread_mutex_unlock(&stage->lock);
}

static symm_status run_in_stream(struct perf_stage *stage, int stream,
                                 void (*fn)(void *arg), struct perf_step *step)
{
    return symm_stream_call(stage->job->ctx, stage->streams[stream], fn, step);
}

static symm_status run_depend(struct perf_step *step)
{
    const symm_program_op *op = op_of(step);
    symm_status status;

    if (op->on == op->stream)
        return SYMM_OK;
    status = symm_record_depend(step->stage->streams[op->stream],
                                step->stage->streams[op->on]);
    if (status != SYMM_OK)
        return status;
    if (step->stage->job->gpu)
        return perf_gpu_order(step->stage->job->gpu, step->stage->streams[op->on],
                              step->stage->streams[op->stream]);
    status = run_in_stream(step->stage, op->on, post, step);
    return status == SYMM_OK ? run_in_stream(step->stage, op->stream, take, step)
                             : status;
}

/* ---- Communication --------------------------------------------------------------- */

/* Where a call's work goes: a call on a worker thread reports its status later. */
static symm_work **work_for(struct perf_stage *stage, const symm_program_op *op)
{
    return op->stream > 0 || stage->job->gpu ? &stage->works[stage->work_count] : NULL;
}

static symm_status keep_work(struct perf_stage *stage, symm_work **work,
                             symm_status status)
{
    if (status == SYMM_OK && work && *work)
        stage->work_count++;
    return status;
}

static symm_status call_collective(struct perf_stage *stage, const symm_program_op *op,
                                   const symm_call *call, symm_work **work)
{
    symm_team *team = stage->teams[op->partition];
    size_t count = op->count,
           length = (size_t)stage->program->partitions[op->partition].length;
    const void *in = symm_buffer_ptr(stage->buffers[op->in]);
    void *out = op->out < 0 ? stage->private_out[op->stream]
                            : symm_buffer_ptr(stage->buffers[op->out]);

    switch (op->kind) {
    case SYMM_PROGRAM_ALL_REDUCE:
        return symm_all_reduce(team, in, out, count, op->dtype, op->reduce, call, work);
    case SYMM_PROGRAM_REDUCE_SCATTER:
        return symm_reduce_scatter(team, in, out, count / length, op->dtype, op->reduce,
                                   call, work);
    case SYMM_PROGRAM_ALL_GATHER:
        return symm_all_gather(team, in, out, count, op->dtype, call, work);
    case SYMM_PROGRAM_BROADCAST:
        return symm_broadcast(team, in, out, count, op->dtype, op->root, call, work);
    default:
        return symm_all_to_all(team, in, out, count / length, op->dtype, call, work);
    }
}

static symm_status run_collective(struct perf_step *step)
{
    struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step);
    const symm_call call = {
        .size = sizeof call, .site = op->site, .stream = stage->streams[op->stream]};
    symm_work **work = work_for(stage, op);
    symm_status status =
        keep_work(stage, work, call_collective(stage, op, &call, work));

    return status == SYMM_OK && step->looks ? run_local(step, check_result) : status;
}

static symm_status run_norm(struct perf_step *step)
{
    struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step);
    const symm_call call = {
        .size = sizeof call, .site = op->site, .stream = stage->streams[op->stream]};
    const symm_norm norm = perf_norm_call(
        stage->program, op, symm_buffer_ptr(stage->buffers[op->in]), step->norm_at);
    symm_work **work = work_for(stage, op);
    symm_status status = keep_work(
        stage, work,
        symm_all_reduce_norm(stage->teams[op->partition], &norm, &call, work));

    return status == SYMM_OK && step->looks ? run_local(step, check_norm) : status;
}

static symm_status run_put(struct perf_step *step)
{
    struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step);
    const symm_call call = {
        .size = sizeof call, .site = op->site, .stream = stage->streams[op->stream]};
    symm_team *team = stage->teams[op->partition];
    int peer = (stage->place[op->partition] + op->shift) % symm_team_size(team);
    symm_work **work = work_for(stage, op);
    symm_status status = keep_work(stage, work, symm_barrier(team, &call, work));

    if (status != SYMM_OK)
        return status;
    work = work_for(stage, op);
    status = symm_put_signal(team, symm_buffer_ptr(stage->buffers[op->out]),
                             symm_buffer_ptr(stage->buffers[op->in]), op->count, peer,
                             op->signal, &call, work);
    return keep_work(stage, work, status);
}

static symm_status run_wait(struct perf_step *step)
{
    struct perf_stage *stage = step->stage;
    const symm_program_op *op = op_of(step), *put = &stage->program->ops[op->put];
    const symm_call call = {
        .size = sizeof call, .site = put->site, .stream = stage->streams[op->stream]};
    symm_team *team = stage->teams[put->partition];
    int size = symm_team_size(team);
    int peer = (stage->place[put->partition] - put->shift + size) % size;
    symm_status status = symm_signal_wait(team, peer, put->signal, &call, NULL);

    return status == SYMM_OK && step->looks ? run_local(step, check_result) : status;
}

static symm_status run_step(struct perf_step *step)
{
    symm_status status = record_local(step);

    if (status != SYMM_OK)
        return status;
    switch (op_of(step)->kind) {
    case SYMM_PROGRAM_WRITE:
        return run_local(step, write_buffers);
    case SYMM_PROGRAM_READ:
        return run_local(step, check_reads);
    case SYMM_PROGRAM_DEPEND:
        return run_depend(step);
    case SYMM_PROGRAM_WAIT:
        return run_wait(step);
    default:
        if (step->stage->delay > 0)
            status = run_local(step, delay_some);
        if (status != SYMM_OK)
            return status;
        if (op_of(step)->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
            return run_norm(step);
        return op_of(step)->kind == SYMM_PROGRAM_PUT ? run_put(step)
                                                     : run_collective(step);
    }
}

/* ---- The period ------------------------------------------------------------------ */

static void abort_waits(struct perf_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->aborted = true;
    pthread_cond_broadcast(&stage->changed);
    pthread_mutex_unlock(&stage->lock);
}

/* Waits for all streams; collects the statuses of their calls. */
static int drain(struct perf_stage *stage)
{
    const double long_time = 3600; /* each call in a stream has a timeout of its own */
    int result = PERF_RIGHT;

    for (int s = stage->job->gpu ? 0 : 1; s < stage->program->stream_count; s++) {
        symm_status status =
            symm_stream_synchronize(stage->job->ctx, stage->streams[s], long_time);
        if (status != SYMM_OK && result == PERF_RIGHT)
            result = perf_job_failed(stage->job, status, stage->program->streams[s]);
    }
    for (int i = 0; i < stage->work_count; i++) {
        symm_status status = symm_work_synchronize(stage->works[i], 0);
        if (status != SYMM_OK && result == PERF_RIGHT)
            result = perf_job_failed(stage->job, status, "a call on a stream");
        symm_work_release(stage->works[i]);
    }
    stage->work_count = 0;
    return result;
}

/* The plan of a program without a loop ends with the program: other buffers may then have the
 * bytes of what came from outside, so each run begins with zeros there. */
static bool starts_anew(const struct perf_stage *stage)
{
    return stage->planned && !stage->program->loop;
}

static symm_status start_anew(struct perf_stage *stage)
{
    const symm_program *program = stage->program;
    const double begin = perf_now();

    for (int b = 0; b < program->buffer_count; b++)
        if (perf_buffer_carried(program, b) &&
            perf_job_fill(stage->job, symm_buffer_ptr(stage->buffers[b]), 0,
                          program->buffers[b].bytes))
            return SYMM_ERR_SYSTEM;
    stage->local += perf_now() - begin;
    return symm_barrier(stage->job->world, NULL, NULL);
}

/* A barrier separates two runs. A recorded program runs as it will under its plan. */
static int part_runs(struct perf_stage *stage)
{
    symm_status status = SYMM_OK;

    if ((stage->planned || stage->recorded) && !stage->program->loop)
        status = symm_barrier(stage->job->world, NULL, NULL);
    if (status == SYMM_OK && starts_anew(stage))
        status = start_anew(stage);
    return status == SYMM_OK ? PERF_RIGHT
                             : perf_job_failed(stage->job, status, "symm_barrier");
}

static int run_ops(struct perf_stage *stage)
{
    const symm_program *program = stage->program;

    for (int p = 0; p < program->op_count; p++) {
        int index = program->order[p];
        const symm_program_op *op = &program->ops[index];
        symm_status status = run_step(&stage->steps[index]);
        if (status != SYMM_OK) {
            int result =
                perf_job_failed(stage->job, status,
                                op->site ? op->site : symm_program_kind_name(op->kind));
            abort_waits(stage);
            drain(stage);
            return result;
        }
    }
    int result = drain(stage);
    return result == PERF_RIGHT ? part_runs(stage) : result;
}

int perf_stage_run(struct perf_stage *stage, uint64_t period, bool glance, double *wall,
                   double *calls)
{
    int result = PERF_RIGHT;

    stage->period = period;
    stage->glance = glance;
    stage->local = 0;
    if (perf_expect_begin(stage->expect, period))
        stage->no_memory = true;
    double begin = perf_now();
    if (stage->program->loop && symm_record_period(stage->job->world) != SYMM_OK)
        result = perf_job_failed(stage->job, SYMM_ERR_INVALID, "symm_record_period");
    if (!stage->no_memory && result == PERF_RIGHT)
        result = run_ops(stage);
    *wall = perf_now() - begin;
    *calls = *wall - stage->local;
    if (!stage->no_memory && perf_expect_end(stage->expect))
        stage->no_memory = true;
    if (starts_anew(stage))
        perf_expect_restart(stage->expect);
    return stage->no_memory ? perf_job_no_memory(stage->job) : result;
}
