#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""planner_programs.py FAMILY N [--world W] [--divide D]: a large program for the planner, on stdout.

  moe N     N layers of a mixture of experts: four quarter batches in flight, each on a stream of its own that
            nothing joins within the period
  zero3 N   N layers of sharded parameters: gathered one layer ahead on two streams, gradients reduced on a third
  serve N   N all-reduces of 1 to 512 tokens on one stream
  stack N   N layers of a training step on one stream: one op clears all gradients, and what the forward pass makes
            stays until the backward pass, so that all buffers live at once

--divide D makes every buffer D times smaller (a power of two up to 512). The same arguments give the same bytes.
"""
import argparse
import json

UNITS = {"q": 3 << 20, "o": 2 << 20, "u": 7 << 20, "d": 5 << 20}  # elements of a layer's parameters
GATHERS = {"q": "gather0", "o": "gather1", "u": "gather0", "d": "gather1"}


class Program:
    def __init__(self, name, world, streams):
        self.head = {"format": "symm-program/1", "name": name, "world": world, "loop": True, "streams": streams}
        self.buffers, self.ops = [], []

    def buffer(self, name, elements):
        self.buffers.append({"name": name, "dtype": "bfloat16", "shape": [elements], "stride": [1]})

    def local(self, op, stream, *buffers):
        self.ops.append({"op": op, "stream": stream, "buffers": list(buffers)})

    def call(self, op, site, stream, into, out=None, **more):
        self.ops.append({"op": op, "site": site, "stream": stream, "in": into, **({"out": out} if out else {}), **more})

    def depend(self, stream, *on):
        self.ops += [{"op": "depend", "stream": stream, "on": o} for o in on]

    def text(self):
        return json.dumps({**self.head, "buffers": self.buffers, "ops": self.ops})


def moe(n, world, divide):
    quarters = [f"quarter{q}" for q in range(4)]
    p = Program(f"moe-{n}", world, ["main"] + quarters)
    for layer in range(n):
        for q, stream in enumerate(quarters):
            sent, got, back = (f"{k}{layer}.{q}" for k in "dex")
            for name in (sent, got, back):
                p.buffer(name, world * 512 * 7168 // divide)
            p.local("write", stream, sent)
            p.call("all_to_all", f"dispatch{layer}.{q}", stream, sent, got)
            p.local("read", stream, got)
            p.local("write", stream, back)
            p.call("all_to_all", f"combine{layer}.{q}", stream, back)
    p.depend("main", *quarters)
    for stream in quarters:
        p.depend(stream, "main")
    return p


def zero3(n, world, divide):
    p = Program(f"zero3-{n}", world, ["main", "gather0", "gather1", "reduce"])
    steps = [("f", layer) for layer in range(n)] + [("b", layer) for layer in reversed(range(n))]

    def gather(tag, layer):
        for u, size in UNITS.items():
            p.buffer(f"s{tag}{layer}{u}", size // divide // world)
            p.buffer(f"w{tag}{layer}{u}", size // divide)
            p.local("write", GATHERS[u], f"s{tag}{layer}{u}")
            p.call("all_gather", f"ag{tag}{layer}{u}", GATHERS[u], f"s{tag}{layer}{u}", f"w{tag}{layer}{u}")

    gather(*steps[0])
    for i, (tag, layer) in enumerate(steps):
        p.depend("main", "gather0", "gather1")
        if i + 1 < len(steps):
            gather(*steps[i + 1])
        p.local("read", "main", *(f"w{tag}{layer}{u}" for u in UNITS))
        p.depend("gather0", "main")
        p.depend("gather1", "main")
        if tag == "f":
            continue
        p.depend("reduce", "main")
        for u in reversed(UNITS):
            p.buffer(f"g{layer}{u}", UNITS[u] // divide)
            p.buffer(f"r{layer}{u}", UNITS[u] // divide // world)
            p.local("write", "reduce", f"g{layer}{u}")
            p.call("reduce_scatter", f"rs{layer}{u}", "reduce", f"g{layer}{u}", f"r{layer}{u}", reduce="avg")
            p.local("read", "reduce", f"r{layer}{u}")
    p.depend("main", "reduce")
    p.depend("gather0", "main")
    p.depend("gather1", "main")
    return p


def serve(n, world, divide):
    p = Program(f"serve-{n}", world, ["main"])
    for i in range(n):
        name = f"t{1 << i * 10 // n}.{i}"
        p.buffer(name, (1 << i * 10 // n) * 8192 // divide)
        p.local("write", "main", name)
        p.call("all_reduce", name, "main", name, reduce="sum")
    return p


def stack(n, world, divide):
    p = Program(f"stack-{n}", world, ["main"])
    for i in range(n):
        p.buffer(f"g{i}", (1 + i % 13) * 4096 // divide)
        p.buffer(f"a{i}", (1 + i * 7919 % 251) * 8192 // divide)
    p.local("write", "main", *(f"g{i}" for i in range(n)))
    for i in range(n):
        p.local("write", "main", f"a{i}")
        p.call("all_reduce", f"f{i}", "main", f"a{i}", f"a{i}")
    for i in reversed(range(n)):
        p.local("read", "main", f"a{i}")
        p.local("write", "main", f"g{i}")
        p.call("all_reduce", f"b{i}", "main", f"g{i}", f"g{i}", reduce="avg")
    p.local("read", "main", *(f"g{i}" for i in range(n)))
    return p


FAMILIES = {"moe": moe, "zero3": zero3, "serve": serve, "stack": stack}

if __name__ == "__main__":
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("family", choices=sorted(FAMILIES))
    options.add_argument("n", type=int)
    options.add_argument("--world", type=int, default=8)
    options.add_argument("--divide", type=int, default=1)
    given = options.parse_args()
    print(FAMILIES[given.family](given.n, given.world, given.divide).text())
