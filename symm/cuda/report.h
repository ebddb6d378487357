/* SPDX-License-Identifier: MIT */
/*
 * report.h - the CUDA driver and the devices of this machine, as data for symm_cuda_write.
 */
#ifndef SYMM_CUDA_REPORT_H
#define SYMM_CUDA_REPORT_H

#include "core/backend.h"

#define SYMM_CUDA_REPORT_DEVICES 16
#define SYMM_CUDA_REPORT_PROOFS  4

struct symm_cuda_report {
    char why[512];     /* the backend cannot be used; "": it can */
    char library[256]; /* of the driver; "": this build looks for none */
    char kernels[128]; /* what the built-in kernels are made for */
    int version;       /* of the driver: 13000; 0: none */
    int count;         /* of device[] */
    struct symm_cuda_reported {
        struct symm_device_info device;
        uint64_t memory; /* bytes */
        char cpus[256];  /* near it, "0-31,64-95"; "": not known */
        int node;        /* its NUMA node; -1: not known */
        bool posix, fabric, multicast;
        struct symm_clique clique; /* as NVML says, if `no_clique` is "" */
        char no_clique[256];       /* else why it is in none; only where `fabric` */
        bool peer[SYMM_CUDA_REPORT_DEVICES]; /* reaches that device's memory */
    } device[SYMM_CUDA_REPORT_DEVICES];
    int proof_count;
    struct symm_cuda_proof {
        const char *name;
        bool good;
        char text[512];
    } proof[SYMM_CUDA_REPORT_PROOFS];
};

/* Fills the report; probe: also proves attributes by use. */
void symm__cuda_report(struct symm_cuda_report *report, bool probe);

#endif
