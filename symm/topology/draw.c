/* SPDX-License-Identifier: MIT */
/*
 * draw.c - the machine as a text tree for people and as JSON for programs.
 *
 * A place with a single cache or core below it shares its line with that ("L2 1 MiB, L1
 * 48 KiB, core 0"), and a core's line ends in its PUs, so that a line is a core. PUs
 * that the process may run on carry a star.
 */
#include "topology/topology.h"
#include "util/emit.h"
#include "util/text.h"

static const struct {
    const char *type; /* in JSON */
    const char *text; /* in the tree, before the number */
} kinds[] = {
    [SYMM_TOPOLOGY_MACHINE] = {"machine", "Machine"},
    [SYMM_TOPOLOGY_PACKAGE] = {"package", "Package "},
    [SYMM_TOPOLOGY_DIE] = {"die", "Die "},
    [SYMM_TOPOLOGY_GROUP] = {"group", "Group "},
    [SYMM_TOPOLOGY_NODE] = {"numa_node", "NUMA node "},
    [SYMM_TOPOLOGY_CACHE] = {"cache", "L"},
    [SYMM_TOPOLOGY_CORE] = {"core", "core "},
    [SYMM_TOPOLOGY_PU] = {"pu", "PU "},
};

/* What is counted for the tree's first line, and for JSON. */
static const struct {
    const char *key;           /* in JSON */
    const char *before, *text; /* in the line; NULL: it is not there */
    enum symm_topology_kind kind;
    bool allowed;
} counts[] = {
    {"packages", ": ", "package", SYMM_TOPOLOGY_PACKAGE, false},
    {"numa_nodes", ", ", "NUMA node", SYMM_TOPOLOGY_NODE, false},
    {"cores", ", ", "core", SYMM_TOPOLOGY_CORE, false},
    {"pus", ", ", "PU", SYMM_TOPOLOGY_PU, false},
    {"allowed_cores", NULL, NULL, SYMM_TOPOLOGY_CORE, true},
    {"allowed_pus", "; ", "PU", SYMM_TOPOLOGY_PU, true},
};

#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* The index after the last place below i. */
static size_t end_of(const struct symm_topology *topology, size_t i)
{
    size_t end = i + 1;

    while (end < topology->count &&
           topology->places[end].depth > topology->places[i].depth)
        end++;
    return end;
}

static bool has_os_index(const struct symm_topology_object *place)
{
    return place->kind == SYMM_TOPOLOGY_NODE || place->kind == SYMM_TOPOLOGY_PU;
}

static void print_name(const struct symm_topology_object *place, FILE *file)
{
    bool cache = place->kind == SYMM_TOPOLOGY_CACHE;
    char size[32];

    fprintf(file, "%s", kinds[place->kind].text);
    if (place->kind != SYMM_TOPOLOGY_MACHINE)
        fprintf(file, "%u",
                cache                 ? place->level
                : has_os_index(place) ? place->os_index
                                      : place->index);
    if (place->bytes > 0)
        fprintf(file, "%s%s", cache ? " " : ", ",
                symm__size_text(place->bytes, size, sizeof(size)));
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

void symm__topology_draw_text(const struct symm_topology *topology, FILE *file)
{
    print_name(&topology->places[0], file);
    for (size_t i = 0; i < COUNTS; i++) {
        size_t count =
            symm__topology_count(topology, counts[i].kind, counts[i].allowed);
        if (counts[i].text != NULL)
            fprintf(file, "%s%zu %s%s", counts[i].before, count, counts[i].text,
                    count == 1 ? "" : "s");
    }
    fprintf(file, " allowed (*); from %s%s\n", topology->source,
            topology->own ? "" : ", another machine's description");
    print_below(topology, 0, 0, 0, file);
}

/* ---- JSON ------------------------------------------------------------------------ */

static void emit_place(struct symm_emit *emit, const struct symm_topology_object *place)
{
    symm__emit_key_string(emit, "type", kinds[place->kind].type);
    symm__emit_key_unsigned(emit, "index", place->index);
    if (has_os_index(place))
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
    for (size_t i = 0; i < COUNTS; i++)
        symm__emit_key_unsigned(
            &emit, counts[i].key,
            symm__topology_count(topology, counts[i].kind, counts[i].allowed));
    symm__emit_key(&emit, "tree");
    emit_tree(&emit, topology);
    symm__emit_end_map(&emit);
    return symm__emit_finish(&emit);
}
