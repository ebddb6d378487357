/* SPDX-License-Identifier: MIT */
/*
 * costs_source.c - a program of the build: writes costs_tables.c, the cost tables that the
 * library has built in.
 *
 *     costs_source OUTPUT.c TABLE.json...
 *
 * Reads tables as symm-perf --tune writes them, one curve a line, so the build needs no JSON
 * library. Leaves out points that lie on the line between their neighbours, to 1 in 200.
 * Refuses anything else with the file and the line: exit status 2, and no OUTPUT.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "select/cost.h"

#define SLACK       0.005
#define MOST_POINTS 1024 /* of a curve */

struct word {
    const char *name, *id;
};

static const struct word kinds[] = {
#define WORD(id, value, name) {name, #id},
    SYMM_COLLECTIVE_MAP(WORD){NULL, NULL}};
static const struct word algorithms[] = {SYMM_ALGORITHM_MAP(WORD){NULL, NULL}};
#undef WORD
static const struct word data[] = {
#define WORD(id, name) {name, #id},
    SYMM_COST_DATA_MAP(WORD){NULL, NULL}};
#undef WORD

struct table {
    const char *path;
    int index, line;       /* of the table; of its file */
    FILE *points, *curves; /* the elements of the two arrays, as C */
    int point_count, curve_count;
};

struct point {
    double bytes, us;
};

_Noreturn static void refuse(const struct table *table, const char *allowed)
{
    fprintf(stderr, "costs_source: %s: line %d: found something else, allowed: %s\n",
            table->path, table->line, allowed);
    exit(2);
}

static const char *id_of(const struct table *table, const struct word *words,
                         const char *name, const char *allowed)
{
    while (words->name && strcmp(words->name, name) != 0)
        words++;
    if (!words->name)
        refuse(table, allowed);
    return words->id;
}

/* ---- Points --------------------------------------------------------------------------- */

static int read_points(const struct table *table, const char *at, struct point *points)
{
    int count = 0, used;

    for (;; at += used + 1) {
        struct point *point = &points[count];

        used = 0;
        if (count++ == MOST_POINTS ||
            sscanf(at, " [%lf, %lf]%n", &point->bytes, &point->us, &used) != 2 ||
            used == 0 || !(point->bytes >= 0) || !isfinite(point->bytes) ||
            !(point->us > 0) || !isfinite(point->us) ||
            (count > 1 && !(point->bytes > point[-1].bytes)))
            refuse(table, "at most 1024 points [bytes, us], bytes above those before "
                          "them, us above 0");
        if (at[used] != ',')
            break;
    }
    if (strncmp(at + used, "]}", 2) != 0)
        refuse(table, "\"points\" as the last member of a curve");
    return count;
}

/* Does the line from the point `first` to the point `last` say what lies between them? */
static bool is_line(const struct point *points, int first, int last)
{
    const struct point *a = &points[first], *b = &points[last];

    for (int p = first + 1; p < last; p++) {
        double us = a->us + (points[p].bytes - a->bytes) * (b->us - a->us) /
                                (b->bytes - a->bytes);

        if (fabs(us - points[p].us) > SLACK * points[p].us)
            return false;
    }
    return true;
}

static void write_points(struct table *table, const struct point *points, int count)
{
    for (int p = 0, kept = 0; p < count; p++) {
        if (p > 0 && p < count - 1 && is_line(points, kept, p + 1))
            continue;
        kept = p;
        fprintf(table->points, "    {%.0f, %.5g},\n", points[p].bytes, points[p].us);
        table->point_count++;
    }
}

/* ---- Lines of a file ------------------------------------------------------------------- */

static void read_curve(struct table *table, const char *line)
{
    char kind[24], algorithm[24], kind_of_data[24], in_place[8];
    const int first = table->point_count;
    static struct point points[MOST_POINTS];
    int ranks, used = 0;

    if (sscanf(line,
               " {\"collective\": \"%23[^\"]\", \"algorithm\": \"%23[^\"]\", \"data\": "
               "\"%23[^\"]\", \"in_place\": %7[a-z], \"ranks\": %d, \"points\": [%n",
               kind, algorithm, kind_of_data, in_place, &ranks, &used) != 5 ||
        used == 0 || ranks < 2)
        refuse(table, "a curve as symm-perf --tune writes it");
    write_points(table, points, read_points(table, line + used, points));
    fprintf(table->curves,
            "    {SYMM_KIND_%s, SYMM_ALGORITHM_%s, SYMM_COST_%s, %s, %d, %d, %d},\n",
            id_of(table, kinds, kind, "a collective"),
            id_of(table, algorithms, algorithm, "an algorithm of a collective"),
            id_of(table, data, kind_of_data, "float32 half float int32 other any"),
            strcmp(in_place, "true") == 0 ? "true" : "false", ranks, first,
            table->point_count - first);
    table->curve_count++;
}

