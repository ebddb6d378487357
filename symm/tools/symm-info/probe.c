/* SPDX-License-Identifier: MIT */
/*
 * probe.c - proves by use that the library works on this machine.
 *
 * Two forked ranks do the bootstrap, map each other's memory and use it: loads and stores,
 * atomics, an all-reduce, a put with its signal. Then rank 1 is killed, and rank 0 must
 * get an error that says so. The findings are in shared memory, so that those of a crashed
 * rank remain. Every call has a timeout; after LIMIT_SECONDS the ranks are killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <symm/symm.h>

#include "tools/symm-info/info.h"
#include "util/clock.h"

#define RANKS         2
#define CALL_TIMEOUT  5.0
#define LIMIT_SECONDS 40.0
#define WORDS         8192  /* of the buffer */
#define PATTERN       1024  /* words of a pattern */
#define ADDITIONS     50000 /* atomic, by each rank */
#define SIGNAL        3

enum outcome { NOT_RUN, RIGHT, WRONG };

struct finding {
    _Atomic int outcome; /* stored last: the text is complete unless this is NOT_RUN */
    char text[256];
};

enum { BOOTSTRAP, HANDLES, ATOMICS, ALL_REDUCE, PUT_SIGNAL, DEAD_PEER, PROOFS };
static const char *const proof_names[PROOFS] = {
    [BOOTSTRAP] = "bootstrap",   [HANDLES] = "handles",       [ATOMICS] = "atomics",
    [ALL_REDUCE] = "all_reduce", [PUT_SIGNAL] = "put_signal", [DEAD_PEER] = "dead peer",
};

/* Shared by the parent and both ranks. */
struct reports {
    struct finding finding[RANKS][PROOFS];
    _Atomic int waiting;      /* rank 0 is about to wait for rank 1's death */
    _Atomic double killed_at; /* 0: not yet */
};

struct self {
    int rank, peer;
    char job[64];
    symm_ctx *ctx;
    symm_team *team;
    symm_buffer *buffer;
    uint64_t *words; /* this rank's WORDS words */
    struct reports *reports;
    char *text; /* of the running proof; 256 bytes */
};

/* Writes the sentence of the running proof; returns `good`. */
__attribute__((format(printf, 3, 4))) static bool say(struct self *self, bool good,
                                                      const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(self->text, sizeof(self->reports->finding[0][0].text), format, args);
    va_end(args);
    return good;
}

static bool call_failed(struct self *self, const char *call)
{
    return say(self, false, "%s: %s", call, symm_last_error());
}

static bool barrier(struct self *self)
{
    if (symm_barrier(self->team, NULL, NULL) != SYMM_OK)
        return call_failed(self, "symm_barrier");
    return true;
}

static uint64_t pattern(int rank, int seed, size_t i)
{
    return (uint64_t)(rank + 1) * UINT64_C(0x9e3779b97f4a7c15) +
           (uint64_t)seed * 1000003 + i;
}

/* ---- The proofs ------------------------------------------------------------------ */

static bool prove_bootstrap(struct self *self)
{
    const symm_config config = {
        .size = sizeof(config),
        .backend = "host",
        .world_size = RANKS,
        .rank = self->rank,
        .job_id = self->job,
        .heap_bytes = (size_t)1 << 30,
        .team_bytes = (size_t)128 << 20,
        .timeout = CALL_TIMEOUT,
        .init_timeout = CALL_TIMEOUT,
    };
    const int64_t shape = WORDS, stride = 1;
    double begin = symm__now();

    if (symm_init(&config, &self->ctx) != SYMM_OK)
        return call_failed(self, "symm_init");
    self->team = symm_team_world(self->ctx);
    if (symm_empty_strided_p2p(self->team, 1, &shape, &stride, SYMM_UINT64, 1,
                               &self->buffer) != SYMM_OK)
        return call_failed(self, "symm_empty_strided_p2p");
    if (symm_rendezvous(self->team) != SYMM_OK)
        return call_failed(self, "symm_rendezvous");
    self->words = symm_buffer_ptr(self->buffer);
    return say(self, true, "%d ranks met and exchanged their memory in %.1f ms", RANKS,
               1e3 * (symm__now() - begin));
}

static bool prove_handles(struct self *self)
{
    uint64_t *peer = symm_buffer_peer_ptr(self->buffer, self->peer);

    if (peer == NULL)
        return say(self, false, "no pointer to the memory of rank %d", self->peer);
    if (!barrier(self))
        return false;
    for (size_t i = 0; i < PATTERN; i++)
        peer[i] = pattern(self->rank, 1, i);
    if (!barrier(self))
        return false;
    for (size_t i = 0; i < PATTERN; i++) {
        if (self->words[i] != pattern(self->peer, 1, i))
            return say(self, false, "word %zu is not what rank %d stored here", i,
                       self->peer);
        if (peer[i] != pattern(self->rank, 1, i))
            return say(self, false, "word %zu of rank %d reads back wrong", i,
                       self->peer);
    }
    return say(self, true, "each rank stored to the other's memory and read it back");
}

