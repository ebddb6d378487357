/* SPDX-License-Identifier: MIT */
/*
 * sim_wrap.c - the functions that the linker substitutes for those in sim_wrap.txt. Outside of
 * fibers each calls what it replaces. Here: time, processes, threads and sockets.
 */
#include "sim_wrap.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const int sim_wrap_linked = 1;

static uint64_t nanoseconds(const struct timespec *span)
{
    return (uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec;
}

static uint64_t until(const struct timespec *span)
{
    return span ? sim.now + nanoseconds(span) : SIM_FOREVER;
}

/* ---- Time ------------------------------------------------------------------------ */

WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    if (!sim_on())
        return __real_clock_gettime(clock, time);
    sim_pass(40 + sim_below(20));
    time->tv_sec = (time_t)(sim.now / 1000000000u);
    time->tv_nsec = (long)(sim.now % 1000000000u);
    return 0;
}

WRAP(int, nanosleep, const struct timespec *span, struct timespec *left)
{
    uint64_t end;

    if (!sim_on())
        return __real_nanosleep(span, left);
    sim_call("nanosleep");
    if (sim_interrupted())
        return -1;
    end = sim.now + nanoseconds(span) + 50000;
    sim_event("sleep", end - sim.now, 0);
    while (sim.now < end)
        sim_wait("nanosleep", NULL, 0, end);
    return 0;
}

WRAP(int, sched_yield, void)
{
    if (!sim_on())
        return __real_sched_yield();
    sim_call("sched_yield");
    sim_pass(20000 + sim_below(20000));
    return 0;
}

/* ---- Processes ------------------------------------------------------------------- */

WRAP(pid_t, getpid, void)
{
    return sim_on() ? SIM_PID + 100 * sim_rank() : __real_getpid();
}

WRAP(pid_t, gettid, void)
{
    return sim_on() ? sim.current->tid : __real_gettid();
}

WRAP(char *, getenv, const char *name)
{
    const char *value;

    if (!sim_on() || !sim.config->variable)
        return __real_getenv(name);
    value = sim.config->variable(sim_rank(), name, sim.config->arg);
    return (char *)(uintptr_t)value;
}

WRAP(char *, secure_getenv, const char *name)
{
    return sim_on() ? __wrap_getenv(name) : __real_secure_getenv(name);
}

WRAP(ssize_t, getrandom, void *bytes, size_t count, unsigned flags)
{
    unsigned char *at = bytes;

    if (!sim_on())
        return __real_getrandom(bytes, count, flags);
    for (size_t i = 0; i < count; i++)
        at[i] = (unsigned char)sim_random();
    return (ssize_t)count;
}

static long futex_wait(uint32_t *word, uint32_t value, const struct timespec *span)
{
    const uint64_t end = until(span);
    size_t offset;
    const void *key = sim_memory_at(word, &offset);

    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (sim_interrupted())
        return -1;
    if (sim_wait("futex", key, offset, end))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

static long futex(va_list args)
{
    uint32_t *word = va_arg(args, uint32_t *);
    const int operation = va_arg(args, int) & FUTEX_CMD_MASK;
    const uint32_t value = va_arg(args, uint32_t);
    const struct timespec *span = va_arg(args, const struct timespec *);
    size_t offset;
    const void *key;

    if (operation == FUTEX_WAIT)
        return futex_wait(word, value, span);
    key = sim_memory_at(word, &offset);
    return sim_wake(key, offset, (int)value);
}

static long signal_zero(int fd)
{
    int pid = sim_pid_of(fd);

    if (pid > 0 && !sim.rank[(pid - SIM_PID) / 100].zombie)
        return 0;
    errno = pid > 0 ? ESRCH : EBADF;
    return -1;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list args;
    long result = -1;

    va_start(args, number);
    if (!sim_on()) {
        long a[6];

        for (int i = 0; i < 6; i++)
            a[i] = va_arg(args, long);
        va_end(args);
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    sim_call(number == SYS_futex ? "futex" : "syscall");
    if (number == SYS_futex) {
        result = futex(args);
    } else if (number == SYS_gettid) {
        result = sim.current->tid;
    } else if (number == SYS_set_robust_list) {
        sim.current->robust = va_arg(args, struct robust_list_head *);
        result = 0;
    } else if (number == SYS_pidfd_open) {
        result = sim_pidfd(va_arg(args, int));
    } else if (number == SYS_pidfd_send_signal) {
        result = signal_zero(va_arg(args, int));
    } else {
        errno = ENOSYS;
    }
    va_end(args);
    return result;
}

/* ---- Threads --------------------------------------------------------------------- */

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr,
     void *(*run)(void *), void *arg)
{
    struct sim_fiber *f;

    if (!sim_on())
        return __real_pthread_create(thread, attr, run, arg);
    sim_call("pthread_create");
    f = sim_fiber_start(sim_rank(), run, arg);
    if (!f)
        return EAGAIN;
    *thread = (pthread_t)(uintptr_t)f;
    return 0;
}

WRAP(int, pthread_join, pthread_t thread, void **result)
{
    struct sim_fiber *f = (struct sim_fiber *)(uintptr_t)thread;

    if (!sim_on())
        return __real_pthread_join(thread, result);
    sim_call("pthread_join");
    while (f->state != SIM_ENDED)
        sim_wait("pthread_join", f, 0, SIM_FOREVER);
    if (result)
        *result = f->result;
    return 0;
}

WRAP(pthread_t, pthread_self, void)
{
    return sim_on() ? (pthread_t)(uintptr_t)sim.current : __real_pthread_self();
}

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *old)
{
    return sim_on() ? 0 : __real_pthread_sigmask(how, set, old);
}

