/* SPDX-License-Identifier: MIT */
/*
 * nvtx.c - see nvtx.h. NVTX is headers alone: its first function loads the profiler's library.
 */
#define NVTX_AS_SYSTEM_HEADER                 /* so that its code causes no warnings */
#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0 /* else it would define a symbol here */
#include <nvtx3/nvToolsExt.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sight/nvtx.h"

#define CATEGORIES 64
#define MESSAGES                                                                       \
    100000 /* registered ones stay for ever: later sites have their op alone */
#define DEPTH  8
#define QUEUED 65536 /* a power of two */

struct message {
    uint32_t site, category;
    uint64_t bytes;
    nvtxStringHandle_t text;
};

struct queued {
    uint64_t number;
    uint32_t site;
};

struct symm_nvtx {
    nvtxDomainHandle_t domain;
    pthread_mutex_t lock; /* guards the rest */
    int registered;
    int categories;
    char category[CATEGORIES][24];
    struct message message[SYMM_SIGHT_SITES]; /* by the site's id */
    struct queued queued[QUEUED];             /* by the call's number */
};

/* Ranges of this thread that have not ended, innermost last. */
static _Thread_local struct open_range {
    const struct symm_nvtx *nvtx;
    uint64_t number;
} open_ranges[DEPTH];
static _Thread_local int open_count;

struct symm_nvtx *symm__nvtx_open(void)
{
    const char *library = secure_getenv("NVTX_INJECTION64_PATH");
    struct symm_nvtx *nvtx;

    if (!library || !*library)
        return NULL;
    nvtx = calloc(1, sizeof(*nvtx));
    if (!nvtx)
        return NULL;
    nvtx->domain = nvtxDomainCreateA("symm");
    if (!nvtx->domain) { /* the library does not load, or has no use for domains */
        free(nvtx);
        return NULL;
    }
    pthread_mutex_init(&nvtx->lock, NULL);
    return nvtx;
}

void symm__nvtx_close(struct symm_nvtx *nvtx)
{
    if (!nvtx)
        return;
    nvtxDomainDestroy(nvtx->domain);
    pthread_mutex_destroy(&nvtx->lock);
    free(nvtx);
}

/* With the lock held. 0: there are too many. */
static uint32_t category_of(struct symm_nvtx *nvtx, const char *op)
{
    for (int i = 0; i < nvtx->categories; i++)
        if (strcmp(nvtx->category[i], op) == 0)
            return (uint32_t)i + 1;
    if (nvtx->categories == CATEGORIES)
        return 0;
    snprintf(nvtx->category[nvtx->categories], sizeof(nvtx->category[0]), "%s", op);
    nvtxDomainNameCategoryA(nvtx->domain, (uint32_t)++nvtx->categories, op);
    return (uint32_t)nvtx->categories;
}

void symm__nvtx_site(struct symm_nvtx *nvtx, const struct symm_sight_site *site)
{
    struct message *message = &nvtx->message[site->id % SYMM_SIGHT_SITES];
    char text[400];

    pthread_mutex_lock(&nvtx->lock);
    if (nvtx->registered < MESSAGES)
        snprintf(text, sizeof(text), "%s%s%s %llu B%s%s%s%s", site->op,
                 *site->name ? " " : "", site->name, (unsigned long long)site->bytes,
                 *site->algorithm ? " " : "", site->algorithm,
                 *site->reason ? ": " : "", site->reason);
    else
        snprintf(text, sizeof(text), "%s", site->op);
    nvtx->registered += nvtx->registered < MESSAGES;
    message->text = nvtxDomainRegisterStringA(nvtx->domain, text);
    message->category = category_of(nvtx, site->op);
    message->bytes = site->bytes;
    message->site = site->id;
    pthread_mutex_unlock(&nvtx->lock);
}

void symm__nvtx_queued(struct symm_nvtx *nvtx, uint64_t number, uint32_t site)
{
    pthread_mutex_lock(&nvtx->lock);
    nvtx->queued[number % QUEUED] = (struct queued){number, site};
    pthread_mutex_unlock(&nvtx->lock);
}

uint32_t symm__nvtx_queued_site(struct symm_nvtx *nvtx, uint64_t number)
{
    struct queued queued;

    pthread_mutex_lock(&nvtx->lock);
    queued = nvtx->queued[number % QUEUED];
    pthread_mutex_unlock(&nvtx->lock);
    return queued.number == number ? queued.site : 0;
}

bool symm__nvtx_push(struct symm_nvtx *nvtx, uint64_t number, uint32_t site)
{
    struct message message;
    nvtxEventAttributes_t event = {0};

    pthread_mutex_lock(&nvtx->lock);
    message = nvtx->message[site % SYMM_SIGHT_SITES];
    pthread_mutex_unlock(&nvtx->lock);
    if (site == 0 || message.site != site)
        return false;
    if (open_count == DEPTH) /* calls do not nest so deep */
        return true;
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = message.category;
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = message.bytes;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = message.text;
    nvtxDomainRangePushEx(nvtx->domain, &event);
    open_ranges[open_count++] = (struct open_range){nvtx, number};
    return true;
}

void symm__nvtx_pop(struct symm_nvtx *nvtx, uint64_t number)
{
    const struct open_range *last = open_ranges + open_count - (open_count > 0);

    if (open_count == 0 || last->nvtx != nvtx || last->number != number)
        return;
    open_count--;
    nvtxDomainRangePop(nvtx->domain);
}
