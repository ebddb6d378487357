/* SPDX-License-Identifier: MIT */
/*
 * domain.c - see domain.h.
 *
 * Two exchanges of all ranks, where SYMM_FABRIC asks for it and there are several hosts on CUDA:
 * what each rank offers (its clique, and the handle of memory in which it wrote numbers), then what
 * each has read in the others' memory. Domains are found by pure functions of these messages.
 */
#include "setup/domain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_wait.h"
#include "core/device_ops.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/status.h"
#include "util/text.h"

#define DOMAIN_TAG 0x646f6d61u
#define NONE       (-1)

/* What a rank offers. */
struct offer {
    uint8_t handle[SYMM_FABRIC_BYTES];
    uint8_t cluster[16];
    uint64_t number; /* of which the contents of its memory are made */
    uint32_t clique;
    uint32_t good; /* 0: it has nothing to offer */
    char why[160]; /* then: the reason */
};

/* Whether a rank could read the memory of its clique's other hosts; else why not. */
struct verdict {
    uint32_t good;
    char why[236];
};

/* A host, as all ranks see it. */
struct host {
    int first;  /* its lowest rank */
    int ranks;  /* how many it has */
    int leader; /* the lowest host of its clique; NONE: it offers nothing */
    int broken; /* a rank because of which its clique is no domain; NONE: none */
};

struct search {
    symm_ctx *ctx;
    const struct symm_oob_message *offers, *verdicts;
    struct host *hosts; /* [ctx->hosts] */
    int here;           /* this rank's host */
};

static void set_why(struct search *s, const char *text)
{
    snprintf(s->ctx->why_domain, sizeof(s->ctx->why_domain), "%.255s", text);
}

static const struct offer *offer_of(const struct search *s, int rank)
{
    return s->offers[rank].bytes;
}

/* ---- Exchanges ------------------------------------------------------------------------ */

/* Checks the size of all messages; their texts become printable. */
static symm_status check_form(const symm_ctx *ctx, struct symm_oob_message *messages,
                              size_t bytes, size_t text, size_t text_bytes)
{
    for (int r = 0; r < ctx->size; r++) {
        if (messages[r].bytes_count != bytes)
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed domain", r);
        (void)symm__printable((char *)messages[r].bytes + text, text_bytes);
    }
    return SYMM_OK;
}

/* mine: a failure of this rank before; then the exchange fails on all ranks with its sentence. */
static symm_status exchange(symm_ctx *ctx, uint32_t step, symm_status mine,
                            const void *bytes, size_t count, double timeout,
                            struct symm_oob_message *messages)
{
    const struct symm_exchange exchange = {
        .what = "the NVLink domains of the job",
        .tag = DOMAIN_TAG,
        .sequence = step,
        .before = step == 0 ? SYMM_CONTROL_MAGIC : 0,
        .members = ctx->room.everyone,
        .count = ctx->size,
        .timeout = timeout,
        .status = mine,
        .bytes = bytes,
        .bytes_count = count,
    };

    return symm__control_exchange(ctx, 0, exchange.what, &exchange, messages);
}

/* ---- Domains ---------------------------------------------------------------------------- */

static bool same_clique(const struct offer *a, const struct offer *b)
{
    return a->good && b->good && a->clique == b->clique &&
           memcmp(a->cluster, b->cluster, sizeof(a->cluster)) == 0;
}

/* Finds each host's clique, by its leader; a host whose ranks are not in one clique has none. */
static void find_cliques(struct search *s)
{
    const symm_ctx *ctx = s->ctx;

    for (int h = 0; h < ctx->hosts; h++)
        s->hosts[h] = (struct host){.first = NONE, .leader = h, .broken = NONE};
    for (int r = 0; r < ctx->size; r++) {
        struct host *host = &s->hosts[ctx->host_of[r]];

        if (host->first == NONE)
            host->first = r;
        host->ranks++;
        if (!same_clique(offer_of(s, host->first), offer_of(s, r)) &&
            host->leader != NONE) {
            host->leader = NONE;
            host->broken = r;
        }
    }
    for (int h = 0; h < ctx->hosts; h++) {
        struct host *host = &s->hosts[h];

        for (int at = 0; host->leader == h && at < h; at++)
            if (s->hosts[at].leader == at &&
                same_clique(offer_of(s, s->hosts[at].first), offer_of(s, host->first)))
                host->leader = at;
    }
}

