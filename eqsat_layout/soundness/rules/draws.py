"""Random arguments of Relax ops.

In: the type of a call's first operand, and parameters as a schema has them. Out: types of its other operands, and
attributes: drawn by the hints of the op's Python function, strings from its documentation, layouts from their letters,
subscripts from the operands' axes.
"""

from __future__ import annotations

import inspect
import random
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from string import ascii_lowercase
from typing import Any

import tvm
import tvm_ffi

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import Parameter, documentation_of, parameters
from eqsat_layout.graph.op_names import relax_ops
from eqsat_layout.tir.arithmetic import are_floats

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool")
"""Dtypes that are drawn."""
COMPUTED = (*DTYPES, "int16", "uint16", "uint32", "uint64")
"""Dtypes that NumPy computes with as TVM does; the others are those that a rule names."""

_NUMBERS = (-1, 0, 1, 2, 1, 2, 3, -2)
_FLOATS = (0.5, -1.0, 0.0, 2.0, 0.25, 1.0)
_BOUNDS = (float("-inf"), float("inf"), float("nan"), -0.0, 0.5)
_SIZES = (1, 1, 2, 2, 3)
"""Windows, strides and the like: lists of numbers, or a number where a list may stand."""
_SIZES_OR_NONE = (0, 0, 0, 1, 1, 2, 2, 3)
"""The same where nothing is the default, such as padding: it may be at one side only."""
_POSITIONS = (0, 0, 1, 2, 3, 4, 9, 9, -1, -1, -2, -3, -9, -9)
"""Lists of positions, which may be counted from the end, or lie beyond it."""
_STEPS = (1, 2, 3, -1, -1, -2)
_MIXED = 0.15
"""How often the operands of a call are of two dtypes, such as values and indices."""
_AS_FIRST = 0.25
"""How often a shape is like that of the first operand: of the rows of numbers few have to do with it."""
_KEPT = (0.1, 0.4, 0.8, 0.95)
"""How often the attributes of a call that have a default keep it."""


