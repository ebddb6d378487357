/* SPDX-License-Identifier: MIT */
/*
 * test_host_litmus.c - each ordering of the host that docs/memory-model.md relies on, as a litmus
 * test for C11's memory model.
 * ctest: cost 5
 *
 * A test is a program of two or three threads and an outcome that must not be. All its executions
 * are searched: each read with each write that it may read from, each order of the writes to a
 * location, and of these the ones that the axioms of C11 allow (happens before without a cycle,
 * coherence, atomicity of read-modify-writes; not the ones for seq_cst, which no ordering here
 * uses, and none against values out of thin air, so that more is allowed than a compiler does). The
 * outcome must be in none of them; a race on plain data counts as the outcome. With any one of the
 * orderings weakened to relaxed the outcome must be found: so each is needed, and the search can
 * find it.
 *
 * The programs also run, by threads on different cores that begin each round together. None of
 * them may show its outcome. SYMM_TEST_LONG=1: 10^8 rounds of each that has a core for every
 * thread, SYMM_TEST_ROUNDS=N: N; and each with one ordering weakened, with how often its outcome
 * was seen. A processor shows only what it reorders. x86 lets a load pass an earlier store to another
 * location, and nothing else: so there the one program that is seen failing is the missed wake,
 * which has no ordering between the two; with fences there it must not be seen.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "util/fence.h"

#define MOST  16 /* events of a program, with the initial writes */
#define PLACE 4  /* locations of a program */

