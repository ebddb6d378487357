/* SPDX-License-Identifier: MIT */
/*
 * report.c - describes the driver and its devices, and proves attributes by use.
 *
 * Guarantees: the report leaves nothing allocated; a device that cannot be used is an entry with
 * a reason, never an error of the report. An attribute is no proof (drivers have said that fabric
 * handles work and refused them), so the report tries what the library needs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/backend.h"
#include "cuda/device.h"
#include "cuda/fabric.h"
#include "cuda/imex.h"
#include "cuda/nvml.h"
#include "cuda/report.h"
#include "topology/bind.h"
#include "util/options.h"
#include "util/status.h"

#define PROOF_BYTES ((size_t)2 << 20)
#define PROOF_WORDS (PROOF_BYTES / sizeof(uint64_t))

static symm_status look_at(const struct symm_cuda_driver *d, int ordinal, int count,
                           struct symm_cuda_reported *out)
{
    CUdevice device, other;
    size_t memory = 0;
    int can;
    symm_status status = symm__cuda_describe(d, ordinal, &device, &out->device);

    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDeviceTotalMem, (&memory, device),
                                "memory of device %d", ordinal);
    if (status != SYMM_OK)
        return status;
    out->memory = memory;
    out->node = -1;
    if (!symm__gpu_object("", out->device.bus, out->cpus, sizeof(out->cpus),
                          &out->node))
        out->cpus[0] = '\0';
    out->posix = symm__cuda_has(
        d, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    out->fabric =
        symm__cuda_has(d, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    if (out->fabric && symm__nvml_clique(out->device.bus, &out->clique) != SYMM_OK)
        snprintf(out->no_clique, sizeof(out->no_clique), "%.255s", symm_last_error());
    out->multicast = symm__cuda_has(d, device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
    for (int i = 0; i < count; i++)
        out->peer[i] = i != ordinal && d->cuDeviceGet(&other, i) == CUDA_SUCCESS &&
                       d->cuDeviceCanAccessPeer(&can, device, other) == CUDA_SUCCESS &&
                       can;
    return SYMM_OK;
}

static void name_kernels(struct symm_cuda_report *report)
{
    const char *folder = symm__option(SYMM_OPTION_KERNELS);
    int count = 0;

    while (symm__cuda_images[count].module)
        count++;
    if (folder)
        snprintf(report->kernels, sizeof(report->kernels), "SYMM_KERNELS: %s", folder);
    else if (count == 0)
        snprintf(report->kernels, sizeof(report->kernels), "none in this build");
    else
#ifdef SYMM_CUDA_TARGETS
        snprintf(report->kernels, sizeof(report->kernels), "%d modules for %s", count,
                 SYMM_CUDA_TARGETS);
#else
        snprintf(report->kernels, sizeof(report->kernels), "%d modules", count);
#endif
}

/* ---- Proofs ---------------------------------------------------------------------- */

/* Two devices: `from` has the memory, `to` maps it by its handle. */
struct trial {
    struct symm_backend *from, *to;
    uint64_t *words; /* of the host, PROOF_WORDS */
};

static uint64_t pattern(const struct trial *t, size_t i)
{
    return (uint64_t)(t->from->device.ordinal * 64 + t->to->device.ordinal + 1) *
               UINT64_C(0x9e3779b97f4a7c15) +
           i;
}

/* Copies and waits, as the backend's device. */
static symm_status copy(struct symm_backend *b, CUdeviceptr dst, CUdeviceptr src)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(b->driver, cuMemcpyAsync, (dst, src, PROOF_BYTES, b->setup),
                            "copying %zu bytes by device %d", PROOF_BYTES,
                            b->device.ordinal);
    if (status == SYMM_OK)
        status = symm__cuda_complete(b, "copying");
    symm__cuda_leave(&scope);
    return status;
}

/* The owner writes a pattern to the memory; compares what the peer reads from there. */
static symm_status compare(struct trial *t, CUdeviceptr own, CUdeviceptr seen)
{
    CUdeviceptr words = (CUdeviceptr)(uintptr_t)t->words;
    symm_status status;

    for (size_t i = 0; i < PROOF_WORDS; i++)
        t->words[i] = pattern(t, i);
    status = copy(t->from, own, words);
    memset(t->words, 0, PROOF_BYTES);
    if (status == SYMM_OK)
        status = copy(t->to, words, seen);
    for (size_t i = 0; status == SYMM_OK && i < PROOF_WORDS; i++)
        if (t->words[i] != pattern(t, i))
            status = symm__fail(SYMM_ERR_DAMAGED,
                                "device %d reads word %zu of device %d's memory wrong",
                                t->to->device.ordinal, i, t->from->device.ordinal);
    return status;
}

