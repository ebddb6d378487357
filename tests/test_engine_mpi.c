/* SPDX-License-Identifier: MIT */
/*
 * test_engine_mpi.c - the MPI engine over a real MPI: this program starts itself under
 * mpirun, and its ranks call the plug-in's table as the library does. Skipped without MPI.
 * ctest: cost 20
 * ctest: load 2
 */
#include "engine/engine.h"
#include "mpi_job.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT 0.5 /* seconds, of a deadline that is to expire */

/* A rank, in a process of its own. */
static const struct symm_engine_ops *ops;
static struct symm_engine *engine;
static void *library;
static int rank, size;

static double until_seconds = HARNESS_AMPLE;

static struct symm_engine_wait waiting(double seconds)
{
    return (struct symm_engine_wait){.until = harness_now() + seconds};
}

static struct symm_engine_wait ample(void)
{
    return waiting(until_seconds);
}

#define CHECK_SAYS(text)                                                               \
    CHECK_MESSAGE(strstr(ops->last_error(), (text)) != NULL,                           \
                  "\"%s\" does not say \"%s\"", ops->last_error(), (text))
#define CHECK_MPI(call)                                                                \
    do {                                                                               \
        symm_status status_ = (call);                                                  \
        CHECK_MESSAGE(status_ == SYMM_OK, "%s: %s: %s", #call,                         \
                      symm_status_name(status_), ops->last_error());                   \
    } while (0)

/* Some ranks' communicator; the id comes to them as the library would carry it. */
static int make(const int *members, int count, struct symm_engine_comm **comm)
{
    const struct symm_engine_wait wait = ample();
    symm_bootstrap carry;
    struct symm_engine_id id, *ids = calloc((size_t)size, sizeof(*ids));
    int mine = -1;
    CHECK(ids != NULL);
    CHECK_MPI(ops->bootstrap(engine, &carry));
    CHECK_MPI(ops->id_create(engine, &id));
    CHECK(carry.allgather(carry.arg, &id, sizeof(id), ids) == 0);
    for (int m = 0; m < count; m++)
        if (members[m] == rank)
            mine = m;
    if (mine >= 0)
        CHECK_MPI(ops->comm_create(engine, &ids[members[0]], mine, count, members,
                                   &wait, comm));
    free(ids);
    return 0;
}

static int make_world(struct symm_engine_comm **comm)
{
    int members[64];
    for (int r = 0; r < size; r++)
        members[r] = r;
    return make(members, size, comm);
}

/* ---- Collectives --------------------------------------------------------------------- */

static int run_trial(const struct mpi_trial *t)
{
    const struct symm_engine_wait wait = ample();
    size_t n = (size_t)t->ranks, bytes = symm_dtype_size(t->dtype), count = t->count;
    bool wide_in =
        t->kind == SYMM_KIND_REDUCE_SCATTER || t->kind == SYMM_KIND_ALL_TO_ALL;
    bool wide_out = t->kind == SYMM_KIND_ALL_GATHER || t->kind == SYMM_KIND_ALL_TO_ALL;
    size_t ins = wide_in ? n * count : count, outs = wide_out ? n * count : count;
    char *memory = malloc((ins + outs + 2) * bytes), *in = memory, *out;
    CHECK(memory != NULL);
    out = t->in_place ? memory : memory + ins * bytes;
    if (t->in_place && t->kind == SYMM_KIND_ALL_GATHER)
        in = out + (size_t)t->me * count * bytes;
    memset(out, 0x5a, (outs + 1) * bytes);
    for (size_t i = 0; i < ins; i++)
        mpi_encode(t->dtype, mpi_given(t->me, i), in + i * bytes);
    struct symm_engine_request request = {.what = SYMM_ENGINE_COLLECTIVE,
                                          .kind = t->kind,
                                          .in = in,
                                          .out = out,
                                          .count = count,
                                          .dtype = t->dtype,
                                          .op = t->op,
                                          .root = (int)(count % n),
                                          .peer = -1};
    if (t->op > SYMM_MAX && !strstr(symm_dtype_name(t->dtype), "int")) {
        free(memory);
        CHECK(strcmp(ops->objection(engine, &request),
                     "the MPI engine has no such reduction") == 0);
        return 0;
    }
    CHECK(ops->objection(engine, &request) == NULL);
    CHECK_MPI(ops->run(t->comm, &request, 1, NULL, &wait));
    for (size_t i = 0; i < outs && t->kind != SYMM_KIND_BARRIER; i++)
        CHECK_ZERO(mpi_check(out, i, t->dtype, mpi_wanted(t, request.root, i),
                             symm__kind_name(t->kind)));
    free(memory);
    return 0;
}

