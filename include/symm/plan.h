/* SPDX-License-Identifier: MIT */
/*
 * plan.h - programs of collectives, and plans of their memory: a program says which ops
 * touch which symmetric buffers in which order; a plan says where each buffer lies in one
 * arena, which algorithm and which barriers each collective uses, and what makes that safe.
 *
 * Everything here is pure and deterministic: equal inputs give equal plans, byte for byte,
 * on every rank and machine. Nothing needs a context, a job or a device. Reading JSON loads
 * libjansson.so.4; without it SYMM_ERR_UNSUPPORTED. docs/planner.md has the rules.
 *
 * Structs that are handed in or out as one object begin with `size`; their lists hold
 * elements of the layout below, which changes only with the library's major version. What
 * a read, parse or make returns is owned by the object: callers look, and do not write.
 */
#ifndef SYMM_PLAN_H
#define SYMM_PLAN_H

#include "symm/norm.h"
#include "symm/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_PROGRAM_MAX_WORLD   256
#define SYMM_PROGRAM_MAX_STREAMS 64
#define SYMM_PROGRAM_MAX_NDIM    16
#define SYMM_PROGRAM_MAX_OPS     1000000
#define SYMM_PLAN_ALIGNMENT      256 /* of offsets, bytes */
#define SYMM_PLAN_TIME_LIMIT     2.0 /* seconds of search, if options say none */

/* ---- Programs -------------------------------------------------------------------- */

/* X(NAME, value, json_name) */
#define SYMM_PROGRAM_KIND_MAP(X)                                                       \
    X(WRITE, 0, "write")                                                               \
    SYMM_COLLECTIVE_MAP(X)                                                             \
    X(READ, 6, "read")                                                                 \
    X(PUT, 7, "put")                                                                   \
    X(WAIT, 8, "wait")                                                                 \
    X(DEPEND, 9, "depend")                                                             \
    X(ALL_REDUCE_NORM, 10, "all_reduce_norm")

typedef enum symm_program_kind {
#define SYMM_PROGRAM_KIND_ENUM(name, value, json) SYMM_PROGRAM_##name = value,
    SYMM_PROGRAM_KIND_MAP(SYMM_PROGRAM_KIND_ENUM)
#undef SYMM_PROGRAM_KIND_ENUM
        SYMM_PROGRAM_KINDS
} symm_program_kind;

SYMM_API const char *symm_program_kind_name(symm_program_kind kind); /* or NULL */

/* A partition of the ranks: list l is ranks[l * length .. (l + 1) * length). */
typedef struct symm_program_partition {
    const char *name;
    int lists, length; /* lists x length == world */
    const int *ranks;
} symm_program_partition;

/* Where the rank stands in partition->ranks: index / length is its list, index % length its
 * place there, as for symm_team_split(team, list, place). -1: nowhere. */
SYMM_API int symm_program_partition_find(const symm_program_partition *partition,
                                         int rank);

typedef struct symm_program_buffer {
    const char *name;
    symm_dtype dtype; /* uint8 if raw */
    bool raw;         /* only `bytes` was given: fits any dtype */
    int ndim;         /* raw: 1, its bytes */
    int64_t shape[SYMM_PROGRAM_MAX_NDIM], stride[SYMM_PROGRAM_MAX_NDIM]; /* elements */
    size_t bytes;      /* of the extent */
    size_t elements;   /* of the extent */
    uint64_t alloc_id; /* by which the program asks for it; default: 1 + its index */
} symm_program_buffer;

/* An array of an all_reduce_norm beside `in`. */
typedef struct symm_program_array {
    bool given; /* false: the call has NULL there */
    int buffer; /* -1: memory that is no buffer of the program */
} symm_program_array;

/* What an all_reduce_norm has beside the fields of its op; symm/norm.h says what each array is. */
typedef struct symm_program_norm {
    size_t size;
    size_t hidden;    /* columns of a row */
    symm_dtype dtype; /* of the rows, if `in` is raw; else 0, or that of `in` */
    symm_norm_quant quant;
    bool constant; /* SYMM_NORM_CONSTANT: no op of the program writes weight or bias */
    symm_program_array bias, residual_in, weight; /* read */
    symm_program_array sum_out, residual_out, norm_out, quant_out;
    symm_program_array scale; /* SYMM_NORM_QUANT_TENSOR: read; else written */
} symm_program_norm;

