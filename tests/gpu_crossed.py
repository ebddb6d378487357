# SPDX-License-Identifier: MIT
"""Streams in crossed order beside NCCL, under torchrun.

torchrun --nproc-per-node 2 tests/gpu_crossed.py, with SYMM_LIBRARY naming libsymm.so. Each
rank queues the same lists of collectives, one list for each stream, but the streams in its own
order: 2, 3 and 6 streams, 1 and 2 teams, 4 calls in a row with a kernel of the program after
each, and among them an all_reduce of NCCL on one more stream. All calls must end, with the
right sums. CROSSED_ROUNDS (6), CROSSED_SEED (1) and CROSSED_SECONDS (160, in total) change the
length. Exit status 77 without PyTorch or with one GPU. With SYMM_OVERSUBSCRIBE=1 ranks share GPUs,
and a product of matrices takes NCCL's place, which refuses to share one.
"""

import ctypes
import os
import random
import signal
import sys

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

FLOAT32, SUM = 1, 0
DEEP = 4
MOST = 4 << 20  # elements of one rank's block
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
COUNTS = (256, 16384, 262144, 1 << 20, MOST)
POINTER = ctypes.c_void_p


class Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("site", ctypes.c_char_p),
        ("stream", POINTER),
        ("algorithm", ctypes.c_char_p),
        ("numerics", ctypes.c_uint32),
        ("timeout", ctypes.c_double),
        ("channel", ctypes.c_int),
    ]


class Memory:
    """Device memory at an address, as torch.as_tensor takes it."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3
        }


class Symm:
    """The few functions that are used here; a status other than 0 raises its sentence."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.symm_last_error.restype = ctypes.c_char_p
        for name in ("symm_team_world", "symm_buffer_ptr"):
            getattr(self.lib, name).restype = POINTER
            getattr(self.lib, name).argtypes = [POINTER]
        for name in ("symm_team_destroy", "symm_finalize"):
            getattr(self.lib, name).argtypes = [POINTER]
            getattr(self.lib, name).restype = None
        self.ctx = POINTER()
        self.check(self.lib.symm_init(None, ctypes.byref(self.ctx)))
        self.world = POINTER(self.lib.symm_team_world(self.ctx))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.symm_last_error().decode())

    def split(self, rank):
        team = POINTER()
        self.check(self.lib.symm_team_split(self.world, 0, rank, ctypes.byref(team)))
        return team

    def empty(self, team, count):
        buffer = POINTER()
        self.check(
            self.lib.symm_empty_strided_p2p(
                team, 1, (ctypes.c_int64 * 1)(count), (ctypes.c_int64 * 1)(1), FLOAT32,
                ctypes.c_uint64(0), ctypes.byref(buffer),
            )
        )
        address = self.lib.symm_buffer_ptr(buffer)
        return torch.as_tensor(Memory(address, count), device="cuda")

    def collective(self, team, kind, source, target, count, stream, site, channel=0):
        call = Call(ctypes.sizeof(Call), site, stream.cuda_stream, None, 0, 15.0, channel)
        last = {"all_reduce": (SUM,), "reduce_scatter": (SUM,), "broadcast": (0,)}
        self.check(
            getattr(self.lib, "symm_" + kind)(
                team, POINTER(source.data_ptr()), POINTER(target.data_ptr()),
                ctypes.c_size_t(count), FLOAT32, *last.get(kind, ()), ctypes.byref(call),
                None,
            )
        )


def wanted(kind, world, stream):
    """What each of the result's blocks holds; inputs hold 1 + rank + 10 * stream."""
    each = [float(1 + r + 10 * stream) for r in range(world)]
    if kind in ("all_reduce", "reduce_scatter"):
        return [sum(each)]
    return each[:1] if kind == "broadcast" else each


def other_work(side, array, group):
    """Sums of the array by NCCL on a stream of their own; without a group, what takes their place."""
    with torch.cuda.stream(side):
        if group:
            dist.all_reduce(array, group=group)
        else:
            square = array.view(2048, -1)
            torch.mm(square, square.T)
            array.fill_(float(dist.get_world_size()))


