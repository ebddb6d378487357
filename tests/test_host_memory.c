/* SPDX-License-Identifier: MIT */
/*
 * test_host_memory.c - descriptors of memory that ranks send each other: which are accepted,
 * which refused.
 *
 * The host backend maps sealed memfds of exactly the announced size and refuses every
 * other descriptor with SYMM_ERR_REFUSED; mapped memory cannot shrink, and never raises
 * SIGBUS. If a rank sends another descriptor, segments outside its team's range or a
 * malformed list, all ranks get an error that names it. Nothing is leaked, and the team
 * works once the rank sends correct data.
 */
#include "harness.h"
#include "setup/handshake.h"
#include "setup/places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/bootstrap.h"
#include "core/team.h"
#include "host/host.h"
#include "symm/device.h"

#define GRANULE ((size_t)2 << 20)
#define SEALS   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const struct symm_backend_ops *const ops = &symm__backend_host;

static int count_fds(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    if (list == NULL)
        return -1;
    while (readdir(list) != NULL)
        count++;
    (void)closedir(list);
    return count;
}

/* May this address be read? Asks the kernel, which does not raise a signal. */
static bool readable(const void *at)
{
    int pipe_fd[2];
    if (pipe(pipe_fd) != 0)
        return false;
    bool fine = write(pipe_fd[1], at, 1) == 1;
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
    return fine;
}

/* ---- Descriptors of all kinds ---------------------------------------------------- */

static int make_memfd(size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0))
        return -1;
    return fd;
}

/* The same file with other rights. */
static int reopened(int fd, int flags)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int other = open(path, flags | O_CLOEXEC);
    (void)close(fd);
    return other;
}

static int make_file(const char *pattern, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s", pattern);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -1;
    (void)unlink(path);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int make_pipe(int end)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    (void)close(fds[1 - end]);
    return fds[end];
}

enum kind {
    PIPE_OUT,
    PIPE_IN,
    SOCKET,
    DEV_ZERO,
    DEV_NULL,
    FOLDER,
    EVENTFD,
    EPOLL,
    PIDFD,
    PATH_ONLY,
    FILE_DISK,
    FILE_SHM,
    UNSEALED,
    MAY_GROW,
    MAY_SHRINK,
    SMALL_MEMFD,
    LARGE_MEMFD,
    EMPTY_MEMFD,
    READ_ONLY,
    WRITE_SEALED,
    KINDS
};

static const char *const kind_names[KINDS] = {
    "a pipe's end to read",
    "a pipe's end to write",
    "a socket",
    "/dev/zero",
    "/dev/null",
    "a folder",
    "an eventfd",
    "an epoll",
    "a pidfd",
    "an O_PATH memfd",
    "a file in /tmp",
    "a file in /dev/shm",
    "an unsealed memfd",
    "a memfd that may grow",
    "a memfd that may shrink",
    "a memfd too small",
    "a memfd too large",
    "an empty memfd",
    "a read-only memfd",
    "a memfd sealed against writing",
};

/* -1: not on this machine. */
static int make_bad(enum kind kind, size_t bytes)
{
    switch (kind) {
    case PIPE_OUT:
        return make_pipe(0);
    case PIPE_IN:
        return make_pipe(1);
    case SOCKET:
        return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    case DEV_ZERO:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    case DEV_NULL:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case FOLDER:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case EVENTFD:
        return eventfd(0, EFD_CLOEXEC);
    case EPOLL:
        return epoll_create1(EPOLL_CLOEXEC);
    case PIDFD:
        return (int)syscall(SYS_pidfd_open, getpid(), 0);
    case PATH_ONLY:
        return reopened(make_memfd(bytes, SEALS), O_PATH);
    case FILE_DISK:
        return make_file("/tmp/symm-test-XXXXXX", bytes);
    case FILE_SHM:
        return make_file("/dev/shm/symm-test-XXXXXX", bytes);
    case UNSEALED:
        return make_memfd(bytes, 0);
    case MAY_GROW:
        return make_memfd(bytes, F_SEAL_SHRINK);
    case MAY_SHRINK:
        return make_memfd(bytes, F_SEAL_GROW);
    case SMALL_MEMFD:
        return make_memfd(bytes - 4096, SEALS);
    case LARGE_MEMFD:
        return make_memfd(bytes + 4096, SEALS);
    case EMPTY_MEMFD:
        return make_memfd(0, SEALS);
    case READ_ONLY:
        return reopened(make_memfd(bytes, SEALS), O_RDONLY);
    case WRITE_SEALED:
        return make_memfd(bytes, SEALS | F_SEAL_WRITE);
    default:
        return -1;
    }
}

