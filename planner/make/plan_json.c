/* SPDX-License-Identifier: MIT */
/*
 * plan_json.c - reads a symm-plan/2 document. What it says is checked for form only;
 * whether it fits a program and is safe, symm_plan_check finds out. Unknown members are
 * ignored. Ranks leave the proof out: its text is dropped before the document is parsed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/json_read.h"
#include "util/status.h"

/* The object in hand: element `index` of the root's list `list`; list NULL: the root. */
struct reading {
    struct json_reader json;
    struct plan_private *plan;
    const json_t *object;
    const char *list;
    size_t index;
};

static symm_status nomem(const struct reading *at)
{
    return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", at->json.file);
}

/* ---- Members of the object in hand --------------------------------------------------- */

/* The value for a complaint, with its path: that is worked out only where one is due. */
static const json_t *point_at(struct reading *at, const char *name)
{
    if (!at->list)
        return symm__json_at(&at->json, at->object, "%s", name);
    return symm__json_at(&at->json, at->object, "%s[%zu].%s", at->list, at->index,
                         name);
}

static symm_status take_integer(struct reading *at, const char *name, int64_t least,
                                int64_t most, int64_t *number)
{
    const json_t *value = json_object_get(at->object, name);

    *number = json_integer_value(value);
    if (json_is_integer(value) && *number >= least && *number <= most)
        return SYMM_OK;
    return symm__json_integer(&at->json, point_at(at, name), least, most, number);
}

static symm_status take_int(struct reading *at, const char *name, int least, int most,
                            int *number)
{
    int64_t wide = 0;
    symm_status status = take_integer(at, name, least, most, &wide);

    *number = (int)wide;
    return status;
}

static symm_status take_size(struct reading *at, const char *name, size_t *size)
{
    int64_t number = 0;
    symm_status status = take_integer(at, name, 0, INT64_MAX, &number);

    *size = (size_t)number;
    return status;
}

static symm_status take_id(struct reading *at, const char *name, uint64_t *id)
{
    const json_t *value = json_object_get(at->object, name);

    *id = (uint64_t)json_integer_value(value);
    if (json_is_integer(value) && json_integer_value(value) > 0)
        return SYMM_OK;
    return symm__json_id(&at->json, point_at(at, name), id);
}

static symm_status take_flag(struct reading *at, const char *name, bool *flag)
{
    const json_t *value = json_object_get(at->object, name);

    *flag = json_is_true(value);
    if (!value || json_is_boolean(value))
        return SYMM_OK;
    return symm__json_flag(&at->json, point_at(at, name), flag);
}

static symm_status take_name(struct reading *at, const char *name, const char **copy)
{
    const json_t *value = json_object_get(at->object, name);
    const char *text;

    if (!json_is_string(value) || json_string_length(value) == 0)
        return symm__json_name(&at->json, point_at(at, name), &text);
    *copy = symm__pool_copy(&at->plan->pool, json_string_value(value));
    return *copy ? SYMM_OK : nomem(at);
}

static symm_status take_hash(struct reading *at, const char *name, uint64_t *hash)
{
    const json_t *value = point_at(at, name);
    const char *text = json_string_value(value);

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return symm__json_refuse(&at->json, value, "16 lower-case hexadecimal digits");
    *hash = strtoull(text, NULL, 16);
    return SYMM_OK;
}

/* Indices of buffers; absent: none, if `optional`. */
static symm_status take_indices(struct reading *at, const char *name, bool optional,
                                const int **indices, int *count)
{
    const json_t *list = json_object_get(at->object, name);
    const size_t length = json_array_size(list);
    int *made;

    if (!list && optional)
        return SYMM_OK;
    if (!json_is_array(list) || length > (size_t)at->plan->plan.buffer_count)
        return symm__json_refuse(&at->json, point_at(at, name),
                                 "a list of indices of buffers");
    if (length == 0)
        return SYMM_OK;
    made = symm__pool_alloc(&at->plan->pool, length, sizeof(*made));
    if (!made)
        return nomem(at);
    for (size_t i = 0; i < length; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t index = json_integer_value(value);
        if (!json_is_integer(value) || index < 0 ||
            index >= at->plan->plan.buffer_count) {
            point_at(at, name);
            return symm__json_refuse(&at->json, value, "indices of the plan's buffers");
        }
        made[i] = (int)index;
    }
    *indices = made;
    *count = (int)length;
    return SYMM_OK;
}

/* ---- Lists of objects ------------------------------------------------------------------ */

typedef symm_status (*read_fn)(struct reading *at, size_t i);

