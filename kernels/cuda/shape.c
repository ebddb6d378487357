/* SPDX-License-Identifier: MIT */
/*
 * shape.c - with how many blocks and threads a CUDA kernel is launched: see shape.h.
 *
 * Shapes are for few microseconds: as many blocks as there are packets for, as few packets for
 * each thread as there are processors for. The numbers to tune are named at the top.
 */
#include "kernels/cuda/shape.h"

#define PACKET          16u
#define WARP            32u
#define MOST_THREADS    512u
#define SEGMENT_THREADS 256u /* a block at most, of BY_TWO_SHOT: they need registers */
#define EXCHANGE_BLOCKS 128u /* warp a peer: at most */
#define WIDE_BLOCKS     128u /* every thread all peers: at most */
#define WIDE_THREADS    128u /* a block, until there are WIDE_BLOCKS of them */
#define PACKET_BLOCKS   128u /* a warp a peer, a lane a packet: at most */
#define STAGE_BLOCKS    128u /* kernels that stage: at most; a power of two divides well */
#define PULL_PACKETS    512u   /* packets for which they get a block more */
#define GRID_THREADS    65536u /* of a grid, if it can be: 2^n packets divide well */
#define LATE_BLOCKS     36u    /* of them, while a barrier costs more than bytes */
#define LATE_BYTES      (512u << 10) /* of one rank's block, until then */
#define STREAM_BYTES    (24u << 20)  /* of an array: by stores alone from here on */
#define SCATTER_BYTES   (8u << 20)   /* the same, of all blocks */
#define STREAM_LIMIT    ((uint64_t)16 << 30) /* its packets are counted in 31 bits */
#define STREAM_STAGE    (4u << 20) /* bytes of the stage that pay for its barriers */
#define CLUSTER_LEAST   128u       /* threads of a block of a cluster */
/* Packets of all rows at most, where none are watched. */
#define CLUSTER_PACKETS 2048u
/* Packets of a row at least, for clusters that begin late. */
#define CLUSTER_WIDE    385u
#define CLUSTER_GPCS    8          /* of a device, at most */
#define COPY_BLOCKS     32u        /* of a put at most */
#define COPY_PACKETS    512u       /* packets for which a put gets a block more */

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

static bool has_segments(const struct symm_cuda_division *by)
{
    return by->split == BY_TWO_SHOT || by->split == BY_TWO_PACKET ||
           by->split == BY_TWO_WIDE || by->split == BY_ROWS_TWO ||
           by->split == BY_COLUMN_TWO;
}

/* Packets of one sender that a slot has room for; as symm_slot_packets in the kernels. */
static uint64_t room_of(const struct symm_cuda_query *query,
                        const struct symm_cuda_division *by)
{
    uint64_t slot = by->payload == 8 ? query->scratch.ll_bytes / PACKET / 2
                                     : query->scratch.lamport_bytes / PACKET / 3;

    if (by->split == BY_BROADCAST || by->split == BY_COLUMN_ALL ||
        by->split == BY_PAIR || by->split == BY_MANY ||
        (by->split == BY_ROWS && query->size == 2))
        return slot; /* of the one sender */
    return slot / (unsigned)query->size / (has_segments(by) ? 2 : 1);
}

/* The packets of one sender, at least one; false: they need more than one round. */
static bool one_round(const struct symm_cuda_query *query,
                      const struct symm_cuda_division *by, uint64_t *packets)
{
    *packets = divide_up(query->bytes, by->payload);
    if (*packets == 0)
        *packets = 1;
    if (has_segments(by))
        *packets = divide_up(*packets, (unsigned)query->size);
    return *packets <= room_of(query, by);
}

/* Groups of `size` warps, as many as it takes to have a lane for each packet. */
static bool shape_of_packet(const struct symm_cuda_query *query,
                            const struct symm_cuda_division *by,
                            struct symm_cuda_shape *shape)
{
    const uint32_t group = WARP * (uint32_t)query->size;
    const uint32_t blocks = blocks_for(query, UINT64_MAX, 1, PACKET_BLOCKS);
    const uint32_t most = by->split == BY_PACKET ? SYMM_MOVE_THREADS : MOST_THREADS;
    uint64_t packets, groups;

