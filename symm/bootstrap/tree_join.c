/* SPDX-License-Identifier: MIT */
/* tree_join.c - see tree.h. What a host does for its children, and rank 0 for all. */
#include "bootstrap/tree_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"

#define GUESTS_MAX     256
#define GUEST_SECONDS  2.0 /* for a stranger to prove itself */
#define LINGER_SECONDS 1.0 /* for children to take the table */
#define AWAY_SECONDS   2.0 /* for a child whose connection broke to come again */
#define FAILED_SECONDS 2.0 /* for a host that cannot join to report that */

/* A connection from a child, or from a host that sends JOIN. */
struct branch {
    struct symm_guest at;
    struct symm_auth auth;
    struct symm_relay_link link;
    bool open, has_table;
    int number; /* of the host at the other end; -1: not known yet */
    bool unanswered; /* there was no memory for a place: it is to join again */
};

symm_status symm__tree_no_memory(const struct join *join)
{
    return symm__fail(SYMM_ERR_NOMEM, "rank %d: no memory to join a job of %d ranks",
                      join->args->rank, join->args->size);
}

/* ---- The table --------------------------------------------------------------------- */

/* The TABLE for all hosts. status != SYMM_OK: they fail with symm_last_error(). NULL: no memory. */
static struct symm_relay_message *table_make(const struct join *join,
                                             symm_status status)
{
    const char *sentence = status == SYMM_OK ? "" : symm_last_error();
    uint64_t bytes = status == SYMM_OK ? (uint64_t)join->args->size * join->args->bytes
                                       : strlen(sentence);
    struct symm_relay_message *table = symm__relay_message(SYMM_RELAY_TABLE, bytes);

    if (!table)
        return NULL;
    table->head.status = status;
    table->head.rank = join->hosts;
    memcpy(table->data, status == SYMM_OK ? join->args->all : (const void *)sentence,
           (size_t)bytes);
    return table;
}

static int children_of(const struct join *join)
{
    return symm__tree_children(join->number, join->hosts);
}

/* Sends the table if there is one, once to each host whose number is known. */
static void table_send(struct join *join, struct branch *branch)
{
    if (!join->table || branch->has_table || branch->number < 0)
        return;
    branch->has_table = symm__relay_link_send(&branch->link, join->table);
}

static bool has_failed(const struct join *join)
{
    return join->table && join->table->head.status != SYMM_OK;
}

/* The index in `have` and `away` of the child at this connection; -1: it is no child. */
static int child_of(const struct join *join, const struct branch *branch)
{
    return branch->number > 0 && symm__tree_parent(branch->number) == join->number
               ? branch->number - symm__tree_child(join->number)
               : -1;
}

/* Host `number` is at this connection. An earlier connection of it is broken, though its end may
 * not have been read yet: it is dropped. */
static void take_child(struct join *join, struct branch *branch, int number)
{
    struct symm_acceptor *of[2] = {&join->children, &join->joining};

    for (int a = 0; a < 2; a++)
        for (size_t i = 0; i < of[a]->count; i++) {
            struct branch *other = (struct branch *)of[a]->guests[i];

            if (other == branch || !other->open || other->number != number)
                continue;
            other->number = -1;
            symm__acceptor_drop(of[a], &other->at);
        }
    branch->number = number;
    if (child_of(join, branch) >= 0)
        join->away[child_of(join, branch)] = 0;
}

/* ---- At rank 0 --------------------------------------------------------------------- */

/* The host is told why it cannot join, by a TABLE that has failed. */
static void refuse(struct join *join, struct branch *branch, symm_status status,
                   const char *sentence)
{
    size_t bytes = strlen(sentence);
    struct symm_relay_message *table = symm__relay_message(SYMM_RELAY_TABLE, bytes);

    snprintf(join->refused, sizeof(join->refused), "%.95s", sentence);
    symm__log(SYMM_LOG_WARN, "rank 0 refused a host: %s", sentence);
    if (!table)
        return;
    table->head.status = status;
    memcpy(table->data, sentence, bytes);
    (void)symm__relay_link_send(&branch->link, table);
    symm__relay_drop(table);
}

