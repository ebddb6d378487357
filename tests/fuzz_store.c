/* SPDX-License-Identifier: MIT */
/*
 * fuzz_store.c - answers of symmrun's store to a rank (net/store_protocol.h).
 *
 * The first line is "rank R SIZE BYTES". Then the store says, each after what a rank says before
 * it: "welcome", "reply STATUS BYTES" with as many bytes as "d=N" says, whose hashes are right
 * unless "proof=N" changes them, and "raw TEXT"; fields are magic=, version=, cut=N (bytes of it
 * that go).
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "net/store_protocol.h"
#include "util/clock.h"
#include "util/status.h"

#define RANKS_MOST 8
#define DATA_MOST  4096

struct store {
    struct fuzz_script script;
    int fd;
    struct symm_store_handshake client;
    struct symm_store_welcome welcome;
};

struct fields {
    int64_t magic, version, proof, cut, data;
};

static const uint8_t secret[SYMM_STORE_SECRET_BYTES] = "fuzz_store";

static struct fields read_fields(struct fuzz_line *line)
{
    struct fields fields = {.magic = SYMM_STORE_MAGIC,
                            .version = SYMM_STORE_VERSION,
                            .cut = INT64_MAX,
                            .data = 0};
    char word[40];

    for (fuzz_word(line, word, sizeof(word)); word[0];
         fuzz_word(line, word, sizeof(word))) {
        const char *is = strchr(word, '=');
        long long value = is ? strtoll(is + 1, NULL, 0) : 0;

        if (strncmp(word, "magic=", 6) == 0)
            fields.magic = value;
        else if (strncmp(word, "version=", 8) == 0)
            fields.version = value;
        else if (strncmp(word, "proof=", 6) == 0)
            fields.proof = value;
        else if (strncmp(word, "cut=", 4) == 0)
            fields.cut = value;
        else if (strncmp(word, "d=", 2) == 0)
            fields.data = value;
    }
    if (fields.data < 0 || fields.data > DATA_MOST)
        fields.data = 0;
    return fields;
}

static void send_some(const struct store *store, const void *bytes, size_t count,
                      int64_t cut)
{
    if (cut >= 0 && (uint64_t)cut < count)
        count = (size_t)cut;
    (void)send(store->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What the rank says before: so many bytes, or it has ended. */
static void hear(const struct store *store, void *bytes, size_t count)
{
    struct pollfd poll_of = {.fd = store->fd, .events = POLLIN};
    char *at = bytes;

    while (count > 0 && poll(&poll_of, 1, 5) == 1) {
        ssize_t got = recv(store->fd, at, count, MSG_DONTWAIT);

        if (got <= 0)
            break;
        at += got;
        count -= (size_t)got;
    }
}

static void welcome(struct store *store, const struct fields *fields)
{
    hear(store, &store->client, sizeof(store->client));
    store->welcome.hello =
        (struct symm_store_handshake){.magic = htonl((uint32_t)fields->magic),
                                      .version = htonl((uint32_t)fields->version),
                                      .nonce = "store"};
    store->welcome.proof =
        symm__store_hash(secret, SYMM_STORE_PROOF_WELCOME, &store->client,
                         &store->welcome.hello, NULL, 0, NULL, 0);
    store->welcome.proof.bytes[0] ^= (uint8_t)fields->proof;
    send_some(store, &store->welcome, sizeof(store->welcome), fields->cut);
}

static void reply(struct store *store, int64_t status, int64_t bytes,
                  const struct fields *fields)
{
    struct symm_store_reply head = {.magic = htonl((uint32_t)fields->magic),
                                    .status = htonl((uint32_t)status),
                                    .bytes = htonl((uint32_t)bytes)};
    const size_t data = (size_t)fields->data;
    struct symm_siphash hash = symm__siphash_begin(secret);
    struct symm_store_request request;
    struct symm_siphash_tag digest, proof;
    uint8_t out[sizeof(proof) + sizeof(head) + DATA_MOST];

    hear(store, &request, sizeof(request));
    memcpy(out + sizeof(proof), &head, sizeof(head));
    memset(out + sizeof(proof) + sizeof(head), 1, data);
    symm__siphash_add(&hash, out + sizeof(proof), sizeof(head) + data);
    digest = symm__siphash_end(&hash);
    proof = symm__store_hash(secret, SYMM_STORE_PROOF_REPLY, &store->client,
                             &store->welcome.hello, &digest, sizeof(digest), NULL, 0);
    proof.bytes[0] ^= (uint8_t)fields->proof;
    memcpy(out, &proof, sizeof(proof));
    send_some(store, out, sizeof(proof) + sizeof(head) + data, fields->cut);
}

static void *serve(void *arg)
{
    struct store *store = arg;
    struct fuzz_line line;
    char word[16];

    for (int lines = 0; lines < 8 && fuzz_next(&store->script, &line); lines++) {
        const char *text;

        fuzz_word(&line, word, sizeof(word));
        if (strcmp(word, "raw") == 0) {
            size_t length = fuzz_rest(&line, &text);

            send_some(store, text, length, -1);
        } else if (strcmp(word, "welcome") == 0) {
            struct fields fields = read_fields(&line);

            welcome(store, &fields);
        } else if (strcmp(word, "reply") == 0) {
            int64_t status = fuzz_number(&line, 0), bytes = fuzz_number(&line, 0);
            struct fields fields = read_fields(&line);

            reply(store, status, bytes, &fields);
        }
    }
    (void)shutdown(store->fd, SHUT_WR);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store store = {.script = fuzz_script(data, size)};
    struct symm_store_exchange exchange = {.address = "127.0.0.1:1",
                                           .secret = secret,
                                           .in = "block of a rank",
                                           .timeout = 1};
    struct fuzz_line line;
    char word[16];
    uint8_t *out;
    int pair[2];
    pthread_t thread;
    symm_status status;
    bool done;

    if (!fuzz_next(&store.script, &line))
        return 0;
    fuzz_word(&line, word, sizeof(word));
    exchange.rank = (int)((uint64_t)fuzz_number(&line, 0) % RANKS_MOST);
    exchange.size = exchange.rank + 1 + (int)((uint64_t)fuzz_number(&line, 0) % 4);
    exchange.bytes = (size_t)((uint64_t)fuzz_number(&line, 8) % 16);
    out = malloc((size_t)exchange.size * exchange.bytes + 1);
    if (!out ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        abort();
    memset(out, 0, (size_t)exchange.size * exchange.bytes + 1);
    exchange.out = out;
    store.fd = pair[1];
    if (pthread_create(&thread, NULL, serve, &store) != 0)
        abort();
    status = symm__store_talk(&exchange, pair[0], symm__now() + 1, &done);
    fuzz_must(status == SYMM_OK || symm_last_error()[0], "a failure has a sentence",
              NULL);
    (void)shutdown(pair[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    for (size_t b = 0; b < (size_t)exchange.size * exchange.bytes; b++)
        fuzz_must(out[b] == (done ? 1 : 0), "blocks are written in the end alone",
                  NULL);
    free(out);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
