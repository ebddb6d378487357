/* SPDX-License-Identifier: MIT */
/*
 * private.h - the state of a relay: what the files of this room share.
 *
 * `lock` guards all fields that are not marked atomic; the thread releases it while it polls.
 */
#ifndef SYMM_RELAY_PRIVATE_H
#define SYMM_RELAY_PRIVATE_H

#include <pthread.h>

#include "net/acceptor.h"
#include "net/auth.h"
#include "relay/ledger.h"
#include "relay/link.h"
#include "relay/relay.h"

#define SYMM_RELAY_FDS      4096 /* connections at a time */
#define SYMM_RELAY_NOTICES  64   /* kept for ends that connect later */
/* Seconds for hosts to attach, before they are probed. */
#define SYMM_RELAY_EXPECT 0.2
/* Seconds after a rank has finalized until it is announced: at a job's end all finalize. */
#define SYMM_RELAY_ANNOUNCE 0.2

/* Why no rank of a host is left. */
enum symm_relay_loss {
    SYMM_RELAY_HOST_DIED,  /* no process listens there */
    SYMM_RELAY_HOST_LEFT,  /* the same, and all have finalized */
    SYMM_RELAY_HOST_SILENT /* it does not answer */
};

/* Which two ends a connection has. */
enum symm_relay_end {
    SYMM_RELAY_TO_RELAY, /* from this rank to its host's relay */
    SYMM_RELAY_TO_HOST,  /* from this relay to a lower host */
    SYMM_RELAY_OF_HOST,  /* from a higher host to this relay */
    SYMM_RELAY_OF_RANK,  /* from a rank of this host to this relay */
    /* From this relay to a higher host that should be attached and is not: does a process listen
     * there? */
    SYMM_RELAY_PROBE
};

enum symm_relay_stage {
    SYMM_RELAY_WAITING, /* until `at` */
    SYMM_RELAY_CONNECTING,
    SYMM_RELAY_ASKED, /* the other end proves itself next */
    SYMM_RELAY_OPEN
};

struct symm_relay_connection {
    struct symm_relay_connection *next;
    enum symm_relay_end end;
    enum symm_relay_stage stage;
    int id; /* host or rank */
    int fd;
    int fd_slot;     /* in relay->fds; -1: none */
    bool doomed;     /* to be closed by the sweep */
    /* WAITING: when the next try begins; CONNECTING, ASKED: when this one is given up; OPEN: since
     * when it is open. */
    double at;
    double pause;  /* before the next try */
    double since;  /* when the first of the failed tries began; 0: none has failed */
    char why[64];  /* the last try failed */
    bool stranger; /* the last try failed because the other end does not know the key */
    int refused;   /* tries in a row that found no listener */
    struct symm_auth auth;
    struct symm_relay_link link;
};

struct symm_relay_guest {
    struct symm_guest at;
    struct symm_auth auth;
};

enum symm_relay_call_state {
    SYMM_CALL_NONE,
    SYMM_CALL_WAITS, /* for ALL */
    SYMM_CALL_HAS,   /* has ALL, waits for GO */
    SYMM_CALL_WENT,  /* has GO */
    SYMM_CALL_FAILED
};

/* The exchange that the rank's own thread waits for. */
struct symm_relay_call {
    enum symm_relay_call_state state;
    bool have_due; /* HAVE must be sent */
    /* this rank's ledger had no memory for a message: it is to be given again */
    bool say_due;
    /* before it began: then this rank sends no PART, and need not be a leader */
    bool failed;
    struct symm_relay_message *part, *all, *give_up, *fail; /* counted */
};

struct symm_relay_board {
    uint64_t tag;
    uint64_t written; /* cells_written when its newest cell was written */
    struct symm_relay_message **cell; /* [ranks]; counted; owned; NULL: no board */
};

