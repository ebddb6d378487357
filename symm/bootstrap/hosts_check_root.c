/* SPDX-License-Identifier: MIT */
/* hosts_check_root.c - see hosts_check.h: what rank 0 does. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/hosts_check.h"
#include "net/acceptor.h"
#include "relay/link.h"
#include "util/clock.h"
#include "util/status.h"
#include "util/text.h"

#define GUESTS_MAX    1024
#define GUEST_SECONDS 2.0
#define PINGS         8   /* the fastest counts */
#define CLOCK_SECONDS 0.5 /* a clock may be off by that */
#define REACH_SECONDS 2.0 /* for a host's own address to answer */
#define CLOSE_SECONDS 1.0 /* for the verdicts to leave */

/* A host that has come, that was refused, or that is missing. */
struct host {
    struct symm_check_entry entry; /* rank -1: not known */
    char address[64];
    int pings;          /* that have come back */
    double sent, clock; /* of the last one, by both clocks here */
    double trip, offset;
    int fd; /* connected to where its relay would listen; -1: none */
    char problem[256];
};

/* A connection. */
struct visitor {
    struct symm_guest at;
    struct symm_auth auth;
    struct symm_relay_link link;
    int host; /* index in look->hosts; -1: not known yet */
    bool open;
};

struct look {
    const struct symm_check *check;
    struct symm_acceptor acceptor;
    struct host *hosts; /* in the order in which they came; [0]: rank 0's own; owned */
    int count, room;
    int ranks; /* of those that have come */
    bool no_memory;
};

static struct host *host_add(struct look *look)
{
    struct host *more = look->hosts;

    if (look->count == look->room) {
        more = realloc(more, (size_t)(2 * look->room + 8) * sizeof(*more));
        if (!more) {
            look->no_memory = true;
            return NULL;
        }
        look->hosts = more;
        look->room = 2 * look->room + 8;
    }
    more += look->count++;
    *more = (struct host){
        .entry.rank = -1, .trip = (double)NAN, .offset = (double)NAN, .fd = -1};
    return more;
}

