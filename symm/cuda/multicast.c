/* SPDX-License-Identifier: MIT */
/*
 * multicast.c - one address for the memory of all members, by NVLink switches: whether
 * it is wanted, and the steps by which a team gets it.
 *
 * Off unless SYMM_MULTICAST=1 and no other library's variable turns multicast off; while it is
 * off no function of multicast is called. All members have it or none: the setting and the
 * devices' ability are compared at the start of the job, and each step ends in an exchange in
 * which every member reports how its part ended. If one failed, all release what they have, log
 * the reason, and go on without multicast; the team does not fail.
 * Guarantees: a later binding fails alone: memory that has multicast keeps it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/launcher.h"
#include "cuda/multicast_proof.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

/* Variables of other libraries by which multicast is turned off on a machine. */
static const char *forbidden_by(void)
{
    static const struct {
        const char *name, *value;
    } words[] = {
        {"NCCL_NVLS_ENABLE", "0"},
        {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
        {"NVSHMEM_DISABLE_NVLS", "1"},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const char *value = getenv(words[i].name);

        if (value && strcmp(value, words[i].value) == 0)
            return words[i].name;
    }
    return NULL;
}

symm_status symm__cuda_multicast_ask(struct symm_backend *backend, bool *wanted)
{
    const char *forbidden = forbidden_by();
    int64_t option = 0;
    int able = 0;
    symm_status status = symm__option_integer(SYMM_OPTION_MULTICAST, 0, 1, &option);

    *wanted = false;
    if (status != SYMM_OK || option == 0)
        return status;
    if (forbidden) {
        symm__log(SYMM_LOG_INFO, "no multicast: %s forbids it", forbidden);
        return SYMM_OK;
    }
    status = SYMM_CUDA_CALL(
        backend->driver, cuDeviceGetAttribute,
        (&able, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, backend->handle),
        "multicast of device %d", backend->device.ordinal);
    if (status == SYMM_OK && !able)
        symm__log(SYMM_LOG_INFO, "no multicast: device %d does not have it",
                  backend->device.ordinal);
    *wanted = status == SYMM_OK && able;
    return status;
}

/* ---- Agreement ------------------------------------------------------------------- */

/* A team's way to its object. */
struct opening {
    symm_team *team;
    size_t bytes; /* of the object: what every member can have */
    int fd;       /* of the object, on its way; -1: none */
};

/* What a member says of a step. */
struct wire_step {
    uint64_t bytes;
    uint32_t step;
    int32_t status;
    char why[SYMM_ERROR_BYTES]; /* if status is not SYMM_OK */
};

/* The member's word, or one that it has sent nonsense. */
static struct wire_step word_of(const struct symm_oob_message *message, uint32_t step)
{
    struct wire_step wire = {.status = SYMM_ERR_REFUSED};

    if (message->bytes_count == sizeof(wire))
        memcpy(&wire, message->bytes, sizeof(wire));
    if (message->bytes_count != sizeof(wire) || wire.step != step) {
        wire = (struct wire_step){.status = SYMM_ERR_REFUSED};
        snprintf(wire.why, sizeof(wire.why), "it sent a malformed step");
    }
    wire.why[sizeof(wire.why) - 1] = '\0';
    return wire;
}

/* Did all members come through? If not, one line says which did not and why: a warning, on
 * one rank, since the user has asked for multicast. */
static bool all_did(struct opening *o, uint32_t step,
                    const struct symm_oob_message *messages, const char *consequence)
{
    symm_team *team = o->team;
    enum symm_log_level level = team->rank == 0 ? SYMM_LOG_WARN : SYMM_LOG_INFO;
    char name[64];

    for (int m = 0; m < team->size; m++) {
        struct wire_step wire = word_of(&messages[m], step);

        if (wire.status != SYMM_OK) {
            if (symm__fail_quiet((symm_status)wire.status, wire.why) != SYMM_OK)
                symm__log(level, "%s for %s: rank %d: %s", consequence,
                          symm__team_name(team, name, sizeof(name)),
                          team->world_rank[m], symm_last_error());
            return false;
        }
        if (wire.bytes < o->bytes) /* checked where it is used */
            o->bytes = (size_t)wire.bytes;
    }
    return true;
}

/* Reports how this member's part of a step ended. On success *agreed: all members' parts have
 * succeeded. Sends member 0's descriptor along, if it has one. */
static symm_status tell(struct opening *o, uint32_t step, double timeout,
                        symm_status mine, const char *consequence, bool *agreed)
{
    struct symm_oob_message messages[SYMM_MAX_RANKS] = {0};
    struct wire_step wire = {.bytes = o->bytes, .step = step, .status = mine};
    int fds_count = o->fd >= 0;
    symm_status status;

    if (mine != SYMM_OK)
        snprintf(wire.why, sizeof(wire.why), "%s", symm_last_error());
    status =
        symm__team_exchange(o->team, "multicast", timeout, SYMM_OK, &wire, sizeof(wire),
                            fds_count ? &o->fd : NULL, fds_count, messages);
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    if (status != SYMM_OK)
        return status;
    *agreed = all_did(o, step, messages, consequence);
    if (*agreed && o->team->rank != 0 && messages[0].fds_count == 1) {
        o->fd = messages[0].fds[0];
        messages[0].fds_count = 0;
    }
    symm__oob_messages_finish(messages, o->team->size);
    return SYMM_OK;
}

/* ---- Steps ----------------------------------------------------------------------- */

/* Binds own segments from mc->bound up to `end`. */
static symm_status bind_segments(symm_team *team, size_t end)
{
    const symm_ctx *ctx = team->ctx;
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    char *own = ctx->base + (size_t)ctx->rank * ctx->stride;

    for (size_t i = 0; i < team->segment_count; i++) {
        const struct symm_segment *s = &team->segments[i];
        size_t from = s->offset > mc->bound ? s->offset : mc->bound;
        size_t to = s->offset + s->bytes < end ? s->offset + s->bytes : end;
        symm_status status;

        if (from >= to)
            continue;
        status = symm__cuda_multicast_bind(
            mc, own + s->offset, from - s->offset,
            (struct symm_cuda_bound){.at = from - mc->begin, .bytes = to - from});
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

static symm_status measure(struct opening *o)
{
    struct symm_cuda_multicast *mc = &o->team->cuda->multicast;

    mc->backend = o->team->ctx->backend;
    mc->begin = mc->bound = o->team->begin;
    o->bytes = o->team->end - o->team->begin;
    return symm__cuda_multicast_measure(mc, o->team->size, &o->bytes);
}

static symm_status create(struct opening *o)
{
    symm_team *team = o->team;

    if (o->bytes % team->ctx->granularity != 0 || o->bytes < team->shared - team->begin)
        return symm__fail(
            SYMM_ERR_REFUSED,
            "a multicast object of %zu bytes cannot hold the %zu bytes of "
            "a new team",
            o->bytes, team->shared - team->begin);
    if (team->rank != 0)
        return SYMM_OK;
    return symm__cuda_multicast_create(&team->cuda->multicast, team->size, o->bytes,
                                       &o->fd);
}

static symm_status add(struct opening *o)
{
    struct symm_cuda_multicast *mc = &o->team->cuda->multicast;
    symm_status status = SYMM_OK;

    if (o->team->rank != 0) {
        if (o->fd < 0)
            return symm__fail(SYMM_ERR_REFUSED,
                              "no descriptor of a multicast object came from rank %d",
                              o->team->world_rank[0]);
        status = symm__cuda_multicast_import(mc, o->bytes, o->fd);
        close(o->fd);
        o->fd = -1;
    }
    return status == SYMM_OK ? symm__cuda_multicast_add(mc) : status;
}

static symm_status bind_first(struct opening *o)
{
    symm_status status = bind_segments(o->team, o->team->shared);

    if (status == SYMM_OK)
        status = symm__cuda_multicast_map(&o->team->cuda->multicast);
    return status == SYMM_OK ? symm__cuda_multicast_write(o->team) : status;
}

static symm_status reduce(struct opening *o)
{
    return symm__cuda_multicast_reduce(o->team);
}

static symm_status verify(struct opening *o)
{
    return symm__cuda_multicast_verify(o->team);
}

static symm_status open_object(symm_team *team, double timeout)
{
    static symm_status (*const steps[])(struct opening *) = {
        measure, create, add, bind_first, reduce, verify};
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    struct opening o = {.team = team, .fd = -1};
    symm_status status = SYMM_OK;
    bool agreed = true;

    for (uint32_t i = 0; i < sizeof(steps) / sizeof(*steps) && agreed; i++) {
        symm_status mine = steps[i](&o);

        status = tell(&o, i, timeout, mine, "no multicast", &agreed);
        if (status != SYMM_OK)
            break;
    }
    if (o.fd >= 0)
        close(o.fd);
    if (status != SYMM_OK || !agreed) {
        mc->ended = true;
        symm__cuda_multicast_finish(mc);
        return status;
    }
    /* release: describe loads it; the view is there */
    __atomic_store_n(&mc->bound, team->shared, __ATOMIC_RELEASE);
    return SYMM_OK;
}

/* What a rendezvous has added. */
static symm_status extend(symm_team *team, size_t end, double timeout)
{
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    struct opening o = {.team = team, .bytes = mc->bytes, .fd = -1};
    size_t before = mc->count;
    bool agreed = false;
    symm_status mine = bind_segments(team, end);
    symm_status status = tell(&o, 0, timeout, mine, "no more multicast", &agreed);

    if (status != SYMM_OK || !agreed) {
        symm__cuda_multicast_unbind(mc, before);
        mc->ended = true;
        return status;
    }
    __atomic_store_n(&mc->bound, end, __ATOMIC_RELEASE);
    return SYMM_OK;
}

symm_status symm__cuda_multicast_share(symm_team *team, double timeout)
{
    struct symm_cuda_multicast *mc;
    size_t end;

    if (!team->ctx->multicast || !team->cuda || team->size < 2)
        return SYMM_OK;
    mc = &team->cuda->multicast;
    if (mc->ended)
        return SYMM_OK;
    for (int m = 0; m < team->size; m++)
        if (symm__is_far(team->ctx, team->world_rank[m]))
            return SYMM_OK;
    if (!mc->exists)
        return open_object(team, timeout);
    end = team->shared - mc->begin < mc->bytes ? team->shared : mc->begin + mc->bytes;
    return end > mc->bound ? extend(team, end, timeout) : SYMM_OK;
}

/* ---- Use ------------------------------------------------------------------------- */

void *symm__cuda_multicast_at(const symm_team *team, size_t offset, size_t bytes)
{
    const struct symm_cuda_multicast *mc = team->cuda ? &team->cuda->multicast : NULL;
    size_t bound;

    if (!mc)
        return NULL;
    bound =
        __atomic_load_n(&mc->bound, __ATOMIC_ACQUIRE); /* with open_object, extend */
    if (offset < team->begin || offset > bound || bytes > bound - offset)
        return NULL;
    return (void *)(uintptr_t)(mc->view + (offset - mc->begin));
}
