"""What a computation over symbolic sizes would be if they were known.

In: a computation, and sizes by the names of symbols. Out: the same with each symbol as that, or else as
:data:`SYMBOL_SIZE`, as costs take it. It is asked what could be done with it; nothing is built of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Extent
from eqsat_layout.tir.affine import Term
from eqsat_layout.tir.computation import SYMBOL_SIZE, Computation, Value
from eqsat_layout.tir.extents import expr_of, symbols_in

_SIZES: Final = ("extent", "shape")
"""Fields of computations that hold extents."""


def sized(computation: Computation, sizes: Mapping[str, int] = MappingProxyType({})) -> Computation:
    """Raises :class:`~eqsat_layout.errors.LayoutError` where an extent is no size then, such as ``n - 100``."""
    found: Computation = _sized(computation, sizes)
    return found


def sized_extent(extent: Extent, sizes: Mapping[str, int]) -> int:
    """The size of one axis; raises the same."""
    if isinstance(extent, int):
        return extent
    taken = {name: sizes.get(name, SYMBOL_SIZE) for name in symbols_in(extent)}
    said = ", ".join(f"{name} is {size}" for name, size in taken.items())
    try:
        symbols = {name: tirx.IntImm("int64", size) for name, size in taken.items()}
        found = tvm.sym.Analyzer().simplify(expr_of(extent, symbols))
    except tvm.error.InternalError as error:  # TVM divides by zero
        raise LayoutError(f"{extent} is no size where {said}") from error
    if not isinstance(found, tirx.IntImm) or found.value < 1:
        raise LayoutError(f"{extent} is no size where {said}, but {found}")
    return int(found)


def _sized(node: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, Term):
        return node._replace(extent=sized_extent(node.extent, sizes))
    if isinstance(node, tuple):
        return tuple(_sized(one, sizes) for one in node)
    if isinstance(node, Value) and node.op == "symbol":
        return replace(node, op="const", literal=sizes.get(str(node.literal), SYMBOL_SIZE))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    own = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {name: _known(value, sizes) if name in _SIZES else _sized(value, sizes) for name, value in own.items()}
    return replace(node, **changed)


def _known(extent: Any, sizes: Mapping[str, int]) -> Any:
    return tuple(sized_extent(e, sizes) for e in extent) if isinstance(extent, tuple) else sized_extent(extent, sizes)