class ArgumentDraw:
    """Draws the arguments of one call. Lists of numbers in one call are often of one length, that of what is kept."""

    def __init__(
        self,
        first: TensorType,
        rng: random.Random,
        documentation: str,
        kept: Mapping[str, Any],
        operands: Sequence[TensorType],
    ):
        """``operands``: grows as they are drawn."""
        self._first, self._rng, self._documentation, self._operands = first, rng, documentation, operands
        lengths = [len(value) for value in kept.values() if isinstance(value, list)]
        self._length = rng.choice(lengths or (1, 1, 2, max(1, len(first.shape))))
        self._kept = _KEPT[0] if kept else rng.choice(_KEPT)
        self._last: TensorType | None = None
        self._dtypes: list[str] | None = None
        self._texts: list[str] = []

    def operand(self, number: int) -> TensorType:
        """The type of an operand: the first's; or one that broadcasts with it, or it with, of one of its axes, of
        another extent there, or of its rank."""
        if number == 0:
            return self._first
        rng, shape = self._rng, self._first.shape
        if self._dtypes is None:  # of several operands only: those that take one are drawn as often as others then
            self._dtypes = [self._first.dtype, rng.choice(DTYPES)] if rng.random() < _MIXED else []
        dtype = self._first.dtype if rng.random() < 0.85 else rng.choice(DTYPES)
        dtype = rng.choice(self._dtypes) if self._dtypes else dtype
        if self._last is not None and rng.random() < 0.5:  # scales, shifts, means of a norm
            return TensorType(self._last.shape, dtype) if self._dtypes else self._last
        extents = [*shape, 1, 2, 3]
        options: tuple[Callable[[], Sequence[Any]], ...] = (
            lambda: shape,
            lambda: shape,
            lambda: shape[-1:],
            lambda: (),
            lambda: [rng.choice((e, 1)) for e in shape],
            lambda: [*([rng.choice((2, 3))] if rng.random() < 0.3 else []), *(_widened(e, rng) for e in shape)],
            lambda: [rng.choice(extents)],
            lambda: _with_other_axis(shape, rng.choice(extents), rng),
            lambda: [rng.choice(extents) for _ in shape],
            lambda: [rng.choice(extents), *shape[1:2], *(rng.choice((1, 2, 3)) for _ in shape[2:])],
        )
        self._last = TensorType(tuple(rng.choice(options)()), dtype)
        return self._last

    def may_be(self, parameter: Parameter, value: Any) -> bool:
        """Whether an attribute of another call may be one of this: sorting along no axis kills TVM."""
        rank = len(self._first.shape)
        return parameter.name != "axis" or not isinstance(value, int) or -rank <= value < rank

    def attribute(self, parameter: Parameter) -> Any:
        """What one attribute is."""
        if parameter.default is not inspect.Parameter.empty and self._rng.random() < self._kept:
            return parameter.default
        if parameter.kind == "Shape" and self._rng.random() < _AS_FIRST:
            return self._shape_of_first()
        return self._value(parameter, parameter.hint)

    def _shape_of_first(self) -> list[int]:
        """That of the first operand, or one that it broadcasts to, or that has as many elements."""
        rng, shape = self._rng, [int(e) for e in self._first.shape]
        if rng.random() < 0.3:
            return rng.sample(shape, len(shape))
        front = [rng.choice((1, 2, 3))] if rng.random() < 0.3 else []
        return [*front, *(_widened(e, rng) for e in shape)]

    def _value(self, parameter: Parameter, hint: Any) -> Any:
        rng = self._rng
        if _are_steps(hint):
            return None if rng.random() < 0.5 else self._row(_STEPS)
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            return self._one_of(parameter, [option for option in typing.get_args(hint) if option is not tvm.ir.Expr])
        if hint is type(None):
            return None
        if hint is bool:
            return rng.random() < 0.5
        if hint is float or hint is tvm.ir.prim.expr.FloatImm:
            return rng.choice(_FLOATS)
        if hint is str:
            return self._text(parameter)
        if hint is None and isinstance(parameter.default, bool | float | str):
            return self._value(parameter, type(parameter.default))
        rank = len(self._first.shape)
        if rank and parameter.name == "axis" and hint in (int, None):
            return rng.randrange(-rank, rank)  # type inference does not look at every op's
        if hint is tvm.ir.Expr and parameter.kind == "PrimExpr" and rng.random() < 0.3:
            return rng.choice(_BOUNDS if are_floats(self._first.dtype) else _NUMBERS)
        if hint is int or hint is None or parameter.kind == "PrimExpr":
            return rng.choice(_NUMBERS)
        if hint is tvm.ir.Expr:
            return self._row(_POSITIONS)
        numbers = self._numbers(typing.get_args(hint), _SIZES_OR_NONE if _may_be_none(parameter.default) else _SIZES)
        return [max(1, n) for n in numbers] if _is_size(parameter.default) else numbers

    def _one_of(self, parameter: Parameter, options: Sequence[Any]) -> Any:
        rng = self._rng
        if tvm_ffi.dtype in options:
            return rng.choice([*DTYPES, *([None] if type(None) in options else [])])
        chosen = rng.choice(options) if options else None
        if chosen is int and len(options) > 1 and type(None) not in options:
            return rng.choice(_SIZES)
        return self._value(parameter, chosen)

    def _numbers(self, sorts: Sequence[Any], sizes: Sequence[int]) -> list[int]:
        """A list of numbers: as many as the hint has, or as the other lists have."""
        length = len(sorts) if len(sorts) > 1 and Ellipsis not in sorts else self._length
        return self._row(sizes, length)

    def _row(self, numbers: Sequence[int], length: int | None = None) -> list[int]:
        """Some of the numbers; or of the axes, or an order of them."""
        length = self._length if length is None else length
        rank = len(self._first.shape)
        if length <= rank and self._rng.random() < 0.4:
            return self._rng.sample(range(rank), length)
        found = [self._rng.choice(numbers) for _ in range(length)]
        return sorted(found) if self._rng.random() < 0.5 else found  # as places to split at are

    def _text(self, parameter: Parameter) -> str:
        default = parameter.default if isinstance(parameter.default, str) else ""
        if parameter.name == "subscripts":
            text = self._subscripts()
        elif default.isalpha() and default.isupper():
            text = "".join(self._rng.sample(default, len(default)))
        elif default in DTYPES:
            text = self._rng.choice(DTYPES)
        else:  # a layout of the result is often that of an operand
            own = _words(self._documentation, parameter.name) or _words_elsewhere(parameter.name, default)
            text = str(self._rng.choice([default, *dict.fromkeys([*self._texts, *own])]))
        self._texts.append(text)
        return text

    def _subscripts(self) -> str:
        """A letter for each axis, often one for several of the same extent; the result has some of them."""
        rng, extents = self._rng, dict[str, Any]()
        terms: list[str] = []
        for operand in self._operands:
            term = ""
            for extent in operand.shape:
                same = [letter for letter, known in extents.items() if known == extent and letter not in term]
                letter = rng.choice(same) if same and rng.random() < 0.6 else ascii_lowercase[len(extents)]
                extents[letter] = extent
                term += letter
            terms.append(term)
        return f"{','.join(terms)}->{''.join(rng.sample(list(extents), rng.randrange(len(extents) + 1)))}"


