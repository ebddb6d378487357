/* SPDX-License-Identifier: MIT */
/* tree_join.c - see tree.h. What a host does for its children, and rank 0 for all. */
#include "bootstrap/tree_private.h"

#include <arpa/inet.h>
#include <errno.h>
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
#define FAILED_SECONDS 2.0 /* for a host that cannot join to say so */

/* A child at its parent, or a host that says JOIN. */
struct branch {
    struct symm_guest at;
    struct symm_auth auth;
    struct symm_relay_link link;
    bool open, has_table;
    int number; /* -1: it has not said */
};

symm_status symm__tree_no_memory(const struct join *join)
{
    return symm__fail(SYMM_ERR_NOMEM, "rank %d: no memory to join a job of %d ranks",
                      join->as->rank, join->as->size);
}

/* ---- The table --------------------------------------------------------------------- */

/* status != OK: symm_last_error() is what all hosts return. */
static struct symm_relay_message *table_make(const struct join *join,
                                             symm_status status)
{
    const char *sentence = status == SYMM_OK ? "" : symm_last_error();
    uint64_t bytes = status == SYMM_OK ? (uint64_t)join->as->size * join->as->bytes
                                       : strlen(sentence);
    struct symm_relay_message *table = symm__relay_message(SYMM_RELAY_TABLE, bytes);

    if (!table)
        return NULL;
    table->head.status = status;
    table->head.rank = join->hosts;
    memcpy(table->data, status == SYMM_OK ? join->as->all : (const void *)sentence,
           (size_t)bytes);
    return table;
}

static int children_of(const struct join *join)
{
    return symm__tree_children(join->number, join->hosts);
}

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

/* The child's place in `have` and `away`; -1: no child is there. */
static int child_of(const struct join *join, const struct branch *branch)
{
    return branch->number > 0 && symm__tree_parent(branch->number) == join->number
               ? branch->number - symm__tree_child(join->number)
               : -1;
}

/* The host of that number is at this connection. An earlier one of it is broken, though that may
 * not be known here. */
