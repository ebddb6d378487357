/* SPDX-License-Identifier: MIT */
/*
 * socket_path.h - the bootstrap's socket: <base>/symm-<uid>/<32 hex digits>.
 *
 * base: SYMM_RUNTIME_DIR, else XDG_RUNTIME_DIR if it is this user's own, writable and
 * short enough for a socket's address, else /tmp. The directory symm-<uid> must be a
 * real directory of this user with mode 0700, or nothing is made or connected to in it.
 *
 * A listener is bound to a temporary name and gets its final name in one step that
 * replaces nothing: a final name therefore always leads to a listener or to a dead
 * owner. All of this, and the sweep of what others have left, is done under one hold of
 * the directory's lock: a temporary name that is found under the lock has a dead owner.
 * A name is removed only if connect() proves that no process listens. A kill leaves at most
 * one name and its directory; the next root of this user removes both, however young.
 */
#ifndef SYMM_BOOTSTRAP_SOCKET_PATH_H
#define SYMM_BOOTSTRAP_SOCKET_PATH_H

#include "symm/symm.h"

#define SYMM_BOOTSTRAP_NAME 33  /* 32 hex digits and a NUL */
#define SYMM_BOOTSTRAP_PATH 108 /* sun_path of an address */

struct symm_socket_path {
    char dir[SYMM_BOOTSTRAP_PATH];
    char name[SYMM_BOOTSTRAP_NAME];
    char path[SYMM_BOOTSTRAP_PATH]; /* dir/name */
};

/* Where the bootstrap of `key` is; makes nothing. SYMM_ERR_INVALID: SYMM_RUNTIME_DIR. */
symm_status symm__socket_path_find(struct symm_socket_path *place,
                                   const char *key) SYMM_MUST_CHECK;
/* Root: a listening socket under the final name. Waits while another bootstrap has it. */
symm_status symm__socket_path_claim(const struct symm_socket_path *place, double until,
                                    int *listener) SYMM_MUST_CHECK;
/* Root: removes the name it has claimed, then the directory if nothing else is in it. */
void symm__socket_path_leave(const struct symm_socket_path *place);
/* Removes the name if its owner has died or dies now, and the directory if it is empty then. */
void symm__socket_path_tidy(const struct symm_socket_path *place);
/*
 * Joining rank: one try to connect. *fd = -1 with SYMM_OK: no process listens there (yet). An
 * error is final: a directory that isn't ours, a system call that failed.
 */
symm_status symm__socket_path_connect(const struct symm_socket_path *place,
                                      int *fd) SYMM_MUST_CHECK;
/* Is the process at the other end one of this user's? *uid: whose it is. */
bool symm__bootstrap_same_user(int fd, unsigned *uid);

#endif
