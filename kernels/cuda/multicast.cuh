/* SPDX-License-Identifier: MIT */
/*
 * multicast.cuh - the part of port.cuh for multicast memory: one load that adds up what all
 * devices have at an address, one store that reaches them all.
 *
 * Needs sm_90; on older devices the operations are empty and no kernel may be chosen. The
 * same memory is also reached by the devices' own addresses: symm_multicast_fence stands
 * between an access by one kind of address and one by the other (fence.proxy.alias).
 *
 * With SYMM_SIMT an address names the memories that are bound to it:
 * simt_multicast(address, i, stores) gives the i-th that a load or a store reaches, NULL
 * after the last. It is declared weak; the program that runs the kernels defines it.
 */
#ifndef SYMM_KERNELS_CUDA_MULTICAST_CUH
#define SYMM_KERNELS_CUDA_MULTICAST_CUH

#include "kernels/cuda/reduce.cuh"

#if defined(SYMM_SIMT)

extern "C" __attribute__((weak)) void *simt_multicast(uint64_t address, unsigned index,
                                                      bool stores);

SYMM_DEVICE void symm_multicast_fence(void)
{
    symm_port_fence();
}

/* The sum of 16 bytes over all memories, in float32, rounded once. */
template <int DTYPE> SYMM_DEVICE struct symm_packet symm_multicast_sum(uint64_t address)
{
    symm_packet_sum<DTYPE> sum;
    const void *memory;
    int n = 0;

    while ((memory = simt_multicast(address, (unsigned)n, false)) != NULL) {
        sum.add(symm_port_load_packet((const struct symm_packet *)memory), n == 0);
        n++;
    }
    return sum.done(n);
}

SYMM_DEVICE void symm_multicast_store(uint64_t address, struct symm_packet packet)
{
    void *memory;

    for (unsigned n = 0; (memory = simt_multicast(address, n, true)) != NULL; n++)
        symm_port_store_packet((struct symm_packet *)memory, packet);
}

#else

SYMM_DEVICE void symm_multicast_fence(void)
{
    asm volatile("fence.proxy.alias;" ::: "memory");
}

/* The sum of 16 bytes over all devices; small floats are added in float32. */
template <int DTYPE> SYMM_DEVICE struct symm_packet symm_multicast_sum(uint64_t address)
{
    struct symm_packet v = {};

#if __CUDA_ARCH__ >= 900
#define SYMM_MULTICAST_SUM(type, letter)                                               \
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add" type                      \
                 " {%0, %1, %2, %3}, [%4];"                                            \
                 : "=" letter(v.word[0]), "=" letter(v.word[1]),                       \
                   "=" letter(v.word[2]), "=" letter(v.word[3])                        \
                 : "l"(address)                                                        \
                 : "memory")
    if constexpr (DTYPE == SYMM_BFLOAT16) {
        SYMM_MULTICAST_SUM(".acc::f32.v4.bf16x2", "r");
    } else if constexpr (DTYPE == SYMM_FLOAT16) {
        SYMM_MULTICAST_SUM(".acc::f32.v4.f16x2", "r");
    } else {
        float w[4];

        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32"
                     " {%0, %1, %2, %3}, [%4];"
                     : "=f"(w[0]), "=f"(w[1]), "=f"(w[2]), "=f"(w[3])
                     : "l"(address)
                     : "memory");
        SYMM_UNROLL
        for (int k = 0; k < 4; k++)
            v.word[k] = symm_port_bits(w[k]);
    }
#undef SYMM_MULTICAST_SUM
#endif
    return v;
}

SYMM_DEVICE void symm_multicast_store(uint64_t address, struct symm_packet v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address),
        "f"(symm_port_float(v.word[0])), "f"(symm_port_float(v.word[1])),
        "f"(symm_port_float(v.word[2])), "f"(symm_port_float(v.word[3]))
        : "memory");
#endif
}

#endif
#endif
