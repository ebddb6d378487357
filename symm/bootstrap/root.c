/* SPDX-License-Identifier: MIT */
/*
 * root.c - rank 0's side of a bootstrap by key.
 *
 * Gathers the other ranks, hands out the sockets between them, and ends the bootstrap with the same
 * status on all. Guarantees: connections without a valid HELLO are bounded in number (the oldest is
 * dropped) and closed after a second at most, and never stop the bootstrap; a rank that has joined
 * and hangs up, times out or fails ends it at once, with the same sentence on every rank. Refuses:
 * other users, secrets, versions and sizes, ranks out of range or taken; a refusal is answered with
 * its reason and logged.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/socket_path.h"
#include "net/acceptor.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rank_text.h"
#include "util/status.h"

#define ROOT_PENDING_MAX     64  /* connections that have not sent HELLO yet */
#define ROOT_PENDING_SECONDS 1.0 /* for one to send it */
#define ROOT_PENDING_KEEP    0.01 /* before it may have to make room for a newer one */
#define ROOT_PARTING_SECONDS 0.05 /* for all ranks to take an ABORT */
#define ROOT_ANSWER_SECONDS  0.5  /* for the last steps, once all have arrived */

struct root {
    const struct symm_bootstrap_run *run;
    double start, until;
    int *peer_fd;                       /* by rank; -1: not joined; the caller's */
    uint64_t nonce[SYMM_BOOTSTRAP_MAX]; /* by rank, of those who have joined */
    int pid[SYMM_BOOTSTRAP_MAX];
    bool done[SYMM_BOOTSTRAP_MAX]; /* by rank: has sent DONE with SYMM_OK */
    int joined;                    /* without rank 0 */
    struct symm_acceptor pending;  /* connections that have not sent HELLO */
    /* Why the last connection was refused. */
    char refused[sizeof(((struct symm_bootstrap_message *)0)->text)];
};

/* ---- Failing --------------------------------------------------------------------- */

/* Tells all joined ranks why the bootstrap has failed: this thread's last error. */
static symm_status root_abort(struct root *root, symm_status status)
{
    double until = symm__now() + ROOT_PARTING_SECONDS;
    for (int r = 1; r < root->run->size; r++) {
        if (root->peer_fd[r] < 0)
            continue;
        struct symm_bootstrap_message message =
            symm__bootstrap_message(SYMM_BOOTSTRAP_ABORT, root->run, r, root->nonce[r]);
        message.status = status;
        (void)snprintf(message.text, sizeof(message.text), "%s", symm_last_error());
        (void)symm__bootstrap_send(root->peer_fd[r], &message, NULL, 0, until);
    }
    return status;
}

static symm_status root_missing(struct root *root, int impatient)
{
    int missing[SYMM_BOOTSTRAP_MAX] = {0};
    int count = 0;
    char names[300], who[64] = "";
    for (int r = 1; r < root->run->size; r++) {
        if (root->peer_fd[r] < 0)
            missing[count++] = r;
    }
    symm__bootstrap_names(root->run, missing, count, names, sizeof(names));
    if (impatient >= 0)
        (void)snprintf(who, sizeof(who), ", when %s's deadline passed",
                       SYMM_BOOTSTRAP_WHO(root->run, impatient));
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s %s not joined after %.3g s%s: not started, on another host, or "
        "with another job id?%s%.127s",
        names, count == 1 ? "has" : "have", symm__now() - root->start, who,
        root->refused[0] ? " rank 0 has refused a connection: " : "", root->refused);
}

/* ---- Connections without a handshake yet --------------------------------- */

/* Answers with the reason, root->refused. */
static void root_refuse(struct root *root, int fd,
                        const struct symm_bootstrap_message *hello)
{
    struct symm_bootstrap_message message = symm__bootstrap_message(
        SYMM_BOOTSTRAP_REFUSED, root->run, hello->rank, hello->nonce);
    message.status = SYMM_ERR_REFUSED;
    memcpy(message.text, root->refused, sizeof(message.text));
    (void)symm__bootstrap_send(fd, &message, NULL, 0, 0);
}

static void root_log(void *user, const char *why, bool last)
{
    (void)user;
    symm__log(SYMM_LOG_WARN, "refused a connection to the job's bootstrap: %s%s", why,
              last ? " (more of them are not logged)" : "");
}

