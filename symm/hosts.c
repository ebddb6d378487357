/* SPDX-License-Identifier: MIT */
/*
 * hosts.c - see hosts.h.
 *
 * The higher rank connects to the lower. Each sends a random nonce; the lower answers with a
 * keyed hash over both, the higher with another. So neither end can be played by who does not
 * know the key, old answers are of no use, and the key for the packets that follow is this
 * connection's own. A rank first connects to all lower ranks, in order, then accepts: the
 * lowest of those that wait always answers.
 */
#include "hosts.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clock.h"
#include "job.h"
#include "log.h"
#include "meet_wire.h"
#include "options.h"
#include "ranks.h"
#include "status.h"

#define HOSTS_MAGIC     0x53594d48u /* "SYMH" */
#define HOSTS_VERSION   1u
#define NONCE_BYTES     16
#define PENDING_MAX     64
#define PENDING_SECONDS 2.0  /* for a stranger to prove that it is none */
#define TRY_SECONDS     0.02 /* between tries to connect */
#define REFUSED_LOGGED  8
#define SILENT_SECONDS  30 /* until a host that says nothing is taken for gone */

/* What both ends say first; in network byte order. */
struct greeting {
    uint32_t magic, version;
    uint32_t from, to; /* ranks */
    uint8_t nonce[NONCE_BYTES];
};

struct answer {
    struct greeting greeting;
    uint64_t proof;
};

struct pending {
    int fd;
    double until;
    bool answered;
    struct greeting theirs;
    struct answer mine;
};

struct hosts {
    int rank, size;
    const struct symm_host_place *places;
    int listener;
    const uint8_t *key;
    double start, until;
    int *peer_fd;
    struct symm_tcp **tcp;
    int wanted, refused;
    struct pending pending[PENDING_MAX];
    int pending_count;
};

/* ---- Which host ------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (uint8_t)*text) * 1099511628211u; /* FNV-1a */
    while (*text++);
    return hash;
}

/* A guess would make this rank another host's: only a system without one does without. */
static symm_status read_boot_id(char *text, size_t bytes)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), error;
    ssize_t got;

    if (fd < 0 && (errno == ENOENT || errno == EACCES))
        return SYMM_OK;
    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "opening the system's boot id");
    do
        got = read(fd, text, bytes - 1);
    while (got < 0 && errno == EINTR);
    error = errno;
    close(fd);
    if (got < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "reading the system's boot id");
    text[got] = '\0';
    return SYMM_OK;
}

symm_status symm__host_identify(struct symm_host *host)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ID);
    char boot[64] = "";
    struct utsname system;
    symm_status status;

    *host = (struct symm_host){.id = 14695981039346656037u};
    if (given) {
        host->id = hash_text(host->id, given);
        snprintf(host->name, sizeof(host->name), "%.31s", given);
        return SYMM_OK;
    }
    if (uname(&system) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "asking for the host's name");
    status = read_boot_id(boot, sizeof(boot));
    if (status != SYMM_OK)
        return status;
    host->id = hash_text(hash_text(host->id ^ 1, boot), system.nodename);
    snprintf(host->name, sizeof(host->name), "%.31s", system.nodename);
    return SYMM_OK;
}

/* ---- Addresses -------------------------------------------------------------------- */

static socklen_t place_address(const struct symm_host_place *place,
                               struct sockaddr_storage *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof(*address));
    if (place->family == 6) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = place->port;
        memcpy(&v6->sin6_addr, place->address, 16);
        return sizeof(*v6);
    }
    v4->sin_family = AF_INET;
    v4->sin_port = place->port;
    memcpy(&v4->sin_addr, place->address, 4);
    return sizeof(*v4);
}

static bool address_place(const struct sockaddr_storage *address,
                          struct symm_host_place *place)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    place->family = address->ss_family == AF_INET6  ? 6
                    : address->ss_family == AF_INET ? 4
                                                    : 0;
    place->port = place->family == 6 ? v6->sin6_port : v4->sin_port;
    if (place->family == 6)
        memcpy(place->address, &v6->sin6_addr, 16);
    else
        memcpy(place->address, &v4->sin_addr, 4);
    return place->family != 0;
}

