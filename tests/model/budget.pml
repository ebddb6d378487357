/* SPDX-License-Identifier: MIT */
/*
 * budget.pml - the budget of blocks of a channel on CUDA, and the claims of other channels beside
 * it, as a model for Spin.
 *
 * Functions: symm__cuda_budget_acquire with is_granted, is_claimed, decide, read_decided,
 * decide_again, may_change, next_grant, room_on,
 * cut_others and with_decided, symm__cuda_budget_return, symm__cuda_budget_refresh with
 * release_unneeded, claim_set, lock_acquire and lock_release of symm/cuda/budget.c;
 * symm__channel_is_idle, symm__channel_has_reached and symm__channel_lock_break of
 * symm/cuda/channel_table.c; mark and symm__cuda_channel_leave of symm/cuda/channel.c.
 *
 * Two ranks, each with a device of P processors, make CALLS calls of PARTS launches on one channel;
 * each would have P blocks. A call marks the progress word, acquires its grid, launches and leaves. A
 * launch ends on a device, at any time, when both ranks have made it. A watchdog releases claims that
 * are not needed, and so does a call that looks for room. Two more channels, of other teams, claim
 * and release blocks under the lock in one step, OTHERS times in all: the first one on both devices, the second
 * one on rank 1's alone. Whoever finds the lock held may go on without it, GIVE_UPS times. Each load
 * and store outside the lock is a step, and so is each store of a claim. With DEATHS a rank dies at
 * any time, also with the lock; with RETURNS a launch fails after its acquire. With CAPTURES ranks also
 * capture calls, CAPTURES times in all and each as often as it likes; a graph lives until any time,
 * at the latest until its rank captures under another number. LATER: the first call
 * has ended, its claim was released, and another channel has the device.
 * Claims, for every interleaving:
 *   - both ranks make the k-th call with one grid; one whose launch has failed may get another grid
 *     if the channel's grant has changed meanwhile (the call's tag has it: a mismatch);
 *   - the graphs that live and were captured under one number have one grid, and the claim on the rank's
 *     device is at least that grid;
 *   - while a call may run on a device, the channel's claim there is at least its grid, or it has one
 *     block (whoever reads claims for room sees this, under the lock; not of a team with a dead rank);
 *   - on each device all claims but the largest take at most half of P, but for single blocks;
 *   - the lock of a rank that has died is had by the next one that wants it, and all calls are made
 *     (Spin reports a rank that waits for ever).
 * Not modelled: weak memory (the pair "mark, claim" is a program of test_host_litmus.c), calls
 * without a grant, numbers that wrap, ends of teams.
 * Mutants, each of which must violate a claim: CLAIM_FIRST (a call reads the claims before it marks),
 * NO_RECHECK (who clears a claim does not read the words again), NO_RESTORE, NO_DONE (launches need
 * not have ended), RECHECK_WORDS (nor the second time), NO_BOUNDARY (a claim shrinks at once), BOUNDARY_ALWAYS (who goes on without the
 * lock stores the boundary, too), ANY_CHANGE (the word changes while a member has not read it),
 * NO_COMPARE (the word is stored), NO_BEFORE (all calls have the newer grant), WIDE (a
 * channel gets more than what is left), NO_KEEP (with
 * RETURNS: a claim is released before a grant that was returned is used), KEEP_FREE (without the lock the
 * grant is kept although its claim was released), NO_BREAK; with CAPTURES: COUNTED (a
 * captured call is counted), NO_AGAIN (a decided number is taken without a look at the claims),
 * AGAIN_FREE (it is decided again without a look under the lock), CLAIM_EARLY (the claim is there before the
 * new word is), NO_PIN (a claim is released while a graph lives).
 */
#ifndef CALLS
#define CALLS 3
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef OTHERS
#define OTHERS 2
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#ifndef CAPTURES
#define CAPTURES 0
#endif

#ifdef LATER
#define FIRST 2
#else
#define FIRST 1
#endif

