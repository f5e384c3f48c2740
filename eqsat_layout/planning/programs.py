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
from typing import Any

import tvm
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.graph.skeleton import Skeleton, data_of, kind_of
from eqsat_layout.notes import Notes
from eqsat_layout.planning.keys import options_text, surroundings
from eqsat_layout.system.frames import head_of, split_head
from eqsat_layout.system.store import ArtefactStore, digest_of
from eqsat_layout.targets.protocol import Target


@dataclass(frozen=True)
class KnownPrograms:
    """Executables on disk, for one target."""

    target: Target
    store: ArtefactStore

    def key(self, mod: Any, options: Mapping[str, Any]) -> str | None:
        """What stands for all that the executable depends on; ``None`` where that is code of the user's, too."""
        is_module = isinstance(mod, tvm.IRModule)
        asked = options_text(options) if self.store.limit and is_module else None
        if asked is None:
            return None
        skeleton = Skeleton.of(mod)
        digest = hashlib.sha256(digest_of([data_of(one) for one in skeleton.tensors]))
        kinds = json.dumps(list(map(kind_of, skeleton.tensors)))
        machine = f"{self.target} {self.target.name} {self._version()}"
        for text in (to_json_graph_str(skeleton.module), kinds, asked, machine, surroundings()):
            digest.update(hashlib.sha256(text.encode()).digest())
        return f"program {digest.hexdigest()}"

    def _version(self) -> str:
        """The version of the target's code, where that is not in this package."""
        return self.target.version if self.target.is_foreign else ""

    def get(self, key: str | None, notes: Notes) -> Any | None:
        """The executable, its notes said again; ``None`` if it is not known."""
        data = None if key is None else self.store.get(key)
        if data is None:
            return None
        said, program = split_head(data)
        for note in said:
            notes.add(note)
        return self.target.loaded(program)

    def keep(self, key: str | None, executable: Any, notes: Sequence[str]) -> None:
        """Written by a thread while the program is used already; a process does not end before that is done."""
        parts = None if key is None else self.target.saved(executable)
        if key is not None and parts is not None:
            threading.Thread(target=self._write, args=(key, [head_of(list(notes)), *parts])).start()

    def _write(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        self.store.put(key, parts)
        self.store.trim()
