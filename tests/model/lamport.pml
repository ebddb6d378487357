/* SPDX-License-Identifier: MIT */
/*
 * lamport.pml - the slots of packets that are their own flag, under dependent launch, as a model
 * for Spin.
 *
 * Functions: symm_lamport and symm_ll (send, arrived, consumed), symm_packet_wait and the rules
 * (1) to (4) of kernels/cuda/packet.cuh; symm_round_open with symm_round_depend,
 * symm_round_announce, symm_round_meet, symm_round_trigger and the kernel's end of
 * kernels/cuda/round.cuh; the fence between rounds of symm_warp_exchange_reduce of
 * kernels/cuda/warp_exchange.cuh.
 *
 * Two ranks make CALLS calls of ROUNDS rounds each; every round each rank (with ROOT: rank 0)
 * sends a packet into the peer's slot `round % SLOTS`, waits for one in its own, and consumes it.
 * Packets and call words are in flight for any time. A sentinel that was stored is performed at
 * the kernel's end or at a fence. The kernel of call c may be resident, and go on to
 * symm_round_depend, as soon as that of c - 1 has triggered. FENCES: a fence after each round but
 * the last. LL: packets are judged by their round, and nothing is written back.
 * Claims, for every interleaving:
 *   - a packet arrives in a slot whose last packet was consumed, and with sentinels is clean;
 *   - what is read is the packet of this very round;
 *   - every kernel ends (Spin reports one that waits for ever).
 * Not modelled: several threads of a rank, the order of loads that acquire nothing, failures.
 * Mutants, each of which must violate a claim: SLOTS=1 (LL and not), ROUNDS=3 without FENCES,
 * NO_CLEAN, NO_DEPEND (the kernel does not wait for the one before), NO_MEET with ROOT (a call
 * ends before the peer has begun it), MEET_FIRST with ROOT and SLOTS=2 (the call
 * word is sent before symm_round_depend), and with LL ANY_FLAG (what is there is taken for this round's).
 */
#ifndef CALLS
#define CALLS 4
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif

#define MOST (CALLS * ROUNDS + 1)
#define SLOT(r, n) slot[(r) * SLOTS + (n) % SLOTS]

byte slot[2 * SLOTS];      /* the round of the packet there; 0: sentinels */
bool consumed[2 * MOST];   /* at a rank, of a round: read; ghost but for LL */
bool pending[2 * SLOTS];   /* sentinels that were stored and are not performed */
bool air[2 * MOST];        /* to a rank, of a round: in flight */
byte word[2], word_air[2]; /* the peer's call word at a rank, and one on its way */
byte triggered[2], ended[2];

/* A packet is performed at its receiver, at any time after it was sent. */
proctype packet(byte to, n)
{
end:
    atomic {
        air[to * MOST + n] ->
#ifndef LL
        assert(SLOT(to, n) == 0);
#else
        assert(SLOT(to, n) == 0 || consumed[to * MOST + SLOT(to, n)]);
#endif
        SLOT(to, n) = n
    }
}

/* Call words for one address are performed in their order. */
proctype call_word(byte to)
{
end:
    do
    :: atomic { word_air[to] > word[to] -> word[to] = word_air[to] }
    od
}

inline perform()
{
    atomic {
        for (s : 0 .. SLOTS - 1) {
            if
            :: pending[me * SLOTS + s] -> pending[me * SLOTS + s] = false; slot[me * SLOTS + s] = 0
            :: else
            fi
        }
        s = 0
    }
}

#ifdef ROOT
#define SENDS    (me == 0)
#define RECEIVES (me == 1)
#else
#define SENDS    true
#define RECEIVES true
#endif
#ifdef LL
#ifdef ANY_FLAG
#define HERE (SLOT(me, round) != 0)
#else
#define HERE (SLOT(me, round) == round)
#endif
#else
/* A rank's own loads see its own stores at once. */
#define HERE (SLOT(me, round) != 0 && !pending[me * SLOTS + round % SLOTS])
#endif

proctype kernel(byte me; byte call)
{
    byte k, round, s;

    triggered[me] >= call - 1;
#ifdef MEET_FIRST
    word_air[1 - me] = call;
#endif
#ifndef NO_DEPEND
    ended[me] >= call - 1; /* symm_round_depend */
#endif
    for (k : 1 .. ROUNDS) {
        round = (call - 1) * ROUNDS + k;
        if
        :: SENDS -> air[(1 - me) * MOST + round] = true
        :: else
        fi;
        if
        :: k == 1 -> word_air[1 - me] = call
        :: else
        fi;
        if
        :: RECEIVES ->
            HERE;
            atomic {
                assert(SLOT(me, round) == round);
                consumed[me * MOST + round] = true;
#if !defined(LL) && !defined(NO_CLEAN)
                pending[me * SLOTS + round % SLOTS] = true
#endif
            }
        :: else
        fi;
        if
        :: k < ROUNDS ->
#ifdef FENCES
            perform()
#else
            skip
#endif
        :: else
        fi
    }
#ifndef NO_MEET
    word[me] >= call; /* symm_round_meet */
#endif
    triggered[me] = call;
    perform();
    ended[me] = call
}

init {
    byte c;

    atomic {
        run call_word(0);
        run call_word(1);
        for (c : 1 .. CALLS * ROUNDS) {
            run packet(0, c);
            run packet(1, c)
        }
        for (c : 1 .. CALLS) {
            run kernel(0, c);
            run kernel(1, c)
        }
    }
}
