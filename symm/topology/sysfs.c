/* SPDX-License-Identifier: MIT */
/*
 * sysfs.c - the machine as the kernel's /sys describes it, where there is no hwloc.
 *
 * Reads the online CPUs, their packages, cores, caches (levels 1 to 4, not those for
 * instructions alone) and NUMA nodes. What a file doesn't say is left out: a system
 * that describes nothing but its CPUs gives a machine of cores with one PU each.
 *
 * The tree: NUMA nodes first, under their package, or under the machine if they have no
 * CPUs; then cores in the order of node, caches and number, so that neighbours in the
 * tree are neighbours in the machine.
 */
#include "topology/topology.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/status.h"
#include "util/text.h"

enum { LEVELS = 5, MAX_CPUS = 1 << 20 }; /* caches of level 1..4 */

struct cpu {
    unsigned number;
    unsigned package;
    int node;               /* -1: not known */
    unsigned cache[LEVELS]; /* lowest CPU that shares it; 0 where there is none */
    uint64_t bytes[LEVELS]; /* 0: there is none */
    unsigned core;          /* lowest CPU of its core */
};

/* ---- Lists ----------------------------------------------------------------------- */

/* The number at *text; moves after it. */
static bool take_number(const char **text, unsigned *value)
{
    char *end;

    if (!isdigit((unsigned char)**text))
        return false;
    unsigned long number = strtoul(*text, &end, 10);
    if (number >= MAX_CPUS)
        return false;
    *text = end;
    *value = (unsigned)number;
    return true;
}

bool symm__sys_range(const char **text, unsigned *first, unsigned *last)
{
    if (**text == ',')
        (*text)++;
    if (!take_number(text, first))
        return false;
    *last = *first;
    if (**text == '-') {
        (*text)++;
        return take_number(text, last) && *last >= *first;
    }
    return true;
}

static unsigned lowest(const char *list, unsigned fallback)
{
    unsigned first, last;

    return symm__sys_range(&list, &first, &last) ? first : fallback;
}

/* "32768K", "1M" */
static uint64_t parse_cache_size(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (value > UINT64_MAX >> 30)
        return 0;
    if (*end == 'K')
        value <<= 10;
    else if (*end == 'M')
        value <<= 20;
    else if (*end == 'G')
        value <<= 30;
    return value;
}

/* ---- CPUs ------------------------------------------------------------------------ */

static void read_caches(struct cpu *cpu, const char *sys, char *text, size_t bytes)
{
    for (int index = 0; index < 16; index++) {
        char folder[256];
        int length = snprintf(folder, sizeof(folder),
                              "%s/devices/system/cpu/cpu%u/cache/index%d", sys,
                              cpu->number, index);
        if (length < 0 || (size_t)length >= sizeof(folder) ||
            symm__read_text(text, bytes, "%s/level", folder) <= 0)
            return;
        long level = strtol(text, NULL, 10);
        if (level < 1 || level >= LEVELS)
            continue;
        if (symm__read_text(text, bytes, "%s/type", folder) > 0 &&
            strncmp(text, "Instruction", strlen("Instruction")) == 0)
            continue;
        if (symm__read_text(text, bytes, "%s/size", folder) <= 0)
            continue;
        cpu->bytes[level] = parse_cache_size(text);
        cpu->cache[level] = cpu->number;
        if (symm__read_text(text, bytes, "%s/shared_cpu_list", folder) > 0)
            cpu->cache[level] = lowest(text, cpu->number);
    }
}

