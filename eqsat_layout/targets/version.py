"""The version of a target's kernels: a digest of the code that makes them.

In: the module of a target. Out: the package's version and a digest of the modules that it is made of, found by their
imports. Comments and docstrings don't count, so that rewording one leaves measurements and built kernels as they are.
To parse all of it takes half a second, so the digest is kept beside what is built, by the bytes of the files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eqsat_layout.system.store import Store

_ROOMS: Final = ("eqsat_layout.targets", "eqsat_layout.passes")
"""What makes kernels lies there or in the target's own package; what is below them (the algebra, TIR) gives the same
kernels or wrong ones."""


@cache
def source_digest(module: str) -> str:
    """``0.1.0+1a2b3c4d`` for the target that ``module`` defines; a file that it does not import plays no part.

    A module that no file holds, such as a notebook, is another version in each process.
    """
    own = module.rpartition(".")[0] or module
    if _file(module) is None:
        return f"{version('eqsat-layout')}+{os.urandom(4).hex()}"
    store, key = Store.usual(), f"code of {module}: {_digest_of_files(sorted({*_ROOMS, own}))}"
    known = store.get(key)
    if known is None:
        known = memoryview(_digest_of_code(module, own).encode())
        store.put(key, [known])
    return f"{version('eqsat-layout')}+{bytes(known).decode()}"


def _digest_of_files(packages: list[str]) -> str:
    """Of the bytes of all modules that the digest of code may depend on."""
    digest = hashlib.sha256(sys.version.encode())
    for package in packages:
        for root in _folders(package) or filter(None, [_file(package)]):
            for path in sorted(root.rglob("*.py")) or [root]:
                digest.update(f"{package} {path.relative_to(root)} ".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest_of_code(module: str, own: str) -> str:
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources or not name.startswith((*_ROOMS, own)):
            continue
        file = _file(name)
        if file is None:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        sources[name] = ast.dump(_without_docstrings(tree))
        waiting += _imports(tree, (*_ROOMS, own))
    digest = hashlib.sha256()
    for text in sorted(sources.values()):  # by content: a file that moves stays what it is
        digest.update(text.encode())
    return digest.hexdigest()[:8]


def _file(module: str) -> Path | None:
    """Where the text of a module is."""
    spec = _spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _folders(module: str) -> list[Path]:
    """Where the modules of a package are."""
    spec = _spec(module)
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ValueError, ModuleNotFoundError):  # a program that was started as a file, or a module that was made by hand
        file = getattr(sys.modules.get(module), "__file__", None)
        return importlib.util.spec_from_file_location(module, file) if file else None


def _imports(tree: ast.Module, rooms: tuple[str, ...]) -> Iterator[str]:
    """The modules that are imported, and names taken from packages, which may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if node.module.startswith(rooms) and _is_module(name, node.module))


def _is_module(name: str, package: str) -> bool:
    return bool(_folders(package)) and _spec(name) is not None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [s for s in node.body if not _is_text(s)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)  # type: ignore[attr-defined]
