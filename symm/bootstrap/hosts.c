/* SPDX-License-Identifier: MIT */
/*
 * hosts.c - which host a rank is on, where it listens, and one TCP connection between each two
 * ranks of different hosts (hosts.h).
 *
 * The higher rank connects to the lower, and both prove that they know the job's key
 * (net/auth.h). Connections that come are guests of an acceptor (net/acceptor.h), spared once
 * they have sent a valid handshake. The higher rank tries again whenever a connection is lost
 * before the lower has confirmed it. The lower rank counts a rank only after its finish, so
 * that it listens until no rank tries again.
 */
#include "bootstrap/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bootstrap/job.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "net/auth.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/options.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define HOSTS_MAGIC     0x53594d48u /* "SYMH" */
#define HOSTS_VERSION   2u
#define INBOUND_MAX     256
#define INBOUND_SECONDS 2.0  /* for a stranger to send a valid handshake */
#define RETRY_SECONDS   0.02 /* before the next try to connect; doubles */
#define RETRY_MOST      0.25
#define CONNECT_SECONDS 0.25 /* for the first try to connect; doubles */
#define CONNECT_MOST    4.0

/* ---- Which host ------------------------------------------------------------------- */

symm_status symm__host_identify(struct symm_host *host)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ID);
    char boot[64] = "";
    struct utsname system;

    *host = (struct symm_host){.id = SYMM_FNV_BASIS};
    if (given) {
        host->id = symm__fnv_text(host->id, given);
        snprintf(host->name, sizeof(host->name), "%.31s", given);
        return SYMM_OK;
    }
    if (uname(&system) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "asking for the host's name");
    /* Without the boot id this rank would seem to be on another host than its neighbours: only
     * a system that has none does without. */
    if (symm__read_text(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id") < 0 &&
        errno != ENOENT && errno != EACCES)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "reading the system's boot id");
    /* With the NUL: it keeps the two texts apart. */
    host->id = symm__fnv(host->id ^ 1, boot, strlen(boot) + 1);
    host->id = symm__fnv_text(host->id, system.nodename);
    snprintf(host->name, sizeof(host->name), "%.31s", system.nodename);
    return SYMM_OK;
}

/* ---- Addresses -------------------------------------------------------------------- */

static struct symm_address address_of(const struct symm_host_address *place)
{
    struct symm_address address = {.bytes = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address.at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address.at;

    if (place->family == 6) {
        address.bytes = sizeof(*v6);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = place->port;
        memcpy(&v6->sin6_addr, place->address, 16);
        return address;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = place->port;
    memcpy(&v4->sin_addr, place->address, 4);
    return address;
}

static void address_place(const struct sockaddr_storage *address,
                          struct symm_host_address *place)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    place->family = address->ss_family == AF_INET6 ? 6 : 4;
    place->port = place->family == 6 ? v6->sin6_port : v4->sin_port;
    if (place->family == 6)
        memcpy(place->address, &v6->sin6_addr, 16);
    else
        memcpy(place->address, &v4->sin_addr, 4);
}

/* "10.0.0.1:4242" */
static const char *address_text(const struct symm_host_address *place, char *text,
                                size_t bytes)
{
    char address[INET6_ADDRSTRLEN] = "?";

    inet_ntop(place->family == 6 ? AF_INET6 : AF_INET, place->address, address,
              sizeof(address));
    snprintf(text, bytes, place->family == 6 ? "[%s]:%u" : "%s:%u", address,
             ntohs(place->port));
    return text;
}

/* The local address from which `target` (numeric; NULL: none) is reached; nothing is sent. */
static bool way_to(const char *target, struct symm_address *own)
{
    struct symm_address to;
    int fd;
    bool found = false;

    if (!target || symm__address_parse(target, SYMM_ADDRESS_NUMBER, &to))
        return false;
    fd = socket(to.at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)&to.at, to.bytes) == 0) {
        own->bytes = sizeof(own->at);
        found = getsockname(fd, (struct sockaddr *)&own->at, &own->bytes) == 0;
    }
    close(fd);
    return found;
}

