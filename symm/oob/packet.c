/* SPDX-License-Identifier: MIT */
/*
 * packet.c - see packet.h.
 */
#include "oob/packet.h"

#include "net/tcp.h"
#include "util/status.h"
#include "util/text.h"

struct symm_tcp *symm__link_tcp(const struct symm_link *link, int rank)
{
    return link->tcp != NULL ? link->tcp[rank] : NULL;
}

enum symm_wire symm__link_out(const struct symm_link *link, int rank,
                              const struct iovec *parts, int parts_count,
                              const int *fds, int fds_count, double until)
{
    struct symm_tcp *tcp = symm__link_tcp(link, rank);
    return tcp != NULL ? symm__tcp_send(tcp, parts, parts_count, until)
                       : symm__wire_send(link->peer_fd[rank], parts, parts_count, fds,
                                         fds_count, until);
}

enum symm_wire symm__link_in(const struct symm_link *link, int rank,
                             const struct iovec *parts, int parts_count, size_t *bytes,
                             int *fds, int *fds_count)
{
    struct symm_tcp *tcp = symm__link_tcp(link, rank);
    *fds_count = 0;
    return tcp != NULL ? symm__tcp_recv(tcp, parts, parts_count, bytes)
                       : symm__wire_recv(link->peer_fd[rank], parts, parts_count, bytes,
                                         fds, SYMM_WIRE_MAX_FDS, fds_count, 0);
}

enum symm_wire symm__link_peek(const struct symm_link *link, int rank,
                               struct symm_link_head *head, size_t *bytes)
{
    struct symm_tcp *tcp = symm__link_tcp(link, rank);
    return tcp != NULL
               ? symm__tcp_peek(tcp, head, sizeof(*head), bytes)
               : symm__wire_peek(link->peer_fd[rank], head, sizeof(*head), bytes);
}

bool symm__link_head_check(struct symm_link_head *head, int rank, size_t bytes,
                           int fds_count)
{
    (void)symm__printable(head->what, sizeof(head->what));
    return bytes >= sizeof(*head) && head->magic == SYMM_LINK_MAGIC &&
           head->version == SYMM_LINK_VERSION && head->rank == rank &&
           head->kind >= SYMM_LINK_DATA && head->kind <= SYMM_LINK_BLAME &&
           head->bytes_here == bytes - sizeof(*head) &&
           head->fds_here == (uint32_t)fds_count;
}
