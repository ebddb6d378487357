/* SPDX-License-Identifier: MIT */
/*
 * test_host_relay.c - relays as real processes of one machine: exchanges of all sizes, strangers,
 * lost connections, wrong secrets, hosts that are missing or cannot be reached, relays that die,
 * stop or finalize, deaths of ranks and hosts, the end of a job, and a peer that lies.
 *
 * The ranks of a test share no library state: each opens its relay over listeners and socket pairs
 * that were made before the fork.
 */
/* ctest: cost 30 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "net/auth.h"
#include "net/seqpacket.h"
#include "net/tcp.h"
#include "oob/forks.h"
#include "plane.h"
#include "relay/message.h"
#include "relay/relay.h"
#include "relay/tree.h"

#include <cmocka.h>

#define RANKS_MAX 44
#define NOBODY    (-1)

static const uint8_t good_key[SYMM_SIPHASH_KEY] = "0123456789abcde";
static const uint8_t bad_key[SYMM_SIPHASH_KEY] = "0123456789abcdX";

/* What the ranks of a test share. */
struct shared {
    atomic_int ready, go, over;
    _Atomic double when;             /* something happened */
    _Atomic double seen[RANKS_MAX];  /* a rank saw it */
    _Atomic double ended[RANKS_MAX]; /* seconds that closing took */
};

struct job {
    int ranks, hosts, local_size[RANKS_MAX];
    int32_t host_of[RANKS_MAX];
    struct symm_relay_host at[RANKS_MAX];
    int listener[RANKS_MAX];
    int pair[RANKS_MAX][RANKS_MAX]; /* rank's end to a rank of its host; -1: none */
    int fds;
    int odd, strangers, kind, lost; /* of the tests */
    double timeout;
    int victim, other; /* other: of a host that dies at the same time */
    size_t bytes;
    struct shared *shared;
    struct plane plane;
};

/* One rank's view. */
struct side {
    struct job *job;
    int rank, local[RANKS_MAX], local_fd[RANKS_MAX];
    int32_t leaders[RANKS_MAX];
    struct symm_relay *relay;
    uint32_t sequence;
};

/* ---- Jobs ------------------------------------------------------------------------------ */

static void listen_at(struct job *job, int host)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct symm_address address = {.bytes = sizeof(any)};

    memcpy(&address.at, &any, sizeof(any));
    job->listener[host] = symm__address_listen(&address);
    assert_true(job->listener[host] >= 0);
    memcpy(&any, &address.at, sizeof(any));
    job->at[host].family = 4;
    job->at[host].port = any.sin_port;
    memcpy(job->at[host].bytes, &any.sin_addr, 4);
    snprintf(job->at[host].name, sizeof(job->at[host].name), "host-%c", 'a' + host);
}

/* hosts: a letter for each rank; new letters in order. */
static void job_open(struct job *job, const char *hosts)
{
    memset(job, 0, sizeof(*job));
    job->ranks = (int)strlen(hosts);
    job->odd = job->victim = job->other = NOBODY;
    job->timeout = HARNESS_AMPLE;
    job->bytes = 64;
    job->shared = plane_shared(sizeof(*job->shared));
    plane_open(&job->plane);
    for (int r = 0; r < job->ranks; r++) {
        job->host_of[r] = hosts[r] - 'a';
        if (job->host_of[r] == job->hosts)
            listen_at(job, job->hosts++);
        job->local_size[job->host_of[r]]++;
    }
    job->fds = job->hosts;
    for (int a = 0; a < job->ranks; a++)
        for (int b = a; b < job->ranks; b++) {
            int fd[2] = {-1, -1};

            if (a != b && job->host_of[a] == job->host_of[b]) {
                assert_int_equal(
                    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
                job->fds += 2;
            }
            job->pair[a][b] = fd[0];
            job->pair[b][a] = fd[1];
        }
    job->plane.given = job->fds;
}

static void job_free_fds(struct job *job)
{
    for (int h = 0; h < job->hosts; h++)
        if (job->listener[h] >= 0)
            close(job->listener[h]);
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++)
            if (job->pair[a][b] >= 0)
                close(job->pair[a][b]);
}

