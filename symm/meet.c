/* SPDX-License-Identifier: MIT */
/*
 * meet.c - the ways to meet, and what hub and joiners share (meet_wire.h).
 *
 * Bootstrap and store agree on a random key and secret of rank 0; the entries that the
 * ranks exchange for that also show whether the caller's allgather keeps the order of
 * ranks.
 */
#include "meet.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "clock.h"
#include "meet_place.h"
#include "meet_wire.h"
#include "status.h"
#include "store.h"
#include "wire.h"

/* ---- Messages -------------------------------------------------------------------- */

struct symm_meet_message symm__meet_message(enum symm_meet_kind kind,
                                            const struct symm_meeting *meeting,
                                            int rank, uint64_t nonce)
{
    struct symm_meet_message message = {
        .magic = SYMM_MEET_MAGIC,
        .protocol = SYMM_MEET_PROTOCOL,
        .kind = (uint16_t)kind,
        .library = SYMM_MEET_LIBRARY,
        .rank = rank,
        .size = meeting->size,
        .nonce = nonce,
    };
    return message;
}

bool symm__meet_message_check(struct symm_meet_message *message, size_t bytes)
{
    if (bytes != sizeof(*message) || message->magic != SYMM_MEET_MAGIC)
        return false;
    message->text[sizeof(message->text) - 1] = '\0';
    return message->kind >= SYMM_MEET_HELLO && message->kind <= SYMM_MEET_ABORT;
}

symm_status symm__meet_random(void *bytes, size_t count)
{
    ssize_t got;
    do {
        got = getrandom(bytes, count, 0); /* up to 256 bytes come whole */
    } while (got < 0 && errno == EINTR);
    if (got < 0 || (size_t)got != count)
        return symm__fail_errno(SYMM_ERR_SYSTEM, got < 0 ? errno : EIO,
                                "getting %zu random bytes", count);
    return SYMM_OK;
}

/* ---- By key ---------------------------------------------------------------------- */

static symm_status meet_check(const struct symm_meeting *meeting)
{
    if (meeting->size < 1 || meeting->size > SYMM_MEET_MAX)
        return symm__fail(SYMM_ERR_INVALID,
                          "a job of %d ranks: 1 to %d can meet on a host",
                          meeting->size, SYMM_MEET_MAX);
    if (meeting->rank < 0 || meeting->rank >= meeting->size)
        return symm__fail(SYMM_ERR_INVALID, "rank %d of a job of %d ranks",
                          meeting->rank, meeting->size);
    return SYMM_OK;
}

symm_status symm__meet_local(const struct symm_meeting *meeting, int *peer_fd)
{
    struct symm_meet_place place;
    double until = symm__now() + meeting->deadline;
    symm_status status = meet_check(meeting);
    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < meeting->size; i++)
        peer_fd[i] = -1;
    if (meeting->size == 1)
        return SYMM_OK;
    status = symm__meet_place_find(&place, meeting->key);
    if (status != SYMM_OK)
        return status;
    status = meeting->rank == 0 ? symm__meet_hub(meeting, &place, until, peer_fd)
                                : symm__meet_join(meeting, &place, until, peer_fd);
    if (status != SYMM_OK)
        symm__meet_close(peer_fd, meeting->size);
    return status;
}

void symm__meet_close(int *peer_fd, int size)
{
    symm__wire_close(peer_fd, size);
}

/* ---- By an allgather ------------------------------------------------------------- */

#define MEET_KEY_BYTES 16

/* What each rank gives; key and secret count only in rank 0's. */
struct meet_entry {
    uint32_t magic;
    uint16_t protocol;
    uint16_t failed; /* rank 0 could not make a key */
    int32_t rank;
    int32_t size;
    uint8_t key[MEET_KEY_BYTES];
    uint8_t secret[SYMM_SECRET_BYTES];
};
static_assert(sizeof(struct meet_entry) == 48, "the entry's layout is fixed");

static symm_status entry_make(const struct symm_meeting *meeting,
                              struct meet_entry *entry)
{
    uint8_t random[MEET_KEY_BYTES + SYMM_SECRET_BYTES];
    *entry = (struct meet_entry){
        .magic = SYMM_MEET_MAGIC,
        .protocol = SYMM_MEET_PROTOCOL,
        .rank = meeting->rank,
        .size = meeting->size,
    };
    if (meeting->rank != 0)
        return SYMM_OK;
    symm_status status = symm__meet_random(random, sizeof(random));
    if (status != SYMM_OK) {
        entry->failed = 1; /* the others wait in the allgather: they must be told */
        return status;
    }
    memcpy(entry->key, random, MEET_KEY_BYTES);
    memcpy(entry->secret, random + MEET_KEY_BYTES, SYMM_SECRET_BYTES);
    return SYMM_OK;
}

