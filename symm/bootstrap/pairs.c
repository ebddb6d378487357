/* SPDX-License-Identifier: MIT */
/* pairs.c - the connections of ranks that are threads of one process. */
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "util/status.h"

symm_status symm__bootstrap_pairs(int size, int **fds)
{
    if (size < 1 || size > SYMM_BOOTSTRAP_MAX)
        return symm__fail(SYMM_ERR_INVALID, "a group of %d ranks: 1 to %d are possible",
                          size, SYMM_BOOTSTRAP_MAX);
    size_t n = (size_t)size;
    int *made = malloc(n * n * sizeof(*made));
    if (made == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the sockets of %d ranks",
                          size);
    for (size_t k = 0; k < n * n; k++)
        made[k] = -1;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                           pair) != 0) {
                int error = errno;
                symm__seqpacket_close(made, size * size);
                free(made);
                return symm__fail_errno(
                    SYMM_ERR_SYSTEM, error,
                    "making %zu socket pairs for %d ranks (ulimit -n "
                    "limits the descriptors of a process)",
                    n * (n - 1) / 2, size);
            }
            made[i * n + j] = pair[0];
            made[j * n + i] = pair[1];
        }
    }
    *fds = made;
    return SYMM_OK;
}
