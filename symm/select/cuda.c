/* SPDX-License-Identifier: MIT */
/*
 * cuda.c - the choice of an algorithm on CUDA, and the barriers of each kernel.
 *
 * The thresholds for 2 and 4 ranks are measured on H200 (docs/performance.md). The others
 * follow from two costs of a machine whose GPUs are connected by a switch: a hop takes 0.75 us
 * (and about 0.15 us of reading), and a GPU receives 0.38 MB/us. With n ranks, one-shot sends
 * (n - 1) S bytes in one hop and two-shot 2 (n - 1)/n S in two. So two-shot is faster from
 * S = 0.9 us x 0.38 MB/us / ((n - 1)(1 - 2/n)) on: 64 KiB with 8 ranks. With two ranks both
 * move the same bytes, and one-shot in one hop (all_reduce_pair.cu, while the scratch suffices).
 *
 * The multimem algorithms use multicast memory: one address for the same bytes of all members,
 * where the switch adds what is read and copies what is stored.
 */
#include "select/select.h"

#define LL_BYTES ((size_t)128 << 10) /* up to it by LL lines, of which half are flags */
/* From here on an all_reduce without kernels of few rounds uses symmetric memory directly; a
 * push would move all data through scratch. */
#define PUSH_BYTES       ((size_t)2 << 20)
#define FEW_ROUNDS_BYTES ((size_t)8 << 20) /* up to it by a push of one or two rounds */
#define MOVE_BYTES       ((size_t)384 << 10) /* all that one rank receives, by lines */
#define SCATTER_BYTES    ((size_t)1 << 20)   /* blocks up to it by Lamport lines */
/* From here on the root of a broadcast gives each of 2 or more receivers a slice, which that
 * receiver passes on to the others; below, the broadcast is staged. */
#define RELAY_BYTES ((size_t)2 << 20)
/* From here on multimem_two_shot is taken for an all_reduce; not measured. */
#define MULTIMEM_BYTES ((size_t)256 << 10)
/* What a GPU receives in the time of a hop and of reading: 0.9 us x 0.38 MB/us. */
#define HOP_BYTES ((size_t)342000)

/* Microseconds of a round through the scratch: on 2 H200 2.6 to 5.9 on the channels with the least
 * of it, 4 to 9 on the middle ones. */
#define ROUND_US 4.0

/* Launches of a fused norm more than with the most scratch, 2 us each, that are quicker than the norm's
 * own kernel and a sum that needs no scratch. */
#define MORE_LAUNCHES 4

struct candidate {
    enum symm_algorithm algorithm;
    const char *reason;
};

static const size_t two_shot_bytes[SYMM_FEW_RANKS + 1] = {
    SIZE_MAX,   SIZE_MAX,   SIZE_MAX,  384u << 10, 128u << 10,
    160u << 10, 104u << 10, 80u << 10, 64u << 10,
};

/* From how many bytes on two-shot is faster; of more ranks by the model above. */
static size_t two_shot_from(int ranks)
{
    const size_t n = (size_t)ranks;

    if (n <= SYMM_FEW_RANKS)
        return two_shot_bytes[n];
    return HOP_BYTES * n / ((n - 1) * (n - 2));
}

struct symm_cuda_query symm__cuda_ask(const struct symm_select_query *q,
                                      enum symm_algorithm algorithm)
{
    return (struct symm_cuda_query){.kind = q->kind,
                                    .algorithm = algorithm,
                                    .dtype = q->dtype,
                                    .op = q->op,
                                    .size = q->size,
                                    .bytes = q->bytes,
                                    .processors = q->processors,
                                    .exclusive = q->exclusive,
                                    .clusters = q->clusters,
                                    .scratch = q->scratch,
                                    .rows = q->rows,
                                    .hidden = q->hidden};
}

/* Of a channel with the most of it. */
static struct symm_cuda_scratch most_scratch(int size)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];

    symm__cuda_scratch_layout(0, size, scratch);
    return scratch[0];
}

