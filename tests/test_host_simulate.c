/* SPDX-License-Identifier: MIT */
/*
 * test_host_simulate.c - whole jobs in the simulator (sim.h), each of them made by a seed: ranks on
 * one or several hosts start, call, lose ranks, make teams of the survivors and end, while the
 * seed's delays, interruptions, lost connections, deaths and stops meet them.
 *
 * What is checked in each job:
 *  - every call of every rank that lives ends within its time;
 *  - a call that returns SYMM_OK has the right result; without a fault every call does;
 *  - an error names a rank that was killed or stopped, if one was;
 *  - where the only fault is that one rank lacks memory for a moment, no step of all ranks ends by
 *    its timeout;
 *  - ranks whose team of survivors was made have the same one;
 *  - a rank that has finalized holds no descriptor, mapping, thread or block of memory.
 *
 * A seed that fails prints itself. SYMM_TEST_SEED=N runs it again, alone, and prints every event
 * with SYMM_TEST_TRACE=1. SYMM_TEST_SEEDS=N: so many (2,000; SYMM_TEST_LONG=1: 100,000), once as
 * they are, once with lack of memory in each. Each job runs in a process of its own, since the
 * ranks that are killed leave their memory to it.
 */
/* ctest: cost 15 */
/* ctest: sim */
#include "sim.h"

#define FAKE_ENGINE_IS_CUT(rank, other) sim_is_cut(rank, other)
#include "fake_engine.c"

#include "harness.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define RANKS    SIM_RANKS_MAX
#define ENTRY    256
#define STEPS    24
#define SENTENCE 400
#define SHRINKS  6
#define TIMEOUT  2.0                          /* of a call */
#define START    6.0                          /* of symm_init */
#define SLACK    (job->hosts > 1 ? 3.0 : 1.5) /* for what ends a call after its timeout */
#define COUNT    1500

enum step {
    BARRIER,
    SMALL,
    LARGE,
    SYMMETRIC,
    SPLIT,
    SIGNAL,
    STREAM,
    SEND,
    CREATE,
    STEP_KINDS
};
enum way { BY_KEY, BY_ALLGATHER, BY_PORT };

struct outcome { /* of a rank */
    int made;    /* shrinks that returned SYMM_OK */
    uint64_t members[SHRINKS];
    double made_at, left_at; /* the first of them; when symm_finalize began */
    bool joined, ended;
    uint64_t last; /* members of the team whose last barrier has passed */
};

/* Everything about one job. */
struct job {
    uint64_t seed;
    int ranks, hosts;
    enum way way;
    char host[RANKS], folder[96], engines[112];
    enum step step[STEPS];
    int steps, quits;       /* quits: bits of ranks that finalize at the first error */
    uint64_t deaths, stops; /* bits: ranks that will be killed, stopped for long, */
    uint64_t lacks;         /* whose allocations will fail */
    bool breaks, cut;       /* cut: for longer than calls bear */
    struct sim_config sim;
    /* By the ranks, while it runs. */
    char entries[RANKS][ENTRY];
    int given;
    struct outcome outcome[RANKS];
    double longest; /* over its time, of any call */
    int failures;
    char why[900];
};

/* In the parent's view. */
struct verdict {
    struct sim_result result;
    char why[900];
    bool done;
};

static char root[64];

/* ---- What a job is --------------------------------------------------------------- */

static uint64_t below(uint64_t *state, uint64_t count)
{
    return harness_random(state) % count;
}

static const char *variable(int rank, const char *name, void *arg)
{
    struct job *job = arg;
    static char text[RANKS][32];

    if (strcmp(name, "SYMM_RUNTIME_DIR") == 0)
        return job->folder;
    if (strcmp(name, "SYMM_BACKEND") == 0)
        return "host";
    if (strcmp(name, "SYMM_LOG") == 0)
        return "info";
    if (strcmp(name, "SYMM_SPIN") == 0)
        return "1";
    if (job->hosts == 1)
        return NULL;
    if (strcmp(name, "SYMM_HOST_ID") == 0) {
        snprintf(text[rank], sizeof(text[rank]), "%c", job->host[rank]);
        return text[rank];
    }
    if (strcmp(name, "SYMM_HOST_ADDRESS") == 0)
        return "127.0.0.1";
    if (job->way == BY_PORT && strcmp(name, "SYMM_BOOTSTRAP_PORT") == 0)
        return "29999";
    if (job->way == BY_PORT && strcmp(name, "SYMM_BOOTSTRAP_ADDR") == 0)
        return "127.0.0.1";
    if (job->way == BY_PORT && strcmp(name, "SYMM_JOB_SECRET") == 0)
        return "000102030405060708090a0b0c0d0e0f";
    if (strcmp(name, "SYMM_ENGINE") == 0)
        return "/sim/engine";
    if (strcmp(name, "SYMM_FAKE_ENGINE_DIR") == 0)
        return job->engines;
    return NULL;
}

