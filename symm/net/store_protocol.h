/* SPDX-License-Identifier: MIT */
/*
 * store_protocol.h - the exchange that symmrun serves: one all-gather of small blocks over
 * TCP.
 *
 * The client is symm__store_allgather, the server symmrun's store.c. A connection is one exchange:
 * 1. The client sends a hello with a random nonce.
 * 2. The server sends its nonce and a keyed hash over both, which proves that it is the store.
 * 3. The client sends the request with a keyed hash over it, and then its block.
 * 4. The server sends a keyed hash and its reply: when all blocks are there, when the
 *    request's deadline has passed, or when the request is refused.
 * The secret is never sent. The server hangs up on a client that does not know it.
 *
 * Integers are in network byte order. Counts and lengths that come over the wire are
 * checked against what the receiver expects; they never choose an address or an amount
 * of memory.
 */
#ifndef SYMM_NET_STORE_PROTOCOL_H
#define SYMM_NET_STORE_PROTOCOL_H

#include "net/siphash.h"
#include "symm/symm.h"

#define SYMM_STORE_MAGIC        0x53594d53u /* "SYMS" */
#define SYMM_STORE_VERSION      3u
#define SYMM_STORE_SECRET_BYTES 16
#define SYMM_STORE_BLOCK_MAX    4096u /* bytes that a rank gives */
#define SYMM_STORE_RANKS_MAX    4096u

#define SYMM_STORE_NONCE_BYTES 16

struct symm_store_handshake { /* the client's, first */
    uint32_t magic, version;
    uint8_t nonce[SYMM_STORE_NONCE_BYTES];
};

struct symm_store_welcome { /* the server's */
    struct symm_store_handshake hello;
    struct symm_siphash_tag proof; /* SYMM_STORE_PROOF_WELCOME over no data */
};

struct symm_store_request { /* then `bytes` bytes: the rank's block */
    uint32_t rank, size;
    uint32_t bytes;      /* the same on all ranks; at most SYMM_STORE_BLOCK_MAX */
    uint32_t timeout_ms; /* the server answers by then */
    /* SYMM_STORE_PROOF_REQUEST over this with a proof of 0, and the block */
    struct symm_siphash_tag proof;
};

/* X(NAME, value, meaning) */
#define SYMM_STORE_REPLY_MAP(X)                                                        \
    X(OK, 0, "all blocks follow, in rank order")                                       \
    X(TIMEOUT, 1, "one byte a rank follows: 1 if it came")                             \
    X(SIZE, 2, "not the number of ranks that symmrun started")                         \
    X(RANK, 3, "no such rank")                                                         \
    X(DUPLICATE, 4, "another process takes part as this rank")                         \
    X(BYTES, 5, "another rank's block has another size, or this one is too large")     \
    X(VERSION, 6, "another version of the store's protocol")

enum symm_store_reply_status {
#define SYMM_STORE_REPLY_ENUM(name, value, meaning) SYMM_STORE_REPLY_##name = value,
    SYMM_STORE_REPLY_MAP(SYMM_STORE_REPLY_ENUM)
#undef SYMM_STORE_REPLY_ENUM
};

/* VERSION answers a hello without a hash, as in version 1. Before every other reply comes a tag:
 * SYMM_STORE_PROOF_REPLY over the symm__siphash of the reply and the bytes after it. */
struct symm_store_reply { /* then `bytes` bytes */
    uint32_t magic, status;
    uint32_t bytes; /* OK: size x the blocks' bytes; TIMEOUT: size; else 0 */
    uint32_t unused;
};

_Static_assert(sizeof(struct symm_store_handshake) == 24, "the hello's layout");
_Static_assert(sizeof(struct symm_store_welcome) == 40, "the welcome's layout");
_Static_assert(sizeof(struct symm_store_request) == 32, "the request's layout");
_Static_assert(sizeof(struct symm_store_reply) == 16, "the reply's layout");

/* The step that a hash proves; part of its input, so that no step's hash fits another. */
enum symm_store_proof {
    SYMM_STORE_PROOF_WELCOME = 'w',
    SYMM_STORE_PROOF_REQUEST = 'q',
    SYMM_STORE_PROOF_REPLY = 'r'
};

/* A hash keyed by the secret over the step, both nonces and two parts. */
static inline struct symm_siphash_tag
symm__store_hash(const uint8_t *secret, enum symm_store_proof step,
                 const struct symm_store_handshake *client,
                 const struct symm_store_handshake *server, const void *first,
                 size_t first_bytes, const void *second, size_t second_bytes)
{
    struct symm_siphash hash = symm__siphash_begin(secret);
    const char letter = (char)step;

    symm__siphash_add(&hash, "store", 5);
    symm__siphash_add(&hash, &letter, 1);
    symm__siphash_add(&hash, client, sizeof(*client));
    symm__siphash_add(&hash, server, sizeof(*server));
    symm__siphash_add(&hash, first, first_bytes);
    symm__siphash_add(&hash, second, second_bytes);
    return symm__siphash_end(&hash);
}

/* One rank's part in an exchange over the store at `address` (host:port). */
struct symm_store_exchange {
    const char *address;   /* borrows */
    const uint8_t *secret; /* SYMM_STORE_SECRET_BYTES: borrows */
    int rank, size;
    const void *in; /* `bytes` bytes, at most SYMM_STORE_BLOCK_MAX: borrows */
    size_t bytes;
    void *out;      /* size x bytes, in rank order; written only on success */
    double timeout; /* seconds from the call */
};

/*
 * Collective over all ranks that symmrun started. SYMM_ERR_INVALID, _OVERFLOW: an argument;
 * _JOB: the address; _NOMEM: for the reply; _SYSTEM: the connection cannot be made, or fails;
 * _TIMEOUT: ranks are missing, which the error names, or the store does not answer; _REFUSED:
 * the store refuses or hangs up on each attempt, or the server is not the job's store.
 */
symm_status
symm__store_allgather(const struct symm_store_exchange *exchange) SYMM_MUST_CHECK;

/*
 * What symm__store_allgather does with one connection, `fd` (not blocking, borrowed). *done: out is
 * written; with SYMM_OK and without it the store hung up.
 */
symm_status symm__store_talk(const struct symm_store_exchange *exchange, int fd,
                             double until, bool *done) SYMM_MUST_CHECK;

#endif