static const char *place_text(const struct symm_host_place *place, char *text,
                              size_t bytes)
{
    char address[INET6_ADDRSTRLEN] = "?";

    inet_ntop(place->family == 6 ? AF_INET6 : AF_INET, place->address, address,
              sizeof(address));
    snprintf(text, bytes, place->family == 6 ? "[%s]:%u" : "%s:%u", address,
             ntohs(place->port));
    return text;
}

/* "10.0.0.1", "10.0.0.1:4242", "[fe80::1]:4242": numbers only. */
static bool parse_address(const char *text, struct sockaddr_storage *address)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    size_t length = strlen(text);
    char name[INET6_ADDRSTRLEN + 1];

    if (bracket || (colon && strchr(text, ':') == colon))
        length = colon ? (size_t)(colon - text) : length;
    if (bracket && length >= 2 && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(name))
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    if (getaddrinfo(name, "9", &hints, &found) != 0)
        return false;
    memset(address, 0, sizeof(*address));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return true;
}

/* The own address of the way there; nothing is sent. */
static bool way_to(const struct sockaddr_storage *target, struct sockaddr_storage *own)
{
    socklen_t bytes = target->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                    : sizeof(struct sockaddr_in);
    int fd = socket(target->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = false;

    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)target, bytes) == 0) {
        bytes = sizeof(*own);
        found = getsockname(fd, (struct sockaddr *)own, &bytes) == 0;
    }
    close(fd);
    return found;
}

/* Port 0 of the address on which ranks of other hosts find this one. */
static symm_status own_address(const char *toward, struct sockaddr_storage *own)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ADDRESS);
    struct sockaddr_storage target;

    if (given && !parse_address(given, own))
        return symm__fail(
            SYMM_ERR_INVALID,
            "SYMM_HOST_ADDRESS='%.60s': must be a numeric address of this "
            "host, as 10.0.0.1",
            given);
    if (given)
        return SYMM_OK;
    if (toward && parse_address(toward, &target) && way_to(&target, own))
        return SYMM_OK;
    /* An address that is nobody's leads out by the default route. */
    if (parse_address("192.0.2.1", &target) && way_to(&target, own))
        return SYMM_OK;
    if (parse_address("2001:db8::1", &target) && way_to(&target, own))
        return SYMM_OK;
    return parse_address("127.0.0.1", own)
               ? SYMM_OK
               : symm__fail(SYMM_ERR_SYSTEM, "this host has no network");
}

symm_status symm__hosts_listen(const char *toward, struct symm_host_place *place,
                               int *listener)
{
    struct sockaddr_storage own;
    socklen_t bytes;
    char text[64];
    symm_status status = own_address(toward, &own);
    int fd;

    if (status != SYMM_OK)
        return status;
    address_place(&own, place);
    place->port = 0;
    bytes = place_address(place, &own);
    fd = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, bytes) != 0 ||
        listen(fd, SOMAXCONN) != 0)
        goto err_fd;
    bytes = sizeof(own);
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0)
        goto err_fd;
    address_place(&own, place);
    *listener = fd;
    return SYMM_OK;

err_fd:
    status =
        symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                         "listening on %s for ranks of other hosts (another address "
                         "of this host: SYMM_HOST_ADDRESS)",
                         place_text(place, text, sizeof(text)));
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- Proofs ----------------------------------------------------------------------- */

