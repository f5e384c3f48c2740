"""The running example of the layout planning proposal (tlc-pack/relax#277) and its neighbours, end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import assert_same_plan, assert_untouched, constant, ops, program, transforms
from tvm import relax, tirx
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.graph.legalize import legalize

NCHW4C = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4o4i"}


def unpack(x: Any) -> Any:
    return R.layout_transform(x, lambda n, C, h, w, c: (n, C * 4 + c, h, w))


def pack(x: Any) -> Any:
    return R.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4))


def conv_bias_conv(builder: Any, x: Any) -> Any:
    """conv (NCHW4c) - to NCHW - add bias - to NCHW4c - conv."""
    y = builder.emit(R.nn.conv2d(x, constant(8, 8, 3, 3, 4, 4), padding=1, **NCHW4C))
    y = builder.emit(R.add(builder.emit(unpack(y)), constant(1, 32, 1, 1, seed=1)))
    return R.nn.conv2d(builder.emit(pack(y)), constant(8, 8, 3, 3, 4, 4, seed=2), padding=1, **NCHW4C)


def test_bias_between_two_packed_convolutions() -> None:
    mod = program(conv_bias_conv, (1, 8, 8, 8, 4))
    plan = eqsat_layout.plan(mod)
    assert transforms(mod) == 2
    assert ops(plan.module) == ["nn.conv2d", "add", "nn.conv2d"]
    bias = plan.module["main"].body.blocks[0].bindings[1].value.args[1].value.numpy()
    np.testing.assert_array_equal(bias, constant(1, 32, 1, 1, seed=1).value.numpy().reshape(1, 8, 1, 1, 4))
    assert plan.transforms == ()
    assert len(plan.input_transforms) == 2
    assert plan.is_optimal
    assert plan.cost < plan.input_cost
    assert_same_plan(mod, plan.module)


def test_the_same_with_frozen_primfuncs() -> None:
    """The convolutions as the proposal has them: call_tir of PrimFuncs that carry the attribute."""
    mod = legalize(program(conv_bias_conv, (1, 8, 8, 8, 4)))
    for global_var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc) and "conv" in global_var.name_hint:
            mod.update_func(global_var, func.with_attr("eqsat_layout.frozen", True))
    optimized = eqsat_layout.optimize(mod)
    assert [name.partition("_")[0].rstrip("0123456789") for name in ops(optimized)] == ["conv2d", "add", "conv2d"]
    assert_same_plan(mod, optimized)


def test_the_same_for_nhwc() -> None:
    def body(builder: Any, x: Any) -> Any:
        nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        y = builder.emit(R.nn.conv2d(x, constant(32, 3, 3, 32), padding=1, **nhwc))
        y = builder.emit(R.permute_dims(y, [0, 3, 1, 2]))
        y = builder.emit(R.add(y, constant(32, 1, 1)))
        y = builder.emit(R.permute_dims(y, [0, 2, 3, 1]))
        return R.nn.conv2d(y, constant(32, 3, 3, 32, seed=1), padding=1, **nhwc)

    mod = program(body, (1, 8, 8, 32))
    optimized = eqsat_layout.optimize(mod, candidates=False)
    assert ops(optimized) == ["nn.conv2d", "add", "nn.conv2d"]
    assert_same_plan(mod, optimized)


def test_sum_over_an_axis_of_nchw_becomes_one_over_nhwc() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.permute_dims(x, [0, 3, 1, 2]))
        return R.sum(y, axis=[2])  # over H of NCHW

    mod = program(body, (2, 8, 6, 32))
    plan = eqsat_layout.plan(mod)
    calls = [b.value for b in plan.module["main"].body.blocks[0].bindings]
    (total,) = [c for c in calls if c.op.name == "relax.sum"]
    assert [int(a) for a in total.attrs.axis] == [1]  # over H of NHWC
    assert [int(e) for e in total.ty.shape.values] == [2, 6, 32]
    assert ops(plan.module) == ["sum", "permute_dims"]  # of the smaller tensor
    assert_same_plan(mod, plan.module)


def residual(builder: Any, x: Any) -> Any:
    a = builder.emit(R.nn.relu(builder.emit(R.nn.conv2d(x, constant(32, 32, 3, 3), padding=1), "conv_a")))
    b = builder.emit(R.nn.conv2d(x, constant(32, 32, 1, 1, seed=1)), "conv_b")
    y = builder.emit(R.nn.relu(builder.emit(R.add(a, b))))
    return builder.emit(R.nn.conv2d(y, constant(32, 32, 3, 3, seed=2), padding=1), "conv_c")


@pytest.mark.parametrize("after", [["NHWC", "OHWI"], ["NCHW16c", "OIHW16o16i"]])
def test_a_residual_join_converts_one_side_once(after: list[str]) -> None:
    layouts = {"conv_a": ["NHWC", "OHWI"], "conv_b": ["NCHW16c", "OIHW16o16i"], "conv_c": after}
    mod = program(residual, (1, 32, 8, 8), frozen=layouts)
    plan = eqsat_layout.plan(mod)
    assert transforms(plan.module) == 4  # x twice, one branch once, the result once
    assert sum(t.tensor.startswith("x0") for t in plan.transforms) == 2
    assert len(plan.input_transforms) == 6
    assert plan.is_optimal
    assert_same_plan(mod, plan.module)


def test_the_larger_side_of_a_join_stays() -> None:
    """A broadcast join: the side that is a hundred times smaller is the one that is converted."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        wide = builder.emit(R.permute_dims(x, [0, 3, 1, 2]))  # arrives as NHWC
        return R.permute_dims(builder.emit(R.add(wide, y)), [0, 2, 3, 1])

    mod = program(body, (1, 64, 64, 32), (1, 32, 64, 1))
    plan = eqsat_layout.plan(mod)
    assert len(plan.transforms) == 1
    assert plan.transforms[0].shape == (1, 32, 64, 1)
    assert_same_plan(mod, plan.module)


