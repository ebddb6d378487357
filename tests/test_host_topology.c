/* SPDX-License-Identifier: MIT */
/*
 * test_host_topology.c - machines read from a fake /sys, printed, and divided among ranks.
 *
 * The test writes each machine as a folder like /sys; the tree read from it is compared as
 * text. Shares must be complete, disjoint, even and contiguous. Both readers read the real
 * machine, and must agree.
 * ctest: no-threads
 */
#include "harness.h"
#include "symm/tools.h"
#include "topology/bind.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    harness_directory(folder, sizeof(folder));
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    harness_remove(folder);
    return 0;
}

/* A file below folder/devices/system. */
#define put(text, ...) tree_put(folder, text, "devices/system/" __VA_ARGS__)

static void put_cache(unsigned cpu, int index, const char *level, const char *type,
                      const char *size, const char *shared)
{
    put(level, "cpu/cpu%u/cache/index%d/level", cpu, index);
    put(type, "cpu/cpu%u/cache/index%d/type", cpu, index);
    put(size, "cpu/cpu%u/cache/index%d/size", cpu, index);
    put(shared, "cpu/cpu%u/cache/index%d/shared_cpu_list", cpu, index);
}

static void put_node(unsigned node, const char *cpus, unsigned kib)
{
    char text[128];

    put(cpus, "node/node%u/cpulist", node);
    snprintf(text, sizeof(text), "Node %u MemTotal:       %u kB\nNode %u MemFree: 1 kB",
             node, kib, node);
    put(text, "node/node%u/meminfo", node);
}

/*
 * Two packages of two cores of two threads, numbered as large servers are: the second
 * threads come last. Core c of package p is CPUs 2p+c and 4+2p+c. One node a package,
 * and a node without CPUs.
 */
static void put_server(void)
{
    put("0-7", "cpu/online");
    for (unsigned cpu = 0; cpu < 8; cpu++) {
        unsigned first = cpu % 4, package = first / 2;
        char siblings[32];
        snprintf(siblings, sizeof(siblings), "%u,%u", first, first + 4);
        put(package == 0 ? "0" : "1", "cpu/cpu%u/topology/physical_package_id", cpu);
        put(siblings, "cpu/cpu%u/topology/thread_siblings_list", cpu);
        put_cache(cpu, 0, "1", "Data", "48K", siblings);
        put_cache(cpu, 1, "1", "Instruction", "32K", siblings);
        put_cache(cpu, 2, "2", "Unified", "1280K", siblings);
        put_cache(cpu, 3, "3", "Unified", "30M", package == 0 ? "0-1,4-5" : "2-3,6-7");
    }
    put("0-2", "node/online");
    put_node(0, "0-1,4-5", 1048576);
    put_node(1, "2-3,6-7", 1048576);
    put_node(2, "", 524288);
}

static struct symm_topology read_folder(void)
{
    struct symm_topology topology = {0};

    if (symm__topology_read_sys(&topology, folder) != SYMM_OK)
        fail_msg("%s", symm_last_error());
    assert_true(symm__topology_check(&topology));
    return topology;
}

static struct symm_cpus make_cpus(const char *list)
{
    struct symm_cpus cpus = {.set = CPU_ALLOC(64), .bytes = CPU_ALLOC_SIZE(64)};

    assert_non_null(cpus.set);
    CPU_ZERO_S(cpus.bytes, cpus.set);
    for (const char *c = list; *c != '\0'; c++)
        CPU_SET_S((size_t)(*c - '0'), cpus.bytes, cpus.set);
    return cpus;
}

static void mark(struct symm_topology *topology, const char *list)
{
    struct symm_cpus cpus = make_cpus(list);

    symm__topology_mark(topology, &cpus);
    symm__cpus_finish(&cpus);
}

static void assert_drawn(const struct symm_topology *topology, const char *wanted)
{
    char text[4096] = "";
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");

    assert_non_null(file);
    symm__topology_draw_text(topology, file);
    fclose(file);
    assert_string_equal(text, wanted);
}

/* ---- Reading and drawing --------------------------------------------------------- */

static void test_server(void **state)
{
    (void)state;
    put_server();
    struct symm_topology topology = read_folder();
    mark(&topology, "16");
    assert_drawn(
        &topology,
        "Machine, 2.5 GiB: 2 packages, 3 NUMA nodes, 4 cores, 8 PUs; 2 PUs allowed "
        "(*); from /sys\n"
        "|-- NUMA node 2, 512 MiB\n"
        "|-- Package 0\n"
        "|   |-- NUMA node 0, 1 GiB\n"
        "|   `-- L3 30 MiB\n"
        "|       |-- L2 1.25 MiB, L1 48 KiB, core 0: PU 0 4\n"
        "|       `-- L2 1.25 MiB, L1 48 KiB, core 1: PU 1* 5\n"
        "`-- Package 1\n"
        "    |-- NUMA node 1, 1 GiB\n"
        "    `-- L3 30 MiB\n"
        "        |-- L2 1.25 MiB, L1 48 KiB, core 2: PU 2 6*\n"
        "        `-- L2 1.25 MiB, L1 48 KiB, core 3: PU 3 7\n");
    symm__topology_finish(&topology);
    symm__topology_finish(&topology);
}

