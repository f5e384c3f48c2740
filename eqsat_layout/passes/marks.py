"""Which calls of a module end up in which kernels, whatever fuses them.

In: a legalised Relax module, and what a target made of it. Out: for each kernel the calls that it computes. Calls are
tracked by unique names of their variables, which TVM's FuseOps keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.passes.all_calls import is_tir_call
from eqsat_layout.passes.sizes_first import sizes_first
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.reshape_pattern import reshape_pattern
from eqsat_layout.tir.structural import structural_map, with_relax_functions

SAVED: Final = "eqsat_layout.saved"
"""The attribute of a PrimFunc that was made of several: the share of their time that it saves, as the target thinks."""

_MARK: Final = "mark_"
_END: Final = "_of_a_call"
"""TVM gives a name that ends in a number another one where it emits."""

_Change = Callable[[Any, Any], tuple[str, Any]]
"""From a variable and its value to the name that it has from now on, and the value."""


@dataclass(frozen=True)
class JoinedCalls:
    """A kernel: the PrimFunc that is called, and the marks of the calls that it was made of. ``saved``: of their time
    the share that it saves."""

    callee: str
    marks: tuple[str, ...]
    saved: float


def marked(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, Any]]:
    """``mod`` with names of their own for what it binds, and by these marks the variables that it binds now."""
    known: dict[str, Any] = {}

    def mark(var: Any, value: Any) -> tuple[str, Any]:
        name = f"{_MARK}{len(known)}{_END}"
        known[name] = var
        return name, value

    return _changed(mod, mark), known


def fuse_ops(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` in TVM's groups. The result of a group is marked as that of its last call was, if it was."""
    plain = _without_calls(mod)
    grouped = relax.transform.FuseOps()(plain)
    fused = sizes_first(grouped if plain is mod else _with_calls(grouped))
    if not any(_is_marked(var) for function in _functions(mod) for var, _ in _bindings(function)):
        return fused
    reader = _GroupReader(mod, fused)
    return _changed(fused, lambda var, value: (reader.name_of(var), value))


def _without_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """Extents that choose between two numbers, as nodes that are no calls: TVM takes a call in a shape for one of an op
    of Relax, and ends in an error."""

    def selected(call: Any) -> Any:
        return tirx.Select(*call.args) if is_choice(call) else call

    return with_relax_functions(mod, lambda function: structural_map(function, (tvm.ir.Call, selected)))


def _with_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """The same extents as the kernels' buffers have them."""

    def called(select: Any) -> Any:
        return tirx.if_then_else(select.condition, select.true_value, select.false_value)

    return with_relax_functions(mod, lambda function: structural_map(function, (tirx.Select, called)))


def kernels_of(joined: tvm.IRModule, mod: tvm.IRModule) -> list[JoinedCalls]:
    """The kernels of a module ``joined`` from a marked one, in their order.

    A call that only puts together what others write where it belongs is part of the last kernel that does. One that
    gives the same bytes another shape is none: builds don't run it.
    """
    values = {str(var.name): (var, value) for function in _functions(mod) for var, value in _bindings(function)}
    reads = {mark: _marks_in(value) for mark, (_, value) in values.items()}
    kernels = [
        (str(var.name), var, str(value.args[0].name_hint), _saved(joined[value.args[0]]))
        for function in _functions(joined)
        for var, value in _bindings(function)
        if is_tir_call(value)
    ]
    made = {mark: var for mark, var, _, _ in kernels}
    whole_of = {
        source: mark
        for mark, sources in reads.items()
        for source in sources
        if mark not in made and source in made and _is_written_in(values[mark][0], made[source], values[source][0])
    }
    last = {whole: part for part, whole in sorted(whole_of.items(), key=lambda pair: list(made).index(pair[0]))}
    there = made.keys() | last.keys()
    return [
        JoinedCalls(callee, _slice([mark, *(w for w, part in last.items() if part == mark)], reads, there), saved)
        for mark, _, callee, saved in kernels
        if not reshape_pattern(joined[callee])
    ]


