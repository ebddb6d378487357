/* SPDX-License-Identifier: MIT */
/*
 * shrink_hosts.pml - calls of symm_team_shrink on a team over hosts (symm/setup/shrink_hosts.c) as
 * a model for Spin: three ranks, up to DEATHS of which die at any moment, and up to STOPS of which
 * stop. DEAD: those that have died before.
 *
 * Functions: look, publish, is_decision, follows_others, decide, adopt, follow_view, propose,
 * decide_proposal, try_proposal, give_up and step of symm/setup/shrink_hosts.c;
 * symm__shrink_conclude of symm/setup/shrink_hosts_end.c.
 *
 * Each rank has a cell, and a copy of each other cell, which is fetched at any time: from the rank
 * itself, from another one that lives and has it, or, after a death, from what was under way to it.
 * Deaths become known to each rank at any time. LATE: ranks need not come at once, and after a
 * while are not waited for; then cells that were written before have arrived. FAILS: a rank may
 * fail to make the team though nobody has died. STOPS: a rank that has come stops, and continues
 * at any time or never. If it stops for long, ranks give up by their clocks, when what other ranks
 * have written has arrived. Ranks that return without a team for that make the call again (CALLS).
 * Claims, for every interleaving:
 *   - ranks that live and have returned SYMM_OK have the team of one ballot;
 *   - the ranks of that team that live have not been left out;
 *   - without LATE, FAILS and STOPS no rank that lives returns an error;
 *   - each rank returns (Spin reports a state that none leaves), also if a stopped one never
 *     continues;
 *   - STOPS: no rank decides DONE after another one has given up; ranks that do not stop end a call
 *     alike; a stop leaves no rank out of the next call, and that call gives a team to all that
 *     have not stopped.
 * LATE together with a death has 30 million states (2.5 minutes with -DCOLLAPSE): no test runs it.
 * Not modelled: silence (hosts that are taken for dead and are not), a stop together with a death,
 * deadlines but those of STOPS and LATE, and a coordinator that stops before its decision has gone
 * out and continues just when others give up: then some may read the decision and others not.
 * Mutants, each of which must violate a claim: NO_PROMISE, NO_TAKE_OVER, ANY_VIEW, EARLY_DONE,
 * NO_NEW_ROUND; with STOPS: NO_GIVE_UP, LEAVE, LATE_DONE, HASTY, NO_PASS, OLD_CELLS.
 */
#define RANKS 3
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef DEAD
#define DEAD 0 /* ranks that have died before, by bits */
#endif

#define JOINED     1
#define OPENED     2
#define NOT_OPENED 3
#define LEFT       4
#define NONE   0
#define DONE   1
#define FAILED 2
#define ERROR  3
#define ABANDONED 4
#define ROUNDS 3

/* How a rank runs. PAUSED: it may continue; HALTED: it never will; SLOW: it was stopped for so long
 * that its clock, and those of others, may have run out. */
#define RUNS   0
#define PAUSED 1
#define HALTED 2
#define SLOW   3

/* state 0: the rank has not come. */
typedef cell {
    byte version, state, view, of_view, of_round, round, set;
    byte outcome, in, done_view, done_round;
    bool overdue
#if STOPS
    ;
    byte call, before, before_in, before_done_view, before_done_round
#endif
};
typedef cells { cell at[RANKS] };

cells known[RANKS]; /* known[i].at[j]: what i knows of j; known[i].at[i] is i's cell */
byte dead_to[RANKS]; /* those of whose death the rank knows, by bits */
byte flying[RANKS];  /* those whose last cell is under way to the rank, by bits */
bool died[RANKS];
byte result[RANKS];  /* NONE, DONE, FAILED or ERROR */
byte opened[RANKS];  /* the set whose team the rank has, */
byte tried[RANKS];   /* that it has tried last */
byte deaths, fails;
byte pace[RANKS]; /* RUNS, PAUSED, HALTED or SLOW */
byte stops;
byte slow = RANKS;     /* the rank that was stopped for long, */
byte slow_call;        /* in that call */
byte gave_up[RANKS];   /* the call in which the rank has ended with ABANDONED */

