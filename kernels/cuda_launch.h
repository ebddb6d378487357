/* SPDX-License-Identifier: MIT */
/*
 * cuda_launch.h - all that the runtime sees of the CUDA kernels: their one argument, and
 * which kernel does which collective by which algorithm with how many blocks.
 *
 * The argument is one plain struct, passed by value. A kernel allocates nothing and counts
 * in device memory (struct symm_device_state), so that a captured graph can be replayed; it
 * never takes a counter as an argument. Every wait polls; after some polls it reads the
 * record's abort word and the clock. A wait that fails cancels this rank's arrival (tag 0),
 * writes the record, marks the channel failed and returns: the CUDA context stays usable.
 */
#ifndef SYMM_KERNELS_CUDA_LAUNCH_H
#define SYMM_KERNELS_CUDA_LAUNCH_H

#include "kernels/launch.h"

/*
 * Scratch of one channel: symmetric memory after the pad, at the same offset on all ranks.
 * Each protocol has a region of its own; kernels of different protocols never share one.
 * A new team's scratch holds zeros in `ll` and `stage`, 0xff bytes in `lamport`.
 */
struct symm_cuda_scratch {
    uint64_t ll, lamport, stage;                   /* offsets in the heap */
    uint64_t ll_bytes, lamport_bytes, stage_bytes; /* of the whole region; x 4096 */
};

/* ---- Clocks of calls: symm_round_deadline ------------------------------------------- */

/* The deadline of a channel's call. Written by kernels, at the first wait that lasts. */
struct symm_cuda_clock {
    uint32_t call; /* the call that this clock belongs to */
    uint32_t reserved;
    uint64_t begin, end; /* nanoseconds; end 0: no call has set it */
    /* By bits, at the last symm_round_poll of a wait: members that had not begun the call although
     * their hosts had queued it. */
    uint32_t held_up[SYMM_MEMBER_WORDS];
    uint32_t reserved_too;
};

/* What symm_device_team.state points to: local memory of the device. */
struct symm_cuda_state {
    struct symm_device_state device;
    struct symm_cuda_clock clock[SYMM_CHANNELS];
};

/* What symm_device_team.record points to: memory of the host. */
struct symm_cuda_record {
    struct symm_device_record device;
    uint32_t held_up[SYMM_MEMBER_WORDS]; /* as in the clock of the record's channel */
    uint32_t before; /* 1 + args.before_team, of a call that was stopped by its mark */
    /* The launches that the member's host has queued on the channel, as in
     * symm_cuda_args.sequence; the watchdog keeps it up to date. */
    uint32_t queued[SYMM_CHANNELS][SYMM_DEVICE_RANKS];
    uint32_t pointers; /* 1 + symm_cuda_pointers.call, of a call without addresses */
};

/* Tiers of channels whose scratch is of one size. Tier 0 takes 8 MiB by Lamport packets in two
 * rounds, tier 1 512 KiB, the rest 64 KiB. */
#define SYMM_CUDA_TIERS      3
#define SYMM_LARGE_CHANNELS  2 /* tier 0 */
#define SYMM_MIDDLE_CHANNELS 6 /* tier 1, after them */

/* Flags: those of launch.h for pull kernels, as chosen by a plan or the default. */
#define SYMM_CUDA_ENTRY_BARRIER SYMM_BARRIER_ENTRY
#define SYMM_CUDA_EXIT_BARRIER  SYMM_BARRIER_EXIT
#define SYMM_CUDA_DEPENDENT     4u /* launched with programmatic dependent launch */
#define SYMM_CUDA_EARLY         16u /* a small grid: block 0 triggers dependents at once */
#define SYMM_CUDA_RELAY                                                                \
    32u /* a put after an early kernel: triggers before it waits for that kernel;
           the kernel after the put does not */
#define SYMM_CUDA_BEFORE       64u /* args.before is set; << 8: its channel there */
#define SYMM_CUDA_BEFORE_SHIFT 8u
#define SYMM_EARLY_THREADS     64 /* of such a kernel for each multiprocessor, at most */
#define SYMM_EARLY_PART        4  /* or clusters on this part of the multiprocessors */
#define SYMM_PUT_PACKETS       4  /* of a thread, in a put of one block, at most */

/* ---- Addresses that are known after a capture ---------------------------------------- */

/*
 * Where the arrays of one captured call lie, if they are not symmetric memory. Only in teams of
 * up to SYMM_FEW_RANKS. In memory of the device: a graph captures the address of the entry, and
 * its replays read what the host has written since. An address is written once and never changes.
 * The state is written after the addresses, and becomes READY once at most.
 */
struct symm_cuda_pointers {
    /* The members' arrays, as this rank's device reaches them; 0: the kernel uses none. */
    uint64_t in[SYMM_FEW_RANKS], out[SYMM_FEW_RANKS];
    uint32_t in_bits, out_bits; /* of all these addresses, or-ed: their alignment */
    uint32_t state;             /* enum symm_cuda_pointers_state */
    uint32_t call;              /* its number in the team, for a sentence */
};

