/* SPDX-License-Identifier: MIT */
/*
 * store.h - the exchange that symmrun serves: one all-gather of small blocks over TCP.
 *
 * The client side is symm__store_allgather; the server is symmrun_store.c, which shares
 * only the layout of the messages with the library. A connection serves one exchange:
 * the client sends a request and its block, the server answers once every rank's block
 * is there, or the request's deadline has passed, or the request was refused. A request
 * without the right secret is hung up on without a word.
 *
 * Integers are in network byte order. Counts and lengths that come over the wire are
 * checked against what the receiver expects; they never choose an address or a size of
 * memory.
 */
#ifndef SYMM_STORE_H
#define SYMM_STORE_H

#include "symm/symm.h"

#define SYMM_STORE_MAGIC        0x53594d53u /* "SYMS" */
#define SYMM_STORE_VERSION      1u
#define SYMM_STORE_SECRET_BYTES 16
#define SYMM_STORE_BLOCK_MAX    4096u /* bytes that a rank gives */
#define SYMM_STORE_RANKS_MAX    4096u

struct symm_store_request { /* then `bytes` bytes: the rank's block */
    uint32_t magic, version;
    uint8_t secret[SYMM_STORE_SECRET_BYTES];
    uint32_t rank, size;
    uint32_t bytes;       /* the same on all ranks; at most SYMM_STORE_BLOCK_MAX */
    uint32_t deadline_ms; /* the server answers by then */
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

struct symm_store_reply { /* then `bytes` bytes */
    uint32_t magic, status;
    uint32_t bytes; /* OK: size x the blocks' bytes; TIMEOUT: size; else 0 */
    uint32_t unused;
};

_Static_assert(sizeof(struct symm_store_request) == 40, "the request's layout");
_Static_assert(sizeof(struct symm_store_reply) == 16, "the reply's layout");

/* One rank's part in an exchange over the store at `address` (host:port). */
struct symm_store_exchange {
    const char *address;   /* borrows */
    const uint8_t *secret; /* SYMM_STORE_SECRET_BYTES: borrows */
    int rank, size;
    const void *in; /* `bytes` bytes, at most SYMM_STORE_BLOCK_MAX: borrows */
    size_t bytes;
    void *out;       /* size x bytes, in rank order; written only on success */
    double deadline; /* seconds from the call */
};

/*
 * Collective over all ranks that symmrun started. SYMM_ERR_TIMEOUT names the ranks that
 * did not come; SYMM_ERR_REFUSED says why; SYMM_ERR_JOB: the address or the size is
 * wrong; SYMM_ERR_SYSTEM: the store cannot be reached before the deadline.
 */
symm_status
symm__store_allgather(const struct symm_store_exchange *exchange) SYMM_MUST_CHECK;

#endif