/* One op; the same struct describes it to symm_program_add_op. Indices count from 0. */
typedef struct symm_program_op {
    size_t size;
    symm_program_kind kind;
    int stream;
    bool early_start;   /* its kernel may start before the op before it has finished */
    const char *site;   /* collectives and puts: unique; wait: the put's; else NULL */
    const int *buffers; /* write, read */
    int buffer_count;
    int partition; /* collectives, put (and wait: its put's); 0 = world */
    /* buffers; out -1: private. put: src, dst. all_reduce_norm: out is derived, the array
     * that takes the sums before the rest of the call is done */
    int in, out;
    size_t count;   /* elements of `in` that take part; 0 = all. put: bytes, derived */
    symm_op reduce; /* all_reduce, reduce_scatter */
    int root;       /* broadcast: rank in its list */
    int shift;      /* put: to place (p + shift) mod length; stored as 0 .. length-1 */
    int on;         /* depend: the stream waited for */
    int put;        /* wait: index of the put; derived */
    int signal; /* put: its number among the puts, mod 256. wait: its put's; derived */
    symm_dtype dtype; /* of the collective: that of `in`; derived */
    size_t result;    /* bytes that arrive in out or dst; derived */
    bool up_to; /* collectives, put: `count` (of a put: src) is the most of any call */
    int norm; /* all_reduce_norm: an index from symm_program_add_norm; else derived, -1 */
} symm_program_op;

typedef struct symm_program {
    size_t size;
    const char *name;
    int world;
    bool loop; /* replayed for ever: time is a circle */
    const char **streams;
    int stream_count;
    symm_program_partition *partitions; /* [0] is "world" */
    int partition_count;
    symm_program_buffer *buffers;
    int buffer_count;
    symm_program_op *ops;
    int op_count;
    /* op_count indices of ops, an order in which one thread can issue them (each wait
     * after its put, each stream in its own order); NULL until symm_program_finish */
    const int *order;
    const symm_program_norm *norms; /* symm_program_op.norm is an index of them */
    int norm_count;
} symm_program;

/*
 * Building a program in memory. Names are UTF-8, and copied. The first stream added is stream 0, the
 * default one; if none was added before the first op, it is "main". Group 0, "world", is
 * there from the start. Errors: SYMM_ERR_INVALID with a sentence, SYMM_ERR_OVERFLOW,
 * SYMM_ERR_NOMEM; the program is then as it was before the call.
 */
SYMM_API symm_status symm_program_create(const char *name, int world, bool loop,
                                         symm_program **program) SYMM_MUST_CHECK;
SYMM_API symm_status symm_program_add_stream(symm_program *program, const char *name,
                                             int *stream) SYMM_MUST_CHECK;
/* ranks: lists x length ranks, each of the world exactly once. */
SYMM_API symm_status symm_program_add_partition(symm_program *program, const char *name,
                                                int lists, int length, const int *ranks,
                                                int *partition) SYMM_MUST_CHECK;
/* shape and stride in elements, strides >= 0; stride NULL: contiguous, last one fastest. */
SYMM_API symm_status symm_program_add_buffer(symm_program *program, const char *name,
                                             symm_dtype dtype, int ndim,
                                             const int64_t *shape,
                                             const int64_t *stride,
                                             int *buffer) SYMM_MUST_CHECK;
SYMM_API symm_status symm_program_add_bytes(symm_program *program, const char *name,
                                            size_t bytes, int *buffer) SYMM_MUST_CHECK;
/* The id by which the running program asks for the buffer: above 0, each once. */
SYMM_API symm_status symm_program_set_alloc_id(symm_program *program, int buffer,
                                               uint64_t alloc_id) SYMM_MUST_CHECK;
/* For the ops that get its index as `norm`, which check it: they know its rows. */
SYMM_API symm_status symm_program_add_norm(symm_program *program,
                                           const symm_program_norm *norm,
                                           int *index) SYMM_MUST_CHECK;
