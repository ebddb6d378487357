/* SPDX-License-Identifier: MIT */
/*
 * test_host_auth.c - what stands between a listener and strangers: the five messages by which
 * two ends prove themselves, cut and altered at every byte, and the list of connections that
 * have not done so.
 */
/* ctest: cost 2
 * ctest: no-threads */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "net/auth.h"
#include "net/seqpacket.h"
#include "util/clock.h"

#define WIRE 160 /* bytes of all five messages */

static const uint8_t good_key[SYMM_SIPHASH_KEY] = "0123456789abcde";
static const uint8_t bad_key[SYMM_SIPHASH_KEY] = "0123456789abcdf";
static const struct symm_auth_protocol protocol = {0x54455354, 7, good_key};

/* ---- Proofs --------------------------------------------------------------------------- */

/* Two ends, and a relay in between that passes bytes on. */
struct ends {
    int fd[2], relay[2]; /* 0: the end that connects */
    struct symm_auth auth[2];
    struct symm_auth_protocol protocol[2];
    enum symm_auth_said said[2]; /* the last of each */
    size_t passed;               /* bytes, in both directions */
};

static void ends_open(struct ends *ends)
{
    *ends = (struct ends){.protocol = {protocol, protocol}};
    for (int i = 0; i < 2; i++) {
        int pair[2];

        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
            0);
        ends->fd[i] = pair[0];
        ends->relay[i] = pair[1];
    }
}

static void ends_close(struct ends *ends)
{
    for (int i = 0; i < 2; i++) {
        close(ends->fd[i]);
        if (ends->relay[i] >= 0)
            close(ends->relay[i]);
    }
}

/* Byte number `cut` and what follows never come, byte `flip` comes altered; WIRE: none. */
static void relay(struct ends *ends, int from, size_t cut, size_t flip)
{
    uint8_t byte;

    while (ends->relay[0] >= 0 && recv(ends->relay[from], &byte, 1, 0) == 1) {
        if (ends->passed == cut) {
            for (int i = 0; i < 2; i++) {
                close(ends->relay[i]);
                ends->relay[i] = -1;
            }
            return;
        }
        byte = (uint8_t)(byte ^ (ends->passed++ == flip ? 0x10 : 0));
        assert_int_equal(send(ends->relay[!from], &byte, 1, MSG_NOSIGNAL), 1);
    }
}

static void hear(struct ends *ends, int end)
{
    if (ends->said[end] != SYMM_AUTH_WAIT)
        return;
    ends->said[end] =
        symm__auth_hear(&ends->protocol[end], &ends->auth[end], ends->fd[end]);
    if (ends->said[end] == SYMM_AUTH_ASKED && end == 1 &&
        symm__auth_answer(&ends->protocol[1], &ends->auth[1], ends->fd[1], 0, 5))
        ends->said[1] = SYMM_AUTH_WAIT;
}

static void ends_meet(struct ends *ends, size_t cut, size_t flip)
{
    assert_true(symm__auth_ask(&ends->protocol[0], &ends->auth[0], ends->fd[0], 3, 5));
    for (int turn = 0; turn < 4; turn++) {
        for (int end = 0; end < 2; end++) {
            relay(ends, end, cut, flip);
            hear(ends, !end);
        }
    }
}

static void test_proof(void **state)
{
    uint8_t keys[2][SYMM_SIPHASH_KEY], again[SYMM_SIPHASH_KEY];
    struct ends ends;

    (void)state;
    for (int i = 0; i < 2; i++) {
        ends_open(&ends);
        ends_meet(&ends, WIRE, WIRE);
        assert_int_equal(ends.said[0], SYMM_AUTH_DONE);
        assert_int_equal(ends.said[1], SYMM_AUTH_DONE);
        assert_int_equal(ends.passed, WIRE);
        for (int end = 0; end < 2; end++)
            symm__auth_key(&protocol, &ends.auth[end], keys[end]);
        assert_memory_equal(keys[0], keys[1], sizeof(keys[0]));
        ends_close(&ends);
        if (i == 0)
            memcpy(again, keys[0], sizeof(again));
    }
    assert_memory_not_equal(again, keys[0], sizeof(again));
}

