#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare_report.py - merges the figures of one run of compare.sh, prints them as Markdown, or
selects some for plot.sh. Needs only Python's standard library.

    compare_report.py merge OUT.json MACHINE.json FILE...   .json of symm-perf or
                                                            compare_torch.py, .tsv of MPI
    compare_report.py markdown IN.json                      tables, on stdout
    compare_report.py plots IN.json                         lines of OP DTYPE RANKS
    compare_report.py figures IN.json OP DTYPE RANKS latency|bandwidth

The file is "symm-compare/1": machine, versions and figures. A figure is of one call: op, dtype,
ranks, bytes as nccl-tests counts them, who (the library), p50 and p99 in microseconds. The
floor is computed from the machine's facts, which the file holds.
"""

import json
import os
import sys

# H200s, NVLink between all: an empty kernel in a graph, a flag's latency, a copy engine.
CUDA_FACTS = {"launch_us": 0.58, "hop_us": 0.756, "bytes_per_us": 382e3}
OURS = ("libsymm", "libsymm, in place")
OTHERS = ("nccl", "nccl-window")


def refuse(text):
    print(f"compare_report.py: {text}", file=sys.stderr)
    sys.exit(2)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        refuse(f"{path}: {error}")


# ---- Merging -------------------------------------------------------------------------------


def of_symm_perf(run):
    """Figures of a file of symm-perf -J."""
    config = run["config"]
    columns = zip(OURS + OTHERS, ("out_of_place", "in_place") + OTHERS)
    for who, column in columns:
        for row in run["results"]:
            times = row.get(column + "_per_iter")
            if row.get(column) and times:
                yield {
                    "op": config["operation"], "dtype": row.get("dtype", "none"),
                    "ranks": config["ranks"], "bytes": row["size"], "who": who,
                    "p50": round(times["p50_us"], 3), "p99": round(times["p99_us"], 3),
                }  # fmt: skip


def of_lines(path):
    """Lines of NAME, BYTES, MEDIAN, P99; the file is called OP-DTYPE-RANKS.tsv."""
    op, dtype, ranks = os.path.basename(path)[: -len(".tsv")].split("-")
    with open(path, encoding="utf-8") as file:
        for line in file:
            who, size, p50, p99 = line.rstrip("\n").split("\t")
            yield {
                "op": op, "dtype": dtype, "ranks": int(ranks), "bytes": int(size),
                "who": who, "p50": float(p50), "p99": float(p99),
            }  # fmt: skip


def merge(out, machine_path, paths):
    machine = load(machine_path)
    whole = {"format": "symm-compare/1", **machine, "figures": []}
    versions = whole.setdefault("versions", {})
    if machine["backend"] == "cuda":
        whole["floor"] = CUDA_FACTS
    for path in paths:
        if path.endswith(".tsv"):
            whole["figures"] += of_lines(path)
            continue
        run = load(path)
        if "figures" in run:
            versions.update(run["versions"])
            whole["figures"] += run["figures"]
        else:
            versions["libsymm"] = run["symm_version"]
            versions.update(run.get("versions", {}))
            whole["figures"] += of_symm_perf(run)
    fresh = f"{out}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        head = {name: value for name, value in whole.items() if name != "figures"}
        file.write(json.dumps(head, indent=1)[:-2] + ',\n "figures": [\n  ')
        file.write(",\n  ".join(json.dumps(figure) for figure in whole["figures"]))
        file.write("\n ]\n}\n")
    os.replace(fresh, out)


# ---- Reading ---------------------------------------------------------------------------------


def read(path):
    whole = load(path)
    if whole.get("format") != "symm-compare/1":
        refuse(f"{path}: format: found {whole.get('format')!r}, allowed: symm-compare/1")
    return whole


def groups(whole):
    """(op, dtype, ranks) in order of appearance: {who: {bytes: figure}}; the best repetition."""
    found = {}
    for figure in whole["figures"]:
        rows = found.setdefault((figure["op"], figure["dtype"], figure["ranks"]), {})
        row = rows.setdefault(figure["who"], {})
        old = row.get(figure["bytes"])
        if old is None or figure["p50"] < old["p50"]:
            row[figure["bytes"]] = figure
    for (op, _, ranks), rows in found.items():
        sizes = {size for row in rows.values() for size in row}
        line = {size: floor(whole, op, ranks, size) for size in sorted(sizes)}
        if all(value is not None for value in line.values()) and "floor" not in rows:
            rows["floor"] = {
                size: {"p50": value, "p99": value} for size, value in line.items()
            }
    return found


def floor(whole, op, ranks, size):
    """A lower bound for any kernel of this machine: launch, hops, and bytes to be received."""
    facts, peers = whole.get("floor"), (ranks - 1) / ranks
    if not facts or ranks < 2:
        return None
    launch, hop, rate = facts["launch_us"], facts["hop_us"], facts["bytes_per_us"]
    if op == "all_reduce":
        one = hop + (ranks - 1) * size / rate
        return launch + min(one, 2 * hop + 2 * peers * size / rate)
    if op in ("reduce_scatter", "all_gather", "all_to_all"):
        return launch + hop + peers * size / rate
    return launch + hop + size / rate if op in ("broadcast", "put_signal", "signal") else None


def bus_factor(op, ranks):
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("reduce_scatter", "all_gather", "all_to_all") else 1


# ---- Printing --------------------------------------------------------------------------------


def number(value):
    digits = 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:.{digits}f}"


def size_name(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def is_peer(who):
    return not who.startswith(("libsymm", "floor"))


def head(whole):
    yield f"One run of `bench/compare.sh` on one machine, {whole['date']}: {whole['machine']}."
    yield ""
    for name, value in sorted(whole["versions"].items()):
        yield f"- {name}: {value}"
    yield f"- {whole['method']}"
    for name, value in sorted(whole.get("environment", {}).items()):
        yield f"- {name}={value}"
    yield ""
    yield ("Microseconds a call: median / p99 of the slowest rank for libsymm, the median for "
           "the others. Bold: libsymm takes longer than the best of the others.")  # fmt: skip


def table(key, rows):
    peers = [who for who in rows if is_peer(who)]
    ours = [who for who in OURS if who in rows]
    columns = ours + peers + [who for who in rows if who.startswith("floor")]
    yield ""
    yield f"## {key[0]}, {key[1]}, {key[2]} ranks"
    yield ""
    yield "| size | " + " | ".join(columns) + (" | best other / libsymm |" if peers else " |")
    yield "|---" * (len(columns) + 1 + bool(peers)) + "|"
    for size in sorted({size for row in rows.values() for size in row}):
        others = [rows[who][size]["p50"] for who in peers if size in rows[who]]
        cells = []
        for who in columns:
            figure = rows[who].get(size)
            text = number(figure["p50"]) if figure else ""
            if figure and who in ours:
                text += " / " + number(figure["p99"])
                if others and figure["p50"] > min(others):
                    text = f"**{text}**"
            cells.append(text)
        mine = [rows[who][size]["p50"] for who in ours if size in rows[who]]
        if peers:
            cells.append(f"{min(others) / mine[0]:.2f}" if others and mine else "")
        yield f"| {size_name(size)} | " + " | ".join(cells) + " |"


def markdown(path):
    whole = read(path)
    lines = ["# libsymm beside others", ""]
    lines += head(whole)
    for key, rows in groups(whole).items():
        lines += table(key, rows)
        if len({size for row in rows.values() for size in row}) > 1:
            stem = "_".join(map(str, key))
            lines += ["", f"![latency]({stem}_latency.svg)",
                      f"![bus bandwidth]({stem}_bandwidth.svg)"]  # fmt: skip
    print("\n".join(lines))


def plots(path):
    for key, rows in groups(read(path)).items():
        if len({size for row in rows.values() for size in row}) > 1:
            print(*key)


def figures(path, op, dtype, ranks, what):
    rows = groups(read(path)).get((op, dtype, int(ranks)))
    if not rows or what not in ("latency", "bandwidth"):
        refuse(f"{path}: no figures of {op}, {dtype}, {ranks} ranks, {what}")
    factor = bus_factor(op, int(ranks)) * 1e-3  # bytes a microsecond are MB/s
    for who, row in rows.items():
        for size, figure in sorted(row.items()):
            pair = figure["p50"], figure["p99"]
            if what == "bandwidth":
                pair = tuple(factor * size / us for us in pair)
            if size > 0:
                print(who, size, *(f"{value:.6g}" for value in pair), sep="\t")


def main(words):
    uses = {"merge": (merge, 3), "markdown": (markdown, 1), "plots": (plots, 1), "figures": (figures, 5)}  # fmt: skip
    use, least = uses.get(words[0] if words else "", (None, 0))
    if use is None or len(words) - 1 < least:
        print(__doc__, file=sys.stderr)
        return 2
    if use is merge:
        merge(words[1], words[2], words[3:])
    else:
        use(*words[1 : least + 1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
