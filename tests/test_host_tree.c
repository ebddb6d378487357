/* SPDX-License-Identifier: MIT */
/*
 * test_host_tree.c - what hosts of a job refuse of each other while they bootstrap over rank 0's:
 * the scripts of fuzz_tree.c, each with the status and the sentence that it has to give.
 */
#include "fuzz_tree.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "harness.h"

static void must_give(const char *script, symm_status status, const char *sentence)
{
    symm_status found;
    int tries = 0;

    do /* again, if another program has taken the port */
        found = join_beside((const uint8_t *)script, strlen(script));
    while (found == SYMM_ERR_SYSTEM && ++tries < 5 &&
           strstr(symm_last_error(), strerror(EADDRINUSE)));
    if (found != status || (status != SYMM_OK && !strstr(symm_last_error(), sentence)))
        print_message("%s gives %d: %s\n", script, found, symm_last_error());
    assert_int_equal(found, status);
    if (status != SYMM_OK)
        assert_non_null(strstr(symm_last_error(), sentence));
}

static void test_joins(void **state)
{
    (void)state;
    must_give("child 0 0\nwait\nPLACE i:1 i:0 a:0\nTABLE rank=2 z:16\n", SYMM_OK, "");
    must_give("child 7 1\nwait\nPLACE i:9 i:0 a:4\nclose\nconnect\nwait\n"
              "TABLE rank=10 z:80\n",
              SYMM_OK, "");
    must_give("root 1\nconnect 1\nJOIN i:2 i:1 i:8 i:3 a:4 z:16 i:1 z:8\nwait\n",
              SYMM_OK, "");
}

/* A host that cannot join says why, and is named. */
static void test_reason(void **state)
{
    (void)state;
    must_give("root 1\nconnect 1\nJOIN status=-1 s:no-interface-fits\nwait\n",
              SYMM_ERR_INVALID, "rank 1 reports: no-interface-fits");
}

/* A rank of two, alone with what is at rank 0's place. */
static symm_status join_at(int rank, const char *root, double seconds)
{
    static const struct symm_host_address place = {.family = 4};
    uint8_t entry[ENTRY_BYTES] = {0}, all[2 * ENTRY_BYTES];

    return symm__tree_join(&(struct symm_tree_join){.rank = rank,
                                                    .size = 2,
                                                    .ranks = &rank,
                                                    .count = 1,
                                                    .entries = entry,
                                                    .bytes = ENTRY_BYTES,
                                                    .all = all,
                                                    .root = root,
                                                    .listener = -1,
                                                    .place = &place,
                                                    .key = key,
                                                    .until = symm__now() + seconds});
}

/* What listens at rank 0's port takes no connection: the first try has not ended at the deadline. */
static void test_silent(void **state)
{
    struct symm_address at;
    char root[64];
    int silent;

    (void)state;
    assert_null(symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &at));
    ((struct sockaddr_in *)(void *)&at.at)->sin_port = 0;
    silent = symm__address_listen(&at);
    assert_true(silent >= 0);
    assert_int_equal(join_at(1, symm__address_text(&at, root, sizeof(root)), 0.05),
                     SYMM_ERR_TIMEOUT);
    assert_non_null(strstr(symm_last_error(), "(no try has ended)"));
    close(silent);
}

/* Rank 0, which listens at that port. */
static symm_status join_port(int port, double seconds)
{
    char root[32];

    snprintf(root, sizeof(root), "127.0.0.1:%d", port);
    return join_at(0, root, seconds);
}

/* Ends a connection at once, so that nothing of it holds its port. */
static void *reset_later(void *arg)
{
    const struct linger none = {.l_onoff = 1};
    const int fd = *(const int *)arg;

    symm__sleep(0.2);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
    return NULL;
}

/* An outgoing connection of another program has rank 0's port: it waits for the end of that, but not
 * for a listener's. */
