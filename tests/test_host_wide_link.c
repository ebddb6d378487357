/* SPDX-License-Identifier: MIT */
/*
 * test_host_wide_link.c - connections between hosts: the keyed hash, packets over a stream,
 * damaged ones, messages and their memory, and the proof of the job's secret in both directions.
 * ctest: no-threads
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/socket.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/hosts.h"
#include "net/seqpacket.h"
#include "net/tcp.h"
#include "plane.h"
#include "relay/link.h"

#include <cmocka.h>

static const uint8_t good_key[SYMM_SIPHASH_KEY] = "0123456789abcde";

/* The vectors of SipHash's authors for tags of 128 bits: key 00 01 .. 0f, input 00 01 .. */
static void test_hash(void **state)
{
    static const struct {
        size_t bytes;
        struct symm_siphash_tag tag;
    } vectors[] = {{0,
                    {{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72,
                      0x14, 0xc7, 0x55, 0x02, 0x93}}},
                   {1,
                    {{0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59,
                      0x11, 0x9b, 0x22, 0xfc, 0x45}}},
                   {7,
                    {{0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53, 0xc0, 0xb8, 0x4a,
                      0xa6, 0x1f, 0xf0, 0x82, 0x39}}},
                   {8,
                    {{0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2,
                      0x64, 0xf3, 0x14, 0x97, 0xb4}}},
                   {15,
                    {{0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec,
                      0x0f, 0x97, 0xcf, 0xc3, 0xd9}}}};
    uint8_t key[16], data[64];

    (void)state;
    for (uint8_t i = 0; i < 64; i++)
        data[i] = i;
    memcpy(key, data, sizeof(key));
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct symm_siphash hash = symm__siphash_begin(key);
        struct symm_siphash_tag tag = symm__siphash(key, data, vectors[i].bytes), other;

        assert_memory_equal(&tag, &vectors[i].tag, sizeof(tag));
        for (size_t b = 0; b < vectors[i].bytes; b++) /* in parts it is the same */
            symm__siphash_add(&hash, data + b, 1);
        tag = symm__siphash_end(&hash);
        assert_memory_equal(&tag, &vectors[i].tag, sizeof(tag));
        for (int bit = 0; bit < 8 * SYMM_SIPHASH_TAG; bit++) {
            other = tag;
            other.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(symm__siphash_equal(&tag, &other));
        }
        assert_true(symm__siphash_equal(&tag, &vectors[i].tag));
    }
}

/* ---- Packets -------------------------------------------------------------------------- */

static void pair_open(int fd[2], struct symm_tcp *tcp[2])
{
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    for (int i = 0; i < 2; i++) {
        tcp[i] = symm__tcp_create(fd[i], good_key, i == 1);
        assert_non_null(tcp[i]);
    }
}

static void pair_close(int fd[2], struct symm_tcp *tcp[2])
{
    for (int i = 0; i < 2; i++) {
        symm__tcp_destroy(tcp[i]);
        close(fd[i]);
    }
}

static enum symm_seqpacket send_one(struct symm_tcp *tcp, const uint8_t *data,
                                    size_t bytes)
{
    struct iovec parts[2] = {symm__seqpacket_part(data, bytes / 3),
                             symm__seqpacket_part(data + bytes / 3, bytes - bytes / 3)};

    return symm__tcp_send(tcp, parts, 2, 0);
}

static enum symm_seqpacket recv_one(struct symm_tcp *tcp, uint8_t *data, size_t *bytes)
{
    struct iovec part = {data, SYMM_TCP_PACKET};

    return symm__tcp_recv(tcp, &part, 1, bytes);
}

/* Packets of all sizes come whole and in order, however full the socket is. */
static void test_packets(void **state)
{
    static uint8_t data[SYMM_TCP_PACKET], got[SYMM_TCP_PACKET];
    struct symm_tcp *tcp[2];
    uint64_t random = 1, sent = 0, received = 0;
    size_t sizes[64], bytes;
    int fd[2];

    (void)state;
    pair_open(fd, tcp);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    while (received < 3000) {
        enum symm_seqpacket wire;

        if (sent < 3000 && sent - received < 64 && !symm__tcp_owes(tcp[0])) {
            bytes = harness_random(&random) %
                    (harness_random(&random) % 4 ? 300 : SYMM_TCP_PACKET);
            wire = send_one(tcp[0], data, bytes);
            assert_true(wire == SYMM_SEQPACKET_OK);
            sizes[sent++ % 64] = bytes;
            continue;
        }
        (void)symm__tcp_flush(tcp[0]);
        if (harness_random(&random) % 2)
            (void)symm__tcp_peek(tcp[1], got, 5, &bytes);
        wire = recv_one(tcp[1], got, &bytes);
        if (wire == SYMM_SEQPACKET_AGAIN)
            continue;
        assert_int_equal(wire, SYMM_SEQPACKET_OK);
        assert_int_equal(bytes, sizes[received++ % 64]);
        assert_memory_equal(got, data, bytes);
    }
    /* Too large is refused, not cut. */
    struct iovec large = symm__seqpacket_part(data, SYMM_TCP_PACKET);
    struct iovec both[2] = {large, large};
    assert_int_equal(symm__tcp_send(tcp[0], both, 2, 0), SYMM_SEQPACKET_ERROR);
    symm__tcp_destroy(tcp[0]);
    close(fd[0]);
    assert_int_equal(recv_one(tcp[1], got, &bytes), SYMM_SEQPACKET_CLOSED);
    symm__tcp_destroy(tcp[1]);
    close(fd[1]);
}

