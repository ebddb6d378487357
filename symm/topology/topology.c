/* SPDX-License-Identifier: MIT */
/*
 * topology.c - the machine as hwloc sees it.
 *
 * The one file that knows hwloc (2.x; nothing is used that 3.0 changes). It is loaded when
 * the topology is read. Where its header was missing from the build, or the library is
 * missing or fails at run time, /sys is read instead. Whatever hwloc says, what a process may
 * run on is its affinity. Devices are not asked of hwloc: it finds them with plug-ins that
 * start the drivers of GPUs (see gpus.c).
 */
#include "topology/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "symm/tools.h"
#include "util/file.h"
#include "util/library.h"
#include "util/log.h"
#include "util/status.h"

#ifndef SYMM_HAVE_HWLOC
#define SYMM_HAVE_HWLOC 0
#endif

/* ---- The structure --------------------------------------------------------------- */

void symm__topology_finish(struct symm_topology *topology)
{
    free(topology->places);
    *topology = (struct symm_topology){0};
}

symm_status symm__topology_add(struct symm_topology *topology,
                               const struct symm_topology_object *place)
{
    if (place->depth > SYMM_TOPOLOGY_DEPTH)
        return symm__fail(SYMM_ERR_OVERFLOW, "topology: more than %d levels",
                          SYMM_TOPOLOGY_DEPTH);
    if (topology->count == topology->capacity) {
        size_t capacity = topology->capacity > 0 ? 2 * topology->capacity : 64;
        struct symm_topology_object *places =
            reallocarray(topology->places, capacity, sizeof(*places));
        if (places == NULL)
            return symm__fail(SYMM_ERR_NOMEM, "topology: no memory for %zu places",
                              capacity);
        topology->places = places;
        topology->capacity = capacity;
    }
    topology->places[topology->count++] = *place;
    return SYMM_OK;
}

bool symm__topology_check(const struct symm_topology *topology)
{
    int core = -1; /* depth of the CORE that encloses the place, -1: none */

    for (size_t i = 0; i < topology->count; i++) {
        const struct symm_topology_object *place = &topology->places[i];
        const struct symm_topology_object *before = i > 0 ? place - 1 : NULL;
        if ((place->depth == 0) != (i == 0) || place->depth > SYMM_TOPOLOGY_DEPTH ||
            (place->kind == SYMM_TOPOLOGY_MACHINE) != (i == 0))
            return false;
        if (before != NULL && place->depth > before->depth + 1)
            return false;
        if (before != NULL && place->depth > before->depth &&
            (before->kind == SYMM_TOPOLOGY_NODE || before->kind == SYMM_TOPOLOGY_PU))
            return false;
        if (place->depth <= core)
            core = -1;
        if (place->kind == SYMM_TOPOLOGY_CORE)
            core = place->depth;
        if (place->kind == SYMM_TOPOLOGY_PU && core < 0)
            return false;
    }
    return topology->count > 0;
}

void symm__topology_mark(struct symm_topology *topology,
                         const struct symm_cpus *allowed)
{
    struct symm_topology_object *path[SYMM_TOPOLOGY_DEPTH + 1] = {NULL};

    for (size_t i = 0; i < topology->count; i++) {
        struct symm_topology_object *place = &topology->places[i];
        place->allowed = false;
        path[place->depth] = place;
        if (place->kind != SYMM_TOPOLOGY_PU ||
            !CPU_ISSET_S(place->os_index, allowed->bytes, allowed->set))
            continue;
        for (int depth = 0; depth <= place->depth; depth++)
            path[depth]->allowed = true;
        for (size_t n = 0; place->node >= 0 && n < topology->count; n++) {
            if (topology->places[n].kind == SYMM_TOPOLOGY_NODE &&
                topology->places[n].os_index == (unsigned)place->node)
                topology->places[n].allowed = true;
        }
    }
}

size_t symm__topology_count(const struct symm_topology *topology,
                            enum symm_topology_kind kind, bool allowed_only)
{
    size_t count = 0;

    for (size_t i = 0; i < topology->count; i++)
        count += topology->places[i].kind == kind &&
                 (topology->places[i].allowed || !allowed_only);
    return count;
}

/* ---- CPU sets -------------------------------------------------------------------- */

symm_status symm__cpus_create(struct symm_cpus *cpus, size_t count)
{
    cpu_set_t *set = CPU_ALLOC(count);

    if (set == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "topology: no memory for a set of %zu CPUs",
                          count);
    cpus->set = set;
    cpus->bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(cpus->bytes, set);
    return SYMM_OK;
}

void symm__cpus_finish(struct symm_cpus *cpus)
{
    if (cpus->set != NULL)
        CPU_FREE(cpus->set);
    *cpus = (struct symm_cpus){0};
}

