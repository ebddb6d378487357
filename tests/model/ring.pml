/* SPDX-License-Identifier: MIT */
/*
 * ring.pml - two-sided messages through rings of bytes, as a model for Spin.
 *
 * Functions: symm__ring_run with advance, send_some, receive_some, receive_from, receive_any,
 * take_end, give_end, slow_look and wake of symm/call/ring.c; symm__back_off, symm__back_off_end
 * and sleep_on of symm/call/slow_wait.c, as rings use them.
 *
 * SENDERS threads of each of SOURCES ranks send SENDS messages each to one rank, of which RECEIVERS
 * threads receive. Each source's ring has CAP units. A message is a header, one unit, and UNITS
 * units, of which one is moved in a step of the call. A store of a unit is two steps, so that a
 * read beside it is detected; each load and store of a count, of a ring's end and of the word
 * `rung` is a step. A thread that has moved nothing counts as a sleeper, polls again and sleeps.
 * A sleep ends by a wake; it ends by itself, at its slice's end, only where no wake is promised:
 * another thread has the end that the call wants, a rank has ended, or the team has failed.
 * A source finalizes when its threads have returned, and with DEATHS one rank dies at any time.
 * ANY: of two ranks; one receive is from any rank, the other names rank 1. BOTH_ANY: both are from
 * any. TIMEOUTS: a call that has moved nothing since its clock began may be late.
 * Claims, for every interleaving:
 *   - no unit is read before it is written, or overwritten before it is read;
 *   - messages of several threads do not mix: after a header come its units, in order;
 *   - the messages of a thread are received in its order, and the receives of a batch in theirs;
 *   - a receive from any rank takes no message of a rank that its batch names;
 *   - a call fails only if a rank died and left something out, or with TIMEOUTS; what a rank has
 *     sent before it died or finalized is received, whichever thread asks for it;
 *   - a call is late only if it has moved nothing since its clock began;
 *   - every thread returns: no wake is lost (Spin reports a thread that sleeps for ever).
 * Not modelled: weak memory (docs/memory-model.md, sleep.pml: there a wake is missed, for a slice),
 * counts and dtypes that differ, damaged rings, records of other failures.
 * Mutants, each of which must violate a claim: EARLY_FILL (filled is stored before the bytes),
 * EARLY_FREE (emptied before they are read), NO_ROOM (room is not looked for), NO_END (an end is not
 * taken), GIVE_EARLY (it is given back after the header), NO_HELD (a later message of a batch goes
 * first), ANY_NAMED, NO_WAKE (a receiver wakes nobody), COUNT_LATE (who sleeps counts after its last
 * poll), NO_LAST_LOOK (no poll after a rank has ended), IGNORE_DEATH, IGNORE_BUSY (another thread
 * that has the end is not thought of), NO_RESTART (what moves in the last look leaves the clock).
 */
#if defined(ANY) || defined(BOTH_ANY)
#define SOURCES 2
#define SENDS   1
#endif
#ifndef SOURCES
#define SOURCES 1
#endif
#ifndef SENDERS
#define SENDERS 1
#endif
#ifndef SENDS
#define SENDS 2
#endif
#ifndef RECEIVERS
#define RECEIVERS 1
#endif
#ifndef UNITS
#define UNITS 2
#endif
#ifndef CAP
#define CAP 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

#define BATCH    (SOURCES * SENDERS * SENDS / RECEIVERS)
#define OWNER    SOURCES /* the rank that receives */
#define THREADS  (SOURCES * SENDERS + RECEIVERS)
#define FROM_ANY 9
#define HALF     255
#if SOURCES > 1
#define LEFT_OUT(s) dead[s] /* a receive from any rank ends by any death */
#else
#define LEFT_OUT(s) (dead[s] && sent[s] < SENDERS * SENDS)
#endif
#define UNIT(message, i) (1 + (message) * (UNITS + 1) + (i)) /* i = 0: the header */

mtype = { waits, moves, done };

byte unit[SOURCES * CAP];
byte filled[SOURCES], emptied[SOURCES];
bool send_end[SOURCES], receive_end[SOURCES];
byte rung[SOURCES + 1], sleepers[SOURCES + 1];
bool asleep[THREADS];
bool dead[SOURCES + 1], gone[SOURCES + 1]; /* gone: dead, or finalized */
bool failed;                               /* the team */
byte returned[SOURCES + 1];                /* threads */
byte sent[SOURCES], got[SOURCES * SENDERS]; /* ghost: whole messages; the next one of a thread */

