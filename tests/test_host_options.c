/* SPDX-License-Identifier: MIT */
/*
 * test_host_options.c - the SYMM_* variables, the last error, log lines, names of
 * statuses and dtypes; and that symm_env(7) describes every option as the table has it.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "symm/symm.h"
#include "symm/tools.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#ifndef SYMM_SOURCE_DIR
#define SYMM_SOURCE_DIR "."
#endif

static int setup(void **state)
{
    symm_option_info info = {.size = sizeof(info)};

    (void)state;
    for (int i = 0; symm_option_at(i, &info) == SYMM_OK; i++)
        unsetenv(info.name);
    symm_log_sink(NULL, NULL);
    symm__log_rank(-1);
    return 0;
}

/* ---- Options --------------------------------------------------------------------- */

static void test_table(void **state)
{
    static const char *const kinds[] = {"string", "bytes", "seconds", "integer"};
    symm_option_info info = {.size = sizeof(info)};
    int count = 0;

    (void)state;
    for (; symm_option_at(count, &info) == SYMM_OK; count++) {
        bool known = false;

        assert_int_equal(strncmp(info.name, "SYMM_", 5), 0);
        for (int k = 0; k < 5; k++)
            known = known || strcmp(info.kind, kinds[k]) == 0;
        assert_true(known);
        assert_non_null(info.fallback);
        assert_true(strlen(info.help) > 10);
        assert_null(info.value);
    }
    assert_int_equal(count, SYMM_OPTION_COUNT);
    assert_int_equal(symm_option_at(count, &info), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm_option_at(-1, &info), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm_option_at(0, NULL), SYMM_ERR_INVALID);
    info.size = 7;
    assert_int_equal(symm_option_at(0, &info), SYMM_ERR_INVALID);
    info = (symm_option_info){.size = 2 * sizeof(size_t), .value = "kept"}; /* older */
    assert_int_equal(symm_option_at(SYMM_OPTION_TIMEOUT, &info), SYMM_OK);
    assert_string_equal(info.name, "SYMM_TIMEOUT");
    assert_null(info.kind);
    assert_string_equal(info.value, "kept");
    info.size = sizeof(info);
    setenv("SYMM_TIMEOUT", "7", 1);
    assert_int_equal(symm_option_at(SYMM_OPTION_TIMEOUT, &info), SYMM_OK);
    assert_string_equal(info.name, "SYMM_TIMEOUT");
    assert_string_equal(info.kind, "seconds");
    assert_string_equal(info.fallback, "30");
    assert_string_equal(info.value, "7");
}

/* Each default is a value of its own kind. */
static void test_fallbacks(void **state)
{
    symm_option_info info = {.size = sizeof(info)};

    (void)state;
    for (int i = 0; symm_option_at(i, &info) == SYMM_OK; i++) {
        enum symm_option option = (enum symm_option)i;
        size_t bytes;
        double seconds;
        int64_t integer;

        if (!*info.fallback)
            assert_null(symm__option(option));
        else if (strcmp(info.kind, "bytes") == 0)
            assert_int_equal(symm__option_bytes(option, &bytes), SYMM_OK);
        else if (strcmp(info.kind, "seconds") == 0)
            assert_int_equal(symm__option_seconds(option, &seconds), SYMM_OK);
        else if (strcmp(info.kind, "integer") == 0)
            assert_int_equal(symm__option_integer(option, 0, INT64_MAX, &integer),
                             SYMM_OK);
        else
            assert_string_equal(symm__option(option), info.fallback);
    }
}

