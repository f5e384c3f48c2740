"""Formats: laying out and back, padding, equality of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import index_maps

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Format, IndexMap, index_map_from_names


@given(index_maps())
def test_unlay_undoes_lay(index_map: IndexMap) -> None:
    fmt = Format.make(index_map)
    x = np.arange(int(np.prod(index_map.shape)), dtype="float32").reshape(index_map.shape)
    buffer = fmt.lay(x)
    assert buffer.shape == fmt.physical_shape
    np.testing.assert_array_equal(fmt.unlay(buffer), x)


@given(index_maps(), st.data())
def test_padding_is_written_and_dropped(index_map: IndexMap, data: st.DataObject) -> None:
    padding = []
    for extent in index_map.shape:
        low = data.draw(st.integers(0, extent - 1))
        padding.append((low, data.draw(st.integers(0, extent - 1 - low))))
    fmt = Format.make(index_map, padding=padding, fill=7.0)
    x = np.arange(int(np.prod(fmt.shape)), dtype="float32").reshape(fmt.shape) + 100
    buffer = fmt.lay(x)
    np.testing.assert_array_equal(fmt.unlay(buffer), x)
    assert (buffer == 7).sum() == buffer.size - x.size


def test_undef_padding_is_poison() -> None:
    fmt = Format.make(IndexMap.identity((4,)), padding=[(0, 1)], fill=UNDEF)
    assert np.isnan(fmt.lay(np.zeros(3, "float32"))[3])
    assert fmt.lay(np.zeros(3, "int32"))[3] == -1


def test_padding_needs_a_fill_and_a_size() -> None:
    with pytest.raises(LayoutError, match="fill"):
        Format.make(IndexMap.identity((4,)), padding=[(0, 1)])
    with pytest.raises(LayoutError, match="does not fit"):
        Format.make(IndexMap.identity((4,)), padding=[(3, 2)], fill=0.0)
    with pytest.raises(LayoutError, match="symbolic"):
        Format.make(IndexMap.identity(("n",)), padding=[(0, 1)], fill=0.0)


def test_no_padding_means_no_fill() -> None:
    fmt = Format.make(IndexMap.identity((4,)), padding=[(0, 0)], fill=0.0)
    assert fmt == Format.row_major((4,))
    assert fmt.is_row_major


def test_regrouped_axes_are_the_same_bytes() -> None:
    flat = IndexMap.reshape((2, 8), (16,))
    assert flat is not None
    assert Format.make(flat).same_bytes(Format.row_major((2, 8)))
    assert not Format.make(IndexMap.permutation((2, 8), (1, 0))).same_bytes(Format.row_major((2, 8)))
    assert not Format.make(flat, scope="texture").same_bytes(Format.row_major((2, 8)))


def test_keys_tell_formats_apart() -> None:
    index_map = IndexMap.identity((4, 4))
    formats = [
        Format.make(index_map),
        Format.make(index_map, scope="texture"),
        Format.make(index_map, padding=[(0, 1), (0, 0)], fill=0.0),
        Format.make(index_map, padding=[(1, 0), (0, 0)], fill=0.0),
        Format.make(index_map, padding=[(0, 1), (0, 0)], fill=1.0),
        Format.make(index_map, padding=[(0, 1), (0, 0)], fill=UNDEF),
    ]
    assert len({f.key for f in formats}) == len(formats)
    assert not any(" " in f.key or "\t" in f.key for f in formats)


def test_layout_names() -> None:
    packed = index_map_from_names("NCHW", "NCHW16c", (1, 64, 8, 8))
    assert packed is not None
    assert str(packed) == "(i, j, k, l) -> (0, j//16, k, l, j%16)"
    kernel = index_map_from_names("OIHW", "OIHW4i8o", (16, 8, 3, 3))
    assert kernel is not None
    assert kernel.result_shape == (2, 2, 3, 3, 4, 8)
    assert index_map_from_names("NCHW", "NCHW16c", (1, 30, 8, 8)) is None
    nhwc = index_map_from_names("NCHW", "NHWC", ("n", 3, 8, 8))
    assert nhwc is not None
    assert nhwc.permuted_axes == (0, 2, 3, 1)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("NCHW", "NCWH4x", "blocks an axis"),
        ("NCHW", "NCH", "same axes"),
        ("NCHW", "NCHWC", "malformed"),
        ("NCHW", "nchw", "malformed"),
        ("NCHW4c", "NCHW", "unblocked"),
        ("NCH", "NCH", "axes"),
    ],
)
def test_malformed_layout_names_say_what_is_wrong(source: str, target: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        index_map_from_names(source, target, (1, 4, 8, 8))
