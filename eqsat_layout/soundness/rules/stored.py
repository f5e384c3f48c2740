"""How tensors lie in memory: buffers, with what in them is defined.

In: a format and a tensor, worlds in front. Out: :class:`StoredBytes`, and whether one buffer serves as another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.graph.borders import with_border
from eqsat_layout.maps import GLOBAL, UNDEF, Format
from eqsat_layout.soundness.rules.bits import filled, same_bits

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StoredBytes:
    """Bytes with what of them may be relied on, worlds in front. ``scope``: the memory that they lie in."""

    values: Array
    defined: Array
    scope: str = GLOBAL

    def serves(self, other: StoredBytes) -> bool:
        """Whether everything that ``other`` promises is so here too."""
        if self.scope != other.scope or self.values.shape != other.values.shape:
            return False
        promised = other.defined
        return bool(self.defined[promised].all()) and same_bits(self.values[promised], other.values[promised])


def lay(fmt: Format, array: Array) -> StoredBytes:
    """``array`` (worlds in front) in a format; undef padding is not defined."""
    defined = np.ones(array.shape, bool)
    if fmt.is_padded:
        fill = filled(array.dtype, 0.0 if fmt.fill is UNDEF or fmt.fill is None else float(fmt.fill))
        array = with_border(array, fmt.padding, fill)
        defined = with_border(defined, fmt.padding, fmt.fill is not UNDEF)
    return StoredBytes(fmt.index_map.apply_to_each(array), fmt.index_map.apply_to_each(defined), fmt.scope)