static void take_child(struct join *join, struct branch *branch, int number)
{
    struct symm_acceptor *of[2] = {&join->children, &join->joiners};

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

static bool is_sound(const struct join *join, const struct join_head *head,
                     const struct symm_relay_message *message)
{
    const struct symm_tree_join *as = join->as;

    return head->count >= 1 && head->count <= as->size && head->bytes == as->bytes &&
           head->version == TREE_VERSION &&
           message->head.bytes ==
               sizeof(*head) + (uint64_t)head->count * (sizeof(int32_t) + as->bytes);
}

/* The number of the host, if this process of it has said JOIN before: its connection broke before
 * PLACE came. 0: it has not. */
static int number_before(const struct join *join, const struct join_head *head,
                         const struct symm_relay_message *message)
{
    int32_t rank, number;

    memcpy(&rank, message->data + sizeof(*head), sizeof(rank));
    if (rank <= 0 || rank >= join->as->size)
        return 0;
    number = join->number_of[rank];
    return number > 0 &&
                   memcmp(join->nonces[number], head->nonce, sizeof(head->nonce)) == 0
               ? number
               : 0;
}

/* Is this what a host of this job says? If not, the host gets the reason. */
static bool judge(struct join *join, struct branch *branch,
                  const struct join_head *head,
                  const struct symm_relay_message *message)
{
    const struct symm_tree_join *as = join->as;
    const uint8_t *ranks = message->data + sizeof(*head);
    int32_t last = 0;
    char text[160];

    for (int i = 0; i < head->count; i++) {
        int32_t rank;

        memcpy(&rank, ranks + (size_t)i * sizeof(rank), sizeof(rank));
        if (head->size == as->size && rank > last && rank < as->size &&
            join->number_of[rank] < 0) {
            last = rank;
            continue;
        }
        if (head->size != as->size)
            snprintf(text, sizeof(text),
                     "rank %d says that the job has %d ranks, rank 0 says %d", rank,
                     head->size, as->size);
        else if (rank <= 0 || rank >= as->size)
            snprintf(text, sizeof(text), "a host brings rank %d of %d%s", rank,
                     as->size, rank == 0 ? ", which has opened this bootstrap" : "");
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

static void enter(struct join *join, const int32_t *ranks, int count,
                  const void *entries, const struct symm_host_address *place,
                  const uint8_t *nonce)
{
    const struct symm_tree_join *as = join->as;

    join->places[join->hosts] = *place;
    memcpy(join->nonces[join->hosts], nonce, sizeof(join->nonces[0]));
    for (int i = 0; i < count; i++) {
        int32_t rank;

        memcpy(&rank, (const char *)ranks + (size_t)i * sizeof(rank), sizeof(rank));
        join->number_of[rank] = join->hosts;
        memcpy((char *)as->all + (size_t)rank * as->bytes,
               (const char *)entries + (size_t)i * as->bytes, as->bytes);
    }
    join->come += count;
    join->hosts++;
}

/* False: no memory, and the host may come again. */
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
        take_child(join, branch, number); /* it stays here */
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
        join->status = symm__fail_quiet(symm__peer_status(message->head.status), text);
        branch->number = join->hosts; /* it hears that all have heard */
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
        (void)send_place(join, branch, number);
        return;
    }
    if (!judge(join, branch, &head, message) || !send_place(join, branch, join->hosts))
        return;
    enter(join, (const int32_t *)(const void *)ranks, head.count,
          ranks + (size_t)head.count * sizeof(int32_t), &head.place, head.nonce);
    if (join->come == join->as->size) {
        join->table = table_make(join, SYMM_OK);
        if (!join->table)
            join->status = symm__tree_no_memory(join);
    }
}

static symm_status missing(const struct join *join)
{
    int *late = malloc((size_t)join->as->size * sizeof(*late)), count = 0;
    char names[300];
    symm_status status;

    for (int r = 0; late && r < join->as->size; r++)
        if (join->number_of[r] < 0)
            late[count++] = r;
    if (!late)
        return symm__tree_no_memory(join);
    symm__ranks_text(late, count, names, sizeof(names));
    free(late);
    status = symm__fail(SYMM_ERR_TIMEOUT,
                        "%s %s not joined the job at %s after %.3g s: not started, or "
                        "does a firewall stop "
                        "%s?%s%s",
                        names, count == 1 ? "has" : "have", join->as->root,
                        symm__now() - join->start, count == 1 ? "it" : "them",
                        join->refused[0] ? " rank 0 has refused a host: " : "",
                        join->refused);
    return status;
}

/* ---- Guests ------------------------------------------------------------------------ */

static void log_refused(void *user, const char *why, bool last)
{
    const struct join *join = user;

    symm__log(SYMM_LOG_WARN, "rank %d refused a connection: %s%s", join->as->rank, why,
              last ? " (more are not logged)" : "");
}

static void guest_gone(void *user, struct symm_guest *guest)
{
    struct branch *branch = (struct branch *)guest;
    struct join *join = user;
    int child = branch->open ? child_of(join, branch) : -1;

    if (child >= 0) {
        join->away[child] = symm__now();
        if (branch->has_table && has_failed(join)) /* of which no host says HAVE */
            join->have |= 1u << child;
    }
    symm__relay_link_close(&branch->link);
}

/* A message of a guest that has proved itself. False: none of this protocol. */
static bool hear_branch(struct join *join, struct branch *branch,
                        const struct symm_relay_message *message)
{
    if (message->head.kind == SYMM_RELAY_JOIN && is_root(join) && branch->number < 0) {
        if (has_failed(join))
            branch->number = 0; /* too late for a place: it gets the reason */
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
        return false; /* whose child it would be is not known yet */
    if (message->head.kind != SYMM_RELAY_PLACE || message->head.rank <= 0 ||
        message->head.rank >= join->as->size || branch->number >= 0 ||
        symm__tree_parent(message->head.rank) != join->number)
        return false;
    take_child(join, branch, message->head.rank);
    return true;
}

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
    }
    table_send(join, branch);
    if (symm__relay_link_flush(&branch->link) == SYMM_SEQPACKET_ERROR)
        return "";
    branch->at.events =
        (short)(POLLIN | (symm__relay_link_owes(&branch->link) ? POLLOUT : 0));
    return NULL;
}

