/* SPDX-License-Identifier: MIT */
/*
 * symm_plan.c - the tool symm-plan: picks the command.
 */
#include "symm_plan.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *does;
    int (*run)(int argc, char **argv); /* argv[0]: "symm-plan COMMAND" */
} commands[] = {
    {"plan", "the plan of a program: offsets, algorithms, barriers, proof",
     symm_plan_plan},
    {"check", "proves a plan against its program", symm_plan_do_check},
    {"emit", "C source that makes the calls of a program, for its plan",
     symm_plan_emit},
    {"pack", "offsets for a CSV file of lifetimes", symm_plan_pack},
};

/* getopt begins its messages with argv[0]. */
static int run_command(size_t command, int argc, char **argv)
{
    char name[32];

    snprintf(name, sizeof(name), "symm-plan %s", commands[command].name);
    argv[0] = name;
    return commands[command].run(argc, argv);
}

static void print_help(FILE *file)
{
    fprintf(file, "usage: symm-plan COMMAND [OPTION]...\n\n"
                  "Plans the memory of programs of collectives ahead of time.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(file, "  %-6s %s\n", commands[i].name, commands[i].does);
    fprintf(file, "\nsymm-plan COMMAND --help lists a command's options.\n"
                  "Exit status: 0 done, 1 the answer is no, 2 wrong usage or input.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return PLAN_TOOL_WRONG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return PLAN_TOOL_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("symm-plan %s\n", symm_version());
        return PLAN_TOOL_DONE;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run_command(i, argc - 1, argv + 1);
    fprintf(stderr, "symm-plan: found the command '%s', allowed:", argv[1]);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(stderr, " %s", commands[i].name);
    fprintf(stderr, "\n");
    return PLAN_TOOL_WRONG;
}