def _slice(marks: Sequence[str], reads: Mapping[str, tuple[str, ...]], there: Collection[str]) -> tuple[str, ...]:
    """What is computed for ``marks`` and is not there already, in order."""
    found = {mark: None for mark in marks if mark in reads}
    waiting = list(found)
    while waiting:
        for source in reads[waiting.pop()]:
            if source not in there and source not in found:
                found[source] = None
                waiting.append(source)
    return tuple(sorted(found, key=_number))


def _saved(function: Any) -> float:
    return float(function.attrs.get(SAVED, 0.0)) if function.attrs else 0.0


def _is_written_in(whole: Any, var: Any, part: Any) -> bool:
    """``var`` holds all of ``whole`` by now, where there was a ``part`` of it."""
    return not _is_same_type(var, part) and _is_same_type(var, whole)


def _is_same_type(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one.ty, other.ty))


def _number(mark: str) -> int:
    return int(mark.removeprefix(_MARK).removesuffix(_END))


def _is_marked(var: Any) -> bool:
    return str(var.name).startswith(_MARK)


def _marks_in(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(var.name) for var in relax.analysis.free_vars(value) if _is_marked(var)))


class _GroupReader:
    """Finds the calls of a module in TVM's groups, which name them anew: equal groups are one function. A call is known
    by what it calls and what it reads."""

    def __init__(self, mod: tvm.IRModule, fused: tvm.IRModule) -> None:
        self._fused = fused
        self._marks: dict[Any, list[str]] = {}
        for function in _functions(mod):
            for var, value in _bindings(function):
                self._marks.setdefault(_identity(value, {}), []).append(str(var.name))
        self._names: dict[Any, str] = {}
        for name, function in fused.functions_items():
            if isinstance(function, relax.Function) and name in mod.functions:
                self._names |= self._read(function, {})[0]

    def name_of(self, var: Any) -> str:
        """What a variable is called in the module that was grouped."""
        return self._names.get(var, str(var.name))

    def _read(self, function: Any, known: dict[Any, Any]) -> tuple[dict[Any, str], Any]:
        """The marks of what a function binds, and of the last call in it, where its parameters are ``known``."""
        marks: dict[Any, str] = {}
        last = None
        for var, value in _bindings(function):
            group = self._fused.functions.get(value.op) if isinstance(value, tvm.ir.Call) else None
            if group is not None:
                given = [_identity(arg, known) for arg in value.args]
                _, mark = self._read(group, dict(zip(group.params, given, strict=True)))
            else:
                same = self._marks.get(_identity(value, known), [])
                mark = same.pop(0) if same[1:] else next(iter(same), None)
            known[var] = mark or _identity(value, known)
            if mark is not None:
                marks[var] = mark
                last = mark if isinstance(value, tvm.ir.Call) else last
        return marks, last


def _identity(expr: Any, known: Mapping[Any, Any]) -> Any:
    """The same for expressions that read the same; ``known``: what stands for variables."""
    if isinstance(expr, relax.Var):
        return known.get(expr, str(expr.name))
    if isinstance(expr, relax.Tuple):
        return tuple(_identity(field, known) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _identity(expr.tuple_value, known), int(expr.index)
    if isinstance(expr, tvm.ir.Call):
        return expr.op, *(_identity(arg, known) for arg in expr.args)
    return expr if isinstance(expr, tvm.ir.GlobalVar | tvm.ir.GenericConst) else str(expr)


def _functions(mod: tvm.IRModule) -> Iterator[Any]:
    return (function for function in mod.functions.values() if isinstance(function, relax.Function))


def _bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            yield from ((b.var, b.value) for b in block.bindings if isinstance(b, relax.VarBinding))


def _changed(mod: tvm.IRModule, change: _Change) -> tvm.IRModule:
    """The input is not changed."""
    return with_relax_functions(mod, lambda func: _Changer(mod, change).visit_expr(func))


@relax.expr_functor.mutator
class _Changer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, change: _Change) -> None:
        super().__init__(mod)
        self._change = change

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        name, value = self._change(binding.var, value)
        var = type(binding.var)(name, binding.var.ty)
        self.set_var_remap(binding.var, var)
        self.builder_.emit_normalized(relax.VarBinding(var, value))
