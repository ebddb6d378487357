/* SPDX-License-Identifier: MIT */
/*
 * fuzz_record.c - records that the ranks of a job wrote (symm-record/1), merged to a program.
 *
 * Each line of the input is one rank's record. A program that is made of them is finished: written
 * and read again it is the same, and the planner's plan of it is safe.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "symm/plan.h"

#define RANKS_MOST 8

static void read_again(const symm_program *program)
{
    symm_program *again;
    char *text;
    size_t length;
    uint64_t hash, second;

    fuzz_must(symm_program_format(program, &text, &length) == SYMM_OK, "format",
              symm_last_error());
    fuzz_must(symm_program_parse(text, length, "again", &again) == SYMM_OK,
              "parse again", symm_last_error());
    fuzz_must(symm_program_hash(program, &hash) == SYMM_OK &&
                  symm_program_hash(again, &second) == SYMM_OK && hash == second,
              "the program is the same", text);
    symm_program_destroy(again);
    symm_text_free(text);
}

static void plan(symm_program *program)
{
    const symm_plan_options options = {
        .size = sizeof(options), .greedy = true, .time_limit = 0.1};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *made;

    if (program->world > 8 || program->op_count > 40 || program->buffer_count > 40 ||
        symm_plan_make(program, &options, &made) != SYMM_OK)
        return;
    fuzz_must(symm_plan_check(program, made, &report) == SYMM_OK, "check",
              symm_last_error());
    fuzz_must(report.safe, "the planner's plan", report.first);
    symm_plan_destroy(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct fuzz_line line;
    char path[RANKS_MOST][32];
    const char *paths[RANKS_MOST];
    int fd[RANKS_MOST], count = 0;
    symm_program *program;
    symm_program_merge_report report = {.size = sizeof(report)};

    while (count < RANKS_MOST && fuzz_next(&script, &line)) {
        size_t length = (size_t)(line.end - line.at);

        fd[count] = memfd_create("record", MFD_CLOEXEC);
        if (fd[count] < 0 || write(fd[count], line.at, length) != (ssize_t)length)
            abort();
        snprintf(path[count], sizeof(path[count]), "/proc/self/fd/%d", fd[count]);
        paths[count] = path[count];
        count++;
    }
    if (count > 0 && symm_program_merge(paths, count, &program, &report) == SYMM_OK) {
        fuzz_must(report.ranks == count &&
                      memchr(report.first, 0, sizeof(report.first)),
                  "the report is whole", NULL);
        read_again(program);
        plan(program);
        symm_program_destroy(program);
    } else if (count > 0) {
        fuzz_must(symm_last_error()[0], "a refusal has a sentence", NULL);
    }
    while (count > 0)
        close(fd[--count]);
    return 0;
}
