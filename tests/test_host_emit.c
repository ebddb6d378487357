/* SPDX-License-Identifier: MIT */
/*
 * test_host_emit.c - JSON and pickle from the same calls.
 *
 * One document with every kind of value and the limits of integers and strings is written
 * in both formats, and Python must read equal objects. Misuse and failing files must
 * return an error.
 * ctest: no-threads
 */
#include "harness.h"
#include "util/emit.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t unsigned_edges[] = {
    0,
    1,
    255,
    256,
    65535,
    65536,
    INT32_MAX,
    (uint64_t)INT32_MAX + 1,
    UINT32_MAX,
    (uint64_t)1 << 39,
    ((uint64_t)1 << 40) - 1,
    (uint64_t)1 << 47,
    INT64_MAX,
    (uint64_t)INT64_MAX + 1,
    UINT64_MAX,
};
static const int64_t signed_edges[] = {
    0,
    -1,
    -128,
    -129,
    -32768,
    200,
    -70000,
    INT32_MIN,
    (int64_t)INT32_MIN - 1,
    -((int64_t)1 << 39),
    -((int64_t)1 << 39) - 1,
    INT64_MIN,
    INT64_MAX,
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Strings, and what readers must get: bad bytes become U+FFFD, one each. */
static const char *const strings[] = {
    "",
    "plain",
    "quote \" back \\ slash / tab \t line \n bell \a del \x7f",
    "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
    "\xff",             /* never a first byte */
    "\xc0\x80",         /* overlong */
    "\xe0\x80\x80",     /* overlong */
    "\xed\xa0\x80",     /* a surrogate */
    "\xf4\x90\x80\x80", /* above U+10FFFF */
    "a\xe2\x82",        /* cut short */
    "\xf0\x9f\x98z",    /* cut short by a letter */
};

static void write_document(struct symm_emit *emit)
{
    symm__emit_begin_map(emit);
    symm__emit_key(emit, "unsigned");
    symm__emit_begin_list(emit);
    for (size_t i = 0; i < COUNT(unsigned_edges); i++)
        symm__emit_unsigned(emit, unsigned_edges[i]);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "signed");
    symm__emit_begin_list(emit);
    for (size_t i = 0; i < COUNT(signed_edges); i++)
        symm__emit_signed(emit, signed_edges[i]);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "strings");
    symm__emit_begin_list(emit);
    for (size_t i = 0; i < COUNT(strings); i++)
        symm__emit_string(emit, strings[i]);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "key \"\xff\"");
    symm__emit_string(emit, NULL);
    symm__emit_key(emit, "nested");
    symm__emit_begin_list(emit);
    symm__emit_bool(emit, true);
    symm__emit_begin_map(emit);
    symm__emit_end_map(emit);
    symm__emit_begin_list(emit);
    symm__emit_end_list(emit);
    symm__emit_begin_map(emit);
    symm__emit_key(emit, "a");
    symm__emit_begin_map(emit);
    symm__emit_key(emit, "b");
    symm__emit_begin_list(emit);
    symm__emit_begin_list(emit);
    symm__emit_unsigned(emit, 7);
    symm__emit_end_list(emit);
    symm__emit_bool(emit, false);
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
    symm__emit_end_map(emit);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "long"); /* longer than the buffer */
    symm__emit_begin_list(emit);
    for (unsigned i = 0; i < 20000; i++)
        symm__emit_unsigned(emit, i);
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

