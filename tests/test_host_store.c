/* SPDX-License-Identifier: MIT */
/*
 * test_host_store.c - symmrun's store and its client in the library, in one process: a
 * thread runs the server as symmrun's loop would, the ranks are threads; other connections
 * send garbage, are idle or state false ranks, and some ranks do not come.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness.h"
#include "tools/symmrun/store.c" /* the server itself: tests look at its bounds, too */
#include "util/clock.h"
#include "util/status.h"

#define RANKS 4

/* Of jobs over several nodes: none is made here. */
void symmrun_nodes_blocks(struct symmrun_nodes *nodes, uint32_t number,
                          const void *data, size_t bytes)
{
    (void)nodes, (void)number, (void)data, (void)bytes;
    abort();
}

/* ---- The server ------------------------------------------------------------------ */

struct server {
    struct symmrun_store *store;
    pthread_t thread;
    int stop[2];
    char address[32];
    size_t most; /* connections at once */
};

static const uint8_t secret[SYMMRUN_SECRET_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void *serve(void *arg)
{
    struct server *server = arg;
    static struct pollfd fds[2000];
    size_t count;

    for (;;) {
        double left = symmrun_store_due(server->store) - symm__now();

        if (symmrun_store_most(server->store) > server->most)
            server->most = symmrun_store_most(server->store);
        symmrun_store_watch(server->store, fds, &count);
        fds[count] = (struct pollfd){.fd = server->stop[0], .events = POLLIN};
        poll(fds, count + 1, left > 1 ? 1000 : left > 0 ? (int)(1e3 * left) + 1 : 0);
        if (fds[count].revents)
            return NULL;
        symmrun_store_serve(server->store, fds, count);
    }
}

static int start_server(void **state)
{
    struct server *server = calloc(1, sizeof(*server));

    if (!server || pipe(server->stop) != 0)
        return -1;
    server->store = symmrun_store_create(0, RANKS, RANKS, secret, NULL);
    if (!server->store)
        return -1;
    snprintf(server->address, sizeof(server->address), "127.0.0.1:%d",
             symmrun_store_port(server->store));
    *state = server;
    return pthread_create(&server->thread, NULL, serve, server);
}

static int stop_server(void **state)
{
    struct server *server = *state;

    if (write(server->stop[1], "", 1) != 1 || pthread_join(server->thread, NULL) != 0)
        return -1;
    /* Those in the round, the others, and the listener. */
    if (server->most > RANKS + (RANKS + SPARE) + 1) {
        print_error("%zu connections at once\n", server->most);
        return -1;
    }
    symmrun_store_destroy(server->store);
    close(server->stop[0]);
    close(server->stop[1]);
    free(server);
    return 0;
}

/* ---- Ranks ----------------------------------------------------------------------- */

struct rank {
    pthread_t thread;
    struct symm_store_exchange exchange;
    unsigned char in[SYMM_STORE_BLOCK_MAX + 1];
    unsigned char out[RANKS * SYMM_STORE_BLOCK_MAX];
    symm_status status;
    double took;
    char error[SYMM_ERROR_BYTES];
};

static void *exchange_blocks(void *arg)
{
    struct rank *rank = arg;
    double began = symm__now();

    rank->status = symm__store_allgather(&rank->exchange);
    rank->took = symm__now() - began;
    snprintf(rank->error, sizeof(rank->error), "%s",
             rank->status == SYMM_OK ? "" : symm_last_error());
    return NULL;
}

/* Ranks as they should be: each test spoils some. */
static void make_ranks(struct rank *ranks, const struct server *server, size_t bytes)
{
    for (int i = 0; i < RANKS; i++) {
        memset(&ranks[i], 0, sizeof(ranks[i]));
        memset(ranks[i].in, 'a' + i, bytes);
        ranks[i].exchange = (struct symm_store_exchange){.address = server->address,
                                                         .secret = secret,
                                                         .rank = i,
                                                         .size = RANKS,
                                                         .in = ranks[i].in,
                                                         .bytes = bytes,
                                                         .out = ranks[i].out,
                                                         .timeout = HARNESS_AMPLE};
    }
}

static void run_ranks(struct rank *ranks, unsigned which)
{
    for (int i = 0; i < RANKS; i++) {
        if (which & (1u << i))
            assert_int_equal(
                pthread_create(&ranks[i].thread, NULL, exchange_blocks, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        if (which & (1u << i))
            assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    }
}

static void all_is_well(const struct rank *ranks, size_t bytes)
{
    for (int i = 0; i < RANKS; i++) {
        if (ranks[i].status != SYMM_OK)
            fail_msg("rank %d: %s", i, ranks[i].error);
        for (size_t at = 0; at < RANKS * bytes; at++)
            assert_int_equal(ranks[i].out[at], 'a' + (int)(at / bytes));
    }
}

static void says(const struct rank *rank, symm_status status, const char *text)
{
    if (rank->status != status || !strstr(rank->error, text))
        fail_msg("rank %d: %s '%s', expected %s '%s'", rank->exchange.rank,
                 symm_status_name(rank->status), rank->error, symm_status_name(status),
                 text);
}

static struct rank ranks[RANKS];

static void test_exchanges(void **state)
{
    static const size_t sizes[] = {1, 0, 100, 4095, SYMM_STORE_BLOCK_MAX};

    for (int round = 0; round < 20; round++) {
        make_ranks(ranks, *state, sizes[round % 5]);
        run_ranks(ranks, 0xf);
        all_is_well(ranks, sizes[round % 5]);
    }
}

/* Both hear of it by the deadline of rank 0, unless that was too short for rank 2 to come. */
static bool both_hear_of_it(const struct server *server, double timeout)
{
    make_ranks(ranks, server, 8);
    ranks[0].exchange.timeout = timeout;
    ranks[2].exchange.timeout = timeout + 10;
    run_ranks(ranks, 0x5);
    return ranks[0].took < timeout + 5 && ranks[2].took < timeout + 5 &&
           strstr(ranks[0].error, "rank 1 and rank 3 did") != NULL &&
           strstr(ranks[2].error, "rank 1 and rank 3 did") != NULL;
}

static void test_missing(void **state)
{
    double timeout;

    HARNESS_PATIENCE(timeout, 0.5)
    {
        if (both_hear_of_it(*state, timeout))
            break;
    }
    assert_true(timeout <= HARNESS_SOON);
    for (int i = 0; i < RANKS; i += 2) {
        says(&ranks[i], SYMM_ERR_TIMEOUT, "rank 1 and rank 3 did not come");
        assert_null(strstr(ranks[i].error, "rank 0"));
        for (size_t at = 0; at < sizeof(ranks[i].out); at++)
            assert_int_equal(ranks[i].out[at], 0);
    }
    make_ranks(ranks, *state, 8); /* and the next round is none the worse for it */
    run_ranks(ranks, 0xf);
    all_is_well(ranks, 8);
}

static void test_refused(void **state)
{
    static const uint8_t other[SYMMRUN_SECRET_BYTES] = {1, 2, 3, 4, 5, 6,
                                                        7, 8, 9, 0, 1};
    double timeout;

    make_ranks(ranks, *state, 8);
    ranks[1].exchange.secret = other;
    run_ranks(ranks, 0x2);
    says(&ranks[1], SYMM_ERR_REFUSED, "SYMM_SECRET");

    make_ranks(ranks, *state, 8);
    ranks[1].exchange.size = RANKS - 1;
    run_ranks(ranks, 0x2);
    says(&ranks[1], SYMM_ERR_REFUSED, "not the number of ranks that symmrun started");

    make_ranks(ranks, *state, 8);
    ranks[1].exchange.rank = RANKS;
    run_ranks(ranks, 0x2);
    says(&ranks[1], SYMM_ERR_INVALID, "rank 4 of 4");
    make_ranks(ranks, *state, 8);
    ranks[1].exchange.bytes = SYMM_STORE_BLOCK_MAX + 1;
    run_ranks(ranks, 0x2);
    says(&ranks[1], SYMM_ERR_OVERFLOW, "4097 bytes");

    /* Two processes that are both rank 0: the first stays. */
    HARNESS_PATIENCE(timeout, 1)
    {
        make_ranks(ranks, *state, 8);
        ranks[1].exchange.rank = 0;
        ranks[0].exchange.timeout = ranks[1].exchange.timeout = timeout;
        run_ranks(ranks, 0x3);
        /* A busy machine may start the second when the first has given up. */
        int first = ranks[0].status == SYMM_ERR_REFUSED ? 1 : 0;
        if (ranks[1 - first].status == SYMM_ERR_REFUSED &&
            strstr(ranks[first].error, "rank 1") != NULL)
            break;
    }
    says(&ranks[ranks[0].status == SYMM_ERR_REFUSED ? 0 : 1], SYMM_ERR_REFUSED,
         "another process takes part as this rank");
    says(&ranks[ranks[0].status == SYMM_ERR_REFUSED ? 1 : 0], SYMM_ERR_TIMEOUT,
         "rank 1");

    /* Blocks of different sizes: all who are there hear of it. */
    make_ranks(ranks, *state, 8);
    ranks[1].exchange.bytes = 7;
    run_ranks(ranks, 0x3);
    says(&ranks[0], SYMM_ERR_REFUSED, "another size");
    says(&ranks[1], SYMM_ERR_REFUSED, "another size");

    make_ranks(ranks, *state, 8);
    run_ranks(ranks, 0xf);
    all_is_well(ranks, 8);
}

/* ---- Other servers --------------------------------------------------------------- */

static void test_addresses(void **state)
{
    static const char *const bad[] = {
        "",
        ":",
        "127.0.0.1",
        "127.0.0.1:",
        ":1",
        "127.0.0.1:x",
        "localhost:1",
        "[::1",
        "127.0.0.1:1:1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "a.name.that.does.not.fit.into.sixty.four.characters.at.all.oh:1"};

    make_ranks(ranks, *state, 8);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ranks[0].exchange.address = bad[i];
        run_ranks(ranks, 0x1);
        says(&ranks[0], SYMM_ERR_JOB, "SYMM_STORE=");
    }
    ranks[0].exchange.address = "127.0.0.1:1"; /* nobody is there */
    run_ranks(ranks, 0x1);
    says(&ranks[0], SYMM_ERR_SYSTEM, "has symmrun ended?");
    ranks[0].exchange.secret = NULL;
    run_ranks(ranks, 0x1);
    says(&ranks[0], SYMM_ERR_INVALID, "lacks");
}

static int listen_anywhere(char address[32])
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t length = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
    snprintf(address, 32, "127.0.0.1:%d", ntohs(name.sin_port));
    return fd;
}

struct liar {
    int fd;
    const void *says;
    size_t bytes;
};

static void *lie(void *arg)
{
    struct liar *liar = arg;
    char request[256];
    int fd = accept(liar->fd, NULL, NULL);
    ssize_t got = recv(fd, request, sizeof(request), 0);

    if (got > 0)
        got = send(fd, liar->says, liar->bytes, MSG_NOSIGNAL);
    while (got > 0) /* until the rank has hung up, with the answer */
        got = recv(fd, request, sizeof(request), 0);
    close(fd);
    return NULL;
}

static void test_liars(void **state)
{
    const struct symm_store_reply replies[] = {
        {.magic = htonl(1)},
        {.magic = htonl(SYMM_STORE_MAGIC), .bytes = htonl(31)},
        {.magic = htonl(SYMM_STORE_MAGIC), .bytes = htonl(0xffffffff)},
        {.magic = htonl(SYMM_STORE_MAGIC), .status = htonl(1), .bytes = htonl(5)},
        {.magic = htonl(SYMM_STORE_MAGIC), .status = htonl(77), .bytes = htonl(1)},
        {.magic = htonl(SYMM_STORE_MAGIC), .status = htonl(77)},
    };
    char address[32];
    int fd = listen_anywhere(address);

    make_ranks(ranks, *state, 8);
    ranks[0].exchange.address = address;
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        unsigned char says_what[sizeof(struct symm_store_welcome)] = {0};
        struct liar liar = {fd, says_what, sizeof(says_what)};
        pthread_t thread;

        memcpy(says_what, &replies[i], sizeof(replies[i]));
        assert_int_equal(pthread_create(&thread, NULL, lie, &liar), 0);
        run_ranks(ranks, 0x1);
        says(&ranks[0], SYMM_ERR_REFUSED, "not the store");
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    /* One that takes connections and never answers. */
    ranks[0].exchange.timeout = 0.3;
    run_ranks(ranks, 0x1);
    says(&ranks[0], SYMM_ERR_TIMEOUT, "did not answer within 0.3 s");
    assert_true(ranks[0].took >= 0.29 && ranks[0].took < HARNESS_SOON);
    close(fd);
}

static void *hang_up_on_all(void *arg)
{
    int fd, *listener = arg;

    while ((fd = accept(*listener, NULL, NULL)) >= 0)
        close(fd);
    return NULL;
}

/* The deadline ends the retries and the delays between them. Uncut, the delays add up to
 * 1.27 s. */
static void test_hung_up(void **state)
{
    char address[32];
    int fd = listen_anywhere(address);
    pthread_t thread;
    double best = HUGE_VAL;

    make_ranks(ranks, *state, 8);
    for (int i = 0; i < 2; i++) {
        ranks[0].exchange.timeout = -i;
        run_ranks(ranks, 0x1);
        says(&ranks[0], SYMM_ERR_TIMEOUT, "did not answer within");
    }
    assert_int_equal(pthread_create(&thread, NULL, hang_up_on_all, &fd), 0);
    ranks[0].exchange.address = address;
    ranks[0].exchange.timeout = 0.7;
    for (int i = 0; i < 10 && best > 1; i++) {
        run_ranks(ranks, 0x1);
        says(&ranks[0], SYMM_ERR_TIMEOUT, "the store at ");
        if (ranks[0].took < best)
            best = ranks[0].took;
    }
    assert_true(best >= 0.69 && best < 1);
    ranks[0].exchange.timeout = HARNESS_AMPLE;
    run_ranks(ranks, 0x1);
    says(&ranks[0], SYMM_ERR_REFUSED, "hung up without an answer");
    shutdown(fd, SHUT_RDWR);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(fd);
}

/* ---- Beside real ranks ----------------------------------------------------------- */

static int connect_raw(const struct server *server)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    name.sin_port = htons((uint16_t)symmrun_store_port(server->store));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int strangers[3 * SPARE];

/* A rank's request, with a block of that many bytes, on a connection that has just been made. */
static void ask_raw(int fd, uint32_t rank, uint8_t nonce, uint32_t bytes)
{
    struct symm_store_handshake hello = {.magic = htonl(SYMM_STORE_MAGIC),
                                         .version = htonl(SYMM_STORE_VERSION),
                                         .nonce = {nonce}};
    struct symm_store_welcome welcome;
    struct symm_store_request request = {.rank = htonl(rank),
                                         .size = htonl(RANKS),
                                         .bytes = htonl(bytes),
                                         .timeout_ms = htonl(60000)};
    unsigned char message[sizeof(request) + SYMM_STORE_BLOCK_MAX] = {0};
    const size_t all = sizeof(request) + bytes;

    assert_int_equal(send(fd, &hello, sizeof(hello), 0), (ssize_t)sizeof(hello));
    assert_int_equal(recv(fd, &welcome, sizeof(welcome), MSG_WAITALL),
                     (ssize_t)sizeof(welcome));
    request.proof =
        symm__store_hash(secret, SYMM_STORE_PROOF_REQUEST, &hello, &welcome.hello,
                         &request, sizeof(request), message + sizeof(request), bytes);
    memcpy(message, &request, sizeof(request));
    assert_int_equal(send(fd, message, all, 0), (ssize_t)all);
}

/* A rank that hangs up while it waits, and comes again. */
static void test_comes_again(void **state)
{
    const struct server *server = *state;
    for (int i = 0; i < 5; i++) {
        int fd = connect_raw(server);

        ask_raw(fd, 2, (uint8_t)i, 8);
        close(fd);
        make_ranks(ranks, server, 8);
        run_ranks(ranks, 0xf);
        all_is_well(ranks, 8);
    }
}

/* A rank that reads its answer slowly while strangers come: it gets all of it. */
static void test_slow_reader(void **state)
{
    const struct server *server = *state;
    const int small = 1;
    const size_t whole = sizeof(struct symm_siphash_tag) +
                         sizeof(struct symm_store_reply) + RANKS * SYMM_STORE_BLOCK_MAX;
    static char answer[2 * RANKS * SYMM_STORE_BLOCK_MAX];
    struct sockaddr_in name = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* Accepted sockets have the listener's buffer. */
    assert_int_equal(setsockopt(server->store->connections.listener, SOL_SOCKET,
                                SO_SNDBUF, &small, sizeof(small)),
                     0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    name.sin_port = htons((uint16_t)symmrun_store_port(server->store));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    ask_raw(fd, 3, 9, SYMM_STORE_BLOCK_MAX);
    make_ranks(ranks, server, SYMM_STORE_BLOCK_MAX);
    run_ranks(ranks, 0x7);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ranks[i].status, SYMM_OK);
    for (int i = 0; i < 3 * SPARE; i++) {
        int stranger = connect_raw(server);

        assert_true(stranger >= 0);
        strangers[i] = stranger;
    }
    assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), (ssize_t)whole);
    for (int i = 0; i < 3 * SPARE; i++)
        close(strangers[i]);
    close(fd);
}

