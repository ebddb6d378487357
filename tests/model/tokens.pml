/* SPDX-License-Identifier: MIT */
/*
 * tokens.pml - the words of copy-engine calls as a model for Spin: a receiver's token, its sender's
 * room, and the watchdogs that end waits for them.
 *
 * Functions: by_engine with take_word, copy_abort and write_word of symm/cuda/one_sided.c;
 * wait_end, may_release and poll_wait of symm/cuda/watchdog.c, poll_words there (with GRAPH),
 * symm__cuda_waits_end; tokens_drop and tokens_reuse of symm/cuda/tokens.c.
 *
 * A sender's stream has CALLS puts with a signal queued, a receiver's as many waits. A put waits for
 * its room, copies the abort word, sets the room to 0, copies the data, writes 1 into the token. A
 * wait waits for the token, copies the abort word, sets the token to 0, writes 1 into the room. Each
 * is a step; a copy of data is two, so that a read beside it is detected. Two buffers are in turn:
 * after wait k the receiver's stream reads the data of put k, and ends that before wait k + 1. What
 * follows a wait believes it if the copied abort word is 0. With FAILURE a rank fails at any time (a
 * deadline, a death), and queues no more calls; the other one may learn of it. The watchdog of a rank that has failed sets
 * the abort word, then stores 1 into the word that its stream awaits, in each poll in which a wait is
 * not over. With GRAPH (replays have no events) it stores at any time. A rank leaves the words when
 * its stream has ended. With REUSE ranks in one process leave their words, the last signal still in
 * them, to a second team, unless one of them had failed: that one may leave before its stream has
 * ended, since its device has failed.
 * Claims, for every interleaving:
 *   - whoever believes wait k finds that put k has been sent, and while no rank has failed reads its
 *     whole data: no signal is lost, seen twice, or taken from a wait that a failure has ended, at
 *     once or later;
 *   - a token is 0 when its sender writes 1, and so is a room, unless a rank has failed;
 *   - streams come to their ends, after a failure too (Spin reports one that waits for ever);
 *   - the second team finds the words as its own ranks have set them.
 * Not modelled: that data are visible with the word (docs/memory-model.md); what a sender has queued
 * after a wait that was ended, and that is still sent, in a receiver that knows of no failure (it has
 * RELEASE_SECONDS to learn of it); other streams, which read the copied word, too.
 * Mutants, each of which must violate a claim: ROOM_FIRST (the room is given before the token is set
 * to 0), CLEAR_LATE (a put sets its room to 0 after the token), TOKEN_FIRST (before the data), NO_ROOM
 * (a put awaits no room), NO_COPY (of the abort word after a wait), COPY_FIRST (it is copied before
 * the wait), END_FIRST (a wait is ended before the abort word is set), END_ONCE (each wait is ended
 * once), NO_END; with REUSE: KEEP_DIRTY (words of a failed team are used again), NO_ZERO (they are not
 * set anew).
 */
#ifndef CALLS
#define CALLS 3
#endif
#ifdef REUSE
#define TEAMS 2
#define LAST  (CALLS - (me == RECEIVER && team == 0)) /* a signal is left */
#define LABEL end:
#define LEAVES_EARLY true
#else
#define TEAMS 1
#define LAST  CALLS
#define LABEL
#define LEAVES_EARLY false
#endif
#ifdef NO_ROOM
#define NO_WAIT (me == SENDER)
#else
#define NO_WAIT false
#endif

/* A poll that changes nothing is no step: the watchdog goes on when its word is 0 again. */
#if defined(NO_END) || defined(END_ONCE)
#define WORD_TAKEN false
#else
#define WORD_TAKEN (word[me] == 0)
#endif
#define SENDER   0
#define RECEIVER 1
#define HALF     255
#define ME       (2 * team + me)
#define PEER     (2 * team + 1 - me)
#define FAILED   (failed[ME] || failed[PEER])

bit word[2] = { 1, 0 };  /* the sender's room, the receiver's token; both teams' */
byte data[2 * TEAMS];    /* two buffers of each team: the number of the put */
bit failed[2 * TEAMS];   /* of a team's rank */
bit aborts[2 * TEAMS];   /* the word in memory of the host */
bit reported[2 * TEAMS]; /* its copy on the device */
byte waits[2 * TEAMS];   /* that are over */
bit over[2 * TEAMS];     /* the stream has come to its end */
bit polls[2 * TEAMS];    /* the watchdog has the lock */
bit gone[2 * TEAMS];     /* the rank has left the words */
bit dirty, passed;       /* a rank that had failed has left them; the second team has them */
byte ready;              /* ranks of the second team that have set their words */
byte sent[TEAMS];        /* ghost: puts whose data were there before the token */

