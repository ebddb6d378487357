/* SPDX-License-Identifier: MIT */
/*
 * norm.cuh - what an all_reduce_norm does with a row's sums: bias, residual, RMSNorm and
 * quantisation, as symm/norm.h says. An epilogue of row_exchange.cuh; its threads and packets are
 * those of struct symm_row_place.
 *
 * Sums of two elements are made in pairs where there is an instruction for it: its bits are those
 * of a sum in float32 that is rounded (port_numbers.cuh). Two steps are contracted: r * r is added
 * to the sum of squares by fma, and the sum x 1 / hidden to eps. Each thread adds its own squares
 * in the order of its packets, then the lanes of a warp, then the warps: so results depend only on
 * the shape of the row and on args.each, not on alignment, the grid, clusters or the number of
 * groups.
 * NaN is no maximum: a row's or group's scale is that of its other elements.
 *
 * Bias and weight stay in registers for all rows of a thread where they fit (P <= 4; the weight as
 * the factors in float32 if these fit, too); else each row loads them anew.
 */
#ifndef SYMM_KERNELS_CUDA_NORM_CUH
#define SYMM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/row_exchange.cuh"

#define SYMM_ROW_GROUPS                                                                \
    (SYMM_MAX_BLOCK / SYMM_WARP) /* of a block at most, and warps of one */

/* Partial results of a group's warps, in two buffers: one row's are read while the next row's are
 * written. With a cluster each block has those of all its blocks as group 0's; the gates count
 * them. */
struct alignas(16) symm_norm_space {
    float sum[2][SYMM_ROW_GROUPS][SYMM_ROW_GROUPS];
    float most[2][SYMM_ROW_GROUPS][SYMM_ROW_GROUPS];
    struct symm_gate sum_gate[2], most_gate[2];
    uint32_t failed[SYMM_ROW_GROUPS];
    uint32_t inverse; /* the bits of 1 / hidden, where registers are few */
};

/* The same memory for all instances of a kernel's template. */
SYMM_DEVICE struct symm_norm_space &symm_norm_shared(void)
{
    __shared__ struct symm_norm_space space[SYMM_CLUSTER_COPIES];

    return space[symm_cluster_copy()];
}

/* n / scale, rounded once, for n of which the quotient counts in e4m3. */
struct symm_norm_divisor {
    float scale, inverse;

    SYMM_DEVICE symm_norm_divisor(void) : scale(0), inverse(0) {}
    SYMM_DEVICE explicit symm_norm_divisor(float by) : scale(by), inverse(0)
    {
        if (by > 3.0e38f) /* infinity: quotients are 0, or NaN */
            scale = 0;
        else
            inverse = symm_port_divide(1.0f, by);
    }

    /* The first correction makes the right quotient or a neighbour of it; the remainder of that is
     * exact, and the inverse is rounded to nearest: so the second one rounds right. The remainder is
     * subtracted: a quotient of -0 stays -0. */
    SYMM_DEVICE float of(float n) const
    {
        float q = n * inverse;

        SYMM_UNROLL
        for (int i = 0; i < 2; i++)
            q = symm_port_fma(-symm_port_fma(q, scale, -n), inverse, q);
        return q;
    }
};

/* Four elements of e4m3. */
SYMM_DEVICE uint32_t symm_norm_e4m3(float a, float b, float c, float d)
{
#if defined(SYMM_PORT_E4M3)
    return symm_port_to_e4m3(a, b) | symm_port_to_e4m3(c, d) << 16;
#else
    typedef symm_float8<SYMM_FLOAT8_E4M3> e4m3;

    return e4m3::encode(a) | e4m3::encode(b) << 8 | e4m3::encode(c) << 16 |
           e4m3::encode(d) << 24;
#endif
}

