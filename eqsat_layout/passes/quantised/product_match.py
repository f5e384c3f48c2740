"""Finds the convolutions and matrix products whose operands are bytes.

In: a Relax call, and what its operands stand for. Out: :class:`ByteProduct`, with everything that is computed from the
constant weights ahead of time; or ``None``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tvm import ir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.quantised.reader import BYTE_RANGES, FLOAT_DTYPES, SUM_DTYPE, Quantised, QuantisedReader

_SIGNED: Final = "int8"

_LARGEST_BYTE: Final = 255
_LARGEST_SUM: Final = (1 << 31) - 1
_WORD: Final = 4
"""Bytes that one instruction multiplies and adds up."""


@dataclass(frozen=True)
class ByteProduct:
    """``call``, a convolution or matrix product of ``data`` with constant ``weights``.

    ``weights``: int8, less their zero point. ``scales``: of the weights, one per output channel, or one for all.
    ``sums``: of the weights of each output channel. ``channels``: the axis of the data that is padded to whole words,
    and by how many elements.
    """

    call: Any
    data: Quantised
    weights: npt.NDArray[Any]
    scales: npt.NDArray[Any] | None
    sums: npt.NDArray[Any]
    channels: tuple[int, int] | None


def byte_product_of(call: Any, reader: QuantisedReader) -> ByteProduct | None:
    """``call`` as a product of bytes; ``None`` where it is none, or its sums could leave 32 bits."""
    if not isinstance(call, ir.Call) or not hasattr(call.attrs, "out_dtype") or len(call.args) != 2:
        return None
    if getattr(call.ty, "shape", None) is None or str(call.ty.dtype) not in (*FLOAT_DTYPES, SUM_DTYPE):
        return None
    data, weights = (reader.read(arg) for arg in call.args)
    if data is None or weights is None or data.is_constant or not weights.is_constant:
        return None
    try:
        return _checked(call, data, weights)
    except Refused:
        return None


def _checked(call: Any, data: Quantised, weights: Quantised) -> ByteProduct:
    axes = axes_of(call)
    signed, scales = weights.signed, _scales_along(weights, axes.outputs)
    if signed is None:
        raise Refused("weights that are more than a byte from their zero")
    numbers = signed.astype(SUM_DTYPE)
    if str(call.ty.dtype) == SUM_DTYPE and (data.scale is not None or scales is not None):
        raise Refused("scales of whole numbers")
    _check_scales(call, data.scale, scales)
    low, high = BYTE_RANGES[str(data.values.ty.dtype)]
    if isinstance(data.zero, int) and not low <= data.zero <= high:
        raise Refused("a zero that is no such byte")
    if any(axes.padding) and not data.has_known_zero:
        if not has_known_windows(call):
            raise Refused("zeros that are not known around data whose size is not")
        if str(data.zero.ty.dtype) != str(data.values.ty.dtype):
            raise Refused("a zero that the data may not hold around them")
    numbers, channels = _in_words(numbers, axes)
    others = tuple(axis for axis in range(numbers.ndim) if axis != axes.outputs)
    if int(np.abs(numbers).sum(axis=others).max()) * 2 * _LARGEST_BYTE > _LARGEST_SUM:
        raise Refused("sums of more than 32 bits")
    kept = (axes.inputs,) if axes.data is None else others
    sums = numbers.sum(axis=kept, keepdims=axes.data is None).astype(SUM_DTYPE)
    shape = [1] * int(call.ty.ndim)
    shape[axes.result] = -1
    sums = sums if axes.data is None else sums.reshape(shape)
    if scales is not None and scales.ndim:
        scales = scales.reshape(shape)
    return ByteProduct(call, data, numbers.astype(_SIGNED), scales, sums, channels)


def _check_scales(call: Any, *scales: Any) -> None:
    """Refused where a known scale, or the product of both, times a byte may be infinite or lose bits."""
    for arg, scale in zip(call.args, scales, strict=True):
        if str(arg.ty.dtype) in FLOAT_DTYPES and isinstance(scale, float | np.ndarray):
            _check_ends(np.abs(np.asarray(scale, "float64")), str(arg.ty.dtype))
    known = [np.abs(np.asarray(one, "float64")) for one in scales if isinstance(one, float | np.ndarray)]
    both = known if len(known) < len(scales) else [*known, known[0] * known[1]]
    for one in both:
        _check_ends(one, "float32")


def _check_ends(scales: npt.NDArray[Any], dtype: str) -> None:
    ends = np.finfo(dtype)
    if np.any((scales > float(ends.max) / _LARGEST_BYTE) | ((scales > 0) & (scales < float(ends.tiny)))):
        raise Refused(f"scales at the ends of {dtype}")


def _in_words(weights: npt.NDArray[Any], axes: ProductAxes) -> tuple[npt.NDArray[Any], tuple[int, int] | None]:
    """``weights`` whose input channels fill words; the data's axis that is to be padded, and by how many elements."""
    depth = weights.shape[axes.inputs]
    if depth % _WORD == 0:
        return weights, None
    if axes.data is None or axes.groups > 1 or 2 * depth < _WORD:
        raise Refused("channels that fill no words")
    more = -depth % _WORD
    widths = [(0, more if axis == axes.inputs else 0) for axis in range(weights.ndim)]
    return np.pad(weights, widths), (axes.data, more)


