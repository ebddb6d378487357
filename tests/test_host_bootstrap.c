/* SPDX-License-Identifier: MIT */
/*
 * test_host_bootstrap.c - the bootstrap of the ranks of one host: it connects them, or fails with
 * the reason.
 *
 * Every test has its own runtime directory, which is empty afterwards. The ranks are
 * processes, together with strangers, wrong ranks and groups with the same key. Kills and
 * failing system calls: test_host_bootstrap_fault.c.
 */
#include "plane_bootstrap.h"

#include <sys/prctl.h>

#include "bootstrap/hosts.h"
#include "oob/exchange.h"

static const uint8_t wrong_secret[SYMM_SECRET_BYTES] = "0123456789abcdf";

/* ---- Meetings that go well ------------------------------------------------------- */

static int body_start(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    atomic_fetch_add(job->step, 1); /* all processes exist: now the time counts */
    step_wait(job, job->size);
    return body_bootstrap_once(rank, result, arg);
}

static void test_sizes(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 16, 64};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job;
        double longest = 0;
        job_open(&job, sizes[i]);
        job.secret = i % 2 == 0 ? good_secret : NULL;
        assert_int_equal(plane_run(&job.plane, job.size, body_start, &job), 0);
        assert_met(&job, job.size);
        for (int r = 0; r < job.size; r++) {
            double seconds = job.plane.results[r].seconds;
            longest = seconds > longest ? seconds : longest;
        }
        printf("%d ranks met in %.2f ms\n", job.size, 1e3 * longest);
        assert_true(longest < HARNESS_SOON);
        job_close(&job);
    }
}

/* Again and again by the same key, ranks in another order each time. */
static int body_often(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < 30; i++) {
        if ((i + rank) % 4 == 0)
            symm__sleep(0.001 * (i % 4));
        int code = body_bootstrap_once(rank, result, arg);
        PLANE_CHECK(code == 0 && result->status == SYMM_OK);
        /* Nobody may begin the next bootstrap while another is in this one. */
        atomic_fetch_add(job->step, 1);
        step_wait(job, (i + 1) * job->size);
    }
    return 0;
}

static void test_often(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 3);
    assert_int_equal(plane_run(&job.plane, 3, body_often, &job), 0);
    job_close(&job);
}

/* Jobs of other keys at the same time: they share and remove the directory. */
static int body_crowd(int rank, struct plane_result *result, void *arg)
{
    struct job job = *(struct job *)arg;
    char key[32];
    job.key = key;
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "%d of %d", i, rank / 2);
        int code = body_bootstrap_once(rank % 2, result, &job);
        PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    }
    return 0;
}

static void test_crowd(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 2);
    assert_int_equal(plane_run(&job.plane, 8, body_crowd, &job), 0);
    job_close(&job);
}

/* ---- Who is missing -------------------------------------------------------------- */

/* Whether the deadline was long enough for those who come. */
static bool missing_are_named(int kind, double timeout)
{
    struct job job;
    bool all = true;
    job_open(&job, 6);
    for (int r = 0; r < 6; r++) {
        if (r != 5 && r != 2) {
            /* 1: joining ranks are less patient than the root; 2: the root is the least. */
            job.timeout =
                (kind == 1) == (r == 0) && kind != 0 ? HARNESS_AMPLE : timeout;
            plane_start(&job.plane, body_bootstrap_once, r, &job);
        }
    }
    assert_int_equal(plane_wait(&job.plane), 0);
    for (int i = 0; i < 4; i++) {
        assert_result(&job, i, SYMM_ERR_TIMEOUT, "");
        assert_true(job.plane.results[i].seconds < timeout + HARNESS_SOON);
        all &= strstr(job.plane.results[i].error,
                      "rank 2 and rank 5 have not joined") != NULL;
    }
    job_close(&job);
    return all;
}

