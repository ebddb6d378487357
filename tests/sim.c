/* SPDX-License-Identifier: MIT */
/*
 * sim.c - see sim.h: fibers, the clock, deaths and stops.
 *
 * A fiber has its own stack and its own copy of the program's thread-local variables, which is
 * exchanged at a switch (sim_locals.c where libraries have some, too). A fiber's `due` is the time
 * at which it goes on. Calls that do not wait only raise it, and switch if another fiber is due
 * earlier.
 */
#include "sim_private.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef __x86_64__
#include <ucontext.h>
#endif
#include <link.h>

#include "stack_switch.h"

#define STACK_BYTES ((size_t)512 << 10)
#define EVENTS_MOST 4000000u

struct sim sim;

static void *tls_at;
static size_t tls_bytes;

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                  off_t offset);

/* ---- Random numbers and events --------------------------------------------------- */

uint64_t sim_random(void)
{
    uint64_t z = (sim.random += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t sim_below(uint64_t count)
{
    return count > 1 ? sim_random() % count : 0;
}

static void give_up(const char *why);

void sim_event(const char *what, uint64_t a, uint64_t b)
{
    const struct sim_fiber *f = sim.current;
    uint64_t words[5] = {sim.now, f ? (uint64_t)f->tid : 0, a, b, 0};

    for (const char *c = what; *c; c++)
        words[4] = words[4] * 31 + (unsigned char)*c;
    for (int i = 0; i < 5; i++) {
        sim.hash = (sim.hash ^ words[i]) * UINT64_C(0x100000001b3);
        sim.hash ^= sim.hash >> 29;
    }
    sim.events++;
    if (sim.config->trace)
        fprintf(stderr, "%12.6f rank %d thread %d: %s %lld %lld\n",
                (double)sim.now * 1e-9, f ? f->rank : -1, f ? f->tid : 0, what,
                (long long)a, (long long)b);
    if (sim.events > EVENTS_MOST)
        give_up("too many events");
}

void sim_note(const char *format, ...)
{
    char text[700];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (sim.config->trace)
        fprintf(stderr, "%12.6f rank %d: %s\n", (double)sim.now * 1e-9, sim_rank(),
                text);
}

/* ---- Switching ------------------------------------------------------------------- */

#ifdef __x86_64__
void sim_switch(void **save, void *load);
STACK_SWITCH(sim_switch);

static void stack_prepare(struct sim_fiber *f, void (*entry)(void))
{
    f->sp = stack_begin((char *)f->stack + STACK_BYTES, entry);
}
#else
static void sim_switch(void **save, void *load)
{
    ucontext_t here;

    *save = &here;
    swapcontext(&here, load);
}

static void stack_prepare(struct sim_fiber *f, void (*entry)(void))
{
    ucontext_t *context = f->stack;

    getcontext(context);
    context->uc_stack.ss_sp = (char *)f->stack + sizeof(*context);
    context->uc_stack.ss_size = STACK_BYTES - sizeof(*context);
    makecontext(context, entry, 0);
    f->sp = context;
}
#endif

static int find_tls(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes, (void)arg;
    tls_at = info->dlpi_tls_data;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            tls_bytes = info->dlpi_phdr[i].p_memsz;
    return 1; /* the program comes first */
}

static void switch_to(struct sim_fiber *to)
{
    struct sim_fiber *from = sim.current;
    int error = errno;

    if (to == from)
        return;
    if (sim.config->libraries) {
        sim.current = to;
        sim_locals_use(to ? to->tls : sim.main_tls);
        sim_switch(from ? &from->sp : &sim.main_sp, to ? to->sp : sim.main_sp);
        return;
    }
    memcpy(from ? from->tls : sim.main_tls, tls_at, tls_bytes);
    memcpy(tls_at, to ? to->tls : sim.main_tls, tls_bytes);
    if (from)
        from->error = error;
    sim.current = to;
    if (to)
        errno = to->error;
    sim_switch(from ? &from->sp : &sim.main_sp, to ? to->sp : sim.main_sp);
}

static void give_up(const char *why)
{
    if (!sim.hung)
        sim.hung = why;
    if (sim.current) {
        switch_to(NULL);
        abort();
    }
}

/* ---- The scheduler --------------------------------------------------------------- */

static bool is_over(void)
{
    for (int i = 0; i < sim.fibers; i++)
        if (sim.fiber[i].first && sim.fiber[i].state != SIM_ENDED)
            return false;
    for (int i = 0; i < sim.fibers; i++)
        if (sim.fiber[i].rank < 0 && sim.fiber[i].state != SIM_ENDED &&
            sim.fiber[i].state != SIM_FREE)
            return false;
    return true;
}

/* The fiber that is due first, and in sim.next_due when the next one is; NULL: none ever. */
static struct sim_fiber *find_next(void)
{
    struct sim_fiber *first = NULL;
    uint64_t next = SIM_FOREVER;

    for (int i = 0; i < sim.fibers; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->state != SIM_READY && f->state != SIM_BLOCKED)
            continue;
        if (f->rank >= 0 && !f->device && f->due < sim.rank[f->rank].stopped_until)
            f->due = sim.rank[f->rank].stopped_until + sim_below(1000);
        if (!first || f->due < first->due) {
            next = first ? first->due : SIM_FOREVER;
            first = f;
        } else if (f->due < next) {
            next = f->due;
        }
    }
    sim.next_due = next;
    return first && first->due < SIM_FOREVER ? first : NULL;
}

/* Lets the fiber go on that is due first, perhaps the running one. */
static void schedule(void)
{
    struct sim_fiber *next;

    if (is_over())
        give_up(NULL);
    next = find_next();
    if (!next)
        give_up("all wait for ever");
    if (next->due > sim.now)
        sim.now = next->due;
    if ((double)sim.now * 1e-9 > sim.config->limit)
        give_up("the limit of simulated time has passed");
    next->state = SIM_READY;
    switch_to(next);
}

void sim_pass(uint64_t nanoseconds)
{
    struct sim_fiber *f = sim.current;

    f->due = sim.now + nanoseconds;
    if (f->due > sim.next_due)
        schedule();
    else
        sim.now = f->due;
}

void sim_ready(struct sim_fiber *fiber, uint64_t at)
{
    if (fiber->state != SIM_BLOCKED || fiber->due <= at)
        return;
    fiber->due = at;
    if (at < sim.next_due)
        sim.next_due = at;
}

bool sim_wait(const char *doing, const void *key, size_t offset, uint64_t until)
{
    struct sim_fiber *f = sim.current;

    f->state = SIM_BLOCKED;
    f->doing = doing;
    f->key = key;
    f->key_offset = offset;
    f->woken = false;
    f->due = until;
    schedule();
    f->key = NULL;
    f->doing = NULL;
    return f->woken;
}

int sim_wake(const void *key, size_t offset, int most)
{
    int woken = 0;

    for (int i = 0; i < sim.fibers && woken < most; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->state != SIM_BLOCKED || f->woken || f->key != key ||
            f->key_offset != offset)
            continue;
        f->woken = true;
        sim_ready(f, sim.now + 1000 + sim_below(20000));
        woken++;
    }
    return woken;
}