def _scales_along(weights: Quantised, axis: int) -> npt.NDArray[Any] | None:
    """The scale of all weights, or one for each place along ``axis``; refused where it varies along another axis."""
    scale = weights.scale
    if not isinstance(scale, np.ndarray):
        return None if scale is None else np.asarray(scale, "float32")
    whole = np.broadcast_to(scale, weights.values.shape)
    own = whole[tuple(slice(None) if number == axis else slice(0, 1) for number in range(whole.ndim))]
    if not np.array_equal(whole, np.broadcast_to(own, whole.shape)):
        raise Refused("scales along another axis than that of the channels")
    return own.reshape(-1).astype("float32")


@dataclass(frozen=True)
class ProductAxes:
    """Where the channels lie: ``inputs`` and ``outputs`` in the weights, ``result`` and ``data`` in those tensors.

    ``data`` is ``None`` for a matrix product; ``padding`` as the call's attribute has it.
    """

    inputs: int
    outputs: int
    result: int
    data: int | None
    groups: int
    padding: Sequence[int]


def axes_of(call: Any) -> ProductAxes:
    """The axes of a convolution or matrix product; refused where channels lie in blocks."""
    attrs = call.attrs
    if not hasattr(attrs, "kernel_layout"):
        rank = int(call.args[1].ty.ndim)
        if rank < 2 or int(call.args[0].ty.ndim) < 2:
            raise Refused("a product with a vector")
        return ProductAxes(rank - 2, rank - 1, int(call.ty.ndim) - 1, None, 1, ())
    if hasattr(attrs, "output_padding"):
        raise Refused("a transposed convolution")
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    result = str(attrs.out_layout) or data
    if not (data + kernel + result).isupper() or not (data + kernel + result).isalpha():
        raise Refused("channels in blocks")
    places = kernel.find("I"), kernel.find("O"), result.find("C"), data.find("C")
    return ProductAxes(*places, int(attrs.groups), [int(one) for one in attrs.padding])


def has_known_windows(call: Any) -> bool:
    """The extents of the data's spatial axes are numbers."""
    sizes = (call.args[0].ty.shape.values[axis] for axis in spatial_axes(str(call.attrs.data_layout)))
    return all(isinstance(size, tirx.IntImm) for size in sizes)


def spatial_axes(layout: str) -> list[int]:
    """The spatial axes of a layout such as ``NCHW``."""
    return [axis for axis, letter in enumerate(layout) if letter not in "NC"]
