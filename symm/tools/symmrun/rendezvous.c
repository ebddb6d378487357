/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.c - see rendezvous.h.
 *
 * Node 0 listens at the rendezvous address until all other nodes have come. A node sends its
 * handshake, node 0 answers with its own and a proof, the node with its proof: keyed hashes
 * over both sides' random numbers, so that the secret is never sent. All connections that
 * have not proved themselves are polled together. At most PENDING_MAX are kept: then the
 * oldest goes, silent ones before those that were answered. A node whose connection ended
 * before it was answered comes again.
 */
#include "tools/symmrun/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "net/address.h"
#include "net/siphash.h"

#define PENDING_MAX     1024
#define PENDING_SECONDS 5.0 /* for a connection to prove itself */
#define CONNECT_SECONDS 5.0 /* for one try to connect */
#define ACCEPT_AT_ONCE  64
#define REFUSALS_SHOWN  8
#define SEND_SECONDS    5

_Static_assert(SYMMRUN_NODES_KEY == SYMM_SIPHASH_KEY, "one length of keys");

struct handshake { /* in network byte order */
    uint32_t magic, version, node, nodes, ranks, unused;
    uint8_t nonce[16];
};

/* What node 0 answers to a handshake. */
struct answer {
    struct handshake handshake;
    uint64_t proof;
};

_Static_assert(sizeof(struct handshake) == 40 && sizeof(struct answer) == 48,
               "the layout on the wire");

/* ---- Bytes and proofs --------------------------------------------------------------- */

bool symmrun_send_bytes(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static uint64_t prove(const struct symmrun_nodes *nodes, char what,
                      const struct handshake *joiner, const struct handshake *first)
{
    struct symm_siphash hash = symm__siphash_begin(nodes->secret);

    symm__siphash_add(&hash, &what, 1);
    symm__siphash_add(&hash, joiner, sizeof(*joiner));
    symm__siphash_add(&hash, first, sizeof(*first));
    return symm__siphash_end(&hash);
}

static struct handshake handshake_of(const struct symmrun_nodes *nodes)
{
    struct handshake handshake = {.magic = htonl(SYMMRUN_NODES_MAGIC),
                                  .version = htonl(SYMMRUN_NODES_VERSION),
                                  .node = htonl((uint32_t)nodes->own),
                                  .nodes = htonl((uint32_t)nodes->count),
                                  .ranks = htonl((uint32_t)nodes->run->options.ranks)};

    if (getrandom(handshake.nonce, sizeof(handshake.nonce), 0) !=
        (ssize_t)sizeof(handshake.nonce))
        handshake.magic = 0; /* the other side refuses it */
    return handshake;
}

static void adopt(struct symmrun_nodes *nodes, int index, int fd,
                  const struct handshake *joiner, const struct handshake *first)
{
    uint64_t halves[2] = {prove(nodes, 'k', joiner, first),
                          prove(nodes, 'l', joiner, first)};
    const struct timeval limit = {.tv_sec = SEND_SECONDS};
    const int yes = 1, idle = 10;

    memcpy(nodes->node[index].key, halves, sizeof(halves));
    nodes->node[index].fd = fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
}

/* ---- Waiting ------------------------------------------------------------------------ */

/* Has a signal come that ends the job? Others are dealt with. */
static bool interrupted(const struct symmrun_nodes *nodes)
{
    struct symmrun *run = nodes->run;
    struct signalfd_siginfo info;

    while (read(run->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int number = (int)info.ssi_signo;

        if (number == SIGUSR1 || number == SIGUSR2) {
            symmrun_watch_signal(run, number);
        } else if (number != SIGCHLD) {
            run->signals++;
            run->last_signal = number;
            symmrun_say(run, "%s ends the wait for the other nodes", strsignal(number));
        }
    }
    return run->signals > 0;
}

static int milliseconds(double until)
{
    double left = until - symmrun_now();

    return left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(1e3 * left) + 1;
}

/* Waits for readiness; false: too late, or a signal ends the job. */
static bool ready(const struct symmrun_nodes *nodes, int fd, short events, double until)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events},
                            {.fd = nodes->run->signal_fd, .events = POLLIN}};

    while (!interrupted(nodes)) {
        int got = poll(fds, 2, milliseconds(until));

        if (got > 0 && fds[0].revents)
            return true;
        if (got <= 0 && symmrun_now() >= until)
            return false;
    }
    return false;
}

