"""CUDA C++ as the C++ that a host compiler takes, line by line where it was.

In: the text of kernels. Out: the text with inline PTX and shared memory replaced by calls of the runtime, a function
for each kernel that Python can call, and what is known of the kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eqsat_layout.soundness.cuda.assembly import end_of_parentheses, translated
from eqsat_layout.soundness.cuda.faults import SourceError

FILE: Final = "kernel.cu"
"""The name of the source in the compiler's messages."""

_SKIPPED: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*', re.DOTALL | re.MULTILINE
)
_STEP: Final = re.compile(
    rf"(?P<skip>{_SKIPPED.pattern})|(?P<asm>\b(?:__asm__|asm)\b[\s\w]*\()", re.DOTALL | re.MULTILINE
)
_ALIGN: Final = r"(?:(?:alignas|__align__)\((\d+)\)\s*)?"
_DYNAMIC: Final = re.compile(rf"extern\s+__shared__\s+{_ALIGN}([\w:]+(?:\s+\w+)*?)\s+(\w+)\s*\[\s*\]\s*;")
_STATIC: Final = re.compile(rf"__shared__\s+{_ALIGN}([\w:]+(?:\s+\w+)*?)\s+(\w+)\s*((?:\[[^\]]*\])*)\s*;")
_KERNEL: Final = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\(\s*(\d+)[^)]*\)\s*)?(\w+)\s*\(([^)]*)\)\s*\{'
)


@dataclass(frozen=True)
class SourceKernel:
    """``parameters``: their C++ types; ``most_threads``: what ``__launch_bounds__`` says. ``restricted``: numbers of
    parameters that are ``__restrict__``."""

    name: str
    parameters: tuple[str, ...]
    most_threads: int
    restricted: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Translation:
    """``text``: C++ for ``runtime/device.h``."""

    text: str
    kernels: tuple[SourceKernel, ...]


def translate(source: str) -> Translation:
    """Raises :class:`SourceError` where the text has what the simulator does not know."""
    body = _shared_memory(_inline_assembly(source))
    kernels = tuple(_kernel(found) for found in _KERNEL.finditer(_without_comments(source)))
    if not kernels:
        raise SourceError('line 1: no kernel here: none is declared extern "C" __global__ void')
    doors = "".join(map(_door, kernels))
    return Translation(f'#line 1 "{FILE}"\n{body}\n#line 1 "doors"\n{doors}', kernels)


def _inline_assembly(source: str) -> str:
    pieces, at = [], 0
    while found := _STEP.search(source, at):
        pieces.append(source[at : found.start()])
        if found["skip"] is not None:
            pieces.append(found[0])
            at = found.end()
            continue
        end = end_of_parentheses(source, found.end() - 1)
        line = source.count("\n", 0, found.start()) + 1
        pieces.append(translated(_without_comments(source[found.end() : end]), line))
        pieces.append("\n" * source.count("\n", found.start(), end))
        at = end + 1
    return "".join([*pieces, source[at:]])


def _shared_memory(text: str) -> str:
    """Declarations of shared memory become references into that of the runtime."""
    count = iter(range(text.count("__shared__")))

    def static(found: re.Match[str]) -> str:
        alignment, kind, name, extents = found.groups()
        align = alignment or "16"
        return f"auto& {name} = sim::shared<{kind}{extents}, {align}>({next(count)});" + "\n" * found[0].count("\n")

    text = _DYNAMIC.sub(r"\2* \3 = reinterpret_cast<\2*>(sim::shared_memory());", text)
    return _STATIC.sub(static, text)


def _without_comments(text: str) -> str:
    """Comments as spaces, so that nothing moves to another line."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0]) if found[0].startswith("/") else found[0]

    return _SKIPPED.sub(blank, text)


def _kernel(found: re.Match[str]) -> SourceKernel:
    parameters: list[str] = []
    restricted = set()
    for parameter in filter(None, map(str.strip, found[3].split(","))):
        if "__restrict__" in parameter:
            restricted.add(len(parameters))
        declared = re.fullmatch(
            r"(.*?)\s*\b\w+", re.sub(r"\b(?:__restrict__|__grid_constant__)\b", "", parameter).strip()
        )
        if not declared:
            raise SourceError(f"kernel {found[2]}: the parameter {parameter!r} can't be read")
        parameters.append(" ".join(declared[1].split()))
    return SourceKernel(found[2], tuple(parameters), int(found[1] or 1024), frozenset(restricted))


def _door(kernel: SourceKernel) -> str:
    values = ", ".join(
        f"({kind})values[{i}]" if kind.endswith("*") else f"*({kind}*)values[{i}]"
        for i, kind in enumerate(kernel.parameters)
    )
    sizes = ", ".join(f"sizeof(std::remove_pointer_t<{kind}>)" for kind in kernel.parameters)
    return (
        f'extern "C" SIM_DOOR void sim_call_{kernel.name}(void** values) {{ (void)values; {kernel.name}({values}); }}\n'
        f'extern "C" SIM_SEEN const int sim_sizes_{kernel.name}[] = {{{sizes or 0}}};\n'
    )