static void refused(symm_status status, const char *name, const char *value)
{
    char wanted[100];

    snprintf(wanted, sizeof(wanted), "%s='%.40s", name, value);
    assert_int_equal(status, SYMM_ERR_INVALID);
    if (!strstr(symm_last_error(), wanted) || !strstr(symm_last_error(), "must be"))
        fail_msg("'%s' is not in '%s'", wanted, symm_last_error());
}

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"64K", 65536},
        {"64k", 65536},
        {"16M", 16u << 20},
        {"3g", 3ull << 30},
        {"1T", 1ull << 40},
        {"007", 7},
        {"18446744073709551615", SIZE_MAX},
        {"16777215T", 16777215ull << 40},
    };
    static const char *const bad[] = {
        "-1",
        "+1",
        " 1",
        "1 ",
        "K",
        "1KB",
        "1KiB",
        "1.5M",
        "0x10",
        "1e3",
        "18446744073709551616",
        "16777216T",
        "18446744073709551615K",
        "99999999999999999999999999999999",
        "1P",
        "1\x20",
    };
    size_t bytes = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv("SYMM_HEAP_BYTES", good[i].text, 1);
        assert_int_equal(symm__option_bytes(SYMM_OPTION_HEAP_BYTES, &bytes), SYMM_OK);
        assert_true(bytes == good[i].bytes);
    }
    bytes = 5;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SYMM_HEAP_BYTES", bad[i], 1);
        refused(symm__option_bytes(SYMM_OPTION_HEAP_BYTES, &bytes), "SYMM_HEAP_BYTES",
                bad[i]);
        assert_int_equal(bytes, 5);
    }
    setenv("SYMM_HEAP_BYTES", "", 1); /* empty is unset */
    assert_int_equal(symm__option_bytes(SYMM_OPTION_HEAP_BYTES, &bytes), SYMM_OK);
    assert_true(bytes == 1ull << 40);
}

static void test_seconds(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"30", 30},         {"0.5", 0.5},       {"00.25", 0.25},
                {"604800", 604800}, {"0.000001", 1e-6}, {"2.0", 2}};
    static const char *const bad[] = {"0",
                                      "0.0",
                                      "-1",
                                      "nan",
                                      "inf",
                                      "1e3",
                                      "1,5",
                                      ".5",
                                      "5.",
                                      "1s",
                                      " 1",
                                      "1000000001",
                                      "604800.1",
                                      "0.0000000000001",
                                      "99999999999999999999999",
                                      "0x1"};
    double seconds = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv("SYMM_TIMEOUT", good[i].text, 1);
        assert_int_equal(symm__option_seconds(SYMM_OPTION_TIMEOUT, &seconds), SYMM_OK);
        assert_true(fabs(seconds - good[i].seconds) <= 1e-12 * good[i].seconds);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SYMM_TIMEOUT", bad[i], 1);
        seconds = 5;
        refused(symm__option_seconds(SYMM_OPTION_TIMEOUT, &seconds), "SYMM_TIMEOUT",
                bad[i]);
        assert_true(seconds >= 5 && seconds <= 5);
    }
}

/* An alias counts where the variable is not set; an error names the one that was set. */
static void test_alias(void **state)
{
    static const struct {
        enum symm_option option;
        const char *name, *alias;
    } pairs[] = {
        {SYMM_OPTION_TIMEOUT, "SYMM_TIMEOUT", "SYMM_DEADLINE" /* alias */},
        {SYMM_OPTION_INIT_TIMEOUT, "SYMM_INIT_TIMEOUT",
         "SYMM_INIT_DEADLINE" /* alias */},
    };
    symm_option_info info = {.size = sizeof(info)};
    double seconds = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        unsetenv(pairs[i].name);
        setenv(pairs[i].alias, "7", 1);
        assert_int_equal(symm__option_seconds(pairs[i].option, &seconds), SYMM_OK);
        assert_true(seconds >= 7 && seconds <= 7);
        assert_int_equal(symm_option_at((int)pairs[i].option, &info), SYMM_OK);
        assert_string_equal(info.name, pairs[i].name);
        assert_string_equal(info.value, "7");
        setenv(pairs[i].name, "", 1); /* empty is unset */
        assert_string_equal(symm__option(pairs[i].option), "7");
        setenv(pairs[i].alias, "x", 1);
        refused(symm__option_seconds(pairs[i].option, &seconds), pairs[i].alias, "x");
        setenv(pairs[i].name, "8", 1);
        assert_int_equal(symm__option_seconds(pairs[i].option, &seconds), SYMM_OK);
        assert_true(seconds >= 8 && seconds <= 8);
        unsetenv(pairs[i].alias);
        unsetenv(pairs[i].name);
    }
}

