/* SPDX-License-Identifier: MIT */
/*
 * handshake.h - what ranks send each other in the first exchange, and whether it fits.
 */
#ifndef SYMM_SETUP_HANDSHAKE_H
#define SYMM_SETUP_HANDSHAKE_H

#include "engine/runtime.h"

/* Sent with two descriptors, control page and pidfd, where ranks are processes of one host. */
struct symm_handshake {
    uint32_t layout;
    uint32_t epoch_start;
    uint64_t stride, team_bytes, granularity;
    char version[16];
    char backend[8];
    uint8_t uuid[16]; /* of the device; zeros on the host backend */
    char bus[16];     /* of the device, for errors */
    uint32_t processors;
    uint32_t mps; /* multiprocessors of the whole device; 0: MPS is not used */
    uint32_t fabric;        /* 1: SYMM_FABRIC asks for NVLink domains over hosts */
    uint32_t multicast;     /* 1: this rank's device can, and its options want it */
    uint32_t exclusive;     /* 1: one stream at a time uses each device */
    uint32_t clusters;      /* 1: the device has clusters of blocks */
    uint32_t oversubscribe; /* 1: ranks may share devices */
    uint64_t costs;         /* hash of what SYMM_COSTS names; 0: it is not set */
    uint64_t machine;       /* hash of the machine's name in cost tables */
    uint64_t record;        /* random; 0: SYMM_RECORD is not set */
    uint32_t plan;          /* 1: SYMM_PLAN is set */
    struct symm_engine_handshake engine;
};

struct symm_handshake symm__handshake(const symm_ctx *ctx);
/* How many bytes of the handshake are sent: not the zeros at its end, since each rank gets those
 * of all ranks. */
size_t symm__handshake_bytes(const struct symm_handshake *handshake);
/* Do all ranks' handshakes fit this rank's? Then sets in ctx what follows from all of them. The
 * messages may be moved. */
symm_status symm__handshake_check(symm_ctx *ctx,
                                  struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* After symm__handshake_check: can this rank's device reach that rank's memory? */
symm_status symm__handshake_reach(const symm_ctx *ctx,
                                  const struct symm_oob_message *message,
                                  int rank) SYMM_MUST_CHECK;

#endif
