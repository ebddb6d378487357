/* SPDX-License-Identifier: MIT */
/*
 * fabric.c - see fabric.h.
 *
 * An attribute of the device says nothing about the fabric's manager, the channel of IMEX or the
 * links, so a domain counts only after a proof: each rank makes memory that holds numbers, and
 * each rank of another host imports its handle, maps it and reads the numbers.
 */
#include "cuda/fabric.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/imex.h"
#include "cuda/nvml.h"
#include "util/log.h"
#include "util/status.h"

#define PROOF_WORDS 64 /* at the begin of the memory, and as many at its end */

_Static_assert(sizeof(CUmemFabricHandle) == SYMM_FABRIC_BYTES,
               "a handle of the fabric");

/* Memory in address space of its own. */
struct area {
    CUdeviceptr at;
    size_t bytes;
};

struct words {
    uint64_t first[PROOF_WORDS], last[PROOF_WORDS];
};

static CUmemAllocationProp properties_of(const struct symm_backend *backend)
{
    CUmemAllocationProp properties = symm__cuda_properties(backend->device.ordinal);

    properties.requestedHandleTypes =
        (CUmemAllocationHandleType)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                    CU_MEM_HANDLE_TYPE_FABRIC);
    return properties;
}

/* The numbers of a proof; those of two proofs differ. */
static void words_fill(struct words *words, uint64_t number)
{
    for (uint64_t i = 0; i < PROOF_WORDS; i++) {
        words->first[i] = (number + i) * UINT64_C(0x9e3779b97f4a7c15);
        words->last[i] = ~words->first[i];
    }
}

static void area_close(struct symm_backend *backend, struct area *area)
{
    const struct symm_cuda_driver *d = backend->driver;

    if (area->at == 0)
        return;
    if (d->cuMemUnmap(area->at, area->bytes) != CUDA_SUCCESS ||
        d->cuMemAddressFree(area->at, area->bytes) != CUDA_SUCCESS)
        symm__log(SYMM_LOG_DEBUG, "%zu bytes stay mapped until the process ends",
                  area->bytes);
    area->at = 0;
}

/* Maps memory, and releases its handle in any case. */
static symm_status area_open(struct symm_backend *backend,
                             CUmemGenericAllocationHandle memory, size_t bytes,
                             struct area *area)
{
    const struct symm_cuda_driver *d = backend->driver;
    CUdeviceptr at = 0;
    symm_status status =
        SYMM_CUDA_CALL(d, cuMemAddressReserve, (&at, bytes, 0, 0, 0),
                       "address space of %zu bytes for a proof of the fabric", bytes);

    if (status == SYMM_OK) {
        status = symm__cuda_map(backend, memory, at, bytes);
        if (status != SYMM_OK)
            (void)d->cuMemAddressFree(at, bytes);
    }
    (void)d->cuMemRelease(memory);
    if (status == SYMM_OK)
        *area = (struct area){at, bytes};
    return status;
}

static symm_status copy(struct symm_backend *backend, CUdeviceptr to, CUdeviceptr from,
                        size_t bytes)
{
    symm_status status = SYMM_CUDA_CALL(backend->driver, cuMemcpyAsync,
                                        (to, from, bytes, backend->setup),
                                        "%zu bytes for a proof of the fabric", bytes);

    return status == SYMM_OK ? symm__cuda_complete(backend, "a proof of the fabric")
                             : status;
}