/* op->size must be set; fields that its kind does not use are ignored. */
SYMM_API symm_status symm_program_add_op(symm_program *program,
                                         const symm_program_op *op) SYMM_MUST_CHECK;
/*
 * Checks the whole: each wait has its put, no alloc_id is there twice, no op writes a weight or
 * bias that an all_reduce_norm declares constant, and the ops can run in some order. Called by
 * symm_plan_make and by the readers; adding anything afterwards takes it back.
 */
SYMM_API symm_status symm_program_finish(symm_program *program) SYMM_MUST_CHECK;
/*
 * Whether a job can make the calls of a finished program as they stand: a team for each
 * group, calls on the streams, each put followed by op->signal. SYMM_ERR_INVALID names a
 * group on more streams than a team has, a put onto its own source at a peer, or two puts
 * of one signal that may be under way at once, so that a wait could return for the other.
 */
SYMM_API symm_status symm_program_check_run(const symm_program *program)
    SYMM_MUST_CHECK;
SYMM_API void symm_program_destroy(symm_program *program); /* NULL is allowed */

/*
 * A symm-program/1 file, or its text (`name` stands for the file in errors). The sentence of
 * an error names the file, the line or JSON path, what was found and what is allowed:
 * SYMM_ERR_INVALID; SYMM_ERR_SYSTEM if the file cannot be read. Returns a finished program.
 */
SYMM_API symm_status symm_program_read(const char *path,
                                       symm_program **program) SYMM_MUST_CHECK;
SYMM_API symm_status symm_program_parse(const char *text, size_t length,
                                        const char *name,
                                        symm_program **program) SYMM_MUST_CHECK;

/* Writes a symm-program/1 file; it appears whole or not at all. The program is finished. */
SYMM_API symm_status symm_program_write(const symm_program *program,
                                        const char *path) SYMM_MUST_CHECK;
/* The same text in memory, NUL-terminated; the caller frees it by symm_text_free. */
SYMM_API symm_status symm_program_format(const symm_program *program, char **text,
                                         size_t *length) SYMM_MUST_CHECK;

SYMM_API void symm_text_free(char *text); /* NULL is allowed */

typedef struct symm_program_merge_report {
    size_t size;
    int ranks;        /* whose records were merged */
    uint64_t periods; /* calls of symm_record_period; 0: the program is no loop */
    int left_out;  /* calls of a period that stay outside: they run without the plan */
    int alone;     /* buffers that share bytes with none */
    int elsewhere; /* buffers outside of the plan: of sub-teams, or of varying shape */
    char first
        [256]; /* the first of these, and why, as a sentence; "" if there is none */
} symm_program_merge_report;

/*
 * One program of the records that the ranks of a job wrote with SYMM_RECORD (one path for
 * each rank, in any order). SYMM_ERR_INVALID names the files or ranks that contradict each
 * other, and what is missing or not complete. report: NULL, or with its size set. Returns
 * a finished program; its plan is safe for the program that was recorded.
 */
SYMM_API symm_status
symm_program_merge(const char *const *paths, int count, symm_program **program,
                   symm_program_merge_report *report) SYMM_MUST_CHECK;

/* FNV-1a 64 over the program's canonical JSON: keys sorted, no white space, defaults
 * filled in, names as given. Equal programs hash equal, however they were written. */
SYMM_API symm_status symm_program_hash(const symm_program *program,
                                       uint64_t *hash) SYMM_MUST_CHECK;

/* ---- Costs ----------------------------------------------------------------------- */

/* What calls, barriers and memory cost: measured ("symm-costs/1"), or built in. Opaque. */
typedef struct symm_costs symm_costs;

SYMM_API symm_status symm_costs_read(const char *path,
                                     symm_costs **costs) SYMM_MUST_CHECK;
SYMM_API symm_status symm_costs_parse(const char *text, size_t length, const char *name,
                                      symm_costs **costs) SYMM_MUST_CHECK;
SYMM_API void symm_costs_destroy(symm_costs *costs); /* NULL is allowed */