/* Do version and sizes fit this job? */
static bool is_sound(const struct join *join, const struct join_head *head,
                     const struct symm_relay_message *message)
{
    const struct symm_tree_join *args = join->args;

    return head->count >= 1 && head->count <= args->size &&
           head->bytes == args->bytes && head->version == TREE_VERSION &&
           message->head.bytes ==
               sizeof(*head) + (uint64_t)head->count * (sizeof(int32_t) + args->bytes);
}

/* The number of the host, if the same process has sent JOIN before: its connection broke before
 * PLACE arrived. 0: it has not. */
static int number_before(const struct join *join, const struct join_head *head,
                         const struct symm_relay_message *message)
{
    int32_t rank, number;

    memcpy(&rank, message->data + sizeof(*head), sizeof(rank));
    if (rank <= 0 || rank >= join->args->size)
        return 0;
    number = join->number_of[rank];
    return number > 0 &&
                   memcmp(join->nonces[number], head->nonce, sizeof(head->nonce)) == 0
               ? number
               : 0;
}

/* Are the ranks of a JOIN in order, of this job, and new? If not, the host is refused. */
static bool check_ranks(struct join *join, struct branch *branch,
                        const struct join_head *head,
                        const struct symm_relay_message *message)
{
    const struct symm_tree_join *args = join->args;
    const uint8_t *ranks = message->data + sizeof(*head);
    int32_t last = 0;
    char text[160];

    for (int i = 0; i < head->count; i++) {
        int32_t rank;

        memcpy(&rank, ranks + (size_t)i * sizeof(rank), sizeof(rank));
        if (head->size == args->size && rank > last && rank < args->size &&
            join->number_of[rank] < 0) {
            last = rank;
            continue;
        }
        if (head->size != args->size)
            snprintf(text, sizeof(text),
                     "rank %d says that the job has %d ranks, rank 0 says %d", rank,
                     head->size, args->size);
        else if (rank <= 0 || rank >= args->size)
            snprintf(text, sizeof(text), "a host brings rank %d of %d%s", rank,
                     args->size, rank == 0 ? ", which has opened this bootstrap" : "");
        else if (rank <= last) /* listed twice, it would stand for a missing rank */
            snprintf(text, sizeof(text),
                     "a host lists rank %d after rank %d: its ranks must ascend", rank,
                     last);
        else
            snprintf(text, sizeof(text),
                     "rank %d has joined already: another process comes second", rank);
        refuse(join, branch, SYMM_ERR_REFUSED, text);
        return false;
    }
    return true;
}

/* The next host number goes to a host with these ranks and entries. */
static void add_host(struct join *join, const int32_t *ranks, int count,
                     const void *entries, const struct symm_host_address *place,
                     const uint8_t *nonce)
{
    const struct symm_tree_join *args = join->args;

    join->places[join->hosts] = *place;
    memcpy(join->nonces[join->hosts], nonce, sizeof(join->nonces[0]));
    for (int i = 0; i < count; i++) {
        int32_t rank;

        memcpy(&rank, (const char *)ranks + (size_t)i * sizeof(rank), sizeof(rank));
        join->number_of[rank] = join->hosts;
        memcpy((char *)args->all + (size_t)rank * args->bytes,
               (const char *)entries + (size_t)i * args->bytes, args->bytes);
    }
    join->joined += count;
    join->hosts++;
}

/* False: no memory. The connection ends then, so that the host joins again. */
static bool send_place(struct join *join, struct branch *branch, int number)
{
    struct place_head place = {.number = number};
    struct symm_relay_message *reply =
        symm__relay_message(SYMM_RELAY_PLACE, sizeof(place));
    int parent = symm__tree_parent(number);
    bool sent;

    if (!reply)
        return false;
    if (parent > 0)
        place.parent = join->places[parent];
    memcpy(reply->data, &place, sizeof(place));
    sent = symm__relay_link_send(&branch->link, reply);
    symm__relay_drop(reply);
    if (sent && parent == 0)
        take_child(join, branch, number); /* keeps this connection */
    return sent;
}