/* ---- Fibers ---------------------------------------------------------------------- */

static void robust_walk(struct sim_fiber *f)
{
    struct robust_list_head *head = f->robust;
    int entries = 0;

    f->robust = NULL;
    if (!head)
        return;
    for (struct robust_list *e = head->list.next; e != &head->list && entries++ < 16;
         e = e->next) {
        uint32_t *word = (uint32_t *)(void *)((char *)e + head->futex_offset);
        uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        size_t offset;
        const void *key;

        if ((seen & FUTEX_TID_MASK) != (uint32_t)f->tid)
            continue;
        __atomic_store_n(word, (seen & FUTEX_WAITERS) | FUTEX_OWNER_DIED,
                         __ATOMIC_SEQ_CST);
        key = sim_memory_at(word, &offset);
        sim_wake(key, offset, 1);
    }
}

static void entry(void)
{
    struct sim_fiber *f = sim.current;

    sim_fiber_end(f->run(f->arg));
}

struct sim_fiber *sim_fiber_start(int rank, void *(*run)(void *), void *arg)
{
    struct sim_fiber *f = &sim.fiber[sim.fibers];
    char *memory;

    if (sim.fibers == SIM_FIBERS)
        return NULL;
    memory = __real_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    sim.fibers++;
    *f = (struct sim_fiber){.state = SIM_BLOCKED,
                            .rank = rank,
                            .tid = rank < 0 ? ++sim.tids
                                            : SIM_PID + 100 * rank + 1 + sim.fibers,
                            .run = run,
                            .arg = arg,
                            .due = SIM_FOREVER,
                            .stack = memory};
    if (sim.config->libraries) {
        f->tls = sim_locals_make();
    } else {
        f->tls = __real_calloc(1, tls_bytes + 1);
        memcpy(f->tls, sim.main_tls, tls_bytes);
    }
    stack_prepare(f, entry);
    sim_ready(f, sim.now + 5000 + sim_below(100000));
    return f;
}

