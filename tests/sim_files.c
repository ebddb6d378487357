/* SPDX-License-Identifier: MIT */
/*
 * sim_files.c - see sim_files.h: descriptors, eventfds, pidfds, memfds and mappings of simulated
 * processes.
 *
 * Descriptors of all ranks are numbers of one table; each has an owner, which its death closes.
 */
#include "sim_object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPS 1024

int __real_close(int fd);

static struct descriptor {
    struct sim_object *object;
    int rank;
} table[SIM_FDS];

static int real_owner[SIM_FD_FIRST]; /* rank + 1 */
static uint64_t numbers;
static struct mapping {
    char *at;
    size_t bytes;
    struct sim_object *object;
    off_t offset;
    int rank;
    bool counts; /* at an address of the kernel's choice */
} maps[MAPS];
static int map_count;

/* ---- The table ------------------------------------------------------------------- */

bool sim_is_fd(int fd)
{
    return fd >= SIM_FD_FIRST;
}

struct sim_object *sim_object_of(int fd)
{
    if (fd < SIM_FD_FIRST || fd >= SIM_FD_FIRST + SIM_FDS ||
        !table[fd - SIM_FD_FIRST].object) {
        errno = EBADF;
        return NULL;
    }
    return table[fd - SIM_FD_FIRST].object;
}

struct sim_object *sim_object_make(enum kind kind)
{
    struct sim_object *o = __real_calloc(1, sizeof(*o));

    if (!o)
        abort();
    o->kind = kind;
    o->number = ++numbers;
    o->real = -1;
    o->rank = sim_rank();
    o->far = -1;
    o->last = &o->first;
    o->error_at = o->eof_at = o->ready_at = SIM_FOREVER;
    if (kind == SOCKET && sim_socket_count < SIM_FDS * 4)
        sim_sockets[sim_socket_count++] = o;
    return o;
}

int sim_object_install(struct sim_object *o)
{
    for (int i = 0; i < SIM_FDS; i++)
        if (!table[i].object) {
            table[i] = (struct descriptor){o, sim_rank()};
            o->refs++;
            return SIM_FD_FIRST + i;
        }
    errno = EMFILE;
    return -1;
}

void sim_object_changed(const struct sim_object *o, uint64_t at)
{
    for (int i = 0; i < sim.fibers && at < SIM_FOREVER; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->state != SIM_BLOCKED || !f->polls)
            continue;
        for (nfds_t k = 0; k < f->poll_count; k++) {
            const int fd = f->polls[k].fd;

            if (fd >= SIM_FD_FIRST && fd < SIM_FD_FIRST + SIM_FDS &&
                table[fd - SIM_FD_FIRST].object == o)
                sim_ready(f, (at > sim.now ? at : sim.now) + 1000 + sim_below(10000));
        }
    }
}

void sim_object_let_go(struct sim_object *o)
{
    if (--o->refs > 0)
        return;
    if (o->kind == SOCKET)
        sim_socket_close(o);
    if (o->real >= 0)
        __real_close(o->real);
    o->real = -1;
    /* Objects stay: mappings and lists refer to them; the process ends soon. */
}

int sim_close(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    if (!o)
        return -1;
    sim_event("close", (uint64_t)fd, o->number);
    table[fd - SIM_FD_FIRST].object = NULL;
    sim_object_let_go(o);
    return 0;
}

int sim_duplicate(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    return o ? sim_object_install(o) : -1;
}

void sim_real_opened(int fd)
{
    if (fd >= 0 && fd < SIM_FD_FIRST)
        real_owner[fd] = sim_rank() + 1;
}

void sim_real_closed(int fd)
{
    if (fd >= 0 && fd < SIM_FD_FIRST)
        real_owner[fd] = 0;
}

void sim_files_died(int rank)
{
    for (int i = 0; i < SIM_FD_FIRST; i++)
        if (real_owner[i] == rank + 1) {
            real_owner[i] = 0;
            __real_close(i);
        }
    for (int i = 0; i < SIM_FDS; i++)
        if (table[i].object && table[i].rank == rank) {
            struct sim_object *o = table[i].object;

            sim_event("the kernel closes", (uint64_t)(SIM_FD_FIRST + i), o->number);
            table[i].object = NULL;
            sim_object_let_go(o);
            sim_pass(sim_below(20000));
        }
}

void sim_files_zombie(int rank)
{
    for (int i = 0; i < SIM_FDS; i++)
        if (table[i].object && table[i].object->kind == PROCESS &&
            table[i].object->value == (uint64_t)rank)
            sim_object_changed(table[i].object, sim.now);
}

int sim_files_left(int rank)
{
    int left = 0;

    for (int i = 0; i < SIM_FDS; i++)
        left += table[i].object && table[i].rank == rank;
    for (int i = 0; i < SIM_FD_FIRST; i++)
        left += real_owner[i] == rank + 1;
    return left;
}

/* ---- Other descriptors ----------------------------------------------------------- */

int sim_eventfd(unsigned value)
{
    struct sim_object *o = sim_object_make(EVENT);

    o->value = value;
    return sim_object_install(o);
}

int sim_pidfd(int pid)
{
    struct sim_object *o;
    const int rank = (pid - SIM_PID) / 100;

    if (pid < SIM_PID || rank >= sim.config->ranks || (pid - SIM_PID) % 100 != 0 ||
        sim.rank[rank].zombie) {
        errno = ESRCH;
        return -1;
    }
    o = sim_object_make(PROCESS);
    o->value = (uint64_t)rank;
    return sim_object_install(o);
}

