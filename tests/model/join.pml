/* SPDX-License-Identifier: MIT */
/*
 * join.pml - the hosts of a job find their places in a tree by rank 0's port, as a model for Spin.
 *
 * Functions: symm__tree_join, run, hear_join, number_before, check_ranks, add_host, hear_branch, table_send,
 * take_place, table_take, hear_above, first_message, all_have, hand_down and say_have of
 * symm/bootstrap/tree_*.c. How a connection is proved, and half-open ones, are in handshake.pml:
 * here a connection is open at both ends, or at none.
 *
 * Host 0 is rank 0's. The others connect to it, say JOIN, and get PLACE: a number by their coming,
 * and the parent's address; the parent of number n is number (n - 1) / ARITY. A host whose parent
 * is not host 0 connects to that and says PLACE. The table goes down the tree when all have come.
 * A host whose children have all said HAVE says so to its parent, and leaves. A host whose
 * connection breaks before it has the table connects again, and says JOIN or PLACE again; one that
 * has the table does not, so its parent does not wait for its HAVE (AWAY_SECONDS).
 * At most CUTS connections break at any moment, with what is under way in them, and FAILS hosts
 * cannot join and say so in JOIN. Deadlines pass when nothing else can move.
 * Claims, for every interleaving:
 *   - a host that gets the table knows the entries of all hosts, and no two have one number;
 *   - a table goes to the children that belong there alone;
 *   - no host's deadline passes, with one cut too: all get the table, or with FAILS its sentence,
 *     and a host leaves when those below it have it;
 *   - with two cuts (rank 0's host may leave though a host below lacks its place), or FAILS and
 *     cuts, every host ends (a search for invalid end states).
 * Not modelled: what entries hold, strangers, jobs of other sizes, a host that dies.
 * Mutants, each of which must violate a claim: NO_RETRY (a host that its parent turns away, which
 * does not know its own place yet, gives up), COUNT_TWICE (a host that says JOIN again after a
 * cut counts again), REFUSE_AGAIN (it is refused), NO_HAVE (the table that was sent has come),
 * LEAVE_EARLY (a host leaves with children that are still to come),
 * ONCE (the table goes to the children that are there when it comes), NO_REASON (a host that cannot
 * join only leaves), ANY_PARENT (host 0 keeps all).
 */
#ifndef HOSTS
#define HOSTS 3
#endif
#ifndef ARITY
#define ARITY 1
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#define NONE 9

mtype = { JOIN, FAILED, PLACE, TABLE, HAVE };

/* A deadline may pass. */
#define ALLOWED (cuts > 1 || (cuts > 0 && FAILS > 0))

#define PARENT(n) ((n - 1) / ARITY)

/* The connection of host h to the one above it: messages, and the branch at its other end. */
chan up[HOSTS] = [1] of { mtype, byte };         /* kind; the number of PLACE */
chan down[HOSTS] = [2] of { mtype, byte, byte }; /* number, parent; or status, hosts */
bool linked[HOSTS], hung_up[HOSTS]; /* hung_up: the host reads what came before */
byte target[HOSTS], branch[HOSTS]; /* NONE: the branch has not said its number */
bool sent[HOSTS];                  /* it has got the table */

bool placed[HOSTS], fails[HOSTS], entered[HOSTS];
byte number[HOSTS];
byte host_of[HOSTS + 1];
byte come; /* numbers that are given */
bool has_table[HOSTS], good[HOSTS], over[HOSTS], gone[HOSTS];
byte hosts[HOSTS];
bool haves[HOSTS + 1]; /* by number: HAVE has come of it */
bool tried[HOSTS], late[HOSTS]; /* mutants */
byte cuts;

#if HOSTS > 3
#define all_entered (entered[1] && entered[2] && entered[3])
#else
#define all_entered (entered[1] && entered[2])
#endif

inline unlink_of(c)
{
    if
    :: sent[c] && branch[c] != NONE && !good[target[c]] -> haves[branch[c]] = true
    :: else
    fi;
    do :: up[c]?_,_ :: empty(up[c]) -> break od;
    do :: down[c]?_,_,_ :: empty(down[c]) -> break od;
    linked[c] = false;
    hung_up[c] = false;
    branch[c] = NONE;
    sent[c] = false
}

