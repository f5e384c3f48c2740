"""What calibration times on a CPU: the project's own kernels.

In: the machine. Out: workloads for the constants of the roofline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from tvm import relax, te, tirx

from eqsat_layout.passes.fuse import OPAQUE
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.protocol import Workload

_CHAIN: Final = 100
_SERIAL, _PARALLEL = 16, 8192
"""Elements of the op that is nothing but its launch: with one thread; with several, more than schedules keep serial."""
_BLOCK: Final = 16


def workloads(machine: CpuMachine, cache_bytes: int, quick: bool) -> list[Workload]:
    """Launch, streams, layout transforms and convolutions; ``quick``: fewer of them."""
    launch = _launch(_SERIAL if machine.cores == 1 else _PARALLEL)
    return [launch, *_streams(cache_bytes), *_rewrites(quick), *_convolutions(quick)]


def _launch(elements: int) -> Workload:
    """A chain of kernels that TVM may not fuse."""
    operand = te.placeholder((elements,), name="x")
    result = te.compute((elements,), lambda i: operand[i] + tirx.const(1.0, "float32"))
    func = te.create_prim_func([operand, result], index_dtype_override="int64").without_attr("global_symbol")
    func = func.with_attr("op_pattern", OPAQUE)

    def emit(builder: Any, given: Sequence[Any]) -> Any:
        return relax.call_tir(builder.add_func(func, "tiny"), given[0], relax.TensorType((elements,), "float32"))

    return Workload("launch", "a tiny op", emit, [np.zeros(elements, "float32")], 4 * elements, 0.0, chained=_CHAIN)


def _streams(cache_bytes: int) -> Iterator[Workload]:
    """Additions of tensors each of which fills the last-level cache."""
    channels = max(16, cache_bytes // (4 * 512 * 512))
    x = _random(1, channels, 512, 512)
    yield _of_op("bandwidth", "add", lambda a, b: relax.op.add(a, b), [x, x], x.nbytes, 3 * x.nbytes)


def _rewrites(quick: bool) -> Iterator[Workload]:
    """Channels into blocks and back, of a tensor of some MB; the median counts."""

    def pack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w: (n, c // _BLOCK, h, w, c % _BLOCK))

    def unpack(x: Any) -> Any:
        return relax.op.layout_transform(x, lambda n, c, h, w, b: (n, c * _BLOCK + b, h, w))

    for channels, size in ((64, 112),) if quick else ((64, 112), (256, 56), (512, 28)):
        plain, packed = _random(1, channels, size, size), _random(1, channels // _BLOCK, size, size, _BLOCK)
        for name, op, operand in (("pack", pack, plain), ("unpack", unpack, packed)):
            yield _of_op("rewrite_bandwidth", name, op, [operand], plain.nbytes, 2 * plain.nbytes, is_best=False)


def _convolutions(quick: bool) -> Iterator[Workload]:
    """Convolutions in blocks of channels, without borders: what schedules do best."""

    def convolve(x: Any, w: Any) -> Any:
        layouts = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c"}
        return relax.op.nn.conv2d(x, w, **layouts)

    shapes = ((64, 56, 1), (64, 56, 3), (128, 28, 1), (128, 28, 3), (256, 56, 1))
    for channels, size, window in shapes[:2] if quick else shapes:
        blocks, wide = channels // _BLOCK, size + window - 1
        operands = [_random(1, blocks, wide, wide, _BLOCK), _random(blocks, blocks, window, window, _BLOCK, _BLOCK)]
        elements = channels * size * size
        flops = 2.0 * elements * channels * window * window
        yield _of_op("flops", f"convolution {window}x{window}", convolve, operands, 4 * elements, flops)


def _of_op(
    constant: str,
    name: str,
    op: Callable[..., Any],
    operands: Sequence[Any],
    result_bytes: int,
    work: float,
    *,
    is_best: bool = True,
) -> Workload:
    return Workload(constant, name, lambda _, given: op(*given), operands, result_bytes, work, is_best=is_best)


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, "float32") + np.float32(0.5)
