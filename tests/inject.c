/* SPDX-License-Identifier: MIT */
/*
 * inject.c - see inject.h. A process makes one injection at a time, so the state is global.
 */
#include "inject.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define MAPPINGS 64

static struct {
    _Atomic bool on;
    enum inject_mode mode;
    long k;
    _Atomic long calls, injected;
    char first[INJECT_NAME_BYTES];
} injector;

static struct {
    _Atomic bool on;
    _Atomic long blocks;
    pthread_mutex_t lock;
    const void *mapping[MAPPINGS]; /* NULL: free */
} account = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool armed;

void inject_begin(enum inject_mode mode, long k)
{
    injector.mode = mode;
    injector.k = k;
    injector.first[0] = '\0';
    atomic_store(&injector.calls, 0);
    atomic_store(&injector.injected, 0);
    atomic_store(&injector.on, true);
    armed = true;
}

void inject_end(struct inject_report *report)
{
    atomic_store(&injector.on, false);
    armed = false;
    report->calls = atomic_load(&injector.calls);
    report->injected = atomic_load(&injector.injected);
    (void)snprintf(report->first, sizeof(report->first), "%s", injector.first);
}

bool inject_armed(void)
{
    return armed && atomic_load(&injector.on);
}

void inject_arm_thread(void)
{
    armed = true;
}

/* splitmix64 of the seed and the call's number: no state to share. */
static bool coin(uint64_t seed, uint64_t call)
{
    uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + call;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return ((z ^ (z >> 31)) & 1) != 0;
}

bool inject_fails(const char *name, int error, unsigned can)
{
    if (!inject_armed())
        return false;
    bool interrupts =
        injector.mode == INJECT_INTERRUPT || injector.mode == INJECT_STORM;
    bool hit;
    if ((can & (interrupts ? INJECT_CAN_INTERRUPT : INJECT_CAN_FAIL)) == 0 ||
        (injector.mode == INJECT_AGAIN && (can & INJECT_RECEIVES) != 0))
        return false;
    long call = atomic_fetch_add(&injector.calls, 1) + 1;
    if (injector.mode == INJECT_STORM)
        hit = coin((uint64_t)injector.k, (uint64_t)call);
    else if (injector.mode == INJECT_FOREVER)
        hit = call >= injector.k;
    else
        hit = call == injector.k;
    if (!hit)
        return false;
    if (atomic_fetch_add(&injector.injected, 1) == 0)
        (void)snprintf(injector.first, sizeof(injector.first), "%s", name);
    errno = interrupts ? EINTR : error;
    return true;
}

/* ---- Accounts -------------------------------------------------------------------- */

void inject_account_begin(void)
{
    atomic_store(&account.blocks, 0);
    for (int i = 0; i < MAPPINGS; i++)
        account.mapping[i] = NULL;
    atomic_store(&account.on, true);
}

void inject_account_block(const void *block)
{
    if (block != NULL && atomic_load(&account.on))
        atomic_fetch_add(&account.blocks, 1);
}

void inject_account_freed(const void *block)
{
    if (block != NULL && atomic_load(&account.on))
        atomic_fetch_sub(&account.blocks, 1);
}

static void replace(const void *from, const void *to)
{
    pthread_mutex_lock(&account.lock);
    for (int i = 0; i < MAPPINGS; i++) {
        if (account.mapping[i] == from) {
            account.mapping[i] = to;
            break;
        }
    }
    pthread_mutex_unlock(&account.lock);
}

void inject_account_mapped(const void *at)
{
    if (atomic_load(&account.on))
        replace(NULL, at);
}

void inject_account_unmapped(const void *at)
{
    if (at != NULL && atomic_load(&account.on))
        replace(at, NULL);
}

void inject_account_read(long *blocks, long *mappings)
{
    *blocks = atomic_load(&account.blocks);
    *mappings = 0;
    for (int i = 0; i < MAPPINGS; i++)
        *mappings += account.mapping[i] != NULL;
}
