/* SPDX-License-Identifier: MIT */
/*
 * ledger.h - the exchanges that pass through one host: the protocol of relays, without sockets.
 *
 * An exchange is an allgather among the hosts of a team, over the tree of its hosts (tree.h):
 *
 *     PART   each host's leader gives its host's bytes to its relay
 *     UP     a relay that has its subtree's bytes sends them to its parent; if some do not come,
 *            it sends those that are here after SYMM_LEDGER_PARTIAL seconds, and the others when
 *            they come: so the root knows which hosts are missing
 *     ALL    the root has all bytes, and they go down to all leaders
 *     HAVE   a leader has all; a relay whose subtree has all sends it to its parent
 *     GO     the root has HAVE of all, and all leaders may leave
 *
 * Instead of GO the root may send FAIL. A leader that wants the exchange to end sends GIVE_UP,
 * which goes to the root. The root decides once, so no leader leaves with success while another
 * one is told of a failure. A leader that leaves takes away nothing that another one waits for:
 * it leaves because of GO, and GO means that all leaders have all bytes.
 *
 * When a host is gone, the hosts below it have lost their path to the root. On a host whose
 * leader does not have all bytes, the exchange fails: the root cannot have sent GO. On a host whose
 * leader has all, the relay asks the root directly, by HAVE, past the hosts in between. If the
 * root's host is gone, no relay can ask: then a leader may fail although others have left with GO.
 * What those others made together includes the host that is gone.
 *
 * A relay may die, or its rank may finalize, in the midst of exchanges of others. The next relay of
 * its host begins with an empty ledger. Leaders send PART (and HAVE) again, children UP (and
 * HAVE): all messages may come twice. A message for an exchange that is over here is answered with
 * its outcome. The last SYMM_LEDGER_OUTCOMES outcomes are kept; when a connection begins both
 * ends send those that are GO (symm__ledger_outcomes).
 *
 * The root's verdict outlives its relay. Before any leader is told, the other ranks of the root's
 * host are given the verdict, the next relay first (`keep`), and remember it
 * (symm__ledger_know). So if the next relay does not know a verdict, no leader was told one, and
 * the next relay may decide.
 *
 * Source of the pattern: tree allgather with a commit phase; the root is the coordinator of a
 * two-phase commit (Gray 1978). tests/model/tree.pml is the model.
 *
 * Not for several threads. Nothing here waits or knows a socket: `send` may be called in each
 * function, and must not call back.
 */
#ifndef SYMM_RELAY_LEDGER_H
#define SYMM_RELAY_LEDGER_H

#include <stdbool.h>

#include "relay/message.h"
#include "relay/tree.h"
#include "symm/symm.h"

#define SYMM_LEDGER_OUTCOMES 64
#define SYMM_LEDGER_PARTIAL  0.05
#define SYMM_LEDGER_ASKERS   64

/* How an exchange has ended here. */
struct symm_ledger_outcome {
    uint64_t tag;
    uint32_t sequence;
    bool went;                      /* GO; else `why` is the FAIL */
    struct symm_relay_message *why; /* NULL if it went; counted */
};

/* One host's bytes: they lie in a message. */
struct symm_ledger_part {
    struct symm_relay_message *message; /* NULL: it has not arrived; counted */
    const uint8_t *data;
    uint64_t bytes;
    bool sent; /* to the parent */
    bool asks; /* that host has asked this one, the root, how the exchange ends */
};

/* An exchange that is not over. */
struct symm_ledger_exchange {
    struct symm_ledger_exchange *next;
    uint64_t tag;
    uint32_t sequence;
    int count;        /* hosts */
    int place;        /* this host's among them: its number in the tree */
    int below;        /* hosts in its subtree, itself counted */
    int32_t *leaders; /* [count]; owned */
    struct symm_ledger_part *parts; /* [count], by place; owned */
    int got,
        sent; /* parts of the subtree that have arrived here; that were sent to the parent */
    /* A failure that there was no memory to tell; SYMM_OK: none. */
    symm_status owed_status;
    int owed_rank;
    char owed[SYMM_ERROR_BYTES];
    char what[SYMM_RELAY_WHAT];         /* the step, by the first message */
    int what_from;                      /* the rank that sent it */
    double since;                       /* the first message arrived */
    struct symm_relay_message *all;     /* NULL: it has not arrived; counted */
    struct symm_relay_message *gave_up; /* NULL, or the GIVE_UP sent; counted */
    /* Ranks of this host that gave the exchange up and are not its leader: they, too, are told
     * how it ends. */
    int asker[SYMM_LEDGER_ASKERS], askers;
    bool have;      /* the leader has all bytes */
    bool have_sent; /* the parent was told that the subtree has */
    /* The path to the root is broken, and the root may have sent GO: this host asks it directly. */
    bool asks;
    /* What the root has decided and not yet told; NULL: undecided; counted. */
    struct symm_relay_message *verdict;
    int kept; /* of `keep` */
    /* the verdict is told then, also if not all ranks of this host have it */
    double tell_by;
    bool child_have[SYMM_TREE_ARITY];
};