/* All ranks start; then this process holds no end of theirs. */
static void job_start(struct job *job, plane_body body)
{
    for (int r = 0; r < job->ranks + job->strangers; r++)
        plane_start(&job->plane, body, r, job);
    job_free_fds(job);
}

static void job_run(struct job *job, plane_body body)
{
    job_start(job, body);
    assert_int_equal(plane_wait(&job->plane), 0);
}

static void job_close(struct job *job)
{
    plane_close(&job->plane);
    munmap(job->shared, sizeof(*job->shared));
}

static int side_open(struct side *side, int rank, struct job *job, const uint8_t *key)
{
    int host = job->host_of[rank], count = 0;
    struct symm_relay_config config = {.rank = rank,
                                       .ranks = job->ranks,
                                       .host = host,
                                       .hosts = job->hosts,
                                       .host_of = job->host_of,
                                       .at = job->at,
                                       .local = side->local,
                                       .local_fd = side->local_fd,
                                       .listener = job->listener[host],
                                       .key = key};

    if (!getenv("RELAY_LOUD"))
        symm_log_sink(plane_quiet, NULL);
    memset(side, 0, sizeof(*side));
    side->job = job;
    side->rank = rank;
    for (int h = 0; h < job->hosts; h++)
        side->leaders[h] = NOBODY;
    for (int r = 0; r < job->ranks; r++) {
        if (job->host_of[r] == host) {
            side->local[count] = r;
            side->local_fd[count++] = job->pair[rank][r];
        }
        if (side->leaders[job->host_of[r]] < 0)
            side->leaders[job->host_of[r]] = r;
    }
    config.local_size = count;
    for (int h = 0; h < job->hosts; h++)
        if (h != host)
            close(job->listener[h]);
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++)
            if (a != rank && job->pair[a][b] >= 0)
                close(job->pair[a][b]);
    PLANE_CHECK(symm__relay_open(&config, &side->relay) == SYMM_OK);
    return 0;
}

/* As symm_finalize: the relay first, then the sockets by which others see the end. */
static void side_close(struct side *side)
{
    double start = symm__now();

    symm__relay_close(side->relay);
    atomic_store(&side->job->shared->ended[side->rank], symm__now() - start);
    for (int r = 0; r < side->job->ranks; r++)
        if (side->job->pair[side->rank][r] >= 0)
            close(side->job->pair[side->rank][r]);
}

static uint8_t byte_of(uint32_t sequence, int host, size_t i)
{
    return (uint8_t)(sequence * 7 + (uint32_t)host * 31 + i * 3 + i / 251);
}

/* An allgather of all hosts of `leaders`, its result checked. The bytes of hosts differ in number. */
static symm_status allgather(struct side *side, const int32_t *leaders, int hosts,
                             double timeout, int *code)
{
    const struct job *job = side->job;
    int host = job->host_of[side->rank];
    size_t bytes = job->bytes + (size_t)host;
    uint8_t *mine = malloc(bytes);
    double now = symm__now();
    struct symm_relay_exchange x = {.what = "split (world)",
                                    .tag = 5,
                                    .sequence = side->sequence++,
                                    .leaders = leaders,
                                    .hosts = hosts,
                                    .bytes = mine,
                                    .bytes_count = bytes,
                                    .start = now,
                                    .until = now + timeout};
    struct symm_relay_result result;
    symm_status status;

    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(x.sequence, host, i);
    status = symm__relay_exchange(side->relay, &x, &result);
    for (int p = 0; p < hosts && status == SYMM_OK; p++) {
        int from = job->host_of[leaders[p]];

        if (result.parts[p].bytes != job->bytes + (size_t)from)
            *code = __LINE__;
        for (size_t i = 0; i < result.parts[p].bytes && *code == 0; i++)
            if (result.parts[p].data[i] != byte_of(x.sequence, from, i))
                *code = __LINE__;
    }
    symm__relay_result_finish(&result);
    free(mine);
    return status;
}

static bool leads(const struct side *side)
{
    return side->leaders[side->job->host_of[side->rank]] == side->rank;
}

static int await(const atomic_int *counter, int wanted)
{
    for (double until = symm__now() + HARNESS_AMPLE; atomic_load(counter) < wanted;) {
        PLANE_CHECK(symm__now() < until);
        symm__sleep(0.0005);
    }
    return 0;
}

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
    static const size_t sizes[] = {1, 4000, 33 << 10, 5000000};
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

