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
    /* Of this call: a host that sends JOIN again has the same. */
    uint8_t nonce[SYMM_AUTH_NONCE];
};

/* PLACE: where the parent is. */
struct place_head {
    int32_t number; /* of the host that receives it, by the order of arrival */
    int32_t unused;
    struct symm_host_address parent; /* family 0: the sender, rank 0's host */
};

struct join {
    const struct symm_tree_join *args;
    struct symm_auth_protocol protocol;
    /* Connections at args->listener; at rank 0 also those at the job's port. */
    struct symm_acceptor children, joining;
    int number; /* of this host */
    int hosts;  /* joined so far; elsewhere known with the table */
    struct symm_relay_message *table; /* NULL: it has not arrived */
    double start;
    /* Children, by number - symm__tree_child(number): */
    unsigned have; /* bits: the child and all hosts below it have the table */
    double away[SYMM_TREE_ARITY];   /* when its connection broke; 0: it has not */
    uint8_t nonce[SYMM_AUTH_NONCE]; /* of this host's JOIN */
    char refused[96];               /* why rank 0 refused the last host; "": none */
    symm_status status; /* a failure in serving a connection: run() returns it */
    /* At rank 0: */
    struct symm_host_address *places; /* [size]: by number */
    uint8_t (*nonces)[SYMM_AUTH_NONCE]; /* [size]: by number */
    int32_t *number_of; /* [size]: host number by rank; -1: not joined */
    int joined;         /* how many ranks have */
    /* Elsewhere: the connection to rank 0, then to the parent. */
    struct symm_address target;
    int fd;
    enum { CONNECTING, ASKED, OPEN, WAITING } stage;
    double at;    /* when to try again (WAITING), or to end the try */
    double pause; /* before the next try */
    bool placed;  /* PLACE has arrived: `number` is valid */
    struct symm_auth auth;
    struct symm_relay_link link;
    char why[96]; /* the last try failed */
    /* How the last listener that is not of this job answered; SYMM_AUTH_WAIT: none did. */
    enum symm_auth_said answered;
    char why_failed[SYMM_ERROR_BYTES]; /* the sentence of args->failed */
};

static inline bool is_root(const struct join *join)
{
    return join->args->rank == 0;
}

symm_status symm__tree_no_memory(const struct join *join) SYMM_MUST_CHECK;

/* tree_above.c: goes on with the connection to the host above. ready: poll has an event of `fd`;
 * else only the clock counts. */
symm_status symm__tree_move_above(struct join *join, bool ready) SYMM_MUST_CHECK;
/* The deadline has passed without a table: returns the error, with its sentence. */
symm_status symm__tree_not_reached(const struct join *join) SYMM_MUST_CHECK;

#endif
