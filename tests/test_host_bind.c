/* SPDX-License-Identifier: MIT */
/*
 * test_host_bind.c - the cores of ranks on machines with GPUs, and the GPUs.
 *
 * A machine is a list of node sizes, in cores of one PU each, numbered consecutively; a GPU
 * is a list of near CPUs. The driver's list and the kernel's are read from a folder that the
 * test fills. The expected effect of CUDA_VISIBLE_DEVICES is that of driver 580 on a machine
 * with two H200.
 * ctest: no-threads
 */
#include "harness.h"
#include "topology/bind.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Machines and GPUs ----------------------------------------------------------- */

static void add(struct symm_topology *topology, struct symm_topology_object place)
{
    place.allowed = true;
    assert_int_equal(symm__topology_add(topology, &place), SYMM_OK);
}

/* `nodes` nodes of `cores` cores. */
static struct symm_topology make_machine(unsigned nodes, unsigned cores)
{
    struct symm_topology t = {.source = "test", .own = true};
    unsigned core = 0;

    add(&t, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_MACHINE, .node = -1});
    for (unsigned node = 0; node < nodes; node++) {
        add(&t,
            (struct symm_topology_object){
                .kind = SYMM_TOPOLOGY_PACKAGE, .depth = 1, .index = node, .node = -1});
        add(&t, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_NODE,
                                              .depth = 2,
                                              .index = node,
                                              .os_index = node,
                                              .node = -1});
        for (unsigned i = 0; i < cores; i++, core++) {
            add(&t,
                (struct symm_topology_object){
                    .kind = SYMM_TOPOLOGY_CORE, .depth = 2, .index = core, .node = -1});
            add(&t, (struct symm_topology_object){.kind = SYMM_TOPOLOGY_PU,
                                                  .depth = 3,
                                                  .index = core,
                                                  .os_index = core,
                                                  .node = (int)node});
        }
    }
    assert_true(symm__topology_check(&t));
    return t;
}

static struct symm_cpus make_cpus(const char *list)
{
    struct symm_cpus cpus;
    unsigned first, last;

    assert_int_equal(symm__cpus_create(&cpus, 128), SYMM_OK);
    while (symm__sys_range(&list, &first, &last))
        for (unsigned cpu = first; cpu <= last; cpu++)
            CPU_SET_S(cpu, cpus.bytes, cpus.set);
    return cpus;
}

static void allow(struct symm_topology *topology, const char *list)
{
    struct symm_cpus cpus = make_cpus(list);

    symm__topology_mark(topology, &cpus);
    symm__cpus_finish(&cpus);
}

/* GPUs near these lists of CPUs, up to NULL; "?": not known. */
static struct symm_gpus make_gpus(const char *const *near)
{
    struct symm_gpus gpus = {.count = 0};

    for (; near[gpus.count] != NULL; gpus.count++) {
        struct symm_gpu *gpu = &gpus.gpu[gpus.count];
        snprintf(gpu->bus, sizeof(gpu->bus), "0000:%02zx:00.0", gpus.count);
        if (near[gpus.count][0] != '?')
            gpu->near = make_cpus(near[gpus.count]);
    }
    return gpus;
}

/* Each rank's words up to NULL, with " !" after those of a rank that is far from its GPU;
 * and no CPU is two ranks', unless there are too few. */
static void assert_shares(const struct symm_topology *topology, const char *const *near,
                          const char *const *wanted)
{
    struct symm_gpus gpus = make_gpus(near);
    struct symm_cpus all = make_cpus("");
    int size = 0, cpus = 0;

    while (wanted[size] != NULL)
        size++;
    for (int rank = 0; rank < size; rank++) {
        struct symm_share share = {0};
        char text[600];
        assert_int_equal(symm__bind_share(topology, &gpus, rank, size, &share),
                         SYMM_OK);
        snprintf(text, sizeof(text), "%s%s", share.where, share.far ? " !" : "");
        assert_string_equal(text, wanted[rank]);
        assert_true(CPU_COUNT_S(share.cpus.bytes, share.cpus.set) > 0);
        cpus += CPU_COUNT_S(share.cpus.bytes, share.cpus.set);
        for (size_t cpu = 0; cpu < 128; cpu++)
            if (CPU_ISSET_S(cpu, share.cpus.bytes, share.cpus.set))
                CPU_SET_S(cpu, all.bytes, all.set);
        symm__cpus_finish(&share.cpus);
    }
    if ((size_t)size <= symm__topology_count(topology, SYMM_TOPOLOGY_CORE, true))
        assert_int_equal(CPU_COUNT_S(all.bytes, all.set), cpus);
    symm__cpus_finish(&all);
    symm__gpus_finish(&gpus);
}

