/* SPDX-License-Identifier: MIT */
/*
 * error_exchange.h - the sentences of error_record.c about exchanges of a program's own kernels
 * (symm/device_exchange.h).
 */
#ifndef SYMM_CUDA_ERROR_EXCHANGE_H
#define SYMM_CUDA_ERROR_EXCHANGE_H

#include "cuda/error_facts.h"

/* "exchange number 7 of 64 units in 4 blocks (tag 0000002a)", as the member announced it. */
const char *symm__cuda_exchange_text(const struct symm_cuda_facts *facts, int member,
                                     char *text, size_t bytes);
/* Both fail the team. peer: a member that is waited for. */
symm_status symm__cuda_exchange_mismatch(symm_team *team,
                                         const struct symm_cuda_facts *facts);
symm_status symm__cuda_exchange_timeout(symm_team *team,
                                        const struct symm_cuda_facts *facts, int peer);

#endif
