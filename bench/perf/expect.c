/* SPDX-License-Identifier: MIT */
/*
 * expect.c - see expect.h.
 *
 * An op's time is its place in program->order. A query names (buffer, rank, bytes, place):
 * the content is that of the last op before the place that wrote those bytes. The
 * recursion ends at writes, at kept results and at the period's start. Its cost for one
 * element is bounded: buffers that carry a value over the end of a period and expensive
 * results are kept in memory. All else is computed on demand.
 */
#include "perf/expect.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK   8192 /* bytes computed at a time; a multiple of every element */
#define NOWHERE (-1)

struct range {
    size_t from, bytes;
};

static int content_before(const struct perf_expect *expect, int buffer, int rank,
                          int before, struct range range, unsigned char *to);
static int result_of(const struct perf_expect *expect, int index, int rank,
                     struct range range, unsigned char *to);

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
    const struct perf_expected_buffer *written = &expect->buffers[buffer];
    int i = written->writer_count;

    while (i > 0 && written->writers[i - 1] >= before)
        i--;
    return i > 0 ? written->writers[i - 1] : NOWHERE;
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

/* The hosts of the list's ranks, for a reduction; *memory is for the caller to free.
 * -1: no memory. */
static int list_hosts(const struct perf_expect *expect, const symm_program_op *op,
                      int list, int **memory, const int **hosts)
{
    const symm_program_partition *partition = partition_of(expect, op);
    const int *ranks = &partition->ranks[list * partition->length];

    *memory = NULL;
    *hosts = NULL;
    if (!expect->hosts)
        return 0;
    *memory = calloc((size_t)partition->length, sizeof **memory);
    if (!*memory)
        return -1;
    for (int i = 0; i < partition->length; i++)
        (*memory)[i] = expect->hosts[ranks[i]];
    *hosts = perf_reduce_hosts(op->reduce, op->kind == SYMM_PROGRAM_REDUCE_SCATTER,
                               *memory, partition->length);
    return 0;
}

/* 1: the result is *pattern; 0: not all inputs are patterns; -1: no memory. */
static int reduced_pattern(const struct perf_expect *expect, int index, int list,
                           struct perf_pattern *pattern)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    struct perf_pattern *inputs = calloc((size_t)partition->length, sizeof *inputs);
    const void **tables = calloc((size_t)partition->length, sizeof *tables);
    int *memory = NULL, result = inputs && tables ? 1 : -1;
    const int *hosts;

    for (int i = 0; i < partition->length && result == 1; i++) {
        int rank = partition->ranks[list * partition->length + i];
        if (!written_pattern(expect, op->in, rank, expect->ops[index].place,
                             &inputs[i]))
            result = 0;
        tables[i] = inputs[i].table;
    }
    if (result == 1 && list_hosts(expect, op, list, &memory, &hosts))
        result = -1;
    if (result == 1)
        perf_pattern_reduce(pattern, op->dtype, op->reduce, tables, hosts,
                            partition->length);
    free(memory);
    free(inputs);
    free(tables);
    return result;
}

/* Computes whole elements, at most BLOCK bytes, of the reduction of all inputs. */
static int reduce_block(const struct perf_expect *expect, int index, int list,
                        struct range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    unsigned char *scratch = malloc((size_t)partition->length * range.bytes);
    const void **sources = calloc((size_t)partition->length, sizeof *sources);
    int *memory = NULL, result = scratch && sources ? 0 : -1;
    const int *hosts;

    for (int i = 0; i < partition->length && result == 0; i++) {
        unsigned char *source = scratch + (size_t)i * range.bytes;
        result = content_before(expect, op->in,
                                partition->ranks[list * partition->length + i],
                                expect->ops[index].place, range, source);
        sources[i] = source;
    }
    if (result == 0)
        result = list_hosts(expect, op, list, &memory, &hosts);
    if (result == 0)
        perf_reduce(op->dtype, op->reduce, sources, hosts, partition->length,
                    range.bytes / symm_dtype_size(op->dtype), to);
    free(memory);
    free(scratch);
    free(sources);
    return result;
}

/* Computes any bytes of the reduction, widened to whole elements. */
static int reduce_range(const struct perf_expect *expect, int index, int list,
                        struct range range, unsigned char *to)
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
        struct range whole = {range.from - lead, lead + part};
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
                          int place, struct range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    size_t block = op->result / (size_t)partition->length;
    size_t skip = op->kind == SYMM_PROGRAM_ALL_TO_ALL ? (size_t)place * block : 0;

    while (range.bytes > 0) {
        size_t from = range.from / block, inside = range.from % block;
        size_t part = range.bytes < block - inside ? range.bytes : block - inside;
        int rank = partition->ranks[(size_t)(list * partition->length) + from];
        if (content_before(expect, op->in, rank, expect->ops[index].place,
                           (struct range){skip + inside, part}, to))
            return -1;
        to += part;
        range.from += part;
        range.bytes -= part;
    }
    return 0;
}