static void body(int rank, void *arg);

static void choose_faults(struct job *job, uint64_t *state)
{
    struct sim_config *sim = &job->sim;
    const uint64_t kind = below(state, 8); /* 0, 1: none */
    int deaths =
        kind >= 2 && kind <= 5 ? 1 + (int)below(state, (uint64_t)job->ranks - 1) : 0;
    int stops = kind >= 5 ? 1 + (int)below(state, 2) : 0;

    for (int i = 0; i < deaths; i++) {
        const int r = (int)below(state, (uint64_t)job->ranks);
        const uint64_t most = below(state, 2) ? 250 : 1000;

        job->deaths |= UINT64_C(1) << r;
        sim->die_at[r] = 1 + below(state, most);
    }
    for (int i = 0; i < stops; i++) {
        const int r = (int)below(state, (uint64_t)job->ranks);
        const bool is_long = below(state, 2);

        sim->stop_at[r] = 1 + below(state, 700);
        sim->stop_seconds[r] = is_long ? TIMEOUT + 1e-3 * (double)below(state, 6000)
                                       : 1e-3 * (double)below(state, 300);
        if (is_long)
            job->stops |= UINT64_C(1) << r;
    }
    if (job->hosts > 1 && below(state, 4) == 0) {
        sim->breaks = 1 + (unsigned)below(state, 6);
        job->breaks = true;
    }
}

#define CUT_SHORT 0.5 /* seconds, which calls bear */

/* A network that is cut in two: most jobs over hosts without another fault, some of those with
 * one. */
static void choose_cut(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0xc2b2ae3d27d4eb4f) + 3;
    const bool alone = job->deaths == 0 && job->stops == 0 && !job->breaks;
    struct sim_config *sim = &job->sim;

    if (job->hosts == 1 || below(&state, 4) >= (alone ? 3 : 1))
        return;
    sim->cut_hosts = 1 + (unsigned)below(&state, (UINT64_C(1) << job->hosts) - 2);
    sim->cut_at = 1 + 1e-3 * (double)below(&state, 300);
    switch (below(&state, 4)) {
    case 0:
        sim->cut_seconds = CUT_SHORT * 1e-3 * (double)(1 + below(&state, 1000));
        break;
    case 1:
        sim->cut_seconds = CUT_SHORT + 1e-3 * (double)below(&state, 4000);
        break;
    case 2:
        sim->cut_seconds = 4 + 1e-3 * (double)below(&state, 40000);
        break;
    default:
        sim->cut_seconds = INFINITY;
    }
    job->cut = sim->cut_seconds > CUT_SHORT;
}

/* Lack of memory, on one rank. */
static void choose_lack(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0x9fb21c651e98df25) + 5;
    const bool alone =
        job->deaths == 0 && job->stops == 0 && !job->breaks && !job->sim.cut_hosts;
    const int rank = (int)below(&state, (uint64_t)job->ranks);
    static const uint64_t most[] = {100, 1000, 4000}, lacks[] = {1, 1, 4, 1000000};

    if (below(&state, 16) >= (alone ? 8 : 1) && !harness_env("SYMM_TEST_LACK", 0))
        return;
    job->sim.lack_at[rank] = 1 + below(&state, most[below(&state, 3)]);
    job->sim.lacks[rank] = lacks[below(&state, 4)];
    job->lacks = UINT64_C(1) << rank;
}