#define P    8
#define HALF 4
#define CUT  16 /* bit of a claim */
#define MIN(a, b)     ((a) < (b) -> (a) : (b))
#define MAX(a, b)     ((a) > (b) -> (a) : (b))
#define WATCHDOG      2 /* rank 0's */
#define RANK(process) ((process) % 2)

/* The channel's word. */
byte decided, from, before, now;
byte boundary;
byte asked[2], claim[2];
byte launches[2];           /* of the progress words ... */
bit inside[2];              /* ... and their marks: a call is inside; */
bit kept[2];                /* the last grant was returned */
byte launched[2], ended[2]; /* what the devices know */
byte lock;                  /* 1 + its holder's process */
byte other[2];              /* claims of other channels: on both devices, on device 1 */
byte give_ups, returns;
bit dead[2], returned[2];
byte grid[CALLS + 1];       /* ghost: of the k-th call */
#if CAPTURES > 0
byte captures;
byte pin[2], pinned_as[2]; /* the grid of a rank's graph, 0: none lives; its number */
#ifdef NO_PIN
#define PINNED false
#else
#define PINNED (pin[0] != 0 || pin[1] != 0)
#endif
#define COVERS(r) (pin[r] <= 1 || dead[0] || dead[1] || BLOCKS(r) >= pin[r])
#else
#define PINNED    false
#define COVERS(r) true
#endif

#define OTHERS_ON(m) (other[0] + (m == 1 -> other[1] : 0))
#define LARGEST_ON(m) (m == 1 -> MAX(other[0], other[1]) : other[0])
#define COUNT_ON(m)  ((other[0] > 0) + (m == 1 && other[1] > 0))

/* What claims of `all` blocks, the largest of them `most`, leave. */
#define LEFT(all, most)  (HALF > (all) - (most) -> HALF - ((all) - (most)) : 0)
#ifdef WIDE
#define SOME(left)       (HALF)
#else
#define SOME(left)       ((left) - ((left) + 3) / 4)
#endif
#define LIMIT(all, most)                                                                  \
    ((all) <= HALF -> P : MAX(MIN(SOME(LEFT(all, most)), (most)), 1))
#define SHARE(all, count) ((all) <= HALF -> P : MAX(HALF / MAX(count, 1), 1))

#define BLOCKS(m)    (claim[m] % CUT)
#define LARGE_OF(m)  MAX(BLOCKS(m), LARGEST_ON(m))
#define ONES(m)                                                                           \
    ((BLOCKS(m) == 1) + (other[0] == 1) + (m == 1 && other[1] == 1))
#define FITS(m)                                                                           \
    (BLOCKS(m) + OTHERS_ON(m) - LARGE_OF(m) <= HALF + ONES(m))

/* Whoever looks for room: do claims cover what may run? */
inline check()
{
    d_step {
        assert(FITS(0) && FITS(1));
        assert(COVERS(0) && COVERS(1));
        k = 1;
        do
        :: k > CALLS -> break
        :: else ->
            assert(grid[k] <= 1 || dead[0] || dead[1] ||
                   (k > asked[0] || ended[0] >= k * PARTS || BLOCKS(0) >= grid[k]));
            assert(grid[k] <= 1 || dead[0] || dead[1] ||
                   (k > asked[1] || ended[1] >= k * PARTS || BLOCKS(1) >= grid[k]));
            k++
        od;
        k = 0
    }
}

#ifdef NO_KEEP
#define KEPT(r) false
#else
#define KEPT(r) kept[r]
#endif

/* symm__channel_is_idle. ends: what the words tell has ended. */
inline look(ends)
{
    atomic { u_word = launches[0]; u_idle = !inside[0] && !KEPT(0) };
    atomic { u_idle = u_idle && launches[1] == u_word && !inside[1] && !KEPT(1) && !PINNED };
#ifndef NO_DONE
    if
    :: ends && u_idle ->
        u_idle = ended[0] == u_word;
        u_idle = u_idle && ended[1] == u_word
    :: else
    fi
#endif
}

inline claim_set(blocks)
{
    claim[0] = blocks;
    claim[1] = blocks
}

