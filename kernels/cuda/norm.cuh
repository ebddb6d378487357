/* SPDX-License-Identifier: MIT */
/*
 * norm.cuh - what an all_reduce_norm does with a row's sums: bias, residual, RMSNorm and
 * quantisation, as symm/norm.h says. An epilogue of row_exchange.cuh; its threads and packets are
 * those of struct symm_row_place.
 *
 * Sums of two elements are made in pairs where there is an instruction for it: its bits are those
 * of a sum in float32 that is rounded (port.cuh). What is contracted: r * r is added to the sum of
 * squares by fma, and the sum x 1 / hidden to eps. Each thread adds its own squares in the order of
 * its packets, then the lanes of a warp, then the warps: so results depend on the shape of the row
 * alone, not on alignment, the grid or the number of groups. NaN is no maximum: a row's or group's
 * scale is that of its other elements.
 *
 * Bias and weight stay in registers for all rows of a thread where they fit (P <= 4; the weight as
 * the factors in float32 if these fit, too); else each row loads them anew.
 */
#ifndef SYMM_KERNELS_CUDA_NORM_CUH
#define SYMM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/row_exchange.cuh"

#define SYMM_ROW_GROUPS                                                                \
    (SYMM_MAX_BLOCK / SYMM_WARP) /* of a block at most, and warps of one */

/* What the warps of a group tell each other, by turns: a row's value is read while the next one's is
 * written. */
struct alignas(16) symm_norm_space {
    float sum[2][SYMM_ROW_GROUPS][SYMM_ROW_GROUPS];
    float most[2][SYMM_ROW_GROUPS][SYMM_ROW_GROUPS];
    uint32_t failed[SYMM_ROW_GROUPS];
};

/* The same memory for all instances of a kernel's template. */
SYMM_DEVICE struct symm_norm_space &symm_norm_shared(void)
{
    __shared__ struct symm_norm_space space;

    return space;
}

/* n / scale, rounded once, for n of which the quotient counts in e4m3. */
struct symm_norm_divisor {
    float scale, inverse, rest; /* inverse + rest: 1 / scale to twice the digits */

    SYMM_DEVICE symm_norm_divisor(void) : scale(0), inverse(0), rest(0) {}
    SYMM_DEVICE explicit symm_norm_divisor(float by) : scale(by), inverse(0), rest(0)
    {
        if (by > 3.0e38f) { /* infinity: quotients are 0, or NaN */
            scale = 0;
            return;
        }
        inverse = symm_port_divide(1.0f, by);
        rest = symm_port_fma(-by, inverse, 1.0f) * inverse;
    }

