"""The database of measurements: what is written is read, whatever else happens to the file."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat_layout.cost.database import Database, Snapshot
from eqsat_layout.cost.measurements import Constants, KernelKey, Measured
from eqsat_layout.errors import EqsatError
from eqsat_layout.system.folder import default_directory

FORK = multiprocessing.get_context("fork")
NEVER = "2026-01-01T00:00:00Z"


def kernel(number: int, seconds: float = 1e-3, *, computation: str = "", machine: str = "m") -> Measured:
    key = KernelKey(computation or f"c{number}", (f"8x{number}>a.b", "8>a"))
    return Measured(machine, key, seconds, seconds / 10, 5, "1.0", NEVER)


def found(snapshot: Snapshot, records: Iterable[Measured]) -> list[Measured]:
    """Those of the records that the snapshot has."""
    return [r for r in records if snapshot.kernel(r.machine, r.version, r.kernel) == r]


def checked_line(content: dict[str, object]) -> bytes:
    """A line with a right sum, whatever it says."""
    rest = json.dumps(content, separators=(",", ":")).encode()[1:]
    return b'{"sum":"%08x",%s\n' % (zlib.crc32(rest), rest)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "cache" / "deep")


def test_what_is_added_is_read(database: Database) -> None:
    records = [kernel(i) for i in range(5)]
    constants = Constants("m", {"bandwidth": 2.5e10, "launch": 1e-6}, "1.0", NEVER)
    database.add(*records[:3], constants)
    database.add(*records[3:])
    snapshot = Database(database.directory).read()
    assert found(snapshot, records) == records
    assert snapshot.constants == {"m": constants}
    assert snapshot.has_kernels
    assert snapshot.notes == ()


def test_nothing_there_is_an_empty_database(database: Database) -> None:
    snapshot = database.read()
    assert (snapshot.has_kernels, snapshot.constants, snapshot.notes) == (False, {}, ())
    assert database.compact() == 0
    assert not database.path.exists()


def test_every_line_is_json_on_its_own(database: Database) -> None:
    database.add(kernel(1), Constants("é\n\0", {"x": 1.0}, "1.0", NEVER))
    lines = database.path.read_bytes().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["kernel", "constants"]
    assert database.read().constants["é\n\0"].values == {"x": 1.0}


def test_the_last_of_equal_records_counts(database: Database) -> None:
    database.add(kernel(1, 1.0))
    database.add(kernel(1, 3.0), kernel(1, 2.0))
    assert found(database.read(), [kernel(1, 2.0)])


def test_machines_versions_and_formats_are_kept_apart(database: Database) -> None:
    first = kernel(1, 1.0)
    other_formats = replace(first, kernel=KernelKey("c1", ("8>a", "8x1>a.b")), seconds=2.0)
    others = [replace(first, machine="n", seconds=3.0), replace(first, version="2.0", seconds=4.0), other_formats]
    database.add(first, *others)
    assert found(database.read(), [first, *others]) == [first, *others]
    assert set(database.read().kernels("m", "1.0", "c1")) == {first.kernel.formats, other_formats.kernel.formats}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_what_can_not_be_a_measurement_is_refused(database: Database, seconds: float) -> None:
    with pytest.raises(EqsatError, match="not a measurement"):
        database.add(kernel(1), kernel(2, seconds))
    assert not database.path.exists()


def test_a_line_that_is_whole_but_senseless_is_no_record(database: Database) -> None:
    database.add(kernel(1))
    content = json.loads(database.path.read_bytes()) | {"seconds": -1.0}
    del content["sum"]
    with open(database.path, "ab") as file:
        file.write(checked_line(content) + checked_line({"kind": "constants", "machine": "m", "values": 3}))
    snapshot = database.read()
    assert snapshot.kernels("m", "1.0", "c1") == {kernel(1).kernel.formats: kernel(1)}
    assert snapshot.constants == {}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_costs_the_lines_that_it_hits_and_no_others(database: Database, data: st.DataObject) -> None:
    records = [kernel(i) for i in range(6)]
    database.path.unlink(missing_ok=True)
    database.add(*records)
    text = database.path.read_bytes()
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(7)]
    low = data.draw(st.integers(0, len(text) - 1), label="from")
    high = data.draw(st.integers(low, min(len(text), low + 400)), label="to")
    junk = data.draw(st.binary(max_size=50), label="junk")
    damaged = text[:low] + junk + text[high:]
    database.path.write_bytes(damaged)
    snapshot = database.read()
    untouched = [r for i, r in enumerate(records) if starts[i + 1] < low or starts[i] > high]
    assert set(found(snapshot, untouched)) == set(untouched)
    everything = [m for r in records for m in snapshot.kernels("m", "1.0", r.kernel.computation).values()]
    assert set(everything) <= set(records)
    if len(everything) < 6 and set(damaged.splitlines()) - set(text.splitlines()) - {b""}:
        assert any("damaged" in note for note in snapshot.notes)


def test_a_record_after_a_torn_line_is_read(database: Database) -> None:
    database.add(kernel(1), kernel(2))
    with open(database.path, "rb+") as file:
        file.truncate(database.path.stat().st_size - 40)  # a writer died here
    database.add(kernel(3))
    snapshot = database.read()
    assert found(snapshot, [kernel(1), kernel(2), kernel(3)]) == [kernel(1), kernel(3)]
    (note,) = snapshot.notes
    assert note == f"{database.path}: 1 line is damaged and left out, the first is line 2"


def test_an_edited_line_is_detected(database: Database) -> None:
    database.add(kernel(1, 0.5))
    database.path.write_bytes(database.path.read_bytes().replace(b'"seconds":0.5', b'"seconds":0.1'))
    snapshot = database.read()
    assert not snapshot.has_kernels
    assert "1 line is damaged" in snapshot.notes[0]


def test_other_versions_are_left_alone_and_noted(database: Database) -> None:
    database.add(kernel(1))
    newer = database.directory / "measurements.v2.jsonl"
    newer.write_bytes(b"\0something else")
    database.compact()
    snapshot = database.read()
    assert snapshot.notes == (f"{newer} is of another version and is left alone",)
    assert found(snapshot, [kernel(1)])
    assert newer.read_bytes() == b"\0something else"


def test_records_of_unknown_kinds_are_noted_and_outlive_compaction(database: Database) -> None:
    line = checked_line({"kind": "from the future"})
    database.add(kernel(1, 1.0), kernel(1, 2.0))
    with open(database.path, "ab") as file:
        file.write(line)
    assert database.compact() == 1
    assert line in database.path.read_bytes()
    assert "1 line is of a kind that this version does not know" in database.read().notes[0]


def test_compaction_changes_nothing_that_is_read(database: Database) -> None:
    old, new = [kernel(i, 1.0) for i in range(4)], [kernel(i, 2.0) for i in range(2)]
    constants = [Constants("m", {"x": value}, "1.0", NEVER) for value in (1.0, 2.0)]
    database.add(*old, constants[0])
    with open(database.path, "ab") as file:
        file.write(b"torn")
    database.add(*new, constants[1])
    assert database.compact() == 4
    snapshot = database.read()
    assert found(snapshot, [*new, *old[2:]]) == [*new, *old[2:]]
    assert snapshot.constants == {"m": constants[1]}
    assert snapshot.notes == ()
    assert sorted(os.listdir(database.directory)) == ["measurements.lock", "measurements.v1.jsonl"]
    assert database.compact() == 0


def start(work: Callable[..., None], *arguments: object) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=work, args=arguments, daemon=True)  # a test that fails leaves none
    process.start()
    return process


def write_many(directory: Path, machine: str, count: int) -> None:
    database = Database(directory)
    for i in range(count):
        database.add(kernel(i, machine=machine))


def compact_many(directory: Path, count: int) -> None:
    for _ in range(count):
        Database(directory).compact()


def test_processes_write_at_once_and_one_is_killed(database: Database) -> None:
    writers = [start(write_many, database.directory, f"writer{i}", 150) for i in range(3)]
    victim = start(write_many, database.directory, "victim", 1_000_000)
    compactor = start(compact_many, database.directory, 40)
    deadline = time.monotonic() + 30
    while not found(database.read(), [kernel(20, machine="victim")]):
        assert time.monotonic() < deadline, "the victim writes nothing"
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    for process in (*writers, compactor, victim):
        process.join(60)
    assert [p.exitcode for p in (*writers, compactor)] == [0] * 4
    assert victim.exitcode == -signal.SIGKILL
    database.add(kernel(1, machine="survivor"))
    snapshot = database.read()
    everything = [kernel(i, machine=f"writer{w}") for w in range(3) for i in range(150)]
    assert found(snapshot, everything) == everything
    assert found(snapshot, [kernel(1, machine="survivor")])
    of_victim = [kernel(i, machine="victim") for i in range(1_000)]
    written = found(snapshot, of_victim)
    assert written == of_victim[: len(written)], "records got lost in between"
    assert len(written) > 20


def test_a_full_disk_leaves_the_file_as_it_was(database: Database) -> None:
    database.add(kernel(1))
    before = database.path.read_bytes()

    def write_beyond_the_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, len(before) + 50))
        try:
            database.add(kernel(2), kernel(3))
        except EqsatError as error:
            os._exit(0 if str(database.path) in str(error) else 2)
        os._exit(1)

    process = start(write_beyond_the_limit)
    process.join(30)
    assert process.exitcode == 0
    assert database.path.read_bytes() == before


def test_a_place_that_can_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    database = Database(tmp_path / "file")
    with pytest.raises(EqsatError, match=r"measurements\.v1\.jsonl: can't write measurements: "):
        database.add(kernel(1))
    with pytest.raises(EqsatError, match="can't write"):
        database.compact()
    assert not database.read().has_kernels


def test_a_file_that_can_not_be_read_is_an_empty_database_with_a_note(database: Database) -> None:
    database.path.mkdir(parents=True)
    snapshot = database.read()
    assert not snapshot.has_kernels
    (note,) = snapshot.notes
    assert note.startswith(f"{database.path}: ")
    assert note.endswith("no measurements are used")


@pytest.mark.parametrize("name", ["measurements.v1.jsonl", "measurements.lock"])
def test_a_link_is_not_written_through(database: Database, tmp_path: Path, name: str) -> None:
    """A folder that somebody gave had measurements written into a file of one's own."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine\n")
    database.directory.mkdir(parents=True, exist_ok=True)
    (database.directory / name).symlink_to(elsewhere)
    with pytest.raises(EqsatError, match="can't write measurements"):
        database.add(kernel(1))
    assert elsewhere.read_text() == "mine\n"


