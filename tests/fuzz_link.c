/* SPDX-License-Identifier: MIT */
/*
 * fuzz_link.c - what comes over a connection between relays: packets (net/tcp.h) and the messages
 * that they make up (relay/link.h).
 *
 * A script's line is a message (fuzz_message.h), which goes as its head and data in packets whose
 * hashes are right, whatever they say; "size N" sets how much data a packet has, "more N" is a
 * packet of N bytes without a head, "wire N" the head of one that says so and
 * has no right hash, "raw TEXT" bytes without a packet.
 */
#include <fcntl.h>

#include "fuzz_message.h"

static const uint8_t key[SYMM_SIPHASH_KEY] = "fuzz_link";

struct sender {
    int fd;
    struct symm_tcp *tcp;
    size_t chunk;
};

static void send_packet(struct sender *sender, const void *head, size_t head_bytes,
                        const void *bytes, size_t count)
{
    struct iovec parts[2] = {symm__seqpacket_part(head, head_bytes),
                             symm__seqpacket_part(bytes, count)};

    (void)symm__tcp_send(sender->tcp, parts, 2, 0);
}

static void hear(struct symm_relay_link *link, bool *ended)
{
    while (!*ended) {
        struct symm_relay_message *message;
        char text[SYMM_ERROR_BYTES];
        enum symm_seqpacket wire = symm__relay_link_recv(link, &message);

        if (wire == SYMM_SEQPACKET_AGAIN)
            break;
        if (wire != SYMM_SEQPACKET_OK) {
            *ended = true;
            break;
        }
        fuzz_must(message->head.kind >= SYMM_RELAY_PART &&
                      message->head.kind < SYMM_RELAY_KINDS &&
                      message->head.bytes <= SYMM_RELAY_MOST &&
                      memchr(message->head.what, 0, SYMM_RELAY_WHAT) != NULL,
                  "a message that comes is one", NULL);
        symm__relay_sentence(message, text);
        fuzz_must(text[0] && memchr(text, 0, sizeof(text)) != NULL, "a sentence ends",
                  NULL);
        symm__relay_drop(message);
    }
}

static void send_message(struct sender *sender, struct fuzz_line *line,
                         const char *kind, struct symm_relay_link *link, bool *ended)
{
    static struct fuzz_data data;
    struct symm_relay_head head;
    size_t sent = 0;

    fuzz_read_message(line, kind, 1, &head, &data);
    if (head.bytes > FUZZ_DATA && head.bytes <= SYMM_RELAY_MOST)
        head.bytes = FUZZ_DATA + head.bytes % 4096; /* memory for no data that comes */
    do {
        size_t part =
            data.used - sent < sender->chunk ? data.used - sent : sender->chunk;

        send_packet(sender, &head, sent ? 0 : sizeof(head), data.bytes + sent, part);
        sent += part;
        hear(link, ended);
    } while (sent < data.used && !*ended);
}

static void follow(struct fuzz_line *line, struct sender *sender,
                   struct symm_relay_link *link, bool *ended)
{
    static const uint8_t zeros[SYMM_TCP_PACKET];
    char word[16];
    const char *text;
    int64_t count;

    fuzz_word(line, word, sizeof(word));
    if (strcmp(word, "wire") == 0) {
        struct symm_tcp_head head = {.bytes = htonl((uint32_t)fuzz_number(line, 0)),
                                     .magic = htonl(0x53594d54u)};

        (void)send(sender->fd, &head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL);
        for (int i = 0; i < 3; i++) /* as much as a packet may have, and more */
            (void)send(sender->fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (strcmp(word, "raw") == 0) {
        size_t length = fuzz_rest(line, &text);

        (void)send(sender->fd, text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (strcmp(word, "size") == 0) {
        count = fuzz_number(line, 1);
        sender->chunk = count > 0 && count < 32768 ? (size_t)count : 1;
    } else if (strcmp(word, "more") == 0) {
        count = fuzz_number(line, 0);
        if (count >= 0 && count <= (int64_t)sizeof(zeros))
            send_packet(sender, zeros, 0, zeros, (size_t)count);
    } else {
        send_message(sender, line, word, link, ended);
    }
    hear(link, ended);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct fuzz_line line;
    struct symm_relay_link link;
    struct sender sender = {.chunk = 4096};
    bool ended = false;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        abort();
    sender.fd = pair[1];
    sender.tcp = symm__tcp_create(pair[1], key, true);
    if (!sender.tcp || !symm__relay_link_open(&link, pair[0], key, false))
        abort();
    for (int lines = 0; lines < 64 && !ended && fuzz_next(&script, &line); lines++)
        follow(&line, &sender, &link, &ended);
    shutdown(pair[1], SHUT_WR);
    hear(&link, &ended);
    fuzz_must(ended, "the end is heard", NULL);
    symm__relay_link_close(&link);
    symm__tcp_destroy(sender.tcp);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
