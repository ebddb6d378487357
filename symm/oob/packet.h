/* SPDX-License-Identifier: MIT */
/*
 * packet.h - one packet between two ranks of a host.
 *
 * A packet is a head and, after it, bytes of a part or a sentence, and descriptors with it.
 */
#ifndef SYMM_OOB_PACKET_H
#define SYMM_OOB_PACKET_H

#include <assert.h>

#include "net/seqpacket.h"
#include "oob/oob.h"

#define SYMM_OOB_CHUNK   (32u << 10) /* bytes of a part in one packet */
#define SYMM_OOB_MAGIC   0x4c4d5953u /* "SYML" */
#define SYMM_OOB_VERSION 4u
#define SYMM_OOB_BURST   8 /* packets to or from one peer before the next one's turn */

/* An exchange that has ended well among hosts has failed on this one: those who wait for this rank
 * in the exchange that follows it are told why. */
void symm__oob_lose(struct symm_oob *oob, uint64_t tag, uint32_t sequence,
                    symm_status status, const char *sentence);

enum symm_oob_kind {
    SYMM_OOB_DATA = 1,
    SYMM_OOB_DONE = 2,
    SYMM_OOB_FAIL = 3,
    SYMM_OOB_BLAME = 4 /* a FAIL, see struct symm_oob_head */
};

struct symm_oob_head {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t tag;
    uint32_t sequence;
    int32_t rank;         /* the sender's, in the world */
    int32_t status;       /* DATA: the member's own; FAIL: of the exchange */
    uint32_t fds_total;   /* DATA: of the whole part, */
    uint64_t bytes_total; /* which is a sentence if status is an error */
    uint32_t bytes_here;  /* after this head */
    uint32_t fds_here;
    char what[64];
    /* BLAME, a FAIL that blames its receiver: for a timeout, it had not arrived; for a mismatch
     * bytes_total and fds_total are tag and number of its exchange that did not fit. */
};
static_assert(sizeof(struct symm_oob_head) == 112, "the head's layout is fixed");

/* The results are those of symm__seqpacket_send, _recv and _peek. */
enum symm_seqpacket symm__oob_out(const struct symm_oob *oob, int rank,
                                  const struct iovec *parts, int parts_count,
                                  const int *fds, int fds_count, double until);
enum symm_seqpacket symm__oob_in(const struct symm_oob *oob, int rank,
                                 const struct iovec *parts, int parts_count,
                                 size_t *bytes, int *fds, int *fds_count);
enum symm_seqpacket symm__oob_peek(const struct symm_oob *oob, int rank,
                                   struct symm_oob_head *head, size_t *bytes);
/* Is this the head of a packet of `rank` that came with so much? Makes `what` printable. */
bool symm__oob_head_check(struct symm_oob_head *head, int rank, size_t bytes,
                          int fds_count);

#endif
