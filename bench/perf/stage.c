/* SPDX-License-Identifier: MIT */
/*
 * stage.c - see stage.h: opens and closes a stage. stage_run.c runs the period.
 */
#include "perf/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool allocate_arrays(struct perf_stage *stage)
{
    const symm_program *program = stage->program;
    size_t partitions = (size_t)program->partition_count,
           ops = (size_t)program->op_count + 1;
    size_t streams = (size_t)program->stream_count;

    stage->expect = perf_expect_create(program, stage->job->hosts);
    stage->teams = calloc(partitions, sizeof *stage->teams);
    stage->place = calloc(partitions, sizeof *stage->place);
    stage->streams = calloc(streams, sizeof *stage->streams);
    stage->private_out = calloc(streams, sizeof *stage->private_out);
    stage->buffers = calloc((size_t)program->buffer_count + 1, sizeof *stage->buffers);
    stage->steps = calloc(ops, sizeof *stage->steps);
    stage->works = calloc(2 * ops, sizeof *stage->works); /* a put: barrier and put */
    return stage->expect && stage->teams && stage->place && stage->streams &&
           stage->private_out && stage->buffers && stage->steps && stage->works;
}

static bool allocate_private_out(struct perf_stage *stage)
{
    const symm_program *program = stage->program;

    for (int s = 0; s < program->stream_count; s++) {
        size_t most = 0;
        for (int i = 0; i < program->op_count; i++) {
            const symm_program_op *op = &program->ops[i];
            if (op->stream == s && op->out < 0 && op->result > most &&
                op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
                most = op->result;
        }
        stage->private_out[s] = perf_job_alloc(stage->job, most + 1);
        if (!stage->private_out[s])
            return false;
    }
    return true;
}

static int make_teams(struct perf_stage *stage)
{
    const symm_program *program = stage->program;

    stage->teams[0] = stage->job->world;
    stage->place[0] = stage->job->rank;
    for (int g = 1; g < program->partition_count; g++) {
        const symm_program_partition *partition = &program->partitions[g];
        int at = symm_program_partition_find(partition, stage->job->rank);
        symm_status status;

        stage->place[g] = at % partition->length;
        status = symm_team_split(stage->job->world, at / partition->length,
                                 stage->place[g], &stage->teams[g]);
        if (status != SYMM_OK)
            return perf_job_failed(stage->job, status, program->partitions[g].name);
    }
    return PERF_RIGHT;
}

static int make_streams(struct perf_stage *stage)
{
    /* On GPUs the first stream is created, too: the default stream cannot be captured. */
    for (int s = stage->job->gpu ? 0 : 1; s < stage->program->stream_count; s++) {
        symm_status status = symm_stream_create(stage->job->ctx, &stage->streams[s]);
        if (status != SYMM_OK)
            return perf_job_failed(stage->job, status, stage->program->streams[s]);
    }
    return PERF_RIGHT;
}

/* Allocates all buffers, then one rendezvous. Buffers, like the reference, begin zeroed. */
static int make_buffers(struct perf_stage *stage)
{
    const symm_program *program = stage->program;
    symm_team *world = stage->job->world;
    symm_status status;

    for (int b = 0; b < program->buffer_count; b++) {
        const symm_program_buffer *buffer = &program->buffers[b];
        status =
            symm_empty_strided_p2p(world, buffer->ndim, buffer->shape, buffer->stride,
                                   buffer->dtype, buffer->alloc_id, &stage->buffers[b]);
        if (status != SYMM_OK) {
            int result = perf_job_failed(stage->job, status, buffer->name);
            /* The plan has another size for the buffer. */
            return status == SYMM_ERR_MISMATCH ? PERF_REFUSED : result;
        }
    }
    status = symm_rendezvous(world);
    if (status != SYMM_OK)
        return perf_job_failed(stage->job, status, "symm_rendezvous");
    for (int b = 0; b < program->buffer_count; b++)
        if (perf_job_fill(stage->job, symm_buffer_ptr(stage->buffers[b]), 0,
                          program->buffers[b].bytes))
            return PERF_FAILED;
    for (int b = 0; b < program->buffer_count && status == SYMM_OK; b++)
        /* under SYMM_RECORD: every access will be reported */
        status = symm_record_read(world, symm_buffer_ptr(stage->buffers[b]), 0, NULL);
    if (status == SYMM_OK)
        status = symm_barrier(world, NULL, NULL);
    if (status != SYMM_OK)
        return perf_job_failed(stage->job, status, "symm_barrier");
    return PERF_RIGHT;
}

/* Of the largest array that the op writes. */
static size_t result_bytes(const symm_program *program, const symm_program_op *op)
{
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];
    size_t most = op->result;

    if (op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
        return most;
    perf_norm_list(program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++)
        if (arrays[a].written && arrays[a].bytes > most)
            most = arrays[a].bytes;
    return most;
}

/* The arrays of an op that are no buffers lie in one block, each as aligned as a buffer. */
static size_t place_norm(struct perf_stage *stage, const symm_program_op *op,
                         char *block, void *at[PERF_NORM_ARRAYS])
{
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];
    size_t bytes = 0;

    perf_norm_list(stage->program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++) {
        const int buffer = arrays[a].where.buffer;
        at[a] = NULL;
        if (!arrays[a].where.given)
            continue;
        if (buffer >= 0) {
            at[a] = symm_buffer_ptr(stage->buffers[buffer]);
            continue;
        }
        at[a] = block ? block + bytes : NULL;
        bytes += (arrays[a].bytes + SYMM_PLAN_ALIGNMENT - 1) / SYMM_PLAN_ALIGNMENT *
                 SYMM_PLAN_ALIGNMENT;
    }
    return bytes;
}

