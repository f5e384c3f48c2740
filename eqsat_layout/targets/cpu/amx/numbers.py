"""What the matrix unit multiplies: float32 in parts of bfloat16, or words of four bytes.

In: float32 expressions, or int32 whose bytes are the factors. Out: what tiles hold of each, and the instruction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.bfloat16_parts import PAIRS, PARTS, part


class TileNumbers(ABC):
    """Numbers of type ``dtype``, of which a row of a tile of data holds ``steps``, in so many ``parts``.

    ``part_dtype``: of such a part. ``packed``: steps that lie side by side in a row of a tile of weights. ``pairs``:
    parts of data and weights whose products count, one of which changes from each to the next, but once.
    ``data_cycles``, ``weight_cycles``: of an element that is read and stored as tiles hold it, beside products, which
    take ``busy`` times as long as the unit alone, waiting for tiles. ``weight_bandwidth``: the share of memory's that
    weights have which a core reads while it computes. ``part_bytes``: of one. ``row_bytes``: of the parts of ``steps``
    steps. ``vectors``: in which these are in memory. ``has_short_runs``: the steps of a row may be put together of runs
    that are shorter than a vector.
    """

    dtype: ClassVar[str]
    part_dtype: ClassVar[str]
    parts: ClassVar[int]
    steps: ClassVar[int]
    packed: ClassVar[int]
    pairs: ClassVar[Sequence[tuple[int, int]]]
    data_cycles: ClassVar[float]
    weight_cycles: ClassVar[float]
    busy: ClassVar[float]
    weight_bandwidth: ClassVar[float]
    part_bytes: ClassVar[int]
    row_bytes: ClassVar[int]
    vectors: ClassVar[int]
    has_short_runs: ClassVar[bool]

    @abstractmethod
    def part(self, value: Any, number: int) -> Any:
        """A part of one number."""

    @abstractmethod
    def row_of_weights(self, parts: Sequence[Any]) -> Any:
        """The 32 bits of ``packed`` steps of one column."""

    @abstractmethod
    def multiplied(self, result: int, rows: int, columns: int) -> Any:
        """The statement that adds the product of tiles to a tile."""


class Floats(TileNumbers):
    """Each as :data:`PARTS` of bfloat16."""

    dtype, part_dtype = "float32", "uint16"
    parts, steps, packed, pairs = PARTS, 32, 2, PAIRS
    data_cycles, weight_cycles, busy, weight_bandwidth = 1.5, 0.48, 1.05, 0.48
    part_bytes, row_bytes, vectors, has_short_runs = 2, PARTS * 2 * 32, 2, False

    def part(self, value: Any, number: int) -> Any:
        """See :class:`TileNumbers`."""
        return part(value, number).astype(self.part_dtype)

    def row_of_weights(self, parts: Sequence[Any]) -> Any:
        """See :class:`TileNumbers`."""
        low, high = (one.astype("uint32") for one in parts)
        return low | (high << tirx.IntImm("uint32", 16))

    def multiplied(self, result: int, rows: int, columns: int) -> Any:
        """See :class:`TileNumbers`."""
        return matrix_unit.tile_product(result, rows, columns)


@dataclass(frozen=True)
class ByteWords(TileNumbers):
    """Four bytes each. ``has_signed_data``: the weights have none."""

    has_signed_data: bool

    dtype = part_dtype = "int32"
    parts, steps, packed, pairs = 1, 16, 1, ((0, 0),)
    data_cycles, weight_cycles, busy, weight_bandwidth = 0.25, 1.5, 1.5, 0.6
    part_bytes, row_bytes, vectors, has_short_runs = 4, 4 * 16, 1, True

    def part(self, value: Any, number: int) -> Any:
        """See :class:`TileNumbers`."""
        return value

    def row_of_weights(self, parts: Sequence[Any]) -> Any:
        """See :class:`TileNumbers`."""
        (word,) = parts
        return word

    def multiplied(self, result: int, rows: int, columns: int) -> Any:
        """See :class:`TileNumbers`."""
        return matrix_unit.multiplied_bytes(result, rows, columns, has_signed_rows=self.has_signed_data)
