/* SPDX-License-Identifier: MIT */
/* hosts_check.c - see hosts_check.h: how rank 0 is found, and what the other hosts do. */
#include "bootstrap/hosts_check.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/store_protocol.h"
#include "relay/link.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/streams.h"

#define CHECK_MAGIC    0x53594d43u /* "SYMC" */
#define CHECK_VERSION  2u
#define CHECK_SECONDS  10.0 /* by default */
#define CHECK_MOST     3600.0
#define RETRY_SECONDS  0.05
#define ANSWER_SECONDS 4.0 /* for a try to be answered */
#define REFUSALS       3   /* in a row are final; fewer are tried again */
#define VERDICT_MORE   3.0 /* after the deadline, for rank 0's verdict */

double symm__check_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- A host that is not rank 0's ------------------------------------------------------- */

/* One try to connect to rank 0. */
struct connection {
    const struct symm_check *check;
    struct symm_auth auth;
    struct symm_relay_link link;
    int fd;
    const char *why; /* the last try failed */
    enum symm_auth_said answer;
    int refusals; /* answers of what does not know the secret, or is of another version */
    bool entered, over;
    symm_status verdict; /* once it is over; symm_last_error() is why */
};

static void say(struct connection *connection, const void *data, size_t bytes)
{
    struct symm_relay_message *message = symm__relay_message(SYMM_RELAY_JOIN, bytes);

    if (message)
        memcpy(message->data, data, bytes);
    if (!message || !symm__relay_link_send(&connection->link, message))
        connection->why = "no memory";
    symm__relay_drop(message);
}

/* PLACE asks for the clock, TABLE is the verdict. */
static void take(struct connection *connection,
                 const struct symm_relay_message *message)
{
    char text[SYMM_ERROR_BYTES];
    double clock = symm__check_clock();

    if (message->head.kind == SYMM_RELAY_PLACE) {
        say(connection, &clock, sizeof(clock));
    } else if (message->head.kind == SYMM_RELAY_TABLE) {
        connection->over = true;
        symm__relay_sentence(message, text);
        if (message->head.status != SYMM_OK)
            connection->verdict =
                symm__fail_quiet(symm__peer_status(message->head.status), text);
    }
}

/* Waits for the descriptor until that time; false: it has passed. */
static bool await(int fd, short events, double until)
{
    struct pollfd at = {.fd = fd, .events = events};
    struct timespec span = symm__timespec(until - symm__now());

    return ppoll(&at, 1, &span, NULL) > 0;
}

/* The connection is made, and both ends have proved themselves. */
static bool open_connection(struct connection *connection,
                            const struct symm_address *root)
{
    const struct symm_check *check = connection->check;
    double until = symm__now() + ANSWER_SECONDS;
    uint8_t key[SYMM_SIPHASH_KEY];
    int error;

    connection->fd = symm__address_connect(root);
    connection->why = "it does not answer";
    if (connection->fd < 0 || !await(connection->fd, POLLOUT, until)) {
        connection->why = connection->fd < 0 ? strerror(errno) : connection->why;
        return false;
    }
    error = symm__connect_error(connection->fd);
    if (error) {
        connection->why = strerror(error);
        return false;
    }
    if (!symm__auth_ask(&check->protocol, &connection->auth, connection->fd,
                        (uint32_t)check->mine.rank, 0))
        return false;
    do {
        if (!await(connection->fd, POLLIN, until))
            return false;
        connection->answer =
            symm__auth_hear(&check->protocol, &connection->auth, connection->fd);
    } while (connection->answer == SYMM_AUTH_WAIT);
    if (connection->answer != SYMM_AUTH_DONE) {
        connection->why = "it hangs up";
        connection->refusals += connection->answer == SYMM_AUTH_KEY ||
                                connection->answer == SYMM_AUTH_VERSION;
        return false;
    }
    symm__auth_key(&check->protocol, &connection->auth, key);
    return symm__relay_link_open(&connection->link, connection->fd, key, true);
}

