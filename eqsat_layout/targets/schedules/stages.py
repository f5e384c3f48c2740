"""What the blocks of an unscheduled PrimFunc look like.

In: a ``Schedule`` over one PrimFunc. Out: its stages in order: axes, accesses, strides of every access along every
axis. Schedules are chosen by these facts only, never by the name of an op.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.matrix_literals import Elements, literals_of
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import (
    StageAccess,
    StageAxis,
    as_int,
    depends_on,
    moved_by,
    variables_of,
)
from eqsat_layout.targets.schedules.block_facts import facts_of, runs_axes_in_loops
from eqsat_layout.targets.schedules.conditions import change_of
from eqsat_layout.targets.schedules.fitting_places import with_fitting_places
from eqsat_layout.tir.analyzers import analyzer_of, analyzer_over
from eqsat_layout.tir.structural import changed_block, items_of, nodes_of, structural_map

ROOT = "root"
"""The name that TVM gives to the block around all others."""

_REMEMBERED = 4096  # lists of divisors


@dataclass(frozen=True)
class KnownMatrix:
    """A load of a matrix whose elements are known."""

    load: StageAccess
    elements: Elements


@dataclass(frozen=True)
class Stage:
    """One block, with what its schedule needs to know. ``simple``: loops and axes correspond one to one, one store.

    ``size``: loads and calls of an iteration. ``conditions``: those of its ``if_then_else``, and of a
    ``Select`` by indices, not by what was loaded.
    ``matrix``: of two loads, the one whose elements are known. ``is_part``: one of several parts, which read the same
    operands again, of which ``given`` are as they lie in memory: others may be tiles of their own.
    """

    block: Any
    name: str
    axes: tuple[StageAxis, ...]
    stores: tuple[StageAccess, ...]
    loads: tuple[StageAccess, ...]
    simple: bool
    size: int
    is_costly: bool
    is_copy: bool
    conditions: tuple[Any, ...]
    matrix: KnownMatrix | None = None
    is_part: bool = False
    given: tuple[Any, ...] = ()

    @property
    def write(self) -> StageAccess:
        """The store (the first one, if there are several)."""
        return self.stores[0]

    @cached_property
    def spatial(self) -> tuple[StageAxis, ...]:
        """Axes of the result."""
        return tuple(a for a in self.axes if not a.reduce)

    @cached_property
    def reduced(self) -> tuple[StageAxis, ...]:
        """Axes that are reduced over."""
        return tuple(a for a in self.axes if a.reduce)

    @cached_property
    def is_reduction(self) -> bool:
        """Some axis is reduced over."""
        return any(a.reduce for a in self.axes)

    @cached_property
    def is_plain(self) -> bool:
        """The store's indices are the spatial axes in order."""
        return len(self.write.indices) == len(self.spatial) and all(
            index.same_as(axis.var) for index, axis in zip(self.write.indices, self.spatial, strict=True)
        )

    @cached_property
    def is_in_order(self) -> bool:
        """The same but for axes of one element, which may be missing among the indices or be zeros, and for tiles that
        overlap, of which an index is the first element and the place."""
        moving = [var for index in self.write.indices if not isinstance(index, tirx.IntImm) for var in moved_by(index)]
        axes = [axis for axis in self.spatial if axis.extent != 1 or any(map(axis.var.same_as, moving))]
        return len(moving) == len(axes) and all(map(_is_axis, moving, axes))

    @cached_property
    def is_view(self) -> bool:
        """A copy of elements with the same indices, or of all in the order in which they lie: a change of shape."""
        if not self.is_copy:
            return False
        indices = self.loads[0].indices
        if self.is_plain and len(indices) == len(self.axes) and all(map(_is_axis, indices, self.axes)):
            return True
        if None in (*self.loads[0].shape, *self.write.shape):
            return False
        if self.loads[0].buffer_bytes != self.write.buffer_bytes:
            return False
        return bool(analyzer_over(self.axes).can_prove_equal(self.loads[0].place, self.write.place))

    @cached_property
    def domain(self) -> int:
        """Iterations; a symbolic axis counts as 64."""
        return math.prod(64 if axis.extent is None else axis.extent for axis in self.axes)

    @property
    def vector_load(self) -> StageAccess | None:
        """The first load that moves along the last axis of the result; ``None`` for a result of one element."""
        lane = self.spatial[-1].var if self.spatial else None
        return next((load for load in self.loads if load.stride(lane)), None) if lane is not None else None

    @cached_property
    def steps(self) -> int:
        """Iterations for one element of the result; a symbolic axis counts as 64."""
        return math.prod(64 if axis.extent is None else axis.extent for axis in self.reduced)

    @property
    def is_product(self) -> bool:
        """Some load stays where it is along the last axis of the result: its elements are broadcast."""
        last = self._last_axis
        return last is not None and any(load.stride(last.var) == 0 for load in self.loads)

    @property
    def is_along_memory(self) -> bool:
        """A reduction of operands that lie in one piece, every row of them for one row of the result: no product."""
        last = self._last_axis
        return self.is_reduction and all(
            load.stride(self.reduced[-1].var) in (0, 1) and (last is None or load.uses(last.var)) for load in self.loads
        )

    @property
    def _last_axis(self) -> StageAxis | None:
        """Of the result, that has several places."""
        return next((axis for axis in reversed(self.spatial) if axis.extent != 1), None)

    @cached_property
    def has_window(self) -> bool:
        """An index moves along an axis of the result and along one that is reduced."""
        places, steps = ([axis.var for axis in axes if axis.extent != 1] for axes in (self.spatial, self.reduced))
        return any(load.moves_along_both(*both) for load in self.loads for both in itertools.product(places, steps))

    @cached_property
    def has_open_window(self) -> bool:
        """A window along several axes of unknown sizes, channels among them. What reduces over several axes without one
        is a product: its rows share as much as those of any other."""
        steps = [axis for axis in self.reduced if axis.extent is None]
        both = itertools.product(self.spatial, steps)
        return len(steps) > 1 and any(load.moves_along_both(a.var, b.var) for a, b in both for load in self.loads)

    def within(self, extents: Sequence[int], given: Sequence[Any] = ()) -> Stage:
        """A part of the stage: so many elements of every spatial axis. ``given``: operands that are no tiles."""
        sizes = iter(extents)
        axes = tuple(axis if axis.reduce else replace(axis, extent=next(sizes)) for axis in self.axes)
        return replace(self, axes=axes, is_part=True, given=tuple(given))

    def branches_on(self, var: Any) -> bool:
        """A condition inside depends on ``var``."""
        return any(depends_on(condition, var) for condition in self.conditions)

    def branch_block(self, var: Any) -> int:
        """Conditions on ``var`` are the same within blocks of so many elements; 1 if there is nothing to be known."""
        found: list[int] = []
        for condition in self.conditions:
            if not depends_on(condition, var):
                continue
            change = change_of(condition, var)
            if change is None or change.number is None:
                return 1
            found.append(change.number)
        return math.gcd(*found) if found else 1


