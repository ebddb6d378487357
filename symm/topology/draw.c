/* SPDX-License-Identifier: MIT */
/*
 * draw.c - the machine as a text tree for people and as JSON for programs.
 *
 * A place with a single cache or core below it shares its line with that ("L2 1 MiB, L1
 * 48 KiB, core 0"), and a core's line ends in its PUs, so that a line is a core. PUs
 * that the process may run on carry a star.
 */
#include <inttypes.h>

#include "topology/topology.h"
#include "util/emit.h"

/* "48 KiB", "1.5 GiB"; one decimal where it is not whole. */
static void print_size(FILE *file, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    uint64_t scale = 1;

    while (unit + 1 < sizeof(units) / sizeof(units[0]) && bytes / scale >= 1024) {
        scale *= 1024;
        unit++;
    }
    if (bytes % scale == 0)
        fprintf(file, "%" PRIu64 " %s", bytes / scale, units[unit]);
    else
        fprintf(file, "%.1f %s", (double)bytes / (double)scale, units[unit]);
}

/* The index after the last place below i. */
static size_t end_of(const struct symm_topology *topology, size_t i)
{
    size_t end = i + 1;

    while (end < topology->count &&
           topology->places[end].depth > topology->places[i].depth)
        end++;
    return end;
}

static void print_name(const struct symm_topology_object *place, FILE *file)
{
    switch (place->kind) {
    case SYMM_TOPOLOGY_MACHINE:
        fprintf(file, "Machine");
        break;
    case SYMM_TOPOLOGY_PACKAGE:
        fprintf(file, "Package %u", place->index);
        break;
    case SYMM_TOPOLOGY_DIE:
        fprintf(file, "Die %u", place->index);
        break;
    case SYMM_TOPOLOGY_GROUP:
        fprintf(file, "Group %u", place->index);
        break;
    case SYMM_TOPOLOGY_NODE:
        fprintf(file, "NUMA node %u", place->os_index);
        break;
    case SYMM_TOPOLOGY_CACHE:
        fprintf(file, "L%u", place->level);
        break;
    case SYMM_TOPOLOGY_CORE:
        fprintf(file, "core %u", place->index);
        break;
    case SYMM_TOPOLOGY_PU:
        fprintf(file, "PU %u", place->os_index);
        break;
    }
    if (place->bytes > 0) {
        fprintf(file, "%s", place->kind == SYMM_TOPOLOGY_CACHE ? " " : ", ");
        print_size(file, place->bytes);
    }
}

/* One line, beginning with place i; returns the place whose children follow. */
static size_t print_line(const struct symm_topology *topology, size_t i, FILE *file)
{
    print_name(&topology->places[i], file);
    for (;;) {
        size_t child = i + 1, end = end_of(topology, i);
        if (topology->places[i].kind == SYMM_TOPOLOGY_CORE || child == end ||
            end_of(topology, child) != end ||
            (topology->places[child].kind != SYMM_TOPOLOGY_CACHE &&
             topology->places[child].kind != SYMM_TOPOLOGY_CORE))
            break;
        i = child;
        fprintf(file, ", ");
        print_name(&topology->places[i], file);
    }
    if (topology->places[i].kind == SYMM_TOPOLOGY_CORE) {
        const char *before = ": PU ";
        for (size_t pu = i + 1; pu < end_of(topology, i); pu++) {
            if (topology->places[pu].kind != SYMM_TOPOLOGY_PU)
                continue;
            fprintf(file, "%s%u%s", before, topology->places[pu].os_index,
                    topology->places[pu].allowed ? "*" : "");
            before = " ";
        }
    }
    fprintf(file, "\n");
    return i;
}

/* What lies below place i; bit d of `open`: the column of depth d goes on downwards. */
static void print_below(const struct symm_topology *topology, size_t i, int columns,
                        uint64_t open, FILE *file)
{
    size_t end = end_of(topology, i);

    for (size_t child = i + 1; child < end;) {
        size_t next = end_of(topology, child);
        bool last = next >= end;
        for (int c = 0; c < columns; c++)
            fprintf(file, "%s", open >> c & 1 ? "|   " : "    ");
        fprintf(file, "%s", last ? "`-- " : "|-- ");
        size_t shown = print_line(topology, child, file);
        if (topology->places[shown].kind != SYMM_TOPOLOGY_CORE)
            print_below(topology, shown, columns + 1,
                        open | (last ? 0 : UINT64_C(1) << columns), file);
        child = next;
    }
}

static void print_count(FILE *file, const char *before, size_t count, const char *name)
{
    fprintf(file, "%s%zu %s%s", before, count, name, count == 1 ? "" : "s");
}

