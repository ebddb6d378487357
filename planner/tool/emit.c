/* SPDX-License-Identifier: MIT */
/*
 * emit.c - the command `emit`: a C header of what a plan decides, for code generators.
 *
 * The header holds constants (hashes, offsets, algorithm and barriers of each op) and one
 * function that sets a rank up from them: it loads the plan, allocates the buffers and
 * splits the teams. Guarantees: the header compiles as C11 without warnings, whatever the
 * names in the program are, and two headers can be included together. Refuses a plan that
 * was made of another program, or that the checker cannot prove. The text is complete in
 * memory before anything is written. After an error there is no file.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/symm_plan.h"

static const char usage[] =
    "usage: symm-plan emit PROGRAM.json PLAN.json --lang c [-o OUT.h]\n\n"
    "Writes a C header of the plan: constants, and a function that loads the plan, "
    "allocates\n"
    "the program's buffers and makes the teams of its groups.\n\n"
    "      --lang LANGUAGE   c\n"
    "  -o, --output OUT.h    write it there (default: standard output)\n";

struct emit {
    FILE *file;
    const symm_program *program;
    const symm_plan *plan;
    uint64_t run_hash, plan_hash;
    bool failed; /* memory is exhausted */
};

static int wrong(const char *path, const char *text)
{
    fprintf(stderr, "symm-plan emit: %s%s%s\n", path ? path : "", path ? ": " : "",
            text);
    return PLAN_TOOL_WRONG;
}

/* ---- Names ----------------------------------------------------------------------- */

static char in_c(char character)
{
    const bool allowed = (character & 0x80) == 0 && isalnum((unsigned char)character);

    return allowed ? character : '_';
}

/* Formatted text, in which $ becomes `plan_PROGRAM`, and @ the same in capitals. */
__attribute__((format(printf, 2, 3))) static void put(struct emit *emit,
                                                      const char *format, ...)
{
    char *text;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    emit->failed |= !text;
    for (const char *at = text; at && *at; at++) {
        if (*at != '$' && *at != '@') {
            fputc(*at, emit->file);
            continue;
        }
        fputs(*at == '$' ? "plan_" : "PLAN_", emit->file);
        for (const char *name = emit->program->name; *name; name++)
            fputc(*at == '$' ? in_c(*name) : toupper(in_c(*name)), emit->file);
    }
    free(text);
}

/*
 * `start` and a name. A name that is no part of an identifier of C, or has two _ in a row,
 * ends in two _ and its index, so no two names of one kind become the same.
 */
static void put_name(struct emit *emit, const char *start, const char *name, int index)
{
    bool kept = !strstr(name, "__");

    put(emit, "%s", start);
    for (; *name; name++) {
        kept = kept && (*name == '_' || in_c(*name) != '_');
        fputc(in_c(*name), emit->file);
    }
    if (!kept)
        put(emit, "__%d", index);
}

/* Any bytes as a string of C. */
static void put_string(struct emit *emit, const char *text)
{
    fputc('"', emit->file);
    for (; *text; text++) {
        if (*text >= 0x20 && *text < 0x7f && !strchr("\"\\?", *text))
            fputc(*text, emit->file);
        else
            fprintf(emit->file, "\\%03o", (unsigned char)*text);
    }
    fputc('"', emit->file);
}

/* ---- Constants ------------------------------------------------------------------- */

static void put_constants(struct emit *emit)
{
    const symm_plan *plan = emit->plan;

    put(emit,
        "/* Made by symm-plan emit %s. Do not edit: make it again. */\n"
        "#ifndef @_H\n#define @_H\n\n#include <symm/plan.h>\n\n",
        symm_version());
    put(emit, "#define @_PROGRAM_HASH UINT64_C(0x%016" PRIx64 ")\n",
        plan->program_hash);
    put(emit, "#define @_RUN_HASH UINT64_C(0x%016" PRIx64 ")\n", emit->run_hash);
    put(emit, "#define @_PLAN_HASH UINT64_C(0x%016" PRIx64 ")\n", emit->plan_hash);
    put(emit, "#define @_WORLD %d\n", plan->world);
    put(emit, "#define @_LOOP %d\n", plan->loop);
    put(emit, "#define @_GROUPS %d\n", emit->program->partition_count);
    put(emit, "#define @_BUFFERS %d\n", plan->buffer_count);
    put(emit, "#define @_OPS %d\n", plan->op_count);
    put(emit, "#define @_ARENA_BYTES ((size_t)%zu)\n\n", plan->arena_bytes);
    put(emit, "/* Offsets in the arena, bytes: the same on every rank. */\n");
    for (int b = 0; b < plan->buffer_count; b++) {
        put_name(emit, "#define @_OFFSET_", plan->buffers[b].name, b);
        put(emit, " ((size_t)%zu)\n", plan->buffers[b].offset);
    }
}

