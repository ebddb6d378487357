/* SPDX-License-Identifier: MIT */
/*
 * certificate.c - the proof that a plan carries. It names each pair of buffers that follow
 * one another in some address. For each chain on which the first is touched it has a moment
 * after the last access there and before the first write of the second.
 *
 * Moments and chains are explained in docs/planner.md, and recomputed by the checker.
 */
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/program_private.h"

struct certifier {
    struct pool room;
    struct plan_private *plan;
    const struct lifetimes *lives;
    int *number; /* by chain of the order: its number in the plan, or -1 */
};

static const char *const words[] = {[ACTOR_OWNER] = "owner",
                                    [ACTOR_PARTITION] = "group",
                                    [ACTOR_ROOT_PARTITION] = "readers",
                                    [ACTOR_ROOT] = "root",
                                    [ACTOR_SENDER] = "sender"};

/* The number of a chain; it is described in the plan when it is first named. */
static int name_chain(struct certifier *certifier, int index)
{
    const struct order *order = certifier->lives->order;
    const symm_program *program = order->program;
    const struct chain *chain = &order->chains[index];
    const struct relation *relation = &order->pairs.relations[chain->relation];
    symm_plan *plan = &certifier->plan->plan;
    symm_plan_chain *made;
    int stream = 0;

    if (certifier->number[index] >= 0)
        return certifier->number[index];
    while (order->streams_used[stream] != chain->lane / order->halves)
        stream++;
    certifier->number[index] = plan->chain_count;
    made = &plan->chains[plan->chain_count++];
    *made = (symm_plan_chain){
        .by = symm__pool_copy(&certifier->plan->pool, words[relation->who]),
        .stream = symm__pool_copy(&certifier->plan->pool, program->streams[stream]),
        .half = chain->lane % order->halves};
    if (relation->who != ACTOR_OWNER)
        made->partition = symm__pool_copy(
            &certifier->plan->pool, program->partitions[relation->partition].name);
    if (relation->who == ACTOR_SENDER)
        made->shift = relation->parameter;
    else
        made->root = relation->parameter;
    return certifier->number[index];
}

static bool prove_pair(struct certifier *certifier, const struct adjacent *pair,
                       symm_plan_entry *entry)
{
    const struct lifetimes *lives = certifier->lives;
    const struct last *last = lives->last + lives->last_start[pair->before];
    const int count =
        lives->last_start[pair->before + 1] - lives->last_start[pair->before];
    const uint32_t *clock =
        symm__order_first(lives->order, pair->after, pair->next_period);
    symm_plan_witness *witness =
        symm__pool_alloc(&certifier->plan->pool, (size_t)count + 1, sizeof(*witness));

    for (int i = 0; i < count && witness; i++)
        witness[i] = (symm_plan_witness){name_chain(certifier, last[i].chain),
                                         clock[last[i].chain]};
    *entry = (symm_plan_entry){.before = pair->before,
                               .after = pair->after,
                               .next_period = pair->next_period,
                               .witness = witness,
                               .witness_count = count};
    return witness != NULL;
}

/* pairs are sorted by `after`. */
static bool name_predecessors(struct certifier *certifier, const struct adjacent *pairs,
                              size_t count)
{
    symm_plan *plan = &certifier->plan->plan;
    int *all = symm__pool_alloc(&certifier->plan->pool, count + 1, sizeof(*all));

    for (size_t i = 0; i < count && all; i++) {
        symm_plan_buffer *buffer = &plan->buffers[pairs[i].after];
        all[i] = pairs[i].before;
        if (buffer->after_count++ == 0)
            buffer->after = &all[i];
    }
    return all != NULL;
}

static bool certify(struct certifier *certifier, const struct adjacent *pairs,
                    size_t count)
{
    symm_plan *plan = &certifier->plan->plan;
    const size_t chains = (size_t)certifier->lives->order->chain_count + 1;
    bool good;

    plan->chains =
        symm__pool_alloc(&certifier->plan->pool, chains, sizeof(*plan->chains));
    plan->certificate = calloc(count + 1, sizeof(*plan->certificate));
    good =
        plan->chains && plan->certificate && name_predecessors(certifier, pairs, count);
    for (size_t i = 0; i < count && good; i++) {
        good = prove_pair(certifier, &pairs[i],
                          &plan->certificate[plan->certificate_count]);
        plan->certificate_count += good;
    }
    return good && !certifier->plan->pool.failed;
}

static bool list_antichain(struct certifier *certifier)
{
    const struct lifetimes *lives = certifier->lives;
    symm_plan *plan = &certifier->plan->plan;
    bool *chosen =
        symm__pool_alloc(&certifier->room, (size_t)lives->count + 1, sizeof(*chosen));
    int *list = symm__pool_alloc(&certifier->plan->pool,
                                 (size_t)lives->clique_count + 1, sizeof(*list));

    if (!chosen || !list)
        return false;
    for (int i = 0; i < lives->clique_count; i++)
        chosen[lives->clique[i]] = true;
    for (int b = 0; b < lives->count; b++)
        if (chosen[b])
            list[plan->antichain_count++] = b;
    plan->antichain = list;
    return true;
}

symm_status symm__plan_certify(struct plan_private *plan, const struct lifetimes *lives,
                               const int64_t *offsets)
{
    struct certifier certifier = {.plan = plan, .lives = lives};
    const size_t chains = (size_t)lives->order->chain_count + 1;
    struct adjacent *pairs = NULL;
    size_t count = 0;
    bool good;

    certifier.number = symm__pool_alloc(&certifier.room, chains, sizeof(int));
    if (certifier.number)
        pairs = symm__plan_pairs(lives, offsets, NULL, &count);
    if (pairs)
        memset(certifier.number, 0xff, chains * sizeof(int));
    good = pairs && certify(&certifier, pairs, count) && list_antichain(&certifier);
    free(pairs);
    symm__pool_free(&certifier.room);
    return good ? SYMM_OK : symm__program_nomem(lives->order->program);
}
