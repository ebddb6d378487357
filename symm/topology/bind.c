/* SPDX-License-Identifier: MIT */
/*
 * bind.c - each rank's share of the cores, and binding to it.
 *
 * Words: a place is an entry of the topology's tree, topology->places[i] (topology.h). A PU
 * is a place that runs one hardware thread; the kernel calls it a CPU.
 *
 * The cores near a GPU form a group, and the cores near no GPU form group 0. Groups that
 * overlap are merged. A GPU that is near all cores gets no group. A rank joins its GPU's group
 * while that group has a core for it. The other ranks (no GPU, a GPU without a group, a full
 * group) join the group with the most cores for each rank. The ranks of a group split its
 * cores evenly, in the order of the tree. Without GPUs, group 0 holds all cores.
 *
 * Guarantees: symm_bind_self adds no CPU to the process's affinity. Ranks of one host with
 * equal affinity get disjoint cores; with fewer cores than ranks, neighbouring ranks share a
 * core. The memory policy stays: a page is allocated on the node that first touches it.
 */
#include "topology/bind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "symm/tools.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#define LOCAL_MOST                                                                     \
    (1 << 20) /* ranks of a host; the time to share cores grows with them */

/* ---- Groups ---------------------------------------------------------------------- */

/* Group 0 is near no GPU; group g is near GPU g - 1 and the GPUs merged with it. */
struct groups {
    const struct symm_topology *topology;
    size_t cores, gpus, ranks, count; /* count: of groups, also empty ones */
    size_t *place;                    /* [cores] index in topology->places */
    size_t *core_group;               /* [cores] */
    size_t *gpu_group;                /* [gpus]; 0: has no group */
    size_t *rank_group;               /* [ranks] */
    size_t *core_count, *rank_count;  /* [count] */
    size_t *memory;                   /* of all these arrays; owned */
};

static symm_status groups_create(struct groups *g, const struct symm_topology *topology,
                                 const struct symm_gpus *gpus, size_t ranks)
{
    size_t cores = symm__topology_count(topology, SYMM_TOPOLOGY_CORE, true);
    size_t used = gpus == NULL ? 0 : gpus->count < ranks ? gpus->count : ranks;
    size_t need = 2 * cores + used + ranks + 2 * (used + 1), next = 0;

    *g = (struct groups){.topology = topology, .cores = cores, .gpus = used};
    g->ranks = ranks;
    g->count = used + 1;
    g->memory = calloc(need, sizeof(*g->memory));
    if (g->memory == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "bind: no memory for %zu ranks", ranks);
    g->place = g->memory;
    g->core_group = g->place + cores;
    g->gpu_group = g->core_group + cores;
    g->rank_group = g->gpu_group + used;
    g->core_count = g->rank_group + ranks;
    g->rank_count = g->core_count + g->count;
    for (size_t i = 0; i < topology->count; i++)
        if (topology->places[i].kind == SYMM_TOPOLOGY_CORE &&
            topology->places[i].allowed)
            g->place[next++] = i;
    return SYMM_OK;
}

/* Whether a PU of the core is in `near`. */
static bool is_near(const struct groups *g, size_t core, const struct symm_cpus *near)
{
    const struct symm_topology *t = g->topology;
    size_t at = g->place[core];

    for (size_t i = at + 1; i < t->count && t->places[i].depth > t->places[at].depth;
         i++)
        if (t->places[i].kind == SYMM_TOPOLOGY_PU &&
            CPU_ISSET_S(t->places[i].os_index, near->bytes, near->set))
            return true;
    return false;
}

static void merge(struct groups *g, size_t from, size_t to)
{
    for (size_t core = 0; core < g->cores; core++)
        if (g->core_group[core] == from)
            g->core_group[core] = to;
    for (size_t gpu = 0; gpu < g->gpus; gpu++)
        if (g->gpu_group[gpu] == from)
            g->gpu_group[gpu] = to;
}

