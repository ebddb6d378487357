/* SPDX-License-Identifier: MIT */
/*
 * round.cuh - how a kernel takes part in a call: counters, call words, bounded waits,
 * the barrier of one block with the same block of its peers, and what happens on failure.
 *
 * Every kernel does, with all threads of every block:
 *     struct symm_round round = symm_round_open(args);   counters of the calls before
 *     symm_round_announce(args, &round);                 block 0: this rank has begun
 *     ... rounds: symm_round_next, waits by symm_wait_more, symm_round_barrier ...
 *     symm_round_meet(args, &round, warp);               block 0: all peers have begun too
 *     __syncthreads();                                   no thread needs the counters any more
 *     symm_round_close(args, &round);
 * Kernels of barriers end by symm_round_end, which polls the call words, too.
 * Kernels of one round or two, by packets, close it while their data are in flight, after a
 * __syncthreads, and meet after that.
 * Announce comes before the first wait; a latency-bound kernel sends its first data before.
 * No thread returns early: after a failure round.ok is false in the thread that saw it, the
 * thread goes on through every __syncthreads, but waits, sends and writes nothing more.
 * Threads of a block may differ, since a mark can arrive while they open. So any thread that
 * stops reports it (args.result). Before a thread acts for its whole block (symm_round_arrive,
 * a put's signal) symm_round_agree makes ok false in all threads if it is false in any.
 *
 * Counters: own block's {round, call}, read by every thread, then written by one; block 0
 * writes those of blocks that were not launched. A channel's kernels are ordered by their
 * stream, so all slots agree between kernels. A written counter means that the block's threads
 * have begun, not that the call has ended.
 *
 * Call words: member m's word of call c is in call[c & 1][m] of every pad. No member ends
 * call c before it has seen all members' words c, or passed a barrier of all in it: each call is a
 * barrier of "all have begun", and by stream order "all have finished c - 1". So word c + 2
 * overwrites word c only when all members have finished with it, and scratch of call c may be
 * reused in call c + 2. A member whose call fails does not cancel its round words. So
 * a member that passes a last barrier checks after its own reads whether a call word was
 * cancelled. If not, no host knew of a failure before these reads, and the data were valid.
 *
 * Failure (symm_round_fail): this rank's arrival is cancelled, tag 0, so that peers do not wait for
 * the deadline; not after a mismatch, so that peers detect it, too. Then the first thread of the
 * team's kernels on this rank claims the record in host memory and fills it, `state` last, by a
 * release: a rank that learns of the failure from the host finds the arrival cancelled everywhere.
 * failed[channel] stops the other blocks at their next poll, and state->stopped all kernels of the
 * team at their start. A failure that the host has found (record.abort) concerns all channels: the
 * kernel that sees it in a wait marks them all, before its own end. state->reported, which streams
 * and the watchdog copy from record.abort, is for kernels after operations that wait without a
 * kernel. It lies beside `stopped`: a kernel that begins loads the two at once. Where the call
 * before on the stream is another team's (SYMM_CUDA_BEFORE), the marks of that call's channel and
 * of that team's host count, too: the call and its team fail. Of one-sided calls that a graph
 * holds, or whose stream has no channel, that is the last one, which each failure sets.
 *
 * record.missing: for SYMM_ERR_TIMEOUT the members that had not begun the call (if all had,
 * those whose data or round word was awaited); for SYMM_ERR_MISMATCH those with another tag;
 * for SYMM_ERR_ABORTED members that cancelled their arrival, or 0 if the host set
 * record.abort. A peer's cancelled arrival while others are missing counts as
 * SYMM_ERR_TIMEOUT: the peer cancelled it because of them.
 *
 * A kernel's end: what it has loaded, and what it has stored in own memory, is performed for
 * every observer before the kernels after it on its stream go past symm_round_open; so their
 * first words may be relaxed (symm_round_begin). What it has stored at a peer is not, in a
 * graph: such stores may take 100 us more, and words of later kernels overtake them. So a kernel
 * that stores at a peer either has it awaited there (packets, words) or ends with a release or a
 * fence. docs/memory-model.md has the measurements.
 *
 * Dependent launch. The next kernel of the stream becomes resident when every block has
 * triggered; it then holds its room on the multiprocessors until this kernel has ended. So a
 * kernel that may wait for long must not trigger: a queue of calls after it would fill the
 * device and shut out the very kernels that the peers wait for. Block 0 triggers once all
 * members have begun the call (symm_round_meet, or its first barrier), the other blocks at
 * once, after the kernels before: at most one kernel is resident beside the one that runs,
 * and none beside one that waits for a member that has not begun. Small grids (SYMM_CUDA_EARLY,
 * symm__cuda_shape_early) trigger at once: that saves 0.15 us of theirs, and 0.2 to 0.3 us of
 * clusters. The runtime makes no large kernel a dependent of one. A wait for a signal (p2p.cu)
 * triggers at once, or where it is met: cuda/stream_order.h says when.
 *
 * A fresh pad holds zeros: word 0 (tag 0, call 0) never means a cancelled arrival. Tags are not 0.
 */
