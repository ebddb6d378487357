/* SPDX-License-Identifier: MIT */
/*
 * test_host_job.c - the launchers' variables: each launcher complete, each variable
 * missing, contradictions, garbage, precedence; and real launchers, if installed.
 *
 * `test_host_job --show` is a rank: it prints the result of symm__job_detect.
 * ctest: no-threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/job.h"
#include "harness.h"
#include "symm/symm.h"
#include "symm/tools.h"
#include "util/status.h"

/* The environment becomes "A=1 B=two words" split at spaces, and nothing else. */
static void set_environment(const char *pairs)
{
    char *copy = strdup(pairs);
    char *rest = copy;
    char *pair;

    assert_non_null(copy);
    assert_int_equal(clearenv(), 0);
    while ((pair = strsep(&rest, " "))) {
        char *value = strchr(pair, '=');

        if (!value)
            continue;
        *value++ = '\0';
        assert_int_equal(setenv(pair, value, 1), 0);
    }
    free(copy);
}

#define TORCHRUN                                                                       \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none "    \
    "TORCHELASTIC_RESTART_COUNT=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
#define OPENMPI                                                                        \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "      \
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=1959198721 "              \
    "OMPI_MCA_orte_precondition_transports=cc21869b9128ef14-0e7f4864f154799f"
#define SLURM                                                                          \
    "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 "            \
    "SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_JOB_ID=99 SLURM_STEP_ID=3 "               \
    "SLURM_NTASKS=64"
#define SYMM "SYMM_RANK=1 SYMM_WORLD_SIZE=4 SYMM_JOB_ID=mine"

static const struct {
    const char *environment;
    const char *source;
    int rank, size, local_rank, local_size;
    const char *key; /* some part of it */
} good[] = {
    {"", "single", 0, 1, 0, 1, "single uid="},
    {"UNRELATED=1", "single", 0, 1, 0, 1, " pid="},
    {SYMM, "symm", 1, 4, 1, 4, " job=mine"},
    {SYMM " SYMM_LOCAL_RANK=0 SYMM_LOCAL_WORLD_SIZE=2", "symm", 1, 4, 0, 2,
     " job=mine"},
    {TORCHRUN, "torchrun", 5, 8, 1, 4,
     "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=2 MASTER_ADDR=10.0.0.1 "
     "MASTER_PORT=29500"},
    {TORCHRUN " SYMM_JOB_ID=abc", "symmrun", 5, 8, 1, 4, " job=abc"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x",
     "torchrun", 0, 2, 0, 2, "TORCHELASTIC_RUN_ID=x"},
    {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "torchrun", 0, 1, 0, 1,
     "single"},
    {OPENMPI, "openmpi", 1, 2, 1, 2,
     "PMIX_NAMESPACE=1959198721 "
     "OMPI_MCA_orte_precondition_transports=cc21869b9128ef14"},
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_MCA_ess_base_jobid=17",
     "openmpi", 0, 2, 0, 1, "OMPI_MCA_ess_base_jobid=17"},
    {"PMI_RANK=0 PMI_SIZE=1", "pmi", 0, 1, 0, 1, "single"},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SYMM_JOB_ID=j", "pmi",
     1, 2, 1, 2, " job=j"},
    {SLURM, "slurm", 5, 7, 1, 2, "job=99 step=3 restart=0"},
    {SLURM " SLURM_NODEID=3 SLURM_LOCALID=0 SLURM_RESTART_COUNT=1", "slurm", 5, 7, 0, 1,
     "job=99 step=3 restart=1"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=2 "
     "SLURM_JOBID=9 "
     "SLURM_STEPID=0",
     "slurm", 1, 2, 1, 2, "job=9 step=0"},
    /* An allocation without a step is no launcher. */
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=9", "single", 0, 1, 0, 1, "single"},
    /* What PMIx and PMI do not say, the same step of Slurm does. */
    {SLURM " PMIX_RANK=5 PMIX_NAMESPACE=slurm.pmix.99.3", "pmix", 5, 7, 1, 2,
     "PMIX_NAMESPACE=slurm.pmix.99.3"},
    {SLURM " PMI_RANK=5 PMI_SIZE=7 PMI_FD=9", "pmi", 5, 7, 1, 2, "job=99 step=3"},
    /* Precedence. */
    {SYMM " " TORCHRUN " " OPENMPI " " SLURM, "symm", 1, 4, 1, 4, "job=mine"},
    {TORCHRUN " " OPENMPI " " SLURM, "torchrun", 5, 8, 1, 4, "torchrun"},
    {OPENMPI " PMI_RANK=0 PMI_SIZE=9 " SLURM, "openmpi", 1, 2, 1, 2, "pmix"},
    /* Empty is unset; leading zeros are decimal. */
    {TORCHRUN " SYMM_RANK= SYMM_JOB_ID=", "torchrun", 5, 8, 1, 4, "torchrun"},
    {"SYMM_RANK=007 SYMM_WORLD_SIZE=0010 SYMM_JOB_ID=j", "symm", 7, 10, 7, 10, "job=j"},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct symm_job job;
        symm_status status;

        set_environment(good[i].environment);
        status = symm__job_detect(&job);
        if (status != SYMM_OK)
            fail_msg("'%s': %s", good[i].environment, symm_last_error());
        assert_string_equal(job.source, good[i].source);
        assert_int_equal(job.rank, good[i].rank);
        assert_int_equal(job.size, good[i].size);
        assert_int_equal(job.local_rank, good[i].local_rank);
        assert_int_equal(job.local_size, good[i].local_size);
        if (!strstr(job.key, good[i].key))
            fail_msg("'%s': '%s' is not in the key '%s'", good[i].environment,
                     good[i].key, job.key);
        assert_false(job.has_secret);
        assert_string_equal(job.store, "");
    }
}

