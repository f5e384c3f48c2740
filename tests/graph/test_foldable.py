"""What may be computed while compiling: what is refused, and that what people fold is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op as R
from tvm.script import tirx as T

from eqsat_layout.graph.foldable import call_may_run_at_compile_time, may_run_at_compile_time
from eqsat_layout.models import resnet50


def one_statement(statement: Callable[[Any, Any, Any], Any], dtype: str = "int32", extent: int = 8) -> tirx.PrimFunc:
    """``for i in range(extent): y[i] = statement(x, y, i)``; both buffers hold 8 elements."""
    x, y = (tirx.decl_buffer((8,), dtype, name) for name in "xy")
    i = tirx.Var("i", "int32")
    body = statement(x, y, i)
    body = body if isinstance(body, tirx.Stmt) else tirx.BufferStore(y, body, [i])
    return tirx.PrimFunc([x, y], tirx.For(i, 0, extent, tirx.ForKind.SERIAL, body))


REFUSED = {
    "extern": (lambda x, y, i: T.call_extern("int32", "system", 1), "calls tirx.call_extern"),
    "pure extern": (lambda x, y, i: T.call_pure_extern("int32", "system", x[i]), "calls tirx.call_pure_extern"),
    "packed": (lambda x, y, i: tirx.Evaluate(T.call_packed("ffi.SystemLib")), "calls tirx.tvm_call_packed"),
    "llvm": (lambda x, y, i: T.call_llvm_pure_intrin("int32", "llvm.ctpop.i32", x[i]), "calls tirx.call_llvm_pure"),
    "pointer": (lambda x, y, i: tirx.Evaluate(T.address_of(x[i])), "calls tirx.address_of"),
    "division by memory": (lambda x, y, i: tirx.floordiv(x[i], x[i]), "divides"),
    "modulo by memory": (lambda x, y, i: tirx.truncmod(x[i], x[i]), "divides"),
    "division by an index": (lambda x, y, i: tirx.floordiv(x[i], i), "divides"),
    "division by -1": (lambda x, y, i: tirx.truncdiv(x[i], i - 4), "divides"),
    "division that is not guarded": (
        lambda x, y, i: tirx.Select(i > 0, tirx.floordiv(x[i], i), x[i]),  # computes both
        "divides",
    ),
    "shift by memory": (lambda x, y, i: x[i] << x[i], "shifts"),
    "load behind the end": (lambda x, y, i: x[i + 1], "out of its range"),
    "load before the start": (lambda x, y, i: x[i - 1], "out of its range"),
    "store behind the end": (lambda x, y, i: tirx.BufferStore(y, x[i], [i + 1]), "out of its range"),
    "endless": (lambda x, y, i: tirx.While(tirx.IntImm("bool", 1), tirx.Evaluate(0)), "holds a While"),
    "pragma": (lambda x, y, i: tirx.AttrStmt(y, "pragma_import_llvm", 0, tirx.Evaluate(0)), "holds a AttrStmt"),
}

SAFE = {
    "load at an index in memory": lambda x, y, i: x[x[i]],
    "store at an index in memory": lambda x, y, i: tirx.BufferStore(y, x[i], [x[i]]),  # guarded where it is run
    "guard in memory": lambda x, y, i: T.if_then_else(x[0] > 0, x[i + x[0]], x[i]),
    "guarded load": lambda x, y, i: T.if_then_else(i < 7, x[i + 1], x[i]),
    "guarded from both ends": lambda x, y, i: T.if_then_else(tirx.Or(i < 1, i > 6), 0, x[i - 1] + x[i + 1]),
    "not equal": lambda x, y, i: T.if_then_else(i == 7, x[i], x[i + 1]),
    "guarded division": lambda x, y, i: T.if_then_else(i > 0, tirx.floordiv(x[i], i), x[i]),
    "division by a number": lambda x, y, i: tirx.floormod(x[i], 3),
    "shift by a number": lambda x, y, i: x[i] >> 3,
    "indices": lambda x, y, i: x[tirx.floordiv(i, 4) * 4 + 3 - tirx.floormod(i, 4)],
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_may_trap_or_reach_elsewhere_is_refused(name: str) -> None:
    statement, says = REFUSED[name]
    assert says in str(may_run_at_compile_time(one_statement(statement)))


@pytest.mark.parametrize("name", list(SAFE))
def test_what_is_proved_safe_may_run(name: str) -> None:
    assert may_run_at_compile_time(one_statement(SAFE[name])) is None


def test_floats_divide_by_zero_without_a_trap() -> None:
    assert may_run_at_compile_time(one_statement(lambda x, y, i: x[i] / x[i], "float32")) is None


def test_what_would_not_end_soon_is_refused() -> None:
    func = one_statement(lambda x, y, i: tirx.For(tirx.Var("j", "int64"), 0, 1 << 40, 0, tirx.Evaluate(0)))
    assert "steps" in str(may_run_at_compile_time(func))


def call(make: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> str | None:
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    return call_may_run_at_compile_time(relax.BlockBuilder().normalize(make(*params)), tvm.IRModule())


@pytest.mark.parametrize(
    "make",
    [
        lambda x: R.permute_dims(x, [3, 2, 1, 0]),
        lambda x: R.layout_transform(x, lambda o, i, h, w: (o // 16, i // 2, h, w, i % 2, o % 16), pad_value=0.0),
        lambda x: R.nn.pad(x, [1] * 8),
        lambda x: R.concat([x, x], 1),
        lambda x: R.strided_slice(x, [0], [1], [30], [2]),
        lambda x: R.sum(x, [1]),
        lambda x: R.nn.softmax(x),
        lambda x: R.nn.conv2d(x, x),
        lambda x: R.astype(x, "float16"),
        lambda x: R.broadcast_to(x, (2, 30, 3, 3, 3)),
        lambda x: R.multiply(x, x),
    ],
)
def test_what_is_done_to_weights_may_run(make: Callable[..., Any]) -> None:
    assert call(make, (30, 3, 3, 3)) is None


def test_scatters_may_run() -> None:
    """Slices that are assigned to, as exporters write them: ConViT worked its positions out in every run."""
    at = relax.Var("at", relax.TensorType((4, 6, 1), "int64"))
    assert call(lambda x, u: R.scatter_elements(x, at, u, axis=2), (4, 6, 3), (4, 6, 1)) is None


def test_relax_calls_stand_for_what_they_become() -> None:
    assert "divides" in str(call(R.floor_divide, (4,), (4,), dtype="int32"))
    assert "calls" in str(call(R.sort, (4,)))
    assert "calls relax.call_dps_packed" in str(
        call(lambda x: R.call_dps_packed("system", x, relax.TensorType((4,), "float32")), (4,))
    )


def test_every_function_of_a_network_may_run() -> None:
    mod = relax.transform.LegalizeOps()(resnet50(image=32, width=16, blocks=(1, 1, 1, 1)))
    functions = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(functions) > 10
    assert [may_run_at_compile_time(f) for f in functions] == [None] * len(functions)
