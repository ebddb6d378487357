/* SPDX-License-Identifier: MIT */
/*
 * emit_numbers.c - the second part of the emitted source: numbers of the types
 * that the program has, and what must be in each buffer after each op.
 *
 * The texts are formatted as this repository formats C. In them $ and a letter stand for
 * what is shorter where all calls are on all ranks, or on one stream (see meaning()).
 */
#include "tool/emit.h"

static const char *meaning(const struct emit *emit, char letter)
{
    static const struct word {
        char letter;
        const char *alone, *many;
    } teams[] = {
        {'T', "r->team", "r->teams[op->group]"},
        {'S', "WORLD", "group_size[op->group]"},
        {'P', "rank", "place_of(op->group, rank)"},
        {'K', "k", "member(op->group, rank, k)"},
        {'D', "", "int rank, "},
        {'A', "", "rank, "},
        {'R', "op->root", "member(op->group, rank, op->root)"},
        {'B', "(int)(i / op->count)", "member(op->group, rank, (int)(i / op->count))"},
    };
    static const struct word queues[] = {
        {'W', "NULL", "next_work(r, op)"},
        {'N', "NULL", "r->streams[op->stream]"},
        {'C', "{.size = sizeof(call), .site = op->site}",
         "{\n        .size = sizeof(call), .site = op->site, .stream = "
         "r->streams[op->stream]}"},
        {'X', "task->r->result", "task->r->results[task->op->stream]"},
        {'Y', "r->result", "r->results[op->stream]"},
    };

    for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++)
        if (queues[i].letter == letter)
            return emit->queues ? queues[i].many : queues[i].alone;
    for (size_t i = 0; i < sizeof(teams) / sizeof(teams[0]); i++)
        if (teams[i].letter == letter)
            return emit->teams ? teams[i].many : teams[i].alone;
    return "";
}

void symm_plan_emit_write(const struct emit *emit, const char *text)
{
    for (; *text; text++) {
        if (*text == '$')
            fputs(meaning(emit, *++text), emit->file);
        else
            fputc(*text, emit->file);
    }
}

/* ---- Numbers --------------------------------------------------------------------- */

/* clang-format off */
static const char small_floats[] =
    "/* Types of less than 32 bits, for numbers from 1 up, which is all there is here.\n"
    " * Rounds to nearest, ties to even, and not beyond `largest`. */\n"
    "static uint32_t to_small(float value, int bias, int digits, uint32_t largest)\n"
    "{\n"
    "    uint32_t bits, odd;\n"
    "\n"
    "    memcpy(&bits, &value, sizeof(bits));\n"
    "    odd = bits >> (23 - digits) & 1;\n"
    "    bits += (1U << (22 - digits)) - 1 + odd;\n"
    "    bits = (bits >> (23 - digits)) - ((uint32_t)(127 - bias) << digits);\n"
    "    return bits < largest ? bits : largest;\n"
    "}\n"
    "\n"
    "static float from_small(uint32_t bits, int bias, int digits)\n"
    "{\n"
    "    float value;\n"
    "\n"
    "    bits = (bits + ((uint32_t)(127 - bias) << digits)) << (23 - digits);\n"
    "    memcpy(&value, &bits, sizeof(value));\n"
    "    return value;\n"
    "}\n"
    "\n";
/* clang-format on */

static const struct {
    const char *name, *type, *arguments, *largest;
} elements[] = {
    {"FLOAT64", "double", NULL, NULL},
    {"FLOAT32", "float", NULL, NULL},
    {"FLOAT16", "uint16_t", "15, 10", "0x7c00"},
    {"BFLOAT16", "uint16_t", "127, 7", "0x7f80"},
    {"FLOAT8_E4M3", "uint8_t", "7, 3", "0x7e"},
    {"FLOAT8_E5M2", "uint8_t", "15, 2", "0x7b"},
    {"INT64", "int64_t", NULL, NULL},
    {"INT32", "int32_t", NULL, NULL},
    {"INT8", "int8_t", NULL, NULL},
    {"UINT64", "uint64_t", NULL, NULL},
    {"UINT32", "uint32_t", NULL, NULL},
    {"UINT8", "uint8_t", NULL, NULL},
};

