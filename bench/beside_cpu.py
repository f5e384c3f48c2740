"""Results of devices beside those of the CPU.

In: a module and inputs, or two results. Out: arrays, or the greatest difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

import eqsat_layout


def on_cpu(mod: Any, inputs: Sequence[Any]) -> list[Any]:
    """What our program for the CPU makes of arrays."""
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    return list(leaves(machine["main"](*map(tvm.runtime.tensor, inputs))))


def difference(got: Any, expected: Sequence[Any]) -> float:
    """The greatest difference, relative to the greatest number of each result."""
    pairs = list(zip(leaves(got), expected, strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def leaves(value: Any) -> Iterator[Any]:
    """Arrays, one after the other."""
    if isinstance(value, np.ndarray) or hasattr(value, "numpy"):
        yield value if isinstance(value, np.ndarray) else value.numpy()
    else:
        for one in value:
            yield from leaves(one)
