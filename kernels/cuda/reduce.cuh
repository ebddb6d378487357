/* SPDX-License-Identifier: MIT */
/*
 * reduce.cuh - reductions on units of 8 bytes: unpack, combine in rank order, pack.
 *
 * symm_fold<dtype, op> holds the accumulators of one unit: first() takes rank 0's, next()
 * those of ranks 1, 2, ..., done() gives the result. Registers only, to be unrolled: the hot
 * kernels. symm_fold_any is the same for a dtype and op known at run time only.
 *
 * Guarantees what symm.h says under "Reductions", with the bits that the host's kernels give
 * (body.h), up to a NaN's payload: small floats accumulate in float32 and are rounded
 * once; minima and maxima compare integers that order as the values do, so -0 < +0 and NaN
 * wins. A unit may be filled up with anything: elements do not touch each other. No product
 * is ever added to something, so there is nothing to contract.
 */
#ifndef SYMM_KERNELS_CUDA_REDUCE_CUH
#define SYMM_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/port_numbers.cuh"

#define SYMM_DTYPE_ANY (-1) /* known at run time only, with op and size */

/* X(name, dtype, n): an algorithm's hot kernels, which sum a common type over n ranks. */
#if defined(SYMM_WIDE)
#define SYMM_HOT_MAP(X)
#else
#define SYMM_HOT_MAP(X)                                                                \
    X(bfloat16_n2, SYMM_BFLOAT16, 2)                                                   \
    X(bfloat16_n4, SYMM_BFLOAT16, 4)                                                   \
    X(bfloat16_n8, SYMM_BFLOAT16, 8)                                                   \
    X(float16_n2, SYMM_FLOAT16, 2)                                                     \
    X(float16_n4, SYMM_FLOAT16, 4)                                                     \
    X(float16_n8, SYMM_FLOAT16, 8)                                                     \
    X(float32_n2, SYMM_FLOAT32, 2)                                                     \
    X(float32_n4, SYMM_FLOAT32, 4)                                                     \
    X(float32_n8, SYMM_FLOAT32, 8)
#endif

template <bool CHOICE, class A, class B> struct symm_pick {
    typedef A type;
};
template <class A, class B> struct symm_pick<false, A, B> {
    typedef B type;
};

/* ---- Formats --------------------------------------------------------------------- */

SYMM_CONSTANT uint32_t symm_element_size(int dtype)
{
    switch (dtype) {
    case SYMM_FLOAT64:
    case SYMM_INT64:
    case SYMM_UINT64:
        return 8;
    case SYMM_FLOAT32:
    case SYMM_INT32:
    case SYMM_UINT32:
        return 4;
    case SYMM_FLOAT16:
    case SYMM_BFLOAT16:
    case SYMM_INT16:
    case SYMM_UINT16:
        return 2;
    default:
        return 1;
    }
}

SYMM_CONSTANT bool symm_is_float(int dtype)
{
    return dtype == SYMM_FLOAT64 || dtype == SYMM_FLOAT32 || dtype == SYMM_FLOAT16 ||
           dtype == SYMM_BFLOAT16 || dtype == SYMM_FLOAT8_E4M3 ||
           dtype == SYMM_FLOAT8_E5M2;
}

SYMM_CONSTANT bool symm_is_signed(int dtype)
{
    return dtype == SYMM_INT64 || dtype == SYMM_INT32 || dtype == SYMM_INT16 ||
           dtype == SYMM_INT8;
}

/* The type whose sums and products are those of `dtype`: integers wrap, so the sign makes no
 * difference, and code of one type serves two. */
SYMM_DEVICE int symm_wrapping(int dtype)
{
    switch (dtype) {
    case SYMM_INT64:
        return SYMM_UINT64;
    case SYMM_INT32:
        return SYMM_UINT32;
    case SYMM_INT16:
        return SYMM_UINT16;
    case SYMM_INT8:
        return SYMM_UINT8;
    default:
        return dtype;
    }
}

/* Magnitudes of a format: the largest that is no NaN, the NaN to write, and infinity if
 * results saturate. */
