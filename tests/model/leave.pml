/* SPDX-License-Identifier: MIT */
/*
 * leave.pml - a relay learns that no rank of another host is left, as a model for Spin: have they
 * finalized, or died?
 *
 * Functions: symm__relay_opened, symm__relay_lost and symm__relay_has_left of symm/relay/roles.c;
 * symm__relay_hear_leave, symm__relay_leave_begin, symm__relay_is_settling and symm__relay_may_stop
 * of symm/relay/leave.c; symm__relay_is_adopting, open_link and adopt of symm/relay/connections.c.
 *
 * Host A's relay lives. Host B's ranks serve one after the other; each finalizes or is killed at
 * any time. Host B connects; A_CONNECTS: host A does. Of a handshake (handshake.pml) the last two
 * messages are here: confirm, after which the end that connects counts the connection, and finish,
 * after which the other one does. Ranks of other hosts may have finalized or not (any_left).
 * Claims, for every interleaving:
 *   - host A takes host B for dead only if B's last rank was killed;
 *   - host A takes host B for finalized only if B's last rank has finalized, or was never connected
 *     to A's relay;
 *   - host A decides (Spin reports that it waits for ever).
 * Not modelled: connections that break and lose LEAVE; ranks that go before they serve; the time
 * after which a relay that settles stops waiting; a relay of host A that finalizes, too.
 * Mutants, each of which must violate a claim: ANY_LEFT (a host that was connected may have left
 * without LEAVE), KEEP_CHANGES (a connection to the next relay does not end what LEAVE of the one
 * before said), NO_SETTLE (a relay that begins after a death does not wait for neighbours), QUIET
 * (no LEAVE if another rank serves next); with A_CONNECTS: NO_ADOPT (a relay that finalizes drops a
 * connection that it has confirmed).
 */
#ifndef RANKS
#define RANKS 3
#endif
#define LAST (RANKS - 1)

mtype = { FINISH, LEAVE, END }; /* END: LEAVE of a host whose last rank finalizes */
/* The connection. */
#define NONE      0
#define CONFIRMED 1 /* host A connects, and confirm is under way */
#define OPENED    2 /* the end that connects counts it, and finish is under way, or lost */
#define BOTH      3

#ifdef NO_ADOPT
#define IS_ADOPTING false
#else
#define IS_ADOPTING (!b_counts && !closed && stage != NONE)
#endif
#ifdef NO_SETTLE
#define IS_SETTLING false
#else
#define IS_SETTLING (after_death && !b_counts)
#endif

chan to_a = [4] of { mtype };
chan to_b = [1] of { mtype };
byte stage = NONE;
byte from;        /* the rank of host B whose connection it is */
bool closed;      /* by host B */
byte serves;      /* rank of host B; RANKS: no process listens there */
bool b_counts;    /* host B's relay counts the connection */
bool killed[RANKS], met_rank[RANKS]; /* ghosts; met_rank: host A counted a connection to it */
bool any_left, changes, met;         /* of host A's relay */

/* Host A counts the connection: symm__relay_opened. */
inline count_it()
{
#ifndef KEEP_CHANGES
    changes = false;
#endif
    met = true;
    met_rank[from] = true
}

inline decide_left()
{
    assert(!(killed[LAST] && met_rank[LAST]));
    goto decided
}

proctype a()
{
    do
#ifdef A_CONNECTS
    :: atomic { stage == CONFIRMED ->
        stage = OPENED;
        count_it();
        if :: !closed -> to_b!FINISH :: else fi }
#endif
    :: atomic { to_a?FINISH ->
        stage = BOTH;
        count_it() }
    :: atomic { to_a?LEAVE -> changes = true }
    :: atomic { to_a?END -> decide_left() }
    /* symm__relay_lost: what was sent is read first */
    :: atomic { closed && stage != CONFIRMED && empty(to_a) ->
        stage = NONE;
        closed = false;
        do :: to_b?_ :: empty(to_b) -> break od }
    /* Tries are refused. */
    :: atomic { stage == NONE && serves == RANKS ->
        if
#ifdef ANY_LEFT
        :: changes || any_left -> decide_left()
#else
        :: changes || (!met && any_left) -> decide_left()
#endif
        :: else -> assert(killed[LAST]); goto decided
        fi }
    od;
decided:
    skip
}

inline tell()
{
    if
    :: me == LAST -> to_a!END
#ifndef QUIET
    :: me < LAST -> to_a!LEAVE
#else
    :: me < LAST
#endif
    fi
}

proctype b(byte me)
{
    bool leaving, after_death;

    atomic { serves == me -> after_death = me == 0 || killed[me - 1] }
    do
#ifdef A_CONNECTS
    :: atomic { stage == NONE ->
        stage = CONFIRMED;
        from = me }
    :: atomic { !closed && stage == OPENED && to_b?[FINISH] ->
        to_b?FINISH;
        stage = BOTH;
        b_counts = true;
        if :: leaving -> tell() :: else fi }
#else
    :: atomic { stage == NONE && (!leaving || after_death) ->
        stage = OPENED;
        from = me;
        b_counts = true;
        to_a!FINISH;
        if :: leaving -> tell() :: else fi }
#endif
    :: atomic { !leaving ->
        leaving = true;
        if :: b_counts -> tell() :: else fi }
    :: atomic { leaving && !IS_ADOPTING && !IS_SETTLING -> break }
    :: atomic { !leaving -> killed[me] = true; break }
    od;
    atomic {
        if :: stage != NONE && !closed -> closed = true :: else fi;
        b_counts = false;
        serves++
    }
}

init {
    byte r;

    atomic {
        if :: any_left = true :: any_left = false fi;
        run a();
        for (r : 0 .. LAST) {
            run b(r)
        }
    }
}
