/* SPDX-License-Identifier: MIT */
/*
 * ledger_tick.c - what new connections, ends of ranks and hosts, and time do to exchanges: see
 * ledger.h.
 */
#include "relay/ledger_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"
#include "util/status.h"

#define LOOK_SECONDS 0.05  /* between two searches for deadlocks of exchanges */
#define KEEP_AGAIN   0.002 /* between two tries to keep a verdict */
#define LACK_SECONDS 0.01  /* between two tries to have memory */

/* ---- Connections and ends ---------------------------------------------------------------- */

void symm__ledger_resend(struct symm_ledger *ledger, int host)
{
    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = x->next) {
        if (!symm__ledger_is_parent(ledger, x, host))
            continue;
        if (x->sent > 0)
            symm__ledger_send_up(ledger, x, true);
        if (x->have_sent)
            symm__ledger_send_have(ledger, x);
        if (x->gave_up)
            ledger->to_host(ledger->user, host, x->gave_up);
    }
}

/* Asks the root itself if that host was on the path to it: the root may have sent GO. */
static void ask_root(struct symm_ledger *ledger, struct symm_ledger_exchange *x,
                     int host)
{
    int above = symm__tree_parent(x->place);

    while (above > 0 && symm__ledger_host_at(ledger, x->leaders, above) != host)
        above = symm__tree_parent(above);
    if (above <= 0 || !x->have || x->asks)
        return;
    x->asks = true;
    symm__ledger_send_have(ledger, x);
    if (x->gave_up)
        symm__ledger_to_place(ledger, x, 0, x->gave_up);
}

/* A host that an exchange needs is gone: must the exchange fail? */
static bool must_fail(const struct symm_ledger *ledger,
                      const struct symm_ledger_exchange *x, int host)
{
    for (int p = 0; p < x->count; p++) {
        int top = p;

        if (symm__ledger_host_at(ledger, x->leaders, p) != host)
            continue;
        /* This host is below the gone one, from which no verdict can come. */
        if (symm__ledger_in_subtree(x->place, p))
            return p == 0 || !x->asks;
        if (x->place > 0) /* the root decides */
            return false;
        while (symm__tree_parent(top) != 0)
            top = symm__tree_parent(top);
        return !x->child_have[top - symm__tree_child(0)];
    }
    return false;
}

void symm__ledger_host_gone(struct symm_ledger *ledger, int host, const char *sentence)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        struct symm_relay_message *fail;

        next = x->next;
        ask_root(ledger, x, host);
        if (!must_fail(ledger, x, host))
            continue;
        fail = symm__ledger_reason(ledger, x, SYMM_RELAY_FAIL, SYMM_ERR_PEER_DEAD,
                                   symm__ledger_leader_of(x), sentence);
        if (fail)
            (void)symm__ledger_finish(ledger, x, fail);
        symm__relay_drop(fail);
    }
}

void symm__ledger_cut(struct symm_ledger *ledger, int host, symm_status status,
                      const char *sentence)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        struct symm_relay_message *fail;

        next = x->next;
        if (!x->gave_up || !symm__ledger_is_parent(ledger, x, host))
            continue;
        fail = symm__ledger_reason(ledger, x, SYMM_RELAY_FAIL, status,
                                   symm__ledger_leader_of(x), sentence);
        if (fail)
            (void)symm__ledger_finish(ledger, x, fail);
        symm__relay_drop(fail);
    }
}

void symm__ledger_rank_gone(struct symm_ledger *ledger, int rank, const char *how)
{
    struct symm_ledger_exchange *next;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        char sentence[SYMM_ERROR_BYTES];

        next = x->next;
        if (symm__ledger_leader_of(x) != rank || x->have)
            continue;
        snprintf(sentence, sizeof(sentence), "rank %d %s during %s", rank, how,
                 x->what);
        symm__ledger_fail(ledger, x, SYMM_ERR_PEER_DEAD, rank, sentence);
    }
}

/* ---- Time ------------------------------------------------------------------------------- */

