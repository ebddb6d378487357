/* SPDX-License-Identifier: MIT */
/*
 * site_table.c - the table in a control page that gives the call site of a tag.
 *
 * Words in GPU memory hold a tag, never a site; when ranks disagree the host looks the tag up
 * in the page of the rank that wrote it. A rank writes its own table, before the first launch
 * with the tag: fields first, tag last (release). A newer site that hashes to a taken
 * slot empties it, then fills it; a reader takes a copy only if the tag was the same before and
 * after, and makes its text printable.
 *
 * No page of a rank on another host is mapped. Where a call of a team over hosts has failed, each
 * rank writes the site of its own call into its cell of a board of the relay, for those ranks that
 * have seen a tag which they do not know.
 */
#include <string.h>

#include "core/failure.h"
#include "cuda/launcher.h"
#include "util/log.h"
#include "util/status.h"

#define PROBES 16

#define SITE_WORDS (sizeof(struct symm_site) / sizeof(uint32_t))

static uint32_t *words_of(struct symm_site *site)
{
    return (uint32_t *)(void *)site; /* the tag is the first */
}

/* The slot that has the tag, else an empty one, else the one that is replaced. */
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

void symm__cuda_site_name_publish(struct symm_cuda_launcher *launcher, uint32_t tag,
                                  const char *name)
{
    struct symm_site site = {.tag = tag, .kind = SYMM_KIND_COUNT};

    if (tag == 0)
        return;
    memcpy(site.name, name, strnlen(name, sizeof(site.name) - 1));
    symm__cuda_site_publish(launcher, &site);
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

/* ---- Over hosts ----------------------------------------------------------------------- */

/* The board of sites of a team; its uid alone names the board of symm_team_shrink. */
static uint64_t board_of(const symm_team *team)
{
    return UINT64_C(0x73697465) << 32 | team->uid;
}

void symm__cuda_site_tell(const symm_team *team, uint32_t tag)
{
    const symm_ctx *ctx = team->ctx;
    struct symm_site site;

    if (!team->far ||
        __atomic_exchange_n(&team->cuda->site_told, 1, __ATOMIC_RELAXED) ||
        !symm__cuda_site_find(ctx, ctx->rank, tag, &site))
        return;
    if (symm__relay_write(ctx->oob.relay, board_of(team), 1, &site, sizeof(site)) !=
        SYMM_OK)
        symm__log(SYMM_LOG_DEBUG, "other hosts are not told of a site: %s",
                  symm_last_error());
}

/* A search for a rank's site among those that were reported. */
struct search {
    int rank;
    uint32_t tag;
    bool found;
    struct symm_site *site;
};

static void take_cell(void *user, int rank, const void *bytes, size_t count)
{
    struct search *search = user;
    struct symm_site told;

    if (rank != search->rank || count != sizeof(told))
        return;
    memcpy(&told, bytes, sizeof(told));
    if (told.tag != search->tag)
        return;
    symm__site_copy(&told, search->site);
    search->found = true;
}

bool symm__cuda_site_of(const symm_team *team, int place, uint32_t tag,
                        struct symm_site *site)
{
    const symm_ctx *ctx = team->ctx;
    struct search search = {symm__team_rank_at(team, place), tag, false, site};

    if (!symm__team_far_at(team, place))
        return symm__cuda_site_find(ctx, search.rank, tag, site);
    if (symm__cuda_site_find(ctx, ctx->rank, tag, site))
        return true; /* ranks that make one call have one tag */
    if (tag != 0)
        (void)symm__relay_read(ctx->oob.relay, board_of(team), 0, take_cell, &search);
    return search.found;
}