static void choose_job(struct job *job, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + 7;
    static const size_t rooms[] = {4096, 32768, 212992};

    *job = (struct job){.seed = seed, .ranks = 2 + (int)below(&state, 4), .hosts = 1};
    if (below(&state, 3) == 0)
        job->hosts = 2 + (int)below(&state, 2);
    if (job->ranks < job->hosts)
        job->ranks = job->hosts;
    job->way = below(&state, 4) == 0 ? BY_ALLGATHER : job->hosts > 1 ? BY_PORT : BY_KEY;
    for (int r = 0; r < job->ranks; r++)
        job->host[r] = (char)('a' + r * job->hosts / job->ranks);
    job->steps = 3 + (int)below(&state, 6);
    for (int i = 0; i < job->steps; i++)
        do
            job->step[i] = (enum step)below(&state, STEP_KINDS);
        while (job->hosts > 1 && (job->step[i] == SIGNAL || job->step[i] == SEND ||
                                  job->step[i] == CREATE));
    job->quits = below(&state, 3) == 0 ? (int)below(&state, 256) : 0;
    snprintf(job->folder, sizeof(job->folder), "%s/%d", root, (int)getpid());
    snprintf(job->engines, sizeof(job->engines), "%s.engine", job->folder);
    job->sim = (struct sim_config){.seed = seed,
                                   .ranks = job->ranks,
                                   .body = body,
                                   .arg = job,
                                   .variable = variable,
                                   .slow = (unsigned)below(&state, 3) * 200,
                                   .interrupt = (unsigned)below(&state, 3) * 10,
                                   .latency = below(&state, 2) ? 1e-4 : 5e-3,
                                   .room = rooms[below(&state, 3)],
                                   .limit = 300,
                                   .trace = harness_env("SYMM_TEST_TRACE", 0) != 0};
    for (int r = 0; r < job->ranks; r++)
        job->sim.host_of[r] = job->host[r] - 'a';
    choose_faults(job, &state);
    choose_cut(job);
    choose_lack(job);
}

/* ---- What is checked ------------------------------------------------------------- */