/* Without the secret nothing is answered, whatever the request says. */
static void test_no_secret(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct symm_store_handshake hello = {.magic = htonl(SYMM_STORE_MAGIC),
                                             .version = htonl(SYMM_STORE_VERSION)};
        struct symm_store_welcome welcome;
        struct symm_store_request request = {.size = htonl(RANKS),
                                             .bytes = htonl(i == 3 ? 1u << 30 : 8)};
        unsigned char message[sizeof(request) + 8] = {0};
        int fd = connect_raw(*state);

        assert_int_equal(send(fd, &hello, sizeof(hello), 0), (ssize_t)sizeof(hello));
        assert_int_equal(recv(fd, &welcome, sizeof(welcome), MSG_WAITALL),
                         (ssize_t)sizeof(welcome));
        request.proof =
            symm__store_hash(secret, SYMM_STORE_PROOF_REQUEST, &hello, &welcome.hello,
                             &request, sizeof(request), message, 8);
        if (i == 0) /* another block than was hashed */
            message[sizeof(request)] = 1;
        else if (i == 1) /* another rank */
            request.rank = htonl(1);
        else if (i == 2) /* the store's own proof */
            request.proof = welcome.proof;
        memcpy(message, &request, sizeof(request));
        assert_int_equal(send(fd, message, sizeof(message), 0),
                         (ssize_t)sizeof(message));
        assert_true(recv(fd, message, 1, 0) <= 0);
        close(fd);
    }
    make_ranks(ranks, *state, 8);
    run_ranks(ranks, 0xf);
    all_is_well(ranks, 8);
}

