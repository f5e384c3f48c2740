"""Convolutions of any rank whose tensors lie in blocks, as TE writes them.

In: a call of Relax, with its layouts. Out: what computes it: a pad, and one reduction over physical axes. TVM's own
legalisation takes plain layouts only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx, topi

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import outer_stride, parse_layout_name


@dataclass(frozen=True)
class _Part:
    """One physical axis of a layout: ``index // stride % extent`` of a logical axis; extent ``None``: all the rest."""

    axis: str
    stride: int
    extent: int | None


@dataclass(frozen=True)
class _Digit:
    """One digit of a logical index as an expression."""

    value: Any
    stride: int
    extent: int | None


def _parts(layout: str) -> tuple[_Part, ...]:
    """Physical axes of ``layout``, in order."""
    tokens = parse_layout_name(layout)
    strides: dict[str, int] = {}
    parts: list[_Part] = []
    for axis, block in reversed(tokens):
        stride = strides.get(axis, 1) if block else outer_stride(tokens, axis)
        parts.append(_Part(axis, stride, block or None))
        if block:
            strides[axis] = stride * block
    return tuple(reversed(parts))


@dataclass(frozen=True)
class PackedConvolution:
    """A convolution of any rank in any blocked layouts, written as a pad stage and one reduction stage."""

    data: tuple[_Part, ...]
    kernel: tuple[_Part, ...]
    out: tuple[_Part, ...]
    spatial: tuple[str, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    out_shape: tuple[Any, ...]
    dtype: str

    @staticmethod
    def of(call: Any) -> PackedConvolution | None:
        """The convolution of ``call``; ``None`` if its layouts or sizes are not ones that we know how to index."""
        attrs = call.attrs
        if not all(isinstance(ty.shape, relax.ShapeExpr) for ty in (call.ty, *(arg.ty for arg in call.args))):
            return None
        try:
            data, kernel = _parts(attrs.data_layout), _parts(attrs.kernel_layout)
            out = _parts(attrs.out_layout or attrs.data_layout)
        except LayoutError:
            return None
        spatial = tuple(sorted({p.axis for p in data} - {"N", "C"}))
        rank = len(spatial)
        if any(part.axis in spatial and part.extent is not None for part in data):
            return None  # a window does not split over blocks of a spatial axis
        if {p.axis for p in kernel} != {"O", "I", *spatial} or {p.axis for p in out} != {p.axis for p in data}:
            return None
        order = [part.axis for part in data if part.axis in spatial]
        if order != [part.axis for part in kernel if part.axis in spatial]:
            return None
        data_type, kernel_type = (arg.ty for arg in call.args)
        inputs = _extent_of(data, data_type.shape, "C")
        kernel_inputs = _extent_of(kernel, kernel_type.shape, "I")
        if inputs is None or kernel_inputs is None or kernel_inputs < inputs // int(attrs.groups):
            return None
        if _extent_of(out, call.ty.shape, "C") is None:
            return None
        padding = tuple(int(p) for p in attrs.padding)
        return PackedConvolution(
            data=data,
            kernel=kernel,
            out=out,
            spatial=tuple(order),
            strides=tuple(int(s) for s in attrs.strides),
            padding=padding if len(padding) == 2 * rank else padding * (2 if len(padding) == rank else 2 * rank),
            dilation=tuple(int(d) for d in attrs.dilation),
            groups=int(attrs.groups),
            out_shape=tuple(call.ty.shape),
            dtype=str(call.ty.dtype),
        )

    def compute(self, data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        """The result in the out layout from ``data`` and ``kernel`` in theirs."""
        channels = _extent_of(self.data, data.shape, "C")
        out_channels = _extent_of(self.out, self.out_shape, "C")
        assert channels is not None, "checked by of()"
        assert out_channels is not None, "checked by of()"
        group_in, group_out = channels // self.groups, out_channels // self.groups
        padded = self._pad(data)
        input_axes = self._channel_axes(group_in)
        windows = {
            part.axis: te.reduce_axis((0, extent), f"r{part.axis.lower()}")
            for part, extent in zip(self.kernel, kernel.shape, strict=True)
            if part.axis in self.spatial
        }

        def element(*indices: Any) -> Any:
            result = _digits(self.out, indices)
            oc = result["C"]
            ic = [_Digit(axis.var, part.stride, part.extent) for part, axis in input_axes]
            at = {"N": result["N"], "C": self._data_channel(oc, ic, group_in, group_out)}
            for k, axis in enumerate(self.spatial):
                window = windows[axis].var * self.dilation[k]
                at[axis] = [_Digit(_value(result[axis]) * self.strides[k] + window, 1, None)]
            weight_at = {axis: [_Digit(windows[axis].var, 1, None)] for axis in self.spatial} | {"O": oc, "I": ic}
            product = padded(*_read(self.data, at)).astype(self.dtype) * kernel(*_read(self.kernel, weight_at)).astype(
                self.dtype
            )
            axes = [axis for part, axis in input_axes if part.extent is None]
            axes += [*windows.values(), *(axis for part, axis in input_axes if part.extent is not None)]
            return te.sum(product, axis=axes)

        return te.compute(self.out_shape, element, name="conv", tag="conv2d_packed")

    def _pad(self, data: te.Tensor) -> te.Tensor:
        rank = len(self.spatial)
        if not any(self.padding):
            return data
        before = [self.padding[self.spatial.index(p.axis)] if p.axis in self.spatial else 0 for p in self.data]
        after = [self.padding[rank + self.spatial.index(p.axis)] if p.axis in self.spatial else 0 for p in self.data]
        return topi.nn.pad(data, before, after, name="pad_temp")

    def _channel_axes(self, group_in: int) -> list[tuple[_Part, Any]]:
        """Reduction axes over the input channels of a group, split as data and kernel both are."""
        blocks = [p for p in self.data if p.axis == "C"]
        kernel_blocks = [p for p in self.kernel if p.axis == "I"]
        same = {(p.stride, p.extent) for p in blocks} == {(p.stride, p.extent) for p in kernel_blocks}
        chunk = max(p.stride for p in blocks)
        if not same or group_in % chunk:
            blocks = [_Part("C", 1, None)]
            chunk = 1
        return [(p, te.reduce_axis((0, p.extent or group_in // chunk), "ric" if p.extent else "rc")) for p in blocks]

    def _data_channel(self, oc: list[_Digit], ic: list[_Digit], group_in: int, group_out: int) -> list[_Digit]:
        """The digits of the channel that is read: the group's first channel plus ``ic``."""
        if self.groups == 1:
            return ic
        if group_in == group_out == 1:
            return oc
        group = _value(oc) // group_out
        outer = max(d.stride for d in ic)
        return [_Digit(group * (group_in // outer) + d.value, d.stride, None) if d.extent is None else d for d in ic]


def _extent_of(parts: Sequence[_Part], shape: Sequence[Any], axis: str) -> int | None:
    """Number of elements of a logical axis, padding of the blocks included; ``None`` if it is symbolic."""
    sizes = [size for part, size in zip(parts, shape, strict=True) if part.axis == axis]
    return math.prod(map(int, sizes)) if all(isinstance(size, int | tirx.IntImm) for size in sizes) else None


def _digits(parts: Sequence[_Part], indices: Sequence[Any]) -> dict[str, list[_Digit]]:
    """Logical indices, digit by digit, of the element at physical ``indices``."""
    digits: dict[str, list[_Digit]] = {}
    for part, index in zip(parts, indices, strict=True):
        digits.setdefault(part.axis, []).append(_Digit(index, part.stride, part.extent))
    return digits


def _value(digits: Sequence[_Digit]) -> Any:
    """The number that ``digits`` write."""
    total: Any = None
    for digit in digits:
        term = digit.value * digit.stride if digit.stride != 1 else digit.value
        total = term if total is None else total + term
    return total


def _read(parts: Sequence[_Part], at: Mapping[str, Sequence[_Digit]]) -> list[Any]:
    """Physical indices of the element at the logical indices ``at``; a digit that matches is used as it stands."""
    indices: list[Any] = []
    for part in parts:
        match = [d for d in at[part.axis] if (d.stride, d.extent) == (part.stride, part.extent)]
        if match:
            indices.append(match[0].value)
            continue
        value = _value(at[part.axis])
        value = tirx.floordiv(value, part.stride) if part.stride > 1 else value
        indices.append(tirx.floormod(value, part.extent) if part.extent is not None else value)
    return indices
