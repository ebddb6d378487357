/* SPDX-License-Identifier: MIT */
/*
 * connections.c - the connections of a relay and of its clients: making, proving, moving bytes.
 *
 * An end that connects tries again whenever its connection is lost. Connections that arrive are
 * guests of an acceptor (net/acceptor.h) until they have proved that they know the job's key. The
 * number of an end is its host, or RANK | rank for a rank of this host.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relay/private.h"
#include "util/clock.h"
#include "util/log.h"

#define RELAY_MAGIC     0x53594d52u /* "SYMR" */
#define RELAY_AUTH      2u
#define RANK            0x80000000u /* in an end's number */
#define GUESTS_MAX      64
#define GUEST_SECONDS   2.0
#define RETRY_SECONDS   0.002 /* before the next try to connect; doubles */
#define RETRY_MOST      0.1
#define CONNECT_SECONDS 4.0 /* for a try to connect and to get an answer */
#define SILENT_SECONDS                                                                 \
    30.0                   /* of tries without an answer, until a host counts as gone */
#define REFUSED_MOST  3    /* tries in a row that find no listener, until it does */
#define PROBE_SECONDS 0.05 /* between two probes */
#define CUT_SECONDS   0.2 /* without success, until exchanges that were given up fail */

static struct symm_auth_protocol protocol_of(const struct symm_relay *relay)
{
    return (struct symm_auth_protocol){
        .magic = RELAY_MAGIC, .version = RELAY_AUTH, .key = relay->key};
}

static uint32_t own_number(const struct symm_relay *relay, enum symm_relay_end end)
{
    return end == SYMM_RELAY_TO_RELAY || end == SYMM_RELAY_OF_RANK
               ? RANK | (uint32_t)relay->config.rank
               : (uint32_t)symm__relay_host(relay);
}

static struct symm_address address_of(const struct symm_relay_host *host)
{
    return symm__address_make(host->family, host->bytes, host->port);
}

/* ---- The list ---------------------------------------------------------------------- */

struct symm_relay_connection *symm__relay_find(struct symm_relay *relay,
                                               enum symm_relay_end end, int id)
{
    struct symm_relay_connection *c = relay->connections;

    while (c && (c->end != end || c->id != id || c->doomed))
        c = c->next;
    return c;
}

static struct symm_relay_connection *add(struct symm_relay *relay,
                                         enum symm_relay_end end, int id, int fd)
{
    struct symm_relay_connection *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->end = end;
    c->id = id;
    c->fd = fd;
    c->fd_slot = -1;
    c->pause = RETRY_SECONDS;
    c->next = relay->connections;
    relay->connections = c;
    return c;
}

void symm__relay_want(struct symm_relay *relay, enum symm_relay_end end, int id,
                      double at)
{
    struct symm_relay_connection *c = symm__relay_find(relay, end, id);

    if (!c)
        c = add(relay, end, id, -1);
    else if (c->stage != SYMM_RELAY_WAITING || c->since > 0 || c->at <= at)
        return; /* a try that failed is not repeated sooner */
    if (c)
        c->at = at;
    else
        relay->lacks = true;
}

/* A forked child closes it. */
static void note_fd(struct symm_relay *relay, struct symm_relay_connection *c)
{
    for (int i = 0; i < SYMM_RELAY_FDS && c->fd_slot < 0; i++)
        if (relay->fds[i] < 0) {
            c->fd_slot = i;
            __atomic_store_n(&relay->fds[i], c->fd, __ATOMIC_RELAXED);
        }
}

