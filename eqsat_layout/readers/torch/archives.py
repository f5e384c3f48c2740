"""Archives of ``torch.export``, checked before torch opens them.

torch unpickles what it finds in an archive, imports modules and follows names that its JSON gives, and evaluates the
text of symbolic sizes: each of them runs code. In: a ``.pt2`` file. Out: a copy of what was checked, for torch to read.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from eqsat_layout.readers.torch.sizes import check_size_nodes, check_size_text

LARGEST: Final = 64 << 30
"""Bytes of an archive."""

_FILES: Final = ("archive_format", "archive_version", "byteorder", "version", ".format_version", ".storage_alignment")
_FOLDERS: Final = re.compile(
    r"\.data/[^/]+|extra/.+|models/[^/]+\.json|data/(weights|constants)/[^/]+_config\.json"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+|data/sample_inputs/[^/]+\.pt"
)
"""Where an exported program keeps its parts. Others hold machine code and pickled objects."""

_SAFE_OPCODES: Final = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "EMPTY_LIST",
    "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "NONE", "BINUNICODE", "SHORT_BINUNICODE", "MEMOIZE", "DICT",
    "LIST", "POP", "BINPERSID", "GLOBAL", "REDUCE",
))  # fmt: skip
_SAFE_GLOBALS: Final = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch(\.storage)? \w+Storage"
    r"|torch (Size|device)|torch\._tensor (_rebuild_from_type_v2|Tensor)|torch Tensor"
)
"""What tensors in containers are made of: all that example inputs may name."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|")
"""A name in a program's text; arguments by position have none."""

_PATH: Final = re.compile(r"[\w .:/@+-]*")
"""A name of a weight or a module, which torch writes into a program's text between quotation marks."""

_SPEC: Final = frozenset(("type", "context", "children_spec"))
"""What a node of a tree of arguments has."""

_TARGET: Final = re.compile(
    r"torch\.ops\.(?!_)\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|getitem|lt|le|gt|ge|eq|ne|and_|or_|xor|not_|abs)"
)
"""Functions that a node may call: torch follows any name from ``torch`` on, to modules of Python as well."""


class UnsafeArchiveError(ValueError):
    """No exported program, or one that torch can't read without running code."""


def checked_archive(path: Path, copy: Path) -> None:
    """Writes to ``copy`` what is in the archive at ``path``; :class:`UnsafeArchiveError` where that is not safe."""
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as checked:
            for member in _members(archive, path.stat().st_size):
                data = archive.read(member)
                checked.writestr(member.filename, _checked_member(member.filename, data))
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise UnsafeArchiveError(f"not a whole archive: {error}") from error


def _members(archive: zipfile.ZipFile, size: int) -> Iterator[zipfile.ZipInfo]:
    """Members of one folder, each once, as torch stores them, of a file of so many bytes."""
    members = archive.infolist()
    names = [member.filename for member in members]
    if len({name.casefold() for name in names}) != len(names):
        raise UnsafeArchiveError("holds two members of one name")
    total = sum(member.file_size for member in members)
    if total > LARGEST:
        raise UnsafeArchiveError(f"holds more than {LARGEST >> 30} GiB")
    if total > size:  # each within the next one: a copy of such 16 MiB filled the disk
        raise UnsafeArchiveError(f"its members have {total} bytes, and it has {size}: they lie in one another")
    if len({name.split("/")[0] for name in names}) != 1:
        raise UnsafeArchiveError("is not an archive of torch.export.save: it has no folder that holds everything")
    for member in members:
        parts = PurePosixPath(member.filename).parts
        if member.compress_type != zipfile.ZIP_STORED or ".." in parts or "\\" in member.filename:
            raise UnsafeArchiveError(f"member {member.filename[:80]!r} is not as torch.export.save writes it")
    if not any(name.partition("/")[2] == "archive_format" for name in names):
        raise UnsafeArchiveError(
            "is not an archive of torch.export.save; pickled models (torch.save) run code when they are opened, and "
            "are not read"
        )
    yield from members


def _checked_member(name: str, data: bytes) -> bytes:
    """What torch may read of a member."""
    part = name.partition("/")[2]
    if part not in _FILES and not _FOLDERS.fullmatch(part):
        raise UnsafeArchiveError(f"member {part[:80]!r} is no part of an exported program, or a pickled one")
    if part == "archive_format" and data != b"pt2":
        raise UnsafeArchiveError("is not an archive of torch.export.save")
    if part.endswith("_config.json"):
        for holder in _objects(_parsed(part, data)):
            if holder.get("use_pickle"):
                raise UnsafeArchiveError(f"{part}: {holder.get('path_name')!r} is a pickled object")
    elif part.startswith("models/"):
        return _checked_program(part, _parsed(part, data))
    elif part.endswith(".pt"):
        _check_inputs(part, data)
        return b""  # pickled, and not needed: nobody is to open it
    return data


