/* SPDX-License-Identifier: MIT */
/*
 * fuzz_run.c - runs a fuzzing target (fuzz.h) over its corpus and over changes of it by seed.
 *
 * A seed names one input: the same one in each run. Seeds 1, 2, ... run until the processor time
 * is used. A child does the work, and its parent says which seed crashed, hung, left memory or a
 * descriptor behind, and writes that input to fuzz_NAME.failed in the working directory.
 *
 *   SYMM_TEST_FUZZ_SECONDS=N  processor time; default: 0.25, with AddressSanitizer 1.2;
 *                             60 with SYMM_TEST_LONG=1
 *   SYMM_TEST_SEED=N          the first seed, SYMM_TEST_INPUTS=N how many: no limit of time
 *   fuzz_NAME FILE...         runs these inputs
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#if defined(__SANITIZE_ADDRESS__)
#define FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FUZZ_ASAN 1
#endif
#endif
#ifdef FUZZ_ASAN
#include <sanitizer/lsan_interface.h>
#else
#define FUZZ_ASAN 0
static int __lsan_do_recoverable_leak_check(void)
{
    return 0;
}
#endif

#define MOST_BYTES   65536
#define MOST_FILES   128
#define HANG_SECONDS 60   /* of one input, on a busy machine */
#define LOOK_EVERY   4096 /* inputs between two searches for leaks */
#define WALL         5    /* seconds for a second of the processor: some inputs wait */
#define LEAKS        99   /* exit status */

struct input {
    char name[64];
    uint8_t *data;
    size_t size;
};

static struct input corpus[MOST_FILES];
static int corpus_count;

/* What the parent knows of its child. */
struct progress {
    uint64_t seed;  /* that runs; 0: the file `file` of the corpus */
    uint64_t clean; /* seeds below it have left nothing behind */
    uint64_t count;
    double used; /* processor time */
    int file;
};

static struct progress *progress;

