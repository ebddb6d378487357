/* SPDX-License-Identifier: MIT */
/*
 * exchange.pml - an exchange among ranks of one host, its DONE and FAIL, as a model for Spin.
 *
 * Functions: exchange_run with exchange_move, exchange_complete, exchange_ask_alive and
 * exchange_late, exchange_last_look and exchange_verdict of symm/oob/exchange.c; symm__oob_send,
 * symm__oob_recv, oob_sort, oob_look, oob_renumber, symm__oob_resume, oob_ask, oob_repeat,
 * symm__oob_dead and symm__oob_abandon of symm/oob/peer.c.
 *
 * RANKS ranks make STEPS exchanges in a row, each by a socket to every other rank: first DATA with
 * the rank's own status, then DONE once all parts are there. A rank that gives up remembers the
 * exchange and sends FAIL. At most DEATHS ranks die, between any two packets; at most LATES let a
 * deadline pass; at most BADS bring a failure of their own as their part. A rank that has ended,
 * or has made all its exchanges, hangs up; what it sent before can still be read. SKIPS > 0: so
 * many times a rank does not come to an exchange, but to the last one; who has come to such an
 * exchange leaves it at any time, and packets of other exchanges say nothing (`agreed`).
 * Claims, for every interleaving:
 *   - who leaves well knows that every member has had all parts;
 *   - all who leave well find the same verdict: that of all members' parts;
 *   - who leaves well had not been sent a FAIL of this exchange when its last look began;
 *   - an exchange fails only if a rank died or was late in it or one before, and not because of one
 *     that had sent all of its own, DONE too, before it died;
 *   - parts of a failed exchange are never taken for those of a later one, and no packet comes that
 *     the code takes for damage;
 *   - an exchange that all come to does not fail because somebody did not come to one before;
 *   - every live rank ends (Spin reports one that waits for ever), also one whose peers failed.
 * Not modelled: sockets that are full, descriptors, teams of other members, mismatches, BLAME,
 * restarts under a later number.
 * Mutants, each of which must violate a claim: NO_DONE, EARLY_DONE, NO_FAIL, NO_LAST_LOOK,
 * LOOK_TAKES, NO_PAST, NO_DRAIN, IGNORE_DEATH, OWN_FIRST (a rank that brings a failure leaves at
 * once); with SKIPS: NO_MISSED (a part that came too early is forgotten), LATE_ASK (it is asked for
 * after the own part), NO_REPEAT (it is not sent again).
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef STEPS
#define STEPS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LATES
#define LATES 0
#endif
#ifndef BADS
#define BADS 0
#endif
#ifndef SKIPS
#define SKIPS 0
#endif

mtype = { DATA, DONE, FAIL, ASK, AGAIN };
#define ALL       ((1 << RANKS) - 1)
#define BIT(r)    (1 << (r))
#define IN(s, r)  (((s) >> (r)) & 1)
#define Q(from, to) q[(from) * RANKS + (to)]

#if SKIPS
#define ROOM (5 * STEPS)
#else
#define ROOM (3 * STEPS)
#endif

chan q[RANKS * RANKS] = [ROOM] of { mtype, byte, bool };
bool closed[RANKS], dead[RANKS];
byte deaths, lates, bads, skips, skipped;

byte had_all[STEPS + 1], bad[STEPS + 1]; /* ghosts: sets of ranks */
byte said_done[(STEPS + 1) * RANKS];     /* of a rank: whom it told */
byte said_fail[(STEPS + 1) * RANKS];     /* of a rank: who told it */
bool trouble;                            /* a rank died, or was late */

#define MAY_DIE                                                                            \
    if                                                                                     \
    :: true                                                                                \
    :: atomic { deaths < DEATHS -> deaths++; trouble = true; dead[me] = true;              \
        closed[me] = true; goto gone }                                                     \
    fi

/* A packet to a member, unless it has hung up. */
inline send_one(p, kind, status)
{
    if
    :: !closed[p] ->
        assert(nfull(Q(me, p)));
        Q(me, p)!kind, step, status
    :: else
    fi
}

/* To each member. */
inline send_all(kind, status)
{
    for (p : 0 .. RANKS - 1) {
        if
        :: p != me ->
            MAY_DIE;
            atomic {
                send_one(p, kind, status);
                if
                :: kind == DONE ->
                    said_done[step * RANKS + me] = said_done[step * RANKS + me] | BIT(p)
                :: kind == FAIL ->
                    said_fail[step * RANKS + p] = said_fail[step * RANKS + p] | BIT(me)
                :: else
                fi
            }
        :: else
        fi
    }
    p = 0
}

/* oob_ask, and the FAIL of a member that has left before this rank came. */
inline resume()
{
    atomic {
        for (p : 0 .. RANKS - 1) {
            if
            :: early[p] == step && IN(early_fail, p) -> goto failed
            :: early[p] == step && !IN(early_fail, p) ->
                asked = asked | BIT(p);
                send_one(p, ASK, 0)
            :: else
            fi
        }
        p = 0
    }
}

