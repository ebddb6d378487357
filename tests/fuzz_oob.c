/* SPDX-License-Identifier: MIT */
/*
 * fuzz_oob.c - what two other ranks of a host send in exchanges (oob/packet.h, oob/exchange.h).
 *
 * This rank is 0. A line of a script is a packet of rank 1 or 2: "1 DATA", and fields of its head
 * as tag=77; b=N gives it N bytes, f=N descriptors, of which the head tells the truth unless the
 * line says otherwise. "1 raw TEXT" is a packet without a head. All packets lie in the sockets
 * when three exchanges are made, the last of another tag; then the others hang up.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "oob/exchange.h"
#include "oob/packet.h"

#define RANKS 3
#define TAG   77
#define OTHER 70 /* of the third exchange */

static void field(struct symm_oob_head *head, const char *word, size_t *bytes, int *fds)
{
    const char *is = strchr(word, '=');
    size_t length = (size_t)(is - word);
    long long value = strtoll(is + 1, NULL, 0);

#define IS(name) (length == sizeof(name) - 1 && memcmp(word, name, length) == 0)
    if (IS("b"))
        *bytes =
            value >= 0 && value <= 2 * (long long)SYMM_OOB_CHUNK ? (size_t)value : 0;
    else if (IS("f"))
        *fds = value >= 0 && value <= 70 ? (int)value : 0;
    else if (IS("tag"))
        head->tag = (uint64_t)value;
    else if (IS("seq"))
        head->sequence = (uint32_t)value;
    else if (IS("rank"))
        head->rank = (int32_t)value;
    else if (IS("status"))
        head->status = (int32_t)value;
    else if (IS("magic"))
        head->magic = (uint32_t)value;
    else if (IS("version"))
        head->version = (uint16_t)value;
    else if (IS("total"))
        head->bytes_total = (uint64_t)value;
    else if (IS("here"))
        head->bytes_here = (uint32_t)value;
    else if (IS("fds"))
        head->fds_total = (uint32_t)value;
    else if (IS("fdshere"))
        head->fds_here = (uint32_t)value;
    else if (IS("what"))
        snprintf(head->what, sizeof(head->what), "%s", is + 1);
#undef IS
}

static int kind_of(const char *word)
{
    static const char *const names[] = {"",      "DATA", "DONE", "FAIL",
                                        "BLAME", "ASK",  "AGAIN"};

    for (int i = 1; i < 7; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return (int)strtol(word, NULL, 0);
}

static void send_packet(struct fuzz_line *line, const char *kind, int rank, int fd)
{
    static char data[2 * SYMM_OOB_CHUNK];
    const uint64_t unsaid = UINT64_MAX;
    struct symm_oob_head head = {.magic = SYMM_OOB_MAGIC,
                                 .version = SYMM_OOB_VERSION,
                                 .kind = (uint16_t)kind_of(kind),
                                 .tag = TAG,
                                 .sequence = 5,
                                 .rank = rank,
                                 .fds_total = UINT32_MAX,
                                 .bytes_total = unsaid,
                                 .bytes_here = UINT32_MAX,
                                 .fds_here = UINT32_MAX,
                                 .what = "step"};
    struct iovec parts[2];
    size_t bytes = 0;
    int fds[70], count = 0;
    char word[80];

    for (fuzz_word(line, word, sizeof(word)); word[0];
         fuzz_word(line, word, sizeof(word)))
        if (strchr(word, '='))
            field(&head, word, &bytes, &count);
    head.bytes_total = head.bytes_total == unsaid ? bytes : head.bytes_total;
    head.bytes_here = head.bytes_here == UINT32_MAX ? (uint32_t)bytes : head.bytes_here;
    head.fds_total = head.fds_total == UINT32_MAX ? (uint32_t)count : head.fds_total;
    head.fds_here = head.fds_here == UINT32_MAX ? (uint32_t)count : head.fds_here;
    for (int i = 0; i < count; i++)
        fds[i] = fd;
    parts[0] = symm__seqpacket_part(&head, sizeof(head));
    parts[1] = symm__seqpacket_part(data, bytes);
    (void)symm__seqpacket_send(fd, parts, 2, fds, count, 0);
}

static void follow(struct fuzz_line *line, const int *far)
{
    int64_t rank = fuzz_number(line, 1);
    char kind[16];
    const char *text;

    if (rank < 1 || rank >= RANKS)
        return;
    fuzz_word(line, kind, sizeof(kind));
    if (strcmp(kind, "raw") == 0) {
        size_t length = fuzz_rest(line, &text);

        (void)send(far[rank], text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        send_packet(line, kind, (int)rank, far[rank]);
    }
}

/* What an exchange has given is there, all of it. */
static void check(const struct symm_oob_message *messages)
{
    for (int r = 1; r < RANKS; r++) {
        fuzz_must(messages[r].bytes_count <= SYMM_EXCHANGE_MAX_BYTES &&
                      messages[r].fds_count <= SYMM_EXCHANGE_MAX_FDS,
                  "a part is within its bounds", NULL);
        for (size_t b = 0; b < messages[r].bytes_count; b++)
            fuzz_must(((const char *)messages[r].bytes)[b] == 0, "bytes are those sent",
                      NULL);
        for (int f = 0; f < messages[r].fds_count; f++)
            fuzz_must(fcntl(messages[r].fds[f], F_GETFD) == FD_CLOEXEC,
                      "a descriptor is open, and close-on-exec", NULL);
    }
}

static void exchange_once(struct symm_oob *oob, uint64_t tag, uint32_t *sequence,
                          bool again)
{
    static const int members[RANKS] = {0, 1, 2};
    struct symm_oob_message messages[RANKS];
    struct symm_exchange exchange = {.what = "step",
                                     .tag = tag,
                                     .sequence = *sequence,
                                     .next = sequence,
                                     .members = members,
                                     .count = RANKS,
                                     .timeout = 2,
                                     .before = TAG + 1,
                                     .agreed = tag == OTHER && again,
                                     .again = again,
                                     .bytes = "mine",
                                     .bytes_count = 4};

    if (symm__exchange(oob, &exchange, messages) == SYMM_OK)
        check(messages);
    else
        fuzz_must(symm_last_error()[0], "a failure has a sentence", NULL);
    symm__oob_messages_finish(messages, RANKS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct fuzz_line line;
    struct symm_oob oob;
    int *near = malloc(RANKS * sizeof(*near)), far[RANKS] = {-1, -1, -1};
    uint32_t sequence = 5, other = 5;

    if (!near)
        abort();
    near[0] = -1;
    for (int r = 1; r < RANKS; r++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
            abort();
        near[r] = pair[0];
        far[r] = pair[1];
    }
    symm__oob_init(&oob, 0, RANKS, near);
    for (int lines = 0; lines < 32 && fuzz_next(&script, &line); lines++)
        follow(&line, far);
    for (int r = 1; r < RANKS; r++)
        (void)shutdown(far[r], SHUT_WR);
    exchange_once(&oob, TAG, &sequence, false);
    exchange_once(&oob, TAG, &sequence, size % 2 == 0);
    exchange_once(&oob, OTHER, &other, size % 3 == 0);
    symm__oob_finish(&oob);
    symm__seqpacket_close(far, RANKS);
    return 0;
}
