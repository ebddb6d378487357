/* SPDX-License-Identifier: MIT */
/*
 * fuzz_bootstrap.c - messages of a bootstrap by key (bootstrap/bootstrap.h), from both sides.
 *
 * A script's first line is "join RANK SIZE": the script is rank 0's, or "root SIZE": it is that of
 * joining ranks. Other lines are "connect", "use N" (a connection), "close", "wait", or messages:
 * "PEERS first=2 f=1" has one socket with it, "bytes=N" is as much as goes of it. In the end
 * the script's side hangs up, rank 0 after an ABORT.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/socket_path.h"
#include "fuzz.h"
#include "util/clock.h"

#define RANKS_MOST 8
#define ENDS_MOST  12
#define SECONDS    0.1

struct side {
    struct fuzz_script script;
    bool root; /* the call under test is rank 0's */
    struct symm_bootstrap_run run;
    struct symm_socket_path place;
    atomic_bool over;
    int listener, end[ENDS_MOST], ends, now;
    uint64_t nonce; /* of the joining rank under test */
};

static const uint8_t secret[SYMM_SECRET_BYTES] = "fuzz_bootstrap";

static bool ready(int fd, int milliseconds)
{
    struct pollfd poll_of = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&poll_of, 1, milliseconds) == 1;
}

static bool keep(struct side *side, int fd)
{
    if (fd < 0)
        return false;
    if (side->ends == ENDS_MOST) {
        close(fd);
        return false;
    }
    side->now = side->ends;
    side->end[side->ends++] = fd;
    return true;
}

