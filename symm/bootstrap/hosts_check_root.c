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
struct caller {
    struct symm_guest at;
    struct symm_auth auth;
    struct symm_relay_link link;
    int host; /* index in survey->hosts; -1: not known yet */
    bool open;
};

struct survey {
    const struct symm_check *check;
    struct symm_acceptor acceptor;
    struct host *hosts; /* in the order in which they came; [0]: rank 0's own; owned */
    int count, room;
    int ranks; /* of those that have come */
    bool no_memory;
};

static struct host *host_add(struct survey *survey)
{
    struct host *more = survey->hosts;

    if (survey->count == survey->room) {
        more = realloc(more, (size_t)(2 * survey->room + 8) * sizeof(*more));
        if (!more) {
            survey->no_memory = true;
            return NULL;
        }
        survey->hosts = more;
        survey->room = 2 * survey->room + 8;
    }
    more += survey->count++;
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

static void refuse(struct survey *survey, int fd, const char *why)
{
    char address[64];
    struct host *host;

    address_of(fd, address, sizeof(address));
    for (int i = 0; i < survey->count; i++) /* a host tries several times */
        if (survey->hosts[i].entry.rank < 0 &&
            strcmp(survey->hosts[i].address, address) == 0 &&
            strcmp(survey->hosts[i].problem, why) == 0)
            return;
    host = host_add(survey);
    if (!host)
        return;
    memcpy(host->address, address, sizeof(address));
    problem(host, "%s", why);
}

static void send_plain(struct survey *survey, struct caller *caller,
                       enum symm_relay_kind kind, symm_status status, const char *text)
{
    struct symm_relay_message *message = symm__relay_message(kind, strlen(text));

