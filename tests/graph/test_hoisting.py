"""Layout rewrites inside of a called PrimFunc take part in the plan, and cancel against those of its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from programs import assert_same_plan, assert_untouched, constant, ops, program, transforms
from tir.test_hoist import conv4c, marked, pack, placeholder, unpack, wrapped_conv
from tvm import relax, te, tirx, topi
from tvm.relax import op as R

import eqsat_layout

SHAPE = (1, 8, 4, 6)


def call(builder: Any, func: Any, name: str, *operands: Any, shape: Any = SHAPE) -> Any:
    """``call_tir`` of ``func``; ``shape`` may be a list of shapes."""
    global_var = builder.add_func(func.without_attr("global_symbol"), name)
    shapes = shape if isinstance(shape, list) else [shape]
    types = [relax.TensorType(s, "float32") for s in shapes]
    return builder.emit(relax.call_tir(global_var, operands, types if types[1:] else types[0]))


def weight(seed: int = 0) -> Any:
    return constant(2, 2, 3, 3, 4, 4, seed=seed)


def twice(between: Callable[[Any], Any] | None, frozen: bool = False) -> Any:
    """The proposal's case: a convolution that packs and unpacks for itself, twice in a row."""
    func = wrapped_conv().with_attr("eqsat_layout.frozen", True) if frozen else wrapped_conv()

    def body(builder: Any, x: Any) -> Any:
        y = call(builder, func, "conv", x, weight())
        y = y if between is None else builder.emit(between(y))
        return call(builder, func, "conv", y, weight(1))

    return program(body, SHAPE)


def test_two_convolutions_in_a_row_pack_once() -> None:
    mod = twice(None)
    plan = eqsat_layout.plan(mod)
    assert ops(plan.module) == ["layout_transform", "conv_core", "conv_core", "layout_transform"]
    assert len(plan.transforms) == 2
    assert len(plan.input_transforms) == 4
    assert_same_plan(mod, plan.module)


def test_what_is_between_runs_packed() -> None:
    mod = twice(lambda y: R.add(y, constant(1, 8, 1, 1)))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["layout_transform", "conv_core", "add", "conv_core", "layout_transform"]
    assert_same_plan(mod, optimized)


def test_rewrites_leave_a_frozen_function_and_its_layouts_stay() -> None:
    mod = twice(R.nn.relu, frozen=True)
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["layout_transform", "conv_core", "nn.relu", "conv_core", "layout_transform"]
    assert optimized["conv_core"].attrs["eqsat_layout.frozen"]
    assert_same_plan(mod, optimized)
    assert_untouched(optimized, eqsat_layout.optimize(optimized))


