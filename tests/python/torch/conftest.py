# SPDX-License-Identifier: MIT
"""Runs programs as torchrun does."""

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import symm

HERE = Path(__file__).parent
# They take 10 seconds or more, and come first, so that no process is left alone with one.
LONGEST = ("test_suite", "test_collectives_equal_gloo", "test_job", "test_right",
           "test_histories_differ")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.originalname)
               if item.originalname in LONGEST else len(LONGEST))


def write_program(folder, source):
    program = folder / "program.py"
    ends_gloo = f"import sys; sys.path.insert(0, {str(HERE)!r}); import ends_gloo\n"
    program.write_text(ends_gloo + textwrap.dedent(source))
    return program


@pytest.fixture(scope="session")
def forker():
    """A process that runs jobs (fork_ranks.py)."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fork_ranks.py")], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    yield process
    process.stdin.close()
    process.wait(timeout=10)


@pytest.fixture
def torchrun(tmp_path, request):
    """torchrun(size, source, arguments): runs Python source, or a file, on ranks; what
    subprocess.run gives.

    The ranks are forked from a process that has imported torch. real=True: by torchrun itself.
    """

    def by_torchrun(command, size, timeout, env):
        return subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(size), *command],
            capture_output=True, text=True, timeout=timeout, env=env)

    def forked(command, size, timeout, env):
        process = request.getfixturevalue("forker")
        output = {name: tmp_path / name for name in ("stdout", "stderr")}
        for file in output.values():
            file.write_bytes(b"")
        process.stdin.write(json.dumps({
            "program": command[0], "arguments": command[1:], "size": size, "env": env,
            "timeout": timeout, **{name: str(file) for name, file in output.items()}}) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        return subprocess.CompletedProcess(
            command, status, *(file.read_text(errors="replace") for file in output.values()))

    def run(size, source, arguments=(), check=True, timeout=240, real=False, **env):
        program = source if isinstance(source, Path) else write_program(tmp_path, source)
        command = [str(program), *arguments]
        done = (by_torchrun if real else forked)(
            command, size, timeout,
            {**os.environ, "SYMM_BACKEND": "host", "OMP_NUM_THREADS": "1", **env})
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def wait_all(agents, timeout):
    """Until all have ended, one has failed, or `timeout` seconds: then it ends the rest."""
    end = time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            statuses = [agent.poll() for agent in agents]
            if None not in statuses or any(statuses):
                break
            time.sleep(0.05)
    finally:
        for agent in agents:
            agent.terminate()  # it ends its ranks
        for agent in agents:
            try:
                agent.wait(timeout=40)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()


@pytest.fixture
def torchrun_hosts(tmp_path):
    """torchrun_hosts(each, source): one torchrun a host, with each[host] ranks, all on this
    machine; what each printed. No host has a secret or a port."""

    def run(each, source, timeout=240, **env):
        program = write_program(tmp_path, source)
        (tmp_path / "engine").mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        output = [tmp_path / f"host{host}.log" for host in range(len(each))]
        agents = [
            subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(each)),
                 "--node-rank", str(host), "--master-addr", "127.0.0.1",
                 "--master-port", str(port), "--max-restarts", "1",
                 "--nproc-per-node", str(ranks), str(program)],
                stdout=output[host].open("wb"), stderr=subprocess.STDOUT,
                env={**os.environ, "SYMM_BACKEND": "host", "OMP_NUM_THREADS": "1",
                     "SYMM_HOST_ID": f"host{host}", "SYMM_HOST_ADDRESS": "127.0.0.1",
                     "SYMM_HEAP_BYTES": "1G", "SYMM_TEAM_BYTES": "4M",
                     "SYMM_ENGINE": str(symm.library().parent / "libfake_engine.so"),
                     "SYMM_FAKE_ENGINE_DIR": str(tmp_path / "engine"), **env})
            for host, ranks in enumerate(each)
        ]
        wait_all(agents, timeout)
        said = [file.read_text(errors="replace") for file in output]
        assert all(agent.returncode == 0 for agent in agents), "\n".join(said)
        return said

    return run