/* As seconds, and 0. */
static void test_limit(void **state)
{
    static const char *const bad[] = {"0.0", "00", "-0", " 0", "0s", "-1", "604800.1"};
    double seconds = 5;

    (void)state;
    setenv("SYMM_QUEUE_TIMEOUT", "0", 1);
    assert_int_equal(symm__option_limit(SYMM_OPTION_QUEUE_TIMEOUT, &seconds), SYMM_OK);
    assert_true(seconds <= 0 && seconds >= 0);
    setenv("SYMM_QUEUE_TIMEOUT", "2.5", 1);
    assert_int_equal(symm__option_limit(SYMM_OPTION_QUEUE_TIMEOUT, &seconds), SYMM_OK);
    assert_true(fabs(seconds - 2.5) < 1e-12);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SYMM_QUEUE_TIMEOUT", bad[i], 1);
        refused(symm__option_limit(SYMM_OPTION_QUEUE_TIMEOUT, &seconds),
                "SYMM_QUEUE_TIMEOUT", bad[i]);
    }
    assert_true(fabs(seconds - 2.5) < 1e-12);
    unsetenv("SYMM_QUEUE_TIMEOUT");
}

static void test_integer(void **state)
{
    static const struct {
        const char *text;
        int64_t low, high, value;
        bool good;
    } cases[] = {
        {"0", 0, 9, 0, true},
        {"9", 0, 9, 9, true},
        {"10", 0, 9, 0, false},
        {"-1", 0, 9, 0, false},
        {"-1", -1, 9, -1, true},
        {"9223372036854775807", 0, INT64_MAX, INT64_MAX, true},
        {"9223372036854775808", 0, INT64_MAX, 0, false},
        {"-9223372036854775808", INT64_MIN, 0, INT64_MIN, true},
        {"-9223372036854775809", INT64_MIN, 0, 0, false},
        {"18446744073709551616", INT64_MIN, INT64_MAX, 0, false},
        {"--1", INT64_MIN, INT64_MAX, 0, false},
        {"-", INT64_MIN, INT64_MAX, 0, false},
        {"1.0", 0, 9, 0, false},
        {"1 ", 0, 9, 0, false},
        {"K", 0, 9, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 5;
        symm_status status;

        setenv("SYMM_SPIN", cases[i].text, 1);
        status =
            symm__option_integer(SYMM_OPTION_SPIN, cases[i].low, cases[i].high, &value);
        if (cases[i].good)
            assert_int_equal(status, SYMM_OK);
        else
            refused(status, "SYMM_SPIN", cases[i].text);
        assert_true(value == (cases[i].good ? cases[i].value : 5));
    }
    int64_t value;
    assert_int_equal(symm__option_integer(SYMM_OPTION_RANK, 0, 9, &value),
                     SYMM_ERR_NOT_FOUND);
    assert_non_null(strstr(symm_last_error(), "SYMM_RANK"));
}

/* Each option has a paragraph in symm_env(7): the table's kind, default and help. */
static void test_man_page(void **state)
{
    FILE *file = fopen(SYMM_SOURCE_DIR "/docs/man/symm_env.7.scd", "re");
    symm_option_info info = {.size = sizeof(info)};
    static char page[65536];
    char heading[128], *c;
    size_t length;
    int described = 0;

    (void)state;
    assert_non_null(file);
    length = fread(page, 1, sizeof(page) - 1, file);
    fclose(file);
    page[length] = '\0';
    /* Emphasis, escapes and line breaks are the page's own. */
    c = page;
    for (size_t i = 0; i < length; i++) {
        if (page[i] == '\n' && page[i + 1] == '\t')
            *c++ = ' ', i++;
        else if (page[i] != '\\')
            *c++ = page[i];
    }
    *c = '\0';
    for (int i = 0; symm_option_at(i, &info) == SYMM_OK; i++) {
        if (*info.fallback)
            snprintf(heading, sizeof(heading), "*%s* (%s, default %s) ", info.name,
                     info.kind, info.fallback);
        else
            snprintf(heading, sizeof(heading), "*%s* (%s) ", info.name, info.kind);
        c = strstr(page, heading);
        if (!c)
            fail_msg("symm_env.7.scd lacks '%s'", heading);
        if (strncasecmp(c + strlen(heading), info.help, strlen(info.help)) != 0)
            fail_msg("symm_env.7.scd: %s does not begin with '%s'", info.name,
                     info.help);
    }
    for (c = page; (c = strstr(c, "\n*SYMM_")); c++)
        described++;
    assert_int_equal(described, SYMM_OPTION_COUNT); /* and nothing else */
}

/* ---- Status ---------------------------------------------------------------------- */

static void test_status(void **state)
{
    char value[2000];

    (void)state;
    assert_string_equal(symm_status_name(SYMM_OK), "SYMM_OK");
    assert_string_equal(symm_status_name(SYMM_ERR_TIMEOUT), "SYMM_ERR_TIMEOUT");
    assert_string_equal(symm_status_text(SYMM_ERR_NOMEM),
                        "memory or address space is exhausted");
    assert_string_equal(symm_status_name((symm_status)-999), "SYMM_ERR_UNKNOWN");
    assert_non_null(symm_status_text((symm_status)5));
    assert_string_equal(symm_version(), SYMM_VERSION_STRING);

    errno = ENOSPC;
    assert_int_equal(symm__fail(SYMM_ERR_INVALID, "rank %d", 3), SYMM_ERR_INVALID);
    assert_string_equal(symm_last_error(), "rank 3");
    assert_int_equal(symm__fail_errno(SYMM_ERR_SYSTEM, EPERM, "open '%s'", "x"),
                     SYMM_ERR_SYSTEM);
#ifdef __GLIBC__
    assert_string_equal(symm_last_error(), "open 'x': Operation not permitted (EPERM)");
#endif
    symm__fail_errno(SYMM_ERR_SYSTEM, 12345, "x");
    assert_string_equal(symm_last_error(), "x: error 12345");
    assert_int_equal(symm__fail_quiet(SYMM_ERR_PEER_DEAD, "quiet"), SYMM_ERR_PEER_DEAD);
    assert_string_equal(symm_last_error(), "quiet");
    assert_int_equal(errno, ENOSPC);

    /* A sentence made from the last one; control characters; cutting. */
    symm__fail(SYMM_ERR_INVALID, "again: %s", symm_last_error());
    assert_string_equal(symm_last_error(), "again: quiet");
    symm__fail_quiet(SYMM_ERR_INVALID, symm_last_error());
    assert_string_equal(symm_last_error(), "again: quiet");
    symm__fail(SYMM_ERR_INVALID, "a\nb\033[1m\x7f");
    assert_string_equal(symm_last_error(), "a?b?[1m?");
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    symm__fail(SYMM_ERR_INVALID, "%s", value);
    assert_int_equal(strlen(symm_last_error()), SYMM_ERROR_BYTES - 1);
    assert_non_null(strstr(symm_last_error(), "v...v"));
    symm__fail_errno(SYMM_ERR_SYSTEM, EPERM, "%s", value);
    assert_int_equal(strlen(symm_last_error()), SYMM_ERROR_BYTES - 1);
    assert_non_null(strstr(symm_last_error(), "v...v"));
    /* what has failed and what to do stay */
    symm__fail(SYMM_ERR_INVALID, "rank 1 %s; raise SYMM_TIMEOUT", value);
    assert_int_equal(strlen(symm_last_error()), SYMM_ERROR_BYTES - 1);
    assert_memory_equal(symm_last_error(), "rank 1 v", 8);
    assert_string_equal(strstr(symm_last_error(), "..."), "... raise SYMM_TIMEOUT");
    symm__fail_quiet(SYMM_ERR_SYSTEM, value);
    assert_int_equal(strlen(symm_last_error()), SYMM_ERROR_BYTES - 1);
}

static void *other_thread(void *arg)
{
    bool *empty = arg;

    *empty = symm_last_error()[0] == '\0';
    symm__fail(SYMM_ERR_INVALID, "the other thread's");
    return NULL;
}

static void test_last_error_is_per_thread(void **state)
{
    pthread_t thread;
    bool empty = false;

    (void)state;
    symm__fail(SYMM_ERR_INVALID, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &empty), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(empty);
    assert_string_equal(symm_last_error(), "mine");
}

static void test_dtypes(void **state)
{
    symm_dtype dtype = SYMM_UINT8;
    symm_op op = SYMM_MAX;

    (void)state;
    for (int i = 0; i < 14; i++) {
        const char *name = symm_dtype_name((symm_dtype)i);

        assert_non_null(name);
        assert_int_equal(symm_dtype_parse(name, &dtype), SYMM_OK);
        assert_int_equal(dtype, i);
        assert_true(symm_dtype_size(dtype) >= 1 && symm_dtype_size(dtype) <= 8);
    }
    assert_int_equal(symm_dtype_size(SYMM_BFLOAT16), 2);
    assert_int_equal(symm_dtype_size((symm_dtype)14), 0);
    assert_null(symm_dtype_name((symm_dtype)14));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(symm_op_parse(symm_op_name((symm_op)i), &op), SYMM_OK);
        assert_int_equal(op, i);
    }
    assert_null(symm_op_name((symm_op)8));
    assert_int_equal(symm_dtype_parse("float31", &dtype), SYMM_ERR_INVALID);
    assert_non_null(
        strstr(symm_last_error(), "'float31' is not a dtype; known are float64"));
    assert_int_equal(symm_dtype_parse("", &dtype), SYMM_ERR_INVALID);
    assert_int_equal(symm_dtype_parse(NULL, &dtype), SYMM_ERR_INVALID);
    assert_int_equal(symm_op_parse("Sum", &op), SYMM_ERR_INVALID);
    assert_non_null(
        strstr(symm_last_error(), "known are sum avg prod min max band bor bxor"));
    assert_int_equal(symm_op_parse("sum", NULL), SYMM_ERR_INVALID);
    assert_int_equal(dtype, SYMM_UINT16); /* untouched by the failures */
    assert_int_equal(op, SYMM_BXOR);
}

