"""A model's file that was compiled before is not read again: what was made of it is opened, as a library is.

In: a path, a target, options. Out: the program that is kept for a file with the same contents, and with the same
contents of files beside it that hold its weights. Neither readers nor TVM's compiler are imported, which takes seconds.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import Notes, first_line
from eqsat_layout.planning.keys import options_text, surroundings
from eqsat_layout.planning.options import Options
from eqsat_layout.session.interface import Interface
from eqsat_layout.session.library import export, opened_program, suffix_of
from eqsat_layout.system.machine import machine_text
from eqsat_layout.system.readable import read_bytes
from eqsat_layout.system.store import ArtefactStore, digest_of
from eqsat_layout.system.suffixes import ending_of

_LOG: Final = logging.getLogger(__name__)

_READERS: Final = {
    ".pt2": ("torch",),
    ".onnx": ("onnx", "onnxscript", "onnx-ir", "onnxruntime"),
    ".json": (),
    ".py": (),
}
"""By the suffix of files that :mod:`eqsat_layout.readers.modules` reads, the packages beside TVM that decide what
is read there."""

_CPU: Final = "llvm"


@dataclass(frozen=True)
class KnownFile:
    """``asked``: all that decides what is made of it, but for what it holds. ``notes``: where those are said again.

    ``since``: nanoseconds at which reading began; what changes from then on is not known to be what was read.
    """

    path: Path
    asked: str
    store: ArtefactStore
    notes: list[str] | None
    since: int

    @staticmethod
    def of(source: Any, target: Any, options: Options) -> KnownFile | None:
        """``None`` where the source is no such file, or the options say more than numbers and texts."""
        store = ArtefactStore.usual()
        if not store.limit or not isinstance(source, str | os.PathLike) or options.get("inputs") is not None:
            return None
        path, sizes, rest = Path(source), _as_text(options.get("shapes")), options_text(without_sizes(options))
        packages = _READERS.get(ending_of(path))
        if packages is None or sizes is None or rest is None or not path.is_file():
            return None
        machine = _machine_text(target, approx=options.get("approx", True))
        reader = [(name, _version(name)) for name in packages]
        return KnownFile(
            path, f"{surroundings()} {machine} {reader} {sizes} {rest}", store, options.get("notes"), time.time_ns()
        )

    def opened(self) -> tuple[Path, Any, Interface] | None:
        """The file of what was compiled of it, and what is in there; notes are said again."""
        key = self._key()
        said = None if key is None else self.store.get(f"notes of {key}")
        if key is None or said is None:
            return None
        suffix, texts = json.loads(bytes(said))
        kept = self.store.file(key, suffix)
        if kept is None:
            return None
        try:
            found = opened_program(kept, is_whole=True)  # the store has looked
        except EqsatError as error:  # no program may be run from that disk, or the machine has changed
            _LOG.warning("%s: what was compiled before is not used: %s", self.path, error)
            return None
        notes = Notes()
        for text in texts:
            notes.add(text)
        if self.notes is not None:
            self.notes.extend(notes)
        return kept, *found

    def keep(self, executable: Any, notes: Sequence[str]) -> None:
        """Written by a thread while the program is used already; a process does not end before that is done."""
        if ending_of(self.path) == ".onnx":
            model = importlib.import_module("onnx").load(self.path, load_external_data=False)
            names = importlib.import_module("eqsat_layout.readers.onnx.external_data").locations(model)
            self.store.put(self._beside, [json.dumps(names).encode()])
        key = self._key()
        if key is not None and self._is_as_it_was():
            threading.Thread(target=self._write, args=(key, executable, list(notes))).start()

    def _write(self, key: str, executable: Any, notes: list[str]) -> None:
        suffix = suffix_of(executable)
        try:
            self.store.put_file(key, suffix, lambda path: export(executable, path))
        except (RuntimeError, ValueError, subprocess.CalledProcessError) as error:  # a machine without a linker
            _LOG.info("%s: what was compiled is not kept: %s", self.path, first_line(error))
            return
        self.store.put(f"notes of {key}", [json.dumps([suffix, notes]).encode()])
        self.store.trim()

    def _key(self) -> str | None:
        """``None`` where it is not known what files it has, or one is missing."""
        try:
            contents = self._contents
            others = self._others()
            if others is None or not all(path.is_file() for path in others):  # a device may have no end
                return None
            contents += digest_of([memoryview(read_bytes(path)) for path in others]) if others else b""
        except OSError:  # whoever reads it says so
            return None
        return f"file {contents.hex()} {hashlib.sha256(self.asked.encode()).hexdigest()}"

    def _is_as_it_was(self) -> bool:
        """Whether none of its files was changed, or put there, since reading began."""
        try:
            return all(path.stat().st_ctime_ns <= self.since for path in (self.path, *(self._others() or ())))
        except OSError:
            return False

    def _others(self) -> list[Path] | None:
        """The files beside it that belong to it; ``None`` where that is not known."""
        if ending_of(self.path) != ".onnx":
            return []
        kept = self.store.get(self._beside)
        if kept is None:
            return None
        external_file = importlib.import_module("eqsat_layout.readers.onnx.external_data").external_file
        return [external_file(name, self.path) for name in json.loads(bytes(kept))]

    @cached_property
    def _contents(self) -> bytes:
        """A digest of the file itself."""
        return digest_of([memoryview(read_bytes(self.path))])

    @property
    def _beside(self) -> str:
        """The key of the names of files beside it."""
        return f"beside {self._contents.hex()}"


def _machine_text(target: Any, *, approx: bool) -> str:
    """What decides for which target it is; TVM is imported for those that are not this package's CPU."""
    if _is_own_cpu(target):
        given = sorted(target.items()) if isinstance(target, Mapping) else target
        return f"{machine_text()} {given} {approx}"
    from eqsat_layout.targets.registry import target as target_of

    own = target_of(target, approx=approx)
    return f"{own} {own.name} {own.version}"


def _is_own_cpu(target: Any) -> bool:
    registry = sys.modules.get("eqsat_layout.targets.registry")
    if registry is not None and registry.is_registered(_CPU):
        return False
    if isinstance(target, str):
        with suppress(ValueError):
            target = json.loads(target)
    if isinstance(target, Mapping):
        return bool(target.get("kind") == _CPU)
    return target is None or (isinstance(target, str) and target.split()[:1] == [_CPU])


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
