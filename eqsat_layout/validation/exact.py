"""Which results of a function are exact, whatever the order of its additions: two programs then agree bit for bit.

In: a module, the name of a function, inputs for it. Out: a flag for each array that it gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.validation.inputs import symbol_values
from eqsat_layout.validation.whole_numbers import Range, Rounding, after

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def exact_results(mod: Any, name: str, inputs: Sequence[Any]) -> list[bool]:
    """See above. Those of a function whose sizes depend on more than its inputs' are not."""
    sized = relax.transform.BindSymbolicVars(symbol_values(mod[name], inputs), name)(mod)
    reader = _Reader(legalize(sized))
    return [found is not None for found in _leaves(reader.result(name, list(map(_ranges, inputs))))]


class _Reader:
    """What is known of values: a range for a tensor, a list for a tuple, ``None`` for what may round."""

    def __init__(self, mod: Any) -> None:
        self._mod = mod
        self._known: dict[Any, list[Any]] = {}

    def result(self, name: str, given: Sequence[Any]) -> Any:
        function = self._mod[name]
        scope = dict(zip(function.params, given, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                scope[binding.var] = self._value(binding.value, scope)
        return self._value(function.body.body, scope)

    def _value(self, expr: Any, scope: dict[Any, Any]) -> Any:
        if isinstance(expr, tvm.ir.Var):
            return scope.get(expr)
        if isinstance(expr, relax.Tuple):
            return [self._value(field, scope) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            whole = self._value(expr.tuple_value, scope)
            return whole[expr.index] if isinstance(whole, list) else None
        if isinstance(expr, tvm.ir.GenericConst):
            return _ranges(expr.value)
        if isinstance(expr, tvm.ir.Call):
            return self._call(expr, scope)
        return None

    def _call(self, call: Any, scope: dict[Any, Any]) -> Any:
        callee = self._mod.functions.get(call.args[0] if call.op == _CALL_TIR else call.op)
        if isinstance(callee, relax.Function):
            return self.result(call.op.name_hint, [self._value(arg, scope) for arg in call.args])
        if not isinstance(callee, tirx.PrimFunc) or len(call.args) != 2:
            return None
        given = [self._value(arg, scope) for arg in call.args[1].fields]
        count = len(callee.params) - len(given)
        key = (call.args[0], *given)
        if key not in self._known:
            self._known[key] = after(callee, [*given, *[None] * count])[-count:]
        made = self._known[key]
        return made if isinstance(call.ty, relax.TupleType) else made[0]


def _ranges(value: Any) -> Any:
    if hasattr(value, "numpy"):
        value = value.numpy()
    elif hasattr(value, "__iter__"):
        return [_ranges(field) for field in value]
    try:
        return Range.of(value)
    except Rounding:
        return None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for field in value:
            yield from _leaves(field)
    else:
        yield value
