/* SPDX-License-Identifier: MIT */
/*
 * fuzz_tree.c - messages of the bootstrap over rank 0's host (bootstrap/tree.h), from both sides.
 *
 * A script's first line is "child RANK SIZE": the script is rank 0's, or "root SIZE": it is that of
 * hosts which join. Other lines are "close", "reset", "connect", "wait", or messages
 * (fuzz_message.h). In the end the script's side does what is right, so that the call ends: rank 0
 * says that the job has failed, and each rank joins.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "bootstrap/tree.h"
#include "fuzz_message.h"
#include "util/clock.h"

#define RANKS_MOST  16
#define ENTRY_BYTES 8
#define UNSAID      0xee

/* Seconds for the call; after them rank 0 waits another one, to say who is missing. */
static double root_seconds = 0.3, child_seconds = 0.03;

static const uint8_t key[SYMM_SECRET_BYTES] = "fuzz_tree";
static const struct symm_auth_protocol protocol = {
    .magic = 0x53594d4a, .version = 3, .key = key};

struct other {
    struct fuzz_script script;
    bool root;        /* the call under test is rank 0's */
    atomic_bool over; /* the call has ended */
    int size, port;   /* of the listener that the script knows */
    int listener;     /* the script's, where it is rank 0 */
    struct fuzz_peer peer[RANKS_MOST + 1];
    int peers;
};

/* What each connection of the script to rank 0 got as a table: 0: none, 1: of all ranks, 2: a
 * sentence. */
static int tables[RANKS_MOST + 1];

static struct fuzz_peer *now_of(struct other *other)
{
    return &other->peer[other->peers > 0 ? other->peers - 1 : 0];
}

/* A connection to the call under test, or from it. */
static bool connect_now(struct other *other, uint32_t from)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)other->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct fuzz_peer *peer = &other->peer[other->peers];

    if (other->peers > RANKS_MOST)
        return false;
    *peer = (struct fuzz_peer){.fd = -1};
    if (!other->root) {
        bool came = false;

        for (double i = 0;
             i < child_seconds / 1e-3 && !came && !atomic_load(&other->over); i++)
            came = fuzz_ready(other->listener, POLLIN, 2);
        if (!came)
            return false;
        peer->fd = accept4(other->listener, NULL, NULL, SOCK_CLOEXEC);
    } else {
        peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (int i = 0; peer->fd >= 0 && i < 50; i++) { /* until it listens */
            if (connect(peer->fd, (struct sockaddr *)&at, sizeof(at)) == 0)
                break;
            usleep(500);
        }
    }
    if (peer->fd < 0)
        return false;
    other->peers++;
    return fuzz_prove(peer, &protocol, !other->root, from);
}

static void follow(struct other *other)
{
    struct fuzz_line line;
    char word[16];

    while (fuzz_next(&other->script, &line)) {
        struct fuzz_peer *now = now_of(other);

        fuzz_word(&line, word, sizeof(word));
        if (strcmp(word, "connect") == 0)
            (void)connect_now(other, (uint32_t)fuzz_number(&line, 1));
        else if (strcmp(word, "close") == 0)
            fuzz_hang_up(now, 5);
        else if (strcmp(word, "reset") == 0)
            fuzz_reset(now);
        else if (strcmp(word, "wait") == 0)
            (void)(now->open && fuzz_ready(now->fd, POLLIN, 20));
        else
            fuzz_send(now, fuzz_message(&line, word, other->port));
    }
}

/* Rank 0 ends the job on the last connection, and on those that still come. */
static void end_child(struct other *other)
{
    struct symm_relay_message *table = symm__relay_message(SYMM_RELAY_TABLE, 3);

    if (!table)
        abort();
    memcpy(table->data, "end", 3);
    table->head.status = SYMM_ERR_ABORTED;
    fuzz_send(now_of(other), symm__relay_keep(table));
    fuzz_hang_up(now_of(other), 20);
    while (connect_now(other, 0)) {
        fuzz_send(now_of(other), symm__relay_keep(table));
        fuzz_hang_up(now_of(other), 20);
    }
    symm__relay_drop(table);
}