/* All that some virtual machines say is which CPUs there are. */
static void test_bare(void **state)
{
    (void)state;
    put("0,2-3", "cpu/online");
    put("-1", "cpu/cpu2/topology/physical_package_id");
    struct symm_topology topology = read_folder();
    /* The memory is that of the machine that the test runs on. */
    assert_true(topology.places[0].bytes > 0);
    topology.places[0].bytes = 0;
    mark(&topology, "0123");
    assert_drawn(&topology, "Machine: 1 package, 0 NUMA nodes, 3 cores, 3 PUs; 3 PUs "
                            "allowed (*); from /sys\n"
                            "`-- Package 0\n"
                            "    |-- core 0: PU 0*\n"
                            "    |-- core 1: PU 2*\n"
                            "    `-- core 2: PU 3*\n");
    symm__topology_finish(&topology);
}

static void test_no_machine(void **state)
{
    struct symm_topology topology = {0};
    (void)state;

    assert_int_equal(symm__topology_read_sys(&topology, folder), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "cpu/online"));
    put("none", "cpu/online");
    assert_int_equal(symm__topology_read_sys(&topology, folder), SYMM_ERR_SYSTEM);
    put("0-4294967296", "cpu/online");
    assert_int_equal(symm__topology_read_sys(&topology, folder), SYMM_ERR_SYSTEM);
    assert_null(topology.places);
}

static void test_json(void **state)
{
    char path[300], text[16384] = "";
    (void)state;

    put_server();
    struct symm_topology topology = read_folder();
    mark(&topology, "16");
    snprintf(path, sizeof(path), "%s/json", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(symm__topology_draw_json(&topology, fd), 0);
    assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
    close(fd);
    assert_non_null(strstr(text, "\"format\": \"symm-topology/1\""));
    assert_non_null(strstr(text, "\"allowed_cores\": 2"));
    int depth = 0;
    for (const char *c = text; *c != '\0'; c++) {
        depth += *c == '{' || *c == '[' ? 1 : *c == '}' || *c == ']' ? -1 : 0;
        assert_true(depth > 0 || c[1] == '\n' || *c == '\n');
    }
    assert_int_equal(depth, 0);
    fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(symm__topology_draw_json(&topology, fd), ENOSPC);
    close(fd);
    symm__topology_finish(&topology);
}

static void test_check_finds_damage(void **state)
{
    (void)state;
    put_server();
    struct symm_topology topology = read_folder();
    for (size_t i = 0; i < topology.count; i++) {
        struct symm_topology_object whole = topology.places[i];
        topology.places[i].depth += 10;
        assert_false(symm__topology_check(&topology));
        topology.places[i] = whole;
        if (whole.kind == SYMM_TOPOLOGY_CORE) {
            topology.places[i].kind = SYMM_TOPOLOGY_GROUP;
            assert_false(symm__topology_check(&topology));
            topology.places[i] = whole;
        }
    }
    assert_true(symm__topology_check(&topology));
    symm__topology_finish(&topology);
    assert_false(symm__topology_check(&topology));
}

/* ---- Shares ---------------------------------------------------------------------- */

static void assert_share(const struct symm_topology *topology, int rank, int size,
                         const char *cpus, const char *where)
{
    struct symm_cpus wanted = make_cpus(cpus);
    struct symm_share share = {0};

    assert_int_equal(symm__bind_share(topology, NULL, rank, size, &share), SYMM_OK);
    assert_string_equal(share.where, where);
    for (size_t cpu = 0; cpu < 64; cpu++)
        assert_int_equal(CPU_ISSET_S(cpu, share.cpus.bytes, share.cpus.set) != 0,
                         CPU_ISSET_S(cpu, wanted.bytes, wanted.set) != 0);
    symm__cpus_finish(&share.cpus);
    symm__cpus_finish(&wanted);
}

static void test_shares(void **state)
{
    (void)state;
    put_server();
    struct symm_topology topology = read_folder();

    mark(&topology, "01234567");
    assert_share(&topology, 0, 1, "01234567", "cores 0-3, NUMA nodes 0-1");
    assert_share(&topology, 0, 2, "0145", "cores 0-1, NUMA node 0");
    assert_share(&topology, 1, 2, "2367", "cores 2-3, NUMA node 1");
    assert_share(&topology, 0, 3, "04", "core 0, NUMA node 0");
    assert_share(&topology, 1, 3, "15", "core 1, NUMA node 0");
    assert_share(&topology, 2, 3, "2367", "cores 2-3, NUMA node 1");
    assert_share(&topology, 3, 4, "37", "core 3, NUMA node 1");
    assert_share(&topology, 4, 5, "37", "core 3, NUMA node 1");

    mark(&topology, "0347"); /* what is not allowed is nobody's */
    assert_share(&topology, 0, 1, "0347", "cores 0,3, NUMA nodes 0-1");
    assert_share(&topology, 0, 2, "04", "core 0, NUMA node 0");
    assert_share(&topology, 1, 2, "37", "core 3, NUMA node 1");
    mark(&topology, "6");
    assert_share(&topology, 0, 1, "6", "core 2, NUMA node 1");
    assert_share(&topology, 1, 2, "6", "core 2, NUMA node 1");
    symm__topology_finish(&topology);
}

/* 60 CPUs and every number of ranks: whole, disjoint, in order, sizes differ by one. */
static void test_shares_are_even(void **state)
{
    (void)state;
    put("0-59", "cpu/online");
    struct symm_topology topology = read_folder();
    for (size_t i = 0; i < topology.count; i++)
        topology.places[i].allowed = true;
    for (int size = 1; size <= 60; size++) {
        int next = 0;
        for (int rank = 0; rank < size; rank++) {
            struct symm_share share = {0};
            assert_int_equal(symm__bind_share(&topology, NULL, rank, size, &share),
                             SYMM_OK);
            struct symm_cpus cpus = share.cpus;
            int count = CPU_COUNT_S(cpus.bytes, cpus.set);
            assert_true(count == 60 / size || count == 60 / size + 1);
            for (int i = 0; i < count; i++, next++)
                assert_true(CPU_ISSET_S((size_t)next, cpus.bytes, cpus.set));
            symm__cpus_finish(&cpus);
        }
        assert_int_equal(next, 60);
    }
    symm__topology_finish(&topology);
}

/* ---- This machine ---------------------------------------------------------------- */

static void test_readers_agree(void **state)
{
    struct symm_topology one = {0}, two = {0};
    struct symm_cpus allowed = {0};
    (void)state;

    assert_int_equal(symm__topology_read(&one), SYMM_OK);
    assert_true(symm__topology_check(&one));
    assert_int_equal(symm__topology_read_sys(&two, "/sys"), SYMM_OK);
    assert_true(symm__topology_check(&two));
    assert_int_equal(symm__cpus_read(&allowed), SYMM_OK);
    symm__topology_mark(&two, &allowed);
    size_t pus = symm__topology_count(&one, SYMM_TOPOLOGY_PU, true);
    assert_int_equal(pus, CPU_COUNT_S(allowed.bytes, allowed.set));
    assert_int_equal(pus, symm__topology_count(&two, SYMM_TOPOLOGY_PU, true));
    assert_int_equal(symm__topology_count(&one, SYMM_TOPOLOGY_CORE, true),
                     symm__topology_count(&two, SYMM_TOPOLOGY_CORE, true));
    symm__cpus_finish(&allowed);
    symm__topology_finish(&one);
    symm__topology_finish(&two);
}

static void test_bad_arguments(void **state)
{
    char where[32] = "as it was";
    (void)state;

    assert_int_equal(symm_bind_self(0, 0, where, sizeof(where)), SYMM_ERR_INVALID);
    assert_int_equal(symm_bind_self(-1, 2, where, sizeof(where)), SYMM_ERR_INVALID);
    assert_int_equal(symm_bind_self(2, 2, where, sizeof(where)), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "local rank 2 among 2"));
    assert_string_equal(where, "as it was");
    assert_int_equal(symm_bind_self(0, INT32_MAX, where, sizeof(where)),
                     SYMM_ERR_INVALID); /* at once */
    assert_int_equal(symm_topology_write(1, "svg"), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "'text' and 'json'"));
    assert_int_equal(symm_topology_write(1, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_topology_write(-1, "text"), SYMM_ERR_SYSTEM);
    assert_int_equal(symm_topology_write(-1, "json"), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "EBADF"));
}

