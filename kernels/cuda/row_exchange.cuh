/* SPDX-License-Identifier: MIT */
/*
 * row_exchange.cuh - the sums of rows by Lamport packets, in one shot and in two, for kernels that
 * do something with a whole row when it is there: their epilogue.
 *
 * A row is cut into packets of 16 bytes; the last one is filled up with zeros. A group of threads
 * has a row at a time: `width` threads, a multiple of 32, of P packets each; thread t of the group
 * has the packets t, t + width, ... A block is one or more groups and a last warp that takes no
 * packets: it writes the counters, and in block 0 it writes and reads the call words and counts for
 * the blocks that were not launched. Group g of block b has the rows b x groups + g, and on by the
 * groups of the grid: so any number of blocks suffices, if it is the same on all ranks. If the
 * launch has clusters, each is one group: its blocks have an equal number of the group's threads,
 * and b counts clusters. No value passes between threads, except in the epilogue. The block
 * synchronizes once, for the counters, while the first rows are in flight. After that the groups
 * and the last warp run independently.
 *
 * symm_row_one_shot: a rank sends each row to all peers, SYMM_ROWS_AHEAD rows ahead of the one that
 * it takes. Slot = [sender][row][packet]; only the peer sends between two ranks.
 * symm_row_two_shot: rank r owns the rows i with i % N == r. It sends all other rows to their
 * owners, then sums its own ones and sends the sums to all, then takes the others' sums.
 * Slot = [phase][sender][row of the owner][packet].
 * One round, or two if a slot is too small; packet.cuh (1) and (4) say why slots may be used again.
 * For (4) a thread reads a word of each peer's first row with an acquiring load; that row is in the
 * first round, and it has a packet there if it has one anywhere.
 *
 * EPILOGUE(args, place): what happens to rows.
 *   place_type                a symm_row_place
 *   early()                   before the kernels before have ended
 *   begin()                   when the first rows are in flight
 *   ready()                   before the first row, when the block has synchronized
 *   begin_row()               before the rest, for each row
 *   load(row, k)              before the wait for the thread's k-th packet of the row
 *   value packet(row, k, s, ok)  the thread's k-th sums of the row; what it keeps of them. ok:
 *                             whether the wait succeeded
 *   bool row(row, kept, ok)   all that packet() has kept. Every thread of the group calls it for
 *                             every row, in the same order. False: a wait of the group has failed,
 *                             and there is nothing more to wait for
 * An output may be `in` itself: a packet of `in` is read, by the thread that writes it, before.
 *
 * Launch: groups x width + 32 threads; with clusters width / blocks of a cluster + 32. One shot: if
 * the rows do not fit into one slot, a slot has room for more than SYMM_ROWS_AHEAD rows of each
 * group, and two slots have room for all. Two shots: a row of each group, and all in two slots that
 * are cut to such rows.
 */
#ifndef SYMM_KERNELS_CUDA_ROW_EXCHANGE_CUH
#define SYMM_KERNELS_CUDA_ROW_EXCHANGE_CUH

#include "kernels/cuda/row_place.cuh"

/* A packet's sum of two, of elements of DTYPE, rounded. */
template <int DTYPE>
SYMM_DEVICE symm_lamport::value symm_row_add(const symm_lamport::value &a,
                                             const symm_lamport::value &b)
{
    symm_lamport::value sum;

    SYMM_UNROLL
    for (uint32_t u = 0; u < symm_lamport::units; u++) {
        const uint32_t low = (uint32_t)a.unit[u], high = (uint32_t)(a.unit[u] >> 32);
        const uint32_t more = (uint32_t)b.unit[u], most = (uint32_t)(b.unit[u] >> 32);

        if constexpr (DTYPE == SYMM_BFLOAT16)
            sum.unit[u] = symm_port_add_bfloat(low, more) |
                          (uint64_t)symm_port_add_bfloat(high, most) << 32;
        else if constexpr (DTYPE == SYMM_FLOAT16)
            sum.unit[u] = symm_port_add_half(low, more) |
                          (uint64_t)symm_port_add_half(high, most) << 32;
        else
            sum.unit[u] =
                symm_port_bits(symm_port_float(low) + symm_port_float(more)) |
                (uint64_t)symm_port_bits(symm_port_float(high) + symm_port_float(most))
                    << 32;
    }
    return sum;
}

