/* SPDX-License-Identifier: MIT */
/*
 * plan_json.c - reads a symm-plan/1 document. What it says is checked for form only;
 * whether it fits a program and is safe, symm_plan_check finds out. Unknown members are
 * ignored, but are part of the document's hash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_read.h"
#include "plan_private.h"
#include "status.h"

struct reading {
    struct json_reader json;
    struct plan_private *plan;
};

static symm_status nomem(const struct reading *at)
{
    return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", at->json.file);
}

static symm_status take_name(struct reading *at, const json_t *value, const char **name)
{
    const char *text;
    symm_status status = symm__json_name(&at->json, value, &text);

    if (status != SYMM_OK)
        return status;
    *name = symm__pool_copy(&at->plan->pool, text);
    return *name ? SYMM_OK : nomem(at);
}

static symm_status take_size(struct reading *at, const json_t *value, size_t *size)
{
    int64_t number = 0;
    symm_status status = symm__json_integer(&at->json, value, 0, INT64_MAX, &number);

    if (status == SYMM_OK)
        *size = (size_t)number;
    return status;
}

static symm_status take_hash(struct reading *at, const json_t *value, uint64_t *hash)
{
    const char *text = json_string_value(value);

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return symm__json_refuse(&at->json, value, "16 lower-case hexadecimal digits");
    *hash = strtoull(text, NULL, 16);
    return SYMM_OK;
}

/* A list of objects; its length. */
static symm_status take_list(struct reading *at, const json_t *root, const char *name,
                             const json_t **list, size_t *count)
{
    *list = symm__json_at(&at->json, root, "%s", name);
    *count = json_array_size(*list);
    if (!json_is_array(*list) || *count > INT32_MAX)
        return symm__json_refuse(&at->json, *list, "a list");
    for (size_t i = 0; i < *count; i++) {
        const json_t *item = symm__json_at(&at->json, *list, "%s[%zu]", name, i);
        if (!json_is_object(item))
            return symm__json_refuse(&at->json, item, "an object");
    }
    return SYMM_OK;
}

static symm_status read_buffer(struct reading *at, const json_t *object, size_t i,
                               symm_plan_buffer *buffer)
{
    struct json_reader *json = &at->json;
    int64_t id = 0;
    symm_status status = take_name(
        at, symm__json_at(json, object, "buffers[%zu].name", i), &buffer->name);

    if (status == SYMM_OK)
        status = symm__json_integer(
            json, symm__json_at(json, object, "buffers[%zu].alloc_id", i), 1, INT64_MAX,
            &id);
    buffer->alloc_id = (uint64_t)id;
    if (status == SYMM_OK)
        status = take_size(at, symm__json_at(json, object, "buffers[%zu].offset", i),
                           &buffer->offset);
    if (status == SYMM_OK)
        status = take_size(at, symm__json_at(json, object, "buffers[%zu].bytes", i),
                           &buffer->bytes);
    return status;
}

static symm_status read_op(struct reading *at, const json_t *object, size_t i,
                           symm_plan_op *op)
{
    struct json_reader *json = &at->json;
    const json_t *value;
    int64_t channel = 0;
    int a = 0;
    symm_status status =
        take_name(at, symm__json_at(json, object, "ops[%zu].site", i), &op->site);

    if (status != SYMM_OK)
        return status;
    value = symm__json_at(json, object, "ops[%zu].algorithm", i);
    while (a < SYMM_PLAN_ALGORITHMS &&
           (!json_is_string(value) ||
            strcmp(json_string_value(value),
                   symm_plan_algorithm_name((symm_plan_algorithm)a)) != 0))
        a++;
    if (a == SYMM_PLAN_ALGORITHMS)
        return symm__json_refuse(
            json, value,
            "ll_push lamport_push two_shot_push one_shot_pull two_shot_pull "
            "two_shot_inplace copy_in copy_engine multimem_one_shot multimem_two_shot "
            "engine put");
    op->algorithm = (symm_plan_algorithm)a;
    status =
        symm__json_integer(json, symm__json_at(json, object, "ops[%zu].channel", i), 0,
                           INT32_MAX, &channel);
    op->channel = (int)channel;
    if (status == SYMM_OK)
        status = symm__json_flag(
            json, symm__json_at(json, object, "ops[%zu].entry_barrier", i),
            &op->entry_barrier);
    if (status == SYMM_OK)
        status = symm__json_flag(
            json, symm__json_at(json, object, "ops[%zu].exit_barrier", i),
            &op->exit_barrier);
    return status;
}

