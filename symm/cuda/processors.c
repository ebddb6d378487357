/* SPDX-License-Identifier: MIT */
/* processors.c - see processors.h. */
#include "cuda/processors.h"

#include <stdlib.h>

#include "cuda/device.h"
#include "util/options.h"
#include "util/status.h"

#define MOST_PROCESSORS 65536
#define MPS_ENABLED     ((CUdevice_attribute)133) /* older headers lack the name */

/* Those of a context; 0: not known. */
static int processors_of(const struct symm_cuda_driver *driver, CUcontext context)
{
#if CUDA_VERSION >= 12040
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_INVALID};

    if (driver->cuCtxGetDevResource &&
        driver->cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM) ==
            CUDA_SUCCESS &&
        resource.sm.smCount <= MOST_PROCESSORS)
        return (int)resource.sm.smCount;
#else
    (void)driver, (void)context;
#endif
    return 0;
}

/* Those of the current context, if it is one of this device; 0: not known. */
static int processors_here(const struct symm_cuda_driver *driver, CUdevice device)
{
    CUcontext context = NULL;
    CUdevice its = -1;

    if (driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
        driver->cuCtxGetDevice(&its) != CUDA_SUCCESS || its != device)
        return 0;
    return processors_of(driver, context);
}

/* Those of the whole device, of which this process may use `share`; 0: MPS is not used. The driver
 * tells the share alone. So a limit that was set by the daemon's commands is not seen, and the share
 * counts as the whole. */
static int processors_by_mps(const struct symm_cuda_driver *driver, CUdevice device,
                             int share)
{
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const long percent = text ? strtol(text, NULL, 10) : 100;

    if (!symm__cuda_has(driver, device, MPS_ENABLED))
        return 0;
    return percent >= 1 && percent < 100 ? (int)(share * 100L / percent) : share;
}

symm_status symm__cuda_processors(const struct symm_cuda_driver *driver,
                                  CUdevice device, struct symm_device_info *info)
{
    const int here = processors_here(driver, device);
    int64_t most = 0;
    symm_status status =
        symm__option_integer(SYMM_OPTION_PROCESSORS, 0, MOST_PROCESSORS, &most);

    info->mps = processors_by_mps(driver, device, info->processors);
    if (here > 0 && here < info->processors)
        info->processors = here;
    if (most > 0 && most < info->processors)
        info->processors = (int)most;
    return status;
}

symm_status symm__cuda_stream_admit(symm_ctx *ctx, void *stream)
{
    const struct symm_cuda_driver *driver = ctx->launcher->driver;
    CUcontext context = NULL;
    char name[48];
    int has;

    /* Calls on the special streams are made in the rank's own context. */
    if (!stream || stream == (void *)CU_STREAM_PER_THREAD || !driver->cuStreamGetCtx ||
        driver->cuStreamGetCtx((CUstream)stream, &context) != CUDA_SUCCESS)
        return SYMM_OK;
    has = processors_of(driver, context);
    if (has == 0 || has >= ctx->processors)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_UNSUPPORTED,
        "%s of rank %d has %d multiprocessors (its green context), but grids of calls "
        "are made for %d, the fewest of any rank at symm_init; set SYMM_PROCESSORS=%d, "
        "or make that context current for symm_init",
        symm__cuda_stream_text(stream, name, sizeof(name)), ctx->rank, has,
        ctx->processors, has);
}
