/* SPDX-License-Identifier: MIT */
/*
 * set_up.c - sets a rank up by any header of symm-plan emit, and compares all that the
 * header says with the program and the plan that it was made of.
 *
 * Compiled with -include HEADER, and PLAN and CAPITALS as its two prefixes.
 * Usage: set_up PROGRAM.json PLAN.json
 */
#include <stdio.h>
#include <string.h>

#define JOIN_AGAIN(a, b) a##b
#define JOIN(a, b)       JOIN_AGAIN(a, b)
#define NAME(rest)       JOIN(PLAN, rest)
#define CONSTANT(rest)   JOIN(CAPITALS, rest)

static int failures;

static void expect(bool good, const char *what, int index)
{
    if (good)
        return;
    fprintf(stderr, "%s [%d] is wrong\n", what, index);
    failures++;
}

static void check_constants(const symm_program *program, const symm_plan *plan)
{
    uint64_t hash;

    expect(symm_program_hash(program, &hash) == SYMM_OK &&
               hash == CONSTANT(_PROGRAM_HASH),
           "PROGRAM_HASH", 0);
    expect(plan->has_run_hash && plan->run_hash == CONSTANT(_RUN_HASH), "RUN_HASH", 0);
    expect(plan->has_plan_hash && plan->plan_hash == CONSTANT(_PLAN_HASH), "PLAN_HASH",
           0);
    expect(plan->world == CONSTANT(_WORLD), "WORLD", 0);
    expect(plan->loop == CONSTANT(_LOOP), "LOOP", 0);
    expect(plan->arena_bytes == CONSTANT(_ARENA_BYTES), "ARENA_BYTES", 0);
    expect(program->partition_count == CONSTANT(_GROUPS), "GROUPS", 0);
    expect(plan->buffer_count == CONSTANT(_BUFFERS), "BUFFERS", 0);
    expect(plan->op_count == CONSTANT(_OPS), "OPS", 0);
}

static void check_ops(const symm_plan *plan)
{
    for (int i = 0; i < plan->op_count; i++) {
        const symm_plan_op *op = &NAME(_ops)[i], *wanted = &plan->ops[i];

        expect(strcmp(op->site, wanted->site) == 0, "site", i);
        expect(op->algorithm == wanted->algorithm, "algorithm", i);
        expect(op->channel == wanted->channel, "channel", i);
        expect(op->entry_barrier == wanted->entry_barrier, "entry_barrier", i);
        expect(op->exit_barrier == wanted->exit_barrier, "exit_barrier", i);
    }
}

static void check_buffers(const symm_program *program, const symm_plan *plan,
                          const struct PLAN *made)
{
    for (int b = 0; b < plan->buffer_count; b++) {
        const char *at = symm_buffer_ptr(made->buffers[b]);
        const char *first = symm_buffer_ptr(made->buffers[0]);

        expect(NAME(_buffers)[b].offset == plan->buffers[b].offset, "offset", b);
        expect((size_t)(at - first) ==
                   NAME(_buffers)[b].offset - NAME(_buffers)[0].offset,
               "place", b);
        expect(symm_buffer_bytes(made->buffers[b]) == program->buffers[b].bytes,
               "bytes", b);
    }
}

static void check_teams(const symm_program *program, const struct PLAN *made, int rank)
{
    for (int g = 0; g < program->partition_count; g++) {
        const symm_program_partition *partition = &program->partitions[g];

        expect(symm_team_size(made->teams[g]) == partition->length, "team size", g);
        expect(symm_team_rank(made->teams[g]) ==
                   symm_program_partition_find(partition, rank) % partition->length,
               "team rank", g);
    }
}

int main(int argc, char **argv)
{
    const symm_config config = {.size = sizeof(config), .backend = "host"};
    symm_program *program;
    symm_plan *plan;
    symm_ctx *ctx;
    struct PLAN made;

    if (argc != 3 || symm_program_read(argv[1], &program) != SYMM_OK ||
        symm_plan_read(argv[2], &plan) != SYMM_OK ||
        symm_init(&config, &ctx) != SYMM_OK ||
        NAME(_set_up)(symm_team_world(ctx), &made) != SYMM_OK) {
        fprintf(stderr, "set_up: %s\n", symm_last_error());
        return 1;
    }
    check_constants(program, plan);
    check_ops(plan);
    check_buffers(program, plan, &made);
    check_teams(program, &made, symm_team_rank(symm_team_world(ctx)));
    NAME(_tear_down)(&made);
    expect(made.teams[0] == NULL, "teams after tear_down", 0);
    symm_finalize(ctx);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    printf("set up, %d wrong\n", failures);
    return failures > 0;
}
