/* SPDX-License-Identifier: MIT */
/* nccl.c - see nccl.h. */
#include "perf/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMMETRIC_WINDOW 1 /* NCCL_WIN_COLL_SYMMETRIC */
#define WINDOW_VERSION   22700

struct unique_id {
    char bytes[128];
};

/* X(member, symbol, arguments): NCCL's functions in its binary interface. */
#define NCCL_CALLS(X)                                                                  \
    X(get_version, "ncclGetVersion", (int *))                                          \
    X(get_id, "ncclGetUniqueId", (struct unique_id *))                                 \
    X(init_rank, "ncclCommInitRank", (void **, int, struct unique_id, int))            \
    X(destroy, "ncclCommDestroy", (void *))                                            \
    X(group_start, "ncclGroupStart", (void))                                           \
    X(group_end, "ncclGroupEnd", (void))                                               \
    X(send, "ncclSend", (const void *, size_t, int, int, void *, void *))              \
    X(receive, "ncclRecv", (void *, size_t, int, int, void *, void *))                 \
    X(all_reduce, "ncclAllReduce",                                                     \
      (const void *, void *, size_t, int, int, void *, void *))                        \
    X(reduce_scatter, "ncclReduceScatter",                                             \
      (const void *, void *, size_t, int, int, void *, void *))                        \
    X(all_gather, "ncclAllGather",                                                     \
      (const void *, void *, size_t, int, void *, void *))                             \
    X(broadcast, "ncclBroadcast",                                                      \
      (const void *, void *, size_t, int, int, void *, void *))

/* Only for windows. */
#define NCCL_WINDOW_CALLS(X)                                                           \
    X(mem_alloc, "ncclMemAlloc", (void **, size_t))                                    \
    X(mem_free, "ncclMemFree", (void *))                                               \
    X(register_window, "ncclCommWindowRegister",                                       \
      (void *, void *, size_t, void **, int))                                          \
    X(deregister_window, "ncclCommWindowDeregister", (void *, void *))

struct perf_nccl {
    void *library, *comm;
    int version, rank, size;
    void *buffers[2], *windows[2]; /* of "nccl-window"; else NULL */
#define NCCL_MEMBER(member, symbol, arguments) int(*member) arguments;
    NCCL_CALLS(NCCL_MEMBER)
    NCCL_WINDOW_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
    const char *(*error_string)(int);
};

static symm_status failed(const struct perf_nccl *nccl, int result, const char *what)
{
    if (result == 0)
        return SYMM_OK;
    fprintf(stderr, "symm-perf: rank %d: %s failed: %s\n", nccl->rank, what,
            nccl->error_string(result));
    return SYMM_ERR_SYSTEM;
}

/* dlsym returns void *; POSIX allows copying it into a function pointer. */
#define NCCL_FIND(member, symbol, arguments)                                           \
    found = dlsym(nccl->library, symbol);                                              \
    missing = found ? missing : symbol;                                                \
    memcpy(&nccl->member, &found, sizeof(found));

/* NULL: all are there; else the name of one that is not. */
static const char *find_calls(struct perf_nccl *nccl, bool window)
{
    const char *missing = NULL;
    void *found;

    NCCL_CALLS(NCCL_FIND)
    NCCL_FIND(error_string, "ncclGetErrorString", )
    if (window && !missing) {
        NCCL_WINDOW_CALLS(NCCL_FIND)
    }
    return missing;
}

static int load(struct perf_nccl *nccl, bool window)
{
    const char *path = getenv("SYMM_NCCL_LIB"), *missing;

    path = path && *path ? path : "libnccl.so.2";
    nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) {
        fprintf(stderr, "symm-perf: rank %d: --compare: %s; set SYMM_NCCL_LIB\n",
                nccl->rank, dlerror());
        return -1;
    }
    missing = find_calls(nccl, window);
    if (missing) {
        fprintf(stderr, "symm-perf: rank %d: --compare: %s has no %s: too old\n",
                nccl->rank, path, missing);
        return -1;
    }
    if (failed(nccl, nccl->get_version(&nccl->version), "ncclGetVersion"))
        return -1;
    if (!window || nccl->version >= WINDOW_VERSION)
        return 0;
    fprintf(stderr,
            "symm-perf: rank %d: --compare nccl-window: NCCL %d is older than %d\n",
            nccl->rank, nccl->version, WINDOW_VERSION);
    return -1;
}

/* Rank 0's id reaches the others through libsymm. */
static int connect_ranks(struct perf_nccl *nccl, const struct perf_job *job)
{
    struct unique_id mine = {{0}}, *all = calloc((size_t)job->size, sizeof(mine));
    symm_status status;

    if (!all ||
        (job->rank == 0 && failed(nccl, nccl->get_id(&mine), "ncclGetUniqueId"))) {
        free(all);
        return -1;
    }
    status = perf_job_gather(job, &mine, sizeof(mine), all);
    mine = all[0];
    free(all);
    if (status != SYMM_OK) {
        perf_job_failed(job, status, "passing NCCL's id");
        return -1;
    }
    return failed(nccl, nccl->init_rank(&nccl->comm, job->size, mine, job->rank),
                  "ncclCommInitRank");
}

