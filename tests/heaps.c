/* SPDX-License-Identifier: MIT */
/*
 * heaps.c - see heaps.h. Memory comes from mmap: untouched scratch costs nothing.
 */
#include "heaps.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULARITY 2097152u /* the part of a heap that stays unused */

static void *map(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert(memory != MAP_FAILED);
    return memory;
}

static uint64_t place(struct heaps *heaps, const struct heaps_options *options)
{
    uint64_t at = GRANULARITY + SYMM_PAD_BYTES;

    if (options->size > SYMM_FEW_RANKS)
        at += sizeof(struct symm_device_wide_pads);

    for (int c = 0; c < SYMM_CHANNELS; c++) {
        struct symm_cuda_scratch *scratch = &heaps->scratch[c];

        scratch->ll = at;
        if (options->only > 0 && c != options->only - 1)
            continue;
        scratch->ll_bytes = options->ll;
        scratch->lamport = scratch->ll + scratch->ll_bytes;
        scratch->lamport_bytes = options->lamport;
        scratch->stage = scratch->lamport + scratch->lamport_bytes;
        scratch->stage_bytes = options->stage;
        at = scratch->stage + scratch->stage_bytes;
    }
    heaps->buffers = at;
    return at + options->buffers;
}

static void make_rank(struct heaps *heaps, const struct heaps_options *options,
                      int rank)
{
    struct symm_device_team *team = &heaps->team[rank];
    char *base = map(heaps->bytes);

    assert(mprotect(base, GRANULARITY, PROT_NONE) == 0);
    for (int c = 0; c < SYMM_CHANNELS; c++)
        memset(base + heaps->scratch[c].lamport, 0xff, heaps->scratch[c].lamport_bytes);
    team->layout = SYMM_DEVICE_LAYOUT;
    team->rank = rank;
    team->size = heaps->size;
    team->timeout = (uint64_t)((options->timeout > 0 ? options->timeout : 60) * 1e9);
    team->pad = GRANULARITY;
    team->state = map(sizeof(struct symm_cuda_state));
    team->record = map(sizeof(struct symm_cuda_record));
    for (int c = 0; c < SYMM_CHANNELS; c++)
        for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
            team->state->block[c][b] =
                (struct symm_device_block){options->first_round, options->first_call};
    for (int viewer = 0; viewer < heaps->size; viewer++)
        heaps->team[viewer].base[rank] = base;
}

struct heaps *heaps_create(const struct heaps_options *options)
{
    struct heaps *heaps = calloc(1, sizeof(*heaps));

    assert(heaps != NULL && options->size >= 1 && options->size <= SYMM_DEVICE_RANKS);
    heaps->size = options->size;
    heaps->bytes = place(heaps, options);
    for (int rank = 0; rank < heaps->size; rank++)
        make_rank(heaps, options, rank);
    return heaps;
}

void heaps_destroy(struct heaps *heaps)
{
    for (int rank = 0; rank < heaps->size; rank++) {
        struct symm_device_team *team = &heaps->team[rank];

        munmap(team->base[rank], heaps->bytes);
        munmap(team->state, sizeof(struct symm_cuda_state));
        munmap(team->record, sizeof(struct symm_cuda_record));
    }
    free(heaps);
}

void *heaps_at(const struct heaps *heaps, int rank, uint64_t offset)
{
    assert(offset <= heaps->bytes);
    return heaps->team[rank].base[rank] + offset;
}

struct symm_cuda_args heaps_args(const struct heaps *heaps, int rank, uint32_t channel)
{
    return (struct symm_cuda_args){.team = heaps->team[rank],
                                   .scratch = heaps->scratch[channel],
                                   .tag = 1,
                                   .channel = channel,
                                   .flags =
                                       SYMM_CUDA_ENTRY_BARRIER | SYMM_CUDA_EXIT_BARRIER,
                                   .signal = -1};
}

/* ---- Kernels -------------------------------------------------------------------- */

/* The fake driver stays loaded: the loader counts, and nothing is left over. */
void *heaps_symbol(const char *name)
{
#if defined(SYMM_FAKE_CUDA)
    void *library = dlopen(SYMM_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *address = library ? dlsym(library, name) : NULL;

    if (library)
        dlclose(library);
    return address;
#else
    (void)name;
    return NULL;
#endif
}

heaps_kernel heaps_find(const char *name)
{
    heaps_kernel kernel;

    *(void **)&kernel = heaps_symbol(name);
    return kernel;
}

void heaps_launch(heaps_kernel kernel, const struct symm_cuda_args *args,
                  unsigned blocks, unsigned threads)
{
    void (*launch)(heaps_kernel kernel, const struct symm_cuda_args *args,
                   unsigned blocks, unsigned threads);

    *(void **)&launch = heaps_symbol("simt_launch");
    assert(launch != NULL && kernel != NULL);
    launch(kernel, args, blocks, threads);
}

/* ---- Ranks as threads ------------------------------------------------------------ */

struct rank_thread {
    struct heaps *heaps;
    int rank;
    void (*fn)(struct heaps *heaps, int rank, void *arg);
    void *arg;
};

static void *run_rank(void *arg)
{
    struct rank_thread *thread = arg;

    thread->fn(thread->heaps, thread->rank, thread->arg);
    return NULL;
}

void heaps_run(struct heaps *heaps,
               void (*fn)(struct heaps *heaps, int rank, void *arg), void *arg)
{
    struct rank_thread threads[SYMM_DEVICE_RANKS];
    pthread_t ids[SYMM_DEVICE_RANKS];

    for (int rank = 0; rank < heaps->size; rank++) {
        threads[rank] = (struct rank_thread){heaps, rank, fn, arg};
        assert(pthread_create(&ids[rank], NULL, run_rank, &threads[rank]) == 0);
    }
    for (int rank = 0; rank < heaps->size; rank++)
        assert(pthread_join(ids[rank], NULL) == 0);
}

void heaps_delay(uint64_t *seed, unsigned most)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    if ((*seed >> 33) % 4 == 0)
        usleep((useconds_t)((*seed >> 35) % (most + 1u)));
}

/* Ends the test if bytes are not `value`. */
static void check_blank(const struct heaps *heaps, int rank, uint64_t offset,
                        uint64_t bytes, unsigned char value)
{
    const unsigned char *at = heaps_at(heaps, rank, offset);

    for (uint64_t i = 0; i < bytes; i++)
        assert(at[i] == value);
}

/* The scratch of the channels before and after. */
static void check_neighbours(const struct heaps *heaps, int rank, uint32_t channel)
{
    for (uint32_t c = channel - 1; c <= channel + 1; c += 2) {
        const struct symm_cuda_scratch *scratch = &heaps->scratch[c];

        if (c >= SYMM_CHANNELS)
            continue;
        check_blank(heaps, rank, scratch->ll, scratch->ll_bytes, 0);
        check_blank(heaps, rank, scratch->lamport, scratch->lamport_bytes, 0xff);
        check_blank(heaps, rank, scratch->stage, scratch->stage_bytes, 0);
    }
}

void heaps_check(const struct heaps *heaps, uint32_t channel)
{
    const struct symm_device_block *first = heaps->team[0].state->block[channel];

    for (int rank = 0; rank < heaps->size; rank++) {
        const struct symm_device_state *state = heaps->team[rank].state;

        assert(state->failed[16 * channel] == 0);
        assert(heaps->team[rank].record->state == 0);
        check_neighbours(heaps, rank, channel);
        for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++) {
            assert(state->block[channel][b].round == first->round);
            assert(state->block[channel][b].call == first->call);
        }
    }
}
