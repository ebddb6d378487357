/* SPDX-License-Identifier: MIT */
/* model.c - see model.h. */
#include "perf/model.h"

#include <math.h>

#include "select/chunks.h"

#define ELEMENT 2 /* bytes: bfloat16, the data of the measured points */
/* NCCL's rate on NVLink, GB/s, measured on H200s (SYMM_ALGORITHM_ENGINE in select/cost.c). */
#define NVLINK 298.0

/* ---- NCCL ------------------------------------------------------------------------- */

/* tuning.cc: baseLatencies and hwLatencies, us, by protocol. */
static const struct {
    double base[PERF_PROTOCOLS], nvlink[PERF_PROTOCOLS], net[PERF_PROTOCOLS];
} constants[PERF_NCCL_ALGORITHMS] = {
    [PERF_RING] = {{6.6, 14.0, 8.4}, {0.6, 1.9, 3.4}, {2.7, 4.0, 14.0}},
    [PERF_TREE] = {{6.8, 14.0, 8.4}, {0.6, 1.25, 4.0}, {5.0, 8.5, 14.0}},
};

/* LL sends a flag with each word. LL128 has 120 bytes of 128, and NCCL counts 0.92. */
static const double efficiency[PERF_PROTOCOLS] = {0.5, 0.92, 1};

/* tuning.cc: on each step of a ring over hosts the proxy has work (getNetOverhead). */
#define STEP_OVERHEAD 1.0
/* tuning.cc: "plateau effect" of Simple's ring over hosts. Taken for the tree as well, whose
 * measured points ask for it. */
#define PLATEAU 1.4
/* Over TCP, inferred from times: 2 ranks take LL at 32 KiB and Simple at 64 KiB. */
#define LL_MOST_PER_RANK (24.0 * 1024)

/* One call by NCCL: of the whole job, or of one rail. */
struct call {
    enum perf_kind kind;
    int hosts, gpus;
    double bytes, latency, rate; /* us; GB/s of a host */
    bool sockets;
    bool as_nccl; /* latencies as NCCL computes them for its choice */
};

/* Steps that follow one another in a ring; an all_reduce goes round twice. */
static int ring_steps(const struct call *call)
{
    const int ranks = call->hosts * call->gpus;

    return call->kind == PERF_ALL_REDUCE ? 2 * (ranks - 1) : ranks - 1;
}

/* How many of them cross the network, for the chunk that begins worst. NCCL counts as many
 * as one round of hosts has, which is too few by up to 2. */
static int ring_net_steps(const struct call *call)
{
    const int steps = ring_steps(call);

    if (call->hosts == 1)
        return 0;
    if (call->as_nccl)
        return (call->kind == PERF_ALL_REDUCE ? 2 : 1) * (call->hosts - 1);
    return (steps + call->gpus - 1) / call->gpus;
}

/* One step over the network. tuning.cc: hosts of one rank have the tree's constant, and
 * Simple pays the network's latency twice, as it flushes what has come. */
static double net_step(const struct call *call, enum perf_nccl_algorithm algorithm,
                       enum perf_protocol protocol)
{
    const enum perf_nccl_algorithm of = call->gpus == 1 ? PERF_TREE : algorithm;

    if (call->as_nccl) /* plug-ins for sockets and InfiniBand tell NCCL of no latency */
        return constants[of].net[protocol];
    return constants[of].net[protocol] +
           (protocol == PERF_SIMPLE ? 2 : 1) * call->latency;
}

static double nccl_latency(const struct call *call, enum perf_nccl_algorithm algorithm,
                           enum perf_protocol protocol)
{
    const double net = net_step(call, algorithm, protocol);
    const double overhead = STEP_OVERHEAD * (protocol == PERF_SIMPLE ? 3 : 1);
    const int net_steps = ring_net_steps(call);
    double nvlink = constants[algorithm].nvlink[protocol], us;

