/* SPDX-License-Identifier: MIT */
/*
 * root.c - rank 0's side of a meeting by key.
 *
 * Gathers the joiners, hands out the sockets between them, and ends the meeting for all
 * at once, well or badly. Guarantees: connections that do not prove to be a joiner are
 * few at a time (oldest out), last a second at most and never stop the meeting; a
 * joiner that hangs up, gives up or fails ends it at once, with the same sentence on
 * every rank. Refuses: other users, secrets, versions and sizes, ranks out of range or
 * taken; a refusal is answered with its reason and logged.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/protocol.h"
#include "bootstrap/socket_path.h"
#include "net/seqpacket.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rank_text.h"
#include "util/status.h"

#define HUB_PENDING_MAX     64   /* connections that have not said HELLO yet */
#define HUB_PENDING_SECONDS 1.0  /* for one to say it */
#define HUB_PENDING_KEEP    0.01 /* before it may have to make room for a newer one */
#define HUB_LOGGED_MAX      16   /* refusals that are logged one by one */
#define HUB_PARTING_SECONDS 0.05 /* for last words */
#define HUB_ANSWER_SECONDS  0.5  /* for the last steps, once all have come */

struct hub_pending {
    int fd;
    double since;
};

struct hub {
    const struct symm_meeting *meeting;
    double start, until;
    int listener;
    int *peer_fd;                  /* by rank; -1: not joined; the caller's */
    uint64_t nonce[SYMM_MEET_MAX]; /* by rank, of those who have joined */
    int pid[SYMM_MEET_MAX];
    int joined;                                  /* without rank 0 */
    struct hub_pending pending[HUB_PENDING_MAX]; /* oldest first */
    int pending_count;
    int refusals;
    char refused[128]; /* why the last one was; "" while there is none */
};

/* ---- Saying ---------------------------------------------------------------------- */

static enum symm_wire hub_send(int fd, const struct symm_meet_message *message,
                               const int *fds, int fds_count, double until)
{
    struct iovec part = symm__wire_part(message, sizeof(*message));
    return symm__wire_send(fd, &part, 1, fds, fds_count, until);
}

/* Tells all who have come why the meeting has failed: this thread's last error. */
static symm_status hub_abort(struct hub *hub, symm_status status)
{
    double until = symm__now() + HUB_PARTING_SECONDS;
    for (int r = 1; r < hub->meeting->size; r++) {
        if (hub->peer_fd[r] < 0)
            continue;
        struct symm_meet_message message =
            symm__meet_message(SYMM_MEET_ABORT, hub->meeting, r, hub->nonce[r]);
        message.status = status;
        (void)snprintf(message.text, sizeof(message.text), "%s", symm_last_error());
        (void)hub_send(hub->peer_fd[r], &message, NULL, 0, until);
    }
    return status;
}

static symm_status hub_missing(struct hub *hub, int impatient)
{
    int missing[SYMM_MEET_MAX] = {0};
    int count = 0;
    char names[300], who[64] = "";
    for (int r = 1; r < hub->meeting->size; r++) {
        if (hub->peer_fd[r] < 0)
            missing[count++] = r;
    }
    symm__ranks_text(missing, count, names, sizeof(names));
    if (impatient >= 0)
        (void)snprintf(who, sizeof(who), ", when rank %d's deadline passed", impatient);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s %s not joined after %.3g s%s: not started, on another host, or "
        "with another job id?%s%s",
        names, count == 1 ? "has" : "have", symm__now() - hub->start, who,
        hub->refusals > 0 ? " rank 0 has refused a connection: " : "", hub->refused);
}

/* ---- Connections that have not said who they are --------------------------------- */

static void pending_drop(struct hub *hub, int index)
{
    int fd = hub->pending[index].fd;
    if (fd >= 0)
        (void)close(fd);
    hub->pending_count--;
    memmove(&hub->pending[index], &hub->pending[index + 1],
            (size_t)(hub->pending_count - index) * sizeof(hub->pending[0]));
}

/* Answers with the reason, which the detector has put together; logs; the caller
 * closes. */
