/* SPDX-License-Identifier: MIT */
/*
 * check.c - the command `check`: proves a plan against its program.
 *
 * Exit status 0 and the count of proved pairs; 1 and what is not proved, on standard
 * output; 2 if a file cannot be read or the check cannot be made.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static int cannot(void)
{
    fprintf(stderr, "symm-plan check: %s\n", symm_last_error());
    return PLAN_TOOL_WRONG;
}

static int check_files(const char *program_path, const char *plan_path)
{
    symm_plan_report report = {.size = sizeof(report)};
    symm_program *program;
    symm_plan *plan;
    int status;

    if (!symm_plan_one_input("check", program_path, plan_path) ||
        !symm_plan_get_program("check", program_path, &program))
        return PLAN_TOOL_WRONG;
    if (!symm_plan_get_plan("check", plan_path, &plan)) {
        symm_program_destroy(program);
        return PLAN_TOOL_WRONG;
    }
    if (symm_plan_check(program, plan, &report) != SYMM_OK) {
        status = cannot();
    } else if (report.safe) {
        printf("%s: safe; %" PRIu64 " pairs of accesses proved\n", plan_path,
               report.proved);
        status = PLAN_TOOL_DONE;
    } else {
        printf("%s: not proved: %s\n", plan_path, report.first);
        status = PLAN_TOOL_NO;
    }
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "symm-plan check: standard output cannot be written\n");
        return PLAN_TOOL_WRONG;
    }
    return status;
}

int symm_plan_do_check(int argc, char **argv)
{
    bool options = true;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return PLAN_TOOL_DONE;
    }
    if (argc > 1 && strcmp(argv[1], "--") == 0) { /* no options come behind it */
        argc--;
        argv++;
        options = false;
    }
    for (int i = 1; options && i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            fprintf(stderr, "symm-plan check: found option '%s', allowed: --help\n",
                    argv[i]);
            return PLAN_TOOL_WRONG;
        }
    if (argc != 3) {
        fprintf(stderr, "symm-plan check: found %d files, allowed: 2\n%s", argc - 1,
                usage);
        return PLAN_TOOL_WRONG;
    }
    return check_files(argv[1], argv[2]);
}