struct symm_ledger {
    int host;               /* this one */
    const int32_t *host_of; /* by world rank; borrowed */
    int ranks, hosts;       /* of the world */
    /* Send to the relay of that host; to rank `leader` of this host. Both borrow. */
    void (*to_host)(void *user, int host, struct symm_relay_message *message);
    void (*to_leader)(void *user, int leader, struct symm_relay_message *message);
    /* Why this rank of this host cannot come to an exchange any more; NULL: it can. */
    const char *(*absent)(void *user, int rank);
    /*
     * Gives the root's verdict to the other ranks of this host, in the order in which they serve.
     * *kept: `keep`'s own, 0 at first. False: not all have it yet; it is called again.
     */
    bool (*keep)(void *user, struct symm_relay_message *verdict, int *kept);
    /* Has that leader, of this host, had the time to send this relay all that it knows? */
    bool (*heard)(void *user, int leader);
    const char *(*host_name)(void *user, int host);
    const char *(*hint)(void *user); /* what a timeout's sentence ends with */
    void *user;
    struct symm_ledger_exchange *exchanges;
    bool lacks; /* no memory for a message: the next tick tries again */
    struct symm_ledger_outcome outcome[SYMM_LEDGER_OUTCOMES];
    unsigned outcomes; /* ever */
};

void symm__ledger_close(struct symm_ledger *ledger); /* frees all */
enum symm_ledger_taken {
    SYMM_LEDGER_TAKEN,
    SYMM_LEDGER_LACKS,  /* no memory: the sender must send it again */
    SYMM_LEDGER_REFUSED /* this library sends no such message; nothing more may be taken
                           from its sender */
};
/* Takes a message of an exchange (borrows it). `from` is a host, or -1: the leader is head.from. */
enum symm_ledger_taken
symm__ledger_take(struct symm_ledger *ledger, int from,
                  struct symm_relay_message *message) SYMM_MUST_CHECK;
/* Calls `each` with the failures that the host, below this one, may not know: at the begin of a
 * connection. */
void symm__ledger_failures(const struct symm_ledger *ledger, int host,
                           void (*each)(void *user, struct symm_relay_message *fail),
                           void *user);
/* A connection to that host is new: sends again what it may have missed. */
void symm__ledger_resend(struct symm_ledger *ledger, int host);
/* No rank of that host is left: exchanges that cannot end fail. */
void symm__ledger_host_gone(struct symm_ledger *ledger, int host, const char *sentence);
/* The relay above cannot be reached: exchanges that this host has given up end here and below. */
void symm__ledger_cut(struct symm_ledger *ledger, int host, symm_status status,
                      const char *sentence);
/* A rank of this host has gone; how: "has died". Exchanges that it leads fail. */
void symm__ledger_rank_gone(struct symm_ledger *ledger, int rank, const char *how);
/*
 * Sends what is due, and looks for two exchanges of which each waits for a leader that is in the
 * other: they can never end, and both fail. To be called at the time that it returns, or
 * earlier; INFINITY: nothing is due.
 */
double symm__ledger_tick(struct symm_ledger *ledger);
/* The host to which this one reports: its parent, or the root if it asks that directly. -1: this is
 * the root. */
int symm__ledger_above(const struct symm_ledger *ledger,
                       const struct symm_ledger_exchange *x);
/* Remembers a GO or FAIL that this rank's relay has sent: for the time when this rank serves. */
void symm__ledger_know(struct symm_ledger *ledger, struct symm_relay_message *verdict);
/* Calls `each` with all outcomes that are known, for a rank of this host. Here and below NULL
 * stands for an outcome for which there is no memory. */
void symm__ledger_verdicts(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *verdict),
                           void *user);
/* Outcomes of GO for the begin of a connection: calls `each` with a GO. */
void symm__ledger_outcomes(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *go),
                           void *user);

#endif
