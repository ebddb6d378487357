/* SPDX-License-Identifier: MIT */
/*
 * table.c - which CUDA kernel does which collective by which algorithm; shape.h has how many
 * blocks and threads.
 *
 * Pure: the answer depends on the query alone, so ranks with equal queries get equal
 * answers. Refuses, by false: combinations without a kernel, teams of more than
 * SYMM_DEVICE_RANKS, scratch too small for one packet of every thread of a warp. The caller
 * checks whether memory is symmetric and whether there is multicast.
 */
#include <stddef.h>

#include "kernels/cuda/shape.h"

#define WARP 32u

enum data {
    DATA_ANY,
    DATA_FLOAT,  /* floats up to 32 bits: those that Lamport packets can carry */
    DATA_SWITCH, /* SUM of float32, float16, bfloat16: what multicast adds up */
    DATA_EXACT   /* dtype, SUM and size of the entry */
};

struct entry {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    struct symm_cuda_division by;
    enum data data;
    symm_dtype dtype;
    int size;
    struct symm_cuda_kernel kernel, by_pointer; /* by_pointer.name NULL: none */
};

/* Whether there is a kernel by pointer. All kernels that use peers' arrays have one; of sums that
 * only read, only the kernel for any type, since two_shot_inplace can do what they do. */