/* A rank's finding; the first is kept. */
static void blame(struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void blame(struct job *job, const char *format, ...)
{
    char text[600];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sim_note("FAILS: %s", text);
    if (job->failures++ == 0)
        snprintf(job->why, sizeof(job->why), "rank %d at %.6f: %s", sim_rank(),
                 sim_now(), text);
}

/* Has the rank been on the other side of a cut? */
static bool was_cut_off(const struct job *job, int rank)
{
    const struct sim_config *sim = &job->sim;

    return job->cut && sim_now() >= sim->cut_at &&
           ((sim->cut_hosts >> sim->host_of[rank] ^
             sim->cut_hosts >> sim->host_of[sim_rank()]) &
            1);
}

/* A call may still fail after the end of a cut, when no rank is missing any more. */
static bool is_cut_now(const struct job *job)
{
    return job->cut && sim_now() < job->sim.cut_at + job->sim.cut_seconds;
}

static uint64_t faulty(const struct job *job)
{
    uint64_t bits = job->stops;

    for (int r = 0; r < job->ranks; r++)
        if (sim_is_dead(r) || was_cut_off(job, r) || sim_has_lacked(r))
            bits |= UINT64_C(1) << r;
    return bits;
}

static uint64_t ended(const struct job *job)
{
    uint64_t bits = 0;

    for (int r = 0; r < job->ranks; r++)
        bits |= (uint64_t)(job->outcome[r].ended || job->outcome[r].left_at > 0) << r;
    return bits;
}

/* Does the sentence name a host, all of whose ranks are such or have ended, or one if `any`? At the
 * start a host cannot be reached if the rank that listens there is gone. */
static bool names_host(const struct job *job, const char *sentence, uint64_t ranks,
                       bool any)
{
    const char *at = strstr(sentence, "host ");

    for (; at; at = strstr(at + 1, "host ")) {
        bool all = true, one = false;

        for (int r = 0; r < job->ranks; r++)
            if (job->host[r] == at[5]) {
                one = one || (ranks >> r & 1);
                all = all && ((ranks >> r & 1) || job->outcome[r].ended);
            }
        if ((all || any) && one)
            return true;
    }
    return false;
}

/* Does the sentence name such a rank, as "rank 3" or in "ranks 1, 3"? */
static bool names(const char *sentence, uint64_t ranks)
{
    for (const char *c = strstr(sentence, "rank"); c; c = strstr(c + 1, "rank")) {
        const char *n = c + 4 + (c[4] == 's');

        while (*n == ' ' || *n == ',' || strncmp(n, "and ", 4) == 0 ||
               (*n >= '0' && *n <= '9')) {
            if (*n >= '0' && *n <= '9') {
                const long r = strtol(n, (char **)(uintptr_t)&n, 10);

                if (r < 64 && (ranks >> r & 1))
                    return true;
                continue;
            }
            n += strncmp(n, "and ", 4) == 0 ? 4 : 1;
        }
    }
    return false;
}

/* Whether each error must name a rank at fault. Over hosts a wait in the engine or for a relay does
 * not know which rank is late, or has no memory; and who waits for one rank only names it, also if
 * that one waits in turn for another. */
static bool is_strict(const struct job *job)
{
    bool pairs = false;

    for (int i = 0; i < job->steps; i++)
        pairs = pairs || job->step[i] == SIGNAL || job->step[i] == SEND ||
                job->step[i] == CREATE;
    return !job->breaks && !job->cut && !(job->lacks && (job->hosts > 1 || pairs)) &&
           (job->stops == 0 || (job->hosts == 1 && !pairs));
}

/* Has the lowest rank of a host died, the host's relay and perhaps the root of an exchange? Then
 * some hosts may leave the exchange well, and others fail, and the ones wait for the others. */
static bool relay_died(const struct job *job)
{
    for (int r = 0; r < job->ranks && job->hosts > 1; r++)
        if (sim_is_dead(r) && (r == 0 || job->host[r] != job->host[r - 1]))
            return true;
    return false;
}

struct watch {
    double start, stopped;
};

static struct watch begin(const char *what)
{
    sim_note("calls %s", what);
    return (struct watch){sim_now(), sim_stopped(sim_rank())};
}

/* A rank that was killed is noticed long before a timeout: no call of the others waits for one. */
#define SOON 1.0

/* Does the last error name one of these ranks, or need it not? */
static bool is_named(const struct job *job, uint64_t ranks, bool starts)
{
    const char *error = symm_last_error();

    /* A rank that lacks memory in a part of the team tells that part alone. */
    return names(error, ranks) || names_host(job, error, ranks, starts) ||
           strstr(error, "the caller's allgather") ||
           (job->lacks && strstr(error, "has gone on to symm_team_shrink"));
}

/* Is the call's timeout no reason to end? Of a step that all ranks make together all are told
 * at once that one had no memory for it. Not told are ranks that it has not met when the job
 * starts, of a collective that it does not begin, and of a lack that lasts. */
static bool waits_for_lack(const struct job *job, const char *what)
{
    static const char *const steps[] = {"symm_init", "symm_team_split",
                                        "symm_rendezvous"};
    const char *error = symm_last_error();
    bool step = false, brief = false;

    for (int i = 0; i < 3; i++)
        step = step || strncmp(what, steps[i], strlen(steps[i])) == 0;
    for (int r = 0; r < job->ranks; r++)
        brief = brief || (job->sim.lack_at[r] > 0 && job->sim.lacks[r] <= 4);
    return step && brief && job->deaths == 0 && job->stops == 0 && !job->breaks &&
           !job->sim.cut_hosts && !strstr(error, "not joined") &&
           !strstr(error, "has not opened the job's bootstrap") &&
           !strstr(error, "is rank 0 not started");
}

/* A call has ended: within its time, and with an error only where there was a fault. */
static symm_status judge(struct job *job, struct watch watch, const char *what,
                         symm_status status, double allowed)
{
    const int me = sim_rank();
    const double spent = sim_now() - watch.start - (sim_stopped(me) - watch.stopped);
    const uint64_t bad = faulty(job);
    const bool starts = strncmp(what, "symm_init", 9) == 0;
    const uint64_t named = starts || job->stops || job->lacks ? bad | ended(job) : bad;

    if (!starts && job->stops == 0 && !job->breaks && !job->sim.cut_hosts &&
        !job->lacks && !relay_died(job))
        allowed = SOON;
    sim_note("%s: %s in %.6f s%s%s", what, symm_status_name(status), spent,
             status == SYMM_OK ? "" : ": ", status == SYMM_OK ? "" : symm_last_error());
    if (status == SYMM_ERR_TIMEOUT && waits_for_lack(job, what))
        blame(job, "%s ends by its timeout, after %.3f s: %s", what, spent,
              symm_last_error());
    if (spent > allowed)
        blame(job, "%s took %.3f s, of %.3f allowed (%s)", what, spent, allowed,
              status == SYMM_OK ? "SYMM_OK" : symm_last_error());
    if (status == SYMM_OK || ((job->stops | job->lacks) >> me & 1))
        return status;
    if (bad == 0)
        blame(job, "%s fails without a fault: %s", what, symm_last_error());
    else if ((is_strict(job) ||
              (is_cut_now(job) &&
               (strstr(symm_last_error(), "hosts did not answer") ||
                strstr(symm_last_error(), "not heard from all hosts")))) &&
             !(starts && status == SYMM_ERR_TIMEOUT) && !is_named(job, named, starts))
        blame(job, "%s names no rank at fault (%#" PRIx64 "): %s", what, bad,
              symm_last_error());
    return status;
}

#define TIMED(job, seconds, call)                                                      \
    ({                                                                                 \
        struct watch watch_ = begin(#call);                                            \
        symm_status status_ = (call);                                                  \
        judge((job), watch_, #call, status_, (seconds));                               \
    })
#define CALL(job, call) TIMED(job, TIMEOUT + SLACK, call)

static uint64_t members_of(symm_team *team)
{
    uint64_t members = 0;

    for (int m = 0; m < symm_team_size(team); m++)
        members |= UINT64_C(1) << symm_team_world_rank(team, m);
    return members;
}

/* ---- What a rank does ------------------------------------------------------------ */

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct job *job = arg;
    const double until = sim_now() + START;

    if (bytes > ENTRY)
        return 1;
    memcpy(job->entries[sim_rank()], in, bytes);
    job->given++;
    while (job->given < job->ranks) {
        sim_sleep(0.001);
        if (sim_now() > until)
            return 1;
    }
    for (int r = 0; r < job->ranks; r++)
        memcpy((char *)out + (size_t)r * bytes, job->entries[r], bytes);
    return 0;
}

/* The sum of the members' values must be in all elements. */
static symm_status sum_up(struct job *job, symm_team *team, int32_t *data, size_t count,
                          const symm_call *call)
{
    const int me = symm_team_world_rank(team, symm_team_rank(team));
    int32_t ranks = 0;
    symm_status status;

    for (size_t i = 0; i < count; i++)
        data[i] = 1000 * me + (int32_t)i;
    status = CALL(job, symm_all_reduce(team, data, data, count, SYMM_INT32, SYMM_SUM,
                                       call, NULL));
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < symm_team_size(team); m++)
        ranks += symm_team_world_rank(team, m);
    for (size_t i = 0; i < count; i++)
        if (data[i] != 1000 * ranks + symm_team_size(team) * (int32_t)i) {
            blame(job, "all_reduce gave %d at %zu of %zu in a team of %d", data[i], i,
                  count, symm_team_size(team));
            break;
        }
    return SYMM_OK;
}

static symm_status step_symmetric(struct job *job, symm_team *team)
{
    const int64_t count = COUNT, stride = 1;
    symm_buffer *buffer = NULL;
    symm_status status =
        symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT32, 0, &buffer);

    if (status != SYMM_OK)
        return status;
    status = CALL(job, symm_rendezvous(team));
    if (status == SYMM_OK)
        status = sum_up(job, team, symm_buffer_ptr(buffer), COUNT, NULL);
    symm_buffer_release(buffer);
    return status;
}