/* ---- Hosts that are not reached --------------------------------------------------------- */

static void assert_error(const struct job *job, int rank, symm_status status,
                         const char *text)
{
    const struct plane_result *result = &job->plane.results[rank];

    if (result->status != status || !strstr(result->error, text))
        fail_msg("rank %d: %s, \"%s\"; expected %s, \"%s\"", rank,
                 symm_status_name(result->status), result->error,
                 symm_status_name(status), text);
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

/* The victim does not come to the exchange, or is not reached: it or its host is named in time. */
static int body_missing(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0;
    double start;

    if (job->kind == 1 && rank == job->victim) { /* never answers */
        symm__relay_close(NULL);
        PLANE_CHECK(await(&job->shared->over, job->ranks - 1) == 0);
        job_free_fds(job);
        return 0;
    }
    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    start = symm__now();
    if (rank != job->victim) {
        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
        PLANE_CHECK(symm__now() - start < job->timeout + HARNESS_SOON);
        atomic_fetch_add(&job->shared->over, 1);
    }
    PLANE_CHECK(await(&job->shared->over, job->ranks - 1) == 0);
    side_close(&side);
    return 0;
}

static void test_missing(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, "abcdefghij");
    job.victim = 9; /* below host 1 */
    job.timeout = 1;
    job_run(&job, body_missing);
    for (int r = 0; r < 9; r++)
        assert_error(&job, r, SYMM_ERR_TIMEOUT, "rank 9 (host host-j)");
    job_close(&job);
    job_open(&job, "abc");
    job.victim = 0; /* it listens, and never answers */
    job.kind = 1;
    job.timeout = 1;
    job_run(&job, body_missing);
    for (int r = 1; r < 3; r++)
        assert_error(&job, r, SYMM_ERR_TIMEOUT, "host host-a at 127.0.0.1:");
    job_close(&job);
    job_open(&job, "abc");
    job.victim = 0; /* nobody listens where it is said to be */
    job.kind = 1;
    job.timeout = HARNESS_AMPLE;
    job.at[0].port = htons(1);
    job_run(&job, body_missing);
    for (int r = 1; r < 3; r++)
        assert_error(&job, r, SYMM_ERR_PEER_DEAD, "host host-a");
    job_close(&job);
}

/* The victim serves its host, and is stopped: the other rank of its host, which makes the exchange,
 * names it. */
static int body_stopped_relay(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int32_t team[2];
    int code = 0, members = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    for (int r = 0; r < job->ranks; r++)
        if (r != job->victim)
            team[members++] = r;
    if (rank == job->victim) {
        atomic_store(&job->shared->go, 1);
        kill(getpid(), SIGSTOP);
    } else {
        PLANE_CHECK(await(&job->shared->go, 2) == 0);
        plane_note(result, allgather(&side, team, 2, job->timeout, &code));
        atomic_fetch_add(&job->shared->over, 1);
    }
    PLANE_CHECK(await(&job->shared->over, 2) == 0);
    side_close(&side);
    return 0;
}

static void test_stopped_relay(void **state)
{
    static const char *const names[] = {
        "nor by way of rank 0 which one",
        "nor from rank 0 on host host-a by way of rank 1 which one"};
    struct job job;
    int stopped;

    (void)state;
    for (int below = 0; below < 2; below++) { /* the victim's host has not the root */
        job_open(&job, below ? "abb" : "aab");
        job.victim = below ? 1 : 0;
        job.timeout = 0.5;
        job_start(&job, body_stopped_relay);
        assert_int_equal(waitpid(job.plane.pids[job.victim], &stopped, WUNTRACED),
                         job.plane.pids[job.victim]);
        atomic_store(&job.shared->go, 2);
        for (double until = symm__now() + HARNESS_AMPLE;
             atomic_load(&job.shared->over) < 2 && symm__now() < until;)
            symm__sleep(0.0005);
        kill(job.plane.pids[job.victim], SIGCONT);
        assert_int_equal(plane_wait(&job.plane), 0);
        assert_error(&job, below ? 2 : 1, SYMM_ERR_TIMEOUT, names[below]);
        job_close(&job);
    }
}

/* ---- Relays that go ------------------------------------------------------------------------- */

