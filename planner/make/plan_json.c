/* SPDX-License-Identifier: MIT */
/*
 * plan_json.c - reads a symm-plan/2 document. The reader checks the form alone: symm_plan_check
 * checks that the plan fits a program and is safe. Unknown members are ignored. Ranks read a
 * plan without its proof, whose text is dropped before the document is parsed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/json_member.h"
#include "util/status.h"

static void take_hash(struct json_members *at, const char *name, uint64_t *hash)
{
    const json_t *value = symm__member(at, name);
    const char *text = json_string_value(value);

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        symm__member_refuse(at, value, "16 lower-case hexadecimal digits");
    else
        *hash = strtoull(text, NULL, 16);
}

/* Indices of buffers; absent: none, if `optional`. */
static void take_indices(struct json_members *at, const symm_plan *plan,
                         const char *name, bool optional, const int **indices,
                         int *count)
{
    const json_t *list = json_object_get(at->object, name);
    const size_t length = json_array_size(list);
    int *made;

    if (!list && optional)
        return;
    if (!json_is_array(list) || length > (size_t)plan->buffer_count)
        symm__member_refuse(at, symm__member(at, name), "a list of indices of buffers");
    made = length ? symm__take_room(at, length, sizeof(*made)) : NULL;
    for (size_t i = 0; made && i < length && at->status == SYMM_OK; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t index = json_integer_value(value);

        made[i] = (int)index;
        if (json_is_integer(value) && index >= 0 && index < plan->buffer_count)
            continue;
        symm__member(at, name);
        symm__member_refuse(at, value, "indices of the plan's buffers");
    }
    *indices = made;
    *count = (int)length;
}

/* ---- Lists of objects ------------------------------------------------------------------ */

static void read_buffer(struct json_members *at, void *arg)
{
    const symm_plan *plan = arg;
    symm_plan_buffer *buffer = &plan->buffers[at->index];

    symm__take_name(at, "name", &buffer->name);
    symm__take_id(at, "alloc_id", &buffer->alloc_id);
    symm__take_size(at, "offset", INT64_MAX, &buffer->offset);
    symm__take_size(at, "bytes", INT64_MAX, &buffer->bytes);
    symm__take_int(at, "turn", -1, plan->buffer_count - 1, &buffer->turn);
    take_indices(at, plan, "after", false, &buffer->after, &buffer->after_count);
}

static void read_algorithm(struct json_members *at, symm_algorithm *algorithm)
{
    const char *name = json_string_value(json_object_get(at->object, "algorithm"));

    for (int a = 0; name && a < SYMM_ALGORITHM_COUNT; a++) {
        *algorithm = (symm_algorithm)a;
        if (strcmp(name, symm_algorithm_name(*algorithm)) == 0)
            return;
    }
#define WORD(id, value, name) name " "
    symm__member_refuse(at, symm__member(at, "algorithm"),
                        SYMM_ALGORITHM_MAP(WORD) "put");
#undef WORD
}

static void read_op(struct json_members *at, void *arg)
{
    const symm_plan *plan = arg;
    symm_plan_op *op = &plan->ops[at->index];

    symm__take_name(at, "site", &op->site);
    read_algorithm(at, &op->algorithm);
    symm__take_int(at, "channel", 0, INT32_MAX, &op->channel);
    symm__take_flag(at, "entry_barrier", &op->entry_barrier);
    symm__take_flag(at, "exit_barrier", &op->exit_barrier);
    symm__take_flag(at, "norm", &op->norm);
    take_indices(at, plan, "frees", true, &op->frees, &op->free_count);
    if (json_object_get(at->object, "up_to"))
        symm__take_size(at, "up_to", INT64_MAX, &op->up_to);
}