static void put_index(struct emit *emit, const char *start, const char *name, int index)
{
    put_name(emit, start, name, index);
    put(emit, " = %d,\n", index);
}

/* A program has one group at least, so the enum is not empty. */
static void put_indices(struct emit *emit)
{
    put(emit, "\n/* Indices. */\nenum {\n");
    for (int g = 0; g < emit->program->partition_count; g++)
        put_index(emit, "    $_group_", emit->program->partitions[g].name, g);
    for (int s = 0; s < emit->program->stream_count; s++)
        put_index(emit, "    $_stream_", emit->program->streams[s], s);
    for (int b = 0; b < emit->plan->buffer_count; b++)
        put_index(emit, "    $_buffer_", emit->plan->buffers[b].name, b);
    for (int i = 0; i < emit->plan->op_count; i++)
        put_index(emit, "    $_op_", emit->plan->ops[i].site, i);
    put(emit, "};\n");
}

/* ---- Tables ---------------------------------------------------------------------- */

/* A list and its count, by the names of their members; nothing if it is empty. */
static void put_list(struct emit *emit, const char *what, const int *list,
                     const char *what_count, int count)
{
    for (int i = 0; i < count; i++)
        if (i)
            put(emit, ", %d", list[i]);
        else
            put(emit, ", .%s = (const int[]){%d", what, list[i]);
    if (count)
        put(emit, "}, .%s = %d", what_count, count);
}

static void put_buffers(struct emit *emit)
{
    put(emit, "\n/* By $_buffer_NAME. */\n"
              "static const symm_plan_buffer $_buffers[] = {\n");
    for (int b = 0; b < emit->plan->buffer_count; b++) {
        const symm_plan_buffer *buffer = &emit->plan->buffers[b];

        put(emit, "    {.name = ");
        put_string(emit, buffer->name);
        put(emit, ", .alloc_id = UINT64_C(%" PRIu64 ")", buffer->alloc_id);
        put_name(emit, ", .offset = @_OFFSET_", buffer->name, b);
        put(emit, ", .bytes = %zu, .turn = %d", buffer->bytes, buffer->turn);
        put_list(emit, "after", buffer->after, "after_count", buffer->after_count);
        put(emit, "},\n");
    }
    put(emit, "    {.name = NULL}};\n");
}

static void put_ops(struct emit *emit)
{
    static const char *const algorithms[] = {
#define ALGORITHM(id, value, name) [value] = "SYMM_ALGORITHM_" #id,
        SYMM_ALGORITHM_MAP(ALGORITHM)
#undef ALGORITHM
            [SYMM_ALGORITHM_PUT] = "SYMM_ALGORITHM_PUT"};

    put(emit, "\n/* By $_op_SITE: collectives and puts. */\n"
              "static const symm_plan_op $_ops[] = {\n");
    for (int i = 0; i < emit->plan->op_count; i++) {
        const symm_plan_op *op = &emit->plan->ops[i];

        put(emit, "    {.site = ");
        put_string(emit, op->site);
        put(emit, ", .algorithm = %s, .channel = %d", algorithms[op->algorithm],
            op->channel);
        put(emit, ", .entry_barrier = %s, .exit_barrier = %s",
            op->entry_barrier ? "true" : "false", op->exit_barrier ? "true" : "false");
        put(emit, op->norm ? ", .norm = true" : "");
        put_list(emit, "frees", op->frees, "free_count", op->free_count);
        put(emit, ", .up_to = %zu},\n", op->up_to);
    }
    put(emit, "    {.site = NULL}};\n");
}

