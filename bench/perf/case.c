/* SPDX-License-Identifier: MIT */
/* case.c - see case.h. */
#include "perf/case.h"

#include <stdlib.h>
#include <string.h>

bool perf_kind_reduces(enum perf_kind kind)
{
    return kind == PERF_ALL_REDUCE || kind == PERF_REDUCE_SCATTER;
}

bool perf_kind_has_size(enum perf_kind kind)
{
    return kind != PERF_SIGNAL && kind != PERF_BARRIER;
}

bool perf_kind_one_sided(enum perf_kind kind)
{
    return kind == PERF_PUT || kind == PERF_GET || kind == PERF_PUT_SIGNAL;
}

bool perf_kind_in_place(enum perf_kind kind)
{
    return perf_kind_has_size(kind) && !perf_kind_one_sided(kind);
}

bool perf_kind_split(enum perf_kind kind)
{
    return kind == PERF_REDUCE_SCATTER || kind == PERF_ALL_GATHER ||
           kind == PERF_ALL_TO_ALL;
}

void perf_case_size(struct perf_case *test, size_t bytes)
{
    size_t ranks = (size_t)test->job->size;
    size_t block;

    test->element = symm_dtype_size(test->dtype);
    test->count = bytes / test->element / (perf_kind_split(test->kind) ? ranks : 1);
    block = test->count * test->element;
    test->in_bytes = test->out_bytes = block;
    if (test->kind == PERF_REDUCE_SCATTER || test->kind == PERF_ALL_TO_ALL)
        test->in_bytes = block * ranks;
    if (test->kind == PERF_ALL_GATHER || test->kind == PERF_ALL_TO_ALL)
        test->out_bytes = block * ranks;
    test->size = test->in_bytes > test->out_bytes ? test->in_bytes : test->out_bytes;
}

int perf_case_prepare(struct perf_case *test)
{
    size_t ranks = (size_t)test->job->size;
    const bool whole = test->call && test->call->algorithm &&
                       strcmp(test->call->algorithm, "engine") == 0;
    const int *hosts =
        whole ? NULL
              : perf_reduce_hosts(test->op, test->kind == PERF_REDUCE_SCATTER,
                                  test->job->hosts, (int)ranks);
    const void **tables = calloc(ranks, sizeof *tables);

    test->inputs = calloc(PERF_PHASES * ranks, sizeof *test->inputs);
    test->sums = calloc(PERF_PHASES, sizeof *test->sums);
    if (!tables || !test->inputs || !test->sums) {
        free(tables);
        perf_case_finish(test);
        return -1;
    }
    for (size_t phase = 0; phase < PERF_PHASES; phase++) {
        for (size_t r = 0; r < ranks; r++) {
            struct perf_pattern *input = &test->inputs[phase * ranks + r];
            perf_pattern_make(input, test->dtype, phase * ranks + r);
            tables[r] = input->table;
        }
        perf_pattern_reduce(&test->sums[phase], test->dtype, test->op, tables, hosts,
                            (int)ranks);
    }
    free(tables);
    return 0;
}

void perf_case_finish(struct perf_case *test)
{
    free(test->inputs);
    free(test->sums);
    test->inputs = test->sums = NULL;
}

/* ---- Addresses ------------------------------------------------------------------- */

static size_t block_offset(const struct perf_case *test)
{
    return (size_t)test->job->rank * test->count * test->element;
}

static char *input_of(const struct perf_case *test)
{
    if (!test->in_place)
        return test->send;
    return test->kind == PERF_ALL_GATHER ? test->receive + block_offset(test)
                                         : test->receive;
}

int perf_case_target(const struct perf_case *test)
{
    return (test->job->rank + test->step) % test->job->size;
}

int perf_case_sender(const struct perf_case *test)
{
    const int size = test->job->size;

    return (test->job->rank + size - test->step % size) % size;
}

void perf_case_fill(const struct perf_case *test, int phase)
{
    const struct perf_pattern *input =
        &test->inputs[phase * test->job->size + test->job->rank];

    if (!test->staging) {
        perf_pattern_fill(input, 0, test->in_bytes, input_of(test));
        return;
    }
    perf_pattern_fill(input, 0, test->in_bytes, test->staging);
    (void)perf_job_copy(test->job, input_of(test), test->staging,
                        test->in_bytes); /* a failed copy shows as a wrong result */
}

void perf_case_spoil(const struct perf_case *test)
{
    (void)perf_job_fill(test->job, test->receive, 0, test->out_bytes);
}

/* Bytes [at, at + bytes) of the output, in memory that the host can read. */
static const char *output_at(const struct perf_case *test, size_t at, size_t bytes)
{
    if (!test->staging)
        return test->receive + at;
    if (perf_job_copy(test->job, test->staging + at, test->receive + at, bytes))
        memset(test->staging + at, 0, bytes);
    return test->staging + at;
}