static bool prove_atomics(struct self *self)
{
    uint64_t *first =
        self->rank == 0 ? self->words : symm_buffer_peer_ptr(self->buffer, 0);
    uint64_t *counter = first + 2 * PATTERN;

    if (self->rank == 0)
        __atomic_store_n(counter, 0, __ATOMIC_RELAXED);
    if (!barrier(self))
        return false;
    for (int i = 0; i < ADDITIONS; i++)
        __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    if (!barrier(self))
        return false;
    uint64_t sum = __atomic_load_n(counter, __ATOMIC_RELAXED);
    if (sum != (uint64_t)RANKS * ADDITIONS)
        return say(self, false, "%d x %d additions gave %llu", RANKS, ADDITIONS,
                   (unsigned long long)sum);
    return say(self, true, "%d x %d additions to one word, none lost", RANKS,
               ADDITIONS);
}

static bool prove_all_reduce(struct self *self)
{
    enum { COUNT = 1000 };
    const symm_call call = {.size = sizeof(call), .site = "symm-info"};
    float *in = (float *)(void *)(self->words + 3 * PATTERN), out[COUNT];

    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i + self->rank);
    if (symm_all_reduce(self->team, in, out, COUNT, SYMM_FLOAT32, SYMM_SUM, &call,
                        NULL) != SYMM_OK)
        return call_failed(self, "symm_all_reduce");
    for (int i = 0; i < COUNT; i++) {
        /* Whole numbers below 2^24: exact in any order. */
        if (out[i] < (float)(2 * i + 1) || out[i] > (float)(2 * i + 1))
            return say(self, false, "element %d is %g, not %d", i, (double)out[i],
                       2 * i + 1);
    }
    const char *why = symm_explain(self->team);
    return say(self, true, "the sum of %d float32 is right%s%s", COUNT,
               why != NULL && why[0] != '\0' ? "; " : "", why != NULL ? why : "");
}

static bool prove_put_signal(struct self *self)
{
    uint64_t *area = self->words + 4 * PATTERN, data[PATTERN];

    for (size_t i = 0; i < PATTERN; i++)
        data[i] = pattern(self->rank, 2, i);
    if (symm_put_signal(self->team, area, data, sizeof(data), self->peer, SIGNAL, NULL,
                        NULL) != SYMM_OK)
        return call_failed(self, "symm_put_signal");
    if (symm_signal_wait(self->team, self->peer, SIGNAL, NULL, NULL) != SYMM_OK)
        return call_failed(self, "symm_signal_wait");
    for (size_t i = 0; i < PATTERN; i++) {
        if (area[i] != pattern(self->peer, 2, i))
            return say(self, false, "the signal of rank %d came before word %zu",
                       self->peer, i);
    }
    return say(self, true, "%zu bytes were there when their signal was", sizeof(data));
}

/* On rank 0: the parent kills rank 1 during the wait. */
static bool prove_dead_peer(struct self *self)
{
    atomic_store(&self->reports->waiting, 1);
    symm_status status = symm_signal_wait(self->team, self->peer, SIGNAL, NULL, NULL);
    double end = symm__now(), begin = atomic_load(&self->reports->killed_at);
    if (begin <= 0)
        return say(self, false, "the wait ended with %s before rank %d was killed: %s",
                   symm_status_name(status), self->peer, symm_last_error());
    if (status != SYMM_ERR_PEER_DEAD)
        return say(self, false, "the wait ended with %s, not SYMM_ERR_PEER_DEAD: %s",
                   symm_status_name(status), symm_last_error());
    return say(self, true, "rank %d's death by SIGKILL was reported after %.0f us",
               self->peer, 1e6 * (end - begin));
}

/* ---- A rank ---------------------------------------------------------------------- */

static bool prove(struct self *self, int proof, bool (*run)(struct self *self))
{
    struct finding *finding = &self->reports->finding[self->rank][proof];

    self->text = finding->text;
    bool good = run(self);
    atomic_store(&finding->outcome, good ? RIGHT : WRONG);
    return good;
}

/* Each proof relies on the earlier proofs: the first failure ends the rank. */
static _Noreturn void run_rank(int rank, const char *job, struct reports *reports,
                               pid_t parent)
{
    struct self self = {.rank = rank, .peer = 1 - rank, .reports = reports};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    snprintf(self.job, sizeof(self.job), "%s", job);
    bool good = prove(&self, BOOTSTRAP, prove_bootstrap) &&
                prove(&self, HANDLES, prove_handles) &&
                prove(&self, ATOMICS, prove_atomics) &&
                prove(&self, ALL_REDUCE, prove_all_reduce) &&
                prove(&self, PUT_SIGNAL, prove_put_signal);
    while (good && rank == 1)
        pause(); /* for the parent's SIGKILL */
    if (good)
        prove(&self, DEAD_PEER, prove_dead_peer);
    symm_buffer_release(self.buffer);
    symm_finalize(self.ctx);
    _exit(0);
}

