"""What a reader of one result of a tuple needs: the tuple in any formats of which that one is the one it reads.

In: the format lists of a saturation. Out: names of such needs, which stand beside the names of format lists in stores.
An op with three results in five formats each has up to 125 lists; its readers have fifteen needs. Told apart by list,
the three readers would ask for every combination of lists that each alone can do with.

A tuple in other formats serves a need, too, for what the conversion of that result costs: so the solver sees that
needs are near each other. A solution that makes use of it is settled afterwards (``solved.py``).
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
    """Which tensors the results of tuples are, and in which formats a list has them."""

    def __init__(self, lists: Mapping[str, Sequence[str]], tensors: Mapping[int, Mapping[int, int]]):
        """``tensors``: by the number of a tuple, and the index of a result."""
        self._lists, self._tensors = lists, tensors

    def of(self, whole: int) -> tuple[int, ...]:
        """The tensors that are results of a tuple and read, by index."""
        return tuple(tensor for _, tensor in sorted(self._tensors.get(whole, {}).items()))

    def conversion(self, whole: int, formats: str, need: str) -> tuple[int, str, str] | None:
        """The tensor that is needed, its format in the list ``formats`` and the one needed; None for another list."""
        index, _, fmt = need.removeprefix(_MARK).partition(" in ")
        if formats not in self._lists:
            return None
        return self._tensors[whole][int(index)], self._lists[formats][int(index)], fmt
