/* SPDX-License-Identifier: MIT */
/*
 * main.c - the tool symm-plan: picks the command.
 *
 * Guarantees: output that is lost is an error, whatever the command.
 */
#include "tool/symm_plan.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *does;
    int (*run)(int argc, char **argv); /* argv[0]: "symm-plan COMMAND" */
} commands[] = {
    {"plan", "the plan of a program: offsets, algorithms, barriers, proof",
     symm_plan_plan},
    {"check", "proves a plan against its program", symm_plan_do_check},
    {"emit", "a C header of a plan, for code generators", symm_plan_emit},
    {"merge", "one program of what the ranks of a job have recorded", symm_plan_merge},
    {"pack", "offsets for a CSV file of lifetimes", symm_plan_pack},
};

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
                  "A file named - is standard input, or standard output.\n"
                  "Exit status: 0 done, 1 the answer is no, 2 wrong usage or input.\n");
}

int symm_plan_read_options(int argc, char **argv, struct args_option *options,
                           int count, const char *usage, int *status)
{
    char error[256];
    int word = args_parse(argc, argv, options, count, false, error, sizeof(error));

    *status = PLAN_TOOL_WRONG;
    if (word < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], error);
    } else if (options[0].given) {
        fputs(usage, stdout);
        *status = PLAN_TOOL_DONE;
        word = -1;
    }
    return word;
}

static int run(int argc, char **argv)
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

int main(int argc, char **argv)
{
    args_guard_streams();
    int status = run(argc, argv);
    return args_flush("symm-plan") ? status : PLAN_TOOL_WRONG;
}
