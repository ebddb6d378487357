/* SPDX-License-Identifier: MIT */
/*
 * launch.h - all that the runtime sees of the kernels: their state, their arguments, and one
 * table of host kernels. A kernel runs one call of one rank on one channel of a team.
 *
 * A kernel allocates nothing, makes no system call and reads no clock while its waits end within
 * `spin` polls. For a longer wait it calls state->slow_wait, which returns when the word has the
 * awaited value or with the error that ends the call. After an error the channel is out of step
 * with its peers: the team has failed.
 */
#ifndef SYMM_KERNELS_LAUNCH_H
#define SYMM_KERNELS_LAUNCH_H

#include "kernels/reduce/reduce.h"
#include "symm/device.h"
#include "symm/norm.h"
#include "symm/symm.h"

enum symm_kind {
    SYMM_KIND_BARRIER,
#define SYMM_KIND_ENUM(id, value, name) SYMM_KIND_##id = value,
    SYMM_COLLECTIVE_MAP(SYMM_KIND_ENUM)
#undef SYMM_KIND_ENUM
        SYMM_KIND_ALL_REDUCE_NORM, /* symm/norm.h */
    SYMM_KIND_COUNT
};

/* "all_reduce" */
static inline const char *symm__kind_name(enum symm_kind kind)
{
    static const char *const names[SYMM_KIND_COUNT] = {
        [SYMM_KIND_BARRIER] = "barrier",
#define SYMM_KIND_NAME(id, value, name) [SYMM_KIND_##id] = name,
        SYMM_COLLECTIVE_MAP(SYMM_KIND_NAME)
#undef SYMM_KIND_NAME
            [SYMM_KIND_ALL_REDUCE_NORM] = "all_reduce_norm"};

    return (unsigned)kind < SYMM_KIND_COUNT ? names[kind] : "unknown";
}

/* Whether the kind combines the ranks' elements, so that dtype and op count. */
static inline bool symm__kind_reduces(enum symm_kind kind)
{
    return kind == SYMM_KIND_ALL_REDUCE || kind == SYMM_KIND_REDUCE_SCATTER ||
           kind == SYMM_KIND_ALL_REDUCE_NORM;
}

/* The collective that moves the data: an all_reduce_norm is an all_reduce and work on its
 * result that concerns one rank alone. */
static inline enum symm_kind symm__kind_moves(enum symm_kind kind)
{
    return kind == SYMM_KIND_ALL_REDUCE_NORM ? SYMM_KIND_ALL_REDUCE : kind;
}

/* The barriers of a call that a plan has placed; any other call has both. */
#define SYMM_BARRIER_ENTRY 1u
#define SYMM_BARRIER_EXIT  2u

struct symm_state;
struct symm_args;
typedef symm_status (*symm_kernel_fn)(struct symm_state *state,
                                      const struct symm_args *args);

/* One call's arguments. Offsets count from a rank's heap base; valid where the kernel reads
 * them, that is where the algorithm uses symmetric memory. */
struct symm_args {
    struct symm_site site; /* what peers may read; site.tag is the words' high half */
    const void *in;        /* own address */
    void *out;             /* own address */
    size_t in_offset, out_offset;
    /* peer p's in_offset is in_offset + (p - rank) * in_step: in-place gathers */
    size_t in_step;
    size_t count;   /* elements, as the call counts them */
    size_t element; /* bytes */
    size_t bytes;   /* count x element */
    symm_reduce_fn reduce;
    int root;
    uint32_t barriers;   /* symm__host_planned: SYMM_BARRIER_... that it keeps */
    symm_kernel_fn body; /* symm__host_planned: what runs between them */
    symm_norm norm;      /* all_reduce_norm; else rows and hidden are 0 */
    symm_kernel_fn sum;  /* all_reduce_norm: the all_reduce into `out` */
};

/* A channel of a team as one rank sees it. Indices are team ranks. */
struct symm_state {
    uint32_t epoch; /* of the last round this rank has arrived at */
    uint32_t spin;  /* polls before slow_wait is called */
    int rank, size;
    uint32_t shown[2]; /* tag of the site in own slot 0, 1 */
    struct symm_slot **slots; /* [size]: two slots of each rank */
    char **base;              /* [size]: heap of each rank */
    const uint32_t *sleepers; /* on own slots: a hint */
    symm_status (*slow_wait)(struct symm_state *state, const struct symm_args *args,
                             int peer);
    void (*wake)(struct symm_state *state, struct symm_slot *own);
    void *owner; /* for slow_wait and wake */
};

/* NULL: that algorithm does not do that collective. */
symm_kernel_fn symm__host_kernel(enum symm_kind kind, enum symm_algorithm algorithm,
                                 size_t bytes);
/*
 * A call at a planned site: the entry barrier if args->barriers has it, args->body, the exit
 * barrier likewise. Unlike the kernels that overlap a barrier with their copies, it touches
 * nothing before the last peer has arrived at an entry barrier: what else lies there may be
 * in use by a peer until then.
 */
symm_status symm__host_planned(struct symm_state *state, const struct symm_args *args);
/* An all_reduce_norm: args->sum, then the rest. */
symm_status symm__host_all_reduce_norm(struct symm_state *state,
                                       const struct symm_args *args);
/* What the algorithm does between its barriers, given that it has a kernel for it. */
symm_kernel_fn symm__host_body(enum symm_kind kind, enum symm_algorithm algorithm,
                               size_t bytes);

#endif