bool symmrun_rendezvous_receive(const struct symmrun_nodes *nodes, int fd, void *data,
                                size_t bytes, double until)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);

        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) ||
                   !ready(nodes, fd, POLLIN, until)) {
            return false;
        }
    }
    return true;
}

/* ---- Node 0 ------------------------------------------------------------------------- */

/* A connection that has not proved itself, which may be a stranger's. */
struct pending {
    int fd;
    double until;
    bool answered;
    size_t used; /* bytes of the handshake, then of the proof */
    struct handshake theirs, mine;
    uint64_t proof;
};

struct lobby {
    struct symmrun_nodes *nodes;
    int listener;
    struct pending *pending; /* oldest first */
    struct pollfd *fds;      /* of the signals, the listener, the pending */
    size_t count, most;
    unsigned long refused;
};

static void refuse(struct lobby *lobby, const char *why)
{
    struct symmrun *run = lobby->nodes->run;

    if (++lobby->refused > REFUSALS_SHOWN)
        return;
    symmrun_say(run, "refused a connection to %s: %s", run->options.rendezvous, why);
    symmrun_queue_flush(&run->queues[1]);
}

/* Takes it out of the list; its descriptor is closed, unless it is a node's now. */
static void forget(struct lobby *lobby, size_t index, bool keep)
{
    if (!keep)
        close(lobby->pending[index].fd);
    lobby->count--;
    memmove(&lobby->pending[index], &lobby->pending[index + 1],
            (lobby->count - index) * sizeof(*lobby->pending));
}

/* Has the node that came before hung up, unseen so far? */
static bool has_gone(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* The handshake is complete. NULL: answered; else what is wrong. */
static const char *answer(struct symmrun_nodes *nodes, struct pending *pending)
{
    struct answer answer;

    if (ntohl(pending->theirs.magic) != SYMMRUN_NODES_MAGIC)
        return "it is no symmrun";
    pending->mine = handshake_of(nodes);
    answer =
        (struct answer){.handshake = pending->mine,
                        .proof = prove(nodes, 'a', &pending->theirs, &pending->mine)};
    /* Few bytes to a new connection: they fit its buffer, or the other side is no node. */
    if (send(pending->fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)sizeof(answer))
        return "it takes no answer";
    if (ntohl(pending->theirs.version) != SYMMRUN_NODES_VERSION)
        return "it is a symmrun of another version";
    pending->answered = true;
    pending->used = 0;
    return NULL;
}

/* The proof is complete. NULL: adopted; else what is wrong. */
static const char *admit(struct symmrun_nodes *nodes, struct pending *pending)
{
    const struct handshake *theirs = &pending->theirs, *mine = &pending->mine;
    const uint32_t index = ntohl(theirs->node);

    if (pending->proof != prove(nodes, 'b', theirs, mine))
        return "it does not know the secret (SYMM_SECRET)";
    if (theirs->nodes != mine->nodes || theirs->ranks != mine->ranks || index < 1 ||
        index >= (uint32_t)nodes->count)
        return "it was started with another --nnodes, -n or --node-rank";
    if (nodes->node[index].fd >= 0 && !has_gone(nodes->node[index].fd))
        return "a node of that --node-rank has come before";
    if (nodes->node[index].fd >= 0)
        close(nodes->node[index].fd);
    adopt(nodes, (int)index, pending->fd, theirs, mine);
    return NULL;
}

/* Reads what there is. NULL and *adopted: it is a node's; NULL: go on; else the fault. */
static const char *hear(struct symmrun_nodes *nodes, struct pending *pending,
                        bool *adopted)
{
    *adopted = false;
    for (;;) {
        char *to =
            pending->answered ? (char *)&pending->proof : (char *)&pending->theirs;
        size_t whole =
            pending->answered ? sizeof(pending->proof) : sizeof(pending->theirs);
        ssize_t got =
            recv(pending->fd, to + pending->used, whole - pending->used, MSG_DONTWAIT);
        const char *wrong;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return NULL;
        if (got <= 0)
            return pending->answered ? "it does not know the secret (SYMM_SECRET), or "
                                       "has another command line"
                                     : "it hung up without a word";
        pending->used += (size_t)got;
        if (pending->used < whole)
            continue;
        if (pending->answered) {
            wrong = admit(nodes, pending);
            *adopted = !wrong;
            return wrong;
        }
        wrong = answer(nodes, pending);
        if (wrong)
            return wrong;
    }
}

/* No room: the oldest goes, one that was not answered if there is one. */
static void make_room(struct lobby *lobby)
{
    size_t index = 0;

    while (index < lobby->count && lobby->pending[index].answered)
        index++;
    forget(lobby, index < lobby->count ? index : 0, false);
    refuse(lobby,
           "there are too many at a time, and it was silent for the longest time");
}

static void accept_some(struct lobby *lobby)
{
    const struct timespec pause = {0, 10000000};

    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(lobby->listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && lobby->count > 0) {
            make_room(lobby);
            continue;
        }
        if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED)
            nanosleep(&pause,
                      NULL); /* no descriptors or memory: the others have them */
        if (fd < 0)
            return;
        if (lobby->count == lobby->most)
            make_room(lobby);
        lobby->pending[lobby->count++] =
            (struct pending){.fd = fd, .until = symmrun_now() + PENDING_SECONDS};
    }
}