static void test_held(void **state)
{
    int port, own, server = fuzz_listen(&port), fd;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in held;
    socklen_t bytes = sizeof(held);
    symm_status status = SYMM_ERR_SYSTEM;
    pthread_t thread;
    double begin;

    (void)state;
    begin = symm__now();
    assert_int_equal(join_port(port, 4 * HARNESS_SOON), SYMM_ERR_SYSTEM);
    assert_true(symm__now() - begin < HARNESS_SOON);
    for (int try = 0; try < 5 && status == SYMM_ERR_SYSTEM; try++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&held, &bytes), 0);
        own = ntohs(held.sin_port);
        assert_int_equal(join_port(own, 0.05), SYMM_ERR_SYSTEM);
        assert_non_null(strstr(symm_last_error(), strerror(EADDRINUSE)));
        assert_int_equal(pthread_create(&thread, NULL, reset_later, &fd), 0);
        /* SYMM_ERR_SYSTEM: another program has taken the port, once it was free */
        status = join_port(own, 2);
        pthread_join(thread, NULL);
    }
    assert_int_equal(status, SYMM_ERR_TIMEOUT);
    assert_non_null(strstr(symm_last_error(), "rank 1"));
    close(server);
}

/* Rank 0 gives a host a place where none can be. */
static void test_place(void **state)
{
    static const char *const places[] = {
        "i:0 i:0 a:0",          "i:-1 i:0 a:0", "i:-9 i:0 a:4",
        "i:10 i:0 a:4",         "i:9 i:0 a:0",  "i:1 i:0 a:4",
        "i:1000000000 i:0 a:4", "i:9 i:0 a:5",  "i:-2147483648 i:0 a:4"};
    char script[128];

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(script, sizeof(script), "child 7 1\nwait\nPLACE %s\n", places[i]);
        must_give(script, SYMM_ERR_DAMAGED, "where no host can be");
    }
    must_give("child 0 0\nwait\nPLACE i:1 i:0\n", SYMM_ERR_DAMAGED, "damaged message");
    must_give("child 0 0\nwait\nPLACE i:1 i:0 a:0\nPLACE i:1 i:0 a:0\n",
              SYMM_ERR_DAMAGED, "damaged message");
}

static void test_table(void **state)
{
    (void)state;
    must_give("child 0 0\nwait\nPLACE i:1 i:0 a:0\nTABLE rank=2 z:15\n",
              SYMM_ERR_DAMAGED, "damaged table");
    must_give("child 0 0\nwait\nPLACE i:1 i:0 a:0\nTABLE rank=1 z:16\n",
              SYMM_ERR_DAMAGED, "damaged table");
    must_give("child 0 0\nwait\nPLACE i:1 i:0 a:0\nTABLE rank=3 z:16\n",
              SYMM_ERR_DAMAGED, "damaged table");
    must_give("child 0 0\nwait\nTABLE status=-7\n", SYMM_ERR_TIMEOUT, "gave no reason");
}

/* A host that lists a rank twice does not stand for another one, which joins after it. */
static void test_list(void **state)
{
    (void)state;
    must_give(
        "root 3\nconnect 1\nJOIN i:4 i:3 i:8 i:3 a:4 z:16 i:1 i:1 i:1 z:24\nwait\n",
        SYMM_OK, "");
    must_give("root 3\nconnect 1\nJOIN i:4 i:2 i:8 i:3 a:4 z:16 i:2 i:1 z:16\nwait\n",
              SYMM_OK, "");
}

/* A connection breaks between JOIN and PLACE, or before TABLE: the same process comes again, and
 * gets what it lacks. Another process of the host is refused. */
