"""What the interpreter of TIR computes with: elements with a mask of what is defined, and code.

Arrays have the worlds in front, then an axis per loop that runs as an array. A pair of elements and mask has ``None``
for a mask where all is defined, which is the common case and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import EqsatError

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Pair = tuple[Array, Mask | None]


class InterpreterError(EqsatError):
    """TIR that the interpreter has no words for, or that reads or stores where nothing is."""


class OutOfBoundsError(InterpreterError):
    """The latter: what is built of such TIR reads or writes beside its arrays."""


@dataclass(frozen=True)
class Masked:
    """Elements and whether they are defined, worlds in front. What is not defined may be anything, NaN too."""

    values: Array
    defined: Mask

    @staticmethod
    def of(values: Array, defined: Mask | None = None) -> Masked:
        """All defined, unless ``defined`` says otherwise."""
        return Masked(values, np.ones(values.shape, bool) if defined is None else defined)


@dataclass(slots=True)
class Frame:
    """The state of one run: buffers by number, C-contiguous ``(worlds, *shape)``, and variables by slot."""

    worlds: int
    values: list[Array]
    masks: list[Mask | None]
    scope: list[Pair]
    hoisted: list[Pair] = field(default_factory=list)
    """What of a reduction's body does not read its result, for all of its iterations."""
    slices: list[Pair] = field(default_factory=list)
    """The same for the iteration that runs."""
    shared: dict[SharedPart, Pair] = field(default_factory=dict)
    """What parts of the expression that is evaluated are worth, of those that stand there several times."""
    turns: int = 0
    """Of loops whose ends the operands decide."""
    work: int = 0
    """Expressions that were evaluated, each on arrays, and as many more as a statement takes by itself."""
    most_work: float = math.inf
    """Beyond which a run ends with an error."""


