"""Algorithms: other ways to compute what a block computes, as graphs of ops that layouts are chosen for like any.

To add one: a function from what it applies to (:class:`Convolution`) to a Relax module, and a line here. Imports
``graph`` and what is below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eqsat_layout.graph.constants import GROWTH
from eqsat_layout.graph.te_kernels import DescribedModule
from eqsat_layout.implementations.algorithms.col2im import col2im, why_not_col2im
from eqsat_layout.implementations.algorithms.convolution import Convolution, convolution_of
from eqsat_layout.implementations.algorithms.groups import (
    grouped,
    why_not_grouped,
    why_not_larger_groups,
    with_larger_groups,
)
from eqsat_layout.implementations.algorithms.im2col import im2col, im2col_work, why_not_im2col
from eqsat_layout.implementations.algorithms.subsampled import subsampled, subsampled_work, why_not_subsampled
from eqsat_layout.implementations.algorithms.taps import taps_apart, why_not_taps_apart
from eqsat_layout.implementations.algorithms.transposed import (
    transposed,
    transposed_in_groups,
    transposed_in_planes,
    why_not_in_planes,
    why_not_transposed,
)
from eqsat_layout.implementations.algorithms.upright import upright, why_not_upright
from eqsat_layout.implementations.algorithms.winograd import why_not_winograd, winograd, winograd_growth, winograd_work
from eqsat_layout.implementations.algorithms.work import Work


@dataclass(frozen=True)
class Algorithm:
    """``approx``: it rounds worse than adding up in another order does, or multiplies by other zeros: a product of 0
    and infinity is NaN.

    ``growth``: how many times the elements of its constants an op over constants may give for it to be folded: four for
    the weights of Winograd's F(4, 3), which are worth it. ``grouped``: it is for convolutions in groups, else for
    those of one. ``widens``: also where factors have fewer bits than sums. ``reason``: why ``build`` gives nothing,
    None where it gives something. ``work``: what it can't do without; None where that is not known. ``moves_less``: it
    is for data that come in a layout that they are moved from, of which it moves a part.
    """

    name: str
    approx: bool
    build: Callable[[Convolution], Any]
    growth: float = GROWTH
    grouped: bool = False
    widens: bool = False
    reason: Callable[[Convolution], str | None] = lambda _: None
    work: Callable[[Convolution], Work] | None = None
    moves_less: bool = False

    def described(self, conv: Convolution) -> Any:
        """The module, which may be a :class:`DescribedModule`; ``None`` where it does not apply."""
        applies = self.grouped == (conv.groups > 1) and (self.widens or not conv.is_widened)
        return self.build(conv) if applies else None

    def of(self, conv: Convolution) -> Any:
        """The module with its PrimFuncs; ``None`` where it does not apply."""
        found = self.described(conv)
        return found.whole() if isinstance(found, DescribedModule) else found

    def why_not(self, conv: Convolution) -> str | None:
        """Why it does not apply, in words; None where it does."""
        if self.grouped != (conv.groups > 1):
            return f"it has {conv.groups} groups" if conv.groups > 1 else "it has no groups"
        if conv.is_widened and not self.widens:
            return f"it multiplies {' by '.join(conv.factors)} in {conv.dtype}"
        return self.reason(conv)


def _groups_of(outputs: int) -> Algorithm:
    return Algorithm(
        f"groups of {outputs}",
        True,
        lambda conv: with_larger_groups(conv, outputs),
        growth=outputs,
        grouped=True,
        widens=True,
        reason=lambda conv: why_not_larger_groups(conv, outputs),
    )


def _winograd(tile: int, window: int) -> Algorithm:
    return Algorithm(
        f"winograd F({tile},{window})",
        True,
        lambda conv: winograd(conv, tile, window),
        winograd_growth(tile, window),
        reason=lambda conv: why_not_winograd(conv, tile, window),
        work=lambda conv: winograd_work(conv, tile, window),
    )


ALGORITHMS: Final = (
    _winograd(2, 3),
    _winograd(4, 3),
    _winograd(3, 2),
    _winograd(3, 4),
    _winograd(2, 5),
    _winograd(2, 7),
    Algorithm("im2col", False, im2col, reason=why_not_im2col, work=im2col_work),
    Algorithm(
        "subsampled",
        False,
        subsampled,
        widens=True,
        reason=why_not_subsampled,
        work=subsampled_work,
        moves_less=True,
    ),
    Algorithm("upright", False, upright, widens=True, reason=why_not_upright),
    Algorithm("transposed", True, transposed, widens=True, reason=why_not_transposed),
    Algorithm("transposed in groups", True, transposed_in_groups, grouped=True, widens=True, reason=why_not_transposed),
    Algorithm("transposed in planes", True, transposed_in_planes, widens=True, reason=why_not_in_planes),
    Algorithm("col2im", True, col2im, widens=True, reason=why_not_col2im),
    Algorithm("taps apart", True, taps_apart, reason=why_not_taps_apart),
    Algorithm("groups", False, grouped, grouped=True, widens=True, reason=why_not_grouped),
    _groups_of(8),
    _groups_of(16),
)


def algorithms_for(conv: Convolution, algorithms: Sequence[Algorithm]) -> list[Algorithm]:
    """Those that compute the same."""
    return [algorithm for algorithm in algorithms if algorithm.why_not(conv) is None]


__all__ = ["ALGORITHMS", "Algorithm", "Convolution", "algorithms_for", "convolution_of"]