def from_the_other_end(name: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The attributes of a call that goes the other way: positions counted from the other end, steps backwards. None of
    an op without steps. What is taken whole is reversed so, which draws of each number by itself seldom give."""
    attributes = [p for p in parameters(name) or () if not p.is_tensor]
    steps = [p.name for p in attributes if _are_steps(p.hint)]
    positions = [p.name for p in attributes if p.hint is tvm.ir.Expr and isinstance(values.get(p.name), list)]
    length = max((len(values[k]) for k in positions), default=0)
    if not steps or not length:
        return None
    turned = {k: [-1 - n for n in values[k]] for k in positions}
    return {**values, **turned, **{k: [-n for n in values.get(k) or [1] * length] for k in steps}}


def _are_steps(hint: Any) -> bool:
    """Of numbers that may be left out, one for each position."""
    return {option for option in typing.get_args(hint) if option is not tvm.ir.Expr} == {type(None)}


def _is_size(default: Any) -> bool:
    """Whether a parameter with this default counts elements: windows and strides, of which TVM takes 0 too."""
    return _are_counts(default, lambda n: n > 0)


def _may_be_none(default: Any) -> bool:
    """Whether a parameter with this default counts elements of which there may be none."""
    return _are_counts(default, lambda n: n == 0)


def _are_counts(default: Any, is_one: Callable[[int], bool]) -> bool:
    """Whether it is a whole number of the kind, or several."""
    numbers = default if isinstance(default, tuple | list) else [default]
    return bool(numbers) and all(isinstance(n, int) and not isinstance(n, bool) and is_one(n) for n in numbers)


def _with_other_axis(shape: Sequence[Any], extent: Any, rng: random.Random) -> list[Any]:
    """The shape with another extent in one place, as parts have that are joined."""
    axis = rng.randrange(max(1, len(shape)))
    return [extent if i == axis else e for i, e in enumerate(shape)]


def _widened(extent: Any, rng: random.Random) -> Any:
    """The extent; of an axis of one element another."""
    return rng.choice((2, 3)) if extent == 1 else extent


@lru_cache(4096)
def _words(documentation: str, name: str) -> list[str]:
    """Words that a parameter may be, as its paragraph of the documentation has them: quoted, listed, in a row."""
    paragraph = re.search(rf"^{name} ?:.*(?:\n(?:[ \t].*)?)*", documentation, re.MULTILINE)
    own = paragraph[0] if paragraph else ""
    words = [*_QUOTED.findall(own), *_LISTED.findall(own)]
    if len(set(words)) < 2:
        words += [word for row in _ROW.findall(own) for word in row.split(", ")]
    return words or _QUOTED.findall(documentation)


@cache
def _words_elsewhere(name: str, default: str) -> tuple[str, ...]:
    """The same of a parameter that an op's documentation does not tell of: as others tell of one of its name."""
    found = dict[str, None]()
    for op in sorted(relax_ops()):
        if any(one.name == name for one in parameters(op) or ()):
            words = _words(documentation_of(op), name)
            found.update(dict.fromkeys(words) if default in words else {})
    return tuple(found)


_QUOTED = re.compile(r"[\"'](\w+)[\"']")
_LISTED = re.compile(r"^\s*- (\w+)\b", re.MULTILINE)
_ROW = re.compile(r"\w+(?:, \w+)+")
