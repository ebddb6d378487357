/* SPDX-License-Identifier: MIT */
/* nvml.c - see nvml.h. */
#include "cuda/nvml.h"

#include <string.h>

#include "util/library.h"
#include "util/status.h"

#define SUCCESS   0
#define COMPLETED 3 /* the fabric manager has registered the device */

struct nvml_device;

/* nvmlGpuFabricInfo_v2_t */
struct fabric_info {
    unsigned version;
    unsigned char cluster[16];
    int status; /* of the registration, valid once it is completed */
    unsigned clique;
    unsigned char state;
    unsigned health;
};

#define FABRIC_INFO_2 ((unsigned)sizeof(struct fabric_info) | 2u << 24)

static struct {
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus)(const char *bus, struct nvml_device **device);
    int (*fabric)(struct nvml_device *device, struct fabric_info *info);
    const char *(*error)(int result);
} nvml;

static const struct symm_library_function functions[] = {
    {"nvmlInit_v2", offsetof(__typeof__(nvml), init)},
    {"nvmlShutdown", offsetof(__typeof__(nvml), shutdown)},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(__typeof__(nvml), by_bus)},
    {"nvmlDeviceGetGpuFabricInfoV", offsetof(__typeof__(nvml), fabric)},
    {"nvmlErrorString", offsetof(__typeof__(nvml), error)},
};

static struct symm_library library = {.soname = "libnvidia-ml.so.1",
                                      .package = "the NVIDIA driver's NVML",
                                      .functions = functions,
                                      .count = sizeof(functions) / sizeof(*functions),
                                      .table = &nvml};

static symm_status failed(const char *function, const char *bus, int result)
{
    const char *text = nvml.error(result);

    return symm__fail(SYMM_ERR_UNSUPPORTED, "%s of device %s failed with %d (%.80s)",
                      function, bus, result, text ? text : "no text");
}

static const char *state_text(unsigned char state)
{
    static const char *const texts[] = {"the device has none", "not started",
                                        "in progress", "completed"};

    return state <= COMPLETED ? texts[state] : "unknown";
}

static symm_status take(const char *bus, const struct fabric_info *info,
                        struct symm_clique *clique)
{
    static const unsigned char none[16];

    if (info->state != COMPLETED)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "NVML says of the fabric of device %s: state %u (%s), not %u",
                          bus, info->state, state_text(info->state), COMPLETED);
    if (info->status != SUCCESS)
        return failed("the fabric's registration", bus, info->status);
    if (memcmp(info->cluster, none, sizeof(none)) == 0)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "NVML gives device %s no cluster: its NVLinks end at its host", bus);
    memcpy(clique->cluster, info->cluster, sizeof(clique->cluster));
    clique->id = info->clique;
    return SYMM_OK;
}

symm_status symm__nvml_clique(const char *bus, struct symm_clique *clique)
{
    struct fabric_info info = {.version = FABRIC_INFO_2};
    struct nvml_device *device;
    symm_status status = symm__library_load(&library, "NVLink domains");
    int result;

    if (status != SYMM_OK)
        return status;
    result = nvml.init();
    if (result != SUCCESS)
        return failed("nvmlInit", bus, result);
    result = nvml.by_bus(bus, &device);
    if (result != SUCCESS)
        status = failed("nvmlDeviceGetHandleByPciBusId", bus, result);
    else if ((result = nvml.fabric(device, &info)) != SUCCESS)
        status = failed("nvmlDeviceGetGpuFabricInfoV", bus, result);
    else
        status = take(bus, &info, clique);
    (void)nvml.shutdown();
    return status;
}
