"""Sizes that a program says are multiples: ``32 * Dim("h")``, where no input has the size ``h`` itself; and those that
torch left open and found to be a number, which TVM's frontend takes for a symbol of the name ``8``.

In: the inputs of a program, whose extents are expressions of symbols. Out: the same with a symbol for such an extent,
and what it was made of worked out from it: Relax takes symbols from extents that are nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, relax, sym, tirx

from eqsat_layout.tir.structural import is_one_of, substitute


def with_own_symbols(
    inputs: Mapping[str, Any], bounds: Mapping[str, tuple[int, int | None]]
) -> tuple[dict[str, Any], dict[str, tuple[int, int | None]]]:
    """``inputs`` by names, and what is known of symbols, least and most."""
    made, known = dict(inputs), dict(bounds)
    while (found := _underived(made)) is not None:
        extent, symbol, factor, offset = found
        own = tirx.Var(_name(symbol, factor, offset), "int64")
        least, most = known.pop(str(symbol.name), (0, None))
        known[str(own.name)] = (factor * least + offset, None if most is None else factor * most + offset)
        worked_out = {symbol: tirx.floordiv(own - offset, factor)}
        made = {name: _with(var, extent, own, worked_out) for name, var in made.items()}
    return made, known


def with_numbers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """``inputs``, whose extents are numbers where their names are."""
    return {name: _each(var, _number) for name, var in inputs.items()}


def _number(extent: Any) -> Any:
    is_number = isinstance(extent, ir.Var) and str(extent.name).isdecimal()
    return tirx.IntImm("int64", int(str(extent.name))) if is_number else extent


def _name(symbol: Any, factor: int, offset: int) -> str:
    return "_".join([str(symbol.name), "times", str(factor), *(["and", str(offset)] if offset else [])])


def _underived(inputs: Mapping[str, Any]) -> tuple[Any, Any, int, int] | None:
    """The first extent that is a multiple of a symbol that is none itself, plus a number."""
    extents = [extent for var in inputs.values() for extent in var.ty.shape.values]
    defined = [extent for extent in extents if isinstance(extent, ir.Var)]
    for extent in extents:
        symbols = [] if isinstance(extent, ir.Var | tirx.IntImm) else list(tirx.analysis.undefined_vars(extent))
        if len(symbols) != 1 or is_one_of(symbols[0], defined):
            continue
        analyzer = sym.Analyzer()
        at = [analyzer.simplify(substitute(extent, {symbols[0]: tirx.IntImm("int64", place)})) for place in (0, 1)]
        if not all(isinstance(value, tirx.IntImm) for value in at):
            continue
        offset, factor = int(at[0]), int(at[1]) - int(at[0])
        if factor > 0 and analyzer.can_prove_equal(extent, symbols[0] * factor + offset):
            return extent, symbols[0], factor, offset
    return None


def _with(var: Any, extent: Any, own: Any, worked_out: Mapping[Any, Any]) -> Any:
    analyzer = sym.Analyzer()

    def made(one: Any) -> Any:
        return own if analyzer.can_prove_equal(one, extent) else analyzer.simplify(substitute(one, worked_out))

    return _each(var, made)


def _each(var: Any, made: Callable[[Any], Any]) -> Any:
    """A variable with other extents."""
    return relax.Var(str(var.name), relax.TensorType(list(map(made, var.ty.shape.values)), str(var.ty.dtype)))
