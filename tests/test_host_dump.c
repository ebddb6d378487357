/* SPDX-License-Identifier: MIT */
/*
 * test_host_dump.c - what symm-info dump makes of pages and files that hold anything: the document
 * is JSON, reads back to the same document, and compares and becomes pickles; text that is no JSON
 * is refused. Run under the sanitizers.
 * ctest: no-threads
 */
#include "sight/find.c"
#include "tools/symm-info/compare.c"
#include "tools/symm-info/json.c"
#include "tools/symm-info/load.c"
#include "tools/symm-info/pairs.c"
#include "tools/symm-info/sequence.c"
#include "tools/symm-info/torch.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RANKS 3
#define SEEDS 30

static char folder[] = "/tmp/symm-dump-XXXXXX";

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* A page of anything, of which some calls have sites, and all ranks the same teams. */
static void fill_page(struct symm_sight_page *page, int rank, uint64_t seed)
{
    uint64_t state = (seed * RANKS + (uint64_t)rank) * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (size_t i = 0; i + 8 <= sizeof(*page); i += 8) {
        const uint64_t value = next_random(&state);

        memcpy((char *)page + i, &value, 8);
    }
    page->magic = SYMM_SIGHT_MAGIC;
    page->layout = SYMM_SIGHT_LAYOUT;
    page->bytes = sizeof(*page);
    page->rank = rank;
    page->size = RANKS;
    page->calls = seed % 3 ? 5000 : page->calls;
    snprintf(page->job, sizeof(page->job), "job");
    for (uint32_t i = 0; i < 8; i++) {
        page->team[i].uid = i + 1;
        page->team[i].rank = 0;
        page->site[i].id = SYMM_SIGHT_SITES + i;
        page->site[i].team_uid = i / 2 + 1;
        page->site[i].channel = i % 2;
        snprintf(page->site[i].op, sizeof(page->site[i].op), "%s",
                 i % 3 ? "all_reduce" : "all_gather");
        page->wait[i].team_uid = i / 2 + 1;
        page->wait[i].channel = i % 2;
        page->wait[i].since = i % 3;
    }
    for (uint64_t i = 0; i < SYMM_SIGHT_CALLS; i++) {
        page->call[i].word = (4 * SYMM_SIGHT_CALLS + i) << 8 | (page->call[i].word & 7);
        page->call[i].site =
            seed % 4 ? SYMM_SIGHT_SITES + page->call[i].site % 12 : page->call[i].site;
    }
}

static void make_ranks(struct symm_sight_ranks *ranks, uint64_t seed)
{
    *ranks = (struct symm_sight_ranks){0};
    for (int r = 0; r < RANKS; r++) {
        struct symm_sight_rank *rank = symm__sight_ranks_add(ranks);

        assert_non_null(rank);
        fill_page(rank->page, r, seed);
        rank->now = symm__sight_now();
        assert_null(symm__sight_check(rank->page));
    }
}

/* The document; the caller frees it. */
static char *document(const struct symm_sight_ranks *ranks)
{
    const struct symm_sight_process process = {.command = "test", .state = "?"};
    struct symm_emit emit;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", SYMM_DUMP_FORMAT);
    symm__emit_key(&emit, "ranks");
    symm__emit_begin_list(&emit);
    for (int i = 0; i < ranks->count; i++)
        symm__sight_dump(&emit, ranks->rank[i].page, &ranks->rank[i].now, &process);
    symm__emit_end_list(&emit);
    symm__emit_end_map(&emit);
    assert_int_equal(symm__emit_finish(&emit), 0);
    fclose(file);
    return text;
}

static void use(const struct symm_sight_ranks *ranks)
{
    struct dump_sequences sequences;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    assert_true(symm__dump_sequences(ranks, &sequences));
    (void)symm__dump_compare(file, ranks, &sequences, true);
    assert_true(symm__dump_torch(folder, ranks, &sequences));
    fclose(file);
    for (const char *c = text; *c; c++)
        assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    for (int s = 0; s < sequences.count; s++)
        for (int k = 1; k < sequences.sequence[s].steps; k++)
            assert_true(sequences.sequence[s].step[k] !=
                        sequences.sequence[s].step[k - 1]);
    free(text);
    symm__dump_sequences_finish(&sequences);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void test_anything(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "%s/x.json", folder);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct symm_sight_ranks ranks, loaded = {0};
        char *text, *again;

        make_ranks(&ranks, seed);
        use(&ranks);
        text = document(&ranks);
        write_text(path, text);
        assert_true(symm__dump_load(path, &loaded));
        assert_int_equal(loaded.count, RANKS);
        use(&loaded);
        /* What was read is written the same from then on. */
        again = document(&loaded);
        free(text);
        symm__sight_ranks_finish(&ranks);
        write_text(path, again);
        assert_true(symm__dump_load(path, &ranks));
        text = document(&ranks);
        assert_string_equal(text, again);
        symm__sight_ranks_finish(&ranks);
        symm__sight_ranks_finish(&loaded);
        free(text);
        free(again);
    }
}

/* A document with some bytes changed, cut off somewhere. */
static void test_no_json(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "nul",
        "\"",
        "\"\\u12",
        "\"\\",
        "01",
        "-",
        "1.",
        "[1 2]",
        "[] []",
        "\"\\x\"",
        "18446744073709551616",
        "1e5",
        "\"\n\"",
        "{1:2}",
        "\"\\ud800\"",
        "\"\\ud800\\u0020\"",
    };
    struct symm_sight_ranks ranks;
    struct json *json;
    uint64_t seed = 77;
    size_t at, length;
    char *text;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (json_read(bad[i], &at))
            fail_msg("read: %s", bad[i]);
    json = json_read("{\"a\": [\"\\ud83d\\ude00\\u00e9\\u20ac\\n\", -5, null, true]}",
                     &at);
    assert_non_null(json);
    assert_string_equal(json_member(json, "a")->members->text,
                        "\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\n");
    json_free(json);
    make_ranks(&ranks, 5);
    text = document(&ranks);
    length = strlen(text);
    for (int i = 0; i < 60; i++) {
        char *copy = strdup(text);

        assert_non_null(copy);
        for (int k = 0; k < 3; k++)
            copy[next_random(&seed) % length] = (char)next_random(&seed);
        if (i % 2)
            copy[next_random(&seed) % length] = '\0';
        json_free(json_read(copy, &at));
        free(copy);
    }
    free(text);
    symm__sight_ranks_finish(&ranks);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    char path[64];

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof(path), "%s/rank%d", folder, r);
        (void)unlink(path);
    }
    snprintf(path, sizeof(path), "%s/x.json", folder);
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_anything),
        cmocka_unit_test(test_no_json),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
