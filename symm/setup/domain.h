/* SPDX-License-Identifier: MIT */
/*
 * domain.h - which ranks map each other's memory: the ranks of a host, or those of several hosts in
 * one NVLink domain.
 *
 * Guarantees: a domain is one host or several whole hosts, and all ranks find the same domains.
 * Hosts form a domain only if, on each of their ranks, NVML puts the device into one clique, memory
 * with a fabric handle could be made, and the rank has read what each rank of the other hosts
 * wrote into its memory. Otherwise each of these hosts is a domain, and ctx->why_domain is the
 * reason. A rank that cannot map others' memory is no error; an exchange that fails is one.
 */
#ifndef SYMM_SETUP_DOMAIN_H
#define SYMM_SETUP_DOMAIN_H

#include "core/context.h"

/*
 * After the handshake: finds the domains of all ranks, and reserves the address space for the heaps
 * of this rank's domain. `mine`: a failure of this rank before this step. *made: that, or a failure
 * of this rank in this step; the caller's next exchange reports it. *last: the tag of the last
 * exchange of all ranks. Returns an error, which all ranks do, if an exchange failed.
 */
symm_status symm__domain_open(symm_ctx *ctx, double timeout, symm_status mine,
                              symm_status *made, uint64_t *last) SYMM_MUST_CHECK;

#endif
