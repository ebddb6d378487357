/* SPDX-License-Identifier: MIT */
/*
 * emit_tables.c - the first part of the emitted source: what it is made from, and
 * the program as tables of buffers, groups and ops.
 *
 * Names of the program are escaped in strings and comments, so that no name can end them.
 */
#include "tool/emit.h"

#include <inttypes.h>

static const char *const kind_names[SYMM_PROGRAM_KINDS] = {
#define KIND_NAME(id, value, name) [value] = #id,
    SYMM_PROGRAM_KIND_MAP(KIND_NAME)
#undef KIND_NAME
};

/* What names of the program become in C's strings: anything, escaped. */
static void write_string(const struct emit *emit, const char *text)
{
    fputc('"', emit->file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(emit->file, "\\%c", *text);
        else if (*text >= 0x20 && *text < 0x7f && *text != '?')
            fputc(*text, emit->file);
        else
            fprintf(emit->file, "\\%03o", (unsigned char)*text);
    }
    fputc('"', emit->file);
}

/* The same in a comment: printable, and not its end. */
static void write_comment(const struct emit *emit, const char *text)
{
    for (; *text; text++)
        fputc(*text >= 0x20 && *text < 0x7f && *text != '/' ? *text : '_', emit->file);
}

static const char head_text[] =
    " *\n"
    " * Allocates each buffer by its call site, makes the program's calls in its\n"
    " * order, and compares what arrives with what must. Writes and reads of the\n"
    " * program stand for kernels: here the processor fills buffers with known "
    "numbers\n"
    " * and looks at them, so the backend is the host's. With the plan's path as\n"
    " * argument buffers lie where the plan puts them; without it each has memory of\n"
    " * its own, and collectives keep both of their barriers.\n"
    " *\n";

static void write_head(const struct emit *emit)
{
    FILE *file = emit->file;
    const symm_plan *plan = emit->plan;

    fprintf(file, "/*\n * ");
    write_comment(emit, emit->program->name);
    fprintf(file, ", made by symm-plan emit %s. Do not edit: make it again.\n",
            symm_version());
    fprintf(file, " *   program  hash %016" PRIx64 ", %d ranks\n", plan->program_hash,
            plan->world);
    fprintf(file, " *   plan     hash %016" PRIx64 ", arena of %zu bytes\n",
            emit->plan_hash, plan->arena_bytes);
    fputs(head_text, file);
    fprintf(file,
            " *   cc -o prog THIS.c $(pkg-config --cflags --libs symm)\n"
            " *   symmrun -n %d -- ./prog [PLAN.json]\n"
            " *\n",
            plan->world);
    if (emit->unchecked)
        fprintf(
            file,
            " * Not compared: %d results of bytes of another type, or of a long chain\n"
            " * of reductions.\n",
            emit->unchecked);
    fputs(" * Exit status: 0 all is right, 1 a result is wrong or a call has failed,\n"
          " * 2 wrong usage.\n"
          " */\n",
          file);
    fputs("#include <limits.h>\n#include <stdint.h>\n#include <stdio.h>\n"
          "#include <string.h>\n\n#include <symm/symm.h>\n\n",
          file);
}

static void write_kinds(const struct emit *emit)
{
    int count = 0;

    fputs("enum kind {", emit->file);
    for (int k = 0; k < SYMM_PROGRAM_KINDS; k++)
        if (emit->kinds[k])
            fprintf(emit->file, "%s%s,", count++ % 6 ? " " : "\n    ", kind_names[k]);
    fputs("\n};\n", emit->file);
}

static void write_names(const struct emit *emit, const char *last, char **names,
                        int count)
{
    fputs("enum {", emit->file);
    for (int i = 0; i < count; i++)
        fprintf(emit->file, "%s%s,", i % 4 ? " " : "\n    ", names[i]);
    fprintf(emit->file, "\n    %s\n};\n", last);
}

static void write_list(const struct emit *emit, const int64_t *list, int count)
{
    fputs("{", emit->file);
    for (int i = 0; i < count || i == 0; i++)
        fprintf(emit->file, "%s%" PRId64, i ? ", " : "", i < count ? list[i] : 0);
    fputs("}", emit->file);
}

static int most_dims(const symm_program *program)
{
    int most = 1;

    for (int b = 0; b < program->buffer_count; b++)
        if (program->buffers[b].dims > most)
            most = program->buffers[b].dims;
    return most;
}