/* Writes 1 into the peer's word. */
inline give_word()
{
    atomic {
        assert(word[1 - me] == 0 || FAILED);
        word[1 - me] = 1
    }
}

inline copy()
{
    data[2 * team + k % 2] = HALF;
    data[2 * team + k % 2] = k
}

inline send()
{
#ifndef CLEAR_LATE
    word[me] = 0;
#endif
#ifdef TOKEN_FIRST
    give_word();
    copy();
    sent[team]++;
#else
    copy();
    sent[team]++;
    give_word();
#endif
#ifdef CLEAR_LATE
    word[me] = 0
#endif
}

inline receive()
{
#ifdef ROOM_FIRST
    give_word();
    word[me] = 0;
#else
    word[me] = 0;
    give_word();
#endif
    /* what follows */
    if
    :: reported[ME]
    :: else -> assert(sent[team] >= k); assert(data[2 * team + k % 2] == k || FAILED)
    fi
}

proctype stream(byte me, team)
{
    byte k;

    if
    :: team == 0
    :: else ->
        /* symm__cuda_tokens_share: own words, then an exchange */
#ifndef NO_ZERO
        word[me] = me == SENDER;
#endif
        ready++;
        ready == 2
    fi;
    for (k : 1 .. LAST) {
        if
        :: failed[ME] -> break /* the call has not been queued */
        :: true
        fi;
        /* take_word */
#ifdef COPY_FIRST
        reported[ME] = aborts[ME];
#endif
LABEL   word[me] == 1 || NO_WAIT;
        waits[ME]++;
#if !defined(COPY_FIRST) && !defined(NO_COPY)
        reported[ME] = aborts[ME];
#endif
        if
        :: me == SENDER -> send()
        :: me == RECEIVER -> receive()
        fi
    }
    over[ME] = 1
}

/* The end of a team on a rank: drain, symm__cuda_waits_end, unlist, tokens_drop. */
proctype leave(byte me, team)
{
    atomic {
        (over[ME] || (failed[ME] && LEAVES_EARLY)) && !polls[ME] ->
        dirty = dirty || failed[ME];
        gone[ME] = 1
    }
    /* The last one leaves them to the next team: tokens_reuse. */
    atomic {
        if
        :: gone[ME] && gone[PEER] && team + 1 < TEAMS && !passed ->
            passed = 1;
#ifndef KEEP_DIRTY
            if
            :: dirty
            :: else -> run stream(SENDER, 1); run stream(RECEIVER, 1)
            fi
#else
            run stream(SENDER, 1);
            run stream(RECEIVER, 1)
#endif
        :: else
        fi
    }
}

proctype watchdog(byte me, team)
{
    byte ended;
    bool more;

    /* It fails by itself, or learns of the peer's failure, or the stream ends. */
    if
    :: failed[ME] = 1
    :: failed[PEER] -> failed[ME] = 1
    :: over[ME] -> goto stopped
    fi;
#ifndef END_FIRST
    aborts[ME] = 1;
#endif
    do
    :: atomic { gone[ME] -> goto stopped }
    :: atomic {
            !gone[ME] ->
            polls[ME] = 1;
#ifdef NO_END
            more = false
#elif defined(GRAPH)
            more = true
#elif defined(END_ONCE)
            more = waits[ME] < LAST && !over[ME] && ended < CALLS;
            ended = CALLS
#else
            more = waits[ME] < LAST && !over[ME]
#endif
        };
        if
        :: more -> word[me] = 1
        :: else
        fi;
#ifdef END_FIRST
        aborts[ME] = 1;
#endif
        atomic {
            polls[ME] = 0;
            more = false;
            /* the next poll has something to do, or the rank leaves */
            gone[ME] || WORD_TAKEN
        }
    od;
stopped:
    skip
}

init {
    atomic {
        run stream(SENDER, 0);
        run stream(RECEIVER, 0);
        run leave(SENDER, 0);
        run leave(RECEIVER, 0);
#ifdef FAILURE
        run watchdog(SENDER, 0);
        run watchdog(RECEIVER, 0);
#endif
    }
}
