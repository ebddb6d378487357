/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.c - see rendezvous.h.
 *
 * Node 0 listens at the rendezvous address until all other nodes have arrived, and each proves
 * to the other that it knows the secret (net/auth.h). Connections that have not proved
 * themselves are an acceptor's guests (net/acceptor.h), spared once they have sent a valid
 * handshake. A node whose connection ends before node 0 has confirmed it comes again.
 */
#include "tools/symmrun/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/acceptor.h"
#include "net/address.h"
#include "net/auth.h"

#define NODES_MAGIC   0x53594d4eu /* "SYMN" */
#define NODES_VERSION 4u
/* Beside one for each node. They are closed before the ranks start, at 5 to 10 us each. */
#define PENDING_MAX     256
#define PENDING_SECONDS 5.0 /* for a connection to prove itself */
#define CONNECT_SECONDS 5.0 /* for one try to connect */

_Static_assert(SYMMRUN_SECRET_BYTES == SYMM_SIPHASH_KEY, "the secret is the key");

/* ---- Both --------------------------------------------------------------------------- */

static struct symm_auth_protocol protocol_of(const struct symmrun_nodes *nodes)
{
    return (struct symm_auth_protocol){
        .magic = NODES_MAGIC, .version = NODES_VERSION, .key = nodes->secret};
}

/* The content of a handshake: the job's shape, the same on all nodes. */
static uint32_t shape_of(const struct symmrun_nodes *nodes)
{
    return (uint32_t)nodes->count << 16 | (uint32_t)nodes->run->options.ranks;
}

/* Adopts the connection: both ends have proved themselves. False: no memory. */
static bool adopt(struct symmrun_nodes *nodes, int index, int fd,
                  const struct symm_auth *auth)
{
    const struct symm_auth_protocol protocol = protocol_of(nodes);
    struct symmrun_node *node = &nodes->node[index];
    uint8_t key[SYMM_SIPHASH_KEY];

    symm__auth_key(&protocol, auth, key);
    node->tcp = symm__tcp_create(fd, key, nodes->own != 0);
    if (node->tcp)
        node->fd = fd;
    return node->tcp != NULL;
}

/* ---- Waiting ------------------------------------------------------------------------ */

/* Whether a signal has come that ends the job. Handles the other signals. */
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

bool symmrun_rendezvous_wait(const struct symmrun_nodes *nodes, int fd, short events,
                             double until)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events},
                            {.fd = nodes->run->signal_fd, .events = POLLIN}};

    while (!interrupted(nodes)) {
        int got = poll(fds, 2, symmrun_milliseconds(until));

        if (got > 0 && fds[0].revents)
            return true;
        if (got <= 0 && symm__now() >= until)
            return false;
    }
    return false;
}

/* ---- Node 0 ------------------------------------------------------------------------- */

/* A connection that has not proved itself, which may be a stranger's. */
struct pending {
    struct symm_guest
        at; /* group: the node's number, once it has sent its handshake, until it has
                             proved itself */
    struct symm_auth auth;
};

/* Node 0, while the other nodes come. */
struct gathering {
    struct symmrun_nodes *nodes;
    struct symm_acceptor guests; /* of struct pending */
};

static void refuse(void *user, const char *why, bool last)
{
    const struct gathering *gathering = user;
    struct symmrun *run = gathering->nodes->run;

    (void)last; /* how many more there were is told at the end */
    symmrun_say(run, "refused a connection to %s: %s", run->options.rendezvous, why);
    symmrun_queue_flush(&run->queues[1]);
}

