/* SPDX-License-Identifier: MIT */
/*
 * test_host_memory_room.c - a machine that has no memory left: an allocation that would take
 * more than it has is SYMM_ERR_NOMEM and allocates nothing, before the kernel ends processes to
 * find it; so is one whose memory is taken by others meanwhile. Nothing is kept of either, and
 * the team works on. Where the kernel does not tell what it has, memory is allocated. A limit of
 * a file's size is an error, too, and no signal.
 */
/* ctest: cost 1 */
/* ctest: replaces sysinfo */
/* ctest: replaces symm__read_text */
/* ctest: replaces posix_fallocate */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "symm/symm.h"

#define MIB ((size_t)1 << 20)

static size_t available;  /* what /proc/meminfo tells; 0: it cannot be read */
static size_t lost_after; /* so many bytes are allocated: then others take the rest */
static size_t allocated, most; /* since `begin`; more than `most` is refused */

int __wrap_sysinfo(struct sysinfo *info);
int __wrap_sysinfo(struct sysinfo *info)
{
    memset(info, 0, sizeof(*info)); /* no page is free: the cache has them */
    info->mem_unit = 1;
    return 0;
}

ssize_t __real_symm__read_text(char *text, size_t bytes, const char *format, ...);
ssize_t __wrap_symm__read_text(char *text, size_t bytes, const char *format, ...);
ssize_t __wrap_symm__read_text(char *text, size_t bytes, const char *format, ...)
{
    char path[512];
    va_list args;

    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    if (strcmp(path, "/proc/meminfo") != 0)
        return __real_symm__read_text(text, bytes, "%s", path);
    if (available == 0)
        return -1;
    size_t left = allocated < lost_after ? available : MIB;
    return snprintf(text, bytes,
                    "MemTotal:  1 kB\nMemFree: 0 kB\nMemAvailable: %zu kB\n"
                    "SwapFree: 1024 kB\nDirty: 0 kB\n",
                    (left - MIB) >> 10);
}

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
    allocated += (size_t)bytes;
    return allocated > most ? ENOSPC : __real_posix_fallocate(fd, at, bytes);
}

static void begin(size_t machine, size_t lost)
{
    available = machine;
    lost_after = lost;
    allocated = 0;
}

static symm_ctx *ctx;

static size_t committed(void)
{
    symm_info info = {.size = sizeof(info)};

    assert_int_equal(symm_ctx_info(ctx, &info), SYMM_OK);
    return info.committed_bytes;
}

static int start(void **state)
{
    symm_config config = {.size = sizeof(config),
                          .backend = "host",
                          .world_size = 1,
                          .job_id = "memory_room"};

    (void)state;
    most = 1024 * MIB;
    begin(512 * MIB, SIZE_MAX);
    return symm_init(&config, &ctx);
}

static int end(void **state)
{
    (void)state;
    symm_finalize(ctx);
    return 0;
}

static void too_much_is_refused(void **state)
{
    symm_buffer *buffer = NULL;
    size_t before = committed();

    (void)state;
    begin(400 * MIB, SIZE_MAX);
    assert_int_equal(symm_buffer_alloc(symm_team_world(ctx), 500 * MIB, &buffer),
                     SYMM_ERR_NOMEM);
    assert_non_null(
        strstr(symm_last_error(), "the machine has 419430400 bytes available"));
    assert_int_equal(allocated, 0);
    assert_int_equal(committed(), before);
    assert_int_equal(symm_buffer_alloc(symm_team_world(ctx), 20 * MIB, &buffer),
                     SYMM_OK);
    assert_int_equal(symm_rendezvous(symm_team_world(ctx)), SYMM_OK);
    symm_buffer_release(buffer);
}

static void what_others_take_is_seen(void **state)
{
    symm_buffer *buffer = NULL;
    size_t before = committed();

    (void)state;
    begin(600 * MIB, 100 * MIB);
    assert_int_equal(symm_buffer_alloc(symm_team_world(ctx), 400 * MIB, &buffer),
                     SYMM_ERR_NOMEM);
    assert_non_null(
        strstr(symm_last_error(), "the machine has 1048576 bytes available"));
    assert_true(allocated >= 100 * MIB && allocated < 200 * MIB);
    assert_int_equal(committed(), before);
}

static void memory_that_does_not_tell_is_allocated(void **state)
{
    symm_buffer *buffer = NULL;

    (void)state;
    begin(0, SIZE_MAX);
    assert_int_equal(symm_buffer_alloc(symm_team_world(ctx), 70 * MIB, &buffer),
                     SYMM_OK);
    assert_true(allocated >= 50 * MIB);
    symm_buffer_release(buffer);
}

static void memory_of_no_team_is_refused(void **state)
{
    void *ptr = NULL;

    (void)state;
    begin(100 * MIB, SIZE_MAX);
    assert_int_equal(symm_mem_alloc("host", -1, 200 * MIB, &ptr), SYMM_ERR_NOMEM);
    assert_non_null(
        strstr(symm_last_error(), "the machine has 104857600 bytes available"));
    assert_int_equal(allocated, 0);
}

/* With few bytes a file SIGXFSZ, which ends a process by default, is not raised. */
static void small_files_end_no_process(void **state)
{
    const struct rlimit limit = {100 << 10, 100 << 10};
    int status;
    pid_t child = fork();

    if (child == 0) {
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(2);
        _exit(start(state) != SYMM_ERR_NOMEM ||
              strstr(symm_last_error(), "RLIMIT_FSIZE") == NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(too_much_is_refused, start, end),
        cmocka_unit_test_setup_teardown(what_others_take_is_seen, start, end),
        cmocka_unit_test_setup_teardown(memory_that_does_not_tell_is_allocated, start,
                                        end),
        cmocka_unit_test_setup_teardown(memory_of_no_team_is_refused, start, end),
        cmocka_unit_test(small_files_end_no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
