/* SPDX-License-Identifier: MIT */
/*
 * gpus.c - the GPUs that CUDA would show this process, and the CPUs near each.
 *
 * Without asking CUDA: starting its driver takes half a second a rank, makes a thread that
 * would keep the old affinity, and leaves a process whose children cannot use it. (hwloc's
 * search for devices loads plug-ins that start it, too.) The kernel's side of the driver
 * lists its GPUs in /proc/driver/nvidia/gpus by PCI bus id; /sys says which CPUs are near.
 *
 * The order is CUDA's: by bus id, which is also its order "fastest first" where all are of
 * one model. CUDA_VISIBLE_DEVICES is read as the driver reads it (seen with version 580):
 * numbers, or beginnings of UUIDs, not both; the list ends at the first that is neither or
 * names none; a GPU twice is none at all.
 *
 * Refuses, with a log line and no GPUs: models that differ where numbers or nothing choose
 * among them and CUDA_DEVICE_ORDER is not PCI_BUS_ID; parts of a GPU (MIG-...).
 */
#include "topology/bind.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/status.h"
#include "util/text.h"

enum { TEXT_BYTES = 4096, UUID_BYTES = 40 }; /* "GPU-" and 36 characters */

/* A GPU of the machine, as /proc/driver/nvidia/gpus/BUS/information has it. */
struct found {
    uint64_t order; /* by domain, bus, device and function */
    char name[SYMM_BUS_BYTES];
    char model[64], uuid[UUID_BYTES + 1];
    bool usable; /* this process may open its device file */
};

/* ---- The machine's GPUs ---------------------------------------------------------- */

/* The rest of the line "key: ..." of a text, without blanks in front; "" if there is none. */
static void take_field(const char *text, const char *key, char *value, size_t bytes)
{
    const char *at = strstr(text, key);

    value[0] = '\0';
    if (at == NULL)
        return;
    at += strlen(key);
    at += strspn(at, " \t");
    size_t length = strcspn(at, "\n");
    snprintf(value, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), at);
}

/* False: no GPU that CUDA could show. */
static bool read_found(struct found *found, const char *root, const char *name)
{
    char text[TEXT_BYTES], value[64], path[320];
    struct found read = {0};
    unsigned domain, bus, device, function;
    int end = 0;

    if (sscanf(name, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) !=
            4 ||
        name[end] != '\0' || end >= SYMM_BUS_BYTES ||
        symm__read_text(text, sizeof(text), "%s/proc/driver/nvidia/gpus/%s/information",
                        root, name) <= 0)
        return false;
    read.order = (uint64_t)domain << 32 | bus << 16 | device << 8 | function;
    for (int i = 0; i < end; i++)
        read.name[i] = (char)tolower((unsigned char)name[i]);
    take_field(text, "GPU Excluded:", value, sizeof(value));
    if (strcmp(value, "Yes") == 0)
        return false;
    take_field(text, "Model:", read.model, sizeof(read.model));
    take_field(text, "GPU UUID:", read.uuid, sizeof(read.uuid));
    take_field(text, "Device Minor:", value, sizeof(value));
    int length = snprintf(path, sizeof(path), "%s/dev/nvidia%s", root, value);
    read.usable = isdigit((unsigned char)value[0]) && length > 0 &&
                  (size_t)length < sizeof(path) && access(path, R_OK | W_OK) == 0;
    *found = read;
    return true;
}

static int compare_found(const void *a, const void *b)
{
    const struct found *left = a, *right = b;

    return (left->order > right->order) - (left->order < right->order);
}

/* All of them by bus id; a container may list those of its host, but has its own files. */
static size_t read_machine(struct found *found, const char *root)
{
    char path[256];
    size_t count = 0, usable = 0;
    int length = snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
    int fd = length > 0 && (size_t)length < sizeof(path)
                 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                 : -1;
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (const struct dirent *e; count < SYMM_BIND_GPUS && (e = readdir(folder));)
        count += read_found(&found[count], root, e->d_name);
    closedir(folder);
    for (size_t i = 0; i < count; i++)
        usable += found[i].usable;
    /* None: the files are made when the driver is first used. */
    if (usable > 0 && usable < count) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++)
            if (found[i].usable)
                found[kept++] = found[i];
        count = kept;
    }
    qsort(found, count, sizeof(*found), compare_found);
    return count;
}

/* ---- Those that are visible ------------------------------------------------------ */

struct visible {
    size_t index[SYMM_BIND_GPUS]; /* in the machine's */
    size_t count;
    bool by_number;
    const char *refused; /* why the list cannot be followed; NULL */
};

/* A number, and moves to the next comma, whatever stands before it; -1: it names no GPU. */
static long take_index(const char **text, size_t count)
{
    char *end;
    long index = strtol(*text, &end, 10);

    if (end == *text || index < 0 || (size_t)index >= count)
        return -1;
    *text = end + strcspn(end, ",");
    return index;
}

/* The same for the beginning of a UUID that only one GPU has. */
static long take_uuid(const char **text, const struct found *found, size_t count)
{
    size_t length = strcspn(*text, ",");
    size_t compared = length < UUID_BYTES ? length : UUID_BYTES;
    long index = -1;

    if (length <= strlen("GPU-") || strncmp(*text, "GPU-", strlen("GPU-")) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(*text, found[i].uuid, compared) != 0)
            continue;
        if (index >= 0)
            return -1;
        index = (long)i;
    }
    *text += length;
    return index;
}

