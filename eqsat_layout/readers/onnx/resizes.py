"""Resizes of ONNX: by scales that give no whole numbers, with filters that take all elements into account.

In: a node's inputs and attributes, TVM's converter. Out: its result, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax, sym, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.resampling import Filter, resampled
from eqsat_layout.readers.layers.resizing import LARGEST_PART, cropped, with_ends_repeated
from eqsat_layout.readers.onnx.open_resizes import OpenAxis

_MOST: Final = 1 << 26
"""Numbers that say where the elements of a result lie, and how much each counts."""

BY_PLACE: Final = 11
"""The version of ``Resize`` that says where places lie; what was before means the same as ``Upsample``."""
FULL: Final = 13
"""The version of ``Resize`` whose operands may all be left out."""

_OUTER: Final = 2
"""Axes of batch and channels, which TVM's resizes leave as they are."""
_RANKS: Final = (3, 4, 5)
"""Of what TVM resizes."""
_OLDEST: Final = b"simple"
"""How the first version, which does not say it, rounds places: down where an axis grows, up where it shrinks."""


def as_resize(inputs: Any, attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Inputs and attributes of the ``Resize`` that an ``Upsample`` is."""
    given = [*inputs, None]
    scales = relax.const(np.asarray(attributes["scales"], "float32")) if "scales" in attributes else given[1]
    shrinks = attributes.get("mode", b"nearest") == b"nearest" and any(by < 1 for by in _numbers(scales))
    means = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": _OLDEST if shrinks else b"floor"}
    rest = {name: value for name, value in attributes.items() if name != "scales"}
    return type(inputs)([given[0], None, scales, None]), rest | means


def is_by_rows(inputs: Any, attributes: dict[str, Any]) -> bool:
    """Whether TVM's resize does not know how: where all elements count, nothing beyond the border counts, the middle or
    the ratio of the sides stays, batch or channels change, or the places are those of a part of an element."""
    where = attributes.get("coordinate_transformation_mode", b"half_pixel")
    if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch" or where == b"half_pixel_symmetric":
        return True
    changed = _changed(inputs, attributes)
    if any(one.at < _OUTER for one in changed or ()) or len(inputs[0].ty.shape) not in _RANKS:
        return True
    if attributes.get("mode", b"nearest") == b"nearest":  # TVM goes by the sizes, and rounds otherwise between elements
        is_plain = attributes.get("nearest_mode") != _OLDEST and all(one.is_whole for one in changed or ())
        return where != b"tf_crop_and_resize" and not is_plain
    is_odd = where == b"align_corners" and any(one.is_known and one.is_odd for one in changed or ())
    return is_odd or bool(_smooths(attributes) or attributes.get("exclude_outside"))


def by_rows(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """Such a ``Resize``."""
    changed = _changed(inputs, attributes)
    if changed is None:
        raise EqsatError("such a Resize by what is known at run time only is not done")
    kind, a = attributes.get("mode", b"nearest").decode(), float(attributes.get("cubic_coeff_a", -0.75))
    where = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    if max((one.size * (1 if kind == "nearest" else one.extent) for one in changed if one.is_known), default=0) > _MOST:
        sizes = " x ".join(str(one.size) for one in changed)
        raise EqsatError(f"a Resize to {sizes} is not done by rows: more than {_MOST} numbers")
    if kind == "nearest":
        made, rounding = inputs[0], attributes.get("nearest_mode", b"round_prefer_floor").decode()
        for one in changed:
            made = builder.emit(relax.op.take(made, _indices(builder, one, where, rounding), axis=one.at))
        return made
    means = Filter(kind, a, excludes=bool(attributes.get("exclude_outside")))
    rows = {one.at: _weights(builder, one, where, means, smooths=_smooths(attributes)) for one in changed}
    return resampled(builder, inputs[0], rows, rounds=_smooths(attributes))  # as ONNX Runtime has bytes


def _indices(builder: relax.BlockBuilder, axis: _Axis, where: str, rounding: str) -> Any:
    if rounding == _OLDEST.decode():
        rounding = "floor" if axis.scale is None or axis.scale >= 1 else "ceil"
    if not axis.is_known:
        return OpenAxis(builder, axis.extent, axis.size, axis.scale).indices(where, rounding)
    # in float32 as others, where two are near
    at = _ROUNDINGS[rounding](_places(where, axis.size, axis.extent, axis.by, "float32"))
    return relax.const(np.clip(at, 0, axis.extent - 1).astype("int64"))


def _weights(builder: relax.BlockBuilder, axis: _Axis, where: str, means: Filter, *, smooths: bool) -> Any:
    if not axis.is_known:
        return OpenAxis(builder, axis.extent, axis.size, axis.scale).weights(where, means, smooths=smooths)
    shrink = min(1.0, axis.by) if smooths else 1.0
    return means.weights(_places(where, axis.size, axis.extent, axis.by), axis.extent, shrink)


_ROUNDINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)),
}


def _smooths(attributes: dict[str, Any]) -> bool:
    return bool(attributes.get("antialias"))


@dataclass(frozen=True)
class _Axis:
    """One that a resize changes. ``scale``: None where the sizes say it. Extents are numbers, or expressions."""

    at: int
    extent: Any
    size: Any
    scale: float | None

    @property
    def is_known(self) -> bool:
        return isinstance(self.extent, int) and isinstance(self.size, int)

    @property
    def by(self) -> float:
        """Of an axis that is known."""
        return float(self.size / self.extent) if self.scale is None else self.scale

    @property
    def is_odd(self) -> bool:
        return bool(self.by * self.extent != self.size or self.size == 1)

    @property
    def is_whole(self) -> bool:
        """Whether each element becomes as many, or one is taken of as many; so are scales of open extents for TVM."""
        if self.is_known:
            is_simple = self.by.is_integer() or (1 / self.by).is_integer()
            return is_simple and bool(self.by * self.extent == self.size)
        if self.scale is not None:
            return True
        analyzer, zero = sym.Analyzer(), tirx.IntImm("int64", 0)
        one, other = self.extent, self.size
        # ``2 h`` of ``h``; of a number and a size nothing is known
        return any(
            bool(tirx.analysis.undefined_vars(tirx.const(b, "int64") if isinstance(b, int) else b))
            and analyzer.can_prove_equal(tirx.floormod(a, b), zero)
            for a, b in ((one, other), (other, one))
        )


def _changed(inputs: Any, attributes: dict[str, Any]) -> list[_Axis] | None:
    """The axes that a resize changes; None where it is not known by how much."""
    extents = [int(e) if isinstance(e, tirx.IntImm) else e for e in inputs[0].ty.shape.values]
    given = [*inputs, None, None][:4]
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    if policy != b"stretch":
        return _in_proportion(extents, _numbers(given[3]), policy, attributes)
    if (sizes := _elements(given[3])) is not None:
        return [
            _Axis(at, extent, size, None)
            for at, (extent, size) in enumerate(zip(extents, sizes, strict=True))
            if not _is_same(extent, size)
        ]
    scales = _numbers(given[2])
    sized = zip(extents, scales, strict=bool(scales))
    changed = [_Axis(at, e, _scaled(e, by), by) for at, (e, by) in enumerate(sized) if by != 1]
    return changed if scales and all(one.size is not None for one in changed) else None


def _in_proportion(
    extents: list[Any], sizes: list[int], policy: bytes, attributes: dict[str, Any]
) -> list[_Axis] | None:
    """The smaller, or larger, one of the scales that sizes ask for is that of all axes."""
    if not sizes or not all(isinstance(extent, int) for extent in extents):
        return None
    axes = [int(axis) % len(extents) for axis in attributes.get("axes") or range(len(extents))]
    ratios = [size / extents[axis] for axis, size in zip(axes, sizes, strict=True)]
    by = min(ratios) if policy == b"not_larger" else max(ratios)
    return [_Axis(axis, extents[axis], int(np.floor(extents[axis] * by + 0.5)), by) for axis in axes if by != 1]


def _scaled(extent: Any, scale: float) -> Any:
    """None for an extent that is not known, and a scale that is no simple fraction."""
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))  # as ONNX Runtime: 10 by .7 are 7
    ratio = Fraction(scale).limit_denominator(LARGEST_PART)
    is_exact = np.float32(ratio) == np.float32(scale)
    return tirx.floordiv(extent * ratio.numerator, ratio.denominator) if is_exact else None


def _is_same(extent: Any, size: Any) -> bool:
    if isinstance(extent, int) or isinstance(size, int):
        return isinstance(extent, int) and isinstance(size, int) and extent == size
    return bool(sym.Analyzer().can_prove_equal(extent, size))


def _elements(value: Any) -> list[Any] | None:
    """Of a shape, or a constant: numbers, and expressions of sizes."""
    if isinstance(value, relax.ShapeExpr):
        return [int(size) if isinstance(size, tirx.IntImm) else size for size in value.values]
    return _numbers(value) or None


def without_empty(inputs: Any) -> Any:
    """Operands without elements are left out, which version 11 did not know how to."""
    return type(inputs)(None if one is not None and _is_empty(one) else one for one in inputs)


def _is_empty(value: Any) -> bool:
    return isinstance(value, ir.GenericConst) and 0 in value.value.shape


def of_all_axes(inputs: Any, attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The same ``Resize`` without ``axes``: the others keep their extents."""
    axes = attributes.get("axes")
    if axes is None or attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return inputs, attributes
    shape, given = list(inputs[0].ty.shape.values), [*inputs, None, None][:4]
    at = {int(axis) % len(shape): i for i, axis in enumerate(axes)}
    if given[1] is not None and attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        given[1] = _box_of_all_axes(given[1], at, len(shape))
    for place, usual in ((2, [1.0] * len(shape)), (3, shape)):
        if given[place] is None:
            continue
        own = _numbers(given[place])
        if not own or not all(isinstance(e, tirx.IntImm) or axis in at for axis, e in enumerate(shape)):
            raise EqsatError("Resize of some axes by what is known at run time only is not done")
        values = [own[at[axis]] if axis in at else usual[axis] for axis in range(len(shape))]
        kind = "float32" if place == 2 else "int64"
        given[place] = relax.const(np.array([float(v) if place == 2 else int(v) for v in values], kind), kind)
    return type(inputs)(given), {name: value for name, value in attributes.items() if name != "axes"}


def _box_of_all_axes(box: Any, at: dict[int, int], rank: int) -> Any:
    """Begins and ends of a part of the data, which is all of it along other axes."""
    own = _numbers(box)
    if not own:
        raise EqsatError("Resize of a part that is known at run time only is not done")
    begins, ends = own[: len(at)], own[len(at) :]
    whole = [begins[at[axis]] if axis in at else 0.0 for axis in range(rank)]
    whole += [ends[at[axis]] if axis in at else 1.0 for axis in range(rank)]
    return relax.const(np.array(whole, str(box.ty.dtype)))


def _numbers(value: Any) -> list[Any]:
    """Those of a constant or a shape; none where they are not known."""
    if isinstance(value, relax.ShapeExpr):
        known = [int(size) for size in value.values if isinstance(size, tirx.IntImm)]
        return known if len(known) == len(value.values) else []
    return list(value.value.numpy().tolist()) if isinstance(value, ir.GenericConst) else []


def _places(mode: str, size: int, extent: int, by: float, dtype: str = "float64") -> np.ndarray[Any, Any]:
    """Where in the data the elements of the result lie."""
    at: np.ndarray[Any, Any] = np.arange(size).astype(dtype)
    scale: float = np.dtype(dtype).type(by)
    if mode == "half_pixel_symmetric":
        return extent / 2 * (1 - size / (scale * extent)) + (at + 0.5) / scale - 0.5
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and size > 1):
        return (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" or (mode == "align_corners" and scale * extent == 1):
        return np.zeros(size)
    if mode == "align_corners":
        return at * ((extent - 1) / (scale * extent - 1))
    if mode == "asymmetric":
        return at / scale
    raise EqsatError(f"Resize with {mode} is not done so")


def _to_sizes(inputs: Any, sizes: list[Any], convert: Any) -> Any:
    """The converter takes numbers only; they stand in its call as they are."""
    numbers = [int(size) if isinstance(size, tirx.IntImm) else 1 for size in sizes]
    made = convert(type(inputs)([*list(inputs)[:3], relax.const(np.array(numbers), "int64")]))
    is_known = all(isinstance(size, tirx.IntImm) for size in sizes[2:])
    return made if is_known else relax.Call(made.op, [made.args[0], relax.ShapeExpr(sizes[2:])], made.attrs)


_SCALED: Final = ("half_pixel", "pytorch_half_pixel", "asymmetric")
"""Where places of the result lie by the scale; else by the sizes, which is what TVM goes by always."""


def resized(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any], convert: Any) -> Any:
    """By the scale as it is given, also where an extent times it is not whole: a part of what longer data gives."""
    scales, sizes = inputs[2], inputs[3]
    if isinstance(sizes, relax.ShapeExpr) and len(sizes.values) == 4:
        return _to_sizes(inputs, list(sizes.values), convert)
    mode = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    if not isinstance(scales, tvm.ir.GenericConst):
        return convert(inputs)
    if mode not in _SCALED:
        sizes = zip(list(inputs[0].ty.shape), scales.value.numpy().tolist(), strict=True)
        if not all(_gives_whole_number(extent, scale) for extent, scale in sizes):
            raise EqsatError(f"Resize ({mode}) by {scales.value.numpy()}, which may give no whole number, is not done")
        return convert(inputs)
    longer, ends = with_ends_repeated(builder, inputs[0], scales.value.numpy().tolist())
    return cropped(builder, convert(type(inputs)([longer, *list(inputs)[1:]])), ends)


def _gives_whole_number(extent: Any, scale: float) -> bool:
    return scale.is_integer() or (isinstance(extent, tirx.IntImm) and (int(extent) * scale).is_integer())
