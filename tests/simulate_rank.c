/* SPDX-License-Identifier: MIT */
/*
 * simulate_rank.c - what a rank of test_host_simulate.c does: it joins, makes the steps of the job,
 * makes teams of the survivors, and ends. Results are compared with the right ones.
 */
#include <inttypes.h>
#include <string.h>

#include "simulate.h"

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct job *job = arg;
    const double until = sim_now() + START;

    if (bytes > ENTRY)
        return 1;
    memcpy(job->entries[sim_rank()], in, bytes);
    job->given++;
    while (job->given < job->ranks) {
        sim_sleep(0.001);
        if (sim_now() > until)
            return 1;
    }
    for (int r = 0; r < job->ranks; r++)
        memcpy((char *)out + (size_t)r * bytes, job->entries[r], bytes);
    return 0;
}

/* The sum of the members' values must be in all elements. */
static symm_status sum_up(struct job *job, symm_team *team, int32_t *data, size_t count,
                          const symm_call *call)
{
    const int me = symm_team_world_rank(team, symm_team_rank(team));
    int32_t ranks = 0;
    symm_status status;

    for (size_t i = 0; i < count; i++)
        data[i] = 1000 * me + (int32_t)i;
    status = CALL(job, symm_all_reduce(team, data, data, count, SYMM_INT32, SYMM_SUM,
                                       call, NULL));
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < symm_team_size(team); m++)
        ranks += symm_team_world_rank(team, m);
    for (size_t i = 0; i < count; i++)
        if (data[i] != 1000 * ranks + symm_team_size(team) * (int32_t)i) {
            sim_blame(&job->blame, "all_reduce gave %d at %zu of %zu in a team of %d",
                      data[i], i, count, symm_team_size(team));
            break;
        }
    return SYMM_OK;
}

static symm_status step_symmetric(struct job *job, symm_team *team)
{
    const int64_t count = COUNT, stride = 1;
    symm_buffer *buffer = NULL;
    symm_status status =
        symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT32, 0, &buffer);

    if (status != SYMM_OK)
        return status;
    status = CALL(job, symm_rendezvous(team));
    if (status == SYMM_OK)
        status = sum_up(job, team, symm_buffer_ptr(buffer), COUNT, NULL);
    symm_buffer_release(buffer);
    return status;
}

/* A collective of a part of a team, which then ends. */
static symm_status use_part(struct job *job, symm_team *part)
{
    int32_t data[16];
    symm_status status = sum_up(job, part, data, 16, NULL);

    symm_team_destroy(part);
    return status;
}

static symm_status step_split(struct job *job, symm_team *team)
{
    symm_team *part = NULL;
    symm_status status =
        TIMED(job, 2 * TIMEOUT + SLACK,
              symm_team_split(team, symm_team_rank(team) % 2, 0, &part));

    return status == SYMM_OK ? use_part(job, part) : status;
}

static symm_status step_create(struct job *job, symm_team *team)
{
    const int n = symm_team_size(team), me = symm_team_rank(team);
    const int pair[2] = {0, n - 1};
    symm_team *part = NULL;
    symm_status status;

    if (n < 2 || (me != pair[0] && me != pair[1]))
        return SYMM_OK;
    status = TIMED(job, 2 * TIMEOUT + SLACK, symm_team_create(team, pair, 2, 5, &part));
    return status == SYMM_OK ? use_part(job, part) : status;
}

static symm_status step_signal(struct job *job, symm_team *team)
{
    const int n = symm_team_size(team), me = symm_team_rank(team);
    symm_status status = CALL(job, symm_signal(team, (me + 1) % n, 3, NULL, NULL));

    return status == SYMM_OK
               ? CALL(job, symm_signal_wait(team, (me + n - 1) % n, 3, NULL, NULL))
               : status;
}

static symm_status step_send(struct job *job, symm_team *team)
{
    const int n = symm_team_size(team), me = symm_team_rank(team);
    int32_t out[300], in[300];
    symm_status status = SYMM_OK;

    for (int i = 0; i < 300; i++)
        out[i] = 7 * me + i;
    for (int turn = 0; turn < 2 && status == SYMM_OK && n > 1; turn++) {
        if ((me == 0) == (turn == 0) && (me == 0 || me == n - 1))
            status = CALL(job, symm_send(team, out, 300, SYMM_INT32,
                                         me == 0 ? n - 1 : 0, NULL, NULL));
        else if (me == 0 || me == n - 1)
            status = CALL(job, symm_recv(team, in, 300, SYMM_INT32, me == 0 ? n - 1 : 0,
                                         NULL, NULL));
    }
    if (status == SYMM_OK && n > 1 && (me == 0 || me == n - 1) &&
        in[299] != 7 * (me == 0 ? n - 1 : 0) + 299)
        sim_blame(&job->blame, "a message of %d came with %d", me == 0 ? n - 1 : 0,
                  in[299]);
    return status;
}

