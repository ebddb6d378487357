/* SPDX-License-Identifier: MIT */
/*
 * topology.h - the machine as plain data: a tree of places, flat and in preorder.
 *
 * Two readers fill the same structure: hwloc (topology.c) and /sys (sysfs.c).
 * What is drawn and how ranks share the cores (bind.h) then depends on the data alone.
 *
 * Invariants (symm__topology_check): places[0] is the machine, at depth 0; a place is
 * at most one deeper than the one before it; every PU lies under a CORE; NODEs, which
 * say where memory is, have nothing below them.
 */
#ifndef SYMM_TOPOLOGY_TOPOLOGY_H
#define SYMM_TOPOLOGY_TOPOLOGY_H

#include <sched.h>
#include <stdio.h>

#include "symm/symm.h"

#define SYMM_TOPOLOGY_DEPTH 24 /* deepest place; twice that many levels of JSON */

enum symm_topology_kind {
    SYMM_TOPOLOGY_MACHINE,
    SYMM_TOPOLOGY_PACKAGE,
    SYMM_TOPOLOGY_DIE,
    SYMM_TOPOLOGY_GROUP, /* cores that the system groups: clusters, for example */
    SYMM_TOPOLOGY_NODE,  /* a NUMA node's memory */
    SYMM_TOPOLOGY_CACHE,
    SYMM_TOPOLOGY_CORE,
    SYMM_TOPOLOGY_PU, /* what the kernel calls a CPU */
};

struct symm_topology_object {
    enum symm_topology_kind kind;
    int depth;
    unsigned index;    /* among those of its kind (and level), in tree order */
    unsigned os_index; /* NODE, PU: the kernel's number */
    unsigned level;    /* CACHE: 1.. */
    int node;          /* PU: kernel's number of the nearest NODE; -1 = not known */
    uint64_t bytes;    /* MACHINE, NODE, CACHE; 0 = not known */
    bool allowed;      /* PU: may be run on; others: holds or serves such a PU */
};

struct symm_topology {
    struct symm_topology_object *places; /* owned */
    size_t count, capacity;
    char source[32]; /* "hwloc 2.8", "/sys" */
    bool own; /* this machine; false: one from HWLOC_XMLFILE or HWLOC_SYNTHETIC */
};

/* Kernel CPU numbers. */
struct symm_cpus {
    cpu_set_t *set; /* CPU_ALLOC; owned */
    size_t bytes;
};

/* Reads the machine and marks what this thread may run on. The holder finishes it. */
symm_status symm__topology_read(struct symm_topology *topology) SYMM_MUST_CHECK;
void symm__topology_finish(struct symm_topology *topology); /* zeroed ones are fine */
bool symm__topology_check(const struct symm_topology *topology);
/* Appends; places up to the depth of `place` must be there. */
symm_status
symm__topology_add(struct symm_topology *topology,
                   const struct symm_topology_object *place) SYMM_MUST_CHECK;
/* Marks PUs of which `allowed` holds the number, and what holds or serves them. */
void symm__topology_mark(struct symm_topology *topology,
                         const struct symm_cpus *allowed);
size_t symm__topology_count(const struct symm_topology *topology,
                            enum symm_topology_kind kind, bool allowed_only);

/* The calling thread's affinity. */
symm_status symm__cpus_read(struct symm_cpus *cpus) SYMM_MUST_CHECK;
/* An empty set with room for CPUs 0..count-1. */
symm_status symm__cpus_create(struct symm_cpus *cpus, size_t count) SYMM_MUST_CHECK;
void symm__cpus_finish(struct symm_cpus *cpus);

/* sysfs.c: sys is "/sys", or a copy of its layout. */
symm_status symm__topology_read_sys(struct symm_topology *topology,
                                    const char *sys) SYMM_MUST_CHECK;
/* The next range of a list as "0-3,8"; false at its end, or where it is none. */
bool symm__sys_range(const char **text, unsigned *first, unsigned *last);

/* draw.c */
void symm__topology_draw_text(const struct symm_topology *topology, FILE *file);
int symm__topology_draw_json(const struct symm_topology *topology,
                             int fd); /* 0 or errno */

#endif
