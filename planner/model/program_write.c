/* SPDX-License-Identifier: MIT */
/*
 * program_write.c - a program's hash, and its text. A program that was read hashes as its
 * document; a built one as the document with every default written out and no member that
 * its op does not have.
 */
#include <stdlib.h>
#include <string.h>

#include "model/json_canonical.h"
#include "model/program_private.h"
#include "util/status.h"

static void put_dims(struct json_out *out, const char *key, const int64_t *numbers,
                     int count)
{
    symm__json_put(out, key);
    for (int i = 0; i < count; i++)
        symm__json_write(out, i ? ",%ld" : "%ld", numbers[i]);
    symm__json_put(out, "]");
}

static void put_buffer(struct json_out *out, const symm_program *program, int index)
{
    const symm_program_buffer *buffer = &program->buffers[index];

    symm__json_put(out, "{");
    if (buffer->alloc_id != (uint64_t)index + 1)
        symm__json_write(out, "\"alloc_id\":%lu,", buffer->alloc_id);
    if (buffer->raw) {
        symm__json_write(out, "\"bytes\":%zu,\"name\":%s", buffer->bytes, buffer->name);
    } else {
        symm__json_write(out, "\"dtype\":%s,\"name\":%s",
                         symm_dtype_name(buffer->dtype), buffer->name);
        put_dims(out, ",\"shape\":[", buffer->shape, buffer->ndim);
        put_dims(out, ",\"stride\":[", buffer->stride, buffer->ndim);
    }
    symm__json_put(out, "}");
}

static void put_partition(struct json_out *out, const symm_program_partition *partition)
{
    symm__json_write(out, "%s:[", partition->name);
    for (int i = 0; i < partition->lists * partition->length; i++)
        symm__json_write(out,
                         i % partition->length ? ",%d"
                         : i                   ? "],[%d"
                                               : "[%d",
                         partition->ranks[i]);
    symm__json_put(out, "]]");
}

/* All but the world, which every program has, in the order of their names. */
static void put_partitions(struct json_out *out, const symm_program *program)
{
    const symm_program_partition *last = NULL;

    symm__json_put(out, "\"groups\":{");
    for (int n = 1; n < program->partition_count; n++) {
        const symm_program_partition *next = NULL;
        for (int i = 1; i < program->partition_count; i++) {
            const symm_program_partition *partition = &program->partitions[i];
            if ((!last || strcmp(partition->name, last->name) > 0) &&
                (!next || strcmp(partition->name, next->name) < 0))
                next = partition;
        }
        symm__json_put(out, last ? "," : "");
        put_partition(out, next);
        last = next;
    }
    symm__json_put(out, "}");
}

static void put_array(struct json_out *out, const symm_program *program,
                      const char *key, symm_program_array array)
{
    if (!array.given)
        return;
    symm__json_put(out, key);
    if (array.buffer < 0)
        symm__json_put(out, "true");
    else
        symm__json_write(out, "%s", program->buffers[array.buffer].name);
}

static void put_norm(struct json_out *out, const symm_program *program,
                     const symm_program_op *op)
{
    const symm_program_norm *norm = &program->norms[op->norm];

    symm__json_put(out, ",\"norm\":{");
    put_array(out, program, "\"bias\":", norm->bias);
    symm__json_put(out, norm->bias.given ? "," : "");
    symm__json_write(out, "\"constant\":%i,\"dtype\":%s,\"hidden\":%zu", norm->constant,
                     symm_dtype_name(op->dtype), norm->hidden);
    put_array(out, program, ",\"norm_out\":", norm->norm_out);
    symm__json_write(out, ",\"quant\":%s", symm__norm_quant_name(norm->quant));
    put_array(out, program, ",\"quant_out\":", norm->quant_out);
    put_array(out, program, ",\"residual_in\":", norm->residual_in);
    put_array(out, program, ",\"residual_out\":", norm->residual_out);
    put_array(out, program, ",\"scale\":", norm->scale);
    put_array(out, program, ",\"sum_out\":", norm->sum_out);
    put_array(out, program, ",\"weight\":", norm->weight);
    symm__json_put(out, "}");
}

