"""Storage that is allocated in one branch of an ``if`` and used in the other branch, or after it.

In: Relax functions whose memory TVM has planned. Out: the same, with such storage allocated at the start of the
function. TVM's planner reuses free storage without asking whether the branch that allocates it is taken; where it is
not, the process crashes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import tvm
from tvm import ir, relax
from tvm.relax import backend, transform

from eqsat_layout.graph.quiet import LEGALIZERS
from eqsat_layout.passes.asked_halves import halves_asked_for
from eqsat_layout.passes.dataflow_reshapes import rewrite_dataflow_reshape
from eqsat_layout.passes.guarded_writes import skip_empty_tensors
from eqsat_layout.passes.scans_in_columns import SCANS
from eqsat_layout.passes.sorts.kernels import sort_legalisations
from eqsat_layout.tir.known_sorts import with_known_sorts
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map, with_relax_functions

_ALLOCATES: Final = "relax.memory.alloc_storage"

Scope = tuple[int, ...]
"""The numbers of the branches that something stands in, the outermost one first."""


def relax_pipeline(*, exact: bool) -> Any:
    """TVM's ``default_build``, with this after its planner, legalisations of ours, and without CUDA graphs."""
    return tvm.transform.Sequential(
        [
            backend.DispatchSampling(),
            halves_asked_for(),
            transform.LegalizeOps({**LEGALIZERS, **SCANS, **sort_legalisations(exact=exact)}),
            backend.DispatchSortScan(),
            primfunc_pass("SortKnownTypes", with_known_sorts),
            skip_empty_tensors(),
            rewrite_dataflow_reshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            allocate_before_branches(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ]
    )


def allocate_before_branches() -> Any:
    """A pass, for what ``StaticPlanBlockMemory`` gives."""

    def changed(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        return with_relax_functions(mod, lambda f: f if (first := _allocating_first(f)) is None else first)

    return tvm.transform.module_pass(changed, opt_level=0, name="AllocateBeforeBranches")


def _allocating_first(function: Any) -> Any:
    """The function, or None if there is nothing to do."""
    uses = _Uses()
    uses.sequence(function.body, ())
    moved = [
        binding for binding, scope in uses.allocations if any(s[: len(scope)] != scope for s in uses.of[binding.var])
    ]
    if not moved:
        return None
    variables = {binding.var for binding in moved}

    def without(block: Any) -> Any:
        kept = [binding for binding in block.bindings if binding.var not in variables]
        return block if len(kept) == len(block.bindings) else relax.BindingBlock(kept)

    body = structural_map(function.body, (relax.BindingBlock, without))
    body = relax.SeqExpr([relax.BindingBlock(moved), *body.blocks], body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


class _Uses:
    """``of``: the scopes in which a variable is used. ``allocations``: of memory, with the scope of each."""

    def __init__(self) -> None:
        self.of: dict[Any, list[Scope]] = defaultdict(list)
        self.allocations: list[tuple[Any, Scope]] = []
        self._branches = 0

    def sequence(self, sequence: Any, scope: Scope) -> None:
        for block in sequence.blocks:
            for binding in block.bindings:
                self._binding(binding, scope)
        self._expression(sequence.body, scope)

    def _binding(self, binding: Any, scope: Scope) -> None:
        value = binding.value
        if not isinstance(value, relax.If):
            self._expression(value, scope)
            if isinstance(value, ir.Call) and str(getattr(value.op, "name", "")) == _ALLOCATES:
                self.allocations.append((binding, scope))
            return
        self._expression(value.cond, scope)
        for branch in (value.true_branch, value.false_branch):
            self._branches += 1
            self.sequence(branch, (*scope, self._branches))

    def _expression(self, expression: Any, scope: Scope) -> None:
        for var in nodes_of(expression, ir.Var):
            self.of[var].append(scope)
