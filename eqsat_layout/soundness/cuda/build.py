"""Translated kernels and the runtime as a shared library, made once per text and kept on disk.

In: C++. Out: the bytes of a library. Needs g++ or clang++ and nothing of CUDA.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from eqsat_layout.errors import TargetError
from eqsat_layout.soundness.cuda.faults import SourceError
from eqsat_layout.soundness.cuda.source import FILE
from eqsat_layout.system.store import ArtefactStore

RUNTIME: Final = Path(__file__).parent / "runtime"

_COMMON: Final = ("-std=c++17", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-w", f"-I{RUNTIME}")
_FOR_RUNTIME: Final = (*_COMMON, "-O2", "-U_FORTIFY_SOURCE")
_FOR_KERNELS: Final = (
    *_COMMON,
    "-Og",  # less is done than by -O1, in four fifths of the time; by -O0 more is watched than kernels say
    "-g1",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-tree-sra",  # a vector is loaded whole, as the text says
    *("-fno-tree-dse", "-fno-tree-pta"),  # a third of the compile time
    "-fsanitize=thread,bounds",  # calls at each access, which the runtime answers itself
    "-fsanitize=integer-divide-by-zero,signed-integer-overflow",  # and at divisions
)
_HEADER: Final = RUNTIME / "device.h"
"""In front of all kernels."""

_FAST_LINKERS: Final = ("gold", "lld")
"""A third of the time of the usual one."""


def built(text: str) -> memoryview | bytes:
    """Raises :class:`TargetError` where there is no C++ compiler, :class:`SourceError` for text that is not C++."""
    store, program = ArtefactStore.usual(), compiler()
    key = "\n".join(("cuda simulator", _version(program), _digest_of_runtime(), *_FOR_KERNELS, *_linker(), text))
    if (kept := store.get(key)) is not None:
        return kept
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernels = folder / "kernels.cpp"
        kernels.write_text(text)
        objects = [*_runtime_objects(program, folder), folder / "kernels.o"]
        header = ("-include", str(_header(program, folder)))
        _compile(program, *_FOR_KERNELS, *header, "-c", str(kernels), "-o", str(objects[-1]))
        library = folder / "kernels.so"
        _compile(program, "-shared", *_linker(), *map(str, objects), "-o", str(library), "-ldl")
        made = library.read_bytes()
    store.put(key, [made])
    return made


def line_at(library: Path, offset: int) -> int:
    """The line of the source whose code lies there, that of the kernel and not of a function inlined into it; or 0."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return 0
    out = subprocess.run(
        [tool, "-i", "-e", str(library), hex(offset)], capture_output=True, text=True, check=False
    ).stdout
    lines = re.findall(rf"{re.escape(FILE)}:(\d+)", out)
    return int(lines[-1]) if lines else 0


@cache
def compiler() -> str:
    """Where the C++ compiler lies."""
    for name in ("g++", "clang++"):
        if found := shutil.which(name):
            return found
    raise TargetError("the simulator of CUDA kernels needs a C++ compiler: neither g++ nor clang++ is on the PATH")


@cache
def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


@cache
def _digest_of_runtime() -> str:
    files = sorted(RUNTIME.glob("*.*"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@cache
def _linker() -> tuple[str, ...]:
    found = next((name for name in _FAST_LINKERS if shutil.which(f"ld.{name}")), None)
    return (f"-fuse-ld={found}",) if found else ()


def _header(program: str, folder: Path) -> Path:
    """What to include: the header, or where g++ finds it compiled."""
    if Path(program).name != "g++":
        return _HEADER
    _compiled_once(program, (*_FOR_KERNELS, "-x", "c++-header"), _HEADER, folder / f"{_HEADER.name}.gch")
    return folder / _HEADER.name


def _runtime_objects(program: str, folder: Path) -> list[Path]:
    found = [(source, folder / f"{source.stem}.runtime.o") for source in sorted(RUNTIME.glob("*.cpp"))]
    for source, made in found:
        _compiled_once(program, (*_FOR_RUNTIME, "-c"), source, made)
    return [made for _, made in found]


def _compiled_once(program: str, options: tuple[str, ...], source: Path, made: Path) -> None:
    """A file of the runtime, for all kernels."""
    store = ArtefactStore.usual()
    key = "\n".join(("cuda simulator", _version(program), _digest_of_runtime(), *options, source.name))
    if (kept := store.get(key)) is not None:
        made.write_bytes(kept)
    else:
        _compile(program, *options, str(source), "-o", str(made))
        store.put(key, [made.read_bytes()])


def _compile(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(_first_error(done.stderr))


def _first_error(messages: str) -> str:
    at_line = re.search(rf"{re.escape(FILE)}:(\d+):\d+: (?:fatal )?error: (.*)", messages)
    if at_line:
        return f"line {at_line[1]}: {at_line[2]}"
    return next((line for line in messages.splitlines() if "error:" in line), messages or "the C++ compiler failed")
