"""All Relax modules of TVM's tests: each test file in a process of its own, with so much time and memory.

In: a checkout of TVM and a folder. Out: the modules, each with the names that the tests know it by; and what was left
out, and why.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.processes import environment
from bench.soundness.tvm_suite.collecting import NAMES, TESTS

_CPU_SECONDS: Final = 240
_WALL_SECONDS: Final = 900
_MEMORY: Final = 12 << 30
_MADE: Final = (" builder", " built", " call", " text")
_DONE: Final = "files.jsonl"


@dataclass
class Module:
    """``names``: ``relax/test_x.py::test_y Before``, in the order of the tests, never empty."""

    path: Path
    names: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The first one."""
        return self.names[0]

    @property
    def is_written(self) -> bool:
        """Whether a test writes it down, rather than makes it by a pass or a builder."""
        return any(name.rpartition(" ")[2].isidentifier() and not name.endswith(_MADE) for name in self.names)


def harvest(checkout: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Runs the files that are not done yet."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {entry["file"] for entry in _lines(folder / _DONE)}
    for path in test_files(checkout):
        file = path.relative_to(checkout / TESTS).as_posix()
        if file in done:
            continue
        before = sum(1 for _ in folder.glob("*.json"))
        said = _collected(path, folder)
        with (folder / _DONE).open("a") as log:
            log.write(json.dumps({"file": file, "said": said}) + "\n")
        say(f"{file}: {sum(1 for _ in folder.glob('*.json')) - before} new modules{said and ', ' + said}")


def test_files(checkout: Path) -> list[Path]:
    """Those that speak of Relax."""
    found = sorted((checkout / TESTS).rglob("test_*.py"))
    return [path for path in found if re.search(r"\brelax\b", path.read_text())]


def modules(folder: Path) -> list[Module]:
    """What was harvested, each module once, one of each file by turns, so that the first ones are a sample of all."""
    found: dict[str, Module] = {}
    for entry in _lines(folder / NAMES):
        digest = entry.get("module")
        if digest is not None:
            module = found.setdefault(digest, Module(folder / f"{digest}.json"))
            name = f"{entry['file']}::{entry['test']} {entry['name']}"
            if name not in module.names:
                module.names.append(name)
    turns = defaultdict[str, Iterator[int]](count)
    own = sorted(found.values(), key=lambda m: m.path.name)
    return sorted(own, key=lambda m: next(turns[m.name.partition("::")[0]]))


def lost_files(folder: Path) -> list[tuple[str, str]]:
    """Test files that did not come to their end, and why."""
    return [(entry["file"], entry["said"]) for entry in _lines(folder / _DONE) if entry["said"]]


def left_out(folder: Path) -> list[tuple[str, list[str]]]:
    """Why something was left out, and what: a module, a test, or a file; what most were left out for comes first."""
    found = defaultdict[str, dict[str, None]](dict)
    for entry in _lines(folder / NAMES):
        if "error" in entry:
            found[entry["error"]][f"{entry['file']}::{entry['test']} {entry['name']}".rstrip(": ")] = None
    return sorted(((why, list(what)) for why, what in found.items()), key=lambda item: (-len(item[1]), item[0]))


def files_without_modules(folder: Path) -> list[str]:
    """Test files that speak of Relax, and of which no module is known."""
    full = {entry["file"] for entry in _lines(folder / NAMES) if "module" in entry}
    return [entry["file"] for entry in _lines(folder / _DONE) if entry["file"] not in full]


def _collected(path: Path, folder: Path) -> str:
    """What is to be said of it; empty if it came to its end. Of one that does not, the text is left."""
    said = _ran(path, folder)
    if said:
        tests = [e["test"] for e in _lines(folder / NAMES) if path.as_posix().endswith(f"/{e['file']}") and e["test"]]
        said += f", in {tests[-1]} or later" if tests else ", before its first module"
        if in_text := _ran(path, folder, "text"):
            said += f"; of its text, {in_text}"
    return said


def _ran(path: Path, folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "bench.soundness.tvm_suite.collecting", str(path), str(folder), *options]
    try:
        code = subprocess.run(
            command,
            env=environment(1),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_WALL_SECONDS,
            preexec_fn=_bounded,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return "it takes too long"
    return "" if code == 0 else f"the process ended with {signal.Signals(-code).name if code < 0 else code}"


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)