static void hold_connection(struct connection *connection, double until)
{
    say(connection, &connection->check->mine, sizeof(connection->check->mine));
    connection->entered = true;
    while (!connection->over) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&connection->link, &message);

        if (wire == SYMM_SEQPACKET_OK) {
            take(connection, message);
            symm__relay_drop(message);
            continue;
        }
        if (wire == SYMM_SEQPACKET_AGAIN)
            wire = symm__relay_link_flush(&connection->link);
        connection->why = "it hung up during the check";
        if (wire == SYMM_SEQPACKET_ERROR || wire == SYMM_SEQPACKET_CLOSED)
            return;
        connection->why = "it gave no verdict in time";
        if (!await(connection->fd,
                   POLLIN | (wire == SYMM_SEQPACKET_AGAIN ? POLLOUT : 0), until))
            return;
    }
}

static symm_status not_connected(const struct connection *connection)
{
    const struct symm_check *check = connection->check;

    if (connection->answer == SYMM_AUTH_KEY)
        return symm__fail(SYMM_ERR_REFUSED,
                          "what listens at %s does not know the job's secret: give all "
                          "hosts the same SYMM_JOB_SECRET",
                          check->root);
    if (connection->answer == SYMM_AUTH_VERSION)
        return symm__fail(SYMM_ERR_REFUSED,
                          "rank 0 at %s has another version of libsymm: install the "
                          "same on all hosts",
                          check->root);
    if (connection->answer == SYMM_AUTH_FOREIGN)
        return symm__fail(SYMM_ERR_REFUSED,
                          "what listens at %s is another program, or a job that has "
                          "started: is the port free (SYMM_BOOTSTRAP_PORT)?",
                          check->root);
    return symm__fail(SYMM_ERR_TIMEOUT,
                      "rank %d cannot reach rank 0 at %s within %.3g s (%s): is "
                      "symm-info not running there, is the port another one "
                      "(SYMM_BOOTSTRAP_PORT), or does a firewall stand between?",
                      check->mine.rank, check->root, symm__now() - check->start,
                      connection->why);
}

static symm_status report_to_root(const struct symm_check *check)
{
    struct symm_address root;
    const char *wrong = symm__address_parse(check->root, SYMM_ADDRESS_NAME, &root);
    struct connection connection = {
        .check = check, .fd = -1, .why = "", .answer = SYMM_AUTH_WAIT};

    if (wrong)
        return symm__fail(SYMM_ERR_JOB, "the address of rank 0's host '%.100s' %s",
                          check->root, wrong);
    while (!connection.over && !connection.entered && connection.refusals < REFUSALS &&
           symm__now() < check->until) {
        if (open_connection(&connection, &root))
            hold_connection(&connection, check->until + VERDICT_MORE);
        symm__relay_link_close(&connection.link);
        if (connection.fd >= 0)
            close(connection.fd);
        connection.fd = -1;
        if (!connection.over)
            symm__sleep(RETRY_SECONDS);
    }
    return connection.over ? connection.verdict : not_connected(&connection);
}

/* ---- The way to rank 0 ----------------------------------------------------------------- */

/* Finds rank 0 by its port; on rank 0 *listener listens there. */
static symm_status way_by_port(struct symm_check *check, int *listener)
{
    struct symm_address any;
    const char *wrong = symm__address_parse(check->root, SYMM_ADDRESS_NAME, &any);

    if (check->mine.rank != 0)
        return SYMM_OK;
    if (wrong)
        return symm__fail(SYMM_ERR_JOB, "the address of rank 0's host '%.100s' %s",
                          check->root, wrong);
    symm__address_any(&any);
    *listener = symm__address_listen_until(&any, check->until, NULL, NULL);
    return *listener >= 0 ? SYMM_OK
                          : symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                             "rank 0 listening at the port of %s "
                                             "(SYMM_BOOTSTRAP_PORT names another one)",
                                             check->root);
}