/* A leader that has come to exchange `in` and is missing in exchange `to`; -1: none. */
static int waits_for(const struct symm_ledger *ledger,
                     const struct symm_ledger_exchange *to,
                     const struct symm_ledger_exchange *in)
{
    for (int p = 0, q = 0; p < in->count && q < to->count;) {
        int here = symm__ledger_host_at(ledger, in->leaders, p),
            there = symm__ledger_host_at(ledger, to->leaders, q);

        if (here == there && in->leaders[p] == to->leaders[q] && in->parts[p].message &&
            !to->parts[q].message)
            return in->leaders[p];
        p += here <= there;
        q += there <= here;
    }
    return -1;
}

/*
 * Is it certain that no leader has left the exchange with GO? After a GO this host's leader has
 * all bytes, and this relay knows that: it passed them on itself, or the leader has reported it
 * since this relay serves.
 */
static bool waits(const struct symm_ledger *ledger,
                  const struct symm_ledger_exchange *x, double now)
{
    return now - x->since >= LOOK_SECONDS && !x->gave_up && !x->all && !x->have &&
           !x->verdict && x->owed_status == SYMM_OK &&
           ledger->heard(ledger->user, symm__ledger_leader_of(x));
}

static bool find_deadlock(struct symm_ledger *ledger, double now)
{
    for (struct symm_ledger_exchange *a = ledger->exchanges; a; a = a->next) {
        if (!waits(ledger, a, now))
            continue;
        for (struct symm_ledger_exchange *b = a->next; b; b = b->next) {
            int in_a = waits_for(ledger, b, a), in_b = waits_for(ledger, a, b);
            char sentence[SYMM_ERROR_BYTES];

            if (in_a < 0 || in_b < 0 || !waits(ledger, b, now))
                continue;
            snprintf(sentence, sizeof(sentence),
                     "rank %d is in %s, rank %d in %s: each waits for the other; all "
                     "ranks must make these steps in one order",
                     in_a, a->what, in_b, b->what);
            symm__ledger_fail(ledger, b, SYMM_ERR_MISMATCH, in_b, sentence);
            symm__ledger_fail(ledger, a, SYMM_ERR_MISMATCH, in_a, sentence);
            return true;
        }
    }
    return false;
}

/* Does what there was no memory for. */
static void catch_up(struct symm_ledger *ledger)
{
    struct symm_ledger_exchange *next;

    if (!ledger->lacks)
        return;
    ledger->lacks = false;
    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        const symm_status owed = x->owed_status;
        char sentence[SYMM_ERROR_BYTES];

        next = x->next;
        if (x->verdict || x->gave_up)
            continue;
        if (owed == SYMM_OK) {
            symm__ledger_advance(ledger, x);
            continue;
        }
        memcpy(sentence, x->owed, sizeof(sentence));
        x->owed_status = SYMM_OK;
        symm__ledger_fail(ledger, x, owed, x->owed_rank, sentence);
    }
}

/* Tells verdicts that all ranks of this host have by now. Returns when to try the others again. */
static double tell_kept(struct symm_ledger *ledger, double now)
{
    struct symm_ledger_exchange *next;
    double due = INFINITY;

    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = next) {
        next = x->next;
        if (!x->verdict)
            continue;
        if (ledger->keep(ledger->user, x->verdict, &x->kept) || now >= x->tell_by)
            symm__ledger_tell(ledger, x);
        else
            due = now + KEEP_AGAIN;
    }
    return due;
}

double symm__ledger_tick(struct symm_ledger *ledger)
{
    double now = symm__now(), due;

    catch_up(ledger);
    due = tell_kept(ledger, now);
    for (struct symm_ledger_exchange *x = ledger->exchanges; x; x = x->next) {
        double at = x->since + SYMM_LEDGER_PARTIAL;

        if (x->place == 0 || x->sent == x->got)
            continue;
        if (now >= at)
            symm__ledger_send_up(ledger, x, false);
        else if (at < due)
            due = at;
    }
    if (ledger->exchanges && ledger->exchanges->next) {
        while (find_deadlock(ledger, now))
            ;
        if (due > now + LOOK_SECONDS)
            due = now + LOOK_SECONDS;
    }
    return ledger->lacks && due > now + LACK_SECONDS ? now + LACK_SECONDS : due;
}
