"""Sorts and scans without a library: each element counts those that come before it, and goes where the count says.

In: a module whose sorts and scans are calls of Relax. Out: the same calls as reductions and gathers, which are launched
as other kernels are. A sort of n elements compares n * n pairs, all at once, or merges sorted pieces where n is large
(:mod:`.merges`). Equal elements keep their order, as they do in TVM's own sorts. Scans are sums of pieces
(:mod:`.scans`) where their order is free; else loops along a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import tvm
from tvm import relax, tirx

from eqsat_layout.targets.gpu.merges import MergedOrder, has_long_rows, steps_of_sort
from eqsat_layout.targets.gpu.packed_sorts import with_sorts_inside
from eqsat_layout.targets.gpu.scans import SCANS, may_be_in_pieces
from eqsat_layout.targets.gpu.sorting_order import SortingOrder
from eqsat_layout.tir.structural import with_primfuncs

Order: TypeAlias = SortingOrder | MergedOrder


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
        if name in _SORTS:
            return self._sorted(name, call)
        is_scan = may_be_in_pieces(name, call, in_order=self.in_order)
        return self.builder_.call_te(SCANS[name], call.args[0], call.attrs) if is_scan else call

    def _sorted(self, name: str, call: Any) -> Any:
        """In one kernel, or where rows are long in several, one after the other."""
        (x, *_), attrs = call.args, call.attrs
        axis, is_descending = int(attrs.axis) % len(x.ty.shape), _is_descending(name, attrs)
        hint = {"primfunc_name_hint": name.removeprefix("relax.")}
        if not has_long_rows(x.ty.shape, axis):
            return self.builder_.call_te(lambda x: _SORTS[name](SortingOrder(x, axis, is_descending), attrs), x, **hint)
        found: list[Any] = []
        for step in steps_of_sort(int(x.ty.shape[axis]), axis, is_descending):
            found = [self.builder_.emit(self.builder_.call_te(step, x, *found))]
        return self.builder_.call_te(
            lambda x, places: _SORTS[name](MergedOrder(x, axis, places), attrs), x, *found, **hint
        )


def _is_descending(name: str, attrs: Any) -> bool:
    return bool(attrs.largest if name == "relax.topk" else attrs.descending)


def _sort(order: Order, attrs: Any) -> Any:
    return order.values(order.x.shape)


def _argsort(order: Order, attrs: Any) -> Any:
    return order.places(order.x.shape, str(attrs.dtype))


def _topk(order: Order, attrs: Any) -> Any:
    shape = list(order.x.shape)
    if int(attrs.k) > 0:
        shape[order.axis] = tirx.IntImm("int64", int(attrs.k))
    values, indices = order.values(shape), order.places(shape, str(attrs.dtype))
    return {"both": [values, indices], "values": values, "indices": indices}[str(attrs.ret_type)]


_SORTS: Final[Mapping[str, Callable[[Order, Any], Any]]] = {
    "relax.sort": _sort,
    "relax.argsort": _argsort,
    "relax.topk": _topk,
}
