"""What a reader of one result of a tuple needs: the tuple in any formats of which that one is the one it reads.

In: the format lists of a saturation. Out: names of such needs, which stand beside the names of format lists in stores.
An op with three results in five formats each has up to 125 lists; its readers have fifteen needs. Told apart by list,
the three readers would have asked for every combination of lists that each alone can do with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MARK = "any with "


def part_need(index: int, fmt: str) -> str:
    """The need of a tuple whose result ``index`` is in the format named ``fmt``."""
    return f"{_MARK}{index} in {fmt}"


def is_part_need(name: str) -> bool:
    """Whether a name is such a need and no format."""
    return name.startswith(_MARK)


class TupleParts:
    """Which format lists serve which needs."""

    def __init__(self, lists: Mapping[str, Sequence[str]]):
        self._lists = lists

    def serves(self, formats: str, need: str) -> bool:
        """Whether a tuple in the list ``formats`` is what ``need`` asks for."""
        return any(part_need(i, fmt) == need for i, fmt in enumerate(self._lists.get(formats, ())))