static void import_refuses(void **state)
{
    void *base;
    (void)state;
    assert_int_equal(ops->reserve(NULL, 4 * GRANULE, &base), SYMM_OK);
    int before = count_fds();
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = make_bad((enum kind)kind, GRANULE);
        if (fd < 0) {
            printf("%s: not on this machine\n", kind_names[kind]);
            continue;
        }
        symm_status status = ops->import(NULL, fd, (char *)base + GRANULE, GRANULE);
        if (status != SYMM_ERR_REFUSED || symm_last_error()[0] == '\0')
            fail_msg("%s: %s: %s", kind_names[kind], symm_status_name(status),
                     symm_last_error());
        if (readable((char *)base + GRANULE))
            fail_msg("%s is mapped", kind_names[kind]);
        /* It is the caller's still. */
        assert_int_equal(close(fd), 0);
        assert_int_equal(count_fds(), before);
    }
    assert_int_equal(ops->import(NULL, -1, base, GRANULE), SYMM_ERR_REFUSED);
    assert_int_equal(ops->import(NULL, 1 << 20, base, GRANULE), SYMM_ERR_REFUSED);
    ops->release(NULL, base, 4 * GRANULE);
}

/* ---- Good ones, for good --------------------------------------------------------- */

static void check_cannot_change(int fd, size_t bytes)
{
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, (off_t)bytes - 4096), -1);
    assert_int_equal(ftruncate(fd, (off_t)bytes + 4096), -1);
    assert_int_equal(fallocate(fd, 0, (off_t)bytes, 4096), -1);
    /* Nor may a peer seal it against us. */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    int other = reopened(dup(fd), O_RDWR);
    assert_true(other >= 0);
    assert_int_equal(ftruncate(other, 0), -1);
    assert_int_equal(close(other), 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static void committed_memory_stays(void **state)
{
    struct stat is;
    void *base;
    int fd, before;
    (void)state;
    assert_int_equal(ops->reserve(NULL, 8 * GRANULE, &base), SYMM_OK);
    before = count_fds();
    char *own = (char *)base + GRANULE, *peer = (char *)base + 5 * GRANULE;
    assert_false(readable(own));
    assert_int_equal(ops->commit(NULL, own, 2 * GRANULE, 0, &fd), SYMM_OK);
    assert_int_equal(fstat(fd, &is), 0);
    assert_int_equal(is.st_size, 2 * GRANULE);
    assert_true((size_t)is.st_blocks * 512 >= 2 * GRANULE); /* there, not promised */
    assert_false(readable(own - 1));
    assert_false(readable(own + 2 * GRANULE));
    assert_int_equal(own[0] | own[2 * GRANULE - 1], 0);
    check_cannot_change(fd, 2 * GRANULE);

    assert_int_equal(ops->import(NULL, fd, peer, 2 * GRANULE), SYMM_OK);
    assert_int_equal(close(fd), 0);
    assert_int_equal(count_fds(), before);
    own[GRANULE] = 42;
    assert_int_equal(peer[GRANULE], 42);
    peer[2 * GRANULE - 1] = 7;
    assert_int_equal(own[2 * GRANULE - 1], 7);

    ops->unmap(NULL, own, 2 * GRANULE);
    assert_false(readable(own));
    assert_int_equal(peer[GRANULE], 42);
    /* The range is reserved still: nothing else comes to lie there. */
    assert_ptr_not_equal(mmap(own, 2 * GRANULE, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                         own);
    ops->release(NULL, base, 8 * GRANULE);
}

static void unused_bytes_take_no_memory(void **state)
{
    struct stat is;
    char *base;
    int fd;
    (void)state;
    assert_int_equal(ops->reserve(NULL, GRANULE, (void **)&base), SYMM_OK);
    assert_int_equal(ops->commit(NULL, base, GRANULE, GRANULE / 2, &fd), SYMM_OK);
    assert_int_equal(fstat(fd, &is), 0);
    assert_int_equal(is.st_size, GRANULE);
    assert_int_equal((size_t)is.st_blocks * 512, GRANULE / 2);
    base[0] = base[GRANULE / 2] = 1; /* but it may be used */
    assert_int_equal(fstat(fd, &is), 0);
    assert_true((size_t)is.st_blocks * 512 > GRANULE / 2);
    check_cannot_change(fd, GRANULE);
    assert_int_equal(close(fd), 0);
    ops->release(NULL, base, GRANULE);
}

/* A peer that takes pages away gets everybody zeros, not a signal. */
static void holes_are_zeros(void **state)
{
    void *base;
    int fd;
    (void)state;
    assert_int_equal(ops->reserve(NULL, 2 * GRANULE, &base), SYMM_OK);
    volatile char *at = base;
    assert_int_equal(ops->commit(NULL, base, GRANULE, 0, &fd), SYMM_OK);
    memset(base, 1, GRANULE);
    assert_int_equal(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)GRANULE),
        0);
    for (size_t i = 0; i < GRANULE; i += 4096)
        assert_int_equal(at[i], 0);
    at[GRANULE - 1] = 3;
    assert_int_equal(at[GRANULE - 1], 3);
    assert_int_equal(close(fd), 0);
    ops->release(NULL, base, 2 * GRANULE);
}

