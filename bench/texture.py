"""What plans for OpenCL devices copy and move, ours and those of other engines' policies.

In: names of networks and of profiles. Out: a table and, with ``--json``, the rows. All is modelled: images are kept in
the first cache, buffers come from the second one each time where the profile says so; nothing runs here.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from synthetic import NETWORKS as SMALL
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import GLOBAL
from eqsat_layout.models import resnet50
from eqsat_layout.targets.opencl.policies import POLICIES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.opencl.traffic import Traffic, traffic_of
from eqsat_layout.targets.registry import target as target_of

_MB: Final = 1e6


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


NETWORKS: Final[dict[str, Callable[[], Any]]] = {**SMALL, "resnet50": resnet50, "three_readers": three_readers}


def rows(name: str, profile: str) -> Iterator[dict[str, Any]]:
    """One row for our plan and one for each policy."""
    mod = NETWORKS[name]()
    target = target_of({"kind": "opencl", "profile": profile})
    assert isinstance(target, OpenClTarget)
    yield row(name, target, "ours", mod, {})
    for policy in POLICIES:
        yield row(name, target, policy.name, mod, {"cost_model": policy.costs(target)})


def row(name: str, target: OpenClTarget, policy: str, mod: Any, options: Any) -> dict[str, Any]:
    """What the plan's module says, op by op."""
    start = time.process_time()
    plan = eqsat_layout.plan(mod, target, **options)
    seconds = time.process_time() - start
    relax.analysis.well_formed(plan.module)
    program = import_module(plan.module, memories=target.memories)
    moved, copies, copied, violations = Traffic(), {"scope": 0, "layout": 0}, 0.0, 0
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
                kind = "layout" if {f.scope for f in (*operands, *results) if f} == {GLOBAL} else "scope"
                copies[kind] += 1
                copied += own.images + own.buffers
    return {
        "network": name,
        "profile": target.profile.name,
        "policy": policy,
        "copies_of_scope": copies["scope"],
        "copies_of_layout": copies["layout"],
        "copied_bytes": copied,
        "image_bytes": moved.images,
        "buffer_bytes": moved.buffers,
        "violations": violations,
        "gap": plan.gap,
        "seconds": seconds,
    }


def is_free(signature: Any) -> bool:
    """A reshape of flat memory."""
    return getattr(getattr(signature.template, "op", None), "name", "") in ("relax.reshape", "relax.squeeze")


def show(row: dict[str, Any]) -> str:
    return (
        f"{row['network']:<16}{row['profile']:<12}{row['policy']:<14}"
        f"{row['copies_of_scope']:>6}{row['copies_of_layout']:>8}{row['copied_bytes'] / _MB:>10.1f}"
        f"{row['image_bytes'] / _MB:>10.1f}{row['buffer_bytes'] / _MB:>10.1f}{row['violations']:>6}"
        f"{row['gap']:>9.1e}{row['seconds']:>8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--profile", action="append", default=None)
    parser.add_argument("--json", default=None)
    given = parser.parse_args()
    print(
        f"{'network':<16}{'profile':<12}{'policy':<14}{'scope':>6}{'layout':>8}{'copied MB':>10}{'image MB':>10}"
        f"{'buffer MB':>10}{'bad':>6}{'gap':>9}{'s':>8}"
    )
    found = []
    for name in given.networks or list(NETWORKS):
        for profile in given.profile or ["adreno6xx"]:
            for one in rows(name, profile):
                found.append(one)
                print(show(one), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