    if (algorithm == PERF_RING) {
        if (call->hosts > 1 && nvlink < overhead)
            nvlink = overhead;
        us = (ring_steps(call) - net_steps) * nvlink + net_steps * net;
    } else { /* up and down: a chain on each host, a binary tree of hosts */
        us = 2 * ((call->gpus - 1) * nvlink + ceil(log2(call->hosts)) * net);
    }
    us += constants[algorithm].base[protocol];
    return protocol == PERF_SIMPLE && call->hosts > 1 && call->kind == PERF_ALL_REDUCE
               ? us * PLATEAU
               : us;
}

/* Bytes over the slowest link. A ring: each rank receives what it lacks. Two trees with half of
 * the data each: a host has a parent and two children in one, a parent in the other; of two hosts
 * each is the other's only child. */
static double nccl_bytes(const struct call *call, enum perf_nccl_algorithm algorithm)
{
    const double ranks = (double)call->hosts * call->gpus;

    if (algorithm == PERF_TREE)
        return (call->hosts == 2 ? 1 : 2) * call->bytes;
    if (call->kind == PERF_BROADCAST)
        return call->bytes;
    return ring_steps(call) / ranks * call->bytes;
}

static double nccl_us(const struct call *call, enum perf_nccl_algorithm algorithm,
                      enum perf_protocol protocol)
{
    const double rate = call->rate * efficiency[protocol] * 1e3; /* bytes per us */

    return nccl_latency(call, algorithm, protocol) + nccl_bytes(call, algorithm) / rate;
}

/* Over TCP NCCL does not take the fastest protocol: the switch is where times have it. */
static struct perf_nccl_time nccl_time(const struct call *call,
                                       enum perf_nccl_algorithm algorithm)
{
    const bool measured = call->sockets && call->hosts > 1;
    const bool small = call->bytes / call->hosts / call->gpus <= LL_MOST_PER_RANK;
    struct perf_nccl_time time = {.present = algorithm == PERF_RING ||
                                             call->kind == PERF_ALL_REDUCE,
                                  .protocol = small ? PERF_LL : PERF_SIMPLE};

    time.us = nccl_us(call, algorithm, time.protocol);
    for (int p = 0; !measured && p < PERF_PROTOCOLS; p++) {
        const double us = nccl_us(call, algorithm, (enum perf_protocol)p);

        if (us < time.us) {
            time.protocol = (enum perf_protocol)p;
            time.us = us;
        }
    }
    return time;
}

/* NCCL compares by its own constants; a tie is the ring's. */
static enum perf_nccl_algorithm nccl_takes(const struct call *call,
                                           const struct perf_nccl_time *times)
{
    struct call seen = *call;

    seen.as_nccl = true;
    return times[PERF_TREE].present &&
                   nccl_us(&seen, PERF_TREE, times[PERF_TREE].protocol) <
                       nccl_us(&seen, PERF_RING, times[PERF_RING].protocol)
               ? PERF_TREE
               : PERF_RING;
}

/* Pairs of send and receive, all at once: a hop, and what leaves a rank for other hosts
 * by its share of the NICs. A bound from below: what a pair costs by itself is left out. */
static double pairs_us(const struct call *call)
{
    const double share = call->rate / call->gpus * 1e3;
    const double away = call->bytes * (call->hosts - 1) / call->hosts;
    const double near = call->bytes / call->hosts * (call->gpus - 1) / call->gpus;

    return constants[PERF_RING].base[PERF_SIMPLE] +
           (call->hosts > 1 ? net_step(call, PERF_RING, PERF_SIMPLE) + away / share
                            : near / NVLINK / 1e3);
}

/* Returns the time by the algorithm that NCCL takes. */
static double nccl_predict(const struct call *call, struct perf_nccl_time *times,
                           enum perf_nccl_algorithm *takes)
{
    for (int a = 0; a < PERF_NCCL_ALGORITHMS; a++)
        times[a] = nccl_time(call, (enum perf_nccl_algorithm)a);
    if (call->kind == PERF_ALL_TO_ALL)
        times[PERF_RING] = (struct perf_nccl_time){
            .present = true, .protocol = PERF_SIMPLE, .us = pairs_us(call)};
    *takes = nccl_takes(call, times);
    return times[*takes].us;
}