/* ---- Log ------------------------------------------------------------------------- */

struct caught {
    int count, level;
    char line[2048];
};

static void catch_line(void *arg, int level, const char *line)
{
    struct caught *caught = arg;

    caught->count++;
    caught->level = level;
    snprintf(caught->line, sizeof(caught->line), "%s", line);
    symm__log(SYMM_LOG_ERROR, "from inside the sink"); /* dropped, not recursion */
}

static void test_sink(void **state)
{
    struct caught caught = {0};
    char value[2000];

    (void)state;
    symm_log_sink(catch_line, &caught);
    symm__log(SYMM_LOG_DEBUG, "x %d", 1); /* a sink gets all levels */
    assert_int_equal(caught.count, 1);
    assert_int_equal(caught.level, 3);
    assert_string_equal(caught.line, "symm: debug: x 1");
    symm__log_rank(3);
    errno = EXDEV;
    symm__fail(SYMM_ERR_PEER_DEAD, "rank 1 has died");
    assert_int_equal(errno, EXDEV);
    assert_int_equal(caught.count, 2);
    assert_int_equal(caught.level, 2);
    assert_string_equal(caught.line,
                        "symm rank 3: info: SYMM_ERR_PEER_DEAD: rank 1 has died");
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    symm__log(SYMM_LOG_WARN, "a\nb%s", value);
    assert_memory_equal(caught.line, "symm rank 3: warn: a?bvvv", 25);
    assert_string_equal(caught.line + strlen(caught.line) - 6, "vvv...");
    symm__fail_quiet(SYMM_ERR_TIMEOUT, "told elsewhere");
    assert_int_equal(caught.count, 3);
    symm_log_sink(NULL, NULL);
    setenv("SYMM_LOG", "error", 1);
    symm__log(SYMM_LOG_WARN, "not shown");
    assert_int_equal(caught.count, 3);
}