template <int DTYPE> struct symm_magnitudes {
    static constexpr int64_t last = DTYPE == SYMM_FLOAT64       ? 0x7ff0000000000000
                                    : DTYPE == SYMM_FLOAT32     ? 0x7f800000
                                    : DTYPE == SYMM_FLOAT16     ? 0x7c00
                                    : DTYPE == SYMM_BFLOAT16    ? 0x7f80
                                    : DTYPE == SYMM_FLOAT8_E4M3 ? 0x7e
                                                                : 0x7c;
    static constexpr int64_t nan = DTYPE == SYMM_FLOAT64    ? 0x7ff8000000000000
                                   : DTYPE == SYMM_FLOAT32  ? 0x7fc00000
                                   : DTYPE == SYMM_FLOAT16  ? 0x7e00
                                   : DTYPE == SYMM_BFLOAT16 ? 0x7fc0
                                                            : 0x7f;
    static constexpr int64_t inf = DTYPE == SYMM_FLOAT8_E5M2 ? 0x7c : 0;
    static constexpr int64_t all =
        (int64_t)(~(uint64_t)0 >> (65 - 8 * symm_element_size(DTYPE)));
};

/* float8: `drop` mantissa bits less than float32, an exponent's bias, the largest value. */
template <int DTYPE> struct symm_float8 {
    static constexpr int drop = DTYPE == SYMM_FLOAT8_E4M3 ? 20 : 21;
    static constexpr uint32_t bias = DTYPE == SYMM_FLOAT8_E4M3 ? 7 : 15;
    static constexpr uint32_t special = DTYPE == SYMM_FLOAT8_E4M3 ? 0x7f : 0x7c;
    static constexpr uint32_t top = DTYPE == SYMM_FLOAT8_E4M3 ? 0x43e00000 : 0x47600000;
    /* A float32 whose ulp is the smallest step of the format. */
    static constexpr uint32_t step = (128 - bias + (uint32_t)drop) << 23;

    static SYMM_DEVICE float decode(uint32_t bits)
    {
        uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
        uint32_t value = (magnitude << drop) + ((127 - bias) << 23);

        if (magnitude < (1u << (23 - drop)))
            value = symm_port_bits(symm_port_float(magnitude + step) -
                                   symm_port_float(step));
        if (magnitude >= special)
            value |= 0x7f800000u;
        return symm_port_float(value | sign);
    }

    static SYMM_DEVICE uint32_t encode(float in)
    {
        uint32_t bits = symm_port_bits(in), sign = bits >> 24 & 0x80u, out;
        uint32_t magnitude = bits & 0x7fffffffu;

        if (magnitude > 0x7f800000u)
            return 0x7fu;
        if (magnitude > top)
            magnitude = top;
        out = (magnitude + (1u << (drop - 1)) - 1 - ((127 - bias) << 23) +
               (magnitude >> drop & 1u)) >>
              drop;
        if (magnitude < (128 - bias) << 23)
            out = symm_port_bits(symm_port_float(magnitude) + symm_port_float(step)) -
                  step;
        return out | sign;
    }
};

/* ---- One element ----------------------------------------------------------------- */

