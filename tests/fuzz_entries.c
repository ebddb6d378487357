/* SPDX-License-Identifier: MIT */
/*
 * fuzz_entries.c - what an allgather gives the bootstrap of a job (bootstrap/bootstrap.h): the
 * entries of all ranks.
 *
 * The first line is "rank R SIZE HOSTS": rank r is on host r % HOSTS. Entries are those that the
 * ranks would give, until lines change them:
 *   byte R AT VALUE, int R AT VALUE    in rank R's entry, at an offset
 *   swap R OTHER, same R OTHER         two entries change places; one becomes the other
 *   fail                               the allgather fails
 * A rank that is alone on its host gets no sockets, and a listener if there are other hosts.
 */
#include <dirent.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "fuzz.h"

#define RANKS_MOST 80
#define ENTRY_MOST 256

struct gather {
    struct fuzz_script script;
    int rank, size, hosts;
    bool own; /* this rank's entry has come back as it was */
};

static uint8_t *at(void *all, size_t bytes, int64_t rank)
{
    return (uint8_t *)all + (size_t)rank * bytes;
}

static void change(struct fuzz_line *line, const struct gather *gather, size_t bytes,
                   void *all, int *result)
{
    char word[8];
    uint8_t kept[ENTRY_MOST];
    int64_t rank, other, value;
    int32_t narrow;

    fuzz_word(line, word, sizeof(word));
    rank = fuzz_number(line, 0);
    other = fuzz_number(line, 0);
    value = fuzz_number(line, 0);
    narrow = (int32_t)value;
    if (strcmp(word, "fail") == 0)
        *result = 7;
    if (rank < 0 || rank >= gather->size || other < 0)
        return;
    if (strcmp(word, "byte") == 0 && other < (int64_t)bytes) {
        at(all, bytes, rank)[other] = (uint8_t)value;
    } else if (strcmp(word, "int") == 0 && other <= (int64_t)bytes - 4) {
        memcpy(at(all, bytes, rank) + other, &narrow, sizeof(narrow));
    } else if (other < gather->size && strcmp(word, "same") == 0 && rank != other) {
        memcpy(at(all, bytes, rank), at(all, bytes, other), bytes);
    } else if (other < gather->size && strcmp(word, "swap") == 0) {
        memcpy(kept, at(all, bytes, rank), bytes);
        memmove(at(all, bytes, rank), at(all, bytes, other), bytes);
        memcpy(at(all, bytes, other), kept, bytes);
    }
}

/* The caller's allgather: other ranks give what this one does, but for rank and host. */
static int allgather(void *arg, const void *mine, size_t bytes, void *all)
{
    struct gather *gather = arg;
    struct fuzz_script script = gather->script;
    struct fuzz_line line;
    int result = 0;

    if (bytes > ENTRY_MOST)
        abort();
    for (int32_t r = 0; r < gather->size; r++) {
        uint64_t host = 0;

        memcpy(at(all, bytes, r), mine, bytes);
        memcpy(at(all, bytes, r) + 8, &r, sizeof(r)); /* after magic and version */
        memcpy(&host, at(all, bytes, r) + 48, sizeof(host));
        host += (uint64_t)(r % gather->hosts - gather->rank % gather->hosts);
        memcpy(at(all, bytes, r) + 48, &host, sizeof(host));
    }
    for (int lines = 0; lines < 32 && fuzz_next(&script, &line); lines++)
        change(&line, gather, bytes, all, &result);
    gather->own = memcmp(at(all, bytes, gather->rank), mine, bytes) == 0;
    return result;
}

static void check_world(const struct gather *gather, const struct symm_world *world)
{
    fuzz_must(world->hosts >= 1 && world->hosts <= gather->size, "there are hosts",
              NULL);
    fuzz_must(world->local_size >= 1 && world->local_size <= SYMM_BOOTSTRAP_MAX,
              "a host has ranks", NULL);
    fuzz_must((world->listener >= 0) == (world->hosts > 1), "a relay listens", NULL);
    for (int r = 0; r < gather->size; r++)
        fuzz_must(world->host_of[r] >= 0 && world->host_of[r] < world->hosts &&
                      world->local_of[r] < SYMM_BOOTSTRAP_MAX,
                  "a rank has a host and a place there", NULL);
    for (int h = 0; h < world->hosts; h++)
        fuzz_must(memchr(world->at[h].name, 0, sizeof(world->at[h].name)) != NULL,
                  "a host's name ends", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gather gather = {.script = fuzz_script(data, size)};
    const symm_bootstrap bootstrap = {
        .size = sizeof(bootstrap), .allgather = allgather, .arg = &gather};
    struct symm_world world = {.listener = -1};
    struct symm_bootstrap_run run = {.key = "fuzz", .timeout = 0.002, .world = &world};
    char directory[] = "/tmp/symm-fuzz-XXXXXX";
    struct fuzz_line line;
    char word[8];
    int peer_fd[RANKS_MOST];
    symm_status status;

    if (!fuzz_next(&gather.script, &line))
        return 0;
    fuzz_word(&line, word, sizeof(word));
    gather.rank = (int)((uint64_t)fuzz_number(&line, 0) % (RANKS_MOST / 2));
    gather.size = gather.rank + 1 + (int)((uint64_t)fuzz_number(&line, 1) % 40);
    gather.hosts = 1 + (int)((uint64_t)fuzz_number(&line, 1) % 80);
    run.rank = gather.rank;
    run.size = gather.size;
    if (!mkdtemp(directory) || setenv("SYMM_RUNTIME_DIR", directory, 1) != 0 ||
        setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1) != 0)
        abort();
    status = symm__bootstrap_given(&run, &bootstrap, peer_fd);
    if (status == SYMM_OK && gather.size > 1) {
        fuzz_must(gather.own, "the own entry came back", NULL);
        check_world(&gather, &world);
        symm__seqpacket_close(peer_fd, gather.size);
    } else {
        fuzz_must(status == SYMM_OK || symm_last_error()[0], "a failure has a sentence",
                  NULL);
    }
    symm__world_finish(&world);
    fuzz_must(rmdir(directory) == 0, "nothing is left in the file system", directory);
    return 0;
}
