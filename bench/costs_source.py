#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""costs_source.py - makes symm/select/costs_tables.c, the tables that the library has built
in, of the tables of symm-perf --tune that lie in bench/costs/.

    python3 bench/costs_source.py                 writes symm/select/costs_tables.c
    python3 bench/costs_source.py FILE.json...    of these files, on stdout

Points that lie on the line between their neighbours (to 1 in 200) are left out. Exit status 2:
a file that symm-plan plan --table would refuse, with the place.
"""

import glob
import json
import os
import sys

KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
ALGORITHMS = (
    "copy_in", "one_shot_pull", "two_shot_inplace", "two_shot_pull", "ll_push", "lamport_push",
    "two_shot_push", "copy_engine", "multimem_one_shot", "multimem_two_shot", "engine",
)  # fmt: skip
DATA = ("float32", "half", "float", "int32", "other", "any")
SLACK = 0.005


def refuse(text):
    print(f"costs_source.py: {text}", file=sys.stderr)
    sys.exit(2)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            whole = json.load(file)
    except (OSError, ValueError) as error:
        refuse(f"{path}: {error}")
    if whole.get("format") != "symm-costs/1" or not whole.get("measured"):
        refuse(f"{path}: is no table of symm-perf --tune")
    for number, curve in enumerate(whole["measured"]):
        sizes = [point[0] for point in curve["points"]]
        if (
            curve["collective"] not in KINDS or curve["algorithm"] not in ALGORITHMS
            or curve["data"] not in DATA or not sizes or sizes != sorted(set(sizes))
            or not all(point[1] > 0 for point in curve["points"])
        ):  # fmt: skip
            refuse(f"{path}: measured[{number}]: cannot be used")
    return whole


def thin(points):
    """Without the points that the line between those kept on both sides says as well."""
    kept = [points[0]]
    last = 0
    for at in range(2, len(points)):
        (x0, y0), (x1, y1) = points[last], points[at]
        between = points[last + 1 : at]
        if any(abs(y0 + (x - x0) * (y1 - y0) / (x1 - x0) - y) > SLACK * y for x, y in between):
            last = at - 1
            kept.append(points[last])
    return kept + points[-1:] if len(points) > 1 else kept


def text(value):
    return json.dumps(value, ensure_ascii=True)


def table(path, index):
    whole = load(path)
    machine = whole["machine"]
    points, curves = [], []
    for curve in whole["measured"]:
        kept = thin(curve["points"])
        curves.append(
            "    {SYMM_KIND_%s, SYMM_ALGORITHM_%s, SYMM_COST_%s, %s, %d, %d, %d},"
            % (curve["collective"].upper(), curve["algorithm"].upper(), curve["data"].upper(),
               "true" if curve.get("in_place") else "false", curve["ranks"], len(points), len(kept))
        )  # fmt: skip
        points += kept
    rows = ["{%d, %.5g}," % tuple(point) for point in points]
    lines = [f"/* {os.path.basename(path)}: measured {machine.get('measured_utc', 'once')} */"]
    names = [machine["key"], *machine.get("also", [])]
    lines.append(f"static const char *const machines_{index}[] = {{")
    lines += [f"    {text(name)}," for name in names] + ["    NULL};"]
    lines.append(f"static const struct symm_cost_point points_{index}[] = {{")
    lines += ["    " + " ".join(rows[at : at + 4]) for at in range(0, len(rows), 4)] + ["};"]
    lines.append(f"static const struct symm_cost_curve curves_{index}[] = {{")
    lines += curves + ["};", ""]
    stem = os.path.splitext(os.path.basename(path))[0]
    entry = (
        f"    {{{text('built in: ' + stem)}, machines_{index}, curves_{index}, "
        f"{len(curves)}, points_{index}}},"
    )
    return lines, entry


def source(paths):
    head = [
        "/* SPDX-License-Identifier: MIT */",
        "/* costs_tables.c - made by bench/costs_source.py of bench/costs/; see cost.h. */",
        '#include "select/cost.h"',
        "",
        "/* clang-format off */",
    ]
    entries = []
    for index, path in enumerate(paths):
        lines, entry = table(path, index)
        head += lines
        entries.append(entry)
    return "\n".join(
        [*head, "const struct symm_cost_table symm__cost_tables[] = {", *entries,
         "    {NULL, NULL, NULL, 0, NULL}};", ""]
    )  # fmt: skip


def main(paths):
    here = os.path.dirname(os.path.abspath(__file__))
    if paths:
        sys.stdout.write(source(paths))
        return 0
    target = os.path.join(here, "..", "symm", "select", "costs_tables.c")
    made = source(sorted(glob.glob(os.path.join(here, "costs", "*.json"))))
    with open(target + ".new", "w", encoding="utf-8") as file:
        file.write(made)
    os.replace(target + ".new", target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
