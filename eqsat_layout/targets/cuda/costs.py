"""What kernels cost on a GPU: rooflines of memory and of the arithmetic that a layout lets a kernel use.

In: an op, the formats of its operands and results, a machine. Out: modelled seconds (Williams et al. 2009). Tensor
cores are fed by copies of 16 bytes: a product whose operands lie otherwise runs on the ordinary units. The shares of
peak are assumed, none was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import RESULT, dtype_bytes
from eqsat_layout.cost.vectorise import Heaviest, address_step, heaviest, padded_work, slides
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.tir.computation import SYMBOL_SIZE, Access, Block

_COPY: Final = 16
"""Bytes of an asynchronous copy."""
_MOST_WASTE: Final = 4.0
"""Times as many bytes that lie apart take at most: neighbours of the warp find the rest in a cache."""
_TENSOR: Final = 0.6
"""Of peak that is left on tensor cores."""
_ORDINARY: Final = 0.35
"""Of peak that is left on the ordinary units."""
_L2: Final = 2.5
"""Times as fast as memory the L2 cache is."""
_PERMUTING: Final = 0.6
"""Of the bandwidth that is left to a copy that permutes."""
_TILE: Final = 64 * 64
"""Elements of the result of a product that one block computes, about."""
_PARTS: Final = 3.0
"""Products on tensor cores for one of float32 that rounds as such (3xTF32; Ootomo and Yokota 2022)."""


@dataclass(frozen=True)
class CudaRoofline:
    """A :class:`~eqsat_layout.cost.model.CostModel`. ``approx``: products of float32 may run on tensor cores."""

    machine: CudaMachine
    approx: bool = True

    def run(
        self,
        op: Signature,
        operands: Sequence[Format | None],
        results: Sequence[Format | None],
        *,
        fused: frozenset[int] = frozenset(),
    ) -> float:
        """A launch and the slower of memory and arithmetic."""
        if op.parts:
            return 0.0
        heavy = None if op.computation is None else heaviest(op.computation, operands, results)
        wastes = {} if heavy is None else _wastes(heavy)
        seconds = 0.0
        for number, (tensor, fmt) in enumerate(zip(op.operands, operands, strict=True)):
            if tensor is not None and fmt is not None and number not in fused:
                seconds += self._moved(tensor, fmt) * wastes.get(number, 1.0)
        for tensor, fmt in zip(op.results, results, strict=True):
            if tensor is not None and fmt is not None and RESULT not in fused:
                seconds += self._moved(tensor, fmt)
        launch = 0.0 if any(i >= 0 for i in fused) else self.machine.launch_seconds
        return launch + max(seconds, self._arithmetic(op, heavy, operands, results))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """A kernel of its own, through shared memory; a kernel beside it permutes by the way."""
        before, after = self._moved(tensor, source), self._moved(tensor, target)
        if fused:
            return max(0.0, max(before, after) / _PERMUTING - before)
        return self.machine.launch_seconds + (before + after) / _PERMUTING

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """Read from memory once, cold."""
        return _bytes(tensor, fmt) / self.machine.bandwidth

    def _moved(self, tensor: TensorType, fmt: Format) -> float:
        """Seconds; what is small lies in the L2 cache still."""
        size = _bytes(tensor, fmt)
        return size / (self.machine.bandwidth * (_L2 if size * 2 <= self.machine.l2_bytes else 1.0))

    def _arithmetic(
        self,
        op: Signature,
        heavy: Heaviest | None,
        operands: Sequence[Format | None],
        results: Sequence[Format | None],
    ) -> float:
        computation = op.computation
        if computation is None or not computation.flops:
            return 0.0
        work = computation.flops * padded_work(computation, operands, results)
        dtype = next((ty.dtype for ty in (*op.operands, *op.results) if ty is not None), "float32")
        peak, tile = self.machine.flops["float32"] * _ORDINARY, 256.0
        if heavy is not None and heavy.block.is_contraction and _feeds_tensor_cores(heavy, dtype):
            peak, tile = max(self._on_tensor_cores(dtype), peak), float(_TILE)
        return work / (peak * self._share_of_machine(op, tile))

    def _on_tensor_cores(self, dtype: str) -> float:
        """Operations a second, 0 where there is no way to compute such on them."""
        if dtype == "float32":
            return self.machine.flops["tensorfloat32"] * _TENSOR / _PARTS if self.approx else 0.0
        return self.machine.flops.get(dtype, 0.0) * _TENSOR

    def _share_of_machine(self, op: Signature, tile: float) -> float:
        """Of the multiprocessors that the blocks of the result keep busy, over all waves; a split sum keeps half."""
        elements = max((math.prod(_sizes(ty)) for ty in op.results if ty is not None), default=1)
        blocks = max(1.0, elements / tile)
        waves = math.ceil(blocks / self.machine.multiprocessors)
        return max(blocks / (waves * self.machine.multiprocessors), min(0.5, blocks * 4 / self.machine.multiprocessors))


def _sizes(tensor: TensorType) -> list[int]:
    return [extent if isinstance(extent, int) else SYMBOL_SIZE for extent in tensor.shape]


def _bytes(tensor: TensorType, fmt: Format) -> float:
    return fmt.elements(SYMBOL_SIZE) * dtype_bytes(tensor.dtype)


def _wastes(heavy: Heaviest) -> dict[int, float]:
    """By operand how many times its bytes are read: neighbours of a warp read neighbours, or sectors each."""
    if heavy.step is None or heavy.block.is_contraction:
        return {}
    variable, stride, _ = heavy.step
    found: dict[int, float] = {}
    for read, fmt in heavy.reads:
        if read.buffer in heavy.operands:
            step = address_step(heavy.block, read, fmt, variable, stride, 1)
            far = _MOST_WASTE if step is None else min(_MOST_WASTE, max(1.0, float(abs(step))))
            found[heavy.operands.index(read.buffer)] = far
    return found


def _feeds_tensor_cores(heavy: Heaviest, dtype: str) -> bool:
    """Each operand has a variable along which 16 bytes lie side by side and start at 16 bytes."""
    count = max(1, round(_COPY / dtype_bytes(dtype)))
    return heavy.is_known and all(_has_run(heavy.block, read, fmt, count) for read, fmt in heavy.reads)


def _has_run(block: Block, read: Access, fmt: Format, count: int) -> bool:
    for variable, extent in enumerate(block.extents):
        if not isinstance(extent, int) or extent % count:
            continue
        if address_step(block, read, fmt, variable, 1, count - 1) == count - 1:
            return not slides(read, variable)
    return False