static void hear_join(struct join *join, struct branch *branch,
                      const struct symm_relay_message *message)
{
    struct join_head head;
    const uint8_t *ranks = message->data + sizeof(head);
    int number;

    if (message->head.status != SYMM_OK) {
        char text[SYMM_ERROR_BYTES];
        symm__relay_sentence(message, text);
        join->status = symm__fail(symm__peer_status(message->head.status),
                                  "rank %" PRIu32 " reports: %s",
                                  ntohl(branch->auth.first.from), text);
        /* Not -1: then table_send sends the error there, too. */
        branch->number = join->hosts;
        return;
    }
    if (message->head.bytes < sizeof(head)) {
        refuse(join, branch, SYMM_ERR_REFUSED, "a host sent a damaged request to join");
        return;
    }
    memcpy(&head, message->data, sizeof(head));
    if (!is_sound(join, &head, message)) {
        refuse(join, branch, SYMM_ERR_REFUSED,
               "a host of another version of libsymm, or a damaged one, wants to join");
        return;
    }
    number = number_before(join, &head, message);
    if (number > 0) {
        branch->unanswered = !send_place(join, branch, number);
        return;
    }
    if (!check_ranks(join, branch, &head, message))
        return;
    branch->unanswered = !send_place(join, branch, join->hosts);
    if (branch->unanswered)
        return;
    add_host(join, (const int32_t *)(const void *)ranks, head.count,
             ranks + (size_t)head.count * sizeof(int32_t), &head.place, head.nonce);
    if (join->joined == join->args->size) {
        join->table = table_make(join, SYMM_OK);
        if (!join->table)
            join->status = symm__tree_no_memory(join);
    }
}

static symm_status fail_missing(const struct join *join)
{
    int *late = malloc((size_t)join->args->size * sizeof(*late)), count = 0;
    char names[300];
    symm_status status;

    for (int r = 0; late && r < join->args->size; r++)
        if (join->number_of[r] < 0)
            late[count++] = r;
    if (!late)
        return symm__tree_no_memory(join);
    symm__ranks_text(late, count, names, sizeof(names));
    free(late);
    status = symm__fail(SYMM_ERR_TIMEOUT,
                        "%s %s not joined the job at %s after %.3g s: not started, or "
                        "does a firewall stop "
                        "%s?%s%s%s",
                        names, count == 1 ? "has" : "have", join->args->root,
                        symm__now() - join->start, count == 1 ? "it" : "them",
                        join->refused[0] ? " rank 0 has refused a host: " : "",
                        join->refused,
                        join->joining.lacked || join->children.lacked
                            ? " rank 0 lacked descriptors for connections: raise its "
                              "limit of open files (ulimit -n)"
                            : "");
    return status;
}

/* ---- Guests ------------------------------------------------------------------------ */

static void log_refused(void *user, const char *why, bool last)
{
    const struct join *join = user;

    symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", join->args->rank,
              why, last ? " (more are not logged)" : "");
}

/* The acceptors' `gone`. */
static void guest_gone(void *user, struct symm_guest *guest)
{
    struct branch *branch = (struct branch *)guest;
    struct join *join = user;
    int child = branch->open ? child_of(join, branch) : -1;

    if (child >= 0) {
        join->away[child] = symm__now();
        if (branch->has_table && has_failed(join)) /* no host sends HAVE for an error */
            join->have |= 1u << child;
    }
    symm__relay_link_close(&branch->link);
}

/* A message of an authenticated connection. False: it has no place in this protocol. */
static bool hear_branch(struct join *join, struct branch *branch,
                        const struct symm_relay_message *message)
{
    if (message->head.kind == SYMM_RELAY_JOIN && is_root(join) && branch->number < 0) {
        if (has_failed(join))
            branch->number = 0; /* not -1: then table_send sends the error there */
        else
            hear_join(join, branch, message);
        return true;
    }
    if (message->head.kind == SYMM_RELAY_HAVE && branch->has_table &&
        child_of(join, branch) >= 0) {
        join->have |= 1u << child_of(join, branch);
        return true;
    }
    if (!is_root(join) && !join->placed)
        return false; /* which numbers are this host's children is not known yet */
    if (message->head.kind != SYMM_RELAY_PLACE || message->head.rank <= 0 ||
        message->head.rank >= join->args->size || branch->number >= 0 ||
        symm__tree_parent(message->head.rank) != join->number)
        return false;
    take_child(join, branch, message->head.rank);
    return true;
}

