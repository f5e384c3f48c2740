"""What stands for everything but the source that a compiled program depends on. TVM is not imported for it.

In: options. Out: texts that are equal only where the results are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from eqsat_layout.cost.database import Database
from eqsat_layout.egraph.rules import LARGEST, rules_dir
from eqsat_layout.system.readable import read_bytes

_SAID_AGAIN: Final = frozenset({"notes"})
"""Options that say nothing about the result."""

_USUAL: Final = {"approx": True, "candidates": True, "validate": False, "fallback": False, "objective": "time"}
"""What options are that are not given: whoever says so anyway asks for the same program."""


def surroundings() -> str:
    """This package with its rules, what it plans with, and what was measured of the machine."""
    return f"{_package_digest()} {Database().digest()}"


@cache
def _package_digest() -> str:
    """A digest of all code and rules of the package, and of the versions of what it plans with."""
    digest = hashlib.sha256(f"{version('apache-tvm')} {version('egglog')}".encode())
    root = Path(__file__).parents[1]
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.c"), *rules_dir().glob("*.egg")]):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def options_text(options: Mapping[str, Any]) -> str | None:
    """The options, with rule files by what they say; ``None`` where one is neither a number nor a text."""
    said: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or name in _SAID_AGAIN or _is_usual(name, value):
            continue
        if name == "rules" and isinstance(value, list | tuple):
            from eqsat_layout.planning.checked_options import check_rules  # which knows rules written in Python

            paths = check_rules(value)
            if not paths:
                continue
            files = [path for path in paths if isinstance(path, Path) and path.is_file()]
            if len(files) < len(paths):  # what a rule written in Python makes is code of the user's
                return None
            try:
                said[name] = [[str(path), _rules_digest(path)] for path in files]
            except OSError:  # whoever reads it says so
                return None
        elif name == "assume" and isinstance(value, Mapping):
            said[name] = {str(symbol): repr(size) for symbol, size in value.items()}
        elif isinstance(value, bool | int | float | str):
            said[name] = value
        else:
            return None
    return json.dumps(said, sort_keys=True)


def _rules_digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, LARGEST)).hexdigest()


def _is_usual(name: str, value: Any) -> bool:
    """1 is not ``True``."""
    return name in _USUAL and type(value) is type(_USUAL[name]) and bool(value == _USUAL[name])