/* Finds rank 0 by symmrun's store: all ranks learn where rank 0's relay would listen.
 * Collective. */
static symm_status way_by_store(struct symm_check *check, const struct symm_job *job,
                                int own, int *listener)
{
    size_t bytes = sizeof(check->mine.place);
    struct symm_host_address *all = calloc((size_t)job->size, bytes);
    const struct symm_store_exchange exchange = {.address = job->store,
                                                 .secret = job->secret,
                                                 .rank = job->rank,
                                                 .size = job->size,
                                                 .in = &check->mine.place,
                                                 .bytes = bytes,
                                                 .out = all,
                                                 .timeout = check->until - symm__now()};
    struct symm_address root;
    symm_status status;

    if (!all)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %d hosts", job->size);
    status = symm__store_allgather(&exchange);
    if (status == SYMM_OK) {
        root = symm__host_address(&all[0]);
        symm__address_text(&root, check->root, sizeof(check->root));
        *listener = job->rank == 0 ? dup(own) : -1;
    }
    free(all);
    return status;
}

static symm_status prepare(struct symm_check *check, const struct symm_job *job,
                           int *own, int *listener)
{
    const char *toward = job->root[0] ? job->root : job->store[0] ? job->store : NULL;
    symm_status status = symm__host_identify(&check->mine.place.host);

    check->mine.rank = job->rank;
    check->mine.size = job->size;
    check->mine.local_size = job->local_size;
    snprintf(check->mine.version, sizeof(check->mine.version), "%s", symm_version());
    if (status == SYMM_OK)
        status = symm__hosts_listen(toward, &check->mine.place, own);
    if (status != SYMM_OK || job->local_size == job->size)
        return status;
    if (!toward)
        return symm__fail(
            SYMM_ERR_JOB,
            "%d of the job's %d ranks are on this host, and nothing says "
            "where the others are: set SYMM_BOOTSTRAP_PORT to a free port "
            "of rank 0's host and SYMM_JOB_SECRET on all hosts, or start "
            "symm-info by symmrun --nnodes",
            job->local_size, job->size);
    if (!job->has_secret)
        return symm__job_no_secret();
    symm__job_series_key(job->secret, job->series, SYMM_SERIES_CHECK, check->key);
    check->protocol = (struct symm_auth_protocol){
        .magic = CHECK_MAGIC, .version = CHECK_VERSION, .key = check->key};
    snprintf(check->root, sizeof(check->root), "%s", job->root);
    return job->root[0] ? way_by_port(check, listener)
                        : way_by_store(check, job, *own, listener);
}

symm_status symm_hosts_check(double timeout,
                             void (*each)(void *arg, const symm_host_report *host),
                             void *arg)
{
    struct symm_check check = {.start = symm__now()};
    struct symm_job job;
    int own = -1, listener = -1;
    symm_status status;

    if (!each)
        return symm__fail_null("symm_hosts_check", "each");
    symm__streams_guard(); /* `each` may print */
    if (!(timeout >= 0) || timeout > CHECK_MOST)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_hosts_check: timeout is %g; it is a number of seconds "
                          "up to %g, 0 for %g",
                          timeout, CHECK_MOST, CHECK_SECONDS);
    check.until = check.start + (timeout > 0 ? timeout : CHECK_SECONDS);
    status = symm__job_detect(&job);
    if (status != SYMM_OK)
        return status;
    if (job.local_rank != 0 && (job.local_size == job.size || job.root[0]))
        return SYMM_OK; /* the lowest rank here reports for the host */
    status = prepare(&check, &job, &own, &listener);
    if (status == SYMM_OK && job.rank == 0)
        status = symm__check_all(&check, listener, each, arg);
    else if (status == SYMM_OK && job.local_rank == 0)
        status = report_to_root(&check);
    if (listener >= 0)
        close(listener);
    if (own >= 0)
        close(own);
    return status;
}