template <int DTYPE, int OP> struct symm_element {
    static constexpr uint32_t bytes = symm_element_size(DTYPE), bits = 8 * bytes;
    static constexpr bool extreme = OP == SYMM_MIN || OP == SYMM_MAX;
    static constexpr bool wide = bytes == 8 || (bytes == 4 && OP == SYMM_AVG);
    static constexpr bool negative =
        symm_is_signed(DTYPE) && (extreme || OP == SYMM_AVG);
    typedef typename symm_pick<bytes == 8, double, float>::type real;
    typedef typename symm_pick<bytes == 8, int64_t, int32_t>::type key;
    typedef typename symm_pick<wide, uint64_t, uint32_t>::type whole;
    typedef typename symm_pick<wide, int64_t, int32_t>::type integer;
    /* 64-bit averages are sums that wrap: unsigned until they are divided. */
    typedef
        typename symm_pick<negative && !(bytes == 8 && !extreme), integer, whole>::type
            whole_accumulator;
    typedef typename symm_pick<symm_is_float(DTYPE),
                               typename symm_pick<extreme, key, real>::type,
                               whole_accumulator>::type accumulator;
    typedef symm_magnitudes<DTYPE> range;

    static SYMM_DEVICE key extend(uint64_t raw)
    {
        if constexpr (bytes == 1)
            return (int8_t)raw;
        else if constexpr (bytes == 2)
            return (int16_t)raw;
        else
            return (key)raw;
    }

    static SYMM_DEVICE key flip(key v)
    {
        return v ^ (v < 0 ? (key)range::all : 0);
    }

    static SYMM_DEVICE accumulator get(uint64_t raw)
    {
        if constexpr (symm_is_float(DTYPE) && extreme) {
            key v = extend(raw);
            key nan = OP == SYMM_MIN ? (key)~range::nan : (key)range::nan;

            return (v & (key)range::all) > (key)range::last ? nan : flip(v);
        } else if constexpr (DTYPE == SYMM_FLOAT64) {
            return symm_port_double(raw);
        } else if constexpr (DTYPE == SYMM_FLOAT32) {
            return symm_port_float((uint32_t)raw);
        } else if constexpr (DTYPE == SYMM_FLOAT16) {
            return symm_port_from_half((uint32_t)raw & 0xffffu);
        } else if constexpr (DTYPE == SYMM_BFLOAT16) {
            return symm_port_float((uint32_t)raw << 16);
        } else if constexpr (symm_is_float(DTYPE)) {
            return symm_float8<DTYPE>::decode((uint32_t)raw & 0xffu);
        } else if constexpr (negative) {
            return (accumulator)extend(raw);
        } else {
            return (accumulator)(raw & (~(uint64_t)0 >> (64 - bits)));
        }
    }

    static SYMM_DEVICE accumulator combine(accumulator a, accumulator b)
    {
        if constexpr (OP == SYMM_MIN)
            return b < a ? b : a;
        else if constexpr (OP == SYMM_MAX)
            return b > a ? b : a;
        else if constexpr (OP == SYMM_PROD)
            return a * b;
        else
            return a + b;
    }

    static SYMM_DEVICE accumulator mean(accumulator a, int n)
    {
        if constexpr (DTYPE == SYMM_INT64)
            return (accumulator)((int64_t)a / n);
        else
            return a / (accumulator)n;
    }

    static SYMM_DEVICE uint64_t unkey(key a)
    {
        key v = flip(a);

        if (range::inf != 0 && (v & (key)range::all) == (key)range::inf)
            v -= 1;
        if (a == (key)~range::nan)
            v &= (key)range::all;
        return (uint64_t)v;
    }

    /* The bits above the element's are undefined. */
    static SYMM_DEVICE uint64_t put(accumulator a, int n)
    {
        if constexpr (OP == SYMM_AVG)
            a = mean(a, n);
        if constexpr (symm_is_float(DTYPE) && extreme)
            return unkey(a);
        else if constexpr (DTYPE == SYMM_FLOAT64)
            return symm_port_double_bits(a);
        else if constexpr (DTYPE == SYMM_FLOAT32)
            return symm_port_bits(a);
        else if constexpr (DTYPE == SYMM_FLOAT16)
            return symm_port_to_half(a);
        else if constexpr (DTYPE == SYMM_BFLOAT16)
            return symm_port_to_bfloat(a, 0.0f);
        else if constexpr (symm_is_float(DTYPE))
            return symm_float8<DTYPE>::encode(a);
        else
            return (uint64_t)a;
    }
};

/* ---- A unit of 8 bytes ----------------------------------------------------------- */

template <int DTYPE, int OP> struct symm_fold {
    typedef symm_element<DTYPE, OP> element;
    static constexpr int lanes = 8 / (int)element::bytes;
    typename element::accumulator sum[lanes];

    SYMM_DEVICE void first(uint64_t unit)
    {
        SYMM_UNROLL
        for (int k = 0; k < lanes; k++)
            sum[k] = element::get(unit >> (element::bits * (uint32_t)k));
    }

    SYMM_DEVICE void next(uint64_t unit)
    {
        SYMM_UNROLL
        for (int k = 0; k < lanes; k++)
            sum[k] = element::combine(
                sum[k], element::get(unit >> (element::bits * (uint32_t)k)));
    }

    SYMM_DEVICE uint64_t done(int n) const
    {
        if constexpr (DTYPE == SYMM_BFLOAT16 && OP == SYMM_SUM) {
            return symm_port_to_bfloat(sum[0], sum[1]) |
                   (uint64_t)symm_port_to_bfloat(sum[2], sum[3]) << 32;
        } else {
            uint64_t unit = 0, mask = ~(uint64_t)0 >> (64 - element::bits);

            SYMM_UNROLL
            for (int k = 0; k < lanes; k++)
                unit |= (element::put(sum[k], n) & mask)
                        << (element::bits * (uint32_t)k);
            return unit;
        }
    }
};

