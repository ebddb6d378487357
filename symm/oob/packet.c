/* SPDX-License-Identifier: MIT */
/*
 * packet.c - see oob.h and packet.h.
 */
#include "oob/packet.h"

#include <stdlib.h>

#include "net/tcp.h"
#include "util/status.h"
#include "util/text.h"

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

/* ---- Packets ----------------------------------------------------------------------- */

struct symm_tcp *symm__oob_tcp(const struct symm_oob *oob, int rank)
{
    return oob->tcp != NULL ? oob->tcp[rank] : NULL;
}

enum symm_seqpacket symm__oob_out(const struct symm_oob *oob, int rank,
                                  const struct iovec *parts, int parts_count,
                                  const int *fds, int fds_count, double until)
{
    struct symm_tcp *tcp = symm__oob_tcp(oob, rank);
    return tcp != NULL ? symm__tcp_send(tcp, parts, parts_count, until)
                       : symm__seqpacket_send(oob->peer_fd[rank], parts, parts_count,
                                              fds, fds_count, until);
}

enum symm_seqpacket symm__oob_in(const struct symm_oob *oob, int rank,
                                 const struct iovec *parts, int parts_count,
                                 size_t *bytes, int *fds, int *fds_count)
{
    struct symm_tcp *tcp = symm__oob_tcp(oob, rank);
    *fds_count = 0;
    return tcp != NULL
               ? symm__tcp_recv(tcp, parts, parts_count, bytes)
               : symm__seqpacket_recv(oob->peer_fd[rank], parts, parts_count, bytes,
                                      fds, SYMM_SEQPACKET_MAX_FDS, fds_count, 0);
}

enum symm_seqpacket symm__oob_peek(const struct symm_oob *oob, int rank,
                                   struct symm_oob_head *head, size_t *bytes)
{
    struct symm_tcp *tcp = symm__oob_tcp(oob, rank);
    return tcp != NULL
               ? symm__tcp_peek(tcp, head, sizeof(*head), bytes)
               : symm__seqpacket_peek(oob->peer_fd[rank], head, sizeof(*head), bytes);
}

bool symm__oob_head_check(struct symm_oob_head *head, int rank, size_t bytes,
                          int fds_count)
{
    (void)symm__printable(head->what, sizeof(head->what));
    return bytes >= sizeof(*head) && head->magic == SYMM_OOB_MAGIC &&
           head->version == SYMM_OOB_VERSION && head->rank == rank &&
           head->kind >= SYMM_OOB_DATA && head->kind <= SYMM_OOB_BLAME &&
           head->bytes_here == bytes - sizeof(*head) &&
           head->fds_here == (uint32_t)fds_count;
}
