"""Padding, cropping and undef, end to end: every line of section 3 of the design that a program can show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import assert_same_plan, constant, ops, program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Format

NCHW4C = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
TO_32_CHANNELS = [0, 0, 0, 2, 0, 0, 0, 0]


def unpack(x: Any) -> Any:
    return R.layout_transform(x, lambda n, C, h, w, c: (n, C * 4 + c, h, w))


def pack(x: Any, pad_value: float | None = None) -> Any:
    return R.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4), pad_value=pad_value)


def pad(x: Any, value: float = 0.0) -> Any:
    return R.nn.pad(x, TO_32_CHANNELS, "constant", value)


def crop(x: Any) -> Any:
    return R.strided_slice(x, [1], [0], [30])


def conv(x: Any, seed: int) -> Any:
    return R.nn.conv2d(x, constant(8, 8, 3, 3, 4, 4, seed=seed), padding=1, **NCHW4C)


@pytest.mark.parametrize(("data", "kernel"), [("NCHW16c", "OIHW16i16o"), ("NCHW4c", "OIHW4i4o"), ("NHWC", "OHWI")])
def test_30_channels_are_padded_at_the_ends_only(data: str, kernel: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.conv2d(x, constant(30, 30, 3, 3), padding=1))
        y = builder.emit(R.nn.relu(builder.emit(R.add(y, constant(1, 30, 1, 1, seed=1)))))
        z = builder.emit(R.nn.conv2d(y, constant(30, 30, 3, 3, seed=2), padding=1))
        z = builder.emit(R.add(y, builder.emit(R.nn.relu(z))))
        return R.nn.conv2d(z, constant(30, 30, 1, 1, seed=3))

    mod = program(body, (1, 30, 8, 8), frozen={"relax.nn.conv2d": [data, kernel]})
    plan = eqsat_layout.plan(mod)
    assert len(plan.transforms) == 2
    assert len(plan.input_transforms) == 6
    assert plan.is_optimal
    assert ops(plan.module)[2:4] == ["add", "nn.relu"]
    assert_same_plan(mod, plan.module)


def test_an_op_that_spoils_the_padding_refills_it() -> None:
    """exp(0) is 1: what follows needs 0 in the padding, so something has to write it."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.conv2d(x, constant(30, 30, 1, 1)))
        return R.nn.conv2d(builder.emit(R.sigmoid(y)), constant(30, 30, 1, 1, seed=1))

    mod = program(body, (1, 30, 4, 4), frozen={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    plan = eqsat_layout.plan(mod)
    assert len(plan.transforms) == 2
    assert_same_plan(mod, plan.module)


def test_a_sum_over_padded_channels_counts_no_padding() -> None:
    def body(builder: Any, x: Any) -> tuple[Any, ...]:
        y = builder.emit(R.nn.conv2d(x, constant(30, 30, 1, 1)))
        shifted = builder.emit(R.add(y, constant(1, 1, 1, 1)))
        return R.sum(y, axis=[1]), R.max(builder.emit(R.nn.relu(y)), axis=[1]), R.mean(shifted, axis=[1])

    mod = program(body, (1, 30, 4, 4), frozen={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    assert_same_plan(mod, eqsat_layout.optimize(mod))


def test_crop_and_pad_between_packed_convolutions_vanish() -> None:
    """The bias is added on all 32 channels, and writes the 0 that the second convolution needs."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(crop(builder.emit(unpack(builder.emit(conv(x, 0))))))
        y = builder.emit(R.nn.relu(builder.emit(R.add(y, constant(1, 30, 1, 1)))))
        return conv(builder.emit(pack(builder.emit(pad(y)))), 1)

    mod = program(body, (1, 8, 8, 8, 4))
    plan = eqsat_layout.plan(mod)
    assert plan.transforms == ()
    assert len(ops(plan.module)) == 4
    assert_same_plan(mod, plan.module)


def test_layout_transforms_with_a_pad_value_vanish_too() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(conv(builder.emit(pack(x, 0.0)), 0))
        y = builder.emit(crop(builder.emit(unpack(y))))
        return conv(builder.emit(pack(builder.emit(R.nn.relu(y)), 0.0)), 1)

    mod = program(body, (1, 30, 8, 8))
    plan = eqsat_layout.plan(mod)
    assert len(plan.transforms) == 1
    assert_same_plan(mod, plan.module)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_crop_of_pad_is_nothing(value: float) -> None:
    def body(builder: Any, x: Any) -> Any:
        return R.nn.relu(builder.emit(crop(builder.emit(pad(x, value)))))

    mod = program(body, (1, 30, 4, 4))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["nn.relu"]
    assert_same_plan(mod, optimized)


def test_pad_of_crop_is_nothing_only_where_the_border_is_known() -> None:
    def body(builder: Any, x: Any, value: float) -> tuple[Any, ...]:
        y = builder.emit(R.exp(builder.emit(pad(x))))  # exp(0) is 1 in the border
        return builder.emit(pad(builder.emit(crop(y)), value)), builder.emit(R.nn.relu(y))

    for value, expected in ((1.0, 0), (0.0, 1)):
        mod = program(lambda b, x, v=value: body(b, x, v), (1, 30, 4, 4))
        optimized = eqsat_layout.optimize(mod)
        assert len(ops(optimized)) == 3 + expected
        assert_same_plan(mod, optimized)


def test_pads_of_one_crop_with_two_values_are_never_merged() -> None:
    """crop(pad_0 w) = w and crop(pad_1 w) = w: were padding a value, pad_0 w and pad_1 w would become one."""

    def body(builder: Any, x: Any) -> tuple[Any, ...]:
        y = builder.emit(R.nn.relu(x))
        z = builder.emit(crop(y))
        zeros, ones = builder.emit(pad(z)), builder.emit(pad(z, 1.0))
        again = builder.emit(crop(zeros)), builder.emit(crop(ones))
        return zeros, ones, builder.emit(R.add(*again)), y

    mod = program(body, (1, 32, 4, 4))
    assert_same_plan(mod, eqsat_layout.optimize(mod))


def test_padded_constants_are_made_when_compiling() -> None:
    def body(builder: Any, x: Any) -> Any:
        scale = builder.emit(pad(builder.emit(R.nn.relu(constant(1, 30, 1, 1))), 2.0))
        return R.multiply(x, scale)

    mod = program(body, (1, 32, 4, 4))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["multiply"]
    assert_same_plan(mod, optimized)


def test_constant_arithmetic_is_folded() -> None:
    def body(builder: Any, x: Any) -> Any:
        root = builder.emit(R.sqrt(builder.emit(R.multiply(constant(8, 1, 1), constant(8, 1, 1)))))
        scale = builder.emit(R.add(builder.emit(R.exp(constant(8, 1, 1))), root))
        y = builder.emit(R.multiply(builder.emit(R.permute_dims(x, [0, 3, 1, 2])), scale))
        return R.permute_dims(y, [0, 2, 3, 1])

    mod = program(body, (1, 4, 4, 8))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["multiply"]
    assert_same_plan(mod, optimized)


def test_what_folding_added_is_told() -> None:
    """One scale in two layouts, and padded in both."""

    def body(builder: Any, x: Any) -> tuple[Any, ...]:
        y = builder.emit(R.nn.conv2d(x, constant(30, 30, 1, 1)))
        scale = constant(1, 30, 8, 8)
        return R.nn.conv2d(builder.emit(R.multiply(y, scale)), constant(30, 30, 1, 1)), R.add(x, scale)

    mod = program(body, (1, 30, 8, 8), frozen={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    plan = eqsat_layout.plan(mod)
    assert plan.stats.input_constant_bytes == 4 * (2 * 30 * 30 + 30 * 64)
    assert plan.stats.constant_bytes == 4 * (2 * 32 * 32 + 30 * 64 + 32 * 64)
    assert "constants" in str(plan)
    assert_same_plan(mod, plan.module)


def test_why_not_names_op_layout_and_reason() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.conv2d(x, constant(32, 32, 1, 1)))
        y = builder.emit(R.cumsum(builder.emit(R.flip(y, 1)), axis=1))
        return R.nn.conv2d(y, constant(32, 32, 1, 1))

    mod = program(body, (1, 32, 4, 4), frozen={"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    plan = eqsat_layout.plan(mod)
    reasons = {(r.op, r.reason) for r in plan.why_not()}
    assert ("relax.cumsum", "its TIR is not understood") in reasons
    assert any(op == "relax.flip" and "reversed" in reason for op, reason in reasons)
    assert {r.op for r in plan.why_not("cumsum")} == {"relax.cumsum"}
    assert "(i, j, k, l) -> (0, j//16, k, l, j%16)" in str(plan.why_not("cumsum")[0])
    assert plan.why_not("relax.nn.conv2d") is not None
    with pytest.raises(
        EqsatError, match=r"no op of the program has 'cumsun' in its name; did you mean 'relax\.cumsum'"
    ):
        plan.why_not("cumsun")


class DearCopies(Roofline):
    """A cost model for a machine that is short of memory."""

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        return 1.0


def test_a_second_copy_of_a_constant_is_paid_for() -> None:
    """A scale for a packed and for a plain branch: two copies, unless they are dear and the packed one is unpacked."""

    def body(builder: Any, x: Any, y: Any) -> tuple[Any, ...]:
        scale = constant(1, 32, 8, 8)
        x = builder.emit(R.nn.conv2d(x, constant(32, 32, 1, 1)), "conv_a")
        y = builder.emit(R.nn.conv2d(y, constant(32, 32, 1, 1)), "conv_b")
        x, y = builder.emit(R.multiply(x, scale)), builder.emit(R.multiply(y, scale))
        return (
            builder.emit(R.nn.conv2d(x, constant(32, 32, 1, 1)), "conv_c"),
            builder.emit(R.nn.conv2d(y, constant(32, 32, 1, 1)), "conv_d"),
        )

    layouts = {"conv_a": ["NCHW4c", "OIHW4i4o"], "conv_c": ["NCHW4c", "OIHW4i4o"]}
    mod = program(body, (1, 32, 8, 8), (1, 32, 8, 8), frozen=layouts)
    cheap, dear = eqsat_layout.plan(mod), eqsat_layout.plan(mod, cost_model=DearCopies())
    assert len(cheap.transforms) == 2
    assert len(dear.transforms) == 4
    assert dear.stats.constant_bytes == cheap.stats.constant_bytes - 4 * 32 * 64
    assert all(plan.is_optimal and plan.cost <= plan.input_cost for plan in (cheap, dear))
    assert_same_plan(mod, dear.module)


def test_a_border_beside_products_of_one_factor_each_stays_0() -> None:
    """It was made of zeros in the weights: 0 times an infinite element is NaN. A sum of one product is no contraction,
    which would take no layouts but those of its candidates."""
    weights = relax.const(np.full((1, 3), 2, "float32"))
    mod = program(lambda b, x: b.emit(R.nn.pad(b.emit(R.matmul(x, weights)), pad_width=[0, 0, 0, 2])), (2, 1))
    built = tvm.compile(eqsat_layout.optimize(mod, approx=False), "llvm")
    x = np.array([[np.inf], [3]], "float32")
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    assert found.tolist() == [[np.inf] * 3 + [0, 0], [6] * 3 + [0, 0]]