/* clang-format off */
static const char known[] =
    "/* What writes write: 1, 2, 3 or 4, as every type can hold it, and different for each\n"
    " * write, rank and period. */\n"
    "static double known(int write, int rank, int period, size_t i)\n"
    "{\n"
    "    uint32_t x = (uint32_t)i * 2654435761U;\n"
    "\n"
    "    x += (uint32_t)write * 40503U + (uint32_t)rank * 30011U + (uint32_t)period;\n"
    "    x = (x ^ x >> 15) * 2246822519U;\n"
    "    return 1 + (x >> 30);\n"
    "}\n"
    "\n";
/* clang-format on */

static void write_store(const struct emit *emit)
{
    fputs("/* Element i of an array. */\n"
          "static void store(void *to, symm_dtype dtype, size_t i, double value)\n"
          "{\n"
          "    switch (dtype) {\n",
          emit->file);
    for (int d = 0; d < 12; d++) {
        if (!emit->dtypes[d])
            continue;
        fprintf(emit->file,
                "    case SYMM_%s:\n        ((%s *)to)[i] = ", elements[d].name,
                elements[d].type);
        if (elements[d].arguments)
            fprintf(emit->file, "(%s)to_small((float)value, %s, %s);\n",
                    elements[d].type, elements[d].arguments, elements[d].largest);
        else if (d < SYMM_INT64)
            fprintf(emit->file, "%svalue;\n", d == SYMM_FLOAT32 ? "(float)" : "");
        else if (d == SYMM_INT64 || d == SYMM_UINT64)
            fprintf(emit->file, "(%s)value;\n", elements[d].type);
        else
            fprintf(emit->file, "(%s)(int64_t)value;\n", elements[d].type);
        fputs("        break;\n", emit->file);
    }
    fputs("    default:\n        break;\n    }\n}\n\n", emit->file);
}

static void write_load(const struct emit *emit)
{
    fputs("static double load(const void *from, symm_dtype dtype, size_t i)\n"
          "{\n"
          "    switch (dtype) {\n",
          emit->file);
    for (int d = 0; d < 12; d++) {
        const char *type = elements[d].type;
        const bool wide = d == SYMM_INT64 || d == SYMM_UINT64;
        if (!emit->dtypes[d])
            continue;
        fprintf(emit->file, "    case SYMM_%s:\n        return ", elements[d].name);
        if (elements[d].arguments)
            fprintf(emit->file, "from_small(((const %s *)from)[i], %s);\n", type,
                    elements[d].arguments);
        else
            fprintf(emit->file, "%s((const %s *)from)[i];\n", wide ? "(double)" : "",
                    type);
    }
    fputs("    default:\n        return 0;\n    }\n}\n\n", emit->file);
}

static void write_numbers(const struct emit *emit)
{
    for (int d = 0; d < 12; d++)
        if (emit->dtypes[d] && elements[d].arguments) {
            fputs(small_floats, emit->file);
            break;
        }
    write_store(emit);
    if (emit->reads || emit->shown)
        write_load(emit);
    fputs(known, emit->file);
}

/* ---- What must arrive ------------------------------------------------------------ */

/* clang-format off */
static const char places[] =
    "/* Where the rank is among the ranks of the group, which are lists of group_size. */\n"
    "static int index_of(int group, int rank)\n"
    "{\n"
    "    int i = 0;\n"
    "\n"
    "    while (group_ranks[group][i] != rank)\n"
    "        i++;\n"
    "    return i;\n"
    "}\n"
    "\n"
    "/* Its rank in the team that is made of its list. */\n"
    "static int place_of(int group, int rank)\n"
    "{\n"
    "    return index_of(group, rank) % group_size[group];\n"
    "}\n"
    "\n";