/* What `levels` lines of all levels leave in a file, with SYMM_LOG=name. */
static int lines_with(const char *name, const char *path)
{
    static char text[4096];
    FILE *file;
    int lines = 0;

    unlink(path);
    if (name)
        setenv("SYMM_LOG", name, 1);
    else
        unsetenv("SYMM_LOG");
    for (int level = 0; level <= (int)SYMM_LOG_DEBUG; level++)
        symm__log((enum symm_log_level)level, "level %d", level);
    file = fopen(path, "re");
    while (file && fgets(text, sizeof(text), file)) {
        char wanted[64];
        static const char *const names[] = {"error", "warn", "info", "debug"};

        snprintf(wanted, sizeof(wanted), "symm rank 7: %s: level %d\n", names[lines],
                 lines);
        assert_string_equal(text, wanted);
        lines++;
    }
    if (file)
        fclose(file);
    return lines;
}

static void test_file(void **state)
{
    char dir[] = "/tmp/symm-log-XXXXXX";
    char pattern[128], path[160];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(pattern, sizeof(pattern), "%s/%%r.%%p.%%%%.%%x", dir);
    snprintf(path, sizeof(path), "%s/7.%ld.%%.%%x", dir, (long)getpid());
    setenv("SYMM_LOG_FILE", pattern, 1);
    symm__log_rank(7);
    assert_int_equal(lines_with(NULL, path), 2);
    assert_int_equal(lines_with("error", path), 1);
    assert_int_equal(lines_with("warn", path), 2);
    assert_int_equal(lines_with("info", path), 3);
    assert_int_equal(lines_with("debug", path), 4);
    assert_int_equal(lines_with("loud", path), 2); /* as the default */
    unlink(path);
    rmdir(dir);
}

