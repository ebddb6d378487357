/* SPDX-License-Identifier: MIT */
/*
 * plan_write.c - a plan as a symm-plan/2 document, and its hashes.
 *
 * The text depends on nothing but the plan: fixed order of members, one buffer, op or
 * entry a line.
 */
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/json_canonical.h"
#include "model/program_private.h"
#include "util/status.h"

static void put_list(struct json_out *out, const char *key, const int *list, int count)
{
    symm__json_put(out, key);
    for (int i = 0; i < count; i++)
        symm__json_write(out, i ? ",%d" : "%d", list[i]);
    symm__json_put(out, "]");
}

/* ---- What ranks load --------------------------------------------------------------- */

static void put_buffer(struct json_out *out, const symm_plan_buffer *buffer)
{
    put_list(out, "{\"after\":[", buffer->after, buffer->after_count);
    symm__json_write(
        out, ",\"alloc_id\":%lu,\"bytes\":%zu,\"name\":%s,\"offset\":%zu,\"turn\":%d}",
        buffer->alloc_id, buffer->bytes, buffer->name, buffer->offset, buffer->turn);
}

static void put_op(struct json_out *out, const symm_plan_op *op)
{
    symm__json_write(
        out,
        "{\"algorithm\":%s,\"channel\":%d,\"entry_barrier\":%i,\"exit_barrier\":%i",
        symm_algorithm_name(op->algorithm), op->channel, op->entry_barrier,
        op->exit_barrier);
    if (op->free_count > 0)
        put_list(out, ",\"frees\":[", op->frees, op->free_count);
    symm__json_put(out, op->norm ? ",\"norm\":true" : "");
    symm__json_write(out, ",\"site\":%s", op->site);
    if (op->up_to)
        symm__json_write(out, ",\"up_to\":%zu", op->up_to);
    symm__json_put(out, "}");
}

/* The members that run_hash covers, in the order of their names. */
static void put_run(struct json_out *out, const symm_plan *plan)
{
    symm__json_write(out, "\"arena_bytes\":%zu,\"buffers\":[", plan->arena_bytes);
    for (int i = 0; i < plan->buffer_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_buffer(out, &plan->buffers[i]);
    }
    symm__json_line(out, "],", " ");
    symm__json_write(out, "\"format\":\"symm-plan/2\",\"loop\":%i,\"ops\":[",
                     plan->loop);
    for (int i = 0; i < plan->op_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_op(out, &plan->ops[i]);
    }
    symm__json_line(out, "],", " ");
    symm__json_write(out, "\"program\":%s,\"program_hash\":%lx,\"world\":%d",
                     plan->program, plan->program_hash, plan->world);
}

/* `result`, a pointer named `name`, and the plan. A struct that no function of this library has made
 * has no arrays to follow. */
static symm_status check(const char *function, const symm_plan *plan, const char *name,
                         const void *result)
{
    if (!plan || !result)
        return symm__fail_null(function, plan ? name : "plan");
    if (plan->size == sizeof(*plan))
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_INVALID,
        "%s: the plan's size is %zu, this library's is %zu; give one that "
        "symm_plan_make, symm_plan_read or symm_plan_parse returned",
        function, plan->size, sizeof(*plan));
}

static uint64_t run_hash_of(const symm_plan *plan)
{
    struct json_out out;

    symm__json_hash_begin(&out);
    symm__json_put(&out, "{");
    put_run(&out, plan);
    symm__json_put(&out, "}");
    return out.hash;
}

symm_status symm_plan_run_hash(const symm_plan *plan, uint64_t *hash)
{
    symm_status status = check("symm_plan_run_hash", plan, "hash", hash);

    if (status == SYMM_OK)
        *hash = run_hash_of(plan);
    return status;
}

/* ---- The proof --------------------------------------------------------------------- */

static void put_entry(struct json_out *out, const symm_plan_entry *entry)
{
    symm__json_write(out,
                     "{\"after\":%d,\"before\":%d,\"next_period\":%i,\"witness\":[",
                     entry->after, entry->before, entry->next_period);
    for (int w = 0; w < entry->witness_count; w++)
        symm__json_write(out, w ? ",[%d,%ld]" : "[%d,%ld]", entry->witness[w].chain,
                         entry->witness[w].moment);
    symm__json_put(out, "]}");
}

static void put_chain(struct json_out *out, const symm_plan_chain *chain)
{
    symm__json_write(out, "{\"by\":%s", chain->by);
    if (chain->partition)
        symm__json_write(out, ",\"group\":%s", chain->partition);
    symm__json_write(out, ",\"half\":%d", chain->half);
    if (strcmp(chain->by, "sender") == 0)
        symm__json_write(out, ",\"shift\":%d", chain->shift);
    if (strcmp(chain->by, "root") == 0 || strcmp(chain->by, "readers") == 0)
        symm__json_write(out, ",\"root\":%d", chain->root);
    symm__json_write(out, ",\"stream\":%s}", chain->stream);
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
    symm__json_write(
        out,
        "\"dedicated_bytes\":%zu,\"lower_bound_bytes\":%zu,\"lower_bound_proved\":%i",
        plan->dedicated_bytes, plan->lower_bound_bytes, plan->lower_bound_proved);
}

uint64_t symm__plan_hash_over(const symm_plan *plan, uint64_t run)
{
    struct json_out out;

    symm__json_hash_begin(&out);
    symm__json_put(&out, "{");
    put_proof(&out, plan);
    symm__json_write(&out, ",\"run_hash\":%lx}", run);
    return out.hash;
}

symm_status symm_plan_hash(const symm_plan *plan, uint64_t *hash)
{
    symm_status status = check("symm_plan_hash", plan, "hash", hash);

    if (status == SYMM_OK)
        *hash = symm__plan_hash_over(plan, run_hash_of(plan));
    return status;
}

/* ---- The text ---------------------------------------------------------------------- */

symm_status symm_plan_format(const symm_plan *plan, char **text, size_t *length)
{
    struct json_out out = {.hashing = false};
    symm_status status = check("symm_plan_format", plan, "text", text);

    if (status == SYMM_OK && !length)
        status = symm__fail_null("symm_plan_format", "length");
    if (status != SYMM_OK)
        return status;
    symm__json_line(&out, "{", " ");
    put_run(&out, plan);
    symm__json_line(&out, ",", " ");
    if (plan->has_run_hash)
        symm__json_write(&out, "\"run_hash\":%lx", plan->run_hash);
    if (plan->has_plan_hash)
        symm__json_write(
            &out, plan->has_run_hash ? ",\"plan_hash\":%lx" : "\"plan_hash\":%lx",
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
    return status == SYMM_OK ? symm__file_write(path, text, length) : status;
}
