"""Calls that broadcast by themselves read what a broadcast was made of.

In: a Relax module. Out: the same without broadcasts in front of such calls: a matmul over weights that a frontend has
repeated for every batch is one product again. That the call says the same of the smaller operand is proven by its TIR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.templates import Template, leaf_exprs
from eqsat_layout.passes.fold_constants import element_count
from eqsat_layout.passes.merge_calls import merged_primfunc
from eqsat_layout.tir.signature import same_computation
from eqsat_layout.tir.structural import with_relax_functions


def skip_broadcasts(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with calls over smaller operands; ``mod`` itself where there is nothing to skip."""
    skipper = _Skipper(mod)
    skipped = with_relax_functions(mod, skipper.visit_expr)
    return relax.transform.DeadCodeElimination()(skipped) if skipper.has_skipped else mod


@relax.expr_functor.mutator
class _Skipper(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.has_skipped = False
        self.widenings: dict[Any, Any] = {}  # by variable the call that gives it

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        if _is_plain_call(call):
            for position, leaf in enumerate(leaf_exprs(call)):
                if leaf in self.widenings:
                    call = self._skipped(call, position)
        if _is_widening(call, binding.var.ty):
            self.widenings[binding.var] = call
        super().visit_var_binding_(relax.VarBinding(binding.var, call))

    def visit_dataflow_block_(self, block: Any) -> Any:
        visited = super().visit_dataflow_block_(block)
        sources = {var: leaf_exprs(call)[0] for var, call in self.widenings.items()}
        for var, source in sources.items():
            if isinstance(source, relax.DataflowVar):  # nobody sees it from outside
                del self.widenings[var]
        return visited

    def _skipped(self, call: Any, position: int) -> Any:
        """The call over what the broadcast at operand ``position`` reads; itself if it is not the same then."""
        leaves = leaf_exprs(call)
        widening = self.widenings[leaves[position]]
        (source,) = leaf_exprs(widening)
        try:
            small = self.builder_.normalize(Template(call).over([*leaves[:position], source, *leaves[position + 1 :]]))
            is_same = tvm_ffi.structural_equal(small.ty, call.ty) and _is_same(call, position, widening, small)
        except ILL_TYPED:  # an operand that the op refuses
            return call
        self.has_skipped |= is_same
        return small if is_same else call


def _is_plain_call(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) and value.op.has_attr("FLegalize")


def _is_widening(value: Any, ty: Any) -> bool:
    """A call of one operand that is smaller than its result."""
    leaves = leaf_exprs(value) if _is_plain_call(value) else ()
    if len(leaves) != 1:
        return False
    before, after = element_count(leaves[0].ty), element_count(ty)
    return before is not None and after is not None and before < after


def _is_same(call: Any, position: int, widening: Any, small: Any) -> bool:
    """``call`` over the result of ``widening`` is ``small``, element by element and in the same order of additions."""
    (alone,) = legalise_calls([small])
    both = _both(call, position, widening)
    return alone.func is not None and both is not None and same_computation(both, alone.func)


def _both(call: Any, position: int, widening: Any) -> Any:
    """One PrimFunc of a broadcast and a call that reads it, without what is between; None if it is not one."""
    operands = leaf_exprs(call)
    operands[position] = leaf_exprs(widening)[0]

    def body(builder: Any, given: Sequence[Any]) -> Any:
        wide = builder.emit(Template(widening).over([given[position]]))
        return Template(call).over([*given[:position], wide, *given[position + 1 :]])

    merged = merged_primfunc(operands, body)
    if merged is None:
        return None
    sch = s_tir.Schedule(tvm.IRModule({"main": merged.with_attr("global_symbol", "main")}))
    sch.compute_inline(sch.get_child_blocks(sch.get_sblock("root"))[0])
    return sch.mod["main"]