static const struct {
    const char *environment;
    const char *says[2]; /* parts of the sentence */
} bad[] = {
    /* Numbers. */
    {SYMM " SYMM_RANK=-1", {"SYMM_RANK='-1'", "from 0"}},
    {SYMM " SYMM_RANK=+1", {"SYMM_RANK='+1'", "integer"}},
    {SYMM " SYMM_RANK=1x", {"SYMM_RANK='1x'", "integer"}},
    {SYMM " SYMM_RANK=0x1", {"SYMM_RANK='0x1'", "integer"}},
    {SYMM " SYMM_RANK=1.0", {"SYMM_RANK='1.0'", "integer"}},
    {SYMM " SYMM_RANK=\t1", {"SYMM_RANK=", "integer"}},
    {SYMM " SYMM_RANK=4", {"SYMM_RANK=4", "SYMM_WORLD_SIZE=4"}},
    {SYMM " SYMM_WORLD_SIZE=0", {"SYMM_WORLD_SIZE='0'", "from 1"}},
    {SYMM " SYMM_WORLD_SIZE=2147483648",
     {"SYMM_WORLD_SIZE='2147483648'", "to 1048576"}},
    {SYMM " SYMM_WORLD_SIZE=4294967300", {"SYMM_WORLD_SIZE='4294967300'", "integer"}},
    {SYMM " SYMM_WORLD_SIZE=99999999999999999999999999999999999999999999999",
     {"SYMM_WORLD_SIZE='9999999999999999999999999999999999999999...'", "integer"}},
    {TORCHRUN " RANK=8", {"RANK=8", "WORLD_SIZE=8"}},
    {TORCHRUN " LOCAL_RANK=4", {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
    {TORCHRUN " LOCAL_WORLD_SIZE=9", {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"}},
    {TORCHRUN " WORLD_SIZE=eight", {"WORLD_SIZE='eight'", "integer"}},
    {OPENMPI " OMPI_COMM_WORLD_RANK=2", {"OMPI_COMM_WORLD_RANK=2", "SIZE=2"}},
    {"PMI_RANK=2 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
     {"PMI_RANK=2", "PMI_SIZE=2"}},
    {SLURM " SLURM_PROCID=7", {"SLURM_PROCID=7", "SLURM_STEP_NUM_TASKS=7"}},
    {SLURM " SLURM_LOCALID=2", {"SLURM_LOCALID=2", "contradict"}},
    {SLURM " SLURM_NODEID=4", {"SLURM_NODEID=4", "has 4 nodes"}},
    {SLURM " SLURM_STEP_TASKS_PER_NODE=2(x3",
     {"SLURM_STEP_TASKS_PER_NODE='2(x3'", "form"}},
    {SLURM " SLURM_STEP_TASKS_PER_NODE=2,", {"SLURM_STEP_TASKS_PER_NODE='2,'", "form"}},
    {SLURM " SLURM_STEP_TASKS_PER_NODE=0", {"SLURM_STEP_TASKS_PER_NODE='0'", "form"}},
    {SLURM " SLURM_STEP_TASKS_PER_NODE=2(x0)", {"SLURM_STEP_TASKS_PER_NODE", "form"}},
    {SLURM " SLURM_STEP_TASKS_PER_NODE=9(x9999999),9(x9999999)", {"contradict", "9"}},
    /* Names of jobs. */
    {"SYMM_RANK=1 SYMM_WORLD_SIZE=4", {"SYMM_JOB_ID is not set", "SYMM_RANK"}},
    {"SYMM_JOB_ID=j", {"SYMM_RANK is not set", "SYMM_JOB_ID"}},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
     {"MASTER_ADDR is not", "RANK"}},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_PORT=1",
     {"MASTER_ADDR is not set", "MASTER_PORT"}},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h",
     {"MASTER_PORT is not set", "MASTER_ADDR"}},
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2",
     {"PMIX_NAMESPACE is not set", "OMPI_COMM_WORLD_RANK"}},
    {"PMIX_RANK=0 PMIX_NAMESPACE=n", {"PMIX_RANK", "how many ranks"}},
    {SLURM " PMIX_RANK=4 PMIX_NAMESPACE=n", {"PMIX_RANK", "how many ranks"}},
    {"PMIX_NAMESPACE=n", {"PMIX_RANK is not set", "PMIX_NAMESPACE"}},
    {"PMI_PORT=host:1 PMI_ID=0", {"PMI_RANK is not set", "PMI_PORT"}},
    {"PMI_RANK=0 PMI_SIZE=2", {"MPI_LOCALRANKID is not set", "PMI_RANK"}},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
     {"PMI_FD is not set", "SYMM_JOB_ID"}},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 PMI_FD=x",
     {"PMI_FD='x'", "descriptor"}},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 "
     "PMI_FD=99999999999999999999",
     {"PMI_FD='99999999999999999999'", "descriptor"}},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 PMI_FD=987654",
     {"PMI_FD=987654", "SYMM_JOB_ID"}},
    {"SLURM_PROCID=0 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 "
     "SLURM_STEP_TASKS_PER_NODE=2",
     {"SLURM_JOB_ID is not set", "SLURM_PROCID"}},
    {"SLURM_PROCID=0 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_JOB_ID=1",
     {"SLURM_NODEID is not set", "SLURM_STEP_TASKS_PER_NODE"}},
    /* Secret. */
    {SYMM " SYMM_SECRET=0123", {"SYMM_SECRET (4 characters", "32 hex digits"}},
    {SYMM " SYMM_SECRET=0123456789abcdef0123456789abcdeg",
     {"SYMM_SECRET", "32 hex digits"}},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct symm_job job;

        memset(&job, 0x55, sizeof(job));
        set_environment(bad[i].environment);
        if (symm__job_detect(&job) != SYMM_ERR_JOB)
            fail_msg("'%s' was accepted", bad[i].environment);
        for (int k = 0; k < 2; k++) {
            if (!strstr(symm_last_error(), bad[i].says[k]))
                fail_msg("'%s': '%s' is not in '%s'", bad[i].environment,
                         bad[i].says[k], symm_last_error());
        }
        assert_int_equal(job.rank, 0x55555555); /* untouched */
    }
}

