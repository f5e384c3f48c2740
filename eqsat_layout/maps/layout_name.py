"""Layout names as TVM writes them (``NCHW``, ``NCHW16c``, ``OIHW16i16o``) as index maps.

A capital letter is an axis, a number and a small letter is an inner block of that axis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps.index_map import Digit, Extent, IndexMap

_TOKEN = re.compile(r"([A-Z])|(\d+)([a-z])")


def parse_layout_name(name: str) -> list[tuple[str, int]]:
    """``[(axis letter in capitals, block size or 0 for the outer part)]`` in order; LayoutError if malformed."""
    tokens: list[tuple[str, int]] = []
    end = 0
    for match in _TOKEN.finditer(name):
        if match.start() != end:
            break
        end = match.end()
        tokens.append((match[1], 0) if match[1] else (match[3].upper(), int(match[2])))
    outer = [axis for axis, block in tokens if not block]
    if end != len(name) or not tokens or len(set(outer)) != len(outer):
        raise LayoutError(f"malformed layout name {name!r}: expected something like 'NCHW' or 'NCHW16c'")
    if any(axis not in outer for axis, _ in tokens):
        raise LayoutError(f"layout name {name!r} blocks an axis that it does not have")
    return tokens


def index_map_from_names(source: str, target: str, shape: Sequence[Extent]) -> IndexMap | None:
    """The map that takes a tensor of ``shape`` in layout ``source`` to layout ``target``.

    ``None`` where a block does not divide its axis. Example: ``("NCHW", "NCHW16c", (1, 64, 56, 56))``.
    """
    source_tokens, target_tokens = parse_layout_name(source), parse_layout_name(target)
    if any(block for _, block in source_tokens):
        raise LayoutError(f"source layout {source!r} must be unblocked")
    if len(source_tokens) != len(shape):
        raise LayoutError(f"layout {source!r} has {len(source_tokens)} axes, the tensor has shape {tuple(shape)}")
    axes = {axis: i for i, (axis, _) in enumerate(source_tokens)}
    if {axis for axis, _ in target_tokens} != set(axes):
        raise LayoutError(f"layouts {source!r} and {target!r} don't have the same axes")
    strides: dict[int, int] = {}
    dims: list[list[Digit]] = []
    for axis, block in reversed(target_tokens):
        position = axes[axis]
        stride, extent = strides.get(position, 1), shape[position]
        if block:
            if isinstance(extent, str):
                return None
            dims.append([Digit(position, stride, block)])
            strides[position] = stride * block
        elif stride == 1:
            dims.append([Digit(position, 1, extent)])
        elif isinstance(extent, int) and extent % stride == 0:
            dims.append([Digit(position, stride, extent // stride)])
        else:
            return None
    return IndexMap.make(shape, reversed(dims))
