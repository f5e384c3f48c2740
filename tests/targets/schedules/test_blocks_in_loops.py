"""Stages inside of loops are scheduled as stages of functions are, and see what they saw."""
# mypy: disable-error-code="valid-type, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2
from tvm import relax, te, tirx
from tvm.script import tirx as T

from eqsat_layout.readers.layers.repeated_steps import Step, loop_over_steps
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.blocks_in_loops import has_blocks_inside
from eqsat_layout.tir.structural import nodes_of

STEPS, ROWS, WIDE, COLUMNS = 5, 3, 40, 60


def recurrence(*, counts: bool, is_open: bool = False) -> Any:
    """Of each step: the state times weights, plus what is given, and plus its number if it ``counts``. Where it
    ``is_open``, rows and steps are symbols, and what is made looks at how many steps there are."""
    rows, steps = (
        tirx.Var(name, "int64") if is_open else number for name, number in (("rows", ROWS), ("steps", STEPS))
    )
    shape = (rows, WIDE)
    given, state = (te.placeholder(shape, "float32", name) for name in ("given", "state"))
    weights, number = te.placeholder((WIDE, WIDE), "float32", "weights"), te.placeholder((), "int64", "number")
    k = te.reduce_axis((0, WIDE))
    products = te.compute(shape, lambda i, j: te.sum(state[i, k] * weights[k, j], axis=k), "products")

    def element(i: Any, j: Any) -> Any:
        value = products[i, j] + given[i, j]
        value = tirx.Select(steps > 0, value, tirx.const(0, "float32")) if is_open else value
        return value + number[()].astype("float32") if counts else value

    after = te.compute(shape, element, "after")
    made = te.compute(shape, lambda i, j: after[i, j], "made")
    count = steps if is_open else tirx.IntImm("int64", STEPS)
    return loop_over_steps(Step(given, [weights], [(state, after)], made, number), count, is_reverse=True)


@T.prim_func(private=True, s_tir=True)
def adding(
    x: T.Buffer((STEPS, WIDE), "float32"),
    w: T.Buffer((WIDE, COLUMNS), "float32"),
    sums: T.Buffer((COLUMNS,), "float32"),
):
    """What a matrix makes of neighbouring rows, added to what is there."""
    with T.sblock("all"):
        T.reads(x[0:STEPS, 0:WIDE], w[0:WIDE, 0:COLUMNS], sums[0:COLUMNS])
        T.writes(sums[0:COLUMNS])
        products = T.sblock_alloc_buffer((COLUMNS,), "float32")
        for step in range(STEPS - 1):
            with T.sblock("step"):
                at = T.axis.opaque(STEPS - 1, step)
                T.reads(x[0:STEPS, 0:WIDE], w[0:WIDE, 0:COLUMNS], sums[0:COLUMNS])
                T.writes(sums[0:COLUMNS], products[0:COLUMNS])
                for i, k in T.grid(COLUMNS, WIDE):
                    with T.sblock("products"):
                        v, r = T.axis.remap("SR", [i, k])
                        with T.init():
                            products[v] = T.float32(0)
                        products[v] = products[v] + x[at, r] * w[r, v]
                for i in range(COLUMNS):
                    with T.sblock("sums"):
                        v = T.axis.spatial(COLUMNS, i)
                        sums[v] = sums[v] + products[v]


@T.prim_func(private=True, s_tir=True)
def pairing(x: T.Buffer((STEPS, WIDE), "float32"), pairs: T.Buffer((STEPS - 1, WIDE), "float32")):
    """Products of neighbouring rows: two slices of one tensor."""
    with T.sblock("all"):
        T.reads(x[0:STEPS, 0:WIDE])
        T.writes(pairs[0 : STEPS - 1, 0:WIDE])
        for step in range(STEPS - 1):
            with T.sblock("step"):
                at = T.axis.opaque(STEPS - 1, step)
                T.reads(x[0:STEPS, 0:WIDE])
                T.writes(pairs[0 : STEPS - 1, 0:WIDE])
                for i in range(WIDE):
                    with T.sblock("pairs"):
                        v = T.axis.spatial(WIDE, i)
                        pairs[at, v] = x[at, v] * x[at + 1, v]


