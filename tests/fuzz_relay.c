/* SPDX-License-Identifier: MIT */
/*
 * fuzz_relay.c - messages between hosts: what a relay and its clients make of them
 * (relay/roles.c, relay/news.c, relay/ledger_take.c), and which ends a relay takes
 * (relay/connections.c). Without threads, and but for the latter without sockets.
 *
 * The job has 24 ranks on 12 hosts, two on each. The first line of a script, "rank R", says which
 * one this is: an even one serves its host. Other lines:
 *   host N MESSAGE, rank N MESSAGE, relay MESSAGE   has come from there (fuzz_message.h)
 *   lost host N, lost rank N, lost relay            the connection is lost
 *   call MESSAGE    this rank's own exchange, a PART
 *   guest FROM ABOUT KEY    an end connects and proves itself, with another key if KEY is not 0
 *   gone N LEFT, rank-gone, serve, leave, tick, cut N
 */
#include "fuzz_message.h"

#include <math.h>

#include "relay/private.h"
#include "util/clock.h"

#define RANKS 24
#define HOSTS 12

struct world {
    struct symm_relay *relay;
    int32_t host_of[RANKS];
    struct symm_relay_host at[HOSTS];
    int local[2], local_fd[2];
    uint8_t key[SYMM_SIPHASH_KEY];
};

static void open_relay(struct world *world, int rank)
{
    struct symm_relay_config config = {.rank = rank,
                                       .ranks = RANKS,
                                       .host = rank / 2,
                                       .hosts = HOSTS,
                                       .host_of = world->host_of,
                                       .at = world->at,
                                       .local = world->local,
                                       .local_fd = world->local_fd,
                                       .local_size = 2,
                                       .listener = -1,
                                       .key = world->key};

    for (int r = 0; r < RANKS; r++)
        world->host_of[r] = r / 2;
    for (int h = 0; h < HOSTS; h++)
        snprintf(world->at[h].name, sizeof(world->at[h].name), "host%d", h);
    for (int i = 0; i < 2; i++) {
        world->local[i] = 2 * (rank / 2) + i;
        world->local_fd[i] = -1;
    }
    if (symm__relay_make(&config, &world->relay) != SYMM_OK)
        abort();
    symm__relay_take_hang_ups(world->relay, NULL); /* the lower rank begins to serve */
}

/* The open connection to there, which is made if it is not; NULL: this rank has none such. */
static struct symm_relay_connection *reach(struct world *world, const char *who, int id)
{
    struct symm_relay *relay = world->relay;
    struct symm_relay_connection *c;
    enum symm_relay_end end = SYMM_RELAY_TO_RELAY;

    if (strcmp(who, "host") == 0) {
        if (!relay->serving || id < 0 || id >= HOSTS || id == relay->config.host)
            return NULL;
        end = id < relay->config.host ? SYMM_RELAY_TO_HOST : SYMM_RELAY_OF_HOST;
    } else if (strcmp(who, "rank") == 0) {
        if (!relay->serving || id < 0 || id >= RANKS || id == relay->config.rank ||
            world->host_of[id] != relay->config.host)
            return NULL;
        end = SYMM_RELAY_OF_RANK;
    } else if (relay->serving) {
        return NULL;
    } else {
        id = relay->config.rank;
    }
    symm__relay_want(relay, end, id, 0);
    c = symm__relay_find(relay, end, id);
    if (!c || c->stage == SYMM_RELAY_OPEN)
        return c;
    if (!symm__relay_link_open(&c->link, -1, world->key, false))
        abort();
    c->stage = SYMM_RELAY_OPEN;
    c->at = symm__now();
    symm__relay_opened(relay, c);
    return c;
}

/* This rank's own exchange begins: its PART. */
static void call(struct world *world, struct symm_relay_message *part)
{
    struct symm_relay *relay = world->relay;

    if (!part || part->head.kind != SYMM_RELAY_PART || relay->call.part ||
        symm__relay_list_bytes(part->head.leaders) > part->head.bytes ||
        part->head.leaders < 1) {
        symm__relay_drop(part);
        return;
    }
    part->head.from = part->head.rank = relay->config.rank;
    relay->call = (struct symm_relay_call){.state = SYMM_CALL_WAITS, .part = part};
    symm__relay_say(relay, part);
    symm__relay_call_step(relay);
}

/* What the rank's thread does with the outcome of its exchange. */
static void end_call(struct world *world)
{
    struct symm_relay_call *own = &world->relay->call;
    struct symm_relay_result result = {.message = NULL};
    struct symm_relay_exchange x = {.what = "the call"};

    if (own->state != SYMM_CALL_WENT)
        return;
    x.hosts = (int)own->part->head.leaders;
    result.message = symm__relay_keep(own->all);
    if (symm__relay_take_parts(&x, &result) == SYMM_OK)
        for (int p = 0; p < x.hosts; p++)
            for (size_t b = 0; b < result.parts[p].bytes; b += 64)
                fuzz_must(result.parts[p].data[b] != 0xee, "a part is there", NULL);
    symm__relay_result_finish(&result);
}

static void lose(struct world *world, struct fuzz_line *line)
{
    char who[16];

    fuzz_word(line, who, sizeof(who));
    {
        struct symm_relay_connection *c = reach(world, who, (int)fuzz_number(line, 0));

        if (c)
            symm__relay_doom(c);
    }
}

