"""NaN, infinities and integers that wrap around: kernels of several ops give what the ops give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax, tirx
from tvm.relax import op as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.schedules.exact_values import revealed, survives_simplification, with_hidden_arithmetic
from eqsat_layout.tir.structural import nodes_of

FLOATS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-40, 2.5, -2.5], "float32")
INTEGERS = np.array([2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 0, 1, -1, 2, 3, -7, 46341, 65536], "int32")
SHAPE = (8, 12)

Build = Callable[..., Any]


def number(value: float, dtype: str = "float32") -> Any:
    return relax.const(value, dtype)


def one(builder: Any, value: Any) -> Any:
    return builder.emit(value)


CASES: dict[str, tuple[str, Build]] = {
    "not less": ("float32", lambda b, x: R.logical_not(one(b, R.less(x, number(0.0))))),
    "not equal": ("float32", lambda b, x: R.logical_not(one(b, R.equal(x, number(1.0))))),
    "not unequal": ("float32", lambda b, x: R.logical_not(one(b, R.not_equal(x, number(1.0))))),
    "equal to itself": ("float32", lambda b, x: (lambda y: R.equal(y, y))(one(b, R.multiply(x, x)))),
    "less itself": ("float32", lambda b, x: (lambda y: R.subtract(y, y))(one(b, R.nn.relu(x)))),
    "twice less once": ("float32", lambda b, x: R.subtract(one(b, R.add(x, x)), x)),
    "where it is a number": ("float32", lambda b, x: R.where(one(b, R.equal(x, x)), x, one(b, R.nn.relu(x)))),
    "times 0": ("float32", lambda b, x: R.multiply(one(b, R.nn.relu(x)), number(0.0))),
    "silu": ("float32", lambda b, x: R.nn.silu(x)),
    "sigmoid": ("float32", lambda b, x: R.sigmoid(one(b, R.multiply(x, x)))),
    "twice halved": (
        "int32",
        lambda b, x: R.floor_divide(one(b, R.multiply(x, number(2, "int32"))), number(2, "int32")),
    ),
    "next is greater": ("int32", lambda b, x: R.greater(one(b, R.add(x, number(1, "int32"))), x)),
    "larger of next": ("int32", lambda b, x: R.maximum(one(b, R.add(x, number(1, "int32"))), x)),
    "by a square": (
        "int32",
        lambda b, x: R.floor_divide(number(7, "int32"), one(b, R.add(one(b, R.multiply(x, x)), number(1, "int32")))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_several_ops_are_exact(name: str) -> None:
    """TVM's simplifier took floats for real numbers and integers for endless ones; LLVM did, too."""
    dtype, body = CASES[name]
    mod = program(body, SHAPE, dtype=dtype)
    pool = FLOATS if dtype == "float32" else INTEGERS
    x = pool[np.random.default_rng(0).integers(0, len(pool), SHAPE)]
    expected, found = (
        relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
        for built in (tvm.compile(mod, "llvm"), eqsat_layout.compile(mod, approx=False))
    )
    np.testing.assert_array_equal(np.isnan(expected), np.isnan(found))
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(expected), np.signbit(found))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-37)
    else:
        np.testing.assert_array_equal(found, expected)


def load(dtype: str) -> Any:
    return tirx.decl_buffer((4,), dtype, "x")[tirx.Var("i", "int64")]


