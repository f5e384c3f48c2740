"""Calls of Relax ops with random attributes, as each op's own schema has them.

In: the name of an op and the types that its first operand may have. Out: calls that TVM's type inference takes. The
registered op says which of its arguments are tensors, its Python function what the others are; no list of attributes is
kept here. A string is drawn from those in the function's documentation, a layout from the orders of its letters.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.legalize import REFUSALS, describes_kernel, kernel_of
from eqsat_layout.graph.op_calls import attributes_of, documentation_of, fields_of, function_of, parameters
from eqsat_layout.graph.op_names import relax_ops
from eqsat_layout.notes import last_of
from eqsat_layout.soundness.rules.draws import COMPUTED, DTYPES, ArgumentDraw

ATTEMPTS = 80
"""Draws per call that is wanted; few of a convolution's fit its operands."""
_EXTENTS = (1, 1, 2, 2, 3, 3, 4, 4, 6)
LARGEST_RANK = 6
LARGEST = 64
"""Elements of a tensor of a random shape."""
LONG = 320
"""Elements of a tensor with an axis that narrow dtypes can't count."""
LONGEST = 2112
"""The same for float16, of which sums of ones end at 2048."""

_REMEMBERED = 10_000
"""Calls that are kept."""
KEPT = 0.7
"""How often a call that differs little from another keeps one of its attributes."""


