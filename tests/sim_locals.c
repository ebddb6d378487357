/* SPDX-License-Identifier: MIT */
/*
 * sim_locals.c - the thread-local variables of fibers where libraries have some, too (sim.h).
 *
 * Those of the program alone are copied at a switch (sim.c). A library's may be many kilobytes,
 * and lie where the dynamic linker puts them for each thread. So such a fiber has those of a thread
 * that only waits: a switch sets the processor's thread pointer, by which they are found. x86-64
 * only.
 */
#include "sim_private.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __x86_64__
#include <asm/prctl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#define HAS_WRFSBASE 2 /* in AT_HWCAP2 */
#define STACK_BYTES  ((size_t)128 << 10)

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *arg);
int __real_sched_yield(void);
long __real_syscall(long number, ...);

static void *wait_for_ever(void *arg)
{
    void **base = arg;

    __atomic_store_n(base, __builtin_thread_pointer(), __ATOMIC_RELEASE);
    for (;;)
        pause();
    return NULL;
}

bool sim_locals_supported(void)
{
    return true;
}

void *sim_locals_own(void)
{
    return __builtin_thread_pointer();
}

void *sim_locals_make(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *base = NULL;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (__real_pthread_create(&thread, &attributes, wait_for_ever, &base) != 0)
        abort();
    pthread_attr_destroy(&attributes);
    while (!__atomic_load_n(&base, __ATOMIC_ACQUIRE))
        __real_sched_yield();
    return base;
}

void sim_locals_use(void *base)
{
    static int direct = -1;

    if (direct < 0)
        direct = (getauxval(AT_HWCAP2) & HAS_WRFSBASE) != 0;
    if (direct)
        __asm__ volatile("wrfsbase %0" : : "r"(base) : "memory");
    else
        __real_syscall(SYS_arch_prctl, ARCH_SET_FS, base);
}

#else

bool sim_locals_supported(void)
{
    return false;
}

void *sim_locals_own(void)
{
    return NULL;
}

void *sim_locals_make(void)
{
    abort();
}

void sim_locals_use(void *base)
{
    (void)base;
}

#endif
