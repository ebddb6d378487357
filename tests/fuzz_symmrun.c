/* SPDX-License-Identifier: MIT */
/*
 * fuzz_symmrun.c - what ranks say to symmrun's store, and nodes to each other (symmrun's store.c,
 * nodes.c), which serve as in a job of three nodes with two ranks each.
 *
 * The first line, "node N", says which node this is. Other lines:
 *   hello C                      rank's connection C: its first message; magic=, version=
 *   ask C RANK SIZE BYTES        its request; d=N (bytes of its block), proof=, ms=
 *   raw C TEXT, close C
 *   node N TYPE VALUE            a message of that node: START to TAKE_BACK are 1 to 6; d=N,
 *                                bytes= (what its head says), p=N (bytes in a packet)
 *   node-raw N TEXT, node-close N
 */
/* fuzz: with symm/tools/symmrun/store.c symm/tools/symmrun/nodes.c */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "net/store_protocol.h"
#include "tools/symmrun/rendezvous.h"
#include "tools/symmrun/symmrun.h"

#define NODES     3
#define LOCAL     2
#define CLIENTS   6
#define DATA_MOST 20000

static const uint8_t secret[SYMMRUN_SECRET_BYTES] = "fuzz_symmrun";

/* ---- The rest of symmrun ------------------------------------------------------------------ */

void symmrun_say(struct symmrun *run, const char *format, ...)
{
    (void)run, (void)format;
}

void symmrun_watch_node(struct symmrun *run, int node, int status)
{
    run->node_status = status;
    fuzz_must(node >= 0 && node < NODES, "a node that fails is one of the job", NULL);
    fuzz_must(status != 0, "a failure has a status", NULL);
}

bool symmrun_rendezvous(struct symmrun_nodes *nodes, double until)
{
    (void)nodes, (void)until;
    return false;
}

bool symmrun_rendezvous_wait(const struct symmrun_nodes *nodes, int fd, short events,
                             double until)
{
    (void)nodes, (void)fd, (void)events, (void)until;
    return false;
}

/* ---- The stage ---------------------------------------------------------------------------- */

struct client {
    int fd;
    struct symm_store_handshake hello;
    struct symm_store_welcome welcome;
    int64_t bytes; /* of its block; -1: it has not asked */
};

struct stage {
    struct symmrun run;
    struct symmrun_nodes *nodes;
    struct client client[CLIENTS];
    int far[NODES]; /* the other ends */
    struct symm_tcp *tcp[NODES];
};

struct fields {
    int64_t magic, version, proof, data, bytes, piece, ms;
};

static void connect_nodes(struct stage *stage)
{
    struct symmrun_nodes *nodes = stage->nodes;

    for (int n = 0; n < NODES; n++) {
        bool linked = nodes->own == 0 ? n > 0 : n == 0;
        int pair[2];

        nodes->node[n].fd = stage->far[n] = -1;
        if (!linked)
            continue;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
            abort();
        nodes->node[n].fd = pair[0];
        stage->far[n] = pair[1];
        nodes->node[n].tcp = symm__tcp_create(pair[0], secret, nodes->own != 0);
        stage->tcp[n] = symm__tcp_create(pair[1], secret, nodes->own == 0);
        if (!nodes->node[n].tcp || !stage->tcp[n])
            abort();
    }
}

static void open_stage(struct stage *stage, int own)
{
    struct symmrun_nodes *nodes = calloc(1, sizeof(*nodes));

    if (!nodes)
        abort();
    nodes->node = calloc(NODES, sizeof(*nodes->node));
    if (!nodes->node)
        abort();
    nodes->run = &stage->run;
    nodes->count = NODES;
    nodes->own = own;
    nodes->started = own == 0;
    stage->nodes = stage->run.nodes = nodes;
    connect_nodes(stage);
    stage->run.store =
        symmrun_store_create(LOCAL * own, LOCAL, LOCAL * NODES, secret, nodes);
    if (!stage->run.store)
        abort();
    for (int c = 0; c < CLIENTS; c++)
        stage->client[c].fd = -1;
}

