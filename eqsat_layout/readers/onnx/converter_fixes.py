"""What converters of TVM's ONNX frontend get wrong, put right before or after them, or refused.

In: a model; or a node's op, inputs and attributes as TVM's importer has them. Out: ops that have converters, inputs as
these take them, results of the types that ONNX says; :class:`EqsatError` for what would give other numbers.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax, sym, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.extremes import first_of_none
from eqsat_layout.readers.onnx.element_moves import tiled
from eqsat_layout.readers.onnx.pads import cut_first
from eqsat_layout.readers.onnx.products import zero_keeping_product
from eqsat_layout.readers.onnx.reductions import in_floats, norm_of_neighbours, with_spread_scales
from eqsat_layout.readers.onnx.resizes import resized
from eqsat_layout.readers.onnx.slices import sliced

_WITHOUT_EFFECT: Final = ("seed", "storage_order", "saturate", "stash_type")
"""Attributes that change nothing of what is converted: of dropout, of indices, of 8-bit floats, of precision."""

_READ_HERE: Final = (("ConvTranspose", "output_shape"),)
"""Attributes of ops that the converter does not look at, and :func:`converted` does."""


def check_attributes(op: str, attributes: dict[str, Any], opset: int) -> None:
    """:class:`EqsatError` for an attribute that the converter would not even look at."""
    for name, default in _unread(op, opset).items():
        if (op, name) in _READ_HERE:
            continue
        value = attributes.get(name, default)
        if value != default:
            shown = value.decode() if isinstance(value, bytes) else value
            raise EqsatError(f"{op} with {name}={shown} is not done")


@cache
def _unread(op: str, opset: int) -> dict[str, Any]:
    """The attributes of an op whose name does not stand in its converter, with their defaults."""
    onnx = importlib.import_module("onnx")
    converter = onnx_frontend._get_convert_map().get(op)
    if converter is None or not onnx.defs.has(op, opset):
        return {}
    text = "".join(_definitions(one.__module__)[one.__name__] for one in converter.__mro__[:-2])
    helpers = [name for name, one in vars(onnx_frontend).items() if inspect.isfunction(one) and f"{name}(" in text]
    text += "".join(_definitions(vars(onnx_frontend)[name].__module__)[name] for name in helpers)
    schema = onnx.defs.get_schema(op, opset)
    return {
        name: onnx.helper.get_attribute_value(one.default_value) if one.default_value.name else None
        for name, one in schema.attributes.items()
        if f'"{name}"' not in text and name not in _WITHOUT_EFFECT and not (op == "Constant" and "value" in name)
    }


@cache
def _definitions(module: str) -> dict[str, str]:
    """The text of each class and function of a module, by name: ``inspect.getsource`` parses it anew for each class."""
    lines = inspect.getsource(importlib.import_module(module)).splitlines(keepends=True)
    return {
        one.name: "".join(lines[one.lineno - 1 : one.end_lineno])
        for one in ast.parse("".join(lines)).body
        if isinstance(one, ast.ClassDef | ast.FunctionDef)
    }


_CONSTANT: Final = {"AllClassNMS": (2, 3, 4), "CumSum": (1,)}
"""Inputs that converters take for their defaults where they are no constants."""


def check_meaning(op: str, inputs: Any, attributes: dict[str, Any]) -> None:
    """:class:`EqsatError` for what converters take for something else."""
    given = [*inputs, *[None] * 6]
    for at in _CONSTANT.get(op, ()):
        if given[at] is not None and not isinstance(given[at], ir.GenericConst):
            raise EqsatError(f"{op} whose input {at} is known at run time only is not done")
    trains = bool(attributes.get("training_mode")) and attributes["tvm_custom"]["num_outputs"] > 1
    if op == "Dropout" and given[2] is not None:
        trains = not isinstance(given[2], ir.GenericConst) or bool(given[2].value.numpy().any())
    if trains:
        raise EqsatError(f"{op} in training is not done")
    if op == "TopK" and str(inputs[0].ty.dtype) == "uint64":  # which TVM's runtime does not sort
        raise EqsatError(f"TopK of {inputs[0].ty.dtype} is not done")
    if op == "Reshape" and isinstance(inputs[1], ir.GenericConst) and len(inputs[1].ty.shape) != 1:
        raise EqsatError(f"a shape is a vector, and the input 1 is a tensor of {len(inputs[1].ty.shape)} axes")
    if op == "PRelu":
        _check_slopes(*(getattr(one.ty, "shape", None) for one in list(inputs)[:2]))
    if op == "RoiAlign" and attributes.get("mode", b"avg") != b"avg":
        raise EqsatError(f"RoiAlign with mode={attributes['mode'].decode()} is not done")
    if op == "RMSNormalization" and attributes.get("axis", -1) in (0, -len(inputs[0].ty.shape)):
        raise EqsatError("RMSNormalization over all axes is not done")


def _check_slopes(data: Any, slopes: Any) -> None:
    """TVM finds only in the build that slopes don't fit, and says nothing of them."""
    if not all(isinstance(shape, relax.ShapeExpr) for shape in (data, slopes)):
        return
    ends = zip(reversed(list(data.values)), reversed(list(slopes.values)), strict=False)
    numbers = [tuple(map(int, pair)) for pair in ends if all(isinstance(one, tirx.IntImm) for one in pair)]
    if len(slopes.values) > len(data.values) or any(own not in (1, extent) for extent, own in numbers):
        raise EqsatError(
            f"slopes of shape {list(slopes.values)} don't spread to data of shape {list(data.values)}: those of "
            "channels have an extent of 1 for each axis behind them"
        )


