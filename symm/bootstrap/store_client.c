/* SPDX-License-Identifier: MIT */
/*
 * store_client.c - one all-gather over symmrun's store.
 *
 * The caller's deadline bounds every step. The address must be numeric, because the look-up
 * of a name cannot be bounded. The request asks the store to answer a little before the
 * deadline: then the answer, which names the missing ranks, still arrives in time. Bytes from
 * the network are used only after their hash and their lengths have been checked.
 */
#include "net/store_protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/address.h"
#include "net/seqpacket.h"
#include "util/clock.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"

/* A busy store may hang up on a connection before it has proved itself: the client retries. */
#define ATTEMPTS    8
#define FIRST_DELAY 0.01 /* seconds before the first retry; doubles */

/* One attempt. A step that returns false has set status; if status is still SYMM_OK, the store
 * hung up, and the exchange is tried again. */
struct session {
    const struct symm_store_exchange *exchange;
    struct symm_address to;
    double until;
    void *reply; /* size x max(bytes, 1) bytes; owned */
    int fd;
    symm_status status;
    struct symm_store_handshake mine, theirs; /* theirs: set by shake_hands */
};

static bool failed(struct session *session, symm_status why)
{
    session->status = why;
    return false;
}

static symm_status resolve(const char *text, struct symm_address *address)
{
    const char *wrong = symm__address_parse(text, SYMM_ADDRESS_PORT, address);

    return !wrong ? SYMM_OK
                  : symm__fail(SYMM_ERR_JOB,
                               "SYMM_STORE='%.80s': must be a numeric address and a "
                               "port, as 127.0.0.1:4242 or [::1]:4242",
                               text);
}

static symm_status no_answer(const struct symm_store_exchange *exchange,
                             const char *step)
{
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d: the store at %s did not %s within %g s; is symmrun stopped?",
        exchange->rank, exchange->address, step, exchange->timeout);
}

static bool connect_store(struct session *session)
{
    const struct symm_store_exchange *exchange = session->exchange;
    int error = 0, fd = symm__address_connect(&session->to);

    session->fd = fd;
    if (fd < 0)
        error = errno;
    else if (symm__seqpacket_wait(fd, POLLOUT, session->until) != SYMM_SEQPACKET_OK)
        return failed(session, no_answer(exchange, "take the connection"));
    else
        error = symm__connect_error(fd);
    return error == 0 ||
           failed(session,
                  symm__fail_errno(
                      SYMM_ERR_SYSTEM, error,
                      "rank %d: cannot reach the store at %s; has symmrun ended?",
                      exchange->rank, exchange->address));
}

/* Sends or receives all of the bytes. */
static bool transfer(struct session *session, bool out, void *data, size_t bytes)
{
    const struct symm_store_exchange *exchange = session->exchange;
    int fd = session->fd;
    char *next = data;

    while (bytes > 0) {
        ssize_t moved =
            out ? send(fd, next, bytes, MSG_NOSIGNAL) : recv(fd, next, bytes, 0);

        if (moved > 0) {
            next += moved;
            bytes -= (size_t)moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (symm__seqpacket_wait(fd, out ? POLLOUT : POLLIN, session->until) !=
                SYMM_SEQPACKET_OK)
                return failed(session, no_answer(exchange, "answer"));
        } else if (moved == 0 || errno == EPIPE || errno == ECONNRESET) {
            return false;
        } else if (errno != EINTR) {
            return failed(
                session,
                symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                 "rank %d: the connection to the store at %s failed",
                                 exchange->rank, exchange->address));
        }
    }
    return true;
}

/* The timeout that the request states, for `left` seconds until the deadline. */
static uint32_t store_milliseconds(double left)
{
    /* The margin is the time that the answer needs to come back. */
    double margin = left < 2.5 ? 0.1 * left : 0.25;
    double span = 1e3 * (left - margin);

    return span < 1 ? 1 : span > 4e9 ? 4000000000u : (uint32_t)span;
}

static symm_status missing_ranks(const struct symm_store_exchange *exchange,
                                 const uint8_t *came)
{
    int *ranks = malloc((size_t)exchange->size * sizeof(*ranks));
    char text[300];
    int count = 0;

    if (!ranks)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %d ranks",
                          exchange->size);
    for (int rank = 0; rank < exchange->size; rank++) {
        if (!came[rank])
            ranks[count++] = rank;
    }
    symm__ranks_text(ranks, count, text, sizeof(text));
    free(ranks);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s did not come to the exchange over the store at %s within %g s", text,
        exchange->address, exchange->timeout);
}

