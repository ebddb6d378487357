/* SPDX-License-Identifier: MIT */
/*
 * liveness.pml - who is named when a rank has ended: deaths against finalizing, as a model for
 * Spin.
 *
 * Functions: keep and symm__liveness_destroy of symm/oob/liveness.c, with what the kernel does at
 * the death of the thread that holds the robust futex; symm__process_died, symm__process_check and
 * symm__process_finished there; look_at_all with find_finished and look_at, and with SIGNAL
 * signal_look, of symm/call/slow_wait.c; symm__team_death of symm/core/failure.c. ring.c's
 * find_ended, error_record.c's find_dead, peer.c's symm__oob_dead, hosts.c's ask and
 * team_create.c's find_dead look in the same order.
 *
 * Rank 0 waits for rank 1 and rank 2 (with SIGNAL: for rank 1). Each of them arrives or does not,
 * writes an error record or does not, then finalizes, stays, or dies at any point. Rank 1 may also
 * see that rank 2 has died, and leave for that. Rank 0 looks again whenever something may have
 * changed.
 * Claims, for every interleaving:
 *   - rank 0 says that a rank has died only of one that was killed before it had finalized, and
 *     that it has finalized only of one that has;
 *   - a rank that left because another died is not named: the other one is;
 *   - a rank that arrived or wrote a record before it ended is not blamed;
 *   - rank 0 returns (Spin reports a wait for ever), unless a rank that it waits for lives on.
 * Mutants, each of which must violate a claim: DEATHS_FIRST (finalized ranks are looked for after
 * deaths), ONE_PASS (the first that has ended is named), ARRIVED_SKIPS (a dead rank that had
 * arrived is not the cause), ASK_TWICE (the word is read once for each question), NO_REREAD,
 * NO_RERECORD, FINISH_LATE (the thread ends before the word says so), IGNORE_DEATH,
 * IGNORE_FINISHED; with SIGNAL: NO_CAUSE.
 */
#define LIVE     1
#define FINISHED 2
#define DIED     3

byte live[3] = LIVE;
bool arrived[3], record[3], killed[3];
bool left_for[3]; /* ghost: it leaves because another died */
bool over;        /* rank 0 has returned */

/* The kernel, when the thread that holds the futex ends: its owner is still in the word. */
#define KERNEL(r) if :: live[r] == LIVE -> live[r] = DIED :: else fi
#define MAY_DIE                                                                            \
    if                                                                                     \
    :: true                                                                                \
    :: atomic { killed[me] = (live[me] == LIVE); KERNEL(me); goto gone }                   \
    fi

proctype rank(byte me)
{
    MAY_DIE;
    if
    :: true -> arrived[me] = true
    :: true
    fi;
    MAY_DIE;
    if
    :: me == 1 && live[2] == DIED -> left_for[me] = true
    :: true
    fi;
    if
    :: true -> record[me] = true
    :: true
    fi;
    MAY_DIE;
    if
    :: true -> goto gone /* lives on */
    :: true
    fi;
    /* symm__liveness_destroy, then keep: the list is emptied before the thread ends */
#ifdef FINISH_LATE
    KERNEL(me);
#endif
    atomic {
        live[me] = FINISHED
    };
    MAY_DIE;
gone:
    skip
}

inline verdict_died(m)
{
    atomic {
        assert(killed[m]);
        goto done
    }
}

inline verdict_finished(m)
{
    atomic {
        assert(live[m] == FINISHED);
        assert(!left_for[m]);
        goto done
    }
}

/* symm__team_death */
inline find_cause()
{
    for (c : 1 .. 2) {
        now = live[c];
        if
#ifdef ARRIVED_SKIPS
        :: now == DIED && !arrived[c] -> verdict_died(c)
#else
        :: now == DIED -> verdict_died(c)
#endif
        :: else
        fi
    }
}

