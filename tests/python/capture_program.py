# SPDX-License-Identifier: MIT
"""The beginning and the end of the programs of ranks on the fake CUDA driver that test captures."""

# Arrays a and b of each rank, and graph(): captures b = the sum of a by direct access to peers.
BEGIN = """
import sys, threading, time
import symm
import fake_device
from fake_device import Array, Graph

ctx = symm.init(timeout=100)
fake_device.use(ctx.info.device)
team, stream = ctx.world, ctx.stream()
a, b = Array(256), Array(256)

def all_reduce(x=a, out=b):
    team.all_reduce(x, out, algorithm="two_shot_inplace", stream=stream)

def graph(calls=1):
    made = Graph()
    with made.capture(stream):
        for _ in range(calls):
            all_reduce()
    return made

def meet():
    # All ranks are about to do the next thing: none waits for long.
    stream.synchronize()
    team.rendezvous()

def replay(made, value):
    a.write(stream, value * (team.rank + 1))
    made.replay(stream)
    stream.synchronize()
    assert set(b.read(stream)) == {value * sum(range(1, team.size + 1))}, b.read(stream)[:4]

def aborted(of, *words):
    # What is queued fails this team.
    try:
        stream.synchronize()
        of.barrier(stream=stream)
        stream.synchronize()
    except symm.Aborted as error:
        for word in words:
            assert word in str(error), error
    else:
        raise AssertionError("no error")

def fails(made, *words):
    # The replay fails the team on all ranks; no sum is there.
    b.write(stream, -1.0)
    meet()
    made.replay(stream)
    aborted(team, *words)

def raises(kind, function, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), error
        return error
    raise AssertionError(f"no {kind}")
"""
END = """
print("right", flush=True)
ctx.finalize()
"""