/* Reads and sends what it can. NULL: go on; else why the connection is to be dropped. */
static const char *branch_move(struct join *join, struct branch *branch)
{
    for (;;) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&branch->link, &message);
        bool heard;

        if (wire == SYMM_SEQPACKET_AGAIN)
            break;
        if (wire != SYMM_SEQPACKET_OK)
            return "";
        heard = hear_branch(join, branch, message);
        symm__relay_drop(message);
        if (!heard)
            return "it did not say what a host of this job would";
        if (branch->unanswered)
            return "there is no memory for an answer";
    }
    table_send(join, branch);
    if (symm__relay_link_flush(&branch->link) == SYMM_SEQPACKET_ERROR)
        return "";
    branch->at.events =
        (short)(POLLIN | (symm__relay_link_owes(&branch->link) ? POLLOUT : 0));
    return NULL;
}

/* Keeps the reason for the sentence about missing ranks. */
static const char *note_refused(struct join *join, const char *why)
{
    snprintf(join->refused, sizeof(join->refused), "%s", why);
    return why;
}

/* The acceptors' `hear`. */
static const char *hear_guest(void *user, struct symm_guest *at)
{
    struct join *join = user;
    struct branch *branch = (struct branch *)at;
    uint8_t key[SYMM_SIPHASH_KEY];

    if (branch->open)
        return branch_move(join, branch);
    switch (symm__auth_hear_guest(&join->protocol, &branch->auth, at)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        branch->number = -1;
        branch->unanswered = false;
        return symm__auth_answer(&join->protocol, &branch->auth, at->fd, 0, 0)
                   ? NULL
                   : "it hung up";
    case SYMM_AUTH_DONE:
        break;
    case SYMM_AUTH_GONE:
    case SYMM_AUTH_FOREIGN: /* a relay of a host that has left this bootstrap with the table */
        return "";
    case SYMM_AUTH_VERSION:
        return note_refused(join, "it is of another version of libsymm");
    default:
        return note_refused(join, "it does not know the job's secret");
    }
    symm__auth_key(&join->protocol, &branch->auth, key);
    if (!symm__relay_link_open(&branch->link, at->fd, key, false))
        return "there is no memory for it";
    branch->open = true;
    at->until = join->args->until + LINGER_SECONDS;
    symm__acceptor_spare(is_root(join) ? &join->joining : &join->children, at,
                         (int)ntohl(branch->auth.first.from));
    return branch_move(join, branch);
}

static bool acceptor_begin(struct join *join, struct symm_acceptor *acceptor,
                           int listener)
{
    *acceptor = (struct symm_acceptor){.listener = listener,
                                       .most = GUESTS_MAX,
                                       .guest_bytes = sizeof(struct branch),
                                       .seconds = GUEST_SECONDS,
                                       .hear = hear_guest,
                                       .refused = log_refused,
                                       .gone = guest_gone,
                                       .user = join};
    return symm__acceptor_open(acceptor);
}

/* ---- Together ---------------------------------------------------------------------- */

static void serve_all(struct join *join, struct symm_acceptor *acceptor)
{
    for (size_t i = 0; i < acceptor->count; i++) {
        struct branch *branch = (struct branch *)acceptor->guests[i];

        if (branch->open && branch->at.fd >= 0 && branch_move(join, branch))
            symm__acceptor_drop(acceptor, &branch->at);
    }
}

static double earliest(double a, double b)
{
    return a < b ? a : b;
}

/* A host that has joined waits a moment longer: rank 0's table names the missing ranks. */
static double deadline(const struct join *join)
{
    return join->args->until +
           (!is_root(join) && join->stage == OPEN ? LINGER_SECONDS : 0);
}