static void read_cpu(struct cpu *cpu, unsigned number, const char *sys, char *text,
                     size_t bytes)
{
    *cpu = (struct cpu){.number = number, .node = -1, .core = number};
    /* Some machines say -1, which is one package. */
    if (symm__read_text(text, bytes,
                        "%s/devices/system/cpu/cpu%u/topology/physical_package_id", sys,
                        number) > 0)
        cpu->package = lowest(text, 0);
    if (symm__read_text(text, bytes,
                        "%s/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                        sys, number) > 0)
        cpu->core = lowest(text, number);
    read_caches(cpu, sys, text, bytes);
}

static int compare_cpus(const void *a, const void *b)
{
    const struct cpu *left = a, *right = b;

    if (left->package != right->package)
        return left->package < right->package ? -1 : 1;
    if (left->node != right->node)
        return left->node < right->node ? -1 : 1;
    for (int level = LEVELS - 1; level > 0; level--) {
        if (left->cache[level] != right->cache[level])
            return left->cache[level] < right->cache[level] ? -1 : 1;
    }
    if (left->core != right->core)
        return left->core < right->core ? -1 : 1;
    return (left->number > right->number) - (left->number < right->number);
}

/* ---- The whole ------------------------------------------------------------------- */

struct node {
    unsigned number;
    uint64_t bytes;
    bool has_cpus, placed;
};

struct machine {
    struct cpu *cpus; /* owned */
    size_t count;
    struct node *nodes; /* owned */
    size_t node_count;
};

static symm_status read_cpus(struct machine *machine, const char *sys, char *text,
                             size_t bytes)
{
    unsigned first, last;
    size_t count = 0;

    if (symm__read_text(text, bytes, "%s/devices/system/cpu/online", sys) <= 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "topology: can't read %s/devices/system/cpu/online",
                                sys);
    for (const char *list = text; symm__sys_range(&list, &first, &last);)
        count += last - first + 1;
    if (count == 0 || count > MAX_CPUS)
        return symm__fail(SYMM_ERR_SYSTEM,
                          "topology: %s/devices/system/cpu/online names no CPUs", sys);
    machine->cpus = calloc(count, sizeof(*machine->cpus));
    char *online = strdup(text);
    if (machine->cpus == NULL || online == NULL) {
        free(online);
        return symm__fail(SYMM_ERR_NOMEM, "topology: no memory for %zu CPUs", count);
    }
    for (const char *list = online; symm__sys_range(&list, &first, &last);) {
        for (unsigned number = first; number <= last && machine->count < count;
             number++)
            read_cpu(&machine->cpus[machine->count++], number, sys, text, bytes);
    }
    free(online);
    return SYMM_OK;
}

static void read_node(struct machine *machine, struct node *node, const char *sys,
                      char *text, size_t bytes)
{
    unsigned first, last;

    if (symm__read_text(text, bytes, "%s/devices/system/node/node%u/meminfo", sys,
                        node->number) > 0) {
        const char *total = strstr(text, "MemTotal:");
        if (total != NULL)
            node->bytes = strtoull(total + strlen("MemTotal:"), NULL, 10) << 10;
    }
    if (symm__read_text(text, bytes, "%s/devices/system/node/node%u/cpulist", sys,
                        node->number) <= 0)
        return;
    for (const char *list = text; symm__sys_range(&list, &first, &last);) {
        for (size_t i = 0; i < machine->count; i++) {
            if (machine->cpus[i].number >= first && machine->cpus[i].number <= last) {
                machine->cpus[i].node = (int)node->number;
                node->has_cpus = true;
            }
        }
    }
}

/* A kernel without NUMA has no such files: then there are no nodes. */
static symm_status read_nodes(struct machine *machine, const char *sys, char *text,
                              size_t bytes)
{
    unsigned first, last;
    size_t count = 0;

    if (symm__read_text(text, bytes, "%s/devices/system/node/online", sys) <= 0)
        return SYMM_OK;
    for (const char *list = text; symm__sys_range(&list, &first, &last);)
        count += last - first + 1;
    if (count == 0 || count > MAX_CPUS)
        return SYMM_OK;
    machine->nodes = calloc(count, sizeof(*machine->nodes));
    if (machine->nodes == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "topology: no memory for %zu NUMA nodes",
                          count);
    for (const char *list = text; symm__sys_range(&list, &first, &last);) {
        for (unsigned number = first; number <= last && machine->node_count < count;
             number++)
            machine->nodes[machine->node_count++].number = number;
    }
    for (size_t i = 0; i < machine->node_count; i++)
        read_node(machine, &machine->nodes[i], sys, text, bytes);
    return SYMM_OK;
}

/* ---- The tree -------------------------------------------------------------------- */

struct builder {
    struct symm_topology *topology;
    symm_status status;
    unsigned packages, nodes, caches[LEVELS], cores, pus; /* so far */
};

static void add(struct builder *b, struct symm_topology_object place)
{
    if (b->status == SYMM_OK)
        b->status = symm__topology_add(b->topology, &place);
}

static void add_node(struct builder *b, struct node *node, int depth)
{
    node->placed = true;
    add(b, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_NODE,
                                         .depth = depth,
                                         .index = b->nodes++,
                                         .os_index = node->number,
                                         .node = -1,
                                         .bytes = node->bytes});
}

/* A package and the nodes that its CPUs (from cpu on) belong to. */
static void add_package(struct builder *b, const struct machine *machine, size_t cpu)
{
    unsigned package = machine->cpus[cpu].package;

    add(b, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_PACKAGE,
                                         .depth = 1,
                                         .index = b->packages++,
                                         .os_index = package,
                                         .node = -1});
    for (; cpu < machine->count && machine->cpus[cpu].package == package; cpu++) {
        for (size_t n = 0; n < machine->node_count; n++) {
            struct node *node = &machine->nodes[n];
            if (!node->placed && (int)node->number == machine->cpus[cpu].node)
                add_node(b, node, 2);
        }
    }
}

