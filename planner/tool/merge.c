/* SPDX-License-Identifier: MIT */
/*
 * merge.c - the command `merge`: the records of a job's ranks become one program.
 *
 * A folder stands for the records in it, which are found by their names,
 * JOB.rankR.json. Refuses a folder with the records of several jobs, naming them, unless
 * --job chooses one. After an error no file is written.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tool/symm_plan.h"

#define JOB_DIGITS 16

static const char usage[] =
    "usage: symm-plan merge FOLDER|RECORD... [-o PROGRAM.json] [--job JOB]\n\n"
    "Makes one program of what the ranks of a job have recorded (SYMM_RECORD=FOLDER):\n"
    "one file for each rank. Ranks that contradict each other are refused.\n\n"
    "  -o, --output PROGRAM.json  write it there (default: standard output)\n"
    "      --job JOB              of several jobs in one folder, this one: the first\n"
    "                             16 characters of its files' names\n";

struct request {
    const char *output, *job;
    char **paths; /* owned */
    int count, room;
};

static bool complain(const char *path, const char *what)
{
    fprintf(stderr, "symm-plan merge: %s: %s\n", path, what);
    return false;
}

static bool add_path(struct request *request, const char *folder, const char *name)
{
    char *path = NULL;

    if (request->count == request->room) {
        int room = 2 * request->room + 64;
        char **grown = realloc(request->paths, (size_t)room * sizeof(*grown));

        if (!grown)
            return complain(name, "memory is exhausted");
        request->paths = grown;
        request->room = room;
    }
    if (asprintf(&path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name) < 0)
        return complain(name, "memory is exhausted");
    request->paths[request->count++] = path;
    return true;
}

static int is_record(const struct dirent *entry)
{
    const char *name = entry->d_name, *rest = name + JOB_DIGITS;
    size_t digits;

    if (strlen(name) < JOB_DIGITS || strspn(name, "0123456789abcdef") != JOB_DIGITS ||
        strncmp(rest, ".rank", 5) != 0)
        return 0;
    digits = strspn(rest + 5, "0123456789");
    return digits > 0 && strcmp(rest + 5 + digits, ".json") == 0;
}

/* Sorted by name, so the files of one job stand together. */
static bool add_records(struct request *request, const char *folder,
                        struct dirent **list, int count)
{
    const char *job = request->job;
    int jobs = 0;

    for (int i = 0; i < count; i++)
        if (i == 0 || strncmp(list[i]->d_name, list[i - 1]->d_name, JOB_DIGITS) != 0)
            jobs++;
    if (jobs > 1 && !job) {
        fprintf(stderr,
                "symm-plan merge: %s: found the records of %d jobs, allowed: those of "
                "one; choose by --job:",
                folder, jobs);
        for (int i = 0; i < count; i++)
            if (i == 0 ||
                strncmp(list[i]->d_name, list[i - 1]->d_name, JOB_DIGITS) != 0)
                fprintf(stderr, " %.16s", list[i]->d_name);
        fputc('\n', stderr);
        return false;
    }
    for (int i = 0; i < count; i++)
        if ((!job || (strlen(job) == JOB_DIGITS &&
                      strncmp(list[i]->d_name, job, JOB_DIGITS) == 0)) &&
            !add_path(request, folder, list[i]->d_name))
            return false;
    return true;
}

static bool add_folder(struct request *request, const char *folder)
{
    struct dirent **list;
    const int before = request->count,
              count = scandir(folder, &list, is_record, alphasort);
    bool good;

    if (count < 0)
        return complain(folder, strerror(errno));
    good = add_records(request, folder, list, count);
    for (int i = 0; i < count; i++)
        free(list[i]);
    free(list);
    if (good && request->count == before)
        return complain(folder,
                        request->job
                            ? "found no record of that job, JOB.rankR.json"
                            : "found no record, JOB.rankR.json; a program writes one "
                              "for each rank under SYMM_RECORD");
    return good;
}

static bool add_argument(struct request *request, const char *path)
{
    struct stat is;

    if (stat(path, &is) != 0)
        return complain(path, strerror(errno));
    return S_ISDIR(is.st_mode) ? add_folder(request, path)
                               : add_path(request, NULL, path);
}

static void print_report(FILE *file, const symm_program *program,
                         const symm_program_merge_report *report)
{
    fprintf(file, "%s: %d ranks, %d buffers, %d ops on %d stream%s, %s\n",
            program->name, report->ranks, program->buffer_count, program->op_count,
            program->stream_count, program->stream_count > 1 ? "s" : "",
            program->loop ? "a loop" : "no loop");
    if (report->left_out || report->alone || report->elsewhere)
        fprintf(file,
                "%d calls of a period stay outside of the plan, %d buffers share bytes "
                "with none, %d buffers are not in it\n",
                report->left_out, report->alone, report->elsewhere);
    if (report->first[0])
        fprintf(file, "first: %s\n", report->first);
    else if (report->alone)
        fprintf(file, "a buffer shares its bytes once symm_record_write and _read say "
                      "what touches it\n");
}

static int merge(const struct request *request)
{
    symm_program_merge_report report = {.size = sizeof(report)};
    symm_program *program;
    bool good;

    if (symm_program_merge((const char *const *)request->paths, request->count,
                           &program, &report) != SYMM_OK) {
        fprintf(stderr, "symm-plan merge: %s\n", symm_last_error());
        return PLAN_TOOL_WRONG;
    }
    good = symm_plan_put_program("merge", request->output, program);
    if (good)
        print_report(request->output ? stdout : stderr, program, &report);
    symm_program_destroy(program);
    return good ? PLAN_TOOL_DONE : PLAN_TOOL_WRONG;
}

int symm_plan_merge(int argc, char **argv)
{
    struct request request = {0};
    bool good = true, help = false;
    struct args_option options[] = {
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("output", 'o', ARGS_TEXT, &request.output),
        ARGS_ROW("job", 0, ARGS_TEXT, &request.job),
    };
    int status, word = symm_plan_read_options(argc, argv, options,
                                              sizeof(options) / sizeof(options[0]),
                                              usage, &status);

    if (word < 0)
        return status;
    status = PLAN_TOOL_WRONG;
    symm_plan_take_output(&request.output);
    if (word == argc) {
        fprintf(stderr, "symm-plan merge: found nothing, allowed: a folder, or the "
                        "record of each rank\n");
        return PLAN_TOOL_WRONG;
    }
    for (int i = word; i < argc && good; i++)
        good = add_argument(&request, argv[i]);
    if (good)
        status = merge(&request);
    for (int i = 0; i < request.count; i++)
        free(request.paths[i]);
    free(request.paths);
    return status;
}