static const char *dtype_word(symm_dtype dtype)
{
    static const char *const words[] = {
#define WORD(name, value, json, bytes) [value] = "SYMM_" #name,
        SYMM_DTYPE_MAP(WORD)
#undef WORD
    };

    return words[dtype];
}

static void write_buffers(const struct emit *emit)
{
    const symm_program *program = emit->program;
    const int dims = most_dims(program);

    fprintf(emit->file,
            "/* What each call site asks for; alloc_ids are those of the plan. */\n"
            "static const struct buffer {\n"
            "    uint64_t alloc_id;\n"
            "    symm_dtype dtype;\n"
            "    int dims;\n"
            "    int64_t shape[%d], stride[%d];\n"
            "%s"
            "} buffers[BUFFERS] = {\n",
            dims, dims,
            emit->inputs ? "    int input; /* its first contents are used */\n" : "");
    for (int b = 0; b < program->buffer_count; b++) {
        const symm_program_buffer *buffer = &program->buffers[b];
        const int64_t bytes = (int64_t)buffer->bytes, one = 1;
        fprintf(emit->file, "    [%s] = {%" PRIu64 ", %s, %d, ", emit->buffers[b],
                emit->plan->buffers[b].alloc_id, dtype_word(buffer->dtype),
                buffer->raw ? 1 : buffer->dims);
        write_list(emit, buffer->raw ? &bytes : buffer->shape,
                   buffer->raw ? 1 : buffer->dims);
        fputs(", ", emit->file);
        write_list(emit, buffer->raw ? &one : buffer->stride,
                   buffer->raw ? 1 : buffer->dims);
        fputs(emit->is_input[b] ? ", .input = 1},\n" : "},\n", emit->file);
    }
    fputs("};\n\n", emit->file);
}

static void write_groups(const struct emit *emit)
{
    const symm_program *program = emit->program;

    fputs(
        "/* Each group parts the ranks into lists of one size, one behind another. */\n"
        "static const int group_size[GROUPS] = {",
        emit->file);
    for (int g = 0; g < program->group_count; g++)
        fprintf(emit->file, "%s%d", g ? ", " : "", program->groups[g].length);
    fputs("};\nstatic const int group_ranks[GROUPS][WORLD] = {\n", emit->file);
    for (int g = 0; g < program->group_count; g++) {
        fprintf(emit->file, "    [%s] = {", emit->groups[g]);
        for (int r = 0; r < program->world; r++)
            fprintf(emit->file, "%s%d", r ? ", " : "", program->groups[g].ranks[r]);
        fputs("},\n", emit->file);
    }
    fputs("};\n\n", emit->file);
}

static const char *reduce_word(symm_op reduce)
{
    static const char *const words[] = {
#define WORD(name, value, json) [value] = "SYMM_" #name,
        SYMM_OP_MAP(WORD)
#undef WORD
    };

    return words[reduce];
}

static void write_source(const struct emit *emit, const char *field, int row)
{
    if (row == EMIT_NEVER)
        fprintf(emit->file, ".%s = NEVER", field);
    else
        fprintf(emit->file, ".%s = %d", field, row);
}

static void write_call(const struct emit *emit, const struct emit_row *row)
{
    const symm_program_op *op = row->op;

    fputs(", .site = ", emit->file);
    write_string(emit, op->site);
    if (emit->teams)
        fprintf(emit->file, ", .group = %s", emit->groups[op->group]);
    if (op->kind == SYMM_PROGRAM_WAIT) {
        fprintf(emit->file, ", .put = %d", row->put);
        return;
    }
    fprintf(emit->file, ",\n        .in = %s, .out = %s,", emit->buffers[row->in],
            row->out < 0 ? "PRIVATE" : emit->buffers[row->out]);
    fprintf(emit->file, " .dtype = %s, .count = %zu", dtype_word(row->dtype),
            row->count);
    fputs(",\n        ", emit->file);
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE || op->kind == SYMM_PROGRAM_REDUCE_SCATTER)
        fprintf(emit->file, ".reduce = %s, ", reduce_word(op->reduce));
    if (op->kind == SYMM_PROGRAM_BROADCAST)
        fprintf(emit->file, ".root = %d, ", op->root);
    if (op->kind == SYMM_PROGRAM_PUT)
        fprintf(emit->file, ".shift = %d, .signal = %d, ", op->shift, row->signal);
    write_source(emit, "from", row->from);
    if (row->out >= 0 && row->right > row->result) {
        fputs(", ", emit->file);
        write_source(emit, "below", row->below);
    }
}