#define LIST(...)                                                                      \
    (const char *const[])                                                              \
    {                                                                                  \
        __VA_ARGS__, NULL                                                              \
    }

/* ---- Shares ---------------------------------------------------------------------- */

/* The GPUs of the second node come first, so order of ranks and of cores differ. */
static void test_two_nodes(void **state)
{
    struct symm_topology t = make_machine(2, 8);
    (void)state;

    assert_shares(&t, LIST("8-15", "8-15", "8-15", "8-15", "0-7", "0-7", "0-7", "0-7"),
                  LIST("cores 8-9, NUMA node 1, near GPU 0000:00:00.0",
                       "cores 10-11, NUMA node 1, near GPU 0000:01:00.0",
                       "cores 12-13, NUMA node 1, near GPU 0000:02:00.0",
                       "cores 14-15, NUMA node 1, near GPU 0000:03:00.0",
                       "cores 0-1, NUMA node 0, near GPU 0000:04:00.0",
                       "cores 2-3, NUMA node 0, near GPU 0000:05:00.0",
                       "cores 4-5, NUMA node 0, near GPU 0000:06:00.0",
                       "cores 6-7, NUMA node 0, near GPU 0000:07:00.0"));
    /* Fewer ranks than GPUs, and more, which take them by turns. */
    assert_shares(&t, LIST("0-7", "8-15", "8-15", "8-15"),
                  LIST("cores 0-7, NUMA node 0, near GPU 0000:00:00.0",
                       "cores 8-15, NUMA node 1, near GPU 0000:01:00.0"));
    assert_shares(&t, LIST("8-15", "0-7"),
                  LIST("cores 8-11, NUMA node 1, near GPU 0000:00:00.0",
                       "cores 0-7, NUMA node 0, near GPU 0000:01:00.0",
                       "cores 12-15, NUMA node 1, near GPU 0000:00:00.0"));
    symm__topology_finish(&t);
}

static void test_uneven_nodes(void **state)
{
    struct symm_topology t = make_machine(3, 6);
    (void)state;

    /* Three on the second node, one on the first, none on the third. */
    assert_shares(&t, LIST("6-11", "6-11", "0-5", "6-11"),
                  LIST("cores 6-7, NUMA node 1, near GPU 0000:00:00.0",
                       "cores 8-9, NUMA node 1, near GPU 0000:01:00.0",
                       "cores 0-5, NUMA node 0, near GPU 0000:02:00.0",
                       "cores 10-11, NUMA node 1, near GPU 0000:03:00.0"));
    /* Sets that overlap are one; what is no node is one, too. */
    assert_shares(&t, LIST("0-7", "6-11", "12,17"),
                  LIST("cores 0-5, NUMA node 0, near GPU 0000:00:00.0",
                       "cores 6-11, NUMA node 1, near GPU 0000:01:00.0",
                       "cores 12,17, NUMA node 2, near GPU 0000:02:00.0"));
    symm__topology_finish(&t);
}

static void test_not_known(void **state)
{
    struct symm_topology t = make_machine(2, 4);
    (void)state;

    /* Nothing is known, or that all cores are near: the order of the tree. */
    assert_shares(&t, LIST("?", "?"),
                  LIST("cores 0-3, NUMA node 0", "cores 4-7, NUMA node 1"));
    assert_shares(&t, LIST("0-7", "0-127", "0-7"),
                  LIST("cores 0-1, NUMA node 0", "cores 2-4, NUMA nodes 0-1",
                       "cores 5-7, NUMA node 1"));
    /* Who has no known place leaves the cores that are near others' GPUs to them. */
    assert_shares(&t, LIST("?", "0-3", "0-3"),
                  LIST("cores 4-7, NUMA node 1",
                       "cores 0-1, NUMA node 0, near GPU 0000:01:00.0",
                       "cores 2-3, NUMA node 0, near GPU 0000:02:00.0"));
    assert_shares(&t, LIST("4-7", "?", "0-3"),
                  LIST("cores 4-5, NUMA node 1, near GPU 0000:00:00.0",
                       "cores 6-7, NUMA node 1",
                       "cores 0-3, NUMA node 0, near GPU 0000:02:00.0"));
    /* GPUs without a rank keep nobody away. */
    assert_shares(&t, LIST("?", "0-3", "4-7"), LIST("cores 0-7, NUMA nodes 0-1"));
    symm__topology_finish(&t);
}