void sim_fiber_end(void *result)
{
    struct sim_fiber *f = sim.current;

    sim_event("thread ends", 0, 0);
    robust_walk(f);
    f->result = result;
    f->state = SIM_ENDED;
    sim_wake(f, 0, 100);
    schedule();
    abort();
}

/* ---- Deaths and stops ------------------------------------------------------------ */

static void let_go(struct sim_fiber *f)
{
    while (f->held_count > 0) {
        pthread_mutex_t *mutex = f->held[--f->held_count];

        __real_pthread_mutex_unlock(mutex);
        sim_wake(mutex, 0, 1);
    }
}

/* What the kernel does for a process that is killed, in its order. */
static void *reap(void *arg)
{
    const int rank = (int)(intptr_t)arg;

    sim.rank[rank].exiting = true;
    for (int i = 0; i < sim.fibers; i++)
        if (sim.fiber[i].rank == rank) {
            robust_walk(&sim.fiber[i]);
            sim_pass(sim_below(50000));
        }
    sim_pass(sim_below(sim_below(4) ? 100000 : 30000000));
    sim_files_died(rank);
    sim_pass(sim_below(sim_below(4) ? 100000 : 10000000));
    sim.rank[rank].zombie = true;
    sim_files_zombie(rank);
    return NULL;
}

static void die(int rank)
{
    sim_event("is killed", (uint64_t)rank, 0);
    sim.rank[rank].dead = true;
    sim.result->died[rank] = true;
    for (int i = 0; i < sim.fibers; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->rank == rank && f->state != SIM_ENDED) {
            f->state = SIM_ENDED;
            let_go(f);
        }
    }
    if (!sim_fiber_start(-1, reap, (void *)(intptr_t)rank))
        give_up("no fiber for a death");
    schedule();
    abort();
}

void sim_die(void)
{
    die(sim.current->rank);
}

static void stop(int rank)
{
    const uint64_t span = (uint64_t)(sim.config->stop_seconds[rank] * 1e9);

    sim_event("is stopped", (uint64_t)rank, span);
    sim.rank[rank].stopped_until = sim.now + span;
    sim.rank[rank].stopped += span;
    sim.next_due = 0; /* no fiber of it goes on */
}

void sim_stop(void)
{
    stop(sim.current->rank);
    sim_pass(1);
}

void sim_call(const char *name)
{
    struct sim_fiber *f = sim.current;
    struct sim_rank *rank;
    uint64_t calls, cost;

    if (f->rank < 0)
        return;
    rank = &sim.rank[f->rank];
    calls = ++rank->calls;
    if (sim.config->die_at[f->rank] == calls)
        die(f->rank);
    if (sim.config->stop_at[f->rank] == calls)
        stop(f->rank);
    cost = 300 + sim_below(rank->pace);
    if (sim_below(65536) < sim.config->slow)
        cost += sim_below(20000000);
    f->doing = name;
    sim_pass(cost);
    f->doing = NULL;
}

void sim_device_thread(void)
{
    sim.current->device = true;
}

void sim_late(void)
{
    if (sim.config->lag > 0 && sim_below(1024) < sim.config->lag)
        sim_pass(sim_below((uint64_t)(sim.config->lag_seconds * 1e9)));
}

bool sim_lacks(void)
{
    const int rank = sim_rank();
    uint64_t number, first;

    if (rank < 0)
        return false;
    number = ++sim.rank[rank].allocations;
    first = sim.config->lack_at[rank];
    if (first == 0 || number < first || number - first >= sim.config->lacks[rank])
        return false;
    sim_event("lacks memory", number, 0);
    errno = ENOMEM;
    return true;
}

