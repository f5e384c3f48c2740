"""Folding of constant expressions.

In: a Relax module. Out: the same with every pure expression over constants computed. What is more than a move of
elements (:mod:`eqsat_layout.passes.moved_constants`) is evaluated as one module (:mod:`eqsat_layout.passes.evaluate`):
TVM's FoldConstant builds and runs them one by one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.constants import may_fold
from eqsat_layout.graph.foldable import call_may_run_at_compile_time
from eqsat_layout.graph.templates import leaf_exprs, settings_of
from eqsat_layout.notes import Notes
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.passes.moved_constants import moved_constants
from eqsat_layout.tir.structural import items_of

_TOGETHER: Final = 4
"""Times as many elements as the constants of a function have, those that are computed ahead may have in all."""
_LITTLE: Final = 1 << 24
"""So many they may have in any case."""


def fold_constants(mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
    """``mod`` with its constant expressions as constants; ``mod`` itself if there are none.

    Those of a function that can't be computed stay as they are, and a note says why.
    """
    judge = _Judge(mod, notes)
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, relax.Function)}
    parts = {name: _constant_part(f, judge, name.name_hint, notes) for name, f in functions.items()}
    parts = {name: part for name, part in parts.items() if part.wanted}
    if not parts:
        return mod
    functions = dict(mod.functions.items())
    for name, part in parts.items():
        try:
            values = _evaluated(mod, part)
        except (EqsatError, tvm.error.InternalError, RuntimeError, ValueError) as error:
            notes.fault(f"{name.name_hint}: constant expressions are left as they are", error)
            continue
        functions[name] = _Replacer(mod, values).visit_expr(functions[name])
    folded = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.DeadCodeElimination()(folded)


@dataclass(frozen=True)
class _ConstantPart:
    """The constant bindings of a function and those of their variables that the rest reads."""

    bindings: tuple[Any, ...]
    wanted: tuple[Any, ...]


class _Judge:
    """Which calls are computed ahead: those that are safe to run, each kind of call looked at once."""

    def __init__(self, mod: tvm.IRModule, notes: Notes) -> None:
        self._mod, self._notes = mod, notes
        self._reasons: dict[Hashable, str | None] = {}

    def is_safe(self, call: Any) -> bool:
        """A note says why not."""
        is_tir = call.op.name == "relax.call_tir"
        operands = [tvm_ffi.StructuralKey(leaf.ty) for leaf in leaf_exprs(call)]
        key = call.args[0] if is_tir else (call.op.name, settings_of(call), *operands)
        if key not in self._reasons:
            self._reasons[key] = reason = call_may_run_at_compile_time(call, self._mod)
            if reason is not None:
                self._notes.add(f"not computed ahead: {reason}")
        return self._reasons[key] is None


def _constant_part(function: Any, judge: _Judge, name: str, notes: Notes) -> _ConstantPart:
    constant: dict[Any, Any] = {}
    wanted: dict[Any, None] = {}
    own = sum(element_count(one.ty) or 0 for one in _constants(function.body))
    for binding in _bindings(function):
        is_constant = isinstance(binding, relax.VarBinding) and _is_constant(binding.value, constant, own)
        if is_constant and judge.is_safe(binding.value):
            constant[binding.var] = binding
            if not isinstance(binding.var, relax.DataflowVar):
                wanted[binding.var] = None
        else:
            wanted.update((var, None) for var in relax.analysis.free_vars(binding.value) if var in constant)
    return _needed(constant, _affordable(wanted, own, name, notes))


def _affordable(wanted: Iterable[Any], own: int, name: str, notes: Notes) -> list[Any]:
    """Those that are computed ahead, the first ones, as far as they are not too many elements in all."""
    most, sizes = max(_LITTLE, _TOGETHER * own), {var: element_count(var.ty) or 0 for var in wanted}
    found = [var for var, total in zip(sizes, accumulate(sizes.values()), strict=True) if total <= most]
    if len(found) < len(sizes):
        notes.add(
            f"{name}: {len(sizes) - len(found)} constant expressions are not computed ahead: with all of them, of "
            f"{sum(sizes.values()):,} elements, more than {most:,} would be held"
        )
    return found


def _needed(constant: dict[Any, Any], wanted: list[Any]) -> _ConstantPart:
    """What these need of the constant bindings."""
    kept, bindings = set(wanted), []
    for var, binding in reversed(constant.items()):
        if var in kept:
            bindings.append(binding)
            kept.update(relax.analysis.free_vars(binding.value))
    return _ConstantPart(tuple(reversed(bindings)), tuple(wanted))


def _bindings(function: Any) -> Iterator[Any]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            yield from block.bindings


def _is_constant(value: Any, constant: dict[Any, Any], own: int) -> bool:
    if not isinstance(value, tvm.ir.Call) or not isinstance(value.op, tvm.ir.Op) or not _is_pure(value.op):
        return False
    variables = [v for v in relax.analysis.free_vars(value) if not tvm.ir.is_prim_expr(v)]
    inputs = [*variables, *_constants(value)]
    if not inputs or not all(v in constant for v in variables):
        return False
    size, given = element_count(value.ty), [element_count(v.ty) for v in inputs]
    if size is None or any(g is None for g in given):
        return False
    return may_fold(size, sum(g for g in given if g is not None), own)


def _is_pure(op: Any) -> bool:
    name = str(op.name)
    if not name.startswith("relax.") or not (op.has_attr("FPurity") and op.get_attr("FPurity")):
        return False
    return name == "relax.call_tir" or (op.has_attr("FLegalize") and not name.startswith("relax.call_"))


def _constants(call: Any) -> list[Any]:
    found: list[Any] = []

    def note(expr: Any) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
            found.append(expr)

    relax.analysis.post_order_visit(call, note)
    return found


def element_count(ty: Any) -> int | None:
    """Elements of a tensor of known shape, else ``None``."""
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    extents = items_of(shape.values) if isinstance(shape, relax.ShapeExpr) else (None,)
    return math.prod(map(int, extents)) if all(isinstance(e, tirx.IntImm) for e in extents) else None


def _evaluated(mod: tvm.IRModule, part: _ConstantPart) -> dict[Any, Any]:
    """Every wanted variable's value as a constant."""
    moved = moved_constants(part.bindings)
    wanted = [var for var in part.wanted if var not in moved]
    if not wanted:
        return moved
    result = relax.Tuple(wanted)
    out = relax.Var("folded", result.ty)
    rest = [binding for binding in part.bindings if binding.var not in moved]
    read = dict.fromkeys(var for binding in rest for var in relax.analysis.free_vars(binding.value))
    bindings = [relax.VarBinding(var, moved[var]) for var in read if var in moved]
    bindings += [*(relax.VarBinding(b.var, b.value) for b in rest), relax.VarBinding(out, result)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    functions[tvm.ir.GlobalVar("main")] = relax.Function([], body, result.ty).with_attr("global_symbol", "main")
    values = evaluate(tvm.IRModule(functions))
    return moved | {var: relax.const(value) for var, value in zip(wanted, values, strict=True)}


@relax.expr_functor.mutator
class _Replacer(relax.PyExprMutator):  # type: ignore[misc]
    """Puts constants in the place of variables."""

    def __init__(self, mod: tvm.IRModule, values: dict[Any, Any]) -> None:
        super().__init__(mod)
        self.values = values

    def visit_var_(self, var: Any) -> Any:
        return self.values[var] if var in self.values else super().visit_var_(var)

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self.values[var] if var in self.values else super().visit_dataflow_var_(var)

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var in self.values:
            binding = relax.VarBinding(binding.var, self.values[binding.var])
        super().visit_var_binding_(binding)
