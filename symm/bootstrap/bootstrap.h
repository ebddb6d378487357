/* SPDX-License-Identifier: MIT */
/*
 * bootstrap.h - how the ranks of one host find each other, once, at start.
 *
 * Every way ends the same: each rank holds one connected SOCK_SEQPACKET socket
 * (CLOEXEC, non-blocking) to each other rank. What follows (descriptors, manifests) goes
 * over these sockets (exchange.h) and needs no name in any file system.
 *
 * Ways: by the job's key (a socket in a 0700 directory of the user), by the caller's own
 * allgather or symmrun's store (which agree on a fresh key, then connect by it), or as threads
 * of one process (socket pairs).
 *
 * Ranks of a job over several hosts connect likewise on each host; where each host's relay
 * listens goes through the allgather (hosts.h).
 *
 * Guarantees: bounded by `timeout`; a late or missing rank is named on every rank that
 * did arrive; nothing is left in the file system on success, error or a kill after the bootstrap.
 * Refuses: other users, wrong secret, rank or size, duplicate ranks, damaged messages.
 */
#ifndef SYMM_BOOTSTRAP_BOOTSTRAP_H
#define SYMM_BOOTSTRAP_BOOTSTRAP_H

#include <assert.h>

#include "bootstrap/hosts.h"
#include "bootstrap/job.h"
#include "net/seqpacket.h"

struct symm_bootstrap_run {
    int rank, size;           /* size >= 1 */
    /* [size], where `rank` is a place on this host: the job's rank at each place, or -1 for one
     * that is not known before; all are on success. NULL: places are ranks. */
    int *ranks;
    const char *key;          /* the job's key: borrows */
    const uint8_t *secret;    /* SYMM_SECRET_BYTES or NULL: borrows */
    uint64_t series;          /* by rank 0's port: as in struct symm_job */
    double timeout;           /* seconds from the call */
    struct symm_world *world; /* gets who is where: new */
};

/*
 * peer_fd[size]: gets one socket to each other rank of this host, else -1; returns new.
 * SYMM_ERR_TIMEOUT names the missing ranks, SYMM_ERR_REFUSED the refused rank and the reason.
 */
symm_status symm__bootstrap_local(const struct symm_bootstrap_run *run,
                                  int *peer_fd) SYMM_MUST_CHECK;
/* The same without a look at hosts: for ranks that are known to be on one. run->world: unused. */
symm_status symm__bootstrap_near(const struct symm_bootstrap_run *run,
                                 int *peer_fd) SYMM_MUST_CHECK;
/* The caller's allgather carries a random key and a secret made by rank 0, then as above. */
symm_status symm__bootstrap_given(const struct symm_bootstrap_run *run,
                                  const symm_bootstrap *bootstrap,
                                  int *peer_fd) SYMM_MUST_CHECK;
/* The same by symmrun's store at `address` (host:port); run->secret is required. */
symm_status symm__bootstrap_store(const struct symm_bootstrap_run *run,
                                  const char *address, int *peer_fd) SYMM_MUST_CHECK;
/*
 * The same by rank 0's host, which listens at `root` (host:port; tree.h); run->secret is required.
 * local_rank, local_size: among the ranks that the launcher started on this host, which get
 * sockets to each other first; node: its name for them, or "".
 */
symm_status symm__bootstrap_tree(const struct symm_bootstrap_run *run, const char *root,
                                 const char *node, int local_rank, int local_size,
                                 int *peer_fd) SYMM_MUST_CHECK;
/*
 * Ranks that are threads: all sockets at once. fds[i * size + j] is rank i's socket to j, -1
 * for i == j; returns new (malloc).
 */
symm_status symm__bootstrap_pairs(int size, int **fds) SYMM_MUST_CHECK;

/* ---- By key: messages between rank 0 (the root) and the other, joining ranks -------------- */

/*
 * A packet holds one message of fixed size. A joining rank sends HELLO, and gets WELCOME or
 * REFUSED (with a reason). When all have joined the root sends PEERS: sockets to the other
 * joining ranks, in one or more packets. A rank that has all of them, or has failed, sends
 * DONE; after DONE of all the root sends GO, and from then on the connection is the socket
 * between that rank and rank 0. Whatever fails, the root sends ABORT with the sentence to all
 * ranks. A rank whose deadline passes sends GIVE_UP, so that the root can report to all ranks
 * which are missing.
 *
 * A joining rank's random nonce is part of all messages from and to it.
 */
