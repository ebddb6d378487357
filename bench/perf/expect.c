/* SPDX-License-Identifier: MIT */
/*
 * expect.c - see expect.h.
 *
 * An op's time is its place in program->order. A query names (buffer, rank, bytes, place):
 * the content is that of the last op before the place that wrote those bytes. The
 * recursion ends at writes, at kept results and at the period's start. Its cost for one
 * element is bounded: expect_keep.c keeps the expensive results.
 */
#include "perf/expect.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK   8192 /* bytes computed at a time; a multiple of every element */
#define NOWHERE (-1)

static const symm_program_partition *partition_of(const struct perf_expect *expect,
                                                  const symm_program_op *op)
{
    return &expect->program->partitions[op->partition];
}

/* ---- The last writer ------------------------------------------------------------- */

static int op_at(const struct perf_expect *expect, int place)
{
    return expect->program->order[place];
}

static int writer_before(const struct perf_expect *expect, int buffer, int before)
{
    int i = expect->writer_count[buffer];

    while (i > 0 && expect->writers[buffer][i - 1] >= before)
        i--;
    return i > 0 ? expect->writers[buffer][i - 1] : NOWHERE;
}

void perf_expect_written(const struct perf_expect *expect, int op, int buffer, int rank,
                         struct perf_pattern *pattern)
{
    const uint64_t prime = 1000003;
    uint64_t seed = expect->period * prime + (uint64_t)op;

    seed = (seed * prime + (uint64_t)buffer) * prime + (uint64_t)rank;
    perf_pattern_make(pattern, expect->program->buffers[buffer].dtype, seed);
}

/* Whether one write filled the whole buffer; *pattern is then its pattern. */
static bool written_pattern(const struct perf_expect *expect, int buffer, int rank,
                            int before, struct perf_pattern *pattern)
{
    int writer = writer_before(expect, buffer, before);

    if (writer == NOWHERE ||
        expect->program->ops[op_at(expect, writer)].kind != SYMM_PROGRAM_WRITE)
        return false;
    perf_expect_written(expect, op_at(expect, writer), buffer, rank, pattern);
    return true;
}

/* ---- Reductions ------------------------------------------------------------------ */

/* 1: the result is *pattern; 0: not all inputs are patterns; -1: no memory. */
static int reduced_pattern(const struct perf_expect *expect, int index, int list,
                           struct perf_pattern *pattern)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    struct perf_pattern *inputs = calloc((size_t)partition->length, sizeof *inputs);
    const void **tables = calloc((size_t)partition->length, sizeof *tables);
    int result = inputs && tables ? 1 : -1;

    for (int i = 0; i < partition->length && result == 1; i++) {
        int rank = partition->ranks[list * partition->length + i];
        if (!written_pattern(expect, op->in, rank, expect->place[index], &inputs[i]))
            result = 0;
        tables[i] = inputs[i].table;
    }
    if (result == 1)
        perf_pattern_reduce(pattern, op->dtype, op->reduce, tables, partition->length);
    free(inputs);
    free(tables);
    return result;
}

/* Computes whole elements, at most BLOCK bytes, of the reduction of all inputs. */
static int reduce_block(const struct perf_expect *expect, int index, int list,
                        struct perf_range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    unsigned char *scratch = malloc((size_t)partition->length * range.bytes);
    const void **sources = calloc((size_t)partition->length, sizeof *sources);
    int result = scratch && sources ? 0 : -1;

    for (int i = 0; i < partition->length && result == 0; i++) {
        unsigned char *source = scratch + (size_t)i * range.bytes;
        result = perf_expect__content(expect, op->in,
                                      partition->ranks[list * partition->length + i],
                                      expect->place[index], range, source);
        sources[i] = source;
    }
    if (result == 0)
        perf_reduce(op->dtype, op->reduce, sources, partition->length,
                    range.bytes / symm_dtype_size(op->dtype), to);
    free(scratch);
    free(sources);
    return result;
}

