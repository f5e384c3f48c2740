"""Relax calls as TIR.

In: calls. Out: :class:`Legalised` for each. What is one kernel at once is made without a module around it; the others
are legalised in one go, as one module of one-op functions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from tvm import ir, relax, tirx

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.legalize import REFUSALS, func_as_read, func_of, kernel_of, legalize
from eqsat_layout.graph.te_kernels import TeKernel
from eqsat_layout.graph.templates import Template, leaf_exprs
from eqsat_layout.graph.vdevices import without_device
from eqsat_layout.system.second_thread import Start, second_thread
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.signature import analyse

_FEW: Final = 4
"""Calls that are legalised before a second thread has begun."""


@dataclass(frozen=True)
class Legalised:
    """``lowered`` gives the one PrimFunc that a call is, ``type`` is its inferred Relax type; None where there is none.

    ``computation``: what the PrimFunc computes, where that is known before it is made.
    """

    lowered: Callable[[], Any] | None = None
    type: Any = None
    computation: Computation | None = None

    @property
    def func(self) -> Any:
        """The PrimFunc, made when it is asked for first."""
        return None if self.lowered is None else self.lowered()

    def understood(self) -> Computation | None:
        """What the PrimFunc computes, which is made for that; None where it is not understood."""
        func = self.func
        return self.computation if self.computation is not None or func is None else analyse(func)


def given(func: Any) -> Callable[[], Any] | None:
    """What gives a PrimFunc that is made already."""
    return None if func is None else lambda: func


def primfunc_of(kernel: TeKernel, start: Start[Any]) -> Callable[[], Any]:
    """What gives the PrimFunc of ``kernel``: begun by ``start`` where that has to be read."""
    return start(partial(func_of, kernel)) if kernel.computation is None else cache(partial(func_as_read, kernel))


def legalise_calls(calls: Sequence[Any]) -> list[Legalised]:
    """What each Relax call is as TIR."""
    return list(legalised_in_turn(calls))


def legalised_in_turn(calls: Sequence[Any]) -> Generator[Legalised, None, None]:
    """What each Relax call is as TIR, as soon as it is known.

    Of more than a few, types are inferred beside, and those PrimFuncs made that have to be read, while the next kernels
    are described and read. Who does not take all closes it: the second thread ends then.
    """
    with nullcontext(cache) if len(calls) <= _FEW else second_thread() as start:
        typing = [_typing(call, start) for call in calls]
        begun = [_Begun.of(params, typed(), start) for params, typed in typing]
        by_module: dict[_Begun, Any] = {}
        for one in begun:
            if one.typed is None:
                yield Legalised()
                continue
            kernel = None if one in by_module else one.as_kernel()
            if kernel is not None:
                yield kernel
                continue
            if one not in by_module:
                others = [other for other in begun if other.kernel is None and other not in by_module]
                by_module |= _legalised([other for other in dict.fromkeys([one, *others]) if other.typed is not None])
            yield Legalised(given(by_module[one]), one.typed.ty)


def _typing(call: Any, start: Start[Any]) -> tuple[Sequence[Any], Callable[[], Any]]:
    """Begins to infer the type of ``call`` over variables of its own."""
    params = [relax.Var(f"p{i}", without_device(leaf.ty)) for i, leaf in enumerate(leaf_exprs(call))]
    return params, start(partial(_typed, Template(call).over(params)))


@dataclass(frozen=True, eq=False)
class _Begun:
    """A call over variables of its own.

    ``typed`` has the type that TVM infers, and is None where it is ill-typed: kernels of such may end the process.
    ``kernel`` is None where it is not one kernel; ``lowered`` gives its PrimFunc.
    """

    params: Sequence[Any]
    typed: Any
    kernel: TeKernel | None = None
    lowered: Callable[[], Any] | None = None

    @classmethod
    def of(cls, params: Sequence[Any], typed: Any, start: Start[Any]) -> _Begun:
        """Begins to make the kernel of ``typed`` if it has to be read."""
        is_one = isinstance(typed, ir.Call) and isinstance(typed.op, ir.Op) and isinstance(typed.ty, relax.TensorType)
        kernel = kernel_of(typed) if is_one else None
        if kernel is None:
            return cls(params, typed)
        return cls(params, typed, kernel, primfunc_of(kernel, start))

    def as_kernel(self) -> Legalised | None:
        """The call of an op that is one kernel of one result; None where it is anything else."""
        if self.kernel is None or self.lowered is None or not self.is_done_by(self.kernel.operands, self.kernel.ty):
            return None
        if self.kernel.computation is not None:
            return Legalised(self.lowered, self.typed.ty, self.kernel.computation)
        try:
            func = self.lowered()
        except REFUSALS:
            return None
        return Legalised(given(func), self.typed.ty)

    def is_done_by(self, operands: Sequence[Any], ty: Any, params: Sequence[Any] | None = None) -> bool:
        """What is over ``operands`` and gives a value of type ``ty`` is over the parameters (those of this call if no
        others are given), in order, and gives what this call does. TVM's variance of int8 is int8 by its type, and
        int64 as it is legalised."""
        own = self.params if params is None else params
        same = len(operands) == len(own) and all(a.same_as(p) for a, p in zip(operands, own, strict=True))
        return same and _kinds(ty) == _kinds(self.typed.ty)


def _typed(call: Any) -> Any:
    """None where it is ill-typed."""
    try:
        return relax.BlockBuilder().normalize(call)
    except ILL_TYPED:
        return None


def _legalised(calls: Sequence[_Begun]) -> dict[_Begun, Any]:
    """The PrimFuncs of calls, legalised together; None for what is none."""
    builder = relax.BlockBuilder()
    for i, one in enumerate(calls):
        _add_function(builder, f"f{i}", one)
    mod: Any = legalize(builder.finalize())
    return {one: _single_primfunc(mod[f"f{i}"], mod, one) for i, one in enumerate(calls)}


def _add_function(builder: Any, name: str, one: _Begun) -> None:
    """Adds a function that returns the call."""
    typed = one.typed
    block = relax.BindingBlock([relax.VarBinding(relax.Var("y", typed.ty), typed)])
    body = builder.normalize(relax.SeqExpr([block], block.bindings[0].var))
    function = relax.Function(one.params, body, typed.ty)
    builder.add_func(function.with_attr("global_symbol", name), name)


def _single_primfunc(function: Any, mod: Any, one: _Begun) -> Any:
    """The PrimFunc, if the function is exactly one call of one, and that does what the call does."""
    bindings = [b for block in function.body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if isinstance(b.value, ir.Call)]
    if len(calls) != 1 or any(not isinstance(b.value, ir.Call | ir.Var) for b in bindings):
        return None
    (call,) = calls
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_tir" or len(call.args) != 2:
        return None
    func = mod[call.args[0]]
    is_done = one.is_done_by(list(call.args[1].fields), call.ty, function.params)
    return func if is_done and isinstance(func, tirx.PrimFunc) else None


def _kinds(ty: Any) -> Any:
    """The dtype and the rank of a tensor, those of all fields of a tuple."""
    if isinstance(ty, relax.TupleType):
        return [_kinds(field) for field in ty.fields]
    return (str(ty.dtype), int(ty.ndim)) if isinstance(ty, relax.TensorType) else None
