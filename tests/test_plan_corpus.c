/* SPDX-License-Identifier: MIT */
/*
 * test_plan_corpus.c - the fuzzing target over its corpus and over random changes of it.
 *
 * SYMM_TEST_INPUTS=N sets the number of changed inputs (default 3000; 1000000 with
 * SYMM_TEST_LONG=1), SYMM_TEST_SEED the first seed.
 */
#include "fuzz_plan.c"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness.h"

#define MAX_INPUTS 64
#define MAX_BYTES  65536

struct input {
    uint8_t *data;
    size_t size;
};

static struct input inputs[MAX_INPUTS];
static int input_count;

static int read_corpus(void **state)
{
    char path[512];
    DIR *folder = opendir(SYMM_SOURCE_DIR "/tests/data/fuzz");
    struct dirent *entry;

    (void)state;
    if (!folder || LLVMFuzzerInitialize(NULL, NULL) != 0)
        return -1;
    while ((entry = readdir(folder)) != NULL && input_count < MAX_INPUTS) {
        struct input *input = &inputs[input_count];
        snprintf(path, sizeof(path), "%s/%s", SYMM_SOURCE_DIR "/tests/data/fuzz",
                 entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rbe");
        if (!file)
            continue;
        input->data = malloc(MAX_BYTES);
        input->size = input->data ? fread(input->data, 1, MAX_BYTES, file) : 0;
        fclose(file);
        input_count++;
    }
    closedir(folder);
    return 0;
}

static int forget_corpus(void **state)
{
    (void)state;
    for (int i = 0; i < input_count; i++)
        free(inputs[i].data);
    return 0;
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(input_count >= 6);
    for (int i = 0; i < input_count; i++)
        assert_int_equal(LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size), 0);
}

/* Changes some bytes, leaves some out, or doubles a stretch. */
static size_t change(uint64_t *random, uint8_t *data, size_t size)
{
    static const char pieces[] = "0123456789-[]{},:\"\\e.\0\xff";

    for (uint64_t n = harness_random(random) % 4; size > 8; n--) {
        const size_t at = harness_random(random) % (size - 4);
        const size_t length = 1 + harness_random(random) % 4;
        switch (harness_random(random) % 4) {
        case 0:
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 1:
            if (size + length > MAX_BYTES)
                break;
            memmove(data + at + length, data + at, size - at);
            size += length;
            break;
        case 2:
            data[at] = (uint8_t)(data[at] ^ 1U << harness_random(random) % 8);
            break;
        default:
            data[at] = (uint8_t)pieces[harness_random(random) % sizeof(pieces)];
        }
        if (n == 0)
            break;
    }
    return size;
}

static void test_changed(void **state)
{
    const int64_t usual = HARNESS_SLOW ? 300 : 3000;
    const int64_t count = harness_env(
        "SYMM_TEST_INPUTS", harness_env("SYMM_TEST_LONG", 0) ? 1000000 : usual);
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    uint8_t *data = malloc(MAX_BYTES);

    (void)state;
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        uint64_t random = seed + (uint64_t)i;
        const struct input *input =
            &inputs[harness_random(&random) % (uint64_t)input_count];
        memcpy(data, input->data, input->size);
        const size_t size = change(&random, data, input->size);
        uint8_t *exact = malloc(size + 1); /* so that one byte too far is seen */
        assert_non_null(exact);
        memcpy(exact + 1, data, size);
        assert_int_equal(LLVMFuzzerTestOneInput(exact + 1, size), 0);
        free(exact);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_changed),
    };

    return cmocka_run_group_tests(tests, read_corpus, forget_corpus);
}
