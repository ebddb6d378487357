/* SPDX-License-Identifier: MIT */
/*
 * plan_write.c - a plan as a symm-plan/2 document, and its hashes.
 *
 * The text depends on nothing but the plan: fixed order of members, one buffer, op or
 * entry a line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/json_canonical.h"
#include "model/program_private.h"
#include "util/status.h"

static void put_name(struct json_out *out, const char *key, const char *name)
{
    symm__json_put(out, key);
    symm__json_string(out, name);
}

static void put_size(struct json_out *out, const char *key, uint64_t number)
{
    symm__json_put(out, key);
    symm__json_unsigned(out, number);
}

static void put_flag(struct json_out *out, const char *key, bool flag)
{
    symm__json_put(out, key);
    symm__json_bool(out, flag);
}

static void put_hash(struct json_out *out, const char *key, uint64_t hash)
{
    char text[24];

    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    put_name(out, key, text);
}

static void put_list(struct json_out *out, const char *key, const int *list, int count)
{
    symm__json_put(out, key);
    for (int i = 0; i < count; i++) {
        symm__json_put(out, i ? "," : "");
        symm__json_number(out, list[i]);
    }
    symm__json_put(out, "]");
}

/* ---- What ranks load --------------------------------------------------------------- */

static void put_buffer(struct json_out *out, const symm_plan_buffer *buffer)
{
    put_list(out, "{\"after\":[", buffer->after, buffer->after_count);
    symm__json_put(out, ",\"alloc_id\":");
    symm__json_id_put(out, buffer->alloc_id);
    put_size(out, ",\"bytes\":", buffer->bytes);
    put_name(out, ",\"name\":", buffer->name);
    put_size(out, ",\"offset\":", buffer->offset);
    symm__json_put(out, ",\"turn\":");
    symm__json_number(out, buffer->turn);
    symm__json_put(out, "}");
}

static void put_op(struct json_out *out, const symm_plan_op *op)
{
    put_name(out, "{\"algorithm\":", symm_algorithm_name(op->algorithm));
    put_size(out, ",\"channel\":", (uint64_t)op->channel);
    put_flag(out, ",\"entry_barrier\":", op->entry_barrier);
    put_flag(out, ",\"exit_barrier\":", op->exit_barrier);
    if (op->free_count > 0)
        put_list(out, ",\"frees\":[", op->frees, op->free_count);
    put_name(out, ",\"site\":", op->site);
    if (op->up_to)
        put_size(out, ",\"up_to\":", op->up_to);
    symm__json_put(out, "}");
}

/* The members that run_hash covers, in the order of their names. */
static void put_run(struct json_out *out, const symm_plan *plan)
{
    put_size(out, "\"arena_bytes\":", plan->arena_bytes);
    symm__json_put(out, ",\"buffers\":[");
    for (int i = 0; i < plan->buffer_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_buffer(out, &plan->buffers[i]);
    }
    symm__json_line(out, "],", " ");
    put_flag(out, "\"format\":\"symm-plan/2\",\"loop\":", plan->loop);
    symm__json_put(out, ",\"ops\":[");
    for (int i = 0; i < plan->op_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_op(out, &plan->ops[i]);
    }
    symm__json_line(out, "],", " ");
    put_name(out, "\"program\":", plan->program);
    put_hash(out, ",\"program_hash\":", plan->program_hash);
    put_size(out, ",\"world\":", (uint64_t)plan->world);
}

symm_status symm_plan_run_hash(const symm_plan *plan, uint64_t *hash)
{
    struct json_out out;

    if (!plan || !hash)
        return symm__fail_null("symm_plan_run_hash", plan ? "hash" : "plan");
    symm__json_hash_begin(&out);
    symm__json_put(&out, "{");
    put_run(&out, plan);
    symm__json_put(&out, "}");
    *hash = out.hash;
    return SYMM_OK;
}

/* ---- The proof --------------------------------------------------------------------- */

static void put_entry(struct json_out *out, const symm_plan_entry *entry)
{
    symm__json_put(out, "{\"after\":");
    symm__json_number(out, entry->after);
    symm__json_put(out, ",\"before\":");
    symm__json_number(out, entry->before);
    put_flag(out, ",\"next_period\":", entry->next_period);
    symm__json_put(out, ",\"witness\":[");
    for (int w = 0; w < entry->witness_count; w++) {
        symm__json_put(out, w ? ",[" : "[");
        symm__json_number(out, entry->witness[w].chain);
        symm__json_put(out, ",");
        symm__json_number(out, entry->witness[w].moment);
        symm__json_put(out, "]");
    }
    symm__json_put(out, "]}");
}

