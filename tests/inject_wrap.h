/* SPDX-License-Identifier: MIT */
/*
 * inject_wrap.h - the functions that the linker substitutes for those in wrap.txt.
 *
 * Included once, by the suite that is linked with --wrap; code shared by all suites is
 * linked without it. Each function fails with an errno of its manual page. close, free,
 * munmap and futex wakes never fail.
 */
#ifndef SYMM_TESTS_INJECT_WRAP_H
#define SYMM_TESTS_INJECT_WRAP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

#define FAIL INJECT_CAN_FAIL
#define EINT INJECT_CAN_INTERRUPT
#define RECV INJECT_RECEIVES

/* A function whose failure is one value and errno. */
#define WRAP(type, name, parameters, arguments, failed, error, can)                    \
    type __real_##name parameters;                                                     \
    type __wrap_##name parameters;                                                     \
    type __wrap_##name parameters                                                      \
    {                                                                                  \
        if (inject_fails(#name, (error), (can)))                                       \
            return (failed);                                                           \
        return __real_##name arguments;                                                \
    }

/* ---- Memory ---------------------------------------------------------------------- */

/* A function that returns a block for free(). */
#define WRAP_BLOCK(type, name, parameters, arguments)                                  \
    type __real_##name parameters;                                                     \
    type __wrap_##name parameters;                                                     \
    type __wrap_##name parameters                                                      \
    {                                                                                  \
        type block =                                                                   \
            inject_fails(#name, ENOMEM, FAIL) ? NULL : __real_##name arguments;        \
        inject_account_block(block);                                                   \
        return block;                                                                  \
    }

WRAP_BLOCK(void *, malloc, (size_t bytes), (bytes))
WRAP_BLOCK(void *, calloc, (size_t count, size_t bytes), (count, bytes))
WRAP_BLOCK(void *, aligned_alloc, (size_t to, size_t bytes), (to, bytes))
WRAP_BLOCK(char *, strdup, (const char *text), (text))
WRAP_BLOCK(char *, realpath, (const char *path, char *room), (path, room))

FILE *__real_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes)
{
    if (inject_fails("open_memstream", ENOMEM, FAIL))
        return NULL;
    FILE *file = __real_open_memstream(text, bytes);
    inject_account_block(file); /* for *text, which the caller frees */
    return file;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    inject_account_freed(block);
    __real_free(block);
}

/* On failure the old block stays valid; a null pointer gets a new block. */
static void *resized(const void *old, void *block)
{
    if (old == NULL)
        inject_account_block(block);
    return block;
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    if (inject_fails("realloc", ENOMEM, FAIL))
        return NULL;
    bool fresh = old == NULL;
    return resized(fresh ? NULL : "", __real_realloc(old, bytes));
}

void *__real_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
    if (inject_fails("reallocarray", ENOMEM, FAIL))
        return NULL;
    bool fresh = old == NULL;
    return resized(fresh ? NULL : "", __real_reallocarray(old, count, bytes));
}

static int printed(char **text, const char *format, va_list args)
{
    if (inject_fails("asprintf", ENOMEM, FAIL))
        return -1;
    int length = vasprintf(text, format, args);
    if (length >= 0)
        inject_account_block(*text);
    return length;
}

int __wrap_asprintf(char **text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = printed(text, format, args);
    va_end(args);
    return length;
}

/* The form of asprintf with _FORTIFY_SOURCE. */
int __wrap___asprintf_chk(char **text, int flag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int __wrap___asprintf_chk(char **text, int flag, const char *format, ...)
{
    va_list args;
    (void)flag;
    va_start(args, format);
    int length = printed(text, format, args);
    va_end(args);
    return length;
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset)
{
    if (inject_fails("mmap", ENOMEM, FAIL))
        return MAP_FAILED;
    void *got = __real_mmap(at, bytes, protection, flags, fd, offset);
    if (got != MAP_FAILED && (flags & MAP_FIXED) == 0)
        inject_account_mapped(got);
    return got;
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes)
{
    inject_account_unmapped(at);
    return __real_munmap(at, bytes);
}

WRAP(int, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice), -1,
     EINVAL, FAIL)
WRAP(int, mprotect, (void *at, size_t bytes, int protection), (at, bytes, protection),
     -1, ENOMEM, FAIL)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE,
     FAIL)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), -1, EMFILE, FAIL)
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1, EIO, FAIL)
/* Returns its error. */
WRAP(int, posix_fallocate, (int fd, off_t offset, off_t bytes), (fd, offset, bytes),
     errno, ENOSPC, FAIL | EINT)