static void hub_refuse(struct hub *hub, int fd, const struct symm_meet_message *hello,
                       const char *reason)
{
    struct symm_meet_message message =
        symm__meet_message(SYMM_MEET_REFUSED, hub->meeting, hello->rank, hello->nonce);
    message.status = SYMM_ERR_REFUSED;
    (void)snprintf(message.text, sizeof(message.text), "%s", reason);
    (void)hub_send(fd, &message, NULL, 0, 0);
    hub->refusals++;
    (void)snprintf(hub->refused, sizeof(hub->refused), "%.127s", reason);
    if (hub->refusals <= HUB_LOGGED_MAX)
        symm__log(
            SYMM_LOG_WARN, "refused a connection to the job's meeting: %s%s", reason,
            hub->refusals == HUB_LOGGED_MAX ? " (more of them are not logged)" : "");
}

/* Takes as long whatever the difference is. */
static bool hub_same_secret(const struct symm_meeting *meeting,
                            const struct symm_meet_message *hello)
{
    static const uint8_t none[SYMM_SECRET_BYTES];
    const uint8_t *secret = meeting->secret != NULL ? meeting->secret : none;
    unsigned difference = (meeting->secret != NULL) != (hello->has_secret == 1);
    for (int i = 0; i < SYMM_SECRET_BYTES; i++)
        difference |= (unsigned)(secret[i] ^ hello->secret[i]);
    return difference == 0;
}

/* Is this HELLO one of the ranks we wait for? If not, `reason` says why. */
static bool hub_judge(const struct hub *hub, int fd, bool whole,
                      const struct symm_meet_message *hello, char *reason, size_t bytes)
{
    const struct symm_meeting *meeting = hub->meeting;
    unsigned uid;
    if (!symm__meet_same_user(fd, &uid))
        (void)snprintf(reason, bytes, "it comes from user %u", uid);
    else if (!whole || hello->kind != SYMM_MEET_HELLO)
        (void)snprintf(reason, bytes, "it did not begin with a greeting of libsymm");
    else if (!hub_same_secret(meeting, hello))
        (void)snprintf(
            reason, bytes,
            "rank %d of process %d does not know the job's secret (SYMM_SECRET)",
            hello->rank, hello->pid);
    else if (hello->protocol != SYMM_MEET_PROTOCOL ||
             hello->library != SYMM_MEET_LIBRARY)
        (void)snprintf(
            reason, bytes,
            "rank %d runs libsymm %u.%u.%u, rank 0 runs " SYMM_VERSION_STRING,
            hello->rank, hello->library >> 16, hello->library >> 8 & 0xff,
            hello->library & 0xff);
    else if (hello->size != meeting->size)
        (void)snprintf(reason, bytes,
                       "rank %d says that the job has %d ranks, rank 0 says %d",
                       hello->rank, hello->size, meeting->size);
    else if (hello->rank < 1 || hello->rank >= meeting->size)
        (void)snprintf(reason, bytes, "process %d calls itself rank %d of %d%s",
                       hello->pid, hello->rank, meeting->size,
                       hello->rank == 0 ? ", but rank 0 has opened this meeting" : "");
    else if (hub->peer_fd[hello->rank] >= 0)
        (void)snprintf(
            reason, bytes,
            "rank %d has joined already, as process %d: process %d comes second",
            hello->rank, hub->pid[hello->rank], hello->pid);
    else
        return true;
    return false;
}

