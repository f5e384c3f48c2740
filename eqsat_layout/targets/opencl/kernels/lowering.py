"""From work items to OpenCL C: TVM's passes in an order that is right for images, and its code generator.

In: PrimFuncs without blocks, that launch work items. Out: host functions as TIR, which say what is launched, and the
OpenCL C of each kernel. TVM's own pipelines for Adreno can't be used: one gives a pass where three are expected, all
type stores to images as pointers, which makes the vectoriser write every lane over the whole texel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir.backend.adreno.transform import TextureFlatten

from eqsat_layout.errors import TargetError
from eqsat_layout.passes.let_narrow_floats import with_let_values
from eqsat_layout.passes.rounding import round_by_arithmetic
from eqsat_layout.targets.gpu.kernels.exact_floats import exact_floats
from eqsat_layout.targets.gpu.kernels.float_bounds import float_bounds
from eqsat_layout.targets.gpu.kernels.narrow_integers import narrow_integers
from eqsat_layout.targets.gpu.kernels.vectors import LANES
from eqsat_layout.targets.gpu.kernels.whole_indices import whole_indices
from eqsat_layout.targets.gpu.lowered import Lowered, split_by_kind
from eqsat_layout.targets.gpu.passes import launching, vectorised
from eqsat_layout.targets.opencl.kernels import half
from eqsat_layout.targets.schedules.differences_from_extremes import (
    differences_for_opencl,
    keep_differences,
    opencl_functions,
)
from eqsat_layout.targets.schedules.exact_values import hide_arithmetic, reveal_arithmetic
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import body_pass, nodes_of

_STORE: Final = "tirx.texture2d_store"
_BUILT_IN: Final = {
    ir.Op.get(f"tirx.{name}"): name
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "erf", "exp", "exp10"),
        *("exp2", "fma", "fmod", "hypot", "ldexp", "log", "log10", "log1p", "nextafter", "pow", "rsqrt", "sin", "sinh"),
        *("sqrt", "tan", "tanh"),
    )
}
"""OpenCL C calls them so for every type (OpenCL C 1.2, 6.12.2). TVM has rules for some, and writes C's names else."""
_CONVERSIONS: Final = {
    "int8": "convert_char",
    "uint8": "convert_uchar",
    "int16": "convert_short",
    "uint16": "convert_ushort",
}
_OF_BITS: Final = {"float32": "as_float", "float64": "as_double"}
_TYPES: Final = {
    **{f"int{bits}": name for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))},
    **{f"uint{bits}": name for bits, name in ((8, "uchar"), (16, "ushort"), (32, "uint"), (64, "ulong"))},
    **{"float16": "half", "float32": "float", "float64": "double"},
}
"""As OpenCL C calls them."""
_REINTERPRET: Final = "tirx.reinterpret"
_HEAD: Final = "// Function: "
_BARRIER: Final = "barrier(CLK_LOCAL_MEM_FENCE)"
_READS_OF_TVM: Final = re.compile(r"#ifdef __OPENCL_VERSION__\n(?:#(?:if|else|define).*\n)*#endif\n#endif\n+")
_READS: Final = """#define READ_IMAGEF(image, sampler, coord) read_imagef(image, sampler, coord)
#define READ_IMAGEH(image, sampler, coord) read_imageh(image, sampler, coord)
"""


class Halves(NamedTuple):
    """``host``: in front of TVM's calling convention, ``packed``: with it; ``device``: what work items run."""

    host: tvm.IRModule
    packed: tvm.IRModule
    device: tvm.IRModule