static double rail_us(const struct perf_model *model, enum perf_kind kind, double bytes)
{
    const struct call call = {.kind = kind,
                              .hosts = model->hosts,
                              .gpus = 1,
                              .bytes = bytes,
                              .latency = model->latency,
                              .rate = model->network,
                              .sockets = model->sockets};
    struct perf_nccl_time times[PERF_NCCL_ALGORITHMS];
    enum perf_nccl_algorithm takes;

    return model->hosts > 1 && bytes > 0 ? nccl_predict(&call, times, &takes) : 0;
}

/* ---- A host, by measured curves ------------------------------------------------------ */

static symm_program_kind program_kind(enum perf_kind kind)
{
    switch (kind) {
    case PERF_REDUCE_SCATTER:
        return SYMM_PROGRAM_REDUCE_SCATTER;
    case PERF_ALL_GATHER:
        return SYMM_PROGRAM_ALL_GATHER;
    case PERF_BROADCAST:
        return SYMM_PROGRAM_BROADCAST;
    case PERF_ALL_TO_ALL:
        return SYMM_PROGRAM_ALL_TO_ALL;
    default:
        return SYMM_PROGRAM_ALL_REDUCE;
    }
}

/* A curve of the call over so many ranks: sums of bfloat16, out of place. */
static bool serves(const symm_costs_curve *curve, enum perf_kind kind, int ranks)
{
    return curve->collective == program_kind(kind) && !curve->in_place &&
           (curve->data == SYMM_COSTS_HALF || curve->data == SYMM_COSTS_ANY) &&
           (ranks == 0 || curve->ranks == ranks);
}

static bool next_curve(const struct perf_model *model, enum perf_kind kind, int ranks,
                       int *index, symm_costs_curve *curve)
{
    *curve = (symm_costs_curve){.size = sizeof(*curve)};
    while (symm_costs_curve_at(model->costs, (*index)++, curve) == SYMM_OK)
        if (serves(curve, kind, ranks))
            return true;
    return false;
}

/* The most ranks that were measured, up to those of a host. 0: none. */
static int measured_ranks(const struct perf_model *model, enum perf_kind kind)
{
    symm_costs_curve curve;
    int most = 0;

    for (int i = 0; next_curve(model, kind, 0, &i, &curve);)
        if (curve.ranks <= model->gpus && curve.ranks > most)
            most = curve.ranks;
    return most;
}

/* select/cost.h's reading of a curve: straight between points, flat before the first one;
 * after the last one it goes on as its last piece. */
static double curve_us(const symm_costs_curve *curve, double bytes)
{
    const symm_costs_point *points = curve->points;
    int high = 1;
    double slope;

    if (bytes <= points[0].bytes || curve->count == 1)
        return points[0].us;
    while (high + 1 < curve->count && points[high].bytes < bytes)
        high++;
    slope = (points[high].us - points[high - 1].us) /
            (points[high].bytes - points[high - 1].bytes);
    if (bytes > points[high].bytes && slope < 0)
        slope = 0;
    return points[high].us + (bytes - points[high].bytes) * slope;
}

/* More ranks than were measured: the same latency, and the size at which a rank of the
 * measured ones receives as many bytes. */
static double equal_block(enum perf_kind kind, double block, int ranks, int measured)
{
    const double more = (ranks - 1.0) / (measured - 1.0);

    if (kind == PERF_BROADCAST || ranks == measured)
        return block;
    return kind == PERF_ALL_REDUCE ? block * more * measured / ranks : block * more;
}

static double last_bytes(const symm_costs_curve *curve)
{
    return curve->points[curve->count - 1].bytes;
}

