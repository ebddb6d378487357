/* SPDX-License-Identifier: MIT */
/*
 * lossy_program.c - a network between two network namespaces that delays and loses packets.
 *
 *     lossy_program PID DELAY_MS LOST_PER_MILLE SEED
 *
 * Makes a TUN device t0 in its own namespace and one in that of process PID, and carries each packet
 * from one to the other DELAY_MS later, but for some, which a generator of SEED chooses. Prints
 * "ready" once the devices are there; whoever started it gives them addresses. Ends by SIGTERM,
 * and says what it has carried and lost. Exits with 77 where it may not make the devices.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PACKETS 8192 /* on their way, each direction; more are lost */
#define MOST    2048 /* bytes of a packet */

struct packet {
    double due;
    size_t bytes;
    unsigned char data[MOST];
};

/* Packets from one device to the other, in order. */
struct way {
    struct packet *ring; /* [PACKETS] */
    unsigned long in, out;
};

static volatile sig_atomic_t ended;
static unsigned long carried, lost;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int open_tun(void)
{
    struct ifreq wanted = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    memcpy(wanted.ifr_name, "t0", 3);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &wanted) == 0)
        return fd;
    perror("lossy_program: a TUN device");
    exit(77);
}

static void take(int fd, struct way *way, double delay, uint64_t lose, uint64_t *random)
{
    for (;;) {
        struct packet *packet = &way->ring[way->in % PACKETS];
        ssize_t bytes;

        if (way->in - way->out == PACKETS) { /* no room: as a router that is full */
            unsigned char none[MOST];

            if (read(fd, none, sizeof(none)) < 0)
                return;
            lost++;
            continue;
        }
        bytes = read(fd, packet->data, sizeof(packet->data));
        if (bytes < 0)
            return;
        if (next(random) % 1000 < lose) {
            lost++;
            continue;
        }
        packet->bytes = (size_t)bytes;
        packet->due = now() + delay;
        way->in++;
    }
}

static void give(int fd, struct way *way)
{
    while (way->out < way->in && way->ring[way->out % PACKETS].due <= now()) {
        const struct packet *packet = &way->ring[way->out % PACKETS];

        if (write(fd, packet->data, packet->bytes) < 0 && errno == EAGAIN)
            return;
        carried++;
        way->out++;
    }
}

static double due(const struct way *way, double before)
{
    double at = way->ring[way->out % PACKETS].due;

    return way->out < way->in && at < before ? at : before;
}

int main(int argc, char **argv)
{
    struct way ways[2];
    int fd[2], other;
    char path[64];
    uint64_t random, lose;
    double delay;

    if (argc != 5) {
        fprintf(stderr, "usage: lossy_program PID DELAY_MS LOST_PER_MILLE SEED\n");
        return 2;
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/net", atoi(argv[1]));
    delay = atof(argv[2]) * 1e-3;
    lose = strtoull(argv[3], NULL, 10);
    random = strtoull(argv[4], NULL, 10);
    signal(SIGTERM, end);
    fd[0] = open_tun();
    other = open(path, O_RDONLY | O_CLOEXEC);
    if (other < 0 || setns(other, CLONE_NEWNET) != 0) {
        perror("lossy_program: the other namespace");
        return 77;
    }
    fd[1] = open_tun();
    for (int i = 0; i < 2; i++) {
        ways[i] = (struct way){.ring = malloc(PACKETS * sizeof(struct packet))};
        if (!ways[i].ring)
            return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (!ended) {
        struct pollfd polls[2] = {{.fd = fd[0], .events = POLLIN},
                                  {.fd = fd[1], .events = POLLIN}};
        double span = due(&ways[0], due(&ways[1], now() + 0.2)) - now();
        struct timespec wait = {.tv_nsec = span > 0 ? (long)(span * 1e9) : 0};

        (void)ppoll(polls, 2, &wait, NULL);
        for (int i = 0; i < 2; i++) {
            take(fd[i], &ways[i], delay, lose, &random);
            give(fd[1 - i], &ways[i]);
        }
    }
    printf("carried %lu, lost %lu\n", carried, lost);
    return 0;
}