/* Rank 0's sentence of those that have not joined says this, too. */
static const char *misfit(struct join *join, const char *why)
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
    switch (symm__auth_hear(&join->protocol, &branch->auth, at->fd)) {
    case SYMM_AUTH_WAIT:
        return NULL;
    case SYMM_AUTH_ASKED:
        branch->number = -1;
        return symm__auth_answer(&join->protocol, &branch->auth, at->fd, 0, 0)
                   ? NULL
                   : "it hung up";
    case SYMM_AUTH_DONE:
        break;
    case SYMM_AUTH_GONE:
    case SYMM_AUTH_FOREIGN: /* a relay of a host that has the table already */
        return "";
    case SYMM_AUTH_VERSION:
        return misfit(join, "it is of another version of libsymm");
    default:
        return misfit(join, "it does not know the job's secret");
    }
    symm__auth_key(&join->protocol, &branch->auth, key);
    if (!symm__relay_link_open(&branch->link, at->fd, key, false))
        return "there is no memory for it";
    branch->open = true;
    at->until = join->as->until + LINGER_SECONDS;
    symm__acceptor_spare(is_root(join) ? &join->joiners : &join->children, at,
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

/* A host that has joined waits a moment longer: rank 0 knows who is missing. */
static double deadline(const struct join *join)
{
    return join->as->until +
           (!is_root(join) && join->stage == OPEN ? LINGER_SECONDS : 0);
}

static symm_status turn(struct join *join, struct pollfd *polls)
{
    size_t children = symm__acceptor_watch(&join->children, polls + 1), joiners = 0;
    double due = earliest(deadline(join), symm__acceptor_due(&join->children));
    struct timespec span;
    int ready;

    if (is_root(join)) {
        joiners = symm__acceptor_watch(&join->joiners, polls + 1 + children);
        due = earliest(due, symm__acceptor_due(&join->joiners));
    } else if (join->stage != OPEN) {
        due = earliest(due, join->at);
    }
    polls[0] = (struct pollfd){.fd = join->fd, .events = POLLIN};
    if (join->stage == CONNECTING ||
        (join->stage == OPEN && join->link.tcp && symm__relay_link_owes(&join->link)))
        polls[0].events |= POLLOUT;
    span = symm__timespec(due - symm__now());
    ready = ppoll(polls, 1 + (nfds_t)(children + joiners), &span, NULL);
    if (ready < 0 && errno != EINTR)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "rank %d joining the job",
                                join->as->rank);
    if (ready < 0)
        return SYMM_OK;
    (void)symm__acceptor_serve(&join->children, polls + 1, children);
    if (is_root(join))
        (void)symm__acceptor_serve(&join->joiners, polls + 1 + children, joiners);
    if (!is_root(join)) {
        symm_status status =
            symm__tree_move_above(join, join->fd >= 0 && polls[0].revents);

        if (status != SYMM_OK)
            return status;
    }
    if (join->stage == OPEN && join->link.tcp)
        (void)symm__relay_link_flush(&join->link);
    serve_all(join, &join->children);
    serve_all(join, &join->joiners);
    return join->status;
}

/* Has the table come to all hosts below this one, but those that are gone? */
static bool all_have(const struct join *join)
{
    const double now = symm__now();

    if (is_root(join) && has_failed(join))
        return false; /* hosts that come a little later get the reason, too */
    for (int i = 0; i < children_of(join); i++)
        if (!(join->have >> i & 1) &&
            (join->away[i] == 0 || now < join->away[i] + AWAY_SECONDS))
            return false;
    return true;
}

/* The table goes down; children that come late get it, too. */
static void hand_down(struct join *join, struct pollfd *polls, double until)
{
    char sentence[SYMM_ERROR_BYTES];

    snprintf(sentence, sizeof(sentence), "%s", symm_last_error());
    serve_all(join, &join->children);
    serve_all(join, &join->joiners);
    while (symm__now() < until && !all_have(join)) {
        struct pollfd *at = polls + 1;
        size_t children = symm__acceptor_watch(&join->children, at);
        size_t joiners =
            is_root(join) ? symm__acceptor_watch(&join->joiners, at + children) : 0;
        struct timespec span = symm__timespec(earliest(until - symm__now(), 0.05));

        (void)ppoll(at, (nfds_t)(children + joiners), &span, NULL);
        (void)symm__acceptor_serve(&join->children, at, children);
        if (joiners > 0)
            (void)symm__acceptor_serve(&join->joiners, at + children, joiners);
        serve_all(join, &join->children);
        serve_all(join, &join->joiners);
    }
    (void)symm__fail_quiet(SYMM_OK, sentence);
}