static void group_gpu(struct groups *g, size_t gpu, const struct symm_cpus *near)
{
    size_t group = gpu + 1, count = 0;

    for (size_t core = 0; core < g->cores; core++)
        count += is_near(g, core, near);
    if (count == 0 || count == g->cores)
        return;
    for (size_t core = 0; core < g->cores; core++) {
        size_t before = g->core_group[core];
        if (!is_near(g, core, near))
            continue;
        g->core_group[core] = group;
        if (before != 0 && before != group)
            merge(g, before, group);
    }
    g->gpu_group[gpu] = group;
}

/* The group with the most cores for each of its ranks, counting one rank more in each. */
static size_t roomiest(const struct groups *g)
{
    size_t best = 0;

    for (size_t i = 1; i < g->count; i++)
        if (g->core_count[i] * (g->rank_count[best] + 1) >
            g->core_count[best] * (g->rank_count[i] + 1))
            best = i;
    return best;
}

static void place_ranks(struct groups *g)
{
    /* Ranks for each core, rounded up: 1 unless there are fewer cores than ranks. */
    size_t sharing = (g->ranks + g->cores - 1) / g->cores;

    for (size_t core = 0; core < g->cores; core++)
        g->core_count[g->core_group[core]]++;
    for (size_t rank = 0; rank < g->ranks; rank++) {
        size_t group = g->gpus > 0 ? g->gpu_group[rank % g->gpus] : 0;
        if (group > 0 && g->rank_count[group] < sharing * g->core_count[group])
            g->rank_count[group]++;
        else
            group = g->count; /* the next loop finds its group */
        g->rank_group[rank] = group;
    }
    for (size_t rank = 0; rank < g->ranks; rank++) {
        if (g->rank_group[rank] == g->count) {
            g->rank_group[rank] = roomiest(g);
            g->rank_count[g->rank_group[rank]]++;
        }
    }
}

/* ---- A share --------------------------------------------------------------------- */

static int compare_unsigned(const void *a, const void *b)
{
    unsigned left = *(const unsigned *)a, right = *(const unsigned *)b;

    return (left > right) - (left < right);
}

/* Appends "name 3" or "names 0-3,8" to text; sorts values. */
static void append_list(char *text, size_t bytes, const char *name, unsigned *values,
                        size_t count)
{
    size_t unique = 0;

    qsort(values, count, sizeof(*values), compare_unsigned);
    for (size_t i = 0; i < count; i++) {
        if (unique == 0 || values[i] != values[unique - 1])
            values[unique++] = values[i];
    }
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", name,
                             unique > 1 ? "s" : "");
    for (size_t i = 0; i < unique && used < bytes;) {
        size_t last = i;
        while (last + 1 < unique && values[last + 1] == values[last] + 1)
            last++;
        used += (size_t)snprintf(text + used, bytes - used, i == 0 ? " %u" : ",%u",
                                 values[i]);
        if (last > i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "-%u", values[last]);
        i = last + 1;
    }
}

/* The lists of a share; each has room for an entry of every place. */
struct gathered {
    unsigned *core_index;            /* in tree order */
    unsigned *node_index, *pu_index; /* the kernel's numbers */
    size_t core_count, node_count, pu_count;
    unsigned pu_max;
};

static void gather_core(const struct symm_topology *topology, size_t at,
                        struct gathered *out)
{
    const struct symm_topology_object *core = &topology->places[at];

    out->core_index[out->core_count++] = core->index;
    for (size_t i = at + 1;
         i < topology->count && topology->places[i].depth > core->depth; i++) {
        const struct symm_topology_object *place = &topology->places[i];
        if (place->kind != SYMM_TOPOLOGY_PU || !place->allowed)
            continue;
        out->pu_index[out->pu_count++] = place->os_index;
        if (place->os_index > out->pu_max)
            out->pu_max = place->os_index;
        if (place->node >= 0)
            out->node_index[out->node_count++] = (unsigned)place->node;
    }
}