#ifndef SYMM_KERNELS_CUDA_ROUND_CUH
#define SYMM_KERNELS_CUDA_ROUND_CUH

#include "kernels/cuda/members.cuh"
#include "kernels/cuda/port.cuh"

#if !defined(SYMM_POLLS)
#define SYMM_POLLS                                                                     \
    2048u /* without success, before symm_wait_more calls symm_round_poll */
#endif

/* One thread's view of the call. */
struct symm_round {
    uint32_t round; /* of the last round that has begun */
    uint32_t call;  /* this call's number */
    bool ok;        /* false: wait, send and write nothing more */
};

/* One wait; starts as {}. */
struct symm_wait {
    uint32_t polls;
    uint64_t deadline; /* as symm_round_poll returned it; 0: not called yet */
};

/* ---- Where things are ------------------------------------------------------------ */

#if defined(SYMM_WIDE)
typedef struct symm_device_wide_channel symm_words;
#else
typedef struct symm_device_channel symm_words;
#endif

SYMM_DEVICE symm_words *symm_channel_of(const struct symm_cuda_args &args,
                                        uint32_t member)
{
    char *pad = args.team.base[member] + args.team.pad;

#if defined(SYMM_WIDE)
    return &((struct symm_device_wide_pads *)(pad + SYMM_PAD_BYTES))
                ->channel[args.channel];
#else
    return &((struct symm_pad *)pad)->device.channel[args.channel];
#endif
}

SYMM_DEVICE uint32_t *symm_failed_of(const struct symm_cuda_args &args)
{
    return &args.team.state->failed[args.channel * 16];
}

/* ---- Failure --------------------------------------------------------------------- */

/* What args.team.record is the beginning of, and args.team.state. */
SYMM_DEVICE struct symm_cuda_record *symm_record_of(const struct symm_cuda_args &args)
{
    return (struct symm_cuda_record *)args.team.record;
}

SYMM_DEVICE struct symm_cuda_clock *symm_clock_of(const struct symm_cuda_args &args)
{
    return &((struct symm_cuda_state *)args.team.state)->clock[args.channel];
}

SYMM_DEVICE void symm_round_record(const struct symm_cuda_args &args, uint32_t call,
                                   uint32_t status, symm_members missing)
{
    struct symm_device_record *record = args.team.record;

    if (symm_port_exchange32(&record->claimed, 1) != 0)
        return;
    symm_port_store32_relaxed(&record->channel, args.channel);
    symm_port_store32_relaxed(&record->tag, args.tag);
    symm_port_store32_relaxed(&record->counter, call);
    symm_port_store32_relaxed(&record->signal, (uint32_t)args.signal);
    SYMM_UNROLL
    for (uint32_t w = 0; w < SYMM_WORDS_OF_SET; w++) {
        symm_port_store32_relaxed(&record->missing[w], symm_members_word(missing, w));
        symm_port_store32_relaxed(
            &symm_record_of(args)->held_up[w],
            symm_port_load32_relaxed(&symm_clock_of(args)->held_up[w]));
    }
    SYMM_NO_UNROLL
    for (int m = 0; m < args.team.size; m++)
        symm_port_store64_relaxed(
            &record->seen[m],
            symm_port_load64_relaxed(
                &symm_channel_of(args, (uint32_t)args.team.rank)->call[call & 1][m]));
    symm_port_store32_release(&record->state, status);
}

