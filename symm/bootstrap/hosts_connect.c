/* SPDX-License-Identifier: MIT */
/*
 * hosts_connect.c - one TCP connection between each two ranks of different hosts (hosts.h).
 *
 * The higher rank connects to the lower. Five messages follow, each but the answer one way:
 *
 *     handshake   ranks, a random nonce, and a keyed hash over them
 *     answer     the same of the lower rank, and a keyed hash over both handshakes
 *     proof      of the higher rank, over both handshakes
 *     confirm    of the lower rank: it keeps the connection
 *     finish     of the higher rank: it keeps the connection, too, and does not try again
 *
 * A handshake's own hash tells ranks from strangers by the first message, so that strangers
 * hold no state but a place in `inbound` (net/acceptor.h) until they have spoken. A handshake
 * is taken once: its nonce is remembered, so that a recorded handshake is of no use. The key of the packets
 * that follow belongs to this connection alone.
 *
 * The higher rank tries again whenever a connection is lost before `confirm`. The lower rank
 * counts a rank only after its `finish`, so that it listens until no rank tries again.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hosts.h"
#include "bootstrap/job.h"
#include "bootstrap/protocol.h"
#include "net/acceptor.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"

#define HOSTS_MAGIC     0x53594d48u /* "SYMH" */
#define HOSTS_VERSION   2u
#define NONCE_BYTES     16
#define INBOUND_MAX     256
#define NONCES_KEPT     16   /* of one rank's handshakes */
#define INBOUND_SECONDS 2.0  /* for a stranger to send a valid handshake */
#define RETRY_SECONDS   0.02 /* before the next try to connect; doubles */
#define RETRY_MOST      0.25
#define CONNECT_SECONDS 0.25 /* for the first try to connect; doubles */
#define CONNECT_MOST    4.0
#define SILENT_SECONDS  30 /* until a host that says nothing is taken for gone */

/* What both ends say first; in network byte order. */
struct handshake {
    uint32_t magic, version;
    uint32_t from, to; /* ranks */
    uint8_t nonce[NONCE_BYTES];
    uint64_t hash; /* over the fields before it */
};

struct answer {
    struct handshake handshake;
    uint64_t proof;
};

enum stage {
    HANDSHAKE,  /* lower, a new guest: nothing valid has come */
    ANSWERED,   /* lower: the proof is to come */
    CONFIRMED,  /* lower: the end is to come */
    WAITING,    /* higher: until the next try */
    CONNECTING, /* higher */
    ASKED,      /* higher: the answer is to come */
    PROVED,     /* higher: the confirmation is to come */
};

/* One connection in the making. */
struct making {
    struct symm_guest at; /* until: WAITING: next try; CONNECTING: it is given up */
    enum stage stage;
    int rank; /* of the other end */
    double pause, patience;
    struct handshake first, second; /* of the higher, the lower rank */
    size_t used;                    /* bytes of the message that is to come */
    union {
        struct handshake handshake;
        struct answer answer;
        uint64_t proof;
        uint8_t bytes[sizeof(struct answer)];
    } in;
};

struct hosts {
    int rank, size;
    const struct symm_host_address *places;
    const uint8_t *key;
    double start, until;
    int *peer_fd;
    struct symm_tcp **tcp;
    int missing;                       /* ranks of other hosts without a connection */
    symm_status status;                /* of what `inbound` has met */
    char why[SYMM_BOOTSTRAP_MAX][96];  /* the last try to reach that rank failed */
    bool stranger[SYMM_BOOTSTRAP_MAX]; /* what answered there did not know the key */
    uint8_t nonce[SYMM_BOOTSTRAP_MAX][NONCES_KEPT][NONCE_BYTES];
    unsigned nonces[SYMM_BOOTSTRAP_MAX]; /* ever */
    struct making outbound[SYMM_BOOTSTRAP_MAX];
    int outbound_count;
    struct symm_acceptor inbound; /* of struct making; a group: those of one rank */
    struct pollfd polls[SYMM_BOOTSTRAP_MAX + 1 + INBOUND_MAX];
};

static bool is_far(const struct hosts *hosts, int rank)
{
    return hosts->places[rank].host.id != hosts->places[hosts->rank].host.id;
}

