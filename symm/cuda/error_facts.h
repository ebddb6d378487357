/* SPDX-License-Identifier: MIT */
/* error_facts.h - a failed kernel's record as the host has read it, for error_record.c. */
#ifndef SYMM_CUDA_ERROR_FACTS_H
#define SYMM_CUDA_ERROR_FACTS_H

#include "cuda/error_members.h"

/* The record, copied once. */
struct symm_cuda_facts {
    symm_status status;
    uint32_t channel, tag, counter, signal;
    struct symm_cuda_members missing;
    uint32_t before;   /* 1 + number of the team whose call before it failed; 0: none */
    uint32_t pointers; /* 1 + the captured call that had no addresses; 0: none */
    /* missing members whose hosts had queued the call */
    struct symm_cuda_members queued;
    uint64_t workspace; /* of an exchange: its offset in the heap; 0: not known */
    uint64_t seen[SYMM_DEVICE_RANKS];
    double timeout;   /* seconds, of the team */
    bool by_watchdog; /* the caller, which holds the launcher's lock */
};

/* Of a one-sided call, or of such an exchange. */
static inline bool symm__is_signal(const struct symm_cuda_facts *facts)
{
    return facts->channel >= SYMM_CHANNELS;
}

/* Of an exchange of a kernel of the program's own (symm/device_exchange.h). */
static inline bool symm__is_exchange(const struct symm_cuda_facts *facts)
{
    return symm__is_signal(facts) && facts->signal == SYMM_SIGNALS;
}

#endif
