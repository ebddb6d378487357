/* SPDX-License-Identifier: MIT */
/*
 * cost_table_load.c - see cost_table_load.h.
 *
 * The file is read once, by symm_init. What its ranks have read is compared by hash in the
 * greeting, so that the choices made by it are equal on all of them.
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

/* ---- From the public form to the library's own ---------------------------------------- */

static enum symm_cost_data data_of(const char *name)
{
    static const char *const names[] = {
#define DATA_NAME(id, name) name,
        SYMM_COST_DATA_MAP(DATA_NAME)
#undef DATA_NAME
    };
    int data = 0;

    while (data < SYMM_COST_ANY && strcmp(name, names[data]) != 0)
        data++;
    return (enum symm_cost_data)data;
}

static void count_curves(const symm_costs *source, int *curves, int *points)
{
    symm_costs_curve curve = {.size = sizeof(curve)};

    *curves = *points = 0;
    while (symm_costs_curve_at(source, *curves, &curve) == SYMM_OK) {
        *points += curve.count;
        ++*curves;
    }
}

static void take_curves(struct symm_cost_file *file)
{
    symm_costs_curve curve = {.size = sizeof(curve)};
    int points = 0, curves = 0;

    for (int i = 0; symm_costs_curve_at(file->source, i, &curve) == SYMM_OK; i++) {
        struct symm_cost_curve *mine = &file->curves[curves];

        mine->kind = (enum symm_kind)curve.collective; /* of one map */
        mine->algorithm = curve.algorithm;
        mine->data = data_of(curve.data);
        mine->in_place = curve.in_place;
        mine->ranks = curve.ranks;
        mine->first = points;
        mine->count = curve.count;
        for (int p = 0; p < curve.count; p++)
            file->points[points++] =
                (struct symm_cost_point){curve.points[p].bytes, curve.points[p].us};
        curves++;
    }
    file->table =
        (struct symm_cost_table){.name = "SYMM_COSTS",
                                 .machines = symm_costs_machines(file->source),
                                 .curves = file->curves,
                                 .curve_count = curves,
                                 .points = file->points};
}

static void file_destroy(struct symm_cost_file *file)
{
    if (!file)
        return;
    symm_costs_destroy(file->source);
    free(file->curves);
    free(file->points);
    free(file);
}

static symm_status read_file(const char *path, struct symm_cost_file **file)
{
    struct symm_cost_file *made = calloc(1, sizeof(*made));
    int curves, points;
    symm_status status;

    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "SYMM_COSTS: no memory for a table");
    status = symm_costs_read(path, &made->source);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    count_curves(made->source, &curves, &points);
    made->curves = calloc((size_t)curves + 1, sizeof(*made->curves));
    made->points = calloc((size_t)points + 1, sizeof(*made->points));
    if (curves == 0)
        status = symm__fail(SYMM_ERR_INVALID,
                            "%s: measured: found nothing, allowed: curves as "
                            "symm-perf --tune writes them; unset SYMM_COSTS to go by "
                            "what is built in",
                            path);
    else if (!made->curves || !made->points)
        status =
            symm__fail(SYMM_ERR_NOMEM, "%s: no memory for %d curves", path, curves);
    if (status != SYMM_OK) {
        file_destroy(made);
        return status;
    }
    take_curves(made);
    made->hash = symm_costs_hash(made->source);
    *file = made;
    return SYMM_OK;
}

/* ---- The job's table ------------------------------------------------------------------ */

static bool is_for(const struct symm_cost_table *table, const char *machine)
{
    for (const char *const *name = table->machines; *name; name++)
        if (strcmp(*name, machine) == 0)
            return true;
    return false;
}

symm_status symm__costs_take(symm_ctx *ctx)
{
    const char *path = symm__option(SYMM_OPTION_COSTS);

    name_machine(ctx);
    return path ? read_file(path, &ctx->costs_file) : SYMM_OK;
}

void symm__costs_settle(symm_ctx *ctx, bool alike)
{
    ctx->costs = NULL;
    if (!alike) {
        if (ctx->rank == 0)
            symm__log(SYMM_LOG_INFO,
                      "the ranks are on machines of several kinds: no cost table is "
                      "used");
        return;
    }
    if (ctx->costs_file && is_for(&ctx->costs_file->table, ctx->machine)) {
        ctx->costs = &ctx->costs_file->table;
        return;
    }
    if (ctx->costs_file && ctx->rank == 0)
        symm__log(SYMM_LOG_WARN,
                  "SYMM_COSTS='%s' was measured on '%s', and this is '%s': it is not "
                  "used; make one here by symm-perf --tune",
                  symm__option(SYMM_OPTION_COSTS), ctx->costs_file->table.machines[0],
                  ctx->machine);
    for (const struct symm_cost_table *t = symm__cost_tables; t->name && !ctx->costs;
         t++)
        if (is_for(t, ctx->machine))
            ctx->costs = t;
}

void symm__costs_drop(symm_ctx *ctx)
{
    file_destroy(ctx->costs_file);
    ctx->costs_file = NULL;
    ctx->costs = NULL;
}