/* `first` is what the higher rank has said, `second` the lower. */
static uint64_t prove(const uint8_t *key, char what, const struct greeting *first,
                      const struct greeting *second)
{
    struct symm_siphash hash = symm__siphash_begin(key);

    symm__siphash_add(&hash, &what, 1);
    symm__siphash_add(&hash, first, sizeof(*first));
    symm__siphash_add(&hash, second, sizeof(*second));
    return htobe64(symm__siphash_end(&hash));
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

/* Both ends have proved themselves: the connection is the pair's. Takes fd on success. */
static symm_status adopt(struct hosts *hosts, int rank, int fd,
                         const struct greeting *first, const struct greeting *second)
{
    uint64_t halves[2] = {prove(hosts->key, 'k', first, second),
                          prove(hosts->key, 'l', first, second)};
    uint8_t key[SYMM_SIPHASH_KEY];
    symm_status status;

    memcpy(key, halves, sizeof(key));
    status = symm__tcp_create(fd, key, hosts->rank > rank, &hosts->tcp[rank]);
    if (status != SYMM_OK)
        return status;
    set_options(fd);
    hosts->peer_fd[rank] = fd;
    hosts->wanted--;
    return SYMM_OK;
}

static symm_status greeting_make(const struct hosts *hosts, int to,
                                 struct greeting *greeting)
{
    *greeting = (struct greeting){.magic = htonl(HOSTS_MAGIC),
                                  .version = htonl(HOSTS_VERSION),
                                  .from = htonl((uint32_t)hosts->rank),
                                  .to = htonl((uint32_t)to)};
    return symm__meet_random(greeting->nonce, sizeof(greeting->nonce));
}

static bool greeting_fits(const struct hosts *hosts, const struct greeting *greeting)
{
    return ntohl(greeting->magic) == HOSTS_MAGIC &&
           ntohl(greeting->version) == HOSTS_VERSION &&
           ntohl(greeting->to) == (uint32_t)hosts->rank;
}

static bool is_far(const struct hosts *hosts, int rank)
{
    return hosts->places[rank].host.id != hosts->places[hosts->rank].host.id;
}

/* ---- To lower ranks --------------------------------------------------------------- */

static symm_status not_reached(const struct hosts *hosts, int rank, const char *how)
{
    char text[64];

    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d cannot reach rank %d on host %s at %s (%s) within %.3g s; "
        "does a firewall stand between them, or is that address not for "
        "other hosts (SYMM_HOST_ADDRESS)?",
        hosts->rank, rank, hosts->places[rank].host.name,
        place_text(&hosts->places[rank], text, sizeof(text)), how,
        symm__now() - hosts->start);
}

/* *fd: connected; -1: not this time, errno says why. */
static symm_status try_connect(const struct hosts *hosts, int rank, int *fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = place_address(&hosts->places[rank], &address), length;
    int error = 0;

    *fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "a socket to rank %d", rank);
    if (connect(*fd, (struct sockaddr *)&address, bytes) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        length = sizeof(error);
        if (symm__wire_wait(*fd, POLLOUT, hosts->until) != SYMM_WIRE_OK)
            error = ETIMEDOUT;
        else if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
            error = errno;
    }
    if (error != 0) {
        close(*fd);
        *fd = -1;
        errno = error;
    }
    return SYMM_OK;
}

/* Reads exactly that much. False: too late, or it has hung up. */
static bool read_all(int fd, void *data, size_t bytes, double until)
{
    uint8_t *at = data;

    while (bytes > 0) {
        ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);

        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) ||
                   symm__wire_wait(fd, POLLIN, until) != SYMM_WIRE_OK) {
            return false;
        }
    }
    return true;
}

