/* SPDX-License-Identifier: MIT */
/*
 * exchange.h - the control plane: exchanges among some ranks over the bootstrap's sockets.
 *
 * One exchange = every member gives bytes and descriptors, every member gets those of every
 * other. All collective steps of the library (init, split, rendezvous) are exchanges. It is
 * never on the path of a collective.
 *
 * Guarantees: bounded by a deadline; every member learns of a member's failure (its status
 * travels with its message) or death (hang-up, or `alive` says so); descriptors arrive
 * CLOEXEC, exactly as many as announced, or are closed; nothing is leaked on any path.
 * After a failed exchange the sockets serve exchanges of other teams as before.
 * Refuses: a member that is in an exchange of another tag: SYMM_ERR_MISMATCH on all members,
 * naming the rank and both steps. An exchange that a member has left in vain does not count:
 * its packets are thrown away, and a later one of the same tag is made under the highest
 * number that any member has reached. What a member sent while this rank was in another exchange
 * counts when this rank comes: it gets the part, or the failure (peer.h).
 * One exchange at a time runs on a link: the caller ensures it.
 */
#ifndef SYMM_OOB_EXCHANGE_H
#define SYMM_OOB_EXCHANGE_H

#include "oob/oob.h"
#include "symm/symm.h"

/*
 * messages[exchange->count], by member index; returns new. On error all messages are empty and
 * the same member's failure is reported on every member that is alive where it can be known.
 */
symm_status symm__exchange(struct symm_oob *oob, const struct symm_exchange *exchange,
                           struct symm_oob_message *messages) SYMM_MUST_CHECK;

#endif