static void problem(struct host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets the host's problem; the first one stays. */
static void problem(struct host *host, const char *format, ...)
{
    va_list args;

    if (host->problem[0])
        return;
    va_start(args, format);
    vsnprintf(host->problem, sizeof(host->problem), format, args);
    va_end(args);
}

/* The peer's numeric address without its port, which the kernel has chosen. */
static void address_of(int fd, char *text, size_t bytes)
{
    static const char mapped[] = "[::ffff:"; /* of a listener for both families */
    struct symm_address at = {.bytes = sizeof(at.at)};
    char full[80] = "", *from = full, *port;

    if (getpeername(fd, (struct sockaddr *)&at.at, &at.bytes) == 0)
        symm__address_text(&at, full, sizeof(full));
    port = strrchr(full, ':');
    if (port)
        *port = '\0';
    if (strncmp(full, mapped, sizeof(mapped) - 1) == 0 && strchr(full, '.'))
        from += sizeof(mapped) - 1;
    else if (*from == '[')
        from++;
    from[strcspn(from, "]")] = '\0';
    snprintf(text, bytes, "%.63s", from);
}

/* ---- What hosts say -------------------------------------------------------------------- */

static void refuse(struct look *look, int fd, const char *why)
{
    char address[64];
    struct host *host;

    address_of(fd, address, sizeof(address));
    for (int i = 0; i < look->count; i++) /* a host tries several times */
        if (look->hosts[i].entry.rank < 0 &&
            strcmp(look->hosts[i].address, address) == 0 &&
            strcmp(look->hosts[i].problem, why) == 0)
            return;
    host = host_add(look);
    if (!host)
        return;
    memcpy(host->address, address, sizeof(address));
    problem(host, "%s", why);
}

static void send_plain(struct look *look, struct visitor *visitor,
                       enum symm_relay_kind kind, symm_status status, const char *text)
{
    struct symm_relay_message *message = symm__relay_message(kind, strlen(text));

    if (message) {
        message->head.status = status;
        memcpy(message->data, text, strlen(text));
    }
    if (!message || !symm__relay_link_send(&visitor->link, message))
        look->no_memory = true;
    symm__relay_drop(message);
}

static void ask_clock(struct look *look, struct visitor *visitor)
{
    struct host *host = &look->hosts[visitor->host];

    send_plain(look, visitor, SYMM_RELAY_PLACE, SYMM_OK, "");
    host->sent = symm__now();
    host->clock = symm__check_clock();
}

/* False: its ranks are not ranks of the job that were missing. */
static bool judge(struct look *look, struct host *host)
{
    const struct symm_check_entry *entry = &host->entry, *own = &look->check->mine;

    if (entry->size != own->size)
        problem(host,
                "it says that the job has %d ranks, rank 0 says %d: start all "
                "hosts with the same number",
                entry->size, own->size);
    if (entry->rank < 0 || entry->rank >= own->size)
        problem(host, "it has rank %d of %d ranks", entry->rank, own->size);
    for (struct host *other = look->hosts; other < host; other++)
        if (other->entry.rank == entry->rank && entry->rank >= 0)
            problem(host,
                    "its rank %d has come from %s already: is another process of "
                    "the job's name running?",
                    entry->rank, other->address);
    if (host->problem[0])
        return false;
    if (strcmp(entry->version, own->version) != 0)
        problem(host,
                "it has libsymm %s, rank 0's host has %s: install the same on all "
                "hosts",
                entry->version, own->version);
    return true;
}

static bool take_entry(struct look *look, struct visitor *visitor,
                       const struct symm_relay_message *message)
{
    struct host *host;

    if (message->head.bytes != sizeof(host->entry))
        return false;
    host = host_add(look);
    if (!host)
        return false;
    visitor->host = look->count - 1;
    address_of(visitor->at.fd, host->address, sizeof(host->address));
    memcpy(&host->entry, message->data, sizeof(host->entry));
    host->entry.version[SYMM_CHECK_TEXT - 1] = '\0';
    symm__printable(host->entry.version, SYMM_CHECK_TEXT);
    symm__printable(host->entry.place.host.name, SYMM_HOST_NAME);
    if (judge(look, host))
        look->ranks += host->entry.local_size;
    ask_clock(look, visitor);
    return true;
}

static bool take_clock(struct look *look, struct visitor *visitor,
                       const struct symm_relay_message *message)
{
    struct host *host = &look->hosts[visitor->host];
    double trip = symm__now() - host->sent, clock;

    if (message->head.bytes != sizeof(clock) || host->pings >= PINGS)
        return false;
    memcpy(&clock, message->data, sizeof(clock));
    if (host->pings == 0 || trip < host->trip) {
        host->trip = trip;
        host->offset = clock - (host->clock + trip / 2);
    }
    if (++host->pings < PINGS)
        ask_clock(look, visitor);
    return true;
}

static const char *move(struct look *look, struct visitor *visitor)
{
    for (;;) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&visitor->link, &message);
        bool good;

        if (wire == SYMM_SEQPACKET_AGAIN)
            break;
        if (wire != SYMM_SEQPACKET_OK)
            return "";
        good = message->head.kind == SYMM_RELAY_JOIN &&
               (visitor->host < 0 ? take_entry(look, visitor, message)
                                  : take_clock(look, visitor, message));
        symm__relay_drop(message);
        if (!good)
            return "it did not say what symm-info would";
    }
    if (symm__relay_link_flush(&visitor->link) == SYMM_SEQPACKET_ERROR)
        return "";
    visitor->at.events =
        (short)(POLLIN | (symm__relay_link_owes(&visitor->link) ? POLLOUT : 0));
    return NULL;
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *hear(void *user, struct symm_guest *at)
{
    struct look *look = user;
    struct visitor *visitor = (struct visitor *)at;
    const struct symm_auth_protocol *protocol = &look->check->protocol;
    uint8_t key[SYMM_SIPHASH_KEY];

    if (visitor->open)
        return move(look, visitor);
    switch (symm__auth_hear(protocol, &visitor->auth, at->fd)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        visitor->host = -1;
        return symm__auth_answer(protocol, &visitor->auth, at->fd, 0, 0) ? NULL : "";
    case SYMM_AUTH_DONE:
        break;
    case SYMM_AUTH_VERSION:
        refuse(look, at->fd,
               "it has another version of libsymm than rank 0's host: "
               "install the same on all hosts");
        return "";
    case SYMM_AUTH_KEY:
        refuse(look, at->fd,
               "it does not know the job's secret: give all hosts the "
               "same SYMM_JOB_SECRET");
        return "";
    default: /* a stranger: nothing says that it is a host of the job */
        return "";
    }
    symm__auth_key(protocol, &visitor->auth, key);
    if (!symm__relay_link_open(&visitor->link, at->fd, key, false))
        return "there is no memory for it";
    visitor->open = true;
    at->until = look->check->until + REACH_SECONDS + 2 * CLOSE_SECONDS;
    symm__acceptor_spare(&look->acceptor, at, (int)ntohl(visitor->auth.first.from));
    return move(look, visitor);
}

static void ignore(void *user, const char *why, bool last)
{
    (void)user;
    (void)why;
    (void)last;
}