static symm_status step_split(struct job *job, symm_team *team)
{
    int32_t data[16];
    symm_team *part = NULL;
    symm_status status =
        TIMED(job, 2 * TIMEOUT + SLACK,
              symm_team_split(team, symm_team_rank(team) % 2, 0, &part));

    if (status != SYMM_OK)
        return status;
    status = sum_up(job, part, data, 16, NULL);
    symm_team_destroy(part);
    return status;
}

static symm_status step_create(struct job *job, symm_team *team)
{
    int32_t data[16];
    const int n = symm_team_size(team), me = symm_team_rank(team);
    const int pair[2] = {0, n - 1};
    symm_team *part = NULL;
    symm_status status;

    if (n < 2 || (me != pair[0] && me != pair[1]))
        return SYMM_OK;
    status = TIMED(job, 2 * TIMEOUT + SLACK, symm_team_create(team, pair, 2, 5, &part));
    if (status != SYMM_OK)
        return status;
    status = sum_up(job, part, data, 16, NULL);
    symm_team_destroy(part);
    return status;
}

static symm_status step_signal(struct job *job, symm_team *team)
{
    const int n = symm_team_size(team), me = symm_team_rank(team);
    symm_status status = CALL(job, symm_signal(team, (me + 1) % n, 3, NULL, NULL));

    return status == SYMM_OK
               ? CALL(job, symm_signal_wait(team, (me + n - 1) % n, 3, NULL, NULL))
               : status;
}