/* Fills those that are read; zeroes the others. */
static int fill_norm(struct perf_stage *stage, const symm_program_op *op,
                     struct perf_step *step, size_t bytes)
{
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];
    void *filled;
    int result = perf_job_fill(stage->job, step->private_norm, 0, bytes) ? PERF_FAILED
                                                                         : PERF_RIGHT;

    perf_norm_list(stage->program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS && result == PERF_RIGHT; a++) {
        if (!arrays[a].where.given || arrays[a].where.buffer >= 0 || arrays[a].written)
            continue;
        filled = malloc(arrays[a].bytes);
        if (!filled)
            return perf_job_no_memory(stage->job);
        perf_norm_fill(&arrays[a], filled);
        if (perf_job_copy(stage->job, step->norm_at[a], filled, arrays[a].bytes))
            result = PERF_FAILED;
        free(filled);
    }
    return result;
}

static int make_norms(struct perf_stage *stage)
{
    int result = PERF_RIGHT;

    for (int i = 0; i < stage->program->op_count && result == PERF_RIGHT; i++) {
        const symm_program_op *op = &stage->program->ops[i];
        struct perf_step *step = &stage->steps[i];
        size_t bytes;

        if (op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
            continue;
        bytes = place_norm(stage, op, NULL, step->norm_at);
        if (bytes > 0) {
            step->private_norm = perf_job_alloc(stage->job, bytes);
            if (!step->private_norm)
                return perf_job_no_memory(stage->job);
            place_norm(stage, op, step->private_norm, step->norm_at);
            result = fill_norm(stage, op, step, bytes);
        }
    }
    return result;
}

/* On GPUs: host memory for one write or check at a time. */
static int make_staging(struct perf_stage *stage)
{
    const symm_program *program = stage->program;
    size_t most = 1;

    if (!stage->job->gpu)
        return PERF_RIGHT;
    for (int b = 0; b < program->buffer_count; b++)
        if (program->buffers[b].bytes > most)
            most = program->buffers[b].bytes;
    for (int i = 0; i < program->op_count; i++) {
        const size_t result = result_bytes(program, &program->ops[i]);
        if (result > most)
            most = result;
    }
    stage->staging = malloc(most);
    return stage->staging ? PERF_RIGHT : perf_job_no_memory(stage->job);
}

/*
 * Under a plan: may the result of this op be checked right after the op, or after the wait
 * for it? A collective's result has arrived only where the program reads it, and is checked
 * there. A put's has arrived, but its bytes may already be another buffer's if no op reads it.
 */
static bool is_looked_at(const symm_program *program, int index)
{
    const symm_program_op *op = &program->ops[index];

    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return true; /* check_norm looks at memory of the rank's own alone */
    if (op->kind != SYMM_PROGRAM_WAIT)
        return op->out < 0;
    int buffer = program->ops[op->put].out;
    for (int k = 1; k <= program->op_count; k++) {
        const symm_program_op *next = &program->ops[(index + k) % program->op_count];
        if (perf_op_reads(program, next, buffer))
            return true;
        if (perf_op_writes(program, next, buffer))
            return false;
    }
    return false;
}

/* Whether what a put of a rank to itself has brought is overwritten before the wait for it. */
static bool is_overwritten(const symm_program *program, int wait)
{
    const int put = program->ops[wait].put, *at = program->order;

    while (*at != put)
        at++;
    for (at++; *at != wait; at++)
        if (perf_op_writes(program, &program->ops[*at], program->ops[put].out))
            return true;
    return false;
}

/* Whether a variable of symm_env(7) is set. */
static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

int perf_stage_open(struct perf_stage *stage, const struct perf_job *job,
                    const struct perf_options *options, const symm_program *program)
{
    int result;

    *stage = (struct perf_stage){.job = job,
                                 .program = program,
                                 .delay = options->delay,
                                 .planned = options->plan || is_set("SYMM_PLAN"),
                                 .recorded = is_set("SYMM_RECORD")};
    pthread_mutex_init(&stage->lock, NULL);
    pthread_cond_init(&stage->changed, NULL);
    if (!allocate_arrays(stage) || !allocate_private_out(stage)) {
        result = perf_job_no_memory(stage->job);
        goto err_close;
    }
    for (int i = 0; i < program->op_count; i++) {
        stage->steps[i].stage = stage;
        stage->steps[i].op = i;
        stage->steps[i].random = (uint64_t)i * 1000003 + (uint64_t)job->rank + 1;
        stage->steps[i].looks =
            (!stage->planned || is_looked_at(program, i)) &&
            (program->ops[i].kind != SYMM_PROGRAM_WAIT || !is_overwritten(program, i));
    }
    result = make_teams(stage);
    if (result == PERF_RIGHT)
        result = make_streams(stage);
    if (result == PERF_RIGHT)
        result = make_buffers(stage);
    if (result == PERF_RIGHT)
        result = make_norms(stage);
    if (result == PERF_RIGHT)
        result = make_staging(stage);
    if (result == PERF_RIGHT)
        return PERF_RIGHT;

err_close:
    perf_stage_close(stage);
    return result;
}

void perf_stage_close(struct perf_stage *stage)
{
    const symm_program *program = stage->program;

    for (int i = 0; stage->works && i < stage->work_count; i++)
        symm_work_release(stage->works[i]);
    for (int s = 0; stage->streams && s < program->stream_count; s++)
        if (stage->streams[s])
            symm_stream_destroy(stage->job->ctx, stage->streams[s]);
    for (int b = 0; stage->buffers && b < program->buffer_count; b++)
        symm_buffer_release(stage->buffers[b]);
    for (int g = program->partition_count - 1; stage->teams && g > 0; g--)
        if (stage->teams[g])
            symm_team_destroy(stage->teams[g]);
    for (int s = 0; stage->private_out && s < program->stream_count; s++)
        perf_job_free(stage->job, stage->private_out[s]);
    for (int i = 0; stage->steps && i < program->op_count; i++)
        perf_job_free(stage->job, stage->steps[i].private_norm);
    perf_expect_destroy(stage->expect);
    free(stage->teams);
    free(stage->place);
    free(stage->streams);
    free(stage->private_out);
    free(stage->buffers);
    free(stage->steps);
    free(stage->works);
    free(stage->staging);
    pthread_cond_destroy(&stage->changed);
    pthread_mutex_destroy(&stage->lock);
}