def fixed_inputs(builder: relax.BlockBuilder, op: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """``inputs`` as the converter has to get them."""
    if op == "RoiAlign" and attributes.get("coordinate_transformation_mode", b"half_pixel") == b"half_pixel":
        scale = float(attributes.get("spatial_scale", 1.0))
        if opset >= 16 and scale != 1.0:  # half a pixel of the map, not of the image, is taken off
            moved = relax.const(np.float32(0.5 - 0.5 / scale), str(inputs[1].ty.dtype))
            return type(inputs)([inputs[0], builder.emit(relax.op.add(inputs[1], moved)), *list(inputs)[2:]])
    if op == "Pad":
        return cut_first(builder, inputs, attributes)
    if op == "TopK":
        attributes["sorted"] = 1  # any order will do else
    if op == "Unique" and attributes.get("axis") is None:  # places are those of a vector
        return type(inputs)([builder.emit(relax.op.reshape(inputs[0], [-1])), *list(inputs)[1:]])
    if op == "Unsqueeze" and len(inputs) > 1 and isinstance(inputs[1], tvm.ir.GenericConst):
        axes = relax.const(np.atleast_1d(inputs[1].value.numpy()))  # of no axes in a definition of ONNX's
        return type(inputs)([inputs[0], axes])
    if op == "LayerNormalization":
        return with_spread_scales(builder, inputs, attributes)
    if op == "Slice" and len(inputs) > 2:
        return type(inputs)(_counted_from_the_start(builder, inputs))
    return inputs


def converted(builder: relax.BlockBuilder, op: str, inputs: Any, attributes: dict[str, Any], convert: Any) -> Any:
    """``convert(inputs)``, with what it leaves out."""
    if op in _OTHERWISE:
        return _OTHERWISE[op](builder, inputs, attributes, convert)
    if op == "Sign" and not _is_whole(inputs[0]):  # of NaN it is NaN, and TVM's 0
        return relax.op.where(relax.op.isnan(inputs[0]), inputs[0], convert(inputs))
    if op == "Mod" and not attributes.get("fmod") and not _is_whole(inputs[0]):
        return _remainder(builder, inputs)
    if op == "Tile" and isinstance(inputs[1], relax.ShapeExpr):
        return tiled(builder, inputs[0], inputs[1])
    if op == "TopK" and (made := _first_of_sorted(builder, inputs, attributes)) is not None:
        return made
    if op == "ConvTranspose" and attributes.get("output_shape"):
        _say_pads(inputs, attributes)
    if op == "Split" and 0 in (lengths := _lengths(inputs, attributes)):
        return _parts(builder, inputs[0], lengths, int(attributes.get("axis", 0)))
    if op == "MaxUnpool" and isinstance([*inputs, None][2], ir.GenericConst):
        return _unpooled(builder, inputs, convert)
    if op == "Slice" and (made := sliced(builder, inputs)) is not None:
        return made
    return convert(inputs)


def _power(builder: relax.BlockBuilder, inputs: Any, _attributes: dict[str, Any], convert: Any) -> Any:
    """``Pow``: of the type of its base, whatever that of the exponent."""
    own = str(inputs[0].ty.dtype)
    dtype = "float64" if _is_whole(inputs[0]) else own
    return as_dtype(builder, convert(type(inputs)([as_dtype(builder, one, dtype) for one in inputs])), own)


def _unpooled(builder: relax.BlockBuilder, inputs: Any, convert: Any) -> Any:
    """Of a shape that is given: places are those of the shape that the windows say, behind which zeros follow."""
    made = builder.emit(builder.normalize(convert(type(inputs)([*list(inputs)[:2], None]))))
    more = inputs[2].value.numpy().astype("int64") - [int(extent) for extent in made.ty.shape.values]
    if (more < 0).any():
        raise EqsatError(f"MaxUnpool to {inputs[2].value.numpy().tolist()}, less than its windows say, is not done")
    pads = [int(one) for end in more for one in (0, end)]
    return builder.emit(relax.op.nn.pad(made, pads)) if any(pads) else made


def _lengths(inputs: Any, attributes: dict[str, Any]) -> list[int]:
    """Those that a ``Split`` is given, as far as they are known."""
    given = [*inputs, None][1]
    own = given.value.numpy().tolist() if isinstance(given, ir.GenericConst) else attributes.get("split", ())
    return list(map(int, own)) if isinstance(own, list | tuple) else []


def _parts(builder: relax.BlockBuilder, data: Any, lengths: list[int], axis: int) -> Any:
    """One of no elements too, between which TVM's split sees no border."""
    ends, axis = np.cumsum(lengths).tolist(), axis % len(data.ty.shape)
    return relax.Tuple(
        [
            builder.emit(relax.op.strided_slice(data, [axis], [end - length], [end]))
            for length, end in zip(lengths, ends, strict=True)
        ]
    )


def _first_of_sorted(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``TopK`` of as many as a size says, or a tensor, or of none; TVM's is of a number."""
    data, count = inputs[:2]
    axis = int(attributes.get("axis", -1)) % len(data.ty.shape)
    if isinstance(count, ir.GenericConst):
        return None if count.value.numpy().any() else first_of_none(builder, data, axis)
    if isinstance(count, relax.ShapeExpr):
        end = next(iter(count.values))
    else:
        end = tirx.Var("k", "int64")
        sizes = builder.emit(
            relax.op.tensor_to_shape(as_dtype(builder, builder.emit(relax.op.reshape(count, [1])), "int64"))
        )
        builder.match_cast(sizes, relax.ShapeType([end]))
    order = builder.emit(relax.op.argsort(data, axis, bool(attributes.get("largest", 1)), "int64"))
    is_inside = sym.Analyzer().can_prove(end <= list(data.ty.shape.values)[axis])
    places = builder.emit(relax.op.strided_slice(order, [axis], [0], [end], assume_inbound=is_inside))
    return relax.Tuple([builder.emit(relax.op.gather_elements(data, places, axis)), places])


def _remainder(builder: relax.BlockBuilder, inputs: Any) -> Any:
    """The remainder with the sign of the divisor, also for infinite divisors."""
    emit, zero = builder.emit, relax.const(0, str(inputs[0].ty.dtype))
    rest = emit(relax.op.mod(inputs[0], inputs[1]))
    is_other = emit(relax.op.not_equal(emit(relax.op.less(rest, zero)), emit(relax.op.less(inputs[1], zero))))
    moves = emit(relax.op.logical_and(emit(relax.op.not_equal(rest, zero)), is_other))
    return emit(relax.op.where(moves, emit(relax.op.add(rest, inputs[1])), rest))


def _shifted(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any], convert: Any) -> Any:
    """A shift that is also defined by the type's bits or more, or by a negative number: 0, or to the right the sign."""
    emit, dtype = builder.emit, str(inputs[0].ty.dtype)
    none, most = relax.const(0, dtype), relax.const(int(tvm.DataType(dtype).bits) - 1, dtype)
    by = inputs[1]
    inside = emit(relax.op.equal(emit(relax.op.maximum(emit(relax.op.minimum(by, most)), none)), by))
    made = emit(builder.normalize(convert(type(inputs)([inputs[0], emit(relax.op.where(inside, by, most))]))))
    keeps_sign = attributes["direction"] == b"RIGHT" and dtype.startswith("int")
    return made if keeps_sign else emit(relax.op.where(inside, made, none))


_OTHERWISE: Final = {
    "Resize": resized,
    "Mul": zero_keeping_product,
    "Pow": _power,
    "LRN": norm_of_neighbours,
    "BitShift": _shifted,
    **dict.fromkeys(("ReduceL2", "ReduceLogSum"), in_floats),
}
"""Ops whose converter is called with other operands, or not at all."""


def _is_whole(value: Any) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype).startswith(("int", "uint"))


