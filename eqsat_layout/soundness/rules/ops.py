"""The calls of ops in random models: those that every vocabulary has, some of all that there are, and those that rules
name.

In: shapes and names. Out: calls that TVM takes, and what no call is found of, with the reason.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations, islice, product
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import NO_WORDS, parameters
from eqsat_layout.soundness.rules.call_search import CallSearch
from eqsat_layout.soundness.rules.draws import DTYPES
from eqsat_layout.soundness.rules.known_ops import IS_PART, unusable
from eqsat_layout.soundness.rules.schema import (
    ATTEMPTS,
    KEPT,
    LARGEST,
    LARGEST_RANK,
    OpCall,
    all_ops,
    draw_calls,
    drawn,
    has_attributes,
    vary,
)

Shape = tuple[int, ...]

SAMPLED = 5
"""Ops in a vocabulary that no rule names, drawn from all that Relax has."""
VARIANTS = 3
"""Choices of attributes on the same operands."""
FEW_ATTEMPTS = 12
_CLIMBS = 16
"""Calls that are found for an op until there is one with attributes that can be varied."""
_STEPS = 1500
"""Calls that are drawn for one of so many operands."""
_TO_VARY = 20
"""Draws of other attributes for one of them."""
_LIFTS = 100
"""The same with an axis more or less."""
_PARTS = 20
"""Calls that are but views, pads or crops, before one of them is taken: nothing else is looked for any longer."""
_INTEGERS = [dtype for dtype in DTYPES if "int" in dtype]


@cache
def plain_calls(shape: Shape, wide: Shape) -> tuple[OpCall, ...]:
    """Ops that every vocabulary has: what layouts go through, and what they don't."""
    return tuple(_plain_calls(shape, wide))


def _plain_calls(shape: Shape, wide: Shape) -> Iterator[OpCall]:
    last = len(shape) - 1
    yield from _pointwise(shape)
    yield from _pointwise(wide)
    if len(shape) > 1 and shape[::-1] not in (shape, wide):
        yield from _pointwise(shape[::-1])
    for build in (R.add, R.maximum):
        yield _call(build, shape, shape, dtype="int8")
    yield _call(R.negative, shape, dtype="int8")
    yield _call(R.logical_not, shape, dtype="bool")
    yield _call(R.subtract, shape, shape)
    yield _call(R.add, shape, shape[-1:])
    for build in (R.add, R.maximum) if last > 0 else ():  # what holds of one operand need not of the first
        yield _call(build, shape[-1:], shape)
    yield _call(partial(R.sum, axis=[0], keepdims=True), shape)
    yield _call(R.sum, shape)
    yield _call(partial(R.max, axis=[last]), shape)
    yield _call(partial(R.nn.layer_norm, axes=[last]), shape, shape[-1:], shape[-1:])  # of three operands
    for axis in (-1, 0):  # of which one is as if nothing were said
        yield _call(partial(R.nn.softmax, axis=axis), shape)
    for axis in dict.fromkeys((last, 0)):
        yield _call(partial(_concat, axis), shape, shape)
    for parts in (2, [1], [1, 2]):
        if shape[-1] % 2 == 0 if parts == 2 else shape[-1] > len(parts):  # type: ignore[arg-type]
            yield _call(partial(R.split, indices_or_sections=parts, axis=last), shape)
    if shape[-1] == 1 < wide[-1]:  # every vocabulary has an op with several results
        yield _call(partial(R.split, indices_or_sections=[1], axis=last), wide)
    if last and shape[-1] == shape[-2]:
        yield _call(R.matmul, shape, shape)
    if len(shape) == 4:
        yield _call(partial(R.nn.conv2d, padding=1), shape, (4, shape[1], 3, 3))
        yield _call(partial(R.nn.max_pool2d, pool_size=(2, 2), strides=(1, 1), padding=(0, 0, 1, 1)), shape)
        yield _call(R.multiply, shape, (1, shape[1], 1, 1))


def _pointwise(shape: Shape) -> Iterator[OpCall]:
    one = relax.const(np.float32(1.0))
    yield _call(R.nn.relu, shape)
    yield _call(R.abs, shape)  # agrees with relu on borders and constants
    yield _call(R.negative, shape)
    yield _call(lambda x: R.add(x, one), shape)
    for build in (R.add, R.multiply, R.maximum, _gate):
        yield _call(build, shape, shape)


