/* SPDX-License-Identifier: MIT */
/*
 * tree.pml - an exchange among hosts (symm/relay/ledger.h) as a model for Spin: a chain of three
 * hosts, 0 the root, each with a leader and a relay.
 *
 * Functions: take_part, take_up, take_have, take_verdict and take_give_up of
 * symm/relay/ledger_take.c; symm__ledger_send_up, symm__ledger_send_have, symm__ledger_advance,
 * symm__ledger_tell, symm__ledger_finish and symm__ledger_give_up of symm/relay/ledger_step.c;
 * symm__ledger_resend, ask_root, must_fail, symm__ledger_host_gone and symm__ledger_cut of
 * symm/relay/ledger_tick.c; symm__ledger_know of symm/relay/ledger_outcome.c.
 *
 * PART goes from a leader to its relay, UP to the host above, ALL down, HAVE up, GO down. A leader
 * may give up instead: GIVE_UP goes to the root, which decides FAIL. At most CUTS times the
 * connection of a host to the one above is lost with all that is under way in it, and made again:
 * the lower end says again what it has said. At most DEATHS times a relay that leads nothing
 * dies: its state is lost, its connections too; the next one begins with what its leader says again,
 * or with GO if its leader has left. That of the root's host knows the verdict if there was one: it was
 * kept (`keep`, symm__ledger_know) before anybody was told.
 * LEADS: the root's relay that dies may be that of the leader, too: the next one decides FAIL, if nothing
 * was decided.
 * GONE: host 1, between the others, may die as a whole: then the root fails unless HAVE has come from
 * there, and host 2 fails unless its leader has all; else it asks the root, past host 1.
 * Claims, for every interleaving:
 *   - no leader leaves with GO while another is told FAIL;
 *   - a leader that leaves with GO has the bytes of all hosts;
 *   - without GIVE_UP and GONE all leave with GO; each leader leaves (Spin reports one that waits for ever).
 * Not modelled: a verdict that is told before all ranks of the root's host have it (KEEP_SECONDS), trees
 * with branches, several exchanges, deadlines.
 * Mutants, each of which must violate a claim: NO_ASK (with GONE), NO_RESEND, EARLY_GO, NO_OUTCOME, ANY_VERDICT,
 * NO_SAY_AGAIN, NO_PARTIAL, EARLY_HAVE, NO_KEEP (also with LEADS).
 */
#ifndef CUTS
#define CUTS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#ifndef GONE
#define GONE 0
#endif
#ifndef LEADS
#define LEADS 0
#endif
#define HOSTS 3
#define ALL_PARTS 7

mtype = { PART, UP, ALL, HAVE, GO, GIVE_UP, FAIL };
#define NOT 0
#define WENT 1
#define FAILED 2
#define DIED 3

chan up[HOSTS] = [8] of { mtype, byte };   /* of host h to the one above */
chan down[HOSTS] = [8] of { mtype, byte }; /* to host h from the one above */

chan ask = [4] of { mtype, byte };         /* from host 2 to the root, past host 1, */
chan told = [4] of { mtype, byte };        /* and back */
bool gone, asked;
bool knows[HOSTS]; /* that host 1 is gone */

/* Of each relay; lost with it. */
byte parts[HOSTS];
bool has_all[HOSTS], have[HOSTS], child_have[HOSTS], have_sent[HOSTS], gave_up[HOSTS];
bool sent[HOSTS];
byte outcome[HOSTS];
/* Of each leader. */
byte left[HOSTS];
bool got[HOSTS], said[HOSTS], wants_out[HOSTS];

byte cuts, deaths, give_ups;
bool failed, went, led;

#define ROOT(h)  (h == 0)
#define LAST(h)  (h == HOSTS - 1)
#define BELOW(h) (h == 0 -> 7 : (h == 1 -> 6 : 4))

/* Queues are long enough for all that is ever said. */
inline tell_up(kind, what)
{
    if
    :: !ROOT(me) && !gone -> assert(nfull(up[me])); up[me]!kind,what
    :: LAST(me) && knows[me] -> assert(nfull(ask)); ask!kind,what
    :: else
    fi
}
inline tell_down(kind, what)
{
    if :: !LAST(me) && !gone -> assert(nfull(down[me + 1])); down[me + 1]!kind,what :: else fi
}

inline answer()
{
    assert(nfull(told));
    if :: outcome[me] == WENT -> told!GO,0 :: else -> told!FAIL,0 fi
}

