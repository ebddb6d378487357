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

#include "symm/plan.h"

#define SLACK       0.005
#define MOST_POINTS 1024 /* of a curve */

struct word {
    const char *name, *id;
};

#define WORD(id, value, name) {name, #id},
static const struct word kinds[] = {SYMM_COLLECTIVE_MAP(WORD){NULL, NULL}};
static const struct word algorithms[] = {SYMM_ALGORITHM_MAP(WORD){NULL, NULL}};
static const struct word data[] = {SYMM_COSTS_DATA_MAP(WORD){NULL, NULL}};
#undef WORD

struct table {
    const char *path;
    int index, line; /* of the table; of its file */
    int point_count, curve_count;
    bool has_machine;
    FILE *points, *curves, *members; /* as C: two arrays, and the rest of symm_costs */
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

static int read_points(const struct table *table, const char *at,
                       symm_costs_point *points)
{
    int count = 0, used;

    for (;; at += used + 1) {
        symm_costs_point *point = &points[count];

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

/* Do the points between `first` and `last` lie on the line between these two? */
static bool is_line(const symm_costs_point *points, int first, int last)
{
    const symm_costs_point *a = &points[first], *b = &points[last];

    for (int p = first + 1; p < last; p++) {
        double us = a->us + (points[p].bytes - a->bytes) * (b->us - a->us) /
                                (b->bytes - a->bytes);

        if (fabs(us - points[p].us) > SLACK * points[p].us)
            return false;
    }
    return true;
}

static void write_points(struct table *table, const symm_costs_point *points, int count)
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
    static symm_costs_point points[MOST_POINTS];
    int ranks, used = 0;

    if (sscanf(line,
               " {\"collective\": \"%23[^\"]\", \"algorithm\": \"%23[^\"]\", \"data\": "
               "\"%23[^\"]\", \"in_place\": %7[a-z], \"ranks\": %d, \"points\": [%n",
               kind, algorithm, kind_of_data, in_place, &ranks, &used) != 5 ||
        used == 0 || ranks < 2)
        refuse(table, "a curve as symm-perf --tune writes it");
    write_points(table, points, read_points(table, line + used, points));
    fprintf(table->curves,
            "    {sizeof(symm_costs_curve), SYMM_PROGRAM_%s, SYMM_ALGORITHM_%s, "
            "SYMM_COSTS_%s, %s, %d, %d, points_%d + %d},\n",
            id_of(table, kinds, kind, "a collective"),
            id_of(table, algorithms, algorithm, "an algorithm of a collective"),
            id_of(table, data, kind_of_data, "float32 half float int32 other any"),
            strcmp(in_place, "true") == 0 ? "true" : "false", ranks,
            table->point_count - first, table->index, first);
    table->curve_count++;
}

/* Writes the string at `at`; returns what comes after it. */
static const char *write_name(const struct table *table, const char *at)
{
    char name[128];
    int used = 0;

    if (sscanf(at, " \"%127[^\"\\]\"%n", name, &used) != 1 || used == 0)
        refuse(table, "names of machines of up to 127 bytes, without \\");
    fprintf(table->members, "\"%s\", ", name);
    return at + used;
}

static void write_machines(struct table *table, const char *key)
{
    static const char also[] = "\"also\": [";
    const char *names = strstr(key, also);

    table->has_machine = true;
    fprintf(table->members, "    .machines = {");
    key = write_name(table, key);
    for (names = names ? names + strlen(also) : "]"; *names != ']';
         names += *names == ',')
        names = write_name(table, names);
    fprintf(table->members, "},\n");
}

/* Writes the algorithms that the line names, as symm_cost_line. */
static void write_lines(const struct table *table, const char *line)
{
    for (const struct word *word = algorithms; word->name; word++) {
        char name[32];
        const char *at;
        double latency, rate;

        snprintf(name, sizeof(name), "\"%s\": {", word->name);
        at = strstr(line, name);
        if (!at)
            continue;
        if (sscanf(at + strlen(name), "\"latency_us\": %lf, \"bytes_per_us\": %lf}",
                   &latency, &rate) != 2 ||
            !(latency >= 0) || !(rate > 0))
            refuse(table, "latency_us, 0 or more, and bytes_per_us above 0");
        fprintf(table->members, "    .lines[SYMM_ALGORITHM_%s] = {true, %.9g, %.9g},\n",
                word->id, latency, rate);
    }
}

/* A line before those of the curves. */
static void read_member(struct table *table, const char *line)
{
    static const char machine[] = " \"machine\": {\"key\": ";
    static const char lines[] = " \"algorithms\": {";
    char name[24];
    double value;

    if (strncmp(line, machine, strlen(machine)) == 0)
        write_machines(table, line + strlen(machine));
    else if (strncmp(line, lines, strlen(lines)) == 0)
        write_lines(table, line);
    else if (sscanf(line, " \"%23[a-z_]\": %lf", name, &value) == 2 &&
             (strcmp(name, "barrier_us") == 0 ||
              strcmp(name, "memory_us_per_gib") == 0))
        fprintf(table->members, "    .%s = %.9g,\n", name, value);
}

/* False: the file cannot be read. */
static bool read_table(struct table *table)
{
    enum { MEMBERS, CURVES, END } state = MEMBERS;
    FILE *file = fopen(table->path, "re");
    char *line = NULL;
    size_t room = 0;

    while (file && getline(&line, &room, file) > 0) {
        table->line++;
        if (state == MEMBERS && strcmp(line, " \"measured\": [\n") == 0)
            state = CURVES;
        else if (state == MEMBERS)
            read_member(table, line);
        else if (line[strspn(line, " ")] == ']')
            state = END;
        else if (state == CURVES)
            read_curve(table, line);
    }
    if (file && (state != END || table->curve_count == 0 || !table->has_machine))
        refuse(table, "a table of symm-perf --tune: a machine, and curves at the end");
    free(line);
    return file && fclose(file) == 0;
}

/* ---- The output ------------------------------------------------------------------------ */

/* False: a file or memory is missing. */
static bool write_table(const char *path, int index, FILE *out)
{
    struct table table = {.path = path, .index = index};
    char *points = NULL, *curves = NULL, *members = NULL;
    size_t bytes;
    bool done;

    table.points = open_memstream(&points, &bytes);
    table.curves = open_memstream(&curves, &bytes);
    table.members = open_memstream(&members, &bytes);
    done = table.points && table.curves && table.members && read_table(&table);
    done &= table.points && fclose(table.points) == 0;
    done &= table.curves && fclose(table.curves) == 0;
    done &= table.members && fclose(table.members) == 0;
    if (done)
        fprintf(out,
                "static const symm_costs_point points_%d[] = {\n%s};\n"
                "static const symm_costs_curve curves_%d[] = {\n%s};\n"
                "static const symm_costs costs_%d = {\n%s    .curves = curves_%d,\n"
                "    .curve_count = %d};\n",
                index, points, index, curves, index, members, index, table.curve_count);
    free(points);
    free(curves);
    free(members);
    return done;
}

int main(int count, char **arguments)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    const char *path = NULL; /* of the file that is read or written */
    bool done = count > 1 && out;

    for (int i = 2; i < count && done; i++)
        done = write_table(path = arguments[i], i - 2, out);
    done &= out && fclose(out) == 0;
    out = done ? fopen(path = arguments[1], "we") : NULL;
    if (out) {
        fprintf(out,
                "/* Made by symm/select/costs_source.c of bench/costs/. */\n"
                "#include \"select/cost.h\"\n\n%s\n"
                "const symm_costs *const symm__costs_tables[] = {",
                text);
        for (int i = 2; i < count; i++)
            fprintf(out, "&costs_%d, ", i - 2);
        fprintf(out, "NULL};\n");
        done = fclose(out) == 0;
    }
    if (!done || !out)
        perror(path ? path : "costs_source");
    free(text);
    return done && out ? 0 : 2;
}
