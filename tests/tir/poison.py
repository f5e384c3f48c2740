"""Running PrimFuncs in padded formats with poison where nothing may be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tir.helpers import Runner, called, concrete

from eqsat_layout.maps import UNDEF, Digit, Fill, Format, IndexMap, Padding
from eqsat_layout.tir.flow import Flow

POISONS = {"f": (np.nan, 1e30), "i": (-1, 7), "u": (0, 7), "b": (0, 1)}


def padded(
    shape: Sequence[int], axis: int, block: int, fill: Fill, *, lo: int = 0, inner: bool = True, order: Any = None
) -> Format:
    """``axis`` padded by ``lo`` in front and then up to a multiple of ``block``, which goes innermost."""
    borders = [(0, 0)] * len(shape)
    borders[axis] = (lo, -(shape[axis] + lo) % block)
    return blocked(shape, borders, {axis: block} if inner else {}, fill, order=order)


def blocked(
    shape: Sequence[int],
    padding: Padding | list[tuple[int, int]],
    blocks: dict[int, int],
    fill: Fill,
    order: Any = None,
) -> Format:
    """A format with these borders; blocks of axes go innermost, in order; ``order`` permutes the outer axes."""
    extents = [e + lo + hi for e, (lo, hi) in zip(shape, padding, strict=True)]
    axes = range(len(shape)) if order is None else order
    outer = [[Digit(a, blocks.get(a, 1), extents[a] // blocks.get(a, 1))] for a in axes]
    inner = [[Digit(a, 1, b)] for a, b in blocks.items()]
    return Format.make(IndexMap.make(extents, [*outer, *inner]), padding=padding, fill=fill)


class PoisonRunner(Runner):
    """Runs them with NaN, then 1e30 in undef padding; number fills must be there exactly."""

    def compare(
        self, function: Any, flow: Flow, operands: list[Any], results: list[Any], tolerance: float, message: str
    ) -> None:
        """As the runner has it, whatever stands where nothing may be relied on."""
        for poison in (0, 1):
            physical = [lay(concrete(f), a, poison) for f, a in zip(flow.operands, operands, strict=True)]
            empty = [np.ones_like(lay(concrete(f), a, 0)) for f, a in zip(flow.results, results, strict=True)]
            found = called(function, physical, empty)
            for fmt, a, b in zip(flow.results, results, found, strict=True):
                compare(concrete(fmt), a, b, tolerance, message)


def lay(fmt: Format, array: Any, poison: int) -> Any:
    """The buffer of ``array``, undef padding poisoned."""
    if fmt.fill is not UNDEF:
        return fmt.lay(array)
    bits: Any = POISONS[array.dtype.kind][poison]
    if array.dtype == np.float16:
        bits = min(bits, 6e4)  # NaN stays
    bits = np.array(bits).astype(array.dtype)
    return fmt.index_map.apply(np.pad(array, fmt.padding, constant_values=bits))


def compare(fmt: Format, wanted: Any, buffer: Any, tolerance: float, message: str) -> None:
    """The data within the tolerance, a number fill exactly."""
    np.testing.assert_allclose(fmt.unlay(buffer), wanted, rtol=tolerance, atol=tolerance, err_msg=message)
    if fmt.is_padded and fmt.fill is not UNDEF:
        inverse = fmt.index_map.inverse()
        assert inverse is not None
        outside = np.pad(np.zeros(wanted.shape, bool), fmt.padding, constant_values=True)
        rim = inverse.apply(buffer)[outside]
        np.testing.assert_array_equal(rim, np.full_like(rim, fmt.fill), err_msg=f"padding: {message}")


def all_fills(fmt: Format) -> Iterator[Format]:
    """The format with the fills 0, 1 and undef."""
    for fill in (0.0, 1.0, UNDEF):
        yield fmt.with_fill(fill)
