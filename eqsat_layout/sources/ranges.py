"""Ranges that a program says its sizes are of: it may have left out what it does for others.

In: a function, whose attributes say them as TVM's frontends and memory planning do. Out: a :class:`SizeRange` for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SizeRange:
    """Of the size ``name``; ``most`` is None where there is none."""

    name: str
    least: int
    most: int | None

    def __contains__(self, size: int) -> bool:
        return self.least <= size and (self.most is None or size <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"{self.name} is at least {self.least}"
        return f"{self.name} is {f'{self.least} to' if self.least else 'at most'} {self.most}"


def ranges_of(function: Any) -> tuple[SizeRange, ...]:
    """Those that leave a size out."""
    said: Mapping[str, Any] = function.attrs or {}
    least, most = (said.get(f"tir_var_{which}_bound") or {} for which in ("lower", "upper"))
    names = sorted({str(name) for name in (*least, *most)})
    ranges = [SizeRange(name, int(least.get(name, 0)), int(most[name]) if name in most else None) for name in names]
    return tuple(one for one in ranges if one.least > 0 or one.most is not None)


def outside(ranges: Sequence[SizeRange], name: str, size: int) -> SizeRange | None:
    """The range of ``name`` that ``size`` is not in."""
    return next((one for one in ranges if one.name == name and size not in one), None)