/* The end that accepts counts a connection only once the other has kept it. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < WIRE; cut++) {
        struct ends ends;

        ends_open(&ends);
        ends_meet(&ends, cut, WIRE);
        assert_int_not_equal(ends.said[1], SYMM_AUTH_DONE);
        assert_int_equal(ends.said[0],
                         cut < WIRE - 16 ? SYMM_AUTH_GONE : SYMM_AUTH_DONE);
        ends_close(&ends);
    }
}

static void test_altered(void **state)
{
    (void)state;
    for (size_t flip = 0; flip < WIRE; flip++) {
        struct ends ends;

        ends_open(&ends);
        ends_meet(&ends, WIRE, flip);
        assert_int_not_equal(ends.said[1], SYMM_AUTH_DONE);
        if (flip < WIRE - 16)
            assert_int_not_equal(ends.said[0], SYMM_AUTH_DONE);
        ends_close(&ends);
    }
}

/* Both ends learn what does not fit, and another program is known by its first bytes. */
static void test_others(void **state)
{
    static const struct {
        struct symm_auth_protocol protocol;
        enum symm_auth_said said[2];
    } others[] = {{{0x54455354, 7, bad_key}, {SYMM_AUTH_KEY, SYMM_AUTH_KEY}},
                  {{0x54455354, 8, good_key}, {SYMM_AUTH_VERSION, SYMM_AUTH_VERSION}},
                  {{0x54455355, 7, good_key}, {SYMM_AUTH_WAIT, SYMM_AUTH_FOREIGN}}};
    struct ends ends;

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ends_open(&ends);
        ends.protocol[0] = others[i].protocol;
        ends_meet(&ends, WIRE, WIRE);
        for (int end = 0; end < 2; end++)
            assert_int_equal(ends.said[end], others[i].said[end]);
        ends_close(&ends);
    }
    ends_open(&ends);
    ends.auth[0].stage = SYMM_AUTH_ANSWER;
    assert_int_equal(send(ends.relay[0], "SSH-", 4, 0), 4);
    hear(&ends, 0);
    assert_int_equal(ends.said[0], SYMM_AUTH_FOREIGN);
    ends_close(&ends);
}

/* A peer of another version learns so, though its messages are shorter: 40 and 48 bytes, as they were
 * with a hash of 64 bits. */
static void test_older(void **state)
{
    const uint32_t old[12] = {htonl(protocol.magic), htonl(protocol.version - 1)};
    struct ends ends;
    uint32_t heard[12];

    (void)state;
    ends_open(&ends);
    assert_int_equal(send(ends.relay[1], old, 40, 0), 40);
    hear(&ends, 1);
    assert_int_equal(ends.said[1], SYMM_AUTH_VERSION);
    assert_true(recv(ends.relay[1], heard, sizeof(heard), 0) == (ssize_t)sizeof(heard));
    assert_int_equal(ntohl(heard[0]), protocol.magic);
    assert_int_equal(ntohl(heard[1]), protocol.version);
    ends_close(&ends);
    ends_open(&ends);
    assert_true(symm__auth_ask(&protocol, &ends.auth[0], ends.fd[0], 3, 5));
    assert_int_equal(send(ends.relay[0], old, 48, 0), 48);
    hear(&ends, 0);
    assert_int_equal(ends.said[0], SYMM_AUTH_VERSION);
    ends_close(&ends);
}

static void test_repeated(void **state)
{
    struct symm_auth_nonces nonces = {0};
    struct symm_auth_handshake handshake = {0};

    (void)state;
    for (uint8_t round = 0; round < 40; round++) {
        handshake.nonce[15] = round;
        assert_true(symm__auth_is_new(&nonces, &handshake));
        for (uint8_t back = 0; back < SYMM_AUTH_NONCES && back <= round; back++) {
            handshake.nonce[15] = (uint8_t)(round - back);
            assert_false(symm__auth_is_new(&nonces, &handshake));
        }
    }
}

/* ---- The acceptor --------------------------------------------------------------------- */

#define MOST 6

/* Guests say one byte: 's': spare me in group 1; 'p': I have proved myself; 'x': a fault; 't': take me; '.': nothing. */
struct room {
    struct symm_acceptor acceptor;
    struct symm_address address;
    int told, last, gone, taken;
};

static const char *room_hear(void *user, struct symm_guest *guest)
{
    struct room *room = user;
    char byte;
    ssize_t got = recv(guest->fd, &byte, 1, 0);

    if (got != 1)
        return got < 0 && errno == EAGAIN ? NULL : "";
    if (byte == 's')
        symm__acceptor_spare(&room->acceptor, guest, 1);
    if (byte == 'p')
        symm__acceptor_prove(guest);
    if (byte == 't') {
        close(guest->fd);
        guest->fd = -1;
        room->taken++;
    }
    return byte == 'x' ? "a fault" : NULL;
}

static void room_refused(void *user, const char *why, bool last)
{
    struct room *room = user;

    assert_true(why[0] != '\0');
    room->told++;
    room->last += last;
}

static void room_gone(void *user, struct symm_guest *guest)
{
    struct room *room = user;

    assert_true(guest->fd >= 0);
    room->gone++;
}

static void room_open(struct room *room, double seconds, double keep)
{
    *room = (struct room){0};
    assert_null(symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &room->address));
    ((struct sockaddr_in *)&room->address.at)->sin_port = 0;
    room->acceptor =
        (struct symm_acceptor){.listener = symm__address_listen(&room->address),
                               .most = MOST,
                               .guest_bytes = sizeof(struct symm_guest),
                               .seconds = seconds,
                               .keep = keep,
                               .hear = room_hear,
                               .refused = room_refused,
                               .gone = room_gone,
                               .user = room};
    assert_true(room->acceptor.listener >= 0);
    assert_true(symm__acceptor_open(&room->acceptor));
}