/* Port 0 of the address on which ranks of other hosts find this one. */
static symm_status own_address(const char *toward, struct symm_host_address *place)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ADDRESS);
    struct symm_address own;

    if (given && symm__address_parse(given, SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(
            SYMM_ERR_INVALID,
            "SYMM_HOST_ADDRESS='%.60s': must be a numeric address of this "
            "host, as 10.0.0.1",
            given);
    /* An address that no host has is routed by the default route. */
    if (!given && !way_to(toward, &own) && !way_to("192.0.2.1", &own) &&
        !way_to("2001:db8::1", &own) &&
        symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(SYMM_ERR_SYSTEM, "this host has no network");
    address_place(&own.at, place);
    place->port = 0;
    return SYMM_OK;
}

symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener)
{
    struct symm_address own;
    char text[64];
    symm_status status = own_address(toward, place);
    int fd;

    if (status != SYMM_OK)
        return status;
    own = address_of(place);
    fd = symm__address_listen(&own);
    if (fd < 0)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "listening on %s for ranks of other hosts (another address of this host: "
            "SYMM_HOST_ADDRESS)",
            address_text(place, text, sizeof(text)));
    address_place(&own.at, place);
    *listener = fd;
    return SYMM_OK;
}

/* ---- Connections ------------------------------------------------------------------ */

enum stage {
    INBOUND, /* a new guest: the higher rank speaks next */
    WAITING, /* as are all that follow, to a lower rank: until the next try */
    CONNECTING,
    ASKED /* the lower rank speaks next */
};

/* One connection in the making. */
struct making {
    struct symm_guest at; /* until: WAITING: next try; CONNECTING: it is closed */
    enum stage stage;
    int rank; /* of the other end */
    double pause, patience;
    struct symm_auth auth;
};

struct hosts {
    int rank, size;
    const struct symm_host_address *places;
    struct symm_auth_protocol protocol;
    double start, until;
    int *peer_fd;
    struct symm_tcp **tcp;
    int missing;                       /* ranks of other hosts without a connection */
    symm_status status;                /* of what `inbound` has met */
    char why[SYMM_BOOTSTRAP_MAX][96];  /* the last try to reach that rank failed */
    bool stranger[SYMM_BOOTSTRAP_MAX]; /* what answered there did not know the key */
    struct symm_auth_nonces nonces[SYMM_BOOTSTRAP_MAX];
    struct making outbound[SYMM_BOOTSTRAP_MAX];
    int outbound_count;
    struct symm_acceptor inbound; /* of struct making; a group: those of one rank */
    struct pollfd polls[SYMM_BOOTSTRAP_MAX + 1 + INBOUND_MAX];
};

static bool is_far(const struct hosts *hosts, int rank)
{
    return hosts->places[rank].host.id != hosts->places[hosts->rank].host.id;
}