def halves(functions: Mapping[str, Any], target: tvm.target.Target, typed: Mapping[str, Any] | None = None) -> Halves:
    """All of them; :class:`TargetError` where TVM can't lower a kernel, with its reason.

    ``typed``: functions of the same names whose parameters have the types that callers know: kernels may take bits.
    """
    both = with_host(target)
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    mod = tvm.IRModule({tvm.ir.GlobalVar(name): func for name, func in named.items()})
    for one in _passes(both, is_checked=typed is None):
        mod = one(mod)
    for var, func in mod.functions_items():
        if str(var.name_hint) in (typed or {}):
            mod.update_func(var, half.with_types_of((typed or {})[str(var.name_hint)], func))
    packed, device = split_by_kind(mod, "opencl")
    last = [
        with_let_values(tirx.transform.FP8ComputeLegalize()),
        round_by_arithmetic(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        differences_for_opencl(),
        reveal_arithmetic(),
        _built_in_functions(),
        tirx.transform.LowerIntrin(),
        narrow_integers(_CONVERSIONS),
        float_bounds(),
        exact_floats(_OF_BITS, "{:.6e}".format),
        tirx.transform.PointerValueTypeRewrite(),  # to arrays of vectors: those of floats are left in memory
    ]
    return Halves(mod, packed, tvm.transform.Sequential(last)(device))


def lowered(functions: Mapping[str, Any], target: tvm.target.Target) -> Lowered:
    """What the host does, and sources."""
    return as_sources(halves(functions, target), functions, target)


def as_sources(made: Halves, names: Iterable[str], target: tvm.target.Target) -> Lowered:
    """The functions of these names, and the sources of all kernels."""
    wanted = set(names)
    host = {str(var.name_hint): func for var, func in made.host.functions_items() if str(var.name_hint) in wanted}
    text = str(tvm.get_global_func("target.build.opencl")(made.device, with_host(target)).inspect_source())
    parts = [part.partition("\n") for part in text.split(_HEAD)[1:]]
    return Lowered(host, {name.strip(): cleaned(body) for name, _, body in parts})


def with_host(target: tvm.target.Target) -> tvm.target.Target:
    """The target with the host that it names, or this machine."""
    return tvm.target.Target(target, host=target.host or {"kind": "llvm"})


def _passes(target: tvm.target.Target, *, is_checked: bool) -> list[Any]:
    return [
        tirx.transform.BindTarget(target),
        whole_indices(),
        keep_differences(),
        hide_arithmetic(),
        TextureFlatten(),
        typed_stores(),
        s_tir.transform.StmtSimplify(),
        *vectorised(is_checked=is_checked),
        _checked_stores,
        *launching(),
    ]


def typed_stores() -> Any:
    """TextureFlatten types stores to images as pointers; the vectoriser then takes them for no vectors."""

    def typed(call: Any) -> Any:
        if str(getattr(call.op, "name", "")) != _STORE or isinstance(call.ty, ir.PrimType):
            return call
        return ir.Call(call.op, list(call.args), attrs=call.attrs, ret_ty=call.args[0].ty.element_type)

    return body_pass("TypedStores", (ir.Call, typed))


def _built_in_functions() -> Any:
    def called(call: Any) -> Any:
        name = _as_type(call.ty) if is_call(call, _REINTERPRET) else _BUILT_IN.get(call.op)
        return call if name is None else tirx.call_pure_extern(call.ty, name, *call.args)

    return body_pass("BuiltInFunctions", (ir.Call, called))


def _as_type(given: Any) -> str | None:
    """What gives bits another type. TVM writes the address of a value, which a constant does not have."""
    element, _, lanes = str(given.dtype).partition("x")
    return f"as_{_TYPES[element]}{lanes}" if element in _TYPES else None


def _checked_stores(mod: tvm.IRModule) -> tvm.IRModule:
    """No store of a part of a texel is left: it would overwrite the rest. In a pass TVM would change the error."""
    for var, func in mod.functions_items():
        for call in nodes_of(func.body, ir.Call):
            if str(getattr(call.op, "name", "")) == _STORE and f"x{LANES}" not in str(call.args[-1].ty.dtype):
                raise TargetError(f"kernel {var.name_hint} writes a part of a texel: {call}")
    return mod


def cleaned(source: str) -> str:
    """Without the declarations of all kernels. Images are read with the sampler always: what is beyond is then 0."""
    lines = [line for line in source.splitlines() if not (line.startswith("__kernel") and line.endswith(";"))]
    text = _READS_OF_TVM.sub(_READS, "\n".join(lines)).strip() + "\n"
    if "__local" not in text:  # what work items tell each other is in tensors then
        text = text.replace(_BARRIER, "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)")
    text = opencl_functions(text) + text
    return half.FUNCTIONS + text if half.READ in text or half.WRITE in text else text