def test_what_survives() -> None:
    x, n = load("float32"), load("int32")
    assert survives_simplification(x * tirx.const(2.0, "float32") + tirx.const(1.0, "float32"))
    assert survives_simplification(tirx.Max(x, tirx.const(0.0, "float32")))
    assert survives_simplification(tirx.Not(tirx.EQ(n, load("int32"))))
    assert not survives_simplification(tirx.Not(tirx.EQ(x, load("float32"))))  # LLVM's "not equal" is false for NaN
    assert not survives_simplification(tirx.NE(x, x))  # which is true on devices
    assert not survives_simplification(tirx.Sub(x, x))
    assert not survives_simplification(tirx.EQ(x, x))
    assert not survives_simplification(tirx.Not(tirx.LT(x, tirx.const(0.0, "float32"))))
    assert not survives_simplification(tirx.GT(tirx.Add(n, tirx.const(1, "int32")), n))
    assert survives_simplification(tirx.Cast("float32", tirx.Var("i", "int64") * 2 // 2))


def test_constants_whose_product_leaves_their_type_are_not_simplified() -> None:
    """The steps of a random generator or a hash were an error of TVM's about a literal that is out of range."""
    n, long = load("int32"), load("int64")
    assert not survives_simplification((n + 12345) * 1103515245)
    assert not survives_simplification((long + 7) * tirx.IntImm("int64", 6364136223846793005))


def test_hidden_arithmetic_is_revealed_as_it_was() -> None:
    buffer, i = tirx.decl_buffer((4,), "float32", "y"), tirx.Var("i", "int64")
    value = tirx.Sub(load("float32"), load("float32"))
    same = tirx.Sub(value, value)
    func = tirx.PrimFunc([], tirx.BufferStore(buffer, same, [i]))
    assert "eqsat_layout.Sub" in str(with_hidden_arithmetic(func).body)
    tvm.ir.assert_structural_equal(revealed(with_hidden_arithmetic(func)).body, func.body, map_free_vars=True)


UNOPTIMISED = {"kind": "llvm", "opt-level": 0}
"""LLVM's optimiser forgets a NaN next to the border of a pool, which TVM's own code does not."""

IN_ORDER: dict[str, Build] = {
    "max along memory": lambda b, x: R.max(x, axis=[1]),
    "min of all": lambda b, x: R.min(x),
    "place of the least": lambda b, x: R.argmin(x, axis=1),
    "max pool with a border": lambda b, x: R.nn.max_pool2d(
        one(b, R.reshape(x, (1, 8, 4, 24))), [2, 3], strides=[1, 2], padding=[1, 1, 1, 1]
    ),
    "tanh of -0": lambda b, x: R.tanh(x),
    "gelu of -inf": lambda b, x: R.nn.gelu_tanh(x),
    "softmax": lambda b, x: R.nn.softmax(x, axis=-1),
}


def test_pads_of_both_zeros_inside_of_one_another_stay_two() -> None:
    """The simplifier made one condition of both, as if they held one number."""

    @T.prim_func
    def padded_twice(x: T.Buffer((4,), "float32"), y: T.Buffer((8,), "float32")) -> None:
        for i in range(8):
            y[i] = T.if_then_else(
                i >= 1 and i < 7, T.if_then_else(i >= 2 and i < 6, x[i - 2], T.float32(0.0)), T.float32(-0.0)
            )

    def zeros(func: Any) -> set[str]:
        simplified = tirx.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"]
        return {repr(one.value) for one in nodes_of(revealed(simplified).body, tirx.FloatImm)}

    assert zeros(with_hidden_arithmetic(padded_twice)) == {"0.0", "-0.0"}
    assert len(zeros(padded_twice)) == 1


@pytest.mark.parametrize("name", IN_ORDER)
def test_without_approx_nan_infinities_and_zeros_are_those_of_tvm(name: str) -> None:
    """The greatest of several numbers depends on the order where some are NaN, and functions were polynomials."""
    shape = (8, 96)
    mod = program(IN_ORDER[name], shape)
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype("float32")
    special = random.random(shape) < 0.2
    x[special] = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], "float32")[random.integers(0, 5, special.sum())]
    expected, found = (
        relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
        for built in (tvm.compile(mod, tvm.target.Target(UNOPTIMISED)), eqsat_layout.compile(mod, approx=False))
    )
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)


def test_without_approx_a_transposed_convolution_meets_its_own_zeros() -> None:
    """Weights were padded with zeros where there were none: 0 times infinity is NaN."""
    weight = relax.const(np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("float32"))
    mod = program(lambda b, x: R.nn.conv2d_transpose(x, weight, strides=[2, 2], padding=[1, 1, 1, 1]), (1, 16, 8, 8))
    x = np.ones((1, 16, 8, 8), "float32")
    x[0, 3, 2, 2] = np.inf
    expected, found = (
        relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
        for built in (tvm.compile(mod, "llvm"), eqsat_layout.compile(mod, approx=False))
    )
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


