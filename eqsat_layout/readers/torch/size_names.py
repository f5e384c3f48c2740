"""What sizes of an exported program are called: torch calls them ``s77``, another one in each program.

In: a program, and its inputs with torch's symbols. Out: the same with the names of the user's ``Dim`` objects, where
torch still has them (a file has not), else with that of the first input and axis of this size, ``image_0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax, tirx

from eqsat_layout.tir.structural import substitute

_Bounds = dict[str, tuple[int, int | None]]


def with_names_of_sizes(program: Any, inputs: Mapping[str, Any], bounds: _Bounds) -> tuple[dict[str, Any], _Bounds]:
    """``inputs`` by names, and what is known of symbols, least and most."""
    said = _names_of_dims(program)
    names: dict[Any, str] = {}
    for name, var in inputs.items():
        for axis, extent in enumerate(var.ty.shape.values):
            if isinstance(extent, ir.Var) and extent not in names:
                names[extent] = _unlike(said.get(str(extent.name), f"{name}_{axis}"), names.values())
    own = {extent: tirx.Var(name, "int64") for extent, name in names.items()}
    called = {str(extent.name): name for extent, name in names.items()}
    made = {
        name: relax.Var(
            str(var.name), relax.TensorType([substitute(e, own) for e in var.ty.shape.values], str(var.ty.dtype))
        )
        for name, var in inputs.items()
    }
    return made, {called.get(name, name): known for name, known in bounds.items()}


def _names_of_dims(program: Any) -> dict[str, str]:
    """By torch's symbols: it keeps what it calls each axis of an input, and what the user calls that."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    modes = (mode for value in values if (mode := getattr(value, "fake_mode", None)) is not None)
    known = getattr(next(modes, None), "shape_env", None)
    names, sources = getattr(known, "source_name_to_debug_name", {}), getattr(known, "var_to_sources", {})
    found = {str(symbol): names.get(_text(one), "") for symbol, axes in sources.items() for one in axes[:1]}
    return {symbol: name for symbol, name in found.items() if name.isidentifier()}


def _text(source: Any) -> str:
    """A property, in former versions of torch a method."""
    return str(source.name() if callable(source.name) else source.name)


def _unlike(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name
