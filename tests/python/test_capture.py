# SPDX-License-Identifier: MIT
"""Team.capture over the fake CUDA driver: graphs over memory that is not symmetric."""

import pytest
from capture_program import BEGIN, END

import symm


@pytest.fixture
def ranks(symmrun, fake_cuda):
    """ranks(size, source): source after BEGIN on ranks, each of which must get to its end."""

    def run(size, source, **options):
        done = symmrun(size, BEGIN + source + END, **fake_cuda, **options)
        assert done.stdout.count("right") == size, done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize("size", [2, 3])
def test_replays(ranks, size):
    ranks(size, """
with team.capture() as nothing:
    first = graph()
    assert "captured between symm_team_capture_begin" in team.explain()
    second = graph(3)
assert nothing is None
for round in range(6):
    replay(first if round % 2 else second, 1.0 + round)
again = team.capture()
for _ in range(2):                       # the same object may be used again
    with again:
        third = graph()
    replay(third, 9.0)
replay(first, 2.0)
""")


def test_methods(ranks):
    ranks(2, """
raises(symm.Invalid, team.capture_end, "no symm_team_capture_begin came before")
raises(symm.Invalid, team.capture_abandon, "no symm_team_capture_begin came before")
team.capture_begin()
raises(symm.InUse, team.capture_begin, "has begun already")
raises(symm.InUse, team.capture().__enter__, "has begun already")
made = graph()
team.capture_end()
replay(made, 3.0)
team.capture_begin()
team.capture_abandon("not needed")
""")


def test_body_raises(ranks):
    """The exception of one rank goes on; the others' brackets raise, and nobody waits. The team
    can be used again."""
    ranks(3, """
def body():
    with team.capture():
        made.append(graph())
        meet()
        if team.rank == 1:
            raise ValueError("out of \\u00e4ther")

made = []
begin = time.monotonic()
if team.rank == 1:
    error = raises(ValueError, body, "out of")
    assert not hasattr(error, "__notes__"), error.__notes__
else:
    raises(symm.Aborted, body, "rank 1 has abandoned bracket 1: ValueError: out of ??ther")
assert time.monotonic() - begin < 50
with team.capture():
    good = graph()
replay(good, 4.0)
fails(made[0], "captured call 1 of bracket 1")
""")


def test_body_raises_early(symmrun, fake_cuda):
    """The other rank waits in its body for the one that has raised: it sees why, as that one does
    that nobody came."""
    done = symmrun(2, BEGIN.replace("timeout=100", "timeout=2") + """
def body():
    with team.capture():
        graph()
        if team.rank == 1:
            raise ValueError("mine")
        team.barrier(stream=stream, timeout=60)
        stream.synchronize()
        team.barrier(stream=stream)

begin = time.monotonic()
if team.rank == 1:
    error = raises(ValueError, body, "mine")
    assert "rank 0 has not come to capture end" in error.__notes__[0], error.__notes__
else:
    raises(symm.Aborted, body, "rank 1 has abandoned its captures: ValueError: mine")
assert time.monotonic() - begin < 50
""" + END, **fake_cuda)
    assert done.stdout.count("right") == 2, done.stdout + done.stderr


def test_all_bodies_raise(ranks):
    ranks(2, """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def body(error):
    with team.capture():
        raise error

raises(KeyboardInterrupt, lambda: body(KeyboardInterrupt()))
try:
    body(Odd())
except Odd:
    pass
with team.capture():
    good = graph()
replay(good, 4.0)
""")


def test_peer_dies(symmrun, fake_cuda):
    """The body's exception goes on, with a note, when the bracket cannot be abandoned."""
    done = symmrun(2, BEGIN + """
import os
def body():
    with team.capture():
        graph()
        if team.rank == 1:
            os._exit(3)
        raise ValueError("mine")

error = raises(ValueError, body, "mine")
print("note:", *error.__notes__, flush=True)
""", check=False, **fake_cuda)
    assert "note: symm: the capture's bracket was not abandoned: " in done.stdout, done
    assert "rank 1" in done.stdout, done.stdout