/* Computes any bytes of the reduction, widened to whole elements. */
static int reduce_range(const struct perf_expect *expect, int index, int list,
                        struct perf_range range, unsigned char *to)
{
    size_t element = symm_dtype_size(expect->program->ops[index].dtype);
    unsigned char block[BLOCK];
    struct perf_pattern pattern;

    if (range.bytes > 8 * element) {
        int made = reduced_pattern(expect, index, list, &pattern);
        if (made < 0)
            return -1;
        if (made) {
            perf_pattern_fill(&pattern, range.from, range.bytes, to);
            return 0;
        }
    }
    while (range.bytes > 0) {
        size_t lead = range.from % element;
        size_t part = range.bytes < BLOCK - lead ? range.bytes : BLOCK - lead;
        struct perf_range whole = {range.from - lead, lead + part};
        whole.bytes = (whole.bytes + element - 1) / element * element;
        if (reduce_block(expect, index, list, whole, block))
            return -1;
        memcpy(to, block + lead, part);
        to += part;
        range.from += part;
        range.bytes -= part;
    }
    return 0;
}

/* ---- Results and contents -------------------------------------------------------- */

/* The result has one block from each rank of the list: in an all_gather that rank's
 * whole input, in an all_to_all its block for the rank at `place`. */
static int gathered_range(const struct perf_expect *expect, int index, int list,
                          int place, struct perf_range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    size_t block = op->result / (size_t)partition->length;
    size_t skip = op->kind == SYMM_PROGRAM_ALL_TO_ALL ? (size_t)place * block : 0;

    while (range.bytes > 0) {
        size_t from = range.from / block, inside = range.from % block;
        size_t part = range.bytes < block - inside ? range.bytes : block - inside;
        int rank = partition->ranks[(size_t)(list * partition->length) + from];
        if (perf_expect__content(expect, op->in, rank, expect->place[index],
                                 (struct perf_range){skip + inside, part}, to))
            return -1;
        to += part;
        range.from += part;
        range.bytes -= part;
    }
    return 0;
}

int perf_expect__result(const struct perf_expect *expect, int index, int rank,
                        struct perf_range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    const struct perf_copies *kept = &expect->results[index];
    int at, list, place, sender;

    if (kept->bytes) {
        memcpy(to, kept->bytes + (size_t)rank * kept->size + range.from, range.bytes);
        return 0;
    }
    at = symm_program_partition_find(partition, rank);
    list = at / partition->length;
    place = at % partition->length;
    switch (op->kind) {
    case SYMM_PROGRAM_ALL_REDUCE:
        return reduce_range(expect, index, list, range, to);
    case SYMM_PROGRAM_REDUCE_SCATTER:
        range.from += (size_t)place * op->result;
        return reduce_range(expect, index, list, range, to);
    case SYMM_PROGRAM_BROADCAST:
        sender = op->root;
        break;
    case SYMM_PROGRAM_PUT:
        sender = (place - op->shift + partition->length) % partition->length;
        break;
    default:
        return gathered_range(expect, index, list, place, range, to);
    }
    return perf_expect__content(expect, op->in,
                                partition->ranks[list * partition->length + sender],
                                expect->place[index], range, to);
}

/* What the buffer held when the period began. */
static void carried_range(const struct perf_expect *expect, int buffer, int rank,
                          struct perf_range range, unsigned char *to)
{
    const struct perf_copies *carried = &expect->carried[buffer];

    if (carried->bytes)
        memcpy(to, carried->bytes + (size_t)rank * carried->size + range.from,
               range.bytes);
    else
        memset(to, 0, range.bytes);
}