static void put_dims(struct emit *emit, const int64_t *list, int count)
{
    for (int i = 0; i < count; i++)
        put(emit, "%s%" PRId64, i ? ", " : ", {", list[i]);
    put(emit, count ? "}" : ", {0}");
}

/* What symm_empty_strided_p2p takes for each buffer. */
static void put_layouts(struct emit *emit)
{
    static const char *const dtypes[] = {
#define DTYPE(name, value, json, bytes) [value] = "SYMM_" #name,
        SYMM_DTYPE_MAP(DTYPE)
#undef DTYPE
    };
    const symm_program *program = emit->program;
    int most = 1;

    for (int b = 0; b < program->buffer_count; b++)
        if (program->buffers[b].ndim > most)
            most = program->buffers[b].ndim;
    put(emit,
        "\nstatic const struct {\n    symm_dtype dtype;\n    int ndim;\n"
        "    int64_t shape[%d], stride[%d];\n} $_layouts[] = {\n",
        most, most);
    for (int b = 0; b < program->buffer_count; b++) {
        const symm_program_buffer *buffer = &program->buffers[b];

        put(emit, "    {%s, %d", dtypes[buffer->dtype], buffer->ndim);
        put_dims(emit, buffer->shape, buffer->ndim);
        put_dims(emit, buffer->stride, buffer->ndim);
        put(emit, "},\n");
    }
    put(emit, "    {SYMM_UINT8, 0, {0}, {0}}};\n");
}

/* By group and rank: the rank's list, and its place there. */
static void put_places(struct emit *emit)
{
    const symm_program *program = emit->program;

    put(emit, "\nstatic const int $_places[@_GROUPS][@_WORLD][2] = {\n");
    for (int g = 0; g < program->partition_count; g++) {
        const symm_program_partition *partition = &program->partitions[g];

        for (int r = 0; r < program->world; r++) {
            const int at = symm_program_partition_find(partition, r);
            put(emit, "%s{%d, %d}", r ? ", " : "    {", at / partition->length,
                at % partition->length);
        }
        put(emit, "},\n");
    }
    put(emit, "};\n");
}

/* ---- Functions ------------------------------------------------------------------- */

static const char functions_text[] =
    "\n"
    "/* What a rank has of the program. teams[0] is the team that it was set up for. "
    "*/\n"
    "struct $ {\n"
    "    symm_team *teams[@_GROUPS];          /* by $_group_NAME */\n"
    "    symm_buffer *buffers[@_BUFFERS + 1]; /* by $_buffer_NAME */\n"
    "};\n"
    "\n"
    "/* Gives back what $_set_up made. The team keeps the plan. */\n"
    "static inline void $_tear_down(struct $ *made)\n"
    "{\n"
    "    for (int b = 0; b < @_BUFFERS; b++)\n"
    "        symm_buffer_release(made->buffers[b]);\n"
    "    for (int g = @_GROUPS - 1; g > 0; g--)\n"
    "        if (made->teams[g])\n"
    "            symm_team_destroy(made->teams[g]);\n"
    "    *made = (struct $){.teams = {NULL}};\n"
    "}\n"
    "\n"
    "/*\n"
    " * Collective over the team, whose ranks are the program's: loads the plan, "
    "allocates\n"
    " * the buffers by their alloc_ids and splits a team for each group. Once in the "
    "life of\n"
    " * the team, before any of these alloc_ids is used. On failure *made holds "
    "nothing and\n"
    " * symm_last_error() says why.\n"
    " */\n"
    "static inline symm_status $_set_up(symm_team *team, struct $ *made)\n"
    "{\n"
    "    const symm_plan plan = {\n"
    "        .size = sizeof(plan),\n"
    "        .program = $_program,\n"
    "        .program_hash = @_PROGRAM_HASH,\n"
    "        .run_hash = @_RUN_HASH,\n"
    "        .has_run_hash = true,\n"
    "        .world = @_WORLD,\n"
    "        .loop = @_LOOP,\n"
    "        .arena_bytes = @_ARENA_BYTES,\n"
    "        .buffers = (void *)(uintptr_t)$_buffers,\n"
    "        .buffer_count = @_BUFFERS,\n"
    "        .ops = (void *)(uintptr_t)$_ops,\n"
    "        .op_count = @_OPS,\n"
    "    };\n"
    "    const int rank = symm_team_rank(team);\n"
    "    symm_status status = symm_team_load_plan(team, &plan);\n"
    "\n"
    "    *made = (struct $){.teams = {team}};\n"
    "    for (int b = 0; b < @_BUFFERS && status == SYMM_OK; b++)\n"
    "        status = symm_empty_strided_p2p(team, $_layouts[b].ndim, "
    "$_layouts[b].shape,\n"
    "                                        $_layouts[b].stride, $_layouts[b].dtype,\n"
    "                                        $_buffers[b].alloc_id, "
    "&made->buffers[b]);\n"
    "    if (status == SYMM_OK)\n"
    "        status = symm_rendezvous(team);\n"
    "    for (int g = 1; g < @_GROUPS && status == SYMM_OK; g++)\n"
    "        status = symm_team_split(team, $_places[g][rank][0], "
    "$_places[g][rank][1],\n"
    "                                 &made->teams[g]);\n"
    "    if (status != SYMM_OK)\n"
    "        $_tear_down(made);\n"
    "    return status;\n"
    "}\n"
    "\n"
    "#endif\n";

