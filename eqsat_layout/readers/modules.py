"""Modules from files and to files.

In: a path to Relax text, TVM JSON, ONNX or a ``torch.export`` archive. Out: an IRModule; and back to text or JSON.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import first_of, said_by
from eqsat_layout.readers.guards.bounds import with_accesses_in_bounds
from eqsat_layout.readers.guards.long_unrolls import with_short_unrolls
from eqsat_layout.readers.guards.tensor_sizes import check_tensors
from eqsat_layout.readers.guards.types import check_types
from eqsat_layout.readers.model import Model, Sizes
from eqsat_layout.readers.onnx.models import from_proto, loaded_model
from eqsat_layout.readers.text.json_guard import LARGEST as MOST_OF_JSON
from eqsat_layout.readers.text.json_guard import checked_json
from eqsat_layout.readers.text.script import read_script
from eqsat_layout.readers.text.script_literals import UnsafeScriptError
from eqsat_layout.readers.text.script_names import with_names_of_text
from eqsat_layout.readers.text.script_size import LARGEST as MOST_OF_TEXT
from eqsat_layout.readers.torch.archives import LARGEST as MOST_OF_ARCHIVES
from eqsat_layout.readers.torch.programs import from_program, program_in
from eqsat_layout.system.readable import check_size
from eqsat_layout.system.suffixes import beside, ending_of, path_of
from eqsat_layout.system.whole_files import whole_file

_DIAGNOSTIC = re.compile(r"error: (?P<message>.*?)\n --> [^\n]*?:(?P<line>\d+):(?P<column>\d+)", re.DOTALL)
_INDEX_MAP = re.compile(r"T\.index_map\(lambda [^:]*: ")
_BARE_INTEGER = re.compile(r"((?<!\w)\(|, )(\d+)(?=[,)])")
_OP_DUMP = re.compile(r'ir\.Op\(span=.*?name="([^"]+)".*?support_level=\d+\)')
_WIDTH: Final = 400
"""Characters of what is said of an error."""
_PICKLED: Final = (".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_OUTPUT_SUFFIXES: Final = (".py", ".json")
_TEXT: Final = "utf-8-sig"
"""Some editors begin a file with a mark of its encoding."""


class FileError(EqsatError):
    """A file that can't be read or written; the message starts with its name."""


def read_module(path: str | os.PathLike[str]) -> tvm.IRModule:
    """The module of :func:`read_model`."""
    return read_model(path).module


def read_model(path: str | os.PathLike[str], sizes: Sizes | None = None) -> Model:
    """The model in ``path``: Relax text, TVM JSON, ONNX or a torch.export archive, whichever it is.

    Nothing in the file is run. ``sizes`` are for symbolic shapes that ONNX graphs compute with; inputs have them where
    they fit. Raises :class:`FileError`, which names the file and what is wrong in one line.
    """
    path = path_of(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FileError(f"{path}: a pipe or a device, not a file")
        known = _FORMATS.get(ending_of(path))
        check_size(path, None if known is None else known.most_bytes)
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    reader = _reader_for(path, head)
    try:
        read = reader(path, sizes)
        model = read if isinstance(read, Model) else Model(_as_module(read))
        check_tensors(model.module)
        return replace(model, module=with_accesses_in_bounds(with_short_unrolls(model.module)))
    except FileError:
        raise
    except Exception as error:  # the frontends raise whatever they meet
        raise FileError(f"{path}: {_reason(error)}") from error


def write_module(mod: tvm.IRModule, path: str | os.PathLike[str]) -> None:
    """Writes ``mod`` as Relax text (``.py``) or TVM JSON (``.json``), complete with its constants.

    Either the whole file is written or none. Raises :class:`FileError` if the module would not come back the same.
    """
    path = path_of(path)
    check_module_path(path)
    _replace(path, tvm.ir.save_json(mod) if path.suffix == ".json" else module_text(mod, str(path)))


def check_module_path(path: Path) -> None:
    """:class:`FileError` if :func:`write_module` has no format for ``path``, or there is no folder for it."""
    if path.suffix not in _OUTPUT_SUFFIXES:
        raise FileError(f"{path}: can write .py (Relax text) and .json (TVM JSON), not {path.suffix or path.name!r}")
    if not path.absolute().parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}")


def module_text(mod: tvm.IRModule, name: str = "module") -> str:
    """``mod`` as Relax text that :func:`read_module` reads back to an equal module; ``name`` is for the error."""
    text = _type_index_maps(str(with_names_of_text(mod).script(show_meta=True))) + "\n"
    try:
        same = tvm_ffi.structural_equal(read_script(text), mod)
    except Exception as error:  # whatever the parser meets
        raise FileError(f"{name}: this module has no complete Relax text ({_reason(error)}); write .json") from error
    if not same:
        raise FileError(f"{name}: this module has no complete Relax text; write .json")
    return text