static void read_chain(struct json_members *at, void *arg)
{
    symm_plan_chain *chain = &((symm_plan *)arg)->chains[at->index];

    symm__take_name(at, "by", &chain->by);
    symm__take_name(at, "stream", &chain->stream);
    if (json_object_get(at->object, "group"))
        symm__take_name(at, "group", &chain->partition);
    symm__take_int(at, "half", 0, 1, &chain->half);
    if (json_object_get(at->object, "root"))
        symm__take_int(at, "root", 0, SYMM_PROGRAM_MAX_WORLD - 1, &chain->root);
    if (json_object_get(at->object, "shift"))
        symm__take_int(at, "shift", 0, SYMM_PROGRAM_MAX_WORLD - 1, &chain->shift);
}

static void read_witness(struct json_members *at, const symm_plan *plan,
                         symm_plan_entry *entry)
{
    const json_t *list = json_object_get(at->object, "witness");
    const size_t count = json_array_size(list);
    symm_plan_witness *made;

    if (!json_is_array(list) || count > (size_t)plan->chain_count)
        symm__member_refuse(at, symm__member(at, "witness"),
                            "a list of [chain, moment], at most one for a chain");
    made = symm__take_room(at, count, sizeof(*made));
    for (size_t i = 0; made && i < count && at->status == SYMM_OK; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *chain = json_array_get(pair, 0),
                     *moment = json_array_get(pair, 1);

        made[i] = (symm_plan_witness){(int)json_integer_value(chain),
                                      json_integer_value(moment)};
        if (json_array_size(pair) == 2 && json_is_integer(chain) &&
            json_is_integer(moment) && json_integer_value(chain) >= 0 &&
            json_integer_value(chain) < plan->chain_count &&
            json_integer_value(moment) >= 0)
            continue;
        symm__member(at, "witness");
        symm__member_refuse(at, pair, "the index of a chain and a moment");
    }
    entry->witness = made;
    entry->witness_count = (int)count;
}

static void read_entry(struct json_members *at, void *arg)
{
    const symm_plan *plan = arg;
    symm_plan_entry *entry = &plan->certificate[at->index];

    symm__take_int(at, "before", 0, plan->buffer_count - 1, &entry->before);
    symm__take_int(at, "after", 0, plan->buffer_count - 1, &entry->after);
    symm__take_flag(at, "next_period", &entry->next_period);
    read_witness(at, plan, entry);
}

/* ---- The document ----------------------------------------------------------------------- */

static void read_run(struct json_members *at, const json_t *root, symm_plan *plan)
{
    size_t count;
    const json_t *list = symm__take_list(at, root, "buffers", INT32_MAX, &count);

    plan->buffers = symm__take_room(at, count, sizeof(*plan->buffers));
    plan->buffer_count = plan->buffers ? (int)count : 0;
    symm__take_each(at, list, "buffers", read_buffer, plan);
    list = symm__take_list(at, root, "ops", INT32_MAX, &count);
    plan->ops = symm__take_room(at, count, sizeof(*plan->ops));
    plan->op_count = plan->ops ? (int)count : 0;
    symm__take_each(at, list, "ops", read_op, plan);
}

static void read_proof(struct json_members *at, const json_t *root, symm_plan *plan)
{
    size_t count;
    const json_t *list = symm__take_list(at, root, "chains", INT32_MAX, &count);

    plan->chains = symm__take_room(at, count, sizeof(*plan->chains));
    plan->chain_count = plan->chains ? (int)count : 0;
    symm__take_each(at, list, "chains", read_chain, plan);
    at->object = root;
    at->list = NULL;
    take_indices(at, plan, "antichain", false, &plan->antichain,
                 &plan->antichain_count);
    list = symm__take_list(at, root, "certificate", INT32_MAX, &count);
    if (at->status != SYMM_OK)
        return;
    plan->certificate = calloc(count + 1, sizeof(*plan->certificate));
    if (!plan->certificate) {
        at->status =
            symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", at->json.file);
        return;
    }
    plan->certificate_count = count;
    plan->has_proof = true;
    symm__take_each(at, list, "certificate", read_entry, plan);
}

