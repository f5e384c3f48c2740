"""What a program for CUDA launches, as tables: of networks, and of the kernels of each.

In: a network's module and a target. Out: rows, and their text. What an assembler says is there where a compiler is;
seconds are those of the cost model: modelled, not measured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tvm

import eqsat_layout
from bench.beside_cpu import difference, on_cpu
from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.compiler import KernelFacts, available_compiler, machine_code
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS
from eqsat_layout.targets.cuda.kernels.product_model import dtype_of_flops
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.target import CudaTarget, make_target
from eqsat_layout.validation.inputs import arrays_in, random_inputs

Row = dict[str, Any]
Columns = Sequence[tuple[str, str, str]]

_SYMBOL: Final = 1
_STREAMED: Final = "stream-K"
_TENSOR_CORES: Final = ("tensor cores", "warp groups", "warp groups, TMA")
_MICRO: Final = ("modelled", "floor")

NETWORKS: Final[Columns] = (
    ("network", "network", "{}"),
    ("batch", "batch", "{:d}"),
    ("precision", "precision", "{}"),
    ("machine", "machine", "{}"),
    ("launches", "launches", "{:d}"),
    ("kernels", "kernels", "{:d}"),
    ("tensor_cores", "mma", "{:d}"),
    ("streamed", "stream-K", "{:d}"),
    ("alone", "one thread", "{:d}"),
    ("registers", "registers", "{:d}"),
    ("spilled", "spilled", "{:d}"),
    ("modelled", "model us", "{:.1f}"),
    ("floor", "floor us", "{:.1f}"),
    ("share", "share", "{:.2f}"),
    ("gap", "gap", "{:.1f}"),
    ("plan_seconds", "plan s", "{:.1f}"),
    ("compile_seconds", "compile s", "{:.1f}"),
    ("peak_bytes", "bytes", "{:d}"),
    ("error", "error", "{:.1e}"),
)
KERNELS: Final[Columns] = (
    ("kernel", "kernel", "{}"),
    ("family", "runs as", "{}"),
    ("sums", "sums", "{}"),
    ("launches", "launches", "{:d}"),
    ("blocks", "blocks", "{:d}"),
    ("threads", "threads", "{:d}"),
    ("registers", "registers", "{:d}"),
    ("spilled", "spilled", "{:d}"),
    ("shared", "shared", "{:d}"),
    ("modelled", "model us", "{:.2f}"),
    ("floor", "bytes us", "{:.2f}"),
)


CUT: Final = "tensorfloat32"
"""A precision: float32 with products of 10 bits of each operand."""


def options_of(precision: str) -> Any:
    """Of ``compile``."""
    return {} if precision in ("float32", CUT) else {"precision": precision}


def of_precision(target: CudaTarget, precision: str) -> CudaTarget:
    """``target`` as it computes products in a precision."""
    if precision != CUT:
        return target
    said = {"kind": target.kind, "arch": str(target.tvm.attrs["arch"]), CUT: True}
    known = {"model": str(target.tvm.attrs["model"])} if "model" in target.tvm.attrs else {}
    return make_target({**said, **known}, target.approx)


def row_of(name: str, mod: tvm.IRModule, target: CudaTarget, precision: str, simulate: bool) -> tuple[Row, list[Row]]:
    """A network on a machine, and its kernels."""
    options, target = options_of(precision), of_precision(target, precision)
    start = time.process_time()
    plan = eqsat_layout.plan(mod, target, **options)
    planned = time.process_time()
    notes: list[str] = []
    made = eqsat_layout.compile(mod, target, notes=notes, **options)
    compiled = time.process_time()
    kernels = kernels_of(made, target.machine)
    floor = floor_of(mod, target.machine, precision)
    found = {
        "network": name,
        "precision": precision,
        "launches": sum(kernel["launches"] for kernel in kernels),
        "kernels": len(kernels),
        "tensor_cores": sum(kernel["launches"] for kernel in kernels if kernel["family"] in _TENSOR_CORES),
        "streamed": sum(kernel["launches"] for kernel in kernels if kernel["sums"] == _STREAMED),
        "alone": sum("runs in one thread" in note for note in notes),
        "modelled": plan.cost,
        "floor": floor,
        "share": floor / plan.cost,
        "gap": plan.gap,
        "plan_seconds": planned - start,
        "compile_seconds": compiled - planned,
        "peak_bytes": made.plan.bytes,
    }
    if available_compiler() is not None:
        found["registers"] = max((kernel["registers"] for kernel in kernels), default=0)
        found["spilled"] = sum(kernel["spilled"] for kernel in kernels)
    if simulate:
        inputs = list(arrays_in(random_inputs(mod["main"], 1, 0)))
        found["error"] = difference(simulated(made, order=2)(*inputs), on_cpu(mod, inputs))
    return found, kernels


def kernels_of(program: CudaProgram, machine: CudaMachine) -> list[Row]:
    """In the order in which they are launched first. ``floor``: the bytes of their memories, moved once. ``modelled``:
    by the model that chose the kernel; of others the bytes and the launch."""
    launches = [launch for function in program.plan.functions for launch in function.launches]
    counts = Counter(launch.kernel for launch in launches)
    facts = _facts(program)
    found = []
    for launch in {launch.kernel: launch for launch in reversed(launches)}.values():
        sizes = [program.plan.memories[a.memory].bytes for a in launch.arguments if a.memory is not None]
        moved = sum(size for size in sizes if isinstance(size, int))
        known = facts.get(launch.kernel)
        row = {
            "kernel": launch.kernel,
            "family": family_of(program.sources[launch.kernel]),
            "sums": sums_of(program.sources[launch.kernel]),
            "launches": counts[launch.kernel],
            "blocks": _product(launch.groups),
            "threads": _product(launch.items),
            "modelled": program.modelled.get(launch.kernel, machine.launch_seconds + moved / machine.bandwidth),
            "floor": moved / machine.bandwidth,
        }
        if known is not None:
            row |= {"registers": known.registers, "spilled": known.spilled_bytes}
        if isinstance(launch.shared, int) and known is not None:
            row["shared"] = launch.shared + known.shared_bytes
        found.append(row)
    return found[::-1]


def family_of(source: str) -> str:
    """What its text says of how it runs."""
    if "wgmma.mma_async" in source:
        return "warp groups, TMA" if "cp.async.bulk.tensor" in source else "warp groups"
    if "mma.sync" in source:
        return "tensor cores"
    if "__shfl" in source:
        return "rows"
    return "tiles" if "__shared__" in source else "threads"


def sums_of(source: str) -> str | None:
    """How its text says that blocks share the sums of a tile; ``None``: they don't."""
    if "arrived_ptr" not in source:
        return None
    return "split" if "blockIdx.y" in source else _STREAMED