/* A peer that is one call ahead polls slot ~call & 1, so both slots are cancelled. */
SYMM_DEVICE void symm_round_cancel(const struct symm_cuda_args &args, uint32_t call)
{
    SYMM_NO_UNROLL
    for (int m = 0; m < args.team.size; m++) {
        symm_words *pad = symm_channel_of(args, (uint32_t)m);

        symm_port_store64_relaxed(&pad->call[call & 1][args.team.rank],
                                  symm_device_word(0, call));
        symm_port_store64_relaxed(&pad->call[~call & 1][args.team.rank],
                                  symm_device_word(0, call + 1));
    }
}

/* status: minus the symm_status. The last mark is that of one-sided calls without a channel. */
SYMM_DEVICE void symm_round_fail(const struct symm_cuda_args &args, uint32_t call,
                                 uint32_t status, symm_members missing)
{
    if (status != (uint32_t)-SYMM_ERR_MISMATCH)
        symm_round_cancel(args, call);
    symm_round_record(args, call, status, missing);
    symm_port_store32_relaxed(symm_failed_of(args), status);
    symm_port_store32_relaxed(&args.team.state->failed[SYMM_CHANNELS * 16],
                              (uint32_t)-SYMM_ERR_ABORTED);
    symm_port_store32_relaxed(&args.team.state->stopped, status);
    if (args.result)
        symm_port_store32_relaxed(args.result, status);
}

/* Has the member of this word cancelled its arrival, in this call or another? */
SYMM_DEVICE bool symm_cancelled(uint64_t word, uint32_t call)
{
    return word >> 32 == 0 && word != 0 && (uint32_t)word - call <= 2;
}

/* Those of `members` whose hosts have queued this call; 0 where launches are not counted (a
 * replayed graph). */
SYMM_DEVICE symm_members symm_round_queued(const struct symm_cuda_args &args,
                                           symm_members members)
{
    const uint32_t *queued = symm_record_of(args)->queued[args.channel];
    symm_members found = SYMM_NO_MEMBERS;

    if (args.sequence == 0)
        return SYMM_NO_MEMBERS;
    SYMM_NO_UNROLL
    for (int m = 0; m < args.team.size; m++)
        if (symm_members_has(members, (uint32_t)m) &&
            (int32_t)(symm_port_load32_relaxed(&queued[m]) - args.sequence) >= 0)
            symm_members_add(&found, (uint32_t)m);
    return found;
}

/*
 * The time at which the call ends, one for all its rounds and waits; 0: now. The call's first
 * use of this function starts the clock. While all members that have not begun the call
 * (`absent`) have queued it, only their streams delay them: then the deadline moves on with
 * the time, until args.limit after the clock's start.
 */
SYMM_DEVICE uint64_t symm_round_deadline(const struct symm_cuda_args &args,
                                         uint32_t call, symm_members absent)
{
    struct symm_cuda_clock *clock = symm_clock_of(args);
    const symm_members queued = symm_round_queued(args, absent);
    uint64_t now = symm_port_now(), end;

    SYMM_UNROLL
    for (uint32_t w = 0; w < SYMM_WORDS_OF_SET; w++)
        symm_port_store32_relaxed(&clock->held_up[w], symm_members_word(queued, w));
    /* acquire: pairs with the release below, of a thread of this kernel */
    if (symm_port_load32_acquire(&clock->call) != call ||
        symm_port_load64_relaxed(&clock->end) == 0) {
        symm_port_store64_relaxed(&clock->begin, now);
        symm_port_store64_relaxed(&clock->end, now + args.team.timeout);
        symm_port_store32_release(&clock->call, call);
    }
    if (symm_members_any(absent) && symm_members_same(queued, absent)) {
        if (now >= symm_port_load64_relaxed(&clock->begin) + args.limit)
            return 0;
        symm_port_store64_relaxed(&clock->end, now + args.team.timeout);
    }
    end = symm_port_load64_relaxed(&clock->end);
    return now < end ? end : 0;
}

/*
 * Looks for the reason why a wait lasts. Returns the time at which the wait ends, or 0 if it has
 * ended now; then the failure has been reported. `awaited`: bits of the members waited for.
 */