static const char check_document[] =
    "import json, pickle, pickletools, sys\n"
    "raw = open(sys.argv[2], 'rb').read()\n"
    "known = set('PROTO EMPTY_DICT EMPTY_LIST MARK SETITEMS APPEND BINUNICODE '\n"
    "  'BININT1 BININT2 BININT LONG1 NEWTRUE NEWFALSE NONE STOP'.split())\n"
    "used = {op.name for op, arg, at in pickletools.genops(raw)}\n"
    "assert used == known, used ^ known\n"
    "text = open(sys.argv[1], 'rb').read().decode('utf-8')\n"
    "assert text.endswith('}\\n')\n"
    "a, b = json.loads(text), pickle.loads(raw)\n"
    "assert a == b\n"
    "assert a['unsigned'] == [0, 1, 255, 256, 65535, 65536, 2**31-1, 2**31, 2**32-1,\n"
    "  2**39, 2**40-1, 2**47, 2**63-1, 2**63, 2**64-1], a['unsigned']\n"
    "assert a['signed'] == [0, -1, -128, -129, -32768, 200, -70000, -2**31, -2**31-1,\n"
    "  -2**39, -2**39-1, -2**63, 2**63-1], a['signed']\n"
    "x = '\\ufffd'\n"
    "assert a['strings'] == ['', 'plain',\n"
    "  'quote \" back \\\\ slash / tab \\t line \\n bell \\a del \\x7f',\n"
    "  '\\u00e9 \\u20ac \\U0001f600 \\U0010ffff', x, x*2, x*3, x*3, x*4, 'a' + x*2,\n"
    "  x*3 + 'z'], a['strings']\n"
    "assert a['key \"\\ufffd\"'] is None\n"
    "assert a['nested'] == [True, {}, [], {'a': {'b': [[7], False]}}], a['nested']\n"
    "assert a['long'] == list(range(20000))\n";

static void test_both_formats(void **state)
{
    char directory[256], json[300], pickle[300];
    struct symm_emit emit;
    int status;
    (void)state;

    harness_directory(directory, sizeof(directory));
    snprintf(json, sizeof(json), "%s/json", directory);
    snprintf(pickle, sizeof(pickle), "%s/pickle", directory);
    FILE *file = fopen(json, "we");
    assert_non_null(file);
    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    write_document(&emit);
    assert_int_equal(symm__emit_finish(&emit), 0);
    assert_int_equal(fclose(file), 0);
    int fd = open(pickle, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    symm__emit_init_fd(&emit, SYMM_EMIT_PICKLE, fd);
    write_document(&emit);
    assert_int_equal(symm__emit_finish(&emit), 0);
    assert_int_equal(close(fd), 0);

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execlp("python3", "python3", "-c", check_document, json, pickle, (char *)NULL);
        _exit(77);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    harness_remove(directory);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Exact bytes ----------------------------------------------------------------- */

static char text[64 * 1024];
static size_t text_bytes;

static FILE *open_text(void)
{
    memset(text, 0, sizeof(text));
    FILE *file = fmemopen(text, sizeof(text), "w");
    assert_non_null(file);
    return file;
}

static void close_text(FILE *file)
{
    text_bytes = (size_t)ftell(file);
    fclose(file);
}

static void test_exact(void **state)
{
    static const char pickle[] =
        "\x80\x02}(X\x01\x00\x00\x00kK\x05X\x01\x00\x00\x00l]K\x01"
        "a\x88"
        "au.";
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct symm_emit emit;
        FILE *file = open_text();
        symm__emit_init_file(&emit, i == 0 ? SYMM_EMIT_JSON : SYMM_EMIT_PICKLE, file);
        symm__emit_begin_map(&emit);
        symm__emit_key(&emit, "k");
        symm__emit_unsigned(&emit, 5);
        symm__emit_key(&emit, "l");
        symm__emit_begin_list(&emit);
        symm__emit_signed(&emit, 1);
        symm__emit_bool(&emit, true);
        symm__emit_end_list(&emit);
        symm__emit_end_map(&emit);
        assert_int_equal(symm__emit_finish(&emit), 0);
        close_text(file);
        if (i == 0) {
            assert_string_equal(text,
                                "{\n \"k\": 5,\n \"l\": [\n  1,\n  true\n ]\n}\n");
        } else {
            assert_int_equal(text_bytes, sizeof(pickle) - 1);
            assert_memory_equal(text, pickle, sizeof(pickle) - 1);
        }
    }
}

static void test_scalar(void **state)
{
    struct symm_emit emit;
    FILE *file = open_text();
    (void)state;

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_string(&emit, "x\x1f");
    assert_int_equal(symm__emit_finish(&emit), 0);
    close_text(file);
    assert_string_equal(text, "\"x\\u001f\"\n");
}

static void test_ready_json(void **state)
{
    struct symm_emit emit;
    FILE *file = open_text();
    (void)state;

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "s", "\"");
    symm__emit_key_unsigned(&emit, "u", UINT64_MAX);
    symm__emit_key_signed(&emit, "i", -1);
    symm__emit_key_bool(&emit, "b", false);
    symm__emit_key(&emit, "j");
    symm__emit_json(&emit, "[1, 2]");
    symm__emit_end_map(&emit);
    assert_int_equal(symm__emit_finish(&emit), 0);
    close_text(file);
    assert_string_equal(text, "{\n \"s\": \"\\\"\",\n \"u\": 18446744073709551615,\n"
                              " \"i\": -1,\n \"b\": false,\n \"j\": [1, 2]\n}\n");

    file = open_text();
    symm__emit_init_file(&emit, SYMM_EMIT_PICKLE, file);
    symm__emit_json(&emit, "[1, 2]");
    assert_int_equal(symm__emit_finish(&emit), EINVAL);
    close_text(file);
}