/* One packet of a peer that is not done. */
inline take(r)
{
    atomic {
        Q(r, me)?kind, number, status;
        if
#if SKIPS
        :: number == step && kind == DATA && IN(asked, r) -> skip
        :: number == step && kind == AGAIN ->
            assert(IN(asked, r));
            asked = asked & ~BIT(r)
        :: number == step && kind == ASK ->
            assert(!IN(got, r));
#ifndef NO_REPEAT
            send_one(r, AGAIN, 0);
            send_one(r, DATA, mine)
#endif
        :: number > step && (kind == DATA || kind == FAIL) ->
#ifndef NO_MISSED
            early[r] = number;
            early_fail = (early_fail & ~BIT(r)) | ((kind == FAIL) << r)
#endif
        :: number > step && kind != DATA && kind != FAIL -> skip
        :: number < step -> skip
#endif
        :: number == step && kind == DATA && !IN(asked, r) ->
            assert(!IN(got, r));
            got = got | BIT(r);
            verdict = verdict | (status << r)
        :: number == step && kind == DONE ->
            assert(IN(got, r));
            done = done | BIT(r)
        :: number == step && kind == FAIL -> goto failed
#if SKIPS
#elif defined(NO_PAST)
        :: number < step && kind == DATA ->
            /* As if the number were not compared with what is remembered. */
            got = got | BIT(r);
            verdict = verdict | (status << r)
        :: number < step && kind != DATA -> skip
#else
        /* oob_is_past, or oob_renumber: a FAIL that is not remembered is this one's, too. */
        :: number < step && kind == FAIL && !IN(past, number) -> goto failed
        :: number < step && (kind != FAIL || IN(past, number)) -> skip
#endif
#if !SKIPS
        :: number > step -> assert(false)
#endif
        fi
    }
}

/* oob_look: FAIL of this exchange, else what is there stays for a later one. */
inline look(r)
{
    atomic {
#ifdef LOOK_TAKES
        Q(r, me)?kind, number, status;
        if
        :: kind == FAIL && number == step -> goto failed
        :: else -> settled = settled | BIT(r)
        fi
#else
        Q(r, me)?<kind, number, status>;
        if
        :: kind == FAIL && number == step -> Q(r, me)?kind, number, status; goto failed
        :: else -> settled = settled | BIT(r)
        fi
#endif
    }
}

#ifdef NO_DRAIN
#define HUNG_UP(r) (closed[r])
#else
#define HUNG_UP(r) (closed[r] && len(Q(r, me)) == 0)
#endif

#define CAN_TAKE(r) (r != me && !IN(done, r) && 0 < len(Q(r, me)))
#define CAN_LOOK(r) (r != me && IN(done, r) && !IN(settled, r) && 0 < len(Q(r, me)))
#define GONE(r)     (r != me && !IN(done, r) && HUNG_UP(r))

proctype rank(byte me)
{
    mtype kind;
    byte step, number, got, done, settled, verdict, past, p, told, mine, before, asked;
    bool status;
#if SKIPS
    byte early[RANKS], early_fail; /* the last exchange of which packets were thrown away */
#endif

    for (step : 1 .. STEPS) {
#if SKIPS
        if
        :: true
        :: atomic { step < STEPS && skips < SKIPS ->
            skips++; trouble = true; skipped = skipped | BIT(step); goto next }
        fi;
        asked = 0;
#endif
        got = BIT(me); done = BIT(me); settled = BIT(me); told = false; verdict = 0;
        /* exchange_set_part */
        if
        :: mine = 0
        :: atomic { bads < BADS ->
            bads++; mine = 1; bad[step] = bad[step] | BIT(me) }
        fi;
        verdict = mine << me;
#if SKIPS && !defined(LATE_ASK)
        resume();
#endif
        send_all(DATA, mine);
#if SKIPS && defined(LATE_ASK)
        resume();
#endif
#ifdef OWN_FIRST
        if
        :: mine -> goto next
        :: else
        fi;
#endif
        do
#ifdef EARLY_DONE
        :: !told -> told = true; send_all(DONE, 0)
#endif
        :: atomic { got == ALL && !told ->
            told = true; had_all[step] = had_all[step] | BIT(me) };
            send_all(DONE, 0)
#ifdef NO_DONE
        :: told -> break
#else
        :: told && done == ALL -> break /* exchange_complete */
#endif
        :: CAN_TAKE(0) -> take(0)
        :: CAN_TAKE(1) -> take(1)
        :: CAN_LOOK(0) -> look(0)
        :: CAN_LOOK(1) -> look(1)
#ifndef IGNORE_DEATH
        :: atomic { GONE(0) -> assert(!IN(said_done[step * RANKS + 0], me)); goto failed }
        :: atomic { GONE(1) -> assert(!IN(said_done[step * RANKS + 1], me)); goto failed }
#endif
#if RANKS > 2
        :: CAN_TAKE(2) -> take(2)
        :: CAN_LOOK(2) -> look(2)
#ifndef IGNORE_DEATH
        :: atomic { GONE(2) -> assert(!IN(said_done[step * RANKS + 2], me)); goto failed }
#endif
#endif
        :: atomic { lates < LATES && !(told && done == ALL) ->
            lates++; trouble = true; goto failed }
#if SKIPS
        :: atomic { IN(skipped, step) -> goto failed }
#endif
        od;
        /* exchange_last_look */
        before = said_fail[step * RANKS + me];
#ifndef NO_LAST_LOOK
        for (p : 0 .. RANKS - 1) {
            if
            :: p != me && !IN(settled, p) && len(Q(p, me)) > 0 -> look(p)
            :: else
            fi
        }
        p = 0;
#endif
        atomic {
            assert(before == 0);
            assert(had_all[step] == ALL);
            assert(verdict == bad[step]);
            before = 0
        };
        goto next;
failed:
        atomic {
            assert(trouble);
            assert(step < STEPS || deaths || lates);
            past = past | BIT(step);
            kind = 0; number = 0; status = 0
        };
#ifndef NO_FAIL
        send_all(FAIL, 1);
#endif
next:
        skip
    }
    closed[me] = true;
gone:
    skip
}

init {
    byte r;

    atomic {
        for (r : 0 .. RANKS - 1) {
            run rank(r)
        }
    }
}
