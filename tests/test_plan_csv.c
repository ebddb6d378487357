/* SPDX-License-Identifier: MIT */
/*
 * test_plan_csv.c - `symm-plan pack` on the command line: malformed files (exit status 2,
 * one sentence with file, line, the value found and the values allowed, no output file),
 * exit statuses, the result read back, the drawing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD "id,lower,upper,size\n"
#define ROW  "a,0,5,10\n"

static char folder[] = "/tmp/symm-csv-XXXXXX";
static char in_path[64], out_path[64], svg_path[64], said_path[64];

/* ---- Help ------------------------------------------------------------------------ */

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static const char *read_file(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "re");
    size_t bytes;

    assert_non_null(file);
    bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = 0;
    return text;
}

/* Runs `symm-plan pack`, everything it says goes to said_path; its exit status. */
static int pack(const char *const *arguments)
{
    const char *argv[16] = {"symm-plan", "pack"};
    pid_t child;
    int status;

    for (int k = 0; arguments[k]; k++)
        argv[k + 2] = arguments[k];
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int said = open(said_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        union {
            const char **from;
            char *const *to;
        } list = {.from = argv};
        if (said < 0 || dup2(said, 1) < 0 || dup2(said, 2) < 0)
            _exit(99);
        execv(SYMM_BIN_DIR "/symm-plan", list.to);
        _exit(98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define PACK(...) pack((const char *const[]){__VA_ARGS__, NULL})

static void assert_said(const char *what, const char *context)
{
    const char *said = read_file(said_path);

    if (!strstr(said, what))
        fail_msg("%s: expected \"%s\", got: %s", context, what, said);
}

/* ---- Malformed files ------------------------------------------------------------- */

struct wrong {
    const char *text;
    int line;
    const char *found, *allowed;
};

static const struct wrong wrongs[] = {
    /* The header. */
    {"", 1, "nothing", "the header id,lower,upper,size"},
    {"\n", 1, "\"\"", "\"id\" as column 1"},
    {"a,0,5,10\n", 1, "\"a\"", "\"id\" as column 1"},
    {"id\n", 1, "nothing", "\"lower\" as column 2"},
    {"id,lower,upper\n", 1, "nothing", "\"size\" as column 4"},
    {"id,upper,lower,size\n", 1, "\"upper\"", "\"lower\" as column 2"},
    {"id,start,end,size\n", 1, "\"start\"", "\"lower\" as column 2"},
    {"id, lower,upper,size\n", 1, "\" lower\"", "\"lower\" as column 2"},
    {"ID,lower,upper,size\n", 1, "\"ID\"", "\"id\" as column 1"},
    {"\xef\xbb\xbfid,lower,upper,size\n", 1, "\"???id\"", "\"id\" as column 1"},
    {"id;lower;upper;size\n", 1, "\"id;lower;upper;size\"", "\"id\" as column 1"},
    {"id,lower,upper,size,alignment\n", 1, "\"alignment\"", "not supported"},
    {"id,lower,upper,size,gaps\n", 1, "\"gaps\"", "not supported"},
    /* The number of fields. */
    {HEAD "\n", 2, "nothing", "4 fields"},
    {HEAD ROW "\n" ROW, 3, "nothing", "4 fields"},
    {HEAD ROW "b,0,5\n", 3, "\"3 fields\"", "4 fields, as in the header"},
    {HEAD ROW "b,0,5,1,2\n", 3, "\"5 fields\"", "4 fields"},
    {HEAD "b 0 5 1\n", 2, "\"1 fields\"", "4 fields"},
    {"id,lower,upper,size,offset\na,0,5,10\n", 2, "\"4 fields\"", "5 fields"},
    /* Ids. */
    {HEAD ",0,5,10\n", 2, "nothing", "an id"},
    {HEAD "\"a\",0,5,10\n", 2, "\"\"a\"\"", "without control characters and quotes"},
    {HEAD "a\tb,0,5,10\n", 2, "\"a?b\"", "without control characters and quotes"},
    {HEAD ROW ROW, 3, "\"a\"", "an id not used before; line 2 has it"},
    {HEAD ROW "b,0,5,1\nc,0,5,1\nb,1,2,3\n", 5, "\"b\"", "line 3 has it"},
    /* Numbers. */
    {HEAD "a,,5,10\n", 2, "nothing", "as lower an integer"},
    {HEAD "a,x,5,10\n", 2, "\"x\"", "as lower an integer"},
    {HEAD "a, 0,5,10\n", 2, "\" 0\"", "as lower an integer"},
    {HEAD "a,0,5.0,10\n", 2, "\"5.0\"", "as upper an integer"},
    {HEAD "a,0,0x5,10\n", 2, "\"0x5\"", "as upper an integer"},
    {HEAD "a,0,+5,10\n", 2, "\"+5\"", "as upper an integer"},
    {HEAD "a,0,1e3,10\n", 2, "\"1e3\"", "as upper an integer"},
    {HEAD "a,0,-,10\n", 2, "\"-\"", "as upper an integer"},
    {HEAD "a,0,9223372036854775808,10\n", 2, "\"9223372036854775808\"",
     "to 9223372036854775807"},
    {HEAD "a,-9223372036854775809,5,10\n", 2, "\"-9223372036854775809\"",
     "from -9223372036854775808"},
    {HEAD "a,0,5,-1\n", 2, "\"-1\"", "as size an integer from 0"},
    {HEAD "a,0,5,\n", 2, "nothing", "as size an integer"},
    {HEAD "a,0,5,10 \n", 2, "\"10 \"", "as size an integer"},
    {HEAD "a,0,5,10K\n", 2, "\"10K\"", "as size an integer"},
    /* Lifetimes. */
    {HEAD "a,5,5,10\n", 2, "\"5\"", "an upper above lower, 5"},
    {HEAD ROW "b,7,3,10\n", 3, "\"3\"", "half-open"},
};

static void test_malformed(void **state)
{
    size_t count = sizeof(wrongs) / sizeof(wrongs[0]);

    (void)state;
    assert_true(count >= 30);
    for (size_t k = 0; k < count; k++) {
        const struct wrong *w = &wrongs[k];
        char place[128], found[128];
        write_file(in_path, w->text, strlen(w->text));
        assert_int_equal(
            PACK(in_path, "--capacity", "100", "-o", out_path, "--svg", svg_path), 2);
        snprintf(place, sizeof(place), "%s:%d: found ", in_path, w->line);
        snprintf(found, sizeof(found), "found %s; allowed: ", w->found);
        assert_said(place, w->text);
        assert_said(found, w->text);
        assert_said(w->allowed, w->text);
        assert_ptr_equal(strchr(strchr(read_file(said_path), '\n') + 1, '\n'), NULL);
        assert_int_not_equal(access(out_path, F_OK), 0);
        assert_int_not_equal(access(svg_path, F_OK), 0);
    }
}

static void test_bytes(void **state)
{
    static const char zero[] = HEAD "a,0,5,1\0\n";
    char *text = malloc(70000);

    (void)state;
    assert_non_null(text);
    write_file(in_path, zero, sizeof(zero) - 1);
    assert_int_equal(PACK(in_path, "--capacity", "100"), 2);
    assert_said(":2: found", "a zero byte");
    assert_said("without zero bytes", "a zero byte");
    memset(text, 'x', 60000);
    strcpy(text + 60000, ",0,5,1\n");
    memcpy(text, HEAD, strlen(HEAD));
    write_file(in_path, text, strlen(text));
    assert_int_equal(PACK(in_path, "--capacity", "100"), 2);
    assert_said("at most 255 bytes", "a long id");
    memset(text + strlen(HEAD), ',', 60000);
    write_file(in_path, text, 60000);
    assert_int_equal(PACK(in_path, "--capacity", "100"), 2);
    assert_said("found \"more fields\"", "many fields");
    free(text);
}

/* ---- Exit statuses --------------------------------------------------------------- */

static void test_command_line(void **state)
{
    (void)state;
    write_file(in_path, HEAD ROW, strlen(HEAD ROW));
    assert_int_equal(PACK("--help"), 0);
    assert_said("--capacity N", "--help");
    assert_int_equal(PACK(in_path), 2);
    assert_said("--capacity", "no capacity");
    assert_int_equal(PACK("--capacity", "10"), 2);
    assert_int_equal(PACK(in_path, in_path, "--capacity", "10"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "0"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "-5"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "10x"), 2);
    assert_said("'10x'", "10x");
    assert_int_equal(PACK(in_path, "--capacity", "99999999999999999999"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "10", "--time-limit", "0"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "10", "--time-limit", "nan"), 2);
    assert_int_equal(PACK(in_path, "--fast", "--minimize"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "10", "--unknown"), 2);
    assert_int_equal(PACK("/nonexistent.csv", "--capacity", "10"), 2);
    assert_said("/nonexistent.csv", "no file");
    assert_int_equal(PACK(folder, "--capacity", "10"), 2);
    assert_int_equal(PACK(in_path, "--capacity", "10", "-o", "/nonexistent/out"), 2);
    assert_int_equal(
        PACK(in_path, "--capacity", "10", "-o", out_path, "--svg", "/nonexistent/s"),
        2);
    assert_int_not_equal(access(out_path, F_OK), 0);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(PACK(in_path, "--capacity", "10", "--svg", "/dev/full"), 2);
}

static void test_outcomes(void **state)
{
    static const char text[] = HEAD "b1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4";
    static const char windows[] = "id,lower,upper,size\r\na,0,5,10\r\n";
    static const char large[] =
        HEAD "a,0,2,9223372036854775807\nb,0,2,9223372036854775806\n";

    (void)state;
    write_file(in_path, text, strlen(text));
    assert_int_equal(PACK(in_path, "--capacity", "7", "-o", out_path), 1);
    assert_said("the best peak is 8", "7 bytes");
    assert_said("proved", "7 bytes");
    assert_int_not_equal(access(out_path, F_OK), 0);
    assert_int_equal(PACK(in_path, "--fast", "--capacity", "7"), 1);
    assert_int_equal(PACK(in_path, "--minimize", "--capacity", "7"), 1);
    assert_int_equal(PACK(in_path, "--capacity", "8", "-o", out_path), 0);
    assert_said("peak 8 bytes", "8 bytes");
    /* An answer is input again, and its offsets are not looked at. */
    assert_non_null(
        strstr(read_file(out_path), "id,lower,upper,size,offset\nb1,0,3,4,"));
    assert_int_equal(PACK(out_path, "--minimize"), 0);
    assert_said("b4,9,21,4,0\n", "to stdout");
    assert_int_equal(PACK(out_path, "--fast", "--svg", svg_path), 0);
    assert_int_equal(unlink(out_path), 0);
    write_file(in_path, windows, strlen(windows));
    assert_int_equal(PACK(in_path, "--capacity", "10"), 0);
    assert_said("a,0,5,10,0\n", "CRLF");
    write_file(in_path, HEAD, strlen(HEAD));
    assert_int_equal(PACK(in_path, "--capacity", "1"), 0);
    assert_said("0 buffers", "no rows");
    write_file(in_path, large, strlen(large));
    assert_int_equal(PACK(in_path, "--minimize"), 2);
    assert_said("items 0 to 1", "overflow");
}

static void test_drawing(void **state)
{
    const char *data = SYMM_SOURCE_DIR "/tests/data/minimalloc/B.1048576.csv";
    char odd[] = HEAD "<&>,0,5,10\n", *text;
    FILE *file;
    long bytes;
    int boxes = 0;

    (void)state;
    assert_int_equal(
        PACK(data, "--capacity", "1048576", "-o", out_path, "--svg", svg_path), 0);
    file = fopen(svg_path, "re");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    text = calloc((size_t)bytes + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
    fclose(file);
    for (char *at = text; (at = strstr(at, "<title>")); at++)
        boxes++;
    assert_int_equal(boxes, 170);
    assert_non_null(strstr(text, "capacity 1048576"));
    assert_non_null(strstr(text, "</svg>"));
    free(text);
    write_file(in_path, odd, strlen(odd));
    assert_int_equal(PACK(in_path, "--capacity", "10", "--svg", svg_path), 0);
    assert_non_null(strstr(read_file(svg_path), "&lt;&amp;&gt;"));
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(in_path, sizeof(in_path), "%s/in.csv", folder);
    snprintf(out_path, sizeof(out_path), "%s/out.csv", folder);
    snprintf(svg_path, sizeof(svg_path), "%s/out.svg", folder);
    snprintf(said_path, sizeof(said_path), "%s/said", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(in_path);
    unlink(out_path);
    unlink(svg_path);
    unlink(said_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_command_line), cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_drawing)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