/* Twice, as a rank of a rank would: the second share is a part of the first. */
static int bind_in_child(void)
{
    struct symm_cpus before = {0}, after = {0};
    char where[8] = "";

    if (symm__cpus_read(&before) != SYMM_OK)
        return 2;
    /* more ranks than any machine has cores: the last one shares the last core */
    if (symm_bind_self(999999, 1000000, where, sizeof(where)) != SYMM_OK ||
        strncmp(where, "core ", 5) != 0)
        return 6;
    if (symm_bind_self(0, 1, NULL, 0) != SYMM_OK || symm__cpus_read(&after) != SYMM_OK)
        return 3;
    for (size_t cpu = 0; cpu < 1024; cpu++) {
        if (CPU_ISSET_S(cpu, after.bytes, after.set) &&
            !CPU_ISSET_S(cpu, before.bytes, before.set))
            return 4;
    }
    int count = CPU_COUNT_S(after.bytes, after.set);
    int had = CPU_COUNT_S(before.bytes, before.set);
    symm__cpus_finish(&before);
    symm__cpus_finish(&after);
    return count >= 1 && count <= had ? 0 : 5;
}

static void test_bind_self(void **state)
{
    int status;
    (void)state;

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(bind_in_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define IN_FOLDER(test)                                                                \
    cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_server),
        IN_FOLDER(test_bare),
        IN_FOLDER(test_no_machine),
        IN_FOLDER(test_json),
        IN_FOLDER(test_check_finds_damage),
        IN_FOLDER(test_shares),
        IN_FOLDER(test_shares_are_even),
        cmocka_unit_test(test_readers_agree),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_bind_self),
    };
#undef IN_FOLDER
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
