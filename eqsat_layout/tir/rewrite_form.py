"""A layout rewrite as a PrimFunc: recognised and written.

In: a PrimFunc of one or several blocks, or a :class:`LayoutRewrite`. Out: the other one. Nothing is taken on trust:
what is read was derived from the block's own indices and condition. The Relax form is in the graph room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, UNDEF, Extent, Fill, IndexMap
from eqsat_layout.tir.affine import Affine, AffineReader, Term, number_of_digits
from eqsat_layout.tir.axis_groups import with_axis_groups
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.copy_block import read_copy
from eqsat_layout.tir.extents import expr_of, symbols_in
from eqsat_layout.tir.index_map import physical_indices
from eqsat_layout.tir.layout_rewrite import LayoutRewrite, Place
from eqsat_layout.tir.signature import analyse

__all__ = ["LayoutRewrite", "read_primfunc", "split_computation", "split_primfunc", "write_primfunc"]

ANY_PADDING = "eqsat_layout.any_padding"
"""The attribute of a PrimFunc whose padding may hold anything, though it writes something."""
_NAME: Final = "layout_rewrite"
"""Of the blocks that are written."""


def read_primfunc(func: Any) -> LayoutRewrite | None:
    """The one rewrite that ``func``, of one operand and one result, is; ``None`` if it is none, or needs two."""
    parts = split_primfunc(func)
    if parts is None or len(parts) == 1:
        return parts[0] if parts else None
    inlined = _inlined(func)
    parts = split_primfunc(inlined) if inlined is not None else None
    return parts[0] if parts and len(parts) == 1 else None


def split_primfunc(func: Any) -> tuple[LayoutRewrite, ...] | None:
    """The rewrites that ``func`` does one after the other, as few as they join to; ``None`` if it does more."""
    computation = analyse(func)
    parts = None if computation is None else split_computation(computation)
    is_any = func.attrs is not None and bool(func.attrs.get(ANY_PADDING, False))
    return tuple(map(_with_any, parts)) if parts is not None and is_any else parts


def split_computation(computation: Computation) -> tuple[LayoutRewrite, ...] | None:
    """The same of what a PrimFunc computes, its padding being what it writes there."""
    if len(computation.operands) != 1 or len(computation.results) != 1:
        return None
    steps = _chain(computation)
    if not steps:
        return None
    parts: list[LayoutRewrite] = []
    for step in steps:
        joined = join(parts[-1], step) if parts else None
        if joined is not None:
            parts[-1] = joined
        else:
            parts.append(step)
    return tuple(parts)


def join(first: LayoutRewrite, then: LayoutRewrite) -> LayoutRewrite | None:
    """Both as one; ``None`` where something is dropped or padded twice, with other axes in between."""
    if then.index_map is not None:
        pack = then.index_map.after(first.pack)
        if pack is None and first.pack.is_identity:
            pack = then.index_map
        if pack is not None:
            return LayoutRewrite.make(first.unpack, crop=first.crop, pad=first.pad, fill=first.fill, pack=pack)
    if first.index_map is not None:
        unpack = then.unpack.after(first.index_map)
        if unpack is None and then.unpack.is_identity:
            unpack = first.index_map
        if unpack is not None:
            return LayoutRewrite.make(unpack, crop=then.crop, pad=then.pad, fill=then.fill, pack=then.pack)
        if then.index_map is not None:  # their digits cut one another
            return LayoutRewrite.make(first.index_map, pack=then.index_map)
    if not first.is_padding and not then.is_cropping and first.pack.is_identity and then.unpack.is_identity:
        return LayoutRewrite.make(first.unpack, crop=first.crop, pad=then.pad, fill=then.fill, pack=then.pack)
    return None


def write_primfunc(rewrite: LayoutRewrite, dtype: str) -> Any:
    """``rewrite`` of a tensor of ``dtype`` as a TE-style PrimFunc: one block, or three where digits cut one another.

    Padding of any value is written as 0 and the PrimFunc says so. Raises :class:`LayoutError` where the way back from
    the result's indices can't be written (a symbolic axis fused with another).
    """
    ends = (rewrite.source, rewrite.target)
    whole = _PrimFuncWriter(rewrite.shape, dtype, [rewrite], ends).function()
    if read_primfunc(whole) is not None:
        return whole
    middle = LayoutRewrite.make(
        IndexMap.identity(rewrite.unpack.result_shape), crop=rewrite.crop, pad=rewrite.pad, fill=rewrite.fill
    )
    parts = [LayoutRewrite.of_map(rewrite.unpack), middle, LayoutRewrite.of_map(rewrite.pack)]
    return _PrimFuncWriter(rewrite.shape, dtype, [p for p in parts if not p.is_identity], ends).function()


def _with_any(rewrite: LayoutRewrite) -> LayoutRewrite:
    if not rewrite.is_padding:
        return rewrite
    return LayoutRewrite(rewrite.unpack, rewrite.crop, rewrite.pad, UNDEF, rewrite.pack)


def _chain(computation: Computation) -> list[LayoutRewrite] | None:
    """One rewrite per block, from the operand to the result, each reading what the one before wrote."""
    at = computation.operands[0]
    steps: list[LayoutRewrite] = []
    for block in computation.blocks:
        copy = read_copy(computation, block)
        if copy is None or copy[0] != at:
            return None
        at = copy[1]
        steps.append(copy[2])
    return steps if at == computation.results[0] else None


def _inlined(func: Any) -> Any:
    """``func`` as one block; None where TVM can't inline the others into the last."""
    try:
        schedule = s_tir.Schedule(tvm.IRModule({"main": func.without_attr("global_symbol")}))
        *inner, _ = schedule.get_child_blocks(schedule.get_sblock("root"))
        for block in inner:
            schedule.compute_inline(block)
        return schedule.mod["main"]
    except s_tir.ScheduleError:  # also where a block's name is taken twice
        return None


