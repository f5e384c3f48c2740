"""Products of bytes in tiles: the same sums as without the unit, whatever their shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cpu.byte_kernels import HERE, convolution, operands, product, ran
from targets.machines import AMX
from tvm import te

from eqsat_layout.targets.cpu.amx import selection
from eqsat_layout.targets.cpu.amx.instructions import is_permitted
from eqsat_layout.targets.cpu.amx.selection import split_product
from eqsat_layout.targets.cpu.amx.tile_plan import TilePlan, blocks_of, panels_of, plan_tiles
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.places.byte_words import in_words
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.structural import nodes_of

needs_unit = pytest.mark.skipif(not is_permitted(), reason="this machine has no matrix unit")


def scheduled(func: Any, *, in_tiles: bool) -> Any:
    """Wherever the unit can be used, or without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_is_faster", lambda *_: True)
        return schedule_primfunc(func, replace(HERE.machine, matrix_bytes=in_tiles))


def instructions(func: Any) -> set[str]:
    """The unit's by their names."""
    calls = [call for call in nodes_of(func.body, tvm.ir.Call) if str(call.op.name) == "tirx.call_llvm_intrin"]
    names = {tvm.target.codegen.llvm_get_intrinsic_name(int(call.args[0].value)) for call in calls}
    return {name.rpartition(".")[2] for name in names if ".x86.t" in name}


def assert_same(func: Any, product_of_tiles: str = "tdpbusd") -> None:
    kernel, plain, arrays = scheduled(func, in_tiles=True), scheduled(func, in_tiles=False), operands(func)
    assert product_of_tiles in instructions(kernel)
    assert not instructions(plain)
    np.testing.assert_array_equal(ran(kernel, arrays), ran(plain, arrays))


@needs_unit
@pytest.mark.parametrize(
    "func",
    [
        convolution(64, 32, 9, 3, 16),
        convolution(64, 16, 9, 3, 16, stride=2),  # a panel of one tile
        convolution(96, 48, 7, 1, 16),  # the last row of a tile overlaps the one before
        convolution(128, 64, 5, 3, 16, border=200),
        convolution(64, 32, 9, 5, 16),
        convolution(4, 64, 23, 7, 16, stride=2, edge=0),  # seven words of a line of the window as twice four
        convolution(4, 32, 11, 3, 16, edge=0),
        convolution(12, 32, 9, 3, 16, border=3),
        convolution(40, 32, 6, 1, 16),
        convolution(64, 48, 7, 1, 16),  # tiles of data where they lie, of which the last one overlaps the one before
        product(16, 64, 32),
        product(49, 128, 48),
        product(5, 64, 48),
        product(33, 72, 37),  # the last columns too
    ],
)
def test_sums_are_those_of_words(func: Any) -> None:
    assert_same(func)


