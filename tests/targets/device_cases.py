"""Programs that targets with devices run: every kind of op between convolutions, rows, attention.

In: nothing. Out: bodies for ``programs.program`` by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tvm
from compare import machine
from programs import constant, program
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.readers.layers.recurrent_layers import Layer, layer

SIZE: Final = (1, 32, 14, 14)

Body = Callable[..., Any]

nn = op.nn


def conv(builder: Any, x: Any, seed: int = 0, channels: int = 32, size: int = 3, groups: int = 1, **how: Any) -> Any:
    weight = constant(channels, int(x.ty.shape.values[1]) // groups, size, size, seed=seed)
    return builder.emit(nn.conv2d(x, weight, padding=size // 2, groups=groups, **how), f"conv{seed}")


def chain(builder: Any, x: Any) -> Any:
    for seed in range(3):
        x = builder.emit(nn.relu(conv(builder, x, seed)))
    return x


def concat(builder: Any, x: Any, y: Any) -> Any:
    a, b = (builder.emit(nn.relu(conv(builder, v, i))) for i, v in enumerate((x, y)))
    return conv(builder, builder.emit(op.concat([a, b], axis=1)), 2)


def split(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x, channels=64)))
    parts = builder.emit(op.split(y, 2, axis=1))
    first, second = (builder.emit(relax.TupleGetItem(parts, i)) for i in range(2))
    return builder.emit(op.add(conv(builder, first, 1), second))


def several_results(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x)))
    return y, conv(builder, y, 1)


def inline_constants(builder: Any, x: Any) -> Any:
    y = builder.emit(op.add(conv(builder, x), constant(1, 32, 1, 1)))
    return conv(builder, builder.emit(op.multiply(y, relax.const(np.float32(2)))), 1)


def recurrence(builder: Any, x: Any, *states: Any) -> Any:
    """An LSTM of 16 numbers, whose sequences have 1, 4, 2 steps, from the last one on."""
    shapes = {"inputs": (64, 6), "recurrent": (64, 16), "input_bias": (64,), "recurrent_bias": (64,)}
    held = {name: constant(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    lengths = relax.const(np.array([1, 4, 2]))
    return tuple(layer(builder, Layer("LSTM", (), **held, reverse=True, lengths=lengths), x, states))


RECURRENCE: Final = program(recurrence, (4, 3, 6), (3, 16), (3, 16))


def mean(builder: Any, x: Any) -> Any:
    return builder.emit(op.mean(builder.emit(nn.relu(conv(builder, x))), axis=[2, 3], keepdims=True))


def strided(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, strides=2))), 1, dilation=2)


def depthwise(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(op.clip(conv(builder, x, groups=32), 0, 6)), 1, size=1)


def grouped(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, groups=4))), 1)


def transposed(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x)))
    return builder.emit(nn.relu(builder.emit(nn.conv2d_transpose(y, constant(32, 16, 2, 2), strides=2))))


def pools(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.max_pool2d(conv(builder, x), [3, 3], strides=[2, 2], padding=[1, 1]))
    return conv(builder, builder.emit(nn.avg_pool2d(y, [2, 2])), 1)


def resized(method: str) -> Body:
    def body(builder: Any, x: Any) -> Any:
        y = op.image.resize2d(conv(builder, x), (28, 28), layout="NCHW", method=method)
        return conv(builder, builder.emit(y), 1)

    return body


def batch_norm(builder: Any, x: Any) -> Any:
    spread = relax.const(np.linspace(0.5, 2, 32).astype("float32"))
    y = nn.batch_norm(conv(builder, x), constant(32), constant(32, seed=1), constant(32, seed=2), spread, axis=1)
    return builder.emit(nn.relu(builder.emit(relax.TupleGetItem(builder.emit(y), 0))))


def group_norm(builder: Any, x: Any) -> Any:
    scale, shift = constant(32), constant(32, seed=3)
    y = nn.group_norm(conv(builder, x), scale, shift, num_groups=4, channel_axis=1, axes=[2, 3])
    return conv(builder, builder.emit(y), 1)


def where(builder: Any, x: Any) -> Any:
    y = conv(builder, x)
    small = builder.emit(op.multiply(y, relax.const(np.float32(0.1))))
    return conv(builder, builder.emit(op.where(builder.emit(op.greater(y, relax.const(np.float32(0)))), y, small)), 1)


def gathered(builder: Any, x: Any) -> Any:
    order = relax.const(np.arange(32)[::-1].copy())
    return conv(builder, builder.emit(op.take(builder.emit(nn.relu(x)), order, axis=1)))


def padded(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.pad(conv(builder, x), [0, 0, 0, 0, 1, 1, 2, 2])), 1)


def sliced(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(op.strided_slice(conv(builder, x), [1], [8], [24])), 1)


def flattened(builder: Any, x: Any) -> Any:
    return builder.emit(op.matmul(builder.emit(op.reshape(conv(builder, x), (1, 32, 196))), constant(196, 64)))


def first_layer(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, strides=2, size=7))), 1)


def of_conv(make: Callable[[Any], Any]) -> Body:
    return lambda builder, x: builder.emit(make(conv(builder, x)))


def attention(builder: Any, q: Any, k: Any, v: Any) -> Any:
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = builder.emit(nn.softmax(builder.emit(op.multiply(scores, relax.const(np.float32(0.25))))))
    return builder.emit(op.matmul(scores, v))


def one_primfunc_twice(extent: int) -> Body:
    """What a PrimFunc gives is convolved, and taken by it again; height and width are ``extent``."""

    @T.prim_func(private=True, s_tir=True)
    def scaled(
        x: T.Buffer((1, 32, extent, extent), "float32"), y: T.Buffer((1, 32, extent, extent), "float32")
    ) -> None:
        for i, j, k, n in T.grid(1, 32, extent, extent):
            with T.sblock("y"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, n])
                y[a, b, c, d] = x[a, b, c, d] * T.float32(2)

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(scaled, "scaled")
        ty = relax.TensorType((1, 32, extent, extent), "float32")
        y = builder.emit(relax.call_tir(func, [conv(builder, x)], ty))
        return builder.emit(relax.call_tir(func, [conv(builder, y, 1)], ty))

    return body


def of_symbolic_size(axis: str) -> Any:
    """A program whose batch, ``"n"``, or height and width, ``"h"``, are known at run time only."""
    size = tirx.Var(axis, "int64")
    shape = (size, 8, 6, 6) if axis == "n" else (1, 8, size, size)

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x, channels=8)))
        return builder.emit(nn.softmax(conv(builder, y, 1, channels=8), axis=1))

    return program(body, shape)


AROUND_CONVOLUTIONS: Final[Mapping[str, Body]] = {
    "split": split,
    "several_results": several_results,
    "inline_constants": inline_constants,
    "mean": mean,
    "strided": strided,
    "depthwise": depthwise,
    "grouped": grouped,
    "transposed": transposed,
    "pools": pools,
    "resized": resized("nearest_neighbor"),
    "resized_linearly": resized("linear"),
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "where": where,
    "gathered": gathered,
    "padded": padded,
    "sliced": sliced,
    "flattened": flattened,
    "cumsum": of_conv(lambda y: op.cumsum(y, axis=1)),
    "argmax": of_conv(lambda y: op.argmax(y, axis=1)),
    "truth": of_conv(lambda y: op.greater(y, relax.const(np.float32(0)))),
    "integers": of_conv(lambda y: op.astype(y, "int32")),
    "sum_of_all": of_conv(lambda y: op.sum(y)),
}
"""Each with at least one convolution of a tensor of :data:`SIZE`."""

ROWS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "softmax": lambda x: nn.softmax(x),
    "layer_norm": lambda x: nn.layer_norm(x, constant(64), constant(64, seed=1), axes=[-1]),
    "sum": lambda x: op.sum(x, axis=[-1], keepdims=True),
    "max": lambda x: op.max(x, axis=[0, 2]),
    "gelu": lambda x: nn.gelu(x),
}
"""Of tensors whose last axis has 64 elements."""


def narrow_arithmetic(builder: Any, x: Any, y: Any) -> Any:
    """Ops over integers of 8 and 16 bits, which wrap around between them."""
    emit = builder.emit
    shifted = emit(op.left_shift(x, constant_like(x, 3)))
    results = (
        op.astype(emit(op.add(x, y)), "int32"),
        op.less(emit(op.subtract(x, y)), y),
        op.floor_divide(emit(op.multiply(x, y)), constant_like(x, 3)),
        op.right_shift(shifted, constant_like(x, 2)),
        op.astype(emit(op.bitwise_not(x)), "int32"),
        op.maximum(emit(op.add(x, y)), y),
    )
    return tuple(map(emit, results))


def functions(builder: Any, x: Any) -> Any:
    """Those that C and the languages of devices have other names for, or none."""
    found = (op.acos, op.acosh, op.asin, op.asinh, op.atan, op.atanh, op.cosh, op.erf, op.log, op.rsqrt, op.sigmoid)
    return tuple(builder.emit(make(x)) for make in (*found, op.sinh, op.tan, op.tanh))


def half_functions(builder: Any, x: Any) -> Any:
    """Some that devices do not have for halves."""
    made = (op.round(x), op.atanh(op.multiply(x, constant_like(x, 0.125))), op.mod(x, constant_like(x, 3)))
    return tuple(map(builder.emit, made))


def scaled_exactly(builder: Any, x: Any) -> Any:
    """Products with numbers that seven digits do not say, nor, of doubles, fifteen places after the dot."""
    found = (op.multiply(x, constant_like(x, value)) for value in (0.12573021650314331, 16777213.0, 1.2345678901e-20))
    return tuple(map(builder.emit, found))


def constant_like(x: Any, value: float) -> Any:
    return relax.const(value, str(x.ty.dtype))


def sorts(builder: Any, x: Any) -> Any:
    """Every sort of a matrix, with equal elements."""
    y = builder.emit(op.round(x))
    top = builder.emit(op.topk(x, 3))
    least = builder.emit(op.topk(y, 2, 0, "both", False, "int64"))
    pairs = [builder.emit(relax.TupleGetItem(pair, i)) for pair in (top, least) for i in range(2)]
    sorted_ = (op.sort(x), op.sort(x, 0, True), op.argsort(y, 1), op.argsort(y, -1, True, "int64"))
    return (*map(builder.emit, sorted_), *pairs)


def sorts_inside(builder: Any, x: Any) -> Any:
    """Kernels that TVM has call a sort of the host: the middle of rows, and boxes without those that overlap; and
    samples, which TVM has no kernel of before it knows the target."""
    median = builder.emit(op.median(builder.emit(op.round(x)), [1]))
    boxes = builder.emit(op.reshape(x, (2, -1, 6)))
    classes = builder.emit(op.strided_slice(builder.emit(op.round(boxes)), [2], [0], [1]))
    rest = builder.emit(op.strided_slice(boxes, [2], [1], [6]))
    boxes = builder.emit(op.concat([classes, rest], axis=2))
    count = int(boxes.ty.shape[1])
    counts = relax.const(np.array([count, count - 3], "int32"))
    indices = relax.const(np.tile(np.arange(count, dtype="int32"), (2, 1)))
    chosen = builder.emit(op.vision.non_max_suppression(boxes, counts, indices, iou_threshold=0.2))
    pairs = (median, chosen)
    rows = relax.const(np.array([[0], [3], [1]], "int64"))
    uniform = relax.const(np.array([[0.1], [0.5], [0.95]], "float32"))
    sampled = builder.emit(op.multinomial_from_uniform(builder.emit(op.nn.softmax(x)), uniform, rows))
    return (sampled, *(builder.emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in range(2)))


def scatters(builder: Any, x: Any) -> Any:
    """Updates of one place after the other, some of them of the same place, whose order counts."""
    rows, columns = (int(extent) for extent in x.ty.shape)
    places = np.random.default_rng(0).integers(0, rows, (7, columns)).astype("int64")
    updates = builder.emit(op.strided_slice(x, [0], [0], [7]))
    flat = builder.emit(op.reshape(x, (-1,)))
    some = relax.const(np.random.default_rng(1).integers(0, rows * columns, (9, 1)).astype("int64"))
    made = [op.scatter_elements(x, relax.const(places), updates, 0, kind) for kind in ("update", "add", "mul")]
    made += [op.scatter_nd(x, relax.const(places[:, :1]), updates, kind) for kind in ("update", "max")]
    made += [op.scatter_nd(flat, some, builder.emit(op.strided_slice(flat, [0], [3], [12])), "update")]
    return tuple(builder.emit(builder.normalize(one)) for one in made)


def odd_names() -> tvm.IRModule:
    """Kernels whose names are no words of C, or too long for a file's, and then the same in the beginning.

    So are names of tensors, which kernels of one op have from the model: those that torch writes to ONNX.
    """
    builder = relax.BlockBuilder()
    value: Any = relax.Var("/conv.1/x", relax.TensorType((6, 4), "float32"))
    with builder.function("main", [value]):
        with builder.dataflow():
            for number, name in enumerate(("3 of a-kind", "é.v1", *(f"{'long_' * 60}{n}" for n in "ab"))):
                kernel = _turned(tuple(map(int, value.ty.shape)), number)
                type_of_result = relax.TensorType(value.ty.shape.values[::-1], "float32")
                value = builder.emit(relax.call_tir(builder.add_func(kernel, name), [value], type_of_result))
            mean = builder.emit(op.mean(builder.emit(value, "/mean/in.0"), [0]), "/mean/out.0")
            result = builder.emit_output((value, mean))
        builder.emit_func_output(result)
    return builder.get()


def _turned(shape: tuple[int, ...], number: int) -> tirx.PrimFunc:
    x = te.placeholder(shape, "float32", "x")
    y = te.compute(shape[::-1], lambda i, j: x[j, i] * 2.0 + float(number))
    return te.create_prim_func([x, y]).without_attr("global_symbol")


WITHOUT_NUMBERS: Final = (
    np.array([np.nan, 1, -1, np.inf, -np.inf, 0.0, -0.0, 2.5, 1.5], "float32"),
    np.array([1, np.nan, np.nan, np.nan, 0, -0.0, 0.0, 1, np.nan], "float32"),
)


def bounds(builder: Any, x: Any, y: Any) -> Any:
    """What is larger or smaller where one is no number."""
    both = builder.emit(op.maximum(x, y)), builder.emit(op.minimum(x, y)), builder.emit(op.maximum(y, x))
    constants = op.maximum(x, constant_like(x, math.nan)), op.minimum(constant_like(x, math.inf), x)
    return (*both, builder.emit(nn.relu(x)), builder.emit(op.clip(y, -1, 2)), *map(builder.emit, constants))


def check_bounds(run: Callable[[Any, Sequence[Any]], Sequence[Any]], dtype: Any = np.float32) -> None:
    """``run``: a module on inputs. The results are those of the CPU, and so are the signs of zeros."""
    inputs = [x.astype(dtype) for x in WITHOUT_NUMBERS]
    mod = program(bounds, *(x.shape for x in inputs), dtype=np.dtype(dtype).name)
    expected = machine(mod)["main"](*map(tvm.runtime.tensor, inputs))
    for a, b in zip(expected, run(mod, inputs), strict=True):
        wanted, got = (one.astype("float32") for one in (a.numpy(), b))
        np.testing.assert_array_equal(got, wanted)
        is_zero = wanted == 0  # NaN may have either sign
        np.testing.assert_array_equal(np.signbit(got[is_zero]), np.signbit(wanted[is_zero]))


def sorts_of_all(builder: Any, x: Any) -> Any:
    """From the least to the largest, and three of the largest with their places."""
    top = builder.emit(op.topk(x, 3, ret_type="both", largest=True, dtype="int64"))
    largest, places = (builder.emit(relax.TupleGetItem(top, i)) for i in range(2))
    return builder.emit(op.sort(x)), builder.emit(op.argsort(x, dtype="int64")), largest, places


def check_sorts(run: Callable[[Any, Sequence[Any]], Sequence[Any]]) -> None:
    """NaN is the largest number, as NumPy and torch have it: places of elements are places of the row, each once."""
    x = np.array([[np.nan, 1, -1, np.inf, -np.inf], [np.nan] * 5, [2, np.nan, 3, np.nan, 0]], "float32")
    ascending, order, largest, places = run(program(sorts_of_all, x.shape), [x])
    np.testing.assert_array_equal(ascending, np.sort(x))
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(largest, np.sort(x)[:, :-4:-1])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), largest)
