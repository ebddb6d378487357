/* SPDX-License-Identifier: MIT */
/*
 * store_client.c - one all-gather over symmrun's store.
 *
 * Bounded by the caller's deadline in every step, name look-up included: the address
 * must be a number, since a look-up cannot be bounded. The store is asked to answer a
 * little before the deadline, so that the ranks that did not arrive can be named. Nothing
 * that comes over the wire is used before it equals what this rank expects.
 */
#include "net/store_protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/protocol.h"
#include "net/address.h"
#include "net/seqpacket.h"
#include "util/clock.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"

/* A busy store may hang up on a connection that it does not know yet: try again. */
#define ATTEMPTS    8
#define FIRST_PAUSE 0.01 /* seconds; doubles */

enum outcome { DONE, HUNG_UP, FAILED };

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

static enum outcome connect_store(const struct symm_store_exchange *exchange,
                                  const struct symm_address *to, double until, int *fd,
                                  symm_status *status)
{
    int error;

    *fd = symm__address_connect(to);
    error = *fd < 0 ? errno : 0;
    if (*fd >= 0 && symm__seqpacket_wait(*fd, POLLOUT, until) != SYMM_SEQPACKET_OK) {
        *status = no_answer(exchange, "take the connection");
        return FAILED;
    }
    if (*fd >= 0)
        error = symm__connect_error(*fd);
    if (error == 0)
        return DONE;
    *status =
        symm__fail_errno(SYMM_ERR_SYSTEM, error,
                         "rank %d: cannot reach the store at %s; has symmrun ended?",
                         exchange->rank, exchange->address);
    return FAILED;
}

/* Sends or receives all of the bytes. HUNG_UP sets nothing. */
static enum outcome transfer(const struct symm_store_exchange *exchange, int fd,
                             bool out, void *data, size_t bytes, double until,
                             symm_status *status)
{
    char *next = data;

    while (bytes > 0) {
        ssize_t moved =
            out ? send(fd, next, bytes, MSG_NOSIGNAL) : recv(fd, next, bytes, 0);

        if (moved > 0) {
            next += moved;
            bytes -= (size_t)moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (symm__seqpacket_wait(fd, out ? POLLOUT : POLLIN, until) !=
                SYMM_SEQPACKET_OK) {
                *status = no_answer(exchange, "answer");
                return FAILED;
            }
        } else if (moved == 0 || errno == EPIPE || errno == ECONNRESET) {
            return HUNG_UP;
        } else if (errno != EINTR) {
            *status =
                symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                 "rank %d: the connection to the store at %s failed",
                                 exchange->rank, exchange->address);
            return FAILED;
        }
    }
    return DONE;
}