def _is_axis(index: Any, axis: StageAxis) -> bool:
    return bool(index.same_as(axis.var))


def layout_of_results(stage: Stage, moved: Callable[..., list[Any]]) -> Any:
    """What ``moved`` makes of the indices of a result, as a map. TVM inverts none whose type is not that of extents."""
    dtype = str(stage.write.buffer.ty.shape[0].ty.dtype)
    return tirx.IndexMap.from_func(moved, len(stage.spatial), index_dtype=dtype)


def layout_of_steps(stage: Stage, moved: Callable[..., list[Any]]) -> Any:
    """The same of all axes, whose types stay as they are."""
    return tirx.IndexMap.from_func(moved, len(stage.axes), index_dtype=str(stage.axes[0].var.ty.dtype))


def cached_write(sch: Any, block: Any, scope: str) -> Any:
    """The block that copies what ``block`` now makes in ``scope`` to where it was.

    Refused where a block reads that at several places: TVM expects one region of a buffer (an internal error).
    """
    made = lookups.get(sch, block).writes[0].source
    for reader in lookups.get_consumers(sch, block):
        if sum(region.source.same_as(made) for region in lookups.get(sch, reader).reads) > 1:
            raise Refused(f"{made.name} is read at several places by one stage")
    return sch.cache_write(block, 0, scope)


def stages_of(sch: Any) -> list[Stage]:
    """The stages of ``main`` in order."""
    return [stage_of(sch, block) for block in lookups.get_child_blocks(sch, lookups.get_sblock(sch, ROOT))]