static bool is_exact(const struct mpi_trial *t)
{
    return t->op != SYMM_AVG || strstr(symm_dtype_name(t->dtype), "int") ||
           (t->ranks & (t->ranks - 1)) == 0;
}

static int try_comm(struct symm_engine_comm *comm, int me, int ranks)
{
    /* The last two take several pieces, with a rest. */
    static const size_t counts[] = {0, 1, 7, 4099, 9001, 1200007};
    struct mpi_trial t = {.comm = comm, .me = me, .ranks = ranks};
    /* Half of the sums on 3 ranks, the others on 4; SYMM_TEST_LONG=1: all. */
    const int stride = ranks > 2 && harness_env("SYMM_TEST_LONG", 0) == 0 ? 2 : 1;
    for (t.kind = SYMM_KIND_BARRIER; t.kind < SYMM_KIND_ALL_REDUCE_NORM; t.kind++)
        for (t.dtype = SYMM_FLOAT64; symm_dtype_size(t.dtype) > 0; t.dtype++)
            for (t.op = SYMM_SUM; symm_op_name(t.op); t.op++)
                for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
                    bool sums = t.kind == SYMM_KIND_ALL_REDUCE ||
                                t.kind == SYMM_KIND_REDUCE_SCATTER;
                    t.count = counts[k];
                    t.in_place = (k + t.op) % 2 != 0;
                    if (sums && ((int)t.dtype + (int)t.op + ranks) % stride != 0)
                        continue;
                    /* Large ones of every kind, in one type and op each. */
                    if ((!sums && t.op != SYMM_SUM) || !is_exact(&t) ||
                        (k == 5 && (t.dtype != SYMM_FLOAT16 || t.op > SYMM_AVG)))
                        continue;
                    CHECK_ZERO(run_trial(&t));
                }
    return 0;
}

/* A NaN is the least and the greatest, in whatever rank it is. */
static int try_nan(struct symm_engine_comm *comm)
{
    const struct symm_engine_wait wait = ample();
    for (int k = 0; k < 2 * size; k++) {
        float in[3] = {(float)rank, rank == k / 2 ? NAN : 1, -1}, out[3];
        struct symm_engine_request request = {.what = SYMM_ENGINE_COLLECTIVE,
                                              .kind = SYMM_KIND_ALL_REDUCE,
                                              .in = in,
                                              .out = out,
                                              .count = 3,
                                              .dtype = SYMM_FLOAT32,
                                              .op = k % 2 ? SYMM_MIN : SYMM_MAX};
        CHECK_MPI(ops->run(comm, &request, 1, NULL, &wait));
        CHECK(isnan(out[1]) && out[2] == -1);
        CHECK(out[0] == (k % 2 ? 0 : (float)(size - 1)));
    }
    return 0;
}

static int rank_collectives(void)
{
    struct symm_engine_comm *comm = NULL;
    CHECK_ZERO(make_world(&comm));
    CHECK_ZERO(try_comm(comm, rank, size));
    CHECK_ZERO(try_nan(comm));
    ops->comm_destroy(comm);
    return 0;
}

