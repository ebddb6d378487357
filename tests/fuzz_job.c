/* SPDX-License-Identifier: MIT */
/*
 * fuzz_job.c - launchers' variables (bootstrap/job.h), and the values of SYMM_* (fuzz.h).
 *
 * Each line of the input is a variable, NAME=VALUE; the environment has nothing else. What is
 * detected must be a rank of a job.
 */
#include <unistd.h>

#include "bootstrap/job.h"
#include "fuzz.h"
#include "symm/tools.h"
#include "util/options.h"

#define VARIABLES_MOST 64

static void check_job(const struct symm_job *job)
{
    fuzz_must(job->rank >= 0 && job->rank < job->size && job->size <= SYMM_RANKS_MAX,
              "a rank is below the size", NULL);
    fuzz_must(job->local_rank >= 0 && job->local_rank < job->local_size &&
                  job->local_size <= job->size,
              "a local rank is below the local size", NULL);
    fuzz_must(job->key[0] && strnlen(job->key, sizeof(job->key)) < sizeof(job->key),
              "a job has a name", NULL);
    fuzz_must(strnlen(job->store, sizeof(job->store)) < sizeof(job->store) &&
                  strnlen(job->node, sizeof(job->node)) < sizeof(job->node) &&
                  strnlen(job->root, sizeof(job->root)) < sizeof(job->root) &&
                  strnlen(job->source, sizeof(job->source)) < sizeof(job->source),
              "texts end", NULL);
}

static void read_options(void)
{
    for (int o = 0; o < SYMM_OPTION_COUNT; o++) {
        int64_t integer = 0;
        size_t bytes = 0;
        double seconds = 0;

        if (symm__option_integer((enum symm_option)o, -5, 1000, &integer) == SYMM_OK)
            fuzz_must(integer >= -5 && integer <= 1000, "an integer is in its range",
                      NULL);
        if (symm__option_seconds((enum symm_option)o, &seconds) == SYMM_OK)
            fuzz_must(seconds >= 0 && seconds <= SYMM_LONGEST_SECONDS,
                      "seconds are in their range", NULL);
        if (symm__option_limit((enum symm_option)o, &seconds) == SYMM_OK)
            fuzz_must(seconds >= 0, "a limit is not negative", NULL);
        if (symm__option_bytes((enum symm_option)o, &bytes) != SYMM_OK)
            fuzz_must(bytes == 0, "what is refused is not written", NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct fuzz_line line;
    char *own[VARIABLES_MOST + 1], **kept = environ;
    struct symm_job job = {.rank = -1};
    symm_job_info info = {.size = sizeof(info)};
    int count = 0;

    while (count < VARIABLES_MOST && fuzz_next(&script, &line))
        own[count++] = strndup(line.at, (size_t)(line.end - line.at));
    own[count] = NULL;
    environ = own;
    if (symm__job_detect(&job) == SYMM_OK)
        check_job(&job);
    else
        fuzz_must(symm_last_error()[0], "a refusal has a sentence", NULL);
    if (job.rank >= 0 && symm__job_network(&job) == SYMM_OK)
        check_job(&job);
    if (symm_job_detect(&info) == SYMM_OK)
        fuzz_must(info.rank == job.rank, "what is told is what was detected", NULL);
    read_options();
    environ = kept;
    while (count > 0)
        free(own[--count]);
    return 0;
}
