/* SPDX-License-Identifier: MIT */
/*
 * sim_seeds.h - the loop over seeds of a suite in the simulator: each seed's job runs in a process of
 * its own, since ranks that are killed leave their memory to it.
 */
#ifndef SYMM_TESTS_SIM_SEEDS_H
#define SYMM_TESTS_SIM_SEEDS_H

#include "sim.h"
#include "util/status.h"

/* Of one job: in shared memory, by its process and then by the parent. */
struct sim_verdict {
    struct sim_result result;
    char why[900];  /* the first finding; empty: it went well */
    char kind[40];  /* " (late stream)", of the job, for the sentence; may be empty */
    double longest; /* seconds over its time, of any call */
    bool done;
};

/* Keeps the first finding. */
void sim_verdict_note(struct sim_verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What the ranks of a job have found. */
struct sim_blame {
    int failures;
    char why[900]; /* the first finding */
};

/* A rank's finding. */
void sim_blame(struct sim_blame *blame, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The sentence without what it quotes of a rank that has finalized (core/earlier.h): of a death each
 * sentence tells in its own words. Returns text. */
const char *sim_own_words(const char *sentence, char text[SYMM_ERROR_BYTES]);
/* Notes what jobs of every suite must not do: the ranks' findings; a hang. */
void sim_verdict_job(struct sim_verdict *verdict, const struct sim_blame *blame);
/* The same of a rank that has not died: it has not ended, or leaves something behind. objects: of its
 * driver. */
void sim_verdict_rank(struct sim_verdict *verdict, int rank, bool ended, int objects);

/* Runs the seed's job, and fills all but `why`, which it notes in, of a verdict of zeros. */
typedef void sim_seed_fn(uint64_t seed, struct sim_verdict *verdict);

/* Whether the seed's job went well; prints it if not. */
bool sim_seed_run(sim_seed_fn *run, uint64_t seed, struct sim_verdict *verdict);
/* SYMM_TEST_SEED alone, or SYMM_TEST_SEEDS (`usual`) from SYMM_TEST_FIRST on; prints the sums, and with
 * `longest` the longest of all. Returns how many failed; ends after 20. */
int sim_seeds_run(sim_seed_fn *run, int64_t usual, struct sim_verdict *verdict,
                  bool longest);
/* Runs seeds 1 to `count` twice: whether both have the same events. Not if a seed is asked for. */
bool sim_seeds_repeat(sim_seed_fn *run, uint64_t count, struct sim_verdict *verdict);

/* A sink of the library's log: as events. */
void sim_log(void *arg, int level, const char *line);

#endif