static void put_header(struct emit *emit)
{
    put_constants(emit);
    put_indices(emit);
    put(emit, "\nstatic const char $_program[] = ");
    put_string(emit, emit->program->name);
    put(emit, ";\n");
    put_buffers(emit);
    put_ops(emit);
    put_layouts(emit);
    put_places(emit);
    put(emit, "%s", functions_text);
}

/* ---- The command ----------------------------------------------------------------- */

static int emit_header(const char *output, const symm_program *program,
                       const symm_plan *plan)
{
    struct emit emit = {.program = program, .plan = plan};
    char *text = NULL;
    size_t length = 0;
    bool good;

    if (symm_plan_hash(plan, &emit.plan_hash) != SYMM_OK ||
        symm_plan_run_hash(plan, &emit.run_hash) != SYMM_OK)
        return wrong(NULL, symm_last_error());
    emit.file = open_memstream(&text, &length);
    if (!emit.file)
        return wrong(NULL, "memory is exhausted");
    put_header(&emit);
    good = !ferror(emit.file) && !emit.failed;
    if (fclose(emit.file) != 0 || !good)
        wrong(NULL, "memory is exhausted");
    else
        good = symm_plan_put_text(output, text, length);
    free(text);
    return good ? PLAN_TOOL_DONE : PLAN_TOOL_WRONG;
}

/* Whether the plan belongs to this program and is proved. */
static int check_plan(const char *path, const symm_program *program,
                      const symm_plan *plan)
{
    symm_plan_report report = {.size = sizeof(report)};

    if (symm_plan_check(program, plan, &report) != SYMM_OK)
        return wrong(path, symm_last_error());
    if (report.safe)
        return PLAN_TOOL_DONE;
    fprintf(stderr, "symm-plan emit: %s: not proved: %s\n", path, report.first);
    return PLAN_TOOL_NO;
}

static int emit_files(const char *output, char **files)
{
    symm_program *program = NULL;
    symm_plan *plan = NULL;
    int status = PLAN_TOOL_WRONG;

    if (symm_plan_one_input("emit", files[0], files[1]) &&
        symm_plan_get_program("emit", files[0], &program) &&
        symm_plan_get_plan("emit", files[1], &plan))
        status = check_plan(files[1], program, plan);
    if (status == PLAN_TOOL_DONE)
        status = emit_header(output, program, plan);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    return status;
}

int symm_plan_emit(int argc, char **argv)
{
    const char *language = NULL, *output = NULL;
    bool help = false;
    struct args_option options[] = {
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("lang", 0, ARGS_CHOICE, &language, .words = "c"),
        ARGS_ROW("output", 'o', ARGS_TEXT, &output),
    };
    int status, word = symm_plan_read_options(argc, argv, options,
                                              sizeof(options) / sizeof(options[0]),
                                              usage, &status);

    if (word < 0)
        return status;
    symm_plan_take_output(&output);
    if (!language)
        return wrong("--lang", "found nothing, allowed: c");
    if (word + 2 != argc)
        return wrong(NULL,
                     "allowed: exactly one program and one plan; --help lists the "
                     "options");
    return emit_files(output, argv + word);
}
