/* SPDX-License-Identifier: MIT */
/*
 * modules.c - the kernels' machine code on the device, and its functions by name.
 *
 * All modules are loaded when the context is made, with all their functions, so that no call
 * and no capture of a graph loads one; a function is looked up in the driver once. With
 * SYMM_KERNELS the modules are the files NAME.fatbin of a folder, for builders of kernels.
 * Refuses: a build without kernels and without such a folder; an empty folder.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"
#include "util/options.h"
#include "util/status.h"

#define NAME_BYTES     64
#define SUFFIX         ".fatbin"
#define FATBIN_LARGEST (256L << 20)

struct module {
    char name[NAME_BYTES];
    CUmodule module;
};

struct function {
    char module[NAME_BYTES], name[128];
    CUfunction function;
};

struct symm_cuda_modules {
    pthread_mutex_t lock;
    struct module *modules; /* owned, as all below */
    size_t module_count;
    struct function *functions;
    size_t function_count, function_capacity;
};

/* Since CUDA 12.2 the driver loads a function at its first look-up, and may first wait for all
 * running kernels: also for one that waits for a peer, which waits for the call that looks the
 * function up. Drivers before 12.4 load early only with CUDA_MODULE_LOADING=EAGER. */
static symm_status load_functions(const struct symm_cuda_driver *driver,
                                  const struct module *module)
{
    unsigned count = 0;
    CUfunction *list = NULL;
    symm_status status;

    if (!driver->cuModuleGetFunctionCount || !driver->cuModuleEnumerateFunctions ||
        !driver->cuFuncLoad)
        return SYMM_OK;
    status = SYMM_CUDA_CALL(driver, cuModuleGetFunctionCount, (&count, module->module),
                            "module %s", module->name);
    if (status != SYMM_OK || count == 0)
        return status;
    list = calloc(count, sizeof(*list));
    if (!list)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %u kernels", count);
    status = SYMM_CUDA_CALL(driver, cuModuleEnumerateFunctions,
                            (list, count, module->module), "module %s", module->name);
    for (unsigned i = 0; i < count && status == SYMM_OK; i++)
        status = SYMM_CUDA_CALL(driver, cuFuncLoad, (list[i]),
                                "kernel %u of %u of module %s", i, count, module->name);
    free(list);
    return status;
}

/* With the context current. */
static symm_status load(struct symm_backend *backend, const char *name,
                        const void *image)
{
    struct symm_cuda_modules *m = backend->modules;
    struct module *grown =
        realloc(m->modules, (m->module_count + 1) * sizeof(*m->modules));
    struct module *made;
    symm_status status;

    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu modules",
                          m->module_count + 1);
    m->modules = grown;
    made = &grown[m->module_count];
    if ((size_t)snprintf(made->name, sizeof(made->name), "%s", name) >=
        sizeof(made->name))
        return symm__fail(SYMM_ERR_INVALID, "'%s' is too long for the name of a module",
                          name);
    status = SYMM_CUDA_CALL(backend->driver, cuModuleLoadData, (&made->module, image),
                            "the kernels of module %s for device %d (%s, %d.%d)", name,
                            backend->device.ordinal, backend->device.name,
                            backend->device.major, backend->device.minor);
    if (status != SYMM_OK)
        return status;
    m->module_count++;
    return load_functions(backend->driver, made);
}

