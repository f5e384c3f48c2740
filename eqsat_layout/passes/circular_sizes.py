"""Sizes that a program says are made of themselves, at which passes of TVM end the process.

In: a Relax module. Out: nothing, or :class:`MalformedModuleError` that names the binding and the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.errors import MalformedModuleError
from eqsat_layout.tir.structural import nodes_of


def check_sizes(mod: tvm.IRModule) -> None:
    """``CanonicalizeBindings`` and ``FuseTIR`` put what a ``match_cast`` says that a size is in its place, and again in
    what they put there: for one made of itself, as in a cast of ``(max(min(1, n) + n - 1, 0),)`` to ``(n,)``, until the
    stack overflows."""
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            _check(str(name.name_hint), function)


def _check(name: str, function: relax.Function) -> None:
    made_of: dict[Any, set[Any]] = {}
    said: dict[Any, str] = {}
    for cast in nodes_of(function, relax.MatchCast):
        for size, extent in _said(cast):
            made_of.setdefault(size, set()).update(nodes_of(extent, tirx.Var))
            said[size] = f"{cast.var.name} is a match_cast that says that the size {size.name} is {extent}"
    try:
        TopologicalSorter(made_of).prepare()
    except CycleError as error:
        circle = [size for size in error.args[1] if size in said]
        raise MalformedModuleError(
            f"{name}: {said[circle[0]]}, which is made of {circle[0].name} itself: TVM can't compile that"
        ) from error


def _said(cast: relax.MatchCast) -> Iterator[tuple[Any, Any]]:
    """Sizes, and what the cast says that they are."""
    pairs = [(cast.ty, cast.value.ty)]
    while pairs:
        to, of = pairs.pop()
        if isinstance(to, relax.TupleType) and isinstance(of, relax.TupleType):
            pairs += zip(to.fields, of.fields, strict=False)
            continue
        for size, extent in zip(_extents(to), _extents(of), strict=False):
            if isinstance(size, tirx.Var) and not size.same_as(extent):
                yield size, extent


def _extents(ty: Any) -> list[Any]:
    shape = ty.shape if isinstance(ty, relax.TensorType) else ty
    return list(getattr(shape, "values", None) or ())
