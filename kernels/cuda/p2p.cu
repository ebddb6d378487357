/* SPDX-License-Identifier: MIT */
/*
 * p2p.cu - put, put with a signal, signal, and the wait for one.
 *
 * A put copies args.bytes bytes from args.in to args.out, an address in the peer's heap as mapped
 * here (or, for a get, the other way round): any alignment, no overlap. It counts no rounds and
 * waits for no peer. The peer may read the data after a signal that follows on the same stream, or
 * a collective: a block of a put that raises no signal ends with one thread's fence of system
 * scope, behind the block's barrier, since a kernel's end is none for what was stored at a peer
 * (round.cuh).
 *
 * The signal. Every block that has copied adds one to a counter in local memory (state->done,
 * of this peer and signal number; signals of one number to one peer belong on one stream),
 * after a barrier of the block, with release and acquire of the device's scope. The last block has
 * thereby acquired the stores of all; it sets the counter back to zero, counts the signal in
 * state->sent and stores (tag, count) into the peer's pad with release: a rank that acquires that
 * word sees all that was put, and what earlier kernels of the stream put. The counter lives
 * in device memory and the kernel advances it, so a replayed graph raises new signals.
 *
 * One block needs no counter, which costs 0.7 us: it copies up to SYMM_PUT_PACKETS packets a
 * thread, all of them under way while it loads the counters.
 *
 * The wait (symm_device_signal_wait) is bounded. A wait that ends without its signal marks all
 * channels failed, so that the kernels after it do nothing, on its stream and on those that
 * events order after it, then writes the record (channel SYMM_CHANNELS), and sets
 * *args.result. A block of a put in which one thread has found such a mark does not count as
 * one that has copied.
 *
 * symm_p2p_put (args.signal -1: none); of one block of 32 threads: symm_p2p_signal,
 * symm_p2p_signal_wait
 */
#include "kernels/cuda/pull.cuh"

/* A put or a signal never waits for a peer, but may be resident after a kernel that does. At
 * most one in a row triggers before that has ended, so no queue becomes resident. */
SYMM_DEVICE void depend(const struct symm_cuda_args &args)
{
    if (args.flags & SYMM_CUDA_RELAY)
        symm_round_trigger(args);
    symm_round_depend(args);
    symm_round_trigger(args);
}

/* 0, or why no call may be made: the call before it on the stream, of another team, has
 * failed. Then this team fails, too. signal: that a wait awaits, for its sentence; else -1. */
SYMM_COLD uint32_t before(const struct symm_cuda_args &args, int signal)
{
    const uint32_t why = symm_round_before(args);

    if (why != 0)
        symm__device_unmet(&args.team, args.peer, signal, args.tag, 0, 0, why);
    return why;
}

/* 0, or why the team has failed; threads of a block may differ, and a thread that gets a failure
 * has reported it. Loads the counter, too: the loads overlap. */
SYMM_DEVICE uint32_t begin(const struct symm_cuda_args &args, const uint32_t *counter,
                           uint32_t *count)
{
    uint32_t failed, stopped;

    failed = symm_port_load_pair_relaxed(&args.team.state->reported, &stopped);
    *count = counter ? symm_port_load32_relaxed(counter) : 0;
    failed = failed != 0 ? failed : stopped;
    if ((args.flags & SYMM_CUDA_BEFORE) && failed == 0)
        failed = before(args, -1);
    if (failed != 0 && args.result)
        symm_port_store32_relaxed(args.result, failed);
    return failed;
}

/* Raises the call's signal for the count-th time; no thread reads the count before the next
 * kernel. */
SYMM_DEVICE void raise(const struct symm_cuda_args &args, uint32_t count)
{
    symm__device_raise(&args.team, args.peer, args.signal, args.tag, count);
    args.team.state->sent[args.peer][args.signal] = count;
}

/* The bytes of a put; the last packet of an aligned one, if it is not whole, by one thread. */
SYMM_DEVICE void copy(const struct symm_cuda_args &args)
{
    const bool aligned = symm_aligned(args.in) && symm_aligned(args.out);
    const uint64_t bytes = aligned ? args.bytes / 16 * 16 : args.bytes;

    symm_copy_rows(
        1, symm_packets(bytes), symm_thread(), symm_threads(),
        [&](uint32_t) { return (const char *)args.in; },
        [&](uint32_t) { return (char *)args.out; }, [&](uint32_t) { return bytes; });
    if (bytes != args.bytes && blockIdx.x == 0 && threadIdx.x == 0)
        symm_packet_scatter(args.out, bytes, args.bytes, 1, true,
                            symm_packet_gather(args.in, bytes, args.bytes, 1, true));
}