def _parsed(part: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnsafeArchiveError(f"{part}: not JSON: {error}") from error


def _checked_program(part: str, program: Any) -> bytes:
    """An exported program of which torch looks up, imports and evaluates nothing but operators, names and sizes.

    Without its guards, which are Python: they say of which inputs the program is, and so do its types.
    """
    for holder in _objects(program):
        for key, value in holder.items():
            _check_calls(part, key, value)
            _check_names(part, key, value)
    if isinstance(program, dict) and "guards_code" in program:
        program = program | {"guards_code": []}
    return json.dumps(program).encode()


def _check_calls(part: str, key: str, value: Any) -> None:
    """What torch looks up, imports or evaluates."""
    if key in ("target", "as_operator") and isinstance(value, str) and not _TARGET.fullmatch(value):
        raise UnsafeArchiveError(f"{part}: calls {value[:80]!r}, which is no operator")
    if key == "expr_str":
        check_size_text(value, part)
    if key == "nodes":
        check_size_nodes(value, part)
    if key == "range_constraints" and isinstance(value, dict):
        for size in value:
            check_size_text(size, part)
    if key.endswith("spec") and value:
        _check_spec(part, value)


def _check_names(part: str, key: str, value: Any) -> None:
    """What torch writes into Python text."""
    names = [name for name in _names(key, value) if not isinstance(name, str) or not _NAME.fullmatch(name)]
    if isinstance(value, str) and key.endswith(("_name", "fqn")) and not _PATH.fullmatch(value):
        names.append(value)
    if names:
        raise UnsafeArchiveError(f"{part}: {str(names[0])[:80]!r} is no name, and torch writes it into code")


def _names(key: str, value: Any) -> Iterator[Any]:
    """What torch puts into the Python text that it writes for a graph, and runs: names of values and arguments."""
    if key in ("name", "as_name"):
        yield value
    elif key.endswith("_values") and isinstance(value, dict):
        yield from value
    elif key == "forward_arg_names" and value is not None:
        yield from value if isinstance(value, list) else [value]
    elif key == "in_spec" and value:
        yield from _keywords(value)


def _check_spec(part: str, spec: Any) -> None:
    """What holds arguments or results, as text: ``[1, {type, context, children_spec}]``.

    A context that holds an object names a Python module, which torch imports: of an enumeration, or of a dict with
    defaults. Contexts of all that can be read here are texts and numbers in lists, as text themselves.
    """
    waiting = [_decoded(part, spec)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not value.keys() <= _SPEC:
                raise UnsafeArchiveError(f"{part}: names a Python module to import")
            waiting += [value.get("children_spec"), _context(part, value.get("context"))]
        elif isinstance(value, list):
            waiting.extend(value)


def _context(part: str, context: Any) -> Any:
    """A context, with what is text in it read too: objects in it are no part of a tree."""
    found: Any = context
    while isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:  # a name
            break
        except RecursionError as error:
            raise UnsafeArchiveError(f"{part}: its arguments are not described as torch.export.save does") from error
    if any(_objects(found)):
        raise UnsafeArchiveError(f"{part}: names a Python module to import")
    return [_context(part, one) for one in found] if isinstance(found, list) else None


def _decoded(part: str, text: Any) -> Any:
    if not isinstance(text, str):
        raise UnsafeArchiveError(f"{part}: its arguments are not described as torch.export.save does")
    return _parsed(part, text.encode("utf-8", "surrogatepass"))


def _keywords(spec: Any) -> Iterator[Any]:
    """The names of the arguments that a signature takes by name: ``[1, (positions, {names})]`` as text."""
    try:
        tree = json.loads(spec)[1]
        kinds = [child["type"] for child in tree["children_spec"]]
        if tree["type"] == "builtins.tuple" and kinds[1:] == ["builtins.dict"]:
            yield from json.loads(tree["children_spec"][1]["context"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise UnsafeArchiveError("its arguments are not described as torch.export.save does") from error


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    open_values = [value]
    while open_values:
        value = open_values.pop()
        if isinstance(value, dict):
            yield value
            open_values.extend(value.values())
        elif isinstance(value, list):
            open_values.extend(value)


def _check_inputs(part: str, data: bytes) -> None:
    """Example inputs are always pickled; they hold tensors and nothing else."""
    if not data:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            pickles = [member for member in members if member.filename.endswith(".pkl")]
            is_packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if len(pickles) != 1 or is_packed or len({one.filename.casefold() for one in members}) != len(members):
                raise UnsafeArchiveError(f"{part}: not as torch.save writes it")
            with archive.open(pickles[0]) as pickled:
                more = _more_than_tensors(pickled)
    except UnsafeArchiveError:
        raise
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise UnsafeArchiveError(f"{part}: not tensors as torch.save writes them: {error}") from error
    if more:
        raise UnsafeArchiveError(f"{part}: its pickle holds more than tensors ({more})")


def _more_than_tensors(pickled: IO[bytes]) -> str:
    """The first step of a pickle that makes anything else; empty if there is none."""
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name not in _SAFE_OPCODES or (opcode.name == "GLOBAL" and not _SAFE_GLOBALS.fullmatch(str(argument))):
            return f"{opcode.name} {argument or ''}"
    return ""
