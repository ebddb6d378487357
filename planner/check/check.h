/* SPDX-License-Identifier: MIT */
/*
 * check.h - what the files of the plan checker share. It uses no code of the planner: plan.h's
 * structs, and symm/util.
 */
#ifndef SYMM_PLANNER_CHECK_CHECK_H
#define SYMM_PLANNER_CHECK_CHECK_H

#include "symm/plan.h"
#include "util/pool.h"

/* Which members of a group's list touch the copy that lies on `owner`. */
enum check_who {
    CHECK_SELF,    /* the owner */
    CHECK_EVERY,   /* all members */
    CHECK_READERS, /* all members if the owner is the root, else the owner */
    CHECK_ROOT,    /* the root */
    CHECK_SENDER,  /* the member that puts to the owner */
};

/* Points of an op, in this order; docs/planner.md. */
enum check_point {
    CHECK_START,
    CHECK_PASS,
    CHECK_READ,
    CHECK_MIDDLE,
    CHECK_BODY,
    CHECK_END,
    CHECK_REST, /* all_reduce_norm, after the exit barrier of the sum; accesses begin there */
};

struct check_access {
    int buffer;
    bool write;
    enum check_who who;
    enum check_point from, to;
    int op;       /* position of its op in the order of issue */
    size_t bytes; /* of the buffer, from its first one on */
    int chain[2]; /* by period, once the chains are listed */
    int seat;       /* its place in its buffer's list */
    int last_write; /* the place of the last write before it, around the circle; -1: none */
};

struct check_op {
    const symm_program_op *op;
    const symm_plan_op *planned; /* NULL for local ops, waits and depends */
    int listed;                  /* its index in the program */
    int wait;                    /* put: position of its wait, or -1 */
    int put;                     /* wait: position of its put */
    int after;                   /* depend: position of the op it waits for, or -1 */
    bool entry, exit, inside;    /* barriers: the plan's two, the algorithm's own */
    bool pushed;                 /* none completes before the senders have started */
    struct check_access *accesses;
    int access_count;
    int own[2]; /* by period: its lane on the owner, if it frees buffers */
};

/* The ops of a lane on the ranks that stand in a relation to an owner. */
struct check_chain {
    enum check_who who;
    int partition, parameter; /* the parameter: a root or a shift, else 0 */
    int lane;
    bool touched; /* some access lies on it */
};

/* On this chain the accesses to a buffer are over at this moment. */
struct check_last {
    int chain;
    uint32_t at;
};

/* A buffer, and its life from the op that begins it. */
struct check_life {
    struct check_access **touch; /* its accesses, as issued */
    int touch_count;
    struct check_access *begin; /* the write that renews it, or NULL */
    bool always;                /* it may not share bytes with any other */
    bool first;                 /* no buffer may precede it in its bytes */
    int turn;
    struct check_last *last;
    int last_count;
    struct check_op *freed_by; /* or NULL */
    /* By period: whether freed_by ends in it after this life, on every owner, and before
     * the first write of each neighbour checked so far. */
    bool freed[2];
};

struct check {
    struct pool pool; /* of all lists */
    const symm_program *program;
    const symm_plan *plan;
    symm_plan_report *report;
    symm_status status;   /* why the check could not be made */
    struct check_op *ops; /* in the program's order of issue; `position` indexes this */
    int op_count;
    struct check_access *accesses;
    int access_count;
    int *places; /* [group][rank]: index of the rank in the group's `ranks` */
    int halves;  /* 2 if an op starts early */
    int lanes;   /* streams x halves */
    int *seats;  /* by position: which one of its stream's ops, depends not counted */
    int stream_seats[SYMM_PROGRAM_MAX_STREAMS];
    struct check_life *lives; /* by buffer */
    struct check_chain *chains;
    int chain_count, chain_room;
    /* [(buffer x 2 + period) x chain_count]: on each chain, the last moment that is over for
     * certain when the op that begins the buffer's life in this period first writes to it. */
    uint32_t *begins;
};

struct check_ranks {
    const int *ranks;
    int count;
};

/* The list of the op's group that the rank is in. */
struct check_ranks symm__check_list(const struct check *c, int partition, int rank);
/* `parameter` as in struct check_chain. */
struct check_ranks symm__check_related(const struct check *c, enum check_who who,
                                       int partition, int parameter, int owner);
struct check_ranks symm__check_accessors(const struct check *c,
                                         const struct check_access *access, int owner);
uint32_t symm__check_moment(const struct check *c, int position, int period,
                            enum check_point point);
int symm__check_lane(const struct check *c, int position, int period);
/* All accesses to a are over when b's life begins, `period` periods later. */
bool symm__check_before(const struct check *c, int a, int b, int period);

/* Sets the report's sentence; returns false. */
bool symm__check_refuse(struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same after the op's name, "op 3 (all_reduce tp0)". */
bool symm__check_refuse_op(struct check *c, const struct check_op *op,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool symm__check_nomem(struct check *c); /* false, with the status set */
/* "op 3 (all_reduce tp0)"; returns text. */
const char *symm__check_name(const struct check_op *op, char *text, size_t bytes);

/* The parts of the proof; false: refused, or not made (c->status). */
bool symm__check_fit(struct check *c);         /* fit.c, fills ops and accesses */
bool symm__check_lives(struct check *c);       /* lives.c, fills lives and chains */
bool symm__check_order(struct check *c);       /* order.c, fills begins */
bool symm__check_certificate(struct check *c); /* certificate.c */
bool symm__check_figures(struct check *c);     /* figures.c */

/* frees.c. Before the order is played: lists what the plan frees. */
bool symm__check_frees_listed(struct check *c);
/* At the end of the op at `position`; clocks: each rank's. */
void symm__check_frees_ended(struct check *c, int position, int period,
                             const uint32_t *clocks);
/* For each pair of neighbours; then, after all pairs, the verdict. */
void symm__check_frees_before(struct check *c, int before, int after, bool next);
bool symm__check_frees(struct check *c);

#endif
