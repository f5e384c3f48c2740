"""A model's file that was compiled before is not read again.

In: a path, a target, options. Out: the executable that is kept for a file with the same contents. Only of files that
hold all of a model; an ONNX file may name others, and is read quickly. torch takes seconds to read what it exported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.system.store import Store
from eqsat_layout.targets.protocol import Target

_WHOLE: Final = {".pt2": "torch"}
"""By the suffix of such files the package that reads them."""


@dataclass(frozen=True)
class KnownFile:
    """``notes``: where those of the compilation are said again."""

    programs: KnownPrograms
    key: str | None
    notes: list[str] | None

    @staticmethod
    def of(source: Any, target: Target, options: Options) -> KnownFile | None:
        """``None`` where the source is no such file, or the options say more than numbers and texts."""
        package = _WHOLE.get(Path(source).suffix) if isinstance(source, str | os.PathLike) else None
        sizes = _as_text(options.get("shapes"))
        if package is None or sizes is None or options.get("inputs") is not None:
            return None
        try:
            reader = f"{package} {version(package)} {sizes}"
        except PackageNotFoundError:  # whoever reads it says so
            return None
        programs = KnownPrograms(target, Store.usual())
        return KnownFile(
            programs, programs.key_of_file(Path(source), without_sizes(options), reader), options.get("notes")
        )

    def executable(self) -> Any | None:
        """What was compiled of it."""
        notes = Notes()
        found = self.programs.of_file(self.key, notes)
        if found is not None and self.notes is not None:
            self.notes.extend(notes)
        return found

    def keep(self, program: str | None) -> None:
        """``program``: the key of what was compiled of it."""
        self.programs.keep_file(self.key, program)


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
