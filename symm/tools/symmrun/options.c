/* SPDX-License-Identifier: MIT */
/*
 * options.c - the command line of symmrun.
 *
 * Options end at the program's name (or at "--"): what follows is the program's own. A
 * mistake is one sentence on stderr and exit status 2, and nothing has been started.
 */
#include "tools/symmrun/symmrun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/address.h"
#include "symm/symm.h"
#include "tools/common/args.h"

static const char usage[] =
    "Usage: symmrun -n N [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
    "Starts N ranks of PROGRAM on this host, with torchrun's variables, and waits for "
    "them.\n"
    "\n"
    "  -n, --nproc-per-node N  number of ranks (1 to 4096)\n"
    "      --nnodes K          the job has K nodes with N ranks each (1)\n"
    "      --node-rank I       which of them this is, from 0\n"
    "      --rendezvous H:P    where node 0 listens (also --rdzv-endpoint); "
    "SYMM_SECRET\n"
    "                          must be alike on all nodes\n"
    "      --log-dir DIR       write DIR/rank3.out, DIR/rank3.err instead of printing\n"
    "      --tee               with --log-dir: print, too\n"
    "      --timeout S         end the job after S seconds, with exit status 124\n"
    "      --grace S           after the first failure the others have S seconds (5)\n"
    "      --bind core|none    bind each rank to its share of the cores (core)\n"
    "      --no-prefix         print lines without their rank\n"
    "  -v, --verbose           say more on stderr\n"
    "  -h, --help              show this help\n"
    "  -V, --version           show the version\n"
    "\n"
    "Exit status: 0 if all ranks end with 0, else the first failed rank's (128 + "
    "signal);\n"
    "124 after --timeout, 127 if PROGRAM cannot be run, 2 for a wrong command line, 1 "
    "if\n"
    "symmrun itself fails.\n";

static int refuse(const char *sentence)
{
    fprintf(stderr, "symmrun: %s\n", sentence);
    return 2;
}

/* 32 hex digits, if there are any. */
static bool is_secret(const char *text)
{
    return !text || !*text ||
           (strlen(text) == 2 * SYMMRUN_SECRET_BYTES &&
            strspn(text, "0123456789abcdefABCDEF") == 2 * SYMMRUN_SECRET_BYTES);
}

/* -1: the options that name nodes fit together. */
static int check_nodes(const struct symmrun_options *options)
{
    const char *secret = getenv("SYMM_SECRET"), *wrong = NULL;

    if (options->nodes == 1 && options->node < 0 && !options->rendezvous)
        return -1;
    if (options->node < 0)
        wrong = "--node-rank is missing: which of the nodes is this?";
    else if (options->node >= options->nodes)
        wrong = "--node-rank must be below --nnodes";
    else if (options->nodes > 1 && !options->rendezvous)
        wrong = "--rendezvous is missing: at which HOST:PORT does node 0 listen?";
    else if (options->nodes > SYMMRUN_RANKS_MAX / options->ranks)
        wrong = "more than 4096 ranks over all nodes";
    else if (options->nodes > 1 && !is_secret(secret))
        wrong = "SYMM_SECRET (not shown) must be 32 hex digits";
    else if (options->nodes > 1 && options->node > 0 && (!secret || !*secret))
        wrong = "SYMM_SECRET is missing: set it alike on all nodes, or to what node 0 "
                "shows";
    if (!wrong && options->nodes > 1 && !symm__address_has_port(options->rendezvous)) {
        fprintf(
            stderr,
            "symmrun: --rendezvous: found '%s', allowed: HOST:PORT, the port a number "
            "from 1 to 65535\n",
            options->rendezvous);
        return 2;
    }
    /* A log file keeps what it is given, and others may read it. */
    if (!wrong && options->nodes > 1 && (!secret || !*secret) && !isatty(STDERR_FILENO))
        wrong = "SYMM_SECRET is missing: set it alike on all nodes; node 0 makes one "
                "only where it can show it on a terminal, and stderr is none";
    return wrong ? refuse(wrong) : -1;
}

int symmrun_options_parse(struct symmrun_options *options, int argc, char **argv)
{
    static const int most = SYMMRUN_RANKS_MAX;
    const char *bind = "core";
    bool no_prefix = false, help = false, version = false;
    struct args_option table[] = {
        ARGS_ROW("nproc-per-node", 'n', ARGS_INTEGER, &options->ranks, .low = 1,
                 .high = most, .once = true),
        ARGS_ROW("nnodes", 0, ARGS_INTEGER, &options->nodes, .low = 1, .high = 1024),
        ARGS_ROW("node-rank", 0, ARGS_INTEGER, &options->node, .high = 1023),
        ARGS_ROW("rendezvous", 0, ARGS_TEXT, &options->rendezvous),
        ARGS_ROW("rdzv-endpoint", 0, ARGS_TEXT, &options->rendezvous),
        ARGS_ROW("log-dir", 0, ARGS_TEXT, &options->log_dir),
        ARGS_ROW("tee", 0, ARGS_FLAG, &options->tee),
        ARGS_ROW("timeout", 0, ARGS_NUMBER, &options->timeout, .high = 1e9,
                 .words = "seconds"),
        ARGS_ROW("grace", 0, ARGS_NUMBER_OR_0, &options->grace, .high = 1e9,
                 .words = "seconds"),
        ARGS_ROW("bind", 0, ARGS_CHOICE, &bind, .words = "core, none"),
        ARGS_ROW("no-prefix", 0, ARGS_FLAG, &no_prefix),
        ARGS_ROW("verbose", 'v', ARGS_FLAG, &options->verbose),
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("version", 'V', ARGS_STOP, &version),
    };
    char error[256];

    *options = (struct symmrun_options){.grace = 5, .nodes = 1, .node = -1};
    int word = args_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), true,
                          error, sizeof(error));
    if (help)
        fputs(usage, stdout);
    if (version)
        printf("symmrun %s\n", symm_version());
    if (help || version)
        return args_flush("symmrun") ? 0 : 1;
    if (word < 0) {
        /* mpirun's -np 2 is read as -n p */
        bool mpirun = strncmp(error, "-n: found 'p'", 13) == 0;
        fprintf(stderr, "symmrun: %s%s\nTry 'symmrun --help'.\n", error,
                mpirun ? " (-np 2 is -n 2 here)" : "");
        return 2;
    }
    options->bind = strcmp(bind, "core") == 0;
    options->prefix = !no_prefix;
    if (options->ranks == 0)
        return refuse("-n is missing: how many ranks?\nTry 'symmrun --help'.");
    if (options->log_dir && !*options->log_dir)
        return refuse("--log-dir: found '', allowed: the name of a directory");
    if (options->tee && !options->log_dir)
        return refuse("--tee is for use with --log-dir");
    if (word >= argc)
        return refuse("no program is given\nTry 'symmrun --help'.");
    options->program = argv + word;
    if (check_nodes(options) >= 0)
        return 2;
    if (options->nodes == 1)
        options->node = 0;
    return -1;
}
