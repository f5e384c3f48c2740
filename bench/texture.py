"""What programs for OpenCL devices launch, copy, move and hold: ours, other engines' policies, TVM's own pipeline.

In: names of networks and of profiles. Out: a table and, with ``--json``, the rows. Bytes are modelled: images are kept
in the first cache, buffers come from the second one each time where the profile says so. Launches, copies and memory
are those of the compiled program. ``--run`` runs it on PoCL, compares it with the CPU and gives CPU seconds: images are
simulated there. The ten networks need the dependency group ``bench``; ``--small`` gives them smaller inputs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import tvm
from synthetic import NETWORKS as SMALL
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.graph.importer import import_module
from eqsat_layout.models import resnet50
from eqsat_layout.targets.opencl.adreno_pipeline import copies_of_tvm, launches_of_tvm, planned_by_tvm
from eqsat_layout.targets.opencl.free_padding import has_guards, is_padded
from eqsat_layout.targets.opencl.policies import POLICIES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.opencl.traffic import Traffic, traffic_of
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import flat, random_inputs

_MB: Final = 1e6

ZOO: Final = (
    *("resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_tiny"),
    *("inception_v3", "unet", "maxvit_t", "vit_b_16", "bert"),
)


def three_readers() -> Any:
    """One tensor that two convolutions and a sum read: TVM's pass copies it twice."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 64, 56, 56), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.full((64, 64, 3, 3), 0.01, "float32"))
            y = builder.emit(op.nn.relu(x))
            first, second = (builder.emit(op.nn.conv2d(y, weight, padding=1, dilation=1)) for _ in range(2))
            total = builder.emit(op.sum(y, axis=[2, 3], keepdims=True))
            out = builder.emit(op.add(builder.emit(op.add(first, builder.emit(op.nn.relu(second)))), total))
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.get()


def from_zoo(name: str) -> Any:
    import zoo

    return zoo.load(name, "export").module


NETWORKS: Final[dict[str, Callable[[], Any]]] = {
    **SMALL,
    "three_readers": three_readers,
    "resnet50_64": partial(resnet50, image=64),
    **{name: partial(from_zoo, name) for name in ZOO},
}


def rows(name: str, profile: str, run: bool) -> Iterator[dict[str, Any]]:
    """One row for our plan, one for each policy, one for TVM's pipeline."""
    mod = NETWORKS[name]()
    target = target_of({"kind": "opencl", "profile": profile})
    assert isinstance(target, OpenClTarget)
    head = {"network": name, "profile": profile}
    yield head | row(target, "ours", mod, {}, run)
    for policy in POLICIES:
        yield head | row(target, policy.name, mod, {"cost_model": policy.costs(target)}, run)
    yield head | row_of_tvm(mod)


def row(target: OpenClTarget, policy: str, mod: Any, options: Any, run: bool) -> dict[str, Any]:
    """What the plan's module says, op by op, and what the program launches."""
    start = time.process_time()
    plan = eqsat_layout.plan(mod, target, **options)
    seconds = time.process_time() - start
    relax.analysis.well_formed(plan.module)
    program = import_module(plan.module, memories=target.memories)
    moved, copied, violations, padded, free = Traffic(), 0.0, 0, 0, 0
    for graph in program.graphs:
        for node in graph.nodes:
            if node.kind != "op":
                continue
            signature = program.signatures[node.signature]
            operands, results = signature.as_written
            own = traffic_of(signature, operands, results, target.profile)
            moved += own
            typed = zip((*signature.operands, *signature.results), (*operands, *results), strict=True)
            violations += sum(ty is not None and target.holds(ty, fmt) is not None for ty, fmt in typed if fmt)
            if signature.view is not None and not is_free(signature):
                copied += own.images + own.buffers
            if signature.computation is not None and is_padded(signature.computation):
                padded += 1
                free += not has_guards(signature.computation, operands, target.profile)
    made = eqsat_layout.compile(mod, target, **options)
    launched = [launch.op for function in made.plan.functions for launch in function.launches]
    found = {
        "policy": policy,
        "launches": len(launched),
        **copies_of(made.plan),
        "copied_bytes": copied,
        "image_bytes": moved.images,
        "buffer_bytes": moved.buffers,
        "violations": violations,
        "padded": padded,
        "padded_for_free": free,
        "peak_bytes": made.plan.bytes,
        "gap": plan.gap,
        "seconds": seconds,
    }
    return found | (ran(mod, made) if run else {})