symm_status symm__cpus_read(struct symm_cpus *cpus)
{
    /* The kernel refuses sets smaller than its own, and doesn't say how large. */
    for (size_t count = 1024; count <= (size_t)1 << 20; count *= 2) {
        struct symm_cpus read = {0};
        symm_status status = symm__cpus_create(&read, count);
        if (status != SYMM_OK)
            return status;
        if (sched_getaffinity(0, read.bytes, read.set) == 0) {
            *cpus = read;
            return SYMM_OK;
        }
        int error = errno;
        symm__cpus_finish(&read);
        errno = error;
        if (error != EINVAL)
            break;
    }
    return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "topology: sched_getaffinity");
}

/* ---- hwloc ----------------------------------------------------------------------- */

#if SYMM_HAVE_HWLOC
#include <hwloc.h>

#if HWLOC_API_VERSION < 0x00020000
#error "hwloc 2.0 or later is needed; build without hwloc instead"
#endif

#define HWLOC_MAP(X)                                                                   \
    X(get_api_version)                                                                 \
    X(topology_init)                                                                   \
    X(topology_set_flags)                                                              \
    X(topology_load)                                                                   \
    X(topology_destroy)                                                                \
    X(topology_is_thissystem)                                                          \
    X(topology_get_allowed_cpuset)                                                     \
    X(get_obj_by_depth)                                                                \
    X(bitmap_first)                                                                    \
    X(bitmap_next)                                                                     \
    X(bitmap_last)

static struct {
#define HWLOC_MEMBER(name) __typeof__(&hwloc_##name) name;
    HWLOC_MAP(HWLOC_MEMBER)
} hwloc;

