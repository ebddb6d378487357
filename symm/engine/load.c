/* SPDX-License-Identifier: MIT */
/*
 * load.c - which engine a context has: by SYMM_ENGINE, and by what all ranks have.
 *
 * Loading is local; the handshake then reports to all ranks what each has (symm__engine_agree). An
 * engine serves only if every rank has the same one in the same version: else no rank uses
 * one, and one line names the ranks that lack it and why. An engine that was asked for by name and
 * cannot be had is an error on all ranks.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "engine/helper.h"
#include "engine/runtime.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"
#include "util/text.h"

#define PLUGIN_MPI "libsymm_mpi.so"

enum engine_state { NONE, LOADED, REFUSED }; /* REFUSED: wanted, but does not load */

#define FLAG_ASKED   1u
#define FLAG_WINDOWS 2u
#define FLAG_PAIRS   4u
#define FLAG_CHUNKS  8u /* times the mode of chunks */

symm_status symm__engine_reported(const symm_ctx *ctx, symm_status status,
                                  const char *what)
{
    const struct symm_engine_ops *ops = ctx->engine ? ctx->engine->ops : NULL;
    char sentence[SYMM_ERROR_BYTES];
    const char *said = ops ? ops->last_error() : symm_last_error();

    snprintf(sentence, sizeof(sentence), "%s%s%s", what, *what ? ": " : "",
             said && *said ? said : symm_status_text(status));
    return symm__fail_quiet(status, sentence);
}

symm_status symm__engine_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                                void *arg)
{
    if (!ctx->engine || !ctx->engine->ops->device)
        return fn(arg);
    return ctx->device_ops->within(ctx, last, fn, arg);
}

/* ---- Loading ----------------------------------------------------------------------------- */

/* The file beside this library; NULL if its folder is unknown. */
static const char *beside(const char *name, char *path, size_t bytes)
{
    static const char anchor = 0;
    Dl_info info;
    const char *slash;
    int used;

    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return NULL;
    slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return NULL;
    used = snprintf(path, bytes, "%.*s/%s", (int)(slash - info.dli_fname),
                    info.dli_fname, name);
    return used > 0 && (size_t)used < bytes ? path : NULL;
}

/* The plug-in's table. It stays loaded: MPI libraries do not survive being unloaded. */
static symm_status open_plugin(const char *name,
                               const struct symm_engine_ops **operations)
{
    char path[4096];
    void *library = NULL;
    const struct symm_engine_ops *ops;
    const char *reason;

    if (!strchr(name, '/') && beside(name, path, sizeof(path)))
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        reason = dlerror();
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "the engine '%s' (SYMM_ENGINE) does not load: %s; is it "
                          "installed beside the library?",
                          name, reason ? reason : "no reason given");
    }
    ops = dlsym(library, SYMM_ENGINE_SYMBOL);
    if (!ops || ops->size < offsetof(struct symm_engine_ops, deviation)) {
        dlclose(library);
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "'%s' (SYMM_ENGINE) is no engine of this version of libsymm: "
                          "it has %s",
                          name, ops ? "an older table" : "no " SYMM_ENGINE_SYMBOL);
    }
    *operations = ops;
    return SYMM_OK;
}

/* NCCL opens the system's driver by itself, whatever this library's options say. */
static bool is_other_driver(void)
{
    return strcmp(symm__option(SYMM_OPTION_CUDA_LIBRARY), "libcuda.so.1") != 0 &&
           strcmp(symm__option(SYMM_OPTION_NCCL_LIB), "libnccl.so.2") == 0;
}

/* Finds what SYMM_ENGINE names; *operations NULL: no engine is wanted. */
static symm_status find_operations(const symm_ctx *ctx, struct symm_engine_use *use,
                                   const struct symm_engine_ops **operations)
{
    const char *name = symm__option(SYMM_OPTION_ENGINE);
    bool device = ctx->device_ops != NULL;
    symm_status status = SYMM_OK;

    *operations = NULL;
    use->asked = strcmp(name, "auto") != 0 && strcmp(name, "none") != 0;
    if (strcmp(name, "none") == 0)
        snprintf(use->why, sizeof(use->why), "SYMM_ENGINE=none");
    else if (strcmp(name, "auto") == 0 && !device)
        snprintf(use->why, sizeof(use->why),
                 "the host backend has one only where SYMM_ENGINE names it");
    else if (strcmp(name, "auto") == 0 && is_other_driver())
        snprintf(use->why, sizeof(use->why),
                 "SYMM_CUDA_LIBRARY names a driver that NCCL would not take; "
                 "SYMM_ENGINE=nccl takes it all the same");
    else if (strcmp(name, "auto") == 0 || strcmp(name, "nccl") == 0)
        *operations = &symm__engine_nccl;
    else if (strcmp(name, "mpi") == 0)
        status = open_plugin(PLUGIN_MPI, operations);
    else if (strchr(name, '/'))
        status = open_plugin(name, operations);
    else
        status = symm__fail(SYMM_ERR_INVALID,
                            "SYMM_ENGINE '%s' is none of auto, none, nccl, mpi, and no "
                            "path of a plug-in either",
                            name);
    if (status == SYMM_OK && *operations && (*operations)->device != device)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "the engine '%s' (SYMM_ENGINE) moves memory of the %s, and "
                          "rank %d is on the %s backend; %s",
                          (*operations)->name, device ? "host" : "device", ctx->rank,
                          ctx->ops->name,
                          device ? "nccl is for cuda" : "mpi is for host");
    return status;
}

