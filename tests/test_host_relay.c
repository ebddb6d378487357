/* SPDX-License-Identifier: MIT */
/*
 * test_host_relay.c - relays as real processes of one machine: exchanges of all sizes, strangers,
 * lost connections, an exchange that failed on one rank alone, wrong secrets, what an idle relay
 * costs, and a peer that lies.
 */
/* ctest: cost 7 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "net/auth.h"
#include "net/seqpacket.h"
#include "net/tcp.h"
#include "relay/message.h"
#include "relay_stage.h"

#include <cmocka.h>

static const uint8_t bad_key[SYMM_SIPHASH_KEY] = "0123456789abcdX";

/* ---- Exchanges, strangers, lost connections ------------------------------------------------ */

enum { MIXED, SILENT, NOISE, HANDSHAKES, PARTS, KINDS };

/* 400 connections; those that are not closed go with this process. */
static void strangers_come(const struct job *job)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = job->at[0].port};
    struct { /* as a relay's handshake begins */
        uint32_t magic, version, from, to;
        uint8_t rest[24];
    } handshake = {htonl(0x53594d52u), htonl(1), htonl(1), 0, {0}};
    static const char noise[200] = "GET / HTTP/1.0\r\n\r\n";

    memcpy(&to.sin_addr, job->at[0].bytes, 4);
    for (int i = 0; i < 400; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int kind = job->kind == MIXED ? i % KINDS : job->kind;
        size_t part = 1 + (size_t)i % (sizeof(handshake) - 1);

        (void)!connect(fd, (struct sockaddr *)&to, sizeof(to));
        handshake.from = htonl((uint32_t)(i % 4));
        handshake.rest[i % 24]++;
        if (kind == NOISE)
            (void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
        else if (kind == HANDSHAKES || kind == PARTS)
            (void)!send(fd, &handshake, kind == PARTS ? part : sizeof(handshake),
                        MSG_NOSIGNAL);
        if (job->kind == MIXED && i % 2 == 0)
            close(fd);
    }
    symm__sleep(0.2);
}

static int lost; /* messages until the connection ends; 0: it stays */

/* Before one of the messages the connection is cut, on both sides. */
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    if (lost > 0 && --lost == 0)
        shutdown(fd, SHUT_RDWR);
    return sendto(fd, data, bytes, flags, NULL, 0);
}

static int body_exchange(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0;

    if (rank >= job->ranks) {
        job_free_fds(job);
        strangers_come(job);
        result->ended = true;
        _exit(0); /* its sockets go with it */
    }
    lost = job->host_of[rank] == 1 ? job->lost : 0;
    PLANE_CHECK(side_open(&side, rank, job, rank == job->odd ? bad_key : good_key) ==
                0);
    for (int i = 0; i < 3 && leads(&side) && result->status == SYMM_OK; i++) {
        double start = symm__now();

        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
        result->seconds = symm__now() - start;
        PLANE_CHECK(code == 0);
    }
    for (int r = 0; r < job->ranks && job->odd < 0; r++)
        PLANE_CHECK(symm__relay_state(side.relay, r) != SYMM_RELAY_DIED);
    side_close(&side);
    return 0;
}

static void assert_all_met(const struct job *job)
{
    for (int r = 0; r < job->ranks; r++)
        if (job->plane.results[r].status != SYMM_OK)
            fail_msg("rank %d: %s", r, job->plane.results[r].error);
}

static void test_connect(void **state)
{
    static const char *const hosts[] = {"ab", "abcd", "aabb", "abab"};
    struct job job;

    (void)state;
    for (int i = 0; i < 4; i++) {
        job_open(&job, hosts[i]);
        job.strangers = 2 * (i > 1);
        job_run(&job, body_exchange);
        assert_all_met(&job);
        job_close(&job);
    }
}

/* However many strangers come first, and whatever they say, the hosts meet. */
static void test_strangers(void **state)
{
    struct job job;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job_open(&job, "aabb");
        job.strangers = 3;
        job.kind = kind;
        job_run(&job, body_exchange);
        assert_all_met(&job);
        job_close(&job);
    }
}

