/* SPDX-License-Identifier: MIT */
/*
 * start_program.c - starts a job of many ranks on this machine by symm_init, and says how long it took.
 *
 *     start_program HOSTS RANKS [SPLIT]
 *
 * HOSTS processes play a host each; their RANKS threads are ranks that find each other by sockets,
 * as processes would. Rank 0's host listens at a free port, and the hosts join by it. With SPLIT
 * != 0 the world is split once by place on the host and once by host. No rank ends before all have
 * started. Prints one line: ranks, seconds of the slowest symm_init, seconds of all, seconds of the
 * processors until all have started and in all, and the largest resident memory of a process beside
 * the pads that its ranks share (KiB a rank). Exits with 1 if any rank fails.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "symm/symm.h"

#define LOCAL_MOST 64
#define HOSTS_MOST 4096

struct shared {
    double slowest, used; /* seconds: a symm_init's; of the processors to start */
    long anonymous;       /* KiB, of the largest process */
    int failed, ready;
    pthread_mutex_t lock;
    pthread_barrier_t begin, started; /* of the processes; begin: and their parent */
};

static struct shared *shared;
static int hosts, ranks, split, host;
static pthread_barrier_t ended;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long anonymous_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

static int check_split(symm_ctx *ctx, int rank)
{
    symm_team *place = NULL, *own = NULL, *world = symm_team_world(ctx);
    int bad = symm_team_split(world, rank % ranks, rank, &place) != SYMM_OK ||
              symm_team_split(world, rank / ranks, rank, &own) != SYMM_OK;

    if (bad)
        fprintf(stderr, "rank %d: %s\n", rank, symm_last_error());
    bad = bad || symm_team_size(place) != hosts || symm_team_size(own) != ranks ||
          symm_team_rank(place) != rank / ranks || symm_team_rank(own) != rank % ranks;
    symm_team_destroy(own);
    symm_team_destroy(place);
    return bad;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double used(int who)
{
    struct rusage usage;

    getrusage(who, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/* By one rank of each host, when the others wait. */
static void all_started(void)
{
    pthread_mutex_lock(&shared->lock);
    shared->used += used(RUSAGE_SELF);
    pthread_mutex_unlock(&shared->lock);
    pthread_barrier_wait(&shared->started);
}

static void *run_rank(void *arg)
{
    int local = (int)(size_t)arg, rank = host * ranks + local, bad;
    symm_config config = {.size = sizeof(config),
                          .backend = "host",
                          .world_size = hosts * ranks,
                          .rank = rank,
                          .local_rank = local,
                          .local_size = ranks,
                          .job_id = getenv("START_JOB"),
                          .heap_bytes = (size_t)64 << 20,
                          .team_bytes = (size_t)4 << 20,
                          .timeout = 100,
                          .init_timeout = 100};
    symm_ctx *ctx = NULL;
    double start = now(), took;

    bad = symm_init(&config, &ctx) != SYMM_OK;
    took = now() - start;
    if (bad)
        fprintf(stderr, "rank %d: %s\n", rank, symm_last_error());
    bad = bad || (split && check_split(ctx, rank));
    pthread_mutex_lock(&shared->lock);
    shared->failed += bad;
    if (took > shared->slowest)
        shared->slowest = took;
    if (anonymous_kib() > shared->anonymous)
        shared->anonymous = anonymous_kib();
    pthread_mutex_unlock(&shared->lock);
    if (pthread_barrier_wait(&ended) == PTHREAD_BARRIER_SERIAL_THREAD)
        all_started();
    pthread_barrier_wait(&ended);
    symm_finalize(ctx);
    return NULL;
}

static int run_host(void)
{
    pthread_t thread[LOCAL_MOST];
    char name[16], folder[64];

    snprintf(name, sizeof(name), "host%d", host);
    setenv("SYMM_HOST_ID", name, 1);
    snprintf(folder, sizeof(folder), "%s/%d", getenv("START_DIR"), host);
    if (mkdir(folder, 0700) != 0)
        return 1;
    setenv("SYMM_RUNTIME_DIR", folder, 1); /* hosts have no folder in common */
    pthread_barrier_init(&ended, NULL, (unsigned)ranks);
    pthread_barrier_wait(&shared->begin);
    for (int i = 0; i < ranks; i++)
        if (pthread_create(&thread[i], NULL, run_rank, (void *)(size_t)i) != 0) {
            fprintf(stderr, "host %d cannot start rank %d\n", host, i);
            return 1;
        }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    rmdir(folder);
    return 0;
}

/* Below those that the kernel gives to the listeners of other hosts. */
static int free_port(void)
{
    for (int i = 0; i < 1000; i++) {
        const int port = 10000 + ((int)getpid() + 37 * i) % 20000;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_ANY)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;

        if (fd >= 0)
            close(fd);
        if (is_free)
            return port;
    }
    return 0;
}

static void share(void)
{
    pthread_mutexattr_t mutex;
    pthread_barrierattr_t barrier;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &mutex);
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->begin, &barrier, (unsigned)hosts + 1);
    pthread_barrier_init(&shared->started, &barrier, (unsigned)hosts);
}

/* The other hosts would wait for one that has ended. */
static int end_all(const pid_t *child, int count, const char *why)
{
    fprintf(stderr, "%s\n", why);
    for (int i = 0; i < count; i++)
        kill(child[i], SIGKILL);
    return 1;
}

int main(int argc, char **argv)
{
    char text[32];
    double start;
    pid_t child[HOSTS_MOST];
    int status;

    hosts = argc > 2 ? atoi(argv[1]) : 0;
    ranks = argc > 2 ? atoi(argv[2]) : 0;
    split = argc > 3 ? atoi(argv[3]) : 0;
    if (hosts < 1 || hosts > HOSTS_MOST || ranks < 1 || ranks > LOCAL_MOST) {
        fprintf(stderr, "usage: start_program HOSTS RANKS [SPLIT]\n");
        return 2;
    }
    snprintf(text, sizeof(text), "%d", free_port());
    setenv("SYMM_BOOTSTRAP_PORT", text, 1);
    setenv("SYMM_BOOTSTRAP_ADDR", "127.0.0.1", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_JOB_SECRET", "00112233445566778899aabbccddeeff", 1);
    setenv("SYMM_ENGINE", "none", 1);
    snprintf(text, sizeof(text), "start-%d", (int)getpid());
    setenv("START_JOB", text, 1);
    snprintf(text, sizeof(text), "/tmp/symm-start-XXXXXX");
    if (!mkdtemp(text))
        return 1;
    setenv("START_DIR", text, 1);
    share();
    for (host = 0; host < hosts; host++) {
        child[host] = fork();
        if (child[host] == 0)
            _exit(run_host());
        if (child[host] < 0)
            return end_all(child, host, "a host cannot be started");
    }
    pthread_barrier_wait(&shared->begin);
    start = now();
    while (wait(&status) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return end_all(child, hosts, "a host has failed");
    rmdir(text);
    printf("%d ranks on %d hosts: %.2f s the slowest symm_init, %.2f s in all, %ld KiB "
           "of own memory a rank, %.2f s of the processors to start, %.2f in all\n",
           hosts * ranks, hosts, shared->slowest, now() - start,
           shared->anonymous / ranks, shared->used, used(RUSAGE_CHILDREN));
    return shared->failed != 0;
}
