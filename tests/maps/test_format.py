"""Formats: laying out and back, padding, equality of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import index_maps

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Format, IndexMap, index_map_from_names, layout_separators


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


@st.composite
def formats(draw: st.DrawFn) -> Format:
    """Any padding, fill, scope and grouping of any index map."""
    index_map = draw(index_maps())
    padding = []
    for extent in index_map.shape:
        low = draw(st.integers(0, int(extent) - 1))
        padding.append((low, draw(st.integers(0, int(extent) - 1 - low))))
    fill = draw(st.one_of(st.just(UNDEF), st.integers(-300, 300), st.floats(allow_nan=False)))
    scope = draw(st.sampled_from(["global", "global.texture-nhwc", "", "a|b@c+0:1=2"]))
    separators = [p for p in range(1, len(index_map.dims)) if draw(st.booleans())]
    return Format.make(index_map, padding=padding, fill=fill, scope=scope, separators=separators)


@given(formats())
def test_a_key_says_everything(fmt: Format) -> None:
    again = Format.from_key(fmt.key)
    assert again == fmt
    assert again.key == fmt.key
    assert again.with_fill(3.0).separators == fmt.separators


@pytest.mark.parametrize(
    "fmt",
    [
        Format.row_major(()),
        Format.make(IndexMap.make((1,), [])),
        Format.make(IndexMap.make((1, 1), [[], [], []]), separators=(1, 2)),
        Format.row_major((0, 4)),
        Format.row_major(tuple([2] * 28)),
        Format.make(IndexMap.identity(("n", "max(4, n)", "n*(m + 2) // 3")), separators=(2,)),
        Format.make(IndexMap.identity((4,)), padding=[(0, 1)], fill=float("nan")),
    ],
)
def test_keys_of_odd_formats_are_read_back(fmt: Format) -> None:
    again = Format.from_key(fmt.key)
    assert again.key == fmt.key
    assert (again.shape, again.index_map, again.separators) == (fmt.shape, fmt.index_map, fmt.separators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "malformed"),
        ("4x4", "malformed"),
        ("4>", "not a bijection"),
        ("4>b", "malformed"),
        ("4>a/0", "malformed"),
        ("6>a/4.a%4", "not a bijection"),
        ("[n>a", "malformed"),
        ("[n]4>a.b", "malformed"),
        ("[n]>a/4.a%4", "symbolic"),
        ("4>a+0:1", "malformed"),
        ("4>a+0:1=x", "no number"),
        ("4>a+0:5=0.0", "does not fit"),
        ("4x4>a.b+0:1=0.0", "padding of 1 axes"),
        ("4>a.|", "malformed"),
        ("4>a b", "malformed"),
    ],
)
def test_text_that_is_no_key(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Format.from_key(text)


def test_groups_are_the_shape_that_memory_has() -> None:
    index_map = index_map_from_names("NCHW", "NCHW4c", (1, 32, 8, 6))
    assert index_map is not None
    fmt = Format.make(index_map, separators=(2, 4))
    assert fmt.physical_shape == (1, 8, 8, 6, 4)
    assert fmt.groups == (8, 48, 4)
    assert str(fmt) == "(i, j, k, l) -> (0, j//4 | k, l | j%4)"
    assert fmt.key == "1x32x8x6>1.b/4|c.d|b%4"
    assert Format.make(index_map).groups == (1536,)
    assert Format.make(IndexMap.identity(("n", 4, 3)), separators=(2,)).groups == ("n*4", 3)
    padded = Format.make(IndexMap.identity((4, 4)), padding=[(0, 1), (0, 0)], fill=0.0, scope="x", separators=(1,))
    assert str(padded) == "(i, j) -> (i | j) padded (0:1, 0:0) with 0.0 in x"


@pytest.mark.parametrize("separators", [(0,), (2,), (-1,), (1, 1), (1, 2)])
def test_separators_stand_between_axes(separators: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="separators"):
        Format.make(IndexMap.identity((4, 4)), separators=separators)
    with pytest.raises(LayoutError, match="separators"):
        Format.make(IndexMap.identity((4,)), separators=(1,))


def test_other_groups_are_other_storage() -> None:
    flat = Format.row_major((2, 4, 8))
    first, second = (Format.make(flat.index_map, separators=(p,)) for p in (1, 2))
    assert len({flat, first, second}) == len({f.key for f in (flat, first, second)}) == 3
    assert not first.is_row_major
    for one, other in [(flat, first), (first, flat), (first, second)]:
        assert not one.same_bytes(other)
        assert not one.serves_as(other)
    assert first.serves_as(Format.make(flat.index_map, separators=[1]))
    fused = IndexMap.reshape((2, 4, 8), (2, 32))
    assert fused is not None
    assert first.same_bytes(Format.make(fused, separators=(1,)))  # axes of one group are cut elsewhere: (2 | 32)
    moved = IndexMap.reshape((2, 4, 8), (8, 8))
    assert moved is not None
    assert not first.same_bytes(Format.make(moved, separators=(1,)))  # (2 | 32) is not (8 | 8)


@given(formats())
def test_one_group_is_the_same_bytes_as_before(fmt: Format) -> None:
    flat = Format.make(fmt.index_map, padding=fmt.padding, fill=fmt.fill, scope=fmt.scope)
    assert fmt.same_bytes(flat) == (len(fmt.groups) == 1)
    assert fmt.physical_shape == flat.physical_shape
    assert np.prod(fmt.groups) == np.prod(flat.groups)


@pytest.mark.parametrize(
    ("name", "separators"),
    [("NCHW4c", ()), ("NCHW|4c", (4,)), ("NC|HW|4c", (2, 4)), ("OIHW|4i4o", (4,)), ("N|C|H|W", (1, 2, 3))],
)
def test_bars_in_layout_names_start_groups(name: str, separators: tuple[int, ...]) -> None:
    assert layout_separators(name) == separators
    source = "OIHW" if "O" in name else "NCHW"
    shape = (8, 8, 3, 3)
    assert index_map_from_names(source, name, shape) == index_map_from_names(source, name.replace("|", ""), shape)


@pytest.mark.parametrize("name", ["|NCHW", "NCHW|", "NC||HW", "|", "NCHW1|6c", "NCHW16|c", "NC HW"])
def test_bars_stand_between_axes(name: str) -> None:
    with pytest.raises(LayoutError, match="malformed"):
        layout_separators(name)


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
        ("NC|HW", "NHWC", "one group"),
    ],
)
def test_malformed_layout_names_say_what_is_wrong(source: str, target: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        index_map_from_names(source, target, (1, 4, 8, 8))