static symm_status prove_pair(struct trial *t)
{
    void *own, *seen;
    int handle;
    symm_status status = symm__cuda_reserve(t->from, PROOF_BYTES, &own);

    if (status != SYMM_OK)
        return status;
    status = symm__cuda_reserve(t->to, PROOF_BYTES, &seen);
    if (status != SYMM_OK)
        goto err_own;
    status = symm__cuda_commit(t->from, own, PROOF_BYTES, 0, &handle);
    if (status == SYMM_OK) {
        status = symm__cuda_import(t->to, handle, seen, PROOF_BYTES);
        close(handle);
    }
    if (status == SYMM_OK)
        status = compare(t, (CUdeviceptr)(uintptr_t)own, (CUdeviceptr)(uintptr_t)seen);
    symm__cuda_release(t->to, seen, PROOF_BYTES);
err_own:
    symm__cuda_release(t->from, own, PROOF_BYTES);
    return status;
}

static symm_status prove_pairs(struct symm_cuda_report *report,
                               struct symm_backend *const *backends, int *pairs)
{
    struct trial trial = {.words = malloc(PROOF_BYTES)};
    symm_status status = SYMM_OK;

    if (!trial.words)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %zu bytes", PROOF_BYTES);
    for (int i = 0; i < report->count; i++)
        for (int j = 0; j < report->count && status == SYMM_OK; j++) {
            if (!report->device[j].peer[i])
                continue;
            trial.from = backends[i];
            trial.to = backends[j];
            status = prove_pair(&trial);
            ++*pairs;
        }
    free(trial.words);
    return status;
}

__attribute__((format(printf, 4, 5))) static void
proved(struct symm_cuda_report *report, const char *name, bool good, const char *format,
       ...)
{
    struct symm_cuda_proof *proof = &report->proof[report->proof_count++];
    va_list list;

    proof->name = name;
    proof->good = good;
    va_start(list, format);
    vsnprintf(proof->text, sizeof(proof->text), format, list);
    va_end(list);
}

/* Fabric handles are for memory across hosts: a device without them is not at fault. */
static void try_fabric(struct symm_cuda_report *report, struct symm_backend *b)
{
    const char *attribute = report->device[0].fabric ? "yes" : "no";
    const char *name = "an unknown error", *missing, *step;
    char text[300], why[SYMM_ERROR_BYTES];
    CUresult result;

    if (symm__cuda_fabric_try(b, &step, &result) == SYMM_OK) {
        proved(report, "fabric", true,
               "memory was made, exported, imported and read back by a fabric handle "
               "(the attribute says %s); whether another host can is found out by "
               "symm_init",
               attribute);
        return;
    }
    if (result == CUDA_SUCCESS) { /* the handle was made, but cannot be used */
        snprintf(why, sizeof(why), "%s", symm_last_error());
        proved(report, "fabric", false, "%s by a fabric handle: %.300s", step, why);
        return;
    }
    (void)b->driver->cuGetErrorName(result, &name);
    /* A device without such handles needs no channel. */
    missing =
        report->device[0].fabric ||
                result == CUDA_ERROR_NOT_PERMITTED /* the driver's code for that */
            ? symm__imex_missing(SYMM_IMEX_FOLDER, text, sizeof(text))
            : NULL;
    proved(
        report, "fabric", true,
        "no memory with a fabric handle: cuMemCreate says %s, the attribute says %s; "
        "not needed on one host%s%s",
        name, attribute, missing ? "; in an NVLink domain: " : "",
        missing ? missing : "");
}

static void prove(struct symm_cuda_report *report)
{
    struct symm_backend *backends[SYMM_CUDA_REPORT_DEVICES] = {NULL};
    symm_status status = SYMM_OK;
    int opened = 0, pairs = 0;

    while (opened < report->count && status == SYMM_OK) {
        status = symm__cuda_open_device(opened, &backends[opened]);
        opened += status == SYMM_OK;
    }
    if (status == SYMM_OK)
        proved(report, "kernels", true, "loaded on %d devices", opened);
    else
        proved(report, "kernels", false, "%s", symm_last_error());
    if (status == SYMM_OK) {
        status = prove_pairs(report, backends, &pairs);
        if (status == SYMM_OK)
            proved(report, "copies", true,
                   "%d ordered pairs of devices passed memory by its handle and read "
                   "it right",
                   pairs);
        else
            proved(report, "copies", false, "%s", symm_last_error());
        try_fabric(report, backends[0]);
    }
    for (int i = 0; i < opened; i++)
        symm__backend_cuda.close(backends[i]);
}

void symm__cuda_report(struct symm_cuda_report *report, bool probe)
{
    const char *library = symm__option(SYMM_OPTION_CUDA_LIBRARY);
    const struct symm_cuda_driver *d;
    int count = 0;
    symm_status status = symm__cuda_driver(&d);

    snprintf(report->library, sizeof(report->library), "%s", library ? library : "");
    name_kernels(report);
    if (status == SYMM_OK) {
        report->version = d->version;
        status = symm__cuda_count(&count);
    }
    if (count > SYMM_CUDA_REPORT_DEVICES)
        count = SYMM_CUDA_REPORT_DEVICES;
    for (int i = 0; i < count && status == SYMM_OK; i++) {
        status = look_at(d, i, count, &report->device[i]);
        report->count += status == SYMM_OK;
    }
    if (status != SYMM_OK)
        snprintf(report->why, sizeof(report->why), "%s", symm_last_error());
    else if (count == 0)
        snprintf(report->why, sizeof(report->why), "the CUDA driver shows no device");
    else if (probe)
        prove(report);
}