template <int DTYPE, int P, bool LOOP, int THREADS, bool CLUSTER>
struct symm_norm_rows {
    typedef symm_row_place<DTYPE, P, LOOP, THREADS, CLUSTER> place_type;
    static constexpr int unrolled = place_type::unrolled;
    static constexpr uint32_t element = place_type::element, lanes = 16 / element;
    /* Loaded before the wait and kept for all rows, as registers allow: float16 has few, least with a
     * cluster. */
    static constexpr bool few = THREADS <= 256 || (CLUSTER && DTYPE == SYMM_FLOAT16);
    static constexpr bool weight_stays = !LOOP && P <= (few ? 1 : 2),
                          bias_stays = !LOOP && P == 1 && DTYPE != SYMM_FLOAT16,
                          as_factors = weight_stays && P * lanes <= 8;
    typedef symm_lamport::value value;

    const symm_norm &norm;
    const uint64_t &scale_step;
    const uint32_t &cluster;
    const place_type place; /* a reference into the exchange would keep it in memory */
    uint32_t inverse;       /* the bits of 1 / hidden */
    value bias[bias_stays ? P : 1], weight[weight_stays ? P : 1],
        residual[LOOP ? 1 : P];
    float factor[as_factors ? P * lanes : 1];
    float scale;      /* SYMM_NORM_QUANT_TENSOR: 1 / scale[0] */
    float squares[2]; /* of the row so far, of even and of odd columns */
    uint32_t turn;    /* rows so far */

    SYMM_DEVICE symm_norm_rows(const struct symm_cuda_args &args, const place_type &at)
        : norm(args.norm), scale_step(args.scale_step), cluster(args.cluster),
          place(at),
          inverse(symm_port_bits(symm_port_divide(1.0f, (float)(uint32_t)norm.hidden))),
          bias(), weight(), residual(), factor(), scale(0), squares(), turn(0)
    {
        symm_port_settle(inverse); /* while nothing waits for it */
        if constexpr (CLUSTER)
            meet();
    }

    /* By all warps, that which takes no packets, too. begin() waits. */
    static SYMM_DEVICE void meet(void)
    {
        struct symm_norm_space &space = symm_norm_shared();

        if (threadIdx.x < 2) {
            symm_gate_init(&space.sum_gate[threadIdx.x]);
            symm_gate_init(&space.most_gate[threadIdx.x]);
        }
        __syncwarp();
        symm_cluster_arrive();
    }

    /* ---- Loads ---- */