enum kind { END, WRITE, READ, ADD, SWAP, FENCE };
enum order { PLAIN, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

/* One access. WRITE and SWAP store `value`, ADD adds it, READ awaits it unless it is ANY. What
 * follows an ADD or SWAP with `wants` is for the case that it reads that; 0: any. */
struct event {
    int thread;
    enum kind kind;
    int place;
    enum order order;
    int value, wants;
};
#define ANY (-1) /* of a READ: whatever comes */

/* Where `got[i]` is what event i has read. */
typedef bool outcome(const int *got);

struct litmus {
    const char *name;
    struct event events[MOST];
    outcome *forbidden; /* NULL: a race alone */
    outcome *run;       /* forbidden where it runs; NULL: the same */
};

/* One candidate execution; the initial writes of the locations come first. */
struct run {
    struct event e[MOST];
    int count, reads_from[MOST],
        at[MOST]; /* at: place in the order of its location's writes */
    int got[MOST];
    bool before[MOST][MOST]; /* happens before */
    outcome *forbidden;
    long executions, found;
};

static bool writes(const struct event *e)
{
    return e->kind == WRITE || e->kind == ADD || e->kind == SWAP;
}

static bool reads(const struct event *e)
{
    return e->kind == READ || e->kind == ADD || e->kind == SWAP;
}

static bool updates(const struct event *e)
{
    return reads(e) && writes(e);
}

static bool releases(const struct event *e)
{
    return e->order == RELEASE || e->order == ACQ_REL;
}

static bool acquires(const struct event *e)
{
    return e->order == ACQUIRE || e->order == ACQ_REL;
}

static bool earlier(const struct run *r, int a, int b) /* in one thread's program */
{
    return r->e[a].thread == r->e[b].thread && a < b && r->e[a].thread >= 0;
}

/* What w stores; a chain of updates ends at a write, or the execution is refused before. */
static int stored(const struct run *r, int w)
{
    int sum = 0, steps = 0;

    while (r->e[w].kind == ADD && steps++ < MOST) {
        sum += r->e[w].value;
        w = r->reads_from[w];
    }
    return sum + r->e[w].value;
}

/* Does the read take its value from w's release sequence: w, and updates that read from it? */
static bool in_sequence(const struct run *r, int w, int from)
{
    for (int steps = 0; steps < MOST; steps++) {
        if (from == w)
            return true;
        if (!updates(&r->e[from]))
            return false;
        from = r->reads_from[from];
    }
    return false;
}

/* The release side of a store by w: w itself, or a fence before it. */
static bool release_side(const struct run *r, int a, int w)
{
    if (r->e[w].order == PLAIN)
        return false;
    return a == w ? releases(&r->e[w])
                  : r->e[a].kind == FENCE && releases(&r->e[a]) && earlier(r, a, w);
}

static bool acquire_side(const struct run *r, int b, int read)
{
    if (r->e[read].order == PLAIN)
        return false;
    return b == read
               ? acquires(&r->e[read])
               : r->e[b].kind == FENCE && acquires(&r->e[b]) && earlier(r, read, b);
}

static bool synchronizes(const struct run *r, int a, int b)
{
    for (int w = 0; w < r->count; w++)
        for (int read = 0; writes(&r->e[w]) && read < r->count; read++)
            if (reads(&r->e[read]) && release_side(r, a, w) &&
                acquire_side(r, b, read) && in_sequence(r, w, r->reads_from[read]))
                return true;
    return false;
}

/* False: it has a cycle. */
static bool order_events(struct run *r)
{
    for (int a = 0; a < r->count; a++)
        for (int b = 0; b < r->count; b++)
            r->before[a][b] = (r->e[a].thread < 0 && r->e[b].thread >= 0) ||
                              earlier(r, a, b) || synchronizes(r, a, b);
    for (int k = 0; k < r->count; k++)
        for (int a = 0; a < r->count; a++)
            for (int b = 0; b < r->count; b++)
                r->before[a][b] |= r->before[a][k] && r->before[k][b];
    for (int a = 0; a < r->count; a++)
        if (r->before[a][a])
            return false;
    return true;
}

/* a happens before b, at one location: then what a saw or stored is not newer than b's. */
static bool coherent_pair(const struct run *r, int a, int b)
{
    const struct event *x = &r->e[a], *y = &r->e[b];

    if (writes(x) && writes(y) && r->at[a] > r->at[b])
        return false;
    if (writes(x) && reads(y) && r->at[a] > r->at[r->reads_from[b]])
        return false;
    if (reads(x) && reads(y) && r->at[r->reads_from[a]] > r->at[r->reads_from[b]])
        return false;
    return !(reads(x) && writes(y) && r->at[r->reads_from[a]] >= r->at[b]);
}

static bool coherent(const struct run *r)
{
    for (int a = 0; a < r->count; a++) {
        if (updates(&r->e[a]) && r->at[r->reads_from[a]] + 1 != r->at[a])
            return false; /* another write comes between */
        for (int b = 0; b < r->count; b++) {
            if (a == b || r->e[a].kind == FENCE || r->e[b].kind == FENCE ||
                r->e[a].place != r->e[b].place)
                continue;
            if (r->before[a][b] && !coherent_pair(r, a, b))
                return false;
            if (reads(&r->e[b]) && r->reads_from[b] == a && r->before[b][a])
                return false;
        }
    }
    return true;
}

static bool races(const struct run *r)
{
    for (int a = 0; a < r->count; a++)
        for (int b = 0; b < a; b++) {
            const struct event *x = &r->e[a], *y = &r->e[b];

            if (x->kind != FENCE && y->kind != FENCE && x->place == y->place &&
                x->thread != y->thread && (writes(x) || writes(y)) &&
                (x->order == PLAIN || y->order == PLAIN) && !r->before[a][b] &&
                !r->before[b][a])
                return true;
        }
    return false;
}

static void judge(struct run *r)
{
    int initial = r->count;

    while (initial > 0 && r->e[initial - 1].thread >= 0)
        initial--;
    if (!order_events(r) || !coherent(r))
        return;
    for (int i = 0; i < r->count; i++) {
        if (!reads(&r->e[i]))
            continue;
        r->got[i] = stored(r, r->reads_from[i]);
        if (r->e[i].kind == READ ? r->e[i].value != ANY && r->got[i] != r->e[i].value
                                 : r->e[i].wants != 0 && r->got[i] != r->e[i].wants)
            return; /* it goes on waiting, or another way */
    }
    r->executions++;
    r->found += races(r) || (r->forbidden && r->forbidden(r->got + initial));
}

/* Every order of the writes to each location: write w is put at each place among those before. */
static void order_writes(struct run *r, int w)
{
    int rank = 1;

    while (w < r->count && (!writes(&r->e[w]) || r->e[w].thread < 0))
        w++;
    if (w == r->count) {
        judge(r);
        return;
    }
    for (int v = 0; v < w; v++)
        rank +=
            writes(&r->e[v]) && r->e[v].thread >= 0 && r->e[v].place == r->e[w].place;
    for (int at = 1; at <= rank; at++) {
        for (int v = 0; v < w; v++)
            r->at[v] +=
                writes(&r->e[v]) && r->e[v].place == r->e[w].place && r->at[v] >= at;
        r->at[w] = at;
        order_writes(r, w + 1);
        for (int v = 0; v < w; v++)
            r->at[v] -=
                writes(&r->e[v]) && r->e[v].place == r->e[w].place && r->at[v] > at;
    }
}

/* Every write that each read may read from. */
static void choose_writes(struct run *r, int read)
{
    while (read < r->count && !reads(&r->e[read]))
        read++;
    if (read == r->count) {
        order_writes(r, 0);
        return;
    }
    for (int w = 0; w < r->count; w++) {
        if (w == read || !writes(&r->e[w]) || r->e[w].place != r->e[read].place)
            continue;
        r->reads_from[read] = w;
        choose_writes(r, read + 1);
    }
}

/* weak: the event whose ordering is weakened; -1: none. */
static struct run search(const struct litmus *test, int weak)
{
    struct run r = {.forbidden = test->forbidden};

