/* SPDX-License-Identifier: MIT */
/*
 * store.c - the server of store_protocol.h: all-gathers for the ranks of this symmrun.
 *
 * One round at a time: once every rank's block is there, each gets all blocks; when the
 * earliest deadline of a round passes, each gets the list of ranks that came. A rank that
 * hangs up while it waits leaves the round and may come again.
 *
 * Listens on the loopback address only. A client that does not prove that it knows the
 * secret is hung up on; a connection that has not sent its request after REQUEST_SECONDS, or
 * does not take its answer, is closed; beside those that wait in the round at least
 * ranks + SPARE are kept, the newest (net/acceptor.h). So garbage and slow connections cost bounded
 * memory and do not keep a rank out. Nothing here blocks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/acceptor.h"
#include "net/address.h"
#include "net/store_protocol.h"
#include "tools/symmrun/symmrun.h"

#define REQUEST_SECONDS 2.0
#define ANSWER_SECONDS  5.0
#define SPARE           64

_Static_assert(SYMMRUN_RANKS_MAX == SYMM_STORE_RANKS_MAX,
               "both sides serve as many ranks");
_Static_assert(SYMMRUN_SECRET_BYTES == SYMM_STORE_SECRET_BYTES, "one secret");

/* Shared by all connections that get the same answer. */
struct answer {
    size_t refs;
    size_t bytes;
    struct symm_siphash_tag digest; /* over data, once it is complete */
    bool digested;
    unsigned char data[]; /* a symm_store_reply and what follows it */
};

enum stage { HANDSHAKE, ASKING, WAITING, ANSWERED };

struct connection {
    struct symm_guest at; /* spared while WAITING */
    enum stage stage;
    double round_until; /* WAITING: the round ends then */
    size_t used;   /* HANDSHAKE, ASKING: received; ANSWERED: sent, the hash included */
    uint32_t rank; /* among this node's */
    struct answer *answer;
    struct symm_siphash_tag proof; /* of the answer */
    struct symm_store_handshake hello;
    struct symm_store_welcome welcome;
    struct symm_store_request request; /* in host order once it is complete */
    unsigned char block[SYMM_STORE_BLOCK_MAX];
};

struct symmrun_store {
    int port;
    uint32_t first, ranks, world;
    struct symmrun_nodes
        *nodes;      /* where other ranks' blocks come from; NULL: no others */
    bool away;       /* the round's blocks are on their way to other nodes */
    uint32_t number; /* of the blocks that went there last */
    uint8_t secret[SYMMRUN_SECRET_BYTES];
    struct symm_acceptor connections; /* of struct connection */
    size_t arrived;                   /* connections that wait */
    struct connection **round; /* by rank: the connection that waits; NULL: none */
};

static const char *serve_one(void *user, struct symm_guest *guest);
static void leave(void *user, struct symm_guest *guest);

static void refuse_quietly(void *user, const char *why, bool last)
{
    (void)user, (void)why, (void)last; /* stderr is the ranks' */
}

int symmrun_store_listen(int *port)
{
    struct symm_address address = {.bytes = sizeof(struct sockaddr_in)};
    struct sockaddr_in *own = (struct sockaddr_in *)&address.at;
    int fd;

    own->sin_family = AF_INET;
    own->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = symm__address_listen(&address);
    *port = ntohs(own->sin_port);
    return fd;
}

struct symmrun_store *symmrun_store_create(int first, int ranks, int world,
                                           const uint8_t secret[SYMMRUN_SECRET_BYTES],
                                           struct symmrun_nodes *nodes)
{
    struct symmrun_store *store = calloc(1, sizeof(*store));
    int saved;

    if (!store)
        return NULL;
    store->first = (uint32_t)first;
    store->ranks = (uint32_t)ranks;
    store->world = (uint32_t)world;
    store->nodes = nodes;
    memcpy(store->secret, secret, sizeof(store->secret));
    store->round = calloc((size_t)ranks, sizeof(struct connection *));
    store->connections =
        (struct symm_acceptor){.listener = symmrun_store_listen(&store->port),
                               .most = 2 * (size_t)ranks + SPARE,
                               .guest_bytes = sizeof(struct connection),
                               .seconds = REQUEST_SECONDS,
                               .hear = serve_one,
                               .refused = refuse_quietly,
                               .gone = leave,
                               .user = store};
    if (store->round && store->connections.listener >= 0 &&
        symm__acceptor_open(&store->connections))
        return store;
    saved = errno;
    symmrun_store_destroy(store);
    errno = saved;
    return NULL;
}

int symmrun_store_port(const struct symmrun_store *store)
{
    return store->port;
}

static void drop_answer(struct answer *answer)
{
    if (answer && --answer->refs == 0)
        free(answer);
}