def _counted_from_the_start(builder: relax.BlockBuilder, inputs: Any) -> Any:
    """Begins and ends that are known at run time only, as places inside of the data: below 0 from the end."""
    data, starts, ends, axes, steps = [*inputs, None, None][:5]
    bounds = [starts, ends]
    if not any(isinstance(b, tvm.ir.Var) and isinstance(b.ty, relax.TensorType) for b in bounds):
        return inputs
    forwards = steps is None or (isinstance(steps, tvm.ir.GenericConst) and bool((steps.value.numpy() > 0).all()))
    if not forwards or (axes is not None and not isinstance(axes, tvm.ir.GenericConst)):
        raise EqsatError("Slice along axes, or backwards, that are known at run time only is not done")
    rank = len(data.ty.shape)
    count = int(starts.ty.shape.values[0])
    places = range(count) if axes is None else [int(axis) % rank for axis in axes.value.numpy()]
    extents = [list(data.ty.shape)[place] for place in places]
    sizes = builder.emit(relax.op.shape_to_tensor(builder.emit(relax.ShapeExpr(extents))))
    inside = []
    for bound in bounds:
        given = as_dtype(builder, bound, "int64")
        below = builder.emit(relax.op.less(given, relax.const(0, "int64")))
        counted = builder.emit(relax.op.where(below, builder.emit(relax.op.add(given, sizes)), given))
        least = builder.emit(relax.op.maximum(counted, relax.const(0, "int64")))
        inside.append(builder.emit(relax.op.minimum(least, sizes)))
    inside[1] = builder.emit(relax.op.maximum(*inside))  # nothing, where the end is before the begin
    return [data, *inside, axes, steps]


