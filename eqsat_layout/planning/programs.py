"""Programs that were compiled before are not compiled again.

In: a module, a target and options. Out: the executable that was kept for the same ones by the same version of this
package, with the same measurements of the machine; or a place to keep a new one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tvm
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.cost.database import Database
from eqsat_layout.egraph.rules import rules_dir
from eqsat_layout.graph.skeleton import Skeleton, data_of, kind_of
from eqsat_layout.notes import Notes
from eqsat_layout.planning.checked_options import check_rules
from eqsat_layout.system.frames import head_of, split_head
from eqsat_layout.system.store import ArtefactStore, digest_of
from eqsat_layout.targets.protocol import Target

_SAID_AGAIN: Final = frozenset({"notes"})
"""Options that say nothing about the result."""

_USUAL: Final = {"approx": True, "candidates": True, "validate": False, "fallback": False}
"""What options are that are not given: whoever says so anyway asks for the same program."""


@dataclass(frozen=True)
class KnownPrograms:
    """Executables on disk, for one target."""

    target: Target
    store: ArtefactStore

    def key(self, mod: Any, options: Mapping[str, Any]) -> str | None:
        """What stands for all that the executable depends on; ``None`` where that is code of the user's, too."""
        is_module = isinstance(mod, tvm.IRModule)
        asked = _as_text(options) if self.store.limit and is_module else None
        if asked is None:
            return None
        skeleton = Skeleton.of(mod)
        contents = digest_of([data_of(one) for one in skeleton.tensors])
        kinds = json.dumps(list(map(kind_of, skeleton.tensors)))
        return self._key("program", contents, to_json_graph_str(skeleton.module), kinds, asked)

    def key_of_files(self, paths: Sequence[Path], options: Mapping[str, Any], reader: str) -> str | None:
        """The same for a model that all is in these; ``reader``: what decides what is read there."""
        asked = _as_text(options) if self.store.limit else None
        try:
            contents = None if asked is None else digest_of([memoryview(path.read_bytes()) for path in paths])
        except OSError:  # whoever reads it says so
            return None
        return None if contents is None or asked is None else self._key("file", contents, reader, asked)

    def _key(self, kind: str, contents: bytes, *texts: str) -> str:
        digest = hashlib.sha256(contents)
        machine = f"{self.target} {self.target.name} {self._version()}"
        for text in (*texts, _package_digest(), machine, Database().digest()):
            digest.update(hashlib.sha256(text.encode()).digest())
        return f"{kind} {digest.hexdigest()}"

    def _version(self) -> str:
        """Of the target's code, where that is not in this package."""
        return "" if type(self.target).__module__.startswith("eqsat_layout.") else self.target.version

    def get(self, key: str | None, notes: Notes) -> Any | None:
        """The executable, its notes said again; ``None`` if it is not known."""
        data = None if key is None else self.store.get(key)
        if data is None:
            return None
        said, program = split_head(data)
        for note in said:
            notes.add(note)
        return self.target.loaded(program)

    def of_file(self, key: str | None, notes: Notes) -> Any | None:
        """What was compiled of a file by this key."""
        program = None if key is None else self.store.get(key)
        return None if program is None else self.get(bytes(program).decode(), notes)

    def keep_file(self, key: str | None, program: str | None) -> None:
        """``program``: the key of what was compiled of the file."""
        if key is not None and program is not None:
            self.store.put(key, [program.encode()])

    def keep(self, key: str | None, executable: Any, notes: Sequence[str]) -> None:
        """Written by a thread while the program is used already; a process does not end before that is done."""
        parts = None if key is None else self.target.saved(executable)
        if key is not None and parts is not None:
            threading.Thread(target=self._write, args=(key, [head_of(list(notes)), *parts])).start()

    def _write(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        self.store.put(key, parts)
        self.store.trim()


@cache
def _package_digest() -> str:
    """Of all code and rules of the package, and the versions of what it plans with."""
    digest = hashlib.sha256(f"{version('apache-tvm')} {version('egglog')}".encode())
    root = Path(__file__).parents[1]
    for path in sorted([*root.rglob("*.py"), *rules_dir().glob("*.egg")]):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _as_text(options: Mapping[str, Any]) -> str | None:
    """The options, with rule files by what they say; ``None`` where one is neither a number nor a text."""
    said: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or name in _SAID_AGAIN or value is _USUAL.get(name):
            continue
        if name == "rules" and isinstance(value, list | tuple):
            paths = check_rules(value)
            if not paths:
                continue
            files = [path for path in paths if isinstance(path, Path) and path.is_file()]
            if len(files) < len(paths):  # what a rule written in Python makes is code of the user's
                return None
            said[name] = [[str(path), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
        elif name == "assume" and isinstance(value, Mapping):
            said[name] = {str(symbol): repr(size) for symbol, size in value.items()}
        elif isinstance(value, bool | int | float | str):
            said[name] = value
        else:
            return None
    return json.dumps(said, sort_keys=True)