/* ---- Proofs ----------------------------------------------------------------------- */

static uint64_t prove(const struct hosts *hosts, char what, const struct making *m)
{
    struct symm_siphash hash = symm__siphash_begin(hosts->key);

    symm__siphash_add(&hash, &what, 1);
    symm__siphash_add(&hash, &m->first, sizeof(m->first));
    symm__siphash_add(&hash, &m->second, sizeof(m->second));
    return htobe64(symm__siphash_end(&hash));
}

static uint64_t handshake_hash(const struct hosts *hosts, const struct handshake *g)
{
    struct symm_siphash hash = symm__siphash_begin(hosts->key);

    symm__siphash_add(&hash, "g", 1);
    symm__siphash_add(&hash, g, offsetof(struct handshake, hash));
    return htobe64(symm__siphash_end(&hash));
}

static symm_status handshake_make(const struct hosts *hosts, int to,
                                  struct handshake *handshake)
{
    symm_status status;

    *handshake = (struct handshake){.magic = htonl(HOSTS_MAGIC),
                                    .version = htonl(HOSTS_VERSION),
                                    .from = htonl((uint32_t)hosts->rank),
                                    .to = htonl((uint32_t)to)};
    status = symm__random(handshake->nonce, sizeof(handshake->nonce));
    handshake->hash = handshake_hash(hosts, handshake);
    return status;
}

static bool handshake_fits(const struct hosts *hosts, const struct handshake *handshake)
{
    return ntohl(handshake->magic) == HOSTS_MAGIC &&
           ntohl(handshake->version) == HOSTS_VERSION &&
           ntohl(handshake->to) == (uint32_t)hosts->rank &&
           ntohl(handshake->from) < (uint32_t)hosts->size;
}

/* Has that rank's handshake come before? Else its nonce is kept. */
static bool is_repeated(struct hosts *hosts, const struct handshake *handshake)
{
    uint32_t from = ntohl(handshake->from); /* checked */
    unsigned known = hosts->nonces[from];

    for (unsigned i = 0; i < NONCES_KEPT && i < known; i++)
        if (memcmp(hosts->nonce[from][i], handshake->nonce, NONCE_BYTES) == 0)
            return true;
    memcpy(hosts->nonce[from][hosts->nonces[from]++ % NONCES_KEPT], handshake->nonce,
           NONCE_BYTES);
    return false;
}

static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_NODELAY, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, SILENT_SECONDS / 3},
                   {IPPROTO_TCP, TCP_KEEPINTVL, SILENT_SECONDS / 6},
                   {IPPROTO_TCP, TCP_KEEPCNT, 4},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_SECONDS * 1000}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

/* Both ends have confirmed: the connection is the pair's. Takes m->at.fd on success. */
static symm_status adopt(struct hosts *hosts, struct making *m)
{
    uint64_t halves[2] = {prove(hosts, 'k', m), prove(hosts, 'l', m)};
    uint8_t key[SYMM_SIPHASH_KEY];

    memcpy(key, halves, sizeof(key));
    hosts->tcp[m->rank] = symm__tcp_create(m->at.fd, key, hosts->rank > m->rank);
    if (!hosts->tcp[m->rank])
        return symm__fail(SYMM_ERR_NOMEM,
                          "rank %d: no memory for the connection to rank %d",
                          hosts->rank, m->rank);
    set_options(m->at.fd);
    hosts->peer_fd[m->rank] = m->at.fd;
    hosts->missing--;
    m->at.fd = -1;
    return SYMM_OK;
}

/* A message is far smaller than any socket's buffer. */
static bool write_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* Reads towards a message of so many bytes. 1: it is here; 0: not yet; -1: never. */
static int take(struct making *m, size_t bytes)
{
    while (m->used < bytes) {
        ssize_t got =
            recv(m->at.fd, m->in.bytes + m->used, bytes - m->used, MSG_DONTWAIT);

        if (got > 0)
            m->used += (size_t)got;
        else if (got < 0 && errno == EAGAIN)
            return 0;
        else if (got == 0 || errno != EINTR)
            return -1;
    }
    m->used = 0;
    return 1;
}

