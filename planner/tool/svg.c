/* SPDX-License-Identifier: MIT */
/*
 * svg.c - draws boxes, lines and axes as one SVG file without scripts.
 */
#include "tool/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/symm_plan.h"

#define LEFT      86.0
#define RIGHT     150.0 /* room for the labels of horizontal lines */
#define TOP       64.0
#define BOTTOM    56.0
#define WIDTH     1400.0 /* at least */
#define COLUMN    7.0    /* so wide is a column, up to MOST_WIDE in all */
#define MOST_WIDE 24000.0
#define HEIGHT    900.0
#define LETTER    0.6 /* width of a letter of the fixed font, in font sizes */
#define MAX_FONT  13.0
#define MIN_FONT  7.0

struct drawing {
    FILE *file;
    const struct svg_chart *chart;
    double width; /* of the picture */
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
    for (; *text; text++)
        if (strchr("<>&", *text))
            fputs(*text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "&amp;", file);
        else
            fputc(*text >= 0x20 && *text < 0x7f ? *text : '?', file);
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
    /* Hues a golden angle apart, so that neighbors by number differ. */
    unsigned hue = box->colour * 222U % 360U, light = 72U + box->colour % 3U * 7U;

    fputs("<g><title>", d->file);
    put_text(d->file, box->detail ? box->detail : box->label);
    fprintf(d->file,
            "</title><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
            "fill=\"hsl(%u,65%%,%u%%)\"/></g>\n",
            x, y, width, height, hue, light);
}

/* The font in which the label fits; 0: in none that can be read. */
static double font_for(const char *label, double length, double height)
{
    const double letters = (double)strlen(label);
    double font = MAX_FONT;

    if (letters * font * LETTER > length - 2)
        font = (length - 2) / (letters * LETTER + 1e-9);
    if (font > height - 1)
        font = height - 1;
    return font < MIN_FONT ? 0 : font;
}

/* Whether nothing else is drawn in the columns of the box from low to high. */
static bool is_free(const struct drawing *d, const struct svg_box *box, double low,
                    double high)
{
    for (int b = 0; b < d->chart->box_count; b++) {
        const struct svg_box *other = &d->chart->boxes[b];
        if (other != box && other->x0 < box->x1 && box->x0 < other->x1 &&
            other->y0 < high && low < other->y1)
            return false;
    }
    return low >= 0 && high <= d->chart->y1;
}

/* A flat box has its name above or below it, upright, if there is room. */
static void draw_label_beside(const struct drawing *d, const struct svg_box *box)
{
    const double width = x_of(d, box->x1) - x_of(d, box->x0);
    const double length = (double)strlen(box->label) * MIN_FONT * LETTER + 6;
    const double room = length / d->y_scale;
    const double x = x_of(d, box->x0) + width / 2 + MIN_FONT * 0.35;
    double y = y_of(d, box->y1) - 3;

    if (width < MIN_FONT)
        return;
    if (!is_free(d, box, box->y1, box->y1 + room)) {
        if (!is_free(d, box, box->y0 - room, box->y0))
            return;
        y = y_of(d, box->y0) + length - 3;
    }
    fprintf(d->file, "<g transform=\"rotate(-90 %.1f %.1f)\">\n", x, y);
    draw_text(d, x, y, "name", MIN_FONT, box->label);
    fputs("</g>\n", d->file);
}

