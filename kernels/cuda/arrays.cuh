/* SPDX-License-Identifier: MIT */
/*
 * arrays.cuh - where the members' inputs and outputs lie, for kernels that read or write them
 * directly: at one offset in every heap, or at the addresses of symm_cuda_args.pointers.
 *
 * A kernel's text is compiled twice, with symm_arrays as one of two classes. NAME is for
 * symmetric memory; with SYMM_BY_POINTER it is NAME_by_pointer, in a module of its own, for calls
 * of a graph whose arrays are any memory of the devices. (In one module the compiler would
 * treat addresses of both as unknown ones.) The text uses either class in this way:
 *     const symm_arrays arrays(args);        before the call is opened
 *     ... symm_round_enter(args, barrier, arrays)   which opens the call by `arrays`
 *     ... arrays.in(plus).at(r), arrays.out(r)
 * `plus`: bytes from the beginning of every member's array.
 *
 * By pointer: a call whose addresses are not there, or are no longer valid, fails. Thread 0
 * of each block cancels this rank's arrival and fills the record; no thread of the block uses
 * an address. Blocks may decide differently, since the host can change the state while a
 * kernel begins; then the blocks that go on find their peers, but the call has failed here by
 * the record, and at the peers by the cancelled arrival: symm_round_wait, with `last`, and
 * symm_round_meet check it after the last access. The memory of an entry that is released stays
 * until kernels that have begun before have ended (symm_team_capture_release).
 *
 * Loads of an entry do not wait for the kernel before: only the host writes it. The state is
 * loaded before the addresses, by each thread that loads some of them: acquire, it pairs with
 * the order of the host's copies. So if all have seen READY, all addresses are there.
 */
#ifndef SYMM_KERNELS_CUDA_ARRAYS_CUH
#define SYMM_KERNELS_CUDA_ARRAYS_CUH

#include <stddef.h>

#include "kernels/cuda/pull.cuh"

/* ---- By offset ------------------------------------------------------------------- */

struct symm_by_offset {
    const struct symm_cuda_args &args;

    explicit SYMM_DEVICE symm_by_offset(const struct symm_cuda_args &a) : args(a) {}

    SYMM_DEVICE struct symm_round operator()(const struct symm_cuda_args &a) const
    {
        return symm_round_open(a);
    }

    SYMM_DEVICE struct symm_at_offset in(uint64_t plus) const
    {
        return {args, args.in_offset + plus};
    }

    /* The input of the rank p, which is `ahead` ranks after this one; gathers in place. */
    SYMM_DEVICE const char *in_place(uint32_t p, int64_t ahead) const
    {
        return args.team.base[p] + args.in_offset + ahead * args.in_step;
    }

    SYMM_DEVICE char *out(uint32_t r) const
    {
        return args.team.base[r] + args.out_offset;
    }

    SYMM_DEVICE bool out_aligned(void) const
    {
        return args.out_offset % 16 == 0;
    }

    /* Whether peers' outputs are aligned as this rank's is. */
    SYMM_DEVICE bool out_alike(void) const
    {
        return true;
    }
};

/* ---- By pointer ------------------------------------------------------------------ */

/* A block's copy of its call's entry; shared memory. */
struct symm_pointers {
    uint64_t in[SYMM_FEW_RANKS], out[SYMM_FEW_RANKS];
    uint64_t bits; /* in_bits, out_bits */
};

struct symm_at_pointer {
    const uint64_t *array;
    uint64_t plus;
    bool whole; /* all of them are at multiples of 16 */

    SYMM_DEVICE const char *at(uint32_t r) const
    {
        return symm_port_address(array[r] + plus);
    }

    SYMM_DEVICE bool aligned(void) const
    {
        return whole;
    }
};

/* The entry is not usable: as in any failed call, by one thread of each block. */
SYMM_COLD void symm_pointers_refuse(const struct symm_cuda_args &args, uint32_t call)
{
    symm_port_store32_relaxed(&symm_record_of(args)->pointers, 1 + args.pointers->call);
    symm_round_fail(args, call, (uint32_t)-SYMM_ERR_ABORTED, SYMM_NO_MEMBERS);
}

struct symm_by_pointer {
    const struct symm_pointers &here;
    bool ready;

    static SYMM_DEVICE struct symm_pointers &shared(void)
    {
        __shared__ struct symm_pointers pointers;

        return pointers;
    }

    /* All threads; a __syncthreads. */
    explicit SYMM_DEVICE symm_by_pointer(const struct symm_cuda_args &args)
        : here(shared())
    {
        const uint64_t *entry = (const uint64_t *)args.pointers;
        uint64_t *to = (uint64_t *)&shared();
        bool seen = true;

        SYMM_NO_UNROLL
        for (uint32_t t = threadIdx.x; t < sizeof(here) / sizeof(*to);
             t += blockDim.x) {
            seen = symm_port_load32_acquire(&args.pointers->state) ==
                       SYMM_CUDA_POINTERS_READY &&
                   seen;
            to[t] = symm_port_load64_relaxed(&entry[t]);
        }
        ready = !symm_port_sync_any(!seen);
    }

    SYMM_DEVICE struct symm_round operator()(const struct symm_cuda_args &args) const
    {
        struct symm_round round = symm_round_open(args);

        if (!ready) {
            if (threadIdx.x == 0 && round.ok)
                symm_pointers_refuse(args, round.call);
            round.ok = false;
        }
        return round;
    }

    SYMM_DEVICE struct symm_at_pointer in(uint64_t plus) const
    {
        return {here.in, plus, (((uint32_t)here.bits | plus) & 15) == 0};
    }

    SYMM_DEVICE const char *in_place(uint32_t p, int64_t) const
    {
        return symm_port_address(here.in[p]);
    }

    SYMM_DEVICE char *out(uint32_t r) const
    {
        return symm_port_address(here.out[r]);
    }

    SYMM_DEVICE bool out_aligned(void) const
    {
        return (here.bits >> 32 & 15) == 0;
    }

    SYMM_DEVICE bool out_alike(void) const
    {
        return out_aligned();
    }
};

static_assert(sizeof(struct symm_pointers) ==
                  offsetof(struct symm_cuda_pointers, state),
              "a block copies the beginning of an entry");

#if defined(SYMM_BY_POINTER)
typedef struct symm_by_pointer symm_arrays;
#define SYMM_KERNEL_ARRAYS(name) SYMM_KERNEL(name##_by_pointer)
#define SYMM_KERNEL_PULLS(name)  SYMM_KERNEL_OF(name##_by_pointer, SYMM_PULL_THREADS)
#else
typedef struct symm_by_offset symm_arrays;
#define SYMM_KERNEL_ARRAYS(name) SYMM_KERNEL(name)
#define SYMM_KERNEL_PULLS(name)  SYMM_KERNEL_OF(name, SYMM_PULL_THREADS)
#endif

#endif