/* What the process may not run on is nobody's, wherever the GPU is. */
static void test_not_allowed(void **state)
{
    struct symm_topology t = make_machine(2, 8);
    (void)state;

    allow(&t, "0-1,12-15");
    assert_shares(&t, LIST("0-7", "0-7", "8-15", "8-15"),
                  LIST("core 0, NUMA node 0, near GPU 0000:00:00.0",
                       "core 1, NUMA node 0, near GPU 0000:01:00.0",
                       "cores 12-13, NUMA node 1, near GPU 0000:02:00.0",
                       "cores 14-15, NUMA node 1, near GPU 0000:03:00.0"));
    /* A node without allowed cores: its ranks go to the other, and all have their own. */
    allow(&t, "8-15");
    assert_shares(&t, LIST("0-7", "8-15", "0-7", "8-15"),
                  LIST("cores 8-9, NUMA node 1 !", "cores 10-11, NUMA node 1",
                       "cores 12-13, NUMA node 1 !", "cores 14-15, NUMA node 1"));
    /* Too few: the first stay, the third of that node goes. */
    allow(&t, "0-1,8-11");
    assert_shares(&t, LIST("0-7", "0-7", "0-7", "8-15"),
                  LIST("core 0, NUMA node 0, near GPU 0000:00:00.0",
                       "core 1, NUMA node 0, near GPU 0000:01:00.0",
                       "cores 8-9, NUMA node 1 !",
                       "cores 10-11, NUMA node 1, near GPU 0000:03:00.0"));
    symm__topology_finish(&t);
}

static void test_more_ranks_than_cores(void **state)
{
    struct symm_topology t = make_machine(2, 2);
    (void)state;

    assert_shares(&t, LIST("0-1", "0-1", "0-1", "2-3", "2-3", "2-3"),
                  LIST("core 0, NUMA node 0, near GPU 0000:00:00.0",
                       "core 0, NUMA node 0, near GPU 0000:01:00.0",
                       "core 1, NUMA node 0, near GPU 0000:02:00.0",
                       "core 2, NUMA node 1, near GPU 0000:03:00.0",
                       "core 2, NUMA node 1, near GPU 0000:04:00.0",
                       "core 3, NUMA node 1, near GPU 0000:05:00.0"));
    allow(&t, "0,2-3"); /* two ranks a core, not three on one and one on the others */
    assert_shares(&t, LIST("0-1", "0-1", "0-1", "2-3"),
                  LIST("core 0, NUMA node 0, near GPU 0000:00:00.0",
                       "core 0, NUMA node 0, near GPU 0000:01:00.0",
                       "core 2, NUMA node 1 !",
                       "core 3, NUMA node 1, near GPU 0000:03:00.0"));
    symm__topology_finish(&t);
}

static void test_refused(void **state)
{
    struct symm_topology t = make_machine(1, 2);
    struct symm_share share = {0};
    (void)state;

    assert_int_equal(symm__bind_share(&t, NULL, 2, 2, &share), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "local rank 2 among 2"));
    allow(&t, "99");
    assert_int_equal(symm__bind_share(&t, NULL, 0, 2, &share), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "local rank 0 may run on"));
    assert_null(share.cpus.set);
    symm__topology_finish(&t);
}

/* ---- Which GPUs ------------------------------------------------------------------ */

static char folder[256], logged[1024];

static void keep_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", line);
}

static int make_folder(void **state)
{
    (void)state;
    harness_directory(folder, sizeof(folder));
    setenv("SYMM_LOG", "info", 1);
    symm_log_sink(keep_line, NULL);
    logged[0] = '\0';
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    harness_remove(folder);
    symm_log_sink(NULL, NULL);
    unsetenv("SYMM_LOG");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return 0;
}

#define put(text, ...) tree_put(folder, text, __VA_ARGS__)

