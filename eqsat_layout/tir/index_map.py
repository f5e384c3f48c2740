"""Index maps between TVM's notation and the map algebra.

In: a ``tirx.IndexMap`` and the shape that it is applied to, or an :class:`IndexMap`. Out: the other one, exactly, or
``None`` for what is not provably a permutation of digits on that shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, IndexMap, extent_product
from eqsat_layout.tir.affine import AffineReader
from eqsat_layout.tir.extents import expr_of, extent_of, symbols_in


def from_tvm(index_map: Any, shape: Sequence[Any]) -> IndexMap | None:
    """The digit bijection that ``index_map`` is on tensors of ``shape``; ``None`` if it is not provably one.

    Rotations, xor swizzles, reversed axes, maps that aren't injective and maps that would pad give ``None``.
    """
    variables = list(index_map.initial_indices)
    extents = tuple(extent_of(e) for e in shape)
    if len(variables) != len(extents):
        return None
    ranges = [tvm.ir.Range(0, _extent_expr(e, v)) for e, v in zip(shape, variables, strict=True)]
    reader = AffineReader(variables, extents, ranges)
    dims: list[tuple[Digit, ...]] = []
    for expr in index_map.final_indices:
        value = reader.read(expr)
        digits = None if value is None else value.digits()
        if digits is None:
            return None
        dims.append(digits)
    try:
        return IndexMap.make(extents, dims)
    except LayoutError:
        return None


def to_tvm(index_map: IndexMap) -> Any:
    """The ``tirx.IndexMap`` that does the same, with int64 variables and constants."""
    variables = [tirx.Var(f"i{a}", "int64") for a in range(len(index_map.shape))]
    symbols = {name: tirx.Var(name, "int64") for e in index_map.shape if isinstance(e, str) for name in symbols_in(e)}
    return tirx.IndexMap(variables, physical_indices(index_map, variables, symbols), None)


def physical_indices(index_map: IndexMap, indices: Sequence[Any], symbols: Mapping[str, Any]) -> list[Any]:
    """The physical index expressions of a logical index; right for every index within ``index_map.shape``."""
    return [number_of(digits, indices, index_map.shape, symbols) for digits in index_map.dims]


def number_of(digits: Sequence[Digit], indices: Sequence[Any], shape: Sequence[Any], symbols: Mapping[str, Any]) -> Any:
    """The number that ``digits`` of ``indices`` write, in the integer type of the indices (int64 without any)."""
    total: Any = None
    for position, (axis, stride, extent) in enumerate(digits):
        part = indices[axis]
        if extent != shape[axis]:
            part = tirx.floordiv(part, stride) if stride > 1 else part
            if isinstance(extent, int) and stride * extent != shape[axis]:
                part = tirx.floormod(part, extent)
        weight = extent_product(d.extent for d in digits[position + 1 :])
        part = part if weight == 1 else part * (weight if isinstance(weight, int) else expr_of(weight, symbols))
        total = part if total is None else total + part
    if total is None:
        return tirx.IntImm(str(indices[0].ty.dtype) if indices else "int64", 0)
    return total


def _extent_expr(extent: Any, variable: Any) -> Any:
    if isinstance(extent, str):
        extent = expr_of(extent, {name: tirx.Var(name, "int64") for name in symbols_in(extent)})
    return tirx.IntImm(str(variable.ty.dtype), extent) if isinstance(extent, int) else extent