struct symm_relay {
    struct symm_relay_config config;
    uint8_t key[SYMM_SIPHASH_KEY];
    int place; /* of this rank in config.local */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake; /* an eventfd */
    bool serving, leaving, stopped, acknowledged;
    double leave_by; /* this rank stops then, at the latest */
    /* A relay that finalizes waits until then for hosts to connect again; for hosts that never were
     * connected. */
    double settle_until, first_until;
    /* Neighbours may not know this relay: it is the host's first, or the one before died. */
    bool after_death;
    struct symm_ledger ledger;
    struct symm_relay_call call;
    bool lacks; /* there was no memory for a connection, or to serve */
    struct symm_relay_connection *connections;
    struct symm_acceptor acceptor;
    struct symm_auth_nonces nonces[64]; /* of handshakes, by their sender's number */
    /* the relay before this one left with an unconnected neighbour (LEAVE) */
    bool untold;
    bool *gone, *left; /* [hosts]: no rank is left there; all have finalized */
    /* [hosts]: its relay has finalized, or was told that this one does, and no next one has
     * connected: if no process listens there, all its ranks have finalized. */
    bool *changes;
    bool *connected; /* [hosts]: a relay of that host has been connected once */
    bool *silent; /* [hosts], atomic: gone because it does not answer */
    bool any_gone, any_left;
    uint8_t *state;   /* [ranks], atomic: enum symm_relay_state */
    bool any_ended;   /* atomic: set before a rank's state is */
    bool *hung_up;    /* [local_size]: that rank's socket has hung up */
    /* no earlier connection to the host above in the tree of the world */
    double attach_at;
    /* When hosts that should have attached to this one and have not are probed; 0: never. */
    double probe_at;
    /* when ranks of this host that have finalized are announced; 0: none */
    double announce_at;
    uint64_t announced; /* bits: by place */
    /* The last NOTICEs, for hosts and ranks that connect later; counted. */
    struct symm_relay_message *news[SYMM_RELAY_NOTICES];
    unsigned news_count; /* ever */
    /* a NOTICE for when there is no memory; counted */
    struct symm_relay_message *spare;
    struct symm_relay_board board[SYMM_RELAY_BOARDS];
    uint64_t cells_written; /* ever */
    struct symm_relay_report report[SYMM_RELAY_REPORTS];
    unsigned report_count;   /* ever */
    char hint[80];           /* text for the ledger's `hint` */
    int fds[SYMM_RELAY_FDS]; /* atomic: for a forked child */
    struct pollfd *polls;
    size_t polls_room;
};

static inline int symm__relay_host(const struct symm_relay *relay)
{
    return relay->config.host;
}

/* thread.c */
void symm__relay_wake(struct symm_relay *relay);
/* symm__relay_open and symm__relay_close without the thread. */
symm_status symm__relay_make(const struct symm_relay_config *config,
                             struct symm_relay **relay) SYMM_MUST_CHECK;
void symm__relay_free(struct symm_relay *relay);

/* calls.c */
/* result->message is an ALL: makes result->parts of it. */
symm_status symm__relay_take_parts(const struct symm_relay_exchange *x,
                                   struct symm_relay_result *result) SYMM_MUST_CHECK;

/* board.c */
/* Keeps the cell if it is newer than the one that is there: *newer. False: no memory. */
bool symm__relay_keep_cell(struct symm_relay *relay, struct symm_relay_message *message,
                           bool *newer);
/* Sends all cells to an end that has connected. */
void symm__relay_queue_cells(struct symm_relay *relay,
                             struct symm_relay_connection *to);
void symm__relay_boards_close(struct symm_relay *relay);

/* connections.c */
/* An open connection of that end; NULL: none. */
struct symm_relay_connection *symm__relay_find(struct symm_relay *relay,
                                               enum symm_relay_end end, int id);
/* Makes a connection TO_RELAY, TO_HOST or PROBE, unless there is one. Without memory the next turn
 * of the thread makes it. */
void symm__relay_want(struct symm_relay *relay, enum symm_relay_end end, int id,
                      double at);
void symm__relay_queue(struct symm_relay_connection *connection,
                       struct symm_relay_message *message);
/* Gives queued messages to the kernel. True: nothing is left, or the connection is lost. */
bool symm__relay_write_out(struct symm_relay_connection *connection);
void symm__relay_doom(struct symm_relay_connection *connection);
/* There is no memory for a message that the other end must get: an open connection begins again,
 * since then both ends send all that still counts. */
static inline void symm__relay_restart(struct symm_relay_connection *connection)
{
    if (connection->stage == SYMM_RELAY_OPEN)
        symm__relay_doom(connection);
}
/* Closes the connection, which is out of the list, and frees it. */
void symm__relay_connection_free(struct symm_relay *relay,
                                 struct symm_relay_connection *connection);
/* Fills symm__relay_watched() polls. *due: set to the next time to act, if that is earlier. */
size_t symm__relay_watch(struct symm_relay *relay, struct pollfd *polls, double *due);
size_t symm__relay_watched(const struct symm_relay *relay);
void symm__relay_move(struct symm_relay *relay, const struct pollfd *polls,
                      size_t count);
bool symm__relay_accept_begin(struct symm_relay *relay);
/* Fails exchanges that were given up and whose host above cannot be reached. True: there was
 * one. */
bool symm__relay_report_cuts(struct symm_relay *relay);
void symm__relay_connections_close(struct symm_relay *relay);
/* Does any connection still have something to send? */
bool symm__relay_owes(const struct symm_relay *relay);
/* Has this end confirmed a connection that is not open here yet? For the other end it may be
 * open. */
bool symm__relay_is_adopting(const struct symm_relay *relay);

/* news.c */
struct symm_relay_message *symm__relay_plain(enum symm_relay_kind kind, int rank,
                                             int status);
