"""Which buffers of kernels are stack memory.

In: a buffer. Out: whether :func:`eqsat_layout.targets.cpu.lowering.pipeline_name`'s passes put it on the stack; TVM
allocates workspace for the others.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm
from tvm import tirx

_LARGEST: Final = 1 << 14


def is_on_stack(buffer: Any) -> bool:
    """Small "local" ones of known size."""
    shape = list(buffer.shape)
    if buffer.scope() != "local" or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return False
    bits = int(tvm.DataType(str(buffer.dtype)).bits)
    return math.prod(int(extent) for extent in shape) * ((bits + 7) // 8) <= _LARGEST


def kept_on_stack(allocation: Any) -> Any:
    """The allocation as one of stack memory."""
    annotations = dict(allocation.annotations) if allocation.annotations else {}
    annotations["disable_lower_builtin"] = tirx.IntImm("int32", 1)
    return tirx.AllocBuffer(allocation.buffer, annotations)