/* With the lock. */
inline release_unneeded(own)
{
    u_now = now;
    u_bound = boundary;
    look(true);
    if
    :: u_idle && claim[own] == 0
    :: u_idle && claim[own] != 0 ->
        atomic { u_claim = claim[own]; claim[0] = 0 };
        claim[1] = 0;
#ifndef NO_RECHECK
#ifdef RECHECK_WORDS
        look(false);
#else
        look(true);
#endif
#ifndef NO_RESTORE
        if
        :: !u_idle -> claim_set(u_claim)
        :: else
        fi
#endif
#endif
    :: !u_idle && BLOCKS(own) > u_now && !PINNED ->
#ifdef NO_BOUNDARY
        u_idle = true;
#else
        u_idle = ended[0] >= u_bound;
        atomic { u_idle = u_idle && ended[1] >= u_bound };
#endif
        if
        :: u_idle ->
            atomic { u_claim = u_now + claim[own] / CUT * CUT; claim[0] = u_claim };
            claim[1] = u_claim
        :: else
        fi
    :: else
    fi;
    d_step { u_now = 0; u_bound = 0; u_claim = 0; u_word = 0; u_idle = 0 }
}

#ifdef NO_BREAK
#define BROKEN false
#else
#define BROKEN (lock != 0 && dead[RANK(lock - 1)])
#endif

/* may: who finds the lock held may go on without it. */
inline lock_acquire(may)
{
    do
    :: atomic { lock == 0 -> lock = me + 1; locked = true; break }
    :: atomic { BROKEN -> lock = 0 }
    :: atomic {
            may && lock != 0 && !dead[RANK(lock - 1)] && give_ups < GIVE_UPS ->
            give_ups++;
            break
        }
    od
}

#ifdef NO_BEFORE
#define GRANTED w_now
#else
#define GRANTED (call < w_from -> w_before : w_now)
#endif

/* The word as this rank has read it. */
inline word_load()
{
    atomic { w_decided = decided; w_from = from; w_before = before; w_now = now }
}

/* The word becomes (d, f, b, n) if it is as read. done: it has. */
inline word_swap(d, f, b, n)
{
    d_step {
#ifdef NO_COMPARE
        done = true;
#else
        done = decided == w_decided && from == w_from && before == w_before && now == w_now;
#endif
        if
        :: done -> decided = d; from = f; before = b; now = n
        :: else
        fi;
        w_decided = decided;
        w_from = from;
        w_before = before;
        w_now = now
    }
}

inline is_granted()
{
    done = w_now >= P;
    if
    :: done -> done = claim[0] >= w_now && claim[0] < CUT
    :: else
    fi;
    if
    :: done -> done = claim[1] >= w_now && claim[1] < CUT
    :: else
    fi
}

inline next_grant()
{
    release_unneeded(me);
    check();
    d_step {
        next = MIN(LIMIT(OTHERS_ON(0), LARGEST_ON(0)), LIMIT(OTHERS_ON(1), LARGEST_ON(1)));
        if
        :: next == P
        :: else ->
            next = MAX(next, held);
            if
            :: cut && !PINNED && !captured ->
                next = MIN(next, MIN(SHARE(OTHERS_ON(0), COUNT_ON(0)),
                                     SHARE(OTHERS_ON(1), COUNT_ON(1))))
            :: else
            fi
        fi
    }
}

inline decide()
{
    lock_acquire(true);
    word_load();
    d_step {
        g_now = w_now;
        g_from = w_from;
        cut = claim[me] >= CUT;
        held = (BLOCKS(me) >= w_now -> w_now : 0);
#ifdef KEEP_FREE
        held = w_now;
#endif
        next = MAX(held, 1)
    };
    if
    :: locked -> next_grant()
    :: else
    fi;
#ifndef ANY_CHANGE
    /* may_change */
    if
    :: next != g_now && asked[0] + 1 < g_from -> next = g_now
    :: else
    fi;
    if
    :: next != g_now && asked[1] + 1 < g_from -> next = g_now
    :: else
    fi;
#endif
    if
    :: locked ->
        atomic { held = MAX(BLOCKS(me), next); claim[0] = held };
        claim[1] = held
    :: else
    fi;
    done = false;
    do
    :: done || w_decided >= call -> break
    :: else ->
        if
        :: next != w_now && w_now == g_now && w_from == g_from ->
#ifdef BOUNDARY_ALWAYS
            boundary = launched[me] + 1;
#else
            if
            :: locked -> boundary = launched[me] + 1
            :: else
            fi;
#endif
            word_swap(call, call, g_now, next)
        :: else -> word_swap(call, w_from, w_before, w_now)
        fi
    od;
    if
    :: locked -> lock = 0; locked = false
    :: else
    fi;
    d_step { g_now = 0; g_from = 0; cut = 0; held = 0; next = 0 }
}

