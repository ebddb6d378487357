/* SPDX-License-Identifier: MIT */
/*
 * interface.h - this machine's address on a network interface that the user names.
 *
 * The syntax is that of NCCL_SOCKET_IFNAME: a list of prefixes of names, separated by commas;
 * '=' in front of the list asks for whole names, '^' for all interfaces but those, "^=" for both.
 */
#ifndef SYMM_NET_INTERFACE_H
#define SYMM_NET_INTERFACE_H

#include <stdbool.h>

#include "net/address.h"

/*
 * The address of the first interface that is up and fits: IPv4 before IPv6, and no loopback unless
 * it is the only one. Port 0. False: none; `names` gets those that are up.
 */
bool symm__interface_address(const char *list, struct symm_address *address,
                             char *names, size_t names_bytes);

#endif
