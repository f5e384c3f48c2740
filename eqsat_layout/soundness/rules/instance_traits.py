"""What instances of one body have in common.

In: instances. Out: their calls and parts, and :data:`Trait`: attributes, types and shapes by which those are taken that
are least like the ones before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat_layout.graph.borders import Part
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.known_ops import unusable
from eqsat_layout.soundness.rules.narrow_sums import has_long_axis
from eqsat_layout.soundness.rules.schema import OpCall
from eqsat_layout.soundness.rules.solver import Instance
from eqsat_layout.tir.arithmetic import are_floats

Trait = tuple[str, ...]
"""Of instances of one body: what some of them have in common."""


def op_calls_of(instance: Instance) -> list[OpCall]:
    """Its calls, without its views, pads and crops."""
    return [part for part in instance.values() if isinstance(part, OpCall)]


def alike(instance: Instance) -> int:
    """How many of its calls have a twin."""
    calls = [(c.name, c.operands, tuple(c.fields.items())) for c in op_calls_of(instance)]
    return len(calls) - len(set(calls))


def is_idle(instance: Instance, *, may_be_twins: bool = False) -> bool:
    """Whether its parts are identities and its calls twins, so that much of the body is the same term twice; or there
    is one element of everything."""
    parts = [part for part in instance.values() if not isinstance(part, OpCall)]
    is_plain = all(isinstance(part, IndexMap) and part.is_identity for part in parts)
    return (is_plain and alike(instance) > 0 and not may_be_twins) or is_tiny(instance)


def is_tiny(instance: Instance) -> bool:
    """Whether no operand of its calls has two elements: layouts, axes, orders and windows are all the same then."""
    calls = op_calls_of(instance)
    return bool(calls) and all(extent == 1 for call in calls for ty in call.operands for extent in ty.shape)


def unit_axes(instance: Instance) -> int:
    """How many axes of the operands of its calls are of one element."""
    calls = op_calls_of(instance)
    return sum(extent == 1 for call in calls for ty in call.operands for extent in ty.shape)


def unusable_calls(instance: Instance) -> Iterator[tuple[OpCall, str]]:
    """Its calls that can't be run or are no ops, and why."""
    for call in op_calls_of(instance):
        if unusable(call):
            yield call, f"{call.name} ({call.attributes}): {unusable(call)}"


def drawn_values(call: OpCall) -> list[Trait]:
    """Its attributes, as they were drawn."""
    return [(call.name, name, str(value)) for name, value in call.values.items()]


def attribute_traits(key: str, instance: Instance) -> tuple[Trait, ...]:
    """Each attribute of each call, as TVM has it and not as it was written, or its name if it has none; views, pads and
    crops themselves, but for identities, which are one.

    Each by itself: of pools that keep a shape most have a window of one, each with a layout or dilation of its own.
    """
    found: list[Trait] = []
    for variable in sorted(instance):
        chosen = instance[variable]
        if isinstance(chosen, OpCall):
            fields = chosen.fields or {"op": chosen.name}  # a body may leave open which it is
            found += [(key, variable, name, value) for name, value in fields.items()]
        else:
            idle = isinstance(chosen, IndexMap) and chosen.is_identity
            found.append((key, variable, "identity" if idle else str(chosen)))
    return tuple(found)


def type_traits(key: str, instance: Instance) -> tuple[Trait, ...]:
    """The dtypes that there are, which of several operands are of floats, the ranks, which operands have axes of one
    element, and which the result's shape."""
    calls = [c for name in sorted(instance) if isinstance(c := instance[name], OpCall)]
    types = [ty for c in calls for ty in c.operands]
    return (
        (key, "dtypes", *sorted({ty.dtype for ty in types})),
        *([(key, "floats", *(str(are_floats(ty.dtype)) for ty in types))] if types[1:] else []),
        (key, "ranks", *(str(len(ty.shape)) for ty in types)),
        (key, "units", *(str(1 in ty.shape) for ty in types)),
        (key, "long", str(any(map(has_long_axis, calls)))),
        (key, "as results", *(str(ty.shape == getattr(c.made, "shape", None)) for c in calls for ty in c.operands)),
    )


def calls_in(instances: Mapping[str, Sequence[Instance]]) -> Iterator[OpCall]:
    """The calls of all instances."""
    for found in instances.values():
        for instance in found:
            yield from op_calls_of(instance)


def parts_in(instances: Mapping[str, Sequence[Instance]]) -> Iterator[Part]:
    """The views, pads and crops of all instances."""
    for found in instances.values():
        for instance in found:
            yield from (part for part in instance.values() if not isinstance(part, OpCall))
