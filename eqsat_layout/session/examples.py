"""Inputs to try a program with.

In: what a program takes, sizes for what is known at run time only. Out: random arrays by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from eqsat_layout.errors import InputError
from eqsat_layout.session.feed import check_names
from eqsat_layout.session.interface import TensorSpec
from eqsat_layout.session.tensors import Array
from eqsat_layout.system.dtypes import numpy_dtype

_MOST: Final = 8
"""Integers are small and not negative: they may be indices."""


def random_feed(
    specs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Any]] | None = None, seed: int = 0
) -> dict[str, Array]:
    """Normal numbers, integers below 8 and below every extent. A size that ``shapes`` do not say is 1, of several the
    first is taken."""
    shapes = {
        name: [size[0] if isinstance(size, Sequence) else size for size in shape]
        for name, shape in (shapes or {}).items()
    }
    check_names(list(shapes), [spec.name for spec in specs], "input")
    rng = np.random.default_rng(seed)
    symbols: dict[str, int] = {}
    for spec in specs:
        for extent, size in zip(spec.shape or (), _asked(spec, shapes), strict=False):
            if isinstance(extent, str) and size is not None:
                symbols[extent] = size
    sized = {spec.name: _sizes(spec, _asked(spec, shapes), symbols) for spec in specs}
    most = max(2, min([_MOST, *(size for shape in sized.values() for size in shape if size > 1)]))
    return {spec.name: _array(rng, sized[spec.name], spec.dtype, most) for spec in specs}


def _asked(spec: TensorSpec, shapes: Mapping[str, Sequence[int | None]]) -> Sequence[int | None]:
    asked = shapes.get(spec.name)
    if asked is None or spec.shape is None:
        return asked or ()
    if len(asked) != len(spec.shape):
        raise InputError(f"shapes: input {spec.name!r} is {spec}, got {tuple(asked)}")
    return asked


def _sizes(spec: TensorSpec, asked: Sequence[int | None], symbols: Mapping[str, int]) -> list[int]:
    if spec.shape is None:
        return [1 if size is None else size for size in asked]
    sizes: list[int] = []
    for axis, extent in enumerate(spec.shape):
        given = asked[axis] if asked else None
        if isinstance(extent, int):
            if given not in (None, extent):
                raise InputError(f"shapes: axis {axis} of {spec.name!r} is {extent}, got {given}")
            sizes.append(extent)
        elif given is not None:
            sizes.append(given)
        elif isinstance(extent, str) and not extent.isidentifier():
            raise InputError(f"shapes: say what axis {axis} of {spec.name!r} is: {spec}")
        else:
            sizes.append(symbols.get(extent or "", 1))
    return sizes


def _array(rng: np.random.Generator, shape: Sequence[int], dtype: str, most: int) -> Array:
    kind: Any = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(kind)
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, most, shape).astype(kind)
    return np.asarray(rng.standard_normal(tuple(shape))).astype(kind)