static void hold(pthread_mutex_t *mutex)
{
    struct sim_fiber *f = sim.current;

    if (f->held_count < SIM_HELD)
        f->held[f->held_count++] = mutex;
}

WRAP(int, pthread_mutex_trylock, pthread_mutex_t *mutex)
{
    int error = __real_pthread_mutex_trylock(mutex);

    if (sim_on() && error == 0)
        hold(mutex);
    return error;
}

WRAP(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    if (!sim_on())
        return __real_pthread_mutex_lock(mutex);
    sim_pass(30);
    while (__real_pthread_mutex_trylock(mutex) != 0)
        sim_wait("mutex", mutex, 0, SIM_FOREVER);
    hold(mutex);
    return 0;
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    struct sim_fiber *f = sim.current;
    int error = __real_pthread_mutex_unlock(mutex);

    if (!sim_on())
        return error;
    for (int i = 0; i < f->held_count; i++)
        if (f->held[i] == mutex) {
            f->held[i] = f->held[--f->held_count];
            break;
        }
    sim_wake(mutex, 0, 1);
    sim_pass(30);
    return error;
}

static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t end)
{
    struct sim_fiber *f = sim.current;
    bool woken;

    f->condition = cond;
    f->signalled = false;
    __wrap_pthread_mutex_unlock(mutex);
    f->condition = NULL;
    woken = f->signalled || sim_wait("condition", cond, 0, end);
    if (end != SIM_FOREVER)
        sim_late();
    __wrap_pthread_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

WRAP(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (!sim_on())
        return __real_pthread_cond_wait(cond, mutex);
    (void)cond_wait(cond, mutex, SIM_FOREVER);
    return 0;
}

WRAP(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex,
     const struct timespec *at)
{
    if (!sim_on())
        return __real_pthread_cond_timedwait(cond, mutex, at);
    return cond_wait(cond, mutex, nanoseconds(at));
}

/* Threads that are about to wait have let go of the mutex: they wait already. */
static void wake_condition(const pthread_cond_t *cond, int most)
{
    for (int i = 0; i < sim.fibers && most > 0; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->condition != cond || f->signalled || f->state == SIM_ENDED)
            continue;
        f->signalled = true;
        most--;
    }
    sim_wake(cond, 0, most);
}

WRAP(int, pthread_cond_signal, pthread_cond_t *cond)
{
    if (!sim_on())
        return __real_pthread_cond_signal(cond);
    wake_condition(cond, 1);
    return 0;
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *cond)
{
    if (!sim_on())
        return __real_pthread_cond_broadcast(cond);
    wake_condition(cond, INT_MAX);
    return 0;
}

/* ---- Locks of readers and writers ------------------------------------------------- */

WRAP(int, pthread_rwlock_rdlock, pthread_rwlock_t *lock)
{
    if (!sim_on())
        return __real_pthread_rwlock_rdlock(lock);
    sim_pass(30);
    while (pthread_rwlock_tryrdlock(lock) != 0)
        sim_wait("a lock of readers", lock, 0, SIM_FOREVER);
    return 0;
}

WRAP(int, pthread_rwlock_wrlock, pthread_rwlock_t *lock)
{
    if (!sim_on())
        return __real_pthread_rwlock_wrlock(lock);
    sim_pass(30);
    while (pthread_rwlock_trywrlock(lock) != 0)
        sim_wait("a lock of writers", lock, 0, SIM_FOREVER);
    return 0;
}

WRAP(int, pthread_rwlock_unlock, pthread_rwlock_t *lock)
{
    int error = __real_pthread_rwlock_unlock(lock);

    if (sim_on()) {
        sim_wake(lock, 0, INT_MAX);
        sim_pass(30);
    }
    return error;
}

/* ---- Sockets --------------------------------------------------------------------- */

