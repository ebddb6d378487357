/* SPDX-License-Identifier: MIT */
/*
 * channels.pml - a channel of a team on CUDA that goes from one stream to another (the table of
 * channels) as a model for Spin.
 *
 * Functions: mark, enter and symm__cuda_channel_leave of symm/cuda/channel.c; take_idle with is_over
 * and is_quiet, take_free and symm__channel_acquire of symm/cuda/channel_table.c.
 *
 * RANKS ranks make CALLS calls on each of two streams, which have one channel between them. The calls
 * of a stream are made in one order on all ranks, those of different streams in any. A stream has a
 * key, the same on all ranks, and a new one when it has lost the channel. A call with the channel
 * marks the rank's progress word, then reads the channel's key. A stream without it takes the
 * channel under the table's lock, if all progress words are equal, no call is inside and all launches
 * have ended on all devices; it stores its key, then reads the words again, and puts the old key back
 * if one has changed. A stream that does not get the channel uses another one from then on, and so
 * do all ranks. A launch ends on a rank's device, at any time, when all ranks have made it.
 * Claims, for every interleaving:
 *   - the n-th launch of the channel is one stream's on all ranks;
 *   - the channel is taken only while no rank is in a call on it and no launch runs;
 *   - all ranks have made equally many launches in the end.
 * Not modelled: weak memory (the pair "mark, key" is a program of test_host_litmus.c), captured calls,
 * channels that grow, more channels, the numbers of tries, deaths. Mutants, each of which must violate a claim: KEY_FIRST (a
 * call reads the key before it marks), NO_RECHECK (the words are not read again), NO_RESTORE (the old
 * key is not put back), NO_DONE (launches need not have ended), ONE_LOOK (a call that finds
 * another key does not look again under the lock), FORGET (a refusal is not kept).
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif

#define STREAMS 2
#define KEYS    12
#define LAUNCHES (STREAMS * CALLS)
#define KEY     (1 + s + STREAMS * gen[s])

bit lock;
byte key;                       /* of the channel */
byte count[RANKS];              /* the progress words: launches ... */
bit inside[RANKS];              /* ... and whether a call is inside */
byte launched[RANKS], ended[RANKS]; /* what the devices know */
byte launch_key[LAUNCHES + 1];  /* of the n-th launch */
bit refused[KEYS];
byte over;                      /* ranks that have made all calls */

inline take_lock()
{
    atomic { lock == 0 -> lock = 1 }
}

/* Each word is read by a step of its own. */
inline look(first)
{
    quiet = 1;
    r = 0;
    do
    :: r == RANKS -> break
    :: r < RANKS ->
        atomic {
            if
            :: r == 0 -> first = count[0]
            :: else
            fi;
            quiet = quiet && count[r] == first && !inside[r];
            r++
        }
    od
}

/* The same, and the launches have ended. */
inline look_over(first)
{
    look(first);
#ifndef NO_DONE
    r = 0;
    do
    :: r == RANKS -> break
    :: r < RANKS -> atomic { quiet = quiet && ended[r] == first; r++ }
    od
#endif
}

inline taken()
{
    d_step {
        r = 0;
        do
        :: r == RANKS -> break
        :: r < RANKS ->
            assert(launched[r] == before && ended[r] == before);
            r++
        od;
        r = 0
    }
}

/* Under the lock: has[s], if the stream has the channel now. */
inline acquire()
{
    if
    :: key == KEY -> has[s] = 1
    :: key != KEY && refused[KEY] -> away[s] = 1
    :: key == 0 -> key = KEY; has[s] = 1
    :: else ->
        old = key;
        look_over(before);
        if
        :: quiet ->
            key = KEY;
#ifndef NO_RECHECK
            look(after);
            quiet = quiet && after == before;
#endif
            if
            :: quiet -> taken(); has[s] = 1
            :: else ->
#ifndef NO_RESTORE
                key = old
#else
                skip
#endif
            fi
        :: else
        fi;
        if
        :: !has[s] ->
#ifndef FORGET
            refused[KEY] = 1;
#endif
            away[s] = 1
        :: else
        fi
    fi;
    if
    :: has[s] -> inside[me] = 1 /* channel_bind marks */
    :: else
    fi
}

inline lose()
{
    atomic { inside[me] = 0; has[s] = 0; gen[s]++ }
}

proctype rank(byte me)
{
    byte left[STREAMS], gen[STREAMS], s, r, before, after, old, seen;
    bit has[STREAMS], away[STREAMS], quiet;

    left[0] = CALLS;
    left[1] = CALLS;
    do
    :: left[0] + left[1] == 0 -> break
    :: else ->
        if
        :: left[0] > 0 -> s = 0
        :: left[1] > 0 -> s = 1
        fi;
        if
        :: has[s] ->
#ifdef KEY_FIRST
            seen = key;
            inside[me] = 1;
#else
            inside[me] = 1;
            seen = key;
#endif
            if
            :: seen == KEY
            :: else ->
#ifdef ONE_LOOK
                lose()
#else
                inside[me] = 0;
                take_lock();
                inside[me] = 1;
                seen = key;
                if
                :: seen == KEY
                :: else -> lose()
                fi;
                lock = 0
#endif
            fi
        :: else
        fi;
        if
        :: !has[s] && !away[s] ->
            take_lock();
            acquire();
            lock = 0
        :: else
        fi;
        if
        :: has[s] ->
            atomic {
                launched[me]++;
                assert(launch_key[launched[me]] == 0 ||
                       launch_key[launched[me]] == KEY);
                launch_key[launched[me]] = KEY
            }
            atomic { count[me] = launched[me]; inside[me] = 0 } /* one store */
        :: else
        fi;
        left[s]--
    od;
    over++
}

proctype device(byte me)
{
    byte r;
    bit all;

end:
    do
    :: atomic {
            ended[me] < launched[me] ->
            all = 1;
            r = 0;
            do
            :: r == RANKS -> break
            :: r < RANKS -> all = all && launched[r] > ended[me]; r++
            od;
            if
            :: all -> ended[me]++
            :: else
            fi;
            r = 0
        }
    od
}

init
{
    byte r;

    atomic {
        r = 0;
        do
        :: r == RANKS -> break
        :: r < RANKS -> run rank(r); run device(r); r++
        od
    }
    over == RANKS;
    r = 1;
    do
    :: r == RANKS -> break
    :: r < RANKS -> assert(launched[r] == launched[0]); r++
    od
}
