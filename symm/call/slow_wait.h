/* SPDX-License-Identifier: MIT */
/*
 * slow_wait.h - waits whose word has not arrived within the first polls.
 */
#ifndef SYMM_CALL_SLOW_WAIT_H
#define SYMM_CALL_SLOW_WAIT_H

#include "core/team.h"

/* A wait for a word, after its polls: yields first, then sleeps until the word changes. */
struct symm_backoff {
    uint64_t *word;
    struct symm_wake *wake; /* where sleepers on that word count */
    double begin, timeout;  /* seconds */
    double elapsed;         /* since `begin`, when symm__back_off last returned true */
    unsigned turns;
    /* The caller polls other words than `word`, which a peer changes only if it finds a sleeper. So
     * the wait counts as one before the last of these polls, until symm__back_off_end. */
    bool polls, counted;
};

/* One step of the wait, `seen` being the word's value. True: time to look at peers and
 * deadline. */
bool symm__back_off(struct symm_backoff *wait, uint64_t seen);
void symm__back_off_end(struct symm_backoff *wait); /* of a wait with `polls` */
symm_status symm__slow_wait(struct symm_state *state, const struct symm_args *args,
                            int peer);
void symm__slow_wake(struct symm_state *state, struct symm_slot *own);
symm_status symm__wait_signal(symm_team *team, int peer, int signal, uint32_t count,
                              uint32_t tag, const char *site, const void *stream,
                              double timeout); /* stream NULL: the default one */
void symm__wait_wake(uint64_t *word); /* all that sleep on the word's low half */

#endif