bool sim_has_lacked(int rank)
{
    const uint64_t first = sim.config->lack_at[rank];

    return first > 0 && sim.rank[rank].allocations >= first;
}

bool sim_interrupted(void)
{
    if (!sim.current->first || sim_below(1024) >= sim.config->interrupt)
        return false;
    sim_event("is interrupted", 0, 0);
    errno = EINTR;
    return true;
}

/* ---- A run ----------------------------------------------------------------------- */

double sim_now(void)
{
    return (double)sim.now * 1e-9;
}

int sim_rank(void)
{
    return sim.current ? sim.current->rank : -1;
}

bool sim_is_dead(int rank)
{
    return sim.rank[rank].dead;
}

bool sim_is_cut(int a, int b)
{
    const struct sim_config *config = sim.config;

    return sim.now >= sim.cut_at && sim.now < sim.cut_until &&
           ((config->cut_hosts >> config->host_of[a] ^
             config->cut_hosts >> config->host_of[b]) &
            1);
}

double sim_stopped(int rank)
{
    return (double)sim.rank[rank].stopped * 1e-9;
}

void sim_sleep(double seconds)
{
    sim_wait("sleep", NULL, 0, sim.now + (uint64_t)(seconds * 1e9) + 1);
}

static void *run_rank(void *arg)
{
    (void)arg;
    sim.config->body(sim.current->rank, sim.config->arg);
    return NULL;
}

static void describe_hang(struct sim_result *result)
{
    size_t used = 0;

    for (int i = 0; i < sim.fibers && used < sizeof(result->where); i++) {
        const struct sim_fiber *f = &sim.fiber[i];

        if (f->state == SIM_READY || f->state == SIM_BLOCKED)
            used += (size_t)snprintf(result->where + used, sizeof(result->where) - used,
                                     "%srank %d%s: %s", used ? "; " : "", f->rank,
                                     f->first ? "" : " (a thread)",
                                     f->doing ? f->doing : "runs");
    }
}

static void account(struct sim_result *result)
{
    result->hash = sim.hash;
    result->events = sim.events;
    result->seconds = sim_now();
    result->hung = sim.hung;
    if (sim.hung)
        describe_hang(result);
    for (int r = 0; r < sim.config->ranks; r++) {
        result->calls[r] = sim.rank[r].calls;
        result->stopped[r] = sim_stopped(r);
        if (result->died[r])
            continue;
        result->fds[r] = sim_files_left(r);
        result->mappings[r] = sim_mappings_left(r);
        result->blocks[r] = sim_blocks_left(r);
        for (int i = 0; i < sim.fibers; i++)
            result->threads[r] += sim.fiber[i].rank == r && !sim.fiber[i].device &&
                                  sim.fiber[i].state != SIM_ENDED;
    }
}

void sim_run(const struct sim_config *config, struct sim_result *result)
{
    memset(result, 0, sizeof(*result));
    sim = (struct sim){.config = config,
                       .result = result,
                       .random = config->seed * UINT64_C(0x9e3779b97f4a7c15) + 1,
                       .hash = UINT64_C(0xcbf29ce484222325),
                       .now = 1000000000,
                       .next_due = SIM_FOREVER,
                       .tids = sim_wrap_linked};
    if (config->cut_seconds > 0) {
        sim.cut_at = (uint64_t)(config->cut_at * 1e9);
        sim.cut_until = config->cut_seconds > config->limit
                            ? SIM_FOREVER
                            : sim.cut_at + (uint64_t)(config->cut_seconds * 1e9);
    }
    dl_iterate_phdr(find_tls, NULL);
    if (config->libraries) {
        sim.main_tls = sim_locals_own();
    } else {
        sim.main_tls = __real_calloc(1, tls_bytes + 1);
        memcpy(sim.main_tls, tls_at, tls_bytes);
    }
    for (int r = 0; r < config->ranks; r++) {
        static const unsigned paces[] = {1000, 1000, 3000, 10000, 60000};
        struct sim_fiber *f = sim_fiber_start(r, run_rank, NULL);

        sim.rank[r].pace = paces[sim_below(5)];
        f->first = true;
        f->tid = SIM_PID + 100 * r;
        f->due = sim.now + sim_below(sim_below(3) ? 200000 : 50000000);
    }
    schedule();
    account(result);
}