#define OWN      known[me].at[me]
#define OF(j)    known[me].at[j]
#define IN(s, j) ((s) >> (j) & 1)
/* IS_HERE: its cell is of this call. DECIDED, BY: its decision of this call. */
#if STOPS
#ifdef OLD_CELLS
#define IS_HERE(j) (OF(j).state != 0)
#else
#define IS_HERE(j) (OF(j).state != 0 && OF(j).call == OWN.call)
#endif
#define HAS_COME(j) ((OF(j).state != 0 && OF(j).call >= OWN.call) || IN(tried[me], j))
#define DECIDED(j) \
    (OF(j).call == OWN.call -> OF(j).outcome : (OF(j).call > OWN.call -> OF(j).before : NONE))
#define BY(j, what) (OF(j).call == OWN.call -> OF(j).what : OF(j).before_##what)
#define SAME_CALL(i) (known[i].at[i].call == OWN.call)
#define CALL OWN.call
#else
#define IS_HERE(j) (OF(j).state != 0)
#define HAS_COME(j) (IS_HERE(j) || IN(tried[me], j))
#define DECIDED(j) OF(j).outcome
#define BY(j, what) OF(j).what
#define SAME_CALL(i) true
#define CALL 1
#endif
#define IS_OUT(j) (IN(dead_to[me], j) || (IS_HERE(j) && OF(j).state == LEFT))
#define IS_SLOW(j) (pace[j] != RUNS)
#define HEARS_OTHERS (OWN.of_round == 0 || OWN.view == me)
#define COORDINATES (OWN.view == me && OWN.outcome == NONE)

inline copy(to, from)
{
    to.version = from.version; to.state = from.state; to.view = from.view;
    to.of_view = from.of_view; to.of_round = from.of_round; to.round = from.round;
    to.set = from.set; to.outcome = from.outcome; to.in = from.in;
    to.done_view = from.done_view; to.done_round = from.done_round;
    to.overdue = from.overdue;
#if STOPS
    to.call = from.call; to.before = from.before; to.before_in = from.before_in;
    to.before_done_view = from.before_done_view;
    to.before_done_round = from.before_done_round
#endif
}

inline finish(how)
{
    result[me] = how;
    if
    :: how == ERROR -> OWN.state = LEFT; opened[me] = 0
    :: how == FAILED || how == ABANDONED -> opened[me] = 0
    :: else
    fi;
    OWN.version++
}

/* A clock has run out: one rank was stopped for long. */
inline note_slow()
{
#if STOPS
    d = 0;
    do
    :: d < RANKS ->
        if :: IS_SLOW(d) -> slow = d; slow_call = known[d].at[d].call :: else fi;
        d++
    :: else -> break
    od;
    d = 0
#else
    skip
#endif
}

/* The rank makes the call again. */
inline call_again()
{
#if STOPS
    OWN.before = OWN.outcome; OWN.before_in = OWN.in;
    OWN.before_done_view = OWN.done_view; OWN.before_done_round = OWN.done_round;
    OWN.call++;
    OWN.state = JOINED; OWN.view = 0; OWN.of_view = 0; OWN.of_round = 0; OWN.round = 0;
    OWN.set = 0; OWN.outcome = NONE; OWN.in = 0; OWN.done_view = 0; OWN.done_round = 0;
    OWN.overdue = false;
    OWN.version++;
    tried[me] = 0; opened[me] = 0; result[me] = NONE;
    pace[me] = RUNS
#else
    skip
#endif
}

/* A decision becomes known: adopt(), conclude(). */
inline adopt()
{
    i = 0;
    do
    :: i < RANKS && OWN.outcome == NONE && result[me] == NONE ->
        if
        :: i != me && DECIDED(i) == DONE && !IN(dead_to[me], i) && OWN.of_round == 0 ->
            finish(ERROR)
#ifdef ANY_VIEW
        :: i != me && DECIDED(i) != NONE && OWN.of_round > 0 ->
#else
        :: i != me && DECIDED(i) != NONE &&
           !(DECIDED(i) == DONE && !IN(dead_to[me], i) && OWN.of_round == 0) &&
           (BY(i, in) == OWN.view || (BY(i, in) > OWN.view && HEARS_OTHERS) || i == OWN.view
#ifndef NO_TAKE_OVER
            || (OWN.view == me && OWN.round == 0)
#endif
           ) ->
#endif
            OWN.outcome = DECIDED(i);
            OWN.done_view = BY(i, done_view);
            OWN.done_round = BY(i, done_round);
            OWN.in = (BY(i, in) > OWN.view -> BY(i, in) : OWN.view)
        :: else
        fi;
        i++
    :: else -> break
    od
}

