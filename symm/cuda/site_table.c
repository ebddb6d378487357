/* SPDX-License-Identifier: MIT */
/*
 * site_table.c - the table in a control page that gives the call site of a tag.
 *
 * Words in GPU memory hold a tag, never a site; when ranks disagree the host looks the tag up
 * in the page of the rank that wrote it. A rank writes its own table, before the first launch
 * with the tag: fields first, tag last (release). A newer site that hashes to a taken
 * slot empties it, then fills it; a reader takes a copy only if the tag was the same before and
 * after, and makes its text printable.
 */
#include <string.h>

#include "core/failure.h"
#include "cuda/launcher.h"

#define PROBES 16

#define SITE_WORDS (sizeof(struct symm_site) / sizeof(uint32_t))

static uint32_t *words_of(struct symm_site *site)
{
    return (uint32_t *)(void *)site; /* the tag is the first */
}

/* The slot that has the tag, else an empty one, else the one that must make room. */
static struct symm_site *place_of(struct symm_control *control, uint32_t tag)
{
    struct symm_site *empty = NULL;

    for (uint32_t i = 0; i < PROBES; i++) {
        struct symm_site *slot = &control->site[(tag + i) & (SYMM_CONTROL_SITES - 1)];
        uint32_t now = __atomic_load_n(&slot->tag, __ATOMIC_RELAXED);

        if (now == tag)
            return slot;
        if (now == 0 && !empty)
            empty = slot;
    }
    return empty ? empty : &control->site[tag & (SYMM_CONTROL_SITES - 1)];
}

void symm__cuda_site_publish(struct symm_cuda_launcher *launcher,
                             const struct symm_site *site)
{
    const symm_ctx *ctx = launcher->ctx;
    struct symm_site copy = *site, *slot;

    pthread_mutex_lock(&launcher->pool);
    slot = place_of(symm__own_control(ctx), site->tag);
    if (slot->tag != site->tag) {
        __atomic_store_n(&slot->tag, 0, __ATOMIC_RELAXED);
        /* release: a thread that reads a new field sees that the old tag is gone */
        __atomic_thread_fence(__ATOMIC_RELEASE);
        for (size_t i = 1; i < SITE_WORDS; i++)
            __atomic_store_n(&words_of(slot)[i], words_of(&copy)[i], __ATOMIC_RELAXED);
        /* release: pairs with the acquire in symm__cuda_site_find */
        __atomic_store_n(&slot->tag, site->tag, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&launcher->pool);
}

bool symm__cuda_site_find(const symm_ctx *ctx, int world_rank, uint32_t tag,
                          struct symm_site *site)
{
    struct symm_control *control = symm__control(ctx, world_rank);
    struct symm_site copy;

    for (uint32_t i = 0; control && tag != 0 && i < PROBES; i++) {
        struct symm_site *slot = &control->site[(tag + i) & (SYMM_CONTROL_SITES - 1)];

        if (__atomic_load_n(&slot->tag, __ATOMIC_ACQUIRE) != tag)
            continue;
        copy.tag = tag;
        for (size_t w = 1; w < SITE_WORDS; w++)
            words_of(&copy)[w] = __atomic_load_n(&words_of(slot)[w], __ATOMIC_RELAXED);
        /* acquire: if a field was new, this load finds that the old tag is gone */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&slot->tag, __ATOMIC_RELAXED) != tag)
            return false;
        symm__site_copy(&copy, site);
        return true;
    }
    return false;
}
