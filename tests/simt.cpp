/* SPDX-License-Identifier: MIT */
/*
 * simt.cpp - runs a kernel's threads as fibers (see simt.h).
 *
 * Runnable fibers of a cluster are in a ring and take turns; a waiting fiber is in the list of
 * the barrier or warp collective that it waits for. A switch saves the registers that a call
 * preserves and changes the stack; processors other than x86-64 use ucontext. Stacks come
 * from a pool in slabs of one warp, each stack above a page without access; later launches
 * of any thread reuse them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/cuda_launch.h"
#include "simt_pause.h"
#include "stack_switch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__) || defined(SIMT_UCONTEXT)
#define SIMT_USES_UCONTEXT 1
#include <ucontext.h>
#else
#define SIMT_USES_UCONTEXT 0
#endif

#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)4096)
#define SLAB_BYTES  (SIMT_WARP * STACK_BYTES)
#define GUARDS_MOST 24000 /* a process may have 65,530 mappings, a guard needs two */
#define SLEEP_AFTER 200 /* rounds of polls without progress: the core goes to others */
#define SLEEP_MORE  350000 /* ns that sleeps grow to in a long wait */
#define STALL_AFTER 8   /* and under a watch, where many blocks may wait: it is told, */
#define STALL_SLEEP 20  /* and sleeps begin, longer each time up to STALL_MOST ns */
#define STALL_MOST  3000000

#define SIMT_BARRIERS 16 /* of a block; 0 is that of __syncthreads */

__thread struct simt_place simt_place;

