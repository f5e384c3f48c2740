"""Translated kernels and the runtime as a shared library, made once per text and kept on disk.

In: C++. Out: the bytes of a library. Needs g++ or clang++ and nothing of CUDA.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
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

_TOGETHER: Final = 16
"""Texts of one library. It is kept, and loaded, for each of them: more would take more memory than time."""


def built(texts: Sequence[str]) -> list[memoryview | bytes]:
    """The library of each text. Texts that are not kept share some: starting the compiler takes as long as a kernel.

    Raises :class:`TargetError` where there is no C++ compiler, :class:`SourceError` for text that is not C++.
    """
    store, program = ArtefactStore.usual(), compiler()
    common = ("cuda simulator", _version(program), _digest_of_runtime(), *_FOR_KERNELS, *_linker())
    keys = {text: "\n".join((*common, text)) for text in texts}
    found: dict[str, memoryview | bytes] = {
        text: kept for text, key in keys.items() if (kept := store.get(key)) is not None
    }
    new = [text for text in keys if text not in found]
    for first in range(0, len(new), _TOGETHER):
        made = _libraries(program, new[first : first + _TOGETHER])
        for text, library in made.items():
            store.put(keys[text], [library])
        found |= made
    return [found[text] for text in texts]


def _libraries(program: str, texts: Sequence[str]) -> dict[str, memoryview | bytes]:
    """One for all of the texts; one for each, where they do not go together."""
    try:
        return dict.fromkeys(texts, _library(program, texts))
    except SourceError:  # one of them alone may be at fault, or two have a name in common
        if len(texts) == 1:
            raise
        return {text: _library(program, [text]) for text in texts}


def _library(program: str, texts: Sequence[str]) -> bytes:
    """Several texts have a namespace each: they define functions of the same names."""
    if len(texts) > 1:
        texts = [f"namespace kernel{i} {{\n{text}\n}}\n" for i, text in enumerate(texts)]
    runtime = _runtime(program)
    with tempfile.TemporaryDirectory() as name:
        kernels, compiled, library = (str(Path(name, file)) for file in ("kernels.cpp", "kernels.o", "kernels.so"))
        Path(kernels).write_text("".join(texts))
        _compile(program, *_FOR_KERNELS, "-include", runtime.header, "-c", kernels, "-o", compiled)
        _compile(program, "-shared", *_linker(), runtime.objects, compiled, "-o", library, "-ldl")
        return Path(library).read_bytes()


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


class _Runtime:
    """The runtime compiled, in files that go with the process."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="eqsat_layout_sim_")
        folder = Path(self._folder.name)
        self.header, self.objects = str(_HEADER), str(folder / "runtime.o")
        if Path(program).name == "g++":  # which finds the header compiled
            self.header = str(folder / _HEADER.name)
            _compiled_once(program, (*_FOR_KERNELS, "-x", "c++-header"), _HEADER, folder / f"{_HEADER.name}.gch")
        objects = {source: folder / f"{source.stem}.o" for source in sorted(RUNTIME.glob("*.cpp"))}
        for source, made in objects.items():
            _compiled_once(program, (*_FOR_RUNTIME, "-c"), source, made)
        _compile(program, "-r", "-nostdlib", *_linker(), *map(str, objects.values()), "-o", self.objects)


_runtime = cache(_Runtime)


def _compiled_once(program: str, options: tuple[str, ...], source: Path, made: Path) -> None:
    """A file of the runtime, kept for all processes."""
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
