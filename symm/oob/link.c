/* SPDX-License-Identifier: MIT */
/*
 * link.c - see link.h.
 */
#include "oob/link.h"

#include <stdlib.h>

#include "net/seqpacket.h"
#include "net/tcp.h"

void symm__link_init(struct symm_link *link, int rank, int size, int *peer_fd)
{
    *link = (struct symm_link){.rank = rank, .size = size, .peer_fd = peer_fd};
}

void symm__link_finish(struct symm_link *link)
{
    if (link->peer_fd != NULL)
        symm__wire_close(link->peer_fd, link->size);
    free(link->peer_fd);
    link->peer_fd = NULL;
    for (int r = 0; link->tcp != NULL && r < link->size; r++)
        symm__tcp_destroy(link->tcp[r]);
    free(link->tcp);
    link->tcp = NULL;
}

void symm__parcels_finish(struct symm_parcel *parcels, int count)
{
    for (int i = 0; i < count; i++) {
        free(parcels[i].bytes);
        if (parcels[i].fds != NULL)
            symm__wire_close(parcels[i].fds, parcels[i].fds_count);
        free(parcels[i].fds);
        parcels[i] = (struct symm_parcel){0};
    }
}

bool symm__link_left(const struct symm_link *link, int rank)
{
    return (link->left >> rank & 1) != 0 ||
           (link->finished != NULL && link->finished(link->alive_arg, rank));
}
