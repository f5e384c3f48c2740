"""Measured kernels and constants on disk, one checked JSON line each.

In: records of what was measured, by any number of processes at once. Out: a :class:`Snapshot` that is read once and
then looked up. A torn or edited line costs only itself; what another version wrote is neither read nor touched.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from eqsat_layout.cost.measurements import (
    DIGEST,
    FORMAT_VERSION,
    KERNEL,
    SUM,
    Constants,
    KernelKey,
    Measured,
    Record,
    group_digest,
    identity_in,
    is_whole,
    line_of,
    record_in,
)
from eqsat_layout.errors import EqsatError
from eqsat_layout.system.folder import default_directory

_FILE: Final = f"measurements.v{FORMAT_VERSION}.jsonl"
_ANY_FILE: Final = re.compile(r"measurements\.v(\d+)\.jsonl")
_LOCK: Final = "measurements.lock"
_LARGEST: Final = 256 << 20
"""Bytes of a file that is read; a line has some 300."""
_TO_WRITE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
"""A link in a folder of somebody else's would have another file written."""


FormatKeys = tuple[str, ...]
"""The keys of the formats of operands and results."""


class Snapshot:
    """What the database held when it was read; of equal records the last. ``notes`` say what could not be read.

    Lines are kept as they are and taken apart when asked for: a program asks for few of them.
    """

    def __init__(
        self,
        lines: Mapping[bytes, Sequence[bytes]] | None = None,
        constants: Mapping[str, Constants] | None = None,
        notes: Sequence[str] = (),
    ):
        self._lines = lines or {}
        self._found: dict[bytes, Mapping[FormatKeys, Measured]] = {}
        self.constants = dict(constants or {})
        self.notes = tuple(notes)

    @property
    def has_kernels(self) -> bool:
        """Some kernel was measured, on whatever machine."""
        return bool(self._lines)

    def kernels(self, machine: str, version: str, computation: str) -> Mapping[FormatKeys, Measured]:
        """The kernels that compute this, by their formats. Kernels of other versions had other schedules."""
        asked = (machine, version, computation)
        group = group_digest(*asked)
        found = self._found.get(group)
        if found is None:
            records = map(record_in, self._lines.get(group, ()))
            found = self._found[group] = {
                r.kernel.formats: r
                for r in records
                if isinstance(r, Measured) and (r.machine, r.version, r.kernel.computation) == asked
            }
        return found

    def kernel(self, machine: str, version: str, key: KernelKey) -> Measured | None:
        """The kernel, if it was measured."""
        return self.kernels(machine, version, key.computation).get(key.formats)


class Database:
    """A directory of records. Nothing is kept in memory; :meth:`read` what there is, :meth:`add` to it."""

    def __init__(self, directory: str | Path | None = None, *, patience: float = 10.0):
        """``directory``: default is :func:`default_directory`. It is made by the first :meth:`add`.

        ``patience``: seconds to wait for another writer, who holds the lock for the time of one write.
        """
        self.directory = default_directory() if directory is None else Path(directory)
        self._patience = patience

    @property
    def path(self) -> Path:
        """The file that this version reads and writes."""
        return self.directory / _FILE

    def digest(self) -> str:
        """What stands for all that :meth:`read` gives."""
        try:
            return hashlib.sha256(self._bytes()).hexdigest()
        except OSError:
            return ""

    def _bytes(self) -> bytes:
        """The whole file; ``OSError`` for what would never come to an end."""
        if self.path.exists() and not self.path.is_file() and not self.path.is_dir():
            raise OSError(0, "a pipe or a device")
        with self.path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise OSError(0, f"larger than {_LARGEST >> 20} MB")
        return data

    def read(self) -> Snapshot:
        """All records. Never raises: what can't be read is left out, and ``notes`` say so."""
        kernels: dict[bytes, list[bytes]] = {}
        constants: dict[str, Constants] = {}
        notes = self._notes_on_other_versions()
        damaged: list[int] = []
        unknown = 0
        try:
            data = self._bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            return Snapshot(notes=(*notes, f"{self.path}: {error.strerror or error}; no measurements are used"))
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line:
                continue
            if not is_whole(line):
                damaged.append(number)
            elif line.startswith(KERNEL, SUM):
                kernels.setdefault(line[SUM + len(KERNEL) : SUM + len(KERNEL) + DIGEST], []).append(line)
            elif isinstance(record := record_in(line), Constants):
                constants[record.machine] = record
            else:
                unknown += 1
        if damaged:
            notes.append(f"{self.path}: {_lines(len(damaged))} damaged and left out, the first is line {damaged[0]}")
        if unknown:
            notes.append(f"{self.path}: {_lines(unknown)} of a kind that this version does not know")
        return Snapshot(kernels, constants, notes)

    def add(self, *records: Record) -> None:
        """Appends the records in one write: all of them or, where that fails with an :class:`EqsatError`, none."""
        text = b"".join(line_of(record) for record in records)
        if not text:
            return
        with self._writing():
            descriptor = os.open(self.path, os.O_APPEND | _TO_WRITE, 0o644)
            try:
                _append(descriptor, text)
            finally:
                os.close(descriptor)

    def check_writable(self) -> None:
        """:class:`EqsatError` where nothing could be added; nothing is made."""
        there = next(path for path in (self.path, *self.path.absolute().parents) if os.path.exists(path))
        if there == self.path and there.is_dir():
            raise self._refused(os.strerror(errno.EISDIR))
        if there != self.path and not there.is_dir():
            raise self._refused(os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK):
            raise self._refused(os.strerror(errno.EACCES))

    def _refused(self, reason: object) -> EqsatError:
        return EqsatError(f"{self.path}: can't write measurements: {reason}")

    def compact(self) -> int:
        """Drops damaged lines and records that a later one replaces; how many. Lines of unknown kinds stay."""
        with self._writing():
            try:
                lines = [line for line in self._bytes().split(b"\n") if line]
            except FileNotFoundError:
                return 0
            kept: dict[Any, bytes] = {}
            for line in filter(is_whole, lines):
                kept[identity_in(line)] = line
            if len(kept) < len(lines):
                _replace(self.path, b"".join(line + b"\n" for line in kept.values()))
            return len(lines) - len(kept)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Alone among writers; whatever the system refuses is an :class:`EqsatError`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with _lock(self.directory / _LOCK, self._patience):
                yield
        except OSError as error:
            raise self._refused(error.strerror or error) from error

    def _notes_on_other_versions(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return []  # reading the file itself says why
        return [
            f"{self.directory / name} is of another version and is left alone"
            for name in names
            if (match := _ANY_FILE.fullmatch(name)) and name != _FILE and int(match[1]) != FORMAT_VERSION
        ]


def now() -> str:
    """The date that a record made now carries."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"


def _append(descriptor: int, text: bytes) -> None:
    """Writes at the end, on a line of its own; puts the file back as it was if it can't write all of it."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a writer died in the middle of a line
        text = b"\n" + text
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        with open(draft, "wb", opener=lambda name, _: os.open(name, os.O_EXCL | _TO_WRITE, 0o644)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


@contextmanager
def _lock(path: Path, patience: float) -> Iterator[None]:
    """Holds the lock file, which a dying process lets go of; OSError if another keeps it."""
    import fcntl

    descriptor = os.open(path, _TO_WRITE, 0o644)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)