    for (int p = 0; p < PLACE; p++)
        r.e[r.count++] = (struct event){-1, WRITE, p, RELAXED, 0, 0};
    for (int i = 0; test->events[i].kind != END; i++) {
        assert_true(r.count < MOST);
        r.e[r.count] = test->events[i];
        if (i == weak)
            r.e[r.count].order = RELAXED;
        r.count++;
    }
    choose_writes(&r, 0);
    return r;
}

/* ---- The orderings ------------------------------------------------------------------------ */

enum { DATA, WORD, FLAG, MORE }; /* locations */

/* What is awaited says that a plain read sees 1. */
static bool got_3_not_1(const int *got)
{
    return got[3] != 1;
}

static bool chain_lost(const int *got)
{
    return got[5] != 1;
}

/* The second put's signal was seen, and not its data or those of the first. */
static bool puts_lost(const int *got)
{
    return got[5] != 1 || got[6] != 1;
}

/* The reader of round e has read what the writer stored for round e + 2. */
static bool read_overwritten(const int *got)
{
    return got[0] != 0;
}

/* The cancelled arrival was seen, and no record. */
static bool record_lost(const int *got)
{
    return got[4] != 1;
}

/* The tag was the same before and after, and the fields are of two sites. */
static bool site_mixed(const int *got)
{
    return got[6] == got[9] && got[6] != 0 && got[7] != got[6];
}

/* The word was the same before and after, and the set is one of two attempts later. */
static bool set_of_later(const int *got)
{
    return got[5] == 1 && got[7] == 1 && got[6] != 1;
}

/* It has finalized because of a death, and that death is not seen. */
static bool death_lost(const int *got)
{
    return got[4] != 1;
}

/* The last holder's store is overwritten: got[MOST] is what is in DATA at the end. */
static bool freed_early(const int *got)
{
    return got[2] == 1 && got[MOST] != 2;
}

static bool call_before_lost(const int *got)
{
    return got[3] == 2 && got[4] != 1;
}

/* An ordering that the outcome does not need, as another covers it, is relaxed here. */
static const struct litmus tests[] = {
    {"round: a peer's data are complete (round_arrive, round_await)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     got_3_not_1,
     NULL},
    {"round: what a peer has read may be overwritten",
     {{0, READ, DATA, PLAIN, ANY, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, WRITE, DATA, PLAIN, 2, 0}},
     read_overwritten,
     NULL},
    {"put_signal: a count that has passed shows all puts (raise_signal, "
     "symm__wait_signal)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELAXED, 1, 0},
      {0, WRITE, MORE, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 2, 0},
      {1, READ, WORD, ACQUIRE, 2, 0},
      {1, READ, DATA, PLAIN, ANY, 0},
      {1, READ, MORE, PLAIN, ANY, 0}},
     puts_lost,
     NULL},
    {"put_signal: a chain over a third rank",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {2, READ, FLAG, ACQUIRE, 1, 0},
      {2, READ, DATA, PLAIN, ANY, 0}},
     chain_lost,
     NULL},
    {"ring: bytes that have come, and bytes that may be overwritten (send_some, "
     "receive_some)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {0, READ, FLAG, ACQUIRE, 1, 0},
      {0, WRITE, DATA, PLAIN, 2, 0}},
     got_3_not_1,
     NULL},
    {"record: its text is complete (team_mark, symm__team_record_of)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, FLAG, RELEASE, 1, 0},
      {1, READ, FLAG, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     got_3_not_1,
     NULL},
    {"cancelled arrival: who sees it finds the record (cancel_arrival)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, FLAG, RELAXED, 1, 0},
      {0, WRITE, WORD, RELEASE, 9, 0},
      {1, READ, WORD, ACQUIRE, 9, 0},
      {1, READ, FLAG, RELAXED, ANY, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     record_lost,
     NULL},
    {"site table: fields are of one site (symm/cuda/site_table.c)",
     {{0, WRITE, DATA, RELAXED, 5, 0},
      {0, WRITE, WORD, RELEASE, 5, 0},
      {0, WRITE, WORD, RELAXED, 0, 0},
      {0, FENCE, WORD, RELEASE, 0, 0},
      {0, WRITE, DATA, RELAXED, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, ANY, 0},
      {1, READ, DATA, RELAXED, ANY, 0},
      {1, FENCE, WORD, ACQUIRE, 0, 0},
      {1, READ, WORD, RELAXED, ANY, 0}},
     site_mixed,
     NULL},
    {"shrink: a set is that of the word (propose, read_set)",
     {{0, WRITE, DATA, RELAXED, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, RELAXED, 1, 0},
      {1, WRITE, WORD, RELAXED, 2, 0},
      {1, WRITE, DATA, RELEASE, 3, 0},
      {2, READ, WORD, ACQUIRE, ANY, 0},
      {2, READ, DATA, ACQUIRE, ANY, 0},
      {2, READ, WORD, RELAXED, ANY, 0}},
     set_of_later,
     NULL},
    {"liveness: what made a rank finalize was there before (symm__process_finished)",
     {{0, WRITE, WORD, RELAXED, 1, 0},
      {1, READ, WORD, RELAXED, 1, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {2, READ, FLAG, ACQUIRE, 1, 0},
      {2, READ, WORD, RELAXED, ANY, 0}},
     death_lost,
     NULL},
    {"references: the last holder sees what the others did (symm_work_release)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, ADD, WORD, ACQ_REL, 1, 0},
      {1, ADD, WORD, ACQ_REL, 1, 1},
      {1, WRITE, DATA, PLAIN, 2, 0}},
     NULL,
     freed_early},
    {"default stream: calls of two threads (symm__default_enter, symm__default_leave)",
     {{0, SWAP, WORD, RELAXED, 1, 0},
      {0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 2, 0},
      {1, SWAP, WORD, ACQUIRE, 3, 2},
      {1, READ, DATA, PLAIN, ANY, 0}},
     NULL,
     call_before_lost},
};

/* The waker has read no sleeper, and the sleeper the old word: nothing orders the waker's store
 * before its load, so it may be, and a sleep needs its slice (symm/call/slow_wait.c). */
static bool wake_missed(const int *got)
{
    return got[1] == 0 && got[3] == 0;
}

static bool fence_missed(const int *got)
{
    return got[2] == 0 && got[5] == 0;
}

static const struct litmus missed_wake = {"sleeps: a wake may be missed",
                                          {{0, WRITE, WORD, RELEASE, 1, 0},
                                           {0, READ, FLAG, RELAXED, ANY, 0},
                                           {1, ADD, FLAG, ACQ_REL, 1, 0},
                                           {1, READ, WORD, ACQUIRE, ANY, 0}},
                                          wake_missed,
                                          NULL};

/* On processors it is not missed with a full fence between the two; the sleeper's addition is one
 * on x86. */
static const struct litmus fenced_wake = {"sleeps: with fences no wake is missed",
                                          {{0, WRITE, WORD, RELEASE, 1, 0},
                                           {0, FENCE, WORD, SEQ_CST, 0, 0},
                                           {0, READ, FLAG, RELAXED, ANY, 0},
                                           {1, ADD, FLAG, ACQ_REL, 1, 0},
                                           {1, FENCE, WORD, SEQ_CST, 0, 0},
                                           {1, READ, WORD, ACQUIRE, ANY, 0}},
                                          fence_missed,
                                          NULL};

static void test_orderings(void **state)
{
    int failed = 0, weakened = 0;

    (void)state;
    for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++) {
        const struct litmus *test = &tests[t];
        struct run r = search(test, -1);

        printf("%s: %ld executions\n", test->name, r.executions);
        if (r.found != 0 || r.executions == 0) {
            fprintf(stderr, "%s: in %ld of %ld executions\n", test->name, r.found,
                    r.executions);
            failed++;
        }
        for (int i = 0; test->events[i].kind != END; i++) {
            if (test->events[i].order < ACQUIRE)
                continue;
            weakened++;
            r = search(test, i);
            if (r.found > 0)
                continue;
            fprintf(stderr, "%s: not found with access %d relaxed\n", test->name, i);
            failed++;
        }
    }
    printf("%d orderings weakened\n", weakened);
    assert_int_equal(failed, 0);
}

