/* SPDX-License-Identifier: MIT */
/*
 * order_owners.c - symmetries of a program: which ranks need not be looked at.
 *
 * Every rank runs the same ops, so a permutation of the ranks that maps the lists of every
 * group that is used onto lists, and keeps what roots and shifts mean, maps executions onto
 * executions. Tried are rotations r + t and reflections r xor t: enough for the groups of
 * tensor, data and pipeline parallelism; a symmetry that is missed only costs time.
 */
#include "order.h"

#include "program_private.h"

#define MAX_USES 64

/* What an op asks of its group. */
struct use {
    int group, root, shift; /* -1: does not matter */
};

static int list_uses(const symm_program *program, struct use *uses)
{
    int count = 0;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        struct use use = {.group = op->group, .root = -1, .shift = -1};
        int seen = 0;

        if (op->kind == SYMM_PROGRAM_PUT)
            use.shift = op->shift;
        else if (op->kind == SYMM_PROGRAM_BROADCAST)
            use.root = op->root;
        else if (!symm__is_collective(op->kind))
            continue;
        while (seen < count &&
               (uses[seen].group != use.group || uses[seen].root != use.root ||
                uses[seen].shift != use.shift))
            seen++;
        if (seen == MAX_USES)
            return -1;
        uses[seen] = use;
        count += seen == count;
    }
    return count;
}

static int image(const symm_program *program, int rank, int step, bool flip)
{
    return flip ? rank ^ step : (rank + step) % program->world;
}

static bool keeps(const symm_program *program, const struct use *use, int step,
                  bool flip)
{
    const symm_program_group *group = &program->groups[use->group];
    int length = group->length;

    for (int i = 0; i < program->world; i++) {
        int place, first, list, other, to = image(program, group->ranks[i], step, flip);
        symm__group_find(group, to, &list, &place);
        symm__group_find(group,
                         image(program, group->ranks[i - i % length], step, flip),
                         &first, &other);
        if (list != first)
            return false;
        if (use->root >= 0 && (i % length == use->root) != (place == use->root))
            return false;
        if (use->shift < 0)
            continue;
        int target = group->ranks[i - i % length + (i + use->shift) % length];
        if (image(program, target, step, flip) !=
            group->ranks[list * length + (place + use->shift) % length])
            return false;
    }
    return true;
}

static int find(int *parent, int rank)
{
    while (parent[rank] != rank)
        rank = parent[rank] = parent[parent[rank]];
    return rank;
}

static void try_step(const symm_program *program, const struct use *uses, int count,
                     int step, bool flip, int *parent)
{
    for (int u = 0; u < count; u++)
        if (!keeps(program, &uses[u], step, flip))
            return;
    for (int r = 0; r < program->world; r++) {
        int a = find(parent, r), b = find(parent, image(program, r, step, flip));
        if (a < b)
            parent[b] = a;
        else
            parent[a] = b;
    }
}

int symm__order_owners(const symm_program *program, int *owners)
{
    const bool flips = (program->world & (program->world - 1)) == 0;
    struct use uses[MAX_USES];
    int parent[SYMM_PROGRAM_MAX_WORLD], count = 0;
    int use_count = list_uses(program, uses);

    for (int r = 0; r < program->world; r++)
        parent[r] = r;
    for (int step = 1; step < program->world && use_count >= 0; step++) {
        if (find(parent, step) != 0)
            try_step(program, uses, use_count, step, false, parent);
        if (flips && find(parent, step) != 0)
            try_step(program, uses, use_count, step, true, parent);
    }
    for (int r = 0; r < program->world; r++)
        if (find(parent, r) == r)
            owners[count++] = r;
    return count;
}