static symm_status step_send(struct job *job, symm_team *team)
{
    const int n = symm_team_size(team), me = symm_team_rank(team);
    int32_t out[300], in[300];
    symm_status status = SYMM_OK;

    for (int i = 0; i < 300; i++)
        out[i] = 7 * me + i;
    for (int turn = 0; turn < 2 && status == SYMM_OK && n > 1; turn++) {
        if ((me == 0) == (turn == 0) && (me == 0 || me == n - 1))
            status = CALL(job, symm_send(team, out, 300, SYMM_INT32,
                                         me == 0 ? n - 1 : 0, NULL, NULL));
        else if (me == 0 || me == n - 1)
            status = CALL(job, symm_recv(team, in, 300, SYMM_INT32, me == 0 ? n - 1 : 0,
                                         NULL, NULL));
    }
    if (status == SYMM_OK && n > 1 && (me == 0 || me == n - 1) &&
        in[299] != 7 * (me == 0 ? n - 1 : 0) + 299)
        blame(job, "a message of %d came with %d", me == 0 ? n - 1 : 0, in[299]);
    return status;
}

static symm_status step_stream(struct job *job, symm_ctx *ctx, symm_team *team)
{
    symm_call call = {.size = sizeof(call)};
    int32_t data[64];
    symm_work *work = NULL;
    symm_status status = symm_stream_create(ctx, &call.stream), waited;

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < 64; i++)
        data[i] = i;
    status = CALL(
        job, symm_all_reduce(team, data, data, 64, SYMM_INT32, SYMM_MAX, &call, &work));
    if (status == SYMM_OK) {
        waited = TIMED(job, TIMEOUT + SLACK, symm_work_synchronize(work, 0));
        status = waited;
        symm_work_release(work);
    }
    if (status == SYMM_OK && data[63] != 63)
        blame(job, "a queued all_reduce gave %d", data[63]);
    symm_stream_destroy(ctx, call.stream);
    return status;
}

static symm_status do_step(struct job *job, symm_ctx *ctx, symm_team *team,
                           enum step step)
{
    int32_t data[COUNT];

    switch (step) {
    case BARRIER:
        return CALL(job, symm_barrier(team, NULL, NULL));
    case SMALL:
        return sum_up(job, team, data, 2, NULL);
    case LARGE:
        return sum_up(job, team, data, COUNT, NULL);
    case SYMMETRIC:
        return step_symmetric(job, team);
    case SPLIT:
        return step_split(job, team);
    case SIGNAL:
        return step_signal(job, team);
    case STREAM:
        return step_stream(job, ctx, team);
    case SEND:
        return step_send(job, team);
    default:
        return step_create(job, team);
    }
}

/* A team of those who live, after a failure; NULL: none, or the rank does without. */
static symm_team *survive(struct job *job, symm_team *team, struct outcome *mine)
{
    symm_team *next = NULL;

    for (int tries = 0; tries < 4; tries++) {
        symm_status status = TIMED(job, (job->hosts > 1 ? 4 : 2) * TIMEOUT + SLACK,
                                   symm_team_shrink(team, &next));

        if (status == SYMM_OK)
            break;
    }
    if (next && mine->made == 0)
        mine->made_at = sim_now();
    if (next && mine->made < SHRINKS) {
        mine->members[mine->made++] = members_of(next);
        sim_note("has a team of %#" PRIx64, members_of(next));
    }
    return next;
}

static void run_steps(struct job *job, symm_ctx *ctx, struct outcome *mine)
{
    symm_team *world = symm_team_world(ctx), *team = world, *next;
    int step = 0;

    for (int losses = 0; losses < SHRINKS;) {
        symm_status status = SYMM_OK;

        while (step < job->steps && status == SYMM_OK)
            status = do_step(job, ctx, team, job->step[step++]);
        if (status == SYMM_OK)
            status = CALL(job, symm_barrier(team, NULL, NULL));
        if (status == SYMM_OK)
            mine->last = members_of(team);
        if (status == SYMM_OK || (job->quits >> sim_rank() & 1))
            break;
        losses++;
        if (status == SYMM_ERR_NOMEM && job->lacks >> sim_rank() & 1)
            (void)!symm_team_abort(team, "no memory");
        next = survive(job, team, mine);
        if (team != world)
            symm_team_destroy(team);
        team = next;
        if (!team)
            return;
        step = job->steps; /* the survivors only meet */
    }
    if (team != world)
        symm_team_destroy(team);
}

