/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_green.c - green contexts of the fake driver, as a driver for CUDA 13.0 has them: a part
 * of a device's multiprocessors, whose streams belong to the primary context. Functions that were
 * loaded there run on them. The model (fake_cuda_model.c) places their blocks on the part alone.
 */
#include "fake_cuda_private.h"

#if CUDA_VERSION >= 12040

#define LEAST                                                                          \
    8u /* multiprocessors of a part, and what its size is a multiple of: 9.0 */

struct CUdevResourceDesc_st {
    struct fake_object object;
    int first, count;
};

static struct fake_green *green_of(CUgreenCtx handle)
{
    fake_expect(FAKE_GREEN, handle);
    return (struct fake_green *)(void *)handle;
}

struct fake_green *fake_green_of(CUcontext context)
{
    for (struct fake_object *o = fake_first(FAKE_GREEN); context && o; o = o->next) {
        struct fake_green *green = (struct fake_green *)(void *)o;

        if (&green->as == context)
            return green;
    }
    return NULL;
}

static CUresult fill(CUdevResource *resource, CUdevResourceType type, int first,
                     int count)
{
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(resource, 0, sizeof(*resource));
    resource->type = type;
    memcpy(resource->_internal_padding, &first, sizeof(first));
    resource->sm.smCount = (unsigned)count;
    return CUDA_SUCCESS;
}

static int first_of(const CUdevResource *resource)
{
    int first;

    memcpy(&first, resource->_internal_padding, sizeof(first));
    return first;
}

FAKE_API CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device,
                                                 CUdevResource *resource,
                                                 CUdevResourceType type)
{
    FAKE_ENTER(FAKE_INIT);
    if (device < 0 || device >= fake_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    return fill(resource, type, 0, fake_settings.share);
}

FAKE_API CUresult CUDAAPI cuCtxGetDevResource(CUcontext context,
                                              CUdevResource *resource,
                                              CUdevResourceType type)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_green *green = fake_green_of(context);

    if (green)
        return fill(resource, type, green->first, green->count);
    if (context < fake_contexts || context >= fake_contexts + fake_settings.devices ||
        context->refs == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return fill(resource, type, 0, fake_settings.share);
}

FAKE_API CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *result,
                                                      unsigned *groups,
                                                      const CUdevResource *input,
                                                      CUdevResource *remaining,
                                                      unsigned flags, unsigned least)
{
    FAKE_ENTER(FAKE_INIT);
    const unsigned each = least <= LEAST ? LEAST : (least + LEAST - 1) / LEAST * LEAST;
    const unsigned most = input->sm.smCount / each;
    const int first = first_of(input);

    if (flags != 0 || input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    if (most == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *groups = !result || *groups > most ? most : *groups;
    for (unsigned g = 0; result && g < *groups; g++)
        (void)fill(&result[g], CU_DEV_RESOURCE_TYPE_SM, first + (int)(g * each),
                   (int)each);
    if (remaining)
        (void)fill(remaining, CU_DEV_RESOURCE_TYPE_SM, first + (int)(*groups * each),
                   (int)(input->sm.smCount - *groups * each));
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *desc,
                                                    CUdevResource *resources,
                                                    unsigned count)
{
    FAKE_ENTER(FAKE_INIT);
    CUdevResourceDesc made;

    if (count != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    made = fake_new(FAKE_GREEN_DESC, sizeof(*made));
    made->first = first_of(resources);
    made->count = (int)resources->sm.smCount;
    *desc = made;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc desc,
                                           CUdevice device, unsigned flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_green *green;

    if (flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= fake_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    fake_expect(FAKE_GREEN_DESC, desc);
    green = fake_new(FAKE_GREEN, sizeof(*green));
    green->primary = &fake_contexts[device];
    green->as.ordinal = device;
    green->first = desc->first;
    green->count = desc->count;
    fake_delete(
        desc); /* a descriptor has no end of its own: it counts as the context's */
    fake_retain(green->primary);
    *handle = (CUgreenCtx)(void *)green;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx handle)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    CUcontext primary = green_of(handle)->primary;

    fake_delete(handle);
    fake_release(primary);
    return later;
}

FAKE_API CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle)
{
    FAKE_ENTER(FAKE_INIT);
    *context = &green_of(handle)->as;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle,
                                                 unsigned flags, int priority)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_green *green = green_of(handle);

    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = fake_stream_create(green->primary, green, flags, priority);
    return CUDA_SUCCESS;
}

#else

struct fake_green *fake_green_of(CUcontext context)
{
    (void)context;
    return NULL;
}

CUresult CUDAAPI cuCtxGetDevResource(void);
FAKE_API CUresult CUDAAPI cuCtxGetDevResource(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#endif