static const struct symm_library_function functions[] = {
#define HWLOC_FUNCTION(name)                                                           \
    {"hwloc_" #name, (size_t)((char *)&hwloc.name - (char *)&hwloc)},
    HWLOC_MAP(HWLOC_FUNCTION)};

static struct symm_library hwloc_library = {
    .soname = "libhwloc.so.15",
    .package = "hwloc (Debian: libhwloc15)",
    .functions = functions,
    .count = sizeof(functions) / sizeof(functions[0]),
    .table = &hwloc,
};

/* False: of no interest; what lies below it counts as its parent's. */
static bool place_of(hwloc_obj_t object, struct symm_topology_object *place)
{
    place->index = object->logical_index;
    place->os_index = object->os_index;
    place->node = -1;
    switch (object->type) {
    case HWLOC_OBJ_MACHINE:
        place->kind = SYMM_TOPOLOGY_MACHINE;
        place->bytes = object->total_memory;
        return true;
    case HWLOC_OBJ_PACKAGE:
        place->kind = SYMM_TOPOLOGY_PACKAGE;
        return true;
    case HWLOC_OBJ_DIE:
        place->kind = SYMM_TOPOLOGY_DIE;
        return true;
    case HWLOC_OBJ_GROUP:
        place->kind = SYMM_TOPOLOGY_GROUP;
        return true;
    case HWLOC_OBJ_NUMANODE:
        place->kind = SYMM_TOPOLOGY_NODE;
        place->bytes = object->attr->numanode.local_memory;
        return true;
    case HWLOC_OBJ_L1CACHE:
    case HWLOC_OBJ_L2CACHE:
    case HWLOC_OBJ_L3CACHE:
    case HWLOC_OBJ_L4CACHE:
    case HWLOC_OBJ_L5CACHE:
        place->kind = SYMM_TOPOLOGY_CACHE;
        place->level = object->attr->cache.depth;
        place->bytes = object->attr->cache.size;
        return true;
    case HWLOC_OBJ_CORE:
        place->kind = SYMM_TOPOLOGY_CORE;
        return true;
    case HWLOC_OBJ_PU:
        place->kind = SYMM_TOPOLOGY_PU;
        if (object->nodeset != NULL)
            place->node = hwloc.bitmap_first(object->nodeset);
        return true;
    default:
        return false;
    }
}

/* Adds an object and all below it. core: a CORE encloses it. */
static symm_status add_object(struct symm_topology *topology, hwloc_obj_t object,
                              int depth, bool core)
{
    struct symm_topology_object place = {.depth = depth};
    symm_status status = SYMM_OK;

    if (place_of(object, &place)) {
        if (place.kind == SYMM_TOPOLOGY_PU && !core) {
            /* Some virtual machines don't describe cores: each PU is taken for one. */
            struct symm_topology_object stand_in = {
                .kind = SYMM_TOPOLOGY_CORE, .depth = depth, .index = place.index};
            status = symm__topology_add(topology, &stand_in);
            place.depth = ++depth;
        }
        if (status == SYMM_OK)
            status = symm__topology_add(topology, &place);
        core = core || place.kind == SYMM_TOPOLOGY_CORE;
        depth++;
    }
    for (hwloc_obj_t o = object->memory_first_child; o && status == SYMM_OK;
         o = o->next_sibling)
        status = add_object(topology, o, depth, core);
    for (hwloc_obj_t o = object->first_child; o && status == SYMM_OK;
         o = o->next_sibling)
        status = add_object(topology, o, depth, core);
    return status;
}

/* Reads the CPUs that the description of another machine allows. */
static symm_status read_described(hwloc_topology_t handle, struct symm_cpus *cpus)
{
    hwloc_const_cpuset_t allowed = hwloc.topology_get_allowed_cpuset(handle);
    int last = hwloc.bitmap_last(allowed);
    symm_status status = symm__cpus_create(cpus, (size_t)(last < 0 ? 0 : last) + 1);

    if (status != SYMM_OK)
        return status;
    for (int cpu = hwloc.bitmap_first(allowed); cpu >= 0;
         cpu = hwloc.bitmap_next(allowed, cpu))
        CPU_SET_S((size_t)cpu, cpus->bytes, cpus->set);
    return SYMM_OK;
}

/* On failure the topology may hold places: the caller finishes it. */
static symm_status read_hwloc(struct symm_topology *topology)
{
    hwloc_topology_t handle;
    struct symm_cpus described = {0};
    symm_status status = symm__library_load(&hwloc_library, NULL);

    if (status != SYMM_OK)
        return status;
    if (hwloc.get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return SYMM_ERR_UNSUPPORTED; /* its objects differ from the header's */
    status = SYMM_ERR_SYSTEM;
    if (hwloc.topology_init(&handle) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "topology: hwloc_topology_init");
    /* CPUs that this process may not use are drawn too, without their mark. */
    if (hwloc.topology_set_flags(handle, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
        hwloc.topology_load(handle) != 0) {
        symm__fail_errno(SYMM_ERR_SYSTEM, errno, "topology: hwloc_topology_load");
        goto err_handle;
    }
    unsigned version = hwloc.get_api_version();
    snprintf(topology->source, sizeof(topology->source), "hwloc %u.%u", version >> 16,
             version >> 8 & 0xff);
    topology->own = hwloc.topology_is_thissystem(handle) != 0;
    status = add_object(topology, hwloc.get_obj_by_depth(handle, 0, 0), 0, false);
    if (status == SYMM_OK && !topology->own) {
        status = read_described(handle, &described);
        if (status == SYMM_OK)
            symm__topology_mark(topology, &described);
        symm__cpus_finish(&described);
    }
err_handle:
    hwloc.topology_destroy(handle);
    return status;
}

#else

static symm_status read_hwloc(struct symm_topology *topology)
{
    (void)topology;
    return SYMM_ERR_UNSUPPORTED;
}

#endif

symm_status symm__topology_read(struct symm_topology *topology)
{
    struct symm_topology read = {0};
    struct symm_cpus allowed = {0};

    symm_status status = read_hwloc(&read);
    if (status != SYMM_OK || !symm__topology_check(&read)) {
        if (status != SYMM_ERR_UNSUPPORTED) /* there is hwloc */
            symm__log(SYMM_LOG_WARN, "topology: hwloc failed, /sys is read instead");
        symm__topology_finish(&read);
        status = symm__topology_read_sys(&read, "/sys");
    }
    if (status == SYMM_OK && read.own) {
        status = symm__cpus_read(&allowed);
        if (status == SYMM_OK)
            symm__topology_mark(&read, &allowed);
        symm__cpus_finish(&allowed);
    }
    if (status != SYMM_OK) {
        symm__topology_finish(&read);
        return status;
    }
    *topology = read;
    return SYMM_OK;
}

/* ---- The public call ------------------------------------------------------------- */

static int write_text(const struct symm_topology *topology, int fd)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (file == NULL)
        return errno;
    symm__topology_draw_text(topology, file);
    int error = fclose(file) == 0 ? 0 : errno;
    if (error == 0)
        error = symm__write_all(fd, text, bytes);
    free(text);
    return error;
}

symm_status symm_topology_write(int fd, const char *format)
{
    struct symm_topology topology = {0};
    bool json = format != NULL && strcmp(format, "json") == 0;

    if (format == NULL)
        return symm__fail_null("symm_topology_write", "format");
    if (!json && strcmp(format, "text") != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_topology_write: no format '%s'; there are 'text' and "
                          "'json'",
                          format);
    symm_status status = symm__topology_read(&topology);
    if (status != SYMM_OK)
        return status;
    int error =
        json ? symm__topology_draw_json(&topology, fd) : write_text(&topology, fd);
    if (error != 0)
        status =
            symm__fail_errno(SYMM_ERR_SYSTEM, error,
                             "symm_topology_write: can't write to descriptor %d", fd);
    symm__topology_finish(&topology);
    return status;
}