static void test_missing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        double timeout;
        HARNESS_PATIENCE(timeout, 0.3)
        {
            if (missing_are_named(kind, timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* ---- Places that are not the ranks of the job ---- */

#define PLACES 3
static const int rank_at[PLACES] = {4, 5, 9};

/* All learn the ranks; then the rank at place 1 leaves, and the others exchange. */
static int body_places(int place, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_bootstrap_run run = run_of(job, place);
    int fds[SYMM_BOOTSTRAP_MAX], ranks[PLACES] = {-1, -1, -1};
    struct symm_oob_message messages[PLACES] = {0};
    struct symm_exchange exchange = {.sequence = 1};
    symm_status status;

    ranks[place] = rank_at[place];
    run.ranks = ranks;
    PLANE_CHECK(symm__bootstrap_near(&run, fds) == SYMM_OK);
    PLANE_CHECK(memcmp(ranks, rank_at, sizeof(ranks)) == 0);
    if (place != 1) {
        status = symm__near_exchange(place, PLACES, ranks, fds, HARNESS_AMPLE,
                                     &exchange, messages);
        plane_note(result, status);
        symm__oob_messages_finish(messages, PLACES);
    }
    symm__seqpacket_close(fds, PLACES);
    return 0;
}

static int body_places_missing(int place, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_bootstrap_run run = run_of(job, place);
    int ranks[PLACES];

    for (int i = 0; i < PLACES; i++)
        ranks[i] = job->kind || i == place ? rank_at[i] : -1;
    run.ranks = ranks;
    return bootstrap_and_check(&run, result);
}

static void test_places(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, PLACES);
    for (int place = 0; place < PLACES; place++)
        plane_start(&job.plane, body_places, place, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    assert_result(&job, 0, SYMM_ERR_PEER_DEAD, "rank 5 ");
    assert_result(&job, 2, SYMM_ERR_PEER_DEAD, "rank 5 ");
    job_close(&job);
}

/* One that does not come is named by its rank if that is known, else by its place. */
static void test_places_missing(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        const char *wanted =
            known ? "rank 9 has not joined" : "local rank 2 has not joined";
        bool said = false;
        double seconds;

        HARNESS_PATIENCE(seconds, 0.3) /* in which the two that come have met */
        {
            struct job job;

            job_open(&job, PLACES);
            job.kind = known;
            job.timeout = seconds;
            plane_start(&job.plane, body_places_missing, 0, &job);
            plane_start(&job.plane, body_places_missing, 1, &job);
            assert_int_equal(plane_wait(&job.plane), 0);
            said = strstr(job.plane.results[0].error, wanted) &&
                   strstr(job.plane.results[1].error, wanted);
            for (int i = 0; i < 2; i++)
                assert_int_equal(job.plane.results[i].status, SYMM_ERR_TIMEOUT);
            job_close(&job);
            if (said)
                break;
        }
        assert_true(said);
    }
}

static void test_no_hub(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 3);
    job.timeout = 0.2;
    plane_start(&job.plane, body_bootstrap_once, 1, &job);
    plane_start(&job.plane, body_bootstrap_once, 2, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    for (int i = 0; i < 2; i++) {
        assert_result(&job, i, SYMM_ERR_TIMEOUT,
                      "rank 0 has not opened the job's bootstrap");
        assert_result(&job, i, SYMM_ERR_TIMEOUT, job.dir);
        assert_result(&job, i, SYMM_ERR_TIMEOUT, "SYMM_JOB_ID");
        assert_true(job.plane.results[i].seconds < HARNESS_SOON);
    }
    job_close(&job);
}

/* ---- Who is refused -------------------------------------------------------------- */

static int connect_to_hub(const struct job *job)
{
    struct symm_socket_path place;
    int fd = -1;
    if (symm__socket_path_find(&place, job->key) != SYMM_OK)
        return -1;
    for (double until = symm__now() + HARNESS_AMPLE; fd < 0 && symm__now() < until;) {
        if (symm__socket_path_connect(&place, &fd) != SYMM_OK)
            return -1;
        if (fd < 0)
            symm__sleep(0.0005);
    }
    return fd;
}

enum { GREET_RANK, GREET_RANK_0, GREET_NEGATIVE, GREET_VERSION, GREET_KINDS };

/* Says it and hears the answer. False: rank 0 has hung up, as it does on who says nothing for
 * a second. */
static bool greet(struct job *job, const struct symm_bootstrap_message *say,
                  struct symm_bootstrap_message *answer)
{
    int count, fd = connect_to_hub(job);
    bool done = fd >= 0 &&
                symm__bootstrap_send(fd, say, NULL, 0, 0) == SYMM_SEQPACKET_OK &&
                symm__bootstrap_recv(fd, answer, NULL, 0, &count,
                                     symm__now() + HARNESS_AMPLE) == SYMM_SEQPACKET_OK;
    if (fd >= 0)
        close(fd);
    return done;
}

/* Greetings that symm__bootstrap_local would not send. */
static int body_greet(int kind, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_bootstrap_run run = run_of(job, 1);
    static const int ranks[] = {3, 0, -5, 1};
    struct symm_bootstrap_message answer,
        message = symm__bootstrap_message(SYMM_BOOTSTRAP_HELLO, &run, ranks[kind], 99);
    message.has_secret = 1;
    memcpy(message.secret, good_secret, sizeof(good_secret));
    if (kind == GREET_VERSION)
        message.library++;
    for (int try = 0; !greet(job, &message, &answer); try++)
        PLANE_CHECK(try < 10);
    PLANE_CHECK(answer.kind == SYMM_BOOTSTRAP_REFUSED && answer.nonce == 99);
    snprintf(result->error, sizeof(result->error), "%s", answer.text);
    result->status = SYMM_ERR_REFUSED;
    atomic_fetch_add(job->step, 1);
    return 0;
}

enum { WRONG_SECRET, NO_SECRET, WRONG_SIZE, DUPLICATE, WRONG_KINDS };

static int body_wrong(int kind, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_bootstrap_run run = run_of(job, 1);
    if (kind == WRONG_SECRET)
        run.secret = wrong_secret;
    else if (kind == NO_SECRET)
        run.secret = NULL;
    else if (kind == WRONG_SIZE)
        run.size = 5;
    int code = bootstrap_and_check(&run, result);
    if (result->status != SYMM_OK)
        atomic_fetch_add(job->step, 1);
    return code;
}

/* The last one waits until all are refused that must be: of two ranks 1 one, whichever. */
static int body_patient(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    if (rank == 2)
        step_wait(job, WRONG_KINDS + GREET_KINDS);
    int code = body_bootstrap_once(rank, result, arg);
    if (rank == 1 && result->status != SYMM_OK)
        atomic_fetch_add(job->step, 1);
    return code;
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {
        "does not know the job's secret", "does not know the job's secret",
        "says that the job has 5 ranks, rank 0 says 3", "rank 1 has joined already"};
    static const char *const greet[] = {
        "calls itself rank 3 of 3", "calls itself rank 0 of 3",
        "calls itself rank -5 of 3", "rank 1 runs libsymm"};
    struct job job;
    (void)state;
    job_open(&job, 3);
    for (int r = 0; r < 3; r++)
        plane_start(&job.plane, body_patient, r, &job);
    for (int kind = 0; kind < WRONG_KINDS; kind++)
        plane_start(&job.plane, body_wrong, kind, &job);
    for (int kind = 0; kind < GREET_KINDS; kind++)
        plane_start(&job.plane, body_greet, kind, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    int twin = 3 + DUPLICATE;
    if (job.plane.results[1].status != SYMM_OK) {
        struct plane_result first = job.plane.results[1];
        job.plane.results[1] = job.plane.results[twin];
        job.plane.results[twin] = first;
    }
    assert_met(&job, 3);
    for (int kind = 0; kind < WRONG_KINDS; kind++)
        assert_result(&job, 3 + kind, SYMM_ERR_REFUSED, wrong[kind]);
    for (int kind = 0; kind < GREET_KINDS; kind++)
        assert_result(&job, 3 + WRONG_KINDS + kind, SYMM_ERR_REFUSED, greet[kind]);
    job_close(&job);
}

/* Rank 0's error tells why it has refused the rank that is missing. */
static bool refusal_is_told(double timeout)
{
    struct job job;
    bool told;
    job_open(&job, 2);
    job.timeout = timeout;
    plane_start(&job.plane, body_bootstrap_once, 0, &job);
    plane_start(&job.plane, body_wrong, WRONG_SIZE, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    assert_result(&job, 0, SYMM_ERR_TIMEOUT, "rank 1 has not joined");
    told = strstr(job.plane.results[0].error,
                  "rank 1 says that the job has 5 ranks, rank 0 says 2") != NULL;
    job_close(&job);
    return told;
}

static void test_refusal_told(void **state)
{
    double timeout;
    (void)state;
    HARNESS_PATIENCE(timeout, 0.3)
    {
        if (refusal_is_told(timeout))
            break;
    }
    assert_true(timeout <= HARNESS_SOON);
}

/* Silent, talkative, short-lived and crowding connections beside a real group. */
static int body_stranger(int kind, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int fds[200];
    char noise[3000];
    memset(noise, 'x', sizeof(noise));
    for (int i = 0; i < 200; i++) {
        fds[i] = connect_to_hub(job);
        PLANE_CHECK(fds[i] >= 0);
        struct iovec part = symm__seqpacket_part(noise, (size_t)(i * 31 % 3000) + 1);
        int files[2] = {fds[0], fds[i]};
        if (kind == 1)
            (void)symm__seqpacket_send(fds[i], &part, 1, files, i % 3, 0);
        if (kind == 2)
            symm__seqpacket_close(&fds[i], 1);
    }
    atomic_fetch_add(job->step, 1);
    step_wait(job, 4); /* the group has met: those that live are silent until then */
    symm__seqpacket_close(fds, 200);
    result->extra = kind;
    return 0;
}

static int body_beside(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    if (rank == 2)
        step_wait(job, 3);
    int code = body_bootstrap_once(rank, result, arg);
    if (rank == 2)
        atomic_fetch_add(job->step, 1);
    return code;
}

/* Seconds that the last rank needs to meet: silent strangers do not hold it up. */
static double meet_beside_strangers(void)
{
    struct job job;
    job_open(&job, 3);
    for (int r = 0; r < 3; r++)
        plane_start(&job.plane, body_beside, r, &job);
    for (int kind = 0; kind < 3; kind++)
        plane_start(&job.plane, body_stranger, kind, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    assert_met(&job, 3);
    double seconds = job.plane.results[2].seconds;
    job_close(&job);
    return seconds;
}

static void test_strangers(void **state)
{
    int tries = 1;
    (void)state;
    while (meet_beside_strangers() > 2)
        assert_true(tries++ < 5);
}

static bool has_ended(const struct plane *plane, int index)
{
    return *(const volatile bool *)&plane->results[index].ended;
}

/* Two groups with one key: the second waits for the first one's end, or says so. */
static void test_same_key(void **state)
{
    struct job job;
    (void)state;
    job_open(&job, 2);
    plane_start(&job.plane, body_bootstrap_once, 0, &job);
    wait_for_socket(&job);
    job.timeout = 0.2;
    plane_start(&job.plane, body_bootstrap_once, 0, &job); /* has too little patience */
    for (double until = symm__now() + HARNESS_AMPLE; !has_ended(&job.plane, 1);) {
        assert_true(symm__now() < until);
        symm__sleep(0.001);
    }
    job.timeout = HARNESS_AMPLE;
    plane_start(&job.plane, body_bootstrap_once, 0, &job);
    plane_start(&job.plane, body_bootstrap_once, 1, &job);
    plane_start(&job.plane, body_bootstrap_once, 1, &job);
    assert_int_equal(plane_wait(&job.plane), 0);
    assert_result(&job, 1, SYMM_ERR_TIMEOUT, "another bootstrap of the same job key");
    for (int i = 0; i < 5; i++) {
        /* Of two at one time one may be refused as the second of its rank. */
        if (i != 1 && job.plane.results[i].status != SYMM_OK)
            assert_result(&job, i, SYMM_ERR_REFUSED, "has joined already");
    }
    job_close(&job);
}

/* ---- The directory --------------------------------------------------------------- */

static void directory_refused(struct job *job, const char *part)
{
    for (int rank = 0; rank < 2; rank++) {
        struct symm_bootstrap_run run = run_of(job, rank);
        int fds[2];
        int before = plane_fds();
        assert_int_equal(symm__bootstrap_near(&run, fds), SYMM_ERR_REFUSED);
        if (strstr(symm_last_error(), part) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", part, symm_last_error());
        assert_int_equal(plane_fds(), before);
    }
}

static void test_directory(void **state)
{
    struct job job;
    char dir[100];
    (void)state;
    job_open(&job, 2);
    bootstrap_dir(&job, dir, sizeof(dir));
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chmod(dir, 0750), 0);
    directory_refused(&job, "has not mode 0700");
    assert_int_equal(chmod(dir, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 65534, 65534), 0);
        directory_refused(&job, "belongs to another user");
    }
    assert_int_equal(rmdir(dir), 0);

    assert_int_equal(symlink("/tmp", dir), 0);
    directory_refused(&job, "is no directory");
    assert_int_equal(unlink(dir), 0);
    int fd = open(dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    close(fd);
    directory_refused(&job, "is no directory");
    assert_int_equal(unlink(dir), 0);
    job_close(&job);
}

/* As a user whose rights are checked. */
static int body_umask(int rank, struct plane_result *result, void *arg)
{
    const struct job *job = arg;
    const uid_t own = geteuid();
    int code;
    PLANE_CHECK(own != 0 || seteuid(65534) == 0);
    (void)umask((mode_t)job->kind);
    code = body_bootstrap_once(rank, result, arg);
    PLANE_CHECK(own != 0 || seteuid(own) == 0);
    PLANE_CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* else LeakSanitizer cannot look */
    return code;
}

/* The directory and the socket can be used under any umask, even one that keeps the owner out. */
static void test_umask(void **state)
{
    static const int masks[] = {0, 0177, 0277, 0377, 0477, 0777};
    (void)state;
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct job job;
        job_open(&job, 3);
        job.kind = masks[i];
        assert_true(geteuid() != 0 || chown(job.dir, 65534, 65534) == 0);
        assert_int_equal(plane_run(&job.plane, 3, body_umask, &job), 0);
        assert_met(&job, 3);
        job_close(&job);
    }
}

static void test_runtime_dir(void **state)
{
    struct job job;
    struct symm_socket_path place;
    char long_name[200];
    (void)state;
    job_open(&job, 2);
    struct symm_bootstrap_run run = run_of(&job, 0);
    int fds[2];
    memset(long_name, 'x', sizeof(long_name));
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = '\0';
    setenv("SYMM_RUNTIME_DIR", long_name, 1);
    assert_int_equal(symm__bootstrap_near(&run, fds), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "too many for the address of a socket"));
    setenv("SYMM_RUNTIME_DIR", "here", 1);
    assert_int_equal(symm__bootstrap_near(&run, fds), SYMM_ERR_INVALID);
    setenv("SYMM_RUNTIME_DIR", "/nonexistent/folder", 1);
    assert_int_equal(symm__bootstrap_near(&run, fds), SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "/nonexistent/folder/symm-"));

    unsetenv("SYMM_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", job.dir, 1);
    assert_int_equal(symm__socket_path_find(&place, "k"), SYMM_OK);
    assert_int_equal(strncmp(place.path, job.dir, strlen(job.dir)), 0);
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    assert_int_equal(symm__socket_path_find(&place, "k"), SYMM_OK);
    assert_int_equal(strncmp(place.path, "/tmp/symm-", 10), 0);
    setenv("XDG_RUNTIME_DIR", long_name, 1);
    assert_int_equal(symm__socket_path_find(&place, "k"), SYMM_OK);
    assert_int_equal(strncmp(place.path, "/tmp/symm-", 10), 0);
    unsetenv("XDG_RUNTIME_DIR");
    job_close(&job);
}

static void test_arguments(void **state)
{
    static const int bad[][2] = {{0, 0}, {0, -1}, {0, 65}, {-1, 2}, {2, 2}};
    int fds[2];
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct symm_bootstrap_run run = {
            .rank = bad[i][0], .size = bad[i][1], .key = "k", .timeout = 1};
        assert_int_equal(symm__bootstrap_near(&run, fds),
                         run.size == 65 ? SYMM_ERR_UNSUPPORTED : SYMM_ERR_INVALID);
    }
}

/* ---- By the caller's allgather --------------------------------------------------- */

struct gather {
    struct job *job;
    pthread_barrier_t barrier;
    unsigned char data[8][128];
    int kind;
};

struct gather_rank {
    struct gather *gather;
    int rank;
};

enum { GATHER_GOOD, GATHER_ORDER, GATHER_FAILS, GATHER_ZERO, GATHER_SIZE };

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct gather_rank *me = arg;
    struct gather *gather = me->gather;
    if (bytes > sizeof(gather->data[0]))
        return 5;
    memcpy(gather->data[me->rank], in, bytes);
    pthread_barrier_wait(&gather->barrier);
    for (int r = 0; r < gather->job->size; r++) {
        int from = gather->kind == GATHER_ORDER && r > 0 ? 3 - r : r;
        memcpy((char *)out + (size_t)r * bytes, gather->data[from], bytes);
    }
    if (gather->kind == GATHER_ZERO)
        memset((char *)out + bytes, 0, bytes);
    if (gather->kind == GATHER_SIZE) {
        const int32_t size = 5; /* at its place in the entry of rank 1 */
        memcpy((char *)out + bytes + 12, &size, sizeof(size));
    }
    pthread_barrier_wait(&gather->barrier);
    return gather->kind == GATHER_FAILS ? 7 : 0;
}