    if (!one_round(query, by, &packets))
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
                          const struct symm_cuda_division *by,
                          struct symm_cuda_shape *shape)
{
    const uint32_t blocks = blocks_for(query, UINT64_MAX, 1, PACKET_BLOCKS);
    const uint32_t most = SYMM_PACKET_THREADS(query->size);
    uint32_t threads = 2 * WARP;
    uint64_t packets;

    if ((by->split == BY_PAIR && query->size != 2) || !one_round(query, by, &packets))
        return false;
    while (2 * threads <= most && packets > (uint64_t)threads * blocks)
        threads *= 2;
    if (packets > (uint64_t)threads * blocks)
        threads = (uint32_t)divide_up(packets, (uint64_t)WARP * blocks) * WARP;
    if (threads > most)
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

/* More than SYMM_MANY_AHEAD packets of all threads have room in a slot, the call in two. */
static bool shape_of_many(const struct symm_cuda_query *query,
                          const struct symm_cuda_division *by,
                          struct symm_cuda_shape *shape)
{
    const uint64_t packets = divide_up(query->bytes, PACKET);
    const uint64_t room = room_of(query, by);
    uint32_t threads = SYMM_MANY_THREADS, blocks = whole_blocks(query);

    while (threads > WARP && SYMM_MANY_AHEAD >= room / (threads * blocks))
        threads /= 2;
    /* A call that fits with its whole grid has to fit with one that is cut. */
    while (query->blocks > 0 && blocks > 1 &&
           !in_two_slots(packets, threads * blocks, room))
        blocks--;
    if (SYMM_MANY_AHEAD >= room / (threads * blocks) ||
        !in_two_slots(packets, threads * blocks, room))
        return false;
    *shape = (struct symm_cuda_shape){.blocks = blocks, .threads = threads + WARP};
    return true;
}

/* In one round or two, with as many packets of a segment for each thread. */
static bool shape_of_wide(const struct symm_cuda_query *query,
                          const struct symm_cuda_division *by,
                          struct symm_cuda_shape *shape)
{
    const uint32_t blocks = whole_blocks(query);
    const uint64_t most = (uint64_t)blocks * SYMM_WIDE_THREADS(query->size);
    const uint64_t room = room_of(query, by);
    uint64_t packets, half, threads;
    bool one;

    if (room == 0)
        return false;
    one = one_round(query, by, &packets);
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
                              const struct symm_cuda_division *by,
                              struct symm_cuda_shape *shape)
{
    uint64_t packets = divide_up(query->bytes, by->payload);
    uint64_t room = room_of(query, by);

    if (room < WARP || (by->split == BY_BROADCAST && packets > room))
        return false;
    shape->threads = WARP * (uint32_t)query->size;
    shape->blocks =
        blocks_for(query, packets, WARP, least(EXCHANGE_BLOCKS, room / WARP));
    return true;
}

static bool shape_of_two_shot(const struct symm_cuda_query *query,
                              const struct symm_cuda_division *by,
                              struct symm_cuda_shape *shape)
{
    uint64_t packets =
        divide_up(divide_up(query->bytes, by->payload), (unsigned)query->size);
    uint64_t room = room_of(query, by);
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
                            const struct symm_cuda_division *by,
                            struct symm_cuda_shape *shape)
{
    const uint64_t room = room_of(query, by);
    uint64_t packets = divide_up(query->bytes, by->payload);