static void write_row(const struct emit *emit, int index)
{
    const struct emit_row *row = &emit->rows[index];
    const symm_program_op *op = row->op;
    const char *next = emit->queues ? ",\n        " : ", ";

    fprintf(emit->file, "    [%d] = {%s", index, kind_names[op->kind]);
    if (emit->queues)
        fprintf(emit->file, ", .stream = %s", emit->streams[op->stream]);
    if (op->kind == SYMM_PROGRAM_DEPEND)
        fprintf(emit->file, ", .on = %s", emit->streams[op->on]);
    else if (op->kind == SYMM_PROGRAM_WRITE)
        fprintf(emit->file, "%s.out = %s, .dtype = %s, .count = %zu", next,
                emit->buffers[row->out], dtype_word(row->dtype), row->count);
    else if (op->kind == SYMM_PROGRAM_READ)
        fprintf(emit->file, "%s.in = %s, .dtype = %s", next, emit->buffers[row->in],
                dtype_word(row->dtype));
    else
        write_call(emit, row);
    if (op->kind == SYMM_PROGRAM_READ) {
        fputs(", ", emit->file);
        write_source(emit, "from", row->from);
    }
    if (row->check > 0)
        fprintf(emit->file, ", .check = %zu", row->check);
    fputs("},\n", emit->file);
}

static void write_op_struct(const struct emit *emit)
{
    const bool *kinds = emit->kinds;
    FILE *file = emit->file;

    fputs(
        "/*\n"
        " * The ops in the order in which this program makes them. `from` is the op\n"
        " * whose result is in `in`; below zero: OPS must be added, and it was in the\n"
        " * period before.\n"
        " */\n"
        "static const struct op {\n"
        "    enum kind kind;\n",
        file);
    if (emit->queues)
        fputs(
            "    int stream, on; /* a depend waits for what is on the stream `on` */\n",
            file);
    fputs("    const char *site;\n", file);
    fprintf(file, "    int %sin, out;\n", emit->teams ? "group, " : "");
    fputs("    symm_dtype dtype;\n"
          "    size_t count; /* elements, as the call wants them */\n",
          file);
    if (kinds[SYMM_PROGRAM_ALL_REDUCE] || kinds[SYMM_PROGRAM_REDUCE_SCATTER])
        fputs("    symm_op reduce;\n", file);
    if (kinds[SYMM_PROGRAM_BROADCAST])
        fputs("    int root;\n", file);
    if (kinds[SYMM_PROGRAM_PUT])
        fputs("    int shift, signal; /* a put goes so many places on */\n", file);
    if (kinds[SYMM_PROGRAM_WAIT])
        fputs("    int put; /* a wait waits for that op's signal */\n", file);
    fputs("    int from;\n", file);
    if (emit->parts)
        fputs("    int below; /* whose elements it leaves behind those that it gives "
              "*/\n",
              file);
    fputs("    size_t check; /* elements to compare */\n} ops[OPS] = {\n", file);
}

static void write_ops(const struct emit *emit)
{
    write_op_struct(emit);
    for (int i = 0; i < emit->row_count; i++)
        write_row(emit, i);
    fputs("};\n/* clang-format on */\n\n", emit->file);
}

static size_t largest_result(const struct emit *emit)
{
    size_t most = 1;

    for (int i = 0; i < emit->row_count; i++) {
        const struct emit_row *row = &emit->rows[i];
        const size_t bytes = row->result * symm_dtype_size(row->dtype);
        if (row->out < 0 && bytes > most)
            most = bytes;
    }
    return most;
}

void symm_plan_emit_tables(const struct emit *emit)
{
    const symm_program *program = emit->program;

    write_head(emit);
    fputs("/* clang-format off */\nstatic const char program[] = ", emit->file);
    write_string(emit, program->name);
    fputs(";\n", emit->file);
    fprintf(emit->file,
            "enum { WORLD = %d, PERIODS = %d, OPS = %d, PRIVATE = -1, NEVER = INT_MIN "
            "};\n",
            program->world, emit->periods, emit->row_count);
    if (emit->results)
        fprintf(emit->file, "#define LARGEST_RESULT ((size_t)%zu) /* bytes */\n",
                largest_result(emit));
    write_kinds(emit);
    write_names(emit, "BUFFERS", emit->buffers, program->buffer_count);
    if (emit->queues)
        write_names(emit, "STREAMS", emit->streams, program->stream_count);
    if (emit->teams)
        write_names(emit, "GROUPS", emit->groups, program->group_count);
    fputc('\n', emit->file);
    if (emit->teams)
        write_groups(emit);
    write_buffers(emit);
    write_ops(emit);
}