SYMM_COLD uint64_t symm_round_poll(const struct symm_cuda_args &args, uint32_t call,
                                   uint64_t deadline, symm_members awaited)
{
    const symm_words *own = symm_channel_of(args, (uint32_t)args.team.rank);
    symm_members absent = SYMM_NO_MEMBERS, other = SYMM_NO_MEMBERS,
                 gone = SYMM_NO_MEMBERS;
    uint32_t status;

    status = symm_port_load32_relaxed(symm_failed_of(args));
    if (status == 0)
        status = symm_port_load32_relaxed(&args.team.state->reported);
    if (status !=
        0) { /* of this kernel or, with no arrival cancelled yet, of another's wait */
        if (status != (uint32_t)-SYMM_ERR_MISMATCH)
            symm_round_cancel(args, call);
        if (args.result)
            symm_port_store32_relaxed(args.result, status);
        return 0;
    }
    SYMM_NO_UNROLL
    for (int m = 0; m < args.team.size; m++) {
        uint64_t word = symm_port_load64_relaxed(&own->call[call & 1][m]);

        if (m == args.team.rank)
            continue;
        if (symm_cancelled(word, call))
            symm_members_add(&gone, (uint32_t)m);
        else if ((uint32_t)word != call || word == 0)
            symm_members_add(&absent, (uint32_t)m);
        else if (word != symm_device_word(args.tag, call))
            symm_members_add(&other, (uint32_t)m);
    }
    if (symm_members_any(other))
        status = (uint32_t)-SYMM_ERR_MISMATCH, awaited = other;
    else if (symm_members_any(gone) && !symm_members_any(absent))
        status = (uint32_t)-SYMM_ERR_ABORTED, awaited = gone;
    else if (symm_members_any(absent))
        awaited = absent;
    if (status == 0 && !symm_members_any(gone)) {
        status = symm_port_load32_relaxed(&args.team.record->abort);
        if (status != 0) {
            symm__device_halt(&args.team, status);
            awaited = SYMM_NO_MEMBERS;
        } else {
            if (symm_members_any(absent) || deadline == 0 ||
                symm_port_now() >= deadline)
                deadline = symm_round_deadline(args, call, absent);
            if (deadline != 0)
                return deadline;
        }
    }
    if (status == 0)
        status = (uint32_t)-SYMM_ERR_TIMEOUT;
    symm_round_fail(args, call, status, awaited);
    return 0;
}

/* After an unsuccessful poll. False: the wait ends. */
SYMM_DEVICE bool symm_wait_more(const struct symm_cuda_args &args, uint32_t call,
                                struct symm_wait *wait, symm_members awaited)
{
    symm_port_relax();
    if (++wait->polls < SYMM_POLLS)
        return true;
    wait->polls = 0;
    wait->deadline = symm_round_poll(args, call, wait->deadline, awaited);
    return wait->deadline != 0;
}

/* ---- The frame of a call --------------------------------------------------------- */

/* After this call the effects of the kernels before are visible. */
SYMM_DEVICE void symm_round_depend(const struct symm_cuda_args &args)
{
    if (args.flags & SYMM_CUDA_DEPENDENT)
        symm_port_dependent_wait();
}

/* The next kernel of the stream may become resident, once every block has called this or has
 * ended. Repeated calls do nothing more. */
SYMM_DEVICE void symm_round_trigger(const struct symm_cuda_args &args)
{
    if (args.flags & SYMM_CUDA_DEPENDENT)
        symm_port_dependent_launch();
}

/* 0, or the status with which the call ends because the call before it on the stream, of
 * another team, has failed: SYMM_ERR_ABORTED. The record names the team, once it is written. */
SYMM_COLD uint32_t symm_round_before(const struct symm_cuda_args &args)
{
    uint32_t failed = symm_port_load32_relaxed(
        &args.before->failed[(args.flags >> SYMM_CUDA_BEFORE_SHIFT) * 16]);

    if (failed == 0)
        failed = symm_port_load32_relaxed(&args.before->reported);
    if (failed == 0)
        return 0;
    symm_port_store32_relaxed(&symm_record_of(args)->before, 1 + args.before_team);
    return (uint32_t)-SYMM_ERR_ABORTED;
}

