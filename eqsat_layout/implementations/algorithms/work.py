"""What an algorithm can't do without, known before its graph is built.

In: a :class:`Convolution`. Out: :class:`Work`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat_layout.implementations.algorithms.convolution import Convolution


@dataclass(frozen=True)
class Work:
    """``flops``: of its products. ``between``: elements that one of its kernels writes and another one reads.
    ``weights``: elements of the weights that its products read."""

    flops: float
    between: float
    weights: float


def own_flops(conv: Convolution) -> float:
    """Of the convolution as it is, padding and all."""
    channels, outputs = conv.channels
    places = conv.batch * math.prod(conv.out_size)
    return 2.0 * places * outputs * (channels // conv.groups) * math.prod(conv.windows)


def own_weights(conv: Convolution) -> float:
    """Elements of its kernel."""
    channels, outputs = conv.channels
    return float(outputs * (channels // conv.groups) * math.prod(conv.windows))
