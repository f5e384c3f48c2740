"""A PrimFunc as data: which element of each operand its blocks read for which element of the result.

In: what :mod:`eqsat_layout.tir.signature` reads off a PrimFunc. Out: :class:`Computation`, without TVM objects, and
the questions asked of it: is it a contraction, how much arithmetic is it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.cached_property import cached_property
from eqsat_layout.maps import Extent
from eqsat_layout.tir.affine import Affine


class IterKind(enum.Enum):
    """What a block does along an iteration variable."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


@dataclass(frozen=True)
class Iter:
    """An iteration variable: 0 <= value < extent."""

    kind: IterKind
    extent: Extent


class Role(enum.Enum):
    """What a buffer is to its function."""

    OPERAND = "operand"
    RESULT = "result"
    INTERNAL = "internal"


@dataclass(frozen=True)
class Buffer:
    """A buffer of the function: a parameter, or allocated inside. ``separators``: the groups of its axes."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    scope: str
    role: Role
    separators: tuple[int, ...] = ()


@dataclass(frozen=True)
class Value:
    """A node of a scalar expression.

    ``op`` is ``load`` (with ``access``), ``iter`` (``literal`` is its number), ``symbol``, ``const`` (``literal`` is
    exact text), or the name of a TIR node or intrinsic, applied to ``args``.
    """

    op: str
    dtype: str
    args: tuple[Value, ...] = ()
    literal: int | str = ""
    access: Access | None = None

    @property
    def number(self) -> float:
        """Of a constant."""
        return self.literal if isinstance(self.literal, int) else float.fromhex(self.literal)

    def walk(self) -> Iterator[Value]:
        """The node and all below it; the indices of loads are not entered."""
        yield self
        for arg in self.args:
            yield from arg.walk()


@dataclass(frozen=True)
class Opaque:
    """An index that is no sum of digits. ``iters`` are the iteration variables in it."""

    value: Value
    iters: tuple[int, ...]


Index = Affine | Opaque


@dataclass(frozen=True)
class Access:
    """A load from or a store to buffer number ``buffer``, one index per dimension."""

    buffer: int
    indices: tuple[Index, ...]

    def __hash__(self) -> int:
        return self._hash  # accesses key what is read off them, and are deep

    @cached_property
    def _hash(self) -> int:
        return hash((self.buffer, self.indices))

    @cached_property
    def iters(self) -> frozenset[int]:
        """The iteration variables that it runs along."""
        return frozenset(i for index in self.indices for i in index.iters)

    @cached_property
    def sliding(self) -> frozenset[int]:
        """Those of them that an index adds to others, as that of a sliding window does."""
        sums = (index.iters for index in self.indices if isinstance(index, Affine) and len(index.iters) > 1)
        return frozenset(i for iters in sums for i in iters)


@dataclass(frozen=True)
class Store:
    """``access = value``."""

    access: Access
    value: Value


@dataclass(frozen=True)
class Block:
    """One block: ``stores`` for every point of ``iters``. All values are taken before anything is stored.

    ``inits`` are the stores that start a reduction. ``reads`` are the distinct loads from buffers that the block does
    not write.
    """

    name: str
    iters: tuple[Iter, ...]
    stores: tuple[Store, ...]
    inits: tuple[Store, ...]
    reads: tuple[Access, ...]

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """What was found out about it, by question."""
        return {}

    @cached_property
    def writes(self) -> tuple[Access, ...]:
        """Where the block stores."""
        return tuple(s.access for s in self.stores)

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        """Extents of the iteration variables."""
        return tuple(i.extent for i in self.iters)

    @cached_property
    def is_guarded(self) -> bool:
        """Some value depends on a condition."""
        return any(v.op in _CONDITIONAL for s in self.stores for v in s.value.walk())

    @cached_property
    def is_contraction(self) -> bool:
        """It reduces over a variable that indexes two or more different buffers, as conv and matmul do."""
        for number, axis in enumerate(self.iters):
            if axis.kind is IterKind.REDUCE and axis.extent != 1:
                readers = {r.buffer for r in self.reads if any(number in index.iters for index in r.indices)}
                if len(readers) > 1:
                    return True
        return False

    @cached_property
    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """Of a contraction: ``(s, r, operand)``, spatial variable ``s`` being where the result has what the operand has
        at reduced variable ``r``: a free axis of the other operand, that is reduced together with this one.

        So ``oc`` and ``rc`` of a convolution's data, ``n`` and ``k`` of a matmul's left operand.
        """
        found: list[tuple[int, int, int]] = []
        for own in self.reads:
            for other in self.reads:
                if own.buffer != other.buffer and own.buffer not in (b for _, _, b in found):
                    mine, theirs = self._plain(own), self._plain(other)
                    anywhere = own.iters
                    reduced = [i for i in mine if i in theirs and not self.is_spatial(i)]
                    free = [i for i in theirs if self.is_spatial(i) and i not in anywhere]
                    last = zip(reversed(free), reversed(reduced), strict=False)
                    found.extend((s, r, own.buffer) for s, r in last)
        return tuple(found)

    def _plain(self, access: Access) -> list[int]:
        """The variables that are dimensions as they stand."""
        shifts = (i.shift_of(self.extents) for i in access.indices if isinstance(i, Affine) and not i.constant)
        return [v for v in shifts if v is not None and self.extents[v] != 1]

    def variable(self, index: Index) -> int | None:
        """The iteration variable that ``index`` is, as it stands."""
        return index.iters[0] if isinstance(index, Affine) and index.is_plain(self.extents) else None

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The variables that are reduced over."""
        return tuple(i for i, axis in enumerate(self.iters) if axis.kind is not IterKind.SPATIAL)

    def is_spatial(self, number: int) -> bool:
        """Variable ``number`` is not reduced over."""
        return self.iters[number].kind is IterKind.SPATIAL

    @cached_property
    def iterations(self) -> int:
        """Points of ``iters``; a symbolic extent counts as :data:`SYMBOL_SIZE`."""
        return math.prod(map(assumed_size, self.extents))


