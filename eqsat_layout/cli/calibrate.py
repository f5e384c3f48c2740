"""The command ``calibrate``: measures the constants of the cost model and keeps them.

In: a target and where the database lies. Out: the constants in the database, and a table of them beside the defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eqsat_layout.cli.stages import Stages
from eqsat_layout.cost.database import Database
from eqsat_layout.cost.model import Roofline
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.targets.protocol import with_constants
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.calibrate import MachineConstants, calibrate, store

_ROWS = (
    ("bandwidth", "streaming", 1e9, "GB/s"),
    ("rewrite_bandwidth", "layout rewrites", 1e9, "GB/s"),
    ("flops", "arithmetic", 1e9, "GFLOP/s"),
    ("launch", "start of a kernel", 1e-6, "us"),
)


def run_calibrate(target: Any, quick: bool, output: Path | None, console: Console) -> MachineConstants:
    """Measures, prints and stores; :class:`EqsatError` for a target that can't be run or a database not written."""
    own = target_of(target)
    database = Database(output)
    database.check_writable()
    stages = Stages(console)
    with stages("measure", "a few seconds" if quick else "about half a minute") as say:
        constants = calibrate(own, quick=quick, progress=say)
    store(database, constants, own)
    default = own.roofline()
    console.print()
    console.print(Text(own.name, style="bold"))
    console.print(Padding(constants_table(default, with_constants(default, constants.values)), (0, 0, 0, 2)))
    console.print(f"Stored in {database.path}", highlight=False, soft_wrap=True)
    return constants


def constants_table(default: Roofline, measured: Roofline) -> Table:
    """The constants of two rooflines side by side."""
    table = FittedTable(pad_edge=False)
    for heading in ("", "default", "measured", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, label, unit, symbol in _ROWS:
        figures = (f"{getattr(model, name) / unit:.3g}" for model in (default, measured))
        table.add_row(label, *figures, symbol)
    return table
