"""Measurements as records, and as lines of a file.

In: what was measured. Out: a line of JSON, ``{"sum":"<crc32>",<the rest>}``, the sum being that of ``<the rest>}``, and
the record of such a line. The rest starts with the kind; a kernel's goes on with a digest of machine, version and
computation: all that reading looks at.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eqsat_layout.errors import EqsatError

FORMAT_VERSION: Final = 1
"""Of the files. Another version has other file names, so versions live side by side."""


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What a kernel is known by: ``computation`` is a digest of what it computes, or says that it copies.

    ``formats``: the keys of the formats of operands and results; before those of a copy stands the dtype.
    """

    computation: str
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel on one machine: median ``seconds`` of ``runs``, ``spread`` between their quartiles.

    ``version`` is the package that scheduled it, ``date`` is ISO 8601, UTC.
    """

    machine: str
    kernel: KernelKey
    seconds: float
    spread: float
    runs: int
    version: str
    date: str


@dataclass(frozen=True, slots=True)
class Constants:
    """What a cost model needs to know of a machine, by the name of the model's field; SI units."""

    machine: str
    values: Mapping[str, float]
    version: str
    date: str


Record = Measured | Constants

_HEAD: Final = b'{"sum":"'
SUM: Final = len(_HEAD) + 8 + len(b'",')
"""Bytes before what a line says: a checksum of that."""
KERNEL: Final = b'"kind":"kernel","group":"'
"""How the line of a kernel begins, before its group."""
DIGEST: Final = 32
"""Characters of a group."""


def line_of(record: Record) -> bytes:
    if isinstance(record, Measured):
        group = group_digest(record.machine, record.version, record.kernel.computation).decode()
        content: dict[str, Any] = {"kind": "kernel", "group": group, "machine": record.machine}
        content |= {"version": record.version, "date": record.date}
        content |= {"computation": record.kernel.computation, "formats": record.kernel.formats}
        content |= {"seconds": record.seconds, "spread": record.spread, "runs": record.runs}
    else:
        content = {"kind": "constants", "machine": record.machine, "version": record.version, "date": record.date}
        content["values"] = dict(record.values)
    if _record(content) is None:
        raise EqsatError(f"not a measurement: {record}")
    rest = json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")[1:]
    return b'%s%08x",%s\n' % (_HEAD, zlib.crc32(rest), rest)


def group_digest(machine: str, version: str, computation: str) -> bytes:
    text = "\0".join((machine, version, computation))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST].encode("ascii")


def is_whole(line: bytes) -> bool:
    """The line is as it was written."""
    return line[:SUM] == b'%s%08x",' % (_HEAD, zlib.crc32(line[SUM:]))


def record_in(line: bytes) -> Record | None:
    """The record of a whole line; ``None`` for one of another kind, or of values that can't be."""
    try:
        return _record(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _record(content: Any) -> Record | None:
    try:
        machine, version, date = (str(content[name]) for name in ("machine", "version", "date"))
        if content["kind"] == "constants":
            values = {str(name): float(value) for name, value in content["values"].items()}
            return Constants(machine, values, version, date) if all(map(_is_sane, values.values())) else None
        if content["kind"] != "kernel":
            return None
        key = KernelKey(str(content["computation"]), tuple(map(str, content["formats"])))
        seconds, spread, runs = float(content["seconds"]), float(content["spread"]), int(content["runs"])
        is_sane = _is_sane(seconds) and 0 <= spread < math.inf and runs > 0
        return Measured(machine, key, seconds, spread, runs, version, date) if is_sane else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _is_sane(value: float) -> bool:
    return 0 < value < math.inf


def identity_in(line: bytes) -> Any:
    """What a later line must share to replace this one."""
    record = record_in(line)
    if isinstance(record, Constants):
        return record.machine
    return line if record is None else (record.machine, record.version, record.kernel)