SYMBOL_SIZE = 64
"""What a symbolic extent counts as in costs, as in :meth:`eqsat_layout.maps.Format.elements`."""


def assumed_size(extent: Extent) -> int:
    """What an extent counts as in costs."""
    return extent if isinstance(extent, int) else SYMBOL_SIZE


@dataclass(frozen=True)
class Computation:
    """A PrimFunc as data. ``operands``, ``results`` and ``internal`` number into ``buffers``, in order.

    ``any_numbers``: operands of contractions may be infinite or NaN, and 0 times them is not taken for 0.
    """

    buffers: tuple[Buffer, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    internal: tuple[int, ...]
    blocks: tuple[Block, ...]
    any_numbers: bool = False

    @classmethod
    def of(cls, buffers: tuple[Buffer, ...], blocks: tuple[Block, ...]) -> Computation:
        """What ``blocks`` do to ``buffers``, which say what they are to the function."""

        def numbers(role: Role) -> tuple[int, ...]:
            return tuple(i for i, buffer in enumerate(buffers) if buffer.role is role)

        return cls(buffers, numbers(Role.OPERAND), numbers(Role.RESULT), numbers(Role.INTERNAL), blocks)

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """What was found out about it, by question: flows ask the same of it with many maps."""
        return {}

    @cached_property
    def is_contraction(self) -> bool:
        """Some block is one: conv, matmul and their kin, whose layouts are chosen and do not flow."""
        return any(b.is_contraction for b in self.blocks)

    @cached_property
    def iterations(self) -> int:
        """Points that the blocks visit; symbolic extents count as :data:`SYMBOL_SIZE`."""
        return sum(b.iterations for b in self.blocks)

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations on data (not on indices). What occurs twice is worked out once, and as often as the
        variables that it depends on have values; a function such as exp counts as :data:`_FUNCTION`."""
        return sum(self._flops(block) for block in self.blocks)

    def _flops(self, block: Block) -> int:
        total = 0
        for store in block.stores:
            own = self.buffers[store.access.buffer].dtype
            for value, iters in _distinct(store.value):
                if value.op not in _NOT_ARITHMETIC and (value.dtype == own or "float" in value.dtype):
                    total += _operations(value) * math.prod(assumed_size(block.extents[i]) for i in iters)
        return total

    def multiplies_bytes(self, block: Block) -> bool:
        """It is a contraction of unsigned by signed bytes, for which CPUs have instructions."""
        return block.is_contraction and {self.buffers[read.buffer].dtype for read in block.reads} == _BYTES

    def shapes(self, numbers: Sequence[int]) -> tuple[tuple[Extent, ...], ...]:
        """Shapes of the buffers with these numbers."""
        return tuple(self.buffers[n].shape for n in numbers)


_BYTES = {"uint8", "int8"}
_CONDITIONAL = frozenset(("prim.if_then_else", "Select"))
_INTRINSIC = "tirx."
_INSTRUCTIONS = ("tirx.floor", "tirx.ceil", "tirx.trunc", "tirx.round", "tirx.nearbyint", "tirx.fabs")
_LEAVES = ("load", "iter", "symbol", "const")
_CHOICES = ("Cast", "Select", "And", "Or", "Not", "prim.if_then_else", "EQ", "NE", "LT", "LE", "GT", "GE")
_NOT_ARITHMETIC = frozenset((*_LEAVES, *_CHOICES))
_DIVISION = 16
"""Additions that a division takes as long as (measured on Zen 4: 10 cycles for 16 lanes)."""
_FUNCTION = 24
"""Those of a function such as exp, as a polynomial (measured on Zen 4 beyond what its bytes take: 20 to 50)."""


def _operations(value: Value) -> int:
    is_function = value.op.startswith(_INTRINSIC) and "float" in value.dtype and value.op not in _INSTRUCTIONS
    return _FUNCTION if is_function else _DIVISION if value.op == "Div" else 1


def _distinct(value: Value) -> list[tuple[Value, frozenset[int]]]:
    """What ``value`` is made of, each part once, with the iteration variables that it depends on."""
    found: list[tuple[Value, frozenset[int]]] = []
    _number(value, {}, found)
    return found


def _number(part: Value, numbers: dict[tuple[object, ...], int], found: list[tuple[Value, frozenset[int]]]) -> int:
    """The place of ``part`` in ``found``, where it is put behind what it is made of."""
    args = [_number(arg, numbers, found) for arg in part.args]
    key = (part.op, part.dtype, part.literal, part.access, *args)
    if key not in numbers:
        iters = frozenset(i for arg in args for i in found[arg][1])
        if part.access is not None:
            iters |= part.access.iters
        elif part.op == "iter":
            iters |= {int(part.literal)}
        numbers[key] = len(found)
        found.append((part, iters))
    return numbers[key]