static symm_status refused(const struct symm_store_exchange *exchange, uint32_t why)
{
    static const char *const reasons[] = {
#define REASON(name, value, meaning) [value] = meaning,
        SYMM_STORE_REPLY_MAP(REASON)
#undef REASON
    };
    const size_t known = sizeof(reasons) / sizeof(reasons[0]);

    return symm__fail(
        SYMM_ERR_REFUSED,
        "rank %d of %d with %zu bytes: refused by the store at %s: %s", exchange->rank,
        exchange->size, exchange->bytes, exchange->address,
        why > SYMM_STORE_REPLY_TIMEOUT && why < known ? reasons[why]
                                                      : "no known reason");
}

static symm_status no_store(const struct symm_store_exchange *exchange)
{
    return symm__fail(
        SYMM_ERR_REFUSED,
        "rank %d: what answers at %s is not the store of this job, or not "
        "of this version: it does not prove that it knows SYMM_SECRET",
        exchange->rank, exchange->address);
}

static bool shake_hands(struct session *session)
{
    const struct symm_store_handshake *mine = &session->mine,
                                      *theirs = &session->theirs;
    struct symm_store_welcome welcome;
    struct symm_siphash_tag proof;

    session->mine = (struct symm_store_handshake){.magic = htonl(SYMM_STORE_MAGIC),
                                                  .version = htonl(SYMM_STORE_VERSION)};
    session->status = symm__random(session->mine.nonce, sizeof(session->mine.nonce));
    if (session->status != SYMM_OK ||
        !transfer(session, true, &session->mine, sizeof(session->mine)) ||
        !transfer(session, false, &welcome, sizeof(welcome)))
        return false;
    session->theirs = welcome.hello;
    proof = symm__store_hash(session->exchange->secret, SYMM_STORE_PROOF_WELCOME, mine,
                             theirs, NULL, 0, NULL, 0);
    return (symm__siphash_equal(&welcome.proof, &proof) &&
            theirs->magic == mine->magic && theirs->version == mine->version) ||
           failed(session, no_store(session->exchange));
}

static bool send_request(struct session *session)
{
    const struct symm_store_exchange *exchange = session->exchange;
    char message[sizeof(struct symm_store_request) + SYMM_STORE_BLOCK_MAX];
    struct symm_store_request request = {
        .rank = htonl((uint32_t)exchange->rank),
        .size = htonl((uint32_t)exchange->size),
        .bytes = htonl((uint32_t)exchange->bytes),
        .timeout_ms = htonl(store_milliseconds(session->until - symm__now())),
    };

    request.proof = symm__store_hash(exchange->secret, SYMM_STORE_PROOF_REQUEST,
                                     &session->mine, &session->theirs, &request,
                                     sizeof(request), exchange->in, exchange->bytes);
    memcpy(message, &request, sizeof(request));
    if (exchange->bytes > 0)
        memcpy(message + sizeof(request), exchange->in, exchange->bytes);
    return transfer(session, true, message, sizeof(request) + exchange->bytes);
}

/* Whether `proof`, the hash before the reply, proves that the store sent the reply. */
static bool reply_is_true(const struct session *session,
                          const struct symm_siphash_tag *proof,
                          const struct symm_store_reply *reply, size_t bytes)
{
    const uint8_t *secret = session->exchange->secret;
    struct symm_siphash hash = symm__siphash_begin(secret);
    struct symm_siphash_tag digest;

    symm__siphash_add(&hash, reply, sizeof(*reply));
    symm__siphash_add(&hash, session->reply, bytes);
    digest = symm__siphash_end(&hash);
    digest = symm__store_hash(secret, SYMM_STORE_PROOF_REPLY, &session->mine,
                              &session->theirs, &digest, sizeof(digest), NULL, 0);
    return symm__siphash_equal(proof, &digest);
}

