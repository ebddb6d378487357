/* SPDX-License-Identifier: MIT */
/*
 * join.c - the side of ranks 1 and up of a bootstrap by key.
 *
 * Tries to connect until rank 0 listens, sends its handshake, then follows the root's packets.
 * Every failure has a sentence: no root listens, this rank was refused and why, which rank
 * is missing or has failed. Refuses sockets that are not what was announced.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/socket_path.h"
#include "util/clock.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"

#define JOIN_PAUSE_FIRST 0.0002 /* between tries to connect */
#define JOIN_PAUSE_LAST  0.02
#define JOIN_ANSWER_SECONDS                                                            \
    0.5 /* for rank 0 to name the missing ranks, after the deadline */

#define ROOT(join) SYMM_BOOTSTRAP_WHO((join)->run, 0)
#define SELF(join) SYMM_BOOTSTRAP_WHO((join)->run, (join)->run->rank)

struct join {
    const struct symm_bootstrap_run *run;
    const struct symm_socket_path *place;
    double start, until;
    uint64_t nonce;
    int fd;       /* connection to rank 0; -1: none */
    bool welcome; /* rank 0 has accepted this rank */
    bool gave_up; /* GIVE_UP was sent */
    bool over;    /* GO has arrived */
    int have;     /* sockets to other joining ranks so far */
    int *peer_fd; /* by rank: theirs; [0] is set at the end; the caller's */
};

static symm_status join_say(struct join *join,
                            const struct symm_bootstrap_message *message)
{
    enum symm_seqpacket wire =
        symm__bootstrap_send(join->fd, message, NULL, 0, join->until);
    if (wire == SYMM_SEQPACKET_ERROR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s sending to %s", SELF(join),
                                ROOT(join));
    return SYMM_OK; /* a hang-up is found by receiving, with what the root said before */
}

static symm_status join_greet(struct join *join)
{
    struct symm_bootstrap_message hello = symm__bootstrap_message(
        SYMM_BOOTSTRAP_HELLO, join->run, join->run->rank, join->nonce);
    hello.pid = (int32_t)getpid();
    hello.first = symm__bootstrap_rank(join->run, join->run->rank);
    if (join->run->secret != NULL) {
        hello.has_secret = 1;
        memcpy(hello.secret, join->run->secret, SYMM_SECRET_BYTES);
    }
    return join_say(join, &hello);
}

static symm_status join_unopened(const struct join *join)
{
    return symm__fail(SYMM_ERR_TIMEOUT,
                      "%s has not opened the job's bootstrap (or has left it already): "
                      "%s tried %s for %.3g s. Is it running on this host, as this "
                      "user, with the same job id (SYMM_JOB_ID) and SYMM_RUNTIME_DIR?",
                      ROOT(join), SELF(join), join->place->path,
                      symm__now() - join->start);
}

/* A connection to the listener at the path, with the handshake sent. */
static symm_status join_connect(struct join *join)
{
    double pause = JOIN_PAUSE_FIRST;
    for (;;) {
        symm_status status = symm__socket_path_connect(join->place, &join->fd);
        if (status != SYMM_OK)
            return status;
        if (join->fd >= 0)
            return join_greet(join);
        if (symm__now() + pause >= join->until) {
            symm__socket_path_tidy(join->place);
            return join_unopened(join);
        }
        symm__sleep(pause);
        pause = pause * 1.5 < JOIN_PAUSE_LAST ? pause * 1.5 : JOIN_PAUSE_LAST;
    }
}

/* Is it what the root says it is: a connected local packet socket? */
static bool join_is_socket(int fd)
{
    int type = 0, domain = 0;
    socklen_t bytes = sizeof(type);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
        return false;
    bytes = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 &&
           type == SOCK_SEQPACKET && domain == AF_UNIX;
}

/* Takes fds[count] if all is right, leaving -1 in their places; else nothing. */
static symm_status join_take(struct join *join,
                             const struct symm_bootstrap_message *message, int *fds,
                             int count)
{
    int size = join->run->size;
    int first = message->first;
    bool right = message->count == count && count > 0 && first >= 1 && first < size &&
                 count <= size - first;
    for (int i = 0; i < count && right; i++)
        right = first + i != join->run->rank && join->peer_fd[first + i] < 0 &&
                join_is_socket(fds[i]);
    if (!right)
        return symm__fail(SYMM_ERR_DAMAGED,
                          "%s sent %s other sockets than it announced", ROOT(join),
                          SELF(join));
    for (int i = 0; i < count; i++) {
        join->peer_fd[first + i] = fds[i];
        fds[i] = -1;
    }
    join->have += count;
    return SYMM_OK;
}

/* Sends DONE: all sockets are here, or this rank has failed. */
static symm_status join_done(struct join *join, symm_status status)
{
    struct symm_bootstrap_message done = symm__bootstrap_message(
        SYMM_BOOTSTRAP_DONE, join->run, join->run->rank, join->nonce);
    done.status = status;
    if (status == SYMM_OK)
        return join_say(join, &done);
    (void)snprintf(done.text, sizeof(done.text), "%s", symm_last_error());
    (void)symm__bootstrap_send(join->fd, &done, NULL, 0, 0);
    return status;
}

