"""Artefacts on disk: whole or not at all, whoever else writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat_layout.system.store import LIMIT_VARIABLE, ArtefactStore


def test_what_is_put_is_got(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path, 1 << 20)
    assert store.get("a") is None
    store.put("a", [b"first ", memoryview(b"second")])
    assert store.get("a") == b"first second"
    assert ArtefactStore(tmp_path, 1 << 20).get("a") == b"first second"
    assert store.get("b") is None


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_file_is_no_artefact(tmp_path: Path, damage: bytes) -> None:
    store = ArtefactStore(tmp_path, 1 << 20)
    store.put("a", [b"contents"])
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    path.write_bytes(damage)
    assert store.get("a") is None
    store.put("a", [b"contents"])
    assert store.get("a") == b"contents"


def test_an_artefact_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    """A library was read as the description of a program, where files of the cache had been mixed up."""
    store = ArtefactStore(tmp_path, 1 << 20)
    for key in "ab":
        store.put(key, [key.encode()])
    first, second = (p for p in tmp_path.rglob("*") if p.is_file())
    first.write_bytes(second.read_bytes())
    assert [store.get("a"), store.get("b")].count(None) == 1


def test_nobody_waits_for_a_pipe_in_the_store(tmp_path: Path) -> None:
    contents, library = ArtefactStore(tmp_path / "contents", 1 << 20), ArtefactStore(tmp_path / "library", 1 << 20)
    contents.put("a", [b"contents"])
    library.put_file("a", ".so", lambda path: path.write_bytes(b"code") and None)
    (own,) = (p for p in contents.folder.rglob("*") if p.is_file())
    for path in (own, *library.folder.rglob("*.so")):
        path.unlink()
        os.mkfifo(path)
    assert contents.get("a") is None
    assert library.file("a", ".so") is None


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path, 4096)
    for number in range(8):
        store.put(str(number), [bytes(700)])
    for age, path in enumerate(sorted(p for p in tmp_path.rglob("*") if p.is_file())):
        os.utime(path, (age, age))
    kept = store.get("3")
    store.trim()
    left = [number for number in range(8) if store.get(str(number)) is not None]
    assert kept is not None
    assert 3 in left
    assert len(left) == 5


def test_what_a_killed_writer_left_goes_too(tmp_path: Path) -> None:
    """A library is written to a folder of its own first, which stayed for ever and was not counted."""
    store = ArtefactStore(tmp_path, 1 << 16)

    def killed(path: Path) -> None:
        path.write_bytes(bytes(1 << 15))
        os._exit(9)

    for key in range(4):
        child = os.fork()
        if not child:
            store.put_file(str(key), ".so", killed)
        os.waitpid(child, 0)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.so")) > store.limit
    store.trim()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.so")) <= store.limit


def test_no_limit_no_files(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path / "store", 0)
    store.put("a", [b"contents"])
    assert store.get("a") is None
    assert not (tmp_path / "store").exists()


def test_a_folder_that_can_not_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each start compiled everything again, in silence."""
    (tmp_path / "file").write_text("no folder")
    store = ArtefactStore(tmp_path / "file", 1 << 20)
    for _ in range(2):
        store.put("a", [b"contents"])
    assert store.get("a") is None
    (message,) = caplog.messages
    assert message.startswith(f"what is compiled is not kept: {tmp_path / 'file'}: Not a directory")


WRITER = """
import sys
from pathlib import Path
from eqsat_layout.system.store import LIMIT_VARIABLE, ArtefactStore
store = ArtefactStore(Path(sys.argv[1]), 1 << 26)
for round in range(200):
    own = bytes([round % 7]) * 50_000
    store.put("same", [own])
    read = store.get("same")
    assert read is not None and len(read) == 50_000 and len(set(read)) == 1
"""


def test_several_processes_write_one_artefact(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 1


@pytest.mark.parametrize("value", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", "", " 4", "4e3"])
def test_a_variable_that_is_no_number_is_as_if_not_set(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    unset = ArtefactStore.usual().limit
    monkeypatch.setenv(LIMIT_VARIABLE, value)
    assert ArtefactStore.usual().limit == unset


def test_a_folder_of_too_long_a_name_costs_nothing_else() -> None:
    """What was compiled was lost to an error of the file system."""
    store = ArtefactStore(Path("a" * 5000), 1 << 20)
    store.put("one", [b"1"])
    store.trim()
    assert store.get("one") is None