static symm_status take_flags(struct symm_engine_use *use)
{
    int64_t registers, windows, pairs, chunks;
    symm_status status =
        symm__option_integer(SYMM_OPTION_NCCL_REGISTER, 0, 1, &registers);

    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_NCCL_WINDOW, 0, 1, &windows);
    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_P2P_PAIRS, 0, 1, &pairs);
    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_CHUNKS, SYMM_CHUNKS_NONE,
                                      SYMM_CHUNKS_ALL, &chunks);
    if (status != SYMM_OK)
        return status;
    use->registers = registers != 0;
    use->windows = windows != 0;
    use->pairs = pairs != 0;
    use->chunks = (enum symm_chunks_mode)chunks;
    return SYMM_OK;
}

static symm_status open_engine(void *arg)
{
    struct symm_engine_use *use = arg;

    return use->ops->open(&use->engine);
}

static const char *no_deviation(const struct symm_engine *engine,
                                const struct symm_engine_request *request)
{
    (void)engine, (void)request;
    return NULL;
}

/* The engine's table with a function in every slot. */
static const struct symm_engine_ops *complete(struct symm_engine_ops *table,
                                              const struct symm_engine_ops *given)
{
    memcpy(table, given, given->size < sizeof(*table) ? given->size : sizeof(*table));
    if (!table->deviation)
        table->deviation = no_deviation;
    if (!table->last_error)
        table->last_error = symm_last_error;
    return table;
}

static symm_status load(symm_ctx *ctx, struct symm_engine_use *use)
{
    const struct symm_engine_ops *given;
    symm_status status = find_operations(ctx, use, &given);

    if (status != SYMM_OK || !given)
        return status;
    use->ops = complete(&use->table, given);
    status = symm__engine_within(ctx, false, open_engine, use);
    if (status != SYMM_OK) {
        status = symm__engine_reported(ctx, status, "");
        use->ops = NULL;
        return status;
    }
    use->state = LOADED;
    snprintf(use->version, sizeof(use->version), "%s", use->ops->version(use->engine));
    return SYMM_OK;
}

symm_status symm__engine_load(symm_ctx *ctx)
{
    struct symm_engine_use *use = calloc(1, sizeof(*use));
    symm_status status;

    if (!use)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for an engine");
    ctx->engine = use;
    status = take_flags(use);
    if (status == SYMM_OK) {
        status = load(ctx, use);
        if (status != SYMM_OK && !use->asked) { /* reported with what the others have */
            use->state = REFUSED;
            snprintf(use->why, sizeof(use->why), "%.191s", symm_last_error());
            status = SYMM_OK;
        }
    }
    return status;
}

static symm_status close_engine(void *arg)
{
    struct symm_engine_use *use = arg;

    use->ops->close(use->engine);
    return SYMM_OK;
}

/* Keeps what a helper thread that was left behind may still use reachable in a list. */
static void keep(struct symm_engine_use *use)
{
    static struct symm_engine_use *kept;

    use->next = __atomic_exchange_n(&kept, use, __ATOMIC_ACQ_REL);
    symm__log(SYMM_LOG_INFO, "a call of %s has not returned; its thread is left behind",
              use->version);
}

bool symm__engine_unload(symm_ctx *ctx)
{
    struct symm_engine_use *use = ctx->engine;
    bool idle = true;

    if (!use)
        return true;
    /* In a forked child the library's threads are the parent's. */
    if (use->ops && use->engine && ctx->own_process && *ctx->own_process == 1) {
        idle = symm__helpers_close(ctx);
        if (idle && symm__engine_within(ctx, true, close_engine, use) != SYMM_OK)
            symm__log(SYMM_LOG_DEBUG, "the engine is not closed: %s",
                      symm_last_error());
    }
    if (idle)
        free(use);
    else
        keep(use);
    ctx->engine = NULL;
    return idle;
}