#define SYMM_BOOTSTRAP_MAGIC    0x4d4d5953u /* "SYMM" */
#define SYMM_BOOTSTRAP_PROTOCOL 1u
#define SYMM_BOOTSTRAP_LIBRARY                                                         \
    ((uint32_t)SYMM_VERSION_MAJOR << 16 | (uint32_t)SYMM_VERSION_MINOR << 8 |          \
     (uint32_t)SYMM_VERSION_PATCH)

enum symm_bootstrap_kind {
    SYMM_BOOTSTRAP_HELLO = 1,
    SYMM_BOOTSTRAP_WELCOME,
    SYMM_BOOTSTRAP_REFUSED,
    SYMM_BOOTSTRAP_PEERS,
    SYMM_BOOTSTRAP_DONE,
    SYMM_BOOTSTRAP_GO,
    SYMM_BOOTSTRAP_GIVE_UP,
    SYMM_BOOTSTRAP_ABORT
};

struct symm_bootstrap_message {
    uint32_t magic;
    uint16_t protocol;
    uint16_t kind;
    uint32_t library;    /* HELLO: version as 0xMMmmpp */
    int32_t rank;        /* of the joining rank */
    int32_t size;        /* of the job */
    int32_t status;      /* DONE, ABORT, REFUSED: a symm_status */
    uint64_t nonce;      /* of the joining rank */
    int32_t pid;         /* HELLO: as the joining rank sees itself; for errors only */
    /* PEERS: the rank that the first descriptor leads to; HELLO, WELCOME: the sender's rank in the
     * job */
    int32_t first;
    int32_t count;       /* PEERS: how many ranks from `first` on */
    uint32_t has_secret; /* HELLO: 1 if secret is set */
    uint8_t secret[SYMM_SECRET_BYTES];
    union {
        char text[448];                    /* DONE, ABORT, REFUSED: a sentence */
        int32_t ranks[SYMM_BOOTSTRAP_MAX]; /* GO: the job's rank at each place */
    };
};
static_assert(sizeof(struct symm_bootstrap_message) == 512,
              "the packet's layout is fixed");

/* A message with the fields that all have; the rest is zero. */
struct symm_bootstrap_message
symm__bootstrap_message(enum symm_bootstrap_kind kind,
                        const struct symm_bootstrap_run *run, int rank, uint64_t nonce);
enum symm_seqpacket symm__bootstrap_send(int fd,
                                         const struct symm_bootstrap_message *message,
                                         const int *fds, int fds_count, double until);
/* The message's text is ended. CUT: what came is no message of this protocol. */
enum symm_seqpacket symm__bootstrap_recv(int fd, struct symm_bootstrap_message *message,
                                         int *fds, int fds_max, int *fds_count,
                                         double until);

/* The job's rank at a place, as far as the run knows it; else the place. */
int symm__bootstrap_rank(const struct symm_bootstrap_run *run, int place);
/* Keeps what a peer says of the rank at `place`, unless it is known or is no rank of a job. */
void symm__bootstrap_learn(const struct symm_bootstrap_run *run, int place,
                           int32_t rank);
/* "rank 4", or "local rank 0" if only the place is known. Returns `text`. */
#define SYMM_BOOTSTRAP_WHO_BYTES 24
#define SYMM_BOOTSTRAP_WHO(run, place)                                                 \
    symm__bootstrap_name(run, place, (char[SYMM_BOOTSTRAP_WHO_BYTES]){0})
const char *symm__bootstrap_name(const struct symm_bootstrap_run *run, int place,
                                 char *text);
/* The same of several places, as symm__ranks_text; `places` becomes what is named. */
void symm__bootstrap_names(const struct symm_bootstrap_run *run, int *places, int count,
                           char *text, size_t bytes);

/* root.c, join.c: the two sides of symm__bootstrap_local; size >= 2. `until` is a point in time. */
struct symm_socket_path;
symm_status symm__bootstrap_root(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd) SYMM_MUST_CHECK;
symm_status symm__bootstrap_join(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd) SYMM_MUST_CHECK;

#endif
