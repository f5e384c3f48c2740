"""Algorithms that can't pay, left out before their graphs are built: most of planning would be about them.

In: an op, the layouts that it may have, algorithms that apply to it, and prices. Out: those that may be the fastest,
and why the others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import Roofline
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.algorithms import Algorithm, Convolution
from eqsat_layout.implementations.algorithms.work import Work, own_flops
from eqsat_layout.implementations.incoming import Incoming
from eqsat_layout.maps import Format, element_bits

_REAL: Final = 1.3
"""How many times as long as it has to an algorithm takes at most: its products are as good as any, and its passes over
data, which are less, are by one vector instruction in three."""

_PRICED: Final = 32
"""Bits of the numbers whose arithmetic a roofline has a price for."""


@dataclass(frozen=True)
class Worth:
    """``kept``: in the order given. ``dropped``: by name, why."""

    kept: Sequence[Algorithm]
    dropped: Mapping[str, str]


def worth_of(
    signature: Signature,
    conv: Convolution,
    algorithms: Sequence[Algorithm],
    incoming: Incoming,
) -> Worth:
    """Dropped is what takes longer, even if its kernels run at full speed, than the op itself does in the best of its
    layouts, and than another algorithm does that runs well below full speed. One whose work is not known is kept. A
    plan without what is dropped costs more by a copy of the op's data at most, where that lies in another layout. What
    moves less of the data is dropped only where they can come at no cost (``incoming``) in whole blocks in which the op
    is as fast as it can be."""
    prices = incoming.prices
    if element_bits(conv.dtype) != _PRICED:
        return Worth(algorithms, {})
    quickest = incoming.quickest(signature)
    own = quickest.seconds
    rate = max(prices.flops, own_flops(conv) / own)
    is_moved = any(a.moves_less for a in algorithms) and not any(
        _are_whole_blocks((flow.operands[conv.data_operand], *flow.results))
        and incoming.is_free(signature.key, conv.data_operand, flow.operands[conv.data_operand])
        for flow in quickest.flows
    )
    judged = [a for a in algorithms if not (a.moves_less and is_moved)]
    least = {a.name: _least(a.work(conv), rate, prices) for a in judged if a.work is not None}
    best = min(least, key=lambda name: least[name], default="")
    dropped: dict[str, str] = {}
    for name, seconds in least.items():
        if seconds >= own:
            dropped[name] = f"it takes {_told(seconds)} or more, and the op in the best of its layouts {_told(own)}"
        elif seconds > _REAL * least[best]:
            dropped[name] = f"it takes {_told(seconds)} or more, and {best} {_told(_REAL * least[best])} or less"
    return Worth([a for a in algorithms if a.name not in dropped], dropped)


def _are_whole_blocks(formats: Iterable[Format]) -> bool:
    """All have an axis that is cut, and none is padded."""
    return all(not f.is_padded and len(f.physical_shape) > len(f.shape) for f in formats)


def _least(work: Work, rate: float, prices: Roofline) -> float:
    per_element = _PRICED / 8 / prices.bandwidth
    return work.between * per_element + max(work.flops / rate, work.weights * prices.weights * per_element)


def _told(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
