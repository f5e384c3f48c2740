"""The version of a target's kernels: of its code, and of nothing else."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from eqsat_layout.targets.version import source_digest

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module of a package that is there to be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shaped").mkdir()

    def write(name: str, text: str) -> None:
        (tmp_path / "shaped" / name).write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        source_digest.cache_clear()

    write("__init__.py", "")
    write("target.py", "from shaped import kernels\n")
    write("kernels.py", "WIDTH = 4\n")
    write("notes.py", "")
    return write


def test_only_code_that_makes_kernels_counts(write: Write) -> None:
    first = source_digest("shaped.target")
    write("kernels.py", '"""Kernels."""\nWIDTH = 4  # lanes\n')
    write("notes.py", "SAID = 1\n")
    assert source_digest("shaped.target") == first
    write("kernels.py", "WIDTH = 8\n")
    second = source_digest("shaped.target")
    assert second != first
    write("kernels.py", "WIDTH = 4\n")
    assert source_digest("shaped.target") == first
    write("target.py", "")
    assert source_digest("shaped.target") not in (first, second)


def test_code_that_no_file_holds_is_another_version_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typed_in", ModuleType("typed_in"))
    source_digest.cache_clear()
    first = source_digest("typed_in")
    assert source_digest("typed_in") == first
    source_digest.cache_clear()
    assert source_digest("typed_in") != first
