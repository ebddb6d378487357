/* SPDX-License-Identifier: MIT */
/*
 * interop.c - see include/symm/interop.h. The structs are DLPack's binary interface
 * (github.com/dmlc/dlpack, versions 0.8 and 1.1).
 */
#include "symm/interop.h"

#include <stdlib.h>
#include <string.h>

#include "core/team.h"
#include "memory/buffer.h"
#include "memory/interop.h"
#include "util/dtype.h"
#include "util/status.h"

#define DL_CPU      1 /* kDLCPU */
#define DL_CUDA     2 /* kDLCUDA */
#define DL_MAJOR    1
#define DL_MINOR    1
#define MAX_DEVICES 64

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t channels;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* Either struct, with what it points to. */
struct exported {
    union {
        struct dl_managed managed;
        struct dl_versioned versioned;
    };
    symm_buffer *buffer;
    int64_t shape[16], strides[16];
};

/* By device. PyTorch passes no argument, so this cannot belong to a context. */
static symm_team *bound[MAX_DEVICES];

/* ---- DLPack ---------------------------------------------------------------------- */

static void set_tensor(struct exported *e, struct dl_tensor *tensor)
{
    const symm_buffer *buffer = e->buffer;
    const symm_ctx *ctx = buffer->team->ctx;
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);

    memcpy(e->shape, buffer->shape, sizeof(e->shape));
    memcpy(e->strides, buffer->stride, sizeof(e->strides));
    tensor->data = symm_buffer_ptr(buffer);
    tensor->device_type = device ? DL_CUDA : DL_CPU;
    tensor->device_id = device ? device->ordinal : 0;
    tensor->ndim = buffer->ndim;
    tensor->shape = e->shape;
    tensor->strides = e->strides;
    tensor->code = symm__dtype_dlpack_code(buffer->dtype);
    tensor->bits = (uint8_t)(8 * symm_dtype_size(buffer->dtype));
    tensor->channels = 1;
}

static symm_status export_new(const char *what, symm_buffer *buffer, void **managed,
                              struct exported **e)
{
    symm_status status;

    if (!buffer || !managed)
        return symm__fail_null(what, buffer ? "managed" : "buffer");
    status = symm__ctx_check_in(buffer->team->ctx, what);
    if (status != SYMM_OK)
        return status;
    *e = calloc(1, sizeof(**e));
    if (!*e)
        return symm__fail(SYMM_ERR_NOMEM, "%s: no memory for a DLPack tensor", what);
    status = symm__buffer_export(buffer, what);
    if (status != SYMM_OK) {
        free(*e);
        return status;
    }
    (*e)->buffer = buffer;
    return SYMM_OK;
}

static void managed_delete(struct dl_managed *self)
{
    struct exported *e = (struct exported *)self;

    symm__buffer_return(e->buffer);
    free(e);
}

static void versioned_delete(struct dl_versioned *self)
{
    struct exported *e = (struct exported *)self;

    symm__buffer_return(e->buffer);
    free(e);
}

symm_status symm_buffer_dlpack(symm_buffer *buffer, void **managed)
{
    struct exported *e;
    symm_status status = export_new("symm_buffer_dlpack", buffer, managed, &e);

    if (status != SYMM_OK)
        return status;
    set_tensor(e, &e->managed.tensor);
    e->managed.context = e;
    e->managed.deleter = managed_delete;
    *managed = e;
    return SYMM_OK;
}

symm_status symm_buffer_dlpack_versioned(symm_buffer *buffer, void **managed)
{
    struct exported *e;
    symm_status status =
        export_new("symm_buffer_dlpack_versioned", buffer, managed, &e);

    if (status != SYMM_OK)
        return status;
    set_tensor(e, &e->versioned.tensor);
    e->versioned.major = DL_MAJOR;
    e->versioned.minor = DL_MINOR;
    e->versioned.context = e;
    e->versioned.deleter = versioned_delete;
    *managed = e;
    return SYMM_OK;
}

/* ---- PyTorch's pluggable allocator ----------------------------------------------- */

static int device_of(const symm_team *team)
{
    const symm_ctx *ctx = team->ctx;
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);

    return device ? device->ordinal : ctx->job.local_rank;
}

symm_status symm_torch_bind(symm_team *team)
{
    symm_status status = symm__team_check(team);
    symm_team *none = NULL;
    int device;

    if (status != SYMM_OK)
        return status;
    device = device_of(team);
    if (device < 0 || device >= MAX_DEVICES)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_torch_bind: device %d; 0 to %d are known", device,
                          MAX_DEVICES - 1);
    /* release: pairs with the acquire in bound_team */
    if (__atomic_compare_exchange_n(&bound[device], &none, team, false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED) ||
        none == team)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_IN_USE,
                      "symm_torch_bind: another team is bound to device %d; unbind it "
                      "by symm_torch_unbind first",
                      device);
}

bool symm__interop_forget(const symm_team *team)
{
    bool found = false;

    for (int d = 0; d < MAX_DEVICES; d++) {
        symm_team *seen = __atomic_load_n(&bound[d], __ATOMIC_RELAXED);

        if (seen == team) {
            __atomic_store_n(&bound[d], NULL, __ATOMIC_RELEASE);
            found = true;
        }
    }
    return found;
}

symm_status symm_torch_unbind(symm_team *team)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    return symm__interop_forget(team)
               ? SYMM_OK
               : symm__fail(SYMM_ERR_NOT_FOUND,
                            "symm_torch_unbind: the team is not bound to its device");
}

static symm_team *bound_team(int device, const char *what)
{
    symm_team *team = NULL;

    if (device >= 0 && device < MAX_DEVICES)
        team = __atomic_load_n(&bound[device], __ATOMIC_ACQUIRE);
    if (!team)
        (void)!symm__fail(SYMM_ERR_NOT_FOUND,
                          "%s: no team is bound to device %d; call symm_torch_bind",
                          what, device);
    return team;
}

void *symm_torch_alloc(size_t bytes, int device, void *stream)
{
    symm_team *team = bound_team(device, "symm_torch_alloc");
    symm_buffer *buffer;

    (void)stream;
    if (!team || symm_buffer_alloc(team, bytes, &buffer) != SYMM_OK)
        return NULL;
    return symm_buffer_ptr(buffer);
}

void symm_torch_free(void *ptr, size_t bytes, int device, void *stream)
{
    symm_team *team = ptr ? bound_team(device, "symm_torch_free") : NULL;

    (void)bytes, (void)stream;
    if (team)
        symm_buffer_release(symm__buffer_at(team, ptr));
}
