/* SPDX-License-Identifier: MIT */
/*
 * run.c - what a code generator makes of run.json: its calls, over the memory and the teams
 * that the header of symm-plan emit sets up, with the algorithms that the plan names.
 *
 * Compiled with -include HEADER. Every result is compared, in each of five periods.
 */
#include <stdio.h>
#include <string.h>

#define TRY(call)                                                                      \
    do {                                                                               \
        const symm_status status_ = (call);                                            \
        if (status_ != SYMM_OK)                                                        \
            return status_;                                                            \
    } while (0)

#define COUNT 1000 /* int32 of a buffer */

static struct plan_emit_run made;
static int rank, period, wrong;

static int32_t *buffer(int index)
{
    return symm_buffer_ptr(made.buffers[index]);
}

/* Element i of what a rank of the world writes first, second or third in a period. */
static int32_t known(int of, int which, int i)
{
    return 1000000 * of + 100000 * which + 10000 * period + i;
}

static void fill(int index, int which)
{
    for (int i = 0; i < COUNT; i++)
        buffer(index)[i] = known(rank, which, i);
}

static void check(const char *what, int i, int32_t found, int32_t wanted)
{
    if (found != wanted && wrong++ == 0)
        fprintf(stderr, "rank %d, period %d: %s[%d] is %d, not %d\n", rank, period,
                what, i, (int)found, (int)wanted);
}

static symm_call call_of(int op)
{
    return (symm_call){.size = sizeof(symm_call),
                       .site = plan_emit_run_ops[op].site,
                       .algorithm =
                           symm_algorithm_name(plan_emit_run_ops[op].algorithm)};
}

/* The library has taken the algorithm that the header names. */
static void check_algorithm(const symm_call *call)
{
    const char *why = symm_explain(made.teams[plan_emit_run_group_turned]);
    char wanted[64];

    snprintf(wanted, sizeof(wanted), " took %s on ", call->algorithm);
    if (why && strstr(why, wanted))
        return;
    fprintf(stderr, "%s: not by %s: %s\n", call->site, call->algorithm, why);
    wrong++;
}

static symm_status reduce(void)
{
    const symm_call call = call_of(plan_emit_run_op_sum);

    fill(plan_emit_run_buffer_in, 1);
    TRY(symm_all_reduce(
        made.teams[plan_emit_run_group_turned], buffer(plan_emit_run_buffer_in),
        buffer(plan_emit_run_buffer_sum), COUNT, SYMM_INT32, SYMM_SUM, &call, NULL));
    check_algorithm(&call);
    for (int i = 0; i < COUNT; i++)
        check("sum", i, buffer(plan_emit_run_buffer_sum)[i],
              known(0, 1, i) + known(1, 1, i));
    return SYMM_OK;
}

static symm_status hop(void)
{
    const symm_call call = {.size = sizeof(call),
                            .site = plan_emit_run_ops[plan_emit_run_op_hop].site};
    symm_team *world = made.teams[plan_emit_run_group_world];

    fill(plan_emit_run_buffer_message, 2);
    TRY(symm_barrier(world, &call, NULL));
    TRY(symm_put_signal(world, buffer(plan_emit_run_buffer_inbox),
                        buffer(plan_emit_run_buffer_message), COUNT * sizeof(int32_t),
                        1 - rank, 0, &call, NULL));
    TRY(symm_signal_wait(world, 1 - rank, 0, &call, NULL));
    for (int i = 0; i < COUNT; i++)
        check("inbox", i, buffer(plan_emit_run_buffer_inbox)[i], known(1 - rank, 2, i));
    return SYMM_OK;
}

/* Rank 1 of the world is the first of this team. */
static symm_status gather(void)
{
    const symm_call call = call_of(plan_emit_run_op_all);

    fill(plan_emit_run_buffer_in, 3);
    TRY(symm_all_gather(
        made.teams[plan_emit_run_group_turned], buffer(plan_emit_run_buffer_in),
        buffer(plan_emit_run_buffer_all), COUNT / 2, SYMM_INT32, &call, NULL));
    check_algorithm(&call);
    for (int i = 0; i < COUNT; i++)
        check("all", i, buffer(plan_emit_run_buffer_all)[i],
              known(i < COUNT / 2, 3, i % (COUNT / 2)));
    return SYMM_OK;
}

static symm_status run(symm_team *world)
{
    TRY(plan_emit_run_set_up(world, &made));
    for (period = 0; period < 5; period++) {
        TRY(reduce());
        TRY(hop());
        TRY(gather());
    }
    plan_emit_run_tear_down(&made);
    return SYMM_OK;
}

int main(void)
{
    const symm_config config = {.size = sizeof(config), .backend = "host"};
    symm_ctx *ctx = NULL;
    symm_status status = symm_init(&config, &ctx);

    if (status == SYMM_OK) {
        rank = symm_team_rank(symm_team_world(ctx));
        status = run(symm_team_world(ctx));
    }
    if (status != SYMM_OK)
        fprintf(stderr, "rank %d: %s\n", rank, symm_last_error());
    symm_finalize(ctx);
    printf("rank %d: %d wrong\n", rank, wrong);
    return status != SYMM_OK || wrong > 0;
}