/* The root's list; its length. */
static symm_status find_list(struct reading *at, const json_t *root, const char *name,
                             const json_t **list, size_t *count)
{
    *list = symm__json_at(&at->json, root, "%s", name);
    *count = json_array_size(*list);
    if (!json_is_array(*list) || *count > INT32_MAX)
        return symm__json_refuse(&at->json, *list, "a list");
    return SYMM_OK;
}

static symm_status read_each(struct reading *at, const json_t *list, const char *name,
                             read_fn read)
{
    const size_t count = json_array_size(list);
    symm_status status = SYMM_OK;

    at->list = name;
    for (size_t i = 0; i < count && status == SYMM_OK; i++) {
        at->object = json_array_get(list, i);
        at->index = i;
        if (!json_is_object(at->object))
            return symm__json_refuse(&at->json,
                                     symm__json_at(&at->json, list, "%s[%zu]", name, i),
                                     "an object");
        status = read(at, i);
    }
    return status;
}

static symm_status read_buffer(struct reading *at, size_t i)
{
    symm_plan_buffer *buffer = &at->plan->plan.buffers[i];
    symm_status status = take_name(at, "name", &buffer->name);

    if (status == SYMM_OK)
        status = take_id(at, "alloc_id", &buffer->alloc_id);
    if (status == SYMM_OK)
        status = take_size(at, "offset", &buffer->offset);
    if (status == SYMM_OK)
        status = take_size(at, "bytes", &buffer->bytes);
    if (status == SYMM_OK)
        status =
            take_int(at, "turn", -1, at->plan->plan.buffer_count - 1, &buffer->turn);
    if (status == SYMM_OK)
        status = take_indices(at, "after", false, &buffer->after, &buffer->after_count);
    return status;
}

static symm_status read_algorithm(struct reading *at, symm_algorithm *algorithm)
{
    const char *name = json_string_value(json_object_get(at->object, "algorithm"));

    for (int a = 0; name && a < SYMM_ALGORITHM_COUNT; a++) {
        *algorithm = (symm_algorithm)a;
        if (strcmp(name, symm_algorithm_name(*algorithm)) == 0)
            return SYMM_OK;
    }
    return symm__json_refuse(&at->json, point_at(at, "algorithm"),
#define WORD(id, value, name) name " "
                             SYMM_ALGORITHM_MAP(WORD) "put");
#undef WORD
}

static symm_status read_op(struct reading *at, size_t i)
{
    symm_plan_op *op = &at->plan->plan.ops[i];
    symm_status status = take_name(at, "site", &op->site);

    if (status == SYMM_OK)
        status = read_algorithm(at, &op->algorithm);
    if (status == SYMM_OK)
        status = take_int(at, "channel", 0, INT32_MAX, &op->channel);
    if (status == SYMM_OK)
        status = take_flag(at, "entry_barrier", &op->entry_barrier);
    if (status == SYMM_OK)
        status = take_flag(at, "exit_barrier", &op->exit_barrier);
    if (status == SYMM_OK)
        status = take_indices(at, "frees", true, &op->frees, &op->free_count);
    if (status == SYMM_OK && json_object_get(at->object, "up_to"))
        status = take_size(at, "up_to", &op->up_to);
    return status;
}

static symm_status read_chain(struct reading *at, size_t i)
{
    symm_plan_chain *chain = &at->plan->plan.chains[i];
    symm_status status = take_name(at, "by", &chain->by);

    if (status == SYMM_OK)
        status = take_name(at, "stream", &chain->stream);
    if (status == SYMM_OK && json_object_get(at->object, "group"))
        status = take_name(at, "group", &chain->group);
    if (status == SYMM_OK)
        status = take_int(at, "half", 0, 1, &chain->half);
    if (status == SYMM_OK && json_object_get(at->object, "root"))
        status = take_int(at, "root", 0, SYMM_PROGRAM_MAX_WORLD - 1, &chain->root);
    if (status == SYMM_OK && json_object_get(at->object, "shift"))
        status = take_int(at, "shift", 0, SYMM_PROGRAM_MAX_WORLD - 1, &chain->shift);
    return status;
}

static symm_status read_witness(struct reading *at, symm_plan_entry *entry)
{
    const json_t *list = json_object_get(at->object, "witness");
    const size_t count = json_array_size(list);
    symm_plan_witness *made;

    if (!json_is_array(list) || count > (size_t)at->plan->plan.chain_count)
        return symm__json_refuse(&at->json, point_at(at, "witness"),
                                 "a list of [chain, moment], at most one for a chain");
    made = symm__pool_alloc(&at->plan->pool, count + 1, sizeof(*made));
    if (!made)
        return nomem(at);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *chain = json_array_get(pair, 0),
                     *moment = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(chain) ||
            !json_is_integer(moment) || json_integer_value(chain) < 0 ||
            json_integer_value(chain) >= at->plan->plan.chain_count ||
            json_integer_value(moment) < 0) {
            point_at(at, "witness");
            return symm__json_refuse(&at->json, pair,
                                     "the index of a chain and a moment");
        }
        made[i] = (symm_plan_witness){(int)json_integer_value(chain),
                                      json_integer_value(moment)};
    }
    entry->witness = made;
    entry->witness_count = (int)count;
    return SYMM_OK;
}