/* ---- A rank that gives something else -------------------------------------------- */

struct rank {
    symm_team *team;
    symm_buffer *buffer;
    int me, n;
};

/* The worst rank is the last one. */
static bool is_bad(const struct rank *r)
{
    return r->me == r->n - 1;
}

/* A buffer of a segment of its own, which no rendezvous has covered. */
static int place(struct rank *r, symm_ctx *ctx, uint64_t id)
{
    const int64_t count = (int64_t)GRANULE, stride = 1;
    r->team = symm_team_world(ctx);
    r->me = symm_team_rank(r->team);
    r->n = symm_team_size(r->team);
    CHECK_OK(symm_empty_strided_p2p(r->team, 1, &count, &stride, SYMM_UINT8, id,
                                    &r->buffer));
    return 0;
}

static struct symm_segment *last_segment(struct rank *r)
{
    return &r->team->segments[r->team->segment_count - 1];
}

/* Everybody is told the same, about the same rank. */
static int check_refused(struct rank *r, int fds, const char *what)
{
    char name[32];
    symm_status status = symm_rendezvous(r->team);
    snprintf(name, sizeof(name), "rank %d", r->n - 1);
    CHECK_MESSAGE(status == SYMM_ERR_REFUSED, "%s: %s: %s", what,
                  symm_status_name(status), symm_last_error());
    CHECK_ERROR(name);
    CHECK_MESSAGE(count_fds() == fds, "%s: %d descriptors, not %d", what, count_fds(),
                  fds);
    for (int p = 0; p < r->n; p++)
        CHECK(p == r->me || symm_buffer_peer_ptr(r->buffer, p) == NULL);
    return 0;
}

/* Every rank writes its own into every peer's copy. */
static int check_works(struct rank *r)
{
    CHECK_OK(symm_rendezvous(r->team));
    for (int p = 0; p < r->n; p++) {
        char *theirs = symm_buffer_peer_ptr(r->buffer, p);
        CHECK(theirs != NULL);
        theirs[GRANULE - 1 - (size_t)r->me] = (char)(r->me + 1);
    }
    CHECK_OK(symm_barrier(r->team, NULL, NULL));
    const char *own = symm_buffer_ptr(r->buffer);
    for (int p = 0; p < r->n; p++)
        CHECK(own[GRANULE - 1 - (size_t)p] == (char)(p + 1));
    CHECK_OK(symm_barrier(r->team, NULL, NULL));
    return 0;
}

