/* SPDX-License-Identifier: MIT */
/*
 * bind.h - which cores a rank gets: its share of those near its GPU, or of all.
 */
#ifndef SYMM_TOPOLOGY_BIND_H
#define SYMM_TOPOLOGY_BIND_H

#include "topology/topology.h"

#define SYMM_BIND_GPUS 64 /* of a host; more are left out */
#define SYMM_BUS_BYTES 16 /* "0000:1b:00.0" */

struct symm_gpu {
    char bus[SYMM_BUS_BYTES]; /* small letters */
    struct symm_cpus near;    /* owned; set NULL: not known */
};

/* What CUDA would show this process, in CUDA's order. */
struct symm_gpus {
    struct symm_gpu gpu[SYMM_BIND_GPUS];
    size_t count;
};

struct symm_share {
    struct symm_cpus cpus;      /* owned */
    const struct symm_gpu *gpu; /* the rank's, if the cores are near it; else NULL */
    const struct symm_gpu *far; /* the rank's, if no core near it was left; else NULL */
    char where[512];            /* the cores in words; longer text is cut */
};

/*
 * gpus.c: root is "", or a folder with /proc, /sys and /dev of a machine. Without the
 * driver's list, or where CUDA's order is unknown, there are none (one log line).
 */
symm_status symm__gpus_read(struct symm_gpus *gpus, const char *root) SYMM_MUST_CHECK;
void symm__gpus_finish(struct symm_gpus *gpus); /* zeroed ones are fine */
/* The CPUs near a PCI device as a list ("0-31,64-95"), and its NUMA node or -1. False: the
 * kernel doesn't say. */
bool symm__gpu_object(const char *root, const char *bus, char *cpus, size_t bytes,
                      int *node);

/*
 * The share of rank `rank` of `size` ranks of this host. Rank r has GPU r modulo their
 * number; gpus NULL: none has one. Depends on its arguments alone, so ranks with equal
 * affinity agree. The holder finishes share->cpus.
 */
symm_status symm__bind_share(const struct symm_topology *topology,
                             const struct symm_gpus *gpus, int rank, int size,
                             struct symm_share *share) SYMM_MUST_CHECK;
/* symm_bind_self on the machine that root describes, whose CPUs are this one's. */
symm_status symm__bind_self(const char *root, int rank, int size, char *where,
                            size_t where_bytes) SYMM_MUST_CHECK;

#endif
