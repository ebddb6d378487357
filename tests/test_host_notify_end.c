/* SPDX-License-Identifier: MIT */
/*
 * test_host_notify_end.c - functions that tell the end of a call, where something else ends: a call
 * by its timeout, a rank, a team, a context, or what a forked child had of them (host backend).
 */
#include "notify_stage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Failures ---------------------------------------------------------------------------- */

static int body_timeout(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx);
    struct told told[3] = {{0}};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;
    int fd = -1;

    if (symm_team_rank(team) == 1) { /* does not come */
        CHECK_ZERO(harness_sync_wait(&s->sync, 2));
        return 0;
    }
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "lonely");
    call.timeout = 0.1;
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told[0]));
    CHECK_OK(symm_work_notify(work, tell, &told[1]));
    CHECK_OK(symm_work_fd(work, &fd));
    CHECK(harness_until(&told[1].calls, 1));
    CHECK(is_readable(fd, (int)(HARNESS_SOON * 1e3)));
    CHECK_OK(symm_work_notify(work, tell, &told[2]));
    CHECK(harness_until(&told[2].calls, 1));
    for (int i = 0; i < 3; i++) {
        CHECK(told[i].status == SYMM_ERR_TIMEOUT && atomic_load(&told[i].calls) == 1);
        CHECK(strstr(told[i].sentence, "lonely") != NULL);
        CHECK(strcmp(told[i].sentence, symm_work_error(work)) == 0);
    }
    close(fd);
    symm_work_release(work);
    symm_stream_destroy(ctx, stream);
    CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    return 0;
}

static void a_timeout_is_told(void **state)
{
    static const int ranks[] = {2};

    assert_int_equal(run_for(state, body_timeout, ranks, 1), 0);
}

static int body_killed(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx);
    struct told told = {0};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;
    int fd = -1;

    if (symm_team_rank(team) == 1) {
        CHECK(harness_until(&s->flag, 1));
        raise(SIGKILL);
    }
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "bereft");
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told));
    CHECK_OK(symm_work_fd(work, &fd));
    symm_work_release(work);
    CHECK(!is_readable(fd, 0));
    atomic_store(&s->flag, 1);
    CHECK(is_readable(fd, (int)(HARNESS_SOON * 1e3)));
    CHECK(harness_until(&told.calls, 1));
    CHECK(told.status == SYMM_ERR_PEER_DEAD && strstr(told.sentence, "rank 1"));
    close(fd);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void a_killed_peer_is_told(void **state)
{
    struct harness h = {.ranks = 2, .body = body_killed, .arg = *state, .killed = 2};

    memset(*state, 0, sizeof(struct shared));
    assert_int_equal(harness_run(&h), 0);
}

/* ---- The end of teams and contexts ------------------------------------------------------- */

static void slow_tell(symm_status status, void *arg)
{
    harness_sleep(0.01);
    tell(status, arg);
}

/* destroy runs what the team has queued, and what is to be told of it. */
static int body_team_end(symm_ctx *ctx, void *arg)
{
    struct told told[20] = {{0}};
    symm_team *team = NULL;
    void *stream = NULL;

    (void)arg;
    CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &team));
    CHECK_OK(symm_stream_create(ctx, &stream));
    for (int i = 0; i < 20; i++) {
        symm_call call = on_stream(stream, "last");
        symm_work *work = NULL;

        CHECK_OK(symm_barrier(team, &call, &work));
        CHECK_OK(symm_work_notify(work, slow_tell, &told[i]));
        symm_work_release(work);
    }
    symm_team_destroy(team);
    for (int i = 0; i < 20; i++)
        CHECK(atomic_load(&told[i].calls) == 1 && told[i].status == SYMM_OK);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void team_destroy_calls_what_is_pending(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_team_end, ranks, 2), 0);
}

static void *open_late(void *arg)
{
    struct gate *gate = arg;

    harness_sleep(0.05);
    atomic_store(&gate->open, 1);
    return NULL;
}

