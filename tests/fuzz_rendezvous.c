/* SPDX-License-Identifier: MIT */
/*
 * fuzz_rendezvous.c - how the nodes of a job find each other (symmrun's rendezvous.c), from both
 * sides.
 *
 * A script's first line is "first": node 0 of three is under test, or "other": node 1. Other
 * lines are, for node 0: "node FROM ABOUT KEY", a connection that proves itself, with another key
 * if KEY is not 0; ABOUT is added to what is right. For node 1: "answer ABOUT KEY". Both:
 * "raw TEXT", "close". In the end the other nodes come, and node 0 answers.
 */
/* fuzz: with symm/tools/symmrun/rendezvous.c */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "tools/symmrun/rendezvous.h"

#define NODES     3
#define RANKS     2
#define SHAPE     ((uint32_t)NODES << 16 | RANKS)
#define ENDS_MOST 16
#define SECONDS   0.12

struct side {
    struct fuzz_script script;
    struct symmrun_nodes *nodes;
    bool first; /* node 0 is under test */
    int port, listener, end[ENDS_MOST], ends;
    atomic_bool over;
};

static const uint8_t keys[2][SYMMRUN_SECRET_BYTES] = {"fuzz_rendezvous", "another"};

void symmrun_say(struct symmrun *run, const char *format, ...)
{
    (void)run, (void)format;
}

void symmrun_queue_flush(struct symmrun_queue *queue)
{
    (void)queue;
}

void symmrun_watch_signal(struct symmrun *run, int signal_number)
{
    (void)run, (void)signal_number;
}

int symmrun_milliseconds(double until)
{
    double left = 1e3 * (until - symm__now());

    return left <= 0 ? 0 : left > 1000 ? 1000 : (int)left + 1;
}

static bool ready(int fd, int milliseconds)
{
    struct pollfd poll_of = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&poll_of, 1, milliseconds) == 1;
}

/* A connection to node 0 under test, or of node 1 under test; -1: none. */
static int connect_now(struct side *side)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)side->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = -1;

    for (int i = 0; i < 100 && fd < 0 && !atomic_load(&side->over); i++) {
        if (!side->first) {
            fd = ready(side->listener, 1)
                     ? accept4(side->listener, NULL, NULL, SOCK_CLOEXEC)
                     : -1;
            continue;
        }
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
            close(fd);
            fd = -1;
            usleep(200);
        }
    }
    if (fd >= 0 && side->ends == ENDS_MOST) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        side->end[side->ends++] = fd;
    return fd;
}

/* As an end that knows the key, or another one. */
static void prove(int fd, bool asks, uint32_t from, uint32_t about, bool other)
{
    struct symm_auth_protocol protocol = {
        .magic = 0x53594d4eu, .version = 4, .key = keys[other]};
    struct symm_auth auth = {.stage = SYMM_AUTH_HANDSHAKE};
    enum symm_auth_said said = SYMM_AUTH_WAIT;

    if (fd < 0 || (asks && !symm__auth_ask(&protocol, &auth, fd, from, about)))
        return;
    while (said == SYMM_AUTH_WAIT) {
        said = symm__auth_hear(&protocol, &auth, fd);
        if (said == SYMM_AUTH_ASKED)
            said = symm__auth_answer(&protocol, &auth, fd, from, about)
                       ? SYMM_AUTH_WAIT
                       : SYMM_AUTH_GONE;
        if (said == SYMM_AUTH_WAIT && !ready(fd, 10))
            break;
    }
}

static void follow(struct side *side, struct fuzz_line *line)
{
    int now = side->ends > 0 ? side->end[side->ends - 1] : -1;
    char word[8];
    const char *text;
    uint32_t from, about;
    size_t length;

    fuzz_word(line, word, sizeof(word));
    if (strcmp(word, "node") == 0 && side->first) {
        from = (uint32_t)fuzz_number(line, 1);
        about = SHAPE + (uint32_t)fuzz_number(line, 0);
        prove(connect_now(side), true, from, about, fuzz_number(line, 0) != 0);
    } else if (strcmp(word, "answer") == 0 && !side->first) {
        about = SHAPE + (uint32_t)fuzz_number(line, 0);
        prove(connect_now(side), false, 0, about, fuzz_number(line, 0) != 0);
    } else if (strcmp(word, "close") == 0 && now >= 0) {
        close(now);
        side->ends--;
    } else if (strcmp(word, "raw") == 0) {
        length = fuzz_rest(line, &text);
        now = now < 0 ? connect_now(side) : now;
        if (now >= 0)
            (void)send(now, text, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void *run_side(void *arg)
{
    struct side *side = arg;
    struct fuzz_line line;

    for (int lines = 0; lines < 12 && fuzz_next(&side->script, &line); lines++)
        follow(side, &line);
    for (uint32_t n = 1; n < NODES && side->first; n++)
        prove(connect_now(side), true, n, SHAPE, false);
    if (!side->first)
        prove(connect_now(side), false, 0, SHAPE, false);
    while (!atomic_load(&side->over))
        usleep(200);
    for (int i = 0; i < side->ends; i++) {
        fuzz_no_wait(side->end[i]);
        close(side->end[i]);
    }
    return NULL;
}

/* Who has come is a node of this job; of no other one is there a trace. */
static void check(struct symmrun_nodes *nodes, bool met)
{
    for (int n = 0; n < NODES; n++) {
        struct symmrun_node *node = &nodes->node[n];
        bool other = nodes->own == 0 ? n > 0 : n == 0;

        fuzz_must(node->fd < 0 || (other && node->tcp), "a connection has a key", NULL);
        fuzz_must(!met || !other || node->fd >= 0, "all nodes have come", NULL);
        symm__tcp_destroy(node->tcp);
        symm__seqpacket_close(&node->fd, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct symmrun run = {.signal_fd = -1};
    struct symmrun_node *node =
        calloc(NODES, sizeof(*node)); /* no more than there are */
    struct symmrun_nodes nodes = {.run = &run, .count = NODES, .node = node};
    struct side side = {.script = fuzz_script(data, size), .nodes = &nodes};
    struct fuzz_line line;
    char word[8] = "", place[32];
    pthread_t thread;
    bool met;

    if (!node)
        abort();
    if (fuzz_next(&side.script, &line))
        fuzz_word(&line, word, sizeof(word));
    side.first = strcmp(word, "other") != 0;
    nodes.own = !side.first;
    memcpy(nodes.secret, keys[0], sizeof(nodes.secret));
    for (int n = 0; n < NODES; n++)
        node[n].fd = -1;
    side.listener = fuzz_listen(&side.port);
    if (side.first) /* node 0 listens there itself */
        symm__seqpacket_close(&side.listener, 1);
    snprintf(place, sizeof(place), "127.0.0.1:%d", side.port);
    run.options = (struct symmrun_options){.ranks = RANKS, .rendezvous = place};
    if (pthread_create(&thread, NULL, run_side, &side) != 0)
        abort();
    met = symmrun_rendezvous(&nodes, symm__now() + SECONDS);
    atomic_store(&side.over, true);
    pthread_join(thread, NULL);
    check(&nodes, met);
    free(node);
    symm__seqpacket_close(&side.listener, side.listener >= 0);
    return 0;
}