/*
 * early(): loads of the caller's arrays. They are issued after those of the counters, before any
 * of these is used, so that no load waits for another.
 */
template <class EARLY>
SYMM_DEVICE struct symm_round symm_round_open(const struct symm_cuda_args &args,
                                              const EARLY &early)
{
    const uint64_t *block =
        (const uint64_t *)&args.team.state->block[args.channel][blockIdx.x];
    const uint32_t *marks = &args.team.state->reported;
    struct symm_round round;
    uint64_t counters;
    uint32_t failed, stopped;

    symm_port_settle(block);
    symm_port_settle(marks);
    symm_round_depend(args);
    if (blockIdx.x != 0 || (args.flags & SYMM_CUDA_EARLY))
        symm_round_trigger(args);
    counters = symm_port_load64_relaxed(block);
    failed = symm_port_load_pair_relaxed(marks, &stopped);
    early();
    failed = failed != 0 ? failed : stopped;
    round.round = (uint32_t)counters;
    round.call = (uint32_t)(counters >> 32) + 1;
    if ((args.flags & SYMM_CUDA_BEFORE) && failed == 0) {
        failed = symm_round_before(args);
        if (failed != 0)
            symm_round_fail(args, round.call, failed, SYMM_NO_MEMBERS);
    }
    round.ok = failed == 0;
    if (failed != 0 &&
        args.result) /* every thread that stops stores it: others may not see it */
        symm_port_store32_relaxed(args.result, failed);
    return round;
}

/* Loads of the inputs may be issued before: but not under dependent launch. */
SYMM_DEVICE struct symm_round symm_round_open(const struct symm_cuda_args &args)
{
    return symm_round_open(args, [] {});
}

/* Writes this rank's call word at all members, by `size` threads of block 0, from `thread` 0
 * on. */
SYMM_DEVICE void symm_round_tell(const struct symm_cuda_args &args,
                                 const struct symm_round &round, uint32_t thread)
{
    if (blockIdx.x != 0)
        return;
    symm_each_member(args, thread, [&](uint32_t m) {
        if (round.ok)
            symm_port_store64_relaxed(
                &symm_channel_of(args, m)->call[round.call & 1][args.team.rank],
                symm_device_word(args.tag, round.call));
    });
}

SYMM_DEVICE void symm_round_announce(const struct symm_cuda_args &args,
                                     const struct symm_round *round)
{
    symm_round_tell(args, *round, threadIdx.x);
}

/* Begins a round; the same number in every block and on every rank. */
SYMM_DEVICE uint32_t symm_round_next(struct symm_round *round)
{
    round->round = round->round + 1 == SYMM_ROUND_LIMIT ? 0 : round->round + 1;
    return round->round;
}

/* All peers have begun this call, with this tag: by the whole of warp `warp` of block 0, which
 * then triggers the dependent kernel. */
SYMM_DEVICE void symm_round_meet(const struct symm_cuda_args &args,
                                 struct symm_round *round, uint32_t warp)
{
    const uint32_t lane = threadIdx.x - 32 * warp;
    const uint64_t *words;
    struct symm_wait wait = {};

#if defined(                                                                           \
    SYMM_PLANT_EARLY) /* for tests: a rank that is done does not wait for the others */
    return;
#endif
    if (blockIdx.x != 0 || lane >= SYMM_WARP)
        return;
    words = symm_channel_of(args, (uint32_t)args.team.rank)->call[round->call & 1];
    SYMM_UNROLL
    for (uint32_t k = 0; k < SYMM_WARPS_OF_RANKS; k++) {
        const uint32_t m = lane + SYMM_WARP * k;
        const uint64_t *word = &words[m];

        while (m < (uint32_t)args.team.size && round->ok &&
               symm_port_load64_relaxed(word) !=
                   symm_device_word(args.tag, round->call))
            round->ok = symm_wait_more(args, round->call, &wait, symm_member(m));
    }
    __syncwarp();
    symm_round_trigger(args);
}

/*
 * A block stops. Some of its threads may have opened the call before a failure of another wait,
 * and others after it. Then one has announced the arrival and none polls, so only this function
 * cancels the arrival.
 */
