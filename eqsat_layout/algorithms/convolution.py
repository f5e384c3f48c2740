"""What a two-dimensional convolution is, read off its block (algorithms room).

In: a computation. Out: :class:`Convolution`, or None. No op is known by name: a block is a convolution if it adds up
products of two operands of which one slides along two axes and the other one does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation, Value

Pair = tuple[int, int]


@dataclass(frozen=True)
class Convolution:
    """``y[n, o, h, w] = sum x[n, i, h*s + r*d - p, ...] * k[o, i, r, ...]``, axes in any order.

    ``data``, ``kernel`` and ``result`` give the positions of (n, i, h, w), (o, i, r, q) and (n, o, h, w) in the shapes
    of operand ``data_operand``, of the other operand, and of the result. ``padding``: (before, after) per window axis.
    """

    data_operand: int
    data: tuple[int, int, int, int]
    kernel: tuple[int, int, int, int]
    result: tuple[int, int, int, int]
    batch: int
    channels: Pair
    size: Pair
    windows: Pair
    out_size: Pair
    strides: Pair
    dilation: Pair
    padding: tuple[Pair, Pair]
    dtype: str


def convolution_of(computation: Computation) -> Convolution | None:
    """The convolution that ``computation`` is, of known sizes and one group; ``None`` if it is none."""
    block = _only_block(computation)
    if block is None:
        return None
    for number, read in enumerate(block.reads):
        found = _read_as_data(computation, block, read, block.reads[1 - number])
        if found is not None:
            return found
    return None


def _only_block(computation: Computation) -> Block | None:
    """The block that adds up, if all others together only pad."""
    hearts = [b for b in computation.blocks if b.is_contraction]
    if len(hearts) != 1 or len(computation.operands) != 2 or len(computation.results) != 1:
        return None
    (block,) = hearts
    known = all(isinstance(e, int) for buffer in computation.buffers for e in buffer.shape)
    is_sum = len(block.stores) == 1 and len(block.reads) == 2 and _is_sum_of_products(block.stores[0].value)
    return block if known and is_sum and block.writes[0].buffer == computation.results[0] else None


def _is_sum_of_products(value: Value) -> bool:
    """``acc + a * b``, with nothing else done to the operands."""
    operations = [v.op for v in value.walk() if v.op != "load"]
    return sorted(operations) == ["Add", "Mul"] and value.op == "Add"


def _read_as_data(computation: Computation, block: Block, data: Access, kernel: Access) -> Convolution | None:
    source = _source(computation, block, data)
    if source is None or kernel.buffer not in computation.operands or len(block.writes[0].indices) != 4:
        return None
    number, padding = source
    out = [_plain(block, index) for index in block.writes[0].indices]
    weights = [_plain(block, index) for index in kernel.indices]
    if None in out or None in weights or len(weights) != 4 or len(data.indices) != 4:
        return None
    plain = {_plain(block, index): axis for axis, index in enumerate(data.indices)}
    slides = {axis: pair for axis, index in enumerate(data.indices) if (pair := _window(block, index)) is not None}
    batch = [v for v in plain if v is not None and v in out and v not in weights]
    inputs = [v for v in plain if v is not None and v in weights and v not in out]
    outputs = [v for v in weights if v in out and v not in plain]
    if not (len(batch) == len(inputs) == len(outputs) == 1 and len(slides) == 2):
        return None
    axes = sorted(slides)
    if any(slides[a][0] not in out or slides[a][2] not in weights for a in axes):
        return None
    (n,), (i,), (o,) = batch, inputs, [v for v in outputs if v is not None]
    extents = [e if isinstance(e, int) else 0 for e in block.extents]
    operand = computation.operands.index(number)
    shape = [e if isinstance(e, int) else 0 for e in computation.buffers[number].shape]
    h, w = (slides[a] for a in axes)
    place = {variable: axis for axis, variable in enumerate(out)}
    return Convolution(
        data_operand=operand,
        data=(plain[n], plain[i], axes[0], axes[1]),
        kernel=(weights.index(o), weights.index(i), weights.index(h[2]), weights.index(w[2])),
        result=(place[n], place[o], place[h[0]], place[w[0]]),
        batch=extents[n],
        channels=(extents[i], extents[o]),
        size=(shape[axes[0]], shape[axes[1]]),
        windows=(extents[h[2]], extents[w[2]]),
        out_size=(extents[h[0]], extents[w[0]]),
        strides=(h[1], w[1]),
        dilation=(h[3], w[3]),
        padding=(padding[axes[0]], padding[axes[1]]),
        dtype=computation.buffers[computation.results[0]].dtype,
    )


def _plain(block: Block, index: object) -> int | None:
    return index.iters[0] if isinstance(index, Affine) and index.is_plain(block.extents) else None


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


def _source(computation: Computation, block: Block, data: Access) -> tuple[int, list[Pair]] | None:
    """The operand behind ``data``, and how much 0 a block in between puts around it."""
    rank = len(data.indices)
    if data.buffer in computation.operands:
        return (data.buffer, [(0, 0)] * rank) if len(computation.blocks) == 1 else None
    writers = [b for b in computation.blocks if b is not block]
    if len(writers) != 1 or len(writers[0].reads) != 1 or writers[0].writes[0].buffer != data.buffer:
        return None
    (pad,) = writers
    read = pad.reads[0]
    if read.buffer not in computation.operands or not _pads_with_0(pad.stores[0].value):
        return None
    outer, inner = computation.buffers[data.buffer].shape, computation.buffers[read.buffer].shape
    found: list[Pair] = []
    for axis, index in enumerate(read.indices):
        written = _plain(pad, pad.writes[0].indices[axis])
        if not isinstance(index, Affine) or written is None or index.shift_of(pad.extents) != written:
            return None
        before = -index.constant
        found.append((before, int(outer[axis]) - int(inner[axis]) - before))
    return (read.buffer, found) if all(lo >= 0 and hi >= 0 for lo, hi in found) else None


def _pads_with_0(value: Value) -> bool:
    """``load if inside else 0``."""
    if value.op != "prim.if_then_else" or len(value.args) != 3:
        return value.op == "load"
    _, inside, outside = value.args
    return inside.op == "load" and outside.op == "const" and float.fromhex(str(outside.literal)) == 0.0