/* A thread's packets of a put of one block: the first, with the array's last bytes, and others. */
struct few {
    struct symm_packet first, next[SYMM_PUT_PACKETS - 1];
};

SYMM_DEVICE bool is_few(const struct symm_cuda_args &args)
{
    return gridDim.x == 1 &&
           args.bytes <= (uint64_t)16 * SYMM_PUT_PACKETS * blockDim.x &&
           symm_aligned(args.in) && symm_aligned(args.out) &&
           (args.bytes <= (uint64_t)16 * blockDim.x || args.bytes % 16 == 0);
}

SYMM_DEVICE void load_few(const struct symm_cuda_args &args, struct few *few)
{
    const uint32_t bytes = (uint32_t)args.bytes, first = 16 * threadIdx.x;

    few->first = symm_packet_gather(args.in, first, bytes, 1, true);
    if (bytes <= 16 * blockDim.x)
        return;
    SYMM_UNROLL
    for (uint32_t u = 1; u < SYMM_PUT_PACKETS; u++) {
        const uint32_t at = first + 16 * u * blockDim.x;

        few->next[u - 1] = symm_port_packet_if(at < bytes, (const char *)args.in + at);
    }
}

SYMM_DEVICE void store_few(const struct symm_cuda_args &args, const struct few &few)
{
    const uint32_t bytes = (uint32_t)args.bytes, first = 16 * threadIdx.x;

    symm_packet_scatter(args.out, first, bytes, 1, true, few.first);
    if (bytes <= 16 * blockDim.x)
        return;
    SYMM_UNROLL
    for (uint32_t u = 1; u < SYMM_PUT_PACKETS; u++) {
        const uint32_t at = first + 16 * u * blockDim.x;

        if (at < bytes)
            *(struct symm_packet *)((char *)args.out + at) = few.next[u - 1];
    }
}

SYMM_KERNEL_BARE(symm_p2p_put)
{
    const bool signals = args.signal >= 0, at_once = is_few(args);
    struct few few = {};
    uint32_t count, failed;
    bool stopped;

    depend(args);
    if (at_once) /* in flight while the counters are */
        load_few(args, &few);
    failed = begin(
        args, signals ? &args.team.state->sent[args.peer][args.signal] : NULL, &count);
    if (failed == 0 && at_once)
        store_few(args, few);
    else if (failed == 0)
        copy(args);
    stopped = symm_port_sync_any(failed != 0);
    /* no release follows: round.cuh, "A kernel's end" */
    if (!signals && threadIdx.x == 0)
        symm_port_fence();
    if (!stopped && signals && threadIdx.x == 0) {
        uint32_t *done = &args.team.state->done[args.peer][args.signal];

        if (gridDim.x == 1) {
            raise(args, count + 1);
        } else if (symm_port_add32(done, 1) == gridDim.x - 1) {
            raise(args, count + 1);
            symm_port_store32_relaxed(done, 0);
        }
    }
}

SYMM_KERNEL_BARE(symm_p2p_signal)
{
    uint32_t count;

    depend(args);
    if (begin(args, &args.team.state->sent[args.peer][args.signal], &count) == 0 &&
        threadIdx.x == 0)
        raise(args, count + 1);
}

SYMM_KERNEL_BARE(symm_p2p_signal_wait)
{
    const uint32_t *counter = &args.team.state->awaited[args.peer][args.signal];
    uint32_t count, why, stopped;
    uint64_t seen;

    if (threadIdx.x != 0)
        return;
    symm_round_depend(args);
    if (args.flags & SYMM_CUDA_EARLY)
        symm_round_trigger(args);
    /* all three are under way */
    why = symm_port_load_pair_relaxed(&args.team.state->reported, &stopped);
    count = symm_port_load32_relaxed(counter);
    seen = symm_device_word_load(symm__device_word(&args.team, args.peer, args.signal));
    why = why != 0 ? why : stopped;
    if ((args.flags & SYMM_CUDA_BEFORE) && why == 0)
        why = before(args, args.signal);
    if (why == 0)
        why = (uint32_t)symm__device_await(&args.team, args.peer, args.signal, args.tag,
                                           count + 1, seen);
    if (!(args.flags & SYMM_CUDA_EARLY)) /* it waits for the peer no more */
        symm_round_trigger(args);
    if (why == 0)
        return;
    /* symm__device_unmet has marked all channels ABORTED; this one's mark is the reason */
    symm_port_store32_relaxed(symm_failed_of(args), why);
    symm_port_store32_relaxed(&args.team.state->stopped, why);
    if (args.result)
        symm_port_store32_relaxed(args.result, why);
}
