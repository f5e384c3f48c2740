"""Bytes that say what they hold: a head as JSON, then parts at addresses where tensors may lie.

In: a head and buffers. Out: buffers for a file; or the head again and what follows it, not copied.
"""

from __future__ import annotations

import json
from typing import Any, Final

ALIGNMENT: Final = 64
"""Bytes; what TVM asks of memory that it has not allocated."""

_LENGTH: Final = 8


def padding_after(size: int) -> int:
    """Bytes until the next address for a tensor."""
    return -size % ALIGNMENT


def head_of(value: Any) -> bytes:
    """``value`` as JSON; what is written next lies at an address for tensors."""
    text = json.dumps(value).encode()
    size = _LENGTH + len(text)
    return b"".join((len(text).to_bytes(_LENGTH, "little"), text, bytes(padding_after(size))))


def split_head(data: memoryview) -> tuple[Any, memoryview]:
    """What was given to :func:`head_of`, and what follows."""
    size = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    return json.loads(bytes(data[_LENGTH:size])), data[size + padding_after(size) :]
