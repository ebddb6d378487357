/* SPDX-License-Identifier: MIT */
/*
 * shape.h - how a CUDA kernel divides its work, and with how many blocks and threads it is
 * launched. Pure, and refuses by false: scratch too small for one packet of every thread of a warp,
 * calls that do not fit into the kernel's rounds.
 */
#ifndef SYMM_KERNELS_CUDA_SHAPE_H
#define SYMM_KERNELS_CUDA_SHAPE_H

#include "kernels/cuda_launch.h"

/* How a kernel divides its work, see the heads of the .cu files. */
enum symm_cuda_split {
    BY_PACKET, /* 32 x size x groups threads, a lane for each packet; slot = [sender] */
    BY_EACH,   /* a thread for each packet, and a warp more; slot = [sender] */
    BY_PAIR,   /* the same between two, slot = packets of the peer */
    BY_MANY,   /* the same, with any number of packets; two slots at most */
    BY_TWO_PACKET, /* as BY_PACKET, packets of a segment; slot = [phase][sender] */
    BY_TWO_WIDE, /* two rounds at most; a thread takes packets of each segment; a warp more */
    BY_EXCHANGE,  /* 32 x size threads; a block takes 32 packets at once */
    BY_TWO_SHOT,  /* a thread takes a packet of each segment; slot = [phase][sender] */
    BY_BROADCAST, /* as BY_EXCHANGE, but in one round; slot = all */
    BY_PULL,      /* any shape */
    BY_STAGE,     /* the same, through the stage */
    BY_STREAM,    /* the same, for much data */
    BY_ROWS, /* row_exchange.cuh: groups of threads that have whole rows; a warp more */
    BY_ROWS_TWO,     /* the same in two shots */
    BY_COLUMN,       /* blocks of one warp, a lane takes a packet; slot = [sender] */
    BY_COLUMN_TWO,   /* the same of a segment; slot = [phase][sender] */
    BY_COLUMN_ALL,   /* the same of one sender, in one round; slot = all */
    BY_COLUMN_PULL,  /* blocks of one warp, any number of them */
    BY_COLUMN_STAGE, /* the same, through the stage */
    BY_ONE           /* one block of one warp */
};

struct symm_cuda_division {
    enum symm_cuda_split split;
    uint32_t payload; /* bytes in a packet of 16 */
};

/* Of a kernel that does the query and divides its work so. False: `shape` holds nothing. */
bool symm__cuda_shape(const struct symm_cuda_query *query,
                      const struct symm_cuda_division *by,
                      struct symm_cuda_shape *shape);
/* How often the kernel with this shape fills its part of the scratch: 1, if the call fits into it,
 * or needs none. Kernels of two rounds at most, which begin the second one early, count as 1. */
uint64_t symm__cuda_shape_rounds(const struct symm_cuda_query *query,
                                 const struct symm_cuda_division *by,
                                 const struct symm_cuda_shape *shape);
/* Of a put (symm__cuda_p2p_find), and of the norm that follows an all_reduce. */
void symm__cuda_shape_put(uint64_t bytes, uint32_t packets, int processors,
                          struct symm_cuda_shape *shape);
void symm__cuda_shape_norm(uint64_t rows, uint32_t hidden, symm_dtype dtype,
                           int processors, struct symm_cuda_shape *shape);

#endif
