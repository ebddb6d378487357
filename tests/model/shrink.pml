/* SPDX-License-Identifier: MIT */
/*
 * shrink.pml - how the survivors of a team agree (symm/setup/team_shrink.c, consensus.c), as a
 * model for Spin.
 *
 * Functions: look (LOOK), move, ended, begin, gather with announce, gathered and propose, follow
 * with read_set and go_on, make (their team), conclude with verdict, left_out, not_made.
 *
 * RANKS ranks make CALLS calls of symm_team_shrink each. At most DEATHS of them die, before any
 * write and in any wait; FAILS of them may fail to make the team; LATES waits (with TIMEOUTS: any)
 * may pass their deadline; with FINALIZE a rank finalizes after its last call, which others take
 * for a death. The word, the marks, the two places of a proposed set and the re-check of the word
 * are as in the code; reads of several pages are several steps; the word changes by
 * compare-and-swap.
 * Claims, for every interleaving:
 *   - of one attempt all who read the decided set read the same (agreement),
 *   - who returns OK is in the set, all who return OK of an attempt have the same, and none of the
 *     set returns an error of that attempt, nor is told that it came too late,
 *   - in a set is only who has come to this very attempt; out of it is who is dead, has finalized,
 *     was out before, or let a deadline pass; sets only shrink,
 *   - the paths that call the page damaged are not reached, an attempt fails only for a cause,
 *   - every rank that lives returns (Spin reports one that waits for ever),
 *   - no loop goes round for ever (a search for non-progress cycles: none has a progress label).
 * Not modelled: weak memory, wrapping counters, the choice of the slot, scribbled pages, the
 * exchanges that make the team (they succeed if all of the set have come, else may end differently
 * on each).
 * Mutants, each of which must violate a claim: NO_CAS, NO_RECHECK, ONE_PLACE,
 * GATHER_IGNORES_DEATH, CONCLUDE_IGNORES_DEATH, STALE_JOIN, STALE_MARK, NO_HISTORY, WIDE_AMONG,
 * MARK_EARLY, FAIL_ALONE, DONE_ALONE, and RETRY_BLINDLY, which never ends: a rank whose move was
 * overtaken tries again without looking at the word.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef LATES
#define LATES 0
#endif
#define ALL   ((1 << RANKS) - 1)
#define TRIES (CALLS * (1 + DEATHS) + 2)

#define GATHER  0
#define DECIDED 1
#define DONE    2
#define FAILED  3

byte w_att = 0, w_prop = 0, w_ph = DONE; /* the word: attempt, proposer, four phases */
byte joined[RANKS], opened[RANKS], making[RANKS];
byte place[RANKS * 2];                   /* what each rank proposes, by parity of the attempt */
bool dead[RANKS];
byte deaths, fails, lates;
bool late;

byte decided[TRIES + 1], okset[TRIES + 1]; /* ghosts */
bool failret[TRIES + 1];

