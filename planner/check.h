/* SPDX-License-Identifier: MIT */
/*
 * check.h - what the files of the plan checker share. It uses the structs of plan.h and
 * nothing else of the planner.
 */
#ifndef SYMM_PLANNER_CHECK_H
#define SYMM_PLANNER_CHECK_H

#include "symm/plan.h"

/* Which members of a group's list touch the copy that lies on `owner`. */
enum check_who {
    CHECK_SELF,      /* the owner */
    CHECK_EVERY,     /* all members */
    CHECK_ROOT,      /* the root, its own copy; other copies are left alone */
    CHECK_FROM_ROOT, /* all members, the root's copy; other copies are left alone */
    CHECK_BY_ROOT,   /* the root, everybody's copy */
    CHECK_SENDER,    /* the member that puts to the owner */
};

struct check_access {
    int buffer;
    bool write;
    bool ends_inside; /* over at the algorithm's own barrier, else with the op's body */
    enum check_who who;
    size_t low, high; /* bytes of the arena, half-open */
};

struct check_op {
    const symm_program_op *op;
    const symm_plan_op *planned; /* NULL for local ops, waits and depends */
    int listed;                  /* its index in the program */
    int wait;                    /* put: position of its wait, or -1 */
    bool entry, exit, inside;    /* barriers: the plan's two, the algorithm's own */
    bool pushed;                 /* none completes before the senders have started */
    struct check_access *accesses;
    int access_count;
};

struct check {
    const symm_program *program;
    const symm_plan *plan;
    symm_plan_report *report;
    symm_status status;   /* why the check could not be made */
    struct check_op *ops; /* in the program's order of issue; `position` indexes this */
    int op_count;
    struct check_access *accesses;
    int *places; /* [group][rank]: index of the rank in the group's `ranks` */
};

struct check_ranks {
    const int *ranks;
    int count;
};

/* The list of the op's group that the rank is in. */
struct check_ranks symm__check_list(const struct check *c, const struct check_op *op,
                                    int rank);
struct check_ranks symm__check_accessors(const struct check *c,
                                         const struct check_op *op, enum check_who who,
                                         int owner);
/* The rank that rank's put goes to. */
int symm__check_receiver(const struct check *c, const struct check_op *op, int rank);
bool symm__check_conflict(const struct check_access *a, const struct check_access *b);

/* Sets the report's sentence; returns false. */
bool symm__check_refuse(struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool symm__check_nomem(struct check *c); /* false, with the status set */
/* "op 3 (all_reduce tp0)"; returns text. */
const char *symm__check_name(const struct check_op *op, char *text, size_t bytes);

/* The parts of the proof; false: refused, or not made (c->status). */
bool symm__check_fit(struct check *c);         /* check_fit.c, fills ops and accesses */
bool symm__check_values(struct check *c);      /* check.c */
bool symm__check_order(struct check *c);       /* check_order.c */
bool symm__check_certificate(struct check *c); /* check_certificate.c */

#endif