def copies_of(plan: Any) -> dict[str, int]:
    """Launches that only copy: to or from images, and between layouts of buffers."""
    found = {"copies_of_scope": 0, "copies_of_layout": 0}
    for function in plan.functions:
        for launch in function.launches:
            if launch.op.startswith(("layout_rewrite", "permute_dims", "layout_transform")):
                memories = [plan.memories[a.memory] for a in launch.arguments if a.memory is not None]
                is_scope = any(memory.image is not None for memory in memories)
                found["copies_of_scope" if is_scope else "copies_of_layout"] += 1
    return found


def ran(mod: Any, made: Any) -> dict[str, Any]:
    """CPU seconds on the first OpenCL device, and the greatest difference from the CPU's results, relative."""
    inputs = list(flat(random_inputs(mod["main"], 1, 0)))
    device = made.on()
    device(*inputs)
    start = time.process_time()
    got = device(*inputs)
    seconds = time.process_time() - start
    return {"pocl_seconds": seconds, "error": difference_from_cpu(mod, inputs, got)}


def difference_from_cpu(mod: Any, inputs: Sequence[Any], got: Any) -> float:
    """The greatest difference between results and the CPU's, relative to the greatest number of each."""
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    expected = machine["main"](*map(tvm.runtime.tensor, inputs))
    pairs = list(zip(leaves(got), leaves(expected), strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def leaves(value: Any) -> Iterator[Any]:
    """Arrays, one after the other."""
    if isinstance(value, np.ndarray) or hasattr(value, "numpy"):
        yield value if isinstance(value, np.ndarray) else value.numpy()
    else:
        for one in value:
            yield from leaves(one)


def row_of_tvm(mod: Any) -> dict[str, Any]:
    """What TVM's Relax passes for Adreno launch and copy, or why they don't."""
    start = time.process_time()
    try:
        planned = planned_by_tvm(mod)
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
        return {"policy": "TVM", "fails": str(error).strip().splitlines()[-1][:80]}
    seconds = time.process_time() - start
    moved = launches_of_tvm(planned).count("to_vdevice")
    layouts = copies_of_tvm(planned) - moved
    launched = len(launches_of_tvm(planned))
    return {
        **{"policy": "TVM", "launches": launched, "copies_of_scope": moved, "copies_of_layout": layouts},
        "seconds": seconds,
    }


def is_free(signature: Any) -> bool:
    """A reshape of flat memory."""
    return getattr(getattr(signature.template, "op", None), "name", "") in ("relax.reshape", "relax.squeeze")


COLUMNS: Final[Sequence[tuple[str, str, int, float]]] = (
    ("launches", "runs", 6, 1),
    ("copies_of_scope", "scope", 6, 1),
    ("copies_of_layout", "layout", 7, 1),
    ("copied_bytes", "copied MB", 10, _MB),
    ("image_bytes", "image MB", 10, _MB),
    ("buffer_bytes", "buffer MB", 10, _MB),
    ("peak_bytes", "peak MB", 9, _MB),
    ("padded", "padded", 7, 1),
    ("padded_for_free", "free", 5, 1),
    ("violations", "bad", 4, 1),
    ("gap", "gap", 8, 0),
    ("seconds", "plan s", 8, 0.1),
    ("pocl_seconds", "PoCL s", 8, 0.1),
    ("error", "error", 9, 0),
)
"""Of a row: its name, its title, how wide, and what it is divided by. 0: as a power; 0.1: one digit after the dot."""


def show(row: dict[str, Any]) -> str:
    text = f"{row['network']:<16}{row['profile']:<12}{row['policy']:<14}"
    if "fails" in row:
        return f"{text}{row['fails']}"
    for name, _, width, unit in COLUMNS:
        text += f"{'' if row.get(name) is None else number(row[name], unit):>{width}}"
    return text


def number(value: float, unit: float) -> str:
    if unit == 0:
        return f"{value:.1e}"
    return f"{value:.1f}" if unit == 0.1 else f"{value / unit:.1f}" if unit > 1 else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--profile", action="append", default=None)
    parser.add_argument("--run", action="store_true", help="on PoCL, too")
    parser.add_argument("--small", action="store_true", help="the ten networks with smaller inputs")
    parser.add_argument("--json", default=None)
    given = parser.parse_args()
    if given.small:
        import zoo

        zoo.make_small()
    print(f"{'network':<16}{'profile':<12}{'policy':<14}" + "".join(f"{t:>{w}}" for _, t, w, _ in COLUMNS))
    found = []
    for name in given.networks or list(NETWORKS):
        for profile in given.profile or ["adreno6xx"]:
            for one in rows(name, profile, given.run):
                found.append(one)
                print(show(one), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
