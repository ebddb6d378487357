/* SPDX-License-Identifier: MIT */
/*
 * model.h - predicts what a collective over several hosts takes: ours and NCCL's.
 *
 * Pure functions. A host's part is read off measured curves of a cost table. The network's
 * part is an alpha-beta model of NCCL's ring and tree: steps times a latency, and bytes over
 * a rate (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
 * Operations in MPICH", IJHPCA 19(1), 2005). Constants of protocols and the choice between
 * ring and tree are NCCL's own (src/graph/tuning.cc, 2.28). docs/performance.md lists what is
 * measured and what is a parameter.
 */
#ifndef PERF_MODEL_H
#define PERF_MODEL_H

#include "symm/plan.h"

#include "perf/options.h"

enum perf_protocol { PERF_LL, PERF_LL128, PERF_SIMPLE, PERF_PROTOCOLS };
enum perf_nccl_algorithm { PERF_RING, PERF_TREE, PERF_NCCL_ALGORITHMS };

struct perf_model {
    const symm_costs *costs; /* curves of one host */
    int hosts, gpus;         /* GPUs of each host */
    int nics;                /* of each host, that NCCL's ring and tree use */
    double network;          /* GB/s of a rail (one NIC), each way */
    double latency;          /* us that a message needs beyond NCCL's constants */
    bool sockets;            /* NCCL over TCP */
};

struct perf_nccl_time {
    bool present; /* NCCL has this algorithm for the collective */
    enum perf_protocol protocol;
    double us;
};

struct perf_prediction {
    double ours;
    double one_piece; /* without the library's chunks */
    struct perf_nccl_time nccl[PERF_NCCL_ALGORITHMS];
    enum perf_nccl_algorithm takes; /* NCCL's choice */
};

/* `bytes` counts as in nccl-tests: the largest buffer of a rank. False: the table has no
 * curve for a step on the host. */
bool perf_model_predict(const struct perf_model *model, enum perf_kind kind,
                        double bytes, struct perf_prediction *prediction);
/* "symm-perf model ...": argv[0] is the word model. An exit status. */
int perf_model_main(int argc, char **argv);

/* model_table.c: bench/costs/h200.json. */
extern const char perf_model_table[], perf_model_table_end[];

#endif
