/* SPDX-License-Identifier: MIT */
/*
 * table.c - which CUDA kernel does which collective by which algorithm, with how many
 * blocks and threads.
 *
 * Pure: the answer depends on the query alone, so ranks with equal queries get equal
 * answers. Refuses, by false: combinations without a kernel, teams of more than
 * SYMM_DEVICE_RANKS, scratch too small for one packet of every thread of a warp. The caller
 * checks whether memory is symmetric and whether there is multicast.
 *
 * Shapes are for few microseconds: as many blocks as there are packets for, as few packets for
 * each thread as there are processors for. The numbers to tune are named at the top.
 */
#include <stddef.h>

#include "kernels/cuda_launch.h"

#define PACKET          16u
#define WARP            32u
#define MOST_THREADS    512u
#define SEGMENT_THREADS 256u /* a block at most, of BY_TWO_SHOT: they need registers */
#define EXCHANGE_BLOCKS 128u /* warp a peer: at most */
#define WIDE_BLOCKS     128u /* every thread all peers: at most */
#define WIDE_THREADS    128u /* a block, until there are WIDE_BLOCKS of them */
#define PACKET_BLOCKS   128u /* a warp a peer, a lane a packet: at most */
#define STAGE_BLOCKS    128u /* kernels that stage: at most; a power of two divides well */
#define PULL_PACKETS    512u /* packets for which they get a block more */
#define PULL_THREADS    65536u /* of a grid, if it can be: 2^n packets divide well */
#define LATE_BLOCKS     36u    /* of them, while a barrier costs more than bytes */
#define LATE_BYTES      (512u << 10) /* of one rank's block, until then */
#define STREAM_BYTES    (24u << 20)  /* of an array: by stores alone from here on */
#define SCATTER_BYTES   (8u << 20)   /* the same, of all blocks */
#define STREAM_LIMIT    ((uint64_t)16 << 30) /* its packets are counted in 31 bits */
#define STREAM_STAGE    (4u << 20) /* bytes of the stage that pay for its barriers */
#define COPY_BLOCKS     32u        /* of a put at most */
#define COPY_PACKETS    512u       /* packets for which a put gets a block more */

/* How a kernel divides its work, see the heads of the .cu files. */
enum split {
    BY_PACKET, /* 32 x size x groups threads, a lane for each packet; slot = [sender] */
    BY_EACH,   /* a thread for each packet, and a warp more; slot = [sender] */
    BY_PAIR,   /* the same between two, slot = packets of the peer */
    BY_MANY,   /* the same, with any number of packets; two slots at most */
    BY_TWO_PACKET, /* as BY_PACKET, packets of a segment; slot = [phase][sender] */
    BY_TWO_WIDE, /* two rounds at most; a thread takes packets of each segment; a warp more */
    BY_EXCHANGE,  /* 32 x size threads; a block takes 32 packets at once */
    BY_TWO_SHOT,  /* a thread takes a packet of each segment; slot = [phase][sender] */
    BY_BROADCAST, /* as BY_EXCHANGE, but in one round; slot = all */
    BY_PULL,      /* any shape */
    BY_STAGE,     /* the same, through the stage */
    BY_STREAM,    /* the same, for much data */
    BY_ROWS, /* row_exchange.cuh: groups of threads that have whole rows; a warp more */
    BY_ROWS_TWO,     /* the same in two shots */
    BY_COLUMN,       /* blocks of one warp, a lane takes a packet; slot = [sender] */
    BY_COLUMN_TWO,   /* the same of a segment; slot = [phase][sender] */
    BY_COLUMN_ALL,   /* the same of one sender, in one round; slot = all */
    BY_COLUMN_PULL,  /* blocks of one warp, any number of them */
    BY_COLUMN_STAGE, /* the same, through the stage */
    BY_ONE           /* one block of one warp */
};

enum data {
    DATA_ANY,
    DATA_FLOAT,  /* floats up to 32 bits: those that Lamport packets can carry */
    DATA_SWITCH, /* SUM of float32, float16, bfloat16: what multicast adds up */
    DATA_EXACT   /* dtype, SUM and size of the entry */
};

