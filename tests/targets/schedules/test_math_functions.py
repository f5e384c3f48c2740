"""Functions as arithmetic against double precision, on all kinds of floats."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target

_erf = np.vectorize(math.erf)

FUNCTIONS = {
    "exp": (tirx.exp, lambda x: np.exp(np.where(x < -125.5 * math.log(2), -math.inf, x)), 1.2e-38),
    "log": (tirx.log, np.log, 1.2e-38),
    "sigmoid": (tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x)), 1e-31),  # 0 where exp(-x) is infinite
    "tanh": (tirx.tanh, np.tanh, 1.2e-38),
    "erf": (tirx.erf, _erf, 1.2e-38),
    "atan": (tirx.atan, np.arctan, 1.2e-38),
    "sin": (tirx.sin, np.sin, 1.2e-38),
    "cos": (tirx.cos, np.cos, 1.2e-38),
}
"""Of TVM, of NumPy, and the results below which errors are absolute."""
SPECIAL = [
    math.inf,
    -math.inf,
    math.nan,
    0.0,
    -0.0,
    88.7,
    88.73,
    89.5,
    -87.4,
    -103.9,
    -104.1,
    1e-45,
    3e-42,
    1.1e-38,
    -1e-38,
    3e38,
    -3e38,
]


def inputs():
    ranges = [np.linspace(-110, 95, 20_000), np.linspace(-5, 5, 20_000), 10.0 ** np.linspace(-37, 2, 4_000)]
    values = np.concatenate([*ranges, -ranges[-1], SPECIAL]).astype("float32")
    return np.concatenate([values, np.zeros(-len(values) % 16, "float32")]).reshape(-1, 16)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_as_good_as_that_of_libm(name):
    function, reference, least = FUNCTIONS[name]
    got = _computed(function)
    with np.errstate(all="ignore"):
        wanted = reference(inputs().astype("float64"))
        rounded = wanted.astype("float32")
        finite = np.isfinite(rounded)
        error = np.abs(got[finite] - wanted[finite]) / np.maximum(np.abs(wanted[finite]), least)
    assert error.max() < 4e-7
    np.testing.assert_array_equal(got[~finite], rounded[~finite])


def test_tanh_ends_in_one():
    """``gelu_tanh`` of -1e38 was -1e31, and of -inf -inf: tanh ended below 1."""
    x = np.array([8, 9, 20, 1e38, math.inf, -8, -9, -20, -1e38, -math.inf] * 8, "float32").reshape(-1, 16)
    np.testing.assert_array_equal(_computed(tirx.tanh, x), np.sign(x))


def test_exp_gives_no_denormal_numbers():
    """A product with those that a masked softmax had took 60 times as long (Swin-T: 47 of 138 ms)."""
    got = _computed(tirx.exp)
    assert not ((got > 0) & (got < 2.0**-126)).any()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 8, -1, -2, -3])
def test_a_power_with_a_small_whole_exponent_is_products(exponent):
    """GPT-2's activation has x ** 3, of which libm takes 20 ns (two thirds of the network's time)."""
    got = _computed(lambda x: tirx.pow(x, tirx.const(float(exponent), "float32")))
    x = inputs()
    with np.errstate(all="ignore"):
        wanted = (x.astype("float64") ** exponent).astype("float32")
        usual = np.isfinite(wanted) & (np.abs(wanted) > 1e-30) & (np.abs(x) > 1e-30)
        np.testing.assert_allclose(got[usual], wanted[usual], rtol=1e-6)
        large = ~np.isfinite(wanted) & ~((exponent < 0) & (np.abs(x) < 1e-30))
    np.testing.assert_array_equal(got[large], wanted[large])


def _computed(function, x=None, logarithms=True):
    """What the function makes of the inputs, none of TVM's own calls left in it."""
    x = inputs() if x is None else x
    operand = te.placeholder(x.shape, name="x")
    result = te.compute(x.shape, lambda i, j: function(operand[i, j]), name="y")
    func = te.create_prim_func([operand, result], index_dtype_override="int64")
    scheduled = schedule_primfunc(func, machine_of(normalize_target()))
    assert not re.search(r"T\.(exp|log|sigmoid|tanh|erf|atan|sin|cos|pow)\(", scheduled.script())
    assert (str(0x3F3504F3) in scheduled.script()) <= logarithms  # the root of a half
    main = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=normalize_target())["main"]
    got = tvm.runtime.tensor(np.zeros_like(x))
    main(tvm.runtime.tensor(x), got)
    return got.numpy()


@pytest.mark.parametrize("threshold", [20.0, 1.0, None])
def test_the_tanh_of_a_softplus_takes_no_logarithm(threshold):
    """Mish took 2.4 times as long as OpenVINO's."""

    def softplus(x):
        one = tirx.const(1.0, "float32")
        smooth = tirx.log(tirx.exp(x) + one)
        return smooth if threshold is None else tirx.Select(tirx.const(threshold, "float32") < x, x, smooth)

    got = _computed(lambda x: tirx.tanh(softplus(x)), logarithms=False)
    x = inputs().astype("float64")
    with np.errstate(all="ignore"):
        smooth = np.logaddexp(0.0, x)
        wanted = np.tanh(smooth if threshold is None else np.where(x > threshold, x, smooth))
    np.testing.assert_allclose(got, wanted, rtol=5e-7, atol=2e-38)


@pytest.mark.parametrize("number", [6.0, -3.0, 1e-37, 1e-40, math.inf, math.nan, 3e38])
def test_a_division_by_a_number_is_a_product(number):
    """Not where the reciprocal would lose bits, or all of them. One of AVX-512 takes as long as 32 products."""
    x = inputs()
    operand = te.placeholder(x.shape, name="x")
    result = te.compute(x.shape, lambda i, j: operand[i, j] / tirx.const(number, "float32"), name="y")
    func = te.create_prim_func([operand, result], index_dtype_override="int64")
    scheduled = schedule_primfunc(func, machine_of(normalize_target()))
    assert (" / " in scheduled.script()) == (number not in (6.0, -3.0, 1e-37))
    main = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=normalize_target())["main"]
    got = tvm.runtime.tensor(np.zeros_like(x))
    main(tvm.runtime.tensor(x), got)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got.numpy(), x / np.float32(number), rtol=2.5e-7, atol=1e-44)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_sine_is_right_for_angles_of_every_size_and_near_its_zeros(name):
    """2^72 * 16367173 is the float that lies nearest to a multiple of pi / 2."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 1 << 14, dtype=np.uint32).view("float32")
    near = random.integers(1, 1 << 26, 1 << 13) * (math.pi / 2)
    far = random.uniform(2.0**24, 2.0**27, 1 << 12)
    far[0] = 16367173.0 * 2.0**72
    x = np.concatenate([bits, *(own.astype("float32") for own in (near, far))]).reshape(-1, 16)
    got = _computed(getattr(tirx, name), x)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype("float64"))
    known = np.isfinite(x)
    assert np.isnan(got[~known]).all()
    np.testing.assert_allclose(got[known], wanted[known], rtol=2e-7, atol=1e-45)


def test_the_sine_of_zero_keeps_its_sign():
    got = _computed(tirx.sin, np.tile(np.array([0.0, -0.0], "float32"), (1, 8)))
    np.testing.assert_array_equal(np.signbit(got), np.tile([False, True], (1, 8)))
