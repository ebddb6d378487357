/* SPDX-License-Identifier: MIT */
/*
 * options.c - the command line of symmrun.
 *
 * Options end at the program's name (or at "--"): what follows is the program's own. A
 * mistake is one sentence on stderr and exit status 2, and nothing has been started.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/address.h"
#include "symm/symm.h"

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

enum {
    LOG_DIR = 256,
    TEE,
    TIMEOUT,
    GRACE,
    BIND,
    NO_PREFIX,
    NPROC,
    NNODES,
    NODE_RANK,
    RENDEZVOUS
};

static const struct option long_options[] = {
    {"nproc-per-node", required_argument, NULL, NPROC},
    {"nnodes", required_argument, NULL, NNODES},
    {"node-rank", required_argument, NULL, NODE_RANK},
    {"rendezvous", required_argument, NULL, RENDEZVOUS},
    {"rdzv-endpoint", required_argument, NULL, RENDEZVOUS},
    {"log-dir", required_argument, NULL, LOG_DIR},
    {"tee", no_argument, NULL, TEE},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"grace", required_argument, NULL, GRACE},
    {"bind", required_argument, NULL, BIND},
    {"no-prefix", no_argument, NULL, NO_PREFIX},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static int refuse(const char *option, const char *value, const char *form)
{
    fprintf(stderr, "symmrun: %s '%s': must be %s\n", option, value, form);
    return 2;
}

static int parse_ranks(const char *option, const char *text, int *ranks)
{
    int value = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9' && value <= SYMMRUN_RANKS_MAX; c++)
        value = 10 * value + (*c - '0');
    if (*c != '\0' || value < 1 || value > SYMMRUN_RANKS_MAX)
        return refuse(option, text,
                      *text == 'p' ? "a number from 1 to 4096 (-np 2 is -n 2 here)"
                                   : "a number from 1 to 4096");
    if (*ranks != 0 && *ranks != value) {
        fprintf(stderr,
                "symmrun: %d ranks or %d? -n and --nproc-per-node are one option\n",
                *ranks, value);
        return 2;
    }
    *ranks = value;
    return -1;
}

/* Digits and at most one point; not strtod, whose point depends on the locale. */
static int parse_seconds(const char *option, const char *text, bool zero,
                         double *seconds)
{
    static const char form[] = "seconds, as 30 or 0.5";
    double value = 0, unit = 0.1;
    int digits = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9'; c++, digits++)
        value = 10 * value + (*c - '0');
    if (*c == '.') {
        for (c++; *c >= '0' && *c <= '9'; c++, digits++) {
            value += unit * (*c - '0');
            unit /= 10;
        }
    }
    if (*c != '\0' || digits == 0 || value > 1e9)
        return refuse(option, text, form);
    if (!zero && !(value > 0))
        return refuse(option, text, "above 0 seconds");
    *seconds = value;
    return -1;
}

static int parse_bind(const char *text, bool *bind)
{
    if (strcmp(text, "core") != 0 && strcmp(text, "none") != 0)
        return refuse("--bind", text, "core or none");
    *bind = strcmp(text, "core") == 0;
    return -1;
}

static int parse_number(const char *option, const char *text, int low, int high,
                        int *number)
{
    int value = 0;
    const char *c = text;
    char form[48];

    for (; *c >= '0' && *c <= '9' && value <= high; c++)
        value = 10 * value + (*c - '0');
    snprintf(form, sizeof(form), "a number from %d to %d", low, high);
    if (*c != '\0' || c == text || value < low || value > high)
        return refuse(option, text, form);
    *number = value;
    return -1;
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
    if (!wrong && options->nodes > 1 && !symm__address_has_port(options->rendezvous))
        return refuse("--rendezvous", options->rendezvous,
                      "HOST:PORT, the port a number from 1 to 65535");
    /* A log file keeps what it is given, and others may read it. */
    if (!wrong && options->nodes > 1 && (!secret || !*secret) && !isatty(STDERR_FILENO))
        wrong = "SYMM_SECRET is missing: set it alike on all nodes; node 0 makes one "
                "only where it can show it on a terminal, and stderr is none";
    if (!wrong)
        return -1;
    fprintf(stderr, "symmrun: %s\n", wrong);
    return 2;
}

/* The exit status after what was printed on stdout. */
static int end_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "symmrun: stdout: %s\n", strerror(errno));
    return 1;
}

static int parse_one(struct symmrun_options *options, int option)
{
    switch (option) {
    case NNODES:
        return parse_number("--nnodes", optarg, 1, 1024, &options->nodes);
    case NODE_RANK:
        return parse_number("--node-rank", optarg, 0, 1023, &options->node);
    case RENDEZVOUS:
        options->rendezvous = optarg;
        return -1;
    case 'n':
        return parse_ranks("-n", optarg, &options->ranks);
    case NPROC:
        return parse_ranks("--nproc-per-node", optarg, &options->ranks);
    case LOG_DIR:
        options->log_dir = optarg;
        return *optarg ? -1 : refuse("--log-dir", optarg, "the name of a directory");
    case TEE:
        options->tee = true;
        return -1;
    case TIMEOUT:
        return parse_seconds("--timeout", optarg, false, &options->timeout);
    case GRACE:
        return parse_seconds("--grace", optarg, true, &options->grace);
    case BIND:
        return parse_bind(optarg, &options->bind);
    case NO_PREFIX:
        options->prefix = false;
        return -1;
    case 'v':
        options->verbose = true;
        return -1;
    case 'h':
        fputs(usage, stdout);
        return end_output();
    case 'V':
        printf("symmrun %s\n", symm_version());
        return end_output();
    }
    fputs("Try 'symmrun --help'.\n", stderr); /* getopt has said what is wrong */
    return 2;
}

int symmrun_options_parse(struct symmrun_options *options, int argc, char **argv)
{
    static char name[] = "symmrun";
    int option;

    *options = (struct symmrun_options){
        .grace = 5, .bind = true, .prefix = true, .nodes = 1, .node = -1};
    if (argc > 0)
        argv[0] = name; /* getopt begins its messages with it */
    while ((option = getopt_long(argc, argv, "+n:vhV", long_options, NULL)) != -1) {
        int status = parse_one(options, option);

        if (status >= 0)
            return status;
    }
    if (options->ranks == 0) {
        fputs("symmrun: -n is missing: how many ranks?\nTry 'symmrun --help'.\n",
              stderr);
        return 2;
    }
    if (options->tee && !options->log_dir) {
        fputs("symmrun: --tee is for use with --log-dir\n", stderr);
        return 2;
    }
    if (optind >= argc) {
        fputs("symmrun: no program is given\nTry 'symmrun --help'.\n", stderr);
        return 2;
    }
    options->program = argv + optind;
    if (check_nodes(options) >= 0)
        return 2;
    if (options->nodes == 1)
        options->node = 0;
    return -1;
}
