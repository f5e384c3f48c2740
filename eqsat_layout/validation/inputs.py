"""Random inputs for a Relax function.

In: a function, a size for its symbols, a seed. Out: one value per parameter, as a virtual machine takes them, or why
there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.tir.structural import structural_map

NORMAL, WHOLE, SPECIAL = "normal", "whole", "special"
"""Kinds of inputs: of a normal distribution; small whole numbers; NaN, infinities and zeros among the others."""
_SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1.0, -1.0)
_MOST = 8
"""Integers are small and not negative: they may be indices, and sums of them must not overflow."""


class NoInputsError(EqsatError):
    """A parameter whose values nothing is known of."""


def random_inputs(function: Any, size: int, seed: int = 0, *, distinct: bool = True) -> list[Any]:
    """Tensors, tuples of them, shapes and scalars for every parameter of ``function``, never the same for two seeds.

    Symbolic sizes are ``size``, ``size + 1``..., so that no two are taken for each other, unless ``distinct`` is false.
    Integers are below 8 and below every extent, as far as that leaves two. Raises :class:`NoInputsError`.
    """
    maker = _Maker(np.random.default_rng(seed), size, distinct)
    for param in function.params:
        maker.learn(param.ty)
    return [maker.value(param.ty, str(param.name)) for param in function.params]


@dataclass(frozen=True)
class Draw:
    """How inputs are drawn: :func:`random_inputs`, made of this ``kind`` of numbers."""

    size: int
    seed: int
    kind: str = NORMAL
    distinct: bool = True

    def inputs(self, function: Any) -> list[Any]:
        """Raises :class:`NoInputsError`."""
        given = random_inputs(function, self.size, self.seed, distinct=self.distinct)
        if self.kind == WHOLE:
            return list(map(whole_numbers_for, given))
        rng = np.random.default_rng(self.seed)
        return [special(value, rng) for value in given] if self.kind == SPECIAL else given


def symbol_values(function: Any, inputs: Sequence[Any]) -> dict[Any, int]:
    """The values of the symbols that stand alone in the types of its parameters."""
    found: dict[Any, int] = {}

    def learn(ty: Any, value: Any) -> None:
        if isinstance(ty, relax.TupleType):
            for field, own in zip(ty.fields, value, strict=True):
                learn(field, own)
            return
        is_shape = isinstance(ty, relax.ShapeType)
        extents = ty.values if is_shape else getattr(getattr(ty, "shape", None), "values", None)
        for extent, size in zip(extents or (), value if is_shape else getattr(value, "shape", ()), strict=False):
            if isinstance(extent, tvm.ir.Var):
                found[extent] = int(size)

    for param, given in zip(function.params, inputs, strict=True):
        learn(param.ty, given)
    return found


def whole_numbers_for(value: Any) -> Any:
    """Small whole numbers in the place of the floats of an input."""
    return mapped(value, lambda array: (np.round(2 * array.astype("float64")) + 0.0).astype(array.dtype))


def special(value: Any, rng: np.random.Generator, share: float = 0.1) -> Any:
    """NaN, infinities, zeros and tiny numbers among a ``share`` of the floats of an input."""

    def spiced(array: Any) -> Any:
        chosen = rng.random(array.shape) < share
        return np.where(chosen, rng.choice(_SPECIAL, array.shape), array.astype("float64")).astype(array.dtype)

    return mapped(value, spiced)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with the arrays of floats in it changed."""
    if isinstance(value, float):
        return float(change(np.asarray(value)))
    if hasattr(value, "numpy"):
        array = value.numpy()
        is_float = _is_float(array.dtype)
        return tvm.runtime.tensor(change(array)) if is_float else value
    is_tuple = hasattr(value, "__iter__") and not isinstance(value, tvm.runtime.ShapeTuple)
    return tvm_ffi.convert([mapped(field, change) for field in value]) if is_tuple else value


def _is_float(dtype: Any) -> bool:
    """NumPy takes those that are not its own for no floats."""
    return "float" in str(dtype)


def arrays_in(value: Any) -> Iterator[npt.NDArray[Any]]:
    """The arrays in a result, those of tuples in order."""
    if isinstance(value, np.ndarray):
        yield value
    elif hasattr(value, "numpy"):
        yield value.numpy()
    elif isinstance(value, int | float | bool):
        yield np.asarray(value)
    elif hasattr(value, "__iter__"):
        for item in value:
            yield from arrays_in(item)


class _Maker:
    def __init__(self, rng: np.random.Generator, size: int, distinct: bool):
        self._rng, self._size, self._distinct = rng, size, distinct
        self._symbols: dict[Any, int] = {}
        self._most = _MOST

    def learn(self, ty: Any) -> None:
        """Gives sizes to the symbols, in the order of the parameters, and keeps integers below the extents."""
        if isinstance(ty, relax.TupleType):
            for field in ty.fields:
                self.learn(field)
        elif isinstance(ty, relax.TensorType) and ty.shape is not None:
            extents = [self._extent(e) for e in getattr(ty.shape, "values", ())]
            self._most = max(2, min([self._most, *(e for e in extents if e > 1)]))

    def value(self, ty: Any, name: str) -> Any:
        if isinstance(ty, relax.TupleType):
            return tvm_ffi.convert([self.value(field, f"{name}[{i}]") for i, field in enumerate(ty.fields)])
        if isinstance(ty, relax.ShapeType) and ty.values is not None:
            return tvm.runtime.ShapeTuple([self._extent(e) for e in ty.values])
        if isinstance(ty, relax.TensorType) and ty.dtype is not None and ty.ndim >= 0:
            values = getattr(ty.shape, "values", None)
            shape = [self._size] * ty.ndim if values is None else [self._extent(e) for e in values]
            return tvm.runtime.tensor(self._array(shape, str(ty.dtype), name))
        if isinstance(ty, tvm.ir.PrimType):
            return self._array([], str(ty.dtype), name).item()
        raise NoInputsError(f"nothing is known of the values of its parameter {name!r}: {ty}")

    def _array(self, shape: list[int], dtype: str, name: str) -> npt.NDArray[Any]:
        kind = _numpy_type(dtype)
        if kind is None:
            raise NoInputsError(f"there are no values of type {dtype} here for its parameter {name!r}")
        if dtype == "bool":
            return self._rng.integers(0, 2, shape).astype(kind)
        if dtype.startswith(("int", "uint")):
            return self._rng.integers(0, min(self._most, 1 << _bits(dtype) - 1), shape).astype(kind)
        return np.asarray(self._rng.standard_normal(shape)).astype(kind)

    def _extent(self, extent: Any) -> int:
        if isinstance(extent, tirx.IntImm | int):
            return int(extent)
        for var in [extent] if isinstance(extent, tvm.ir.Var) else relax.analysis.free_vars(extent):
            self._symbols.setdefault(var, self._size + len(self._symbols) * self._distinct)

        def sized(var: Any) -> Any:
            return tirx.IntImm(str(var.ty.dtype), self._symbols[var])

        return int(tvm.sym.Analyzer().simplify(structural_map(extent, (tvm.ir.Var, sized))))


def _bits(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()) or 8)


def _numpy_type(dtype: str) -> Any:
    """NumPy's own, or one of those that ``ml_dtypes`` adds; None for what neither has."""
    try:
        return np.dtype(dtype)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, dtype, None)
