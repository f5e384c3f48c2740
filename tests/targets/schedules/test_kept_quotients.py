"""Quotients that are rounded or compared in another kernel than the one that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.targets.schedules.kept_quotients import keep_quotients

ROWS, COLUMNS = 12, 32
NUMBERS = np.array([3.25, 49, 41, 10, 0.7, 1.1, 3, 7, 0.1, 13, 25, 0.3], "float32")

BETWEEN: dict[str, Callable[[Any, Any], Any]] = {
    "moved": lambda emit, y: emit(R.permute_dims(emit(R.concat([y, y], axis=1)))),
    "sums": lambda emit, y: emit(R.sum(y, axis=[1])),
    "in a tuple": lambda emit, y: emit(relax.TupleGetItem(emit(relax.Tuple([y, y])), 1)),
    "parts": lambda emit, y: emit(relax.TupleGetItem(emit(R.split(y, 2, axis=1)), 1)),
}
AFTER: tuple[Callable[[Any, Any], Any], ...] = (
    lambda emit, y: emit(R.floor(emit(R.cumsum(y, axis=0)))),
    lambda emit, y: emit(R.astype(emit(R.flip(y, axis=0)), "int32")),
    lambda emit, y: emit(R.argmax(y, axis=0)),
    lambda emit, y: emit(R.greater_equal(emit(R.cumsum(y, axis=0)), relax.const(np.float32(3)))),
)


def divided(between: Any, divisor: Any) -> Any:
    """Each of what comes after is given quotients of its own."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType((ROWS, COLUMNS), "float32")) for i in range(len(AFTER))]
    rows = relax.Var("rows", relax.TensorType((ROWS, 1), "float32"))
    with builder.function("main", [*inputs, rows]):
        quotients = [builder.emit(R.divide(x, rows if divisor is None else relax.const(divisor))) for x in inputs]
        moved = [between(builder.emit, y) for y in quotients]
        builder.emit_func_output([after(builder.emit, y) for after, y in zip(AFTER, moved, strict=True)])
    return builder.get()


@pytest.mark.parametrize(
    ("between", "divisor"),
    [("moved", None), ("sums", np.float32(3.25)), ("in a tuple", None), ("parts", np.float32(3.25))],
)
def test_what_another_kernel_rounds_or_compares_is_divided(between: str, divisor: Any) -> None:
    """Some multiples of a number, over it, were a bit less or more than the whole number, and so became another one."""
    mod = divided(BETWEEN[between], divisor)
    rows = NUMBERS if divisor is None else np.full(ROWS, divisor, "float32")
    whole = np.random.default_rng(0).integers(-60, 60, (len(AFTER), ROWS, COLUMNS)).astype("float32")
    given = [tvm.runtime.tensor(part * rows[:, None]) for part in whole]
    given.append(tvm.runtime.tensor(rows[:, None].copy()))
    found, wanted = (
        relax.VirtualMachine(eqsat_layout.compile(mod, {"kind": "llvm", "mcpu": "x86-64-v3"}, approx=approx), tvm.cpu())
        for approx in (True, False)
    )
    for got, want in zip(found["main"](*given), wanted["main"](*given), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_what_is_only_added_up_of_products_after_is_not_kept() -> None:
    """A product in between has no exact bits: norms of a network that ends in an argmax are as fast as of others."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType((ROWS, ROWS), "float32")) for name in "xw")
    with builder.function("main", [x, w]):
        product = builder.emit(R.matmul(builder.emit(R.divide(x, relax.const(np.float32(3.25)))), w))
        builder.emit_func_output(builder.emit(R.argmax(product, axis=1)))
    mod = legalize(builder.get())
    assert keep_quotients(mod).same_as(mod)