#ifdef TIMEOUTS
#define EXPIRES late = true
#else
#define EXPIRES false
#endif
#ifdef TIMEOUTS
#define SLICE_NEEDED true
#elif defined(IGNORE_DEATH)
#define SLICE_NEEDED failed
#else
#define SLICE_NEEDED (failed || gone[OWNER] || gone[0] || gone[SOURCES - 1])
#endif

#if DEATHS > 0
#define DIES(r) unless { dead[r] }
#else
#define DIES(r)
#endif

/* The threads of rank r are [first, end). Sleepers see the word and the wake in one step: who finds
 * the old word sleeps before the wake. */
inline wake(r, first, end)
{
    if
    :: sleepers[r] == 0
    :: d_step {
            sleepers[r] > 0 ->
            rung[r] = (rung[r] + 1) % 8;
            w = first;
            do
            :: w == end -> break
            :: w < end -> asleep[w] = false; w++
            od;
            w = 0
        }
    fi
}

inline uncount(r)
{
    if
    :: counted -> sleepers[r]--; counted = false
    :: else
    fi
}

/* A poll has moved something. */
inline has_moved(r)
{
    atomic { uncount(r); clock = false; stirred = false; seen = 0; goto again }
}

/* symm__back_off, after a poll that has moved nothing. held_up: another thread has the end. */
inline back_off(r, held_up)
{
    atomic { stirred = stirred && clock; clock = true };
#ifdef COUNT_LATE
    sleepers[r]++;
#else
    if
    :: !counted -> atomic { sleepers[r]++; counted = true; seen = 0; goto again }
    :: else
    fi;
#endif
    atomic {
        if
        :: rung[r] == seen -> asleep[me] = true /* the kernel compares, and begins to sleep */
        :: else
        fi;
        seen = 0
    };
    atomic {
        if
        :: !asleep[me]
        :: held_up || SLICE_NEEDED -> asleep[me] = false
        fi;
#ifdef COUNT_LATE
        sleepers[r]--
#endif
    }
}

/* Is the clock at its end? */
inline look_at_clock()
{
    if
    :: EXPIRES
    :: true
    fi
}

#ifdef IGNORE_BUSY
#define SEND_ENDED gone[OWNER]
#define BUSY(s)    false
#else
#define SEND_ENDED (gone[OWNER] && !busy)
#define BUSY(s)    busy[s]
#endif
#define ENDED(s) (gone[s] && !BUSY(s))
#define DIED(s)  (dead[s] && !BUSY(s))

/* send_some. over: another message may begin now. */
inline send_some()
{
    if
    :: state == waits ->
#ifndef NO_END
        atomic { busy = send_end[source]; send_end[source] = true }
#endif
    :: else
    fi;
    if
    :: atomic { busy -> over = false }
    :: else ->
        atomic {
            f = filled[source];
            used = f - emptied[source];
#ifdef NO_ROOM
            used = 0;
#endif
        };
        if
        :: used == CAP ->
            atomic {
                if
                :: state == waits -> send_end[source] = false
                :: else
                fi;
                over = false
            }
        :: else ->
#ifdef EARLY_FILL
            filled[source] = f + 1;
#endif
            /* copy_in: of the header, too */
            d_step {
                body = f;
                if
                :: state == waits -> unit[source * CAP + f % CAP] = HALF; body++; used++; i = 1
                :: else
                fi;
                if
                :: used < CAP && i <= UNITS -> unit[source * CAP + body % CAP] = HALF
                :: else
                fi
            };
            d_step {
                if
                :: state == waits -> unit[source * CAP + f % CAP] = UNIT(message, 0)
                :: else
                fi;
                state = moves;
                f = body;
                if
                :: used < CAP && i <= UNITS ->
                    unit[source * CAP + f % CAP] = UNIT(message, i);
                    f++;
                    i++
                :: else
                fi
            };
            d_step {
                filled[source] = f;
                if
                :: i > UNITS -> sent[source]++
                :: else
                fi;
                f = 0;
                used = 0;
                body = 0
            };
#ifdef GIVE_EARLY
            send_end[source] = false;
#endif
            wake(OWNER, SOURCES * SENDERS, THREADS);
            moved = true;
            if
            :: i <= UNITS -> over = false
            :: else -> /* finish */
                atomic {
                    send_end[source] = false;
                    state = waits;
                    message++;
                    left--;
                    i = 0;
                    over = left > 0
                }
            fi
        fi
    fi
}