static void read_format(struct json_members *at)
{
    const json_t *value = symm__member(at, "format");
    const char *text = json_string_value(value);

    if (text && strcmp(text, "symm-plan/1") == 0)
        symm__member_refuse(
            at, value,
            "\"symm-plan/2\"; plans of version 1 have another certificate: make it "
            "again by symm-plan plan");
    else if (!text || strcmp(text, "symm-plan/2") != 0)
        symm__member_refuse(at, value, "\"symm-plan/2\"");
}

static void read_head(struct json_members *at, symm_plan *plan)
{
    if (!json_is_object(at->object)) {
        symm__member(at, "$");
        symm__member_refuse(at, at->object, "an object");
        return;
    }
    read_format(at);
    symm__take_name(at, "program", &plan->program);
    take_hash(at, "program_hash", &plan->program_hash);
    plan->has_run_hash = json_object_get(at->object, "run_hash") != NULL;
    if (plan->has_run_hash)
        take_hash(at, "run_hash", &plan->run_hash);
    plan->has_plan_hash = json_object_get(at->object, "plan_hash") != NULL;
    if (plan->has_plan_hash)
        take_hash(at, "plan_hash", &plan->plan_hash);
    symm__take_int(at, "world", 1, SYMM_PROGRAM_MAX_WORLD, &plan->world);
    symm__take_flag(at, "loop", &plan->loop);
    symm__take_size(at, "arena_bytes", INT64_MAX, &plan->arena_bytes);
    symm__take_size(at, "lower_bound_bytes", INT64_MAX, &plan->lower_bound_bytes);
    symm__take_flag(at, "lower_bound_proved", &plan->lower_bound_proved);
    symm__take_size(at, "dedicated_bytes", INT64_MAX, &plan->dedicated_bytes);
}

/* Makes the plan and releases root, also on error. Without `proof`, has_proof stays false. */
static symm_status make_plan(json_t *root, const char *name, bool proof,
                             symm_plan **plan)
{
    struct plan_private *made = symm__plan_new();
    struct json_members at = {.json = {.file = name}, .object = root};

    if (!made) {
        json_decref(root);
        return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", name);
    }
    at.pool = &made->pool;
    read_head(&at, &made->plan);
    read_run(&at, root, &made->plan);
    if (proof)
        read_proof(&at, root, &made->plan);
    json_decref(root);
    if (at.status == SYMM_OK) {
        made->plan.source = symm__pool_copy(&made->pool, name);
        if (!made->plan.source)
            at.status = symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", name);
    }
    if (at.status == SYMM_OK)
        *plan = &made->plan;
    else
        symm_plan_destroy(&made->plan);
    return at.status;
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

/* The byte after the string that begins at `at`, or the end of the text. */
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

/* Skips the list that begins at `at`. Copies its ends of lines to *to, so that the lines in errors
 * are right; columns may be too small. Returns the closing bracket, or `end`. */
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

/* Empties the root's lists that prove the plan. Returns the text's new length: the text is
 * rewritten in place, since `to` never passes `at`. */
static size_t drop_proof(char *text, size_t length)
{
    char *const end = text + length, *to = text;
    bool proof = false; /* the last string at depth 1 names a list of the proof */
    int depth = 0;

    for (char *at = text; at < end; at++) {
        if (*at == '"') {
            char *after = skip_string(at, end);
            proof = depth == 1 && is_proof(at, (size_t)(after - at));
            memmove(to, at, (size_t)(after - at));
            to += after - at;
            at = after - 1;
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

/* The file's bytes, without a NUL at the end; the caller frees them. NULL: see *status. */
static char *read_text(const char *path, size_t *length, symm_status *status)
{
    FILE *file = fopen(path, "re");
    size_t room = 1 << 16, was;
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
        was = room;
        room *= 2;
        /* JSON has no NUL, and a device that gives nothing else does not end. */
    } while (*length == was && text[was - 1] != '\0');
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