static void room_close(struct room *room)
{
    symm__acceptor_close(&room->acceptor);
    close(room->acceptor.listener);
}

static void room_serve(struct room *room)
{
    struct pollfd polls[1 + MOST];
    size_t count = symm__acceptor_watch(&room->acceptor, polls);

    assert_true(count <= 1 + MOST);
    assert_true(poll(polls, count, 20) >= 0);
    assert_int_equal(symm__acceptor_serve(&room->acceptor, polls, count), 0);
}

static int visit(struct room *room, char byte)
{
    int fd = symm__address_connect(&room->address);

    assert_true(fd >= 0);
    assert_int_equal(symm__seqpacket_wait(fd, POLLOUT, symm__now() + HARNESS_AMPLE), 0);
    assert_int_equal(symm__connect_error(fd), 0);
    if (byte)
        assert_int_equal(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    room_serve(room);
    room_serve(room);
    return fd;
}

static bool is_open(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The oldest stranger goes first; who is spared stays; of one group the newest four stay. */
static void test_room(void **state)
{
    struct room room;
    int fds[40];

    (void)state;
    room_open(&room, HARNESS_AMPLE, 0);
    fds[0] = visit(&room, 's');
    for (int i = 1; i < 40; i++)
        fds[i] = visit(&room, i % 2 ? '\0' : '.');
    assert_int_equal(room.acceptor.count, MOST);
    for (int i = 0; i < 40; i++)
        assert_int_equal(is_open(fds[i]), i == 0 || i > 40 - MOST);
    assert_int_equal(room.told, SYMM_ACCEPTOR_SHOWN);
    assert_int_equal(room.last, 1);
    assert_int_equal(room.acceptor.refusals, 40 - MOST);
    for (int i = 1; i < 40; i++)
        close(fds[i]);
    for (int i = 1; i < 6; i++) {
        fds[i] = visit(&room, 's');
        assert_int_equal(is_open(fds[0]), i < SYMM_ACCEPTOR_GROUP);
    }
    assert_false(is_open(fds[1]));
    for (int i = 2; i < 6; i++)
        assert_true(is_open(fds[i]));
    for (int i = 0; i < 6; i++)
        close(fds[i]);
    room_close(&room);
    assert_int_equal(room.gone, 45);
}

/* A guest that has proved itself stays, however many handshakes of the same end follow. */
static void test_proved(void **state)
{
    struct room room;
    int fds[12];

    (void)state;
    room_open(&room, HARNESS_AMPLE, 0);
    fds[0] = visit(&room, 's');
    assert_int_equal(send(fds[0], "p", 1, MSG_NOSIGNAL), 1);
    for (int i = 1; i < 12; i++)
        fds[i] = visit(&room, i < 8 ? 's' : '\0');
    assert_true(is_open(fds[0]));
    for (int i = 0; i < 12; i++)
        close(fds[i]);
    room_close(&room);
}

/* Faults and the user's own are out at once; the late are, and no more come once it is over. */
static void test_leave(void **state)
{
    struct room room;
    int fds[4];

    (void)state;
    room_open(&room, 0.2, 0);
    fds[0] = visit(&room, 'x');
    fds[1] = visit(&room, 't');
    assert_int_equal(room.acceptor.count, 0);
    assert_int_equal(room.taken, 1);
    assert_int_equal(room.told, 1);
    fds[2] = visit(&room, '\0');
    assert_int_equal(room.acceptor.count, 1);
    while (symm__acceptor_due(&room.acceptor) < SYMM_ACCEPTOR_NEVER)
        room_serve(&room);
    assert_false(is_open(fds[2]));
    assert_int_equal(room.told, 2);
    room.acceptor.over = true;
    fds[3] = visit(&room, 't');
    assert_int_equal(room.taken, 1);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    room_close(&room);
}

/* A guest keeps its place for a moment: the next ones wait outside, and come in. */
static void test_keep(void **state)
{
    struct room room;
    int fds[MOST + 1];

    (void)state;
    room_open(&room, HARNESS_AMPLE, 0.3);
    for (int i = 0; i <= MOST; i++)
        fds[i] = visit(&room, '\0');
    if (symm__now() < room.acceptor.guests[0]->since + 0.2)
        assert_true(is_open(fds[0]));
    for (double until = symm__now() + HARNESS_AMPLE; is_open(fds[0]);) {
        assert_true(symm__now() < until);
        room_serve(&room);
    }
    assert_int_equal(room.acceptor.count, MOST);
    for (int i = 0; i <= MOST; i++)
        close(fds[i]);
    room_close(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proof),   cmocka_unit_test(test_cut),
        cmocka_unit_test(test_altered), cmocka_unit_test(test_others),
        cmocka_unit_test(test_older),   cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_room),    cmocka_unit_test(test_proved),
        cmocka_unit_test(test_leave),   cmocka_unit_test(test_keep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
