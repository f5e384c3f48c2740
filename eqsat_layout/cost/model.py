"""What running an op and rewriting a layout cost. A roofline by default; anything with the same two methods will do.

In: an op's signature and the formats it reads and writes. Out: modelled seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from eqsat_layout.cost.touched_memory import padded_work, touched_share
from eqsat_layout.cost.vectorise import SLIDING, Heaviest, heaviest
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats, element_bits
from eqsat_layout.tir.flow import is_in_step


class CostModel(Protocol):
    """Modelled seconds; never negative. The same question always has the same answer.

    ``fused`` is what a neighbour saves: kernels that TVM fuses pass a tensor on in registers.
    """

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """One run of ``op`` reading and writing these formats (None for what is no tensor).

        ``fused`` numbers the operands that come in registers; :data:`RESULT` among them: the result stays in some.
        """
        ...

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """A copy of ``tensor`` from one format to another; not asked where the bytes are the same already.

        ``fused``: the kernel that makes or uses the tensor does it by the way: what it then takes longer than it would
        if it kept to one format.
        """
        ...

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """One copy of a constant in ``fmt``, shared by its users in that format. May be missing: copies are free."""
        ...


_STRIPS: Final = 5.0
"""What reading weights in strips from cold memory adds, in times that reading them in one piece takes.

Measured on 16 to 196 rows by 128 to 768 columns: 3 to 9.
"""
_OF_STRIPS: Final = 32
"""Rows that share these, up to which it is less for fewer rows, as they are read for each few of them again (measured
on Zen 3, 1280 x 1000 beside a copy: 4 rows .5 of the time, 8 .6, 16 1.0, 32 1.04, 64 1.3)."""

_SCATTERED: Final = 2.0
"""Reading vectors here and there takes so many times as long: no hardware fetches them ahead (measured: 1.9)."""

_ROWS: Final = 1.1
"""Reading weights row by row takes so many times as long as in panels (measured on 1 to 64 MB: 1.05 to 1.4)."""

_BORDER: Final = 0.5
"""Of the time of an element that is copied to its phase: of one in rows that get a border."""

_PART: Final = 0.6
"""Of the bandwidth of a rewrite is left to one that is part of another kernel: it may be none in registers."""
_LINE_BYTES: Final = 64

RESULT: Final = -1
"""The number of an op's result where operands are numbered too."""


CALIBRATED: Final = ("bandwidth", "rewrite_bandwidth", "flops", "launch")
"""The fields of a roofline that ``eqsat-layout calibrate`` measures."""


