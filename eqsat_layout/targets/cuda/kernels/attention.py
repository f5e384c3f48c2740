"""Attention, read off indices: a product whose left operand is the softmax of another product, and the sums between.

In: an unscheduled PrimFunc. Out: :class:`Attention`, all over the axes of the second product: ``values[row, column] =
(sum over keys of exp(score[row, key]) * value[key, column]) / (sum over keys of exp(score[row, key]))``. What the
network takes off the scores before ``exp``, so that it stays finite, is no part of that: it cancels out, and a kernel
takes off what it likes. All that is asked of it is to be the same for a whole row. A row whose scores are all minus
infinity has no number for a result; or zero, where the network asks for such rows (a "safe" softmax, as torch has it).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand, choice
from eqsat_layout.targets.cuda.kernels.products import (
    Product,
    factors_of,
    is_one,
    narrowed,
    product_of_nest,
    step_key,
    with_simple_indices,
)
from eqsat_layout.targets.cuda.kernels.statements import number
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest, nests_of, without_inlined_nests
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.exact_values import with_hidden_arithmetic
from eqsat_layout.tir.intrinsics import is_zero
from eqsat_layout.tir.structural import nodes_of, structural_map, substitute

REDUCTIONS: Final = 3
"""At least: scores, the sums of their powers, values."""


@dataclass(frozen=True)
class Attention:
    """``values``: the second product; its left operand stands for the softmax, its steps are the keys.

    ``query`` and ``key``: of the first product, over the axes of ``values`` and those of ``head``, which it sums over.
    ``score``: what ``exp`` is taken of; it has loads of ``sums`` in it, where a kernel puts what the first product is.
    ``is_safe``: rows whose scores are all minus infinity give zero.
    """

    values: Product
    query: Operand
    key: Operand
    head: FlatAxes
    score: Any
    sums: Any
    is_safe: bool = False

    @property
    def dtype(self) -> str:
        """The dtype of all operands."""
        return self.values.dtype

    @property
    def fixed(self) -> Mapping[Any, Any]:
        """The place along axes of one element."""
        return self.values.fixed


def attention_of(func: Any) -> Attention:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is no attention."""
    func = narrowed(func)
    nests = without_inlined_nests(nests_of(with_hidden_arithmetic(func)), list(func.params))
    if sum(bool(nest.reduced) for nest in nests) < REDUCTIONS:
        raise Refused("there are no two products with a softmax between them")
    if any(len(nest.stores) != 1 for nest in nests):
        raise Refused("a nest has several results")
    return _Reader(func, nests).attention()