/* The whole file, for the driver to read; the caller frees it. */
static symm_status read_file(const char *path, void **data)
{
    FILE *file = fopen(path, "re");
    long bytes = -1;
    char *made = NULL;

    if (file && fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    if (bytes > 0 && bytes <= FATBIN_LARGEST && fseek(file, 0, SEEK_SET) == 0)
        made = calloc(1, (size_t)bytes + 1); /* PTX as text ends with a NUL */
    if (made && fread(made, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(made);
        made = NULL;
    }
    if (file)
        fclose(file);
    if (!made)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "reading the %ld bytes of kernels in %s", bytes, path);
    *data = made;
    return SYMM_OK;
}

static symm_status load_file(struct symm_backend *backend, const char *folder,
                             const char *file)
{
    char path[4096], name[NAME_BYTES];
    size_t stem = strlen(file) - strlen(SUFFIX);
    void *data = NULL;
    symm_status status;

    if (stem >= sizeof(name) ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", folder, file) >= sizeof(path))
        return symm__fail(SYMM_ERR_INVALID, "SYMM_KERNELS: too long a name: %s/%s",
                          folder, file);
    memcpy(name, file, stem);
    name[stem] = '\0';
    status = symm__option_file(path);
    if (status == SYMM_OK)
        status = read_file(path, &data);
    if (status != SYMM_OK)
        return status;
    status = load(backend, name, data);
    free(data);
    return status;
}

static symm_status load_folder(struct symm_backend *backend, const char *folder)
{
    symm_status status = SYMM_OK;
    DIR *list = opendir(folder);

    if (!list)
        return symm__fail_errno(SYMM_ERR_INVALID, errno, "SYMM_KERNELS: folder %s",
                                folder);
    for (struct dirent *e = readdir(list); e && status == SYMM_OK; e = readdir(list)) {
        size_t length = strlen(e->d_name);

        if (length > strlen(SUFFIX) &&
            strcmp(e->d_name + length - strlen(SUFFIX), SUFFIX) == 0)
            status = load_file(backend, folder, e->d_name);
    }
    closedir(list);
    if (status == SYMM_OK && backend->modules->module_count == 0)
        status = symm__fail(SYMM_ERR_INVALID, "SYMM_KERNELS: no file *%s in %s", SUFFIX,
                            folder);
    return status;
}

symm_status symm__cuda_modules_open(struct symm_backend *backend)
{
    const char *folder = symm__option(SYMM_OPTION_KERNELS);
    const struct symm_cuda_image *image = symm__cuda_images;
    symm_status status = SYMM_OK;

    if (!folder && !image->module)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "this build of libsymm has no CUDA kernels: it was made "
                          "without nvcc; rebuild it, or set SYMM_KERNELS");
    backend->modules = calloc(1, sizeof(*backend->modules));
    if (!backend->modules)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of modules");
    pthread_mutex_init(&backend->modules->lock, NULL);
    if (folder)
        return load_folder(backend, folder);
    for (; image->module && status == SYMM_OK; image++)
        status = load(backend, image->module, image->data);
    return status;
}

void symm__cuda_modules_abandon(struct symm_backend *backend)
{
    struct symm_cuda_modules *m = backend->modules;

    if (!m)
        return;
    free(m->functions);
    free(m->modules);
    pthread_mutex_destroy(&m->lock);
    free(m);
    backend->modules = NULL;
}

void symm__cuda_modules_close(struct symm_backend *backend)
{
    for (size_t i = 0; backend->modules && i < backend->modules->module_count; i++)
        (void)backend->driver->cuModuleUnload(backend->modules->modules[i].module);
    symm__cuda_modules_abandon(backend);
}

/* ---- Functions ------------------------------------------------------------------- */

static const struct module *module_find(const struct symm_cuda_modules *m,
                                        const char *name)
{
    for (size_t i = 0; i < m->module_count; i++)
        if (strcmp(m->modules[i].name, name) == 0)
            return &m->modules[i];
    return NULL;
}

static symm_status function_add(struct symm_cuda_modules *m,
                                const struct symm_cuda_kernel *kernel,
                                CUfunction function)
{
    struct function *made;

    if (m->function_count == m->function_capacity) {
        size_t capacity = m->function_capacity ? 2 * m->function_capacity : 32;
        struct function *grown = realloc(m->functions, capacity * sizeof(*grown));

        if (!grown)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a table of %zu functions",
                              capacity);
        m->functions = grown;
        m->function_capacity = capacity;
    }
    made = &m->functions[m->function_count++];
    snprintf(made->module, sizeof(made->module), "%s", kernel->module);
    snprintf(made->name, sizeof(made->name), "%s", kernel->name);
    made->function = function;
    return SYMM_OK;
}

/* With the lock held and the context current. */
static symm_status look_up(struct symm_backend *backend,
                           const struct symm_cuda_kernel *kernel, void **function)
{
    struct symm_cuda_modules *m = backend->modules;
    const struct module *module = module_find(m, kernel->module);
    CUfunction found;
    symm_status status;

    if (!module)
        return symm__fail(
            SYMM_ERR_NOT_FOUND, "kernel %s is in module %s, which %s does not have",
            kernel->name, kernel->module,
            symm__option(SYMM_OPTION_KERNELS) ? "SYMM_KERNELS" : "this build");
    status = SYMM_CUDA_CALL(backend->driver, cuModuleGetFunction,
                            (&found, module->module, kernel->name),
                            "kernel %s of module %s", kernel->name, kernel->module);
    if (status == SYMM_OK)
        status = function_add(m, kernel, found);
    if (status == SYMM_OK)
        *function = (void *)found;
    return status;
}

symm_status symm__cuda_function(symm_ctx *ctx, const struct symm_cuda_kernel *kernel,
                                void **function)
{
    struct symm_backend *backend = ctx->backend;
    struct symm_cuda_modules *m = backend->modules;
    struct symm_cuda_scope scope;
    symm_status status = SYMM_OK;

    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->function_count; i++)
        if (strcmp(m->functions[i].name, kernel->name) == 0 &&
            strcmp(m->functions[i].module, kernel->module) == 0) {
            *function = (void *)m->functions[i].function;
            goto out;
        }
    status = symm__cuda_enter(backend, &scope);
    if (status == SYMM_OK) {
        status = look_up(backend, kernel, function);
        symm__cuda_leave(&scope);
    }
out:
    pthread_mutex_unlock(&m->lock);
    return status;
}