static void list_visible(struct visible *v, const char *list, const struct found *found,
                         size_t count)
{
    bool taken[SYMM_BIND_GPUS] = {false};

    v->by_number = strncmp(list, "GPU-", strlen("GPU-")) != 0;
    if (strncmp(list, "MIG-", strlen("MIG-")) == 0)
        v->refused = "CUDA_VISIBLE_DEVICES names parts of GPUs";
    while (v->refused == NULL && v->count < SYMM_BIND_GPUS) {
        long index =
            v->by_number ? take_index(&list, count) : take_uuid(&list, found, count);
        if (index < 0)
            return;
        if (taken[index]) {
            v->count = 0;
            v->refused = "CUDA_VISIBLE_DEVICES names one twice, then CUDA shows none";
            return;
        }
        taken[index] = true;
        v->index[v->count++] = (size_t)index;
        if (*list != ',')
            return;
        list++;
    }
}

static void find_visible(struct visible *v, const struct found *found, size_t count)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool alike = true;

    *v = (struct visible){.by_number = true};
    if (count == 0)
        return;
    if (list != NULL)
        list_visible(v, list, found, count);
    else
        for (; v->count < count; v->count++)
            v->index[v->count] = v->count;
    for (size_t i = 1; i < count; i++)
        alike = alike && strcmp(found[i].model, found[0].model) == 0;
    if (!alike && v->by_number && v->count > 0 &&
        (order == NULL || strcmp(order, "PCI_BUS_ID") != 0)) {
        v->count = 0;
        v->refused =
            "they are of several models and CUDA_DEVICE_ORDER is not PCI_BUS_ID";
    }
}

/* ---- The CPUs near them ---------------------------------------------------------- */

/* The node that has exactly these CPUs; -1: there is none. */
static int node_of(const char *root, const char *cpus)
{
    char online[256], list[TEXT_BYTES];
    unsigned first, last;

    if (symm__read_text(online, sizeof(online), "%s/sys/devices/system/node/online",
                        root) <= 0)
        return -1;
    for (const char *nodes = online; symm__sys_range(&nodes, &first, &last);) {
        for (unsigned node = first; node <= last; node++) {
            if (symm__read_text(list, sizeof(list),
                                "%s/sys/devices/system/node/node%u/cpulist", root,
                                node) <= 0)
                continue;
            list[strcspn(list, "\n")] = '\0';
            if (strcmp(list, cpus) == 0)
                return (int)node;
        }
    }
    return -1;
}

bool symm__gpu_object(const char *root, const char *bus, char *cpus, size_t bytes,
                      int *node)
{
    char name[SYMM_BUS_BYTES] = "", text[32];

    for (size_t i = 0; bus[i] != '\0' && i + 1 < sizeof(name); i++)
        name[i] = (char)tolower((unsigned char)bus[i]);
    if (symm__read_text(cpus, bytes, "%s/sys/bus/pci/devices/%s/local_cpulist", root,
                        name) <= 0)
        return false;
    cpus[strcspn(cpus, "\n")] = '\0';
    *node = -1;
    if (symm__read_text(text, sizeof(text), "%s/sys/bus/pci/devices/%s/numa_node", root,
                        name) > 0)
        *node = (int)strtol(text, NULL, 10);
    if (*node < 0) /* as in virtual machines */
        *node = node_of(root, cpus);
    return true;
}

static symm_status find_near(struct symm_gpu *gpu, const char *root)
{
    char text[TEXT_BYTES];
    unsigned first, last, top = 0;
    int node;

    if (!symm__gpu_object(root, gpu->bus, text, sizeof(text), &node))
        return SYMM_OK;
    for (const char *list = text; symm__sys_range(&list, &first, &last);)
        top = last > top ? last : top;
    symm_status status = symm__cpus_create(&gpu->near, (size_t)top + 1);
    if (status != SYMM_OK)
        return status;
    for (const char *list = text; symm__sys_range(&list, &first, &last);)
        for (unsigned cpu = first; cpu <= last; cpu++)
            CPU_SET_S(cpu, gpu->near.bytes, gpu->near.set);
    return SYMM_OK;
}

void symm__gpus_finish(struct symm_gpus *gpus)
{
    for (size_t i = 0; i < gpus->count; i++)
        symm__cpus_finish(&gpus->gpu[i].near);
    gpus->count = 0;
}

symm_status symm__gpus_read(struct symm_gpus *gpus, const char *root)
{
    struct found *found = calloc(SYMM_BIND_GPUS, sizeof(*found));
    struct visible visible;
    symm_status status = SYMM_OK;

    if (found == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "bind: no memory for the list of GPUs");
    find_visible(&visible, found, read_machine(found, root));
    if (visible.refused != NULL)
        symm__log(SYMM_LOG_INFO,
                  "bind: which GPU is whose is not known (%s): cores are shared out "
                  "without regard to GPUs",
                  visible.refused);
    *gpus = (struct symm_gpus){.count = visible.count};
    for (size_t i = 0; i < visible.count && status == SYMM_OK; i++) {
        snprintf(gpus->gpu[i].bus, sizeof(gpus->gpu[i].bus), "%s",
                 found[visible.index[i]].name);
        status = find_near(&gpus->gpu[i], root);
    }
    if (status != SYMM_OK)
        symm__gpus_finish(gpus);
    free(found);
    return status;
}
