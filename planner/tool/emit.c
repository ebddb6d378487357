/* SPDX-License-Identifier: MIT */
/*
 * emit.c - the command `emit`: C source that makes a program's allocations and
 * calls, for its plan.
 *
 * Refuses a plan that was made of another program, or that the checker cannot prove. The
 * source is complete in memory before anything is written; after an error there is no file.
 */
#include "tool/emit.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/svg.h"
#include "tool/symm_plan.h"

static const char usage[] =
    "usage: symm-plan emit PROGRAM.json PLAN.json --lang c [-o OUT.c]\n\n"
    "Writes C source that allocates the program's buffers by their call sites, makes "
    "its\n"
    "calls in its order, and compares what arrives with what must.\n\n"
    "      --lang LANGUAGE   c\n"
    "  -o, --output OUT.c    write it there (default: standard output)\n";

struct request {
    const char *language, *output;
};

static int wrong(const char *path, const char *text)
{
    fprintf(stderr, "symm-plan emit: %s%s%s\n", path ? path : "", path ? ": " : "",
            text);
    return PLAN_TOOL_WRONG;
}

/* ---- Names ----------------------------------------------------------------------- */

static bool is_taken(const char *text, char **names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return true;
    return false;
}

/*
 * "b_" and the name with _ for what C does not allow; a number too if it is taken. A name
 * with a number may be another's own, so numbers go on until one is free.
 */
static char *name_in_c(char prefix, const char *name, char **names, int count)
{
    const size_t room = strlen(name) + 24;
    char *text = malloc(room), *to = text;

    if (!text)
        return NULL;
    *to++ = prefix;
    *to++ = '_';
    for (; *name; name++) {
        const bool allowed = (*name & 0x80) == 0 && isalnum((unsigned char)*name);
        *to++ = allowed ? *name : '_';
    }
    *to = '\0';
    for (int number = count; is_taken(text, names, count); number++)
        snprintf(to, room - (size_t)(to - text), "__%d", number);
    return text;
}

