/* SPDX-License-Identifier: MIT */
/*
 * svg.h - boxes over two axes as SVG: lifetimes against offsets.
 *
 * Labels are drawn only where they fit, upright or not; a box shows its details when pointed
 * at.
 */
#ifndef SYMM_PLANNER_TOOL_SVG_H
#define SYMM_PLANNER_TOOL_SVG_H

#include <stdbool.h>
#include <stdint.h>

struct svg_box {
    double x0, x1, y0, y1;
    const char *label;  /* drawn inside, if there is room */
    const char *detail; /* shown when pointed at; NULL: the label */
    unsigned colour;    /* any number; equal ones look the same */
};

enum svg_line_kind {
    SVG_DASHED, /* grey */
    SVG_STRONG, /* red */
    SVG_ENTRY,  /* blue, dashed */
    SVG_EXIT,   /* red, dotted */
};

struct svg_line {
    double at;
    const char *label; /* left out where it would lie on another */
    enum svg_line_kind kind;
};

struct svg_chart {
    const char *title, *x_title, *y_title;
    double x0, x1, y1; /* the axes; y begins at 0 and is in bytes */
    double columns;    /* along x, each some pixels wide; many make the picture wider */
    const struct svg_box *boxes;
    int box_count;
    const struct svg_line *verticals; /* across x; labels above the chart */
    int vertical_count;
    const struct svg_line *horizontals; /* across y; labels at the right */
    int horizontal_count;
};

/* False: a line on stderr says why, and no file is left. */
bool symm_plan_svg_write(const char *path, const struct svg_chart *chart);

#endif
