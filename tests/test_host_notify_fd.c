/* SPDX-License-Identifier: MIT */
/*
 * test_host_notify_fd.c - eventfds that tell the end of a call (host backend): in poll and epoll,
 * closed early, and without a descriptor left.
 */
#include "notify_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static int descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* By poll, twice, until read; one that is closed early; one that is asked for at the end. */
static int body_poll(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct gate gate = {0};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;
    int fds[3] = {-1, -1, -1}, other;
    uint64_t value = 0;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "fd");
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_fd(work, &fds[0]));
    CHECK_OK(symm_work_fd(work, &fds[1]));
    CHECK(fcntl(fds[0], F_GETFD) & FD_CLOEXEC && fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    CHECK(read(fds[0], &value, sizeof(value)) < 0 && errno == EAGAIN);
    CHECK(!is_readable(fds[0], 20));
    close(fds[1]);
    other = open("/dev/null",
                 O_RDWR | O_CLOEXEC); /* may get the number of the closed one */
    atomic_store(&gate.open, 1);
    CHECK(is_readable(fds[0], (int)(HARNESS_SOON * 1e3)));
    CHECK(is_readable(fds[0], 0));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    CHECK_OK(symm_work_fd(work, &fds[2]));
    CHECK(is_readable(fds[2], 0)); /* at once */
    CHECK(read(fds[0], &value, sizeof(value)) == sizeof(value) && value == 1);
    CHECK(!is_readable(fds[0], 0));
    symm_work_release(work);
    close(fds[0]);
    close(fds[2]);
    close(other);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void eventfds_are_polled(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_poll, ranks, 2), 0);
}

/* Closing it does not take it out: the library may still have its duplicate. */
static int epoll_drop(int epoll, int fd)
{
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0);
    return close(fd);
}

/* 100 in one epoll, of handles that are released; none of the library's is left. */
static int body_epoll(symm_ctx *ctx, void *arg)
{
    const bool alone = symm_team_size(symm_team_world(ctx)) == 1;
    symm_call call = {.size = 0};
    struct gate gate = {0};
    void *stream = NULL;
    int fds[100], epoll = epoll_create1(EPOLL_CLOEXEC), left = 100, before;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    call = on_stream(stream, "epoll");
    before = descriptors();
    for (int i = 0; i < 100; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = i};
        symm_work *work = NULL;

        CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
        CHECK_OK(symm_work_fd(work, &fds[i]));
        symm_work_release(work);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    atomic_store(&gate.open, 1);
    while (left > 0) {
        struct epoll_event events[8];
        int count = epoll_wait(epoll, events, 8, (int)(HARNESS_SOON * 1e3));

        CHECK(count > 0);
        for (int i = 0; i < count; i++, left--)
            CHECK_ZERO(epoll_drop(epoll, fds[events[i].data.fd]));
    }
    CHECK_OK(symm_stream_synchronize(ctx, stream, HARNESS_AMPLE));
    CHECK(!alone || descriptors() == before); /* threads share the table */
    close(epoll);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void eventfds_in_epoll(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_epoll, ranks, 2), 0);
}

/* No descriptor left, or one: an error, and the work goes on as before. */
static int body_full(symm_ctx *ctx, void *arg)
{
    struct rlimit limit, none;
    struct told told = {0};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    struct gate gate = {0};
    void *stream = NULL;
    int fd = -7, free_one = dup(0);

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    call = on_stream(stream, "full");
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told));
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    for (int spare = 0; spare < 2; spare++) {
        none.rlim_cur = (rlim_t)(free_one + spare); /* the lowest free one, or none */
        close(free_one);
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        const symm_status status = symm_work_fd(work, &fd);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK_STATUS(status, SYMM_ERR_SYSTEM);
        CHECK_ERROR("eventfd");
        CHECK_ERROR("EMFILE");
        CHECK(fd == -7 && dup(0) == free_one); /* nothing was left open */
    }
    close(free_one);
    CHECK_OK(symm_work_fd(work, &fd));
    atomic_store(&gate.open, 1);
    CHECK(is_readable(fd, (int)(HARNESS_SOON * 1e3)));
    CHECK(harness_until(&told.calls, 1));
    CHECK(told.status == SYMM_OK);
    close(fd);
    symm_work_release(work);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void without_descriptors(void **state)
{
    struct harness h = {.ranks = 1, .body = body_full, .arg = *state};

    assert_int_equal(harness_run(&h), 0); /* the limit is the process's */
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(eventfds_are_polled),
        cmocka_unit_test(eventfds_in_epoll),
        cmocka_unit_test(without_descriptors),
    };

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
