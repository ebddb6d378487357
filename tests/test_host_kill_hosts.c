/* SPDX-License-Identifier: MIT */
/*
 * test_host_kill_hosts.c - one rank of a job over three hosts is killed at a random moment of each
 * phase of the job's life: see kill.h. The ranks of one machine play the hosts, and find each
 * other by rank 0's port as those of several machines do.
 * ctest: cost 15
 * ctest: sanitize-long
 *
 * SYMM_TEST_LONG=1: 50 kills of each phase instead of 4; SYMM_TEST_KILLS=N: N.
 */
#include "kill.h"
#include "kill_stage.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SYMM_FAKE_ENGINE
#define SYMM_FAKE_ENGINE ""
#endif

#define RANKS 6

/* Rank 0's port: a free one below those that the kernel gives the hosts' relays. */
static void choose_port(void)
{
    static uint64_t random;
    int port, bound = -1;
    char text[16];

    if (random == 0)
        random = (uint64_t)getpid();
    for (int i = 0; i < 100 && bound != 0; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        port = 10000 + (int)(harness_random(&random) % 20000);
        at.sin_port = htons((uint16_t)port);
        bound = bind(fd, (const struct sockaddr *)&at, sizeof(at));
        close(fd);
    }
    snprintf(text, sizeof(text), "%d", port);
    setenv("SYMM_BOOTSTRAP_PORT", text, 1);
}

/* Hosts of 2, 1 and 3 ranks. */
static const char *const host_names[RANKS] = {"first", "first", "second",
                                              "third", "third", "third"};

static const char *host_of(int rank)
{
    return host_names[rank];
}

static void place_rank(symm_config *config, int rank)
{
    config->local_rank = config->local_size = 0;
    for (int r = 0; r < RANKS; r++)
        if (strcmp(host_of(r), host_of(rank)) == 0) {
            config->local_rank += r < rank;
            config->local_size++;
        }
    setenv("SYMM_HOST_ID", host_of(rank), 1);
}

static const struct kill_phase phases[] = {
    {"init", KILL_INIT, KILL_ENGINE, 0, NULL, NULL},
    {"split", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_split_once, NULL},
    {"rendezvous", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_rendezvous_once, NULL},
    {"collectives", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_collective_once, NULL},
    {"streams", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_stream_once, NULL},
    {"an engine", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_engine_once, NULL},
    {"finalize", KILL_FINALIZE, KILL_ENGINE, 0, NULL, NULL},
};

int main(void)
{
    const struct kill_suite suite = {.ranks = RANKS,
                                     .kills = harness_env("SYMM_TEST_LONG", 0) ? 50 : 4,
                                     .stage_bytes = sizeof(struct kill_stage),
                                     .engine = SYMM_FAKE_ENGINE,
                                     .engine_always = true,
                                     .before = choose_port,
                                     .configure = place_rank,
                                     .host = host_of,
                                     .open = kill_stage_open,
                                     .close = kill_stage_close};
    char folder[64];
    int failed;

    if (access(SYMM_FAKE_ENGINE, R_OK) != 0)
        return 77;
    harness_directory(folder, sizeof(folder));
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    setenv("SYMM_BOOTSTRAP_ADDR", "127.0.0.1", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_JOB_SECRET", "00112233445566778899aabbccddeeff", 1);
    failed = kill_main(&suite, phases, sizeof(phases) / sizeof(phases[0]));
    harness_remove(folder);
    return failed;
}