struct entry {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    enum split split;
    uint32_t payload; /* bytes in a packet of 16 */
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
        SYMM_KIND_##kind, SYMM_ALGORITHM_##algorithm, split, payload, data, dtype,     \
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
        SYMM_KIND_##kind, SYMM_ALGORITHM_##algorithm, split, payload, data,            \
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

/* ---- Shapes ---------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Blocks for `packets`, `share` to each, at most `most`. Blocks wait for peers, so an eighth of
 * the multiprocessors is left to other kernels: among them may be those that a peer waits for.
 * Unless the caller says that there are none. */
static uint32_t blocks_for(const struct symm_cuda_query *query, uint64_t packets,
                           uint32_t share, uint64_t most)
{
    uint64_t blocks = divide_up(packets, share);

    most = least(most, SYMM_DEVICE_BLOCKS);
    if (query->processors > 0)
        most = least(most, (uint64_t)(query->processors -
                                      (query->exclusive ? 0 : query->processors / 8)));
    if (query->blocks > 0)
        most = least(most, query->blocks);
    blocks = least(blocks, most);
    return blocks > 0 ? (uint32_t)blocks : 1;
}

static bool has_segments(const struct entry *entry)
{
    return entry->split == BY_TWO_SHOT || entry->split == BY_TWO_PACKET ||
           entry->split == BY_TWO_WIDE || entry->split == BY_ROWS_TWO ||
           entry->split == BY_COLUMN_TWO;
}

/* Packets of one sender that a slot has room for; as symm_slot_packets in the kernels. */
static uint64_t room_of(const struct symm_cuda_query *query, const struct entry *entry)
{
    uint64_t slot = entry->payload == 8 ? query->scratch.ll_bytes / PACKET / 2
                                        : query->scratch.lamport_bytes / PACKET / 3;

    if (entry->split == BY_BROADCAST || entry->split == BY_COLUMN_ALL ||
        entry->split == BY_PAIR || entry->split == BY_MANY ||
        (entry->split == BY_ROWS && query->size == 2))
        return slot; /* of the one sender */
    return slot / (unsigned)query->size / (has_segments(entry) ? 2 : 1);
}

/* The packets of one sender, at least one; false: they need more than one round. */
static bool one_round(const struct symm_cuda_query *query, const struct entry *entry,
                      uint64_t *packets)
{
    *packets = divide_up(query->bytes, entry->payload);
    if (*packets == 0)
        *packets = 1;
    if (has_segments(entry))
        *packets = divide_up(*packets, (unsigned)query->size);
    return *packets <= room_of(query, entry);
}

/* Groups of `size` warps, as many as it takes to have a lane for each packet. */
static bool shape_of_packet(const struct symm_cuda_query *query,
                            const struct entry *entry, struct symm_cuda_shape *shape)
{
    const uint32_t group = WARP * (uint32_t)query->size;
    const uint32_t blocks = blocks_for(query, UINT64_MAX, 1, PACKET_BLOCKS);
    const uint32_t most = entry->split == BY_PACKET ? SYMM_MOVE_THREADS : MOST_THREADS;
    uint64_t packets, groups;

    if (!one_round(query, entry, &packets))
        return false;
    groups = divide_up(packets, (uint64_t)WARP * blocks);
    if (groups > most / group)
        return false;
    shape->threads = group * (uint32_t)groups;
    shape->blocks = blocks_for(query, packets, WARP * (uint32_t)groups, blocks);
    return true;
}

/* One warp more than take packets, here and below. */
static bool shape_of_each(const struct symm_cuda_query *query,
                          const struct entry *entry, struct symm_cuda_shape *shape)
{
    const uint32_t blocks = blocks_for(query, UINT64_MAX, 1, PACKET_BLOCKS);
    const uint32_t most = SYMM_PACKET_THREADS(query->size);
    uint32_t threads = 2 * WARP;
    uint64_t packets;

    if ((entry->split == BY_PAIR && query->size != 2) ||
        !one_round(query, entry, &packets))
        return false;
    while (threads < most && packets > (uint64_t)threads * blocks)
        threads = (uint32_t)least(2 * threads, most);
    if (packets > (uint64_t)threads * blocks)
        return false;
    shape->threads = threads + WARP;
    shape->blocks = blocks_for(query, packets, threads, blocks);
    return true;
}

/* Of kernels whose packets fill scratch, which a power of two divides well: an eighth less costs
 * 4 % of 16 MiB. */
static uint32_t whole_blocks(const struct symm_cuda_query *query)
{
    uint64_t blocks = WIDE_BLOCKS;

    if (query->processors > 0)
        blocks = least(blocks, (uint64_t)query->processors);
    if (query->blocks > 0)
        blocks = least(blocks, query->blocks);
    return (uint32_t)blocks;
}

/* `step` packets, a packet of each thread, fit into a slot, and all into two that are cut so. */
static bool in_two_slots(uint64_t packets, uint64_t step, uint64_t room)
{
    return step <= room && packets <= 2 * (room - room % step);
}

/* More than SYMM_PAIR_AHEAD packets of all threads have room in a slot, the call in two. */
static bool shape_of_many(const struct symm_cuda_query *query,
                          const struct entry *entry, struct symm_cuda_shape *shape)
{
    const uint64_t packets = divide_up(query->bytes, PACKET);
    const uint64_t room = room_of(query, entry);
    const uint32_t blocks = whole_blocks(query);
    uint32_t threads = MOST_THREADS;

    while (threads > WARP && SYMM_PAIR_AHEAD >= room / (threads * blocks))
        threads /= 2;
    if (SYMM_PAIR_AHEAD >= room / (threads * blocks) ||
        !in_two_slots(packets, threads * blocks, room))
        return false;
    *shape = (struct symm_cuda_shape){blocks, threads + WARP};
    return true;
}

/* In one round or two, with as many packets of a segment for each thread. */
static bool shape_of_wide(const struct symm_cuda_query *query,
                          const struct entry *entry, struct symm_cuda_shape *shape)
{
    const uint32_t blocks = whole_blocks(query);
    const uint64_t most = (uint64_t)blocks * SYMM_WIDE_THREADS(query->size);
    const uint64_t room = room_of(query, entry);
    uint64_t packets, half, threads;
    bool one;

    if (room == 0)
        return false;
    one = one_round(query, entry, &packets);
    half = one ? packets : divide_up(packets, 2);
    threads = divide_up(divide_up(half, divide_up(half, most)), blocks);
    threads = divide_up(threads, WARP) * WARP;
    if (one && threads < WIDE_THREADS)
        threads = WIDE_THREADS;
    while (!one && threads > WARP && !in_two_slots(packets, threads * blocks, room))
        threads -= WARP;
    if (!one && !in_two_slots(packets, threads * blocks, room))
        return false;
    shape->threads = (uint32_t)threads + WARP;
    shape->blocks =
        one ? blocks_for(query, packets, (uint32_t)threads, blocks) : blocks;
    return true;
}

static bool shape_of_exchange(const struct symm_cuda_query *query,
                              const struct entry *entry, struct symm_cuda_shape *shape)
{
    uint64_t packets = divide_up(query->bytes, entry->payload);
    uint64_t room = room_of(query, entry);

    if (room < WARP || (entry->split == BY_BROADCAST && packets > room))
        return false;
    shape->threads = WARP * (uint32_t)query->size;
    shape->blocks =
        blocks_for(query, packets, WARP, least(EXCHANGE_BLOCKS, room / WARP));
    return true;
}

static bool shape_of_two_shot(const struct symm_cuda_query *query,
                              const struct entry *entry, struct symm_cuda_shape *shape)
{
    uint64_t packets =
        divide_up(divide_up(query->bytes, entry->payload), (unsigned)query->size);
    uint64_t room = room_of(query, entry);
    uint32_t threads = WIDE_THREADS;

    if (packets > (uint64_t)threads * blocks_for(query, UINT64_MAX, 1, WIDE_BLOCKS))
        threads = SEGMENT_THREADS;
    while (threads > WARP && (threads > room || threads / 2 >= packets))
        threads /= 2;
    if (threads > room)
        return false;
    shape->threads = threads;
    shape->blocks =
        blocks_for(query, packets, threads, least(WIDE_BLOCKS, room / threads));
    return true;
}

/* A warp a block, a lane for each packet of one sender. */
static bool shape_of_column(const struct symm_cuda_query *query,
                            const struct entry *entry, struct symm_cuda_shape *shape)
{
    const uint64_t room = room_of(query, entry);
    uint64_t packets = divide_up(query->bytes, entry->payload);

    if (has_segments(entry))
        packets = divide_up(packets, (unsigned)query->size);
    if (room < WARP || (entry->split == BY_COLUMN_ALL && packets > room))
        return false;
    shape->threads = WARP;
    shape->blocks = blocks_for(query, packets, WARP, least(WIDE_BLOCKS, room / WARP));
    return true;
}

/* Of a reduce_scatter with more packets than threads: more threads for what an eighth less of blocks
 * takes away, which would cost a whole turn of all threads. (An all_gather by stores loses 4 % by
 * that.) */
static uint32_t pull_threads(const struct entry *entry, uint64_t packets,
                             uint32_t blocks)
{
    if (entry->kind != SYMM_KIND_REDUCE_SCATTER || entry->split != BY_PULL ||
        packets <= LATE_BYTES / PACKET || packets <= (uint64_t)MOST_THREADS * blocks)
        return MOST_THREADS;
    return (uint32_t)least(
        divide_up(least(packets, PULL_THREADS), (uint64_t)WARP * blocks) * WARP,
        SYMM_PULL_THREADS);
}

/* Kernels that stage have room for a packet of each block and rank in half of the stage. */
static bool shape_of_pull(const struct symm_cuda_query *query,
                          const struct entry *entry, struct symm_cuda_shape *shape)
{
    const bool column =
        entry->split == BY_COLUMN_PULL || entry->split == BY_COLUMN_STAGE;
    uint64_t packets = divide_up(query->bytes, PACKET);
    uint64_t most =
        query->bytes <= LATE_BYTES && !column ? LATE_BLOCKS : SYMM_DEVICE_BLOCKS;

    if (entry->split != BY_PULL && entry->split != BY_COLUMN_PULL)
        most = least(most, STAGE_BLOCKS);
    if (entry->split == BY_STAGE || entry->split == BY_COLUMN_STAGE)
        most = least(most,
                     query->scratch.stage_bytes / (2 * PACKET * (unsigned)query->size));
    if (most == 0)
        return false;
    shape->blocks = blocks_for(query, packets, column ? WARP : PULL_PACKETS, most);
    shape->threads = column ? WARP : pull_threads(entry, packets, shape->blocks);
    return true;
}

static bool shape_of_stream(const struct symm_cuda_query *query,
                            const struct entry *entry, struct symm_cuda_shape *shape)
{
    const bool scatter = entry->kind == SYMM_KIND_REDUCE_SCATTER;
    const uint64_t bytes = query->bytes * (scatter ? (unsigned)query->size : 1);

    return bytes >= (scatter ? SCATTER_BYTES : STREAM_BYTES) && bytes < STREAM_LIMIT &&
           query->scratch.stage_bytes >= STREAM_STAGE &&
           shape_of_pull(query, entry, shape);
}

/* Packets of a row. */
static uint64_t row_packets(uint32_t hidden, symm_dtype dtype)
{
    return divide_up((uint64_t)hidden * symm_dtype_size(dtype), PACKET);
}

/* Threads that have a row together, `most` at most, as struct symm_row_place. */
static uint32_t row_threads(uint64_t packets, uint32_t most)
{
    uint32_t each = 1;

    while (each * most < packets)
        each *= 2;
    return (uint32_t)divide_up(divide_up(packets, each), WARP) * WARP;
}

/*
 * A block for each of `rows`, and more groups in a block when there are no more blocks. If rows are
 * still more than groups, each group has as many as the next one, or one less: a grid of all blocks
 * would wait for the few that have one more.
 */
static uint32_t shape_rows(const struct symm_cuda_query *query, uint64_t rows,
                           uint32_t width, uint32_t most, struct symm_cuda_shape *shape)
{
    const uint32_t blocks = blocks_for(query, rows, 1, SYMM_DEVICE_BLOCKS);
    const uint64_t some = rows > 0 ? rows : 1;
    const uint64_t groups = least(divide_up(some, blocks), most / width);
    const uint64_t turns = divide_up(some, groups * blocks);

    shape->threads = (uint32_t)groups * width;
    shape->blocks = blocks_for(query, rows, (uint32_t)(groups * turns), blocks);
    return (uint32_t)groups;
}

/* In one round or two; `step` rows at a time. */
static bool shape_of_rows(const struct symm_cuda_query *query,
                          const struct entry *entry, struct symm_cuda_shape *shape)
{
    const bool two = entry->split == BY_ROWS_TWO;
    const uint64_t rows = two ? divide_up(query->rows, (unsigned)query->size)
                              : query->rows; /* that one sender sends */
    const uint64_t packets = row_packets(query->hidden, query->dtype);
    const uint32_t most = SYMM_ROW_THREADS(query->size);
    uint64_t room, groups, step;

    if (packets == 0 || query->hidden > SYMM_NORM_MAX_HIDDEN)
        return false;
    room = room_of(query, entry) / packets; /* rows of a slot */
    groups = shape_rows(query, rows, row_threads(packets, most), most, shape);
    step = groups * shape->blocks;
    shape->threads += WARP;
    if (rows <= room)
        return room > 0;
    /* A call that fits with its whole grid has to fit with one that is cut. */
    while (two && query->blocks > 0 && shape->blocks > 1 &&
           !in_two_slots(rows, step, room)) {
        shape->blocks--;
        step -= groups;
    }
    if (two)
        return in_two_slots(rows, step, room);
    return room > SYMM_PAIR_AHEAD * step && rows <= 2 * room;
}

static bool shape_of(const struct symm_cuda_query *query, const struct entry *entry,
                     struct symm_cuda_shape *shape)
{
    switch (entry->split) {
    case BY_PACKET:
    case BY_TWO_PACKET:
        return shape_of_packet(query, entry, shape);
    case BY_EACH:
    case BY_PAIR:
        return shape_of_each(query, entry, shape);
    case BY_MANY:
        return shape_of_many(query, entry, shape);
    case BY_TWO_WIDE:
        return shape_of_wide(query, entry, shape);
    case BY_EXCHANGE:
    case BY_BROADCAST:
        return shape_of_exchange(query, entry, shape);
    case BY_TWO_SHOT:
        return shape_of_two_shot(query, entry, shape);
    case BY_COLUMN:
    case BY_COLUMN_TWO:
    case BY_COLUMN_ALL:
        return shape_of_column(query, entry, shape);
    case BY_PULL:
    case BY_STAGE:
    case BY_COLUMN_PULL:
    case BY_COLUMN_STAGE:
        return shape_of_pull(query, entry, shape);
    case BY_STREAM:
        return shape_of_stream(query, entry, shape);
    case BY_ROWS:
    case BY_ROWS_TWO:
        return shape_of_rows(query, entry, shape);
    case BY_ONE:
        break;
    }
    *shape = (struct symm_cuda_shape){1, WARP};
    return true;
}

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

bool symm__cuda_kernel_find(const struct symm_cuda_query *query,
                            struct symm_cuda_kernel *kernel,
                            struct symm_cuda_shape *shape)
{
    const bool wide = query->size > SYMM_FEW_RANKS;
    const struct entry *list = wide ? wide_entries : entries;
    const size_t count = wide ? sizeof(wide_entries) / sizeof(wide_entries[0])
                              : sizeof(entries) / sizeof(entries[0]);
    struct symm_cuda_shape found;

