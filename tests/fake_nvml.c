/* SPDX-License-Identifier: MIT */
/*
 * fake_nvml.c - lib/libfake_nvml.so stands in for NVML: its soname is libnvidia-ml.so.1, so a
 * process that has loaded it by its path finds it under that name, too. All devices are in one
 * clique.
 *
 * Environment, read at each call:
 *  FAKE_NVML_STATE=n     of the fabric's registration (3: completed)
 *  FAKE_NVML_STATUS=n    with which it was completed (0)
 *  FAKE_NVML_CLUSTER=n   the cluster's first byte (1); 0: no cluster
 *  FAKE_NVML_CLIQUE=n    (7)
 *  FAKE_NVML_FAIL=name   this function fails with 999
 */
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

struct nvml_device {
    char bus[32];
};

struct fabric_info {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct nvml_device **device);
API int nvmlDeviceGetGpuFabricInfoV(struct nvml_device *device,
                                    struct fabric_info *info);
API const char *nvmlErrorString(int result);

static int initialised;

static unsigned number(const char *name, unsigned fallback)
{
    const char *text = getenv(name);

    return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

static int result_of(const char *function)
{
    const char *fails = getenv("FAKE_NVML_FAIL");

    return fails && strcmp(fails, function) == 0 ? 999 : initialised > 0 ? 0 : 1;
}

int nvmlInit_v2(void)
{
    initialised++;
    return result_of("nvmlInit");
}

int nvmlShutdown(void)
{
    initialised--;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct nvml_device **device)
{
    static struct nvml_device only;

    if (strlen(bus) != 12 || bus[4] != ':') /* "0000:a0:00.0" */
        return 2;
    *device = &only;
    return result_of("nvmlDeviceGetHandleByPciBusId");
}

int nvmlDeviceGetGpuFabricInfoV(struct nvml_device *device, struct fabric_info *info)
{
    int result = result_of("nvmlDeviceGetGpuFabricInfoV");

    if (!device || info->version != (36u | 2u << 24))
        return 2;
    memset(info->cluster, 0, sizeof(info->cluster));
    info->cluster[0] = (unsigned char)number("FAKE_NVML_CLUSTER", 1);
    info->status = (int)number("FAKE_NVML_STATUS", 0);
    info->clique = number("FAKE_NVML_CLIQUE", 7);
    info->state = (unsigned char)number("FAKE_NVML_STATE", 3);
    info->health = 0;
    return result;
}

const char *nvmlErrorString(int result)
{
    return result == 0 ? "Success" : "Unknown Error";
}