/* A function that is given more to call while the context ends. */
static void tell_twice(symm_status status, void *arg)
{
    struct told *told = arg;

    tell(status, &told[0]);
    if (symm_work_notify(told[0].work, tell, &told[1]) != SYMM_OK)
        told[0].done = false;
    symm_work_release(told[0].work);
}

static int body_finalize(symm_ctx *none, void *arg)
{
    struct told told[30] = {{0}};
    const symm_config config = harness_config();
    struct gate gate = {0};
    symm_ctx *ctx = NULL;
    pthread_t opener;
    void *stream = NULL;
    int fds[28];

    (void)none;
    (void)arg;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    for (int i = 0; i < 29; i++) {
        symm_call call = on_stream(stream, "never waited for");
        symm_work *work = NULL;

        CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
        if (i == 28) {
            told[28].work = work;
            CHECK_OK(symm_work_notify(work, tell_twice, &told[28]));
            break;
        }
        CHECK_OK(symm_work_notify(work, i % 2 ? slow_tell : tell, &told[i]));
        CHECK_OK(symm_work_fd(work, &fds[i]));
        symm_work_release(work);
    }
    CHECK(pthread_create(&opener, NULL, open_late, &gate) == 0);
    symm_finalize(ctx);
    for (int i = 0; i < 30; i++)
        CHECK_MESSAGE(atomic_load(&told[i].calls) == 1 && told[i].status == SYMM_OK,
                      "function %d was called %d times", i,
                      atomic_load(&told[i].calls));
    CHECK(told[28].done);
    for (int i = 0; i < 28; i++) {
        CHECK(is_readable(fds[i], 0));
        close(fds[i]);
    }
    pthread_join(opener, NULL);
    return 0;
}

static void finalize_calls_what_is_pending(void **state)
{
    struct harness h = {.body = body_finalize, .arg = *state, .without_ctx = true};

    for (h.ranks = 1; h.ranks <= 2; h.ranks++)
        assert_int_equal(harness_run_both(h), 0);
}

/* ---- Forks ------------------------------------------------------------------------------- */

static int child(symm_ctx *ctx, symm_work *work, struct told *told)
{
    int fd = -7;

    CHECK_STATUS(symm_work_notify(work, tell, told), SYMM_ERR_FORKED);
    CHECK_STATUS(symm_work_fd(work, &fd), SYMM_ERR_FORKED);
    symm_work_release(work);
    symm_finalize(ctx);
    CHECK(fd == -7 && atomic_load(&told->calls) == 0);
    return 0;
}

static int body_fork(symm_ctx *ctx, void *arg)
{
    struct told told[2] = {{0}};
    struct gate gate = {0};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;
    int fd = -1, ended = -1;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    call = on_stream(stream, "fork");
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told[0]));
    CHECK_OK(symm_work_fd(work, &fd));
    const pid_t pid = fork();
    if (pid == 0)
        _exit(child(ctx, work, &told[0]));
    CHECK(pid > 0 && waitpid(pid, &ended, 0) == pid);
    CHECK_MESSAGE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "the child: %d", ended);
    CHECK(atomic_load(&told[0].calls) == 0 && !is_readable(fd, 0));
    CHECK_OK(symm_work_notify(work, tell, &told[1]));
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&told[1].calls, 1));
    CHECK(atomic_load(&told[0].calls) == 1 && is_readable(fd, 0));
    close(fd);
    symm_work_release(work);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void a_forked_child_calls_nothing(void **state)
{
    struct harness h = {.body = body_fork, .arg = *state};

    for (h.ranks = 1; h.ranks <= 2; h.ranks++)
        assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timeout_is_told),
        cmocka_unit_test(a_killed_peer_is_told),
        cmocka_unit_test(team_destroy_calls_what_is_pending),
        cmocka_unit_test(finalize_calls_what_is_pending),
        cmocka_unit_test(a_forked_child_calls_nothing),
    };

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
