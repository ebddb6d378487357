/* SPDX-License-Identifier: MIT */
/*
 * test_host_notify.c - functions and eventfds that tell the end of a call (host backend).
 *
 * Each function is called once, on the context's own thread, with the call's status: given before
 * or after the end, for handles that were released, by four threads at a time, from within
 * another function, at the end of a team or a context. Eventfds in poll and epoll, closed early,
 * and without a descriptor left. A forked child. Gates hold calls back for certain.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct shared {
    struct harness_sync sync;
    _Atomic int flag;
};

static int run_for(void **state, harness_body body, const int *ranks, int count)
{
    return harness_run_each(*state, sizeof(struct shared), body, ranks, count);
}

static symm_call on_stream(void *stream, const char *site)
{
    symm_call call = {.size = sizeof(call), .stream = stream, .site = site};

    return call;
}

struct gate {
    _Atomic int open;
};

static void gate_wait(void *arg)
{
    struct gate *gate = arg;

    (void)harness_until(&gate->open, 1);
}

/* What one function has seen. */
struct told {
    _Atomic int calls;
    symm_status status;
    pthread_t thread;
    char sentence[256];
    int *next; /* numbers the calls of several; NULL: not wanted */
    int number;
    symm_work *work; /* asked by the function; NULL: not wanted */
    bool done;
};

static void tell(symm_status status, void *arg)
{
    struct told *told = arg;

    told->status = status;
    told->thread = pthread_self();
    snprintf(told->sentence, sizeof(told->sentence), "%s",
             status == SYMM_OK ? "" : symm_last_error());
    if (told->next)
        told->number = (*told->next)++;
    if (told->work && symm_work_query(told->work, &told->done) != status)
        told->done = false;
    atomic_fetch_add(&told->calls, 1);
}

static bool is_readable(int fd, int milliseconds)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, milliseconds) == 1 && one.revents == POLLIN;
}

/* ---- Functions --------------------------------------------------------------------- */

static int body_order(symm_ctx *ctx, void *arg)
{
    enum { WORKS = 20, EACH = 3 };
    static _Thread_local struct told told[WORKS * EACH];
    symm_team *team = symm_team_world(ctx);
    struct gate gate = {0};
    symm_work *works[WORKS];
    symm_call call = {.size = 0};
    void *stream = NULL;
    int next = 0;

    (void)arg;
    memset(told, 0, sizeof(told));
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "order");
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    for (int i = 0; i < WORKS; i++) {
        CHECK_OK(symm_barrier(team, &call, &works[i]));
        for (int k = 0; k < EACH; k++) {
            told[i * EACH + k].next = &next;
            told[i * EACH + k].work = works[i];
            CHECK_OK(symm_work_notify(works[i], tell, &told[i * EACH + k]));
        }
    }
    harness_sleep(0.02);
    CHECK(atomic_load(&told[0].calls) == 0);
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&told[WORKS * EACH - 1].calls, 1));
    for (int i = 0; i < WORKS * EACH; i++) {
        CHECK(atomic_load(&told[i].calls) == 1 && told[i].status == SYMM_OK);
        CHECK_MESSAGE(told[i].number == i, "call %d was the %d-th", i, told[i].number);
        CHECK(told[i].done && !pthread_equal(told[i].thread, pthread_self()));
        CHECK(pthread_equal(told[i].thread, told[0].thread));
    }
    for (int i = 0; i < WORKS; i++)
        symm_work_release(works[i]);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void functions_are_called_in_order(void **state)
{
    static const int ranks[] = {1, 2, 3};

    assert_int_equal(run_for(state, body_order, ranks, 3), 0);
}