/* The string at `at`; what lies behind it. */
static const char *write_name(const struct table *table, const char *at, FILE *out)
{
    char name[128];
    int used = 0;

    if (sscanf(at, " \"%127[^\"\\]\"%n", name, &used) != 1 || used == 0)
        refuse(table, "names of machines of up to 127 bytes, without \\");
    fprintf(out, "    \"%s\",\n", name);
    return at + used;
}

static void write_machines(const struct table *table, const char *key, FILE *out)
{
    static const char also[] = "\"also\": [";
    const char *names = strstr(key, also);

    fprintf(out, "static const char *const machines_%d[] = {\n", table->index);
    key = write_name(table, key, out);
    for (names = names ? names + strlen(also) : "]"; *names != ']';
         names += *names == ',')
        names = write_name(table, names, out);
    fprintf(out, "    NULL};\n");
}

/* Writes what a table consists of; false: it cannot be opened. */
static bool read_table(struct table *table, FILE *out)
{
    static const char machine[] = "\"machine\": {\"key\": ";
    enum { HEAD, MACHINE, CURVES, END } state = HEAD;
    FILE *file = fopen(table->path, "re");
    char *line = NULL;
    size_t room = 0;

    while (file && getline(&line, &room, file) > 0) {
        table->line++;
        if (state == CURVES && line[strspn(line, " ")] == ']')
            state = END;
        else if (state == CURVES)
            read_curve(table, line);
        else if (state == HEAD && strstr(line, machine)) {
            write_machines(table, strstr(line, machine) + strlen(machine), out);
            state = MACHINE;
        } else if (state == MACHINE && strcmp(line, " \"measured\": [\n") == 0)
            state = CURVES;
    }
    if (file && (state != END || table->curve_count == 0))
        refuse(table,
               "a table of symm-perf --tune, with its machine and then its curves");
    free(line);
    return file && fclose(file) == 0;
}

/* ---- The output ------------------------------------------------------------------------ */

/* One more row of the list of tables; false: a file or memory is missing. */
static bool write_table(const char *path, int index, FILE *out, FILE *list)
{
    struct table table = {.path = path, .index = index};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *points = NULL, *curves = NULL;
    size_t bytes;
    bool done;

    table.points = open_memstream(&points, &bytes);
    table.curves = open_memstream(&curves, &bytes);
    done = table.points && table.curves && read_table(&table, out);
    done &= table.points && fclose(table.points) == 0;
    done &= table.curves && fclose(table.curves) == 0;
    if (done) {
        fprintf(out, "static const struct symm_cost_point points_%d[] = {\n%s};\n",
                index, points);
        fprintf(out, "static const struct symm_cost_curve curves_%d[] = {\n%s};\n",
                index, curves);
        fprintf(list,
                "    {\"built in: %.*s\", machines_%d, curves_%d, %d, points_%d},\n",
                (int)strcspn(name, "."), name, index, index, table.curve_count, index);
    }
    free(points);
    free(curves);
    return done;
}

int main(int count, char **arguments)
{
    char *text = NULL, *tables = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes), *list = open_memstream(&tables, &bytes);
    bool done = count > 1 && out && list;

    for (int i = 2; i < count && done; i++)
        done = write_table(arguments[i], i - 2, out, list);
    done &= out && fclose(out) == 0;
    done &= list && fclose(list) == 0;
    out = done ? fopen(arguments[1], "we") : NULL;
    if (out) {
        fprintf(out,
                "/* Made by symm/select/costs_source.c of bench/costs/. */\n"
                "#include \"select/cost.h\"\n\n%s\n"
                "const struct symm_cost_table symm__cost_tables[] = {\n%s"
                "    {NULL, NULL, NULL, 0, NULL}};\n",
                text, tables);
        done = fclose(out) == 0;
    }
    if (!done || !out)
        perror("costs_source");
    free(text);
    free(tables);
    return done && out ? 0 : 2;
}
