"""How often the work items of a kernel load the elements of a buffer.

In: a computation and the formats of its results. Out: loads per buffer. A work item computes a tile of the result in
registers: a vector of lanes along its innermost axis, and some elements along the axis for which it loads least.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

from eqsat_layout.maps import Formats
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation

_LANES: Final = 4
_UNROLLED: Final = 4
"""Elements of a tile along the two axes (assumed)."""


class Loads:
    """The loads of one kernel; blocks that only prepare an operand are computed by their readers."""

    def __init__(self, computation: Computation, results: Formats) -> None:
        self._computation = computation
        self._results = dict(zip(computation.results, results, strict=True))

    def of_buffer(self, number: int) -> float:
        """Elements that all work items load of a buffer in all."""
        return self._of_buffer.get(number, 0.0)

    @cached_property
    def _of_buffer(self) -> dict[int, float]:
        """Later blocks read what earlier ones write: what a block only prepares is known when it comes up."""
        found: dict[int, float] = {}
        for block in reversed(self._computation.blocks):
            passed_on = self._passed_on(block)
            tile = self._tile(block)
            for access in block.reads:
                own = block.iterations / _reuse(block, access, tile)
                found[access.buffer] = found.get(access.buffer, 0.0) + (
                    own if passed_on is None else found.get(passed_on, 0.0)
                )
        return found

    def _passed_on(self, block: Block) -> int | None:
        """The internal buffer that a block without a reduction writes: its readers compute that themselves."""
        if len(block.stores) != 1 or block.inits or not all(map(block.is_spatial, range(len(block.iters)))):
            return None
        written = block.writes[0].buffer
        return written if written in self._computation.internal else None

    def _tile(self, block: Block) -> dict[int, int]:
        """The elements of a tile, by variable; of all axes to unroll the first one with which least is loaded."""
        variables = [v for index in block.writes[0].indices if (v := block.variable(index)) is not None]
        lane = self._lane(block)
        lanes = {} if lane is None else {lane: min(_LANES, _size(block, lane))}
        tiles = [
            lanes | {v: min(lanes.get(v, 1) * _UNROLLED, _size(block, v))} for v in variables if _size(block, v) > 1
        ]
        return min(tiles or [lanes], key=lambda tile: sum(1 / _reuse(block, read, tile) for read in block.reads))

    def _lane(self, block: Block) -> int | None:
        """The variable that neighbours in the result differ in; of what stays in the kernel, as it is written."""
        access = block.writes[0]
        fmt = self._results.get(access.buffer)
        if fmt is None:
            found = [v for index in access.indices if (v := block.variable(index)) is not None and _size(block, v) > 1]
            return found[-1] if found and access.buffer in self._computation.internal else None
        digits = [digit for digit in fmt.index_map.flat_digits if digit.extent != 1]
        return block.variable(access.indices[digits[-1].axis]) if digits else None


def _reuse(block: Block, access: Access, tile: dict[int, int]) -> int:
    """How many elements of its tile a work item computes with what it loads once."""
    reuse = 1
    for variable, elements in tile.items():
        reuse *= math.gcd(elements, _standing(access, variable, elements))
    return reuse


def _standing(access: Access, variable: int, elements: int) -> int:
    """Neighbours along a variable for which an access stands still: all, or those of one step of a quotient."""
    if variable not in access.iters:
        return elements
    if not all(isinstance(index, Affine) for index in access.indices if variable in index.iters):
        return 1
    terms = [term for index in access.indices if isinstance(index, Affine) for term in index.terms]
    strides = [term.stride for term in terms if term.iter == variable]
    return math.gcd(*(stride if isinstance(stride, int) else 1 for stride in strides))


def _size(block: Block, variable: int) -> int:
    extent = block.extents[variable]
    return extent if isinstance(extent, int) else 1 << 30
