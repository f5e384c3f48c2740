"""What follows sums and reads what other kernels made, as a residual: loaded ahead of the stores.

In: a product whose launch overlaps with the one in front of it. Out: registers for such operands, and the store's value
with them in place of loads. Elsewhere a compiler loads ahead by itself, as nothing that is read may be written while a
kernel runs; of a kernel that overlaps with others that is not said, and each load would follow the store before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.cuda.dependent_launch import constants_of, overlaps
from eqsat_layout.targets.cuda.kernels.operands import choice
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.runs import in_runs
from eqsat_layout.targets.cuda.kernels.statements import at, kept, local, sequence_of, vectorized
from eqsat_layout.tir.structural import nodes_of, structural_map

_LOADED: Final = 16
"""Bytes of one load."""

Indices = Callable[[Sequence[Any], Any], list[Any]]
"""From indices over the axes of a product, and a lane of a run, to those where they are worked out."""


class LoadedAhead:
    """Of ``turns`` runs of ``run`` elements, nothing where there are none. ``value``: of the store; :attr:`place` is
    that in the registers."""

    def __init__(self, product: Product, run: int, turns: int) -> None:
        self.value, self.place, self._product = product.store.value, tirx.Var("place", "int32"), product
        self._run, self._registers = run, list[tuple[Any, Any]]()
        may_choose = any(choice(node) for node in nodes_of(self.value, tirx.Select, tvm.ir.Call))
        if not turns or may_choose or not overlaps(product.func):
            return
        known = constants_of(product.func)

        def on_load(load: Any) -> Any:
            if load.source.same_as(product.sums) or str(load.source.name) in known:
                return load
            for other, registers in self._registers:
                if tvm_ffi.structural_equal(load, other):
                    return at(registers, self.place)
            registers = local(turns * run, str(load.ty.dtype), f"{load.source.name}_ahead")
            self._registers.append((load, registers))
            return at(registers, self.place)

        self.value = structural_map(self.value, (tvm.ir.TensorLoad, on_load))

    def allocated(self) -> list[Any]:
        return [tirx.AllocBuffer(registers) for _, registers in self._registers]

    def loaded(self, turn: int, indices: Indices) -> Any:
        """The run of a turn; ``None`` where there is nothing to load."""
        if not self._registers:
            return None

        def copies(load: Any, registers: Any) -> Any:
            lanes = self._together(load)

            def some(start: int) -> Any:
                def one(lane: Any) -> Any:
                    value = at(load.source, *indices(list(load.indices), start + lane))
                    return kept(registers, value, turn * self._run + start + lane)

                return vectorized(lanes, one)

            return sequence_of(map(some, range(0, self._run, lanes)))

        return sequence_of(copies(load, registers) for load, registers in self._registers)

    def _together(self, load: Any) -> int:
        """Elements of a run that one load takes: 1 where they don't lie together, as of channels that take turns."""
        lanes = max(1, min(self._run, _LOADED * 8 // int(tvm.DataType(str(load.ty.dtype)).bits)))
        product = self._product
        while lanes > 1 and not in_runs(load.source, list(load.indices), product.columns, lanes, product.fixed):
            lanes //= 2
        return lanes