template <int DTYPE, int OP, class LOAD>
SYMM_DEVICE uint64_t symm_fold_loop(int n, const LOAD &load)
{
    symm_fold<DTYPE, OP> fold;

    fold.first(load(0));
    SYMM_NO_UNROLL
    for (int r = 1; r < n; r++)
        fold.next(load(r));
    return fold.done(n);
}

template <int DTYPE, class LOAD>
SYMM_DEVICE uint64_t symm_fold_dtype(int op, int n, const LOAD &load)
{
    /* symm_wrapping has given sums and products of signed types to the unsigned ones. */
    if constexpr (!symm_is_signed(DTYPE)) {
        if (op == SYMM_SUM)
            return symm_fold_loop<DTYPE, SYMM_SUM>(n, load);
        if (op == SYMM_PROD)
            return symm_fold_loop<DTYPE, SYMM_PROD>(n, load);
    }
    switch (op) {
    case SYMM_AVG:
        return symm_fold_loop<DTYPE, SYMM_AVG>(n, load);
    case SYMM_MIN:
        return symm_fold_loop<DTYPE, SYMM_MIN>(n, load);
    default:
        return symm_fold_loop<DTYPE, SYMM_MAX>(n, load);
    }
}

/* A bitwise op is the same for all dtypes, so it combines whole units. */
template <class LOAD>
SYMM_DEVICE uint64_t symm_fold_bits(int op, int n, const LOAD &load)
{
    uint64_t unit = load(0);

    SYMM_NO_UNROLL
    for (int r = 1; r < n; r++) {
        uint64_t next = load(r);

        unit = op == SYMM_BAND  ? unit & next
               : op == SYMM_BOR ? unit | next
                                : unit ^ next;
    }
    return unit;
}

/*
 * One unit over ranks 0 .. n - 1; load(r) gives rank r's 8 bytes and is called in that order,
 * from a loop that is not unrolled: values of peers should lie in shared memory by
 * then. Each use in a kernel is 63 small loops of code: use it once.
 */
template <class LOAD>
SYMM_DEVICE uint64_t symm_fold_any(int dtype, int op, int n, const LOAD &load)
{
    switch (op) {
    case SYMM_BAND:
    case SYMM_BOR:
    case SYMM_BXOR:
        return symm_fold_bits(op, n, load);
    case SYMM_SUM:
    case SYMM_PROD:
        dtype = symm_wrapping(dtype);
        break;
    default:
        break;
    }
    switch (dtype) {
#define SYMM_FOLD_CASE(name, value, json, bytes)                                       \
    case SYMM_##name:                                                                  \
        return symm_fold_dtype<SYMM_##name>(op, n, load);
        SYMM_DTYPE_MAP(SYMM_FOLD_CASE)
#undef SYMM_FOLD_CASE
    default:
        return 0;
    }
}

/* ---- Bytes of user memory at any alignment --------------------------------------- */

SYMM_DEVICE bool symm_aligned(const void *pointer)
{
    return ((uintptr_t)pointer & 15) == 0;
}

/* The 16 or 8 bytes at `from`, of which `bytes` are there; zeros after them. The pointer is
 * aligned to the element. All loads are under way before the first is used. */
template <int WORDS>
SYMM_DEVICE void symm_words_gather(const char *from, uint64_t bytes, uint32_t element,
                                   uint32_t (&word)[WORDS])
{
    const uint32_t there = bytes < 4 * WORDS ? (uint32_t)bytes : 4 * WORDS;
    uint32_t part[4 * WORDS];

    if (element >= 4) {
        SYMM_UNROLL
        for (uint32_t k = 0; k < WORDS; k++)
            word[k] = 4 * k < there ? ((const uint32_t *)from)[k] : 0;
    } else if (element == 2) {
        SYMM_UNROLL
        for (uint32_t k = 0; k < 2 * WORDS; k++)
            part[k] = 2 * k < there ? ((const uint16_t *)from)[k] : 0u;
        SYMM_UNROLL
        for (uint32_t k = 0; k < WORDS; k++)
            word[k] = part[2 * k] | part[2 * k + 1] << 16;
    } else {
        SYMM_UNROLL
        for (uint32_t k = 0; k < 4 * WORDS; k++)
            part[k] = k < there ? ((const uint8_t *)from)[k] : 0u;
        SYMM_UNROLL
        for (uint32_t k = 0; k < WORDS; k++)
            word[k] = part[4 * k] | part[4 * k + 1] << 8 | part[4 * k + 2] << 16 |
                      part[4 * k + 3] << 24;
    }
}

