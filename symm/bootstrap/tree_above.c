/* SPDX-License-Identifier: MIT */
/* tree_above.c - see tree.h. A host's connection to rank 0's, and then to its parent. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/tree_private.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/status.h"

#define RETRY_MOST     0.25
#define ANSWER_SECONDS 4.0 /* for a try to be answered */

/* TABLE: the entries of all ranks, or the sentence with which all hosts fail. */
static symm_status table_take(struct join *join, struct symm_relay_message *table)
{
    const struct symm_relay_head *head = &table->head;
    char text[SYMM_ERROR_BYTES];

    join->hosts = head->rank;
    if (head->status != SYMM_OK) {
        symm__relay_sentence(table, text);
        join->table = symm__relay_keep(table);
        return symm__fail_quiet(symm__peer_status(head->status), text);
    }
    if (head->bytes != (uint64_t)join->args->size * join->args->bytes ||
        head->rank <= join->number || head->rank > join->args->size)
        return symm__fail(SYMM_ERR_DAMAGED,
                          "rank %d got a damaged table of the job's ranks",
                          join->args->rank);
    memcpy(join->args->all, table->data, (size_t)head->bytes);
    join->table = symm__relay_keep(table);
    return SYMM_OK;
}

/* Closes the connection; the next try follows after a pause. */
static void try_again(struct join *join, const char *why)
{
    snprintf(join->why, sizeof(join->why), "%s", why);
    symm__relay_link_close(&join->link);
    if (join->fd >= 0)
        close(join->fd);
    join->fd = -1;
    join->stage = WAITING;
    join->at = symm__now() + join->pause;
    join->pause = 2 * join->pause < RETRY_MOST ? 2 * join->pause : RETRY_MOST;
}

/* Has this host its place, as a child of rank 0's host? */
static bool is_below_root(const struct join *join)
{
    return join->placed && join->number <= SYMM_TREE_ARITY;
}

static symm_status not_connected(struct join *join, int error)
{
    /* Rank 0's host listened when it sent PLACE, and does so until it has HAVE of this one. */
    if (error == ECONNREFUSED && is_below_root(join))
        return symm__fail(SYMM_ERR_PEER_DEAD,
                          "rank 0 has ended or hung up during the bootstrap");
    try_again(join, strerror(error));
    return SYMM_OK;
}

static symm_status begin_try(struct join *join)
{
    join->fd = symm__address_connect(&join->target);
    join->stage = CONNECTING;
    join->at = symm__now() + ANSWER_SECONDS;
    return join->fd < 0 ? not_connected(join, errno) : SYMM_OK;
}

/* JOIN, or PLACE to the parent. */
static struct symm_relay_message *first_message(const struct join *join)
{
    const struct symm_tree_join *args = join->args;
    struct join_head head = {.size = args->size,
                             .count = args->count,
                             .bytes = (uint32_t)args->bytes,
                             .version = TREE_VERSION};
    size_t ranks = (size_t)args->count * sizeof(int32_t);
    struct symm_relay_message *message;
    if (args->failed != SYMM_OK) {
        size_t bytes = strlen(join->why_failed);

        message = symm__relay_message(SYMM_RELAY_JOIN, bytes);
        if (message) {
            memcpy(message->data, join->why_failed, bytes);
            message->head.status = args->failed;
        }
        return message;
    }
    if (join->placed) {
        message = symm__relay_message(SYMM_RELAY_PLACE, 0);
        if (message)
            message->head.rank = join->number;
        return message;
    }
    message = symm__relay_message(
        SYMM_RELAY_JOIN, sizeof(head) + ranks + (size_t)args->count * args->bytes);
    if (!message)
        return NULL;
    memcpy(&head.place, args->place, sizeof(head.place));
    memcpy(head.nonce, join->nonce, sizeof(head.nonce));
    memcpy(message->data, &head, sizeof(head));
    for (int i = 0; i < args->count; i++) {
        int32_t rank = args->ranks[i];

        memcpy(message->data + sizeof(head) + (size_t)i * sizeof(rank), &rank,
               sizeof(rank));
    }
    memcpy(message->data + sizeof(head) + ranks, args->entries,
           (size_t)args->count * args->bytes);
    return message;
}

static symm_status open_link(struct join *join)
{
    uint8_t key[SYMM_SIPHASH_KEY];
    struct symm_relay_message *message = first_message(join);
    bool made;

    symm__auth_key(&join->protocol, &join->auth, key);
    made = message && symm__relay_link_open(&join->link, join->fd, key, true) &&
           symm__relay_link_send(&join->link, message);
    symm__relay_drop(message);
    if (!made)
        return symm__tree_no_memory(join);
    join->stage = OPEN;
    join->pause = RETRY_SECONDS;
    return SYMM_OK;
}