@dataclass(frozen=True)
class OpCall:
    """``build`` makes it of variables of the types ``operands``; ``attributes`` are the rest, as text, or whatever
    tells one without a name from others; ``values``: by name."""

    name: str
    build: Callable[..., Any] = field(compare=False)
    operands: tuple[TensorType, ...]
    attributes: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def variables(self) -> list[Any]:
        """Fresh variables to build it of."""
        return [relax.Var(f"p{i}", relax.TensorType(list(ty.shape), ty.dtype)) for i, ty in enumerate(self.operands)]

    def module(self) -> Any:
        """One whose main is the call, of fresh variables."""
        builder = relax.BlockBuilder()
        variables = self.variables
        with builder.function("main", variables):
            with builder.dataflow():
                output = builder.emit_output(self.build(*variables))
            builder.emit_func_output(output)
        return builder.finalize()

    @cached_property
    def made(self) -> TensorType | tuple[TensorType, ...] | None:
        """The type of its result, or of all of them; None if type inference refuses it or does not know a shape."""
        return None if isinstance(self._inferred, str) else self._inferred

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Its attributes as TVM has them, as text: a number may be written alone or as a list of one. Those that are
        arguments of TVM's call are as they were written."""
        found = fields_of(self.build(*self.variables).attrs)
        return {name: str(value) for name, value in {**self.values, **found}.items()}

    @cached_property
    def attributes_told(self) -> Mapping[str, Any]:
        """Its attributes as plain values, as TVM has them: what rules are told of them."""
        return attributes_of(self.build(*self.variables)) or {}

    @cached_property
    def _inferred(self) -> TensorType | tuple[TensorType, ...] | str:
        """The type, or why there is none."""
        try:
            made = normalized(self.build(*self.variables))
        except ILL_TYPED as error:
            return last_of(error)
        fields = [small_type(ty) for ty in (made.ty.fields if isinstance(made.ty, relax.TupleType) else [made.ty])]
        known = tuple(field for field in fields if field is not None)
        if len(known) < len(fields):
            return "a result is of no known shape, large, or of another dtype"
        return known if isinstance(made.ty, relax.TupleType) else known[0]

    @cached_property
    def refusal(self) -> str:
        """Why type inference does not take it, or TVM's legalisation, which takes less; empty if they do."""
        if isinstance(self._inferred, str):
            return self._inferred
        legalizer = tvm.ir.Op.get(self.name).get_attr("FLegalize")
        if legalizer is None:
            return ""
        variables = self.variables
        call = normalized(self.build(*variables))
        if describes_kernel(legalizer, call) or (self.holds_nothing and kernel_of(call) is not None):
            return ""
        builder = relax.BlockBuilder()
        why = "it is not legalised"
        with builder.function("main", variables):
            try:
                call = builder.normalize(self.build(*variables))
                legal = legalizer(builder, call)
            except REFUSALS as error:
                legal, why = call, last_of(error)
            builder.emit_func_output(variables[0])
        return why if legal.same_as(call) else ""

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of all its results; none if type inference refuses it."""
        made = self.made
        return made if isinstance(made, tuple) else () if made is None else (made,)

    @cached_property
    def holds_nothing(self) -> bool:
        """Whether an operand or a result of it has no elements."""
        return any(map(is_empty, (*self.operands, *self.results)))

    @property
    def is_computable(self) -> bool:
        """Whether type inference takes it, and TVM's legalisation too, if there is one; and there is something to
        compute."""
        return not self.refusal and not self.holds_nothing


def normalized(call: Any) -> Any:
    """The call with its type; an argument that has to be bound first needs a block for that."""
    builder = relax.BlockBuilder()
    try:
        return builder.normalize(call)
    except ILL_TYPED as error:
        if "without a scope" not in str(error):
            raise
    with builder.function("main", relax.analysis.free_vars(call)):
        variable = builder.emit(call)
        made = builder.lookup_binding(variable)
        builder.emit_func_output(variable)
    return made


def has_attributes(name: str) -> bool:
    """Whether two ops of this name may differ on the same operands."""
    return any(not p.is_tensor for p in parameters(name) or ())


@cache
def all_ops() -> tuple[str, ...]:
    """The registered ops that take tensors, by name."""
    return tuple(name for name in sorted(relax_ops()) if parameters(name) is not None)


def takes_operands(name: str, count: int) -> bool:
    """Whether an op may have so many operands."""
    tensors = [p for p in parameters(name) or () if p.is_tensor]
    least = sum(p.is_required for p in tensors)
    return least <= count <= len(tensors) + (count if any(p.is_list for p in tensors) else 0)


def draw_calls(name: str, first: TensorType, count: int, rng: random.Random, attempts: int = ATTEMPTS) -> list[OpCall]:
    """Up to ``count`` calls that differ in their attributes only, with a first operand of that type."""
    for _ in range(attempts):
        call = drawn(name, (first,), rng)
        if call.is_computable:
            return [call, *vary(call, count - 1, rng, attempts)]
    return []


def vary(call: OpCall, count: int, rng: random.Random, attempts: int = ATTEMPTS) -> list[OpCall]:
    """Up to ``count`` calls of the same op on the same operands, with other attributes."""
    found = {call.attributes: call}
    for _ in range(attempts if has_attributes(call.name) else 0):
        if len(found) > count:
            break
        kept = {name: value for name, value in call.values.items() if rng.random() < KEPT}
        other = drawn(call.name, call.operands, rng, exact=True, kept=kept if rng.random() < 0.5 else {})
        if other.attributes not in found and other.is_computable:
            found[other.attributes] = other
    return list(found.values())[1:]


def random_type(rng: random.Random, dtypes: Sequence[str]) -> TensorType:
    """A small tensor of any rank from 0 to 6."""
    shape = [rng.choice(_EXTENTS) for _ in range(rng.randrange(LARGEST_RANK + 1))]
    while math.prod(shape) > LARGEST:
        shape[rng.randrange(len(shape))] = 1
    return TensorType(tuple(shape), rng.choice(dtypes))


def drawn(
    name: str,
    known: Sequence[TensorType | None],
    rng: random.Random,
    *,
    exact: bool = False,
    kept: Mapping[str, Any] = MappingProxyType({}),
) -> OpCall:
    """One draw, well typed or not, with operands of the types that are known; ``exact``: with so many; ``kept``:
    attributes that are not drawn."""
    first = known[0] if known and known[0] is not None else random_type(rng, DTYPES)
    found = parameters(name)
    assert found is not None, name
    types: list[TensorType] = []
    draw = ArgumentDraw(first, rng, documentation_of(name), kept, types)
    attributes: dict[str, Any] = {}
    places: dict[str, tuple[int, ...]] = {}
    several: set[str] = set()
    for number, parameter in enumerate(found):
        if not parameter.is_tensor:
            is_kept = parameter.name in kept and draw.may_be(parameter, kept[parameter.name])
            attributes[parameter.name] = kept[parameter.name] if is_kept else draw.attribute(parameter)
            continue
        several_are = len(known) - len(types) - sum(p.is_tensor for p in found[number + 1 :]) if exact else 2
        at = tuple(range(len(types), len(types) + (max(1, several_are) if parameter.is_list else 1)))
        if at[-1] >= len(known) if exact else parameter.default is None and rng.random() < 0.5:
            attributes[parameter.name] = None
            continue
        for place in at:
            wanted = known[place] if place < len(known) else None
            types.append(draw.operand(place) if wanted is None else wanted)
        places[parameter.name] = at
        several.update((parameter.name,) if parameter.is_list else ())
    build = partial(_build, name, places, frozenset(several), attributes)
    said = ", ".join(f"{k}={v}" for k, v in attributes.items())
    return _one_of_its_kind(OpCall(name, build, tuple(types), said, attributes))


@lru_cache(_REMEMBERED)
def _one_of_its_kind(call: OpCall) -> OpCall:
    """The same object for equal calls, so that type inference is done once: a quarter of what is drawn, or more, was
    drawn before."""
    return call


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


def is_empty(ty: TensorType) -> bool:
    """Whether it has no elements."""
    return 0 in ty.shape


def small_type(ty: Any) -> TensorType | None:
    """The type of a tensor of known shape that has few elements, of a dtype that NumPy has; None if it is another."""
    extents = getattr(getattr(ty, "shape", None), "values", None)
    if not isinstance(ty, relax.TensorType) or extents is None:
        return None
    shape = tuple(int(e) if isinstance(e, tvm.tirx.IntImm) else -1 for e in extents)
    size = math.prod(shape)
    is_small = size <= 16 * LARGEST or size == max(shape) <= LONGEST
    fits = str(ty.dtype) in COMPUTED and is_small and all(e >= 0 for e in shape)
    return TensorType(shape, str(ty.dtype)) if fits else None