static symm_status read_entry(struct reading *at, size_t i)
{
    const int most = at->plan->plan.buffer_count - 1;
    symm_plan_entry *entry = &at->plan->plan.certificate[i];
    symm_status status = take_int(at, "before", 0, most, &entry->before);

    if (status == SYMM_OK)
        status = take_int(at, "after", 0, most, &entry->after);
    if (status == SYMM_OK)
        status = take_flag(at, "next_period", &entry->next_period);
    return status == SYMM_OK ? read_witness(at, entry) : status;
}

/* ---- The document ----------------------------------------------------------------------- */

static symm_status read_run(struct reading *at, const json_t *root)
{
    symm_plan *plan = &at->plan->plan;
    const json_t *buffers, *ops = NULL;
    size_t buffer_count, op_count = 0;
    symm_status status = find_list(at, root, "buffers", &buffers, &buffer_count);

    if (status != SYMM_OK)
        return status;
    plan->buffers =
        symm__pool_alloc(&at->plan->pool, buffer_count + 1, sizeof(*plan->buffers));
    if (!plan->buffers)
        return nomem(at);
    plan->buffer_count = (int)buffer_count;
    status = read_each(at, buffers, "buffers", read_buffer);
    if (status == SYMM_OK)
        status = find_list(at, root, "ops", &ops, &op_count);
    if (status != SYMM_OK)
        return status;
    plan->ops = symm__pool_alloc(&at->plan->pool, op_count + 1, sizeof(*plan->ops));
    if (!plan->ops)
        return nomem(at);
    plan->op_count = (int)op_count;
    return read_each(at, ops, "ops", read_op);
}

static symm_status read_proof(struct reading *at, const json_t *root)
{
    symm_plan *plan = &at->plan->plan;
    const json_t *chains, *entries = NULL;
    size_t chain_count, entry_count = 0;
    symm_status status = find_list(at, root, "chains", &chains, &chain_count);

    if (status != SYMM_OK)
        return status;
    plan->chains =
        symm__pool_alloc(&at->plan->pool, chain_count + 1, sizeof(*plan->chains));
    if (!plan->chains)
        return nomem(at);
    plan->chain_count = (int)chain_count;
    status = read_each(at, chains, "chains", read_chain);
    at->object = root;
    at->list = NULL;
    if (status == SYMM_OK)
        status = take_indices(at, "antichain", false, &plan->antichain,
                              &plan->antichain_count);
    if (status == SYMM_OK)
        status = find_list(at, root, "certificate", &entries, &entry_count);
    if (status != SYMM_OK)
        return status;
    plan->certificate = calloc(entry_count + 1, sizeof(*plan->certificate));
    if (!plan->certificate)
        return nomem(at);
    plan->certificate_count = entry_count;
    plan->has_proof = true;
    return read_each(at, entries, "certificate", read_entry);
}

static symm_status read_format(struct reading *at)
{
    const json_t *value = point_at(at, "format");
    const char *text = json_string_value(value);

    if (text && strcmp(text, "symm-plan/2") == 0)
        return SYMM_OK;
    if (text && strcmp(text, "symm-plan/1") == 0)
        return symm__json_refuse(
            &at->json, value,
            "\"symm-plan/2\"; plans of version 1 have another certificate: make it "
            "again by symm-plan plan");
    return symm__json_refuse(&at->json, value, "\"symm-plan/2\"");
}

