/* SPDX-License-Identifier: MIT */
/*
 * prometheus.h - a strict reader of Prometheus' text format 0.0.4, as the library writes it.
 *
 * Refuses, with a sentence on stderr: a line that is neither HELP, TYPE nor a sample; a bad name,
 * label, escape or number; a sample that is not below its TYPE; a family in two pieces; a series that
 * occurs twice; a counter that does not end in _total or is negative; an end without a newline, as a
 * file that is cut has it.
 */
#ifndef SYMM_TESTS_PROMETHEUS_H
#define SYMM_TESTS_PROMETHEUS_H

#include <stdbool.h>

/* The file's text, which the caller frees; NULL: it cannot be read. */
char *prometheus_read(const char *path);
/* Whether the text is right in full. */
bool prometheus_check(const char *text);
/* The sum of the samples of a family that have all the labels, each as `name="value"`; NULL ends
 * them. -1: there is none. */
double prometheus_sum(const char *text, const char *family, ...);

#endif
