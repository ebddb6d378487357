/* SPDX-License-Identifier: MIT */
/* sim_seeds.c - see sim_seeds.h. */
#include "sim_seeds.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

void sim_verdict_note(struct sim_verdict *verdict, const char *format, ...)
{
    va_list args;

    if (verdict->why[0])
        return;
    va_start(args, format);
    vsnprintf(verdict->why, sizeof(verdict->why), format, args);
    va_end(args);
}

void sim_blame(struct sim_blame *blame, const char *format, ...)
{
    char text[700];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sim_note("FAILS: %s", text);
    if (blame->failures++ == 0)
        snprintf(blame->why, sizeof(blame->why), "rank %d at %.6f: %s", sim_rank(),
                 sim_now(), text);
}

const char *sim_own_words(const char *sentence, char text[SYMM_ERROR_BYTES])
{
    const char *quoted = strstr(sentence, " had failed before: ");

    snprintf(text, SYMM_ERROR_BYTES, "%.*s",
             (int)(quoted ? (size_t)(quoted - sentence) : strlen(sentence)), sentence);
    return text;
}

void sim_verdict_job(struct sim_verdict *verdict, const struct sim_blame *blame)
{
    const struct sim_result *result = &verdict->result;

    if (blame->failures > 0)
        sim_verdict_note(verdict, "%s", blame->why);
    if (result->hung)
        sim_verdict_note(verdict, "%s: %s", result->hung, result->where);
}

void sim_verdict_rank(struct sim_verdict *verdict, int rank, bool ended, int objects)
{
    const struct sim_result *result = &verdict->result;
    const int fds = result->fds[rank], mappings = result->mappings[rank],
              threads = result->threads[rank], blocks = result->blocks[rank];

    if (result->died[rank])
        return;
    if (!ended)
        sim_verdict_note(verdict, "rank %d has not ended", rank);
    if (fds + mappings + threads + blocks + objects > 0)
        sim_verdict_note(
            verdict,
            "rank %d leaves %d descriptors, %d mappings, %d threads, %d blocks of "
            "memory, %d objects of its driver",
            rank, fds, mappings, threads, blocks, objects);
}

bool sim_seed_run(sim_seed_fn *run, uint64_t seed, struct sim_verdict *verdict)
{
    int status;
    pid_t child;

    memset(verdict, 0, sizeof(*verdict));
    fflush(NULL);
    child = fork();
    if (child == 0) {
        /* cmocka's handlers would go on in the parent's test */
        for (int s = 1; s < 32; s++)
            (void)signal(s, SIG_DFL);
        run(seed, verdict);
        verdict->done = true;
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    if (WIFSIGNALED(status))
        sim_verdict_note(verdict, "it ends by signal %d", WTERMSIG(status));
    else if (!verdict->done)
        sim_verdict_note(verdict, "it has not ended");
    if (!verdict->why[0])
        return true;
    fprintf(stderr, "%sSYMM_TEST_SEED=%" PRIu64 " fails%s: %s\n",
            harness_env("SYMM_TEST_LACK", 0) ? "SYMM_TEST_LACK=1 " : "", seed,
            verdict->kind, verdict->why);
    return false;
}

int sim_seeds_run(sim_seed_fn *run, int64_t usual, struct sim_verdict *verdict,
                  bool longest)
{
    const int64_t only = harness_env("SYMM_TEST_SEED", -1);
    const int64_t first = only >= 0 ? only : harness_env("SYMM_TEST_FIRST", 1);
    const int64_t count = only >= 0 ? 1 : harness_env("SYMM_TEST_SEEDS", usual);
    uint64_t events = 0;
    double seconds = 0, most = -1e9;
    int failed = 0;

    for (int64_t seed = first; seed < first + count && failed < 20; seed++) {
        failed += !sim_seed_run(run, (uint64_t)seed, verdict);
        events += verdict->result.events;
        seconds += verdict->result.seconds;
        most = verdict->longest > most ? verdict->longest : most;
    }
    fprintf(stderr, "%" PRId64 " seeds: %" PRIu64 " events, %.0f simulated seconds",
            count, events, seconds);
    if (longest)
        fprintf(stderr, ", %.3f s beyond its time at most", most);
    fprintf(stderr, "\n");
    if (only >= 0)
        fprintf(stderr, "hash %016" PRIx64 "\n", verdict->result.hash);
    return failed;
}

bool sim_seeds_repeat(sim_seed_fn *run, uint64_t count, struct sim_verdict *verdict)
{
    bool equal = true;

    if (harness_env("SYMM_TEST_SEED", -1) >= 0)
        return true; /* that one alone */
    for (uint64_t seed = 1; seed <= count && equal; seed++) {
        uint64_t hash;

        (void)sim_seed_run(run, seed, verdict);
        hash = verdict->result.hash;
        (void)sim_seed_run(run, seed, verdict);
        equal = hash != 0 && hash == verdict->result.hash;
    }
    return equal;
}

void sim_log(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    sim_note("%s", line);
}