static void test_missed_wake(void **state)
{
    struct run r = search(&missed_wake, -1);

    (void)state;
    assert_true(r.found > 0 && r.found < r.executions);
}

/* ---- Runs --------------------------------------------------------------------------------- */

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

/* How often the outcome is seen. rounds: becomes the number that were run. */
static long run_litmus(const struct litmus *test, int weak, long *rounds)
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
        s->test.events[weak].order = RELAXED;
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

static bool is_long(void)
{
    return getenv("SYMM_TEST_LONG") || getenv("SYMM_TEST_ROUNDS");
}

static long rounds_wanted(void)
{
    const char *given = getenv("SYMM_TEST_ROUNDS");

    return given ? atol(given) : is_long() ? 100000000 : 4096;
}

static long say_run(const struct litmus *test, int weak, long rounds)
{
    const double begin = harness_now();
    const long seen = run_litmus(test, weak, &rounds);

    if (is_long() && weak < 0)
        printf("ran %s: seen in %ld of %ld rounds, %.1f s\n", test->name, seen, rounds,
               harness_now() - begin);
    else if (is_long())
        printf("ran %s, access %d weakened: seen in %ld of %ld rounds\n", test->name,
               weak, seen, rounds);
    fflush(stdout);
    return seen;
}

#ifdef __SANITIZE_THREAD__ /* which follows no fences, see util/fence.h */
static const bool has_fences = false;
#else
static const bool has_fences = true;
#endif

static void test_runs(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++)
        assert_int_equal(say_run(&tests[t], -1, rounds_wanted()), 0);
    if (has_fences)
        assert_int_equal(say_run(&fenced_wake, -1, rounds_wanted()), 0);
}

/* What a processor shows of weakened programs; ThreadSanitizer reports their races. */
static void test_weakened_runs(void **state)
{
    cpu_set_t all;
    long seen;

    (void)state;
    if (!has_fences)
        skip();
    seen = say_run(&missed_wake, -1, rounds_wanted());
    if (!is_long())
        return;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
#if defined(__x86_64__) || defined(__aarch64__)
    if (CPU_COUNT(&all) > 1 && rounds_wanted() >= 1000000)
        assert_true(seen > 0);
#endif
    for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++)
        for (int i = 0; tests[t].events[i].kind != END; i++)
            if (tests[t].events[i].order >= ACQUIRE)
                seen += say_run(&tests[t], i, rounds_wanted() / 100);
}

int main(void)
{
    const struct CMUnitTest units[] = {
        cmocka_unit_test(test_orderings),
        cmocka_unit_test(test_missed_wake),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_weakened_runs),
    };

    return cmocka_run_group_tests(units, NULL, NULL);
}