typedef struct symm_costs_point {
    double bytes, us; /* bytes of one rank's block, as the call counts */
} symm_costs_point;

/* X(NAME, value, name): what decides, beside the bytes, how fast an algorithm is. */
#define SYMM_COSTS_DATA_MAP(X)                                                         \
    X(FLOAT32, 0, "float32") /* sums of float32 */                                     \
    X(HALF, 1, "half")       /* sums of float16 and bfloat16 */                        \
    X(FLOAT, 2, "float")     /* what else is reduced of floats of up to 32 bits */     \
    X(INT32, 3, "int32")     /* sums of int32 */                                       \
    X(OTHER, 4, "other")     /* what else is reduced */                                \
    X(ANY, 5, "any")         /* nothing is reduced */

typedef enum symm_costs_data {
#define SYMM_COSTS_DATA_ENUM(id, value, name) SYMM_COSTS_##id = value,
    SYMM_COSTS_DATA_MAP(SYMM_COSTS_DATA_ENUM)
#undef SYMM_COSTS_DATA_ENUM
} symm_costs_data;

/* Times of one algorithm that symm-perf --tune has measured; docs/performance.md. */
typedef struct symm_costs_curve {
    size_t size;
    symm_program_kind collective;
    symm_algorithm algorithm;
    symm_costs_data data;
    bool in_place;
    int ranks;
    int count;                      /* of points, 1 or more */
    const symm_costs_point *points; /* bytes ascend */
} symm_costs_curve;

/* SYMM_ERR_NOT_FOUND after the last one; a table may have none. */
SYMM_API symm_status symm_costs_curve_at(const symm_costs *costs, int index,
                                         symm_costs_curve *curve) SYMM_MUST_CHECK;
/* The machines that the curves are for (symm_info.machine), a list that ends with NULL; NULL if
 * costs is NULL. */
SYMM_API const char *const *symm_costs_machines(const symm_costs *costs);
/* FNV-1a 64 of the document, keys sorted and without white space. */
SYMM_API symm_status symm_costs_hash(const symm_costs *costs,
                                     uint64_t *hash) SYMM_MUST_CHECK;

/* ---- Plans ----------------------------------------------------------------------- */

typedef struct symm_plan_buffer {
    const char *name;
    uint64_t alloc_id; /* 1 + its index in the program */
    size_t offset;     /* in the arena, the same on all ranks */
    size_t bytes;
    int turn; /* its place among all buffers in the order in which lives begin; -1: always live */
    /* The buffers that come directly before this one in some of its bytes; also itself, a period
     * earlier. */
    const int *after;
    int after_count;
} symm_plan_buffer;

/* A collective or a put. */
typedef struct symm_plan_op {
    const char *site;
    symm_algorithm algorithm;
    int channel; /* of its group's team: ops of different streams never share one */
    bool entry_barrier, exit_barrier;
    bool norm; /* an all_reduce_norm; the barriers are those of its sum */
    /* Buffers whose bytes no op touches from this op's end on a rank to their next write.
     * Lives that no single op ends are not listed. */
    const int *frees;
    int free_count;
    /* The most bytes of `in` or src that a call may have; each call's algorithm is then chosen by
     * the bytes that it has. 0: calls have the program's size and the plan's algorithm. */
    size_t up_to;
} symm_plan_op;

/*
 * The ops of one stream (where ops start early: of its even or odd ops, `half`) on the ranks
 * that stand in some relation to the rank whose copy of a buffer is looked at: "owner",
 * itself; "group", its list of a group; "readers", that list if it is its root, else itself;
 * "root", the list's root; "sender", the rank whose put with this shift reaches it.
 */
typedef struct symm_plan_chain {
    const char *by, *stream;
    const char *partition; /* NULL for "owner" */
    int half, root, shift; /* 0 where it does not apply */
} symm_plan_chain;

/* All accesses on this chain are over by this moment (docs/planner.md). */
typedef struct symm_plan_witness {
    int chain; /* index in the plan's chains */
    int64_t moment;
} symm_plan_witness;

