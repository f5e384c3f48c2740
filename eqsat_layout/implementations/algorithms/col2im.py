"""A transposed convolution as one product of matrices, whose results are added up where they meet (col2im).

In: a :class:`Convolution` whose data is stretched or whose windows are flipped. Out: a Relax module. Every element of
the data is multiplied by the whole window, so nothing is multiplied by a zero: neither by those between elements, nor
by those around few of them, as in the first layer of what makes images. Sums over channels are added up one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import tvm
from tvm import relax, te, tirx

from eqsat_layout.implementations.algorithms.convolution import Convolution
from eqsat_layout.implementations.algorithms.graphs import GraphBuilder, in_result_order, module_of

_MOST_TERMS = 36
"""Of one element of the result: they are written out."""


def col2im(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where it does not apply."""
    if why_not_col2im(conv) is not None:
        return None
    channels, outputs = conv.channels
    places, taps = math.prod(conv.size), math.prod(conv.windows)

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        rows = builder.emit(relax.op.permute_dims(data, [conv.data[0], *conv.data[2:], conv.data[1]]))
        rows = builder.emit(relax.op.reshape(rows, (conv.batch, places, channels)))
        weight = builder.emit(relax.op.permute_dims(kernel, [conv.kernel[1], *conv.kernel[2:], conv.kernel[0]]))
        weight = builder.emit(relax.op.reshape(weight, (channels, taps * outputs)))
        product = builder.emit(relax.op.matmul(rows, weight, out_dtype=conv.dtype if conv.is_widened else None))
        sums = builder.emit_kernel(_Meeting(conv).sums, product, name="col2im")
        return in_result_order(sums, conv)

    return module_of(conv, compute)


def why_not_col2im(conv: Convolution) -> str | None:
    """Why it has none; None where it has."""
    if not (conv.is_stretched or any(conv.flipped)):
        return "it is no transposed convolution"
    if {*conv.strides, *conv.dilation} != {1}:
        return f"its strides are {conv.strides} and its dilation {conv.dilation}, not 1"
    if len(set(conv.factors)) > 1:
        return f"its operands are of {' and '.join(conv.factors)}"
    terms = math.prod(_most_taps(conv))
    return f"it adds up {terms} products, more than {_MOST_TERMS}" if terms > _MOST_TERMS else None


def _most_taps(conv: Convolution) -> list[int]:
    """By axis, how many elements of the window one place of the result may need."""
    axes = zip(conv.windows, conv.stretches, conv.size, strict=True)
    return [min(-(-window // stretch), size) for window, stretch, size in axes]


class _Meeting:
    """Which products meet at a place of the result.

    Window element ``u`` meets the data at place ``h`` of the result where ``h + u - before`` is a multiple of
    ``stretch``: there ``element = (h + u - before) / stretch``.
    """

    def __init__(self, conv: Convolution):
        self._conv = conv

    def sums(self, products: te.Tensor) -> te.Tensor:
        """(n, h, ..., o) of ``products``: (n, elements, elements of the window and o)."""
        conv = self._conv
        terms = list(itertools.product(*map(range, _most_taps(conv))))

        def element(n: Any, *indices: Any) -> Any:
            *at, o = indices
            return reduce(add, (self._product(products, n, at, o, steps) for steps in terms))

        return te.compute((conv.batch, *conv.out_size, conv.channels[1]), element, name="col2im")

    def _product(self, products: te.Tensor, n: Any, at: Sequence[Any], o: Any, steps: Sequence[int]) -> Any:
        """The ``steps``-th of those that meet there; 0 where there are fewer."""
        conv, elements, taps, inside = self._conv, [], [], []
        for axis, (place, step) in enumerate(zip(at, steps, strict=True)):
            element, tap = self._meet(axis, place, step)
            size, window = conv.size[axis], conv.windows[axis]
            inside += [element >= 0, element < size, tap >= 0, tap < window]
            elements.append(element)
            taps.append(tap)
        value = products(n, _flat(elements, conv.size), _flat((*taps, o), (*conv.windows, conv.channels[1])))
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, conv.dtype))

    def _meet(self, axis: int, place: Any, step: int) -> tuple[Any, Any]:
        """(element of the data, element of the window); of the fewer of both, every one has a step."""
        stretch, window, size = self._conv.stretches[axis], self._conv.windows[axis], self._conv.size[axis]
        before = self._conv.padding[axis][0]
        if size < -(-window // stretch):
            return tirx.const(step, "int64"), step * stretch - place + before
        tap = tirx.floormod(before - place, stretch) + step * stretch
        return tirx.floordiv(place + tap - before, stretch), tap


def _flat(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """The number of an element in rows of ``shape``."""
    number: Any = tirx.const(0, "int64")
    for index, size in zip(indices, shape, strict=True):
        number = number * size + index
    return number
