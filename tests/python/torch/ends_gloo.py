# SPDX-License-Identifier: MIT
"""Imported first by each program that the fixture `torchrun` runs: ends gloo's threads before the
interpreter.

A thread of gloo drops a call's tensors after the call's wait() has returned, and takes the GIL for
it. An interpreter that is ending answers by ending the thread, through a destructor that must not
throw: "terminate called without an active exception" (torch 2.11). destroy_process_group joins the
threads if nothing else refers to the group, and a program's variables often do.
"""

import atexit
import gc
import os
import sys
from pathlib import Path


def _threads():
    return [task.name for task in Path("/proc/self/task").iterdir()
            if "gloo_run" in (task / "comm").read_text()]


def _end():
    if not _threads():
        return
    from torch import distributed

    program = vars(sys.modules["__main__"])
    for name in [name for name in program if not name.startswith("__")]:
        del program[name]
    if distributed.is_initialized():
        distributed.destroy_process_group()
    gc.collect()
    if _threads() and not hasattr(sys, "last_value"):  # else its traceback may hold the group
        print("ends_gloo: something still refers to a process group", file=sys.stderr, flush=True)
        os._exit(1)


atexit.register(_end)
