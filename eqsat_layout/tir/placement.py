"""Placement: in which memories the buffers of a flow may lie.

In: the flat formats of a flow, and what a target's memories hold and its kernels may read and write there. Out: the
same index maps over buffers in those memories, chosen for each operand and result on its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from eqsat_layout.maps import GLOBAL, Format, Memory
from eqsat_layout.tir.computation import Computation

_MOST: Final = 64
"""Ways to place the buffers of one flow; beyond, all go where one of them goes."""


class Placement(Protocol):
    """What is asked of a target: its memories by scope, and which accesses they allow."""

    @property
    def memories(self) -> Mapping[str, Memory]:
        """By scope; :data:`GLOBAL` is always among them."""
        ...

    def reads(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Why a kernel can't read operand ``buffer`` in ``fmt``'s memory, in words; ``None`` if it can."""
        ...

    def writes(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """The same for a result that it writes."""
        ...


@dataclass(frozen=True)
class FlatMemory:
    """One flat memory, which everything reads and writes: that of CPUs."""

    memories: Mapping[str, Memory] = field(default_factory=lambda: {GLOBAL: Memory()})

    def reads(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Always."""
        return None

    def writes(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Always."""
        return None


FLAT = FlatMemory()


def in_flat_memory(fmt: Format) -> Format:
    """The format in flat global memory."""
    return replace(fmt, scope=GLOBAL, separators=()) if fmt.scope != GLOBAL or fmt.separators else fmt


def why_not_placed(computation: Computation, buffer: int, fmt: Format, placement: Placement) -> str | None:
    """Why kernels of ``computation`` can't have operand or result ``buffer`` in ``fmt``, by its memory alone."""
    memory = placement.memories.get(fmt.scope)
    if memory is None:
        return f"there is no memory of scope {fmt.scope!r}"
    own = computation.buffers[buffer]
    refusal = memory.why_not(fmt, own.dtype)
    if refusal is not None:
        return f"{fmt.scope} memory: {refusal}"
    if memory.is_flat and fmt.scope == GLOBAL:
        return None
    asked = placement.reads if buffer in computation.operands else placement.writes
    return asked(computation, buffer, fmt)


def placed_formats(
    computation: Computation, formats: Mapping[int, Format], given: Collection[int], placement: Placement
) -> Iterator[dict[int, Format]]:
    """``formats`` with operands and results placed in every way, apart from those numbered in ``given``.

    The first one has all others in global memory. Internal buffers stay where they are.
    """
    free = [n for n in (*computation.operands, *computation.results) if n not in given]
    choices = [_places(computation, number, formats[number], placement) for number in free]
    if math.prod(map(len, choices)) > _MOST:
        for scope in placement.memories:
            own = [next((f for f in places if f.scope == scope), places[0]) for places in choices]
            yield {**formats, **dict(zip(free, own, strict=True))}
        return
    for chosen in itertools.product(*choices):
        yield {**formats, **dict(zip(free, chosen, strict=True))}


def _places(computation: Computation, number: int, fmt: Format, placement: Placement) -> list[Format]:
    """The memories that a buffer may lie in, the one that it is in first."""
    dtype = computation.buffers[number].dtype
    found = [fmt]
    for memory in placement.memories.values():
        placed = memory.placed(fmt, dtype) if memory.scope != fmt.scope else None
        if (
            placed is not None
            and memory.suits(placed)
            and why_not_placed(computation, number, placed, placement) is None
        ):
            found.append(placed)
    return found
