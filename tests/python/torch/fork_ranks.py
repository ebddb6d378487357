# SPDX-License-Identifier: MIT
"""Runs programs as torchrun does, on ranks that are forked from this process, which has imported
torch: each rank of torchrun imports it anew, and torchrun, too, three seconds of a core each.

Each line of stdin is a job, a JSON object: program (a file), arguments, size (ranks), env, timeout
(seconds), stdout and stderr (files that the ranks write). The answer to it is a line on stdout: the
exit status, 1 if a rank failed, 124 after the timeout. Ranks have the variables of torchrun's and
meet at a store of an agent, as there. After the first failure the others have GRACE seconds.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
import types
import uuid

import torch
import torch.distributed

# What most programs come to import: torch._dynamo by an optimizer, DDP or a compiled function, the
# rest by the passes over graphs and by DTensor. A second and a half of a core in each rank.
import torch._dynamo.backends.common  # noqa: F401
import torch._inductor.decomposition  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401

GRACE = 20


def run_rank(job, variables, output):
    """In the forked process, which ends as an interpreter does that has run the program."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output["stdout"], 1)
    os.dup2(output["stderr"], 2)
    os.environ.clear()
    os.environ.update(job["env"])
    os.environ.update(variables)
    sys.argv = [job["program"], *job["arguments"]]
    sys.path[0] = os.path.dirname(job["program"])
    module = types.ModuleType("__main__")
    module.__file__ = job["program"]
    sys.modules["__main__"] = module
    with open(job["program"], encoding="utf-8") as file:
        code = compile(file.read(), job["program"], "exec")
    exec(code, module.__dict__)


def wait_for(ranks, timeout):
    """The exit status of the job."""
    until, status = time.monotonic() + timeout, 0
    while ranks:
        pid, ended = os.waitpid(-1, os.WNOHANG)
        if pid in ranks:
            ranks.remove(pid)
            if ended != 0 and status == 0:
                status, until = 1, min(until, time.monotonic() + GRACE)
        elif pid == 0 and time.monotonic() > until:
            for rank in ranks:
                os.kill(rank, signal.SIGKILL)
            return status or 124
        elif pid == 0:
            time.sleep(0.005)
    return status


def run_agent(job):
    """In a process of its own, so that the store's threads are not forked again. Returns in each
    rank, after its program; the agent exits."""
    output = {name: os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
              for name in ("stdout", "stderr")}
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    variables = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1]),
        "WORLD_SIZE": str(job["size"]), "LOCAL_WORLD_SIZE": str(job["size"]),
        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(job["size"]), "TORCHELASTIC_RUN_ID": str(uuid.uuid4()),
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    ranks = []
    for rank in range(job["size"]):
        pid = os.fork()
        if pid == 0:
            listener.close()
            variables.update(RANK=str(rank), LOCAL_RANK=str(rank), ROLE_RANK=str(rank))
            run_rank(job, variables, output)
            return
        ranks.append(pid)
    store = torch.distributed.TCPStore(
        "127.0.0.1", int(variables["MASTER_PORT"]), is_master=True, wait_for_workers=False,
        master_listen_fd=listener.detach())
    status = wait_for(ranks, job["timeout"])
    del store  # which has served until here
    os._exit(status)


def main():
    # Else each rank's collector goes over all of torch's objects and copies their pages: more than
    # half of a rank's time.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        agent = os.fork()
        if agent == 0:
            run_agent(json.loads(line))
            return  # a rank
        print(os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
