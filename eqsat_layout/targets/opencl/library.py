"""A program as TVM's own executable, for any TVM runtime that has OpenCL.

In: a module of kernels, as :mod:`eqsat_layout.targets.opencl.build` takes it, and a target that names its host. Out:
:class:`OpenClLibrary`: ``export_library`` makes a file of it that a phone loads. All its tensors lie on one device,
``VirtualMachine(library, tvm.opencl(0))``: TVM's own pipeline wants one device for each memory scope.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import vm_build
from tvm.relax.backend import gpu_generic
from tvm.tirx.build import tir_to_runtime
from tvm.tirx.compilation_pipeline import finalize_host_passes
from tvm_ffi.registry import remove_global_func

from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.vdevices import buffer_scope, scopes_in
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.executable import without_kernels
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.kernels.lowering import Halves, cleaned
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import with_relax_functions

_POSTPROC: Final = "tvm_callback_opencl_postproc"
_KERNEL: Final = ir.Op.get("relax.call_tir")
_STORAGE: Final = ir.Op.get("relax.memory.alloc_storage")
_ON_HOST: Final = "tirx.is_host_func"
_turn = threading.RLock()


class Tensor(NamedTuple):
    """A parameter of a PrimFunc."""

    shape: tuple[Any, ...]
    dtype: str
    scope: str


class OpenClLibrary(vm_build.VMExecutable):  # type: ignore[misc]
    """TVM's executable. ``program``: the same kernels as data, with what the host does with them; ``None`` where a
    function branches, or calls what is no kernel. ``kernels``: TVM's module of the functions that launch them, and
    ``tensors`` what each of these is called with."""

    def __init__(
        self, module: Any, program: OpenClProgram | None, kernels: Any, tensors: Mapping[str, Sequence[Tensor]]
    ) -> None:
        super().__init__(module)
        self.program, self.kernels, self.tensors = program, kernels, tensors


def for_virtual_machine(mod: tvm.IRModule, views: Collection[str], target: tvm.target.Target) -> tvm.IRModule:
    """``mod`` lowered to calls of the virtual machine, with its PrimFuncs as they were. Memory is planned.

    ``views``: PrimFuncs whose result is what they are given, byte for byte. TVM finds those by their loops and does not
    ask in which memories the ends lie.
    """
    placed = _with_ordinary_first(mod, relax.VDevice(target, 0, GLOBAL))
    _, *lower = gpu_generic.dataflow_lower_passes(target)
    plan, *rest = gpu_generic.finalize_passes(target)
    passes = [_mutating(partial(_Viewer, views)), *lower, plan, _mutating(_Mover), *rest]
    with target:
        return tvm.transform.Sequential(passes)(placed)


def why_not_called(mod: tvm.IRModule) -> str | None:
    """TVM plans memory for what stays inside of a function, and makes the storage of results too small for an image."""
    for var, function in mod.functions_items():
        is_called = isinstance(function, relax.Function) and is_public(function)
        if is_called and (scopes := scopes_in(function.ret_ty)):
            return f"{var.name_hint}: TVM's virtual machine makes no results in {', '.join(scopes)}"
    return None


def called_by_machine(lowered: tvm.IRModule) -> tuple[dict[str, Any], dict[str, Any]]:
    """The PrimFuncs that it launches, and those that compute sizes on the host."""
    found = {str(v.name_hint): f for v, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)}
    host = {name: f for name, f in found.items() if f.attrs is not None and f.attrs.get(_ON_HOST)}
    return {name: f for name, f in found.items() if name not in host}, host


def called_tensors(func: Any) -> list[Tensor]:
    """What a PrimFunc is called with; sizes that are no numbers as they stand."""
    buffers = [p for p in func.params if type(p.ty) is tirx.BufferType]
    return [Tensor(tuple(map(_size, b.ty.shape)), str(b.ty.dtype), buffer_scope(b)) for b in buffers]


def _size(extent: Any) -> Any:
    known = as_int(extent)
    return extent if known is None else known


def host_module(made: Halves, target: tvm.target.Target) -> Any:
    """TVM's module of the functions that launch kernels, and of these."""
    with _cleaning_sources():
        return tir_to_runtime(
            finalize_host_passes()(made.packed), {target: made.device}, tvm.target.Target(target.host)
        )


def linked_module(lowered: tvm.IRModule, kernels: Any, target: tvm.target.Target) -> Any:
    """TVM's module of what :func:`for_virtual_machine` gave, and of :func:`host_module`."""
    builder = relax.ExecBuilder()
    vm_build._vmcodegen(builder, without_kernels(lowered), "bytecode")
    constants = dict(lowered.attrs.get("const_name_to_constant", {})) if lowered.attrs else {}
    return vm_build._ffi_api.VMLink(builder, target, kernels, [], constants)


@contextmanager
def _cleaning_sources() -> Iterator[None]:
    """TVM's code generator asks a global function for the last word on each kernel; it is ours for as long."""
    with _turn:
        before = tvm_ffi.get_global_func(_POSTPROC, allow_missing=True)
        tvm_ffi.register_global_func(_POSTPROC, lambda source, _: cleaned(source), override=True)
        try:
            yield
        finally:
            remove_global_func(_POSTPROC)
            if before is not None:
                tvm_ffi.register_global_func(_POSTPROC, before)


def _with_ordinary_first(mod: tvm.IRModule, ordinary: Any) -> tvm.IRModule:
    """Types that name no device are those of the first one, which has to be ordinary memory."""
    others = [d for d in mod.global_infos.get("vdevice", []) if (str(d.memory_scope) or GLOBAL) != GLOBAL]
    infos = dict(mod.global_infos.items()) | {"vdevice": [ordinary, *others]}
    return tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs, global_infos=infos)


def _mutating(make: Callable[[tvm.IRModule], Any]) -> Any:
    """A pass over all Relax functions."""

    @tvm.transform.module_pass(opt_level=0, name="Mutating")  # type: ignore[untyped-decorator]
    def changed(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        return with_relax_functions(mod, make(mod).visit_expr)

    return changed


@relax.expr_functor.mutator
class _Viewer(relax.PyExprMutator):  # type: ignore[misc]
    """Views as reshapes, which the machine does without a kernel; not of results, which own their memory."""

    def __init__(self, views: Collection[str], mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._views = views

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        is_inside = isinstance(binding.var, relax.DataflowVar) and isinstance(call, relax.Call)
        if is_inside and call.op == _KERNEL and str(call.args[0].name_hint) in self._views:
            source = self.visit_expr(call.args[1].fields[0])
            self.set_var_remap(binding.var, self.builder_.emit(relax.op.reshape(source, call.ty_args[0].shape)))
        else:
            super().visit_var_binding_(binding)


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):  # type: ignore[misc]
    """Virtual devices differ in scope only, but the machine takes their numbers for those of its devices."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op != _STORAGE:
            return call
        size, _, *rest = call.args
        return relax.Call(call.op, [size, relax.prim_value(0), *rest], call.attrs, call.ty_args)
