"""Tensors in TVM JSON: they take no more memory than the text has for them.

In: the text of a tensor, which is base64 of a header and its bytes. Out: whether TVM may load it: it makes room for as
many axes and elements as the header says before it looks how many there are.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import Final

_MOST_AXES: Final = 64
_HEADER: Final = struct.Struct("<QQiiiBBH")
"""A magic number, 0, a device's type and number, the axes, a dtype's code, bits and lanes; extents are next."""
_EXTENT: Final = 8


def is_stored_tensor(text: str) -> bool:
    """Whether the header is one, and its elements fit into the text."""
    head = _decoded(text, _HEADER.size)
    if len(head) < _HEADER.size:
        return False
    axes, _, bits, lanes = _HEADER.unpack(head)[-4:]
    if not 0 <= axes <= _MOST_AXES:
        return False
    extents = _decoded(text, _HEADER.size + axes * _EXTENT)[_HEADER.size :]
    if len(extents) < axes * _EXTENT:
        return False
    shape = struct.unpack(f"<{axes}q", extents)
    return all(extent >= 0 for extent in shape) and math.prod(shape) * bits * lanes <= len(text) * 6


def _decoded(text: str, size: int) -> bytes:
    """The first bytes, so many or fewer."""
    try:
        return base64.b64decode(text[: -(-size // 3) * 4])[:size]
    except (ValueError, binascii.Error):
        return b""
