/* SPDX-License-Identifier: MIT */
/*
 * fuzz_auth.c - the proof of two ends of a connection (net/auth.h), whose bytes a script
 * changes on the way.
 *
 * Both ends are real, and know one key, or not: "keys 1" as first line gives them two. Each line
 * passes some of the bytes that one end has sent, changed or not:
 *   over N, back N           to the end that accepts, that connects; N bytes
 *   flip N BYTE, kcab N BYTE the same, of which the first is changed by BYTE
 *   drop N, rdop N           takes them away
 *   text TEXT, back-text TEXT sends them
 * An end that takes the connection has got what the other one sent, and they agree on its key.
 */
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "net/auth.h"

#define CHUNK 256
#define LINES 64
#define MOST  (LINES * CHUNK)

/* What has gone one way. */
struct stream {
    uint8_t bytes[MOST];
    size_t count;
};

struct end {
    int fd, middle; /* its own; and the end of that in between */
    const uint8_t *key;
    struct symm_auth auth;
    enum symm_auth_said said;
    struct stream sent, given; /* what it has sent, what came in its place to it */
    size_t heard;              /* of what was given, until it took the connection */
};

static const uint8_t keys[2][SYMM_SIPHASH_KEY] = {"one", "another"};

static struct symm_auth_protocol protocol_of(const struct end *end)
{
    return (struct symm_auth_protocol){.magic = 1, .version = 2, .key = end->key};
}

static void add(struct stream *stream, const void *bytes, size_t count)
{
    if (count > MOST - stream->count)
        count = MOST - stream->count;
    memcpy(stream->bytes + stream->count, bytes, count);
    stream->count += count;
}

/* Bytes that come instead of an end's, or by themselves. */
static void give(struct end *to, const void *bytes, size_t count)
{
    if (to->said == SYMM_AUTH_WAIT &&
        send(to->middle, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)count)
        add(&to->given, bytes, count);
}

static void hear(struct end *end)
{
    struct symm_auth_protocol protocol = protocol_of(end);

    while (end->said == SYMM_AUTH_WAIT) {
        size_t used = end->auth.used;
        enum symm_auth_stage stage = end->auth.stage;

        end->said = symm__auth_hear(&protocol, &end->auth, end->fd);
        if (end->said == SYMM_AUTH_ASKED)
            end->said = symm__auth_answer(&protocol, &end->auth, end->fd, 7, 8)
                            ? SYMM_AUTH_WAIT
                            : SYMM_AUTH_GONE;
        if (end->said == SYMM_AUTH_DONE) {
            int unread = 0;

            (void)ioctl(end->fd, FIONREAD, &unread);
            end->heard = end->given.count - (size_t)unread;
        }
        if (end->said == SYMM_AUTH_WAIT && used == end->auth.used &&
            stage == end->auth.stage)
            break; /* nothing more is there */
    }
}

/* Bytes that `from` has sent, to `to`. */
static void pass(struct end *from, struct end *to, size_t count, int change, bool drop)
{
    uint8_t bytes[CHUNK];
    ssize_t got =
        recv(from->middle, bytes, count < CHUNK ? count : CHUNK, MSG_DONTWAIT);

    if (got <= 0)
        return;
    add(&from->sent, bytes, (size_t)got);
    bytes[0] ^= (uint8_t)change;
    if (!drop)
        give(to, bytes, (size_t)got);
}

static void follow(struct fuzz_line *line, struct end *a, struct end *b)
{
    char word[16];
    const char *text;
    size_t length;
    int64_t count;

    fuzz_word(line, word, sizeof(word));
    if (strcmp(word, "text") == 0 || strcmp(word, "back-text") == 0) {
        length = fuzz_rest(line, &text);
        give(word[0] == 't' ? b : a, text, length < CHUNK ? length : CHUNK);
        return;
    }
    count = fuzz_number(line, CHUNK);
    if (count < 1 || count > CHUNK)
        return;
    if (strcmp(word, "over") == 0)
        pass(a, b, (size_t)count, 0, false);
    else if (strcmp(word, "back") == 0)
        pass(b, a, (size_t)count, 0, false);
    else if (strcmp(word, "flip") == 0)
        pass(a, b, (size_t)count, (int)fuzz_number(line, 1), false);
    else if (strcmp(word, "kcab") == 0)
        pass(b, a, (size_t)count, (int)fuzz_number(line, 1), false);
    else if (strcmp(word, "drop") == 0)
        pass(a, b, (size_t)count, 0, true);
    else if (strcmp(word, "rdop") == 0)
        pass(b, a, (size_t)count, 0, true);
}

/* Bytes that were taken away and put back by chance are no change. */
static bool heard_all(const struct end *end, const struct end *other)
{
    return end->heard <= other->sent.count &&
           memcmp(end->given.bytes, other->sent.bytes, end->heard) == 0;
}

static void check(const struct end *a, const struct end *b)
{
    struct symm_auth_protocol of_a = protocol_of(a), of_b = protocol_of(b);
    uint8_t key_a[SYMM_SIPHASH_KEY], key_b[SYMM_SIPHASH_KEY];

    if (a->said != SYMM_AUTH_DONE && b->said != SYMM_AUTH_DONE)
        return;
    fuzz_must(memcmp(a->key, b->key, SYMM_SIPHASH_KEY) == 0, "both know the key", NULL);
    fuzz_must(a->said != SYMM_AUTH_DONE || heard_all(a, b), "it heard what was sent",
              "a");
    fuzz_must(b->said != SYMM_AUTH_DONE || heard_all(b, a), "it heard what was sent",
              "b");
    fuzz_must(memcmp(&a->auth.first, &b->auth.first, sizeof(a->auth.first)) == 0 &&
                  memcmp(&a->auth.second, &b->auth.second, sizeof(a->auth.second)) == 0,
              "both mean the same connection", NULL);
    symm__auth_key(&of_a, &a->auth, key_a);
    symm__auth_key(&of_b, &b->auth, key_b);
    fuzz_must(memcmp(key_a, key_b, sizeof(key_a)) == 0, "the key is one", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct fuzz_line line;
    static struct end a, b;
    struct symm_auth_protocol protocol;
    int pair_a[2], pair_b[2];

    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    a.key = keys[0];
    b.key = keys[size > 6 && memcmp(data, "keys 1", 6) == 0];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair_a) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair_b) != 0)
        abort();
    a.fd = pair_a[0];
    a.middle = pair_a[1];
    b.fd = pair_b[0];
    b.middle = pair_b[1];
    protocol = protocol_of(&a);
    fuzz_must(symm__auth_ask(&protocol, &a.auth, a.fd, 3, 4), "the first message goes",
              NULL);
    for (int lines = 0; lines < LINES && fuzz_next(&script, &line); lines++) {
        follow(&line, &a, &b);
        hear(&b);
        hear(&a);
    }
    check(&a, &b);
    close(a.fd);
    close(a.middle);
    close(b.fd);
    close(b.middle);
    return 0;
}