struct hammer {
    const struct server *server;
    atomic_bool stop;
    atomic_int sent;
};

static void *hammer(void *arg)
{
    struct hammer *self = arg;
    enum { IDLE = 150 };
    int idle[IDLE];
    uint32_t seed = 12345;

    for (int i = 0; i < IDLE; i++)
        idle[i] = -1;
    while (!atomic_load(&self->stop)) {
        unsigned char garbage[200];
        int at = atomic_fetch_add(&self->sent, 1) % IDLE;

        for (size_t i = 0; i < sizeof(garbage); i++) {
            seed = seed * 1664525u + 1013904223u;
            garbage[i] = (unsigned char)(seed >> 24);
        }
        if (idle[at] >= 0)
            close(idle[at]);
        idle[at] = connect_raw(self->server);
        if (idle[at] >= 0 && at % 3 > 0)
            send(idle[at], garbage, at % 3 == 1 ? sizeof(garbage) : 7, MSG_NOSIGNAL);
        usleep(100);
    }
    for (int i = 0; i < IDLE; i++) {
        if (idle[i] >= 0)
            close(idle[i]);
    }
    return NULL;
}

static void test_hammer(void **state)
{
    struct server *server = *state;
    struct hammer self = {.server = server};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, hammer, &self), 0);
    for (int round = 0; round < 30 || atomic_load(&self.sent) <= 200; round++) {
        make_ranks(ranks, server, 64);
        run_ranks(ranks, 0xf);
        all_is_well(ranks, 64);
        usleep(20000);
    }
    atomic_store(&self.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exchanges, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_missing, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_refused, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_addresses, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_liars, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_hung_up, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_no_secret, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_comes_again, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_slow_reader, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_hammer, start_server, stop_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