    SYMM_DEVICE void constants(void)
    {
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            if constexpr (bias_stays)
                bias[k] = place.get(norm.bias, 0, k);
            else if (norm.bias)
                place.prefetch(norm.bias, k);
            if constexpr (weight_stays)
                weight[k] = place.get(norm.weight, 0, k);
            else if (norm.weight)
                place.prefetch(norm.weight, k);
        }
    }

    SYMM_DEVICE void early(void)
    {
        if (norm.flags & SYMM_NORM_CONSTANT)
            constants();
    }

    SYMM_DEVICE void begin(void)
    {
        struct symm_norm_space &space = symm_norm_shared();

        if (!(norm.flags & SYMM_NORM_CONSTANT))
            constants();
        if (norm.quant == SYMM_NORM_QUANT_TENSOR)
            scale = norm.scale[0];
        if constexpr (CLUSTER) {
            if (threadIdx.x >= warps() && threadIdx.x < SYMM_ROW_GROUPS)
                for (int i = 0; i < 2; i++)
                    space.sum[i][0][threadIdx.x] = space.most[i][0][threadIdx.x] = 0;
            if (threadIdx.x == 0)
                space.inverse = inverse;
            symm_cluster_wait();
        } else if (place.thread < SYMM_ROW_GROUPS) {
            SYMM_UNROLL
            for (int i = 0; i < 2; i++) {
                space.sum[i][place.group][place.thread] = 0;
                space.most[i][place.group][place.thread] = 0;
            }
            space.failed[place.group] = 0;
            space.inverse = inverse;
        }
    }

    SYMM_DEVICE void ready(void)
    {
        if (norm.quant == SYMM_NORM_QUANT_TENSOR)
            scale = symm_port_divide(1.0f, scale);
        if constexpr (as_factors) {
            SYMM_UNROLL
            for (uint32_t k = 0; k < P; k++)
                factors(weight[k], &factor[k * lanes]);
        }
    }

    SYMM_DEVICE void begin_row(void)
    {
        squares[0] = squares[1] = 0;
    }

    SYMM_DEVICE void load(uint64_t row, uint32_t k)
    {
        residual[LOOP ? 0 : k] = place.get(norm.residual_in, row, k);
    }

    /* ---- Elements ---- */

    static SYMM_DEVICE void unpack(const value &v, float *f)
    {
        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e++)
            f[e] = symm_element<DTYPE, SYMM_SUM>::get(v.unit[e * element / 8] >>
                                                      (8 * element * e % 64));
    }

    static SYMM_DEVICE value pack(const float *f)
    {
        value v;

        SYMM_UNROLL
        for (uint32_t u = 0; u < symm_lamport::units; u++) {
            symm_fold<DTYPE, SYMM_SUM> unit;

            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes / 2; e++)
                unit.sum[e] = f[u * lanes / 2 + e];
            v.unit[u] = unit.done(1);
        }
        return v;
    }

    /* w: zeros if there are no weights. */
    SYMM_DEVICE void factors(const value &w, float *f) const
    {
        const float offset = norm.weight ? norm.weight_offset : 1.0f;

        unpack(w, f);
        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e++)
            f[e] = offset + f[e];
    }

    /* ---- Values of a row ---- */

    /* As place.thread; what is computed of it is not kept where registers are few. */
    SYMM_DEVICE uint32_t own_thread(void) const
    {
        uint32_t thread = place.thread;

        if constexpr (P > 1)
            symm_port_settle(thread);
        return thread;
    }

    SYMM_DEVICE uint32_t warps(void) const
    {
        return place.width / SYMM_WARP;
    }

    /* A warp's value, the same in all lanes, to all blocks of the cluster; until theirs are there.
     * A warp sends a row's after it has used the last one's (used). */
    SYMM_DEVICE void gather(float (&to)[SYMM_ROW_GROUPS], struct symm_gate *gate,
                            float mine) const
    {
        const uint32_t lane = own_thread() % SYMM_WARP;

        if (threadIdx.x == 0)
            symm_gate_arm(gate, warps() * (uint32_t)sizeof(float));
        if (lane >> cluster == 0)
            symm_gate_send(&symm_norm_shared(), lane, &to[own_thread() / SYMM_WARP],
                           symm_port_bits(mine), gate);
        symm_gate_wait(gate, turn >> 1 & 1);
    }

    static SYMM_DEVICE float used(float value)
    {
        uint32_t bits = symm_port_bits(value);

        symm_port_settle(bits);
        return symm_port_float(bits);
    }

    /* Both make a row's value of those of its threads; the group waits for each other. */
    SYMM_DEVICE float sum(float mine, bool *ok) const
    {
        struct symm_norm_space &space = symm_norm_shared();
        float(&of)[SYMM_ROW_GROUPS] = space.sum[turn & 1][place.group];

        SYMM_UNROLL
        for (int flip = SYMM_WARP / 2; flip > 0; flip /= 2)
            mine += __shfl_xor_sync(0xffffffffu, mine, flip);
        if constexpr (CLUSTER) { /* NaN: no norm of the row is taken for one */
            gather(of, &space.sum_gate[turn & 1],
                   __all_sync(0xffffffffu, *ok) ? mine : symm_port_float(0x7fffffffu));
            return used(sum16(of));
        }
        if (place.width == SYMM_WARP) {
            *ok = __all_sync(0xffffffffu, *ok);
            return mine;
        }
        if (own_thread() % SYMM_WARP == 0)
            of[own_thread() / SYMM_WARP] = mine;
        if (!*ok)
            space.failed[place.group] = 1;
        symm_port_sync_some(1 + place.group, place.width);
        if (space.failed[place.group] != 0)
            *ok = false;
        return sum16(of);
    }

    static SYMM_DEVICE float sum16(const float (&of)[SYMM_ROW_GROUPS])
    {
        float part[SYMM_ROW_GROUPS];

        SYMM_UNROLL
        for (int i = 0; i < SYMM_ROW_GROUPS; i += 4) {
            const float4 v = *(const float4 *)&of[i];

            part[i / 4] = (v.x + v.y) + (v.z + v.w);
        }
        return (part[0] + part[1]) + (part[2] + part[3]);
    }

    SYMM_DEVICE float most(float mine) const
    {
        float(&of)[SYMM_ROW_GROUPS] = symm_norm_shared().most[turn & 1][place.group];

        mine = most_of<SYMM_WARP>(mine);
        if constexpr (CLUSTER) {
            gather(of, &symm_norm_shared().most_gate[turn & 1], mine);
        } else {
            if (place.width == SYMM_WARP)
                return mine;
            if (own_thread() % SYMM_WARP == 0)
                of[own_thread() / SYMM_WARP] = mine;
            symm_port_sync_some(1 + place.group, place.width);
        }
        SYMM_UNROLL
        for (int i = 0; i < SYMM_ROW_GROUPS; i += 4) {
            const float4 v = *(const float4 *)&of[i];

            mine = symm_port_max(
                mine, symm_port_max(symm_port_max(v.x, v.y), symm_port_max(v.z, v.w)));
        }
        return CLUSTER ? used(mine) : mine;
    }

    /* Of LANES neighbours. */
    template <int LANES> static SYMM_DEVICE float most_of(float mine)
    {
        SYMM_UNROLL
        for (int flip = LANES / 2; flip > 0; flip /= 2)
            mine = symm_port_max(mine, __shfl_xor_sync(0xffffffffu, mine, flip));
        return mine;
    }

    static SYMM_DEVICE float most_in(const value &n)
    {
        float f[lanes], most = 0;

        unpack(n, f);
        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e++)
            most = symm_port_max(most,
                                 symm_port_float(symm_port_bits(f[e]) & 0x7fffffffu));
        return most;
    }

    /* ---- A row ---- */

    /* r of s. */
    SYMM_DEVICE value packet(uint64_t row, uint32_t k, const value &s, bool ok)
    {
        value v = s;
        float r[lanes];

        if (norm.sum_out && ok)
            place.put(norm.sum_out, row, k, v);
        if (norm.bias)
            v = symm_row_add<DTYPE>(v, bias_stays ? bias[bias_stays ? k : 0]
                                                  : place.get(norm.bias, 0, k));
        if (norm.residual_in)
            v = symm_row_add<DTYPE>(v, residual[LOOP ? 0 : k]);
        if (norm.residual_out && ok)
            place.put(norm.residual_out, row, k, v);
        unpack(v, r);
        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e++)
            squares[e % 2] = symm_port_fma(r[e], r[e], squares[e % 2]);
        return v;
    }

    /* n in place of r. */
    SYMM_DEVICE void normalise(value (&r)[P], const value (&late)[P], float m) const
    {
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            float n[lanes], f[lanes];

            if constexpr (!as_factors) {
                value w = {};

                if constexpr (weight_stays)
                    w = weight[k];
                else if constexpr (!LOOP)
                    w = late[k];
                else
                    w = place.get(norm.weight, 0, k);
                SYMM_UNROLL
                for (uint32_t u = 0; u < symm_lamport::units; u++)
                    symm_port_settle(w.unit[u]); /* float32 takes twice the registers */
                factors(w, f);
            }
            unpack(r[k], n);
            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes; e++)
                n[e] = n[e] * m *
                       (as_factors ? factor[as_factors ? k * lanes + e : 0] : f[e]);
            r[k] = pack(n);
        }
    }

    /* scale: of the packet's group or row. */
    SYMM_DEVICE void store_e4m3(uint64_t row, uint32_t k, const float (&q)[lanes]) const
    {
        uint32_t word[lanes / 4];
        uint8_t *to =
            (uint8_t *)norm.quant_out + row * norm.hidden + place.packet(k) * lanes;

        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e += 4)
            word[e / 4] = symm_norm_e4m3(q[e], q[e + 1], q[e + 2], q[e + 3]);
        if (!LOOP || place.whole) {
            if (!place.has(k))
                return;
            if constexpr (lanes == 8)
                *(uint64_t *)to = word[0] | (uint64_t)word[lanes / 4 - 1] << 32;
            else
                *(uint32_t *)to = word[0];
        } else {
            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes; e++)
                if (place.packet(k) * lanes + e < norm.hidden)
                    to[e] = (uint8_t)(word[e / 4] >> (8 * (e % 4)));
        }
    }

    /* The scale of the packet's row or group, written; n in place of r. */
    SYMM_DEVICE float scale_of(uint64_t row, uint32_t k, const value &n,
                               float most_in_row, bool ok) const
    {
        constexpr uint32_t span = SYMM_NORM_GROUP / lanes; /* packets of a group */
        const uint32_t groups =
            ((uint32_t)norm.hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
        const uint32_t group = place.packet(k) / span;
        const bool of_row = norm.quant == SYMM_NORM_QUANT_ROW;
        const float by = symm_port_divide(
            of_row ? most_in_row : symm_port_max(most_of<span>(most_in(n)), 1e-10f),
            448.0f);

        if (ok && place.has(k) &&
            place.packet(k) % (of_row ? place.packets : span) == 0)
            norm.scale[of_row ? row
                       : norm.quant == SYMM_NORM_QUANT_GROUP
                           ? row * groups + group
                           : group * scale_step + row] = by;
        return by;
    }

    SYMM_DEVICE void quantise(uint64_t row, const value (&n)[P], bool ok) const
    {
        const bool fixed = norm.quant == SYMM_NORM_QUANT_TENSOR;
        float most_in_row = 1.0f / 512;

        if (norm.quant == SYMM_NORM_QUANT_ROW) {
            SYMM_UNROLL_BY(unrolled)
            for (uint32_t k = 0; k < place.count(); k++)
                most_in_row = symm_port_max(most_in_row, most_in(n[k]));
            most_in_row = most(most_in_row);
        }
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            symm_norm_divisor by;
            float q[lanes];

            if (!fixed)
                by = symm_norm_divisor(scale_of(row, k, n[k], most_in_row, ok));
            unpack(n[k], q);
            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes; e++)
                q[e] = fixed ? q[e] * scale : by.of(q[e]);
            if (ok)
                store_e4m3(row, k, q);
        }
    }

    SYMM_DEVICE bool row(uint64_t row, value (&s)[P], bool ok)
    {
        value late[P];
        float total;

        if (!norm.norm_out && norm.quant == SYMM_NORM_QUANT_NONE) {
            turn++;
            return ok;
        }
        if constexpr (!weight_stays && !LOOP) { /* while the group waits for its sum */
            SYMM_UNROLL
            for (uint32_t k = 0; k < P; k++)
                late[k] = place.get(norm.weight, 0, k);
        }
        total = sum(squares[0] + squares[1], &ok);
#if defined(                                                                           \
    SYMM_PLANT_NORM) /* for tests: a row is divided by the sum of the one before */
        total =
            turn == 0 ? total : sum16(symm_norm_shared().sum[~turn & 1][place.group]);
