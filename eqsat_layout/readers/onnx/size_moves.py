"""Moves of the elements of an ONNX graph's sizes: what is gathered, joined, turned and cut.

In: an op's attributes, and its operands as arrays of expressions. Out: its results as such arrays; None where they are
not known.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import tirx

from eqsat_layout.readers.onnx.size_arithmetic import Maker, Sizes, whole_number


def _numbers(value: Sizes | None, attributes: dict[str, Any], name: str) -> list[int] | None:
    """The numbers of an operand, or of the attribute that it was in older versions of ONNX; None if unknown."""
    if value is None:
        given = attributes.get(name)
        return None if given is None else [int(one) for one in np.atleast_1d(given)]
    flat = value.elements.reshape(-1)
    return [int(one) for one in flat] if all(isinstance(one, tirx.IntImm) for one in flat) else None


def _gathered(attributes: dict[str, Any], data: Sizes, indices: Sizes) -> list[Sizes] | None:
    at = _numbers(indices, {}, "")
    size = data.elements.shape[0] if data.elements.ndim == 1 else 0
    if at is None or not all(-size <= one < size for one in at):
        return None
    made = np.empty(indices.elements.shape, object)
    made.reshape(-1)[:] = [data.elements[one] for one in at]
    return [data.of(made)]


def _joined(attributes: dict[str, Any], *given: Sizes) -> list[Sizes] | None:
    try:
        return [given[0].of(np.concatenate([value.elements for value in given], int(attributes["axis"])))]
    except ValueError:  # extents or axes that don't fit
        return None


def _unsqueezed(attributes: dict[str, Any], data: Sizes, axes: Sizes | None = None) -> list[Sizes] | None:
    at = _numbers(axes, attributes, "axes")
    return None if at is None else [data.of(np.expand_dims(data.elements, tuple(at)))]


def _squeezed(attributes: dict[str, Any], data: Sizes, axes: Sizes | None = None) -> list[Sizes] | None:
    at = _numbers(axes, attributes, "axes")
    if at is None and axes is not None:
        return None
    shape = data.elements.shape
    places = tuple(at) if at is not None else tuple(i for i, extent in enumerate(shape) if extent == 1)
    is_possible = all(-len(shape) <= i < len(shape) and shape[i] == 1 for i in places)
    return [data.of(np.squeeze(data.elements, places))] if is_possible else None


def _split(attributes: dict[str, Any], data: Sizes, sizes: Sizes | None = None) -> list[Sizes] | None:
    count = int(attributes["tvm_custom"]["num_outputs"])
    if data.elements.ndim != 1:
        return None
    if sizes is None and "split" not in attributes:
        chunk = -(-data.elements.size // count)
        ends = [chunk * i for i in range(1, count)]
    else:
        each = _numbers(sizes, attributes, "split")
        if each is None or sum(each) != data.elements.size:
            return None
        ends = list(np.cumsum(each))[:-1]
    return [data.of(part) for part in np.split(data.elements, ends)]


def _put(_: dict[str, Any], data: Sizes, indices: Sizes, updates: Sizes) -> list[Sizes] | None:
    """``ScatterND`` of numbers into a vector."""
    at, size = _numbers(indices, {}, ""), data.elements.size
    is_vector = data.elements.ndim == 1 and updates.elements.ndim == 1 and indices.elements.shape[-1:] == (1,)
    if not is_vector or at is None or not all(-size <= one < size for one in at):
        return None
    made = data.elements.copy()
    for place, one in zip(at, updates.elements, strict=True):
        made[place] = one
    return [data.of(made)]


def _reshaped(attributes: dict[str, Any], data: Sizes, shape: Sizes) -> list[Sizes] | None:
    extents, old = _numbers(shape, {}, ""), data.elements.shape
    if extents is None or (not attributes.get("allowzero", 0) and 0 in extents[len(old) :]):
        return None
    if not attributes.get("allowzero", 0):
        extents = [extent or old[at] for at, extent in enumerate(extents)]
    try:
        return [data.of(data.elements.reshape(extents))]
    except ValueError:
        return None


def _turned(attributes: dict[str, Any], data: Sizes) -> list[Sizes] | None:
    return [data.of(data.elements.transpose(attributes.get("perm")))]


def _cut(
    attributes: dict[str, Any],
    data: Sizes,
    starts: Sizes | None = None,
    ends: Sizes | None = None,
    axes: Sizes | None = None,
    steps: Sizes | None = None,
) -> list[Sizes] | None:
    rank = data.elements.ndim
    first, last = (_numbers(one, attributes, name) for one, name in ((starts, "starts"), (ends, "ends")))
    if first is None or last is None:
        return None
    along = _numbers(axes, attributes, "axes")
    strides = _numbers(steps, {}, "")
    if (axes is not None and along is None) or (steps is not None and strides is None):
        return None
    places = [slice(None)] * rank
    for at, axis in enumerate(range(len(first)) if along is None else along):
        if not -rank <= axis < rank:
            return None
        places[axis] = slice(first[at], last[at], 1 if strides is None else strides[at])
    return [data.of(data.elements[tuple(places)])]


def _counted(attributes: dict[str, Any], data: Sizes) -> list[Sizes] | None:
    """How many elements ``data`` has, not what they are."""
    shape = data.elements.shape[attributes.get("start", 0) : attributes.get("end")]
    made = np.empty(len(shape), object)
    made[:] = [whole_number(extent) for extent in shape]
    return [Sizes("int64", made)]


SEVERAL: Final = frozenset({"Split"})
"""Ops with several results."""

MAKERS: Final[dict[str, Maker]] = {
    "Concat": _joined,
    "Gather": _gathered,
    "Reshape": _reshaped,
    "ScatterND": _put,
    "Shape": _counted,
    "Slice": _cut,
    "Split": _split,
    "Squeeze": _squeezed,
    "Transpose": _turned,
    "Unsqueeze": _unsqueezed,
}
"""By op: results of attributes and operands."""
