# SPDX-License-Identifier: MIT
"""symm on ranks that are processes: launchers, deaths, exit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import symm


def test_symmrun(symmrun):
    done = symmrun(3, """
        import symm, numpy as np
        with symm.init() as ctx:
            x = ctx.world.empty(1000, site="x")
            ctx.world.rendezvous()
            a = np.asarray(x)
            a[:] = ctx.world.rank
            ctx.world.all_reduce(x)
            assert (a == 3).all()
            print("right", ctx.world.rank, ctx.info.job_source)
    """)
    assert done.stdout.count("right") == 3 and "symm" in done.stdout


def test_exit_without_finalize(symmrun):
    """A program that keeps everything in globals must end with status 0 and no message."""
    done = symmrun(2, """
        import symm, numpy as np
        ctx = symm.init()
        t = ctx.world
        b = t.empty(1000)
        t.rendezvous()
        a = np.asarray(b)
        s = ctx.stream()
        w = t.all_reduce(b, stream=s, work=True)
        call = t.prepare("all_reduce", b)
        call()
        class Cycle: pass
        c = Cycle(); c.self = c; c.held = [ctx, t, b, a, s, w, call]
    """)
    assert done.stderr == ""


def test_arrays_at_exit(symmrun):
    """What runs when the interpreter ends may still use arrays, and functions of works are called."""
    done = symmrun(1, """
        import atexit
        atexit.register(lambda: print("registered before", a[0]))
        import symm, numpy as np
        ctx = symm.init()
        b = ctx.world.empty(1 << 20)
        a = np.asarray(b)
        a[:] = 3
        class Late:
            def __init__(self):
                self.self, self.array = self, a
            def __del__(self):
                self.array[:] += 1
                print("deleted", self.array[-1])
        late = Late()
        s = ctx.stream()
        for i in range(1000):
            ctx.world.all_reduce(b, stream=s, work=True).notify(lambda e: print("told", e))
    """)
    assert done.stderr == "" and done.stdout.count("told None") == 1000
    assert "registered before 3.0" in done.stdout and "deleted 4.0" in done.stdout


def test_exit_during_a_call_of_a_daemon_thread(symmrun):
    done = symmrun(2, """
        import symm, threading, time
        ctx = symm.init(timeout=60)
        t = ctx.world
        if t.rank == 0:
            threading.Thread(target=t.barrier, daemon=True).start()
            time.sleep(0.5)
        else:
            time.sleep(1)
            try:
                t.barrier()
                t.barrier()
            except symm.PeerDead:
                print("right")
    """)
    assert done.stderr == "" and "right" in done.stdout


def test_killed_rank_raises_everywhere(symmrun):
    done = symmrun(3, """
        import os, signal, sys, symm, numpy as np
        ctx = symm.init(timeout=20)
        t = ctx.world
        t.barrier()
        if t.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            for _ in range(1000000):
                t.all_reduce(np.ones(100))
        except symm.Error as error:
            print(type(error).__name__, error, flush=True)
            survivors = t.shrink()
            x = np.ones(10)
            survivors.all_reduce(x)
            assert (x == 2).all() and survivors.size == 2
            print("went on", flush=True)
    """, "--", check=False)
    assert done.stdout.count("went on") == 2, done.stdout + done.stderr
    assert done.stdout.count("PeerDead") >= 1 and "rank 1" in done.stdout


def test_fork_is_refused(symmrun):
    symmrun(1, """
        import os, sys, symm
        ctx = symm.init()
        pid = os.fork()
        if pid == 0:
            try:
                ctx.world.barrier()
            except symm.Forked:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        ctx.world.barrier()
    """)


def test_child_of_fork_exits_normally(symmrun):
    """A forked child that runs Python's exit handlers must not harm the parent."""
    symmrun(2, """
        import os, sys, symm, numpy as np
        ctx = symm.init()
        pid = os.fork()
        if pid == 0:
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        x = np.ones(4)
        ctx.world.all_reduce(x)
        assert (x == 2).all()
    """)


def test_import_needs_nothing_else():
    source = "import sys, symm; assert not {'numpy', 'torch'} & set(sys.modules); print('ok')"
    done = subprocess.run([sys.executable, "-S", "-c", source], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(
                              os.path.dirname(symm.__file__))})
    assert done.stdout == "ok\n", done.stderr


def test_paths():
    assert (symm.include_dir() / "symm" / "symm.h").exists()
    assert symm.library().name.startswith("libsymm.so")
    done = subprocess.run([symm.executable("symm-info"), "--version"], capture_output=True,
                          text=True)
    assert symm.__version__ in done.stdout




@pytest.mark.parametrize("as_json", [False, True])
def test_info(as_json):
    secret = "00112233445566778899aabbccddeeff"
    done = subprocess.run([sys.executable, "-m", "symm.info", *["--json"][:as_json]],
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "SYMM_SECRET": secret, "SYMM_JOB_SECRET": secret})
    assert done.returncode == 0, done.stderr
    assert "SYMM_JOB_SECRET" in done.stdout and secret not in done.stdout
    if as_json:
        found = json.loads(done.stdout)
        assert found["package"]["version"] == symm.__version__
        assert found["frameworks"]["numpy"] == np.__version__
        assert found["machine"]["version"] == symm.__version__, found["machine"]
    else:
        assert f"version              {symm.__version__}" in done.stdout
        assert f"libsymm {symm.__version__}" in done.stdout and "launcher" in done.stdout


