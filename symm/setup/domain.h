/* SPDX-License-Identifier: MIT */
/*
 * domain.h - which ranks map each other's memory: the ranks of a host, or those of several hosts in
 * one NVLink domain.
 *
 * Guarantees: domains are whole hosts, the same on all ranks. One over hosts counts only if each of
 * its ranks has said that NVML puts its device into this clique, has made memory with a fabric
 * handle, and has read what each rank of the other hosts wrote into theirs. Otherwise the domains
 * of its hosts are these hosts, and ctx->why_domain says why. A rank that cannot map others'
 * memory is a reason, never an error; only an exchange that fails is one.
 */
#ifndef SYMM_SETUP_DOMAIN_H
#define SYMM_SETUP_DOMAIN_H

#include "core/context.h"

/*
 * After the handshake: the domains of all ranks, and the address space for the heaps of the own.
 * `mine`: a failure of this rank before this step; *made: that, or how this step went here, which
 * the next exchange reports. *last: the tag of the last exchange of all ranks.
 */
symm_status symm__domain_open(symm_ctx *ctx, double timeout, symm_status mine,
                              symm_status *made, uint64_t *last) SYMM_MUST_CHECK;

#endif
