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
#include "util/status.h"

#define SYMM_OOB_CHUNK   (32u << 10) /* bytes of a part in one packet */
#define SYMM_OOB_MAGIC   0x4c4d5953u /* "SYML" */
#define SYMM_OOB_VERSION 5u
#define SYMM_OOB_BURST   8 /* packets to or from one peer before the next one's turn */

/* An exchange that has ended well among hosts has failed on this one: those who wait for this rank
 * in the exchange that follows it are told why. */
void symm__oob_lose(struct symm_oob *oob, uint64_t tag, uint32_t sequence,
                    symm_status status, const char *sentence);

enum symm_oob_kind {
    SYMM_OOB_DATA = 1,
    SYMM_OOB_DONE = 2,
    SYMM_OOB_FAIL = 3,
    SYMM_OOB_BLAME = 4, /* a FAIL, see struct symm_oob_head */
    SYMM_OOB_ASK = 5,  /* the sender has thrown away what came of the receiver's part */
    SYMM_OOB_AGAIN = 6 /* its answer: the part follows from its beginning */
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

/* What a rank of this host has sent last of an exchange in which this rank was not. */
struct symm_oob_missed {
    struct symm_oob_head head;
    char sentence[SYMM_OOB_SENTENCE]; /* FAIL: bytes_here of it */
};

/* The packet was thrown away: keeps its head, and `sentence` of a FAIL, in place of the one kept
 * before. */
symm_status symm__oob_miss(struct symm_oob *oob, const struct symm_oob_head *head,
                           const char *sentence) SYMM_MUST_CHECK;
/* What the rank has sent last in vain; NULL: nothing. */
struct symm_oob_missed *symm__oob_missed(const struct symm_oob *oob, int rank);
void symm__oob_missed_drop(struct symm_oob *oob, int rank);

/* Has the rank, of this host, begun an exchange of that tag, of that number or a later one, and does
 * it wait there for this rank? Then `what` has the step as it names it. For sentences. */
bool symm__oob_begun(const struct symm_oob *oob, int rank, uint64_t tag,
                     uint32_t sequence, char what[64]);

/* The results are those of symm__seqpacket_send, _recv and _peek. */
enum symm_seqpacket symm__oob_out(const struct symm_oob *oob, int rank,
                                  const struct iovec *parts, int parts_count,
                                  const int *fds, int fds_count, double until);
enum symm_seqpacket symm__oob_in(const struct symm_oob *oob, int rank,
                                 const struct iovec *parts, int parts_count,
                                 size_t *bytes, int *fds, int *fds_count);
enum symm_seqpacket symm__oob_peek(const struct symm_oob *oob, int rank,
                                   struct symm_oob_head *head, size_t *bytes);
/* Is the next packet of a rank of this host one of its part in this exchange, and the part at least
 * so long? Then `bytes` has its first ones. The packet is not taken. */
bool symm__oob_peek_part(const struct symm_oob *oob, int rank, uint64_t tag,
                         uint32_t sequence, void *bytes, size_t count);
/* Is this the head of a packet of `rank` that came with so much? Makes `what` printable. */
bool symm__oob_head_check(struct symm_oob_head *head, int rank, size_t bytes,
                          int fds_count);

#endif