def test_mismatch(ranks):
    ranks(2, """
def body():
    with team.capture():
        made.append(graph(1 + team.rank))

made = []
raises(symm.Mismatch, body, "captured call 2 differs", "no more")
fails(made[0], "symm_team_capture_end has failed")
""")


def test_before_the_end(ranks):
    ranks(2, """
team.capture_begin()
made = graph()
fails(made, "symm_team_capture_end has not come yet")
raises(symm.Aborted, team.capture_end, "has replayed captured call 1 of bracket 1")
""")


@pytest.mark.parametrize("released", ["b", "b.ptr, b.nbytes", "b.ptr + 1020, 4",
                                      "x=b.ptr, nbytes=b.nbytes"])
def test_release(ranks, released):
    ranks(2, f"""
team.capture_release(b)                  # nothing was captured
with team.capture():
    made = graph()
team.capture_release(Array(64))           # of no call
team.capture_release(a.ptr, 0)
replay(made, 2.0)
meet()
if team.rank == 1:
    team.capture_release({released})
fails(made, "rank 1 has released [", "capture it again")
""")


def test_release_is_used_again(ranks):
    """Memory goes, other memory comes to its place, and the next bracket is right."""
    ranks(2, """
with team.capture():
    made = graph()
replay(made, 2.0)
meet()
team.capture_release(a)
team.capture_release(b)
a.free()
b.free()
a, b = Array(256), Array(256)
with team.capture():
    fresh = Graph()
    with fresh.capture(stream):
        all_reduce(a, b)
for round in range(4):
    replay(fresh, 1.0 + round)
fails(made, "has released [")
""")


def test_release_arguments(ranks):
    ranks(2, """
raises(symm.Invalid, lambda: team.capture_release(b.ptr), "give nbytes too")
raises(symm.Invalid, lambda: team.capture_release(b.ptr, -1), "nbytes")
raises(TypeError, lambda: team.capture_release("b"))
raises(TypeError, lambda: team.capture_release())
""")


def test_norm(ranks):
    """all_reduce_norm in a bracket, which needs no peer's array."""
    ranks(2, """
import math
weight, out = Array(256), Array(256)
weight.write(stream, 2.0)
with team.capture():
    made = Graph()
    with made.capture(stream):
        team.all_reduce_norm(a, weight, 0.0, norm_out=out, hidden=256, stream=stream)
        all_reduce()
for round in range(3):
    replay(made, 1.0 + round)
    assert all(math.isclose(each, 2.0, rel_tol=1e-6) for each in out.read(stream))
""")


def test_gil(ranks):
    """Other threads run while a rank waits for its peers at the end of a bracket: rank 1 ends its
    own when a thread of rank 0 has told it to."""
    ranks(2, """
import os
told = os.path.join(os.path.dirname(__file__), "told")
ending = threading.Event()
def tell():
    ending.wait()
    time.sleep(0.2)                      # now rank 0 waits, unless it is slow
    open(told, "w").close()
thread = threading.Thread(target=tell if team.rank == 0 else ending.wait)
thread.start()
team.capture_begin()
made = graph()
ending.set()
until = time.monotonic() + 15
while team.rank == 1 and not os.path.exists(told):
    assert time.monotonic() < until, "the GIL is held"
    time.sleep(0.01)
team.capture_end()
thread.join()
replay(made, 5.0)
""")


def test_host(alone):
    team = alone.world
    for begin in (team.capture_begin, team.capture().__enter__):
        with pytest.raises(symm.Unsupported, match="host backend"):
            begin()
    with pytest.raises(symm.Unsupported), team.capture():
        raise AssertionError("the body runs")
    team.capture_release(bytearray(8))


def test_after_the_end(alone):
    part = alone.world.split(0)
    capture = part.capture()
    part.destroy()
    for call in (part.capture_begin, part.capture_end, part.capture_abandon, capture.__enter__,
                 lambda: part.capture_release(8, 8)):
        with pytest.raises(symm.Invalid, match="destroyed"):
            call()
