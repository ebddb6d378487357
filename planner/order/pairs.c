/* SPDX-License-Identifier: MIT */
/*
 * pairs.c - see pairs.h. Classes are found by refinement: pairs start as "the
 * rank itself" and "another", and a class is split while its pairs differ in the classes
 * that some relation leads to. Sets of classes are compared by a sum of 64-bit hashes.
 */
#include "order/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "model/program_private.h"
#include "util/hash.h"

/* The ranks in a relation to `owner`. */
static const int *members(const struct pairs *pairs, const struct relation *relation,
                          int owner, int *count)
{
    const symm_program *program = pairs->program;
    const symm_program_partition *partition = &program->partitions[relation->partition];
    const int at = relation->partition * program->world + owner;
    const int place = pairs->place_of[at];
    const int *list = partition->ranks + pairs->list_of[at] * partition->length;

    *count = 1;
    switch (relation->who) {
    case ACTOR_ROOT_PARTITION:
        if (place != relation->parameter)
            return list + place;
        *count = partition->length;
        return list;
    case ACTOR_PARTITION:
        *count = partition->length;
        return list;
    case ACTOR_ROOT:
        return list + relation->parameter;
    case ACTOR_SENDER:
        return list +
               (place - relation->parameter + partition->length) % partition->length;
    default:
        return list + place;
    }
}

int symm__pairs_relation(const struct pairs *pairs, enum actor who, int partition,
                         int parameter)
{
    for (int i = 0; i < pairs->relation_count; i++) {
        const struct relation *relation = &pairs->relations[i];
        if (relation->who == who &&
            (who == ACTOR_OWNER || relation->partition == partition) &&
            (who == ACTOR_OWNER || who == ACTOR_PARTITION ||
             relation->parameter == parameter))
            return i;
    }
    return -1;
}

static bool add_relation(struct pairs *pairs, int *room, enum actor who, int partition,
                         int parameter)
{
    if (symm__pairs_relation(pairs, who, partition, parameter) >= 0)
        return true;
    if (!symm__pool_grow(pairs->pool, (void **)&pairs->relations, pairs->relation_count,
                         room, sizeof(*pairs->relations)))
        return false;
    pairs->relations[pairs->relation_count++] =
        (struct relation){who, partition, who == ACTOR_PARTITION ? 0 : parameter};
    return true;
}

static bool list_relations(struct pairs *pairs)
{
    const symm_program *program = pairs->program;
    int room = 0;
    bool good = add_relation(pairs, &room, ACTOR_OWNER, 0, 0);

    for (int i = 0; i < program->op_count && good; i++) {
        const symm_program_op *op = &program->ops[i];
        if (!symm__is_communication(op->kind))
            continue;
        good = add_relation(pairs, &room, ACTOR_PARTITION, op->partition, 0);
        if (good && op->kind == SYMM_PROGRAM_PUT)
            good = add_relation(pairs, &room, ACTOR_SENDER, op->partition, op->shift);
        if (good && op->kind == SYMM_PROGRAM_BROADCAST)
            good = add_relation(pairs, &room, ACTOR_ROOT, op->partition, op->root) &&
                   add_relation(pairs, &room, ACTOR_ROOT_PARTITION, op->partition,
                                op->root);
    }
    return good;
}

static bool find_places(struct pairs *pairs)
{
    const symm_program *program = pairs->program;
    const size_t places = (size_t)program->partition_count * (size_t)program->world;

    pairs->list_of = symm__pool_alloc(pairs->pool, places, sizeof(int));
    pairs->place_of = symm__pool_alloc(pairs->pool, places, sizeof(int));
    if (!pairs->list_of || !pairs->place_of)
        return false;
    for (int g = 0; g < program->partition_count; g++) {
        const symm_program_partition *partition = &program->partitions[g];
        for (int i = 0; i < program->world; i++) {
            int at = g * program->world + partition->ranks[i];
            pairs->list_of[at] = i / partition->length;
            pairs->place_of[at] = i % partition->length;
        }
    }
    return true;
}

/* ---- Classes ----------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    return symm__mix(x + UINT64_C(0x9e3779b97f4a7c15));
}

struct signature {
    uint64_t hash;
    int pair;
};

static int compare_signatures(const void *left, const void *right)
{
    const struct signature *a = left, *b = right;

    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->pair < b->pair ? -1 : a->pair > b->pair;
}

/* Adds to each pair's hash what relation `index` leads to. Members of one list of a group
 * lead to the same, so that is summed once. */
static void sign_relation(const struct pairs *pairs, int index, struct signature *signs)
{
    const struct relation *relation = &pairs->relations[index];
    const int world = pairs->program->world;

    for (int r = 0; r < world; r++) {
        int count;
        const int *list = members(pairs, relation, r, &count);
        for (int s = 0; s < world; s++) {
            uint64_t sum = 0;
            if (relation->who == ACTOR_PARTITION && r != list[0])
                continue;
            for (int i = 0; i < count; i++)
                sum += mix((uint64_t)pairs->class_of[list[i] * world + s]);
            sum = mix(sum + (uint64_t)index);
            for (int i = 0; i < (relation->who == ACTOR_PARTITION ? count : 1); i++) {
                int at = relation->who == ACTOR_PARTITION ? list[i] : r;
                signs[at * world + s].hash = mix(signs[at * world + s].hash ^ sum);
            }
        }
    }
}