/* A message is far smaller than any socket's buffer. */
static bool write_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static symm_status introduce(struct hosts *hosts, int rank, int fd)
{
    struct greeting mine;
    struct answer theirs;
    symm_status status = greeting_make(hosts, rank, &mine);
    uint64_t proof;

    if (status != SYMM_OK)
        return status;
    if (!write_all(fd, &mine, sizeof(mine)) ||
        !read_all(fd, &theirs, sizeof(theirs), hosts->until))
        return not_reached(hosts, rank, "it does not answer, or hangs up");
    if (!greeting_fits(hosts, &theirs.greeting) ||
        ntohl(theirs.greeting.from) != (uint32_t)rank ||
        theirs.proof != prove(hosts->key, 'a', &mine, &theirs.greeting))
        return symm__fail(
            SYMM_ERR_REFUSED,
            "what answers rank %d in place of rank %d on host %s does not "
            "know the job's secret, or is of another version",
            hosts->rank, rank, hosts->places[rank].host.name);
    proof = prove(hosts->key, 'b', &mine, &theirs.greeting);
    if (!write_all(fd, &proof, sizeof(proof)))
        return not_reached(hosts, rank, "it has hung up");
    return adopt(hosts, rank, fd, &mine, &theirs.greeting);
}

static symm_status connect_to(struct hosts *hosts, int rank)
{
    int fd = -1;
    symm_status status;

    for (;;) {
        status = try_connect(hosts, rank, &fd);
        if (status != SYMM_OK || fd >= 0)
            break;
        if (symm__now() + TRY_SECONDS >= hosts->until)
            return not_reached(hosts, rank, strerror(errno));
        symm__sleep(TRY_SECONDS);
    }
    if (status == SYMM_OK)
        status = introduce(hosts, rank, fd);
    if (status != SYMM_OK && fd >= 0)
        close(fd);
    return status;
}

/* ---- From higher ranks ------------------------------------------------------------ */

static void drop(struct hosts *hosts, int index, const char *why)
{
    if (hosts->pending[index].fd >= 0)
        close(hosts->pending[index].fd);
    hosts->pending[index] = hosts->pending[--hosts->pending_count];
    if (why && ++hosts->refused <= REFUSED_LOGGED)
        symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", hosts->rank, why,
                  hosts->refused == REFUSED_LOGGED ? " (more are not logged)" : "");
}

static void accept_all(struct hosts *hosts)
{
    for (int i = 0; i < PENDING_MAX; i++) {
        int fd = accept4(hosts->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        if (hosts->pending_count == PENDING_MAX)
            drop(hosts, 0, "too many connections say nothing");
        hosts->pending[hosts->pending_count++] =
            (struct pending){.fd = fd, .until = symm__now() + PENDING_SECONDS};
    }
}

/* A whole message, or nothing is taken. 1: it is here; 0: not yet; -1: never. */
static int take(int fd, void *data, size_t bytes)
{
    ssize_t got = recv(fd, data, bytes, MSG_PEEK | MSG_DONTWAIT);

    if (got == (ssize_t)bytes)
        return recv(fd, data, bytes, MSG_DONTWAIT) == got ? 1 : -1;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : -1;
}

static symm_status hear_greeting(struct hosts *hosts, int index)
{
    struct pending *p = &hosts->pending[index];
    int come = take(p->fd, &p->theirs, sizeof(p->theirs));
    uint32_t from = ntohl(p->theirs.from);
    symm_status status;

    if (come == 0)
        return SYMM_OK;
    if (come < 0 || !greeting_fits(hosts, &p->theirs) ||
        from >= (uint32_t)hosts->size || (int)from <= hosts->rank ||
        !is_far(hosts, (int)from)) {
        drop(hosts, index, "it did not begin as a rank of this job would");
        return SYMM_OK;
    }
    status = greeting_make(hosts, (int)from, &p->mine.greeting);
    if (status != SYMM_OK)
        return status;
    p->mine.proof = prove(hosts->key, 'a', &p->theirs, &p->mine.greeting);
    p->answered = true;
    if (!write_all(p->fd, &p->mine, sizeof(p->mine)))
        drop(hosts, index, "it hung up");
    return SYMM_OK;
}

static symm_status hear_proof(struct hosts *hosts, int index)
{
    struct pending *p = &hosts->pending[index];
    int from = (int)ntohl(p->theirs.from); /* checked */
    uint64_t proof;
    int come = take(p->fd, &proof, sizeof(proof));
    symm_status status;

    if (come == 0)
        return SYMM_OK;
    if (come < 0 || proof != prove(hosts->key, 'b', &p->theirs, &p->mine.greeting)) {
        drop(hosts, index, "it does not know the job's secret");
        return SYMM_OK;
    }
    if (hosts->peer_fd[from] >= 0) {
        drop(hosts, index, "that rank has connected before");
        return SYMM_OK;
    }
    status = adopt(hosts, from, p->fd, &p->theirs, &p->mine.greeting);
    if (status == SYMM_OK) {
        p->fd = -1;
        drop(hosts, index, NULL);
    }
    return status;
}

static symm_status missing(const struct hosts *hosts)
{
    int ranks[SYMM_MEET_MAX], count = 0;
    char names[300], refused[80] = "";

    for (int r = hosts->rank + 1; r < hosts->size; r++)
        if (is_far(hosts, r) && hosts->peer_fd[r] < 0)
            ranks[count++] = r;
    symm__ranks_text(ranks, count, names, sizeof(names));
    if (hosts->refused)
        snprintf(refused, sizeof(refused), "; %d connections were refused",
                 hosts->refused);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s (host %s%s) did not connect to rank %d on host %s within %.3g "
        "s%s: ended, or stopped by a firewall?",
        names, hosts->places[ranks[0]].host.name, count > 1 ? " and others" : "",
        hosts->rank, hosts->places[hosts->rank].host.name, symm__now() - hosts->start,
        refused);
}