def _concat(axis: int, x: Any, y: Any) -> Any:
    return R.concat([x, y], axis=axis)


def _gate(x: Any, y: Any) -> Any:
    """``y`` where ``x`` is above 0, else 3: a kernel of a program's own, in which one operand decides.

    No fill is 3: where nothing defines ``x``, the reference calls the result undefined even if both ways give the same.
    """

    def gate(x: Any, y: Any) -> Any:
        return te.compute(x.shape, lambda *i: tirx.if_then_else(x(*i) > 0, y(*i), tirx.const(3.0, x.dtype)))

    return relax.BlockBuilder.current().call_te(gate, x, y)


def _call(build: Callable[..., Any], *shapes: Shape, dtype: str = "float32") -> OpCall:
    return OpCall("", build, tuple(TensorType(shape, dtype) for shape in shapes), repr(build))


def sampled_calls(shape: Shape, rng: random.Random) -> list[OpCall]:
    """Some of all ops, on tensors of ``shape``: two choices of attributes each."""
    found: list[OpCall] = []
    for name in rng.sample(all_ops(), SAMPLED):
        dtype = rng.choice(("float32", rng.choice(DTYPES)))
        found += draw_calls(name, TensorType(shape, dtype), 2, rng, FEW_ATTEMPTS)
    return found


def named_calls(name: str, shape: Shape, wide: Shape, viewed: Sequence[Shape], rng: random.Random) -> list[OpCall]:
    """An op that rules name: on the shapes of the vocabulary, in several dtypes, or on what else it takes."""
    known = parameters(name)
    if known is None or any(p.is_code for p in known):
        return []
    dtypes = rng.choice(_INTEGERS), "bool", rng.choice(("float16", "bfloat16", "float64"))
    others = [s for s in (*rng.sample(viewed, min(1, len(viewed))),) if s not in (shape, wide)]
    targets = [(s, "float32") for s in (shape, wide, *others)] + [*((shape, d) for d in dtypes), (wide, dtypes[0])]
    found: list[OpCall] = []
    for target, dtype in targets:
        count = VARIANTS if (target, dtype) == (shape, "float32") else 2
        attempts = ATTEMPTS if (target, dtype) == (shape, "float32") else FEW_ATTEMPTS
        found += draw_calls(name, TensorType(target, dtype), count, rng, attempts)
    usual = usual_call(name) if all(map(unusable, found)) else None
    return found if usual is None else [*found, usual, *vary(usual, VARIANTS, rng)]


@cache
def usual_call(name: str, count: int | None = None) -> OpCall | None:
    """Some call that can be run, and other attributes on the same operands if that is soon found.

    Where none can be run, one that TVM takes, such as of an op that is but a view; None if there is none. ``count``: of
    operands, where some may be left out.
    """
    rng = random.Random(name)
    found, typed = None, None
    parts = 0

    def unwanted(call: OpCall) -> str:
        nonlocal parts
        why = unusable(call)
        parts += why == IS_PART
        return "" if parts > _PARTS else why

    for _ in range(_CLIMBS if count is None else 1):
        search = CallSearch(name, rng, count)
        call = search.run(unwanted, *([] if count is None else [_STEPS]))
        if parts > _PARTS or (call is not None and (not has_attributes(name) or vary(call, 1, rng, _TO_VARY))):
            return call
        found, typed = found or call, typed or search.typed
        if search.is_vain:
            break
    return found or typed


@cache
def of_other_ranks(name: str) -> tuple[OpCall, ...]:
    """Calls that TVM takes, on operands with axes more or less than the usual call has: each from the one before."""
    usual, rng = usual_call(name), random.Random(name)
    found: list[OpCall] = []
    for step in (-1, 1):
        call = usual if usual is not None and usual.operands else None
        while call is not None:
            call = _of_next_rank(call, step, rng)
            found += [] if call is None else [call]
    return tuple(found)


