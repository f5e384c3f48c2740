"""What a convolution along one, two or three axes is, read off its block.

In: a computation. Out: :class:`Convolution`, or None. No op is known by name: a block is a convolution if it adds up
products of two operands of which one slides along some axes and the other one does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eqsat_layout.implementations.algorithms.sources import OperandSource, operand_behind
from eqsat_layout.tir.affine import Affine, Term
from eqsat_layout.tir.computation import Access, Block, Computation, Value

Axes = tuple[int, ...]

STRETCHED: Final = "it is a transposed convolution with strides"
"""Why what is for others is not offered."""

_MOST_WINDOWS: Final = 3
_CAST: Final = "Cast"


@dataclass(frozen=True)
class Convolution:
    """``y[n, o, h, ...] = sum x[n, i, h*s + r*d - p, ...] * k[o, i, r, ...]``, axes in any order.

    ``data``, ``kernel`` and ``result`` give the positions of (n, i, h, ...), (o, i, r, ...) and (n, o, h, ...) in the
    shapes of operand ``data_operand``, of the other operand, and of the result; other tuples have an entry for each
    axis that has a window (if of one element only). ``padding``: (before, after).
    ``stretches``: that many places for every element of ``x``, with zeros between them, padding not counted; and
    ``flipped``: the windows of ``k`` from the end: what a transposed convolution does. ``groups``: ``channels`` are of
    all of them, and ``k`` has the inputs of one; ``is_spread``: it has those of all, each with the outputs of its own
    group, as where data are stretched. ``factors``: the types of ``x`` and ``k``, which are made ``dtype`` before they
    are multiplied.
    """

    data_operand: int
    data: Axes
    kernel: Axes
    result: Axes
    batch: int
    channels: tuple[int, int]
    size: Axes
    windows: Axes
    out_size: Axes
    strides: Axes
    dilation: Axes
    padding: tuple[tuple[int, int], ...]
    stretches: Axes
    flipped: tuple[bool, ...]
    dtype: str
    factors: tuple[str, str]
    groups: int = 1
    is_spread: bool = False

    @property
    def is_widened(self) -> bool:
        """Its factors are of a type of fewer bits than its sums."""
        return self.factors != (self.dtype, self.dtype)

    @property
    def is_stretched(self) -> bool:
        """There are zeros between the elements of its data."""
        return set(self.stretches) != {1}


def convolution_of(computation: Computation) -> Convolution | None:
    """The convolution that ``computation`` is, of known sizes; ``None`` if it is none, or one of single channels."""
    block = _only_block(computation)
    if block is None:
        return None
    for number, read in enumerate(block.reads):
        found = _read_as_data(computation, block, read, block.reads[1 - number])
        if found is not None:
            return found
    return None


def _only_block(computation: Computation) -> Block | None:
    """The block that adds up, if there is one."""
    contractions = [b for b in computation.blocks if b.is_contraction]
    if len(contractions) != 1 or len(computation.operands) != 2 or len(computation.results) != 1:
        return None
    (block,) = contractions
    known = all(isinstance(e, int) for buffer in computation.buffers for e in buffer.shape)
    is_sum = len(block.stores) == 1 and len(block.reads) == 2 and _is_sum_of_products(block.stores[0].value)
    return block if known and is_sum and block.writes[0].buffer == computation.results[0] else None


def _is_sum_of_products(value: Value) -> bool:
    """``acc + a * b``, with nothing else done to the operands than to make them of the type of ``acc``."""
    operations = [v.op for v in value.walk() if v.op != "load"]
    is_widened = all(v.args[0].op == "load" and v.dtype == value.dtype for v in value.walk() if v.op == _CAST)
    return sorted(op for op in operations if op != _CAST) == ["Add", "Mul"] and value.op == "Add" and is_widened


@dataclass(frozen=True)
class _Roles:
    """What the variables of a block are for, if one operand is the data and the other one the kernel.

    ``axes``: of the data, by the variable that indexes it alone. ``windows``: in the order of the data's axes, as
    :func:`_window` reads them: the variable of the result, the stride, the variable of the kernel and the dilation.
    """

    batch: int
    inputs: int
    outputs: int
    axes: dict[int, int]
    window_axes: list[int]
    windows: list[tuple[int, int, int, int]]
    groups: int


def _read_as_data(computation: Computation, block: Block, data: Access, kernel: Access) -> Convolution | None:
    x, k = (operand_behind(computation, access.buffer) for access in (data, kernel))
    out = [block.variable(index) for index in block.writes[0].indices]
    weights = [block.variable(index) for index in kernel.indices]
    is_spread = None in weights
    if is_spread:
        weights = _spread_variables(block, data, kernel)
    if x is None or k is None or None in out or None in weights:
        return None
    if not len(out) == len(weights) == len(data.indices) or not 1 <= len(out) - 2 <= _MOST_WINDOWS:
        return None
    if len(computation.blocks) != 1 + len(x.blocks) + len(k.blocks):
        return None
    roles = _roles_of(block, data, x, [v for v in out if v is not None], [v for v in weights if v is not None])
    if roles is None:
        return None
    windows = [k.axes[weights.index(window)] for _, _, window, _ in roles.windows]
    borders = [x.axes[axis] for axis in roles.window_axes]
    others = [
        x.axes[roles.axes[roles.batch]],
        x.axes[roles.axes[roles.inputs]],
        k.axes[weights.index(roles.outputs)],
        k.axes[weights.index(roles.inputs)],
    ]
    if not all(axis.is_plain for axis in others) or any(axis.flipped for axis in borders):
        return None
    if any(axis.before or axis.after or axis.stretch != 1 for axis in windows):
        return None
    extents = [e if isinstance(e, int) else 0 for e in block.extents]
    shape = [e if isinstance(e, int) else 0 for e in computation.buffers[x.buffer].shape]
    place = {variable: axis for axis, variable in enumerate(out)}
    return Convolution(
        data_operand=computation.operands.index(x.buffer),
        data=(others[0].axis, others[1].axis, *(border.axis for border in borders)),
        kernel=(others[2].axis, others[3].axis, *(window.axis for window in windows)),
        result=(place[roles.batch], place[roles.outputs], *(place[v] for v, _, _, _ in roles.windows)),
        batch=extents[roles.batch],
        channels=(extents[roles.inputs] * roles.groups, extents[roles.outputs]),
        size=tuple(shape[border.axis] for border in borders),
        windows=tuple(extents[window] for _, _, window, _ in roles.windows),
        out_size=tuple(extents[v] for v, _, _, _ in roles.windows),
        strides=tuple(stride for _, stride, _, _ in roles.windows),
        dilation=tuple(dilation for _, _, _, dilation in roles.windows),
        padding=tuple((border.before, border.after) for border in borders),
        stretches=tuple(border.stretch for border in borders),
        flipped=tuple(window.flipped for window in windows),
        dtype=computation.buffers[computation.results[0]].dtype,
        factors=(computation.buffers[x.buffer].dtype, computation.buffers[k.buffer].dtype),
        groups=roles.groups,
        is_spread=is_spread,
    )


def _spread_variables(block: Block, data: Access, kernel: Access) -> list[int | None]:
    """The variables of a kernel that has the inputs of all groups, and the outputs of one; some are none in others."""
    groups = [(index, found) for index in data.indices if (found := _group(block, index)) is not None]
    if len(groups) != 1:
        return [None]
    index, (inputs, count) = groups[0]
    if not isinstance(index, Affine):
        return [None]
    outputs = index.terms[0].iter
    size = block.extents[outputs]
    of_one = Affine((Term(1, outputs, 1, size // count),)) if isinstance(size, int) else None
    spread = {index: inputs, of_one: outputs}
    if not all(own in kernel.indices for own in spread):
        return [None]  # weights that all groups share, say
    return [spread[own] if own in spread else block.variable(own) for own in kernel.indices]


def _roles_of(block: Block, data: Access, x: OperandSource, out: list[int], weights: list[int]) -> _Roles | None:
    """The roles of the variables ``out`` of the result and ``weights`` of the kernel; ``None`` for other sums."""
    count = len(out) - 2
    plain = {block.variable(index): axis for axis, index in enumerate(data.indices)}
    grouped = {axis: found for axis, index in enumerate(data.indices) if (found := _group(block, index)) is not None}
    plain |= {variable: axis for axis, (variable, _) in grouped.items()}
    slides = {axis: pair for axis, index in enumerate(data.indices) if (pair := _window(block, index)) is not None}
    slides |= _windows_of_one_place(block, data, x, out, weights, {position for position, _, _, _ in slides.values()})
    strided = {axis: step for axis, index in enumerate(data.indices) if (step := _stride(block, index)) is not None}
    plain |= {variable: axis for axis, (variable, _) in strided.items()}
    axes = {variable: axis for variable, axis in plain.items() if variable is not None}
    batch = [v for v in axes if v in out and v not in weights]
    units = [v for v in weights if v not in axes and v not in out and block.extents[v] == 1]
    if len(slides) + len(units) == count and len(batch) == 1 + len(units) and (slides or grouped or strided):
        for unit in units:
            # an axis with a window of one element is like a batch: take one with strides or padding, else the last
            v = max(batch, key=lambda v: (axes[v] in strided, not x.axes[axes[v]].is_plain, axes[v]))
            batch.remove(v)
            _, stride = strided.get(axes[v], (v, 1))
            slides[axes[v]] = (v, stride, unit, 1)
    over_windows = {window for _, _, window, _ in slides.values()}
    inputs = [v for v in axes if v in weights and v not in out and v not in over_windows]
    outputs = [v for v in weights if v in out and v not in axes]
    if not (len(batch) == len(inputs) == len(outputs) == 1 and len(slides) == count) or axes[batch[0]] in strided:
        return None
    windows = [slides[axis] for axis in sorted(slides)]
    if any(position not in out or window not in weights for position, _, window, _ in windows):
        return None
    groups = next((count for _, count in grouped.values()), 1)
    return _Roles(batch[0], inputs[0], outputs[0], axes, sorted(slides), windows, groups)


def _windows_of_one_place(
    block: Block, data: Access, x: OperandSource, out: list[int], weights: list[int], positions: set[int]
) -> dict[int, tuple[int, int, int, int]]:
    """As :func:`_window`, by axis of the data, for windows that stand at one place: only the window moves the index.

    What is added up along any axis may be called a window then, or the channels: those are without a border, and many.
    """
    read = data.iters | positions | set(weights)
    places = [v for v in out if v not in read and block.extents[v] == 1]
    found: list[tuple[int, int, int]] = []
    for axis, index in enumerate(data.indices):
        if isinstance(index, Affine) and not index.constant and len(index.terms) == 1:
            (term,) = index.terms
            is_whole = term.stride == 1 and term.extent == block.extents[term.iter] and term.weight > 0
            if is_whole and term.iter in weights and not block.is_spatial(term.iter):
                found.append((axis, term.iter, term.weight))
    found.sort(key=lambda one: (x.axes[one[0]].is_plain and one[2] == 1, block.extents[one[1]], -one[0]))
    chosen = sorted(found[: len(places)])
    return {axis: (place, 1, window, step) for place, (axis, window, step) in zip(places, chosen, strict=False)}


def _group(block: Block, index: object) -> tuple[int, int] | None:
    """The variable over the inputs of a group, and how many groups there are, of an index that says both."""
    if not isinstance(index, Affine) or index.constant or len(index.terms) != 2:
        return None
    group, own = index.terms
    size = block.extents[own.iter]
    is_one = (own.weight, own.stride, own.extent) == (1, 1, size) and group.weight == size and group.stride > 1
    if not is_one or block.is_spatial(own.iter) or not block.is_spatial(group.iter):
        return None
    outputs = block.extents[group.iter]
    count = group.extent
    return (own.iter, count) if isinstance(count, int) and outputs == count * group.stride else None


def _stride(block: Block, index: object) -> tuple[int, int] | None:
    """Variable of the result and its stride, more than 1, of an index without a window."""
    if not isinstance(index, Affine) or index.constant or len(index.terms) != 1:
        return None
    (term,) = index.terms
    is_whole = term.stride == 1 and term.extent == block.extents[term.iter]
    return (term.iter, term.weight) if is_whole and block.is_spatial(term.iter) and term.weight > 1 else None


def _window(block: Block, index: object) -> tuple[int, int, int, int] | None:
    """Variable and stride of the result, variable and dilation of the window, of an index that slides."""
    if not isinstance(index, Affine) or index.constant or len(index.terms) != 2:
        return None
    if any(t.stride != 1 or t.extent != block.extents[t.iter] for t in index.terms):
        return None
    spatial = [t for t in index.terms if block.is_spatial(t.iter)]
    reduced = [t for t in index.terms if not block.is_spatial(t.iter)]
    if len(spatial) != 1 or len(reduced) != 1:
        return None
    return spatial[0].iter, spatial[0].weight, reduced[0].iter, reduced[0].weight
