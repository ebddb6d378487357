/* SPDX-License-Identifier: MIT */
/*
 * random.c - see random.h.
 */
#include "util/random.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

#include "util/status.h"

symm_status symm__random(void *bytes, size_t count)
{
    ssize_t got;
    do {
        got = getrandom(bytes, count, 0); /* up to 256 bytes come whole */
    } while (got < 0 && errno == EINTR);
    if (got < 0 || (size_t)got != count)
        return symm__fail_errno(SYMM_ERR_SYSTEM, got < 0 ? errno : EIO,
                                "getting %zu random bytes", count);
    return SYMM_OK;
}