static void close_fd(struct symm_relay *relay, struct symm_relay_connection *c)
{
    symm__relay_link_close(&c->link);
    if (c->fd_slot >= 0)
        __atomic_store_n(&relay->fds[c->fd_slot], -1, __ATOMIC_RELAXED);
    c->fd_slot = -1;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void symm__relay_queue(struct symm_relay_connection *connection,
                       struct symm_relay_message *message)
{
    if (connection->stage == SYMM_RELAY_OPEN && !connection->doomed &&
        !symm__relay_link_send(&connection->link, message))
        symm__relay_doom(connection); /* no memory: it begins again */
}

bool symm__relay_write_out(struct symm_relay_connection *connection)
{
    /* A connection that is lost is closed by the next turn, which reads what has come first. */
    return connection->stage != SYMM_RELAY_OPEN || connection->doomed ||
           symm__relay_link_flush(&connection->link) != SYMM_SEQPACKET_AGAIN;
}

void symm__relay_doom(struct symm_relay_connection *connection)
{
    connection->doomed = true;
}

static bool is_maker(enum symm_relay_end end)
{
    return end == SYMM_RELAY_TO_RELAY || end == SYMM_RELAY_TO_HOST;
}

void symm__relay_connection_free(struct symm_relay *relay,
                                 struct symm_relay_connection *connection)
{
    close_fd(relay, connection);
    free(connection);
}

bool symm__relay_owes(const struct symm_relay *relay)
{
    for (const struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->stage == SYMM_RELAY_OPEN && !c->doomed &&
            symm__relay_link_owes(&c->link))
            return true;
    return false;
}

/* Opens the link: both ends have proved that they know the key. False: no memory. */
static bool open_link(struct symm_relay *relay, struct symm_relay_connection *c)
{
    struct symm_auth_protocol protocol = protocol_of(relay);
    uint8_t key[SYMM_SIPHASH_KEY];

    symm__auth_key(&protocol, &c->auth, key);
    if (!symm__relay_link_open(&c->link, c->fd, key, is_maker(c->end)))
        return false;
    c->stage = SYMM_RELAY_OPEN;
    c->at = symm__now();
    c->pause = RETRY_SECONDS;
    c->refused = 0;
    c->since = 0;
    c->stranger = false;
    note_fd(relay, c);
    symm__relay_opened(relay, c);
    return true;
}

/* ---- Connecting --------------------------------------------------------------------- */

/* error: an errno; 0: `why` is the reason. */
static void try_again(struct symm_relay *relay, struct symm_relay_connection *c,
                      int error, const char *why)
{
    double now = symm__now();
    bool elsewhere = c->end != SYMM_RELAY_TO_RELAY;

    close_fd(relay, c);
    c->stage = SYMM_RELAY_WAITING;
    c->at = now + c->pause;
    c->pause = 2 * c->pause < RETRY_MOST ? 2 * c->pause : RETRY_MOST;
    c->refused = error == ECONNREFUSED ? c->refused + 1 : 0;
    snprintf(c->why, sizeof(c->why), "%s", why ? why : strerror(error));
    if (elsewhere && (c->refused >= REFUSED_MOST || now - c->since > SILENT_SECONDS)) {
        symm__relay_doom(c);
        symm__relay_host_gone(relay, c->id,
                              symm__relay_has_left(relay, c->id) ? SYMM_RELAY_HOST_LEFT
                              : c->refused >= REFUSED_MOST       ? SYMM_RELAY_HOST_DIED
                                                           : SYMM_RELAY_HOST_SILENT);
    }
}

static void begin_try(struct symm_relay *relay, struct symm_relay_connection *c)
{
    int host = c->end == SYMM_RELAY_TO_RELAY ? symm__relay_host(relay) : c->id;
    struct symm_address address = address_of(&relay->config.at[host]);
    int error;

    c->fd = symm__address_connect(&address);
    error = errno;
    c->stage = SYMM_RELAY_CONNECTING;
    c->at = symm__now() + CONNECT_SECONDS;
    if (c->since == 0)
        c->since = symm__now();
    if (c->fd < 0)
        try_again(relay, c, error, NULL);
}

static void end_connect(struct symm_relay *relay, struct symm_relay_connection *c)
{
    struct symm_auth_protocol protocol = protocol_of(relay);
    int error = symm__connect_error(c->fd);

    if (error != 0) {
        try_again(relay, c, error, NULL);
        return;
    }
    if (c->end == SYMM_RELAY_PROBE) { /* a process listens there: it will connect */
        close_fd(relay, c);
        c->stage = SYMM_RELAY_WAITING;
        c->at = symm__now() + PROBE_SECONDS;
        c->refused = 0;
        return;
    }
    c->stage = SYMM_RELAY_ASKED;
    if (!symm__auth_ask(
            &protocol, &c->auth, c->fd, own_number(relay, c->end),
            (uint32_t)(c->end == SYMM_RELAY_TO_HOST ? c->id : symm__relay_host(relay))))
        try_again(relay, c, 0, "it hung up");
}

static void hear_asked(struct symm_relay *relay, struct symm_relay_connection *c)
{
    struct symm_auth_protocol protocol = protocol_of(relay);

    switch (symm__auth_hear(&protocol, &c->auth, c->fd)) {
    case SYMM_AUTH_WAIT:
        return;
    case SYMM_AUTH_DONE:
        if (!open_link(relay, c))
            try_again(relay, c, ENOMEM, NULL);
        return;
    case SYMM_AUTH_GONE:
        try_again(relay, c, 0, "it does not answer, or hangs up");
        return;
    default:
        c->stranger = true;
        try_again(relay, c, 0, "a stranger answers");
    }
}

static void move_bytes(struct symm_relay *relay, struct symm_relay_connection *c)
{
    while (!c->doomed) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&c->link, &message);

        if (wire == SYMM_SEQPACKET_AGAIN)
            return;
        if (wire != SYMM_SEQPACKET_OK) {
            symm__relay_doom(c);
            return;
        }
        if (!symm__relay_hear(relay, c, message)) {
            symm__log(SYMM_LOG_WARN,
                      "rank %d closes a connection of %s %d: it sent what "
                      "libsymm does not send (kind %u)",
                      relay->config.rank,
                      c->end == SYMM_RELAY_OF_RANK ? "rank" : "host", c->id,
                      message->head.kind);
            symm__relay_doom(c);
        }
        symm__relay_drop(message);
    }
}

