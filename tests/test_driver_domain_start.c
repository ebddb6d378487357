/* SPDX-License-Identifier: MIT */
/*
 * test_driver_domain_start.c - an allocation fails on one rank on the way to its NVLink domain over
 * several hosts, up to the first one of the search: all ranks get the error, or none, and none
 * waits for its deadline. Which calls a rank makes depends on the order in which ranks arrive, so
 * the test tells them apart by the places in the program that make them.
 */
/* ctest: cost 5 */
#include "engine_stage.h"

#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HOSTS  3 /* calloc is asked for one thing for each of them in a few places */
#define PLACES 64

struct job {
    const void *place[PLACES]; /* where a call has failed on rank 0, each once */
    int places;
    bool met;
    _Atomic int told;
    double seconds[HOSTS];
    symm_status status[HOSTS];
    char sentence[HOSTS][512];
};

static _Thread_local struct job *armed; /* NULL: no call of this thread fails */

void *__libc_calloc(size_t count, size_t bytes);

static bool is_new(const struct job *job, const void *place)
{
    for (int i = 0; i < job->places; i++)
        if (job->place[i] == place)
            return false;
    return job->places < PLACES;
}

/* Instead of the C library's: the first call of an armed thread from a new place fails. */
void *calloc(size_t count, size_t bytes)
{
    const void *place = __builtin_return_address(0);

    if (!armed || count != HOSTS || !is_new(armed, place))
        return __libc_calloc(count, bytes);
    armed->place[armed->places++] = place;
    armed = NULL;
    return NULL;
}

/* Rank 0 says this when all ranks have met: before that no rank can be told. */
static void arm(void *arg, int level, const char *line)
{
    struct job *job = arg;

    (void)level;
    if (job->met || !strstr(line, "3 ranks on 3 hosts"))
        return;
    job->met = true;
    armed = job;
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
    else
        (void)!nice(10); /* see use_one_processor */
    job->status[me] = symm_init(&config, &ctx);
    armed = NULL;
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
    while (!domain) {
        const int places = job->places;
        const struct harness h = {.ranks = HOSTS,
                                  .body = body,
                                  .arg = job,
                                  .configure = configure,
                                  .without_ctx = true};

        job->met = false;
        job->told = 0;
        memset(job->sentence, 0, sizeof(job->sentence));
        assert_int_equal(harness_run(&h), 0);
        assert_int_equal(job->places, places + 1);
        for (int r = 0; r < HOSTS; r++) {
            if (job->seconds[r] > HARNESS_SOON ||
                (job->status[r] == SYMM_OK) != (job->status[0] == SYMM_OK))
                fail_msg("place %d: rank %d: %s after %.1f s: %s", job->places, r,
                         symm_status_name(job->status[r]), job->seconds[r],
                         job->sentence[r]);
            domain =
                domain || (r > 0 && strstr(job->sentence[r], "no memory for 3 hosts"));
        }
        printf("place %d: %s\n", job->places, job->sentence[1]);
    }
    harness_shared_free(job, sizeof(*job));
}

/* There rank 0, which goes on first, comes to an exchange before the parts of the other hosts do:
 * then its own thread makes the relay's tables. */
static void use_one_processor(void)
{
    cpu_set_t may, one;
    size_t first = 0;

    if (sched_getaffinity(0, sizeof(may), &may) != 0)
        return;
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &may))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_is_told)};

    engine_suite();
    use_one_processor();
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
