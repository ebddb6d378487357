#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""planner_growth.py SYMM_PLAN [OUT.svg]: how the planner's time grows with a program.

Plans and checks programs of planner_programs.py on one core. For each program it prints processor seconds (plan and
check together), the largest resident memory, the arena, and the arena over the lower bound; for each family the
exponent of time over the number of buffers, by least squares of the logarithms. OUT.svg: plots the times (gnuplot).
Exit status 1: an arena above 1.05 times its bound, more than 5 s or 1 GB, or an exponent above 1.3.
"""
import json
import math
import os
import resource
import subprocess
import sys
import tempfile

import planner_programs

RUNS = [("moe", (20, 40, 80, 120, 160, 200)), ("zero3", (10, 20, 30, 40, 60)), ("serve", (1250, 2500, 5000, 10000))]


def run(*command):
    """Processor seconds and megabytes of one command."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], command)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"planner_growth.py: {' '.join(command)}: status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(tool, folder, family, n):
    program, plan = os.path.join(folder, "program.json"), os.path.join(folder, "plan.json")
    with open(program, "w") as file:
        file.write(planner_programs.FAMILIES[family](n, 8, 1).text())
    made, most = run(tool, "plan", program, "-o", plan)
    proved, more = run(tool, "check", program, plan)
    with open(plan) as file:
        made_plan = json.load(file)
    return len(made_plan["buffers"]), made + proved, max(most, more), made_plan


def exponent(points):
    xs, ys = [math.log(n) for n, _ in points], [math.log(t) for _, t in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def plot(path, times):
    data = "".join("$%s << E\n%s\nE\n" % (f, "\n".join(f"{n} {t}" for n, t in p)) for f, p in times.items())
    lines = ", ".join(f"${f} with linespoints title '{f}: exponent {exponent(p):.2f}'" for f, p in times.items())
    script = (data + f"set terminal svg size 720,440\nset output '{path}'\nset logscale xy\nset grid\nset key left\n"
              "set xlabel 'buffers'\nset ylabel 'seconds to plan and check, one core'\nplot " + lines + "\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    times, bad = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for family, sizes in RUNS:
            times[family] = []
            for n in sizes:
                buffers, seconds, megabytes, plan = measure(sys.argv[1], folder, family, n)
                over = plan["arena_bytes"] / plan["lower_bound_bytes"]
                bad += over > 1.05 or seconds > 5 or megabytes > 1024
                times[family].append((buffers, seconds))
                print(f"{family}-{n}: {buffers} buffers, {seconds:.2f} s, {megabytes:.0f} MB, arena "
                      f"{plan['arena_bytes']} = {over:.3f} x bound, {len(plan['certificate'])} pairs", flush=True)
            grows = exponent(times[family])
            bad += grows > 1.3
            print(f"{family}: time grows with buffers to the power {grows:.2f}", flush=True)
    if len(sys.argv) == 3:
        plot(sys.argv[2], times)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
