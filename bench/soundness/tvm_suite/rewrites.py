"""Our rewrites beside those that TVM's tests expect.

In: modules with the names that tests know them by. Out: a file for each test that writes down a module before and after
a pass: both, and what ``optimize`` makes of the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import tvm

import eqsat_layout
from bench.soundness.tvm_suite.harvest import Module
from eqsat_layout.notes import last_of
from eqsat_layout.system.workers import WorkerError, Workers

_BEFORE: Final = re.compile(r"(?i)before|input|module|^mod$")
_EXPECTED: Final = re.compile(r"(?i)expected|after")


def write_rewrites(modules: Sequence[Module], folder: Path, processes: Workers) -> None:
    """Those that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for test, before, expected in pairs(modules):
        path = folder / (re.sub(r"[^\w.]+", "_", test) + ".py")
        if not path.exists():
            try:
                path.write_text(processes.apart(side_by_side, (before.path, expected.path)))
            except WorkerError as error:
                path.write_text(f"# {error}\n")


def side_by_side(paths: tuple[Path, Path]) -> str:
    """The text of one test's file."""
    before, expected = (tvm.ir.load_json(path.read_text()) for path in paths)
    texts = [("before", _text(before)), ("expected by the test", _text(expected)), ("ours", _ours(before))]
    return "\n\n".join(f"# {title}\n{text}" for title, text in texts)


def pairs(modules: Sequence[Module]) -> Iterator[tuple[str, Module, Module]]:
    """The test, its first module of each kind, where there are both."""
    found: dict[str, dict[bool, Module]] = defaultdict(dict)
    for module in modules:
        for name in module.names:
            test, _, own = name.rpartition(" ")
            if own.isidentifier() and (_EXPECTED.search(own) or _BEFORE.search(own)):
                found[test].setdefault(_EXPECTED.search(own) is not None, module)
    for test, sides in sorted(found.items()):
        if len(sides) == 2:
            yield test, sides[False], sides[True]


def _text(mod: Any) -> str:
    return str(mod.script(show_meta=False))


def _ours(mod: Any) -> str:
    try:
        return _text(eqsat_layout.optimize(mod))
    except Exception as error:  # on purpose: this is the place to read it
        return f"# {type(error).__name__}: {last_of(error)}\n"
