"""Modules and functions in the making, as the steps of random programs see them.

In: choices, and the steps that there are for a value. Out: the functions of a module. Steps add bindings to a
:class:`FunctionWriter`; constants, PrimFuncs and further functions they get from its :class:`ModuleWriter`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.tir.structural import is_one_of

EXTENTS: Final = (1, 2, 3, 4, 6, 8)
LARGEST: Final = 4000
"""Elements of a tensor."""
_UNREAD: Final = 60
"""Of a hundred values that nothing reads, so many are results: what is no result is not compared."""
_MOST_GROWTH: Final = {"float32": 10, "float16": 3, "int32": 3, "int64": 3}
"""Products and long sums that a value may have behind it before it is squashed, so that it stays a number."""


def shape_of(x: Any) -> tuple[Any, ...]:
    """The extents of a tensor, the static ones as ``int``."""
    return tuple(int(e) if isinstance(e, int | tirx.IntImm) else e for e in x.ty.shape.values)


def dtype_of(x: Any) -> str:
    """The element type's name."""
    return str(x.ty.dtype)


def is_static(x: Any) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(e, int) for e in shape_of(x))


def size_of(shape: Sequence[Any]) -> int:
    """Elements, symbolic extents counted as 3."""
    return math.prod(e if isinstance(e, int) else 3 for e in shape)


class ModuleWriter:
    """A module in the making: its functions, their names, constants that they share, layouts that may be desired.

    ``kinds_for``: the steps that a value may be taken through in a function, with their weights. ``kinds``: the names
    of those that were taken.
    """

    def __init__(self, choices: Choices, kinds_for: KindsFor):
        self.choices, self.kinds_for = choices, kinds_for
        self.functions: dict[Any, Any] = {}
        self._names: set[str] = set()
        self._constants: list[Any] = []
        self.kinds: list[str] = []
        self.desirable: dict[str, tuple[tuple[str, ...], ...]] = {}

    def fresh(self, hint: str) -> str:
        """A name that no function has."""
        name, number = hint, 0
        while name in self._names:
            number += 1
            name = f"{hint}{number}"
        self._names.add(name)
        return name

    def add(self, function: Any, name: str) -> Any:
        """The global variable that ``function`` gets."""
        variable = relax.BlockBuilder().add_func(function, name)
        self.functions[variable] = function
        return variable

    def constant(self, shape: Sequence[int], dtype: str) -> Any:
        """A random constant of small numbers, or one that there is already."""
        same = [c for c in self._constants if shape_of(c) == tuple(shape) and dtype_of(c) == dtype]
        if same and self.choices.chance(30):
            return self.choices.choice(same)
        rng = np.random.default_rng(len(self._constants))
        if dtype.startswith("float"):
            values: Any = rng.standard_normal(shape)
        else:
            values = rng.integers(0 if dtype == "bool" else -2, 2 if dtype == "bool" else 4, shape)
        self._constants.append(relax.const(np.asarray(values).astype(dtype), dtype))
        return self._constants[-1]


@dataclass
class _Known:
    """``is_rough``: may differ in the last bits between two ways to compute it. ``growth``: see ``_MOST_GROWTH``."""

    is_rough: bool = False
    growth: int = 0