/* Adds the cores that the rank gets of its group. */
static void gather(const struct groups *g, size_t rank, struct gathered *out)
{
    size_t group = g->rank_group[rank], index = 0, core_index = 0;

    for (size_t before = 0; before < rank; before++)
        index += g->rank_group[before] == group;
    size_t cores = g->core_count[group], ranks = g->rank_count[group];
    size_t first = index * cores / ranks, last = (index + 1) * cores / ranks;
    if (last == first) /* more ranks than cores: neighbours share a core */
        last = first + 1;
    for (size_t core = 0; core < g->cores; core++) {
        if (g->core_group[core] != group)
            continue;
        if (core_index >= first && core_index < last)
            gather_core(g->topology, g->place[core], out);
        core_index++;
    }
}

/* Writes share->where, of which text that is too long is cut; sorts the lists. */
static void describe_share(struct gathered *gathered, struct symm_share *share)
{
    char *text = share->where;
    const size_t bytes = sizeof(share->where);

    append_list(text, bytes, "core", gathered->core_index, gathered->core_count);
    size_t used = strlen(text);
    if (gathered->node_count > 0 && used + 2 < bytes) {
        memcpy(text + used, ", ", 3);
        append_list(text, bytes, "NUMA node", gathered->node_index,
                    gathered->node_count);
    }
    used = strlen(text);
    if (share->gpu != NULL)
        snprintf(text + used, bytes - used, ", near GPU %s", share->gpu->bus);
}

/* Sets share->cpus and share->where. The rest of `share` must be zero but for gpu and far, which
 * name_gpu has set. */
static symm_status fill_share(const struct groups *g, size_t rank,
                              struct symm_share *share)
{
    size_t places = g->topology->count;
    struct gathered gathered = {0};
    unsigned *values = calloc(places, 3 * sizeof(*values)); /* for three lists */

    if (values == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "bind: no memory for %zu places", places);
    gathered.core_index = values;
    gathered.node_index = values + places;
    gathered.pu_index = values + 2 * places;
    gather(g, rank, &gathered);
    /* An allowed core has an allowed PU, so the set is not empty. */
    symm_status status = symm__cpus_create(&share->cpus, (size_t)gathered.pu_max + 1);
    if (status == SYMM_OK) {
        for (size_t i = 0; i < gathered.pu_count; i++)
            CPU_SET_S(gathered.pu_index[i], share->cpus.bytes, share->cpus.set);
        describe_share(&gathered, share);
    }
    free(values);
    return status;
}

/* Sets share->gpu if the rank is in its GPU's group. Sets share->far if it is not because that
 * group is full, or because none of the allowed cores is near the GPU. */
static void name_gpu(const struct groups *g, const struct symm_gpus *gpus, size_t rank,
                     struct symm_share *share)
{
    size_t index = g->gpus > 0 ? rank % g->gpus : 0;
    const struct symm_gpu *gpu = g->gpus > 0 ? &gpus->gpu[index] : NULL;
    bool any = false;

    if (gpu == NULL || gpu->near.set == NULL)
        return;
    for (size_t core = 0; core < g->cores; core++)
        any = any || is_near(g, core, &gpu->near);
    if (g->gpu_group[index] != 0 && g->gpu_group[index] == g->rank_group[rank])
        share->gpu = gpu;
    else if (g->gpu_group[index] != 0 || !any)
        share->far = gpu;
}

symm_status symm__bind_share(const struct symm_topology *topology,
                             const struct symm_gpus *gpus, int rank, int size,
                             struct symm_share *share)
{
    struct symm_share made = {0};
    struct groups g;