static uint32_t store_milliseconds(double left)
{
    /* The answer needs some time to come back; and the number must fit. */
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

/* Both ends' hellos: the server has proved itself. */
struct session {
    struct symm_store_handshake mine, theirs;
};

static enum outcome greet(const struct symm_store_exchange *exchange, int fd,
                          struct session *session, double until, symm_status *status)
{
    struct symm_store_welcome welcome;
    enum outcome outcome;

    session->mine = (struct symm_store_handshake){.magic = htonl(SYMM_STORE_MAGIC),
                                                  .version = htonl(SYMM_STORE_VERSION)};
    *status = symm__random(session->mine.nonce, sizeof(session->mine.nonce));
    if (*status != SYMM_OK)
        return FAILED;
    outcome = transfer(exchange, fd, true, &session->mine, sizeof(session->mine), until,
                       status);
    if (outcome == DONE)
        outcome =
            transfer(exchange, fd, false, &welcome, sizeof(welcome), until, status);
    if (outcome != DONE)
        return outcome;
    session->theirs = welcome.hello;
    if (welcome.proof == symm__store_hash(exchange->secret, 'w', &session->mine,
                                          &session->theirs, NULL, 0, NULL, 0) &&
        welcome.hello.magic == session->mine.magic &&
        welcome.hello.version == session->mine.version)
        return DONE;
    *status = no_store(exchange);
    return FAILED;
}

static enum outcome send_request(const struct symm_store_exchange *exchange, int fd,
                                 const struct session *session, double until,
                                 symm_status *status)
{
    char message[sizeof(struct symm_store_request) + SYMM_STORE_BLOCK_MAX];
    struct symm_store_request request = {
        .rank = htonl((uint32_t)exchange->rank),
        .size = htonl((uint32_t)exchange->size),
        .bytes = htonl((uint32_t)exchange->bytes),
        .timeout_ms = htonl(store_milliseconds(until - symm__now())),
    };

    request.proof =
        symm__store_hash(exchange->secret, 'q', &session->mine, &session->theirs,
                         &request, sizeof(request), exchange->in, exchange->bytes);
    memcpy(message, &request, sizeof(request));
    if (exchange->bytes > 0)
        memcpy(message + sizeof(request), exchange->in, exchange->bytes);
    return transfer(exchange, fd, true, message, sizeof(request) + exchange->bytes,
                    until, status);
}

/* The hash that comes before an answer: is it the store's? */
static bool reply_is_true(const struct symm_store_exchange *exchange,
                          const struct session *session, uint64_t proof,
                          const struct symm_store_reply *reply, const void *data,
                          size_t bytes)
{
    struct symm_siphash hash = symm__siphash_begin(exchange->secret);
    uint64_t digest;

    symm__siphash_add(&hash, reply, sizeof(*reply));
    symm__siphash_add(&hash, data, bytes);
    digest = symm__siphash_end(&hash);
    return proof == symm__store_hash(exchange->secret, 'r', &session->mine,
                                     &session->theirs, &digest, sizeof(digest), NULL,
                                     0);
}

/* Reads the answer. `room` holds size x max(bytes, 1) bytes. */
static enum outcome read_reply(const struct symm_store_exchange *exchange, int fd,
                               const struct session *session, void *room, double until,
                               symm_status *status)
{
    struct symm_store_reply reply;
    size_t expected = (size_t)exchange->size;
    uint64_t proof;
    uint32_t said;
    enum outcome outcome =
        transfer(exchange, fd, false, &proof, sizeof(proof), until, status);

    if (outcome == DONE)
        outcome = transfer(exchange, fd, false, &reply, sizeof(reply), until, status);
    if (outcome != DONE)
        return outcome;
    said = ntohl(reply.status);
    if (said == SYMM_STORE_REPLY_OK)
        expected *= exchange->bytes;
    else if (said != SYMM_STORE_REPLY_TIMEOUT)
        expected = 0;
    if (ntohl(reply.magic) != SYMM_STORE_MAGIC || ntohl(reply.bytes) != expected) {
        *status = no_store(exchange);
        return FAILED;
    }
    outcome = transfer(exchange, fd, false, room, expected, until, status);
    if (outcome != DONE)
        return outcome;
    if (!reply_is_true(exchange, session, proof, &reply, room, expected)) {
        *status = no_store(exchange);
        return FAILED;
    }
    if (said == SYMM_STORE_REPLY_OK) {
        memcpy(exchange->out, room, expected);
        return DONE;
    }
    *status = said == SYMM_STORE_REPLY_TIMEOUT ? missing_ranks(exchange, room)
                                               : refused(exchange, said);
    return FAILED;
}

static enum outcome attempt(const struct symm_store_exchange *exchange,
                            const struct symm_address *to, void *room, double until,
                            symm_status *status)
{
    struct session session;
    int fd = -1;
    enum outcome outcome = connect_store(exchange, to, until, &fd, status);

    if (outcome == DONE)
        outcome = greet(exchange, fd, &session, until, status);
    if (outcome == DONE)
        outcome = send_request(exchange, fd, &session, until, status);
    if (outcome == DONE)
        outcome = read_reply(exchange, fd, &session, room, until, status);
    if (fd >= 0)
        close(fd);
    return outcome;
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

symm_status symm__store_allgather(const struct symm_store_exchange *exchange)
{
    double until = symm__now() + exchange->timeout;
    double pause = FIRST_PAUSE;
    enum outcome outcome = HUNG_UP;
    struct symm_address to;
    void *room;
    symm_status status = check_arguments(exchange);

    if (status == SYMM_OK)
        status = resolve(exchange->address, &to);
    if (status != SYMM_OK)
        return status;
    /* No overflow: both factors have just been checked. */
    room = malloc((size_t)exchange->size * (exchange->bytes > 0 ? exchange->bytes : 1));
    if (!room)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %d blocks of %zu bytes",
                          exchange->size, exchange->bytes);
    for (int i = 0; i < ATTEMPTS && outcome == HUNG_UP && symm__now() < until; i++) {
        if (i > 0) {
            symm__sleep(pause);
            pause *= 2;
        }
        outcome = attempt(exchange, &to, room, until, &status);
    }
    if (outcome == HUNG_UP)
        status = symm__fail(
            SYMM_ERR_REFUSED,
            "rank %d: the store at %s hung up without an answer: SYMM_SECRET "
            "is not its job's, symmrun is of another version, or it is ending",
            exchange->rank, exchange->address);
    free(room);
    return status;
}