/* The buffer of a name; plans list buffers and frees in the same order, so `hint`, the one
 * behind the last that was found, is mostly right. -1: none. */
static int find_buffer(const symm_plan *plan, const char *name, int hint)
{
    for (int i = 0; i < plan->buffer_count; i++) {
        int b = (hint + i) % plan->buffer_count;
        if (strcmp(plan->buffers[b].name, name) == 0)
            return b;
    }
    return -1;
}

/* After buffers and ops. *hint: see find_buffer. */
static symm_status read_frees(struct reading *at, const json_t *object, size_t i,
                              int *hint)
{
    struct json_reader *json = &at->json;
    symm_plan *plan = &at->plan->plan;
    const json_t *list = symm__json_at(json, object, "ops[%zu].frees", i);
    size_t count = json_array_size(list);
    int *frees;

    if (!list)
        return SYMM_OK;
    if (!json_is_array(list) || count > (size_t)plan->buffer_count)
        return symm__json_refuse(json, list, "a list of names of buffers");
    frees = symm__pool_alloc(&at->plan->pool, count + 1, sizeof(*frees));
    if (!frees)
        return nomem(at);
    for (size_t k = 0; k < count; k++) {
        const json_t *value = symm__json_at(json, list, "ops[%zu].frees[%zu]", i, k);
        frees[k] = json_is_string(value)
                       ? find_buffer(plan, json_string_value(value), *hint)
                       : -1;
        if (frees[k] < 0)
            return symm__json_refuse(json, value, "the name of a buffer of the plan");
        *hint = frees[k] + 1;
    }
    plan->ops[i].frees = frees;
    plan->ops[i].free_count = (int)count;
    return SYMM_OK;
}

static symm_status read_entry(struct reading *at, const json_t *object, size_t i,
                              symm_plan_entry *entry)
{
    struct json_reader *json = &at->json;
    const json_t *next;
    symm_status status = take_name(
        at, symm__json_at(json, object, "certificate[%zu].before", i), &entry->before);

    if (status == SYMM_OK)
        status = take_name(at, symm__json_at(json, object, "certificate[%zu].after", i),
                           &entry->after);
    if (status == SYMM_OK)
        status =
            take_name(at, symm__json_at(json, object, "certificate[%zu].ordered_by", i),
                      &entry->ordered_by);
    if (status != SYMM_OK)
        return status;
    next = symm__json_at(json, object, "certificate[%zu].next_period", i);
    return next ? take_name(at, next, &entry->next_period) : SYMM_OK;
}

static symm_status read_lists(struct reading *at, const json_t *root)
{
    symm_plan *plan = &at->plan->plan;
    const json_t *list;
    size_t count;
    int hint = 0;
    symm_status status = take_list(at, root, "buffers", &list, &count);

    if (status != SYMM_OK)
        return status;
    plan->buffers =
        symm__pool_alloc(&at->plan->pool, count + 1, sizeof(*plan->buffers));
    if (!plan->buffers)
        return nomem(at);
    for (; plan->buffer_count < (int)count && status == SYMM_OK; plan->buffer_count++) {
        size_t i = (size_t)plan->buffer_count;
        status = read_buffer(at, json_array_get(list, i), i, &plan->buffers[i]);
    }
    if (status == SYMM_OK)
        status = take_list(at, root, "ops", &list, &count);
    if (status != SYMM_OK)
        return status;
    plan->ops = symm__pool_alloc(&at->plan->pool, count + 1, sizeof(*plan->ops));
    if (!plan->ops)
        return nomem(at);
    for (; plan->op_count < (int)count && status == SYMM_OK; plan->op_count++) {
        size_t i = (size_t)plan->op_count;
        status = read_op(at, json_array_get(list, i), i, &plan->ops[i]);
    }
    for (size_t i = 0; i < count && status == SYMM_OK; i++)
        status = read_frees(at, json_array_get(list, i), i, &hint);
    return status;
}

