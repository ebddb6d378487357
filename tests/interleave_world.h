/* SPDX-License-Identifier: MIT */
/*
 * interleave_world.h - a program and its plan in the form that the search works on.
 *
 * Private to interleave.c, which makes the steps, and interleave_world.c, which computes the
 * memory that each op touches and the ops that it waits for.
 */
#ifndef SYMM_TESTS_INTERLEAVE_WORLD_H
#define SYMM_TESTS_INTERLEAVE_WORLD_H

#include "interleave.h"

#define MAX_PIECES  64
#define MAX_TOUCHES 12 /* of one op */
#define MAX_ITEMS   250 /* ops of all periods */
#define FILLED      255 /* held by a piece that a free has filled */

/* The progress of an op on a rank. */
enum phase { IDLE, ARRIVED, BODY, INSIDE, SECOND_HALF, LEAVING, RESTING, DONE };

/* When an op touches memory: in the collective, or in an all_reduce_norm from its start to its end
 * (what the rank reads of its own), or after the sum. AMONG_ITSELF: a kernel that does all at once
 * has its exit barrier at its end, so that only its own writes meet its reads of `in`. */
enum span { IN_BODY, THROUGHOUT, IN_REST, AMONG_ITSELF };

struct touch {
    int buffer, first, last; /* pieces, half-open */
    bool write;
    enum span span;
    unsigned owners[INTERLEAVE_MAX_RANKS]; /* by toucher: bit set of ranks touched */
};

struct action {
    const symm_program_op *op;
    const symm_plan_op *planned;
    bool inside,
        in_place; /* inside: a barrier separates peers' reads and writes of the op */
    unsigned pushers; /* bits: places in a list */
    struct touch touches[MAX_TOUCHES];
    int touch_count;
};

struct item {          /* an op of a period */
    int action, place; /* place among its stream's items */
    int period;
    int needs
        [INTERLEAVE_MAX_STREAMS]; /* items of each stream that must be done first */
    unsigned char *expected;      /* [touch][piece]: item + 1, or 0: input */
};

struct world {
    const symm_program *program;
    const symm_plan *plan;
    struct interleave *search;
    int ranks, streams, items;
    struct action *actions; /* by op of the program */
    struct item list[MAX_ITEMS];
    int of_stream[INTERLEAVE_MAX_STREAMS][MAX_ITEMS]; /* items without depends */
    int stream_items[INTERLEAVE_MAX_STREAMS];
    size_t cuts[MAX_PIECES + 1];
    int pieces;
    size_t state_bytes;
    unsigned char *states; /* the queue */
    uint64_t count, room;
    uint32_t *table; /* hash table of index + 1 */
    uint64_t table_size;
};

enum touchers { OWN, ALL, ROOTS, FROM_ROOT, BY_ROOT, TO_NEXT };

/* The list of the op's partition that contains the rank; *place: its index there. */
const int *world_list_of(const struct world *w, const symm_program_op *op, int rank,
                         int *place);
/* Bit set of the ranks whose copies the rank touches. */
unsigned world_owners_of(const struct world *w, const symm_program_op *op,
                         enum touchers who, int rank);
/* The first piece that does not begin before the offset. */
int world_piece_at(const struct world *w, size_t offset);
/* Fills pieces and actions; false: there are too many. */
bool world_make(struct world *w);
void world_add_needs(struct world *w, int periods);

#endif