/* To the root under test; or the next connection of the joining rank under test, and its HELLO. */
static bool connect_now(struct side *side)
{
    struct symm_bootstrap_message hello;
    int fd = -1, count;

    for (int i = 0; i < 60 && fd < 0 && !atomic_load(&side->over); i++) {
        if (!side->root && ready(side->listener, 1))
            fd = accept4(side->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (side->root && symm__socket_path_connect(&side->place, &fd) != SYMM_OK)
            return false;
        if (side->root && fd < 0)
            usleep(200);
    }
    if (!keep(side, fd))
        return false;
    if (!side->root && symm__bootstrap_recv(fd, &hello, NULL, 0, &count,
                                            symm__now() + 1) == SYMM_SEQPACKET_OK)
        side->nonce = hello.nonce;
    return true;
}

static int kind_of(const char *word)
{
    static const char *const names[] = {"",     "HELLO", "WELCOME", "REFUSED", "PEERS",
                                        "DONE", "GO",    "GIVEUP",  "ABORT"};

    for (int i = 1; i < 9; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return (int)strtol(word, NULL, 0);
}

static void field(struct symm_bootstrap_message *m, const char *word, size_t *bytes,
                  int *fds)
{
    const char *is = strchr(word, '=');
    size_t length = (size_t)(is - word);
    long long value = strtoll(is + 1, NULL, 0);

#define IS(name) (length == sizeof(name) - 1 && memcmp(word, name, length) == 0)
    if (IS("rank"))
        m->rank = (int32_t)value;
    else if (IS("size"))
        m->size = (int32_t)value;
    else if (IS("status"))
        m->status = (int32_t)value;
    else if (IS("nonce"))
        m->nonce += (uint64_t)value; /* 0: the right one */
    else if (IS("first"))
        m->first = (int32_t)value;
    else if (IS("count"))
        m->count = (int32_t)value;
    else if (IS("magic"))
        m->magic = (uint32_t)value;
    else if (IS("protocol"))
        m->protocol = (uint16_t)value;
    else if (IS("library"))
        m->library = (uint32_t)value;
    else if (IS("secret"))
        m->secret[0] = (uint8_t)value;
    else if (IS("pid"))
        m->pid = (int32_t)value;
    else if (IS("text"))
        memset(m->text, is[1] ? is[1] : ' ', sizeof(m->text)); /* has no end */
    else if (IS("bytes"))
        *bytes =
            value >= 0 && value <= (long long)sizeof(*m) ? (size_t)value : sizeof(*m);
    else if (IS("f"))
        *fds = value >= 0 && value <= 70 ? (int)value : 0;
#undef IS
}

static void send_message(struct side *side, struct fuzz_line *line, const char *kind)
{
    struct symm_bootstrap_message message =
        symm__bootstrap_message((enum symm_bootstrap_kind)(kind_of(kind) & 0xffff),
                                &side->run, side->root ? side->now + 1 : side->run.rank,
                                side->root ? 100 + (uint64_t)side->now : side->nonce);
    size_t bytes = sizeof(message);
    int pair[2], fds[70], count = 0;
    char word[40];
    struct iovec part;

    memcpy(message.secret, secret, sizeof(message.secret));
    message.has_secret = 1;
    message.count = -1;
    for (fuzz_word(line, word, sizeof(word)); word[0];
         fuzz_word(line, word, sizeof(word)))
        if (strchr(word, '='))
            field(&message, word, &bytes, &count);
    if (message.count == -1)
        message.count = count;
    if (side->ends == 0 || side->end[side->now] < 0)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        abort();
    for (int i = 0; i < count; i++)
        fds[i] = i == 60 ? side->end[side->now] : pair[0];
    part = symm__seqpacket_part(&message, bytes);
    (void)symm__seqpacket_send(side->end[side->now], &part, 1, fds, count, 0);
    symm__seqpacket_close(pair, 2);
}

static void follow(struct side *side, struct fuzz_line *line)
{
    char word[16];
    int64_t which;

    fuzz_word(line, word, sizeof(word));
    if (strcmp(word, "connect") == 0) {
        (void)connect_now(side);
    } else if (strcmp(word, "use") == 0) {
        which = fuzz_number(line, 0);
        side->now = which >= 0 && which < side->ends ? (int)which : side->now;
    } else if (strcmp(word, "close") == 0 && side->ends > 0) {
        symm__seqpacket_close(&side->end[side->now], 1);
    } else if (strcmp(word, "wait") == 0 && side->ends > 0) {
        (void)ready(side->end[side->now], 5);
    } else {
        send_message(side, line, word);
    }
}

static void hang_up(struct side *side)
{
    struct fuzz_line none = {"", ""};

    if (!side->root) {
        send_message(side, &none, "ABORT");
        while (connect_now(side))
            send_message(side, &none, "ABORT");
    } else { /* the root ends when one that has joined hangs up */
        for (int rank = 1; rank < side->run.size && connect_now(side); rank++) {
            char text[16];
            int length = snprintf(text, sizeof(text), "rank=%d", rank);

            send_message(side, &(struct fuzz_line){text, text + length}, "HELLO");
            (void)ready(side->end[side->now], 5);
        }
    }
    symm__seqpacket_close(side->end, side->ends);
}

static void *run_side(void *arg)
{
    struct side *side = arg;
    struct fuzz_line line;

    if (side->root || connect_now(side))
        for (int lines = 0; lines < 32 && fuzz_next(&side->script, &line); lines++)
            follow(side, &line);
    hang_up(side);
    return NULL;
}

static symm_status meet(struct side *side, int *peer_fd)
{
    double until = symm__now() + SECONDS;
    symm_status status;
    pthread_t thread;

    if (!side->root &&
        symm__socket_path_claim(&side->place, until, &side->listener) != SYMM_OK)
        abort();
    if (pthread_create(&thread, NULL, run_side, side) != 0)
        abort();
    status = side->root
                 ? symm__bootstrap_root(&side->run, &side->place, until, peer_fd)
                 : symm__bootstrap_join(&side->run, &side->place, until, peer_fd);
    atomic_store(&side->over, true);
    pthread_join(thread, NULL);
    if (!side->root) {
        symm__socket_path_leave(&side->place);
        symm__seqpacket_close(&side->listener, 1);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct side side = {.script = fuzz_script(data, size), .listener = -1};
    char directory[] = "/tmp/symm-fuzz-XXXXXX", word[16];
    int peer_fd[RANKS_MOST];
    struct fuzz_line line;
    symm_status status;

    if (!fuzz_next(&side.script, &line))
        return 0;
    fuzz_word(&line, word, sizeof(word));
    side.root = strcmp(word, "root") == 0;
    if (!side.root)
        side.run.rank = 1 + (int)((uint64_t)fuzz_number(&line, 1) % (RANKS_MOST - 1));
    side.run.size = side.run.rank + 1 + (int)((uint64_t)fuzz_number(&line, 1) % 3);
    if (side.run.size > RANKS_MOST || side.run.size < 2)
        side.run.size = side.run.rank + 1 + (side.run.rank == 0);
    side.run.secret = secret;
    for (int r = 0; r < RANKS_MOST; r++)
        peer_fd[r] = -1;
    if (!mkdtemp(directory) || setenv("SYMM_RUNTIME_DIR", directory, 1) != 0 ||
        symm__socket_path_find(&side.place, "fuzz") != SYMM_OK)
        abort();
    status = meet(&side, peer_fd);
    if (status != SYMM_OK)
        fuzz_must(symm_last_error()[0], "a failure has a sentence", NULL);
    for (int r = 0; status == SYMM_OK && r < side.run.size; r++)
        fuzz_must((peer_fd[r] >= 0) == (r != side.run.rank), "a socket to each", NULL);
    symm__seqpacket_close(peer_fd, RANKS_MOST);
    fuzz_must(rmdir(directory) == 0, "nothing is left in the file system", directory);
    return 0;
}
