"""Divisions that stay such, as what they give is rounded or compared in another kernel.

In: a Relax module of ``call_tir`` calls. Out: the same, with these hidden from what makes products of divisions. Where
values go is followed from the end: through kernels, tuples, branches and functions; what else is called may round them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.passes.all_calls import CALL_TIR_INPLACE, is_tir_call
from eqsat_layout.targets.schedules.exact_values import hidden_node
from eqsat_layout.targets.schedules.quantised_values import quantising
from eqsat_layout.targets.schedules.rounded_quotients import float_divisions, rounded_operands, rounded_quotients
from eqsat_layout.tir.structural import is_one_of, mapped_body, nodes_of, with_primfuncs


def keep_quotients(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with these divisions hidden; ``mod`` itself where there are none."""
    kernels = {var: func for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    dividing = {str(var.name_hint) for var, func in kernels.items() if _divides(func)}
    if not dividing:
        return mod
    asked = _Values(mod, kernels).asked()
    return with_primfuncs(mod, lambda name, func: _kept(func, asked.get(name, set())) if name in dividing else func)


def _divides(func: Any) -> bool:
    return bool(float_divisions(func.body))


def _kept(func: Any, results: set[int]) -> Any:
    found = rounded_quotients(func, quantising(func), [func.params[number] for number in results]) if results else []
    return mapped_body(func, (tirx.Div, lambda one: hidden_node(one) if is_one_of(one, found) else one))


class _Values:
    """What is rounded if a variable is: other variables, by the results and parameters of kernels."""

    def __init__(self, mod: tvm.IRModule, kernels: dict[Any, Any]) -> None:
        self._mod = mod
        self._kernels = kernels
        self._sources: dict[Any, set[Any]] = {}
        self._rounded: list[Any] = []
        self._calls: list[tuple[Any, Any]] = []
        self._operands: dict[tuple[Any, int | None], frozenset[int]] = {}
        for _, func in mod.functions_items():
            if isinstance(func, relax.Function):
                self._read(func)

    def asked(self) -> dict[str, set[int]]:
        """By the name of each kernel the numbers of its parameters that are results and rounded after."""
        known, waiting = set(self._rounded), list(self._rounded)
        while waiting:
            new = self._sources.get(waiting.pop(), set()) - known
            known |= new
            waiting += new
        found: dict[str, set[int]] = {}
        for var, call in self._calls:
            if var in known:
                found.setdefault(str(call.args[0].name_hint), set()).update(self._results(call))
        return found

    def _read(self, func: Any) -> None:
        for binding in nodes_of(func, relax.VarBinding, relax.MatchCast):
            self._bind(binding.var, binding.value)

    def _bind(self, var: Any, value: Any) -> None:
        if not isinstance(value, tvm.ir.Call):
            self._join(var, _ends(value))
        elif is_tir_call(value) and value.args[0] in self._kernels and isinstance(value.args[1], relax.Tuple):
            self._calls.append((var, value))
            args = list(value.args[1].fields)
            self._rounded += [one for number in self._reached(value, None) for one in _ends(args[number])]
            for result in self._results(value):
                self._join(var, [one for number in self._reached(value, result) for one in _ends(args[number])])
        elif isinstance(value.op, tvm.ir.GlobalVar) and isinstance(self._mod[value.op], relax.Function):
            callee = self._mod[value.op]
            self._join(var, _ends(callee.body))
            for param, arg in zip(callee.params, value.args, strict=True):
                self._join(param, _ends(arg))
        else:
            self._rounded += [one for arg in value.args for one in _ends(arg)]

    def _join(self, var: Any, sources: Any) -> None:
        self._sources.setdefault(var, set()).update(sources)

    def _results(self, call: Any) -> range:
        """The parameters that are results; of a call in place they all may be."""
        count = len(self._kernels[call.args[0]].params)
        given = len(call.args[1].fields)
        if call.op == CALL_TIR_INPLACE:
            return range(count)
        made = len(call.ty.fields) if isinstance(call.ty, relax.TupleType) else 1
        return range(given, given + made)

    def _reached(self, call: Any, result: int | None) -> frozenset[int]:
        """Which operands are rounded if one result is, or anyway."""
        key = call.args[0], result
        if key not in self._operands:
            func = self._kernels[call.args[0]]
            own = [] if result is None else [func.params[result]]
            names = rounded_operands(func, quantising(func), own)
            self._operands[key] = frozenset(n for n, param in enumerate(func.params) if param in names)
        return frozenset(n for n in self._operands[key] if n < len(call.args[1].fields))


def _ends(value: Any) -> Iterator[Any]:
    """The variables that ``value`` may be of, or parts of them."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.TupleGetItem):
        yield from _ends(value.tuple_value)
    elif isinstance(value, relax.Tuple):
        for one in value.fields:
            yield from _ends(one)
    elif isinstance(value, relax.SeqExpr):
        yield from _ends(value.body)
    elif isinstance(value, relax.If):
        yield from _ends(value.true_branch)
        yield from _ends(value.false_branch)