/* `delay` as in symm__cuda_objection. */
static bool has_kernel(const struct symm_select_query *q, enum symm_algorithm algorithm,
                       double *delay)
{
    struct symm_cuda_query ask = symm__cuda_ask(q, algorithm);
    const uint64_t rounds = symm__cuda_kernel_rounds(&ask);
    uint64_t least = rounds;

    if (delay && rounds > 1) {
        ask.scratch = most_scratch(q->size);
        least = symm__cuda_kernel_rounds(&ask);
    }
    if (delay)
        *delay = rounds > least ? ROUND_US * (double)(rounds - least) : 0;
    return rounds > 0;
}

/* Why a multimem algorithm cannot do the call; NULL: memory, numerics and overlap allow it.
 * has_kernel refuses other kinds than all_reduce and all_gather. An all_gather may be in place:
 * each rank stores its own block alone. */
static const char *multimem_objection(const struct symm_select_query *q, bool two_shot)
{
    const bool all_reduce = q->kind == SYMM_KIND_ALL_REDUCE;
    const bool needs_in = all_reduce, needs_out = !all_reduce || two_shot;

    if ((needs_in && !q->in_multicast) || (needs_out && !q->out_multicast))
        return "it needs memory of the team's own heap that has multicast; "
               "SYMM_MULTICAST=1 asks for it where the machine has it";
    if (all_reduce && q->numerics == SYMM_NUMERICS_RANK_ORDER)
        return "the switch does not add in rank order, which the call demands";
    if (all_reduce && !two_shot && q->numerics == SYMM_NUMERICS_SAME_BITS)
        return "in multimem_one_shot the switch computes the sum once for each rank, "
               "and the bits of these sums may differ; multimem_two_shot gives all "
               "ranks the same bits";
    if (all_reduce && !two_shot && q->overlap)
        return "input and output overlap, and a peer could sum this rank's output "
               "instead of its input; multimem_two_shot allows overlap";
    return NULL;
}

const char *symm__cuda_objection(const struct symm_select_query *q,
                                 enum symm_algorithm algorithm, double *delay)
{
    const bool two_shot = algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT;
    const char *why = two_shot || algorithm == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT
                          ? multimem_objection(q, two_shot)
                          : symm__memory_objection(q, algorithm);

    if (why || has_kernel(q, algorithm, delay))
        return why;
    return q->size > SYMM_FEW_RANKS
               ? "the cuda backend has no such kernel for this collective, dtype and "
                 "size in teams of more than 8 ranks"
               : "the cuda backend has no such kernel for this collective, dtype and "
                 "size";
}

/* The candidate that can do the call with the least delay, the first of them; else copy_in, which
 * takes any pointers and size. */
static struct symm_selection first_of(const struct symm_select_query *q,
                                      const struct candidate *candidates, int count)
{
    int best = -1;
    double least = 0;

    for (int i = 0; i < count && (best < 0 || least > 0); i++) {
        double delay;

        if (symm__cuda_objection(q, candidates[i].algorithm, &delay) ||
            (best >= 0 && delay >= least))
            continue;
        best = i;
        least = delay;
    }
    if (best >= 0)
        return (struct symm_selection){
            candidates[best].algorithm, candidates[best].reason,
            best > 0 && candidates[best].algorithm == SYMM_ALGORITHM_COPY_IN};
    return (struct symm_selection){
        SYMM_ALGORITHM_COPY_IN,
        "it is staged: too large for the scratch of a push, and "
        "not symmetric memory, or in place",
        true};
}

#define FIRST_OF(q, ...)                                                               \
    first_of((q), (const struct candidate[]){__VA_ARGS__},                             \
             (int)(sizeof((const struct candidate[]){__VA_ARGS__}) /                   \
                   sizeof(struct candidate)))

static const struct candidate lamport = {
    SYMM_ALGORITHM_LAMPORT_PUSH,
    "one hop, and the data are their own flag; this type has a pattern to spare"};
static const struct candidate ll = {
    SYMM_ALGORITHM_LL_PUSH, "one hop, in lines that carry their flag beside the data"};
