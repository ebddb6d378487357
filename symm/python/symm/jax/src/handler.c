/* SPDX-License-Identifier: MIT */
/*
 * handler.c - libsymm's collectives as handlers of XLA's foreign function interface. It is
 * compiled for the installed jaxlib, whose header changes names between versions.
 *
 * Operands and results: a token each, which orders the calls of a program, then the array.
 * Attributes: team, kind, op, root, count and itemsize, the bytes of an element. Calls that do not
 * reduce move bytes: any type will do.
 */
#include <stdio.h>
#include <string.h>

#include <xla/ffi/api/c_api.h>

#include "call.h"
#include "symm/symm.h"

#if XLA_FFI_API_MINOR >= 4
#define EXTENSION XLA_FFI_InternalExtension
#else
#define EXTENSION XLA_FFI_Extension_Base
#endif

static symm_jax_call_fn call_team;
static _Atomic uint64_t counters[SYMM_JAX_KINDS][2];

/* Before the first call. */
void symm_jax_start(symm_jax_call_fn fn)
{
    call_team = fn;
}

/* Calls that libsymm took and the bytes of their operands, of each kind. */
void symm_jax_counters(uint64_t numbers[2 * SYMM_JAX_KINDS])
{
    for (int kind = 0; kind < SYMM_JAX_KINDS; kind++) {
        numbers[2 * kind] = counters[kind][0];
        numbers[2 * kind + 1] = counters[kind][1];
    }
}

static void count_call(int kind, const XLA_FFI_Buffer *in, size_t itemsize)
{
    size_t bytes = itemsize;

    for (int64_t i = 0; i < in->rank; i++)
        bytes *= (size_t)in->dims[i];
    counters[kind][0]++;
    counters[kind][1] += bytes;
}

static XLA_FFI_Error *fail(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *text)
{
    XLA_FFI_Error_Create_Args args;

    memset(&args, 0, sizeof(args));
    args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
    args.message = text;
    args.errc = code;
    return api->XLA_FFI_Error_Create(&args);
}

static int dtype_of(XLA_FFI_DataType type)
{
    switch (type) {
    case XLA_FFI_DataType_F64:
        return SYMM_FLOAT64;
    case XLA_FFI_DataType_F32:
        return SYMM_FLOAT32;
    case XLA_FFI_DataType_F16:
        return SYMM_FLOAT16;
    case XLA_FFI_DataType_BF16:
        return SYMM_BFLOAT16;
    case XLA_FFI_DataType_F8E4M3FN:
        return SYMM_FLOAT8_E4M3;
    case XLA_FFI_DataType_F8E5M2:
        return SYMM_FLOAT8_E5M2;
    case XLA_FFI_DataType_S64:
        return SYMM_INT64;
    case XLA_FFI_DataType_S32:
        return SYMM_INT32;
    case XLA_FFI_DataType_S16:
        return SYMM_INT16;
    case XLA_FFI_DataType_S8:
        return SYMM_INT8;
    case XLA_FFI_DataType_U64:
        return SYMM_UINT64;
    case XLA_FFI_DataType_U32:
        return SYMM_UINT32;
    case XLA_FFI_DataType_U16:
        return SYMM_UINT16;
    case XLA_FFI_DataType_U8:
        return SYMM_UINT8;
    default:
        return -1;
    }
}

/* An attribute of 64 bits; 0: there is none of the name. */
static int64_t attribute(const XLA_FFI_CallFrame *frame, const char *name)
{
    int64_t value = 0;

    for (int64_t i = 0; i < frame->attrs.size; i++) {
        const XLA_FFI_ByteSpan *n = frame->attrs.names[i];
        const XLA_FFI_Scalar *scalar = frame->attrs.attrs[i];

        if (n->len == strlen(name) && memcmp(n->ptr, name, n->len) == 0)
            memcpy(&value, scalar->value, sizeof(value));
    }
    return value;
}

/* The buffer after the token. */
static XLA_FFI_Buffer *buffer_of(void **buffers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        XLA_FFI_Buffer *buffer = buffers[i];

        if (buffer->dtype != XLA_FFI_DataType_TOKEN)
            return buffer;
    }
    return NULL;
}

static XLA_FFI_Error *describe(XLA_FFI_CallFrame *frame, uint32_t traits)
{
    XLA_FFI_Metadata *metadata =
        ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;

    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = traits;
    return NULL;
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame, void *stream)
{
    const XLA_FFI_Buffer *in = buffer_of(frame->args.args, frame->args.size);
    const XLA_FFI_Buffer *out = buffer_of(frame->rets.rets, frame->rets.size);
    const size_t itemsize = (size_t)attribute(frame, "itemsize");
    struct symm_jax_call call = {
        .size = sizeof(call),
        .kind = (int)attribute(frame, "kind"),
        .op = (int)attribute(frame, "op"),
        .root = (int)attribute(frame, "root"),
        .count = (size_t)attribute(frame, "count"),
        .stream = stream,
    };
    char error[1024] = "";

    if (!in || !out || !call_team || call.kind < 0 || call.kind >= SYMM_JAX_KINDS)
        return fail(frame->api, XLA_FFI_Error_Code_INTERNAL,
                    "symm.jax: the custom call is not one of this module");
    call.in = in->data;
    call.out = out->data;
    call.dtype = dtype_of(in->dtype);
    if (call.kind != SYMM_JAX_ALL_REDUCE && call.kind != SYMM_JAX_REDUCE_SCATTER) {
        call.dtype = SYMM_UINT8;
        call.count *= itemsize;
    }
    if (call.dtype < 0) {
        snprintf(error, sizeof(error),
                 "symm.jax: XLA's data type %d has no reductions in libsymm", (int)in->dtype);
        return fail(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, error);
    }
    if (call_team((void *)(intptr_t)attribute(frame, "team"), &call, error, sizeof(error)) != 0)
        return fail(frame->api, XLA_FFI_Error_Code_INTERNAL, error);
    count_call(call.kind, in, itemsize);
    return NULL;
}

static int is_metadata(const XLA_FFI_CallFrame *frame)
{
    const EXTENSION *extension = (const EXTENSION *)frame->extension_start;

    return extension && extension->type == XLA_FFI_Extension_Metadata;
}

XLA_FFI_Error *symm_jax_cpu(XLA_FFI_CallFrame *frame)
{
    return is_metadata(frame) ? describe(frame, 0) : run(frame, NULL);
}

XLA_FFI_Error *symm_jax_cuda(XLA_FFI_CallFrame *frame)
{
    XLA_FFI_Stream_Get_Args args;
    XLA_FFI_Error *error;

    if (is_metadata(frame))
        return describe(frame, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
    memset(&args, 0, sizeof(args));
    args.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
    args.ctx = frame->ctx;
    error = frame->api->XLA_FFI_Stream_Get(&args);
    return error ? error : run(frame, args.stream);
}