/* What both exchanges share: packets of rows on their way. */
template <class EPILOGUE, int N, int TOGETHER> struct symm_row_exchange {
    typedef symm_lamport::value value;
    typedef typename EPILOGUE::place_type place_type;
    static constexpr int dtype = place_type::dtype, P = place_type::most,
                         unrolled = place_type::unrolled;
    static constexpr int senders = N == 2 ? 1 : N;
    /* Packets of a sender that a thread polls at once: TOGETHER, as many as registers allow. */
    static constexpr int together = place_type::loop ? 1 : P <= TOGETHER ? P : TOGETHER;
    static constexpr bool tight = P * senders > 8; /* addresses are made when needed */

    const struct symm_cuda_args &args;
    const place_type place;
    const uint32_t rank, rows;
    const bool takes;
    struct symm_round round;

    SYMM_DEVICE symm_row_exchange(const struct symm_cuda_args &a, bool whole)
        : args(a), place(a, blockDim.x - SYMM_WARP, whole), rank((uint32_t)a.team.rank),
          rows((uint32_t)a.norm.rows), takes(threadIdx.x < blockDim.x - SYMM_WARP)
    {
    }

    SYMM_DEVICE uint32_t member(uint32_t i) const /* i ranks after this one, modulo N */
    {
        return rank + i < N ? rank + i : rank + i - N;
    }

    /* Waits for the only packet of a thread; polls it twice at a time where threads wait for each
     * other, and none for a second row. */
    template <class AWAITED, class FROM, class MEMBER>
    SYMM_DEVICE bool watch(const AWAITED &awaited, const FROM &from,
                           const MEMBER &member, struct symm_packet (&packet)[1]) const
    {
        bool ok = round.ok;

        if (place_type::clustered ||
            (args.norm.rows <= place.step &&
             args.norm.rows * args.norm.hidden * place_type::element >=
                 SYMM_WATCH_LEAST)) {
            ok = ok && symm_packets_watch<symm_lamport, 1>(args, &round, awaited, from,
                                                           member, packet);
        } else {
            value v = {};

            ok = ok && (!awaited(0) || symm_packet_await<symm_lamport>(
                                           args, &round, from(0), member(0), &v));
            packet[0] = symm_packet_make(v.unit[0], v.unit[1]);
        }
        return ok;
    }

    /* Cleaned, as peers get it; not where only symm_row_add takes it, which makes one NaN of all. */
    SYMM_DEVICE value load(uint32_t row, uint32_t k) const
    {
        const value v = place.get(args.in, row, k);

        if constexpr (N == 2 && !place_type::loop && place_type::element == 2)
            return v;
        else
            return symm_lamport::clean(v);
    }

    /*
     * Waits for the row's packets, k of sender m at from(m, k), sums them in rank order with the
     * own ones, and gives each sum to take(k, sum, ok). Then the packets are consumed. fetch(k):
     * loads of the caller's that are under way with the packets. hold(): between these loads and
     * the first poll, but not where packets are taken one by one. acquire: as symm_packets_get.
     * False: a wait has failed; then the values are of no use.
     */
    template <class FROM, class FETCH, class HOLD, class TAKE>
    SYMM_DEVICE bool sums(uint32_t row, const FROM &from, bool acquire,
                          const FETCH &fetch, const HOLD &hold, const TAKE &take) const
    {
        if constexpr (place_type::loop)
            return one_by_one(row, from, acquire, fetch, take);
        else
            return at_once(row, from, acquire, fetch, hold, take);
    }

    template <class FROM, class FETCH, class HOLD, class TAKE>
    SYMM_DEVICE bool at_once(uint32_t row, const FROM &from, bool acquire,
                             const FETCH &fetch, const HOLD &hold,
                             const TAKE &take) const
    {
        const uint32_t self = rank;
        const auto sender = [&](uint32_t i) { return N == 2 ? 1 - self : i % senders; };
        bool ok = round.ok;

        SYMM_UNROLL
        for (uint32_t k = 0; k < P; k += together) {
            struct symm_packet packet[together * senders];
            value own[together];
            const auto awaited = [&](uint32_t i) {
                return (N == 2 || i % senders != self) && place.has(k + i / senders);
            };
            const auto at = [&](uint32_t i) {
                uint32_t m = sender(i);

                if constexpr (tight)
                    symm_port_settle(m);
                return from(m, k + i / senders);
            };

            SYMM_UNROLL
            for (uint32_t c = 0; c < together; c++) {
                fetch(k + c);
                own[c] = load(row, k + c);
            }
            if (k == 0)
                hold();
            if constexpr (P == 1 && SYMM_ROW_WATCHES(N, dtype))
                ok = watch(awaited, at, sender, packet);
            else
                ok = ok && symm_packets_poll<symm_lamport, together * senders>(
                               args, &round, awaited, at, sender, packet);
            SYMM_UNROLL
            for (uint32_t i = 0; i < senders; i++)
                if (acquire && ok && k == 0 && awaited(i))
                    symm_port_load32_acquire(&at(i)->word[0]);
            SYMM_UNROLL
            for (uint32_t c = 0; c < together; c++)
                take(k + c, part(k + c, fold(own[c], &packet[c * senders])), ok);
            SYMM_UNROLL
            for (uint32_t i = 0; i < together * senders; i++)
                if (ok && awaited(i))
                    symm_lamport::consumed(at(i));
        }
        return ok;
    }

    template <class FROM, class FETCH, class TAKE>
    SYMM_DEVICE bool one_by_one(uint32_t row, const FROM &from, bool acquire,
                                const FETCH &fetch, const TAKE &take) const
    {
        const bool partial = args.norm.flags & SYMM_NORM_ROUND_PARTIAL;
        bool ok = round.ok;

        SYMM_NO_UNROLL
        for (uint32_t k = 0; k < place.count(); k++) {
            struct symm_packet_sum<dtype> all;
            value own = load(row, k), some = {};

            fetch(k);
            SYMM_NO_UNROLL
            for (uint32_t m = 0; m < N; m++) {
                value v = own;

                if (m != rank && ok && place.has(k)) {
                    ok =
                        symm_packet_wait<symm_lamport>(args, &round, from(m, k), m, &v);
                    if (acquire && k == 0)
                        symm_port_load32_acquire(&from(m, k)->word[0]);
                }
                all.add(symm_packet_make(v.unit[0], v.unit[1]), m == 0);
                some = m == 0 ? v : symm_row_add<dtype>(some, v);
            }
            take(k,
                 partial && place_type::element == 2 ? some
                                                     : symm_lamport::open(all.done(N)),
                 ok);
        }
        return ok;
    }

    /* Zeros for a packet that the thread does not have: what was not loaded is undefined. */
    SYMM_DEVICE value part(uint32_t k, const value &v) const
    {
        value own;

        SYMM_UNROLL
        for (uint32_t u = 0; u < symm_lamport::units; u++)
            own.unit[u] = place.has(k) ? v.unit[u] : 0;
        return own;
    }

    /* packet[r]: of rank r; that of this rank is not set. */
    SYMM_DEVICE value fold(const value &own, const struct symm_packet *packet) const
    {
        if constexpr (N == 2) {
            return symm_row_add<dtype>(own, symm_lamport::open(packet[0]));
        } else {
            value v[N];

            SYMM_UNROLL
            for (uint32_t r = 0; r < N; r++) {
                v[r] = symm_lamport::open(packet[r]);
                SYMM_UNROLL
                for (uint32_t u = 0; u < symm_lamport::units; u++) /* no branch */
                    v[r].unit[u] = r == rank ? own.unit[u] : v[r].unit[u];
            }
            if (place_type::element == 2 && args.norm.flags & SYMM_NORM_ROUND_PARTIAL) {
                SYMM_UNROLL
                for (uint32_t r = 1; r < N; r++)
                    v[0] = symm_row_add<dtype>(v[0], v[r]);
                return v[0];
            }
            return symm_value_fold<symm_lamport, dtype, SYMM_SUM, N, N>(args, N, v);
        }
    }
};

