"""An executable made of object files: it runs from a library that is linked already, and is exported from the objects.

In: a lowered Relax module without kernels, and the kernels as object files. Out: TVM's ``VMExecutable``, which can be
kept as bytes.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax, tirx
from tvm.relax import vm_build
from tvm.support import cc
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from eqsat_layout.errors import TargetError
from eqsat_layout.graph.skeleton import Skeleton, data_of, kind_of, tensors_on
from eqsat_layout.notes import said_by
from eqsat_layout.system.frames import head_of, padding_after, split_head
from eqsat_layout.system.thread_pool import use_pool_in
from eqsat_layout.targets.mapped_constants import MappedConstants

POOL: Final = Path(__file__).with_name("thread_pool.c")
"""The threads of parallel loops, part of every library."""

_BLOB: Final = "__tvm_ffi__library_bin"
"""The symbol that TVM's loader looks for: the bytes of all modules that are no code."""


@dataclass(frozen=True)
class ObjectFile:
    """Machine code of some functions, by their symbols."""

    functions: tuple[str, ...]
    data: bytes


class Executable(vm_build.VMExecutable):  # type: ignore[misc]
    """A lowered module over a shared ``library`` of this machine; :meth:`export_library` links its ``objects`` anew."""

    def __init__(self, lowered: tvm.IRModule, target: tvm.target.Target, library: bytes, objects: Sequence[ObjectFile]):
        self._lowered = without_kernels(lowered)
        self._target, self._library, self._objects = target, library, tuple(objects)
        super().__init__(_linked(lowered, target, _loaded_library(library) if library else None, ()))

    def export_library(self, file_name: Any, *, fcompile: Any = None, **options: Any) -> Any:
        """As TVM's; a library that is linked on this machine has its constants in pages that are not copied."""
        if fcompile is not None or not str(file_name).endswith(".so") or cc.get_cc() is None:
            exportable = linked_when_exported(self._lowered, self._objects, self._target)
            return exportable.export_library(file_name, fcompile=fcompile, **options)
        constants = MappedConstants.of(self._lowered)
        exportable = linked_when_exported(constants.module, self._objects, self._target)
        with tempfile.TemporaryDirectory() as folder:
            parts = [_thread_pool_in(Path(folder))]
            if constants.tensors:
                parts.append(constants.object_file(Path(folder)))
            options["addons"] = [*(options.get("addons") or ()), *map(str, parts)]
            return exportable.export_library(file_name, fpack_imports=_packed, **options)

    @property
    def library(self) -> bytes:
        """The shared library of its kernels; nothing if it has none."""
        return self._library

    def saved(self) -> list[bytes | memoryview]:
        """What :meth:`loaded` takes, in parts. Not as TVM writes it: that reads 0.1 GB/s (ours: as the disk does)."""
        skeleton = Skeleton.of(self._lowered)
        head = {
            "program": to_json_graph_str(skeleton.module),
            "tensors": list(map(kind_of, skeleton.tensors)),
            "library": len(self._library),
            "objects": [[one.functions, len(one.data)] for one in self._objects],
        }
        objects = (one.data for one in self._objects)
        tensors = (data_of(one) for one in skeleton.tensors)
        parts: list[bytes | memoryview] = [head_of(head), self._library, *objects, *tensors]
        return [piece for part in parts for piece in (part, bytes(padding_after(len(part))))]

    @staticmethod
    def loaded(data: memoryview, target: tvm.target.Target) -> Executable:
        """From the parts of :meth:`saved` in one piece, whose memory it uses for constants."""
        head, data = split_head(data)
        place = 0

        def part(size: int) -> memoryview:
            nonlocal place
            start, place = place, place + size + padding_after(size)
            return data[start : start + size]

        library = bytes(part(head["library"]))
        objects = [ObjectFile(tuple(symbols), bytes(part(size))) for symbols, size in head["objects"]]
        tensors = tensors_on(data[place:], head["tensors"])
        return Executable(
            Skeleton(from_json_graph_str(head["program"]), tuple(tensors)).whole(), target, library, objects
        )


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


def without_kernels(lowered: tvm.IRModule) -> tvm.IRModule:
    """What the virtual machine runs."""
    functions = {var: func for var, func in lowered.functions_items() if not isinstance(func, tirx.PrimFunc)}
    return tvm.IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)


def shared_library(objects: Sequence[ObjectFile]) -> bytes:
    """The objects linked to a shared library of this machine. :class:`TargetError` where that fails: a full disk."""
    if not objects:
        return b""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _linked_in(Path(folder), objects).read_bytes()
    except (OSError, RuntimeError) as error:
        raise TargetError(f"kernels can't be linked: {said_by(error)}") from error


def _linked_in(folder: Path, objects: Sequence[ObjectFile]) -> Path:
    paths: list[Path] = []
    for number, one in enumerate(objects):
        paths.append(folder / f"kernel{number}.o")
        paths[-1].write_bytes(one.data)
    library = folder / "kernels.so"
    cc.create_shared(str(library), [*map(str, paths), str(_thread_pool_in(folder))])
    return library


def _thread_pool_in(folder: Path) -> Path:
    """Its object file in ``folder``."""
    result = folder / "thread_pool.o"
    result.write_bytes(_thread_pool(cc.get_cc()))
    return result


@cache
def _thread_pool(compiler: str) -> bytes:
    """Compiled once in a process: that takes longer than linking it."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "thread_pool.o"
        options = ["-x", "c", "-O2", "-fPIC", "-pthread"]
        made = subprocess.run(
            [compiler, *options, "-c", str(POOL), "-o", str(result)], check=False, capture_output=True, text=True
        )
        if made.returncode:
            raise TargetError(f"{compiler} can't compile what runs loops in parallel: {made.stderr.strip()}")
        return result.read_bytes()


def _loaded_library(library: bytes) -> Any:
    folder = tempfile.mkdtemp()
    try:
        path = Path(folder) / "kernels.so"
        path.write_bytes(library)
        module = tvm.runtime.load_module(str(path))
        use_pool_in(str(path))
        return module
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # it stays loaded


def _linked(lowered: tvm.IRModule, target: tvm.target.Target, first: Any, others: Sequence[Any]) -> Any:
    builder = relax.ExecBuilder()
    vm_build._vmcodegen(builder, lowered, "bytecode")
    beside = dict(lowered.attrs.get("const_name_to_constant", {})) if lowered.attrs else {}
    return vm_build._ffi_api.VMLink(builder, target, first, list(others), beside)


def _packed(module: Any, _is_system_lib: bool, prefix: str, workspace: str) -> str:
    """An object file with what is no code, included as a file: through LLVM a hundred megabytes take seconds."""
    folder = Path(workspace)
    (folder / "imports.bin").write_bytes(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().data)
    lines = (
        ".section .rodata",
        f".global {prefix}{_BLOB}",
        ".balign 64",
        f"{prefix}{_BLOB}:",
        '.incbin "imports.bin"',
        '.section .note.GNU-stack,"",@progbits',
        "",
    )
    (folder / "imports.S").write_text("\n".join(lines))
    subprocess.run([cc.get_cc(), "-c", "imports.S", "-o", "imports.o"], check=True, cwd=folder)
    return str(folder / "imports.o")