#define IN(s, m)   (((s) >> (m)) & 1)
#define PHASE      (wph & 3)
#define SAME_WORD  (w_att == wa && w_prop == wp && w_ph == wph)
#define DIE        atomic { deaths < DEATHS -> deaths++; dead[me] = true; goto gone }
#define WRITE(s)   if :: s :: DIE fi
#define LOOK       atomic { wa = w_att; wp = w_prop; wph = w_ph }
#if RANKS == 2
#define EVERY(P) (P(0) && P(1))
#define SOME(P)  (P(0) || P(1))
#elif RANKS == 3
#define EVERY(P) (P(0) && P(1) && P(2))
#define SOME(P)  (P(0) || P(1) || P(2))
#else
#define EVERY(P) (P(0) && P(1) && P(2) && P(3))
#define SOME(P)  (P(0) || P(1) || P(2) || P(3))
#endif
#define HERE(m)   (!IN(among, m) || joined[m] == attempt || DEAD_G(m))
#define MAKING(m) (!IN(set, m) || making[m] >= attempt)
#define LOST(m)   (IN(set, m) && dead[m])
#define BROKEN(m) (IN(set, m) && !OPENED(m) && DEAD_C(m))
#define MARKED(m) (!IN(set, m) || OPENED(m))
#ifdef ONE_PLACE
#define PLACE(r) place[(r) * 2]
#else
#define PLACE(r) place[(r) * 2 + attempt % 2]
#endif
#ifdef NO_CAS
#define UNCHANGED true
#else
#define UNCHANGED SAME_WORD
#endif
#ifdef NO_RECHECK
#define CURRENT true
#else
#define CURRENT SAME_WORD
#endif
#ifdef GATHER_IGNORES_DEATH
#define DEAD_G(m) false
#else
#define DEAD_G(m) (dead[m] && m != me)
#endif
#ifdef CONCLUDE_IGNORES_DEATH
#define DEAD_C(m) false
#else
#define DEAD_C(m) (dead[m] && m != me)
#endif
#ifdef STALE_JOIN
#define COME(m) (joined[m] > 0)
#else
#define COME(m) (joined[m] == attempt)
#endif
#ifdef STALE_MARK
#define OPENED(m) (opened[m] > 0)
#else
#define OPENED(m) (opened[m] == attempt)
#endif
#ifdef NO_HISTORY
#define SHIFTED 0
#else
#define SHIFTED ((wph << 2) & 255)
#endif
#ifdef TIMEOUTS /* any number of deadlines may pass, else LATES of them */
#define MAY_PASS true
#define PASS     late = true
#else
#define MAY_PASS (lates < LATES)
#define PASS     lates++; late = true
#endif

/* Moves the word on, unless somebody has. */
inline move(a, p, ph)
{
    atomic {
        if
        :: UNCHANGED ->
            assert(a <= TRIES);
            if
            :: ((ph) & 3) == DECIDED && a != wa -> assert(false)
            :: ((ph) & 3) == DECIDED && a == wa ->
#ifndef NO_CAS
                assert(decided[a] == 0);
#endif
                decided[a] = PLACE(me)
            :: else
            fi;
            w_att = a; w_prop = p; w_ph = ph
        :: else
        fi
    }
}