namespace
{

struct fiber {
#if SIMT_USES_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    char *stack; /* above its guard; NULL: the thread's own */
    size_t stack_bytes;
    void *shadow; /* of AddressSanitizer */
    unsigned thread, block; /* in the block, in the cluster */
    bool arrived;           /* at the cluster's barrier */
    bool fresh;       /* it has not run in this cluster: its stack is not prepared */
    unsigned barrier; /* that it waits at; 0: none with a number */
    fiber *next;      /* that waits there */
};

/* Lanes that have come to a collective; values by turns, so that a lane that goes on does
 * not overwrite what a slower one has yet to read. */
struct warp {
    const char *name;
    unsigned arrived, turn;
    uint64_t value[2][SIMT_WARP];
};

/* bar.sync with a number: the threads that have come, of `threads`. */
struct barrier {
    unsigned threads, arrived;
    fiber *first; /* a list */
};

struct block {
    unsigned first; /* of its fibers */
    unsigned alive;
    unsigned arrived; /* at __syncthreads: their list */
    fiber *waiting;
    barrier barriers[SIMT_BARRIERS];
};

struct launch {
    void (*kernel)(struct symm_cuda_args);
    const struct symm_cuda_args *args;
    unsigned threads, members; /* of a block; blocks of a cluster */
    unsigned alive,
        met; /* threads of the cluster; have arrived at its barrier, or ended */
    unsigned head, ready;   /* of the ring */
    unsigned polls, rounds; /* since the last progress */
    simt_watch *watch;      /* NULL: a plain launch */
    bool stalled,
        given_up; /* the watch was told; the block waits for the grid in front */
    uint64_t end, random, pause;
    unsigned first; /* block of the cluster */
    fiber *running, host;
    fiber *ring[SIMT_MAX_CLUSTER];
    fiber fibers[SIMT_MAX_CLUSTER];
    char *slabs[SIMT_MAX_CLUSTER / SIMT_WARP];
    warp warps[SIMT_MAX_CLUSTER / SIMT_WARP];
    struct block blocks[SIMT_MAX_BLOCKS];
};

struct slab {
    slab *next;
};

__thread struct launch *current;
pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
slab *pool; /* free slabs; the head lies in the first stack */
unsigned guards; /* pages that no stack may reach; stacks without one are behind these */

[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void die(const char *format, ...)
{
    char text[512];
    Dl_info info;
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (current && dladdr((void *)current->kernel, &info) && info.dli_sname)
        fprintf(stderr, "simt: kernel %s, block %u: %s\n", info.dli_sname,
                simt_place.block.x, text);
    else if (current)
        fprintf(stderr, "simt: kernel %p, block %u: %s\n", (void *)current->kernel,
                simt_place.block.x, text);
    else
        fprintf(stderr, "simt: %s\n", text);
    abort();
}

/* ---- Stacks ---------------------------------------------------------------------- */

char *slab_take(void)
{
    char *memory;

    pthread_mutex_lock(&pool_lock);
    memory = (char *)pool;
    if (memory) {
        pool = pool->next;
        pthread_mutex_unlock(&pool_lock);
        return memory - GUARD_BYTES;
    }
    pthread_mutex_unlock(&pool_lock);
    memory =
        (char *)mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        die("no memory for stacks: %s", strerror(errno));
    pthread_mutex_lock(&pool_lock);
    guards += guards < GUARDS_MOST ? SIMT_WARP : 0;
    for (unsigned i = 0; i < SIMT_WARP && guards < GUARDS_MOST; i++)
        if (mprotect(memory + i * STACK_BYTES, GUARD_BYTES, PROT_NONE) != 0)
            die("no memory for stacks: %s", strerror(errno));
    pthread_mutex_unlock(&pool_lock);
    return memory;
}

/* A test may load and close this library many times. */
__attribute__((destructor)) void slabs_close()
{
    while (pool) {
        char *memory = (char *)pool - GUARD_BYTES;

        pool = pool->next;
        munmap(memory, SLAB_BYTES);
    }
}

void slab_give(char *memory)
{
    slab *head = (slab *)(void *)(memory + GUARD_BYTES);

    pthread_mutex_lock(&pool_lock);
    head->next = pool;
    pool = head;
    pthread_mutex_unlock(&pool_lock);
}

/* ---- Switching ------------------------------------------------------------------- */

#if !SIMT_USES_UCONTEXT
/* Saves what a call preserves, and where it was saved in *from; goes on at `to`. */
extern "C" void simt_switch(void **from, void *to)
    __attribute__((visibility("hidden")));
STACK_SWITCH(simt_switch);
#endif

void fiber_main(void);

void fiber_prepare(fiber *f)
{
#if SIMT_USES_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->stack_bytes;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
#else
    f->stack_pointer = stack_begin(f->stack + f->stack_bytes, fiber_main);
#endif
    f->shadow = NULL;
    f->fresh = false;
}

/* The indices are those of a fiber of the kernel; the host's do not matter. */
void go_on(const launch *l, const fiber *f)
{
    simt_place.thread.x = f->thread;
    simt_place.block.x = l->first + f->block;
}

/* The running fiber goes on when somebody switches back to it; one that ends never does. */
void switch_to(launch *l, fiber *to, bool ends)
{
    fiber *from = l->running;

    if (from == to)
        return;
    l->running = to;
    if (to->fresh)
        fiber_prepare(to);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(ends ? NULL : &from->shadow, to->stack,
                                   to->stack_bytes);
#else
    (void)ends;
#endif
#if SIMT_USES_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    simt_switch(&from->stack_pointer, to->stack_pointer);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->shadow, NULL, NULL);
#endif
    go_on(l, from);
}

void make_ready(launch *l, fiber *f)
{
    l->ring[(l->head + l->ready++) % SIMT_MAX_CLUSTER] = f;
}

uint64_t random_next(launch *l)
{
    l->random ^= l->random << 13;
    l->random ^= l->random >> 7;
    l->random ^= l->random << 17;
    return l->random;
}

fiber *next_ready(launch *l)
{
    fiber **head = &l->ring[l->head], *next;

    if (l->random && l->ready > 1) {
        fiber **other =
            &l->ring[(l->head + random_next(l) % l->ready) % SIMT_MAX_CLUSTER];

        next = *other;
        *other = *head;
        *head = next;
    }
    next = *head;
    l->head = (l->head + 1) % SIMT_MAX_CLUSTER;
    l->ready--;
    return next;
}

[[noreturn]] void deadlock(const launch *l)
{
    char text[256] = "";
    size_t length = 0;
    unsigned synced = 0;

    for (unsigned w = 0;
         w < l->members * l->threads / SIMT_WARP && length < sizeof(text); w++)
        if (l->warps[w].arrived != 0)
            length += (size_t)snprintf(text + length, sizeof(text) - length,
                                       "; warp %u: %u lanes at %s", w,
                                       l->warps[w].arrived, l->warps[w].name);
    for (unsigned m = 0; m < l->members; m++) {
        synced += l->blocks[m].arrived;
        for (unsigned b = 1; b < SIMT_BARRIERS && length < sizeof(text); b++)
            if (l->blocks[m].barriers[b].arrived != 0)
                length += (size_t)snprintf(text + length, sizeof(text) - length,
                                           "; %u of %u threads at barrier %u",
                                           l->blocks[m].barriers[b].arrived,
                                           l->blocks[m].barriers[b].threads, b);
    }
    die("no thread can go on: %u of %u wait at __syncthreads, %u have returned%s",
        synced, l->members * l->threads, l->members * l->threads - l->alive, text);
}

/* The running fiber waits until somebody makes it ready. */
void block_here(launch *l)
{
    if (l->ready == 0)
        deadlock(l);
    switch_to(l, next_ready(l), false);
}

void progress(launch *l)
{
    l->polls = 0;
    l->rounds = 0;
}

/* Of a block under a watch. */
void idle_watched(launch *l)
{
    long most = 10000L * (l->rounds - STALL_SLEEP);
    struct timespec pause = {0, most < STALL_MOST ? most : STALL_MOST};

    if (l->rounds >= STALL_AFTER && !l->stalled) {
        l->stalled = true;
        l->watch->stalled(l->watch);
    }
    if (l->rounds <= STALL_SLEEP)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

/* All fibers that could run have polled in vain: other ranks must come first. */
void idle(launch *l)
{
    const long more = 1000L * (l->rounds - SLEEP_AFTER);
    struct timespec pause = {0, 50000 + (more < SLEEP_MORE ? more : SLEEP_MORE)};

    l->polls = 0;
    l->rounds++;
    if (l->watch)
        idle_watched(l);
    else if (l->rounds < SLEEP_AFTER)
        sched_yield();
    else
        nanosleep(&pause, NULL);
    simt_pause(l->pause);
    if (l->end != 0 && l->rounds % 64 == 0 && simt_time() > l->end)
        die("it runs for longer than SIMT_LIMIT; %u of %u threads poll, %u of the "
            "first block wait at __syncthreads",
            l->ready + 1, l->alive, l->blocks[0].arrived);
}

void fiber_main(void)
{
    launch *l = current;
    fiber *self = l->running;
    struct block *block = &l->blocks[self->block];
    const warp *w = &l->warps[(block->first + self->thread) / SIMT_WARP];

#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    go_on(l, self);
    l->kernel(*l->args);
    progress(l);
    l->alive--;
    block->alive--;
    l->met += !self->arrived;
    if (block->arrived != 0)
        die("thread %u has returned while %u others wait at __syncthreads",
            self->thread, block->arrived);
    if (w->arrived != 0)
        die("thread %u has returned while lanes of its warp wait at %s", self->thread,
            w->name);
    if (l->alive != 0 && l->ready == 0)
        deadlock(l);
    switch_to(l, l->alive == 0 ? &l->host : next_ready(l), true);
    __builtin_unreachable();
}

/* False: it was given up. */
bool run_cluster(launch *l, unsigned first)
{
    l->first = first;
    l->alive = l->members * l->threads;
    l->met = 0;
    l->stalled = l->given_up = false;
    l->head = l->ready = 0;
    progress(l);
    memset(l->warps, 0, sizeof(l->warps));
    memset(l->blocks, 0, sizeof(l->blocks));
    for (unsigned m = 0; m < l->members; m++) {
        l->blocks[m].first = m * l->threads;
        l->blocks[m].alive = l->threads;
    }
    for (unsigned t = 0; t < l->members * l->threads; t++) {
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(l->fibers[t].stack, l->fibers[t].stack_bytes);
#endif
        l->fibers[t].fresh = true;
        l->fibers[t].arrived = false;
        l->fibers[t].barrier = 0;
        make_ready(l, &l->fibers[t]);
    }
    l->running = &l->host;
    switch_to(l, next_ready(l), false);
    return !l->given_up;
}

/* The stack of the thread that launches, which AddressSanitizer must know. */
void host_stack(fiber *host)
{
#if defined(__SANITIZE_ADDRESS__)
    pthread_attr_t attributes;
    void *stack = NULL;

    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &host->stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    host->stack = (char *)stack;
#else
    (void)host;
#endif
}

uint64_t number(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

} // namespace

/* ---- What kernels call ----------------------------------------------------------- */

extern "C" uint64_t simt_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

extern "C" void simt_relax(void)
{
    launch *l = current;

    if (!l)
        die("simt_relax outside of a kernel");
    if (++l->polls > l->ready)
        idle(l);
    if (l->ready == 0)
        return;
    make_ready(l, l->running);
    switch_to(l, next_ready(l), false);
}

extern "C" void simt_misaligned(const void *at, size_t bytes)
{
    die("thread %u accesses %zu bytes at %p", simt_place.thread.x, bytes, at);
}

/* The list's fibers go on. */
static void release(launch *l, fiber **list)
{
    progress(l);
    for (fiber *f = *list; f; f = f->next) {
        f->barrier = 0;
        make_ready(l, f);
    }
    *list = NULL;
}

static void wait_in(launch *l, fiber **list)
{
    l->running->next = *list;
    *list = l->running;
    block_here(l);
}

extern "C" void simt_syncthreads(void)
{
    launch *l = current;
    struct block *block = &l->blocks[l->running->block];

    if (block->alive != l->threads)
        die("thread %u is at __syncthreads, but %u threads have returned",
            simt_place.thread.x, l->threads - block->alive);
    if (block->arrived + 1 < l->threads) {
        block->arrived++;
        wait_in(l, &block->waiting);
        return;
    }
    block->arrived = 0;
    release(l, &block->waiting);
    simt_pause(l->pause);
}

/* Lanes of the running fiber's warp at another named barrier would deadlock a device. */
static void check_barrier(const launch *l, const struct block *block, unsigned id,
                          unsigned threads)
{
    const fiber *warp =
        &l->fibers[block->first + simt_place.thread.x / SIMT_WARP * SIMT_WARP];

    if (id == 0 || id >= SIMT_BARRIERS)
        die("thread %u is at barrier %u: they are 1 to %u", simt_place.thread.x, id,
            SIMT_BARRIERS - 1);
    if (threads == 0 || threads % SIMT_WARP != 0 || threads > l->threads)
        die("barrier %u of %u threads: they are whole warps of %u", id, threads,
            l->threads);
    if (block->barriers[id].arrived != 0 && block->barriers[id].threads != threads)
        die("thread %u is at barrier %u of %u threads, others are there for %u",
            simt_place.thread.x, id, threads, block->barriers[id].threads);
    for (unsigned lane = 0; lane < SIMT_WARP; lane++)
        if (warp[lane].barrier != 0 && warp[lane].barrier != id)
            die("thread %u is at barrier %u, other lanes of its warp are at barrier %u",
                simt_place.thread.x, id, warp[lane].barrier);
}

extern "C" void simt_sync_some(unsigned id, unsigned threads)
{
    launch *l = current;
    struct block *block = &l->blocks[l->running->block];
    barrier *b = &block->barriers[id < SIMT_BARRIERS ? id : 0];

    check_barrier(l, block, id, threads);
    b->threads = threads;
    if (b->arrived + 1 < threads) {
        b->arrived++;
        l->running->barrier = id;
        wait_in(l, &b->first);
        return;
    }
    b->arrived = 0;
    release(l, &b->first);
}

extern "C" unsigned simt_cluster_member(void)
{
    return current->running->block;
}

extern "C" void simt_cluster_arrive(void)
{
    launch *l = current;

    if (l->running->arrived)
        die("thread %u arrives at its cluster's barrier a second time",
            simt_place.thread.x);
    l->running->arrived = true;
    l->met++;
    progress(l);
}

extern "C" void simt_cluster_wait(void)
{
    launch *l = current;

    if (!l->running->arrived)
        die("thread %u waits at its cluster's barrier, where it has not arrived",
            simt_place.thread.x);
    while (l->met < l->members * l->threads)
        simt_relax();
}

extern "C" const uint64_t *simt_exchange(const char *name, unsigned mask,
                                         uint64_t value)
{
    launch *l = current;
    unsigned lane = simt_place.thread.x % SIMT_WARP;
    unsigned first = (unsigned)(l->running - l->fibers) - lane;
    warp *w = &l->warps[first / SIMT_WARP];
    uint64_t *values = w->value[w->turn];

    if (mask != 0xffffffffu)
        die("%s with mask %#x: only full warps are allowed", name, mask);
    if (w->arrived != 0 && strcmp(w->name, name) != 0)
        die("thread %u is at %s, other lanes of its warp are at %s",
            simt_place.thread.x, name, w->name);
    w->name = name;
    values[lane] = value;
    if (++w->arrived < SIMT_WARP) {
        block_here(l);
        return values;
    }
    progress(l);
    w->arrived = 0;
    w->turn ^= 1;
    for (unsigned i = first; i < first + SIMT_WARP; i++)
        if (i != first + lane)
            make_ready(l, &l->fibers[i]);
    return values;
}

extern "C" void simt_dependent_launch(void)
{
    launch *l = current;

    if (l && l->watch)
        l->watch->triggered(l->watch);
}

/* The stacks of a block that is given up are used anew: nothing on them has to end. */
extern "C" void simt_dependent_wait(void)
{
    launch *l = current;

    if (!l || !l->watch || l->watch->may_pass(l->watch))
        return;
    l->given_up = true;
    switch_to(l, &l->host, true);
    __builtin_unreachable();
}

/* ---- Launches -------------------------------------------------------------------- */

static launch *launch_open(void (*kernel)(struct symm_cuda_args),
                           const struct symm_cuda_args *args, unsigned blocks,
                           unsigned threads)
{
    uint64_t limit = number("SIMT_LIMIT", 100);
    launch *l;

    const unsigned members = 1u << args->cluster;

    if (threads == 0 || threads % SIMT_WARP != 0 || threads > SIMT_MAX_THREADS)
        die("a block of %u threads", threads);
    if (members > SIMT_MAX_BLOCKS || members * threads > SIMT_MAX_CLUSTER ||
        blocks % members != 0)
        die("clusters of %u blocks of %u threads, in a grid of %u", members, threads,
            blocks);
    if (current)
        die("a launch inside of a launch");
    l = (launch *)calloc(1, sizeof(*l));
    if (!l)
        die("no memory for a launch");
    l->kernel = kernel;
    l->args = args;
    l->threads = threads;
    l->members = members;
    l->end = limit == 0 ? 0 : simt_time() + limit * 1000000000u;
    l->random = number("SIMT_SEED", 0) * 0x9e3779b97f4a7c15u;
    l->pause = number("SIMT_PAUSE", 0);
    host_stack(&l->host);
    for (unsigned s = 0; s < members * threads / SIMT_WARP; s++)
        l->slabs[s] = slab_take();
    for (unsigned t = 0; t < members * threads; t++) {
        fiber *f = &l->fibers[t];

        f->thread = t % threads;
        f->block = t / threads;
        f->stack = l->slabs[t / SIMT_WARP] + t % SIMT_WARP * STACK_BYTES + GUARD_BYTES;
        f->stack_bytes = STACK_BYTES - GUARD_BYTES;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* as a device's between two kernels */
    current = l;
    simt_place.threads = {threads, 1, 1};
    simt_place.blocks = {blocks, 1, 1};
    return l;
}

static void launch_close(launch *l)
{
    current = NULL;
    for (unsigned s = 0; s < l->members * l->threads / SIMT_WARP; s++)
        slab_give(l->slabs[s]);
    free(l);
}

extern "C" __attribute__((visibility("default"))) void
simt_launch(void (*kernel)(struct symm_cuda_args), const struct symm_cuda_args *args,
            unsigned blocks, unsigned threads)
{
    launch *l = launch_open(kernel, args, blocks, threads);

    for (unsigned b = 0; b < blocks; b += l->members)
        run_cluster(l, b);
    launch_close(l);
}

extern "C" __attribute__((visibility("default"))) bool
simt_cluster(void (*kernel)(struct symm_cuda_args), const struct symm_cuda_args *args,
             unsigned blocks, unsigned threads, unsigned block, simt_watch *watch)
{
    launch *l = launch_open(kernel, args, blocks, threads);
    bool ended;

    l->watch = watch;
    ended = run_cluster(l, block);
    launch_close(l);
    return ended;
}