/* ---- To lower ranks --------------------------------------------------------------- */

/* The try has failed: the next one comes after a pause. */
static void try_again(struct hosts *hosts, struct making *m, const char *why)
{
    snprintf(hosts->why[m->rank], sizeof(hosts->why[m->rank]), "%s", why);
    if (m->at.fd >= 0)
        close(m->at.fd);
    m->at.fd = -1;
    m->stage = WAITING;
    m->at.until = symm__now() + m->pause;
    m->pause = 2 * m->pause < RETRY_MOST ? 2 * m->pause : RETRY_MOST;
}

static symm_status ask(struct hosts *hosts, struct making *m)
{
    symm_status status = handshake_make(hosts, m->rank, &m->first);

    if (status != SYMM_OK)
        return status;
    m->stage = ASKED;
    m->used = 0;
    if (!write_all(m->at.fd, &m->first, sizeof(m->first)))
        try_again(hosts, m, "it hung up");
    return SYMM_OK;
}

/* No descriptor or memory: unless strangers hold them, another try meets the same. */
static bool is_short(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static symm_status begin_try(struct hosts *hosts, struct making *m)
{
    struct symm_address address = symm__host_address_make(&hosts->places[m->rank]);
    int error;

    m->at.fd = symm__address_connect(&address);
    error = errno;
    if (m->at.fd < 0 && is_short(error) && hosts->inbound.count == 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "rank %d: a socket to rank %d",
                                hosts->rank, m->rank);
    m->stage = CONNECTING;
    m->at.until = symm__now() + m->patience;
    m->patience = 2 * m->patience < CONNECT_MOST ? 2 * m->patience : CONNECT_MOST;
    if (m->at.fd < 0)
        try_again(hosts, m, strerror(error));
    return SYMM_OK;
}

/* The connection stands, or never will. */
static symm_status end_connect(struct hosts *hosts, struct making *m)
{
    int error = symm__connect_error(m->at.fd);

    if (error == 0)
        return ask(hosts, m);
    try_again(hosts, m, strerror(error));
    return SYMM_OK;
}

static symm_status hear_answer(struct hosts *hosts, struct making *m)
{
    int come = take(m, sizeof(struct answer));
    uint64_t proof;

    if (come < 0)
        try_again(hosts, m, "it does not answer, or hangs up");
    if (come <= 0)
        return SYMM_OK;
    m->second = m->in.answer.handshake;
    if (!handshake_fits(hosts, &m->second) ||
        ntohl(m->second.from) != (uint32_t)m->rank ||
        m->in.answer.proof != prove(hosts, 'a', m)) {
        hosts->stranger[m->rank] = true;
        try_again(hosts, m, "a stranger answers");
        return SYMM_OK;
    }
    hosts->stranger[m->rank] = false;
    proof = prove(hosts, 'b', m);
    m->stage = PROVED;
    if (!write_all(m->at.fd, &proof, sizeof(proof)))
        try_again(hosts, m, "it hung up");
    return SYMM_OK;
}

static symm_status hear_confirm(struct hosts *hosts, struct making *m)
{
    int come = take(m, sizeof(uint64_t));
    uint64_t finish = prove(hosts, 'd', m);

    if (come < 0 || (come > 0 && m->in.proof != prove(hosts, 'c', m)) ||
        (come > 0 && !write_all(m->at.fd, &finish, sizeof(finish)))) {
        try_again(hosts, m, "it hung up before it had confirmed");
        return SYMM_OK;
    }
    return come > 0 ? adopt(hosts, m) : SYMM_OK;
}

static symm_status move_outbound(struct hosts *hosts, struct making *m, bool ready)
{
    bool late = symm__now() >= m->at.until;

    if (m->stage == WAITING)
        return late ? begin_try(hosts, m) : SYMM_OK;
    if (m->stage == CONNECTING && !ready && late)
        try_again(hosts, m, strerror(ETIMEDOUT));
    if (!ready)
        return SYMM_OK;
    return m->stage == CONNECTING ? end_connect(hosts, m)
           : m->stage == ASKED    ? hear_answer(hosts, m)
                                  : hear_confirm(hosts, m);
}

/* ---- From higher ranks ------------------------------------------------------------ */

static void log_refused(void *user, const char *why, bool last)
{
    const struct hosts *hosts = user;

    symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", hosts->rank, why,
              last ? " (more are not logged)" : "");
}