enum { KILLED, FINALIZED, STOPPED };

/* The lowest rank of each host goes while the highest ones make exchanges. */
static int body_relay_goes(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int32_t team[RANKS_MAX];
    struct side side;
    int code = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    for (int r = 0; r < job->ranks; r++)
        team[job->host_of[r]] = r;
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    if (leads(&side)) {
        PLANE_CHECK(await(&job->shared->go, 1 + job->host_of[rank]) == 0);
        if (job->kind == KILLED)
            kill(getpid(), SIGKILL);
        if (job->kind == FINALIZED) {
            side_close(&side);
            return 0;
        }
    }
    for (int i = 0; i < 60 && team[job->host_of[rank]] == rank; i++) {
        plane_note(result, allgather(&side, team, job->hosts, HARNESS_AMPLE, &code));
        PLANE_CHECK(code == 0 && result->status == SYMM_OK);
        atomic_store(&job->shared->go, i / 10);
    }
    if (team[job->host_of[rank]] == rank)
        atomic_fetch_add(&job->shared->over, 1);
    PLANE_CHECK(await(&job->shared->over, job->hosts) == 0);
    side_close(&side);
    return 0;
}

static void test_relay_goes(void **state)
{
    struct job job;

    (void)state;
    for (int kind = KILLED; kind <= STOPPED; kind++)
        for (int try = 0; try < 3; try++) {
            job_open(&job, "aabbcc");
            job.kind = kind;
            job_start(&job, body_relay_goes);
            if (kind == STOPPED) {
                for (double until = symm__now() + HARNESS_AMPLE;
                     atomic_load(&job.shared->go) < 1 && symm__now() < until;)
                    symm__sleep(0.0005);
                kill(job.plane.pids[2 * try], SIGSTOP);
                symm__sleep(0.3);
                kill(job.plane.pids[2 * try], SIGCONT);
            }
            assert_int_equal(plane_wait(&job.plane), 0);
            job_close(&job);
        }
}

/* ---- Deaths ------------------------------------------------------------------------------- */

static bool is_victim(const struct job *job, int rank)
{
    return job->kind
               ? job->host_of[rank] == job->host_of[job->victim] ||
                     (job->other >= 0 && job->host_of[rank] == job->host_of[job->other])
               : rank == job->victim;
}

static bool knows_all(const struct job *job, const struct side *side)
{
    return symm__relay_state(side->relay, job->victim) == SYMM_RELAY_DIED &&
           (job->other < 0 ||
            symm__relay_state(side->relay, job->other) == SYMM_RELAY_DIED);
}

/* All see that the victim, or its whole host, has died, and the others make an exchange. */
static int body_death(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int32_t team[RANKS_MAX];
    struct side side;
    int code = 0, hosts = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (leads(&side))
        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    symm__sleep(0.05);
    if (is_victim(job, rank)) {
        atomic_store(&job->shared->when, symm__now());
        kill(getpid(), SIGKILL);
    }
    for (double until = symm__now() + HARNESS_SOON; !knows_all(job, &side);
         symm__sleep(0.0005))
        if (job->host_of[rank] == job->host_of[job->victim])
            break; /* sockets tell on the same host */
        else
            PLANE_CHECK(symm__now() < until);
    atomic_store(&job->shared->seen[rank], symm__now());
    side.sequence = 1;
    for (int r = 0; r < job->ranks; r++)
        if (!is_victim(job, r) &&
            (hosts == 0 || job->host_of[team[hosts - 1]] != job->host_of[r]))
            team[hosts++] = r;
    for (int i = 0; i < hosts; i++)
        if (team[i] == rank)
            plane_note(result, allgather(&side, team, hosts, job->timeout, &code));
    PLANE_CHECK(code == 0);
    atomic_fetch_add(&job->shared->over, 1);
    for (int r = 0, left = 0; r <= job->ranks; r++) {
        if (r == job->ranks)
            PLANE_CHECK(await(&job->shared->over, left) == 0);
        else
            left += !is_victim(job, r);
    }
    for (int r = 0; r < job->ranks; r++)
        PLANE_CHECK(is_victim(job, r) ||
                    symm__relay_state(side.relay, r) != SYMM_RELAY_DIED);
    side_close(&side);
    return 0;
}

