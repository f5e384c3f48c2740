"""Patterns on which layout passes of TVM were wrong or crashed, as Relax programs with the layouts in question.

Numbers are those of apache/tvm's issues and pull requests. One of the list, #12008, could not be looked up; #8759 and
#10528, which are of the same kind, stand in for it. The passes were Relay's ``AlterOpLayout`` and
``ConvertLayout``; here the layouts are frozen, so that the rewrites must find their way through what stands around.
"""

from __future__ import annotations

from typing import Any

import pytest
from compare import assert_same_fast
from programs import constant, program
from tvm.relax import op as R

import eqsat_layout

LAYOUTS = {
    "last": ["NHWC", "OHWI"],
    "packed": ["NCHW4c", "OIHW4i4o"],
    "mixed": ["NCHW3c", "OIHW3i2o", "NCHW2c"],  # nor do the blocks divide the channels
}


def argmin_over_channels(b: Any, x: Any) -> Any:
    """#9813: a reduction over packed channels kept the inner block, a layout ``NHW4c`` without its ``C``."""
    y = b.emit(R.nn.conv2d(x, constant(8, 8, 1, 1)))
    return b.emit(R.argmin(y, axis=1)), b.emit(R.argmax(y, axis=2, keepdims=True)), b.emit(R.min(y, axis=[1, 3]))


def transpose_between_convolutions(b: Any, x: Any) -> Any:
    """#10118: one layout was kept per tensor, so producer and consumer had to mean the same by each axis."""
    y = b.emit(R.nn.conv2d(x, constant(8, 8, 1, 3)))
    y = b.emit(R.permute_dims(y, [0, 1, 3, 2]))
    return b.emit(R.nn.conv2d(y, constant(4, 8, 3, 1, seed=1)))


def transpose_of_channels_between_convolutions(b: Any, x: Any) -> Any:
    """#10118 with channels moved: what were channels for one convolution are rows for the next."""
    y = b.emit(R.nn.conv2d(x, constant(6, 8, 1, 1)))
    y = b.emit(R.permute_dims(y, [0, 2, 1, 3]))
    return b.emit(R.nn.conv2d(y, constant(4, 6, 1, 1, seed=1)))


def broadcasts_of_all_kinds(b: Any, x: Any) -> Any:
    """#10156: a broadcast reset its other operand's layout; and neither side could always follow the other."""
    y = b.emit(R.nn.conv2d(x, constant(8, 8, 1, 1)))
    for shape in ((8, 1, 1), (6,), (1, 8, 1, 1), (6, 6), (2, 1, 6, 1), ()):
        y = b.emit(R.add(constant(*shape, seed=len(shape)), y))
    rows = b.emit(R.mean(y, axis=[0, 1, 2]))
    z = b.emit(R.nn.conv2d(y, constant(8, 8, 1, 1, seed=1)))
    return b.emit(R.multiply(z, y)), b.emit(R.add(rows, z))


def slice_with_a_step(b: Any, x: Any) -> Any:
    """#10690: a slice of channels was done on whole blocks although its step was not 1."""
    y = b.emit(R.nn.conv2d(x, constant(12, 8, 1, 1)))
    y = b.emit(R.add(y, constant(12, 1, 1)))
    return tuple(
        b.emit(R.strided_slice(y, [1], [begin], [end], [step]))
        for begin, end, step in ((3, 6, 3), (4, 12, 4), (0, 8, 2))
    )


def resize_behind_a_reduction(b: Any, x: Any) -> Any:
    """#12007: a layout was inferred twice from different old layouts, NCW and NCH, for a resize behind a mean."""
    y = b.emit(R.image.resize2d(x, (4, 8), method="nearest_neighbor", rounding_method="floor"))
    y = b.emit(R.mean(b.emit(R.nn.conv2d(y, constant(8, 8, 1, 1))), axis=[3]))
    y = b.emit(R.expand_dims(y, 3))
    return b.emit(R.image.resize2d(y, (2, 3), method="linear"))


def slices_over_several_axes(b: Any, x: Any) -> Any:
    """#8759: a slice behind a packed convolution was left without the transforms around it."""
    y = b.emit(R.nn.conv2d(x, constant(16, 8, 3, 3), padding=1))
    return b.emit(R.strided_slice(y, [0, 1, 2], [0, 0, 1], [1, 15, 5], [1, 8, 2]))


def squeeze_of_channels(b: Any, x: Any) -> Any:
    """#10528: the channels that are squeezed away behind a convolution of one output channel."""
    y = b.emit(R.nn.conv2d(x, constant(1, 8, 3, 1), strides=2, padding=3))
    return b.emit(R.squeeze(y, [1])), b.emit(R.nn.relu(y))


def axes_of_extent_1(b: Any, x: Any) -> Any:
    """#12852: the layout of a buffer with an axis of extent 1 was looked up by an iterator that had been simplified."""
    y = b.emit(R.nn.conv2d(x, constant(8, 8, 6, 1)))
    y = b.emit(R.nn.conv2d(y, constant(1, 8, 1, 6, seed=1)))
    z = b.emit(R.nn.conv2d(y, constant(8, 1, 1, 1, seed=2)))
    return z, b.emit(R.add(b.emit(R.permute_dims(y, [1, 0, 3, 2])), constant(2, 1, 1)))


PATTERNS = (
    argmin_over_channels,
    transpose_between_convolutions,
    transpose_of_channels_between_convolutions,
    broadcasts_of_all_kinds,
    slice_with_a_step,
    resize_behind_a_reduction,
    slices_over_several_axes,
    squeeze_of_channels,
    axes_of_extent_1,
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("body", PATTERNS)
def test_a_pattern_that_layout_passes_got_wrong(body: Any, layout: str) -> None:
    mod = program(body, (2, 8, 6, 6), frozen={"relax.nn.conv2d": LAYOUTS[layout]})
    plan = eqsat_layout.plan(mod)
    assert plan.changed
    assert_same_fast(mod, plan.module)


@pytest.mark.parametrize("body", PATTERNS)
def test_the_same_with_layouts_that_are_only_desired(body: Any) -> None:
    mod = program(body, (2, 8, 6, 6))
    assert_same_fast(mod, eqsat_layout.optimize(mod, desired_layouts={"relax.nn.conv2d": LAYOUTS["packed"]}))