static symm_status read_head(struct reading *at, const json_t *root)
{
    symm_plan *plan = &at->plan->plan;
    symm_status status;

    at->object = root;
    at->list = NULL;
    if (!json_is_object(root)) {
        symm__json_at(&at->json, root, "$");
        return symm__json_refuse(&at->json, root, "an object");
    }
    status = read_format(at);
    if (status == SYMM_OK)
        status = take_name(at, "program", &plan->program);
    if (status == SYMM_OK)
        status = take_hash(at, "program_hash", &plan->program_hash);
    plan->has_run_hash = json_object_get(root, "run_hash") != NULL;
    if (status == SYMM_OK && plan->has_run_hash)
        status = take_hash(at, "run_hash", &plan->run_hash);
    plan->has_plan_hash = json_object_get(root, "plan_hash") != NULL;
    if (status == SYMM_OK && plan->has_plan_hash)
        status = take_hash(at, "plan_hash", &plan->plan_hash);
    if (status == SYMM_OK)
        status = take_int(at, "world", 1, SYMM_PROGRAM_MAX_WORLD, &plan->world);
    if (status == SYMM_OK)
        status = take_flag(at, "loop", &plan->loop);
    if (status == SYMM_OK)
        status = take_size(at, "arena_bytes", &plan->arena_bytes);
    if (status == SYMM_OK)
        status = take_size(at, "lower_bound_bytes", &plan->lower_bound_bytes);
    if (status == SYMM_OK)
        status = take_flag(at, "lower_bound_proved", &plan->lower_bound_proved);
    if (status == SYMM_OK)
        status = take_size(at, "dedicated_bytes", &plan->dedicated_bytes);
    return status;
}

static symm_status make_plan(json_t *root, const char *name, bool proof,
                             symm_plan **plan)
{
    struct reading at = {.json = {.file = name}, .plan = symm__plan_new()};
    symm_status status = at.plan ? read_head(&at, root) : nomem(&at);

    if (status == SYMM_OK)
        status = read_run(&at, root);
    if (status == SYMM_OK && proof)
        status = read_proof(&at, root);
    json_decref(root);
    if (status != SYMM_OK) {
        symm_plan_destroy(at.plan ? &at.plan->plan : NULL);
        return status;
    }
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
    return root ? make_plan(root, path, true, plan) : status;
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
    return root ? make_plan(root, name, true, plan) : status;
}

/* ---- Without the proof -------------------------------------------------------------------- */

/* Behind the string that begins at `at`, or the end of the text. */
static char *skip_string(char *at, char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end)
            at++;
    return at < end ? at + 1 : end;
}

static bool is_proof(const char *key, size_t length)
{
    static const char *const names[] = {"\"chains\"", "\"antichain\"",
                                        "\"certificate\""};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i]) == length && memcmp(names[i], key, length) == 0)
            return true;
    return false;
}

/* Passes over what lies between the brackets of the list that begins at `at`, and keeps the
 * ends of lines, by which complaints count, at *to. Returns the closing bracket, or `end`. */
static char *pass_list(char *at, char *end, char **to)
{
    int depth = 1;

    for (at++; at < end; at++) {
        if (*at == '"') {
            at = skip_string(at, end) - 1;
            continue;
        }
        depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        if (depth == 0)
            return at;
        if (*at == '\n')
            *(*to)++ = '\n';
    }
    return end;
}

/* The root's lists that prove the plan become empty ones. Returns the text's new length. */
static size_t drop_proof(char *text, size_t length)
{
    char *const end = text + length, *to = text;
    bool proof = false; /* the last string at depth 1 is one of their names */
    int depth = 0;

    for (char *at = text; at < end; at++) {
        if (*at == '"') {
            char *behind = skip_string(at, end);
            proof = depth == 1 && is_proof(at, (size_t)(behind - at));
            memmove(to, at, (size_t)(behind - at));
            to += behind - at;
            at = behind - 1;
            continue;
        }
        *to++ = *at;
        if (*at == '[' && depth == 1 && proof) {
            at = pass_list(at, end, &to);
            if (at < end)
                *to++ = *at;
            proof = false;
        } else {
            depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        }
    }
    return (size_t)(to - text);
}

static char *read_text(const char *path, size_t *length, symm_status *status)
{
    FILE *file = fopen(path, "re");
    size_t room = 1 << 16;
    char *text = NULL;

    if (!file) {
        *status =
            symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s: cannot be opened", path);
        return NULL;
    }
    *length = 0;
    *status = SYMM_OK;
    do {
        char *grown = realloc(text, room);
        if (!grown) {
            *status = symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", path);
            break;
        }
        text = grown;
        *length += fread(text + *length, 1, room - *length, file);
        room *= 2;
    } while (*length == room / 2);
    if (*status == SYMM_OK && ferror(file))
        *status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s: cannot be read", path);
    fclose(file);
    if (*status == SYMM_OK)
        return text;
    free(text);
    return NULL;
}

symm_status symm_plan_read_run(const char *path, symm_plan **plan)
{
    symm_status status;
    size_t length;
    char *text;
    json_t *root;

    if (!path || !plan)
        return symm__fail_null("symm_plan_read_run", path ? "plan" : "path");
    text = read_text(path, &length, &status);
    if (!text)
        return status;
    length = drop_proof(text, length);
    root = symm__json_text(text, length, path, &status);
    free(text);
    return root ? make_plan(root, path, false, plan) : status;
}
