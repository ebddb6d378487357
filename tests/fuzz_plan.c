/* SPDX-License-Identifier: MIT */
/*
 * fuzz_plan.c - arbitrary text as programs and plans (fuzz.h).
 *
 * The input is a program, or a plan, or a program, a NUL and a plan. Nothing may crash or
 * leak. Parsed input, written and parsed again, must be the same. The checker must prove a
 * plan that the planner makes of a small program.
 */
#include "fuzz.h"
#include "symm/plan.h"

static symm_plan *read_plan(const char *text, size_t length)
{
    symm_plan *plan, *again;
    char *written, *rewritten;
    size_t bytes, rebytes;
    uint64_t hash;

    if (symm_plan_parse(text, length, "fuzz", &plan) != SYMM_OK)
        return NULL;
    fuzz_must(symm_plan_hash(plan, &hash) == SYMM_OK, "hash", symm_last_error());
    fuzz_must(symm_plan_format(plan, &written, &bytes) == SYMM_OK, "format",
              symm_last_error());
    fuzz_must(symm_plan_parse(written, bytes, "again", &again) == SYMM_OK,
              "parse again", symm_last_error());
    fuzz_must(symm_plan_format(again, &rewritten, &rebytes) == SYMM_OK, "format again",
              symm_last_error());
    fuzz_must(bytes == rebytes && memcmp(written, rewritten, bytes) == 0,
              "formats differ", rewritten);
    symm_text_free(written);
    symm_text_free(rewritten);
    symm_plan_destroy(again);
    return plan;
}

static bool is_small(const symm_program *program)
{
    return program->world <= 8 && program->op_count <= 40 &&
           program->buffer_count <= 40;
}

static void plan_and_check(symm_program *program)
{
    const symm_plan_options options = {
        .size = sizeof(options), .greedy = true, .time_limit = 0.1};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *plan;

    if (!is_small(program) || symm_plan_make(program, &options, &plan) != SYMM_OK)
        return;
    fuzz_must(symm_plan_check(program, plan, &report) == SYMM_OK, "check",
              symm_last_error());
    fuzz_must(report.safe, "the planner's plan", report.first);
    symm_plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *split = memchr(data, 0, size);
    const size_t length = split ? (size_t)(split - text) : size;
    symm_plan_report report = {.size = sizeof(report)};
    symm_program *program = NULL;
    symm_plan *plan;

    if (symm_program_parse(text, length, "fuzz", &program) != SYMM_OK)
        program = NULL;
    plan = split ? read_plan(split + 1, size - length - 1) : read_plan(text, size);
    if (program)
        plan_and_check(program);
    if (program && plan && is_small(program))
        fuzz_must(symm_plan_check(program, plan, &report) == SYMM_OK, "check",
                  symm_last_error());
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    return 0;
}