static bool handshake_counts(struct hosts *hosts, const struct handshake *handshake)
{
    int from = (int)ntohl(handshake->from);

    return handshake_fits(hosts, handshake) && from > hosts->rank &&
           is_far(hosts, from) && hosts->peer_fd[from] < 0 &&
           handshake->hash == handshake_hash(hosts, handshake) &&
           !is_repeated(hosts, handshake);
}

static const char *hear_handshake(struct hosts *hosts, struct making *m)
{
    int come = take(m, sizeof(struct handshake));
    struct answer answer;

    if (come == 0)
        return NULL;
    if (come < 0 || !handshake_counts(hosts, &m->in.handshake))
        return "it did not begin as a rank of this job would";
    m->first = m->in.handshake;
    m->rank = (int)ntohl(m->first.from);
    m->at.until = SYMM_ACCEPTOR_NEVER;
    symm__acceptor_spare(&hosts->inbound, &m->at, m->rank);
    hosts->status = handshake_make(hosts, m->rank, &m->second);
    m->stage = ANSWERED;
    answer = (struct answer){.handshake = m->second, .proof = prove(hosts, 'a', m)};
    return write_all(m->at.fd, &answer, sizeof(answer)) ? NULL : "it hung up";
}

static const char *hear_proof(struct hosts *hosts, struct making *m)
{
    bool answered = m->stage == ANSWERED;
    int come = take(m, sizeof(uint64_t));
    uint64_t confirm = prove(hosts, 'c', m);

    if (come == 0)
        return NULL;
    if (come < 0 || m->in.proof != prove(hosts, answered ? 'b' : 'd', m) ||
        hosts->peer_fd[m->rank] >= 0 ||
        (answered && !write_all(m->at.fd, &confirm, sizeof(confirm))))
        return "it hung up, or does not know the job's secret";
    m->stage = CONFIRMED;
    if (!answered)
        hosts->status = adopt(hosts, m);
    return NULL;
}

/* The acceptor's `hear`. */
static const char *hear_inbound(void *user, struct symm_guest *guest)
{
    struct hosts *hosts = user;
    struct making *m = (struct making *)guest;

    if (hosts->status != SYMM_OK) /* it ends the meeting */
        return NULL;
    return m->stage == HANDSHAKE ? hear_handshake(hosts, m) : hear_proof(hosts, m);
}

/* ---- Together --------------------------------------------------------------------- */

static symm_status not_reached(const struct hosts *hosts, int rank)
{
    const struct symm_host_address *place = &hosts->places[rank];
    char text[64];

    if (hosts->stranger[rank])
        return symm__fail(
            SYMM_ERR_REFUSED,
            "what answers rank %d in place of rank %d on host %s does not know the "
            "job's secret, or is of another version",
            hosts->rank, rank, place->host.name);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d cannot reach rank %d on host %s at %s (%s) within %.3g s; does a "
        "firewall stand between them, is that address not for other hosts "
        "(SYMM_HOST_ADDRESS), or has that rank another secret or version?",
        hosts->rank, rank, place->host.name,
        symm__host_address_text(place, text, sizeof(text)),
        hosts->why[rank][0] ? hosts->why[rank] : "it does not answer",
        symm__now() - hosts->start);
}

static symm_status missing(const struct hosts *hosts)
{
    int ranks[SYMM_BOOTSTRAP_MAX], count = 0;
    unsigned long refusals = hosts->inbound.refusals;
    char names[300], refused[80] = "";

    for (int r = 0; r < hosts->size; r++) {
        if (!is_far(hosts, r) || hosts->peer_fd[r] >= 0)
            continue;
        if (r < hosts->rank)
            return not_reached(hosts, r);
        ranks[count++] = r;
    }
    symm__ranks_text(ranks, count, names, sizeof(names));
    if (refusals)
        snprintf(refused, sizeof(refused), "; %lu connections were refused", refusals);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s (host %s%s) did not connect to rank %d on host %s within %.3g "
        "s%s: ended, or stopped by a firewall?",
        names, hosts->places[ranks[0]].host.name, count > 1 ? " and others" : "",
        hosts->rank, hosts->places[hosts->rank].host.name, symm__now() - hosts->start,
        refused);
}