/* Until the table is here, or the connection ends; 20 ms for each message. Returns as `tables`. */
static int await_table(struct fuzz_peer *peer)
{
    int table = 0;
    bool ended = !peer->open;

    while (!ended) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&peer->link, &message);

        if (wire == SYMM_SEQPACKET_AGAIN) {
            ended = !fuzz_ready(peer->fd, POLLIN, 20);
        } else if (wire == SYMM_SEQPACKET_OK) {
            ended = message->head.kind == SYMM_RELAY_TABLE;
            for (uint64_t at = 0;
                 ended && message->head.status == SYMM_OK && at < message->head.bytes;
                 at += ENTRY_BYTES)
                fuzz_must(message->data[at] != UNSAID, "each rank is in the table",
                          NULL);
            table = !ended ? 0 : message->head.status == SYMM_OK ? 1 : 2;
            symm__relay_drop(message);
        } else {
            ended = true;
        }
    }
    if (table == 1)
        fuzz_send(peer, symm__relay_message(SYMM_RELAY_HAVE, 0));
    return table;
}

/* Each rank joins, unless it has already. */
static void end_root(struct other *other)
{
    for (int rank = 1; rank < other->size; rank++) {
        struct symm_relay_message *join;
        char text[80];
        struct fuzz_line line;
        int length =
            snprintf(text, sizeof(text), "i:%d i:1 i:%d i:3 a:4 z:16 i:%d z:%d",
                     other->size, ENTRY_BYTES, rank, ENTRY_BYTES);

        line = (struct fuzz_line){text, text + length};
        if (!connect_now(other, (uint32_t)rank))
            break;
        join = fuzz_message(&line, "JOIN", other->port);
        fuzz_send(now_of(other), join);
        (void)fuzz_ready(now_of(other)->fd, POLLIN, 20);
    }
    for (int i = 0; i < other->peers; i++) /* one that hangs up earlier is waited for */
        tables[i] = await_table(&other->peer[i]);
}

static void *run_other(void *arg)
{
    struct other *other = arg;

    if (!other->root)
        (void)connect_now(other, 0);
    follow(other);
    if (other->root)
        end_root(other);
    else
        end_child(other);
    for (int i = 0; i < other->peers; i++)
        fuzz_hang_up(&other->peer[i], 5);
    return NULL;
}

/* The call under test, beside a script. */
static symm_status join_beside(const uint8_t *data, size_t size)
{
    static struct other other;
    uint8_t entry[ENTRY_BYTES] = {0}, *all;
    struct symm_host_address place = {.family = 4};
    char root[32], word[16];
    int ranks[1], port, listener, spare;
    struct fuzz_line line;
    pthread_t thread;
    symm_status status;

    memset(tables, 0, sizeof(tables));
    other = (struct other){.script = fuzz_script(data, size), .listener = -1};
    for (int i = 0; i <= RANKS_MOST; i++)
        other.peer[i].fd = -1;
    if (!fuzz_next(&other.script, &line))
        return SYMM_OK;
    fuzz_word(&line, word, sizeof(word));
    other.root = strcmp(word, "root") == 0;
    ranks[0] = other.root ? 0 : 1 + (int)((uint64_t)fuzz_number(&line, 1) % 8);
    other.size = ranks[0] + 1 + (int)((uint64_t)fuzz_number(&line, 2) % 4);
    listener = fuzz_listen(&port); /* for children of the call under test */
    /* The call under test listens there itself, if it is rank 0. */
    spare = other.root ? fuzz_reserve(&other.port) : fuzz_listen(&other.port);
    other.listener = other.root ? -1 : spare;
    snprintf(root, sizeof(root), "127.0.0.1:%d", other.port);
    all = malloc((size_t)other.size *
                 ENTRY_BYTES); /* no more: what is too long is seen */
    if (!all)
        abort();
    memset(all, UNSAID, (size_t)other.size * ENTRY_BYTES);
    if (pthread_create(&thread, NULL, run_other, &other) != 0)
        abort();
    status = symm__tree_join(&(struct symm_tree_join){
        .rank = ranks[0],
        .size = other.size,
        .ranks = ranks,
        .count = 1,
        .entries = entry,
        .bytes = ENTRY_BYTES,
        .all = all,
        .root = root,
        .listener = listener,
        .place = &place,
        .key = key,
        .until = symm__now() + (other.root ? root_seconds : child_seconds)});
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    free(all);
    close(listener);
    close(spare);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_must(join_beside(data, size) == SYMM_OK || symm_last_error()[0],
              "a failure has a sentence", NULL);
    return 0;
}
