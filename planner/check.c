/* SPDX-License-Identifier: MIT */
/*
 * check.c - proves a plan safe from the program and the plan alone.
 *
 * Claim: if symm_plan_check says safe, then in every execution that the rules of programs
 * allow, each read gets the bytes that it would get if every buffer had memory of its own
 * and the ops ran one after the other, in the program's order of issue, each on all ranks;
 * and no execution is stuck.
 *
 * Argument. Call that one-by-one run the reference. An access is a rank's (remote or local)
 * touch of a range of bytes of one rank's arena, made by one op of one period.
 *  1. check_fit: the plan is one of this program, buffers lie inside the arena, and the
 *     accesses within one op do not get in each other's way. What each op touches, when its
 *     accesses begin and end, and which barriers it has, is tabulated here.
 *  2. check_values: in the reference, with buffers where the plan puts them, every read
 *     finds the bytes last written through its own buffer. (Bytes that were never written
 *     are the program's input; no two buffers with input share bytes.)
 *  3. check_order: any two accesses to a byte of which one is a write are ordered, the end
 *     of the one before the beginning of the other, and as in the reference. So each read
 *     finds the same last write as in the reference, whole, and by 2 the right one.
 *  4. Nothing is stuck, because whatever an op waits for - earlier ops of its stream, a
 *     depend, members of its group at the same op, the put of its site - is earlier in the
 *     order of issue, or the same op, whose members wait for each other's arrival only.
 *     check_fit proves that of the order; no two streams share a channel.
 *  5. check_certificate: every pair of buffers that share bytes is accounted for.
 * Time in a loop is unrolled to two periods; check_order says why that is enough.
 *
 * Refuses more than it must where memory is touched in parts: any two accesses of one op
 * are taken to last from its first byte to its last.
 */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

bool symm__check_refuse(struct check *c, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(c->report->first, sizeof(c->report->first), format, args);
    va_end(args);
    return false;
}

bool symm__check_nomem(struct check *c)
{
    c->status = symm__fail(SYMM_ERR_NOMEM,
                           "check of plan '%s': no memory for %d ops on %d ranks",
                           c->program->name, c->program->op_count, c->program->world);
    return false;
}

const char *symm__check_name(const struct check_op *op, char *text, size_t bytes)
{
    snprintf(text, bytes, "op %d (%s%s%.80s)", op->listed,
             symm_program_kind_name(op->op->kind), op->op->site ? " " : "",
             op->op->site ? op->op->site : "");
    return text;
}

struct check_ranks symm__check_list(const struct check *c, const struct check_op *op,
                                    int rank)
{
    const symm_program_group *group = &c->program->groups[op->op->group];
    const int place = c->places[op->op->group * c->program->world + rank];

    return (struct check_ranks){group->ranks + (place - place % group->length),
                                group->length};
}

int symm__check_receiver(const struct check *c, const struct check_op *op, int rank)
{
    const struct check_ranks list = symm__check_list(c, op, rank);
    const int place = c->places[op->op->group * c->program->world + rank] % list.count;

    return list.ranks[(place + op->op->shift) % list.count];
}

struct check_ranks symm__check_accessors(const struct check *c,
                                         const struct check_op *op, enum check_who who,
                                         int owner)
{
    const struct check_ranks list = symm__check_list(c, op, owner);
    const int place = c->places[op->op->group * c->program->world + owner] % list.count;

    switch (who) {
    case CHECK_SELF:
        return (struct check_ranks){list.ranks + place, 1};
    case CHECK_ROOT:
        return (struct check_ranks){list.ranks + place, place == op->op->root};
    case CHECK_FROM_ROOT:
        return (struct check_ranks){list.ranks, place == op->op->root ? list.count : 0};
    case CHECK_BY_ROOT:
        return (struct check_ranks){list.ranks + op->op->root, 1};
    case CHECK_SENDER:
        return (struct check_ranks){
            list.ranks + (place - op->op->shift + list.count) % list.count, 1};
    default:
        return list;
    }
}

bool symm__check_conflict(const struct check_access *a, const struct check_access *b)
{
    return (a->write || b->write) && a->low < b->high && b->low < a->high;
}

/* ---- Values ---------------------------------------------------------------------- */