/* A byte that is altered, left out, doubled or made up never passes as a packet. */
static void test_damage(void **state)
{
    uint8_t data[200], wire_bytes[2000], got[SYMM_TCP_PACKET];
    uint64_t random = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)i;
    for (int round = 0; round < 3000; round++) {
        struct symm_tcp *tcp[2];
        int fd[2], intact = 0;
        size_t bytes, at, length;
        ssize_t all;
        enum symm_seqpacket wire;

        pair_open(fd, tcp);
        for (int p = 0; p < 3; p++)
            assert_int_equal(send_one(tcp[0], data, 20 + (size_t)p), SYMM_SEQPACKET_OK);
        all = recv(fd[1], wire_bytes, sizeof(wire_bytes), 0);
        assert_int_equal(all, 3 * sizeof(struct symm_tcp_head) + 63);
        length = (size_t)all;
        at = harness_random(&random) % length;
        switch (round % 4) {
        case 0:
            wire_bytes[at] ^= (uint8_t)(1u << harness_random(&random) % 8);
            break;
        case 1: /* left out */
            memmove(wire_bytes + at, wire_bytes + at + 1, length - at - 1);
            length--;
            break;
        case 2: /* the first packet again, in place of the second */
            at = sizeof(struct symm_tcp_head) + 20;
            memcpy(wire_bytes + at, wire_bytes, at);
            break;
        default: /* noise from there on */
            for (size_t i = at; i < length; i++)
                wire_bytes[i] ^= (uint8_t)(1 + harness_random(&random) % 255);
        }
        assert_int_equal(send(fd[0], wire_bytes, length, 0), length);
        shutdown(fd[0], SHUT_WR);
        while ((wire = recv_one(tcp[1], got, &bytes)) == SYMM_SEQPACKET_OK) {
            assert_int_equal(bytes, 20 + intact);
            assert_memory_equal(got, data, bytes);
            intact++;
        }
        assert_true(intact < 3);
        assert_true(wire == SYMM_SEQPACKET_CUT || wire == SYMM_SEQPACKET_CLOSED);
        if (wire == SYMM_SEQPACKET_CUT) /* for good */
            assert_int_equal(recv_one(tcp[1], got, &bytes), SYMM_SEQPACKET_CUT);
        pair_close(fd, tcp);
    }
}

/* ---- Messages ------------------------------------------------------------------------- */

static size_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A head alone reserves little, whatever size it announces; and a small kind may not be large. */
static void test_head_alone(void **state)
{
    static const struct {
        enum symm_relay_kind kind;
        uint64_t bytes;
        enum symm_seqpacket wire;
    } heads[] = {{SYMM_RELAY_PART, SYMM_RELAY_MOST, SYMM_SEQPACKET_AGAIN},
                 {SYMM_RELAY_PART, SYMM_RELAY_MOST + 1, SYMM_SEQPACKET_CUT},
                 {SYMM_RELAY_TABLE, (uint64_t)1 << 30, SYMM_SEQPACKET_CUT},
                 {SYMM_RELAY_CELL, (uint64_t)1 << 30, SYMM_SEQPACKET_CUT},
                 {SYMM_RELAY_GO, (uint64_t)1 << 30, SYMM_SEQPACKET_CUT},
                 {SYMM_RELAY_JOIN, (uint64_t)1 << 20, SYMM_SEQPACKET_CUT}};

    (void)state;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct symm_relay_message *message = symm__relay_message(heads[i].kind, 0),
                                  *got;
        struct symm_relay_link link;
        struct symm_tcp *tcp[2];
        struct iovec parts[2];
        size_t before;
        int fd[2];

        assert_non_null(message);
        message->head.bytes = heads[i].bytes;
        pair_open(fd, tcp);
        assert_true(symm__relay_link_open(&link, fd[1], good_key, true));
        parts[0] = symm__seqpacket_part(&message->head, sizeof(message->head));
        parts[1] = symm__seqpacket_part("data", 4);
        before = mapped_bytes();
        assert_int_equal(symm__tcp_send(tcp[0], parts, 2, 0), SYMM_SEQPACKET_OK);
        assert_int_equal(symm__relay_link_recv(&link, &got), heads[i].wire);
        assert_true(mapped_bytes() < before + ((size_t)256 << 20));
        symm__relay_link_close(&link);
        symm__relay_drop(message);
        pair_close(fd, tcp);
    }
}