SYMM_COLD void symm_round_stop(const struct symm_cuda_args &args, uint32_t call)
{
    uint32_t status = symm_port_load32_relaxed(symm_failed_of(args));

    if (status != (uint32_t)-SYMM_ERR_MISMATCH)
        symm_round_cancel(args, call);
}

/* A __syncthreads after which ok is false in all threads if it was false in one. Follows
 * symm_round_tell. */
SYMM_DEVICE void symm_round_agree(const struct symm_cuda_args &args,
                                  struct symm_round *round)
{
    round->ok = !symm_port_sync_any(!round->ok);
    if (!round->ok && threadIdx.x == 0)
        symm_round_stop(args, round->call);
}

/* Own block's counters, by one thread after a __syncthreads that follows every open. */
SYMM_DEVICE void symm_round_leave(const struct symm_cuda_args &args,
                                  const struct symm_round &round)
{
    struct symm_device_block next = {round.round, round.call};

    if (round.ok)
        args.team.state->block[args.channel][blockIdx.x] = next;
}

/* Those of the blocks that were not launched, by `step` threads of block 0: at any time from
 * the call's last round on, since no rank reads them. */
SYMM_DEVICE void symm_round_skip(const struct symm_cuda_args &args,
                                 const struct symm_round &round, uint32_t thread,
                                 uint32_t step)
{
    struct symm_device_block *block = args.team.state->block[args.channel];
    struct symm_device_block next = {round.round, round.call};

    if (blockIdx.x != 0 || !round.ok)
        return;
    SYMM_NO_UNROLL
    for (uint32_t b = gridDim.x + thread; b < SYMM_DEVICE_BLOCKS; b += step)
        block[b] = next;
}

/* The end, after a __syncthreads that follows every thread's open. */
SYMM_DEVICE void symm_round_close(const struct symm_cuda_args &args,
                                  const struct symm_round *round)
{
    if (threadIdx.x == 0)
        symm_round_leave(args, *round);
    symm_round_skip(args, *round, threadIdx.x, blockDim.x);
}

/*
 * What a kernel that closes its call early does beside its data, but for symm_round_tell: by
 * warp `warp` of each block, after the __syncthreads.
 */
SYMM_DEVICE void symm_round_finish(const struct symm_cuda_args &args,
                                   struct symm_round *round, uint32_t warp)
{
    const uint32_t lane = threadIdx.x - SYMM_WARP * warp;

    if (lane == 0)
        symm_round_leave(args, *round);
    symm_round_skip(args, *round, lane, SYMM_WARP);
    symm_round_meet(args, round, warp);
}

/* The words of round e of this block at member m, one from each member. */
SYMM_DEVICE uint64_t *symm_round_words(const struct symm_cuda_args &args, uint32_t m,
                                       uint32_t e)
{
    return symm_channel_of(args, m)->round[blockIdx.x][e & 1];
}

/* The round's word to member m, which orders nothing. */
SYMM_DEVICE void symm_round_mark(const struct symm_cuda_args &args,
                                 const struct symm_round &round, uint32_t m)
{
    symm_port_store64_relaxed(&symm_round_words(args, m, round.round)[args.team.rank],
                              symm_device_word(args.tag, round.round));
}

/*
 * One round in which this block and the same block of every peer wait for each other, in two
 * halves: what the block's threads (and kernels before) have written before they arrive is
 * visible to the same blocks of the peers after their waits. The result is in round->ok of
 * every thread. members: the peers to signal and to wait for, if not all (a bit each). last: the
 * call's last wait, for all, which no member has begun and cancelled.
 */
SYMM_DEVICE void symm_round_arrive(const struct symm_cuda_args &args,
                                   struct symm_round *round,
                                   symm_members members = SYMM_ALL_MEMBERS)
{
    const uint32_t e = symm_round_next(round);

    symm_round_agree(args, round); /* a thread arrives for its block */
    symm_each_member(args, threadIdx.x, [&](uint32_t m) {
        if (symm_members_has(members, m) && round->ok)
            symm_port_store64_release(&symm_round_words(args, m, e)[args.team.rank],
                                      symm_device_word(args.tag, e));
    });
}