#if CAPTURES > 0
inline is_claimed()
{
    done = GRANTED <= 1 || BLOCKS(0) >= GRANTED;
    if
    :: done && GRANTED > 1 -> done = BLOCKS(1) >= GRANTED
    :: else
    fi
}

inline decide_again()
{
    lock_acquire(false);
    if
    :: locked ->
        word_load();
        is_claimed();
#ifdef AGAIN_FREE
        done = false;
#endif
        if
        :: !done && w_decided == call &&
               (w_from == call || (asked[0] + 1 >= w_from && asked[1] + 1 >= w_from)) ->
            d_step { held = 0; cut = 0 };
            next_grant();
            boundary = launched[me] + 1;
            g_now = (w_from == call -> w_before : w_now);
#ifdef CLAIM_EARLY
            claim_set(next);
            word_swap(call, call, g_now, next);
#else
            word_swap(call, call, g_now, next);
            if
            :: done -> claim_set(next)
            :: else
            fi;
#endif
            d_step { g_now = 0; next = 0 }
        :: else
        fi;
        lock = 0;
        locked = false
    :: else
    fi
}

inline read_decided()
{
    do
    :: true ->
        d_step { s_decided = w_decided; s_from = w_from; s_before = w_before; s_now = w_now };
        is_claimed();
        if
        :: !done -> decide_again()
        :: else
        fi;
        word_load();
        d_step {
            done = w_decided == s_decided && w_from == s_from && w_before == s_before &&
                   w_now == s_now;
            s_decided = 0;
            s_from = 0;
            s_before = 0;
            s_now = 0
        };
        if
        :: done -> break
        :: else
        fi
    od
}
#endif

inline acquire()
{
    word_load();
    do
#if CAPTURES > 0 && !defined(NO_AGAIN)
    :: w_decided >= call -> read_decided(); break
#else
    :: w_decided >= call -> break
#endif
    :: else ->
        is_granted();
        if
        :: done ->
            word_swap(call, w_from, w_before, w_now);
            if
            :: done -> break
            :: else
            fi
        :: else -> decide(); break
        fi
    od;
    if
#ifndef COUNTED
    :: captured
#endif
    :: else -> asked[me] = call
    fi
}

proctype rank(byte me)
{
    byte call, w_decided, w_from, w_before, w_now, g_now, g_from, held, next, k;
    byte u_now, u_bound, u_claim, u_word;
    bit u_idle, locked, cut, done, captured;
#if CAPTURES > 0
    byte s_decided, s_from, s_before, s_now;
#endif

    {
    call = FIRST;
    do
    :: call > CALLS -> break
#if CAPTURES > 0
    :: atomic {
            call <= CALLS && captures < CAPTURES && (pin[me] == 0 || pinned_as[me] == call) ->
            captures++;
            captured = 1
        };
        inside[me] = 1;
        acquire();
        d_step {
            w_now = MAX(GRANTED, 1);
            assert(pin[me] == 0 || pin[me] == w_now);
            assert(pin[1 - me] == 0 || pinned_as[1 - me] != call || pin[1 - me] == w_now);
            pin[me] = w_now;
            pinned_as[me] = call;
            w_decided = 0;
            w_from = 0;
            w_before = 0;
            w_now = 0;
            done = 0;
            captured = 0;
            inside[me] = 0
        }
#ifdef COUNTED
        ;
        call++
#endif
#endif
    :: else ->
#ifdef CLAIM_FIRST
        acquire();
        inside[me] = 1;
#else
        inside[me] = 1; /* mark: the launches of the word are those of the last call */
        acquire();
#endif
        if
        :: atomic { returns < RETURNS -> returns++; returned[me] = 1; asked[me] = call - 1 };
            atomic { inside[me] = 0; kept[me] = 1 }
        :: true ->
            d_step {
                w_now = MAX(GRANTED, 1);
                k = launched[me] / PARTS + 1; /* call, but with COUNTED */
                assert(grid[k] == 0 || grid[k] == w_now ||
                       ((returned[0] || returned[1]) && w_from > call));
                grid[k] = MAX(grid[k], w_now);
                k = 0;
                w_decided = 0;
                w_from = 0;
                w_before = 0;
                w_now = 0;
                done = 0
            };
            launched[me] = launched[me] + PARTS;
            atomic { launches[me] = launched[me]; inside[me] = 0; kept[me] = 0; call++ }
        fi
    od
    } unless { dead[me] }
}