static void put_op(struct json_out *out, const symm_program *program,
                   const symm_program_op *op)
{
    const bool norm = op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
    const bool put = op->kind == SYMM_PROGRAM_PUT;
    const bool collective = symm__is_collective(op->kind);
    const char *in = op->in < 0 ? NULL : program->buffers[op->in].name;
    const char *to = op->out < 0 ? NULL : program->buffers[op->out].name;

    symm__json_put(out, "{");
    for (int i = 0; i < op->buffer_count; i++)
        symm__json_write(out, i ? ",%s" : "\"buffers\":[%s",
                         program->buffers[op->buffers[i]].name);
    symm__json_put(out, op->buffer_count ? "]," : "");
    if (collective)
        symm__json_write(out, "\"count\":%zu,", op->count);
    if (put)
        symm__json_write(out, "\"dst\":%s,", to);
    symm__json_write(out, "\"early_start\":%i", op->early_start);
    if (put || collective)
        symm__json_write(out, ",\"group\":%s", program->partitions[op->partition].name);
    if (collective)
        symm__json_write(out, ",\"in\":%s", in);
    if (norm)
        put_norm(out, program, op);
    if (op->kind == SYMM_PROGRAM_DEPEND)
        symm__json_write(out, ",\"on\":%s", program->streams[op->on]);
    symm__json_write(out, ",\"op\":%s", symm_program_kind_name(op->kind));
    if (collective && to && !norm)
        symm__json_write(out, ",\"out\":%s", to);
    if (symm__is_reduction(op->kind) && !norm)
        symm__json_write(out, ",\"reduce\":%s", symm_op_name(op->reduce));
    if (op->kind == SYMM_PROGRAM_BROADCAST)
        symm__json_write(out, ",\"root\":%d", op->root);
    if (put)
        symm__json_write(out, ",\"shift\":%d", op->shift);
    if (op->site)
        symm__json_write(out, ",\"site\":%s", op->site);
    if (put)
        symm__json_write(out, ",\"src\":%s", in);
    symm__json_write(out, ",\"stream\":%s", program->streams[op->stream]);
    symm__json_put(out, op->up_to ? ",\"up_to\":true}" : "}");
}

static void put_program(struct json_out *out, const symm_program *program)
{
    symm__json_put(out, "{\"buffers\":[");
    for (int i = 0; i < program->buffer_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_buffer(out, program, i);
    }
    symm__json_line(out, "],", " ");
    symm__json_put(out, "\"format\":\"symm-program/1\",");
    put_partitions(out, program);
    symm__json_write(out, ",\"loop\":%i,\"name\":%s", program->loop, program->name);
    symm__json_line(out, ",", " ");
    symm__json_put(out, "\"ops\":[");
    for (int i = 0; i < program->op_count; i++) {
        symm__json_line(out, i ? "," : "", "  ");
        put_op(out, program, &program->ops[i]);
    }
    symm__json_line(out, "],", " ");
    symm__json_put(out, "\"streams\":[");
    for (int i = 0; i < program->stream_count; i++)
        symm__json_write(out, i ? ",%s" : "%s", program->streams[i]);
    symm__json_write(out, "],\"world\":%d}", program->world);
}

static symm_status check_finished(const symm_program *program)
{
    if (program->order)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "program %s is not finished; call symm_program_finish first",
                      program->name);
}

symm_status symm_program_hash(const symm_program *program, uint64_t *hash)
{
    const struct program_private *private = (const struct program_private *)program;
    struct json_out out;
    symm_status status;

    if (!program || !hash)
        return symm__fail_null("symm_program_hash", program ? "hash" : "program");
    if (private->hashed) {
        *hash = private->hash;
        return SYMM_OK;
    }
    status = check_finished(program);
    if (status != SYMM_OK)
        return status;
    symm__json_hash_begin(&out);
    put_program(&out, program);
    *hash = out.hash;
    return SYMM_OK;
}

void symm_text_free(char *text)
{
    free(text);
}

symm_status symm_program_format(const symm_program *program, char **text,
                                size_t *length)
{
    struct json_out out = {.hashing = false};
    symm_status status;

    if (!program || !text || !length)
        return symm__fail_null("symm_program_format", !program ? "program"
                                                      : !text  ? "text"
                                                               : "length");
    status = check_finished(program);
    if (status != SYMM_OK)
        return status;
    put_program(&out, program);
    symm__json_put(&out, "\n");
    if (out.failed) {
        free(out.text);
        return symm__program_nomem(program);
    }
    *text = out.text;
    *length = out.length;
    return SYMM_OK;
}

symm_status symm_program_write(const symm_program *program, const char *path)
{
    char *text;
    size_t length;
    symm_status status;

    if (!program || !path)
        return symm__fail_null("symm_program_write", program ? "path" : "program");
    status = symm_program_format(program, &text, &length);
    return status == SYMM_OK ? symm__file_write(path, text, length) : status;
}
