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

from eqsat_layout.system.store import ArtefactStore

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
    store, key = ArtefactStore.usual(), f"code of {module}: {_digest_of_files(sorted({*_ROOMS, own}))}"
    known = store.get(key)
    if known is None:
        known = memoryview(_digest_of_code(module, own).encode())
        store.put(key, [known])
    return f"{version('eqsat-layout')}+{bytes(known).decode()}"


def _digest_of_files(packages: list[str]) -> str:
    """A digest of the bytes of all modules that the digest of code may depend on."""
    digest = hashlib.sha256(sys.version.encode())
    for package in packages:
        for root in _folders(package) or filter(None, [_file(package)]):
            for path in sorted(root.rglob("*.py")) or [root]:
                digest.update(f"{package} {path.relative_to(root)} ".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest_of_code(module: str, own: str) -> str:
    texts: dict[str, str] = {}
    rooms, waiting = (*_ROOMS, own), [module]
    while waiting:
        name = waiting.pop()
        file = _file(name) if name not in texts and name.startswith(rooms) else None
        if file is not None:
            words: list[str] = []
            imports: list[ast.Import | ast.ImportFrom] = []
            _read(ast.parse(file.read_bytes()), words, imports)
            texts[name] = " ".join(words)
            waiting += _modules(imports, rooms)
    digest = hashlib.sha256()
    for text in sorted(texts.values()):  # by content: a file that moves stays what it is
        digest.update(text.encode())
    return digest.hexdigest()[:8]


def _read(node: ast.AST, words: list[str], imports: list[ast.Import | ast.ImportFrom]) -> None:
    """What code says, but for statements that are a text, and its imports; ``ast.dump`` takes three times as long."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports.append(node)
    words.append(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            _read(value, words, imports)
        elif isinstance(value, list):
            words.append("[")
            for one in value:
                if not isinstance(one, ast.AST):
                    words.append(repr(one))
                elif not _is_text(one):
                    _read(one, words, imports)
            words.append("]")
        else:
            words.append(repr(value))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


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


def _modules(imports: list[ast.Import | ast.ImportFrom], rooms: tuple[str, ...]) -> Iterator[str]:
    """The modules that are imported, and names taken from packages, which may be modules."""
    for node in imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module is not None and not node.level:
            yield node.module
            if node.module.startswith(rooms) and _folders(node.module):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
