"""``Pad`` by amounts that are made of sizes, which TVM's frontend does not take; and around what is cut off first.

In: a node's inputs and attributes. Out: its result, in Relax; :class:`EqsatError` for what is not done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.padding import CONSTANT, PLACES, padded


def is_of_sizes(kind: str, inputs: Any) -> bool:
    """Whether a node is converted here."""
    return kind == "Pad" and len(inputs) > 1 and isinstance(inputs[1], relax.ShapeExpr)


def converted(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of such a node."""
    x, pads, value, axes = [*inputs, None, None][:4]
    mode = attributes.get("mode", b"constant").decode()
    if mode != CONSTANT and mode not in PLACES:
        raise EqsatError(f"pads that are made of sizes with mode={mode} are not done")
    if axes is not None and not isinstance(axes, ir.GenericConst):
        raise EqsatError("pads of axes that are known at run time only are not done")
    rank = len(x.ty.shape.values)
    along = range(rank) if axes is None else [int(axis) % rank for axis in axes.value.numpy()]
    zero = tirx.IntImm("int64", 0)
    before, after = [zero] * rank, [zero] * rank
    for at, axis in enumerate(along):
        before[axis], after[axis] = pads.values[at], pads.values[at + len(along)]
    return padded(builder, x, before, after, mode, value)


def cut_first(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``inputs`` where elements that are cut off (pads below 0) are none of those that stand around the rest."""
    x, pads, _, axes = [*inputs, None, None, None][:4]
    is_known = isinstance(pads, ir.GenericConst) and isinstance(axes, ir.GenericConst | None)
    if attributes.get("mode") != b"wrap" or not is_known or (pads.value.numpy() >= 0).all():
        return inputs
    rank, sizes = len(x.ty.shape.values), pads.value.numpy().reshape(2, -1)
    along = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes.value.numpy()]
    before, after = np.minimum(sizes, 0).tolist()
    ends = [x.ty.shape.values[axis] + end for axis, end in zip(along, after, strict=True)]
    begins = [-begin for begin in before]
    cut = builder.emit(relax.op.strided_slice(x, along, begins, ends, assume_inbound=True))
    return type(inputs)([cut, relax.const(np.maximum(sizes, 0).reshape(-1)), *list(inputs)[2:]])