/* As driver 580 writes it; a device file if `minor` is one. */
static void put_gpu(const char *bus, const char *model, const char *uuid, int minor)
{
    char text[512];

    snprintf(text, sizeof(text),
             "Model: \t\t %s\nIRQ:   \t\t 41\nGPU UUID: \t %s\nBus Location: \t %s\n"
             "Device Minor: \t %d\nGPU Excluded:\t %s",
             model, uuid, bus, minor, minor == 9 ? "Yes" : "No");
    put(text, "proc/driver/nvidia/gpus/%s/information", bus);
    put("", "dev/nvidia%d", minor);
}

/* Four at 06, 0a, 47 and 1:01, with the letters a to d at the end of their bus ids' names. */
static void put_gpus(const char *last_model)
{
    put_gpu("0001:01:00.0", last_model, "GPU-dd00ffff-0000-0000-0000-000000000003", 3);
    put_gpu("0000:47:00.0", "NVIDIA H200", "GPU-cc00ffff-0000-0000-0000-000000000002",
            2);
    put_gpu("0000:06:00.0", "NVIDIA H200", "GPU-aa00ffff-0000-0000-0000-000000000000",
            0);
    put_gpu("0000:0A:00.0", "NVIDIA H200", "GPU-aabbffff-0000-0000-0000-000000000001",
            1);
    put("0-7", "sys/bus/pci/devices/0000:06:00.0/local_cpulist");
    put("0", "sys/bus/pci/devices/0000:06:00.0/numa_node");
    put("8-15,24-31", "sys/bus/pci/devices/0000:0a:00.0/local_cpulist");
}

static const char letters[][SYMM_BUS_BYTES] = {"0000:06:00.0", "0000:0a:00.0",
                                               "0000:47:00.0", "0001:01:00.0"};

/* wanted: a letter for each GPU, in order. */
static void assert_visible(const char *list, const char *wanted)
{
    struct symm_gpus *gpus = calloc(1, sizeof(*gpus));
    char got[SYMM_BIND_GPUS + 1] = "";

    assert_non_null(gpus);
    if (list == NULL)
        unsetenv("CUDA_VISIBLE_DEVICES");
    else
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
    assert_int_equal(symm__gpus_read(gpus, folder), SYMM_OK);
    for (size_t i = 0; i < gpus->count; i++) {
        got[i] = '?';
        for (int letter = 0; letter < 4; letter++)
            if (strcmp(gpus->gpu[i].bus, letters[letter]) == 0)
                got[i] = (char)('a' + letter);
    }
    if (strcmp(got, wanted) != 0)
        fail_msg("CUDA_VISIBLE_DEVICES='%s': '%s' instead of '%s'", list, got, wanted);
    symm__gpus_finish(gpus);
    free(gpus);
}

static void test_visible_devices(void **state)
{
    static const char *const lists[][2] = {
        {"", ""},
        {"1,0", "ba"},
        {"3", "d"},
        {" 1", "b"},
        {"1 ,0", "ba"},
        {"1, 0", "ba"},
        {"1\t,0", "ba"},
        {"1,,0", "b"},
        {",1", ""},
        {"0x1", "a"},
        {"+1", "b"},
        {"01", "b"},
        {"1;0", "b"},
        {"0 1", "a"},
        {"1abc", "b"},
        {"1.,0", "ba"}, /* up to the comma all is skipped */
        {"1,MIG-aa00ffff", "b"},
        {"1,5,0", "b"},
        {"1,-1,0", "b"},
        {"4", ""},
        {"NoDevFiles", ""},
        {"all", ""},
        {"0,0", ""},
        {"2,1,2", ""},
        {"GPU-cc00ffff-0000-0000-0000-000000000002", "c"},
        {"GPU-cc00ffff-0000-0000-0000-000000000002x", "c"},
        {"GPU-CC00FFFF-0000", "c"},
        {"gpu-cc00ffff-0000", ""},
        {"cc00ffff-0000", ""},
        {"GPU-cc,GPU-aab", "cb"},
        {"GPU-cc, GPU-aab", "c"},
        {" GPU-cc", ""},
        {"GPU-cc00ffff-0000-0000-0000-000000000002 ,GPU-aab", "cb"},
        {"GPU-cc,0", "c"},
        {"0,GPU-cc", "a"},
        {"GPU-aa", ""}, /* of two: which? */
        {"GPU-", ""},
        {"GPU", ""},
        {"GPU-cc,GPU-cc", ""},
    };
    (void)state;

    put_gpus("NVIDIA H200");
    assert_visible(NULL, "abcd");
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        assert_visible(lists[i][0], lists[i][1]);
    assert_non_null(strstr(logged, "twice"));
    assert_visible("MIG-aa00ffff", "");
    assert_non_null(strstr(logged, "parts of GPUs"));
}

