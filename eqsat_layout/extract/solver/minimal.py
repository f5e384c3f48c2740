"""Sets of bits that hold no earlier one.

In: bit masks, in some order. Out: places among them. Each is looked at beside the earlier ones that were kept, and
those of its own group, many at once: what was not kept has a part that was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

_FEW: Final = 48
"""Masks that are compared one by one."""
_WORD: Final = 64


def minimal(masks: Sequence[int]) -> list[int]:
    """The places of the masks of which no earlier one is a part, in order."""
    first = sorted({mask: place for place, mask in reversed([*enumerate(masks)])}.values())
    return _one_by_one(masks, first) if len(first) <= _FEW else _at_once(masks, first)


def _one_by_one(masks: Sequence[int], places: Sequence[int]) -> list[int]:
    kept: list[int] = []
    for place in places:
        if not any(masks[other] & ~masks[place] == 0 for other in kept):
            kept.append(place)
    return kept


def _at_once(masks: Sequence[int], places: Sequence[int]) -> list[int]:
    words = math.ceil(max(masks[place].bit_length() for place in places) / _WORD) or 1
    data = b"".join(masks[place].to_bytes(words * _WORD // 8, "little") for place in places)
    own = np.frombuffer(data, dtype="<u8").reshape(len(places), words).T
    kept = np.empty(0, dtype=np.intp)
    for start in range(0, len(places), _WORD):
        some = np.arange(start, min(start + _WORD, len(places)))
        earlier = np.concatenate([kept, some])
        beyond = np.zeros((len(earlier), len(some)), dtype=np.uint64)
        for word in own:
            beyond |= word[earlier, None] & ~word[some]
        is_part = (beyond == 0) & (earlier[:, None] < some)
        kept = np.concatenate([kept, some[~is_part.any(axis=0)]])
    return [places[int(place)] for place in kept]
