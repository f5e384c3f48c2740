"""Sorts and scans without a library: each element counts those that come before it, and goes where the count says.

In: a module whose sorts and scans are calls of Relax. Out: the same calls as reductions and gathers, which are launched
as other kernels are. A sort of n elements compares n * n pairs, all at once. Equal elements keep their order, as they
do in TVM's own sorts. Scans are sums of pieces (:mod:`.scans`) where their order is free; else loops along a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.targets.gpu.packed_sorts import with_sorts_inside
from eqsat_layout.targets.gpu.scans import SCANS, may_be_in_pieces
from eqsat_layout.targets.gpu.sorting_order import SortingOrder
from eqsat_layout.tir.structural import with_primfuncs


def without_libraries(mod: tvm.IRModule, *, in_order: bool) -> tvm.IRModule:
    """No call of a sort or a scan is left. ``in_order``: floats are added up as stated."""
    with tvm.target.Target("llvm"):
        mod = relax.backend.DispatchSampling()(mod)  # a scan, and where each sample falls in it
    sorted_here = _Sorts(mod, in_order)
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function):
            sorted_here.builder_.update_func(var, sorted_here.visit_expr(func))
    with tvm.target.Target("llvm"):
        mod = relax.backend.DispatchSortScan()(sorted_here.builder_.finalize())
    return with_primfuncs(mod, lambda _, func: with_sorts_inside(func))


@relax.expr_functor.mutator
class _Sorts(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, in_order: bool) -> None:
        super().__init__(mod)
        self.in_order = in_order

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = str(getattr(call.op, "name", ""))
        make = _OPS.get(name)
        if make is None and may_be_in_pieces(name, call, in_order=self.in_order):
            make = SCANS[name]
        return call if make is None else self.builder_.call_te(make, call.args[0], call.attrs)


def _sort(x: Any, attrs: Any) -> Any:
    return SortingOrder(x, int(attrs.axis), bool(attrs.descending)).values(x.shape)


def _argsort(x: Any, attrs: Any) -> Any:
    return SortingOrder(x, int(attrs.axis), bool(attrs.descending)).places(x.shape, str(attrs.dtype))


def _topk(x: Any, attrs: Any) -> Any:
    order = SortingOrder(x, int(attrs.axis), bool(attrs.largest))
    shape = list(x.shape)
    if int(attrs.k) > 0:
        shape[order.axis] = tirx.IntImm("int64", int(attrs.k))
    values, indices = order.values(shape), order.places(shape, str(attrs.dtype))
    return {"both": [values, indices], "values": values, "indices": indices}[str(attrs.ret_type)]


_OPS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "relax.sort": _sort,
    "relax.argsort": _argsort,
    "relax.topk": _topk,
}