/* How many ranks are in the clique of that leader; *hosts: how many hosts. */
static int clique_size(const struct search *s, int leader, int *hosts)
{
    int ranks = 0;

    *hosts = 0;
    for (int h = leader; leader != NONE && h < s->ctx->hosts; h++)
        if (s->hosts[h].leader == leader) {
            ranks += s->hosts[h].ranks;
            ++*hosts;
        }
    return ranks;
}

/* Why this host's clique cannot be a domain of several hosts, by the offers alone; "": it can. */
static const char *objection(const struct search *s, char *text, size_t bytes)
{
    const symm_ctx *ctx = s->ctx;
    const struct host *here = &s->hosts[s->here];
    int hosts;
    const int ranks = clique_size(s, here->leader, &hosts);

    text[0] = '\0';
    if (here->leader == NONE && !offer_of(s, here->broken)->good)
        snprintf(text, bytes, "rank %d: %s", here->broken,
                 offer_of(s, here->broken)->why);
    else if (here->leader == NONE)
        snprintf(text, bytes, "ranks %d and %d of one host are in two cliques",
                 here->first, here->broken);
    else if (hosts == 1)
        for (int h = 0; h < ctx->hosts && text[0] == '\0'; h++) {
            const struct host *host = &s->hosts[h];

            if (h == s->here)
                continue;
            if (host->leader == NONE && !offer_of(s, host->broken)->good)
                snprintf(text, bytes, "no other host is in clique %u; rank %d: %s",
                         offer_of(s, here->first)->clique, host->broken,
                         offer_of(s, host->broken)->why);
            else
                snprintf(text, bytes,
                         "no other host is in clique %u of this cluster: rank %d has "
                         "clique %u of %s",
                         offer_of(s, here->first)->clique, host->first,
                         offer_of(s, host->first)->clique,
                         memcmp(offer_of(s, host->first)->cluster,
                                offer_of(s, here->first)->cluster, 16) == 0
                             ? "it"
                             : "another");
        }
    else if (ranks > SYMM_DEVICE_RANKS)
        snprintf(text, bytes, "the clique has %d ranks; a team's kernels take up to %d",
                 ranks, SYMM_DEVICE_RANKS);
    return text;
}

/* May the clique be a domain of several hosts, by the offers alone? */
static bool is_candidate(const struct search *s, int leader)
{
    int hosts;
    const int ranks = clique_size(s, leader, &hosts);

    return hosts > 1 && ranks <= SYMM_DEVICE_RANKS;
}

/* Reads the memory of the clique's ranks on other hosts. */
static struct verdict prove(const struct search *s)
{
    const symm_ctx *ctx = s->ctx;
    const int leader = s->hosts[s->here].leader;
    struct verdict verdict = {.good = 1};

    for (int r = 0; verdict.good && r < ctx->size; r++) {
        const struct offer *theirs = offer_of(s, r);

        if (!symm__is_far(ctx, r) || s->hosts[ctx->host_of[r]].leader != leader ||
            ctx->ops->fabric->prove(ctx->backend, theirs->handle, theirs->number) ==
                SYMM_OK)
            continue;
        verdict.good = 0;
        snprintf(verdict.why, sizeof(verdict.why),
                 "rank %d cannot use the memory of rank %d on host %.40s: %.110s",
                 ctx->rank, r, symm__host_of_rank(ctx, r), symm_last_error());
    }
    return verdict;
}