#endif
        normalise(
            s, late,
            symm_port_rsqrt(symm_port_fma(
                total, symm_port_float(P == 1 ? inverse : symm_norm_shared().inverse),
                norm.eps)));
        if (norm.norm_out && ok) {
            SYMM_UNROLL_BY(unrolled)
            for (uint32_t k = 0; k < place.count(); k++)
                place.put(norm.norm_out, row, k, s[k]);
        }
        if (norm.quant != SYMM_NORM_QUANT_NONE)
            quantise(row, s, ok);
        turn++;
        return ok;
    }
};

/* ---- Instances --------------------------------------------------------------------- */

/* Whether all rows of all arrays are whole packets at multiples of 16. in: what is summed. */
template <int DTYPE>
SYMM_DEVICE bool symm_norm_whole(const symm_norm &norm, const void *in)
{
    const uint64_t bits = norm.hidden * symm_element_size(DTYPE) | (uintptr_t)in |
                          (uintptr_t)norm.bias | (uintptr_t)norm.residual_in |
                          (uintptr_t)norm.weight | (uintptr_t)norm.sum_out |
                          (uintptr_t)norm.residual_out | (uintptr_t)norm.norm_out |
                          (uintptr_t)norm.quant_out * symm_element_size(DTYPE);

    return bits % 16 == 0;
}