@dataclass
class FunctionWriter:
    """A function in the making: dataflow blocks, and bindings between them."""

    module: ModuleWriter
    name: str
    params: list[Any]
    depth: int
    is_private: bool = False
    values: list[Any] = field(default_factory=list)
    builder: Any = None
    frozen: dict[str, list[str]] = field(default_factory=dict)
    calls: int = 0
    in_block: bool = False

    def __post_init__(self) -> None:
        self.choices = self.module.choices
        self.name = self.module.fresh(self.name)
        self._known: dict[str, _Known] = {}
        self._read: set[str] = set()

    def write(self, most: int) -> Any:
        """Writes the function in so many steps at most; gives its global variable."""
        self.builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(self.params)]
        with self.builder.function(self.name, params, private=self.is_private):
            self.values = [p for p in params if isinstance(p.ty, relax.TensorType)]
            tuples = [p for p in params if not isinstance(p.ty, relax.TensorType)]
            blocks = self.choices.choice((1, 1, 1, 2, 3))
            for block in range(blocks):
                if block and self.choices.chance(50):
                    self._steps(1)
                self._block(max(2, most // blocks), tuples if block == 0 else [])
            self.builder.emit_func_output(self._result(params))
        function = self.builder.finalize()[self.name]
        if self.frozen:
            function = function.with_attr(FROZEN_ATTRIBUTE, self.frozen)
        return self.module.add(function, self.name)

    def _block(self, most: int, tuples: Sequence[Any]) -> None:
        before = list(self.values)
        self.in_block = True
        with self.builder.dataflow():
            for whole in tuples:
                self._take_apart(whole)
            self._steps(most)
            inner = [v for v in self.values if not is_one_of(v, before)] or self.values[-1:]
            read = [v for v in inner[:-1] if str(v.name) in self._read]
            chosen = [inner[-1], *self._some_unread(inner[:-1]), *self.choices.some(read, 12)][:3]
            outputs = [self._output(value) for value in chosen]
        self.in_block = False
        self.values = [*before, *outputs[::-1]]

    def _some_unread(self, values: Iterable[Any]) -> list[Any]:
        return self.choices.some([v for v in values if str(v.name) not in self._read], _UNREAD)

    def _take_apart(self, whole: Any) -> None:
        for part in self.parts(whole):
            if isinstance(part.ty, relax.TupleType):
                self._take_apart(part)
            else:
                self.values.append(part)

    def parts(self, value: Any) -> list[Any]:
        """The fields of a tuple, each bound; of a tensor itself."""
        if not isinstance(value.ty, relax.TupleType):
            return [value]
        return [self.emit(relax.TupleGetItem(value, i)) for i in range(len(value.ty.fields))]

    def cut(self, value: Any) -> Any:
        """The value behind a ``match_cast`` to its own type."""
        variable = self.builder.match_cast(value, value.ty)
        self._known[str(variable.name)] = self.known(value)
        return variable

    def _output(self, value: Any) -> Any:
        output = self.builder.emit_output(value)
        self._known[str(output.name)] = self.known(value)
        return output

    def _steps(self, most: int) -> None:
        for _ in range(most):
            with self.choices.span():  # a record without this span is that of a program without this step
                if not self.values or not self.choices.chance(85):
                    return
                self._step()

    def _step(self) -> None:
        x = self.pick()
        kind = self.choices.weighted(self.module.kinds_for(self, x))
        made = kind(self, x)
        if made is not None:
            self.module.kinds.append(kind.__name__)
        for value in made if isinstance(made, list) else [made]:
            if value is not None and size_of(shape_of(value)) <= LARGEST:
                self.values.append(value)

    def _result(self, params: Sequence[Any]) -> Any:
        outputs = [v for v in self.values if not isinstance(v, relax.DataflowVar)]
        last = outputs[-1] if outputs else params[0]
        if not self.choices.chance(40):
            unread = self._some_unread(v for v in outputs[:-1] if not any(v.same_as(p) for p in params))
            return relax.Tuple([last, *unread]) if unread else last
        more = [last, *self.choices.some(outputs[:-1] or list(params), 60)]
        if self.choices.chance(20):
            more.append(relax.Tuple([last, params[0]]))
        return relax.Tuple(more)

    def emit(self, expr: Any, *, grows: int = 0, rough: bool | None = None) -> Any:
        """Binds ``expr``. It rounds, unless it is said to be exact: ``rough=False``."""
        self.calls += 1
        variable = self.builder.emit(expr, f"v{self.calls}")
        read = [leaf for a in getattr(expr, "args", [expr]) for leaf in _leaves(a)]
        if isinstance(expr, relax.TupleGetItem):
            read = [expr.tuple_value]
        operands = [self.known(a) for a in read]
        self._read.update(str(getattr(a, "name", "")) for a in read)
        if isinstance(expr, relax.Tuple | relax.TupleGetItem):
            rough = False
        is_float = not isinstance(variable.ty, relax.TensorType) or dtype_of(variable).startswith("float")
        is_rough = any(k.is_rough for k in operands) or (is_float and rough is not False)
        self._known[str(variable.name)] = _Known(is_rough, max([k.growth for k in operands], default=0) + grows)
        return variable

    def known(self, value: Any) -> _Known:
        """What is known of a value."""
        return self._known.get(str(getattr(value, "name", "")), _Known())

    def pick(self) -> Any:
        """Some value, a late one more often."""
        count = len(self.values)
        return self.values[-1 - min(self.choices.below(count), self.choices.below(count))]

    def tame(self, x: Any, grows: int = 1) -> Any:
        """``x``, squashed if it may be too large for another product or long sum."""
        if self.known(x).growth + grows <= _MOST_GROWTH.get(dtype_of(x), 100):
            return x
        squashed = self.emit(R.clip(x, -3, 3), rough=False)
        self._known[str(squashed.name)].growth = 0
        return squashed

    def constant(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        """A constant, perhaps shared."""
        return self.module.constant(shape, dtype)

    def freeze(self, op_name: str, layouts: Sequence[tuple[str, ...]], percent: int = 40) -> None:
        """Perhaps freezes the binding that was written last in one of ``layouts``; they may be desired for its op."""
        self.module.desirable[op_name] = tuple(layouts)
        if self.in_block and self.choices.chance(percent):
            self.frozen[f"v{self.calls}"] = list(self.choices.choice(layouts))


def _leaves(x: Any) -> list[Any]:
    return [leaf for f in x.fields for leaf in _leaves(f)] if isinstance(x, relax.Tuple) else [x]


Step = Callable[[FunctionWriter, Any], Any]
"""Takes a value through an op: gives the value or values that it made, or None where it does not apply."""

KindsFor = Callable[[FunctionWriter, Any], dict[Step, int]]