/* ---- Files ----------------------------------------------------------------------- */

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    long value = va_arg(args, long);
    va_end(args);
    if (inject_fails("fcntl", EPERM, FAIL))
        return -1;
    return __real_fcntl(fd, command, value);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return inject_fails("open", EMFILE, FAIL) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return inject_fails("openat", ENFILE, FAIL) ? -1
                                                : __real_openat(dir, path, flags, mode);
}

WRAP(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes), -1, EIO, FAIL)
WRAP(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes), -1,
     ENOSPC, FAIL | EINT)
WRAP(int, stat, (const char *path, struct stat *is), (path, is), -1, ENOMEM, FAIL)
WRAP(int, fstat, (int fd, struct stat *is), (fd, is), -1, ENOMEM, FAIL)
WRAP(int, fstatat, (int dir, const char *path, struct stat *is, int flags),
     (dir, path, is, flags), -1, ENOMEM, FAIL)
WRAP(int, lstat, (const char *path, struct stat *is), (path, is), -1, ENOMEM, FAIL)
WRAP(int, access, (const char *path, int mode), (path, mode), -1, EIO, FAIL)
WRAP(int, flock, (int fd, int operation), (fd, operation), -1, ENOLCK, FAIL | EINT)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC, FAIL)
WRAP(int, rmdir, (const char *path), (path), -1, EBUSY, FAIL)
WRAP(int, unlink, (const char *path), (path), -1, EIO, FAIL)
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), -1, EIO,
     FAIL)
WRAP(int, linkat, (int from, const char *path, int to, const char *name, int flags),
     (from, path, to, name, flags), -1, ENOSPC, FAIL)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC, FAIL)
/* EINVAL: a file system that has no RENAME_NOREPLACE. */
WRAP(int, renameat2,
     (int from, const char *path, int to, const char *name, unsigned flags),
     (from, path, to, name, flags), -1, EINVAL, FAIL)
WRAP(DIR *, fdopendir, (int fd), (fd), NULL, ENOMEM, FAIL)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE, FAIL)
WRAP(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, ENOMEM, FAIL)

/* ---- Sockets --------------------------------------------------------------------- */

WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1,
     EMFILE, FAIL)
WRAP(int, socketpair, (int domain, int type, int protocol, int pair[2]),
     (domain, type, protocol, pair), -1, ENFILE, FAIL)
WRAP(int, bind, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes), -1, ENOMEM, FAIL)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE, FAIL)
WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes), -1, EACCES, FAIL | EINT)
WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *bytes, int flags),
     (fd, address, bytes, flags), -1, EMFILE, FAIL | EINT)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes),
     (fd, level, name, value, bytes), -1, ENOPROTOOPT, FAIL)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags), -1, ENOBUFS, FAIL | EINT)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags),
     (fd, message, flags), -1, ENOMEM, FAIL | EINT | RECV)
WRAP(ssize_t, send, (int fd, const void *from, size_t bytes, int flags),
     (fd, from, bytes, flags), -1, ECONNRESET, FAIL | EINT)
WRAP(int, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints,
      struct addrinfo **found),
     (host, port, hints, found), EAI_MEMORY, ENOMEM, FAIL)
WRAP(ssize_t, recv, (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags),
     -1, ENOMEM, FAIL | EINT | RECV)