/* A call whose state is not READY fails on all ranks. */
enum symm_cuda_pointers_state {
    /* the addresses are not written yet, or never will be */
    SYMM_CUDA_POINTERS_UNKNOWN,
    SYMM_CUDA_POINTERS_READY,
    SYMM_CUDA_POINTERS_RELEASED /* a member's memory was released */
};

/* row_exchange.cuh: rows sent ahead of the one that is summed. */
#define SYMM_ROWS_AHEAD 2

/* all_reduce_pair.cu, many packets a thread: threads of a block that take packets, at most, and
 * packets that one has sent when it waits for its first. */
#define SYMM_MANY_THREADS 512
#define SYMM_MANY_AHEAD   4

/* all_reduce_pair.cu, all_reduce_line.cu: threads of a block that take a packet each, at most, as
 * many as registers allow: 1.75 MiB between two ranks, and 1 MiB among four, by packets of 16 bytes
 * from 116 blocks. A multiple of 32. */
#define SYMM_PACKET_THREADS(size) ((size) > 4 ? 512 : (size) > 2 ? 640 : 992)

/* move_line.cu; reduce_scatter of move_pull.cu: threads of a block, at most. */
#define SYMM_MOVE_THREADS 1024
#define SYMM_PULL_THREADS 640

/* all_reduce_two_shot_line.cu, wide: threads of a block that take packets, at most; as many as
 * scratch has room for and registers allow. */
#define SYMM_WIDE_THREADS(size) ((size) > 4 ? 256 : 512)

/* row_exchange.cuh: threads of a block that take packets, at most; as many as registers allow. */
#define SYMM_ROW_THREADS(size) ((size) > 2 ? 256 : 512)

/* row_exchange.cuh: blocks of a cluster, which have a row together, at most; and packets of a
 * thread then. Rows of float32, for which registers of sm_100 are too few, have none (shape.c,
 * row_cluster). */
#define SYMM_CLUSTER_MOST       2
#define SYMM_CLUSTER_LOG2(size) ((size) > 2 ? 1 : SYMM_CLUSTER_MOST)
#define SYMM_CLUSTER_EACH       2
/* Whether packets are polled twice at a time (symm_packets_watch), if all rows are under way at
 * once, a thread has one packet and all rows together have SYMM_WATCH_LEAST bytes: between two ranks,
 * and where registers allow; float16's kernel spills on sm_100. */
#define SYMM_ROW_WATCHES(size, dtype) ((size) == 2 && (dtype) != SYMM_FLOAT16)
#define SYMM_WATCH_LEAST              8192

/* Kernels for few ranks get the part before the base of member SYMM_FEW_RANKS: `team` is last. */
struct symm_cuda_args {
    struct symm_cuda_scratch scratch; /* of `channel` */
    const void *in;                   /* own addresses */
    void *out;
    uint64_t in_offset,
        out_offset;     /* in the heap, where the algorithm uses symmetric memory */
    int64_t in_step;    /* peer p's in_offset is mine + (p - rank) * in_step */
    uint64_t count;     /* elements of one rank's block; puts: bytes */
    uint64_t bytes;     /* count x element */
    uint64_t multicast; /* plus an offset in the heap: the address of all ranks' memory
                           there, where the query said that it has one */
    uint32_t *result;   /* of the work handle: minus the status; NULL: none */
    uint32_t tag;
    uint32_t channel, flags;
    int32_t kind, dtype, op, root; /* enum symm_kind, symm_dtype, symm_op */
    int32_t peer, signal;          /* puts and signals; signal -1: none */
    uint32_t cluster;              /* the launch has clusters of 2^cluster blocks */
    uint32_t each;                 /* all_reduce_norm: symm_cuda_shape.each */
    uint64_t limit; /* nanoseconds that a call waits for members that have queued it */
    uint32_t sequence; /* of the channel's launches; 0: captured by a graph, or a put */
    uint32_t before_team;
    uint32_t *done; /* [block]: each stores `sequence` there at its end; NULL: none */
    /* With SYMM_CUDA_BEFORE: the state of another team, which has made the call before this
     * one on the stream, on its channel flags >> SYMM_CUDA_BEFORE_SHIFT (SYMM_CHANNELS: on
     * none). before_team: its number. */
    const struct symm_device_state *before;
    /* Of a kernel ..._by_pointer: where the members' arrays lie, instead of in_offset,
     * out_offset and in_step. Else NULL. */
    const struct symm_cuda_pointers *pointers;
    /* all_reduce_norm. rows: of this launch */
    symm_norm norm;
    /* SYMM_NORM_QUANT_GROUP_COLUMN: floats from a group's to the next's */
    uint64_t scale_step;
    struct symm_device_team team;
};
#define SYMM_FEW_ARGS_BYTES offsetof(struct symm_cuda_args, team.base[SYMM_FEW_RANKS])

