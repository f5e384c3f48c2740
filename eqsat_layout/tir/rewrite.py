"""Rewrites a PrimFunc for the formats of a flow.

In: a PrimFunc, its :class:`Computation` and a :class:`Flow`. Out: the PrimFunc over the physical buffers: every access
composed with the map of its buffer, every block looping over the physical axes of what it writes, padding included. The
arithmetic and the order of every reduction stay, so the results are the same bit for bit, of finite data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.tir.affine import Affine, AffineReader, high_bound, number_of_digits
from eqsat_layout.tir.axis_groups import with_axis_groups
from eqsat_layout.tir.block_axes import BlockAxes
from eqsat_layout.tir.computation import Block, Computation
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.index_map import physical_indices
from eqsat_layout.tir.padding import plan_block
from eqsat_layout.tir.structural import structural_map, substitute
from eqsat_layout.tir.symbol_names import symbol_name


def relayout(func: Any, computation: Computation, flow: Flow) -> Any:
    """``func`` over buffers in the formats of ``flow``; names, attributes, block names and inits are kept.

    Buffers are declared in the memory scopes of their formats; groups of axes are said as an attribute
    (:mod:`eqsat_layout.tir.axis_groups`).

    Padding is written with its fill: by the arithmetic itself, running over the padding of the operands, where that
    provably gives the fill; else under a condition. A reduction runs over padding only where that provably changes
    nothing, the data itself (not its padding) taken to be finite; else over the data alone. See
    :func:`eqsat_layout.tir.padding.plan_block`, which decides.

    ``computation`` must be what ``analyse(func)`` gave. Raises :class:`LayoutError` where a block can't write the
    padding of its buffer, since it writes that not axis by axis, or where the dtype can't hold the fill.
    """
    formats = [
        Format.make(IndexMap.identity(b.shape), scope=b.scope, separators=b.separators) for b in computation.buffers
    ]
    for numbers, given in (
        (computation.operands, flow.operands),
        (computation.results, flow.results),
        (computation.internal, flow.internal),
    ):
        for number, fmt in zip(numbers, given, strict=True):
            formats[number] = fmt
    return _FunctionRewriter(func, computation, formats).function()


class _FunctionRewriter:
    def __init__(self, func: Any, computation: Computation, formats: Sequence[Format]) -> None:
        self.func = func
        self.computation = computation
        self.formats = formats
        self.root = func.body.block
        old = [p for p in func.params if type(p.ty) is tirx.BufferType] + list(self.root.alloc_buffers)
        self.numbers = {var: number for number, var in enumerate(old)}
        self.symbols = _symbols(func)
        self.vars = [self._declare(number, var) for number, var in enumerate(old)]

    def function(self) -> Any:
        statement = self.root.body
        nests = list(statement.seq) if type(statement) is tirx.SeqStmt else [statement]
        blocks = self.computation.blocks
        bodies = [_BlockRewriter(self, n, b).nest() for n, b in zip(nests, blocks, strict=True)]
        root = s_tir.SBlock(
            [],
            [],
            [],
            self.root.name_hint,
            bodies[0] if len(bodies) == 1 else tirx.SeqStmt(bodies),
            alloc_buffers=[self.vars[self.numbers[b]] for b in self.root.alloc_buffers],
            annotations=self.root.annotations,
        )
        params = [self.vars[self.numbers[p]] if p in self.numbers else p for p in self.func.params]
        body = s_tir.SBlockRealize([], True, root)
        func = tirx.PrimFunc(params, body, ret_type=self.func.ret_type, attrs=self.func.attrs)
        places = {position: self.numbers[p] for position, p in enumerate(self.func.params) if p in self.numbers}
        return with_axis_groups(func, {position: self.formats[n].separators for position, n in places.items()})

    def _declare(self, number: int, var: Any) -> Any:
        fmt, shape = self.formats[number], var.ty.shape
        dtype = next((str(e.ty.dtype) for e in shape if type(e) is tirx.IntImm), "int64")
        extents = [expr_of(e, self.symbols, dtype) for e in fmt.physical_shape]
        return tirx.decl_buffer(extents, var.ty.dtype, var.name, scope=fmt.scope, layout=None)


class _BlockRewriter:
    """One block: new variables, the old ones as numbers in them, and the accesses."""

    def __init__(self, function: _FunctionRewriter, nest: Any, block: Block) -> None:
        self.function = function
        while type(nest) is tirx.For:
            nest = nest.body
        self.old = nest.block
        iter_vars = list(self.old.iter_vars)
        variables = [v.var for v in iter_vars]
        self.reader = AffineReader(variables, block.extents, [v.dom for v in iter_vars])
        plan = plan_block(function.computation, block, function.formats)
        self.new = BlockAxes(variables, block, function.formats, function.symbols, plan.borders)
        self.inside = [condition for number in plan.masked for condition in self.new.is_inside(number)]
        self.drops_units = any(e == 1 and any(b) for e, b in zip(block.extents, plan.borders, strict=True))
        self.values = {v: self._cast(self.new.old_variable(i), v) for i, v in enumerate(variables)}
        self.is_renaming = all(type(e) is tvm.ir.Var for e in self.values.values())

    def nest(self) -> Any:
        """The block under one loop per variable."""
        old = self.old
        iter_vars, values = [a.iter_var for a in self.new.axes], [a.loop for a in self.new.axes]
        if not iter_vars:
            iter_vars, values = [self.new.scalar_axis().iter_var], [self._int(0)]
        block = s_tir.SBlock(
            iter_vars,
            [self._region(r) for r in old.reads],
            [self._region(r) for r in old.writes],
            old.name_hint,
            self._statement(old.body),
            None if old.init is None else self._statement(old.init),
            annotations=old.annotations,
        )
        statement = s_tir.SBlockRealize(values, True, block)
        for axis in reversed(self.new.axes):
            domain = axis.iter_var.dom
            statement = tirx.For(axis.loop, domain.min, domain.extent, tirx.ForKind.SERIAL, statement)
        return statement

    def _statement(self, statement: Any) -> Any:
        moved = structural_map(statement, (tvm.ir.expr.TensorLoad, self._load), (tirx.BufferStore, self._store))
        moved = substitute(moved, self.values)
        return moved if self.is_renaming else structural_map(moved, (_COMPARISONS, self._comparison))

    def _load(self, load: Any) -> Any:
        number = self.function.numbers[load.source]
        return tirx.BufferLoad(self.function.vars[number], self._physical(number, list(load.indices)))

    def _store(self, store: Any) -> Any:
        number = self.function.numbers[store.buffer]
        value = store.value
        if self.inside:
            fill, dtype = self.function.formats[number].fill, str(value.ty.dtype)
            padding = tirx.const(fill if isinstance(fill, int | float) else 0, dtype)
            value = tirx.if_then_else(tirx.all(*self.inside), value, padding)
        return tirx.BufferStore(self.function.vars[number], value, self._physical(number, list(store.indices)))

    def _region(self, region: Any) -> Any:
        number = self.function.numbers[region.source]
        var = self.function.vars[number]
        if all(_is_one(r.extent) for r in region.region):
            starts = [structural_map(r.min, (tvm.ir.expr.TensorLoad, self._load)) for r in region.region]
            indices = self._physical(number, starts)
            ranges = [tvm.ir.Range.from_min_extent(i, tirx.IntImm(str(i.ty.dtype), 1)) for i in indices]
        else:
            ranges = [tvm.ir.Range(self._int(0), e) for e in var.ty.shape]
        return tirx.BufferRegion(var, ranges)

    def _physical(self, buffer: int, indices: Sequence[Any]) -> list[Any]:
        """Physical indices, in the new variables, of an access with these logical ones in the old variables."""
        fmt = self.function.formats[buffer]
        logical: list[Affine | None] = []
        for expr, (before, _) in zip(indices, fmt.padding, strict=True):
            value = self.reader.read(expr)
            moved = None if value is None else self.new.moved(value)
            logical.append(moved and Affine(moved.terms, moved.constant + before))
        result: list[Any] = []
        by_expression: list[Any] | None = None
        for position, row in enumerate(fmt.index_map.dims):
            number = number_of_digits(row, logical, fmt.index_map.shape)
            if number is None:  # no sum of digits, or cut across digits
                by_expression = by_expression or self._composed(fmt, indices)
                result.append(by_expression[position])
            else:
                unit = None if row else self.new.unit_axis(position - len(fmt.index_map.dims))
                result.append(self.new.expr(number) if unit is None else unit)
        return result

    def _composed(self, fmt: Format, indices: Sequence[Any]) -> list[Any]:
        """As :meth:`_physical`, by composing expressions."""
        moved = [substitute(self._spelled(e) if self.drops_units else e, self.values) for e in indices]
        logical = [e + before if before else e for e, (before, _) in zip(moved, fmt.padding, strict=True)]
        physical = physical_indices(fmt.index_map, logical, self.function.symbols)
        return [self.new.reader.simplify(e) for e in physical]

    def _spelled(self, expr: Any) -> Any:
        """The expression as it was read: a variable of extent 1 that it was read without may run further now."""
        value = self.reader.read(expr)
        if value is None:
            return expr
        total: Any = self._int(value.constant)
        for weight, number, stride, extent in value.terms:
            part = tirx.floordiv(self.old.iter_vars[number].var, stride)
            whole = isinstance(extent, str) or stride * extent == self.new.extents[number]
            total = total + (part if whole else tirx.floormod(part, extent)) * weight
        return total

    def _comparison(self, expr: Any) -> Any:
        """A bound on a number as a bound on its high digits, where the low ones don't matter."""
        if "int" not in str(expr.a.ty.dtype):
            return expr
        a, b = self.new.reader.read(expr.a), self.new.reader.read(expr.b)
        if a is None or b is None or bool(a.terms) == bool(b.terms):
            return expr
        strict = int(type(expr) in (tirx.LT, tirx.GT))
        if type(expr) in (tirx.GT, tirx.GE):
            a, b = b, a
        # constant <= number, or number < constant
        bound = high_bound(b, a.constant + strict) if b.terms else high_bound(a, b.constant + 1 - strict)
        if bound is None:
            return expr
        number, limit = self.new.expr(bound[0]), self._int(bound[1])
        return tirx.LE(limit, number) if b.terms else tirx.LT(number, limit)

    def _cast(self, expr: Any, var: Any) -> Any:
        dtype = str(var.ty.dtype)
        return expr if dtype == self.new.dtype else tirx.Cast(dtype, expr)

    def _int(self, value: int) -> Any:
        return tirx.IntImm(self.new.dtype, value)


_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def _is_one(extent: Any) -> bool:
    """That of a region that is read at two places may hold what they are read from."""
    return bool(tvm.sym.Analyzer().can_prove_equal(extent, 1))


def _symbols(func: Any) -> dict[str, Any]:
    """The scalar variables in the shapes and among the parameters, by name."""
    symbols: dict[str, Any] = {}

    def visit(expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            symbols[symbol_name(expr)] = expr
        elif hasattr(expr, "a"):
            visit(expr.a)
            visit(expr.b)

    for param in func.params:
        if type(param.ty) is tirx.BufferType:
            for extent in param.ty.shape:
                visit(extent)
        else:
            visit(param)
    return symbols
