/* SPDX-License-Identifier: MIT */
/*
 * hosts_check.h - a check of all hosts of a job before it starts (symm_hosts_check of tools.h).
 *
 * The lowest rank of each host connects to rank 0's host, as in the bootstrap (tree.h), and
 * reports its ranks, version and address. Rank 0 asks it for its clock some times, and connects
 * to the address where its relay would listen. All connections lead to rank 0: a check takes a
 * few messages of each host, and a host that fails does not affect the others' checks.
 *
 * Guarantees: it ends by the deadline and two seconds; each end proves that it knows the job's
 * secret (net/auth.h). Refuses: strangers, other versions of this protocol; they are reported by
 * their addresses.
 */
#ifndef SYMM_BOOTSTRAP_HOSTS_CHECK_H
#define SYMM_BOOTSTRAP_HOSTS_CHECK_H

#include "bootstrap/hosts.h"
#include "bootstrap/job.h"
#include "net/address.h"
#include "net/auth.h"
#include "symm/tools.h"

#define SYMM_CHECK_TEXT 32 /* of a version, with the NUL */

/* What a host reports of itself, first and with each answer that has its clock. */
struct symm_check_entry {
    int32_t rank, size, local_size, unused;
    struct symm_host_address place; /* where its relay would listen */
    char version[SYMM_CHECK_TEXT];
};

/* The check as one process makes it. */
struct symm_check {
    struct symm_check_entry mine;
    struct symm_auth_protocol protocol;
    uint8_t key[SYMM_SIPHASH_KEY];
    char root[300]; /* where rank 0 listens */
    double start, until;
};

double symm__check_clock(void); /* seconds of the system's clock */
/* hosts_check_root.c: on rank 0. The other hosts connect to `listener`; borrowed. */
symm_status symm__check_all(const struct symm_check *check, int listener,
                            void (*each)(void *arg, const symm_host_report *host),
                            void *arg) SYMM_MUST_CHECK;

#endif