WRAP(int, socket, int domain, int type, int protocol)
{
    if (!sim_on())
        return __real_socket(domain, type, protocol);
    sim_call("socket");
    return sim_socket(domain, type);
}

WRAP(int, socketpair, int domain, int type, int protocol, int fds[2])
{
    if (!sim_on())
        return __real_socketpair(domain, type, protocol, fds);
    sim_call("socketpair");
    return sim_socketpair(type, fds);
}

WRAP(int, bind, int fd, const struct sockaddr *address, socklen_t bytes)
{
    if (!sim_is_fd(fd))
        return __real_bind(fd, address, bytes);
    sim_call("bind");
    return sim_bind(fd, address, bytes);
}

WRAP(int, listen, int fd, int backlog)
{
    if (!sim_is_fd(fd))
        return __real_listen(fd, backlog);
    sim_call("listen");
    return sim_listen(fd, backlog);
}

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t bytes)
{
    if (!sim_is_fd(fd))
        return __real_connect(fd, address, bytes);
    sim_call("connect");
    return sim_connect(fd, address, bytes);
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (!sim_is_fd(fd))
        return __real_accept4(fd, address, bytes, flags);
    sim_call("accept4");
    return sim_interrupted() ? -1 : sim_accept(fd, flags);
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *bytes)
{
    if (!sim_is_fd(fd))
        return __real_getsockopt(fd, level, name, value, bytes);
    sim_call("getsockopt");
    return sim_get_option(fd, level, name, value, bytes);
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t bytes)
{
    return sim_is_fd(fd) ? 0 : __real_setsockopt(fd, level, name, value, bytes);
}

WRAP(int, getsockname, int fd, struct sockaddr *address, socklen_t *bytes)
{
    return sim_is_fd(fd) ? sim_name(fd, false, address, bytes)
                         : __real_getsockname(fd, address, bytes);
}

WRAP(int, getpeername, int fd, struct sockaddr *address, socklen_t *bytes)
{
    return sim_is_fd(fd) ? sim_name(fd, true, address, bytes)
                         : __real_getpeername(fd, address, bytes);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    if (!sim_is_fd(fd))
        return __real_sendmsg(fd, message, flags);
    sim_call("sendmsg");
    return sim_interrupted() ? -1 : sim_send(fd, message, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    if (!sim_is_fd(fd))
        return __real_recvmsg(fd, message, flags);
    sim_call("recvmsg");
    return sim_interrupted() ? -1 : sim_receive(fd, message, flags);
}

WRAP(ssize_t, send, int fd, const void *bytes, size_t count, int flags)
{
    struct iovec part = {(void *)(uintptr_t)bytes, count};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (!sim_is_fd(fd))
        return __real_send(fd, bytes, count, flags);
    return __wrap_sendmsg(fd, &message, flags);
}

WRAP(ssize_t, recv, int fd, void *bytes, size_t count, int flags)
{
    struct iovec part = {bytes, count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (!sim_is_fd(fd))
        return __real_recv(fd, bytes, count, flags);
    return __wrap_recvmsg(fd, &message, flags);
}

WRAP(ssize_t, __recv_chk, int fd, void *bytes, size_t count, size_t room, int flags)
{
    if (!sim_is_fd(fd))
        return __real___recv_chk(fd, bytes, count, room, flags);
    return __wrap_recv(fd, bytes, count, flags);
}

WRAP(int, shutdown, int fd, int how)
{
    if (!sim_is_fd(fd))
        return __real_shutdown(fd, how);
    sim_call("shutdown");
    return sim_shutdown(fd);
}

WRAP(int, ppoll, struct pollfd *polls, nfds_t count, const struct timespec *span,
     const sigset_t *mask)
{
    if (!sim_on())
        return __real_ppoll(polls, count, span, mask);
    sim_call("ppoll");
    return sim_poll(polls, count, until(span));
}

WRAP(int, poll, struct pollfd *polls, nfds_t count, int milliseconds)
{
    if (!sim_on())
        return __real_poll(polls, count, milliseconds);
    sim_call("poll");
    return sim_poll(polls, count,
                    milliseconds < 0 ? SIM_FOREVER
                                     : sim.now + (uint64_t)milliseconds * 1000000u);
}

WRAP(int, __ppoll_chk, struct pollfd *polls, nfds_t count, const struct timespec *span,
     const sigset_t *mask, size_t room)
{
    return sim_on() ? __wrap_ppoll(polls, count, span, mask)
                    : __real___ppoll_chk(polls, count, span, mask, room);
}

WRAP(int, __poll_chk, struct pollfd *polls, nfds_t count, int milliseconds, size_t room)
{
    return sim_on() ? __wrap_poll(polls, count, milliseconds)
                    : __real___poll_chk(polls, count, milliseconds, room);
}