def test_frozen_layouts_follow_their_bindings_through_preparation() -> None:
    """A convolution that nothing uses, or that another name is bound to, was frozen under a name that was gone."""
    weight = relax.const(np.ones((8, 8, 1, 1), "float32"))

    def body(b: Any, x: Any) -> Any:
        b.emit(R.nn.conv2d(x, weight), "unused")
        return one(b, R.nn.relu(b.emit(b.emit(R.nn.conv2d(x, weight), "used"), "again")))

    mod = program(body, (1, 8, 4, 4))
    layouts = {name: ["NHWC", "OHWI"] for name in ("unused", "used")}
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("eqsat_layout.frozen", layouts))
    assert eqsat_layout.compile(mod) is not None


@pytest.mark.parametrize("name", ["floor_mod", "floor_divide"])
def test_unsigned_dividends_that_wrap_around_do_so_before_they_are_divided(name: str) -> None:
    """(x - 20) % 5 of bytes was x % 5: found by the program fuzzer, seed 620291000001."""

    def body(b: Any, x: Any) -> Any:
        return getattr(R, name)(one(b, R.subtract(x, number(20, "uint8"))), number(5, "uint8"))

    x = np.arange(40, dtype="uint8").reshape(1, 40)
    expected = getattr(np, {"floor_mod": "mod"}.get(name, name))(x - np.uint8(20), np.uint8(5))
    for count in (1, 40):
        mod = program(body, (1, count), dtype="uint8")
        machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
        found = machine["main"](tvm.runtime.tensor(np.ascontiguousarray(x[:, :count]))).numpy()
        np.testing.assert_array_equal(found, expected[:, :count])


SHIFTED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "maximum": (lambda b, y: R.maximum(y, number(0, "int32")), lambda y: np.maximum(y, 0)),
    "less": (lambda b, y: R.less(y, number(0, "int32")), lambda y: y < 0),
    "floor_divide": (lambda b, y: R.floor_divide(y, number(3, "int32")), lambda y: y // 3),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_what_is_shifted_to_the_left_may_turn_negative(name: str) -> None:
    """``(byte << 24) < 0`` was false: the simplifier takes what is shifted for a number of any size."""
    op, expected = SHIFTED[name]

    def body(b: Any, x: Any) -> Any:
        wide = one(b, R.maximum(one(b, R.astype(x, "int32")), number(0, "int32")))
        return op(b, one(b, R.left_shift(wide, number(24, "int32"))))

    x = np.arange(256, dtype="uint8").reshape(8, 32)
    machine = relax.VirtualMachine(eqsat_layout.compile(program(body, x.shape, dtype="uint8")), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(found, expected(x.astype("int32") << 24))


def test_arithmetic_inside_of_bits_and_calls_is_hidden_too() -> None:
    """``x == x`` inside of an exclusive or was true of NaN: what it was in was taken for one variable."""
    x = load("float32")
    assert not survives_simplification(tirx.BitwiseXor(tirx.EQ(x, x), tirx.const(False, "bool")))
    assert not survives_simplification(tirx.exp(x - x))
    assert survives_simplification(tirx.exp(x - tirx.const(1.0, "float32")))


@pytest.mark.parametrize(
    ("dtype", "taken", "divisor"), [("int32", -(2**31), 2), ("int64", -(2**63), 2), ("int8", -100, 3)]
)
def test_what_is_made_of_places_alone_wraps_around(dtype: str, taken: int, divisor: int) -> None:
    """Taken for an index, which never does: the largest number behind the least one, halved, was positive (found by the
    program fuzzer)."""
    ends, places = np.iinfo(dtype), np.eye(5, 3).astype(dtype)
    i, j = (tirx.Var(name, "int64") for name in "ij")
    buffer = tirx.decl_buffer((5, 3), dtype, "y")
    diagonal = tirx.if_then_else(i.equal(j), *(tirx.const(number, dtype) for number in (1, 0)))
    value = tirx.FloorDiv(tirx.Sub(diagonal, tirx.const(taken, dtype)), tirx.const(divisor, dtype))
    body: Any = tirx.BufferStore(buffer, value, [i, j])
    for var, extent in ((j, 3), (i, 5)):
        body = tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)
    func = tirx.PrimFunc([buffer], body).with_attr("global_symbol", "main")
    got = tvm.runtime.tensor(np.zeros((5, 3), dtype))
    build_scheduled(tvm.IRModule({"main": func}), normalize_target())["main"](got)
    wrapped = (places.astype(object) - taken - ends.min) % (1 << ends.bits) + ends.min
    np.testing.assert_array_equal(got.numpy(), (wrapped // divisor).astype(dtype))
