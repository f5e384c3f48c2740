"""What a module of a file may call by its name.

Such a call runs whatever function of the process, or of its C library, has the name: when a constant is computed, when
the module is validated, when it is run. In: the nodes of a graph as TVM writes it. Out: nothing, or
:class:`UnsafeCallError` for the first call of a function that does more than fill tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tvm

_SHAPES_AND_TENSORS: Final = (
    "alloc_shape_heap", "alloc_storage", "alloc_tensor", "check_func_info", "check_prim_value_info", "check_shape_info",
    "check_string_info", "check_tensor_info", "check_tuple_info", "copy", "ensure_zero_offset", "make_prim_value",
    "make_shape", "make_tuple", "match_prim_value", "match_shape", "multinomial_from_uniform", "null_value",
    "read_if_cond", "reshape", "shape_of", "tensor_to_shape", "to_device", "tuple_getitem", "tuple_reset_item",
)  # fmt: skip
_OF_TVM: Final = re.compile(
    rf"vm\.builtin\.({'|'.join(_SHAPES_AND_TENSORS)})"
    r"|vm\.builtin\.attention_kv_cache_(append|append_mla_kv|create|update|view|window_override|window_override_with_sinks)"
    r"|tvm\.contrib\.(sort|random|thrust|cblas|mkl|dnnl|cublas|cudnn)\.\w+"
    r"|relax\.run\.shape_to_tensor|runtime\.TVMTensorCreateView"
)
"""Functions of TVM that take tensors and give tensors; the process has others that read files and load libraries."""

_WITH_ADDRESSES: Final = ("frexp", "modf", "nan")
_OF_C: Final = frozenset(
    f"{name}{end}" for name in dir(math) if name[0] != "_" and name not in _WITH_ADDRESSES for end in ("", "f")
)
"""Functions of C's mathematics, as far as Python has them too, but those that write or read at an address."""

_INSTRUCTIONS: Final = re.compile(
    r"tirx\.(ptx|ptx_legacy|metal|webgpu|nki|tile|s_tir)\..+|tirx\.cuda\.(?!func_call).+"
    r"|tirx\.\w*(mma|matrix|fragment|texture2d|storage_sync|thread_allreduce|simdgroup)\w*"
)
"""Instructions of devices, with a word of the assembler's for a variant."""

_OF_NUMBERS: Final = frozenset((
    # mathematics
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "ctpop", "dp4a", "erf",
    "exp", "exp10", "exp2", "fabs", "floor", "fma", "fmod", "hypot", "isfinite", "isinf", "isnan", "ldexp", "log",
    "log10", "log1p", "nearbyint", "nextafter", "popcount", "pow", "q_multiply_shift", "q_multiply_shift_per_axis",
    "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    # vectors, and what a kernel says of itself
    "assume", "break_loop", "continue_loop", "filter", "get_active_lane_mask", "ignore_loop_partition",
    "reinterpret", "selector", "thread_return", "tvm_thread_invariant", "tvm_tuple", "type_annotation", "undef",
    "vectorcombine", "vectorhigh", "vectorlow",
    # addresses of its own buffers, which it has anyway
    "address_of", "buffer_data", "buffer_offset", "isnullptr", "nd_mem_alloc_with_scope", "prefetch", "tvm_access_ptr",
    # other threads
    "tvm_global_barrier_kinit", "tvm_kernel_replace_point", "tvm_warp_activemask", "tvm_warp_shuffle",
    "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "tvm_warp_shuffle_xor",
    # functions, whose names are checked
    "call_extern", "call_pure_extern", "call_spirv_pure_glsl450", "tvm_call_cpacked", "tvm_call_packed",
))  # fmt: skip
"""Ops of TIR besides instructions of devices; others make addresses of numbers, load or store where nothing looks at
the place, or are what TVM lowers calls to: copies by DMA are calls of functions of the process."""

_OF_LLVM: Final = re.compile(
    r"llvm\.(ceil|copysign|cos|ctlz|ctpop|cttz|exp2?|fabs|floor|fma|fmuladd|log(2|10)?|maximum|maxnum|minimum|minnum"
    r"|nearbyint|pow|powi|rint|round|roundeven|s?sqrt|sin|trunc|vector\.(extract|insert|reduce\.\w+))(\.\w+)*"
    r"|llvm\.(x86|aarch64|arm|hexagon)\.[\w.]*(dot|dpb|dpw|pmadd|pmul|mmla|mull|padd|paddl|rmpy|mpy)[\w.]*"
)
"""Its intrinsics that only compute."""