inline finish(how)
{
    if
    :: outcome[me] == NOT ->
        outcome[me] = how;
        if :: how == WENT -> tell_down(GO, 0) :: else -> tell_down(FAIL, 0) fi;
        if :: ROOT(me) && asked -> answer() :: else fi
    :: else
    fi
}

/* What follows from the state. */
inline settle()
{
    if
    :: ROOT(me) && outcome[me] == NOT && parts[me] == ALL_PARTS && !has_all[me] ->
        has_all[me] = true;
        tell_down(ALL, ALL_PARTS)
    :: else
    fi;
    if
    :: !ROOT(me) && outcome[me] == NOT && parts[me] == BELOW(me) && !sent[me] ->
        sent[me] = true;
        tell_up(UP, parts[me])
    :: else
    fi;
    if
#ifdef EARLY_GO
    :: ROOT(me) && outcome[me] == NOT && have[me] && has_all[me] -> finish(WENT)
#endif
    :: outcome[me] == NOT && have[me] && (LAST(me) || child_have[me]) && !have_sent[me] ->
        have_sent[me] = true;
        if
        :: ROOT(me) -> finish(WENT)
        :: else -> tell_up(HAVE, 0)
        fi
#ifdef EARLY_HAVE
    :: !ROOT(me) && outcome[me] == NOT && have[me] && !have_sent[me] ->
        have_sent[me] = true;
        tell_up(HAVE, 0)
#endif
    :: else
    fi
}

inline lose(h) /* the connection of h to the one above */
{
    do :: up[h]?_,_ :: empty(up[h]) -> break od;
    do :: down[h]?_,_ :: empty(down[h]) -> break od
}

/* What the end that connects says again. */
inline resend(h)
{
    if
    :: outcome[h] == WENT -> up[h]!GO,0
    :: outcome[h] == NOT ->
#ifndef NO_RESEND
        if :: sent[h] -> up[h]!UP,parts[h] :: else fi;
        if :: have_sent[h] -> up[h]!HAVE,0 :: else fi;
        if :: gave_up[h] -> up[h]!GIVE_UP,0 :: else fi
#else
        skip
#endif
    :: else
    fi
}

inline hear_up() /* a message of the host below */
{
    up[me + 1]?kind,what;
    if
    :: kind == GO -> finish(WENT)
    :: kind != GO && outcome[me] != NOT ->
#ifndef NO_OUTCOME
        if :: outcome[me] == WENT -> tell_down(GO, 0) :: else -> tell_down(FAIL, 0) fi
#else
        skip
#endif
    :: kind == UP && outcome[me] == NOT ->
        parts[me] = parts[me] | what;
        if :: has_all[me] && !child_have[me] -> tell_down(ALL, ALL_PARTS) :: else fi
    :: kind == HAVE && outcome[me] == NOT -> child_have[me] = true
    :: kind == GIVE_UP && outcome[me] == NOT ->
        if
#ifdef ANY_VERDICT
        :: true -> finish(FAILED)
#else
        :: ROOT(me) -> finish(FAILED)
        :: !ROOT(me) && !gave_up[me] -> gave_up[me] = true; tell_up(GIVE_UP, 0)
        :: !ROOT(me) && gave_up[me]
#endif
        fi
    fi;
    settle()
}

inline hear_down() /* of the host above */
{
    down[me]?kind,what;
    if
    :: kind == ALL && outcome[me] == NOT && !has_all[me] ->
        has_all[me] = true;
        if :: !child_have[me] -> tell_down(ALL, what) :: else fi
    :: kind == GO -> finish(WENT)
    :: kind == FAIL -> finish(FAILED)
    :: else
    fi;
    settle()
}

/* Host 1 is gone. */
inline see_gone()
{
    knows[me] = true;
    if
    :: outcome[me] == NOT && ROOT(me) && !child_have[me] -> finish(FAILED)
#ifdef NO_ASK
    :: outcome[me] == NOT && LAST(me) -> finish(FAILED)
#else
    :: outcome[me] == NOT && LAST(me) && !have[me] -> finish(FAILED)
    :: outcome[me] == NOT && LAST(me) && have[me] ->
        ask!HAVE,0;
        if :: gave_up[me] -> ask!GIVE_UP,0 :: else fi
#endif
    :: else
    fi
}

inline hear_ask()
{
    ask?kind,what;
    if
    :: outcome[me] != NOT -> answer()
    :: outcome[me] == NOT ->
        asked = true;
        if :: kind == GIVE_UP -> finish(FAILED) :: else fi
    fi
}

