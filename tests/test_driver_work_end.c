/* SPDX-License-Identifier: MIT */
/*
 * test_driver_work_end.c - a team or a context ends while another thread is inside a function of a
 * handle of one of its calls (CUDA backend).
 *
 * The end completes the handle and takes its event away; the handle stays its owner's. Each case
 * stops the other thread at the one place where the end must not overtake it, by functions that
 * are replaced here, and lets the end go on.
 */
/* ctest: replaces pthread_mutex_lock */
/* ctest: replaces symm__cuda_enter */
/* ctest: replaces symm__cuda_on_stream */
/* ctest: replaces symm__cuda_pool_close */
/* ctest: replaces symm__cuda_work_complete_all */
/* ctest: replaces symm__notifier_await */
/* ctest: replaces symm__notifier_post */
#include "device.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/team.h"
#include "cuda/launcher.h"

/* An end that is not held up has long happened then. */
#define AWHILE 0.05

/* ---- The stage ----------------------------------------------------------------------------- */

/* Where the other thread stops. */
enum place {
    NOWHERE,
    AT_LOCK,  /* before it takes the lock of handles, until the end is through */
    AT_ENTER, /* before it queries an event, until then or for a while */
    AT_STREAM /* the same, before it uses a stream */
};

static _Thread_local enum place stops;
static _Atomic int stopped, ended, returned;
static bool waits;            /* the end begins when the other thread has stopped */
static pthread_mutex_t *pool; /* the lock of handles */
static bool is_blind;         /* the notifier polls nothing */
static struct {
    struct symm_notifier *notifier;
    bool (*poll)(void *from);
    void *from;
} blind;                            /* what it would poll */
static bool was_early, was_running; /* see __wrap_symm__notifier_post, _pool_close */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
symm_status __real_symm__cuda_enter(struct symm_backend *backend,
                                    struct symm_cuda_scope *scope);
symm_status __wrap_symm__cuda_enter(struct symm_backend *backend,
                                    struct symm_cuda_scope *scope);
CUresult __real_symm__cuda_on_stream(struct symm_cuda_launcher *launcher,
                                     enum symm_cuda_stream_call what, CUstream stream,
                                     void *object);
CUresult __wrap_symm__cuda_on_stream(struct symm_cuda_launcher *launcher,
                                     enum symm_cuda_stream_call what, CUstream stream,
                                     void *object);
void __real_symm__cuda_pool_close(struct symm_cuda_launcher *launcher);
void __wrap_symm__cuda_pool_close(struct symm_cuda_launcher *launcher);
void __real_symm__cuda_work_complete_all(struct symm_cuda_launcher *launcher,
                                         symm_team *team);
void __wrap_symm__cuda_work_complete_all(struct symm_cuda_launcher *launcher,
                                         symm_team *team);
void __real_symm__notifier_await(struct symm_notifier *notifier,
                                 bool (*poll)(void *from), void *from);
void __wrap_symm__notifier_await(struct symm_notifier *notifier,
                                 bool (*poll)(void *from), void *from);
void __real_symm__notifier_post(struct symm_notifier *notifier,
                                struct symm_notification *list, symm_status status,
                                const char *error);
void __wrap_symm__notifier_post(struct symm_notifier *notifier,
                                struct symm_notification *list, symm_status status,
                                const char *error);

static void stop(enum place place)
{
    if (stops != place)
        return;
    stops = NOWHERE;
    atomic_store(&stopped, 1);
    for (double left = place == AT_LOCK ? HARNESS_AMPLE : AWHILE;
         left > 0 && !atomic_load(&ended); left -= 0.001)
        harness_sleep(0.001);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (mutex == pool)
        stop(AT_LOCK);
    return __real_pthread_mutex_lock(mutex);
}

symm_status __wrap_symm__cuda_enter(struct symm_backend *backend,
                                    struct symm_cuda_scope *scope)
{
    stop(AT_ENTER);
    return __real_symm__cuda_enter(backend, scope);
}

CUresult __wrap_symm__cuda_on_stream(struct symm_cuda_launcher *launcher,
                                     enum symm_cuda_stream_call what, CUstream stream,
                                     void *object)
{
    stop(AT_STREAM);
    return __real_symm__cuda_on_stream(launcher, what, stream, object);
}

