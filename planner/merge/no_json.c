/* SPDX-License-Identifier: MIT */
/*
 * no_json.c - the readers of builds without jansson: each refuses, and says why.
 */
#include "merge/merge.h"
#include "symm/plan.h"
#include "util/status.h"

#if !SYMM_HAVE_JANSSON

static symm_status refuse(const char *name)
{
    name = name ? name : "NULL";
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "%s: this library was built without jansson and reads no JSON; "
                      "build it with libjansson-dev installed",
                      name);
}

symm_status symm_program_read(const char *path, symm_program **program)
{
    (void)program;
    return refuse(path);
}

symm_status symm_program_parse(const char *text, size_t length, const char *name,
                               symm_program **program)
{
    (void)text;
    (void)length;
    (void)program;
    return refuse(name);
}

symm_status symm_plan_read(const char *path, symm_plan **plan)
{
    (void)plan;
    return refuse(path);
}

symm_status symm_plan_read_run(const char *path, symm_plan **plan)
{
    (void)plan;
    return refuse(path);
}

symm_status symm_plan_parse(const char *text, size_t length, const char *name,
                            symm_plan **plan)
{
    (void)text;
    (void)length;
    (void)plan;
    return refuse(name);
}

symm_status symm__merge_read(struct pool *pool, const char *path,
                             struct merge_record *record)
{
    (void)pool;
    (void)record;
    return refuse(path);
}

symm_status symm_costs_read(const char *path, symm_costs **costs)
{
    (void)costs;
    return refuse(path);
}

symm_status symm_costs_parse(const char *text, size_t length, const char *name,
                             symm_costs **costs)
{
    (void)text;
    (void)length;
    (void)costs;
    return refuse(name);
}

#endif
