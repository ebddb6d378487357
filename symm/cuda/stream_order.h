/* SPDX-License-Identifier: MIT */
/*
 * stream_order.h - what the last call on a stream was: which team made it, so that a call of
 * another team after a failed call does not return SYMM_OK; and whether its kernel lets the next
 * one become resident while it may still wait for a peer.
 *
 * A team's kernels read marks of their own team only. Where the previous call on the stream
 * is another team's, the launch gets that team's state (symm_cuda_args.before) and the kernel
 * reads its marks, too; on a mark it makes its own team fail. So marks pass from call to call
 * along the stream, without the host. A failure that this rank knows when a call is queued is
 * not passed on: an API call reports it, and the stream serves other teams.
 *
 * Calls of one stream are ordered by their caller. Streams are known by their ids; in a capture by
 * the capture's id and the stream, so calls of one stream in a graph follow each other and no
 * others. Under a capture's own id the map has the stream of the capture's latest call. Drivers
 * before 12.3 do not tell that id: there captured calls follow none. A call between begin and end
 * keeps the other team's state allocated.
 *
 * A wait for a signal lets the next kernel become resident at once, so one of several blocks may
 * not be its dependent (may_depend in launch.c), and starts 1 us late. Where such kernels came
 * behind the last waits on the stream, a wait lets the next one become resident when the signal has
 * come: that may be of any size, and one block starts 0.13 us later than with a wait that triggers
 * at once. This is kept for each handle of a stream, by a hash: a guess that is wrong costs time
 * alone.
 *
 * Cost: a lock and a table look-up for each call; a call that follows another team's reads
 * two words more.
 */
#ifndef SYMM_CUDA_STREAM_ORDER_H
#define SYMM_CUDA_STREAM_ORDER_H

#include "cuda/launcher.h"

/* The stream's last kernel of the library, and when the next one becomes resident if it is a
 * dependent. */
enum symm_cuda_front {
    SYMM_CUDA_FRONT_ENDS, /* when that one no longer waits for a peer, or there is none */
    SYMM_CUDA_FRONT_EARLY, /* SYMM_CUDA_EARLY: at once */
    SYMM_CUDA_FRONT_RELAYS, /* SYMM_CUDA_RELAY: while the early one in front of it may wait */
    SYMM_CUDA_FRONT_UNKNOWN /* maybe at once */
};

struct symm_cuda_follow {
    struct symm_cuda_launcher *launcher;
    struct symm_cuda_team *before; /* the other team; NULL: none */
    void *stream;
    uint64_t id;      /* of the stream */
    uint64_t capture; /* number of the capture that the stream is in; 0: none */
    bool joined; /* there an event has put others' work beside the stream's in front */
    uint64_t mark,
        last; /* of this call, and of the stream's last one: see stream_order.c */
    enum symm_cuda_front front; /* symm__cuda_start replaces it */
    bool
        claimed; /* the kernel's channel has a claim for it, or it needs none (budget.h) */
    bool captured;           /* relay: the stream is captured into a graph */
    bool waits, awaited;     /* this call is a wait for a signal; the one in front is */
};

/* Before a launch on the stream: fills args->before. mark: the number of the failed word that the
 * call has. channel: the stream's, or NULL; it knows whether the stream is captured from its last
 * collective, so other calls that are captured give NULL. SYMM_ERR_NOMEM. */
symm_status symm__cuda_follow_begin(symm_team *team,
                                    const struct symm_team_channel *channel,
                                    void *stream, uint32_t mark,
                                    struct symm_cuda_args *args,
                                    struct symm_cuda_follow *follow) SYMM_MUST_CHECK;
/* After the launch. launched: the call is now the stream's last one. */
void symm__cuda_follow_end(const struct symm_cuda_follow *follow, bool launched);
/* Where launcher->wide keeps what is known of the stream's waits; streams may share a place. */
size_t symm__cuda_hint_of(const void *stream);
/* Whether a wait for a signal should trigger at once (SYMM_CUDA_EARLY). */
bool symm__cuda_wait_early(const struct symm_cuda_launcher *launcher,
                           const void *stream);
/* narrow: the kernel may be resident behind one that waits. */
void symm__cuda_follow_learn(const struct symm_cuda_follow *follow, bool narrow);
/* For operations that are no kernels of the library (copy engine, an engine's): if the call
 * before is another team's, this puts a kernel on the stream that reads its marks. own: the
 * team that runs the kernels in front of the operation, and on whose marks those behind look; it
 * fails with the team. site: the operation's, for a sentence. */
symm_status symm__cuda_follow_relay(symm_team *team, symm_team *own, const char *site,
                                    void *stream,
                                    struct symm_cuda_follow *follow) SYMM_MUST_CHECK;
/* To be called when a team ends: afterwards no call follows the team's, and no launch reads its
 * state. */
void symm__cuda_follow_forget(struct symm_cuda_team *cuda);

#endif
