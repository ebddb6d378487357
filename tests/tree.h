/* SPDX-License-Identifier: MIT */
/* tree.h - writes files of a fake /sys or /proc, for tests that read machines. */
#ifndef SYMM_TESTS_TREE_H
#define SYMM_TESTS_TREE_H

/* Writes text and a newline to folder/PATH, and makes its parent folders; fails the test on
 * an error. */
void tree_put(const char *folder, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
