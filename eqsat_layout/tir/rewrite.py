"""Rewrites a PrimFunc for the formats of a flow.

In: a PrimFunc, its :class:`Computation` and a :class:`Flow`. Out: the PrimFunc over the physical buffers: every access
composed with the map of its buffer, every block looping over the physical axes of what it writes. The arithmetic and
the order of every reduction stay, so the results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Extent, Format, IndexMap
from eqsat_layout.tir.affine import Affine, AffineReader, Term, divided, summed
from eqsat_layout.tir.computation import Access, Block, Computation, IterKind, tiles
from eqsat_layout.tir.extents import expr_of, extent_of
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.index_map import physical_indices


def relayout(func: Any, computation: Computation, flow: Flow) -> Any:
    """``func`` over buffers in the formats of ``flow``; names, attributes, block names and inits are kept.

    ``computation`` must be what ``analyse(func)`` gave. Raises :class:`LayoutError` for a result or an internal buffer
    with padding, since nothing would write the padding.
    """
    formats = [Format.row_major(b.shape, b.scope) for b in computation.buffers]
    for numbers, given in (
        (computation.operands, flow.operands),
        (computation.results, flow.results),
        (computation.internal, flow.internal),
    ):
        for number, fmt in zip(numbers, given, strict=True):
            if fmt.is_padded and number not in computation.operands:
                raise LayoutError(f"{computation.buffers[number].name} can't be written in a padded format: {fmt}")
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
        return tirx.PrimFunc(params, body, ret_type=self.func.ret_type, attrs=self.func.attrs)

    def _declare(self, number: int, var: Any) -> Any:
        fmt, shape = self.formats[number], var.ty.shape
        dtype = next((str(e.ty.dtype) for e in shape if type(e) is tirx.IntImm), "int64")
        extents = [expr_of(e, self.symbols, dtype) for e in fmt.physical_shape]
        return tirx.decl_buffer(extents, var.ty.dtype, var.name, scope=fmt.scope, layout=None)


@dataclass
class _Axis:
    """An iteration variable of the new block, under its loop."""

    loop: Any
    iter_var: Any
    extent: Extent


class _BlockRewriter:
    """One block: new variables, the old ones as numbers in them, and the accesses."""

    def __init__(self, function: _FunctionRewriter, nest: Any, block: Block) -> None:
        self.function = function
        self.block = block
        while type(nest) is tirx.For:
            nest = nest.body
        self.old = nest.block
        self.old_vars = [v.var for v in self.old.iter_vars]
        self.dtype = str(self.old_vars[0].ty.dtype) if self.old_vars else "int64"
        self.reader = AffineReader(self.old_vars, block.extents, [v.dom for v in self.old.iter_vars])
        self.axes: list[_Axis] = []
        self.numbers: dict[int, tuple[Digit, ...]] = {}  # old variable -> its digits in the new ones
        self.written: tuple[Extent, ...] | None = None  # physical shape that the spatial axes run over
        self._make_axes()
        self.vars = [a.iter_var.var for a in self.axes]
        self.extents = tuple(a.extent for a in self.axes)
        self.values = {v: self._cast(self._number_expr(i), v) for i, v in enumerate(self.old_vars)}
        self.is_renaming = all(type(e) is tvm.ir.Var for e in self.values.values())
        self.analyzer: Any = None

    # ---- axes ----

    def _make_axes(self) -> None:
        inverse = self._spatial_inverse()
        if inverse is not None:
            self.written = inverse.shape
            for position, extent in enumerate(inverse.shape):
                self._add_axis(f"ax{position}", extent, IterKind.SPATIAL)
            spatial = [i for i in range(len(self.block.iters)) if self.block.is_spatial(i)]
            self.numbers.update(zip(spatial, inverse.dims, strict=True))
        for number, axis in enumerate(self.block.iters):
            if number in self.numbers:
                continue
            cuts = self._cuts(number) if axis.kind is IterKind.REDUCE else []
            self._add_split(number, axis.kind, [*cuts, axis.extent])

    def _spatial_inverse(self) -> IndexMap | None:
        """The map from the written buffer's physical indices to the spatial variables; None if it is no digit map."""
        access = self.block.stores[0].access
        spatial = [i for i in range(len(self.block.iters)) if self.block.is_spatial(i)]
        places = {number: place for place, number in enumerate(spatial)}
        dims: list[tuple[Digit, ...]] = []
        for index in access.indices:
            digits = index.digits() if isinstance(index, Affine) else None
            if digits is None or any(d.axis not in places for d in digits):
                return None
            dims.append(tuple(d._replace(axis=places[d.axis]) for d in digits if d.extent != 1))
        written = IndexMap(tuple(self.block.extents[i] for i in spatial), tuple(dims))
        layout = self.function.formats[access.buffer].index_map
        if written.result_shape != layout.shape or not tiles(written):
            return None
        physical = layout.after(written)
        return None if physical is None else physical.inverse()

    def _cuts(self, number: int) -> list[int]:
        """Where the formats of what is read cut a reduced variable: strides, each dividing the next and the extent."""
        cuts: set[int] = set()
        for read in self.block.reads:
            strides = [(d.axis, d.stride) for row in self.function.formats[read.buffer].index_map.dims for d in row]
            for dim, index in enumerate(read.indices):
                if isinstance(index, Affine) and index.digits() is not None:
                    terms = [t for t in index.terms if t.iter == number and isinstance(t.extent, int)]
                    for weight, _, stride, extent in terms:
                        inside = [s // weight for axis, s in strides if axis == dim and s % weight == 0]
                        cuts.update(stride * s for s in inside if 1 < s < int(extent))
        chain = [1]
        size = self.block.extents[number]
        for cut in sorted(cuts):
            if isinstance(size, int) and size % cut == 0 and cut % chain[-1] == 0:
                chain.append(cut)
        return chain[1:]

    def _add_split(self, number: int, kind: IterKind, bounds: Sequence[Extent]) -> None:
        """New variables for one old one, cut at ``bounds``; the last bound is its extent."""
        name = str(self.old_vars[number].name).removeprefix("v_")
        digits: list[Digit] = []
        low = 1
        for bound in bounds:
            extent = bound // low if isinstance(bound, int) else bound
            digits.append(Digit(0, low, extent))
            low = bound if isinstance(bound, int) else low
        new: list[Digit] = []
        for position, digit in enumerate(reversed(digits)):
            new.append(Digit(len(self.axes), 1, digit.extent))
            self._add_axis(name if len(digits) == 1 else f"{name}_{position}", digit.extent, kind)
        self.numbers[number] = tuple(new)

    def _add_axis(self, name: str, extent: Extent, kind: IterKind) -> None:
        size = expr_of(extent, self.function.symbols, self.dtype)
        loop, var = tirx.Var(name, self.dtype), tirx.Var(f"v_{name}", self.dtype)
        iter_type = tirx.IterVar.DataPar if kind is IterKind.SPATIAL else tirx.IterVar.CommReduce
        zero = tirx.IntImm(self.dtype, 0)
        iter_var = tirx.IterVar(tvm.ir.Range(zero, size), var, iter_type)
        self.axes.append(_Axis(loop, iter_var, extent))

    # ---- expressions ----

    def _number_expr(self, number: int) -> Any:
        """An old variable as an expression in the new ones."""
        affine = self._in_new(Affine((Term(1, number, 1, self.block.extents[number]),)))
        assert affine is not None, "a whole variable is never cut"
        return self._expr(affine)

    def _cast(self, expr: Any, var: Any) -> Any:
        dtype = str(var.ty.dtype)
        return expr if dtype == self.dtype else tirx.Cast(dtype, expr)

    def _in_new(self, value: Affine) -> Affine | None:
        """A sum over old variables as a sum over new ones."""
        terms: list[Term] = []
        constant = value.constant
        for weight, number, stride, extent in value.terms:
            place: int = 1
            own: list[Term] = []
            for axis, low, size in reversed(self.numbers[number]):
                own.append(Term(place, axis, low, size))
                place *= size if isinstance(size, int) else 1
            whole = summed(own, 0)
            part = _digit(whole, stride, extent, self.block.extents[number])
            if part is None:
                return None
            terms.extend(t._replace(weight=t.weight * weight) for t in part.terms)
            constant += weight * part.constant
        return summed(terms, constant)

    def _expr(self, value: Affine) -> Any:
        total: Any = None
        for weight, axis, stride, extent in value.terms:
            part, size = self.vars_of(axis), self.extents_of(axis)
            part = part // stride if stride > 1 else part
            if isinstance(extent, int) and (isinstance(size, str) or stride * extent != size):
                part = part % extent
            part = part if abs(weight) == 1 else part * abs(weight)
            if total is None:
                total = part if weight > 0 else -part
            else:
                total = total + part if weight > 0 else total - part
        if total is None:
            return tirx.IntImm(self.dtype, value.constant)
        if value.constant:
            total = total + value.constant if value.constant > 0 else total - (-value.constant)
        return total

    def vars_of(self, axis: int) -> Any:
        return self.axes[axis].iter_var.var

    def extents_of(self, axis: int) -> Extent:
        return self.axes[axis].extent

    def physical(self, buffer: int, indices: Sequence[Any]) -> list[Any]:
        """Physical indices, in the new variables, of an access with these logical ones in the old variables."""
        fmt = self.function.formats[buffer]
        logical = [self.reader.read(e) for e in indices]
        moved = [None if a is None else self._in_new(a) for a in logical]
        shifted = [a and Affine(a.terms, a.constant + lo) for a, (lo, _) in zip(moved, fmt.padding, strict=True)]
        result: list[Any] = []
        fallback: list[Any] | None = None
        shape = fmt.physical_shape
        for position, row in enumerate(fmt.index_map.dims):
            value = _number(row, shifted, fmt.index_map.shape)
            if value is None:
                if fallback is None:
                    fallback = self._by_expression(fmt, indices)
                result.append(fallback[position])
            else:
                unit = self._unit_axis(position - len(shape)) if not row else None
                result.append(self._expr(value) if unit is None else unit)
        return result

    def _unit_axis(self, place: int) -> Any:
        """The variable of the written axis at ``place``, counted from the right, if it has extent 1."""
        if self.written is None or -place > len(self.written) or self.written[place] != 1:
            return None
        return self.axes[len(self.written) + place].iter_var.var

    def _by_expression(self, fmt: Format, indices: Sequence[Any]) -> list[Any]:
        """As :meth:`physical`, by composing expressions: for what is no sum of digits, or cut across digits."""
        logical = [
            _substitute(e, self.values) + lo if lo else _substitute(e, self.values)
            for e, (lo, _) in zip(indices, fmt.padding, strict=True)
        ]
        return [self.simplify(e) for e in physical_indices(fmt.index_map, logical, self.function.symbols)]

    def simplify(self, expr: Any) -> Any:
        if self.analyzer is None:
            self.analyzer = tvm.sym.Analyzer()
            for axis in self.axes:
                self.analyzer.bind(axis.iter_var.var, axis.iter_var.dom)
        return self.analyzer.simplify(expr)

    # ---- statements ----

    def nest(self) -> Any:
        """The block under one loop per variable."""
        old = self.old
        init = None if old.init is None else self._statement(old.init)
        body = self._statement(old.body)
        iter_vars, values = [a.iter_var for a in self.axes], [a.loop for a in self.axes]
        if not self.axes:  # a scalar: blocks want one variable at least
            self._add_axis("u", 1, IterKind.SPATIAL)
            iter_vars, values = [self.axes[0].iter_var], [tirx.IntImm(self.dtype, 0)]
            self.axes.clear()
        block = s_tir.SBlock(
            iter_vars,
            [self._region(r) for r in old.reads],
            [self._region(r) for r in old.writes],
            old.name_hint,
            body,
            init,
            annotations=old.annotations,
        )
        statement = s_tir.SBlockRealize(values, True, block)
        for axis in reversed(self.axes):
            extent, zero = axis.iter_var.dom.extent, axis.iter_var.dom.min
            statement = tirx.For(axis.loop, zero, extent, tirx.ForKind.SERIAL, statement)
        return statement

    def _statement(self, statement: Any) -> Any:
        moved = tvm_ffi.structural_map(
            statement, ((tvm.ir.expr.TensorLoad, self._load), (tirx.BufferStore, self._store))
        )
        moved = _substitute(moved, self.values)
        return moved if self.is_renaming else tvm_ffi.structural_map(moved, (_COMPARISONS, self._comparison))

    def _load(self, load: Any) -> Any:
        number = self.function.numbers[load.source]
        return tirx.BufferLoad(self.function.vars[number], self.physical(number, list(load.indices)))

    def _store(self, store: Any) -> Any:
        number = self.function.numbers[store.buffer]
        return tirx.BufferStore(self.function.vars[number], store.value, self.physical(number, list(store.indices)))

    def _comparison(self, expr: Any) -> Any:
        """A bound on a number as a bound on its high digits, where the low ones don't matter."""
        if "int" not in str(expr.a.ty.dtype):
            return expr
        reader = AffineReader(self.vars, self.extents, [a.iter_var.dom for a in self.axes])
        a, b = reader.read(expr.a), reader.read(expr.b)
        if a is None or b is None or bool(a.terms) == bool(b.terms):
            return expr
        kind = type(expr)
        if kind in (tirx.GT, tirx.GE):
            a, b = b, a
        strict = int(kind in (tirx.LT, tirx.GT))
        if b.terms:  # constant <= number
            bound = _high_digits(b, a.constant + strict)
            return expr if bound is None else tirx.LE(self._int(bound[1]), self._expr(bound[0]))
        bound = _high_digits(a, b.constant + 1 - strict)  # number < constant
        return expr if bound is None else tirx.LT(self._expr(bound[0]), self._int(bound[1]))

    def _int(self, value: int) -> Any:
        return tirx.IntImm(self.dtype, value)

    def _region(self, region: Any) -> Any:
        number = self.function.numbers[region.source]
        var = self.function.vars[number]
        if all(extent_of(r.extent) == 1 for r in region.region):
            indices = self.physical(number, [self._moved(r.min) for r in region.region])
            ranges = [tvm.ir.Range.from_min_extent(i, tirx.IntImm(str(i.ty.dtype), 1)) for i in indices]
        else:
            ranges = [tvm.ir.Range(tirx.IntImm(self.dtype, 0), e) for e in var.ty.shape]
        return tirx.BufferRegion(var, ranges)

    def _moved(self, expr: Any) -> Any:
        return tvm_ffi.structural_map(expr, (tvm.ir.expr.TensorLoad, self._load))


_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def _digit(value: Affine, stride: int, extent: Extent, size: Extent) -> Affine | None:
    """``value // stride % extent`` for a value below ``size``."""
    if extent == size:
        return value
    high = divided(value, stride, tirx.FloorDiv) if stride > 1 else value
    if high is None or isinstance(extent, str) or stride * extent == size:
        return high
    return divided(high, extent, tirx.FloorMod)


def _number(row: Sequence[Digit], indices: Sequence[Affine | None], shape: Sequence[Extent]) -> Affine | None:
    """The number that the digits of ``indices`` write; None if an index is none or is cut."""
    terms: list[Term] = []
    constant, place = 0, 1
    for axis, stride, extent in reversed(row):
        index = indices[axis]
        part = None if index is None else _digit(index, stride, extent, shape[axis])
        if part is None or place == 0:
            return None
        terms.extend(t._replace(weight=t.weight * place) for t in part.terms)
        constant += part.constant * place
        place = place * extent if isinstance(extent, int) else 0  # only an outermost digit may be symbolic
    return summed(terms, constant)


def _high_digits(value: Affine, bound: int) -> tuple[Affine, int] | None:
    """``(h, c)`` with ``bound <= value`` just where ``c <= h``, ``h`` being the part above the lowest weights."""
    bound -= value.constant
    for weight in sorted({t.weight for t in value.terms}, reverse=True):
        low = [t for t in value.terms if t.weight % weight]
        if weight > 1 and bound % weight == 0 and all(t.weight > 0 and isinstance(t.extent, int) for t in low):
            if sum(t.weight * (int(t.extent) - 1) for t in low) < weight:
                high = divided(Affine(tuple(t for t in value.terms if t not in low)), weight, tirx.FloorDiv)
                return None if high is None else (high, bound // weight)
    return None


def _substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    return tvm_ffi.structural_map(node, (tvm.ir.Var, lambda var: values.get(var, var)))


def _symbols(func: Any) -> dict[str, Any]:
    """The scalar variables in the shapes and among the parameters, by name."""
    symbols: dict[str, Any] = {}

    def visit(expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            symbols[str(expr.name)] = expr
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
