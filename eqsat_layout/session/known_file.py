"""A model's file that was compiled before is not read again.

In: a path, a target, options. Out: the executable that is kept for a file with the same contents, and with the same
contents of files beside it that hold its weights. Readers take seconds: they bring torch, and fold what is constant.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.readers.onnx.external_data import locations
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.system.suffixes import kind_of
from eqsat_layout.targets.protocol import Target

_READERS: Final = {".pt2": ("torch",), ".onnx": ("onnx", "onnxscript", "onnx-ir", "onnxruntime")}
"""By the suffix of such files the packages that decide what is read there."""


@dataclass(frozen=True)
class KnownFile:
    """``reader``: what decides how it is read. ``notes``: where those of the compilation are said again."""

    programs: KnownPrograms
    path: Path
    options: Options
    reader: str
    notes: list[str] | None

    @staticmethod
    def of(source: Any, target: Target, options: Options) -> KnownFile | None:
        """``None`` where the source is no such file, or the options say more than numbers and texts."""
        if not isinstance(source, str | os.PathLike) or options.get("inputs") is not None:
            return None
        path, sizes = Path(source), _as_text(options.get("shapes"))
        packages = _READERS.get(kind_of(path))
        if packages is None or sizes is None or not path.is_file():
            return None
        reader = f"{[(name, _version(name)) for name in packages]} {sizes}"
        programs = KnownPrograms(target, ArtefactStore.usual())
        return KnownFile(programs, path, without_sizes(options), reader, options.get("notes"))

    def executable(self) -> Any | None:
        """What was compiled of it."""
        notes = Notes()
        found = self.programs.of_file(self._key(), notes)
        if found is not None and self.notes is not None:
            self.notes.extend(notes)
        return found

    def keep(self, program: str | None) -> None:
        """``program``: the key of what was compiled of it."""
        if program is None:
            return
        if kind_of(self.path) == ".onnx":
            model = importlib.import_module("onnx").load(self.path, load_external_data=False)
            self.programs.store.put(self._beside(), [json.dumps(locations(model)).encode()])
        self.programs.keep_file(self._key(), program)

    def _key(self) -> str | None:
        """``None`` where it is not known what files it has, or one is missing."""
        names: list[str] = []
        if kind_of(self.path) == ".onnx":
            kept = self.programs.store.get(self._beside())
            if kept is None:
                return None
            names = json.loads(bytes(kept))
        paths = [self.path, *(self.path.parent / name for name in names)]
        return self.programs.key_of_files(paths, self.options, self.reader)

    def _beside(self) -> str:
        """The key of the names of files beside it."""
        return f"beside {hashlib.sha256(self.path.read_bytes()).hexdigest()}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def without_sizes(options: Options) -> Options:
    """Those that planning takes: not those that reading does."""
    rest = options.copy()
    rest.pop("shapes", None)
    rest.pop("inputs", None)
    return rest


def _as_text(sizes: Any) -> str | None:
    """``None`` for what holds more than numbers, names and ranges."""
    if isinstance(sizes, Mapping):
        parts = [_as_text(list(pair)) for pair in sizes.items()]
        return None if None in parts else repr(parts)
    if isinstance(sizes, list | tuple):
        parts = [_as_text(one) for one in sizes]
        return None if None in parts else repr(parts)
    return repr(sizes) if sizes is None or isinstance(sizes, int | str | range) else None