static const struct candidate two_push = {
    SYMM_ALGORITHM_TWO_SHOT_PUSH,
    "two hops move fewer bytes: each rank reduces its slice once for all"};
static const struct candidate inplace = {
    SYMM_ALGORITHM_TWO_SHOT_INPLACE,
    "input and output are symmetric memory, and each rank reduces its slice once for "
    "all"};
static const struct candidate into = {
    SYMM_ALGORITHM_TWO_SHOT_INPLACE,
    "the output is symmetric memory, and each rank stores its block where it belongs"};
static const struct candidate relay = {
    SYMM_ALGORITHM_TWO_SHOT_INPLACE,
    "the output is symmetric memory: the root hands out slices, which others pass on"};
static const struct candidate two_pull = {
    SYMM_ALGORITHM_TWO_SHOT_PULL,
    "the input is symmetric memory, and each rank reduces its slice once for all"};
static const struct candidate pull = {SYMM_ALGORITHM_ONE_SHOT_PULL,
                                      "peers can read it where it lies"};
static const struct candidate two_multimem = {
    SYMM_ALGORITHM_MULTIMEM_TWO_SHOT,
    "all ranks have multicast: the switch adds, and stores to all ranks at once"};
static const struct candidate gather_multimem = {
    SYMM_ALGORITHM_MULTIMEM_ONE_SHOT,
    "all ranks have multicast: each sends its block once, the switch copies it"};
static const struct candidate staged = {SYMM_ALGORITHM_COPY_IN, "it is staged"};

/* Whether the sum has kernels of few rounds (all_reduce_{line,pair,two_shot_line}.cu). */
static bool common_sum(const struct symm_select_query *q)
{
    return q->op == SYMM_SUM && symm__cuda_common(q->dtype) &&
           (q->size == 2 || q->size == 4 || q->size == 8);
}

/* Whether two ranks send each other all packets at once, in two rounds at most. */
static bool is_pair(const struct symm_select_query *q)
{
    return common_sum(q) && q->size == 2 && q->bytes <= q->scratch.lamport_bytes / 2;
}

static struct symm_selection choose_all_reduce(const struct symm_select_query *q)
{
    bool common = common_sum(q);
    bool few_rounds = common && q->bytes <= q->scratch.lamport_bytes / 3;

    if (q->bytes >= MULTIMEM_BYTES &&
        !symm__cuda_objection(q, two_multimem.algorithm, NULL))
        return (struct symm_selection){two_multimem.algorithm, two_multimem.reason,
                                       false};
    if (is_pair(q))
        return FIRST_OF(q, lamport, inplace, staged);
    if (q->bytes >= (few_rounds ? FEW_ROUNDS_BYTES + 1 : PUSH_BYTES))
        return FIRST_OF(q, inplace, two_pull, two_push, staged);
    if (q->bytes < two_shot_from(q->size) && common == few_rounds)
        return FIRST_OF(q, lamport, q->bytes <= LL_BYTES ? ll : two_push, two_push,
                        inplace, staged);
    return FIRST_OF(q, two_push, inplace, lamport, ll, staged);
}

/* Whether the bytes that a rank receives from all senders are few enough for lines. */
static bool few(const struct symm_select_query *q)
{
    size_t senders =
        q->kind == SYMM_KIND_BROADCAST || q->size < 2 ? 1 : (size_t)q->size - 1;

    return q->bytes <= MOVE_BYTES / senders;
}

/* For collectives that only move data: lines while the bytes are few, then stores into outputs. */
static struct symm_selection choose_move(const struct symm_select_query *q)
{
    if (few(q))
        return FIRST_OF(q, ll, into, pull, staged);
    if (q->kind != SYMM_KIND_BROADCAST)
        return FIRST_OF(q, gather_multimem, into, pull, staged, ll);
    if (q->bytes >= RELAY_BYTES && q->size > 2)
        return FIRST_OF(q, relay, staged);
    return FIRST_OF(q, staged, into);
}