    if (has_segments(by))
        packets = divide_up(packets, (unsigned)query->size);
    if (room < WARP || (by->split == BY_COLUMN_ALL && packets > room))
        return false;
    shape->threads = WARP;
    shape->blocks = blocks_for(query, packets, WARP, least(WIDE_BLOCKS, room / WARP));
    return true;
}

/* Of a reduce_scatter with more packets than threads: more threads for what an eighth less of blocks
 * takes away, which would cost a whole turn of all threads. (An all_gather by stores loses 4 % by
 * that.) */
static uint32_t pull_threads(const struct symm_cuda_query *query,
                             const struct symm_cuda_division *by, uint64_t packets,
                             uint32_t blocks)
{
    if (query->kind != SYMM_KIND_REDUCE_SCATTER || by->split != BY_PULL ||
        packets <= LATE_BYTES / PACKET || packets <= (uint64_t)MOST_THREADS * blocks)
        return MOST_THREADS;
    return (uint32_t)least(
        divide_up(least(packets, GRID_THREADS), (uint64_t)WARP * blocks) * WARP,
        SYMM_PULL_THREADS);
}

/* Kernels that stage have room for a packet of each block and rank in half of the stage. */
static bool shape_of_pull(const struct symm_cuda_query *query,
                          const struct symm_cuda_division *by,
                          struct symm_cuda_shape *shape)
{
    const bool column = by->split == BY_COLUMN_PULL || by->split == BY_COLUMN_STAGE;
    uint64_t packets = divide_up(query->bytes, PACKET);
    uint64_t most =
        query->bytes <= LATE_BYTES && !column ? LATE_BLOCKS : SYMM_DEVICE_BLOCKS;

    if (by->split != BY_PULL && by->split != BY_COLUMN_PULL)
        most = least(most, STAGE_BLOCKS);
    if (by->split == BY_STAGE || by->split == BY_COLUMN_STAGE)
        most = least(most,
                     query->scratch.stage_bytes / (2 * PACKET * (unsigned)query->size));
    if (most == 0)
        return false;
    shape->blocks = blocks_for(query, packets, column ? WARP : PULL_PACKETS, most);
    shape->threads = column ? WARP : pull_threads(query, by, packets, shape->blocks);
    return true;
}

static bool shape_of_stream(const struct symm_cuda_query *query,
                            const struct symm_cuda_division *by,
                            struct symm_cuda_shape *shape)
{
    const bool scatter = query->kind == SYMM_KIND_REDUCE_SCATTER;
    const uint64_t bytes = query->bytes * (scatter ? (unsigned)query->size : 1);