static void test_again(void **state)
{
#define ONE   "JOIN i:3 i:1 i:8 i:3 a:4 b:16 i:1 z:8\n"
#define OTHER "JOIN i:3 i:1 i:8 i:3 a:4 z:16 i:1 z:8\n"
#define TWO   "JOIN i:3 i:1 i:8 i:3 a:4 z:16 i:2 z:8\n"
    (void)state;
    must_give("root 2\nconnect 1\n" ONE "reset\nconnect 1\n" ONE "connect 2\n" TWO,
              SYMM_OK, "");
    assert_int_equal(tables[1], 1);
    assert_int_equal(tables[2], 1);
    /* The last host: all have come when its connection breaks. */
    must_give("root 2\nconnect 2\n" TWO "connect 1\n" ONE "reset\nconnect 1\n" ONE,
              SYMM_OK, "");
    assert_int_equal(tables[0], 1);
    assert_int_equal(tables[2], 1);
    /* Where it comes again before rank 0 knows that the connection is broken. */
    must_give("root 2\nconnect 1\n" ONE "wait\nconnect 1\n" ONE "wait\nconnect 2\n" TWO,
              SYMM_OK, "");
    assert_int_equal(tables[0], 0);
    assert_int_equal(tables[1], 1);
    must_give("root 2\nconnect 1\n" ONE "reset\nconnect 1\n" OTHER
              "wait\nconnect 1\n" ONE "connect 2\n" TWO,
              SYMM_OK, "");
    assert_int_equal(tables[1], 2);
    assert_int_equal(tables[2], 1);
    assert_int_equal(tables[3], 1);
    must_give(
        "child 0 0\nwait\nreset\nconnect\nwait\nPLACE i:1 i:0 a:0\nTABLE rank=2 z:16\n",
        SYMM_OK, "");
    must_give(
        "child 0 0\nwait\nPLACE i:1 i:0 a:0\nreset\nconnect\nwait\nTABLE rank=2 z:16\n",
        SYMM_OK, "");
}

/* Connections that break two and three times before TABLE is there, of one host and of two. */
static void test_again_and_again(void **state)
{
#define CUT    "reset\nconnect 1\n" ONE
#define CUT_2  "reset\nconnect 2\n" TWO
#define PLACED "PLACE rank=1\n"
    static const char *const one[] = {CUT CUT, CUT CUT CUT, CUT "wait\n" CUT,
                                      "wait\n" CUT "wait\n" CUT "wait\n" CUT};
    static const int times[] = {2, 3, 2, 3};
    char script[1024];

    (void)state;
    for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++) {
        /* The first host, which waits for another one; the last host, which all wait for. */
        snprintf(script, sizeof(script), "root 2\nconnect 1\n" ONE "%sconnect 2\n" TWO,
                 one[i]);
        must_give(script, SYMM_OK, "");
        assert_int_equal(tables[times[i]], 1);
        assert_int_equal(tables[times[i] + 1], 1);
        snprintf(script, sizeof(script),
                 "root 2\nconnect 2\n" TWO "connect 1\n" ONE "%s", one[i]);
        must_give(script, SYMM_OK, "");
        assert_int_equal(tables[0], 1);
        assert_int_equal(tables[times[i] + 1], 1);
    }
    /* Both hosts; the second script's connections all break after the table was sent. */
    must_give("root 2\nconnect 1\n" ONE CUT "connect 2\n" TWO CUT_2 CUT_2, SYMM_OK, "");
    assert_int_equal(tables[1] + tables[4], 2);
    must_give("root 2\nconnect 1\n" ONE "wait\nconnect 2\n" TWO "wait\nconnect 1\n" ONE
              "wait\nconnect 2\n" TWO "wait\nconnect 1\n" ONE,
              SYMM_OK, "");
    assert_int_equal(tables[3] + tables[4], 2);
    /* The place has come, the table has not. */
    must_give("root 2\nconnect 1\n" ONE "wait\nreset\nconnect 1\n" PLACED
              "reset\nconnect 1\n" PLACED "reset\nconnect 1\n" PLACED "connect 2\n" TWO,
              SYMM_OK, "");
    assert_int_equal(tables[3] + tables[4], 2);
    must_give("child 0 0\nwait\nreset\nconnect\nwait\nreset\nconnect\nwait\n"
              "PLACE i:1 i:0 a:0\nTABLE rank=2 z:16\n",
              SYMM_OK, "");
    must_give("child 0 0\nwait\nreset\nconnect\nwait\nPLACE i:1 i:0 a:0\n"
              "reset\nconnect\nwait\nreset\nconnect\nwait\nTABLE rank=2 z:16\n",
              SYMM_OK, "");
    must_give(
        "child 7 1\nwait\nreset\nconnect\nwait\nPLACE i:9 i:0 a:4\nclose\nconnect\n"
        "wait\nreset\nconnect\nwait\nreset\nconnect\nwait\nTABLE rank=10 z:80\n",
        SYMM_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_reason),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_again_and_again),
    };

    (void)setenv("SYMM_LOG", "error", 1);
    root_seconds = child_seconds = 20; /* none of these scripts waits for it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
