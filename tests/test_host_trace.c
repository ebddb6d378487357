/* SPDX-License-Identifier: MIT */
/*
 * test_host_trace.c - SYMM_TRACE within a process, for the sanitizers: calls of several threads and
 * of streams' workers, ranks that are processes and threads, more calls than the page holds, sites
 * that lose their place, and waits, while the file is being written. Each call is in it once, by
 * its site. What the file looks like is for test_tool_trace.sh.
 */
#include "harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS  2
#define QUEUED 1500
#define SITES  1200
#define PUTS   200

static char folder[64];

static symm_status reduce(symm_team *team, const char *site, void *stream)
{
    float data[2] = {0};
    const symm_call call = {.size = sizeof(call), .site = site, .stream = stream};
    symm_work *work = NULL;
    symm_status status = symm_all_reduce(team, data, data, 2, SYMM_FLOAT32, SYMM_SUM,
                                         &call, stream ? &work : NULL);

    if (status == SYMM_OK && stream) { /* `data` must last */
        status = symm_work_synchronize(work, 0);
        symm_work_release(work);
    }
    return status;
}

struct queuer {
    symm_team *team;
    void *stream;
    float *data;
    symm_status status;
};

static void *queue(void *arg)
{
    struct queuer *q = arg;
    const symm_call call = {
        .size = sizeof(call), .site = "queued", .stream = q->stream};

    for (int i = 0; i < QUEUED && q->status == SYMM_OK; i++)
        q->status = symm_all_reduce(q->team, q->data, q->data, 2, SYMM_FLOAT32,
                                    SYMM_SUM, &call, NULL);
    return NULL;
}

static int body_calls(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);
    float data[2] = {0};
    struct queuer q = {.team = world, .data = data};
    symm_buffer *buffer;
    pthread_t thread;
    char site[32];
    void *stream;

    (void)arg;
    CHECK_OK(symm_buffer_alloc(world, 64, &buffer));
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(symm_stream_create(ctx, &q.stream));
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK(pthread_create(&thread, NULL, queue, &q) == 0);
    for (int i = 0; i < SITES; i++) {
        snprintf(site, sizeof(site), "site %d", i);
        CHECK_OK(reduce(world, site, NULL));
    }
    for (int i = 0; i < PUTS; i++)
        CHECK_OK(symm_put(world, symm_buffer_ptr(buffer),
                          (char *)symm_buffer_ptr(buffer) + 32, 8, harness_rank() ^ 1,
                          NULL, NULL));
    CHECK_OK(reduce(world, "streamed", stream));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(q.status);
    CHECK_OK(symm_stream_synchronize(ctx, q.stream, 0));
    CHECK_OK(symm_barrier(world, NULL, NULL));
    symm_stream_destroy(ctx, q.stream);
    symm_stream_destroy(ctx, stream);
    symm_buffer_release(buffer);
    return 0;
}

/* Lines of the rank's file with both texts. */
static int lines_with(const char *text, const char *one, const char *other)
{
    int count = 0;

    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const size_t length = strcspn(line, "\n");

        count += memmem(line, length, one, strlen(one)) &&
                 memmem(line, length, other, strlen(other));
    }
    return count;
}

static void check_rank(int rank)
{
    char path[128], site[48], *text;
    struct stat state;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%d.json", folder, rank);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &state), 0);
    text = calloc(1, (size_t)state.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)state.st_size, file), state.st_size);
    fclose(file);
    assert_true(state.st_size > 2 && strcmp(text + state.st_size - 2, "]\n") == 0);
    assert_int_equal(lines_with(text, "\"cat\": \"call\"", "\"site\": \"queued\""),
                     QUEUED);
    assert_int_equal(lines_with(text, "\"cat\": \"call\"", "\"site\": \"streamed\""),
                     1);
    assert_int_equal(lines_with(text, "\"cat\": \"call\"", "\"name\": \"put\""), PUTS);
    assert_int_equal(lines_with(text, "\"cat\": \"call\"", "\"name\": \"barrier\""), 1);
    for (int i = 0; i < SITES; i += 7) {
        snprintf(site, sizeof(site), "\"site\": \"site %d\"", i);
        assert_int_equal(lines_with(text, "\"cat\": \"call\"", site), 1);
    }
    assert_int_equal(lines_with(text, "\"cat\": \"call\"", "\"ph\": \"X\""),
                     QUEUED + SITES + PUTS + 2);
    assert_int_equal(lines_with(text, "\"symm_trace_end\"", "\"dropped\": 0"), 1);
    free(text);
}

static void run(enum harness_mode mode)
{
    struct harness h = {.ranks = RANKS, .mode = mode, .body = body_calls};
    char pattern[96];

    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    setenv("SYMM_TRACE", pattern, 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("SYMM_TRACE");
    for (int r = 0; r < RANKS; r++)
        check_rank(r);
}

static void test_processes(void **state)
{
    (void)state;
    run(HARNESS_PROCESSES);
}

static void test_threads(void **state)
{
    (void)state;
    run(HARNESS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_threads),
    };
    char command[96];
    int failed;

    snprintf(folder, sizeof(folder), "/tmp/symm-trace-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? failed : 1;
}