@needs_unit
@pytest.mark.parametrize("transposed", [False, True])
def test_signed_data_by_unsigned_weights(transposed: bool) -> None:
    """Weights in rows of columns are not where tiles are loaded from: they are cut."""
    data = te.placeholder((20, 64), "int8", "data")
    weights = te.placeholder((48, 64) if transposed else (16, 48, 4), "uint8", "weights")
    k = te.reduce_axis((0, 64), "k")

    def element(i: Any, j: Any) -> Any:
        own = weights[j, k] if transposed else weights[k // 4, j, k % 4]
        return te.sum(data[i, k].astype("int32") * own.astype("int32"), axis=k)

    assert_same(te.create_prim_func([data, weights, te.compute((20, 48), element)]), "tdpbsud")


@needs_unit
@settings(max_examples=tries(8), deadline=None)
@given(st.data())
def test_any_plan_gives_the_same(data: st.DataObject) -> None:
    rows, steps, columns = (
        data.draw(st.integers(2, 90)),
        4 * data.draw(st.integers(16, 70)),
        data.draw(st.integers(16, 90)),
    )
    pieces, groups = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([1, 2]))
    chunk = 16 * data.draw(st.integers(1, -(-rows // 16)))

    def plan(found: Any, machine: Any) -> TilePlan | None:
        if blocks_of(found) % pieces or panels_of(found) % groups:
            return plan_tiles(found, machine)
        return TilePlan(chunk, -(-rows // chunk), groups, pieces, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "plan_tiles", plan)
        assert_same(product(rows, steps, columns))


@needs_unit
@settings(max_examples=tries(8), deadline=None)
@given(st.data())
def test_any_chunk_of_an_image_gives_the_same(data: st.DataObject) -> None:
    """Rows for all pixels, of which those at the ends of lines are no results."""
    size, taps = data.draw(st.integers(3, 12)), data.draw(st.sampled_from([1, 3, 5]))
    func = convolution(64 * data.draw(st.integers(1, 2)), 48, size, taps, 16, data.draw(st.integers(0, 9)))
    share = data.draw(st.integers(1, 4))
    images = []

    def plan(found: Any, machine: Any) -> TilePlan:
        rows = 16 * -(-found.rows.extent // (16 * share))
        images.append(found.image)
        return TilePlan(rows, -(-found.rows.extent // rows), 1, 1, 0.0 if found.image else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "plan_tiles", plan)
        assert_same(func)
    assert (images[-1] is not None) == (taps > 1)


@needs_unit
@pytest.mark.parametrize("step", [-1, 1])
def test_windows_that_go_backwards_are_no_image(step: int) -> None:
    """Steps that read what is before were taken for an image of negative extents."""
    data, weights = te.placeholder((1, 42, 64), "uint8", "data"), te.placeholder((3, 16, 32, 4), "int8", "weights")
    t, c = te.reduce_axis((0, 3), "t"), te.reduce_axis((0, 64), "c")

    def element(n: Any, y: Any, o: Any) -> Any:
        one = data[n, y + (2 - t if step < 0 else t), c].astype("int32")
        return te.sum(one * weights[t, c // 4, o, c % 4].astype("int32"), axis=[t, c])

    func = te.create_prim_func([data, weights, te.compute((1, 40, 32), element)], index_dtype_override="int64")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            selection, "plan_tiles", lambda found, _: TilePlan(48, 1, 1, 1, 0.0 if found.image is not None else 1.0)
        )
        assert_same(func)


@needs_unit
def test_data_in_a_box_is_not_loaded_as_if_it_lay_alone() -> None:
    func = product(20, 64, 32)
    boxed = in_boxes(func, {0: Box((20, 64), (20, 128), (0, 1), (0, 16))})
    arrays = operands(boxed)
    np.testing.assert_array_equal(
        ran(scheduled(boxed, in_tiles=True), arrays), ran(scheduled(boxed, in_tiles=False), arrays)
    )


@needs_unit
def test_weights_in_a_box_are_not_loaded_as_if_they_lay_alone() -> None:
    """Rows of a part of a larger tensor are further apart than those of a tensor of its size."""
    data, weights = te.placeholder((20, 64), "uint8", "data"), te.placeholder((16, 128), "int8", "weights")
    k = te.reduce_axis((0, 64), "k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(data[i, k].astype("int32") * weights[k // 4, j * 4 + k % 4].astype("int32"), axis=k)

    func = te.create_prim_func([data, weights, te.compute((20, 32), element)])
    assert_same(func)
    boxed = in_boxes(func, {1: Box((16, 128), (16, 192), (0, 1), (0, 32))})
    arrays = operands(boxed)
    np.testing.assert_array_equal(
        ran(scheduled(boxed, in_tiles=True), arrays), ran(scheduled(boxed, in_tiles=False), arrays)
    )


@needs_unit
def test_results_in_a_box() -> None:
    assert_same(
        in_boxes(convolution(64, 32, 7, 3, 16), {2: Box((1, 7, 7, 32), (1, 7, 7, 80), (0, 1, 2, 3), (0, 0, 0, 16))})
    )


def test_what_pays() -> None:
    def plan(func: Any, machine: Any = AMX) -> Any:
        words = in_words(func)
        return split_product(words.func, machine, words.signed)

    assert plan(convolution(128, 128, 28, 3, 16)) is not None
    assert plan(convolution(128, 128, 28, 3, 16)).product.image is not None
    assert plan(convolution(128, 128, 28, 3, 16, stride=2)).product.image is None, (
        "neighbours are not read by neighbours"
    )
    assert plan(convolution(16, 128, 28, 3, 16)) is not None
    assert plan(convolution(4, 64, 230, 7, 16, stride=2, edge=0)) is not None
    assert plan(convolution(4, 32, 225, 3, 16, stride=2, edge=0)) is None, "nine words of a tile's sixteen"
    assert plan(product(196, 384, 1536)).product.data_stride == 96
    assert plan(product(1, 768, 768)) is None
    assert plan(convolution(128, 128, 28, 3, 16), replace(AMX, matrix_bytes=False)) is None


@needs_unit
def test_exact_targets_have_the_unit_for_bytes() -> None:
    for target in (normalize_target(approx=False), normalize_target(normalize_target(), approx=False)):
        machine = machine_of(target)
        assert machine.matrix_bytes
        assert not machine.matrix_unit