void symm__topology_draw_text(const struct symm_topology *topology, FILE *file)
{
    size_t allowed = symm__topology_count(topology, SYMM_TOPOLOGY_PU, true);

    print_name(&topology->places[0], file);
    print_count(file, ": ",
                symm__topology_count(topology, SYMM_TOPOLOGY_PACKAGE, false),
                "package");
    print_count(file, ", ", symm__topology_count(topology, SYMM_TOPOLOGY_NODE, false),
                "NUMA node");
    print_count(file, ", ", symm__topology_count(topology, SYMM_TOPOLOGY_CORE, false),
                "core");
    print_count(file, ", ", symm__topology_count(topology, SYMM_TOPOLOGY_PU, false),
                "PU");
    print_count(file, "; ", allowed, "PU");
    fprintf(file, " allowed (*); from %s%s\n", topology->source,
            topology->own ? "" : ", another machine's description");
    print_below(topology, 0, 0, 0, file);
}

/* ---- JSON ------------------------------------------------------------------------ */

static const char *kind_name(enum symm_topology_kind kind)
{
    static const char *const names[] = {
        [SYMM_TOPOLOGY_MACHINE] = "machine", [SYMM_TOPOLOGY_PACKAGE] = "package",
        [SYMM_TOPOLOGY_DIE] = "die",         [SYMM_TOPOLOGY_GROUP] = "group",
        [SYMM_TOPOLOGY_NODE] = "numa_node",  [SYMM_TOPOLOGY_CACHE] = "cache",
        [SYMM_TOPOLOGY_CORE] = "core",       [SYMM_TOPOLOGY_PU] = "pu",
    };
    return names[kind];
}

static void emit_place(struct symm_emit *emit, const struct symm_topology_object *place)
{
    symm__emit_key_string(emit, "type", kind_name(place->kind));
    symm__emit_key_unsigned(emit, "index", place->index);
    if (place->kind == SYMM_TOPOLOGY_NODE || place->kind == SYMM_TOPOLOGY_PU)
        symm__emit_key_unsigned(emit, "os_index", place->os_index);
    if (place->kind == SYMM_TOPOLOGY_CACHE)
        symm__emit_key_unsigned(emit, "level", place->level);
    if (place->kind == SYMM_TOPOLOGY_PU && place->node >= 0)
        symm__emit_key_unsigned(emit, "numa_node", (uint64_t)place->node);
    if (place->bytes > 0)
        symm__emit_key_unsigned(emit, "bytes", place->bytes);
    symm__emit_key_bool(emit, "allowed", place->allowed);
}

static void emit_tree(struct symm_emit *emit, const struct symm_topology *topology)
{
    int depth = 0; /* maps that are open */

    for (size_t i = 0; i < topology->count; i++) {
        const struct symm_topology_object *place = &topology->places[i];
        if (i > 0 && place->depth == depth) { /* the first child of the one before */
            symm__emit_key(emit, "children");
            symm__emit_begin_list(emit);
        }
        for (; depth > place->depth; depth--) {
            symm__emit_end_map(emit);
            if (depth - 1 > place->depth)
                symm__emit_end_list(emit);
        }
        symm__emit_begin_map(emit);
        emit_place(emit, place);
        depth++;
    }
    for (; depth > 0; depth--) {
        symm__emit_end_map(emit);
        if (depth > 1)
            symm__emit_end_list(emit);
    }
}

int symm__topology_draw_json(const struct symm_topology *topology, int fd)
{
    struct symm_emit emit;

    symm__emit_init_fd(&emit, SYMM_EMIT_JSON, fd);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", "symm-topology/1");
    symm__emit_key_string(&emit, "source", topology->source);
    symm__emit_key_bool(&emit, "this_machine", topology->own);
    symm__emit_key_unsigned(&emit, "memory_bytes", topology->places[0].bytes);
    symm__emit_key_unsigned(
        &emit, "packages",
        symm__topology_count(topology, SYMM_TOPOLOGY_PACKAGE, false));
    symm__emit_key_unsigned(&emit, "numa_nodes",
                            symm__topology_count(topology, SYMM_TOPOLOGY_NODE, false));
    symm__emit_key_unsigned(&emit, "cores",
                            symm__topology_count(topology, SYMM_TOPOLOGY_CORE, false));
    symm__emit_key_unsigned(&emit, "pus",
                            symm__topology_count(topology, SYMM_TOPOLOGY_PU, false));
    symm__emit_key_unsigned(&emit, "allowed_cores",
                            symm__topology_count(topology, SYMM_TOPOLOGY_CORE, true));
    symm__emit_key_unsigned(&emit, "allowed_pus",
                            symm__topology_count(topology, SYMM_TOPOLOGY_PU, true));
    symm__emit_key(&emit, "tree");
    emit_tree(&emit, topology);
    symm__emit_end_map(&emit);
    return symm__emit_finish(&emit);
}