/* Which of two models is the faster one only CUDA knows. */
static void test_order(void **state)
{
    (void)state;

    put_gpus("NVIDIA A2");
    assert_visible(NULL, "");
    assert_non_null(strstr(logged, "CUDA_DEVICE_ORDER"));
    logged[0] = '\0';
    assert_visible("0", "");
    assert_non_null(strstr(logged, "CUDA_DEVICE_ORDER"));
    logged[0] = '\0';
    assert_visible("GPU-dd,GPU-cc", "dc");
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    assert_visible("GPU-dd,GPU-cc", "dc");
    assert_string_equal(logged, "");
    assert_visible("1", "");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    assert_visible(NULL, "abcd");
    assert_visible("3,1", "db");
}

/* A container sees its host's list, but has the device files of its own GPUs. */
static void test_container(void **state)
{
    char path[300];
    (void)state;

    assert_visible(NULL, ""); /* no driver */
    put_gpus("NVIDIA H200");
    put_gpu("0000:02:00.0", "NVIDIA H200", "GPU-ee", 9); /* excluded by the driver */
    put("x", "proc/driver/nvidia/gpus/notes/information");
    assert_visible(NULL, "abcd");
    for (int minor = 0; minor < 4; minor++) {
        snprintf(path, sizeof(path), "%s/dev/nvidia%d", folder, minor);
        assert_int_equal(unlink(path), 0);
        if (minor == 0)
            assert_visible(NULL, "bcd");
        if (minor == 1)
            assert_visible("1", "d");
    }
    assert_visible(NULL, "abcd"); /* none: not made yet */
}

static void test_near(void **state)
{
    struct symm_gpus *gpus = calloc(1, sizeof(*gpus));
    struct symm_cpus wanted = make_cpus("8-15,24-31");
    char list[64];
    int node = 7;
    (void)state;

    assert_non_null(gpus);
    put_gpus("NVIDIA H200");
    assert_int_equal(symm__gpus_read(gpus, folder), SYMM_OK);
    assert_int_equal(gpus->count, 4);
    for (size_t cpu = 0; cpu < 128; cpu++) {
        const struct symm_cpus *near = &gpus->gpu[1].near;
        assert_int_equal(CPU_ISSET_S(cpu, near->bytes, near->set) != 0,
                         CPU_ISSET_S(cpu, wanted.bytes, wanted.set) != 0);
    }
    assert_null(gpus->gpu[2].near.set);
    symm__gpus_finish(gpus);
    free(gpus);
    symm__cpus_finish(&wanted);
    /* CUDA writes capital letters, /sys small ones. */
    assert_true(symm__gpu_object(folder, "0000:0A:00.0", list, sizeof(list), &node));
    assert_string_equal(list, "8-15,24-31");
    assert_int_equal(node, -1);
    put("0-1", "sys/devices/system/node/online");
    put("0-7", "sys/devices/system/node/node0/cpulist");
    put("8-15,24-31", "sys/devices/system/node/node1/cpulist");
    assert_true(symm__gpu_object(folder, "0000:0A:00.0", list, sizeof(list), &node));
    assert_int_equal(node, 1); /* where the device itself does not say */
    assert_true(symm__gpu_object(folder, "0000:06:00.0", list, sizeof(list), &node));
    assert_int_equal(node, 0);
    assert_false(symm__gpu_object(folder, "0000:47:00.0", list, sizeof(list), &node));
}

int main(void)
{
#define IN_FOLDER(test)                                                                \
    cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_uneven_nodes),
        cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_not_allowed),
        cmocka_unit_test(test_more_ranks_than_cores),
        cmocka_unit_test(test_refused),
        IN_FOLDER(test_visible_devices),
        IN_FOLDER(test_order),
        IN_FOLDER(test_container),
        IN_FOLDER(test_near),
    };
    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