static symm_status read_certificate(struct reading *at, const json_t *root)
{
    symm_plan *plan = &at->plan->plan;
    const json_t *list;
    size_t count;
    symm_status status = take_list(at, root, "certificate", &list, &count);

    if (status != SYMM_OK)
        return status;
    plan->certificate = calloc(count + 1, sizeof(*plan->certificate));
    if (!plan->certificate)
        return nomem(at);
    plan->certificate_count = count;
    for (size_t i = 0; i < count && status == SYMM_OK; i++)
        status = read_entry(at, json_array_get(list, i), i, &plan->certificate[i]);
    return status;
}

static symm_status read_head(struct reading *at, const json_t *root)
{
    struct json_reader *json = &at->json;
    symm_plan *plan = &at->plan->plan;
    const json_t *value = symm__json_at(json, root, "format");
    int64_t world = 0;
    symm_status status;

    if (!json_is_object(root)) {
        snprintf(json->path, sizeof(json->path), "$");
        return symm__json_refuse(json, root, "an object");
    }
    if (!json_is_string(value) || strcmp(json_string_value(value), "symm-plan/1") != 0)
        return symm__json_refuse(json, value, "\"symm-plan/1\"");
    status = take_name(at, symm__json_at(json, root, "program"), &plan->program);
    if (status == SYMM_OK)
        status = take_hash(at, symm__json_at(json, root, "program_hash"),
                           &plan->program_hash);
    value = symm__json_at(json, root, "plan_hash");
    plan->has_plan_hash = value != NULL;
    if (status == SYMM_OK && value)
        status = take_hash(at, value, &plan->plan_hash);
    if (status == SYMM_OK)
        status = symm__json_integer(json, symm__json_at(json, root, "world"), 1,
                                    SYMM_PROGRAM_MAX_WORLD, &world);
    plan->world = (int)world;
    if (status == SYMM_OK)
        status =
            take_size(at, symm__json_at(json, root, "arena_bytes"), &plan->arena_bytes);
    if (status == SYMM_OK)
        status = take_size(at, symm__json_at(json, root, "lower_bound_bytes"),
                           &plan->lower_bound_bytes);
    if (status == SYMM_OK)
        status = take_size(at, symm__json_at(json, root, "dedicated_bytes"),
                           &plan->dedicated_bytes);
    return status;
}

static symm_status make_plan(json_t *root, const char *name, symm_plan **plan)
{
    struct reading at = {.json = {.file = name}, .plan = symm__plan_new()};
    symm_status status = at.plan ? read_head(&at, root) : nomem(&at);

    if (status == SYMM_OK)
        status = read_lists(&at, root);
    if (status == SYMM_OK)
        status = read_certificate(&at, root);
    if (status == SYMM_OK) {
        json_object_del(root, "plan_hash");
        status = symm__json_value_hash(root, name, &at.plan->document_hash);
    }
    json_decref(root);
    if (status != SYMM_OK) {
        symm_plan_destroy(at.plan ? &at.plan->plan : NULL);
        return status;
    }
    at.plan->struct_hash = symm__plan_struct_hash(&at.plan->plan);
    at.plan->was_read = true;
    *plan = &at.plan->plan;
    return SYMM_OK;
}

symm_status symm_plan_read(const char *path, symm_plan **plan)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!path || !plan)
        return symm__fail_null("symm_plan_read", path ? "plan" : "path");
    root = symm__json_file(path, &status);
    return root ? make_plan(root, path, plan) : status;
}

symm_status symm_plan_parse(const char *text, size_t length, const char *name,
                            symm_plan **plan)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!text || !name || !plan)
        return symm__fail_null("symm_plan_parse", !text   ? "text"
                                                  : !name ? "name"
                                                          : "plan");
    root = symm__json_text(text, length, name, &status);
    return root ? make_plan(root, name, plan) : status;
}