/* The longest until a rank knows it, of one run. */
static double death_seconds(const char *hosts, int victim, int whole, int other)
{
    struct job job;
    double worst = 0;

    job_open(&job, hosts);
    job.victim = victim;
    job.kind = whole;
    job.other = other;
    job_run(&job, body_death);
    for (int r = 0; r < job.ranks; r++) {
        double took =
            atomic_load(&job.shared->seen[r]) - atomic_load(&job.shared->when);

        if (is_victim(&job, r))
            continue;
        assert_int_equal(job.plane.results[r].status, SYMM_OK);
        worst = took > worst ? took : worst;
    }
    job_close(&job);
    return worst;
}

static void test_death(void **state)
{
    static const struct {
        const char *hosts;
        int victim, whole, other;
    } cases[] = {
        {"aabb", 3, 0, NOBODY},
        {"aabb", 2, 0, NOBODY}, /* the relay */
        {"aabb", 0, 0, NOBODY},
        {"aabbccddee", 9, 0, NOBODY},
        {"abcdefghijklmnopqrstt", 20, 0, NOBODY},
        {"abcdefghijklmnopqrst", 19, 1, NOBODY},
        {"abcdefghijklmnopqrst", 1, 1, NOBODY},  /* hosts 9 to 16 are below it, */
        {"abcdefghijklmnopqrst", 1, 1, 9},       /* of which the first dies, too */
        {"abcdefghijklmnopqrst", 0, 1, NOBODY}}; /* all are */

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* A host below one that is gone is looked for after it. */
        const double most = cases[i].other >= 0 ? 0.15 : 0.1;
        double best = HARNESS_SOON;

        for (int try = 0; try < 5 && best > most; try++) {
            double took = death_seconds(cases[i].hosts, cases[i].victim, cases[i].whole,
                                        cases[i].other);

            best = took < best ? took : best;
        }
        print_message("death of %s %d%s of %s: %.1f ms\n",
                      cases[i].whole ? "the host of rank" : "rank", cases[i].victim,
                      cases[i].other >= 0 ? " and of the next one" : "", cases[i].hosts,
                      best * 1e3);
        if (!HARNESS_SLOW)
            assert_true(best <= most);
    }
}

/* A rank finalizes, and the next one of its host connects to the victim, which is killed at once:
 * it has died, whichever rank has finalized. */