def _type_index_maps(text: str) -> str:
    """Writes ``T.int64(0)`` for the bare ``0`` of ``T.index_map(lambda i: (0, i))``: TVM prints but can't read it."""
    parts: list[str] = []
    end = 0
    for found in _INDEX_MAP.finditer(text):
        start, depth = found.end(), 1
        parts.append(text[end:start])
        end = start
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        parts.append(_BARE_INTEGER.sub(r"\1T.int64(\2)", text[start:end]))
    return "".join([*parts, text[end:]])


def default_output(path: str | os.PathLike[str]) -> Path:
    """Where the optimised ``path`` goes unless told otherwise: beside it, text for text and JSON for the rest."""
    path = Path(path)
    return beside(path, f".optimized{'.py' if path.suffix == '.py' else '.json'}")


def _reader_for(path: Path, head: bytes) -> Callable[[Path, Sizes | None], Any]:
    if not head:
        raise FileError(f"{path}: the file is empty")
    if _is_pickled(path, head):
        raise FileError(
            f"{path}: a pickled model runs code when it is opened and is not read; "
            "export it: torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
        )
    if ending_of(path) in _FORMATS:
        return _FORMATS[ending_of(path)].read
    if head.lstrip().startswith(b"{"):
        return _read_json
    if re.search(rb"^@I\.ir_module|^@R\.function", head, re.MULTILINE):
        return _read_script
    raise FileError(f"{path}: not a format that is known here: Relax text, TVM JSON, ONNX (.onnx), torch.export (.pt2)")


def _is_pickled(path: Path, head: bytes) -> bool:
    """As ``torch.save`` writes it, now or in former times, whatever the file is called."""
    is_archive = head.startswith(b"PK") or (head.startswith(b"\x80") and head[1:2] <= b"\x05")
    return ending_of(path) != ".pt2" and (is_archive or ending_of(path) in _PICKLED)


def _read_script(path: Path, _: Sizes | None) -> Any:
    text = path.read_text(encoding=_TEXT)
    try:
        return read_script(text)
    except UnsafeScriptError as error:
        raise FileError(f"{path}:{error.line}:{error.column}: {error}") from error
    except SyntaxError as error:
        where = f":{error.lineno}" if error.lineno else ""
        raise FileError(f"{path}{where}: not Python: {error.msg}") from error
    except tvm.error.DiagnosticError as error:
        found = _DIAGNOSTIC.search(str(error))
        if found is None:
            raise
        raise FileError(f"{path}:{found['line']}:{found['column']}: {_one_line(found['message'])}") from error


def _read_json(path: Path, _: Sizes | None) -> Any:
    module = _as_module(tvm.ir.load_json(checked_json(path.read_text(encoding=_TEXT))))
    check_types(module)
    return module


def _read_onnx(path: Path, sizes: Sizes | None) -> Model:
    _need("onnx", path, "an ONNX model")
    return from_proto(loaded_model(path), sizes)


def _read_torch(path: Path, _: Sizes | None) -> Model:
    _need("torch", path, "a torch.export archive")
    return from_program(program_in(path))


@dataclass(frozen=True)
class _Format:
    """Files of a kind, no larger than ``most_bytes``."""

    read: Callable[[Path, Sizes | None], Any]
    most_bytes: int


_FORMATS: Final[Mapping[str, _Format]] = {
    ".py": _Format(_read_script, MOST_OF_TEXT),
    ".json": _Format(_read_json, MOST_OF_JSON),
    ".onnx": _Format(_read_onnx, 2 << 30),  # where what ONNX is written in ends
    ".pt2": _Format(_read_torch, MOST_OF_ARCHIVES),
}
"""By suffix; :mod:`eqsat_layout.session.known_file` has the packages that decide what is read of each."""


def _need(package: str, path: Path, what: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise FileError(f"{path}: {what} needs the package {package!r}: pip install {package}") from error


def _as_module(value: Any) -> tvm.IRModule:
    if isinstance(value, tvm.IRModule):
        return value
    if isinstance(value, relax.Function):
        return tvm.IRModule.from_expr(value)
    raise ValueError(f"holds a {type(value).__name__}, not a Relax module")


def _reason(error: Exception) -> str:
    return _one_line(said_by(error))


def _one_line(text: str) -> str:
    """The first line that says something, with ops by their names only, cut where it is long."""
    line = _OP_DUMP.sub(r"\1", first_of(text))
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."


def _replace(path: Path, text: str) -> None:
    try:
        with whole_file(path, is_text=True) as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