/* Fills polls: of outbound. Returns when to look without an event. */
static double set_polls(struct hosts *hosts)
{
    double due = symm__acceptor_due(&hosts->inbound);
    double wake = due < hosts->until ? due : hosts->until;

    for (int i = 0; i < hosts->outbound_count; i++) {
        const struct making *m = &hosts->outbound[i];
        bool made = hosts->peer_fd[m->rank] >= 0;

        hosts->polls[i] =
            (struct pollfd){.fd = made ? -1 : m->at.fd,
                            .events = m->stage == CONNECTING ? POLLOUT : POLLIN};
        if (!made && m->stage <= CONNECTING && m->at.until < wake)
            wake = m->at.until;
    }
    return wake;
}

static symm_status turn(struct hosts *hosts)
{
    struct timespec span = symm__timespec(set_polls(hosts) - symm__now());
    int outbound = hosts->outbound_count;
    size_t inbound = symm__acceptor_watch(&hosts->inbound, hosts->polls + outbound);
    int ready = ppoll(hosts->polls, (nfds_t)outbound + inbound, &span, NULL);
    symm_status status = SYMM_OK;

    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "rank %d waiting for ranks of other hosts",
                                hosts->rank);
    if (ready < 0)
        return SYMM_OK;
    for (int i = 0; i < outbound && status == SYMM_OK; i++)
        if (hosts->peer_fd[hosts->outbound[i].rank] < 0)
            status = move_outbound(hosts, &hosts->outbound[i], hosts->polls[i].revents);
    if (status != SYMM_OK)
        return status;
    /* Too few descriptors: the own tries tell it if nothing else helps. */
    (void)symm__acceptor_serve(&hosts->inbound, hosts->polls + outbound, inbound);
    return hosts->status;
}

symm_status symm__hosts_connect(int rank, int size,
                                const struct symm_host_address *places, int listener,
                                const uint8_t *key, double until, int *peer_fd,
                                struct symm_tcp **tcp)
{
    struct hosts *hosts = calloc(1, sizeof(*hosts));
    symm_status status = SYMM_OK;

    if (!hosts)
        return symm__fail(SYMM_ERR_NOMEM,
                          "rank %d: no memory to meet ranks of other hosts", rank);
    hosts->rank = rank;
    hosts->size = size;
    hosts->places = places;
    hosts->key = key;
    hosts->start = symm__now();
    hosts->until = until;
    hosts->peer_fd = peer_fd;
    hosts->tcp = tcp;
    hosts->inbound = (struct symm_acceptor){.listener = listener,
                                            .most = INBOUND_MAX,
                                            .guest_bytes = sizeof(struct making),
                                            .seconds = INBOUND_SECONDS,
                                            .hear = hear_inbound,
                                            .refused = log_refused,
                                            .user = hosts};
    if (!symm__acceptor_open(&hosts->inbound))
        status = symm__fail(SYMM_ERR_NOMEM,
                            "rank %d: no memory to meet ranks of other hosts", rank);
    for (int r = 0; r < size; r++) {
        hosts->missing += is_far(hosts, r);
        if (r < rank && is_far(hosts, r))
            hosts->outbound[hosts->outbound_count++] =
                (struct making){.stage = WAITING,
                                .at.fd = -1,
                                .rank = r,
                                .pause = RETRY_SECONDS,
                                .patience = CONNECT_SECONDS};
    }
    while (status == SYMM_OK && hosts->missing > 0)
        status = symm__now() >= until ? missing(hosts) : turn(hosts);
    symm__acceptor_close(&hosts->inbound);
    for (int i = 0; i < hosts->outbound_count; i++)
        if (hosts->outbound[i].at.fd >= 0)
            close(hosts->outbound[i].at.fd);
    free(hosts);
    return status;
}
