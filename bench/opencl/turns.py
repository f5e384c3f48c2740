"""Processor time on PoCL, in turns: our program for it, the same in buffers only, and TVM's own for Adreno.

In: names of networks of ``bench.opencl.programs``. Out: a line each: milliseconds of processor time, the least of runs
that take turns, and the greatest difference from the CPU's results. PoCL simulates images on the CPU, so a program for
it has none where they cost more: what is compared is kernels, and ours in buffers only is the same program then, which
is said. What TVM makes is built, and run once, in a process that has ``--most`` seconds of processor time for it (PoCL
keeps on disk what it compiles). A variant that takes longer than ``--longest`` seconds is not run again. With
``--json`` a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import eqsat_layout
from bench.beside_cpu import difference
from bench.networks.by_name import OTHERS
from bench.opencl.programs import SHOWN, keep, kept_rows, mean, network
from bench.opencl.rows import TVM, TVM_BUFFERS, Trial, in_a_process
from bench.opencl.tvm_pipeline import BUFFERS, TEXTURES, FailsError, made_by_tvm
from eqsat_layout.errors import TargetError
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.policies import BUFFERS as BUFFERS_ONLY
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import arrays_in, random_inputs

POCL = {"kind": "opencl", "profile": "pocl"}
TAGS = {TVM: TEXTURES, TVM_BUFFERS: BUFFERS}


def variants(name: str, small: bool, most: int) -> dict[str, Any]:
    """Programs by name, or why there is none."""
    target = target_of(POCL)
    assert isinstance(target, OpenClTarget)
    mod = network(name, small)
    found: dict[str, Any] = {
        "ours": eqsat_layout.compile(mod, POCL),
        "buffers only": eqsat_layout.compile(mod, POCL, cost_model=BUFFERS_ONLY.costs(target)),
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, title in enumerate(TAGS):
            path = Path(folder) / f"{number}.program"
            why = in_a_process(most, ran_once, name, small, title, path)
            found[title] = why if isinstance(why, str) else OpenClProgram.load(path)
    return found


def ran_once(name: str, small: bool, title: str, path: Path) -> str | None:
    """Why what TVM makes can't be built or run; what can be is saved."""
    inputs = list(arrays_in(random_inputs(network(name, small)["main"], 1, 0)))
    try:
        program = made_by_tvm(network(name, small), TAGS[title]).program()
        program.on()(*inputs)
    except (FailsError, TargetError) as error:
        return str(error)
    program.save(path)
    return None


def measured(name: str, small: bool, turns: int, longest: float, most: int) -> dict[str, Any]:
    """Milliseconds by variant, the differences of its results, or what fails."""
    trial = Trial(network(name, small))
    made = variants(name, small, most)
    devices = {title: program.on() for title, program in made.items() if not isinstance(program, str)}
    row: dict[str, Any] = {"network": name, "small": small}
    row["fails"] = {title: why for title, why in made.items() if isinstance(why, str)}
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


def show(row: dict[str, Any]) -> None:
    """A line for each variant."""
    name, own = row["network"], row["milliseconds"]
    for title in own:
        print(f"{name:<18}{title:<14}{own[title]:>10.1f} ms  error {row['error'][title]:.1e}", flush=True)
    if row["same"]:
        print(f"{name:<18}ours and buffers only are the same program", flush=True)
    for title, why in row["fails"].items():
        print(f"{name:<18}{title:<14}{why}", flush=True)


def summary(found: Sequence[dict[str, Any]]) -> str:
    """The best of the others over ours, by networks."""
    ratios = [min(v for t, v in r["milliseconds"].items() if t != "ours") / r["milliseconds"]["ours"] for r in found]
    return f"the best of the others over ours: {mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"{', '.join(SHOWN)}; {OTHERS}")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--longest", type=float, default=20.0)
    parser.add_argument(
        "--most", type=int, default=600, help="seconds of processor time to build and run each of TVM's"
    )
    parser.add_argument("--small", action="store_true", help="the ten networks with smaller inputs")
    parser.add_argument("--json", default=None, help="a file for the rows; what is there is not done again")
    given = parser.parse_args()
    found = kept_rows(given.json)
    for name in given.networks or SHOWN:
        if not any((row["network"], row.get("small")) == (name, given.small) for row in found):
            found.append(measured(name, given.small, given.turns, given.longest, given.most))
            keep(found, given.json)
        show(next(row for row in found if (row["network"], row.get("small")) == (name, given.small)))
    own = [row for row in found if row["network"] in (given.networks or SHOWN) and row.get("small") == given.small]
    if own:
        print(summary(own))


if __name__ == "__main__":
    main()
