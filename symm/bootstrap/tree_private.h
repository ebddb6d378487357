/* SPDX-License-Identifier: MIT */
/* tree_private.h - what tree_join.c and tree_above.c share: the state of one rank that joins. */
#ifndef SYMM_BOOTSTRAP_TREE_PRIVATE_H
#define SYMM_BOOTSTRAP_TREE_PRIVATE_H

#include "bootstrap/hosts.h"
#include "bootstrap/tree.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "relay/link.h"
#include "relay/tree.h"

#define TREE_MAGIC    0x53594d4au /* "SYMJ" */
#define TREE_VERSION  3u
#define RETRY_SECONDS 0.01 /* before the next try to connect; doubles */

/* What JOIN begins with; the ranks, and their entries, follow. */
struct join_head {
    int32_t size, count;
    uint32_t bytes, version;
    struct symm_host_address place;
    uint8_t nonce
        [SYMM_AUTH_NONCE]; /* of this call: a host that says JOIN again has the same */
};

/* PLACE: where the parent is. */
struct place_head {
    int32_t number; /* of this host, by its coming */
    int32_t unused;
    struct symm_host_address parent; /* family 0: the one that says so */
};

struct join {
    const struct symm_tree_join *as;
    struct symm_auth_protocol protocol;
    struct symm_acceptor children, joiners; /* joiners: at rank 0 only */
    int number, hosts;                /* of this host; of all, once the table is here */
    struct symm_relay_message *table; /* NULL: not here */
    double start;
    /* Children, by number - symm__tree_child(number): */
    unsigned have; /* bits: they have the table, and so have those below them */
    double
        away[SYMM_TREE_ARITY]; /* since when their connection is broken; 0: it is not */
    uint8_t nonce[SYMM_AUTH_NONCE]; /* of this host */
    char refused[96];
    symm_status status; /* of what a guest brought about */
    /* At rank 0: */
    struct symm_host_address *places; /* [size]: by number */
    uint8_t (*nonces)[SYMM_AUTH_NONCE]; /* [size]: by number */
    int32_t *number_of;               /* [size]: by rank; -1: it has not come */
    int come;                         /* ranks that have */
    /* Elsewhere: the connection to rank 0, then to the parent. */
    struct symm_address target;
    int fd;
    enum { CONNECTING, ASKED, OPEN, WAITING } stage;
    double at, pause;
    bool placed;
    struct symm_auth auth;
    struct symm_relay_link link;
    char why[96];
    enum symm_auth_said
        answered; /* of what does not belong to the job; WAIT: nothing did */
    char why_failed[SYMM_ERROR_BYTES]; /* with as->failed */
};

static inline bool is_root(const struct join *join)
{
    return join->as->rank == 0;
}

symm_status symm__tree_no_memory(const struct join *join) SYMM_MUST_CHECK;

/* tree_above.c: what `fd` or the clock has to say; ready: fd has. */
symm_status symm__tree_move_above(struct join *join, bool ready) SYMM_MUST_CHECK;
/* Fails: the deadline has passed without a table. */
symm_status symm__tree_not_reached(const struct join *join) SYMM_MUST_CHECK;

#endif
