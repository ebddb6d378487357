/* SPDX-License-Identifier: MIT */
/*
 * relay.pml - the rounds of a relayed broadcast (kernels/cuda/move_push.cu) as a model for
 * Spin: one block of each rank, CALLS calls in a row.
 *
 * Functions: symm_broadcast_push_any with struct relay of kernels/cuda/move_push.cu.
 *
 * Each call: the owners signal to the root that they have begun. In each of PARTS rounds the
 * root sends a part, waits for the owners' words of the previous round and arrives; an owner
 * waits for the root, acknowledges unless it is the last round, and relays the part. Then
 * an exit barrier of all ranks, unless there is only one owner. The root is any rank,
 * another in each call; BARRIERS: a barrier separates calls. Words have two slots and are
 * compared for equality, so a wait for a word that was overwritten too early never ends.
 * Claims, for every interleaving:
 *   - every rank ends (Spin reports a rank that waits for ever);
 *   - an owner relays the data that the root has sent for that part of that call;
 *   - a rank that leaves a call has every part of it, and no rank is overtaken: while a rank
 *     is in a call, no other rank has sent into its output for the next call.
 * Not modelled: weak memory, failures (rounds.pml has them). Mutants, each of which must
 * violate a claim: NO_ENTRY (the root does not wait for the owners to begin), NO_LAG (nor
 * for their words of the previous round), NO_EXIT (no rank waits at the end).
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef PARTS
#define PARTS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif

#define LAST           (RANKS - 1)
#define WORD(at, from) word[((at) * 2 + round % 2) * RANKS + from]

byte word[RANKS * 2 * RANKS]; /* the round it was stored for */
byte call[RANKS];             /* that the rank is in */
byte root[CALLS + 1];         /* of a call */
byte got[RANKS * RANKS];      /* at a rank, from another: parts of the call it is in */

#define GOT(at, from) got[(at) * RANKS + from]

/* A part of call `mine` into the output of `to`. */
inline send(to)
{
    atomic {
        assert(call[to] == mine);
        GOT(to, me)++
    }
}

inline tell_all()
{
    for (peer : 0 .. LAST) {
        WORD(peer, me) = round
    }
}

inline wait_all()
{
    for (peer : 0 .. LAST) {
        WORD(me, peer) == round
    }
}

inline wait_owners()
{
    for (peer : 0 .. LAST) {
        if
        :: peer != me -> WORD(me, peer) == round
        :: else
        fi
    }
}

inline send_parts()
{
#ifndef NO_ENTRY
    wait_owners();
#endif
    for (part : 1 .. PARTS) {
        for (peer : 0 .. LAST) {
            if
            :: peer != me -> send(peer)
            :: else
            fi
        }
#ifndef NO_LAG
        if
        :: part > 1 -> wait_owners()
        :: else
        fi;
#endif
        round++;
        for (peer : 0 .. LAST) {
            if
            :: peer != me -> WORD(peer, me) = round
            :: else
            fi
        }
    }
}

inline pass_on()
{
    WORD(root[mine], me) = round;
    for (part : 1 .. PARTS) {
        round++;
        WORD(me, root[mine]) == round;
        if
        :: part < PARTS -> WORD(root[mine], me) = round
        :: else
        fi;
        assert(GOT(me, root[mine]) >= part);
        for (peer : 0 .. LAST) {
            if
            :: peer != me && peer != root[mine] -> send(peer)
            :: else
            fi
        }
    }
}

proctype rank(byte me)
{
    byte round, mine, part, peer;

    for (mine : 1 .. CALLS) {
#ifdef BARRIERS
        round++;
        tell_all();
        wait_all();
#endif
        round++;
        atomic {
            call[me] = mine;
            for (peer : 0 .. LAST) {
                GOT(me, peer) = 0
            }
        }
        if
        :: root[mine] == me -> send_parts()
        :: else -> pass_on()
        fi;
#if RANKS > 2
        round++;
        tell_all();
#ifndef NO_EXIT
        wait_all();
#endif
#endif
        for (peer : 0 .. LAST) {
            assert(peer == me || root[mine] == me || GOT(me, peer) == PARTS)
        }
    }
}

init {
    byte c, r;

    atomic {
        for (c : 1 .. CALLS) {
            select(r : 0 .. LAST);
            root[c] = r
        }
        for (r : 0 .. LAST) {
            run rank(r)
        }
    }
}