/* Something has come from pending[index], or its end. True: the entry is gone. */
static bool hub_hear_pending(struct hub *hub, int index)
{
    int fd = hub->pending[index].fd, fds_count;
    struct symm_meet_message hello;
    struct iovec part = {.iov_base = &hello, .iov_len = sizeof(hello)};
    size_t bytes;
    char reason[sizeof(hello.text)];
    memset(&hello, 0, sizeof(hello));
    enum symm_wire wire = symm__wire_recv(fd, &part, 1, &bytes, NULL, 0, &fds_count, 0);
    if (wire == SYMM_WIRE_AGAIN)
        return false;
    if (wire == SYMM_WIRE_OK || wire == SYMM_WIRE_CUT || wire == SYMM_WIRE_CUT_FDS) {
        bool whole = wire == SYMM_WIRE_OK && symm__meet_message_check(&hello, bytes);
        if (hub_judge(hub, fd, whole, &hello, reason, sizeof(reason))) {
            int rank = hello.rank;
            struct symm_meet_message welcome =
                symm__meet_message(SYMM_MEET_WELCOME, hub->meeting, rank, hello.nonce);
            wire = hub_send(fd, &welcome, NULL, 0, 0);
            /* One that has hung up since its greeting has failed, and is found next. */
            if (wire == SYMM_WIRE_OK || wire == SYMM_WIRE_CLOSED) {
                hub->peer_fd[rank] = fd;
                hub->nonce[rank] = hello.nonce;
                hub->pid[rank] = hello.pid;
                hub->joined++;
                hub->pending[index].fd = -1;
            }
        } else {
            hub_refuse(hub, fd, &hello, reason);
        }
    }
    pending_drop(hub, index);
    return true;
}

static symm_status hub_accept(struct hub *hub)
{
    /* As many as may have queued up at once; more come in the next turn. */
    for (int i = 0; i < HUB_PENDING_MAX; i++) {
        if (hub->pending_count == HUB_PENDING_MAX) {
            if (symm__now() < hub->pending[0].since + HUB_PENDING_KEEP)
                return SYMM_OK;
            pending_drop(hub, 0); /* a joiner that loses its place tries again */
        }
        int fd = accept4(hub->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno == EAGAIN)
            return SYMM_OK;
        if (fd < 0)
            return symm__fail_errno(
                SYMM_ERR_SYSTEM, errno,
                "rank 0 accepting a rank's connection to the meeting");
        hub->pending[hub->pending_count] =
            (struct hub_pending){.fd = fd, .since = symm__now()};
        hub->pending_count++;
        (void)hub_hear_pending(hub, hub->pending_count - 1);
        if (hub->joined == hub->meeting->size - 1)
            return SYMM_OK;
    }
    return SYMM_OK;
}

/* ---- Gathering ------------------------------------------------------------------- */

/* Receives from a rank that has joined. *done: it said DONE and all is well with it. */
static symm_status hub_hear_joined(struct hub *hub, int rank, bool *done)
{
    struct symm_meet_message message;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof(message)};
    size_t bytes;
    int fds_count;
    *done = false;
    enum symm_wire wire =
        symm__wire_recv(hub->peer_fd[rank], &part, 1, &bytes, NULL, 0, &fds_count, 0);
    if (wire == SYMM_WIRE_AGAIN)
        return SYMM_OK;
    if (wire == SYMM_WIRE_CLOSED)
        return symm__fail(
            SYMM_ERR_PEER_DEAD,
            "rank %d (process %d) has ended or hung up during the meeting", rank,
            hub->pid[rank]);
    if (wire == SYMM_WIRE_ERROR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "receiving from rank %d", rank);
    if (wire != SYMM_WIRE_OK || !symm__meet_message_check(&message, bytes) ||
        message.nonce != hub->nonce[rank] || message.rank != rank)
        return symm__fail(SYMM_ERR_DAMAGED,
                          "rank %d sent a damaged message to the meeting", rank);
    if (message.kind == SYMM_MEET_GIVE_UP && hub->joined < hub->meeting->size - 1)
        return hub_missing(hub, rank);
    if (message.kind == SYMM_MEET_GIVE_UP)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "rank %d's deadline passed when all ranks had come but the meeting "
            "was not over: give more time by SYMM_INIT_TIMEOUT",
            rank);
    if (message.kind == SYMM_MEET_DONE && message.status != SYMM_OK)
        return symm__fail(symm__peer_status(message.status),
                          "rank %d failed in the job's meeting: %s", rank,
                          message.text);
    *done = message.kind == SYMM_MEET_DONE;
    return SYMM_OK;
}

/* Who is polled: the listener, the pending ones, the joined ones. */
struct hub_polls {
    struct pollfd poll[1 + HUB_PENDING_MAX + SYMM_MEET_MAX];
    int count, pending, joined; /* pending, joined: where those begin */
    int rank[SYMM_MEET_MAX];    /* of the joined ones, in the order of poll */
};

