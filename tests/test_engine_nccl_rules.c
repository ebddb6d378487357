/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_rules.c - the fake NCCL detects each broken rule: this suite calls it as
 * the engine must not.
 */
#include "driver.h"
#include "engine/nccl_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "engine_stage.h"

/* One rank alone, or the first of two. */
struct plant {
    struct driver driver;
    void *library, *comm, *stream;
    int (*id)(struct symm_nccl_id *);
    int (*init)(void **, int, struct symm_nccl_id, int, struct symm_nccl_config *);
    int (*call)(void *);
};

static void *find(const struct plant *p, const char *name)
{
    void *found = dlsym(p->library, name);

    if (!found)
        abort();
    return found;
}

static int open_plant(struct plant *p)
{
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    struct symm_nccl_id id;
    int (*error)(void *, int *);
    int state;

    CHECK_ZERO(driver_start(&p->driver));
    p->library = dlopen(SYMM_FAKE_NCCL, RTLD_NOW);
    CHECK(p->library != NULL);
    p->id = (int (*)(struct symm_nccl_id *))find(p, "ncclGetUniqueId");
    p->init = (int (*)(void **, int, struct symm_nccl_id, int,
                       struct symm_nccl_config *))find(p, "ncclCommInitRankConfig");
    error = (int (*)(void *, int *))find(p, "ncclCommGetAsyncError");
    CHECK(p->id(&id) == 0);
    state = p->init(&p->comm, 1, id, 0, &config);
    if (state == SYMM_NCCL_IN_PROGRESS)
        CHECK(error(p->comm, &state) == 0);
    CHECK(state == 0);
    return 0;
}

static int call(struct plant *p, const char *name)
{
    int (*function)(void *) = (int (*)(void *))find(p, name);

    return function(p->comm);
}

static void *enroll(struct plant *p, void *at, size_t bytes)
{
    int (*function)(void *, void *, size_t, void **) =
        (int (*)(void *, void *, size_t, void **))find(p, "ncclCommRegister");
    void *handle = NULL;

    return function(p->comm, at, bytes, &handle) == 0 ? handle : NULL;
}

static int dismiss(struct plant *p, void *handle)
{
    int (*function)(void *, void *) =
        (int (*)(void *, void *))find(p, "ncclCommDeregister");

    return function(p->comm, handle);
}

static int reduce(struct plant *p, void *at)
{
    int (*function)(const void *, void *, size_t, int, int, void *, void *) =
        (int (*)(const void *, void *, size_t, int, int, void *, void *))find(
            p, "ncclAllReduce");

    return function(at, at, 1, 2, 0, p->comm, NULL);
}

enum plant_kind {
    NONE,
    TWICE,
    LEFT_AT_DESTROY,
    FREED,
    UNKNOWN_HANDLE,
    AFTER_ABORT,
    AFTER_DESTROY,
    TWO_ABORTS,
    IN_PROGRESS,
    GROUP,
    END_IN_GROUP,
    BUSY_SPLIT,
    TWO_THREADS,
    NOT_READY,
    NOT_BLOCKING,
    NO_DEVICE,
    LEAKED,
    PLANTS
};

static const char *const words[PLANTS] = {
    [TWICE] = "is registered already",
    [LEFT_AT_DESTROY] = "ncclCommDestroy of a communicator with memory registered",
    [FREED] = "was freed before",
    [UNKNOWN_HANDLE] = "is not registered",
    [AFTER_ABORT] = "ncclAllReduce on a communicator that was aborted",
    [AFTER_DESTROY] = "ncclCommRegister on a communicator that was destroyed",
    [TWO_ABORTS] = "ncclCommAbort on a communicator that was aborted",
    [IN_PROGRESS] = "ncclAllReduce while a call is in progress",
    [GROUP] = "ncclGroupEnd without ncclGroupStart",
    [END_IN_GROUP] = "ncclCommAbort in a group",
    [NOT_READY] = "ncclAllReduce on a communicator that is not ready",
    [BUSY_SPLIT] = "ncclCommSplit with operations under way",
    [TWO_THREADS] = "ncclAllReduce while another thread is in a call",
    [NOT_BLOCKING] = "a communicator that does not block",
    [NO_DEVICE] = "with no current device",
    [LEAKED] = "leaves a communicator of 1",
};

static int plant_memory(struct plant *p, enum plant_kind kind, char *memory)
{
    void *handle = enroll(p, memory, 4096);

    CHECK(handle != NULL);
    switch (kind) {
    case TWICE:
        enroll(p, memory + 4000, 100);
        break;
    case LEFT_AT_DESTROY:
        call(p, "ncclCommDestroy");
        break;
    case FREED:
        munmap(memory, 8192);
        dismiss(p, handle);
        break;
    case UNKNOWN_HANDLE:
        dismiss(p, handle);
        dismiss(p, handle);
        break;
    default:
        CHECK(dismiss(p, handle) == 0);
    }
    return 0;
}

static int plant_start(struct plant *p, enum plant_kind kind)
{
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    struct symm_nccl_id id;

    CHECK(p->id(&id) == 0);
    if (kind == NOT_BLOCKING)
        config.blocking = 0;
    if (kind == NO_DEVICE)
        CHECK_CU(p->driver.cu->cuCtxSetCurrent(NULL));
    (void)p->init(&p->comm, 2, id, 0, &config);
    if (kind == NOT_READY)
        reduce(p, &config);
    return 0;
}

static int split(struct plant *p)
{
    int (*function)(void *, int, int, void **, struct symm_nccl_config *) = (int (*)(
        void *, int, int, void **, struct symm_nccl_config *))find(p, "ncclCommSplit");
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    void *made;

    return function(p->comm, 0, 0, &made, &config);
}

