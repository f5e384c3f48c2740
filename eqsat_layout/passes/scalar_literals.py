"""Integers that calls pass to kernels, as part of these.

In: a Relax module whose ``call_tir`` calls pass single constant integers, as the index of ``take``. Out: the same, in
which PrimFuncs have the integer in the place of the operand: an index that is known can be fused, tiled and put into
vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.passes.merge_calls import tir_call
from eqsat_layout.tir.structural import nodes_of, structural_map


def with_numbers(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no call passes an integer. The input is not changed."""
    builder = relax.BlockBuilder(mod)
    writer = _Writer(mod, builder)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            builder.update_func(name, writer.visit_expr(function))
    return relax.transform.DeadCodeElimination()(builder.get()) if any(writer.known.values()) else mod


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    """Gives calls PrimFuncs that know the integers: ``known`` by callee, place and value."""

    def __init__(self, mod: tvm.IRModule, builder: Any) -> None:
        super().__init__(mod)
        self._mod, self._builder = mod, builder
        self.known: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if (found := tir_call(call)) is None:
            return call
        callee, args = found
        values = {place: value for place, arg in enumerate(args) if (value := _integer(arg)) is not None}
        func = self._mod.functions.get(callee)
        if not values or not isinstance(func, tirx.PrimFunc):
            return call
        key = callee, tuple(values.items())
        if key not in self.known:
            known = _knowing(func, values)
            self.known[key] = known and self._builder.add_func(known, callee.name_hint)
        if self.known[key] is None:
            return call
        rest = [arg for place, arg in enumerate(args) if place not in values]
        return relax.call_tir(self.known[key], relax.Tuple(rest), call.ty_args[0])


def _integer(arg: Any) -> int | None:
    if not isinstance(arg, tvm.ir.GenericConst) or not isinstance(arg.ty, relax.TensorType):
        return None
    data = arg.value
    is_one = not data.shape and str(data.dtype).startswith("int")
    return int(data.numpy()) if is_one else None


def _knowing(func: Any, values: Mapping[int, int]) -> Any:
    """``func`` with these values in the place of parameters; ``None`` where it does more than read them."""
    known = {func.params[place]: value for place, value in values.items()}

    def on_load(load: Any) -> Any:
        value = known.get(load.source)
        return load if value is None else tirx.IntImm(str(load.ty.dtype), value)

    def on_block(block: Any) -> Any:
        reads = [region for region in block.reads if region.source not in known]
        return s_tir.SBlock(
            block.iter_vars,
            reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    if any(_is_address_of(call, known) for call in nodes_of(func.body, tvm.ir.Call)):
        return None
    body = structural_map(func.body, (tvm.ir.TensorLoad, on_load), (s_tir.SBlock, on_block))
    if any(var in known for var in nodes_of(body, tvm.ir.Var)):
        return None
    params = [param for place, param in enumerate(func.params) if place not in values]
    rewritten = tirx.PrimFunc(params, body, ret_type=func.ret_type, attrs=func.attrs)
    return rewritten.without_attr("global_symbol") if func.attrs and "global_symbol" in func.attrs else rewritten


def _is_address_of(call: Any, buffers: Mapping[Any, int]) -> bool:
    """The call takes the address of an element of such a buffer."""
    is_address = str(getattr(call.op, "name", "")).endswith("address_of")
    return is_address and any(isinstance(arg, tvm.ir.TensorLoad) and arg.source in buffers for arg in call.args)