    return bytes >= (scatter ? SCATTER_BYTES : STREAM_BYTES) && bytes < STREAM_LIMIT &&
           query->scratch.stage_bytes >= STREAM_STAGE &&
           shape_of_pull(query, by, shape);
}

/* Packets of a row. */
static uint64_t row_packets(uint32_t hidden, symm_dtype dtype)
{
    return divide_up((uint64_t)hidden * symm_dtype_size(dtype), PACKET);
}

/* Packets of a row that a thread has, if at most `most` threads have the row; as symm_row_each. */
static uint32_t row_each(uint64_t packets, uint32_t most)
{
    uint32_t each = 1;

    while (each * most < packets)
        each *= 2;
    return each;
}

/* Threads that have a row together, as struct symm_row_place. */
static uint32_t row_threads(uint64_t packets, uint32_t each)
{
    return (uint32_t)divide_up(divide_up(packets, each), WARP) * WARP;
}

/* Rows that a grid has at a time, if `width` threads have one. */
static uint64_t rows_at_once(const struct symm_cuda_query *query, uint32_t width,
                             uint32_t most)
{
    return (uint64_t)blocks_for(query, UINT64_MAX, 1, SYMM_DEVICE_BLOCKS) *
           (most / width);
}

/*
 * Between two ranks a second turn takes 0.6 us more than a second packet of each thread: the second
 * row's sum and stores begin when those of the first row are over, though its packets are there.
 */
static bool pays_two_each(const struct symm_cuda_query *query, uint64_t rows,
                          uint64_t packets, uint32_t most)
{
    return query->size == 2 && row_each(packets, most) == 1 &&
           rows > rows_at_once(query, row_threads(packets, 1), most) &&
           rows <= rows_at_once(query, row_threads(packets, 2), most);
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

bool symm__cuda_shape_early(const struct symm_cuda_shape *shape, uint32_t processors)
{
    return shape->blocks * shape->threads <= processors * SYMM_EARLY_THREADS ||
           (shape->cluster > 0 && shape->blocks <= processors / SYMM_EARLY_PART);
}

/*
 * A row that one block has takes as long as that block's warps need to issue their instructions, so
 * up to 2^SYMM_CLUSTER_MOST blocks have its threads, each a warp at least for each scheduler.
 * Clusters take 0.2 to 0.3 us longer to become resident. Nothing is lost if they do before the
 * kernel in front has ended: if a thread has one packet, the largest cluster that is early is the
 * fastest, and one that is not pays only for the widest rows. With two packets the largest one is.
 * Where an eighth of the multiprocessors is left free, the blocks of a cluster find room at any
 * time: GPCs are CLUSTER_GPCS at most, so one of them has two free multiprocessors, on which two
 * blocks each have room (one, of kernels for more ranks).
 */
static uint32_t row_cluster(const struct symm_cuda_query *query, uint64_t rows,
                            uint64_t packets, uint32_t width)
{
    const uint32_t most = SYMM_ROW_THREADS(query->size);
    const uint32_t blocks = blocks_for(query, UINT64_MAX, 1, SYMM_DEVICE_BLOCKS);
    const bool watched = SYMM_ROW_WATCHES(query->size, query->dtype);
    struct symm_cuda_shape shape = {.cluster = 1};
    uint32_t early = 0, late = 0;

    if (!query->clusters || query->processors / 8 <= CLUSTER_GPCS ||
        symm_dtype_size(query->dtype) > 2 || packets > SYMM_CLUSTER_EACH * most)
        return 0;
    if (packets <= most && !watched && rows * packets > CLUSTER_PACKETS)
        return 0;
    for (; shape.cluster <= SYMM_CLUSTER_LOG2(query->size); shape.cluster++) {
        if (rows << shape.cluster > blocks || width % (WARP << shape.cluster) != 0 ||
            width >> shape.cluster < CLUSTER_LEAST)
            continue;
        shape.blocks = (uint32_t)rows << shape.cluster;
        shape.threads = (width >> shape.cluster) + WARP;
        if (symm__cuda_shape_early(&shape, (uint32_t)query->processors))
            early = shape.cluster;
        else if (!watched || packets >= CLUSTER_WIDE)
            late = shape.cluster;
    }
    return late == 0 || (early > 0 && packets <= most) ? early : late;
}

/* In one round or two; `step` rows at a time. */
static bool shape_of_rows(const struct symm_cuda_query *query,
                          const struct symm_cuda_division *by,
                          struct symm_cuda_shape *shape)
{
    const bool two = by->split == BY_ROWS_TWO;
    const uint64_t rows = two ? divide_up(query->rows, (unsigned)query->size)
                              : query->rows; /* that one sender sends */
    const uint64_t packets = row_packets(query->hidden, query->dtype);
    const uint32_t most = SYMM_ROW_THREADS(query->size);
    uint32_t width = row_threads(packets, row_each(packets, most));
    const uint32_t cluster =
        two || rows == 0 ? 0 : row_cluster(query, rows, packets, width);
    uint64_t room, groups, step;

    if (packets == 0 || query->hidden > SYMM_NORM_MAX_HIDDEN)
        return false;
    room = room_of(query, by) / packets; /* rows of a slot */
    if (cluster > 0 && rows <= room) {
        shape->cluster = cluster;
        shape->blocks = (uint32_t)rows << cluster;
        shape->threads = (width >> cluster) + WARP;
        return true;
    }
    if (!two && rows <= room && pays_two_each(query, rows, packets, most)) {
        shape->each = 2;
        width = row_threads(packets, shape->each);
    }
    groups = shape_rows(query, rows, width, most, shape);
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
    return room > SYMM_ROWS_AHEAD * step && rows <= 2 * room;
}

bool symm__cuda_shape(const struct symm_cuda_query *query,
                      const struct symm_cuda_division *by,
                      struct symm_cuda_shape *shape)
{
    shape->cluster = shape->each = 0;
    switch (by->split) {
    case BY_PACKET:
    case BY_TWO_PACKET:
        return shape_of_packet(query, by, shape);
    case BY_EACH:
    case BY_PAIR:
        return shape_of_each(query, by, shape);
    case BY_MANY:
        return shape_of_many(query, by, shape);
    case BY_TWO_WIDE:
        return shape_of_wide(query, by, shape);
    case BY_EXCHANGE:
    case BY_BROADCAST:
        return shape_of_exchange(query, by, shape);
    case BY_TWO_SHOT:
        return shape_of_two_shot(query, by, shape);
    case BY_COLUMN:
    case BY_COLUMN_TWO:
    case BY_COLUMN_ALL:
        return shape_of_column(query, by, shape);
    case BY_PULL:
    case BY_STAGE:
    case BY_COLUMN_PULL:
    case BY_COLUMN_STAGE:
        return shape_of_pull(query, by, shape);
    case BY_STREAM:
        return shape_of_stream(query, by, shape);
    case BY_ROWS:
    case BY_ROWS_TWO:
        return shape_of_rows(query, by, shape);
    case BY_ONE:
        break;
    }
    *shape = (struct symm_cuda_shape){.blocks = 1, .threads = WARP};
    return true;
}

/* As struct symm_split of pull.cuh: a slot is half of the stage. */
static uint64_t stage_rounds(const struct symm_cuda_query *query, uint64_t rows)
{
    const uint64_t row = query->scratch.stage_bytes / (2 * PACKET) / rows;

    return row > 0 ? divide_up(divide_up(query->bytes, PACKET), row) : 1;
}

uint64_t symm__cuda_shape_rounds(const struct symm_cuda_query *query,
                                 const struct symm_cuda_division *by,
                                 const struct symm_cuda_shape *shape)
{
    const bool gathers =
        query->kind == SYMM_KIND_ALL_GATHER || query->kind == SYMM_KIND_BROADCAST;
    const uint64_t size = (unsigned)query->size;
    const uint64_t packets = divide_up(query->bytes, by->payload);

    if (packets == 0)
        return 1;
    switch (by->split) {
    case BY_EXCHANGE:
    case BY_COLUMN:
        return divide_up(packets, (uint64_t)WARP * shape->blocks);
    case BY_TWO_SHOT:
    case BY_COLUMN_TWO:
        return divide_up(divide_up(packets, size),
                         (uint64_t)shape->threads * shape->blocks);
    case BY_STAGE:
    case BY_COLUMN_STAGE:
        return stage_rounds(query, gathers ? 1 : size);
    default:
        return 1;
    }
}

void symm__cuda_shape_put(uint64_t bytes, uint32_t packets, int processors,
                          struct symm_cuda_shape *shape)
{
    const struct symm_cuda_query query = {.processors = processors};
    const bool one = bytes <= (uint64_t)PACKET * packets * MOST_THREADS;

    shape->threads = WARP;
    while (shape->threads < MOST_THREADS && bytes > PACKET * shape->threads)
        shape->threads *= 2;
    shape->blocks =
        one ? 1
            : blocks_for(&query, divide_up(bytes, PACKET), COPY_PACKETS, COPY_BLOCKS);
}

void symm__cuda_shape_norm(uint64_t rows, uint32_t hidden, symm_dtype dtype,
                           int processors, struct symm_cuda_shape *shape)
{
    const struct symm_cuda_query query = {.processors = processors};
    const uint64_t packets = row_packets(hidden, dtype);

    shape->cluster = shape->each = 0;
    shape_rows(&query, rows, row_threads(packets, row_each(packets, MOST_THREADS)),
               MOST_THREADS, shape);
}