/* ---- What all ranks have ----------------------------------------------------------------- */

void symm__engine_handshake(const symm_ctx *ctx, struct symm_engine_handshake *hello)
{
    const struct symm_engine_use *use = ctx->engine;

    memset(hello, 0, sizeof(*hello));
    if (!use)
        return;
    hello->state = use->state;
    hello->flags = (use->asked ? FLAG_ASKED : 0) |
                   (use->windows && use->ops ? FLAG_WINDOWS : 0) |
                   (use->pairs && use->ops ? FLAG_PAIRS : 0) |
                   (use->ops ? FLAG_CHUNKS * (uint32_t)use->chunks : 0);
    snprintf(hello->name, sizeof(hello->name), "%s", use->ops ? use->ops->name : "");
    snprintf(hello->version, sizeof(hello->version), "%s", use->version);
    snprintf(hello->why, sizeof(hello->why), "%s", use->why);
}

/* "rank 2 has none (no such file)", "rank 2 has NCCL 2.27.3". */
static void describe(struct symm_engine_handshake hello, int rank, char *text,
                     size_t bytes)
{
    if (hello.state == LOADED)
        snprintf(text, bytes, "rank %d has %s", rank,
                 symm__printable(hello.version, sizeof(hello.version)));
    else
        snprintf(text, bytes, "rank %d has none (%s)", rank,
                 symm__printable(hello.why, sizeof(hello.why)));
}

static bool alike(const struct symm_engine_handshake *a,
                  const struct symm_engine_handshake *b)
{
    return (a->state == LOADED) == (b->state == LOADED) &&
           memcmp(a->name, b->name, sizeof(a->name)) == 0 &&
           memcmp(a->version, b->version, sizeof(a->version)) == 0;
}

static symm_status close_unused(symm_ctx *ctx, const char *why)
{
    struct symm_engine_use *use = ctx->engine;
    symm_status status = SYMM_OK;

    if (use->ops && use->engine)
        status = symm__engine_within(ctx, true, close_engine, use);
    use->ops = NULL;
    use->engine = NULL;
    use->state = NONE;
    snprintf(use->why, sizeof(use->why), "%.191s", why);
    return status;
}

symm_status symm__engine_agree(symm_ctx *ctx,
                               struct symm_engine_handshake (*of)(const void *arg,
                                                                  int rank),
                               const void *arg, int count)
{
    const struct symm_engine_handshake first = of(arg, 0);
    struct symm_engine_handshake mine;
    char here[288], there[288], why[640];
    int odd = 0, differs = 0;
    bool asked = false, wanted = false;

    for (int r = 0; r < count; r++) {
        const struct symm_engine_handshake hello = of(arg, r);

        asked = asked || hello.flags & FLAG_ASKED;
        wanted = wanted || hello.state != NONE;
        if (odd == 0 && !alike(&first, &hello))
            odd = r;
        if (differs == 0 && (hello.flags ^ first.flags) & ~FLAG_ASKED)
            differs = r;
    }
    if (ctx->shared && asked)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "SYMM_ENGINE asks for an engine, and no engine takes ranks that "
            "share a device (SYMM_OVERSUBSCRIBE)");
    if (ctx->shared)
        return close_unused(ctx, "ranks share a device");
    if (odd == 0 && first.state == LOADED) {
        if (differs > 0)
            return symm__fail(SYMM_ERR_MISMATCH,
                              "ranks 0 and %d differ in SYMM_NCCL_WINDOW, "
                              "SYMM_P2P_PAIRS or SYMM_CHUNKS; set them alike on all "
                              "ranks",
                              differs);
        symm__log(SYMM_LOG_INFO, "engine: %s", ctx->engine->version);
        return SYMM_OK;
    }
    describe(first, 0, here, sizeof(here));
    describe(of(arg, odd), odd, there, sizeof(there));
    if (odd == 0)
        snprintf(why, sizeof(why), "%s", here);
    else
        snprintf(why, sizeof(why), "%s, %s", here, there);
    if (asked)
        return symm__fail(SYMM_ERR_MISMATCH,
                          "SYMM_ENGINE asks for an engine, which all ranks need alike: "
                          "%s",
                          why);
    if (wanted && ctx->rank == 0)
        symm__log(odd == 0 ? SYMM_LOG_INFO : SYMM_LOG_WARN,
                  "no engine is used: %s; SYMM_ENGINE=none says that none is wanted",
                  why);
    mine = of(arg, ctx->rank);
    return close_unused(ctx, odd == 0 ? mine.why : why);
}
