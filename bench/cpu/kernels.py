"""Kernels one by one: ``python -m bench.cpu.kernels [--family NAME ...] [--threads N] [--quick]``.

Each runs on operands that are not in cache, in turns with the same op of oneDNN through torch where torch is installed
(blocked tensors, weights packed before). Beside the time: the share of the machine's peak, which is measured first, in
floating point operations or in bytes a second, whatever an op needs more of. Needs torch for the comparison only.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.cpu.kernel_families import Kernel, kernels

ROUNDS, QUICK_ROUNDS = 9, 3
PASSES = 5
"""Runs of a whole module in a turn."""
REST = 0.05
"""Seconds before every turn: threads of the one before spin for some milliseconds, on cores that the next needs."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h, which takes 32 MiB at most for the second
WIDTH = 140


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", metavar="NAME", help="families whose names contain one of these")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from eqsat_layout.targets.cpu.target import make_target

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    with_torch = _has_torch(options.threads)
    block = make_target(None, True).blocks[-1]
    wanted = [k for k in kernels(block) if not options.family or any(f in k.family for f in options.family)]
    with console.status("peaks"):
        flops, bandwidth = peaks()
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("kernel", no_wrap=True)
    for name in ("us", "GFLOP/s", "GB/s", "of peak", "oneDNN us", "times as long"):
        table.add_column(name, justify="right", no_wrap=True)
    ratios: list[float] = []
    family = ""
    for kernel in wanted:
        with console.status(f"{kernel.family}: {kernel.name}"):
            own, theirs = measure(kernel, QUICK_ROUNDS if options.quick else ROUNDS, with_torch)
        if kernel.family != family:
            family = kernel.family
            table.add_row(f"[bold]{family}[/]")
        share = max(kernel.flops / flops, kernel.bytes / bandwidth) / own
        cells = [f"{own * 1e6:.1f}", f"{kernel.flops / own / 1e9:.1f}" if kernel.flops else ""]
        cells += [f"{kernel.bytes / own / 1e9:.1f}", f"{share:.0%}"]
        if theirs is not None:
            ratios.append(theirs / own)
            style = "red" if theirs < own else "green"
            cells += [f"{theirs * 1e6:.1f}", f"[{style}]{theirs / own:.2f}[/]"]
        table.add_row(f"  {kernel.name}", *cells)
    console.print(table)
    console.print(f"peak: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s, {options.threads} threads")
    if ratios:
        console.print(f"oneDNN takes {statistics.geometric_mean(ratios):.2f} times as long (geometric mean)")


def _has_torch(threads: int) -> bool:
    try:
        import torch
    except ImportError:
        return False
    torch.set_num_threads(threads)
    _keep_memory()
    return True


def _keep_memory() -> None:
    """Has malloc keep what is freed, as TVM's pool does: torch's results would else be fresh pages in every run."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, most in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 2**31 - 1)):
        if mallopt is None or not mallopt(parameter, most):
            print("malloc gives memory back here: torch's figures have page faults in them")
            return


# ---- measuring --------------------------------------------------------------------------------------------------


def peaks() -> tuple[float, float]:
    """Floating point operations and bytes a second, of all threads: of tiles that stay in L1, and of a large copy."""
    import numpy as np
    from tvm import relax, te

    from eqsat_layout.targets.cpu.target import make_target
    from eqsat_layout.tuning.probe import Here, Probe

    target = make_target(None, True)
    here, machine = Here(target), target.machine
    lanes = machine.lanes(4)
    rows, depth = (6, 256) if machine.registers <= 16 else (12, 128)
    tasks, rounds = 64, 64

    def tile(x: Any, w: Any) -> Any:
        again, k = te.reduce_axis((0, rounds), "again"), te.reduce_axis((0, depth), "k")
        shape = (tasks, rows, 2 * lanes)
        return te.compute(shape, lambda t, r, c: te.sum(x[r, k] * w[k, c], axis=[again, k]), name="tile")

    def hot(builder: Any, given: Sequence[Any]) -> Any:
        return builder.emit(builder.call_te(tile, *given))

    operands = [np.ones((rows, depth), "float32"), np.ones((depth, 2 * lanes), "float32")]
    with Probe("peak of arithmetic", hot, operands, 4 * tasks * rows * 2 * lanes, here) as probe:
        flops = 2.0 * tasks * rounds * rows * 2 * lanes * depth / min(probe.times(15))
    elements = 4 * target.cache_bytes // 4
    source = np.ones((elements,), "float32")

    def stream(builder: Any, given: Sequence[Any]) -> Any:
        return builder.emit(relax.op.negative(given[0]))

    with Probe("peak of bandwidth", stream, [source], 4 * elements, here) as probe:
        return flops, 8.0 * elements / min(probe.times(15))


def measure(kernel: Kernel, rounds: int, with_torch: bool) -> tuple[float, float | None]:
    """Median seconds of ours, and of torch."""
    import numpy as np
    import tvm
    from tvm import relax

    import eqsat_layout
    from eqsat_layout.targets.registry import target
    from eqsat_layout.tuning.probe import Here, Probe

    operands = [np.random.default_rng(0).uniform(0.5, 1.5, s).astype("float32") for s in kernel.shapes]

    def emit(builder: Any, given: Sequence[Any]) -> Any:
        if getattr(kernel.emit, "needs_builder", False):
            return kernel.emit(builder, *given)
        return builder.emit(kernel.emit(*given))

    if kernel.whole:
        run = _whole(kernel, operands, eqsat_layout, tvm, relax)
        copies, passes = 1, PASSES
    else:
        probe = Probe(kernel.name, emit, operands, 4 * math.prod(kernel.result), Here(target()))
        run, copies, passes = probe.run, probe.kernels, 1
    other = TorchProbe(kernel, copies, passes) if with_torch and kernel.torch is not None else None
    seconds = [(_rested(run), _rested(other.run) if other else math.nan) for _ in range(rounds)]
    own, theirs = (statistics.median(column) for column in zip(*seconds, strict=True))
    return own, None if other is None else theirs


def _rested(run: Callable[[], float]) -> float:
    time.sleep(REST)
    run()  # wakes its threads
    return run()


def _whole(kernel: Kernel, operands: Sequence[Any], eqsat_layout: Any, tvm: Any, relax: Any) -> Callable[[], float]:
    """The op alone in a module, its weights constant, compiled as users do."""
    data = relax.Var("x", relax.TensorType(kernel.shapes[0], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            weights = [relax.const(a) for a in operands[1:]]
            out = builder.emit_output(kernel.emit(data, *weights))
        builder.emit_func_output(out)
    main = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())["main"]
    argument = tvm.runtime.tensor(operands[0])

    def run() -> float:
        start = time.perf_counter()
        for _ in range(PASSES):
            main(argument)
        return (time.perf_counter() - start) / PASSES

    run()
    return run


class TorchProbe:
    """As :class:`eqsat_layout.tuning.probe.Probe`: one run after the other on operands that are not in cache.

    ``passes``: so often over all copies of the operands.
    """

    def __init__(self, kernel: Kernel, copies: int, passes: int):
        import torch

        assert kernel.torch is not None
        given = [[torch.rand(*shape) for shape in kernel.shapes] for _ in range(copies)]
        self._runs = [kernel.torch(operands) for operands in given]
        self._passes = passes
        for _ in range(2):
            self.run()

    def run(self) -> float:
        import torch

        results: list[Any] = []
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(self._passes):
                results = [run() for run in self._runs]
        seconds = time.perf_counter() - start
        return seconds / (len(results) * self._passes)


if __name__ == "__main__":
    main()