static void put_chain(struct json_out *out, const symm_plan_chain *chain)
{
    const bool shifts = strcmp(chain->by, "sender") == 0;
    const bool roots =
        strcmp(chain->by, "root") == 0 || strcmp(chain->by, "readers") == 0;

    put_name(out, "{\"by\":", chain->by);
    if (chain->partition)
        put_name(out, ",\"group\":", chain->partition);
    symm__json_put(out, ",\"half\":");
    symm__json_number(out, chain->half);
    if (shifts || roots) {
        symm__json_put(out, shifts ? ",\"shift\":" : ",\"root\":");
        symm__json_number(out, shifts ? chain->shift : chain->root);
    }
    put_name(out, ",\"stream\":", chain->stream);
    symm__json_put(out, "}");
}

/* The members that plan_hash covers beside run_hash, in the order of their names. */
static void put_proof(struct json_out *out, const symm_plan *plan)
{
    put_list(out, "\"antichain\":[", plan->antichain, plan->antichain_count);
    symm__json_put(out, ",\"certificate\":[");
    for (size_t i = 0; i < plan->certificate_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_entry(out, &plan->certificate[i]);
    }
    symm__json_line(out, "],", " ");
    symm__json_put(out, "\"chains\":[");
    for (int i = 0; i < plan->chain_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_chain(out, &plan->chains[i]);
    }
    symm__json_line(out, "],", " ");
    put_size(out, "\"dedicated_bytes\":", plan->dedicated_bytes);
    put_size(out, ",\"lower_bound_bytes\":", plan->lower_bound_bytes);
    put_flag(out, ",\"lower_bound_proved\":", plan->lower_bound_proved);
}

uint64_t symm__plan_hash_over(const symm_plan *plan, uint64_t run)
{
    struct json_out out;

    symm__json_hash_begin(&out);
    symm__json_put(&out, "{");
    put_proof(&out, plan);
    put_hash(&out, ",\"run_hash\":", run);
    symm__json_put(&out, "}");
    return out.hash;
}

symm_status symm_plan_hash(const symm_plan *plan, uint64_t *hash)
{
    uint64_t run = 0;
    symm_status status;

    if (!plan || !hash)
        return symm__fail_null("symm_plan_hash", plan ? "hash" : "plan");
    status = symm_plan_run_hash(plan, &run);
    *hash = symm__plan_hash_over(plan, run);
    return status;
}

/* ---- The text ---------------------------------------------------------------------- */

symm_status symm_plan_format(const symm_plan *plan, char **text, size_t *length)
{
    struct json_out out = {.hashing = false};

    if (!plan || !text || !length)
        return symm__fail_null("symm_plan_format", !plan   ? "plan"
                                                   : !text ? "text"
                                                           : "length");
    symm__json_line(&out, "{", " ");
    put_run(&out, plan);
    symm__json_line(&out, ",", " ");
    if (plan->has_run_hash)
        put_hash(&out, "\"run_hash\":", plan->run_hash);
    if (plan->has_plan_hash)
        put_hash(&out, plan->has_run_hash ? ",\"plan_hash\":" : "\"plan_hash\":",
                 plan->plan_hash);
    if (plan->has_run_hash || plan->has_plan_hash)
        symm__json_line(&out, ",", " ");
    put_proof(&out, plan);
    symm__json_put(&out, "\n}\n");
    if (out.failed) {
        free(out.text);
        return symm__fail(SYMM_ERR_NOMEM, "plan of %s: memory is exhausted",
                          plan->program);
    }
    *text = out.text;
    *length = out.length;
    return SYMM_OK;
}

symm_status symm_plan_write(const symm_plan *plan, const char *path)
{
    char *text;
    size_t length;
    symm_status status;

    if (!plan || !path)
        return symm__fail_null("symm_plan_write", plan ? "path" : "plan");
    status = symm_plan_format(plan, &text, &length);
    if (status != SYMM_OK)
        return status;
    status = symm__file_write(path, text, length);
    free(text);
    return status;
}
