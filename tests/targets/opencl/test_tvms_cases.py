"""The situations that TVM's own tests of its Adreno passes are about, with weights as parameters: ours run, agree with
the CPU, and never copy more than TVM's passes do (those compare by kernels that do nothing else)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from effort import but_for
from programs import program
from targets.device_cases import nn
from targets.opencl.adreno_pipeline import copies_of_tvm, planned_by_tvm
from targets.opencl.running import ADRENO, check, compiled, launches, results
from tvm import relax
from tvm.relax import op

from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.opencl.images import WEIGHT

X, W = (2, 16, 28, 28), (4, 16, 3, 3)
WIDE: Final = (2, 32, 40, 40)

Case = tuple[Callable[..., Any], Sequence[tuple[int, ...]]]


def after_conv(emit: Callable[..., Any]) -> Callable[..., Any]:
    """What ``emit`` makes of a convolution of the first two parameters, and of the others."""
    return lambda b, x, w, *others: b.emit(emit(b.emit(nn.conv2d(x, w)), *others))


def relu_of_conv(b: Any, x: Any, w: Any) -> Any:
    return b.emit(nn.relu(b.emit(nn.conv2d(x, w))))


def relu_conv_relu(b: Any, x: Any, w: Any) -> Any:
    return relu_of_conv(b, b.emit(nn.relu(x)), w)


def concat_with_own_relu(b: Any, x: Any, w: Any) -> Any:
    y = b.emit(nn.conv2d(x, w))
    return b.emit(op.concat([y, b.emit(nn.relu(y))], axis=1))


def halves(b: Any, x: Any, w: Any) -> list[Any]:
    parts = b.emit(op.split(concat_with_own_relu(b, x, w), 2, axis=1))
    return [b.emit(relax.TupleGetItem(parts, i)) for i in range(2)]


def turned_and_joined(b: Any, x: Any, w: Any) -> Any:
    turned = [b.emit(op.permute_dims(half, [3, 2, 1, 0])) for half in halves(b, x, w)]
    return b.emit(op.concat(turned, axis=2))


def multiplied_added_convolved(b: Any, x: Any, w: Any, v: Any, scale: Any, bias: Any) -> Any:
    y = b.emit(op.add(b.emit(op.multiply(b.emit(nn.conv2d(x, w)), scale)), bias))
    return b.emit(nn.conv2d(b.emit(nn.relu(y)), v))


def fused_multiply_add(b: Any, x: Any, w: Any, v: Any, scale: Any, bias: Any) -> Any:
    y = b.emit(op.ewise_fma(b.emit(nn.conv2d(x, w)), scale, bias))
    return b.emit(nn.conv2d(b.emit(nn.relu(y)), v))


def residual(b: Any, x: Any, w1: Any, w2: Any, w3: Any, bias: Any) -> Any:
    first = b.emit(nn.relu(b.emit(op.add(b.emit(nn.conv2d(x, w1, strides=[2, 2])), bias))))
    scaled = b.emit(op.multiply(bias, relax.const(0.15, "float32")))
    second = b.emit(nn.relu(b.emit(op.add(b.emit(nn.conv2d(first, w2)), scaled))))
    return b.emit(nn.relu(b.emit(nn.conv2d(second, w3, strides=[2, 2]))))


def two_that_join(b: Any, x: Any, w1: Any, w2: Any, w3: Any, bias: Any) -> Any:
    y = b.emit(nn.relu(b.emit(op.add(b.emit(nn.conv2d(x, w1, strides=[2, 2])), bias))))
    return b.emit(op.concat([b.emit(nn.conv2d(y, w, strides=[2, 2])) for w in (w2, w3)], axis=1))


def pooled_branches(b: Any, x: Any, w1: Any, w2: Any, w3: Any, w4: Any, bias: Any) -> Any:
    y = b.emit(nn.max_pool2d(b.emit(nn.conv2d(x, w1)), pool_size=[2, 2], strides=[2, 2]))
    left = b.emit(nn.relu(b.emit(op.add(b.emit(nn.conv2d(y, w2, padding=[0, 0, 1, 1])), bias))))
    middle = b.emit(nn.conv2d(y, w3))
    right = b.emit(nn.relu(b.emit(nn.conv2d(y, w4, padding=[0, 0, 1, 1]))))
    return b.emit(op.add(b.emit(op.add(left, middle)), right))


def means_and_convs(product_first: bool) -> Callable[..., Any]:
    def body(b: Any, x: Any, w1: Any, w2: Any) -> Any:
        mean = b.emit(op.mean(x, axis=1, keepdims=True))
        first = b.emit(nn.conv2d(x, w1, padding=[1, 1, 1, 1]))
        second = b.emit(nn.conv2d(first, w2, padding=[1, 1, 1, 1]))
        both = b.emit(op.add(first, second))
        product = b.emit(op.multiply(b.emit(op.add(mean, first)), second))
        return b.emit(op.add(product, both) if product_first else op.add(both, product))

    return body


CASES: Final[dict[str, Case]] = {
    "conv": (after_conv(lambda y: op.multiply(y, relax.const(1.0, "float32"))), [(2, 64, 56, 56), (32, 64, 3, 3)]),
    "conv_nhwc": (
        lambda b, x, w: b.emit(nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI")),
        [(2, 28, 28, 16), (4, 3, 3, 16)],
    ),
    "conv_of_few_channels": (lambda b, x, w: b.emit(nn.conv2d(x, w)), [X, W]),
    "relu": (relu_of_conv, [X, W]),
    "relu_conv_relu": (relu_conv_relu, [X, W]),
    "relu_tanh": (lambda b, x, w: b.emit(op.tanh(relu_of_conv(b, x, w))), [X, W]),
    "add": (after_conv(op.add), [X, W, (2, 4, 26, 26)]),
    "sum": (after_conv(lambda y: op.sum(y, axis=[2, 3])), [X, W]),
    "sum_keepdims": (after_conv(lambda y: op.sum(y, axis=[2, 3], keepdims=True)), [X, W]),
    "sum_across_channels": (after_conv(lambda y: op.sum(y, axis=[1, 2])), [X, W]),
    "transpose": (after_conv(lambda y: op.permute_dims(y, [3, 2, 1, 0])), [X, W]),
    "expand_dims": (after_conv(lambda y: op.expand_dims(y, [-3, 1])), [X, W]),
    "squeeze": (after_conv(lambda y: op.squeeze(y, [0])), [(1, 16, 28, 28), W]),
    "strided_slice": (
        after_conv(lambda y: op.strided_slice(y, [1, 2, 3], [0, 0, 0], [4, 26, 26], [2, 3, 4])),
        [X, W],
    ),
    "concat": (concat_with_own_relu, [X, W]),
    "concat_split": (lambda b, x, w: halves(b, x, w)[0], [X, W]),
    "concat_split_transpose_concat": (turned_and_joined, [X, W]),
    "max_pool": (after_conv(lambda y: nn.max_pool2d(y, [2, 2], strides=[2, 2])), [X, W]),
    "average_pool": (after_conv(lambda y: nn.adaptive_avg_pool2d(y, (13, 13))), [X, W]),
    "softmax": (after_conv(lambda y: nn.softmax(y, axis=1)), [X, W]),
    "layer_norm": (after_conv(lambda y, g, s: nn.layer_norm(y, g, s, axes=[-2, -1])), [X, W, (26, 26), (26, 26)]),
    "broadcast": (after_conv(op.add), [X, W, (26, 26)]),
    "scalar": (after_conv(lambda y: op.add(y, relax.const(1.0, "float32"))), [X, W]),
    "multiplied_added_convolved": (multiplied_added_convolved, [X, W, (4, 4, 3, 3), (2, 4, 26, 26), (2, 4, 26, 26)]),
    "fused_multiply_add": (fused_multiply_add, [X, W, (4, 4, 3, 3), (2, 4, 26, 26), (2, 4, 26, 26)]),
    "residual": (residual, [WIDE, (32, 32, 2, 2), (32, 32, 1, 1), (32, 32, 2, 2), (1, 32, 1, 1)]),
    "channels_that_fill_no_texel": (
        two_that_join,
        [WIDE, (96, 32, 2, 2), (32, 96, 2, 2), (5, 96, 2, 2), (1, 96, 1, 1)],
    ),
    "two_that_join": (two_that_join, [WIDE, (96, 32, 2, 2), (32, 96, 2, 2), (8, 96, 2, 2), (1, 96, 1, 1)]),
    "pooled_branches": (
        pooled_branches,
        [WIDE, (32, 32, 1, 1), (32, 32, 2, 2), (32, 32, 1, 1), (32, 32, 2, 2), (1, 32, 1, 1)],
    ),
    "means_and_convs": (means_and_convs(False), [(1, 4, 40, 40), (4, 4, 3, 3), (4, 4, 3, 3)]),
    "product_first": (means_and_convs(True), [(1, 4, 40, 40), (4, 4, 3, 3), (4, 4, 3, 3)]),
}


IN_OTHERS = [
    *("conv_of_few_channels", "relu", "relu_tanh", "scalar", "broadcast", "sum_keepdims", "squeeze", "concat"),
    *("concat_split", "multiplied_added_convolved", "product_first", "two_that_join"),
]
"""What they are made of is in others of the cases, too."""


@pytest.mark.parametrize("name", but_for(CASES, IN_OTHERS))
def test_it_runs_with_no_more_copies_than_tvms(name: str) -> None:
    body, shapes = CASES[name]
    mod = program(body, *shapes)
    own = [op for op in launches(check(mod)) if op.startswith(("layout_rewrite", "permute_dims", "layout_transform"))]
    assert len(own) <= copies_of_tvm(planned_by_tvm(mod))


def test_scopes_that_come_on_types_and_a_copy_that_folds_away() -> None:
    """A maximum in images whose result is copied to a buffer and laid out there: the copy is gone, the numbers stay."""
    images, buffers = (relax.VDevice(dict(ADRENO), 0, scope) for scope in (WEIGHT, GLOBAL))
    x = relax.Var("x", relax.TensorType((2, 4, 26, 26), "float32", buffers))
    builder = relax.BlockBuilder()
    builder.get().update_global_info("vdevice", [images, buffers])
    with builder.function("main", [x]):
        with builder.dataflow():
            there = builder.emit(op.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)))
            there = builder.emit(op.to_vdevice(there, images))
            most = builder.emit(nn.max_pool2d(there, [2, 2], strides=[2, 2], layout="NCHW4c"))
            back = builder.emit(op.to_vdevice(most, buffers))
            y = builder.emit_output(op.layout_transform(back, lambda n, o, h, w, i: (n, o * 4 + i, h, w)))
        builder.emit_func_output(y)
    program_ = compiled(builder.get())
    data = np.random.default_rng(0).standard_normal((2, 4, 26, 26)).astype("float32")
    (got,) = results(program_, [data])
    np.testing.assert_array_equal(got, data.reshape(2, 4, 13, 2, 13, 2).max(axis=(3, 5)))
    assert len(launches(program_)) <= 3