static struct symm_selection choose_reduce_scatter(const struct symm_select_query *q)
{
    /* A pull moves as few bytes, but waits for the peer before and after. */
    const bool lines = q->bytes <= SCATTER_BYTES || is_pair(q);

    if (lines && !symm__cuda_objection(q, lamport.algorithm, NULL))
        return (struct symm_selection){lamport.algorithm, lamport.reason, false};
    if (few(q))
        return FIRST_OF(q, ll, pull, staged);
    return FIRST_OF(q, pull, staged, ll);
}

static struct symm_selection choose_barrier(const struct symm_select_query *q)
{
    return FIRST_OF(q, {SYMM_ALGORITHM_COPY_IN, "one signal round"},
                    {SYMM_ALGORITHM_LL_PUSH, "one signal round"},
                    {SYMM_ALGORITHM_ONE_SHOT_PULL, "one signal round"});
}

struct symm_selection symm__cuda_choose(const struct symm_select_query *q)
{
    switch (q->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return choose_all_reduce(q);
    case SYMM_KIND_BARRIER:
        return choose_barrier(q);
    case SYMM_KIND_REDUCE_SCATTER:
        return choose_reduce_scatter(q);
    default:
        return choose_move(q);
    }
}

/* ---- all_reduce_norm ---------------------------------------------------------------- */

/* The most rows that a launch takes, of parts that are as equal as can be; 0: not even one. */
static uint64_t rows_of_launch(const struct symm_select_query *q,
                               enum symm_algorithm algorithm)
{
    const size_t row = q->hidden * symm_dtype_size(q->dtype);
    struct symm_select_query part = *q;

    while (part.rows > 0 && !has_kernel(&part, algorithm, NULL)) {
        part.rows = part.rows > 1 ? (part.rows + 1) / 2 : 0;
        part.bytes = part.rows * row;
    }
    return part.rows;
}

bool symm__cuda_choose_norm(const struct symm_select_query *q,
                            struct symm_selection *answer, uint64_t *part)
{
    const bool one_shot = q->size == 2 || q->bytes < two_shot_from(q->size);
    const bool few = q->size == 2 || q->partial || q->bytes <= FEW_ROUNDS_BYTES;
    enum symm_algorithm algorithm =
        one_shot ? SYMM_ALGORITHM_LAMPORT_PUSH : SYMM_ALGORITHM_TWO_SHOT_PUSH;

    if (q->rows == 0 || (!q->forced && !few) ||
        (q->forced && symm_algorithm_parse(q->forced, &algorithm) != SYMM_OK))
        return false;
    *answer = (struct symm_selection){
        algorithm,
        q->forced  ? "the call names it, and one kernel sums and does the rest"
        : one_shot ? "one hop, and the kernel that sums does the rest"
                   : "two hops move fewer bytes, and one kernel does the rest",
        false};
    *part = rows_of_launch(q, algorithm);
    return *part > 0;
}

bool symm__cuda_norm_fits(const struct symm_select_query *q, uint64_t part)
{
    struct symm_select_query most = *q;
    uint64_t rows = 0;
    struct symm_selection answer;

    most.scratch = most_scratch(q->size);
    return symm__cuda_choose_norm(&most, &answer, &rows) &&
           (q->rows - 1) / part <= (q->rows - 1) / rows + MORE_LAUNCHES;
}

uint32_t symm__cuda_barriers(enum symm_kind kind, int size,
                             enum symm_algorithm algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL: /* a broadcast's root writes before it arrives */
        return kind == SYMM_KIND_BROADCAST ? SYMM_BARRIER_EXIT
                                           : SYMM_BARRIER_ENTRY | SYMM_BARRIER_EXIT;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return SYMM_BARRIER_ENTRY;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE: /* to one receiver: move_push.cu */
        return kind == SYMM_KIND_BROADCAST && size <= 2
                   ? SYMM_BARRIER_ENTRY
                   : SYMM_BARRIER_ENTRY | SYMM_BARRIER_EXIT;
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return SYMM_BARRIER_ENTRY | SYMM_BARRIER_EXIT;
    default:
        return 0;
    }
}