/* A reader of stderr that has gone away does not kill the program. */
static void test_broken_pipe(void **state)
{
    int ends[2], status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        sigset_t pending;

        signal(SIGPIPE, SIG_DFL);
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        symm__log(SYMM_LOG_ERROR, "nobody reads this");
        sigpending(&pending);
        _exit(sigismember(&pending, SIGPIPE));
    }
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void *log_lines(void *arg)
{
    for (int i = 0; i < 200; i++)
        symm__log(SYMM_LOG_INFO, "%0100d", i);
    return arg;
}

static void count_line(void *arg, int level, const char *line)
{
    (void)level;
    assert_int_equal(strlen(line), strlen("symm: info: ") + 100);
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
}

/* Sinks that change while other threads log: each line reaches one of them, whole. */
static void test_sink_changes(void **state)
{
    pthread_t threads[3];
    int one = 0, two = 0;

    (void)state;
    symm_log_sink(count_line, &one);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, NULL), 0);
    for (int i = 0; i < 200; i++)
        symm_log_sink(count_line, i % 2 ? &one : &two);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(one + two, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_table, setup),
        cmocka_unit_test_setup(test_fallbacks, setup),
        cmocka_unit_test_setup(test_bytes, setup),
        cmocka_unit_test_setup(test_seconds, setup),
        cmocka_unit_test_setup(test_alias, setup),
        cmocka_unit_test_setup(test_limit, setup),
        cmocka_unit_test_setup(test_integer, setup),
        cmocka_unit_test_setup(test_man_page, setup),
        cmocka_unit_test_setup(test_status, setup),
        cmocka_unit_test_setup(test_last_error_is_per_thread, setup),
        cmocka_unit_test_setup(test_dtypes, setup),
        cmocka_unit_test_setup(test_sink, setup),
        cmocka_unit_test_setup(test_file, setup),
        cmocka_unit_test_setup(test_broken_pipe, setup),
        cmocka_unit_test_setup(test_sink_changes, setup),
    };

    return cmocka_run_group_tests(tests, NULL, setup);
}
