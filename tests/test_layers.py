"""The rooms of the package and who may import whom: no circles, nothing from above, nothing lazily to hide either."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import eqsat_layout

ROOT = Path(eqsat_layout.__file__).parent
LAYERS = (
    {"errors", "cached_property"},
    {"notes", "maps", "system"},
    {"tir"},
    {"graph"},
    {"cost"},
    {"implementations"},
    {"egraph"},
    {"extract", "passes"},
    {"targets", "report"},
    {"validation", "readers"},
    {"sources"},
    {"planning"},
    {"tuning", "session"},
    {"soundness", "models"},
    {"cli"},
    {"", "__main__"},
)
"""Rooms (and the modules beside them, and the package itself) from the bottom up; those of one layer don't import one
another."""
STARTS_FAST = {"cli", "planning", "report", "session", "soundness", "targets"}
"""Rooms that import others inside of functions, so that ``--help``, a known program, a library, a plan and a test suite
start at once."""


@dataclass(frozen=True)
class Import:
    """``importer`` and ``imported`` are modules of the package without its name; ``is_lazy``: inside of a function;
    ``for_types``: by the type checker alone."""

    importer: str
    imported: str
    is_lazy: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(path: Path, modules: set[str]) -> Iterator[Import]:
    """What a module imports of the package; names for the type checker alone, too."""

    def walk(node: ast.AST, is_lazy: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what is imported"
            assert node.module is not None
            for alias in node.names:
                is_module = f"{node.module}.{alias.name}".partition(".")[2] in modules
                yield (f"{node.module}.{alias.name}" if is_module else node.module), is_lazy
        is_lazy |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, is_lazy)

    for imported, is_lazy in walk(ast.parse(path.read_text()), False):
        package, _, module = imported.partition(".")
        if package == ROOT.name and module in modules:
            yield Import(name_of(path), module, is_lazy)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    paths = sorted(ROOT.rglob("*.py"))
    modules = {name_of(path) for path in paths}
    assert len(modules) > 200
    return [found for path in paths for found in imports_of(path, modules)]


def test_modules_import_one_another_without_circles(imports: list[Import]) -> None:
    graph: dict[str, set[str]] = {}
    for found in imports:
        graph.setdefault(found.importer, set()).add(found.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_a_room_imports_rooms_below_it_only(imports: list[Import]) -> None:
    layer = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    between = [f for f in imports if f.imported and room_of(f.importer) != room_of(f.imported)]
    assert len(between) > 400
    unknown = {room for f in between for room in (room_of(f.importer), room_of(f.imported))} - set(layer)
    assert not unknown, "a new room has its place in LAYERS"
    wrong = [str(f) for f in between if layer[room_of(f.imported)] >= layer[room_of(f.importer)]]
    assert wrong == []


def test_imports_are_lazy_only_where_starting_takes_long(imports: list[Import]) -> None:
    assert [str(f) for f in imports if f.is_lazy and room_of(f.importer) not in STARTS_FAST] == []


def test_every_room_says_what_belongs_there() -> None:
    rooms = {path.parent for path in ROOT.rglob("*.py")}
    assert len(rooms) >= 40
    silent = [str(room.relative_to(ROOT)) for room in rooms if not _docstring(room / "__init__.py")]
    assert silent == []


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None


def test_public_classes_have_names_of_their_own() -> None:
    """So that a name says which one it is, wherever it stands."""
    assert _homonyms(ast.ClassDef) == {}


def test_public_functions_have_names_of_their_own() -> None:
    """But those that are one thing to be done by each of several modules, and commands called as what they do."""
    of_targets = {"build", "candidates", "lowered", "machine_of", "make_target", "slow_kernels"}
    of_readers = {"converted", "takes"}
    commands = {"calibrate", "compile", "fuzz_programs", "main", "optimize", "plan", "tune"}
    assert set(_homonyms(ast.FunctionDef)) == of_targets | of_readers | commands


def _homonyms(kind: type[ast.ClassDef | ast.FunctionDef]) -> dict[str, list[str]]:
    """The modules that define a public class or function, for names that several do."""
    places: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, kind) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    return {name: found for name, found in places.items() if len(found) > 1}