static void move_one(struct symm_relay *relay, struct symm_relay_connection *c,
                     bool ready)
{
    bool late = symm__now() >= c->at;

    switch (c->stage) {
    case SYMM_RELAY_WAITING:
        if (late)
            begin_try(relay, c);
        break;
    case SYMM_RELAY_CONNECTING:
        if (ready)
            end_connect(relay, c);
        else if (late)
            try_again(relay, c, ETIMEDOUT, NULL);
        break;
    case SYMM_RELAY_ASKED:
        if (ready)
            hear_asked(relay, c);
        else if (late)
            try_again(relay, c, ETIMEDOUT, NULL);
        break;
    case SYMM_RELAY_OPEN:
        if (ready)
            move_bytes(relay, c);
    }
}

/* Fails exchanges that were given up while the host above cannot be reached, with that reason. */
static void report_cut(struct symm_relay *relay, const struct symm_relay_connection *c)
{
    const struct symm_relay_host *host = &relay->config.at[c->id];
    const struct symm_address address = address_of(host);
    char sentence[SYMM_ERROR_BYTES], text[64];

    snprintf(sentence, sizeof(sentence),
             c->stranger
                 ? "what answers rank %d in place of host %s at %s does not know the "
                   "job's secret, or is of another version%s"
                 : "rank %d cannot reach host %s at %s (%s); does a firewall stand "
                   "between them, is that address not for other hosts "
                   "(SYMM_SOCKET_IFNAME, SYMM_HOST_ADDRESS), or has that host another "
                   "secret or version?",
             relay->config.rank, host->name,
             symm__address_text(&address, text, sizeof(text)),
             c->stranger ? ""
             : c->why[0] ? c->why
                         : "it does not answer");
    symm__ledger_cut(&relay->ledger, c->id,
                     c->stranger ? SYMM_ERR_REFUSED : SYMM_ERR_TIMEOUT, sentence);
}