static symm_status join_obey(struct join *join,
                             const struct symm_bootstrap_message *message, int *fds,
                             int count)
{
    symm_status status = SYMM_OK;
    switch (message->kind) {
    case SYMM_BOOTSTRAP_WELCOME:
        join->welcome = true;
        symm__bootstrap_learn(join->run, 0, message->first);
        return SYMM_OK;
    case SYMM_BOOTSTRAP_REFUSED:
        return symm__fail(SYMM_ERR_REFUSED, "%s refused %s at %s: %s", ROOT(join),
                          SELF(join), join->place->path, message->text);
    case SYMM_BOOTSTRAP_ABORT: /* rank 0 has logged it */
        return symm__fail_quiet(symm__peer_status(message->status), message->text);
    case SYMM_BOOTSTRAP_PEERS:
        status = join_take(join, message, fds, count);
        if (status != SYMM_OK || join->have == join->run->size - 2)
            status = join_done(join, status);
        return status;
    case SYMM_BOOTSTRAP_GO:
        join->over = join->have == join->run->size - 2;
        for (int i = 0; i < join->run->size; i++)
            symm__bootstrap_learn(join->run, i, message->ranks[i]);
        if (join->over)
            return SYMM_OK;
        break;
    default:
        break;
    }
    return symm__fail(SYMM_ERR_DAMAGED, "%s sent %s a message out of turn (%d)",
                      ROOT(join), SELF(join), message->kind);
}

/* The deadline has passed: asks rank 0 which ranks are missing, and waits a little for the
 * answer. */
static symm_status join_give_up(struct join *join)
{
    if (join->gave_up)
        return symm__fail(SYMM_ERR_TIMEOUT,
                          "%s has opened the job's bootstrap at %s but does not answer "
                          "%s, after %.3g s: is it stopped?",
                          ROOT(join), join->place->path, SELF(join),
                          symm__now() - join->start);
    struct symm_bootstrap_message message = symm__bootstrap_message(
        SYMM_BOOTSTRAP_GIVE_UP, join->run, join->run->rank, join->nonce);
    join->gave_up = true;
    join->until = symm__now() + JOIN_ANSWER_SECONDS;
    return join_say(join, &message);
}

static symm_status join_hung_up(struct join *join)
{
    (void)close(join->fd);
    join->fd = -1;
    if (!join->welcome && !join->gave_up && symm__now() < join->until) {
        /* The end of another bootstrap, or strangers that crowd this one: try again. */
        symm__sleep(JOIN_PAUSE_FIRST);
        return join_connect(join);
    }
    symm__socket_path_tidy(join->place);
    return symm__fail(
        SYMM_ERR_PEER_DEAD,
        "%s has ended or hung up during the job's bootstrap (%s waited at %s)",
        ROOT(join), SELF(join), join->place->path);
}

static symm_status join_hear(struct join *join)
{
    struct symm_bootstrap_message message;
    int fds[SYMM_SEQPACKET_MAX_FDS];
    int count;
    enum symm_seqpacket wire = symm__bootstrap_recv(
        join->fd, &message, fds, SYMM_SEQPACKET_MAX_FDS, &count, join->until);
    if (wire == SYMM_SEQPACKET_AGAIN)
        return join_give_up(join);
    if (wire == SYMM_SEQPACKET_CLOSED)
        return join_hung_up(join);
    if (wire == SYMM_SEQPACKET_CUT_FDS && errno == EMFILE)
        return join_done(join, symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                                "%s taking its sockets to %d other "
                                                "ranks (ulimit -n is too low)",
                                                SELF(join), join->run->size - 2));
    if (wire == SYMM_SEQPACKET_ERROR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s receiving from %s",
                                SELF(join), ROOT(join));
    bool sane = wire == SYMM_SEQPACKET_OK && message.nonce == join->nonce &&
                message.rank == join->run->rank &&
                (count == 0 || message.kind == SYMM_BOOTSTRAP_PEERS);
    symm_status status =
        sane ? join_obey(join, &message, fds, count)
             : symm__fail(SYMM_ERR_DAMAGED,
                          "what listens at %s sent %s a damaged message",
                          join->place->path, SELF(join));
    if (wire == SYMM_SEQPACKET_OK)
        symm__seqpacket_close(fds, count); /* those that were not taken */
    return status;
}

symm_status symm__bootstrap_join(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd)
{
    struct join join = {
        .run = run,
        .place = place,
        .start = symm__now(),
        .until = until,
        .fd = -1,
        .peer_fd = peer_fd,
    };
    symm_status status = symm__random(&join.nonce, sizeof(join.nonce));
    if (status == SYMM_OK)
        status = join_connect(&join);
    while (status == SYMM_OK && !join.over) {
        /* Two ranks need no further socket: done as soon as
         * welcome. */
        bool before = join.welcome;
        status = join_hear(&join);
        if (status == SYMM_OK && join.welcome && !before && run->size == 2)
            status = join_done(&join, SYMM_OK);
    }
    if (status != SYMM_OK) {
        symm__seqpacket_close(&join.fd, 1);
        return status; /* symm__bootstrap_local closes what peer_fd holds */
    }
    peer_fd[0] = join.fd;
    return SYMM_OK;
}