/* Communicators of some ranks, in another order than the world's, several at a time. */
static int rank_parts(void)
{
    struct symm_engine_comm *comm[3] = {NULL};
    int even[32], odd[32], back[64], evens = (size + 1) / 2, odds = size / 2;
    for (int r = 0; r < size; r++) {
        (r % 2 ? odd : even)[r / 2] = r;
        back[size - 1 - r] = r;
    }
    for (int times = 0; times < 10; times++) {
        CHECK_ZERO(make(even, evens, &comm[0]));
        CHECK_ZERO(make(odd, odds, &comm[1]));
        CHECK_ZERO(make(back, size, &comm[2]));
        for (int k = 0; k < 3; k++) {
            struct mpi_trial t = {.comm = comm[k],
                                  .kind = SYMM_KIND_ALL_TO_ALL,
                                  .dtype = SYMM_INT32,
                                  .count = 1000,
                                  .me = k == 2 ? size - 1 - rank : rank / 2,
                                  .ranks = k == 0   ? evens
                                           : k == 1 ? odds
                                                    : size};
            if (k < 2 && rank % 2 != k)
                continue;
            CHECK_ZERO(run_trial(&t));
        }
        for (int k = 0; k < 3; k++)
            ops->comm_destroy(comm[k]);
        memset(comm, 0, sizeof(comm));
    }
    return 0;
}

/* ---- Sends and receives -------------------------------------------------------------- */

/* All send to all, themselves too, twice; each rank names its operations in another order. */
static int try_group(struct symm_engine_comm *comm, size_t count, unsigned seed)
{
    const struct symm_engine_wait wait = ample();
    int n = 4 * size;
    uint64_t random = seed + (uint64_t)rank;
    int *in = calloc((size_t)n * count + 1, sizeof(*in));
    struct symm_engine_request *list = calloc((size_t)n, sizeof(*list));
    CHECK(in != NULL && list != NULL);
    int *out = in + 2 * (size_t)size * count;
    for (int k = 0; k < 2 * size; k++) {
        int peer = k % size;
        for (size_t i = 0; i < count; i++)
            in[(size_t)k * count + i] = rank * 1000003 + k * 1009 + (int)i;
        list[2 * k] = (struct symm_engine_request){.what = SYMM_ENGINE_SEND,
                                                   .in = in + (size_t)k * count,
                                                   .count = count,
                                                   .dtype = SYMM_INT32,
                                                   .peer = peer};
        list[2 * k + 1] = (struct symm_engine_request){.what = SYMM_ENGINE_RECV,
                                                       .out = out + (size_t)k * count,
                                                       .count = count,
                                                       .dtype = SYMM_INT32,
                                                       .peer = peer};
    }
    for (int i = n - 1; i > 0;
         i--) { /* any order, but for those of one kind and peer */
        int j = (int)(harness_random(&random) % (unsigned)(i + 1));
        struct symm_engine_request swap = list[i];
        if (list[i].peer == list[j].peer)
            continue;
        list[i] = list[j];
        list[j] = swap;
    }
    for (int peer = 0; peer < size; peer++) /* their order is what pairs them */
        for (int what = 0; what < 2; what++) {
            int seen = 0;
            for (int i = 0; i < n; i++) {
                if (list[i].peer != peer || (list[i].what == SYMM_ENGINE_RECV) != what)
                    continue;
                int k = peer + size * seen++;
                list[i].in = what ? NULL : in + (size_t)k * count;
                list[i].out = what ? out + (size_t)k * count : NULL;
            }
        }
    CHECK_MPI(ops->run(comm, list, n, NULL, &wait));
    for (int k = 0; k < 2 * size; k++) {
        int peer = k % size, sent = rank + size * (k / size);
        for (size_t i = 0; i < count; i++)
            CHECK_MESSAGE(
                out[(size_t)k * count + i] == peer * 1000003 + sent * 1009 + (int)i,
                "rank %d: element %zu of message %d from %d", rank, i, k, peer);
    }
    free(list);
    free(in);
    return 0;
}

static int try_one(struct symm_engine_comm *comm, size_t send, size_t recv,
                   symm_status wanted, const char *says)
{
    const struct symm_engine_wait wait = waiting(wanted == SYMM_OK ? until_seconds : 5);
    char *memory = calloc(send + recv + 1, 1);
    struct symm_engine_request request = {.what = rank ? SYMM_ENGINE_RECV
                                                       : SYMM_ENGINE_SEND,
                                          .in = memory,
                                          .out = memory,
                                          .count = rank ? recv : send,
                                          .dtype = SYMM_UINT8,
                                          .peer = 1 - rank};
    CHECK(memory != NULL);
    if (rank > 1) {
        free(memory);
        return 0;
    }
    symm_status status = ops->run(comm, &request, 1, NULL, &wait);
    free(memory); /* at once: a failed operation must not use it any more */
    if (rank == 1) {
        CHECK_MESSAGE(status == wanted, "%s: %s", symm_status_name(status),
                      ops->last_error());
        if (says)
            CHECK_SAYS(says);
    }
    return 0;
}