static symm_status hear_pending(struct hosts *hosts)
{
    symm_status status = SYMM_OK;

    for (int i = hosts->pending_count - 1; i >= 0 && status == SYMM_OK; i--) {
        if (hosts->pending[i].until <= symm__now())
            drop(hosts, i, "it said nothing");
        else
            status = hosts->pending[i].answered ? hear_proof(hosts, i)
                                                : hear_greeting(hosts, i);
    }
    return status;
}

static symm_status accept_turn(struct hosts *hosts)
{
    struct pollfd polls[1 + PENDING_MAX];
    double wake = hosts->until;
    struct timespec span;

    polls[0] = (struct pollfd){.fd = hosts->listener, .events = POLLIN};
    for (int i = 0; i < hosts->pending_count; i++) {
        polls[1 + i] = (struct pollfd){.fd = hosts->pending[i].fd, .events = POLLIN};
        wake = hosts->pending[i].until < wake ? hosts->pending[i].until : wake;
    }
    span = symm__timespec(wake - symm__now());
    if (ppoll(polls, (nfds_t)(1 + hosts->pending_count), &span, NULL) < 0 &&
        errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "rank %d waiting for ranks of other hosts",
                                hosts->rank);
    accept_all(hosts);
    /* A message that came in part stays where it is, and poll tells of it again at once. */
    if (hosts->pending_count > 0)
        symm__sleep(0.0002);
    return hear_pending(hosts);
}

symm_status symm__hosts_connect(int rank, int size,
                                const struct symm_host_place *places, int listener,
                                const uint8_t *key, double until, int *peer_fd,
                                struct symm_tcp **tcp)
{
    struct hosts hosts = {.rank = rank,
                          .size = size,
                          .places = places,
                          .listener = listener,
                          .key = key,
                          .start = symm__now(),
                          .until = until,
                          .peer_fd = peer_fd,
                          .tcp = tcp};
    symm_status status = SYMM_OK;

    for (int r = 0; r < rank && status == SYMM_OK; r++)
        if (is_far(&hosts, r))
            status = connect_to(&hosts, r);
    hosts.wanted = 0;
    for (int r = rank + 1; r < size; r++)
        hosts.wanted += is_far(&hosts, r);
    while (status == SYMM_OK && hosts.wanted > 0) {
        if (symm__now() >= until)
            status = missing(&hosts);
        else
            status = accept_turn(&hosts);
    }
    while (hosts.pending_count > 0)
        drop(&hosts, hosts.pending_count - 1, NULL);
    return status;
}