inline link_to(c)
{
    linked[c] = true;
    tried[c] = true;
    if
    :: fails[c] -> up[c]!FAILED,0
    :: !fails[c] && placed[c] -> up[c]!PLACE,number[c]
    :: else -> up[c]!JOIN,0
    fi
}

/* Host 0 hears a host that wants to join. */
inline hear_join(c)
{
    if
    :: has_table[0] && !good[0] -> branch[c] = 0 /* too late: it gets the reason */
#ifndef COUNT_TWICE
    :: !(has_table[0] && !good[0]) && entered[c] ->
#ifdef REFUSE_AGAIN
        down[c]!TABLE,0,0
#else
        n = 1;
        do
        :: host_of[n] != c -> n++
        :: else -> break
        od;
        if
        :: PARENT(n) == 0 -> down[c]!PLACE,n,0; branch[c] = n
        :: else -> down[c]!PLACE,n,host_of[PARENT(n)]
        fi
#endif
    :: !(has_table[0] && !good[0]) && !entered[c] ->
#else
    :: else ->
#endif
        assert(come < HOSTS);
        assert(host_of[come] == NONE);
        host_of[come] = c;
        if
#ifdef ANY_PARENT
        :: true -> down[c]!PLACE,come,0; branch[c] = come
#else
        :: PARENT(come) == 0 -> down[c]!PLACE,come,0; branch[c] = come
        :: else -> down[c]!PLACE,come,host_of[PARENT(come)]
#endif
        fi;
        entered[c] = true;
        come++;
        if
        :: come == HOSTS -> has_table[0] = true; good[0] = true; hosts[0] = come
        :: else
        fi
    fi
}

/* What host h does for those below it. */
inline serve(h, c)
{
    up[c]?kind,n;
    if
    :: kind == JOIN && h == 0 -> hear_join(c)
    :: kind == FAILED && h == 0 ->
#ifndef NO_REASON
        branch[c] = 0;
        if
        :: !has_table[0] -> has_table[0] = true; hosts[0] = come
        :: else
        fi
#else
        skip
#endif
    :: kind == PLACE && (h == 0 || placed[h]) && PARENT(n) == number[h] ->
        branch[c] = n;
        late[c] = has_table[h]
    :: kind == HAVE && sent[c] -> haves[branch[c]] = true; unlink_of(c)
    :: else -> unlink_of(c) /* it hangs up */
    fi;
    kind = JOIN;
    n = 0
}

#ifdef ONCE
#define TABLE_FOR(h, c) (branch[c] != NONE && !late[c])
#else
#define TABLE_FOR(h, c) (branch[c] != NONE)
#endif
#define OWED_TO(h, c)                                                                      \
    (linked[c] && target[c] == h && has_table[h] && TABLE_FOR(h, c) && !sent[c])
#define OWED(h, c)  (c < HOSTS && OWED_TO(h, c % HOSTS))
/* Is the host with number n a child of h that is still waited for? */
#define CHILD(h, n) (hosts[h] > n && PARENT(n) == number[h])
#define IS_AWAY(c)  (!linked[c] && has_table[c])
#define AWAY(n)     (host_of[n] != NONE && IS_AWAY(host_of[n] % HOSTS))
#define AWAITS(h, n) (n < HOSTS && CHILD(h, n) && !haves[n] && !AWAY(n))
#ifdef LEAVE_EARLY
#define ENOUGH(h)   true
#else
#define ENOUGH(h)   (!AWAITS(h, 1) && !AWAITS(h, 2) && !AWAITS(h, 3))
#endif

inline give(h, c)
{
    assert(!good[h] || PARENT(branch[c]) == number[h]);
    assert(!good[h] || host_of[branch[c]] == c);
    down[c]!TABLE,good[h],hosts[h];
    sent[c] = true;
#ifdef NO_HAVE
    haves[branch[c]] = true
#endif
}

inline leave(h)
{
    gone[h] = true;
    for (c : 1 .. HOSTS - 1) {
        if
        :: target[c] == h && linked[c] -> hung_up[c] = true
        :: else
        fi
    }
}

