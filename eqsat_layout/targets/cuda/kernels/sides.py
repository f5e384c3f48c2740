"""An operand of a product between memory and the registers of warps.

In: an operand, its axes across the product (rows or columns) and along it (steps). Out: how tiles of it lie in shared
memory, are filled, and loaded as fragments (:class:`WarpPart`): units of 16 bytes run along those axes that elements
lie together along in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.extents import is_whole_tiles
from eqsat_layout.targets.cuda.kernels.fills import Fill, TileShape, bytes_together
from eqsat_layout.targets.cuda.kernels.fragments import WarpPart
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand
from eqsat_layout.targets.cuda.kernels.products import Product


def sides_of(product: Product, arithmetic: Arithmetic) -> tuple[Side, Side]:
    """The left and the right one."""
    left = Side(product.left, product.rows, product.steps, arithmetic, product.fixed, is_left=True)
    return left, Side(product.right, product.columns, product.steps, arithmetic, product.fixed, is_left=False)


@dataclass(frozen=True)
class Side:
    """``across``: the axes of rows or columns. ``is_left``: the left operand.

    ``in_pairs``: the left operand's fragments are made of sums, whose steps are in another order
    (:meth:`WarpPart.loaded`).
    """

    operand: Operand
    across: FlatAxes
    steps: FlatAxes
    arithmetic: Arithmetic
    fixed: Mapping[Any, Any]
    is_left: bool
    in_pairs: bool = False

    @cached_property
    def along_steps(self) -> bool:
        """Units lie along the steps; else across, where instructions can take them so."""
        across, steps = self._together
        if self.arithmetic.operand_bytes == 1:
            return True
        return steps >= across and not (self.in_pairs and self._is_wide)

    def part(self, across: int, steps: int, extent: int, *, ends_with_tiles: bool) -> WarpPart:
        """Tiles of so many elements across and steps, of which a warp has an ``extent``.

        ``ends_with_tiles``: there are no steps that are in no tile, nor tiles of other steps.
        """
        groups, sizes = (self.across, self.steps), (across, steps)
        even = (is_whole_tiles(self.across.extent, across), ends_with_tiles)
        if not self.along_steps:
            groups, sizes, even = groups[::-1], sizes[::-1], even[::-1]
        by_word = 0 if self.along_steps or not self._is_wide else 2 if self.in_pairs else 1
        shape = TileShape.of(sizes[0], math.ceil(sizes[1] / self.arithmetic.unit), by_word=by_word)
        is_filled = shape.units * self.arithmetic.unit == sizes[1]
        together = self._together[self.along_steps]
        fill = Fill(
            self.operand,
            *groups,
            shape,
            self.arithmetic,
            together,
            self.fixed,
            (even[0], even[1] and is_filled),
            by_word,
        )
        return WarpPart(fill, self.arithmetic, extent, self.is_left, self.along_steps)

    @property
    def _is_wide(self) -> bool:
        """``ldmatrix`` exchanges elements of 2 bytes only."""
        return self.arithmetic.operand_bytes == 4

    @cached_property
    def _together(self) -> tuple[int, int]:
        """Bytes of an asynchronous copy across, and along the steps."""
        groups = (self.across, self.steps)
        across, steps = (bytes_together(self.operand, one, self.fixed, self.arithmetic) for one in groups)
        return across, steps