/* After the end, also where the call was complete on return. */
static int body_after(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct told told[3] = {{0}};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;

    (void)arg;
    CHECK_OK(symm_barrier(team, NULL, &work));
    told[0].work = work;
    CHECK_OK(symm_work_notify(work, tell, &told[0]));
    CHECK(harness_until(&told[0].calls, 1));
    CHECK(told[0].done && !pthread_equal(told[0].thread, pthread_self()));
    symm_work_release(work);

    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "after");
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told[1]));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    CHECK_OK(symm_work_notify(work, tell, &told[2]));
    symm_work_release(work); /* perhaps before they are called */
    CHECK(harness_until(&told[2].calls, 1));
    CHECK(atomic_load(&told[1].calls) == 1 && atomic_load(&told[2].calls) == 1);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void notify_after_the_end(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_after, ranks, 2), 0);
}

static int body_arguments(symm_ctx *ctx, void *arg)
{
    struct told told = {0};
    symm_work *work = NULL;
    int fd = -7;

    (void)arg;
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, &work));
    CHECK_STATUS(symm_work_notify(NULL, tell, &told), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_notify: work");
    CHECK_STATUS(symm_work_notify(work, NULL, &told), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_notify: fn");
    CHECK_STATUS(symm_work_fd(NULL, &fd), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_fd: work");
    CHECK_STATUS(symm_work_fd(work, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_fd: fd");
    CHECK(fd == -7);
    symm_work_release(work);
    return 0;
}

static void arguments_are_checked(void **state)
{
    static const int ranks[] = {1};

    assert_int_equal(run_for(state, body_arguments, ranks, 1), 0);
}

/* ---- Many ---------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 2500 };

struct one {
    struct caller *caller;
    _Atomic int calls;
    int number;
};

struct caller {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    int thread;
    int seen; /* by the notifier's thread alone */
    int late; /* calls out of order */
    _Atomic int count;
    struct one one[EACH];
    int failed;
};

static void count(symm_status status, void *arg)
{
    struct one *one = arg;

    if (status != SYMM_OK)
        return;
    if (one->number < one->caller->seen)
        one->caller->late++;
    one->caller->seen = one->number;
    atomic_fetch_add(&one->calls, 1);
    atomic_fetch_add(&one->caller->count, 1);
}

/* Notifies before, during or after the call; releases before or after. */
static int call_many(struct caller *c)
{
    symm_call call = on_stream(c->stream, "many");
    uint64_t random = (uint64_t)c->thread + 1;

    for (int i = 0; i < EACH; i++) {
        const uint64_t how = harness_random(&random);
        symm_work *work = NULL;

        c->one[i].caller = c;
        c->one[i].number = i;
        CHECK_OK(symm_barrier(c->team, &call, &work));
        if (how % 8 == 0)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        else if (how % 8 == 1)
            harness_sleep(2e-5);
        CHECK_OK(symm_work_notify(work, count, &c->one[i]));
        if (how % 8 == 2)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
    }
    CHECK(harness_until(&c->count, EACH));
    return 0;
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    c->failed = call_many(c);
    return NULL;
}

static int judge_callers(struct caller *callers)
{
    for (int t = 0; t < THREADS; t++) {
        CHECK(callers[t].failed == 0);
        CHECK_MESSAGE(callers[t].late == 0, "%d calls out of order", callers[t].late);
        for (int i = 0; i < EACH; i++)
            CHECK_MESSAGE(atomic_load(&callers[t].one[i].calls) == 1,
                          "function %d of thread %d was called %d times", i, t,
                          atomic_load(&callers[t].one[i].calls));
    }
    return 0;
}

static int body_many(symm_ctx *ctx, void *arg)
{
    struct caller *callers = calloc(THREADS, sizeof(*callers));
    pthread_t threads[THREADS];
    int failed;

    (void)arg;
    CHECK(callers != NULL);
    for (int t = 0; t < THREADS; t++) {
        callers[t].ctx = ctx;
        callers[t].thread = t;
        CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &callers[t].team));
        CHECK_OK(symm_stream_create(ctx, &callers[t].stream));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[t], NULL, run_caller, &callers[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++) {
        symm_stream_destroy(ctx, callers[t].stream);
        symm_team_destroy(callers[t].team);
    }
    failed = judge_callers(callers);
    free(callers);
    return failed;
}

static void ten_thousand_from_four_threads(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_many, ranks, 2), 0);
}