/* Entry r must be what rank r of this very job has given. */
static symm_status entries_check(const struct symm_meeting *meeting,
                                 const struct meet_entry *entries, const char *what)
{
    for (int r = 0; r < meeting->size; r++) {
        const struct meet_entry *entry = &entries[r];
        if (entry->magic != SYMM_MEET_MAGIC || entry->protocol != SYMM_MEET_PROTOCOL)
            return symm__fail(
                SYMM_ERR_JOB,
                "%s returned at place %d not what rank %d has given: does "
                "every rank call it once, with a libsymm of this version?",
                what, r, r);
        if (entry->rank != r)
            return symm__fail(SYMM_ERR_JOB,
                              "%s returned at place %d what rank %d has given: it must "
                              "return the ranks' parts in the order of their ranks",
                              what, r, entry->rank);
        if (entry->size != meeting->size)
            return symm__fail(SYMM_ERR_JOB,
                              "rank %d says that the job has %d ranks, rank %d says %d",
                              r, entry->size, meeting->rank, meeting->size);
    }
    if (entries[0].failed != 0)
        return symm__fail(SYMM_ERR_ABORTED,
                          "rank 0 could not make a key for the meeting");
    return SYMM_OK;
}

/* The meeting itself, by the key and secret that rank 0 has made. */
static symm_status entries_meet(const struct symm_meeting *meeting,
                                const struct meet_entry *first, const char *prefix,
                                double until, int *peer_fd)
{
    char key[64];
    uint64_t high, low;
    uint8_t secret[SYMM_SECRET_BYTES];
    memcpy(&high, first->key, sizeof(high));
    memcpy(&low, first->key + sizeof(high), sizeof(low));
    memcpy(secret, first->secret, sizeof(secret));
    (void)snprintf(key, sizeof(key), "%s:%016" PRIx64 "%016" PRIx64, prefix, high, low);
    struct symm_meeting fresh = *meeting;
    fresh.key = key;
    fresh.secret = secret;
    fresh.deadline = until - symm__now();
    return symm__meet_local(&fresh, peer_fd);
}

symm_status symm__meet_bootstrap(const struct symm_meeting *meeting,
                                 const symm_bootstrap *bootstrap, int *peer_fd)
{
    struct meet_entry mine;
    double until = symm__now() + meeting->deadline;
    symm_status status = meet_check(meeting);
    if (status != SYMM_OK)
        return status;
    if (bootstrap->allgather == NULL)
        return symm__fail(SYMM_ERR_INVALID, "symm_bootstrap has no allgather function");
    if (meeting->size == 1)
        return symm__meet_local(meeting, peer_fd);
    struct meet_entry *entries = calloc((size_t)meeting->size, sizeof(*entries));
    if (entries == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the entries of %d ranks",
                          meeting->size);
    symm_status made = entry_make(meeting, &mine);
    int result = bootstrap->allgather(bootstrap->arg, &mine, sizeof(mine), entries);
    if (made != SYMM_OK)
        status = made;
    else if (result != 0)
        status = symm__fail(SYMM_ERR_JOB,
                            "the caller's allgather failed on rank %d: it returned %d",
                            meeting->rank, result);
    else
        status = entries_check(meeting, entries, "the caller's allgather");
    if (status == SYMM_OK)
        status = entries_meet(meeting, &entries[0], "bootstrap", until, peer_fd);
    free(entries);
    return status;
}

symm_status symm__meet_store(const struct symm_meeting *meeting, const char *address,
                             int *peer_fd)
{
    struct meet_entry mine;
    double until = symm__now() + meeting->deadline;
    symm_status status = meet_check(meeting);
    if (status != SYMM_OK)
        return status;
    if (meeting->secret == NULL)
        return symm__fail(SYMM_ERR_JOB,
                          "the store at %s needs the job's secret: set "
                          "SYMM_SECRET, or start the ranks by symmrun",
                          address);
    if (meeting->size == 1)
        return symm__meet_local(meeting, peer_fd);
    struct meet_entry *entries = calloc((size_t)meeting->size, sizeof(*entries));
    if (entries == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the entries of %d ranks",
                          meeting->size);
    symm_status made = entry_make(meeting, &mine);
    const struct symm_store_exchange exchange = {
        .address = address,
        .secret = meeting->secret,
        .rank = meeting->rank,
        .size = meeting->size,
        .in = &mine,
        .bytes = sizeof(mine),
        .out = entries,
        .deadline = until - symm__now(),
    };
    status = symm__store_allgather(&exchange);
    if (made != SYMM_OK)
        status = made;
    else if (status == SYMM_OK)
        status = entries_check(meeting, entries, "the job's store");
    if (status == SYMM_OK)
        status = entries_meet(meeting, &entries[0], "store", until, peer_fd);
    free(entries);
    return status;
}

/* ---- As threads ------------------------------------------------------------------ */

symm_status symm__meet_pairs(int size, int **fds)
{
    if (size < 1 || size > SYMM_MEET_MAX)
        return symm__fail(SYMM_ERR_INVALID, "a group of %d ranks: 1 to %d are possible",
                          size, SYMM_MEET_MAX);
    size_t n = (size_t)size;
    int *made = malloc(n * n * sizeof(*made));
    if (made == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the sockets of %d ranks",
                          size);
    for (size_t k = 0; k < n * n; k++)
        made[k] = -1;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                           pair) != 0) {
                int error = errno;
                symm__meet_close(made, size * size);
                free(made);
                return symm__fail_errno(
                    SYMM_ERR_SYSTEM, error,
                    "making %zu socket pairs for %d ranks (ulimit -n "
                    "limits the descriptors of a process)",
                    n * (n - 1) / 2, size);
            }
            made[i * n + j] = pair[0];
            made[j * n + i] = pair[1];
        }
    }
    *fds = made;
    return SYMM_OK;
}
