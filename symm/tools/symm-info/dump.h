/* SPDX-License-Identifier: MIT */
/*
 * dump.h - the parts of symm-info dump: ranks from their pages or from files (load.c), as JSON
 * (dump.c), their calls in sequences that are alike on all ranks (sequence.c), what differs
 * (compare.c), calls between two ranks (pairs.c), and PyTorch's flight recorder (torch.c).
 */
#ifndef SYMM_TOOLS_SYMM_INFO_DUMP_H
#define SYMM_TOOLS_SYMM_INFO_DUMP_H

#include <stdio.h>

#include "sight/find.h"

/* The command; the exit status. argv[0] is "dump". */
int symm__info_dump(int argc, char **argv);

/* Adds the ranks of a file, or of all files *.json of a folder. False after a message. */
bool symm__dump_load(const char *path, struct symm_sight_ranks *ranks);

/*
 * The calls of one channel of a team: each has a step, and ranks meet at equal steps. `step` is
 * the ascending list of all steps of any rank, from where the lists of all reach back to.
 */
struct dump_sequence {
    const char *job;
    uint32_t team_uid, channel;
    int ranks;
    struct dump_lane {
        const struct symm_sight_rank *rank;
        const struct symm_sight_call *
            *call;  /* [steps]; NULL: it made none there; owned */
        int last;   /* index of its last step; -1: it has none in the list */
    } * lane;       /* owned */
    uint32_t *step; /* owned */
    int steps;
    uint32_t middle; /* of their order: one of them */
};

struct dump_sequences {
    struct dump_sequence *sequence;
    int count;
};

/* False: no memory. */
bool symm__dump_sequences(const struct symm_sight_ranks *ranks,
                          struct dump_sequences *sequences);
void symm__dump_sequences_finish(struct dump_sequences *sequences);

/* Prints the last calls side by side and marks the first difference. Whether there is one. */
bool symm__dump_compare(FILE *file, const struct symm_sight_ranks *ranks,
                        const struct dump_sequences *sequences, bool from_files);

/* Prints the one-sided calls, sends and receives that are under way or have failed, or each
 * rank's last, with how far the other rank is. Nothing if no rank made any. */
void symm__dump_pairs(FILE *file, const struct symm_sight_ranks *ranks);

/* "all_reduce 'layer 1' 8 float32 sum"; site NULL: "no call". Returns text. */
const char *symm__dump_site_words(const struct symm_sight_site *site, char *text,
                                  size_t bytes);
/* "world", "team 3 'name'". Returns text. */
const char *symm__dump_team_words(const struct symm_sight_page *page, uint32_t uid,
                                  char *text, size_t bytes);

/* FOLDER/rankN for each rank. False after a message. */
bool symm__dump_torch(const char *folder, const struct symm_sight_ranks *ranks,
                      const struct dump_sequences *sequences);

#endif
