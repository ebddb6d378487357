/* SPDX-License-Identifier: MIT */
/*
 * rounds.pml - the signal round of kernels/host/round.h and symm/call/slow_wait.c as a model
 * for Spin.
 *
 * Functions: round_arrive, round_await, round_await_all and round_all of kernels/host/round.h;
 * symm__slow_wait with has_arrived, look_at, look_at_all, find_finished, report_mismatch and
 * cancel_arrival of symm/call/slow_wait.c.
 *
 * RANKS ranks make CALLS calls of one round each over SLOTS slots. At most DEATHS ranks die,
 * between any two steps; at most one rank makes one call with another tag; with TIMEOUTS a
 * wait may also time out while its condition is false. A store of data is two steps, so that
 * a concurrent read is detected. Claims, for every interleaving:
 *   - a rank that completes a round reads the data that each peer wrote for that round;
 *   - no rank completes a round in which a peer made another call;
 *   - a call that begins after a member's call has failed does not succeed;
 *   - a call fails only if a rank died, differed or was late;
 *   - every live rank ends (Spin reports a rank that waits for ever).
 * Not modelled: weak memory (see docs/memory-model.md), calls of several rounds, several
 * teams. Mutants, each of which must violate a claim: SLOTS=1, IGNORE_TAGS, IGNORE_DEATH,
 * NO_CANCEL.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define NOBODY 255
#define WORD(tag, epoch) ((tag) * 16 + (epoch))
#define TAG(word)        ((word) / 16)
#define EPOCH(word)      ((word) % 16)

byte word[RANKS * SLOTS]; /* tag 0: no arrival, or one that was taken back */
byte data[RANKS * SLOTS]; /* the epoch it was written for; 0: half-written */
bool record[RANKS];       /* the rank's control page tells of a failure */
bool dead[RANKS];         /* the kernel has marked the rank's live word */

byte deaths, failures;    /* so far; a failure counts once its call has returned */
bool late;                /* a deadline has passed */
byte culprit = NOBODY, bad_call;

#define OWN      word[me * SLOTS + epoch % SLOTS]
#define PEERS    word[peer * SLOTS + epoch % SLOTS]
#define CALL(r)  (1 + (r == culprit && epoch == bad_call)) /* the tag of rank r's call */
#define WANTED   WORD(CALL(me), epoch)

#ifdef IGNORE_TAGS
#define ARRIVED (EPOCH(PEERS) == epoch && TAG(PEERS) != 0)
#define DIFFERS false
#else
#define ARRIVED (PEERS == WANTED)
#define DIFFERS (EPOCH(PEERS) == epoch && TAG(PEERS) != 0 && TAG(PEERS) != CALL(me))
#endif
#ifdef IGNORE_DEATH
#define GONE false
#else
#define GONE (dead[peer] && !ARRIVED) /* the word was looked at again after the death */
#endif
#ifdef TIMEOUTS
#define TOO_LATE (!ARRIVED)
#else
#define TOO_LATE false
#endif

/* One step, before which the rank may die instead. */
#define STEP(statement)                                                                   \
    if                                                                                    \
    :: statement                                                                          \
    :: atomic { deaths < DEATHS -> deaths++; dead[me] = true; goto gone }                 \
    fi

proctype rank(byte me)
{
    byte epoch = 1, peer, failed_before;

    do
    :: epoch > CALLS -> goto gone
    :: else ->
        failed_before = failures;
        STEP(data[me * SLOTS + epoch % SLOTS] = 0);
        STEP(data[me * SLOTS + epoch % SLOTS] = epoch);
        STEP(OWN = WANTED);

        for (peer : 0 .. RANKS - 1) {
            if
            :: peer == me
            :: peer != me ->
                do
                :: ARRIVED -> break
                :: DIFFERS -> goto failed
                :: record[peer] -> goto failed
                :: GONE -> goto failed
                :: atomic { TOO_LATE -> late = true; goto failed }
                :: atomic { deaths < DEATHS -> deaths++; dead[me] = true; goto gone }
                od
            fi
        }
        for (peer : 0 .. RANKS - 1) {
            STEP(assert(data[peer * SLOTS + epoch % SLOTS] == epoch));
            assert(CALL(peer) == CALL(me))
        }
        assert(failed_before == 0);
        epoch++
    od;

failed:
    assert(deaths > 0 || late || culprit != NOBODY);
    STEP(record[me] = true);
#ifndef NO_CANCEL
    STEP(OWN = WORD(0, epoch));
#endif
    failures++; /* the call returns */
gone:
    skip
}

init {
    byte r;

    atomic {
        if
        :: skip
        :: select(r : 0 .. RANKS - 1); culprit = r; select(bad_call : 1 .. CALLS)
        fi;
        for (r : 0 .. RANKS - 1) {
            run rank(r)
        }
    }
}
