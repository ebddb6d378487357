/* SPDX-License-Identifier: MIT */
/*
 * read.h - reads a page (page.h) that another process may have filled with anything.
 *
 * The page is copied by pread, never mapped: a file that shrinks cannot fault, and holes cost no
 * memory. In the copy entries that were being written are free, all text ends in its bytes
 * and is printable ASCII, and counts lie within their arrays. Values are otherwise as the page
 * has them: an id may name no site, a rank no rank.
 */
#ifndef SYMM_SIGHT_READ_H
#define SYMM_SIGHT_READ_H

#include "sight/page.h"

/* A time of the reader, in both of the page's units. */
struct symm_sight_now {
    uint64_t ns;  /* CLOCK_MONOTONIC */
    uint64_t tsc; /* the processor's counter */
    uint64_t real_ns;
};

struct symm_sight_now symm__sight_now(void);

/* Copies the page of `fd`. NULL, or why it is none: a sentence without a subject. */
const char *symm__sight_read(int fd, struct symm_sight_page *copy);
/* The same for a page in memory, from any source. */
const char *symm__sight_check(struct symm_sight_page *page);

/* The site of an id, or NULL. */
const struct symm_sight_site *symm__sight_site(const struct symm_sight_page *page,
                                               uint32_t id);
/* All calls of the list, the newest first; their number. */
int symm__sight_calls(const struct symm_sight_page *page,
                      const struct symm_sight_call *list[SYMM_SIGHT_CALLS]);
/* The live team of a uid, or NULL. */
const struct symm_sight_team *symm__sight_team_of(const struct symm_sight_page *page,
                                                  uint32_t uid);
/* A time of the page in nanoseconds of CLOCK_MONOTONIC; 0: there is none. */
uint64_t symm__sight_ns(const struct symm_sight_page *page,
                        const struct symm_sight_now *now, uint64_t ticks);
/* A span of the page in nanoseconds. */
uint64_t symm__sight_span(const struct symm_sight_page *page,
                          const struct symm_sight_now *now, uint64_t ticks);
/* "queued", ...; "?" if there is no such state. */
const char *symm__sight_state_name(unsigned state);

#endif