class _PrimFuncWriter:
    """A block per rewrite, each from the buffer before it. ``ends``: where the first and the last buffer lie."""

    def __init__(
        self, shape: Sequence[Extent], dtype: str, rewrites: Sequence[LayoutRewrite], ends: tuple[Place, Place]
    ) -> None:
        self.rewrites, self.dtype = rewrites, dtype
        shapes = [shape, *(r.result_shape for r in rewrites)]
        extents = [e for own in shapes for e in own if isinstance(e, str)]
        self.symbols = {name: tirx.Var(name, "int64") for e in extents for name in symbols_in(e)}
        names = ["x", *(f"t{i}" for i in range(len(rewrites) - 1)), "y"]
        self.ends = ends
        scopes = [ends[0].scope, *(GLOBAL for _ in names[2:]), ends[1].scope]
        self.buffers = [self._buffer(*own) for own in zip(names, shapes, scopes, strict=True)]

    def function(self) -> Any:
        nests = [
            _BlockWriter(rewrite, self.symbols, source, target).nest(_NAME, self.dtype)
            for rewrite, source, target in zip(self.rewrites, self.buffers, self.buffers[1:], strict=False)
        ]
        body = nests[0] if len(nests) == 1 else tirx.SeqStmt(nests)
        root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=self.buffers[1:-1])
        params = [self.buffers[0], self.buffers[-1]]
        func = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attr("tirx.noalias", True)
        func = with_axis_groups(func, {number: place.separators for number, place in enumerate(self.ends)})
        return func.with_attr(ANY_PADDING, True) if any(r.fill is UNDEF for r in self.rewrites) else func

    def _buffer(self, name: str, shape: Sequence[Extent], scope: str) -> Any:
        return tirx.decl_buffer([expr_of(e, self.symbols) for e in shape], self.dtype, name, scope=scope, layout=None)