/* ---- Inputs ------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct input *)a)->name, ((const struct input *)b)->name);
}

static bool read_input(const char *path, struct input *input)
{
    FILE *file = fopen(path, "rbe");

    if (!file)
        return false;
    input->data = malloc(MOST_BYTES);
    input->size = input->data ? fread(input->data, 1, MOST_BYTES, file) : 0;
    fclose(file);
    return input->data != NULL;
}

static bool read_corpus(void)
{
    static const char folder[] = SYMM_SOURCE_DIR "/tests/data/fuzz/" FUZZ_NAME;
    DIR *list = opendir(folder);
    struct dirent *entry;

    while (list && (entry = readdir(list)) != NULL && corpus_count < MOST_FILES) {
        struct input *input = &corpus[corpus_count];
        char path[512];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        snprintf(input->name, sizeof(input->name), "%.63s", entry->d_name);
        if (!read_input(path, input))
            return false;
        corpus_count++;
    }
    if (list)
        closedir(list);
    qsort(corpus, (size_t)corpus_count, sizeof(corpus[0]), by_name);
    return corpus_count > 0;
}

static uint64_t next(uint64_t *random) /* splitmix64 */
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t below(uint64_t *random, size_t limit)
{
    return limit ? (size_t)(next(random) % limit) : 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Puts `count` bytes in the place of `gone` bytes at `at`; returns the new size. */
static size_t exchange_bytes(uint8_t *data, size_t size, size_t at, size_t gone,
                             const void *bytes, size_t count)
{
    gone = smaller(gone, size - at);
    if (size - gone + count > MOST_BYTES)
        return size;
    memmove(data + at + count, data + at + gone, size - at - gone);
    memcpy(data + at, bytes, count);
    return size - gone + count;
}

/* Another number in the place of one that stands at or after `at`. */
static size_t change_number(uint64_t *random, uint8_t *data, size_t size, size_t at)
{
    static const char *const numbers[] = {
        "0",          "1",          "-1",          "2",
        "3",          "7",          "8",           "63",
        "64",         "65",         "255",         "256",
        "4096",       "65535",      "65536",       "1000000",
        "2147483647", "2147483648", "-2147483648", "4294967295",
        "4294967296", "4294967288", "1e9",         "9223372036854775807",
        "1e400",      "-0",         "0.5",         "18446744073709551615"};
    char text[24];
    size_t end;

    while (at < size && (data[at] < '0' || data[at] > '9'))
        at++;
    for (end = at; end < size && data[end] >= '0' && data[end] <= '9';)
        end++;
    if (at == size)
        return size;
    if (next(random) % 3 == 0) { /* a neighbour */
        unsigned long long value = 0;

        for (size_t i = at; i < end; i++)
            value = 10 * value + (data[i] - '0');
        snprintf(text, sizeof(text), "%llu", value + 1 - 2 * (next(random) & 1));
    } else {
        snprintf(text, sizeof(text), "%s",
                 numbers[below(random, sizeof(numbers) / sizeof(numbers[0]))]);
    }
    return exchange_bytes(data, size, at, end - at, text, strlen(text));
}

/* Up to 4096 of the byte at `at`. */
static size_t lengthen(uint64_t *random, uint8_t *data, size_t size, size_t at)
{
    uint8_t run[4096];
    size_t length = below(random, (size_t)1 << (1 + below(random, 12)));

    memset(run, data[at], length);
    return exchange_bytes(data, size, at, 0, run, length);
}

/* Begin and length of the line around `at`, with its end. */
static size_t line_at(const uint8_t *data, size_t size, size_t *at)
{
    size_t end = *at;

    while (*at > 0 && data[*at - 1] != '\n')
        --*at;
    while (end < size && data[end] != '\n')
        end++;
    return smaller(end + 1, size) - *at;
}

static size_t change_once(uint64_t *random, uint8_t *data, size_t size)
{
    static const char pieces[] = "0123456789-[]{},:\"\\e. \n=\t;@/\0\xff\x80";
    const struct input *other = &corpus[below(random, (size_t)corpus_count)];
    size_t at = below(random, size), from = below(random, other->size), length;
    uint8_t copy[64];

    switch (next(random) % 12) {
    case 0: /* bytes are left out, */
        return exchange_bytes(data, size, at, 1 + below(random, 8), "", 0);
    case 1: /* doubled, */
        length = smaller(1 + below(random, sizeof(copy)), size - at);
        memcpy(copy, data + at, length);
        return exchange_bytes(data, size, at, 0, copy, length);
    case 2:
        data[at] ^= (uint8_t)(1u << next(random) % 8);
        return size;
    case 3:
        data[at] = (uint8_t)pieces[below(random, sizeof(pieces) - 1)];
        return size;
    case 4:
        return exchange_bytes(data, size, at, 0,
                              &pieces[below(random, sizeof(pieces) - 1)], 1);
    case 5:
    case 6:
    case 7:
        return change_number(random, data, size, at);
    case 11: /* a byte grows to a long run */
        return lengthen(random, data, size, at);
    case 8: /* a line is left out, */
        length = line_at(data, size, &at);
        return exchange_bytes(data, size, at, length, "", 0);
    case 9: /* or taken from another input */
        length = line_at(other->data, other->size, &from);
        (void)line_at(data, size, &at);
        return exchange_bytes(data, size, at, 0, other->data + from, length);
    default: /* the end is cut off, rarely; else bytes of another input come in */
        if (next(random) % 4 == 0)
            return at;
        length = smaller(1 + below(random, 256), other->size - from);
        return exchange_bytes(data, size, at, below(random, 2) * length,
                              other->data + from, length);
    }
}

/* The input of a seed. */
static size_t make_input(uint64_t seed, uint8_t *data)
{
    uint64_t random = seed;
    const struct input *input = &corpus[below(&random, (size_t)corpus_count)];
    size_t size = input->size, changes = 1 + below(&random, 5);

    memcpy(data, input->data, size);
    while (changes-- > 0 && size > 0)
        size = change_once(&random, data, size);
    return size;
}

/* ---- The child ------------------------------------------------------------------------ */

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of the first ones. */
static int open_descriptors(void)
{
    struct pollfd each[256];
    int count = 0;

    for (int fd = 0; fd < 256; fd++)
        each[fd] = (struct pollfd){.fd = fd};
    (void)poll(each, 256, 0);
    for (int fd = 0; fd < 256; fd++)
        count += !(each[fd].revents & POLLNVAL);
    return count;
}

/* The input at the end of its memory, so that one byte too far is seen. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    const int before = open_descriptors();

    if (!exact)
        abort();
    memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    fuzz_must(open_descriptors() == before, "an input leaves no descriptor", NULL);
    progress->count++;
}

static void look_for_leaks(uint64_t upto)
{
    if (__lsan_do_recoverable_leak_check())
        _exit(LEAKS);
    progress->clean = upto;
}

static void child(uint64_t first, uint64_t count, double budget, int every)
{
    static uint8_t data[MOST_BYTES];
    double begin = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);

    progress->seed = 0;
    for (int i = 0; i < corpus_count && first == 1; i++) {
        progress->file = i;
        run_one(corpus[i].data, corpus[i].size);
    }
    for (uint64_t n = 0; n < count; n++) {
        progress->seed = first + n;
        run_one(data, make_input(first + n, data));
        if ((n + 1) % (uint64_t)every == 0)
            look_for_leaks(first + n + 1);
        if (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin >= budget ||
            seconds(CLOCK_MONOTONIC) - wall >= WALL * budget)
            break;
    }
    progress->used = seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    look_for_leaks(progress->seed + 1);
    _exit(0);
}

/* ---- The parent ------------------------------------------------------------------------ */

/* Waits; -1: one input did not end. */
static int wait_for(pid_t pid)
{
    double since = seconds(CLOCK_MONOTONIC);
    uint64_t seen = progress->count;
    int status;

    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == pid)
            return status;
        if (progress->count != seen) {
            seen = progress->count;
            since = seconds(CLOCK_MONOTONIC);
        }
        if (seconds(CLOCK_MONOTONIC) - since > HANG_SECONDS) {
            kill(pid, SIGABRT);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(2000);
    }
}

