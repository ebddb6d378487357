/* SPDX-License-Identifier: MIT */
/*
 * test_host_top.c - what symm-top makes of memory files that are named like a rank's page and hold
 * anything: garbage, too few bytes, another layout, text without a NUL, random entries, entries that
 * change while they are read. Nothing is read outside of the copy, and what is printed is
 * lines of printable text. Run under the sanitizers.
 */
#include "sight/find.c"
#include "tools/symm-top/late.c"
#include "tools/symm-top/show.c"
#include "util/fence.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>

#define SEEDS 40

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void fill(void *to, size_t bytes, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t value = next_random(&state);

        if (value % 8 == 0) /* no NUL for long */
            value = UINT64_C(0x4141414141414141);
        memcpy((char *)to + i, &value, 8);
    }
}

/* A head that readers accept; all that it may hold of anything is random. */
static void set_head(struct symm_sight_page *page, const char *job)
{
    page->magic = SYMM_SIGHT_MAGIC;
    page->layout = SYMM_SIGHT_LAYOUT;
    page->bytes = sizeof(*page);
    page->rank = 3;
    page->size = 4;
    snprintf(page->job, sizeof(page->job), "%s", job);
}

static int make_file(const char *name, size_t bytes, struct symm_sight_page **page)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(*page, MAP_FAILED);
    return fd;
}

/* What symm-top says of this process, after the checks that hold for all it says. */
static char *look(const char *job, struct symm_sight_ranks *ranks)
{
    static struct top_history history;
    const int self = (int)getpid();
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    assert_int_equal(symm__sight_find(job, &self, 1, ranks), 0);
    symm__top_show(file, ranks, &history, true);
    fclose(file);
    for (const char *c = text; *c; c++)
        assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    symm__top_forget(&history);
    return text;
}

static void expect_bad(const char *why)
{
    struct symm_sight_ranks ranks;
    char *text = look(NULL, &ranks);

    assert_int_equal(ranks.count, 0);
    assert_int_equal(ranks.bad, 1);
    assert_non_null(strstr(ranks.why, why));
    assert_non_null(strstr(text, why));
    symm__sight_ranks_finish(&ranks);
    free(text);
}

static void test_none(void **state)
{
    struct symm_sight_page *page;
    struct symm_sight_ranks ranks;
    int fd;

    (void)state;
    fd = make_file("symm-job-0", sizeof(*page), &page);
    fill(page, sizeof(*page), 1);
    expect_bad("no page of a rank");
    set_head(page, "job");
    page->layout++;
    expect_bad("another version");
    set_head(page, "job");
    page->rank = -1;
    expect_bad("a rank that does not exist");
    set_head(page, "job");
    assert_int_equal(ftruncate(fd, 100), 0);
    expect_bad("another size");
    assert_int_equal(ftruncate(fd, 0), 0);
    expect_bad("another size");
    munmap(page, sizeof(*page));
    close(fd);
    /* Memory with other names is not looked at. */
    fd = make_file("symm", sizeof(*page), &page);
    free(look(NULL, &ranks));
    assert_int_equal(ranks.bad, 0);
    symm__sight_ranks_finish(&ranks);
    munmap(page, sizeof(*page));
    close(fd);
}

static void test_random(void **state)
{
    struct symm_sight_page *page;
    int fd = make_file("symm-job-3", sizeof(*page), &page);

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct symm_sight_ranks ranks;
        char *text;

        fill(page, sizeof(*page), seed);
        set_head(page, "job");
        page->team[0].uid = page->site[5].team_uid = 1;
        page->team[0].rank = 0;
        page->team[0].size = 4;
        page->site[5].id = 5 + SYMM_SIGHT_SITES;
        page->calls = seed % 2 ? 7 : page->calls;
        page->call[7].word = 7 << 8 | seed % 7;
        page->call[7].site = page->site[5].id;
        for (int i = 0; i < SYMM_SIGHT_WAITS; i++) /* as if of this team */
            page->wait[i].team_uid = seed % 3 ? 1 : page->wait[i].team_uid,
            page->wait[i].since = 1 + (uint64_t)i;
        text = look("job", &ranks);
        assert_int_equal(ranks.count, 1);
        symm__sight_ranks_finish(&ranks);
        free(text);
    }
    munmap(page, sizeof(*page));
    close(fd);
}

/* ---- Entries that change ----------------------------------------------------------------- */

#define SITE 10 /* lies in two pages of memory, so that its copy takes the longest */

struct writer {
    struct symm_sight_page *page;
    _Atomic bool end;
};

/* As sight.c adds a site: every site has its id in each of its fields. */
static void *write_sites(void *arg)
{
    struct writer *writer = arg;

    for (uint32_t n = 1; !writer->end; n++) {
        struct symm_sight_site *site = &writer->page->site[SITE];
        const uint32_t id = SITE + n * SYMM_SIGHT_SITES;

        __atomic_store_n(&site->id, 0, __ATOMIC_RELAXED);
        symm__process_fence(__ATOMIC_RELEASE);
        site->count = site->key = id;
        snprintf(site->name, sizeof(site->name), "%u", id);
        site->bytes = id;
        __atomic_store_n(&site->id, id, __ATOMIC_RELEASE);
        for (volatile int wait = 0; wait < 200; wait++)
            ;
        if (n % 5000 == 0) /* long enough for a copy between two changes */
            usleep(2000);
    }
    return NULL;
}

static void test_changing(void **state)
{
    struct writer writer = {0};
    struct symm_sight_page *copy = calloc(1, sizeof(*copy));
    int fd = make_file("symm-job-3", sizeof(*copy), &writer.page), seen = 0;
    pthread_t thread;

    (void)state;
    assert_non_null(copy);
    set_head(writer.page, "job");
    assert_int_equal(pthread_create(&thread, NULL, write_sites, &writer), 0);
    /* The writer may get no core at first, or lose it in the middle of an entry. */
    for (int i = 0; i < 300 || (seen < 10 && i < 1000000); i++) {
        const struct symm_sight_site *site = &copy->site[SITE];

        assert_null(symm__sight_read(fd, copy));
        if (site->id == 0)
            continue;
        seen++;
        assert_true(site->count == site->id && site->key == site->id &&
                    site->bytes == site->id);
        assert_int_equal(strtoul(site->name, NULL, 10), site->id);
    }
    writer.end = true;
    pthread_join(thread, NULL);
    assert_null(symm__sight_read(fd, copy));
    assert_true(copy->site[SITE].id != 0 && seen > 0);
    free(copy);
    munmap(writer.page, sizeof(*writer.page));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_changing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
