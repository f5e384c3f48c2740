"""Sizes for symbolic shapes.

In: a source and shapes by the names of its inputs. Out: the source whose function is for these sizes only, or an error
that names the input.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, tirx

from eqsat_layout.errors import InputError, did_you_mean
from eqsat_layout.notes import plain
from eqsat_layout.passes.circular_sizes import check_sizes
from eqsat_layout.readers.model import Sizes
from eqsat_layout.sources.program import Source
from eqsat_layout.sources.ranges import outside, ranges_of
from eqsat_layout.sources.specialise import specialised
from eqsat_layout.tir.structural import substitute

_MOST: Final = (1 << 63) - 1
"""That int64 holds."""

Shapes = Mapping[str, Sequence[int | Sequence[int] | None]]
"""The same; for an axis with several sizes the program is made once for each, and once for all others. A ``range`` of
every size from one to another stands for both and the powers of two between."""


def with_shapes(source: Source, shapes: Shapes) -> Source:
    """``source`` with the symbols in the shapes of its inputs replaced by what ``shapes`` say that they are."""
    checked = checked_shapes(shapes)
    source = _with_sizes(source, fixed(checked))
    return specialised(source, _cases(source, checked))


def fixed(shapes: Shapes) -> dict[str, tuple[int | None, ...]]:
    """What ``shapes`` say of axes that have one size."""
    return {name: tuple(e if isinstance(e, int) else None for e in shape) for name, shape in shapes.items()}


def _with_sizes(source: Source, shapes: Sizes) -> Source:
    known: dict[Any, tuple[int, str]] = {}
    given = [(_param(source, name), name, shape) for name, shape in shapes.items()]
    for param, name, shape in given:
        for axis, (extent, size) in enumerate(zip(_extents(param, name, shape), shape, strict=True)):
            if size is not None and isinstance(extent, tvm.ir.Var):
                where = f"axis {axis} of {name!r}"
                before, first = known.setdefault(extent, (size, where))
                if before != size:
                    raise InputError(f"shapes: {extent.name} is {before} by {first} and {size} by {where}")
                _check_range(source, extent, size, where)
    sizes = {var: tirx.IntImm("int64", size) for var, (size, _) in known.items()}
    for param, name, shape in given:
        for axis, (extent, size) in enumerate(zip(_extents(param, name, shape), shape, strict=True)):
            _check_extent(extent, sizes, size, f"shapes: axis {axis} of {name!r}")
    return replace(source, module=_bound(source.module, source.entry, sizes)) if sizes else source


def _cases(source: Source, shapes: Shapes) -> list[dict[Any, int]]:
    """Every combination of the sizes that symbols have several of."""
    asked: dict[Any, tuple[tuple[int, ...], str]] = {}
    for name, shape in shapes.items():
        extents = _extents(_param(source, name), name, shape)
        for axis, (extent, sizes) in enumerate(zip(extents, shape, strict=True)):
            if not isinstance(sizes, Sequence):
                continue
            where = f"axis {axis} of {name!r}"
            if not isinstance(extent, tvm.ir.Var):
                raise InputError(f"shapes: {where} is {extent_text(extent)}: several sizes are for symbols")
            before, first = asked.setdefault(extent, (tuple(dict.fromkeys(sizes)), where))
            if before != tuple(dict.fromkeys(sizes)):
                raise InputError(f"shapes: {extent.name} is one of {before} by {first}, of {tuple(sizes)} by {where}")
            for size in before:
                _check_range(source, extent, size, where)
    combinations = itertools.product(*(sizes for sizes, _ in asked.values()))
    return [dict(zip(asked, sizes, strict=True)) for sizes in combinations] if asked else []


def _check_range(source: Source, symbol: Any, size: int, where: str) -> None:
    if (own := outside(ranges_of(source.function), str(symbol.name), size)) is not None:
        raise InputError(f"shapes: {where} is {size}, and the program is for sizes where {own}")


def checked_shapes(shapes: Shapes) -> dict[str, tuple[int | Sequence[int] | None, ...]]:
    """:class:`InputError` for what are no sizes by names, whatever they are for."""
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes must be a dictionary from names of inputs to shapes, got {_said(shapes)}")
    return {name: _checked(name, _plain(shape)) for name, shape in shapes.items()}


def _plain(sizes: Any) -> Any:
    """Whole numbers of NumPy as Python's."""
    if isinstance(sizes, list | tuple):
        return tuple(map(_plain, sizes))
    return int(sizes) if isinstance(sizes, np.integer) else sizes