class Case:
    """The memory of some teams and streams."""

    def __init__(self, symm, rank, world, teams, streams):
        self.symm, self.rank, self.world = symm, rank, world
        self.streams = [torch.cuda.Stream() for _ in range(streams)]
        self.own = [torch.zeros(1 << 20, device="cuda") for _ in self.streams]
        self.teams, self.arrays = [], []
        for _ in range(teams):
            team = symm.split(rank)
            self.teams.append(team)
            self.arrays.append(
                [(symm.empty(team, MOST), symm.empty(team, MOST)) for _ in self.streams]
            )
            symm.check(symm.lib.symm_rendezvous(team))
            for k, (source, _) in enumerate(self.arrays[-1]):
                source.fill_(float(1 + rank + 10 * k))
        torch.cuda.synchronize()

    def plan(self, seed):
        """The streams' lists: (team, kind, elements of one rank's block) of each call."""
        shared = random.Random(seed)
        return [
            [
                (shared.randrange(len(self.teams)), shared.choice(KINDS),
                 shared.choice(COUNTS) // self.world)
                for _ in range(DEEP)
            ]
            for _ in self.streams
        ]

    def round(self, seed, side, nccl):
        lists = self.plan(seed)
        mine = random.Random(seed * 7919 + self.rank)
        turns = list(range(len(lists))) + [-1]
        if mine.random() < 0.5:
            turns = [k for k in turns for _ in range(DEEP if k >= 0 else 1)]
            mine.shuffle(turns)
        else:
            mine.shuffle(turns)
            turns = [k for k in turns for _ in range(DEEP if k >= 0 else 1)]
        done = [0] * len(lists)
        nccl.fill_(1.0)
        torch.cuda.synchronize()
        dist.barrier(group=self.group)
        for k in turns:
            if k < 0:
                other_work(side, nccl, self.nccl)
                continue
            team, kind, count = lists[k][done[k]]
            done[k] += 1
            source, target = self.arrays[team][k]
            self.symm.collective(self.teams[team], kind, source, target, count,
                                 self.streams[k], b"stream%d" % k)
            with torch.cuda.stream(self.streams[k]):
                self.own[k].add_(1)
        torch.cuda.synchronize()
        for k, calls in enumerate(lists):
            self.check(k, calls, seed)
        assert bool((nccl == float(self.world)).all()), f"seed {seed}: NCCL's sum"

    def check(self, k, calls, seed):
        """The last call of a stream on each team that it used."""
        for team, kind, count in {call[0]: call for call in calls}.values():
            target = self.arrays[team][k][1]
            for b, value in enumerate(wanted(kind, self.world, k)):
                block = target[b * count:(b + 1) * count]
                assert bool((block == value).all()), (
                    f"seed {seed}: rank {self.rank}, stream {k}, {kind} of {count}: block "
                    f"{b} holds {block[0].item()}, not {value}"
                )

    def close(self):
        for team in self.teams:  # tells of an error of its calls
            call = Call(ctypes.sizeof(Call), None, None, None, 0, 15.0, 0)
            self.symm.check(self.symm.lib.symm_barrier(team, ctypes.byref(call), None))
        torch.cuda.synchronize()
        self.arrays = []
        for team in self.teams:
            self.symm.lib.symm_team_destroy(team)


def main():
    devices, shared = torch.cuda.device_count(), os.environ.get("SYMM_OVERSUBSCRIBE") == "1"
    if (devices < 2 and not shared) or int(os.environ["WORLD_SIZE"]) < 2:
        sys.exit(77)
    signal.alarm(int(os.environ.get("CROSSED_SECONDS", "160")))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % devices)
    dist.init_process_group("gloo")
    Case.group = dist.group.WORLD
    Case.nccl = None if shared else dist.new_group(backend="nccl")
    symm = Symm(os.environ["SYMM_LIBRARY"])
    side, nccl = torch.cuda.Stream(), torch.ones(8 << 20, device="cuda")
    other_work(side, nccl, Case.nccl)  # makes NCCL's communicator, which waits for the device
    seed = int(os.environ.get("CROSSED_SEED", "1"))
    for teams, streams in ((1, 2), (2, 2), (1, 3), (2, 3), (1, 6), (2, 6)):
        case = Case(symm, rank, world, teams, streams)
        for own in case.own:  # loads the kernel that runs behind calls
            own.add_(1)
        bool((case.own[0] == 1.0).all())
        for _ in range(int(os.environ.get("CROSSED_ROUNDS", "6"))):
            case.round(seed, side, nccl)
            seed += 1
        case.close()
        if rank == 0:
            print(f"{teams} teams x {streams} streams: right", flush=True)
    dist.barrier(group=Case.group)
    symm.lib.symm_finalize(symm.ctx)


if __name__ == "__main__":
    main()
