"""What kernels cost on a GPU: of products the plan that the build takes, of all else a roofline.

In: an op, the formats of its operands and results, a machine. Out: modelled seconds (Williams et al. 2009 for
rooflines). The shares of peak are assumed, none was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from eqsat_layout.cost.addresses import address_step
from eqsat_layout.cost.model import RESULT, dtype_bytes
from eqsat_layout.cost.touched_memory import padded_work
from eqsat_layout.cost.vectorise import Heaviest, heaviest
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats
from eqsat_layout.targets.cuda.kernels.product_model import ProductModel
from eqsat_layout.targets.cuda.kernels.product_plan import arithmetic_of
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.planned_products import planned_product
from eqsat_layout.tir.computation import SYMBOL_SIZE, Computation, assumed_size

_MOST_WASTE: Final = 4.0
"""Times as many bytes that lie apart take at most: neighbours of the warp find the rest in a cache."""
_ORDINARY: Final = 0.35
"""Of peak that is left on the ordinary units."""
_SLIDING: Final = 3.0
"""Times as long as that where the lanes of a vector slide along windows: they are loaded one by one (assumed)."""
_L2: Final = 2.5
"""Times as fast as memory the L2 cache is."""
_PERMUTING: Final = 0.6
"""Of the bandwidth that is left to a copy that permutes."""
_TILE: Final = 256.0
"""Elements of the result that one block computes on the ordinary units, about."""


@dataclass(frozen=True)
class CudaRoofline:
    """A :class:`~eqsat_layout.cost.model.CostModel`. ``approx``: products of float32 may run on tensor cores."""

    machine: CudaMachine
    approx: bool = True
    _known: dict[ProductShape, tuple[float, float]] = field(default_factory=dict, compare=False, repr=False)

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """A launch and the slower of memory and arithmetic; a product as its kernel will be."""
        if op.parts:
            return 0.0
        heavy = None if op.computation is None else heaviest(op.computation, operands, results)
        launch = 0.0 if any(i >= 0 for i in fused) else self.machine.launch_seconds
        product = self._product(op, heavy, operands, results)
        wastes = {} if heavy is None else _wastes(heavy)
        factors = () if heavy is None or product is None else _factors(op.computation, heavy)
        seconds = 0.0
        for number, (tensor, fmt) in enumerate(zip(op.operands, operands, strict=True)):
            if tensor is not None and fmt is not None and number not in fused and number not in factors:
                seconds += self._moved(tensor, fmt) * wastes.get(number, 1.0)
        if product is not None:
            multiplying, storing = product
            return launch + multiplying + seconds + (0.0 if RESULT in fused else storing)
        for tensor, fmt in zip(op.results, results, strict=True):
            if tensor is not None and fmt is not None and RESULT not in fused:
                seconds += self._moved(tensor, fmt)
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

    def _product(
        self, op: Signature, heavy: Heaviest | None, operands: Formats, results: Formats
    ) -> tuple[float, float] | None:
        """Seconds of the fastest plan but for its launch and its result, and those of the result."""
        computation = op.computation
        if heavy is None or computation is None or not op.results or op.results[0] is None:
            return None
        padded = padded_work(computation, operands, results)
        shape = planned_product(heavy, computation, op.results[0].dtype, padded)
        arithmetic = None if shape is None else arithmetic_of(shape, self.machine)
        if shape is None or arithmetic is None or not (self.approx or arithmetic.is_exact):
            return None
        if shape not in self._known:
            model = ProductModel(shape, arithmetic, self.machine)
            _, best = model.fastest()
            self._known[shape] = (best - model.storing - self.machine.launch_seconds, model.storing)
        return self._known[shape]

    def _arithmetic(self, op: Signature, heavy: Heaviest | None, operands: Formats, results: Formats) -> float:
        """On the ordinary units."""
        computation = op.computation
        if computation is None or not computation.flops:
            return 0.0
        work = computation.flops * padded_work(computation, operands, results)
        work *= 1.0 if heavy is None else _loaded_singly(heavy)
        return work / (self.machine.flops["float32"] * _ORDINARY * self._share_of_machine(op))

    def _share_of_machine(self, op: Signature) -> float:
        """The share of multiprocessors that the result's blocks keep busy, over all waves; a split sum keeps half."""
        elements = max((math.prod(_sizes(ty)) for ty in op.results if ty is not None), default=1)
        blocks = max(1.0, elements / _TILE)
        waves = math.ceil(blocks / self.machine.multiprocessors)
        return max(blocks / (waves * self.machine.multiprocessors), min(0.5, blocks * 4 / self.machine.multiprocessors))


def _sizes(tensor: TensorType) -> list[int]:
    return list(map(assumed_size, tensor.shape))


def _bytes(tensor: TensorType, fmt: Format) -> float:
    return fmt.elements(SYMBOL_SIZE) * dtype_bytes(tensor.dtype)


def _factors(computation: Computation | None, heavy: Heaviest) -> set[int]:
    """The operands that the block multiplies, as they are or by way of others: one that is padded first, say."""
    read = {read.buffer for read, _ in heavy.reads}
    for block in reversed(() if computation is None else computation.blocks):
        if any(write.buffer in read for write in block.writes):
            read |= {one.buffer for one in block.reads}
    return {number for number, buffer in enumerate(heavy.operands) if buffer in read}


def _loaded_singly(heavy: Heaviest) -> float:
    """How many times as long a sum takes because the lanes of a vector are not one load of the data."""
    if heavy.step is None or not heavy.block.is_contraction or not heavy.reads:
        return 1.0
    variable, stride, _ = heavy.step
    read, fmt = max(heavy.reads, key=lambda one: one[1].elements(SYMBOL_SIZE))
    if variable in read.sliding:
        return _SLIDING
    return 1.0 if address_step(heavy.block, read, fmt, variable, stride, 1) in (0, 1) else _MOST_WASTE


def _wastes(heavy: Heaviest) -> dict[int, float]:
    """How many times the bytes of each operand are read: lanes of a warp read neighbours, or a sector each."""
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