static void hear(struct world *world, const char *who, struct fuzz_line *line)
{
    int id = strcmp(who, "relay") == 0 ? 0 : (int)fuzz_number(line, 0);
    struct symm_relay_connection *c = reach(world, who, id);
    struct symm_relay_message *message;
    char kind[16];

    fuzz_word(line, kind, sizeof(kind));
    message = fuzz_message(line, kind, 1);
    if (c && message && !symm__relay_hear(world->relay, c, message))
        symm__relay_doom(c);
    symm__relay_drop(message);
}

/* The relay listens from now on. */
static int listen_now(struct symm_relay *relay)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(at);
    int fd = relay->config.listener;

    if (fd < 0)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        (relay->config.listener < 0 &&
         (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 8) != 0)))
        abort();
    relay->config.listener = relay->acceptor.listener = fd;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) != 0)
        abort();
    return ntohs(at.sin_port);
}

/* What the thread does with sockets that are ready. */
static void serve(struct symm_relay *relay)
{
    struct pollfd polls[256];
    double due = INFINITY;
    size_t count;

    if (symm__relay_watched(relay) > sizeof(polls) / sizeof(polls[0]))
        return;
    count = symm__relay_watch(relay, polls, &due);
    (void)poll(polls, count, 0);
    symm__relay_move(relay, polls, count);
}

static void guest(struct world *world, struct fuzz_line *line)
{
    static const uint8_t other[SYMM_SIPHASH_KEY] = "another key";
    struct symm_relay *relay = world->relay;
    uint32_t from = (uint32_t)fuzz_number(line, 0),
             about = (uint32_t)fuzz_number(line, 0);
    struct symm_auth_protocol protocol = {.magic = 0x53594d52u,
                                          .version = 2,
                                          .key = fuzz_number(line, 0) ? other
                                                                      : world->key};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    enum symm_auth_said said = SYMM_AUTH_WAIT;
    struct symm_auth auth;
    int fd;

    if (!relay->serving)
        return;
    at.sin_port = htons((uint16_t)listen_now(relay));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        abort();
    fuzz_no_wait(fd);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        !symm__auth_ask(&protocol, &auth, fd, from, about))
        said = SYMM_AUTH_GONE; /* this host has no more ports */
    for (int turns = 0; turns < 3 && said == SYMM_AUTH_WAIT; turns++) {
        serve(relay);
        said = symm__auth_hear(&protocol, &auth, fd);
    }
    serve(relay);
    fuzz_must(said != SYMM_AUTH_DONE || protocol.key == world->key, "it knows the key",
              NULL);
    for (const struct symm_relay_connection *c = relay->connections; c; c = c->next)
        fuzz_must(c->id >= 0 && c->id < (c->end == SYMM_RELAY_OF_RANK ||
                                                 c->end == SYMM_RELAY_TO_RELAY
                                             ? RANKS
                                             : HOSTS),
                  "a connection leads to an end of the job", NULL);
    close(fd);
}

static void follow(struct world *world, struct fuzz_line *line)
{
    struct symm_relay *relay = world->relay;
    struct pollfd polls[2] = {{.revents = POLLHUP}, {.revents = POLLHUP}};
    char word[16], kind[16];
    int id;

    fuzz_word(line, word, sizeof(word));
    if (strcmp(word, "host") == 0 || strcmp(word, "rank") == 0 ||
        strcmp(word, "relay") == 0) {
        hear(world, word, line);
    } else if (strcmp(word, "guest") == 0) {
        guest(world, line);
    } else if (strcmp(word, "lost") == 0) {
        lose(world, line);
    } else if (strcmp(word, "call") == 0) {
        fuzz_word(line, kind, sizeof(kind));
        call(world, fuzz_message(line, kind, 1));
    } else if (strcmp(word, "gone") == 0) {
        id = (int)fuzz_number(line, 0);
        if (id >= 0 && id < HOSTS)
            symm__relay_host_gone(relay, id, fuzz_number(line, 0) != 0);
    } else if (strcmp(word, "rank-gone") == 0 || strcmp(word, "serve") == 0) {
        symm__relay_take_hang_ups(relay, polls);
    } else if (strcmp(word, "leave") == 0) {
        relay->leaving = true;
        symm__relay_leave_begin(relay);
    } else if (strcmp(word, "cut") == 0) {
        symm__ledger_cut(&relay->ledger, (int)fuzz_number(line, 0), SYMM_ERR_TIMEOUT,
                         "cut");
    }
}

/* Each turn of the thread, but for sockets. */
static void turn(struct world *world)
{
    struct symm_relay_report report;
    double due = INFINITY;

    symm__relay_sweep(world->relay);
    symm__relay_tend(world->relay, &due);
    if (symm__relay_reported(world->relay, 5, &report))
        fuzz_must(report.sentence[0] && report.status != SYMM_OK, "a report says why",
                  NULL);
    for (int r = 0; r < RANKS; r++)
        fuzz_must(symm__relay_state(world->relay, r) <= SYMM_RELAY_FINALIZED,
                  "a rank has a state", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = fuzz_script(data, size);
    struct world world = {.key = "fuzz_relay"};
    struct fuzz_line line;
    char word[16];
    int rank = 0;

    if (fuzz_next(&script, &line)) {
        fuzz_word(&line, word, sizeof(word));
        rank = (int)((uint64_t)fuzz_number(&line, 0) % RANKS);
    }
    open_relay(&world, rank);
    for (int lines = 0; lines < 64 && fuzz_next(&script, &line); lines++) {
        follow(&world, &line);
        turn(&world);
    }
    end_call(&world);
    symm__relay_free(world.relay);
    return 0;
}
