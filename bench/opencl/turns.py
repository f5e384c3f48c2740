"""Processor time on PoCL, in turns: our program for it, the same in buffers only, and TVM's own for Adreno.

In: names of networks of ``bench.opencl.programs``. Out: a line each: milliseconds of processor time, the least of runs
that take turns, and the greatest difference from the CPU's results. PoCL simulates images on the CPU, so a program for
it has none where they cost more: what is compared is kernels, and ours in buffers only is the same program then, which
is said. A variant that takes longer than ``--longest`` seconds is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import eqsat_layout
from bench.beside_cpu import difference
from bench.networks.by_name import NETWORKS, OTHERS, module_of
from bench.opencl.programs import mean
from bench.opencl.rows import TVM, TVM_BUFFERS, Trial
from bench.opencl.tvm_pipeline import BUFFERS, TEXTURES, FailsError, made_by_tvm
from eqsat_layout.errors import TargetError
from eqsat_layout.targets.opencl.policies import BUFFERS as BUFFERS_ONLY
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target as target_of

POCL = {"kind": "opencl", "profile": "pocl"}


def variants(name: str) -> dict[str, Any]:
    """Programs by name, or why there is none."""
    target = target_of(POCL)
    assert isinstance(target, OpenClTarget)
    mod = module_of(name)
    found: dict[str, Any] = {
        "ours": eqsat_layout.compile(mod, POCL),
        "buffers only": eqsat_layout.compile(mod, POCL, cost_model=BUFFERS_ONLY.costs(target)),
    }
    for title, tag in ((TVM, TEXTURES), (TVM_BUFFERS, BUFFERS)):
        try:
            found[title] = made_by_tvm(module_of(name), tag).program()
        except (FailsError, TargetError) as error:
            found[title] = str(error)
    return found


def measured(name: str, turns: int, longest: float) -> dict[str, Any]:
    """Milliseconds by variant, the differences of its results, or what fails."""
    trial = Trial(module_of(name))
    made = variants(name)
    devices = {title: program.on() for title, program in made.items() if not isinstance(program, str)}
    row: dict[str, Any] = {"network": name, "fails": {t: why for t, why in made.items() if isinstance(why, str)}}
    row["error"] = {title: difference(device(*trial.inputs), trial.expected) for title, device in devices.items()}
    times: dict[str, list[float]] = {title: [] for title in devices}
    for _ in range(turns):
        for title, device in devices.items():
            if min(times[title], default=0.0) < longest:
                start = time.process_time()
                device(*trial.inputs)
                times[title].append(time.process_time() - start)
    row["milliseconds"] = {title: 1e3 * min(own) for title, own in times.items()}
    row["same"] = is_same(made["ours"], made["buffers only"])
    return row


def is_same(one: Any, other: Any) -> bool:
    """Two programs launch the same kernels on the same memories: what their times differ by is the machine's."""
    return bool(one.sources == other.sources and one.plan == other.plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"{', '.join(NETWORKS)}; {OTHERS}")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--longest", type=float, default=20.0)
    parser.add_argument("--small", action="store_true", help="the ten networks with smaller inputs")
    parser.add_argument("--json", default=None)
    given = parser.parse_args()
    if given.small:
        from bench.networks import real

        real.make_small()
    found = []
    for name in given.networks or list(NETWORKS):
        row = measured(name, given.turns, given.longest)
        found.append(row)
        own = row["milliseconds"]
        for title in own:
            print(f"{name:<18}{title:<14}{own[title]:>10.1f} ms  error {row['error'][title]:.1e}", flush=True)
        if row["same"]:
            print(f"{name:<18}ours and buffers only are the same program", flush=True)
        for title, why in row["fails"].items():
            print(f"{name:<18}{title:<14}{why}", flush=True)
    if found:
        ratios = [
            min(v for t, v in r["milliseconds"].items() if t != "ours") / r["milliseconds"]["ours"] for r in found
        ]
        print(f"the best of the others over ours: {mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
