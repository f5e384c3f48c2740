"""Built artefacts on disk, by what they are built from: kernels as object files, whole programs.

In: a key that says everything that an artefact depends on, and its bytes. Out: the bytes again, in this process or in
any other. Writers need no lock: a file appears whole, under a name that only equal contents have. What nobody has used
for longest goes when there is too much.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eqsat_layout.cost.database import default_directory

LIMIT_VARIABLE: Final = "EQSAT_LAYOUT_CACHE_MEGABYTES"
"""The environment variable that says how large the store may get; 0: nothing is kept."""

_LIMIT: Final = 4096
_FOLDER: Final = "built.v1"
_DIGEST: Final = 32
"""Bytes of the SHA-256 of the contents, in front of them: a torn or edited file is no artefact."""


@dataclass(frozen=True)
class Store:
    """A folder of artefacts. ``limit``: bytes that it may hold, about; 0: it keeps nothing."""

    folder: Path
    limit: int

    @staticmethod
    def usual() -> Store:
        """Beside the database of measurements, as large as :data:`LIMIT_VARIABLE` says."""
        asked = os.environ.get(LIMIT_VARIABLE, "")
        return Store(default_directory() / _FOLDER, (int(asked) if asked.isdigit() else _LIMIT) << 20)

    def get(self, key: str) -> bytes | None:
        """The artefact of ``key``; ``None`` where there is none, or a damaged one."""
        if not self.limit:
            return None
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        contents = memoryview(data)[_DIGEST:]
        if hashlib.sha256(contents).digest() != data[:_DIGEST]:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return bytes(contents)

    def put(self, key: str, contents: Sequence[bytes | memoryview]) -> None:
        """Keeps an artefact, given in parts. A disk that is full or can't be written costs only this."""
        if not self.limit or sum(map(len, contents)) > self.limit // 4:
            return
        digest = hashlib.sha256()
        for part in contents:
            digest.update(part)
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.writelines((digest.digest(), *contents))
                os.replace(name, path)
            except OSError:
                os.unlink(name)
                raise

    def trim(self) -> None:
        """Removes what was used longest ago while there is too much."""
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            with suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            with suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / name[2:]