@T.prim_func(private=True, s_tir=True)
def growing(x: T.Buffer((STEPS, WIDE), "float32"), sums: T.Buffer((STEPS, STEPS), "float32")):
    """As many rows in each step as there were steps."""
    with T.sblock("all"):
        T.reads(x[0:STEPS, 0:WIDE], sums[0:STEPS, 0:STEPS])
        T.writes(sums[0:STEPS, 0:STEPS])
        for step in range(STEPS):
            with T.sblock("step"):
                at = T.axis.opaque(STEPS, step)
                T.reads(x[0:STEPS, 0:WIDE])
                T.writes(sums[0:STEPS, 0:STEPS])
                for i, k in T.grid(at, WIDE):
                    with T.sblock("sums"):
                        v, r = T.axis.spatial(at, i), T.axis.reduce(WIDE, k)
                        with T.init():
                            sums[at, v] = T.float32(0)
                        sums[at, v] = sums[at, v] + x[v, r]


def done(func: Any, *arrays: Any) -> None:
    """``func`` scheduled, built and called."""
    mod = tvm.IRModule({"main": schedule_primfunc(func, AVX2).with_attr("global_symbol", "main")})
    built = tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        array[...] = tensor.numpy()


@pytest.mark.parametrize(("counts", "is_open"), [(False, False), (True, False), (False, True)])
def test_a_step_sees_the_state_of_the_one_before(counts: bool, is_open: bool) -> None:
    """States are read by a whole product before any of them is new. An open number of steps in a stage ended in
    "undefined variable"."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (STEPS, ROWS, WIDE)).astype("float32")
    weights = (rng.integers(-1, 2, (WIDE, WIDE)) * (rng.random((WIDE, WIDE)) < 0.1)).astype("float32")
    first, made, last = x[0].copy(), np.zeros_like(x), np.zeros_like(x[0])
    done(recurrence(counts=counts, is_open=is_open), x, weights, first, made, last)
    state = first
    for step in reversed(range(STEPS)):
        state = state @ weights + x[step] + (step if counts else 0)
        np.testing.assert_array_equal(made[step], state)
    np.testing.assert_array_equal(last, state)


def test_what_is_added_to_is_added_to_once() -> None:
    """Columns in tiles of which the last overlaps the one before would count some of them twice."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, shape).astype("float32") for shape in ((STEPS, WIDE), (WIDE, COLUMNS)))
    sums = np.ones(COLUMNS, "float32")
    done(adding, x, w, sums)
    np.testing.assert_array_equal(sums, 1 + (x[:-1] @ w).sum(0))


def test_two_slices_of_a_tensor_are_two() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (STEPS, WIDE)).astype("float32")
    pairs = np.zeros((STEPS - 1, WIDE), "float32")
    done(pairing, x, pairs)
    np.testing.assert_array_equal(pairs, x[:-1] * x[1:])


def test_loops_that_grow_with_the_steps_stay_as_they_are() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (STEPS, WIDE)).astype("float32")
    sums = np.zeros((STEPS, STEPS), "float32")
    done(growing, x, sums)
    np.testing.assert_array_equal(sums, np.tril(np.broadcast_to(x.sum(1), (STEPS, STEPS)), -1))


def test_elements_with_blocks_of_their_own_are_no_steps() -> None:
    """Each mean of an adaptive pool is a block around a sum: their loops have no order."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 7, 7), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.adaptive_avg_pool2d(x, (3, 3))))
    (pool,) = (
        func
        for func in relax.transform.LegalizeOps()(builder.get()).functions.values()
        if isinstance(func, tirx.PrimFunc)
    )
    assert not has_blocks_inside(pool)
    assert has_blocks_inside(recurrence(counts=False))


def test_a_product_in_a_step_has_register_tiles() -> None:
    """It was a loop over rows, columns and terms: an LSTM of 16 rows took twice as long as ONNX Runtime's."""
    scheduled = schedule_primfunc(recurrence(counts=False), AVX2)
    loops = nodes_of(scheduled.body, tirx.For)
    assert any(loop.kind == tirx.ForKind.VECTORIZED and int(loop.extent) % 8 == 0 for loop in loops)
    assert any(str(buffer.scope()) == "local" for buffer in _allocated(scheduled.body))


def _allocated(body: Any) -> list[Any]:
    return [buffer for block in nodes_of(body, tvm.s_tir.SBlock) for buffer in block.alloc_buffers]