inline follow_view()
{
    v = OWN.view;
    do
    :: v < me && (IS_OUT(v) || (!HAS_COME(v) && OWN.overdue)) -> v++
    :: else -> break
    od;
    i = 0;
    do
    :: i < RANKS ->
        if
        :: !IS_OUT(i) && IS_HERE(i) && OF(i).view > v && HEARS_OTHERS -> v = OF(i).view
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: v > me -> finish(ERROR)
    :: v <= me && v > OWN.view -> OWN.view = v; OWN.version++
    :: else
    fi
}

/* bits: those that come and follow me. ready: all of whom that is to be waited for. */
inline gather()
{
    bits = 0; ready = true; late = false; overdue = false;
    i = 0;
    do
    :: i < RANKS ->
        if
        :: IS_OUT(i)
        :: !IS_OUT(i) && IS_HERE(i) && OF(i).view == me && OF(i).outcome == NONE ->
            bits = bits | (1 << i)
#ifdef NO_PROMISE
        :: !IS_OUT(i) && IS_HERE(i) && !(OF(i).view == me && OF(i).outcome == NONE) ->
            bits = bits | (1 << i)
#else
        :: !IS_OUT(i) && IS_HERE(i) && !(OF(i).view == me && OF(i).outcome == NONE) ->
            ready = false
#endif
        :: !IS_OUT(i) && !IS_HERE(i) && HAS_COME(i) -> ready = false
        :: !IS_OUT(i) && !HAS_COME(i) -> late = true
        fi;
        if :: !IS_OUT(i) && IS_HERE(i) && OF(i).overdue -> overdue = true :: else fi;
        i++
    :: else -> break
    od;
    ready = ready && (!late || overdue)
}

inline propose()
{
    assert(OWN.round < ROUNDS);
    OWN.round++;
    OWN.set = bits;
    OWN.version++
}

inline decide(how)
{
    OWN.outcome = how; OWN.in = me; OWN.done_view = me; OWN.done_round = OWN.round
}

