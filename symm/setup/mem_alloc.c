/* SPDX-License-Identifier: MIT */
/*
 * mem_alloc.c - memory of a process that symm_buffer_register takes on every backend.
 */
#include "core/mem.h"

#include <string.h>

#include "cuda/backend.h"
#include "host/host.h"
#include "util/status.h"

symm_status symm_mem_alloc(const char *backend, int device, size_t bytes, void **ptr)
{
    const struct symm_backend_ops *ops = &symm__backend_host;
    struct symm_mem mem = {.fd = -1};
    symm_status status;

    if (!ptr)
        return symm__fail_null("symm_mem_alloc", "ptr");
    if (backend && strcmp(backend, "cuda") == 0)
        ops = &symm__backend_cuda;
    else if (!backend || strcmp(backend, "host") != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_mem_alloc: backend '%.40s' is unknown; there are: host, "
            "cuda",
            backend ? backend : "NULL");
    if (bytes == 0 || bytes > PTRDIFF_MAX)
        return symm__fail(bytes == 0 ? SYMM_ERR_INVALID : SYMM_ERR_OVERFLOW,
                          "symm_mem_alloc: %zu bytes; 1 to %td are possible", bytes,
                          PTRDIFF_MAX);
    status = ops->mem_alloc(device, bytes, &mem);
    if (status != SYMM_OK)
        return status;
    *ptr = mem.ptr;
    status = symm__mem_add(ops, &mem);
    if (status != SYMM_OK)
        ops->mem_free(&mem);
    return status;
}

symm_status symm_mem_free(void *ptr)
{
    if (ptr && !symm__mem_remove(ptr))
        return symm__fail(SYMM_ERR_NOT_FOUND,
                          "symm_mem_free: %p is not the begin of memory that "
                          "symm_mem_alloc has given, or was freed already",
                          ptr);
    return SYMM_OK;
}
