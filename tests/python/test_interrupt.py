# SPDX-License-Identifier: MIT
"""Ctrl-C in a wait for a Work or a Stream: KeyboardInterrupt at once, and the call goes on."""

import time

import pytest

# Rank 0 waits for rank 1, which comes when the file is there; SIGINT comes after half a second.
PROGRAM = """
    import os, signal, sys, threading, time
    import numpy as np
    import symm
    WAIT
    flag = sys.argv[1]
    with symm.init(timeout=60) as ctx:
        stream = ctx.stream()
        x = ctx.world.empty(64, site="x")
        ctx.world.rendezvous()
        np.asarray(x)[:] = 1 + ctx.world.rank
        if ctx.world.rank == 1:
            while not os.path.exists(flag):
                time.sleep(0.01)
        work = ctx.world.all_reduce(x, stream=stream, work=True)
        if ctx.world.rank == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            begin = time.monotonic()
            try:
                wait(work, stream)
                print("not interrupted")
            except KeyboardInterrupt:
                print("interrupted", time.monotonic() - begin < 20)
            AFTER
            open(flag, "w").close()
        END
"""


@pytest.mark.parametrize("wait", ["work.synchronize()", "work.synchronize(50)", "work.wait()",
                                  "stream.synchronize()"])
def test_interrupt(symmrun, tmp_path, wait):
    source = PROGRAM.replace("WAIT", f"wait = lambda work, stream: {wait}")
    source = source.replace("AFTER", "assert not work.done()")
    source = source.replace("END", """work.synchronize()
        assert (np.asarray(x) == 3).all()
        stream.synchronize()
        print("right")""")
    done = symmrun(2, source, str(tmp_path / "flag"))
    assert "interrupted True" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("right") == 2 and done.stderr == ""


def test_finalize_after(symmrun, tmp_path):
    """The end of the context comes with the end of the wait that was left."""
    source = PROGRAM.replace("WAIT", "wait = lambda work, stream: work.synchronize()")
    source = source.replace("AFTER", "ctx.finalize()").replace("END", "")
    source += """
    if os.environ["RANK"] == "0":
        try:
            work.done()
        except symm.Error as error:
            print("finalized", "finalized" in str(error))
"""
    done = symmrun(2, source, str(tmp_path / "flag"))
    assert "interrupted True" in done.stdout and "finalized True" in done.stdout


def test_uncaught(symmrun, tmp_path):
    """The process ends, and does not wait for the call; its peer is told."""
    source = PROGRAM.replace("WAIT", "wait = lambda work, stream: work.synchronize()")
    source = source.replace("except KeyboardInterrupt:", "except ZeroDivisionError:")
    source = source.replace("AFTER", "").replace("END", "")
    begin = time.monotonic()
    done = symmrun(2, source, str(tmp_path / "flag"), check=False)
    assert done.returncode != 0 and "KeyboardInterrupt" in done.stderr, done.stdout + done.stderr
    assert time.monotonic() - begin < 40


# Rank 0 waits for rank 1, which comes after two seconds; the signal comes after half a second.
HANDLED = """
    import os, signal, threading, time
    import symm
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(HANDLER))
    with symm.init() as ctx:
        stream = ctx.stream()
        if ctx.world.rank == 1:
            time.sleep(2)
        work = ctx.world.barrier(stream=stream, work=True)
        if ctx.world.rank == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        WAIT
        print("right")
"""


def test_handler_that_returns(symmrun):
    """A handler that raises nothing runs during the wait, which goes on."""
    done = symmrun(2, HANDLED.replace("HANDLER", "time.monotonic()").replace("WAIT", """\
work.synchronize()
        assert len(seen) == 1 - ctx.world.rank
        if seen:
            print("early", time.monotonic() - seen[0] > 0.3)"""))
    assert done.stdout.count("right") == 2 and "early True" in done.stdout


def test_handler_that_forks(symmrun):
    """The thread that waits is the parent's: the child's call is refused, the parent's goes on."""
    done = symmrun(2, HANDLED.replace("HANDLER", "os.fork()").replace("WAIT", """\
try:
            work.synchronize()
        except symm.Forked:
            os._exit(0 if seen == [0] else 1)
        for child in seen:
            print("refused", os.waitpid(child, 0)[1] == 0)"""))
    assert done.stdout.count("right") == 2 and "refused True" in done.stdout, done.stdout


def test_timeouts_are_as_before(symmrun):
    """A wait that ends by its own timeout, shorter or longer than the looks for signals."""
    done = symmrun(2, """
        import time
        import symm
        with symm.init(timeout=3) as ctx:
            stream = ctx.stream()
            if ctx.world.rank == 0:
                work = ctx.world.barrier(stream=stream, work=True, site="alone")
                lasted = []
                for seconds in 0.05, 0.1, 0.4, 0.4, 0.4:
                    begin = time.monotonic()
                    try:
                        work.synchronize(seconds)
                        print("no timeout")
                    except symm.Timeout as error:
                        assert "its own timeout of 3 s" in str(error), error
                        lasted.append(time.monotonic() - begin)
                        assert lasted[-1] >= seconds * 0.99
                assert min(lasted[2:]) < 0.48, lasted
                for wait in work.synchronize, work.wait:
                    try:
                        wait()
                        print("no timeout")
                    except symm.Timeout as error:
                        assert "'alone'" in str(error), error
                        print("own timeout")
            else:
                time.sleep(8)
    """)
    assert done.stdout.count("own timeout") == 2 and "no timeout" not in done.stdout, done.stdout