/* The round has ended here: blocks of it that other nodes were sent must not enter a later one. */
static void withdraw_blocks(struct symmrun_store *store)
{
    if (store->away)
        symmrun_nodes_blocks(store->nodes, store->number, NULL, 0);
    store->away = false;
}

/* The acceptor's `gone`: takes the connection out of the round. */
static void leave(void *user, struct symm_guest *guest)
{
    struct symmrun_store *store = user;
    struct connection *connection = (struct connection *)guest;

    if (connection->stage == WAITING) {
        store->round[connection->rank] = NULL;
        store->arrived--;
        withdraw_blocks(store);
    }
    drop_answer(connection->answer);
    connection->answer = NULL;
}

static void hang_up(struct symmrun_store *store, struct connection *connection)
{
    symm__acceptor_drop(&store->connections, &connection->at);
}

void symmrun_store_destroy(struct symmrun_store *store)
{
    if (!store)
        return;
    store->away = false;
    symm__acceptor_close(&store->connections);
    if (store->connections.listener >= 0)
        close(store->connections.listener);
    free(store->round);
    free(store);
}

static struct answer *make_answer(enum symm_store_reply_status status, size_t bytes)
{
    struct symm_store_reply reply = {.magic = htonl(SYMM_STORE_MAGIC),
                                     .status = htonl((uint32_t)status),
                                     .bytes = htonl((uint32_t)bytes)};
    struct answer *answer = malloc(sizeof(*answer) + sizeof(reply) + bytes);

    if (!answer)
        return NULL;
    answer->refs = 1;
    answer->digested = false;
    answer->bytes = sizeof(reply) + bytes;
    memcpy(answer->data, &reply, sizeof(reply));
    return answer;
}