/* One poll, and what its events and the clock demand. */
static symm_status turn(struct join *join, struct pollfd *polls)
{
    size_t children = symm__acceptor_watch(&join->children, polls + 1), joining = 0;
    double due = earliest(deadline(join), symm__acceptor_due(&join->children));
    struct timespec span;
    int ready;

    if (is_root(join)) {
        joining = symm__acceptor_watch(&join->joining, polls + 1 + children);
        due = earliest(due, symm__acceptor_due(&join->joining));
    } else if (join->stage != OPEN) {
        due = earliest(due, join->at);
    }
    polls[0] = (struct pollfd){.fd = join->fd, .events = POLLIN};
    if (join->stage == CONNECTING ||
        (join->stage == OPEN && join->link.tcp && symm__relay_link_owes(&join->link)))
        polls[0].events |= POLLOUT;
    span = symm__timespec(due - symm__now());
    ready = ppoll(polls, 1 + (nfds_t)(children + joining), &span, NULL);
    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "rank %d joining the job",
                                join->args->rank);
    if (ready < 0)
        return SYMM_OK;
    (void)symm__acceptor_serve(&join->children, polls + 1, children);
    if (is_root(join))
        (void)symm__acceptor_serve(&join->joining, polls + 1 + children, joining);
    if (!is_root(join)) {
        symm_status status =
            symm__tree_move_above(join, join->fd >= 0 && polls[0].revents);

        if (status != SYMM_OK)
            return status;
    }
    if (join->stage == OPEN && join->link.tcp)
        (void)symm__relay_link_flush(&join->link);
    serve_all(join, &join->children);
    serve_all(join, &join->joining);
    return join->status;
}

/* Have all hosts below this one the table, except those whose connection broke for good? */
static bool all_have(const struct join *join)
{
    const double now = symm__now();

    if (is_root(join) && has_failed(join))
        return false; /* hosts that join a little later are told the error, too */
    for (int i = 0; i < children_of(join); i++)
        if (!(join->have >> i & 1) &&
            (join->away[i] == 0 || now < join->away[i] + AWAY_SECONDS))
            return false;
    return true;
}

/* Sends the table to the children, also to those that connect late, until all have it. */
static void hand_down(struct join *join, struct pollfd *polls, double until)
{
    char sentence[SYMM_ERROR_BYTES];

    symm__error_save(sentence);
    serve_all(join, &join->children);
    serve_all(join, &join->joining);
    while (symm__now() < until && !all_have(join)) {
        struct pollfd *at = polls + 1;
        size_t children = symm__acceptor_watch(&join->children, at);
        size_t joining =
            is_root(join) ? symm__acceptor_watch(&join->joining, at + children) : 0;
        struct timespec span = symm__timespec(earliest(until - symm__now(), 0.05));

        (void)ppoll(at, (nfds_t)(children + joining), &span, NULL);
        (void)symm__acceptor_serve(&join->children, at, children);
        if (joining > 0)
            (void)symm__acceptor_serve(&join->joining, at + children, joining);
        serve_all(join, &join->children);
        serve_all(join, &join->joining);
    }
    symm__error_restore(sentence);
}

/* Reports to the parent that this host and those below have the table. */
static void say_have(struct join *join)
{
    struct symm_relay_message *message = symm__relay_message(SYMM_RELAY_HAVE, 0);
    const double until = symm__now() + LINGER_SECONDS;

    if (message && symm__relay_link_send(&join->link, message))
        while (symm__relay_link_flush(&join->link) == SYMM_SEQPACKET_AGAIN &&
               symm__now() < until) {
            struct pollfd at = {.fd = join->fd, .events = POLLOUT};
            struct timespec span = symm__timespec(until - symm__now());

            (void)ppoll(&at, 1, &span, NULL);
        }
    symm__relay_drop(message);
}

static void leave_above(struct join *join)
{
    if (join->fd < 0)
        return;
    symm__relay_link_close(&join->link);
    close(join->fd);
    join->fd = -1;
}

