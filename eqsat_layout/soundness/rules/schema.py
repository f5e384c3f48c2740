"""Calls of Relax ops with random attributes, as each op's own schema has them.

In: the name of an op and the types that its first operand may have. Out: calls that TVM's type inference takes. The
registered op says which of its arguments are tensors, its Python function what the others are; no list of attributes is
kept here. A string is drawn from those in the function's documentation, a layout from the orders of its letters.
"""

from __future__ import annotations

import collections.abc
import inspect
import math
import random
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import TENSORS, Parameter, function_of, parameters, registered_ops

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool")
"""Dtypes that NumPy computes with as TVM does."""

ATTEMPTS = 80
"""Draws per call that is wanted; few of a convolution's fit its operands."""
LARGEST = 64
"""Elements of a tensor of a random shape."""

_ANYWHERE = 3000
"""Draws of an op on tensors of any rank."""
_NUMBERS = (-1, 0, 1, 2, 1, 2, 3, -2)
_FLOATS = (0.5, -1.0, 0.0, 2.0, 0.25, 1.0)
_SIZES = (1, 1, 2, 2, 3)
"""Windows, strides and the like: lists of numbers, or a number where a list may stand."""
_KEPT = (0.4, 0.8, 0.95)
"""How often the attributes of a call that have a default keep it."""


@dataclass(frozen=True)
class Call:
    """``build`` makes it of variables of the types ``operands``; ``attributes`` are the rest, as text."""

    name: str
    build: Callable[..., Any]
    operands: tuple[TensorType, ...]
    attributes: str = ""

    @property
    def variables(self) -> list[Any]:
        """Fresh variables to build it of."""
        return [relax.Var(f"p{i}", relax.TensorType(list(ty.shape), ty.dtype)) for i, ty in enumerate(self.operands)]

    @property
    def is_well_typed(self) -> bool:
        """Whether type inference takes it, and knows the shapes of its results."""
        try:
            made = relax.BlockBuilder().normalize(self.build(*self.variables))
        except ILL_TYPED:
            return False
        fields = made.ty.fields if isinstance(made.ty, relax.TupleType) else [made.ty]
        return all(_is_small(ty) for ty in fields)


def has_attributes(name: str) -> bool:
    """Whether two ops of this name may differ on the same operands."""
    return any(p.kind not in TENSORS for p in parameters(name) or ())


@cache
def all_ops() -> tuple[str, ...]:
    """The registered ops that take tensors, by name."""
    return tuple(
        name for name in sorted(registered_ops()) if name.startswith("relax.") and parameters(name) is not None
    )


def draw_calls(name: str, first: TensorType, count: int, rng: random.Random, attempts: int = ATTEMPTS) -> list[Call]:
    """Up to ``count`` calls that differ in their attributes only, with a first operand of that type."""
    found: list[Call] = []
    for _ in range(attempts):
        call = _drawn(name, first, (), rng)
        if call.is_well_typed:
            found.append(call)
            break
    for _ in range(attempts if found and has_attributes(name) else 0):
        if len(found) == count:
            break
        call = _drawn(name, first, found[0].operands, rng)
        if call.attributes not in [other.attributes for other in found] and call.is_well_typed:
            found.append(call)
    return found