/* Takes the same time wherever the secrets differ. */
static bool root_same_secret(const struct symm_bootstrap_run *run,
                             const struct symm_bootstrap_message *hello)
{
    static const uint8_t none[SYMM_SECRET_BYTES];
    const uint8_t *secret = run->secret != NULL ? run->secret : none;
    unsigned difference = (run->secret != NULL) != (hello->has_secret == 1);
    for (int i = 0; i < SYMM_SECRET_BYTES; i++)
        difference |= (unsigned)(secret[i] ^ hello->secret[i]);
    return difference == 0;
}

/* Is this the HELLO of a rank that is still awaited? If not, root->refused says why. */
static bool root_check_hello(struct root *root, int fd, bool whole,
                             const struct symm_bootstrap_message *hello)
{
    const struct symm_bootstrap_run *run = root->run;
    const size_t bytes = sizeof(root->refused);
    char *reason = root->refused;
    unsigned uid;
    if (!symm__bootstrap_same_user(fd, &uid))
        (void)snprintf(reason, bytes, "it comes from user %u", uid);
    else if (!whole || hello->kind != SYMM_BOOTSTRAP_HELLO)
        (void)snprintf(reason, bytes, "it did not begin with a handshake of libsymm");
    else if (!root_same_secret(run, hello))
        (void)snprintf(
            reason, bytes,
            "rank %d of process %d does not know the job's secret (SYMM_SECRET)",
            hello->rank, hello->pid);
    else if (hello->protocol != SYMM_BOOTSTRAP_PROTOCOL ||
             hello->library != SYMM_BOOTSTRAP_LIBRARY)
        (void)snprintf(
            reason, bytes,
            "rank %d runs libsymm %u.%u.%u, rank 0 runs " SYMM_VERSION_STRING,
            hello->rank, hello->library >> 16, hello->library >> 8 & 0xff,
            hello->library & 0xff);
    else if (hello->size != run->size)
        (void)snprintf(reason, bytes,
                       "rank %d says that the job has %d ranks, rank 0 says %d",
                       hello->rank, hello->size, run->size);
    else if (hello->rank < 1 || hello->rank >= run->size)
        (void)snprintf(reason, bytes, "process %d calls itself rank %d of %d%s",
                       hello->pid, hello->rank, run->size,
                       hello->rank == 0 ? ", but rank 0 has opened this bootstrap"
                                        : "");
    else if (root->peer_fd[hello->rank] >= 0)
        (void)snprintf(
            reason, bytes,
            "rank %d has joined already, as process %d: process %d comes second",
            hello->rank, root->pid[hello->rank], hello->pid);
    else
        return true;
    return false;
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *root_hear_pending(void *user, struct symm_guest *guest)
{
    struct root *root = user;
    int fds_count;
    struct symm_bootstrap_message hello;
    enum symm_seqpacket wire =
        symm__bootstrap_recv(guest->fd, &hello, NULL, 0, &fds_count, 0);
    if (wire == SYMM_SEQPACKET_AGAIN)
        return NULL;
    if (wire != SYMM_SEQPACKET_OK && wire != SYMM_SEQPACKET_CUT &&
        wire != SYMM_SEQPACKET_CUT_FDS)
        return "";
    if (!root_check_hello(root, guest->fd, wire == SYMM_SEQPACKET_OK, &hello)) {
        root_refuse(root, guest->fd, &hello);
        return root->refused;
    }
    struct symm_bootstrap_message welcome = symm__bootstrap_message(
        SYMM_BOOTSTRAP_WELCOME, root->run, hello.rank, hello.nonce);
    welcome.first = symm__bootstrap_rank(root->run, 0);
    wire = symm__bootstrap_send(guest->fd, &welcome, NULL, 0, 0);
    /* A rank that has hung up since its HELLO has failed: the next poll finds it. */
    if (wire != SYMM_SEQPACKET_OK && wire != SYMM_SEQPACKET_CLOSED)
        return "";
    root->peer_fd[hello.rank] = guest->fd;
    root->nonce[hello.rank] = hello.nonce;
    root->pid[hello.rank] = hello.pid;
    symm__bootstrap_learn(root->run, hello.rank, hello.first);
    root->joined++;
    root->pending.over = root->joined == root->run->size - 1;
    guest->fd = -1;
    return NULL;
}

/* ---- Gathering ------------------------------------------------------------------- */

/* Receives from a rank that has joined. */
static symm_status root_hear_joined(struct root *root, int rank)
{
    struct symm_bootstrap_message message;
    int fds_count;
    enum symm_seqpacket wire =
        symm__bootstrap_recv(root->peer_fd[rank], &message, NULL, 0, &fds_count, 0);
    if (wire == SYMM_SEQPACKET_AGAIN)
        return SYMM_OK;
    if (wire == SYMM_SEQPACKET_CLOSED)
        return symm__fail(SYMM_ERR_PEER_DEAD,
                          "%s (process %d) has ended or hung up during the bootstrap",
                          SYMM_BOOTSTRAP_WHO(root->run, rank), root->pid[rank]);
    if (wire == SYMM_SEQPACKET_ERROR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "receiving from %s",
                                SYMM_BOOTSTRAP_WHO(root->run, rank));
    if (wire != SYMM_SEQPACKET_OK || message.nonce != root->nonce[rank] ||
        message.rank != rank)
        return symm__fail(SYMM_ERR_DAMAGED,
                          "%s sent a damaged message to the bootstrap",
                          SYMM_BOOTSTRAP_WHO(root->run, rank));
    if (message.kind == SYMM_BOOTSTRAP_GIVE_UP && root->joined < root->run->size - 1)
        return root_missing(root, rank);
    if (message.kind == SYMM_BOOTSTRAP_GIVE_UP)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "%s's deadline passed when all ranks had come but the bootstrap "
            "was not over: give more time by SYMM_INIT_TIMEOUT",
            SYMM_BOOTSTRAP_WHO(root->run, rank));
    if (message.kind == SYMM_BOOTSTRAP_DONE && message.status != SYMM_OK)
        return symm__fail(symm__peer_status(message.status),
                          "%s failed in the job's bootstrap: %s",
                          SYMM_BOOTSTRAP_WHO(root->run, rank), message.text);
    root->done[rank] = message.kind == SYMM_BOOTSTRAP_DONE && root->pending.over;
    return SYMM_OK;
}