def stage_of(sch: Any, block: Any) -> Stage:
    """The facts of one block; refused for one that stores nothing."""
    node = lookups.get(sch, block)
    facts, name = facts_of(node), str(node.name_hint)
    if not facts.stores:
        raise Refused(f"block {name} stores nothing")
    loops = lookups.get_loops(sch, block)
    is_regular = bool(loops) and len(loops) == len(facts.axes)
    simple = len(facts.stores) == 1 and is_regular and runs_axes_in_loops(lookups.get(sch, loops[0]), node, len(loops))
    return Stage(
        block,
        name,
        facts.axes,
        facts.stores,
        facts.loads,
        simple,
        facts.size,
        facts.is_costly,
        facts.is_copy,
        facts.conditions,
        _matrix(sch, facts.loads),
    )


def _matrix(sch: Any, loads: Sequence[StageAccess]) -> KnownMatrix | None:
    if len(loads) != 2:
        return None
    for buffer, elements in literals_of(sch.mod["main"]):
        for load in loads:
            if load.buffer.same_as(buffer):
                return KnownMatrix(load, elements)
    return None


@lru_cache(_REMEMBERED)
def divisors(number: int, limit: int) -> Sequence[int]:
    """Divisors of ``number`` up to ``limit``, ascending."""
    small = [d for d in range(1, min(math.isqrt(number), limit) + 1) if number % d == 0]
    large = (number // d for d in reversed(small) if d * d != number)
    return (*small, *(d for d in large if d <= limit))


def has_reduction(func: Any) -> bool:
    """Some block of ``func`` reduces over an axis."""
    blocks = nodes_of(func.body, s_tir.SBlock)
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for block in blocks for axis in items_of(block.iter_vars))


def new_schedule(func: Any) -> Any:
    """A schedule over ``func`` as ``main``: indices simplified by the extents of axes, every block with its own name.

    Refused where the body is no root block of others: TVM schedules what blocks say they read and write.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        raise Refused("its body is no block")
    if (name := str(func.body.block.name_hint)) != ROOT:
        raise Refused(f"its body is one block, {name}")
    body = with_fitting_places(_with_own_names(func.body))
    plain = structural_map(body, (s_tir.SBlock, _with_simple_indices))
    func = func.with_body(plain).with_attr("global_symbol", "main")
    return s_tir.Schedule(tvm.IRModule({"main": func}), error_render_level="fast")


def _with_own_names(body: Any) -> Any:
    """Blocks are found by their names; the outermost keeps its own."""
    names = [str(block.name_hint) for block in nodes_of(body, s_tir.SBlock)]
    if len(set(names)) == len(names):
        return body
    taken = {ROOT}

    def renamed(block: Any) -> Any:
        name = str(block.name_hint)
        if name in taken:
            name = next(new for n in itertools.count(1) if (new := f"{name}_{n}") not in {*taken, *names})
        taken.add(name)
        return changed_block(block, name_hint=name)

    inside = structural_map(body.block.body, (s_tir.SBlock, renamed))
    root = changed_block(body.block, name_hint=ROOT, body=inside)
    return s_tir.SBlockRealize(body.iter_values, body.predicate, root)


def _with_simple_indices(block: Any) -> Any:
    # those of one element stay in indices, for all to see
    axes = [axis for axis in items_of(block.iter_vars) if as_int(axis.dom.extent) != 1]
    if not axes:
        return block
    analyzer = analyzer_of(axes)

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [_simplified(index, analyzer) for index in items_of(load.indices)])

    def on_store(store: Any) -> Any:
        return tirx.BufferStore(
            store.buffer, store.value, [_simplified(index, analyzer) for index in items_of(store.indices)]
        )

    def on_range(region: Any) -> Any:
        return tvm.ir.Range.from_min_extent(_simplified(region.min, analyzer), region.extent)

    return structural_map(block, (tvm.ir.TensorLoad, on_load), (tirx.BufferStore, on_store), (tvm.ir.Range, on_range))


def _simplified(index: Any, analyzer: Any) -> Any:
    """What TVM makes of an index, and remainders of several axes as differences where the quotient has fewer axes.

    Groups of channels of 57x57 as rows: ``(c * 3249 + y * 57 + x) % 25992`` goes on with ``x`` and ``y`` then.
    """

    def as_difference(rest: Any) -> Any:
        quotient = analyzer.simplify(tirx.floordiv(rest.a, rest.b))
        if len(variables_of(quotient)) == len(variables_of(rest.a)):
            return rest
        return rest.a - quotient * rest.b

    simple = analyzer.simplify(index)
    if not nodes_of(simple, tirx.FloorMod):
        return simple
    return structural_map(simple, (tirx.FloorMod, as_difference))
