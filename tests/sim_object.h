/* SPDX-License-Identifier: MIT */
/*
 * sim_object.h - what simulated descriptors refer to, for sim_files.c (the table, polling),
 * sim_sockets.c (making, accepting) and sim_traffic.c (what passes between sockets, and when).
 */
#ifndef SYMM_TESTS_SIM_OBJECT_H
#define SYMM_TESTS_SIM_OBJECT_H

#include "sim_files.h"

#define PACKET_FDS 16

enum kind { SOCKET, EVENT, PROCESS, MEMORY, TEXT };
enum stage { IDLE, BOUND, LISTENING, CONNECTING, CONNECTED };

struct packet {
    struct packet *next;
    uint64_t at;
    size_t bytes, used;
    int fd_count;
    struct sim_object *fds[PACKET_FDS];
    char data[];
};

struct sim_object {
    enum kind kind;
    int refs;
    uint64_t number;
    /* EVENT: value; PROCESS: rank; MEMORY: real descriptor, seals; TEXT: place of reading */
    uint64_t value;
    int real, seals;
    char *text;
    /* SOCKET */
    bool local, stream, reset;
    enum stage stage;
    int rank; /* that made it */
    int error;
    uint64_t error_at, eof_at, ready_at; /* SIM_FOREVER: not */
    struct sim_object *peer;
    struct packet *first, **last;
    size_t queued, lost; /* lost: sent to nobody */
    bool closed, shut;
    struct sim_object
        *waiting; /* LISTENING: not accepted yet; a list by next_waiting */
    struct sim_object *next_waiting;
    uint64_t arrives;
    int waiting_count, backlog;
    int pid; /* of the other end */
    int far; /* rank of the other end, at the begin; -1: none */
    dev_t device;
    ino_t inode;
    int port, peer_port;
};

/* ---- sim_files.c ----------------------------------------------------------------- */

/* NULL: errno is EBADF. */
struct sim_object *sim_object_of(int fd);
struct sim_object *sim_object_make(enum kind kind);
/* A descriptor of the running rank. */
int sim_object_install(struct sim_object *o);
void sim_object_let_go(struct sim_object *o);
/* Those that poll the object look at it again, at that time. */
void sim_object_changed(const struct sim_object *o, uint64_t at);

static inline void sim_no_later(uint64_t *next, uint64_t at)
{
    if (at > sim.now && at < *next)
        *next = at;
}

/* ---- sim_sockets.c --------------------------------------------------------------- */

extern struct sim_object *sim_sockets[SIM_FDS * 4];
extern int sim_socket_count;

struct sim_object *sim_socket_of(int fd);
/* Takes the error of the socket, if it is there already. */
int sim_take_error(struct sim_object *o);
void sim_settle_connect(struct sim_object *o);
short sim_socket_events(struct sim_object *o, uint64_t *next);

/* ---- sim_traffic.c --------------------------------------------------------------- */

uint64_t sim_network_delay(const struct sim_object *o);
/* What would arrive at that time meets the cut: TCP sends it again. */
uint64_t sim_network_through(int a, int b, uint64_t at);
/* Bytes of the message that fit now. A local packet goes whole, and one always fits. */
size_t sim_space_for(const struct sim_object *o, size_t bytes);
/* When the kernel gives up the connection, since its other end is silent; SIM_FOREVER: never. */
uint64_t sim_silent_at(const struct sim_object *o);
void sim_perhaps_silence(struct sim_object *o);
void sim_socket_close(struct sim_object *o);

#endif