proctype sender(byte me, source)
{
    byte message, left = SENDS, i, f, body, used, seen, w;
    mtype state = waits;
    bool moved, over, busy, counted, looking, ended, late, stirred, clock;

    {
    message = me * SENDS;
again:
    atomic {
        if
        :: !looking -> seen = rung[source]
        :: else
        fi;
        moved = false;
        busy = false;
        over = true
    };
    do /* advance: until a message waits or moves */
    :: over -> send_some()
    :: else -> break
    od;
    if
    :: left == 0 -> goto returns
    :: left > 0 && looking -> /* slow_look, after its poll */
        atomic {
            looking = false;
            if
            :: moved ->
#ifdef NO_RESTART
                stirred = true;
                late = false;
                ended = false;
                goto again
#else
                skip
#endif
            :: !moved && ((ended && SEND_ENDED) || late) ->
                assert(dead[OWNER] || late);
                assert(!late || !stirred || (ended && SEND_ENDED));
                failed = true;
                goto returns
            :: else -> ended = false; goto again
            fi;
            ended = false;
            late = false
        };
        has_moved(source)
    :: left > 0 && !looking && moved -> has_moved(source)
    :: else
    fi;
    back_off(source, busy);
    atomic { /* slow_look */
        ended = SEND_ENDED;
        look_at_clock();
        if
        :: failed -> goto returns
        :: else -> looking = ended || late; goto again
        fi
    };
returns:
    skip;
    d_step {
        uncount(source);
        returned[source]++;
        if
        :: returned[source] == SENDERS -> gone[source] = true /* it finalizes */
        :: else
        fi
    }
    } DIES(source)
}

/* receive_from: begins with message m of the batch, if the peer's ring has one. */
inline receive_from(peer)
{
#ifndef NO_END
    atomic { taken = receive_end[peer]; receive_end[peer] = true };
#endif
    if
    :: atomic { taken -> busy[peer] = true; taken = false }
    :: else ->
        atomic {
            e = emptied[peer];
            taken = filled[peer] != e
        };
        if
        :: !taken -> receive_end[peer] = false
        :: else ->
            d_step {
                value = unit[peer * CAP + e % CAP];
                assert(value != HALF && value > 0 && (value - 1) % (UNITS + 1) == 0);
                message[m] = (value - 1) / (UNITS + 1);
                value = message[m] / SENDS;
                assert(message[m] % SENDS == got[value]);
                got[value]++;
#ifdef ANY
                assert(want[m] != FROM_ANY || peer != 1);
#endif
                /* an earlier receive of the batch has begun, if it could have this message */
                assert(m == 0 || want[0] != want[m] || state[0] != waits);
                value = 0;
                taken = false
            };
            atomic {
                emptied[peer] = e + 1;
                e = 0;
                from[m] = peer;
                state[m] = moves
            };
#ifdef GIVE_EARLY
            receive_end[peer] = false;
#endif
        fi
    fi
}

/* Receives from any rank: in turn from those that the batch does not name. */
inline receive_any()
{
    turn = 0;
    do
    :: turn == SOURCES || state[m] != waits -> break
    :: else ->
        if
#if defined(ANY) && !defined(ANY_NAMED)
        :: turn == 1
#endif
#if !defined(ANY) || defined(ANY_NAMED)
        :: true -> receive_from(turn)
#else
        :: turn != 1 -> receive_from(turn)
#endif
        fi;
        turn++
    od;
    turn = 0
}

inline receive_some()
{
    if
    :: state[m] == waits && want[m] != FROM_ANY -> receive_from(want[m])
    :: state[m] == waits && want[m] == FROM_ANY -> receive_any()
    :: state[m] == moves -> some = false
    fi;
    if
    :: state[m] == waits
    :: else ->
        atomic {
            e = emptied[from[m]];
            taken = filled[from[m]] != e && i[m] < UNITS
        };
        if
        :: taken ->
#ifdef EARLY_FREE
            emptied[from[m]] = e + 1;
#endif
            d_step { /* copy_out */
                assert(unit[from[m] * CAP + e % CAP] == UNIT(message[m], i[m] + 1));
                i[m]++;
                taken = false;
                some = true
            };
            emptied[from[m]] = e + 1
        :: else
        fi;
        e = 0;
        if
        :: some ->
#ifdef NO_WAKE
            skip
#else
            wake(from[m], from[m] * SENDERS, (from[m] + 1) * SENDERS)
#endif
        :: else
        fi;
        if
        :: i[m] == UNITS -> /* finish */
            atomic {
                receive_end[from[m]] = false;
                state[m] = done;
                left--
            }
        :: else
        fi
    fi
}

