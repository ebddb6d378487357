/* SPDX-License-Identifier: MIT */
/*
 * check.c - the command `check`: proves a plan against its program.
 *
 * Exit status 0 and the count of proved pairs; 1 and what is not proved, on standard
 * output; 2 if a file cannot be read or the check cannot be made.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tool/symm_plan.h"

static const char usage[] =
    "usage: symm-plan check PROGRAM.json PLAN.json\n\n"
    "Proves that under the plan every read finds what the program means it to find, by "
    "a\n"
    "checker that shares no code with the planner. Prints how many pairs of accesses "
    "to\n"
    "the same bytes it proved to be ordered, or the first that is not.\n"
    "Exit status: 0 proved, 1 not proved, 2 wrong usage or a file that cannot be "
    "read.\n";

static int check_files(const char *program_path, const char *plan_path)
{
    symm_plan_report report = {.size = sizeof(report)};
    symm_program *program = NULL;
    symm_plan *plan = NULL;
    int status = PLAN_TOOL_WRONG;
    const bool read = symm_plan_one_input("check", program_path, plan_path) &&
                      symm_plan_get_program("check", program_path, &program) &&
                      symm_plan_get_plan("check", plan_path, &plan);

    if (read && symm_plan_check(program, plan, &report) != SYMM_OK) {
        fprintf(stderr, "symm-plan check: %s\n", symm_last_error());
    } else if (read && report.safe) {
        printf("%s: safe; %" PRIu64 " pairs of accesses proved\n", plan_path,
               report.proved);
        status = PLAN_TOOL_DONE;
    } else if (read) {
        printf("%s: not proved: %s\n", plan_path, report.first);
        status = PLAN_TOOL_NO;
    }
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    return status;
}

int symm_plan_do_check(int argc, char **argv)
{
    bool help = false;
    struct args_option options[] = {ARGS_ROW("help", 'h', ARGS_STOP, &help)};
    int status, word = symm_plan_read_options(argc, argv, options, 1, usage, &status);

    if (word < 0)
        return status;
    if (argc - word != 2) {
        fprintf(stderr, "symm-plan check: found %d files, allowed: 2\n%s", argc - word,
                usage);
        return PLAN_TOOL_WRONG;
    }
    return check_files(argv[word], argv[word + 1]);
}
