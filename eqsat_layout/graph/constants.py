"""Constants: what they are made of, and their elements as laid out for their users.

In: constants of the program, under views and ops. Out: Relax constants. Elements are computed when the plan is emitted,
and only of what the plan uses: ops by running their PrimFuncs together, layouts with NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.skeleton import untouched
from eqsat_layout.maps import UNDEF, Format, IndexMap

GROWTH: Final = 2.0
_SMALL: Final = 1 << 16

Array = npt.NDArray[Any]

Evaluate = Callable[[tvm.IRModule], Sequence[Any]]
"""Runs ``main`` of a module without parameters: the tensors of the tuple that it gives."""


def may_fold(elements: int, operands: int, own: int, growth: float = GROWTH) -> bool:
    """Whether an op over constants of so many elements in all is computed ahead for a result of ``elements``.

    It is where the result is small, or ``growth`` times as large at most: else the program grows by more than it gains.
    ``own``: elements of the constants that the program has itself. What is made of them is no measure: joined with
    itself again and again, a number would fill the memory.
    """
    return elements <= max(_SMALL, growth * min(operands, own))


_SHARED: Final = ("float32", "float64", "int32", "int64")
"""What NumPy takes without a copy: weights are large."""


@dataclass(frozen=True)
class Applied:
    """An op over constants only; it has one result and is no view."""

    signature: Signature
    operands: tuple[Constant, ...]

    @property
    def type(self) -> TensorType:
        (ty,) = self.signature.results
        assert ty is not None
        return ty


@dataclass(frozen=True)
class Constant:
    """A constant of the program or an op over constants, with the views that it is seen under, innermost first.

    Views are composed as far as their digits divide and identities are dropped, so that a cycle of views gives the
    same constant again and not a new one in every round.
    """

    name: str
    source: Any
    views: tuple[Part, ...] = ()

    def under(self, view: Part) -> Constant:
        """The constant that ``view``, a pad or a crop makes of this one."""
        last = self.views[-1] if self.views else None
        composed = view.after(last) if isinstance(view, IndexMap) and isinstance(last, IndexMap) else None
        views = (*self.views, view) if composed is None else (*self.views[:-1], composed)
        is_identity = isinstance(views[-1], IndexMap) and views[-1].is_identity
        return Constant(self.name, self.source, views[:-1] if is_identity else views)

    @property
    def key(self) -> str:
        """Text that identifies it within its region: another one may use the name for something else."""
        return "|".join((self.name, *(view.key for view in self.views)))

    @property
    def is_own(self) -> bool:
        """It is one of the program, as it stands there."""
        return not self.views and not isinstance(self.source, Applied)

    @property
    def dtype(self) -> str:
        """The dtype of its elements."""
        return self.source.type.dtype if isinstance(self.source, Applied) else str(self.source.ty.dtype)

    @property
    def elements(self) -> int:
        """Number of elements; constants have no symbolic sizes."""
        if self.views:
            return math.prod(int(e) for e in self.views[-1].result_shape)
        shape = self.source.type.shape if isinstance(self.source, Applied) else self.source.ty.shape.values
        return math.prod(int(e) for e in shape)

    @property
    def uniform(self) -> str | None:
        """The number that all its elements are, as :func:`number_text`; None if they differ or are not known yet."""
        if isinstance(self.source, Applied) or not all(isinstance(view, IndexMap) for view in self.views):
            return None
        value = self.source.value
        return uniform_number(np.from_dlpack(value) if str(value.dtype) in _SHARED else value.numpy())


def number_text(value: Any) -> str:
    """A number as rules write it: ``1`` for 1.0 and True too, ``-0`` for the negative zero, ``nan``."""
    number = np.asarray(value).reshape(()).astype("float64" if np.asarray(value).dtype.kind not in "biu" else "object")
    plain = number.item()
    if isinstance(plain, float) and plain.is_integer():
        return "-0" if plain == 0 and math.copysign(1, plain) < 0 else str(int(plain))
    return repr(plain) if isinstance(plain, float) else str(int(plain))


def uniform_number(array: Array) -> str | None:
    """The number that all elements are; None where they differ, or there are none."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return number_text(flat[:1]) if _is_uniform(flat[:2]) and _is_uniform(flat) else None


def _is_uniform(flat: Array) -> bool:
    """Whether all elements are the same bits, and there is one."""
    return bool(flat.size) and bool((flat.view("uint8").reshape(flat.size, -1) == flat[:1].view("uint8")).all())