/* found: a rank that a receive of the batch waits for has ended, and in the last poll no other thread
 * had the end. From any rank: all have finalized, or one has died. */
inline find_ended(found)
{
    d_step {
        found = false;
        m = 0;
        do
        :: m == BATCH -> break
        :: m < BATCH && state[m] == done -> m++
        :: m < BATCH && state[m] != done ->
            if
            :: from[m] == FROM_ANY ->
                found = found || DIED(0) || DIED(SOURCES - 1) ||
                        (ENDED(0) && ENDED(SOURCES - 1))
            :: else -> found = found || ENDED(from[m])
            fi;
            m++
        od;
        m = 0
    }
}

proctype receiver(byte me)
{
    byte want[2], from[2], message[2], i[2];
    mtype state[2];
    byte left = BATCH, m, e, value, seen, w, turn;
    bool busy[SOURCES], held, moved, some, taken, counted, looking, ended, late, stirred, clock;

    {
    d_step {
        state[0] = waits;
        state[1] = waits;
#ifdef BOTH_ANY
        want[0] = FROM_ANY;
        want[1] = FROM_ANY;
#elif defined(ANY)
        want[0] = FROM_ANY;
        want[1] = 1;
#endif
        from[0] = want[0];
        from[1] = want[1]
    };
again:
    atomic {
        if
        :: !looking -> seen = rung[OWNER]
        :: else
        fi;
        moved = false;
        held = false;
        busy[0] = false;
        busy[SOURCES - 1] = false;
        m = 0
    };
    do /* advance */
    :: m == BATCH -> break
    :: else ->
        atomic {
            some = state[m] == waits; /* a header moves something */
            held = held && want[m] == want[m - (m > 0)]
        };
        if
#ifdef NO_HELD
        :: state[m] != done -> receive_some()
        :: state[m] == done
#else
        :: state[m] == moves || (state[m] == waits && !held) -> receive_some()
        :: state[m] == done || (state[m] == waits && held)
#endif
        fi;
        atomic {
            moved = moved || (some && state[m] != waits);
            held = held || state[m] == waits || (state[m] == moves && want[m] != FROM_ANY);
            some = false;
            m++
        }
    od;
    m = 0;
    if
    :: left == 0 -> goto returns
    :: left > 0 && looking -> /* slow_look, after its poll */
        atomic {
            looking = false;
            if
            :: moved ->
#ifdef NO_RESTART
                stirred = true;
                late = false;
                ended = false;
                goto again
#else
                skip
#endif
            :: else ->
                if
                :: ended -> find_ended(ended)
                :: else
                fi;
                if
                :: ended || late ->
                    assert(LEFT_OUT(0) || LEFT_OUT(SOURCES - 1) || late);
                    assert(ended || !stirred);
                    failed = true;
                    goto returns
                :: else -> goto again
                fi
            fi;
            ended = false;
            late = false
        };
        has_moved(OWNER)
    :: left > 0 && !looking && moved -> has_moved(OWNER)
    :: else
    fi;
    back_off(OWNER, (busy[0] || busy[SOURCES - 1]));
    atomic { /* slow_look */
#ifndef IGNORE_DEATH
        find_ended(ended);
#endif
        look_at_clock();
        if
        :: failed -> goto returns
#ifdef NO_LAST_LOOK
        :: !failed && ended ->
            assert(LEFT_OUT(0) || LEFT_OUT(SOURCES - 1));
            failed = true;
            goto returns
#endif
        :: else -> looking = ended || late; goto again
        fi
    };
returns:
    skip;
    d_step {
        uncount(OWNER);
        returned[OWNER]++;
        if
        :: returned[OWNER] == RECEIVERS -> gone[OWNER] = true
        :: else
        fi
    }
    } DIES(OWNER)
}

proctype killer()
{
    byte r;

    select(r : 0 .. SOURCES);
    atomic { dead[r] = true; gone[r] = true }
}

init {
    byte s, t;

    atomic {
#if DEATHS > 0
        run killer();
#endif
        for (s : 0 .. SOURCES - 1) {
            for (t : 0 .. SENDERS - 1) {
                run sender(s * SENDERS + t, s)
            }
        }
        for (t : 0 .. RECEIVERS - 1) {
            run receiver(SOURCES * SENDERS + t)
        }
    }
}