static symm_status run(struct join *join, struct pollfd *polls)
{
    const struct symm_tree_join *args = join->args;
    symm_status status = SYMM_OK;
    if (is_root(join))
        status = args->failed;
    while (status == SYMM_OK && !join->table) {
        if (args->failed != SYMM_OK && symm__now() >= join->start + FAILED_SECONDS)
            break;
        if (symm__now() >= deadline(join))
            status = is_root(join) ? fail_missing(join) : symm__tree_not_reached(join);
        else
            status = turn(join, polls);
    }
    if (status != SYMM_OK && is_root(join) && !join->table) {
        if (args->failed != SYMM_OK)
            (void)symm__fail(status, "rank %d reports: %s", args->rank,
                             join->why_failed);
        join->table = table_make(join, status);
    }
    if (status != SYMM_OK || has_failed(join))
        leave_above(join);
    if (join->table)
        hand_down(join, polls,
                  status == SYMM_OK ? args->until : symm__now() + LINGER_SECONDS);
    if (join->fd >= 0 && join->table)
        say_have(join);
    leave_above(join);
    return status;
}

static symm_status open_root(struct join *join, int *listener)
{
    const struct symm_tree_join *args = join->args;
    struct symm_address any = join->target;
    int32_t *ranks = malloc((size_t)args->count * sizeof(*ranks));

    join->places = calloc((size_t)args->size, sizeof(*join->places));
    join->nonces = calloc((size_t)args->size, sizeof(*join->nonces));
    join->number_of = malloc((size_t)args->size * sizeof(*join->number_of));
    if (!join->places || !join->nonces || !join->number_of || !ranks) {
        free(ranks);
        return symm__tree_no_memory(join);
    }
    for (int r = 0; r < args->size; r++)
        join->number_of[r] = -1;
    for (int i = 0; i < args->count; i++)
        ranks[i] = args->ranks[i];
    if (args->failed == SYMM_OK)
        add_host(join, ranks, args->count, args->entries, args->place, join->nonce);
    free(ranks);
    if (join->joined == args->size) {
        join->table = table_make(join, SYMM_OK);
        return join->table ? SYMM_OK : symm__tree_no_memory(join);
    }
    /* At all addresses: on this host the name may resolve to another one than elsewhere. */
    symm__address_any(&any);
    *listener = symm__address_listen_until(&any, args->until, NULL, NULL);
    if (*listener < 0)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "rank 0 listening for the job's hosts at the port of %s "
            "(SYMM_BOOTSTRAP_PORT names another one)",
            args->root);
    return acceptor_begin(join, &join->joining, *listener) ? SYMM_OK
                                                           : symm__tree_no_memory(join);
}

symm_status symm__tree_join(const struct symm_tree_join *args)
{
    struct join join = {
        .args = args,
        .protocol = {.magic = TREE_MAGIC, .version = TREE_VERSION, .key = args->key},
        .start = symm__now(),
        .fd = -1,
        .stage = WAITING,
        .pause = RETRY_SECONDS};
    struct pollfd *polls = calloc(2 * (GUESTS_MAX + 1) + 1, sizeof(*polls));
    const char *wrong =
        symm__address_parse(args->root, SYMM_ADDRESS_NAME, &join.target);
    int listener = -1;
    symm_status status = SYMM_OK;

    if (args->failed != SYMM_OK)
        snprintf(join.why_failed, sizeof(join.why_failed), "%s", symm_last_error());
    if (wrong)
        status = symm__fail(SYMM_ERR_JOB, "the address of rank 0's host '%.100s' %s",
                            args->root, wrong);
    else if (!polls || (args->listener >= 0 &&
                        !acceptor_begin(&join, &join.children, args->listener)))
        status = symm__tree_no_memory(&join);
    if (status == SYMM_OK)
        status = symm__random(join.nonce, sizeof(join.nonce));
    if (status == SYMM_OK && is_root(&join))
        status = open_root(&join, &listener);
    if (status == SYMM_OK)
        status = run(&join, polls);
    if (args->failed != SYMM_OK)
        status = symm__fail_quiet(args->failed, join.why_failed);
    symm__acceptor_close(&join.children);
    symm__acceptor_close(&join.joining);
    leave_above(&join);
    if (listener >= 0)
        close(listener);
    symm__relay_drop(join.table);
    free(join.places);
    free(join.nonces);
    free(join.number_of);
    free(polls);
    return status;
}
