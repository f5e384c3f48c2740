"""Files that are read, damaged at random: ``python -m bench.soundness.mutated_files [--cases N] [--kind KIND]``.

Of each kind there is an honest file; bytes of it are flipped, cut off, repeated, taken from elsewhere in it, lengths
and numbers replaced by huge ones. In every second case that is done to what it is made of (:mod:`.damage`): members of
an archive, fields of a model, tokens of a text. A reader may read it or refuse it by an error of this package; any
other exception, code that runs, more than ``SECONDS`` of work, ``MEMORY`` that is used, or an end of the process is a
fault. Exit code 1 if there are any; each is printed with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.soundness.damage import Damage, of_bytes, of_fields, of_members, of_segments, of_tokens

SECONDS = 20
MEMORY = 6 << 30
"""Bytes of address space that a reader may take besides what it has."""

Reader = Callable[[Path], Any]


# ---- kinds: an honest file, and what reads it ------------------------------------------------------------------------


def _text(folder: Path) -> tuple[Path, Reader]:
    return _module(folder / "honest.py")


def _json(folder: Path) -> tuple[Path, Reader]:
    return _module(folder / "honest.json")


def _module(path: Path) -> tuple[Path, Reader]:
    from eqsat_layout.readers.modules import read_module, write_module

    write_module(_program(), path)
    return path, read_module


def _program() -> Any:
    from eqsat_layout.models import resnet50

    return resnet50(image=32, width=2, blocks=(1, 1, 1, 1))


_RULES = """
; twice negative is nothing, and what a relation of one's own says of flips
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) x :when ((is k "relax.negative")) :ruleset logical :name "twice")

(relation flipped (Tensor Tensor String))
;= (flipped y x a) := (some k (and (= y (at k x)) (attribute k "axis" a)))
(rule ((= y (Op k (Arg x (End)))) (is k "relax.flip") (attr k "axis" a)) ((flipped y x a))
    :ruleset logical :name "flips")
(rule ((flipped y x a) (flipped z y a)) ((union z x)) :ruleset logical :name "flipped twice")

; x * sigmoid(x) == silu(x), with a number and an attribute that is worked out
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply") (= s (Op j (Arg x (End)))) (is j "relax.sigmoid"))
    ((may-become y (Make "relax.nn.silu" "" (Arg x (End))))) :ruleset logical :name "silu")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.max_pool2d") (int-attr k "groups" a) (attr k "strides" s) (< a 2))
    ((may-become y (Make k (+ "strides=" s "[[0, 1]]") (Arg x (End))))) :ruleset logical :name "strides")