static int make_windows(struct perf_nccl *nccl, size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        if (failed(nccl, nccl->mem_alloc(&nccl->buffers[i], bytes), "ncclMemAlloc") ||
            failed(nccl,
                   nccl->register_window(nccl->comm, nccl->buffers[i], bytes,
                                         &nccl->windows[i], SYMMETRIC_WINDOW),
                   "ncclCommWindowRegister"))
            return -1;
    }
    return 0;
}

struct perf_nccl *perf_nccl_open(const struct perf_job *job, bool window, size_t bytes)
{
    struct perf_nccl *nccl = calloc(1, sizeof(*nccl));

    if (!nccl)
        return NULL;
    nccl->rank = job->rank;
    nccl->size = job->size;
    if (load(nccl, window) || connect_ranks(nccl, job) ||
        (window && make_windows(nccl, bytes))) {
        perf_nccl_close(nccl);
        return NULL;
    }
    return nccl;
}

void perf_nccl_close(struct perf_nccl *nccl)
{
    if (!nccl)
        return;
    for (int i = 0; i < 2; i++) {
        if (nccl->windows[i])
            (void)nccl->deregister_window(nccl->comm, nccl->windows[i]);
        if (nccl->buffers[i])
            (void)nccl->mem_free(nccl->buffers[i]);
    }
    if (nccl->comm)
        (void)nccl->destroy(nccl->comm);
    free(nccl); /* the library stays loaded: its threads may still run */
}

int perf_nccl_version(const struct perf_nccl *nccl)
{
    return nccl->version;
}

void perf_nccl_buffers(const struct perf_nccl *nccl, char **send, char **receive)
{
    *send = nccl->buffers[0] ? nccl->buffers[0] : *send;
    *receive = nccl->buffers[1] ? nccl->buffers[1] : *receive;
}

/* ncclDataType_t. Integers of 16 bits are only moved: as float16, bit for bit. */
static int type_of(symm_dtype dtype)
{
    static const int types[] = {
        [SYMM_FLOAT64] = 8,  [SYMM_FLOAT32] = 7,      [SYMM_FLOAT16] = 6,
        [SYMM_BFLOAT16] = 9, [SYMM_FLOAT8_E4M3] = 10, [SYMM_FLOAT8_E5M2] = 11,
        [SYMM_INT64] = 4,    [SYMM_INT32] = 2,        [SYMM_INT8] = 0,
        [SYMM_UINT64] = 5,   [SYMM_UINT32] = 3,       [SYMM_UINT8] = 1,
        [SYMM_INT16] = 6,    [SYMM_UINT16] = 6};

    return types[dtype];
}

/* ncclRedOp_t; -1: NCCL has no such op */
static int op_of(symm_op op)
{
    static const int ops[] = {
        [SYMM_SUM] = 0, [SYMM_PROD] = 1,  [SYMM_MAX] = 2,  [SYMM_MIN] = 3,
        [SYMM_AVG] = 4, [SYMM_BAND] = -1, [SYMM_BOR] = -1, [SYMM_BXOR] = -1};

    return ops[op];
}

/* A block to and from every rank (all_to_all), or to the target and from the sender. */
static int exchange(struct perf_nccl *nccl, const struct perf_case *test,
                    const char *in, char *out, void *stream)
{
    const bool put = test->kind == PERF_PUT;
    const size_t count = test->count, block = count * test->element;
    int type = type_of(test->dtype), result = nccl->group_start();

    for (int p = 0; p < (put ? 1 : nccl->size) && result == 0; p++) {
        result = nccl->send(in + (size_t)p * block, count, type,
                            put ? perf_case_target(test) : p, nccl->comm, stream);
        if (result == 0)
            result =
                nccl->receive(out + (size_t)p * block, count, type,
                              put ? perf_case_sender(test) : p, nccl->comm, stream);
    }
    return result ? result : nccl->group_end();
}

bool perf_nccl_does(const struct perf_case *test)
{
    return !perf_kind_reduces(test->kind) ||
           (test->dtype != SYMM_INT16 && test->dtype != SYMM_UINT16 &&
            op_of(test->op) >= 0);
}

symm_status perf_nccl_call(struct perf_nccl *nccl, const struct perf_case *test,
                           void *stream)
{
    char *in = test->send, *out = test->receive;
    int type = type_of(test->dtype), op = op_of(test->op), result;

    switch (test->kind) {
    case PERF_ALL_REDUCE:
        result = nccl->all_reduce(in, out, test->count, type, op, nccl->comm, stream);
        break;
    case PERF_REDUCE_SCATTER:
        result =
            nccl->reduce_scatter(in, out, test->count, type, op, nccl->comm, stream);
        break;
    case PERF_ALL_GATHER:
        result = nccl->all_gather(in, out, test->count, type, nccl->comm, stream);
        break;
    case PERF_BROADCAST:
        result =
            nccl->broadcast(in, out, test->count, type, test->root, nccl->comm, stream);
        break;
    default:
        result = exchange(nccl, test, in, out, stream);
        break;
    }
    return failed(nccl, result, "a call of NCCL");
}
