/* SPDX-License-Identifier: MIT */
/*
 * store_protocol.h - the exchange that symmrun serves: one all-gather of small blocks over
 * TCP.
 *
 * The client side is symm__store_allgather; the server is symmrun's store.c. A connection
 * serves one exchange. The client sends a hello with a random nonce, the server a welcome
 * with its own and a keyed hash over both: so the client knows that it is the job's store
 * before it says anything. Then come the request and its block, with a keyed hash over all
 * before it. The server answers once every rank's block is there, or the request's deadline
 * has passed, or the request was refused; a keyed hash goes before the answer. The secret is
 * never sent. A client that does not know it is hung up on.
 *
 * Integers are in network byte order. Counts and lengths that come over the wire are
 * checked against what the receiver expects; they never choose an address or a size of
 * memory.
 */
#ifndef SYMM_NET_STORE_PROTOCOL_H
#define SYMM_NET_STORE_PROTOCOL_H

#include "net/siphash.h"
#include "symm/symm.h"

#define SYMM_STORE_MAGIC        0x53594d53u /* "SYMS" */
#define SYMM_STORE_VERSION      2u
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
    uint64_t proof; /* symm__store_hash of 'w' and nothing */
};

struct symm_store_request { /* then `bytes` bytes: the rank's block */
    uint32_t rank, size;
    uint32_t bytes;      /* the same on all ranks; at most SYMM_STORE_BLOCK_MAX */
    uint32_t timeout_ms; /* the server answers by then */
    uint64_t proof; /* symm__store_hash of 'q', this with a proof of 0, and the block */
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

/* VERSION answers a hello, with nothing before it, as in version 1. All other replies follow 8
 * bytes: symm__store_hash of 'r' and of symm__siphash over all that comes after the hash. */
struct symm_store_reply { /* then `bytes` bytes */
    uint32_t magic, status;
    uint32_t bytes; /* OK: size x the blocks' bytes; TIMEOUT: size; else 0 */
    uint32_t unused;
};

_Static_assert(sizeof(struct symm_store_handshake) == 24, "the hello's layout");
_Static_assert(sizeof(struct symm_store_welcome) == 32, "the welcome's layout");
_Static_assert(sizeof(struct symm_store_request) == 24, "the request's layout");
_Static_assert(sizeof(struct symm_store_reply) == 16, "the reply's layout");

/* Proves the secret for one connection and one step: over both nonces and two parts. As it
 * goes over the wire. */
static inline uint64_t symm__store_hash(const uint8_t *secret, char step,
                                        const struct symm_store_handshake *client,
                                        const struct symm_store_handshake *server,
                                        const void *first, size_t first_bytes,
                                        const void *second, size_t second_bytes)
{
    struct symm_siphash hash = symm__siphash_begin(secret);
    uint64_t value;
    uint8_t wire[8];

    symm__siphash_add(&hash, "store", 5);
    symm__siphash_add(&hash, &step, 1);
    symm__siphash_add(&hash, client, sizeof(*client));
    symm__siphash_add(&hash, server, sizeof(*server));
    symm__siphash_add(&hash, first, first_bytes);
    symm__siphash_add(&hash, second, second_bytes);
    value = symm__siphash_end(&hash);
    for (int i = 0; i < 8; i++)
        wire[i] = (uint8_t)(value >> (56 - 8 * i));
    memcpy(&value, wire, sizeof(value));
    return value;
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
 * Collective over all ranks that symmrun started. SYMM_ERR_TIMEOUT names the ranks that
 * did not arrive; SYMM_ERR_REFUSED says why; SYMM_ERR_JOB: the address or the size is
 * wrong; SYMM_ERR_SYSTEM: the store cannot be reached before the deadline.
 */
symm_status
symm__store_allgather(const struct symm_store_exchange *exchange) SYMM_MUST_CHECK;

#endif