int sim_pid_of(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    if (o && o->kind == PROCESS)
        return SIM_PID + 100 * (int)o->value;
    errno = EBADF;
    return 0;
}

int sim_text_file(const char *text)
{
    struct sim_object *o = sim_object_make(TEXT);

    o->text = __real_strdup(text);
    return sim_object_install(o);
}

int sim_memfd(int real)
{
    struct sim_object *o;

    if (real < 0)
        return -1;
    o = sim_object_make(MEMORY);
    o->real = real;
    return sim_object_install(o);
}

int sim_real_of(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    if (o && o->kind == MEMORY)
        return o->real;
    errno = EBADF;
    return -1;
}

int *sim_seals_of(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    return o && o->kind == MEMORY ? &o->seals : NULL;
}

ssize_t sim_read(int fd, void *bytes, size_t count)
{
    struct sim_object *o = sim_object_of(fd);
    size_t length;

    if (!o)
        return -1;
    if (o->kind == EVENT && o->value == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (o->kind == EVENT) {
        memcpy(bytes, &o->value, sizeof(o->value));
        o->value = 0;
        sim_object_changed(o, sim.now);
        return sizeof(o->value);
    }
    if (o->kind != TEXT) {
        errno = EINVAL;
        return -1;
    }
    length = strlen(o->text) - o->value;
    length = length < count ? length : count;
    memcpy(bytes, o->text + o->value, length);
    o->value += length;
    return (ssize_t)length;
}

ssize_t sim_write(int fd, const void *bytes, size_t count)
{
    struct sim_object *o = sim_object_of(fd);
    uint64_t add;

    if (!o)
        return -1;
    if (o->kind != EVENT || count < sizeof(add)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&add, bytes, sizeof(add));
    o->value += add;
    sim_object_changed(o, sim.now);
    return sizeof(add);
}

/* ---- Mappings -------------------------------------------------------------------- */

/* A mapping that is cut in its middle stays whole. */
void sim_unmapped(void *at, size_t bytes)
{
    char *begin = at, *end = begin + bytes;

    for (int i = 0; i < map_count;) {
        struct mapping *map = &maps[i];
        char *map_end = map->at + map->bytes;

        if (map->at >= begin && map_end <= end) {
            *map = maps[--map_count];
            continue;
        }
        if (map->at >= begin && map->at < end) {
            map->offset += end - map->at;
            map->at = end;
        } else if (map_end > begin && map_end <= end) {
            map_end = begin;
        }
        map->bytes = (size_t)(map_end - map->at);
        i++;
    }
}

void sim_mapped(void *at, size_t bytes, int fd, off_t offset, bool fixed)
{
    struct sim_object *o = fd >= SIM_FD_FIRST ? sim_object_of(fd) : NULL;

    if (fixed) { /* in a reservation, which counts */
        char *begin = at;

        for (int i = 0; i < map_count;)
            if (!maps[i].counts && maps[i].at >= begin &&
                maps[i].at + maps[i].bytes <= begin + bytes)
                maps[i] = maps[--map_count];
            else
                i++;
    }
    if ((fixed && !o) || map_count == MAPS)
        return;
    maps[map_count++] = (struct mapping){at, bytes, o, offset, sim_rank(), !fixed};
}

const void *sim_memory_at(const void *address, size_t *offset)
{
    const char *at = address;

    for (int i = map_count - 1; i >= 0; i--)
        if (maps[i].object && at >= maps[i].at && at < maps[i].at + maps[i].bytes) {
            *offset = (size_t)(at - maps[i].at) + (size_t)maps[i].offset;
            return maps[i].object;
        }
    *offset = 0;
    return address;
}

int sim_mappings_left(int rank)
{
    int left = 0;

    for (int i = 0; i < map_count; i++)
        left += maps[i].counts && maps[i].rank == rank;
    return left;
}

/* ---- Polling --------------------------------------------------------------------- */

static short events_of(struct sim_object *o, uint64_t *next)
{
    switch (o->kind) {
    case SOCKET:
        return sim_socket_events(o, next);
    case EVENT:
        return POLLOUT | (o->value > 0 ? POLLIN : 0);
    case PROCESS:
        return sim.rank[o->value].zombie ? POLLIN : 0;
    default:
        return POLLIN | POLLOUT;
    }
}

static int look(struct pollfd *polls, nfds_t count, uint64_t *next)
{
    int ready = 0;

    for (nfds_t i = 0; i < count; i++) {
        struct sim_object *o;

        polls[i].revents = 0;
        if (polls[i].fd < 0)
            continue;
        o = sim_object_of(polls[i].fd);
        polls[i].revents =
            o ? events_of(o, next) & (polls[i].events | POLLERR | POLLHUP) : POLLNVAL;
        ready += polls[i].revents != 0;
    }
    return ready;
}

int sim_poll(struct pollfd *polls, nfds_t count, uint64_t until)
{
    struct sim_fiber *f = sim.current;

    for (;;) {
        uint64_t next = until;
        int ready = look(polls, count, &next);

        if (ready > 0 || sim.now >= until) {
            sim_event("poll", count, (uint64_t)ready);
            return ready;
        }
        if (sim_interrupted())
            return -1;
        f->polls = polls;
        f->poll_count = count;
        sim_wait("poll", NULL, 0, next);
        f->polls = NULL;
    }
}
