"""From CUDA C++ to machine code, with the compiler that is there.

In: the text of kernels and an architecture. Out: the cubin, and what the assembler says of each kernel. NVRTC comes
with the packages of the extra ``[cuda]``; an ``nvcc`` on the path does too. No driver is needed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from eqsat_layout.errors import TargetError
from eqsat_layout.system.frames import head_of, split_head
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.targets.cuda.machine import blocks_by_registers

_OPTIONS: Final = ("--ptxas-options=-v",)
_PRECOMPILES: Final = (12, 8)
"""The first version of NVRTC that keeps parsed headers."""
_HEADERS: Final = re.compile(r"#include <(?:cuda/std/\w+|cuda_\w+\.h)>")
"""That stand in front of kernels for NVRTC, which keeps what stands in front of all else."""
_KERNEL: Final = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_BOUNDS: Final = re.compile(r"__launch_bounds__\((\d+)(?:, \d+)?\)")
_SHARED: Final = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelFacts:
    """``shared_bytes``: those of fixed size; ``spilled_bytes``: stored to and loaded from memory, at fixed places."""

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Compiled:
    """``kernels``: by name."""

    cubin: bytes
    kernels: Mapping[str, KernelFacts]

    @property
    def spilled_bytes(self) -> int:
        """The spilled bytes of all kernels."""
        return sum(facts.spilled_bytes for facts in self.kernels.values())


def compiled(source: str, arch: str, headers: str | None = None) -> Compiled:
    """``source`` for ``arch``, as in ``sm_90``; :class:`TargetError` with the compiler's words where it does not
    compile, or where there is no compiler. ``headers``: a folder for those that were parsed before, of other sources
    too: they take ten times as long as a kernel."""
    compiler = available_compiler()
    if compiler is None:
        raise TargetError("no CUDA compiler is here: install eqsat-layout[cuda], or put nvcc on the path")
    first = found = _compiled(compiler, source, arch, headers)
    for text in _with_fewer_blocks(source, first) if first.spilled_bytes else ():
        if not found.spilled_bytes:
            break
        other = _compiled(compiler, text, arch, headers)
        found = min(found, other, key=lambda one: one.spilled_bytes)
    return found


def _compiled(compiler: str, source: str, arch: str, headers: str | None) -> Compiled:
    cubin, log = _with_nvrtc(source, arch, headers) if compiler == "nvrtc" else _with_nvcc(source, arch)
    return Compiled(cubin, _facts(log))


def _with_fewer_blocks(source: str, made: Compiled) -> Iterator[str]:
    """``source`` with room for fewer and fewer blocks on a multiprocessor. An assembler spills rather than take the
    registers of a block more, though it was not asked for one: 16 bytes of a convolution that it gave 80."""
    threads = [int(one) for one in _BOUNDS.findall(source)]
    if threads:
        most = max(facts.registers for facts in made.kernels.values())
        for blocks in range(blocks_by_registers(most, max(threads)) - 1, 0, -1):
            yield _BOUNDS.sub(rf"__launch_bounds__(\1, {blocks})", source)


def machine_code(sources: Sequence[str], arch: str) -> list[Compiled]:
    """What :func:`compiled` gives for each; several at a time, those that were compiled before from disk."""
    with tempfile.TemporaryDirectory() as headers, ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(partial(_kept, ArtefactStore.usual(), arch, headers), sources))


def _kept(store: ArtefactStore, arch: str, headers: str, source: str) -> Compiled:
    key = "\n".join(("CUDA, no spills", str(_compilers_version()), arch, *_OPTIONS, source))
    known = store.get(key)
    if known is not None:
        head, cubin = split_head(known)
        return Compiled(bytes(cubin), {name: KernelFacts(**facts) for name, facts in head.items()})
    made = compiled(source, arch, headers)
    store.put(key, [head_of({name: asdict(facts) for name, facts in made.kernels.items()}), made.cubin])
    return made


@cache
def _compilers_version() -> str | None:
    """The version of the compiler in use: what another one made is not reused."""
    if available_compiler() != "nvrtc":
        nvcc = shutil.which("nvcc")
        return nvcc and subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = _nvrtc()
    assert found is not None
    major, minor = _nvrtcs_version(found[0])
    return f"NVRTC {major}.{minor} {found[1]}"


def _nvrtcs_version(library: Any) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _checked(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@cache
def available_compiler() -> str | None:
    """``"nvrtc"``, ``"nvcc"`` or ``None``."""
    if _nvrtc() is not None:
        return "nvrtc"
    return "nvcc" if shutil.which("nvcc") else None


def _with_nvcc(source: str, arch: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        text.write_text(source)
        command = ["nvcc", "-cubin", f"-arch={arch}", *_OPTIONS, str(text), "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"nvcc for {arch}: {done.stdout}{done.stderr}")
        return binary.read_bytes(), done.stderr


def _with_nvrtc(source: str, arch: str, headers: str | None) -> tuple[bytes, str]:
    found = _nvrtc()
    assert found is not None
    library, folder = found
    texts = [f"--gpu-architecture={arch}", *_OPTIONS, *(f"-I{folder / 'include' / name}" for name in ("", "cccl"))]
    if headers is not None and _nvrtcs_version(library) >= _PRECOMPILES:
        source = "\n".join([*dict.fromkeys(_HEADERS.findall(source)), "#pragma nv_hdrstop", source])
        texts += ["--pch", f"--pch-dir={headers}"]
    options = [text.encode() for text in texts]
    program = ctypes.c_void_p()
    _checked(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _bytes_of(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if code:
            raise TargetError(f"NVRTC for {arch}: {log}")
        return _bytes_of(library, "CUBIN", program), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _nvrtc() -> tuple[Any, Path] | None:
    """The library of the package, and the folder with its headers."""
    for folder in _package_folders():
        libraries = sorted((folder / "lib").glob("libnvrtc.so.*"))
        if libraries and (folder / "include" / "cuda_fp16.h").exists() and (folder / "include" / "cccl").exists():
            for builtins in (folder / "lib").glob("libnvrtc-builtins.so.*"):  # NVRTC looks for it by name only
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(libraries[-1])), folder
    return None


def _package_folders() -> Sequence[Path]:
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else list(spec.submodule_search_locations or [])
    return [folder for root in roots for folder in sorted(Path(root).glob("cu[0-9]*"), reverse=True)]


def _bytes_of(library: Any, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _checked(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _checked(library, getattr(library, f"nvrtcGet{what}")(program, text))
    return text.raw


def _checked(library: Any, code: int) -> None:
    if code:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise TargetError(f"NVRTC: {library.nvrtcGetErrorString(code).decode()}")


def _facts(log: str) -> dict[str, KernelFacts]:
    """The assembler's lines on each kernel, in whatever order they come."""
    parts = _KERNEL.split(log)
    return {name: _facts_of(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _facts_of(text: str) -> KernelFacts:
    stack, stores, loads = (int(n) for n in _the(_SPILLS, text).groups())
    shared = _SHARED.search(text)
    registers = int(_the(_REGISTERS, text).group(1))
    return KernelFacts(registers, stores + loads, stack, int(shared.group(1)) if shared else 0)


def _the(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.search(text)
    if found is None:
        raise TargetError(f"the assembler says nothing like {pattern.pattern!r}: {text}")
    return found