static int body_bootstrap(int rank, struct plane_result *result, void *arg)
{
    struct gather *gather = arg;
    struct gather_rank me = {.gather = gather, .rank = rank};
    symm_bootstrap bootstrap = {
        .size = sizeof(bootstrap), .allgather = allgather, .arg = &me};
    struct symm_bootstrap_run run = run_of(gather->job, rank);
    struct symm_world world = {.listener = -1};
    int fds[SYMM_BOOTSTRAP_MAX];
    int code = 0;
    run.world = &world;
    symm_status status = symm__bootstrap_given(&run, &bootstrap, fds);
    plane_note(result, status);
    if (status == SYMM_OK) {
        code = peers_check(fds, rank, run.size);
        symm__seqpacket_close(fds, run.size);
    }
    symm__world_finish(&world);
    return code;
}

static void test_bootstrap(void **state)
{
    static const char *const said[] = {"", "returned at place 1 what rank 2 has given",
                                       "it returned 7",
                                       "returned at place 1 not what rank 1 has given",
                                       "rank 1 says that the job has 5 ranks"};
    (void)state;
    for (int kind = GATHER_GOOD; kind <= GATHER_SIZE; kind++) {
        struct job job;
        static struct gather gather;
        job_open(&job, 3);
        gather = (struct gather){.job = &job, .kind = kind};
        assert_int_equal(pthread_barrier_init(&gather.barrier, NULL, 3), 0);
        assert_int_equal(plane_threads(&job.plane, 3, body_bootstrap, &gather), 0);
        for (int r = 0; r < 3; r++)
            assert_result(&job, r, kind == GATHER_GOOD ? SYMM_OK : SYMM_ERR_JOB,
                          said[kind]);
        pthread_barrier_destroy(&gather.barrier);
        job_close(&job);
    }
}

int main(void)
{
    symm_log_sink(plane_quiet, NULL);
    unsetenv("XDG_RUNTIME_DIR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),          cmocka_unit_test(test_often),
        cmocka_unit_test(test_crowd),          cmocka_unit_test(test_missing),
        cmocka_unit_test(test_no_hub),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_strangers),      cmocka_unit_test(test_same_key),
        cmocka_unit_test(test_directory),      cmocka_unit_test(test_runtime_dir),
        cmocka_unit_test(test_arguments),      cmocka_unit_test(test_bootstrap),
        cmocka_unit_test(test_refusal_told),   cmocka_unit_test(test_places),
        cmocka_unit_test(test_places_missing), cmocka_unit_test(test_umask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
