/* SPDX-License-Identifier: MIT */
/*
 * rail.c - lib/librail.so: a stand-in for NCCL that plays a network of known speed, so that the
 * cutting of calls over hosts can be measured on one machine.
 *
 * A collective of n ranks holds its stream, by a kernel of one thread, for
 *
 *     RAIL_LATENCY + bytes x f / RAIL_RATE        us, GB/s; f = 2 (n - 1) / n for all_reduce,
 *                                                 (n - 1) / n for reduce_scatter and all_gather,
 *                                                 1 for broadcast
 *
 * and moves nothing: results are wrong, so measure with -c 0. It takes one multiprocessor, where
 * NCCL takes as many as it has channels, and no bandwidth of memory. Ranks do not meet in it. Sends
 * and receives are refused.
 *
 * bench/pipeline.py measures with it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NCCL's header, which need not be here, declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define API __attribute__((visibility("default")))
/* ncclResult_t */
#define SUCCESS       0
#define CUDA_ERROR    1
#define SYSTEM_ERROR  2
#define INVALID_USAGE 5
#define VERSION       21800 /* of NCCL: without registrations and windows */
#define NO_COLOR      (-1)  /* NCCL_SPLIT_NOCOLOR */

struct id { /* ncclUniqueId */
    char bytes[128];
};

struct rail {
    int ranks;
    void *hold;
};

/* The driver is opened at run time. Its handles are pointers, its results numbers; 0 is success. */
static struct {
    int (*get_error)(int, const char **);
    int (*load)(void **module, const void *);
    int (*get_function)(void **function, void *module, const char *);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned, unsigned shared, void *stream, void **, void **);
} driver;

/* One thread polls the global timer. */
static const char program[] = ".version 7.0\n"
                              ".target sm_70\n"
                              ".address_size 64\n"
                              ".visible .entry hold(.param .u64 ns)\n"
                              "{\n"
                              "    .reg .u64 %from, %now, %ns;\n"
                              "    .reg .pred %p;\n"
                              "    ld.param.u64 %ns, [ns];\n"
                              "    mov.u64 %from, %globaltimer;\n"
                              "again:\n"
                              "    mov.u64 %now, %globaltimer;\n"
                              "    sub.u64 %now, %now, %from;\n"
                              "    setp.lt.u64 %p, %now, %ns;\n"
                              "    @%p bra again;\n"
                              "    ret;\n"
                              "}\n";

static double setting(const char *name, double otherwise)
{
    const char *text = getenv(name);

    return text ? atof(text) : otherwise;
}

static size_t size_of(int dtype) /* ncclDataType_t */
{
    static const unsigned char size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return dtype >= 0 && (size_t)dtype < sizeof(size) ? size[dtype] : 0;
}

static int failed(const char *what, int result)
{
    const char *text = NULL;

    (void)driver.get_error(result, &text);
    fprintf(stderr, "librail: %s: %s\n", what, text ? text : "?");
    return CUDA_ERROR;
}

static int hold(const struct rail *rail, double bytes, void *stream)
{
    const double us =
        setting("RAIL_LATENCY", 5) + bytes / setting("RAIL_RATE", 50) / 1e3;
    unsigned long long ns = (unsigned long long)(us * 1e3);
    void *arguments[] = {&ns};
    int result =
        driver.launch(rail->hold, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);

    return result == 0 ? SUCCESS : failed("a launch", result);
}

static double others(const struct rail *rail)
{
    return (double)(rail->ranks - 1) / rail->ranks;
}

static int open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "librail: %s\n", dlerror());
        return -1;
    }
    *(void **)&driver.get_error = dlsym(library, "cuGetErrorString");
    *(void **)&driver.load = dlsym(library, "cuModuleLoadData");
    *(void **)&driver.get_function = dlsym(library, "cuModuleGetFunction");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
    return driver.get_error && driver.load && driver.get_function && driver.launch ? 0
                                                                                   : -1;
}

static int make(void **comm, int ranks)
{
    struct rail *rail = calloc(1, sizeof(*rail));
    void *module;
    int result;

    if (!rail || (!driver.launch && open_driver() != 0)) {
        free(rail);
        return SYSTEM_ERROR;
    }
    rail->ranks = ranks;
    result = driver.load(&module, program); /* kept: communicators are few */
    if (result == 0)
        result = driver.get_function(&rail->hold, module, "hold");
    if (result != 0) {
        free(rail);
        return failed("the kernel", result);
    }
    *comm = rail;
    return SUCCESS;
}

API int ncclGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

API const char *ncclGetErrorString(int result)
{
    return result == SUCCESS ? "no error" : "an error of the stand-in rail";
}

API const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}

API int ncclGetUniqueId(struct id *id)
{
    memset(id, 0, sizeof(*id));
    return SUCCESS;
}

API int ncclCommInitRankConfig(void **comm, int ranks, struct id id, int rank,
                               void *config)
{
    (void)id, (void)config, (void)rank;
    return make(comm, ranks);
}

/* How many ranks have the color is not known without a meeting: RAIL_HOSTS says how many hosts a
 * rail has, 2 unless set. */
API int ncclCommSplit(void *parent, int color, int key, void **comm, void *config)
{
    (void)parent, (void)config, (void)key;
    *comm = NULL;
    return color == NO_COLOR ? SUCCESS : make(comm, (int)setting("RAIL_HOSTS", 2));
}

API int ncclCommFinalize(void *comm)
{
    (void)comm;
    return SUCCESS;
}

API int ncclCommDestroy(void *comm)
{
    free(comm);
    return SUCCESS;
}

API int ncclCommAbort(void *comm)
{
    return ncclCommDestroy(comm);
}

API int ncclCommGetAsyncError(void *comm, int *result)
{
    (void)comm;
    *result = SUCCESS;
    return SUCCESS;
}

API int ncclGroupStart(void)
{
    return SUCCESS;
}

API int ncclGroupEnd(void)
{
    return SUCCESS;
}

API int ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op,
                      void *comm, void *stream)
{
    (void)in, (void)out, (void)op;
    return hold(comm, 2 * others(comm) * (double)(count * size_of(dtype)), stream);
}

API int ncclReduceScatter(const void *in, void *out, size_t count, int dtype, int op,
                          void *comm, void *stream)
{
    const struct rail *rail = comm;

    (void)in, (void)out, (void)op;
    return hold(rail, (rail->ranks - 1) * (double)(count * size_of(dtype)), stream);
}

API int ncclAllGather(const void *in, void *out, size_t count, int dtype, void *comm,
                      void *stream)
{
    return ncclReduceScatter(in, out, count, dtype, 0, comm, stream);
}

API int ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root,
                      void *comm, void *stream)
{
    (void)in, (void)out, (void)root;
    return hold(comm, (double)(count * size_of(dtype)), stream);
}

API int ncclSend(const void *from, size_t count, int dtype, int peer, void *comm,
                 void *stream)
{
    (void)from, (void)count, (void)dtype, (void)peer, (void)comm, (void)stream;
    return INVALID_USAGE;
}

API int ncclRecv(void *to, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return ncclSend(to, count, dtype, peer, comm, stream);
}
