"""Scopes all the way: planned, emitted, compiled and run for a target with two memories that this folder defines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from compare import stock_results
from programs import constant, ops, program
from targets.grid_target import GRID, GridTarget, make_grid
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout.errors import TargetError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.registry import kinds, register, target, unregister

nn = op.nn


@pytest.fixture(autouse=True)
def grid() -> Iterator[GridTarget]:
    register("grid", make_grid)
    own = target("grid")
    assert isinstance(own, GridTarget)
    yield own
    unregister("grid")


def conv(builder: Any, x: Any, seed: int = 0, channels: int = 8) -> Any:
    weight = constant(channels, int(x.ty.shape.values[1]), 3, 3, seed=seed)
    return builder.emit(nn.conv2d(x, weight, padding=1), f"conv{seed}")


def check(mod: Any, **options: Any) -> Any:
    """The plan; what is compiled from it for the grid gives what stock TVM makes of the input."""
    plan = eqsat_layout.plan(mod, "grid", validate=True, **options)
    relax.analysis.well_formed(plan.module)
    assert not [note for note in plan.notes if "validation" in note]
    function = mod["main"]
    inputs = [
        np.random.default_rng(i).standard_normal([int(e) for e in p.ty.shape.values]).astype(str(p.ty.dtype))
        for i, p in enumerate(function.params)
    ]
    expected = stock_results(mod, *inputs)
    for executable in (lower(plan.module, "grid"), eqsat_layout.compile(mod, "grid", **options)):
        for a, b in zip(expected, run(executable, inputs), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    return plan


def run(executable: Any, inputs: list[Any]) -> list[Any]:
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs))
    return [result.numpy()] if hasattr(result, "numpy") else [r.numpy() for r in result]


def copies(plan: Any) -> int:
    """Kernels of the plan that copy from one memory or layout to another."""
    return sum("rewrite" in name or name in ("permute_dims", "layout_transform") for name in ops(plan.module))


def scopes(plan: Any) -> list[str]:
    """The memory of every tensor that a dataflow block of the plan binds."""
    found = []
    for block in plan.module["main"].body.blocks:
        for binding in block.bindings:
            ty = binding.var.ty
            if isinstance(ty, relax.TensorType):
                found.append(GLOBAL if ty.vdevice is None else str(ty.vdevice.memory_scope))
    return found


def test_the_registry_knows_it_only_while_it_is_registered() -> None:
    assert "grid" in kinds()
    assert target({"kind": "grid"}).kind == "grid"
    unregister("grid")
    with pytest.raises(TargetError, match="unknown target 'grid'"):
        target("grid")


def test_what_convolutions_read_goes_into_the_grid_once_and_comes_out_once() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x)))
        return builder.emit(nn.relu(conv(builder, y, 1)))

    plan = check(program(body, (1, 8, 4, 4)))
    assert plan.is_optimal
    assert copies(plan) == 1  # into the grid; out of it goes what the last relu writes
    assert set(scopes(plan)) == {GLOBAL, GRID}
    assert scopes(plan)[-1] == GLOBAL


def test_three_readers_share_one_copy() -> None:
    def body(builder: Any, x: Any) -> Any:
        a, b, c = (conv(builder, x, seed) for seed in range(3))
        return builder.emit(op.add(builder.emit(op.add(a, b)), c))

    plan = check(program(body, (1, 8, 4, 4)))
    assert plan.is_optimal
    assert copies(plan) == 1


def test_two_readers_that_differ_get_one_copy_between_them() -> None:
    """The sum reads what the convolution reads: from where it is cheaper, and no third copy is made."""

    def body(builder: Any, x: Any) -> Any:
        y = conv(builder, builder.emit(nn.relu(x)))
        return builder.emit(op.add(y, builder.emit(op.sum(x, axis=[2, 3], keepdims=True))))

    plan = check(program(body, (1, 8, 4, 4)))
    assert plan.is_optimal
    assert copies(plan) <= 1


def test_operands_of_one_kernel_lie_in_different_memories() -> None:
    def body(builder: Any, x: Any, bias: Any) -> Any:
        return conv(builder, builder.emit(op.add(conv(builder, x), bias)), 1)

    plan = check(program(body, (1, 8, 4, 4), (1, 8, 1, 1)))
    kernels = [f for f in plan.module.functions.values() if isinstance(f, tirx.PrimFunc)]
    mixed = [{str(p.ty.storage_scope) or GLOBAL for p in f.params} for f in kernels]
    assert {GLOBAL, GRID} in mixed


def test_what_the_memory_does_not_hold_stays_outside() -> None:
    plan = check(program(lambda builder, x: conv(builder, x), (1, 8, 32, 32)))
    assert set(scopes(plan)) == {GLOBAL}


def test_symbolic_sizes_stay_outside() -> None:
    n = tirx.Var("n", "int64")
    plan = eqsat_layout.plan(program(lambda builder, x: conv(builder, x), (n, 8, 4, 4)), "grid")
    assert set(scopes(plan)) == {GLOBAL}


def test_a_gather_does_not_read_the_grid_and_says_so() -> None:
    indices = relax.const(np.array([3, 1, 2], "int64"))

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.take(conv(builder, x), indices, axis=2))

    plan = check(program(body, (1, 8, 4, 4)))
    for func in (f for v, f in plan.module.functions_items() if "take" in v.name_hint):
        assert all(str(p.ty.storage_scope) != GRID for p in func.params[:1])


def test_parts_of_a_tuple_lie_where_they_are_wanted() -> None:
    def body(builder: Any, x: Any) -> Any:
        parts = builder.emit(op.split(x, 2, axis=1))
        first, second = (builder.emit(relax.TupleGetItem(parts, i)) for i in range(2))
        return builder.emit(op.add(conv(builder, first), second))

    plan = check(program(body, (1, 16, 4, 4)))
    assert plan.is_optimal


def test_a_concat_reads_and_writes_any_memory() -> None:
    def body(builder: Any, x: Any, y: Any) -> Any:
        return conv(builder, builder.emit(op.concat([conv(builder, x), y], axis=1)), 1)

    assert check(program(body, (1, 8, 4, 4), (1, 8, 4, 4))).is_optimal


def test_a_plan_read_again_is_understood_and_stays() -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.relu(conv(builder, builder.emit(nn.relu(conv(builder, x))), 1)))

    mod = program(body, (1, 8, 4, 4))
    first = check(mod)
    again = eqsat_layout.plan(first.module, "grid", candidates=False)
    assert again.input_cost == pytest.approx(first.cost)
    assert again.cost == pytest.approx(first.cost)


def test_layouts_may_name_a_memory() -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.relu(builder.emit(nn.conv2d(x, constant(8, 8, 3, 3), padding=1), "c")))

    frozen = {"c": [f"NCHW|4c@{GRID}", "OIHW4i4o"]}
    plan = check(program(body, (1, 8, 4, 4), frozen=frozen))
    assert GRID in scopes(plan)
    default = check(program(body, (1, 8, 4, 4), frozen={"c": [f"NCHW4c@{GRID}", "OIHW4i4o"]}))
    assert GRID in scopes(default)


@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        ([f"NC|HW|4c@{GRID}", "OIHW4i4o"], ["operand 0", "3 groups", f"{GRID} memory of target 'grid'", "it holds 2"]),
        (["NCHW|4c", "OIHW4i4o"], ["operand 0", "2 groups", "global memory of target 'grid'", "it holds 1"]),
        ([f"|NCHW4c@{GRID}", "OIHW4i4o"], ["malformed layout name"]),
        (["NCHW4c@global.moon", "OIHW4i4o"], ["target 'grid' has no memory of scope 'global.moon'"]),
        (["NCHW4c@", "OIHW4i4o"], ["no memory scope after '@'"]),
        ([f"NCHW|4c@{GRID}", "OIHW4i4o", f"NCHW|8c@{GRID}"], []),
    ],
)
def test_layouts_that_no_memory_holds_are_named(layouts: list[str], said: list[str]) -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.relu(builder.emit(nn.conv2d(x, constant(8, 8, 3, 3), padding=1), "c")))

    mod = program(body, (1, 8, 4, 4), frozen={"c": layouts})
    if not said:
        assert check(mod)
        return
    with pytest.raises(eqsat_layout.EqsatError) as caught:
        eqsat_layout.plan(mod, "grid")
    for part in said:
        assert part in str(caught.value)


def test_extents_beyond_the_memory_are_named() -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.conv2d(x, constant(8, 8, 3, 3), padding=1), "c")

    mod = program(body, (1, 8, 16, 16), frozen={"c": [f"NCHW|4c@{GRID}", "OIHW4i4o"]})
    with pytest.raises(TargetError, match="groups of 512 x 4 elements, but it holds 64 x 64"):
        eqsat_layout.plan(mod, "grid")


def test_a_users_flow_goes_through_every_memory() -> None:
    asked: list[Any] = []

    def callback(operands: Any, results: Any, direction: str, index: int, index_map: Any) -> Any:
        asked.append(index_map)
        return [([index_map], [index_map])]

    def body(builder: Any, x: Any) -> Any:
        return conv(builder, builder.emit(nn.relu(conv(builder, x))), 1)

    plan = check(program(body, (1, 8, 4, 4)), flows={"relax.nn.relu": callback})
    assert asked
    assert copies(plan) <= 2
    assert GRID in scopes(plan)


def test_why_not_tells_of_memories() -> None:
    indices = relax.const(np.array([3, 1, 2], "int64"))

    def body(builder: Any, x: Any) -> Any:
        return conv(builder, builder.emit(op.take(builder.emit(nn.relu(x)), indices, axis=2)))

    plan = eqsat_layout.plan(program(body, (1, 8, 4, 4)), "grid")
    assert plan.why_not("conv2d") is not None
    assert any("not known before" in refusal.reason or "memory" in refusal.reason for refusal in plan.why_not())


def test_values_that_come_placed_are_understood() -> None:
    device = relax.VDevice("llvm", 0, GRID)
    x = relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            there = builder.emit(op.to_vdevice(x, device))
            y = builder.emit(nn.relu(there))
            back = builder.emit(op.to_vdevice(y, relax.VDevice("llvm", 0, GLOBAL)))
            output = builder.emit_output(conv(builder, back))
        builder.emit_func_output(output)
    mod = builder.get()
    mod.update_global_info("vdevice", [device, relax.VDevice("llvm", 0, GLOBAL)])
    plan = eqsat_layout.plan(mod, "grid")
    assert plan.changed
    assert "to_vdevice" not in ops(plan.module)
    assert copies(plan) <= 1
