/* SPDX-License-Identifier: MIT */
/*
 * test_driver_domain_start.c - an allocation fails on one rank on the way to its NVLink domain over
 * several hosts, up to the first one of the search: all ranks get the error, and none waits for its
 * deadline.
 */
/* ctest: cost 5 */
#include "engine_stage.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOSTS 3 /* calloc is asked for one thing for each of them in a few places */

struct job {
    int k; /* which of these calls fails, on rank 0 */
    _Atomic int met, told;
    double seconds[HOSTS];
    symm_status status[HOSTS];
    char sentence[HOSTS][512];
};

static _Thread_local int left; /* calls until one fails; 0: none does */

void *__libc_calloc(size_t count, size_t bytes);

/* Instead of the C library's: calls of this thread alone fail. */
void *calloc(size_t count, size_t bytes)
{
    if (left > 0 && count == HOSTS && --left == 0)
        return NULL;
    return __libc_calloc(count, bytes);
}

/* Rank 0 says this when all ranks have met: before that no rank can be told. */
static void arm(void *arg, int level, const char *line)
{
    const struct job *job = arg;

    (void)level;
    if (strstr(line, "3 ranks on 3 hosts"))
        left = job->k;
}

static void configure(symm_config *config, int rank, void *arg)
{
    const char host[2] = {(char)('a' + rank), '\0'};

    (void)config, (void)arg;
    setenv("SYMM_HOST_ID", host, 1);
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    symm_config config = harness_config();
    const int me = config.rank;
    const double start = harness_now();

    config.init_timeout = HARNESS_AMPLE;
    if (me == 0)
        symm_log_sink(arm, job);
    job->status[me] = symm_init(&config, &ctx);
    if (me == 0)
        job->met = left == 0;
    left = 0;
    job->seconds[me] = harness_now() - start;
    if (job->status[me] != SYMM_OK)
        snprintf(job->sentence[me], sizeof(job->sentence[me]), "%s", symm_last_error());
    job->told++;
    CHECK(harness_until(&job->told, HOSTS));
    symm_finalize(ctx);
    return 0;
}

static void every_rank_is_told(void **state)
{
    struct job *job = harness_shared(sizeof(*job));
    bool domain = false;

    (void)state;
    for (int k = 1; !domain; k++) {
        const struct harness h = {.ranks = HOSTS,
                                  .body = body,
                                  .arg = job,
                                  .configure = configure,
                                  .without_ctx = true};

        memset(job, 0, sizeof(*job));
        job->k = k;
        assert_int_equal(harness_run(&h), 0);
        assert_true(job->met);
        for (int r = 0; r < HOSTS; r++) {
            if (job->seconds[r] > HARNESS_SOON ||
                (job->status[r] == SYMM_OK) != (job->status[0] == SYMM_OK))
                fail_msg("call %d: rank %d: %s after %.1f s: %s", k, r,
                         symm_status_name(job->status[r]), job->seconds[r],
                         job->sentence[r]);
            domain =
                domain || (r > 0 && strstr(job->sentence[r], "no memory for 3 hosts"));
        }
        printf("call %d: %s\n", k, job->sentence[1]);
    }
    harness_shared_free(job, sizeof(*job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_is_told)};

    engine_suite();
    if (device_real() || HARNESS_SLOW ||
        !dlopen(SYMM_FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "over the fake driver only, without a sanitizer\n");
        return 77;
    }
    setenv("SYMM_LOG", "info", 1);
    setenv("SYMM_FABRIC", "1", 1);
    setenv("FAKE_CUDA_FABRIC", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