/* ---- The call -------------------------------------------------------------------- */

/* A signal to the target, with a put or alone, and the wait for the sender's. */
static symm_status signal_round(const struct perf_case *test)
{
    symm_team *team = test->job->world;
    const int target = perf_case_target(test);
    symm_status status =
        test->kind == PERF_SIGNAL
            ? symm_signal(team, target, 0, test->call, NULL)
            : symm_put_signal(team, test->receive, test->send, test->in_bytes, target,
                              0, test->call, NULL);

    if (status != SYMM_OK)
        return status;
    return symm_signal_wait(team, perf_case_sender(test), 0, test->call, NULL);
}

symm_status perf_case_call(const struct perf_case *test)
{
    symm_team *team = test->job->world;
    const void *in = input_of(test);
    void *out = test->receive;

    switch (test->kind) {
    case PERF_ALL_REDUCE:
        return symm_all_reduce(team, in, out, test->count, test->dtype, test->op,
                               test->call, NULL);
    case PERF_REDUCE_SCATTER:
        return symm_reduce_scatter(team, in, out, test->count, test->dtype, test->op,
                                   test->call, NULL);
    case PERF_ALL_GATHER:
        return symm_all_gather(team, in, out, test->count, test->dtype, test->call,
                               NULL);
    case PERF_BROADCAST:
        return symm_broadcast(team, in, out, test->count, test->dtype, test->root,
                              test->call, NULL);
    case PERF_ALL_TO_ALL:
        return symm_all_to_all(team, in, out, test->count, test->dtype, test->call,
                               NULL);
    case PERF_PUT:
        return symm_put(team, out, in, test->in_bytes, perf_case_target(test),
                        test->call, NULL);
    case PERF_GET:
        return symm_get(team, out, in, test->in_bytes, perf_case_target(test),
                        test->call, NULL);
    case PERF_PUT_SIGNAL:
    case PERF_SIGNAL:
        return signal_round(test);
    default:
        return symm_barrier(team, test->call, NULL);
    }
}

/* ---- Expected results ------------------------------------------------------------ */

/* The pattern of the output's block `block`, and the offset at which it begins. */
static const struct perf_pattern *expected(const struct perf_case *test, int phase,
                                           size_t block, size_t *first)
{
    const struct perf_pattern *inputs = test->inputs + phase * test->job->size;

    *first = 0;
    switch (test->kind) {
    case PERF_ALL_REDUCE:
        return &test->sums[phase];
    case PERF_REDUCE_SCATTER:
        *first = block_offset(test);
        return &test->sums[phase];
    case PERF_ALL_GATHER:
        return &inputs[block];
    case PERF_ALL_TO_ALL:
        *first = block_offset(test);
        return &inputs[block];
    case PERF_BROADCAST:
        return &inputs[test->root];
    case PERF_GET:
        return &inputs[perf_case_target(test)];
    default:
        return &inputs[perf_case_sender(test)];
    }
}

/* Wrong elements of bytes [at, at + bytes) of the output, which lie in one block. */
static size_t differ_at(const struct perf_case *test, int phase, size_t at,
                        size_t bytes)
{
    size_t block = test->count * test->element, first;
    const struct perf_pattern *pattern = expected(test, phase, at / block, &first);

    return perf_pattern_differ(pattern, first + at % block, bytes,
                               output_at(test, at, bytes));
}

size_t perf_case_check(const struct perf_case *test, int phase)
{
    size_t block = test->count * test->element, wrong = 0;

    if (perf_kind_has_size(test->kind) && block > 0)
        for (size_t at = 0; at < test->out_bytes; at += block)
            wrong += differ_at(test, phase, at, block);
    return wrong;
}

size_t perf_case_glance(const struct perf_case *test, int phase)
{
    size_t elements = test->out_bytes / test->element, wrong = 0;
    const size_t places[3] = {0, elements / 2, elements - 1};

    if (perf_kind_has_size(test->kind) && elements > 0)
        for (int i = 0; i < 3; i++)
            wrong += differ_at(test, phase, places[i] * test->element, test->element);
    return wrong;
}

/* ---- Bandwidths ------------------------------------------------------------------ */

double perf_case_bus_factor(const struct perf_case *test)
{
    double n = test->job->size;

    if (test->kind == PERF_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return perf_kind_split(test->kind) ? (n - 1) / n : 1;
}

double perf_case_wire_factor(const struct perf_case *test, const char *explain)
{
    bool whole = strstr(explain, "copy_in") || strstr(explain, "one_shot") ||
                 strstr(explain, "ll_push") || strstr(explain, "lamport_push");

    if (test->kind == PERF_ALL_REDUCE && whole)
        return test->job->size - 1;
    return perf_case_bus_factor(test);
}
