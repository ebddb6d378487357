/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_module.c - modules and launches. Only the form of an image is checked; its
 * kernels are the functions of the same names in the fake's own library, into which every
 * kernel is linked. Launches that a GPU would refuse are refused. The first look-up of a
 * function loads it, and waits for all running work, as a real driver may.
 */
#include <dlfcn.h>
#include <link.h>

#include "fake_cuda_private.h"

#define FATBIN_MAGIC 0xba55ed50u

struct CUmod_st {
    struct fake_object object;
    CUcontext context;
    struct CUfunc_st *functions;
    bool loaded;           /* all that it has */
    struct CUfunc_st *all; /* stands for all that it has */
};

struct CUfunc_st {
    struct CUfunc_st *next;
    CUmodule module;
    char name[96];
    void (*kernel)(struct symm_cuda_args);
};

/* A fat binary, ELF, or PTX text. */
static bool is_image(const void *image)
{
    uint32_t magic;

    memcpy(&magic, image, sizeof(magic));
    return magic == FATBIN_MAGIC || memcmp(image, "\177ELF", 4) == 0 ||
           memcmp(image, "//\n/", 4) == 0 || memcmp(image, ".ver", 4) == 0;
}

FAKE_API CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    FAKE_ENTER(FAKE_CURRENT | FAKE_UNSAFE);

    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_image(image))
        return CUDA_ERROR_INVALID_IMAGE;
    *module = fake_new(FAKE_MODULE, sizeof(**module));
    (*module)->context = fake_current();
    return CUDA_SUCCESS;
}

/* A module seems to have one function. */
FAKE_API CUresult CUDAAPI cuModuleGetFunctionCount(unsigned *count, CUmodule module)
{
    FAKE_ENTER(FAKE_CURRENT);

    fake_expect(FAKE_MODULE, module);
    *count = 1;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *functions,
                                                     unsigned count, CUmodule module)
{
    FAKE_ENTER(FAKE_CURRENT);

    fake_expect(FAKE_MODULE, module);
    if (!module->all)
        module->all = calloc(1, sizeof(*module->all));
    if (!module->all)
        fake_die("no memory");
    module->all->module = module;
    if (count > 0)
        functions[0] = module->all;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    FAKE_ENTER(FAKE_CURRENT);

    fake_expect(FAKE_MODULE, function->module);
    function->module->loaded = true;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    FAKE_ENTER_FREE(FAKE_CURRENT);

    fake_expect(FAKE_MODULE, module);
    if (module->context != fake_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    for (CUfunction f = module->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(module->all);
    fake_delete(module);
    return later;
}

/* The function of this name in the fake's own library; not what the library links to. */
static void *own_symbol(const char *name)
{
    Dl_info own, found;
    void *library, *symbol = NULL;

    if (dladdr((void *)own_symbol, &own) == 0)
        return NULL;
    library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return NULL;
    symbol = dlsym(library, name);
    if (symbol && (dladdr(symbol, &found) == 0 || found.dli_fbase != own.dli_fbase))
        symbol = NULL;
    dlclose(library); /* the reference of RTLD_NOLOAD */
    return symbol;
}

FAKE_API CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module,
                                              const char *name)
{
    FAKE_ENTER(FAKE_CURRENT);
    void *symbol;
    CUfunction f;

    fake_expect(FAKE_MODULE, module);
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (module->context != fake_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    symbol = strncmp(name, "cu", 2) == 0 || strncmp(name, "fake_cuda", 9) == 0
                 ? NULL
                 : own_symbol(name);
    if (!symbol)
        return CUDA_ERROR_NOT_FOUND;
    if (!module->loaded)
        fake_context_wait(module->context);
    f = calloc(1, sizeof(*f));
    if (!f)
        fake_die("no memory");
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->module = module;
    f->kernel = (void (*)(struct symm_cuda_args))symbol;
    f->next = module->functions;
    module->functions = f;
    *function = f;
    return CUDA_SUCCESS;
}

static void expect_function(CUfunction function)
{
    for (struct fake_object *o = fake_first(FAKE_MODULE); o; o = o->next)
        for (CUfunction f = ((CUmodule)(void *)o)->functions; f; f = f->next)
            if (f == function)
                return;
    fake_die("%p is no function of a loaded module (unloaded before?)",
             (void *)function);
}

FAKE_API CUresult CUDAAPI cuFuncSetAttribute(CUfunction function,
                                             CUfunction_attribute attribute, int value)
{
    FAKE_ENTER(FAKE_CURRENT);

    expect_function(function);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return value >= 0 && value <= 232448 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

FAKE_API CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                             CUfunction function)
{
    FAKE_ENTER(FAKE_CURRENT);

    expect_function(function);
    if (attribute != CU_FUNC_ATTRIBUTE_NUM_REGS)
        return CUDA_ERROR_INVALID_VALUE;
    *value = fake_registers(function->name, 32);
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, CUfunction function, int threads, size_t shared)
{
    FAKE_ENTER(FAKE_CURRENT);

    expect_function(function);
    if (threads <= 0 || threads > 1024 || shared > 232448)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = fake_occupancy(fake_registers(function->name, (unsigned)threads),
                             (unsigned)threads);
    return CUDA_SUCCESS;
}

/* What the model of the device does not know has no effect. */
static CUresult take_attributes(const CUlaunchConfig *config, struct fake_op *op)
{
    if (config->numAttrs > 0 && !config->attrs)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];

        switch (attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            op->dependent = attribute->value.programmaticStreamSerializationAllowed;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            op->priority = attribute->value.priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            op->cluster = attribute->value.clusterDim.x;
            if (op->cluster == 0 || op->cluster > 8 ||
                attribute->value.clusterDim.y != 1 ||
                attribute->value.clusterDim.z != 1)
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            break;
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config,
                                           CUfunction function, void **params,
                                           void **extra)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_KERNEL, .cluster = 1};
    CUstream stream;
    CUresult result;

    if (!config || !params || !params[0] || extra)
        return CUDA_ERROR_INVALID_VALUE;
    expect_function(function);
    stream = config->hStream;
    result = fake_stream_of(&stream);
    if (result == CUDA_SUCCESS) {
        op.priority = stream->priority;
        result = take_attributes(config, &op);
    }
    if (result == CUDA_SUCCESS && function->module->context != stream->context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    if (config->gridDimX == 0 || config->gridDimY != 1 || config->gridDimZ != 1 ||
        config->blockDimX == 0 || config->blockDimX > 1024 || config->blockDimY != 1 ||
        config->blockDimZ != 1 || config->sharedMemBytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    op.kernel = function->kernel;
    op.blocks = config->gridDimX;
    op.threads = config->blockDimX;
    op.name = function->name;
    op.registers = fake_registers(function->name, op.threads);
    memcpy(&op.args, params[0], sizeof(op.args));
    if (op.cluster != 1u << op.args.cluster) /* it is what the kernel goes by */
        fake_die("kernel %s is launched in clusters of %u blocks, and its arguments "
                 "say 2^%u",
                 op.name, op.cluster, op.args.cluster);
    if (op.blocks % op.cluster != 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    fake_ones_now(op.name, &op.args);
    return fake_submit(stream, &op);
}