static int rank_messages(void)
{
    static const size_t counts[] = {0, 1, 5000, 200000, 700001};
    struct symm_engine_comm *comm = NULL;
    CHECK_ZERO(make_world(&comm));
    for (unsigned k = 0; k < 5; k++)
        CHECK_ZERO(try_group(comm, counts[k], k));
    for (int i = 0; i < 3000; i++)
        CHECK_ZERO(try_one(comm, 8, 8, SYMM_OK, NULL));
    ops->comm_destroy(comm);
    for (int k = 0; k < 3; k++) { /* ends that do not fit: an error that says so */
        CHECK_ZERO(make_world(&comm));
        CHECK_ZERO(try_one(comm, k == 1 ? 16 : 8, k == 1 ? 8 : 16, SYMM_ERR_MISMATCH,
                           "to be received"));
        ops->comm_abort(comm);
        ops->comm_destroy(comm);
    }
    return 0;
}

/* ---- Ranks that do not come ---------------------------------------------------------- */

static struct symm_engine_request reduce_of(void *data, size_t count)
{
    return (struct symm_engine_request){.what = SYMM_ENGINE_COLLECTIVE,
                                        .kind = SYMM_KIND_ALL_REDUCE,
                                        .in = data,
                                        .out = data,
                                        .count = count,
                                        .dtype = SYMM_FLOAT32,
                                        .op = SYMM_SUM};
}

static symm_status stop_at_once(void *arg)
{
    (void)arg;
    return SYMM_ERR_PEER_DEAD;
}

static void *abort_later(void *arg)
{
    harness_sleep(0.1);
    ops->comm_abort(arg);
    return NULL;
}

/* The last rank is late: at the deadline, when waiting has lost its sense, when it is
 * aborted. */
static int rank_late(void)
{
    struct symm_engine_comm *comm = NULL, *next = NULL;
    const size_t count = 1 << 20;
    symm_bootstrap carry;
    char nothing[64], mine = 0;
    CHECK_MPI(ops->bootstrap(engine, &carry));
    for (int k = 0; k < 3; k++) {
        float *data = calloc(count, sizeof(*data));
        struct symm_engine_request request = reduce_of(data, count);
        struct symm_engine_wait wait;
        pthread_t thread;
        double start;
        CHECK(data != NULL);
        CHECK_ZERO(make_world(&comm));
        start = harness_now();
        wait = waiting(k == 0 ? SHORT : HARNESS_AMPLE);
        if (rank == size - 1) {
            free(data);
        } else {
            symm_status wanted = k == 0   ? SYMM_ERR_TIMEOUT
                                 : k == 1 ? SYMM_ERR_PEER_DEAD
                                          : SYMM_ERR_ABORTED;
            wait.stop = k == 1 ? stop_at_once : NULL;
            if (k == 2)
                CHECK(pthread_create(&thread, NULL, abort_later, comm) == 0);
            CHECK_STATUS(ops->run(comm, &request, 1, NULL, &wait), wanted);
            free(data); /* late packets must not find it */
            CHECK(harness_now() - start >= (k == 0 ? SHORT : k == 2 ? 0.09 : 0));
            CHECK(harness_now() - start < HARNESS_SOON);
            CHECK_SAYS(k == 0 ? "SYMM_TIMEOUT" : k == 1 ? "died" : "aborted");
            if (k == 2)
                pthread_join(thread, NULL);
            CHECK_STATUS(ops->run(comm, &request, 1, NULL, &wait), SYMM_ERR_ABORTED);
        }
        ops->comm_abort(comm);
        ops->comm_destroy(comm);
        comm = NULL;
        CHECK(carry.allgather(carry.arg, &mine, 1, nothing) == 0);
        /* Others are as good as ever. */
        CHECK_ZERO(make_world(&next));
        struct mpi_trial t = {.comm = next,
                              .me = rank,
                              .ranks = size,
                              .kind = SYMM_KIND_ALL_REDUCE,
                              .dtype = SYMM_INT32,
                              .count = 100000};
        CHECK_ZERO(run_trial(&t));
        ops->comm_destroy(next);
    }
    return 0;
}