def test_a_file_without_end_is_not_read(database: Database) -> None:
    """A hole of a terabyte took all memory; compaction waited for a pipe."""
    database.directory.mkdir(parents=True, exist_ok=True)
    with database.path.open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than" in database.read().notes[0]
    assert database.digest() == ""
    database.path.unlink()
    os.mkfifo(database.path)
    with pytest.raises(EqsatError, match="a pipe or a device"):
        database.compact()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_database_is_read_and_not_written(database: Database) -> None:
    database.add(kernel(1))
    for path in (*database.directory.iterdir(), database.directory):
        path.chmod(0o555)
    with pytest.raises(EqsatError, match="can't write"):
        database.add(kernel(2))
    assert found(database.read(), [kernel(1)])
    database.directory.chmod(0o755)


def test_a_lock_that_nobody_lets_go_of_is_an_error(database: Database) -> None:
    import fcntl

    database.add(kernel(1))
    hasty = Database(database.directory, patience=0.05)
    with open(database.directory / "measurements.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EqsatError, match="can't write"):
            hasty.add(kernel(2))
    hasty.add(kernel(3))
    assert found(database.read(), [kernel(i) for i in range(5)]) == [kernel(1), kernel(3)]


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("EQSAT_LAYOUT_CACHE", raising=False)
    assert default_directory() == tmp_path / "home" / ".cache" / "eqsat_layout"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says to ignore it
    assert default_directory() == tmp_path / "home" / ".cache" / "eqsat_layout"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert default_directory() == tmp_path / "caches" / "eqsat_layout"
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "own"))
    assert Database().path == tmp_path / "own" / "measurements.v1.jsonl"