static void free_names(char **names, int count)
{
    for (int i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

static const char *buffer_name(const symm_program *program, int i)
{
    return program->buffers[i].name;
}

static const char *stream_name(const symm_program *program, int i)
{
    return program->streams[i];
}

static const char *group_name(const symm_program *program, int i)
{
    return program->groups[i].name;
}

static char **make_names(const symm_program *program, char prefix, int count,
                         const char *(*name)(const symm_program *program, int i))
{
    char **names = calloc((size_t)count + 1, sizeof(*names));

    for (int i = 0; names && i < count; i++) {
        names[i] = name_in_c(prefix, name(program, i), names, i);
        if (names[i])
            continue;
        free_names(names, count);
        return NULL;
    }
    return names;
}

/* ---- The source ------------------------------------------------------------------ */

static bool make_text(struct emit *emit)
{
    const symm_program *p = emit->program;
    bool good = false;

    emit->buffers = make_names(p, 'b', p->buffer_count, buffer_name);
    emit->streams = make_names(p, 's', p->stream_count, stream_name);
    emit->groups = make_names(p, 'g', p->group_count, group_name);
    if (!emit->buffers || !emit->streams || !emit->groups)
        wrong(NULL, "memory is exhausted");
    else
        good = symm_plan_emit_rows(emit);
    if (good && (emit->row_count == 0 || p->buffer_count == 0)) {
        /* C has neither empty enums nor arrays of nothing. */
        fprintf(stderr,
                "symm-plan emit: %s: found no %s, allowed: a program with something to "
                "do\n",
                p->name, emit->row_count == 0 ? "ops" : "buffers");
        good = false;
    }
    if (good) {
        symm_plan_emit_tables(emit);
        symm_plan_emit_numbers(emit);
        symm_plan_emit_calls(emit);
    }
    free_names(emit->buffers, p->buffer_count);
    free_names(emit->streams, p->stream_count);
    free_names(emit->groups, p->group_count);
    free(emit->is_input);
    free(emit->rows);
    return good;
}

static int write_file(const char *path, const char *text, size_t length)
{
    FILE *file = path ? fopen(path, "we") : stdout;
    bool good;

    if (!file) {
        fprintf(stderr, "symm-plan emit: %s: cannot be created: %s\n", path,
                strerror(errno));
        return PLAN_TOOL_WRONG;
    }
    good = fwrite(text, 1, length, file) == length;
    good = (path ? fclose(file) : fflush(file)) == 0 && good;
    if (good)
        return PLAN_TOOL_DONE;
    fprintf(stderr, "symm-plan emit: %s: cannot be written: %s\n",
            path ? path : "standard output", strerror(errno));
    if (path)
        symm_plan_discard(path);
    return PLAN_TOOL_WRONG;
}

static int emit_source(const struct request *request, const symm_program *program,
                       const symm_plan *plan)
{
    struct emit emit = {.program = program, .plan = plan};
    char *text = NULL;
    size_t length = 0;
    int status = PLAN_TOOL_WRONG;

    if (symm_plan_hash(plan, &emit.plan_hash) != SYMM_OK)
        return wrong(NULL, symm_last_error());
    emit.file = open_memstream(&text, &length);
    if (!emit.file)
        return wrong(NULL, "memory is exhausted");
    const bool made = make_text(&emit);
    const bool whole = !ferror(emit.file);
    if (fclose(emit.file) != 0 || !whole)
        status = wrong(NULL, "memory is exhausted");
    else if (made)
        status = write_file(request->output, text, length);
    free(text);
    return status;
}

/* Is the plan one of this program, and safe? */
static int judge(const char *path, const symm_program *program, const symm_plan *plan)
{
    symm_plan_report report = {.size = sizeof(report)};
    uint64_t hash;

    if (symm_program_hash(program, &hash) != SYMM_OK)
        return wrong(NULL, symm_last_error());
    if (plan->program_hash != hash) {
        fprintf(stderr,
                "symm-plan emit: %s: program_hash: found %016" PRIx64
                ", allowed: %016" PRIx64 ", that of program %s\n",
                path, plan->program_hash, hash, program->name);
        return PLAN_TOOL_WRONG;
    }
    if (symm_plan_check(program, plan, &report) != SYMM_OK)
        return wrong(path, symm_last_error());
    if (report.safe)
        return PLAN_TOOL_DONE;
    fprintf(stderr, "symm-plan emit: %s: not proved: %s\n", path, report.first);
    return PLAN_TOOL_NO;
}

static int emit_files(const struct request *request, char **files)
{
    symm_program *program;
    symm_plan *plan;
    int status;

    if (!symm_plan_one_input("emit", files[0], files[1]) ||
        !symm_plan_get_program("emit", files[0], &program))
        return PLAN_TOOL_WRONG;
    if (!symm_plan_get_plan("emit", files[1], &plan)) {
        symm_program_destroy(program);
        return PLAN_TOOL_WRONG;
    }
    status = symm_program_check_run(program) == SYMM_OK
                 ? judge(files[1], program, plan)
                 : wrong(NULL, symm_last_error());
    if (status == PLAN_TOOL_DONE)
        status = emit_source(request, program, plan);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    return status;
}

int symm_plan_emit(int argc, char **argv)
{
    static const struct option options[] = {{"lang", required_argument, NULL, 'l'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct request request = {0};
    int option;

    while ((option = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        switch (option) {
        case 'l':
            request.language = optarg;
            break;
        case 'o':
            request.output = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return PLAN_TOOL_DONE;
        default:
            return PLAN_TOOL_WRONG;
        }
    }
    symm_plan_take_output(&request.output);
    if (!request.language || strcmp(request.language, "c") != 0) {
        fprintf(stderr, "symm-plan emit: --lang: found %s%s%s, allowed: c\n",
                request.language ? "'" : "",
                request.language ? request.language : "nothing",
                request.language ? "'" : "");
        return PLAN_TOOL_WRONG;
    }
    if (optind + 2 != argc)
        return wrong(NULL,
                     "allowed: exactly one program and one plan; --help lists the "
                     "options");
    return emit_files(&request, argv + optind);
}
