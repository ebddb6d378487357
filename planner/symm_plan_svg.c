/* SPDX-License-Identifier: MIT */
/*
 * symm_plan_svg.c - draws boxes, lines and axes as one SVG file without scripts.
 */
#include "symm_plan_svg.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEFT     86.0
#define RIGHT    150.0 /* room for the labels of horizontal lines */
#define TOP      64.0
#define BOTTOM   56.0
#define WIDTH    1400.0
#define HEIGHT   900.0
#define LETTER   0.6 /* width of a letter of the fixed font, in font sizes */
#define MAX_FONT 13.0
#define MIN_FONT 7.0

struct drawing {
    FILE *file;
    const struct svg_chart *chart;
    double x_scale, y_scale;
    double unit; /* bytes of one unit of the y axis */
    const char *unit_name;
};

static double x_of(const struct drawing *d, double x)
{
    return LEFT + (x - d->chart->x0) * d->x_scale;
}

static double y_of(const struct drawing *d, double y)
{
    return HEIGHT - BOTTOM - y * d->y_scale;
}

/* Text of the file's author: any bytes become printable ASCII, escaped. */
static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        default:
            fputc(*text >= 0x20 && *text < 0x7f ? *text : '?', file);
        }
    }
}

static void draw_text(const struct drawing *d, double x, double y, const char *kind,
                      double font, const char *text)
{
    fprintf(d->file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" font-size=\"%.1f\">", x,
            y, kind, font);
    put_text(d->file, text);
    fputs("</text>\n", d->file);
}

static void draw_box(const struct drawing *d, const struct svg_box *box)
{
    double x = x_of(d, box->x0), width = x_of(d, box->x1) - x;
    double y = y_of(d, box->y1), height = y_of(d, box->y0) - y;
    double letters = (double)strlen(box->label), font = MAX_FONT;
    /* Hues a golden angle apart, so that neighbors by number differ. */
    unsigned hue = box->colour * 222U % 360U, light = 72U + box->colour % 3U * 7U;

    fputs("<g><title>", d->file);
    put_text(d->file, box->detail ? box->detail : box->label);
    fprintf(d->file,
            "</title><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
            "fill=\"hsl(%u,65%%,%u%%)\"/></g>\n",
            x, y, width, height, hue, light);
    if (letters * font * LETTER > width - 2)
        font = (width - 2) / (letters * LETTER + 1e-9);
    if (font > height - 1)
        font = height - 1;
    if (font >= MIN_FONT)
        draw_text(d, x + width / 2, y + height / 2 + font * 0.35, "m", font,
                  box->label);
}

static void draw_line(const struct drawing *d, double x0, double y0, double x1,
                      double y1, const char *kind)
{
    fprintf(d->file,
            "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"%s\"/>\n",
            x0, y0, x1, y1, kind);
}

/* 1, 2 or 5 times a power of ten, such that about `count` fit into the length. */
static double tick_step(double length, int count)
{
    double step = 1, want = length / count;

    while (step * 10 <= want)
        step *= 10;
    while (step > want && step > 1e-6)
        step /= 10;
    return step * 5 <= want ? step * 5 : step * 2 <= want ? step * 2 : step;
}

static void draw_axes(const struct drawing *d)
{
    const struct svg_chart *c = d->chart;
    double bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;
    double x_step = tick_step(c->x1 - c->x0, 12), top = c->y1 / d->unit;
    double y_step = tick_step(top, 10);
    char text[64];

    x_step = x_step < 1 ? 1 : x_step;
    for (int k = 0; k <= 200; k++) {
        double first = (double)(long long)(c->x0 / x_step) * x_step;
        double x = first + k * x_step;
        if (x < c->x0 || x > c->x1)
            continue;
        draw_line(d, x_of(d, x), bottom, x_of(d, x), bottom + 5, "axis");
        snprintf(text, sizeof(text), "%.10g", x);
        draw_text(d, x_of(d, x), bottom + 18, "m", 11, text);
    }
    for (int k = 0; k * y_step <= top; k++) {
        double y = y_of(d, k * y_step * d->unit);
        draw_line(d, LEFT - 5, y, LEFT, y, "axis");
        snprintf(text, sizeof(text), "%.6g %s", k * y_step, d->unit_name);
        draw_text(d, LEFT - 8, y + 4, "e", 11, text);
    }
    draw_line(d, LEFT, bottom, right, bottom, "axis");
    draw_line(d, LEFT, TOP, LEFT, bottom, "axis");
    draw_text(d, (LEFT + right) / 2, HEIGHT - 14, "m", 13, c->x_title);
    fprintf(d->file, "<g transform=\"rotate(-90 16 %.1f)\">\n", (TOP + bottom) / 2);
    draw_text(d, 16, (TOP + bottom) / 2, "m", 13, c->y_title);
    fputs("</g>\n", d->file);
    draw_text(d, LEFT, 24, "s", 16, c->title);
}