/* look_at of a member; what: LIVE is alive for both, FINISHED counts only if `finished`. */
inline look_at(m, finished)
{
    if
    :: arrived[m]
    :: else ->
        if
        :: record[m] -> goto done
        :: else
        fi;
        now = live[m];
#ifdef ASK_TWICE
        /* Has it finalized? If not: is it alive? */
        if
        :: !finished && now != FINISHED -> now = (live[m] == LIVE -> LIVE : DIED)
        :: else
        fi;
#endif
        if
        :: now == LIVE
        :: now == FINISHED && !finished
#ifdef IGNORE_DEATH
        :: now == DIED
#endif
        :: else ->
            if
#ifndef NO_REREAD
            :: arrived[m]
#endif
#ifdef NO_REREAD
            :: true ->
#else
            :: else ->
#endif
#ifndef NO_RERECORD
                if
                :: record[m] -> goto done
                :: else
                fi;
#endif
                assert(!arrived[m] && !record[m]);
                if
                :: now == DIED -> verdict_died(m)
                :: now == FINISHED ->
                    find_cause();
                    verdict_finished(m)
                fi
            fi
        fi
    fi
}

inline find_finished()
{
    left = 0;
    for (m : 1 .. 2) {
        if
        :: left == 0 && !arrived[m] ->
            if
            :: live[m] == FINISHED -> left = m
            :: else
            fi
        :: else
        fi
    }
}

#ifdef IGNORE_DEATH
#define ENDED(m) (!arrived[m] && (record[m] || live[m] == FINISHED))
#elif defined(IGNORE_FINISHED)
#define ENDED(m) (!arrived[m] && (record[m] || live[m] == DIED))
#else
#define ENDED(m) (!arrived[m] && (record[m] || live[m] != LIVE))
#endif

proctype collective()
{
    byte m, c, now, left;

end:
    do
    :: arrived[1] && arrived[2] -> break
    :: ENDED(1) || ENDED(2) ->
#ifdef ONE_PASS
        for (m : 1 .. 2) {
            now = live[m];
            if
            :: arrived[m] || now == LIVE
            :: !arrived[m] && record[m] -> goto done
            :: !arrived[m] && !record[m] && now == DIED -> verdict_died(m)
            :: !arrived[m] && !record[m] && now == FINISHED -> verdict_finished(m)
            fi
        }
#else
#ifndef DEATHS_FIRST
        find_finished();
#endif
        for (m : 1 .. 2) {
            look_at(m, false)
        }
#ifdef DEATHS_FIRST
        find_finished();
        if
        :: left > 0 ->
            if
            :: !arrived[left] && !record[left] -> verdict_finished(left)
            :: else
            fi
        :: else
        fi
#elif !defined(IGNORE_FINISHED)
        if
        :: left > 0 -> m = left; look_at(m, true)
        :: else
        fi
#endif
#endif
    od;
done:
    over = true
}

/* symm__wait_signal of a signal of rank 1. */
proctype signal_wait()
{
    byte c, now;
    bool reported;

end:
    do
    :: arrived[1] -> break
    :: ENDED(1) ->
        reported = record[1];
        now = (reported -> LIVE : live[1]);
        if
        :: reported || now != LIVE ->
            if
            :: arrived[1]
            :: else ->
                if
                :: record[1] -> goto done
                :: else
                fi;
                if
                :: now == DIED -> verdict_died(1)
                :: now == FINISHED ->
#ifndef NO_CAUSE
                    find_cause();
#endif
                    verdict_finished(1)
                fi
            fi
        :: else
        fi
    od;
done:
    over = true
}

/* Rank 0 may wait for a rank that neither arrives nor ends; then its deadline ends the wait. */
proctype deadline()
{
    timeout;
    assert(over || (!arrived[1] && !record[1] && live[1] == LIVE) ||
           (!arrived[2] && !record[2] && live[2] == LIVE))
}

init {
    atomic {
        run rank(1);
        run rank(2);
#ifdef SIGNAL
        run signal_wait();
#else
        run collective();
#endif
        run deadline()
    }
}