class _BlockWriter:
    """One block over the result's axes; indices are simplified with the ranges of its variables known."""

    def __init__(self, rewrite: LayoutRewrite, symbols: Mapping[str, Any], source: Any, target: Any) -> None:
        self.rewrite, self.symbols, self.source, self.target = rewrite, symbols, source, target
        self.sizes = rewrite.result_shape
        ranges = [tvm.ir.Range(tirx.IntImm("int64", 0), expr_of(e, self.symbols)) for e in self.sizes]
        self.loops = [tirx.Var(f"ax{i}", "int64") for i in range(len(self.sizes))]
        self.iters = [
            tirx.IterVar(r, tirx.Var(f"v_ax{i}", "int64"), tirx.IterVar.DataPar) for i, r in enumerate(ranges)
        ]
        self.variables = [v.var for v in self.iters]
        self.reader = AffineReader(self.variables, self.sizes, ranges)

    def nest(self, name: str, dtype: str) -> Any:
        indices, condition = self._source_indices()
        value = tirx.BufferLoad(self.source, indices)
        if condition is not None:
            value = tirx.if_then_else(condition, value, _constant(self.rewrite.fill, dtype))
        one = tirx.IntImm("int64", 1)
        if not self.iters:  # a block of TIR has at least one variable
            domain = tvm.ir.Range(tirx.IntImm("int64", 0), one)
            self.iters.append(tirx.IterVar(domain, tirx.Var("v_u", "int64"), tirx.IterVar.DataPar))
            self.loops.append(tirx.Var("u", "int64"))
        block = s_tir.SBlock(
            self.iters,
            [tirx.BufferRegion(self.source, [tvm.ir.Range.from_min_extent(i, one) for i in indices])],
            [tirx.BufferRegion(self.target, [tvm.ir.Range.from_min_extent(i, one) for i in self.variables])],
            name,
            tirx.BufferStore(self.target, value, self.variables),
        )
        body: Any = s_tir.SBlockRealize(list(self.loops), True, block)
        for loop, axis in zip(reversed(self.loops), reversed(self.iters), strict=True):
            body = tirx.For(loop, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, body)
        return body

    def _source_indices(self) -> tuple[list[Any], Any]:
        """Indices of the element that is read, and when it is (``None``: always)."""
        rewrite = self.rewrite
        if not rewrite.is_padding and not rewrite.is_cropping:
            whole = rewrite.pack.after(rewrite.unpack)
            back = None if whole is None else whole.inverse()
            if back is not None:
                return self._indices(back, [self._variable(i) for i in range(len(self.sizes))], self.variables), None
        unpack_back, pack_back = rewrite.unpack.inverse(), rewrite.pack.inverse()
        if unpack_back is None or pack_back is None:
            raise LayoutError(f"no block can write {rewrite}: a symbolic axis is fused with another")
        values = [self._variable(i) for i in range(len(self.sizes))]
        middle = [number_of_digits(row, values, self.sizes) for row in pack_back.dims]
        inside = self._indices(pack_back, values, self.variables)
        conditions = self._conditions(inside, pack_back.result_shape)
        shifts = [c[0] - p[0] for c, p in zip(rewrite.crop, rewrite.pad, strict=True)]
        moved = [m and Affine(m.terms, m.constant + s) for m, s in zip(middle, shifts, strict=True)]
        exprs = [self._shifted(e, s) for e, s in zip(inside, shifts, strict=True)]
        condition = None
        for part in conditions:
            condition = part if condition is None else tirx.all(condition, part)
        return self._indices(unpack_back, moved, exprs), condition

    def _conditions(self, inside: Sequence[Any], shape: Sequence[Extent]) -> list[Any]:
        conditions = []
        for index, extent, (low, high) in zip(inside, shape, self.rewrite.pad, strict=True):
            if low:
                conditions.append(tirx.LE(tirx.IntImm("int64", low), index))
            if high and isinstance(extent, int):
                conditions.append(tirx.LT(index, tirx.IntImm("int64", extent - high)))
        return conditions

    def _variable(self, i: int) -> Affine | None:
        return Affine((Term(1, i, 1, self.sizes[i]),))

    def _shifted(self, expr: Any, shift: int) -> Any:
        return expr + shift if shift > 0 else expr - -shift if shift else expr

    def _indices(self, index_map: IndexMap, values: Sequence[Affine | None], exprs: Sequence[Any]) -> list[Any]:
        """Physical indices of ``index_map``, as sums of digits where they are, else by composing expressions."""
        composed = physical_indices(index_map, exprs, self.symbols)
        result: list[Any] = []
        for row, expr in zip(index_map.dims, composed, strict=True):
            number = number_of_digits(row, values, index_map.shape)
            result.append(self.reader.simplify(expr) if number is None else self._sum(number))
        return result

    def _sum(self, value: Affine) -> Any:
        total: Any = None
        for weight, axis, stride, extent in value.terms:
            part, size = self.variables[axis], self.sizes[axis]
            part = tirx.floordiv(part, stride) if stride > 1 else part
            if isinstance(extent, int) and (isinstance(size, str) or stride * extent != size):
                part = tirx.floormod(part, extent)
            part = part if weight == 1 else part * weight
            total = part if total is None else total + part
        if total is None:
            return tirx.IntImm("int64", value.constant)
        return self._shifted(total, value.constant)


def _constant(fill: Fill, dtype: str) -> Any:
    number = 0.0 if fill is UNDEF or fill is None else fill
    return tirx.const(float(number) if "float" in dtype else bool(number) if dtype == "bool" else int(number), dtype)