/* Opens what CPU i begins (package, caches, core), then adds its PU. */
static void add_cpu(struct builder *b, const struct machine *machine, size_t i)
{
    const struct cpu *cpu = &machine->cpus[i], *before = i > 0 ? cpu - 1 : NULL;
    bool fresh = before == NULL || before->package != cpu->package;
    int depth = 2;

    if (fresh)
        add_package(b, machine, i);
    for (unsigned level = LEVELS - 1; level > 0; level--) {
        if (cpu->bytes[level] == 0)
            continue;
        /* A cache that is new brings new ones below it. */
        fresh = fresh || before->bytes[level] == 0 ||
                before->cache[level] != cpu->cache[level];
        if (fresh)
            add(b, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_CACHE,
                                                 .depth = depth,
                                                 .index = b->caches[level]++,
                                                 .level = level,
                                                 .node = -1,
                                                 .bytes = cpu->bytes[level]});
        depth++;
    }
    if (fresh || before->core != cpu->core)
        add(b, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_CORE,
                                             .depth = depth,
                                             .index = b->cores++,
                                             .node = -1});
    add(b, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_PU,
                                         .depth = depth + 1,
                                         .index = b->pus++,
                                         .os_index = cpu->number,
                                         .node = cpu->node});
}

static symm_status build(struct symm_topology *topology, struct machine *machine)
{
    struct builder b = {.topology = topology, .status = SYMM_OK};
    uint64_t bytes = 0;

    for (size_t n = 0; n < machine->node_count; n++)
        bytes += machine->nodes[n].bytes;
    if (bytes == 0) {
        long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    }
    add(&b, (struct symm_topology_object){
                .kind = SYMM_TOPOLOGY_MACHINE, .node = -1, .bytes = bytes});
    for (size_t n = 0; n < machine->node_count; n++) {
        if (!machine->nodes[n].has_cpus)
            add_node(&b, &machine->nodes[n], 1);
    }
    qsort(machine->cpus, machine->count, sizeof(*machine->cpus), compare_cpus);
    for (size_t i = 0; i < machine->count; i++)
        add_cpu(&b, machine, i);
    return b.status;
}

symm_status symm__topology_read_sys(struct symm_topology *topology, const char *sys)
{
    enum { TEXT_BYTES = 16384 }; /* CPU lists of large machines are long */
    struct symm_topology read = {.source = "/sys", .own = true};
    struct machine machine = {0};
    char *text = malloc(TEXT_BYTES);

    if (text == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "topology: no memory for %d bytes of text",
                          TEXT_BYTES);
    symm_status status = read_cpus(&machine, sys, text, TEXT_BYTES);
    if (status == SYMM_OK)
        status = read_nodes(&machine, sys, text, TEXT_BYTES);
    if (status == SYMM_OK)
        status = build(&read, &machine);
    if (status == SYMM_OK)
        *topology = read;
    else
        symm__topology_finish(&read);
    free(machine.cpus);
    free(machine.nodes);
    free(text);
    return status;
}
