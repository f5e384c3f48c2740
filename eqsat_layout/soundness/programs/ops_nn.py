"""Steps of random programs: convolutions, pooling, products of matrices, normalisations, resizing.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps. Convolutions and pools may be frozen
or desired in layouts of channels.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import relax
from tvm.relax import op as R

from eqsat_layout.soundness.programs.writer import EXTENTS, FunctionWriter, Step, dtype_of, is_static, shape_of

CONVOLUTION_LAYOUTS: Final = {
    3: (("NWC", "OWI"), ("NCW4c", "OIW4i4o"), ("NWC", "WIO")),
    4: (
        ("NHWC", "OHWI"),
        ("NCHW4c", "OIHW4i4o"),
        ("NCHW2c", "OIHW2o2i", "NHWC"),
        ("NHCW", "OIHW"),
        ("NCHW3c", "OIHW3i2o", "NCHW2c"),
        ("NHWC", "HWIO"),
    ),
    5: (("NDHWC", "ODHWI"), ("NCDHW2c", "OIDHW2i2o")),
}
POOL_LAYOUTS: Final = {
    3: (("NWC",), ("NCW2c",)),
    4: (("NHWC",), ("NCHW2c",), ("NHWC", "NCHW4c"), ("NCHW3c",)),
    5: (("NDHWC",), ("NCDHW2c",)),
}
_SPATIAL: Final = {3: "W", 4: "HW", 5: "DHW"}


def convolution(w: FunctionWriter, x: Any) -> Any:
    """A convolution along one, two or three axes; dense, grouped or depthwise; channels first or last."""
    shape = shape_of(x)
    if len(shape) not in _SPATIAL or not all(isinstance(e, int) for e in shape[1:]):
        return None
    spatial, choices, dtype = _SPATIAL[len(shape)], w.choices, dtype_of(x)
    last = len(shape) == 4 and choices.chance(30)
    c = shape[-1] if last else shape[1]
    sizes = shape[1:-1] if last else shape[2:]
    out, window = choices.choice((1, 2, 4, 8, 3)), choices.choice((1, 3, 2))
    if math.prod(shape[1:]) * window ** len(spatial) * out > 100_000:
        return None
    groups = 1 if last else choices.choice([1, 1, 1, c, *(d for d in (2, 3) if c % d == 0)])
    out = out * groups if groups < c else c * choices.choice((1, 1, 2)) if groups > 1 else out
    strides, dilation = choices.choice((1, 1, 2)), choices.choice((1, 1, 1, 2))
    padding = choices.choice((window // 2, 0, 1))
    if any(e + 2 * padding < (window - 1) * dilation + 1 for e in sizes) or out > 24:
        return None
    windows = (window,) * len(spatial)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"} if last else {}
    weight = w.constant((out, *windows, c) if last else (out, c // groups, *windows), dtype)
    op = {3: R.nn.conv1d, 4: R.nn.conv2d, 5: R.nn.conv3d}[len(shape)]
    count = len(spatial)
    made = w.emit(
        op(
            w.tame(x),
            weight,
            strides=[strides] * count,
            padding=[padding] * (2 * count),
            dilation=[dilation] * count,
            groups=groups,
            **layouts,
        ),
        grows=1,
    )
    if groups == 1 and is_static(x):
        w.freeze(f"relax.nn.conv{count}d", CONVOLUTION_LAYOUTS[len(shape)])
    return _with_bias(w, made, -1 if last else 1)


def _with_bias(w: FunctionWriter, x: Any, axis: int) -> Any:
    """Perhaps a bias and a relu: what usually stands behind a convolution."""
    if not w.choices.chance(40):
        return x
    channels = shape_of(x)[axis]
    shape = [channels if a == axis % len(shape_of(x)) else 1 for a in range(len(shape_of(x)))]
    y = w.emit(R.add(x, w.constant(shape[w.choices.choice((0, 1)) :], dtype_of(x))))
    return w.emit(R.nn.relu(y), rough=False)


def transposed_convolution(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if len(shape) not in (3, 4) or not is_static(x) or math.prod(shape[1:]) > 600:
        return None
    count = len(shape) - 2
    out, window = w.choices.choice((1, 2, 4)), w.choices.choice((2, 3))
    strides = w.choices.choice((1, 2))
    weight = w.constant((shape[1], out, *(window,) * count), dtype_of(x))
    op = R.nn.conv2d_transpose if count == 2 else R.nn.conv1d_transpose
    return w.emit(op(w.tame(x), weight, strides=[strides] * count, padding=[0] * (2 * count)), grows=1)


def pooling(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if len(shape) not in _SPATIAL or not all(isinstance(e, int) for e in shape[1:]):
        return None
    count, choices = len(shape) - 2, w.choices
    last = count == 2 and choices.chance(40)
    if count == 2 and choices.chance(20):
        sizes = shape[1:3] if last else shape[2:]
        output = tuple(next(d for d in (2, 3, 1) if e % d == 0) for e in sizes)
        return w.emit(R.nn.adaptive_avg_pool2d(x, output, layout="NHWC" if last else "NCHW"))
    mean = choices.chance(40)
    ops = {
        3: (R.nn.max_pool1d, R.nn.avg_pool1d),
        4: (R.nn.max_pool2d, R.nn.avg_pool2d),
        5: (R.nn.max_pool3d, R.nn.avg_pool3d),
    }
    options: dict[str, Any] = {"layout": "NHWC"} if last else {}
    if mean:
        options["count_include_pad"] = choices.chance(50)
    strides = choices.choice((1, 2))
    op = ops[len(shape)][mean]
    options |= {"pool_size": (2,) * count, "strides": (strides,) * count, "padding": (1,) * (2 * count)}
    made = w.emit(op(x, **options), rough=None if mean else False)
    if is_static(x):
        w.freeze(f"relax.nn.{'avg' if mean else 'max'}_pool{count}d", POOL_LAYOUTS[len(shape)])
    return made


def matmul(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if not shape or not isinstance(shape[-1], int):
        return None
    x = w.tame(x)
    if len(shape) > 1 and w.choices.chance(30):
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return w.emit(R.matmul(x, w.emit(R.permute_dims(x, order), rough=False)), grows=1)
    width = w.choices.choice(EXTENTS)
    batch = shape[:-2] if is_static(x) and w.choices.chance(25) else ()
    weight = w.constant((*batch, shape[-1], width), dtype_of(x))
    made = w.emit(R.matmul(x, weight), grows=1)
    return _with_bias(w, made, -1) if len(shape) > 1 else made


def softmax(w: FunctionWriter, x: Any) -> Any:
    fixed = [a for a, e in enumerate(shape_of(x)) if isinstance(e, int)]
    if not fixed:
        return None
    return w.emit(w.choices.choice((R.nn.softmax, R.nn.log_softmax))(x, axis=w.choices.choice(fixed)))


def normalisation(w: FunctionWriter, x: Any) -> Any:
    shape, dtype, choices = shape_of(x), dtype_of(x), w.choices
    if not shape or not is_static(x) or dtype != "float32":
        return None
    x = w.tame(x)
    kind = choices.below(5)
    if kind == 0 or len(shape) < 3:
        axes = sorted(choices.some(range(len(shape)), 40)) or [len(shape) - 1]
        own = [shape[a] for a in axes]
        return w.emit(R.nn.layer_norm(x, w.constant(own), w.constant(own), axes=axes, epsilon=1e-1))
    if kind == 1:
        return w.emit(R.nn.rms_norm(x, w.constant(shape[-1:]), axes=[-1], epsilon=1e-1))
    channels, others = shape[1], list(range(2, len(shape)))
    gamma, beta = w.constant((channels,)), w.constant((channels,))
    if kind == 2:
        groups = choices.choice([d for d in (1, 2, 4) if channels % d == 0])
        return w.emit(R.nn.group_norm(x, gamma, beta, num_groups=groups, channel_axis=1, axes=others, epsilon=1e-1))
    if kind == 3:
        return w.emit(R.nn.instance_norm(x, gamma, beta, channel_axis=1, axes=others, epsilon=1e-1))
    spread = relax.const(abs(w.constant((channels,)).value.numpy()) + 0.5)
    whole = w.emit(R.nn.batch_norm(x, gamma, beta, gamma, spread, axis=1, training=False))
    return w.emit(relax.TupleGetItem(whole, 0))


def resize(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if len(shape) != 4 or not is_static(x) or dtype_of(x) != "float32" or math.prod(shape) > 800:
        return None
    last = w.choices.chance(40)
    height, width = shape[1:3] if last else shape[2:]
    size = (2 * height, w.choices.choice((2, 1)) * width)
    method = w.choices.choice(("nearest_neighbor", "linear"))
    mode = w.choices.choice(("half_pixel", "asymmetric"))
    options = {"layout": "NHWC" if last else "NCHW", "method": method, "coordinate_transformation_mode": mode}
    return w.emit(R.image.resize2d(x, size, rounding_method="floor", **options))


def pad(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if not shape or not is_static(x):
        return None
    widths = [w.choices.choice((0, 0, 1, 2)) for _ in range(2 * len(shape))]
    value = w.choices.choice((0.0, 0.0, 1.5))
    return w.emit(R.nn.pad(x, widths, pad_value=value), rough=False)


NETWORK_KINDS: dict[Step, int] = {
    convolution: 6, transposed_convolution: 1, pooling: 3, matmul: 2, softmax: 1, normalisation: 2, resize: 1, pad: 2,
}  # fmt: skip
