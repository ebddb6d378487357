/* SPDX-License-Identifier: MIT */
/* ledger_private.h - what the files of the ledger share: see ledger.h. */
#ifndef SYMM_RELAY_LEDGER_PRIVATE_H
#define SYMM_RELAY_LEDGER_PRIVATE_H

#include "relay/ledger.h"

static inline uint64_t symm__ledger_list_bytes(const struct symm_ledger_exchange *x)
{
    return symm__relay_list_bytes((uint64_t)x->count);
}

static inline int symm__ledger_host_at(const struct symm_ledger *ledger,
                                       const int32_t *leaders, int place)
{
    return ledger->host_of[leaders[place]];
}

static inline int symm__ledger_leader_of(const struct symm_ledger_exchange *x)
{
    return x->leaders[x->place];
}

/* The place to which this relay reports: its parent, or the root if it asks that directly. */
static inline int symm__ledger_place_above(const struct symm_ledger_exchange *x)
{
    return x->asks ? 0 : symm__tree_parent(x->place);
}

static inline bool symm__ledger_in_subtree(int place, int of)
{
    while (place > of)
        place = symm__tree_parent(place);
    return place == of;
}

static inline bool symm__ledger_is_parent(const struct symm_ledger *ledger,
                                          const struct symm_ledger_exchange *x,
                                          int host)
{
    return x->place > 0 && symm__ledger_above(ledger, x) == host;
}

/* ledger_take.c */
struct symm_ledger_exchange *symm__ledger_find(const struct symm_ledger *ledger,
                                               uint64_t tag, uint32_t sequence);
void symm__ledger_exchange_free(struct symm_ledger_exchange *x);
/* The place of this host in a list that was received; -1: it is not a valid list. */
int symm__ledger_place(const struct symm_ledger *ledger,
                       const struct symm_relay_message *message);

/* ledger_outcome.c */
/* The latest outcome of the tag with a number of at least `sequence`; NULL: none is known. */
const struct symm_ledger_outcome *
symm__ledger_outcome_of(const struct symm_ledger *ledger, uint64_t tag,
                        uint32_t sequence);
/* The outcome of that exchange; NULL: not known. */
const struct symm_ledger_outcome *symm__ledger_outcome(const struct symm_ledger *ledger,
                                                       uint64_t tag, uint32_t sequence);
/* why: the FAIL, of which a reference is taken; NULL: GO. */
void symm__ledger_outcome_add(struct symm_ledger *ledger, uint64_t tag,
                              uint32_t sequence, struct symm_relay_message *why);

/* ledger_step.c */
void symm__ledger_to_place(struct symm_ledger *ledger,
                           const struct symm_ledger_exchange *x, int place,
                           struct symm_relay_message *message);
/* Sends the verdict, also to children that have sent nothing yet. The exchange is then over. */
void symm__ledger_tell(struct symm_ledger *ledger, struct symm_ledger_exchange *x);
/*
 * Ends the exchange. why: the FAIL; NULL: GO. The root's verdict is first kept by the ranks of its
 * host: until then the exchange stays, and no other verdict counts. False: no memory for GO; the
 * root's next tick decides again.
 */
bool symm__ledger_finish(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                         struct symm_relay_message *why);
/* A FAIL or GIVE_UP of the exchange. NULL: no memory. */
struct symm_relay_message *symm__ledger_reason(struct symm_ledger *ledger,
                                               const struct symm_ledger_exchange *x,
                                               enum symm_relay_kind kind,
                                               symm_status status, int rank,
                                               const char *sentence);
/* Asks for the exchange to fail: the root decides. `message`: a GIVE_UP with the list. */
void symm__ledger_give_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                          struct symm_relay_message *message);
/* The same with a GIVE_UP that is made of these. Without memory the next tick does it. */
void symm__ledger_fail(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                       symm_status status, int rank, const char *sentence);
/* Sends the parent the parts that were not sent; again: all. */
void symm__ledger_send_up(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                          bool again);
void symm__ledger_send_have(struct symm_ledger *ledger, struct symm_ledger_exchange *x);
/* ALL has arrived, or the root has made it: passes it on. Owns `all` from now on. */
void symm__ledger_take_all(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                           struct symm_relay_message *all);
/* To be called after each change: sends what is now complete, which may end (and free) the
 * exchange. */
void symm__ledger_advance(struct symm_ledger *ledger, struct symm_ledger_exchange *x);
/* Is that rank in the step of the others? If not the exchange fails, and may be freed. */
bool symm__ledger_check_step(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                             const struct symm_relay_head *head, int rank);
/* Keeps the parts of an UP from the host at place `child`. False: it is malformed. */
bool symm__ledger_take_parts(struct symm_ledger_exchange *x,
                             struct symm_relay_message *message, int child);

#endif