Run = Callable[[Frame, Mask | None], Pair]
"""The value of an expression; the mask says in which lanes it is asked for (``None``: in all)."""
Step = Callable[[Frame, Mask | None], None]
"""A statement, done in these lanes."""


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled expression. ``known`` is its value, world axis 1, where that is the same in every run."""

    run: Run
    known: Array | None = None
    unsafe: bool = False
    """Whether it may read out of bounds in lanes that do not ask for it."""
    turns: frozenset[int] | None = None
    """The slots of loop variables that it is worked out of; ``None`` if of something else too."""

    @property
    def decided_by(self) -> frozenset[int] | None:
        """The same; of none where its value is known."""
        return self.turns if self.known is None else frozenset()

    @staticmethod
    def constant(value: Array) -> Code:
        """The same value in every run."""
        return Code(lambda frame, taken: (value, None), value)


@dataclass(slots=True, eq=False)
class SharedPart:
    """A part of an expression that may stand there several times: then it is computed once for each evaluation."""

    run: Run
    code: Code = field(init=False)
    may_be_shared: bool
    """Whether it is the same whichever lanes ask for it, and no number that is there anyway."""
    is_shared: bool = False

    @staticmethod
    def of(code: Code) -> SharedPart:
        part = SharedPart(code.run, code.known is None and not code.unsafe)
        part.code = replace(code, run=part) if part.may_be_shared else code
        return part

    def __call__(self, frame: Frame, taken: Mask | None) -> Pair:
        if not self.is_shared:
            return self.run(frame, taken)
        found = frame.shared.get(self)
        if found is None:
            found = frame.shared[self] = self.run(frame, taken)
        return found


def begun_anew(code: Code) -> Code:
    """An expression with parts that are shared in it: what they were worth the last time is forgotten first."""
    run = code.run

    def begin(frame: Frame, taken: Mask | None) -> Pair:
        frame.shared.clear()
        return run(frame, taken)

    return replace(code, run=begin)


def scalar(value: float, dtype: str) -> Array:
    """One element that broadcasts against every grid."""
    return np.asarray(value).astype(dtype).reshape(1)


def meet(a: Mask | None, b: Mask | None) -> Mask | None:
    """Where both hold; ``None`` is everywhere."""
    if a is None:
        return b
    return a if b is None else a & b


def decided_together(codes: Sequence[Code]) -> frozenset[int] | None:
    """The slots of loop variables that all of them are worked out of, and of nothing else."""
    found = [code.decided_by for code in codes]
    known = [turns for turns in found if turns is not None]
    return frozenset[int]().union(*known) if len(known) == len(found) else None


def lifted(function: Callable[..., Array], codes: Sequence[Code]) -> Code:
    """``function`` of what ``codes`` give: undefined where one of them is."""
    if all(code.known is not None for code in codes):
        with np.errstate(all="ignore"):
            return Code.constant(function(*(code.known for code in codes)))
    unsafe = any(code.unsafe for code in codes)
    turns = decided_together(codes)
    if len(codes) == 2:
        first, second = codes[0].run, codes[1].run

        def run_two(frame: Frame, taken: Mask | None) -> Pair:
            x, p = first(frame, taken)
            y, q = second(frame, taken)
            return function(x, y), meet(p, q)

        return Code(run_two, None, unsafe, turns)
    runs = [code.run for code in codes]

    def run(frame: Frame, taken: Mask | None) -> Pair:
        pairs = [r(frame, taken) for r in runs]
        defined: Mask | None = None
        for _, mask in pairs:
            defined = meet(defined, mask)
        return function(*(values for values, _ in pairs)), defined

    return Code(run, None, unsafe, turns)


def unequal_in_worlds(function: Callable[..., Array], first: Code, second: Code, device_world: int, axes: int) -> Code:
    """``function`` says which floats differ where NaN differs from nothing, as in TVM's code for LLVM; in one world it
    differs from everything, as on devices."""
    left, right = first.run, second.run

    def run(frame: Frame, taken: Mask | None) -> Pair:
        x, p = left(frame, taken)
        y, q = right(frame, taken)
        differs, strange = function(x, y), np.isnan(x) | np.isnan(y)
        if strange.any():
            on_device = (np.arange(frame.worlds) == device_world).reshape((-1,) + (1,) * axes)
            differs = differs | strange & on_device
        return differs, meet(p, q)

    return Code(run, None, first.unsafe or second.unsafe)


def chosen(condition: Code, yes: Code, no: Code) -> Code:
    """``yes`` where the condition holds, ``no`` elsewhere; each is asked for where it is chosen only.

    Where the condition is not defined, neither is the result, and what is asked for is what the condition happens to be
    in that world: as in a run, an index that is not defined and the test that guards it are one number.
    """
    test, left, right = condition.run, yes.run, no.run
    asks_left, asks_right = yes.unsafe, no.unsafe

    def run(frame: Frame, taken: Mask | None) -> Pair:
        c, known = test(frame, taken)
        c = c.astype(bool, copy=False)
        a, p = left(frame, meet(taken, c) if asks_left else None)
        b, q = right(frame, meet(taken, ~c) if asks_right else None)
        defined = known
        if p is not None or q is not None:
            defined = meet(known, np.where(c, True if p is None else p, True if q is None else q))
        return np.where(c, a, b), defined

    if condition.known is not None and yes.known is not None and no.known is not None:
        return Code.constant(np.where(condition.known.astype(bool), yes.known, no.known))
    return Code(run, None, condition.unsafe or yes.unsafe or no.unsafe)


def decided(first: Code, second: Code, absorbing: bool) -> Code:
    """``or`` (absorbing: true) and ``and``: one side may decide; the second is asked where the first does not."""
    left, right, asks = first.run, second.run, second.unsafe
    function = np.logical_or if absorbing else np.logical_and

    def run(frame: Frame, taken: Mask | None) -> Pair:
        x, p = left(frame, taken)
        x = x.astype(bool, copy=False)
        y, q = right(frame, meet(taken, ~x if absorbing else x) if asks else None)
        y = y.astype(bool, copy=False)
        if p is None and q is None:
            return function(x, y), None
        known_x: Any = True if p is None else p
        known_y: Any = True if q is None else q
        sure = (known_x & (x == absorbing)) | (known_y & (y == absorbing))
        return np.where(sure, absorbing, function(x, y)), sure | (known_x & known_y)

    if first.known is not None and second.known is not None:
        return Code.constant(function(first.known, second.known))
    return Code(run, None, first.unsafe or second.unsafe)