/* ---- The parent ------------------------------------------------------------------ */

/* Waits for both ranks; kills rank 1 once rank 0 waits for it. ended[r]: wait status. */
static void direct(struct reports *reports, const pid_t *ranks, int *ended)
{
    bool alive[RANKS] = {true, true}, killed = false;
    const double limit = symm__now() + LIMIT_SECONDS;

    while (alive[0] || alive[1]) {
        for (int r = 0; r < RANKS; r++) {
            if (alive[r] && waitpid(ranks[r], &ended[r], WNOHANG) != 0)
                alive[r] = false;
        }
        if (!killed && alive[1] && atomic_load(&reports->waiting) != 0) {
            symm__sleep(0.02); /* so that rank 0 is in its wait */
            atomic_store(&reports->killed_at, symm__now());
            kill(ranks[1], SIGKILL);
            killed = true;
        }
        /* Without rank 0, rank 1 would wait for SIGKILL until the limit. */
        bool orphan = alive[1] && !alive[0];
        for (int r = 0; r < RANKS; r++) {
            if (alive[r] && (orphan || symm__now() > limit))
                kill(ranks[r], SIGKILL);
        }
        symm__sleep(0.001);
    }
}

/* The sentence for both ranks; true if the proof holds. */
static bool judge(struct reports *reports, int proof, const int *ended, char *text,
                  size_t bytes)
{
    int needed = proof == DEAD_PEER ? 1 : RANKS;

    for (int r = 0; r < needed; r++) {
        struct finding *finding = &reports->finding[r][proof];
        int outcome = atomic_load(&finding->outcome);
        if (outcome == WRONG)
            snprintf(text, bytes, "rank %d: %s", r, finding->text);
        else if (outcome == NOT_RUN && WIFSIGNALED(ended[r]) &&
                 WTERMSIG(ended[r]) != SIGKILL)
            snprintf(text, bytes, "rank %d was ended by signal %d", r,
                     WTERMSIG(ended[r]));
        else if (outcome == NOT_RUN)
            snprintf(text, bytes, "rank %d did not come to it", r);
        if (outcome != RIGHT)
            return false;
    }
    snprintf(text, bytes, "%s", reports->finding[0][proof].text);
    return true;
}

static void show(FILE *file, struct symm_emit *emit, const char *proof, bool good,
                 const char *text)
{
    if (emit == NULL) {
        fprintf(file, "%-4s  %-10s  %s\n", good ? "ok" : "FAIL", proof, text);
        return;
    }
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "proof", proof);
    symm__emit_key_bool(emit, "ok", good);
    symm__emit_key_string(emit, "text", text);
    symm__emit_end_map(emit);
}

static int report(struct reports *reports, const int *ended, FILE *file,
                  struct symm_emit *emit)
{
    int failed = 0;

    for (int proof = 0; proof < PROOFS; proof++) {
        char text[300];
        bool good = judge(reports, proof, ended, text, sizeof(text));
        failed += !good;
        show(file, emit, proof_names[proof], good, text);
    }
    return failed;
}

static int cannot_start(FILE *file, struct symm_emit *emit, const char *what)
{
    char text[160];

    snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
    show(file, emit, "start", false, text);
    return 1;
}

static int probe(FILE *file, struct symm_emit *emit)
{
    pid_t ranks[RANKS], parent = getpid();
    int ended[RANKS] = {0}, failed = 1;
    char job[64];

    struct reports *reports = mmap(NULL, sizeof(*reports), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reports == MAP_FAILED)
        return cannot_start(file, emit, "mmap of the reports");
    snprintf(job, sizeof(job), "symm-info-%ld-%.6f", (long)parent, symm__now());
    fflush(NULL); /* else each rank would write the buffered output again */
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            run_rank(r, job, reports, parent);
        if (ranks[r] < 0) {
            cannot_start(file, emit, "fork of a rank");
            if (r == 1) {
                kill(ranks[0], SIGKILL);
                waitpid(ranks[0], &ended[0], 0);
            }
            goto err_unmap;
        }
    }
    direct(reports, ranks, ended);
    failed = report(reports, ended, file, emit);
err_unmap:
    munmap(reports, sizeof(*reports));
    return failed;
}

int symm__info_probe(FILE *file, struct symm_emit *emit)
{
    if (emit == NULL)
        return probe(file, NULL);
    symm__emit_key(emit, "probe");
    symm__emit_begin_list(emit);
    int failed = probe(file, emit);
    symm__emit_end_list(emit);
    return failed;
}
