/* SPDX-License-Identifier: MIT */
/* tree.h - files of a made-up /sys or /proc, for tests that read machines. */
#ifndef SYMM_TESTS_TREE_H
#define SYMM_TESTS_TREE_H

/* Writes text and a newline to folder/PATH, with the folders above it; fails the test if it
 * cannot. */
void tree_put(const char *folder, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
