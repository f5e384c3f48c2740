"""Convolutions of which sizes are not known, beside stock TVM: ``python -m bench.cpu.open_windows``.

One thread, in turns, the best of some rounds; results are compared. "Open" says which sizes the program does not know.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Final

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.targets.cpu.target import normalize_target

ROUNDS: Final = 15
SIZES: Final = [
    {"n": 1, "c": 64, "h": 56, "w": 56, "o": 64, "r": 3, "s": 3},
    {"n": 2, "c": 32, "h": 14, "w": 14, "o": 32, "r": 1, "s": 1},
    {"n": 1, "c": 16, "h": 7, "w": 7, "o": 512, "r": 3, "s": 3},
    {"n": 4, "c": 8, "h": 28, "w": 9, "o": 8, "r": 5, "s": 5},
]
OPEN: Final = ("nchwors", "nhwrs", "rs", "nhw")


def convolution(sizes: dict[str, int], unknown: str) -> tvm.IRModule:
    """NCHW by OIHW with a border of one; the sizes called ``unknown`` are symbols."""
    own = {name: tirx.Var(name, "int64") if name in unknown else size for name, size in sizes.items()}
    x, w = (
        relax.Var(name, relax.TensorType([own[axis] for axis in axes], "float32"))
        for name, axes in (("x", "nchw"), ("w", "ocrs"))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.nn.conv2d(x, w, padding=1)))
        builder.emit_func_output(result)
    return builder.get()


def seconds(machines: Sequence[Any], inputs: Sequence[Any]) -> list[float]:
    """The best of each, in turns."""
    found = [float("inf")] * len(machines)
    for _ in range(ROUNDS):
        for number, machine in enumerate(machines):
            start = time.perf_counter()
            machine["main"](*inputs)
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def main() -> None:
    table = Table("open", "n c h w, results, window", "ours, ms", "stock TVM, ms", "stock / ours", "largest difference")
    target, rng = normalize_target(), np.random.default_rng(0)
    for unknown in OPEN:
        for sizes in SIZES:
            mod = convolution(sizes, unknown)
            built = eqsat_layout.compile(mod, target), tvm.compile(mod, target)
            machines = [relax.VirtualMachine(one, tvm.cpu()) for one in built]
            shapes = [[sizes[axis] for axis in axes] for axes in ("nchw", "ocrs")]
            inputs = [tvm.runtime.tensor(rng.standard_normal(shape, "float32")) for shape in shapes]
            ours, stock = (machine["main"](*inputs).numpy() for machine in machines)
            own, other = seconds(machines, inputs)
            row = [f"{1e3 * own:.3f}", f"{1e3 * other:.3f}", f"{other / own:.1f}", f"{abs(ours - stock).max():.1e}"]
            table.add_row(unknown, " ".join(map(str, sizes.values())), *row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
