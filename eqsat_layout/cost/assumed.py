"""Costs at sizes that somebody named, of programs whose sizes are known at run time only.

In: a cost model, and sizes by the names of symbols. Out: a cost model that asks it about ops and tensors of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat_layout.cost.model import CostModel
from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats, IndexMap
from eqsat_layout.tir.extents import symbols_in
from eqsat_layout.tir.sized import sized, sized_extent


class AssumedSizes:
    """``sizes``: of symbols; those that are not named count as :data:`~eqsat_layout.tir.computation.SYMBOL_SIZE`."""

    def __init__(self, costs: CostModel, sizes: Mapping[str, int]):
        self._costs, self._sizes = costs, dict(sizes)
        self._ops: dict[str, Signature] = {}
        self._formats: dict[Format, Format] = {}

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """As the model says of the op of those sizes; of one that has none then, as it says of the op itself."""
        try:
            own = self._op(op)
            return self._costs.run(own, self._of_all(operands), self._of_all(results), fused=fused)
        except LayoutError:
            return self._costs.run(op, operands, results, fused=fused)

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """As the model says of the tensor of those sizes."""
        return self._costs.convert(self._type(tensor), self._format(source), self._format(target), fused=fused)

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """As the model says: constants have no symbolic sizes."""
        return self._costs.constant(tensor, fmt)

    def _op(self, op: Signature) -> Signature:
        if op.key not in self._ops:
            operands, results = (tuple(ty and self._type(ty) for ty in types) for types in (op.operands, op.results))
            computation = op.computation and sized(op.computation, self._sizes)
            self._ops[op.key] = replace(op, operands=operands, results=results, computation=computation)
        return self._ops[op.key]

    def _type(self, tensor: TensorType) -> TensorType:
        return replace(tensor, shape=tuple(sized_extent(extent, self._sizes) for extent in tensor.shape))

    def _of_all(self, formats: Formats) -> list[Format | None]:
        return [fmt and self._format(fmt) for fmt in formats]

    def _format(self, fmt: Format) -> Format:
        if fmt not in self._formats:
            self._formats[fmt] = self._new_format(fmt)
        return self._formats[fmt]

    def _new_format(self, fmt: Format) -> Format:
        if not any(isinstance(extent, str) and symbols_in(extent) for extent in fmt.padded_shape):
            return fmt
        shape = [sized_extent(extent, self._sizes) for extent in fmt.padded_shape]
        dims = [[(axis, stride, sized_extent(e, self._sizes)) for axis, stride, e in dim] for dim in fmt.index_map.dims]
        index_map = IndexMap.make(shape, dims)
        return Format.make(index_map, padding=fmt.padding, fill=fmt.fill, scope=fmt.scope, separators=fmt.separators)
