"""Progress of a command on the console.

In: the name of a stage as it starts. Out: a spinner on a terminal, a plain line elsewhere, and the seconds of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from eqsat_layout.report.figures import format_seconds


class Stages:
    """Runs stages one after another: ``with stages("compile") as say: ... say("relax pipeline")``."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, detail: str = "") -> Iterator[Callable[[str], None]]:
        """Times ``name``; a second stage of the same name adds to the first. ``detail`` is shown, not recorded."""
        label = f"{name} {detail}".rstrip()
        start = time.perf_counter()
        with self.console.status(f"{label} ...") as status:
            yield lambda step: status.update(f"{label}: {step} ...")
        taken = time.perf_counter() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + taken
        self.console.print(f"[green]done[/]  {label:<34} [cyan]{format_seconds(taken):>8}[/]", highlight=False)
