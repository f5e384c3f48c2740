"""A program of a device as bytes: JSON, then constants.

In: what the JSON says beside the host plan. Out: pieces to write, and what they were. Nothing in a file is code of
this machine: text and plans are data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.system.frames import head_of, padding_after, split_head
from eqsat_layout.targets.gpu.host.plan import HostPlan

Piece = bytes | memoryview

_REFUSALS: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What taking data apart raises that another program wrote."""


def file_parts(kind: str, said: Mapping[str, Any], plan: HostPlan, constants: Sequence[Piece]) -> list[Piece]:
    """``kind``: what :func:`read_parts` is to find."""
    pieces: list[Piece] = [head_of({"kind": kind, **said, "plan": plan.to_data()})]
    for one in constants:
        pieces += [one, bytes(padding_after(len(one)))]
    return pieces


def read_parts(kind: str, data: Piece) -> tuple[Mapping[str, Any], HostPlan, list[memoryview]]:
    """What :func:`file_parts` was given; the constants lie in ``data``. :class:`EqsatError` for another file."""
    try:
        head, rest = split_head(memoryview(data))
        if head["kind"] != kind:
            raise ValueError("another kind of file")
        plan = HostPlan.from_data(head["plan"])
        return head, plan, list(_split(rest, [c.size for c in plan.constants]))
    except _REFUSALS as error:
        raise EqsatError(f"this is no {kind}: {error}") from error


def said_to_be(data: Piece) -> str:
    """The ``kind`` of a file; :class:`EqsatError` for one that has none."""
    try:
        return str(split_head(memoryview(data))[0]["kind"])
    except _REFUSALS as error:
        raise EqsatError(f"this is no program: {error}") from error


def _split(data: memoryview, sizes: Sequence[int]) -> Iterator[memoryview]:
    place = 0
    for size in sizes:
        if place + size > len(data):
            raise ValueError("it is cut off")
        yield data[place : place + size]
        place += size + padding_after(size)