static int body_descriptors(symm_ctx *ctx, void *arg)
{
    struct rank r;
    (void)arg;
    CHECK_ZERO(place(&r, ctx, 1));
    int good = dup(last_segment(&r)->handle), fds = count_fds();
    CHECK(good >= 0);
    for (int kind = 0; kind < KINDS; kind++) {
        int bad = make_bad((enum kind)kind, last_segment(&r)->bytes);
        if (bad < 0)
            continue; /* on no rank */
        if (is_bad(&r))
            CHECK(dup2(bad, last_segment(&r)->handle) >= 0);
        CHECK(close(bad) == 0);
        CHECK_ZERO(check_refused(&r, fds, kind_names[kind]));
    }
    CHECK(dup2(good, last_segment(&r)->handle) >= 0);
    CHECK(close(good) == 0);
    CHECK_ZERO(check_works(&r));
    symm_buffer_release(r.buffer);
    return 0;
}

static void bad_descriptors_at_rendezvous(void **state)
{
    struct harness h = {.ranks = 3, .body = body_descriptors};
    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

static int body_ranges(symm_ctx *ctx, void *arg)
{
    static const struct {
        const char *what;
        size_t offset, bytes; /* added to those of the true segment */
    } lies[] = {
        {"behind its place", GRANULE, 0},
        {"far outside of the heap", (size_t)1 << 45, 0},
        {"at the end of the address space", SIZE_MAX - ((size_t)1 << 40), 0},
        {"within a granule", 4096, 0},
        {"of no bytes", 0, (size_t)0 - GRANULE},
        {"of half a granule", 0, (size_t)0 - GRANULE / 2},
        {"longer than the team's range", 0, (size_t)1 << 40},
        {"longer than anything", 0, SIZE_MAX - 2 * GRANULE + 1},
        {"longer than its memory", 0, GRANULE},
    };
    struct rank r;
    (void)arg;
    CHECK_ZERO(place(&r, ctx, 1));
    struct symm_segment *segment = last_segment(&r), truth = *segment;
    int fds = count_fds();
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        if (is_bad(&r)) {
            segment->offset = truth.offset + lies[i].offset;
            segment->bytes = truth.bytes + lies[i].bytes;
        }
        CHECK_ZERO(check_refused(&r, fds, lies[i].what));
        *segment = truth;
    }
    CHECK_ZERO(check_works(&r));
    symm_buffer_release(r.buffer);
    return 0;
}

static void segments_outside_the_range(void **state)
{
    struct harness h = {.ranks = 3, .body = body_ranges};
    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

/* What segments.c sends: a digest, how many segments, bytes of registrations, where the segments
 * end, the segments. */
struct list {
    uint64_t digest, segments, registered, end;
    struct {
        uint64_t offset, bytes;
    } segment[2];
};

static int body_lists(symm_ctx *ctx, void *arg)
{
    static const struct {
        uint64_t segments;
        size_t bytes;
        int fds;
        uint64_t registered;
    } lies[] = {
        {1, sizeof(struct list), 1, 0},
        {2, sizeof(struct list), 1, 0},
        {2, sizeof(struct list), 3, 0},
        {0, sizeof(struct list), 0, 0},
        {1, offsetof(struct list, segment), 1, 0},
        {UINT64_MAX, sizeof(struct list), 2, 0},
        {UINT64_C(1) << 60, offsetof(struct list, segment), 0, 0},
        {0, offsetof(struct list, segment) - 1, 0, 0},
        {0, 0, 0, 0},
        {1, sizeof(struct list), 0, 16},
        {0, sizeof(struct list), 0, UINT64_MAX},
    };
    struct rank r;
    struct list list;
    (void)arg;
    CHECK_ZERO(place(&r, ctx, 1));
    int fds = count_fds(), three[3];
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        if (!is_bad(&r)) {
            CHECK_ZERO(check_refused(&r, fds, "a malformed list"));
            CHECK_ERROR("malformed");
            continue;
        }
        struct symm_oob_message messages[3];
        memset(&list, 0, sizeof(list));
        list.segments = lies[i].segments;
        list.registered = lies[i].registered;
        for (int k = 0; k < 3; k++)
            three[k] = last_segment(&r)->handle;
        const struct symm_own_message own = {.bytes = &list,
                                             .bytes_count = lies[i].bytes,
                                             .fds = three,
                                             .fds_count = lies[i].fds};
        CHECK_OK(
            symm__team_exchange(r.team, "rendezvous", HARNESS_AMPLE, &own, messages));
        symm__oob_messages_finish(messages, 3);
        CHECK(count_fds() == fds);
    }
    CHECK_ZERO(check_works(&r));
    symm_buffer_release(r.buffer);
    return 0;
}

