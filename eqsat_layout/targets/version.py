"""The version of a target's kernels: a digest of the code that makes them.

In: the module of a target. Out: the package's version and a digest of the modules that it is made of, found by their
imports. Comments and docstrings don't count, so that rewording one leaves measurements and built kernels as they are.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

_ROOMS: Final = ("eqsat_layout.targets", "eqsat_layout.passes")
"""What makes kernels lies there or in the target's own package; what is below them (the algebra, TIR) gives the same
kernels or wrong ones."""


@cache
def source_digest(module: str) -> str:
    """``0.1.0+1a2b3c4d`` for the target that ``module`` defines; a file that it does not import plays no part."""
    own = module.rpartition(".")[0] or module
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources or not name.startswith((*_ROOMS, own)):
            continue
        tree = _parsed(name)
        if tree is None:
            continue
        sources[name] = ast.dump(_without_docstrings(tree))
        waiting += _imports(tree, name)
    digest = hashlib.sha256()
    for text in sorted(sources.values()):  # by content: a file that moves stays what it is
        digest.update(text.encode())
    return f"{version('eqsat-layout')}+{digest.hexdigest()[:8]}"


def _parsed(name: str) -> ast.Module | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    """The modules that are imported, and names taken from packages, which may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if _is_module(node.module, alias.name))


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package) if package.startswith(_ROOMS) else None
    if spec is None or spec.submodule_search_locations is None:
        return False
    return importlib.util.find_spec(f"{package}.{name}") is not None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [s for s in node.body if not _is_text(s)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)  # type: ignore[attr-defined]