proctype rank(byte me)
{
    byte attempt, among, set, got, shrinks, survivors = ALL, calls, wa, wp, wph, m, end, want;
    bool mine, waiting, made, all;

call:
    if
    :: calls == CALLS || !IN(survivors, me) -> goto out
    :: else
    fi;
    calls++; attempt = shrinks + 1; among = survivors; set = 0;

begin:
    LOOK;
    if
    :: wa == attempt -> goto gather
    :: wa > attempt -> goto left_out
    :: wa < attempt ->
        assert(PHASE == DONE || PHASE == FAILED); /* else it is called damaged */
        WRITE(move(attempt, wp, SHIFTED | GATHER));
#ifdef RETRY_BLINDLY
again:
        if
        :: w_att != attempt || w_ph != (SHIFTED | GATHER) -> goto again
        :: else
        fi;
#endif
        goto begin
    fi;

gather:
    LOOK;
    assert(wa + 1 >= attempt);
    if
    :: joined[me] != attempt -> WRITE(joined[me] = attempt)
    :: else
    fi;
    if
    :: PHASE != GATHER || wa != attempt -> goto follow
    :: else
    fi;
    got = 0; waiting = false;
    for (m : 0 .. RANKS - 1) {
        if
        :: !IN(among, m) || DEAD_G(m)
        :: else ->
            if
            :: COME(m) -> got = got | (1 << m)
            :: else -> waiting = true
            fi
        fi
    }
    m = 0;
    if
    :: waiting ->
        if
        :: atomic { MAY_PASS -> PASS }
        :: atomic { !SAME_WORD ->  goto gather }
        :: atomic { EVERY(HERE) -> goto gather }
        :: DIE
        fi
    :: else
    fi;
    d_step {
        for (m : 0 .. RANKS - 1) {
            if
            :: IN(got, m) && SAME_WORD -> assert(joined[m] == attempt)
            :: !IN(got, m) && IN(among, m) -> assert(dead[m] || late)
            :: else
            fi
        }
        m = 0
    };
    WRITE(PLACE(me) = got);
    got = 0;
    WRITE(move(attempt, me, (wph & 252) | DECIDED));
    goto gather;

follow:
    if
    :: wa != attempt && !(wa == attempt + 1 && PHASE == GATHER) -> goto left_out
    :: else
    fi;
    got = PLACE(wp);
    if
    :: atomic { CURRENT -> mine = IN(got, me);
#ifndef NO_CAS
        assert(got == decided[attempt]);
#endif
        }
    :: atomic { !CURRENT -> got = 0; goto gather }
    fi;
    set = got; got = 0;
    assert(!mine || ((set & ~among) == 0 && IN(set, wp)));
    if
    :: !mine -> goto left_out
    :: mine && PHASE == DONE -> assert(false)
    :: else
    fi;
    end = (wph >> (2 * (wa - attempt))) & 3;
    if
    :: end == FAILED -> goto not_made
    :: end != FAILED && wa == attempt + 1 ->
        assert(end != DONE);
#ifndef WIDE_AMONG
        among = set;
#endif
        attempt++; goto gather
    :: else
    fi;

    /* Their team. */
#ifdef MARK_EARLY
    WRITE(opened[me] = attempt);
#endif
    WRITE(making[me] = attempt);
    if
    :: EVERY(MAKING) -> made = true
    :: SOME(LOST) -> made = false
    :: atomic { fails < FAILS -> fails++; made = false }
    :: fails > 0 || late -> made = false /* another has left the exchange */
    :: atomic { MAY_PASS -> PASS; made = false }
    :: DIE
    fi;

#ifdef FAIL_ALONE
    if
    :: !made -> goto not_made
    :: else
    fi;
#endif
    if
    :: made -> WRITE(opened[me] = attempt)
    :: else
    fi;

conclude:
    LOOK;
    assert(wa + 1 >= attempt);
    if
    :: wa != attempt || PHASE != DECIDED ->
        end = (wa - attempt < 4 -> (wph >> (2 * (wa - attempt))) & 3 : GATHER);
        end = (end == DECIDED -> GATHER : end);
        assert(end != DONE || made);
        goto ended
    :: else
    fi;
    all = made; want = DECIDED;
    for (m : 0 .. RANKS - 1) {
        if
        :: IN(set, m) && want == DECIDED ->
            if
            :: OPENED(m)
            :: else ->
                if
                :: DEAD_C(m) -> if :: !OPENED(m) -> want = GATHER :: else fi
                :: else ->
#ifndef DONE_ALONE
                    all = false
#else
                    skip
#endif
                fi
            fi
        :: else
        fi
    }
    m = 0;
    if
    :: want == DECIDED && all -> want = DONE
    :: want == DECIDED && !all && !made -> want = FAILED
    :: want == DECIDED && !all && made ->
        if
        :: atomic { MAY_PASS -> PASS; want = FAILED }
        :: atomic { !SAME_WORD -> goto conclude }
        :: atomic { SOME(BROKEN) -> goto conclude }
        :: atomic { EVERY(MARKED) -> goto conclude }
        :: DIE
        fi
    :: else
    fi;
    if
    :: want == GATHER -> WRITE(move(attempt + 1, wp, SHIFTED | GATHER))
    :: else -> WRITE(move(attempt, wp, (wph & 252) | want))
    fi;
    goto conclude;

ended:
    if
    :: end == DONE ->
        atomic {
            assert(IN(set, me) && made);
            assert(okset[attempt] == 0 || okset[attempt] == set);
            assert(!failret[attempt]);
            for (m : 0 .. RANKS - 1) {
                assert(IN(set, m) || dead[m] || late)
            }
            okset[attempt] = set; m = 0;
            shrinks = attempt; survivors = set; goto call
        }
    :: end == FAILED -> goto not_made
    :: else ->
#ifndef WIDE_AMONG
        among = set;
#endif
        attempt++; goto begin
    fi;

not_made:
    atomic {
        assert(okset[attempt] == 0);
        assert(fails > 0 || late || deaths > 0);
        failret[attempt] = true;
        shrinks = attempt; survivors = set; goto call
    }

left_out:
    assert(late);                          /* else no rank that lives is left out */
    assert(!IN(okset[attempt], me));       /* nor told so of a team that it is in */
    goto out;

out:
#ifdef FINALIZE
    dead[me] = true;
#endif
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
