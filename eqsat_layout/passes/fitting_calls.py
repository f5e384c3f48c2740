"""Kernels without argument checks, where every call in the module is known to pass what fits.

In: a Relax module. Out: the same, in which a PrimFunc is marked if each of its calls passes constants or results of
other calls of the declared shape and dtype; and a TVM pass that leaves out the checks of marked PrimFuncs, which are
most of the code of a small kernel. What a caller from outside passes is checked as before, and may begin at any address
that is aligned for an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.passes.all_calls import CALL_TIR_INPLACE, all_calls, arguments, is_tir_call
from eqsat_layout.tir.reshape_pattern import reshape_pattern
from eqsat_layout.tir.structural import items_of, mapped_body, nodes_of

_MARK: Final = "eqsat_layout.calls_fit"


def with_fitting_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with the mark where it is due. The input is not changed."""
    made = _made_here(mod)
    functions = dict(mod.functions.items())
    for callee, calls in all_calls(mod):
        function = functions[callee]
        # an assertion of the program itself stays, and is not told apart from a check later
        is_plain = not nodes_of(function.body, tirx.AssertStmt)
        if is_plain and all(_fits(function.params, call, made) for call in calls):
            functions[callee] = function.with_attr(_MARK, 1)
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def skip_checks() -> Any:
    """A pass: packed functions with the mark lose their checks."""

    def skipped(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        marked = {v: f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc) and _is_marked(f)}
        plain = tirx.transform.SkipAssert()(tvm.IRModule(marked))
        return tvm.IRModule({**dict(mod.functions_items()), **dict(plain.functions_items())}, attrs=mod.attrs)

    return tvm.transform.module_pass(skipped, opt_level=0, name="eqsat_layout.SkipChecks")


def any_address() -> Any:
    """A pass: packed functions without the mark take no tensor to begin at more than a multiple of its elements' size.

    TVM takes them to begin where vectors do, and so an array of NumPy's, which mostly does not, had to be copied.
    """

    def with_any(function: Any, _: Any, __: Any) -> Any:
        if _is_marked(function):
            return function
        return mapped_body(function, (tirx.AttrStmt, _of_elements))

    return tirx.transform.prim_func_pass(with_any, opt_level=0, name="eqsat_layout.AnyAddress")


def _of_elements(statement: Any) -> Any:
    if statement.attr_key != "storage_alignment":
        return statement
    size = max(1, int(tvm.DataType(str(statement.node.ty.dtype)).bits) // 8)
    return tirx.AttrStmt(statement.node, statement.attr_key, tirx.IntImm("int32", size), statement.body)


def _is_marked(function: Any) -> bool:
    return function.attrs is not None and _MARK in function.attrs


def _made_here(mod: tvm.IRModule) -> set[Any]:
    """The variables of what ``call_tir`` makes, parts of tuples included.

    Not those of reshapes of what comes from outside: TVM makes views of these.
    """
    found: set[Any] = set()
    reshapes = {var for var, function in mod.functions_items() if _is_reshape(function)}
    for function in mod.functions.values():
        if not isinstance(function, relax.Function):
            continue
        for binding in nodes_of(function, relax.VarBinding):
            value = binding.value
            if isinstance(value, relax.TupleGetItem):
                value = value.tuple_value
            is_new = is_tir_call(value) and (value.args[0] not in reshapes or all(a in found for a in arguments(value)))
            if is_new or value in found:
                found.add(binding.var)
    return found


def _is_reshape(function: Any) -> bool:
    is_of_blocks = isinstance(function, tirx.PrimFunc) and isinstance(function.body, s_tir.SBlockRealize)
    return is_of_blocks and bool(reshape_pattern(function))


def _fits(params: Sequence[Any], call: Any, made: set[Any]) -> bool:
    args = arguments(call)
    results = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
    results = [] if call.op == CALL_TIR_INPLACE else results  # which are among the arguments
    types = [*(arg.ty for arg in args), *results]
    is_known = all(isinstance(arg, tvm.ir.GenericConst) or arg in made for arg in args)
    return is_known and len(types) == len(params) and all(map(_is_of, params, types))


def _is_of(param: Any, ty: Any) -> bool:
    """A parameter is a dense buffer of the known shape and the dtype of a tensor's type."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    if not isinstance(param.ty, tirx.BufferType):
        return False
    extents, shape = items_of(param.shape), items_of(ty.shape.values)
    is_static = all(isinstance(extent, tirx.IntImm) for extent in (*extents, *shape, param.elem_offset))
    return (
        is_static
        and str(param.dtype) == str(ty.dtype)
        and list(map(int, extents)) == list(map(int, shape))
        and not len(param.strides)
        and not int(param.elem_offset)
    )