static int body_death_after_end(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int32_t team[2];
    int code = 0, members = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (rank == job->other) {
        side_close(&side);
        atomic_store(&job->shared->over, 1);
        return 0;
    }
    PLANE_CHECK(await(&job->shared->over, 1) == 0);
    for (int r = 0; r < job->ranks; r++)
        if (r != job->other)
            team[members++] = r;
    plane_note(result, allgather(&side, team, 2, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim)
        kill(getpid(), SIGKILL);
    for (double until = symm__now() + HARNESS_SOON;
         symm__relay_state(side.relay, job->victim) == SYMM_RELAY_ALIVE;
         symm__sleep(0.0005))
        PLANE_CHECK(symm__now() < until);
    PLANE_CHECK(symm__relay_state(side.relay, job->victim) == SYMM_RELAY_DIED);
    side_close(&side);
    return 0;
}

static void test_death_after_end(void **state)
{
    struct job job;

    (void)state;
    for (int below = 0; below < 2; below++) { /* the victim has the lower host */
        job_open(&job, below ? "abb" : "aab");
        job.other = below ? 1 : 0;
        job.victim = below ? 0 : 2;
        job_run(&job, body_death_after_end);
        job_close(&job);
    }
}

/* Hosts b and c make an exchange, then c's relay finalizes. Its next relay need not connect to b,
 * and is killed: b hears so from the host above. */
static int body_death_elsewhere(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    const int32_t below[2] = {1, 2}, above[2] = {0, 3};
    const bool is_below = rank == below[0] || rank == below[1];
    struct side side;
    int code = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (is_below)
        plane_note(result, allgather(&side, below, 2, job->timeout, &code));
    atomic_fetch_add(&job->shared->ready, 1);
    if (rank == job->other) {
        PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
        side_close(&side);
        atomic_store(&job->shared->over, 1);
        return 0;
    }
    PLANE_CHECK(await(&job->shared->over, 1) == 0);
    side.sequence = 1;
    if (!is_below)
        plane_note(result, allgather(&side, above, 2, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim)
        kill(getpid(), SIGKILL);
    for (double until = symm__now() + HARNESS_SOON;
         symm__relay_state(side.relay, job->victim) == SYMM_RELAY_ALIVE;
         symm__sleep(0.0005))
        PLANE_CHECK(symm__now() < until);
    PLANE_CHECK(symm__relay_state(side.relay, job->victim) == SYMM_RELAY_DIED);
    side_close(&side);
    return 0;
}

static void test_death_elsewhere(void **state)
{
    struct job job;

    (void)state;
    for (int try = 0; try < 8; try++) {
        job_open(&job, "abcc");
        job.other = 2;
        job.victim = 3;
        job_run(&job, body_death_elsewhere);
        job_close(&job);
    }
}

/* A forked child of a rank that dies does not keep its connections open. */
static int body_forked(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_forks forks = {0};
    struct side side;
    int code = 0, count, *fds;
    pid_t child;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    fds = symm__relay_fds(side.relay, &count);
    PLANE_CHECK(symm__forks_add(&forks, fds, count) == SYMM_OK);
    plane_note(result, allgather(&side, side.leaders, job->hosts, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim) {
        child = fork();
        if (child == 0) {
            await(&job->shared->over, job->ranks - 1);
            _exit(0);
        }
        atomic_store(&job->shared->when, symm__now());
        kill(getpid(), SIGKILL);
    }
    for (double until = symm__now() + HARNESS_SOON;
         symm__relay_state(side.relay, job->victim) != SYMM_RELAY_DIED;
         symm__sleep(0.0005))
        PLANE_CHECK(symm__now() < until);
    atomic_fetch_add(&job->shared->over, 1);
    symm__forks_remove(&forks);
    side_close(&side);
    return 0;
}

static void test_forked_child(void **state)
{
    struct job job;

    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        job_open(&job, "abc");
        job.victim = victim;
        job_run(&job, body_forked);
        job_close(&job);
    }
}

/* ---- The end of a job ---------------------------------------------------------------------- */

static int threads(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/task");

    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    return count - 2;
}

/* All finalize at once, or one after the other; the last one waits for nobody. */
static int body_end(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0, before = threads();

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (leads(&side))
        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    if (job->kind == 1)
        symm__sleep(0.002 * rank);
    else if (job->kind == 2)
        symm__sleep(0.002 * (job->ranks - rank));
    else if (job->kind == 3 && rank == job->ranks - 1)
        symm__sleep(0.8); /* it sees all others go */
    for (int r = 0; r < job->ranks; r++)
        PLANE_CHECK(symm__relay_state(side.relay, r) != SYMM_RELAY_DIED);
    side_close(&side);
    for (int i = 0; i < 1000 && threads() > before; i++)
        symm__sleep(0.001); /* a joined thread leaves /proc a moment later */
    PLANE_CHECK(HARNESS_TSAN || threads() == before); /* it starts one of its own */
    return 0;
}

static void test_end(void **state)
{
    struct job job;
    double worst = 0;

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        double best = HARNESS_SOON;

        for (int try = 0; try < 4 && best > 0.7; try++) {
            worst = 0;
            job_open(&job, "aabbccddeeffgghhiijjkkllmmnnooppqqrrsstt");
            job.kind = kind;
            job_run(&job, body_end);
            for (int r = 0; r < job.ranks; r++) {
                double took = atomic_load(&job.shared->ended[r]);

                assert_int_equal(job.plane.results[r].status, SYMM_OK);
                worst = took > worst ? took : worst;
            }
            best = worst < best ? worst : best;
            job_close(&job);
        }
        print_message("end of 40 ranks, order %d: %.0f ms\n", kind, best * 1e3);
        if (!HARNESS_SLOW)
            assert_true(best <= 0.7); /* not by a timeout of a second */
    }
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

/* ---- A peer that lies -------------------------------------------------------------------------- */

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
    uint64_t random = 1;

    for (int i = 0; i < (HARNESS_SLOW ? 300 : 1500); i++) {
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
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stopped_relay),
        cmocka_unit_test(test_relay_goes),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_after_end),
        cmocka_unit_test(test_death_elsewhere),
        cmocka_unit_test(test_forked_child),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
