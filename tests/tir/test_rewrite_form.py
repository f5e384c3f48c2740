"""A layout rewrite is read off any PrimFunc that is one, and what is written is read back as the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import index_maps
from tir.helpers import legal
from tvm import relax, s_tir, te

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Digit, Format, IndexMap
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite_form import read_primfunc, split_primfunc, write_primfunc

op = relax.op

FILLS = st.sampled_from([0.0, 1.5, -np.inf, UNDEF])


@st.composite
def formats(draw: st.DrawFn, shape: tuple[int, ...]) -> Format:
    """A padded format of a tensor of ``shape``."""
    padding = [draw(st.sampled_from([(0, 0), (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (3, 1)])) for _ in shape]
    padded = tuple(e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True))
    fill = draw(FILLS) if any(map(any, padding)) else None
    return Format.make(draw(index_maps(padded)), padding=padding, fill=fill)


@st.composite
def rewrites(draw: st.DrawFn) -> LayoutRewrite:
    """From a padded format to another."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    made = LayoutRewrite.between(draw(formats(shape)), draw(formats(shape)))
    assert made is not None
    return made


def numbered(shape: tuple[Any, ...]) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype="float32").reshape(shape)


@given(rewrites())
@settings(max_examples=150)
def test_what_is_written_is_read_back(rewrite: LayoutRewrite) -> None:
    found = read_primfunc(write_primfunc(rewrite, "float32"))
    assert found is not None
    source = numbered(rewrite.shape)
    np.testing.assert_array_equal(found.apply(source), rewrite.apply(source))
    assert (found.fill is UNDEF) == (rewrite.fill is UNDEF)
    assert read_primfunc(write_primfunc(found, "float32")) == found  # what was read is in normal form


def test_ordinary_formats_take_one_block_and_are_equal() -> None:
    for before, after in [
        (row_major(), blocked(4)),
        (blocked(4), row_major()),
        (blocked(4), blocked(16)),
        (nhwc(), blocked(4)),
    ]:
        rewrite = LayoutRewrite.between(before, after)
        assert rewrite is not None
        func = write_primfunc(rewrite, "float32")
        assert not func.body.block.alloc_buffers
        assert read_primfunc(func) == rewrite


CHANNELS = (2, 30, 3, 4)


def row_major() -> Format:
    return Format.row_major(CHANNELS)


def nhwc() -> Format:
    return Format.make(IndexMap.permutation(CHANNELS, [0, 2, 3, 1]))