proctype joins(byte h)
{
    mtype kind = JOIN;
    byte n, p;

    do
    :: atomic { over[h] -> break }
#ifdef NO_RETRY
    :: atomic { !over[h] && !has_table[h] && !linked[h] && tried[h] && target[h] != 0 ->
        over[h] = true }
    :: atomic { !over[h] && !has_table[h] && !linked[h] && !gone[target[h]] && !tried[h] ->
        link_to(h) }
#else
    :: atomic { !over[h] && !has_table[h] && !linked[h] && !gone[target[h]] -> link_to(h) }
#endif
    :: atomic { !over[h] && linked[h] && len(down[h]) > 0 ->
        down[h]?kind,n,p;
        if
        :: kind == PLACE ->
            assert(!placed[h]);
            placed[h] = true;
            number[h] = n;
            if
            :: p != 0 -> unlink_of(h); target[h] = p; tried[h] = false
            :: else
            fi
        :: kind == TABLE ->
            has_table[h] = true;
            good[h] = n;
            hosts[h] = p;
            assert(!good[h] || all_entered);
            if
            :: !good[h] -> over[h] = true; unlink_of(h)
            :: else
            fi
        fi;
        kind = JOIN;
        n = 0;
        p = 0 }
    :: atomic { !over[h] && hung_up[h] && len(down[h]) == 0 -> unlink_of(h) }
    /* Those below have the table. */
    :: atomic { !over[h] && has_table[h] && good[h] && gone[h] ->
        if
        :: linked[h] -> up[h]!HAVE,0
        :: else
        fi;
        over[h] = true }
    /* Host 0 listens no longer: not_connected gives up. */
    :: atomic { !over[h] && !has_table[h] && !linked[h] && placed[h] && target[h] == 0 &&
                gone[0] ->
        assert(ALLOWED);
        over[h] = true }
    :: atomic { !over[h] && timeout ->
        assert(ALLOWED);
        if :: linked[h] -> unlink_of(h) :: else fi;
        over[h] = true }
    od
}

proctype serves(byte h)
{
    mtype kind = JOIN;
    byte n, c;

    do
    :: atomic { gone[h] -> break }
    :: atomic { !gone[h] && target[1] == h && len(up[1]) > 0 -> serve(h, 1) }
    :: atomic { !gone[h] && target[2] == h && len(up[2]) > 0 -> serve(h, 2) }
    :: atomic { !gone[h] && OWED(h, 1) -> give(h, 1) }
    :: atomic { !gone[h] && OWED(h, 2) -> give(h, 2) }
#if HOSTS > 3
    :: atomic { !gone[h] && target[3] == h && len(up[3]) > 0 -> serve(h, 3) }
    :: atomic { !gone[h] && OWED(h, 3) -> give(h, 3) }
#endif
    /* hand_down is over. */
    :: atomic { !gone[h] && has_table[h] && !OWED(h, 1) && !OWED(h, 2) && !OWED(h, 3) &&
                (h != 0 || good[0]) && ENOUGH(h) -> leave(h) }
    /* It has ended without a table. */
    :: atomic { !gone[h] && over[h] && !has_table[h] -> leave(h) }
    /* Deadlines: of hand_down, and host 0's, which knows who is missing. */
    :: atomic { !gone[h] && has_table[h] && timeout ->
        assert(ALLOWED || !good[h]);
        leave(h) }
    :: atomic { h == 0 && !has_table[0] && timeout ->
        assert(ALLOWED);
        has_table[0] = true }
    od
}

proctype trouble()
{
end:
    do
    :: atomic { cuts < CUTS && linked[1] -> unlink_of(1); cuts++ }
    :: atomic { cuts < CUTS && linked[2] -> unlink_of(2); cuts++ }
#if HOSTS > 3
    :: atomic { cuts < CUTS && linked[3] -> unlink_of(3); cuts++ }
#endif
    od
}

init {
    byte h;

    atomic {
        for (h : 1 .. HOSTS) {
            host_of[h] = NONE
        }
        entered[0] = true;
        come = 1;
#if FAILS > 0
        if
        :: fails[1] = true
        :: fails[2] = true
        fi;
#endif
        run serves(0);
        for (h : 1 .. HOSTS - 1) {
            branch[h] = NONE;
            run joins(h);
            run serves(h)
        }
        run trouble()
    }
}
