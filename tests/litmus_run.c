/* SPDX-License-Identifier: MIT */
/*
 * litmus_run.c - a litmus test by threads on different cores, which begin each round together.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "litmus.h"
#include "util/fence.h"

#define THREADS 3
#define BATCH   512 /* rounds between two checks */
#define GROUP   8   /* rounds that begin together: their threads stay close */
#define POLLS   2000

/* A location is an array over the rounds of a batch, one cache line each. */
struct cell {
    _Alignas(64) int value;
};

struct lane {
    _Alignas(64) long turn; /* atomic: the round that its thread has come to */
    int got[BATCH][MOST];
};

struct stage {
    struct litmus test;
    int threads, cores, cpu[THREADS];
    long rounds;
    struct cell cell[BATCH][PLACE];
    struct lane lane[THREADS];
    long seen;
};

static void poll_pause(int *polls)
{
    if (++*polls % POLLS == 0)
        sched_yield(); /* there may be fewer cores than threads */
}

/* All threads begin a round together; relaxed, so that it orders nothing for the program. */
static void round_begin(struct stage *s, int thread, long turn, int order)
{
    int polls = 0;

    if (order == __ATOMIC_RELAXED)
        __atomic_store_n(&s->lane[thread].turn, turn, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&s->lane[thread].turn, turn, __ATOMIC_RELEASE);
    for (int t = 0; t < s->threads; t++)
        while (__atomic_load_n(&s->lane[t].turn, order == __ATOMIC_RELAXED
                                                     ? __ATOMIC_RELAXED
                                                     : __ATOMIC_ACQUIRE) < turn)
            poll_pause(&polls);
}

static int load(const int *at, enum order order)
{
    switch (order) {
    case PLAIN:
        return *at;
    case RELAXED:
        return __atomic_load_n(at, __ATOMIC_RELAXED);
    case SEQ_CST:
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);
    default:
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);
    }
}

static void store(int *at, int value, enum order order)
{
    switch (order) {
    case PLAIN:
        *at = value;
        break;
    case RELAXED:
        __atomic_store_n(at, value, __ATOMIC_RELAXED);
        break;
    case SEQ_CST:
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
        break;
    default:
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
        break;
    }
}

static int add(int *at, int value, enum order order)
{
    return order == RELAXED ? __atomic_fetch_add(at, value, __ATOMIC_RELAXED)
                            : __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

static int swap(int *at, int value, enum order order)
{
    switch (order) {
    case RELAXED:
        return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
    case ACQUIRE:
        return __atomic_exchange_n(at, value, __ATOMIC_ACQUIRE);
    case SEQ_CST:
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    default:
        return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
    }
}

static void fence(enum order order)
{
    switch (order) {
    case ACQUIRE:
        symm__process_fence(__ATOMIC_ACQUIRE);
        break;
    case RELEASE:
        symm__process_fence(__ATOMIC_RELEASE);
        break;
    case SEQ_CST:
        symm__process_fence(__ATOMIC_SEQ_CST);
        break;
    default:
        break; /* weakened */
    }
}

/* One round of a thread. What follows an update that has not read what it wants is left out. */
static void round_run(struct stage *s, int thread, int i)
{
    const struct event *e = s->test.events;
    int *got = s->lane[thread].got[i], polls = 0;

    for (int k = 0; e[k].kind != END; k++) {
        int *at = &s->cell[i][e[k].place].value;

        if (e[k].thread != thread)
            continue;
        switch (e[k].kind) {
        case WRITE:
            store(at, e[k].value, e[k].order);
            break;
        case FENCE:
            fence(e[k].order);
            break;
        case ADD:
            got[k] = add(at, e[k].value, e[k].order);
            break;
        case SWAP:
            got[k] = swap(at, e[k].value, e[k].order);
            break;
        default:
            while ((got[k] = load(at, e[k].order)) != e[k].value && e[k].value != ANY)
                poll_pause(&polls);
        }
        if (e[k].wants != 0 && got[k] != e[k].wants)
            return;
    }
}

static void batch_check(struct stage *s)
{
    outcome *bad = s->test.run ? s->test.run : s->test.forbidden;

    for (int i = 0; i < BATCH; i++) {
        int got[MOST + 1];

        for (int k = 0; s->test.events[k].kind != END; k++)
            got[k] = s->lane[s->test.events[k].thread].got[i][k];
        got[MOST] = s->cell[i][DATA].value;
        s->seen += bad(got);
    }
    for (int t = 0; t < s->threads; t++)
        memset(s->lane[t].got, 0, sizeof(s->lane[t].got));
    memset(s->cell, 0, sizeof(s->cell));
}

struct runner {
    struct stage *stage;
    int thread;
};

static void *run_rounds(void *arg)
{
    const struct runner *runner = arg;
    struct stage *s = runner->stage;
    cpu_set_t cpu;
    long turn = 0;

    CPU_ZERO(&cpu);
    CPU_SET((size_t)s->cpu[runner->thread], &cpu);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(cpu), &cpu);
    for (long done = 0; done < s->rounds; done += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            if (i % GROUP == 0)
                round_begin(s, runner->thread, ++turn, __ATOMIC_RELAXED);
            round_run(s, runner->thread, i);
        }
        round_begin(s, runner->thread, ++turn, __ATOMIC_ACQ_REL);
        if (runner->thread == 0)
            batch_check(s);
        round_begin(s, runner->thread, ++turn, __ATOMIC_ACQ_REL);
    }
    return NULL;
}

/* The cores of the threads: different ones, as long as there are. */
static void find_cores(struct stage *s)
{
    cpu_set_t all;
    int list[THREADS] = {0};

    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    s->cores = 0;
    for (int c = 0; c < CPU_SETSIZE && s->cores < THREADS; c++)
        if (CPU_ISSET((size_t)c, &all))
            list[s->cores++] = c;
    for (int t = 0; t < THREADS; t++)
        s->cpu[t] = list[t % s->cores];
}

static int threads_of(const struct litmus *test)
{
    int most = 0;

    for (int k = 0; test->events[k].kind != END; k++)
        most = test->events[k].thread > most ? test->events[k].thread : most;
    return most + 1;
}

long litmus_run(const struct litmus *test, int weak, long *rounds)
{
    struct stage *s = aligned_alloc(64, sizeof(*s));
    struct runner runner[THREADS];
    pthread_t thread[THREADS];
    long seen;

    assert_non_null(s);
    memset(s, 0, sizeof(*s));
    s->test = *test;
    s->threads = threads_of(test);
    find_cores(s);
    if (s->threads > s->cores) /* they take turns */
        *rounds = *rounds > 400000 ? 100000 : *rounds / 4;
    s->rounds = *rounds = (*rounds + BATCH - 1) / BATCH * BATCH;
    if (weak >= 0)
        s->test.events[weak].order = litmus_weaker(s->test.events[weak].order);
    for (int t = 0; t < s->threads; t++) {
        runner[t] = (struct runner){s, t};
        assert_int_equal(pthread_create(&thread[t], NULL, run_rounds, &runner[t]), 0);
    }
    for (int t = 0; t < s->threads; t++)
        pthread_join(thread[t], NULL);
    seen = s->seen;
    free(s);
    return seen;
}
