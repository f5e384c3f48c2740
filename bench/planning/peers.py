"""Layout rewrites left, side by side: ``python -m bench.planning.peers [--model NAME ...] [--quick] [--no-run]``.

Every model goes through eqsat_layout (free choice; without approximate algorithms; with desired layouts), TVM's
ConvertLayout (then CSE and FoldConstant) and its AlterOpImpl with OptimizeLayoutTransform. All results are measured by
one reader: rewrites, their bytes, modelled cost; and run against the unoptimised build. A system runs in a process of
its own, so that a crash is an entry of the table. Real models need the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")  # processes are forked: no threads before

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax, tirx

import eqsat_layout
from bench.networks import hard_for_tvm
from bench.results import difference, flat, magnitude
from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.extract.baseline import baseline
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.maps import index_map_from_names
from eqsat_layout.planning.transform import transform_layout
from eqsat_layout.report.figures import format_bytes, format_seconds
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.registry import target as target_of

REAL = (
    "resnet50:onnx",
    "mobilenet_v2:onnx",
    "densenet121:export",
    "inception_v3:export",
    "efficientnet_b0:export",
    "convnext_tiny:export",
    "unet:export",
    "vit_b_16:export",
    "bert:onnx",
    "maxvit_t:export",
)
QUICK = ("mobilenet_v2:onnx", *hard_for_tvm.NETWORKS)
PLAIN = ("resnet50", "mobilenet_v2", "densenet121", "inception_v3", "relu6_mobilenet", "leaky_unet")
"""Plain CNNs, in which no interior rewrite should stay."""
LAYOUTS = {"NHWC": "OHWI", "NCHW4c": "OIHW4i4o", "NCHW16c": "OIHW16i16o"}
TOLERANCE = 1e-3
WIDTH = 150

System = Callable[[Any], tuple[Any, dict[str, Any]]]


def systems() -> dict[str, System]:
    """By name: from a prepared module to the module that the system makes of it, and what it knows of itself."""
    found: dict[str, System] = {"input": lambda mod: (mod, {})}
    found["eqsat_layout"] = _plan
    found["eqsat_layout exact"] = lambda mod: _plan(mod, approx=False)
    for layout, weight in LAYOUTS.items():
        desired = {"relax.nn.conv2d": [layout, weight]}
        found[f"eqsat_layout {layout}"] = partial(_plan, desired_layouts=desired, approx=False)
        found[f"ConvertLayout {layout}"] = partial(_convert_layout, desired=desired)
    found["AlterOpImpl NCHW16c"] = _alter_op_impl
    return found


def _plan(mod: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    plan = eqsat_layout.plan(mod, **options)
    return plan.module, {"gap": plan.gap}


def _convert_layout(mod: Any, desired: dict[str, list[str]]) -> tuple[Any, dict[str, Any]]:
    passes = relax.transform
    own = [passes.ConvertLayout(desired), passes.Normalize(), passes.EliminateCommonSubexpr(), passes.FoldConstant()]
    return tvm.transform.Sequential(own)(mod), {}


def _alter_op_impl(mod: Any) -> tuple[Any, dict[str, Any]]:
    """Every distinct convolution replaced by itself in NCHW16c, where its channels divide."""
    lowered = legalize(mod)
    implementations: dict[str, Any] = {}
    transforms: dict[str, list[Any]] = {}
    for var, func in lowered.functions_items():
        name = str(var.name_hint)
        if not isinstance(func, tirx.PrimFunc) or not name.startswith(("conv2d", "fused_conv2d")):
            continue
        shapes = [[int(e) for e in p.ty.shape] for p in func.params]
        data, weight, out = shapes if len(shapes) == 3 else ([], [], [])
        if not data or data[1] % 16 or out[1] % 16 or weight[1] != data[1]:
            continue
        own = [("NCHW", "NCHW16c"), ("OIHW", "OIHW16i16o")]
        replacement = transform_layout(func, operands=own, result=("NCHW", "NCHW16c"))
        lowered.update_func(var, func.with_attr("operator_name", name))
        implementations[name] = replacement.without_attr("global_symbol") if replacement.attrs else replacement
        maps = [index_map_from_names(a, b, s) for (a, b), s in zip([*own, own[0]], shapes, strict=True)]
        transforms[name] = [_tvm_map(m) for m in maps]
    passes = relax.transform
    steps = [passes.AlterOpImpl(implementations, transforms), passes.OptimizeLayoutTransform()]
    return tvm.transform.Sequential([*steps, passes.DeadCodeElimination(), passes.FoldConstant()])(lowered), {}


def _tvm_map(index_map: Any) -> Any:
    from eqsat_layout.tir.index_map import to_tvm

    return to_tvm(index_map)


def count(mod: Any) -> dict[str, Any]:
    """Rewrites of run-time tensors: how many, how many of them between two ops, their bytes; and the modelled cost."""
    program = import_module(mod)
    target = target_of()
    costs = target.roofline()
    total = {"rewrites": 0, "interior": 0, "bytes": 0.0, "cost": 0.0}
    for graph in program.graphs:
        fusion = target.fusion(graph, program.signatures, range(len(graph.nodes)))
        cost, rewrites = baseline(graph, program.signatures, costs, fusion)
        total["cost"] += cost
        total["rewrites"] += len(rewrites)
        total["bytes"] += sum((r.before.elements() + r.after.elements()) * dtype_bytes(r.type.dtype) for r in rewrites)
        total["interior"] += len(rewrites) - _at_the_border(graph, program.signatures)
    return total


def _at_the_border(graph: Any, signatures: Any) -> int:
    """Rewrites of a parameter, or of what only the outside reads."""
    used = {i for node in graph.nodes for i in node.inputs}
    found = 0
    for i, node in enumerate(graph.nodes):
        if node.kind == "op" and signatures[node.signature].parts and _moves(signatures[node.signature]):
            source = graph.nodes[node.inputs[0]].kind
            found += source in ("param", "const") or i not in used
    return found


def _moves(signature: Any) -> bool:
    return signature.view is None or not signature.view.keeps_order


def load(spec: str) -> tuple[Any, tuple[Any, ...]]:
    """A prepared module and one input."""
    if spec in hard_for_tvm.NETWORKS:
        mod = hard_for_tvm.NETWORKS[spec]()
        shape = [int(e) for e in mod["main"].params[0].ty.shape]
        return prepared(mod), (np.random.default_rng(0).standard_normal(shape, dtype=np.float32),)
    from bench.networks import real

    name, way = spec.split(":")
    model = real.load(name, way)
    return prepared(model.module), model.inputs


def measure(spec: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per system."""
    mod, inputs = load(spec)
    reference = None
    for name, system in systems().items():
        row, outputs = _in_own_process(partial(_apply, system, mod, inputs, options), options.timeout)
        if name == "input":
            reference = outputs
        if outputs is not None and reference is not None:
            row["difference"] = difference(reference, outputs) / magnitude(reference)
        yield {"model": spec.partition(":")[0], "system": name, **row}


