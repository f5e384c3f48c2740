"""Ops of ONNX that TVM's frontend does not take and that ONNX does not write in others either.

In: a node's inputs and attributes. Out: its result, in Relax; :class:`EqsatError` for what is not done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.determinants import determinant
from eqsat_layout.readers.scattering import scattered
from eqsat_layout.readers.window_maxima import Windows, count, maxima, places_of


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of a node."""
    return _MAKERS[kind](builder, [*inputs, *[None] * 4], attributes)


def takes(kind: str, results: int) -> bool:
    """Whether nodes of this op, with so many results, are made here."""
    return kind in _MAKERS and (kind != "MaxPool" or results > 1)


def _products(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``CumProd``."""
    data, axis = inputs[:2]
    if not isinstance(axis, ir.GenericConst):
        raise EqsatError("CumProd along an axis that is known at run time only is not done")
    rank = len(data.ty.shape)
    along = int(axis.value.numpy().reshape(-1)[0]) % rank
    turned = bool(attributes.get("reverse"))
    if turned:
        data = builder.emit(relax.op.flip(data, along))
    own = bool(attributes.get("exclusive"))
    made = builder.emit(relax.op.cumprod(data, along, exclusive=own))
    return builder.emit(relax.op.flip(made, along)) if turned else made


def _same_bits(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``BitCast``."""
    helper = importlib.import_module("onnx.helper")
    dtype = str(helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    return builder.emit_te(
        lambda x: te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), "bits"),
        inputs[0],
        primfunc_name_hint="same_bits",
    )


def _turned(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ReverseSequence``: of each sequence of a batch as many steps as it has."""
    time, batch = int(attributes.get("time_axis", 0)), int(attributes.get("batch_axis", 1))

    def turned(x: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            length, step = tirx.Cast("int64", lengths(at[batch])), at[time]
            place = tirx.Select(step < length, length - 1 - step, step)
            return x(*at[:time], place, *at[time + 1 :])

        return te.compute(x.shape, element, "turned")

    return builder.emit_te(turned, *inputs[:2], primfunc_name_hint="reverse_sequence")


def _pooled(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``MaxPool`` with its second result."""
    data = inputs[0]
    extents = [int(e) if isinstance(e, tirx.IntImm) else None for e in data.ty.shape.values]
    if None in extents[1:]:
        raise EqsatError("the places of maxima in data of unknown size are not done")
    sizes = [int(size) for size in attributes["kernel_shape"]]
    rank, own = len(sizes), [e for e in extents[2:] if e is not None]
    strides = [int(x) for x in attributes.get("strides", [1] * rank)]
    dilations = [int(x) for x in attributes.get("dilations", [1] * rank)]
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode not in ("NOTSET", "VALID"):
        wide = [(-(-e // s) - 1) * s + (k - 1) * d + 1 - e for e, s, k, d in zip(own, strides, sizes, dilations)]  # noqa: B905
        both = [max(0, one) for one in wide]
        before = [(one + (mode == "SAME_LOWER")) // 2 for one in both]
    else:
        pads = [int(x) for x in attributes.get("pads", [0] * 2 * rank)]
        before, both = pads[:rank], [a + b for a, b in zip(pads[:rank], pads[rank:], strict=True)]
    is_ceil = bool(attributes.get("ceil_mode"))
    counts = [
        count(own[i], sizes[i], strides[i], both[i], dilations[i], is_ceil=is_ceil, before=before[i])
        for i in range(rank)
    ]
    values, places = maxima(builder, data, Windows(sizes, strides, before, dilations, counts))
    turned = bool(attributes.get("storage_order"))
    return relax.Tuple([values, places_of(places, own, extents[1] or 0, builder, turned=turned)])


def _infinite(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``IsInf``, of one sign or both."""
    data = inputs[0]
    found, zero = builder.emit(relax.op.isinf(data)), relax.const(0, str(data.ty.dtype))
    for sign, is_other in (("negative", relax.op.greater), ("positive", relax.op.less)):
        if not attributes.get(f"detect_{sign}", 1):
            found = builder.emit(relax.op.logical_and(found, builder.emit(is_other(data, zero))))
    return found


def _scattered(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ScatterElements``."""
    data, indices, updates = inputs[:3]
    reduction = attributes.get("reduction", b"none").decode().replace("none", "update")
    return scattered(builder, data, indices, updates, int(attributes.get("axis", 0)), reduction)


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "CumProd": _products,
    "BitCast": _same_bits,
    "ReverseSequence": _turned,
    "MaxPool": _pooled,
    "IsInf": _infinite,
    "ScatterElements": _scattered,
    "Det": lambda builder, inputs, _: determinant(builder, inputs[0]),
}