(rule ((want y f) (= y (Op k (Arg x (End)))) (is k "relax.nn.relu")) ((want x f)) :ruleset flow :name "through relu")
"""


def _rules(folder: Path) -> tuple[Path, Reader]:
    """A rule file, and a plan with it."""
    from eqsat_layout import plan

    path = folder / "honest.egg"
    path.write_text(_RULES)
    program = _program()
    return path, lambda file: plan(program, rules=[file])


def _onnx(folder: Path) -> tuple[Path, Reader]:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from eqsat_layout.readers.modules import read_module

    with contextlib.suppress(ImportError):  # the reader imports it for some models
        importlib.import_module("onnxscript.optimizer")
    weight = numpy_helper.from_array(__import__("numpy").ones((4, 2, 3, 3), "float32"), "w")
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [1, -1])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Reshape", ["z", "s"], ["r"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 5])
    gives = helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 100])
    model = helper.make_model(helper.make_graph(nodes, "g", [given], [gives], [weight, shape]))
    path = folder / "honest.onnx"
    onnx.save(model, path)
    return path, read_module


def _pt2(folder: Path) -> tuple[Path, Reader]:
    import torch

    from eqsat_layout.readers.modules import read_module

    path = folder / "honest.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),)), path)
    return path, read_module


def _device_program(folder: Path) -> tuple[Path, Reader]:
    """What is compiled for OpenCL: sources, a plan, constants."""
    from eqsat_layout import Session
    from eqsat_layout.session.library import opened_program

    path = folder / "honest.program"
    Session(_program(), target="opencl").save(path)
    return path, opened_program


def _library(folder: Path) -> tuple[Path, Reader]:
    """What is compiled for a CPU. One that is opened is run."""
    import numpy as np

    from eqsat_layout import Session

    path = folder / "honest.so"
    session = Session(_program())
    session.save(path)
    given = {session.inputs[0].name: np.zeros((1, 3, 32, 32), "float32")}

    def read(file: Path) -> None:
        Session(file).run(None, given)

    return path, read


def _interface(folder: Path) -> tuple[Path, Reader]:
    """What a library says of itself."""
    from eqsat_layout.session.interface import Interface, TensorSpec

    spec = TensorSpec("x", (1, "n"), "float32")
    path = folder / "honest.txt"
    path.write_text(Interface("main", (spec,), (spec,), branches=False, needs=("avx2",)).to_json())

    def read(file: Path) -> None:
        try:
            Interface.from_json(file.read_bytes().decode())
        except (ValueError, KeyError, TypeError) as error:  # which it says that it raises
            _ours(str(error))

    return path, read


def _database(folder: Path) -> tuple[Path, Reader]:
    from eqsat_layout.cost.database import Database
    from eqsat_layout.cost.measurements import Constants

    Database(folder).add(Constants("m", {"bandwidth": 1e9, "flops": 2e10}, "0", "2026-01-01T00:00:00Z"))

    def read(file: Path) -> None:
        place = file.parent / "database"
        place.mkdir(exist_ok=True)
        (place / Database(place).path.name).write_bytes(file.read_bytes())
        found = Database(place).read()
        _ours(str(found.constants))

    return Database(folder).path, read


def _artefact(folder: Path) -> tuple[Path, Reader]:
    from eqsat_layout.system.store import ArtefactStore

    store = ArtefactStore(folder / "store", 1 << 30)
    store.put("k", [b"contents" * 100])
    (path,) = (folder / "store").glob("*/*")

    def read(file: Path) -> None:
        place = ArtefactStore(file.parent / "store", 1 << 30)
        target = file.parent / "store" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        found = place.get("k")
        if found is not None and bytes(found) != b"contents" * 100:
            raise AssertionError("a damaged artefact is given back")

    return path, read


def _environment(folder: Path) -> tuple[Path, Reader]:
    """Values of the environment variables that the package reads."""
    path = folder / "honest.txt"
    path.write_text("4096")

    def read(file: Path) -> None:
        from eqsat_layout.notes import is_strict
        from eqsat_layout.system.folder import LOCATION
        from eqsat_layout.system.machine import threads
        from eqsat_layout.system.store import LIMIT_VARIABLE, ArtefactStore

        value = os.fsdecode(file.read_bytes().replace(b"\0", "\N{SUPERSCRIPT TWO}".encode()))
        for name in (LIMIT_VARIABLE, "TVM_NUM_THREADS", LOCATION, "XDG_CACHE_HOME", "EQSAT_LAYOUT_STRICT"):
            before = os.environ.get(name)
            os.environ[name] = value
            try:
                ArtefactStore.usual().get("k")
                if not 0 < threads() < 1 << 16:
                    raise AssertionError("so many threads")
                is_strict()
            finally:
                os.environ.pop(name)
                if before is not None:
                    os.environ[name] = before

    return path, read


INSIDE: dict[str, Damage] = {
    "text": of_tokens,
    "json": of_tokens,
    "rules": of_tokens,
    "onnx": of_fields,
    "pt2": of_members,
    "library": of_segments,
    "interface": of_tokens,
    "database": of_tokens,
}
"""By kind, the damage to what such a file is made of."""

KINDS: dict[str, Callable[[Path], tuple[Path, Reader]]] = {
    "text": _text,
    "json": _json,
    "rules": _rules,
    "onnx": _onnx,
    "pt2": _pt2,
    "program": _device_program,
    "library": _library,
    "interface": _interface,
    "database": _database,
    "artefact": _artefact,
    "environment": _environment,
}


def _ours(text: str) -> None:
    """Something is done with what was read."""
    len(text)


# ---- a process that reads --------------------------------------------------------------------------------------------


def _serve(kind: str, line: Any, folder: Path) -> None:
    """Reads what it is told to, from files in ``folder``, and answers with what came of it."""
    from eqsat_layout.errors import EqsatError

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "attacks"))
    watch: Any = importlib.import_module("watch")  # the hook of the attacks
    try:
        honest, read = KINDS[kind](folder)
        read(honest)
    except ImportError as error:
        line.send(("missing", str(error)))
        return
    line.send(("honest", honest.read_bytes(), honest.suffix))
    sys.addaudithook(watch.hook)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    while (data := line.recv()) is not None:
        path = folder / "damaged" / f"file{honest.suffix}"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)  # a library that is loaded must not be written over
        path.write_bytes(data)
        watch.watched.clear()
        watch.is_watching = True
        try:
            read(path)
            said = "read"
        except EqsatError as error:
            said = (
                "refused" if "MemoryError" not in str(error) and "bad_alloc" not in str(error) else f"memory: {error}"
            )
        except BaseException:
            said = "fault: " + traceback.format_exc(limit=-3)
        finally:
            watch.is_watching = False
        seen = [one for one in watch.watched if not _is_our_own(kind, one, folder)]
        line.send(f"ran: {seen[:3]}" if seen else said)


def _is_our_own(kind: str, event: str, folder: Path) -> bool:
    """Variables that this command sets; files that it made, and those of the package by which it reads archives and
    tells the e-graph of a program; the process in which rules of others are tried first."""
    own = (str(folder), f"{tempfile.gettempdir()}/eqsat_layout_", "'program.pt2'", ".tsv'")
    removes = event.startswith(("os.remove", "shutil.rmtree")) and any(place in event for place in own)
    tries = kind == "rules" and event.startswith(("os.fork", "os.kill"))
    return removes or tries or event.startswith("os.putenv")


class Victim:
    """A process of one kind; a new one where it ended. Its folder is made here: one that is killed removes nothing."""

    def __init__(self, kind: str):
        self._kind, self._context = kind, get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._line, other = self._context.Pipe()
        self._folder = tempfile.TemporaryDirectory()
        arguments = (self._kind, other, Path(self._folder.name))
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        what, *self.honest = self._line.recv()
        self.missing = self.honest[0] if what == "missing" else ""

    def tell(self, data: bytes) -> str:
        """What came of reading ``data``."""
        self._line.send(data)
        if not self._line.poll(SECONDS * 3):
            self.close()
            self._start()
            return f"slow: more than {SECONDS * 3} s"
        try:
            return str(self._line.recv())
        except EOFError:
            self._process.join()
            code = self._process.exitcode or 0
            self.close()
            self._start()
            return f"ended: {signal.Signals(-code).name if code < 0 else code}"

    def close(self) -> None:
        """Ends the process and removes its files."""
        self._process.kill()
        self._process.join()
        self._folder.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    faults: dict[str, str] = {}
    for kind in options.kind or KINDS:
        victim = Victim(kind)
        if victim.missing:
            print(f"{kind}: not tried: {victim.missing}")
            victim.close()
            continue
        counts: dict[str, int] = {}
        for case in range(options.cases):
            damage = INSIDE.get(kind, of_bytes) if case % 2 else of_bytes
            damaged = damage(victim.honest[0], random.Random(f"{kind} {options.seed} {case}"))
            said = "unchanged" if damaged == victim.honest[0] else victim.tell(damaged)
            word = said.partition(":")[0]
            counts[word] = counts.get(word, 0) + 1
            if word not in ("read", "refused", "unchanged"):
                faults.setdefault(f"{kind}: {said}", f"case {case}, seed {options.seed}")
        victim.close()
        print(f"{kind}: {json.dumps(counts)}", flush=True)
    for fault, place in faults.items():
        print(f"\n{place}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