def test_optimising_twice_changes_nothing_more() -> None:
    layouts = {"conv_a": ["NHWC", "OHWI"], "conv_b": ["NCHW16c", "OIHW16o16i"], "conv_c": ["NHWC", "OHWI"]}
    once = eqsat_layout.optimize(program(residual, (1, 32, 8, 8), frozen=layouts))
    plan = eqsat_layout.plan(once)
    assert not plan.changed
    assert_untouched(once, plan.module)
    assert plan.notes == ()


def test_a_constant_used_in_one_layout_is_laid_out_once() -> None:
    def body(builder: Any, x: Any) -> Any:
        scale = constant(1, 32, 1, 1)
        y = builder.emit(R.permute_dims(x, [0, 3, 1, 2]))
        y = builder.emit(R.add(builder.emit(R.multiply(y, scale)), scale))
        return R.permute_dims(y, [0, 2, 3, 1])

    mod = program(body, (1, 8, 8, 32))
    optimized = eqsat_layout.optimize(mod)
    bindings = optimized["main"].body.blocks[0].bindings
    assert ops(optimized) == ["multiply", "add"]
    assert bindings[0].value.args[1].same_as(bindings[1].value.args[1])
    assert_same_plan(mod, optimized)


def test_transforms_of_constants_are_folded() -> None:
    def body(builder: Any, x: Any) -> Any:
        weight = builder.emit(R.permute_dims(constant(16, 32), [1, 0]))
        weight = builder.emit(R.reshape(builder.emit(R.reshape(weight, (8, 4, 16))), (32, 16)))
        return R.matmul(x, weight)

    mod = program(body, (4, 32))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["matmul"]
    assert_same_plan(mod, optimized)


def test_transforms_cancel_and_compose() -> None:
    def body(builder: Any, x: Any) -> tuple[Any, ...]:
        y = builder.emit(unpack(builder.emit(pack(x))))  # nothing
        z = builder.emit(R.permute_dims(builder.emit(R.permute_dims(x, [1, 2, 3, 0])), [1, 2, 3, 0]))  # one
        return R.nn.relu(y), R.nn.relu(x), R.exp(z)

    mod = program(body, (2, 8, 4, 6))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized).count("nn.relu") == 1
    assert transforms(optimized) == 1
    assert_same_plan(mod, optimized)


def test_a_program_without_layouts_is_untouched() -> None:
    mod = program(lambda b, x: R.nn.relu(b.emit(R.matmul(x, constant(8, 8)))), (4, 8))
    plan = eqsat_layout.plan(mod)
    assert not plan.changed
    assert plan.module is mod


def test_the_input_is_not_mutated() -> None:
    mod = program(conv_bias_conv, (1, 8, 8, 8, 4))
    before = mod.script(show_meta=True)
    optimized = eqsat_layout.optimize(mod)
    assert optimized is not mod
    assert mod.script(show_meta=True) == before


def test_as_a_pass_in_a_sequential() -> None:
    import tvm

    mod = program(conv_bias_conv, (1, 8, 8, 8, 4))
    passes = tvm.ir.transform.Sequential([relax.transform.CanonicalizeBindings(), eqsat_layout.OptimizeLayout()])
    assert transforms(passes(mod)) == 0