bool symm__relay_report_cuts(struct symm_relay *relay)
{
    bool cut = false;

    for (const struct symm_relay_connection *c = relay->connections; c; c = c->next) {
        if (c->end != SYMM_RELAY_TO_HOST || c->stage == SYMM_RELAY_OPEN || c->doomed)
            continue;
        cut = true;
        if (c->since > 0 && symm__now() - c->since > CUT_SECONDS)
            report_cut(relay, c);
    }
    return cut;
}

/* ---- Connections that come ------------------------------------------------------------ */

static void log_refused(void *user, const char *why, bool last)
{
    const struct symm_relay *relay = user;

    symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", relay->config.rank,
              why, last ? " (more are not logged)" : "");
}

static bool is_local(const struct symm_relay *relay, uint32_t rank)
{
    return rank < (uint32_t)relay->config.ranks &&
           relay->config.host_of[rank] == symm__relay_host(relay);
}

/* Answers a handshake that has arrived. */
static const char *answer(struct symm_relay *relay, struct symm_relay_guest *guest)
{
    struct symm_auth_protocol protocol = protocol_of(relay);
    const struct symm_auth_handshake *theirs = &guest->auth.first;
    uint32_t from = ntohl(theirs->from), own = (uint32_t)symm__relay_host(relay);
    bool known;

    if (from == own_number(relay, SYMM_RELAY_TO_RELAY)) /* before this rank served */
        return "";
    known = from & RANK ? is_local(relay, from & ~RANK)
                        : from > own && from < (uint32_t)relay->config.hosts;

    if (!known || ntohl(theirs->about) != own ||
        !symm__auth_is_new(&relay->nonces[from % 64], theirs))
        return "it did not begin as a rank of this job would";
    if (from == (RANK | (uint32_t)relay->config.rank))
        return ""; /* this rank was looking for a relay before it became the relay */
    guest->at.until = symm__now() + CONNECT_SECONDS;
    symm__acceptor_spare(&relay->acceptor, &guest->at,
                         (int)(from & ~RANK) + (from & RANK ? relay->config.hosts : 0));
    return symm__auth_answer(&protocol, &guest->auth, guest->at.fd, own, from)
               ? NULL
               : "it hung up";
}

