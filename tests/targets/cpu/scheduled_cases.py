"""Programs with their shapes, one of each kind of kernel."""

from __future__ import annotations

from tvm import relax

nn, op = relax.op.nn, relax.op


def conv(emit, x, w, **attrs):
    return emit(nn.conv2d(x, w, **attrs))


def conv_relu_residual(emit, x, w, b, r):
    y = emit(nn.conv2d(x, w, padding=1, data_layout="NCHW8c", kernel_layout="OIHW8i8o"))
    return emit(nn.relu(emit(op.add(emit(op.add(y, b)), r))))


CASES = {
    "add": (lambda emit, x, y: emit(op.add(x, y)), (4, 100), (100,)),
    "relu of odd size": (lambda emit, x: emit(nn.relu(x)), (3, 7, 11)),
    "scalar result": (lambda emit, x: emit(op.sum(x)), (6, 9)),
    "transpose": (lambda emit, x: emit(op.permute_dims(x, (0, 2, 3, 1))), (1, 32, 9, 10)),
    "layout transform": (
        lambda emit, x: emit(op.layout_transform(x, index_map=lambda n, c, h, w: (n, c // 16, h, w, c % 16))),
        (1, 64, 12, 12),
    ),
    "concat": (lambda emit, x, y: emit(nn.relu(emit(op.concat([x, y], axis=1)))), (1, 6, 8, 8), (1, 3, 8, 8)),
    "concat of channels last": (
        lambda emit, x, y, z: emit(nn.relu(emit(op.concat([x, emit(op.concat([y, z], axis=3))], axis=3)))),
        (1, 8, 9, 48),
        (1, 8, 9, 16),
        (1, 8, 9, 32),
    ),
    "concat of odd channels last": (lambda emit, x, y: emit(op.concat([x, y], axis=3)), (1, 8, 9, 7), (1, 8, 9, 9)),
    "gelu twice read": (lambda emit, x: emit(op.multiply(emit(nn.gelu(x)), x)), (16, 33)),
    "softmax": (lambda emit, x: emit(nn.softmax(x)), (6, 40)),
    "softmax of prime width": (lambda emit, x: emit(nn.softmax(x)), (6, 37)),
    "layer norm": (lambda emit, x, g, b: emit(nn.layer_norm(x, g, b, axes=[-1])), (12, 64), (64,), (64,)),
    "group norm": (
        lambda emit, x, g, b: emit(nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3])),
        (1, 8, 6, 6),
        (8,),
        (8,),
    ),
    "sum over channels": (lambda emit, x: emit(op.sum(x, axis=[1])), (2, 24, 8, 8)),
    "mean of planes": (lambda emit, x: emit(op.mean(x, axis=[2, 3])), (2, 24, 7, 7)),
    "max pool": (
        lambda emit, x: emit(nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1))),
        (1, 8, 18, 18),
    ),
    "max pool packed": (
        lambda emit, x: emit(
            nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1), layout="NCHW8c", out_layout="NCHW8c")
        ),
        (1, 2, 17, 17, 8),
    ),
    "average pool": (lambda emit, x: emit(nn.avg_pool2d(x, (3, 3), padding=(1, 1, 1, 1))), (1, 4, 12, 12)),
    "matmul": (lambda emit, x, y: emit(op.matmul(x, y)), (24, 40), (40, 48)),
    "matmul with bias": (
        lambda emit, x, y, b: emit(nn.relu(emit(op.add(emit(op.matmul(x, y)), b)))),
        (24, 40),
        (40, 48),
        (48,),
    ),
    "matmul of transposed weights": (
        lambda emit, x, y: emit(op.matmul(x, emit(op.permute_dims(y)))),
        (24, 40),
        (48, 40),
    ),
    "matmul of prime sizes": (lambda emit, x, y: emit(op.matmul(x, y)), (3, 67, 64), (3, 64, 67)),
    "vector times matrix": (lambda emit, x, y: emit(op.matmul(x, y)), (1, 256), (256, 100)),
    "conv NCHW": (lambda emit, x, w: conv(emit, x, w, padding=1), (1, 16, 14, 14), (24, 16, 3, 3)),
    "conv NCHW strided": (lambda emit, x, w: conv(emit, x, w, strides=2), (1, 16, 15, 15), (24, 16, 1, 1)),
    "conv NHWC": (
        lambda emit, x, w: conv(emit, x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        (2, 9, 9, 16),
        (3, 3, 16, 32),
    ),
    "conv packed": (
        lambda emit, x, w: conv(emit, x, w, strides=2, padding=3, data_layout="NCHW16c", kernel_layout="OIHW16i16o"),
        (1, 1, 20, 20, 16),
        (2, 1, 7, 7, 16, 16),
    ),
    "conv packed with epilogue": (
        conv_relu_residual,
        (1, 2, 7, 7, 8),
        (4, 2, 3, 3, 8, 8),
        (1, 4, 1, 1, 8),
        (1, 4, 7, 7, 8),
    ),
    "conv grouped": (lambda emit, x, w: conv(emit, x, w, groups=4), (1, 16, 10, 10), (32, 4, 3, 3)),
    "conv depthwise": (lambda emit, x, w: conv(emit, x, w, padding=1, groups=16), (1, 16, 14, 14), (16, 1, 3, 3)),
    "conv depthwise packed": (
        lambda emit, x, w: conv(emit, x, w, padding=1, groups=16, data_layout="NCHW8c", kernel_layout="OIHW1i8o"),
        (1, 2, 14, 14, 8),
        (2, 1, 3, 3, 1, 8),
    ),
    "conv transposed": (
        lambda emit, x, w: emit(nn.conv2d_transpose(x, w, strides=2)),
        (1, 8, 7, 7),
        (8, 16, 2, 2),
    ),
    "conv 1d": (lambda emit, x, w: emit(nn.conv1d(x, w, padding=1)), (1, 8, 30), (16, 8, 3)),
    "resize": (
        lambda emit, x: emit(op.image.resize2d(x, (16, 16), layout="NCHW", method="linear")),
        (1, 4, 8, 8),
    ),
    "variance of columns that no vector divides": (  # the mean is read by another stage
        lambda emit, x: emit(op.variance(x, axis=[1])),
        (3, 8, 75),
    ),
    "running sum": (lambda emit, x: emit(op.cumsum(x, axis=-1)), (4, 20)),
}
