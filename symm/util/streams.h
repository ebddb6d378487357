/* SPDX-License-Identifier: MIT */
/*
 * streams.h - closed standard streams. A program may run without some, and still write there: to
 * its log, by perror. The library's sockets and memory must not get their numbers, or the text
 * would go to a peer or into a buffer.
 */
#ifndef SYMM_UTIL_STREAMS_H
#define SYMM_UTIL_STREAMS_H

/*
 * Takes the numbers 0 to 2 that are free by descriptors that nothing can be read from or written
 * to (EBADF, as before), and which exec closes. They stay: the program has descriptors of others
 * by then, and any may be the one that it means. Keeps errno.
 */
void symm__streams_guard(void);

#endif