static void body(int rank, void *arg)
{
    struct job *job = arg;
    struct outcome *mine = &job->outcome[rank];
    const symm_bootstrap bootstrap = {
        .size = sizeof(bootstrap), .allgather = allgather, .arg = job};
    symm_config config = {.size = sizeof(config),
                          .world_size = job->ranks,
                          .rank = rank,
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = (size_t)8 << 20,
                          .timeout = TIMEOUT,
                          .init_timeout = START};
    symm_ctx *ctx = NULL;

    if (job->way == BY_ALLGATHER)
        config.bootstrap = &bootstrap;
    else
        config.job_id = "simulated";
    for (int r = 0; r < job->ranks && job->way == BY_PORT; r++) {
        config.local_rank += job->host[r] == job->host[rank] && r < rank;
        config.local_size += job->host[r] == job->host[rank];
    }
    if (TIMED(job, 2 * START + SLACK, symm_init(&config, &ctx)) != SYMM_OK) {
        mine->ended = true;
        return;
    }
    mine->joined = true;
    run_steps(job, ctx, mine);
    mine->left_at = sim_now();
    TIMED(job, 3 * TIMEOUT + SLACK, (symm_finalize(ctx), SYMM_OK));
    mine->ended = true;
}

/* ---- One seed -------------------------------------------------------------------- */

static void note(struct verdict *shared, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct verdict *shared, const char *format, ...)
{
    va_list args;

    if (shared->why[0])
        return;
    va_start(args, format);
    vsnprintf(shared->why, sizeof(shared->why), format, args);
    va_end(args);
}

/* Members of the teams of survivors, compared: the k-th of two healthy ranks, if both have it. */
static void compare_teams(const struct job *job, struct verdict *shared)
{
    for (int a = 0; a < job->ranks; a++)
        for (int k = 0; k < job->outcome[a].made; k++)
            for (int b = 0; b < job->ranks; b++)
                for (int l = 0; l < job->outcome[b].made; l++) {
                    const uint64_t mine = job->outcome[a].members[k];
                    const uint64_t theirs = job->outcome[b].members[l];

                    if ((mine & theirs) != 0 && mine != theirs &&
                        (mine | theirs) != mine && (mine | theirs) != theirs &&
                        !(job->stops))
                        note(shared,
                             "rank %d has a team of %#" PRIx64 ", rank %d of %#" PRIx64,
                             a, mine, b, theirs);
                }
}

/* Two sides of a network do not go on at the same time, with teams that have no rank in common. */
static void compare_sides(const struct job *job, struct verdict *shared)
{
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++) {
            const struct outcome *one = &job->outcome[a], *other = &job->outcome[b];

            if (job->host[a] != job->host[b] && job->deaths == 0 && one->made > 0 &&
                other->made > 0 && !(one->members[0] & other->members[0]) &&
                one->made_at <= other->made_at && other->made_at < one->left_at)
                note(shared,
                     "rank %d has a team of %#" PRIx64 ", rank %d one of %#" PRIx64
                     " on the other side",
                     a, one->members[0], b, other->members[0]);
        }
}

static void judge_job(const struct job *job, struct verdict *shared)
{
    const struct sim_result *result = &shared->result;

    if (job->failures > 0)
        note(shared, "%s", job->why);
    if (result->hung)
        note(shared, "%s: %s", result->hung, result->where);
    for (int r = 0; r < job->ranks && !result->hung; r++) {
        if (result->died[r])
            continue;
        if (!job->outcome[r].ended)
            note(shared, "rank %d has not ended", r);
        if (result->fds[r] + result->mappings[r] + result->threads[r] +
                result->blocks[r] >
            0)
            note(shared,
                 "rank %d leaves %d descriptors, %d mappings, %d threads, %d blocks of "
                 "memory",
                 r, result->fds[r], result->mappings[r], result->threads[r],
                 result->blocks[r]);
    }
    compare_teams(job, shared);
    compare_sides(job, shared);
    for (int r = 0;
         r < job->ranks && job->stops == 0 && !job->breaks && !job->cut && !job->lacks;
         r++)
        if (job->outcome[r].joined && !result->died[r] && job->outcome[r].last == 0 &&
            !(job->quits >> r & 1))
            note(shared, "rank %d has ended without a team", r);
    if (!result->hung && job->deaths == 0 && harness_entries(job->folder, true) > 0)
        note(shared, "files are left in the runtime's folder");
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    sim_note("%s", line);
}

