/* SPDX-License-Identifier: MIT */
/*
 * top.h - the parts of symm-top: what one look at all ranks says as text (show.c), what is kept
 * from look to look (late.c), and the terminal (terminal.c).
 */
#ifndef SYMM_TOOLS_SYMM_TOP_TOP_H
#define SYMM_TOOLS_SYMM_TOP_TOP_H

#include <stdbool.h>
#include <stdio.h>

#include "sight/find.h"

#define TOP_LATES 256 /* sites with a rank that is waited for there */

/* Waits at one site for one rank. */
struct top_late {
    char job[64], op[24], name[SYMM_SIGHT_NAME], team[96];
    uint32_t team_uid;
    int awaited;         /* world rank; -1: not known */
    bool waits, stopped; /* so does or is that rank itself */
    int ranks;           /* that wait for it now, */
    int first[4];
    uint64_t longest_ns; /* and for how long at most */
    double seconds;      /* of all looks: rank-seconds spent in such waits */
};

struct top_history {
    struct top_rate {
        dev_t device;
        ino_t inode;
        uint64_t calls, ns;
    } * rate; /* of the last look, by rank of the list */
    int rates;
    struct top_late late[TOP_LATES];
    int lates;
    uint64_t looked_ns; /* 0: never */
    double watched;     /* seconds from the first look on */
};

/* All that is seen in `ranks`, which replaces the history's last look. */
void symm__top_show(FILE *file, const struct symm_sight_ranks *ranks,
                    struct top_history *history, bool all);

/* Calls a second since the last look; -1: not known. */
double symm__top_rate(const struct top_history *history,
                      const struct symm_sight_rank *rank);
/* Takes the look into the history: rates, and who was waited for. */
void symm__top_remember(struct top_history *history,
                        const struct symm_sight_ranks *ranks);
void symm__top_forget(struct top_history *history);

/* "world", "team 3", "'name' (team 3)"; "no team yet" if team is NULL. Returns text. */
const char *symm__top_team(const struct symm_sight_page *page,
                           const struct symm_sight_team *team, char *text,
                           size_t bytes);

/* The terminal: raw keys and another screen until it is closed. False: it is none. */
bool symm__terminal_open(void);
void symm__terminal_close(void);
/* Shows the text from the screen's first line on; what does not fit is cut. */
void symm__terminal_draw(const char *text);
/* Waits for a key or `seconds`. The key; 0: none came; -1: the terminal or the user is gone. */
int symm__terminal_key(double seconds);

#endif
