"""``Let`` values in the passes by which TVM computes narrow floats in a wider type.

In: ``BF16ComputeLegalize`` or ``FP8ComputeLegalize``, which do not visit the values of ``Let``: what they leave there
reads the bits of a bfloat16 as an integer. Out: the pass, with these values made visible to it. What is stored is
bound by a ``Let`` too, as the arithmetic that rounds it reads it several times.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.passes.rounding import cast_to_narrow
from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.narrow_floats import NARROW
from eqsat_layout.tir.structural import mapped_body, nodes_of, primfunc_pass, structural_map, substitute

_WIDE: Final = "float32"
_LET: Final = pure_op("let", "a variable, its value, and what is worked out of it")
_BIND: Final = pure_op("bind", "a variable and its value")


def with_let_values(legalize: Any) -> Any:
    """``legalize`` for names too: narrow ones hold float32, and what gives values to names is calls meanwhile."""
    parts = [primfunc_pass("HideNames", _hidden), legalize, primfunc_pass("RevealNames", _revealed)]
    return tvm.transform.Sequential(parts)


def _hidden(func: Any) -> Any:
    func = mapped_body(func, (tirx.BufferStore, _stored))
    named, wide = nodes_of(func.body, tirx.Let, tirx.Bind), dict[Any, Any]()
    if not named:
        return func
    for node in named:
        if dtype := _wide(str(getattr(node.var.ty, "dtype", ""))):
            wide[node.var] = tirx.Var(str(node.var.name), dtype)

    def let(node: Any) -> Any:
        return tvm.ir.Call(_LET, [*bound(node), node.body], ret_ty=node.body.ty)

    def bind(node: Any) -> Any:
        var, value = bound(node)
        return tirx.Evaluate(tvm.ir.Call(_BIND, [var, value], ret_ty=var.ty))

    def bound(node: Any) -> tuple[Any, Any]:
        var = wide.get(node.var)
        return (node.var, node.value) if var is None else (var, tirx.Cast(str(var.ty.dtype), node.value))

    body = structural_map(func.body, (tirx.Let, let), (tirx.Bind, bind))
    return func.with_body(substitute(body, {old: tirx.Cast(str(old.ty.dtype), new) for old, new in wide.items()}))


def _stored(store: Any) -> Any:
    """The store with its value bound by a ``Let``, cast from float32 as TVM does it."""
    cast, dtype = store.value, str(store.value.ty.dtype)
    is_long = isinstance(cast, tirx.Cast) and not isinstance(cast.value, tvm.ir.TensorLoad | tvm.ir.Var)
    if not is_long or str(cast.value.ty.dtype) != _wide(dtype):
        return store
    return tirx.BufferStore(store.buffer, cast_to_narrow(dtype, cast.value), list(store.indices))


def _revealed(func: Any) -> Any:
    def let(call: Any) -> Any:
        return tirx.Let(*call.args) if is_call(call, str(_LET.name)) else call

    def bind(node: Any) -> Any:
        return tirx.Bind(*node.value.args) if is_call(node.value, str(_BIND.name)) else node

    return mapped_body(func, (tvm.ir.Call, let), (tirx.Evaluate, bind))


def _wide(dtype: str) -> str:
    """The type that stands for a narrow one, of as many lanes; "" for another."""
    kind = next((kind for kind in NARROW if dtype == kind or dtype.startswith(f"{kind}x")), "")
    return dtype.replace(kind, _WIDE, 1) if kind else ""
