/* SPDX-License-Identifier: MIT */
/*
 * nccl_abi.h - the part of NCCL's binary interface that the engine uses: functions, results
 * and the configuration of a communicator. It is declared here, so that neither the build nor
 * the library needs NCCL. Nothing of it has changed since NCCL 2.18 or since it was
 * added; the same is true of the values of ncclDataType_t and ncclRedOp_t (nccl.c).
 */
#ifndef SYMM_ENGINE_NCCL_ABI_H
#define SYMM_ENGINE_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>

#define SYMM_NCCL_CTAS                                                                 \
    32 /* of an operation: what NCCL takes at most by itself on H100 */
#define SYMM_NCCL_OLDEST        21800 /* the first with the configuration below */
#define SYMM_NCCL_REGISTERS     21900 /* has ncclCommRegister */
#define SYMM_NCCL_FLOAT8        22400 /* reduces float8 */
#define SYMM_NCCL_WINDOWS       22700 /* has ncclCommWindowRegister */
#define SYMM_NCCL_SUCCESS       0
#define SYMM_NCCL_INVALID       4
#define SYMM_NCCL_INVALID_USAGE 5
#define SYMM_NCCL_REMOTE        6
#define SYMM_NCCL_IN_PROGRESS   7
#define SYMM_NCCL_SYMMETRIC     1    /* NCCL_WIN_COLL_SYMMETRIC */
#define SYMM_NCCL_NO_COLOR      (-1) /* NCCL_SPLIT_NOCOLOR */

struct symm_nccl_id {
    char bytes[128];
};

/* ncclConfig_t of 2.18: later versions take it by its size. */
struct symm_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

#define SYMM_NCCL_CONFIG                                                               \
    {                                                                                  \
        .size = sizeof(struct symm_nccl_config), .magic = 0xcafebeef,                  \
        .version = SYMM_NCCL_OLDEST, .blocking = 1, .cga_cluster_size = INT_MIN,       \
        .min_ctas = INT_MIN, .max_ctas = SYMM_NCCL_CTAS, .net_name = NULL,             \
        .split_share = INT_MIN                                                         \
    }

/* X(member, symbol, since, arguments); a function since 0 must be there. Communicators,
 * streams, windows and handles are pointers. */
#define SYMM_NCCL_MAP(X)                                                               \
    X(get_version, "ncclGetVersion", 0, (int *))                                       \
    X(get_id, "ncclGetUniqueId", 0, (struct symm_nccl_id *))                           \
    X(init_rank, "ncclCommInitRankConfig", 0,                                          \
      (void **, int, struct symm_nccl_id, int, struct symm_nccl_config *))             \
    X(split, "ncclCommSplit", 0,                                                       \
      (void *, int, int, void **, struct symm_nccl_config *))                          \
    X(finalize, "ncclCommFinalize", 0, (void *))                                       \
    X(destroy, "ncclCommDestroy", 0, (void *))                                         \
    X(abort, "ncclCommAbort", 0, (void *))                                             \
    X(async_error, "ncclCommGetAsyncError", 0, (void *, int *))                        \
    X(group_start, "ncclGroupStart", 0, (void))                                        \
    X(group_end, "ncclGroupEnd", 0, (void))                                            \
    X(all_reduce, "ncclAllReduce", 0,                                                  \
      (const void *, void *, size_t, int, int, void *, void *))                        \
    X(reduce_scatter, "ncclReduceScatter", 0,                                          \
      (const void *, void *, size_t, int, int, void *, void *))                        \
    X(all_gather, "ncclAllGather", 0,                                                  \
      (const void *, void *, size_t, int, void *, void *))                             \
    X(broadcast, "ncclBroadcast", 0,                                                   \
      (const void *, void *, size_t, int, int, void *, void *))                        \
    X(send, "ncclSend", 0, (const void *, size_t, int, int, void *, void *))           \
    X(receive, "ncclRecv", 0, (void *, size_t, int, int, void *, void *))              \
    X(register_memory, "ncclCommRegister", SYMM_NCCL_REGISTERS,                        \
      (void *, void *, size_t, void **))                                               \
    X(deregister_memory, "ncclCommDeregister", SYMM_NCCL_REGISTERS, (void *, void *))  \
    X(register_window, "ncclCommWindowRegister", SYMM_NCCL_WINDOWS,                    \
      (void *, void *, size_t, void **, int))                                          \
    X(deregister_window, "ncclCommWindowDeregister", SYMM_NCCL_WINDOWS,                \
      (void *, void *))

struct symm_nccl {
    int version; /* 22809 for 2.28.9 */
    char name[32];
#define SYMM_NCCL_MEMBER(member, symbol, since, arguments) int(*member) arguments;
    SYMM_NCCL_MAP(SYMM_NCCL_MEMBER)
#undef SYMM_NCCL_MEMBER
    const char *(*error_string)(int);
    const char *(*last_error)(void *); /* ncclGetLastError */
};

#endif
