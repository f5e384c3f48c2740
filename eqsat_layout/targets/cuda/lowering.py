"""From TIR that launches threads to CUDA C++: TVM's passes, and its code generator.

In: PrimFuncs that launch threads, scheduled ones of blocks or plain statements. Out: host functions as TIR, which say
what is launched, and the CUDA C++ of each kernel. Neither a GPU nor its driver nor its compiler is needed. Schedules
get their barriers, asynchronous copies and pipelines here; a function without blocks has placed its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import TargetError
from eqsat_layout.passes.clamped_casts import clamped_casts
from eqsat_layout.passes.index_bits import indices_in_bits
from eqsat_layout.passes.let_narrow_floats import with_let_values
from eqsat_layout.passes.let_vectors import serialise_let_vectors
from eqsat_layout.passes.reduction_inits import init_empty_loops
from eqsat_layout.passes.rounding import round_by_arithmetic
from eqsat_layout.targets.cuda.dependent_launch import constants_of, has_dependent_launch, waiting
from eqsat_layout.targets.cuda.half_functions import half_functions
from eqsat_layout.targets.cuda.launch_bounds import bounded
from eqsat_layout.targets.gpu.kernels.exact_floats import exact_floats
from eqsat_layout.targets.gpu.kernels.float_bounds import float_bounds
from eqsat_layout.targets.gpu.kernels.narrow_integers import narrow_integers
from eqsat_layout.targets.gpu.kernels.whole_indices import whole_indices
from eqsat_layout.targets.gpu.lowered import Lowered, device_part
from eqsat_layout.targets.schedules.exact_values import hide_divisions_and_zeros, reveal_arithmetic
from eqsat_layout.tir.negated_dividends import dividends_that_count_up
from eqsat_layout.tir.structural import nodes_of

_INDEX_BITS: Final = 32
_CONVERSIONS: Final = {
    "int8": "(signed char)",
    "uint8": "(unsigned char)",
    "int16": "(short)",
    "uint16": "(unsigned short)",
}


def lowered(functions: Mapping[str, Any], target: tvm.target.Target) -> Lowered:
    """All of them; :class:`TargetError` where TVM can't generate a kernel, with its reason."""
    both = tvm.target.Target(target, host={"kind": "llvm"})
    host: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, func in functions.items():
        mod = _launches(name, func, both)
        host |= {str(var.name_hint): one for var, one in mod.functions_items() if str(var.name_hint) == name}
        made = _sources(name, mod, both, constants_of(func))
        sources |= {kernel: bounded(text, func) for kernel, text in made.items()}
    return Lowered(host, sources)


def _launches(name: str, func: Any, target: tvm.target.Target) -> tvm.IRModule:
    """A host function, and the kernels that it launches."""
    mod = tvm.IRModule({tvm.ir.GlobalVar(name): func.with_attr("global_symbol", name)})
    passes = [
        tirx.transform.BindTarget(target),
        whole_indices(),
        hide_divisions_and_zeros(),
        *_passes(is_scheduled=bool(nodes_of(func.body, s_tir.SBlock))),
    ]
    with target, tvm.transform.PassContext(config={"tirx.use_async_copy": True}):
        return tvm.transform.Sequential(passes)(mod)


def _sources(name: str, mod: tvm.IRModule, target: tvm.target.Target, constants: Collection[str]) -> dict[str, str]:
    device = device_part(mod, "cuda")
    last = [
        round_by_arithmetic(),
        tirx.transform.BF16StorageLegalize(),
        tirx.transform.LowerWarpMemory(),
        tirx.transform.StmtSimplify(),
        reveal_arithmetic(),  # nothing simplifies values from here on
        half_functions(),
        tirx.transform.LowerIntrin(),
        narrow_integers(_CONVERSIONS),
        float_bounds(),
        exact_floats({"float64": "__longlong_as_double"}, "{:.15f}".format),
    ]
    device = tvm.transform.Sequential(last)(device)
    generate = tvm.get_global_func("target.build.cuda")
    found: dict[str, str] = {}
    for var, kernel in device.functions_items():
        with target:
            try:
                built = generate(tvm.IRModule({var: kernel}), target)
            except tvm.error.InternalError as error:
                raise TargetError(f"kernel {var.name_hint} of {name}: {_first_line(error)}") from error
        text = str(built.inspect_source())
        found[str(var.name_hint)] = (
            waiting(text, constants) if has_dependent_launch(str(target.attrs["arch"])) else text
        )
    return found


def _passes(*, is_scheduled: bool) -> Sequence[Any]:
    """For schedules those of TVM's own pipeline, in its order, but for what other targets need."""
    simplified = s_tir.transform.StmtSimplify()
    blocks = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        init_empty_loops(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.ManifestSharedMemoryLocalStage(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerAutoCopy(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        simplified,
        s_tir.transform.InjectPermutedLayout(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.InjectSoftwarePipeline(),
        s_tir.transform.TransformMmaBufferLayout(),
    ]
    flat = [
        simplified,
        s_tir.transform.LowerOpaqueBlock(),
        dividends_that_count_up(),
        tirx.transform.FlattenBuffer(),
        with_let_values(tirx.transform.BF16ComputeLegalize()),
        clamped_casts(),
        indices_in_bits(_INDEX_BITS),
    ]
    copies = [
        s_tir.transform.InjectVirtualThread(),
        s_tir.transform.InjectDoubleBuffer(),
        tirx.transform.StorageRewrite(),
        s_tir.transform.LowerAsyncDMA(),
        s_tir.transform.HoistIfThenElse(),
    ]
    statements = [
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
    ]
    barriers = [
        s_tir.transform.ThreadSync("shared"),
        s_tir.transform.ThreadSync("shared.dyn"),
        s_tir.transform.ThreadSync("warp"),
        s_tir.transform.InferFragment(),
        s_tir.transform.LowerThreadAllreduce(),
        s_tir.transform.InjectPTXAsyncCopy(),
        s_tir.transform.MergeSharedMemoryAllocations(),
    ]
    vectors, split = [serialise_let_vectors(), tirx.transform.VectorizeLoop()], tirx.transform.SplitHostDevice()
    if is_scheduled:
        partitioned = s_tir.transform.LoopPartition()
        return [*blocks, *flat, partitioned, *vectors, *copies, *statements, *barriers, split]
    return [*flat, *vectors, *statements, split]


def _first_line(error: Exception) -> str:
    """What TVM says, without its stack."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else type(error).__name__