    if (message) {
        message->head.status = status;
        memcpy(message->data, text, strlen(text));
    }
    if (!message || !symm__relay_link_send(&caller->link, message))
        survey->no_memory = true;
    symm__relay_drop(message);
}

static void ask_clock(struct survey *survey, struct caller *caller)
{
    struct host *host = &survey->hosts[caller->host];

    send_plain(survey, caller, SYMM_RELAY_PLACE, SYMM_OK, "");
    host->sent = symm__now();
    host->clock = symm__check_clock();
}

/* False: its ranks are not ranks of the job that were missing. */
static bool judge(struct survey *survey, struct host *host)
{
    const struct symm_check_entry *entry = &host->entry, *own = &survey->check->mine;

    if (entry->size != own->size)
        problem(host,
                "it says that the job has %d ranks, rank 0 says %d: start all "
                "hosts with the same number",
                entry->size, own->size);
    if (entry->rank < 0 || entry->rank >= own->size)
        problem(host, "it has rank %d of %d ranks", entry->rank, own->size);
    for (struct host *other = survey->hosts; other < host; other++)
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

static bool take_entry(struct survey *survey, struct caller *caller,
                       const struct symm_relay_message *message)
{
    struct host *host;

    if (message->head.bytes != sizeof(host->entry))
        return false;
    host = host_add(survey);
    if (!host)
        return false;
    caller->host = survey->count - 1;
    address_of(caller->at.fd, host->address, sizeof(host->address));
    memcpy(&host->entry, message->data, sizeof(host->entry));
    host->entry.version[SYMM_CHECK_TEXT - 1] = '\0';
    symm__printable(host->entry.version, SYMM_CHECK_TEXT);
    symm__printable(host->entry.place.host.name, SYMM_HOST_NAME);
    if (judge(survey, host))
        survey->ranks += host->entry.local_size;
    ask_clock(survey, caller);
    return true;
}

static bool take_clock(struct survey *survey, struct caller *caller,
                       const struct symm_relay_message *message)
{
    struct host *host = &survey->hosts[caller->host];
    double trip = symm__now() - host->sent, clock;

    if (message->head.bytes != sizeof(clock) || host->pings >= PINGS)
        return false;
    memcpy(&clock, message->data, sizeof(clock));
    if (host->pings == 0 || trip < host->trip) {
        host->trip = trip;
        host->offset = clock - (host->clock + trip / 2);
    }
    if (++host->pings < PINGS)
        ask_clock(survey, caller);
    return true;
}

static const char *move(struct survey *survey, struct caller *caller)
{
    for (;;) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&caller->link, &message);
        bool good;

        if (wire == SYMM_SEQPACKET_AGAIN)
            break;
        if (wire != SYMM_SEQPACKET_OK)
            return "";
        good = message->head.kind == SYMM_RELAY_JOIN &&
               (caller->host < 0 ? take_entry(survey, caller, message)
                                 : take_clock(survey, caller, message));
        symm__relay_drop(message);
        if (!good)
            return "it did not say what symm-info would";
    }
    if (symm__relay_link_flush(&caller->link) == SYMM_SEQPACKET_ERROR)
        return "";
    caller->at.events =
        (short)(POLLIN | (symm__relay_link_owes(&caller->link) ? POLLOUT : 0));
    return NULL;
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *hear(void *user, struct symm_guest *at)
{
    struct survey *survey = user;
    struct caller *caller = (struct caller *)at;
    const struct symm_auth_protocol *protocol = &survey->check->protocol;
    uint8_t key[SYMM_SIPHASH_KEY];

    if (caller->open)
        return move(survey, caller);
    switch (symm__auth_hear_guest(protocol, &caller->auth, at)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        caller->host = -1;
        return symm__auth_answer(protocol, &caller->auth, at->fd, 0, 0) ? NULL : "";
    case SYMM_AUTH_DONE:
        break;
    case SYMM_AUTH_VERSION:
        refuse(survey, at->fd,
               "it has another version of libsymm than rank 0's host: "
               "install the same on all hosts");
        return "";
    case SYMM_AUTH_KEY:
        refuse(survey, at->fd,
               "it does not know the job's secret: give all hosts the "
               "same SYMM_JOB_SECRET");
        return "";
    default: /* a stranger: nothing says that it is a host of the job */
        return "";
    }
    symm__auth_key(protocol, &caller->auth, key);
    if (!symm__relay_link_open(&caller->link, at->fd, key, false))
        return "there is no memory for it";
    caller->open = true;
    at->until = survey->check->until + REACH_SECONDS + 2 * CLOSE_SECONDS;
    symm__acceptor_spare(&survey->acceptor, at, (int)ntohl(caller->auth.first.from));
    return move(survey, caller);
}

static void ignore(void *user, const char *why, bool last)
{
    (void)user;
    (void)why;
    (void)last;
}

static void gone(void *user, struct symm_guest *at)
{
    struct survey *survey = user;
    struct caller *caller = (struct caller *)at;

    if (caller->open && caller->host >= 0 && survey->hosts[caller->host].pings < PINGS)
        problem(&survey->hosts[caller->host], "it hung up during the check");
    symm__relay_link_close(&caller->link);
}

/* ---- The survey -------------------------------------------------------------------------- */

static bool is_complete(const struct survey *survey)
{
    if (survey->ranks < survey->check->mine.size)
        return false;
    for (int i = 1; i < survey->count; i++)
        if (survey->hosts[i].entry.rank >= 0 && survey->hosts[i].pings < PINGS &&
            !survey->hosts[i].problem[0])
            return false;
    return true;
}

static void serve(struct survey *survey, struct pollfd *polls, double until)
{
    size_t count = symm__acceptor_watch(&survey->acceptor, polls);
    double due = symm__acceptor_due(&survey->acceptor);
    struct timespec span = symm__timespec((due < until ? due : until) - symm__now());

    if (ppoll(polls, (nfds_t)count, &span, NULL) >= 0)
        (void)symm__acceptor_serve(&survey->acceptor, polls, count);
}

/* Connects to where the hosts' relays would listen, to all at once. */
static void reach(struct survey *survey)
{
    double until = symm__now() + REACH_SECONDS;
    int waiting = 0;

    for (int i = 0; i < survey->count; i++) {
        struct host *host = &survey->hosts[i];
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
        for (int i = 0; i < survey->count; i++) {
            struct host *host = &survey->hosts[i];
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
static void add_missing(struct survey *survey)
{
    const struct symm_check_entry *own = &survey->check->mine;
    int each = own->local_size, came = survey->count,
        missing = own->size - survey->ranks;
    bool regular = own->size % each == 0;
    double seconds = symm__now() - survey->check->start;
    struct host *host;

    for (int i = 0; i < came; i++)
        regular = regular && (survey->hosts[i].entry.rank < 0 ||
                              (survey->hosts[i].entry.local_size == each &&
                               survey->hosts[i].entry.rank % each == 0));
    if (missing <= 0)
        return;
    for (int r = 0; regular && r < own->size; r += each) {
        bool here = false;

        for (int i = 0; i < came; i++)
            here = here || survey->hosts[i].entry.rank == r;
        host = here ? NULL : host_add(survey);
        if (!host)
            continue;
        host->entry.rank = r;
        host->entry.local_size = each;
        problem(host,
                "it has not come within %.3g s: is symm-info not running there, or "
                "does it not reach rank 0's host (it says so itself)?",
                seconds);
    }
    host = regular ? NULL : host_add(survey);
    if (host)
        problem(host,
                "hosts with %d of the job's %d ranks have not come within %.3g s: "
                "is symm-info not running there, or do they not reach rank 0's "
                "host (they say so themselves)?",
                missing, own->size, seconds);
}

static void find_faults(struct survey *survey)
{
    for (int i = 1; i < survey->count; i++) {
        struct host *host = &survey->hosts[i];

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
    reach(survey);
    add_missing(survey);
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
static void tell(struct survey *survey, struct pollfd *polls, int bad)
{
    double until = symm__now() + CLOSE_SECONDS;
    bool owes = true;

    for (size_t i = 0; i < survey->acceptor.count; i++) {
        struct caller *caller = (struct caller *)survey->acceptor.guests[i];
        char text[400];

        if (!caller->open || caller->at.fd < 0 || caller->host < 0)
            continue;
        if (survey->hosts[caller->host].problem[0])
            snprintf(text, sizeof(text), "rank 0 says of this host: %s",
                     survey->hosts[caller->host].problem);
        else
            snprintf(text, sizeof(text),
                     "%d host%s a problem, of which rank 0 tells; this one is good",
                     bad, bad == 1 ? " has" : "s have");
        send_plain(survey, caller, SYMM_RELAY_TABLE, bad ? SYMM_ERR_JOB : SYMM_OK,
                   bad ? text : "");
        (void)symm__relay_link_flush(&caller->link);
    }
    while (owes && symm__now() < until) { /* they hang up once they have it */
        owes = false;
        for (size_t i = 0; i < survey->acceptor.count; i++) {
            const struct caller *caller =
                (const struct caller *)survey->acceptor.guests[i];

            owes = owes || (caller->open && caller->at.fd >= 0);
        }
        if (owes)
            serve(survey, polls, symm__now() + 0.05);
    }
}

static bool survey_open(struct survey *survey, int listener)
{
    struct host *own = host_add(survey);

    if (!own)
        return false;
    own->entry = survey->check->mine;
    own->pings = PINGS;
    own->trip = own->offset = 0;
    snprintf(own->address, sizeof(own->address), "%s", "this host");
    survey->ranks = own->entry.local_size;
    survey->acceptor = (struct symm_acceptor){.listener = listener,
                                              .most = GUESTS_MAX,
                                              .guest_bytes = sizeof(struct caller),
                                              .seconds = GUEST_SECONDS,
                                              .hear = hear,
                                              .refused = ignore,
                                              .gone = gone,
                                              .user = survey};
    return listener < 0 || symm__acceptor_open(&survey->acceptor);
}

symm_status symm__check_all(const struct symm_check *check, int listener,
                            void (*each)(void *arg, const symm_host_report *host),
                            void *arg)
{
    struct survey survey = {.check = check};
    struct pollfd *polls = calloc(GUESTS_MAX + 1, sizeof(*polls));
    int bad = 0;

    if (!polls || !survey_open(&survey, listener))
        survey.no_memory = true;
    while (!survey.no_memory && !is_complete(&survey) && symm__now() < check->until)
        serve(&survey, polls, check->until);
    if (!survey.no_memory)
        find_faults(&survey);
    for (int i = 0; i < survey.count; i++)
        bad += survey.hosts[i].problem[0] != '\0';
    if (!survey.no_memory)
        tell(&survey, polls, bad);
    symm__acceptor_close(&survey.acceptor);
    if (!survey.no_memory) {
        qsort(survey.hosts, (size_t)survey.count, sizeof(*survey.hosts), host_compare);
        for (int i = 0; i < survey.count; i++)
            report(&survey.hosts[i], each, arg);
    }
    free(survey.hosts);
    free(polls);
    if (survey.no_memory)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to check the job's hosts");
    return bad == 0 ? SYMM_OK
                    : symm__fail(SYMM_ERR_JOB, "%d host%s a problem", bad,
                                 bad == 1 ? " has" : "s have");
}