@cache
def of_other_numbers(name: str) -> tuple[OpCall, ...]:
    """Calls that TVM takes with another number than the usual one for an attribute that counts, such as of groups.

    The operands are those of the usual call; where these don't go with the number, one extent is changed.
    """
    usual, rng = usual_call(name), random.Random(name)
    if usual is None:
        return ()
    found: list[OpCall] = []
    counts = [p.name for p in parameters(name) or () if not p.is_tensor and type(p.default) is int]
    for count in counts:
        kept = {**usual.values, count: 2}
        tried = (drawn(name, types, rng, exact=True, kept=kept) for types in _nearly(usual.operands))
        found += islice((call for call in tried if call.is_computable and call.values[count] == 2), 1)
    return tuple(found)


@cache
def of_other_lengths(name: str) -> tuple[OpCall, ...]:
    """Calls that TVM takes with other extents of two operands behind the first one, and with the same result: there may
    be more keys and values than queries. Not of what broadcasts."""
    usual, rng = usual_call(name), random.Random(name)
    if usual is None or len(usual.operands) < 3 or _broadcasts(usual):
        return ()
    first, *rest = usual.operands
    types = (others for others in _nearly(rest) if sum(a != b for a, b in zip(others, rest, strict=True)) > 1)
    tried = (drawn(name, [first, *others], rng, exact=True, kept=usual.values) for others in types)
    return tuple(islice((call for call in tried if call.made == usual.made and not unusable(call)), 2))


def _broadcasts(call: OpCall) -> bool:
    """The result has the shape that all operands have together."""
    try:
        shape = np.broadcast_shapes(*[tuple(map(int, ty.shape)) for ty in call.operands])
    except ValueError:
        return False
    return isinstance(call.made, TensorType) and tuple(map(int, call.made.shape)) == shape


def _nearly(types: Sequence[TensorType]) -> Iterator[list[TensorType]]:
    """The types, and those with one extent, or that and another one, twice or half as large."""
    yield list(types)
    places = [(number, axis) for number, ty in enumerate(types) for axis in range(len(ty.shape))]
    for changed in (*combinations(places, 1), *combinations(places, 2)):
        for halved in product((False, True), repeat=len(changed)):
            shapes = [[int(extent) for extent in ty.shape] for ty in types]
            for (number, axis), half in zip(changed, halved, strict=True):
                shapes[number][axis] = max(1, shapes[number][axis] // 2) if half else 2 * shapes[number][axis]
            if all(math.prod(shape) <= 2 * LARGEST for shape in shapes):
                yield [TensorType(tuple(s), ty.dtype) for s, ty in zip(shapes, types, strict=True)]


def _of_next_rank(call: OpCall, step: int, rng: random.Random) -> OpCall | None:
    rank = len(call.operands[0].shape)
    for _ in range(_LIFTS if 0 <= rank + step <= LARGEST_RANK else 0):
        place, extent = rng.randrange(rank + (step > 0)), rng.choice((1, 2, 3))
        types: list[TensorType | None] = []
        for number, ty in enumerate(call.operands):
            shape = list(ty.shape)
            if len(shape) == rank and (number == 0 or rng.random() < 0.5):
                shape[place : place + (step < 0)] = [extent] if step > 0 else []
            small = math.prod(map(int, shape)) <= LARGEST
            types.append(TensorType(tuple(shape), ty.dtype) if small and (number == 0 or rng.random() < 0.7) else None)
        kept = {name: value for name, value in call.values.items() if rng.random() < KEPT}
        other = drawn(call.name, types, rng, exact=True, kept=kept)
        if other.is_computable and len(other.operands[0].shape) == rank + step:
            return other
    return None


@cache
def why_never_run(name: str) -> str:
    """Why no call of an op is found that can be run: what the furthest of many was refused for."""
    if parameters(name) is None:
        return "no such op, or it does not take tensors only"
    code = [p.name for p in parameters(name) or () if p.is_code]
    if code:
        return NO_WORDS.format(code[0])
    search = CallSearch(name, random.Random(name))
    search.run(unusable)
    reasons = [why for call, why in search.calls.values() if call.made is not None and not call.holds_nothing]
    reasons = reasons or [why for _, why in search.calls.values()]
    return f"no call of it is found that can be run: {reasons[-1]}"
