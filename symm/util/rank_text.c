/* SPDX-License-Identifier: MIT */
/*
 * rank_text.c - see rank_text.h.
 */
#include "util/rank_text.h"

#include <stdio.h>

#define RANKS_ITEM 24 /* ", rank " or " and rank " and a number, or " and N more" */

void symm__ranks_text(const int *ranks, int count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        const char *before = i == 0 ? "" : i == count - 1 ? " and " : ", ";
        char item[48];
        /* The last item needs no room for a count after it. */
        size_t reserve = i == count - 1 ? 0 : RANKS_ITEM;
        int length = snprintf(item, sizeof(item), "%srank %d", before, ranks[i]);
        if (length < 0 || used + (size_t)length + reserve >= bytes) {
            (void)snprintf(text + used, bytes - used, "%s%d more",
                           i == 0 ? "" : " and ", count - i);
            return;
        }
        (void)snprintf(text + used, bytes - used, "%s", item);
        used += (size_t)length;
    }
}

symm_status symm__peer_status(int32_t status)
{
    switch (status) {
#define RANKS_STATUS(name, value, text)                                                \
    case value:                                                                        \
        return value == SYMM_OK ? SYMM_ERR_ABORTED : SYMM_##name;
        SYMM_STATUS_MAP(RANKS_STATUS)
#undef RANKS_STATUS
    default:
        return SYMM_ERR_ABORTED;
    }
}
