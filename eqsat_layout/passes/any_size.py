"""One kernel for operands of any size, in the place of one for each size.

In: a module whose ``main`` calls Relax ops on tensors of known shapes. Out: the same with calls of PrimFuncs with
symbolic sizes where TVM has these. Constants of a network have many shapes and few ranks: there are fewer kernels to
compile, and each runs once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.tir.structural import substitute


@dataclass(frozen=True)
class _General:
    """A call of an op on symbolic operands, told by its ``key``: extents above 1 are variables, equal ones the same."""

    call: Any
    key: Hashable
    symbols: tuple[Any, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(call: Any) -> _General | None:
        """``None`` for a call of another kind."""
        if not isinstance(call, tvm.ir.Call) or not isinstance(call.op, tvm.ir.Op) or call.op.name == "relax.call_tir":
            return None
        shapes = [_extents(arg) for arg in (*call.args, call)]
        if None in shapes:
            return None
        tensors = [shape for arg, shape in zip(call.args, shapes, strict=False) if _is_tensor(arg)]
        extents = dict.fromkeys(extent for shape in tensors for extent in shape or () if extent > 1)
        symbols = {extent: tirx.Var(f"n{number}", "int64") for number, extent in enumerate(extents)}
        operands: list[Any] = []
        for arg, shape in zip(call.args, shapes, strict=False):
            sizes = [symbols.get(extent, extent) for extent in shape or ()]
            operands.append(_over(arg, sizes))
        words = [str(operand.ty if _is_tensor(operand) else operand) for operand in operands]
        key = (call.op.name, tvm_ffi.StructuralKey(call.attrs), call.ty.dtype, *words)
        general = relax.Call(call.op, operands, call.attrs, call.ty_args)
        return _General(general, key, tuple(symbols.values()), tuple(symbols))

    def gives(self, inferred: Any, sizes: Sequence[int], ty: Any) -> bool:
        """Whether its result, which is ``inferred`` to have this type, has the type ``ty`` at other ``sizes``."""
        if not isinstance(inferred, relax.TensorType) or inferred.dtype != ty.dtype or inferred.shape is None:
            return False
        values = {symbol: tirx.IntImm("int64", size) for symbol, size in zip(self.symbols, sizes, strict=True)}
        found = [tvm.sym.Analyzer().simplify(substitute(e, values)) for e in inferred.shape]
        return all(isinstance(e, tirx.IntImm) for e in found) and list(map(int, found)) == list(map(int, ty.shape))


def for_any_size(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with calls in its function ``main`` changed; it is not changed itself."""
    calls = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    general = [(call, found) for call in calls if (found := _General.of(call)) is not None]
    distinct: dict[Hashable, _General] = {}
    for _, found in general:
        distinct.setdefault(found.key, found)
    legalised = dict(zip(distinct, legalise_calls([one.call for one in distinct.values()]), strict=True))
    builder = relax.BlockBuilder(mod)
    changed: dict[Any, Any] = {}
    for call, found in general:
        known = legalised[found.key]
        if known.func is not None and distinct[found.key].gives(known.type, found.sizes, call.ty):
            kernel = builder.add_func(known.func.without_attr("global_symbol"), "any_size")
            changed[call] = relax.call_tir(kernel, [arg for arg in call.args if _is_tensor(arg)], call.ty)
    return _with_calls(builder.get(), mod["main"], changed)


def _with_calls(mod: tvm.IRModule, function: Any, changed: dict[Any, Any]) -> tvm.IRModule:
    """``mod`` where ``main`` is the ``function`` with these calls in the place of others."""
    blocks = [_with_bindings(block, changed) for block in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    mod.update_func(
        mod.get_global_var("main"), relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
    )
    normalised: tvm.IRModule = relax.transform.Normalize()(mod)
    return normalised


def _with_bindings(block: Any, changed: dict[Any, Any]) -> Any:
    def bound(binding: Any) -> Any:
        value = changed.get(binding.value) if isinstance(binding, relax.VarBinding) else None
        return binding if value is None else relax.VarBinding(binding.var, value)

    return type(block)([bound(binding) for binding in block.bindings])


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg.ty, relax.TensorType)


def _extents(arg: Any) -> Sequence[int] | None:
    """The extents of a tensor, the numbers of a shape, none of a number; ``None`` for what is not known, or else."""
    if isinstance(arg, tirx.IntImm | tirx.FloatImm):
        return ()
    shape = arg.ty.shape if _is_tensor(arg) else arg
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(e, tirx.IntImm) for e in shape.values):
        return None
    return [int(extent) for extent in shape.values]


def _over(arg: Any, sizes: Sequence[Any]) -> Any:
    """What stands for ``arg`` in a call on operands of such sizes."""
    if isinstance(arg, relax.ShapeExpr):
        return relax.ShapeExpr(sizes)
    return relax.Var("p", relax.TensorType(sizes, arg.ty.dtype)) if _is_tensor(arg) else arg