/* A connection may be lost at any message: the higher host comes again. */
static void test_lost_connections(void **state)
{
    struct job job;

    (void)state;
    for (int message = 1; message <= 16; message++) {
        job_open(&job, message % 2 ? "ab" : "abc");
        job.lost = message;
        job_run(&job, body_exchange);
        assert_all_met(&job);
        job_close(&job);
    }
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {1, 4000, 33 << 10, HARNESS_TSAN ? 500000 : 5000000};
    struct job job;

    (void)state;
    for (int i = 0; i < 4; i++) {
        job_open(&job, "aabcc");
        job.bytes = sizes[i];
        job_run(&job, body_exchange);
        assert_all_met(&job);
        job_close(&job);
    }
}

/* Rank 1's step on its host has failed, after which its host's leader has completed the exchange with
 * the other hosts. Kind 1: then the leader has gone, so rank 1 serves. */
static int body_went(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    struct symm_relay_exchange x = {.what = "split (world)", .tag = 5};
    struct symm_relay_result none;
    int code = 0;

    PLANE_CHECK(side_meet(&side, rank, job, result, &code) == 0);
    if (rank == 1) {
        x.leaders = side.leaders;
        x.hosts = job->hosts;
        x.start = symm__now();
        x.failed = symm__fail(SYMM_ERR_PEER_DEAD, "rank 7 died");
        plane_note(result, symm__relay_exchange(side.relay, &x, &none));
        result->seconds = symm__now() - x.start;
        atomic_store(&job->shared->over, 1);
    }
    if (job->kind == 0 || rank == 2)
        PLANE_CHECK(await(&job->shared->over, 1) == 0);
    side_close(&side);
    return 0;
}

/* It is told that the exchange is over, and does not wait the second that a verdict may take. */
static void test_went(void **state)
{
    struct job job;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        double best = HARNESS_SOON;

        for (int try = 0; try < 5 && best > 0.5; try++) {
            job_open(&job, "aab");
            job.kind = kind;
            job_run(&job, body_went);
            assert_error(&job, 1, SYMM_ERR_PEER_DEAD, "rank 7 died");
            if (job.plane.results[1].seconds < best)
                best = job.plane.results[1].seconds;
            job_close(&job);
        }
        assert_true(best <= 0.5);
    }
}

static void test_wrong_secret(void **state)
{
    struct job job;
    double seconds;

    (void)state;
    HARNESS_PATIENCE(seconds, 1)
    {
        bool said;

        job_open(&job, "ab");
        job.odd = 1;
        job.timeout = seconds;
        job_run(&job, body_exchange);
        said = job.plane.results[1].status == SYMM_ERR_REFUSED &&
               strstr(job.plane.results[0].error, "connections were refused");
        if (said) {
            assert_error(&job, 1, SYMM_ERR_REFUSED, "does not know the job's secret");
            assert_error(&job, 0, SYMM_ERR_TIMEOUT, "rank 1 (host host-b)");
        }
        job_close(&job);
        if (said)
            break;
    }
    assert_true(seconds <= HARNESS_SOON);
}

/* ---- Idle ------------------------------------------------------------------------------------ */

static double cpu_seconds(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Kind 1: the host above is there, and never answers. */
static int body_idle(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0;
    double before;

    if (job->kind == 1 && rank == 0) {
        PLANE_CHECK(await(&job->shared->over, job->ranks - 1) == 0);
        job_free_fds(job);
        return 0;
    }
    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (leads(&side) && job->kind == 0)
        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
    symm__sleep(0.3);
    before = cpu_seconds();
    symm__sleep(1);
    result->seconds = cpu_seconds() - before;
    atomic_fetch_add(&job->shared->over, 1);
    PLANE_CHECK(await(&job->shared->over, job->ranks - (job->kind == 1)) == 0);
    side_close(&side);
    return 0;
}

static void test_idle(void **state)
{
    struct job job;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        double worst = 0;

        job_open(&job, "aabbc");
        job.kind = kind;
        if (kind == 1) {
            job_close(&job);
            job_free_fds(&job);
            job_open(&job, "abc");
            job.kind = kind;
        }
        job_run(&job, body_idle);
        for (int r = 0; r < job.ranks; r++)
            if (job.plane.results[r].seconds > worst)
                worst = job.plane.results[r].seconds;
        job_close(&job);
        print_message("idle, %s: %.1f ms a second\n",
                      kind ? "not connected" : "connected", worst * 1e3);
        if (!HARNESS_SLOW)
            assert_true(worst < 0.05);
    }
}

/* ---- A peer that lies ---------------------------------------------------------------------- */