def blocked(block: int) -> Format:
    """NCHW``block``c of 30 channels, padded with 0."""
    padded = -(-30 // block) * block
    dims = [
        [Digit(0, 1, 2)],
        [Digit(1, block, padded // block)],
        [Digit(2, 1, 3)],
        [Digit(3, 1, 4)],
        [Digit(1, 1, block)],
    ]
    index_map = IndexMap.make((2, padded, 3, 4), dims)
    return Format.make(index_map, padding=((0, 0), (0, padded - 30), (0, 0), (0, 0)), fill=0.0)


def test_functions_compute_what_the_rewrite_says() -> None:
    """Run, as the reader and the writer could be wrong in the same way."""
    chosen = [LayoutRewrite.between(blocked(4), blocked(16)), LayoutRewrite.between(blocked(16), nhwc())]
    three = IndexMap.make((6,), [[Digit(0, 1, 3), Digit(0, 3, 2)]])
    chosen.append(
        LayoutRewrite.make(three, crop=((1, 0),), pad=((2, 1),), fill=7.0, pack=IndexMap.reshape((8,), (2, 4)))
    )
    module = {}
    for number, rewrite in enumerate(chosen):
        assert rewrite is not None
        name = f"f{number}"
        module[name] = write_primfunc(rewrite, "float32")
    library = unscheduled_library(module)
    for name, rewrite in zip(module, chosen, strict=True):
        assert rewrite is not None
        source = numbered(rewrite.shape)
        wanted = rewrite.apply(source)
        result = tvm.runtime.tensor(np.full_like(wanted, -1))
        library[name](tvm.runtime.tensor(source), result)
        np.testing.assert_array_equal(result.numpy(), wanted)


def test_two_blocks_that_are_one_rewrite() -> None:
    """A pad and a packing of another axis; an unpacking and a slice."""
    x = te.placeholder((1, 30, 4, 4), "float32", "x")
    padded = te.compute((1, 32, 4, 4), lambda n, c, h, w: te.if_then_else(c < 30, x[n, c, h, w], 0.0), "pad")
    packed = te.compute((1, 8, 4, 4, 4), lambda n, c, h, w, i: padded[n, c * 4 + i, h, w], "pack")
    found = read_primfunc(te.create_prim_func([x, packed]))
    assert found is not None
    assert (found.pad, found.fill) == (((0, 0), (0, 2), (0, 0), (0, 0)), 0.0)
    assert found.result_shape == (1, 8, 4, 4, 4)


def test_what_drops_and_pads_twice_is_split() -> None:
    x = te.placeholder((4, 6), "float32", "x")
    zeros = te.compute((5, 6), lambda i, j: te.if_then_else(i < 4, x[i, j], 0.0), "zeros")
    ones = te.compute((5, 7), lambda i, j: te.if_then_else(j < 6, zeros[i, j], 1.0), "ones")
    func = te.create_prim_func([x, ones])
    assert read_primfunc(func) is None
    parts = split_primfunc(func)
    assert parts is not None
    assert [(p.pad, p.fill) for p in parts] == [(((0, 1), (0, 0)), 0.0), (((0, 0), (0, 1)), 1.0)]


READ = {
    "implicit padding": (lambda x: op.layout_transform(x, lambda i: (i // 4, i % 4), pad_value=2.0), (30,)),
    "padding of two axes": (lambda x: op.layout_transform(x, lambda i, j: (i // 4, j // 4, i % 4, j % 4)), (30, 7)),
    "pad": (lambda x: op.nn.pad(x, [0, 0, 1, 2], "constant", 3.0), (4, 5)),
    "pad of a unit axis": (lambda x: op.nn.pad(x, [0, 1, 1, 2], "constant", 3.0), (4, 1)),
    "slice": (lambda x: op.strided_slice(x, [1], [1], [4]), (4, 5)),
    "reshape": (lambda x: op.reshape(x, (2, 2, 10)), (4, 10)),
    "transpose": (lambda x: op.permute_dims(x, [2, 0, 1]), (4, 5, 6)),
    "squeeze": (lambda x: op.squeeze(x, [1]), (4, 1, 6)),
    "symbolic": (lambda x: op.permute_dims(x, [1, 0]), ("n", 4)),
}


@pytest.mark.parametrize("case", list(READ))
def test_tir_of_relax_ops_is_read(case: str) -> None:
    found = read_primfunc(legal(*READ[case]))
    assert found is not None
    assert read_primfunc(write_primfunc(found, "float32")) == found


REFUSED = {
    "stride": (lambda x: op.strided_slice(x, [1], [0], [5], [2]), (4, 5)),
    "flip": (lambda x: op.flip(x, 0), (4, 5)),
    "broadcast": (lambda x: op.broadcast_to(x, (4, 5)), (1, 5)),
    "repeat": (lambda x: op.repeat(x, 2, 0), (4, 5)),
    "tile": (lambda x: op.tile(x, [2, 1]), (4, 5)),
    "cast": (lambda x: op.astype(x, "int32"), (4, 5)),
    "reflect": (lambda x: op.nn.pad(x, [0, 0, 1, 1], "reflect"), (4, 5)),
    "triangle": (lambda x: op.triu(x), (4, 5)),
    "relu": (lambda x: op.nn.relu(x), (4, 5)),
    "two operands": (lambda x, y: op.concat([x, y], 0), (4, 5), (4, 5)),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_no_rewrite_is_refused(case: str) -> None:
    assert read_primfunc(legal(*REFUSED[case])) is None


def test_a_condition_that_is_no_box_is_refused() -> None:
    x = te.placeholder((4, 4), "float32", "x")
    y = te.compute((4, 4), lambda i, j: te.if_then_else(i < j, x[i, j], 0.0), "y")
    assert read_primfunc(te.create_prim_func([x, y])) is None


def test_padding_of_any_value_is_told_from_zeros() -> None:
    pads = {"crop": ((0, 0),), "pad": ((0, 2),)}
    for fill in (0.0, UNDEF):
        rewrite = LayoutRewrite.make(IndexMap.identity((6,)), **pads, fill=fill)
        assert read_primfunc(write_primfunc(rewrite, "float32")) == rewrite


def test_parts_that_do_not_fit_are_refused() -> None:
    identity = IndexMap.identity((4, 6))
    with pytest.raises(LayoutError, match="leaves nothing"):
        LayoutRewrite.make(identity, crop=((0, 0), (3, 3)))
    with pytest.raises(LayoutError, match="needs a fill"):
        LayoutRewrite.make(identity, pad=((0, 0), (0, 1)))
    with pytest.raises(LayoutError, match="does not take"):
        LayoutRewrite.make(identity, crop=((0, 0), (0, 1)), pack=identity)
    with pytest.raises(LayoutError, match="symbolic"):
        LayoutRewrite.make(IndexMap.identity(("n",)), pad=((0, 1),), fill=0.0)


def test_a_pad_may_overwrite_what_was_there() -> None:
    """Crop, then pad on the same axis: the border is dropped and filled anew."""
    rewrite = LayoutRewrite.make(IndexMap.identity((8,)), crop=((2, 1),), pad=((2, 1),), fill=0.0)
    assert read_primfunc(write_primfunc(rewrite, "float32")) == rewrite


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bool"])
def test_dtypes(dtype: str) -> None:
    rewrite = LayoutRewrite.make(IndexMap.identity((3, 5)), pad=((0, 1), (1, 2)), fill=1)
    assert read_primfunc(write_primfunc(rewrite, dtype)) == rewrite


def test_a_schedule_that_refuses_to_inline_is_an_answer() -> None:
    """A block is called like the one that TVM puts around all of them."""
    x = te.placeholder((4, 6), "float32", "x")
    zeros = te.compute((5, 6), lambda i, j: te.if_then_else(i < 4, x[i, j], 0.0), "root")
    ones = te.compute((5, 7), lambda i, j: te.if_then_else(j < 6, zeros[i, j], 1.0), "ones")
    func = te.create_prim_func([x, ones])
    with pytest.raises(s_tir.ScheduleError, match="2 blocks with the name: root"):
        s_tir.Schedule(tvm.IRModule({"main": func})).get_sblock("root")
    assert len(split_primfunc(func) or ()) == 2
    assert read_primfunc(func) is None
