/* SPDX-License-Identifier: MIT */
/* nodes.h - one job over several nodes, see nodes.c. */
#ifndef SYMM_TOOLS_SYMMRUN_NODES_H
#define SYMM_TOOLS_SYMMRUN_NODES_H

#include "tools/symmrun/symmrun.h"

/* Waits for all nodes; sets the job's id, ports and addresses. False: the error was printed. */
bool symmrun_nodes_join(struct symmrun *run, const uint8_t *secret);
void symmrun_nodes_destroy(struct symmrun_nodes *nodes); /* NULL allowed */
/* All blocks of this node's ranks have reached the store. */
/* data NULL: this node's round has ended without an answer, its blocks are taken back. */
void symmrun_nodes_blocks(struct symmrun_nodes *nodes, uint32_t number,
                          const void *data, size_t bytes);
/* This node's job has failed; NULL allowed. */
void symmrun_nodes_failed(struct symmrun_nodes *nodes, int status);
size_t symmrun_nodes_most(const struct symmrun_nodes *nodes);
void symmrun_nodes_watch(const struct symmrun_nodes *nodes, struct pollfd *fds);
void symmrun_nodes_serve(struct symmrun_nodes *nodes, const struct pollfd *fds);

#endif
