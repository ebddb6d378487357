/* SPDX-License-Identifier: MIT */
/*
 * abi.c - see abi.h.
 */
#include "util/abi.h"

#include <string.h>

#include "util/status.h"

symm_status symm__struct_check(const char *name, size_t size, size_t bytes)
{
    /* All fields end at multiples of a size_t, alone or in pairs. */
    if (size < sizeof(size_t) || size > 4096 || size % sizeof(size_t) != 0)
        return symm__fail(SYMM_ERR_INVALID, "%s.size is %zu; set it to sizeof(%s), %zu",
                          name, size, name, bytes);
    return SYMM_OK;
}

symm_status symm__struct_take(const char *name, const void *given, void *own,
                              size_t bytes)
{
    const uint8_t *from = given;
    size_t size;
    symm_status status;

    memcpy(&size, given, sizeof(size));
    status = symm__struct_check(name, size, bytes);
    if (status != SYMM_OK)
        return status;
    for (size_t i = bytes; i < size; i++)
        if (from[i])
            return symm__fail(
                SYMM_ERR_INVALID,
                "%s sets a field at byte %zu that libsymm %s does not know", name, i,
                SYMM_VERSION_STRING);
    memset(own, 0, bytes);
    memcpy(own, given, size < bytes ? size : bytes);
    memcpy(own, &bytes, sizeof(bytes));
    return SYMM_OK;
}

void symm__struct_give(void *given, const void *own, size_t bytes)
{
    size_t size, head = sizeof(size);

    memcpy(&size, given, head);
    bytes = size < bytes ? size : bytes;
    memcpy((char *)given + head, (const char *)own + head, bytes - head);
}
