"""Constants of all kinds, results of all kinds, duplicates, dead code, and shapes at the edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from compare import assert_same_fast
from programs import assert_untouched, constant, ops, program, transforms
from tvm import relax
from tvm.relax import op

import eqsat_layout


def transposed(builder: Any, x: Any, *axes: int) -> Any:
    return builder.emit(op.permute_dims(x, list(axes) or None))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"])
def test_constants_and_tensors_of_every_type(dtype: str) -> None:
    """A split and shuffled permutation: one rewrite that is no transpose, also for bool."""

    def body(builder: Any, x: Any) -> Any:
        values = np.arange(48).reshape(6, 8) % 2 if dtype == "bool" else np.arange(48).reshape(6, 8)
        both = op.logical_or if dtype == "bool" else op.add
        y = builder.emit(both(transposed(builder, x), transposed(builder, relax.const(values, dtype))))
        y = builder.emit(op.reshape(y, (4, 2, 2, 3)))
        y = transposed(builder, y, 2, 1, 0, 3)
        y = transposed(builder, builder.emit(op.reshape(y, (4, 12))))
        return y, transposed(builder, transposed(builder, x))

    mod = program(body, (6, 8), dtype=dtype)
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) < transforms(mod)
    assert_same_fast(mod, optimized)


def test_a_scalar_constant_and_a_rank_0_tensor() -> None:
    def body(builder: Any, x: Any, s: Any) -> Any:
        y = builder.emit(op.multiply(transposed(builder, x), relax.const(2.0, "float32")))
        y = builder.emit(op.add(y, s))
        t = builder.emit(op.sum(y))
        t = builder.emit(op.permute_dims(t, []))
        return transposed(builder, y), t, builder.emit(op.reshape(s, (1, 1)))

    mod = program(body, (2, 3), ())
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    assert_same_fast(mod, optimized)


def test_a_shared_constant_in_two_layouts_and_as_a_result() -> None:
    shared = constant(4, 6)

    def body(builder: Any, x: Any, y: Any) -> Any:
        a = transposed(builder, builder.emit(op.add(transposed(builder, x), transposed(builder, shared))))
        b = builder.emit(op.add(y, transposed(builder, shared)))
        return a, b, builder.emit(shared), transposed(builder, transposed(builder, shared)), transposed(builder, shared)

    mod = program(body, (4, 6), (6, 4))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    assert_same_fast(mod, optimized)


def test_an_op_over_scalar_constants() -> None:
    """Folded by running it, on arrays of rank 0 (found by random programs)."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.add(constant(), constant(seed=1)))
        z = builder.emit(op.add(builder.emit(op.reshape(constant(seed=2), (1,))), constant(seed=3)))
        return builder.emit(op.add(builder.emit(op.add(x, y)), z))

    mod = program(body, (2, 3))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["add", "add"]
    assert_same_fast(mod, optimized)


def test_views_of_views_of_a_constant_that_do_not_compose() -> None:
    """(2, 3) to (3, 2) and back, transposed in between: each reshape cuts through the digits of the transpose."""

    def body(builder: Any, x: Any) -> Any:
        y = constant(6, 4)
        for _ in range(3):
            y = builder.emit(op.reshape(transposed(builder, y), (6, 4)))
        return op.add(x, y)

    mod = program(body, (6, 4))
    optimized = eqsat_layout.optimize(mod)
    assert set(ops(optimized)) <= {"add", "reshape"}
    assert_same_fast(mod, optimized)


def test_views_of_a_tensor_that_do_not_compose() -> None:
    """The same on a value: what can't be one rewrite stays several (found by random programs)."""

    def body(builder: Any, x: Any) -> Any:
        y = x
        for _ in range(3):
            y = builder.emit(op.reshape(transposed(builder, y), (6, 4)))
        return transposed(builder, transposed(builder, y)), op.exp(x)

    mod = program(body, (6, 4))
    optimized = eqsat_layout.optimize(mod)
    assert len([name for name in ops(optimized) if name != "reshape"]) <= 4  # three rewrites at most, and exp
    assert_same_fast(mod, optimized)