static double hub_set_polls(const struct hub *hub, struct hub_polls *polls)
{
    double wake = hub->until;
    double now = symm__now();
    bool room = hub->pending_count < HUB_PENDING_MAX ||
                now >= hub->pending[0].since + HUB_PENDING_KEEP;
    /* poll ignores negative descriptors. */
    polls->poll[0] = (struct pollfd){.fd = room ? hub->listener : -1, .events = POLLIN};
    polls->count = polls->pending = 1;
    for (int i = 0; i < hub->pending_count; i++)
        polls->poll[polls->count++] =
            (struct pollfd){.fd = hub->pending[i].fd, .events = POLLIN};
    polls->joined = polls->count;
    for (int r = 1; r < hub->meeting->size; r++) {
        if (hub->peer_fd[r] < 0)
            continue;
        polls->rank[polls->count - polls->joined] = r;
        polls->poll[polls->count++] =
            (struct pollfd){.fd = hub->peer_fd[r], .events = POLLIN};
    }
    if (hub->pending_count > 0) {
        double life = room ? HUB_PENDING_SECONDS : HUB_PENDING_KEEP;
        if (hub->pending[0].since + life < wake)
            wake = hub->pending[0].since + life;
    }
    return wake - now;
}

static symm_status hub_gather_once(struct hub *hub)
{
    struct hub_polls polls;
    struct timespec span = symm__timespec(hub_set_polls(hub, &polls));
    int ready = ppoll(polls.poll, (nfds_t)polls.count, &span, NULL);
    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "rank 0 polling the meeting");
    if (ready < 0)
        return SYMM_OK;
    for (int i = polls.joined; i < polls.count; i++) {
        bool done;
        if (polls.poll[i].revents == 0)
            continue;
        symm_status status = hub_hear_joined(hub, polls.rank[i - polls.joined], &done);
        if (status != SYMM_OK)
            return status;
    }
    /* From the newest on, so that indices of those still to be heard do not move. */
    for (int i = polls.joined - 1; i >= polls.pending; i--) {
        if (polls.poll[i].revents != 0)
            (void)hub_hear_pending(hub, i - polls.pending);
    }
    while (hub->pending_count > 0 &&
           symm__now() > hub->pending[0].since + HUB_PENDING_SECONDS)
        pending_drop(hub, 0);
    return polls.poll[0].revents != 0 ? hub_accept(hub) : SYMM_OK;
}

static symm_status hub_gather(struct hub *hub)
{
    while (hub->joined < hub->meeting->size - 1) {
        symm_status status = hub_gather_once(hub);
        if (status != SYMM_OK)
            return status;
        if (hub->joined < hub->meeting->size - 1 && symm__now() >= hub->until)
            return hub_missing(hub, -1);
    }
    return SYMM_OK;
}

/* ---- Handing out, ending --------------------------------------------------------- */

static symm_status hub_give(struct hub *hub, int rank, int first, int count,
                            const int *fds)
{
    struct symm_meet_message message =
        symm__meet_message(SYMM_MEET_PEERS, hub->meeting, rank, hub->nonce[rank]);
    message.first = first;
    message.count = count;
    enum symm_wire wire =
        hub_send(hub->peer_fd[rank], &message, fds, count, hub->until);
    if (wire == SYMM_WIRE_OK)
        return SYMM_OK;
    if (wire == SYMM_WIRE_CLOSED)
        return symm__fail(
            SYMM_ERR_PEER_DEAD,
            "rank %d (process %d) has ended or hung up during the meeting", rank,
            hub->pid[rank]);
    if (wire == SYMM_WIRE_AGAIN)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "rank %d did not take its sockets before the meeting's deadline", rank);
    return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "sending sockets to rank %d", rank);
}

/*
 * Sockets between rank i and all higher ranks. The hub makes them, and passes each on
 * at once: it waits for nobody in between, and holds and has in flight no more than it
 * must.
 */
