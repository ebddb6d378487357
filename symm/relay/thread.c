/* SPDX-License-Identifier: MIT */
/* thread.c - a relay's thread (relay.h): it opens, polls, closes. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay/private.h"
#include "util/clock.h"
#include "util/thread.h"

#define LEAVE_SECONDS     1.0 /* for LEAVE to arrive */
#define LINGER_SECONDS    0.1 /* for other ends to read all and close */
#define IDLE_SECONDS      10.0
#define NO_MEMORY_SECONDS 0.01

void symm__relay_wake(struct symm_relay *relay)
{
    uint64_t one = 1;

    /* Full: the thread is woken anyway. */
    ssize_t written = write(relay->wake, &one, sizeof(one));

    (void)written;
}

/* ---- The thread ------------------------------------------------------------------------ */

static bool has_room(struct symm_relay *relay, size_t count)
{
    struct pollfd *more;

    if (count <= relay->polls_room)
        return true;
    more = realloc(relay->polls, 2 * count * sizeof(*more));
    if (!more)
        return false;
    relay->polls = more;
    relay->polls_room = 2 * count;
    return true;
}

static void turn(struct symm_relay *relay)
{
    double due = symm__now() + IDLE_SECONDS;
    int local = relay->config.local_size, ready;
    size_t count;
    struct timespec span;

    symm__relay_tend(relay, &due);
    if (relay->leaving && relay->leave_by < due)
        due = relay->leave_by;
    if (!has_room(relay, 1 + (size_t)local + symm__relay_watched(relay))) {
        pthread_mutex_unlock(&relay->lock); /* others may give memory back */
        symm__sleep(NO_MEMORY_SECONDS);
        pthread_mutex_lock(&relay->lock);
        return;
    }
    relay->polls[0] = (struct pollfd){.fd = relay->wake, .events = POLLIN};
    for (int i = 0; i < local; i++)
        relay->polls[1 + i] = (struct pollfd){
            .fd = i == relay->place || relay->hung_up[i] ? -1
                                                         : relay->config.local_fd[i]};
    count = symm__relay_watch(relay, relay->polls + 1 + local, &due);
    pthread_mutex_unlock(&relay->lock);
    span = symm__timespec(due - symm__now());
    ready = ppoll(relay->polls, 1 + (nfds_t)local + count, &span, NULL);
    pthread_mutex_lock(&relay->lock);
    if (ready < 0)
        for (size_t i = 0; i < 1 + (size_t)local + count; i++)
            relay->polls[i].revents = 0;
    if (relay->polls[0].revents) {
        uint64_t drained;
        ssize_t got = read(relay->wake, &drained, sizeof(drained));

        (void)got;
    }
    symm__relay_move(relay, relay->polls + 1 + local, count);
    symm__relay_take_hang_ups(relay, relay->polls + 1);
}

/* Lets the other ends read what was sent before they see the end: a close while bytes are unread
 * here would discard it. */
static void linger(struct symm_relay *relay)
{
    double until = symm__now() + LINGER_SECONDS;
    char bytes[4096];

    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        if (c->stage == SYMM_RELAY_OPEN && c->fd >= 0)
            (void)shutdown(c->fd, SHUT_WR);
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next) {
        ssize_t got = 1;

        while (c->stage == SYMM_RELAY_OPEN && c->fd >= 0 && got != 0 &&
               symm__now() < until) {
            got = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
            if (got < 0 && errno != EAGAIN && errno != EINTR)
                break;
            if (got < 0)
                (void)symm__seqpacket_wait(c->fd, POLLIN, until);
        }
    }
}

static void *run(void *arg)
{
    struct symm_relay *relay = arg;

    pthread_mutex_lock(&relay->lock);
    symm__relay_take_hang_ups(relay, NULL);
    while (!symm__relay_may_stop(relay))
        turn(relay);
    relay->stopped = true;
    pthread_mutex_unlock(&relay->lock);
    linger(relay);
    return NULL;
}

/* ---- Opening and closing ------------------------------------------------------------------ */

void symm__relay_free(struct symm_relay *relay)
{
    symm__relay_connections_close(relay);
    symm__relay_roles_close(relay);
    if (relay->config.listener >= 0)
        close(relay->config.listener);
    if (relay->wake >= 0)
        close(relay->wake);
    pthread_cond_destroy(&relay->changed);
    pthread_mutex_destroy(&relay->lock);
    free(relay->polls);
    free(relay);
}

static symm_status start(struct symm_relay *relay)
{
    int error;

    relay->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (relay->wake < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "eventfd");
    error = symm__thread_start(&relay->thread, run, relay);
    if (error == 0)
        return SYMM_OK;
    return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                            "rank %d cannot start the thread that talks to other hosts",
                            relay->config.rank);
}

symm_status symm__relay_make(const struct symm_relay_config *config,
                             struct symm_relay **relay)
{
    struct symm_relay *r = calloc(1, sizeof(*r));
    pthread_condattr_t attr;

    if (!r) {
        close(config->listener);
        return symm__fail(SYMM_ERR_NOMEM, "rank %d: no memory to talk to other hosts",
                          config->rank);
    }
    r->config = *config;
    r->wake = -1;
    memcpy(r->key, config->key, sizeof(r->key));
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    for (int i = 0; i < SYMM_RELAY_FDS; i++)
        r->fds[i] = -1;
    r->fds[0] = config->listener;
    while (r->place < config->local_size && config->local[r->place] != config->rank)
        r->place++;
    if (!symm__relay_roles_open(r)) {
        symm__relay_free(r);
        return symm__fail(SYMM_ERR_NOMEM,
                          "rank %d: no memory to talk to %d other hosts", config->rank,
                          config->hosts - 1);
    }
    *relay = r;
    return SYMM_OK;
}

symm_status symm__relay_open(const struct symm_relay_config *config,
                             struct symm_relay **relay)
{
    struct symm_relay *r = NULL;
    symm_status status = symm__relay_make(config, &r);

    if (status == SYMM_OK)
        status = start(r);
    if (status == SYMM_OK)
        *relay = r;
    else if (r)
        symm__relay_free(r);
    return status;
}

void symm__relay_close(struct symm_relay *relay)
{
    if (!relay)
        return;
    pthread_mutex_lock(&relay->lock);
    relay->leaving = true;
    relay->leave_by = symm__now() + LEAVE_SECONDS;
    symm__relay_leave_begin(relay);
    pthread_mutex_unlock(&relay->lock);
    symm__relay_wake(relay);
    pthread_join(relay->thread, NULL);
    symm__relay_free(relay);
}

void symm__relay_abandon(struct symm_relay *relay)
{
    if (!relay)
        return;
    for (struct symm_relay_connection *c = relay->connections; c; c = c->next)
        c->fd = -1; /* a handler of fork() has closed it */
    relay->config.listener = -1;
    pthread_mutex_init(&relay->lock, NULL); /* the thread may have held it */
    symm__relay_free(relay);
}

int *symm__relay_fds(struct symm_relay *relay, int *count)
{
    *count = SYMM_RELAY_FDS;
    return relay->fds;
}
