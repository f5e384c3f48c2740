"""CUDA without a card and with one: tables of what programs launch, and bundles that are measured on a card.

    python -m bench.cuda.programs NETWORK... --no-device          what is launched, beside the machine's floor
    python -m bench.cuda.programs NETWORK... --bundle FOLDER      a folder for a machine with a card: bundles/write.py
    cd FOLDER && python -m bench.cuda.run_bundle --json out.json  there: all that is measured
    python -m bench.cuda.programs --fill out.json                 here: plans for that card are made by it

In: names of networks, precisions and a machine. Out: tables and, with ``--json``, the rows; or the folder. The ten
networks of bench/networks/real.py need the dependency group ``bench``; ``--small`` gives them smaller inputs.
``--simulate`` runs programs on the simulator and compares them with the CPU. Nothing here is measured: seconds are
those of the model.
"""

from __future__ import annotations

import argparse
import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.cuda.bundles.cases import cases
from bench.cuda.bundles.kernels import fill
from bench.cuda.bundles.write import Effort, Network, write_bundle
from bench.cuda.tables import KERNELS, row_of, shown
from bench.cuda.tables import NETWORKS as COLUMNS
from bench.networks.by_name import NETWORKS, OTHERS, module_of
from eqsat_layout.cost.database import Database
from eqsat_layout.errors import EqsatError
from eqsat_layout.targets.cuda.machines import MACHINES
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.registry import target as target_of

PRECISIONS: Final = ("float32", "tensorfloat32", "float16", "bfloat16")


def tables(options: argparse.Namespace, target: CudaTarget) -> None:
    """Prints them, and writes the rows."""
    rows, kernels = [], {}
    for name, batch, precision in itertools.product(options.networks, options.batch, options.precision):
        row, own = row_of(name, module_of(name, batch), target, precision, options.simulate)
        rows.append({**row, "machine": options.machine, "batch": batch})
        title = f"{name} {batch} {precision}"
        kernels[title] = own
        print(f"{title}\n{shown(own, KERNELS)}\n" if options.kernels else title, flush=True)
    print(shown(rows, COLUMNS))
    print("seconds are modelled, not measured")
    if options.json:
        Path(options.json).write_text(json.dumps({"networks": rows, "kernels": kernels}, indent=1), encoding="utf-8")


def bundle(options: argparse.Namespace, target: CudaTarget) -> None:
    """Each network in each precision and batch."""
    networks = [
        Network(name, partial(module_of, name), precision, batch)
        for name in options.networks
        for precision in options.precision
        for batch in options.batch
    ]
    effort = Effort(options.cases, options.plans, options.timed)
    write_bundle(options.bundle, networks, target, effort, partial(print, flush=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="CUDA without a card: tables, and bundles for a card.")
    parser.add_argument(
        "networks",
        nargs="*",
        default=["resnet50_64"],
        metavar="NETWORK",
        help=f"{', '.join(NETWORKS)}; {OTHERS}",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--no-device", action="store_true", help="tables of what is launched")
    what.add_argument("--bundle", type=Path, metavar="FOLDER", help="what a card is to measure")
    what.add_argument("--fill", type=Path, metavar="FILE", help="the database, with what a card measured")
    parser.add_argument("--machine", default="h100", choices=sorted(MACHINES))
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=PRECISIONS)
    parser.add_argument("--small", action="store_true", help="the ten networks with smaller inputs")
    parser.add_argument("--kernels", action="store_true", help="a table of each network's kernels, too")
    parser.add_argument("--simulate", action="store_true", help="run on the simulator and compare with the CPU")
    parser.add_argument("--json", help="a file for the rows")
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="images or texts")
    known = [case.name for case in cases()]
    parser.add_argument(
        "--cases", nargs="*", metavar="NAME", choices=known, help="small programs of a bundle, instead of all"
    )
    parser.add_argument("--plans", type=int, default=4, help="candidates of each product in a bundle; 0: none")
    parser.add_argument("--timed", type=int, default=24, help="kernels of each network's plan, and as many others")
    options = parser.parse_args()
    if options.small:
        from bench.networks import real

        real.make_small()
    arch = MACHINES[options.machine].arch
    own = f"{arch}a" if arch == "sm_90" else arch  # with what that generation has alone
    said: Any = {"kind": "cuda", "arch": own, "model": options.machine}
    target = target_of(said)
    assert isinstance(target, CudaTarget)
    try:
        if options.fill:
            print(fill(json.loads(options.fill.read_text(encoding="utf-8")), Database(), target.version))
        else:
            bundle(options, target) if options.bundle else tables(options, target)
    except EqsatError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