static void close_stage(struct stage *stage)
{
    for (int c = 0; c < CLIENTS; c++) /* first: see fuzz_no_wait */
        symm__seqpacket_close(&stage->client[c].fd, stage->client[c].fd >= 0);
    symmrun_store_destroy(stage->run.store);
    symmrun_nodes_destroy(stage->nodes);
    for (int n = 0; n < NODES; n++) {
        symm__tcp_destroy(stage->tcp[n]);
        symm__seqpacket_close(&stage->far[n], stage->far[n] >= 0);
    }
}

/* As symmrun's loop does, until nothing is left to do. */
static void serve(struct stage *stage)
{
    struct pollfd polls[2 * LOCAL + 64 + 8 + NODES];

    for (int turn = 0; turn < 4; turn++) {
        size_t most = symmrun_store_most(stage->run.store), count = 0;

        fuzz_must(most + NODES <= sizeof(polls) / sizeof(polls[0]), "room", NULL);
        symmrun_store_watch(stage->run.store, polls, &count);
        symmrun_nodes_watch(stage->nodes, polls + count);
        if (poll(polls, count + NODES, 0) <= 0)
            break;
        symmrun_store_serve(stage->run.store, polls, count);
        symmrun_nodes_serve(stage->nodes, polls + count);
    }
}

static struct fields read_fields(struct fuzz_line *line)
{
    struct fields fields = {.magic = SYMM_STORE_MAGIC,
                            .version = SYMM_STORE_VERSION,
                            .bytes = -1,
                            .piece = 4096,
                            .ms = 1000};
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
        else if (strncmp(word, "bytes=", 6) == 0)
            fields.bytes = value;
        else if (strncmp(word, "ms=", 3) == 0)
            fields.ms = value;
        else if (strncmp(word, "d=", 2) == 0)
            fields.data = value;
        else if (strncmp(word, "p=", 2) == 0)
            fields.piece = value;
    }
    if (fields.data < 0 || fields.data > DATA_MOST)
        fields.data = 0;
    if (fields.piece < 1 || fields.piece > 32768)
        fields.piece = 1;
    return fields;
}

static const uint8_t *block(void)
{
    static uint8_t data[DATA_MOST];

    return data;
}

/* ---- Ranks -------------------------------------------------------------------------------- */

