"""Implementations of contractions on OpenCL: channels in blocks of a texel, each tensor in a buffer or in an image.

In: a computation and the memories of a target. Out: :class:`Candidate` by candidate: the layouts of
:mod:`eqsat_layout.implementations.layouts` with blocks of four, each operand and the result placed on its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from eqsat_layout.implementations.layouts import Blocking, Candidate, layout_candidates
from eqsat_layout.maps import GLOBAL, Digit, Format, IndexMap
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow
from eqsat_layout.tir.placement import Placement, why_not_placed

TEXEL: Final = 4
"""Elements; a vector of OpenCL C and of the arithmetic too."""

BLOCKING: Final = Blocking((TEXEL,), roomy=TEXEL)

_FOR_DATA: Final = (TEXTURE, NHWC, WEIGHT)
_FOR_WEIGHTS: Final = (WEIGHT, TEXTURE, NHWC)
"""The first that suits is proposed: which one it is changes nothing but what fits."""


def candidates(computation: Computation, placement: Placement) -> tuple[Candidate, ...]:
    """All layouts, in all memories that their kernels can use."""
    found: dict[Flow, Candidate] = {}
    for candidate in layout_candidates(computation, BLOCKING):
        for flow in _placed(computation, candidate.flow, placement):
            places = " ".join(short(fmt) for fmt in (*flow.operands, *flow.results))
            found.setdefault(flow, Candidate(f"{candidate.name}, {places}", flow))
    return tuple(found.values())


def not_held(computation: Computation, placement: Placement) -> Iterator[tuple[int, Format, str]]:
    """The buffers of which the images are too large, each once for each scope."""
    numbers = (*computation.operands, *computation.results)
    seen: set[tuple[int, str]] = set()
    for candidate in layout_candidates(computation, BLOCKING):
        for number, fmt in zip(numbers, (*candidate.flow.operands, *candidate.flow.results), strict=True):
            texels = in_texels(fmt)
            for memory in placement.memories.values():
                image = None if memory.is_flat or texels is None else memory.grouped(texels)
                if image is None or (number, memory.scope) in seen or not memory.suits(image):
                    continue
                reason = memory.why_not(image, computation.buffers[number].dtype)
                if reason is not None:
                    seen.add((number, memory.scope))
                    yield number, image, f"{memory.scope}: {reason}"


def short(fmt: Format) -> str:
    """The memory of a format in a word: ``buffer``, ``texture``, ``nhwc`` or ``weight``."""
    return "buffer" if fmt.scope == GLOBAL else fmt.scope.removeprefix("global.").removeprefix("texture-")


def in_texels(fmt: Format) -> Format | None:
    """The same bytes with the innermost axis a texel; ``None`` where it can't be cut so."""
    last = fmt.index_map.dims[-1]
    inner = last[-1] if last else None
    if inner is None or not isinstance(inner.extent, int) or inner.extent % TEXEL:
        return None
    if fmt.physical_shape[-1] == TEXEL:
        return fmt
    outer = Digit(inner.axis, inner.stride * TEXEL, inner.extent // TEXEL)
    blocks = (*last[:-1], outer) if outer.extent != 1 else last[:-1]
    dims = (*fmt.index_map.dims[:-1], blocks, (Digit(inner.axis, inner.stride, TEXEL),))
    return replace(fmt, index_map=IndexMap.make(fmt.index_map.shape, dims))


def _placed(computation: Computation, flow: Flow, placement: Placement) -> Iterator[Flow]:
    """The flow with each operand and result in a buffer, or in an image if there is one for it."""
    numbers = (*computation.operands, *computation.results)
    data = (computation.operands[0], *computation.results)
    choices: list[list[Format]] = []
    for number, fmt in zip(numbers, (*flow.operands, *flow.results), strict=True):
        scopes = _FOR_DATA if number in data else _FOR_WEIGHTS
        image = _image(computation, number, fmt, scopes, placement)
        choices.append([fmt] if image is None else [fmt, image])
    count = len(computation.operands)
    for chosen in itertools.product(*choices):
        yield Flow(chosen[:count], chosen[count:], flow.internal)


def _image(
    computation: Computation, number: int, fmt: Format, scopes: Sequence[str], placement: Placement
) -> Format | None:
    texels = in_texels(fmt)
    memories = [placement.memories[scope] for scope in scopes if scope in placement.memories]
    for memory in memories if texels is not None else ():
        assert texels is not None
        found = memory.placed(texels, computation.buffers[number].dtype)
        if found is not None and memory.suits(found) and why_not_placed(computation, number, found, placement) is None:
            return found
    return None
