/* SPDX-License-Identifier: MIT */
/*
 * multicast.c - one address for the memory of all members, by NVLink switches: whether
 * it is wanted, and the steps by which a team gets it.
 *
 * Multicast is off unless SYMM_MULTICAST=1, and no variable of another library turns it off.
 * While it is off, no driver function of multicast is called. All members have it or none: the
 * start of the job compares the settings and the devices' ability. Each step ends in an
 * exchange, in which every member reports the result of its part. If a part failed, all members
 * release what they have, log the reason, and go on without multicast; the team does not fail.
 *
 * Guarantees: memory that has multicast keeps it when a later binding fails.
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

/* The variable of another library that turns multicast off; NULL: none does. */
static const char *forbidden_by(void)
{
    static const struct {
        const char *name, *value;
    } variables[] = {
        {"NCCL_NVLS_ENABLE", "0"},
        {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
        {"NVSHMEM_DISABLE_NVLS", "1"},
    };

    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *value = getenv(variables[i].name);

        if (value && strcmp(value, variables[i].value) == 0)
            return variables[i].name;
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

/* The state of the steps that open or extend the object of a team. */
struct opening {
    symm_team *team;
    size_t bytes; /* of the object; agree_on_step takes the least of all members */
    size_t end; /* offset in the heap: memory up to here is to be bound */
    int fd;     /* of the object, between create and add; -1: none; owned */
};

/* A member's report of a step. */
struct step_report {
    uint64_t bytes;
    uint32_t step;
    int32_t status;
    char why[SYMM_ERROR_BYTES]; /* if status is not SYMM_OK */
};

/* The member's report of the step; SYMM_ERR_REFUSED if it is malformed. */
static struct step_report report_of(const struct symm_oob_message *message,
                                    uint32_t step)
{
    struct step_report report = {.status = SYMM_ERR_REFUSED};

    if (message->bytes_count == sizeof(report))
        memcpy(&report, message->bytes, sizeof(report));
    if (message->bytes_count != sizeof(report) || report.step != step) {
        report = (struct step_report){.status = SYMM_ERR_REFUSED};
        snprintf(report.why, sizeof(report.why), "it sent a malformed step");
    }
    report.why[sizeof(report.why) - 1] = '\0';
    return report;
}

/* Whether all members did the step; then o->bytes becomes the least of their numbers. If not, the
 * log names the first member that did not, with its reason: a warning on rank 0 of the team,
 * since the user asked for multicast. */
static bool read_reports(struct opening *o, uint32_t step,
                         const struct symm_oob_message *messages,
                         const char *consequence)
{
    symm_team *team = o->team;
    enum symm_log_level level = team->rank == 0 ? SYMM_LOG_WARN : SYMM_LOG_INFO;
    char name[64];

    for (int m = 0; m < team->size; m++) {
        struct step_report report = report_of(&messages[m], step);

        if (report.status != SYMM_OK) {
            (void)symm__fail_quiet((symm_status)report.status, report.why); /* cleans it */
            symm__log(level, "%s for %s: rank %d: %s", consequence,
                      symm__team_name(team, name, sizeof(name)), team->world_rank[m],
                      symm_last_error());
            return false;
        }
        if (report.bytes < o->bytes) /* `create` checks the least number */
            o->bytes = (size_t)report.bytes;
    }
    return true;
}

/* Exchanges the members' results of a step; step_status is this member's. SYMM_OK: the exchange took
 * place, and *agreed says whether the step succeeded on all members. If so, o->bytes is reduced
 * to the least of all. If not, `consequence` begins the line in the log. Sends and closes o->fd;
 * then o->fd is the descriptor that came from member 0, and belongs to `o`. */
static symm_status agree_on_step(struct opening *o, uint32_t step, double timeout,
                                 symm_status step_status, const char *consequence,
                                 bool *agreed)
{
    struct symm_oob_message *messages = o->team->ctx->room.messages;
    struct step_report report = {
        .bytes = o->bytes, .step = step, .status = step_status};
    int fds_count = o->fd >= 0 ? 1 : 0; /* 1: member 0 after `create` */
    symm_status status;

    if (step_status != SYMM_OK)
        snprintf(report.why, sizeof(report.why), "%s", symm_last_error());
    /* SYMM_OK: the report says that the step failed; the exchange itself shall not fail. */
    status =
        symm__team_exchange(o->team, "multicast", timeout,
                            &(struct symm_own_message){.bytes = &report,
                                                       .bytes_count = sizeof(report),
                                                       .fds = &o->fd,
                                                       .fds_count = fds_count},
                            messages);
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    if (status != SYMM_OK)
        return status;
    *agreed = read_reports(o, step, messages, consequence);
    if (*agreed && o->team->rank != 0 && messages[0].fds_count == 1) {
        o->fd = messages[0].fds[0];
        messages[0].fds_count = 0;
    }
    symm__oob_messages_finish(messages, o->team->size);
    return SYMM_OK;
}

/* ---- Steps ----------------------------------------------------------------------- */

/* Binds own segments from mc->bound up to o->end. */
static symm_status bind_segments(struct opening *o)
{
    symm_team *team = o->team;
    const symm_ctx *ctx = team->ctx;
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    char *own = symm__heap_base(ctx, ctx->rank);

    for (size_t i = 0; i < team->segment_count; i++) {
        const struct symm_segment *s = &team->segments[i];
        size_t from = s->offset > mc->bound ? s->offset : mc->bound;
        size_t to = s->offset + s->bytes < o->end ? s->offset + s->bytes : o->end;
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
    symm_status status = bind_segments(o);

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

/* Does a step in a scope of the backend. */
static symm_status attempt(symm_status (*step)(struct opening *), struct opening *o)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(o->team->ctx->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = step(o);
    symm__cuda_leave(&scope);
    return status;
}

static symm_status open_object(symm_team *team, double timeout)
{
    static symm_status (*const steps[])(struct opening *) = {
        measure, create, add, bind_first, reduce, verify};
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    struct opening o = {.team = team, .end = team->shared, .fd = -1};
    symm_status status = SYMM_OK;
    bool agreed = true;

    mc->backend = team->ctx->backend;
    for (uint32_t i = 0; i < sizeof(steps) / sizeof(*steps) && agreed; i++) {
        symm_status step_status = attempt(steps[i], &o);

        status = agree_on_step(&o, i, timeout, step_status, "no multicast", &agreed);
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
    /* release: pairs with the acquire in symm__cuda_multicast_at; the view is mapped */
    __atomic_store_n(&mc->bound, team->shared, __ATOMIC_RELEASE);
    return SYMM_OK;
}

/* Binds the memory that a rendezvous has added. */
static symm_status extend(symm_team *team, size_t end, double timeout)
{
    struct symm_cuda_multicast *mc = &team->cuda->multicast;
    struct opening o = {.team = team, .bytes = mc->bytes, .end = end, .fd = -1};
    size_t before = mc->count;
    bool agreed = false;
    symm_status step_status = attempt(bind_segments, &o);
    symm_status status = /* an extension has one step, of number 0 */
        agree_on_step(&o, 0, timeout, step_status, "no more multicast", &agreed);

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

    if (!team->ctx->multicast || !team->cuda || team->size < 2 || team->far)
        return SYMM_OK;
    mc = &team->cuda->multicast;
    if (mc->ended)
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
    /* acquire: pairs with the release in open_object and extend */
    bound = __atomic_load_n(&mc->bound, __ATOMIC_ACQUIRE);
    if (offset < team->begin || offset > bound || bytes > bound - offset)
        return NULL;
    return (void *)(uintptr_t)(mc->view + (offset - mc->begin));
}