/* Sends as much as the socket takes now; false: done with this connection. */
static bool send_answer(struct connection *connection)
{
    const size_t first = sizeof(connection->proof);
    struct answer *answer = connection->answer;

    while (connection->used < first + answer->bytes) {
        size_t used = connection->used;
        const void *from = used < first
                               ? (const unsigned char *)&connection->proof + used
                               : answer->data + (used - first);
        size_t bytes = used < first ? first - used : answer->bytes - (used - first);
        ssize_t sent = send(connection->at.fd, from, bytes, MSG_NOSIGNAL);

        if (sent >= 0)
            connection->used += (size_t)sent;
        else if (errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    return false;
}

/* The answer's hash for this connection. */
static struct symm_siphash_tag prove_answer(const struct symmrun_store *store,
                                            const struct connection *connection,
                                            struct answer *answer)
{
    if (!answer->digested)
        answer->digest = symm__siphash(store->secret, answer->data, answer->bytes);
    answer->digested = true;
    return symm__store_hash(store->secret, SYMM_STORE_PROOF_REPLY, &connection->hello,
                            &connection->welcome.hello, &answer->digest,
                            sizeof(answer->digest), NULL, 0);
}

/* Gives the answer (shared) to a connection, which then leaves the round. */
static void answer_one(struct symmrun_store *store, struct connection *connection,
                       struct answer *answer)
{
    if (connection->stage == WAITING) {
        store->round[connection->rank] = NULL;
        store->arrived--;
    }
    connection->stage = ANSWERED;
    /* Not a stranger's: dropped half answered, it would come again, to a round of its own. */
    symm__acceptor_prove(&connection->at);
    connection->at.events = POLLOUT;
    connection->at.until = symm__now() + ANSWER_SECONDS;
    connection->used = 0;
    connection->answer = answer;
    if (answer) {
        answer->refs++;
        connection->proof = prove_answer(store, connection, answer);
    }
    if (!answer || !send_answer(connection))
        hang_up(store, connection);
}

static void refuse(struct symmrun_store *store, struct connection *connection,
                   enum symm_store_reply_status status)
{
    struct answer *answer = make_answer(status, 0);

    answer_one(store, connection, answer);
    drop_answer(answer);
}

/* Ends the round: every connection in it gets the same answer, or is closed for lack of
 * memory. */
static void answer_all(struct symmrun_store *store, struct answer *answer)
{
    for (uint32_t rank = 0; rank < store->ranks; rank++) {
        if (store->round[rank])
            answer_one(store, store->round[rank], answer);
    }
    drop_answer(answer);
}

static void finish_round(struct symmrun_store *store)
{
    size_t bytes = store->round[0]->request.bytes;
    struct answer *answer = make_answer(SYMM_STORE_REPLY_OK, store->ranks * bytes);

    for (uint32_t rank = 0; answer && rank < store->ranks; rank++)
        memcpy(answer->data + sizeof(struct symm_store_reply) + rank * bytes,
               store->round[rank]->block, bytes);
    if (!store->nodes || !answer) {
        answer_all(store, answer);
        return;
    }
    store->away = true;
    symmrun_nodes_blocks(store->nodes, ++store->number,
                         answer->data + sizeof(struct symm_store_reply),
                         store->ranks * bytes);
    drop_answer(answer);
}

void symmrun_store_fulfil(struct symmrun_store *store, uint32_t number,
                          const void *data, size_t bytes)
{
    struct answer *answer;

    /* A round that has ended meanwhile, by the deadline, is not this one. */
    if (!store || !store->away || number != store->number ||
        store->arrived != store->ranks ||
        bytes != store->world * (size_t)store->round[0]->request.bytes)
        return;
    store->away = false;
    answer = make_answer(SYMM_STORE_REPLY_OK, bytes);
    if (answer)
        memcpy(answer->data + sizeof(struct symm_store_reply), data, bytes);
    answer_all(store, answer);
}

static void time_out_round(struct symmrun_store *store)
{
    struct answer *answer = make_answer(SYMM_STORE_REPLY_TIMEOUT, store->world);

    withdraw_blocks(store);
    if (answer) /* of other nodes it is not known */
        memset(answer->data + sizeof(struct symm_store_reply), 0, store->world);
    for (uint32_t rank = 0; answer && rank < store->ranks; rank++)
        answer->data[sizeof(struct symm_store_reply) + store->first + rank] =
            store->round[rank] != NULL;
    answer_all(store, answer);
}

/* Whether the client has hung up, or has sent more, which poll has not reported yet. */
static bool has_gone(const struct connection *connection)
{
    char byte;
    ssize_t got = recv(connection->at.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* A client that hung up while waiting may come again with another block: drop this block. */
static void drop_absent(struct symmrun_store *store)
{
    for (uint32_t rank = 0; rank < store->ranks; rank++) {
        if (store->round[rank] && has_gone(store->round[rank]))
            hang_up(store, store->round[rank]);
    }
}

/* A complete and authentic request: the connection joins the round. */
static void join_round(struct symmrun_store *store, struct connection *connection)
{
    const struct symm_store_request *request = &connection->request;
    const uint32_t place = request->rank - store->first;
    struct connection *holder = store->round[place];

    if (holder && has_gone(holder)) {
        hang_up(store, holder);
        holder = NULL;
    }
    if (holder) {
        refuse(store, connection, SYMM_STORE_REPLY_DUPLICATE);
        return;
    }
    connection->rank = place;
    connection->stage = WAITING;
    connection->at.until = SYMM_ACCEPTOR_NEVER;
    connection->round_until = symm__now() + 1e-3 * request->timeout_ms;
    symm__acceptor_spare(&store->connections, &connection->at, (int)place);
    store->round[place] = connection;
    store->arrived++;
    for (uint32_t rank = 0; rank < store->ranks; rank++) {
        if (store->round[rank] && store->round[rank]->request.bytes != request->bytes) {
            /* The exchange cannot succeed: every client that waits gets the error now. */
            answer_all(store, make_answer(SYMM_STORE_REPLY_BYTES, 0));
            return;
        }
    }
    if (store->arrived == store->ranks)
        drop_absent(store);
    if (store->arrived == store->ranks)
        finish_round(store);
}

/* A client of another version is told so in words of version 1, and read out: a reset
 * would take the answer with it. */
static void refuse_version(const struct connection *connection)
{
    const struct symm_store_reply reply = {.magic = htonl(SYMM_STORE_MAGIC),
                                           .status = htonl(SYMM_STORE_REPLY_VERSION)};
    unsigned char rest[sizeof(connection->block)];

    if (connection->hello.magic != reply.magic ||
        connection->hello.version == htonl(SYMM_STORE_VERSION))
        return;
    (void)send(connection->at.fd, &reply, sizeof(reply), MSG_NOSIGNAL);
    (void)shutdown(connection->at.fd, SHUT_WR);
    (void)recv(connection->at.fd, rest, sizeof(rest), MSG_DONTWAIT);
}

/* The client's hello is complete: it gets the welcome. False: the connection is gone. */
static bool welcome(struct symmrun_store *store, struct connection *connection)
{
    struct symm_store_welcome *mine = &connection->welcome;

    mine->hello = (struct symm_store_handshake){.magic = htonl(SYMM_STORE_MAGIC),
                                                .version = htonl(SYMM_STORE_VERSION)};
    if (connection->hello.magic == mine->hello.magic &&
        connection->hello.version == mine->hello.version &&
        getrandom(mine->hello.nonce, sizeof(mine->hello.nonce), 0) ==
            (ssize_t)sizeof(mine->hello.nonce)) {
        mine->proof =
            symm__store_hash(store->secret, SYMM_STORE_PROOF_WELCOME,
                             &connection->hello, &mine->hello, NULL, 0, NULL, 0);
        connection->stage = ASKING;
        connection->used = 0;
        /* Smaller than any socket's buffer, and the first that is sent. */
        if (send(connection->at.fd, mine, sizeof(*mine), MSG_NOSIGNAL) ==
            (ssize_t)sizeof(*mine))
            return true;
    }
    refuse_version(connection);
    hang_up(store, connection);
    return false;
}

static bool request_is_true(const struct symmrun_store *store,
                            const struct connection *connection, size_t bytes)
{
    struct symm_store_request request = connection->request;
    struct symm_siphash_tag proof;

    request.proof = (struct symm_siphash_tag){0};
    proof = symm__store_hash(store->secret, SYMM_STORE_PROOF_REQUEST,
                             &connection->hello, &connection->welcome.hello, &request,
                             sizeof(request), connection->block, bytes);
    return symm__siphash_equal(&connection->request.proof, &proof);
}

/* The request is complete. */
static void take_request(struct symmrun_store *store, struct connection *connection)
{
    struct symm_store_request *request = &connection->request;

    if (!request_is_true(store, connection, ntohl(request->bytes))) {
        hang_up(store, connection);
        return;
    }
    request->rank = ntohl(request->rank);
    request->size = ntohl(request->size);
    request->bytes = ntohl(request->bytes);
    request->timeout_ms = ntohl(request->timeout_ms);
    if (request->size != store->world)
        refuse(store, connection, SYMM_STORE_REPLY_SIZE);
    else if (request->rank < store->first ||
             request->rank - store->first >= store->ranks)
        refuse(store, connection, SYMM_STORE_REPLY_RANK);
    else
        join_round(store, connection);
}

/* Reads the available part of a hello or a request. The connection may be gone afterwards. */
static void read_request(struct symmrun_store *store, struct connection *connection)
{
    for (;;) {
        bool handshake = connection->stage == HANDSHAKE;
        const size_t head =
            handshake ? sizeof(connection->hello) : sizeof(connection->request);
        char *to =
            handshake ? (char *)&connection->hello : (char *)&connection->request;
        size_t end = head;
        ssize_t got;

        if (!handshake && connection->used >= head) {
            uint32_t bytes = ntohl(connection->request.bytes);

            if (bytes > SYMM_STORE_BLOCK_MAX) {
                hang_up(store, connection);
                return;
            }
            end = head + bytes;
            if (connection->used == end) {
                take_request(store, connection);
                return;
            }
        }
        to = connection->used >= head
                 ? (char *)connection->block + connection->used - head
                 : to + connection->used;
        got = recv(connection->at.fd, to, end - connection->used, 0);
        if (got > 0) {
            connection->used += (size_t)got;
            if (handshake && connection->used == head && !welcome(store, connection))
                return;
        } else if (got == 0 ||
                   (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            hang_up(store, connection);
            return;
        } else if (errno != EINTR) {
            return;
        }
    }
}

size_t symmrun_store_most(const struct symmrun_store *store)
{
    return 1 + store->connections.count;
}

void symmrun_store_watch(struct symmrun_store *store, struct pollfd *fds, size_t *count)
{
    *count = symm__acceptor_watch(&store->connections, fds);
}

/* `hear` of struct symm_acceptor: a connection has sent something, or hung up. */
static const char *serve_one(void *user, struct symm_guest *guest)
{
    struct symmrun_store *store = user;
    struct connection *connection = (struct connection *)guest;

    switch (connection->stage) {
    case HANDSHAKE:
    case ASKING:
        read_request(store, connection);
        break;
    case WAITING: /* nothing more is to follow: a hang-up, or not our protocol */
        if (has_gone(connection))
            hang_up(store, connection);
        break;
    case ANSWERED:
        if (!send_answer(connection))
            hang_up(store, connection);
        break;
    }
    return NULL;
}

/* The end of the round's time; SYMMRUN_NEVER: no client waits. */
static double round_due(const struct symmrun_store *store)
{
    double due = SYMMRUN_NEVER;

    for (uint32_t rank = 0; rank < store->ranks; rank++)
        if (store->round[rank] && store->round[rank]->round_until < due)
            due = store->round[rank]->round_until;
    return due;
}

void symmrun_store_serve(struct symmrun_store *store, const struct pollfd *fds,
                         size_t count)
{
    (void)symm__acceptor_serve(&store->connections, fds, count);
    if (round_due(store) <= symm__now())
        time_out_round(store);
}

double symmrun_store_due(const struct symmrun_store *store)
{
    double round = round_due(store), other = symm__acceptor_due(&store->connections);

    return round < other ? round : other;
}
