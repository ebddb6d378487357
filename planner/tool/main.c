/* SPDX-License-Identifier: MIT */
/*
 * main.c - the tool symm-plan: picks the command.
 *
 * Guarantees: output that is lost is an error, whatever the command.
 */
#include "tool/symm_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
                  "A file named - is standard input, or standard output.\n"
                  "Exit status: 0 done, 1 the answer is no, 2 wrong usage or input.\n");
}

/*
 * A stream that was closed gets a descriptor that cannot be written: a file that is opened
 * later must not get its number, and with it what is printed. A limit on the size of files
 * is an error of write(2) instead of a signal.
 */
static void guard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
}

/* A command that has failed has said why already. */
static int flush_output(int status)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status == PLAN_TOOL_WRONG)
        return status;
    fprintf(stderr, "symm-plan: standard output cannot be written: %s\n",
            strerror(errno));
    return PLAN_TOOL_WRONG;
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
    guard_streams();
    return flush_output(run(argc, argv));
}