/*
 * Two buffers that come one after the other in some bytes, or one and itself a period later.
 * On every rank all accesses to `before`'s copy, by any rank, are over by the moments of the
 * witness, one for each chain that has some, and these come before the first write of
 * `after`, that of the next period if next_period.
 */
typedef struct symm_plan_entry {
    int before, after; /* indices of buffers */
    bool next_period;
    const symm_plan_witness *witness;
    int witness_count;
} symm_plan_entry;

/* A way of trading memory for barriers that was considered. */
typedef struct symm_plan_point {
    const char *name; /* what was done, in a few words */
    size_t arena_bytes;
    int barriers;        /* entry + exit flags that are set, in one period */
    double microseconds; /* predicted, one period */
    bool chosen, beaten; /* beaten: another point is no worse in all three */
} symm_plan_point;

typedef struct symm_plan {
    size_t size;
    const char *program; /* its name */
    const char *source; /* file or name that it was read from, for errors; NULL: made */
    uint64_t program_hash, run_hash, plan_hash;
    bool has_run_hash, has_plan_hash; /* false: a plan that was read had none */
    /* What ranks load: */
    int world;
    bool loop;
    size_t arena_bytes;        /* largest offset + bytes, rounded up to 256 */
    symm_plan_buffer *buffers; /* in the program's order */
    int buffer_count;
    symm_plan_op *ops; /* in the program's order */
    int op_count;
    /* The proof, and what the arena compares with; symm_plan_check recomputes all of it. */
    bool has_proof;           /* false: it was left out by symm_plan_read_run */
    size_t lower_bound_bytes; /* of the antichain, sizes rounded up */
    bool lower_bound_proved;  /* no arena can be smaller: it equals arena_bytes */
    size_t dedicated_bytes;   /* one allocation for each buffer, rounded up to 256 */
    const int *antichain;     /* buffers that pairwise conflict, ascending */
    int antichain_count;
    symm_plan_chain *chains;
    int chain_count;
    symm_plan_entry *certificate; /* by `after`, then `before` */
    size_t certificate_count;
    /* Known to the plan's maker only; a plan that was read has none of these. */
    symm_plan_point *points; /* NULL or what was considered */
    int point_count;
    double microseconds; /* predicted, one period */
    const char *note;    /* NULL, or why arena_bytes is more than lower_bound_bytes */
} symm_plan;

typedef struct symm_plan_options {
    size_t size;
    const char *algorithm;   /* forces one for every collective; NULL: by cost */
    const symm_costs *costs; /* NULL: the built-in model */
    /* Seconds of search for offsets; 0 = SYMM_PLAN_TIME_LIMIT, INFINITY = none. A search that
     * is cut short by it is the one thing that is not deterministic. */
    double time_limit;
    bool greedy; /* greedy placement only, no search */
    /* About once a second of search; false ends the search with the best so far. */
    bool (*progress)(void *arg, double seconds, size_t best_bytes, size_t bound_bytes);
    void *arg;
    /* NULL, or the plan of the program before a few of its ops changed: sites and buffers
     * that it names keep algorithms, barriers and offsets where the program still allows
     * it. Much faster than a full plan; nothing else is compared. */
    const symm_plan *previous;
} symm_plan_options;

/*
 * SYMM_ERR_INVALID: the program has a race that no barrier can mend, or the forced
 * algorithm cannot do one of its collectives; the sentence names the ops. options may be
 * NULL. The program is finished (symm_program_finish) if it was not.
 */
SYMM_API symm_status symm_plan_make(symm_program *program,
                                    const symm_plan_options *options,
                                    symm_plan **plan) SYMM_MUST_CHECK;
/* A symm-plan/2 file or text: well-formed, but not checked against any program. A
 * symm-plan/1 is refused: it has to be made again. */
SYMM_API symm_status symm_plan_read(const char *path, symm_plan **plan) SYMM_MUST_CHECK;
SYMM_API symm_status symm_plan_parse(const char *text, size_t length, const char *name,
                                     symm_plan **plan) SYMM_MUST_CHECK;
/* Reads only the part of such a file that ranks need, which is faster: has_proof is false, and
 * errors in the text of the proof are not found. */
SYMM_API symm_status symm_plan_read_run(const char *path,
                                        symm_plan **plan) SYMM_MUST_CHECK;
