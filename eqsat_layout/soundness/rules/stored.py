"""How tensors lie in memory: buffers, with what in them is defined.

In: a format and a tensor, worlds in front. Out: :class:`StoredBytes`, and whether one buffer serves as another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
        widths = ((0, 0), *fmt.padding)
        fill = filled(array.dtype, 0.0 if fmt.fill is UNDEF or fmt.fill is None else float(fmt.fill))
        array = np.pad(array, widths, constant_values=fill)
        defined = np.pad(defined, widths, constant_values=fmt.fill is not UNDEF)
    return StoredBytes(per_world(fmt.index_map.apply, array), per_world(fmt.index_map.apply, defined), fmt.scope)


def per_world(function: Callable[[Array], Array], array: Array) -> Array:
    """``function`` in every world."""
    return np.stack([function(a) for a in array])