static void hello(struct stage *stage, struct client *client, struct fuzz_line *line)
{
    struct fields fields = read_fields(line);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port =
                                 htons((uint16_t)symmrun_store_port(stage->run.store)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};

    symm__seqpacket_close(&client->fd, client->fd >= 0);
    client->bytes = -1;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0)
        abort();
    fuzz_no_wait(client->fd);
    if (connect(client->fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        return; /* this host has no more ports */
    client->hello =
        (struct symm_store_handshake){.magic = htonl((uint32_t)fields.magic),
                                      .version = htonl((uint32_t)fields.version),
                                      .nonce = "rank"};
    (void)send(client->fd, &client->hello, sizeof(client->hello), MSG_NOSIGNAL);
    serve(stage);
    memset(&client->welcome, 0, sizeof(client->welcome));
    (void)recv(client->fd, &client->welcome, sizeof(client->welcome), MSG_DONTWAIT);
}

static void ask(struct client *client, struct fuzz_line *line)
{
    int64_t rank = fuzz_number(line, 0), size = fuzz_number(line, LOCAL * NODES),
            bytes = fuzz_number(line, 0);
    struct fields fields = read_fields(line);
    uint8_t message[sizeof(struct symm_store_request) + DATA_MOST];
    struct symm_store_request request = {.rank = htonl((uint32_t)rank),
                                         .size = htonl((uint32_t)size),
                                         .bytes = htonl((uint32_t)bytes),
                                         .timeout_ms = htonl((uint32_t)fields.ms)};

    request.proof = symm__store_hash(secret, SYMM_STORE_PROOF_REQUEST, &client->hello,
                                     &client->welcome.hello, &request, sizeof(request),
                                     block(), (size_t)fields.data);
    request.proof.bytes[0] ^= (uint8_t)fields.proof;
    if (client->bytes < 0) /* the first request counts, as it goes */
        client->bytes = (uint32_t)bytes;
    memcpy(message, &request, sizeof(request)); /* in one: a second part would wait */
    memcpy(message + sizeof(request), block(), (size_t)fields.data);
    (void)send(client->fd, message, sizeof(request) + (size_t)fields.data,
               MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- Nodes -------------------------------------------------------------------------------- */

static void node_message(struct stage *stage, int node, struct fuzz_line *line)
{
    int64_t type = fuzz_number(line, 0), value = fuzz_number(line, 0);
    struct fields fields = read_fields(line);
    size_t data = (size_t)fields.data, sent = 0;
    struct symmrun_node_head head = {
        .type = htonl((uint32_t)type),
        .bytes = htonl((uint32_t)(fields.bytes < 0 ? fields.data : fields.bytes)),
        .value = htonl((uint32_t)value)};

    do {
        size_t part =
            data - sent < (size_t)fields.piece ? data - sent : (size_t)fields.piece;
        struct iovec parts[2] = {symm__seqpacket_part(&head, sent ? 0 : sizeof(head)),
                                 symm__seqpacket_part(block() + sent, part)};

        (void)symm__tcp_send(stage->tcp[node], parts, 2, 0);
        sent += part;
        serve(stage);
    } while (sent < data);
}

static void node_line(struct stage *stage, const char *word, struct fuzz_line *line)
{
    int64_t node = fuzz_number(line, 0);
    const char *text;
    size_t length;

    if (node < 0 || node >= NODES || stage->far[node] < 0)
        return;
    if (strcmp(word, "node") == 0) {
        node_message(stage, (int)node, line);
    } else if (strcmp(word, "node-raw") == 0) {
        length = fuzz_rest(line, &text);
        (void)send(stage->far[node], text, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
        (void)shutdown(stage->far[node], SHUT_WR);
    }
}

static void follow(struct stage *stage, struct fuzz_line *line)
{
    char word[16];
    int64_t which;
    struct client *client;
    const char *text;
    size_t length;

    fuzz_word(line, word, sizeof(word));
    if (strncmp(word, "node", 4) == 0) {
        node_line(stage, word, line);
        return;
    }
    which = fuzz_number(line, 0);
    if (which < 0 || which >= CLIENTS)
        return;
    client = &stage->client[which];
    if (strcmp(word, "hello") == 0) {
        hello(stage, client, line);
    } else if (client->fd >= 0 && strcmp(word, "ask") == 0) {
        ask(client, line);
    } else if (client->fd >= 0 && strcmp(word, "raw") == 0) {
        length = fuzz_rest(line, &text);
        (void)send(client->fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else if (client->fd >= 0 && strcmp(word, "close") == 0) {
        symm__seqpacket_close(&client->fd, 1);
    }
}

/* A rank that gets blocks gets those of all ranks. */
static void check_answer(const struct client *client)
{
    struct {
        struct symm_siphash_tag proof;
        struct symm_store_reply reply;
    } answer;

    if (client->fd < 0 || recv(client->fd, &answer, sizeof(answer), MSG_DONTWAIT) !=
                              (ssize_t)sizeof(answer))
        return;
    if (ntohl(answer.reply.magic) == SYMM_STORE_MAGIC &&
        ntohl(answer.reply.status) == SYMM_STORE_REPLY_OK)
        fuzz_must(ntohl(answer.reply.bytes) == NODES * LOCAL * client->bytes,
                  "blocks of all ranks come", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct stage stage = {.run = {.node_status = 0}};
    struct fuzz_line line;
    char word[16];
    int own = 0;

    if (fuzz_next(&script, &line)) {
        fuzz_word(&line, word, sizeof(word));
        own = (int)((uint64_t)fuzz_number(&line, 0) % NODES);
    }
    open_stage(&stage, own);
    for (int lines = 0; lines < 48 && fuzz_next(&script, &line); lines++) {
        follow(&stage, &line);
        serve(&stage);
    }
    fuzz_must(memchr(stage.run.job.id, 0, sizeof(stage.run.job.id)) != NULL &&
                  memchr(stage.run.job.port, 0, sizeof(stage.run.job.port)) != NULL,
              "the job's name ends", NULL);
    for (int c = 0; c < CLIENTS; c++)
        check_answer(&stage.client[c]);
    close_stage(&stage);
    return 0;
}
