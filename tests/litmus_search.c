/* SPDX-License-Identifier: MIT */
/*
 * litmus_search.c - all executions of a litmus test: each read with each write that it may read
 * from, each order of the writes to a location, and of these the ones that the axioms of C11 allow
 * (happens before without a cycle, coherence, atomicity of read-modify-writes; for seq_cst accesses
 * one order of all that is consistent with both, as C++20 states it, but nothing for such fences;
 * none against values out of thin air, so that more is allowed than a compiler does).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "litmus.h"

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
    return e->order == RELEASE || e->order == ACQ_REL || e->order == SEQ_CST;
}

static bool acquires(const struct event *e)
{
    return e->order == ACQUIRE || e->order == ACQ_REL || e->order == SEQ_CST;
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

/* Is one access to a location before the other one, by the order of its writes? */
static bool coherence_before(const struct run *r, int a, int b)
{
    const struct event *x = &r->e[a], *y = &r->e[b];
    const int from = writes(x) ? r->at[a] : r->at[r->reads_from[a]];

    if (x->place != y->place)
        return false;
    if (writes(y))
        return from < r->at[b];
    return writes(x) ? from <= r->at[r->reads_from[b]] : from < r->at[r->reads_from[b]];
}

/* Is there one order of all seq_cst accesses, consistent with what happens before what and with
 * coherence? */
static bool sequential(const struct run *r)
{
    bool next[MOST][MOST] = {{false}};

    for (int a = 0; a < r->count; a++)
        for (int b = 0; b < r->count; b++)
            next[a][b] = a != b && r->e[a].order == SEQ_CST &&
                         r->e[b].order == SEQ_CST && r->e[a].kind != FENCE &&
                         r->e[b].kind != FENCE &&
                         (r->before[a][b] || coherence_before(r, a, b));
    for (int k = 0; k < r->count; k++)
        for (int a = 0; a < r->count; a++)
            for (int b = 0; b < r->count; b++)
                next[a][b] |= next[a][k] && next[k][b];
    for (int a = 0; a < r->count; a++)
        if (next[a][a])
            return false;
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
    if (!order_events(r) || !coherent(r) || !sequential(r))
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

enum order litmus_weaker(enum order order)
{
    return order == SEQ_CST ? ACQ_REL : RELAXED;
}

struct litmus_count litmus_search(const struct litmus *test, int weak)
{
    struct run r = {.forbidden = test->forbidden};

    for (int p = 0; p < PLACE; p++)
        r.e[r.count++] = (struct event){-1, WRITE, p, RELAXED, 0, 0};
    for (int i = 0; test->events[i].kind != END; i++) {
        assert_true(r.count < MOST);
        r.e[r.count] = test->events[i];
        if (i == weak)
            r.e[r.count].order = litmus_weaker(r.e[r.count].order);
        r.count++;
    }
    choose_writes(&r, 0);
    return (struct litmus_count){r.executions, r.found};
}
