/* SPDX-License-Identifier: MIT */
/*
 * dump.c - the command symm-info dump: what the ranks of this host's jobs show, or files that
 * ranks wrote, of teams, sites, calls, waits and failures; as JSON, compared, or for PyTorch.
 */
#include "tools/symm-info/dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <symm/symm.h>

#include "sight/dump.h"
#include "tools/common/args.h"
#include "tools/common/output.h"

struct options {
    const char *job, *out, *format, *folder;
    bool compare;
    int pid[SYMM_SIGHT_RANKS_MAX], pids;
};

static void usage(FILE *file)
{
    fprintf(file,
            "usage: symm-info dump [--job JOB] [--compare] [--format json|torch] "
            "[-o PATH] [PID... | PATH]\n"
            "Without PATH: what the ranks on this host do, as JSON.\n"
            "PATH: a file, or a folder with files *.json, that SYMM_DUMP or this tool "
            "wrote;\n"
            "compares the calls of their ranks.\n"
            "  --compare       the last calls side by side, the first difference "
            "marked\n"
            "  --format json   one JSON document\n"
            "  --format torch  a file for each rank in the folder -o, for PyTorch's "
            "fr_trace\n"
            "  -o PATH         where to write; default: standard output\n"
            "  --job JOB       ranks of jobs whose names hold JOB alone\n");
}

static bool is_path(const char *word)
{
    struct stat what;

    return word[strspn(word, "0123456789")] != '\0' || stat(word, &what) == 0;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    bool help = false;
    struct args_option table[] = {
        ARGS_ROW("job", 0, ARGS_TEXT, &options->job),
        ARGS_ROW("output", 'o', ARGS_TEXT, &options->out),
        ARGS_ROW("compare", 0, ARGS_FLAG, &options->compare),
        ARGS_ROW("format", 0, ARGS_CHOICE, &options->format, .words = "json, torch"),
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
    };
    char error[256];
    int word = args_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), false,
                          error, sizeof(error));

    if (help) {
        usage(stdout);
        return 0;
    }
    if (word >= 0 && word + 1 == argc && is_path(argv[word]))
        options->folder = argv[word];
    else if (word >= 0)
        word = args_pids(argc, argv, word, options->pid, &options->pids,
                         SYMM_SIGHT_RANKS_MAX, error, sizeof(error));
    if (word >= 0 && options->format && options->compare) {
        snprintf(error, sizeof(error), "--compare and --format exclude each other");
        word = -1;
    }
    if (word >= 0 && options->format && strcmp(options->format, "torch") == 0 &&
        !options->out) {
        snprintf(error, sizeof(error), "--format torch needs a folder: -o FOLDER");
        word = -1;
    }
    if (word < 0) {
        fprintf(stderr, "symm-info: %s\n", error);
        usage(stderr);
        return 2;
    }
    if (options->folder && !options->format)
        options->compare = true;
    return -1;
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* 0, or an errno. */
static int write_json(FILE *file, const struct symm_sight_ranks *ranks)
{
    struct symm_emit emit;

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", SYMM_DUMP_FORMAT);
    symm__emit_key_string(&emit, "written_by", symm_version());
    symm__emit_key(&emit, "unread");
    symm__emit_begin_map(&emit);
    symm__emit_key_signed(&emit, "other_users", ranks->others);
    symm__emit_key_signed(&emit, "denied", ranks->denied);
    symm__emit_key_signed(&emit, "bad", ranks->bad);
    symm__emit_key_string(&emit, "why_bad", ranks->bad > 0 ? ranks->why : NULL);
    symm__emit_key_bool(&emit, "container", ranks->namespace);
    symm__emit_end_map(&emit);
    symm__emit_key(&emit, "ranks");
    symm__emit_begin_list(&emit);
    for (int i = 0; i < ranks->count; i++) {
        const struct symm_sight_rank *rank = &ranks->rank[i];
        const struct symm_sight_process process = {
            .pid = rank->pid,
            .command = rank->command,
            .state = rank->orphan ? "ended" : symm__sight_process_state(rank->state)};

        symm__sight_dump(&emit, rank->page, &rank->now, &process);
    }
    symm__emit_end_list(&emit);
    symm__emit_end_map(&emit);
    return symm__emit_finish(&emit);
}

/* 0, or an errno; who closes the stream finds what else it has lost. */
static int write_text(FILE *file, const struct symm_sight_ranks *ranks,
                      const struct dump_sequences *sequences,
                      const struct options *options, bool *differs)
{
    if (!options->compare)
        return write_json(file, ranks);
    *differs = symm__dump_compare(file, ranks, sequences, options->folder != NULL);
    return 0;
}

static bool write_file(const struct symm_sight_ranks *ranks,
                       const struct dump_sequences *sequences,
                       const struct options *options, bool *differs)
{
    struct output output;
    int error;

    if (!options->out)
        return write_text(stdout, ranks, sequences, options, differs) == 0;
    error = output_begin(&output, options->out);
    if (error == 0)
        error = output_end(
            &output, write_text(output.stream, ranks, sequences, options, differs));
    if (error != 0)
        fprintf(stderr, "symm-info: %s cannot be written: %s\n", options->out,
                strerror(error));
    return error == 0;
}

/* ---- The command -------------------------------------------------------------------------- */

static void keep_job(struct symm_sight_ranks *ranks, const char *job)
{
    int kept = 0;

    for (int i = 0; i < ranks->count; i++) {
        if (job && !strstr(ranks->rank[i].page->job, job)) {
            free(ranks->rank[i].page);
            continue;
        }
        ranks->rank[kept++] = ranks->rank[i];
    }
    ranks->count = kept;
    symm__sight_ranks_sort(ranks);
}

static bool find_ranks(const struct options *options, struct symm_sight_ranks *ranks)
{
    int error;

    if (options->folder) {
        if (!symm__dump_load(options->folder, ranks))
            return false;
        keep_job(ranks, options->job);
        return true;
    }
    error = symm__sight_find(options->job, options->pid, options->pids, ranks);
    if (error)
        fprintf(stderr, "symm-info: /proc cannot be read: %s\n", strerror(error));
    else
        symm__sight_tell_unread(ranks, stderr);
    return error == 0;
}

static int dump(const struct options *options, const struct symm_sight_ranks *ranks)
{
    const bool torch = options->format && strcmp(options->format, "torch") == 0;
    struct dump_sequences sequences = {0};
    bool good = true, differs = false;

    if (ranks->count == 0)
        fprintf(stderr, "symm-info: no rank was found\n");
    if ((torch || options->compare) && !symm__dump_sequences(ranks, &sequences)) {
        fprintf(stderr, "symm-info: no memory for the calls of %d ranks\n",
                ranks->count);
        return 1;
    }
    good = torch ? symm__dump_torch(options->out, ranks, &sequences)
                 : write_file(ranks, &sequences, options, &differs);
    symm__dump_sequences_finish(&sequences);
    return good && !differs && ranks->count > 0 ? 0 : 1;
}

int symm__info_dump(int argc, char **argv)
{
    static struct options options;
    struct symm_sight_ranks ranks = {0};
    int status = parse(argc, argv, &options);

    if (status < 0)
        status = find_ranks(&options, &ranks) ? dump(&options, &ranks) : 1;
    symm__sight_ranks_finish(&ranks);
    return status;
}
