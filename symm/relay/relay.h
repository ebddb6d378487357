/* SPDX-License-Identifier: MIT */
/*
 * relay.h - a rank's access to the other hosts of its job, for its context's life.
 *
 * Each rank of a job over several hosts has one thread here. The thread of the lowest living rank
 * of a host is its relay: it alone holds connections to relays of other hosts, and it serves
 * whatever its rank's program does. The other ranks hold one connection to it. All ranks of a
 * host hold one listener, so when the relay's rank dies or finalizes the next one serves at the
 * same address, and all ends connect again (ledger.h says what they repeat).
 *
 * The higher host connects to the lower. In the tree of the world each host attaches to its nearest
 * living ancestor (tree.h); deaths and failures go over it to all hosts. Exchanges of a team go
 * over a tree of the team's hosts alone, whose connections are made when first needed.
 *
 * Guarantees: an exchange ends by its deadline and one second, with one outcome on all hosts that
 * can be reached; a rank's death is known on all hosts soon after the kernel has closed its
 * sockets; each end has proved that it knows the job's key, and each packet carries a keyed hash.
 * A host that does not answer for half a minute counts as gone.
 * Refuses: strangers, messages of other versions, members that are in different steps.
 */
#ifndef SYMM_RELAY_RELAY_H
#define SYMM_RELAY_RELAY_H

#include <stdbool.h>

#include "net/address.h"
#include "net/siphash.h"
#include "symm/symm.h"
#include "util/status.h"

struct symm_relay;
struct symm_relay_message;

/* Where a host's relay listens. */
struct symm_relay_host {
    char name[32];     /* for sentences */
    uint8_t bytes[16]; /* the address, in network byte order as the port */
    uint16_t family;   /* 4 or 6 */
    uint16_t port;
};

struct symm_relay_config {
    int rank, ranks;                  /* of the world */
    int host, hosts;                  /* numbered by their lowest ranks; hosts >= 2 */
    /* These four are borrowed while the relay lives. */
    const int32_t *host_of;           /* [ranks] */
    const struct symm_relay_host *at; /* [hosts] */
    const int *local;                 /* [local_size]: ranks of this host, ascending */
    /* [local_size]: a socket to each, which hangs up when the rank ends or finalizes; -1: own. */
    const int *local_fd;
    int local_size;
    int listener;       /* shared by all ranks of this host; taken, also on error */
    const uint8_t *key; /* SYMM_SIPHASH_KEY bytes; copied */
};

symm_status symm__relay_open(const struct symm_relay_config *config,
                             struct symm_relay **relay) SYMM_MUST_CHECK;
/* A rank of this host has died: the kernel says so before it hangs up the rank's socket. */
void symm__relay_saw_death(struct symm_relay *relay, int rank);
/* Tells the relay that this rank finalizes, waits at most a second until that has arrived, ends
 * the thread. NULL is allowed. */
void symm__relay_close(struct symm_relay *relay);
/* After fork, in the child: frees memory, and touches no thread or connection. */
void symm__relay_abandon(struct symm_relay *relay);
/* Its descriptors, for a forked child to close (oob/forks.h). */
int *symm__relay_fds(struct symm_relay *relay, int *count);

/* One exchange among the hosts of a team: this rank is the lowest member on its host. */
struct symm_relay_exchange {
    const char *what;  /* "rendezvous of team 3": for sentences */
    uint64_t tag;      /* equal on all members for the same step */
    uint32_t sequence; /* counts the exchanges of this tag */
    /* != 0: tag of the exchange that led to this one; if that failed on another host, so does
     * this one. */
    uint64_t before;
    /* [hosts]: the lowest member on each host, hosts ascending */
    const int32_t *leaders;
    int hosts;
    const void *bytes; /* this host's part; borrowed */
    size_t bytes_count;
    double start, until; /* points in time; start: for sentences */
    /* An error: why the exchange must end now. Called again and again while it waits; may be
     * NULL. */
    symm_status (*ask)(void *arg);
    void *arg;
    /* != SYMM_OK: this rank has failed already; the others fail with symm_last_error(), unless
     * this host's leader has completed the exchange with them. */
    symm_status failed;
};

/* One host's bytes, as received. */
struct symm_relay_part {
    const uint8_t *data;
    size_t bytes;
};

struct symm_relay_result {
    struct symm_relay_part *parts;      /* [hosts], in the order of leaders; owned */
    struct symm_relay_message *message; /* that holds them; owned */
    /* it succeeded on the other hosts, also if it failed here for lack of memory */
    bool went;
    /* On error: */
    /* This exchange, or a later one of the tag, had failed before this host came to it. */
    bool late;
    uint32_t reached; /* the highest number of the tag that has failed */
    char what[64];    /* `what` of that one */
};

/* One at a time. On error the result has only `went`, `late`, `reached` and `what`. */
symm_status symm__relay_exchange(struct symm_relay *relay,
                                 const struct symm_relay_exchange *exchange,
                                 struct symm_relay_result *result) SYMM_MUST_CHECK;
void symm__relay_result_finish(struct symm_relay_result *result);

/* Tells all hosts that a team has failed. Never waits, so it may be called under any lock. */
void symm__relay_notify(struct symm_relay *relay, uint64_t tag, symm_status status,
                        const char *sentence);
#define SYMM_RELAY_REPORTS 16 /* remembered, of different teams */

struct symm_relay_report {
    uint64_t tag;
    symm_status status;
    int rank; /* that reported it */
    char sentence[SYMM_ERROR_BYTES];
};
/* What has been reported of a team by a rank of another host; false: nothing. */
bool symm__relay_reported(struct symm_relay *relay, uint64_t tag,
                          struct symm_relay_report *report);

/*
 * A board is a table of one cell for each rank of the job, the same one on all hosts: what a rank
 * writes into its own cell of the board `tag` reaches all ranks; also if it dies, once a rank that
 * lives has read it. Only a cell's newest version is kept. SYMM_RELAY_BOARDS boards are kept:
 * those that were written to last.
 */
#define SYMM_RELAY_BOARDS 8
symm_status symm__relay_write(struct symm_relay *relay, uint64_t tag, uint32_t version,
                              const void *bytes, size_t count) SYMM_MUST_CHECK;
/* If a cell of the board was written since the read that returned `since` (0: never read), calls
 * `each` with every cell; it must not wait, and must check what a peer wrote. Returns the board's
 * version; 0: there is no such board. */
uint64_t symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                          void (*each)(void *user, int rank, const void *bytes,
                                       size_t count),
                          void *user);

enum symm_relay_state { SYMM_RELAY_ALIVE, SYMM_RELAY_DIED, SYMM_RELAY_FINALIZED };

/* What is known of a rank of another host: two loads. */
enum symm_relay_state symm__relay_state(const struct symm_relay *relay, int rank);
/* May a rank be in another state than ALIVE? Not: none is. One load, for those who look at all. */
bool symm__relay_any_ended(const struct symm_relay *relay);
/* Is that host taken for dead because it does not answer? It may live, cut off from this one. */
bool symm__relay_is_silent(const struct symm_relay *relay, int host);

#endif
