"""A convolution in groups with the group as an axis of its own, several groups taken as one where they are small.

In: a :class:`Convolution` of more than one group. Out: a Relax module. Channels of one axis can be blocked for vectors
where channels that count groups and their members at once can't. Groups become one by weights that are 0 between them:
products with zeros are cheaper than vectors that are half empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Convolution
from eqsat_layout.implementations.algorithms.graphs import (
    GraphBuilder,
    met,
    module_of,
    multiplied,
    ordered_by,
    window_axes,
)


def grouped(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; the same products in the same order."""
    return _module(conv, 1) if why_not_grouped(conv) is None else None


def why_not_grouped(conv: Convolution) -> str | None:
    """Why its groups don't get an axis; None where they do."""
    return STRETCHED if conv.is_stretched else None


def with_larger_groups(conv: Convolution, outputs: int) -> tvm.IRModule | None:
    """The same with groups of so many ``outputs``; ``None`` where those of the op are not smaller, or don't divide.

    What is infinite in one group gives NaN in those beside it.
    """
    return _module(conv, outputs // _outputs(conv)) if why_not_larger_groups(conv, outputs) is None else None


def why_not_larger_groups(conv: Convolution, outputs: int) -> str | None:
    """Why groups don't become some of so many ``outputs``; None where they do."""
    if conv.is_stretched:
        return STRETCHED
    own = _outputs(conv)
    count, rest = divmod(outputs, own)
    if rest or count < 2:
        return f"its groups have {own} outputs each: {outputs} is no larger multiple of it"
    return f"it has {conv.groups} groups, which {count} does not divide" if conv.groups % count else None


def _outputs(conv: Convolution) -> int:
    """The output channels of one group."""
    return conv.channels[1] // conv.groups


def _module(conv: Convolution, count: int) -> tvm.IRModule:
    """``count`` groups as one."""
    inputs, outputs = (channels // conv.groups for channels in conv.channels)

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        x = builder.emit(relax.op.reshape(data, split_channels(data.ty.shape, conv.data[1], conv.groups // count)))
        k = builder.emit(
            relax.op.reshape(kernel, split_channels(kernel.ty.shape, conv.kernel[0], conv.groups // count))
        )
        if count > 1:
            k = builder.emit_kernel(lambda k: _merged_kernel(k, conv, inputs, outputs), k, name="merged_groups")
        product = builder.emit_kernel(lambda x, k: _product(x, k, conv), x, k, name="grouped_conv2d")
        shape = ordered_by(conv.result, (conv.batch, conv.channels[1], *conv.out_size))
        return relax.op.reshape(product, shape)

    return module_of(conv, compute)


def split_channels(shape: Sequence[Any], axis: int, groups: int) -> list[int]:
    """``shape`` with its channels as groups and members."""
    sizes = [int(extent) for extent in shape]
    return [*sizes[:axis], groups, sizes[axis] // groups, *sizes[axis + 1 :]]


def _merged_kernel(kernel: te.Tensor, conv: Convolution, inputs: int, outputs: int) -> te.Tensor:
    """0 for an input and an output that are of two groups."""
    own = conv.kernel[0]
    place = conv.kernel[1] + (conv.kernel[1] > own)
    shape = [int(extent) for extent in kernel.shape]
    shape[place] *= shape[own + 1] // outputs

    def element(*indices: Any) -> Any:
        output, channel = indices[own + 1], indices[place]
        at = list(indices)
        at[place] = tirx.floormod(channel, inputs)
        is_one = tirx.floordiv(output, outputs).equal(tirx.floordiv(channel, inputs))
        return tirx.if_then_else(is_one, kernel(*at), tirx.const(0, conv.factors[1]))

    return te.compute(shape, element, name="merged_groups")


def _product(data: te.Tensor, kernel: te.Tensor, conv: Convolution) -> te.Tensor:
    """The convolution, every axis of channels split in two."""
    x, k, y = (
        places_of_groups(axes, channels) for axes, channels in ((conv.data, 1), (conv.kernel, 0), (conv.result, 1))
    )
    before, after = zip(*conv.padding, strict=True)
    if any((*before, *after)):
        data = topi.nn.pad(data, ordered_by(x, (0, 0, 0, *before)), ordered_by(x, (0, 0, 0, *after)), name="pad")
    channels = int(data.shape[x[2]])
    c = te.reduce_axis((0, channels), "c")
    taps = window_axes(conv)

    def element(*indices: Any) -> Any:
        n, g, o, *places = (indices[axis] for axis in y)
        own = data(*ordered_by(x, (n, g, c, *met(conv, places, taps))))
        weight = kernel(*ordered_by(k, (g, o, c, *taps)))
        return te.sum(multiplied(conv, own, weight), axis=[c, *taps])

    groups, outputs = int(kernel.shape[k[0]]), int(kernel.shape[k[1]])
    shape = ordered_by(y, (conv.batch, groups, outputs, *conv.out_size))
    return te.compute(shape, element, name="grouped_conv2d")


def places_of_groups(axes: Sequence[int], channels: int) -> list[int]:
    """Of the same axes where ``axes[channels]`` became two, the first of which counts groups."""
    at = axes[channels]
    moved = [axis + (axis > at) for axis in axes]
    return [*moved[:channels], at, at + 1, *moved[channels + 1 :]]
