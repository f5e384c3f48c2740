"""Results that have nothing to do with one another are scheduled one by one; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, built
from tvm import relax, te, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.matrix_literals import knowing, known_operands
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.independent_results import independent_results


def parts_of(count: int, *, sums: bool = False, chained: bool = False) -> Any:
    """``count`` results of 4 rows each of one operand, in one function."""
    x = te.placeholder((4 * count, 37), name="x")

    def part(number: int, last: Any) -> Any:
        k = te.reduce_axis((0, 37), "k")
        if sums:
            return te.compute((4,), lambda i: te.sum(x[4 * number + i, k], axis=k), name=f"sum{number}")
        if chained and last is not None:
            return te.compute((4, 37), lambda i, j: last[i, j] + 1, name=f"next{number}")
        return te.compute((4, 37), lambda i, j: te.exp(x[4 * number + i, j]), name=f"part{number}")

    results: list[Any] = []
    for number in range(count):
        results.append(part(number, results[-1] if results else None))
    return te.create_prim_func([x, *results])


@pytest.mark.parametrize("sums", [False, True])
def test_each_has_a_schedule_and_its_numbers(sums: bool) -> None:
    """100 parts took 25 s to compile, and 50 a quarter of that."""
    func = parts_of(8, sums=sums)
    assert len(independent_results(func).parts) == 8
    done = schedule_primfunc(func, AVX2)
    assert done.attrs["tirx.is_scheduled"]
    x = np.random.default_rng(0).standard_normal((32, 37), dtype=np.float32)
    results = [tvm.runtime.tensor(np.zeros(4 if sums else (4, 37), "float32")) for _ in range(8)]
    built(tvm.IRModule({"main": done}))["main"](tvm.runtime.tensor(x), *results)
    for number, result in enumerate(results):
        rows = x[4 * number : 4 * number + 4]
        np.testing.assert_allclose(result.numpy(), rows.sum(axis=1) if sums else np.exp(rows), rtol=2e-5, atol=2e-5)


def test_what_is_known_of_an_operand_is_known_of_no_other() -> None:
    """The parts have fewer parameters: a matrix was taken for another one, with wrong numbers."""
    x, known, other = te.placeholder((4, 16), name="x"), te.placeholder((4, 4), name="k"), te.placeholder((4, 4))

    def product(number: int) -> Any:
        r = te.reduce_axis((0, 4), "r")
        matrix = other if number % 2 else known
        return te.compute((4, 16), lambda i, j: te.sum(matrix[i, r] * x[r, j], axis=r), name=f"product{number}")

    results = [product(number) for number in range(6)]
    numbers = np.diag([1.0, 2, 3, 4]).astype("float32")
    func = knowing(te.create_prim_func([x, known, other, *results]), [None, relax.const(numbers), *[None] * 7])
    assert [known_operands(part) for part in independent_results(func).parts] == [[1], []] * 3
    data, matrix = np.random.default_rng(0).standard_normal((2, 4, 16), dtype=np.float32)
    matrix = np.ascontiguousarray(matrix[:, :4])
    made = [tvm.runtime.tensor(np.zeros((4, 16), "float32")) for _ in results]
    built(tvm.IRModule({"main": schedule_primfunc(func, AVX2)}))["main"](
        *map(tvm.runtime.tensor, (data, numbers, matrix)), *made
    )
    for number, result in enumerate(made):
        np.testing.assert_allclose(result.numpy(), (matrix if number % 2 else numbers) @ data, rtol=2e-5, atol=2e-5)


def conditional() -> Any:
    """Six results under conditions that an operand has: no block reads it."""
    results = ", ".join(f'o{i}: T.Buffer((16,), "float32")' for i in range(6))
    lines = [f'def func(a: T.Buffer((16,), "float32"), n: T.Buffer((6,), "int64"), {results}):']
    for i in range(6):
        lines.append(f'    for i in range(16):\n        with T.sblock("b{i}"):\n            T.where(i < n[{i}])')
        lines.append(f"            v = T.axis.spatial(16, i)\n            o{i}[v] = a[v] * T.float32({i + 1})")
    return tvm.script.from_source("\n".join(["@T.prim_func(s_tir=True)", *lines]))


@pytest.mark.parametrize(
    "func", [parts_of(3), parts_of(8, chained=True), conditional()], ids=["few", "chained", "conditional"]
)
def test_others_are_scheduled_together(func: tirx.PrimFunc) -> None:
    with pytest.raises(Refused):
        independent_results(func)