/* One kernel function, named as in its module. */
struct symm_cuda_kernel {
    const char *name;   /* extern "C" symbol */
    const char *module; /* which image holds it: "all_reduce_ll" for all_reduce_ll.cu */
};

/* How a call is launched; equal on all ranks that are given equal arguments. */
struct symm_cuda_shape {
    uint32_t blocks, threads;
    uint32_t cluster; /* log2 of the blocks of a cluster; 0: there are none */
    /* 2: a thread has two packets of a row although one would do, so that all rows are under way
     * at once; else 0 */
    uint32_t each;
};

/* What the choice of a kernel may depend on: equal on all ranks. (Alignment is not: kernels
 * deal with it.) */
struct symm_cuda_query {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    symm_dtype dtype;
    symm_op op;
    int size;        /* of the team: 1..SYMM_DEVICE_RANKS */
    uint64_t bytes;  /* of one rank's block */
    int processors;  /* multiprocessors; the fewest of all ranks' devices */
    bool exclusive;  /* nothing else uses the devices: the grid may have all of them */
    bool clusters;   /* the devices have clusters of blocks */
    uint32_t blocks; /* of the grid at most (budget.h); 0: no such limit */
    bool by_pointer; /* its addresses come from symm_cuda_args.pointers */
    struct symm_cuda_scratch scratch;
    uint64_t rows; /* all_reduce_norm */
    uint32_t hidden;
};

/* enum values beyond the collectives, for kernels of one-sided calls */
enum symm_cuda_p2p {
    SYMM_CUDA_PUT, /* copy args.bytes from in to out (a peer's address), then signal */
    SYMM_CUDA_SIGNAL,      /* raise args.signal at args.peer */
    SYMM_CUDA_SIGNAL_WAIT, /* wait for args.signal of args.peer */
    SYMM_CUDA_P2P_COUNT
};

/* Types whose sums have kernels of their own: those of few rounds, those that multicast adds up. */
static inline bool symm__cuda_common(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT32 || dtype == SYMM_FLOAT16 || dtype == SYMM_BFLOAT16;
}

/* kernels/cuda/table.c. False: no kernel does that (kernel and shape are untouched). With a grid that
 * is cut (query->blocks) a push may get the kernel that stages. Pure. */
bool symm__cuda_kernel_find(const struct symm_cuda_query *query,
                            struct symm_cuda_kernel *kernel,
                            struct symm_cuda_shape *shape);
/* How often that kernel fills its scratch and waits for the others to have read it: 1, if the call
 * fits into it, or needs none; 0: no kernel does that. Pure. */
uint64_t symm__cuda_kernel_rounds(const struct symm_cuda_query *query);
/* Whether the next kernel of the stream may become resident while such a kernel waits for its
 * peers (SYMM_CUDA_EARLY). */
bool symm__cuda_shape_early(const struct symm_cuda_shape *shape, uint32_t processors);
/* size: of the team. packets: up to so many of a thread one block takes the whole put; 0 unless both
 * addresses are multiples of 16, and SYMM_PUT_PACKETS at most. */
void symm__cuda_p2p_find(enum symm_cuda_p2p call, uint64_t bytes, uint32_t packets,
                         int size, int processors, struct symm_cuda_kernel *kernel,
                         struct symm_cuda_shape *shape);
/* The kernel of an all_reduce_norm that takes `rows` x `hidden` sums from args.out and does the
 * rest; it takes no channel, and the all_reduce is the kernel before it on the stream. */
void symm__cuda_norm_find(uint64_t rows, uint32_t hidden, symm_dtype dtype,
                          int processors, struct symm_cuda_kernel *kernel,
                          struct symm_cuda_shape *shape);
/* kernels/cuda/scratch.c has this function and the next ones. Lays out the scratch of a team of
 * `size` members whose pad ends at this offset. Before it lies, in a team of more than
 * SYMM_FEW_RANKS, struct symm_device_wide_pads. Fills offsets; returns the end. All channels
 * together stay below 110 MiB. */
uint64_t symm__cuda_scratch_layout(uint64_t pad_end, int size,
                                   struct symm_cuda_scratch scratch[SYMM_CHANNELS]);
/* Tiers of channels. _end: the first channel after the tier. _for: the tier with the least
 * scratch in which every query for calls of `bytes` of one rank's block has the same kernel and
 * shape as with more scratch. */
int symm__cuda_tier_end(int tier);
int symm__cuda_tier_of(int channel);
int symm__cuda_tier_for(uint64_t bytes, int size);

/* The kernels' machine code, a fat binary for each .cu file; ends with a NULL module.
 * Made by the build; only the end in a build without nvcc. */
struct symm_cuda_image {
    const char *module; /* "all_reduce_ll" */
    const void *data;
    uint64_t bytes;
};
extern const struct symm_cuda_image symm__cuda_images[];

#endif
