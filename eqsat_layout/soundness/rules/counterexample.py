"""Counterexamples in words.

In: an instance of a rule that is not true. Out: :class:`Counterexample`, whose text shows the rule's place, what its
variables stand for, and what differs, with a seed that gives the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_layout.egraph.expressions import Expr, show
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.graph.op_calls import attributes_of, defaults_of
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.bits import DEVICE_WORLD, same_bits
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.remarks import tainted
from eqsat_layout.tir.arithmetic import are_floats

LARGEST_SHOWN = 24


@dataclass(frozen=True)
class Counterexample:
    """``size``: elements of all tensors in it; ``text``: for people."""

    rule: Rule
    size: int
    seed: int
    text: str


def describe(
    model: RuleModel, rule: Rule, scope: Mapping[str, Any], action: Expr, why: str, *, seed: int
) -> Counterexample:
    """The counterexample that the variables in ``scope`` are."""
    sides = _sides(model, action, scope)
    world = _world([array for _, array in sides])
    names, sorts = _Namer(model, world), model.base.variables(rule)
    lines = [f"{rule.file}:{rule.line}: rule {rule.name!r} is not sound", f"  {show(action)}: {why}", "with"]
    for name, value in scope.items():
        lines.append(f"  {name} = {names.value(value, sorts.get(name))}")
    lines += [f"  {show(part)} = {_tensor(array, world)}" for part, array in sides]
    lines += [f"  {line}" for line in first_difference(*(array[world] for _, array in sides))]
    tensors = names.lines()
    lines += ["where", *(f"  {line}" for line in tensors)] if tensors else []
    lines += ["on a device, where NaN differs from all numbers"] if world == DEVICE_WORLD else []
    lines += tainted(rule, model.base)
    lines.append(f"seed {seed}, shapes around {model.vocabulary.shape}")
    return Counterexample(rule, names.size, seed, "\n".join(lines))


class _Namer:
    """Names tensors by what they were made by, and lists them."""

    def __init__(self, model: RuleModel, world: int):
        self._model, self._world = model, world
        self._lines: dict[int, str] = {}

    @property
    def size(self) -> int:
        values = self._model.values.tensors
        arrays = [a for a in (values[i] for i in self._lines) if not isinstance(a, tuple)]
        return int(sum(a[0].size for a in arrays)) + 10 * len(self._lines)

    def lines(self) -> list[str]:
        """One line per tensor, operands first."""
        return list(self._lines.values())

    def value(self, value: Any, sort: str | None) -> str:
        """What a variable of that sort stands for."""
        if sort == "Tensor":
            return self.tensor(value)
        if sort == "Args":
            return "(" + ", ".join(map(self.tensor, value)) + ")"
        return _named(self._model, value) if isinstance(value, str) else str(value)

    def tensor(self, number: int) -> str:
        """The tensor's name."""
        if number not in self._lines:
            made = self._made_by(self._model.values.made_by[number])
            value = self._model.values.tensors[number]
            shown = "tuple" if isinstance(value, tuple) else _tensor(value, self._world)
            self._lines[number] = f"t{number} = {made}: {shown}"
        return f"t{number}"

    def _made_by(self, how: tuple[Any, ...]) -> str:
        kind, *rest = how
        if kind == "Op":
            words = [*map(self.tensor, rest[1]), *_attributes(self._model, rest[0])]
            return f"{_named(self._model, rest[0])}({', '.join(words)})"
        if kind == "Result":
            return f"result {rest[0]} of {self._made_by(rest[1])}"
        if kind == "window":
            return f"{self.tensor(rest[1])} within {rest[0]}"
        return f"{kind} {rest[0]}"


def _named(model: RuleModel, name: str) -> str:
    part = model.values.parts.get(name)
    if isinstance(part, IndexMap):
        return f"view[{part}]"
    signature = model.values.signatures.get(name)
    if signature is not None:
        return signature.name
    fmt = model.values.names.formats.get(name)
    return f"{name!r}, the format {fmt}" if fmt is not None else name


def _attributes(model: RuleModel, name: str) -> list[str]:
    """The attributes of an op that are not as if nothing were said of them, as ``name=value``."""
    signature = model.values.signatures.get(name)
    found = None if signature is None else attributes_of(signature.template)
    if signature is None or not found:
        return []
    unsaid = defaults_of(signature.template, found)
    return [f"{key}={value!r}" for key, value in found.items() if key not in unsaid]


def _tensor(array: np.ndarray[Any, Any], world: int) -> str:
    """Its type and elements, in one world."""
    return f"{array.shape[1:]} {array.dtype} {first_elements(array[world])}"


def first_elements(array: np.ndarray[Any, Any]) -> str:
    """The first of ``array``, as a person reads them."""
    flat = array.ravel()
    text = " ".join(_digits(v) if are_floats(array.dtype) else str(v) for v in flat[:LARGEST_SHOWN])
    return f"[{text}{' ...' if flat.size > LARGEST_SHOWN else ''}]"


def _digits(value: Any) -> str:
    """As few as tell a float from its neighbours: two sides may differ in the last bit."""
    text = f"{value:g}"
    return text if value != value or type(value)(text) == value else str(value)


def _sides(model: RuleModel, action: Expr, scope: Mapping[str, Any]) -> list[tuple[Expr, np.ndarray[Any, Any]]]:
    """Both sides of an equality of tensors, all worlds of them."""
    if isinstance(action, str) or action[0] not in ("union", "becomes", "may-become"):
        return []
    try:
        sides = [model.evaluator.term(part, scope) for part in action[1:]]
    except IllTypedError:
        return []
    arrays = [None if isinstance(side, tuple) else model.values.tensors[side] for side in sides]
    return [(part, a) for part, a in zip(action[1:], arrays, strict=True) if isinstance(a, np.ndarray)]


def first_difference(*sides: np.ndarray[Any, Any]) -> Iterator[str]:
    """Where two tensors of one shape differ, if that is behind the elements that are shown."""
    if len(sides) != 2 or sides[0].shape != sides[1].shape:
        return
    pairs = enumerate(zip(*(side.ravel() for side in sides), strict=True))
    at = next((i for i, (a, b) in pairs if not same_bits(np.asarray(a), np.asarray(b))), 0)
    if at >= LARGEST_SHOWN:
        place = ", ".join(str(int(i)) for i in np.unravel_index(at, sides[0].shape))
        a, b = (first_elements(side.ravel()[at : at + 1]).strip("[]") for side in sides)
        yield f"first at [{place}]: {a} and {b}"


def _world(sides: Sequence[np.ndarray[Any, Any]]) -> int:
    """The first world in which two sides differ, which is the one that is shown."""
    if len(sides) != 2 or sides[0].shape != sides[1].shape:
        return 0
    return next((w for w, (a, b) in enumerate(zip(*sides, strict=True)) if not same_bits(a, b)), 0)
