"""From TIR that launches threads to CUDA C++: TVM's passes, and its code generator.

In: PrimFuncs that launch threads, of plain statements with their barriers and asynchronous copies. Out: host functions
as TIR, which say what is launched, and the CUDA C++ of each kernel. Neither a GPU nor its driver nor its compiler is
needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import TargetError
from eqsat_layout.passes.rounding import round_by_arithmetic
from eqsat_layout.targets.cuda.dependent_launch import constants_of, has_dependent_launch, waiting
from eqsat_layout.targets.cuda.half_functions import half_functions
from eqsat_layout.targets.cuda.launch_bounds import with_launch_bounds
from eqsat_layout.targets.cuda.paired_halves import paired_halves, with_pairs
from eqsat_layout.targets.gpu.kernels.exact_floats import exact_floats
from eqsat_layout.targets.gpu.kernels.float_bounds import float_bounds
from eqsat_layout.targets.gpu.kernels.narrow_integers import narrow_integers
from eqsat_layout.targets.gpu.kernels.whole_indices import whole_indices
from eqsat_layout.targets.gpu.lowered import Lowered, device_part
from eqsat_layout.targets.gpu.passes import launching, vectorised
from eqsat_layout.targets.schedules.differences_from_extremes import differences_for_cuda, keep_differences
from eqsat_layout.targets.schedules.exact_values import hide_arithmetic, reveal_arithmetic
from eqsat_layout.tir.structural import nodes_of

_CONVERSIONS: Final = {
    "int8": "(signed char)",
    "uint8": "(unsigned char)",
    "int16": "(short)",
    "uint16": "(unsigned short)",
}
_TENSOR_MAP: Final = """#ifdef __CUDACC_RTC__
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
#endif
"""
"""NVRTC reads no header of the driver's."""
_ENTRY: Final = 'extern "C" __global__'


def lowered(functions: Mapping[str, Any], target: tvm.target.Target) -> Lowered:
    """All of them; :class:`TargetError` where TVM can't generate a kernel, with its reason."""
    both = tvm.target.Target(target, host={"kind": "llvm"})
    host: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, func in functions.items():
        mod = _launches(name, func, both)
        host |= {str(var.name_hint): one for var, one in mod.functions_items() if str(var.name_hint) == name}
        made = _sources(name, mod, both, constants_of(func))
        sources |= {kernel: with_launch_bounds(text, func) for kernel, text in made.items()}
    return Lowered(host, sources)


def _launches(name: str, func: Any, target: tvm.target.Target) -> tvm.IRModule:
    """A host function, and the kernels that it launches."""
    mod = tvm.IRModule({tvm.ir.GlobalVar(name): func.with_attr("global_symbol", name)})
    is_wide = any(str(getattr(var.ty, "dtype", "")) == "int64" for var in nodes_of(func.body, tirx.Var))
    passes = [
        tirx.transform.BindTarget(target),
        whole_indices(),
        keep_differences(),
        hide_arithmetic(),
        # TVM narrows few indices of 64 bits that are not simplified; others are when loops are unrolled, and no more
        # often: it takes longer than all else
        *([s_tir.transform.StmtSimplify()] if is_wide else []),
        *vectorised(),
        *launching(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(mod)


def _sources(name: str, mod: tvm.IRModule, target: tvm.target.Target, constants: Collection[str]) -> dict[str, str]:
    device = device_part(mod, "cuda")
    last = [
        round_by_arithmetic(),
        tirx.transform.BF16StorageLegalize(),
        differences_for_cuda(),
        reveal_arithmetic(),  # nothing simplifies values from here on
        half_functions(),
        tirx.transform.LowerIntrin(),
        narrow_integers(_CONVERSIONS),
        paired_halves(),
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
        text = _with_tensor_map(with_pairs(str(built.inspect_source())))
        found[str(var.name_hint)] = (
            waiting(text, constants) if has_dependent_launch(str(target.attrs["arch"])) else text
        )
    return found


def _with_tensor_map(text: str) -> str:
    return text.replace(_ENTRY, _TENSOR_MAP + _ENTRY, 1) if "CUtensorMap" in text else text


def _first_line(error: Exception) -> str:
    """What TVM says, without its stack."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else type(error).__name__