_INTRINSICS: Final = frozenset(("tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin"))

_WORD: Final = re.compile(r"[\w.:]*")
_PRAGMAS: Final = frozenset((
    "pragma_auto_unroll_max_step", "pragma_loop_partition_hint", "pragma_parallel", "pragma_parallel_launch_point",
    "pragma_parallel_barrier_when_finish", "pragma_parallel_stride_pattern", "pragma_scope", "pragma_unroll",
    "pragma_unroll_explicit", "pragma_vectorize",
))  # fmt: skip
"""TVM's others link code from files, in C or in LLVM's language."""

_OF_A_COMPILER: Final = "cl-opt"
"""Of a target: options of LLVM's command line, which write files."""

_ADVICE: Final = "; if you trust the file, load it with TVM and give the module itself"


class UnsafeCallError(ValueError):
    """A module that would run what no module holds."""


def check_calls(nodes: Sequence[Any]) -> None:
    """See above. ``nodes`` are checked already to be such: fields name nodes that stand before."""
    for node in nodes:
        kind, data = node["type"], node.get("data")
        if kind == "relax.expr.ExternFunc":
            name = _text(nodes, data.get("global_symbol"))
            if not _OF_TVM.fullmatch(name):
                raise UnsafeCallError(f"calls {name[:60]!r}, a function outside of the file{_ADVICE}")
        elif kind == "ir.Call":
            _check_call(nodes, data)
        elif kind in ("ffi.String", "ffi.SmallStr"):
            if data.startswith("pragma_") and data not in _PRAGMAS:
                raise UnsafeCallError(f"uses {data[:60]!r}, which brings in code from elsewhere")
            if data == _OF_A_COMPILER:
                raise UnsafeCallError(f"gives its target {data!r}, options for all of LLVM")


def _check_call(nodes: Sequence[Any], call: dict[str, Any]) -> None:
    op = nodes[call["op"]] if "op" in call else {}
    name = op["data"] if op.get("type") == "ir.Op" else ""
    if name == "relax.call_py_func":
        raise UnsafeCallError(f"calls a function of Python{_ADVICE}")
    if not name or name.startswith("relax."):  # functions are nodes of their own there
        return
    for word in _words(nodes, call):
        if _INSTRUCTIONS.fullmatch(name):
            is_known = _WORD.fullmatch(word) is not None
        else:
            is_known = word in _OF_C or _OF_TVM.fullmatch(word) is not None
        if not is_known:
            raise UnsafeCallError(f"calls {word[:60]!r}, a function outside of the file, in {name}{_ADVICE}")
    if name in _INTRINSICS:
        _check_intrinsic(nodes, call)
    elif name.startswith("tirx.") and not (_INSTRUCTIONS.fullmatch(name) or name.removeprefix("tirx.") in _OF_NUMBERS):
        raise UnsafeCallError(f"uses {name}, which reaches beyond its buffers{_ADVICE}")
    elif name == "tirx.reinterpret" and _is_address(nodes, call):
        raise UnsafeCallError(f"makes an address of a number, in {name}{_ADVICE}")


def _check_intrinsic(nodes: Sequence[Any], call: dict[str, Any]) -> None:
    """LLVM's are called by their number in this build of it."""
    first = nodes[nodes[call["args"]]["data"][0]]
    number = nodes[first["data"]["value"]].get("data") if first["type"] == "ir.IntImm" else None
    name = str(tvm.get_global_func("target.llvm_get_intrinsic_name")(number)) if isinstance(number, int) else ""
    if not _OF_LLVM.fullmatch(name):
        raise UnsafeCallError(f"calls LLVM's {name[:60] or 'intrinsic of no number'!r}{_ADVICE}")


def _is_address(nodes: Sequence[Any], call: dict[str, Any]) -> bool:
    ty = nodes[call["ty"]] if "ty" in call else {}
    return ty.get("type") != "ir.PrimType" or "handle" in str(ty.get("data", {}).get("dtype"))


def _words(nodes: Sequence[Any], call: dict[str, Any]) -> Iterator[str]:
    """The texts among the arguments: what else a TIR op is given is a number or an address."""
    for argument in nodes[call["args"]]["data"] or () if "args" in call else ():
        if nodes[argument]["type"] == "ir.StringImm":
            yield _text(nodes, nodes[argument]["data"].get("value"))


def _text(nodes: Sequence[Any], index: int | None) -> str:
    return "" if index is None else str(nodes[index].get("data"))
