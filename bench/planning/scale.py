"""Stage times of planning generated networks: ``python -m bench.planning.scale [--ops 200 2000 20000] [--plain]``.

One process per network and size, so that memory is that of the one plan, beside the weights of the network itself
(column "weights"). ``--plain``: weights of their own and nothing frozen. The total is seconds of the CPU. Growth is the
time of a stage over that of the same stage at a tenth of the ops.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

STAGES = ("rules", "import", "saturate", "read", "extract", "emit")


def measure(network: str, ops: int, plain: bool) -> dict[str, Any]:
    """Plans one network in this process."""
    import eqsat_layout
    from bench.networks.generated import NETWORKS

    eqsat_layout.plan(NETWORKS[network](30, plain=plain))  # first calls load TVM's tables
    empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mod = NETWORKS[network](ops, plain=plain)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    plan = eqsat_layout.plan(mod)
    total = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **{stage: plan.stats.seconds.get(stage, 0.0) for stage in STAGES},
        "total": total,
        "ops": plan.stats.ops,
        "e-nodes": plan.stats.e_nodes,
        "gap": plan.gap,
        "cost": plan.cost / plan.input_cost,
        "megabytes": (after - before) / 1024,
        "weights": (before - empty) / 1024,
        "notes": list(plan.notes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, nargs="+", default=[200, 2000, 20000])
    parser.add_argument("--network", nargs="+", default=["residual", "dense", "transformer"])
    parser.add_argument("--plain", action="store_true", help="weights of their own, nothing frozen")
    parser.add_argument("--one", nargs=2, metavar=("NETWORK", "OPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), options.plain)))
        return
    columns = (*STAGES, "total")
    table = Table(title="seconds per stage (growth over the size before)")
    for name in ("network", "ops", *columns, "MB", "weights", "gap", "cost"):
        table.add_column(name, justify="left" if name == "network" else "right")
    console = Console(width=150)
    for network in options.network:
        previous: dict[str, Any] | None = None
        for ops in options.ops:
            with console.status(f"{network} {ops}"):
                command = [sys.executable, "-m", "bench.planning.scale", "--one", network, str(ops)]
                command += ["--plain"] * options.plain
                result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cells = [_cell(result, previous, column) for column in columns]
            table.add_row(
                network,
                str(result["ops"]),
                *cells,
                f"{result['megabytes']:.0f}",
                f"{result['weights']:.0f}",
                f"{result['gap']:.2g}",
                f"{result['cost']:.3f}",
            )
            previous = result
    console.print(table)


def _cell(result: dict[str, Any], previous: dict[str, Any] | None, column: str) -> str:
    text = f"{result[column]:.3f}"
    if previous is None or previous[column] < 1e-3:
        return text
    return f"{text} (x{result[column] / previous[column]:.0f})"


if __name__ == "__main__":
    main()