static void malformed_lists(void **state)
{
    struct harness h = {.ranks = 3, .body = body_lists};
    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

/* ---- The control page ------------------------------------------------------------ */

struct handshake {
    enum kind kind; /* KINDS: memory as it should be, with other contents */
    struct harness_sync sync;
};

/* A rank 1 that is none: it speaks as one up to the first exchange. */
static int greet(const struct handshake *g, const symm_config *config)
{
    struct symm_handshake hello = {.layout = SYMM_DEVICE_LAYOUT,
                                   .stride = config->heap_bytes,
                                   .team_bytes = config->team_bytes,
                                   .granularity = GRANULE,
                                   .version = SYMM_VERSION_STRING,
                                   .backend = "host"};
    struct symm_world world = {.listener = -1};
    struct symm_oob_message messages[2];
    struct symm_oob link;
    const int members[2] = {0, 1};
    char key[160];
    int *peer_fd = malloc(2 * sizeof(*peer_fd));
    CHECK(peer_fd != NULL);
    snprintf(key, sizeof(key), "config:%s", config->job_id);
    struct symm_bootstrap_run run = {
        .rank = 1, .size = 2, .key = key, .timeout = HARNESS_AMPLE, .world = &world};
    CHECK_OK(symm__bootstrap_local(&run, peer_fd));
    symm__world_finish(&world);
    symm__oob_init(&link, 1, 2, peer_fd);
    int fds[2] = {g->kind == KINDS ? make_memfd(SYMM_CONTROL_HOST_BYTES, SEALS)
                                   : make_bad(g->kind, SYMM_CONTROL_HOST_BYTES),
                  (int)syscall(SYS_pidfd_open, getpid(), 0)};
    CHECK(fds[1] >= 0);
    struct symm_exchange exchange = {.what = "the start of the job",
                                     .tag = SYMM_CONTROL_MAGIC,
                                     .members = members,
                                     .count = 2,
                                     .timeout = HARNESS_AMPLE,
                                     .bytes = &hello,
                                     .bytes_count = sizeof(hello),
                                     .fds = fds,
                                     .fds_count = 2};
    CHECK_OK(symm__exchange(&link, &exchange, messages));
    symm__oob_messages_finish(messages, 2);
    symm__oob_finish(&link);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}

static int body_handshake(symm_ctx *none, void *arg)
{
    struct handshake *g = arg;
    symm_config config = harness_config();
    symm_ctx *ctx = none;
    int fds = count_fds();
    if (harness_rank() == 1)
        return greet(g, &config);
    CHECK_STATUS(symm_init(&config, &ctx),
                 g->kind == KINDS ? SYMM_ERR_DAMAGED : SYMM_ERR_REFUSED);
    CHECK(ctx == NULL);
    CHECK_ERROR("control page of rank 1");
    CHECK(count_fds() == fds);
    return 0;
}

static void bad_control_pages(void **state)
{
    struct handshake *g = harness_shared(sizeof(*g));
    struct harness h = {
        .ranks = 2, .body = body_handshake, .arg = g, .without_ctx = true};
    int failed = 0;
    (void)state;
    for (int kind = 0; kind <= KINDS && failed == 0; kind++) {
        int sample =
            kind == KINDS ? 0 : make_bad((enum kind)kind, SYMM_CONTROL_HOST_BYTES);
        if (sample < 0)
            continue;
        if (sample > 0)
            (void)close(sample);
        g->kind = (enum kind)kind;
        failed = harness_run(&h);
        if (failed != 0)
            printf("%s\n", kind < KINDS ? kind_names[kind] : "an empty page");
    }
    harness_shared_free(g, sizeof(*g));
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(import_refuses),
        cmocka_unit_test(committed_memory_stays),
        cmocka_unit_test(unused_bytes_take_no_memory),
        cmocka_unit_test(holes_are_zeros),
        cmocka_unit_test(bad_descriptors_at_rendezvous),
        cmocka_unit_test(segments_outside_the_range),
        cmocka_unit_test(malformed_lists),
        cmocka_unit_test(bad_control_pages),
    };
    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
