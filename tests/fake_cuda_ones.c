/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_ones.c - the ones of a new team's scratch, filled where a kernel will look at them.
 *
 * The library fills 61.5 MiB of each team's scratch with 0xff, of which most teams of the suites use
 * nothing: a page that is touched costs more than all else of a small job. So such a fill of fresh
 * memory is left out (fake_ones_later), and made for all members of the team before the first launch
 * of a kernel that may read the channel's packets (fake_ones_now). Whether it is made is marked in
 * each member's memory, in the gap before its scratch, which is not used.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda_private.h"
#include "symm/symm.h"

#define MARK_BYTES 64         /* from a channel's mark to the next one's */
#define FILLED     UINT32_MAX /* a mark; 0: not yet; else the process that fills */

static void fill_ones(void *to, size_t bytes)
{
#if defined(MADV_POPULATE_WRITE) /* one call for all pages, not a fault for each */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)to;
    const uintptr_t low = (begin + page - 1) / page * page,
                    high = (begin + bytes) / page * page;

    if (low < high)
        (void)madvise((void *)low, high - low, MADV_POPULATE_WRITE);
#endif
    memset(to, 0xff, bytes);
}

bool fake_ones_later(const void *to, size_t bytes)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    uint64_t first = 1, last = 1;

    symm__cuda_scratch_layout(SYMM_PAD_BYTES, 2, scratch);
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (scratch[c].lamport_bytes == bytes) {
            memcpy(&first, to, sizeof(first));
            memcpy(&last, (const char *)to + bytes - sizeof(last), sizeof(last));
            return first == 0 && last == 0;
        }
    return false;
}

/* Has the process ended, perhaps without its parent's notice? */
static bool has_ended(uint32_t pid)
{
    char path[32], line[256] = "";
    const char *state;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return true;
    (void)!fgets(line, sizeof(line), file);
    fclose(file);
    state = strrchr(line, ')'); /* after the name: " Z" */
    return state && (state[2] == 'Z' || state[2] == 'X');
}

static void fill_once(char *to, size_t bytes, uint32_t *mark)
{
    uint32_t seen;

    /* acquire: the ones lie there if it is FILLED */
    while ((seen = __atomic_load_n(mark, __ATOMIC_ACQUIRE)) != FILLED) {
        if (seen != 0 && !has_ended(seen)) {
            sched_yield();
        } else if (__atomic_compare_exchange_n(mark, &seen, (uint32_t)getpid(), false,
                                               __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            fill_ones(to, bytes);
            __atomic_store_n(mark, FILLED, __ATOMIC_RELEASE);
        }
    }
}

/* A type with a pattern to spare: all bits set are no number. */
static bool may_spare(int32_t dtype)
{
    return dtype == SYMM_FLOAT32 || dtype == SYMM_FLOAT16 || dtype == SYMM_BFLOAT16 ||
           dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_FLOAT8_E5M2;
}

/* These read no such packet, by their names (kernels/cuda): one that did would find the zeros of fresh
 * memory, and take them for its peers' numbers. */
static bool needs_none(const char *name)
{
    static const char *const parts[] = {"_copy_in_", "_pull_",     "_inplace_",
                                        "_stream_",  "_multimem_", "_ll_"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

/* Kernels that may read packets which are empty when all their bits are set. */
static bool reads_ones(const char *name, const struct symm_cuda_args *args)
{
    return (strncmp(name, "symm_all_reduce", 15) == 0 ||
            strncmp(name, "symm_reduce_scatter", 19) == 0) &&
           !needs_none(name) && args->scratch.lamport_bytes > 0 &&
           may_spare(args->dtype);
}

void fake_ones_now(const char *name, const struct symm_cuda_args *args)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    const struct symm_device_team *team = &args->team;

    if (!reads_ones(name, args))
        return;
    symm__cuda_scratch_layout(team->pad + SYMM_PAD_BYTES, team->size, scratch);
    if (args->scratch.lamport != scratch[args->channel].lamport)
        fake_die("the scratch of channel %u lies elsewhere than its team's",
                 args->channel);
    for (int m = 0; m < team->size; m++)
        fill_once(team->base[m] + args->scratch.lamport, args->scratch.lamport_bytes,
                  (uint32_t *)(void *)(team->base[m] + scratch[0].ll -
                                       (args->channel + 1) * MARK_BYTES));
}