/*
 * The fastest algorithm among those that were measured as far as any (as the library
 * chooses by a table). `block`: bytes as the call counts. NAN: no curve.
 */
static double host_us(const struct perf_model *model, enum perf_kind kind, double block)
{
    const int ranks = measured_ranks(model, kind);
    symm_costs_curve curve;
    double reach = 0, best = NAN;

    if (model->gpus == 1)
        return 0;
    if (ranks < 2)
        return NAN;
    block = equal_block(kind, block, model->gpus, ranks);
    for (int i = 0; next_curve(model, kind, ranks, &i, &curve);)
        reach = fmax(reach, last_bytes(&curve));
    reach = fmin(reach, block);
    /* fmin of NAN and a number is the number */
    for (int i = 0; next_curve(model, kind, ranks, &i, &curve);)
        if (last_bytes(&curve) >= reach)
            best = fmin(best, curve_us(&curve, block));
    return best;
}

/* ---- Our collectives (call/hierarchical_chunks.c) --------------------------------------- */

/* The later of two times; unlike by fmax, of what is not known (NAN) nothing is. */
static double later(double a, double b)
{
    return a + fdim(b, a);
}

/* A copy in rows within a GPU: measured on an H100, 16 rows, 1 to 64 MiB (docs/performance.md). */
#define COPY_US   2.0
#define COPY_RATE 800.0 /* GB/s */

static double copy_us(double bytes)
{
    return COPY_US + bytes / COPY_RATE / 1e3;
}

/* What a chunk of `bytes` of a rank takes: the engine's step, and the kernels before and after it.
 * `rows`: it is one of several, whose parts of blocks are copied together, or apart. */
struct stages {
    double before, rail, after;
};

static struct stages stages(const struct perf_model *model, enum perf_kind kind,
                            double bytes, bool rows)
{
    const double hosts = model->hosts;
    const double copy = rows ? copy_us(hosts * model->gpus * bytes) : 0;

    switch (kind) {
    case PERF_REDUCE_SCATTER: /* the blocks of each host, one call after the other */
        return (struct stages){copy + hosts * host_us(model, kind, bytes),
                               rail_us(model, kind, hosts * bytes), 0};
    case PERF_ALL_GATHER:
        return (struct stages){0, rail_us(model, kind, hosts * bytes),
                               hosts * host_us(model, kind, bytes) + copy};
    case PERF_BROADCAST: /* of a rank on another host than the root */
        return (struct stages){0, rail_us(model, kind, bytes),
                               host_us(model, kind, bytes)};
    default:
        return (struct stages){host_us(model, PERF_REDUCE_SCATTER, bytes),
                               rail_us(model, PERF_ALL_REDUCE, bytes),
                               host_us(model, PERF_ALL_GATHER, bytes)};
    }
}

/*
 * A call of `part` elements on each rail. Beside the engine's step of a chunk, on a stream of its
 * own, the kernels begin the next one and end the one before.
 */
static double rails_us(const struct perf_model *model, enum perf_kind kind, size_t part,
                       const struct symm_chunks *chunks)
{
    double kernels = 0, engine = 0, begun, after = 0; /* when each is through */
    size_t before = 0;

    for (size_t left = part; left > 0; left -= before) {
        const size_t now = symm__chunk(chunks, before, left);
        const struct stages each =
            stages(model, kind, (double)now * ELEMENT, chunks->first < part);

        begun = kernels + each.before;
        kernels = before ? later(begun, engine) + after : begun;
        engine = later(begun, engine) + each.rail;
        after = each.after;
        before = now;
    }
    return later(kernels, engine) + after;
}

