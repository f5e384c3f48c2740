"""Steps of a sum that read nothing but the zeros of a pad, left out.

In: a scheduled PrimFunc. Out: the same, where a loop over steps of a sum does none whose whole tile reads zeros that a
stage of the same kernel has filled in: rows of a window above and below an image, and most of a window that is dilated
about as far as the image is wide. What a tile reads is bounded over its own loops, so these stay as they are.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tvm import ir, s_tir, sym, tirx

from eqsat_layout.tir.blocks import added_factors
from eqsat_layout.tir.intrinsics import conjuncts, is_choice, is_zero
from eqsat_layout.tir.structural import changed_loop, mapped_body, nodes_of, substitute

_LEAST: Final = 0.1
"""Share of the steps to be left out, below which branches cost as much (a small kernel of 3 % took 7 % longer)."""
_SAMPLES: Final = 500
"""Of the iterations of loops, for such a share."""

Inside: TypeAlias = tuple[Sequence[Any], Sequence[Any]]
"""Variables for the axes of a padded buffer, and the conditions on them under which an element is no padding."""


def skip_padding(func: Any) -> Any:
    """``func`` itself where there are none. A zero times infinity, which is NaN, is left out too."""
    inside = _insides(func)
    if not inside:
        return func
    conditions: dict[Any, Any] = {}
    for realize in nodes_of(func.body, s_tir.SBlockRealize):
        conditions |= _conditions(func, realize, inside)

    def on_loop(loop: Any) -> Any:
        condition = conditions.get(loop.loop_var)
        return loop if condition is None else changed_loop(loop, body=tirx.IfThenElse(condition, loop.body, None))

    return mapped_body(func, (tirx.For, on_loop)) if conditions else func


def _insides(func: Any) -> dict[Any, Inside]:
    """Of each buffer that stages of the function pad with zeros."""
    blocks: dict[Any, list[Any]] = {}
    for block in nodes_of(func.body, s_tir.SBlock):
        if isinstance(block.body, tirx.BufferStore):
            blocks.setdefault(block.body.buffer, []).append(block)
    stores = Counter(store.buffer for store in nodes_of(func.body, tirx.BufferStore))
    only = {buffer: own for buffer, own in blocks.items() if len(own) == stores[buffer]}
    found = {buffer: _inside(*own) for buffer, own in only.items() if len(own) <= 2}
    return {buffer: inside for buffer, inside in found.items() if inside is not None}


def _inside(first: Any, copy: Any = None) -> Inside | None:
    return _inside_of_choice(first) if copy is None else _inside_of_copy(first, copy)


def _inside_of_choice(block: Any) -> Inside | None:
    """Of a stage that chooses between an element and zero."""
    axes, store = [axis.var for axis in block.iter_vars], block.body
    is_pad = is_choice(store.value) and is_zero(store.value.args[2])
    if not is_pad or len(axes) != len(store.indices) or not all(map(ir.Var.same_as, store.indices, axes)):
        return None
    return axes, [part for part in conjuncts(store.value.args[0]) if _is_bound(part)]


def _inside_of_copy(fill: Any, copy: Any) -> Inside | None:
    """Of a stage that fills with zeros, and one that copies into the middle."""
    if not is_zero(fill.body.value):
        return None
    indices, extents = copy.body.indices, {axis.var: axis.dom.extent for axis in copy.iter_vars}
    axes = [tirx.Var(f"at{number}", str(index.ty.dtype)) for number, index in enumerate(indices)]
    parts: list[Any] = []
    for at, index in zip(axes, indices, strict=True):
        own = [axis for axis in extents if isinstance(sym.Analyzer().simplify(index - axis), tirx.IntImm)]
        if len(own) != 1:
            return None
        first = sym.Analyzer().simplify(index - own[0])
        parts += [first <= at, at < first + extents[own[0]]]
    return axes, parts


def _is_bound(part: Any) -> bool:
    return isinstance(part, tirx.LE | tirx.LT) and not nodes_of(part, ir.Call, ir.TensorLoad)


def _conditions(func: Any, realize: Any, insides: Mapping[Any, Inside]) -> dict[Any, Any]:
    """By loop around a block: what must hold in it for some element of the block's tile to be no padding."""
    block = realize.block
    loads = [load for load in _factors(block) if load.source in insides]
    if not loads:
        return {}
    loops = [loop for loop in nodes_of(func.body, tirx.For) if realize in nodes_of(loop.body, s_tir.SBlockRealize)]
    values = {axis.var: value for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    summed = [values[axis.var] for axis in block.iter_vars if axis.iter_type == axis.CommReduce]
    steps = {var for value in summed for var in nodes_of(value, ir.Var)}
    inner = next((number for number, loop in enumerate(loops) if loop.loop_var in steps), 0)
    tile = {loop.loop_var: sym.IntervalSet(loop.min, loop.min + loop.extent - 1) for loop in loops[:inner]}
    ranges = sym.Analyzer()
    for loop in loops[inner:]:
        ranges.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))
    found: dict[Any, list[Any]] = {}
    for load in loads:
        axes, parts = insides[load.source]
        places = dict(zip(axes, (substitute(index, values) for index in load.indices), strict=True))
        for part in parts:
            condition = ranges.simplify(_of_any(substitute(part, places), tile, ranges))
            used = nodes_of(condition, ir.Var)
            loop = next((loop for loop in loops[inner:] if loop.loop_var in used), None)
            if loop is not None and len(nodes_of(loop.body, s_tir.SBlockRealize)) == 1:
                found.setdefault(loop.loop_var, []).append(condition)
    all_of = {var: tirx.all(*conditions) for var, conditions in found.items()}
    return {var: condition for var, condition in all_of.items() if _skipped(condition, loops[inner:]) > _LEAST}


def _factors(block: Any) -> list[Any]:
    """What a block loads to add it, or its product with something else, to what it stores."""
    if block.init is not None or not isinstance(block.body, tirx.BufferStore):
        return []
    factors = added_factors(block.body)
    loads = [factor.value if isinstance(factor, tirx.Cast) else factor for factor in factors]
    return [load for load in loads if isinstance(load, ir.TensorLoad)]


def _of_any(bound: Any, tile: Mapping[Any, Any], ranges: Any) -> Any:
    """A comparison that holds where ``bound`` holds anywhere in a tile."""
    least, most = ranges.int_set(bound.a, tile), ranges.int_set(bound.b, tile)
    return type(bound)(least.min_value, most.max_value)


def _skipped(condition: Any, loops: Sequence[Any]) -> float:
    """In which share of the iterations of ``loops`` a condition is false; 0 where that is not known."""
    used = {*nodes_of(condition, ir.Var)}
    loops = [loop for loop in loops if loop.loop_var in used]
    if len(loops) < len(used):  # a size, or a bound that TVM does not know
        return 0.0
    if not all(isinstance(end, tirx.IntImm) for loop in loops for end in (loop.min, loop.extent)):
        return 0.0
    ranges = [range(int(loop.min), int(loop.min) + int(loop.extent)) for loop in loops]
    if math.prod(map(len, ranges)) <= _SAMPLES:
        places = list(itertools.product(*ranges))
    else:
        chosen = random.Random(0)
        places = [tuple(map(chosen.choice, ranges)) for _ in range(_SAMPLES)]
    simple, numbers = sym.Analyzer(), [loop.loop_var for loop in loops]

    def holds(place: Sequence[int]) -> bool:
        at = {var: tirx.const(value, str(var.ty.dtype)) for var, value in zip(numbers, place, strict=True)}
        return bool(simple.simplify(substitute(condition, at)))

    return 1 - sum(map(holds, places)) / len(places)