/* The last rank dies while the others are in a call with it. */
static int rank_killed(void)
{
    struct symm_engine_comm *comm = NULL;
    float data[1000] = {0};
    struct symm_engine_request request = reduce_of(data, 1000);
    struct symm_engine_wait wait;
    symm_status status = SYMM_OK;
    CHECK_ZERO(make_world(&comm));
    wait = waiting(2);
    for (int i = 0; status == SYMM_OK; i++) {
        if (rank == size - 1 && i == 100)
            raise(SIGKILL);
        status = ops->run(comm, &request, 1, NULL, &wait);
    }
    CHECK(status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_ABORTED);
    printf("rank %d: %s: %s\n", rank, symm_status_name(status), ops->last_error());
    ops->comm_abort(comm);
    ops->comm_destroy(comm);
    return 0;
}

/* A communicator whose last member does not come is not made, by the deadline. */
static int rank_absent(void)
{
    int members[2] = {0, size - 1};
    struct symm_engine_wait wait = waiting(SHORT);
    struct symm_engine_comm *comm = NULL, *world = NULL;
    struct symm_engine_id id;
    CHECK_ZERO(make_world(&world));
    CHECK_MPI(ops->id_create(engine, &id));
    if (rank == 0) {
        CHECK_STATUS(ops->comm_create(engine, &id, 0, 2, members, &wait, &comm),
                     SYMM_ERR_TIMEOUT);
        CHECK(comm == NULL);
    }
    struct mpi_trial t = {.comm = world,
                          .me = rank,
                          .ranks = size,
                          .kind = SYMM_KIND_BARRIER,
                          .dtype = SYMM_INT32,
                          .count = 1};
    CHECK_ZERO(run_trial(&t));
    members[0] = rank; /* not who MPI says */
    members[1] = size;
    wait = ample();
    CHECK_STATUS(ops->comm_create(engine, &id, 0, 2, members, &wait, &comm),
                 SYMM_ERR_JOB);
    members[0] = (rank + 1) % size;
    CHECK_STATUS(ops->comm_create(engine, &id, 0, 1, members, &wait, &comm),
                 SYMM_ERR_JOB);
    ops->comm_destroy(world);
    return 0;
}

/* ---- Threads ------------------------------------------------------------------------- */

struct thread {
    struct symm_engine_comm *comm;
    int result;
    symm_status status;
};

static void *run_in_thread(void *arg)
{
    struct thread *thread = arg;
    float data[4] = {1, 2, 3, 4};
    const struct symm_engine_wait wait = ample();
    struct symm_engine_request request = reduce_of(data, 4);
    for (int i = 0; i < 200 && thread->status == SYMM_OK; i++)
        thread->status = ops->run(thread->comm, &request, 1, NULL, &wait);
    return NULL;
}

/* MPI as the program has it: below SERIALIZED another thread is refused. */
static int rank_level(int level)
{
    struct thread threads[3] = {0};
    pthread_t ids[3];
    int query = -1;
    __typeof__(int(int *)) *query_thread =
        (__typeof__(query_thread))(uintptr_t)dlsym(library, "MPI_Query_thread");
    CHECK(query_thread != NULL && query_thread(&query) == 0);
    for (int k = 0; k < 3; k++)
        CHECK_ZERO(make_world(&threads[k].comm));
    for (int k = 0; k < 3; k++)
        CHECK(pthread_create(&ids[k], NULL, run_in_thread, &threads[k]) == 0);
    for (int k = 0; k < 3; k++) {
        pthread_join(ids[k], NULL);
        CHECK_MESSAGE(threads[k].status == (query < 2 ? SYMM_ERR_UNSUPPORTED : SYMM_OK),
                      "level %d of %d: %s", query, level,
                      symm_status_name(threads[k].status));
    }
    for (int k = 0; k < 3; k++)
        ops->comm_destroy(threads[k].comm);
    return 0;
}

/* ---- The start of a rank ------------------------------------------------------------- */

