/* SPDX-License-Identifier: MIT */
/*
 * symm_plan.h - the commands of the tool symm-plan, and functions that they share. They use
 * the public API only.
 *
 * Exit statuses of all commands: 0 done, 1 the answer is no (nothing fits, nothing is
 * proved, there is no safe plan), 2 the command line or an input is wrong.
 */
#ifndef SYMM_PLANNER_TOOL_SYMM_PLAN_H
#define SYMM_PLANNER_TOOL_SYMM_PLAN_H

#include <stdio.h>

#include "symm/plan.h"
#include "tools/common/args.h"

enum {
    PLAN_TOOL_DONE = 0,
    PLAN_TOOL_NO = 1,
    PLAN_TOOL_WRONG = 2,
};

/*
 * Reads a command's options, of which the first is --help, and takes argv[0] for its name.
 * Returns the index of the first word; -1: *status is the exit status, as the usage was
 * printed or a mistake was explained.
 */
int symm_plan_read_options(int argc, char **argv, struct args_option *options,
                           int count, const char *usage, int *status);

/* argv[0] is the command's own name. Each handles --help. */
int symm_plan_pack(int argc, char **argv);
int symm_plan_plan(int argc, char **argv);
int symm_plan_do_check(int argc, char **argv);
int symm_plan_emit(int argc, char **argv);
int symm_plan_merge(int argc, char **argv);

/* io.c: `-` is standard input, or standard output. false after a complaint that
 * begins with the command. */
bool symm_plan_is_dash(const char *path);
void symm_plan_take_output(const char **path); /* `-` becomes NULL */
bool symm_plan_one_input(const char *command, const char *one, const char *other);
bool symm_plan_get_program(const char *command, const char *path,
                           symm_program **program);
bool symm_plan_get_plan(const char *command, const char *path, symm_plan **plan);
bool symm_plan_get_costs(const char *command, const char *path, symm_costs **costs);
/* path NULL or `-`: standard output. NULL, or false, after a complaint; no file is left. */
FILE *symm_plan_open_output(const char *path);
bool symm_plan_close_output(const char *path, FILE *file);
bool symm_plan_put_text(const char *path, const char *text, size_t length);
bool symm_plan_put_program(const char *command, const char *path,
                           const symm_program *program);
bool symm_plan_put_plan(const char *command, const char *path, const symm_plan *plan);
/* Removes what was written so far, if it is a file and not a device. */
void symm_plan_discard(const char *path);
/* Would what is written to one path replace what is written to the other? */
bool symm_plan_same_file(const char *one, const char *other);

#endif
