/* SPDX-License-Identifier: MIT */
/* acceptor.c - see acceptor.h. */
#include "net/acceptor.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"

#define ACCEPT_AT_ONCE 64
#define FULL_SECONDS   0.01 /* no accept: there is no descriptor, or no room */

bool symm__acceptor_open(struct symm_acceptor *acceptor)
{
    acceptor->guests = calloc(acceptor->most, sizeof(struct symm_guest *));
    acceptor->count = 0;
    return acceptor->guests != NULL;
}

void symm__acceptor_drop(struct symm_acceptor *acceptor, struct symm_guest *guest)
{
    if (guest->fd < 0)
        return;
    if (acceptor->gone)
        acceptor->gone(acceptor->user, guest);
    (void)close(guest->fd);
    guest->fd = -1;
}

/* Frees guests that were dropped or taken over. */
static void sweep(struct symm_acceptor *acceptor)
{
    size_t kept = 0;

    for (size_t i = 0; i < acceptor->count; i++) {
        struct symm_guest *guest = acceptor->guests[i];

        if (guest->fd < 0)
            free(guest);
        else
            acceptor->guests[kept++] = guest;
    }
    acceptor->count = kept;
}

void symm__acceptor_close(struct symm_acceptor *acceptor)
{
    for (size_t i = 0; i < acceptor->count; i++)
        symm__acceptor_drop(acceptor, acceptor->guests[i]);
    sweep(acceptor);
    free(acceptor->guests);
    acceptor->guests = NULL;
}

static void refuse(struct symm_acceptor *acceptor, struct symm_guest *guest,
                   const char *why)
{
    if (*why && ++acceptor->refusals <= SYMM_ACCEPTOR_SHOWN)
        acceptor->refused(acceptor->user, why,
                          acceptor->refusals == SYMM_ACCEPTOR_SHOWN);
    symm__acceptor_drop(acceptor, guest);
}

/* The oldest guest of that group, -1: of the strangers; NULL: none. */
static struct symm_guest *oldest_of(const struct symm_acceptor *acceptor, int group)
{
    for (size_t i = 0; i < acceptor->count; i++)
        if (acceptor->guests[i]->fd >= 0 && acceptor->guests[i]->group == group)
            return acceptor->guests[i];
    return NULL;
}

void symm__acceptor_spare(struct symm_acceptor *acceptor, struct symm_guest *guest,
                          int group)
{
    size_t count = 0;

    for (size_t i = 0; i < acceptor->count; i++)
        count += acceptor->guests[i]->fd >= 0 && acceptor->guests[i]->group == group;
    if (count >= SYMM_ACCEPTOR_GROUP)
        symm__acceptor_drop(acceptor, oldest_of(acceptor, group));
    guest->group = group;
}

void symm__acceptor_prove(struct symm_guest *guest)
{
    guest->group = SYMM_ACCEPTOR_PROVED;
}

/* Is there a free place, or a guest that may be dropped? */
static bool has_room(struct symm_acceptor *acceptor)
{
    const struct symm_guest *oldest;
    double now = symm__now();

    if (acceptor->count == acceptor->most)
        sweep(acceptor);
    if (acceptor->count < acceptor->most)
        return true;
    oldest = oldest_of(acceptor, -1);
    if (oldest && now >= oldest->since + acceptor->keep)
        return true;
    acceptor->accept_at = oldest ? oldest->since + acceptor->keep : now + FULL_SECONDS;
    return false;
}

/* Drops guests until there is room: one more has arrived. */
static void make_room(struct symm_acceptor *acceptor)
{
    if (acceptor->count < acceptor->most)
        return;
    refuse(acceptor, oldest_of(acceptor, -1),
           "too many connections came, and it has waited longest");
    sweep(acceptor);
}

static void hear(struct symm_acceptor *acceptor, struct symm_guest *guest)
{
    const char *why = acceptor->over ? NULL : acceptor->hear(acceptor->user, guest);

    if (why)
        refuse(acceptor, guest, why);
}

/* Handles a failed accept4. */
static int fall_short(struct symm_acceptor *acceptor, int error)
{
    struct symm_guest *oldest = oldest_of(acceptor, -1);

    acceptor->lacked = true;
    if (oldest) { /* closing it frees a descriptor */
        refuse(acceptor, oldest, "descriptors are short");
        return 0;
    }
    acceptor->accept_at = symm__now() + FULL_SECONDS;
    return error;
}

/* Most strangers have already sent something, or hung up, when they are accepted: they take no
 * place. */
static int accept_some(struct symm_acceptor *acceptor)
{
    for (int i = 0; i < ACCEPT_AT_ONCE && !acceptor->over && has_room(acceptor); i++) {
        struct symm_guest *guest;
        int fd = accept4(acceptor->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (fd < 0)
            return fall_short(acceptor, errno);
        make_room(acceptor);
        guest = calloc(1, acceptor->guest_bytes);
        if (!guest) {
            (void)close(fd);
            return fall_short(acceptor, ENOMEM);
        }
        guest->fd = fd;
        guest->group = -1;
        guest->events = POLLIN;
        guest->since = symm__now();
        guest->until = guest->since + acceptor->seconds;
        acceptor->guests[acceptor->count++] = guest;
        hear(acceptor, guest);
    }
    return 0;
}

size_t symm__acceptor_watch(struct symm_acceptor *acceptor, struct pollfd *polls)
{
    bool later = acceptor->accept_at > symm__now();

    sweep(acceptor);
    *polls++ = (struct pollfd){.fd = later ? -1 : acceptor->listener, .events = POLLIN};
    for (size_t i = 0; i < acceptor->count; i++)
        *polls++ = (struct pollfd){.fd = acceptor->guests[i]->fd,
                                   .events = acceptor->guests[i]->events};
    return 1 + acceptor->count;
}

double symm__acceptor_due(const struct symm_acceptor *acceptor)
{
    double due =
        acceptor->accept_at > symm__now() ? acceptor->accept_at : SYMM_ACCEPTOR_NEVER;

    for (size_t i = 0; i < acceptor->count; i++)
        if (acceptor->guests[i]->until < due)
            due = acceptor->guests[i]->until;
    return due;
}

int symm__acceptor_serve(struct symm_acceptor *acceptor, const struct pollfd *polls,
                         size_t count)
{
    double now = symm__now();
    int error;

    /* Serving one guest may drop others; their places stay until the sweep. */
    for (size_t i = 0; i + 1 < count; i++) {
        struct symm_guest *guest = acceptor->guests[i];

        if (guest->fd >= 0 && guest->fd == polls[1 + i].fd && polls[1 + i].revents)
            hear(acceptor, guest);
        if (guest->fd >= 0 && guest->until <= now)
            refuse(acceptor, guest, "it has not proved itself in time");
    }
    error = count > 0 && polls[0].revents ? accept_some(acceptor) : 0;
    sweep(acceptor);
    return error;
}