void __wrap_symm__notifier_await(struct symm_notifier *notifier,
                                 bool (*poll)(void *from), void *from)
{
    blind.notifier = notifier;
    blind.poll = poll;
    blind.from = from;
    if (!is_blind)
        __real_symm__notifier_await(notifier, poll, from);
}

static void see(void)
{
    is_blind = false;
    __real_symm__notifier_await(blind.notifier, blind.poll, blind.from);
}

void __wrap_symm__cuda_work_complete_all(struct symm_cuda_launcher *launcher,
                                         symm_team *team)
{
    if (waits && team->slot == 0)
        see();
    if (waits)
        (void)harness_until(&stopped, 1);
    __real_symm__cuda_work_complete_all(launcher, team);
    if (waits)
        atomic_store(&ended, 1);
}

/* The handle is not the owner's before its notifications are posted. */
void __wrap_symm__notifier_post(struct symm_notifier *notifier,
                                struct symm_notification *list, symm_status status,
                                const char *error)
{
    const bool any = list != NULL;

    __real_symm__notifier_post(notifier, list, status, error);
    if (!any || waits)
        return;
    harness_sleep(AWHILE);
    was_early = was_early || atomic_load(&returned);
}

/* The locks of handles end with the launcher. */
void __wrap_symm__cuda_pool_close(struct symm_cuda_launcher *launcher)
{
    if (waits) {
        harness_sleep(AWHILE);
        was_running = atomic_load(&stopped) && !atomic_load(&returned);
    }
    __real_symm__cuda_pool_close(launcher);
}

/* ---- Cases --------------------------------------------------------------------------------- */

/* Makes a call and waits until its stream has run it. Its event has not been queried yet. */
static int begin(symm_ctx *ctx, symm_team *team, void **stream, symm_work **work)
{
    symm_call call = {.size = sizeof(call), .site = "last"};

    CHECK_OK(symm_stream_create(ctx, stream));
    call.stream = *stream;
    CHECK_OK(symm_barrier(team, &call, work));
    CHECK_OK(symm_stream_synchronize(ctx, *stream, HARNESS_AMPLE));
    pool = &ctx->launcher->pool;
    atomic_store(&stopped, 0);
    atomic_store(&ended, 0);
    atomic_store(&returned, 0);
    was_early = was_running = false;
    return 0;
}

static void release(symm_status status, void *work)
{
    (void)status;
    symm_work_release(work);
    atomic_store(&returned, 1);
}

/* The end posts a function that releases its handle. */
static int posts(symm_ctx *ctx, void *arg)
{
    symm_team *team = NULL;
    symm_work *work = NULL;
    void *stream;

    (void)arg;
    CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &team));
    CHECK_ZERO(begin(ctx, team, &stream, &work));
    is_blind = true; /* the end is to post it */
    CHECK_OK(symm_work_notify(work, release, work));
    symm_team_destroy(team);
    is_blind = false;
    CHECK(atomic_load(&returned) == 1);
    CHECK_MESSAGE(!was_early, "a handle was released that %s",
                  "the team's end still uses");
    symm_stream_destroy(ctx, stream);
    return 0;
}

struct other {
    enum { RELEASES, NOTIFIES, QUERIES, SYNCHRONIZES, ORDERS, FOLLOWS } does;
    symm_work *work;
    void *stream;
    symm_status status;
    bool done;
    _Atomic int told;
};

