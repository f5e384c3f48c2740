"""Resizes of ONNX: by scales that give no whole numbers, with filters that take all elements into account.

In: a node's inputs and attributes, TVM's converter. Out: its result, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.resampling import Filter, resampled
from eqsat_layout.readers.layers.resizing import cropped, extended

_MOST: Final = 1 << 26
"""Numbers that say where the elements of a result lie, and how much each counts."""


BY_PLACE: Final = 11
"""The version of ``Resize`` that says where places lie; what was before means the same as ``Upsample``."""

FULL: Final = 13
"""The version of ``Resize`` whose operands may all be left out."""


def as_resize(inputs: Any, attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Inputs and attributes of the ``Resize`` that an ``Upsample`` is."""
    given = [*inputs, None]
    scales = relax.const(np.asarray(attributes["scales"], "float32")) if "scales" in attributes else given[1]
    means = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
    rest = {name: value for name, value in attributes.items() if name != "scales"}
    return type(inputs)([given[0], None, scales, None]), rest | means


def is_by_rows(inputs: Any, attributes: dict[str, Any]) -> bool:
    """Whether TVM's resize does not know how: where all elements count, nothing beyond the border counts, the middle or
    the ratio of the sides stays, or the places are those of a part of an element."""
    where = attributes.get("coordinate_transformation_mode", b"half_pixel")
    if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch" or where == b"half_pixel_symmetric":
        return True
    scales, sizes = _sizes(inputs, attributes)
    extents = [int(e) for e in list(inputs[0].ty.shape.values)] if sizes else []
    wholes = [scale * extent for scale, extent in zip(scales, extents, strict=True)]
    if attributes.get("mode", b"nearest") == b"nearest":  # TVM goes by the sizes, and rounds otherwise between elements
        return where != b"tf_crop_and_resize" and any(
            whole != size or not (scale.is_integer() or (1 / scale).is_integer())
            for whole, size, scale in zip(wholes, sizes, scales, strict=True)
        )
    is_odd = where == b"align_corners" and any(
        whole != size or size == 1 for whole, size in zip(wholes, sizes, strict=True)
    )
    return is_odd or bool(_smooths(attributes) or attributes.get("exclude_outside"))


def by_rows(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """Such a ``Resize``."""
    scales, sizes = _sizes(inputs, attributes)
    if not sizes:
        raise EqsatError("such a Resize of sizes that are known at run time only is not done")
    kind, a = attributes.get("mode", b"nearest").decode(), float(attributes.get("cubic_coeff_a", -0.75))
    where = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    given = enumerate(zip(map(int, inputs[0].ty.shape.values), sizes, scales, strict=True))
    changed = [(axis, extent, size, scale) for axis, (extent, size, scale) in given if size != extent or scale != 1]
    if max((size * (1 if kind == "nearest" else extent) for _, extent, size, _ in changed), default=0) > _MOST:
        raise EqsatError(f"a Resize to {' x '.join(map(str, sizes))} is not done by rows: more than {_MOST} numbers")
    if kind == "nearest":
        made, rounding = inputs[0], attributes.get("nearest_mode", b"round_prefer_floor").decode()
        for axis, extent, size, scale in changed:
            at = _ROUNDINGS[rounding](_places(where, size, extent, scale, "float32"))  # as others, where two are near
            places = relax.const(np.clip(at, 0, extent - 1).astype("int64"))
            made = builder.emit(relax.op.take(made, places, axis=axis))
        return made
    means = Filter(kind, a, excludes=bool(attributes.get("exclude_outside")))
    rows = {}
    for axis, extent, size, scale in changed:
        shrink = min(1.0, scale) if _smooths(attributes) else 1.0
        rows[axis] = means.weights(_places(where, size, extent, scale), extent, shrink)
    return resampled(builder, inputs[0], rows)


_ROUNDINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)),
}


def _smooths(attributes: dict[str, Any]) -> bool:
    return bool(attributes.get("antialias"))


def _sizes(inputs: Any, attributes: dict[str, Any]) -> tuple[list[float], list[int]]:
    """Scales and resulting sizes along each axis; nothing where they are not known."""
    extents = list(inputs[0].ty.shape.values)
    given = [*inputs, None, None][:4]
    if not all(isinstance(e, tirx.IntImm) for e in extents):
        return [], []
    scales, sizes = _numbers(given[2]), _numbers(given[3])
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    if sizes and policy != b"stretch":
        axes = [int(axis) % len(extents) for axis in attributes.get("axes") or range(len(extents))]
        ratios = [size / int(extents[axis]) for axis, size in zip(axes, sizes, strict=True)]
        by = min(ratios) if policy == b"not_larger" else max(ratios)
        scales = [by if axis in axes else 1.0 for axis in range(len(extents))]
        return scales, [int(np.floor(int(e) * scale + 0.5)) for e, scale in zip(extents, scales, strict=True)]
    if sizes:
        return [size / int(extent) for size, extent in zip(sizes, extents, strict=True)], sizes
    return scales, [int(np.floor(int(extent) * scale)) for scale, extent in zip(scales, extents, strict=bool(scales))]


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
    longer, ends = extended(builder, inputs[0], scales.value.numpy().tolist())
    return cropped(builder, convert(type(inputs)([longer, *list(inputs)[1:]])), ends)


def _gives_whole_number(extent: Any, scale: float) -> bool:
    return scale.is_integer() or (isinstance(extent, tirx.IntImm) and (int(extent) * scale).is_integer())