SYMM_DEVICE void symm_word_scatter(char *to, uint64_t bytes, uint32_t element,
                                   uint32_t k, uint32_t word)
{
    to += 4 * k;
    if (4 * k >= bytes)
        return;
    bytes -= 4 * k;
    if (element >= 4) {
        *(uint32_t *)to = word;
    } else if (element == 2) {
        *(uint16_t *)to = (uint16_t)word;
        if (bytes >= 4)
            *(uint16_t *)(to + 2) = (uint16_t)(word >> 16);
    } else {
        SYMM_UNROLL
        for (uint32_t b = 0; b < 4; b++)
            if (b < bytes)
                *(uint8_t *)(to + b) = (uint8_t)(word >> (8 * b));
    }
}

/* The same for packets and units at `from` that are not aligned: rare, and kept out of the
 * kernels' common path. `bytes`: from `from` to the array's end, at least 1. */
SYMM_COLD struct symm_packet symm_packet_gather_rest(const char *from, uint64_t bytes,
                                                     uint32_t element)
{
    struct symm_packet packet;

    symm_words_gather(from, bytes, element, packet.word);
    return packet;
}

SYMM_COLD void symm_packet_scatter_rest(char *to, uint64_t bytes, uint32_t element,
                                        struct symm_packet packet)
{
    SYMM_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        symm_word_scatter(to, bytes, element, k, packet.word[k]);
}

/* The last packet of an array that begins at a multiple of 16: its first `rest` < 16 bytes, in
 * a few loads that are under way together; nothing after the end is touched. */
SYMM_DEVICE struct symm_packet symm_packet_gather_tail(const char *from, uint32_t rest,
                                                       uint32_t element)
{
    uint32_t word[2] = {0, 0}, low = 0, high = 0;

    if (rest & 8) {
        word[0] = ((const uint32_t *)from)[0];
        word[1] = ((const uint32_t *)from)[1];
    }
    if (element <= 4 && rest & 4)
        low = *(const uint32_t *)(from + (rest & 8));
    if (element <= 2 && rest & 2)
        high = *(const uint16_t *)(from + (rest & 12));
    if (element == 1 && rest & 1)
        high |= (uint32_t) * (const uint8_t *)(from + (rest & 14)) << (8 * (rest & 2));
    if (!(rest & 4)) {
        low = high;
        high = 0;
    }
    if (!(rest & 8))
        return {{low, high, 0, 0}};
    return {{word[0], word[1], low, high}};
}

SYMM_DEVICE void symm_packet_scatter_tail(char *to, uint32_t rest, uint32_t element,
                                          struct symm_packet packet)
{
    const uint32_t low = rest & 8 ? packet.word[2] : packet.word[0];
    const uint32_t next = rest & 8 ? packet.word[3] : packet.word[1];
    const uint32_t high = rest & 4 ? next : low;

    if (rest & 8) {
        ((uint32_t *)to)[0] = packet.word[0];
        ((uint32_t *)to)[1] = packet.word[1];
    }
    if (element <= 4 && rest & 4)
        *(uint32_t *)(to + (rest & 8)) = low;
    if (element <= 2 && rest & 2)
        *(uint16_t *)(to + (rest & 12)) = (uint16_t)high;
    if (element == 1 && rest & 1)
        *(uint8_t *)(to + (rest & 14)) = (uint8_t)(high >> (8 * (rest & 2)));
}

/* What is known of an array and of its end. A number, so that a bool can give `aligned`. */
enum symm_ends {
    SYMM_ENDS_ANY,     /* aligned to its elements */
    SYMM_ENDS_ALIGNED, /* begins at a multiple of a packet's or unit's bytes */
    SYMM_ENDS_WHOLE    /* and so does its end: no code for other ends is compiled */
};