static void run_child(uint64_t seed, struct verdict *shared)
{
    static struct job job;

    choose_job(&job, seed);
    mkdir(job.folder, 0700);
    mkdir(job.engines, 0700);
    symm_log_sink(quiet, NULL);
    sim_run(&job.sim, &shared->result);
    judge_job(&job, shared);
    harness_remove(job.folder);
    harness_remove(job.engines);
    shared->done = true;
    if (job.sim.trace)
        fprintf(stderr,
                "%d ranks, %d hosts, deaths %#" PRIx64 ", stops %#" PRIx64
                ", cut %#x from %g for %g s, lacks %#" PRIx64 "\n",
                job.ranks, job.hosts, job.deaths, job.stops, job.sim.cut_hosts,
                job.sim.cut_at, job.sim.cut_seconds, job.lacks);
}

/* Whether the seed's job went well; prints it if not. */
static bool run_seed(uint64_t seed, struct verdict *shared)
{
    int status;
    pid_t child;

    memset(shared, 0, sizeof(*shared));
    fflush(NULL);
    child = fork();
    if (child == 0) {
        for (int s = 1; s < 32;
             s++) /* cmocka's handlers would go on in the parent's test */
            (void)signal(s, SIG_DFL);
        run_child(seed, shared);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    if (WIFSIGNALED(status))
        note(shared, "it ends by signal %d", WTERMSIG(status));
    else if (!shared->done)
        note(shared, "it has not ended");
    if (!shared->why[0])
        return true;
    fprintf(stderr, "%sSYMM_TEST_SEED=%" PRIu64 " fails: %s\n",
            harness_env("SYMM_TEST_LACK", 0) ? "SYMM_TEST_LACK=1 " : "", seed,
            shared->why);
    return false;
}

static void seeds(void **state)
{
    const int64_t only = harness_env("SYMM_TEST_SEED", -1);
    const int64_t all = harness_env("SYMM_TEST_LONG", 0) ? 100000 : 2000;
    const int64_t first = only >= 0 ? only : harness_env("SYMM_TEST_FIRST", 1);
    const int64_t count = only >= 0 ? 1 : harness_env("SYMM_TEST_SEEDS", all);
    struct verdict *shared = *state;
    uint64_t events = 0;
    double seconds = 0;
    int failed = 0;

    for (int64_t seed = first; seed < first + count && failed < 20; seed++) {
        failed += !run_seed((uint64_t)seed, shared);
        events += shared->result.events;
        seconds += shared->result.seconds;
    }
    fprintf(stderr, "%" PRId64 " seeds: %" PRIu64 " events, %.0f simulated seconds\n",
            count, events, seconds);
    if (only >= 0)
        fprintf(stderr, "hash %016" PRIx64 "\n", shared->result.hash);
    assert_int_equal(failed, 0);
}

/* The same jobs, of which each lacks memory. */
static void seeds_that_lack(void **state)
{
    if (harness_env("SYMM_TEST_SEED", -1) >= 0 || harness_env("SYMM_TEST_LACK", 0))
        return;
    setenv("SYMM_TEST_LACK", "1", 1);
    seeds(state);
    unsetenv("SYMM_TEST_LACK");
}

static void seeds_repeat(void **state)
{
    struct verdict *shared = *state;

    if (harness_env("SYMM_TEST_SEED", -1) >= 0)
        return; /* that one alone */
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t hash;

        (void)run_seed(seed, shared);
        hash = shared->result.hash;
        (void)run_seed(seed, shared);
        assert_true(hash != 0 && hash == shared->result.hash);
    }
}

int main(void)
{
    struct verdict *shared = harness_shared(sizeof(*shared));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(seeds, shared),
        cmocka_unit_test_prestate(seeds_that_lack, shared),
        cmocka_unit_test_prestate(seeds_repeat, shared)};
    int failed;

    if (HARNESS_SLOW)
        return 77; /* fibers need a sanitizer's help; the release build runs them */
    harness_clear_environment();
    harness_directory(root, sizeof(root));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(root);
    return failed;
}