inline judge() /* gone: one of the set, which may have OPENED and broken it for others */
{
    all = true; again = false; failed = false; gone = false;
    i = 0;
    do
    :: i < RANKS ->
        if
        :: !IN(OWN.set, i)
#ifdef EARLY_DONE
        :: IN(OWN.set, i) && IS_HERE(i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
           OF(i).state == OPENED
        :: IN(OWN.set, i) && IS_OUT(i) &&
           !(IS_HERE(i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
             OF(i).state == OPENED) ->
            skip
        :: IN(OWN.set, i) && !IS_OUT(i) && OF(i).of_round == 0 -> skip
        :: else -> all = false
#else
        :: IN(OWN.set, i) && IS_HERE(i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
           OF(i).state == OPENED
        :: else ->
            if
            :: IN(OWN.set, i) ->
                all = false;
                if :: IS_OUT(i) -> again = true :: else fi;
                if
                :: IS_HERE(i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
                   OF(i).state == NOT_OPENED -> failed = true
                :: else
                fi
            :: else
            fi
#endif
        fi;
        if :: IN(OWN.set, i) && IS_OUT(i) -> gone = true :: else fi;
        i++
    :: else -> break
    od;
    again = again || (gone && failed && fails == 0);
    if
#ifndef LATE_DONE
    :: all && pace[me] == SLOW -> decide(ABANDONED) /* others may have given up */
    :: all && pace[me] != SLOW ->
#else
    :: all ->
#endif
        assert((died[0] || gave_up[0] != CALL) && (died[1] || gave_up[1] != CALL) &&
               (died[2] || gave_up[2] != CALL));
        decide(DONE)
#ifndef NO_NEW_ROUND
    :: !all && again -> gather(); propose()
#endif
    :: !all && !again && failed && fails > 0 -> decide(FAILED)
    :: else
    fi
}

/* What a step leaves behind is no state. */
inline forget()
{
    i = 0; v = 0; bits = 0;
    ready = false; late = false; overdue = false; all = false; again = false;
    failed = false; gone = false; some = false
}

/* What the rank does next, from what it knows. */
inline turn()
{
    adopt();
    if :: result[me] == NONE && OWN.outcome == NONE -> follow_view(); adopt() :: else fi;
    if
    :: result[me] == NONE && COORDINATES && OWN.round == 0 ->
        gather();
        if :: ready -> propose() :: else fi
    :: result[me] == NONE && COORDINATES && OWN.round > 0 && OWN.of_view == me &&
       OWN.of_round == OWN.round -> judge()
    :: else
    fi;
    if
    :: result[me] == NONE && OWN.outcome == DONE ->
        if
        :: OWN.state == OPENED && OWN.of_view == OWN.done_view &&
           OWN.of_round == OWN.done_round -> finish(DONE)
        :: else -> finish(ERROR)
        fi
    :: result[me] == NONE && OWN.outcome == FAILED -> finish(FAILED)
    :: result[me] == NONE && OWN.outcome == ABANDONED -> gave_up[me] = CALL; finish(ABANDONED)
    :: else
    fi;
    forget()
}

/* The coordinator's proposal is tried: it may fail if one of its set has died. */
inline try(c)
{
    OWN.of_view = c;
    OWN.of_round = OF(c).round;
    opened[me] = 0;
    tried[me] = OF(c).set;
    if
    :: !IN(OF(c).set, me) -> finish(ERROR)
    :: else ->
        some = false;
        i = 0;
        do
        :: i < RANKS ->
            if
            :: IN(OF(c).set, i) && died[i] -> some = true
            :: IN(OF(c).set, i) && IS_SLOW(i) -> late = true
            :: else
            fi;
            i++
        :: else -> break
        od;
        if
        :: OWN.state = OPENED; opened[me] = OF(c).set
        :: some -> OWN.state = NOT_OPENED
        :: late -> fails++; note_slow(); OWN.state = NOT_OPENED
#ifdef FAILS
        :: fails < FAILS -> fails++; OWN.state = NOT_OPENED
#endif
        fi;
        OWN.version++
    fi
}

inline check()
{
    i = 0;
    do
    :: i < RANKS ->
        assert(died[i] || !SAME_CALL(i) || result[i] != DONE || result[me] != DONE ||
               (known[i].at[i].done_view == OWN.done_view &&
                known[i].at[i].done_round == OWN.done_round));
        assert(died[i] || !SAME_CALL(i) || result[i] != ERROR || result[me] != DONE ||
               !IN(opened[me], i));
        assert(died[i] || !SAME_CALL(i) || result[i] != DONE || result[me] != ERROR ||
               !IN(opened[i], me));
#if STOPS
        assert(died[i] || !SAME_CALL(i) || i == slow || me == slow ||
               !(result[i] == DONE && result[me] != DONE && result[me] != NONE) &&
               !(result[me] == DONE && result[i] != DONE && result[i] != NONE));
#endif
        i++
    :: else -> break
    od;
#ifndef LATE
#ifndef FAILS
#if STOPS
    assert(result[me] != ERROR || (OWN.call > 1 && me == slow));
    assert(result[me] == DONE || me == slow || slow_call == OWN.call)
#else
    assert(result[me] == DONE)
#endif
#endif
#endif
}

/* What can become known: j's cell, from k; j's death. */
#define RUNNING(k) (!died[k] && pace[k] != PAUSED && pace[k] != HALTED)
#define NEWER(k, j) (known[k].at[j].version > OF(j).version)
#define CAN_FETCH(k, j) \
    (j != me && NEWER(k, j) && ((k != me && RUNNING(k)) || (k == j && IN(flying[me], j))))
#define CAN_MISS(j) (j != me && died[j] && !IN(dead_to[me], j))
#define FETCH(k, j) :: CAN_FETCH(k, j) -> copy(OF(j), known[k].at[j])
#define MISS(j) :: CAN_MISS(j) -> dead_to[me] = dead_to[me] | (1 << j)
#define GOES RUNNING(me)
#define CAN_TRY(c) (IS_HERE(c) && OF(c).round > 0 && OF(c).view == c && OWN.view == c && \
    (OWN.of_view != c || OWN.of_round != OF(c).round) && OWN.outcome == NONE)
#define TRY(c) :: CAN_TRY(c) -> try(c)
/* Ranks that have not come are late when cells of those that have are here. */
#define ABSENT(j) (known[j].at[j].state == 0 && !died[j])
#define HERE(j) (known[j].at[j].state == 0 || OF(j).state != 0 || IN(dead_to[me], j))
/* A slow rank is awaited when all others have come. */
#define AWAITED(j) (known[j].at[j].call < OWN.call && IS_SLOW(j) && !died[j])
#define PRESENT(j) (IS_SLOW(j) || died[j] -> (!died[j] || IN(dead_to[me], j)) : \
                    known[j].at[j].call >= OWN.call && OF(j).call >= OWN.call)
/* Deliveries are faster than clocks: nothing of a rank that runs is under way, nor what a rank
 * had sent before it stopped. */
#define GETS(k, j) (IN(flying[k], j) && !IS_SLOW(k) && !died[k])
#define FLIES(j) \
    (GETS(0, j) && known[j].at[j].version > known[0].at[j].version || \
     GETS(1, j) && known[j].at[j].version > known[1].at[j].version || \
     GETS(2, j) && known[j].at[j].version > known[2].at[j].version)
#define UNDER_WAY(k, j) (CAN_FETCH(k, j) && !IS_SLOW(k))
#define QUIET \
    (!UNDER_WAY(0, 0) && !UNDER_WAY(0, 1) && !UNDER_WAY(0, 2) && !UNDER_WAY(1, 0) && \
     !UNDER_WAY(1, 1) && !UNDER_WAY(1, 2) && !UNDER_WAY(2, 0) && !UNDER_WAY(2, 1) && \
     !UNDER_WAY(2, 2) && !CAN_MISS(0) && !CAN_MISS(1) && !CAN_MISS(2) && \
     !CAN_TRY(0) && !CAN_TRY(1) && !CAN_TRY(2) && !FLIES(0) && !FLIES(1) && !FLIES(2))
/* A rank that has come to this call was stopped for so long that clocks run out. */
#define STAYS(j) (IS_SLOW(j) && SAME_CALL(j))
#define CLOCK_ENDS (STAYS(0) || STAYS(1) || STAYS(2))
/* A coordinator that runs decides on its proposal before others give up. */
#define MAY_GIVE_UP \
    (CLOCK_ENDS && (OWN.view == me || IS_SLOW(OWN.view) || \
                    known[OWN.view].at[OWN.view].round == 0 || !SAME_CALL(OWN.view)))

proctype rank(byte me)
{
    byte i, v, bits, d;
    bool ready, late, overdue, all, again, failed, gone, some;

    atomic { !died[me] ->
        OWN.state = JOINED;
#if STOPS
        OWN.call = 1;
#endif
        OWN.version++;
        turn() }
    do
    :: atomic { died[me] -> break }
#if STOPS
    :: atomic { pace[me] == HALTED && !died[me] -> break }
    :: atomic { (result[me] == FAILED || result[me] == ABANDONED) && OWN.call < CALLS && GOES ->
        check(); call_again(); turn() }
    :: atomic { result[me] != NONE && GOES &&
                !((result[me] == FAILED || result[me] == ABANDONED) && OWN.call < CALLS) ->
        check(); forget(); break }
#else
    :: atomic { result[me] != NONE && !died[me] -> check(); forget(); break }
#endif
    /* One thing becomes known or is done, then the rank acts on it. */
    :: atomic { result[me] == NONE && GOES && OWN.outcome == NONE &&
                (CAN_FETCH(0, 0) || CAN_FETCH(0, 1) || CAN_FETCH(0, 2) || CAN_FETCH(1, 0) ||
                 CAN_FETCH(1, 1) || CAN_FETCH(1, 2) || CAN_FETCH(2, 0) || CAN_FETCH(2, 1) ||
                 CAN_FETCH(2, 2) || CAN_MISS(0) || CAN_MISS(1) || CAN_MISS(2) ||
                 CAN_TRY(0) || CAN_TRY(1) || CAN_TRY(2)) ->
        if
        FETCH(0, 0) FETCH(0, 1) FETCH(0, 2)
        FETCH(1, 0) FETCH(1, 1) FETCH(1, 2)
        FETCH(2, 0) FETCH(2, 1) FETCH(2, 2)
        MISS(0) MISS(1) MISS(2)
        TRY(0) TRY(1) TRY(2)
        fi;
        if :: result[me] == NONE -> turn() :: else -> forget() fi }
#ifdef LATE
    :: atomic { result[me] == NONE && GOES && !OWN.overdue && OWN.outcome == NONE &&
                (ABSENT(0) || ABSENT(1) || ABSENT(2)) && HERE(0) && HERE(1) && HERE(2) ->
        OWN.overdue = true;
        OWN.version++;
        turn() }
#endif
#if STOPS
    /* In a later call, ranks that have come wait no longer for a slow one. */
#ifndef NO_PASS
    :: atomic { result[me] == NONE && GOES && !OWN.overdue && OWN.outcome == NONE &&
                (AWAITED(0) || AWAITED(1) || AWAITED(2)) &&
                PRESENT(0) && PRESENT(1) && PRESENT(2) ->
        OWN.overdue = true;
        OWN.version++;
        turn() }
#endif
    /* judge()'s clock, give_up() */
    :: atomic { result[me] == NONE && GOES && COORDINATES && OWN.round > 0 &&
                OWN.of_view == me && OWN.of_round == OWN.round && CLOCK_ENDS && QUIET ->
        note_slow();
        decide(FAILED);
        turn() }
#ifndef NO_GIVE_UP
    :: atomic { result[me] == NONE && GOES && OWN.outcome == NONE && MAY_GIVE_UP &&
#ifndef HASTY
                QUIET &&
#endif
                true ->
        note_slow();
#ifdef LEAVE
        finish(ERROR)
#else
        OWN.outcome = ABANDONED; OWN.in = OWN.view;
        OWN.done_view = OWN.view; OWN.done_round = 0;
        turn()
#endif
        }
#endif
#endif
    od
}

/* It goes on in time, or late. */
#define CONTINUES(d) \
    :: atomic { pace[d] == PAUSED && !died[d] -> \
        if \
        :: slow != d -> pace[d] = RUNS \
        :: pace[d] = SLOW; slow = d; slow_call = known[d].at[d].call \
        fi }

/* A rank that waits has an end that is none. */
proctype trouble()
{
    byte d, i;

end:
    do
    :: atomic { deaths < DEATHS ->
        deaths++;
        select(d : 0 .. RANKS - 1);
        if
        :: !died[d] && known[d].at[d].state != 0 ->
            died[d] = true;
            i = 0;
            do
            :: i < RANKS ->
                if :: flying[i] = flying[i] | (1 << d) :: true fi;
                i++
            :: else -> break
            od
        :: else
        fi;
        d = 0; i = 0 }
    :: atomic { stops < STOPS ->
        stops++;
        select(d : 0 .. RANKS - 1);
        if
        :: !died[d] && known[d].at[d].state != 0 ->
            if :: result[d] == NONE -> pace[d] = PAUSED :: pace[d] = HALTED fi;
            i = 0;
            do
            :: i < RANKS ->
                if :: flying[i] = flying[i] | (1 << d) :: true fi;
                i++
            :: else -> break
            od
        :: else
        fi;
        d = 0; i = 0 }
#if STOPS
    CONTINUES(0) CONTINUES(1) CONTINUES(2)
#endif
    od
}

init {
    byte r;

    atomic {
        for (r : 0 .. RANKS - 1) {
            died[r] = IN(DEAD, r);
            dead_to[r] = DEAD;
            if :: !died[r] -> run rank(r) :: else fi
        }
        run trouble()
    }
}
