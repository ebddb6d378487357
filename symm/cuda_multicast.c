/* SPDX-License-Identifier: MIT */
/*
 * cuda_multicast.c - one address for the memory of all members, by NVLink switches.
 *
 * Off unless SYMM_MULTICAST=1 and no variable that people turn multicast off with says
 * otherwise; then nothing here calls the driver. All members or none: the wish and the
 * devices' ability are compared at the start of the job, each later step ends in an exchange.
 */
#include <stdlib.h>
#include <string.h>

#include "backend_cuda.h"
#include "log.h"
#include "options.h"
#include "status.h"

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
