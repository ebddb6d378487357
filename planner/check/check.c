/* SPDX-License-Identifier: MIT */
/*
 * check.c - proves a plan safe from the program and the plan alone.
 *
 * Claim: if symm_plan_check says safe, then in every execution that the rules of programs
 * allow, each read gets the bytes that it would get if every buffer had memory of its own
 * and the ops ran one after the other, in the program's order of issue, each on all ranks;
 * no execution is stuck; and every figure of the plan is right.
 *
 * Argument. Call that one-by-one run the reference.
 *  1. check_fit: the plan is one of this program, buffers lie inside the arena, no op uses
 *     two buffers that share bytes, and within one op no rank reads what another overwrites.
 *     What each op touches, from and until when, and which barriers it has, is tabulated.
 *  2. check_lives: a buffer's life begins with a write of all bytes that are ever read of
 *     it, by an op that does not read it, and ends with the last access before the next such
 *     write. A buffer without one lives always.
 *  3. check_order: any two accesses to one buffer of which one is a write are ordered as in
 *     the reference. It is enough to compare each access with those since the last write.
 *     So within its own memory each read finds the right bytes.
 *  4. check_certificate: the lives of buffers that share a byte come one after the other,
 *     around the circle too. At each address the buffers form a list by the beginnings of
 *     their lives; each is over on every chain before the next one's first write, which is
 *     before that one's end. So only neighbours are compared, and these pairs, with a moment
 *     in between on each chain, are what the certificate must list: no less and no more.
 *  5. Nothing is stuck, because whatever an op waits for - earlier ops of its stream, a
 *     depend, members of its group at the same op, the put of its site - is earlier in the
 *     order of issue, or the same op, whose members wait for each other's arrival only.
 *     check_fit proves that of the order; no two streams share a channel.
 *  6. check_frees: where the plan says that an op frees a buffer, the op's end on a rank
 *     comes after all accesses to that rank's copy and before these bytes are written
 *     again. The order is the same in all periods, so bytes filled in between are never
 *     read.
 *  7. check_figures: arena, dedicated bytes and lower bound are computed anew.
 * Time in a loop is unrolled to two periods; check_order says why that is enough.
 */
#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/status.h"

bool symm__check_refuse(struct check *c, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(c->report->first, sizeof(c->report->first), format, args);
    va_end(args);
    return false;
}

bool symm__check_refuse_op(struct check *c, const struct check_op *op,
                           const char *format, ...)
{
    char *text = c->report->first;
    size_t length;
    va_list args;

    length = strlen(symm__check_name(op, text, sizeof(c->report->first)));
    va_start(args, format);
    vsnprintf(text + length, sizeof(c->report->first) - length, format, args);
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

/* ---- Ranks and moments ------------------------------------------------------------- */

struct check_ranks symm__check_list(const struct check *c, int partition, int rank)
{
    const symm_program_partition *lists = &c->program->partitions[partition];
    const int place = c->places[partition * c->program->world + rank];

    return (struct check_ranks){lists->ranks + (place - place % lists->length),
                                lists->length};
}

struct check_ranks symm__check_related(const struct check *c, enum check_who who,
                                       int partition, int parameter, int owner)
{
    const struct check_ranks list = symm__check_list(c, partition, owner);
    const int place = c->places[partition * c->program->world + owner] % list.count;

    switch (who) {
    case CHECK_EVERY:
        return list;
    case CHECK_READERS:
        return place == parameter ? list : (struct check_ranks){list.ranks + place, 1};
    case CHECK_ROOT:
        return (struct check_ranks){list.ranks + parameter, 1};
    case CHECK_SENDER:
        return (struct check_ranks){
            list.ranks + (place - parameter + list.count) % list.count, 1};
    default:
        return (struct check_ranks){list.ranks + place, 1};
    }
}

struct check_ranks symm__check_accessors(const struct check *c,
                                         const struct check_access *access, int owner)
{
    const symm_program_op *op = c->ops[access->op].op;

    return symm__check_related(c, access->who, op->partition,
                               access->who == CHECK_SENDER ? op->shift : op->root,
                               owner);
}

uint32_t symm__check_moment(const struct check *c, int position, int period,
                            enum check_point point)
{
    return 8 * (uint32_t)(period * c->op_count + position) + (uint32_t)point + 1;
}

/* Ops of one lane end one after the other: with early starts every second op of a stream. */
int symm__check_lane(const struct check *c, int position, int period)
{
    const int stream = c->ops[position].op->stream;

    return stream * c->halves +
           (c->seats[position] + period * c->stream_seats[stream]) % c->halves;
}

bool symm__check_before(const struct check *c, int a, int b, int period)
{
    const struct check_life *life = &c->lives[a];
    const uint32_t *known =
        c->begins + ((size_t)b * 2 + (size_t)period) * (size_t)c->chain_count;

    if (life->always || c->lives[b].always || c->lives[b].first)
        return false;
    for (int i = 0; i < life->last_count; i++)
        if (known[life->last[i].chain] < life->last[i].at)
            return false;
    return true;
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
    report->safe = symm__check_fit(&c) && symm__check_lives(&c) &&
                   symm__check_frees_listed(&c) && symm__check_order(&c) &&
                   symm__check_certificate(&c) && symm__check_frees(&c) &&
                   symm__check_figures(&c);
    if (!report->safe)
        report->proved = 0;
    symm__pool_free(&c.pool);
    return c.status;
}