/* Its arrays are indexed at run time. In a function of its own: inlined, the compiler would put
 * those of the other code into memory, too. */
template <class RUN, int DTYPE, bool CLUSTER>
SYMM_COLD void symm_norm_loop(const struct symm_cuda_args &args, bool whole)
{
    constexpr int most = SYMM_NORM_MAX_HIDDEN / 16 * (int)symm_element_size(DTYPE) /
                         RUN::threads; /* packets of a thread */

    RUN::template of<symm_norm_rows<DTYPE, most, true, RUN::threads, CLUSTER>>(args,
                                                                              whole);
}

/* The same for launches with clusters, whose rows take at most SYMM_CLUSTER_EACH packets of a
 * thread. */
template <class RUN, int DTYPE>
SYMM_DEVICE void symm_norm_cluster(const struct symm_cuda_args &args, uint32_t packets,
                                   bool whole)
{
    if (!whole)
        symm_norm_loop<RUN, DTYPE, true>(args, whole);
    else if (packets <= RUN::threads)
        RUN::template of<symm_norm_rows<DTYPE, 1, false, RUN::threads, true>>(args,
                                                                             true);
    else
        RUN::template of<symm_norm_rows<DTYPE, 2, false, RUN::threads, true>>(args,
                                                                             true);
}

