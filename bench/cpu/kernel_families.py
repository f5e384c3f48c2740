"""The kernels of ``bench.cpu.kernels``, family by family, each with what torch does for it.

In: the block of channels that the machine likes. Out: :class:`Kernel` after kernel, in the order of the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """``emit`` puts it into a program; ``torch`` makes of its operands a function that runs it there.

    ``flops`` of the direct algorithm, ``shapes`` of operands and result, float32. ``whole``: it is compiled as
    users do, with layout transforms at both ends.
    """

    family: str
    name: str
    emit: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    flops: float = 0.0
    torch: Callable[[list[Any]], Callable[[], Any]] | None = None
    whole: bool = False

    @property
    def bytes(self) -> float:
        return 4.0 * sum(math.prod(s) for s in (*self.shapes, self.result))


def kernels(block: int) -> Iterator[Kernel]:
    """All kernels, with channels in blocks of ``block``."""
    yield from _convolutions(block)
    yield from _winograd()
    yield from _depthwise(block)
    yield from _products(block)
    yield from _attention()
    yield from _others(block)


def _convolutions(block: int) -> Iterator[Kernel]:
    cases = [(64, 64, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1), (144, 24, 56, 1, 1, 1), (512, 128, 28, 1, 1, 1)]
    cases += [(256, 1024, 14, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (512, 2048, 7, 1, 1, 1), (1024, 2048, 7, 1, 2, 1)]
    cases += [(64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1)]
    cases += [(128, 128, 28, 3, 2, 1), (256, 256, 14, 3, 1, 2)]
    for inputs, outputs, size, window, stride, dilation in cases:
        reach = (window - 1) * dilation
        data = (1, inputs // block, (size - 1) * stride + 1, (size - 1) * stride + 1, block)
        filled = -(-outputs // block)
        weight = (filled, inputs // block, window, window, block, block)

        def emit(x: Any, w: Any, stride: int = stride, reach: int = reach, dilation: int = dilation) -> Any:
            return _nn().conv2d(
                x, w, stride, reach // 2, dilation, data_layout=f"NCHW{block}c", kernel_layout=f"OIHW{block}i{block}o"
            )

        name = f"{inputs} to {outputs}, {size}x{size}" + (", stride 2" if stride == 2 else "")
        name += ", dilated" if dilation > 1 else ""
        torch = _torch_convolution(inputs, outputs, size, window, stride, dilation, 1)
        flops = 2.0 * inputs * filled * block * size * size * window * window
        family = f"convolution {window}x{window}"
        yield Kernel(family, name, emit, (data, weight), (1, filled, size, size, block), flops, torch)

    def first(x: Any, w: Any) -> Any:
        return _nn().conv2d(x, w, 2, 3, data_layout="NHWC", kernel_layout="HWIO")

    torch = _torch_convolution(3, 64, 112, 7, 2, 1, 1)
    shapes = ((1, 224, 224, 3), (7, 7, 3, 64))
    yield Kernel("convolution, first", "3 to 64, 7x7, stride 2", first, shapes, (1, 112, 112, 64), 236e6, torch)
    for size, channels in ((56, 256), (14, 512)):

        def last(x: Any, w: Any) -> Any:
            return _nn().conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO")

        given = ((1, size, size, channels // 4), (3, 3, channels // 4, channels))
        flops = 2.0 * 9 * size * size * channels * channels // 4
        torch = _torch_convolution(channels // 4, channels, size, 3, 1, 1, 1)
        name = f"{channels // 4} to {channels}, 3x3, {size}x{size}"
        yield Kernel("convolution, NHWC", name, last, given, (1, size, size, channels), flops, torch)


def _winograd() -> Iterator[Kernel]:
    for channels, size in ((64, 56), (128, 28), (256, 14), (64, 128)):

        def emit(x: Any, w: Any) -> Any:
            return _nn().conv2d(x, w, padding=1)

        flops = 2.0 * 9 * channels * channels * size * size
        shapes = ((1, channels, size, size), (channels, channels, 3, 3))
        torch = _torch_convolution(channels, channels, size, 3, 1, 1, 1)
        name = f"{channels}, {size}x{size}, with transforms"
        yield Kernel("convolution 3x3, as chosen", name, emit, shapes, shapes[0], flops, torch, whole=True)


def _depthwise(block: int) -> Iterator[Kernel]:
    for channels, size, stride in ((96, 56, 2), (144, 56, 1), (384, 14, 1)):
        blocks, wide = channels // block, (size - 1) * stride + 1

        def emit(x: Any, w: Any, groups: int = channels, stride: int = stride) -> Any:
            layouts = {"data_layout": f"NCHW{block}c", "kernel_layout": f"OIHW1i{block}o"}
            return _nn().conv2d(x, w, stride, 1, groups=groups, **layouts)

        shapes = ((1, blocks, wide, wide, block), (blocks, 1, 3, 3, 1, block))
        name = f"{channels}, {size}x{size}" + (", stride 2" if stride == 2 else "")
        torch = _torch_convolution(channels, channels, size, 3, stride, 1, channels)
        flops = 18.0 * channels * size * size
        yield Kernel("depthwise 3x3", name, emit, shapes, (1, blocks, size, size, block), flops, torch)

    def grouped(x: Any, w: Any) -> Any:
        return _nn().conv2d(x, w, padding=1, groups=32)

    given = ((1, 256, 14, 14), (256, 8, 3, 3))
    torch = _torch_convolution(256, 256, 14, 3, 1, 1, 32)
    yield Kernel("grouped", "256 in 32 groups, 14x14", grouped, given, given[0], 18.0 * 8 * 256 * 196, torch)

    def transposed(x: Any, w: Any) -> Any:
        return _nn().conv2d_transpose(x, w, 2)

    given = ((1, 256, 32, 32), (256, 128, 2, 2))
    flops = 2.0 * 256 * 128 * 4 * 1024

    def torch_transposed(given: list[Any]) -> Callable[[], Any]:
        import torch

        return lambda: torch.nn.functional.conv_transpose2d(given[0], given[1], stride=2)

    result = (1, 128, 64, 64)
    yield Kernel("transposed", "256 to 128, 2x2", transposed, given, result, flops, torch_transposed, whole=True)


def _products(block: int) -> Iterator[Kernel]:
    from tvm import te

    for rows, depth, columns in ((128, 768, 3072), (128, 3072, 768), (197, 768, 768), (1, 2048, 1000)):
        if columns % block:
            continue

        def product(x: Any, w: Any, rows: int = rows, depth: int = depth, columns: int = columns) -> Any:
            k = te.reduce_axis((0, depth), "k")
            return te.compute(
                (rows, columns), lambda i, j: te.sum(x[i, k] * w[j // block, k, j % block], axis=k), name="product"
            )

        shapes = ((rows, depth), (columns // block, depth, block))
        flops = 2.0 * rows * depth * columns
        name = f"{rows} x {depth} x {columns}"
        torch = _torch_of(lambda t, x, w: t.matmul(x, w), (rows, depth), (depth, columns))
        yield Kernel("matrix product, packed", name, _te(product), shapes, (rows, columns), flops, torch)
    for heads, rows, depth, columns in ((12, 128, 64, 128), (12, 128, 128, 64), (12, 197, 197, 64)):
        given = ((heads, rows, depth), (heads, depth, columns))
        flops = 2.0 * heads * rows * depth * columns
        name = f"{heads} x {rows} x {depth} x {columns}"
        torch = _torch_of(lambda t, x, y: t.matmul(x, y), *given)
        yield Kernel("matrix products", name, _op("matmul"), given, (heads, rows, columns), flops, torch)


def _attention() -> Iterator[Kernel]:
    """Queries, keys as columns, values: one kernel where scores are many."""
    for heads, keys, size in ((12, 128, 64), (12, 512, 64), (12, 1024, 64), (8, 2048, 64)):
        rows, columns = (heads, keys, size), (heads, size, keys)

        def attended(q: Any, k: Any, v: Any, size: int = size) -> Any:
            from tvm import relax

            scores = relax.op.multiply(relax.op.matmul(q, k), relax.const(size**-0.5, "float32"))
            return relax.op.matmul(_nn().softmax(scores), v)

        flops = 4.0 * heads * keys * keys * size
        torch = _torch_of(lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v), rows, rows, rows)
        name = f"{heads} heads, {keys} keys, {size}"
        yield Kernel("attention", name, attended, (rows, columns, rows), rows, flops, torch, whole=True)


def _others(block: int) -> Iterator[Kernel]:
    scores = (12, 128, 128)

    def softmax(x: Any) -> Any:
        return _nn().softmax(x)

    torch = _torch_of(lambda t, x: t.softmax(x, -1), scores)
    yield Kernel("softmax", "12 x 128 x 128", softmax, (scores,), scores, torch=torch)
    tokens = (128, 768)

    def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
        return _nn().layer_norm(x, gain, bias, axes=[-1])

    torch = _torch_of(lambda t, x, g, b: t.layer_norm(x, (768,), g, b), tokens, (768,), (768,))
    yield Kernel("layer norm", "128 x 768", layer_norm, (tokens, (768,), (768,)), tokens, torch=torch)

    def group_norm(x: Any, gain: Any, bias: Any) -> Any:
        return _nn().group_norm(x, gain, bias, num_groups=8, channel_axis=1, axes=[2, 3])

    image = (1, 64, 56, 56)
    torch = _torch_of(lambda t, x, g, b: t.nn.functional.group_norm(x, 8, g, b), image, (64,), (64,))
    yield Kernel("group norm", "64, 56x56, 8 groups", group_norm, (image, (64,), (64,)), image, torch=torch)
    hidden = (128, 3072)

    def gelu(x: Any) -> Any:
        return _nn().gelu(x)

    torch = _torch_of(lambda t, x: t.nn.functional.gelu(x), hidden)
    yield Kernel("elementwise", "gelu, 128 x 3072", gelu, (hidden,), hidden, torch=torch)
    torch = _torch_of(lambda t, x, y: x + y, image, image)
    yield Kernel("elementwise", "add, 64, 56x56", _op("add"), (image, image), image, torch=torch)

    def pool(x: Any) -> Any:
        return _nn().max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout=f"NCHW{block}c", out_layout=f"NCHW{block}c")

    packed = (1, 64 // block, 112, 112, block)
    torch = _torch_of(lambda t, x: t.max_pool2d(x, 3, 2, 1), (1, 64, 112, 112))
    yield Kernel("pooling", "max 3x3, 64, 112x112", pool, (packed,), (1, 64 // block, 56, 56, block), torch=torch)

    for method, theirs in (("linear", "bilinear"), ("cubic", "bicubic")):
        resize = partial(_resize, method=method)
        torch = _torch_of(lambda t, x, mode=theirs: t.nn.functional.interpolate(x, scale_factor=2, mode=mode), image)
        yield Kernel("resize", f"64, 56x56 to 112x112, {method}", resize, (image,), (1, 64, 112, 112), torch=torch)
    yield from _layout_transforms(block)


def _layout_transforms(block: int) -> Iterator[Kernel]:
    from tvm import relax

    plain, packed = (1, 256, 56, 56), (1, 256 // block, 56, 56, block)

    def pack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w: (n, c // block, h, w, c % block))

    def unpack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w, b: (n, c * block + b, h, w))

    yield Kernel("layout transform", f"256, 56x56 to NCHW{block}c", pack, (plain,), packed)
    yield Kernel("layout transform", f"NCHW{block}c to 256, 56x56", unpack, (packed,), plain)
    for name, shape, axes in (
        ("256, 56x56 to NHWC", plain, (0, 2, 3, 1)),
        ("NHWC to 256, 56x56", (1, 56, 56, 256), (0, 3, 1, 2)),
        ("768 x 3072, turned", (768, 3072), (1, 0)),
    ):
        permute = partial(relax.op.permute_dims, axes=axes)
        torch = _torch_of(lambda t, x, axes=axes: x.permute(axes).contiguous(), shape)
        result = tuple(shape[axis] for axis in axes)
        yield Kernel("layout transform", name, permute, (shape,), result, torch=torch)


def _resize(x: Any, *, method: str) -> Any:
    from tvm import relax

    return relax.op.image.resize2d(x, (112, 112), layout="NCHW", method=method)


def _nn() -> Any:
    from tvm import relax

    return relax.op.nn


def _op(name: str) -> Callable[..., Any]:
    from tvm import relax

    op: Callable[..., Any] = getattr(relax.op, name)
    return op


def _te(function: Callable[..., Any]) -> Callable[..., Any]:
    def emit(builder: Any, *operands: Any) -> Any:
        return builder.call_te(function, *operands)

    emit.needs_builder = True  # type: ignore[attr-defined]
    return emit


# ---- torch ------------------------------------------------------------------------------------------------------


def _torch_convolution(
    inputs: int, outputs: int, size: int, window: int, stride: int, dilation: int, groups: int
) -> Callable[[list[Any]], Callable[[], Any]]:
    def make(_: list[Any]) -> Callable[[], Any]:
        import torch
        from torch.utils import mkldnn

        padding = (window - 1) * dilation // 2
        layer = torch.nn.Conv2d(inputs, outputs, window, stride, padding, dilation, groups, bias=False).eval()
        wide = (size - 1) * stride + 1 + (stride if window == 7 else 0)
        data = torch.rand(1, inputs, wide, wide).to_mkldnn()
        packed = mkldnn.to_mkldnn(layer)
        return lambda: packed(data)

    return make


def _torch_of(function: Callable[..., Any], *shapes: Sequence[int]) -> Callable[[list[Any]], Callable[[], Any]]:
    def make(_: list[Any]) -> Callable[[], Any]:
        import torch

        operands = [torch.rand(*shape) for shape in shapes]
        return lambda: function(torch, *operands)

    return make
