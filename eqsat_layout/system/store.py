"""Built artefacts on disk, by what they are built from: kernels as object files, whole programs.

In: a key that says everything that an artefact depends on, and its bytes. Out: the bytes again, in this process or in
any other. Writers need no lock: a file appears whole, under a name that only equal contents have. What nobody has used
for longest goes when there is too much.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from eqsat_layout.system.folder import LOCATION, default_directory, number_in_environment
from eqsat_layout.system.frames import ALIGNMENT
from eqsat_layout.system.trust import distrust, is_own_file

_LOG: Final = logging.getLogger(__name__)
LIMIT_VARIABLE: Final = "EQSAT_LAYOUT_CACHE_MEGABYTES"
"""The environment variable that says how large the store may get; 0: nothing is kept."""

_LIMIT: Final = 4096
_FOLDER: Final = "built.v1"
_DIGEST: Final = 32
"""Bytes of a SHA-256 in front of the contents, of these and of their key: no artefact is a torn or edited file, or one
under the name of another."""

_PIECE: Final = 16 << 20


@dataclass(frozen=True)
class ArtefactStore:
    """A folder of artefacts. ``limit``: bytes that it may hold, about; 0: it keeps nothing."""

    folder: Path
    limit: int

    @staticmethod
    def usual() -> ArtefactStore:
        """Beside the database of measurements, as large as :data:`LIMIT_VARIABLE` says.

        Artefacts are run: where other users could put some, nothing is kept and nothing taken.
        """
        folder, limit = default_directory() / _FOLDER, number_in_environment(LIMIT_VARIABLE, _LIMIT) << 20
        why = distrust(folder) if limit else ""
        if why:
            _warn(f"nothing is kept of what is compiled, as {why}; {LOCATION} says where else")
        return ArtefactStore(folder, 0 if why else limit)

    def get(self, key: str) -> memoryview | None:
        """The artefact of ``key``, at an address that :data:`ALIGNMENT` divides; ``None`` where there is none, or a
        damaged one.

        It is the file itself in memory: a page is read when it is looked at. What is written there stays in memory.
        """
        if not self.limit:
            return None
        path = self._path(key)
        try:
            with open(path, "rb", opener=_at_once) as file:
                if not is_own_file(file.fileno()):
                    return None
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError):  # an empty file can't be mapped
            return None
        if _seal(key, digest_of([data[ALIGNMENT:]])) != data[:_DIGEST]:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return data[ALIGNMENT:]

    def put(self, key: str, contents: Sequence[bytes | memoryview]) -> None:
        """Keeps an artefact, given in parts. A disk that is full or can't be written costs only this, and a warning."""
        if not self.limit or sum(map(len, contents)) > self.limit // 4:
            return
        path = self._path(key)
        with self._warning():
            self._make_folder(path.parent)
            descriptor, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "w+b") as file:
                    file.writelines((bytes(ALIGNMENT), *contents))
                    file.flush()
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as written:
                        digest = digest_of([memoryview(written)[ALIGNMENT:]], in_threads=False)  # maybe at exit
                    file.seek(0)
                    file.write(_seal(key, digest))
                os.replace(name, path)
            except OSError:
                os.unlink(name)
                raise

    def file(self, key: str, suffix: str) -> Path | None:
        """The same as a file of its own, by that name's end, for those who open files; ``None`` as :meth:`get`."""
        digest, path = self.get(key), self._path(key).with_suffix(suffix)
        if digest is None:
            return None
        try:
            with (
                open(path, "rb", opener=_at_once) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                is_whole = is_own_file(file.fileno()) and digest_of([memoryview(data)]) == bytes(digest)
            os.utime(path)
        except (OSError, ValueError):
            return None
        return path if is_whole else None

    def put_file(self, key: str, suffix: str, write: Callable[[Path], None]) -> None:
        """Keeps what ``write`` writes to the path that it is given, whose name ends so."""
        path = self._path(key).with_suffix(suffix)
        if not self.limit:
            return
        with self._warning():
            self._make_folder(path.parent)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder) / path.name
                write(made)
                if made.stat().st_size > self.limit // 4:
                    return
                with made.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    digest = digest_of([memoryview(data)], in_threads=False)
                os.replace(made, path)
            self.put(key, [digest])

    def trim(self) -> None:
        """Removes what was used longest ago while there is too much; also what a killed writer left in a folder."""
        found = list(self._found())
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            with suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            total -= size

    def _found(self) -> Iterator[tuple[float, int, str]]:
        """When each was used last, its bytes, and its path. There may be 100 000, and it is asked at each compile."""
        for folder in _entries(self.folder):
            for entry in _entries(folder):
                with suppress(OSError):  # another process has removed it
                    used, inner = entry.stat(), _entries(entry) if entry.is_dir() else ()
                    yield used.st_mtime, used.st_size + sum(one.stat().st_size for one in inner), entry.path

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """That what is compiled is not kept, where it can't be: the next process compiles it again."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            _warn(f"what is compiled is not kept: {self.folder}: {why}; {LOCATION} says where else")

    @staticmethod
    def _make_folder(folder: Path) -> None:
        """Only this user may write there, whatever the process's mask."""
        for one in (*reversed(folder.absolute().parents), folder):
            if not one.exists():
                one.mkdir(exist_ok=True, mode=0o700)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / name[2:]


def _entries(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What lies in it; nothing if it is no folder, or has a name that is too long for one."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


@cache
def _warn(text: str) -> None:
    """Once in a process."""
    _LOG.warning("%s", text)


def digest_of(buffers: Iterable[memoryview], *, in_threads: bool = True) -> bytes:
    """A SHA-256 of the SHA-256 of pieces, which all cores work at where it may start threads."""
    pieces = [buffer[at : at + _PIECE] for buffer in buffers for at in range(0, max(1, len(buffer)), _PIECE)]
    if len(pieces) == 1 or not in_threads:
        return _digest(b"".join(map(_digest, pieces)))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return _digest(b"".join(threads.map(_digest, pieces)))


def _seal(key: str, digest: bytes) -> bytes:
    return _digest(digest + key.encode())


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe, too, which is told from a file then: nobody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _digest(piece: bytes | memoryview) -> bytes:
    return hashlib.sha256(piece).digest()