    if (query->size < 1 || query->size > SYMM_DEVICE_RANKS)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &list[i];

        if (entry->kind != query->kind || entry->algorithm != query->algorithm ||
            !carries(entry, query) || !shape_of(query, entry, &found))
            continue;
        *kernel = query->by_pointer ? entry->by_pointer : entry->kernel;
        *shape = found;
        return true;
    }
    return false;
}

void symm__cuda_p2p_find(enum symm_cuda_p2p call, uint64_t bytes, int size,
                         int processors, struct symm_cuda_kernel *kernel,
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
    struct symm_cuda_query query = {.processors = processors};

    *kernel = kernels[size > SYMM_FEW_RANKS][call];
    *shape = (struct symm_cuda_shape){1, WARP};
    if (call != SYMM_CUDA_PUT)
        return;
    while (shape->threads < MOST_THREADS && bytes > PACKET * shape->threads)
        shape->threads *= 2;
    shape->blocks =
        blocks_for(&query, divide_up(bytes, PACKET), COPY_PACKETS, COPY_BLOCKS);
}

void symm__cuda_norm_find(uint64_t rows, uint32_t hidden, symm_dtype dtype,
                          int processors, struct symm_cuda_kernel *kernel,
                          struct symm_cuda_shape *shape)
{
    const struct symm_cuda_query query = {.processors = processors};

    *kernel = (struct symm_cuda_kernel){dtype == SYMM_BFLOAT16  ? "symm_norm_bfloat16"
                                        : dtype == SYMM_FLOAT16 ? "symm_norm_float16"
                                                                : "symm_norm_float32",
                                        "norm"};
    shape_rows(&query, rows, row_threads(row_packets(hidden, dtype), MOST_THREADS),
               MOST_THREADS, shape);
}