def _facts(program: CudaProgram) -> dict[str, KernelFacts]:
    if available_compiler() is None:
        return {}
    built = machine_code(list(program.sources.values()), program.arch)
    return {name: facts for one in built for name, facts in one.kernels.items()}


def _product(sizes: Sequence[Any]) -> int | None:
    """``None`` where a size is known at run time only."""
    return int(np.prod(sizes)) if all(isinstance(size, int) for size in sizes) else None


def floor_of(mod: tvm.IRModule, machine: CudaMachine, precision: str) -> float:
    """Seconds that the contractions as written take at least, one by one: every tensor moved once, or every operation
    done at peak. What is elementwise may be part of them."""
    program = import_module(mod)
    nodes = [node for graph in program.graphs for node in graph.nodes if node.kind == "op"]
    return sum(_floor(program.signatures[node.signature], machine, precision) for node in nodes)


def _floor(op: Signature, machine: CudaMachine, precision: str) -> float:
    if op.computation is None or not op.computation.is_contraction:
        return 0.0
    tensors = [ty for ty in (*op.operands, *op.results) if ty is not None]
    own = "float32" if precision == CUT else precision
    dtypes = [own if ty.dtype == "float32" else ty.dtype for ty in tensors]
    elements = [np.prod([e if isinstance(e, int) else _SYMBOL for e in ty.shape]) for ty in tensors]
    moved = sum(dtype_bytes(dtype) * count for dtype, count in zip(dtypes, elements, strict=True))
    return float(max(moved / machine.bandwidth, op.computation.flops / _peak(dtypes[0], machine, precision)))


def _peak(dtype: str, machine: CudaMachine, precision: str) -> float:
    """Operations a second of products on the fastest units that do them; of other types the ordinary ones."""
    if dtype == "float32":
        return machine.flops[CUT] / (1 if precision == CUT else ARITHMETICS["float32"].products)
    arithmetic = ARITHMETICS.get(dtype)
    return machine.flops["float32" if arithmetic is None else dtype_of_flops(arithmetic)]


def shown(rows: Sequence[Row], columns: Columns) -> str:
    """A table; what is not known is a dash."""
    lines = [[title for _, title, _ in columns]]
    lines += [[_cell(key, row.get(key), form) for key, _, form in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cell(key: str, value: Any, form: str) -> str:
    return "-" if value is None else form.format(value * 1e6 if key in _MICRO else value)