proctype watchdog(byte me)
{
    byte u_now, u_bound, u_claim, u_word;
    bit u_idle;

    {
end:
    do
    :: atomic { lock == 0 -> lock = me + 1 };
        release_unneeded(RANK(me));
        lock = 0
    od
    } unless { dead[RANK(me)] }
}

proctype devices()
{
end:
    do
    :: atomic { ended[0] < launched[0] && ended[0] < launched[1] -> ended[0]++ }
    :: atomic { ended[1] < launched[0] && ended[1] < launched[1] -> ended[1]++ }
#if CAPTURES > 0
    :: d_step { pin[0] != 0 -> pin[0] = 0; pinned_as[0] = 0 } /* a graph ends */
    :: d_step { pin[1] != 0 -> pin[1] = 0; pinned_as[1] = 0 }
#endif
    od
}

/* Other teams' channels, each call under the lock. */
proctype others()
{
    byte n, k, next, share;

    for (n : 1 .. OTHERS) {
        do
        :: atomic { BROKEN -> lock = 0 }
        :: atomic {
                lock == 0 ->
                check();
                if
                :: d_step { other[0] > 0 -> other[0] = 0 }
                :: d_step { other[1] > 0 -> other[1] = 0 }
                :: d_step {
                        other[0] == 0 ->
                        next = MIN(LIMIT(BLOCKS(0), BLOCKS(0)),
                                   LIMIT(BLOCKS(1) + other[1], MAX(BLOCKS(1), other[1])));
                        share = SHARE(BLOCKS(1) + other[1], 1 + (other[1] > 0));
                        other[0] = next;
                        /* cut_others; a claim that is the largest is not marked */
                        if
                        :: next < share && BLOCKS(1) > share && BLOCKS(1) < other[1] ->
                            claim[1] = BLOCKS(1) + CUT
                        :: else
                        fi
                    }
                :: d_step {
                        other[1] == 0 ->
                        next = LIMIT(BLOCKS(1) + other[0], MAX(BLOCKS(1), other[0]));
                        share = SHARE(BLOCKS(1) + other[0], 1 + (other[0] > 0));
                        other[1] = next;
                        if
                        :: next < share && BLOCKS(1) > share && BLOCKS(1) < other[0] ->
                            claim[1] = BLOCKS(1) + CUT
                        :: else
                        fi
                    }
                fi;
                next = 0;
                share = 0;
                break
            }
        od
    }
}

proctype killer()
{
    byte r;

    select(r : 0 .. 1);
    dead[r] = 1
}

init {
    atomic {
#ifdef LATER
        decided = 1;
        from = 1;
        now = P;
        boundary = 1;
        asked[0] = 1;
        asked[1] = 1;
        launches[0] = PARTS;
        launches[1] = PARTS;
        launched[0] = PARTS;
        launched[1] = PARTS;
        ended[0] = PARTS;
        ended[1] = PARTS;
        grid[1] = P;
        other[0] = P;
#endif
        run rank(0);
        run rank(1);
        run watchdog(WATCHDOG);
        run devices();
        run others();
#if DEATHS > 0
        run killer()
#endif
    }
}