def _apply(system: System, mod: Any, inputs: Any, options: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    start = time.perf_counter()
    result, own = system(mod)
    row = {"seconds": time.perf_counter() - start, **own, **count(result)}
    if not options.run:
        return row, None
    vm = relax.VirtualMachine(lower(result), tvm.cpu())
    return row, flat(vm["main"](*map(tvm.runtime.tensor, inputs)))


def _in_own_process(work: Callable[[], Any], timeout: float) -> tuple[dict[str, Any], Any]:
    """What ``work`` gives in a fork of this process; where it dies or takes too long, a row that says so."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        with open(os.devnull, "w") as silence:
            os.dup2(silence.fileno(), 2)
            try:
                sender.send(work())
            except BaseException as error:
                text = [line for line in str(error).strip().splitlines() if line.strip()] or [""]
                sender.send(({"error": f"{type(error).__name__}: {text[-1]}"[:100]}, None))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        found = receiver.recv() if receiver.poll(timeout) else ({"error": f"over {timeout:.0f} s"}, None)
    except EOFError:
        process.join()
        found = {"error": f"killed by signal {-(process.exitcode or 0)}"}, None
    process.kill()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", help="names, or NAME:export, NAME:onnx; synthetic ones by name")
    parser.add_argument("--quick", action="store_true", help="one real and the synthetic networks")
    parser.add_argument("--run", action=argparse.BooleanOptionalAction, default=True, help="build, run and compare")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one system on one model")
    parser.add_argument("--json", type=Path, help="write the rows as JSON too")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    named = {spec.partition(":")[0]: spec for spec in REAL}
    specs = [named.get(m, m) for m in options.model or (QUICK if options.quick else (*REAL, *hard_for_tvm.NETWORKS))]
    rows: list[dict[str, Any]] = []
    for spec in specs:
        own = []
        for row in measure(spec, options):
            own.append(row)
            if console.is_terminal:
                console.print(f"[dim]{row['model']}: {row['system']}[/]")
        rows += own
        console.print(_table(own))
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    missed = list(_missed(rows))
    console.print("\n".join(missed) if missed else "All aims are met.")
    if any(not row.get("difference", 0.0) <= TOLERANCE for row in rows if row["system"].startswith("eqsat")):
        raise SystemExit(1)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=rows[0]["model"], title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "rewrites", "interior", "bytes", "modelled cost", "gap", "seconds", "difference"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for row in rows:
        if "error" in row:
            table.add_row(row["system"], f"[red]{row['error']}")
            continue
        gap = f"{row['gap']:.1%}" if "gap" in row else ""
        difference = f"{row['difference']:.1e}" if "difference" in row else ""
        table.add_row(
            row["system"],
            str(row["rewrites"]),
            str(row["interior"]),
            format_bytes(row["bytes"]),
            format_seconds(row["cost"]),
            gap,
            f"{row['seconds']:.2f}",
            difference,
        )
    return table


def _missed(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The aims that a model misses: gap 0, not more bytes than a peer in the same layout, no interior rewrite."""
    for row in rows:
        model, system = row["model"], row["system"]
        if "error" in row:
            if system.startswith("eqsat"):
                yield f"{model}: {system} failed: {row['error']}"
            continue
        if row.get("gap", 0.0) > 1e-6:
            yield f"{model}: {system} has a gap of {row['gap']:.2%}"
        if not row.get("difference", 0.0) <= TOLERANCE:
            yield f"{model}: {system} differs by {row['difference']:.1e}"
        if not system.startswith("eqsat_layout"):
            continue
        layout = system.removeprefix("eqsat_layout").strip()
        same = [r for r in rows if r["model"] == model and r["system"].endswith(f" {layout}") and "error" not in r]
        for peer in same if layout in LAYOUTS else []:
            if not peer["system"].startswith("eqsat") and peer["bytes"] < row["bytes"]:
                yield f"{model}: {system} moves more bytes than {peer['system']}"
        if model in PLAIN and row["interior"]:
            yield f"{model}: {system} keeps {row['interior']} interior rewrites"


if __name__ == "__main__":
    main()
