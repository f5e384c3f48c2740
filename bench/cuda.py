"""What programs for CUDA devices launch and hold, beside the machine's floor: ``python bench/cuda.py --no-device``.

In: names of networks and of a machine. Out: a table and, with ``--json``, the rows: launches, kernels, how many of them
multiply on tensor cores, the most registers and spilled bytes where a compiler is, modelled seconds, and the share of
them that the floor is: every tensor moved once at the bandwidth of memory or every operation done at peak, op by op,
without launches. ``--simulate`` runs the program on the simulator and compares it with the CPU. Nothing here is
measured on a card: this machine has none, and timing on one is not written yet.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tvm
from texture import NETWORKS, difference_from_cpu

import eqsat_layout
from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.compiler import available_compiler, machine_code
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.machines import MACHINES
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import flat, random_inputs

_TENSOR_CORES: Final = "mma.sync"
_SYMBOL: Final = 1


def row(name: str, model: str, simulate: bool) -> dict[str, Any]:
    """One network on one machine."""
    mod = NETWORKS[name]()
    target = target_of({"kind": "cuda", "arch": MACHINES[model].arch, "model": model})
    assert isinstance(target, CudaTarget)
    start = time.process_time()
    plan = eqsat_layout.plan(mod, target)
    planned = time.process_time() - start
    made = eqsat_layout.compile(mod, target)
    launches = [launch for function in made.plan.functions for launch in function.launches]
    floor = floor_of(mod, target.machine)
    found = {
        "network": name,
        "machine": model,
        "launches": len(launches),
        "kernels": len(made.sources),
        "tensor_cores": sum(_TENSOR_CORES in made.sources[launch.kernel] for launch in launches),
        "modelled": plan.cost,
        "floor": floor,
        "share": floor / plan.cost,
        "gap": plan.gap,
        "plan_seconds": planned,
        "peak_bytes": made.plan.bytes,
        **(facts_of(made) if available_compiler() is not None else {}),
    }
    return found | ({"error": error_of(mod, made)} if simulate else {})


def floor_of(mod: tvm.IRModule, machine: CudaMachine) -> float:
    """Seconds that the ops as written take at least, one by one."""
    program = import_module(mod)
    nodes = [node for graph in program.graphs for node in graph.nodes if node.kind == "op"]
    return sum(_floor(program.signatures[node.signature], machine) for node in nodes)


def _floor(op: Signature, machine: CudaMachine) -> float:
    """Of a contraction only: what is elementwise may be part of one."""
    if op.computation is None or not op.computation.is_contraction:
        return 0.0
    tensors = [ty for ty in (*op.operands, *op.results) if ty is not None]
    moved = sum(dtype_bytes(ty.dtype) * np.prod([_extent(e) for e in ty.shape]) for ty in tensors)
    dtype = tensors[0].dtype
    peak = machine.flops["tensorfloat32" if dtype == "float32" else dtype]
    return float(max(moved / machine.bandwidth, op.computation.flops / peak))


def _extent(extent: Any) -> int:
    return extent if isinstance(extent, int) else _SYMBOL


def facts_of(made: Any) -> dict[str, int]:
    """What the assembler says of all kernels."""
    built = machine_code(list(made.sources.values()), made.arch)
    kernels = [facts for one in built for facts in one.kernels.values()]
    return {
        "registers": max((one.registers for one in kernels), default=0),
        "spilled": sum(one.spilled_bytes for one in kernels),
    }


def error_of(mod: tvm.IRModule, made: Any) -> float:
    """Between the simulator's results and the CPU's."""
    inputs = list(flat(random_inputs(mod["main"], 1, 0)))
    return difference_from_cpu(mod, inputs, simulated(made, order=2)(*inputs))


COLUMNS: Final[Sequence[tuple[str, str, str]]] = (
    ("network", "network", "{:18}"),
    ("machine", "machine", "{:8}"),
    ("launches", "launches", "{:8d}"),
    ("kernels", "kernels", "{:7d}"),
    ("tensor_cores", "mma", "{:5d}"),
    ("registers", "registers", "{:9d}"),
    ("spilled", "spilled", "{:7d}"),
    ("modelled", "model us", "{:9.1f}"),
    ("floor", "floor us", "{:9.1f}"),
    ("share", "share", "{:6.2f}"),
    ("gap", "gap", "{:5.1f}"),
    ("plan_seconds", "plan s", "{:7.1f}"),
    ("error", "error", "{:9.1e}"),
)
_MICRO: Final = ("modelled", "floor")


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """A table; what is not known is a dash."""
    lines: list[list[str]] = [[title for _, title, _ in COLUMNS]]
    for one in rows:
        cells = []
        for key, _, form in COLUMNS:
            value = one.get(key)
            scaled = value * 1e6 if key in _MICRO and value is not None else value
            cells.append("-" if scaled is None else form.format(scaled).strip())
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("networks", nargs="*", default=["resnet50_64"], metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--machine", default="h100", choices=sorted(MACHINES))
    parser.add_argument("--no-device", action="store_true", required=True, help="the only way there is, so far")
    parser.add_argument("--simulate", action="store_true", help="run on the simulator and compare with the CPU")
    parser.add_argument("--json", help="a file for the rows")
    options = parser.parse_args()
    for name in options.networks:
        if name not in NETWORKS:
            parser.error(f"there is no network {name!r}; there are {', '.join(NETWORKS)}")
    rows = [row(name, options.machine, options.simulate) for name in options.networks]
    print(shown(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
