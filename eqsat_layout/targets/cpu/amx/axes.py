"""Axes of a product that are counted as one, in vectors.

In: axes of a stage. Out: the place along each of an element, by its number or by its vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from eqsat_layout.targets.cpu.amx.instructions import COLUMNS
from eqsat_layout.targets.schedules.accesses import StageAxis, places_of

LANES = COLUMNS
"""Of vectors of 32-bit numbers beside the unit."""


@dataclass(frozen=True)
class OverlappingAxes:
    """Axes that are counted as one, the last one fastest, in vectors of :data:`LANES` elements.

    A vector is made of runs of ``lanes`` elements along the last axis; the last run along it overlaps the one before.
    """

    axes: tuple[StageAxis, ...]
    lanes: int = LANES

    @property
    def extent(self) -> int:
        """Elements of all together."""
        return math.prod(axis.extent or 1 for axis in self.axes)

    @property
    def runs(self) -> int:
        """In how many runs all elements are."""
        return self._in_runs.extent

    @property
    def vectors(self) -> int:
        """In how many vectors all elements are; runs that fill up the last one hold nothing."""
        return math.ceil(self.runs / self.runs_of_vector)

    @property
    def runs_of_vector(self) -> int:
        """How many runs a vector is made of."""
        return LANES // self.lanes

    def at(self, number: Any) -> dict[Any, Any]:
        """The place along every axis of the element of this number."""
        return places_of(self.axes, number)

    def at_run(self, run: Any, lane: Any) -> dict[Any, Any]:
        """The place along every axis of element ``lane`` of a run."""
        last = self.axes[-1]
        places = self._in_runs.at(run)
        return places | {last.var: self._start(places[last.var]) + lane}

    def is_new(self, run: Any, lane: Any) -> Any:
        """The element is not in the run before; ``None`` where none ever is."""
        if not self._overlap:
            return None
        part = self._in_runs.at(run)[self.axes[-1].var]
        return self._start(part) + lane >= part * self.lanes

    @property
    def _in_runs(self) -> OverlappingAxes:
        *outer, last = self.axes
        return OverlappingAxes((*outer, StageAxis(last.var, math.ceil((last.extent or 1) / self.lanes), last.reduce)))

    def _start(self, part: Any) -> Any:
        start = part * self.lanes
        return tirx.min(start, (self.axes[-1].extent or 0) - self.lanes) if self._overlap else start

    @property
    def _overlap(self) -> int:
        return -(self.axes[-1].extent or 0) % self.lanes
