/* SPDX-License-Identifier: MIT */
/* ledger_outcome.c - how exchanges that are over have ended: see ledger.h. */
#include "relay/ledger_private.h"

const struct symm_ledger_outcome *
symm__ledger_outcome_of(const struct symm_ledger *ledger, uint64_t tag,
                        uint32_t sequence)
{
    unsigned known = ledger->outcomes < SYMM_LEDGER_OUTCOMES ? ledger->outcomes
                                                             : SYMM_LEDGER_OUTCOMES;

    for (unsigned i = 1; i <= known; i++) {
        const struct symm_ledger_outcome *outcome =
            &ledger->outcome[(ledger->outcomes - i) % SYMM_LEDGER_OUTCOMES];

        if (outcome->tag == tag && (int32_t)(outcome->sequence - sequence) >= 0)
            return outcome;
    }
    return NULL;
}

const struct symm_ledger_outcome *symm__ledger_outcome(const struct symm_ledger *ledger,
                                                       uint64_t tag, uint32_t sequence)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++)
        if (ledger->outcome[i].tag == tag && ledger->outcome[i].sequence == sequence)
            return &ledger->outcome[i];
    return NULL;
}

void symm__ledger_outcome_add(struct symm_ledger *ledger, uint64_t tag,
                              uint32_t sequence, struct symm_relay_message *why)
{
    struct symm_ledger_outcome *outcome =
        &ledger->outcome[ledger->outcomes % SYMM_LEDGER_OUTCOMES];

    if (symm__ledger_outcome(ledger, tag, sequence))
        return;
    symm__relay_drop(outcome->why);
    *outcome = (struct symm_ledger_outcome){.tag = tag,
                                            .sequence = sequence,
                                            .went = !why,
                                            .why = why ? symm__relay_keep(why) : NULL};
    ledger->outcomes++;
}

void symm__ledger_know(struct symm_ledger *ledger, struct symm_relay_message *verdict)
{
    const struct symm_relay_head *head = &verdict->head;

    if (head->kind == SYMM_RELAY_GO)
        symm__ledger_outcome_add(ledger, head->tag, head->sequence, NULL);
    /* `before` is set: no verdict of the root, but the answer to a leader that came late */
    else if (head->kind == SYMM_RELAY_FAIL && head->before == 0 &&
             symm__ledger_place(ledger, verdict) >= 0)
        symm__ledger_outcome_add(ledger, head->tag, head->sequence, verdict);
}

void symm__ledger_outcomes(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *go),
                           void *user)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++) {
        const struct symm_ledger_outcome *outcome = &ledger->outcome[i];
        struct symm_relay_message *go;

        if (!outcome->went)
            continue;
        go = symm__relay_step(SYMM_RELAY_GO, outcome->tag, outcome->sequence);
        each(user, go);
        symm__relay_drop(go);
    }
}

void symm__ledger_verdicts(const struct symm_ledger *ledger,
                           void (*each)(void *user, struct symm_relay_message *verdict),
                           void *user)
{
    symm__ledger_outcomes(ledger, each, user);
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++)
        if (ledger->outcome[i].why)
            each(user, ledger->outcome[i].why);
}

/* The place of a host in a message's list; -1: it is not there. */
static int place_in(const struct symm_ledger *ledger,
                    const struct symm_relay_message *message, int host)
{
    const int32_t *leaders = (const int32_t *)(const void *)message->data;

    for (uint32_t p = 0; p < message->head.leaders; p++)
        if (ledger->host_of[leaders[p]] == host)
            return (int)p;
    return -1;
}

void symm__ledger_failures(const struct symm_ledger *ledger, int host,
                           void (*each)(void *user, struct symm_relay_message *fail),
                           void *user)
{
    for (unsigned i = 0; i < SYMM_LEDGER_OUTCOMES && i < ledger->outcomes; i++) {
        struct symm_relay_message *why = ledger->outcome[i].why;
        int place = why ? place_in(ledger, why, host) : -1;

        if (place > 0 &&
            symm__tree_parent(place) == place_in(ledger, why, ledger->host))
            each(user, why);
    }
}