/* Both ends have confirmed: the connection is the pair's. Takes m->at.fd on success. */
static symm_status adopt(struct hosts *hosts, struct making *m)
{
    uint8_t key[SYMM_SIPHASH_KEY];

    symm__auth_key(&hosts->protocol, &m->auth, key);
    hosts->tcp[m->rank] = symm__tcp_create(m->at.fd, key, hosts->rank > m->rank);
    if (!hosts->tcp[m->rank])
        return symm__fail(SYMM_ERR_NOMEM,
                          "rank %d: no memory for the connection to rank %d",
                          hosts->rank, m->rank);
    hosts->peer_fd[m->rank] = m->at.fd;
    hosts->missing--;
    m->at.fd = -1;
    return SYMM_OK;
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

/* No descriptor or memory: unless strangers hold them, another try meets the same. */
static bool is_short(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static symm_status begin_try(struct hosts *hosts, struct making *m)
{
    struct symm_address address = address_of(&hosts->places[m->rank]);
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

/* Connecting has succeeded or failed. */
static void end_connect(struct hosts *hosts, struct making *m)
{
    int error = symm__connect_error(m->at.fd);

    m->stage = ASKED;
    if (error != 0)
        try_again(hosts, m, strerror(error));
    else if (!symm__auth_ask(&hosts->protocol, &m->auth, m->at.fd,
                             (uint32_t)hosts->rank, (uint32_t)m->rank))
        try_again(hosts, m, "it hung up");
}

static symm_status hear_lower(struct hosts *hosts, struct making *m)
{
    const struct symm_auth_handshake *theirs = &m->auth.second;
    bool answered = m->auth.stage != SYMM_AUTH_ANSWER;
    enum symm_auth_said said = symm__auth_hear(&hosts->protocol, &m->auth, m->at.fd);

    if (said == SYMM_AUTH_GONE) {
        try_again(hosts, m,
                  answered ? "it hung up before it had confirmed"
                           : "it does not answer, or hangs up");
        return SYMM_OK;
    }
    if (said == SYMM_AUTH_WAIT && m->auth.stage == SYMM_AUTH_ANSWER)
        return SYMM_OK;
    hosts->stranger[m->rank] = (said != SYMM_AUTH_WAIT && said != SYMM_AUTH_DONE) ||
                               ntohl(theirs->from) != (uint32_t)m->rank ||
                               ntohl(theirs->about) != (uint32_t)hosts->rank;
    if (hosts->stranger[m->rank])
        try_again(hosts, m, "a stranger answers");
    return said == SYMM_AUTH_DONE && m->at.fd >= 0 ? adopt(hosts, m) : SYMM_OK;
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
    if (m->stage == ASKED)
        return hear_lower(hosts, m);
    end_connect(hosts, m);
    return SYMM_OK;
}

/* ---- From higher ranks ------------------------------------------------------------ */

static void log_refused(void *user, const char *why, bool last)
{
    const struct hosts *hosts = user;

    symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", hosts->rank, why,
              last ? " (more are not logged)" : "");
}

/* A rank's handshake has arrived. */
static const char *answer(struct hosts *hosts, struct making *m)
{
    const struct symm_auth_handshake *theirs = &m->auth.first;
    uint32_t from = ntohl(theirs->from);

    if (ntohl(theirs->about) != (uint32_t)hosts->rank ||
        from <= (uint32_t)hosts->rank || from >= (uint32_t)hosts->size ||
        !is_far(hosts, (int)from) || hosts->peer_fd[from] >= 0 ||
        !symm__auth_is_new(&hosts->nonces[from], theirs))
        return "it did not begin as a rank of this job would";
    m->rank = (int)from;
    m->at.until = SYMM_ACCEPTOR_NEVER;
    symm__acceptor_spare(&hosts->inbound, &m->at, m->rank);
    return symm__auth_answer(&hosts->protocol, &m->auth, m->at.fd,
                             (uint32_t)hosts->rank, from)
               ? NULL
               : "it hung up";
}

/* The acceptor's `hear`. */
static const char *hear_inbound(void *user, struct symm_guest *guest)
{
    struct hosts *hosts = user;
    struct making *m = (struct making *)guest;
    bool handshake = m->auth.stage == SYMM_AUTH_HANDSHAKE;

    if (hosts->status != SYMM_OK) /* it ends the bootstrap */
        return NULL;
    if (!handshake && hosts->peer_fd[m->rank] >= 0)
        return "another connection of that rank was kept";
    switch (symm__auth_hear(&hosts->protocol, &m->auth, guest->fd)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        return answer(hosts, m);
    case SYMM_AUTH_DONE:
        hosts->status = adopt(hosts, m);
        return NULL;
    default:
        return handshake ? "it did not begin as a rank of this job would"
                         : "it hung up, or does not know the job's secret";
    }
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
        hosts->rank, rank, place->host.name, address_text(place, text, sizeof(text)),
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
    /* Too few descriptors: this rank's own tries report it if nothing else helps. */
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
                          "rank %d: no memory to connect to ranks of other hosts",
                          rank);
    hosts->rank = rank;
    hosts->size = size;
    hosts->places = places;
    hosts->protocol = (struct symm_auth_protocol){
        .magic = HOSTS_MAGIC, .version = HOSTS_VERSION, .key = key};
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
        status =
            symm__fail(SYMM_ERR_NOMEM,
                       "rank %d: no memory to connect to ranks of other hosts", rank);
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
