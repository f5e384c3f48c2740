"""Differences from the extreme of a row are by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.targets.schedules.differences_from_extremes import differences_for_llvm, with_differences

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


def powers_of_scaled(builder: Any, x: Any) -> Any:
    """exp(x * c - max(x) * c)."""
    scaled, largest = (
        builder.emit(op.multiply(one, relax.const(1.01, "float32")))
        for one in (x, builder.emit(op.max(x, -1, keepdims=True)))
    )
    return builder.emit(op.exp(builder.emit(op.subtract(scaled, largest))))


def roots_above_the_least(builder: Any, x: Any) -> Any:
    """The square root of x * c + max(-(x * c))."""
    scaled = builder.emit(op.multiply(x, relax.const(1.01, "float32")))
    least = builder.emit(op.max(builder.emit(op.negative(scaled)), -1, keepdims=True))
    return builder.emit(op.sqrt(builder.emit(op.add(scaled, least))))


@pytest.mark.parametrize("approx", [True, False])
@pytest.mark.parametrize("body", [powers_of_scaled, roots_above_the_least])
def test_scaled_maxima_and_minima_are_reached(body: Any, approx: bool, run: Any) -> None:
    """Of two products one was exact, and of a sum with the largest as well: powers were infinite, roots NaN."""
    x = np.random.default_rng(0).uniform(-1, 1, (64, 6)).astype("float32") * np.float32(1e12)
    got = run(eqsat_layout.compile(program(body, x.shape), approx=approx), x)
    ends = {powers_of_scaled: x.argmax(-1), roots_above_the_least: x.argmin(-1)}[body]
    np.testing.assert_array_equal(
        got[np.arange(64), ends], np.full(64, 1 if body is powers_of_scaled else 0, "float32")
    )
    assert np.isfinite(got).all()


def test_equal_products_have_no_difference(run: Any) -> None:
    """x * x - y * y was not 0 where x and y are equal, and its root NaN."""

    def differing(builder: Any, x: Any, y: Any) -> Any:
        squares = [builder.emit(op.multiply(one, one)) for one in (x, y)]
        return builder.emit(op.sqrt(builder.emit(op.subtract(*squares))))

    x = np.random.default_rng(0).standard_normal((64, 6)).astype("float32")
    got = run(eqsat_layout.compile(program(differing, x.shape, x.shape)), x, x.copy())
    np.testing.assert_array_equal(got, np.zeros_like(x))


@pytest.mark.parametrize(("scale", "kept"), [(1.01, 1), (0.125, 0), (None, 0)])
def test_what_is_exact_anyway_is_not_kept(scale: float | None, kept: int) -> None:
    """LLVM made no vectors of softmaxes without a product: twice the time."""
    x = te.placeholder((8, 16), name="x")
    k = te.reduce_axis((0, 16), "k")

    def scaled(i: Any, j: Any) -> Any:
        return x[i, j] if scale is None else x[i, j] * scale

    largest = te.compute((8,), lambda i: te.max(scaled(i, k), k), name="largest")
    result = te.compute((8, 16), lambda i, j: scaled(i, j) - largest[i])
    assert with_differences(te.create_prim_func([x, result])).script().count("difference") == kept


@pytest.mark.parametrize(("mcpu", "kept"), [("x86-64-v3", 1), ("x86-64", 0)])
def test_they_are_one_instruction_where_there_is_one(mcpu: str, kept: int) -> None:
    x, y = (te.placeholder((16,), name=name) for name in "xy")
    func = te.create_prim_func([x, y, te.compute((16,), lambda i: x[i] * x[i] - y[i] * y[i])])
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu})
    mod = tvm.IRModule({"main": with_differences(func).with_attr("target", target)})
    made = differences_for_llvm()(mod)["main"].script()
    assert "difference" not in made
    assert made.count("llvm.fma") == kept


@pytest.mark.parametrize("of", [te.max, te.min])
def test_only_differences_from_extremes_are_kept(of: Any) -> None:
    x = te.placeholder((8, 16), name="x")
    k = te.reduce_axis((0, 16), "k")
    extreme = te.compute((8,), lambda i: of(x[i, k] * 1.1, k), name="extreme")
    total = te.compute((8,), lambda i: te.sum(x[i, k] * 3.0, k), name="total")
    result = te.compute((8, 16), lambda i, j: (x[i, j] * 1.1 - extreme[i]) + (x[i, j] * 3.0 - total[i]))
    func = with_differences(te.create_prim_func([x, result]))
    assert func.script().count("difference") == 1
    plain = te.create_prim_func([x, te.compute((8, 16), lambda i, j: x[i, j] * 1.1 - x[i, 0])])
    assert with_differences(plain).same_as(plain)
    assert isinstance(plain, tirx.PrimFunc)
