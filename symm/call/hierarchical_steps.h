/* SPDX-License-Identifier: MIT */
/*
 * hierarchical_steps.h - a step of a hierarchical team's call: kernels over the ranks of this host,
 * or the engine over ranks of several.
 *
 * On the host backend a step of the engine is announced to its ranks on other hosts by the call's
 * tag, so ranks that make different calls find that out. (On CUDA only ranks of one host find it
 * out, by their kernels.) A channel uses the local team's channel of the same number, which no
 * other channel uses.
 */
#ifndef SYMM_CALL_HIERARCHICAL_STEPS_H
#define SYMM_CALL_HIERARCHICAL_STEPS_H

#include "call/hierarchical_strategy.h"

/* A call whose steps are run or queued. */
struct symm_hierarchical_run {
    symm_team *team;
    struct symm_hierarchy *hierarchy;
    struct symm_team_engine *engine;
    struct symm_team_channel *channel;
    const struct symm_args *args;
    size_t element;
    double until;
};

/* The communicator of this rank's rail. */
struct symm_engine_comm *symm__step_rail(const struct symm_hierarchical_run *run);
/* The call's type and operation with other arrays. */
struct symm_engine_request symm__step_request(const struct symm_hierarchical_run *run,
                                              enum symm_kind kind, const void *in,
                                              void *out, size_t count, int root);
/* Kernels of the ranks of this host, on the channel's stream. */
symm_status symm__step_on_host(struct symm_hierarchical_run *run, enum symm_kind kind,
                               const void *in, void *out, size_t count,
                               int root) SYMM_MUST_CHECK;
/* Checks that all ranks of the communicator make this call: on the host backend. ranks: its team
 * ranks, NULL: all. */
symm_status symm__step_announce(struct symm_hierarchical_run *run,
                                struct symm_engine_comm *comm, const int *ranks,
                                int count) SYMM_MUST_CHECK;
symm_status symm__step_engine(struct symm_hierarchical_run *run,
                              struct symm_engine_comm *comm,
                              const struct symm_engine_request *request,
                              void *stream) SYMM_MUST_CHECK;
/* The engine's step among the ranks of the rail, announced; on the channel's stream, or on a device
 * beside it. */
symm_status symm__step_between(struct symm_hierarchical_run *run, enum symm_kind kind,
                               const void *in, void *out, size_t count, int root,
                               void *stream) SYMM_MUST_CHECK;

/* collective.c: one collective of the local team, on its channel of the same number. */
symm_status symm__collective_run(struct symm_team_channel *channel,
                                 const struct symm_engine_request *request,
                                 const char *site, double timeout) SYMM_MUST_CHECK;

#endif