static const char members[] =
    "/* The k-th rank of the list that the rank is in. */\n"
    "static int member(int group, int rank, int k)\n"
    "{\n"
    "    const int i = index_of(group, rank);\n"
    "\n"
    "    return group_ranks[group][i - i % group_size[group] + k];\n"
    "}\n"
    "\n";

static const char reduced_begin[] =
    "/* As the library does it: in the order of ranks, small types in float32. */\n"
    "static double reduced(const struct op *op, $Dint period, size_t i)\n"
    "{\n"
    "    const int real = op->dtype <= SYMM_FLOAT8_E5M2 && op->dtype != SYMM_FLOAT64;\n"
    "    const int size = $S;\n"
    "    double sum = 0;\n"
    "\n"
    "    for (int k = 0; k < size; k++) {\n"
    "        const int peer = $K;\n"
    "        const double x = left_by(op->from, op->in, peer, period, i);\n"
    "        if (k == 0)\n"
    "            sum = x;\n";

static const char reduced_end[] =
    "        if (real)\n"
    "            sum = (float)sum;\n"
    "    }\n";
/* clang-format on */

static void write_reduced(const struct emit *emit)
{
    const bool sums = emit->reduces[SYMM_SUM] || emit->reduces[SYMM_AVG];

    symm_plan_emit_write(emit, reduced_begin);
    if (emit->reduces[SYMM_PROD])
        fputs("        else if (op->reduce == SYMM_PROD)\n            sum *= x;\n",
              emit->file);
    if (emit->reduces[SYMM_MIN])
        fputs("        else if (op->reduce == SYMM_MIN)\n"
              "            sum = x < sum ? x : sum;\n",
              emit->file);
    if (emit->reduces[SYMM_MAX])
        fputs("        else if (op->reduce == SYMM_MAX)\n"
              "            sum = x > sum ? x : sum;\n",
              emit->file);
    if (sums)
        fputs("        else\n            sum += x;\n", emit->file);
    fputs(reduced_end, emit->file);
    if (emit->reduces[SYMM_AVG])
        symm_plan_emit_write(
            emit, "    if (op->reduce == SYMM_AVG)\n"
                  "        sum = real ? (float)sum / (float)size : sum / size;\n");
    fputs("    return sum;\n}\n\n", emit->file);
}

/* clang-format off */
static const char left_by_begin[] =
    "/* Element i of a buffer on a rank, as an op has left it; that follows from what other\n"
    " * ops have left before. */\n"
    "static double left_by(int index, int buffer, int rank, int period, size_t i)\n"
    "{\n"
    "    const int before = index < 0 && index != NEVER;\n"
    "    const struct op *op;\n"
    "    double value = 0;\n"
    "    uint64_t element;\n"
    "\n"
    "    if (index == NEVER || (before && period == 0))\n"
    "        return known(OPS + buffer, rank, 0, i);\n"
    "    if (before) {\n"
    "        index += OPS;\n"
    "        period--;\n"
    "    }\n"
    "    op = &ops[index];\n";

static const char left_by_end[] =
    "    default:\n"
    "        break;\n"
    "    }\n"
    "    store(&element, op->dtype, 0, value);\n"
    "    return load(&element, op->dtype, 0);\n"
    "}\n"
    "\n";
/* clang-format on */