WRAP(int, poll, (struct pollfd * polls, nfds_t count, int timeout),
     (polls, count, timeout), -1, ENOMEM, FAIL)
WRAP(int, ppoll,
     (struct pollfd * polls, nfds_t count, const struct timespec *timeout,
      const sigset_t *mask),
     (polls, count, timeout, mask), -1, ENOMEM, FAIL | EINT | RECV)

/* ---- Forms of _FORTIFY_SOURCE ----------------------------------------------------- */

/* In a build with _FORTIFY_SOURCE a call gets the buffer's size as another argument, under
 * another name, if the compiler cannot check it. It counts and fails as the plain call. */
#define WRAP_CHECKED(type, name, parameters, arguments)                                \
    type __wrap___##name##_chk parameters;                                             \
    type __wrap___##name##_chk parameters                                              \
    {                                                                                  \
        (void)room;                                                                    \
        return __wrap_##name arguments;                                                \
    }

WRAP_CHECKED(char *, realpath, (const char *path, char *to, size_t room), (path, to))
WRAP_CHECKED(ssize_t, read, (int fd, void *to, size_t bytes, size_t room),
             (fd, to, bytes))
WRAP_CHECKED(ssize_t, recv, (int fd, void *to, size_t bytes, size_t room, int flags),
             (fd, to, bytes, flags))
WRAP_CHECKED(int, poll, (struct pollfd * polls, nfds_t count, int timeout, size_t room),
             (polls, count, timeout))
WRAP_CHECKED(int, ppoll,
             (struct pollfd * polls, nfds_t count, const struct timespec *timeout,
              const sigset_t *mask, size_t room),
             (polls, count, timeout, mask))

/* ---- The rest -------------------------------------------------------------------- */

WRAP(int, nanosleep, (const struct timespec *span, struct timespec *left), (span, left),
     -1, EINTR, EINT)
WRAP(ssize_t, getrandom, (void *bytes, size_t count, unsigned flags),
     (bytes, count, flags), -1, ENOSYS, FAIL | EINT)

/* A spurious wake-up. */
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    if (!inject_fails("pthread_cond_wait", 0, EINT))
        return __real_pthread_cond_wait(condition, lock);
    pthread_mutex_unlock(lock);
    sched_yield();
    return pthread_mutex_lock(lock);
}

int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    if (!inject_fails("pthread_cond_timedwait", 0, EINT))
        return __real_pthread_cond_timedwait(condition, lock, until);
    pthread_mutex_unlock(lock);
    sched_yield();
    return pthread_mutex_lock(lock);
}

long __real_syscall(long number, ...);
/* Reads six arguments, the most there can be; AddressSanitizer would report those that the
 * caller did not pass. */
__attribute__((noinline, no_sanitize("address"))) long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list args;
    long a[6];
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT &&
        inject_fails("futex", EINTR, EINT))
        return -1;
    if (number == SYS_pidfd_open && inject_fails("pidfd_open", EMFILE, FAIL))
        return -1;
    if (number == SYS_set_robust_list && inject_fails("set_robust_list", EINVAL, FAIL))
        return -1;
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* A thread started by an armed thread is armed. */
struct inject_start {
    void *(*main)(void *arg);
    void *arg;
};

static void *start_armed(void *arg)
{
    struct inject_start start = *(struct inject_start *)arg;
    __real_free(arg);
    inject_arm_thread();
    return start.main(start.arg);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *arg), void *arg)
{
    if (inject_fails("pthread_create", EAGAIN, FAIL))
        return EAGAIN;
    if (!inject_armed())
        return __real_pthread_create(thread, attributes, main, arg);
    struct inject_start *start = __real_malloc(sizeof(*start));
    *start = (struct inject_start){main, arg};
    int error = __real_pthread_create(thread, attributes, start_armed, start);
    if (error != 0)
        __real_free(start);
    return error;
}

#undef FAIL
#undef EINT
#undef RECV

#endif