def extent_text(extent: Any) -> int | str:
    """An extent for people: a number, or an expression of symbols such as ``2 * n``."""
    return int(extent) if isinstance(extent, tirx.IntImm | int) else plain(str(extent))


def _param(source: Source, name: str) -> Any:
    if name not in source.inputs:
        near = did_you_mean(name, source.inputs)
        raise InputError(f"shapes: there is no input {name!r}; {near}there are {', '.join(map(repr, source.inputs))}")
    return source.function.params[source.inputs.index(name)]


def _checked(name: str, shape: Any) -> tuple[int | Sequence[int] | None, ...]:
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str)
    if not is_list or not all(e is None or _is_size(e) or _are_sizes(e) for e in shape):
        raise InputError(f"shapes: of {name!r} must be a list of sizes, got {_said(shape)}")
    return tuple(_spread(e) if isinstance(e, range) and e.step == 1 else e for e in shape)


def _said(value: Any) -> str:
    """What was given for a shape, which may be a whole tensor."""
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number that is too large to be written"


def _spread(sizes: range) -> tuple[int, ...]:
    """Those of ``sizes`` that a program is made for: a program for each would be too many."""
    first, last = sizes[0], sizes[-1]
    powers = (1 << exponent for exponent in range(last.bit_length()))
    return tuple(sorted({first, last, *(power for power in powers if first < power < last)}))


def _is_size(extent: Any) -> bool:
    return isinstance(extent, int) and not isinstance(extent, bool) and 0 <= extent <= _MOST


def _are_sizes(extent: Any) -> bool:
    if isinstance(extent, range):  # of any length
        return bool(extent) and _is_size(extent[0]) and _is_size(extent[-1])
    return isinstance(extent, Sequence) and not isinstance(extent, str) and bool(extent) and all(map(_is_size, extent))


def _extents(param: Any, name: str, shape: Sequence[Any]) -> Sequence[Any]:
    ty = param.ty
    extents = getattr(ty.shape, "values", None) if isinstance(ty, relax.TensorType) else None
    if extents is None:
        raise InputError(f"shapes: input {name!r} has no shape that sizes could be given to: {ty}")
    if len(extents) != len(shape):
        raise InputError(f"shapes: input {name!r} has {len(extents)} axes, {ty}, got {tuple(shape)}")
    return list(extents)


def _check_extent(extent: Any, sizes: Mapping[Any, Any], size: int | None, where: str) -> None:
    """``extent`` is ``size``, where that can be known."""
    if size is None:
        return
    value = tvm.sym.Analyzer().simplify(substitute(extent, sizes))
    if not isinstance(value, tirx.IntImm):
        raise InputError(f"{where} is {extent_text(extent)}: give what it is made of by other inputs")
    if int(value) != size:
        said = extent_text(extent)
        raise InputError(f"{where} is {said if isinstance(said, int) else f'{said} = {int(value)}'}, got {size}")


def _bound(mod: tvm.IRModule, entry: str, sizes: Mapping[Any, Any]) -> tvm.IRModule:
    changed = mod.clone()
    changed[entry] = mod[entry].bind_symbolic_vars(dict(sizes))
    check_sizes(changed)
    result: tvm.IRModule = relax.transform.CanonicalizeBindings()(changed)
    return result
