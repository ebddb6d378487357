/* SPDX-License-Identifier: MIT */
/*
 * hosts_check.h - a look at all hosts of a job before it starts (symm_hosts_check of tools.h).
 *
 * The lowest rank of each host connects to rank 0's host, as in the bootstrap (tree.h), and says
 * what it has; rank 0 asks it for its clock some times, and connects to where its relay would
 * listen. A star: a look takes a message or two of each host, and one host that fails spoils no
 * other one's.
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

/* What a host says of itself; and with each clock that it is asked for. */
struct symm_check_entry {
    int32_t rank, size, local_size, unused;
    struct symm_host_address place; /* where its relay would listen */
    char version[SYMM_CHECK_TEXT];
};

/* The look of one process. */
struct symm_check {
    struct symm_check_entry mine;
    struct symm_auth_protocol protocol;
    uint8_t key[SYMM_SIPHASH_KEY];
    char root[300]; /* where rank 0 listens */
    double start, until;
};

double symm__check_clock(void); /* seconds of the system's clock */
/* hosts_check_root.c: on rank 0. `listener` is where the others come; borrowed. */
symm_status symm__check_all(const struct symm_check *check, int listener,
                            void (*each)(void *arg, const symm_host_report *host),
                            void *arg) SYMM_MUST_CHECK;

#endif