/* Splits classes; their number afterwards. Classes are numbered by their first pairs. */
static int refine(struct pairs *pairs, struct signature *signs, int *renamed)
{
    const int total = pairs->program->world * pairs->program->world;
    int count = 0;

    for (int p = 0; p < total; p++)
        signs[p] = (struct signature){mix((uint64_t)pairs->class_of[p]), p};
    for (int i = 0; i < pairs->relation_count; i++)
        if (pairs->relations[i].who != ACTOR_OWNER &&
            pairs->relations[i].who != ACTOR_ROOT_PARTITION)
            sign_relation(pairs, i, signs);
    qsort(signs, (size_t)total, sizeof(*signs), compare_signatures);
    for (int i = 0; i < total; i++) {
        count += i == 0 || signs[i].hash != signs[i - 1].hash;
        pairs->class_of[signs[i].pair] = count - 1;
    }
    for (int c = 0; c < count; c++)
        renamed[c] = -1;
    for (int p = 0, next = 0; p < total; p++) {
        int *to = &renamed[pairs->class_of[p]];
        if (*to < 0)
            *to = next++;
        pairs->class_of[p] = *to;
    }
    return count;
}

static bool find_classes(struct pairs *pairs)
{
    const int world = pairs->program->world;
    const size_t total = (size_t)world * (size_t)world;
    struct pool pool = {0};
    struct signature *signs = symm__pool_alloc(&pool, total, sizeof(*signs));
    int *renamed = symm__pool_alloc(&pool, total, sizeof(*renamed));
    int before = 0;

    pairs->class_of = symm__pool_alloc(pairs->pool, total, sizeof(int));
    const bool good = !pool.failed && pairs->class_of;
    for (int p = 0; good && p < world * world; p++)
        pairs->class_of[p] = p / world != p % world;
    pairs->count = world > 1 ? 2 : 1;
    while (good && pairs->count > before) {
        before = pairs->count;
        pairs->count = refine(pairs, signs, renamed);
    }
    symm__pool_free(&pool);
    return good;
}

/* ---- Lists of classes --------------------------------------------------------------- */

/* The classes that are set, as a list in the pool; `set` is cleared. */
static bool take_set(struct pairs *pairs, bool *set, struct class_list *taken)
{
    int count = 0, *list;

    for (int c = 0; c < pairs->count; c++)
        count += set[c];
    list = symm__pool_alloc(pairs->pool, (size_t)count + 1, sizeof(*list));
    if (!list)
        return false;
    *taken = (struct class_list){list, count};
    for (int c = 0, at = 0; c < pairs->count; c++) {
        if (set[c])
            list[at++] = c;
        set[c] = false;
    }
    return true;
}

static bool list_steps(struct pairs *pairs, bool *set, int *first)
{
    const int world = pairs->program->world;
    const size_t room = (size_t)pairs->relation_count * (size_t)pairs->count;
    bool good;

    pairs->steps = symm__pool_alloc(pairs->pool, room, sizeof(*pairs->steps));
    good = pairs->steps != NULL;
    for (int p = world * world - 1; p >= 0; p--)
        first[pairs->class_of[p]] = p;
    for (int i = 0; i < pairs->relation_count && good; i++) {
        if (pairs->relations[i].who == ACTOR_ROOT_PARTITION)
            continue; /* no clock goes along it */
        for (int c = 0; c < pairs->count && good; c++) {
            int count, r = first[c] / world, s = first[c] % world;
            const int *list = members(pairs, &pairs->relations[i], r, &count);
            for (int k = 0; k < count; k++)
                set[pairs->class_of[list[k] * world + s]] = true;
            good = take_set(pairs, set, &pairs->steps[i * pairs->count + c]);
        }
    }
    for (int r = 0; r < world && good; r++)
        set[pairs->class_of[r * world + r]] = true;
    return good && take_set(pairs, set, &pairs->self);
}

/* The classes of (a, s) over all owners, a in relation `actors` and s in `known`. */
static bool list_meet(struct pairs *pairs, bool *set, int actors, int known)
{
    const int world = pairs->program->world;
    const bool again =
        pairs->relations[actors].who == ACTOR_PARTITION && actors == known;

    for (int o = 0; o < world; o++) {
        int count, others;
        const int *a = members(pairs, &pairs->relations[actors], o, &count);
        const int *s = members(pairs, &pairs->relations[known], o, &others);
        for (int i = 0; i < count && (!again || a[0] == o); i++)
            for (int k = 0; k < others; k++)
                set[pairs->class_of[a[i] * world + s[k]]] = true;
    }
    return take_set(pairs, set, &pairs->meets[actors * pairs->relation_count + known]);
}

static bool list_meets(struct pairs *pairs, bool *set)
{
    const size_t relations = (size_t)pairs->relation_count;
    bool good;

    pairs->meets =
        symm__pool_alloc(pairs->pool, relations, relations * sizeof(*pairs->meets));
    good = pairs->meets != NULL;
    for (int a = 0; a < pairs->relation_count && good; a++)
        for (int k = 0; k < pairs->relation_count && good; k++)
            good = list_meet(pairs, set, a, k);
    return good;
}

static bool make(struct pairs *pairs)
{
    if (!find_places(pairs) || !list_relations(pairs) || !find_classes(pairs))
        return false;
    bool *set = symm__pool_alloc(pairs->pool, (size_t)pairs->count, sizeof(*set));
    int *first = symm__pool_alloc(pairs->pool, (size_t)pairs->count, sizeof(*first));

    return set && first && list_steps(pairs, set, first) && list_meets(pairs, set);
}

symm_status symm__pairs_init(struct pairs *pairs, struct pool *pool,
                             const symm_program *program)
{
    *pairs = (struct pairs){.program = program, .pool = pool};
    return make(pairs) ? SYMM_OK : symm__program_nomem(program);
}
