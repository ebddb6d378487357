#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
pipeline.py - what chunks hide of an all_reduce over two hosts of two GPUs each.

usage: pipeline.py [--build DIR] [--rates GB/S,...] [--latency US] [--first BYTES] [--last BYTES]
                   [--factor N] [--runs N] [--json FILE]

Needs a machine of four GPUs, which play two hosts of two (SYMM_HOST_ID, CUDA_VISIBLE_DEVICES), and
DIR/lib/librail.so (target `comparisons`), which stands in for NCCL: a step on the rail holds its
stream for a latency and its bytes over a rate, and moves nothing. For each size (of the whole call,
bfloat16, graphs of ten calls, out of place, median of the slowest rank, median of N runs):

    on hosts   reduce_scatter and all_gather of all bytes on one host, each in one call
    rail       latency + half of the bytes / rate: all of the network's part in one step
    call       all_reduce over both hosts, as libsymm cuts it
    ratio      call / the longer one of the two parts

Results are not compared: the stand-in adds nothing.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

CALLS = 10  # of a graph


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def job(args, nodes, operation, sizes, variables):
    """Times of symm-perf by bytes, in us, of a job of `nodes` hosts with two ranks each."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [
            f"{args.build}/bin/symm-perf", operation, "--backend", "cuda", "-d", "bfloat16",
            "-G", str(CALLS), "-n", "20", "-w", "3", "-c", "0", "-b", str(min(sizes)),
            "-e", str(max(sizes)), "-f", str(args.factor), "-J", out,
        ]
        started = []
        port, secret = free_port(), os.urandom(16).hex()
        for node in range(nodes):
            environment = dict(os.environ, SYMM_HOST_ID=f"node{node}", SYMM_SECRET=secret,
                               CUDA_VISIBLE_DEVICES=f"{2 * node},{2 * node + 1}", **variables)
            launcher = [f"{args.build}/bin/symmrun", "-n", "2", "--bind", "none", "--timeout", "100"]
            if nodes > 1:
                launcher += ["--nnodes", str(nodes), "--node-rank", str(node),
                             "--rendezvous", f"127.0.0.1:{port}"]
            started.append(subprocess.Popen(launcher + ["--"] + command, env=environment,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            text=True))
        said = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit("pipeline.py: " + " ".join(command) + " failed\n" + "\n".join(said)[-3000:])
        with open(out, encoding="utf-8") as file:
            results = json.load(file)["results"]
    return {result["size"]: result["out_of_place"]["time"] for result in results}


def median_job(args, *what):
    runs = [job(args, *what) for _ in range(args.runs)]
    return {size: statistics.median(run[size] for run in runs) for size in runs[0]}


def parse():
    parser = argparse.ArgumentParser(description="what chunks hide of an all_reduce over hosts")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rates", default="25,50,100", help="GB/s of a rail, each way")
    parser.add_argument("--latency", type=float, default=5, help="us of a step on the rail")
    parser.add_argument("--first", type=int, default=4 << 20, help="smallest call, bytes")
    parser.add_argument("--last", type=int, default=256 << 20, help="largest call, bytes")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", help="write the numbers there, too")
    return parser.parse_args()


def main():
    args = parse()
    args.build = os.path.abspath(args.build)
    sizes = [args.first]
    while sizes[-1] * args.factor <= args.last:
        sizes.append(sizes[-1] * args.factor)
    alone = {"SYMM_ENGINE": "none"}
    scatter = median_job(args, 1, "reduce_scatter", sizes, alone)
    gather = median_job(args, 1, "all_gather", sizes, alone)
    rows = []
    print("| rail | bytes | on hosts | rail | call | ratio |\n|---|---|---|---|---|---|")
    for rate in (float(text) for text in args.rates.split(",")):
        call = median_job(args, 2, "all_reduce", sizes, {
            "SYMM_ENGINE": "nccl", "SYMM_NCCL_LIB": f"{args.build}/lib/librail.so",
            "RAIL_RATE": str(rate), "RAIL_LATENCY": str(args.latency)})
        for size in sizes:
            hosts = scatter[size] + gather[size]
            rail = args.latency + size / 2 / rate / 1e3
            row = {"rate": rate, "bytes": size, "hosts": hosts, "rail": rail, "call": call[size],
                   "ratio": call[size] / max(hosts, rail)}
            rows.append(row)
            print(f"| {rate:g} GB/s | {size >> 20} MiB | {hosts:.1f} | {rail:.1f} | "
                  f"{call[size]:.1f} | {row['ratio']:.2f} |", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