class ConstantPool:
    """Makes constants as laid out for their users; equal uses share one. ``evaluate`` runs ops over constants.

    An op over constants has a number, the same for what is the same op over the same constants in any region: as a
    term, an op over twice the same, over twice the same and so on is without end.

    ``read``: only constants of so many elements are read by who asks, so that larger ones are zeros; None where all
    are read.
    """

    def __init__(self, evaluate: Evaluate, read: int | None = None) -> None:
        self._evaluate, self._read = evaluate, read
        self._made: dict[tuple[Hashable, Format], Any] = {}
        self._numbers: dict[Hashable, int] = {}
        self._applied: dict[int, tuple[Applied, int]] = {}
        """By ``id``: what is in here lives on."""
        self._results: dict[int, Array] = {}

    def prepare(self, constants: Iterable[Constant]) -> None:
        """Runs the ops that the constants are made by: those together whose operands are there."""
        waiting: dict[int, Applied] = {}
        asked = list(constants)
        self._number_all(asked)
        for one in _in_order(constant for constant in asked if self._is_read(constant)):
            _, number = self._applied[id(one)]
            if number not in self._results:
                waiting[number] = one
        while waiting:
            ready = {n: a for n, a in waiting.items() if not any(self._number(o) in waiting for o in a.operands)}
            operands = [[self._array(o) for o in a.operands] for a in ready.values()]
            results = self._evaluate(_calls(list(ready.values()), operands))
            for number, result in zip(ready, results, strict=True):
                self._results[number] = result.numpy()
                del waiting[number]

    def expr(self, constant: Constant, fmt: Format) -> Any:
        """The Relax constant that holds ``constant`` in ``fmt``; the program's own where nothing was done to it."""
        if constant.is_own and fmt.is_row_major:
            return constant.source
        key = (self._identity(constant), fmt)
        if key not in self._made:
            fmt = fmt.with_fill(0.0) if fmt.fill is UNDEF else fmt  # any bits will do, 0 is tame
            self._made[key] = self._laid(constant, fmt) if self._is_read(constant) else self._any(constant, fmt)
        return self._made[key]

    def _number_all(self, constants: Iterable[Constant]) -> None:
        for one in _in_order(constants):
            identity = (one.signature.key, *map(self._identity, one.operands))
            number = self._numbers.setdefault(identity, len(self._numbers))
            self._applied.setdefault(id(one), (one, number))

    def _is_read(self, constant: Constant) -> bool:
        return self._read is None or constant.elements <= self._read

    def _laid(self, constant: Constant, fmt: Format) -> Any:
        array = self._array(constant)
        return relax.const(fmt.lay(array), str(array.dtype))

    def _any(self, constant: Constant, fmt: Format) -> Any:
        """Of the type of the constant in ``fmt``."""
        return relax.const(untouched([int(e) for e in fmt.physical_shape], constant.dtype), constant.dtype)

    def _number(self, constant: Constant) -> int | None:
        """That of the op that a constant is made by."""
        return self._applied[id(constant.source)][1] if isinstance(constant.source, Applied) else None

    def _identity(self, constant: Constant) -> Hashable:
        """Equal for what is made of the same in the same way, in any region."""
        number = self._number(constant)
        return (constant.source if number is None else number, *(view.key for view in constant.views))

    def _array(self, constant: Constant) -> Array:
        number = self._number(constant)
        array: Array = constant.source.value.numpy() if number is None else self._results[number]
        for view in constant.views:
            array = view.apply(array)
        return array


def _in_order(constants: Iterable[Constant]) -> list[Applied]:
    """The ops that they are made by, each once, operands before users."""
    found: dict[int, Applied] = {}
    waiting = [constant.source for constant in constants]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Applied) or id(one) in found:
            continue
        before = [o.source for o in one.operands if isinstance(o.source, Applied) and id(o.source) not in found]
        if before:
            waiting += [one, *before]
        else:
            found[id(one)] = one
    return list(found.values())


def _calls(ops: Sequence[Applied], operands: Sequence[Sequence[Array]]) -> tvm.IRModule:
    """A module whose ``main`` gives what the ops make of these operands."""
    builder = relax.BlockBuilder()
    signatures = {op.signature.key: op.signature for op in ops}
    functions = {key: builder.add_func(s.func, s.name.rpartition(".")[2]) for key, s in signatures.items()}
    with builder.function("main", []):
        with builder.dataflow():
            results: list[Any] = []
            for op, given in zip(ops, operands, strict=True):
                constants = [relax.const(np.asarray(array, order="C"), str(array.dtype)) for array in given]
                result = relax.TensorType([int(e) for e in op.type.shape], op.type.dtype)
                call = relax.call_tir(functions[op.signature.key], constants, result)
                results.append(builder.emit(call))
            made = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(made)
    return builder.finalize()