/*
 * Runs RUN::of<symm_norm_rows<...>>(args, whole). in: what is summed, or the sums. Rows that are
 * not whole packets at multiples of 16, and rows of more than 4 packets a thread, take the code
 * that loops. The ranks agree on symm_row_each, not on the code.
 */
template <class RUN, int DTYPE>
SYMM_DEVICE void symm_norm_any(const struct symm_cuda_args &args, const void *in)
{
    const uint32_t packets =
        ((uint32_t)args.norm.hidden * symm_element_size(DTYPE) + 15) / 16;
    const bool whole = symm_norm_whole<DTYPE>(args.norm, in);

    /* Four packets of a thread take too many registers of sm_100. */
    constexpr bool four = RUN::ranks < 8 && symm_element_size(DTYPE) < 4;

    if constexpr (RUN::clusters && symm_element_size(DTYPE) < 4) {
        if (args.cluster != 0) {
            symm_norm_cluster<RUN, DTYPE>(args, packets, whole);
            return;
        }
    }
    if (!whole || packets > (four ? 4 : 2) * RUN::threads)
        symm_norm_loop<RUN, DTYPE, false>(args, whole);
    else if (packets <= RUN::threads && args.each < 2)
        RUN::template of<symm_norm_rows<DTYPE, 1, false, RUN::threads, false>>(args,
                                                                              true);
    else if (!four || packets <= 2 * RUN::threads)
        RUN::template of<symm_norm_rows<DTYPE, 2, false, RUN::threads, false>>(args,
                                                                              true);
    else if constexpr (four)
        RUN::template of<symm_norm_rows<DTYPE, 4, false, RUN::threads, false>>(args,
                                                                              true);
}

#endif
