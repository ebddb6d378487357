/* SPDX-License-Identifier: MIT */
/*
 * main.c - the tool symm-top: what the ranks of this host's jobs do, and for whom they wait.
 *
 * It reads the pages of running ranks (sight/find.h), joins no job and disturbs none. On a
 * terminal it looks again every second; else, and with --once, it prints one look.
 * Exit status: 0; 1 if no rank was found by one look, or the output failed; 2 for a wrong
 * command line.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <symm/symm.h>

#include "tools/common/args.h"
#include "tools/symm-top/top.h"

struct options {
    const char *job;
    double seconds; /* between looks; 0: not given */
    bool once, all;
    int pid[SYMM_SIGHT_RANKS_MAX], pids; /* the only processes; 0: all */
};

static void usage(FILE *file)
{
    fprintf(file,
            "usage: symm-top [--once] [-d SECONDS] [--job JOB] [--all] "
            "[PID...]\n"
            "  --once      print one look as text; with -d two looks, for calls/s\n"
            "  -d, --delay SECONDS  time between two looks (default 1)\n"
            "  --job JOB   the ranks of jobs whose names hold JOB alone\n"
            "  --all       also the teams in which a rank is in no call\n"
            "  --version   the version alone\n"
            "On a terminal: q quits, the space bar looks at once.\n");
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    bool help = false, version = false;
    struct args_option table[] = {
        ARGS_ROW("once", 0, ARGS_FLAG, &options->once),
        ARGS_ROW("all", 0, ARGS_FLAG, &options->all),
        ARGS_ROW("job", 0, ARGS_TEXT, &options->job),
        ARGS_ROW("delay", 'd', ARGS_NUMBER, &options->seconds, .high = 86400,
                 .words = "seconds"),
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("version", 'V', ARGS_STOP, &version),
    };
    char error[256];
    int word = args_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), false,
                          error, sizeof(error));

    if (help)
        usage(stdout);
    if (version)
        printf("symm-top %s\n", symm_version());
    if (help || version)
        return 0;
    if (word >= 0)
        word = args_pids(argc, argv, word, options->pid, &options->pids,
                         SYMM_SIGHT_RANKS_MAX, error, sizeof(error));
    if (word < 0) {
        fprintf(stderr, "symm-top: %s\n", error);
        usage(stderr);
        return 2;
    }
    return -1;
}

/* One look, shown in `file`. Ranks found; -1 after a message. */
static int look(FILE *file, const struct options *options, struct top_history *history)
{
    struct symm_sight_ranks ranks;
    int error = symm__sight_find(options->job, options->pid, options->pids, &ranks),
        found;

    if (error) {
        fprintf(stderr, "symm-top: /proc cannot be read: %s\n", strerror(error));
        return -1;
    }
    found = ranks.count;
    symm__top_show(file, &ranks, history, options->all);
    symm__sight_ranks_finish(&ranks);
    return found;
}

static int look_once(const struct options *options, struct top_history *history)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *first;
    int found;

    if (options->seconds > 0) { /* a look that is not shown, to count calls from */
        const struct timespec span = {
            .tv_sec = (time_t)options->seconds,
            .tv_nsec =
                (long)((options->seconds - (double)(time_t)options->seconds) * 1e9)};

        first = open_memstream(&text, &bytes);
        if (!first)
            return 1;
        found = look(first, options, history);
        fclose(first);
        free(text);
        if (found < 0)
            return 1;
        (void)nanosleep(&span, NULL);
    }
    found = look(stdout, options, history);
    if (found == 0)
        printf("no rank was found: does its job run on this host, with this version of "
               "libsymm, and without SYMM_SIGHT=0?\n");
    return found > 0 ? 0 : 1;
}

static int look_again(const struct options *options, struct top_history *history)
{
    const double seconds = options->seconds > 0 ? options->seconds : 1;
    int key = 0, found = 0;

    while (found >= 0 && key != 'q' && key != 'Q' && key >= 0) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);

        if (!file)
            return 1;
        found = look(file, options, history);
        fclose(file);
        if (found >= 0 && text)
            symm__terminal_draw(text);
        free(text);
        if (found >= 0)
            key = symm__terminal_key(seconds);
    }
    return found < 0;
}

int main(int argc, char **argv)
{
    static struct top_history history;
    static struct options options;
    int status;

    args_guard_streams();
    status = parse(argc, argv, &options);
    if (status < 0 && !options.once && symm__terminal_open()) {
        status = look_again(&options, &history);
        symm__terminal_close();
    } else if (status < 0) {
        status = look_once(&options, &history);
    }
    symm__top_forget(&history);
    return args_flush("symm-top") || status != 0 ? status : 1;
}