/* One round over all pending connections; fds[2 + i] belongs to pending[i]. */
static void serve(struct lobby *lobby)
{
    const size_t polled = lobby->count;
    const double now = symmrun_now();
    size_t gone = 0;

    for (size_t i = 0; i < polled; i++) {
        struct pending *pending = &lobby->pending[i - gone];
        bool adopted = false;
        const char *wrong = NULL;

        if (lobby->fds[2 + i].revents)
            wrong = hear(lobby->nodes, pending, &adopted);
        if (!wrong && !adopted && pending->until <= now)
            wrong = "it has not proved itself in time";
        if (!wrong && !adopted)
            continue;
        forget(lobby, i - gone, adopted);
        gone++;
        if (wrong)
            refuse(lobby, wrong);
    }
}

static int missing(const struct symmrun_nodes *nodes, char *text, size_t bytes)
{
    int count = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int n = 1; n < nodes->count; n++)
        if (nodes->node[n].fd < 0 && ++count <= 8)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                     count > 1 ? ", " : "", n);
    return count;
}

/* Until all nodes have come. */
static bool accept_nodes(struct lobby *lobby, double until)
{
    struct symmrun_nodes *nodes = lobby->nodes;
    char text[80];

    while (missing(nodes, text, sizeof(text)) > 0) {
        double next = lobby->count > 0 && lobby->pending[0].until < until
                          ? lobby->pending[0].until
                          : until;

        if (interrupted(nodes))
            return false;
        if (symmrun_now() >= until) {
            symmrun_say(nodes->run, "node %s did not come to %s in time", text,
                        nodes->run->options.rendezvous);
            return false;
        }
        lobby->fds[0] = (struct pollfd){.fd = nodes->run->signal_fd, .events = POLLIN};
        lobby->fds[1] = (struct pollfd){.fd = lobby->listener, .events = POLLIN};
        for (size_t i = 0; i < lobby->count; i++)
            lobby->fds[2 + i] =
                (struct pollfd){.fd = lobby->pending[i].fd, .events = POLLIN};
        if (poll(lobby->fds, (nfds_t)(2 + lobby->count), milliseconds(next)) < 0)
            continue;
        serve(lobby);
        if (lobby->fds[1].revents)
            accept_some(lobby);
    }
    return true;
}

static bool listen_at(struct lobby *lobby, struct symm_address *at)
{
    lobby->listener = symm__address_listen(at);
    if (lobby->listener < 0)
        symmrun_say(lobby->nodes->run,
                    "cannot listen at --rendezvous %s: %s; it is an address of node 0",
                    lobby->nodes->run->options.rendezvous, strerror(errno));
    return lobby->listener >= 0;
}

/* Half of the descriptors that may be had, and no more than PENDING_MAX. */
static size_t room_for_pending(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= 2 * PENDING_MAX)
        return PENDING_MAX;
    return limit.rlim_cur < 4 ? 2 : (size_t)limit.rlim_cur / 2;
}

static bool receive_nodes(struct symmrun_nodes *nodes, struct symm_address *at,
                          double until)
{
    struct lobby lobby = {.nodes = nodes, .listener = -1, .most = room_for_pending()};
    bool met = false;

    lobby.pending = calloc(lobby.most, sizeof(*lobby.pending));
    lobby.fds = calloc(lobby.most + 2, sizeof(*lobby.fds));
    if (!lobby.pending || !lobby.fds)
        symmrun_say(nodes->run, "no memory");
    else
        met = listen_at(&lobby, at) && accept_nodes(&lobby, until);
    if (lobby.refused > REFUSALS_SHOWN)
        symmrun_say(nodes->run, "refused %lu more connections to %s",
                    lobby.refused - REFUSALS_SHOWN, nodes->run->options.rendezvous);
    while (lobby.count > 0)
        forget(&lobby, lobby.count - 1, false);
    if (lobby.listener >= 0)
        close(lobby.listener);
    free(lobby.pending);
    free(lobby.fds);
    return met;
}

