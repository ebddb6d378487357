/* SPDX-License-Identifier: MIT */
/*
 * kernels_rig.c - see kernels_rig.h.
 */
#include "kernels_rig.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "reference.h"

/* ---- The rig ----------------------------------------------------------------------- */

static void *memory(size_t bytes)
{
    void *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

/* Behind the scratch of each kind, which nothing else follows in a heap. */
static char *beyond(const struct rank *rank, bool lamport)
{
    const struct symm_cuda_scratch *scratch = &rank->rig->scratch;

    return rank->heap + (lamport ? scratch->lamport + scratch->lamport_bytes
                                 : scratch->ll + scratch->ll_bytes);
}

void rig_guard(struct rig *rig)
{
    for (int r = 0; r < rig->size; r++)
        for (int lamport = 0; lamport < 2; lamport++)
            memset(beyond(&rig->ranks[r], lamport), UNTOUCHED, GUARD);
}

void rig_open(struct rig *rig, int size, const char *library, uint32_t round,
              uint32_t call)
{
    memset(rig, 0, sizeof(*rig));
    rig->size = size;
    rig->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!rig->library)
        fail_msg("%s", dlerror());
    *(void **)&rig->launch = dlsym(rig->library, "simt_launch");
    assert_non_null(rig->launch);
    rig->scratch = (struct symm_cuda_scratch){.ll = 2 * MEGA,
                                              .ll_bytes = RIG_LL_BYTES,
                                              .lamport = 3 * MEGA,
                                              .lamport_bytes = RIG_LAMPORT_BYTES};
    rig->timeout = 60000000000u; /* less than SIMT_LIMIT */
    rig->dead = rig->odd = -1;
    assert_int_equal(pthread_barrier_init(&rig->start, NULL, (unsigned)size), 0);
    for (int r = 0; r < size; r++) {
        struct rank *rank = &rig->ranks[r];

        rank->rig = rig;
        rank->rank = r;
        rank->random = 77u + (uint32_t)r;
        rank->heap = memory(HEAP_BYTES);
        memset(rank->heap + rig->scratch.lamport, 0xff, rig->scratch.lamport_bytes);
        rank->state = memory(sizeof(struct symm_cuda_state));
        rank->record = memory(sizeof(struct symm_cuda_record));
        rank->in = memory(8 * MOST_BYTES + 4096);
        rank->out = memory(8 * MOST_BYTES + 4096);
        rank->want = memory(8 * MOST_BYTES + 4096);
        rank->all = memory(64 * MOST_BYTES + 4096);
        for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
            rank->state->block[CHANNEL][b] = (struct symm_device_block){round, call};
    }
    rig_guard(rig);
}

void rig_close(struct rig *rig)
{
    for (int r = 0; r < rig->size; r++) {
        struct rank *rank = &rig->ranks[r];

        for (size_t i = 0; i < GUARD; i++)
            if (beyond(rank, false)[i] != UNTOUCHED ||
                beyond(rank, true)[i] != UNTOUCHED)
                fail_msg("rank %d of %d: written behind the scratch", r, rig->size);
        munmap(rank->heap, HEAP_BYTES);
        munmap(rank->state, sizeof(struct symm_cuda_state));
        munmap(rank->record, sizeof(struct symm_cuda_record));
        munmap(rank->in, 8 * MOST_BYTES + 4096);
        munmap(rank->out, 8 * MOST_BYTES + 4096);
        munmap(rank->want, 8 * MOST_BYTES + 4096);
        munmap(rank->all, 64 * MOST_BYTES + 4096);
    }
    pthread_barrier_destroy(&rig->start);
    dlclose(rig->library);
}

bool rig_counters_agree(const struct rank *rank)
{
    const struct symm_device_block *block = rank->state->block[CHANNEL];

    for (int b = 1; b < SYMM_DEVICE_BLOCKS; b++)
        if (memcmp(&block[b], &block[0], sizeof(block[0])) != 0)
            return false;
    return true;
}

/* ---- Inputs and results ------------------------------------------------------------ */

struct symm_cuda_args rig_args(struct rank *rank)
{
    const struct rig *rig = rank->rig;
    struct symm_cuda_args args = {.scratch = rig->scratch,
                                  .result = &rank->result,
                                  .channel = CHANNEL,
                                  .team = {.layout = SYMM_DEVICE_LAYOUT,
                                           .rank = rank->rank,
                                           .size = rig->size,
                                           .timeout = rig->timeout,
                                           .state = rank->state,
                                           .record = rank->record}};

    for (int r = 0; r < rig->size; r++)
        args.team.base[r] = rig->ranks[r].heap;
    return args;
}

void rig_fill(const struct kernel_call *call, int size, int rank, void *to)
{
    size_t count = kernel_call_in_count(call, size),
           bytes = count * symm_dtype_size(call->dtype);
    uint32_t random = (call->seed * 2654435761u + (uint32_t)rank) | 1;
    unsigned char *byte = to;

    if (!call->raw) {
        reference_fill(call->dtype, call->op, call->seed, rank, 0, count, to);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        uint32_t value = kernel_call_random(&random);

        byte[i] = (unsigned char)(value >> 24);
        if ((value & 0x700) == 0) /* runs of ones: sentinels and NaNs */
            for (size_t k = i & ~(size_t)3; k <= i; k++)
                byte[k] = 0xff;
    }
}

/* all: inputs of all ranks one after the other, `stride` bytes apart. */
void rig_expect(const struct kernel_call *call, int size, int rank, const char *all,
                size_t stride, char *want)
{
    size_t bytes = kernel_call_bytes(call);
    const void *in[SYMM_DEVICE_RANKS];
    void *out = want;

    for (int r = 0; r < size; r++) {
        const char *theirs = all + (size_t)r * stride;

        in[r] = theirs;
        if (call->kind == SYMM_KIND_ALL_GATHER)
            memcpy(want + (size_t)r * bytes, theirs, bytes);
        else if (call->kind == SYMM_KIND_ALL_TO_ALL)
            memcpy(want + (size_t)r * bytes, theirs + (size_t)rank * bytes, bytes);
        else if (call->kind == SYMM_KIND_BROADCAST && r == call->root)
            memcpy(want, theirs, bytes);
        else if (call->kind == SYMM_KIND_REDUCE_SCATTER)
            in[r] = theirs + (size_t)rank * bytes;
    }
    if (call->kind == SYMM_KIND_ALL_REDUCE || call->kind == SYMM_KIND_REDUCE_SCATTER)
        symm__reduce_find(SYMM_ISA_C, call->dtype, call->op)(&out, 1, in, size,
                                                             call->count);
}

void rig_bad(struct rank *rank, const struct kernel_call *call, const char *format, ...)
{
    va_list list;
    char text[80];

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (rank->bad++ == 0)
        snprintf(rank->what, sizeof(rank->what),
                 "call %d of rank %d: kind %d algorithm %d %s %s count %zu: %s",
                 (int)(call - rank->rig->calls), rank->rank, (int)call->kind,
                 (int)call->algorithm, symm_dtype_name(call->dtype),
                 symm_op_name(call->op), call->count, text);
}