static int result_of(const struct perf_expect *expect, int index, int rank,
                     struct range range, unsigned char *to)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    const struct perf_copies *kept = &expect->ops[index].result;
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
    return content_before(expect, op->in,
                          partition->ranks[list * partition->length + sender],
                          expect->ops[index].place, range, to);
}

/* What the buffer held when the period began. */
static void carried_range(const struct perf_expect *expect, int buffer, int rank,
                          struct range range, unsigned char *to)
{
    const struct perf_copies *carried = &expect->buffers[buffer].carried;

    if (carried->bytes)
        memcpy(to, carried->bytes + (size_t)rank * carried->size + range.from,
               range.bytes);
    else
        memset(to, 0, range.bytes);
}

/* What an all_reduce_norm leaves in a buffer that it writes; NULL: it is another op. */
static const struct perf_copies *norm_result(const struct perf_expect *expect,
                                             int index, int buffer)
{
    const int array =
        perf_norm_array_in(expect->program, &expect->program->ops[index], buffer, true);

    return array < 0 ? NULL : &expect->ops[index].norm[array];
}

static int content_before(const struct perf_expect *expect, int buffer, int rank,
                          int before, struct range range, unsigned char *to)
{
    struct perf_pattern pattern;

    while (range.bytes > 0) {
        int writer = writer_before(expect, buffer, before);
        if (writer == NOWHERE) {
            carried_range(expect, buffer, rank, range, to);
            return 0;
        }
        int index = op_at(expect, writer);
        const struct perf_copies *norm = norm_result(expect, index, buffer);
        size_t size = norm ? norm->size : expect->program->ops[index].result;
        if (expect->program->ops[index].kind == SYMM_PROGRAM_WRITE) {
            perf_expect_written(expect, index, buffer, rank, &pattern);
            perf_pattern_fill(&pattern, range.from, range.bytes, to);
            return 0;
        }
        if (range.from < size) {
            size_t part =
                range.bytes < size - range.from ? range.bytes : size - range.from;
            if (norm)
                memcpy(to, norm->bytes + (size_t)rank * norm->size + range.from, part);
            else if (result_of(expect, index, rank, (struct range){range.from, part},
                               to))
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

/* 1: all bytes are a pattern that begins at *first; 0: they are not; -1: no memory. */
static int expected_pattern(const struct perf_expect *expect, int index, int buffer,
                            int rank, struct perf_pattern *pattern, size_t *first)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    int at;

    *first = 0;
    if (op->kind == SYMM_PROGRAM_READ)
        return written_pattern(expect, buffer, rank, expect->ops[index].place, pattern);
    if (op->kind != SYMM_PROGRAM_ALL_REDUCE && op->kind != SYMM_PROGRAM_REDUCE_SCATTER)
        return 0;
    at = symm_program_partition_find(partition, rank);
    if (op->kind == SYMM_PROGRAM_REDUCE_SCATTER)
        *first = (size_t)(at % partition->length) * op->result;
    return reduced_pattern(expect, index, at / partition->length, pattern);
}

static int64_t differ_in(const struct perf_expect *expect, int index, int buffer,
                         int rank, const unsigned char *found, struct range range,
                         size_t element)
{
    const bool reads = expect->program->ops[index].kind == SYMM_PROGRAM_READ;
    const int place = expect->ops[index].place;
    const size_t end = range.from + range.bytes;
    unsigned char block[BLOCK];
    int64_t wrong = 0;

    for (size_t at = range.from; at < end; at += BLOCK) {
        struct range part = {at, end - at < BLOCK ? end - at : BLOCK};
        if (reads ? content_before(expect, buffer, rank, place, part, block)
                  : result_of(expect, index, rank, part, block))
            return -1;
        wrong += (int64_t)perf_bytes_differ(block, found + at, part.bytes, element);
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
    const size_t places[3] = {0, bytes / element / 2, bytes / element - 1};
    struct perf_pattern pattern;
    int64_t wrong = 0;
    size_t first;
    int made;

    if (bytes == 0)
        return 0;
    for (int i = 0; glance && i < 3; i++) {
        struct range range = {places[i] * element, element};
        int64_t more = differ_in(expect, op, buffer, rank, found, range, element);
        if (more < 0)
            return -1;
        wrong += more;
    }
    if (glance)
        return wrong;
    made = expected_pattern(expect, op, buffer, rank, &pattern, &first);
    if (made < 0)
        return -1;
    if (made)
        return (int64_t)perf_pattern_differ(&pattern, first, bytes, found);
    return differ_in(expect, op, buffer, rank, found, (struct range){0, bytes},
                     element);
}

int64_t perf_expect_norm_differ(const struct perf_expect *expect, int op,
                                enum perf_norm_place array, int rank, const void *found,
                                bool glance)
{
    const struct perf_copies *kept = &expect->ops[op].norm[array];
    const unsigned char *wanted = kept->bytes + (size_t)rank * kept->size;
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];
    size_t element, last;
    int64_t wrong = 0;

    perf_norm_list(expect->program, &expect->program->ops[op], arrays);
    element = symm_dtype_size(arrays[array].dtype);
    if (!glance)
        return (int64_t)perf_bytes_differ(wanted, found, kept->size, element);
    last = kept->size / element - 1;
    for (size_t i = 0; i < 3; i++) {
        const size_t at = last * i / 2 * element;
        wrong += memcmp(wanted + at, (const unsigned char *)found + at, element) != 0;
    }
    return wrong;
}

/* ---- Periods --------------------------------------------------------------------- */

static int keep_result(struct perf_expect *expect, int index)
{
    struct perf_copies kept = expect->ops[index].result;
    int result = 0;

    expect->ops[index].result.bytes = NULL; /* so that it is computed */
    for (int r = 0; r < expect->program->world && result == 0; r++)
        result = result_of(expect, index, r, (struct range){0, kept.size},
                           kept.bytes + (size_t)r * kept.size);
    expect->ops[index].result = kept;
    return result;
}

/* Fills inputs[], new memory for each array that the op reads, and the outputs' places. */
static int norm_memory(const struct perf_expect *expect, int index, int rank,
                       void *inputs[PERF_NORM_ARRAYS], void *all[PERF_NORM_ARRAYS])
{
    const symm_program_op *op = &expect->program->ops[index];
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];

    perf_norm_list(expect->program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++) {
        const struct perf_copies *kept = &expect->ops[index].norm[a];
        if (!arrays[a].where.given)
            continue;
        if (arrays[a].written) {
            all[a] = kept->bytes + (size_t)rank * kept->size;
            continue;
        }
        all[a] = inputs[a] = malloc(arrays[a].bytes);
        if (!inputs[a])
            return -1;
        if (arrays[a].where.buffer < 0)
            perf_norm_fill(&arrays[a], inputs[a]);
        else if (content_before(expect, arrays[a].where.buffer, rank,
                                expect->ops[index].place,
                                (struct range){0, arrays[a].bytes}, inputs[a]))
            return -1;
    }
    return 0;
}

static int compute_norm(const struct perf_expect *expect, int index, int rank)
{
    const symm_program_op *op = &expect->program->ops[index];
    const symm_program_partition *partition = partition_of(expect, op);
    const int list = symm_program_partition_find(partition, rank) / partition->length;
    void *inputs[PERF_NORM_ARRAYS] = {NULL}, *all[PERF_NORM_ARRAYS] = {NULL};
    void *sums = malloc(op->result);
    int result = sums ? norm_memory(expect, index, rank, inputs, all) : -1;
    symm_norm norm;

    if (result == 0)
        result = reduce_range(expect, index, list, (struct range){0, op->result}, sums);
    if (result == 0) {
        norm = perf_norm_call(expect->program, op, sums, all);
        result = perf_norm_rows(&norm);
    }
    for (int a = 0; a < PERF_NORM_ARRAYS; a++)
        free(inputs[a]);
    free(sums);
    return result;
}

int perf_expect_begin(struct perf_expect *expect, uint64_t period)
{
    expect->period = period;
    for (int p = 0; p < expect->program->op_count; p++) {
        int index = expect->program->order[p];
        if (expect->ops[index].result.bytes && keep_result(expect, index))
            return -1;
        for (int r = 0; expect->ops[index].norm && r < expect->program->world; r++)
            if (compute_norm(expect, index, r))
                return -1;
    }
    return 0;
}

int perf_expect_end(struct perf_expect *expect)
{
    const symm_program *program = expect->program;

    for (int b = 0; b < program->buffer_count; b++) {
        struct perf_copies *next = &expect->buffers[b].next;
        for (int r = 0; next->bytes && r < program->world; r++)
            if (content_before(expect, b, r, program->op_count,
                               (struct range){0, next->size},
                               next->bytes + (size_t)r * next->size))
                return -1;
    }
    for (int b = 0; b < program->buffer_count; b++) {
        struct perf_copies last = expect->buffers[b].carried;
        expect->buffers[b].carried = expect->buffers[b].next;
        expect->buffers[b].next = last;
    }
    return 0;
}

void perf_expect_restart(struct perf_expect *expect)
{
    for (int b = 0; b < expect->program->buffer_count; b++) {
        const struct perf_copies *carried = &expect->buffers[b].carried;
        if (carried->bytes)
            memset(carried->bytes, 0, (size_t)expect->program->world * carried->size);
    }
}
