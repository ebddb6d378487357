/* SPDX-License-Identifier: MIT */
/*
 * fake_nvtx.c - stands in for the library that a profiler has NVTX load: writes what comes to the
 * file FAKE_NVTX_OUT.PID, a line each:
 *
 *     domain NAME        string NAME        category N NAME
 *     push THREAD N BYTES NAME    a range begins: its category, payload and registered message
 *     pop THREAD
 *
 * What is not as NVTX has it is a line "bad ...": a range of another domain, without a registered
 * message or with a payload of another type, an end without a beginning.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

struct nvtxStringRegistration_st {
    char *text;
};
struct nvtxDomainRegistration_st {
    char name[64];
};

static FILE *out;
static _Thread_local int depth;

static nvtxDomainHandle_t domain_create(const char *name)
{
    struct nvtxDomainRegistration_st *domain = calloc(1, sizeof(*domain));

    if (domain)
        snprintf(domain->name, sizeof(domain->name), "%s", name);
    fprintf(out, "domain %s\n", name);
    return domain;
}

static void domain_destroy(nvtxDomainHandle_t domain)
{
    free(domain);
    fflush(out);
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *text)
{
    struct nvtxStringRegistration_st *string = calloc(1, sizeof(*string));

    if (string)
        string->text = strdup(text);
    fprintf(out, domain ? "string %s\n" : "bad string %s\n", text);
    return string;
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category,
                          const char *name)
{
    fprintf(out, domain ? "category %u %s\n" : "bad category %u %s\n", category, name);
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    const bool good = domain && strcmp(domain->name, "symm") == 0 &&
                      event->version == NVTX_VERSION && event->size >= sizeof(*event) &&
                      event->messageType == NVTX_MESSAGE_TYPE_REGISTERED &&
                      event->message.registered &&
                      event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;

    if (good)
        fprintf(out, "push %d %u %llu %s\n", (int)gettid(), event->category,
                (unsigned long long)event->payload.ullValue,
                event->message.registered->text);
    else
        fprintf(out, "bad push\n");
    return depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
    fprintf(out, domain && depth > 0 ? "pop %d\n" : "bad pop %d\n", (int)gettid());
    return --depth;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    const char *path = getenv("FAKE_NVTX_OUT");
    NvtxFunctionTable table = NULL;
    char name[300];
    unsigned size = 0;

    snprintf(name, sizeof(name), "%s.%d", path ? path : "/dev/null", (int)getpid());
    out = fopen(path ? name : "/dev/null", "we");
    if (!out || !callbacks ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainDestroy)
        return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
    *table[NVTX_CBID_CORE2_DomainDestroy] = (NvtxFunctionPointer)domain_destroy;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] =
        (NvtxFunctionPointer)register_string;
    *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