void symm__relay_queue_plain(struct symm_relay_connection *to,
                             enum symm_relay_kind kind, int rank, int status);
void symm__relay_set_state(struct symm_relay *relay, int rank,
                           enum symm_relay_state state);
void symm__relay_send_news(struct symm_relay *relay, struct symm_relay_connection *to);
/* To be called when neighbours have changed without LEAVE: the present ones may not know this
 * relay. */
void symm__relay_settle(struct symm_relay *relay);
void symm__relay_note_gone(struct symm_relay *relay,
                           const struct symm_relay_connection *from, int host,
                           enum symm_relay_loss loss);
void symm__relay_rank_died(struct symm_relay *relay, int rank);
/* False: no relay sends such a message. */
bool symm__relay_hear_news(struct symm_relay *relay, struct symm_relay_connection *from,
                           struct symm_relay_message *message);
/* No process listens at that host, or it is silent. */
void symm__relay_host_gone(struct symm_relay *relay, int host,
                           enum symm_relay_loss loss);
/* Fails exchanges that began after the host had gone. */
void symm__relay_fail_gone(struct symm_relay *relay, int host);
void symm__relay_keep_news(struct symm_relay *relay,
                           struct symm_relay_message *message);
/* Sends a report to all ends but `from`, where it came from; NULL: this relay's own. */
void symm__relay_spread(struct symm_relay *relay,
                        const struct symm_relay_connection *from,
                        struct symm_relay_message *message);
/* The same for a report without data. Without memory the ends connect again, and get it by
 * symm__relay_send_news. */
void symm__relay_spread_plain(struct symm_relay *relay,
                              const struct symm_relay_connection *from,
                              enum symm_relay_kind kind, int rank, int status);

/* leave.c */
/* Queues a relay's LEAVE to a rank of its host. */
void symm__relay_queue_leave(struct symm_relay_connection *to, int rank, bool untold);
/* Is the rank at that place of this host another rank than this one, and not gone? */
bool symm__relay_lives_on(const struct symm_relay *relay, int place);
/* Will another rank of this host serve? */
bool symm__relay_has_successor(const struct symm_relay *relay);
bool symm__relay_hear_leave(struct symm_relay *relay,
                            struct symm_relay_connection *from,
                            struct symm_relay_message *message);
/* Should that host be attached to this one in the tree of the world, but is not? */
bool symm__relay_is_missing(struct symm_relay *relay, int host);
/* Is there a neighbour in the tree of the world that never was connected to this relay? */
bool symm__relay_has_untold(struct symm_relay *relay);
void symm__relay_send_left(struct symm_relay *relay, struct symm_relay_connection *to);
/* Is there an end that a relay which finalizes has yet to tell so? */
bool symm__relay_is_settling(struct symm_relay *relay);
/* The rank finalizes, and has told so to all ends that it can reach. */
bool symm__relay_may_stop(struct symm_relay *relay);
void symm__relay_leave_begin(struct symm_relay *relay);

/* roles.c */
/* A connection has opened: sends what its other end must know. */
void symm__relay_opened(struct symm_relay *relay,
                        struct symm_relay_connection *connection);
/* A connection that was open has closed. */
void symm__relay_lost(struct symm_relay *relay, enum symm_relay_end end, int id);
/* No process listens at that host: have its ranks finalized, as far as this end can know? */
bool symm__relay_has_left(const struct symm_relay *relay, int host);
/* Takes a message that has arrived; false: the connection is to be closed. */
bool symm__relay_hear(struct symm_relay *relay,
                      struct symm_relay_connection *connection,
                      struct symm_relay_message *message);
/* Gives a message of this rank to its relay: directly if this rank is the relay, else by the
 * connection. */
void symm__relay_say(struct symm_relay *relay, struct symm_relay_message *message);
/* Sends the call's messages again, to a new relay. */
void symm__relay_call_say(struct symm_relay *relay);
/* Sends what the call still owes its relay. Not to be called by functions of the ledger. */
void symm__relay_call_step(struct symm_relay *relay);
/* Notes the ranks whose sockets have hung up; begins to serve if those of all lower ranks
 * have. */
void symm__relay_take_hang_ups(struct symm_relay *relay, const struct pollfd *polls);
/* To be called before polling: makes connections that are needed, sends messages that are due;
 * *due becomes earlier. */
void symm__relay_tend(struct symm_relay *relay, double *due);
/* Allocates by relay->config. False: no memory; roles_close must be called all the same. */
bool symm__relay_roles_open(struct symm_relay *relay);
/* After symm__relay_connections_close. */
void symm__relay_roles_close(struct symm_relay *relay);
/* Closes doomed connections, which may doom others. */
void symm__relay_sweep(struct symm_relay *relay);

#endif
