"""The text of keys, read back.

In: what ``IndexMap.key`` and ``Format.key`` write. Out: the index map and the rest of the format, as plain data.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps.index_map import Digit, Extent, IndexMap

_NUMBER = re.compile(r"\d+")
_DIGIT = re.compile(r"(?:([a-z])|x(\d+)_)(?:/([1-9]\d*))?(?:%([1-9]\d*))?")
_AFTER_SHAPE = re.compile(
    r"(?P<dims>[a-z0-9_/%*.|]*)(?:\+(?P<padding>\d+:\d+(?:_\d+:\d+)*)=(?P<fill>[^@]+))?(?:@(?P<scope>.*))?", re.DOTALL
)


class KeyParts(NamedTuple):
    """What the text of a key says. ``fill`` is its text (``?`` for undef), ``None`` without padding."""

    index_map: IndexMap
    separators: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    fill: str | None
    scope: str | None


def read_key(text: str) -> KeyParts:
    """The parts of a key. Raises :class:`LayoutError`, quoting ``text``, where it is none."""
    shape, start = _shape(text)
    match = _AFTER_SHAPE.fullmatch(text, start)
    if match is None:
        raise _malformed(text)
    axes = re.split(r"[.|]", match["dims"]) if match["dims"] else []
    bars = [mark == "|" for mark in re.findall(r"[.|]", match["dims"])]
    try:
        index_map = IndexMap.make(shape, [_digits(axis, shape, text) for axis in axes])
    except LayoutError as error:
        raise LayoutError(f"the key {text!r} is no layout: {error}") from error
    padding = [(int(low), int(high)) for low, high in re.findall(r"(\d+):(\d+)", match["padding"] or "")]
    separators = tuple(position for position, bar in enumerate(bars, 1) if bar)
    return KeyParts(index_map, separators, tuple(padding), match["fill"], match["scope"])


def _shape(text: str) -> tuple[tuple[Extent, ...], int]:
    """The extents, and where the text goes on after the ``>`` that ends them."""
    extents: list[Extent] = []
    position = 0
    while not text.startswith(">", position):
        if extents:
            if not text.startswith("x", position):
                raise _malformed(text)
            position += 1
        number = _NUMBER.match(text, position)
        end = number.end() if number is not None else _closing(text, position) + 1
        extents.append(int(number[0]) if number is not None else _spaced(text[position + 1 : end - 1]))
        position = end
    return tuple(extents), position + 1


def _spaced(extent: str) -> str:
    """A symbolic extent with the spaces that keys leave out and TIR's extents have."""
    return re.sub(r"\+|//|%", r" \g<0> ", extent).replace(",", ", ")


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at ``start`` is closed."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == "[") - (text[position] == "]")
        if depth == 0:
            if position == start:
                break
            return position
    raise _malformed(text)


def _digits(axis_text: str, shape: tuple[Extent, ...], text: str) -> list[Digit]:
    if axis_text == "1":
        return []
    digits: list[Digit] = []
    for part in axis_text.split("*"):
        match = _DIGIT.fullmatch(part)
        axis = -1 if match is None else int(match[2]) if match[2] is not None else ord(match[1]) - ord("a")
        if match is None or axis not in range(len(shape)):
            raise _malformed(text)
        whole, stride = shape[axis], int(match[3] or 1)
        if isinstance(whole, str):
            if match[3] or match[4]:
                raise LayoutError(f"a symbolic axis can't be cut: {part}")
            digits.append(Digit(axis, 1, whole))
        else:
            digits.append(Digit(axis, stride, int(match[4]) if match[4] else whole // stride))
    return digits


def _malformed(text: str) -> LayoutError:
    return LayoutError(f"malformed key {text!r}: expected something like '1x32x8x8>a.b/16.c.d.b%16'")