/* The same for one member. False: the wait has failed. */
SYMM_DEVICE bool symm_round_await(const struct symm_cuda_args &args,
                                  const struct symm_round &round, uint32_t m, bool last)
{
    const uint32_t e = round.round;
    struct symm_wait wait = {};
    const uint64_t *word;
    uint64_t seen, begun = 0;

    if (last) /* in flight while the words are polled */
        begun = symm_port_load64_relaxed(
            &symm_channel_of(args, (uint32_t)args.team.rank)->call[round.call & 1][m]);
    word = &symm_round_words(args, (uint32_t)args.team.rank, e)[m];
    while ((seen = symm_port_load64_acquire(word)) != symm_device_word(args.tag, e)) {
        bool other = (uint32_t)seen == e && seen >> 32 != 0;

        if (other)
            symm_round_fail(args, round.call, (uint32_t)-SYMM_ERR_MISMATCH,
                            symm_member(m));
        if (other || !symm_wait_more(args, round.call, &wait, symm_member(m)))
            return false;
    }
    return !symm_cancelled(begun, round.call) ||
           symm_round_poll(args, round.call, 0, symm_member(m)) != 0;
}

SYMM_DEVICE void symm_round_wait(const struct symm_cuda_args &args,
                                 struct symm_round *round,
                                 symm_members members = SYMM_ALL_MEMBERS,
                                 bool last = false)
{
    symm_each_member(args, threadIdx.x, [&](uint32_t m) {
        if (symm_members_has(members, m) && round->ok)
            round->ok = symm_round_await(args, *round, m, last);
    });
    symm_round_agree(args, round);
    symm_round_trigger(
        args); /* block 0 has read the words of all members, or of those it needs */
}

SYMM_DEVICE void symm_round_barrier(const struct symm_cuda_args &args,
                                    struct symm_round *round)
{
    symm_round_arrive(args, round);
    symm_round_wait(args, round);
}

/* How a call is opened, for kernels that read more than its counters. */
struct symm_round_opener {
    SYMM_DEVICE struct symm_round operator()(const struct symm_cuda_args &args) const
    {
        return symm_round_open(args);
    }
};

/*
 * A call's beginning, with its arrival at an entry barrier: symm_round_wait is to follow. What
 * the words report, loads and stores of own memory, kernels before have done; so no release
 * is needed, which would cost a third of a barrier.
 */
template <class OPEN>
SYMM_DEVICE struct symm_round symm_round_begin(const struct symm_cuda_args &args,
                                               const OPEN &open, symm_members members)
{
    struct symm_round round = open(args);

    symm_round_next(&round);
    symm_each_member(args, threadIdx.x, [&](uint32_t m) {
        if (symm_members_has(members, m) && round.ok)
            symm_round_mark(args, round, m);
    });
    symm_round_announce(args, &round);
    __syncwarp(); /* a failure in a wait stops those that open after it */
    return round;
}

SYMM_DEVICE struct symm_round symm_round_begin(const struct symm_cuda_args &args,
                                               symm_members members = SYMM_ALL_MEMBERS)
{
    return symm_round_begin(args, symm_round_opener(), members);
}

/* A call's beginning, with or without an entry barrier. */
template <class OPEN = symm_round_opener>
SYMM_DEVICE struct symm_round symm_round_enter(const struct symm_cuda_args &args,
                                               bool barrier, const OPEN &open = {})
{
    struct symm_round round;

    if (barrier) {
        round = symm_round_begin(args, open, SYMM_ALL_MEMBERS);
        symm_round_wait(args, &round);
    } else {
        round = open(args);
        symm_round_announce(args, &round);
    }
    return round;
}

/* Ends a call, with or without an exit barrier; the counters are written while the barrier's
 * words are in flight. */
SYMM_DEVICE void symm_round_end(const struct symm_cuda_args &args,
                                struct symm_round *round, bool barrier)
{
    if (barrier)
        symm_round_arrive(args, round);
    else
        __syncthreads();
    symm_round_close(args, round);
    if (barrier)
        symm_round_wait(args, round, SYMM_ALL_MEMBERS, true);
    else
        symm_round_meet(args, round, 0);
}

#endif
