/* SPDX-License-Identifier: MIT */
/* sim_files.h - simulated descriptors, for sim_wrap.c. Results and errno are as of the kernel. */
#ifndef SYMM_TESTS_SIM_FILES_H
#define SYMM_TESTS_SIM_FILES_H

#include <sys/socket.h>
#include <sys/stat.h>

#include "sim_private.h"

bool sim_is_fd(int fd); /* simulated; else real */

int sim_socket(int domain, int type);
int sim_socketpair(int type, int fds[2]);
int sim_bind(int fd, const struct sockaddr *address, socklen_t bytes);
int sim_listen(int fd, int backlog);
int sim_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int sim_accept(int fd, int flags);
int sim_get_option(int fd, int level, int name, void *value, socklen_t *bytes);
int sim_name(int fd, bool peer, struct sockaddr *address, socklen_t *bytes);
ssize_t sim_send(int fd, const struct msghdr *message, int flags);
ssize_t sim_receive(int fd, struct msghdr *message, int flags);
int sim_shutdown(int fd);
int sim_poll(struct pollfd *polls, nfds_t count, uint64_t until);

int sim_eventfd(unsigned value);
int sim_pidfd(int pid);
int sim_text_file(const char *text);
int sim_memfd(int real);
ssize_t sim_read(int fd, void *bytes, size_t count);
ssize_t sim_write(int fd, const void *bytes, size_t count);
int sim_close(int fd);
int sim_duplicate(int fd);
int sim_real_of(int fd);   /* of a memfd; else -1 and EBADF */
int *sim_seals_of(int fd); /* of a memfd, else NULL */
int sim_pid_of(int fd);    /* of a pidfd, else 0 */

void sim_real_opened(int fd); /* of the running rank */
void sim_real_closed(int fd);
void sim_mapped(void *at, size_t bytes, int fd, off_t offset, bool fixed);
void sim_unmapped(void *at, size_t bytes);

#endif