@cache
def usual_type(name: str) -> TensorType | None:
    """The type of a first operand that the op takes; None if none is found."""
    rng = random.Random(name)
    for attempt in range(_ANYWHERE):
        first = _random_type(rng, DTYPES[:1] if attempt < _ANYWHERE // 2 else DTYPES)
        if _drawn(name, first, (), rng).is_well_typed:
            return first
    return None


def _random_type(rng: random.Random, dtypes: Sequence[str]) -> TensorType:
    """A small tensor of any rank from 0 to 6."""
    shape = [rng.choice((1, 2, 3, 4)) for _ in range(rng.randrange(7))]
    while math.prod(shape) > LARGEST:
        shape[rng.randrange(len(shape))] = 1
    return TensorType(tuple(shape), rng.choice(dtypes))


def _drawn(name: str, first: TensorType, operands: Sequence[TensorType], rng: random.Random) -> Call:
    """One draw, well typed or not; ``operands``, if there are any, are kept."""
    known = parameters(name)
    assert known is not None, name
    draw = _Draw(first, rng, inspect.getdoc(function_of(name)) or "")
    types: list[TensorType] = []
    given: dict[str, Any] = {}
    places: dict[str, tuple[int, ...]] = {}
    for parameter in known:
        if parameter.kind in TENSORS:
            if parameter.default is None and not operands and rng.random() < 0.5:
                given[parameter.name] = None
                continue
            at = (len(types),) if parameter.kind == "Tensor" else (len(types), len(types) + 1)
            if operands and at[-1] >= len(operands):
                given[parameter.name] = None
                continue
            types += operands[at[0] : at[-1] + 1] if operands else [draw.operand(i) for i in at]
            places[parameter.name] = at if parameter.kind != "Tensor" else at[:1]
            if parameter.kind != "Tensor":
                given[parameter.name] = "several"
        else:
            given[parameter.name] = draw.attribute(parameter)
    attributes = {k: v for k, v in given.items() if v != "several"}
    several = frozenset(k for k, v in given.items() if v == "several")
    build = partial(_build, name, places, several, attributes)
    return Call(name, build, tuple(types), ", ".join(f"{k}={v}" for k, v in attributes.items()))


def _build(
    name: str,
    places: Mapping[str, Sequence[int]],
    several: frozenset[str],
    attributes: Mapping[str, Any],
    *tensors: Any,
) -> Any:
    arguments = {
        k: relax.Tuple([tensors[i] for i in at]) if k in several else tensors[at[0]] for k, at in places.items()
    }
    return function_of(name)(**arguments, **attributes)


class _Draw:
    """Draws the arguments of one call. Lists of numbers in one call are often of one length."""

    def __init__(self, first: TensorType, rng: random.Random, documentation: str):
        self._first, self._rng, self._documentation = first, rng, documentation
        self._length = rng.choice((1, 1, 2, max(1, len(first.shape))))
        self._kept = rng.choice(_KEPT)
        self._last: TensorType | None = None

    def operand(self, number: int) -> TensorType:
        """The type of an operand: the first's; or one that broadcasts with it, of one of its axes, or of its rank."""
        if number == 0:
            return self._first
        rng, shape = self._rng, self._first.shape
        if self._last is not None and rng.random() < 0.5:  # scales, shifts, means of a norm
            return self._last
        dtype = self._first.dtype if rng.random() < 0.85 else rng.choice(DTYPES)
        extents = [*shape, 1, 2, 3]
        options: tuple[Callable[[], Sequence[Any]], ...] = (
            lambda: shape,
            lambda: shape,
            lambda: shape[-1:],
            lambda: (),
            lambda: [rng.choice((e, 1)) for e in shape],
            lambda: [rng.choice(extents)],
            lambda: [rng.choice(extents) for _ in shape],
            lambda: [rng.choice(extents), *shape[1:2], *(rng.choice((1, 2, 3)) for _ in shape[2:])],
        )
        self._last = TensorType(tuple(rng.choice(options)()), dtype)
        return self._last

    def attribute(self, parameter: Parameter) -> Any:
        """What one attribute is."""
        if parameter.default is not inspect.Parameter.empty and self._rng.random() < self._kept:
            return parameter.default
        return self._value(parameter, parameter.hint)

    def _value(self, parameter: Parameter, hint: Any) -> Any:
        rng = self._rng
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            options = typing.get_args(hint)
            if tvm_ffi.dtype in options:
                return rng.choice([*DTYPES, *([None] if type(None) in options else [])])
            numbers = [o for o in options if o in (int, float) or typing.get_origin(o) in _SEQUENCES or o is type(None)]
            chosen = rng.choice(numbers or list(options))
            if chosen is int and len(numbers) > 1 and type(None) not in numbers:
                return rng.choice(_SIZES)
            return self._value(parameter, chosen)
        if hint is type(None):
            return None
        if hint is bool:
            return rng.random() < 0.5
        if hint is float or hint is tvm.ir.prim.expr.FloatImm:
            return rng.choice(_FLOATS)
        if hint is str:
            return self._text(parameter)
        rank = len(self._first.shape)
        if rank and parameter.name == "axis" and hint in (int, None):
            return rng.randrange(-rank, rank)  # type inference does not look at every op's
        if hint is int or hint is None or parameter.kind == "PrimExpr":
            return rng.choice(_NUMBERS)
        return self._numbers(typing.get_args(hint))

    def _numbers(self, sorts: Sequence[Any]) -> list[int]:
        """A list of numbers: as many as the hint has, or as the other lists have."""
        rng = self._rng
        length = len(sorts) if len(sorts) > 1 and Ellipsis not in sorts else self._length
        rank = len(self._first.shape)
        if length <= rank and rng.random() < 0.4:  # some of the axes, or an order of them
            return rng.sample(range(rank), length)
        return [rng.choice(_SIZES) for _ in range(length)]

    def _text(self, parameter: Parameter) -> str:
        default = parameter.default if isinstance(parameter.default, str) else ""
        if default.isalpha() and default.isupper():
            letters = self._rng.sample(default, len(default))
            return "".join(letters)
        return str(self._rng.choice([default, *dict.fromkeys(_QUOTED.findall(self._documentation))]))


_QUOTED = re.compile(r"[\"'](\w+)[\"']")
_SEQUENCES = (tuple, list, collections.abc.Sequence)


def _is_small(ty: Any) -> bool:
    """A tensor of known shape that has few elements, of a dtype that NumPy has."""
    extents = getattr(getattr(ty, "shape", None), "values", None)
    if not isinstance(ty, relax.TensorType) or extents is None:
        return False
    shape = [int(e) if isinstance(e, tvm.tirx.IntImm) else 0 for e in extents]
    if str(ty.dtype) not in DTYPES or math.prod(shape) > 16 * LARGEST:
        return False
    return all(e > 0 for e in shape) and np.dtype(str(ty.dtype)) is not None
