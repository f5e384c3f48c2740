"""The cost model beside the clock: ``python -m bench.cpu.model [NAME ...] --folder DIR``.

Per network of the zoo, or of ``--files``: modelled and measured milliseconds of one run, the rank correlation of both
over its kernels (Spearman 1904), and the shares of kernels, and of time, for which they differ by more than 1.5 times;
``--worst N`` prints the kernels that are off most, by time. Measured is each kernel's processor time in one thread, of
which some half a microsecond is the clock itself: kernels below ``--least`` microseconds count in no share. ``beyond``
are milliseconds of kernels that the plan does not count, such as copies of parts that it takes for views. Needs the
dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from bench.cpu.own_kernels import TimedKernel, timed_kernels
from bench.cpu.zoo_process import PROFILED, Files, prepare
from bench.networks.architectures.families import ARCHITECTURES, is_kept_back
from eqsat_layout import Session
from eqsat_layout.report.records import KernelRecord
from eqsat_layout.tuning.ranks import rank_correlation

FACTOR = 1.5
WIDTH = 150
_NAME = 40
"""Characters by which kernels are told apart: built ones have shorter names, and no numbers."""


@dataclass(frozen=True)
class Compared:
    """A kernel of the plan, and its call."""

    ops: str
    operands: str
    modelled: float
    measured: float

    @property
    def factor(self) -> float:
        return self.measured / max(self.modelled, 1e-9)

    @property
    def is_off(self) -> bool:
        return not 1 / FACTOR <= self.factor <= FACTOR


@dataclass(frozen=True)
class Network:
    """The kernels that plan and run have both, in microseconds, and the time of those that only the run has."""

    kernels: Sequence[Compared]
    beyond: float

    @property
    def measured(self) -> float:
        return sum(kernel.measured for kernel in self.kernels) + self.beyond

    def row(self, least: float) -> list[str]:
        counted = [k for k in self.kernels if k.measured >= least]
        off = [k for k in counted if k.is_off]
        ranks = rank_correlation([(k.modelled, k.measured) for k in self.kernels])
        taken = sum(k.measured for k in counted) or 1.0
        return [
            str(len(self.kernels)),
            f"{sum(k.modelled for k in self.kernels) / 1e3:.3g}",
            f"{self.measured / 1e3:.3g}",
            f"{self.beyond / 1e3:.2g}",
            "" if ranks is None else f"{ranks:.3f}",
            f"{len(off) / max(len(counted), 1):.0%}",
            f"{sum(k.measured for k in off) / taken:.0%}",
        ]


def main() -> None:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    table = Table(title="modelled and measured", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    columns = ("kernels", "modelled ms", "measured ms", "beyond", "ranks", f"off by {FACTOR}", "of the time")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    found: dict[str, Network] = {}
    for name, path in _models(options).items():
        with console.status(name):
            found[name] = measured(path)
        table.add_row(name, *found[name].row(options.least))
    console.print(table)
    console.print(f"[dim]load {os.getloadavg()[0]:.1f}[/]", highlight=False)
    if options.worst:
        _say_worst(found, options.worst, console)


def measured(path: Path) -> Network:
    """A model is compiled, planned anew for what the plan says of kernels, and run."""
    session = Session(str(path))
    rng = np.random.default_rng(0)
    feed = {}
    for given in session.inputs:
        shape = [size if isinstance(size, int) else 1 for size in given.shape or ()]
        drawn = rng.standard_normal(shape) if "float" in given.dtype else rng.integers(0, 2, shape)
        feed[given.name] = np.asarray(drawn, given.dtype)
    return compared(session.plan.kernels, timed_kernels(session, feed, 1, PROFILED))


def compared(planned: Sequence[KernelRecord], timed: Sequence[TimedKernel]) -> Network:
    """Kernels of both in one order; names say which belong together."""
    ours, theirs = [_plain(kernel.name) for kernel in planned], [_plain(kernel.name) for kernel in timed]
    kernels: list[Compared] = []
    known: set[int] = set()
    for first, second, size in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for own, call in zip(planned[first : first + size], timed[second : second + size], strict=True):
            modelled = (own.cost - own.saved) * 1e6
            kernels.append(Compared(", ".join(own.ops), call.operands, modelled, call.microseconds))
        known.update(range(second, second + size))
    beyond = sum(call.microseconds for number, call in enumerate(timed) if number not in known)
    if len(kernels) < len(planned) / 2:
        raise SystemExit(f"{len(kernels)} of {len(planned)} kernels of the plan were found in the run")
    return Network(kernels, beyond)


def _plain(name: str) -> str:
    return re.sub(r"\d", "", name)[:_NAME].rstrip("_")


def _models(options: argparse.Namespace) -> dict[str, Path]:
    if options.files:
        return {path.stem: path for path in options.files}
    models = {}
    for name in options.names or [name for name in ARCHITECTURES if not is_kept_back(name)]:
        files = Files(options.folder, name)
        prepare(name, files)
        models[name] = files.onnx
    return models


def _say_worst(found: dict[str, Network], count: int, console: Console) -> None:
    table = Table(title="kernels that are off most", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    for column in ("share", "us", "modelled", "factor"):
        table.add_column(column, justify="right", no_wrap=True, min_width=8)
    table.add_column("ops, and operands", no_wrap=True, max_width=WIDTH - 80)
    rows = [(k, n, network.measured) for n, network in found.items() for k in network.kernels if k.is_off]
    for k, name, total in sorted(rows, key=lambda row: -abs(row[0].measured - row[0].modelled) / row[2])[:count]:
        cells = (f"{k.measured / total:.1%}", f"{k.measured:.1f}", f"{k.modelled:.1f}", f"{min(k.factor, 999):.2f}")
        table.add_row(name, *cells, f"{k.ops}  {k.operands}")
    console.print(table, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo; default: all that are not kept back")
    parser.add_argument("--files", nargs="+", type=Path, metavar="FILE", help="models of one's own, in place of names")
    parser.add_argument("--folder", type=Path, help="for what is made once: gigabytes")
    parser.add_argument("--least", type=float, default=5, metavar="US", help="the shortest kernel that counts (5)")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="so many kernels that are off most")
    options = parser.parse_args()
    if not options.files and not options.folder:
        parser.error("--folder or --files is needed")
    unknown = [name for name in options.names if name not in ARCHITECTURES]
    if unknown:
        parser.error(f"no architecture of the zoo: {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    main()
