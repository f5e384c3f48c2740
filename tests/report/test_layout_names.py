"""Names of layouts: letters where the program gives its axes some, numbers of axes where not."""

from __future__ import annotations

from typing import Any

import pytest
from programs import AVX2, constant, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.maps import UNDEF, Format, IndexMap, index_map_from_names
from eqsat_layout.report.layout_names import LayoutNames

IMAGES = LayoutNames({4: "NCHW"})
SHAPE = (2, 32, 8, 8)
INNER = "(i, j) -> (j, i%4, i//4)"
CUT = [[(1, 4, 3)], [(1, 1, 4)]]
SWAPPED = "axes 0 2 1"  # what is cut is one axis again where the parts lie side by side
PACKED = Format.make(index_map_from_names("NCHW", "NCHW16c", SHAPE))


@pytest.mark.parametrize(
    ("fmt", "lettered", "numbered"),
    [
        (Format.row_major((1, 32, 8, 8)), "NCHW", "row-major"),
        (Format.make(IndexMap.permutation(SHAPE, (0, 2, 3, 1))), "NHWC", "axes 0 2 3 1"),
        (PACKED, "NCHW16c", "axis 1 by 16"),
        (Format.make(index_map_from_names("NCHW", "NHWC8c", SHAPE)), "NHWC", "axes 0 2 3 1"),
        (Format.make(index_map_from_names("NCHW", "NCHW16c", (1, 16, 8, 8))), "NCHW16c", "axis 1 by 16"),
        (Format.make(IndexMap.permutation((4, 6), (1, 0))), "axes 1 0", "axes 1 0"),
        (Format.make(IndexMap.reshape((4, 6), (24,))), "row-major", "row-major"),
        (Format.make(IndexMap.make((1, 8, 6), [[(1, 1, 8)], [(2, 1, 6)]])), "row-major", "row-major"),
        (Format.make(index_map_from_names("NCHW", "NCHW16c", (1, 32, 1, 1))), "NCHW", "row-major"),
        (Format.make(IndexMap.make((1, 8, 4, 6), [[(2, 1, 4), (3, 1, 6)], [(1, 1, 8)]])), "NHWC", "axes 0 2 3 1"),
        (Format.make(IndexMap.make((2, 12, 8), [[(0, 1, 2)], [(2, 1, 8)], *CUT])), SWAPPED, SWAPPED),
        (Format.row_major(SHAPE, "global.texture"), "NCHW @global.texture", "row-major @global.texture"),
        (Format.make(IndexMap.make((8, 6), [[(1, 1, 6)], [(0, 1, 4)], [(0, 4, 2)]])), INNER, INNER),
        (
            Format.make(IndexMap.identity((4, 8)), padding=((0, 0), (0, 2)), fill=UNDEF),
            "row-major +?",
            "row-major +?",
        ),
    ],
)  # fmt: skip
def test_layouts_have_short_names(fmt: Format, lettered: str, numbered: str) -> None:
    assert IMAGES(fmt) == lettered
    assert LayoutNames()(fmt) == numbered


def test_a_block_that_holds_all_of_its_axis_is_named_where_it_lies() -> None:
    """The inputs of weights in blocks of outputs were called "O1HWI16o"."""
    weights = IndexMap.make((32, 8, 3, 3), [[(0, 16, 2)], [], [(2, 1, 3)], [(3, 1, 3)], [(1, 1, 8)], [(0, 1, 16)]])
    assert LayoutNames({4: "OIHW"})(Format.make(weights)) == "OIHW8i16o"


def test_axes_that_are_one_are_named_where_memory_is_not_flat() -> None:
    image = IndexMap.make((1, 8, 4, 6), [[(2, 1, 4), (3, 1, 6)], [(1, 1, 8)]])
    fmt = Format.make(image, scope="global.texture", separators=(1,))
    assert IMAGES(fmt) == "N(HW)C @global.texture"
    assert LayoutNames()(fmt) == "axes 0 (2 3) 1 @global.texture"


def test_weights_have_the_letters_of_weights() -> None:
    """What a convolution reads was called "NCHW16c, NCHW16c16n"; the second is its weights."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.nn.conv2d(x, constant(64, 64, 3, 3), strides=2))

    choices = eqsat_layout.plan(program(body, (1, 64, 28, 28)), AVX2).explain().choices
    reads = {c.operands for c in choices if c.op == "nn.conv2d"}
    assert reads
    assert all(weights.startswith("OI") for _, weights in reads)


def test_axes_of_one_element_that_say_nothing_are_left_out() -> None:
    """Results of Winograd along one axis were in "N11111111CHW16c"."""
    index_map = IndexMap.make((1, 32, 4, 6), [[], [], [], [(1, 16, 2)], [(2, 1, 4)], [(3, 1, 6)], [(1, 1, 16)]])
    assert IMAGES(Format.make(index_map)) == "NCHW16c"


def test_tensors_behind_a_reshape_have_no_letters_of_a_convolution() -> None:
    """Attention of a vision transformer was computed in "HNCW"."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)))))
        z = builder.emit(op.permute_dims(builder.emit(op.reshape(y, (1, 2, 4, 64))), [0, 2, 3, 1]))
        return builder.emit(op.exp(z))

    data = eqsat_layout.plan(program(body, (1, 8, 8, 8))).html()
    assert '["op","nn.relu","NCHW"' in data
    assert '["op","exp","row-major"' in data


def test_letters_come_from_convolutions_only() -> None:
    """The five axes of Winograd's stages were called "NCDHW16d", the six "ABCDEF16d"."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(32, 64, 3, 3), padding=1))
        return builder.emit(op.nn.relu(y))

    choices = eqsat_layout.plan(program(body, (1, 64, 28, 28)), AVX2).explain().choices
    assert {len(c.result.split()) for c in choices if c.op.startswith("winograd")} > {1}
    assert not any("NCDHW" in c.result or "ABC" in c.result for c in choices)
    assert {c.result for c in choices if c.op == "nn.relu"} <= {"NCHW", "NHWC", "NCHW8c", "NCHW16c"}


def test_a_convolution_that_was_written_in_blocks_is_called_so() -> None:
    """It was called "NCDHW", as if it had depth."""

    def body(builder: Any, x: Any) -> Any:
        w = constant(2, 2, 3, 3, 4, 4)
        y = builder.emit(op.nn.conv2d(x, w, padding=1, data_layout="NCHW4c", kernel_layout="OIHW4i4o"))
        return builder.emit(op.nn.relu(y))

    page = eqsat_layout.plan(program(body, (1, 2, 6, 6, 4))).html()
    assert "NCHW4c" in page
    assert "NCDHW" not in page


def test_ranks_on_which_ops_differ_have_no_letters() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)))
        return builder.emit(op.nn.max_pool2d(y, pool_size=(2, 2), layout="NHWC"))

    page = eqsat_layout.plan(program(body, (1, 8, 6, 6))).html()
    assert "row-major" in page
    assert '"NCHW"' not in page
