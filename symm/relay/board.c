/* SPDX-License-Identifier: MIT */
/*
 * board.c - what ranks write on the boards of teams (relay.h), kept by every rank of the job.
 *
 * A CELL is news: a relay passes on one that is newer than what it has. When a connection opens,
 * each end sends all cells that it keeps. So what one rank has read, all ranks read that are
 * connected to it in the tree of the world, also if the rank that wrote it has died.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/private.h"

static struct symm_relay_board *find(struct symm_relay *relay, uint64_t tag)
{
    for (int b = 0; b < SYMM_RELAY_BOARDS; b++)
        if (relay->board[b].cell && relay->board[b].tag == tag)
            return &relay->board[b];
    return NULL;
}

static void erase(const struct symm_relay *relay, struct symm_relay_board *board)
{
    for (int r = 0; board->cell && r < relay->config.ranks; r++)
        symm__relay_drop(board->cell[r]);
    free(board->cell);
    *board = (struct symm_relay_board){0};
}

/* The board that was written to least recently makes room. NULL: no memory. */
static struct symm_relay_board *find_or_make(struct symm_relay *relay, uint64_t tag)
{
    struct symm_relay_board *board = find(relay, tag);

    for (int b = 0; !board && b < SYMM_RELAY_BOARDS; b++)
        if (!relay->board[b].cell)
            board = &relay->board[b];
    if (!board) {
        board = &relay->board[0];
        for (int b = 1; b < SYMM_RELAY_BOARDS; b++)
            if (relay->board[b].written < board->written)
                board = &relay->board[b];
        erase(relay, board);
    }
    if (!board->cell)
        board->cell = calloc((size_t)relay->config.ranks, sizeof(*board->cell));
    board->tag = tag;
    return board->cell ? board : NULL;
}

bool symm__relay_keep_cell(struct symm_relay *relay, struct symm_relay_message *message,
                           bool *newer)
{
    const struct symm_relay_head *head = &message->head;
    struct symm_relay_board *board = find_or_make(relay, head->tag);
    struct symm_relay_message **cell = board ? &board->cell[head->rank] : NULL;

    *newer = cell && (!*cell || (int32_t)(head->sequence - (*cell)->head.sequence) > 0);
    if (!*newer)
        return cell != NULL;
    symm__relay_drop(*cell);
    *cell = symm__relay_keep(message);
    board->written = ++relay->cells_written;
    return true;
}

void symm__relay_queue_cells(struct symm_relay *relay, struct symm_relay_connection *to)
{
    for (int b = 0; b < SYMM_RELAY_BOARDS; b++)
        for (int r = 0; relay->board[b].cell && r < relay->config.ranks; r++)
            if (relay->board[b].cell[r])
                symm__relay_queue(to, relay->board[b].cell[r]);
}

void symm__relay_boards_close(struct symm_relay *relay)
{
    for (int b = 0; b < SYMM_RELAY_BOARDS; b++)
        erase(relay, &relay->board[b]);
}

static symm_status no_memory(const struct symm_relay *relay)
{
    return symm__fail(SYMM_ERR_NOMEM, "rank %d has no memory to tell other hosts",
                      relay->config.rank);
}

symm_status symm__relay_write(struct symm_relay *relay, uint64_t tag, uint32_t version,
                              const void *bytes, size_t count)
{
    struct symm_relay_message *cell = symm__relay_message(SYMM_RELAY_CELL, count);
    bool kept, newer;

    if (!cell)
        return no_memory(relay);
    memcpy(cell->data, bytes, count);
    cell->head.tag = tag;
    cell->head.sequence = version;
    cell->head.rank = relay->config.rank;
    cell->head.from = relay->config.rank;
    pthread_mutex_lock(&relay->lock);
    kept = symm__relay_keep_cell(relay, cell, &newer);
    if (newer) {
        if (relay->serving)
            symm__relay_spread(relay, NULL, cell);
        else
            symm__relay_say(relay, cell);
    }
    pthread_mutex_unlock(&relay->lock);
    symm__relay_wake(relay);
    symm__relay_drop(cell);
    return kept ? SYMM_OK : no_memory(relay);
}

uint64_t symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                          void (*each)(void *user, int rank, const void *bytes,
                                       size_t count),
                          void *user)
{
    const struct symm_relay_board *board;
    uint64_t written;

    pthread_mutex_lock(&relay->lock);
    board = find(relay, tag);
    written = board ? board->written : 0;
    for (int r = 0; written != since && board && r < relay->config.ranks; r++)
        if (board->cell[r])
            each(user, r, board->cell[r]->data, (size_t)board->cell[r]->head.bytes);
    pthread_mutex_unlock(&relay->lock);
    return written;
}