/* ---- One shot ---------------------------------------------------------------------- */

template <class EPILOGUE, int N>
struct symm_row_one_shot
    : symm_row_exchange<EPILOGUE, N,
                        (EPILOGUE::place_type::most > 2 && N == 2) ? 1 : 2> {
    typedef symm_row_exchange<EPILOGUE, N,
                              (EPILOGUE::place_type::most > 2 && N == 2) ? 1 : 2>
        base;
    typedef typename base::place_type place_type;
    using base::args;
    using base::place;
    using base::rank;
    using base::round;
    using base::rows;
    using typename base::value;
    static constexpr int P = base::P, unrolled = base::unrolled;
    /* The first row is loaded while the counters are, where registers allow. */
    static constexpr bool soon = !place_type::loop && P * N <= 4;
    /* Where a thread pauses before its first poll; bytes that a rank sends in such a call. */
    static constexpr bool pauses = !place_type::loop && P <= 2 && N == 2;
    static constexpr uint32_t pause_least = P > 1 ? 32 << 10 : 4 << 10,
                              pause_most = 512 << 10;

    const uint32_t room;       /* packets of a sender in a slot */
    uint32_t share;            /* rows of the first round */
    uint32_t slot[2];          /* from a packet's number to its place, by round */
    struct symm_packet *from;  /* sender 0's packets here */
    value first[soon ? P : 1]; /* of the first row */
    EPILOGUE epilogue;

    /* [i]: this rank's packets at member(i), in slot 0. */
    struct targets {
        struct symm_packet *to[N];
    };

    SYMM_DEVICE symm_row_one_shot(const struct symm_cuda_args &a, bool whole)
        : base(a, whole), room(symm_slot_packets<symm_lamport>(a) / base::senders),
          share(rows), epilogue(a, place)
    {
        if (rows * place.packets > room)
            share = room / place.packets;
        from = symm_slot_of<symm_lamport>(a, rank, 0) + place.thread;
        symm_port_settle(from);
    }

    /* Computed once, and again for later rows, since they take registers. */
    SYMM_DEVICE struct targets aim(void) const
    {
        struct targets at;

        SYMM_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            at.to[i] = symm_slot_of<symm_lamport>(args, base::member(i), 0) +
                       (N == 2 ? 0 : rank * room) + place.thread;
            symm_port_settle(at.to[i]);
        }
        return at;
    }

    /* From the thread's place in a row of slot 0 to its packet k of a row. */
    SYMM_DEVICE uint32_t offset(uint32_t row, uint32_t k) const
    {
        return (row < share ? slot[0] : slot[1]) + row * place.packets +
               k * place.width;
    }

    SYMM_DEVICE void fetch(uint32_t row, value (&v)[P]) const
    {
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++)
            v[k] = place.get(args.in, row, k);
    }

    SYMM_DEVICE void send(uint32_t row, const struct targets &at, value (&v)[P]) const
    {
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k++) {
            v[k] = symm_lamport::clean(v[k]);
            SYMM_UNROLL
            for (uint32_t i = 1; i < N; i++)
                if (place.has(k))
                    symm_lamport::send(at.to[i] + offset(row, k), v[k], round.round);
        }
    }

    SYMM_DEVICE void send(uint32_t row, const struct targets &at) const
    {
        value v[P];

        if (row >= rows || !round.ok)
            return;
        fetch(row, v);
        send(row, at, v);
    }

    /* Cycles from a thread's last store to the peer to its first poll, if a rank sends so many bytes.
     * Measured on H200: what a store takes, the link's time for the bytes, and what one block's warps
     * or a cluster's take to send them. */
    static SYMM_DEVICE uint32_t pause_of(uint32_t bytes)
    {
        const uint32_t link = bytes / 1024 * 5;

        if constexpr (P > 1)
            return 1400 + link;
        else if constexpr (!place_type::clustered)
            return 900 + link;
        else
            return 832 + bytes * 9 / 1024 - (bytes > 65536 ? bytes - 65536 : 0) / 256;
    }

    /*
     * The clock at which a thread polls for its first row, 0: at once. It is when this rank's own
     * packets may have reached the peer. Those of a peer that began at the same time come no sooner,
     * and a poll that misses them takes 0.35 to 0.6 us, since it queues behind the stores. A peer
     * that began earlier waits for this rank anyway: the call ends no later on the rank that ends
     * last. In calls of more bytes, or of more rows than are under way at once, first rows arrive
     * long before the last ones, and are taken meanwhile.
     */
    SYMM_DEVICE uint32_t first_poll(uint32_t sent) const
    {
        const uint32_t bytes = rows * place.bytes;

        if (!pauses || rows > place.step || bytes < pause_least || bytes > pause_most)
            return 0;
        return (sent + pause_of(bytes)) | 1;
    }

    /* Loads that have begun go on meanwhile. */
    SYMM_DEVICE void hold(uint32_t &until) const
    {
        if constexpr (pauses) {
            if (until != 0)
                symm_port_pause(until);
            until = 0;
        }
    }

    SYMM_DEVICE void receive(uint32_t row, uint32_t &until)
    {
        value s[P];

        epilogue.begin_row();
        round.ok = base::sums(
            row,
            [&](uint32_t m, uint32_t k) {
                return from + (N == 2 ? 0 : m * room) + offset(row, k);
            },
            row == place.first && share < rows,
            [&](uint32_t k) { epilogue.load(row, k); }, [&] { hold(until); },
            [&](uint32_t k, const value &sum, bool ok) {
                s[k] = epilogue.packet(row, k, sum, ok);
            });
        round.ok = epilogue.row(row, s, round.ok);
    }

    /* Returns when the first rows were sent. */
    SYMM_DEVICE uint32_t begin(void)
    {
        const struct targets at = aim();
        uint32_t sent = 0;

        if (base::takes)
            epilogue.early();
        round = symm_round_open(args, [&] {
            if constexpr (soon)
                if (base::takes && place.first < rows)
                    fetch(place.first, first);
        });
        symm_two_slots<symm_lamport>(args, &round, share * place.packets, slot);
        if (base::takes) {
            if constexpr (soon)
                if (place.first < rows && round.ok)
                    send(place.first, at, first);
            SYMM_NO_UNROLL
            for (uint32_t k = soon; k < SYMM_ROWS_AHEAD; k++)
                send(place.first + k * place.step, at);
            sent = symm_port_clock();
            epilogue.begin();
        } else {
            symm_round_tell(args, round, threadIdx.x - (blockDim.x - SYMM_WARP));
        }
        return sent;
    }

    SYMM_DEVICE void run(void)
    {
        uint32_t until = first_poll(begin());

        __syncthreads();
        if (!base::takes) {
            if (share < rows)
                symm_round_next(&round);
            symm_round_finish(args, &round, blockDim.x / SYMM_WARP - 1);
            return;
        }
        epilogue.ready();
        SYMM_NO_UNROLL
        for (uint32_t row = place.first; row < rows; row += place.step) {
            const uint32_t next = row + SYMM_ROWS_AHEAD * place.step;

            if (next < rows)
                send(next, aim());
            receive(row, until);
        }
    }
};

