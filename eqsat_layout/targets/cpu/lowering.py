"""From scheduled PrimFuncs to what TVM's code generator for LLVM takes.

In: a module of PrimFuncs with blocks. Out: loops over flat memory in packed functions. TVM's own pipeline is for every
target; this one has no passes for threads and memories of GPUs, marks no function as the entry, which LLVM would write
twice, and leaves common subexpressions to LLVM: it finds the same ones, and takes as long where they were found before,
which takes TVM as long as half of all these passes.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from eqsat_layout.graph.foldable import NO_PRAGMA
from eqsat_layout.passes.fitting_calls import any_address, skip_checks
from eqsat_layout.passes.guarded_divisions import guard_divisions_by_sizes
from eqsat_layout.passes.index_bits import indices_in_bits
from eqsat_layout.passes.let_narrow_floats import with_let_values
from eqsat_layout.passes.let_vectors import round_in_vectors, serialise_let_vectors, serialise_scalar_functions
from eqsat_layout.passes.narrow_broadcasts import broadcast_bits
from eqsat_layout.passes.overlapping_stores import apart_from_operands
from eqsat_layout.passes.parallel_updates import order_updates
from eqsat_layout.passes.reduction_inits import init_empty_loops
from eqsat_layout.passes.rounding import round_by_arithmetic
from eqsat_layout.passes.unique_lets import with_unique_lets
from eqsat_layout.targets.cpu.aligned_stacks import align_stacks
from eqsat_layout.targets.cpu.booleans import compare_booleans, join_booleans, store_booleans_as_bytes
from eqsat_layout.targets.cpu.cut_loops import cut_at_conditions
from eqsat_layout.targets.cpu.dot_products import lower_byte_products
from eqsat_layout.targets.cpu.flushed_denormals import flush_denormals
from eqsat_layout.targets.cpu.long_values import keep_long_values
from eqsat_layout.targets.cpu.names_in_memory import names_in_memory
from eqsat_layout.targets.cpu.remainder_loops import split_remainder_loops
from eqsat_layout.targets.cpu.short_loops import unroll_short_bfloat16_stores
from eqsat_layout.targets.cpu.stack import is_on_stack, kept_on_stack
from eqsat_layout.targets.cpu.unsafe_selects import branch_on_unsafe_selects, select_in_lanes
from eqsat_layout.targets.schedules.differences_from_extremes import differences_for_llvm, keep_differences
from eqsat_layout.targets.schedules.exact_values import hide_arithmetic, reveal_arithmetic
from eqsat_layout.tir.negated_dividends import dividends_that_count_up
from eqsat_layout.tir.structural import body_pass

_PIPELINE: Final = "eqsat_layout.llvm"
_INDEX_BITS: Final = 32


def pipeline_name() -> str:
    """The name under which the pipeline is registered with TVM."""
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _pipeline)
    return _PIPELINE


def _pipeline(**_: Any) -> tuple[Any, Any, Any]:
    _, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    return tvm.transform.Sequential(_passes()), finalize_host, finalize_device


def _passes() -> list[Any]:
    return [
        keep_differences(),
        join_booleans(),
        hide_arithmetic(),  # of values that the simplifier would change
        # blocks become loops
        s_tir.transform.CanonicalizeLoop(),  # from 0 in steps of 1, as the passes below take them to be
        init_empty_loops(),
        s_tir.transform.LowerInitBlock(),  # of reductions that were not decomposed
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),  # inside of the loops that share a buffer
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),  # to what is used there
        s_tir.transform.LowerMatchBuffer(),  # parts of buffers with names of their own: tiles of a matrix unit
        s_tir.transform.StmtSimplify(),
        s_tir.transform.AnnotateIrregularLoop(),  # loops that are left early: those are not to be unrolled
        s_tir.transform.LowerOpaqueBlock(),
        _without_scopes(),
        order_updates(),
        # flat memory, types that the CPU has
        dividends_that_count_up(),
        with_unique_lets(),  # before TVM looks at what the names stand for
        tirx.transform.FlattenBuffer(),
        with_let_values(tirx.transform.BF16ComputeLegalize()),
        indices_in_bits(_INDEX_BITS),  # indices where they fit
        store_booleans_as_bytes(),
        # loops
        s_tir.transform.LoopPartition(),  # loops that ask for it, at their conditions
        split_remainder_loops(),  # of remainders, which LLVM gets wrong
        cut_at_conditions(),  # where it keeps LLVM from vectors
        select_in_lanes(),  # what the next ones would take apart
        round_in_vectors(),
        serialise_scalar_functions(),  # of which TVM has no vectors
        serialise_let_vectors(),  # what the next one would give the last lane's value
        tirx.transform.VectorizeLoop(),
        lower_byte_products(),  # whose vectors the CPU takes in its own sizes
        keep_long_values(),  # the code generator would write them out
        apart_from_operands(tirx.transform.StorageRewrite()),  # buffers that are not used at the same time share memory
        s_tir.transform.HoistIfThenElse(),  # conditions out of loops over which they do not change
        tirx.transform.RemoveNoOp(),  # before unrolling, as it takes long for long bodies, and LLVM sees the rest
        unroll_short_bfloat16_stores(),  # whose last element LLVM stores too widely
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),  # divisions of indices that vectors left in another form
        tirx.transform.StmtSimplify(),  # after unrolling: of indices that are not, LLVM sees less and spills registers
        branch_on_unsafe_selects(),  # both values of a select are computed
        # functions that TVM calls
        guard_divisions_by_sizes(),
        with_let_values(tirx.transform.FP8ComputeLegalize()),
        round_by_arithmetic(),
        tirx.transform.VerifyMemory(),
        align_stacks(),
        flush_denormals(),
        tirx.transform.MakePackedAPI(),
        guard_divisions_by_sizes(),  # of the buffers that it checks
        any_address(),  # of operands that come from outside
        skip_checks(),  # of those that are known to fit
        tirx.transform.FP8StorageLegalize(),
        broadcast_bits(),
        tirx.transform.BF16StorageLegalize(),
        _keep_on_stack(),
        differences_for_llvm(),
        reveal_arithmetic(llvm=True),  # nothing simplifies values from here on
        with_unique_lets(),  # of divisions that are the same node in several places
        names_in_memory(),  # of quotients of quotients
        compare_booleans(),  # which the code generator takes for floats
    ]


def _without_scopes() -> Any:
    """A pass: what TVM puts around loops that are no blocks, for its printer, warns its code generator of."""

    def inside(scope: Any) -> Any:
        return scope.body if str(scope.attr_key) == NO_PRAGMA else scope

    return body_pass("WithoutScopes", (tirx.AttrStmt, inside))


def _keep_on_stack() -> Any:
    """A pass: small "local" buffers become stack memory, where TVM would allocate workspace for them."""

    def mark(allocation: Any) -> Any:
        return kept_on_stack(allocation) if is_on_stack(allocation.buffer) else allocation

    return body_pass("KeepOnStack", (tirx.AllocBuffer, mark))
