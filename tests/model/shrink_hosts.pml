/* SPDX-License-Identifier: MIT */
/*
 * shrink_hosts.pml - one call of symm_team_shrink on a team over hosts
 * (symm/setup/shrink_hosts.c) as a model for Spin: three ranks, up to DEATHS of which die at any
 * moment.
 *
 * Each rank has a cell, and a copy of each other cell, which is fetched at any time: from the rank
 * itself, from another one that lives and has it, or, after a death, from what was under way to it.
 * Deaths become known to each rank at any time. LATE: ranks need not come at once, and after a
 * while are not waited for; then cells that were written before have arrived. FAILS: a rank may
 * fail to make the team though nobody has died.
 * Claims, for every interleaving:
 *   - ranks that live and have returned SYMM_OK have the team of one ballot;
 *   - the ranks of that team that live have not been left out;
 *   - without LATE and FAILS no rank that lives returns an error;
 *   - each rank returns (Spin reports a state that none leaves).
 * LATE together with a death has 30 million states (2.5 minutes with -DCOLLAPSE), so no test runs it.
 * Not modelled: several calls, silence (hosts that are taken for dead and are not), deadlines.
 * Mutants, each of which must violate a claim: NO_PROMISE, NO_TAKE_OVER, ANY_VIEW, EARLY_DONE,
 * NO_NEW_ROUND.
 */
#define RANKS 3
#ifndef DEATHS
#define DEATHS 1
#endif

#define JOINED     1
#define OPENED     2
#define NOT_OPENED 3
#define LEFT       4
#define NONE   0
#define DONE   1
#define FAILED 2
#define ERROR  3
#define ROUNDS 3

