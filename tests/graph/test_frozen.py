"""Annotations: what they may freeze, and what is said where they can't be met."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast
from programs import assert_untouched, constant, ops, program, transforms
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout.errors import LayoutError


def conv(builder: Any, x: Any, w: Any, name: str = "c", **kw: Any) -> Any:
    op_ = {3: op.nn.conv1d, 4: op.nn.conv2d, 5: op.nn.conv3d}[len(w.ty.shape)]
    return builder.emit(op_(x, w, padding=1, **kw), name)


def one(*x: int, w: tuple[int, ...], frozen: Any = None, **kw: Any) -> Any:
    """relu - conv "c" - relu."""

    def body(builder: Any, x: Any) -> Any:
        return op.nn.relu(conv(builder, builder.emit(op.nn.relu(x)), constant(*w), **kw))

    return program(body, x, frozen=frozen)


@pytest.mark.parametrize(
    ("mod", "layouts"),
    [
        (one(2, 8, 9, w=(4, 8, 3)), ["NWC", "OWI"]),
        (one(2, 8, 9, w=(4, 8, 3)), ["NCW4c", "OIW4i4o"]),
        (one(2, 8, 6, 7, w=(4, 8, 3, 3)), ["NHWC", "HWIO"]),
        (one(2, 8, 6, 7, w=(4, 8, 3, 3)), ["NCHW8c", "OIHW8i4o", "NCHW4c"]),
        (one(2, 8, 6, 7, w=(4, 8, 3, 3)), ["NHWC", "default", "default"]),
        (one(2, 6, 7, 8, w=(4, 3, 3, 8), data_layout="NHWC", kernel_layout="OHWI"), ["NCHW", "OIHW"]),
        (one(2, 8, 6, 7, w=(8, 1, 3, 3), groups=8), ["NCHW4c", "OIHW4o"]),
        (one(2, 8, 6, 7, w=(4, 4, 3, 3), groups=2), ["NHWC", "HWIO"]),
        (one(1, 8, 4, 5, 6, w=(4, 8, 3, 3, 3)), ["NDHWC", "DHWIO"]),
        (one(1, 8, 4, 5, 6, w=(4, 8, 3, 3, 3)), ["NCDHW4c", "OIDHW4i4o"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["binding", "op", "argument"])
def test_convolutions(mod: Any, layouts: list[str], how: str) -> None:
    name = next(name for name in ops(mod) if "conv" in name)
    desired = None
    if how == "argument":
        desired = {f"relax.{name}": layouts}
    else:
        entries = {"c" if how == "binding" else f"relax.{name}": layouts}
        mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("eqsat_layout.frozen", entries))
    plan = eqsat_layout.plan(mod, desired_layouts=desired)
    assert plan.changed
    assert 1 <= transforms(plan.module) <= 2  # in and out: the relus take either layout, the weights are constant
    assert plan.module["main"].attrs.get("eqsat_layout.frozen") is None
    if how == "binding":
        assert_same_fast(mod, plan.module)
    again = eqsat_layout.optimize(plan.module)
    assert_untouched(plan.module, again)


def test_transposed_convolution() -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.nn.conv2d_transpose(x, constant(8, 4, 3, 3)), "up")

    for layouts in (["NHWC", "IOHW"], ["NHWC", "HWIO"], ["NCHW4c", "IOHW4i4o"]):
        mod = program(body, (1, 8, 5, 5), frozen={"up": layouts})
        optimized = eqsat_layout.optimize(mod)
        assert transforms(optimized) == 2
        assert_same_fast(mod, optimized)


@pytest.mark.parametrize("pool", [op.nn.max_pool2d, op.nn.avg_pool2d, op.nn.adaptive_avg_pool2d])
@pytest.mark.parametrize("layouts", [["NHWC"], ["NCHW4c"], ["NHWC", "NCHW2c"]])
def test_pooling(pool: Any, layouts: list[str]) -> None:
    kw = {"output_size": (3, 3)} if pool is op.nn.adaptive_avg_pool2d else {"pool_size": (2, 2), "padding": (1, 1)}
    mod = program(lambda b, x: b.emit(pool(x, **kw), "p"), (1, 8, 6, 6), frozen={"p": layouts})
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 2
    assert_same_fast(mod, optimized)


def test_the_binding_wins_over_the_op_and_the_module_over_the_argument() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = conv(builder, x, constant(8, 8, 3, 3), "first")
        return conv(builder, y, constant(8, 8, 3, 3), "second")

    frozen = {"first": ["NHWC", "OHWI"], "relax.nn.conv2d": ["NCHW", "OIHW"]}
    mod = program(body, (1, 8, 5, 5), frozen=frozen)
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]})
    assert transforms(plan.module) == 2
    plan = eqsat_layout.plan(mod, desired_layouts={"second": ["NHWC", "OHWI"]})
    assert transforms(plan.module) == 2
    assert_same_fast(mod, plan.module)


def test_an_op_entry_is_met_as_far_as_it_can_be() -> None:
    mod = one(1, 3, 5, 5, w=(8, 3, 3, 3))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NCHW16c", "OIHW16i4o", "NCHW4c"]})
    assert any("NCHW is used" in note and "'c'" in note for note in plan.notes)
    assert_same_fast(mod, plan.module)


def test_an_op_entry_over_a_symbolic_axis() -> None:
    n = tirx.Var("n", "int64")
    mod = program(lambda builder, x: conv(builder, x, constant(8, 8, 3, 3)), (n, 8, 5, 5))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NHWC4n", "OHWI"]})
    assert any("NHWC is used" in note and "'c'" in note for note in plan.notes)
    assert_same_fast(mod, plan.module)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"c": ["NCHWX", "OIHW"]}, "does not fit a tensor of shape (1, 8, 5, 5)"),
        ({"c": ["NCH", "OIHW"]}, "does not fit a tensor of shape (1, 8, 5, 5)"),
        ({"c": ["NDHWC", "OIHW"]}, "does not fit a tensor of shape (1, 8, 5, 5)"),
        ({"c": ["NCHW4x", "OIHW"]}, "NCHW4x"),
        ({"c": ["hello", "OIHW"]}, "malformed layout name 'hello'"),
        ({"c": ["NCHW", "OIHW", "NCHW", "NCHW"]}, "4 layouts given for 2 operands and a result"),
        ({"c": []}, "no layouts"),
        ({"c": "NHWC"}, "list of layout names"),
        ({"c": [1, 2]}, "list of layout names"),
        ({"nowhere": ["NHWC", "OHWI"]}, "'nowhere'"),
        ({"lv": ["NHWC"]}, "no layout attribute"),
        (["NHWC", "OHWI"], "dictionary"),
        (True, "dictionary"),
    ],
)  # fmt: skip
def test_annotations_that_can_not_be_met(entries: Any, says: str) -> None:
    mod = one(1, 8, 5, 5, w=(8, 8, 3, 3))
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("eqsat_layout.frozen", entries))
    with pytest.raises(LayoutError) as caught:
        eqsat_layout.plan(mod)
    message = str(caught.value)
    assert says in message
    assert message.startswith("main: ")
    if isinstance(entries, dict):
        assert repr(next(iter(entries))) in message


@pytest.mark.parametrize(
    "desired", [["NHWC"], {"relax.nn.conv2d": "NHWC"}, {"relax.nn.conv2d": 3}, {"relax.nn.conv2d": []}]
)
def test_arguments_that_can_not_be_met(desired: Any) -> None:
    with pytest.raises(LayoutError):
        eqsat_layout.plan(one(1, 8, 5, 5, w=(8, 8, 3, 3)), desired_layouts=desired)


def test_a_binding_of_unknown_shape_can_not_be_frozen() -> None:
    n = tirx.Var("n", "int64")
    mod = program(
        lambda builder, x: conv(builder, x, constant(8, 8, 3, 3)), (n, 8, 5, 5), frozen={"c": ["NHWC4n", "OHWI"]}
    )
    with pytest.raises(LayoutError, match=r"main: .*'c'"):
        eqsat_layout.plan(mod)
    x = relax.Var("x", relax.TensorType(ndim=4, dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(conv(builder, x, constant(8, 8, 3, 3), "c"))
        builder.emit_func_output(y)
    mod = builder.finalize()
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("eqsat_layout.frozen", {"c": ["NHWC", "OHWI"]}))
    with pytest.raises(LayoutError, match=r"main: .*'c'.*shape"):
        eqsat_layout.plan(mod)
    assert not eqsat_layout.plan(  # the op's entry is met as far as it can be
        mod.__class__({mod.get_global_var("main"): mod["main"].without_attr("eqsat_layout.frozen")}),
        desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]},
    ).changed


def test_a_layout_that_the_op_has_already_changes_nothing() -> None:
    mod = one(1, 8, 5, 5, w=(8, 8, 3, 3), frozen={"c": ["NCHW", "OIHW"]})
    assert eqsat_layout.optimize(mod) is mod


def test_desired_layouts_for_names_that_are_not_there() -> None:
    mod = one(1, 8, 5, 5, w=(8, 8, 3, 3))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv3d": ["NDHWC", "DHWIO"], "nowhere": ["NHWC"]})
    assert plan.module is mod
    assert any("nowhere" in note for note in plan.notes)


def test_infinite_data_beside_padding_gives_what_it_gives_without(run: Any) -> None:
    """Channels that a layout adds were NaN, 0 times infinity, and the next convolution multiplied them by 0."""
    weight, layouts = relax.const(np.full((3, 3, 1, 1), 0.5, "float32")), ["NCHW4c", "OIHW4i4o"]

    def body(b: Any, x: Any) -> Any:
        return b.emit(op.nn.conv2d(b.emit(op.nn.conv2d(x, weight), "first"), weight), "second")

    mod = program(body, (1, 3, 2, 2), frozen={"first": layouts, "second": layouts})
    x = np.ones((1, 3, 2, 2), "float32")
    x[0, 1, 1, 0] = np.inf
    np.testing.assert_array_equal(run(eqsat_layout.compile(mod, "llvm", approx=False), x), run(tvm.compile(mod), x))