static bool read_reply(struct session *session)
{
    const struct symm_store_exchange *exchange = session->exchange;
    struct symm_store_reply reply;
    size_t expected = (size_t)exchange->size;
    struct symm_siphash_tag proof;
    uint32_t said;

    if (!transfer(session, false, &proof, sizeof(proof)) ||
        !transfer(session, false, &reply, sizeof(reply)))
        return false;
    said = ntohl(reply.status);
    if (said == SYMM_STORE_REPLY_OK)
        expected *= exchange->bytes;
    else if (said != SYMM_STORE_REPLY_TIMEOUT)
        expected = 0;
    if (ntohl(reply.magic) != SYMM_STORE_MAGIC || ntohl(reply.bytes) != expected)
        return failed(session, no_store(exchange));
    if (!transfer(session, false, session->reply, expected))
        return false;
    if (!reply_is_true(session, &proof, &reply, expected))
        return failed(session, no_store(exchange));
    if (said == SYMM_STORE_REPLY_TIMEOUT)
        return failed(session, missing_ranks(exchange, session->reply));
    if (said != SYMM_STORE_REPLY_OK)
        return failed(session, refused(exchange, said));
    memcpy(exchange->out, session->reply, expected);
    return true;
}

static bool talk(struct session *session)
{
    return shake_hands(session) && send_request(session) && read_reply(session);
}

static bool attempt(struct session *session)
{
    bool done = connect_store(session) && talk(session);

    symm__seqpacket_close(&session->fd, 1);
    return done;
}

static symm_status check_arguments(const struct symm_store_exchange *exchange)
{
    if (!exchange->address || !exchange->secret || !exchange->out ||
        (exchange->bytes > 0 && !exchange->in))
        return symm__fail(SYMM_ERR_INVALID,
                          "an exchange over the store lacks its address, "
                          "secret or memory");
    if (exchange->size < 1 || exchange->size > (int)SYMM_STORE_RANKS_MAX ||
        exchange->rank < 0 || exchange->rank >= exchange->size)
        return symm__fail(
            SYMM_ERR_INVALID,
            "rank %d of %d cannot use the store: it serves up to %u ranks",
            exchange->rank, exchange->size, SYMM_STORE_RANKS_MAX);
    if (exchange->bytes > SYMM_STORE_BLOCK_MAX)
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "a block of %zu bytes: the store takes up to %u",
                          exchange->bytes, SYMM_STORE_BLOCK_MAX);
    return SYMM_OK;
}

/* session->reply is new; SYMM_OK: all arguments are right. */
static symm_status begin(struct session *session)
{
    const struct symm_store_exchange *exchange = session->exchange;
    symm_status status = check_arguments(exchange);

    if (status == SYMM_OK)
        status = resolve(exchange->address, &session->to);
    if (status != SYMM_OK)
        return status;
    /* No overflow: both factors have just been checked. */
    session->reply =
        malloc((size_t)exchange->size * (exchange->bytes > 0 ? exchange->bytes : 1));
    return session->reply
               ? SYMM_OK
               : symm__fail(SYMM_ERR_NOMEM, "no memory for %d blocks of %zu bytes",
                            exchange->size, exchange->bytes);
}

symm_status symm__store_talk(const struct symm_store_exchange *exchange, int fd,
                             double until, bool *done)
{
    struct session session = {.exchange = exchange, .until = until, .fd = fd};

    session.status = begin(&session);
    *done = session.status == SYMM_OK && talk(&session);
    free(session.reply);
    return session.status;
}

symm_status symm__store_allgather(const struct symm_store_exchange *exchange)
{
    struct session session = {.exchange = exchange,
                              .until = symm__now() + exchange->timeout};
    double delay = FIRST_DELAY;
    bool done = false;

    session.status = begin(&session);
    if (session.status != SYMM_OK)
        return session.status;
    for (int i = 0; i < ATTEMPTS && !done && session.status == SYMM_OK; i++) {
        if (i > 0) {
            double left = session.until - symm__now();

            symm__sleep(delay < left ? delay : left); /* returns at once if left <= 0 */
            delay *= 2;
        }
        if (symm__now() < session.until)
            done = attempt(&session);
        else
            session.status = no_answer(
                exchange, i > 0 ? "answer (it hung up on each connection)" : "answer");
    }
    free(session.reply);
    if (done || session.status != SYMM_OK)
        return session.status;
    return symm__fail(
        SYMM_ERR_REFUSED,
        "rank %d: the store at %s hung up without an answer: SYMM_SECRET is not that "
        "of its job, symmrun is of another version, or symmrun is ending",
        exchange->rank, exchange->address);
}
