/* SPDX-License-Identifier: MIT */
/*
 * order.h - what happens before what in a program under given algorithms and barriers.
 *
 * Guarantees: an order that is claimed holds in every execution; nothing is claimed across
 * more than one period, and none is needed (docs/planner.md). Vector clocks: for a moment
 * on a rank, how far each stream of each rank has come for certain. Ranks that a symmetry
 * of the groups maps onto each other are examined once.
 */
#ifndef SYMM_PLANNER_ORDER_H
#define SYMM_PLANNER_ORDER_H

#include "barrier.h"

/* What brought in the knowledge of how far a stream has come. */
enum via { VIA_STREAM, VIA_DEPEND, VIA_ENTRY, VIA_EXIT, VIA_COMPLETION, VIA_WAIT };

struct mark {
    uint32_t at;  /* a moment, see symm__order_moment; 0: none */
    uint32_t via; /* enum via | op << 3 */
};

/* The last accesses to a rank's copy of a buffer: on this chain up to this moment. */
struct last {
    int chain;
    uint32_t at;
};

struct order {
    const symm_program *program;
    const symm_plan_algorithm *algorithms; /* by op; put for puts */
    bool *entry, *exit;                    /* by op: barriers that are set */
    /* Fixed by the program: */
    struct pool pool;
    int *rank_of_op;   /* place of an op in program->order */
    int *seat, *seats; /* of an op in its stream; ops of a stream; no depends */
    int *streams_used, stream_count; /* dense numbers of streams that have ops */
    int halves;                      /* 2 if any op starts early, else 1 */
    int chains;                      /* world x stream_count x halves */
    int *list_of, *place_of;         /* [group x world + rank] */
    int *depends_on;          /* by op: the op whose end a depend waits for, or -1 */
    bool *kept;               /* by op: its clocks are kept for a later depend */
    bool *waited;             /* by op: a put that some op waits for */
    int *owners, owner_count; /* the ranks to examine */
    /* Fixed by the algorithms: */
    struct pool access_pool;
    struct access *accesses;
    int *access_start;        /* [op + 1] */
    int *touch, *touch_start; /* [buffer + 1]: its accesses in the order of issue */
    int *seat_of_access;      /* where an access stands in its buffer's touch list */
    int *first_touch;         /* by buffer: index in touch of what renews it, or -1 */
    int *first_write;         /* the same, or else its first write; -1: none */
    /* Found by a run: by buffer, period, owner: the clock before first_write. */
    struct mark *before_first;
};

/* Borrows program (finished), which must outlive it. */
symm_status symm__order_init(struct order *order,
                             const symm_program *program) SYMM_MUST_CHECK;
void symm__order_finish(struct order *order);
/* After order->algorithms was set; entry and exit are cleared. */
symm_status symm__order_set(struct order *order,
                            const symm_plan_algorithm *algorithms) SYMM_MUST_CHECK;
/*
 * Sets the barriers that the program needs by itself, whatever memory its buffers share, in
 * addition to those that are set; then fills before_first. SYMM_ERR_INVALID: two accesses
 * to one buffer that no barrier orders.
 */
symm_status symm__order_run(struct order *order) SYMM_MUST_CHECK;

/*
 * Plays the program once more, after a run, and tells of each op's end in both periods:
 * clocks[rank] is what is certain on that rank once its stream has come so far. false: no
 * memory.
 */
typedef bool (*symm__order_watch_fn)(void *arg, int op, int period,
                                     const struct mark *const *clocks);
symm_status symm__order_watch(struct order *order, symm__order_watch_fn watch,
                              void *arg) SYMM_MUST_CHECK;

uint32_t symm__order_moment(const struct order *order, int op, int period,
                            enum point point);
int symm__order_chain(const struct order *order, int rank, int op, int period);
/* The ranks that make an access to owner's copy; borrowed. */
const int *symm__order_actors(const struct order *order, const struct access *access,
                              int owner, int *count);
/* Clock before first_write of a buffer, that of the worst actor in each chain. */
const struct mark *symm__order_first(const struct order *order, int buffer, int period,
                                     int owner_index);
/* "write", or a site: the name of an access in certificates and complaints. */
const char *symm__access_label(const symm_program *program,
                               const struct access *access);

/* Ranks to examine: one of each set that symmetries of the groups map onto each other. */
int symm__order_owners(const symm_program *program, int *owners);

#endif
