"""Differences from the extreme of a row are by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.targets.schedules.differences_from_extremes import with_differences

op = relax.op


def softmax_of_products(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.softmax(builder.emit(op.multiply(x, relax.const(1.01, "float32"))), -1))


@pytest.mark.parametrize("approx", [True, False])
@pytest.mark.parametrize("count", [6, 64])
def test_a_softmax_of_large_products_is_a_number(count: int, approx: bool, run: Any) -> None:
    """The product was exact where its maximum was subtracted, and larger: NaN from 1e10 on."""
    sizes = np.array([1e5, 1.07e10, 1.1e10, 1.3e20, 2.7e38], "float32")
    x = np.zeros((len(sizes), count), "float32")
    x[:, 4], x[:, 5] = sizes, -sizes
    got = run(eqsat_layout.compile(program(softmax_of_products, x.shape), approx=approx), x)
    np.testing.assert_array_equal(got, np.eye(count, dtype="float32")[[4] * len(sizes)])


@pytest.mark.parametrize("count", [6, 64])
def test_logits_of_ten_thousands_are_as_exact_as_floats(count: int, run: Any) -> None:
    """Their exponentials were off by 1e-3: half of the distance of floats of that size."""
    x = np.random.default_rng(0).uniform(-1, 1, (64, count)).astype("float32") + np.float32(54321)
    got = run(eqsat_layout.compile(program(softmax_of_products, x.shape)), x)
    scaled = (x * np.float32(1.01)).astype("float64")
    powers = np.exp(scaled - scaled.max(-1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("of", [te.max, te.min])
def test_only_differences_from_extremes_are_kept(of: Any) -> None:
    x = te.placeholder((8, 16), name="x")
    k = te.reduce_axis((0, 16), "k")
    extreme = te.compute((8,), lambda i: of(x[i, k] * 2.0, k), name="extreme")
    total = te.compute((8,), lambda i: te.sum(x[i, k] * 2.0, k), name="total")
    result = te.compute((8, 16), lambda i, j: (x[i, j] * 2.0 - extreme[i]) + (x[i, j] * 3.0 - total[i]))
    func = with_differences(te.create_prim_func([x, result]))
    assert func.script().count("difference") == 1
    plain = te.create_prim_func([x, te.compute((8, 16), lambda i, j: x[i, j] * 2.0 - x[i, 0])])
    assert with_differences(plain).same_as(plain)
    assert isinstance(plain, tirx.PrimFunc)
