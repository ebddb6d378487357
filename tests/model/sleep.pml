/* SPDX-License-Identifier: MIT */
/*
 * sleep.pml - sleeps and wakes of symm/call/slow_wait.c and kernels/host/round.h as a model for
 * Spin.
 *
 * Functions: round_arrive and raise_signal (the waker: store the word, load the count of sleepers,
 * symm__wait_wake), sleep_on and symm__back_off (a sleeper), symm__slow_wait (its loop: the word,
 * the deadline).
 *
 * SLEEPERS ranks wait for one word, a waker stores it once, or dies before (with DEATHS). The load
 * of the count is not ordered with the store of the word, as on every processor without a fence:
 * the waker may load the count while its store has not been performed. FENCE: it cannot. A sleep
 * ends by a wake, or, unless NO_SLICE, at its slice's end. The kernel compares the word and begins
 * to sleep in one step. A wake reaches all who sleep then.
 * Claims, for every interleaving:
 *   - a sleeper returns the word, or at its deadline if the word never comes (Spin reports one that
 *     waits for ever; SLICES slices are a deadline);
 *   - a wake that is missed costs one slice at most: once the word is performed and the waker has
 *     passed its wake, a rank begins no second slice;
 *   - with FENCE no wake is missed: no slice is needed (NO_SLICE has no deadlock);
 *   - no rank polls for ever, if every rank that can go on does (a search for non-progress cycles
 *     with weak fairness).
 * Not modelled: how long a slice is; several words that share a count of sleepers, which only makes
 * needless wakes. The store's own visibility is the part of docs/memory-model.md.
 * CANCEL: the word changes in its half that futexes do not compare, and nobody is woken
 * (cancel_arrival).
 * Mutants, each of which must violate a claim: NO_SLICE without FENCE (the lost wake-up), and with
 * CANCEL; with FENCE and NO_SLICE: NO_COMPARE, COUNT_LATE, WAKE_FIRST, WAKE_ONE, COUNT_SHARED;
 * NO_DEADLINE (polls for ever); NO_POLL (after a slice it sleeps again without a look at the word).
 */
#ifndef SLEEPERS
#define SLEEPERS 2
#endif
#ifndef SLICES
#define SLICES 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

bool word;                /* as performed: all ranks but the waker see this */
bool stored;              /* the waker's store is in its buffer */
byte sleepers;            /* the hint */
bool asleep[SLEEPERS];    /* in the kernel's queue of this word */
bool woken;               /* the waker has passed its wake */
bool dead;

#if defined(NO_COMPARE) || defined(CANCEL) || defined(NO_POLL)
#define UNCHANGED true
#else
#define UNCHANGED (word == seen)
#endif

inline wake_all()
{
    for (i : 0 .. SLEEPERS - 1) {
#ifdef WAKE_ONE
        if
        :: asleep[i] -> asleep[i] = false; break
        :: else
        fi
#else
        asleep[i] = false
#endif
    }
}

/* The buffer of the waker's processor: the store is performed at some time. */
proctype buffer()
{
    if
    :: atomic { stored -> word = true; stored = false }
    :: atomic { dead && !stored -> skip }
    fi
}

proctype waker()
{
    byte i, count;

    if
    :: DEATHS > 0 -> atomic { dead = true; goto gone }
    :: true
    fi;
#ifdef CANCEL
    stored = true;
#elif defined(WAKE_FIRST)
    count = sleepers;
    atomic { if :: count > 0 -> wake_all() :: else fi };
    stored = true;
#else
    stored = true; /* round_arrive: symm_device_word_store */
#ifdef FENCE
    word;
#endif
    count = sleepers;
    /* The system call is a fence, and the kernel reads the word for its sleepers. */
    if
    :: count > 0 -> word; atomic { wake_all() }
    :: else
    fi;
#endif
    word;
    woken = true;
gone:
    skip
}

proctype sleeper(byte me)
{
    byte slices, after; /* after: slices that began once the word and the wake were there */
    bool seen;

    do
    :: slices < SLICES ->
#ifndef NO_POLL
        seen = word; /* symm__slow_wait */
#endif
        if
        :: seen -> break
        :: else
        fi;
        /* sleep_on */
#ifndef COUNT_LATE
        atomic { sleepers++ }
#endif
        if
#ifdef NO_POLL
        :: true ->
#else
        :: word == seen ->
#endif
            atomic {
                if
                :: UNCHANGED ->
                    asleep[me] = true;
                    if
                    :: word && woken -> after++; assert(after < 2)
                    :: else
                    fi
                :: else
                fi
            };
#ifdef COUNT_LATE
            atomic { sleepers++ };
#endif
            if
            :: !asleep[me]
#ifndef NO_SLICE
            :: atomic { asleep[me] -> asleep[me] = false }
#endif
            fi
        :: else
        fi;
#ifndef COUNT_SHARED
        atomic { if :: sleepers > 0 -> sleepers-- :: else fi };
#else
        sleepers = 0; /* as if a rank reset the count instead of subtracting its own one */
#endif
#ifndef NO_DEADLINE
        /* symm__back_off: time has passed. Slices before the word are not counted, so that the
         * deadline is later than the word unless the waker has died. */
        if
        :: dead || word -> slices++
        :: else
        fi
#endif
    :: else -> break
    od;
    assert(word || dead)
}

init {
    byte r;

    atomic {
        run buffer();
        run waker();
        for (r : 0 .. SLEEPERS - 1) {
            run sleeper(r)
        }
    }
}
