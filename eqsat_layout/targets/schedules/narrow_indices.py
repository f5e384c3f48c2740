"""Indices that a kernel keeps for itself in half as many bits: those of ``argmax`` and its kind.

In: a PrimFunc before it is scheduled. Out: the same, with its own buffers of 64-bit integers as 32-bit ones where all
that is stored there fits, which the ranges of loops and axes show. Twice as many lanes fit into a vector, as many as of
the float values beside them.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, s_tir, sym, tirx

from eqsat_layout.tir.structural import changed_block, nodes_of, structural_map, substitute, walk

_WIDE: Final = "int64"
_NARROW: Final = "int32"
_LEAST: Final = -(1 << 31)
_MOST: Final = (1 << 31) - 1
_COMPARISONS: Final = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def narrow_indices(func: Any) -> Any:
    """``func``, or itself where nothing of it is narrowed."""
    blocks = nodes_of(func.body, s_tir.SBlock)
    made = {buffer for block in blocks for buffer in block.alloc_buffers if str(buffer.dtype) == _WIDE}
    if any(region.buffer.same_as(buffer) for block in blocks for region in block.match_buffers for buffer in made):
        return func
    return _Narrower(func, made).narrowed() if made else func


class _Narrower:
    def __init__(self, func: Any, made: set[Any]) -> None:
        self._func = func
        self._values: dict[Any, Any] = {}
        self._ranges = sym.Analyzer()
        stores: list[Any] = []
        walk(
            func.body,
            (tirx.For, lambda loop: self._bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))),
            (s_tir.SBlock, self._bind_axes),
            (tirx.Bind, lambda bind: self._values.update({bind.var: bind.value})),
            (tirx.BufferStore, stores.append),
        )
        self._fitting = set(made)
        while wide := {s.buffer for s in stores if s.buffer in self._fitting and not self._fits(s.value)}:
            self._fitting -= wide
        self._made = {b: tirx.decl_buffer(b.shape, _NARROW, b.name, scope=b.scope()) for b in self._fitting}

    def _bind_axes(self, block: Any) -> None:
        for axis in block.iter_vars:
            self._bind(axis.var, axis.dom)

    def _bind(self, var: Any, dom: Any) -> None:
        if dom is not None and isinstance(dom.min, tirx.IntImm) and isinstance(dom.extent, tirx.IntImm):
            self._ranges.bind(var, dom, allow_override=True)

    def _fits(self, value: Any) -> bool:
        """What is stored, if all buffers that are to be narrowed hold what fits."""
        if isinstance(value, tirx.Select):
            return self._fits(value.true_value) and self._fits(value.false_value)
        if isinstance(value, tirx.Min | tirx.Max):
            return self._fits(value.a) and self._fits(value.b)
        if isinstance(value, ir.TensorLoad):
            return value.source in self._fitting
        if isinstance(value, ir.Var) and value in self._values:
            return self._fits(self._values[value])
        bounds = self._ranges.const_int_bound(value)
        return bool(bounds.min_value >= _LEAST and bounds.max_value <= _MOST)

    def narrowed(self) -> Any:
        if not self._made:
            return self._func
        new = {var: ir.Var(var.name, ir.PrimType(_NARROW)) for var in self._values if self._is_index(var)}
        narrow = set(new.values())

        def binding(bind: Any) -> Any:
            return tirx.Bind(bind.var, _narrow(bind.value.value)) if bind.var in narrow else bind

        rules = (
            (s_tir.SBlock, self._block),
            (ir.TensorLoad, self._load),
            (tirx.BufferStore, self._store),
            (tirx.Bind, binding),
            (_COMPARISONS, self._comparison),
        )
        return self._func.with_body(structural_map(_with_narrow_variables(self._func.body, new), *rules))

    def _is_index(self, var: Any) -> bool:
        return str(var.ty.dtype) == _WIDE and self._fits(self._values[var])

    def _block(self, block: Any) -> Any:
        reads, writes = (list(map(self._region, regions)) for regions in (block.reads, block.writes))
        allocated = [self._made.get(buffer, buffer) for buffer in block.alloc_buffers]
        return changed_block(block, reads=reads, writes=writes, alloc_buffers=allocated)

    def _region(self, region: Any) -> Any:
        new = self._made.get(region.source)
        return region if new is None else tirx.BufferRegion(new, region.region)

    def _load(self, load: Any) -> Any:
        new = self._made.get(load.source)
        return load if new is None else tirx.Cast(_WIDE, tirx.BufferLoad(new, load.indices))

    def _store(self, store: Any) -> Any:
        new = self._made.get(store.buffer)
        return store if new is None else tirx.BufferStore(new, _narrow(store.value), store.indices)

    def _comparison(self, node: Any) -> Any:
        sides = node.a, node.b
        if not any(_narrow_one(side) is not None for side in sides) or not all(map(self._fits, sides)):
            return node
        return type(node)(*map(_narrow, sides))


def _with_narrow_variables(body: Any, new: dict[Any, Any]) -> Any:
    """``body`` with the ``new`` ones of fewer bits in the place of variables, and their values cast."""

    def binding(bind: Any) -> Any:
        return tirx.Bind(new[bind.var], tirx.Cast(_NARROW, bind.value)) if bind.var in new else bind

    widened = {var: tirx.Cast(_WIDE, narrow) for var, narrow in new.items()}
    return substitute(structural_map(body, (tirx.Bind, binding)), widened)


def _narrow(value: Any) -> Any:
    """``value``, which fits, in fewer bits."""
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, _narrow(value.true_value), _narrow(value.false_value))
    if isinstance(value, tirx.Min | tirx.Max):
        return type(value)(_narrow(value.a), _narrow(value.b))
    if isinstance(value, tirx.IntImm):
        return tirx.IntImm(_NARROW, int(value))
    narrow = _narrow_one(value)
    return tirx.Cast(_NARROW, value) if narrow is None else narrow


def _narrow_one(value: Any) -> Any:
    """The element of a narrowed buffer that ``value`` is; None for all else."""
    is_widened = isinstance(value, tirx.Cast) and str(value.ty.dtype) == _WIDE and str(value.value.ty.dtype) == _NARROW
    return value.value if is_widened else None
