/* SPDX-License-Identifier: MIT */
/*
 * signal.pml - put_signal, its waits, and the reuse of what it has brought, as a model for Spin.
 *
 * Functions: on the host perform and raise_signal of symm/call/one_sided.c, symm__wait_signal and
 * signal_look of symm/call/slow_wait.c (BLOCKS=1); on CUDA symm_p2p_put and symm_p2p_signal_wait
 * of kernels/cuda/p2p.cu, whose BLOCKS blocks count in state->done and whose last one raises.
 *
 * A sender puts PUTS times into one buffer with a signal, a receiver waits for each and reads. The
 * caller's order in the other direction (a signal back) lies between a read and the put after next:
 * two buffers are in turn. A copy is two steps, so that a read beside it is detected. Counts are
 * modulo 4 and begin at START, so that they wrap. With FAILURE the sender fails or dies at any
 * time.
 * Claims, for every interleaving:
 *   - the k-th wait returns with the whole data of the k-th put, of all blocks;
 *   - every put raises one signal, and no wait is for ever (Spin reports one that is);
 *   - a wait fails only if its signal was not raised before the failure;
 *   - the next kernel of the stream finds the counters of the one before (dependent launch).
 * Not modelled: weak memory (release and acquire of the word: docs/memory-model.md).
 * Mutants, each of which must violate a claim: SIGNAL_FIRST, EQUAL, PLAIN_ORDER, NO_BACK,
 * FIRST_BLOCK, NO_RESET, NO_DEPEND, IGNORE_RAISED, IGNORE_FAILURE, UNDONE_LATE.
 */
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef PUTS
#define PUTS 3
#endif
#ifndef START
#define START 2
#endif

#define NEXT(count) (((count) + 1) % 4)
#ifdef EQUAL
#define REACHED(word, count) ((word) == (count))
#elif defined(PLAIN_ORDER)
#define REACHED(word, count) ((word) >= (count))
#else
#define REACHED(word, count) ((((word) + 4 - (count)) % 4) < 2)
#endif

byte data[2 * BLOCKS]; /* what put it is of; 255: half-written */
byte word = START, back;
byte done, sent = START; /* of the sender's device */
byte begun, ended;       /* kernels of the sender's stream; blocks of the one that runs */
byte blocks_ended;
bool failed, told;       /* the sender has; its record says so */
byte raised;             /* ghost: signals ever */

inline raise(count)
{
    atomic {
        word = count;
        raised++
    }
}

/* One block of one put. */
inline copy_block(b)
{
    data[((put - 1) % 2) * BLOCKS + b] = 255;
    data[((put - 1) % 2) * BLOCKS + b] = put
}

proctype block(byte me)
{
    byte put, count, before;

    for (put : 1 .. PUTS) {
#ifdef NO_DEPEND
        failed || begun >= put; /* beside the kernel before, which has not written its counters */
#else
        failed || (begun >= put && ended >= put - 1); /* symm_round_depend */
#endif
        if
        :: failed -> goto gone
        :: else
        fi;
        count = sent;
#ifdef SIGNAL_FIRST
        atomic { before = done; done++ };
        if
        :: before == BLOCKS - 1 -> sent = NEXT(count); done = 0; raise(NEXT(count))
        :: else
        fi;
        copy_block(me);
#else
        copy_block(me);
        atomic { before = done; done++ };
        if
#ifdef FIRST_BLOCK
        :: before == 0 ->
#else
        :: before == BLOCKS - 1 ->
#endif
            raise(NEXT(count));
            sent = NEXT(count);
#ifndef NO_RESET
            done = 0
#endif
        :: else
        fi;
#endif
        atomic {
            blocks_ended++;
            if
            :: blocks_ended == BLOCKS -> blocks_ended = 0; ended++
            :: else
            fi
        }
    }
gone:
    skip
}

/* The host program of the sender: puts, each when the receiver has read what the buffer held. */
proctype sender()
{
    byte put;

    for (put : 1 .. PUTS) {
#ifndef NO_BACK
        put <= 2 || back >= put - 2 || failed;
#endif
#ifdef UNDONE_LATE
        /* The count of a call that failed is not undone: the receiver waits for one too many. */
        if
        :: put == 1 -> sent = NEXT(sent)
        :: else
        fi;
#endif
        begun = put
    }
gone:
    skip
}

/* The sender fails or dies at any time; its record, or the kernel's mark, says so. */
proctype failure()
{
    atomic { failed = true; told = true }
}

proctype receiver()
{
    byte wait, count = START, b, seen;

    for (wait : 1 .. PUTS) {
        count = NEXT(count);
        /* symm__wait_signal: the word, then signal_look */
        if
        :: REACHED(word, count)
#ifndef IGNORE_FAILURE
        :: told ->
            /* The word is read last: a signal that was raised before the failure counts. */
#ifndef IGNORE_RAISED
            atomic {
                if
                :: REACHED(word, count)
                :: else -> assert(raised < wait); goto gone
                fi
            }
#else
            atomic { assert(raised < wait); goto gone }
#endif
#endif
        fi;
        assert(raised >= wait);
        for (b : 0 .. BLOCKS - 1) {
            seen = data[((wait - 1) % 2) * BLOCKS + b];
            assert(seen == wait)
        }
        back = wait
    }
gone:
    skip
}

init {
    byte b;

    atomic {
        run sender();
        run receiver();
#ifdef FAILURE
        run failure();
#endif
        for (b : 0 .. BLOCKS - 1) {
            run block(b)
        }
    }
}
