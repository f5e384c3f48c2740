"""Quotients of which every bit counts, since they are made whole numbers after, or compared: places, bytes, numbers of
steps.

In: a PrimFunc. Out: its divisions whose result reaches a rounding or a comparison, in the same statement or through
tensors and names, and those that are written like one of these. 6.5 / 3.25 is 2, and 6.5 times the float nearest to
1 / 3.25 a little more: rounded up it is 3. What is added up of products has no such bits, and neither have quotients of
two values that functions gave which are not exact either: shares of a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx

from eqsat_layout.targets.schedules.math_functions import is_expanded
from eqsat_layout.tir.intrinsics import short_name
from eqsat_layout.tir.scalar_functions import ROUNDED
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map_outermost

_ROUNDINGS: Final = {*ROUNDED, "fmod"}
"""As they are called in both of TVM's rooms for such, ``prim`` and ``tirx``."""
_REMAINDERS: Final = (tirx.Mod, tirx.FloorMod)
"""Of a quotient a bit below a whole number all of the divisor is left, and else nothing."""
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def rounded_quotients(func: Any, apart: Sequence[Any] = (), results: Iterable[Any] = ()) -> list[Any]:
    """The divisions of ``func`` that are rounded after, by other casts and calls than those ``apart``, or on the way to
    one of the ``results``: parameters that are rounded elsewhere."""
    divisions = float_divisions(func.body)
    if not divisions:
        return []
    statements = _Statements(func)
    values, _ = statements.reached(apart, results)
    rough = statements.rough_names()
    found = [one for value in values for one in float_divisions(value) if not _is_share(one, rough)]
    return [own for own in divisions if any(_is_same(own, other) for other in found)]


def rounded_operands(func: Any, apart: Sequence[Any] = (), results: Iterable[Any] = ()) -> set[Any]:
    """The parameters of ``func`` that are so rounded."""
    _, names = _Statements(func).reached(apart, results)
    return names & set(func.params)


def float_divisions(node: Any) -> list[Any]:
    """Those in ``node``, but for integers."""
    return [one for one in nodes_of(node, tirx.Div) if _is_of_floats(one)]


class _Statements:
    """What the statements of a function give to which names."""

    def __init__(self, func: Any) -> None:
        self._body = func.body
        made = [(store.buffer, store.value) for store in nodes_of(func.body, tirx.BufferStore)]
        made += [(bind.var, bind.value) for bind in nodes_of(func.body, tirx.Bind, tirx.Let)]
        self._made = [(name, value) for name, value in made if _is_of_floats(value)]

    def reached(self, apart: Sequence[Any], results: Iterable[Any]) -> tuple[list[Any], set[Any]]:
        """The values that reach a rounding, or one of the ``results``, and the names that these are made of."""
        values = [value for value in _rounded_values(self._body) if not is_one_of(value, apart)]
        known, new = set[Any](), {*results, *(name for value in values for name in _read(value))}
        while new:
            known |= new
            made = [_without_products(name, value) for name, value in self._made if name in new]
            values += made
            new = {name for value in made for name in _read(value)} - known
        return values, known

    def rough_names(self) -> set[Any]:
        """Names of what is made of what functions give that are not exact."""
        found = set[Any]()
        while new := {name for name, value in self._made if _is_rough(value, found)} - found:
            found |= new
        return found


def _rounded_values(body: Any) -> list[Any]:
    casts = (node for node in nodes_of(body, tirx.Cast) if _is_of_floats(node.value) and not _is_of_floats(node))
    calls = (node for node in nodes_of(body, ir.Call) if short_name(node) in _ROUNDINGS)
    remainders = (node for node in nodes_of(body, *_REMAINDERS) if _is_of_floats(node))
    return [*casts, *calls, *remainders, *(node for node in nodes_of(body, *_COMPARISONS) if _tells_bits(node))]


def _tells_bits(comparison: Any) -> bool:
    """With 0 and with infinities a product compares as the quotient does, and with itself as well."""
    a, b = comparison.a, comparison.b
    is_known = any(isinstance(one, tirx.FloatImm) and one.value in (0.0, math.inf, -math.inf) for one in (a, b))
    return _is_of_floats(a) and not is_known and not tvm_ffi.structural_equal(a, b)


def _is_share(division: Any, rough: set[Any]) -> bool:
    return _is_rough(division.a, rough) and _is_rough(division.b, rough)


def _is_rough(value: Any, rough: set[Any]) -> bool:
    return any(map(is_expanded, nodes_of(value, ir.Call))) or bool(_read(value) & rough)


def _without_products(name: Any, value: Any) -> Any:
    """``value`` without the products that are added up in ``name``."""
    if not any(load.source.same_as(name) for load in nodes_of(value, ir.TensorLoad)):
        return value
    return structural_map_outermost(
        value, (tirx.Mul, lambda product: _nothing(product) if _is_of_two(product) else None)
    )


def _is_of_two(product: Any) -> bool:
    return bool(nodes_of(product.a, ir.TensorLoad) and nodes_of(product.b, ir.TensorLoad))


def _nothing(value: Any) -> Any:
    return tirx.const(0, str(value.ty.dtype))


def _is_same(division: Any, other: Any) -> bool:
    """It is that one, or reads like it: a quotient less its own floor is never negative, be they in two stages."""
    return division.same_as(other) or bool(tvm_ffi.structural_equal(division, other, map_free_vars=True))


def _read(value: Any) -> set[Any]:
    return {load.source for load in nodes_of(value, ir.TensorLoad)} | set(nodes_of(value, ir.Var))


def _is_of_floats(value: Any) -> bool:
    return "float" in str(value.ty.dtype)