static void gone(void *user, struct symm_guest *at)
{
    struct look *look = user;
    struct visitor *visitor = (struct visitor *)at;

    if (visitor->open && visitor->host >= 0 && look->hosts[visitor->host].pings < PINGS)
        problem(&look->hosts[visitor->host], "it hung up during the check");
    symm__relay_link_close(&visitor->link);
}

/* ---- The look -------------------------------------------------------------------------- */

static bool is_complete(const struct look *look)
{
    if (look->ranks < look->check->mine.size)
        return false;
    for (int i = 1; i < look->count; i++)
        if (look->hosts[i].entry.rank >= 0 && look->hosts[i].pings < PINGS &&
            !look->hosts[i].problem[0])
            return false;
    return true;
}

static void serve(struct look *look, struct pollfd *polls, double until)
{
    size_t count = symm__acceptor_watch(&look->acceptor, polls);
    double due = symm__acceptor_due(&look->acceptor);
    struct timespec span = symm__timespec((due < until ? due : until) - symm__now());

    if (ppoll(polls, (nfds_t)count, &span, NULL) >= 0)
        (void)symm__acceptor_serve(&look->acceptor, polls, count);
}

/* Connects to where the hosts' relays would listen, to all at once. */
static void reach(struct look *look)
{
    double until = symm__now() + REACH_SECONDS;
    int waiting = 0;

    for (int i = 0; i < look->count; i++) {
        struct host *host = &look->hosts[i];
        const struct symm_address at = symm__host_address(&host->entry.place);

        if (host->entry.rank < 0 || host->problem[0])
            continue;
        host->fd = symm__address_connect(&at);
        if (host->fd < 0)
            problem(host,
                    "the address where its relay would listen is of no use here "
                    "(%s): see SYMM_SOCKET_IFNAME and SYMM_HOST_ADDRESS",
                    strerror(errno));
    }
    do {
        waiting = 0;
        for (int i = 0; i < look->count; i++) {
            struct host *host = &look->hosts[i];
            struct pollfd at = {.fd = host->fd, .events = POLLOUT};
            const struct symm_address place = symm__host_address(&host->entry.place);
            bool late = symm__now() >= until;
            char text[64];
            int error = ETIMEDOUT;

            if (host->fd < 0)
                continue;
            if (poll(&at, 1, 0) > 0)
                error = symm__connect_error(host->fd);
            else if (!late && ++waiting)
                continue;
            if (error)
                problem(host,
                        "rank 0's host cannot connect to %s, where its relay would "
                        "listen (%s): does a firewall stand between, or does "
                        "SYMM_SOCKET_IFNAME or SYMM_HOST_ADDRESS name a wrong "
                        "network there?",
                        symm__address_text(&place, text, sizeof(text)),
                        strerror(error));
            close(host->fd);
            host->fd = -1;
        }
        if (waiting > 0)
            symm__sleep(0.002);
    } while (waiting > 0);
}

/* Adds the hosts that have not come. Their lowest ranks are known if all hosts have equally many
 * ranks, in order. */
static void add_missing(struct look *look)
{
    const struct symm_check_entry *own = &look->check->mine;
    int each = own->local_size, came = look->count, missing = own->size - look->ranks;
    bool regular = own->size % each == 0;
    double seconds = symm__now() - look->check->start;
    struct host *host;

    for (int i = 0; i < came; i++)
        regular = regular && (look->hosts[i].entry.rank < 0 ||
                              (look->hosts[i].entry.local_size == each &&
                               look->hosts[i].entry.rank % each == 0));
    if (missing <= 0)
        return;
    for (int r = 0; regular && r < own->size; r += each) {
        bool here = false;

        for (int i = 0; i < came; i++)
            here = here || look->hosts[i].entry.rank == r;
        host = here ? NULL : host_add(look);
        if (!host)
            continue;
        host->entry.rank = r;
        host->entry.local_size = each;
        problem(host,
                "it has not come within %.3g s: is symm-info not running there, or "
                "does it not reach rank 0's host (it says so itself)?",
                seconds);
    }
    host = regular ? NULL : host_add(look);
    if (host)
        problem(host,
                "hosts with %d of the job's %d ranks have not come within %.3g s: "
                "is symm-info not running there, or do they not reach rank 0's "
                "host (they say so themselves)?",
                missing, own->size, seconds);
}

static void find_faults(struct look *look)
{
    for (int i = 1; i < look->count; i++) {
        struct host *host = &look->hosts[i];

        if (host->entry.rank < 0 || host->problem[0])
            continue;
        if (host->pings < PINGS)
            problem(host, "it has not answered %d messages by the deadline", PINGS);
        else if (fabs(host->offset) - host->trip / 2 > CLOCK_SECONDS)
            problem(host,
                    "its clock is %.3g s %s that of rank 0's host, so times in "
                    "logs and traces do not compare: let NTP or PTP set both",
                    fabs(host->offset), host->offset > 0 ? "ahead of" : "behind");
    }
    reach(look);
    add_missing(look);
}

