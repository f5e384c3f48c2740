"""Products of bytes are products of words, and give the same sums."""

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
from targets.machines import AVX2
from tvm import te, topi

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.places.byte_words import in_words
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

HAS_PRODUCTS = HERE.has_byte_products


def scheduled(func: Any, *, products: bool) -> Any:
    return schedule_primfunc(func, replace(HERE.machine, byte_products=products, cores=1))


def has_products(func: Any) -> bool:
    return any(is_call(call, "eqsat_layout.byte_products") for call in nodes_of(func.body, tvm.ir.Call))


def assert_same(func: Any, seed: int = 0) -> None:
    """By words as by bytes."""
    words, arrays = scheduled(func, products=True), operands(func, seed)
    assert has_products(words)
    assert not has_products(scheduled(func, products=False))
    np.testing.assert_array_equal(ran(words, arrays), ran(scheduled(func, products=False), arrays))


needs_products = pytest.mark.skipif(not HAS_PRODUCTS, reason="this CPU has no products of bytes")


@needs_products
@pytest.mark.parametrize(
    "func",
    [
        convolution(16, 32, 9, 3, 16),
        convolution(4, 16, 9, 3, 16, stride=2),  # a row of one word is no axis
        convolution(8, 24, 7, 1, 8),
        convolution(32, 12, 6, 3, 4, border=7),
        convolution(8, 6, 6, 3, 6, border=200),  # lanes that are no vector
        product(5, 64, 48),
        product(1, 128, 10),
        product(1, 128, 10, transposed=True),
    ],
)
def test_sums_are_those_of_bytes(func: Any) -> None:
    assert_same(func)


@needs_products
@pytest.mark.parametrize(
    "boxes",
    [
        {0: Box((1, 7, 7, 16), (1, 9, 9, 32), (0, 1, 2, 3), (0, 1, 1, 8))},
        {2: Box((1, 7, 7, 16), (1, 7, 7, 48), (0, 1, 2, 3), (0, 0, 0, 16))},
    ],
)
def test_operands_and_results_in_boxes(boxes: dict[int, Box]) -> None:
    """What is read out of a larger tensor, or written into one."""
    assert_same(in_boxes(convolution(16, 16, 7, 3, 16), boxes))


@needs_products
@settings(max_examples=tries(6), deadline=None)
@given(st.sampled_from([4, 8, 20]), st.sampled_from([(16, 16), (8, 8), (24, 8), (5, 5)]), st.integers(3, 8), st.data())
def test_any_convolution(channels: int, outputs: tuple[int, int], size: int, data: st.DataObject) -> None:
    taps, stride = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([1, 2]))
    border = data.draw(st.integers(0, 255))
    assert_same(convolution(channels, outputs[0], size, taps, outputs[1], border, stride=stride), size)


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (product(4, 6, 8, transposed=True), "no step of the reduction"),
        (in_boxes(product(4, 8, 8), {0: Box((4, 8), (6, 12), (0, 1), (1, 2))}), "neighbours|no step"),
        (te.create_prim_func([a := te.placeholder((4,)), topi.nn.relu(a)]), "not one reduction"),
    ],
)
def test_what_is_refused(func: Any, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        in_words(func)


def test_bytes_that_others_read_stay_bytes() -> None:
    data = te.placeholder((4, 16), "uint8", "data")
    weights = te.placeholder((4, 8, 4), "int8", "weights")
    k = te.reduce_axis((0, 16), "k")
    own = te.compute(
        (4, 8), lambda i, j: te.sum(data[i, k].astype("int32") * weights[k // 4, j, k % 4].astype("int32"), axis=k)
    )
    other = te.compute((4, 16), lambda i, j: data[i, j] + te.const(1, "uint8"))
    with pytest.raises(Refused, match="others read too"):
        in_words(te.create_prim_func([data, weights, own, other]))


def test_machines_without_the_instruction_keep_bytes() -> None:
    assert not AVX2.byte_products
    assert not has_products(schedule_primfunc(product(8, 64, 32), AVX2))