/* Of in and out both, by multiples of BYTES. */
template <uint32_t BYTES>
SYMM_DEVICE uint32_t symm_ends_of(const struct symm_cuda_args &args)
{
    const uint64_t begin = (uintptr_t)args.in | (uintptr_t)args.out;

    if ((begin | args.bytes) % BYTES == 0)
        return SYMM_ENDS_WHOLE;
    return begin % BYTES == 0 ? SYMM_ENDS_ALIGNED : SYMM_ENDS_ANY;
}

/*
 * Bytes first .. first + 15 of an array of `bytes` bytes (first is a multiple of 16); zeros
 * after its end. `ends`: enum symm_ends, multiples of 16.
 */
SYMM_DEVICE struct symm_packet symm_packet_gather(const void *array, uint64_t first,
                                                  uint64_t bytes, uint32_t element,
                                                  uint32_t ends)
{
    const char *from = (const char *)array + first;
    struct symm_packet packet;

    if (ends == SYMM_ENDS_WHOLE)
        return symm_port_packet_if(first < bytes, from);
    /* whole packets of a warp are under way before its last one is tested */
    if (ends == SYMM_ENDS_ALIGNED) {
        packet = symm_port_packet_if(first + 16 <= bytes, from);
        if (first < bytes && first + 16 > bytes)
            packet = symm_packet_gather_tail(from, (uint32_t)(bytes - first), element);
        return packet;
    }
    if (first >= bytes)
        return {};
    return symm_packet_gather_rest(from, bytes - first, element);
}

SYMM_DEVICE void symm_packet_scatter(void *array, uint64_t first, uint64_t bytes,
                                     uint32_t element, uint32_t ends,
                                     struct symm_packet packet)
{
    char *to = (char *)array + first;

    if (ends == SYMM_ENDS_WHOLE ? first < bytes
                                : ends == SYMM_ENDS_ALIGNED && first + 16 <= bytes)
        *(struct symm_packet *)to = packet;
    else if (ends == SYMM_ENDS_WHOLE)
        return;
    else if (first < bytes && ends == SYMM_ENDS_ALIGNED)
        symm_packet_scatter_tail(to, (uint32_t)(bytes - first), element, packet);
    else if (first < bytes)
        symm_packet_scatter_rest(to, bytes - first, element, packet);
}

/* The same for the 8 bytes that one LL packet carries; multiples of 8. */
SYMM_DEVICE uint64_t symm_unit_gather(const void *array, uint64_t first, uint64_t bytes,
                                      uint32_t element, uint32_t ends)
{
    const char *from = (const char *)array + first;
    uint32_t word[2];

    if (first >= bytes)
        return 0;
    if (ends == SYMM_ENDS_WHOLE || (ends == SYMM_ENDS_ALIGNED && first + 8 <= bytes))
        return *(const uint64_t *)from;
    symm_words_gather(from, bytes - first, element, word);
    return word[0] | (uint64_t)word[1] << 32;
}

SYMM_DEVICE void symm_unit_scatter(void *array, uint64_t first, uint64_t bytes,
                                   uint32_t element, uint32_t ends, uint64_t unit)
{
    char *to = (char *)array + first;

    if (first >= bytes)
        return;
    if (ends == SYMM_ENDS_WHOLE || (ends == SYMM_ENDS_ALIGNED && first + 8 <= bytes)) {
        *(uint64_t *)to = unit;
        return;
    }
    symm_word_scatter(to, bytes - first, element, 0, (uint32_t)unit);
    symm_word_scatter(to, bytes - first, element, 1, (uint32_t)(unit >> 32));
}

SYMM_DEVICE uint64_t symm_packet_unit(const struct symm_packet &packet, int half)
{
    return packet.word[2 * half] | (uint64_t)packet.word[2 * half + 1] << 32;
}

SYMM_DEVICE struct symm_packet symm_packet_make(uint64_t low, uint64_t high)
{
    return {
        {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

/* The sum of packets; the first one begins it. */
template <int DTYPE> struct symm_packet_sum {
    symm_fold<DTYPE, SYMM_SUM> low, high;

    SYMM_DEVICE void add(const struct symm_packet &packet, bool first)
    {
        if (first) {
            low.first(symm_packet_unit(packet, 0));
            high.first(symm_packet_unit(packet, 1));
        } else {
            low.next(symm_packet_unit(packet, 0));
            high.next(symm_packet_unit(packet, 1));
        }
    }

    SYMM_DEVICE struct symm_packet done(int n) const
    {
        return symm_packet_make(low.done(n), high.done(n));
    }
};

#endif
