/* SPDX-License-Identifier: MIT */
/*
 * cluster.cuh - words that the blocks of a cluster (sm_90 and later) hand each other through shared
 * memory.
 *
 * A gate is an mbarrier. It opens when one thread of its block has armed it and as many bytes have
 * come as that thread said, from any blocks, before or after. Then its next phase begins; the first
 * one has parity 0. A thread that has waited at a gate sees the words that came through it.
 *
 * Blocks of a cluster run at the same time. A block may send once it has met all others
 * (symm_cluster_arrive, symm_cluster_wait), and may end once it has waited for all that is sent to
 * it. Why a word may be sent to the same place again is for the caller to show.
 *
 * A struct of shared memory in which blocks hand each other words is an array of
 * SYMM_CLUSTER_COPIES; a block has element symm_cluster_copy(). On a device that is one. In the
 * simulator the blocks of a cluster run on one thread of the operating system, whose variables
 * stand for shared memory.
 */
#ifndef SYMM_KERNELS_CUDA_CLUSTER_CUH
#define SYMM_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/port.cuh"

#if defined(SYMM_SIMT)

#define SYMM_PORT_CLUSTERS  true
#define SYMM_CLUSTER_COPIES (1u << SYMM_CLUSTER_MOST)

struct symm_gate {
    int64_t missing; /* bytes; negative: they came before the gate was armed */
    uint32_t armed, phase;
};

SYMM_DEVICE uint32_t symm_cluster_copy(void)
{
    return simt_cluster_member();
}

SYMM_DEVICE void symm_cluster_arrive(void)
{
    simt_cluster_arrive();
}

SYMM_DEVICE void symm_cluster_wait(void)
{
    simt_cluster_wait();
}

SYMM_DEVICE void symm_gate_init(struct symm_gate *gate)
{
    *gate = symm_gate{0, 0, 0};
}

SYMM_DEVICE void symm_gate_count(struct symm_gate *gate, int64_t missing)
{
    gate->missing += missing;
    if (gate->armed == 0 || gate->missing != 0)
        return;
    gate->armed = 0;
    gate->phase++;
}

SYMM_DEVICE void symm_gate_arm(struct symm_gate *gate, uint32_t bytes)
{
    gate->armed = 1;
    symm_gate_count(gate, bytes);
}

SYMM_DEVICE void symm_gate_wait(const struct symm_gate *gate, uint32_t parity)
{
    while ((__atomic_load_n(&gate->phase, __ATOMIC_RELAXED) & 1) == parity)
        simt_relax();
}

template <class SPACE>
SYMM_DEVICE void symm_gate_send(SPACE *own, uint32_t member, float *to, uint32_t bits,
                                struct symm_gate *gate)
{
    const ptrdiff_t bytes =
        ((ptrdiff_t)member - (ptrdiff_t)symm_cluster_copy()) * (ptrdiff_t)sizeof(*own);

    memcpy((char *)to + bytes, &bits, sizeof(bits));
    symm_gate_count((struct symm_gate *)((char *)gate + bytes), -(int64_t)sizeof(bits));
}

#else

#define SYMM_CLUSTER_COPIES 1u

struct symm_gate {
    uint64_t barrier;
};

SYMM_DEVICE uint32_t symm_cluster_copy(void)
{
    return 0;
}

#if __CUDA_ARCH__ >= 900
#define SYMM_PORT_CLUSTERS true

SYMM_DEVICE uint32_t symm_gate_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* By all threads of a block that have not ended, whole warps; each thread once. */
SYMM_DEVICE void symm_cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

SYMM_DEVICE void symm_cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* By one thread, before its symm_cluster_arrive. */
SYMM_DEVICE void symm_gate_init(struct symm_gate *gate)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
                 "fence.mbarrier_init.release.cluster;" ::"r"(symm_gate_address(gate))
                 : "memory");
}

SYMM_DEVICE void symm_gate_arm(struct symm_gate *gate, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     symm_gate_address(gate)),
                 "r"(bytes)
                 : "memory");
}

/* Until the phase of this parity has ended. */
SYMM_DEVICE void symm_gate_wait(const struct symm_gate *gate, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred open;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 open, [%0], %1;\n\t"
                 "@!open bra again;\n\t"
                 "}" ::"r"(symm_gate_address(gate)),
                 "r"(parity)
                 : "memory");
}

/* Stores bits at block `member`, at the place that `to` is here; `gate` there counts 4 bytes. */
template <class SPACE>
SYMM_DEVICE void symm_gate_send(SPACE *, uint32_t member, float *to, uint32_t bits,
                                struct symm_gate *gate)
{
    asm volatile("{\n\t"
                 ".reg .b32 there, counter;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %3;\n\t"
                 "mapa.shared::cluster.u32 counter, %2, %3;\n\t"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
                 "[there], %1, [counter];\n\t"
                 "}" ::"r"(symm_gate_address(to)),
                 "r"(bits), "r"(symm_gate_address(gate)), "r"(member)
                 : "memory");
}

#else /* no launch has clusters */
#define SYMM_PORT_CLUSTERS false

SYMM_DEVICE void symm_cluster_arrive(void) {}
SYMM_DEVICE void symm_cluster_wait(void) {}
SYMM_DEVICE void symm_gate_init(struct symm_gate *) {}
SYMM_DEVICE void symm_gate_arm(struct symm_gate *, uint32_t) {}
SYMM_DEVICE void symm_gate_wait(const struct symm_gate *, uint32_t) {}
template <class SPACE>
SYMM_DEVICE void symm_gate_send(SPACE *, uint32_t, float *, uint32_t, struct symm_gate *)
{
}

#endif
#endif
#endif
