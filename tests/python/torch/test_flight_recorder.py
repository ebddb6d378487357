# SPDX-License-Identifier: MIT
"""symm-info dump --format torch: PyTorch's fr_trace reads it and names the planted fault."""

import subprocess

import pytest

import symm

# One call of each kind, alike on all ranks, then one in which rank 1 differs or is missing.
PROGRAM = """
    import sys, time
    import numpy as np
    import symm
    with symm.init(timeout=4) as ctx:  # of the last call; the others end in time
        world, x, big = ctx.world, np.ones(8, np.float32), np.ones(24, np.float32)
        rank = world.rank
        world.all_reduce(x, site="a")
        world.all_reduce_norm(x.reshape(1, 8), sum_out=np.empty((1, 8), np.float32), site="b")
        world.reduce_scatter(x, big, site="c")
        world.all_gather(big, x, site="d")
        world.broadcast(x, 2, site="e")
        world.all_to_all(np.empty_like(big), big, site="f")
        world.barrier(site="g")
        target = world.empty(8)
        world.rendezvous()
        world.put(target, x, (rank + 1) % 3, signal=1, site="left out")
        world.signal_wait((rank + 2) % 3, 1, site="left out")
        for turn in range(2):
            for sender in range(3):
                if rank == sender:
                    world.send(x, (rank + 1) % 3, site="h")
                elif rank == (sender + 1) % 3:
                    world.recv(x, sender, site="i")
        try:
            if rank == 1 and sys.argv[1] == "differs":
                time.sleep(1)  # a rank that comes after the failure makes no call
            if rank == 0 and sys.argv[1] == "message":
                world.send(big, 1, site="planted")  # the third one
            if rank == 1 and sys.argv[1] != "differs":
                world.signal_wait(0, 2, timeout=20)  # until it hears of the failure
            world.all_reduce(x if rank != 1 else big, site="planted")
        except symm.Error:
            time.sleep(0.5)  # symmrun ends the others when this one has ended
"""


def read_by_torch(folder, caplog):
    """What `python -m torch.distributed.flight_recorder.fr_trace FOLDER` prints."""
    from torch.distributed.flight_recorder import fr_trace

    caplog.clear()
    fr_trace.main([str(folder)])
    return "\n".join(record.getMessage() for record in caplog.records)


def reports(text):
    """The sequence numbers that fr_trace complains of."""
    lines = [line for line in text.splitlines() if "sequence number" in line]
    return [int(word) for line in lines for word in line.replace(":", " ").split()
            if word.isdigit()]


@pytest.mark.parametrize("mode", ["differs", "missing", "message"])
def test_fr_trace(symmrun, tmp_path, caplog, mode):
    left, out = tmp_path / "left", tmp_path / "out"
    left.mkdir()
    symmrun(3, PROGRAM, mode, check=False, SYMM_DUMP=str(left))
    assert len(list(left.glob("*.json"))) == 3
    subprocess.run([symm.executable("symm-info"), "dump", "--format", "torch", "-o", out, left],
                   check=True, timeout=60)
    text = read_by_torch(out, caplog)
    if mode == "message":
        assert "messages from rank 0 to rank 1" in text and "nccl:send 0->1" in text, text
        assert "messages from rank 1" not in text and "messages from rank 2" not in text, text
    assert reports(text) == ([8, 3] if mode == "message" else [8]), text
    assert "collective: nccl:all_reduce" in text and "world size: 3" in text
    if mode != "differs":
        assert "missing ranks: {1}" in text, text
        return
    # fr_trace takes the rank whose file it reads first for right.
    right = "input sizes: [[8]]" in text
    culprits = {rank for rank in range(3) if f"Culprit rank {rank};" in text}
    assert culprits == ({1} if right else {0, 2}), text
    assert ("'[[24]]'" in text) and "SIZE_OR_SYNTAX_MISMATCH" in text