/* Waits for ranks that have joined and are not done, and for new connections, until one of them
 * sends something, or the deadline. */
static symm_status root_turn(struct root *root)
{
    struct pollfd polls[SYMM_BOOTSTRAP_MAX + 1 + ROOT_PENDING_MAX];
    int rank[SYMM_BOOTSTRAP_MAX], joined = 0, error;
    double due = symm__acceptor_due(&root->pending);
    for (int r = 1; r < root->run->size; r++) {
        if (root->peer_fd[r] < 0 || root->done[r])
            continue;
        rank[joined] = r;
        polls[joined++] = (struct pollfd){.fd = root->peer_fd[r], .events = POLLIN};
    }
    size_t count = symm__acceptor_watch(&root->pending, polls + joined);
    struct timespec span =
        symm__timespec((due < root->until ? due : root->until) - symm__now());
    int ready = ppoll(polls, (nfds_t)joined + count, &span, NULL);
    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "rank 0 polling the bootstrap");
    if (ready < 0)
        return SYMM_OK;
    for (int i = 0; i < joined; i++) {
        symm_status status =
            polls[i].revents == 0 ? SYMM_OK : root_hear_joined(root, rank[i]);
        if (status != SYMM_OK)
            return status;
    }
    error = symm__acceptor_serve(&root->pending, polls + joined, count);
    return error == 0 ? SYMM_OK
                      : symm__fail_errno(
                            SYMM_ERR_SYSTEM, error,
                            "rank 0 accepting a rank's connection to the bootstrap");
}

static symm_status root_gather(struct root *root)
{
    while (root->joined < root->run->size - 1) {
        symm_status status = root_turn(root);
        if (status != SYMM_OK)
            return status;
        if (root->joined < root->run->size - 1 && symm__now() >= root->until)
            return root_missing(root, -1);
    }
    return SYMM_OK;
}

/* ---- Handing out, ending --------------------------------------------------------- */

static symm_status root_give(struct root *root, int rank, int first, int count,
                             const int *fds)
{
    struct symm_bootstrap_message message = symm__bootstrap_message(
        SYMM_BOOTSTRAP_PEERS, root->run, rank, root->nonce[rank]);
    message.first = first;
    message.count = count;
    enum symm_seqpacket wire =
        symm__bootstrap_send(root->peer_fd[rank], &message, fds, count, root->until);
    if (wire == SYMM_SEQPACKET_OK)
        return SYMM_OK;
    if (wire == SYMM_SEQPACKET_CLOSED)
        return symm__fail(SYMM_ERR_PEER_DEAD,
                          "%s (process %d) has ended or hung up during the bootstrap",
                          SYMM_BOOTSTRAP_WHO(root->run, rank), root->pid[rank]);
    if (wire == SYMM_SEQPACKET_AGAIN)
        return symm__fail(SYMM_ERR_TIMEOUT,
                          "%s did not take its sockets before the bootstrap's deadline",
                          SYMM_BOOTSTRAP_WHO(root->run, rank));
    return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "sending sockets to %s",
                            SYMM_BOOTSTRAP_WHO(root->run, rank));
}