/* Every variable of a complete set, taken away, is named. */
static void test_each_missing(void **state)
{
    static const struct {
        const char *environment;
        const char *needed[8];
    } sets[] = {
        {SYMM, {"SYMM_RANK", "SYMM_WORLD_SIZE", "SYMM_JOB_ID"}},
        {SYMM " SYMM_LOCAL_RANK=0 SYMM_LOCAL_WORLD_SIZE=2",
         {"SYMM_RANK", "SYMM_WORLD_SIZE", "SYMM_JOB_ID", "SYMM_LOCAL_RANK",
          "SYMM_LOCAL_WORLD_SIZE"}},
        {TORCHRUN,
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
          "MASTER_PORT"}},
        {OPENMPI,
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE"}},
        {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
         {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=0 "
         "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_JOB_ID=99 SLURM_STEP_ID=3",
         {"SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
          "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        for (int k = 0; k < 8 && sets[i].needed[k]; k++) {
            char wanted[80];
            struct symm_job job;

            set_environment(sets[i].environment);
            unsetenv(sets[i].needed[k]);
            snprintf(wanted, sizeof(wanted), "%s is not set", sets[i].needed[k]);
            if (symm__job_detect(&job) != SYMM_ERR_JOB)
                fail_msg("without %s it was accepted", sets[i].needed[k]);
            if (!strstr(symm_last_error(), wanted))
                fail_msg("'%s' is not in '%s'", wanted, symm_last_error());
        }
    }
}

static void test_secret_and_store(void **state)
{
    struct symm_job job;
    char environment[400];

    (void)state;
    set_environment(TORCHRUN
                    " SYMM_JOB_ID=j SYMM_SECRET=000102030405060708090a0B0C0D0E0f "
                    "SYMM_STORE=127.0.0.1:4242");
    assert_int_equal(symm__job_detect(&job), SYMM_OK);
    assert_true(job.has_secret);
    for (int i = 0; i < SYMM_SECRET_BYTES; i++)
        assert_int_equal(job.secret[i], i);
    assert_string_equal(job.store, "127.0.0.1:4242");

    /* A secret is never shown. */
    set_environment(SYMM " SYMM_SECRET=verysecret");
    assert_int_equal(symm__job_detect(&job), SYMM_ERR_JOB);
    assert_null(strstr(symm_last_error(), "verysecret"));

    snprintf(environment, sizeof(environment), SYMM " SYMM_STORE=%0200d", 1);
    set_environment(environment);
    assert_int_equal(symm__job_detect(&job), SYMM_ERR_JOB);
    assert_non_null(strstr(symm_last_error(), "SYMM_STORE='000"));
}

/* A key that does not fit is an error: cut, it could be another job's. */
static void test_long_key(void **state)
{
    char id[700];
    struct symm_job job;
    symm_job_info info = {.size = sizeof(info)};

    (void)state;
    set_environment("SYMM_RANK=0 SYMM_WORLD_SIZE=2");
    memset(id, 'x', sizeof(id));
    id[600] = '\0';
    setenv("SYMM_JOB_ID", id, 1);
    assert_int_equal(symm__job_detect(&job), SYMM_ERR_JOB);
    assert_non_null(strstr(symm_last_error(), "SYMM_JOB_ID"));
    id[400] = '\0';
    setenv("SYMM_JOB_ID", id, 1);
    assert_int_equal(symm__job_detect(&job), SYMM_OK);
    assert_non_null(strstr(job.key, id));
    assert_int_equal(symm_job_detect(&info), SYMM_OK); /* only shown: cut */
    assert_int_equal(strlen(info.key), sizeof(info.key) - 1);
}

static void test_public(void **state)
{
    symm_job_info info = {.size = sizeof(info)};

    (void)state;
    set_environment(TORCHRUN);
    assert_int_equal(symm_job_detect(&info), SYMM_OK);
    assert_int_equal(info.rank, 5);
    assert_int_equal(info.world_size, 8);
    assert_int_equal(info.local_rank, 1);
    assert_int_equal(info.local_size, 4);
    assert_string_equal(info.source, "torchrun");
    info.size = 4;
    assert_int_equal(symm_job_detect(&info), SYMM_ERR_INVALID);
    assert_int_equal(symm_job_detect(NULL), SYMM_ERR_INVALID);
}

/* Two processes alone never mean the same job; one process always does. */
static void test_single_key(void **state)
{
    struct symm_job one, two, child = {0};
    int ends[2];
    pid_t pid;

    (void)state;
    set_environment("");
    assert_int_equal(symm__job_detect(&one), SYMM_OK);
    assert_int_equal(symm__job_detect(&two), SYMM_OK);
    assert_string_equal(one.key, two.key);
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0)
        _exit(symm__job_detect(&two) != SYMM_OK ||
              write(ends[1], &two, sizeof(two)) != (ssize_t)sizeof(two));
    assert_int_equal(read(ends[0], &child, sizeof(child)), (ssize_t)sizeof(child));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_not_equal(one.key, child.key);
    close(ends[0]);
    close(ends[1]);
}

/* The manager is whoever made the socket pair; not a byte goes over it. */
static void test_pmi_manager(void **state)
{
    char environment[200], pid[40], byte;
    struct symm_job job;
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(environment, sizeof(environment),
             "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 PMI_FD=%d",
             ends[0]);
    set_environment(environment);
    assert_int_equal(symm__job_detect(&job), SYMM_OK);
    assert_string_equal(job.source, "pmi");
    snprintf(pid, sizeof(pid), "manager=%ld start=", (long)getpid());
    assert_non_null(strstr(job.key, pid));
    assert_int_equal(recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
    close(ends[0]);
    close(ends[1]);
    /* A descriptor that is no socket leads nowhere. */
    assert_int_equal(pipe(ends), 0);
    snprintf(environment, sizeof(environment),
             "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 PMI_FD=%d",
             ends[0]);
    set_environment(environment);
    assert_int_equal(symm__job_detect(&job), SYMM_ERR_JOB);
    assert_non_null(strstr(symm_last_error(), "process manager"));
    close(ends[0]);
    close(ends[1]);
}

/* A secret must be in a regular file: opening a pipe without a writer would block for ever. */
static void test_secret_pipe(void **state)
{
    char folder[64], environment[200];
    struct symm_job job;

    (void)state;
    harness_directory(folder, sizeof(folder));
    snprintf(environment, sizeof(environment),
             "SYMM_RANK=0 SYMM_WORLD_SIZE=1 SYMM_LOCAL_RANK=0 SYMM_LOCAL_WORLD_SIZE=1 "
             "SYMM_JOB_ID=a SYMM_JOB_SECRET_FILE=%s/pipe",
             folder);
    set_environment(environment);
    assert_int_equal(mkfifo(getenv("SYMM_JOB_SECRET_FILE"), 0600), 0);
    alarm((unsigned)HARNESS_SOON);
    assert_int_equal(symm__job_detect(&job), SYMM_ERR_JOB);
    alarm(0);
    assert_non_null(strstr(symm_last_error(), "must be a file of this user"));
    harness_remove(folder);
}

/* Where rank 0 listens, by the host's name or address and by Slurm's list of nodes. */
static void test_root(void **state)
{
    static const struct {
        const char *host, *root;
    } cases[] = {
        {"SYMM_BOOTSTRAP_ADDR=node0", "node0:29501"},
        {"SYMM_BOOTSTRAP_ADDR=fd00::2", "[fd00::2]:29501"},
        {"SYMM_BOOTSTRAP_ADDR=[fd00::2]", "[fd00::2]:29501"},
        {"SLURM_STEP_NODELIST=node1", "node1:29501"},
        {"SLURM_STEP_NODELIST=b,a", "b:29501"},
        {"SLURM_STEP_NODELIST=node[01-04,07]-ib,login1", "node01-ib:29501"},
        {"SLURM_STEP_NODELIST=rack[2-3]n[10-12]", "rack2n10:29501"},
        {"SLURM_STEP_NODELIST=rack[2,4]n[3,5]x,y", "rack2n3x:29501"},
        {"SLURM_STEP_NODELIST=open[7", "open7:29501"},
    };
    char environment[300];
    struct symm_job job;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(environment, sizeof(environment),
                 "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_JOB_ID=7 "
                 "SLURM_STEP_ID=0 SLURM_TASKS_PER_NODE=2(x2) SLURM_NODEID=0 "
                 "SYMM_BOOTSTRAP_PORT=29501 %s",
                 cases[i].host);
        set_environment(environment);
        if (symm__job_detect(&job) != SYMM_OK)
            fail_msg("%s: %s", cases[i].host, symm_last_error());
        assert_string_equal(job.root, cases[i].root);
    }
}

static int show(void)
{
    struct symm_job job;

    if (symm__job_detect(&job) != SYMM_OK) {
        printf("%s\n", symm_last_error());
        return 1;
    }
    printf("%s %d/%d %d/%d key=%s\n", job.source, job.rank, job.size, job.local_rank,
           job.local_size, job.key);
    fflush(stdout);
    /* The ranks end at different times: that must not look like a failure. */
    usleep(100000u * (useconds_t)job.rank);
    printf("%s %d ends\n", job.source, job.rank);
    return 0;
}

/* Runs two ranks of this program; checks what they say, and returns their key. */
static void run_launcher(const char *command, const char *source, char *key)
{
    char self[4096], line[1024], text[64];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    bool seen[2] = {false, false};
    int ended = 0;
    FILE *pipe;

    assert_true(length > 0);
    self[length] = '\0';
    snprintf(line, sizeof(line), "%s %.800s --show 2>&1", command, self);
    pipe = popen(line, "re");
    assert_non_null(pipe);
    key[0] = '\0';
    while (fgets(line, sizeof(line), pipe)) {
        char *found = strstr(line, "key=");

        for (int rank = 0; rank < 2; rank++) {
            snprintf(text, sizeof(text), "%s %d/2 %d/2 ", source, rank, rank);
            seen[rank] = seen[rank] || strstr(line, text);
            snprintf(text, sizeof(text), "%s %d ends", source, rank);
            ended += strstr(line, text) != NULL;
        }
        if (!found)
            continue;
        if (key[0])
            assert_string_equal(key, found);
        snprintf(key, 1024, "%s", found);
    }
    length = pclose(pipe);
    if (!seen[0] || !seen[1] || ended != 2 || length != 0)
        fail_msg("%s: status %zd, last line '%s'", command, length, line);
}

/* The launchers' own variables, and two jobs with two names. */
static void test_real_launchers(void **state)
{
    static const struct {
        const char *program, *command, *source;
    } launchers[] = {
        {"mpirun.openmpi", "mpirun.openmpi --oversubscribe -n 2", "openmpi"},
        {"mpirun.mpich", "mpirun.mpich -n 2", "pmi"},
        /* Also with a program between the manager and the rank. */
        {"mpirun.mpich", "mpirun.mpich -n 2 sh -c '\"$0\" \"$@\"; exit $?'", "pmi"},
    };
    int ran = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        char command[256], first[1024], second[1024];

        set_environment("PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp "
                        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
        snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1",
                 launchers[i].program);
        if (system(command) != 0)
            continue;
        run_launcher(launchers[i].command, launchers[i].source, first);
        run_launcher(launchers[i].command, launchers[i].source, second);
        assert_string_not_equal(first, second);
        ran++;
    }
    if (ran == 0)
        skip();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),           cmocka_unit_test(test_bad),
        cmocka_unit_test(test_each_missing),   cmocka_unit_test(test_secret_and_store),
        cmocka_unit_test(test_long_key),       cmocka_unit_test(test_public),
        cmocka_unit_test(test_single_key),     cmocka_unit_test(test_pmi_manager),
        cmocka_unit_test(test_root),           cmocka_unit_test(test_secret_pipe),
        cmocka_unit_test(test_real_launchers),
    };

    if (argc > 1 && strcmp(argv[1], "--show") == 0)
        return show();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