/* Writes a symm-plan/2 file; it appears whole or not at all. */
SYMM_API symm_status symm_plan_write(const symm_plan *plan,
                                     const char *path) SYMM_MUST_CHECK;
/* The same text in memory, NUL-terminated; the caller frees it by symm_text_free. */
SYMM_API symm_status symm_plan_format(const symm_plan *plan, char **text,
                                      size_t *length) SYMM_MUST_CHECK;
/* FNV-1a 64 of canonical JSON: symm_plan_run_hash of what ranks load, symm_plan_hash of that hash
 * and the proof. Members that this library does not know are not covered. */
SYMM_API symm_status symm_plan_run_hash(const symm_plan *plan,
                                        uint64_t *hash) SYMM_MUST_CHECK;
SYMM_API symm_status symm_plan_hash(const symm_plan *plan,
                                    uint64_t *hash) SYMM_MUST_CHECK;
/*
 * What can be reported without the program: two buffers that come one after the other in some
 * bytes while `after` of the second does not list the first. *before -1: there are none.
 */
SYMM_API symm_status symm_plan_find_unlisted(const symm_plan *plan, int *before,
                                             int *after) SYMM_MUST_CHECK;
SYMM_API void symm_plan_destroy(symm_plan *plan); /* NULL is allowed */

/* ---- Checking -------------------------------------------------------------------- */

typedef struct symm_plan_report {
    size_t size;
    uint64_t proved; /* pairs of accesses to shared bytes that were proved ordered */
    bool safe;       /* everything was proved */
    char first[512]; /* else the first pair that is not, and why, as a sentence */
} symm_plan_report;

/*
 * Proves a plan against its program, by a checker that shares no code with the planner.
 * SYMM_OK: the check was made, report->safe has its outcome (a plan that does not fit the
 * program, a wrong hash, a missing entry: safe is false). Other: it could not be made.
 */
SYMM_API symm_status symm_plan_check(const symm_program *program, const symm_plan *plan,
                                     symm_plan_report *report) SYMM_MUST_CHECK;

/* ---- Packing --------------------------------------------------------------------- */

/* Lifetimes as in the CSV files of allocator benchmarks: live in [lower, upper). */
typedef struct symm_pack_item {
    int64_t lower, upper, bytes; /* bytes >= 0 */
} symm_pack_item;

typedef struct symm_pack_options {
    size_t size;
    int64_t capacity; /* > 0: find any placement within it; 0: the lowest peak */
    bool greedy;      /* milliseconds for up to 2,000 items, seconds for 1,000,000 */
    /* Seconds for the whole call; 0 = SYMM_PLAN_TIME_LIMIT, INFINITY = none. The first
     * placement is made in any case. A search that is cut short by it may end elsewhere
     * next time; without a limit equal items give equal offsets. */
    double time_limit;
    /* Called about once a second; false ends the search. May be NULL. */
    bool (*progress)(void *arg, double seconds, int64_t best_peak, int64_t lower_bound,
                     uint64_t nodes);
    void *arg;
} symm_pack_options;

typedef struct symm_pack_result {
    size_t size;
    int64_t peak;        /* of the placement in offsets, also if it does not fit */
    int64_t lower_bound; /* largest total size of items live at one moment */
    bool fits;           /* peak <= capacity */
    bool proved;         /* found, or proved impossible; capacity 0: proved lowest */
    double seconds;
    uint64_t nodes;
} symm_pack_result;

/*
 * Fills offsets[count]. The peak is never above that of first fit in the order of time,
 * nor of first fit by (size, start), unless the time limit ends it, a capacity is reached
 * before, or more pairs of items are live together than 300 million with greedy, 3,000
 * million without a time limit.
 * capacity 0 without a limit goes on until the peak is proved to be the lowest; on items
 * with more than 4 million conflicts, for about a minute. SYMM_ERR_INVALID names the item.
 */
SYMM_API symm_status symm_pack(const symm_pack_item *items, int count,
                               const symm_pack_options *options, int64_t *offsets,
                               symm_pack_result *result) SYMM_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
