"""First elements of which only the values, or only the places, are asked for.

In: a Relax module. Out: the same with ``topk`` calls that give what is asked for and no pair. Values alone are found in
half the time, as words of half the size (:mod:`eqsat_layout.passes.sorts.in_lanes`).
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.graph.op_calls import with_attributes
from eqsat_layout.passes.read_counts import read_counts
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_TOP: Final = "relax.topk"
_PARTS: Final = ("values", "indices")


def halves_asked_for() -> Any:
    """A pass."""

    def changed(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        return with_relax_functions(mod, _changed)

    return tvm.transform.module_pass(changed, opt_level=0, name="HalvesAskedFor")


def _changed(function: Any) -> Any:
    """``function`` itself where all pairs are asked for."""
    bindings = nodes_of(function, relax.VarBinding)
    pairs = [binding.var for binding in bindings if _is_pair(binding.value)]
    if not pairs:
        return function
    parts = [binding.value for binding in bindings if isinstance(binding.value, relax.TupleGetItem)]
    read, halves = read_counts(function), {}
    for var in pairs:
        taken = [int(part.index) for part in parts if part.tuple_value.same_as(var)]
        if len(set(taken)) == 1 and read[var] == len(taken):
            halves[var] = taken[0]
    return _Halves(halves).visit_expr(function) if halves else function


def _is_pair(value: Any) -> bool:
    is_top = isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) == _TOP
    return is_top and str(value.attrs.ret_type) == "both"


@relax.expr_functor.mutator
class _Halves(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, halves: dict[Any, int]) -> None:
        super().__init__()
        self.halves, self.made = halves, dict[Any, Any]()

    def visit_var_binding_(self, binding: Any) -> None:
        half = self.halves.get(binding.var)
        value = binding.value
        if half is not None:
            call = with_attributes(value, [self.visit_expr(one) for one in value.args], {"ret_type": _PARTS[half]})
            made = self.builder_.normalize(call)
            self.made[binding.var] = type(binding.var)(binding.var.name, made.ty)  # other blocks may read it
            self.builder_.emit_normalized(relax.VarBinding(self.made[binding.var], made))
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.made:
            super().visit_var_binding_(relax.VarBinding(binding.var, self.made[value.tuple_value]))
        else:
            super().visit_var_binding_(binding)