/* ---- Two shots --------------------------------------------------------------------- */

template <class EPILOGUE, int N>
struct symm_row_two_shot : symm_row_exchange<EPILOGUE, N, N == 8 ? 1 : 2> {
    typedef symm_row_exchange<EPILOGUE, N, N == 8 ? 1 : 2> base;
    typedef typename base::place_type place_type;
    using base::args;
    using base::place;
    using base::rank;
    using base::round;
    using base::rows;
    using typename base::value;
    static constexpr int P = base::P, unrolled = base::unrolled;

    const uint32_t room; /* packets of a sender in a phase */
    const uint32_t most; /* rows of an owner, at most */
    uint32_t share;      /* of them, in the first round */
    uint32_t slot[2];    /* from a packet's number to its place, by round */
    EPILOGUE epilogue;

    SYMM_DEVICE symm_row_two_shot(const struct symm_cuda_args &a, bool whole)
        : base(a, whole), room(symm_slot_packets<symm_lamport>(a) / (2 * N)),
          most((rows + N - 1) / N), share(most), epilogue(a, place)
    {
        if (most * place.packets > room)
            share = room / place.packets / place.step * place.step;
        if (base::takes)
            epilogue.early();
        round = symm_round_open(a);
        symm_two_slots<symm_lamport>(a, &round, share * place.packets, slot);
    }