/* Labels that would lie on each other move apart, downwards. */
static void draw_lines(const struct drawing *d)
{
    const struct svg_chart *c = d->chart;
    double used = -100, right = WIDTH - RIGHT;

    for (int k = 0; k < c->horizontal_count; k++) {
        double y = y_of(d, c->horizontals[k].at), at = y + 4;
        if (at < used + 14 && at > used - 14)
            at = used + 14;
        used = at;
        draw_line(d, LEFT, y, right, y, c->horizontals[k].strong ? "strong" : "dash");
        draw_text(d, right + 6, at, "s", 11, c->horizontals[k].label);
    }
    used = -100;
    for (int k = 0; k < c->vertical_count; k++) {
        double x = x_of(d, c->verticals[k].at);
        double half = (double)strlen(c->verticals[k].label) * 10 * LETTER / 2;
        draw_line(d, x, TOP, x, HEIGHT - BOTTOM,
                  c->verticals[k].strong ? "strong" : "dash");
        if (x - half < used + 4)
            continue;
        used = x + half;
        draw_text(d, x, TOP - 6, "m", 10, c->verticals[k].label);
    }
}

static void draw(struct drawing *d)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const struct svg_chart *c = d->chart;
    int k = 0;

    d->unit = 1;
    for (; k < 4 && c->y1 / d->unit >= 4096; k++)
        d->unit *= 1024;
    d->unit_name = units[k];
    d->x_scale = (WIDTH - LEFT - RIGHT) / (c->x1 > c->x0 ? c->x1 - c->x0 : 1);
    d->y_scale = (HEIGHT - TOP - BOTTOM) / (c->y1 > 0 ? c->y1 : 1);
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
            "font-family=\"DejaVu Sans Mono, monospace\">\n"
            "<style>rect{stroke:#333;stroke-width:.6}line{stroke-width:1}"
            ".axis{stroke:#000}.dash{stroke:#555;stroke-dasharray:5 4}"
            ".strong{stroke:#c00;stroke-width:1.6}"
            "text{fill:#000}.m{text-anchor:middle}.e{text-anchor:end}</style>\n"
            "<rect width=\"%g\" height=\"%g\" style=\"fill:#fff;stroke:none\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    for (int b = 0; b < c->box_count; b++)
        draw_box(d, &c->boxes[b]);
    draw_axes(d);
    draw_lines(d);
    fputs("</svg>\n", d->file);
}

void symm_plan_discard(const char *path)
{
    struct stat stat;

    if (lstat(path, &stat) == 0 && S_ISREG(stat.st_mode))
        unlink(path);
}

bool symm_plan_svg_write(const char *path, const struct svg_chart *chart)
{
    struct drawing d = {.file = fopen(path, "we"), .chart = chart};
    bool good;

    if (!d.file) {
        fprintf(stderr, "symm-plan: %s: cannot be created: %s\n", path,
                strerror(errno));
        return false;
    }
    draw(&d);
    good = !ferror(d.file);
    good = fclose(d.file) == 0 && good;
    if (!good) {
        fprintf(stderr, "symm-plan: %s: cannot be written: %s\n", path,
                strerror(errno));
        symm_plan_discard(path);
    }
    return good;
}
