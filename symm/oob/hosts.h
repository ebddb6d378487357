/* SPDX-License-Identifier: MIT */
/*
 * hosts.h - an exchange whose members are on several hosts.
 *
 * Three steps: an exchange among the members on each host; an allgather among the hosts over
 * the tree (relay/relay.h), in which each host's lowest member gives its host's messages; and again
 * an exchange on each host, in which that member hands on those of the other hosts. Descriptors go
 * to members of the same host. A failure on one host reaches all: a member that has one gives up
 * the allgather.
 *
 * A host may fail in the third step when others have left already. Ranks that wait for one of that
 * host in the exchange that follows this one (`before`) get its reason by the relay.
 */
#ifndef SYMM_OOB_HOSTS_H
#define SYMM_OOB_HOSTS_H

#include "oob/oob.h"

/* exchange.c: among members of one host. */
symm_status symm__exchange_local(struct symm_oob *oob,
                                 const struct symm_exchange *exchange,
                                 struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* As symm__exchange. */
symm_status symm__exchange_hosts(struct symm_oob *oob,
                                 const struct symm_exchange *exchange,
                                 struct symm_oob_message *messages) SYMM_MUST_CHECK;

#endif