/* Along the longer side if it is the only one that has room. */
static void draw_label(const struct drawing *d, const struct svg_box *box)
{
    double width = x_of(d, box->x1) - x_of(d, box->x0);
    double height = y_of(d, box->y0) - y_of(d, box->y1);
    double x = x_of(d, box->x0) + width / 2, y = y_of(d, box->y1) + height / 2;
    double font = font_for(box->label, width, height);
    double turned = font_for(box->label, height, width);

    if (font == 0 && turned > 0) {
        fprintf(d->file, "<g transform=\"rotate(-90 %.1f %.1f)\">\n", x, y);
        draw_text(d, x, y + turned * 0.35, "m name", turned, box->label);
        fputs("</g>\n", d->file);
    } else if (font > 0) {
        draw_text(d, x, y + font * 0.35, "m name", font, box->label);
    } else {
        draw_label_beside(d, box);
    }
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
    double bottom = HEIGHT - BOTTOM, right = d->width - RIGHT;
    double x_step = tick_step(c->x1 - c->x0, (int)(d->width / 116)),
           top = c->y1 / d->unit;
    double y_step = tick_step(top, 10);
    char text[64];

    x_step = x_step < 1 ? 1 : x_step;
    for (int k = 0; k <= 2000; k++) {
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

static const char *const line_classes[] = {[SVG_DASHED] = "dash",
                                           [SVG_STRONG] = "strong",
                                           [SVG_ENTRY] = "entry",
                                           [SVG_EXIT] = "exit"};

/* Labels that would lie on each other move apart, downwards. */
static void draw_lines(const struct drawing *d)
{
    const struct svg_chart *c = d->chart;
    double used = -100, right = d->width - RIGHT;

    for (int k = 0; k < c->horizontal_count; k++) {
        double y = y_of(d, c->horizontals[k].at), at = y + 4;
        if (at < used + 14 && at > used - 14)
            at = used + 14;
        used = at;
        draw_line(d, LEFT, y, right, y, line_classes[c->horizontals[k].kind]);
        draw_text(d, right + 6, at, "s", 11, c->horizontals[k].label);
    }
    used = -100;
    for (int k = 0; k < c->vertical_count; k++) {
        double x = x_of(d, c->verticals[k].at);
        double half = (double)strlen(c->verticals[k].label) * 10 * LETTER / 2;
        draw_line(d, x, TOP, x, HEIGHT - BOTTOM, line_classes[c->verticals[k].kind]);
        if (x - half < used + 4)
            continue;
        used = x + half;
        draw_text(d, x, TOP - 6, "m", 10, c->verticals[k].label);
    }
}

static void set_scales(struct drawing *d)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const struct svg_chart *c = d->chart;
    int k = 0;

    d->unit = 1;
    for (; k < 4 && c->y1 / d->unit >= 4096; k++)
        d->unit *= 1024;
    d->unit_name = units[k];
    d->width = LEFT + RIGHT + c->columns * COLUMN;
    d->width = d->width < WIDTH ? WIDTH : d->width > MOST_WIDE ? MOST_WIDE : d->width;
    d->x_scale = (d->width - LEFT - RIGHT) / (c->x1 > c->x0 ? c->x1 - c->x0 : 1);
    d->y_scale = (HEIGHT - TOP - BOTTOM) / (c->y1 > 0 ? c->y1 : 1);
}

static void draw(struct drawing *d)
{
    const struct svg_chart *c = d->chart;

    set_scales(d);
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
            "font-family=\"DejaVu Sans Mono, monospace\">\n"
            "<style>rect{stroke:#333;stroke-width:.6}line{stroke-width:1}"
            ".axis{stroke:#000}.dash{stroke:#555;stroke-dasharray:5 4}"
            ".strong{stroke:#c00;stroke-width:1.6}"
            ".entry{stroke:#03a;stroke-dasharray:5 4}"
            ".exit{stroke:#c00;stroke-dasharray:2 3}"
            "text{fill:#000}.m{text-anchor:middle}.e{text-anchor:end}"
            ".name{paint-order:stroke;stroke:#fff;stroke-width:2.5;stroke-opacity:.8}"
            "</style>\n"
            "<rect width=\"%g\" height=\"%g\" style=\"fill:#fff;stroke:none\"/>\n",
            d->width, HEIGHT, d->width, HEIGHT);
    for (int b = 0; b < c->box_count; b++)
        draw_box(d, &c->boxes[b]);
    draw_axes(d);
    draw_lines(d);
    for (int b = 0; b < c->box_count; b++)
        draw_label(d, &c->boxes[b]);
    fputs("</svg>\n", d->file);
}

bool symm_plan_svg_write(const char *path, const struct svg_chart *chart)
{
    struct drawing d = {.file = symm_plan_open_output(path), .chart = chart};

    if (!d.file)
        return false;
    draw(&d);
    return symm_plan_close_output(path, d.file);
}