/* The memory of a message grows as it comes; all of it arrives. */
static void test_message_grows(void **state)
{
    const uint64_t sizes[] = {0, 1, 65535, 65536, 65537, 3 << 20, (5 << 20) + 7};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct symm_relay_message *sent =
                                      symm__relay_message(SYMM_RELAY_PART, sizes[i]),
                                  *got = NULL;
        struct symm_relay_link link[2];
        struct symm_tcp *tcp[2];
        enum symm_seqpacket wire = SYMM_SEQPACKET_AGAIN;
        int fd[2];

        assert_non_null(sent);
        for (uint64_t b = 0; b < sizes[i]; b++)
            sent->data[b] = (uint8_t)(b * b >> 7);
        pair_open(fd, tcp);
        for (int end = 0; end < 2; end++)
            assert_true(symm__relay_link_open(&link[end], fd[end], good_key, end == 1));
        assert_true(symm__relay_link_send(&link[0], sent));
        while (wire == SYMM_SEQPACKET_AGAIN) {
            (void)symm__relay_link_flush(&link[0]);
            wire = symm__relay_link_recv(&link[1], &got);
        }
        assert_int_equal(wire, SYMM_SEQPACKET_OK);
        assert_int_equal(got->head.bytes, sizes[i]);
        assert_memory_equal(&got->head, &sent->head, sizeof(sent->head));
        assert_memory_equal(got->data, sent->data, (size_t)sizes[i]);
        symm__relay_drop(got);
        symm__relay_drop(sent);
        for (int end = 0; end < 2; end++)
            symm__relay_link_close(&link[end]);
        pair_close(fd, tcp);
    }
}

static void test_bad_address(void **state)
{
    struct symm_host_address place = {0};
    struct symm_address at;
    int listener;

    (void)state;
    setenv("SYMM_HOST_ADDRESS", "no.such.host", 1);
    assert_int_equal(symm__hosts_listen(NULL, &place, &listener), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "numeric address"));
    setenv("SYMM_HOST_ADDRESS", "192.0.2.77", 1);
    assert_int_equal(symm__hosts_listen(NULL, &place, &listener), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "192.0.2.77"));
    setenv("SYMM_HOST_ADDRESS", "fe80::1", 1);
    assert_int_equal(symm__hosts_listen(NULL, &place, &listener), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "an address of one link"));
    for (int v6 = 0; v6 < 2; v6++) { /* a peer would connect to itself */
        setenv("SYMM_HOST_ADDRESS", v6 ? "::" : "0.0.0.0", 1);
        assert_int_equal(symm__hosts_listen(NULL, &place, &listener), SYMM_ERR_INVALID);
        assert_non_null(strstr(symm_last_error(), "leads each host to itself"));
    }
    unsetenv("SYMM_HOST_ADDRESS");
    /* On the way to such an address the own one is of that link, too: another one is taken. */
    assert_int_equal(symm__hosts_listen("[fe80::1%1]:9", &place, &listener), SYMM_OK);
    at = symm__host_address(&place);
    assert_false(symm__address_is_of_link(&at));
    close(listener);
}

/* A port that is free, and now SYMM_PORT_RANGE. */
static int free_port(void)
{
    struct symm_address at;
    char range[32];
    int fd, port;

    assert_null(symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &at));
    ((struct sockaddr_in *)(void *)&at.at)->sin_port = 0;
    fd = symm__address_listen(&at);
    assert_true(fd >= 0);
    close(fd);
    port = ntohs(((struct sockaddr_in *)(void *)&at.at)->sin_port);
    snprintf(range, sizeof(range), "%d-%d", port, port);
    setenv("SYMM_PORT_RANGE", range, 1);
    return port;
}

/* A range that holds the port where the job's hosts meet: that one is left free for rank 0. */
static void test_port_range(void **state)
{
    struct symm_host_address place = {0};
    symm_status status = SYMM_ERR_SYSTEM;
    int listener = -1, port = free_port();
    char toward[32];

    (void)state;
    snprintf(toward, sizeof(toward), "127.0.0.1:%d", port);
    assert_int_equal(symm__hosts_listen(toward, &place, &listener), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "beside the one where the job's hosts"));
    for (int i = 0; i < 10 && status != SYMM_OK; i++) { /* others may take the port */
        port = free_port();
        status = symm__hosts_listen("127.0.0.1:1", &place, &listener);
    }
    assert_int_equal(status, SYMM_OK);
    assert_int_equal(ntohs(place.port), port);
    close(listener);
    unsetenv("SYMM_PORT_RANGE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),          cmocka_unit_test(test_packets),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_head_alone),
        cmocka_unit_test(test_message_grows), cmocka_unit_test(test_bad_address),
        cmocka_unit_test(test_port_range),
    };

    symm_log_sink(plane_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