/*
 * Goes back from the read through the ops before it, in a loop also through those of the
 * period before. Accesses to a buffer begin at its first byte, so what is left to find is
 * always [low, high). On return that is what no op before it in the first period wrote.
 */
static bool find_last_writes(struct check *c, int position,
                             const struct check_access *read, size_t *low)
{
    const int begin = c->program->loop ? position - c->op_count : 0;
    size_t left = read->low;
    char reader[128], writer[128];

    *low = read->low;
    for (int i = position - 1; i >= begin && left < read->high; i--) {
        const struct check_op *op = &c->ops[i < 0 ? i + c->op_count : i];
        for (int k = 0; k < op->access_count; k++) {
            const struct check_access *write = &op->accesses[k];
            if (!write->write || write->low >= read->high || write->high <= left)
                continue;
            if (write->buffer != read->buffer)
                return symm__check_refuse(
                    c,
                    "%s reads bytes %zu to %zu of the arena as buffer %s, but %s%s was "
                    "the "
                    "last to write them, as buffer %s: their lifetimes overlap, and no "
                    "order can help",
                    symm__check_name(&c->ops[position], reader, sizeof(reader)), left,
                    read->high, c->program->buffers[read->buffer].name,
                    symm__check_name(op, writer, sizeof(writer)),
                    i < 0 ? " of the period before" : "",
                    c->program->buffers[write->buffer].name);
            left = write->high;
        }
        if (i >= 0)
            *low = left;
    }
    return true;
}

struct input {
    size_t low, high;
};

/* Two buffers whose contents are there before the first op cannot share bytes. */
static bool check_inputs(struct check *c, const struct input *inputs)
{
    for (int i = 0; i < c->program->buffer_count; i++)
        for (int j = 0; j < i; j++)
            if (inputs[i].low < inputs[j].high && inputs[j].low < inputs[i].high)
                return symm__check_refuse(
                    c,
                    "buffers %s and %s are both read before they are written, and "
                    "share "
                    "bytes %zu to %zu",
                    c->program->buffers[j].name, c->program->buffers[i].name,
                    inputs[i].low > inputs[j].low ? inputs[i].low : inputs[j].low,
                    inputs[i].high < inputs[j].high ? inputs[i].high : inputs[j].high);
    return true;
}

bool symm__check_values(struct check *c)
{
    struct input *inputs =
        calloc((size_t)c->program->buffer_count + 1, sizeof(*inputs));
    bool good = inputs != NULL || symm__check_nomem(c);

    for (int i = 0; good && i < c->op_count; i++) {
        for (int k = 0; good && k < c->ops[i].access_count; k++) {
            const struct check_access *read = &c->ops[i].accesses[k];
            struct input *input = &inputs[read->buffer];
            size_t low;
            if (read->write)
                continue;
            good = find_last_writes(c, i, read, &low);
            if (!good || low >= read->high)
                continue;
            if (input->high == 0 || low < input->low)
                input->low = low;
            if (read->high > input->high)
                input->high = read->high;
        }
    }
    good = good && check_inputs(c, inputs);
    free(inputs);
    return good;
}

/* ---- All ------------------------------------------------------------------------- */

symm_status symm_plan_check(const symm_program *program, const symm_plan *plan,
                            symm_plan_report *report)
{
    struct check c = {.program = program, .plan = plan, .report = report};

    if (!program || !plan || !report || report->size != sizeof(*report))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_check: it needs a program, a plan, and a report "
                          "whose size is set to %zu",
                          sizeof(*report));
    if (program->size != sizeof(*program) || plan->size != sizeof(*plan))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_plan_check: sizes %zu and %zu of program and plan; this "
            "library's are %zu and %zu",
            program->size, plan->size, sizeof(*program), sizeof(*plan));
    if (!program->order)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_check: program '%s' is not finished; call "
                          "symm_program_finish",
                          program->name);
    *report = (symm_plan_report){.size = sizeof(*report)};
    report->safe = symm__check_fit(&c) && symm__check_values(&c) &&
                   symm__check_order(&c) && symm__check_certificate(&c);
    if (!report->safe)
        report->proved = 0;
    free(c.ops);
    free(c.accesses);
    free(c.places);
    return c.status;
}