/* Can a host of this job have that place? Later code computes the numbers of children from it. */
static bool is_place(const struct join *join, const struct place_head *place)
{
    unsigned family = place->parent.family;

    return place->number > 0 && place->number < join->args->size &&
           (family == 0 || family == 4 || family == 6) &&
           (family == 0) == (symm__tree_parent(place->number) == 0);
}

/* PLACE of rank 0's host: this host goes on with its parent. */
static symm_status take_place(struct join *join,
                              const struct symm_relay_message *message)
{
    struct place_head place;

    if (message->head.bytes != sizeof(place) || join->placed)
        return symm__fail(SYMM_ERR_DAMAGED, "rank %d got a damaged message of rank 0",
                          join->args->rank);
    memcpy(&place, message->data, sizeof(place));
    if (!is_place(join, &place))
        return symm__fail(
            SYMM_ERR_DAMAGED,
            "rank 0 gave rank %d's host the place %d, with a parent of kind "
            "%u, among the hosts of %d ranks, where no host can be: does "
            "each host run the same libsymm?",
            join->args->rank, place.number, place.parent.family, join->args->size);
    join->placed = true;
    join->number = place.number;
    if (place.parent.family == 0)
        return SYMM_OK;
    join->target = symm__host_address(&place.parent);
    try_again(join, "");
    join->at = 0; /* at once */
    join->pause = RETRY_SECONDS;
    return SYMM_OK;
}

static symm_status hear_above(struct join *join)
{
    while (join->stage == OPEN && !join->table) {
        struct symm_relay_message *message;
        enum symm_seqpacket wire = symm__relay_link_recv(&join->link, &message);
        symm_status status = SYMM_OK;

        if (wire == SYMM_SEQPACKET_AGAIN)
            return SYMM_OK;
        if (wire != SYMM_SEQPACKET_OK) {
            try_again(join, "it hung up");
            return SYMM_OK;
        }
        if (message->head.kind == SYMM_RELAY_PLACE)
            status = take_place(join, message);
        else if (message->head.kind == SYMM_RELAY_TABLE)
            status = table_take(join, message);
        symm__relay_drop(message);
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

/* The handshake goes on with what the other end has sent. */
static symm_status move_asked(struct join *join)
{
    const enum symm_auth_said said =
        symm__auth_hear(&join->protocol, &join->auth, join->fd);

    switch (said) {
    case SYMM_AUTH_WAIT:
        return SYMM_OK;
    case SYMM_AUTH_DONE:
        return open_link(join);
    case SYMM_AUTH_GONE:
        try_again(join, "it does not answer, or hangs up");
        return SYMM_OK;
    default:
        join->answered = said;
        try_again(join, "a stranger answers");
        return SYMM_OK;
    }
}

symm_status symm__tree_move_above(struct join *join, bool ready)
{
    bool late = symm__now() >= join->at;
    int error;

    if (join->stage == WAITING)
        return late ? begin_try(join) : SYMM_OK;
    if (!ready) {
        if (late && join->stage != OPEN)
            try_again(join, "it does not answer");
        return SYMM_OK;
    }
    if (join->stage == ASKED)
        return move_asked(join);
    if (join->stage == OPEN)
        return hear_above(join);
    error = symm__connect_error(join->fd);
    join->stage = ASKED;
    if (error != 0)
        return not_connected(join, error);
    if (!symm__auth_ask(&join->protocol, &join->auth, join->fd,
                        (uint32_t)join->args->ranks[0], join->placed))
        try_again(join, "it hung up");
    return SYMM_OK;
}

symm_status symm__tree_not_reached(const struct join *join)
{
    if (join->answered == SYMM_AUTH_KEY)
        return symm__fail(SYMM_ERR_REFUSED,
                          "what listens at %s does not know the job's secret: give all "
                          "hosts the same SYMM_JOB_SECRET, and each job a port of its "
                          "own (SYMM_BOOTSTRAP_PORT)",
                          join->args->root);
    if (join->answered == SYMM_AUTH_VERSION)
        return symm__fail(SYMM_ERR_REFUSED,
                          "rank 0 at %s has another version of libsymm: install the "
                          "same on all hosts",
                          join->args->root);
    if (join->answered != SYMM_AUTH_WAIT)
        return symm__fail(SYMM_ERR_REFUSED,
                          "what listens at %s is no rank 0 that starts: give the job a "
                          "port that no other program uses (SYMM_BOOTSTRAP_PORT)",
                          join->args->root);
    if (join->stage == OPEN)
        return symm__fail(SYMM_ERR_TIMEOUT,
                          "rank %d has joined the job at %s, but not all ranks have "
                          "within %.3g s",
                          join->args->rank, join->args->root,
                          symm__now() - join->start);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d cannot reach %s at %s (%s) within %.3g s; is rank 0 not "
        "started, is the port another one (SYMM_BOOTSTRAP_PORT), or does a "
        "firewall stand between?",
        join->args->rank,
        join->placed && !is_below_root(join) ? "the host above" : "rank 0",
        join->args->root, join->why[0] ? join->why : "no try has ended",
        symm__now() - join->start);
}
