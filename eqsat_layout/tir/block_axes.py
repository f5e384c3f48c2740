"""The iteration variables of a block under new formats.

In: a block and the formats of the buffers. Out: new variables, one per physical axis of what the block writes, then the
reduced ones, cut where the formats of what is read cut them; and the old variables as numbers written in the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.maps import Digit, Extent, Format, IndexMap
from eqsat_layout.tir.access_maps import tiles
from eqsat_layout.tir.affine import Affine, AffineReader, Term, digit_of, summed
from eqsat_layout.tir.computation import Block, IterKind
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.padding import PadWidths, over_borders


@dataclass(frozen=True)
class BlockAxis:
    """A new iteration variable and the loop over it."""

    loop: Any
    iter_var: Any
    extent: Extent

    @property
    def var(self) -> Any:
        """The variable inside of the block."""
        return self.iter_var.var


class BlockAxes:
    """``axes`` in loop order. ``written`` is the physical shape that the spatial ones run over, if they do.

    ``borders``: how far the old variables run beyond their extents.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        block: Block,
        formats: Sequence[Format],
        symbols: Mapping[str, Any],
        borders: Sequence[PadWidths],
    ) -> None:
        self.extents = block.extents
        self.borders = borders
        self.block = over_borders(block, borders)
        self.formats = formats
        self.symbols = symbols
        self.dtype = str(variables[0].ty.dtype) if variables else "int64"
        self.axes: list[BlockAxis] = []
        self.written: tuple[Extent, ...] | None = None
        self._numbers: dict[int, tuple[Digit, ...]] = {}  # old variable -> its digits in the new ones
        self._wholes: dict[int, Affine] = {}
        self._make([str(v.name).removeprefix("v_") for v in variables])
        self.reader = AffineReader(
            [a.var for a in self.axes], [a.extent for a in self.axes], [a.iter_var.dom for a in self.axes]
        )

    def moved(self, value: Affine) -> Affine | None:
        """A sum over old variables as a sum over new ones; None where a digit is cut."""
        terms: list[Term] = []
        constant = value.constant
        for weight, number, stride, extent in value.terms:
            part = digit_of(self._whole(number), stride, extent, self.extents[number])
            if part is None:
                return None
            terms.extend(t._replace(weight=t.weight * weight) for t in part.terms)
            constant += part.constant * weight
        return summed(terms, constant)

    def old_variable(self, number: int) -> Any:
        """An old variable as an expression in the new ones."""
        return self.expr(self._whole(number))

    def is_inside(self, number: int) -> list[Any]:
        """The conditions under which an old variable is within its extent."""
        (before, behind), extent = self.borders[number], self.extents[number]
        assert isinstance(extent, int), "a symbolic axis has no padding"
        value = self._whole(number)
        counted = self.expr(Affine(value.terms))
        conditions = [tirx.IntImm(self.dtype, before) <= counted] if before else []
        return conditions + ([counted < tirx.IntImm(self.dtype, before + extent)] if behind else [])

    def expr(self, value: Affine) -> Any:
        """The TVM expression of a sum over new variables."""
        total: Any = None
        for weight, axis, stride, extent in value.terms:
            part, size = self.axes[axis].var, self.axes[axis].extent
            part = part // stride if stride > 1 else part
            if isinstance(extent, int) and (isinstance(size, str) or stride * extent != size):
                part = part % extent
            part = part if abs(weight) == 1 else part * abs(weight)
            total = _plus(total, part, weight)
        if total is None:
            return tirx.IntImm(self.dtype, value.constant)
        return _plus(total, abs(value.constant), value.constant) if value.constant else total

    def unit_axis(self, place: int) -> Any:
        """The variable of the written axis at ``place``, which counts from the right, if that has extent 1."""
        if self.written is None or -place > len(self.written) or self.written[place] != 1:
            return None
        return self.axes[len(self.written) + place].var

    def scalar_axis(self) -> BlockAxis:
        """The variable of a block that has none: TIR wants one."""
        return self._axis("u", 1, IterKind.SPATIAL)

    def _whole(self, number: int) -> Affine:
        """An old variable as a sum over new ones."""
        if number not in self._wholes:
            self._wholes[number] = self._new_whole(number)
        return self._wholes[number]

    def _new_whole(self, number: int) -> Affine:
        place = 1
        terms: list[Term] = []
        for axis, stride, extent in reversed(self._numbers[number]):
            terms.append(Term(place, axis, stride, extent))
            place *= extent if isinstance(extent, int) else 1
        return summed(terms, -self.borders[number][0])

    def _make(self, names: Sequence[str]) -> None:
        spatial = [i for i in range(len(self.block.iters)) if self.block.is_spatial(i)]
        inverse = self._spatial_inverse(spatial)
        if inverse is not None:
            self.written = inverse.shape
            self.axes.extend(self._axis(f"ax{p}", e, IterKind.SPATIAL) for p, e in enumerate(inverse.shape))
            self._numbers.update(zip(spatial, inverse.dims, strict=True))
        for number, axis in enumerate(self.block.iters):
            if number not in self._numbers:
                cuts = self._cuts(number) if axis.kind is IterKind.REDUCE else []
                self._split(number, names[number], cuts)

    def _spatial_inverse(self, spatial: Sequence[int]) -> IndexMap | None:
        """The map from the written buffer's physical indices to the spatial variables; None if it is no digit map."""
        access = self.block.stores[0].access
        places = {number: place for place, number in enumerate(spatial)}
        dims: list[tuple[Digit, ...]] = []
        for index in access.indices:
            digits = index.digits() if isinstance(index, Affine) else None
            if digits is None or any(d.axis not in places for d in digits):
                return None
            dims.append(tuple(d._replace(axis=places[d.axis]) for d in digits if d.extent != 1))
        written = IndexMap(tuple(self.block.extents[i] for i in spatial), tuple(dims))
        layout = self.formats[access.buffer].index_map
        if written.result_shape != layout.shape or not tiles(written):
            return None
        physical = layout.after(written)
        return None if physical is None else physical.inverse()

    def _cuts(self, number: int) -> list[int]:
        """Where the formats of what is read cut a reduced variable; each cut divides the next and the extent."""
        size = self.block.extents[number]
        cuts: set[int] = set()
        for read in self.block.reads:
            strides = [(d.axis, d.stride) for row in self.formats[read.buffer].index_map.dims for d in row]
            for dim, index in enumerate(read.indices):
                if isinstance(index, Affine) and index.digits() is not None:
                    for weight, axis, stride, extent in index.terms:
                        inside = [s // weight for a, s in strides if a == dim and s % weight == 0]
                        if axis == number and isinstance(extent, int):
                            cuts.update(stride * s for s in inside if 1 < s < extent)
        chain: list[int] = []
        for cut in sorted(cuts):
            if isinstance(size, int) and size % cut == 0 and (not chain or cut % chain[-1] == 0):
                chain.append(cut)
        return chain

    def _split(self, number: int, name: str, cuts: Sequence[int]) -> None:
        """New variables for an old one, most significant first, cut at these strides."""
        size, kind = self.block.extents[number], self.block.iters[number].kind
        strides = [*reversed(cuts), 1]
        bounds: list[Extent] = [size, *reversed(cuts)]
        digits: list[Digit] = []
        for position, (bound, stride) in enumerate(zip(bounds, strides, strict=True)):
            extent = bound // stride if isinstance(bound, int) else bound
            digits.append(Digit(len(self.axes), 1, extent))
            self.axes.append(self._axis(f"{name}_{position}" if cuts else name, extent, kind))
        self._numbers[number] = tuple(digits)

    def _axis(self, name: str, extent: Extent, kind: IterKind) -> BlockAxis:
        size = expr_of(extent, self.symbols, self.dtype)
        domain = tvm.ir.Range(tirx.IntImm(self.dtype, 0), size)
        iter_type = tirx.IterVar.DataPar if kind is IterKind.SPATIAL else tirx.IterVar.CommReduce
        iter_var = tirx.IterVar(domain, tirx.Var(f"v_{name}", self.dtype), iter_type)
        return BlockAxis(tirx.Var(name, self.dtype), iter_var, extent)


def _plus(total: Any, part: Any, sign: int) -> Any:
    if total is None:
        return part if sign > 0 else -part
    return total + part if sign > 0 else total - part
