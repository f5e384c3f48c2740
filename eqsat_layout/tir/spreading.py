"""Which axes of which buffers are padded together.

In: a :class:`Computation` and the padding of one buffer, or of several. Out: the padding of every buffer, and the
computation over the padded shapes, on which flow can work as if there were no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat_layout.maps import Format, Padding
from eqsat_layout.tir.computation import Access, Block, Computation
from eqsat_layout.tir.padding import NONE, PadWidths, linked_variable, over_borders
from eqsat_layout.tir.physical_axes import RefusedError

Paddings = dict[int, list[PadWidths]]
"""Per buffer number, a border per axis."""


def spread_padding(computation: Computation, seed: int, padding: Padding, pairs: bool = False) -> dict[int, Padding]:
    """The padding of every buffer when buffer ``seed`` is padded: axes along one variable are padded alike.

    ``pairs``: so are those along a variable of the same extent that takes its place, see :attr:`Block.pairs`.
    Raises :class:`RefusedError` where a padded axis is met by one that is not in step: shifted, strided, split.
    """
    spread = _PaddingSpread(computation, {seed: padding}, fixed=frozenset(), strict=True, pairs=pairs)
    spread.run()
    return spread.result()


def completed_padding(computation: Computation, given: Mapping[int, Format]) -> dict[int, Padding]:
    """The padding of every buffer: of ``given`` ones as it is, of other operands and results none, of internal ones
    as it spreads; where two meet, the first stays."""
    public = frozenset((*computation.operands, *computation.results))
    spread = _PaddingSpread(
        computation, {n: f.padding for n, f in given.items() if f.is_padded}, fixed=public, strict=False
    )
    spread.run()
    paddings = spread.result()
    for block in computation.blocks:  # what can't be written is not padded
        if not _can_write(computation, block, paddings):
            paddings.update((w.buffer, (NONE,) * len(w.indices)) for w in block.writes if w.buffer not in public)
    return paddings


def _can_write(computation: Computation, block: Block, paddings: Mapping[int, Padding]) -> bool:
    borders: dict[int, PadWidths] = {}
    for access in block.writes:
        for dim, border in enumerate(paddings[access.buffer]):
            number = linked_variable(computation, block, access, dim)
            if (number is None and border != NONE) or (
                number is not None and borders.setdefault(number, border) != border
            ):
                return False
    return True


def padded_view(computation: Computation, paddings: Mapping[int, Padding]) -> Computation:
    """The computation with padded shapes and variables that run over them, where all buffers agree."""
    if not any(border != NONE for padding in paddings.values() for border in padding):
        return computation
    buffers = tuple(
        replace(
            buffer,
            shape=tuple(
                e + sum(border) if isinstance(e, int) else e
                for e, border in zip(buffer.shape, paddings[number], strict=True)
            ),
        )
        for number, buffer in enumerate(computation.buffers)
    )
    blocks = tuple(over_borders(b, _agreed_borders(computation, b, paddings)) for b in computation.blocks)
    return replace(computation, buffers=buffers, blocks=blocks)


def _agreed_borders(computation: Computation, block: Block, paddings: Mapping[int, Padding]) -> tuple[PadWidths, ...]:
    """A border per variable: as what is written has it, else as all that is read has it."""
    found: list[PadWidths] = []
    for number in range(len(block.iters)):
        written, read = (
            [
                paddings[a.buffer][dim]
                for a in accesses
                for dim in range(len(a.indices))
                if linked_variable(computation, block, a, dim) == number
            ]
            for accesses in (block.writes, block.reads)
        )
        borders = set(written or read)
        found.append(borders.pop() if len(borders) == 1 else NONE)
    return tuple(found)


class _PaddingSpread:
    """Carries borders from axes to variables and on to axes, until nothing is new."""

    def __init__(
        self,
        computation: Computation,
        seeds: Mapping[int, Padding],
        fixed: frozenset[int],
        strict: bool,
        pairs: bool = False,
    ) -> None:
        self.computation = computation
        self.pairs = pairs
        self.fixed = fixed
        self.strict = strict
        self.paddings: Paddings = {n: [NONE] * len(b.shape) for n, b in enumerate(computation.buffers)}
        self.pending: list[tuple[int, int]] = []
        for number, padding in seeds.items():
            self.paddings[number] = list(padding)
            self.pending += [(number, dim) for dim, border in enumerate(padding) if border != NONE]

    def result(self) -> dict[int, Padding]:
        return {number: tuple(borders) for number, borders in self.paddings.items()}

    def run(self) -> None:
        while self.pending:
            number, dim = self.pending.pop(0)
            border = self.paddings[number][dim]
            for block in self.computation.blocks:
                for access in (*block.writes, *block.reads):
                    if access.buffer == number:
                        self._leave(block, access, dim, border)

    def _leave(self, block: Block, access: Access, dim: int, border: PadWidths) -> None:
        """From an axis to the variable along it. A read that runs otherwise stays within the data: it is exact."""
        variable = linked_variable(self.computation, block, access, dim)
        if variable is None:
            if self.strict and access in block.writes:
                self._refuse(access, dim, border)
            return
        for pair in block.pairs if self.pairs else ():
            partner = pair[1] if pair[0] == variable else pair[0] if pair[1] == variable else variable
            if partner != variable and block.extents[partner] == block.extents[variable]:
                self._reach(block, partner, border)
        self._reach(block, variable, border)

    def _reach(self, block: Block, variable: int, border: PadWidths) -> None:
        """From a variable to the axes along it."""
        for other in (*block.writes, *block.reads):
            for place, index in enumerate(other.indices):
                if variable not in index.iters:
                    continue
                if linked_variable(self.computation, block, other, place) == variable:
                    self._enter(other, place, border)
                elif self.strict and block.is_spatial(variable):
                    self._refuse(other, place, border)

    def _enter(self, access: Access, dim: int, border: PadWidths) -> None:
        known = self.paddings[access.buffer][dim]
        if access.buffer in self.fixed or known == border:
            return
        if known != NONE:
            if self.strict:
                self._refuse(access, dim, border)
            return
        self.paddings[access.buffer][dim] = border
        self.pending.append((access.buffer, dim))

    def _refuse(self, access: Access, dim: int, border: PadWidths) -> None:
        raise RefusedError(f"axis {dim} is not in step with an axis that is padded by {border}", access.buffer)