/* The host's relay and its leader: what a leader says to its relay is not under way for long. */
proctype host(byte me)
{
    mtype kind;
    byte what;

end:
    do
    :: atomic { left[me] == NOT && !said[me] && outcome[me] == NOT ->
        said[me] = true;
        parts[me] = parts[me] | (1 << me);
        settle() }
    :: atomic { left[me] == NOT && has_all[me] && !got[me] && outcome[me] == NOT ->
        got[me] = true }
    :: atomic { left[me] == NOT && got[me] && !have[me] && said[me] && outcome[me] == NOT ->
        have[me] = true;
        settle() }
    :: atomic { left[me] == NOT && !wants_out[me] && give_ups < GIVE_UPS ->
        give_ups++;
        wants_out[me] = true }
    :: atomic { left[me] == NOT && wants_out[me] && outcome[me] == NOT && !gave_up[me] ->
        gave_up[me] = true;
        if
        :: ROOT(me) -> finish(FAILED)
#ifdef ANY_VERDICT
        :: !ROOT(me) -> finish(FAILED)
#else
        :: !ROOT(me) -> tell_up(GIVE_UP, 0)
#endif
        fi }
    :: atomic { left[me] == NOT && outcome[me] == WENT ->
        assert(got[me] && !failed);
        went = true;
        left[me] = WENT }
    :: atomic { left[me] == NOT && outcome[me] == FAILED ->
        assert(!went && (give_ups > 0 || gone || led));
        failed = true;
        left[me] = FAILED }
#ifndef NO_PARTIAL
    /* Some parts do not come: those that are here are sent after a while. It matters where a
     * leader has left. */
    :: atomic { !ROOT(me) && outcome[me] == NOT && parts[me] != 0 && !sent[me] &&
                (left[me] != NOT || left[(LAST(me) -> me : me + 1)] != NOT) ->
        sent[me] = true;
        tell_up(UP, parts[me]) }
#endif
    :: atomic { !LAST(me) && nempty(up[me + 1]) && outcome[me] != DIED -> hear_up() }
    :: atomic { !ROOT(me) && nempty(down[me]) && outcome[me] != DIED -> hear_down() }
    :: atomic { gone && !knows[me] && me != 1 -> see_gone() }
    :: atomic { ROOT(me) && nempty(ask) -> hear_ask() }
    :: atomic { LAST(me) && nempty(told) ->
        told?kind,what;
        if :: kind == GO -> finish(WENT) :: else -> finish(FAILED) fi }
    od
}

/* A leader that waits has an end that is none. */
proctype leader(byte me)
{
    left[me] != NOT
}

proctype trouble()
{
    byte h, me = 0; /* for finish */

end:
    do
    :: atomic { GONE && !gone ->
        gone = true;
        outcome[1] = DIED;
        if :: left[1] == NOT -> left[1] = DIED :: else fi }
    :: atomic { cuts < CUTS && !gone ->
        cuts++;
        select(h : 1 .. HOSTS - 1);
        lose(h);
        resend(h) }
    :: atomic { deaths < DEATHS && !gone ->
        deaths++;
        select(h : 0 .. HOSTS - 1);
        parts[h] = 0;
        has_all[h] = false;
        have[h] = false;
        child_have[h] = false;
        have_sent[h] = false;
        gave_up[h] = false;
        sent[h] = false;
#ifndef NO_KEEP
        if
        :: h > 0 -> outcome[h] = (left[h] == WENT -> WENT : NOT)
        :: else
        fi;
#else
        outcome[h] = (left[h] == WENT && (h > 0 || !LEADS) -> WENT : NOT);
#endif
#ifndef NO_SAY_AGAIN
        said[h] = false;
#endif
        if
        :: h > 0 -> lose(h); resend(h)
        :: else
        fi;
        if
        :: h < HOSTS - 1 -> lose(h + 1); resend(h + 1)
        :: else
        fi;
        if
        :: LEADS && h == 0 ->
            led = true;
            said[0] = true;
            if :: left[0] == NOT -> left[0] = DIED :: else fi;
            if :: outcome[0] == NOT -> finish(FAILED) :: else fi
        :: else
        fi }
    od
}

init {
    byte h;

    atomic {
        for (h : 0 .. HOSTS - 1) {
            run host(h);
            run leader(h)
        }
        run trouble()
    }
}
