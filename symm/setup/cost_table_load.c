/* SPDX-License-Identifier: MIT */
/*
 * cost_table_load.c - see cost_table_load.h.
 *
 * The file is read once, by symm_init. What its ranks have read is compared by hash in the
 * handshake, so that the choices made by the table are equal on all of them.
 */
#include "setup/cost_table_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"
#include "select/cost.h"
#include "symm/plan.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

/* The processor as Linux names it; the first one's. */
static void processor_name(char *name, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(name, bytes, "unknown processor");
    while (file && fgets(line, sizeof(line), file)) {
        const char *value = strstr(line, ": ");

        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        snprintf(name, bytes, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    if (file)
        fclose(file);
}

static void name_machine(symm_ctx *ctx)
{
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);
    char name[100];

    if (device) {
        snprintf(ctx->machine, sizeof(ctx->machine), "cuda: %s, %d multiprocessors",
                 device->name, device->processors);
        return;
    }
    processor_name(name, sizeof(name));
    snprintf(ctx->machine, sizeof(ctx->machine), "host: %s, %ld processors, %s", name,
             sysconf(_SC_NPROCESSORS_ONLN), symm__isa_name(ctx->isa));
}

static symm_status read_file(const char *path, symm_costs **costs)
{
    symm_status status = symm_costs_read(path, costs);

    if (status != SYMM_OK || (*costs)->curve_count > 0)
        return status;
    symm_costs_destroy(*costs);
    *costs = NULL;
    return symm__fail(SYMM_ERR_INVALID,
                      "%s: measured: found nothing, allowed: curves as "
                      "symm-perf --tune writes them; unset SYMM_COSTS to go by "
                      "what is built in",
                      path);
}

/* ---- The job's table ------------------------------------------------------------------ */

static bool is_for(const symm_costs *costs, const char *machine)
{
    for (char *const *name = costs->machines; *name; name++)
        if (strcmp(*name, machine) == 0)
            return true;
    return false;
}

symm_status symm__costs_load(symm_ctx *ctx)
{
    const char *path = symm__option(SYMM_OPTION_COSTS);
    char sentence[SYMM_ERROR_BYTES];
    symm_status status;

    name_machine(ctx);
    if (!path)
        return SYMM_OK;
    status = symm__option_file(path);
    if (status == SYMM_OK)
        status = read_file(path, &ctx->costs_file);
    if (status == SYMM_OK)
        return SYMM_OK;
    snprintf(sentence, sizeof(sentence), "SYMM_COSTS: %s", symm_last_error());
    return symm__fail_quiet(status, sentence);
}

void symm__costs_agree(symm_ctx *ctx, bool alike)
{
    ctx->costs = NULL;
    if (!alike) {
        if (ctx->rank == 0)
            symm__log(SYMM_LOG_INFO,
                      "the ranks are on machines of several kinds: no cost table is "
                      "used");
        return;
    }
    if (ctx->costs_file && is_for(ctx->costs_file, ctx->machine)) {
        ctx->costs = ctx->costs_file;
        return;
    }
    if (ctx->costs_file && ctx->rank == 0)
        symm__log(SYMM_LOG_WARN,
                  "SYMM_COSTS='%s' was measured on '%s', and this is '%s': it is not "
                  "used; make one here by symm-perf --tune",
                  symm__option(SYMM_OPTION_COSTS), ctx->costs_file->machines[0],
                  ctx->machine);
    for (const symm_costs *const *table = symm__costs_tables; *table && !ctx->costs;
         table++)
        if (is_for(*table, ctx->machine))
            ctx->costs = *table;
}

void symm__costs_drop(symm_ctx *ctx)
{
    symm_costs_destroy(ctx->costs_file);
    ctx->costs_file = NULL;
    ctx->costs = NULL;
}
