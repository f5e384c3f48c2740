"""Windows: consecutive calls that may become one kernel, as only the result of the last is used outside.

In: a Relax function of ``call_tir`` calls. Out: its calls in order and their readers; whether a window is closed; one
PrimFunc for a window; the function with other calls in place of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.passes.matrix_literals import knowing, known_operands
from eqsat_layout.passes.merge_calls import merged_primfunc, tir_call


@dataclass(frozen=True)
class KernelCall:
    """``var = call_tir(callee, args)``."""

    var: Any
    callee: Any
    args: tuple[Any, ...]
    ty: Any


def calls_of(function: Any) -> tuple[list[KernelCall], dict[Any, list[Any]]]:
    """The calls of a function in order, and by variable who reads it: a call, or something else (``None``)."""
    calls: list[KernelCall] = []
    readers: dict[Any, list[Any]] = {}
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else ()
    for block in blocks:
        for binding in block.bindings:
            call = _call_of(binding) if isinstance(block, relax.DataflowBlock) else None
            if call is not None:
                calls.append(call)
            read = call.args if call is not None else relax.analysis.free_vars(binding.value)
            for var in read:
                readers.setdefault(var, []).append(call and call.var)
    return calls, readers


def is_closed(window: Sequence[KernelCall], readers: Mapping[Any, list[Any]]) -> bool:
    """Only the last call of a window gives something to others."""
    own = {call.var for call in window}
    return all(
        isinstance(call.var, relax.DataflowVar) and readers.get(call.var) and own.issuperset(readers[call.var])
        for call in window[:-1]
    )


def inner_calls(window: Sequence[KernelCall]) -> list[list[int | None]]:
    """For every argument of every call the number of the call that makes it; ``None``: it comes from outside."""
    made = {call.var: number for number, call in enumerate(window)}
    return [[made.get(arg) for arg in call.args] for call in window]


def window_key(window: Sequence[KernelCall]) -> Any:
    """The same for windows of the same calls of each other, and that share the same operands."""
    numbers = {value: n for n, value in enumerate([*(call.var for call in window), *window_arguments(window)])}
    return tuple(call.callee for call in window), tuple(tuple(numbers[arg] for arg in call.args) for call in window)


def _operands(window: Sequence[KernelCall]) -> list[tuple[KernelCall, int, Any]]:
    """What the calls of a window get from outside, each once: the first call, the number of its argument, and this."""
    found: dict[Any, tuple[KernelCall, int, Any]] = {}
    for call, places in zip(window, inner_calls(window), strict=True):
        for number, (arg, place) in enumerate(zip(call.args, places, strict=True)):
            if place is None:
                found.setdefault(arg, (call, number, arg))
    return list(found.values())


def window_arguments(window: Sequence[KernelCall]) -> list[Any]:
    """What the calls get from outside, in the order of the parameters of :func:`one_function`."""
    return [arg for _, _, arg in _operands(window)]


def one_function(mod: tvm.IRModule, window: Sequence[KernelCall]) -> Any:
    """One PrimFunc of all calls; ``None`` where there is none."""

    def body(builder: Any, given: Sequence[Any]) -> Any:
        values = dict(zip(window_arguments(window), given, strict=True))
        for call in window:
            value = relax.call_tir(call.callee, relax.Tuple([values[arg] for arg in call.args]), call.ty)
            values[call.var] = value if call is window[-1] else builder.emit(value)
        return values[window[-1].var]

    called = tvm.IRModule({call.callee: mod[call.callee] for call in window})
    function = merged_primfunc(window_arguments(window), body, called)
    return function and knowing(function, _known_arguments(mod, window))


def _known_arguments(mod: tvm.IRModule, window: Sequence[KernelCall]) -> list[Any]:
    """The arguments that every call of the same functions gets; ``None`` for others."""
    return [arg if n in known_operands(mod[call.callee]) else None for call, n, arg in _operands(window)]


@relax.expr_functor.mutator
class _CallReplacer(relax.PyExprMutator):  # type: ignore[misc]
    """Puts calls in the place of others, whose variables have the types of these then."""

    def __init__(self, mod: tvm.IRModule, calls: Mapping[Any, Any]) -> None:
        super().__init__(mod)
        self.calls = calls

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self.calls:
            super().visit_var_binding_(binding)
            return
        call = self.calls[binding.var]
        if call is None:
            return
        value = self.builder_.normalize(self.visit_expr(call))
        var = type(binding.var)(str(binding.var.name), value.ty)
        self.set_var_remap(binding.var, var)
        self.builder_.emit_normalized(relax.VarBinding(var, value))


def with_calls(mod: tvm.IRModule, builder: Any, joined: Callable[[Any], Mapping[Any, Any]]) -> tvm.IRModule:
    """``mod`` with calls in the place of others, ``mod`` itself where there are none.

    ``joined``: of a Relax function by variable the call that gives it from now on, ``None`` for what is not needed any
    more. PrimFuncs that are called are in ``builder``, which was made of ``mod``.
    """
    is_changed = False
    for name, function in mod.functions.items():
        calls = joined(function) if isinstance(function, relax.Function) else {}
        if calls:
            builder.update_func(name, _CallReplacer(mod, calls).visit_expr(function))
            is_changed = True
    return relax.transform.DeadCodeElimination()(builder.get()) if is_changed else mod


def _call_of(binding: Any) -> KernelCall | None:
    call = tir_call(binding.value) if isinstance(binding, relax.VarBinding) else None
    if call is None or not isinstance(binding.var.ty, relax.TensorType):
        return None
    return KernelCall(binding.var, *call, binding.var.ty)
