"""A checksum at the end of a library's file, by which a damaged one is known before the system opens it.

In: a path. Out: the same file with some bytes behind what the system reads, or why it is not as it was written. The
system believes what a library says of itself: a damaged one ends the process while it is opened or run. A checksum is
for accidents; who changes a library on purpose runs code of his own anyway.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from eqsat_layout.system.readable import check_size

_END: Final = struct.Struct("<12sQI")
"""What it is with its version, how many bytes come before it, and their CRC-32."""
_MARK: Final = b"eqsat_so 1\n\0"
_PIECE: Final = 1 << 20


def seal(path: Path) -> None:
    """Adds the checksum."""
    with path.open("r+b") as file:
        checksum, size = _crc(file)
        file.write(_END.pack(_MARK, size, checksum))


def damage(path: Path) -> str | None:
    """Why it is not what was sealed; ``None`` if it is. OSError for a file that can't be read, or is too large to."""
    check_size(path)
    with path.open("rb") as file:
        told = file.seek(0, os.SEEK_END) - _END.size
        if told < 0:
            return "it is cut off"
        file.seek(told)
        mark, size, checksum = _END.unpack(file.read(_END.size))
        if mark != _MARK:
            return "it is cut off, or was not written by Session.save or `eqsat-layout compile` of this version"
        file.seek(0)
        return None if size == told and _crc(file, told) == (checksum, told) else "it is damaged"


def _crc(file: BinaryIO, most: int | None = None) -> tuple[int, int]:
    """Of what follows, and its size in bytes; of the first ``most`` bytes at most."""
    checksum = size = 0
    piece = memoryview(bytearray(_PIECE))
    while count := file.readinto(piece[: None if most is None else most - size]):  # type: ignore[attr-defined]
        checksum, size = zlib.crc32(piece[:count], checksum), size + count
    return checksum, size