static symm_status hub_distribute_of(struct hub *hub, int i)
{
    int near[SYMM_MEET_MAX], far[SYMM_MEET_MAX];
    int count = 0;
    symm_status status = SYMM_OK;
    for (int j = i + 1; j < hub->meeting->size; j++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                       pair) != 0) {
            status = symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                      "making the sockets between rank %d and rank %d",
                                      i, j);
            break;
        }
        near[count] = pair[0];
        far[count++] = pair[1];
    }
    if (status == SYMM_OK && count > 0)
        status = hub_give(hub, i, i + 1, count, near);
    for (int k = 0; k < count && status == SYMM_OK; k++)
        status = hub_give(hub, i + 1 + k, i, 1, &far[k]);
    symm__wire_close(near, count);
    symm__wire_close(far, count);
    return status;
}

/* Waits until every joiner has said that it has all it needs. */
static symm_status hub_confirm(struct hub *hub)
{
    int waiting[SYMM_MEET_MAX] = {0};
    int count = 0;
    for (int r = 1; r < hub->meeting->size; r++)
        waiting[count++] = r;
    while (count > 0) {
        struct pollfd polls[SYMM_MEET_MAX];
        for (int i = 0; i < count; i++)
            polls[i] =
                (struct pollfd){.fd = hub->peer_fd[waiting[i]], .events = POLLIN};
        struct timespec span = symm__timespec(hub->until - symm__now());
        int ready = ppoll(polls, (nfds_t)count, &span, NULL);
        if (ready < 0 && errno != EINTR)
            return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                    "rank 0 polling the meeting");
        for (int i = count - 1; i >= 0 && ready > 0; i--) {
            bool done = false;
            symm_status status = polls[i].revents == 0
                                     ? SYMM_OK
                                     : hub_hear_joined(hub, waiting[i], &done);
            if (status != SYMM_OK)
                return status;
            if (done)
                waiting[i] = waiting[--count];
        }
        if (count > 0 && symm__now() >= hub->until) {
            char names[300];
            symm__ranks_text(waiting, count, names, sizeof(names));
            return symm__fail(SYMM_ERR_TIMEOUT,
                              "%s joined the meeting but did not answer within %.3g s: "
                              "stopped, or short of processor time?",
                              names, symm__now() - hub->start);
        }
    }
    return SYMM_OK;
}

static symm_status hub_finish(struct hub *hub)
{
    symm_status status = SYMM_OK;
    /* Who came at the last moment is not to fail for want of the last milliseconds. */
    if (hub->until < symm__now() + HUB_ANSWER_SECONDS)
        hub->until = symm__now() + HUB_ANSWER_SECONDS;
    for (int i = 1; i < hub->meeting->size && status == SYMM_OK; i++)
        status = hub_distribute_of(hub, i);
    if (status == SYMM_OK)
        status = hub_confirm(hub);
    if (status != SYMM_OK)
        return hub_abort(hub, status);
    for (int r = 1; r < hub->meeting->size; r++) {
        struct symm_meet_message go =
            symm__meet_message(SYMM_MEET_GO, hub->meeting, r, hub->nonce[r]);
        /* One that dies here is found by the first exchange, as one that dies later. */
        (void)hub_send(hub->peer_fd[r], &go, NULL, 0, hub->until);
    }
    return SYMM_OK;
}

symm_status symm__meet_hub(const struct symm_meeting *meeting,
                           const struct symm_meet_place *place, double until,
                           int *peer_fd)
{
    struct hub hub = {
        .meeting = meeting,
        .start = symm__now(),
        .until = until,
        .peer_fd = peer_fd,
    };
    symm_status status = symm__meet_place_claim(place, until, &hub.listener);
    if (status != SYMM_OK)
        return status;
    status = hub_gather(&hub);
    if (status != SYMM_OK)
        status = hub_abort(&hub, status);
    while (hub.pending_count > 0)
        pending_drop(&hub, hub.pending_count - 1);
    /* While the listener lives nobody takes the name for a dead owner's. */
    symm__meet_place_leave(place);
    (void)close(hub.listener);
    return status == SYMM_OK ? hub_finish(&hub) : status;
}