static int start(uint64_t first, uint64_t count, double budget, int every)
{
    pid_t pid;

    fflush(NULL);
    progress->clean = first;
    pid = fork();
    if (pid == 0)
        child(first, count, budget, every);
    return pid < 0 ? -1 : wait_for(pid);
}

static int report(const char *program, int status)
{
    uint8_t *data = malloc(MOST_BYTES);
    const struct input *input = &corpus[progress->file];
    size_t size = input->size;
    FILE *file = fopen("fuzz_" FUZZ_NAME ".failed", "wbe");

    if (!data)
        return 1;
    memcpy(data, input->data, size);
    if (progress->seed)
        size = make_input(progress->seed, data);
    if (file) {
        fwrite(data, 1, size, file);
        fclose(file);
    }
    fprintf(stderr, "fuzz_" FUZZ_NAME ": ");
    if (progress->seed)
        fprintf(stderr, "seed %llu ", (unsigned long long)progress->seed);
    else
        fprintf(stderr, "%s of the corpus ", input->name);
    if (status == -1)
        fprintf(stderr, "does not end");
    else if (WIFSIGNALED(status))
        fprintf(stderr, "ends by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == LEAKS)
        fprintf(stderr, "leaves memory behind");
    else
        fprintf(stderr, "ends with status %d", WEXITSTATUS(status));
    if (progress->seed)
        fprintf(stderr, "; again: SYMM_TEST_SEED=%llu SYMM_TEST_INPUTS=1 %s",
                (unsigned long long)progress->seed, program);
    fprintf(stderr, "; the input: fuzz_" FUZZ_NAME ".failed\n");
    free(data);
    return 1;
}

static double number_of(const char *name, double usual)
{
    const char *text = getenv(name);

    return text && *text ? strtod(text, NULL) : usual;
}

static int run_seeds(const char *program)
{
    const bool few = getenv("SYMM_TEST_INPUTS") != NULL;
    const double usual =
        number_of("SYMM_TEST_LONG", 0) > 0 ? 60 : (FUZZ_ASAN ? 1.2 : 0.25);
    double budget = few ? 1e9 : number_of("SYMM_TEST_FUZZ_SECONDS", usual);
    uint64_t first = (uint64_t)number_of("SYMM_TEST_SEED", 1), clean;
    uint64_t count = few ? (uint64_t)number_of("SYMM_TEST_INPUTS", 1) : UINT64_MAX >> 1;
    int status = start(first, count, budget, LOOK_EVERY);

    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == LEAKS) {
        clean = progress->clean; /* which one of the last ones was it? */
        status = start(clean, LOOK_EVERY, 1e9, 1);
    }
    if (status != 0)
        return report(program, status);
    printf("fuzz_" FUZZ_NAME ": %llu inputs, seeds %llu to %llu, %.1f s\n",
           (unsigned long long)progress->count, (unsigned long long)first,
           (unsigned long long)progress->seed, progress->used);
    return 0;
}

int main(int argc, char **argv)
{
    progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED || setenv("SYMM_LOG", "error", 1) != 0)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    if (argc == 1 && !read_corpus()) {
        fprintf(stderr, "fuzz_" FUZZ_NAME ": no corpus in tests/data/fuzz\n");
        return 1;
    }
    if (argc == 1)
        return run_seeds(argv[0]);
    for (int i = 1; i < argc; i++) {
        struct input input = {.size = 0};

        if (!read_input(argv[i], &input))
            return 1;
        printf("%s: %zu bytes\n", argv[i], input.size);
        fflush(stdout);
        run_one(input.data, input.size);
        free(input.data);
    }
    return 0;
}