static void report(const struct host *host,
                   void (*each)(void *arg, const symm_host_report *host), void *arg)
{
    const symm_host_report report = {.size = sizeof(report),
                                     .rank = host->entry.rank,
                                     .ranks = host->entry.local_size,
                                     .name = host->entry.place.host.name,
                                     .address = host->address,
                                     .version = host->entry.version,
                                     .round_trip = host->trip,
                                     .clock_offset = host->offset,
                                     .clock_error = host->trip / 2,
                                     .good = host->problem[0] == '\0',
                                     .problem = host->problem};

    each(arg, &report);
}

/* By their lowest ranks; those that are not known at the end. */
static int host_compare(const void *a, const void *b)
{
    const struct host *x = a, *y = b;

    return ((unsigned)x->entry.rank > (unsigned)y->entry.rank) -
           ((unsigned)x->entry.rank < (unsigned)y->entry.rank);
}

/* Sends the verdict to all hosts that are connected. */
static void tell(struct look *look, struct pollfd *polls, int bad)
{
    double until = symm__now() + CLOSE_SECONDS;
    bool owes = true;

    for (size_t i = 0; i < look->acceptor.count; i++) {
        struct visitor *visitor = (struct visitor *)look->acceptor.guests[i];
        char text[400];

        if (!visitor->open || visitor->at.fd < 0 || visitor->host < 0)
            continue;
        if (look->hosts[visitor->host].problem[0])
            snprintf(text, sizeof(text), "rank 0 says of this host: %s",
                     look->hosts[visitor->host].problem);
        else
            snprintf(text, sizeof(text),
                     "%d host%s a problem, of which rank 0 tells; this one is good",
                     bad, bad == 1 ? " has" : "s have");
        send_plain(look, visitor, SYMM_RELAY_TABLE, bad ? SYMM_ERR_JOB : SYMM_OK,
                   bad ? text : "");
        (void)symm__relay_link_flush(&visitor->link);
    }
    while (owes && symm__now() < until) { /* they hang up once they have it */
        owes = false;
        for (size_t i = 0; i < look->acceptor.count; i++) {
            const struct visitor *visitor =
                (const struct visitor *)look->acceptor.guests[i];

            owes = owes || (visitor->open && visitor->at.fd >= 0);
        }
        if (owes)
            serve(look, polls, symm__now() + 0.05);
    }
}

static bool look_open(struct look *look, int listener)
{
    struct host *own = host_add(look);

    if (!own)
        return false;
    own->entry = look->check->mine;
    own->pings = PINGS;
    own->trip = own->offset = 0;
    snprintf(own->address, sizeof(own->address), "%s", "this host");
    look->ranks = own->entry.local_size;
    look->acceptor = (struct symm_acceptor){.listener = listener,
                                            .most = GUESTS_MAX,
                                            .guest_bytes = sizeof(struct visitor),
                                            .seconds = GUEST_SECONDS,
                                            .hear = hear,
                                            .refused = ignore,
                                            .gone = gone,
                                            .user = look};
    return listener < 0 || symm__acceptor_open(&look->acceptor);
}

symm_status symm__check_all(const struct symm_check *check, int listener,
                            void (*each)(void *arg, const symm_host_report *host),
                            void *arg)
{
    struct look look = {.check = check};
    struct pollfd *polls = calloc(GUESTS_MAX + 1, sizeof(*polls));
    int bad = 0;

    if (!polls || !look_open(&look, listener))
        look.no_memory = true;
    while (!look.no_memory && !is_complete(&look) && symm__now() < check->until)
        serve(&look, polls, check->until);
    if (!look.no_memory)
        find_faults(&look);
    for (int i = 0; i < look.count; i++)
        bad += look.hosts[i].problem[0] != '\0';
    if (!look.no_memory)
        tell(&look, polls, bad);
    symm__acceptor_close(&look.acceptor);
    if (!look.no_memory) {
        qsort(look.hosts, (size_t)look.count, sizeof(*look.hosts), host_compare);
        for (int i = 0; i < look.count; i++)
            report(&look.hosts[i], each, arg);
    }
    free(look.hosts);
    free(polls);
    if (look.no_memory)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to check the job's hosts");
    return bad == 0 ? SYMM_OK
                    : symm__fail(SYMM_ERR_JOB, "%d host%s a problem", bad,
                                 bad == 1 ? " has" : "s have");
}