def test_installed_component(tmp_path):
    """What a wheel gets from CMake: one copy of the library, and nothing to link it statically."""
    build = Path(symm.library()).resolve().parents[1]
    if not (build / "CMakeCache.txt").exists():
        pytest.skip("symm is not used from a build folder")
    if not all((build / "bin" / tool).exists() for tool in ("symm-perf", "symm-plan")):
        pytest.skip("the tools have not been built")
    subprocess.run(["cmake", "--install", str(build), "--component", "python", "--prefix",
                    str(tmp_path)], check=True, capture_output=True, timeout=120)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"include/symm/symm.h", "bin/symmrun", "bin/symm-info", "bin/symm-perf",
            "bin/symm-plan"} < files
    libraries = {name for name in files if name.startswith("lib/")} - {
        "lib/libsymm_device.bc", "lib/libsymm_device.ptx"}
    assert libraries == {"lib/libsymm.so.0.2"}, files
    loaded = subprocess.run([str(tmp_path / "bin" / "symm-info"), "--version"],
                            capture_output=True, text=True, timeout=60)
    assert loaded.returncode == 0 and symm.__version__ in loaded.stdout


@pytest.mark.parametrize("name", ["README.md", "symm/python/README.md", "docs/python.md"])
def test_readme(name, capfd):
    """The first example of each runs, and prints what its comment says."""
    text = (Path(__file__).parents[2] / name).read_text(encoding="utf-8")
    source = text.split("```python\n", 1)[1].split("```", 1)[0]
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
    printed = capfd.readouterr().out.strip()
    assert printed and f"# {printed}\n" in source


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_halo(symmrun, ranks):
    source = (Path(__file__).parents[2] / "symm" / "python" / "examples" / "halo.py").read_text()
    assert symmrun(ranks, source).stdout.count("right: 50 steps") == 1


def test_record(symmrun, tmp_path, monkeypatch):
    """What Team.record_* say comes into the merged program."""
    source = """
        import os, subprocess, sys, numpy as np, symm
        with symm.init() as ctx:
            team = ctx.world
            buffers = [team.empty(1000, "float32", site=f"b{i}") for i in range(3)]
            team.rendezvous()
            arrays = [np.asarray(b) for b in buffers]
            for step in range(2):
                team.record_period()
                for i, array in enumerate(arrays):
                    array[:] = team.rank
                    team.record_write(array)
                    team.all_reduce(array, site=f"s{i}")
                    team.record_read(array[:10])
            for bad in (lambda: team.record_write("text"), lambda: team.record_read(array[::2])):
                try:
                    bad()
                    raise SystemExit("not refused")
                except (TypeError, symm.Invalid):
                    pass
    """
    records = tmp_path / "records"
    monkeypatch.setenv("SYMM_RECORD", str(records))
    symmrun(2, source)
    monkeypatch.delenv("SYMM_RECORD")
    program = tmp_path / "program.json"
    tool = str(symm.executable("symm-plan"))
    subprocess.run([tool, "merge", str(records), "-o", str(program)], check=True, timeout=60)
    ops = [op["op"] for op in json.loads(program.read_text())["ops"]]
    assert ops == ["write", "all_reduce", "read"] * 3
    with symm.ThreadRanks(1) as ranks:  # without SYMM_RECORD: nothing happens
        assert ranks.run(lambda ctx: ctx.world.record_period()) == [None]


@pytest.mark.parametrize("value, seen", [("0.75", "[0.75]"), ("1e3", "Invalid []"),
                                         ("inf", "Invalid []")])
def test_timeout_in_a_locale_with_a_comma(symmrun, tmp_path, value, seen):
    """SYMM_INIT_TIMEOUT is what symm_init reads, whatever the program's decimal point is."""
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")],
                          capture_output=True)
    if made.returncode != 0:
        pytest.skip("the sources of locales are not installed")
    done = symmrun(1, """
        import locale, os, sys, types
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
        for name in list(os.environ):  # the rank's own job
            if name.startswith("SYMM_") and name not in ("SYMM_BACKEND", "SYMM_INIT_TIMEOUT"):
                del os.environ[name]
        os.environ.update(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                          TORCHELASTIC_RUN_ID="x", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        import symm
        seen = []
        sys.modules["symm._torchrun"] = types.SimpleNamespace(
            allgather=lambda rank, size, seconds: seen.append(round(seconds, 9)) or (lambda block: 1 / 0))
        try:
            symm.init()
        except Exception as error:
            print(type(error).__name__, seen)
    """, LOCPATH=str(tmp_path), SYMM_INIT_TIMEOUT=value)
    assert seen in done.stdout, done.stdout + done.stderr