int perf_expect__content(const struct perf_expect *expect, int buffer, int rank,
                         int before, struct perf_range range, unsigned char *to)
{
    struct perf_pattern pattern;

    while (range.bytes > 0) {
        int writer = writer_before(expect, buffer, before);
        if (writer == NOWHERE) {
            carried_range(expect, buffer, rank, range, to);
            return 0;
        }
        int index = op_at(expect, writer);
        size_t size = expect->program->ops[index].result;
        if (expect->program->ops[index].kind == SYMM_PROGRAM_WRITE) {
            perf_expect_written(expect, index, buffer, rank, &pattern);
            perf_pattern_fill(&pattern, range.from, range.bytes, to);
            return 0;
        }
        if (range.from < size) {
            size_t part =
                range.bytes < size - range.from ? range.bytes : size - range.from;
            if (perf_expect__result(expect, index, rank,
                                    (struct perf_range){range.from, part}, to))
                return -1;
            to += part;
            range.from += part;
            range.bytes -= part;
        }
        before = writer; /* bytes after the result: an earlier op wrote them */
    }
    return 0;
}

/* ---- Checking -------------------------------------------------------------------- */

static int expected_range(const struct perf_expect *expect, int index, int buffer,
                          int rank, struct perf_range range, unsigned char *to)
{
    if (expect->program->ops[index].kind == SYMM_PROGRAM_READ)
        return perf_expect__content(expect, buffer, rank, expect->place[index], range,
                                    to);
    return perf_expect__result(expect, index, rank, range, to);
}

/* 1: all bytes are a pattern that begins at *first; 0: they are not; -1: no memory. */
static int expected_pattern(const struct perf_expect *expect, int index, int buffer,
                            int rank, struct perf_pattern *pattern, size_t *first)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    int at;

    *first = 0;
    if (op->kind == SYMM_PROGRAM_READ)
        return written_pattern(expect, buffer, rank, expect->place[index], pattern);
    if (op->kind != SYMM_PROGRAM_ALL_REDUCE && op->kind != SYMM_PROGRAM_REDUCE_SCATTER)
        return 0;
    at = symm_program_partition_find(partition, rank);
    if (op->kind == SYMM_PROGRAM_REDUCE_SCATTER)
        *first = (size_t)(at % partition->length) * op->result;
    return reduced_pattern(expect, index, at / partition->length, pattern);
}

static int64_t differ_in_blocks(const struct perf_expect *expect, int index, int buffer,
                                int rank, const unsigned char *found, size_t bytes,
                                size_t element)
{
    unsigned char block[BLOCK];
    int64_t wrong = 0;

    for (size_t at = 0; at < bytes; at += BLOCK) {
        struct perf_range range = {at, bytes - at < BLOCK ? bytes - at : BLOCK};
        if (expected_range(expect, index, buffer, rank, range, block))
            return -1;
        wrong += (int64_t)perf_bytes_differ(block, found + at, range.bytes, element);
    }
    return wrong;
}

static int64_t differ_in_three(const struct perf_expect *expect, int index, int buffer,
                               int rank, const unsigned char *found, size_t bytes,
                               size_t element)
{
    size_t elements = bytes / element;
    const size_t places[3] = {0, elements / 2, elements - 1};
    unsigned char value[8];
    int64_t wrong = 0;

    for (int i = 0; i < 3; i++) {
        struct perf_range range = {places[i] * element, element};
        if (expected_range(expect, index, buffer, rank, range, value))
            return -1;
        wrong += memcmp(value, found + range.from, element) != 0;
    }
    return wrong;
}

int64_t perf_expect_differ(const struct perf_expect *expect, int op, int buffer,
                           int rank, const void *found, bool glance)
{
    const symm_program_op *what = &expect->program->ops[op];
    const symm_program_buffer *read = &expect->program->buffers[buffer];
    bool whole = what->kind == SYMM_PROGRAM_READ;
    size_t bytes = whole ? read->bytes : what->result;
    size_t element = symm_dtype_size(whole ? read->dtype : what->dtype);
    struct perf_pattern pattern;
    size_t first;
    int made;

    if (bytes == 0)
        return 0;
    if (glance)
        return differ_in_three(expect, op, buffer, rank, found, bytes, element);
    made = expected_pattern(expect, op, buffer, rank, &pattern, &first);
    if (made < 0)
        return -1;
    if (made)
        return (int64_t)perf_pattern_differ(&pattern, first, bytes, found);
    return differ_in_blocks(expect, op, buffer, rank, found, bytes, element);
}
