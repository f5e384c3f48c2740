"""What can't be computed of values: operands of types that an op does not take, or parts that are not made.

In: types. Out: errors that say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Type = tuple[tuple[Any, ...], Any]
"""A shape and an element type."""


class IllTypedError(Exception):
    """A term that means nothing: an op on operands that it does not take, a name that stands for nothing."""


class OtherOperandsError(IllTypedError):
    """An op on operands of other types. What holds of all operands is tried on these too, so that words are put
    together only where they are read."""

    def __init__(self, op: str, expected: Sequence[Type], given: Sequence[Type]):
        super().__init__(op, expected, given)
        self._op, self._expected, self._given = op, expected, given

    def __str__(self) -> str:
        return (
            f"{self._op} does not take these operands: it is an op on {_types(self._expected)}, "
            f"they are {_types(self._given)}; (Make k ..) makes one for others"
        )


class NotMadeError(IllTypedError):
    """An op that a rule asks for and that can't be had of these operands: the rule claims nothing then."""


def _types(types: Iterable[Type]) -> str:
    return "(" + ", ".join(f"{shape} {dtype}" for shape, dtype in types) + ")"