/* A connection to host 0 as host 1, which knows the key; NULL: refused. */
static struct symm_tcp *connect_as(const struct job *job, int *fd)
{
    struct symm_auth_protocol protocol = {
        .magic = 0x53594d52u, .version = 1, .key = good_key};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = job->at[0].port};
    uint8_t key[SYMM_SIPHASH_KEY];
    struct symm_auth auth;
    enum symm_auth_said said = SYMM_AUTH_WAIT;

    memcpy(&to.sin_addr, job->at[0].bytes, 4);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(*fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        fcntl(*fd, F_SETFL, O_NONBLOCK) != 0 ||
        !symm__auth_ask(&protocol, &auth, *fd, 1, 0))
        return NULL;
    for (double until = symm__now() + HARNESS_SOON;
         said == SYMM_AUTH_WAIT && symm__now() < until;) {
        (void)symm__seqpacket_wait(*fd, POLLIN, until);
        said = symm__auth_hear(&protocol, &auth, *fd);
    }
    if (said != SYMM_AUTH_DONE)
        return NULL;
    symm__auth_key(&protocol, &auth, key);
    return symm__tcp_create(*fd, key, true);
}

/* A message that is almost right: one or more of its fields are not. */
static struct symm_relay_message *lie(uint64_t *random, size_t *held)
{
    uint64_t draw = harness_random(random);
    int leaders = 2 + (int)(draw % 2);
    size_t bytes = 16 + 8 * (draw / 4 % 40);
    struct symm_relay_message *message = symm__relay_message(
        (enum symm_relay_kind)(1 + draw / 256 % SYMM_RELAY_KINDS), bytes);
    struct {
        uint32_t place, unused;
        uint64_t bytes;
    } record = {.place = (uint32_t)(draw / 65536 % 4), .bytes = 8};

    *held = bytes;
    memset(message->data, 0, bytes);
    for (int i = 0; i < leaders; i++) /* world ranks: a host each */
        ((int32_t *)(void *)message->data)[i] = i;
    memcpy(message->data + 16, &record, bytes >= 32 ? sizeof(record) : 0);
    message->head.tag = 5 + draw / 7 % 2;
    message->head.sequence = (uint32_t)(draw / 11 % 4);
    message->head.leaders = (uint32_t)leaders;
    message->head.from = (int32_t)(draw / 13 % 5) - 1;
    message->head.rank = (int32_t)(draw / 17 % 5) - 1;
    message->head.status = (int32_t)(draw / 19 % 30);
    for (int i = (int)(harness_random(random) % 3); i > 0; i--) {
        uint64_t where = harness_random(random) % (sizeof(message->head) + bytes);
        uint8_t *at = where < sizeof(message->head)
                          ? (uint8_t *)&message->head + where
                          : message->data + where - sizeof(message->head);

        *at = (uint8_t)harness_random(random);
    }
    return message;
}

static void tell_lies(const struct job *job)
{
    const int count = !HARNESS_FEW ? 1500 : HARNESS_TSAN ? 100 : 200;
    uint64_t random = 1;

    for (int i = 0; i < count; i++) {
        int fd;
        struct symm_tcp *tcp = connect_as(job, &fd);

        for (int k = 0; k < 12 && tcp; k++) {
            size_t held;
            struct symm_relay_message *message = lie(&random, &held);
            uint64_t sent = message->head.bytes < held ? message->head.bytes : held;
            struct iovec parts[2] = {{&message->head, sizeof(message->head)},
                                     {message->data, (size_t)sent}};

            if (symm__tcp_send(tcp, parts, 2, symm__now() + 1) != SYMM_SEQPACKET_OK)
                k = 12;
            message->head.bytes = 0;
            symm__relay_drop(message);
        }
        symm__tcp_destroy(tcp);
        close(fd);
    }
}

/* Host 1 is the liar. The relays of the others survive it, and their calls end. */
static int body_lies(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0;

    if (rank == 1) {
        tell_lies(job);
        atomic_store(&job->shared->over, 1);
        job_free_fds(job);
        return 0;
    }
    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    while (atomic_load(&job->shared->over) == 0) {
        double start = symm__now();

        plane_note(result, allgather(&side, side.leaders, job->hosts, 0.05, &code));
        PLANE_CHECK(symm__now() - start < HARNESS_SOON);
    }
    side_close(&side);
    return 0;
}

static void test_lies(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, "abc");
    job_run(&job, body_lies);
    for (int r = 0; r < 3; r++)
        assert_true(job.plane.results[r].ended);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_lost_connections),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_went),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
