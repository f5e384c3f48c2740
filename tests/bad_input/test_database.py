"""Databases of measurements that are damaged or can't be written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tvm
from bad_input.rows import two_convolutions
from compare import assert_same_results

import eqsat_layout
from eqsat_layout.cost.database import Database, now
from eqsat_layout.cost.measurements import Constants
from eqsat_layout.errors import EqsatError


def record() -> Constants:
    return Constants("machine", {"bandwidth": 1e9}, "0", now())


def planned_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(folder))
    mod = two_convolutions()
    plan = eqsat_layout.plan(mod)
    assert_same_results(mod, plan.module)
    return plan


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x00\xff" * 50, "damaged"),
        (b"{}\n[]\nnull\n", "damaged"),
        (b'{"sum":"00000000","kind":"kernel"}\n', "damaged"),
        (b"SQLite format 3\x00", "damaged"),
        (b"(" * 100_000, "damaged"),
    ],
    ids=["noise", "other JSON", "a wrong sum", "another database", "deeply nested"],
)
def test_a_corrupt_database_is_said_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    database = Database(tmp_path)
    database.add(record())
    with database.path.open("ab") as file:
        file.write(content)
    plan = planned_with(tmp_path, monkeypatch)
    assert [note for note in plan.notes if says in note and str(database.path) in note]
    database.add(record())
    assert database.read().constants["machine"].values == {"bandwidth": 1e9}


def test_a_torn_database_keeps_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path)
    database.add(record())
    whole = database.path.read_bytes()
    for length in (1, 9, 20, len(whole) - 2):
        database.path.write_bytes(whole + whole[:length])
        assert "machine" in database.read().constants
        assert len(database.read().notes) == 1
    database.path.write_bytes(whole[: len(whole) // 2])
    assert planned_with(tmp_path, monkeypatch).notes


@pytest.mark.parametrize("kind", ["a file", "a folder in place of the file"])
def test_a_cache_that_is_no_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    folder = tmp_path / "cache"
    if kind == "a file":
        folder.write_text("mine")
    else:
        Database(folder).path.mkdir(parents=True)
    assert planned_with(folder, monkeypatch).notes
    with pytest.raises(EqsatError, match="can't write measurements"):
        Database(folder).add(record())


def test_a_database_of_another_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "measurements.v99.jsonl"
    other.write_bytes(b"anything")
    assert [note for note in planned_with(tmp_path, monkeypatch).notes if "another version" in note]
    Database(tmp_path).add(record())
    assert other.read_bytes() == b"anything"


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow beyond ``size`` bytes."""
    import signal

    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.add(record())
    before = database.path.read_bytes()
    with full_disk(len(before) + 10), pytest.raises(EqsatError, match="can't write measurements"):
        database.add(record(), record())
    assert database.path.read_bytes() == before
    database.add(record())


def test_a_full_disk_is_said_by_planning_and_by_writing(tmp_path: Path) -> None:
    mod = two_convolutions()
    source = tmp_path / "in.json"
    source.write_text(tvm.ir.save_json(mod))
    with full_disk(0), pytest.raises(EqsatError, match="can't write"):
        eqsat_layout.plan(mod)
    eqsat_layout.plan(mod)
    from eqsat_layout.readers.modules import write_module

    out = tmp_path / "out.json"
    out.write_text("before")
    with full_disk(100), pytest.raises(EqsatError, match=r"out\.json"):
        write_module(mod, out)
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.json", "out.json"]