static symm_status step_stream(struct job *job, symm_ctx *ctx, symm_team *team)
{
    symm_call call = {.size = sizeof(call)};
    int32_t data[64];
    symm_work *work = NULL;
    symm_status status = symm_stream_create(ctx, &call.stream), waited;

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < 64; i++)
        data[i] = i;
    status = CALL(
        job, symm_all_reduce(team, data, data, 64, SYMM_INT32, SYMM_MAX, &call, &work));
    if (status == SYMM_OK) {
        waited = TIMED(job, TIMEOUT + SLACK, symm_work_synchronize(work, 0));
        status = waited;
        symm_work_release(work);
    }
    if (status == SYMM_OK && data[63] != 63)
        sim_blame(&job->blame, "a queued all_reduce gave %d", data[63]);
    symm_stream_destroy(ctx, call.stream);
    return status;
}

static symm_status do_step(struct job *job, symm_ctx *ctx, symm_team *team,
                           enum step step)
{
    int32_t data[COUNT];

    switch (step) {
    case BARRIER:
        return CALL(job, symm_barrier(team, NULL, NULL));
    case SMALL:
        return sum_up(job, team, data, 2, NULL);
    case LARGE:
        return sum_up(job, team, data, COUNT, NULL);
    case SYMMETRIC:
        return step_symmetric(job, team);
    case SPLIT:
        return step_split(job, team);
    case SIGNAL:
        return step_signal(job, team);
    case STREAM:
        return step_stream(job, ctx, team);
    case SEND:
        return step_send(job, team);
    default:
        return step_create(job, team);
    }
}

/* A team of those who live, after a failure; NULL: none, or the rank does without. */
static symm_team *survive(struct job *job, symm_team *team, struct outcome *mine)
{
    symm_team *next = NULL;

    for (int tries = 0; tries < 4; tries++) {
        symm_status status = TIMED(job, (job->hosts > 1 ? 4 : 2) * TIMEOUT + SLACK,
                                   symm_team_shrink(team, &next));

        if (status == SYMM_OK)
            break;
    }
    if (next && mine->made == 0)
        mine->made_at = sim_now();
    if (next && mine->made < SHRINKS) {
        mine->members[mine->made++] = simulate_members_of(next);
        sim_note("has a team of %#" PRIx64, simulate_members_of(next));
    }
    return next;
}

static void run_steps(struct job *job, symm_ctx *ctx, struct outcome *mine)
{
    symm_team *world = symm_team_world(ctx), *team = world, *next;
    int step = 0;

    for (int losses = 0; losses < SHRINKS;) {
        symm_status status = SYMM_OK;

        while (step < job->steps && status == SYMM_OK)
            status = do_step(job, ctx, team, job->step[step++]);
        if (status == SYMM_OK)
            status = CALL(job, symm_barrier(team, NULL, NULL));
        if (status == SYMM_OK)
            mine->last = simulate_members_of(team);
        if (status == SYMM_OK || (job->quits >> sim_rank() & 1))
            break;
        losses++;
        /* Others may not know of it. That a memfd cannot be made is the system's error. */
        if ((status == SYMM_ERR_NOMEM || status == SYMM_ERR_SYSTEM) &&
            job->lacks >> sim_rank() & 1)
            (void)!symm_team_abort(team, "no memory");
        next = survive(job, team, mine);
        if (team != world)
            symm_team_destroy(team);
        team = next;
        if (!team)
            return;
        step = job->steps; /* the survivors only meet */
    }
    if (team != world)
        symm_team_destroy(team);
}

void simulate_body(int rank, void *arg)
{
    struct job *job = arg;
    struct outcome *mine = &job->outcome[rank];
    const symm_bootstrap bootstrap = {
        .size = sizeof(bootstrap), .allgather = allgather, .arg = job};
    symm_config config = {.size = sizeof(config),
                          .world_size = job->ranks,
                          .rank = rank,
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = (size_t)8 << 20,
                          .timeout = TIMEOUT,
                          .init_timeout = START};
    symm_ctx *ctx = NULL;

    if (job->way == BY_ALLGATHER)
        config.bootstrap = &bootstrap;
    else
        config.job_id = "simulated";
    for (int r = 0; r < job->ranks && job->way == BY_PORT; r++) {
        config.local_rank += job->host[r] == job->host[rank] && r < rank;
        config.local_size += job->host[r] == job->host[rank];
    }
    if (TIMED(job, 2 * START + SLACK, symm_init(&config, &ctx)) != SYMM_OK) {
        mine->ended = true;
        return;
    }
    mine->joined = true;
    run_steps(job, ctx, mine);
    if (job->hosts > 1 && mine->made > 0)
        sim_sleep(STAY); /* two sides of a network then go on at the same time */
    mine->left_at = sim_now();
    TIMED(job, 3 * TIMEOUT + SLACK, (symm_finalize(ctx), SYMM_OK));
    mine->ended = true;
}
