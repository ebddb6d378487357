/* SPDX-License-Identifier: MIT */
/*
 * handshake.pml - a connection between two hosts is proved, adopted, lost and made again, as a
 * model for Spin.
 *
 * Functions: symm__auth_ask, symm__auth_answer, symm__auth_hear and symm__auth_is_new of
 * symm/net/auth.c; begin_try, end_connect, hear_asked, try_again, open_link, hear_guest, answer,
 * adopt of symm/relay/connections.c; symm__relay_sweep of symm/relay/roles.c; the deadlines of
 * guests of symm/net/acceptor.c. symm/bootstrap/tree_above.c connects by the same five messages; what hosts
 * say then, JOIN and PLACE, is in join.pml.
 *
 * One host connects, the other accepts. At most CUTS times a connection breaks: both ends see it,
 * or one alone does, and then the other end is half-open: it is silent, and its deadline, if it has
 * one, passes. What is under way in a broken connection is lost. The host that connects tries
 * again. PLACES connections exist at once; a place is used again when neither end holds it.
 * Claims, for every interleaving:
 *   - the end that accepts counts a connection only if the other end has opened it, and the end
 *     that connects opens one only if the other end has confirmed it (neither adopts it alone);
 *   - when nothing moves any more, both have the same connection open, and the accepting host holds
 *     the other one for connected (an old connection that was replaced is not lost);
 *   - the host that connects does not try for ever (a search for non-progress cycles: none has a
 *     progress label).
 * Not modelled: strangers, what siphash does, bytes that come in pieces, keep-alive of connections
 * that are open (tcp.c): a half-open one that both count is cut by its silent end some time later.
 * Mutants, each of which must violate a claim: NO_FINISH (four messages: the end that accepts
 * counts it when it has sent confirm: it may be half-open), EARLY_OPEN, REPLACE_LOST, NO_DEADLINE
 * (of a try), NO_GUEST_DEADLINE; and two that try for ever: KEEP_OLD (a new connection is refused
 * while an old one is held), SAME_NONCE (a new try says the same nonce).
 */
#ifndef CUTS
#define CUTS 2
#endif
#define PLACES 3
#define NONE   9
#define GUESTS 2 /* that the acceptor holds at most */

mtype = { ASK, ANSWER, PROOF, CONFIRM, FINISH };
/* Stages of an end. */
#define CLOSED  0
#define ASKED   1 /* connects: awaits the answer; accepts: awaits the handshake */
#define PROVING 2 /* connects: awaits confirm; accepts: awaits the proof */
#define ENDING  3 /* accepts: awaits finish */
#define OPEN    4

chan up[PLACES] = [3] of { mtype, byte };
chan down[PLACES] = [3] of { mtype, byte };
byte near[PLACES], far[PLACES];  /* stages of the end that connects, that accepts */
bool near_ok[PLACES], far_ok[PLACES]; /* the end has not seen that it is broken */
bool broken[PLACES];             /* nothing passes; an end that has not seen it is half-open */
bool opened[PLACES], confirmed[PLACES]; /* ghosts, of the connection in this place */
byte now = NONE;                 /* the place of the current try */
byte held = NONE;                /* the connection that the accepting end counts */
byte nonce, last = NONE;         /* of a try; the last that was accepted */
bool known, replaced;             /* the accepting host holds the other one for connected */
byte cuts;

#define FREE(p)  (near[p] == CLOSED && far[p] == CLOSED)
#define HELD(p)  (far[p] != CLOSED && far[p] != OPEN)
#define COUNT    (HELD(0) + HELD(1) + HELD(2))

inline drop(p)
{
    do :: up[p]?_,_ :: empty(up[p]) -> break od;
    do :: down[p]?_,_ :: empty(down[p]) -> break od
}

inline try_at(p)
{
    now = p;
    near[p] = ASKED;
    far[p] = ASKED;
    near_ok[p] = true;
    far_ok[p] = true;
    broken[p] = false;
    opened[p] = false;
    confirmed[p] = false;
#ifndef SAME_NONCE
    nonce = (nonce + 1) % 4;
#endif
    up[p]!ASK,nonce
}

