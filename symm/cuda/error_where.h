/* SPDX-License-Identifier: MIT */
/* error_where.h - at which call, and on which stream, ranks are, in words. */
#ifndef SYMM_CUDA_ERROR_WHERE_H
#define SYMM_CUDA_ERROR_WHERE_H

#include "cuda/error_facts.h"

#define SYMM_CUDA_WHERE_BYTES 96

/* "site 'x' (all_reduce sum of 8 float32, ll_push) step 3" of the member's tag. Returns text. */
const char *symm__cuda_tag_text(const symm_team *team, int member, uint32_t tag,
                                uint32_t step, char *text, size_t bytes);
/* " on stream 0x55d0c8a0, channel 2" of this rank's call, " on the default stream" of a one-sided
 * one, " in the workspace at offset 4194304" of an exchange of a kernel of the program's own: which stream
 * that is on the library does not know, and a workspace serves one stream. Peers take the sentence over, so it must
 * name this rank, too. Returns text. */
const char *symm__cuda_where_text(const symm_team *team,
                                  const struct symm_cuda_facts *facts, char *text,
                                  size_t bytes);

#endif
