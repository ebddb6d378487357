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
 * find it. On x86 no run of the program itself could show that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST  16 /* events of a program, with the initial writes */
#define PLACE 4  /* locations of a program */

enum kind { END, WRITE, READ, ADD, SWAP, FENCE };
enum order { PLAIN, RELAXED, ACQUIRE, RELEASE, ACQ_REL };

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

/* An ordering that the outcome does not need, as another covers it, is relaxed here. */
static const struct litmus tests[] = {
    {"round: a peer's data are complete (round_arrive, round_await)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     got_3_not_1},
    {"round: what a peer has read may be overwritten",
     {{0, READ, DATA, PLAIN, ANY, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, WRITE, DATA, PLAIN, 2, 0}},
     read_overwritten},
    {"put_signal: a count that has passed shows all puts (raise_signal, "
     "symm__wait_signal)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELAXED, 1, 0},
      {0, WRITE, MORE, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 2, 0},
      {1, READ, WORD, ACQUIRE, 2, 0},
      {1, READ, DATA, PLAIN, ANY, 0},
      {1, READ, MORE, PLAIN, ANY, 0}},
     puts_lost},
    {"put_signal: a chain over a third rank",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {2, READ, FLAG, ACQUIRE, 1, 0},
      {2, READ, DATA, PLAIN, ANY, 0}},
     chain_lost},
    {"ring: bytes that have come, and bytes that may be overwritten (send_some, "
     "receive_some)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {0, READ, FLAG, ACQUIRE, 1, 0},
      {0, WRITE, DATA, PLAIN, 2, 0}},
     got_3_not_1},
    {"record: its text is complete (team_mark, symm__team_record_of)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, FLAG, RELEASE, 1, 0},
      {1, READ, FLAG, ACQUIRE, 1, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     got_3_not_1},
    {"cancelled arrival: who sees it finds the record (cancel_arrival)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, FLAG, RELAXED, 1, 0},
      {0, WRITE, WORD, RELEASE, 9, 0},
      {1, READ, WORD, ACQUIRE, 9, 0},
      {1, READ, FLAG, RELAXED, ANY, 0},
      {1, READ, DATA, PLAIN, ANY, 0}},
     record_lost},
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
     site_mixed},
    {"shrink: a set is that of the word (propose, read_set)",
     {{0, WRITE, DATA, RELAXED, 1, 0},
      {0, WRITE, WORD, RELEASE, 1, 0},
      {1, READ, WORD, RELAXED, 1, 0},
      {1, WRITE, WORD, RELAXED, 2, 0},
      {1, WRITE, DATA, RELEASE, 3, 0},
      {2, READ, WORD, ACQUIRE, ANY, 0},
      {2, READ, DATA, ACQUIRE, ANY, 0},
      {2, READ, WORD, RELAXED, ANY, 0}},
     set_of_later},
    {"liveness: what made a rank finalize was there before (symm__process_finished)",
     {{0, WRITE, WORD, RELAXED, 1, 0},
      {1, READ, WORD, RELAXED, 1, 0},
      {1, WRITE, FLAG, RELEASE, 1, 0},
      {2, READ, FLAG, ACQUIRE, 1, 0},
      {2, READ, WORD, RELAXED, ANY, 0}},
     death_lost},
    {"references: the last holder sees what the others did (symm_work_release)",
     {{0, WRITE, DATA, PLAIN, 1, 0},
      {0, ADD, WORD, ACQ_REL, 1, 0},
      {1, ADD, WORD, ACQ_REL, 1, 1},
      {1, WRITE, DATA, PLAIN, 2, 0}},
     NULL},
    {"default stream: calls of two threads (symm__default_enter, symm__default_leave)",
     {{0, SWAP, WORD, RELAXED, 1, 0},
      {0, WRITE, DATA, PLAIN, 1, 0},
      {0, WRITE, WORD, RELEASE, 2, 0},
      {1, SWAP, WORD, ACQUIRE, 3, 2},
      {1, READ, DATA, PLAIN, ANY, 0}},
     NULL},
};

/* The waker has read no sleeper, and the sleeper the old word: nothing orders the waker's store
 * before its load, so it may be, and a sleep needs its slice (symm/call/slow_wait.c). */
static bool wake_missed(const int *got)
{
    return got[1] == 0 && got[3] == 0;
}

static const struct litmus missed_wake = {"sleeps: a wake may be missed",
                                          {{0, WRITE, WORD, RELEASE, 1, 0},
                                           {0, READ, FLAG, RELAXED, ANY, 0},
                                           {1, ADD, FLAG, ACQ_REL, 1, 0},
                                           {1, READ, WORD, ACQUIRE, ANY, 0}},
                                          wake_missed};

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

int main(void)
{
    const struct CMUnitTest units[] = {
        cmocka_unit_test(test_orderings),
        cmocka_unit_test(test_missed_wake),
    };

    return cmocka_run_group_tests(units, NULL, NULL);
}