def _say_pads(inputs: Any, attributes: dict[str, Any]) -> None:
    """Of a transposed convolution, in place of the extents of its result."""
    extents = [int(e) if isinstance(e, tirx.IntImm) else None for e in list(inputs[0].ty.shape.values)[2:]]
    if None in extents:
        raise EqsatError("ConvTranspose with output_shape of data of unknown size is not done")
    rank = len(extents)
    sizes = [int(e) for e in list(inputs[1].ty.shape.values)[2:]]
    wanted = list(attributes.pop("output_shape"))[-rank:]
    ones, zeros = [1] * rank, [0] * rank
    strides, dilations, more = (
        list(attributes.get(name, usual))
        for name, usual in (("strides", ones), ("dilations", ones), ("output_padding", zeros))
    )
    is_upper = attributes.pop("auto_pad", b"NOTSET") == b"SAME_UPPER"
    begins, ends = [], []
    for i, extent in enumerate(extents):
        whole = strides[i] * ((extent or 0) - 1) + more[i] + (sizes[i] - 1) * dilations[i] + 1
        pad = max(0, whole - wanted[i])
        more[i] += max(0, wanted[i] - whole)
        begins.append(pad // 2 if is_upper else pad - pad // 2)
        ends.append(pad - begins[-1])
    attributes.update(pads=begins + ends, output_padding=more)