class _Reader:
    """``made``: by buffer the nest that it is written by, if no caller sees it."""

    def __init__(self, func: Any, nests: Sequence[Nest]) -> None:
        last = max(place for place, nest in enumerate(nests) if nest.reduced)
        if len(nests) > last + 2:
            raise Refused("several nests follow the products")
        values = product_of_nest(func, nests[last], nests[last + 1] if nests[last + 1 :] else None)
        self._made = {nest.buffers[0]: nest for nest in nests[:last]}
        if any(buffer.same_as(parameter) for buffer in self._made for parameter in func.params):
            raise Refused("what is between the products is a result too")
        self._values = values if self._loads(values.left.value) else _turned(values)
        if not self._loads(self._values.left.value) or self._loads(self._values.right.value):
            raise Refused("not one of the operands is made here")
        if self._loads(values.store.value):
            raise Refused("what follows the products reads what is between them")
        self._steps = [axis for axis in nests[last].reduced if not is_one(axis)]
        self._analyzer = tvm.sym.Analyzer()
        for group in (values.batch, values.rows, values.columns, values.steps):
            self._bind(group.axes)

    def attention(self) -> Attention:
        values = self._values
        flag, quotient = self._flag_and_other(values.left.value)
        power, total = self._quotient(quotient)
        self._check_total(power, total)
        score = self._expanded(self._exponent(power))
        if flag is not None:
            self._check_flag(flag, score)
        load = self._one_load(score)
        nest = self._made[load.source]
        if not nest.is_plain:
            raise Refused(f"{nest.name} does not store what it sums where its axes are")
        places = self._places(nest, load)
        fixed = {axis.var: number(0) for axis in nest.reduced if is_one(axis)}
        self._bind(nest.reduced)
        factors = (Operand(self._placed(one.value, {**places, **fixed})) for one in factors_of(nest))
        query, key = sorted(factors, key=self._is_along_keys)
        head = [axis for axis in nest.reduced if not is_one(axis)]
        head.sort(key=lambda axis: step_key(axis, query, key))
        found = Attention(
            replace(values, fixed={**values.fixed, **fixed}),
            query,
            key,
            FlatAxes(tuple(head)),
            score,
            load.source,
            flag is not None,
        )
        self._check(found)
        return found

    # ---- what is read

    def _flag_and_other(self, value: Any) -> tuple[Any, Any]:
        """The load of what is 0 for a row that gives zeros and else 1, if there are such rows; and the other value."""
        value = _without_casts(value)
        condition, zero, other = choice(value) or (None, None, value)
        if condition is None:
            return None, value
        loads = self._loads(condition)
        if len(loads) != 1 or not is_zero(_without_casts(zero)):
            raise Refused("the left operand is chosen by more than one flag")

        def is_chosen(flag: int) -> bool:
            number = tirx.const(flag, str(loads[0].ty.dtype))
            known = structural_map(condition, (tvm.ir.TensorLoad, lambda _: number))
            return bool(self._analyzer.can_prove(known))

        if not is_chosen(0) or is_chosen(1):
            raise Refused("the left operand is no zero where a flag is")
        return loads[0], other

    def _check_flag(self, flag: Any, score: Any) -> None:
        """It is 1 where a score of its row is more than minus infinity."""
        nest = self._made[flag.source]
        (store,) = nest.stores
        parts = [store.value.a, store.value.b] if nest.reduced and isinstance(store.value, tirx.Max) else []
        said = [one for one in parts if not _is_of(one, store.buffer)]
        steps = self._steps_of(nest)
        if len(said) != 1 or not isinstance(said[0], tirx.Cast) or float(nest.inits[0].value.value) > 0:
            raise Refused(f"{nest.name} is no largest of flags")
        one = self._expanded(self._placed(said[0].value, {**self._places(nest, flag), **steps}))
        same = one.a if isinstance(one, tirx.Not) and isinstance(one.a, tirx.EQ) else None
        sides = [same.a, same.b] if same is not None else []
        others = [_without_casts(side) for side in sides if not _is_minus_infinity(side)]
        if len(sides) - len(others) != 1 or not tvm_ffi.structural_equal(others[0], _without_casts(score)):
            raise Refused(f"{nest.name} does not ask whether scores are minus infinity")

    def _steps_of(self, nest: Nest) -> Mapping[Any, Any]:
        """The axes that a nest of all keys of a row sums over, as keys."""
        own = [axis for axis in nest.reduced if not is_one(axis)]
        extents = [[axis.extent for axis in axes] for axes in (own, self._steps)]
        if not tvm_ffi.structural_equal(*extents):
            raise Refused(f"{nest.name} does not add up as many as there are keys")
        steps = {axis.var: step.var for axis, step in zip(own, self._steps, strict=True)}
        return {**steps, **{axis.var: number(0) for axis in nest.reduced if is_one(axis)}}

    def _quotient(self, value: Any) -> tuple[Any, Any]:
        """The loads of a power, and of the sum of powers that it is divided by."""
        value = _without_casts(value)
        parts = [_without_casts(part) for part in (value.a, value.b)] if isinstance(value, tirx.Div) else []
        if len(parts) != 2 or not all(isinstance(p, tvm.ir.TensorLoad) and p.source in self._made for p in parts):
            raise Refused("the left operand is no quotient of what is made here")
        return parts[0], parts[1]

    def _check_total(self, power: Any, total: Any) -> None:
        """``total`` adds up the powers of the row that ``power`` is in, all of them."""
        nest = self._made[total.source]
        (store,) = nest.stores
        parts = [store.value.a, store.value.b] if nest.reduced and isinstance(store.value, tirx.Add) else []
        added = [one for one in map(_without_casts, parts) if not _is_of(one, store.buffer)]
        if len(added) != 1 or not is_zero(nest.inits[0].value) or not _is_of(added[0], power.source):
            raise Refused(f"{nest.name} is no sum of the powers")
        there = self._placed(added[0], {**self._places(nest, total), **self._steps_of(nest)})
        if not tvm_ffi.structural_equal(list(there.indices), list(power.indices)):
            raise Refused(f"{nest.name} adds up other rows")

    def _exponent(self, power: Any) -> Any:
        """The score that it is the power of, over the axes of the values."""
        nest = self._made[power.source]
        if nest.reduced:
            raise Refused(f"{nest.name} is no power")
        value = self._placed(_without_casts(nest.stores[0].value), self._places(nest, power))
        condition, value, other = choice(value) or (None, value, None)
        value = _without_casts(value)
        if str(getattr(getattr(value, "op", None), "name", "")) != "tirx.exp" or (
            other is not None and not is_zero(other)
        ):
            raise Refused(f"{nest.name} is no power")
        score = _without_casts(value.args[0])
        if isinstance(score, tirx.Sub) and not self._is_along_keys(Operand(score.b)):
            score = score.a
        if condition is None:
            return score
        return tirx.if_then_else(condition, score, tirx.const(-math.inf, str(score.ty.dtype)))

    def _expanded(self, value: Any) -> Any:
        """The expression with those elementwise nests substituted that were not inlined because they are costly."""
        waiting = [load for load in self._loads(value) if not self._made[load.source].reduced]
        if not waiting:
            return value

        def on_load(load: Any) -> Any:
            nest = self._made.get(load.source)
            if nest is None or nest.reduced:
                return load
            return self._placed(nest.stores[0].value, self._places(nest, load))

        return self._expanded(structural_map(value, (tvm.ir.TensorLoad, on_load)))

    def _one_load(self, score: Any) -> Any:
        loads = self._loads(score)
        if not loads or any(not tvm_ffi.structural_equal(load, loads[0]) for load in loads):
            raise Refused("a score is not made of one sum of products")
        return loads[0]

    def _check(self, found: Attention) -> None:
        """Each operand moves along those axes that it may, and no other."""
        values = found.values
        used = {
            "query": (found.query.value, (values.columns, values.steps)),
            "key": (found.key.value, (values.rows, values.columns)),
            "score": (found.score, (values.columns,)),
        }
        for name, (value, others) in used.items():
            operand = Operand(value)
            for axis in (axis for group in others for axis in group.axes):
                if operand.uses(axis):
                    raise Refused(f"the {name} depends on axis {axis.var.name}")
        if not self._is_along_keys(found.key) or not found.head.axes:
            raise Refused("the scores are no product over keys")
        dtypes = {found.query.dtype, found.key.dtype, values.dtype}
        if any(as_int(group.extent) is None for group in (found.head, values.columns)):
            raise Refused("what registers would hold of a row is not known")
        if len(dtypes) != 1:
            raise Refused(f"operands are of several types: {', '.join(sorted(dtypes))}")

    # ---- places

    def _loads(self, value: Any) -> list[Any]:
        """Those of what is made here."""
        return [load for load in nodes_of(value, tvm.ir.TensorLoad) if load.source in self._made]

    def _is_along_keys(self, operand: Operand) -> bool:
        return any(operand.uses(axis) for axis in self._steps)

    def _places(self, nest: Nest, load: Any) -> Mapping[Any, Any]:
        """The axes of a nest where ``load`` reads what it stores."""
        if not nest.is_plain:
            raise Refused(f"{nest.name} does not store what it makes where its axes are")
        return {axis.var: index for axis, index in zip(nest.spatial, load.indices, strict=True)}

    def _placed(self, value: Any, places: Mapping[Any, Any]) -> Any:
        return with_simple_indices(substitute(value, places), self._analyzer)

    def _bind(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            self._analyzer.bind(axis.var, tvm.ir.Range(0, axis.extent))


def _turned(product: Product) -> Product:
    """Rows as columns."""
    return replace(product, rows=product.columns, columns=product.rows, left=product.right, right=product.left)


def _without_casts(value: Any) -> Any:
    """Between floats: a kernel rounds where it likes."""
    while isinstance(value, tirx.Cast) and "float" in str(value.ty.dtype) and "float" in str(value.value.ty.dtype):
        value = value.value
    return value


def _is_minus_infinity(value: Any) -> bool:
    return isinstance(value, tirx.FloatImm) and float(value.value) == -math.inf


def _is_of(value: Any, buffer: Any) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(buffer)
