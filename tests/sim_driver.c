/* SPDX-License-Identifier: MIT */
/* sim_driver.c - see sim_driver.h. */
#include "sim_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"
#include "harness.h"
#include "sim_private.h"

struct sim_driver_config sim_driver_config;

static struct copy {
    void *library;
    struct symm_cuda_driver table;
    bool started;
} copies[SIM_RANKS_MAX];

/* ---- Copies of the library ------------------------------------------------------- */

static bool copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    char bytes[1 << 16];
    size_t count;
    bool good = in && out;

    while (good && (count = fread(bytes, 1, sizeof(bytes), in)) > 0)
        good = fwrite(bytes, 1, count, out) == count;
    good = good && !ferror(in);
    if (in)
        fclose(in);
    return out && fclose(out) == 0 && good;
}

static void *find(struct copy *copy, const char *name, int since)
{
    typedef CUresult get(const char *, void **, int, cuuint64_t,
                         CUdriverProcAddressQueryResult *);
    get *get_address = (get *)dlsym(copy->library, "cuGetProcAddress_v2");
    CUdriverProcAddressQueryResult found;
    void *function = NULL;

    return get_address && get_address(name, &function, since,
                                      CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                      &found) == CUDA_SUCCESS
               ? function
               : NULL;
}

static void fill(struct copy *copy)
{
    struct symm_cuda_driver *table = &copy->table;

    table->version = 13000;
#define TAKE(function, since)                                                          \
    table->function = (__typeof__(table->function))find(copy, #function, since);
    SYMM_CUDA_DRIVER_MAP(TAKE)
    SYMM_CUDA_DRIVER_OPTIONAL(TAKE)
#undef TAKE
}

bool sim_driver_open(const char *folder)
{
    char path[512];

    for (int r = 0; r < SIM_RANKS_MAX; r++) {
        snprintf(path, sizeof(path), "%s/driver%d.so", folder, r);
        if (!copy_file(SYMM_FAKE_CUDA_SIM, path)) {
            perror(path);
            return false;
        }
        copies[r].library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!copies[r].library) {
            fprintf(stderr, "%s\n", dlerror());
            return false;
        }
        fill(&copies[r]);
    }
    return true;
}

void *sim_driver_symbol(const char *name)
{
    return find(&copies[sim_rank()], name, 13000);
}

int sim_driver_leaks(int rank)
{
    int (*leaks)(FILE *) =
        (int (*)(FILE *))dlsym(copies[rank].library, "fake_cuda_leaks");

    return leaks ? leaks(sim.config->trace ? stderr : NULL) : -1;
}

/* ---- In place of the library's own search for a driver --------------------------- */

symm_status __wrap_symm__cuda_driver(const struct symm_cuda_driver **driver);
symm_status __wrap_symm__cuda_driver(const struct symm_cuda_driver **driver)
{
    struct copy *copy = &copies[sim_rank()];

    if (!copy->started && copy->table.cuInit(0) != CUDA_SUCCESS)
        abort();
    copy->started = true;
    *driver = &copy->table;
    return SYMM_OK;
}

/* ---- Called by the driver -------------------------------------------------------- */

void sim_driver_call(const char *function);
void sim_driver_call(const char *function)
{
    if (sim_on())
        sim_call(function);
}

void sim_driver_stream(void);
void sim_driver_stream(void)
{
    if (sim_on())
        sim_device_thread();
}

void sim_driver_operation(const char *kernel);
void sim_driver_operation(const char *kernel)
{
    if (!sim_on())
        return;
    sim_event(kernel ? kernel : "an operation", 0, 0);
    sim_pass(1000 + sim_below(10000));
    if (sim_below(1024) < sim_driver_config.slow)
        sim_sleep(sim_driver_config.slow_seconds * 1e-6 * (double)sim_below(1000000));
}
