"""An executable made of object files: it runs from a library that is linked already, and is exported from the objects.

In: a lowered Relax module without kernels, and the kernels as object files. Out: TVM's ``VMExecutable``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.support import cc

_BLOB: Final = "__tvm_ffi__library_bin"
"""The symbol that TVM's loader looks for: the bytes of all modules that are no code."""


@dataclass(frozen=True)
class ObjectFile:
    """Machine code of some functions, by their symbols."""

    functions: tuple[str, ...]
    data: bytes


class Executable(vm_build.VMExecutable):  # type: ignore[misc]
    """Runs at once, as its code is loaded already; :meth:`export_library` links the object files anew."""

    def __init__(self, loaded: Any, make_exportable: Callable[[], Any]):
        super().__init__(loaded)
        self._make_exportable = make_exportable

    def export_library(self, file_name: Any, *, fcompile: Any = None, **options: Any) -> Any:
        """As TVM's, with constants taken into the library as they are, where that is linked on this machine."""
        is_plain = fcompile is None and str(file_name).endswith(".so") and cc.get_cc() is not None
        packing = {"fpack_imports": _packed} if is_plain else {}
        return self._make_exportable().export_library(file_name, fcompile=fcompile, **packing, **options)


def link(lowered: tvm.IRModule, objects: Sequence[ObjectFile], target: tvm.target.Target, library: bytes) -> Executable:
    """An executable over a shared ``library`` that was linked of the objects for this machine, if any."""
    folder = tempfile.mkdtemp()
    try:
        path = Path(folder) / "kernels.so"
        path.write_bytes(library)
        loaded = tvm.runtime.load_module(str(path)) if library else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # it stays loaded
    linked = _linked(lowered, target, loaded, ())
    return Executable(linked, lambda: linked_when_exported(lowered, objects, target))


def linked_when_exported(
    lowered: tvm.IRModule, objects: Sequence[ObjectFile], target: tvm.target.Target
) -> vm_build.VMExecutable:
    """An executable that holds the objects themselves; what runs it or exports it has them linked."""
    libraries: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(objects):
            path = Path(folder) / f"kernel{number}.o"
            path.write_bytes(one.data)
            libraries.append(tvm.runtime.load_static_library(str(path), list(one.functions)))
    first, *others = libraries or [None]
    return vm_build.VMExecutable(_linked(lowered, target, first, others))


def shared_library(objects: Sequence[ObjectFile]) -> bytes:
    """The objects linked to a shared library of this machine."""
    if not objects:
        return b""
    with tempfile.TemporaryDirectory() as folder:
        paths: list[str] = []
        for number, one in enumerate(objects):
            path = Path(folder) / f"kernel{number}.o"
            path.write_bytes(one.data)
            paths.append(str(path))
        library = Path(folder) / "kernels.so"
        cc.create_shared(str(library), paths)
        return library.read_bytes()


def _linked(lowered: tvm.IRModule, target: tvm.target.Target, first: Any, others: Sequence[Any]) -> Any:
    builder = relax.ExecBuilder()
    vm_build._vmcodegen(builder, lowered, "bytecode")
    return vm_build._ffi_api.VMLink(builder, target, first, list(others), _constants(lowered))


def _constants(lowered: tvm.IRModule) -> dict[str, Any]:
    """What passes put beside the module."""
    return dict(lowered.attrs.get("const_name_to_constant", {})) if lowered.attrs else {}


def _packed(module: Any, _is_system_lib: bool, prefix: str, workspace: str) -> str:
    """An object file with what is no code, included as a file: through LLVM a hundred megabytes take seconds."""
    blob = Path(workspace) / "imports.bin"
    blob.write_bytes(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().data)
    source, result = Path(workspace) / "imports.S", Path(workspace) / "imports.o"
    lines = (
        ".section .rodata",
        f".global {prefix}{_BLOB}",
        ".balign 64",
        f"{prefix}{_BLOB}:",
        f'.incbin "{blob}"',
        '.section .note.GNU-stack,"",@progbits',
        "",
    )
    source.write_text("\n".join(lines))
    subprocess.run([cc.get_cc(), "-c", str(source), "-o", str(result)], check=True)
    return str(result)