    /* The first quotient is the right one or a neighbour of it; its remainder is exact, and the
     * inverse is rounded to nearest: so the last step rounds right. */
    SYMM_DEVICE float of(float n) const
    {
        const float near = symm_port_fma(n, inverse, n * rest);

        return symm_port_fma(symm_port_fma(-near, scale, n), inverse, near);
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

template <int DTYPE, int P, bool LOOP, int THREADS> struct symm_norm_rows {
    typedef symm_row_place<DTYPE, P, LOOP, THREADS> place_type;
    static constexpr int unrolled = place_type::unrolled;
    static constexpr uint32_t element = place_type::element, lanes = 16 / element;
    static constexpr bool stay = !LOOP, ready = stay && P * lanes <= 8;
    typedef symm_lamport::value value;

    const symm_norm &norm;
    const uint64_t &scale_step;
    const place_type &place;
    const float inverse; /* 1 / hidden */
    value bias[stay ? P : 1], weight[stay ? P : 1], residual[stay ? P : 1];
    float factor[ready ? P * lanes : 1];
    float scale;   /* SYMM_NORM_QUANT_TENSOR: 1 / scale[0] */
    uint32_t turn; /* rows so far */

    SYMM_DEVICE symm_norm_rows(const struct symm_cuda_args &args, const place_type &at)
        : norm(args.norm), scale_step(args.scale_step), place(at),
          inverse(symm_port_divide(1.0f, (float)(uint32_t)norm.hidden)), bias(),
          weight(), residual(), factor(), scale(0), turn(0)
    {
    }

    /* ---- Loads ---- */

    SYMM_DEVICE void constants(void)
    {
        if constexpr (stay) {
            SYMM_UNROLL
            for (uint32_t k = 0; k < P; k++)
                if (norm.bias)
                    bias[k] = place.get(norm.bias, 0, k);
            SYMM_UNROLL
            for (uint32_t k = 0; k < P; k++)
                if (norm.weight)
                    weight[k] = place.get(norm.weight, 0, k);
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
        if (place.thread < SYMM_ROW_GROUPS) {
            SYMM_UNROLL
            for (int i = 0; i < 2; i++) {
                space.sum[i][place.group][place.thread] = 0;
                space.most[i][place.group][place.thread] = 0;
            }
            space.failed[place.group] = 0;
        }
    }

    SYMM_DEVICE void load(uint64_t row)
    {
        SYMM_UNROLL
        for (uint32_t k = 0; k < P; k++)
            if (stay && norm.residual_in)
                residual[stay ? k : 0] = place.get(norm.residual_in, row, k);
        if (turn == 0 && norm.quant == SYMM_NORM_QUANT_TENSOR)
            scale = symm_port_divide(1.0f, scale);
        if constexpr (ready) {
            if (turn == 0) {
                SYMM_UNROLL
                for (uint32_t k = 0; k < P; k++)
                    factors(weight[k], &factor[k * lanes]);
            }
        }
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

    SYMM_DEVICE void factors(const value &w, float *f) const
    {
        unpack(w, f);
        SYMM_UNROLL
        for (uint32_t e = 0; e < lanes; e++)
            f[e] = norm.weight ? norm.weight_offset + f[e] : 1.0f;
    }

    /* ---- Values of a row ---- */

    /* Both make a row's value of those of its threads; the group waits for each other. */
    SYMM_DEVICE float sum(float mine, bool *ok) const
    {
        struct symm_norm_space &space = symm_norm_shared();
        float(&of)[SYMM_ROW_GROUPS] = space.sum[turn & 1][place.group];

        SYMM_UNROLL
        for (int flip = SYMM_WARP / 2; flip > 0; flip /= 2)
            mine += __shfl_xor_sync(0xffffffffu, mine, flip);
        if (place.width == SYMM_WARP) {
            *ok = __all_sync(0xffffffffu, *ok);
            return mine;
        }
        if (place.thread % SYMM_WARP == 0)
            of[place.thread / SYMM_WARP] = mine;
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
        if (place.width == SYMM_WARP)
            return mine;
        if (place.thread % SYMM_WARP == 0)
            of[place.thread / SYMM_WARP] = mine;
        symm_port_sync_some(1 + place.group, place.width);
        SYMM_UNROLL
        for (int i = 0; i < SYMM_ROW_GROUPS; i += 4) {
            const float4 v = *(const float4 *)&of[i];

            mine = symm_port_max(
                mine, symm_port_max(symm_port_max(v.x, v.y), symm_port_max(v.z, v.w)));
        }
        return mine;
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

    /* r in place of s, and its squares. */
    SYMM_DEVICE float residuals(uint64_t row, value (&s)[P], bool ok)
    {
        float squares = 0;

        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            float r[lanes];
            value before = value();

            if (norm.residual_in) /* which sum_out may be */
                before = stay ? residual[stay ? k : 0]
                              : place.get(norm.residual_in, row, k);
            if (norm.sum_out && ok)
                place.put(norm.sum_out, row, k, s[k]);
            if (norm.bias)
                s[k] = symm_row_add<DTYPE>(s[k], stay ? bias[stay ? k : 0]
                                                      : place.get(norm.bias, 0, k));
            if (norm.residual_in)
                s[k] = symm_row_add<DTYPE>(s[k], before);
            if (norm.residual_out && ok)
                place.put(norm.residual_out, row, k, s[k]);
            unpack(s[k], r);
            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes; e++)
                squares = symm_port_fma(r[e], r[e], squares);
        }
        return squares;
    }

    /* n in place of r. */
    SYMM_DEVICE void normalise(value (&r)[P], float m) const
    {
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            float n[lanes], f[lanes];

            if constexpr (!ready)
                factors(stay           ? weight[stay ? k : 0]
                        : !norm.weight ? value{}
                                       : place.get(norm.weight, 0, k),
                        f);
            unpack(r[k], n);
            SYMM_UNROLL
            for (uint32_t e = 0; e < lanes; e++)
                n[e] = n[e] * m * (ready ? factor[ready ? k * lanes + e : 0] : f[e]);
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
        const float squares = residuals(row, s, ok);
        float total;

        if (!norm.norm_out && norm.quant == SYMM_NORM_QUANT_NONE) {
            turn++;
            return ok;
        }
        total = sum(squares, &ok);
#if defined(                                                                           \
    SYMM_PLANT_NORM) /* for tests: the last row of a group is taken for the first */
        total = turn == 0 ? total : sum16(symm_norm_shared().sum[0][place.group]);
#endif
        normalise(s, symm_port_rsqrt(symm_port_fma(total, inverse, norm.eps)));
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

/* Rows of whole packets, two or four of a thread. */
template <class RUN, int DTYPE>
SYMM_DEVICE void symm_norm_many(const struct symm_cuda_args &args, uint32_t packets)
{
    if constexpr (RUN::straight >= 4)
        if (packets > 2 * RUN::threads) {
            RUN::template of<symm_norm_rows<DTYPE, 4, false, RUN::threads>>(args, true);
            return;
        }
    RUN::template of<symm_norm_rows<DTYPE, 2, false, RUN::threads>>(args, true);
}

/*
 * Runs RUN::of<symm_norm_rows<...>>(args, whole). in: what is summed, or the sums. Rows that are not
 * whole packets at multiples of 16, and such of more than RUN::straight packets a thread, for which
 * registers do not suffice, take the code that loops. The ranks agree on symm_row_each, not on the code.
 */
template <class RUN, int DTYPE>
SYMM_DEVICE void symm_norm_any(const struct symm_cuda_args &args, const void *in)
{
    const uint32_t packets =
        ((uint32_t)args.norm.hidden * symm_element_size(DTYPE) + 15) / 16;
    const bool whole = symm_norm_whole<DTYPE>(args.norm, in);
    constexpr int most = SYMM_NORM_MAX_HIDDEN / 16 * (int)symm_element_size(DTYPE) /
                         RUN::threads; /* packets of a thread */

    if (!whole || packets > RUN::straight * RUN::threads)
        RUN::template of<symm_norm_rows<DTYPE, most, true, RUN::threads>>(args, whole);
    else if (packets <= RUN::threads)
        RUN::template of<symm_norm_rows<DTYPE, 1, false, RUN::threads>>(args, true);
    else if constexpr (RUN::straight >= 2)
        symm_norm_many<RUN, DTYPE>(args, packets);
}

#endif