/* state 0: the rank has not come. */
typedef cell {
    byte version, state, view, of_view, of_round, round, set;
    byte outcome, in, done_view, done_round;
    bool overdue
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

#define OWN      known[me].at[me]
#define OF(j)    known[me].at[j]
#define IN(s, j) ((s) >> (j) & 1)
#define HAS_COME(j) (OF(j).state != 0 || IN(tried[me], j))
#define IS_OUT(j) (IN(dead_to[me], j) || OF(j).state == LEFT)
#define HEARS_OTHERS (OWN.of_round == 0 || OWN.view == me)
#define COORDINATES (OWN.view == me && OWN.outcome == NONE)

inline copy(to, from)
{
    to.version = from.version; to.state = from.state; to.view = from.view;
    to.of_view = from.of_view; to.of_round = from.of_round; to.round = from.round;
    to.set = from.set; to.outcome = from.outcome; to.in = from.in;
    to.done_view = from.done_view; to.done_round = from.done_round;
    to.overdue = from.overdue
}

inline finish(how)
{
    result[me] = how;
    if
    :: how == ERROR -> OWN.state = LEFT; opened[me] = 0
    :: how == FAILED -> opened[me] = 0
    :: else
    fi;
    OWN.version++
}

/* A decision becomes known: adopt(), conclude(). */
inline adopt()
{
    i = 0;
    do
    :: i < RANKS && OWN.outcome == NONE && result[me] == NONE ->
        if
        :: i != me && OF(i).outcome == DONE && !IN(dead_to[me], i) && OWN.of_round == 0 ->
            finish(ERROR)
#ifdef ANY_VIEW
        :: i != me && OF(i).outcome != NONE && OWN.of_round > 0 ->
#else
        :: i != me && OF(i).outcome != NONE &&
           !(OF(i).outcome == DONE && !IN(dead_to[me], i) && OWN.of_round == 0) &&
           (OF(i).in == OWN.view || (OF(i).in > OWN.view && HEARS_OTHERS) || i == OWN.view
#ifndef NO_TAKE_OVER
            || (OWN.view == me && OWN.round == 0)
#endif
           ) ->
#endif
            OWN.outcome = OF(i).outcome;
            OWN.done_view = OF(i).done_view;
            OWN.done_round = OF(i).done_round;
            OWN.in = (OF(i).in > OWN.view -> OF(i).in : OWN.view)
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
        :: !IS_OUT(i) && OF(i).state != 0 && OF(i).view > v && HEARS_OTHERS -> v = OF(i).view
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
        :: !IS_OUT(i) && OF(i).state != 0 && OF(i).view == me && OF(i).outcome == NONE ->
            bits = bits | (1 << i)
#ifdef NO_PROMISE
        :: !IS_OUT(i) && OF(i).state != 0 && !(OF(i).view == me && OF(i).outcome == NONE) ->
            bits = bits | (1 << i)
#else
        :: !IS_OUT(i) && OF(i).state != 0 && !(OF(i).view == me && OF(i).outcome == NONE) ->
            ready = false
#endif
        :: !IS_OUT(i) && OF(i).state == 0 && HAS_COME(i) -> ready = false
        :: !IS_OUT(i) && !HAS_COME(i) -> late = true
        fi;
        if :: !IS_OUT(i) && OF(i).state != 0 && OF(i).overdue -> overdue = true :: else fi;
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
        :: IN(OWN.set, i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
           OF(i).state == OPENED
        :: IN(OWN.set, i) && IS_OUT(i) &&
           !(OF(i).of_view == me && OF(i).of_round == OWN.round && OF(i).state == OPENED) ->
            skip
        :: IN(OWN.set, i) && !IS_OUT(i) && OF(i).of_round == 0 -> skip
        :: else -> all = false
#else
        :: IN(OWN.set, i) && OF(i).of_view == me && OF(i).of_round == OWN.round &&
           OF(i).state == OPENED
        :: else ->
            if
            :: IN(OWN.set, i) ->
                all = false;
                if :: IS_OUT(i) -> again = true :: else fi;
                if
                :: OF(i).of_view == me && OF(i).of_round == OWN.round &&
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
    :: all -> decide(DONE)
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
        :: i < RANKS -> if :: IN(OF(c).set, i) && died[i] -> some = true :: else fi; i++
        :: else -> break
        od;
        if
        :: OWN.state = OPENED; opened[me] = OF(c).set
        :: some -> OWN.state = NOT_OPENED
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
        assert(died[i] || result[i] != DONE || result[me] != DONE ||
               (known[i].at[i].done_view == OWN.done_view &&
                known[i].at[i].done_round == OWN.done_round));
        assert(died[i] || result[i] != ERROR || result[me] != DONE || !IN(opened[me], i));
        assert(died[i] || result[i] != DONE || result[me] != ERROR || !IN(opened[i], me));
        i++
    :: else -> break
    od;
#ifndef LATE
#ifndef FAILS
    assert(result[me] == DONE)
#endif
#endif
}

/* What can become known: j's cell, from k; j's death. */
#define NEWER(k, j) (known[k].at[j].version > OF(j).version)
#define CAN_FETCH(k, j) \
    (j != me && NEWER(k, j) && ((k != me && !died[k]) || (k == j && IN(flying[me], j))))
#define CAN_MISS(j) (j != me && died[j] && !IN(dead_to[me], j))
#define FETCH(k, j) :: CAN_FETCH(k, j) -> copy(OF(j), known[k].at[j])
#define MISS(j) :: CAN_MISS(j) -> dead_to[me] = dead_to[me] | (1 << j)
#define CAN_TRY(c) (OF(c).round > 0 && OF(c).view == c && OWN.view == c && \
    (OWN.of_view != c || OWN.of_round != OF(c).round) && OWN.outcome == NONE)
#define TRY(c) :: CAN_TRY(c) -> try(c)
/* Ranks that have not come are late when cells of those that have are here. */
#define ABSENT(j) (known[j].at[j].state == 0 && !died[j])
#define HERE(j) (known[j].at[j].state == 0 || OF(j).state != 0 || IN(dead_to[me], j))

proctype rank(byte me)
{
    byte i, v, bits;
    bool ready, late, overdue, all, again, failed, gone, some;

    atomic { !died[me] -> OWN.state = JOINED; OWN.version++; turn() }
    do
    :: atomic { died[me] -> break }
    :: atomic { result[me] != NONE && !died[me] -> check(); forget(); break }
    /* One thing becomes known or is done, then the rank acts on it. */
    :: atomic { result[me] == NONE && !died[me] && OWN.outcome == NONE &&
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
    :: atomic { result[me] == NONE && !died[me] && !OWN.overdue && OWN.outcome == NONE &&
                (ABSENT(0) || ABSENT(1) || ABSENT(2)) && HERE(0) && HERE(1) && HERE(2) ->
        OWN.overdue = true;
        OWN.version++;
        turn() }
#endif
    od
}

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
    od
}

init {
    byte r;

    atomic {
        for (r : 0 .. RANKS - 1) {
            run rank(r)
        }
        run trouble()
    }
}