def test_results_that_are_parameters_and_results_given_twice() -> None:
    def body(builder: Any, x: Any, y: Any) -> Any:
        same = transposed(builder, transposed(builder, x))
        z = builder.emit(op.add(same, y))
        return same, z, x, z, transposed(builder, transposed(builder, y))

    mod = program(body, (3, 4), (3, 4))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    assert_same_fast(mod, optimized)


def test_duplicates_are_computed_once_and_dead_code_not_at_all() -> None:
    def body(builder: Any, x: Any) -> Any:
        a = builder.emit(op.exp(transposed(builder, x)))
        b = transposed(builder, builder.emit(op.exp(x)))
        builder.emit(op.nn.softmax(a))
        c = builder.emit(op.sum(x, axis=[0], keepdims=True))
        d = builder.emit(op.sum(x, axis=[0], keepdims=True))
        e = builder.emit(op.sum(x, axis=[0]))
        return builder.emit(op.add(builder.emit(op.add(a, b)), transposed(builder, builder.emit(op.add(c, d))))), e

    mod = program(body, (3, 4))
    optimized = eqsat_layout.optimize(mod)
    names = ops(optimized)
    assert "nn.softmax" not in names
    assert names.count("sum") == 2  # one keeps the axis
    assert_same_fast(mod, optimized)


@pytest.mark.parametrize("shape", [(0, 4, 6), (2, 0, 6), (0, 0, 0)])
def test_extents_of_zero(shape: tuple[int, ...]) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(transposed(builder, x, 2, 0, 1)))
        y = builder.emit(op.add(y, relax.const(1.0, "float32")))
        z = transposed(builder, y, 1, 2, 0)
        return z, builder.emit(op.flatten(z)), builder.emit(op.sum(z, axis=[1]))

    mod = program(body, shape)
    optimized = eqsat_layout.optimize(mod)
    relax.analysis.well_formed(optimized)
    assert_same_fast(mod, optimized)


@pytest.mark.parametrize(
    "body",
    [
        lambda b, x: op.nn.relu(b.emit(op.permute_dims(x, [1, 0]))),
        lambda b, x: op.permute_dims(x, [1, 0]),
        lambda b, x: op.matmul(x, b.emit(op.permute_dims(x, [1, 0]))),
        lambda b, x: (b.emit(op.nn.relu(x)), b.emit(op.permute_dims(x, [1, 0]))),
        lambda b, x: op.concat((x, b.emit(op.exp(x))), axis=1),
        lambda b, x: op.split(x, 2, axis=0),
        lambda b, x: op.reshape(x, (8, 3)),
        lambda b, x: op.expand_dims(x, 0),
        lambda b, x: x,
    ],
)
def test_what_can_not_be_improved_is_untouched(body: Any) -> None:
    mod = program(body, (4, 6))
    plan = eqsat_layout.plan(mod, candidates=False)
    assert_untouched(mod, plan.module)
    assert not plan.changed


def test_a_changed_function_keeps_what_is_its_own() -> None:
    """Attributes, variables of values that stay, and PrimFuncs that it does not use."""

    def body(builder: Any, x: Any) -> Any:
        y = transposed(builder, transposed(builder, x))
        y = builder.emit(op.exp(y), "kept")
        return builder.emit(op.nn.relu(y), "also_kept")

    mod = program(body, (4, 6))
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("mine", {"a": 1}))
    optimized = eqsat_layout.optimize(mod)
    assert tvm_ffi.structural_equal(mod["main"].attrs, optimized["main"].attrs)
    assert [str(b.var.name) for b in optimized["main"].body.blocks[0].bindings] == ["kept", "also_kept", "gv"]
    assert_same_fast(mod, optimized)