static CUdeviceptr host_of(void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static symm_status words_write(struct symm_backend *backend, const struct area *area,
                               uint64_t number)
{
    const CUdeviceptr end = area->at + area->bytes;
    struct words words;
    symm_status status;

    words_fill(&words, number);
    status = copy(backend, area->at, host_of(words.first), sizeof(words.first));
    return status == SYMM_OK ? copy(backend, end - sizeof(words.last),
                                    host_of(words.last), sizeof(words.last))
                             : status;
}

static symm_status words_check(struct symm_backend *backend, const struct area *area,
                               uint64_t number)
{
    const CUdeviceptr end = area->at + area->bytes;
    struct words words, wanted;
    symm_status status;

    memset(&words, 0, sizeof(words));
    words_fill(&wanted, number);
    status = copy(backend, host_of(words.first), area->at, sizeof(words.first));
    if (status == SYMM_OK)
        status = copy(backend, host_of(words.last), end - sizeof(words.last),
                      sizeof(words.last));
    if (status == SYMM_OK && memcmp(&words, &wanted, sizeof(words)) != 0)
        status = symm__fail(SYMM_ERR_UNSUPPORTED,
                            "the memory behind a fabric handle was mapped, but reads "
                            "as other bytes than its owner wrote");
    return status;
}

/* ---- Making and importing ------------------------------------------------------------ */

/* Memory with a fabric handle. A refusal is explained where the channel of IMEX is missing. */
static symm_status make(struct symm_backend *backend, struct area *area,
                        CUmemFabricHandle *handle, CUresult *result)
{
    const struct symm_cuda_driver *d = backend->driver;
    const CUmemAllocationProp properties = properties_of(backend);
    const size_t bytes = backend->granularity;
    CUmemGenericAllocationHandle memory;
    const char *missing;
    char text[300];
    symm_status status;

    *result = d->cuMemCreate(&memory, bytes, &properties, 0);
    if (*result != CUDA_SUCCESS) {
        missing = *result == CUDA_ERROR_NOT_PERMITTED
                      ? symm__imex_missing(SYMM_IMEX_FOLDER, text, sizeof(text))
                      : NULL;
        return symm__cuda_check(d, *result, "cuMemCreate",
                                "memory with a fabric handle%s%s", missing ? "; " : "",
                                missing ? missing : "");
    }
    *result =
        d->cuMemExportToShareableHandle(handle, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    status = symm__cuda_check(d, *result, "cuMemExportToShareableHandle",
                              "the fabric handle of %zu bytes", bytes);
    if (status == SYMM_OK)
        return area_open(backend, memory, bytes, area);
    (void)d->cuMemRelease(memory);
    return status;
}

static symm_status import(struct symm_backend *backend, const uint8_t *handle,
                          CUmemGenericAllocationHandle *memory)
{
    CUmemFabricHandle copied;

    memcpy(&copied, handle, sizeof(copied));
    return SYMM_CUDA_CALL(backend->driver, cuMemImportFromShareableHandle,
                          (memory, &copied, CU_MEM_HANDLE_TYPE_FABRIC),
                          "memory of another host, by its fabric handle");
}

static symm_status read_back(struct symm_backend *backend, const uint8_t *handle,
                             uint64_t number)
{
    CUmemGenericAllocationHandle memory;
    struct area area = {0};
    symm_status status = import(backend, handle, &memory);

    if (status == SYMM_OK)
        status = area_open(backend, memory, backend->granularity, &area);
    if (status == SYMM_OK)
        status = words_check(backend, &area, number);
    area_close(backend, &area);
    return status;
}

symm_status symm__cuda_fabric_try(struct symm_backend *backend, const char **step,
                                  CUresult *result)
{
    const uint64_t number = 21;
    CUmemFabricHandle handle;
    struct symm_cuda_scope scope;
    struct area area = {0};
    symm_status status = symm__cuda_enter(backend, &scope);

    *step = "entering the device";
    *result = CUDA_SUCCESS;
    if (status != SYMM_OK)
        return status;
    *step = "making and exporting";
    status = make(backend, &area, &handle, result);
    if (status == SYMM_OK)
        status = words_write(backend, &area, number);
    if (status == SYMM_OK) {
        *step = "importing and reading";
        status = read_back(backend, handle.data, number);
    }
    area_close(backend, &area);
    symm__cuda_leave(&scope);
    return status;
}

/* ---- The slots ------------------------------------------------------------------------ */

static symm_status fabric_clique(struct symm_backend *backend,
                                 struct symm_clique *clique)
{
    return symm__nvml_clique(backend->device.bus, clique);
}

static symm_status fabric_offer(struct symm_backend *backend, uint64_t number,
                                uint8_t *handle, void **proof)
{
    struct area *area = calloc(1, sizeof(*area));
    CUmemFabricHandle made;
    struct symm_cuda_scope scope;
    CUresult result;
    symm_status status;

    if (!area)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a proof of the fabric");
    status = symm__cuda_enter(backend, &scope);
    if (status == SYMM_OK) {
        status = make(backend, area, &made, &result);
        if (status == SYMM_OK)
            status = words_write(backend, area, number);
        if (status != SYMM_OK)
            area_close(backend, area);
        symm__cuda_leave(&scope);
    }
    if (status != SYMM_OK) {
        free(area);
        return status;
    }
    memcpy(handle, &made, sizeof(made));
    *proof = area;
    return SYMM_OK;
}

static void fabric_withdraw(struct symm_backend *backend, void *proof)
{
    struct symm_cuda_scope scope;

    if (proof && symm__cuda_enter_last(backend, &scope)) {
        area_close(backend, proof);
        symm__cuda_leave(&scope);
    }
    free(proof);
}

static symm_status fabric_prove(struct symm_backend *backend, const uint8_t *handle,
                                uint64_t number)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = read_back(backend, handle, number);
    symm__cuda_leave(&scope);
    return status;
}

static void fabric_use(struct symm_backend *backend)
{
    backend->fabric = true;
}

static symm_status fabric_handle(struct symm_backend *backend, void *at,
                                 uint8_t *handle)
{
    const struct symm_cuda_driver *d = backend->driver;
    CUmemGenericAllocationHandle memory;
    CUmemFabricHandle made;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(d, cuMemRetainAllocationHandle, (&memory, at),
                            "the memory at %p", at);
    if (status == SYMM_OK) {
        status = SYMM_CUDA_CALL(d, cuMemExportToShareableHandle,
                                (&made, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                                "a fabric handle");
        (void)d->cuMemRelease(memory);
    }
    symm__cuda_leave(&scope);
    if (status == SYMM_OK)
        memcpy(handle, &made, sizeof(made));
    return status;
}

const struct symm_fabric_ops symm__cuda_fabric = {
    .clique = fabric_clique,
    .offer = fabric_offer,
    .withdraw = fabric_withdraw,
    .prove = fabric_prove,
    .use = fabric_use,
    .handle = fabric_handle,
    .import = symm__cuda_fabric_import,
};