    /* Where the thread's packet k of row j of a phase and a sender is, from its packet 0. */
    SYMM_DEVICE uint32_t offset(uint32_t phase, uint32_t sender, uint32_t j,
                                uint32_t k) const
    {
        return (phase * N + sender) * room + (j < share ? slot[0] : slot[1]) +
               j * place.packets + place.packet(k);
    }

    SYMM_DEVICE struct symm_packet *to(uint32_t m, uint32_t phase, uint32_t j,
                                       uint32_t k) const
    {
        symm_port_settle(
            m); /* computed here: the addresses of all peers take registers */
        return symm_slot_of<symm_lamport>(args, m, 0) + offset(phase, rank, j, k);
    }

    /* Member 0's packet 0 here, in slot 0. */
    SYMM_DEVICE struct symm_packet *from(void) const
    {
        uint32_t m = rank;

        if constexpr (P > 2)
            symm_port_settle(m);
        return symm_slot_of<symm_lamport>(args, m, 0);
    }

    /* Row j of every peer to it. */
    SYMM_DEVICE void scatter(uint32_t j) const
    {
        value v[N];

        SYMM_NO_UNROLL
        for (uint32_t k = 0; k < place.count(); k++) {
            SYMM_UNROLL
            for (uint32_t i = 1; i < N; i++)
                if (j * N + base::member(i) < rows && place.has(k))
                    v[i] = base::load(j * N + base::member(i), k);
            SYMM_UNROLL
            for (uint32_t i = 1; i < N; i++)
                if (j * N + base::member(i) < rows && place.has(k))
                    symm_lamport::send(to(base::member(i), 0, j, k), v[i], round.round);
        }
    }