/* ---- The others --------------------------------------------------------------------- */

enum join { JOINED, AGAIN, REFUSED };

/* AGAIN: node 0 has not answered, so it may do so at another try. */
static enum join introduce(struct symmrun_nodes *nodes, int fd, double until)
{
    struct handshake mine = handshake_of(nodes);
    struct answer theirs;
    const char *place = nodes->run->options.rendezvous;
    uint64_t proof;

    if (!symmrun_send_bytes(fd, &mine, sizeof(mine)) ||
        !symmrun_rendezvous_receive(nodes, fd, &theirs.handshake.magic,
                                    sizeof(theirs.handshake.magic), until))
        return AGAIN;
    if (ntohl(theirs.handshake.magic) != SYMMRUN_NODES_MAGIC) {
        symmrun_say(nodes->run,
                    "what listens at %s is no symmrun, so it does not know the secret "
                    "(SYMM_SECRET)",
                    place);
        return REFUSED;
    }
    if (!symmrun_rendezvous_receive(nodes, fd, (char *)&theirs + sizeof(uint32_t),
                                    sizeof(theirs) - sizeof(uint32_t), until))
        return AGAIN;
    if (ntohl(theirs.handshake.version) != SYMMRUN_NODES_VERSION) {
        symmrun_say(nodes->run, "node 0 at %s is a symmrun of another version", place);
        return REFUSED;
    }
    if (theirs.proof != prove(nodes, 'a', &mine, &theirs.handshake)) {
        symmrun_say(nodes->run,
                    "what listens at %s does not know the secret (SYMM_SECRET)", place);
        return REFUSED;
    }
    proof = prove(nodes, 'b', &mine, &theirs.handshake);
    if (!symmrun_send_bytes(fd, &proof, sizeof(proof)))
        return AGAIN;
    adopt(nodes, 0, fd, &mine, &theirs.handshake);
    return JOINED;
}

/* One try; -1: nobody answers. */
static int connect_once(const struct symmrun_nodes *nodes,
                        const struct symm_address *to, double until)
{
    int fd = symm__address_connect(to);

    if (fd < 0)
        return -1;
    if (ready(nodes, fd, POLLOUT, until) && symm__connect_error(fd) == 0 &&
        fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool connect_first(struct symmrun_nodes *nodes, const struct symm_address *to,
                          double until)
{
    const struct timespec pause = {0, 50000000};
    unsigned long hung_up = 0;

    while (symmrun_now() < until && !interrupted(nodes)) {
        double limit = symmrun_now() + CONNECT_SECONDS;
        int fd = connect_once(nodes, to, limit < until ? limit : until);
        enum join join = fd < 0 ? AGAIN : introduce(nodes, fd, until);

        if (join == JOINED)
            return true;
        hung_up += fd >= 0;
        if (fd >= 0)
            close(fd);
        if (join == REFUSED)
            return false;
        nanosleep(&pause, NULL);
    }
    if (nodes->run->signals > 0)
        return false;
    if (hung_up > 0)
        symmrun_say(
            nodes->run,
            "what listens at %s hung up on %lu connections without an answer: is "
            "it node 0 of this job?",
            nodes->run->options.rendezvous, hung_up);
    else
        symmrun_say(nodes->run, "node 0 does not listen at %s",
                    nodes->run->options.rendezvous);
    return false;
}

/* ---- Both --------------------------------------------------------------------------- */

bool symmrun_rendezvous(struct symmrun_nodes *nodes, double until)
{
    struct symmrun *run = nodes->run;
    struct symm_address at;
    const char *wrong =
        symm__address_parse(run->options.rendezvous, SYMM_ADDRESS_NAME, &at);

    if (wrong) {
        symmrun_say(run, "--rendezvous %s: %s", run->options.rendezvous, wrong);
        return false;
    }
    (void)getnameinfo((struct sockaddr *)&at.at, at.bytes, run->job.master,
                      sizeof(run->job.master), NULL, 0, NI_NUMERICHOST);
    return nodes->own == 0 ? receive_nodes(nodes, &at, until)
                           : connect_first(nodes, &at, until);
}
