"""What a computation over symbolic sizes would be if they were known.

In: a computation. Out: the same with each symbol as :data:`SYMBOL_SIZE`, as costs take it. It is asked what could be
done with it; nothing is built of it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
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


def sized(computation: Computation) -> Computation:
    """Raises :class:`~eqsat_layout.errors.LayoutError` where an extent is no size then, such as ``n - 100``."""
    found: Computation = _sized(computation)
    return found


def _sized(node: Any) -> Any:
    if isinstance(node, Term):
        return node._replace(extent=_number(node.extent))
    if isinstance(node, tuple):
        return tuple(map(_sized, node))
    if isinstance(node, Value) and node.op == "symbol":
        return replace(node, op="const", literal=SYMBOL_SIZE)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    own = {field.name: getattr(node, field.name) for field in fields(node)}
    return replace(node, **{name: _known(value) if name in _SIZES else _sized(value) for name, value in own.items()})


def _known(extent: Any) -> Any:
    return tuple(map(_number, extent)) if isinstance(extent, tuple) else _number(extent)


def _number(extent: Extent) -> int:
    if isinstance(extent, int):
        return extent
    symbols = {name: tirx.IntImm("int64", SYMBOL_SIZE) for name in symbols_in(extent)}
    try:
        size = tvm.sym.Analyzer().simplify(expr_of(extent, symbols))
    except tvm.error.InternalError as error:  # TVM divides by zero
        raise LayoutError(f"{extent} is no size where symbols are {SYMBOL_SIZE}") from error
    if not isinstance(size, tirx.IntImm) or size.value < 1:
        raise LayoutError(f"{extent} is no size where symbols are {SYMBOL_SIZE}, but {size}")
    return int(size)