static const struct {
    symm_program_kind kind;
    const char *text;
} givers[] = {
    {SYMM_PROGRAM_WRITE, "    case WRITE:\n"
                         "        return known(index, rank, period, i);\n"},
    {SYMM_PROGRAM_ALL_REDUCE, "    case ALL_REDUCE:\n"
                              "        value = reduced(op, $Aperiod, i);\n"
                              "        break;\n"},
    {SYMM_PROGRAM_REDUCE_SCATTER, "    case REDUCE_SCATTER:\n"
                                  "        i += (size_t)$P * op->count;\n"
                                  "        value = reduced(op, $Aperiod, i);\n"
                                  "        break;\n"},
    {SYMM_PROGRAM_ALL_GATHER,
     "    case ALL_GATHER:\n"
     "        rank = $B;\n"
     "        value = left_by(op->from, op->in, rank, period, i % op->count);\n"
     "        break;\n"},
    {SYMM_PROGRAM_BROADCAST,
     "    case BROADCAST:\n"
     "        value = left_by(op->from, op->in, $R, period, i);\n"
     "        break;\n"},
    {SYMM_PROGRAM_ALL_TO_ALL,
     "    case ALL_TO_ALL: {\n"
     "        const size_t place = (size_t)$P;\n"
     "        const size_t mine = place * op->count + i % op->count;\n"
     "        rank = $B;\n"
     "        value = left_by(op->from, op->in, rank, period, mine);\n"
     "        break;\n"
     "    }\n"},
    {SYMM_PROGRAM_PUT, "    case PUT:\n"
                       "        rank = sender(op, rank);\n"
                       "        return left_by(op->from, op->in, rank, period, i);\n"},
};

/* Elements that an op gives to each rank. */
static void write_given(const struct emit *emit)
{
    const bool gathers = emit->kinds[SYMM_PROGRAM_ALL_GATHER];
    const bool turns = emit->kinds[SYMM_PROGRAM_ALL_TO_ALL];

    fputs("/* Elements that the op gives to each rank. */\n"
          "static size_t given_by(const struct op *op)\n"
          "{\n",
          emit->file);
    if (gathers || turns) {
        fprintf(emit->file, "    if (%s%s%s)\n",
                gathers ? "op->kind == ALL_GATHER" : "", gathers && turns ? " || " : "",
                turns ? "op->kind == ALL_TO_ALL" : "");
        symm_plan_emit_write(emit, "        return op->count * (size_t)$S;\n");
    }
    fputs("    return op->count;\n}\n\n", emit->file);
}

void symm_plan_emit_numbers(const struct emit *emit)
{
    const bool reduces = emit->kinds[SYMM_PROGRAM_ALL_REDUCE] ||
                         emit->kinds[SYMM_PROGRAM_REDUCE_SCATTER];

    if (emit->kinds[SYMM_PROGRAM_WRITE] || emit->inputs || emit->reads || emit->shown)
        write_numbers(emit);
    if (emit->teams)
        fputs(places, emit->file);
    if (!emit->reads && !emit->shown)
        return;
    if (emit->teams)
        fputs(members, emit->file);
    if (emit->kinds[SYMM_PROGRAM_PUT])
        symm_plan_emit_write(
            emit, emit->teams
                      ? "/* Who puts to the rank. */\n"
                        "static int sender(const struct op *op, int rank)\n"
                        "{\n"
                        "    const int size = $S;\n"
                        "    const int place = ($P - op->shift + size) % size;\n"
                        "\n"
                        "    return member(op->group, rank, place);\n"
                        "}\n\n"
                      : "/* Who puts to the rank. */\n"
                        "static int sender(const struct op *op, int rank)\n"
                        "{\n"
                        "    return (rank - op->shift + WORLD) % WORLD;\n"
                        "}\n\n");
    if (emit->parts)
        write_given(emit);
    if (reduces) {
        fputs("static double left_by(int index, int buffer, int rank, int period, "
              "size_t i);\n\n",
              emit->file);
        write_reduced(emit);
    }
    fputs(left_by_begin, emit->file);
    if (emit->parts)
        fputs("    if (i >= given_by(op))\n"
              "        return left_by(op->below, buffer, rank, period, i);\n",
              emit->file);
    fputs("    switch (op->kind) {\n", emit->file);
    for (size_t k = 0; k < sizeof(givers) / sizeof(givers[0]); k++)
        if (emit->kinds[givers[k].kind])
            symm_plan_emit_write(emit, givers[k].text);
    fputs(left_by_end, emit->file);
}
