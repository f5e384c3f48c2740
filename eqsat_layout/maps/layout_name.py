"""Layout names as TVM writes them (``NCHW``, ``NCHW16c``, ``OIHW16i16o``) as index maps.

In: two names, a shape. Out: the index map between them. A capital letter is an axis, a number and a small letter is an
inner block of that axis. ``|`` starts a new group of physical axes (``NCHW|4c``), for memory that is addressed by
several indices, and ``@`` names the memory scope (``NCHW4c@global.texture``); neither changes anything about the index
map.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps.format import GLOBAL
from eqsat_layout.maps.index_map import Digit, Extent, IndexMap

_TOKEN = re.compile(r"([A-Z])|(\d{1,18})([a-z])")


def parse_layout_name(name: str) -> list[tuple[str, int]]:
    """``[(axis letter in capitals, block size or 0 for the outer part)]`` in order; LayoutError if malformed."""
    groups = [_tokens(group) for group in name.split("|")]
    tokens = [token for group in groups for token in group]
    outer = [axis for axis, block in tokens if not block]
    if not all(groups) or len(set(outer)) != len(outer):
        raise LayoutError(f"malformed layout name {name!r}: expected something like 'NCHW' or 'NCHW16c'")
    if any(axis not in outer for axis, _ in tokens):
        raise LayoutError(f"layout name {name!r} blocks an axis that it does not have")
    return tokens


def split_scope(name: str) -> tuple[str, str]:
    """The layout without its memory scope, and the scope; :class:`LayoutError` where ``@`` is followed by none."""
    layout, at, scope = name.partition("@")
    if at and not scope:
        raise LayoutError(f"malformed layout name {name!r}: no memory scope after '@'")
    return layout, scope or GLOBAL


def layout_separators(name: str) -> tuple[int, ...]:
    """The positions between physical axes where ``|`` starts a new group; LayoutError if ``name`` is malformed."""
    parse_layout_name(name)
    sizes = [len(_tokens(group)) for group in name.split("|")]
    return tuple(accumulate(sizes[:-1]))


def outer_stride(tokens: Sequence[tuple[str, int]], axis: str) -> int:
    """Elements of a logical axis from one place of its outer part to the next: all of its blocks, wherever they stand.

    ``tokens`` are those of :func:`parse_layout_name`.
    """
    return math.prod(block for other, block in tokens if other == axis and block)


def index_map_from_names(source: str, target: str, shape: Sequence[Extent]) -> IndexMap | None:
    """The map that takes a tensor of ``shape`` in layout ``source`` to layout ``target``.

    ``None`` where a block does not divide its axis. Example: ``("NCHW", "NCHW16c", (1, 64, 56, 56))``.
    """
    source_tokens, target_tokens = parse_layout_name(source), parse_layout_name(target)
    if any(block for _, block in source_tokens):
        raise LayoutError(f"source layout {source!r} must be unblocked")
    if layout_separators(source):
        raise LayoutError(f"source layout {source!r} must be one group of axes")
    if len(source_tokens) != len(shape):
        raise LayoutError(f"layout {source!r} has {len(source_tokens)} axes, the tensor has shape {tuple(shape)}")
    axes = {axis: i for i, (axis, _) in enumerate(source_tokens)}
    if {axis for axis, _ in target_tokens} != set(axes):
        raise LayoutError(f"layouts {source!r} and {target!r} don't have the same axes")
    blocks = {axes[axis]: outer_stride(target_tokens, axis) for axis, _ in target_tokens}
    strides: dict[int, int] = {}
    dims: list[list[Digit]] = []
    for axis, block in reversed(target_tokens):
        position = axes[axis]
        stride, extent = strides.get(position, 1) if block else blocks[position], shape[position]
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


def _tokens(group: str) -> list[tuple[str, int]]:
    """The tokens of one group, ``[]`` if it is malformed."""
    tokens: list[tuple[str, int]] = []
    end = 0
    for match in _TOKEN.finditer(group):
        if match.start() != end:
            return []
        end = match.end()
        tokens.append((match[1], 0) if match[1] else (match[3].upper(), int(match[2])))
    return tokens if end == len(group) else []
