"""What padding holds: a number, nothing that one may rely on, or ``None`` where there is no padding.

In: numbers. Out: fills, which are equal where they are the same number: for Python -0.0 is 0.0, in a tensor it is not.
"""

from __future__ import annotations

import enum
import math
from typing import Any, Final, TypeVar


class _Undef(enum.Enum):
    UNDEF = "?"

    def __repr__(self) -> str:
        return "?"


UNDEF: Final = _Undef.UNDEF
"""The fill of padding that nothing may rely on."""

Fill = float | _Undef | None
"""What padding holds: a number, :data:`UNDEF`, or ``None`` where there is no padding."""

T = TypeVar("T")


class _MinusZero(float):
    """Other numbers are equal where they are the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and other.hex() == self.hex()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


def exact_fill(fill: T) -> T:
    """``fill``, which is equal to what is the same number only."""
    if isinstance(fill, float) and fill == 0.0 and math.copysign(1.0, fill) < 0:
        return _MinusZero(fill)  # type: ignore[return-value]
    return fill


def keep_exact(holder: Any) -> None:
    """The ``fill`` of a frozen dataclass, as :func:`exact_fill` has it."""
    kept = exact_fill(holder.fill)
    if kept is not holder.fill:
        object.__setattr__(holder, "fill", kept)
