/* SPDX-License-Identifier: MIT */
/*
 * greeting.h - what ranks tell each other in the first exchange, and whether it fits.
 */
#ifndef SYMM_GREETING_H
#define SYMM_GREETING_H

#include "context.h"

/* Sent with two descriptors, control page and pidfd, where ranks are processes. */
struct symm_hello {
    uint32_t layout;
    uint32_t epoch_start;
    uint64_t stride, team_bytes, granularity;
    char version[16];
    char backend[8];
    uint8_t uuid[16]; /* of the device; zeros on the host backend */
    char bus[16];     /* of the device, for errors */
    uint32_t processors;
    uint32_t multicast; /* 1: this rank's device can, and its options want it */
};

struct symm_hello symm__hello(const symm_ctx *ctx);
/* Do all ranks' greetings fit mine? Then what follows from all of them is set in ctx. */
symm_status symm__hello_check(symm_ctx *ctx,
                              const struct symm_parcel *parcels) SYMM_MUST_CHECK;
/* Behind it: can my device reach that rank's memory? */
symm_status symm__hello_reach(const symm_ctx *ctx, const struct symm_parcel *parcel,
                              int rank) SYMM_MUST_CHECK;

#endif