@dataclass(frozen=True)
class _Parts:
    """Of a run: ``traffic``, bytes of each operand and then of each result, times what they take longer than in a
    stream; ``arithmetic`` seconds; ``strips``, bytes of operands that are read in strips, by their numbers."""

    traffic: tuple[float, ...]
    arithmetic: float
    strips: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Roofline:
    """Launch overhead plus the slower of memory traffic and arithmetic (Williams et al. 2009).

    ``bandwidth`` is bytes a second of a kernel that streams, ``rewrite_bandwidth`` of one that permutes, ``gather``
    seconds an element where elements are copied one by one, ``phase`` where the data of windows that move by strides
    are (None: kernels don't copy these), ``flops`` operations a second at full vectors of ``vector_bytes``, ``sliding``
    the share of these where vectors slide along an operand, ``weights`` how many times as long it takes to read those:
    they come from memory, data from a cache; ``word`` bytes of each factor of a product of bytes are multiplied and
    added up in the time of one product of floats, faster where ``tile_row`` of them lie side by side (0: nowhere). The
    defaults are those of one core of a current server CPU; they decide proportions, not absolute times.
    ``eqsat-layout calibrate`` measures ``bandwidth``, ``rewrite_bandwidth``, ``flops`` and ``launch``.
    """

    bandwidth: float = 25e9
    rewrite_bandwidth: float = 12e9
    flops: float = 100e9
    launch: float = 1e-6
    gather: float = 1.5e-9
    phase: float | None = None
    sliding: float = SLIDING
    weights: float = 1.6
    symbolic_extent: int = 64
    vector_bytes: int = 32
    word: int = 1
    tile_row: int = 0

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """Every operand is read once and every result written once, at the speed that the innermost axis allows."""
        if op.parts:
            return 0.0
        parts = self._parts(op, operands, results)
        numbers = [*range(len(operands)), *(RESULT for _ in results)]
        traffic = sum(own for number, own in zip(numbers, parts.traffic, strict=True) if number not in fused)
        strips = sum(own for number, own in parts.strips if number not in fused)
        launch = 0.0 if any(i >= 0 for i in fused) else self.launch
        return launch + max(traffic / self.bandwidth, parts.arithmetic) + _STRIPS * strips / self.bandwidth

    def _parts(self, op: Signature, operands: Formats, results: Formats) -> _Parts:
        """The same whatever is fused: worked out once for a computation."""
        if op.computation is None:
            return self._new_parts(op, operands, results)
        shared = _shared_order(operands, results) if is_in_step(op.computation) else None
        if shared is not None:  # each is as fast as any
            plain = Format.row_major(shared.shape)
            operands, results = [plain] * len(operands), [plain] * len(results)
        question = ("parts", self._itself, *operands, *results)
        found: _Parts | None = op.computation.derived.get(question)
        if found is None:
            found = op.computation.derived[question] = self._new_parts(op, operands, results)
        return found

    @cached_property
    def _itself(self) -> object:
        """What stands for it among answers: what a class of the user's adds need not have a hash."""
        return object()

    def _new_parts(self, op: Signature, operands: Formats, results: Formats) -> _Parts:
        own, lanes = op.computation, self._lanes(op)
        heavy = None if own is None else heaviest(own, operands, results, self.word, self.tile_row)
        scattered = heavy.scattered_operands if heavy is not None else frozenset[int]()
        weights = heavy.weights if heavy is not None else frozenset[int]()
        rows = heavy.row_operands(lanes) if heavy is not None else frozenset[int]()
        traffic: list[float] = []
        tensors = zip((*op.operands, *op.results), (*operands, *results), strict=True)
        for number, (tensor, fmt) in enumerate(tensors):
            slower = (_SCATTERED if number in scattered else 1.0) * (self.weights if number in weights else 1.0)
            slower *= _ROWS if number in rows else 1.0
            touched = 0.0 if tensor is None or fmt is None else touched_bytes(op, number, fmt, self.symbolic_extent)
            traffic.append(touched * slower)
        arithmetic = self._arithmetic(op, heavy, lanes, operands, results)
        return _Parts(tuple(traffic), arithmetic, tuple(self._strips(op, heavy, operands)))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """Both buffers pass through memory once. A fused copy permutes what would stream."""
        before, after = self._valid_bytes(tensor, source), self._bytes(tensor, target)
        if fused:
            return max(0.0, max(before, after) / (_PART * self.rewrite_bandwidth) - before / self.bandwidth)
        return self.launch + (before + after) / self.rewrite_bandwidth

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """A copy is read from memory once more, cold."""
        return self._bytes(tensor, fmt) / self.bandwidth

    def _strips(self, op: Signature, heavy: Heaviest | None, formats: Formats) -> Iterator[tuple[int, float]]:
        """Bytes of weights that are read in strips, by the number of the operand."""
        if heavy is None:
            return
        for i in heavy.stalling_operands:
            ty, fmt = op.operands[i], formats[i]
            if ty is not None and fmt is not None:
                rows = heavy.block.iterations / fmt.elements(self.symbolic_extent)
                yield i, self._bytes(ty, fmt) * min(1.0, rows / _OF_STRIPS)

    def _arithmetic(
        self, op: Signature, heavy: Heaviest | None, lanes: int, operands: Formats, results: Formats
    ) -> float:
        computation = op.computation
        if computation is None:
            return 0.0
        if not computation.flops:
            if heavy is None or heavy.run >= lanes:
                return 0.0
            return self.gather * computation.iterations / heavy.run
        has_phases, efficiency, copied, looked_up = self.phase is not None, 1.0, 0.0, 0.0
        if heavy is not None:
            efficiency = heavy.efficiency(lanes, sliding=self.sliding, in_phases=has_phases)
            if has_phases:
                copied = sum(fmt.elements(self.symbolic_extent) for _, fmt in heavy.strided)
                copied += _BORDER * sum(fmt.elements(self.symbolic_extent) for _, fmt in heavy.padded)
            looked_up = heavy.block.iterations * heavy.lookups(lanes)
        work = computation.flops * padded_work(computation, operands, results) / (self.flops * efficiency)
        return work + (self.phase or 0.0) * copied + self.gather * looked_up

    def _valid_bytes(self, tensor: TensorType, fmt: Format) -> float:
        """What has to be read of a tensor: padding is not, but what shares cache lines with elements comes along."""
        whole = self._bytes(tensor, fmt)
        if not fmt.is_padded:
            return whole
        run = 1  # elements that lie side by side
        for digit in reversed(fmt.index_map.flat_digits):
            extents = digit.extent, fmt.shape[digit.axis]
            extent, own = (e if isinstance(e, int) else self.symbolic_extent for e in extents)
            run *= min(extent, own) if digit.stride == 1 else extent
            if fmt.padding[digit.axis] != (0, 0):
                break
        line = _line(tensor)
        own = math.prod(e if isinstance(e, int) else self.symbolic_extent for e in fmt.shape)
        valid = own * dtype_bytes(tensor.dtype)
        return min(whole, valid * math.ceil(run / line) * line / run)

    def _lanes(self, op: Signature) -> int:
        """Elements of its results that fit a vector register."""
        sizes = [dtype_bytes(ty.dtype) for ty in op.results if ty is not None]
        return max(1, int(self.vector_bytes / max(sizes, default=4.0)))

    def _bytes(self, tensor: TensorType, fmt: Format) -> float:
        return fmt.elements(self.symbolic_extent) * dtype_bytes(tensor.dtype)


def _shared_order(operands: Formats, results: Formats) -> Format | None:
    """The layout without padding that all tensors lie in, so that a kernel's accesses go through memory together."""
    first = results[0]
    is_shared = first is not None and first == Format.make(first.index_map) and {*operands, *results} == {first}
    return first if is_shared else None


def touched_bytes(op: Signature, number: int, fmt: Format, symbolic_extent: int) -> float:
    """Bytes of the operand or result of this number that pass through memory."""
    tensor = (*op.operands, *op.results)[number]
    assert tensor is not None
    computation = op.computation
    whole = fmt.elements(symbolic_extent) * dtype_bytes(tensor.dtype)
    if computation is None or number >= len(computation.operands) or len(computation.operands) != len(op.operands):
        return whole
    return whole * touched_share(computation, computation.operands[number], fmt, _line(tensor))


def _line(tensor: TensorType) -> int:
    """Elements of a cache line."""
    return max(1, int(_LINE_BYTES / dtype_bytes(tensor.dtype)))


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element."""
    return element_bits(dtype) / 8
