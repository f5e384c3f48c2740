"""Reductions of ONNX where TVM takes infinities, no axes, scales of fewer axes, or windows for something else.

In: a builder, a node's operands and attributes. Out: its result, in Relax, or its operands as the converter takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import ir, relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.extremes import extreme
from eqsat_layout.readers.layers.local_norms import local_norm


def extreme_of_axes(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any], *, is_max: bool) -> Any:
    """``ReduceMax`` and ``ReduceMin``: of infinities alone an infinity, where TVM's begin with the lowest number."""
    axes = _axes("ReduceMax" if is_max else "ReduceMin", inputs, attributes)
    if not axes and attributes.get("noop_with_empty_axes"):
        return inputs[0]
    return extreme(builder, inputs[0], axes or None, keeps=bool(attributes.get("keepdims", 1)), is_max=is_max)


def log_sum_exp(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ReduceLogSumExp``; of infinities no difference is taken. Of whole numbers without the fraction."""
    own = str(inputs[0].ty.dtype)
    if not own.startswith(("float", "bfloat")):
        return in_floats(builder, inputs, attributes, lambda given: log_sum_exp(builder, given, attributes))
    data, emit, op = inputs[0], builder.emit, relax.op
    axes = _axes("ReduceLogSumExp", inputs, attributes)
    if not axes and attributes.get("noop_with_empty_axes"):
        return data
    most = extreme(builder, data, axes or None, keeps=True, is_max=True)
    most = emit(op.where(emit(op.isinf(most)), relax.const(0, own), most))
    total = emit(op.sum(emit(op.exp(emit(op.subtract(data, most)))), axes or None, True))
    made = emit(op.add(emit(op.log(total)), most))
    return made if attributes.get("keepdims", 1) else emit(op.squeeze(made, axes or None))


def in_floats(builder: relax.BlockBuilder, inputs: Any, _attributes: dict[str, Any], convert: Any) -> Any:
    """Roots and logarithms of whole numbers without the fraction, as ONNX Runtime has them; TVM's take floats only."""
    data, *rest = inputs
    own = str(data.ty.dtype)
    if own.startswith(("float", "bfloat")):
        return convert(inputs)
    return as_dtype(builder, convert(type(inputs)([as_dtype(builder, data, "float64"), *rest])), own)


_OF_EACH: Final[Mapping[str, Callable[[relax.BlockBuilder, Any], Any]]] = {
    "ReduceL1": lambda _, x: relax.op.abs(x),
    "ReduceL2": lambda _, x: relax.op.abs(x),
    "ReduceLogSum": lambda b, x: in_floats(b, [x], {}, lambda given: b.emit(relax.op.log(*given))),
    "ReduceSumSquare": lambda _, x: relax.op.multiply(x, x),
}
"""What reductions make of one element."""


def of_each(builder: relax.BlockBuilder, op: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """What a reduction over no axes gives; None where it is over some, or nothing happens to single elements."""
    if op not in _OF_EACH or not attributes.get("noop_with_empty_axes") or _axes(op, inputs, attributes):
        return None
    return _OF_EACH[op](builder, inputs[0])


def _axes(op: str, inputs: Any, attributes: dict[str, Any]) -> list[int]:
    given = [*inputs, None][1]
    if given is not None and not isinstance(given, ir.GenericConst):
        raise EqsatError(f"{op} along axes that are known at run time only is not done")
    return list(attributes.get("axes", ()) if given is None else given.value.numpy().tolist())


def norm_of_neighbours(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any], convert: Any) -> Any:
    """``LRN``; TVM's is of as many channels before as behind, of float32, and of one axis or two besides."""
    data, size = inputs[0], int(attributes["size"])
    if size % 2 and str(data.ty.dtype) == "float32" and len(data.ty.shape) in (3, 4):
        return convert(inputs)
    alpha, beta, bias = (
        float(attributes.get(name, usual)) for name, usual in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return local_norm(builder, data, size, alpha, beta, bias)


def with_spread_scales(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The operands of a ``LayerNormalization``, of which scale and bias have all axes that it goes over: those of fewer
    are spread along the others."""
    data, *scales = inputs
    axis, extents = int(attributes.get("axis", -1)), list(data.ty.shape.values)
    normal = extents[axis % len(extents) :]
    return type(inputs)([data, *(one and _spread(builder, one, normal) for one in scales)])


def _spread(builder: relax.BlockBuilder, scale: Any, extents: list[Any]) -> Any:
    own = list(scale.ty.shape.values)
    if list(map(str, own)) == list(map(str, extents)):
        return scale
    more = len(own) - len(extents)
    if more > 0 and all(str(one) == "1" for one in own[:more]):
        scale = builder.emit(relax.op.reshape(scale, own[more:]))
    return builder.emit(relax.op.broadcast_to(scale, extents))