/*
 * Sockets between rank i and all higher ranks. The root makes them, and passes each on
 * at once: it does not wait in between, and holds and has in flight no more than it
 * must.
 */
static symm_status root_distribute_of(struct root *root, int i)
{
    int near[SYMM_BOOTSTRAP_MAX], far[SYMM_BOOTSTRAP_MAX];
    int count = 0;
    symm_status status = SYMM_OK;
    for (int j = i + 1; j < root->run->size; j++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                       pair) != 0) {
            status = symm__fail_errno(
                SYMM_ERR_SYSTEM, errno, "making the sockets between %s and %s",
                SYMM_BOOTSTRAP_WHO(root->run, i), SYMM_BOOTSTRAP_WHO(root->run, j));
            break;
        }
        near[count] = pair[0];
        far[count++] = pair[1];
    }
    if (status == SYMM_OK && count > 0)
        status = root_give(root, i, i + 1, count, near);
    for (int k = 0; k < count && status == SYMM_OK; k++)
        status = root_give(root, i + 1 + k, i, 1, &far[k]);
    symm__seqpacket_close(near, count);
    symm__seqpacket_close(far, count);
    return status;
}

/* Waits for DONE of every other rank: it has all its sockets. */
static symm_status root_confirm(struct root *root)
{
    int waiting[SYMM_BOOTSTRAP_MAX] = {0}, count;
    char names[300];
    do {
        symm_status status = root_turn(root);
        if (status != SYMM_OK)
            return status;
        count = 0;
        for (int r = 1; r < root->run->size; r++) {
            if (!root->done[r])
                waiting[count++] = r;
        }
    } while (count > 0 && symm__now() < root->until);
    if (count == 0)
        return SYMM_OK;
    symm__bootstrap_names(root->run, waiting, count, names, sizeof(names));
    return symm__fail(SYMM_ERR_TIMEOUT,
                      "%s joined the bootstrap but did not answer within %.3g s: "
                      "stopped, or short of processor time?",
                      names, symm__now() - root->start);
}

static symm_status root_finish(struct root *root)
{
    symm_status status = SYMM_OK;
    /* A rank that joins just before the deadline needs some milliseconds more. */
    if (root->until < symm__now() + ROOT_ANSWER_SECONDS)
        root->until = symm__now() + ROOT_ANSWER_SECONDS;
    for (int i = 1; i < root->run->size && status == SYMM_OK; i++)
        status = root_distribute_of(root, i);
    if (status == SYMM_OK)
        status = root_confirm(root);
    if (status != SYMM_OK)
        return root_abort(root, status);
    for (int r = 1; r < root->run->size; r++) {
        struct symm_bootstrap_message go =
            symm__bootstrap_message(SYMM_BOOTSTRAP_GO, root->run, r, root->nonce[r]);
        for (int i = 0; i < root->run->size; i++)
            go.ranks[i] = symm__bootstrap_rank(root->run, i);
        /* The first exchange finds a rank that dies now or later. */
        (void)symm__bootstrap_send(root->peer_fd[r], &go, NULL, 0, root->until);
    }
    return SYMM_OK;
}

symm_status symm__bootstrap_root(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd)
{
    struct root root = {
        .run = run,
        .start = symm__now(),
        .until = until,
        .peer_fd = peer_fd,
        .pending = {.most = ROOT_PENDING_MAX,
                    .guest_bytes = sizeof(struct symm_guest),
                    .seconds = ROOT_PENDING_SECONDS,
                    .keep = ROOT_PENDING_KEEP,
                    .hear = root_hear_pending,
                    .refused = root_log,
                    .user = &root},
    };
    symm_status status = symm__socket_path_claim(place, until, &root.pending.listener);
    if (status != SYMM_OK)
        return status;
    status = symm__acceptor_open(&root.pending)
                 ? root_gather(&root)
                 : symm__fail(SYMM_ERR_NOMEM, "rank 0: no memory for the bootstrap");
    if (status != SYMM_OK)
        status = root_abort(&root, status);
    symm__acceptor_close(&root.pending);
    /* While the listener lives no rank takes the name for a dead owner's. */
    symm__socket_path_leave(place);
    symm__seqpacket_close(&root.pending.listener, 1); /* -1: no more are accepted */
    return status == SYMM_OK ? root_finish(&root) : status;
}