    SYMM_DEVICE void scatter_round(uint32_t j, uint32_t end) const
    {
        SYMM_NO_UNROLL
        for (; j < end && round.ok; j += place.step)
            scatter(j);
    }

    /* Row j of this rank's rows: sum, send, keep. */
    SYMM_DEVICE void reduce(uint32_t j)
    {
        const uint32_t row = j * N + rank;
        value s[P];

        epilogue.begin_row();
        round.ok = base::sums(
            row, [&](uint32_t m, uint32_t k) { return from() + offset(0, m, j, k); },
            j == place.first && share < most,
            [&](uint32_t k) { epilogue.load(row, k); }, [] {},
            [&](uint32_t k, const value &sum, bool ok) {
                const value v = symm_lamport::clean(sum);

                SYMM_NO_UNROLL
                for (uint32_t i = 1; i < N; i++)
                    if (place.has(k) && ok)
                        symm_lamport::send(to(base::member(i), 1, j, k), v,
                                           round.round);
                s[k] = epilogue.packet(row, k, v, ok);
            });
        round.ok = epilogue.row(row, s, round.ok);
    }

    /* Row j of member m, of which it sends the sums. */
    SYMM_DEVICE void gather(uint32_t m, uint32_t j)
    {
        constexpr int chunk = place_type::loop ? 1 : P;
        const uint32_t row = j * N + m;
        value s[P];
        bool ok = round.ok;

        epilogue.begin_row();
        SYMM_UNROLL_BY(unrolled)
        for (uint32_t k = 0; k < place.count(); k += chunk) {
            struct symm_packet packet[chunk];
            const auto has = [&](uint32_t c) { return place.has(k + c); };
            const auto at = [&](uint32_t c) { return from() + offset(1, m, j, k + c); };

            SYMM_UNROLL
            for (uint32_t c = 0; c < chunk; c++)
                epilogue.load(row, k + c);
            ok = ok && symm_packets_poll<symm_lamport, chunk>(
                           args, &round, has, at, [&](uint32_t) { return m; }, packet);
            SYMM_UNROLL
            for (uint32_t c = 0; c < chunk; c++) {
                const value sum = base::part(k + c, symm_lamport::open(packet[c]));

                s[k + c] = epilogue.packet(row, k + c, sum, ok);
                if (has(c) && ok)
                    symm_lamport::consumed(at(c));
            }
        }
        round.ok = epilogue.row(row, s, ok);
    }

    SYMM_DEVICE void take(void)
    {
        SYMM_NO_UNROLL
        for (uint32_t j = place.first; j < most; j += place.step) {
            if (j >= share && j - share == place.first)
                scatter_round(j, most);
            if (j * N + rank < rows)
                reduce(j);
        }
        SYMM_NO_UNROLL
        for (uint32_t j = place.first; j < most; j += place.step) {
            SYMM_NO_UNROLL
            for (uint32_t i = 1; i < N; i++)
                if (j * N + base::member(i) < rows)
                    gather(base::member(i), j);
        }
    }

    SYMM_DEVICE void run(void)
    {
        if (base::takes) {
            scatter_round(place.first, share);
            epilogue.begin();
        } else {
            symm_round_tell(args, round, threadIdx.x - (blockDim.x - SYMM_WARP));
        }
        __syncthreads();
        if (base::takes) {
            epilogue.ready();
            take();
            return;
        }
        if (share < most)
            symm_round_next(&round);
        symm_round_finish(args, &round, blockDim.x / SYMM_WARP - 1);
    }
};

#endif
