/* SPDX-License-Identifier: MIT */
/*
 * oob.c - see oob.h.
 */
#include "oob/oob.h"

#include <stdlib.h>

#include "net/seqpacket.h"
#include "net/tcp.h"

void symm__oob_init(struct symm_oob *oob, int rank, int size, int *peer_fd)
{
    *oob = (struct symm_oob){.rank = rank, .size = size, .peer_fd = peer_fd};
}

void symm__oob_finish(struct symm_oob *oob)
{
    if (oob->peer_fd != NULL)
        symm__seqpacket_close(oob->peer_fd, oob->size);
    free(oob->peer_fd);
    oob->peer_fd = NULL;
    for (int r = 0; oob->tcp != NULL && r < oob->size; r++)
        symm__tcp_destroy(oob->tcp[r]);
    free(oob->tcp);
    oob->tcp = NULL;
}

void symm__oob_messages_finish(struct symm_oob_message *messages, int count)
{
    for (int i = 0; i < count; i++) {
        free(messages[i].bytes);
        if (messages[i].fds != NULL)
            symm__seqpacket_close(messages[i].fds, messages[i].fds_count);
        free(messages[i].fds);
        messages[i] = (struct symm_oob_message){0};
    }
}

bool symm__oob_left(const struct symm_oob *oob, int rank)
{
    return (oob->left >> rank & 1) != 0 ||
           (oob->finished != NULL && oob->finished(oob->alive_arg, rank));
}