/* The parent sees that the table is here, and below. */
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
    const struct symm_tree_join *as = join->as;
    symm_status status = SYMM_OK;
    if (is_root(join))
        status = as->failed;
    while (status == SYMM_OK && !join->table) {
        if (as->failed != SYMM_OK && symm__now() >= join->start + FAILED_SECONDS)
            break;
        if (symm__now() >= deadline(join))
            status = is_root(join) ? missing(join) : symm__tree_not_reached(join);
        else
            status = turn(join, polls);
    }
    if (status != SYMM_OK && is_root(join) && !join->table) {
        if (as->failed != SYMM_OK)
            (void)symm__fail_quiet(status, join->why_failed);
        join->table = table_make(join, status);
    }
    if (status != SYMM_OK || has_failed(join))
        leave_above(join);
    if (join->table)
        hand_down(join, polls,
                  status == SYMM_OK ? as->until : symm__now() + LINGER_SECONDS);
    if (join->fd >= 0 && join->table)
        say_have(join);
    leave_above(join);
    return status;
}

static symm_status open_root(struct join *join, int *listener)
{
    const struct symm_tree_join *as = join->as;
    struct symm_address any = join->target;
    int32_t *ranks = malloc((size_t)as->count * sizeof(*ranks));

    join->places = calloc((size_t)as->size, sizeof(*join->places));
    join->nonces = calloc((size_t)as->size, sizeof(*join->nonces));
    join->number_of = malloc((size_t)as->size * sizeof(*join->number_of));
    if (!join->places || !join->nonces || !join->number_of || !ranks) {
        free(ranks);
        return symm__tree_no_memory(join);
    }
    for (int r = 0; r < as->size; r++)
        join->number_of[r] = -1;
    for (int i = 0; i < as->count; i++)
        ranks[i] = as->ranks[i];
    if (as->failed == SYMM_OK)
        enter(join, ranks, as->count, as->entries, as->place, join->nonce);
    free(ranks);
    if (join->come == as->size) {
        join->table = table_make(join, SYMM_OK);
        return join->table ? SYMM_OK : symm__tree_no_memory(join);
    }
    /* At all addresses: the name may have another one here than elsewhere. */
    symm__address_any(&any);
    *listener = symm__address_listen(&any);
    if (*listener < 0)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "rank 0 listening for the job's hosts at the port of %s "
            "(SYMM_BOOTSTRAP_PORT names another one)",
            as->root);
    return acceptor_begin(join, &join->joiners, *listener) ? SYMM_OK
                                                           : symm__tree_no_memory(join);
}

symm_status symm__tree_join(const struct symm_tree_join *as)
{
    struct join join = {
        .as = as,
        .protocol = {.magic = TREE_MAGIC, .version = TREE_VERSION, .key = as->key},
        .start = symm__now(),
        .fd = -1,
        .stage = WAITING,
        .pause = RETRY_SECONDS};
    struct pollfd *polls = calloc(2 * (GUESTS_MAX + 1) + 1, sizeof(*polls));
    const char *wrong = symm__address_parse(as->root, SYMM_ADDRESS_NAME, &join.target);
    int listener = -1;
    symm_status status = SYMM_OK;

    if (as->failed != SYMM_OK)
        snprintf(join.why_failed, sizeof(join.why_failed), "%s", symm_last_error());
    if (wrong)
        status = symm__fail(SYMM_ERR_JOB, "the address of rank 0's host '%.100s' %s",
                            as->root, wrong);
    else if (!polls || (as->listener >= 0 &&
                        !acceptor_begin(&join, &join.children, as->listener)))
        status = symm__tree_no_memory(&join);
    if (status == SYMM_OK)
        status = symm__random(join.nonce, sizeof(join.nonce));
    if (status == SYMM_OK && is_root(&join))
        status = open_root(&join, &listener);
    if (status == SYMM_OK)
        status = run(&join, polls);
    if (as->failed != SYMM_OK)
        status = symm__fail_quiet(as->failed, join.why_failed);
    symm__acceptor_close(&join.children);
    symm__acceptor_close(&join.joiners);
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