/* A clique is no domain if one of its ranks could not read another's memory. */
static void mark_broken(struct search *s)
{
    for (int r = 0; r < s->ctx->size; r++) {
        const struct verdict *theirs = s->verdicts[r].bytes;
        const int leader = s->hosts[s->ctx->host_of[r]].leader;

        if (leader != NONE && !theirs->good && s->hosts[leader].broken == NONE)
            s->hosts[leader].broken = r;
    }
}

/* Is the host in a domain of several hosts? */
static bool spans_hosts(const struct search *s, int host)
{
    const int leader = s->hosts[host].leader;

    return leader != NONE && s->hosts[leader].broken == NONE && is_candidate(s, leader);
}

/* Numbers the domains by their lowest ranks, and gives each rank its place in its own. */
static symm_status number_all(struct search *s)
{
    symm_ctx *ctx = s->ctx;
    int32_t *domain_of = calloc((size_t)ctx->size, sizeof(*domain_of));
    uint16_t *place_of = calloc((size_t)ctx->size, sizeof(*place_of));
    int *number = calloc(2 * (size_t)ctx->hosts, sizeof(*number));
    int *count = number ? number + ctx->hosts : NULL, domains = 0;

    if (!domain_of || !place_of || !number) {
        free(domain_of);
        free(place_of);
        free(number);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the domains of %d ranks",
                          ctx->size);
    }
    for (int h = 0; h < ctx->hosts; h++)
        number[h] = spans_hosts(s, h) && s->hosts[h].leader != h
                        ? number[s->hosts[h].leader]
                        : domains++;
    for (int r = 0; r < ctx->size; r++) {
        domain_of[r] = number[ctx->host_of[r]];
        place_of[r] = (uint16_t)count[domain_of[r]]++;
    }
    ctx->domain_of = domain_of;
    ctx->place_of = place_of;
    ctx->place = place_of[ctx->rank];
    ctx->places = count[domain_of[ctx->rank]];
    ctx->wide = spans_hosts(s, s->here);
    free(number);
    return SYMM_OK;
}

/* ---- The search --------------------------------------------------------------------------- */

/* *proof: the memory whose handle is offered, for `withdraw`. */
static struct offer offer_make(symm_ctx *ctx, void **proof)
{
    struct offer offer = {.number =
                              ((uint64_t)ctx->rank + 1) << 32 | (uint32_t)ctx->size};
    struct symm_clique clique;
    symm_status status = ctx->ops->fabric->clique(ctx->backend, &clique);

    if (status == SYMM_OK) {
        memcpy(offer.cluster, clique.cluster, sizeof(offer.cluster));
        offer.clique = clique.id;
        status =
            ctx->ops->fabric->offer(ctx->backend, offer.number, offer.handle, proof);
    }
    offer.good = status == SYMM_OK;
    if (!offer.good)
        snprintf(offer.why, sizeof(offer.why), "%.159s", symm_last_error());
    return offer;
}

/* The second exchange: reads the memory of this rank's clique, if that is a candidate, and compares
 * what all ranks have read. Sets ctx->why_domain. */
static symm_status prove_and_compare(struct search *s, double timeout)
{
    symm_ctx *ctx = s->ctx;
    struct host *here = &s->hosts[s->here];
    struct verdict mine = {.good = 1};
    char text[256];
    int hosts, ranks;
    symm_status status;

    find_cliques(s);
    set_why(s, objection(s, text, sizeof(text)));
    if (here->leader != NONE && is_candidate(s, here->leader))
        mine = prove(s);
    status = exchange(ctx, 1, SYMM_OK, &mine, sizeof(mine), timeout, ctx->room.acks);
    if (status == SYMM_OK)
        status = check_form(ctx, ctx->room.acks, sizeof(mine),
                            offsetof(struct verdict, why), sizeof(mine.why));
    if (status != SYMM_OK)
        return status;
    s->verdicts = ctx->room.acks;
    mark_broken(s);
    ranks = clique_size(s, here->leader, &hosts);
    if (spans_hosts(s, s->here)) {
        snprintf(
            text, sizeof(text),
            "%d ranks on %d hosts are in clique %u, and have read each other's memory",
            ranks, hosts, offer_of(s, here->first)->clique);
        set_why(s, text);
    } else if (here->leader != NONE && s->hosts[here->leader].broken != NONE) {
        set_why(
            s,
            ((const struct verdict *)s->verdicts[s->hosts[here->leader].broken].bytes)
                ->why);
    }
    return SYMM_OK;
}

