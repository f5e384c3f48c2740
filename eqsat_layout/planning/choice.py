"""What was chosen for a module, before it is written down.

In: a module, how it was searched, its planned regions. Out: the module with the chosen plan, as Relax for people and
for other passes, or as TIR for a build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat_layout.extract.region import Region
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.planning.search import Search
from eqsat_layout.system.turns import one_at_a_time


@dataclass(frozen=True)
class Choice:
    """``mod`` with the best plan of each of its ``regions``; ``snapshot``: what it held when it was planned;
    ``build``: what makes an executable of a module, where one is wanted."""

    mod: Any
    snapshot: Any
    search: Search
    regions: Sequence[Region]
    build: Callable[[Any], Any] | None = None

    @property
    def taken(self) -> list[Region]:
        """The regions that are better than they were."""
        return [region for region in self.regions if region.is_taken]

    @cached_property
    def module(self) -> Any:
        """The module, with Relax ops where they say what is chosen; ``mod`` itself where nothing is taken."""
        with self.search.clock.stage("emit"):
            return self._emitted(as_tir=False)

    @cached_property
    def executable(self) -> Any:
        """The TIR module built."""
        assert self.build is not None
        return self.build(self.tir_module)

    @cached_property
    def tir_module(self) -> Any:
        """The module with a ``call_tir`` for every op whose TIR is known."""
        with self.search.clock.stage("emit"):
            return self._emitted(as_tir=True)

    @one_at_a_time
    def _emitted(self, as_tir: bool) -> Any:
        if not self.taken:
            return self.mod
        steps = [(region.graph, region.steps) for region in self.taken]
        return self.search.target.place(
            emit_module(self.snapshot, steps, self.search.program.signatures, evaluate, as_tir=as_tir)
        )