#define HAS_POINTERS(kind, algorithm, data)                                            \
    (SYMM_ALGORITHM_##algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||                  \
     ((SYMM_ALGORITHM_##algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL ||                   \
       SYMM_ALGORITHM_##algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL) &&                  \
      (SYMM_KIND_##kind != SYMM_KIND_ALL_REDUCE || (data) == DATA_ANY)))
#define ROW(kind, algorithm, split, payload, data, dtype, size, name, module)          \
    {                                                                                  \
        SYMM_KIND_##kind, SYMM_ALGORITHM_##algorithm, {split, payload}, data, dtype,   \
            size, {name, module},                                                      \
        {                                                                              \
            HAS_POINTERS(kind, algorithm, data) ? name "_by_pointer" : NULL,           \
                HAS_POINTERS(kind, algorithm, data) ? module "_by_pointer" : NULL      \
        }                                                                              \
    }
#define ANY(kind, algorithm, split, payload, module, name)                             \
    ROW(kind, algorithm, split, payload, DATA_ANY, SYMM_FLOAT32, 0,                    \
        "symm_" name "_any", module)
#define FLOATS(kind, algorithm, split, payload, module, name)                          \
    ROW(kind, algorithm, split, payload, DATA_FLOAT, SYMM_FLOAT32, 0, name, module)
#define SWITCH(kind, algorithm, name)                                                  \
    ROW(kind, algorithm, BY_PULL, 16, DATA_SWITCH, SYMM_FLOAT32, 0,                    \
        "symm_" name "_any", "multimem")
#define EXACT(kind, algorithm, split, payload, module, name, DTYPE, dtype, size)       \
    ROW(kind, algorithm, split, payload, DATA_EXACT, SYMM_##DTYPE, size,               \
        "symm_" name "_" #dtype "_n" #size, module)
/* SIZES, of 2 ranks, of 4 and 8, and of all three. */
#define PAIR(kind, algorithm, split, payload, module, name, DTYPE, dtype)              \
    EXACT(kind, algorithm, split, payload, module, name, DTYPE, dtype, 2)
#define LARGE(kind, algorithm, split, payload, module, name, DTYPE, dtype)             \
    EXACT(kind, algorithm, split, payload, module, name, DTYPE, dtype, 4),             \
        EXACT(kind, algorithm, split, payload, module, name, DTYPE, dtype, 8)
#define EACH(kind, algorithm, split, payload, module, name, DTYPE, dtype)              \
    PAIR(kind, algorithm, split, payload, module, name, DTYPE, dtype),                 \
        LARGE(kind, algorithm, split, payload, module, name, DTYPE, dtype)
/* The hot kernels of an algorithm. */
#define TYPES(SIZES, kind, algorithm, split, payload, module, name)                    \
    SIZES(kind, algorithm, split, payload, module, name, BFLOAT16, bfloat16),          \
        SIZES(kind, algorithm, split, payload, module, name, FLOAT16, float16),        \
        SIZES(kind, algorithm, split, payload, module, name, FLOAT32, float32)

/* The same, of teams of more than SYMM_FEW_RANKS. */
#define WIDE(kind, algorithm, split, payload, data, module, name)                      \
    {                                                                                  \
        SYMM_KIND_##kind, SYMM_ALGORITHM_##algorithm, {split, payload}, data,          \
            SYMM_FLOAT32, 0, {"symm_" name "_wide", module "_wide"},                   \
        {                                                                              \
            NULL, NULL                                                                 \
        }                                                                              \
    }

/* The first entry that fits is taken. */
static const struct entry entries[] = {
    EACH(ALL_REDUCE, LL_PUSH, BY_EACH, 8, "all_reduce_line", "all_reduce_ll_line",
         INT32, int32),
    ANY(ALL_REDUCE, LL_PUSH, BY_PAIR, 8, "all_reduce_pair", "all_reduce_ll_pair"),
    ANY(ALL_REDUCE, LL_PUSH, BY_EXCHANGE, 8, "all_reduce_ll", "all_reduce_ll_push"),
    TYPES(LARGE, ALL_REDUCE, LAMPORT_PUSH, BY_EACH, 16, "all_reduce_line",
          "all_reduce_lamport_line"),
    TYPES(PAIR, ALL_REDUCE, LAMPORT_PUSH, BY_PAIR, 16, "all_reduce_pair",
          "all_reduce_pair"),
    TYPES(PAIR, ALL_REDUCE, LAMPORT_PUSH, BY_MANY, 16, "all_reduce_pair",
          "all_reduce_pair_many"),
    FLOATS(ALL_REDUCE, LAMPORT_PUSH, BY_EXCHANGE, 16, "all_reduce_lamport",
           "symm_all_reduce_lamport_push_any"),
    TYPES(EACH, ALL_REDUCE, TWO_SHOT_PUSH, BY_TWO_PACKET, 16,
          "all_reduce_two_shot_line", "all_reduce_two_shot_line"),
    TYPES(LARGE, ALL_REDUCE, TWO_SHOT_PUSH, BY_TWO_WIDE, 16, "all_reduce_two_shot_line",
          "all_reduce_two_shot_wide"),
    TYPES(EACH, ALL_REDUCE, TWO_SHOT_PUSH, BY_TWO_SHOT, 16, "all_reduce_two_shot_push",
          "all_reduce_two_shot_push"),
    FLOATS(ALL_REDUCE, TWO_SHOT_PUSH, BY_TWO_SHOT, 16, "all_reduce_two_shot_push",
           "symm_all_reduce_two_shot_push_float"),
    ANY(ALL_REDUCE, TWO_SHOT_PUSH, BY_TWO_SHOT, 8, "all_reduce_two_shot_push",
        "all_reduce_two_shot_push"),
    TYPES(EACH, ALL_REDUCE, ONE_SHOT_PULL, BY_PULL, 16, "all_reduce_pull",
          "all_reduce_one_shot_pull"),
    ANY(ALL_REDUCE, ONE_SHOT_PULL, BY_PULL, 16, "all_reduce_pull",
        "all_reduce_one_shot_pull"),
    TYPES(EACH, ALL_REDUCE, TWO_SHOT_PULL, BY_STAGE, 16, "all_reduce_two_shot_pull",
          "all_reduce_two_shot_pull"),
    ANY(ALL_REDUCE, TWO_SHOT_PULL, BY_STAGE, 16, "all_reduce_two_shot_pull",
        "all_reduce_two_shot_pull"),
    TYPES(EACH, ALL_REDUCE, TWO_SHOT_INPLACE, BY_STREAM, 16, "all_reduce_stream",
          "all_reduce_stream"),
    TYPES(EACH, ALL_REDUCE, TWO_SHOT_INPLACE, BY_PULL, 16, "all_reduce_inplace",
          "all_reduce_two_shot_inplace"),
    ANY(ALL_REDUCE, TWO_SHOT_INPLACE, BY_PULL, 16, "all_reduce_inplace",
        "all_reduce_two_shot_inplace"),
    ANY(ALL_REDUCE, COPY_IN, BY_STAGE, 16, "copy_in", "all_reduce_copy_in"),
    EACH(REDUCE_SCATTER, LL_PUSH, BY_EACH, 8, "all_reduce_line",
         "reduce_scatter_ll_line", INT32, int32),
    ANY(REDUCE_SCATTER, LL_PUSH, BY_EXCHANGE, 8, "move_ll", "reduce_scatter_ll_push"),
    TYPES(LARGE, REDUCE_SCATTER, LAMPORT_PUSH, BY_EACH, 16, "all_reduce_line",
          "reduce_scatter_lamport_line"),
    TYPES(PAIR, REDUCE_SCATTER, LAMPORT_PUSH, BY_PAIR, 16, "all_reduce_pair",
          "reduce_scatter_pair"),
    TYPES(PAIR, REDUCE_SCATTER, LAMPORT_PUSH, BY_MANY, 16, "all_reduce_pair",
          "reduce_scatter_pair_many"),
    TYPES(EACH, REDUCE_SCATTER, ONE_SHOT_PULL, BY_PULL, 16, "move_pull",
          "reduce_scatter_one_shot_pull"),
    ANY(REDUCE_SCATTER, ONE_SHOT_PULL, BY_PULL, 16, "move_pull",
        "reduce_scatter_one_shot_pull"),
    TYPES(EACH, REDUCE_SCATTER, COPY_IN, BY_STREAM, 16, "all_reduce_stream",
          "reduce_scatter_stream"),
    ANY(REDUCE_SCATTER, COPY_IN, BY_STAGE, 16, "copy_in", "reduce_scatter_copy_in"),
    ANY(ALL_GATHER, LL_PUSH, BY_PACKET, 8, "move_line", "all_gather_ll_line"),
    ANY(ALL_GATHER, LL_PUSH, BY_EXCHANGE, 8, "move_ll", "all_gather_ll_push"),
    ANY(ALL_GATHER, ONE_SHOT_PULL, BY_PULL, 16, "move_pull",
        "all_gather_one_shot_pull"),
    ANY(ALL_GATHER, TWO_SHOT_INPLACE, BY_PULL, 16, "move_push", "all_gather_push"),
    ANY(ALL_GATHER, COPY_IN, BY_STAGE, 16, "copy_in", "all_gather_copy_in"),
    ANY(BROADCAST, LL_PUSH, BY_PACKET, 8, "move_line", "broadcast_ll_line"),
    ANY(BROADCAST, LL_PUSH, BY_BROADCAST, 8, "move_ll", "broadcast_ll_push"),
    ANY(BROADCAST, ONE_SHOT_PULL, BY_PULL, 16, "move_pull", "broadcast_one_shot_pull"),
    ANY(BROADCAST, TWO_SHOT_INPLACE, BY_PULL, 16, "move_push", "broadcast_push"),
    ANY(BROADCAST, COPY_IN, BY_STAGE, 16, "copy_in", "broadcast_copy_in"),
    ANY(ALL_TO_ALL, LL_PUSH, BY_PACKET, 8, "move_line", "all_to_all_ll_line"),
    ANY(ALL_TO_ALL, LL_PUSH, BY_EXCHANGE, 8, "move_ll", "all_to_all_ll_push"),
    ANY(ALL_TO_ALL, ONE_SHOT_PULL, BY_PULL, 16, "move_pull",
        "all_to_all_one_shot_pull"),
    ANY(ALL_TO_ALL, TWO_SHOT_INPLACE, BY_PULL, 16, "move_push", "all_to_all_push"),
    ANY(ALL_TO_ALL, COPY_IN, BY_STAGE, 16, "copy_in", "all_to_all_copy_in"),
    TYPES(EACH, ALL_REDUCE_NORM, LAMPORT_PUSH, BY_ROWS, 16, "all_reduce_norm",
          "all_reduce_norm_lamport"),
    TYPES(LARGE, ALL_REDUCE_NORM, TWO_SHOT_PUSH, BY_ROWS_TWO, 16,
          "all_reduce_norm_two_shot", "all_reduce_norm_two_shot"),
    ANY(BARRIER, COPY_IN, BY_ONE, 16, "barrier", "barrier_copy_in"),
    SWITCH(ALL_REDUCE, MULTIMEM_ONE_SHOT, "all_reduce_multimem_one_shot"),
    SWITCH(ALL_REDUCE, MULTIMEM_TWO_SHOT, "all_reduce_multimem_two_shot"),
    ANY(ALL_GATHER, MULTIMEM_ONE_SHOT, BY_PULL, 16, "multimem",
        "all_gather_multimem_one_shot"),
};

/* Kernels for any number of ranks, of which none is by pointer. */
static const struct entry wide_entries[] = {
    WIDE(ALL_REDUCE, LL_PUSH, BY_COLUMN, 8, DATA_ANY, "push", "all_reduce_ll_push_any"),
    WIDE(ALL_REDUCE, TWO_SHOT_PUSH, BY_COLUMN_TWO, 16, DATA_FLOAT, "push",
         "all_reduce_two_shot_push_float"),
    WIDE(ALL_REDUCE, TWO_SHOT_PUSH, BY_COLUMN_TWO, 8, DATA_ANY, "push",
         "all_reduce_two_shot_push_any"),
    WIDE(ALL_REDUCE, TWO_SHOT_INPLACE, BY_COLUMN_PULL, 16, DATA_ANY,
         "all_reduce_inplace", "all_reduce_two_shot_inplace_any"),
    WIDE(ALL_REDUCE, COPY_IN, BY_COLUMN_STAGE, 16, DATA_ANY, "copy_in",
         "all_reduce_copy_in_any"),
    WIDE(REDUCE_SCATTER, LL_PUSH, BY_COLUMN, 8, DATA_ANY, "push",
         "reduce_scatter_ll_push_any"),
    WIDE(REDUCE_SCATTER, ONE_SHOT_PULL, BY_COLUMN_PULL, 16, DATA_ANY, "move_pull",
         "reduce_scatter_one_shot_pull_any"),
    WIDE(REDUCE_SCATTER, COPY_IN, BY_COLUMN_STAGE, 16, DATA_ANY, "copy_in",
         "reduce_scatter_copy_in_any"),
    WIDE(ALL_GATHER, LL_PUSH, BY_COLUMN, 8, DATA_ANY, "push", "all_gather_ll_push_any"),
    WIDE(ALL_GATHER, ONE_SHOT_PULL, BY_PULL, 16, DATA_ANY, "move_pull",
         "all_gather_one_shot_pull_any"),
    WIDE(ALL_GATHER, TWO_SHOT_INPLACE, BY_PULL, 16, DATA_ANY, "move_push",
         "all_gather_push_any"),
    WIDE(ALL_GATHER, COPY_IN, BY_STAGE, 16, DATA_ANY, "copy_in",
         "all_gather_copy_in_any"),
    WIDE(BROADCAST, LL_PUSH, BY_COLUMN_ALL, 8, DATA_ANY, "push",
         "broadcast_ll_push_any"),
    WIDE(BROADCAST, ONE_SHOT_PULL, BY_PULL, 16, DATA_ANY, "move_pull",
         "broadcast_one_shot_pull_any"),
    WIDE(BROADCAST, TWO_SHOT_INPLACE, BY_PULL, 16, DATA_ANY, "move_push",
         "broadcast_push_any"),
    WIDE(BROADCAST, COPY_IN, BY_STAGE, 16, DATA_ANY, "copy_in",
         "broadcast_copy_in_any"),
    WIDE(ALL_TO_ALL, LL_PUSH, BY_COLUMN, 8, DATA_ANY, "push", "all_to_all_ll_push_any"),
    WIDE(ALL_TO_ALL, ONE_SHOT_PULL, BY_PULL, 16, DATA_ANY, "move_pull",
         "all_to_all_one_shot_pull_any"),
    WIDE(ALL_TO_ALL, TWO_SHOT_INPLACE, BY_PULL, 16, DATA_ANY, "move_push",
         "all_to_all_push_any"),
    WIDE(ALL_TO_ALL, COPY_IN, BY_STAGE, 16, DATA_ANY, "copy_in",
         "all_to_all_copy_in_any"),
    WIDE(BARRIER, COPY_IN, BY_ONE, 16, DATA_ANY, "barrier", "barrier_copy_in_any"),
    WIDE(ALL_REDUCE, MULTIMEM_ONE_SHOT, BY_PULL, 16, DATA_SWITCH, "multimem",
         "all_reduce_multimem_one_shot_any"),
    WIDE(ALL_REDUCE, MULTIMEM_TWO_SHOT, BY_PULL, 16, DATA_SWITCH, "multimem",
         "all_reduce_multimem_two_shot_any"),
    WIDE(ALL_GATHER, MULTIMEM_ONE_SHOT, BY_PULL, 16, DATA_ANY, "multimem",
         "all_gather_multimem_one_shot_any"),
};

/* ---- The table's queries ------------------------------------------------------- */

static bool carries(const struct entry *entry, const struct symm_cuda_query *query)
{
    if (query->by_pointer && !entry->by_pointer.name)
        return false;
    switch (entry->data) {
    case DATA_EXACT:
        return query->dtype == entry->dtype && query->op == SYMM_SUM &&
               query->size == entry->size;
    case DATA_FLOAT:
        return symm__cuda_common(query->dtype) || query->dtype == SYMM_FLOAT8_E4M3 ||
               query->dtype == SYMM_FLOAT8_E5M2;
    case DATA_SWITCH:
        return symm__cuda_common(query->dtype) && query->op == SYMM_SUM;
    case DATA_ANY:
        break;
    }
    return true;
}

/* The entry that does the query, and its shape; NULL: none. */
static const struct entry *entry_find(const struct symm_cuda_query *query,
                                      struct symm_cuda_shape *shape)
{
    const bool wide = query->size > SYMM_FEW_RANKS;
    const struct entry *list = wide ? wide_entries : entries;
    const size_t count = wide ? sizeof(wide_entries) / sizeof(wide_entries[0])
                              : sizeof(entries) / sizeof(entries[0]);

    if (query->size < 1 || query->size > SYMM_DEVICE_RANKS)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &list[i];

        if (entry->kind == query->kind && entry->algorithm == query->algorithm &&
            carries(entry, query) && symm__cuda_shape(query, &entry->by, shape))
            return entry;
    }
    return NULL;
}

static uint64_t rounds_of(const struct entry *entry,
                          const struct symm_cuda_query *query,
                          const struct symm_cuda_shape *shape)
{
    return entry ? symm__cuda_shape_rounds(query, &entry->by, shape) : UINT64_MAX;
}

/* The same of a grid that is cut. A push by fewer blocks may have no kernel that takes the call in
 * one round or two. It is staged if that takes fewer rounds: it touches no more memory and adds in
 * the same order. */
static const struct entry *entry_find_cut(const struct symm_cuda_query *query,
                                          struct symm_cuda_shape *shape)
{
    struct symm_cuda_query whole = *query, staged = *query;
    struct symm_cuda_shape other;
    const struct entry *found = entry_find(query, shape), *entry;

    whole.blocks = 0;
    if (found && rounds_of(found, query, shape) <=
                     rounds_of(entry_find(&whole, &other), &whole, &other))
        return found;
    staged.algorithm = SYMM_ALGORITHM_COPY_IN;
    staged.by_pointer = false;
    entry = entry_find(&staged, &other);
    if (!entry || rounds_of(entry, &staged, &other) >= rounds_of(found, query, shape))
        return found;
    *shape = other;
    return entry;
}

static const struct entry *entry_of(const struct symm_cuda_query *query,
                                    struct symm_cuda_shape *shape)
{
    return query->blocks > 0 ? entry_find_cut(query, shape) : entry_find(query, shape);
}

bool symm__cuda_kernel_find(const struct symm_cuda_query *query,
                            struct symm_cuda_kernel *kernel,
                            struct symm_cuda_shape *shape)
{
    struct symm_cuda_shape found;
    const struct entry *entry = entry_of(query, &found);

    if (!entry)
        return false;
    *kernel =
        query->by_pointer && entry->by_pointer.name ? entry->by_pointer : entry->kernel;
    *shape = found;
    return true;
}

uint64_t symm__cuda_kernel_rounds(const struct symm_cuda_query *query)
{
    struct symm_cuda_shape shape;
    const struct entry *entry = entry_of(query, &shape);

    return entry ? rounds_of(entry, query, &shape) : 0;
}

void symm__cuda_p2p_find(enum symm_cuda_p2p call, uint64_t bytes, uint32_t packets,
                         int size, int processors, struct symm_cuda_kernel *kernel,
                         struct symm_cuda_shape *shape)
{
    static const struct symm_cuda_kernel kernels[2][SYMM_CUDA_P2P_COUNT] = {
        {
            [SYMM_CUDA_PUT] = {"symm_p2p_put", "p2p"},
            [SYMM_CUDA_SIGNAL] = {"symm_p2p_signal", "p2p"},
            [SYMM_CUDA_SIGNAL_WAIT] = {"symm_p2p_signal_wait", "p2p"},
        },
        {
            [SYMM_CUDA_PUT] = {"symm_p2p_put_wide", "p2p_wide"},
            [SYMM_CUDA_SIGNAL] = {"symm_p2p_signal_wide", "p2p_wide"},
            [SYMM_CUDA_SIGNAL_WAIT] = {"symm_p2p_signal_wait_wide", "p2p_wide"},
        },
    };
    *kernel = kernels[size > SYMM_FEW_RANKS][call];
    *shape = (struct symm_cuda_shape){.blocks = 1, .threads = WARP};
    if (call == SYMM_CUDA_PUT)
        symm__cuda_shape_put(bytes, packets, processors, shape);
}

void symm__cuda_norm_find(uint64_t rows, uint32_t hidden, symm_dtype dtype,
                          int processors, struct symm_cuda_kernel *kernel,
                          struct symm_cuda_shape *shape)
{
    *kernel = (struct symm_cuda_kernel){dtype == SYMM_BFLOAT16  ? "symm_norm_bfloat16"
                                        : dtype == SYMM_FLOAT16 ? "symm_norm_float16"
                                                                : "symm_norm_float32",
                                        "norm"};
    symm__cuda_shape_norm(rows, hidden, dtype, processors, shape);
}
