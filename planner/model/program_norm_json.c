/* SPDX-License-Identifier: MIT */
/*
 * program_norm_json.c - see program_norm_json.h. What an op computes but does not touch (eps,
 * weight_offset) is no part of a program.
 */
#include "model/program_norm_json.h"

#include <string.h>

#include "model/program_private.h"

/* The member of the op's `norm`, or NULL; a complaint about it can follow. */
static const json_t *member(struct json_members *at, const json_t *norm,
                            const char *name)
{
    return symm__json_at(&at->json, norm, "ops[%zu].norm.%s", at->index, name);
}

static void read_quant(struct json_members *at, const json_t *norm,
                       symm_norm_quant *quant)
{
    const json_t *value = member(at, norm, "quant");

    for (int q = 0; q < SYMM_NORM_QUANT_COUNT && value; q++) {
        *quant = (symm_norm_quant)q;
        if (json_is_string(value) &&
            strcmp(json_string_value(value), symm__norm_quant_name(*quant)) == 0)
            return;
    }
    if (value)
        symm__member_refuse(at, value, "none tensor row group group_column");
}

static void read_dtype(struct json_members *at, const json_t *norm, symm_dtype *dtype)
{
    const json_t *value = member(at, norm, "dtype");

    if (value &&
        (!json_is_string(value) || symm_dtype_parse(json_string_value(value), dtype)))
        symm__member_refuse(at, value, "bfloat16 float16 float32");
}

/* A buffer's name, or true: memory that is no buffer of the program. */
static void read_array(struct json_members *at, const symm_program *program,
                       const json_t *norm, const char *name, symm_program_array *array)
{
    const json_t *value = member(at, norm, name);

    *array = (symm_program_array){.given = value != NULL, .buffer = -1};
    if (!value || json_is_true(value))
        return;
    if (json_is_string(value))
        array->buffer = symm__program_buffer(program, json_string_value(value));
    if (array->buffer < 0)
        symm__member_refuse(at, value, "the name of a buffer, or true");
}

static void read_arrays(struct json_members *at, const symm_program *program,
                        const json_t *norm, symm_program_norm *made)
{
    const struct {
        const char *name;
        symm_program_array *array;
    } arrays[NORM_ARRAYS] = {
        {"bias", &made->bias},         {"residual_in", &made->residual_in},
        {"weight", &made->weight},     {"sum_out", &made->sum_out},
        {"norm_out", &made->norm_out}, {"residual_out", &made->residual_out},
        {"scale", &made->scale},       {"quant_out", &made->quant_out}};

    for (int i = 0; i < NORM_ARRAYS; i++)
        read_array(at, program, norm, arrays[i].name, arrays[i].array);
}

static void read_members(struct json_members *at, const symm_program *program,
                         const json_t *norm, symm_program_norm *made)
{
    int64_t hidden = 0;
    const json_t *value = member(at, norm, "hidden");

    if (at->status == SYMM_OK)
        at->status =
            symm__json_integer(&at->json, value, 1, SYMM_NORM_MAX_HIDDEN, &hidden);
    made->hidden = (size_t)hidden;
    read_quant(at, norm, &made->quant);
    read_dtype(at, norm, &made->dtype);
    value = member(at, norm, "constant");
    made->constant = json_is_true(value);
    if (value && !json_is_boolean(value))
        symm__member_refuse(at, value, "true or false");
    read_arrays(at, program, norm, made);
}

void symm__norm_read(struct json_members *at, symm_program *program, int *index)
{
    symm_program_norm made = {.size = sizeof(made)};
    const json_t *norm;

    if (json_object_get(at->object, "out"))
        symm__member_refuse(at, symm__member(at, "out"),
                            "none: an all_reduce_norm names its outputs in `norm`");
    norm = symm__member(at, "norm");
    if (!json_is_object(norm))
        symm__member_refuse(at, norm, "an object with `hidden` and an output");
    if (at->status == SYMM_OK)
        read_members(at, program, norm, &made);
    if (at->status == SYMM_OK)
        at->status = symm_program_add_norm(program, &made, index);
}
