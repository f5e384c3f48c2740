"""Vectors of what TVM has for scalars only."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.passes.let_vectors import round_in_vectors, serialise_let_vectors, serialise_scalar_functions
from eqsat_layout.readers.layers.window_maxima import Windows, window_maxima
from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.schedules.exact_values import hidden_node
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.structural import nodes_of


@pytest.mark.parametrize("size", [3, 1])
def test_each_lane_of_a_vector_has_its_own_choice(size: int) -> None:
    """All lanes got what the last one chose: TVM takes a choice apart at the statement that names it. Windows of one
    element without padding choose nothing, but ask whether a number is NaN, which TVM does one by one too."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 1, 1, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = window_maxima(builder, x, Windows([1, size], [1, 1], [0, size // 2], [1, 1], [1, 8]))
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    row = np.array([5, 1, 2, 3, 9, 9, 0, 4], "float32")
    session = eqsat_layout.Session(builder.get())
    values, places = session.run(None, {"x": row.reshape(1, 1, 1, 8)})
    padded = np.pad(row, size // 2, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    np.testing.assert_array_equal(values.reshape(-1), windows.max(1))
    np.testing.assert_array_equal(places.reshape(-1), windows.argmax(1) + np.arange(8) - size // 2)


@pytest.mark.parametrize("outer", ["nearbyint", "erf"])
def test_names_in_a_statement_that_is_taken_apart_are_met_once(outer: str) -> None:
    """TVM refused a kernel that rounds the sigmoid of a rounded value."""
    x = te.placeholder((8,), "float32", "x")

    def element(i: Any) -> Any:
        v, w = (tirx.Var(name, "float32") for name in "vw")
        inside = tirx.Let(w, tirx.Let(v, tirx.nearbyint(x[i]), v * v + v), w * w)
        return tirx.nearbyint(inside) if outer == "nearbyint" else tirx.erf(inside)

    sch = new_schedule(te.create_prim_func([x, te.compute((8,), element)]))
    (loop,) = sch.get_loops(stages_of(sch)[0].block)
    sch.vectorize(loop)
    kernel = sch.mod["main"].with_attr("global_symbol", "kernel")
    changed = serialise_let_vectors()(round_in_vectors()(sch.mod))["main"]
    kinds = {one.kind for one in nodes_of(changed.body, tirx.For)}
    assert kinds == {tirx.ForKind.VECTORIZED if outer == "nearbyint" else tirx.ForKind.SERIAL}
    given = np.linspace(-1.6, 1.6, 8, dtype="float32")
    result = tvm.runtime.tensor(np.zeros(8, "float32"))
    build_scheduled(tvm.IRModule({"kernel": kernel}), normalize_target())["kernel"](tvm.runtime.tensor(given), result)
    whole = (np.rint(given) ** 2 + np.rint(given)) ** 2
    expected = np.rint(whole) if outer == "nearbyint" else [math.erf(value) for value in whole]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sinh", "cosh", "exp"])
def test_functions_that_have_no_vectors_are_done_one_by_one(name: str) -> None:
    """TVM says that sinh and cosh are functions of vectors, and could not lower them: kernels lost their schedules."""
    data = np.random.default_rng(0).uniform(-2, 2, (4, 16)).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(getattr(relax.op, name)(x)))
    compiled = eqsat_layout.compile(builder.get())  # strict in tests
    got = relax.VirtualMachine(compiled, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
    np.testing.assert_allclose(got, getattr(np, name)(data), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("name", ["broadcast", "added", "product", "chosen"])
def test_bits_of_one_number_in_all_lanes(dtype: str, name: str) -> None:
    """TVM makes no vectors of one bfloat16, and converts no vectors of fewer bits: kernels lost their schedules."""
    rng = np.random.default_rng(0)
    shapes = {"product": ((4, 16), (16, 32))}.get(name, ((4, 1), (4, 16)))
    one, two = (rng.integers(-2, 3, shape).astype("float32") for shape in shapes)
    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, relax.TensorType(shape, dtype)) for n, shape in zip("xy", shapes, strict=True))
    op, emit = relax.op, builder.emit
    with builder.function("main", [x, y]):
        call, expected = {
            "broadcast": lambda: (op.broadcast_to(x, (4, 16)), np.broadcast_to(one, (4, 16))),
            "added": lambda: (op.add(x, y), one + two),
            "product": lambda: (op.matmul(x, y), one @ two),
            "chosen": lambda: (op.where(emit(op.greater(x, y)), x, y), np.maximum(one, two)),
        }[name]()
        builder.emit_func_output(emit(call))
    compiled = eqsat_layout.compile(builder.get())  # strict in tests
    given = (tvm.runtime.tensor(array.astype(getattr(ml_dtypes, dtype))) for array in (one, two))
    got = relax.VirtualMachine(compiled, tvm.cpu())["main"](*given).numpy()
    np.testing.assert_allclose(got.astype("float32"), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(("is_hidden", "kind"), [(True, tirx.ForKind.VECTORIZED), (False, tirx.ForKind.SERIAL)])
def test_hidden_arithmetic_is_done_in_vectors(is_hidden: bool, kind: Any) -> None:
    """It was taken for a function that has none, as sinh: the product of a number and whether it differs took nine
    times as long."""
    x = te.placeholder((32,), "float32", "x")
    made = te.compute((32,), lambda i: hidden_node(tirx.Mul(x[i], x[i])) if is_hidden else tirx.sinh(x[i]))
    sch = new_schedule(te.create_prim_func([x, made]))
    (loop,) = sch.get_loops(stages_of(sch)[0].block)
    sch.vectorize(loop)
    changed = serialise_scalar_functions()(sch.mod)["main"]
    assert [one.kind for one in nodes_of(changed.body, tirx.For)] == [kind]
