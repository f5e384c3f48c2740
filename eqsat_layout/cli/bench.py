"""The command ``bench``: a model's latency beside other engines.

In: a model's file, names of engines. Out: a table of medians, ratios and differences. Engines take turns in a new order
every round; what can't run the file is named and left out.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eqsat_layout.cli.engines import ENGINES, OWN, serve
from eqsat_layout.cli.stages import Stages
from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.system.sigint import start_without_sigint

_REST: Final = 0.2
"""Seconds before every turn: threads of the engine before go on spinning for a while."""


@dataclass(frozen=True)
class BenchOptions:
    """What the command line was told; no ``engines``: all that there are; 0 ``threads``: as many as each takes."""

    file: Path
    engines: tuple[str, ...]
    shapes: Mapping[str, Sequence[Any]] | None
    rounds: int
    seed: int
    precision: str | None = None
    threads: int = 0


@dataclass
class Figures:
    """The figures of one engine: seconds by round, and how far its results are from ours."""

    rounds: list[float] = field(default_factory=list)
    difference: float = 0.0
    magnitude: float = 0.0

    @property
    def seconds(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self.rounds)


class _Peer:
    """An engine in its process."""

    def __init__(self, name: str, options: BenchOptions):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = (name, options.file, options.shapes, options.seed, options.precision, options.threads, theirs)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        start_without_sigint(self.process)
        theirs.close()

    def answer(self) -> Any:
        """What it sends; a text is why it can't."""
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return f"its process ended with exit code {self.process.exitcode}"

    def burst(self) -> float:
        """The median of some runs; :class:`EqsatError` if it dies."""
        self.pipe.send(True)
        seconds = self.answer()
        if isinstance(seconds, str):
            raise EqsatError(seconds)
        return float(statistics.median(seconds))

    def __enter__(self) -> _Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_bench(options: BenchOptions, console: Console) -> dict[str, Figures]:
    """Measures and prints. :class:`EqsatError` for an engine that nobody knows, or a file that we can't run."""
    stages, left_out = Stages(console), dict[str, str]()
    for name in options.engines:
        if name not in ENGINES:
            near = did_you_mean(name, ENGINES)
            raise EqsatError(f"there is no engine {name!r}; {near}there are {', '.join(ENGINES)}")
    figures: dict[str, Figures] = {OWN: Figures()}
    with ExitStack() as stack:
        with stages("start", OWN):
            own = stack.enter_context(_Peer(OWN, options))
            feed = own.answer()
            results = feed if isinstance(feed, str) else own.answer()
            if isinstance(results, str):
                raise EqsatError(results)
        peers = {OWN: own}
        for name in dict.fromkeys(options.engines or ENGINES):
            reason = ENGINES[name].why_not(options.file)
            if reason is None:
                with stages("start", name):
                    peer = stack.enter_context(_Peer(name, options))
                    peer.pipe.send(feed)
                    found = peer.answer()
                reason = found if isinstance(found, str) else _incomparable(results, found)
            if reason is None:
                peers[name], figures[name] = peer, _compared(results, found)
            else:
                left_out[name] = reason
        with stages("run", f"{options.rounds} rounds"):
            _take_turns(peers, figures, options)
    console.print()
    console.print(bench_table(figures))
    for name, reason in left_out.items():
        console.print(Text(f"left out: {name}: {reason}", style="yellow"))
    return figures


def bench_table(figures: Mapping[str, Figures]) -> Table:
    """One row for each engine; ratios are medians of those of the rounds."""
    table = FittedTable(pad_edge=False)
    table.add_column("engine")
    for heading in ("median", "times as long", "greatest difference", "of results up to"):
        table.add_column(heading, justify="right")
    own = figures[OWN].rounds
    for name, one in figures.items():
        if name == OWN:
            table.add_row(name, format_seconds(one.seconds), "", "", "")
            continue
        ratio = statistics.median(theirs / ours for theirs, ours in zip(one.rounds, own, strict=True))
        table.add_row(
            name, format_seconds(one.seconds), f"{ratio:.2f}", f"{one.difference:.2g}", f"{one.magnitude:.3g}"
        )
    return table


def _take_turns(peers: Mapping[str, _Peer], figures: Mapping[str, Figures], options: BenchOptions) -> None:
    order, rng = list(peers), random.Random(options.seed)
    for _ in range(options.rounds):
        rng.shuffle(order)
        for name in order:
            time.sleep(_REST)
            figures[name].rounds.append(peers[name].burst())


def _incomparable(ours: Sequence[Any], theirs: Sequence[Any]) -> str | None:
    shapes = [tuple(one.shape) for one in ours], [tuple(one.shape) for one in theirs]
    return None if shapes[0] == shapes[1] else f"gives results of shapes {shapes[1]}, ours are {shapes[0]}"


def _compared(ours: Sequence[Any], theirs: Sequence[Any]) -> Figures:
    difference = magnitude = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.size:
            wide, wanted = one.astype("float64"), other.astype("float64")
            off = float(np.max(np.abs(wide - wanted)))
            difference = max(difference, math.inf if math.isnan(off) else off)
            magnitude = max(magnitude, float(np.max(np.abs(wanted))))
    return Figures(difference=difference, magnitude=magnitude)