static void tell(symm_status status, void *arg)
{
    (void)status;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static symm_status nothing(void *arg, void *stream)
{
    (void)arg;
    (void)stream;
    return SYMM_OK;
}

static void *use(void *arg)
{
    static const enum place places[] = {
        [RELEASES] = AT_LOCK,      [NOTIFIES] = AT_LOCK, [QUERIES] = AT_ENTER,
        [SYNCHRONIZES] = AT_ENTER, [ORDERS] = AT_STREAM, [FOLLOWS] = AT_STREAM};
    struct other *o = arg;
    symm_work *next = NULL;

    if (o->does == FOLLOWS) /* it is known to be complete: no order has to be made */
        o->status = symm_work_query(o->work, &o->done);
    stops = places[o->does];
    switch (o->does) {
    case RELEASES:
        release(SYMM_OK, o->work);
        break;
    case NOTIFIES:
        o->status = symm_work_notify(o->work, tell, &o->told);
        symm_work_release(o->work);
        break;
    case QUERIES:
        o->status = symm_work_query(o->work, &o->done);
        break;
    case SYNCHRONIZES:
        o->status = symm_work_synchronize(o->work, 0);
        break;
    case ORDERS:
        o->status = symm_work_wait(o->work, o->stream);
        break;
    case FOLLOWS:
        o->status = symm_work_then(o->work, o->stream, nothing, NULL, &next);
    }
    symm_work_release(next);
    return NULL;
}

/* Makes a call of the world's team and asks for its end. The notifier does not poll it yet. */
static int await_another(symm_ctx *ctx, void **stream, _Atomic int *told)
{
    symm_call call = {.size = sizeof(call), .site = "another"};
    symm_work *work = NULL;

    CHECK_OK(symm_stream_create(ctx, stream));
    call.stream = *stream;
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
    CHECK_OK(symm_work_notify(work, tell, told));
    symm_work_release(work);
    return 0;
}

/* A thread uses a handle while its team ends. */
static int overtakes(symm_ctx *ctx, void *arg)
{
    struct other other = {.does = *(int *)arg};
    _Atomic int told = 0;
    void *another;
    symm_team *team = NULL;
    pthread_t thread;

    CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &team));
    CHECK_ZERO(begin(ctx, team, &other.stream, &other.work));
    is_blind = true;
    CHECK_ZERO(await_another(ctx, &another, &told));
    waits = true;
    CHECK(pthread_create(&thread, NULL, use, &other) == 0);
    CHECK(harness_until(&stopped, 1));
    symm_team_destroy(team);
    waits = false;
    pthread_join(thread, NULL);
    CHECK_OK(other.status);
    CHECK(other.does != QUERIES || other.done);
    see();
    CHECK(harness_until(&told, 1));
    if (other.does == NOTIFIES)
        CHECK(harness_until(&other.told, 1) && atomic_load(&other.told) == 1);
    else if (other.does != RELEASES)
        symm_work_release(other.work);
    symm_stream_destroy(ctx, other.stream);
    symm_stream_destroy(ctx, another);
    return 0;
}

static void release_late(symm_status status, void *work)
{
    stops = AT_LOCK;
    release(status, work);
}

/* A context ends while a function releases a handle. */
static int finalizes(symm_ctx *none, void *arg)
{
    const symm_config config = harness_config();
    symm_ctx *ctx = NULL;
    symm_work *work = NULL;
    void *stream;

    (void)none;
    (void)arg;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_ZERO(begin(ctx, symm_team_world(ctx), &stream, &work));
    waits = true;
    is_blind = true;
    CHECK_OK(symm_work_notify(work, release_late, work));
    symm_finalize(ctx);
    waits = false;
    CHECK(atomic_load(&returned) == 1);
    CHECK_MESSAGE(!was_running, "%s", "a lock ended that a function still takes");
    return 0;
}

/* ------------------------------------------------------------------------------------------- */

static void run(harness_body body, int what)
{
    struct harness h = {
        .ranks = 1, .body = body, .arg = &what, .team_bytes = (size_t)128 << 20};

    h.without_ctx = body == finalizes;
    if (device_ranks(1) == 1)
        assert_int_equal(harness_run(&h), 0);
}

static void the_end_posts_first(void **state)
{
    (void)state;
    run(posts, 0);
}

static void a_release_is_overtaken(void **state)
{
    (void)state;
    run(overtakes, RELEASES);
}

static void a_notification_is_overtaken(void **state)
{
    (void)state;
    run(overtakes, NOTIFIES);
}

static void the_end_awaits_others(void **state)
{
    (void)state;
    for (int what = QUERIES; what <= FOLLOWS; what++)
        run(overtakes, what);
}

static void a_context_awaits_functions(void **state)
{
    (void)state;
    run(finalizes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_posts_first),
        cmocka_unit_test(a_release_is_overtaken),
        cmocka_unit_test(a_notification_is_overtaken),
        cmocka_unit_test(the_end_awaits_others),
        cmocka_unit_test(a_context_awaits_functions),
    };

    device_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