/* ---- Misuse ---------------------------------------------------------------------- */

/* Letters: { } [ ] maps and lists, k key, v value. */
static int play(const char *calls)
{
    struct symm_emit emit;
    FILE *file = open_text();

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    for (const char *c = calls; *c != '\0'; c++) {
        switch (*c) {
        case '{':
            symm__emit_begin_map(&emit);
            break;
        case '}':
            symm__emit_end_map(&emit);
            break;
        case '[':
            symm__emit_begin_list(&emit);
            break;
        case ']':
            symm__emit_end_list(&emit);
            break;
        case 'k':
            symm__emit_key(&emit, "k");
            break;
        default:
            symm__emit_unsigned(&emit, 1);
            break;
        }
    }
    int error = symm__emit_finish(&emit);
    close_text(file);
    return error;
}

static void test_misuse(void **state)
{
    static const char *const good[] = {"v", "{}", "[]", "[vv]", "{kvkv}", "[{k[]}]"};
    static const char *const bad[] = {
        "",     "vv",  "{", "[",   "}",    "]",    "{]",    "[}",   "{v}",  "{k}",
        "{kk}", "[k]", "k", "{}v", "{}{}", "[v]]", "{kvv}", "{k[}", "[{]}", "{k[v}]",
    };
    char deep[2 * SYMM_EMIT_DEPTH + 3];
    (void)state;

    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(play(good[i]), 0);
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (play(bad[i]) != EINVAL)
            fail_msg("'%s' must be refused", bad[i]);
    }
    memset(deep, '[', SYMM_EMIT_DEPTH);
    memset(deep + SYMM_EMIT_DEPTH, ']', SYMM_EMIT_DEPTH);
    deep[2 * SYMM_EMIT_DEPTH] = '\0';
    assert_int_equal(play(deep), 0);
    memset(deep, '[', SYMM_EMIT_DEPTH + 1);
    memset(deep + SYMM_EMIT_DEPTH + 1, ']', SYMM_EMIT_DEPTH + 1);
    deep[2 * SYMM_EMIT_DEPTH + 2] = '\0';
    assert_int_equal(play(deep), EOVERFLOW);
}

/* ---- Files that fail ------------------------------------------------------------- */

static void test_failing_files(void **state)
{
    struct symm_emit emit;
    int ends[2];
    (void)state;

    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    symm__emit_init_fd(&emit, SYMM_EMIT_JSON, full);
    write_document(&emit);
    assert_int_equal(symm__emit_finish(&emit), ENOSPC);
    assert_int_equal(symm__emit_finish(&emit), ENOSPC); /* sticks */
    FILE *file = fdopen(full, "w");
    assert_non_null(file);
    symm__emit_init_file(&emit, SYMM_EMIT_PICKLE, file);
    symm__emit_unsigned(&emit, 1); /* a few bytes: only the flush can fail */
    assert_int_equal(symm__emit_finish(&emit), ENOSPC);
    fclose(file);

    symm__emit_init_fd(&emit, SYMM_EMIT_JSON, -1);
    symm__emit_unsigned(&emit, 1);
    assert_int_equal(symm__emit_finish(&emit), EBADF);

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    symm__emit_init_fd(&emit, SYMM_EMIT_PICKLE, ends[1]);
    write_document(&emit);
    assert_int_equal(symm__emit_finish(&emit), EPIPE);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_formats),  cmocka_unit_test(test_exact),
        cmocka_unit_test(test_scalar),        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_failing_files), cmocka_unit_test(test_ready_json),
    };
    return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