static int rank_main(const char *mode)
{
    int level = strncmp(mode, "level", 5) == 0 ? atoi(mode + 5) : -1, got = 0, result;
    symm_bootstrap carry;
    int mine[2], all[128];
    library = dlopen(SYMM_MPI_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    CHECK_MESSAGE(library != NULL, "%s", dlerror());
    ops = dlsym(library, SYMM_ENGINE_SYMBOL);
    CHECK(ops != NULL && ops->size >= sizeof(*ops) && !ops->device);
    if (level >= 0) { /* the program's own MPI_Init_thread */
        __typeof__(int(int *, char ***, int, int *)) *init =
            (__typeof__(init))(uintptr_t)dlsym(library, "MPI_Init_thread");
        CHECK(init != NULL && init(NULL, NULL, level, &got) == 0);
    }
    if (strcmp(mode, "alone") == 0) {
        CHECK_STATUS(ops->open(&engine), SYMM_ERR_UNSUPPORTED);
        CHECK_SAYS("mpirun");
        return 0;
    }
    CHECK_MPI(ops->open(&engine));
    CHECK(strstr(ops->version(engine), "MPI") != NULL);
    CHECK_MPI(ops->bootstrap(engine, &carry));
    mine[0] = (int)harness_env("OMPI_COMM_WORLD_RANK", harness_env("PMI_RANK", -1));
    mine[1] = 7;
    size = (int)harness_env("OMPI_COMM_WORLD_SIZE", harness_env("PMI_SIZE", -1));
    rank = mine[0];
    CHECK(size > 0 && size <= 64);
    CHECK(carry.allgather(carry.arg, mine, sizeof(mine), all) == 0);
    for (int r = 0; r < size; r++)
        CHECK(all[2 * r] == r && all[2 * r + 1] == 7);
    result = strcmp(mode, "collectives") == 0 ? rank_collectives()
             : strcmp(mode, "parts") == 0     ? rank_parts()
             : strcmp(mode, "messages") == 0  ? rank_messages()
             : strcmp(mode, "late") == 0      ? rank_late()
             : strcmp(mode, "absent") == 0    ? rank_absent()
             : strcmp(mode, "killed") == 0    ? rank_killed()
                                              : rank_level(level);
    if (result != 0)
        _exit(1); /* the others are waiting */
    ops->close(engine);
    if (level >= 0) {
        __typeof__(int(void)) *finalize =
            (__typeof__(finalize))(uintptr_t)dlsym(library, "MPI_Finalize");
        CHECK(finalize() == 0);
    }
    return 0;
}

/* ---- The suite ----------------------------------------------------------------------- */

static void collectives(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        assert_int_equal(mpi_start(ranks, "collectives"), 0);
}

static void communicators_of_some_ranks(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(2, "parts"), 0);
    assert_int_equal(mpi_start(5, "parts"), 0);
}

static void sends_and_receives(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(2, "messages"), 0);
    assert_int_equal(mpi_start(3, "messages"), 0);
}

static void late_ranks(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(2, "late"), 0);
    assert_int_equal(mpi_start(3, "late"), 0);
    assert_int_equal(mpi_start(3, "absent"), 0);
}

static void levels_of_threads(void **state)
{
    (void)state;
    for (int level = 0; level <= 3; level++) {
        char mode[32];
        snprintf(mode, sizeof(mode), "level%d", level);
        assert_int_equal(mpi_start(2, mode), 0);
    }
}

/* mpirun ends the whole job unless it is told that the others can go on. */
static void a_dead_rank(void **state)
{
    (void)state;
    if (system("'" SYMM_MPIEXEC "' --version | grep -Eq '(OpenRTE|Open MPI).* 4'") != 0)
        skip();
    setenv("OMPI_MCA_orte_enable_recovery", "1", 1);
    assert_int_equal(mpi_start(3, "killed"), 0);
    unsetenv("OMPI_MCA_orte_enable_recovery");
}

static void without_a_launcher(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(0, "alone"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_launcher),
        cmocka_unit_test(collectives),
        cmocka_unit_test(communicators_of_some_ranks),
        cmocka_unit_test(sends_and_receives),
        cmocka_unit_test(late_ranks),
        cmocka_unit_test(a_dead_rank),
        cmocka_unit_test(levels_of_threads),
    };
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return rank_main(argv[2]);
    mpi_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