proctype connects()
{
    byte n;
    mtype kind;

end:
    do
    :: atomic { now == NONE && FREE(0) && COUNT < GUESTS -> try_at(0) }
    :: atomic { now == NONE && FREE(1) && COUNT < GUESTS -> try_at(1) }
    :: atomic { now == NONE && FREE(2) && COUNT < GUESTS -> try_at(2) }
    :: atomic { now != NONE && near_ok[now] && len(down[now]) > 0 ->
        down[now]?kind,n;
        if
        :: kind == ANSWER && near[now] == ASKED ->
            near[now] = PROVING;
            if :: far_ok[now] && !broken[now] -> up[now]!PROOF,0 :: else fi;
#ifdef EARLY_OPEN
            assert(confirmed[now]);
            opened[now] = true
#endif
        :: kind == CONFIRM && near[now] == PROVING ->
            if :: far_ok[now] && !broken[now] -> up[now]!FINISH,0 :: else fi;
            assert(confirmed[now]);
            opened[now] = true;
            near[now] = OPEN
        fi;
        n = 0 }
    /* It hung up, or broke. */
    :: atomic { now != NONE && !near_ok[now] ->
        near[now] = CLOSED;
        if :: !broken[now] && far[now] != CLOSED -> far_ok[now] = false :: else fi;
        drop(now);
        now = NONE }
#ifndef NO_DEADLINE
    /* CONNECT_SECONDS; of one that is open, keep-alive */
    :: atomic { now != NONE && near_ok[now] && broken[now] -> near_ok[now] = false }
#else
    :: atomic { now != NONE && near_ok[now] && broken[now] && near[now] == OPEN ->
        near_ok[now] = false }
#endif
    od
}

inline hang_up(p)
{
    far[p] = CLOSED;
    if :: near[p] != CLOSED && !broken[p] -> near_ok[p] = false :: else fi;
    drop(p)
}

inline adopt(p)
{
#ifdef REPLACE_LOST
    replaced = held != NONE;
#endif
    if
    :: held != NONE ->
        /* replaced, not lost: it is doomed */
        hang_up(held)
    :: else
    fi;
    held = p;
    far[p] = OPEN;
    known = true; /* symm__relay_opened */
    assert(opened[p]);
#ifdef REPLACE_LOST
    if :: replaced -> known = false :: else fi /* symm__relay_sweep, of the old one */
#endif
}

proctype accepts(byte p)
{
    byte n;
    mtype kind;

end:
    do
    :: atomic { far[p] != CLOSED && far_ok[p] && len(up[p]) > 0 ->
        up[p]?kind,n;
        if
        :: kind == ASK ->
            if
            :: n == last -> hang_up(p) /* not new: symm__auth_is_new */
#ifdef KEEP_OLD
            :: n != last && held != NONE -> hang_up(p)
            :: n != last && held == NONE ->
#else
            :: n != last ->
#endif
                last = n;
                far[p] = PROVING;
                if :: near_ok[p] && !broken[p] -> down[p]!ANSWER,0 :: else fi
            fi
        :: kind == PROOF ->
            confirmed[p] = true;
            if :: near_ok[p] && !broken[p] -> down[p]!CONFIRM,0 :: else fi;
#ifdef NO_FINISH
            adopt(p)
#else
            far[p] = ENDING
#endif
        :: kind == FINISH ->
#ifdef NO_FINISH
            skip
#else
            adopt(p)
#endif
        fi;
        n = 0 }
    :: atomic { far[p] != CLOSED && !far_ok[p] ->
        if
        :: held == p -> held = NONE; known = false /* symm__relay_lost */
        :: else
        fi;
        hang_up(p) }
    /* GUEST_SECONDS, CONNECT_SECONDS */
#ifndef NO_GUEST_DEADLINE
    :: atomic { HELD(p) && far_ok[p] && broken[p] -> hang_up(p) }
#endif
    /* keep-alive of one that is counted, whose other end is not there any more */
    :: atomic { far[p] == OPEN && far_ok[p] && broken[p] -> far_ok[p] = false }
    od
}

#define WHOLE(p)                                                                           \
    (cuts < CUTS && near[p] != CLOSED && far[p] != CLOSED && near_ok[p] && far_ok[p] &&    \
     !broken[p])

inline break_at(p)
{
    cuts++;
    broken[p] = true;
    drop(p);
    if
    :: near_ok[p] = false; far_ok[p] = false
    :: near_ok[p] = false
    :: far_ok[p] = false
    fi
}

proctype trouble()
{
end:
    do
    :: atomic { WHOLE(0) -> break_at(0) }
    :: atomic { WHOLE(1) -> break_at(1) }
    :: atomic { WHOLE(2) -> break_at(2) }
    od
}

/* When nothing moves any more. */
proctype rest()
{
    timeout;
    assert(now != NONE && near[now] == OPEN && held == now && known)
}

init {
    byte p;

    atomic {
        run connects();
        for (p : 0 .. PLACES - 1) {
            run accepts(p)
        }
        run trouble();
        run rest()
    }
}
