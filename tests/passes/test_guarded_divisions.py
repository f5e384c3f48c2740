"""Integers divided by 0, and the least one by -1, give numbers and end nothing."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from passes.test_guarded_reads import run
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import relax as Rx
from tvm.script import tirx as T

import eqsat_layout

QUOTIENTS = {"floor_divide": np.floor_divide, "divide": lambda a, b: np.trunc(a / b).astype(a.dtype)}


@pytest.mark.parametrize("op", ["floor_divide", "divide", "floor_mod", "mod"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_no_division_traps(op: str, dtype: str) -> None:
    least = np.iinfo(dtype).min
    a = np.array([7, 7, least, least, least, 9, 100, 23] * 5, dtype)
    b = np.array([0, 2, 0, 1, 3, 4, 7, 9] * 5).astype(dtype)
    if least < 0:
        b[np.isin(b, (1, 4))] = -1
    got = run(lambda _, x, y: getattr(R, op)(x, y), a, b)
    wide, by = a.astype(object), b.astype(object)
    for x, y, given in zip(wide, by, got, strict=True):
        floor = x // y if y else 0
        quotient = floor + (1 if y and floor < 0 and floor * y != x else 0) if op in ("divide", "mod") else floor
        expected = quotient if op in QUOTIENTS else (x - quotient * y if y else 0)
        assert given == np.array([int(expected) & (1 << 64) - 1], "uint64").astype(dtype)[0], (x, y)


def test_a_divisor_that_is_0_as_tvm_sees() -> None:
    x = np.array([7, -7, 0, 5], "int32")
    got = run(lambda b, x: R.add(b.emit(R.floor_divide(x, b.emit(R.subtract(x, x)))), x), x)
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("divisor", [-3, -2, 3])
@pytest.mark.parametrize("op", ["floor_divide", "floor_mod", "divide"])
def test_vectors_divided_by_a_number(op: str, divisor: int) -> None:
    """Lanes of a number were guarded as if they might be 0, and TVM folded their bits as a negative unsigned number."""
    x = np.array([7, -7, 0, 5, 2, -2, 100, -100], "int32")
    number = relax.const(np.array(divisor, "int32"), "int32")
    two = relax.const(np.array(2, "int32"), "int32")
    got = run(lambda b, x: getattr(R, op)(b.emit(R.subtract(x, two)), number), x)
    wanted = {"floor_divide": np.floor_divide, "floor_mod": np.mod, "divide": lambda a, b: np.trunc(a / b)}
    np.testing.assert_array_equal(got, wanted[op](x - 2, divisor))


@I.ir_module
class Counted:
    @T.prim_func(private=True, s_tir=True)
    def f(y: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            with T.sblock("counted"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = vi // vj

    @Rx.function
    def main() -> Rx.Tensor((4, 4), "int32"):
        cls = Counted
        with Rx.dataflow():
            y = Rx.call_tir(cls.f, (), out_ty=Rx.Tensor((4, 4), "int32"))
            Rx.output(y)
        return y


def test_an_axis_divided_by_an_axis() -> None:
    got = relax.VirtualMachine(eqsat_layout.compile(Counted), tvm.cpu())["main"]().numpy()
    i, j = np.indices((4, 4))
    np.testing.assert_array_equal(got, np.where(j == 0, 0, i // np.maximum(j, 1)))


@I.ir_module
class Sizes:
    @Rx.function
    def main(x: Rx.Tensor(("n", "m"), "float32")) -> Rx.Tensor(("n // m + n % m",), "float32"):
        n, m = T.int64(), T.int64()
        return Rx.zeros(Rx.shape([n // m + n % m]), "float32")


def test_sizes_divided_by_sizes_that_are_0() -> None:
    main = relax.VirtualMachine(eqsat_layout.compile(Sizes), tvm.cpu())["main"]
    for shape in ((7, 2), (3, 0), (0, 0)):
        found = main(tvm.runtime.tensor(np.zeros(shape, "float32"))).numpy()
        assert found.shape == (shape[0] // shape[1] + shape[0] % shape[1] if shape[1] else 0,)


def test_steps_of_0_in_a_slice_at_run_time() -> None:
    given = [np.array([0, 0]), np.array([8, 4]), np.array([0, 1])]
    got = run(lambda _, x, *at: R.dynamic_strided_slice(x, *at), np.ones((8, 4), "float32"), *given)
    assert got.shape[1] == 4


def test_a_quotient_of_differences_of_unsigned_bytes_has_a_schedule() -> None:
    """Built without one, with a warning (here it is an error): TVM worked out the least number that the dividend's name
    stands for as 0 less 18, which it refuses (found by the program fuzzer)."""

    def body(b, x):
        def number(value):
            return relax.const(np.array(value, "uint8"), "uint8")

        rest = b.emit(R.floor_mod(b.emit(R.subtract(x, number(6))), number(6)))
        divisor = b.emit(R.add(b.emit(R.multiply(rest, number(2))), number(1)))
        quotient = b.emit(R.floor_divide(b.emit(R.subtract(rest, number(18))), divisor))
        return R.stack([b.emit(R.less_equal(b.emit(R.subtract(quotient, number(125))), number(3)))] * 2, axis=0)

    x = np.arange(16, dtype="uint8") * np.uint8(17)
    rest = (x - np.uint8(6)) % np.uint8(6)
    got = run(body, x)
    expected = (rest - np.uint8(18)) // (rest * np.uint8(2) + np.uint8(1)) - np.uint8(125) <= 3
    np.testing.assert_array_equal(got, [expected, expected])
