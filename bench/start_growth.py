#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""start_growth.py measure START_PROGRAM [RUNS] >FILE.json, start_growth.py plot FILE.json OUT.svg

measure: starts jobs of 64 to 4,096 ranks, 8 a host, all on this machine (tests/start_program.c),
RUNS times each, and writes what each run took. plot: the best of each, by ranks (needs no other
program).
"""
import json
import math
import os
import re
import subprocess
import sys

HOSTS = (8, 16, 32, 64, 128, 256, 384, 512)
LINE = re.compile(
    r"(\d+) ranks on (\d+) hosts: ([\d.]+) s the slowest symm_init, ([\d.]+) s in all, "
    r"(\d+) KiB of own memory a rank, ([\d.]+) s of the processors to start, ([\d.]+) in all")
NAMES = ("ranks", "hosts", "seconds", "seconds_all", "kib_a_rank", "processor_seconds",
         "processor_seconds_all")


def measure(program, runs):
    found = []
    for hosts in HOSTS:
        for _ in range(runs):
            said = subprocess.run([program, str(hosts), "8"], capture_output=True, text=True,
                                  check=True).stdout
            values = LINE.search(said).groups()
            found.append({name: float(value) if "." in value else int(value)
                          for name, value in zip(NAMES, values)})
            print(said.strip(), file=sys.stderr, flush=True)
    print(json.dumps({"cores": os.cpu_count(), "runs": found}, indent=0))


def best(runs, name):
    return [(ranks, min(run[name] for run in runs if run["ranks"] == ranks))
            for ranks in sorted({run["ranks"] for run in runs})]


def plot(data, path):
    """Two curves of seconds and one of memory over ranks, all axes logarithmic."""
    runs, cores = data["runs"], data["cores"]
    curves = [("the slowest symm_init, s", "#1f77b4", best(runs, "seconds")),
              (f"time of the processors over {cores} cores, s", "#d62728",
               [(ranks, value / cores) for ranks, value in best(runs, "processor_seconds")]),
              ("memory of its own a rank, MiB", "#2ca02c",
               [(ranks, value / 1024) for ranks, value in best(runs, "kib_a_rank")])]
    low_x, high_x, low_y, high_y = 56, 4700, 0.05, 200

    def x(value):
        return 70 + 620 * math.log(value / low_x) / math.log(high_x / low_x)

    def y(value):
        return 380 - 350 * math.log(value / low_y) / math.log(high_y / low_y)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="720" height="440" '
           'font-family="sans-serif" font-size="13">',
           '<rect width="720" height="440" fill="white"/>']
    for ranks in (64, 128, 256, 512, 1024, 2048, 4096):
        out.append(f'<line x1="{x(ranks):.1f}" y1="30" x2="{x(ranks):.1f}" y2="380" stroke="#ddd"/>'
                   f'<text x="{x(ranks):.1f}" y="398" text-anchor="middle">{ranks}</text>')
    for value in (0.1, 1, 10, 100):
        out.append(f'<line x1="70" y1="{y(value):.1f}" x2="690" y2="{y(value):.1f}" stroke="#ddd"/>'
                   f'<text x="62" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append('<text x="380" y="424" text-anchor="middle">ranks, 8 a host</text>')
    for i, (name, color, points) in enumerate(curves):
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>'
                for a, b in points]
        out.append(f'<line x1="90" y1="{48 + 20 * i}" x2="120" y2="{48 + 20 * i}" '
                   f'stroke="{color}" stroke-width="2"/>'
                   f'<text x="128" y="{52 + 20 * i}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n</svg>\n")


def main():
    if len(sys.argv) in (3, 4) and sys.argv[1] == "measure":
        measure(sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 3)
    elif len(sys.argv) == 4 and sys.argv[1] == "plot":
        with open(sys.argv[2]) as file:
            plot(json.load(file), sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