static void *reduce_stuck(void *arg)
{
    struct plant *p = arg;

    (void)reduce(p, NULL);
    return NULL;
}

/* Never ends by itself: two threads are in a call of one communicator. */
static int plant_threads(struct plant *p)
{
    pthread_t threads[2];

    setenv("FAKE_NCCL_STUCK", "ncclAllReduce", 1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, reduce_stuck, p) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static int plant_end(struct plant *p, enum plant_kind kind, char *memory)
{
    switch (kind) {
    case BUSY_SPLIT:
        setenv("FAKE_NCCL_HANG", "ncclAllReduce", 1);
        CHECK(reduce(p, memory) == SYMM_NCCL_SUCCESS);
        split(p);
        break;
    case TWO_THREADS:
        return plant_threads(p);
    case GROUP:
        ((int (*)(void))find(p, "ncclGroupEnd"))();
        break;
    case END_IN_GROUP:
        ((int (*)(void))find(p, "ncclGroupStart"))();
        call(p, "ncclCommAbort");
        break;
    case AFTER_DESTROY:
        CHECK(call(p, "ncclCommDestroy") == 0);
        enroll(p, memory, 1);
        break;
    case IN_PROGRESS:
        CHECK(reduce(p, memory) == SYMM_NCCL_IN_PROGRESS);
        reduce(p, memory);
        break;
    case LEAKED:
        exit(0);
    default:
        CHECK(call(p, "ncclCommAbort") == 0);
        if (kind == AFTER_ABORT)
            reduce(p, memory);
        if (kind == TWO_ABORTS)
            call(p, "ncclCommAbort");
    }
    return 0;
}

static int plant(void *arg)
{
    enum plant_kind kind = *(const enum plant_kind *)arg;
    struct plant p;
    char *memory =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    if (kind == IN_PROGRESS || kind == NOT_READY)
        setenv("NCCL_COMM_BLOCKING", "0", 1);
    CHECK_ZERO(open_plant(&p));
    if (kind >= NOT_READY && kind <= NO_DEVICE)
        return plant_start(&p, kind);
    CHECK_ZERO(plant_memory(&p, kind, memory));
    return plant_end(&p, kind, memory);
}

static void test_plants(void **state)
{
    char text[DRIVER_TEXT];

    (void)state;
    for (enum plant_kind kind = NONE; kind < PLANTS; kind++) {
        if (kind == NONE)
            assert_int_equal(driver_lives(plant, &kind, NULL), 0);
        else if (kind == LEAKED) {
            assert_int_not_equal(driver_child(plant, &kind, NULL, text), 0);
            assert_non_null(strstr(text, words[kind]));
        } else {
            assert_int_equal(driver_dies(plant, &kind, NULL, words[kind]), 0);
        }
    }
}

/* ---- Between ranks: as threads, so that one death is seen ------------------------ */

struct pair {
    struct plant *plant;
    struct symm_nccl_id id;
    int rank, kind; /* 0: window sizes, 1: counts, 2: types */
};

static void *member(void *arg)
{
    struct pair *pair = arg;
    struct plant own = *pair->plant;
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    int (*error)(void *, int *) =
        (int (*)(void *, int *))find(&own, "ncclCommGetAsyncError");
    int (*window)(void *, void *, size_t, void **, int) =
        (int (*)(void *, void *, size_t, void **, int))find(&own,
                                                            "ncclCommWindowRegister");
    int (*gather)(const void *, void *, size_t, int, void *, void *) = (int (*)(
        const void *, void *, size_t, int, void *, void *))find(&own, "ncclAllGather");
    static char memory[2][65536];
    CUcontext context;
    void *handle;
    int state;

    if (own.driver.cu->cuDevicePrimaryCtxRetain(&context, pair->rank) != CUDA_SUCCESS ||
        own.driver.cu->cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return NULL;
    state = own.init(&own.comm, 2, pair->id, pair->rank, &config);
    while (state == SYMM_NCCL_IN_PROGRESS)
        (void)error(own.comm, &state);
    if (pair->kind == 0)
        (void)window(own.comm, memory[pair->rank], 4096u << pair->rank, &handle, 1);
    else if (pair->kind == 1)
        (void)gather(memory[pair->rank], memory[pair->rank] + 1024,
                     10 + (size_t)pair->rank, 2, own.comm, NULL);
    else
        (void)gather(memory[pair->rank], memory[pair->rank] + 1024, 10, 2 + pair->rank,
                     own.comm, NULL);
    harness_sleep(HARNESS_SOON);
    return NULL;
}

static int disagree(void *arg)
{
    struct plant p;
    struct pair pairs[2];
    pthread_t threads[2];

    CHECK_ZERO(open_plant(&p));
    pairs[0] = pairs[1] = (struct pair){.plant = &p, .kind = *(const int *)arg};
    CHECK(p.id(&pairs[0].id) == 0);
    pairs[1].id = pairs[0].id;
    pairs[1].rank = 1;
    for (int r = 0; r < 2; r++)
        CHECK(pthread_create(&threads[r], NULL, member, &pairs[r]) == 0);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    return 0;
}

static void test_disagreement(void **state)
{
    static const char *const said[] = {"not the same order", "receives", "of type"};

    (void)state;
    for (int kind = 0; kind < 3; kind++)
        assert_int_equal(driver_dies(disagree, &kind, NULL, said[kind]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plants),
                                       cmocka_unit_test(test_disagreement)};

    if (device_real())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
