"""Where what a block reads comes from: an operand, with zeros put around and between its elements.

In: a computation and a buffer that a block of it reads. Out: :class:`OperandSource`, or None where blocks in between do
anything else. Conditions and indices are evaluated at every place of an axis, not known by their form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.tir.computation import Block, Computation, Index, Value
from eqsat_layout.tir.index_values import index_at, values_at

Places = npt.NDArray[np.int64]
"""Along one axis, ascending."""


@dataclass(frozen=True)
class SourceAxis:
    """Place ``i`` is element ``(i - before) / stretch`` of axis ``axis`` of the operand, or 0 where that is no integer.

    ``after`` zeros follow the last element; ``flipped``: counted from the end.
    """

    axis: int
    before: int = 0
    after: int = 0
    stretch: int = 1
    flipped: bool = False

    @property
    def is_plain(self) -> bool:
        """As it stands in the operand."""
        return self == SourceAxis(self.axis)


@dataclass(frozen=True)
class OperandSource:
    """``buffer`` is an operand, ``axes`` are those of what is read; ``blocks`` make the one of the other."""

    buffer: int
    axes: tuple[SourceAxis, ...]
    blocks: tuple[Block, ...] = ()


def operand_behind(computation: Computation, buffer: int) -> OperandSource | None:
    """The operand behind ``buffer``."""
    shape = computation.buffers[buffer].shape
    source = OperandSource(buffer, tuple(SourceAxis(i) for i in range(len(shape))))
    while source.buffer not in computation.operands:
        writers = [b for b in computation.blocks if any(w.buffer == source.buffer for w in b.writes)]
        step = _step(computation, writers[0]) if len(writers) == 1 else None
        if step is None:
            return None
        axes = [_composed(outer, step.axes[outer.axis]) for outer in source.axes]
        if any(axis is None for axis in axes):
            return None
        source = OperandSource(step.buffer, tuple(a for a in axes if a is not None), (*source.blocks, *step.blocks))
    return source


def _composed(outer: SourceAxis, inner: SourceAxis) -> SourceAxis | None:
    """First ``outer``, then ``inner``; ``None`` for orders that no convolution has."""
    if inner.is_plain:
        return replace(outer, axis=inner.axis)
    if outer.is_plain:
        return inner
    stretches_padded = outer.stretch == 1 and not (outer.flipped or inner.flipped or inner.before or inner.after)
    return replace(outer, axis=inner.axis, stretch=inner.stretch) if stretches_padded else None


def _step(computation: Computation, block: Block) -> OperandSource | None:
    """What one block does."""
    if len(block.stores) != 1 or block.inits or len(block.reads) != 1:
        return None
    read, write = block.reads[0], block.writes[0]
    written = {v: axis for axis, index in enumerate(write.indices) if (v := block.variable(index)) is not None}
    if len(written) != len(write.indices) or len(read.indices) != len(write.indices):
        return None
    outer, inner = computation.buffers[write.buffer].shape, computation.buffers[read.buffer].shape
    inside = _inside(block)
    if inside is None:
        return None
    axes: dict[int, SourceAxis] = {}
    moving = {variable for index in read.indices for variable in index.iters}
    alone = iter([v for v, axis in written.items() if v not in moving and outer[axis] == 1])
    for axis, (index, size) in enumerate(zip(read.indices, inner, strict=True)):
        (variable, *others) = index.iters or (next(alone, None) if size == 1 else None,)
        extent = outer[written[variable]] if variable in written and not others else None
        if variable is None or not isinstance(extent, int) or not isinstance(size, int):
            return None
        if variable not in inside and size == extent and block.variable(index) == variable:
            found: SourceAxis | None = SourceAxis(axis)
        else:
            found = _axis(index, axis, size, extent, inside.get(variable, np.arange(extent)))
        if found is None:
            return None
        axes[written[variable]] = found
    if len(axes) != len(write.indices):
        return None
    return OperandSource(read.buffer, tuple(axes[i] for i in range(len(axes))), (block,))


def _axis(index: Index, axis: int, size: int, extent: int, places: Places) -> SourceAxis | None:
    """What is done along one axis, if the ``places`` that have elements have all ``size`` of them in order."""
    elements = _elements(index, places)
    if elements is None or not len(places):
        return None
    if size == extent > 1 and np.array_equal(elements, np.arange(size)[::-1]):
        return SourceAxis(axis, flipped=True)
    steps = set(np.diff(places).tolist())
    if not np.array_equal(elements, np.arange(size)) or len(steps) > 1:
        return None
    first, last = int(places[0]), int(places[-1])
    return SourceAxis(axis, first, extent - 1 - last, steps.pop() if steps else 1)


def _elements(index: Index, places: Places) -> Any:
    """The values of an index of one variable; ``None`` where it is not understood."""
    values = index_at(index, dict.fromkeys(index.iters, places))
    return None if values is None else np.broadcast_to(values, places.shape)


def _inside(block: Block) -> Mapping[int, Places] | None:
    """By variable: where the block copies an element, if it stores 0 elsewhere; ``None`` if it does anything else."""
    value = block.stores[0].value
    if value.op == "load":
        return {}
    if value.op != "prim.if_then_else" or len(value.args) != 3:
        return None
    condition, inside, outside = value.args
    zero = outside.op == "const" and float.fromhex(str(outside.literal)) == 0.0
    if inside.op != "load" or not zero:
        return None
    found: dict[int, Any] = {}
    for part in _conjuncts(condition):
        variables = {int(v.literal) for v in part.walk() if v.op == "iter"}
        extents = [block.extents[v] for v in variables]
        if len(extents) != 1 or not isinstance(extents[0], int):
            return None
        (variable,) = variables
        holds = values_at(part, {variable: np.arange(extents[0])})
        if holds is None:
            return None
        found[variable] = found.get(variable, True) & holds
    return {variable: np.flatnonzero(holds) for variable, holds in found.items()}


def _conjuncts(condition: Value) -> Iterator[Value]:
    if condition.op == "And":
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition


__all__ = ["OperandSource", "SourceAxis", "operand_behind"]