    if (size < 1 || size > LOCAL_MOST || rank < 0 || rank >= size)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_bind_self: no local rank %d among %d; ranks count from "
                          "0, and a host has up to %d",
                          rank, size, LOCAL_MOST);
    if (symm__topology_count(topology, SYMM_TOPOLOGY_CORE, true) == 0)
        return symm__fail(SYMM_ERR_SYSTEM,
                          "bind: none of the CPUs that local rank %d may run on is "
                          "known to %s",
                          rank, topology->source);
    symm_status status = groups_create(&g, topology, gpus, (size_t)size);
    if (status != SYMM_OK)
        return status;
    for (size_t i = 0; i < g.gpus; i++)
        if (gpus->gpu[i].near.set != NULL)
            group_gpu(&g, i, &gpus->gpu[i].near);
    place_ranks(&g);
    name_gpu(&g, gpus, (size_t)rank, &made);
    status = fill_share(&g, (size_t)rank, &made);
    free(g.memory);
    if (status == SYMM_OK)
        *share = made;
    return status;
}

/* ---- The public call ------------------------------------------------------------- */

/* Reads the machine that this process runs on, and marks the process's affinity in it. */
static symm_status read_machine(struct symm_topology *topology, const char *root)
{
    struct symm_cpus allowed = {0};
    char sys[256] = "/sys";
    symm_status status;

    if (root[0] == '\0') {
        status = symm__topology_read(topology);
        if (status != SYMM_OK || topology->own)
            return status;
        /* A described machine's CPU numbers mean nothing here. */
        symm__topology_finish(topology);
    } else {
        snprintf(sys, sizeof(sys), "%s/sys", root);
    }
    status = symm__topology_read_sys(topology, sys);
    if (status == SYMM_OK)
        status = symm__cpus_read(&allowed);
    if (status == SYMM_OK)
        symm__topology_mark(topology, &allowed);
    symm__cpus_finish(&allowed);
    return status;
}

/* Lists GPUs only if the ranks will use them. As in symm_init, SYMM_BACKEND decides; without it,
 * they do if there is a GPU for each rank of the host. */
static symm_status read_gpus(struct symm_gpus *gpus, const char *root, int size)
{
    const char *backend = symm__option(SYMM_OPTION_BACKEND);

    if (backend != NULL && strcmp(backend, "host") == 0)
        return SYMM_OK;
    symm_status status = symm__gpus_read(gpus, root);
    if (status == SYMM_OK && backend == NULL && gpus->count < (size_t)size)
        symm__gpus_finish(gpus);
    return status;
}

symm_status symm__bind_self(const char *root, int rank, int size, char *where,
                            size_t where_bytes)
{
    struct symm_topology topology = {0};
    struct symm_share share = {0};
    struct symm_gpus *gpus = calloc(1, sizeof(*gpus));

    if (gpus == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "bind: no memory for the list of GPUs");
    symm_status status = read_machine(&topology, root);
    if (status == SYMM_OK)
        status = read_gpus(gpus, root, size);
    if (status == SYMM_OK)
        status = symm__bind_share(&topology, gpus, rank, size, &share);
    if (status == SYMM_OK &&
        sched_setaffinity(0, share.cpus.bytes, share.cpus.set) != 0)
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                  "bind: sched_setaffinity of local rank %d to %s",
                                  rank, share.where);
    if (status == SYMM_OK && share.far != NULL)
        symm__log(SYMM_LOG_WARN,
                  "bind: no core near GPU %s is left for local rank %d among those it "
                  "may use; it is bound to %s",
                  share.far->bus, rank, share.where);
    if (status == SYMM_OK && where != NULL && where_bytes > 0)
        snprintf(where, where_bytes, "%s", share.where);
    symm__cpus_finish(&share.cpus);
    symm__gpus_finish(gpus);
    symm__topology_finish(&topology);
    free(gpus);
    return status;
}

symm_status symm_bind_self(int local_rank, int local_size, char *where,
                           size_t where_bytes)
{
    return symm__bind_self("", local_rank, local_size, where, where_bytes);
}