/* Whether the node has hung up, which poll has not reported yet. */
static bool has_gone(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* The handshake of a node that has proved the secret. NULL: answered; else the error. */
static const char *answer(struct gathering *gathering, struct pending *pending)
{
    struct symmrun_nodes *nodes = gathering->nodes;
    const struct symm_auth_protocol protocol = protocol_of(nodes);
    const struct symm_auth_handshake *theirs = &pending->auth.first;
    const uint32_t index = ntohl(theirs->from), shape = shape_of(nodes);
    bool fits =
        ntohl(theirs->about) == shape && index >= 1 && index < (uint32_t)nodes->count;

    if (fits && !symm__auth_is_new(&nodes->node[index].nonces, theirs))
        return "it repeats the handshake of a node";
    if (fits)
        symm__acceptor_spare(&gathering->guests, &pending->at, (int)index);
    /* A node that does not fit reads the expected shape from the answer. */
    if (!symm__auth_answer(&protocol, &pending->auth, pending->at.fd, 0, shape))
        return "it takes no answer";
    return fits ? NULL : "it was started with another --nnodes, -n or --node-rank";
}

/* NULL: adopted; else the error. */
static const char *admit(struct symmrun_nodes *nodes, struct pending *pending)
{
    const int index =
        (int)ntohl(pending->auth.first.from); /* answer() has checked it */
    struct symmrun_node *node = &nodes->node[index];

    if (node->fd >= 0 && !has_gone(node->fd))
        return "a node of that --node-rank has come before";
    if (node->fd >= 0)
        close(node->fd);
    node->fd = -1;
    symm__tcp_destroy(node->tcp);
    if (!adopt(nodes, index, pending->at.fd, &pending->auth))
        return "there is no memory for it";
    pending->at.fd = -1;
    return NULL;
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *hear(void *user, struct symm_guest *guest)
{
    struct gathering *gathering = user;
    struct pending *pending = (struct pending *)guest;
    const struct symm_auth_protocol protocol = protocol_of(gathering->nodes);

    switch (symm__auth_hear_guest(&protocol, &pending->auth, guest)) {
    case SYMM_AUTH_WAIT:
        if (guest->group == SYMM_ACCEPTOR_PROVED)
            guest->until = SYMM_ACCEPTOR_NEVER;
        return NULL;
    case SYMM_AUTH_ASKED:
        return answer(gathering, pending);
    case SYMM_AUTH_DONE:
        return admit(gathering->nodes, pending);
    case SYMM_AUTH_FOREIGN:
        return "it is no symmrun";
    case SYMM_AUTH_VERSION:
        return "it is a symmrun of another version";
    case SYMM_AUTH_KEY:
        return "it does not know the secret (SYMM_SECRET)";
    case SYMM_AUTH_GONE:
        break;
    }
    return guest->group == -1 ? "it hung up without sending anything"
                              : "it hung up before it had proved itself";
}

/* How many nodes have not arrived; `text` lists the first eight. */
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

/* Waits until all nodes have arrived. */
static bool accept_nodes(struct gathering *gathering, struct pollfd *fds, double until)
{
    struct symmrun_nodes *nodes = gathering->nodes;
    char text[80];

    while (missing(nodes, text, sizeof(text)) > 0) {
        double next = symm__acceptor_due(&gathering->guests);
        size_t count;

        if (interrupted(nodes))
            return false;
        if (symm__now() >= until) {
            symmrun_say(nodes->run, "node %s did not come to %s in time", text,
                        nodes->run->options.rendezvous);
            return false;
        }
        fds[0] = (struct pollfd){.fd = nodes->run->signal_fd, .events = POLLIN};
        count = symm__acceptor_watch(&gathering->guests, fds + 1);
        if (poll(fds, 1 + count, symmrun_milliseconds(next < until ? next : until)) >=
            0)
            (void)symm__acceptor_serve(&gathering->guests, fds + 1, count);
    }
    return true;
}

/* Half of the descriptors that may be had, and no more than `most`. */
static size_t room_for_pending(const struct symmrun_nodes *nodes)
{
    const size_t most = PENDING_MAX + (size_t)nodes->count;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= 2 * most)
        return most;
    return limit.rlim_cur < 4 ? 2 : (size_t)limit.rlim_cur / 2;
}

static bool is_interrupted(void *nodes)
{
    return interrupted(nodes);
}

static bool receive_nodes(struct symmrun_nodes *nodes, struct symm_address *at,
                          double until)
{
    struct gathering gathering = {.nodes = nodes,
                                  .guests = {.listener = symm__address_listen_until(
                                                 at, until, is_interrupted, nodes),
                                             .most = room_for_pending(nodes),
                                             .guest_bytes = sizeof(struct pending),
                                             .seconds = PENDING_SECONDS,
                                             .hear = hear,
                                             .refused = refuse,
                                             .user = &gathering}};
    const char *place = nodes->run->options.rendezvous;
    struct pollfd *fds;
    bool met = false;

    if (gathering.guests.listener < 0) {
        if (nodes->run->signals == 0)
            symmrun_say(
                nodes->run,
                "cannot listen at --rendezvous %s: %s; it is an address of node 0",
                place, strerror(errno));
        return false;
    }
    fds = calloc(gathering.guests.most + 2, sizeof(*fds));
    if (!fds || !symm__acceptor_open(&gathering.guests))
        symmrun_say(nodes->run, "no memory");
    else
        met = accept_nodes(&gathering, fds, until);
    if (gathering.guests.refusals > SYMM_ACCEPTOR_SHOWN)
        symmrun_say(nodes->run, "refused %lu more connections to %s",
                    gathering.guests.refusals - SYMM_ACCEPTOR_SHOWN, place);
    symm__acceptor_close(&gathering.guests);
    close(gathering.guests.listener);
    free(fds);
    return met;
}

/* ---- The others --------------------------------------------------------------------- */

enum join { JOINED, AGAIN, REFUSED };

/* AGAIN: node 0 has not confirmed, so it may do so at another try. */
static enum join introduce(struct symmrun_nodes *nodes, int fd, double until)
{
    const struct symm_auth_protocol protocol = protocol_of(nodes);
    const char *place = nodes->run->options.rendezvous;
    enum symm_auth_said said = SYMM_AUTH_WAIT;
    struct symm_auth auth;

    if (!symm__auth_ask(&protocol, &auth, fd, (uint32_t)nodes->own, shape_of(nodes)))
        return AGAIN;
    while (said == SYMM_AUTH_WAIT) {
        if (!symmrun_rendezvous_wait(nodes, fd, POLLIN, until))
            return AGAIN;
        said = symm__auth_hear(&protocol, &auth, fd);
        if (auth.stage == SYMM_AUTH_CONFIRM &&
            ntohl(auth.second.about) != shape_of(nodes)) {
            symmrun_say(
                nodes->run,
                "node 0 at %s refuses this node: --nnodes and -n do not fit its "
                "own",
                place);
            return REFUSED;
        }
    }
    switch (said) {
    case SYMM_AUTH_DONE:
        return adopt(nodes, 0, fd, &auth) ? JOINED : AGAIN;
    case SYMM_AUTH_FOREIGN:
        symmrun_say(nodes->run,
                    "what listens at %s is no symmrun, so it does not know the secret "
                    "(SYMM_SECRET)",
                    place);
        return REFUSED;
    case SYMM_AUTH_VERSION:
        symmrun_say(nodes->run, "node 0 at %s is a symmrun of another version", place);
        return REFUSED;
    case SYMM_AUTH_KEY:
        symmrun_say(nodes->run,
                    "what listens at %s does not know the secret (SYMM_SECRET)", place);
        return REFUSED;
    default:
        return AGAIN;
    }
}

/* One try; -1: no answer. */
static int connect_once(const struct symmrun_nodes *nodes,
                        const struct symm_address *to, double until)
{
    int fd = symm__address_connect(to);

    if (fd < 0 || (symmrun_rendezvous_wait(nodes, fd, POLLOUT, until) &&
                   symm__connect_error(fd) == 0))
        return fd;
    close(fd);
    return -1;
}

static bool connect_first(struct symmrun_nodes *nodes, const struct symm_address *to,
                          double until)
{
    unsigned long hung_up = 0;

    while (symm__now() < until && !interrupted(nodes)) {
        double limit = symm__now() + CONNECT_SECONDS;
        int fd = connect_once(nodes, to, limit < until ? limit : until);
        enum join join = fd < 0 ? AGAIN : introduce(nodes, fd, until);

        if (join == JOINED)
            return true;
        hung_up += fd >= 0;
        if (fd >= 0)
            close(fd);
        if (join == REFUSED)
            return false;
        symm__sleep(0.05);
    }
    if (nodes->run->signals > 0)
        return false;
    if (hung_up > 0)
        symmrun_say(nodes->run,
                    "what listens at %s hung up on %lu connections before it had "
                    "confirmed them: is it node 0 of this job?",
                    nodes->run->options.rendezvous, hung_up);
    else
        symmrun_say(nodes->run, "node 0 does not listen at %s",
                    nodes->run->options.rendezvous);
    return false;
}

/* ---- The start ---------------------------------------------------------------------- */

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