def test_they_cancel_against_relax_ops() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = R.layout_transform(x, lambda n, C, h, w, c: (n, C * 4 + c, h, w))
        y = call(builder, wrapped_conv(), "conv", builder.emit(y), weight())
        return R.layout_transform(y, lambda n, c, h, w: (n, c // 4, h, w, c % 4))

    mod = program(body, (1, 2, 4, 6, 4))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["conv_core"]
    assert_same_plan(mod, optimized)


def test_where_nothing_is_gained_the_module_is_untouched() -> None:
    mod = program(lambda b, x: R.nn.relu(call(b, wrapped_conv(), "conv", x, weight())), SHAPE)
    plan = eqsat_layout.plan(mod)
    assert not plan.changed
    assert_untouched(mod, plan.module)
    assert [str(g.name_hint) for g in plan.module.get_global_vars()] == [
        str(g.name_hint) for g in mod.get_global_vars()
    ]


def test_a_weight_that_is_packed_at_run_time_is_packed_when_compiling() -> None:
    """As meta_schedule leaves it: a block that packs the weight, annotated as a rewrite; here it also pads."""
    x, w = placeholder("x", 4, 6), placeholder("w", 6, 6)
    packed = te.compute((3, 8, 2), lambda o, i, b: te.if_then_else(i < 6, w[i, o * 2 + b], 0.0), "pack")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((4, 6), lambda i, j: te.sum(x[i, k] * packed[j // 2, k, j % 2], k), "matmul")
    func = marked(te.create_prim_func([x, w, y]), "pack")
    mod = program(lambda b, x: call(b, func, "matmul", x, constant(6, 6), shape=(4, 6)), (4, 6))
    optimized = eqsat_layout.optimize(mod)
    assert_same_plan(mod, optimized)
    assert ops(optimized) == ["matmul_core"]
    binding = optimized["main"].body.blocks[0].bindings[0]
    assert [int(e) for e in binding.value.args[1].fields[1].ty.shape.values] == [3, 8, 2]


def test_several_results() -> None:
    x = placeholder("x", *SHAPE)
    packed = pack(x)
    results = [unpack(topi.exp(packed), "first"), unpack(topi.tanh(packed), "second")]
    func = te.create_prim_func([x, *results])

    def body(builder: Any, x: Any) -> Any:
        both = call(builder, func, "both", x, shape=[SHAPE, SHAPE])
        return R.layout_transform(builder.emit(R.add(both[0], both[1])), lambda n, c, h, w: (n, c // 4, h, w, c % 4))

    mod = program(body, SHAPE)
    optimized = eqsat_layout.optimize(mod)
    assert_same_plan(mod, optimized)
    assert transforms(optimized) == 1


def test_two_functions_of_the_same_core_share_it() -> None:
    x, w = placeholder("x", *SHAPE), placeholder("w", 2, 2, 3, 3, 4, 4)
    y = conv4c(pack(x), w)
    open_ended = te.create_prim_func([x, w, y])

    def body(builder: Any, x: Any) -> Any:
        y = call(builder, wrapped_conv(), "conv", x, weight())
        y = call(builder, wrapped_conv(), "conv", y, weight())
        return call(builder, open_ended, "conv_packed", y, weight(), shape=(1, 2, 4, 6, 4))

    mod = program(body, SHAPE)
    optimized = eqsat_layout.optimize(mod)
    assert_same_plan(mod, optimized)
    assert transforms(optimized) == 1
    assert sum(isinstance(f, tirx.PrimFunc) for f in optimized.functions.values()) == 3


def test_a_call_that_gains_nothing_stays_whole() -> None:
    """Its neighbours in the region gain."""

    def body(builder: Any, x: Any) -> Any:
        y = call(builder, wrapped_conv(), "conv", x, weight())
        turned = builder.emit(R.permute_dims(builder.emit(R.permute_dims(x, [0, 2, 3, 1])), [0, 3, 1, 2]))
        return y, builder.emit(R.tanh(turned))

    mod = program(body, SHAPE)
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["conv", "tanh"]
    assert_same_plan(mod, optimized)
    assert sum(isinstance(f, tirx.PrimFunc) for f in optimized.functions.values()) == 1


def test_symbolic_sizes() -> None:
    n = te.var("n", "int64")
    x = te.placeholder((n, 4, 6), "float32", "x")
    turned = te.compute((n, 6, 4), lambda i, j, k: x[i, k, j], "turn")
    y = topi.exp(turned)
    func = te.create_prim_func([x, te.compute((n, 4, 6), lambda i, j, k: y[i, k, j], "turn_back")])

    size = tirx.Var("n", "int64")

    def body(builder: Any, x: Any) -> Any:
        y = call(builder, func, "turned_exp", x, shape=(size, 4, 6))
        return call(builder, func, "turned_exp", y, shape=(size, 4, 6))

    mod = program(body, (size, 4, 6))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0  # exp runs in any layout
    assert_same_plan(mod, optimized)


def test_crops_and_annotated_pads_of_channels_that_do_not_divide() -> None:
    """30 channels in blocks of 4: packed with zeros before, unpacked and cropped after."""
    x, w = placeholder("x", 1, 30, 4, 6), placeholder("w", 8, 8, 3, 3, 4, 4)
    packed = te.compute(
        (1, 8, 4, 6, 4),
        lambda n, C, h, w, c: te.if_then_else(C * 4 + c < 30, x[n, C * 4 + c, h, w], 0.0),
        "pack_pad",
    )
    y = conv4c(packed, w)
    z = te.compute((1, 30, 4, 6), lambda n, c, h, w: y[n, c // 4, h, w, c % 4], "unpack_crop")
    func = marked(te.create_prim_func([x, w, z]), "pack_pad")
    shape = (1, 30, 4, 6)

    def body(builder: Any, x: Any) -> Any:
        weight = constant(8, 8, 3, 3, 4, 4)
        y = call(builder, func, "conv", x, weight, shape=shape)
        return call(builder, func, "conv", builder.emit(R.nn.relu(y)), weight, shape=shape)

    mod = program(body, shape)
    assert_same_plan(mod, eqsat_layout.optimize(mod))
