"""Results of devices beside those of the CPU.

In: a module and inputs, or two results. Out: arrays, or the greatest difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

import eqsat_layout
from bench.results import flat


def on_cpu(mod: Any, inputs: Sequence[Any]) -> list[Any]:
    """What our program for the CPU makes of arrays."""
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    return flat(machine["main"](*map(tvm.runtime.tensor, inputs)))


def difference(got: Any, expected: Sequence[Any]) -> float:
    """The greatest difference, relative to the greatest number of each result."""
    pairs = list(zip(flat(got), expected, strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
