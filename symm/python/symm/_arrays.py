# SPDX-License-Identifier: MIT
"""Buffers as arrays of torch and numpy, for the types that their protocols leave out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Buffer

_FLOAT8 = {"float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def as_torch(buffer: Buffer) -> Any:
    """A torch.Tensor over the buffer's memory."""
    import torch
    from torch.utils.dlpack import from_dlpack

    tensor = from_dlpack(buffer)
    if buffer.dtype in _FLOAT8:
        return tensor.view(getattr(torch, _FLOAT8[buffer.dtype]))
    return tensor


def as_numpy(buffer: Buffer) -> Any:
    """A numpy.ndarray over the buffer's memory."""
    import numpy

    if buffer.dtype != "bfloat16" and buffer.dtype not in _FLOAT8:
        return numpy.asarray(buffer)
    ml_dtypes = importlib.import_module("ml_dtypes")  # it has no types of its own
    return numpy.asarray(buffer).view(getattr(ml_dtypes, _FLOAT8.get(buffer.dtype, buffer.dtype)))