/* False: no memory, and the other end must connect again. */
static bool adopt(struct symm_relay *relay, struct symm_relay_guest *guest)
{
    uint32_t from = ntohl(guest->auth.first.from);
    enum symm_relay_end end = from & RANK ? SYMM_RELAY_OF_RANK : SYMM_RELAY_OF_HOST;
    int id = (int)(from & ~RANK);
    struct symm_relay_connection *old = symm__relay_find(relay, end, id), *c;

    if (old) { /* the end has closed it, or it would not connect again */
        old->stage = SYMM_RELAY_ASKED; /* so that it counts as replaced, not as lost */
        symm__relay_doom(old);
    }
    c = add(relay, end, id, guest->at.fd);
    if (!c)
        return false;
    guest->at.fd = -1;
    c->auth = guest->auth;
    if (!open_link(relay, c))
        symm__relay_doom(c);
    return true;
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *hear_guest(void *user, struct symm_guest *at)
{
    struct symm_relay *relay = user;
    struct symm_relay_guest *guest = (struct symm_relay_guest *)at;
    struct symm_auth_protocol protocol = protocol_of(relay);
    bool handshake = guest->auth.stage == SYMM_AUTH_HANDSHAKE;

    switch (symm__auth_hear_guest(&protocol, &guest->auth, at)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        return answer(relay, guest);
    case SYMM_AUTH_DONE:
        return adopt(relay, guest) ? NULL : "";
    case SYMM_AUTH_GONE: /* a probe, or an end that tries elsewhere */
        return "";
    default:
        return handshake ? "it did not begin as a rank of this job would"
                         : "it does not know the job's secret";
    }
}

bool symm__relay_is_adopting(const struct symm_relay *relay)
{
    for (size_t i = 0; i < relay->acceptor.count; i++) {
        const struct symm_relay_guest *guest =
            (const struct symm_relay_guest *)relay->acceptor.guests[i];

        if (guest->at.fd >= 0 && guest->auth.stage == SYMM_AUTH_FINISH)
            return true;
    }
    return false;
}

bool symm__relay_accept_begin(struct symm_relay *relay)
{
    relay->acceptor =
        (struct symm_acceptor){.listener = relay->config.listener,
                               .most = GUESTS_MAX,
                               .guest_bytes = sizeof(struct symm_relay_guest),
                               .seconds = GUEST_SECONDS,
                               .hear = hear_guest,
                               .refused = log_refused,
                               .user = relay};
    return symm__acceptor_open(&relay->acceptor);
}

/* ---- Polling ------------------------------------------------------------------------- */

size_t symm__relay_watched(const struct symm_relay *relay)
{
    size_t count = relay->serving ? 1 + relay->acceptor.count : 0;

    for (const struct symm_relay_connection *c = relay->connections; c; c = c->next)
        count++;
    return count;
}

size_t symm__relay_watch(struct symm_relay *relay, struct pollfd *polls, double *due)
{
    size_t count = 0;

    for (struct symm_relay_connection *c = relay->connections; c; c = c->next) {
        short events = c->stage == SYMM_RELAY_CONNECTING ? POLLOUT : POLLIN;

        if (c->stage == SYMM_RELAY_OPEN && symm__relay_link_owes(&c->link))
            events |= POLLOUT;
        if (c->stage != SYMM_RELAY_OPEN && c->at < *due)
            *due = c->at;
        polls[count++] = (struct pollfd){.fd = c->fd, .events = events};
    }
    if (relay->serving) {
        double late = symm__acceptor_due(&relay->acceptor);

        *due = late < *due ? late : *due;
        count += symm__acceptor_watch(&relay->acceptor, polls + count);
    }
    return count;
}

/* Connections that were added since the polls were set come first in the list. */
static struct symm_relay_connection *after_new(struct symm_relay *relay, size_t watched)
{
    struct symm_relay_connection *c = relay->connections;
    size_t count = 0;

    for (const struct symm_relay_connection *i = c; i; i = i->next)
        count++;
    for (; count > watched; count--)
        c = c->next;
    return c;
}

void symm__relay_move(struct symm_relay *relay, const struct pollfd *polls,
                      size_t count)
{
    size_t guests = relay->serving ? 1 + relay->acceptor.count : 0;
    size_t watched = count - guests;
    struct symm_relay_connection *c = after_new(relay, watched);

    for (size_t i = 0; c && i < watched; i++, c = c->next)
        if (!c->doomed)
            move_one(relay, c, c->fd >= 0 && c->fd == polls[i].fd && polls[i].revents);
    if (guests > 0)
        (void)symm__acceptor_serve(&relay->acceptor, polls + watched, guests);
    for (c = relay->connections; c; c = c->next)
        if (c->stage == SYMM_RELAY_OPEN && !c->doomed) {
            enum symm_seqpacket wire = symm__relay_link_flush(&c->link);

            /* What the other end sent before it hung up is read first. */
            if (wire != SYMM_SEQPACKET_OK && wire != SYMM_SEQPACKET_AGAIN) {
                move_bytes(relay, c);
                symm__relay_doom(c);
            }
        }
    symm__relay_sweep(relay);
}

void symm__relay_connections_close(struct symm_relay *relay)
{
    symm__acceptor_close(&relay->acceptor);
    while (relay->connections) {
        struct symm_relay_connection *c = relay->connections;

        relay->connections = c->next;
        close_fd(relay, c);
        free(c);
    }
}