/* How the library cuts it, unless SYMM_CHUNKS says otherwise. */
static struct symm_chunks cut(const struct perf_model *model, enum perf_kind kind,
                              size_t part)
{
    const size_t gpus = (size_t)model->gpus, hosts = (size_t)model->hosts;
    const enum symm_chunks_of what = kind == PERF_ALL_REDUCE  ? SYMM_CHUNKS_SUMS
                                     : kind == PERF_BROADCAST ? SYMM_CHUNKS_COPIES
                                                              : SYMM_CHUNKS_BLOCKS;
    const size_t ranks = what == SYMM_CHUNKS_SUMS     ? gpus
                         : what == SYMM_CHUNKS_COPIES ? 1
                                                      : gpus * hosts;

    if (gpus == 1)
        return symm__chunks_none(part);
    return symm__chunks(part, ELEMENT, ranks,
                        symm__chunks_limits(what, SYMM_CHUNKS_FASTER, gpus, hosts));
}

static double in_steps_us(const struct perf_model *model, enum perf_kind kind,
                          double part, bool chunks)
{
    const struct symm_chunks sizes =
        chunks ? cut(model, kind, (size_t)part) : symm__chunks_none((size_t)part);

    return rails_us(model, kind, (size_t)part, &sizes);
}

/* `chunks`: as the library makes it; else in one piece. */
static double all_reduce_us(const struct perf_model *model, double bytes, bool chunks)
{
    const double count = fmax(floor(bytes / ELEMENT), 1);
    const double part = floor(count / model->gpus), rest = count - part * model->gpus;
    double us = in_steps_us(model, PERF_ALL_REDUCE, part, chunks);

    if (rest > 0) /* by the leaders */
        us += host_us(model, PERF_ALL_REDUCE, rest * ELEMENT) +
              rail_us(model, PERF_ALL_REDUCE, rest * ELEMENT) +
              host_us(model, PERF_BROADCAST, rest * ELEMENT);
    return us;
}

static double ours(const struct perf_model *model, enum perf_kind kind, double bytes,
                   bool chunks)
{
    const double count = bytes / ELEMENT;

    switch (kind) {
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_GATHER:
        return in_steps_us(model, kind,
                           fmax(floor(count / model->hosts / model->gpus), 1), chunks);
    case PERF_BROADCAST:
        return in_steps_us(model, kind, fmax(floor(count), 1), chunks);
    case PERF_BARRIER: /* taken as all_reduces of 8 bytes, two of them on the host */
        return 2 * host_us(model, PERF_ALL_REDUCE, 8) +
               rail_us(model, PERF_ALL_REDUCE, 8);
    default:
        return all_reduce_us(model, bytes, chunks);
    }
}

/* On one host a call is one step. */
static double ours_on_host(const struct perf_model *model, enum perf_kind kind,
                           double bytes)
{
    if (kind == PERF_BARRIER)
        return host_us(model, PERF_ALL_REDUCE, 8);
    return host_us(model, kind,
                   kind == PERF_ALL_REDUCE || kind == PERF_BROADCAST
                       ? bytes
                       : bytes / model->gpus);
}

bool perf_model_predict(const struct perf_model *model, enum perf_kind kind,
                        double bytes, struct perf_prediction *prediction)
{
    const double nics = model->hosts > 1 ? model->network * model->nics : NVLINK;
    const struct call call = {.kind = kind == PERF_BARRIER ? PERF_ALL_REDUCE : kind,
                              .hosts = model->hosts,
                              .gpus = model->gpus,
                              .bytes = kind == PERF_BARRIER ? 8 : bytes,
                              .latency = model->latency,
                              .rate = model->gpus > 1 ? fmin(nics, NVLINK) : nics,
                              .sockets = model->sockets};
    const double nccl = nccl_predict(&call, prediction->nccl, &prediction->takes);

    if (model->hosts == 1)
        prediction->ours = ours_on_host(model, kind, bytes);
    else if (kind == PERF_ALL_TO_ALL) /* the engine over all ranks */
        prediction->ours = nccl;
    else
        prediction->ours = ours(model, kind, bytes, true);
    prediction->one_piece = kind != PERF_ALL_TO_ALL && model->hosts > 1
                                ? ours(model, kind, bytes, false)
                                : prediction->ours;
    return !isnan(prediction->ours);
}