/* Both exchanges. s->hosts NULL: no memory, which fails the first exchange on all ranks. *made:
 * whether this rank had memory for the result. */
static symm_status search_run(struct search *s, double timeout, symm_status *made)
{
    symm_ctx *ctx = s->ctx;
    const double until = symm__now() + timeout;
    void *proof = NULL;
    struct offer offer = {0};
    symm_status status = SYMM_OK;

    if (s->hosts)
        offer = offer_make(ctx, &proof);
    else
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for %d hosts", ctx->hosts);
    status =
        exchange(ctx, 0, status, &offer, sizeof(offer), timeout, ctx->room.messages);
    if (status == SYMM_OK)
        status = check_form(ctx, ctx->room.messages, sizeof(offer),
                            offsetof(struct offer, why), sizeof(offer.why));
    s->offers = ctx->room.messages;
    if (status == SYMM_OK)
        status = prove_and_compare(s, until - symm__now());
    if (status == SYMM_OK)
        *made = number_all(s);
    symm__oob_messages_finish(ctx->room.messages, ctx->size);
    symm__oob_messages_finish(ctx->room.acks, ctx->size);
    ctx->ops->fabric->withdraw(ctx->backend,
                               proof); /* all have read it, or an exchange failed */
    return status;
}

/* Is a domain of several hosts looked for? The same on all ranks. */
static bool is_asked(symm_ctx *ctx)
{
    if (ctx->hosts == 1 || !ctx->device_ops)
        return false;
    if (ctx->fabric)
        return true;
    if (ctx->why_domain[0] == '\0')
        snprintf(ctx->why_domain, sizeof(ctx->why_domain),
                 "SYMM_FABRIC=1 was not set, so no NVLink domain was looked for");
    return false;
}

symm_status symm__domain_open(symm_ctx *ctx, double timeout, symm_status mine,
                              symm_status *made, uint64_t *last)
{
    struct search search = {.ctx = ctx, .here = ctx->host_of[ctx->rank]};
    char sentence[SYMM_ERROR_BYTES];
    void *base;
    symm_status status = SYMM_OK, numbered = SYMM_OK;

    *last = SYMM_CONTROL_MAGIC;
    *made = mine;
    snprintf(sentence, sizeof(sentence), "%s",
             mine == SYMM_OK ? "" : symm_last_error());
    if (is_asked(ctx)) {
        *last = DOMAIN_TAG;
        search.hosts = calloc((size_t)ctx->hosts, sizeof(*search.hosts));
        status = search_run(&search, timeout, &numbered);
        free(search.hosts);
        if (status != SYMM_OK)
            return status;
        symm__log(SYMM_LOG_INFO, "rank %d maps the memory of %d ranks: %s", ctx->rank,
                  ctx->places, ctx->why_domain);
    }
    if (mine != SYMM_OK)
        *made = symm__fail_quiet(mine, sentence);
    else if (numbered != SYMM_OK)
        *made = numbered;
    if (*made != SYMM_OK || ctx->thread_group) /* threads share a reservation */
        return SYMM_OK;
    if (ctx->wide)
        ctx->ops->fabric->use(ctx->backend);
    *made = ctx->ops->reserve(ctx->backend, (size_t)ctx->places * ctx->stride, &base);
    if (*made == SYMM_OK)
        ctx->base = base;
    return SYMM_OK;
}