/* ---- From within a function ------------------------------------------------------------ */

struct chain {
    symm_ctx *ctx;
    symm_work *work;
    void *stream;
    _Atomic int calls, streamed, failed;
};

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

#define LINKS 1000

static void go_on(symm_status status, void *arg)
{
    struct chain *chain = arg;

    if (status != SYMM_OK || symm_stream_call(chain->ctx, chain->stream, count_up,
                                              &chain->streamed) != SYMM_OK)
        atomic_fetch_add(&chain->failed, 1);
    if (atomic_load(&chain->calls) + 1 < LINKS &&
        symm_work_notify(chain->work, go_on, chain) != SYMM_OK)
        atomic_fetch_add(&chain->failed, 1);
    atomic_fetch_add(&chain->calls, 1);
}

static int body_chain(symm_ctx *ctx, void *arg)
{
    struct chain chain = {.ctx = ctx};
    struct gate gate = {0};
    symm_call call = {.size = 0};

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &chain.stream));
    call = on_stream(chain.stream, "chain");
    CHECK_OK(symm_stream_call(ctx, chain.stream, gate_wait, &gate));
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &chain.work));
    CHECK_OK(symm_work_notify(chain.work, go_on, &chain));
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&chain.calls, LINKS));
    CHECK_OK(symm_stream_synchronize(ctx, chain.stream, HARNESS_AMPLE));
    CHECK(atomic_load(&chain.streamed) == LINKS && atomic_load(&chain.failed) == 0);
    symm_work_release(chain.work);
    symm_stream_destroy(ctx, chain.stream);
    return 0;
}

static void notify_from_a_function(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_chain, ranks, 2), 0);
}

/* Of handles that symm_work_then makes: the outcome of both. */
static symm_status queue_count(void *arg, void *stream)
{
    struct chain *chain = arg;

    return symm_stream_call(chain->ctx, stream, count_up, &chain->streamed);
}

static int body_then(symm_ctx *ctx, void *arg)
{
    struct chain chain = {.ctx = ctx};
    struct gate gate = {0};
    struct told told = {0};
    symm_work *next = NULL;
    symm_call call = {.size = 0};

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &chain.stream));
    call = on_stream(chain.stream, "then");
    CHECK_OK(symm_stream_call(ctx, chain.stream, gate_wait, &gate));
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &chain.work));
    CHECK_OK(symm_work_then(chain.work, chain.stream, queue_count, &chain, &next));
    told.work = next;
    CHECK_OK(symm_work_notify(next, tell, &told));
    CHECK(atomic_load(&told.calls) == 0);
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&told.calls, 1));
    CHECK(told.done && atomic_load(&chain.streamed) == 1);
    symm_work_release(chain.work);
    symm_work_release(next);
    symm_stream_destroy(ctx, chain.stream);
    return 0;
}

static void notify_of_what_follows(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_then, ranks, 2), 0);
}

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

/* ---- Eventfds ---------------------------------------------------------------------------- */

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
        cmocka_unit_test(functions_are_called_in_order),
        cmocka_unit_test(notify_after_the_end),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(ten_thousand_from_four_threads),
        cmocka_unit_test(notify_from_a_function),
        cmocka_unit_test(notify_of_what_follows),
        cmocka_unit_test(a_timeout_is_told),
        cmocka_unit_test(a_killed_peer_is_told),
        cmocka_unit_test(team_destroy_calls_what_is_pending),
        cmocka_unit_test(finalize_calls_what_is_pending),
        cmocka_unit_test(eventfds_are_polled),
        cmocka_unit_test(eventfds_in_epoll),
        cmocka_unit_test(without_descriptors),
        cmocka_unit_test(a_forked_child_calls_nothing),
    };

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
