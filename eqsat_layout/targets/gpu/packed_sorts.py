"""Calls of TVM's sorts on the host, which some kernels make between their stages, as stages of the kernel.

In: a PrimFunc of blocks. Out: the same with blocks that sort in the place of such calls: those of medians, and of what
picks boxes out of many. Other calls of packed functions stay, and no device can do them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import s_tir, te, tirx

from eqsat_layout.targets.gpu.sorting_order import SortingOrder
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import statements_of
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import changed_block, nodes_of, substitute

_CALL: Final = "tirx.tvm_call_packed"
_ARRAY: Final = "tirx.tvm_stack_make_array"


def with_sorts_inside(func: Any) -> Any:
    """``func`` itself where it sorts nothing."""
    if not isinstance(func.body, s_tir.SBlockRealize) or not any(is_call(one, _CALL) for one in _calls(func.body)):
        return func
    root = func.body.block
    statements: list[Any] = []
    allocated = list(root.alloc_buffers)
    for statement in statements_of(func):
        made = _sorting(statement)
        if made is None:
            statements.append(statement)
        else:
            statements += statements_of(made)
            allocated += made.body.block.alloc_buffers
    body = tirx.SeqStmt(statements) if statements[1:] else statements[0]
    block = changed_block(root, body=body, alloc_buffers=allocated)
    return func.with_body(s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block))


def _calls(node: Any) -> list[Any]:
    return nodes_of(node, tvm.ir.Call)


def _sorting(statement: Any) -> Any:
    """A PrimFunc whose blocks do what the statement calls for, over its tensors; ``None`` for other statements."""
    body = statement.block.body if isinstance(statement, s_tir.SBlockRealize) else statement
    call: Any = body.value if isinstance(body, tirx.Evaluate) else None
    name = str(getattr(call.args[0], "value", "")) if is_call(call, _CALL) else ""
    if name not in _SORTS:
        return None
    arrays = [arg.args[0].args[0] for arg in call.args[1:] if is_call(arg, _ARRAY)]
    axis, is_ascending = (as_int(one) for one in list(call.args)[-2:])
    *given, result = arrays
    tensors = [te.placeholder(list(one.ty.shape), str(one.ty.dtype), one.name) for one in given]
    rank = len(tensors[0].shape)
    if axis is None or is_ascending is None or (len(tensors) > 1 and (axis % rank, len(tensors[1].shape)) != (1, 1)):
        return None
    order = SortingOrder(tensors[0], axis, not is_ascending, tensors[1] if tensors[1:] else None)
    made = te.create_prim_func([*tensors, _SORTS[name](order, result)])
    own: Mapping[Any, Any] = dict(zip(made.params, [*given, result], strict=True))
    return made.with_body(substitute(made.body, own))


def _places(order: SortingOrder, result: Any) -> Any:
    return order.places(list(result.ty.shape), str(result.ty.dtype))


def _values(order: SortingOrder, result: Any) -> Any:
    return order.values(list(result.ty.shape))


_SORTS: Final[Mapping[str, Callable[[SortingOrder, Any], Any]]] = {
    "tvm.contrib.sort.argsort": _places,
    "tvm.contrib.sort.argsort_nms": _places,
    "tvm.contrib.sort.sort": _values,
}
"""By the name of the function on the host: its result, whose type is that of a tensor."""
