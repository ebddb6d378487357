/* SPDX-License-Identifier: MIT */
/* sight_page.h - the page that tools see of a rank, read as a tool does it. */
#ifndef SYMM_TESTS_SIGHT_PAGE_H
#define SYMM_TESTS_SIGHT_PAGE_H

#include "sight/page.h"

/* The page of a process, to be unmapped; NULL: it has none. entry: the descriptor's name. */
const struct symm_sight_page *sight_page_open(int pid, char *entry, size_t bytes);
/* NULL: there is none. */
const struct symm_sight_site *sight_page_site(const struct symm_sight_page *page,
                                              const char *op, const char *name);

#endif
