"""A convolution with strides along axes without a window, over a copy of the elements that it reads.

In: a :class:`Convolution`. Out: a Relax module. Of every ``stride`` elements along such an axis one is read. Taken
first, the others are not moved by layout transforms, and the rest is a convolution without strides along it: a plain
product where no axis has a window. The same products are added up in the same order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Axes, Convolution
from eqsat_layout.implementations.algorithms.graphs import GraphBuilder, convolved, module_of
from eqsat_layout.implementations.algorithms.work import Work, own_flops, own_weights


def subsampled(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where all elements are read."""
    if why_not_subsampled(conv) is not None:
        return None
    sliced, read = _sliced_axes(conv), _read(conv)
    strides = tuple(1 if axis in sliced else stride for axis, stride in enumerate(conv.strides))
    rest = replace(conv, size=read, strides=strides)

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        axes = [conv.data[2 + axis] for axis in sliced]
        steps = [conv.strides[axis] for axis in sliced]
        ends = [(read[axis] - 1) * conv.strides[axis] + 1 for axis in sliced]
        taken = builder.emit(relax.op.strided_slice(data, axes, [0] * len(axes), ends, steps))
        return builder.emit_kernel(partial(convolved, conv=rest, name="subsampled"), taken, kernel, name="subsampled")

    return module_of(conv, compute)


def subsampled_work(conv: Convolution) -> Work:
    """The same products, and the copy."""
    return Work(own_flops(conv), conv.batch * conv.channels[0] * math.prod(_read(conv)), own_weights(conv))


def why_not_subsampled(conv: Convolution) -> str | None:
    """Why it has none; None where it has."""
    if conv.is_stretched:
        return STRETCHED
    return None if _sliced_axes(conv) else "it has no axis with a stride and without a window"


def _read(conv: Convolution) -> tuple[int, ...]:
    """The size of the data that are left."""
    sliced = _sliced_axes(conv)
    sizes = enumerate(zip(conv.out_size, conv.size, strict=True))
    return tuple(made if axis in sliced else own for axis, (made, own) in sizes)


def _sliced_axes(conv: Convolution) -> Axes:
    axes = enumerate(zip(conv.windows, conv.strides, conv.padding, strict=True))
    return tuple(axis for axis, (window, stride, around) in axes if window == 1 and stride > 1 and not any(around))
